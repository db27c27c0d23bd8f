"""Which model and how many latents, without a truth: held-out likelihood, and what comes back in other fits.

1. A single Gaussian has no axes. If no model explains held-out rows better than it, nothing can be identified.
2. Linear models come first. Where most latents rest exactly on flats, which no other mixing makes by accident, or where
   a nonlinear model explains held-out rows no better, the linear one is taken.
3. Among nonlinear ones the better held-out log-likelihood wins; where these are close, the simpler one. Latents that
   rest have densities without a bound, so a model in which they rest, and whose restarts agree, need not be as close.
   One whose own restarts disagree counts only if those of all others do, too.
4. The one that is taken is fitted again: from other seeds, and to two halves of the rows. Each latent is judged by
   whether it comes back. Every fit finds its principal directions in its own rows, as another run would.
5. The number of latents is where the spectrum falls to the level of noise. Where it falls nowhere and columns are many,
   it is where stability breaks: linear methods look for 2, 3, ... latents in both halves of the rows, and from some
   number on they find others in each.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis

from identifiable.agreement.stability import THRESHOLDS, judge
from identifiable.arrays import FloatArray, hold_out
from identifiable.errors import DataError, FitFailedError, OutOfTimeError, join_few
from identifiable.estimators import (
    IVAE,
    PDGMM,
    FactorialUnmixing,
    GMMFlow,
    IFlow,
    SegmentUnmixing,
    SparseUnmixing,
    VaDE,
)
from identifiable.estimators.base import LatentModel
from identifiable.estimators.gmm_flow import MOST_COMPONENTS
from identifiable.estimators.pdgmm.training import steps_for
from identifiable.metrics import match
from identifiable.training import time_limit

MOST_LATENTS = 12  # columns up to which each may stand for a latent
NUMBERS = (2, 3, 4, 5, 6, 8, 10)  # of latents that are looked for where the spectrum falls nowhere
GAP, FLAT = 10.0, 5.0  # by which variances must fall to tell latents from noise; by which those of noise may differ
FAR = 1000.0  # a fall that needs no second direction of noise to be believed
DEEPEST = 40  # latents after which a fall still tells them from noise, and not pixels that few rows use from others
CLOSE = 0.05  # of the gain over a Gaussian: nonlinear models nearer than this are not told apart by it
FURTHER = 0.25  # the same, for a model in which latents rest and whose restarts agree
UNSURE = 0.8  # agreement of restarts: below it, what a model finds is a matter of its seed
CERTAIN = 3.0  # standard errors by which a model must explain rows better than a Gaussian
HELD = 0.2  # of the rows, at most 1000
AGAIN = 0.8  # of its rows: what a trained model is given from another seed
MOST_ROWS = 20_000  # that a fit is given
MOST_COLUMNS = 100  # principal directions that a model of many columns is given
SEEN = 0.95  # of the variance: what is beyond varies in few rows only, and no likelihood of it is to be trusted
LOOKING = 0.2  # of the time, for the number of latents
TIMES = 3  # that rows are halved: for each number, where they are few, and for a linear model that is taken
FEW_ROWS = 10_000  # up to which it takes little time to halve them so often
SEVERAL = 7  # fits of a linear model that is taken, from other seeds
MISSES = 2  # numbers in a row whose latents do not come back, before larger ones are given up
LEAST_GAIN = 0.02  # nats a row: less does not count
CONFIRMING = 3  # fits of a trained model that is taken, after all were tried
DRAWS = 200  # of other held-out rows, to see which model would be taken then
UNLIKELY = 0.1  # a model that is taken less often is no rival
LATE = "there is not the time to train it"
LONGEST = 1.5  # turns that a fit may take after all
SAMPLED = (0.01, 0.03)  # of the steps, to see how long all would take
CAUTION = 0.7  # of a turn: the first steps are not the slowest
LEAST_STEPS = 0.2  # of the steps: with fewer, a fit says little


@dataclass(frozen=True)
class Family:
    """A kind of model.

    Attributes
    ----------
    name, says : of the estimator; what it takes the data for.
    build : makes one with n latents.
    given_u : whether it needs the auxiliary variable.
    wide : whether it is given more columns than latents; the others have the n principal directions.
    steps : of its training for n latents; None where it is affine and needs none.
    """

    name: str
    says: str
    build: Callable[..., LatentModel]
    given_u: bool = False
    wide: bool = False
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
        build=partial(PDGMM, extended=False),
        steps=lambda n: {"max_steps": steps_for(n)},
    ),
    Family(
        name="GMMFlow",
        says="a nonlinear mixture of latents in hidden clusters",
        build=GMMFlow,
        steps=lambda n: {"full_covariance_steps": 2500, "max_steps": 2500},
    ),
    Family(
        name="IVAE",
        says="few latents that change with u behind many noisy columns",
        build=IVAE,
        given_u=True,
        wide=True,
        steps=lambda n: {"max_steps": 3000},
    ),
    Family(
        name="VaDE",
        says="few latents in hidden clusters behind many noisy columns",
        build=partial(VaDE, init="autoencoder"),
        wide=True,
        steps=lambda n: {"pretrain_steps": 1500, "max_steps": 1500},
    ),
)
NAMES = tuple(family.name for family in FAMILIES)


@dataclass(frozen=True)
class Candidate:
    """A model that was tried.

    Attributes
    ----------
    name, says : the model, and what it takes the data for.
    linear, given_u : whether its mixing is affine; whether it was given u.
    gain, error : mean log-likelihood of held-out rows above that of a Gaussian with as many latents, in nats a row, and
        its standard error.
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

    def on(self, gain: FloatArray) -> "Candidate":
        """Return the same with the gains of these rows."""
        return replace(self, gain=float(gain.mean()), error=float(gain.std() / len(gain) ** 0.5))


@dataclass(frozen=True)
class Fitted:
    """A model that was fitted to some rows, and the directions (r, w) of Y, found in these, that it is given."""

    model: Any
    directions: FloatArray

    def latents(self, Y: FloatArray) -> FloatArray:
        """Return the latents (N, n) of rows Y (N, r)."""
        return np.asarray(self.model.transform(Y @ self.directions))


@dataclass(frozen=True)
class SearchOptions:
    """What a search is asked for: the number of latents (None: it chooses), a family or "auto", and how to train."""

    n: int | None
    model: str
    n_restarts: int | None
    device: str
    verbose: int


class Search:
    """The way to a choice: what was tried, what is taken, and whether it comes back.

    Parameters
    ----------
    asked : what for.
    Y : (N, r) rows, of rank r.
    u : (N,) or (N, m) the auxiliary variable, or None.
    seed : of all that is random.
    seconds : the time budget; infinite for none.

    Attributes, after `run`
    -----------------------
    model, n : the fitted estimator, and its number of latents.
    directions : (r, w) the directions of Y whose coordinates it is given.
    tried, reasons, verdict : as `Identify` has them.
    again, halves, rivals : (n,) |correlations| of its latents with their partners in other fits, and in models that
        might have been taken as well; NaN where these failed, or where there is none.
    expected : MCC to expect between this and another run on these rows that takes the same model: the mean of what fits
        from other seeds show and, where it is trained, its restarts.
    """

    def __init__(self, asked: SearchOptions, Y: FloatArray, u: Any, seed: int, seconds: float) -> None:
        self.asked, self.Y, self.seed = asked, Y, seed
        self.seconds, self.end = seconds, time.monotonic() + seconds
        self.u: Any = None if u is None else u if hasattr(u, "iloc") else np.asarray(u)
        if self.u is not None and len(self.u) != len(Y):
            raise DataError(f"u must have one row per row of X: X has {len(Y)}, u has {len(self.u)}.")
        self.rest, self.held = hold_out(len(Y), seed, fraction=HELD)
        self.train = np.random.default_rng(seed + 1).permutation(self.rest)[:MOST_ROWS]
        self.variances = _principal(Y[self.train])[0]
        self.tried: list[Candidate] = []
        self.fits: dict[str, Fitted] = {}
        self.gains: dict[str, FloatArray] = {}  # of every held-out row
        self.reasons: list[str] = []
        self.steps: dict[str, Mapping[str, int]] = {}
        self.at_rest, self.nothing, self.confirmed = 0, False, 0

    def run(self) -> None:
        """Try what makes sense, take one, and fit it again."""
        if len(self.train) == MOST_ROWS:
            self.reasons.append(f"{MOST_ROWS} rows, drawn at random, were used to fit, and {len(self.held)} to judge.")
        families = self._families()
        self.n = self._number([f for f in families if f.linear])
        for family in (f for f in families if f.linear):
            self._try(family)
        sparse = self.fits.get("SparseUnmixing")
        self.at_rest = 0 if sparse is None else int(sparse.model.n_found_)
        trained = [] if self._is_exact() else self._trained([f for f in families if not f.linear])
        self.turn = (self.end - time.monotonic()) / (len(trained) + CONFIRMING)  # seconds of a fit
        for family in trained:
            self._try(family)
        chosen = self._choose()
        self.tried.sort(key=lambda t: t.name != chosen)
        self._confirm(chosen)
        self._compare(chosen)
        self._judge()

    # -- rows and models ------------------------------------------------------------

    def _families(self) -> list[Family]:
        if self.asked.model != "auto":
            family = _named(self.asked.model)
            if family.given_u and self.u is None:
                raise DataError(f"{family.name} needs the auxiliary variable u: pass it as y.")
            return [family]
        return [f for f in FAMILIES if self.u is not None or not f.given_u]

    def _trained(self, families: list[Family]) -> list[Family]:
        """Return those that make sense: of few directions among many, or of all."""
        if self.asked.model != "auto":
            return families
        if self.n == self.Y.shape[1]:
            return [f for f in families if not f.wide]
        if self.n == fall(self.variances):
            return families
        self.reasons.append(
            "No nonlinear mixture of the first directions alone was tried: they are a projection, which may fold what "
            "lies beyond them."
        )
        return [f for f in families if f.wide]

    def _directions(self, family: Family, rows: NDArray[np.int64]) -> FloatArray:
        """Return the directions (r, w) of Y that a family is given: all, or the first principal ones of these rows."""
        r = self.Y.shape[1]
        if self.n == r:
            return np.eye(r)
        variances, axes = _principal(self.Y[rows])
        if not family.wide:
            return axes[:, : self.n]
        seen = int(np.searchsorted(variances.cumsum(), SEEN * variances.sum())) + 1
        return axes[:, : max(self.n, min(seen, MOST_COLUMNS))]

    def _given(self, family: Family, rows: NDArray[np.int64], directions: FloatArray) -> tuple[Any, ...]:
        y = self.Y[rows] @ directions
        return (y, self.u.iloc[rows] if hasattr(self.u, "iloc") else self.u[rows]) if family.given_u else (y,)

    def _built(self, family: Family, steps: Mapping[str, int], seed: int) -> LatentModel:
        options: dict[str, Any] = {"random_state": seed, "device": self.asked.device, "verbose": 0, **steps}
        if self.asked.n_restarts is not None:
            options["n_restarts"] = self.asked.n_restarts
        affine = self.fits.get("FactorialUnmixing")
        if family.name == "GMMFlow" and affine is not None:  # as many as it would find itself, once more
            options["n_components"] = min(len(affine.model.mixture_.weights), MOST_COMPONENTS)
        return family.build(self.n, **options)

    def _fit(
        self, family: Family, rows: NDArray[np.int64], seed: int, steps: Mapping[str, int] | None = None
    ) -> Fitted:
        """Fit a family to these rows, along directions that are found in them alone, in the time that is left."""
        steps = self.steps.get(family.name, {}) if steps is None else steps
        directions = self._directions(family, rows)
        with time_limit(self.end - time.monotonic()):
            model = self._built(family, steps, seed).fit(*self._given(family, rows, directions))
        return Fitted(model, directions)

    def _gain(self, family: Family, fitted: Fitted, train: NDArray[np.int64], held: NDArray[np.int64]) -> FloatArray:
        """Return by how much a model of some rows explains each of others better than a Gaussian with n latents."""
        seen, new = (self._given(family, rows, fitted.directions) for rows in (train, held))
        return np.asarray(fitted.model.score_samples(*new)) - _gaussian(seen[0], new[0], self.n)

    # -- the number of latents ------------------------------------------------------

    def _number(self, linear: Sequence[Family]) -> int:
        """Choose the number of latents: up to where the spectrum falls, or where stability breaks."""
        variances, r = self.variances, len(self.variances)
        if self.asked.n is not None:
            if self.asked.n > r:
                raise DataError(
                    f"n_latents={self.asked.n}, but the columns vary in {r} directions only. Lower n_latents."
                )
            return self.asked.n
        few = fall(variances)
        if few is not None:
            self.reasons.append(
                f"{few} latents: the variances of the principal directions fall by a factor of "
                f"{variances[few - 1] / variances[few]:.3g} after the first {few}, to the level of noise."
            )
            return few
        if r <= MOST_LATENTS:
            self.reasons.append(f"{r} latents: the columns vary in {r} directions, none of which is noise alone.")
            return r
        agreement = self._agreements(linear or [f for f in FAMILIES if f.linear and not f.given_u])
        n = max((k for k, value in agreement.items() if value >= THRESHOLDS.stable), default=NUMBERS[0])
        told = join_few([f"{value:.2f} for {k}" for k, value in agreement.items()], most=len(NUMBERS))
        self.reasons.append(
            f"{n} latents: the columns vary in {r} directions, and their variances fall nowhere by much. Latents that "
            f"linear methods find in halves of the rows agree at {told or 'a level there was not the time to see'}. "
            f"The first {n} directions hold {100 * variances[:n].sum() / variances.sum():.0f} % of the variance."
        )
        return n

    def _agreements(self, linear: Sequence[Family]) -> dict[int, float]:
        """Return how far latents agree between halves of the rows, for numbers of them up to where that breaks.

        The halves are drawn the same way whatever the seed, so that the number of latents is a matter of the table.
        """
        found: dict[int, float] = {}
        self._say(f"looking for {NUMBERS[0]} to {NUMBERS[-1]} latents in halves of the rows")
        try:
            with time_limit(LOOKING * self.seconds):
                for k in NUMBERS:
                    self.n = k
                    found[k] = self._agreement(linear)
                    if max(list(found.values())[-MISSES:]) < THRESHOLDS.stable and len(found) >= MISSES:
                        break
        except OutOfTimeError:
            pass
        return found

    def _agreement(self, linear: Sequence[Family]) -> float:
        """Return the mean agreement of halves, by the linear family that explains other rows best; 0 for none."""
        rows, others = hold_out(len(self.Y), 0, fraction=HELD)
        found = [(0.0, 0.0)]  # what a Gaussian explains better than itself
        for family in linear:
            rng = np.random.default_rng(0)
            gains, agreements = [], []
            try:
                for _ in range(TIMES if len(rows) <= FEW_ROWS else 1):
                    halves = np.array_split(rng.permutation(rows)[:MOST_ROWS], 2)
                    one, other = (self._fit(family, half, int(rng.integers(2**31))) for half in halves)
                    gains.append(self._gain(family, one, halves[0], others).mean())
                    z = [fitted.latents(self.Y[others]) for fitted in (one, other)]
                    agreements.append(_partners(*z).mean())
            except (DataError, FitFailedError):
                continue
            found.append((float(np.mean(gains)), float(np.mean(agreements))))
        return max(found)[1]

    # -- the model ------------------------------------------------------------------

    def _try(self, family: Family) -> None:
        start = time.monotonic()
        self._say(f"trying {family.name}: {family.says}")
        tried = Candidate(family.name, family.says, family.linear, family.given_u)
        try:
            if not family.linear:
                self.steps[family.name] = self._paced(family)
            with time_limit(np.inf if family.linear else LONGEST * self.turn):
                fitted = self._fit(family, self.train, self.seed)
            gain = self._gain(family, fitted, self.train, self.held)
            agreement = fitted.model.stability_.score
            if np.isfinite(gain).all():
                tried = replace(tried.on(gain), agreement=agreement)
                self.fits[family.name], self.gains[family.name] = fitted, gain
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
        if self.turn == np.inf:
            return usual
        seconds = []
        with time_limit(self.turn):
            for share in SAMPLED:
                start = time.monotonic()
                self._fit(family, self.train, self.seed, _part(usual, share))
                seconds.append(time.monotonic() - start)
                if seconds[0] / share < CAUTION * self.turn:
                    return usual
        slope = max((seconds[1] - seconds[0]) / (SAMPLED[1] - SAMPLED[0]), 1e-9)  # seconds of all steps
        share = (CAUTION * self.turn - max(seconds[0] - SAMPLED[0] * slope, 0.0)) / slope
        if share < LEAST_STEPS:
            raise OutOfTimeError(LATE)
        return _part(usual, min(1.0, share))

    def _is_exact(self) -> bool:
        """Whether most latents rest exactly on flats, as they do after an affine mixing and no other."""
        return 2 * self.at_rest > self.n

    def _choose(self) -> str:
        """Return the name of the model to take, and tell why."""
        valid = [t for t in self.tried if np.isfinite(t.gain)]
        if not valid:
            notes = join_few([f"{t.name}: {t.note}" for t in self.tried], "; ")
            raise FitFailedError(f"No model could be fitted. {notes}.")
        found = pick(valid, self.gains)
        self.nothing = found is None
        if found is None:
            top = max(valid, key=lambda t: t.gain)
            self.reasons.append(
                f"Nothing identifiable: no model explains held-out rows better than a single Gaussian (the best, "
                f"{top.name}, by {top.gain:+.3f} ± {top.error:.3f} nats a row), and a Gaussian has no axes of its own."
            )
            return top.name
        if self._is_exact():
            self.reasons.append(
                f"SparseUnmixing: {self.at_rest} of {self.n} latents rest exactly on flats in many rows. Affine "
                "mixtures do this; nonlinear ones do not, so none was tried."
            )
            return "SparseUnmixing"
        late = [t.name for t in self.tried if t.note == LATE]
        if late:
            self.reasons.append(f"Not tried, as there was not the time to train it: {', '.join(late)}. Give it more.")
        if found.best is not found.top:
            self.reasons.append(
                f"{found.top.name} explains held-out rows best ({found.top.gain:+.2f} nats a row above a Gaussian), "
                f"but its restarts agree at {found.top.agreement:.2f} only."
            )
        self.reasons.append(_why(found))
        if found.chosen.given_u:
            self._count_values(found.chosen.name)
        return found.chosen.name

    def _count_values(self, name: str) -> None:
        """Say where u has fewer values than the theorem asks for, with a mean and a variance of every latent."""
        values = getattr(getattr(self.fits[name].model, "auxiliary_", None), "n_groups", 0)
        if 0 < values < 2 * self.n + 1:
            self.reasons.append(
                f"u has {values} different values. That every latent of {self.n} can be told needs {2 * self.n + 1}; "
                f"{values} are enough for {(values - 1) // 2} latents."
            )

    def _chances(self, chosen: str) -> dict[str, float]:
        """Return how often each model would be taken if other rows had been held out: rows are drawn anew."""
        if self.nothing or self._is_exact():
            return {chosen: 1.0}
        rng, size, counts = np.random.default_rng(self.seed + 3), len(self.held), dict.fromkeys(self.gains, 0)
        valid = [t for t in self.tried if t.name in self.gains]
        for _ in range(DRAWS):
            rows = rng.integers(size, size=size)
            gains = {name: gain[rows] for name, gain in self.gains.items()}
            found = pick([t.on(gains[t.name]) for t in valid], gains)
            counts[chosen if found is None else found.chosen.name] += 1
        return {name: count / DRAWS for name, count in counts.items() if count}

    # -- whether it comes back ------------------------------------------------------

    def _confirm(self, name: str) -> None:
        """Take a model, and fit its family again: from other seeds, and to two halves of the rows.

        A linear model is quick. It is fitted to all rows from several seeds, and the fit that agrees best with the
        others is taken: two runs that do so agree more than two single fits.
        """
        self._say(f"fitting {name} again: from other seeds, and to both halves of the rows")
        family, taken, rng = _named(name), self.fits[name], np.random.default_rng(self.seed + 2)
        if family.linear:
            again = self._fits(family, [rng.permutation(len(self.Y))[:MOST_ROWS] for _ in range(SEVERAL)], share=0.5)
            taken, *again = again or [taken]
        else:
            again = self._fits(family, [rng.permutation(self.rest)[: int(AGAIN * len(self.train))]])
        halves: list[FloatArray] = []
        for _ in range(TIMES if family.linear else 1):
            two = np.array_split(rng.permutation(self.train), 2)
            found = np.min([self._come_back(taken, self._fits(family, [half])) for half in two], axis=0)
            if halves and np.isnan(found).any():
                break  # no time for more
            halves.append(found)
        self.again, self.halves = self._come_back(taken, again), np.mean(halves, axis=0)
        self.fits[name], self.model, self.directions = taken, taken.model, taken.directions
        restarts = taken.model.stability_.score
        known = not family.linear and not np.isnan(restarts)
        self.expected = float(np.mean([self.again.mean(), restarts])) if known else float(self.again.mean())

    def _fits(self, family: Family, draws: Sequence[NDArray[np.int64]], share: float = 1.0) -> list[Fitted]:
        """Fit a family to each of these rows, in a share of the time; what agrees best with the others comes first."""
        found: list[Fitted] = []
        try:
            with time_limit(share * (self.end - time.monotonic())):
                for rows in draws:
                    self.confirmed += 1
                    found.append(self._fit(family, rows, self.seed + self.confirmed))
        except (OutOfTimeError, FitFailedError, DataError) as error:
            self._note(f"Not every fit that was to confirm it ended well: {error}")
        z = [fitted.latents(self.Y[self.held]) for fitted in found]
        agreement = [sum(_partners(one, other).mean() for other in z) for one in z]
        return [found[k] for k in np.argsort(agreement, kind="stable")[::-1]]

    def _note(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)

    def _come_back(self, taken: Fitted, others: Sequence[Fitted]) -> FloatArray:
        """Return mean |correlations| (n,) of held-out latents with partners in other fits; NaN where there is none."""
        held = self.Y[self.held]
        found = [_partners(taken.latents(held), other.latents(held)) for other in others]
        return np.mean(found, axis=0) if found else np.full(self.n, np.nan)

    def _compare(self, name: str) -> None:
        """Compare the latents with those of models that might have been taken as well."""
        chances = self._chances(name)
        rivals = [other for other, chance in chances.items() if other != name and chance >= UNLIKELY]
        found = [self._come_back(self.fits[name], [self.fits[other]]) for other in rivals]
        weights = np.array([chances[other] for other in rivals])
        self.rivals = weights @ np.array(found) / weights.sum() if rivals else np.full(self.n, np.nan)
        if rivals:
            self.reasons.append(
                f"{join_few(rivals)} might have been taken as well (in {100 * weights.sum():.0f} % of draws of other "
                f"held-out rows), with latents that correlate with these by {self.rivals.mean():.2f} on average."
            )

    def _judge(self) -> None:
        lowest = self._lowest()
        if self.nothing:
            self.verdict = "nothing identifiable"
        elif np.isnan(lowest).any() or judge(float(lowest.min())) != "stable":
            self.verdict = "doubtful"
            come_back = int((lowest >= THRESHOLDS.stable).sum())
            self.reasons.append(f"{come_back} of {self.n} latents come back in other fits.")
        else:
            self.verdict = "identified"
            self.reasons.append("Every latent comes back from another seed and from half of the rows.")

    def _lowest(self) -> FloatArray:
        lowest: FloatArray = np.fmin(np.minimum(self.again, self.halves), self.rivals)
        return np.where(np.isnan(self.again + self.halves), np.nan, lowest)

    def verdicts(self) -> list[str]:
        """Return whether each latent is "stable", "doubtful" or "unstable"."""
        return ["unstable" if self.nothing or np.isnan(low) else judge(float(low)) for low in self._lowest()]

    def _say(self, words: str) -> None:
        if self.asked.verbose:
            left = max(0.0, self.end - time.monotonic())
            time_left = f" ({left:.0f} s left)" if left < np.inf else ""
            Console(stderr=True).print(f"{words}{time_left}", highlight=False, markup=False)


@dataclass(frozen=True)
class Pick:
    """A model that is taken, the best whose restarts agree, the best of all, and those that are close to the best."""

    chosen: Candidate
    best: Candidate
    top: Candidate
    close: tuple[Candidate, ...] = ()


def pick(valid: Sequence[Candidate], gains: Mapping[str, FloatArray]) -> Pick | None:
    """Take a model by the rules of this file; None where none beats a Gaussian. `gains` are those of each row."""
    telling = [t for t in valid if t.gain > max(CERTAIN * t.error, LEAST_GAIN)]
    if not telling:
        return None
    top = max(telling, key=lambda t: t.gain)
    sure = [t for t in telling if not t.agreement < UNSURE] or telling
    best = max(sure, key=lambda t: t.gain)

    def explains_as_well(one: Candidate) -> bool:
        less = gains[best.name] - gains[one.name]
        return bool(less.mean() <= max(less.std() / len(less) ** 0.5, LEAST_GAIN))

    linear = [t for t in sure if t.linear]
    as_well = [t for t in linear if explains_as_well(t)]
    least = max((t.gain for t in linear), default=-np.inf)  # what a nonlinear model has to beat
    close = [t for t in sure if t.linear == best.linear and t.gain >= max((1 - _slack(t)) * best.gain, least)]
    chosen = max(as_well, key=lambda t: t.gain) if as_well else min(close, key=lambda t: NAMES.index(t.name))
    return Pick(chosen, best, top, tuple(close))


def fall(variances: FloatArray) -> int | None:
    """Return after how many directions the variances fall to a level of noise: far, and flat from there on.

    Examples
    --------
    >>> fall(np.array([3.0, 2.0, 1.0, 0.02, 0.01])), fall(np.array([3.0, 2.0, 1.0, 0.02])), fall(np.ones(4))
    (3, None, None)
    """
    for k in (variances[:-1] / variances[1:])[:DEEPEST].argsort()[::-1] + 1:
        by, rest = variances[k - 1] / variances[k], variances[k:]
        if by >= FAR or (by >= GAP and len(rest) > 1 and rest[0] <= FLAT * rest[-1]):
            return int(k)
    return None


def _partners(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return |correlations| (n,) of latents with their partners among others, rows (N, n)."""
    return np.abs(match(one, other).correlations)


def _principal(Y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the variances (r,) of the principal directions of rows Y (N, r), and these (r, r), largest first."""
    variances, axes = np.linalg.eigh(np.atleast_2d(np.cov(Y.T)))
    return variances[::-1], axes[:, ::-1]


def _gaussian(train: FloatArray, held: FloatArray, n: int) -> FloatArray:
    """Return the log-density of rows `held` under a Gaussian with n latents, fitted to rows `train`."""
    scores: FloatArray
    if train.shape[1] == n:
        law = multivariate_normal(train.mean(0), np.cov(train.T), allow_singular=True)
        scores = np.atleast_1d(law.logpdf(held))
    else:
        scores = FactorAnalysis(n, random_state=0).fit(train).score_samples(held)
    return scores


def _named(name: str) -> Family:
    return next(f for f in FAMILIES if f.name == name)


def _slack(tried: Candidate) -> float:
    """Return by how much of a gain a model may be behind and still be close.

    Where latents rest exactly, densities have no bound: what a mixture gains by ever narrower components is no sign
    that it is right, and a model in which latents rest, and whose restarts agree, may be further behind.
    """
    return FURTHER if tried.name == "PDGMM" and tried.agreement >= THRESHOLDS.stable else CLOSE


def _why(found: Pick) -> str:
    chosen, best = found.chosen, found.best
    words = f"{chosen.name}, {chosen.says}: {chosen.gain:+.2f} nats a row above a single Gaussian on held-out rows"
    if chosen.linear and not best.linear:
        return f"{words}. A nonlinear model, {best.name}, explains them hardly better ({best.gain:+.2f})."
    others = [t for t in found.close if t is not chosen]
    if others:
        near = join_few([f"{t.name} {t.gain:+.2f}" for t in others])
        if chosen.name == "PDGMM":
            return f"{words}; {near}: where latents rest, densities have no bound, and a little more says little."
        return f"{words}; {near} is close, and what is simpler comes first."
    return f"{words}, more than any other."


def _part(steps: Mapping[str, int], share: float) -> dict[str, int]:
    return {name: max(20, round(share * count)) for name, count in steps.items()}
