"""A table in, factors and an account of them out: the best identified latents, and how far to trust each.

`identifiable.auto.search` says how a model is chosen.
"""

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from identifiable.arrays import FloatArray, is_integer, is_real
from identifiable.auto.search import NAMES, Candidate, Search, SearchOptions
from identifiable.data.inspection import LEAST_ROWS, skewed
from identifiable.errors import DataError, RecoveryWarning, join_few
from identifiable.estimators.base import LatentModel, resolve_device
from identifiable.theory import Certificate

RANK = 1e-8  # a direction whose variance is less than this share of the largest does not vary


@dataclass(frozen=True)
class LatentReport:
    """How far one latent is to be trusted.

    Attributes
    ----------
    verdict : "stable", "doubtful" or "unstable": whether it comes back, by the lowest of the next three.
    seed_agreement : |correlation| with the matched latent in refits from other seeds, on held-out rows. Linear models:
        the mean of six refits to all rows. Trained models: one refit to 80 % of the training rows.
    split_half_agreement : the lower |correlation| with the matched latents of two fits to disjoint halves of the rows,
        on rows held out from both. Linear models: the mean over three splits. Each fit chooses its own projection.
    alternative_agreement : mean |correlation| with the matched latents of other acceptable models; NaN without one.
    inactive_share : share of rows in which the latent is inactive; NaN for models without inactive latents.
    block : latents it is known together with only, itself among them.
    columns : what it is tied to: effect on each column, in standard deviations of the column, of moving it from its
        lower to its upper decile, by name, strongest first.
    """

    verdict: str
    seed_agreement: float
    split_half_agreement: float
    alternative_agreement: float
    inactive_share: float
    block: tuple[int, ...]
    columns: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Units:
    """y = ((log) x - mean) / scale @ vectors: columns of one size, and no direction in which nothing varies.

    Attributes
    ----------
    logs : (d,) columns whose logarithm is taken.
    mean, scale : (d,) of the columns, after the logarithm.
    vectors : (d, w) orthonormal directions whose coordinates are used; the identity where these are all.
    """

    logs: NDArray[np.bool_]
    mean: FloatArray
    scale: FloatArray
    vectors: FloatArray

    @classmethod
    def of(cls, X: FloatArray, logs: NDArray[np.bool_], *, common_scale: bool = False) -> "Units":
        """Read the units off rows X (N, d); columns that are `common_scale`, as pixels are, share one scale."""
        y = X.copy()
        y[:, logs] = np.log(y[:, logs])
        mean, scale = y.mean(0), y.std(0)
        if common_scale:
            scale = np.full_like(scale, float(np.sqrt(np.mean(scale**2))))
        standard = (y - mean) / scale
        variances, vectors = np.linalg.eigh(standard.T @ standard / len(y))
        rank = int((variances > RANK * variances[-1]).sum())
        d = X.shape[1]
        return cls(logs, mean, scale, np.eye(d) if rank == d else vectors[:, ::-1][:, :rank].copy())

    def along(self, directions: FloatArray) -> "Units":
        """Return the same units with fewer coordinates: those along these directions (r, w)."""
        return replace(self, vectors=self.vectors @ directions)

    def into(self, X: FloatArray) -> FloatArray:
        """Return rows X (N, d) in these units, (N, w)."""
        y = X.astype(np.float64)
        y[:, self.logs] = np.log(y[:, self.logs])
        return (y - self.mean) / self.scale @ self.vectors

    def back(self, Y: FloatArray) -> FloatArray:
        """Return rows (N, d) in the units of the table."""
        x = Y @ self.vectors.T * self.scale + self.mean
        x[:, self.logs] = np.exp(x[:, self.logs])
        return x


class Identify(LatentModel):
    """Find the best identified latents of a table, and say how far to trust each.

    Parameters
    ----------
    n_latents : how many; "auto": as many as the spectrum of the columns shows; where it falls nowhere and there are
        more than twelve columns, as many as linear methods find alike in both halves of the rows, ten at most.
    model : the name of a family, such as "PDGMM"; "auto": all are tried that make sense.
    n_restarts : of the models that have restarts; None: what each thinks best.
    seconds : time budget of a fit. None: no limit; every model is trained in full, and the fit is deterministic.
    common_scale : whether columns are alike, as pixels are, and share one scale; else each is standardised.
    random_state, device, verbose : as everywhere; verbose=1 tells what is being done.

    Attributes
    ----------
    model_ : the fitted estimator that was taken, in the units `units_`.
    verdict_ : "identified", "doubtful" or "nothing identifiable".
    reasons_ : why this model and this many latents, a sentence each.
    candidates_ : a `Candidate` for each model that was tried, the one that was taken first.
    latent_reports_ : a `LatentReport` for each latent.
    n_latents_ : their number.
    expected_mcc_ : the MCC to expect on new rows between this fit and another run on the same table that chooses the
        same model.
    units_ : `Units` of the columns.
    certificate_ : the `Certificate` of the model.
    stability_, fit_status_ : agreement of its restarts; of all that was seen.

    Examples
    --------
    >>> from identifiable.data import make_pdgmm
    >>> x = make_pdgmm(2000, n=4, layers=1, random_state=0).x
    >>> found = Identify(random_state=0, verbose=0).fit(x)
    >>> type(found.model_).__name__, found.verdict_, [t.verdict for t in found.latent_reports_]
    ('SparseUnmixing', 'identified', ['stable', 'stable', 'stable', 'stable'])
    """

    model_: LatentModel
    units_: Units
    candidates_: tuple[Candidate, ...]
    latent_reports_: tuple[LatentReport, ...]
    reasons_: tuple[str, ...]
    verdict_: str
    n_latents_: int
    expected_mcc_: float

    def __init__(
        self,
        n_latents: int | str = "auto",
        *,
        model: str = "auto",
        n_restarts: int | None = None,
        seconds: float | None = 600.0,
        common_scale: bool = False,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.n_latents = n_latents  # type: ignore[assignment]
        self.model = model
        self.n_restarts = n_restarts  # type: ignore[assignment]
        self.seconds = seconds
        self.common_scale = common_scale
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the latents of X (N, d), N >= 100. y (N,) or (N, m) is the auxiliary variable u, where there is one."""
        start = time.monotonic()
        self._check_parameters()
        X = self._check_training_data(X)
        if len(X) < LEAST_ROWS:
            raise DataError(f"At least {LEAST_ROWS} rows are needed, to hold some out. Got {len(X)}.")
        X = X.astype(np.float64)
        logs = np.zeros(X.shape[1], dtype=bool) if self.common_scale else skewed(X)
        units = Units.of(X, logs, common_scale=self.common_scale)
        asked = SearchOptions(self._asked, self.model, self.n_restarts, self.device, self.verbose)
        left = np.inf if self.seconds is None else self.seconds - (time.monotonic() - start)
        search = Search(asked, units.into(X), y, self._seed(), left)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoveryWarning)  # told in reasons_ instead
            search.run()
        self.model_, self.n_latents_, self.units_ = search.model, search.n, units.along(search.directions)
        self.candidates_, self.reasons_, self.verdict_ = tuple(search.tried), tuple(search.reasons), search.verdict
        self.stability_, self.expected_mcc_ = self.model_.stability_, search.expected
        self.latent_reports_ = self._trust(search, X)
        order = ("unstable", "doubtful", "stable")
        self.fit_status_ = min((t.verdict for t in self.latent_reports_), key=order.index)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n_latents_) of X (N, d)."""
        X = self._check_new_data(X)
        return np.asarray(self.model_.transform(self._in_units(X))).astype(X.dtype)

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the observations (N, d) that latents Z (N, n_latents_) stand for, in the units of the table."""
        Z = self._check_latents(Z)
        return self.units_.back(np.asarray(self.model_.inverse_transform(Z))).astype(Z.dtype)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean log-likelihood of the rows of X in the units `units_`, by the model that was taken."""
        X = self._check_new_data(X)
        return float(self.model_.score(self._in_units(X), *(() if y is None else (y,))))

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw rows (n_samples, d) from the model, in the units of the table."""
        check_is_fitted(self)
        model: Any = self.model_
        return self.units_.back(np.asarray(model.sample(n_samples, random_state=random_state)))

    @property
    def certificate_(self) -> Certificate | None:
        """What is identified, by which theorem, for the model that was taken; None where it has none."""
        return getattr(self.model_, "certificate_", None)

    @property
    def _n_features_out(self) -> int:
        return self.n_latents_

    @property
    def _asked(self) -> int | None:
        """The number of latents that was asked for; None for "auto"."""
        asked: Any = self.n_latents
        return None if str(asked) == "auto" else asked

    def _in_units(self, X: FloatArray) -> FloatArray:
        low = np.flatnonzero((X[:, self.units_.logs] <= 0).any(0))
        if len(low):
            names = join_few([repr(str(n)) for n in np.asarray(_names(self))[self.units_.logs][low]])
            raise DataError(
                f"Columns that were positive in the table must be positive here: {names} have values of zero or less, "
                "and their logarithm is taken. Correct or drop these rows."
            )
        return self.units_.into(X)

    def _trust(self, search: Search, X: FloatArray) -> tuple[LatentReport, ...]:
        model: Any = self.model_
        n, effects, names = self.n_latents_, self._effects(X), _names(self)
        rests = 1 - model.active(self.units_.into(X)).mean(0) if hasattr(model, "active") else np.full(n, np.nan)
        blocks = _blocks(self.certificate_, n)
        found = []
        for i, verdict in enumerate(search.verdicts()):
            tied = {names[j]: float(effects[i, j]) for j in np.argsort(-np.abs(effects[i]), kind="stable")}
            again, halves, rivals, still = (float(e[i]) for e in (search.again, search.halves, search.rivals, rests))
            found.append(LatentReport(verdict, again, halves, rivals, still, blocks[i], tied))
        return tuple(found)

    def _effects(self, X: FloatArray) -> FloatArray:
        """Return the effect of each latent on each column (n, d): its lower to its upper decile, in sds of columns."""
        z = np.asarray(self.model_.transform(self.units_.into(X)))
        low, middle, high = np.quantile(z, [0.1, 0.5, 0.9], axis=0)
        n = z.shape[1]
        at = np.repeat(middle[None], 2 * n, axis=0)
        at[np.arange(n), np.arange(n)], at[n + np.arange(n), np.arange(n)] = low, high
        x = self.units_.back(np.asarray(self.model_.inverse_transform(at)))
        return (x[n:] - x[:n]) / X.std(0)

    def _check_parameters(self) -> None:
        free, any_number = self.n_restarts is None, self._asked is None
        self._require("n_latents", any_number or is_integer(self.n_latents, 1), "'auto' or an integer >= 1")
        self._require("model", self.model == "auto" or self.model in NAMES, f"'auto' or one of {', '.join(NAMES)}")
        self._require("n_restarts", free or is_integer(self.n_restarts, 1), "None or an integer >= 1")
        self._require("seconds", self.seconds is None or is_real(self.seconds, 0), "a number > 0 or None")
        self._require("common_scale", isinstance(self.common_scale, bool), "True or False")
        self._require("verbose", is_integer(self.verbose, 0), "an integer >= 0")
        resolve_device(self.device)


def _names(model: Identify) -> list[str]:
    return [str(n) for n in getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])]


def _blocks(certificate: Certificate | None, n: int) -> list[tuple[int, ...]]:
    """Return the latents each one is known together with only."""
    own: list[tuple[int, ...]] = [(i,) for i in range(n)]
    for block in () if certificate is None else certificate.blocks:
        for i in block:
            own[i] = tuple(block)
    return own
