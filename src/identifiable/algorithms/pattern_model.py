r"""Maximum likelihood of a noisy affine mixture of intermittently active latents, over the patterns of activity.

Model, in coordinates y (N, n) whose noise is isotropic:

    y = (m ∘ v) B + c + s ε,   v ~ N(μ, C),   m = pattern j with probability w_j,   ε ~ N(0, I),

so that, with M_j = diag(m_j), y is a mixture of Gaussians that share all but the pattern:

    y | j ~ N(m_j ∘ μ B + c,  Bᵀ M_j C M_j B + s² I).

EM has only the pattern as missing value. v is integrated out: were it missing too, steps in B would shrink with s².
The E-step gives the moments of y per pattern; the M-step fits (B, c, μ, C, s) to these moments by L-BFGS and no longer
sees the rows. A pattern with next to no rows is dropped; one is added where the likelihood rises in the direction of
its weight, E p(y | new) / p(y) > 1.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from identifiable.arrays import Array
from identifiable.training.clock import require_time

PRICE = 0.05  # nats per active latent


class Rows:
    """Rows t (N, n) as features (t tᵀ, t, 1), in which log-densities are linear and moments are sums."""

    def __init__(self, t: Tensor) -> None:
        self.t, self.n = t, t.shape[1]
        self.i, self.j = torch.triu_indices(self.n, self.n)
        self.features = torch.cat([t[:, self.i] * t[:, self.j], t, torch.ones_like(t[:, :1])], 1)
        self.twice = torch.where(self.i == self.j, 1.0, 2.0).double()

    def log_density(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Return log N(t; mean_j, covariance_j) (N, J)."""
        root = torch.linalg.cholesky(covariance)
        precision = torch.cholesky_inverse(root)
        linear = (precision @ mean[:, :, None])[:, :, 0]
        constant = -0.5 * (linear * mean).sum(1) - root.diagonal(dim1=1, dim2=2).log().sum(1)
        constant = constant - 0.5 * self.n * np.log(2 * np.pi)
        quadratic = -0.5 * precision[:, self.i, self.j] * self.twice
        return self.features @ torch.cat([quadratic, linear, constant[:, None]], 1).T

    def moments(self, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights (J,), means (J, n) and covariances (J, n, n) of the rows under posteriors (N, J)."""
        sums = shares.T @ self.features / len(shares)
        weights = sums[:, -1]
        mean = sums[:, -1 - self.n : -1] / weights[:, None]
        second = torch.empty(len(weights), self.n, self.n, dtype=torch.float64)
        second[:, self.i, self.j] = second[:, self.j, self.i] = sums[:, : len(self.i)] / weights[:, None]
        return weights, mean, second - mean[:, :, None] * mean[:, None, :]


@dataclass(frozen=True)
class Model:
    """The model of t = y W + b, with B = `mixing`, noise covariance s² Wᵀ W = s² `noise_shape` and C = root rootᵀ."""

    mixing: Tensor
    origin: Tensor
    mean: Tensor
    root: Tensor
    log_noise: float
    noise_shape: Tensor
    patterns: Tensor
    weights: Tensor
    floor: float

    def components(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Return the moments of t for z = map v: maps are patterns (J, n), or matrices (J, n, n)."""
        maps = torch.diag_embed(maps) if maps.ndim == 2 else maps
        factor = self.root.T @ maps.transpose(1, 2) @ self.mixing
        covariance = factor.transpose(1, 2) @ factor + np.exp(2 * self.log_noise) * self.noise_shape
        return (maps @ self.mean) @ self.mixing + self.origin, covariance

    def posterior(self, rows: Rows) -> tuple[Tensor, float]:
        """Return the share of every pattern in every row (N, J), and the mean log-likelihood."""
        joint = rows.log_density(*self.components(self.patterns)) + self.weights.log()
        top = joint.amax(1, keepdim=True)
        shares = joint.sub_(top).exp_()
        total = shares.sum(1, keepdim=True)
        return shares.div_(total), float((top + total.log()).mean())

    def log_density(self, rows: Rows) -> Tensor:
        """Return the log-density (N,) of every row."""
        return torch.logsumexp(rows.log_density(*self.components(self.patterns)) + self.weights.log(), 1)

    @property
    def n_active(self) -> float:
        """Return how many latents are active on average."""
        return float(self.weights @ self.patterns.sum(1))

    def value(self, rows: Rows) -> float:
        """Return the criterion of models: the mean log-likelihood, less a price for every active latent.

        With a singular C, latents that are always active can stand for those that are not: the likelihood is the same,
        but only the sparse model is identified.
        """
        return self.posterior(rows)[1] - PRICE * self.n_active

    def without(self, i: int, k: int) -> tuple[Tensor, Tensor]:
        """Return the patterns with i and k inactive, and their weights."""
        cleared = self.patterns.clone()
        cleared[:, [i, k]] = 0
        base, group = torch.unique(cleared, dim=0, return_inverse=True)
        return base, torch.zeros(len(base), dtype=torch.float64).index_add_(0, group, self.weights)

    def latent_covariance(self) -> Tensor:
        """Return the covariance (n, n) of the latents over all patterns."""
        z = self.patterns * self.mean
        both = (self.weights[:, None] * self.patterns).T @ self.patterns
        centre = self.weights @ z
        return both * (self.root @ self.root.T) + (self.weights[:, None] * z).T @ z - torch.outer(centre, centre)


def maximise(model: Model, moments: tuple[Tensor, Tensor, Tensor], *, mix: bool, steps: int) -> Model:
    """M-step: a few steps of L-BFGS on the moments per pattern; B and c stay as they are unless `mix`."""
    weights, centre, spread = moments
    masks, n = model.patterns, len(model.mean)
    pairs = masks[:, :, None] * masks[:, None, :]

    def unpack(x: Array) -> tuple[Tensor, ...]:
        v = torch.tensor(x)
        mixing, origin = (v[n + n * n : -1].split([n * n, n])) if mix else (model.mixing, model.origin)
        return mixing.reshape(n, n), origin, v[:n], v[n : n + n * n].view(n, n), v[-1]

    def loss(x: Array) -> tuple[float, Array]:
        require_time()
        B, c, mu, root, log_noise = unpack(x)
        own, noise = (root @ root.T) * pairs, torch.exp(2 * log_noise) * model.noise_shape
        factor, failed = torch.linalg.cholesky_ex(B.T @ own @ B + noise)
        if bool(failed.any()):
            return 1e10, np.zeros_like(x)
        precision = torch.cholesky_inverse(factor)
        error = centre - (masks * mu) @ B - c
        scaled = precision @ (spread + error[:, :, None] * error[:, None, :])
        each = factor.diagonal(dim1=1, dim2=2).log().sum(1) + 0.5 * scaled.diagonal(dim1=1, dim2=2).sum(1)
        by_covariance = 0.5 * weights[:, None, None] * (precision - scaled @ precision)
        by_mean = -weights[:, None] * (precision @ error[:, :, None])[:, :, 0]
        by_C = ((B @ by_covariance @ B.T) * pairs).sum(0)
        gradient = [(masks * (by_mean @ B.T)).sum(0), (2 * by_C @ root).reshape(-1)]
        by_B = 2 * (own @ (B @ by_covariance)).sum(0) + (masks * mu).T @ by_mean
        gradient += [by_B.reshape(-1), by_mean.sum(0)] if mix else [torch.zeros(0, dtype=torch.float64)]
        gradient.append(2 * (by_covariance.sum(0) * noise).sum().reshape(1))
        return float((weights * each).sum()), torch.cat(gradient).numpy()

    start = [model.mean, model.root.reshape(-1), *([model.mixing.reshape(-1), model.origin] if mix else [])]
    x = torch.cat([*start, torch.tensor([model.log_noise], dtype=torch.float64)]).numpy()
    bounds = [(None, None)] * (len(x) - 1) + [(model.floor, None)]
    x = minimize(loss, x, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps, "maxcor": 20}).x
    mixing, origin, mean, root, log_noise = unpack(x)
    return replace(model, mixing=mixing, origin=origin, mean=mean, root=root, log_noise=float(log_noise))


def em(
    rows: Rows, model: Model, steps: int, *, dropped: float = 2.0, values: bool = True, mix: bool = True, inner: int = 8
) -> Model:
    """EM steps on the weights, the `values` (μ, C, s) and the `mix` (B, c); patterns of `dropped` rows are dropped."""
    for _ in range(steps):
        require_time()
        shares, _ = model.posterior(rows)
        counts = (shares.sum(0) - dropped).clamp(min=0)
        kept = counts > 0 if bool((counts > 0).any()) else shares.sum(0) > 0
        weights = counts[kept].clamp(min=1e-9)
        model = replace(model, patterns=model.patterns[kept], weights=weights / weights.sum())
        if values:
            model = maximise(model, rows.moments(shares[:, kept]), mix=mix, steps=inner)
    return model


def grow(rows: Rows, model: Model, most: int = 80) -> Model:
    """Add the neighbours of the frequent patterns in whose direction the likelihood rises fastest."""
    n = rows.n
    frequent = model.patterns[torch.argsort(-model.weights)[: max(20, 2000 // n)]]
    new = torch.unique((frequent[:, None] - torch.eye(n, dtype=torch.float64)).abs().reshape(-1, n), dim=0)
    code = 2.0 ** torch.arange(n, dtype=torch.float64)
    new = new[~torch.isin(new @ code, model.patterns @ code)]
    some = Rows(rows.t[:800])
    gain = (some.log_density(*model.components(new)) - model.log_density(some)[:, None]).exp().mean(0)
    best = torch.argsort(-gain)[:most]
    new = new[best[gain[best] > 1]]
    fresh = torch.full((len(new),), 0.05 / max(len(new), 1), dtype=torch.float64)
    weights = torch.cat([model.weights * (1 - fresh.sum()), fresh])
    return replace(model, patterns=torch.cat([model.patterns, new]), weights=weights)


def settle(rows: Rows, model: Model, rounds: int) -> tuple[Model, float]:
    """Add patterns and fit until the likelihood stops rising."""
    value = -np.inf
    for _ in range(rounds):
        model = em(rows, grow(rows, model), 4)
        before, value = value, model.value(rows)
        if value - before < 0.003:
            break
    return model, value
