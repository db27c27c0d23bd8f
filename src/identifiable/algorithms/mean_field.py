r"""A noisy affine mixture of many intermittently active latents, fitted one latent at a time.

    y = z B + c + s ε,   z_i = 0 with probability 1 - p_i, else N(μ_i, σ_i²),   ε ~ N(0, I),

with independent latents. The posterior of a row is approximated by independent spikes and slabs q_i (mean field;
Titsias & Lázaro-Gredilla 2011). Given the others, q_i depends on a row only through its remainder along b_i, the i-th
row of B:

    h_i = b_i · (y - c - Σ_{k≠i} E z_k b_k),   P(active_i | h_i) and N(z_i; m_i, v_i) in closed form,

and B, c and s are the least squares of y on the posterior of z. An iteration takes O(N n²) operations, so this is for
numbers of latents whose patterns of activity cannot be listed (`pattern_model.py`). Where few latents are active per
row, or B is well conditioned, the approximation is close; the likelihood of held-out rows decides elsewhere.
"""

from dataclasses import dataclass, replace

import numpy as np

from identifiable.arrays import Array
from identifiable.training.clock import require_time

MOST_STEPS, SWEEPS = 80, 2
LEAST_GAIN = 1e-4  # nats per row and latent by which the bound rises in a step, or the fit ends
LEAST_SHARE = 1e-3  # of rows in which a latent is active, and inactive
LEAST_VARIANCE = 1e-6  # of an active latent


@dataclass(frozen=True, eq=False)
class MeanField:
    """The parameters: B (n, d), c (d,), the noise s, and p, μ and σ² (n,) of the latents."""

    mixing: Array
    origin: Array
    noise: float
    share: Array
    mean: Array
    variance: Array

    @classmethod
    def of_latents(cls, t: Array, active: Array, mixing: Array, origin: Array, noise: float) -> "MeanField":
        """Return the parameters for latents t (N, n), given the probability that each is active (N, n)."""
        share = np.clip(active.mean(0), LEAST_SHARE, 1 - LEAST_SHARE)
        mean = (active * t).mean(0) / share
        variance = np.maximum((active * (t - mean) ** 2).mean(0) / share, LEAST_VARIANCE)
        return cls(mixing, origin, noise, share, mean, variance)


@dataclass(frozen=True, eq=False)
class Posterior:
    """Of all latents in all rows, each (n, N): P(active), the moments while active, and E z and Var z."""

    active: Array
    centre: Array
    spread: Array  # (n, 1)

    @property
    def mean(self) -> Array:
        """Return E z."""
        return self.active * self.centre

    @property
    def variance(self) -> Array:
        """Return Var z."""
        return self.active * (self.spread + self.centre**2) - self.mean**2


def posterior(y: Array, model: MeanField, start: Array, sweeps: int = SWEEPS) -> Posterior:
    """Return the mean-field posterior of rows y (N, d), from E z (n, N) at the start."""
    gram, noise2 = model.mixing @ model.mixing.T, model.noise**2
    along = model.mixing @ (y - model.origin).T
    odds = np.log(model.share / (1 - model.share))
    precision = np.diag(gram) / noise2 + 1 / model.variance
    mean, active, centre = start.copy(), np.empty_like(start), np.empty_like(start)
    for _ in range(sweeps):
        for i in range(len(gram)):
            require_time()
            h = along[i] - gram[i] @ mean + gram[i, i] * mean[i]
            m = (h / noise2 + model.mean[i] / model.variance[i]) / precision[i]
            logit = 0.5 * m * m * precision[i] + odds[i] - 0.5 * model.mean[i] ** 2 / model.variance[i]
            logit -= 0.5 * np.log(model.variance[i] * precision[i])
            active[i] = 1 / (1 + np.exp(-np.clip(logit, -50, 50)))
            centre[i] = m
            mean[i] = active[i] * m
    return Posterior(active, centre, 1 / precision[:, None])


def bound(y: Array, model: MeanField, q: Posterior) -> float:
    """Return the lower bound of the mean log-likelihood of rows y (N, d), in nats per row."""
    rows, d = y.shape
    error = ((y - model.origin - q.mean.T @ model.mixing) ** 2).sum()
    error += (q.variance.sum(1) * (model.mixing**2).sum(1)).sum()
    fit = -0.5 * d * np.log(2 * np.pi * model.noise**2) - 0.5 * error / rows / model.noise**2
    a, p, v = q.active, model.share[:, None], model.variance[:, None]
    a = np.clip(a, 1e-12, 1 - 1e-12)
    slab = 0.5 * ((q.spread + (q.centre - model.mean[:, None]) ** 2) / v - 1 - np.log(q.spread / v))
    divergence = a * (np.log(a / p) + slab) + (1 - a) * np.log((1 - a) / (1 - p))
    return float(fit - divergence.sum() / rows)


def maximise(y: Array, q: Posterior) -> MeanField:
    """Return the most likely parameters given a posterior of rows y (N, d)."""
    rows, mean, variance = len(y), q.mean, q.variance.sum(1)
    share = np.clip(q.active.mean(1), LEAST_SHARE, 1 - LEAST_SHARE)
    of_active = q.active / (rows * share[:, None])
    mu = (of_active * q.centre).sum(1)
    spread = (of_active * ((q.centre - mu[:, None]) ** 2 + q.spread)).sum(1)
    ones = np.vstack([mean, np.ones(rows)])
    second = ones @ ones.T + np.diag(np.r_[variance, 0])
    solution = np.linalg.solve(second, ones @ y)
    mixing, origin = solution[:-1], solution[-1]
    error = ((y - ones.T @ solution) ** 2).sum() + (variance * (mixing**2).sum(1)).sum()
    noise = float(np.sqrt(error / y.size))
    return MeanField(mixing, origin, noise, share, mu, np.maximum(spread, LEAST_VARIANCE))


def fit(y: Array, model: MeanField, start: Array, *, least_noise: float) -> tuple[MeanField, Posterior]:
    """Fit the model to rows y (N, d) from a start, with E z (n, N) at the start; return it and its posterior.

    The scale of a latent is free: B and the moments of z change together.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(1, 1, size=(2000, 3)) * (rng.random((2000, 3)) < 0.3)
    >>> mixing = rng.normal(size=(3, 8))
    >>> y = z @ mixing + 0.1 * rng.normal(size=(2000, 8))
    >>> first = MeanField.of_latents(z, z != 0, mixing + 0.1 * rng.normal(size=(3, 8)), np.zeros(8), 0.3)
    >>> found, q = fit(y, first, z.T, least_noise=1e-3)
    >>> cosines = (found.mixing * mixing).sum(1) / np.linalg.norm(found.mixing, axis=1) / np.linalg.norm(mixing, axis=1)
    >>> bool(cosines.min() > 0.9999), round(found.noise, 2)
    (True, 0.1)
    """
    value = -np.inf
    q = posterior(y, model, start)
    for _ in range(MOST_STEPS):
        model = maximise(y, q)
        model = replace(model, noise=max(model.noise, least_noise))
        q = posterior(y, model, q.mean)
        before, value = value, bound(y, model, q)
        if value - before < LEAST_GAIN * len(model.share):
            break
    return model, q
