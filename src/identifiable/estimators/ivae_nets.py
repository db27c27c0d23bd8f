"""The nets of `IVAE`: an encoder, a decoder, and the posterior, a product of the encoder's factor and the prior."""

import math

import torch
from torch import Tensor, nn

from identifiable.distributions.densities import LOG_2PI
from identifiable.estimators.autoencoder import Autoencoder, Likelihood, Posterior
from identifiable.estimators.given_u import PriorGivenU
from identifiable.nets import Architecture


class Nets(Autoencoder):
    """Encoder, decoder, their linear parts, the decoder's noise and the prior; R members."""

    def __init__(
        self,
        members: int,
        inputs: int,
        net: Architecture,
        prior: PriorGivenU,
        likelihood: Likelihood,
        *,
        full: bool,
        bypass: bool,
        rng: torch.Generator | None,
    ) -> None:
        super().__init__(members, inputs, prior.n, net, likelihood, full=full, bypass=bypass, rng=rng)
        self.prior = prior

    def posterior(self, x: Tensor, prior: tuple[Tensor, Tensor]) -> Posterior:
        """Multiply the encoder's factor by a Gaussian of this mean and log-scale (R, B, n): g = s² / (s² + v)."""
        own, (shift, log_scale) = self.encode(x), prior
        log_g = nn.functional.logsigmoid(2 * log_scale - own.variance.log())
        mean = shift + torch.exp(log_g) * (own.mean - shift)
        return Posterior(mean, own.log_sd + 0.5 * log_g, own.below)

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
        return cross.sum(-1) - q.entropy
