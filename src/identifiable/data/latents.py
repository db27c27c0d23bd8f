"""Distributions of latents, as modules of buffers that sample rows on any device.

`draw(rows, rng)` returns `Draw(z, component, u)`; `mixture()` returns the exact parameters where the distribution is a
(potentially degenerate) Gaussian mixture.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from identifiable.arrays import Array, BoolArray
from identifiable.distributions.mixture import Mixture

PILOT_ROWS = 5000  # unmasked samples that fix the value of an inactive latent


@dataclass(frozen=True)
class Draw:
    """Latents z (N, n), the component (N,) each row came from, and the auxiliary variable u (N,) where there is one."""

    z: Tensor
    component: Tensor | None = None
    u: Tensor | None = None


class Buffers(nn.Module):
    """A module whose arrays, given by name, are buffers: `.to(device, dtype)` moves them."""

    def __init__(self, **arrays: NDArray[Any]) -> None:
        super().__init__()
        for name, array in arrays.items():
            self.register_buffer(name, torch.as_tensor(array))

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)


def normal(shape: tuple[int, ...], like: Tensor, rng: torch.Generator) -> Tensor:
    """Sample N(0, 1) with the precision and on the device of `like`."""
    return torch.randn(shape, generator=rng, dtype=like.dtype, device=like.device)


def uniform(shape: tuple[int, ...], like: Tensor, rng: torch.Generator) -> Tensor:
    """Sample U(0, 1) with the precision and on the device of `like`."""
    return torch.rand(shape, generator=rng, dtype=like.dtype, device=like.device)


def equal_shares(rows: int, parts: int, rng: torch.Generator, device: torch.device) -> Tensor:
    """Return numbers 0 to parts - 1 in random order, equally many of each, or one more of some."""
    return torch.randperm(rows, generator=rng, device=device) % parts


class MaskedSCM(Buffers):
    """A linear structural equation model in which only some latents are active in each row (the pdGMM paper's data).

    Unmasked latents are z = z A + ε, i.e. z = ε (I - A)^-1, for a weighted acyclic A. Component j keeps the latents
    with masks[j] = 1 and sets the others to their inactive values `rest`. Then every row is multiplied by `rotation`,
    or, for the components in `second`, by `second_rotation`.
    """

    def __init__(self, adjacency: Array, *, noise_law: str, **arrays: Array | BoolArray) -> None:
        """Register the arrays: masks (J, n), rest (n,), rotation and second_rotation (n, n), second (J,)."""
        transfer = np.linalg.inv(np.eye(len(adjacency)) - adjacency)
        super().__init__(adjacency=adjacency, transfer=transfer, **arrays)
        self.noise_law = noise_law

    def draw(self, rows: int, rng: torch.Generator) -> Draw:
        """Draw rows, an equal share per component."""
        component = equal_shares(rows, len(self.masks), rng, self.masks.device)
        z = self.noise(rows, rng) @ self.transfer
        z = torch.where(self.masks[component], z, self.rest)
        rotated = z @ self.rotation
        if bool(self.second.any()):
            rotated = torch.where(self.second[component][:, None], z @ self.second_rotation, rotated)
        return Draw(rotated, component)

    def noise(self, rows: int, rng: torch.Generator) -> Tensor:
        """Draw ε (rows, n) of scale 1."""
        shape, like = (rows, len(self.rest)), self.transfer
        if self.noise_law == "gaussian":
            return normal(shape, like, rng)
        exponential = torch.empty(shape, dtype=like.dtype, device=like.device).exponential_(generator=rng)
        return exponential if self.noise_law == "exponential" else -exponential.log()

    def unmasked(self) -> "MaskedSCM":
        """Return the same distribution with all latents active in every row."""
        unmasked = copy.deepcopy(self)
        unmasked.masks, unmasked.second = torch.ones_like(self.masks[:1]), torch.zeros_like(self.second[:1])
        return unmasked

    def mixture(self) -> Mixture:
        """Return the exact parameters; Gaussian noise only."""
        if self.noise_law != "gaussian":
            raise ValueError(f"With {self.noise_law} noise the latents are not a Gaussian mixture.")
        masks, transfer, rest = (t.double().cpu().numpy() for t in (self.masks, self.transfer, self.rest))
        first, second = (t.double().cpu().numpy() for t in (self.rotation, self.second_rotation))
        rotations = np.where(self.second.cpu().numpy()[:, None, None], second, first)
        factors = (transfer[None] * masks[:, None, :]) @ rotations  # (J, n, n): z - mean = ε factor
        means = (((1 - masks) * rest)[:, None, :] @ rotations)[:, 0]
        return Mixture(np.full(len(masks), 1 / len(masks)), means, factors.transpose(0, 2, 1) @ factors)


class GaussianMixture(Buffers):
    """Σ_j w_j N(μ_j, L_jᵀ L_j), rows z = μ_j + ε L_j; L_j may have any rank. With `observed` the component is u."""

    def __init__(
        self, weights: Array, means: Array, factors: Array, *, observed: bool = False, equal_shares: bool = False
    ) -> None:
        super().__init__(weights=weights, means=means, factors=factors)
        self.observed, self.equal_shares = observed, equal_shares

    def draw(self, rows: int, rng: torch.Generator) -> Draw:
        """Draw rows."""
        device = self.means.device
        if self.equal_shares:
            component = equal_shares(rows, len(self.means), rng, device)
        else:
            component = torch.multinomial(self.weights, rows, replacement=True, generator=rng)
        noise = normal((rows, self.factors.shape[1]), self.means, rng)
        if self.factors.dim() == 2:  # diagonal: (J, n) standard deviations
            z = self.means[component] + noise * self.factors[component]
        else:
            z = self.means[component]
            for j in range(len(self.means)):
                own = component == j
                z[own] += noise[own] @ self.factors[j]
        return Draw(z, component, component if self.observed else None)

    def mixture(self) -> Mixture:
        """Return the exact parameters."""
        weights, means, factors = (t.double().cpu().numpy() for t in (self.weights, self.means, self.factors))
        if factors.ndim == 2:
            factors = factors[:, :, None] * np.eye(factors.shape[1])
        return Mixture(weights, means, factors.transpose(0, 2, 1) @ factors)


def random_dag(n: int, edges: int, rng: np.random.Generator) -> Array:
    """Return weights (n, n), A[i, j] for i -> j, of a random acyclic graph with exactly `edges` edges.

    If n nodes cannot have that many, the graph is complete. Weights are uniform on ±[.2, 1]; the order of the nodes is
    random.
    """
    above = np.argwhere(np.triu(np.ones((n, n)), 1))
    chosen = above[rng.permutation(len(above))[:edges]]
    weights = rng.uniform(0.2, 1.0, size=len(chosen)) * rng.choice([-1.0, 1.0], size=len(chosen))
    a = np.zeros((n, n))
    a[chosen[:, 0], chosen[:, 1]] = weights
    order = rng.permutation(n)
    return a[np.ix_(order, order)]


def random_masks(units: int, active: int, draws: int, rng: np.random.Generator) -> BoolArray:
    """Return the distinct rows (J, units), J <= draws, among `draws` random ones with exactly `active` ones each."""
    return np.unique(rng.random((draws, units)).argsort(axis=1) < active, axis=0)


def all_planes_rotation(n: int, degrees: float) -> Array:
    """Return the product R (n, n) of rotations by one angle in every coordinate plane i < j; rows rotate as z R.

    The planes are in the order (0, 1), (0, 2), ..., and each multiplies from the left, R <- G_ij R, as published.
    """
    r, c, s = np.eye(n), np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    for i in range(n):
        for j in range(i + 1, n):
            givens = np.eye(n)
            givens[[i, i, j, j], [i, j, i, j]] = c, -s, s, c
            r = givens @ r
    return r
