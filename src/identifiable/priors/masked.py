"""Gaussian mixtures as densities of latents, evaluated by one quadratic form per component.

- `MaskedGaussians`: latents that are often inactive, t = m ⊙ v + e ε with a mask m of active latents, v ~ N(μ, C) with
  unit variances, and ε ~ N(0, I): the potentially degenerate mixture Σ_j w_j N(t; M_j μ, M_j C M_j + e² I).
- `FullGaussians`: a mixture of full rank, Σ_j w_j N(t; m_j, S_j).

`mine_masks` finds the masks M_j. The variances of v are fixed at one for the reason given in `spike_slab`. A width e is
a scalar, or (R, 1): one per member.
"""

import torch
from torch import Tensor, nn

from identifiable.distributions.densities import LOG_2PI
from identifiable.priors.quadratic import joint, log_mixture, upper_triangle

LARGEST_CORRELATION = 0.92  # estimates of correlations between latents are clipped here
LEAST_EIGENVALUE = 0.1  # of C: keeps the density bounded while the latents still change
MOST_DISTINCT = 4000  # patterns that are clustered, the most frequent ones
SMALLEST_CLUSTER = 0.0005  # share of rows that makes a cluster of patterns
BERNOULLI_STEPS = 20  # steps of EM for a mixture of Bernoulli distributions
RIDGE = 1e-3  # added to the variances of a full mixture
NEW_WEIGHT = 0.3  # weight of the newest batch in w and C


class _Gaussians(nn.Module):
    """Log Σ_j w_j N(t; m_j, S_j), from P_j = S_j^-1 (upper triangles), P_j m_j and constants."""

    def natural(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return P (R, J, n (n + 1) / 2), P m (R, J, n) and log w - ½ log det S - ½ mᵀ P m (R, J, 1)."""
        raise NotImplementedError

    def components(self, t: Tensor) -> Tensor:
        """Return log w_j N(t; m_j, S_j) up to a constant, (R, B, J)."""
        return joint(upper_triangle(t.shape[-1], t.device), t.mT, *self.natural()).mT

    def forward(self, t: Tensor, e: Tensor) -> Tensor:
        """Return the log-density (R, B) of t (R, B, n). The width e is not used: `set_width` sets it."""
        n = t.shape[-1]
        return log_mixture(upper_triangle(n, t.device), t.mT, *self.natural()) - 0.5 * n * LOG_2PI


class MaskedGaussians(_Gaussians):
    """Log Σ_j w_j N(t; M_j μ, M_j C M_j + e² I): masks (R, J, n) are given, μ is learnt, w and C follow the latents."""

    masks: Tensor
    log_weights: Tensor
    correlations: Tensor
    precisions: Tensor  # P_j, (R, J, n, n)
    halves: Tensor  # their upper triangles, (R, J, n (n + 1) / 2)
    constants: Tensor

    def __init__(self, masks: Tensor, log_weights: Tensor, means: Tensor) -> None:
        super().__init__()
        members, J, n = masks.shape
        self.means = nn.Parameter(means.detach().clone())  # (R, 1, n)
        self.register_buffer("masks", masks)
        self.register_buffer("log_weights", log_weights)
        self.register_buffer("correlations", torch.eye(n, device=masks.device).repeat(members, 1, 1))
        for name, shape in (("precisions", (J, n, n)), ("halves", (J, n * (n + 1) // 2)), ("constants", (1, J))):
            self.register_buffer(name, torch.zeros(members, *shape, device=masks.device))

    def natural(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return P, P m and the constants for the means m_j = M_j μ."""
        means = self.masks * self.means
        linear = (self.precisions @ means[..., None])[..., 0]
        constants = self.constants.mT - 0.5 * (linear * means).sum(-1, keepdim=True)
        return self.halves, linear, constants

    @torch.no_grad()
    def set_width(self, e: Tensor) -> None:
        """Set the width to e, and recompute the precisions."""
        n = self.means.shape[-1]
        masked = self.correlations[:, None] * self.masks[..., :, None] * self.masks[..., None, :]
        factor = torch.linalg.cholesky(masked + e.square()[..., None, None] * torch.eye(n, device=masked.device))
        self.precisions.copy_(torch.cholesky_inverse(factor))
        self.halves.copy_(upper_triangle(n, masked.device).pack(self.precisions))
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        self.constants.copy_((self.log_weights - log_det)[:, None])

    @torch.no_grad()
    def follow(self, t: Tensor, e: Tensor) -> None:
        """Move w and C a step towards their estimates from t (R, B, n), and set the width to e."""
        n = t.shape[-1]
        components = self.components(t)
        shares = torch.softmax(components, -1).mean(1) + 1e-6
        self.log_weights.copy_(((1 - NEW_WEIGHT) * self.log_weights.exp() + NEW_WEIGHT * shares).log())
        best = components.argmax(-1)[..., None].expand(-1, -1, n)
        active = torch.gather(self.masks, 1, best)
        values = active * (t - self.means).clamp(-4, 4)
        squares = (values.square().mT @ active).clamp(min=1e-6)  # of i while k is active too
        new = (values.mT @ values / (squares * squares.mT).sqrt()).clamp(-LARGEST_CORRELATION, LARGEST_CORRELATION)
        new.diagonal(dim1=1, dim2=2).fill_(1.0)
        mixed = (1 - NEW_WEIGHT) * self.correlations + NEW_WEIGHT * new
        spectrum, vectors = (v.to(mixed) for v in torch.linalg.eigh(0.5 * (mixed + mixed.mT).cpu()))  # slow on a GPU
        mixed = (vectors * spectrum.clamp(min=LEAST_EIGENVALUE)[:, None]) @ vectors.mT
        scale = mixed.diagonal(dim1=1, dim2=2).sqrt()
        self.correlations.copy_(mixed / (scale[:, :, None] * scale[:, None]))
        self.set_width(e)


class FullGaussians(_Gaussians):
    """Log Σ_j w_j N(t; m_j, S_j): weights, means and covariances follow the latents, by steps of EM."""

    masks: Tensor
    log_weights: Tensor
    centres: Tensor
    covariances: Tensor
    precisions: Tensor  # upper triangles, (R, J, n (n + 1) / 2)
    pulled: Tensor  # P_j m_j, (R, J, n)
    constants: Tensor

    def __init__(self, log_weights: Tensor, centres: Tensor, covariances: Tensor) -> None:
        super().__init__()
        members, J, n = centres.shape
        self.register_buffer("masks", torch.ones_like(centres))
        self.register_buffer("log_weights", log_weights)
        self.register_buffer("centres", centres)
        self.register_buffer("covariances", covariances)
        self.register_buffer("precisions", centres.new_zeros(members, J, n * (n + 1) // 2))
        self.register_buffer("pulled", torch.zeros_like(centres))
        self.register_buffer("constants", centres.new_zeros(members, 1, J))
        self._update_natural()

    def natural(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return P, P m and the constants."""
        return self.precisions, self.pulled, self.constants.mT

    @torch.no_grad()
    def follow(self, t: Tensor, e: Tensor) -> None:
        """Take one step of EM towards the rows t (R, N, n)."""
        posterior = torch.softmax(self.components(t), -1)
        mass = posterior.sum(1)[..., None] + 1e-3
        self.log_weights.copy_((mass[..., 0] / mass.sum(1)).log())
        self.centres.copy_(posterior.mT @ t / mass)
        for j in range(posterior.shape[-1]):
            centred = t - self.centres[:, j, None]
            scatter = (centred * posterior[..., j, None]).mT @ centred
            self.covariances[:, j] = scatter / mass[:, j, None] + RIDGE * torch.eye(t.shape[-1], device=t.device)
        self._update_natural()

    def _update_natural(self) -> None:
        n = self.centres.shape[-1]
        factor = torch.linalg.cholesky(self.covariances)
        precisions = torch.cholesky_inverse(factor)
        self.precisions.copy_(upper_triangle(n, precisions.device).pack(precisions))
        self.pulled.copy_((precisions @ self.centres[..., None])[..., 0])
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        square = 0.5 * (self.pulled * self.centres).sum(-1)
        self.constants.copy_((self.log_weights - log_det - square)[:, None])


def mine_masks(active: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return the most frequent patterns of active latents (R, N, n) as masks (R, J, n) and log-weights, J <= most.

    With many latents few rows show their pattern without an error: patterns that differ in few latents are merged, and
    a mixture of Bernoulli distributions that starts from them gives the active latents of each. Members with fewer than
    J patterns are filled up with full masks of weight zero.
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

    EM starts at the given patterns and counts. Patterns of very few rows are dropped, and equal ones merged.
    """
    rows = active.to(torch.float32)
    pi, mass = torch.where(patterns, 0.85, 0.15), counts.to(torch.float32)
    for _ in range(BERNOULLI_STEPS):
        logits = (mass / mass.sum()).log() + rows @ (pi / (1 - pi)).log().T + (1 - pi).log().sum(1)
        posterior = torch.softmax(logits, 1)
        mass = posterior.sum(0) + 1e-9
        pi = ((posterior.T @ rows + 0.5) / (mass[:, None] + 1)).clamp(0.03, 0.97)
    frequent = mass >= SMALLEST_CLUSTER * len(rows)
    if not bool(frequent.any()):
        return patterns, counts
    patterns, which = torch.unique(pi[frequent] > 0.5, dim=0, return_inverse=True)
    return patterns, torch.zeros(len(patterns), device=rows.device).index_add_(0, which, mass[frequent])


def _cluster(active: Tensor, radius: int, most: int) -> tuple[Tensor, Tensor]:
    """Return the patterns (J, n) of rows (N, n), J <= most, the most frequent first, and their counts (J,).

    Greedy: all rows within the radius of the pattern with the most such rows form a cluster, represented by the
    majority of its rows in each column.
    """
    patterns, counts = torch.unique(active, dim=0, return_counts=True)
    order = counts.argsort(descending=True, stable=True)
    if radius == 0:
        return patterns[order[:most]], counts[order[:most]]
    order = order[:MOST_DISTINCT]
    patterns, counts = patterns[order].float(), counts[order].float()
    ones = patterns.sum(1)
    near = (ones[:, None] + ones - 2 * patterns @ patterns.T <= radius).float()
    remaining = counts.clone()
    found: list[Tensor] = []
    sizes: list[Tensor] = []
    while len(found) < most and bool(remaining.any()):
        within = near @ remaining
        best = int(within.argmax())
        own = near[best] * remaining
        if float(within[best]) < max(2.0, SMALLEST_CLUSTER * float(counts.sum())):
            break
        found.append(own @ patterns / own.sum() > 0.5)
        sizes.append(within[best])
        remaining = remaining * (1 - near[best])
    if not found:
        return patterns[:most] > 0.5, counts[:most]
    return torch.stack(found), torch.stack(sizes)
