"""Joint diagonalisation: one matrix W that makes many covariances diagonal at once, as far as the likelihood can tell.

    min_W  1/2 Σ_u w_u Σ_i log (W C_u W')_ii - log |det W|

for covariances C_u (n, n) with weights w_u that sum to 1 (Pham & Cardoso 2001). W <- (I + E) W keeps this loss in the
coordinates of W itself, so that neither the gradient nor the Hessian depends on the mixing (Ablin et al. 2019).
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MEMORY = 10  # steps that L-BFGS remembers
FLATTEST = 1e-6  # least curvature of a pair of rows: proportional variances leave a direction without any

_Floats = NDArray[np.float64]
_Step = tuple[_Floats, _Floats, float]  # a step, how it changed the gradient, and their inner product


@dataclass(frozen=True)
class Diagonalised:
    """W (n, n), its loss, and the largest entry of the relative gradient there."""

    W: _Floats
    loss: float
    gradient: float


def diagonalise(
    C: _Floats, w: _Floats, start: _Floats, *, tolerance: float = 1e-10, max_steps: int = 500
) -> Diagonalised:
    """Descend from W = start, for C (G, n, n) and w (G,), until no entry of the gradient exceeds `tolerance`.

    With M_u = W C_u W', gradient and Hessian at E = 0 are, where M_u is nearly diagonal,

        g_ij = Σ_u w_u M_uij / M_uii - δ_ij,    H_ij,ij = Σ_u w_u M_ujj / M_uii,    H_ij,ji = 1,

    a 2 x 2 block for every pair of rows, never indefinite. L-BFGS learns what the blocks leave out; a step is halved
    until the loss falls.

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


def _rescaled(W: _Floats, M: _Floats, w: _Floats) -> tuple[_Floats, _Floats, _Floats, _Floats]:
    """Return W and M with rows of unit pooled variance (their scale is free), the diagonals (G, n) of M, and g."""
    size = np.sqrt(w @ np.diagonal(M, axis1=1, axis2=2))
    W, M = W / size[:, None], M / np.outer(size, size)
    d = np.diagonal(M, axis1=1, axis2=2)
    g: _Floats = ((w[:, None] / d)[:, :, None] * M).sum(0) - np.eye(len(W))
    return W, M, d, g


def _precondition(g: _Floats, H: _Floats, memory: deque[_Step]) -> _Floats:
    """Return the inverse Hessian times g (n, n): the two loops of L-BFGS about the blocks [[H_ij, 1], [1, H_ji]]."""
    factors = []
    for moved, change, product in reversed(memory):
        factors.append((moved * g).sum() / product)
        g = g - factors[-1] * change
    flattest = (H + H.T) / 2 - np.sqrt(((H - H.T) / 2) ** 2 + 1)
    H = H + np.maximum(FLATTEST - flattest, 0)
    E: _Floats = (H.T * g - g.T) / (H * H.T - 1 + np.eye(len(g))) * (1 - np.eye(len(g)))
    for (moved, change, product), factor in zip(memory, reversed(factors), strict=True):
        E = E + (factor - (change * E).sum() / product) * moved
    return E
