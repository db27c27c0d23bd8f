"""A linear projection of a bent surface that does not fold it (Broomhead & Kirby 2000).

A projection P is injective on rows if no difference s of two rows vanishes under it. Among orthonormal P,

    min_P  log E [(|Pᵀ s|² + κ) / (|s|² + κ)]^-q,        s of near and of random pairs of rows,

gives most weight to the differences that P shortens most. Principal components keep the largest differences, and fold
the surface where it bends too far from them. κ is a bound on the |s|² of noise, which no projection preserves.
"""

import numpy as np
import torch

from identifiable.arrays import Array

PAIRS = 4000  # of each kind
CANDIDATES = 8000  # rows among which the nearest is found
POWER = 6.0  # q: 2 leaves folds in some surfaces
SHORT = 0.01  # share of near differences from which κ is read
LEAST_NOISE = 1e-6  # of κ, as a share of the total variance
STEPS, RATE = 150, 0.03


def unfolding_directions(y: Array, n: int, seed: int = 0) -> Array:
    """Return orthonormal directions (r, n), onto which centred rows y (N, r) are projected without folds.

    The search starts at the principal directions, and finds a local optimum.

    Examples
    --------
    >>> t = np.linspace(-1, 1, 500)
    >>> y = np.c_[np.abs(t), t]  # a V along the second axis
    >>> bool(abs(unfolding_directions(y - y.mean(0), 1)[1, 0]) > 0.99)
    True
    """
    values, vectors = np.linalg.eigh(y.T @ y / len(y))
    total = values.sum()
    near, far = _secants(y / np.sqrt(total), np.random.default_rng(seed))
    shortest = float(np.quantile((near**2).sum(1), SHORT))
    noise = 2 * min(len(values) * values[0] / total, shortest) + LEAST_NOISE
    secants = torch.as_tensor(np.concatenate([near, far]), dtype=torch.float32)
    lengths = secants.square().sum(1) + noise
    free = torch.tensor(vectors[:, ::-1][:, :n].copy(), dtype=torch.float32, requires_grad=True)
    optimiser = torch.optim.Adam([free], lr=RATE)
    decay = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, STEPS)
    with torch.enable_grad():
        for _ in range(STEPS):
            kept = (secants @ torch.linalg.qr(free)[0]).square().sum(1) + noise
            loss = torch.logsumexp(POWER * (lengths / kept).log(), 0) / POWER
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            decay.step()
    return widest_first(y, np.linalg.qr(free.detach().double().numpy())[0])


def widest_first(y: Array, directions: Array) -> Array:
    """Rotate orthonormal directions (r, k) to the principal ones of centred rows y (N, r) within their span."""
    along = y @ directions
    rotated = directions @ np.linalg.eigh(along.T @ along)[1][:, ::-1]
    largest = np.abs(rotated).argmax(0)
    return rotated * np.sign(rotated[largest, np.arange(rotated.shape[1])])


def _secants(y: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return differences of rows y (N, r) from the nearest of other rows, and from random ones."""
    shuffled = y[rng.permutation(len(y))]
    count = max(1, min(PAIRS, len(y) // 2))
    rows, others = shuffled[:count], shuffled[count:][:CANDIDATES]
    sizes = (others**2).sum(1)
    nearest = np.concatenate([(sizes - 2 * block @ others.T).argmin(1) for block in np.array_split(rows, 8)])
    return rows - others[nearest], rows - others[rng.integers(len(others), size=count)]
