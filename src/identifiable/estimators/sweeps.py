"""Batched MM sweeps for square unmixing: many starts at once, all rows of each, in homogeneous coordinates.

Every objective here is Σ_i E ρ(t_i) - log|det W| with t = W (x, 1), ρ majorised by a quadratic in t. A sweep
minimises the majoriser row after row: with V_i = E φ(t_i) (x, 1)(x, 1)ᵀ the new row is a multiple of V_i⁻¹ a_i plus a
shift, a_i the i-th column of the inverse of W.
"""

from collections.abc import Callable

import torch
from torch import Tensor


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


def _update_rows(W: Tensor, inverses: Tensor, update: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Replace row after row of W (S, n, q) by update(column of W⁻¹, V_i⁻¹), keeping W⁻¹ by rank-one corrections."""
    starts, n, q = W.shape
    square = torch.cat([W.double(), torch.zeros(starts, 1, q, dtype=torch.float64)], 1)
    square[:, n, n] = 1
    inverse = torch.linalg.inv(square)
    for i in range(n):
        row = update(inverse[:, :, i], inverses[:, i])
        change = ((row - square[:, i])[:, None] @ inverse)[:, 0]
        inverse = inverse - inverse[:, :, i : i + 1] * change[:, None] / (1 + change[:, i])[:, None, None]
        square[:, i] = row
    return square[:, :n].float()


def pinball_sweep(moments: Moments, W: Tensor, tau: Tensor, epsilon: float) -> Tensor:
    """One MM sweep of Σ_i E ρ_τ(t_i) - log|det W|, |t| smoothed to sqrt(t² + ε²)."""
    starts, n, q = W.shape
    t = moments.x @ W.reshape(starts * n, q).T
    inverses = torch.linalg.inv(moments(torch.rsqrt(t * t + epsilon**2))).reshape(starts, n, q, q)
    skew, mean = (1 - 2 * tau).double()[:, None], moments.x.mean(0).double()

    def update(a: Tensor, inverse: Tensor) -> Tensor:
        va, vm = (inverse @ a[:, :, None])[:, :, 0], inverse @ mean
        alpha, beta = (a * va).sum(1, keepdim=True), (a * vm).sum(1, keepdim=True)
        scale = (skew * beta + torch.sqrt((skew * beta) ** 2 + 4 * alpha)) / 2
        row: Tensor = va / scale + skew * vm
        return row

    return _update_rows(W, inverses, update)


def log_sweep(moments: Moments, W: Tensor, epsilon: float) -> Tensor:
    """One MM sweep of Σ_i E ½ log(t_i² + ε² var t_i) - log|det W|."""
    starts, n, q = W.shape
    t = moments.x @ W.reshape(starts * n, q).T
    weights = 1 / (t * t + epsilon**2 * (W[:, :, :n] ** 2).sum(-1).reshape(-1))
    second = moments(weights)
    second[:, torch.arange(n), torch.arange(n)] += (epsilon**2 * weights.mean(0).double())[:, None]
    inverses = torch.linalg.inv(second).reshape(starts, n, q, q)

    def update(a: Tensor, inverse: Tensor) -> Tensor:
        w = (inverse @ a[:, :, None])[:, :, 0]
        unit: Tensor = w / w[:, :n].norm(dim=1, keepdim=True)
        return unit

    return _update_rows(W, inverses, update)


def orient(x: Tensor, W: Tensor, tau: Tensor) -> Tensor:
    """Put every offset at the τ-quantile of its row, and give the row the sign whose pinball loss is smaller."""
    n = W.shape[2] - 1
    x = x[:2000, :n]
    t = torch.einsum("kq,siq->ski", x, W[:, :, :n]).sort(dim=1).values
    rows = t.shape[1]
    at = torch.arange(len(W))
    low = t[at, (tau * (rows - 1)).long()]
    high = t[at, ((1 - tau) * (rows - 1)).long()]

    def loss(u: Tensor) -> Tensor:
        return (u.abs() + (2 * tau - 1)[:, None, None] * u).mean(1)

    flip = loss(high[:, None] - t) < loss(t - low[:, None])
    return torch.cat(
        [torch.where(flip[..., None], -W[:, :, :n], W[:, :, :n]), torch.where(flip, high, -low)[..., None]], 2
    )


def ica_start(x: Tensor, kind: str, rng: torch.Generator, iterations: int = 40) -> Tensor:
    """Symmetric FastICA on white x with this contrast ("tanh", "cube", "skew"), or a random rotation ("random")."""
    n = x.shape[1]
    w: Tensor = torch.linalg.qr(torch.randn(n, n, generator=rng))[0]
    if kind == "random":
        return w
    for _ in range(iterations):
        t = x @ w.T
        if kind == "cube":
            u = (t**3).T @ x / len(x) - 3 * w
        elif kind == "skew":
            u = (t * t).T @ x / len(x)
        else:
            h = torch.tanh(t)
            u = h.T @ x / len(x) - (1 - h * h).mean(0)[:, None] * w
        left, _, right = torch.linalg.svd(u)
        new: Tensor = left @ right
        if (1 - (new * w).sum(1).abs()).max() < 1e-4:
            return new
        w = new
    return w
