"""Clusters that are not Gaussian: pinwheels and parallelograms. They have no true latents."""

import numpy as np
import torch

from identifiable.arrays import Array
from identifiable.data.latents import Buffers, Draw, equal_shares, normal, uniform
from identifiable.data.sample import Sample
from identifiable.data.simulator import Simulator


class Pinwheel(Buffers):
    """Arms of a pinwheel in the plane (Johnson et al. 2016)."""

    def __init__(self, arms: int, radial: float, tangential: float, rate: float) -> None:
        super().__init__(spread=np.array([radial, tangential]))
        self.arms, self.rate = arms, rate

    def draw(self, rows: int, rng: torch.Generator) -> Draw:
        """Draw rows, an equal share per arm."""
        arm = equal_shares(rows, self.arms, rng, self.spread.device)
        noise = normal((rows, 2), self.spread, rng) * self.spread
        radius, across = noise[:, 0] + 1, noise[:, 1]
        angle = arm * (2 * torch.pi / self.arms) + self.rate * torch.exp(radius)
        c, s = torch.cos(angle), torch.sin(angle)
        return Draw(torch.stack([radius * c - across * s, radius * s + across * c], dim=1), arm)


class Parallelograms(Buffers):
    """Uniform draws from parallelograms o + a p + b q with a, b ~ U(0, 1), and Gaussian noise."""

    def __init__(self, corners: Array, edges: Array, noise: float) -> None:
        super().__init__(corners=corners, edges=edges)  # (J, d) and (J, 2, d)
        self.noise = noise

    def draw(self, rows: int, rng: torch.Generator) -> Draw:
        """Draw rows, an equal share per parallelogram."""
        like = self.corners
        own = equal_shares(rows, len(like), rng, like.device)
        ab = uniform((rows, 1, 2), like, rng)
        noise = normal((rows, like.shape[1]), like, rng)
        return Draw(self.corners[own] + (ab @ self.edges[own])[:, 0] + self.noise * noise, own)


def make_pinwheel(
    n_samples: int = 5000,
    *,
    arms: int = 3,
    radial: float = 0.3,
    tangential: float = 0.05,
    rate: float = 0.25,
    random_state: int = 0,
) -> Sample:
    """Sample points of a pinwheel: x (N, 2), component the arm; there is no true z (Kivva et al. 2022, figure 2)."""
    return Simulator(Pinwheel(arms, radial, tangential, rate), None, seed=random_state).sample(n_samples, random_state)


def make_parallelograms(
    n_samples: int = 5000, *, d: int = 2, count: int = 3, noise: float = 0.05, random_state: int = 0
) -> Sample:
    """Sample from randomly oriented parallelograms plus noise: x (N, d), component which one (Kivva et al., table 2).

    Centres are U(-2, 2), edges have length U(.5, 1.5) and random directions at least 30 degrees apart.
    """
    rng = np.random.default_rng(random_state)
    edges = np.empty((count, 2, d))
    for j in range(count):
        while True:
            pair = rng.normal(size=(2, d))
            pair /= np.linalg.norm(pair, axis=1, keepdims=True)
            if abs(pair[0] @ pair[1]) < np.cos(np.deg2rad(30)):
                break
        edges[j] = pair * rng.uniform(0.5, 1.5, size=(2, 1))
    corners = rng.uniform(-2, 2, size=(count, d)) - edges.sum(axis=1) / 2
    return Simulator(Parallelograms(corners, edges, noise), None, seed=random_state).sample(n_samples, random_state)
