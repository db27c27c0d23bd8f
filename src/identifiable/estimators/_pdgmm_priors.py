r"""Two densities of latents that are often at rest, smoothed at a width e; batched over members.

Both describe t = m ⊙ v + e ε: a mask m of active latents, v ~ N(μ, C) with unit variances, ε ~ N(0, I).

- `SpikeAndSlab`: independent masks and values,  Π_i [p_i N(t_i; μ_i, 1) + (1 - p_i) N(t_i; 0, e²)].
- `MaskedGaussians`: the potentially degenerate mixture itself,  Σ_j w_j N(t; M_j μ, M_j C M_j + e² I), for given masks.

The variances of v are fixed at one: a free slab beside a fixed spike would make the likelihood unbounded, since the
whole map could grow. A width e is a scalar, or (R, 1): one per member.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from identifiable.densities import LOG_2PI

LARGEST_CORRELATION = 0.92  # between latents, as far as the prior believes it
LEAST_EIGENVALUE = 0.1  # of C: keeps the density bounded while the latents still change
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
        """Return the log-density (R, B) of t (R, B, m): the first n as above, the rest N(0, e²)."""
        n = self.means.shape[-1]
        latent, surplus = t[..., :n], t[..., n:]
        slab = -0.5 * (latent - self.means).square()
        spike = -0.5 * (latent / e[..., None]).square() - e.log()[..., None]
        value = (slab + softplus(spike - slab - self.logits) + logsigmoid(self.logits)).sum(-1)
        value = value - 0.5 * (surplus / e[..., None]).square().sum(-1) - surplus.shape[-1] * e.log()
        return value - 0.5 * t.shape[-1] * LOG_2PI


class MaskedGaussians(nn.Module):
    """Log Σ_j w_j N(t; M_j μ, M_j C M_j + e² I): masks (R, J, n) are given, μ is learnt, w and C follow the latents."""

    masks: Tensor
    log_weights: Tensor
    correlations: Tensor
    precisions: Tensor
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
            ("constants", torch.zeros(members, 1, J, device=masks.device)),
        ):
            self.register_buffer(name, value)

    def components(self, t: Tensor) -> Tensor:
        """Return log w_j N(t; ...) up to a constant, (R, B, J)."""
        means = self.masks * self.means
        pulled = (self.precisions @ means[..., None])[..., 0]
        squares = (t[..., :, None] * t[..., None, :]).flatten(2) @ self.precisions.flatten(2).mT
        return self.constants - 0.5 * squares + t @ pulled.mT - 0.5 * (pulled * means).sum(-1)[:, None]

    def forward(self, t: Tensor, e: Tensor) -> Tensor:
        """Return the log-density (R, B) of t (R, B, m), coordinates beyond n under N(0, e²)."""
        n = self.means.shape[-1]
        surplus = t[..., n:]
        value = torch.logsumexp(self.components(t[..., :n]), -1) - 0.5 * (surplus / e[..., None]).square().sum(-1)
        return value - surplus.shape[-1] * e.log() - 0.5 * t.shape[-1] * LOG_2PI

    @torch.no_grad()
    def set_width(self, e: Tensor) -> None:
        """Take e as the width: recompute the precisions."""
        n = self.means.shape[-1]
        masked = self.correlations[:, None] * self.masks[..., :, None] * self.masks[..., None, :]
        factor = torch.linalg.cholesky(masked + e.square()[..., None, None] * torch.eye(n, device=masked.device))
        self.precisions.copy_(torch.cholesky_inverse(factor))
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        self.constants.copy_((self.log_weights - log_det)[:, None])

    @torch.no_grad()
    def follow(self, t: Tensor, e: Tensor) -> None:
        """Move w and C a step towards what t (R, B, n) shows of them, and take e as the width."""
        n = self.means.shape[-1]
        t = t[..., :n]
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


def mine_masks(t: Tensor, threshold: float, most: int) -> tuple[Tensor, Tensor]:
    """Return the most frequent patterns |t| > threshold of latents t (R, N, n): masks (R, J, n), log-weights (R, J).

    Members with fewer than J patterns are filled up with full masks of no weight.
    """
    members, _, n = t.shape
    found = [torch.unique(row.abs() > threshold, dim=0, return_counts=True) for row in t]
    J = min(most, max(len(counts) for _, counts in found))
    masks = torch.ones(members, J, n, device=t.device)
    weights = torch.full((members, J), 1e-9, device=t.device)
    for r, (patterns, counts) in enumerate(found):
        order = counts.argsort(descending=True, stable=True)[:J]
        masks[r, : len(order)] = patterns[order].to(masks.dtype)
        weights[r, : len(order)] = counts[order] / counts[order].sum()
    return masks, weights.log()
