"""The contract that every estimator keeps: scikit-learn's, with restarts, a device and a seed."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from identifiable.agreement.stability import THRESHOLDS, Stability
from identifiable.algorithms.coordinates import Coordinates
from identifiable.arrays import FloatArray, is_integer, is_real
from identifiable.errors import DataError, FitFailedError, join_few, warn_recovery
from identifiable.theory import Certificate, Check, Level

LARGEST = np.float64(1e100)  # up to this size, sums of squares do not overflow
SMALLEST = 1e-100  # from this size on, squares of standard deviations do not vanish


class ParameterChecks:
    """Checks of parameters, with scikit-learn's error messages."""

    def _require(self, name: str, holds: bool, expected: str) -> None:
        """Raise scikit-learn's error for a parameter unless the condition holds."""
        if not holds:
            raise ValueError(
                f"The {name!r} parameter of {type(self).__name__} must be {expected}. "
                f"Got {getattr(self, name)!r} instead."
            )

    def _require_integers(self, *, optional: bool = False, **least: int) -> None:
        """Check parameters that are integers of at least this value, or None if optional."""
        for name, least_value in least.items():
            value = getattr(self, name)
            valid = (optional and value is None) or is_integer(value, least_value)
            self._require(name, valid, f"an integer >= {least_value}" + (" or None" if optional else ""))

    def _require_positive(self, *names: str, optional: bool = False) -> None:
        """Check parameters that are numbers above zero, or None if optional."""
        for name in names:
            value = getattr(self, name)
            valid = (optional and value is None) or is_real(value, 0)
            self._require(name, valid, "a number > 0" + (" or None" if optional else ""))

    def _require_bools(self, *names: str) -> None:
        """Check parameters that are True or False."""
        for name in names:
            self._require(name, isinstance(getattr(self, name), bool), "True or False")


@dataclass(eq=False, repr=False)
class LatentModel(ParameterChecks, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """fit(X, y=None) -> transform(X) (N, n_latents) -> inverse_transform(Z) (N, d); score(X), higher is better.

    Parameters are the fields of a dataclass, so that constructors only assign. Fields with init=False are set by
    `fit`: always `stability_` and `fit_status_`, and `history_` and `module_` by a trained estimator, which builds an
    untrained module with `_build(members, rng)` for `load` to fill. A subclass is decorated with
    ``@dataclass(eq=False, repr=False)`` and adds its parameters.

    Parameters that mean the same in every estimator:

    - n_latents : int or None. Number of latents. None uses the rank of X, where the method allows it.
    - n_restarts : int. Independent fits from different starts. Their agreement on held-out rows is `stability_`.
    - random_state : int, RandomState or None. An integer makes the fit reproducible, bit for bit, on one machine and
      device.
    - device : "auto" (CUDA if available), "cpu", "cuda" or "cuda:<number>".
    - verbose : int. 1 shows a progress bar on a terminal, 0 is silent.
    """

    needs_u: ClassVar[bool] = False  # whether fit(X, y) needs the auxiliary variable y = u
    n_latents: int = 2
    _: KW_ONLY
    n_restarts: int = 4
    random_state: int | np.random.RandomState | None = None
    device: str = "auto"
    verbose: int = 1

    stability_: Stability = field(init=False)
    fit_status_: str = field(init=False)

    @abstractmethod
    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn the latents of X (N, d)."""

    @abstractmethod
    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n_latents) of X (N, d)."""

    @abstractmethod
    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the observations (N, d) of latents Z (N, n_latents)."""

    @abstractmethod
    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return how well the model explains X, without ground truth; higher is better."""

    @property
    def _n_features_out(self) -> int:
        return self.n_latents

    def __sklearn_tags__(self) -> Any:
        """Declare that float32 stays float32, and whether u is needed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.needs_u
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_common_parameters(self) -> None:
        default = signature(type(self)).parameters["n_latents"].default
        self._require_integers(n_latents=1, optional=default is None)
        self._require_integers(n_restarts=1, verbose=0)
        self._check_random_state()
        resolve_device(self.device)

    def _check_random_state(self) -> None:
        seed = self.random_state
        valid = seed is None or isinstance(seed, np.random.RandomState) or (is_integer(seed, 0) and int(seed) < 2**32)
        self._require("random_state", valid, "None, a RandomState or an integer from 0 to 2**32 - 1")

    def _check_training_data(self, X: ArrayLike, *, columns_must_vary: bool = True) -> FloatArray:
        """Return X as a float array of at least two rows whose columns all vary and all differ."""
        checked: FloatArray = validate_data(self, plain_table(X), dtype=[np.float64, np.float32], ensure_min_samples=2)
        names = [str(name) for name in getattr(self, "feature_names_in_", np.arange(checked.shape[1]))]
        require_moderate(checked, names)
        if not columns_must_vary:
            return checked
        constant = [n for n, c in zip(names, np.ptp(checked, axis=0) == 0, strict=True) if c]
        if constant:
            raise DataError(
                f"Every column must vary; constant here: {join_few(constant)} ({len(constant)} of {len(names)}). "
                "Drop them before fitting."
            )
        tiny = [n for n, sd in zip(names, checked.std(0, dtype=np.float64), strict=True) if sd < SMALLEST]
        if tiny:
            raise DataError(
                f"Every standard deviation must be at least {SMALLEST:g}; smaller here: {join_few(tiny)}. Rescale "
                "these columns."
            )
        first = {column.tobytes(): name for name, column in zip(names[::-1], checked.T[::-1], strict=True)}
        copies = [
            f"{n} = {first[c.tobytes()]}" for n, c in zip(names, checked.T, strict=True) if first[c.tobytes()] != n
        ]
        if copies:
            raise DataError(
                f"Every column must differ from the others; duplicated here: {join_few(copies)}. Keep one of each."
            )
        return checked

    def _check_new_data(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        checked: FloatArray = validate_data(self, plain_table(X), dtype=[np.float64, np.float32], reset=False)
        require_moderate(checked, list(getattr(self, "feature_names_in_", range(checked.shape[1]))))
        return checked

    def _generator(self, n_samples: Any, random_state: Any) -> np.random.RandomState:
        """Check the arguments of `sample`, and return its source of randomness."""
        check_is_fitted(self)
        if not is_integer(n_samples, 1):
            raise ValueError(f"n_samples must be an integer >= 1. Got {n_samples!r} instead.")
        return check_random_state(random_state)

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

    def _fit_coordinates(self, X: FloatArray) -> Coordinates:
        """Return the principal coordinates of X (N, d), as many as latents."""
        coordinates = Coordinates.fit(X, self.n_latents)
        if self.n_latents is not None and self.n_latents > coordinates.rank:
            raise DataError(
                f"n_latents must be at most the rank of X. Got n_latents={self.n_latents}, rank={coordinates.rank}, "
                f"n_features={X.shape[1]}. Lower n_latents."
            )
        return coordinates

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _problem(self) -> str:
        """Return the class and the parameters that the result depends on, as text, for a checkpoint."""
        own = self.get_params(deep=False)
        kept = {k: v for k, v in sorted(own.items()) if k not in ("device", "verbose", "checkpoint", "random_state")}
        return f"{type(self).__name__} {kept!r}"

    def _certified(self, found: Certificate, *fit: Check, agreement: Check | None = None) -> Certificate:
        """Return the certificate of the learnt distribution, or none where restarts disagree or the model misfits."""
        first = (*fit, self.stability_.check if agreement is None else agreement)
        checks, verdicts = (*first, *found.checks), {check.verdict for check in first}
        if verdicts == {"holds"}:
            return replace(found, checks=checks)
        if_undecided_hold = Level.NONE if "fails" in verdicts else found.if_undecided_hold
        return Certificate.nothing(*checks, if_undecided_hold=if_undecided_hold)

    def _compare_restarts(self, latents: NDArray[Any], stability: Stability | None = None) -> int:
        """Set `stability_` from the restarts' latents (R, N, n) of held-out rows; return the restart that agrees most.

        A given stability replaces the comparison by MCC.
        """
        if not np.isfinite(latents).all(axis=(1, 2)).any():
            raise FitFailedError("No restart has finite latents. Standardise the data or lower the learning rate.")
        self.stability_ = Stability.of(latents) if stability is None else stability
        self.fit_status_ = self.stability_.status
        if self.fit_status_ == "unstable":
            warn_recovery(
                f"{type(self).__name__}: {len(latents)} restarts agree at {self.stability_.score:.2f} only (stable "
                f"from {THRESHOLDS.stable}). Another random_state gives other latents. See stability_."
            )
        return self.stability_.chosen


def plain_table(X: Any) -> Any:
    """Return X as NumPy or pandas hold it; refuse columns that are not numbers, and names that are not distinct.

    Examples
    --------
    >>> plain_table(pd.DataFrame({"a": [1.0], "b": ["x"]}))
    Traceback (most recent call last):
    identifiable.errors.DataError: Every column must hold numbers; these do not: 'b'. Encode or drop them.
    """
    if isinstance(X, torch.Tensor):
        return X.detach().cpu().numpy()
    if not isinstance(X, pd.DataFrame):
        return X
    names = [str(name) for name in X.columns]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"Column names must be distinct; repeated here: {join_few(repeated)}. Rename them.")
    text = [repr(name) for name, (_, column) in zip(names, X.items(), strict=True) if not _numeric(column)]
    if text:
        raise DataError(f"Every column must hold numbers; these do not: {join_few(text)}. Encode or drop them.")
    return X


def _numeric(column: "pd.Series[Any]") -> bool:
    """Return whether a column holds numbers, in a numeric dtype or as objects."""
    if pd.api.types.is_numeric_dtype(column) or column.dtype != object:
        return bool(pd.api.types.is_numeric_dtype(column))
    return not any(isinstance(value, str) for value in column)


def require_moderate(X: FloatArray, names: Sequence[Any]) -> None:
    """Refuse values whose squares overflow."""
    large = np.abs(X).max(0, initial=0).astype(np.float64) > LARGEST
    if large.any():
        found = join_few([str(name) for name, bad in zip(names, large, strict=True) if bad])
        raise DataError(
            f"Values must lie between -{LARGEST:g} and {LARGEST:g}; larger ones are in: {found}. Rescale these columns "
            "or correct the values."
        )


def resolve_device(device: str) -> torch.device:
    """Return the device that "auto", "cpu", "cuda" or "cuda:1" names, if it is available.

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
            f"device={device!r} is not available: this machine has {torch.cuda.device_count()} CUDA devices. Use "
            "'auto' or 'cpu'."
        )
    return chosen
