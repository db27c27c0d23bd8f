"""The nets of `IVAE`: an encoder of what x says of z, a decoder, and the posterior that encoder and prior make."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from identifiable.densities import LOG_2PI, log_bernoulli, log_normal
from identifiable.estimators._given_u import PriorGivenU
from identifiable.nets import MLP, Linear

LOG_NOISE_FLOOR = math.log(1e-3)  # of the decoder, in units of a column's standard deviation


@dataclass(frozen=True)
class Posterior:
    """q(z | x, u), Gaussian: z = mean + sd (ε + B ε), B strictly lower triangular (R, B, n, n), or None for 0."""

    mean: Tensor
    log_sd: Tensor  # (R, B, n), of ε itself
    below: Tensor | None

    def at(self, noise: Tensor) -> Tensor:
        """Return the draw that noise ε (R, B, n) makes."""
        mixed = noise if self.below is None else noise + (self.below @ noise[..., None])[..., 0]
        return self.mean + self.log_sd.exp() * mixed

    @property
    def variance(self) -> Tensor:
        """Of each latent, (R, B, n)."""
        own = torch.exp(2 * self.log_sd)
        return own if self.below is None else own * (1 + self.below.square().sum(-1))

    @property
    def entropy(self) -> Tensor:
        """Of all latents together, (R, B)."""
        return self.log_sd.sum(-1) + 0.5 * (1 + LOG_2PI) * self.mean.shape[-1]


class Nets(nn.Module):
    """Encoder, decoder, their linear parts, the decoder's noise and the prior; R members."""

    def __init__(
        self,
        members: int,
        inputs: int,
        hidden: Sequence[int],
        prior: PriorGivenU,
        *,
        full: bool,
        likelihood: str,
        levels: Sequence[int],
        activation: str,
        rng: torch.Generator | None,
    ) -> None:
        super().__init__()
        n = prior.n
        self.n, self.full, self.likelihood, self.levels, self.prior = n, full, likelihood, tuple(levels), prior
        outputs = 2 * n + (n * n if full else 0)
        columns = sum(levels) if likelihood == "categorical" else inputs
        self.encoder = MLP(members, (inputs, *hidden, outputs), activation=activation, rng=rng)
        self.decoder = MLP(members, (n, *reversed(hidden), columns), activation=activation, rng=rng)
        self.into = nn.Parameter(torch.zeros(members, inputs, n))
        self.out = nn.Parameter(torch.zeros(members, n, columns))
        self.log_noise = nn.Parameter(torch.zeros(members, 1, columns)) if likelihood == "gaussian" else None
        self.register_buffer("lower", torch.ones(n, n).tril(-1).repeat(members, 1, 1))

    lower: Tensor

    def factor(self, x: Tensor) -> Posterior:
        """Return what x alone says of z."""
        h, n = self.encoder(x), self.n
        below = (h[..., 2 * n :].unflatten(-1, (n, n)) * self.lower[0]) if self.full else None
        return Posterior(h[..., :n] + torch.bmm(x, self.into), h[..., n : 2 * n].clamp(-9, 5), below)

    def posterior(self, x: Tensor, prior: tuple[Tensor, Tensor]) -> Posterior:
        """Draw it towards a Gaussian of this mean and log-scale (R, B, n): latent by latent, g = s² / (s² + v)."""
        own, (shift, log_scale) = self.factor(x), prior
        log_g = nn.functional.logsigmoid(2 * log_scale - own.variance.log())
        mean = shift + torch.exp(log_g) * (own.mean - shift)
        return Posterior(mean, own.log_sd + 0.5 * log_g, own.below)

    @property
    def last_layers(self) -> tuple[Linear, Linear]:
        """Of the encoder and of the decoder."""
        return cast(Linear, self.encoder.layers[-1]), cast(Linear, self.decoder.layers[-1])

    def decode(self, z: Tensor) -> Tensor:
        """Return means, or logits, of the columns, (R, B, columns)."""
        decoded: Tensor = self.decoder(z) + torch.bmm(z, self.out)
        return decoded

    def log_likelihood(self, x: Tensor, decoded: Tensor) -> Tensor:
        """Log p(x | z), (R, B): x are standardised values, bits, or one-hot categories."""
        if self.likelihood == "gaussian":
            assert self.log_noise is not None
            return log_normal(x, decoded, self.log_noise.clamp(min=LOG_NOISE_FLOOR)).sum(-1)
        if self.likelihood == "bernoulli":
            return log_bernoulli(x, decoded).sum(-1)
        parts = zip(x.split(self.levels, -1), decoded.split(self.levels, -1), strict=True)
        each: list[Tensor] = [(a * torch.log_softmax(b, -1)).sum(-1) for a, b in parts]
        return torch.stack(each).sum(0)

    def gaussian_prior(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-scale of the Gaussian with the moments of p(z | u)."""
        mean, log_scale = self.prior(u)
        return mean, log_scale + (0.5 * math.log(2) if self.prior.family == "laplace" else 0.0)

    def divergence(self, q: Posterior, u: Tensor) -> Tensor:
        """KL(q || p(z | u)), (R, B), in closed form."""
        mean, log_scale = self.prior(u)
        if self.prior.family == "laplace":
            sd = q.variance.sqrt()
            ratio = (q.mean - mean) / sd
            # E|z - c| of a Gaussian: sd √(2/π) exp(-r²/2) + (m - c) erf(r / √2), r = (m - c) / sd.
            tail = math.sqrt(2 / math.pi) * torch.exp(-0.5 * ratio.square())
            distance = sd * (tail + ratio * torch.erf(ratio / math.sqrt(2)))
            cross = distance * torch.exp(-log_scale) + log_scale + math.log(2)
        else:
            square = q.variance + (q.mean - mean).square()
            cross = 0.5 * square * torch.exp(-2 * log_scale) + log_scale + 0.5 * LOG_2PI
        kl: Tensor = cross.sum(-1) - q.entropy
        return kl
