"""A linear projection of a bent surface that does not fold it (Broomhead & Kirby 2000).

A projection P is injective on rows if no difference s of two rows vanishes under it. Among orthonormal P,

    min_P  log E [(|Pᵀ s|² + κ) / (|s|² + κ)]^-q,        s of near and of random pairs of rows,

gives most weight to the differences that P shortens most. Principal components keep the largest differences, and fold
the surface where it bends too far from them. κ is a bound on the |s|² of noise, which no projection preserves.
"""

import numpy as np
import torch

from identifiable.arrays import Array, IntArray

PAIRS = 4000  # of each kind
CANDIDATES = 8000  # rows among which the nearest is found
POWER = 6.0  # q: 2 leaves folds in some surfaces, 25 depends on noise
SHORT = 0.01  # share of near differences from which κ is read
LEAST_NOISE = 1e-6  # of κ, as a share of the total variance
STEPS, RATE = 150, 0.03
CLEARLY = 0.98  # least gain in the distance of neighbours: without one, weak bends were folded


def unfolding_directions(y: Array, n: int, seed: int = 0) -> Array:
    """Return orthonormal directions (r, n), onto which centred rows y (N, r) are projected without folds.

    The best of three local optima: the searches start at the principal directions of rows, and of near and random
    differences of unit length. Principal directions stay unless rows that are neighbours in the projection are clearly
    closer to each other under the optimum.

    Examples
    --------
    >>> t = np.linspace(-1, 1, 500)
    >>> y = np.c_[np.abs(t), t]  # a V along the second axis
    >>> bool(abs(unfolding_directions(y - y.mean(0), 1)[1, 0]) > 0.99)
    True
    """
    least, total = np.linalg.eigvalsh(y.T @ y / len(y))[0], (y**2).sum(1).mean()
    near, far = _secants(y / np.sqrt(total), np.random.default_rng(seed))
    noise = 2 * min(y.shape[1] * least / total, float(np.quantile((near**2).sum(1), SHORT))) + LEAST_NOISE
    secants = torch.as_tensor(np.concatenate([near, far]), dtype=torch.float32)
    lengths = secants.square().sum(1) + noise
    starts = np.stack([_leading(s, n) for s in (y, _unit(near), _unit(far))])
    free = torch.tensor(starts, dtype=torch.float32, requires_grad=True)
    optimiser = torch.optim.Adam([free], lr=RATE)
    decay = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, STEPS)
    with torch.enable_grad():
        for _ in range(STEPS):
            kept = (secants @ torch.linalg.qr(free)[0]).square().sum(2) + noise
            losses = torch.logsumexp(POWER * (lengths / kept).log(), 1) / POWER
            optimiser.zero_grad()
            losses.sum().backward()
            optimiser.step()
            decay.step()
    best = np.linalg.qr(free[int(losses.argmin())].detach().double().numpy())[0]
    clearly = _false_distance(y, best, seed) < CLEARLY * _false_distance(y, starts[0], seed)
    return widest_first(y, best if clearly else starts[0])


def widest_first(y: Array, directions: Array) -> Array:
    """Rotate orthonormal directions (r, k) to the principal ones of centred rows y (N, r) within their span."""
    along = y @ directions
    rotated = directions @ np.linalg.eigh(along.T @ along)[1][:, ::-1]
    largest = np.abs(rotated).argmax(0)
    return rotated * np.sign(rotated[largest, np.arange(rotated.shape[1])])


def _leading(rows: Array, n: int) -> Array:
    """Return the n leading eigenvectors (r, n) of the second moments of rows (N, r)."""
    return np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :n]


def _unit(rows: Array) -> Array:
    """Scale rows to unit length; those of length zero stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)


def _secants(y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return differences of rows y (N, r) from the nearest of other rows, and from random ones."""
    rows, others = _two_parts(y, rng)
    random = rng.integers(len(others), size=len(rows))
    return rows - others[_nearest(rows, others)], rows - others[random]


def _false_distance(y: Array, directions: Array, seed: int) -> float:
    """Return the mean squared distance of rows y (N, r) from those that are nearest in the projection."""
    rows, others = _two_parts(y, np.random.default_rng(seed))
    return float(((rows - others[_nearest(rows @ directions, others @ directions)]) ** 2).sum(1).mean())


def _two_parts(y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    shuffled = y[rng.permutation(len(y))]
    count = max(1, min(PAIRS, len(y) // 2))
    return shuffled[:count], shuffled[count:][:CANDIDATES]


def _nearest(rows: Array, others: Array) -> IntArray:
    """Return which of the others is nearest to each row."""
    sizes = (others**2).sum(1)
    return np.concatenate([(sizes - 2 * block @ others.T).argmin(1) for block in np.array_split(rows, 8)])
