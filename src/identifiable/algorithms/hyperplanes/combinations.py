r"""Rows that are combinations of latents, and the sparser rows that they are combinations of.

A row w = Σ_{k in K} a_k w_k of several latents is zero where all of K are inactive. On these samples all w_k are zero
too, and each of them is zero on other samples as well. So sparser rows are searched among the functionals that vanish
wherever the row does, and the row is a combination if it lies in their span. A latent never does: of the functionals
that vanish where it is inactive, those that contain it vanish nowhere else.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom

from identifiable.algorithms.hyperplanes.affine_subspaces import MOST_FUNCTIONALS, sparse_directions
from identifiable.algorithms.hyperplanes.planes import FLOOR, WhitenedData
from identifiable.arrays import Array

LEVEL = 0.05  # family-wise, over the rows of an unmixing
SPANNED = 1e-3  # distance from a span, of a row of length 1, up to which the row counts as in it
PARTS = 3  # of the samples on a hyperplane: a stray sample is in one of them


def sparser_rows(data: WhitenedData, row: Array, rng: torch.Generator) -> Array:
    """Return the sparser rows (m, n + 1) that a row (n + 1,) is a combination of; none if it is a latent.

    They vanish wherever the row does, and on more samples, by one-sided McNemar tests: of the samples on one of the two
    hyperplanes alone, those on the new one are more than half. The first m of these do not count: a row among m
    functionals passes through m - 1 samples anyway.
    """
    null = _null_space_on(data, row)
    if not 1 < null.shape[1] <= MOST_FUNCTIONALS:
        return np.zeros((0, data.n + 1))
    planes = [data.refine_plane(direction) for direction in sparse_directions(data, null, rng)]
    refined = [plane.row for plane in planes if plane is not None]
    old = _vanishes(data, row)
    found = [np.zeros(data.n + 1)]
    for new in refined:
        on = _vanishes(data, new)
        gained, lost = int((on & ~old).sum()) - null.shape[1], int((old & ~on).sum())
        if gained > 0 and binom.sf(gained - 1, gained + lost, 0.5) < LEVEL / (data.n * len(refined)):
            found.append(new)
    basis, unit = np.array(found), row / np.linalg.norm(row)
    remainder = unit - np.linalg.lstsq(basis.T, unit, rcond=1e-6)[0] @ basis
    return basis[1:] if np.linalg.norm(remainder) < SPANNED else basis[:0]


def _vanishes(data: WhitenedData, row: Array) -> NDArray[np.bool_]:
    w = row[: data.n]
    return np.asarray(np.abs(data.x @ w + row[data.n]) < 10 * FLOOR * np.linalg.norm(w))


def _null_space_on(data: WhitenedData, row: Array) -> Array:
    """Return the functionals (n + 1, m) that vanish on the samples on a hyperplane, but for a few strays."""
    on = np.flatnonzero(_vanishes(data, row))[: PARTS * max(1000, 20 * data.n)]  # the samples are in random order
    parts = [on[start::PARTS] for start in range(PARTS)] if len(on) > 4 * PARTS * data.n else [on]
    nulls = [data.null_space(part) for part in parts if len(part) > data.n]
    return max(nulls, key=lambda null: null.shape[1], default=np.zeros((data.n + 1, 0)))
