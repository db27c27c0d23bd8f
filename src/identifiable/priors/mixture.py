"""A Gaussian mixture as the base of a flow: R members with K components each, full or diagonal, all learnt."""

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from identifiable.arrays import IntArray
from identifiable.distributions.densities import LOG_2PI
from identifiable.distributions.mixture import Mixture
from identifiable.priors.quadratic import DIAGONAL, Diagonal, Shape, joint, log_mixture, upper_triangle

LOG_PRECISION_RANGE = -4.0, 6.0  # of log(1 / sd) within a component: without it the likelihood has no upper bound


class MixtureBase(nn.Module):
    r"""Σ_k w_k N(μ_k, (M_k' M_k)^-1) on R^n, with M_k = diag(e^a_k) (I + U_k), U_k strictly upper triangular.

    Parameters
    ----------
    members, components, n : R, K, n.
    diagonal : whether U = 0, so that the coordinates are independent within each component.
    """

    upper: Tensor

    def __init__(self, members: int, components: int, n: int, *, diagonal: bool) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(members, components))
        self.means = nn.Parameter(torch.zeros(members, components, n))
        self.log_factors = nn.Parameter(torch.zeros(members, components, n))
        self.off = None if diagonal else nn.Parameter(torch.zeros(members, components, n, n))
        self.register_buffer("upper", torch.triu(torch.ones(n, n), 1).expand(members, n, n).clone())

    @classmethod
    def of(cls, mixtures: Sequence[Mixture], *, diagonal: bool) -> Self:
        """Return a base that starts at these mixtures of equal size, one per member; `diagonal` drops covariances."""
        components, n = mixtures[0].means.shape
        base = cls(len(mixtures), components, n, diagonal=diagonal)
        covariances = np.stack([one.covariances for one in mixtures])
        if diagonal:
            covariances = covariances * np.eye(n)
        factors = np.linalg.cholesky(np.linalg.inv(covariances)).swapaxes(-1, -2)
        scales = np.diagonal(factors, axis1=-2, axis2=-1)
        starts = {
            "logits": np.log(np.maximum([one.weights for one in mixtures], 1e-8)),
            "means": np.stack([one.means for one in mixtures]),
            "log_factors": np.log(scales),
            "off": factors / scales[..., None],
        }
        with torch.no_grad():
            for name, parameter in base.named_parameters():
                parameter.copy_(torch.as_tensor(starts[name], dtype=torch.float32))
        return base

    @property
    def _a(self) -> Tensor:
        return self.log_factors.clamp(*LOG_PRECISION_RANGE)

    @property
    def _factors(self) -> Tensor:
        """M (R, K, n, n)."""
        eye = torch.eye(self.means.shape[-1], dtype=self.means.dtype, device=self.means.device)
        inner = eye if self.off is None else eye + self.off * self.upper[:, None]
        return self._a.exp()[..., None] * inner

    def natural(self) -> tuple[Shape, Tensor, Tensor, Tensor]:
        """Return the kind of the matrices P_k = M_k' M_k, their entries, P_k μ_k (R, K, n) and constants (R, K, 1)."""
        n = self.means.shape[-1]
        if self.off is None:
            packed = (2 * self._a).exp()
            return DIAGONAL, packed, packed * self.means, self._constants(packed * self.means)
        triangle, M = upper_triangle(n, self.means.device), self._factors
        P = M.mT @ M
        linear = (P @ self.means[..., None])[..., 0]
        return triangle, triangle.pack(P), linear, self._constants(linear)

    def _constants(self, linear: Tensor) -> Tensor:
        """Return log w_k + ½ log det P_k - ½ μ_k' P_k μ_k - n/2 log 2π, (R, K, 1), given P_k μ_k."""
        log_scale = (self._a - 0.5 * linear * self.means).sum(-1) - 0.5 * self.means.shape[-1] * LOG_2PI
        return (torch.log_softmax(self.logits, -1) + log_scale)[..., None]

    def forward(self, z: Tensor) -> Tensor:
        """Log w_k N(z; k) for z (R, B, n); (R, B, K)."""
        shape, *parameters = self.natural()
        return joint(shape, z.mT, *parameters).mT

    def log_density(self, z: Tensor) -> Tensor:
        """Log Σ_k w_k N(z; k) for z (R, B, n); (R, B)."""
        shape, *parameters = self.natural()
        return log_mixture(shape, z.mT, *parameters)

    def mean_precision(self, share: Tensor) -> Tensor:
        """Σ_k r_k P_k, (R, B, n, n), for shares r (R, B, K) of the components."""
        M = self._factors
        return (share @ (M.mT @ M).flatten(2)).unflatten(-1, M.shape[-2:])

    def expected(self, mean: Tensor, spread: Tensor) -> Tensor:
        """E log w_k N(z; k), (R, B, K), for latents z of these means (R, B, n) and covariances.

        A diagonal base takes their variances (R, B, n), a full one the matrices (R, B, n, n).
        """
        shape, packed, *_ = self.natural()
        entries = 0.5 * spread if isinstance(shape, Diagonal) else shape.pack(spread) * shape.share[:, 0].to(spread)
        return self(mean) - entries @ packed.mT

    @torch.no_grad()
    def learn(self, z: Tensor, *, steps: int, rng: torch.Generator, tries: int = 1) -> None:
        """Fit each member's mixture to its rows z (R, N, n) by EM, from means chosen as in k-means++.

        The base must be diagonal. A component with fewer than two rows restarts at the row of lowest density. Of
        several tries each member keeps the one with the highest likelihood.
        """
        best = torch.full((len(z),), -torch.inf, device=z.device)
        kept = [torch.zeros_like(p) for p in self.parameters()]
        for _ in range(tries):
            self._initialise(z, rng)
            for _ in range(steps):
                self._em_step(z)
            score = torch.logsumexp(self(z), -1).mean(1).nan_to_num(-torch.inf)
            better = score > best
            best = torch.where(better, score, best)
            for old, new in zip(kept, self.parameters(), strict=True):
                old[better] = new[better]
        for parameter, value in zip(self.parameters(), kept, strict=True):
            parameter.copy_(value)

    def _initialise(self, z: Tensor, rng: torch.Generator) -> None:
        """Set the means to rows of z (R, N, n) far from each other, with equal weights and variances."""
        (members, rows, n), K, variances = z.shape, self.means.shape[1], _variances(z)
        member, unit = torch.arange(members, device=z.device), z / variances.sqrt()
        first = torch.randint(rows, (members,), generator=rng).to(z.device)
        chosen, nearest = [first], (unit - unit[member, first][:, None]).square().sum(-1)
        for _ in range(1, K):
            pick = torch.multinomial((nearest + 1e-12).cpu(), 1, generator=rng)[:, 0].to(z.device)
            chosen.append(pick)
            nearest = torch.minimum(nearest, (unit - unit[member, pick][:, None]).square().sum(-1))
        self.logits.zero_()
        self.means.copy_(torch.stack([z[member, one] for one in chosen], 1))
        self.log_factors.copy_((-0.5 * (variances / K ** (2 / n)).log()).expand_as(self.log_factors))

    def _em_step(self, z: Tensor) -> None:
        """Take one step of EM."""
        (_, rows, n), K, variances = z.shape, self.means.shape[1], _variances(z)
        joint = self(z)
        posterior = torch.softmax(joint, -1)  # (R, N, K)
        size = posterior.sum(1)  # (R, K)
        few = (size < 2)[..., None]
        least_likely = torch.logsumexp(joint, -1).argsort(1)[:, :K]
        safe = size.clamp(min=1e-6)[..., None]
        mean = posterior.mT @ z / safe
        variance = (posterior.mT @ z.square() / safe - mean.square()).clamp(min=0) + 1e-3 * variances
        restarts = z.gather(1, least_likely[..., None].expand(-1, -1, n))
        self.means.copy_(torch.where(few, restarts, mean))
        self.log_factors.copy_(-0.5 * torch.where(few, variances / K ** (2 / n), variance).log())
        self.logits.copy_((size.clamp(min=1) / rows).log())

    @torch.no_grad()
    def rescale(self, scale: Tensor, shift: Tensor) -> None:
        """Replace the distribution of z by that of z scale + shift, both (R, n)."""
        self.means.copy_(self.means * scale[:, None] + shift[:, None])
        self.log_factors.copy_(self._a - scale.log()[:, None])
        if self.off is not None:
            self.off.mul_((scale[:, :, None] / scale[:, None, :])[:, None])

    @torch.no_grad()
    def order(self, member: int = 0) -> IntArray:
        """Return the components of a member, the heaviest first, as `mixture` numbers them."""
        return np.argsort(-torch.softmax(self.logits[member].double(), -1).cpu().numpy(), kind="stable")

    @torch.no_grad()
    def mixture(self, member: int = 0) -> Mixture:
        """Return the mixture of a member, its heaviest component first."""
        weights = torch.softmax(self.logits[member].double(), -1).cpu().numpy()
        M = self._factors[member].double().cpu().numpy()
        covariances = np.linalg.inv(M.swapaxes(1, 2) @ M)
        order = self.order(member)
        covariances = (covariances + covariances.swapaxes(1, 2)) / 2
        return Mixture(weights[order], self.means[member].double().cpu().numpy()[order], covariances[order])


def _variances(z: Tensor) -> Tensor:
    """Return the variance of each latent (R, 1, n)."""
    return z.var(1, keepdim=True, correction=0).clamp(min=1e-8)


def split_components(mixture: Mixture, components: int) -> Mixture:
    """Return the same distribution with this many components, at least as many as before, by halving the heaviest.

    >>> split_components(Mixture([0.8, 0.2], [[0.0], [1.0]], [[1.0], [1.0]]), 4).weights
    array([0.2, 0.2, 0.4, 0.2])
    """
    weights, which = mixture.weights.tolist(), list(range(len(mixture.weights)))
    while len(weights) < components:
        heaviest = int(np.argmax(weights))
        weights[heaviest] /= 2
        weights.append(weights[heaviest])
        which.append(which[heaviest])
    return Mixture(weights, mixture.means[which], mixture.covariances[which])
