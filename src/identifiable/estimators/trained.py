"""The estimators that train: one `fit`, and the results that all of them share."""

from abc import abstractmethod
from collections.abc import Callable, Generator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from identifiable.agreement.stability import most_agreeing
from identifiable.algorithms.coordinates import one_thread
from identifiable.arrays import Array, FloatArray, Rows, hold_out
from identifiable.data.simulator import Simulator
from identifiable.errors import DataError
from identifiable.estimators.base import LatentModel, resolve_device
from identifiable.nets import in_precision_of, members_in_threads, select_member
from identifiable.training import History, Stage, run

BLOCK = 4096  # rows that go through the nets at once outside training
PILOT = 20_000  # rows of a simulator that set coordinates and compare restarts


class LatentModule(nn.Module):
    """R members of a model x <-> z. Every parameter and buffer has the member axis first."""

    def latents(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Map rows x (R, B, inputs) to latents (R, B, n)."""
        raise NotImplementedError

    def observations(self, z: Tensor) -> Tensor:
        """Map latents z (R, B, n) to rows (R, B, inputs)."""
        raise NotImplementedError

    def log_prob(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return log p(x | u), or a bound on it, (R, B)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Split:
    """Checked rows X (N, d) and their u, the rows to train on and those held out, a seed and a device.

    With a source of fresh rows, X is a sample of it, and training draws from the source.
    """

    X: FloatArray
    u: Any
    train: Rows
    held: Rows
    seed: int
    device: torch.device
    source: Simulator | None = None

    @cached_property
    def X_train(self) -> FloatArray:  # noqa: N802
        """The rows to train on."""
        return self.X[self.train]

    @cached_property
    def X_held(self) -> FloatArray:  # noqa: N802
        """The rows that are held out."""
        return self.X[self.held]

    @cached_property
    def u_train(self) -> Any:
        """The auxiliary variable of the training rows."""
        return None if self.u is None else rows_of(self.u, self.train)

    @cached_property
    def u_held(self) -> Any:
        """The auxiliary variable of the held-out rows."""
        return None if self.u is None else rows_of(self.u, self.held)

    def rng(self) -> torch.Generator:
        """Return a fresh generator with the seed."""
        return torch.Generator().manual_seed(self.seed)


def rows_of(u: Any, rows: Rows) -> Any:
    """Return these rows of u: an array, a frame, or a list of rows of mixed types."""
    if isinstance(u, list | tuple):
        return [u[row] for row in rows]
    return u.iloc[rows] if hasattr(u, "iloc") else np.asarray(u)[rows]


@dataclass(eq=False, repr=False)
class TrainedModel(LatentModel):
    """Train `n_restarts` members in one batch, compare them on held-out rows, and keep one.

    A subclass states how rows become the inputs of its module (`_inputs`) and its outputs become rows (`_observed`),
    and yields its training as one or more `Stage` (`_stages`), with its own steps, such as a linear initialisation, in
    between.

    A tenth of the rows (1000 at most) is held out. They choose between restarts and stop the training, and enter
    nothing else.
    """

    keep: ClassVar[Literal["score", "agreement"]] = "score"  # which restart is kept
    pilot: ClassVar[int] = PILOT
    takes_simulator: ClassVar[bool] = False  # whether `fit` takes a `Simulator`, from which every step draws fresh rows

    module_: Any = field(init=False)
    history_: History = field(init=False)
    restart_scores_: Array = field(init=False)
    kept_: int = field(init=False)
    _restarts: Any = field(default=None, init=False)

    # -- training ---------------------------------------------------------------------

    def fit(self, X: ArrayLike | Simulator, y: Any = None) -> Self:
        """Train on X (N, d). A tenth of the rows (1000 at most) is held out to compare the restarts on. y is ignored.

        Where the method needs an auxiliary variable, it is y = u, (N,) or (N, m).
        """
        self._check_parameters()
        data = self._split(X, y)
        self._set_inputs(data)
        with one_thread() if self._one_thread else nullcontext(1) as threads, members_in_threads(threads):
            self._restarts = run(self._stages(data), self.verbose)
        self._keep_restart(data)
        self._set_results(data)
        if checkpoint := getattr(self, "checkpoint", None):
            Path(checkpoint).unlink(missing_ok=True)
        return self

    @property
    def _one_thread(self) -> bool:
        """Whether products are so small that a second thread costs more than it saves."""
        return False

    @abstractmethod
    def _check_parameters(self) -> None:
        """Check the parameters of the constructor."""

    def _split(self, X: Any, y: Any) -> Split:
        """Check X and y, and hold rows out."""
        seed, source = self._seed(), None
        if self.takes_simulator and isinstance(X, Simulator):
            source, X = X, X.sample(self.pilot, seed).x
        checked = self._check_training_data(X)
        train, held = hold_out(len(checked), seed)
        return Split(checked, y, train, held, seed, resolve_device(self.device), source)

    @abstractmethod
    def _set_inputs(self, data: Split) -> None:
        """Set the coordinates or scales in which the module works, from the training rows."""

    @abstractmethod
    def _stages(self, data: Split) -> Generator[Stage, History, Any]:
        """Yield the parts of the training in their order, set `history_`, and return the trained restarts."""

    def _keep_restart(self, data: Split) -> None:
        """Compare the restarts on held-out rows and keep one."""
        u = data.u_held if self.needs_u else None
        self._compare_restarts(self._latents(data.X_held, u, self._restarts))
        self.restart_scores_ = scores = self._restart_scores(data)
        by_score = self.keep == "score"
        self.kept_ = int(np.argmax(scores)) if by_score else most_agreeing(self.stability_.agreement, scores)
        self.module_ = select_member(self._restarts, self.kept_).eval()

    def _restart_scores(self, data: Split) -> Array:
        """Return the held-out log-likelihood per row, or a bound on it, of each restart (R,), up to a constant."""
        u = self._u_inputs(data.u_held, len(data.held)) if self.needs_u else None
        scores = self._apply(self._log_prob, self._inputs(data.X_held), u, module=self._restarts)
        return np.nan_to_num(scores.mean(1, dtype=np.float64), nan=-np.inf)

    def _set_results(self, data: Split) -> None:
        """Set further results of the kept restart."""

    # -- results of a fit ----------------------------------------------------------------

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n_latents) of X (N, d)."""
        return self._latents(self._check_new_data(X))[0]

    def latents_of_restarts(self, X: ArrayLike) -> FloatArray:
        """Return the latents (R, N, n) of every restart. Available after `fit`; restarts are not saved to files."""
        return self._latents(self._check_new_data(X), None, self._trained_restarts())

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the observations (N, d) of latents Z (N, n_latents), in the units of the data."""
        Z = self._check_latents(Z)
        return self._observed(self._apply(self._decode, Z)[0], Z.dtype)

    @abstractmethod
    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return log p(x) of each row (N,), or a bound on it, in nats and in the units of the data."""

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean of `score_samples` over the rows of X; higher is better. y is u where the method has one."""
        return float(np.mean(self.score_samples(X, *([y] if self.needs_u else []))))

    def _trained_restarts(self) -> Any:
        """Return the module of all restarts."""
        if self._restarts is None:
            raise DataError("Restarts are not saved to files: fit the model again to have them.")
        return self._restarts

    def _latents(self, X: FloatArray, u: Any = None, module: Any = None) -> FloatArray:
        """Return the latents (R, N, n) of checked rows, by the kept restart or by every member of module."""
        return self._apply(
            self._encode, self._inputs(X), None if u is None else self._u_inputs(u, len(X)), module=module
        )

    def _apply(
        self, function: Callable[..., Tensor], *arrays: NDArray[Any] | None, module: Any = None, block: int = BLOCK
    ) -> NDArray[Any]:
        """Apply function(module, *tensors) -> (R, B, ...) to rows, block by block; return (R, N, ...).

        The module is that of the kept restart unless another is given. It computes in the precision of the first
        array: float64 in, float64 out.
        """
        assert arrays[0] is not None
        module = in_precision_of(self.module_ if module is None else module, arrays[0])
        first = next(iter(module.parameters()))
        size, parts = max(1, block // len(first)), []
        with torch.no_grad():
            for start in range(0, max(len(arrays[0]), 1), size):
                blocks = [None if a is None else a[start : start + size] for a in arrays]
                tensors = [None if b is None else _to(first, b).expand(len(first), *b.shape) for b in blocks]
                parts.append(function(module, *tensors))
            return torch.cat(parts, 1).cpu().numpy()

    # -- how rows go through the module -----------------------------------------------------

    @abstractmethod
    def _inputs(self, X: FloatArray) -> FloatArray:
        """Return rows (N, inputs) as the module takes them, in the precision of X."""

    @abstractmethod
    def _observed(self, rows: FloatArray, dtype: Any) -> FloatArray:
        """Return observations (N, d) in the units of the data, from rows as the module gives them."""

    def _u_inputs(self, u: Any, rows: int) -> NDArray[Any]:
        """Return u as the module takes it."""
        raise NotImplementedError

    def _encode(self, module: Any, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Map rows to latents."""
        return module.latents(x, u)

    def _decode(self, module: Any, z: Tensor) -> Tensor:
        """Map latents to rows."""
        return module.observations(z)

    def _log_prob(self, module: Any, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return log p(x | u) in the units of the module."""
        return module.log_prob(x, u)

    @abstractmethod
    def _build(self, members: int, rng: torch.Generator | None = None) -> Any:
        """Build the untrained module; `load` fills it with one member."""


def _to(like: Tensor, rows: NDArray[Any]) -> Tensor:
    """Return rows as a tensor on the device of `like`, and in its precision unless they are integers."""
    dtype = like.dtype if rows.dtype.kind == "f" else torch.int64
    return torch.as_tensor(np.ascontiguousarray(rows), dtype=dtype, device=like.device)
