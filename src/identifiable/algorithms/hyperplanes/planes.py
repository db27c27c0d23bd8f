r"""Hyperplanes that hold many samples exactly: one candidate at a time.

A latent that is inactive in a share of the samples, mixed affinely, puts that share of the white rows x on one
hyperplane {x : w·x + b = 0}. A candidate near it is *refined*: the band around it shrinks to its spike, and the
hyperplane is the smallest principal direction of the samples in the band. Distances are in units of the standard
deviation of a coordinate.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from identifiable.arrays import Array
from identifiable.training.clock import require_time

EXACT = 1e-4  # a spike narrower than this, in sd, is called exact
FLOOR = 3e-6  # half-width of the narrowest band
BANDS = (0.06, 0.03, 0.015, 0.005, 0.0015, 5e-4, 1e-4, 2e-5)  # half-widths, in sd, from which refinement may start
PEAKS = (0.03, 0.07, 0.15)  # half-widths, in sd, at which a peak of a coordinate is measured
LEAST_SHARE = 0.04  # smallest share of the samples on a hyperplane


@dataclass(frozen=True)
class Hyperplane:
    """{x : normal·x + offset = 0} with |normal| = 1, the spike of the samples on it, and how sharp that is."""

    normal: Array
    offset: float
    band: float  # half-width that holds the spike
    share: float  # of all samples in the band
    sharpness: float  # samples in the band over those in a band of the same width beside it

    @property
    def row(self) -> Array:
        """The functional (n + 1,) in homogeneous coordinates."""
        return np.append(self.normal, self.offset)

    def distance(self, x: Array) -> Array:
        """Return the signed distance of rows x (N, n)."""
        return x @ self.normal + self.offset


@dataclass(frozen=True, eq=False)
class Unmixing:
    """An affine map t = W y + b of rows y (N, n) whose coordinates t_i are zero in as many rows as possible.

    Attributes
    ----------
    W, b : (n, n) and (n,).
    verified : the first so many coordinates are exactly zero in a share of the rows, or belong to a block.
    blocks : groups of coordinates that are zero in the same rows. Each spans its group; no single coordinate of a
        group is identified.
    noise : standard deviation of the noise in a column of y; 0 where none was fitted.
    inactive : (n,) coordinates that are zero up to noise in a share of the rows; None where none was fitted.
    in_time : whether the search, and the fit of noise, ended before the time was over.
    directions : number of sparse directions found if there are more than dimensions, else 0.
    """

    W: Array
    b: Array
    verified: int
    blocks: tuple[tuple[int, ...], ...]
    noise: float = 0.0
    inactive: NDArray[np.bool_] | None = None
    in_time: bool = True
    directions: int = 0

    @property
    def rows(self) -> Array:
        """The functionals (n, n + 1) in homogeneous coordinates."""
        return np.c_[self.W, self.b]

    def latents(self, y: Array) -> Array:
        """Return t (N, n) of rows y."""
        return y @ self.W.T + self.b

    def of_scaled(self, sd: Array) -> "Unmixing":
        """Return the same map for rows y whose columns are sd (n,) times as large."""
        return replace(self, W=self.W / sd)

    def normalised(self, y: Array) -> "Unmixing":
        """Return the map whose coordinates have unit variance on rows y."""
        size = self.latents(y).std(0)
        return replace(self, W=self.W / size[:, None], b=self.b / size)


class WhitenedData:
    """White rows x (N, n), shuffled, and their homogeneous form (N, n + 1) in single precision.

    Functionals are rows (n + 1,) of w·x + b; those with |w| = 1 have unit variance, and w·w' is their correlation.
    """

    def __init__(self, x: Array, rng: np.random.Generator) -> None:
        self.x = x[rng.permutation(len(x))]
        self.rows, self.n = x.shape
        self.single = torch.as_tensor(np.c_[self.x, np.ones(self.rows)]).float()
        self.part = self.x[: max(4000, 60 * self.n)]

    def inactive_share(self, functionals: Array, width: float = 0.03) -> Array:
        """Return the share (m,) of samples that each functional puts within `width` of zero, in units of its sd."""
        t = np.abs(self.x[:4000] @ functionals[:, : self.n].T + functionals[:, self.n])
        return (t < width * np.linalg.norm(functionals[:, : self.n], axis=1)).mean(0)

    def refine_plane(self, row: Array) -> Hyperplane | None:
        """Shrink the band around a candidate (n + 1,) to an exact spike; None where there is none."""
        norm = np.linalg.norm(row[: self.n])
        normal, offset = row[: self.n] / norm, float(row[self.n] / norm)
        band, last, spread, first = self._sharpest_band(self.part @ normal + offset), -1, np.inf, 0.0
        for iteration in range(25):
            require_time()
            samples = self.part[np.abs(self.part @ normal + offset) < band]
            if len(samples) < self.n + 10 or (iteration == 8 and spread > 0.5 * first):
                return None
            mean = samples.mean(0)
            values, vectors = np.linalg.eigh((samples - mean).T @ (samples - mean) / len(samples))
            normal, offset = vectors[:, 0], -float(mean @ vectors[:, 0])
            spread = max(np.sqrt(max(values[0], 0.0)), 1e-7)
            first = first or spread
            new = max(3 * spread, FLOOR)
            if len(samples) == last and new >= 0.98 * band:
                break
            last, band = len(samples), min(band, new)
        if spread >= EXACT:
            return None
        distance = np.abs(self.x @ normal + offset)
        inside = int((distance < band).sum())
        beside = int(((distance >= band) & (distance < 3 * band)).sum()) / 2
        return Hyperplane(normal, offset, band, inside / self.rows, inside / (beside + 1))

    def _sharpest_band(self, t: Array) -> float:
        widths = t.std() * np.array(BANDS)
        ordered = np.sort(np.abs(t))
        inner, outer = np.searchsorted(ordered, widths), np.searchsorted(ordered, 3 * widths)
        enough = inner >= max(self.n + 10, 0.03 * len(t))
        return float(widths[np.where(enough, inner / ((outer - inner) / 2 + 1), 0).argmax()])

    def null_space(self, samples: NDArray[np.intp]) -> Array:
        """Return all functionals (n + 1, m) that vanish on these samples."""
        x = self.x[samples]
        mean = x.mean(0)
        values, vectors = np.linalg.eigh((x - mean).T @ (x - mean) / len(x))
        small = values < max(25 * values[0], 1e-11) if values[0] < EXACT**2 else values < 2 * values[0]
        null = vectors[:, : min(max(int(small.sum()), 1), self.n - 1)]
        return np.r_[null, -(mean @ null)[None]]


def unit(functionals: Array) -> Array:
    """Return functionals (m, n + 1) with |w| = 1."""
    return functionals / np.linalg.norm(functionals[:, :-1], axis=1, keepdims=True)


def peaks(x: Tensor, W: Tensor) -> Tensor:
    """Return how much of white rows x (D, N, q) is in a peak at zero of functionals W (D, S, m, q), as (D, S, m)."""
    W = W / W[..., :-1].norm(dim=-1, keepdim=True)
    t = (x @ W.flatten(1, 2).transpose(1, 2)).abs()
    heights = [(t < h).float().mean(1) - ((t >= h) & (t < 3 * h)).float().mean(1) / 2 for h in PEAKS]
    return torch.stack(heights).amax(0).reshape(W.shape[:-1])
