"""More features than dimensions: how many directions are sparse, if more than a basis can hold.

On white rows that are an affine function of independent latents, the local maxima of the kurtosis are the latents
(Delfosse & Loubaton 1995): at most as many as dimensions. With more latents than dimensions, each is still a maximum
where few are active per row. So maxima are searched from many starts, without deflation, on one half of the rows. They
count if the kurtosis on the other half is above what chance and the distribution of random directions give.
"""

import torch

from identifiable.arrays import Array
from identifiable.training.clock import require_time

PURSUED = 20  # directions that are removed from a start
STEPS = 25  # of the fixed point of a start
CONVERGED = 0.999  # cosine of the last step
SAME = 0.7  # cosine from which two maxima are one
BATCHES = 6  # of 2 n starts each
MARGIN = 1.02  # times the number of dimensions
ERRORS = 5.0  # standard errors of the kurtosis of Gaussian rows
ABOVE_RANDOM = 1.2  # times the kurtosis of random directions
MOST_ROWS = 20_000


@torch.inference_mode()
def count_sparse_directions(x: Array, seed: int) -> int:
    """Return a lower bound of the number of latents of white rows x (N, n) if it exceeds n by more than 2 %, or 0.

    Examples
    --------
    Sixty rare features in forty dimensions.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> z = rng.exponential(size=(8000, 60)) * (rng.random((8000, 60)) < 0.03)
    >>> x = (z - z.mean(0)) @ rng.normal(size=(60, 40))
    >>> values, vectors = np.linalg.eigh(np.cov(x.T))
    >>> 42 < count_sparse_directions(x @ vectors / np.sqrt(values), 0) <= 60
    True
    """
    rng = torch.Generator().manual_seed(seed)
    rows = torch.as_tensor(x).float()[torch.randperm(len(x), generator=rng)[:MOST_ROWS]]
    seen, other = rows.tensor_split(2)
    n = rows.shape[1]
    random = torch.nn.functional.normalize(torch.randn(4 * n, n, generator=rng), dim=1)
    chance = float(torch.quantile(_kurtosis(other, random), 0.99).clamp(min=0))
    least = ABOVE_RANDOM * chance + ERRORS * (24 / len(other)) ** 0.5
    found = torch.zeros(0, n)
    for _ in range(BATCHES):
        before = len(found)
        maxima = _maxima(seen, _unexplained(seen[torch.randperm(len(seen), generator=rng)[: 2 * n]], found))
        for v in maxima[_kurtosis(other, maxima) > least]:
            if not len(found) or float((found @ v).abs().max()) < SAME:
                found = torch.cat([found, v[None]])
        if len(found) > MARGIN * n + 1 or len(found) < before + 0.01 * n:
            break
    return len(found) if len(found) > MARGIN * n + 1 else 0


def _kurtosis(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return the excess kurtosis (m,) of rows x (N, n) along unit directions v (m, n)."""
    t = x @ v.T
    return (t**4).mean(0) / (t**2).mean(0) ** 2 - 3


def _unexplained(v: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Return rows v (m, n) less the directions found so far that explain most of each (matching pursuit)."""
    for _ in range(PURSUED if len(found) else 0):
        along = v @ found.T
        best = along.abs().argmax(1, keepdim=True)
        v = v - torch.gather(along, 1, best) * found[best[:, 0]]
    return v


def _maxima(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return the maxima of the kurtosis of white rows x (N, n) that the fixed point reaches from starts v (m, n)."""
    v = torch.nn.functional.normalize(v, dim=1)
    cosine = torch.zeros(len(v))
    for _ in range(STEPS):
        require_time()
        new = torch.nn.functional.normalize((x @ v.T).pow_(3).T @ x / len(x) - 3 * v, dim=1)
        cosine, v = (new * v).sum(1), new
    return v[cosine > CONVERGED]
