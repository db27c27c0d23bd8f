"""Whether the axes of a code are among the axes that an unmixing of it allows."""

from collections.abc import Sequence

import numpy as np

from identifiable.arrays import Array, FloatArray, IntArray

ON_AXES = 0.95  # R² of a coordinate of the code given a group of latents: the group is on the axes of the code


def match_axes(code: FloatArray, latents: FloatArray, groups: Sequence[Sequence[int]]) -> IntArray | None:
    r"""Return which coordinates of a code (N, n) each group of latents (N, n) consists of.

    An unmixing determines a group only up to an invertible map of the group. If every group of m latents spans m
    coordinates of the code,

    .. math:: R^2(p_j \mid z_B) \ge 0.95 \quad \text{for } |B| \text{ coordinates } j,

    then the code is itself one of the solutions, and its axes need no unmixing.

    Returns
    -------
    (n,) number of the group of each coordinate, -1 for coordinates in no group; None if some group is not on the axes.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(500, 3))
    >>> z[:, :2] = z[:, :2] @ [[0.8, 0.6], [-0.6, 0.8]]
    >>> match_axes(z, np.c_[z[:, 2], z[:, :2] @ [[1, 2], [2, -1]]], [[1, 2]]).tolist()
    [0, 0, -1]
    >>> print(match_axes(z, z @ [[1, 1, 0], [1, -1, 0], [0, 0, 1]], [[0], [1]]))
    None
    """
    group_of = np.full(code.shape[1], -1)
    for k, group in enumerate(groups):
        explained = np.where(group_of < 0, _explained(code, latents[:, list(group)]), -1.0)
        best = np.argsort(-explained, kind="stable")[: len(group)]
        if explained[best].min() < ON_AXES:
            return None
        group_of[best] = k
    return group_of


def _explained(code: FloatArray, latents: FloatArray) -> Array:
    """Return R² (n,) of each coordinate of the code given some latents."""
    centred = code - code.mean(0)
    basis = np.linalg.qr(latents - latents.mean(0))[0]
    return np.square(basis.T @ centred).sum(0) / np.maximum(np.square(centred).sum(0), np.finfo(np.float64).tiny)
