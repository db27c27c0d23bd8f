"""Gaussian mixtures as matrix products: every component is linear in z and in the products of its entries.

    log p(z) = log Σ_j exp(c_j + v_jᵀ z - ½ zᵀ P_j z)

P_j is symmetric and given by its upper triangle, or diagonal and given by its diagonal. An array (rows, components,
latents), which an elementwise evaluation would need, is never formed.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

NEGLIGIBLE = 1e-30  # posterior probabilities below count as zero: products with denormal numbers are slow


class Diagonal:
    """Diagonal n x n matrices, as their n entries."""

    def products(self, z: Tensor) -> Tensor:
        """Return ½ z_i², (R, n, B), for z (R, n, B)."""
        return 0.5 * z.square()

    def multiply(self, mixed: Tensor, z: Tensor) -> Tensor:
        """Return P z, (R, n, B), for a matrix of each row (R, n, B)."""
        return mixed * z


class UpperTriangle:
    """Symmetric n x n matrices, as their m = n (n + 1) / 2 entries i <= k."""

    def __init__(self, n: int, device: torch.device) -> None:
        self.n = n
        self.i, self.k = torch.triu_indices(n, n, device=device)
        position = torch.empty(n, n, dtype=torch.long, device=device)
        position[self.i, self.k] = position[self.k, self.i] = torch.arange(len(self.i), device=device)
        self.position = position.flatten()
        self.share = torch.where(self.i == self.k, 0.5, 1.0)[:, None]

    def pack(self, P: Tensor) -> Tensor:
        """Return (..., m) of P (..., n, n)."""
        return P[..., self.i, self.k]

    def products(self, z: Tensor) -> Tensor:
        """Return z_i z_k for i < k and ½ z_i², (R, m, B), for z (R, n, B)."""
        return z.index_select(1, self.i) * z.index_select(1, self.k) * self.share.to(z.dtype)

    def multiply(self, mixed: Tensor, z: Tensor) -> Tensor:
        """Return P z, (R, n, B), for a matrix of each row (R, m, B)."""
        square = mixed.index_select(1, self.position).unflatten(1, (self.n, self.n))
        return (square * z[:, None]).sum(2)


DIAGONAL = Diagonal()
upper_triangle = cache(UpperTriangle)
Shape = Diagonal | UpperTriangle


def joint(shape: Shape, z: Tensor, packed: Tensor, linear: Tensor, constants: Tensor) -> Tensor:
    """Return c_j + v_jᵀ z - ½ zᵀ P_j z, (R, J, B), for z (R, n, B), P (R, J, m), v (R, J, n), c (R, J, 1)."""
    return torch.baddbmm(torch.baddbmm(constants, linear, z), packed, shape.products(z), alpha=-1)


def log_mixture(shape: Shape, z: Tensor, packed: Tensor, linear: Tensor, constants: Tensor) -> Tensor:
    """Return log Σ_j exp(c_j + v_jᵀ z - ½ zᵀ P_j z), (R, B), for arguments as in `joint`.

    >>> z, P = torch.zeros(1, 1, 3), torch.ones(1, 2, 1)
    >>> log_mixture(DIAGONAL, z, P, P, torch.zeros(1, 2, 1)).exp()
    tensor([[2., 2., 2.]])
    """
    value: Tensor = _LogMixture.apply(shape, z, packed, linear, constants)  # type: ignore[no-untyped-call]
    return value


class _LogMixture(torch.autograd.Function):
    """`log_mixture` with a hand-written gradient.

    With the posterior r_j,  dz = Σ_j r_j (v_j - P_j z),  dv_j = Σ_B r_j z,  dP_j = -Σ_B r_j products,  dc_j = Σ_B r_j.
    """

    @staticmethod
    def forward(ctx: Any, shape: Shape, z: Tensor, packed: Tensor, linear: Tensor, constants: Tensor) -> Tensor:
        logits = joint(shape, z, packed, linear, constants)
        largest = logits.amax(1)
        posterior = torch.softmax(logits, 1)
        value = largest - posterior.amax(1).log()
        ctx.shape = shape
        ctx.save_for_backward(
            z, packed, linear, torch.nn.functional.threshold(posterior, NEGLIGIBLE, 0.0, inplace=True)
        )
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        z, packed, linear, posterior = ctx.saved_tensors
        r = posterior * g[:, None]
        dz = torch.bmm(linear.mT, r) - ctx.shape.multiply(torch.bmm(packed.mT, r), z)
        learns_shape = ctx.needs_input_grad[2]
        dP = -torch.bmm(r, ctx.shape.products(z).mT) if learns_shape else None
        return None, dz, dP, torch.bmm(r, z.mT), r.sum(-1, keepdim=True)
