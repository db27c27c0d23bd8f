"""Log-densities, divergences and draws: pure functions of tensors that broadcast against each other.

Unless said otherwise a function works elementwise and leaves summing over an event's coordinates to the caller, so that
the factorised densities of the papers read as they are written. Every draw is a differentiable function of its
parameters and of noise from `rng` (Kingma & Welling 2014), except `draw_bernoulli` and `draw_categorical`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


def log_normal(x: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """Log N(x; mean, exp(log_scale)²).

    Examples
    --------
    >>> import torch
    >>> log_normal(torch.tensor(0.0), torch.tensor(0.0), torch.tensor(0.0))
    tensor(-0.9189)
    """
    return -0.5 * ((x - mean) * torch.exp(-log_scale)).square() - log_scale - 0.5 * LOG_2PI


def log_laplace(x: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """Log Laplace(x; mean, b) = -|x - mean| / b - log 2b with b = exp(log_scale)."""
    return -(x - mean).abs() * torch.exp(-log_scale) - log_scale - math.log(2)


def log_bernoulli(x: Tensor, logits: Tensor) -> Tensor:
    """X log p + (1 - x) log(1 - p) with p = sigmoid(logits); x may lie anywhere in [0, 1]."""
    return x * F.logsigmoid(logits) + (1 - x) * F.logsigmoid(-logits)


def log_categorical(index: Tensor, logits: Tensor) -> Tensor:
    """Log-probability of class `index` (...) under softmax(logits), logits (..., K)."""
    logits, index = torch.broadcast_tensors(torch.log_softmax(logits, -1), index[..., None])
    return logits.gather(-1, index[..., :1])[..., 0]


def log_discretised_logistic(x: Tensor, mean: Tensor, log_scale: Tensor, *, levels: int = 256) -> Tensor:
    """Log-probability of a pixel x in {0, 1/(levels-1), ..., 1} under a binned logistic density.

    P(x) = σ((x + h - mean)/s) - σ((x - h - mean)/s), h = 1 / (2 (levels - 1)), and the two outer bins reach to ±∞
    (Salimans et al. 2017). Written as σ(a) - σ(b) = σ(a) σ(-b) (1 - e^(b-a)), which does not cancel.
    """
    half = 0.5 / (levels - 1)
    inverse = torch.exp(-log_scale)
    upper, lower = (x + half - mean) * inverse, (x - half - mean) * inverse
    inner = F.logsigmoid(upper) + F.logsigmoid(-lower) + torch.log(-torch.expm1(-2 * half * inverse))
    return torch.where(x < half, F.logsigmoid(upper), torch.where(x > 1 - half, F.logsigmoid(-lower), inner))


def log_mixture(x: Tensor, log_weights: Tensor, means: Tensor, scale_tril: Tensor) -> Tensor:
    """Log Σ_j w_j N(x; μ_j, L_j L_jᵀ): x (..., n), log_weights (..., J), means (..., J, n), scale_tril (..., J, n, n).

    Leading axes broadcast; the result has the shape (...) of x. `log_weights` need not be normalised.

    Examples
    --------
    >>> import torch
    >>> log_mixture(torch.zeros(1, 2), torch.zeros(3), torch.zeros(3, 2), torch.eye(2).expand(3, 2, 2))
    tensor([-1.8379])
    """
    difference = (x[..., None, :] - means)[..., None]
    shape = torch.broadcast_shapes(difference.shape[:-2], scale_tril.shape[:-2])
    white = torch.linalg.solve_triangular(
        scale_tril.expand(*shape, *scale_tril.shape[-2:]), difference.expand(*shape, -1, 1), upper=False
    )
    log_det = torch.diagonal(scale_tril, dim1=-2, dim2=-1).abs().log().sum(-1)
    n = x.shape[-1]
    component = -0.5 * white.square().sum((-2, -1)) - log_det - 0.5 * n * LOG_2PI
    return torch.logsumexp(torch.log_softmax(log_weights, -1) + component, -1)


def log_diagonal_mixture(x: Tensor, log_weights: Tensor, means: Tensor, log_scales: Tensor) -> Tensor:
    """Log Σ_j w_j Π_i N(x_i; μ_ji, exp(log_scales_ji)²): x (..., n), log_weights (..., J), the others (..., J, n)."""
    component = log_normal(x[..., None, :], means, log_scales).sum(-1)
    return torch.logsumexp(torch.log_softmax(log_weights, -1) + component, -1)


def kl_normal(
    mean: Tensor, log_scale: Tensor, other_mean: Tensor | float = 0.0, other_log_scale: Tensor | float = 0.0
) -> Tensor:
    """KL(N(mean, s²) || N(other_mean, t²)) = log t/s + (s² + (mean - other_mean)²) / 2t² - 1/2, elementwise.

    Examples
    --------
    >>> import torch
    >>> kl_normal(torch.tensor(1.0), torch.tensor(0.0))
    tensor(0.5000)
    """
    ratio = log_scale - other_log_scale
    shift = (mean - other_mean) * torch.exp(-torch.as_tensor(other_log_scale))
    return 0.5 * (torch.exp(2 * ratio) + shift.square() - 1) - ratio


def kl_laplace(mean: Tensor, log_scale: Tensor, other_mean: Tensor, other_log_scale: Tensor) -> Tensor:
    """KL between Laplace densities: log c/b + (b e^(-|d|/b) + |d|) / c - 1, d the distance of the means."""
    distance = (mean - other_mean).abs()
    ratio = torch.exp(log_scale - other_log_scale)
    return (
        other_log_scale
        - log_scale
        + ratio * torch.exp(-distance * torch.exp(-log_scale))
        + distance * torch.exp(-other_log_scale)
        - 1
    )


def kl_bernoulli(logits: Tensor, other_logits: Tensor) -> Tensor:
    """KL between Bernoulli laws given by logits, elementwise."""
    p = torch.sigmoid(logits)
    return p * (F.logsigmoid(logits) - F.logsigmoid(other_logits)) + (1 - p) * (
        F.logsigmoid(-logits) - F.logsigmoid(-other_logits)
    )


def kl_categorical(logits: Tensor, other_logits: Tensor) -> Tensor:
    """KL between categorical laws given by logits (..., K), summed over K."""
    log_p, log_q = torch.log_softmax(logits, -1), torch.log_softmax(other_logits, -1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def draw_normal(mean: Tensor, log_scale: Tensor, rng: torch.Generator | None = None) -> Tensor:
    """Mean + exp(log_scale) ε with ε ~ N(0, 1)."""
    mean, log_scale = torch.broadcast_tensors(mean, log_scale)
    noise = torch.randn(mean.shape, generator=rng, dtype=mean.dtype, device=mean.device)
    return mean + torch.exp(log_scale) * noise


def draw_laplace(mean: Tensor, log_scale: Tensor, rng: torch.Generator | None = None) -> Tensor:
    """Mean + exp(log_scale) ε with ε ~ Laplace(0, 1), the difference of two exponential draws."""
    mean, log_scale = torch.broadcast_tensors(mean, log_scale)
    exponential = torch.empty((2, *mean.shape), dtype=mean.dtype, device=mean.device).exponential_(generator=rng)
    return mean + torch.exp(log_scale) * (exponential[0] - exponential[1])


def draw_relaxed_categorical(logits: Tensor, temperature: float, rng: torch.Generator | None = None) -> Tensor:
    """softmax((logits + Gumbel noise) / temperature): a point of the simplex, (..., K) (Jang et al. 2017)."""
    # -log of an exponential draw is a Gumbel draw.
    gumbel = -torch.empty_like(logits).exponential_(generator=rng).log()
    return torch.softmax((logits + gumbel) / temperature, -1)


def draw_mixture(
    size: int, log_weights: Tensor, means: Tensor, scale_tril: Tensor, rng: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Return `size` draws (size, n) of a Gaussian mixture and the components (size,) they came from.

    log_weights (J,), means (J, n), scale_tril (J, n, n). Given the components, the draws are reparameterised.
    """
    component = draw_categorical(log_weights.expand(size, -1), rng)
    noise = torch.randn((size, means.shape[-1], 1), generator=rng, dtype=means.dtype, device=means.device)
    return means[component] + (scale_tril[component] @ noise)[..., 0], component


def draw_bernoulli(logits: Tensor, rng: torch.Generator | None = None) -> Tensor:
    """0 or 1 with probability sigmoid(logits) of 1; no gradient."""
    return torch.bernoulli(torch.sigmoid(logits.detach()), generator=rng)


def draw_categorical(logits: Tensor, rng: torch.Generator | None = None) -> Tensor:
    """Class indices (...) drawn from softmax(logits), logits (..., K); no gradient."""
    gumbel = -torch.empty_like(logits.detach()).exponential_(generator=rng).log()
    return (logits.detach() + gumbel).argmax(-1)
