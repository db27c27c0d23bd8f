r"""What is identified when x is affine in independent latents.

Let x = A z + b with independent latents z, and y = B x with independent entries too. By the theorem of Darmois and
Skitovich, a latent that is not Gaussian enters only one entry of y. So if at most one latent is Gaussian, y equals z up
to order, sign, scale and shift (Comon 1994, Theorem 11). With several Gaussian latents, every other latent is still
identified, and the Gaussian ones form a block, of which only the span is known: any rotation of them has the same
distribution.

**Tests.** On the rows that a map was fitted to, even latents of Gaussian data look non-Gaussian. So the map and the
densities are fitted to one half of the rows, and tested on the other, in both directions.

Non-Gaussian: for a density :math:`\hat p` from the first half, the split likelihood ratio
:math:`e = \prod \hat p(z) / \max_{m, s} \prod N(z; m, s^2)` over the rows of the second half has a mean of 1 at most if
the latent is Gaussian. So has the average over both directions, and :math:`P(e \ge n / \alpha) \le \alpha / n` for any
number of rows (Wasserman, Ramdas & Balakrishnan 2020). A Gaussian distribution can never be shown.

Separated: the loss of log-likelihood if a pair of latents is rotated by 45 degrees, on rows that neither density saw.
Its mean over its standard error is standard normal, or lower, if every rotation of the pair has the same distribution.
That is so for Gaussian latents, and for dependent ones of an elliptical distribution. The level is shared by all pairs.

Independent: rank correlations of :math:`|z_s|` with :math:`|z_t|` and with :math:`z_t`. Independence holds if none
differs from zero and gross ones are excluded. It fails if one beyond a stated size is shown. Dependent latents, such as
those of a multivariate t distribution, can be reproducible, and mean nothing.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm, rankdata

from identifiable.arrays import Array
from identifiable.theory.certificate import Blocks, Certificate, Check, Level, Verdict, named
from identifiable.theory.independence import Correlations, correlations_of
from identifiable.theory.partitions import blocks_of, linked
from identifiable.theory.thresholds import THRESHOLDS

THEOREM = "Comon 1994, Theorem 11"
PREMISE = "the true mixing is affine and injective, and the latents are independent"
DENSITY_COST = 4.0  # nats that a density fitted to other rows loses by its parameters, about; only for recommendations
MOST_ROWS = 1000  # multiples of the rows, up to which more of them are recommended
_UP_TO_ORDER = (
    "every latent is recovered up to order, sign, scale and shift, because they are independent and at most one is "
    "Gaussian"
)
_BLOCK = (
    "groups of latents are recovered; within a group, latents were not shown to be non-Gaussian, or not shown to be "
    "separated"
)


def log_ratio(log_density: Array, z: Array) -> Array:
    """Return log e (n,) of rows z (N, n), for log-densities (N, n) that were fitted to other rows.

    Examples
    --------
    >>> z = np.random.default_rng(0).laplace(size=(500, 1))
    >>> bool(log_ratio(-np.abs(z) - np.log(2), z)[0] > 10)
    True
    """
    return np.asarray((log_density - norm.logpdf(z, z.mean(0), z.std(0))).sum(0))


def rank_correlations(parts: Sequence[Array]) -> Correlations:
    """Return the rank correlations of |z_s| with |z_t| and with z_t, over parts (N_p, n) ranked separately.

    Examples
    --------
    >>> t = np.random.default_rng(0).standard_t(3, size=(500, 1)) * np.ones((1, 2))
    >>> rank_correlations([t]).values.shape
    (1, 3)
    """
    n = parts[0].shape[1]
    ranks = []
    for z in parts:
        both = np.hstack([np.abs(z - np.median(z, axis=0)), z])
        ranks.append((rankdata(both, axis=0) - (len(z) + 1) / 2) / len(z))
    joined = np.vstack(ranks)
    r = correlations_of((joined.T @ joined)[None] / len(joined))[0]
    s, t = np.nonzero(~np.eye(n, dtype=bool))
    upper = s < t
    values = np.r_[r[s, n + t], r[s, t][upper]][None]
    return Correlations(values, np.array([float(len(joined))]), np.vstack([np.c_[s, t], np.c_[s, t][upper]]))


def certify_independent(log_ratios: Array, separation: Array, dependence: Correlations) -> Certificate:
    """Say what is identified from tests of latents on rows that their map was not fitted to.

    Parameters
    ----------
    log_ratios : (n,) log e, the split likelihood ratio of each latent against a Gaussian.
    separation : (n, n) loss of likelihood if two latents are rotated by 45 degrees, in standard errors.
    dependence : `rank_correlations` of the latents.

    Examples
    --------
    >>> independent = Correlations(np.zeros((1, 9)), np.array([2000.0]), np.zeros((9, 2), dtype=int))
    >>> print(certify_independent(np.array([90.0, 40.0, -3.0]), np.full((3, 3), 9.0), independent).level)
    PS
    >>> certify_independent(np.array([90.0, 1.0, -3.0]), np.full((3, 3), 9.0), independent).blocks
    ((0,), (1, 2))
    """
    n = len(log_ratios)
    independent = check_dependence(dependence)
    rows = float(dependence.counts.sum())
    gaussian, separated = _check_gaussian(log_ratios, rows), _check_separation(separation, rows)
    blocks = blocks_of_tests(log_ratios, separation)
    level = Level.NONE
    if independent.verdict == "holds":
        level = Level.PS if len(blocks) == n else Level.AT if len(blocks) == 1 else Level.BLOCKS
    groups = blocks if level else ()
    return Certificate(
        level=level,
        if_undecided_hold=Level.NONE if independent.verdict == "fails" else Level.PS,
        theorem=THEOREM if level else "",
        checks=(independent, gaussian, separated),
        blocks=groups,
        pure=groups,
        shift=np.zeros(n) if level else None,
        basis=np.eye(n) if level else None,
        estimated=True,
        meaning={Level.PS: _UP_TO_ORDER, Level.BLOCKS: _BLOCK}.get(level, ""),
        error_level=THRESHOLDS.error_level,
        premises=(PREMISE,) if level else (),
    )


def blocks_of_tests(log_ratios: Array, separation: Array) -> Blocks:
    """Return the latents as blocks: those not shown to be non-Gaussian are one, and pairs not shown to be separated.

    Examples
    --------
    >>> blocks_of_tests(np.array([90.0, 1.0, 40.0, -3.0]), np.full((4, 4), 9.0))
    ((0,), (1, 3), (2,))
    """
    n = len(log_ratios)
    hidden = log_ratios < _threshold(n)
    return blocks_of(linked(np.outer(hidden, hidden) | (separation < _least_separation(n)) & ~np.eye(n, dtype=bool)))


def check_dependence(found: Correlations) -> Check:
    """Judge whether latents are independent, by rank correlations of their sizes on rows the map was not fitted to."""
    small, gross = THRESHOLDS.excluded_correlation, THRESHOLDS.gross_dependence
    name, statement = "independence", "the sizes of latents do not depend on other latents"
    if not found.values.shape[1]:
        return Check(name, statement, None, None, "holds", "There is one latent only.")
    size, rows = np.abs(found.values[0]), float(found.counts.sum())
    worst = int(size.argmax())
    s, t = found.pairs[worst]
    which = f"the size of latent {s} depends on latent {t} (rank correlation {found.values[0, worst]:.2g})"
    verdict: Verdict = "inconclusive"
    if found.shown(small).any():
        verdict, sentence = "fails", f"On new rows, {which}, beyond {small}: the latents are not independent."
    elif found.shown(0.0).any():
        sentence = f"On new rows, {which}. This is more than chance, and less than {small} is not excluded."
    elif found.excluded(gross).all():
        verdict = "holds"
        sentence = f"On new rows, no rank correlation of sizes is shown, and correlations beyond {gross} are excluded."
    else:
        sentence = f"{rows:.0f} rows do not exclude that {which}."
    return Check(name, statement, float(size[worst]), small, verdict, sentence)


def _threshold(n: int) -> float:
    return float(np.log(n / THRESHOLDS.error_level))


def _least_separation(n: int) -> float:
    return float(norm.isf(THRESHOLDS.error_level / max(n * (n - 1) // 2, 1)))


def _check_separation(separation: Array, rows: float) -> Check:
    name, statement = "separation", "rotating two latents changes their joint distribution"
    n, threshold = len(separation), _least_separation(len(separation))
    if n == 1:
        return Check(name, statement, None, None, "holds", "There is one latent only.")
    above = np.triu_indices(n, 1)
    s, t = (int(index[separation[above].argmin()]) for index in above)
    least = float(separation[s, t])
    if least >= threshold:
        sentence = (
            f"On new rows, rotating any two latents by 45 degrees lowers the likelihood, by {least:.2g} standard "
            f"errors or more; {threshold:.2g} would do."
        )
        return Check(name, statement, least, threshold, "holds", sentence)
    sentence = (
        f"On new rows, rotating latents {s} and {t} by 45 degrees lowers the likelihood by {least:.2g} standard "
        f"errors; {threshold:.2g} would show that they are separated."
    )
    remedy = _more_rows((threshold / least) ** 2 * rows, rows) if least > threshold / np.sqrt(MOST_ROWS) else ""
    return Check(name, statement, least, threshold, "inconclusive", sentence, remedy)


def _check_gaussian(log_ratios: Array, rows: float) -> Check:
    name, statement = "non-Gaussian", "at most one latent is Gaussian"
    n, threshold = len(log_ratios), _threshold(len(log_ratios))
    if n == 1:
        return Check(name, statement, None, None, "holds", "There is one latent only.")
    least = float(np.sort(log_ratios)[1])  # one latent may be Gaussian
    open_ = np.flatnonzero(log_ratios < threshold)
    if len(open_) <= 1:
        sentence = (
            f"On new rows, every latent but one at most is likelier under its own density than under a Gaussian, by "
            f"{least:.3g} nats or more; {threshold:.2g} would do."
        )
        return Check(name, statement, least, threshold, "holds", sentence)
    sentence = (
        f"{named('latent', open_.tolist()).capitalize()} may be Gaussian: their own densities gain {least:.2g} nats or "
        f"less over a Gaussian on {rows:.0f} new rows, except one of them, and {threshold:.2g} would show it."
    )
    return Check(name, statement, least, threshold, "inconclusive", sentence, _remedy(least, threshold, rows))


def _remedy(gain: float, threshold: float, rows: float) -> str:
    """Say how many rows would show it, if the gain per row is what it seems."""
    needed = rows * (threshold + DENSITY_COST) / max(gain + DENSITY_COST, 1e-9)
    if gain <= 0 or needed > MOST_ROWS * rows:
        return "If a block is Gaussian, no number of rows separates its latents."
    return _more_rows(needed, rows)


def _more_rows(needed: float, rows: float) -> str:
    return f"About {float(f'{1.2 * needed:.2g}'):.0f} rows instead of {rows:.0f} would show it."
