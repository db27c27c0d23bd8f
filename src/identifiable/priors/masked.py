r"""Densities of latents: of those that are often at rest, smoothed at a width e, and of those that never are.

The first two describe t = m ⊙ v + e ε: a mask m of active latents, v ~ N(μ, C) with unit variances, ε ~ N(0, I).

- `SpikeAndSlab`: independent masks and values,  Π_i [p_i N(t_i; μ_i, 1) + (1 - p_i) N(t_i; 0, e²)].
- `ShapedSlabs`: the same with values of any law,  Π_i [p_i q_i(t_i - μ_i) + (1 - p_i) N(t_i; 0, e²)].
- `MaskedGaussians`: the potentially degenerate mixture itself,  Σ_j w_j N(t; M_j μ, M_j C M_j + e² I), for given masks.
- `FullGaussians`: a mixture of full rank, Σ_j w_j N(t; m_j, S_j).

The variances of v are fixed at one: a free slab beside a fixed spike would make the likelihood unbounded, since the
whole map could grow. A width e is a scalar, or (R, 1): one per member.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from identifiable.distributions.densities import LOG_2PI

LARGEST_CORRELATION = 0.92  # between latents, as far as the prior believes it
LEAST_EIGENVALUE = 0.1  # of C: keeps the density bounded while the latents still change
LOOKED_AT, LEAST_CLUSTER = 4000, 0.0005  # patterns that are clustered, and the share of rows that makes a cluster
PARTS, NARROWEST_PART = 4, 0.25  # Gaussians of a shaped slab, and how narrow they may be before the slab is scaled
BERNOULLI_STEPS = 20  # of EM
RIDGE = 1e-3  # added to the variances of a full mixture
FORGETTING = 0.3  # weight of the newest batch in w and C


def softplus(w: Tensor) -> Tensor:
    """Return log(1 + e^w); many times faster than torch's on a CPU, exact to e^-30."""
    bounded = w.clamp(min=-30.0)
    return bounded - torch.sigmoid(bounded).log()


class SpikeAndSlab(nn.Module):
    """Σ_i log[p_i N(t_i; μ_i, 1) + (1 - p_i) N(t_i; 0, e²)]."""

    def __init__(self, shares: Tensor, means: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.logit(shares)[:, None])  # (R, 1, n)
        self.means = nn.Parameter(means.clone()[:, None])

    def forward(self, t: Tensor, e: Tensor) -> Tensor:
        """Return the log-density (R, B) of t (R, B, n)."""
        slab = -0.5 * (t - self.means).square()
        spike = -0.5 * (t / e[..., None]).square() - e.log()[..., None]
        value = (slab + softplus(spike - slab - self.logits) + logsigmoid(self.logits)).sum(-1)
        return value - 0.5 * t.shape[-1] * LOG_2PI


class ShapedSlabs(SpikeAndSlab):
    """Σ_i log[p_i q_i(t_i - μ_i) + (1 - p_i) N(t_i; 0, e²)], q_i a mixture of Gaussians with mean 0 and variance 1."""

    def __init__(self, shares: Tensor, means: Tensor) -> None:
        super().__init__(shares, means)
        members, n = shares.shape
        self.log_shares = nn.Parameter(torch.zeros(members, 1, n, PARTS))
        self.places = nn.Parameter(torch.linspace(-0.5, 0.5, PARTS).repeat(members, 1, n, 1))
        self.raw_widths = nn.Parameter(torch.zeros(members, 1, n, PARTS))

    def forward(self, t: Tensor, e: Tensor) -> Tensor:
        """Return the log-density (R, B) of t (R, B, n)."""
        shares, widths = torch.softmax(self.log_shares, -1), NARROWEST_PART + softplus(self.raw_widths)
        off = self.places - (shares * self.places).sum(-1, keepdim=True)
        size = (shares * (widths.square() + off.square())).sum(-1, keepdim=True).sqrt()
        u = ((t - self.means)[..., None] - off / size) / (widths / size)
        slab = torch.logsumexp((shares * size / widths).log() - 0.5 * u.square(), -1)
        spike = -0.5 * (t / e[..., None]).square() - e.log()[..., None]
        value = torch.logaddexp(slab + logsigmoid(self.logits), spike + logsigmoid(-self.logits)).sum(-1)
        return value - 0.5 * t.shape[-1] * LOG_2PI


class _Halves:
    """The entries i <= k of symmetric n x n matrices, and where each entry of the whole is among them."""

    def __init__(self, n: int, device: torch.device) -> None:
        self.n = n
        self.i, self.k = torch.triu_indices(n, n, device=device)
        self.place = torch.empty(n, n, dtype=torch.long, device=device)
        self.place[self.i, self.k] = self.place[self.k, self.i] = torch.arange(len(self.i), device=device)

    def half(self, P: Tensor) -> Tensor:
        """Return (..., m) of P (..., n, n)."""
        return P[..., self.i, self.k]

    def logits(self, t: Tensor, half: Tensor, pulled: Tensor, constants: Tensor) -> Tensor:
        """Return c_j - ½ tᵀ P_j t + v_jᵀ t, (R, B, J), for t (R, B, n), halves (R, J, m), v (R, J, n), c (R, 1, J)."""
        columns = t.mT.contiguous()  # with the batch last whole rows are copied, not single numbers
        share = torch.where(self.i == self.k, 0.5, 1.0).to(t.dtype)[:, None]
        products = columns.index_select(1, self.i).mul_(share).mul_(columns.index_select(1, self.k))
        return torch.baddbmm(torch.baddbmm(constants, t, pulled.mT), products.mT, half.mT, alpha=-1)

    def pull(self, r: Tensor, half: Tensor, t: Tensor) -> Tensor:
        """Return Σ_j r_j P_j t, (R, B, n), for r (R, B, J)."""
        mixed = torch.bmm(half.mT, r.mT).index_select(1, self.place.flatten())
        return (mixed.reshape(-1, self.n, self.n, t.shape[1]) * t.mT[:, None]).sum(2).mT


@cache
def _halves(n: int, device: torch.device) -> _Halves:
    return _Halves(n, device)


class _LogMixture(torch.autograd.Function):
    """Log Σ_j exp(c_j - ½ tᵀ P_j t + v_jᵀ t), (R, B), with the gradient written by hand; none for P.

    With the posterior r_j,  dt = Σ_j r_j (v_j - P_j t),  dv_j = Σ_B r_j t,  dc_j = Σ_B r_j.
    """

    @staticmethod
    def forward(ctx: Any, t: Tensor, half: Tensor, pulled: Tensor, constants: Tensor, halves: _Halves) -> Tensor:
        logits = halves.logits(t, half, pulled, constants)
        most = logits.amax(-1, keepdim=True)
        posterior = logits.sub_(most).clamp_(min=-40.0).exp_()  # far smaller ones would be denormal, and slow
        total = posterior.sum(-1, keepdim=True)
        ctx.save_for_backward(t, half, pulled, posterior.div_(total))
        ctx.halves = halves
        return (total.log() + most)[..., 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, Tensor, Tensor, None]:
        t, half, pulled, posterior = ctx.saved_tensors
        r = posterior * g[..., None]
        dt = torch.bmm(r, pulled) - ctx.halves.pull(r, half, t)
        return dt, None, torch.bmm(r.mT, t), r.sum(1, keepdim=True), None


class MaskedGaussians(nn.Module):
    """Log Σ_j w_j N(t; M_j μ, M_j C M_j + e² I): masks (R, J, n) are given, μ is learnt, w and C follow the latents."""

    masks: Tensor
    log_weights: Tensor
    correlations: Tensor
    precisions: Tensor  # P_j, (R, J, n, n)
    halves: Tensor  # their upper halves, (R, J, n (n + 1) / 2)
    constants: Tensor

    def __init__(self, masks: Tensor, log_weights: Tensor, means: Tensor) -> None:
        super().__init__()
        members, J, n = masks.shape
        self.means = nn.Parameter(means.detach().clone())  # (R, 1, n)
        eye = torch.eye(n, device=masks.device).expand(members, n, n)
        for name, value in (
            ("masks", masks),
            ("log_weights", log_weights),
            ("correlations", eye.clone()),
            ("precisions", torch.zeros(members, J, n, n, device=masks.device)),
            ("halves", torch.zeros(members, J, n * (n + 1) // 2, device=masks.device)),
            ("constants", torch.zeros(members, 1, J, device=masks.device)),
        ):
            self.register_buffer(name, value)

    def components(self, t: Tensor) -> Tensor:
        """Return log w_j N(t; ...) up to a constant, (R, B, J)."""
        constants, pulled = self._linear_part()
        return self._halves.logits(t, self.halves, pulled, constants)

    @property
    def _halves(self) -> _Halves:
        return _halves(self.means.shape[-1], self.means.device)

    def _linear_part(self) -> tuple[Tensor, Tensor]:
        """Return log w_j - ½ log det - ½ m_jᵀ P_j m_j, (R, 1, J), and P_j m_j, (R, J, n), for means m_j."""
        means = self.masks * self.means
        pulled = (self.precisions @ means[..., None])[..., 0]
        return self.constants - 0.5 * (pulled * means).sum(-1)[:, None], pulled

    def forward(self, t: Tensor, e: Tensor) -> Tensor:
        """Return the log-density (R, B) of t (R, B, n), at the width last set: e is for the eye."""
        constants, pulled = self._linear_part()
        value: Tensor = _LogMixture.apply(  # type: ignore[no-untyped-call]
            t, self.halves, pulled, constants, self._halves
        )
        return value - 0.5 * t.shape[-1] * LOG_2PI

    @torch.no_grad()
    def set_width(self, e: Tensor) -> None:
        """Take e as the width: recompute the precisions."""
        n = self.means.shape[-1]
        masked = self.correlations[:, None] * self.masks[..., :, None] * self.masks[..., None, :]
        factor = torch.linalg.cholesky(masked + e.square()[..., None, None] * torch.eye(n, device=masked.device))
        self.precisions.copy_(torch.cholesky_inverse(factor))
        self.halves.copy_(self._halves.half(self.precisions))
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        self.constants.copy_((self.log_weights - log_det)[:, None])

    @torch.no_grad()
    def follow(self, t: Tensor, e: Tensor) -> None:
        """Move w and C a step towards what t (R, B, n) shows of them, and take e as the width."""
        n = t.shape[-1]
        components = self.components(t)
        shares = torch.softmax(components, -1).mean(1) + 1e-6
        self.log_weights.copy_(((1 - FORGETTING) * self.log_weights.exp() + FORGETTING * shares).log())
        best = components.argmax(-1)[..., None].expand(-1, -1, n)
        active = torch.gather(self.masks, 1, best)
        values = active * (t - self.means).clamp(-4, 4)
        both = (values.square().mT @ active).clamp(min=1e-6)  # of i while k is active too
        seen = (values.mT @ values / (both * both.mT).sqrt()).clamp(-LARGEST_CORRELATION, LARGEST_CORRELATION)
        seen.diagonal(dim1=1, dim2=2).fill_(1.0)
        mixed = (1 - FORGETTING) * self.correlations + FORGETTING * seen
        spectrum, vectors = torch.linalg.eigh(0.5 * (mixed + mixed.mT))
        mixed = (vectors * spectrum.clamp(min=LEAST_EIGENVALUE)[:, None]) @ vectors.mT
        scale = mixed.diagonal(dim1=1, dim2=2).sqrt()
        self.correlations.copy_(mixed / (scale[:, :, None] * scale[:, None]))
        self.set_width(e)


class FullGaussians(nn.Module):
    """Log Σ_j w_j N(t; m_j, S_j): all of it follows the latents, by steps of EM."""

    masks: Tensor
    log_weights: Tensor
    centres: Tensor
    covariances: Tensor
    precisions: Tensor
    pulled: Tensor
    constants: Tensor

    def __init__(self, log_weights: Tensor, centres: Tensor, covariances: Tensor) -> None:
        super().__init__()
        members, J, n = centres.shape
        for name, value in (
            ("masks", torch.ones_like(centres)),
            ("log_weights", log_weights),
            ("centres", centres),
            ("covariances", covariances),
            ("precisions", centres.new_zeros(members, J, n * (n + 1) // 2)),
            ("pulled", torch.zeros_like(centres)),
            ("constants", centres.new_zeros(members, 1, J)),
        ):
            self.register_buffer(name, value)
        self._take_in()

    def components(self, t: Tensor) -> Tensor:
        """Return log w_j N(t; ...) up to a constant, (R, B, J)."""
        return _halves(t.shape[-1], t.device).logits(t, self.precisions, self.pulled, self.constants)

    def forward(self, t: Tensor, e: Tensor) -> Tensor:
        """Return the log-density (R, B) of t (R, B, n); it has no width e."""
        halves = _halves(t.shape[-1], t.device)
        value: Tensor = _LogMixture.apply(  # type: ignore[no-untyped-call]
            t, self.precisions, self.pulled, self.constants, halves
        )
        return value - 0.5 * t.shape[-1] * LOG_2PI

    @torch.no_grad()
    def follow(self, t: Tensor, e: Tensor) -> None:
        """Take one step of EM towards the rows t (R, N, n)."""
        posterior = torch.softmax(self.components(t), -1)
        mass = posterior.sum(1)[..., None] + 1e-3
        self.log_weights.copy_((mass[..., 0] / mass.sum(1)).log())
        self.centres.copy_(posterior.mT @ t / mass)
        for j in range(posterior.shape[-1]):
            off = t - self.centres[:, j, None]
            scatter = (off * posterior[..., j, None]).mT @ off
            self.covariances[:, j] = scatter / mass[:, j, None] + RIDGE * torch.eye(t.shape[-1], device=t.device)
        self._take_in()

    def _take_in(self) -> None:
        n = self.centres.shape[-1]
        factor = torch.linalg.cholesky(self.covariances)
        precisions = torch.cholesky_inverse(factor)
        self.precisions.copy_(_halves(n, precisions.device).half(precisions))
        self.pulled.copy_((precisions @ self.centres[..., None])[..., 0])
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        square = 0.5 * (self.pulled * self.centres).sum(-1)
        self.constants.copy_((self.log_weights - log_det - square)[:, None])


def mine_masks(active: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return frequent patterns of which latents are active (R, N, n), at most so many: masks (R, J, n), log-weights.

    With many latents hardly a row shows its pattern without a mistake: patterns that differ in few latents are one, and
    a mixture of Bernoulli laws, fitted from these on, says which latents are active in it. Members with fewer than J
    patterns are filled up with full masks of no weight.
    """
    members, _, n = active.shape
    found = [_cluster(rows, max(0, (n - 10) // 5), most) for rows in active]
    if n > 10:
        found = [_bernoulli_mixture(rows, *clusters) for rows, clusters in zip(active, found, strict=True)]
    J = max(len(patterns) for patterns, _ in found)
    masks = torch.ones(members, J, n, device=active.device)
    weights = torch.full((members, J), 1e-9, device=active.device)
    for r, (patterns, counts) in enumerate(found):
        masks[r, : len(counts)] = patterns.to(masks.dtype)
        weights[r, : len(counts)] = counts / counts.sum()
    return masks, weights.log()


def _bernoulli_mixture(active: Tensor, patterns: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Fit Σ_j w_j Π_i π_ji^{a_i} (1 - π_ji)^{1 - a_i} to rows a (N, n) by EM; return π > ½ (J, n) and N w (J,).

    It starts at the given patterns and counts. Patterns of hardly any rows are left out, equal ones are one.
    """
    rows = active.to(torch.float32)
    pi, mass = torch.where(patterns, 0.85, 0.15), counts.to(torch.float32)
    for _ in range(BERNOULLI_STEPS):
        logits = (mass / mass.sum()).log() + rows @ (pi / (1 - pi)).log().T + (1 - pi).log().sum(1)
        posterior = torch.softmax(logits, 1)
        mass = posterior.sum(0) + 1e-9
        pi = ((posterior.T @ rows + 0.5) / (mass[:, None] + 1)).clamp(0.03, 0.97)
    seen = mass >= LEAST_CLUSTER * len(rows)
    if not bool(seen.any()):
        return patterns, counts
    patterns, place = torch.unique(pi[seen] > 0.5, dim=0, return_inverse=True)
    return patterns, torch.zeros(len(patterns), device=rows.device).index_add_(0, place, mass[seen])


def _cluster(active: Tensor, radius: int, most: int) -> tuple[Tensor, Tensor]:
    """Return at most so many patterns (J, n) of rows (N, n), most frequent first, and their counts (J,).

    Greedy: the pattern with the most rows within the radius takes them all, and becomes what most of them show.
    """
    patterns, counts = torch.unique(active, dim=0, return_counts=True)
    order = counts.argsort(descending=True, stable=True)
    if radius == 0:
        return patterns[order[:most]], counts[order[:most]]
    order = order[:LOOKED_AT]
    patterns, counts = patterns[order].float(), counts[order].float()
    ones = patterns.sum(1)
    near = (ones[:, None] + ones - 2 * patterns @ patterns.T <= radius).float()
    left = counts.clone()
    found: list[Tensor] = []
    sizes: list[Tensor] = []
    while len(found) < most and bool(left.any()):
        around = near @ left
        best = int(around.argmax())
        own = near[best] * left
        if float(around[best]) < max(2.0, LEAST_CLUSTER * float(counts.sum())):
            break
        found.append(own @ patterns / own.sum() > 0.5)
        sizes.append(around[best])
        left = left * (1 - near[best])
    if not found:
        return patterns[:most] > 0.5, counts[:most]
    return torch.stack(found), torch.stack(sizes)
