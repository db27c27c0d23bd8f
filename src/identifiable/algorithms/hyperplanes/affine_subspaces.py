r"""Flats: samples with one pattern of activity span too little, and what vanishes on them are rows to be found.

Samples whose latents in I rest lie in a flat of codimension |I|; its null space, the functionals that vanish on it, is
spanned by the rows of I. Flats come from three places: *neighbours* (where the rest value is far from the mean, samples
of one pattern are near each other), samples with one *on/off code* of the rows found so far, and combinations of rows
met on the way. Intersecting null spaces isolates single rows; a flat that cannot be split is a *block*: its latents are
always active together, and only their span is identified.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from identifiable.algorithms.hyperplanes.planes import FLOOR, LEAST_SHARE, Hyperplane, WhitenedData
from identifiable.arrays import Array

LARGEST = 14  # null spaces of more dimensions are not searched
TRIES = 16  # null spaces to intersect with, of which the best is taken
SAME_LINE = 1 - 1e-7  # cosine from which a functional belongs to two null spaces


@dataclass(frozen=True)
class Flat:
    """Orthonormal functionals null (n + 1, m) that vanish on it, and which of the rows known are among them."""

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


def neighbour_flats(cloud: WhitenedData, rng: np.random.Generator, most: int) -> list[Array]:
    """Return null spaces of the flats that hold a sample together with its nearest neighbours on white data.

    n + 15 neighbours in general position span everything; if they do not, they share a flat. Seeds are drawn among the
    samples on no flat yet; the search ends when a whole batch of them is alone on its flat.
    """
    n, close = cloud.n, cloud.n + 15
    if cloud.rows < 2 * close:
        return []
    x, single = cloud.x, cloud.single[:, :n]
    lengths = (single**2).sum(1)
    flats: list[Array] = []
    free = np.ones(cloud.rows, dtype=bool)
    while len(flats) < most and free.sum() > close:
        seeds = rng.permutation(np.flatnonzero(free))[:16]
        apart = lengths - 2 * single[seeds] @ single.T
        groups = torch.topk(apart, close, dim=1, largest=False).indices.numpy()
        before = len(flats)
        for seed, group in zip(seeds, groups, strict=True):
            if not free[seed]:
                continue
            free[seed] = False
            centre = x[group].mean(0)
            values, vectors = np.linalg.eigh((x[group] - centre).T @ (x[group] - centre))
            null = vectors[:, values < 1e-12 * values[-1]]
            if null.shape[1]:
                inside = np.arange(cloud.rows)
                for functional in null.T:
                    inside = inside[np.abs((x[inside] - centre) @ functional) < 1e-5]
                free[inside] = False
                flats.append(cloud.null_space(inside))
        if len(flats) == before:
            break
    return flats


def code_flats(cloud: WhitenedData, kept: list[Hyperplane]) -> list[Flat]:
    """Return the flats of samples with one on/off code of the rows kept on which more vanishes than those rows."""
    codes = np.stack([np.abs(k.distance(cloud.x)) < max(k.band, 1e-5) for k in kept], 1)
    patterns, group, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    group = group.ravel()
    flats = []
    for g in np.argsort(-counts)[: 12 * cloud.n]:
        if counts[g] < cloud.n + 6:
            break
        null = cloud.null_space(np.flatnonzero(group == g))
        if null.shape[1] > patterns[g].sum():
            flats.append(Flat(np.linalg.qr(null)[0], patterns[g]))
    return flats


def known_flats(nulls: list[Array], kept: list[Hyperplane]) -> list[Flat]:
    """Return the flats of null spaces that hold more than rows kept."""
    rows = np.array([k.row / np.linalg.norm(k.row) for k in kept])
    flats = []
    for null in nulls:
        basis = np.linalg.qr(null)[0]
        known = np.linalg.norm(rows @ basis, axis=1) > SAME_LINE if kept else np.zeros(0, dtype=bool)
        if known.sum() < null.shape[1]:
            flats.append(Flat(basis, known))
    return flats


def narrow(flat: Flat, flats: list[Flat], rng: np.random.Generator) -> Flat:
    """Intersect a null space with others as long as known rows drop out and an unknown one stays."""
    for _ in range(2 * len(flat.null)):
        if flat.null.shape[1] == 1:
            break
        best: Flat | None = None
        for h in rng.permutation(len(flats))[:TRIES]:
            known = flat.known & flats[h].known
            if known.sum() < flat.known.sum() or not flat.known.any():
                left, cosines, _ = np.linalg.svd(flat.null.T @ flats[h].null)
                both = flat.null @ left[:, : len(cosines)][:, cosines > SAME_LINE]
                if known.sum() < both.shape[1] < flat.null.shape[1]:
                    fewer = best is None or (known.sum(), both.shape[1]) < (best.known.sum(), best.null.shape[1])
                    best = Flat(both, known) if fewer else best
        if best is None:
            break
        flat = best
    return flat


def sparse_directions(
    cloud: WhitenedData, null: Array, rng: torch.Generator, starts: int = 24, sweeps: int = 30
) -> Array:
    """Functionals in span(null) (n + 1, m) that vanish on many samples, by reweighted least squares."""
    m = null.shape[1]
    if m == 1:
        return null.T
    values = cloud.x[:6000] @ null[: cloud.n] + null[cloud.n]
    values = values[(np.abs(values) > 1e-5).any(1)]
    if len(values) < 5 * m:
        return np.zeros((0, cloud.n + 1))
    spectrum, vectors = np.linalg.eigh(values.T @ values / len(values))
    whiten = vectors / np.sqrt(np.maximum(spectrum, 1e-12))
    moments = Moments(torch.as_tensor(values @ whiten).float())
    v = torch.randn(starts, m, generator=rng)
    v = v / v.norm(dim=1, keepdim=True)
    for s in range(sweeps):
        epsilon = max(0.01, 0.01 ** (s / (0.8 * sweeps)))
        v = torch.linalg.eigh(moments(1 / ((moments.x @ v.T) ** 2 + epsilon**2)))[1][:, :, 0].float()
    distinct: list[Array] = []
    for a in v.double().numpy():
        if all(abs(a @ b) < 0.999 for b in distinct):
            distinct.append(a)
    return (null @ whiten @ np.array(distinct).T).T


def is_block(cloud: WhitenedData, null: Array, directions: Array) -> bool:
    """Whether no direction of the flat vanishes on more samples than the whole flat does."""
    n = cloud.n
    together = (np.abs(cloud.x @ null[:n] + null[n]) < 10 * FLOOR).all(1).mean()
    norms = np.linalg.norm(directions[:, :n], axis=1)
    single = np.abs(cloud.x @ directions[:, :n].T + directions[:, n]) < 10 * FLOOR * norms
    return bool(together > LEAST_SHARE and (single.mean(0) < 1.02 * together + 0.002).all())
