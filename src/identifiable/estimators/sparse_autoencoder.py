"""An autoencoder with a normalised code and a bound on its mean size, which `TwoStage` and `GroupedSparse` share.

`Bottleneck` is the net, `SparseAutoencoder` the estimator. The modules of the two methods define the losses.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from scipy.stats import norm
from torch import Tensor, nn

from identifiable.arrays import BLOCK, FloatArray, is_integer
from identifiable.estimators.trained import LatentModule, Split, TrainedModel
from identifiable.nets import MLP, Standardise
from identifiable.training import Plan


class Bottleneck(LatentModule):
    """Encoder x -> γ standardise(g(x)) + β and decoder z -> f(z), with R members."""

    def __init__(self, encoder: MLP, decoder: MLP, *, learn_scale: bool = True, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        members, _, n = list(encoder.parameters())[-1].shape  # the last bias
        self.normalise = Standardise(members, n, epsilon=epsilon)
        self.scale = nn.Parameter(torch.ones(members, 1, n), requires_grad=learn_scale)
        self.shift = nn.Parameter(torch.zeros(members, 1, n), requires_grad=learn_scale)

    def forward(self, x: Tensor) -> Tensor:
        """Encode x (R, B, d)."""
        return self.normalise(self.encoder(x)) * self.scale + self.shift

    def latents(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the code of x (R, B, d)."""
        return self(x)

    def observations(self, z: Tensor) -> Tensor:
        """Decode z (R, B, n)."""
        return self.decoder(z)

    def log_prob(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return -‖x - f(g(x))‖² / d, (R, B): not a density, but it orders the restarts."""
        return -(self.decoder(self(x)) - x).square().mean(-1)

    def reconstruction(self, x: Tensor, z: Tensor) -> Tensor:
        """Return E‖x - f(z)‖² / d, (R,)."""
        return (self.decoder(z) - x).square().mean((1, 2))

    def blocks(self, rows: Tensor) -> Iterator[Tensor]:
        """Yield rows (N, d) for all members, (R, B, d)."""
        for block in rows.split(BLOCK):
            yield block.expand(len(self.scale), -1, -1)

    @torch.no_grad()
    def freeze(self, batches: Callable[[], Iterable[Tensor]]) -> None:
        """Set the batch statistics to those of all the data, with the ε that training added to every variance."""
        self.eval()
        self.normalise.calibrate(self.encoder(x) for x in batches())
        self.normalise.scale.square_().add_(self.normalise.epsilon).sqrt_()

    @torch.no_grad()
    def codes(self, rows: Tensor) -> Tensor:
        """Encode rows (N, d) by all members, (R, N, n)."""
        return torch.cat([self(block) for block in self.blocks(rows)], dim=1)


def excess_l1(z: Tensor, sparsity: float) -> Tensor:
    """Return E‖z‖₁ / n - ε, (R, 1): the bound on sparsity holds where it is not positive."""
    return z.abs().mean((1, 2))[:, None] - sparsity


@dataclass(eq=False, repr=False)
class SparseAutoencoder(TrainedModel):
    """An autoencoder of centred columns, divided by one common scale; `TwoStage` and `GroupedSparse` share it."""

    keep = "agreement"

    _: KW_ONLY
    slope: float = 0.02
    learn_scale: bool = True
    epsilon: float = 1e-5
    sparsity: float = 0.01

    module_: Bottleneck = field(init=False)

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return log N(x; f(g(x)), σ² I) of each row (N,), in nats: how well it is reconstructed.

        σ is `noise_`. The latents have no density here, so this is no likelihood of x: compare it between autoencoders
        with the same number of latents only.
        """
        X = self._check_new_data(X)
        return norm.logpdf(X, self._reconstructed(X), self.noise_).sum(1)

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw rows (n_samples, d) from Gaussian latents with the moments of the training data."""
        generator = self._generator(n_samples, random_state)
        moments = self.latent_mean_, self.latent_covariance_
        x = self.inverse_transform(generator.multivariate_normal(*moments, n_samples, check_valid="ignore"))
        return x + self.noise_ * generator.standard_normal(x.shape)

    def _require_widths(self, name: str) -> None:
        widths = getattr(self, name)
        holds = isinstance(widths, Sequence) and all(is_integer(h, 1) for h in widths)
        self._require(name, holds, "a sequence of positive layer widths, in multiples of n_latents")

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        self._require_widths("hidden")
        self._require_bools("learn_scale")
        self._require_positive("slope", "learning_rate", "dual_rate", "sparsity", "epsilon")
        self._require_integers(batch_size=2, max_steps=1)

    def _set_inputs(self, data: Split) -> None:
        self.mean_ = data.X_train.mean(0, dtype=np.float64)
        self.scale_ = float(np.sqrt(data.X_train.var(0, dtype=np.float64).mean()))

    def _set_results(self, data: Split) -> None:
        """Set the error of the kept restart on held-out rows, and the moments of its latents."""
        z = self._latents(data.X_train)[0]
        self.latent_mean_ = z.mean(0, dtype=np.float64)
        self.latent_covariance_ = np.asarray(np.cov(z.T, ddof=0, dtype=np.float64)).reshape(self.n_latents, -1)
        error = float(np.square(data.X_held - self._reconstructed(data.X_held), dtype=np.float64).mean())
        self.noise_ = max(error**0.5, 1e-6 * self.scale_)  # a perfect fit would have no density

    def _reconstructed(self, X: FloatArray) -> FloatArray:
        rows = self._apply(lambda module, x: self._decode(module, self._encode(module, x)), self._inputs(X))[0]
        return self._observed(rows, X.dtype)

    def _inputs(self, X: FloatArray) -> FloatArray:
        return ((X - self.mean_) / self.scale_).astype(X.dtype)

    def _observed(self, rows: FloatArray, dtype: Any) -> FloatArray:
        return (rows * self.scale_ + self.mean_).astype(dtype)

    def _constrained(self, steps: int, batch_size: int, rates: tuple[float, float]) -> Plan:
        """Return the plan of extragradient Adam with constant rates of the parameters and of the multiplier."""
        return Plan(steps, batch_size, rates[0], warm_up=0.0, final=1.0, betas=(0.9, 0.999), dual_rate=rates[1])

    def _build(self, members: int, rng: torch.Generator | None = None) -> Bottleneck:
        widths = (self.n_features_in_, *(h * self.n_latents for h in self.hidden), self.n_latents)
        leaky = partial(F.leaky_relu, negative_slope=self.slope)
        encoder, decoder = (MLP(members, w, activation=leaky, rng=rng) for w in (widths, widths[::-1]))
        return Bottleneck(encoder, decoder, learn_scale=self.learn_scale, epsilon=self.epsilon)
