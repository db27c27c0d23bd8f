"""Joint diagonalisation: one matrix W that makes many covariances diagonal at once, as far as the likelihood can tell.

    min_W  1/2 Σ_u w_u Σ_i log (W C_u W')_ii - log |det W|

for covariances C_u (n, n) with weights w_u that sum to 1 (Pham & Cardoso 2001). W <- (I + E) W keeps this loss in the
coordinates of W itself, so that neither the gradient nor the Hessian depends on the mixing (Ablin et al. 2019).
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import digamma, polygamma

from identifiable.arrays import Array

MEMORY = 10  # steps that L-BFGS stores
LEAST_CURVATURE = 1e-6  # of a pair of rows: proportional variances leave a direction without any

_Step = tuple[Array, Array, float]  # a step, how it changed the gradient, and their inner product


@dataclass(frozen=True)
class Diagonalised:
    """W (n, n), its loss, and the largest entry of the relative gradient there."""

    W: Array
    loss: float
    gradient: float


def diagonalise(C: Array, w: Array, start: Array, *, tolerance: float = 1e-10, max_steps: int = 500) -> Diagonalised:
    """Descend from W = start, for C (G, n, n) and w (G,), until no entry of the gradient exceeds `tolerance`.

    With M_u = W C_u W', gradient and Hessian at E = 0 are, where M_u is nearly diagonal,

        g_ij = Σ_u w_u M_uij / M_uii - δ_ij,    H_ij,ij = Σ_u w_u M_ujj / M_uii,    H_ij,ji = 1,

    a 2 x 2 block for every pair of rows, never indefinite. L-BFGS estimates the other entries; a step is halved until
    the loss falls.

    Examples
    --------
    >>> A, variances = np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([[1.0, 2.0], [3.0, 1.0], [1.0, 1.0]])
    >>> found = diagonalise(A @ (variances[:, :, None] * A.T), np.full(3, 1 / 3), np.eye(2))
    >>> np.abs(found.W @ A).round(6)  # A is undone, up to order, sign and scale
    array([[0.      , 0.866025],
           [0.774597, 0.      ]])
    """
    memory: deque[_Step] = deque(maxlen=MEMORY)
    W, M, d, g = _rescaled(start, start @ C @ start.T, w)
    for _ in range(max_steps):
        if np.abs(g).max() < tolerance:
            break
        E = -_precondition(g, (w[:, None] / d).T @ d, memory)
        slope, loss = (g * E).sum(), 0.5 * w @ np.log(d).sum(1)
        if slope > 0:
            E, slope = -g, -(g**2).sum()
        for step in 0.5 ** np.arange(40):
            T = np.eye(len(W)) + step * E
            TM = T @ M
            sign, log_det = np.linalg.slogdet(T)
            new = 0.5 * w @ np.log((TM * T).sum(-1)).sum(1) - log_det
            if sign > 0 and new <= loss + 1e-4 * step * slope + 1e-14 * len(W):
                break
        else:
            break
        before = g
        W, M, d, g = _rescaled(T @ W, TM @ T.T, w)
        product = float((step * E * (g - before)).sum())
        if product > 0:
            memory.append((step * E, g - before, product))
    loss = 0.5 * w @ np.log(d).sum(1) - np.linalg.slogdet(W)[1]
    return Diagonalised(W, float(loss), float(np.abs(g).max()))


def _rescaled(W: Array, M: Array, w: Array) -> tuple[Array, Array, Array, Array]:
    """Return W and M with rows of unit pooled variance (their scale is free), the diagonals (G, n) of M, and g."""
    size = np.sqrt(w @ np.diagonal(M, axis1=1, axis2=2))
    W, M = W / size[:, None], M / np.outer(size, size)
    d = np.diagonal(M, axis1=1, axis2=2)
    g = ((w[:, None] / d)[:, :, None] * M).sum(0) - np.eye(len(W))
    return W, M, d, g


def _precondition(g: Array, H: Array, memory: deque[_Step]) -> Array:
    """Return the inverse Hessian times g (n, n): the two loops of L-BFGS about the blocks [[H_ij, 1], [1, H_ji]]."""
    factors = []
    for moved, change, product in reversed(memory):
        factors.append((moved * g).sum() / product)
        g = g - factors[-1] * change
    curvature = (H + H.T) / 2 - np.sqrt(((H - H.T) / 2) ** 2 + 1)
    H = H + np.maximum(LEAST_CURVATURE - curvature, 0)
    E = (H.T * g - g.T) / (H * H.T - 1 + np.eye(len(g))) * (1 - np.eye(len(g)))
    for (moved, change, product), factor in zip(memory, reversed(factors), strict=True):
        E = E + (factor - (change * E).sum() / product) * moved
    return E


def separation(ratios: Array, freedom: Array, kurtosis: Array) -> Array:
    """Test each pair of latents for variances that are proportional over groups; (n, n), in standard errors.

    The likelihood ratio is λ_ij = Σ_u ν_u log((r_ui + r_uj)² / (4 r_ui r_uj)), ratios r (G, n) to the pooled variance.
    If proportional, each summand is -ν log(4B(1 - B)) with B ~ beta(ν/2, ν/2). A χ² with the same two moments is made
    normal by its square root. Tails heavier than Gaussian, kurtosis (n,) above 3, scale λ by (kurtosis - 1) / 2.
    """
    r, nu = np.maximum(ratios[freedom > 0], 1e-12), freedom[freedom > 0]
    used = 1 - 1 / len(nu) if len(nu) > 1 else 1.0  # the common ratio is estimated
    mean = used * np.sum(2 * nu * (digamma(nu) - digamma(nu / 2) - np.log(2)))
    variance = used * np.sum(nu**2 * (2 * polygamma(1, nu / 2) - 4 * polygamma(1, nu)))
    log_r = np.log(r)
    statistic = np.stack([nu @ (2 * np.log((r + r[:, [i]]) / 2) - log_r - log_r[:, [i]]) for i in range(r.shape[1])])
    spread = np.maximum((kurtosis - 1) / 2, 1)
    statistic = np.maximum(statistic, 0) / ((spread + spread[:, None]) / 2)
    apart = 2 * np.sqrt(statistic * mean / variance) - np.sqrt(4 * mean**2 / variance - 1)
    np.fill_diagonal(apart, 0.0)
    return apart


def least_separation(n: int) -> float:
    """Return the separation, in standard errors, from which a pair of n latents counts as separated.

    It is about the largest value that any of the n (n - 1) / 2 pairs reaches by chance.
    """
    return float(np.sqrt(2 * n) + 1)


def blocks_of(unresolved: NDArray[np.bool_]) -> tuple[tuple[int, ...], ...]:
    """Group latents that are linked by unresolved pairs (n, n); latents without such a pair are left out.

    >>> blocks_of(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], dtype=bool))
    ((0, 2),)
    """
    count, member = connected_components(unresolved, directed=False)
    groups = (tuple(np.flatnonzero(member == g).tolist()) for g in range(count))
    return tuple(group for group in groups if len(group) > 1)
