"""Choose an estimator without labels: by agreement between restarts, halves of the rows and coordinates.

Identified latents are recovered again from another seed, from other rows and in other coordinates. Agreement is
necessary for recovery, not sufficient: a method that always ends at the same wrong answer agrees with itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from identifiable.agreement.refits import Fitted, Refits
from identifiable.agreement.stability import THRESHOLDS, judge
from identifiable.arrays import FloatArray
from identifiable.errors import DataError, FitFailedError, warn_recovery

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEASURES = ["agreement", "halves", "remixed"]
COLUMNS = ["name", "agreement", "status", "seconds", "latents", "halves", "remixed", "note"]
_Seed = int | np.random.RandomState | None


@dataclass(frozen=True, eq=False)
class SplitHalf:
    """Agreement of fits to two disjoint halves of the data; necessary for recovery, not sufficient.

    Attributes
    ----------
    score : mean of |correlations|, the MCC.
    correlations : (n,) signed correlation of each latent with its match in the other fit, on held-out rows; 0 where
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
        latents = f"{len(self.correlations)} latents, the weakest at {weakest:.3f}"
        return f"SplitHalf({name}: {self.score:.3f}, {self.status}; {latents}; necessary for recovery, not sufficient)"


@dataclass(frozen=True, eq=False)
class Choice:
    """The estimator whose latents are most reproducible, and the table it was chosen from.

    Attributes
    ----------
    table : a row per candidate, the best first: name, agreement, status, seconds, latents (their number), the tests
        behind the status (halves, remixed; NaN if not needed or not possible), and a note: why a candidate failed or
        a test was not possible. The status judges the lowest of the three numbers.
    best, best_estimator : name of the best, and its fit on the rows that were not held out.
    tied : candidates that agree as well as the best: agreement does not decide between them.
    """

    table: pd.DataFrame
    best: str
    best_estimator: Any
    tied: tuple[str, ...]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the number each candidate is judged by and the two thresholds; return the axes (`.figure` to save)."""
        from identifiable.agreement.drawing import plot_choice

        return plot_choice(self.table[["name", "status"]].assign(judged=self.table[MEASURES].min(axis=1)), ax)

    def __repr__(self) -> str:
        others = f"; tied with {', '.join(map(repr, self.tied))}" if self.tied else ""
        table = self.table.drop(columns="note").to_string(index=False, float_format="{:.3f}".format, na_rep="")
        notes = "".join(f"\n{name}: {note}" for name, note in self.table[["name", "note"]].to_numpy() if note)
        return f"Choice({self.best!r}{others}; agreement is necessary for recovery, not sufficient)\n{table}{notes}"


def split_half_agreement(estimator: Any, X: ArrayLike, u: Any = None, *, random_state: _Seed = None) -> SplitHalf:
    r"""Fit an estimator on two disjoint halves A, B of the rows, and compare it on rows H that neither has seen.

    .. math:: \max_\pi \frac{1}{n} \sum_{i=1}^{n} \left|\mathrm{corr}(f_A(H)_i, f_B(H)_{\pi(i)})\right|

    Both rows and seeds differ, so this detects what restarts on the same rows cannot: latents that are an accident of
    the sample. Latents that are not finite agree with none.

    Parameters
    ----------
    estimator : any estimator with fit and transform. It is cloned, and its seeds are replaced.
    X : (N, d) array or DataFrame, N >= 100. A tenth of the rows, at most 1000, is held out.
    u : (N,) or (N, m), default=None. Auxiliary variable, passed to `fit` with X.
    random_state : int, RandomState or None. Determines the rows and the seeds.

    Examples
    --------
    >>> from identifiable import SparseUnmixing
    >>> from identifiable.data import make_pdgmm
    >>> x = make_pdgmm(2000, n=5, layers=1, random_state=0).x  # layers=1: an affine mixing
    >>> split_half_agreement(SparseUnmixing(), x, random_state=0)
    SplitHalf(SparseUnmixing: 1.000, stable; 5 latents, the weakest at 1.000; necessary for recovery, not sufficient)
    """
    refits = Refits.of(X, u, seed=_seed(random_state))
    one, other = refits.halves(estimator)
    found = refits.match(one, other)
    return SplitHalf(found.score, found.correlations, (one.model, other.model))


def choose(
    candidates: Mapping[str, Any] | Sequence[Any], X: ArrayLike, u: Any = None, *, random_state: _Seed = None
) -> Choice:
    r"""Choose the estimator whose latents are most reproducible, without ground truth.

    Each candidate is fitted and ranked by the agreement of its restarts, `stability_.score`. Restarts on the same rows
    may agree on an accident of these rows, so the leaders are confirmed by `split_half_agreement`. A candidate with one
    restart, or with nothing random, is judged by its halves, and one of them is refitted in other coordinates:

    .. math:: \min\{\mathrm{MCC}(f_A(H), f_B(H)),\ \mathrm{MCC}(f_A(H), g_A(H M))\}, \quad g_A \text{ fitted on } A M,

    M invertible. x M mixes the same latents, so a method that identifies them finds the same latents. Raw columns,
    which agree with themselves on any rows, and principal components do not pass this test. An estimator that refuses
    other coordinates (pixels, column names) is judged by its halves alone, and the note in the table says so.

    Agreements within 0.005 of the highest are ties. More latents win, then the higher agreement after all, but
    within one class the higher score(H). If the best agrees below 0.90, a `RecoveryWarning` says to trust none.

    Parameters
    ----------
    candidates : unfitted estimators by name, or a list of them. They are cloned, and their seeds are replaced.
    X : (N, d) array or DataFrame, N >= 100. A tenth of the rows, at most 1000, is held out: no candidate sees them.
    u : (N,) or (N, m), default=None. Auxiliary variable, passed to `fit` with X.
    random_state : int, RandomState or None. Determines the rows and the seeds.

    Examples
    --------
    >>> from identifiable import PrincipalComponents, SparseUnmixing
    >>> from identifiable.data import make_pdgmm
    >>> x = make_pdgmm(2000, n=5, layers=1, random_state=0).x  # layers=1: an affine mixing
    >>> choice = choose({"PCA": PrincipalComponents(5), "sparse": SparseUnmixing(5)}, x, random_state=0)
    >>> choice.best, choice.table["status"].tolist()
    ('sparse', ['stable', 'unstable'])
    """
    refits = Refits.of(X, u, seed=_seed(random_state))
    pool = [_Candidate(name, estimator) for name, estimator in _named(candidates).items()]
    for one in pool:
        one.attempt(_screen, refits)
    while unconfirmed := [one for one in _leaders(pool) if np.isnan(one.halves)]:
        for one in unconfirmed:
            one.attempt(_confirm, refits)
    tied = _leaders(pool)
    if not tied:
        raise FitFailedError(f"No candidate could be fitted: {', '.join(c.name for c in pool)}. Standardise the data.")
    best = _best(tied, refits)
    if best.value < THRESHOLDS.doubtful:
        warn_recovery(
            f"None of the {len(pool)} candidates is reliable: the best, {best.name}, agrees with itself at "
            f"{best.value:.2f} only (doubtful from {THRESHOLDS.doubtful:.2f}, stable from {THRESHOLDS.stable:.2f})."
        )
    ranked = sorted(pool, key=lambda one: (one is not best, -np.nan_to_num(one.value, nan=-1.0)))
    table = pd.DataFrame([[getattr(one, c) for c in COLUMNS] for one in ranked], columns=COLUMNS)
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
    note: str = ""

    @property
    def value(self) -> float:
        """The lowest of the known numbers; NaN if the candidate failed."""
        return float(np.fmin.reduce([self.agreement, self.halves, self.remixed]))

    @property
    def status(self) -> str:
        return "failed" if np.isnan(self.value) else judge(self.value)

    def attempt(self, step: "Callable[[_Candidate, Refits], None]", refits: Refits) -> None:
        start = perf_counter()
        try:
            step(self, refits)
        except FitFailedError as error:
            self.agreement = self.halves = self.remixed = np.nan
            self.note = str(error)
            warn_recovery(f"{self.name} failed: {error}")
        self.seconds += perf_counter() - start


def _screen(one: _Candidate, refits: Refits) -> None:
    """Fit a candidate; if its restarts cannot differ, judge it by its halves and in other coordinates."""
    fitted = refits.fit(one.estimator, refits.train, refits.seed)
    one.model, one.latents = fitted.model, fitted.latents.shape[1]
    stability = getattr(one.model, "stability_", None)
    if stability is not None and len(stability.pairwise) > 1 and (stability.pairwise != 1).any():
        one.agreement = stability.score
        return
    half, other = refits.halves(one.estimator)
    one.agreement = one.halves = refits.match(half, other).score
    one.remixed, one.note = _remixed(one.estimator, refits, half)


def _confirm(one: _Candidate, refits: Refits) -> None:
    one.halves = refits.match(*refits.halves(one.estimator)).score


def _remixed(estimator: Any, refits: Refits, half: Fitted) -> tuple[float, str]:
    """Return the agreement of a half with its refit in other coordinates; NaN and the reason if it is refused."""
    try:
        other = refits.remixed()
        refitted = other.fit(estimator, np.array_split(other.train, 2)[0], other.seed)
    except ValueError as error:
        return np.nan, f"not tested in other coordinates: {error}"
    return refits.match(half, refitted).score, ""


def _leaders(pool: list[_Candidate]) -> list[_Candidate]:
    highest = np.fmax.reduce([one.value for one in pool])
    return [one for one in pool if one.value >= highest - THRESHOLDS.tie]


def _best(tied: list[_Candidate], refits: Refits) -> _Candidate:
    """Break a tie: by the number of latents, then by agreement, but within one class by the held-out score."""
    best = max(tied, key=lambda one: (one.latents, one.value))
    same = [one for one in tied if one.latents == best.latents and type(one.estimator) is type(best.estimator)]
    if len(same) == 1 or not hasattr(best.model, "score"):
        return best
    return max(same, key=lambda one: float(one.model.score(*refits.take(refits.held))))


def _named(candidates: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return the candidates by name; those of a list are named by their repr."""
    if isinstance(candidates, Mapping):
        named = dict(candidates)
    else:
        named = {}
        for candidate in candidates:
            name = " ".join(repr(candidate).split())
            named[f"{name} #{len(named) + 1}" if name in named else name] = candidate
    if not named:
        raise DataError("choose needs at least one candidate, got none: pass estimators by name, or a list of them.")
    return named


def _seed(random_state: _Seed) -> int:
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max - 1))
