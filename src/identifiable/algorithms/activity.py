r"""How probable it is that a noisy latent is active, and its posterior mean, given its own value.

A recovered latent t is z plus an error, of standard deviation e: the noise, and what is left of other latents. With
z = 0 in a share 1 - p of the rows, and else from a mixture of K Gaussians,

.. math:: t \sim (1 - p) N(0, e^2) + p \sum_k w_k N(\mu_k, \sigma_k^2 + e^2),

so that P(active | t) and E[z | t] have closed forms. Conditioning on the latent's own value needs no assumption about
the others: the probabilities are calibrated however the latents depend on each other, if the density above is right.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from identifiable.algorithms.noisy import spikes
from identifiable.arrays import Array
from identifiable.training.clock import require_time

CELLS = np.sinh(np.linspace(-11.5, 11.5, 481)) * 1e-3  # edges in which rows are counted, in sd: fine at zero
STEPS, SETTLED = 200, 1e-4  # of EM, and the change of a share that ends it
LEAST_WIDTH = 2.0  # sd of the narrowest slab with its error, in widths of the spike: narrower ones would be the spike
LEAST_SHARE = 1e-3
EXACT = 1e-4  # width of a spike, in sd of the latent, from which it counts as exact


@dataclass(frozen=True, eq=False)
class Activity:
    """The densities of n latents: e and p (n,); w, μ and σ² + e² (n, K)."""

    width: Array
    share: Array
    weights: Array
    means: Array
    variances: Array

    def active_probability(self, t: Array) -> Array:
        """Return P(active | t) of latents t (N, n)."""
        spike, slabs = self._parts(t)
        slab = slabs.sum(-1)
        return np.asarray(slab / (spike + slab))

    def posterior_mean(self, t: Array) -> Array:
        """Return E[z | t] of latents t (N, n)."""
        spike, slabs = self._parts(t)
        kept = 1 - np.minimum((self.width**2)[:, None] / self.variances, 1)
        means = self.means + kept * (t[..., None] - self.means)
        return np.asarray((slabs * means).sum(-1) / (spike + slabs.sum(-1)))

    def log_density(self, t: Array) -> Array:
        """Return log p(t) of latents t (N, n)."""
        spike = np.log(1 - self.share) + norm.logpdf(t, scale=self.width)
        slabs = norm.logpdf(t[..., None], self.means, np.sqrt(self.variances)) + np.log(self.weights)
        return np.asarray(np.logaddexp(spike, np.log(self.share) + np.logaddexp.reduce(slabs, axis=-1)))

    def _parts(self, t: Array) -> tuple[Array, Array]:
        """Return the parts (N, n) and (N, n, K) of the density at t, up to one factor per value."""
        spike = np.log(1 - self.share) - 0.5 * (t / self.width) ** 2 - np.log(self.width)
        slabs = np.log(self.share[:, None] * self.weights) - 0.5 * np.log(self.variances)
        slabs = slabs - 0.5 * (t[..., None] - self.means) ** 2 / self.variances
        top = np.maximum(spike, slabs.max(-1))
        return np.exp(spike - top), np.exp(slabs - top[..., None])


def activity_of(t: Array) -> Activity:
    """Fit the densities of latents t (N, n), of about unit variance and zero up to noise while inactive.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(5000, 1)) * (rng.random((5000, 1)) < 0.3)
    >>> found = activity_of(z + 0.1 * rng.normal(size=z.shape))
    >>> found.share.round(1), found.width.round(1)
    (array([0.3]), array([0.1]))
    >>> found.active_probability(np.array([[0.0], [1.0]])).round().ravel()
    array([0., 1.])
    """
    centre = (CELLS[1:] + CELLS[:-1]) / 2
    rows = np.stack([np.histogram(np.clip(column, CELLS[0], CELLS[-1]), CELLS)[0] for column in t.T]) / len(t)
    width, mean, size, active = spikes(t)
    share = np.clip(active.mean(0), LEAST_SHARE, 1 - LEAST_SHARE)
    means = mean[:, None] + size[:, None] * np.array([-0.7, 0.0, 0.7])
    variances = (size[:, None] * np.array([0.7, 1.5, 0.7])) ** 2
    model = Activity(width, share, np.full(means.shape, 1 / 3), means, np.maximum(variances, width[:, None] ** 2))
    for _ in range(STEPS):
        require_time()
        spike, slabs = (np.moveaxis(part, 0, 1) for part in model._parts(np.repeat(centre[:, None], t.shape[1], 1)))
        of_rows = rows / (spike + slabs.sum(-1))
        of_spike, of_slabs = spike * of_rows, slabs * of_rows[..., None]
        mass = of_slabs.sum(1)
        total = mass.sum(1)
        width = np.sqrt((of_spike * centre**2).sum(1) / np.maximum(of_spike.sum(1), 1e-12))
        width = np.maximum(width, CELLS[len(CELLS) // 2 + 1])
        mass = np.maximum(mass, 1e-12)
        means = (of_slabs * centre[:, None]).sum(1) / mass
        variances = (of_slabs * (centre[:, None] - means[:, None]) ** 2).sum(1) / mass
        variances = np.maximum(variances, (LEAST_WIDTH * width[:, None]) ** 2)
        before, share = share, np.clip(total, LEAST_SHARE, 1 - LEAST_SHARE)
        model = Activity(width, share, mass / mass.sum(1, keepdims=True), means, variances)
        if np.abs(share - before).max() < SETTLED:
            break
    return model
