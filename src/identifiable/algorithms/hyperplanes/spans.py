r"""What the rows on a hyperplane span, and which latents a hyperplane therefore belongs to.

Let t = L z be an affine image of latents z that have a density in every pattern of activity, and are zero while
inactive. t_i is the combination of the latents k with :math:`L_{ik} \ne 0`. Up to probability zero, t_i = 0 holds only
in rows in which all of these are inactive. Every one of them is then constant on these rows, so with G_i the
coordinates whose combinations can be constant on the rows with t_i = 0:

    G_i = {i}  =>  t_i is one latent, up to scale.

In general, t_i is a combination of latents that lie in the span of G_i. If a set B of coordinates contains G_i for all
i in B, it spans the same space as |B| of the latents: a block.

**Strays.** By chance, |t_i| is within the tolerance of zero in a few rows in which its latents are active. They could
hide that the others span too little. A combination of m latents may also be placed to pass through m - 1 rows. The
rows are therefore split into two parts more than there are strays, but for a probability of `level` / n: in one part,
fewer than m - 1 rows are off, so that a combination is still constant there. G_i is the union over the parts.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import poisson

from identifiable.arrays import Array
from identifiable.training.clock import require_time

LEVEL = 0.05  # family-wise, over all coordinates
BESIDE = 0.05  # half-width of the band, in standard deviations, in which the density beside zero is measured
CONSTANT = 1e-6  # variance below which a combination of coordinates counts as constant
MOST_STRAYS = 50


@dataclass(frozen=True, eq=False)
class Spans:
    """The groups G_i, and how the rows on each hyperplane t_i = 0 show them.

    Attributes
    ----------
    groups : (n, n) bool, row i: the coordinates whose combinations are constant on the rows with t_i = 0. Contains i.
    rows : (n,) number of rows on each hyperplane.
    strays : (n,) number of rows that chance puts there at most.
    level : probability of more strays than that on any hyperplane.
    """

    groups: NDArray[np.bool_]
    rows: NDArray[np.intp]
    strays: NDArray[np.intp]
    level: float = LEVEL

    @property
    def single(self) -> NDArray[np.bool_]:
        """Which coordinates (n,) are shown to be one latent each."""
        return np.asarray(self.groups.sum(1) == 1)


def spans_of(t: Array, tolerance: Array, level: float = LEVEL) -> Spans:
    """Find the groups of coordinates t (N, n), of unit variance and zero up to a tolerance (n,) while inactive.

    Examples
    --------
    The third coordinate is a sum of two latents: where it is zero, the second is zero too.

    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2000, 3)) * (rng.random((2000, 3)) < 0.5)
    >>> spans_of(z @ np.array([[1, 0, 0], [0, 1, 1], [0, 0, 1]]), np.full(3, 1e-9)).groups.astype(int)
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 1, 1]])
    """
    n = t.shape[1]
    size = np.abs(t)
    wide = np.maximum(BESIDE, 3 * tolerance)
    beside = ((size > tolerance) & (size < wide)).sum(0)
    expected = 2 * beside * tolerance / (wide - tolerance)  # twice what the density beside zero suggests
    strays = poisson.isf(level / n, expected).astype(int)
    groups, rows = np.zeros((n, n), dtype=bool), np.zeros(n, dtype=int)
    for i in range(n):
        require_time()
        on = t[size[:, i] <= tolerance[i]]
        rows[i] = len(on)
        if strays[i] > MOST_STRAYS:
            groups[i] = True
            continue
        parts = strays[i] + 2
        for part in range(parts):
            groups[i] |= _constant(on[part::parts])
        groups[i, i] = True
    return Spans(groups, rows, strays, level)


def _constant(t: Array) -> NDArray[np.bool_]:
    """Return the coordinates (n,) of which some combination is constant on all rows t (M, n)."""
    if len(t) < 2:
        return np.ones(t.shape[1], dtype=bool)
    centred = t - t.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(t))
    null = vectors[:, values < CONSTANT]
    alone = (centred**2).mean(0) < CONSTANT
    if null.shape[1] == alone.sum():
        return np.asarray(alone)
    return np.asarray(alone | ((null**2).sum(1) > CONSTANT))
