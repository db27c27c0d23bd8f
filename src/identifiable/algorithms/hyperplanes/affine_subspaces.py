r"""Affine subspaces that hold all samples with one pattern of activity, and the functionals that vanish on them.

Samples whose latents in I are inactive lie in an affine subspace of codimension |I|. Its null space, the functionals
that vanish on it, is spanned by the rows of I. Subspaces come from three sources: *neighbours* (where the inactive
value is far from the mean, samples of one pattern are near each other), samples with one *on/off code* of the rows
found so far, and combinations of rows that the search meets. Intersecting null spaces isolates single rows. A subspace
that cannot be split is a *block*: its latents are always active together, and only their span is identified.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from identifiable.algorithms.hyperplanes.planes import FLOOR, LEAST_SHARE, Hyperplane, WhitenedData
from identifiable.arrays import Array
from identifiable.training.clock import require_time

MOST_FUNCTIONALS = 14  # null spaces of more dimensions are not searched
TRIED = 16  # null spaces to intersect with; the best one is kept
STARTS, SWEEPS = 24, 30  # of reweighted least squares
ANGLE = 1e-3  # width of the window in which angles count as equal; candidates from it are refined
SHARED = 1 - 1e-7  # cosine from which a functional belongs to two null spaces


@dataclass(frozen=True)
class Subspace:
    """An affine subspace: the orthonormal functionals null (n + 1, m) that vanish on it, and which rows are known."""

    null: Array
    known: NDArray[np.bool_]


class Moments:
    """E φ x xᵀ for many weightings φ of the same rows, by one matrix product."""

    def __init__(self, x: Tensor) -> None:
        self.x, self.q = x, x.shape[1]
        self.i, self.j = torch.triu_indices(self.q, self.q)
        self.products = (x[:, self.i] * x[:, self.j]).T.contiguous()

    def __call__(self, weights: Tensor) -> Tensor:
        """Return E φ x xᵀ (m, q, q) in float64 for weights φ (N, m)."""
        upper = (self.products @ weights / len(weights)).T.double()
        full = torch.zeros(weights.shape[1], self.q, self.q, dtype=torch.float64)
        full[:, self.i, self.j] = upper
        full[:, self.j, self.i] = upper
        return full


def neighbour_subspaces(data: WhitenedData, rng: np.random.Generator, most: int) -> list[Array]:
    """Return null spaces of the subspaces that hold a sample together with its nearest neighbours on white data.

    n + 15 neighbours in general position span everything; if they do not, they share a subspace. Seeds are chosen among
    samples that are on no subspace yet. The search ends when no seed of a batch shares a subspace with its neighbours.
    """
    n, close = data.n, data.n + 15
    if data.rows < 2 * close:
        return []
    x, single = data.x, data.single[:, :n]
    lengths = (single**2).sum(1)
    subspaces: list[Array] = []
    free = np.ones(data.rows, dtype=bool)
    while len(subspaces) < most and free.sum() > close:
        require_time()
        seeds = rng.permutation(np.flatnonzero(free))[:16]
        apart = lengths - 2 * single[seeds] @ single.T
        groups = torch.topk(apart, close, dim=1, largest=False).indices.numpy()
        before = len(subspaces)
        for seed, group in zip(seeds, groups, strict=True):
            if not free[seed]:
                continue
            free[seed] = False
            centre = x[group].mean(0)
            values, vectors = np.linalg.eigh((x[group] - centre).T @ (x[group] - centre))
            null = vectors[:, values < 1e-12 * values[-1]]
            if null.shape[1]:
                inside = np.arange(data.rows)
                for functional in null.T:
                    inside = inside[np.abs((x[inside] - centre) @ functional) < 1e-5]
                free[inside] = False
                subspaces.append(data.null_space(inside))
        if len(subspaces) == before:
            break
    return subspaces


def code_subspaces(data: WhitenedData, kept: list[Hyperplane]) -> list[Subspace]:
    """Return the subspaces of samples with one on/off code of the kept rows, where more than these rows vanish."""
    codes = np.stack([np.abs(k.distance(data.x)) < max(k.band, 1e-5) for k in kept], 1)
    patterns, group, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    group = group.ravel()
    subspaces = []
    for g in np.argsort(-counts)[: 12 * data.n]:
        require_time()
        if counts[g] < data.n + 6:
            break
        null = data.null_space(np.flatnonzero(group == g))
        if null.shape[1] > patterns[g].sum():
            subspaces.append(Subspace(np.linalg.qr(null)[0], patterns[g]))
    return subspaces


def known_subspaces(nulls: list[Array], kept: list[Hyperplane]) -> list[Subspace]:
    """Return the subspaces whose null spaces hold more than kept rows."""
    rows = np.array([k.row / np.linalg.norm(k.row) for k in kept])
    subspaces = []
    for null in nulls:
        basis = np.linalg.qr(null)[0]
        known = np.linalg.norm(rows @ basis, axis=1) > SHARED if kept else np.zeros(0, dtype=bool)
        if known.sum() < null.shape[1]:
            subspaces.append(Subspace(basis, known))
    return subspaces


def narrow(subspace: Subspace, subspaces: list[Subspace], rng: np.random.Generator) -> Subspace:
    """Intersect a null space with others while this removes known rows and keeps an unknown one."""
    for _ in range(2 * len(subspace.null)):
        require_time()
        if subspace.null.shape[1] == 1:
            break
        best: Subspace | None = None
        for h in rng.permutation(len(subspaces))[:TRIED]:
            known = subspace.known & subspaces[h].known
            if known.sum() < subspace.known.sum() or not subspace.known.any():
                left, cosines, _ = np.linalg.svd(subspace.null.T @ subspaces[h].null)
                both = subspace.null @ left[:, : len(cosines)][:, cosines > SHARED]
                if known.sum() < both.shape[1] < subspace.null.shape[1]:
                    fewer = best is None or (known.sum(), both.shape[1]) < (best.known.sum(), best.null.shape[1])
                    best = Subspace(both, known) if fewer else best
        if best is None:
            break
        subspace = best
    return subspace


def sparse_directions(data: WhitenedData, null: Array, rng: torch.Generator) -> Array:
    """Return functionals in span(null) (n + 1, m) that vanish on many samples, by reweighted least squares."""
    m = null.shape[1]
    if m == 1:
        return null.T
    values = data.x[:6000] @ null[: data.n] + null[data.n]
    values = values[(np.abs(values) > 1e-5).any(1)]
    if len(values) < 5 * m:
        return np.zeros((0, data.n + 1))
    if m == 2:
        return frequent_ratios(values) @ null.T
    spectrum, vectors = np.linalg.eigh(values.T @ values / len(values))
    whiten = vectors / np.sqrt(np.maximum(spectrum, 1e-12))
    moments = Moments(torch.as_tensor(values @ whiten).float())
    v = torch.randn(STARTS, m, generator=rng)
    v = v / v.norm(dim=1, keepdim=True)
    for s in range(SWEEPS):
        require_time()
        epsilon = max(0.01, 0.01 ** (s / (0.8 * SWEEPS)))
        v = torch.linalg.eigh(moments(1 / ((moments.x @ v.T) ** 2 + epsilon**2)))[1][:, :, 0].float()
    distinct: list[Array] = []
    for a in v.double().numpy():
        if all(abs(a @ b) < 0.999 for b in distinct):
            distinct.append(a)
    return (null @ whiten @ np.array(distinct).T).T


def frequent_ratios(values: Array, most: int = 3) -> Array:
    """Return the directions a (k, 2) with a·v = 0 for most of the pairs v (N, 2): atoms of their angle, largest first.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> v = rng.normal(size=(300, 2))
    >>> v[:100, 0] = 0
    >>> np.abs(frequent_ratios(v, most=1)).round(2)
    array([[1., 0.]])
    """
    far = np.linalg.norm(values, axis=1) > 0.01 * np.sqrt((values**2).mean())
    angles = np.sort(np.arctan2(values[far, 1], values[far, 0]) % np.pi)
    angles = np.r_[angles, angles[angles < ANGLE] + np.pi]
    found: list[float] = []
    while len(angles) and len(found) < most:
        counts = np.searchsorted(angles, angles + ANGLE) - np.arange(len(angles))
        start = int(counts.argmax())
        found.append(float(np.median(angles[start : start + counts[start]])))
        apart = np.abs(angles - found[-1])
        angles = angles[np.minimum(apart, np.pi - apart) > ANGLE]
    return np.c_[-np.sin(found), np.cos(found)]


def is_block(data: WhitenedData, null: Array, directions: Array) -> bool:
    """Return whether no single direction vanishes on more samples than all directions of the null space together."""
    n = data.n
    together = (np.abs(data.x @ null[:n] + null[n]) < 10 * FLOOR).all(1).mean()
    norms = np.linalg.norm(directions[:, :n], axis=1)
    single = np.abs(data.x @ directions[:, :n].T + directions[:, n]) < 10 * FLOOR * norms
    return bool(together > LEAST_SHARE and (single.mean(0) < 1.02 * together + 0.002).all())
