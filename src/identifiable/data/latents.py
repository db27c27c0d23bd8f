"""Laws of latents, as modules of buffers that draw rows on any device.

`draw(rows, rng)` returns `Draw(z, component, u)`; `mixture()` returns the exact parameters where the law is a
(potentially degenerate) Gaussian mixture.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from identifiable.distributions.mixture import Mixture

PILOT_ROWS = 5000  # unmasked samples that fix the value of a latent at rest


@dataclass(frozen=True)
class Draw:
    """Latents z (N, n), the component (N,) each row came from, and the auxiliary variable u (N,) where there is one."""

    z: Tensor
    component: Tensor | None = None
    u: Tensor | None = None


class MaskedSCM(nn.Module):
    """A linear structural equation model in which only some latents are active in each row (the pdGMM paper's data).

    Unmasked latents are z = z A + ε, i.e. z = ε (I - A)^-1, for a weighted acyclic A. Component j leaves the latents
    with masks[j] = 1 and puts the others to rest. Then every row is multiplied by `rotation`, or, for the components in
    `second`, by `second_rotation`.
    """

    adjacency: Tensor
    transfer: Tensor
    rest: Tensor
    rotation: Tensor
    second_rotation: Tensor
    masks: Tensor
    second: Tensor

    def __init__(
        self,
        adjacency: NDArray[np.float64],
        masks: NDArray[np.bool_],
        *,
        rest: NDArray[np.float64],
        noise_law: str,
        rotation: NDArray[np.float64],
        second: NDArray[np.bool_],
        second_rotation: NDArray[np.float64],
    ) -> None:
        super().__init__()
        self.noise_law = noise_law
        n = len(adjacency)
        transfer = np.linalg.inv(np.eye(n) - adjacency)
        for name, value in (
            ("adjacency", adjacency),
            ("transfer", transfer),
            ("rest", rest),
            ("rotation", rotation),
            ("second_rotation", second_rotation),
        ):
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float64))
        self.register_buffer("masks", torch.as_tensor(masks))
        self.register_buffer("second", torch.as_tensor(second))

    def draw(self, rows: int, rng: torch.Generator) -> Draw:
        """Draw rows, an equal share per component."""
        component = _equal_shares(rows, len(self.masks), rng, self.masks.device)
        z = self.noise(rows, rng) @ self.transfer
        z = torch.where(self.masks[component], z, self.rest)
        turned = z @ self.rotation
        if bool(self.second.any()):
            turned = torch.where(self.second[component][:, None], z @ self.second_rotation, turned)
        return Draw(turned, component)

    def noise(self, rows: int, rng: torch.Generator) -> Tensor:
        """Draw ε (rows, n) from the noise law, scale 1."""
        shape, like = (rows, len(self.rest)), self.transfer
        if self.noise_law == "gaussian":
            return torch.randn(shape, generator=rng, dtype=like.dtype, device=like.device)
        exponential = torch.empty(shape, dtype=like.dtype, device=like.device).exponential_(generator=rng)
        return exponential if self.noise_law == "exponential" else -exponential.log()

    def unmasked(self) -> "MaskedSCM":
        """Return the same law with all latents active in every row."""
        law = copy.deepcopy(self)
        law.masks, law.second = torch.ones_like(self.masks[:1]), torch.zeros_like(self.second[:1])
        return law

    def mixture(self) -> Mixture:
        """Return the exact parameters; Gaussian noise only."""
        if self.noise_law != "gaussian":
            raise ValueError(f"With {self.noise_law} noise the latents are not a Gaussian mixture.")
        masks, transfer, rest = (t.double().cpu().numpy() for t in (self.masks, self.transfer, self.rest))
        turns = np.where(
            self.second.cpu().numpy()[:, None, None],
            self.second_rotation.double().cpu().numpy(),
            self.rotation.double().cpu().numpy(),
        )
        factors = (transfer[None] * masks[:, None, :]) @ turns  # (J, n, n): z - mean = ε factor
        means = (((1 - masks) * rest)[:, None, :] @ turns)[:, 0]
        return Mixture(np.full(len(masks), 1 / len(masks)), means, factors.transpose(0, 2, 1) @ factors)


class GaussianMixture(nn.Module):
    """Σ_j w_j N(μ_j, L_jᵀ L_j), rows z = μ_j + ε L_j; L_j may have any rank. with `observed` the component is u."""

    weights: Tensor
    means: Tensor
    factors: Tensor

    def __init__(
        self,
        weights: NDArray[np.float64],
        means: NDArray[np.float64],
        factors: NDArray[np.float64],
        *,
        observed: bool = False,
        equal_shares: bool = False,
    ) -> None:
        super().__init__()
        self.observed, self.equal_shares = observed, equal_shares
        for name, value in (("weights", weights), ("means", means), ("factors", factors)):
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float64))

    def draw(self, rows: int, rng: torch.Generator) -> Draw:
        """Draw rows."""
        device = self.means.device
        if self.equal_shares:
            component = _equal_shares(rows, len(self.means), rng, device)
        else:
            component = torch.multinomial(self.weights, rows, replacement=True, generator=rng)
        noise = torch.randn((rows, self.factors.shape[1]), generator=rng, dtype=self.means.dtype, device=device)
        if self.factors.dim() == 2:  # diagonal: (J, n) standard deviations
            z = self.means[component] + noise * self.factors[component]
        else:
            z = torch.empty((rows, self.means.shape[1]), dtype=self.means.dtype, device=device)
            for j in range(len(self.means)):
                own = component == j
                z[own] = self.means[j] + noise[own] @ self.factors[j]
        return Draw(z, component, component if self.observed else None)

    def mixture(self) -> Mixture:
        """Return the exact parameters."""
        weights, means, factors = (t.double().cpu().numpy() for t in (self.weights, self.means, self.factors))
        if factors.ndim == 2:
            factors = factors[:, :, None] * np.eye(factors.shape[1])
        return Mixture(weights, means, factors.transpose(0, 2, 1) @ factors)


def random_dag(n: int, edges: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return weights (n, n), A[i, j] for i -> j, of a random acyclic graph with exactly `edges` edges.

    Where there cannot be that many, it has all there can be. Weights are uniform on ±[.2, 1], the nodes' order is
    random.
    """
    above = np.argwhere(np.triu(np.ones((n, n)), 1))
    chosen = above[rng.permutation(len(above))[:edges]]
    weights = rng.uniform(0.2, 1.0, size=len(chosen)) * rng.choice([-1.0, 1.0], size=len(chosen))
    a = np.zeros((n, n))
    a[chosen[:, 0], chosen[:, 1]] = weights
    order = rng.permutation(n)
    return a[np.ix_(order, order)]


def random_masks(units: int, active: int, draws: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Distinct rows with exactly `active` ones, out of `draws` random ones: (J, units), J <= draws."""
    order = rng.random((draws, units)).argsort(axis=1)
    return np.unique(order < active, axis=0)


def all_planes_rotation(n: int, degrees: float) -> NDArray[np.float64]:
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


def expand_blocks(masks: NDArray[np.bool_], sizes: Sequence[int]) -> NDArray[np.bool_]:
    """Return masks of blocks (J, len(sizes)) as masks of latents (J, sum(sizes))."""
    return np.repeat(masks, sizes, axis=1)


def _equal_shares(rows: int, parts: int, rng: torch.Generator, device: torch.device) -> Tensor:
    return torch.randperm(rows, generator=rng, device=device) % parts
