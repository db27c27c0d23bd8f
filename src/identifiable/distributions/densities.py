"""Log-densities, divergences and samples: pure functions of tensors that broadcast against each other.

Unless stated otherwise a function works elementwise and leaves the sum over coordinates to the caller, so that the
factorised densities of the papers read as they are written.
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


def log_discretised_logistic(x: Tensor, mean: Tensor, log_scale: Tensor, *, levels: int = 256) -> Tensor:
    """Log-probability of a pixel x in {0, 1/(levels-1), ..., 1} under a binned logistic density.

    P(x) = σ((x + h - mean)/s) - σ((x - h - mean)/s), h = 1 / (2 (levels - 1)), and the two outer bins extend to ±∞
    (Salimans et al. 2017). Computed as σ(a) - σ(b) = σ(a) σ(-b) (1 - e^(b-a)), which avoids cancellation.
    """
    half = 0.5 / (levels - 1)
    inverse = torch.exp(-log_scale)
    upper, lower = (x + half - mean) * inverse, (x - half - mean) * inverse
    inner = F.logsigmoid(upper) + F.logsigmoid(-lower) + torch.log(-torch.expm1(-2 * half * inverse))
    return torch.where(x < half, F.logsigmoid(upper), torch.where(x > 1 - half, F.logsigmoid(-lower), inner))


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


def kl_categorical(logits: Tensor, other_logits: Tensor) -> Tensor:
    """KL between categorical distributions given by logits (..., K), summed over K."""
    log_p, log_q = torch.log_softmax(logits, -1), torch.log_softmax(other_logits, -1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def draw_relaxed_categorical(logits: Tensor, temperature: float, rng: torch.Generator | None = None) -> Tensor:
    """softmax((logits + Gumbel noise) / temperature): a point of the simplex, (..., K) (Jang et al. 2017).

    The sample is a differentiable function of the logits; the noise comes from `rng`.
    """
    gumbel = -torch.empty_like(logits).exponential_(generator=rng).log()  # -log of an exponential variable is Gumbel
    return torch.softmax((logits + gumbel) / temperature, -1)
