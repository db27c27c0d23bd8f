"""`Identify`: a table in; the best identified latents and a report on the reliability of each out."""

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from identifiable.arrays import Array, FloatArray, is_integer, is_real
from identifiable.auto.families import NAMES
from identifiable.auto.images import IMAGES, search_images
from identifiable.auto.preparation import prepare
from identifiable.auto.steps import SearchResult, answers
from identifiable.auto.task import SearchOptions
from identifiable.auto.units import Pixels, Units
from identifiable.auto.verdict import Candidate, LatentReport
from identifiable.data.columns import same_column
from identifiable.errors import DataError, RecoveryWarning, join_few
from identifiable.estimators.base import LatentModel, resolve_device
from identifiable.theory import Certificate
from identifiable.training import time_limit


@dataclass(eq=False, repr=False)
class Identify(LatentModel):
    """Find the best identified latents of a table, and report the reliability of each.

    Parameters
    ----------
    n_latents : int or "auto", default="auto". Number of latents. "auto" counts the principal components above the noise
        level; without such a level and with more than twelve columns, it is the number, up to twenty, of which a linear
        model finds most again in both halves of the rows.
    model : str, default="auto". Name of a family, such as "PDGMM", or "ImageUnmixing". "auto" tries all that make
        sense.
    n_restarts : int or None, default=None. Restarts of models that have them; None: the default of each model.
    seconds : float or None, default=600. Time budget of the fit, in seconds. None disables the limit: every model is
        trained in full, and the fit is deterministic.
    common_scale : bool or "auto", default="auto". Whether columns share one scale, as pixels do; otherwise each is
        standardised. "auto": if only then their variances show a level of noise.
    log : "auto", "none" or a list of columns, default="auto". Columns whose logarithm is used. "auto": those that are
        positive and skewed, if a linear model of the logarithms is likelier on held-out rows.
    ordered : bool or "auto", default="auto". Whether the order of the rows counts, as in a recording. Held-out rows and
        halves are then contiguous. "auto": if a column rises or falls from row to row; it counts as a time.
    image_shape : (height, width[, channels]) or None, default=None. Shape of the images whose pixels are the columns.
        Keypoints (`ImageUnmixing`) are then tried first, unless there is a u, and pixels share one scale.
    n_jobs : int or None, default=-1. Fits that run at the same time, through joblib. -1 uses all cores (one process on
        a GPU); None is 1 unless `joblib.parallel_config` says otherwise, which can also name a Dask cluster.
    random_state, device : see `LatentModel`.
    verbose : int, default=1. 1 prints each step and the time left.

    Attributes
    ----------
    model_ : the selected and fitted estimator, in the units `units_`.
    verdict_ : "identified" (all latents are reproducible, and a theorem whose assumptions were tested guarantees them),
        "reproducible", "partly reproducible", "not reproducible", "not a mixture" (the latents are the columns),
        "Gaussian" (which explains the table as well), "too few rows" or "not enough time" (to confirm the latents).
    reasons_ : why this model and this many latents, a sentence each.
    candidates_ : a `Candidate` for each model that was tried, the selected one first.
    latent_reports_ : a `LatentReport` for each latent.
    n_latents_ : number of latents.
    expected_mcc_ : expected MCC on new rows between this fit and another run on the same table that selects the same
        model.
    units_ : `Units` of the columns, or `Pixels`.
    certificate_ : the `Certificate` of the model.
    stability_, fit_status_ : agreement of its restarts; the lowest verdict of a latent.

    Examples
    --------
    >>> from identifiable.data import make_pdgmm
    >>> x = make_pdgmm(2000, n=4, layers=1, random_state=0).x
    >>> found = Identify(random_state=0, verbose=0).fit(x)
    >>> type(found.model_).__name__, found.verdict_, [t.verdict for t in found.latent_reports_]
    ('SparseUnmixing', 'identified', ['stable', 'stable', 'stable', 'stable'])
    """

    n_latents: int | str = "auto"  # type: ignore[assignment]
    _: KW_ONLY
    model: str = "auto"
    n_restarts: int | None = None  # type: ignore[assignment]
    seconds: float | None = 600.0
    common_scale: bool | str = "auto"
    log: str | Sequence[str] = "auto"
    ordered: bool | str = "auto"
    image_shape: tuple[int, ...] | None = None
    n_jobs: int | None = -1

    model_: LatentModel = field(init=False)
    units_: Units | Pixels = field(init=False)
    candidates_: tuple[Candidate, ...] = field(init=False)
    latent_reports_: tuple[LatentReport, ...] = field(init=False)
    reasons_: tuple[str, ...] = field(init=False)
    verdict_: str = field(init=False)
    n_latents_: int = field(init=False)
    expected_mcc_: float = field(init=False)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the latents of X (N, d), N >= 100; y (N,) or (N, m) is the auxiliary variable u, if there is one."""
        for _ in self._answers(X, y, early=False):
            pass
        return self

    def answers(self, X: ArrayLike, y: Any = None) -> Iterator[Self]:
        """Fit as `fit` does, and yield the fitted estimator twice: after the linear models, and at the end.

        The first answer is early and complete, and "reproducible" at best. Where no trained model makes sense, there
        is one answer only.

        Examples
        --------
        >>> from identifiable.data import make_pdgmm
        >>> x = make_pdgmm(1000, n=3, layers=1, random_state=0).x
        >>> [type(found.model_).__name__ for found in Identify(random_state=0, verbose=0).answers(x)]
        ['SparseUnmixing']
        """
        yield from self._answers(X, y, early=True)

    def _answers(self, X: ArrayLike, y: Any, *, early: bool) -> Iterator[Self]:
        end = time.monotonic() + (np.inf if self.seconds is None else self.seconds)
        self._check_parameters()
        pixels = self.image_shape is not None
        X = self._check_training_data(X, columns_must_vary=not pixels and self.common_scale is not True)
        X = X.astype(np.float64)
        if self.image_shape is not None and math.prod(self.image_shape) != X.shape[1]:
            raise DataError(f"image_shape={self.image_shape} does not fit rows of {X.shape[1]} columns. Correct it.")
        jobs = 1 if resolve_device(self.device).type == "cuda" else self.n_jobs
        options = SearchOptions(self._given, self.model, self.n_restarts, self.device, self.verbose, self._seed(), jobs)
        found = self._search(X, y, options, early=early)
        while True:
            # The limit ends before an answer is yielded: it is not that of the caller.
            with time_limit(end - time.monotonic()), warnings.catch_warnings():
                warnings.simplefilter("ignore", RecoveryWarning)  # reported in reasons_ instead
                answer, units = next(found, (None, None))
            if answer is None or units is None:
                return
            self._set_result(answer, units, X)
            yield self

    def _search(
        self, X: FloatArray, y: Any, options: SearchOptions, *, early: bool
    ) -> Iterator[tuple[SearchResult, Units | Pixels]]:
        """Yield answers with the units in which their models work: keypoints of images, or models of columns."""
        tried: tuple[Candidate, ...] = ()
        reason: tuple[str, ...] = ()
        if self.image_shape is not None and (self.model == IMAGES or (self.model == "auto" and y is None)):
            found, candidate = search_images(X, self.image_shape, options)
            if found is not None:
                yield found, Pixels()
                return
            tried, reason = (candidate,), (f"{IMAGES} was not selected: {candidate.note}.",)
        scale = True if self.image_shape is not None else self.common_scale
        prepared = prepare(X, self._names, log=self.log, common_scale=scale, ordered=self.ordered, n=self._given)
        used = (prepared.units.vectors != 0).any(1)
        search = answers(
            prepared.rows(X),
            y,
            options,
            early=early,
            ordered=prepared.ordered,
            columns=X[:, used],
            coarse=prepared.coarse[used],
            surrogate=None if self.image_shape is not None else prepared.surrogate(X),
        )
        for answer in search:
            reasons = (*reason, *prepared.reasons, *answer.reasons)
            yield replace(answer, candidates=(*answer.candidates, *tried), reasons=reasons), prepared.units

    def _set_result(self, found: SearchResult, units: Units | Pixels, X: FloatArray) -> None:
        fitted: Any = found.model
        self.model_, self.units_ = fitted.model_, units.along(fitted.directions_)
        self.candidates_, self.reasons_, self.verdict_ = found.candidates, found.reasons, found.verdict.fit
        self.n_latents_, self.expected_mcc_ = self.model_._n_features_out, found.expected_mcc
        self.latent_reports_ = self._report(found.verdict.latents, X)
        self.stability_ = self.model_.stability_
        verdicts = [latent.verdict for latent in self.latent_reports_]
        self.fit_status_ = min(verdicts, key=("unstable", "doubtful", "stable").index)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n_latents_) of X (N, d)."""
        X = self._check_new_data(X)
        return np.asarray(self.model_.transform(self._in_units(X))).astype(X.dtype)

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the observations (N, d) of latents Z (N, n_latents_), in the units of the table."""
        Z = self._check_latents(Z)
        return self.units_.back(np.asarray(self.model_.inverse_transform(Z))).astype(Z.dtype)

    def score_samples(self, X: ArrayLike, y: Any = None) -> Array:
        """Return the log-density (N,) of each row of X, or a lower bound of it, in nats and in the units of the table.

        If columns depend on each other, or if the model is given fewer principal components than columns, it is the
        density of the projection of a row, on the surface of the rows that the model can reach (`Units.log_volume`).
        """
        model: Any = self.model_
        Y = self._in_units(self._check_new_data(X))
        return np.asarray(model.score_samples(Y, *(() if y is None else (y,)))) - self.units_.log_volume(Y)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean of `score_samples`."""
        return float(self.score_samples(X, y).mean())

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw rows (n_samples, d) from the model, in the units of the table."""
        check_is_fitted(self)
        model: Any = self.model_
        if not hasattr(model, "sample"):
            name = type(model).__name__
            raise DataError(
                f"{name} does not model how often latents occur, so it has no samples. Use inverse_transform."
            )
        return self.units_.back(np.asarray(model.sample(n_samples, random_state=random_state)))

    @property
    def certificate_(self) -> Certificate | None:
        """What is identified, by which theorem; None for a model without a theorem."""
        return getattr(self.model_, "certificate_", None)

    @property
    def _n_features_out(self) -> int:
        return self.n_latents_

    @property
    def _given(self) -> int | None:
        """The given number of latents; None for "auto"."""
        return None if isinstance(self.n_latents, str) else self.n_latents

    def _in_units(self, X: FloatArray) -> FloatArray:
        if isinstance(self.units_, Pixels):
            return self.units_.into(X)
        low = self.units_.logs & (X <= 0).any(0)
        if low.any():
            names = join_few([repr(name) for name in self._names[low]])
            raise DataError(
                f"Columns whose logarithm is used must be positive: {names} have values of zero or less. Correct or "
                "drop these rows."
            )
        return self.units_.into(X)

    @property
    def _names(self) -> Any:
        default = np.array([f"x{j}" for j in range(self.n_features_in_)], dtype=object)
        return getattr(self, "feature_names_in_", default)

    def _report(self, latents: Sequence[LatentReport], X: FloatArray) -> tuple[LatentReport, ...]:
        """Complete the reports by the share of inactive rows, the block and the effects on columns."""
        model: Any = self.model_
        of_images = isinstance(self.units_, Pixels)
        names, effects = self._names, np.empty((len(latents), 0)) if of_images else self._effects(X)
        equal = np.full(len(latents), -1) if of_images else same_column(self.model_.transform(self.units_.into(X)), X)
        active = (
            model.active(self.units_.into(X)).mean(0) if hasattr(model, "active") else np.full(len(latents), np.nan)
        )
        certificate = self.certificate_
        groups = () if certificate is None else certificate.blocks
        if of_images and model.groups_ is None:  # blocks of an unmixing have no axes, keypoints have
            groups = model.blocks_
        blocks = {i: tuple(block) for block in groups for i in block}
        guaranteed = set() if certificate is None else certificate.guaranteed
        meanings = model.meanings_ if of_images else ("",) * len(latents)
        found = []
        for i, latent in enumerate(latents):
            strongest = np.argsort(-np.abs(effects[i]), kind="stable")
            own: dict[str, Any] = {
                "inactive_share": 1 - float(active[i]),
                "block": blocks.get(i, (i,)),
                "columns": {str(names[j]): float(effects[i, j]) for j in strongest},
                "meaning": meanings[i],
                "column": str(names[equal[i]]) if equal[i] >= 0 else "",
                "guaranteed": i in guaranteed,
            }
            found.append(replace(latent, **own))
        return tuple(found)

    def _effects(self, X: FloatArray) -> Array:
        """Return the effect of each latent on each column (n, d): its lower to its upper decile, in sds of columns."""
        z = np.asarray(self.model_.transform(self.units_.into(X)))
        low, middle, high = np.quantile(z, [0.1, 0.5, 0.9], axis=0)
        moved = [np.where(np.eye(len(middle), dtype=bool), end, middle) for end in (low, high)]
        x = [self.units_.back(np.asarray(self.model_.inverse_transform(at))) for at in moved]
        scale = X.std(0)
        return (x[1] - x[0]) / np.where(scale > 0, scale, 1.0)  # a pixel may be constant

    def _check_parameters(self) -> None:
        free, any_number = self.n_restarts is None, str(self.n_latents) == "auto"
        self._require("n_latents", any_number or is_integer(self.n_latents, 1), "'auto' or an integer >= 1")
        names = NAMES if self.image_shape is None else (*NAMES, IMAGES)
        self._require("model", self.model in ("auto", *names), f"'auto' or one of {', '.join(names)}")
        self._require("n_restarts", free or is_integer(self.n_restarts, 1), "None or an integer >= 1")
        self._require("seconds", self.seconds is None or is_real(self.seconds, 0), "a number > 0 or None")
        for name in ("common_scale", "ordered"):
            value = getattr(self, name)
            self._require(name, isinstance(value, bool) or value == "auto", "True, False or 'auto'")
        self._require("log", not isinstance(self.log, str) or self.log in ("auto", "none"), "'auto', 'none' or a list")
        sizes = self.image_shape
        shaped = isinstance(sizes, tuple) and len(sizes) in (2, 3) and all(is_integer(size, 1) for size in sizes)
        self._require("image_shape", sizes is None or shaped, "None or (height, width[, channels])")
        jobs = self.n_jobs in (None, -1) or is_integer(self.n_jobs, 1)
        self._require("n_jobs", jobs, "None, -1 or an integer >= 1")
        self._require("verbose", is_integer(self.verbose, 0), "an integer >= 0")
        self._check_random_state()
        resolve_device(self.device)
