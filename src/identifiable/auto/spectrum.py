"""Where the variances of principal components fall to the level of noise, and in which scale of the columns."""

from dataclasses import dataclass

import numpy as np

from identifiable.algorithms.coordinates import Coordinates
from identifiable.arrays import Array, FloatArray


@dataclass(frozen=True)
class SpectrumRules:
    """When a fall of the variances separates latents from noise; chosen by reasoning, checked on simulated tables.

    Attributes
    ----------
    fall : least factor of a fall to the level of noise, which has three directions or more.
    even : largest ratio of variances of the noise, times that of white noise in as many rows and columns (Marchenko &
        Pastur 1967). Noise of columns that are standardised differs in size.
    far : a fall by this factor needs no even noise; there may be one direction of it. A square mixing without noise has
        a fall by 1000 in some of fifty tables, and a million is rounding.
    deepest : the latter for no more components. A fall after more of them separates pixels that few rows use from
        others.
    white : noise is white if its variances leave the limits of white noise by no more than this factor, which sampling
        and rounding explain; the last component of a latent has to lie above them by twice this excess.
    white_share : least share of the components that white noise has, and at least six. Latents of equal variance are
        as even, if they are few and the mixing is orthogonal.
    single : a component is a single column if it holds this share of its squared weights.
    """

    fall: float = 10.0
    even: float = 5.0
    far: float = 1e6
    deepest: int = 40
    white: float = 1.1
    white_share: float = 0.5
    single: float = 0.9


RULES = SpectrumRules()


def spectral_gap(
    variances: FloatArray, rows: int | None = None, columns: int | None = None, *, only_even: bool = False
) -> int | None:
    """Return after how many components the variances (r,) fall to a level of noise: white, or far below and even.

    Parameters
    ----------
    variances : of the principal components, largest first.
    rows, columns : numbers of rows and columns they were computed from; None: very many rows, r columns.
    only_even : whether noise has to be even, however far the fall.

    Examples
    --------
    >>> spectral_gap(np.array([3.0, 2.0, 1.0, 0.03, 0.02, 0.01])), spectral_gap(np.array([3.0, 2.0, 0.02]))
    (3, None)
    """
    falls, columns = variances[:-1] / variances[1:], columns or len(variances)
    if rows is not None and (k := _white_from(variances, rows, columns)):
        return k
    for k in falls.argsort()[::-1] + 1:
        noise, fall = variances[k:], falls[k - 1]
        even = len(noise) > 2 and noise[0] <= RULES.even * _white(columns - k, rows) * noise[-1]
        far = not only_even and k <= RULES.deepest and fall >= RULES.far
        if fall >= RULES.fall and (even or far):
            return int(k)
    return None


def _white_from(variances: FloatArray, rows: int, columns: int) -> int | None:
    """Return the first component from which on variances are those of white noise; None without such, or if all are."""
    least = np.ceil(max(6, RULES.white_share * len(variances)))
    for k in range(len(variances) - int(least) + 1):
        sigma, root = variances[k:].sum() / (columns - k), ((columns - k) / rows) ** 0.5
        low, high = sigma * (1 - root) ** 2 / RULES.white, sigma * (1 + root) ** 2 * RULES.white
        if variances[k] <= high and variances[-1] >= low:
            above = k > 0 and variances[k - 1] >= high * (2 * RULES.white - 1) / RULES.white
            return k if above else None
    return None


def _white(columns: int, rows: int | None) -> float:
    """Return the ratio of the largest to the smallest variance of white noise, by the limits for many of both."""
    if rows is None:
        return 1.0
    root = (min(rows, columns) / max(rows, columns)) ** 0.5
    return float(((1 + root) / max(1 - root, 0.01)) ** 2)


@dataclass(frozen=True)
class Scale:
    """Whether columns keep their relative sizes, and why, if that was not obvious."""

    common: bool
    reason: str = ""


def choose_scale(X: FloatArray) -> Scale:
    """Choose between columns (N, d) as they are and standardised columns, by where their spectra show a noise level.

    Standardising enlarges the noise of columns that hold little else. So columns keep their sizes if only then the
    variances fall to an even level, and the components before it are no single columns, as they are where columns have
    different units.
    """
    raw, standard = (Coordinates.fit(X, standardise=chosen) for chosen in (False, True))
    k = spectral_gap(raw.variances, *X.shape, only_even=True)
    other = spectral_gap(standard.variances, *X.shape)
    if k is None or k == other or (raw.basis[:, :k] ** 2).max(0).max() >= RULES.single:
        return Scale(common=False)
    found = "those of standardised columns do not" if other is None else f"those of standardised ones after {other}"
    reason = (
        f"Columns keep their relative sizes: so their variances fall to a level of noise after {k} principal "
        f"components, {found}."
    )
    return Scale(common=True, reason=reason)


def principal_components(Y: FloatArray) -> tuple[Array, Array]:
    """Return the variances (r,) of the principal components of rows Y (N, r), and their axes (r, r), largest first."""
    variances, axes = np.linalg.eigh(np.atleast_2d(np.cov(Y.T)))
    return variances[::-1], axes[:, ::-1]
