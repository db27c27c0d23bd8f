r"""The evidence lower bound, which all variational autoencoders train, score and sample.

    log p(x | u) >= E_q(z|x,u) [log p(x | z) + log p(z | u) - log q(z | x, u)],      q Gaussian.

A subclass states the prior (`_log_prior`, `_draw_latents`) and the divergence of q from it. Without an auxiliary
variable, u is None throughout.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import norm, qmc
from torch import Tensor

from identifiable.arrays import Array, FloatArray, is_integer
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.estimators.autoencoder import Autoencoder
from identifiable.estimators.columns import Columns
from identifiable.estimators.trained import BLOCK, Split
from identifiable.nets import as_tensor, set_rng
from identifiable.training import Anneal, Batch, History, Plan, Stage, Step

DRAWS = 32  # per row in `score`
HALF = 0.5  # share of the training in which the weight of the divergence rises to 1


@dataclass(eq=False, repr=False)
class VariationalAutoencoder(Columns):
    """Train `n_restarts` autoencoders on the evidence lower bound; subclasses state the prior."""

    module_: Autoencoder = field(init=False)

    def _stages(self, data: Split) -> Generator[Stage, History, Any]:
        """Initialise; then train on the bound until its held-out value stops improving."""
        module = yield from self._initialise(data)
        rows, R, device = len(data.train), self.n_restarts, data.device
        batches = [as_tensor(self._inputs(data.X_train), device)]
        held = [as_tensor(self._inputs(data.X_held), device)]
        if self.needs_u:
            for u, tensors in ((data.u_train, batches), (data.u_held, held)):
                tensors.append(self._u_tensor(u, len(tensors[0]), device))
        held = [t.expand(R, *t.shape) for t in held]
        noise_held = torch.randn((1, len(data.held), module.n), generator=data.rng()).to(device).expand(R, -1, -1)

        def loss(batch: Batch, step: Step) -> Tensor:
            x = self._seen(batch[0], step.rng)
            noise = torch.randn((*x.shape[:-1], module.n), generator=step.rng, device=device)
            return -self._bound(module, (x, *batch[1:]), noise, rows, step.annealed["beta"]) / x.shape[-1]

        def criterion() -> Tensor:
            return -self._bound(module, tuple(held), noise_held, rows)

        plan = Plan(
            self._steps,
            self.batch_size,
            self._rate,
            clip=1.0,
            patience=self._patience,
            criterion_from=self._criterion_from,
            anneal={"beta": Anneal(self._first_beta, 1.0, until=HALF)},
        )
        self.history_ = yield Stage(
            module,
            loss,
            batches,
            plan,
            data.seed,
            criterion=criterion,
            prepare=self._prepare(module, self._steps),
            capture=self._capture,
            checkpoint=self.checkpoint,
            problem=self._problem(),
        )
        with torch.no_grad():
            self.restart_scores_ = -criterion().nan_to_num(torch.inf).double().cpu().numpy()
        return module

    def _restart_scores(self, data: Split) -> Array:
        """Return the held-out bound of each restart."""
        return self.restart_scores_

    # -- what a subclass states --------------------------------------------------------

    @abstractmethod
    def _log_prior(self, module: Any, z: Tensor, x: Tensor, u: Tensor | None) -> Tensor:
        """Log p(z | u), (R, B), for z (R, B, n) of rows x (R, B, inputs)."""

    @abstractmethod
    def _divergence(self, module: Any, q: Any, z: Tensor, inputs: Batch, rows: int) -> Tensor:
        """KL(q || p(z | u)), (R, B), or its estimate from the draw z; rows is the size of the training set."""

    def _draw_latents(self, size: int, generator: np.random.RandomState) -> Array:
        """Draw z ~ p(z), (size, n), for `sample`, unless a subclass has its own `sample`."""
        raise NotImplementedError

    def _posterior(self, module: Any, x: Tensor, u: Tensor | None) -> Any:
        """Return q(z | x, u)."""
        return module.encode(x)

    def _initialise(self, data: Split) -> Generator[Stage, History, Any]:
        """Build the nets, and yield the stages of training that precede the bound; return the nets."""
        yield from ()
        return self._build(self.n_restarts, data.rng()).to(data.device)

    def _prepare(self, module: Any, steps: int) -> Callable[[Batch, Step], Batch]:
        """Return the function that is called before each step: it gives dropout the generator of the run."""

        def prepare(batch: Batch, step: Step) -> Batch:
            set_rng(module, step.rng)
            return batch

        return prepare

    @property
    def _one_thread(self) -> bool:
        # Dense nets are small: a second thread gains a fifth on an idle machine, and loses several times as much on a
        # busy one, where threads wait for each other.
        return self.net is None

    @property
    def _steps(self) -> int:
        """Training steps with the bound."""
        return self.max_steps

    @property
    def _patience(self) -> int | None:
        """Records without a better bound after which training stops."""
        return self.patience

    @property
    def _first_beta(self) -> float:
        """Weight of the divergence at the first step; it rises to 1 over the first half."""
        return 1.0

    @property
    def _criterion_from(self) -> float:
        """Share of the training after which the loss no longer changes."""
        return 0.0 if self._first_beta == 1 else HALF

    @property
    def _capture(self) -> bool:
        """Whether a GPU may record the step."""
        return True

    def _build(self, members: int, rng: torch.Generator | None = None) -> Any:
        return Autoencoder(
            members, self._n_inputs, self.n_latents, self._architecture(), self._likelihood(members), rng=rng
        )

    def _bound(self, module: Any, inputs: Batch, noise: Tensor, rows: int, beta: Tensor | float = 1.0) -> Tensor:
        """Return the mean bound of each member (R,) on x, or (x, u), the divergence weighted by beta."""
        x, u = _x_and_u(inputs)
        q = self._posterior(module, x, u)
        z = q.at(noise)
        bound = module.log_likelihood(x, module.decode(z)) - beta * self._divergence(module, q, z, inputs, rows)
        return bound.mean(1)

    # -- results of a fit -------------------------------------------------------------

    def _encode(self, module: Any, x: Tensor, u: Tensor | None = None) -> Tensor:
        return self._posterior(module, x, u).mean

    def _decode(self, module: Any, z: Tensor) -> Tensor:
        return module.likelihood.mean(module.decode(z))

    def score_samples(self, X: ArrayLike, *, importance: bool = False) -> FloatArray:
        """Return the evidence lower bound on log p(x) of each row (N,), in nats and in the units of the data.

        It is the mean of log p(x, z) / q(z | x) over 32 quasi-random draws of q, the same for every row, so the value
        is repeatable. `importance=True` returns the importance-weighted bound of these draws, the log of the mean
        ratio, which is never lower (Burda et al. 2016).
        """
        return self._bounds(self._check_new_data(X), None, importance)

    def _bounds(self, X: FloatArray, u: Any, importance: bool) -> FloatArray:
        """Return the bound of checked rows (N,)."""
        n = self.module_.n
        points = norm.ppf(qmc.Sobol(n, scramble=True, seed=0).random(DRAWS))

        def bound(module: Any, x: Tensor, given: Tensor | None) -> Tensor:
            noise = torch.as_tensor(points, dtype=x.dtype, device=x.device)[:, None]
            q = self._posterior(module, x, given)
            z = torch.cat([q.at(e) for e in noise])  # (DRAWS, B, n)
            rows = z.reshape(1, -1, n)
            likelihood = module.log_likelihood(x, module.decode(rows).reshape(DRAWS, z.shape[1], -1))
            prior = self._log_prior(module, rows, _repeat(x), None if given is None else _repeat(given))
            ratio = likelihood + prior.reshape(DRAWS, -1) - q.log_density(noise)
            return (torch.logsumexp(ratio, 0) - math.log(DRAWS) if importance else ratio.mean(0))[None]

        given = None if u is None else self._u_inputs(u, len(X))
        value = self._apply(bound, self._inputs(X), given, block=BLOCK // DRAWS)[0]
        return value - X.dtype.type(np.log(self.scale_).sum())

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw n_samples observations, rows or images, with the noise of p(x | z)."""
        generator = self._generator(n_samples, random_state)
        return self._emit(self._draw_latents(n_samples, generator), generator)

    def _emit(self, z: Array, generator: np.random.RandomState) -> FloatArray:
        """Draw x ~ p(x | z) for latents z (N, n)."""
        device = next(iter(self.module_.parameters())).device
        rng = torch.Generator(device).manual_seed(int(generator.randint(np.iinfo(np.int32).max)))
        drawn = self._apply(lambda module, z: module.likelihood.draw(module.decode(z), rng), z)[0]
        return self._observed(drawn, np.float64)


def draw_from(mixture: Mixture, size: int, component: Any, name: str, generator: np.random.RandomState) -> Array:
    """Draw z, (size, n), from a mixture, or from one of its components, the parameter `name` of `sample`."""
    if component is None:
        return mixture.sample(size, generator)[0]
    K = len(mixture.weights)
    if not (is_integer(component, 0) and component < K):
        raise DataError(f"{name} must be a number from 0 to {K - 1}. Got {component!r}.")
    return Mixture([1.0], mixture.means[[component]], mixture.covariances[[component]]).sample(size, generator)[0]


def _x_and_u(inputs: Batch) -> tuple[Tensor, Tensor | None]:
    return inputs[0], inputs[1] if len(inputs) > 1 else None


def _repeat(rows: Tensor) -> Tensor:
    """Repeat rows (1, B, ...) for each draw, (1, DRAWS B, ...)."""
    return rows.expand(DRAWS, *rows.shape[1:]).flatten(0, 1)[None]
