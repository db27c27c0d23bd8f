"""The contract every method keeps, and what they all share."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import replace
from inspect import signature
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from identifiable.agreement.stability import THRESHOLDS, Stability
from identifiable.arrays import FloatArray, is_integer
from identifiable.errors import DataError, FitFailedError, RecoveryWarning, join_few
from identifiable.theory import Certificate, Level

__all__ = [
    "LatentModel",
    "Stability",
    "resolve_device",
]


class LatentModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """fit(X, y=None) -> transform(X) (N, n_latents) -> inverse_transform(Z) (N, d); score(X), higher is better.

    Every constructor speaks the words `n_latents`, `n_restarts`, `random_state`, `device`, `verbose`, then its own, and
    only assigns them. A fit leaves `history_`, `stability_` and `fit_status_`. A method with a net keeps it as
    `module_` and can build it anew, untrained, by `_build(members, rng)`: that is how `load` gets it back.
    """

    n_latents: int
    n_restarts: int
    random_state: int | np.random.RandomState | None
    device: str
    verbose: int

    stability_: Stability
    fit_status_: str

    @abstractmethod
    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn the latents of X (N, d)."""

    @abstractmethod
    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n_latents) of X (N, d)."""

    @abstractmethod
    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the observations (N, d) that latents Z (N, n_latents) stand for."""

    @abstractmethod
    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return how well the model explains X, without labels: higher is better."""

    @property
    def _n_features_out(self) -> int:
        return self.n_latents

    def __sklearn_tags__(self) -> Any:
        """Say that float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _require(self, name: str, holds: bool, expected: str) -> None:
        """Refuse a parameter in scikit-learn's words."""
        if not holds:
            raise ValueError(
                f"The {name!r} parameter of {type(self).__name__} must be {expected}. "
                f"Got {getattr(self, name)!r} instead."
            )

    def _check_common_parameters(self) -> None:
        default = signature(type(self)).parameters["n_latents"].default
        unset = self.n_latents is None and default is None
        self._require("n_latents", unset or is_integer(self.n_latents, 1), "an integer >= 1")
        self._require("n_restarts", is_integer(self.n_restarts, 1), "an integer >= 1")
        self._require("verbose", is_integer(self.verbose, 0), "an integer >= 0")
        resolve_device(self.device)

    def _check_training_data(self, X: ArrayLike, *, columns_must_vary: bool = True) -> FloatArray:
        """Return X as a float array of at least two rows whose columns all vary and all differ."""
        checked: FloatArray = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        if not columns_must_vary:
            return checked
        names = getattr(self, "feature_names_in_", np.arange(checked.shape[1]))
        constant = [str(n) for n, c in zip(names, np.ptp(checked, axis=0) == 0, strict=True) if c]
        if constant:
            raise DataError(
                f"Every column must vary; constant here: {join_few(constant)} ({len(constant)} of {len(names)}). "
                "Drop them before fitting."
            )
        seen: dict[bytes, str] = {}
        doubled = []
        for name, column in zip(names, checked.T, strict=True):
            first = seen.setdefault(np.ascontiguousarray(column).tobytes(), str(name))
            if first != str(name):
                doubled.append(f"{name} = {first}")
        if doubled:
            raise DataError(
                f"Every column must differ from the others; duplicated here: {join_few(doubled)}. Keep one of each."
            )
        return checked

    def _check_new_data(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        return validate_data(self, X, dtype=[np.float64, np.float32], reset=False)

    def _check_latents(self, Z: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        latents = np.asarray(Z)
        if latents.ndim != 2 or latents.shape[1] != self._n_features_out:
            raise DataError(f"Expected latents of shape (N, {self._n_features_out}), got {latents.shape}.")
        if latents.dtype not in (np.float32, np.float64):
            latents = latents.astype(np.float64)
        if not np.isfinite(latents).all():
            raise DataError("Latents must be finite; some are NaN or infinite.")
        return latents

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _problem(self) -> str:
        """Name what is fitted, for a checkpoint: the class and its parameters, less those that change nothing."""
        own = self.get_params(deep=False)
        kept = {k: v for k, v in sorted(own.items()) if k not in ("device", "verbose", "checkpoint", "random_state")}
        return f"{type(self).__name__} {kept!r}"

    def _certified(self, found: Certificate) -> Certificate:
        """Return a certificate of what was learnt, as far as restarts agree."""
        agree = self.stability_.check
        checks = (agree, *found.checks)
        if agree.verdict == "holds":
            return replace(found, checks=checks)
        if_undecided_hold = Level.NONE if agree.verdict == "fails" else found.if_undecided_hold
        return Certificate(Level.NONE, if_undecided_hold, "", checks, (), (), None, None, True)

    def _compare_restarts(self, latents: NDArray[Any], stability: Stability | None = None) -> int:
        """Compare the restarts' latents (R, N, n) of held-out rows; set `stability_`; return the restart to keep.

        A stability that was measured otherwise than by MCC is taken instead.
        """
        finite = np.isfinite(latents).all(axis=(1, 2))
        if not finite.any():
            raise FitFailedError("No restart has finite latents. Standardise the data or lower the learning rate.")
        self.stability_ = Stability.of(latents) if stability is None else stability
        self.fit_status_ = self.stability_.status
        if self.fit_status_ == "unstable":
            warnings.warn(
                f"{type(self).__name__}: {len(latents)} restarts agree at {self.stability_.score:.2f} only (stable "
                f"from {THRESHOLDS.stable}): another random_state gives other latents. See stability_.",
                RecoveryWarning,
                stacklevel=3,
            )
        return self.stability_.chosen


def resolve_device(device: str) -> torch.device:
    """Turn "auto", "cpu", "cuda", "cuda:1" into a device that is there.

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:<number>'. Got {device!r}.")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device={device!r} was asked for, but {torch.cuda.device_count()} CUDA devices are here. "
            "Use 'auto' or 'cpu'."
        )
    return chosen
