r"""Rows on affine subspaces that no pattern of activity explains.

If the active latents of every pattern have a joint density, rows of one pattern fill the space of its active latents:
no ratio of two of them is an atom, and rows near each other span as many dimensions as latents are active. Otherwise
some latents determine others; or there are more latents than dimensions, whose patterns are projected to subspaces of
any direction; or the mixing bends: a piecewise affine mixing maps one hyperplane of rows to pieces of several, and the
recovered latents are zero on some of the pieces only.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import poisson

from identifiable.algorithms.spike_slab import patterns_of
from identifiable.arrays import Array

SPARE = 6  # neighbours beyond the number of active latents
MOST_PATTERNS, SEEDS = 20, 8  # patterns to look at, the largest first, and rows of each
THIN = 30  # times the tolerance: extent of neighbours that counts as none
LEVEL = 1e-3  # of a false alarm, over all pairs
MOST_ROWS = 4000  # in which pairs are compared, or up to twice as many
LEAST_ROWS = 8
LEAST_ANGLE = 1e-7  # width of the window in which two angles count as equal
NEIGHBOURS = 50  # windows on either side that show how many rows chance puts into one


@dataclass(frozen=True)
class Excess:
    """Latents that are confined to fewer dimensions than are active in `rows` of `of` rows that were compared."""

    latents: tuple[int, ...]
    rows: int
    of: int


def excess_of(t: Array, tolerance: float) -> Excess | None:
    """Return the largest excess of latents t (N, n), zero up to a tolerance while inactive; None if there is none."""
    return proportional_pair(t, tolerance) or thin_pattern(t, tolerance)


def proportional_pair(t: Array, tolerance: float, level: float = LEVEL) -> Excess | None:
    r"""Return the pair of coordinates of t (N, n) that have one ratio in the most rows, or None if chance explains all.

    t_i = a t_j for a fixed a is an atom of the angle of (t_i, t_j), in rows where both are active (beyond the
    tolerance). It is compared with the density of angles beside it, by Poisson tests.

    Examples
    --------
    >>> t = np.random.default_rng(0).normal(size=(2000, 3))
    >>> proportional_pair(t, 1e-9)
    >>> t[:100, 2] = -0.5 * t[:100, 0]
    >>> proportional_pair(t, 1e-9)
    Excess(latents=(0, 2), rows=100, of=2000)
    """
    t = t[:: max(1, len(t) // MOST_ROWS)]
    width = max(LEAST_ANGLE, 20 * tolerance)
    n = t.shape[1]
    size = np.where(np.abs(t) > max(tolerance, 1e-3), t, np.nan)  # small values have inaccurate angles
    pairs: list[tuple[int, int]] = []
    for i in range(n - 1):
        angles = np.sort(np.arctan(size[:, i + 1 :] / size[:, i : i + 1]), axis=0)  # NaN comes last
        if len(angles) >= LEAST_ROWS:
            close = angles[LEAST_ROWS - 1 :] - angles[: 1 - LEAST_ROWS] <= width
            pairs += [(i, i + 1 + int(j)) for j in np.flatnonzero(close.any(0))]
    found = [Excess(pair, rows, len(t)) for pair in pairs if (rows := _atom(size[:, pair], width, level / n**2))]
    return max(found, key=lambda one: one.rows, default=None)


def _atom(pair: Array, width: float, level: float) -> int:
    """Return how many distinct rows of the pair (N, 2) have one ratio, 0 if chance explains them."""
    distinct = np.unique(pair[~np.isnan(pair).any(1)], axis=0)
    q = np.sort(np.arctan(distinct[:, 1] / distinct[:, 0]))
    counts = np.searchsorted(q, q + width, "right") - np.arange(len(q))
    if not len(q) or counts.max() < LEAST_ROWS:
        return 0
    start, most = int(counts.argmax()), int(counts.max())
    beside = np.searchsorted(q, q[start] + NEIGHBOURS * width) - np.searchsorted(q, q[start] - NEIGHBOURS * width)
    chance = max((beside - most) / (2 * NEIGHBOURS), len(q) * width)
    return most if len(q) * poisson.sf(most - 2, chance) < level else 0


def thin_pattern(t: Array, tolerance: float) -> Excess | None:
    """Return the pattern in which most rows have neighbours on an affine subspace of too few dimensions, if any.

    Examples
    --------
    Both latents are active, but on two lines.

    >>> z = np.random.default_rng(0).normal(size=2000)
    >>> thin_pattern(np.c_[z, np.where(z < 1, 1 - z, 2 * z)], 1e-9)
    Excess(latents=(0, 1), rows=8, of=8)
    """
    patterns, members = patterns_of(np.abs(t) > tolerance)
    found = []
    for pattern, rows in zip(patterns[:MOST_PATTERNS], members[:MOST_PATTERNS], strict=True):
        active = np.flatnonzero(pattern)
        own = np.unique(t[np.ix_(rows, active)], axis=0)
        many = len(active) + SPARE
        if len(active) < 2 or len(own) < 3 * many:
            continue
        seeds = own[:: -(-len(own) // SEEDS)]
        near = np.argsort(((seeds[:, None] - own) ** 2).sum(2), axis=1)[:, :many]
        extents = np.linalg.svd(own[near] - own[near].mean(1, keepdims=True), compute_uv=False)
        thin = (extents[:, -1] < THIN * tolerance) & (extents[:, 0] > 1e3 * THIN * tolerance)
        if thin.any():
            found.append(Excess(tuple(map(int, active)), int(thin.sum()), len(seeds)))
    return max(found, key=lambda one: one.rows, default=None)
