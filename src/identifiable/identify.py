"""A table in, factors and an account of them out: which model, how many latents, and how far to trust each.

No truth is asked for. What decides:

1. A single Gaussian has no axes. If no model explains held-out rows better than it, nothing can be identified.
2. Linear models come first. Where all latents rest exactly on flats, which no other mixing makes by accident, or where
   a nonlinear model explains held-out rows no better, the linear one is taken.
3. Among nonlinear ones the better held-out log-likelihood wins; where these are close, the simpler one. Latents that
   rest have densities without a bound, so a model in which they rest, and whose restarts agree, need not be as close.
   One whose own restarts disagree does not count.
4. The one that is taken is fitted again: from another seed, and to two halves of the rows. Each latent is judged by
   whether it comes back.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from scipy.stats import multivariate_normal
from sklearn.utils.validation import check_is_fitted

from identifiable.certify import Certificate
from identifiable.data.look import LEAST_ROWS, skewed
from identifiable.data.sample import FloatArray
from identifiable.errors import DataError, FitFailedError, OutOfTimeError, RecoveryWarning, listed
from identifiable.estimators import (
    PDGMM,
    FactorialUnmixing,
    GMMFlow,
    IFlow,
    SegmentUnmixing,
    SparseUnmixing,
)
from identifiable.estimators._pdgmm_training import steps_for
from identifiable.estimators.base import LatentModel, hold_out, is_integer, is_real, resolve_device
from identifiable.metrics import match
from identifiable.restarts import DOUBTFUL, STABLE, judge
from identifiable.train import time_limit

MOST_LATENTS = 10  # that are looked for without being asked
GAP, FLAT = 10.0, 5.0  # by which variances must fall to tell latents from noise; by which those of noise may differ
FAR = 1000.0  # a fall that needs no second direction of noise to be believed
CLOSE = 0.05  # of the gain over a Gaussian: nonlinear models nearer than this are not told apart by it
FURTHER = 0.25  # the same, for a model in which latents rest and whose restarts agree
CERTAIN = 3.0  # standard errors by which a model must explain rows better than a Gaussian
HELD = 0.2  # of the rows, at most 1000
LEAST_GAIN = 0.01  # nats a row
RANK = 1e-8  # a direction whose variance is less than this share of the largest does not vary
CONFIRMING = 3  # fits of the model that is taken, after all were tried
LATE = "there is not the time to train it"
SAMPLED = (0.01, 0.03)  # of the steps, to see how long all would take
LEAST_STEPS = 0.2  # of the steps: with fewer, a fit says little


@dataclass(frozen=True)
class Family:
    """A kind of model: what it is made for, in words, how to build it, and its steps of training for n latents."""

    name: str
    says: str
    build: Callable[..., LatentModel]
    given_u: bool = False
    steps: Callable[[int], Mapping[str, int]] | None = None

    @property
    def linear(self) -> bool:
        """Whether its mixing is affine; it then needs no training."""
        return self.steps is None


FAMILIES = (
    Family("SparseUnmixing", "an affine mixture of latents that rest now and then", SparseUnmixing),
    Family("FactorialUnmixing", "an affine mixture of latents in hidden clusters", FactorialUnmixing),
    Family("SegmentUnmixing", "an affine mixture of latents that change with u", SegmentUnmixing, given_u=True),
    Family(
        name="IFlow",
        says="a nonlinear mixture of latents that change with u",
        build=IFlow,
        given_u=True,
        steps=lambda n: {"max_steps": 3000},
    ),
    Family(
        name="PDGMM",
        says="a nonlinear mixture of latents that rest now and then",
        build=partial(PDGMM, long=False),
        steps=lambda n: {"max_steps": steps_for(n)},
    ),
    Family(
        name="GMMFlow",
        says="a nonlinear mixture of latents in hidden clusters",
        build=GMMFlow,
        steps=lambda n: {"free_steps": 2500, "max_steps": 2500},
    ),
)
NAMES = tuple(family.name for family in FAMILIES)


@dataclass(frozen=True)
class Tried:
    """A model that was tried.

    Attributes
    ----------
    name, says : the model, and what it takes the data for.
    linear, given_u : whether its mixing is affine; whether it was given u.
    gain, error : mean log-likelihood of held-out rows above that of a Gaussian, in nats a row, and its standard error.
    agreement : of its restarts on held-out rows; NaN where nothing about it is random.
    seconds : that it took.
    note : why it does not count; "" where it does.
    """

    name: str
    says: str
    linear: bool
    given_u: bool
    gain: float = np.nan
    error: float = np.nan
    agreement: float = np.nan
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Trust:
    """How far one latent is to be trusted.

    Attributes
    ----------
    verdict : "stable", "doubtful" or "unstable": whether it comes back, by the lower of the next two.
    again : |correlation| with its partner in a fit from another seed, on rows neither has seen.
    halves : the lower of its |correlations| with its partners in fits to two halves of the rows, likewise.
    rests : share of rows in which it rests; NaN for models in which none does.
    block : latents it is known together with only, itself among them.
    columns : what it is tied to: effect on each column, in standard deviations of the column, of moving it from its
        lower to its upper decile, by name, strongest first.
    """

    verdict: str
    again: float
    halves: float
    rests: float
    block: tuple[int, ...]
    columns: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Units:
    """y = ((log) x - mean) / scale @ vectors: columns of one size, and no direction in which nothing varies.

    Attributes
    ----------
    logs : (d,) columns whose logarithm is taken.
    mean, scale : (d,) of the columns, after the logarithm.
    vectors : (d, r) orthonormal directions in which the rows vary; the identity where these are all.
    """

    logs: NDArray[np.bool_]
    mean: FloatArray
    scale: FloatArray
    vectors: FloatArray

    @classmethod
    def of(cls, X: FloatArray, logs: NDArray[np.bool_]) -> "Units":
        """Read the units off rows X (N, d)."""
        y = X.copy()
        y[:, logs] = np.log(y[:, logs])
        mean, scale = y.mean(0), y.std(0)
        standard = (y - mean) / scale
        variances, vectors = np.linalg.eigh(standard.T @ standard / len(y))
        rank = int((variances > RANK * variances[-1]).sum())
        d = X.shape[1]
        return cls(logs, mean, scale, np.eye(d) if rank == d else vectors[:, ::-1][:, :rank].copy())

    def into(self, X: FloatArray) -> FloatArray:
        """Return rows X (N, d) in these units, (N, r)."""
        y = X.astype(np.float64)
        y[:, self.logs] = np.log(y[:, self.logs])
        rows: FloatArray = (y - self.mean) / self.scale @ self.vectors
        return rows

    def back(self, Y: FloatArray) -> FloatArray:
        """Return rows (N, d) in the units of the table."""
        x = Y @ self.vectors.T * self.scale + self.mean
        x[:, self.logs] = np.exp(x[:, self.logs])
        rows: FloatArray = x
        return rows


class Identify(LatentModel):
    """Find the best identified latents of a table, and say how far to trust each.

    Parameters
    ----------
    n_latents : how many; "auto": as many as the spectrum of the columns shows, ten at most where it does not fall.
    model : the name of a family, such as "PDGMM"; "auto": all are tried that make sense.
    n_restarts : of the models that have restarts; None: what each thinks best.
    seconds : that a fit may take.
    random_state, device, verbose : as everywhere; verbose=1 tells what is being done.

    Attributes
    ----------
    model_ : the fitted estimator that was taken, in the units `units_`.
    verdict_ : "identified", "doubtful" or "nothing identifiable".
    reasons_ : why this model and this many latents, a sentence each.
    tried_ : a `Tried` for each model that was tried, the one that was taken first.
    trust_ : a `Trust` for each latent.
    n_latents_ : their number.
    units_ : `Units` of the columns.
    certificate_ : the `Certificate` of the model.
    stability_, fit_status_ : agreement of its restarts; of all that was seen.

    Examples
    --------
    >>> from identifiable.data import make_pdgmm
    >>> x = make_pdgmm(2000, n=4, layers=1, random_state=0).x
    >>> found = Identify(random_state=0, verbose=0).fit(x)
    >>> type(found.model_).__name__, found.verdict_, [t.verdict for t in found.trust_]
    ('SparseUnmixing', 'identified', ['stable', 'stable', 'stable', 'stable'])
    """

    model_: LatentModel
    units_: Units
    tried_: tuple[Tried, ...]
    trust_: tuple[Trust, ...]
    reasons_: tuple[str, ...]
    verdict_: str
    n_latents_: int

    def __init__(
        self,
        n_latents: int | str = "auto",
        *,
        model: str = "auto",
        n_restarts: int | None = None,
        seconds: float = 600.0,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.n_latents = n_latents  # type: ignore[assignment]
        self.model = model
        self.n_restarts = n_restarts  # type: ignore[assignment]
        self.seconds = seconds
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the latents of X (N, d), N >= 100. y (N,) or (N, m) is the auxiliary variable u, where there is one."""
        self._check_parameters()
        X = self._check_training_data(X)
        if len(X) < LEAST_ROWS:
            raise DataError(f"At least {LEAST_ROWS} rows are needed, to hold some out. Got {len(X)}.")
        X = X.astype(np.float64)
        seed = self._seed()
        self.units_ = Units.of(X, skewed(X))
        search = _Search(self, self.units_.into(X), y, seed, time.monotonic() + self.seconds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoveryWarning)  # told in reasons_ instead
            search.run()
        self.model_, self.n_latents_ = search.model, search.n
        self.tried_, self.reasons_, self.verdict_ = tuple(search.tried), tuple(search.reasons), search.verdict
        self.stability_ = self.model_.stability_
        self.trust_ = tuple(search.trust(self._effects(X)))
        order = ("unstable", "doubtful", "stable")
        self.fit_status_ = min((t.verdict for t in self.trust_), key=order.index)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n_latents_) of X (N, d)."""
        X = self._check_new_data(X)
        z: FloatArray = np.asarray(self.model_.transform(self._in_units(X))).astype(X.dtype)
        return z

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
            names = listed([repr(str(n)) for n in np.asarray(_names(self))[self.units_.logs][low]])
            raise DataError(
                f"Columns that were positive in the table must be positive here: {names} have values of zero or less, "
                "and their logarithm is taken. Correct or drop these rows."
            )
        return self.units_.into(X)

    def _effects(self, X: FloatArray) -> FloatArray:
        """Return the effect of each latent on each column (n, d): its lower to its upper decile, in sds of columns."""
        z = np.asarray(self.model_.transform(self.units_.into(X)))
        low, middle, high = np.quantile(z, [0.1, 0.5, 0.9], axis=0)
        n = z.shape[1]
        at = np.repeat(middle[None], 2 * n, axis=0)
        at[np.arange(n), np.arange(n)], at[n + np.arange(n), np.arange(n)] = low, high
        x = self.units_.back(np.asarray(self.model_.inverse_transform(at)))
        effects: FloatArray = (x[n:] - x[:n]) / X.std(0)
        return effects

    def _check_parameters(self) -> None:
        free, any_number = self.n_restarts is None, self._asked is None
        self._require("n_latents", any_number or is_integer(self.n_latents, 1), "'auto' or an integer >= 1")
        self._require("model", self.model == "auto" or self.model in NAMES, f"'auto' or one of {', '.join(NAMES)}")
        self._require("n_restarts", free or is_integer(self.n_restarts, 1), "None or an integer >= 1")
        self._require("seconds", is_real(self.seconds, 0), "a number > 0")
        self._require("verbose", is_integer(self.verbose, 0), "an integer >= 0")
        resolve_device(self.device)


def _names(model: Identify) -> list[str]:
    return [str(n) for n in getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])]


class _Search:
    """The way to a choice: what was tried, and what it is taken for."""

    def __init__(self, asked: Identify, Y: FloatArray, u: Any, seed: int, end: float) -> None:
        self.asked, self.Y, self.seed, self.end = asked, Y, seed, end
        self.u: Any = None if u is None else u if hasattr(u, "iloc") else np.asarray(u)
        if self.u is not None and len(self.u) != len(Y):
            raise DataError(f"u must have one row per row of X: X has {len(Y)}, u has {len(self.u)}.")
        train, self.held = hold_out(len(Y), seed, fraction=HELD)
        self.train = np.random.default_rng(seed + 1).permutation(train)
        self.gaussian = _gaussian(Y[self.train], Y[self.held])
        self.tried: list[Tried] = []
        self.models: dict[str, LatentModel] = {}
        self.gains: dict[str, FloatArray] = {}  # of every held-out row
        self.reasons: list[str] = []
        self.steps: dict[str, Mapping[str, int]] = {}
        self.again: FloatArray | None = None
        self.halves: FloatArray | None = None

    def run(self) -> None:
        """Try what makes sense, take one, and fit it again."""
        self.n = self._number()
        families = self._families()
        for family in (f for f in families if f.linear):
            self._try(family)
        trained = [] if self._is_exact() else [f for f in families if not f.linear]
        self.turn = (self.end - time.monotonic()) / (len(trained) + CONFIRMING)  # seconds of a fit
        for family in trained:
            self._try(family)
        chosen = self._choose()
        self.tried.sort(key=lambda t: t.name != chosen)
        self.model = self.models[chosen]
        self._confirm(next(f for f in FAMILIES if f.name == chosen))
        self._judge()

    def _families(self) -> list[Family]:
        if self.asked.model != "auto":
            family = next(f for f in FAMILIES if f.name == self.asked.model)
            if family.given_u and self.u is None:
                raise DataError(f"{family.name} needs the auxiliary variable u: pass it as y.")
            return [family]
        return [f for f in FAMILIES if self.u is not None or not f.given_u]

    def _number(self) -> int:
        """Choose the number of latents: up to where the spectrum falls."""
        r, n = int(self.Y.shape[1]), self.asked._asked
        if n is not None:
            if n > r:
                raise DataError(f"n_latents={n}, but the columns vary in {r} directions only. Lower n_latents.")
            return n
        variances = np.linalg.eigvalsh(np.atleast_2d(np.cov(self.Y[self.train].T)))[::-1]
        few = _fall(variances)
        if few is not None:
            self.reasons.append(
                f"{few} latents: the variances of the principal directions fall by a factor of "
                f"{variances[few - 1] / variances[few]:.3g} after the first {few}, to the level of noise."
            )
            return few
        n = min(r, MOST_LATENTS)
        if n < r:
            self.reasons.append(
                f"{n} latents, the most that are looked for without being asked: the columns vary in {r} directions, "
                "and their variances fall nowhere by much."
            )
        else:
            self.reasons.append(f"{n} latents: the columns vary in {n} directions, none of which is noise alone.")
        return n

    def _try(self, family: Family) -> None:
        start = time.monotonic()
        self._say(f"trying {family.name}: {family.says}")
        tried = Tried(family.name, family.says, family.linear, family.given_u)
        try:
            if not family.linear:
                self.steps[family.name] = self._paced(family)
            model = self._fit(family, self.train, self.seed)
            gain = self._scores(family, model) - self.gaussian
            agreement = model.stability_.score
            if np.isfinite(gain).all():
                error = float(gain.std() / len(gain) ** 0.5)
                tried = replace(tried, gain=float(gain.mean()), error=error, agreement=agreement)
                self.models[family.name], self.gains[family.name] = model, gain
            else:
                tried = replace(tried, note="its likelihood of held-out rows is not finite")
        except OutOfTimeError:
            tried = replace(tried, note=LATE)
        except (FitFailedError, DataError) as error:
            tried = replace(tried, note=str(error))
        self.tried.append(replace(tried, seconds=time.monotonic() - start))

    def _paced(self, family: Family) -> Mapping[str, int]:
        """Return steps of training that its turn has time for: all, or fewer."""
        assert family.steps is not None
        usual = family.steps(self.n)
        seconds = []
        for share in SAMPLED:
            start = time.monotonic()
            with time_limit(self.turn):
                self._built(family, _part(usual, share), self.seed).fit(*self._rows(family, self.train))
            seconds.append(time.monotonic() - start)
            if seconds[0] / share < self.turn:
                return usual
        slope = max((seconds[1] - seconds[0]) / (SAMPLED[1] - SAMPLED[0]), 1e-9)  # seconds of all steps
        share = (self.turn - max(seconds[0] - SAMPLED[0] * slope, 0.0)) / slope
        if share < LEAST_STEPS:
            raise OutOfTimeError(LATE)
        return _part(usual, min(1.0, share))

    def _built(self, family: Family, steps: Mapping[str, int], seed: int) -> LatentModel:
        options: dict[str, Any] = {"random_state": seed, "device": self.asked.device, "verbose": 0, **steps}
        if self.asked.n_restarts is not None:
            options["n_restarts"] = self.asked.n_restarts
        return family.build(self.n, **options)

    def _fit(self, family: Family, rows: NDArray[np.int64], seed: int) -> LatentModel:
        """Fit a family to these rows, in the time that is left."""
        with time_limit(self.end - time.monotonic()):
            return self._built(family, self.steps.get(family.name, {}), seed).fit(*self._rows(family, rows))

    def _rows(self, family: Family, rows: NDArray[np.int64]) -> tuple[Any, ...]:
        return (self.Y[rows], self._take_u(rows)) if family.given_u else (self.Y[rows],)

    def _scores(self, family: Family, model: Any) -> FloatArray:
        scores: FloatArray = np.asarray(model.score_samples(*self._rows(family, self.held)))
        return scores

    def _take_u(self, rows: NDArray[np.int64]) -> Any:
        return self.u.iloc[rows] if hasattr(self.u, "iloc") else self.u[rows]

    def _is_exact(self) -> bool:
        """Whether all latents rest exactly on flats, as they do after an affine mixing and no other."""
        sparse: Any = self.models.get("SparseUnmixing")
        return sparse is not None and sparse.n_found_ == self.n

    def _choose(self) -> str:
        valid = [t for t in self.tried if np.isfinite(t.gain)]
        if not valid:
            notes = listed([f"{t.name}: {t.note}" for t in self.tried], "; ")
            raise FitFailedError(f"No model could be fitted. {notes}.")
        top = max(valid, key=lambda t: t.gain)
        self.nothing = top.gain <= max(CERTAIN * top.error, LEAST_GAIN)
        if self.nothing:
            self.reasons.append(
                f"Nothing identifiable: no model explains held-out rows better than a single Gaussian (the best, "
                f"{top.name}, by {top.gain:+.3f} ± {top.error:.3f} nats a row), and a Gaussian has no axes of its own."
            )
            return top.name
        if self._is_exact():
            self.reasons.append(
                f"SparseUnmixing: all {self.n} latents rest exactly on flats in many rows. Affine mixtures do this; "
                "nonlinear ones do not, so none was tried."
            )
            return "SparseUnmixing"
        late = [t.name for t in self.tried if t.note == LATE]
        if late:
            self.reasons.append(f"Not tried, as there was not the time to train it: {', '.join(late)}. Give it more.")
        sure = [t for t in valid if not t.agreement < DOUBTFUL] or valid
        best = max(sure, key=lambda t: t.gain)
        if best is not top:
            self.reasons.append(
                f"{top.name} explains held-out rows best ({top.gain:+.2f} nats a row above a Gaussian), but its "
                f"restarts agree at {top.agreement:.2f} only."
            )
        linear = [t for t in sure if t.linear and self._explains_as_well(t, best)]
        close = [t for t in sure if t.linear == best.linear and t.gain >= (1 - _slack(t)) * best.gain]
        order = [f.name for f in FAMILIES]
        chosen = max(linear, key=lambda t: t.gain) if linear else min(close, key=lambda t: order.index(t.name))
        self.reasons.append(_why(chosen, best, [t for t in close if t is not chosen]))
        return chosen.name

    def _explains_as_well(self, one: Tried, best: Tried) -> bool:
        """Whether what is missing to the best, row by row, is within its error, or too little to count."""
        less = self.gains[best.name] - self.gains[one.name]
        return bool(less.mean() <= max(2 * less.std() / len(less) ** 0.5, LEAST_GAIN))

    def _confirm(self, family: Family) -> None:
        """Fit the chosen family from another seed, and to two halves."""
        z = self.model.transform(self.Y[self.held])
        one, other = np.array_split(self.train, 2)
        self._say(f"fitting {family.name} again: from another seed, and to both halves of the rows")
        found: list[FloatArray | None] = []
        for part, seed in ((self.train, 1), (one, 2), (other, 3)):
            try:
                model = self._fit(family, part, self.seed + seed)
                found.append(np.abs(match(z, model.transform(self.Y[self.held])).correlations))
            except (OutOfTimeError, FitFailedError, DataError) as error:
                self.reasons.append(f"One of the fits that confirm it did not end well: {error}")
                found.append(None)
        self.again = found[0]
        halves = [h for h in found[1:] if h is not None]
        self.halves = np.min(halves, axis=0) if len(halves) == 2 else None

    def _judge(self) -> None:
        lowest = self._lowest()
        if self.nothing:
            self.verdict = "nothing identifiable"
        elif np.isnan(lowest).any() or judge(float(lowest.min())) != "stable":
            unchecked = np.isnan(lowest).any()
            self.verdict = "doubtful" if unchecked or (lowest >= DOUBTFUL).any() else "nothing identifiable"
            come_back = int((lowest >= STABLE).sum())
            self.reasons.append(f"{come_back} of {self.n} latents come back in other fits.")
        else:
            self.verdict = "identified"
            self.reasons.append("Every latent comes back from another seed and from half of the rows.")

    def _lowest(self) -> FloatArray:
        each = [part if part is not None else np.full(self.n, np.nan) for part in (self.again, self.halves)]
        lowest: FloatArray = np.min(each, axis=0)
        return lowest

    def trust(self, effects: FloatArray) -> Iterator[Trust]:
        """Yield what is known of each latent."""
        model: Any = self.model
        rests = 1 - model.active(self.Y).mean(0) if hasattr(model, "active") else np.full(self.n, np.nan)
        blocks = _blocks(getattr(model, "certificate_", None), self.n)
        again, halves = (p if p is not None else np.full(self.n, np.nan) for p in (self.again, self.halves))
        names = _names(self.asked)
        for i, lowest in enumerate(self._lowest()):
            verdict = "unstable" if self.nothing or np.isnan(lowest) else judge(float(lowest))
            order = np.argsort(-np.abs(effects[i]), kind="stable")
            tied = {names[j]: float(effects[i, j]) for j in order}
            yield Trust(verdict, float(again[i]), float(halves[i]), float(rests[i]), blocks[i], tied)

    def _say(self, words: str) -> None:
        if self.asked.verbose:
            left = max(0.0, self.end - time.monotonic())
            Console(stderr=True).print(f"{words} ({left:.0f} s left)", highlight=False, markup=False)


def _slack(tried: Tried) -> float:
    """Return by how much of a gain a model may be behind and still be close.

    Where latents rest exactly, densities have no bound: what a mixture gains by ever narrower components is no sign
    that it is right, and a model in which latents rest, and whose restarts agree, may be further behind.
    """
    return FURTHER if tried.name == "PDGMM" and tried.agreement >= STABLE else CLOSE


def _why(chosen: Tried, best: Tried, others: Sequence[Tried]) -> str:
    words = f"{chosen.name}, {chosen.says}: {chosen.gain:+.2f} nats a row above a single Gaussian on held-out rows"
    if chosen.linear and not best.linear:
        return f"{words}. A nonlinear model, {best.name}, explains them hardly better ({best.gain:+.2f})."
    if others:
        near = listed([f"{t.name} {t.gain:+.2f}" for t in others])
        if chosen.name == "PDGMM":
            return f"{words}; {near}: where latents rest, densities have no bound, and a little more says little."
        return f"{words}; {near} is close, and what is simpler comes first."
    return f"{words}, more than any other."


def _fall(variances: FloatArray) -> int | None:
    """Return after how many directions the variances fall to a level of noise: far, and flat from there on.

    Examples
    --------
    >>> _fall(np.array([3.0, 2.0, 1.0, 0.02, 0.01])), _fall(np.array([3.0, 2.0, 1.0, 0.02])), _fall(np.ones(4))
    (3, None, None)
    """
    for k in (variances[:-1] / variances[1:]).argsort()[::-1] + 1:
        fall, rest = variances[k - 1] / variances[k], variances[k:]
        if fall >= FAR or (fall >= GAP and len(rest) > 1 and rest[0] <= FLAT * rest[-1]):
            return int(k)
    return None


def _part(steps: Mapping[str, int], share: float) -> dict[str, int]:
    return {name: max(20, round(share * count)) for name, count in steps.items()}


def _gaussian(train: FloatArray, held: FloatArray) -> FloatArray:
    """Return the log-density of held-out rows under the Gaussian of the training rows."""
    scores: FloatArray = np.asarray(
        multivariate_normal(train.mean(0), np.cov(train.T), allow_singular=True).logpdf(held)
    )
    return scores


def _blocks(certificate: Certificate | None, n: int) -> list[tuple[int, ...]]:
    """Return the latents each one is known together with only."""
    own: list[tuple[int, ...]] = [(i,) for i in range(n)]
    for block in () if certificate is None else certificate.blocks:
        for i in block:
            own[i] = tuple(block)
    return own
