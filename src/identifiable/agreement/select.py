"""Which latents to believe, without labels: agreement between runs and between halves, and a choice among estimators.

Latents that are identified come back: from another seed, from other rows, in other coordinates. Agreement is necessary
for recovery, not sufficient: a method that always ends at the same wrong answer agrees with itself.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dct
from sklearn.base import clone
from sklearn.utils import check_random_state

from identifiable.agreement.stability import DOUBTFUL, STABLE, Stability, distances_of, judge
from identifiable.arrays import FloatArray, hold_out
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError, FitFailedError, RecoveryWarning
from identifiable.metrics import Matching, match

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_ROWS = 100  # ten of them are held out
MOST_COMPONENTS = 10  # of mixtures that are compared without being asked for: up to 3 s a pair
TIE = 0.005  # agreements closer than this are not told apart
MEASURES = ["agreement", "halves", "remixed"]
_Seed = int | np.random.RandomState | None


@dataclass(frozen=True, eq=False)
class SplitHalf:
    """How far fits on two disjoint halves of the data agree; necessary for recovery, not sufficient.

    Attributes
    ----------
    score : mean of |correlations|, the MCC.
    correlations : (n,) signed correlation of each latent with its partner in the other fit, on held-out rows; 0 where
        it has none. If one fit has more latents, n is their number.
    models : the two fitted estimators.
    """

    score: float
    correlations: FloatArray
    models: tuple[Any, Any]

    @property
    def status(self) -> str:
        """Return "stable", "doubtful" or "unstable", by the thresholds of `Stability`."""
        return judge(self.score)

    def __repr__(self) -> str:
        name, weakest = type(self.models[0]).__name__, np.abs(self.correlations).min()
        return (
            f"SplitHalf({name}: {self.score:.3f}, {self.status}; {len(self.correlations)} latents, the weakest at "
            f"{weakest:.3f}; necessary for recovery, not sufficient)"
        )


@dataclass(frozen=True, eq=False)
class Choice:
    """The estimator whose latents come back most surely, and the table it was chosen from.

    Attributes
    ----------
    table : a row per candidate, the best first: name, agreement, status, seconds, latents (their number), and the tests
        behind the status, NaN where not needed: halves, remixed. The status judges the lowest of the three numbers.
    best, best_estimator : name of the best, and its fit on the rows that were not held out.
    tied : candidates that agree as well as the best: agreement does not decide between them.
    """

    table: pd.DataFrame
    best: str
    best_estimator: Any
    tied: tuple[str, ...]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the number each candidate is judged by and the two thresholds; return the axes (`.figure` to save)."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        if ax is None:
            figure = Figure(figsize=(6.4, 0.4 * len(self.table) + 1.2), layout="constrained")
            FigureCanvasAgg(figure)
            ax = figure.subplots()
        colours = {"stable": "#4292c6", "doubtful": "#9ecae1", "unstable": "#deebf7", "failed": "#deebf7"}
        values = self.table[MEASURES].min(axis=1).fillna(0.0).tolist()
        ax.barh(range(len(values)), values, color=[colours[s] for s in self.table["status"]])
        for place, (value, status) in enumerate(zip(values, self.table["status"], strict=True)):
            words = status if status == "failed" else f"{value:.3f}  {status}"
            ax.text(1.02, place, words, transform=ax.get_yaxis_transform(), va="center", fontsize=8)
        for threshold, style in ((DOUBTFUL, ":"), (STABLE, "--")):
            ax.axvline(threshold, color="0.2", linestyle=style, linewidth=1)
        ax.set_yticks(range(len(values)), self.table["name"].tolist(), fontsize=9)
        ax.set(xlim=(0, 1), xlabel=f"agreement (doubtful from {DOUBTFUL:.2f}, stable from {STABLE:.2f})")
        ax.invert_yaxis()
        return ax

    def __repr__(self) -> str:
        others = f"; tied with {', '.join(map(repr, self.tied))}" if self.tied else ""
        table = self.table.to_string(index=False, float_format="{:.3f}".format, na_rep="")
        return f"Choice({self.best!r}{others}; agreement is necessary for recovery, not sufficient)\n{table}"


def split_half_agreement(estimator: Any, X: ArrayLike, u: Any = None, *, random_state: _Seed = None) -> SplitHalf:
    r"""Fit an estimator on two disjoint halves A, B of the rows, and compare it on rows H that neither has seen.

    .. math:: \max_\pi \frac{1}{n} \sum_{i=1}^{n} \left|\mathrm{corr}(f_A(H)_i, f_B(H)_{\pi(i)})\right|

    Rows and seeds both differ, so this finds what restarts on the same rows cannot: latents that are an accident of
    the sample. Latents that are not finite agree with none.

    Parameters
    ----------
    estimator : any estimator with fit and transform. It is cloned, and its seeds are replaced.
    X : (N, d) array or DataFrame, N >= 100. A tenth of the rows, at most 1000, is held out.
    u : (N,) or (N, m) the auxiliary variable, given to `fit` beside X; None: there is none.
    random_state : decides the rows and the seeds.

    Examples
    --------
    >>> from identifiable import SparseUnmixing
    >>> from identifiable.data import make_pdgmm
    >>> x = make_pdgmm(2000, n=5, layers=1, random_state=0).x  # layers=1: an affine mixing
    >>> split_half_agreement(SparseUnmixing(), x, random_state=0)
    SplitHalf(SparseUnmixing: 1.000, stable; 5 latents, the weakest at 1.000; necessary for recovery, not sufficient)
    """
    return _Rows.of(X, random_state, u).halves(estimator)


def stability(
    runs: Sequence[Any] | NDArray[Any],
    X: ArrayLike | None = None,
    *,
    distances: bool | Literal["auto"] = "auto",
    random_state: _Seed = None,
) -> Stability:
    r"""Compare runs, whatever made them, on the same rows: latent by latent, up to an affine map, and as mixtures.

    .. math:: \mathrm{MCC}(f_r(X), f_s(X)), \quad \mathrm{MCC}(A f_r(X'), B f_s(X')), \quad
        \min_{C \text{ affine}} \Delta(C_\# p_r, p_s) \qquad \text{for all } r, s,

    the canonical directions A, B fitted on a random half of X and scored on the other, X'. A low strong MCC with a high
    weak one says: the same span, other axes (Kivva et al. 2022, App. J.1). As many latents as columns, linear in X,
    always have the same span.

    Parameters
    ----------
    runs : fitted estimators with transform, or the latents they found: an array (R, N, n) or tables (N, n_r). A latent
        that one of two runs lacks counts 0, and so does one that is constant; a run that is not finite agrees with
        none.
    X : (N, d) array or DataFrame of rows to compare on, best such that no run was fitted to; None with latents.
    distances : whether to compare the laws `run.mixture_` of the latents. "auto": where every run has one, in the
        coordinates of its latents, of one dimension, with covariances of full rank (where a latent rests in a
        component, the density has no L2 norm) and at most 10 components: a pair takes up to 3 s, with 30 of them 14 s.
    random_state : decides the half.

    Examples
    --------
    >>> from identifiable import SparseUnmixing
    >>> from identifiable.data import make_pdgmm
    >>> x = make_pdgmm(3000, n=5, layers=1, random_state=0).x  # layers=1: an affine mixing
    >>> runs = [SparseUnmixing(5, random_state=seed).fit(x[:2000]) for seed in range(3)]
    >>> stability(runs, x[2000:], random_state=0).pairwise.round(3)
    array([[1., 1., 1.],
           [1., 1., 1.],
           [1., 1., 1.]])
    """
    if not (isinstance(distances, bool) or distances == "auto"):
        raise DataError(f"distances must be True, False or 'auto', got {distances!r}.")
    listed = isinstance(runs, Sequence | np.ndarray) and not hasattr(runs, "transform")
    if not listed or len(runs) < 2:
        raise DataError(
            f"stability compares at least two runs, got {len(runs) if listed else f'a {type(runs).__name__}'}: pass "
            "[one, two, ...]. The restarts of one estimator are compared in its stability_."
        )
    latents = [_latents_of(run, X, f"runs[{r}]") for r, run in enumerate(runs)]
    rows = {f"runs[{r}]": len(z) for r, z in enumerate(latents)} | ({} if X is None else {"X": np.shape(X)[0]})
    if len(set(rows.values())) > 1:
        found = ", ".join(f"{name} has {n}" for name, n in rows.items())
        raise DataError(f"Runs are compared on the same rows, got: {found}. Pass the latents of the same rows.")
    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max - 1))
    compared = Stability.of(latents, seed=seed)
    mixtures = [] if distances is False else _laws_of(runs, latents, at_any_cost=distances is True)
    try:
        return replace(compared, distances=distances_of(mixtures, seed)) if mixtures else compared
    except DataError:  # singular covariances, or other dimensions
        if distances is True:
            raise
        return compared


def choose(
    candidates: Mapping[str, Any] | Sequence[Any], X: ArrayLike, u: Any = None, *, random_state: _Seed = None
) -> Choice:
    r"""Choose the estimator whose latents come back most surely; no truth is asked for.

    Each candidate is fitted and ranked by the agreement of its restarts, `stability_.score`. Restarts on the same rows
    may agree on an accident of these rows, so the leaders are confirmed by `split_half_agreement`. A candidate with one
    restart, or with nothing random, has its halves only, and repeats one of them in other coordinates:

    .. math:: \min\{\mathrm{MCC}(f_A(H), f_B(H)),\ \mathrm{MCC}(f_A(H), g_A(H M))\}, \quad g_A \text{ fitted on } A M,

    M invertible. x M mixes the same latents, so a method that finds them finds them again; raw columns, which agree
    with themselves on any rows, and principal components do not.

    Agreements within 0.005 of the highest are ties. More latents win, then the higher agreement after all, but
    within one class the higher score(H). If the best agrees below 0.90, a `RecoveryWarning` says to trust none.

    Parameters
    ----------
    candidates : unfitted estimators by name, or a list of them. They are cloned, and their seeds are replaced.
    X : (N, d) array or DataFrame, N >= 100. A tenth of the rows, at most 1000, is held out: no candidate sees them.
    u : (N,) or (N, m) the auxiliary variable, given to `fit` beside X; None: there is none.
    random_state : decides the rows and the seeds.

    Examples
    --------
    >>> from identifiable import PrincipalComponents, SparseUnmixing
    >>> from identifiable.data import make_pdgmm
    >>> x = make_pdgmm(2000, n=5, layers=1, random_state=0).x  # layers=1: an affine mixing
    >>> choice = choose({"PCA": PrincipalComponents(5), "sparse": SparseUnmixing(5)}, x, random_state=0)
    >>> choice.best, choice.table["status"].tolist()
    ('sparse', ['stable', 'unstable'])
    """
    rows = _Rows.of(X, random_state, u)
    pool = [_Candidate(name, estimator) for name, estimator in _named(candidates).items()]
    for one in pool:
        one.attempt(rows.screen)
    while unsure := [one for one in _leaders(pool) if np.isnan(one.halves)]:
        for one in unsure:
            one.attempt(rows.confirm)
    tied = _leaders(pool)
    if not tied:
        raise FitFailedError(f"No candidate could be fitted: {', '.join(c.name for c in pool)}. Standardise the data.")
    best = max(tied, key=lambda one: (one.latents, one.value))
    kin = [one for one in tied if one.latents == best.latents and type(one.estimator) is type(best.estimator)]
    if len(kin) > 1 and hasattr(best.model, "score"):
        beside = () if u is None else (rows.take_u(rows.held),)
        best = max(kin, key=lambda one: float(one.model.score(rows.take(rows.held), *beside)))
    if best.value < DOUBTFUL:
        warnings.warn(
            f"None of the {len(pool)} candidates is to be trusted: the best, {best.name}, agrees with itself at "
            f"{best.value:.2f} only (doubtful from {DOUBTFUL:.2f}, stable from {STABLE:.2f}).",
            RecoveryWarning,
            stacklevel=2,
        )
    ranked = sorted(pool, key=lambda one: (one is not best, -np.nan_to_num(one.value, nan=-1.0)))
    columns = ["name", "agreement", "status", "seconds", "latents", "halves", "remixed"]
    table = pd.DataFrame([[getattr(one, c) for c in columns] for one in ranked], columns=columns)
    return Choice(table, best.name, best.model, tuple(one.name for one in tied if one is not best))


@dataclass(eq=False)
class _Candidate:
    """A row of the table, as far as it is known."""

    name: str
    estimator: Any
    model: Any = None
    latents: int = 0
    agreement: float = np.nan
    halves: float = np.nan
    remixed: float = np.nan
    seconds: float = 0.0

    @property
    def value(self) -> float:
        """The lowest of the numbers known; NaN if it failed."""
        return float(np.fmin(self.agreement, np.fmin(self.halves, self.remixed)))

    @property
    def status(self) -> str:
        return "failed" if np.isnan(self.value) else judge(self.value)

    def attempt(self, step: Callable[["_Candidate"], None]) -> None:
        start = perf_counter()
        try:
            step(self)
        except FitFailedError as error:
            self.agreement = self.halves = self.remixed = np.nan
            warnings.warn(f"{self.name} failed: {error}", RecoveryWarning, stacklevel=3)
        self.seconds += perf_counter() - start


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows to fit on, rows to compare on, a seed, and the auxiliary variable of all rows where there is one."""

    X: Any
    u: Any
    train: NDArray[np.int64]
    held: NDArray[np.int64]
    seed: int

    @classmethod
    def of(cls, X: ArrayLike, random_state: _Seed, u: Any = None) -> "_Rows":
        data = X if isinstance(X, pd.DataFrame) else np.asarray(X)
        if data.ndim != 2 or len(data) < LEAST_ROWS:
            raise DataError(
                f"Agreement needs a table (N, d) of at least {LEAST_ROWS} rows, so that ten can be held out; got shape "
                f"{data.shape}. Pass more rows."
            )
        u = u if u is None or hasattr(u, "iloc") else np.asarray(u)
        if u is not None and len(u) != len(data):
            raise DataError(f"u must have one row per row of X: X has {len(data)}, u has {len(u)}.")
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max - 1))
        train, held = hold_out(len(data), seed)
        return cls(data, u, np.random.default_rng(seed + 1).permutation(train), held, seed)

    def take(self, rows: NDArray[np.int64]) -> Any:
        return self.X.iloc[rows] if isinstance(self.X, pd.DataFrame) else self.X[rows]

    def take_u(self, rows: NDArray[np.int64]) -> Any:
        return self.u.iloc[rows] if hasattr(self.u, "iloc") else None if self.u is None else self.u[rows]

    def fit(self, estimator: Any, rows: NDArray[np.int64], seed: int) -> Any:
        model = clone(estimator)
        seeds = {k: seed for k in model.get_params() if k == "random_state" or k.endswith("__random_state")}
        beside = () if self.u is None else (self.take_u(rows),)
        return model.set_params(**seeds).fit(self.take(rows), *beside)

    def latents(self, model: Any) -> FloatArray:
        return np.asarray(model.transform(self.take(self.held)))

    def halves(self, estimator: Any) -> SplitHalf:
        one, other = np.array_split(self.train, 2)
        models = self.fit(estimator, one, self.seed), self.fit(estimator, other, self.seed + 1)
        found = _match(self.latents(models[0]), self.latents(models[1]))
        return SplitHalf(found.score, found.correlations, models)

    def screen(self, one: _Candidate) -> None:
        """Fit a candidate; without restarts that could differ, its halves decide."""
        one.model = self.fit(one.estimator, self.train, self.seed)
        one.latents = self.latents(one.model).shape[1]
        stability = getattr(one.model, "stability_", None)
        if stability is not None and len(stability.pairwise) > 1 and (stability.pairwise != 1).any():
            one.agreement = stability.score
            return
        halves = self.halves(one.estimator)
        one.agreement = one.halves = halves.score
        try:
            remixed = self.remixed()
            again = remixed.fit(one.estimator, np.array_split(self.train, 2)[0], self.seed)
            one.remixed = _match(self.latents(halves.models[0]), remixed.latents(again)).score
        except ValueError:  # pixels, names of columns: not every estimator takes other coordinates
            pass

    def confirm(self, one: _Candidate) -> None:
        one.halves = self.halves(one.estimator).score

    def remixed(self) -> "_Rows":
        """Return the rows in other coordinates: columns to unit scale, unequal gains, a rotation."""
        x = np.asarray(self.X, dtype=np.float64)
        scale = x[self.train].std(0)
        gains = np.geomspace(2, 1, x.shape[1]) / np.where(scale > 0, scale, 1)
        mixed = (x - x[self.train].mean(0)) * gains @ dct(np.eye(x.shape[1]), norm="ortho")
        return _Rows(mixed, self.u, self.train, self.held, self.seed)


def _leaders(pool: list[_Candidate]) -> list[_Candidate]:
    highest = np.fmax.reduce([one.value for one in pool])
    return [one for one in pool if one.value >= highest - TIE]


def _match(a: FloatArray, b: FloatArray) -> Matching:
    """Match the latents of two fits, the wider first."""
    a, b = (a, b) if a.shape[1] >= b.shape[1] else (b, a)
    if np.isfinite(a).all() and np.isfinite(b).all():
        return match(a, b)
    return Matching(np.full(a.shape[1], -1), np.zeros(a.shape[1]), 0.0)


def _latents_of(run: Any, X: ArrayLike | None, name: str) -> FloatArray:
    """Return what a run makes of the rows X, (N, n); NaN is let through, and agrees with none."""
    fitted = hasattr(run, "transform") and not isinstance(run, pd.DataFrame)
    if fitted and X is None:
        raise DataError(f"{name} is a {type(run).__name__}, and X is None: pass rows X (N, d) to compare the runs on.")
    latents = np.asarray(run.transform(X) if fitted else run)
    if latents.ndim != 2 or 0 in latents.shape or latents.dtype.kind not in "fiub":
        what = type(run).__name__ if latents.ndim == 0 else f"latents of shape {latents.shape} and type {latents.dtype}"
        raise DataError(
            f"{name} must be a fitted estimator with transform, or a table (N, n) of its latents, got {what}. Pass "
            "stability([one, two, ...], X), or an array (R, N, n)."
        )
    return latents


def _laws_of(runs: Sequence[Any] | NDArray[Any], latents: list[FloatArray], *, at_any_cost: bool) -> list[Mixture]:
    """Return the mixtures of the runs' latents; none where a run has none, or too many components to be cheap."""
    found = [getattr(run, "mixture_", None) for run in runs]
    laws = [p for p, z in zip(found, latents, strict=True) if isinstance(p, Mixture) and p.means.shape[1] == z.shape[1]]
    if at_any_cost and len(laws) < len(latents):
        raise DataError(
            "distances=True needs the mixture_ of every run, a Mixture in the coordinates of its latents; "
            f"{len(latents) - len(laws)} of {len(latents)} have none. Set distances=False."
        )
    small = len(laws) == len(latents) and max(len(p.weights) for p in laws) <= MOST_COMPONENTS
    return laws if at_any_cost or small else []


def _named(candidates: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Name the estimators of a list by what they print."""
    listed = (
        candidates.items() if isinstance(candidates, Mapping) else ((" ".join(repr(c).split()), c) for c in candidates)
    )
    named: dict[str, Any] = {}
    for name, estimator in listed:
        named[f"{name} #{len(named) + 1}" if name in named else name] = estimator
    if not named:
        raise DataError("choose needs at least one candidate, got none: pass estimators by name, or a list of them.")
    return named
