"""An autoencoder with a normalised code and a bound on its mean size: what `TwoStage` and `GroupedSparse` share.

`Bottleneck` is the net, `SparseAutoencoder` the estimator around a fitted one. The losses stay with their papers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.utils import check_random_state
from torch import Tensor, nn

from identifiable.arrays import FloatArray, is_integer, is_real
from identifiable.estimators.base import LatentModel
from identifiable.nets import MLP, Standardise, in_precision_of
from identifiable.training import History

BLOCK = 8192  # rows that go through a net at once outside training


class Bottleneck(nn.Module):
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

    def reconstruction(self, x: Tensor, z: Tensor) -> Tensor:
        """Return E‖x - f(z)‖² / d, (R,)."""
        error: Tensor = self.decoder(z) - x
        return error.square().mean((1, 2))

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


class SparseAutoencoder(LatentModel):
    """What `TwoStage` and `GroupedSparse` share: an autoencoder of centred columns, divided by one common scale."""

    hidden: Sequence[int]
    slope: float
    learn_scale: bool
    epsilon: float

    module_: Bottleneck
    history_: History

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n_latents) of X (N, d)."""
        return self._latents(self._check_new_data(X))

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the decoder's observations (N, d) for latents Z (N, n_latents), in the units of the data."""
        return self._observations(self._check_latents(Z))

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return log N(x; f(g(x)), σ² I) of each row (N,), in nats: how well it is reconstructed.

        σ is `noise_`. The latents have no density here, so this is no likelihood of x: compare it between autoencoders
        with the same number of latents only.
        """
        X = self._check_new_data(X)
        return norm.logpdf(X, self._observations(self._latents(X)), self.noise_).sum(1)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean of `score_samples` over the rows of X; higher is better. y is ignored."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw rows (n_samples, d) from Gaussian latents with the moments of the training data's: a crude law."""
        generator = check_random_state(random_state)
        moments = self.latent_mean_, self.latent_covariance_
        x = self._observations(generator.multivariate_normal(*moments, n_samples, check_valid="ignore"))
        return x + self.noise_ * generator.standard_normal(x.shape)

    def _check_widths(self, name: str) -> None:
        widths = getattr(self, name)
        holds = isinstance(widths, Sequence) and all(is_integer(h, 1) for h in widths)
        self._require(name, holds, "a sequence of positive layer widths, in multiples of n_latents")

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        self._check_widths("hidden")
        self._require("slope", is_real(self.slope, 0), "a number > 0")
        self._require("learn_scale", isinstance(self.learn_scale, bool), "True or False")
        for name in ("learning_rate", "dual_rate", "sparsity", "epsilon"):
            self._require(name, is_real(getattr(self, name), 0), "a number > 0")
        for name, least in (("batch_size", 2), ("max_steps", 1)):
            self._require(name, is_integer(getattr(self, name), least), f"an integer >= {least}")

    def _set_units(self, X: FloatArray) -> None:
        self.mean_ = X.mean(0, dtype=np.float64)
        self.scale_ = float(np.sqrt(X.var(0, dtype=np.float64).mean()))

    def _set_moments(self, train: FloatArray, held: FloatArray) -> None:
        """Measure the error of the kept restart on held-out rows, and the moments of its latents."""
        z = self._latents(train)
        self.latent_mean_ = z.mean(0, dtype=np.float64)
        self.latent_covariance_ = np.asarray(np.cov(z.T, ddof=0, dtype=np.float64)).reshape(self.n_latents, -1)
        error = float(np.square(held - self._observations(self._latents(held)), dtype=np.float64).mean())
        self.noise_ = max(error**0.5, 1e-6 * self.scale_)  # a perfect fit would have no density

    def _to_tensor(self, X: FloatArray, dtype: torch.dtype | None, device: torch.device) -> Tensor:
        return torch.as_tensor(((X - self.mean_) / self.scale_).astype(X.dtype), dtype=dtype, device=device)

    def _build(self, members: int, rng: torch.Generator | None = None) -> Bottleneck:
        widths = (self.n_features_in_, *(h * self.n_latents for h in self.hidden), self.n_latents)
        leaky = partial(F.leaky_relu, negative_slope=self.slope)
        encoder, decoder = (MLP(members, w, activation=leaky, rng=rng) for w in (widths, widths[::-1]))
        return Bottleneck(encoder, decoder, learn_scale=self.learn_scale, epsilon=self.epsilon)

    @torch.no_grad()
    def _latents(self, X: FloatArray) -> FloatArray:
        """Return the code (N, n) of rows X (N, d), in their precision."""
        module = self._module_for(X)
        return module.codes(self._to_tensor(X, None, module.scale.device))[0].cpu().numpy()

    @torch.no_grad()
    def _observations(self, Z: FloatArray) -> FloatArray:
        """Return the rows (N, d) of codes Z (N, n), in their precision and in the units of the data."""
        module = self._module_for(Z)
        z = torch.as_tensor(Z, device=module.scale.device)
        x = torch.cat([module.decoder(block)[0] for block in module.blocks(z)]).cpu().numpy()
        return (x * self.scale_ + self.mean_).astype(Z.dtype)

    def _module_for(self, rows: FloatArray) -> Bottleneck:
        """Return the fitted net in the precision of the rows: float64 in, float64 all the way."""
        return in_precision_of(self.module_, rows)
