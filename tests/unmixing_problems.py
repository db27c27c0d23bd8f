"""Mixtures with independent latents, and how close an unmixing comes to the latents."""

import numpy as np

from identifiable import Mixture


def factorial_mixture(n, components, rng, spread=(0.3, 1.5)):
    """A factorial mixture with random means, deviations and weights."""
    scales = rng.uniform(*spread, size=(components, n))
    return Mixture(rng.dirichlet(np.full(components, 5.0)), rng.uniform(-3, 3, size=(components, n)), scales**2)


def purity(gain):
    """How much of each row of W A is one entry: 1 for a permutation and scaling."""
    return (np.abs(gain).max(1) / np.linalg.norm(gain, axis=1)).min()
