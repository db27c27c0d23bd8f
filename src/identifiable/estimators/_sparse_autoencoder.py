"""An autoencoder with a normalised code and a bound on its mean size: what `TwoStage` and `GroupedSparse` share.

`Bottleneck` is the net, `minimise_with_cooper` the constrained descent of both papers (extragradient Adam on the
Lagrangian), `SparseAutoencoder` the estimator around a fitted net. The losses stay with their papers.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import track
from scipy.stats import norm
from sklearn.utils import check_random_state
from torch import Tensor, nn

from identifiable.data.sample import FloatArray
from identifiable.estimators.base import LatentModel, is_integer, is_real
from identifiable.nets import MLP, Standardise, calibrate, in_precision_of
from identifiable.train import Batch, Constrained, History

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
        z: Tensor = self.normalise(self.encoder(x)) * self.scale + self.shift
        return z

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
        calibrate(self, batches)
        self.normalise.scale.square_().add_(self.normalise.epsilon).sqrt_()

    @torch.no_grad()
    def codes(self, rows: Tensor) -> Tensor:
        """Encode rows (N, d) by all members, (R, N, n)."""
        return torch.cat([self(block) for block in self.blocks(rows)], dim=1)


def excess_l1(z: Tensor, sparsity: float) -> Tensor:
    """Return E‖z‖₁ / n - ε, (R, 1): the bound on sparsity holds where it is not positive."""
    return z.abs().mean((1, 2))[:, None] - sparsity


def minimise_with_cooper(
    module: nn.Module,
    objective: Callable[[Batch], Constrained],
    draw: Callable[[], Batch],
    steps: int,
    rates: tuple[float, float],
    verbose: int = 0,
) -> History:
    """Solve min loss s.t. inequality <= 0 for every member of module by extragradient steps of Adam; all are taken.

    objective(batch) returns losses (R,) and one inequality each, (R, 1); rates are those of the parameters and of the
    multipliers. Members are independent: their Lagrangians add up, and Adam works entry by entry.
    """
    cooper: Any = import_module("cooper")  # here: it is needed for this alone
    parameters = [p for p in module.parameters() if p.requires_grad]
    members, device = len(parameters[0]), parameters[0].device
    multiplier = cooper.multipliers.DenseMultiplier(num_constraints=members, device=device)

    class Problem(cooper.ConstrainedMinimizationProblem):
        def __init__(self) -> None:
            super().__init__()
            self.bound = cooper.Constraint(cooper.ConstraintType.INEQUALITY, multiplier=multiplier)

        def compute_cmp_state(self, batch: Batch) -> Any:
            value = objective(batch)
            assert value.inequality is not None
            state = cooper.ConstraintState(violation=value.inequality[:, 0])
            return cooper.CMPState(value.loss.sum(), {self.bound: state}, misc={"loss": value.loss.detach()})

    problem = Problem()
    optimiser = cooper.optim.ExtrapolationConstrainedOptimizer(
        problem,
        cooper.optim.ExtraAdam(parameters, lr=rates[0]),
        cooper.optim.ExtraAdam(problem.dual_parameters(), lr=rates[1], maximize=True),
    )
    records, every, started, console = [], max(1, steps // 100), time.monotonic(), Console(stderr=True)
    hidden = verbose == 0 or not console.is_terminal
    module.train()
    for step in track(range(1, steps + 1), "sparse", console=console, transient=True, disable=hidden):
        rolled = optimiser.roll({"batch": draw()}).cmp_state
        if step % every == 0 or step == steps:
            norms = [p.grad.reshape(members, -1).norm(dim=1) for p in parameters if p.grad is not None]
            violation = rolled.observed_constraints[problem.bound].violation.detach()
            records.append(torch.stack([rolled.misc["loss"], torch.stack(norms).norm(dim=0), violation]))
    module.eval()
    loss, gradient, violation = torch.stack(records, dim=1).double().cpu().numpy()  # (T, R) each
    return History(
        step=np.minimum(every * np.arange(1, len(loss) + 1), steps),
        learning_rate=np.full(len(loss), rates[0]),
        loss=loss,
        gradient=gradient,
        criterion=np.full_like(loss, np.nan),
        violation=np.maximum(violation, 0),
        best_step=np.full(members, steps, dtype=np.int64),
        multipliers=multiplier.weight.detach().double().cpu().numpy()[:, None],
        stopped="steps",
        seconds=time.monotonic() - started,
    )


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
        value: FloatArray = norm.logpdf(X, self._observations(self._latents(X)), self.noise_).sum(1)
        return value

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean of `score_samples` over the rows of X; higher is better. y is ignored."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw rows (n_samples, d) from Gaussian latents with the moments of the training data's: a crude law."""
        generator = check_random_state(random_state)
        moments = self.latent_mean_, self.latent_covariance_
        x = self._observations(generator.multivariate_normal(*moments, n_samples, check_valid="ignore"))
        drawn: FloatArray = x + self.noise_ * generator.standard_normal(x.shape)
        return drawn

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
        rows: FloatArray = (x * self.scale_ + self.mean_).astype(Z.dtype)
        return rows

    def _module_for(self, rows: FloatArray) -> Bottleneck:
        """Return the fitted net in the precision of the rows: float64 in, float64 all the way."""
        return in_precision_of(self.module_, rows)
