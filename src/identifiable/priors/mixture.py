"""A Gaussian mixture as the base of a flow: R members, each with K components, full or diagonal, all learnt."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from identifiable.arrays import IntArray
from identifiable.distributions.mixture import Mixture

LOG_2_PI = math.log(2 * math.pi)
LOG_FACTORS = -4.0, 6.0  # log of 1 / sd within a component: the likelihood of a mixture has no bound without one


class MixtureBase(nn.Module):
    r"""Σ_k w_k N(μ_k, (M_k' M_k)^-1) on R^n, with M_k = diag(e^a_k) (I + U_k), U_k strictly upper triangular.

    Parameters
    ----------
    members, components, n : R, K, n.
    diagonal : U = 0: the coordinates are independent within every component.
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
    def of(cls, mixtures: Sequence[Mixture], *, diagonal: bool) -> "MixtureBase":
        """Start at these mixtures, one per member, of one size; what is off the diagonals is dropped if `diagonal`."""
        components, n = mixtures[0].means.shape
        base = cls(len(mixtures), components, n, diagonal=diagonal)
        covariances = np.stack([one.covariances for one in mixtures])
        if diagonal:
            covariances = covariances * np.eye(n)
        factors = np.linalg.cholesky(np.linalg.inv(covariances)).swapaxes(-1, -2)
        size = np.diagonal(factors, axis1=-2, axis2=-1)
        with torch.no_grad():
            base.logits.copy_(_tensor(np.log(np.maximum([one.weights for one in mixtures], 1e-8))))
            base.means.copy_(_tensor([one.means for one in mixtures]))
            base.log_factors.copy_(_tensor(np.log(size)))
            if base.off is not None:
                base.off.copy_(_tensor(factors / size[..., None]))
        return base

    @property
    def _a(self) -> Tensor:
        return self.log_factors.clamp(*LOG_FACTORS)

    @property
    def _factors(self) -> Tensor:
        """M (R, K, n, n)."""
        eye = torch.eye(self.means.shape[-1], dtype=self.means.dtype, device=self.means.device)
        inner = eye if self.off is None else eye + self.off * self.upper[:, None]
        return self._a.exp()[..., None] * inner

    def forward(self, z: Tensor) -> Tensor:
        """Log w_k N(z; k) for z (R, B, n); (R, B, K)."""
        members, components, n = self.means.shape
        constant = torch.log_softmax(self.logits, -1) + self._a.sum(-1) - 0.5 * n * LOG_2_PI
        if self.off is None:
            precision = (2 * self._a).exp()
            linear = self.means * precision
            square = 0.5 * z.square() @ precision.mT + 0.5 * (self.means * linear).sum(-1)[:, None] - z @ linear.mT
        else:
            M = self._factors
            shift = (M @ self.means[..., None]).squeeze(-1)
            white = (z @ M.reshape(members, components * n, n).mT).unflatten(-1, (components, n)) - shift[:, None]
            square = 0.5 * white.square().sum(-1)
        return constant[:, None] - square

    def expected(self, mean: Tensor, variance: Tensor) -> Tensor:
        """E log w_k N(z; k), (R, B, K), over z of this mean and variance of each latent, (R, B, n); diagonal only."""
        return self(mean) - 0.5 * variance @ (2 * self._a).exp().mT

    @torch.no_grad()
    def learn(self, z: Tensor, *, steps: int, rng: torch.Generator, tries: int = 1) -> None:
        """Fit every member's mixture to its own rows z (R, N, n) by EM, from means drawn as in k-means++; diagonal.

        A component that fewer than two rows belong to starts again at the row that is explained worst. Of several tries
        each member keeps its likeliest.
        """
        best = torch.full((len(z),), -torch.inf, device=z.device)
        kept = [torch.zeros_like(p) for p in self.parameters()]
        for _ in range(tries):
            self._scatter(z, rng)
            for _ in range(steps):
                self._improve(z)
            likely = torch.logsumexp(self(z), -1).mean(1).nan_to_num(-torch.inf)
            better = likely > best
            best = torch.where(better, likely, best)
            for old, new in zip(kept, self.parameters(), strict=True):
                old[better] = new[better]
        for parameter, value in zip(self.parameters(), kept, strict=True):
            parameter.copy_(value)

    def _scatter(self, z: Tensor, rng: torch.Generator) -> None:
        """Draw means among rows z (R, N, n), far from each other, with equal weights and variances."""
        (members, rows, n), K = z.shape, self.means.shape[1]
        spread = _spread(z)
        member, unit = torch.arange(members, device=z.device), z / spread.sqrt()
        first = torch.randint(rows, (members,), generator=rng).to(z.device)
        chosen, nearest = [first], (unit - unit[member, first][:, None]).square().sum(-1)
        for _ in range(1, K):
            pick = torch.multinomial((nearest + 1e-12).cpu(), 1, generator=rng)[:, 0].to(z.device)
            chosen.append(pick)
            nearest = torch.minimum(nearest, (unit - unit[member, pick][:, None]).square().sum(-1))
        self.logits.zero_()
        self.means.copy_(torch.stack([z[member, one] for one in chosen], 1))
        self.log_factors.copy_((-0.5 * (spread / K ** (2 / n)).log()).expand_as(self.log_factors))

    def _improve(self, z: Tensor) -> None:
        """Take a step of EM."""
        (_, rows, n), K, spread = z.shape, self.means.shape[1], _spread(z)
        joint = self(z)
        share = torch.softmax(joint, -1)  # (R, N, K)
        size = share.sum(1)  # (R, K)
        few = (size < 2)[..., None]
        worst = torch.logsumexp(joint, -1).argsort(1)[:, :K]
        safe = size.clamp(min=1e-6)[..., None]
        mean = share.mT @ z / safe
        variance = (share.mT @ z.square() / safe - mean.square()).clamp(min=0) + 1e-3 * spread
        again = z.gather(1, worst[..., None].expand(-1, -1, n))
        self.means.copy_(torch.where(few, again, mean))
        self.log_factors.copy_(-0.5 * torch.where(few, spread / K ** (2 / n), variance).log())
        self.logits.copy_((size.clamp(min=1) / rows).log())

    @torch.no_grad()
    def rescale(self, scale: Tensor, shift: Tensor) -> None:
        """Change z to z scale + shift, both (R, n)."""
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


def _spread(z: Tensor) -> Tensor:
    """Return the variance of each latent (R, 1, n)."""
    return z.var(1, keepdim=True, correction=0).clamp(min=1e-8)


def of_size(mixture: Mixture, components: int) -> Mixture:
    """Return the same law with this many components, no fewer than it has: the heaviest are halved.

    >>> of_size(Mixture([0.8, 0.2], [[0.0], [1.0]], [[1.0], [1.0]]), 4).weights
    array([0.2, 0.2, 0.4, 0.2])
    """
    weights, which = mixture.weights.tolist(), list(range(len(mixture.weights)))
    while len(weights) < components:
        heaviest = int(np.argmax(weights))
        weights[heaviest] /= 2
        weights.append(weights[heaviest])
        which.append(which[heaviest])
    return Mixture(weights, mixture.means[which], mixture.covariances[which])


def _tensor(values: ArrayLike) -> Tensor:
    return torch.as_tensor(np.asarray(values), dtype=torch.float32)
