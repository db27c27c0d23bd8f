"""What is identified of latents given by rows, each exactly 0 where it is inactive."""

import numpy as np
from numpy.typing import ArrayLike

from identifiable.arrays import BoolArray, is_real
from identifiable.errors import DataError
from identifiable.theory.certificate import Certificate, Check, check_mixing
from identifiable.theory.degenerate import Frame, check_variability, conclude
from identifiable.theory.exchanges import Exchanges
from identifiable.theory.pattern_tests import CountedPatterns
from identifiable.theory.thresholds import THRESHOLDS

_PREMISE = "rows are independent, and a latent is exactly 0 in a row if and only if it is inactive there"


def certify_latents(
    z: ArrayLike, active: ArrayLike | None = None, *, injective: bool | None = None, alpha: float = 0.05
) -> Certificate:
    r"""Say what is identified of latents z, given by rows, when x = f(z) is observed.

    Latents that are inactive are exactly 0, so the patterns of activity are read without error, and 3.6 and 3.8a of Xu
    et al. (2026) hold by construction. What is tested is whether a decoder that bends where latents become inactive
    could exchange them (`identifiable.theory.straightness`): whether two latents are never active together, equally
    often active with the same others, and then equally distributed. Learnt latents are only nearly 0 when inactive.

    Parameters
    ----------
    z : (N, n). Latents, 0 where inactive.
    active : (N, n) of bools or None, default=None. Which latents are active in each row. None: those that are not 0.
    injective : bool or None, default=None. Whether f is continuous, injective and piecewise affine. None: not known.
        The check is then inconclusive, and nothing is guaranteed.
    alpha : float, default=0.05. Probability that any latent is wrongly shown to be straight, at most.

    Examples
    --------
    Two of three lines have the same weight and distribution.

    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2000, 3)) * np.eye(3)[rng.choice(3, size=2000, p=[0.3, 0.3, 0.4])]
    >>> certificate = certify_latents(z, injective=True)
    >>> print(certificate.level, certificate.straight, certificate.exchangeable)
    PS unless bent (2,) ((0, 1),)
    """
    values, mask = _checked(z, active, alpha)
    patterns = CountedPatterns.of(values, mask)
    n = values.shape[1]
    used = patterns.masks[patterns.masks.any(1)]
    live = np.flatnonzero(used.any(0))
    full = bool(used[:, live].all(1).any())
    part = CountedPatterns(patterns.masks[:, live], patterns.counts, values[:, live], patterns.label)
    found = Exchanges.none(affine=False) if full else Exchanges.of_rows(part, live, alpha)
    sentence = "By construction: latents are 0 where they are inactive, so all components share a point and a basis."
    checks = (
        check_mixing("continuous, injective and piecewise affine", injective),
        _check_supports(part),
        Check("3.6", "all supports share a point and one basis", None, None, "holds", sentence),
        check_variability(used[:, live].T, "holds", live, n),
        found.check,
    )
    frame = Frame(used[:, live].T, live, n, np.zeros(n), np.eye(n), estimated=False)
    return conclude(checks, frame, found, never_bends=full, affine=False, premises=(_PREMISE,))


def _checked(z: ArrayLike, active: ArrayLike | None, alpha: float) -> tuple[np.ndarray, BoolArray]:
    values = np.asarray(z, dtype=np.float64)
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise DataError(f"z must be finite, of shape (rows, latents), got shape {values.shape}.")
    mask = values != 0 if active is None else np.asarray(active, dtype=bool)
    if mask.shape != values.shape:
        raise DataError(f"active must have the shape of z, {values.shape}, got {mask.shape}.")
    if not mask.any():
        raise DataError("No latent is active in any row, so there is nothing to identify. Pass latents that vary.")
    if not is_real(alpha, 0, 1):
        raise DataError(f"alpha must lie between 0 and 1, got {alpha!r}.")
    return values, mask


def _check_supports(patterns: CountedPatterns) -> Check:
    """Check that the active latents of each pattern with enough rows vary in as many directions."""
    least = 1.0
    assert patterns.z is not None
    for j, (mask, count) in enumerate(zip(patterns.masks, patterns.counts, strict=True)):
        if mask.any() and count > 2 * mask.sum():
            rows = patterns.z[patterns.label == j][:, mask]
            rows = rows - rows.mean(0)
            rows /= np.maximum(np.sqrt((rows**2).mean(0)), 1e-300)
            least = min(least, float(np.linalg.svd(rows, compute_uv=False)[-1]) / np.sqrt(count))
    clear = least > THRESHOLDS.exact
    sentence = "In every pattern with enough rows the active latents vary in all directions."
    if not clear:
        sentence = "In some pattern the active latents depend on each other exactly, so they are not the latents."
    statement = "the active latents of every pattern vary in all directions"
    return Check("supports", statement, least, THRESHOLDS.exact, "holds" if clear else "fails", sentence)
