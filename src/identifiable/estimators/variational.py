r"""The evidence lower bound, trained, scored and sampled: what all variational autoencoders without u have in common.

    log p(x) >= E_q(z|x) [log p(x | z) + log p(z) - log q(z | x)],      q(z | x) Gaussian.

A class says what p(z) is (`_log_prior`, `_draw_latents`), and may state the divergence of q from it in closed form.
"""

import math
from abc import abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import norm, qmc
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from identifiable.arrays import Array, FloatArray, hold_out
from identifiable.errors import DataError
from identifiable.estimators.autoencoder import Autoencoder, Posterior
from identifiable.estimators.base import resolve_device
from identifiable.estimators.columns import Columns
from identifiable.nets import in_precision_of, select_member, set_rng
from identifiable.training import Anneal, Batch, History, Plan, Step, minimise

DRAWS = 32  # per row in `score`
HALF = 0.5  # share of the training in which the weight of the divergence goes to 1
BLOCK = 4096  # rows that go through a net at once outside training


class VariationalAutoencoder(Columns):
    """Train `n_restarts` autoencoders at once, keep one; everything but the prior and the start."""

    module_: Autoencoder
    history_: History
    restart_scores_: Array
    _restarts: Autoencoder | None = None

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Train `n_restarts` autoencoders at once on X (N, d), or on images (N, h, w) or (N, h, w, c). y is ignored.

        A tenth of the rows (1000 at most) is held out: their bound stops the training, and the restarts are compared
        on them. With fewer than 100 rows all of them serve for both.
        """
        self._check_parameters()
        X = self._check_rows(X)
        seed, device = self._seed(), resolve_device(self.device)
        train, held = hold_out(len(X), seed)
        self._set_columns(X[train])
        module = self._started(X[train], seed, device)
        rows = self._rows(X[train], device, np.float32)
        seen = self._rows(X[held], device, np.float32).expand(self.n_restarts, -1, -1)
        rng = torch.Generator().manual_seed(seed)
        still = torch.randn((1, len(held), module.n), generator=rng).to(device)

        def loss(batch: Batch, step: Step) -> Tensor:
            x = self._seen(batch[0], step.rng)
            noise = torch.randn((*x.shape[:-1], module.n), generator=step.rng, device=device)
            return -self._bound(module, x, noise, len(rows), step.annealed["beta"]) / x.shape[-1]

        def criterion() -> Tensor:
            return -self._bound(module, seen, still.expand(self.n_restarts, -1, -1), len(rows))

        plan = Plan(
            self.max_steps,
            self.batch_size,
            self._rate,
            clip=1.0,
            patience=self.patience,
            criterion_from=self._criterion_from,
            anneal={"beta": Anneal(self._first_beta, 1.0, until=HALF)},
        )
        self.history_ = minimise(
            module,
            loss,
            [rows],
            plan,
            seed=seed,
            criterion=criterion,
            prepare=self._prepare(module, self.max_steps),
            capture=True,
            checkpoint=self.checkpoint,
            problem=self._problem(),
            verbose=self.verbose,
        )
        with torch.no_grad():
            self.restart_scores_ = -criterion().nan_to_num(torch.inf).double().cpu().numpy()
        self._compare_restarts(self._of_restarts(module, X[held]))
        self._restarts = module
        self.module_ = select_member(module, self._kept())
        self._look_at(X[train])
        if self.checkpoint is not None:
            Path(self.checkpoint).unlink(missing_ok=True)
        return self

    # -- what a class says ------------------------------------------------------------

    @abstractmethod
    def _log_prior(self, module: Any, z: Tensor, x: Tensor) -> Tensor:
        """Log p(z), (R, B), for z (R, B, n); x (R, B, d) are the rows they come from."""

    @abstractmethod
    def _draw_latents(self, size: int, generator: np.random.RandomState) -> Array:
        """Draw z ~ p(z), (size, n)."""

    def _divergence(self, module: Any, q: Posterior, z: Tensor, x: Tensor, rows: int) -> Tensor:
        """KL(q || p(z)), (R, B), or an estimate of it by the draw z; rows is the size of the training set."""
        return -q.entropy - self._log_prior(module, z, x)

    def _started(self, X: FloatArray, seed: int, device: torch.device) -> Any:
        """Build the nets at their start, for the training rows X."""
        return self._build(self.n_restarts, torch.Generator().manual_seed(seed)).to(device)

    def _prepare(self, module: Any, steps: int) -> Any:
        """Return what is done before each of these steps: let nets that drop units draw from the source of the run."""

        def prepare(batch: Batch, step: Step) -> Batch:
            set_rng(module, step.rng)
            return batch

        return prepare

    @property
    def _first_beta(self) -> float:
        """Return the weight of the divergence when training starts; it goes to 1 over the first half."""
        return 1.0

    def _look_at(self, X: FloatArray) -> None:
        """Note what else is to be known of the training rows."""

    @property
    def _criterion_from(self) -> float:
        """Return the share of training after which the model and its loss no longer change."""
        return 0.0 if self._first_beta == 1 else HALF

    def _kept(self) -> int:
        """Return the restart to keep: the one with the highest bound on held-out rows."""
        return int(np.argmax(self.restart_scores_))

    def _build(self, members: int, rng: torch.Generator | None = None) -> Any:
        return Autoencoder(
            members, self._n_inputs, self.n_latents, self._architecture(), self._likelihood(members), rng=rng
        )

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        self._check_nets()

    def _bound(self, module: Any, x: Tensor, noise: Tensor, rows: int, beta: Tensor | float = 1.0) -> Tensor:
        """Return the mean bound of each member (R,) on rows x (R, B, d), the divergence weighted by beta."""
        q = module.encode(x)
        z = q.at(noise)
        bound = module.log_likelihood(x, module.decode(z)) - beta * self._divergence(module, q, z, x, rows)
        return bound.mean(1)

    # -- what a fit gives -------------------------------------------------------------

    @torch.no_grad()
    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the posterior means m(x), (N, n_latents)."""
        X = self._check_new_data(X)
        module, device = self._module_for(X)
        parts = [module.encode(self._rows(x, device)[None]).mean[0].cpu().numpy() for x in _blocks(X)]
        return np.concatenate(parts)

    def latents_of_restarts(self, X: ArrayLike) -> Array:
        """Return the posterior means (R, N, n) of every restart, which are at hand after `fit`, and not saved."""
        X = self._check_new_data(X)
        if self._restarts is None:
            raise DataError("The restarts are not kept in a file: fit the model to have them.")
        return self._of_restarts(self._restarts, X)

    @torch.no_grad()
    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the decoder's mean E[x | z], in the units of the data: (N, d), or images if `fit` was given some."""
        Z = self._check_latents(Z)
        module, device = self._module_for(Z)
        decoded = [module.decode(torch.as_tensor(z, device=device)[None]) for z in _blocks(Z)]
        means = np.concatenate([module.likelihood.mean(one)[0].cpu().numpy() for one in decoded])
        return self._observed(means, Z.dtype)

    @torch.no_grad()
    def score_samples(self, X: ArrayLike, *, importance: bool = False) -> FloatArray:
        """Return the evidence lower bound on log p(x) of each row (N,), in nats and in the units of the data.

        It is the mean of log p(x, z) / q(z | x) over 32 quasi-random draws of q, the same for every row, so the value
        is repeatable. `importance=True` gives the importance-weighted bound of these draws, the log of the mean ratio,
        which is never lower (Burda et al. 2016).
        """
        X = self._check_new_data(X)
        module, device = self._module_for(X)
        noise = torch.as_tensor(_quasi_random(module.n).astype(X.dtype), device=device)[:, None]
        parts = []
        for rows in _blocks(X, BLOCK // DRAWS):
            x = self._rows(rows, device)[None]
            q = module.encode(x)
            z = torch.cat([q.at(e) for e in noise])  # (DRAWS, B, n)
            decoded = module.decode(z.reshape(1, -1, module.n)).reshape(DRAWS, z.shape[1], -1)
            likelihood = module.log_likelihood(x, decoded)
            again = x.expand(DRAWS, -1, -1).reshape(1, -1, x.shape[-1])
            prior = self._log_prior(module, z.reshape(1, -1, module.n), again).reshape(DRAWS, -1)
            ratio = likelihood + prior - q.log_density(noise)
            found = torch.logsumexp(ratio, 0) - math.log(DRAWS) if importance else ratio.mean(0)
            parts.append(found.cpu().numpy())
        return np.concatenate(parts) - X.dtype.type(np.log(self.scale_).sum())

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean evidence lower bound of the rows of X; higher is better. y is ignored."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw n_samples observations from the model, the noise of p(x | z) included: rows, or images."""
        check_is_fitted(self)
        generator = check_random_state(random_state)
        return self._emit(self._draw_latents(n_samples, generator), generator)

    @torch.no_grad()
    def _emit(self, z: Array, generator: np.random.RandomState) -> FloatArray:
        """Draw x ~ p(x | z) for latents z (N, n)."""
        module, device = self._module_for(z)
        rng = torch.Generator(device).manual_seed(int(generator.randint(np.iinfo(np.int32).max)))
        decoded = [module.decode(torch.as_tensor(part, device=device)[None]) for part in _blocks(z)]
        drawn = np.concatenate([module.likelihood.draw(one, rng)[0].cpu().numpy() for one in decoded])
        return self._observed(drawn, np.float64)

    @torch.no_grad()
    def _of_restarts(self, module: Autoencoder, X: FloatArray) -> Array:
        """Return the posterior means (R, N, n) of rows X, in single precision."""
        device = module.last_layers[0].bias.device
        members = len(module.last_layers[0].bias)
        parts = []
        for x in _blocks(X, max(1, BLOCK // members)):
            rows = self._rows(x, device, np.float32).expand(members, -1, -1)
            parts.append(module.encode(rows).mean.double().cpu().numpy())
        return np.concatenate(parts, 1)

    def _module_for(self, rows: FloatArray) -> tuple[Any, torch.device]:
        """Return the fitted nets in the precision of the rows: float64 in, float64 all the way."""
        module = in_precision_of(self.module_, rows)
        return module, next(module.parameters()).device


def _blocks(rows: FloatArray, size: int = BLOCK) -> list[FloatArray]:
    return [rows[i : i + size] for i in range(0, max(len(rows), 1), size)]


def _quasi_random(n: int) -> Array:
    """Return `DRAWS` quasi-random standard normal points (DRAWS, n), the same every time."""
    return norm.ppf(qmc.Sobol(n, scramble=True, seed=0).random(DRAWS))
