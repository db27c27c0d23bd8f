"""From a table to a verdict without ground truth: count latents, try families, choose a model, confirm it.

The rules of the choice are in `identifiable.auto.verdict`. All steps hold out the same rows, whatever the seed, and
compare fits on these. Every fit computes its principal components from its own rows, as an independent run would.

The number of latents is where the variances of the principal components fall to the level of noise. If they do not fall
and columns are many, it is where stability breaks: linear methods look for 2, 3, ... latents in both halves of the
rows, and from some number on the halves disagree.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from identifiable.agreement.stability import THRESHOLDS
from identifiable.arrays import FloatArray
from identifiable.auto.confirm import Confirmation, compare, confirm
from identifiable.auto.families import FAMILIES, Family, ProjectedModel, principal_components
from identifiable.auto.task import MOST_ROWS, SearchOptions, Task, Trial
from identifiable.auto.together import at_once
from identifiable.auto.verdict import LATE, RULES, Candidate, Verdict, choose, is_exact, judge_latents
from identifiable.errors import DataError, FitFailedError, OutOfTimeError, join_few
from identifiable.estimators.gmm_flow import MOST_COMPONENTS
from identifiable.training import seconds_left, time_limit

NUMBERS = (2, 3, 4, 5, 6, 8, 10)  # of latents that are looked for in halves of the rows
SPLITS = 3  # into halves: for each number of latents, if rows are few
FEW_ROWS = 10_000  # up to which it takes little time to split them so often
COUNTING_SHARE = 0.2  # of the time, for the number of latents
CONFIRMATIONS = 3  # fits of a selected trained model, after all were tried
LONGEST = 1.5  # turns that a fit may take after all
SAMPLED = (0.01, 0.03)  # of the steps, to predict how long all of them would take
CAUTION = 0.7  # of a turn: the first steps are not the slowest
LEAST_STEPS = 0.2  # of the steps: a fit with fewer is uninformative


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The selected and confirmed model, and what `Identify` reports about it."""

    model: ProjectedModel
    candidates: tuple[Candidate, ...]
    reasons: tuple[str, ...]
    verdict: Verdict
    expected_mcc: float


def answers(Y: FloatArray, u: Any, options: SearchOptions, *, early: bool) -> Iterator[SearchResult]:
    """Yield the model selected from all families; with `early`, before it that of the linear ones, if others follow.

    Count latents, try families, choose one, confirm it and judge its latents, within the time limit around each.
    """
    task = Task.of(Y, u, options)
    families = _families(task)
    n, of_number = count_latents(task, [f for f in families if f.linear])
    search = Search(task, n, of_number, try_linear(task, [f for f in families if f.linear], n))
    trained, why = _trained(task, [f for f in families if not f.linear], n, search.inactive)
    if early and trained and any(trial.fitted is not None for trial in search.trials.values()):
        names = join_few([family.name for family in trained])
        first = search.answer(f"First answer, from linear models only. Not tried yet: {names}.")
        if first.verdict.fit == "identified":  # a trained model may take its place
            first = replace(first, verdict=replace(first.verdict, fit="doubtful"))
        yield first
    search.trials.update(try_trained(task, trained, n, search.trials))
    yield search.answer(why)


@dataclass(frozen=True, eq=False)
class Search:
    """A table, its number of latents, why, and what was tried and confirmed so far."""

    task: Task
    n: int
    of_number: str
    trials: dict[str, Trial]
    confirmed: dict[str, Confirmation] = field(default_factory=dict)

    @property
    def inactive(self) -> int:
        """How many latents `SparseUnmixing` found exactly inactive in many rows."""
        return int(getattr(_fitted(self.trials, "SparseUnmixing"), "n_found_", 0))

    def answer(self, of_trials: str) -> SearchResult:
        """Choose one of the models that were tried, confirm it, and judge its latents."""
        task, trials, seed = self.task, self.trials, self.task.options.seed
        gains = {name: trial.gains for name, trial in trials.items() if trial.fitted is not None}
        candidates = [trial.candidate for trial in trials.values()]
        selection = choose(candidates, gains, inactive=self.inactive, n=self.n, seed=seed + 3)
        chosen = trials[selection.name]
        if selection.name not in self.confirmed:
            self.confirmed[selection.name] = confirm(task, chosen)
        confirmed = self.confirmed[selection.name]
        fitted = confirmed.fitted
        alternatives, of_alternatives = compare(task, fitted, trials, selection.alternatives)
        verdict = judge_latents(confirmed.seeds, confirmed.halves, alternatives, identifiable=selection.identifiable)
        sampled, held = len(task.train) == MOST_ROWS, len(task.refits.held)
        of_rows = f"{MOST_ROWS} rows, sampled at random, were used to fit models, and {held} to compare them."
        of_u = _values_of_u(fitted.model, self.n) if selection.identifiable else ""
        reasons = (
            of_rows if sampled else "",
            self.of_number,
            of_trials,
            *selection.reasons,
            of_u,
            confirmed.error,
            of_alternatives,
            verdict.reason,
        )
        expected, restarts = float(confirmed.seeds.mean()), fitted.model.model_.stability_.score
        if not (chosen.candidate.linear or np.isnan(restarts)):
            expected = (expected + restarts) / 2
        selected_first = tuple(sorted(candidates, key=lambda c: c.name != selection.name))
        return SearchResult(fitted.model, selected_first, tuple(filter(None, reasons)), verdict, expected)


# -- the number of latents ----------------------------------------------------------


def count_latents(task: Task, linear: Sequence[Family]) -> tuple[int, str]:
    """Return the number of latents, as given, by a fall of the variances or by where stability breaks, and why."""
    variances, _ = principal_components(task.refits.X[task.train])
    r, given = len(variances), task.options.n
    if given is not None:
        if given > r:
            raise DataError(f"n_latents={given}, but the columns vary in {r} directions only. Lower n_latents.")
        return given, ""
    n = spectral_gap(variances)
    if n is not None:
        return n, (
            f"Number of latents: {n}. The variances of the principal components fall by a factor of "
            f"{variances[n - 1] / variances[n]:.3g} after the first {n}, to the level of noise."
        )
    if r <= RULES.most_latents:
        return r, f"Number of latents: {r} (all {r} principal components are above the noise level)."
    agreement = _agreement_by_number(task, linear or [f for f in FAMILIES if f.linear and not f.given_u])
    n = max((k for k, value in agreement.items() if value >= THRESHOLDS.stable), default=NUMBERS[0])
    seen = ", ".join(f"{value:.2f} for {k}" for k, value in agreement.items()) or "(not enough time to measure it)"
    return n, (
        f"Number of latents: {n}. The variances of the {r} principal components do not fall to a level of noise. The "
        f"latents that linear methods find in halves of the rows agree at {seen}; {THRESHOLDS.stable} is needed. The "
        f"first {n} components hold {100 * variances[:n].sum() / variances.sum():.0f} % of the variance."
    )


def spectral_gap(variances: FloatArray) -> int | None:
    """Return after how many components the variances fall to a level of noise: far, and similar from there on.

    Examples
    --------
    >>> spectral_gap(np.array([3.0, 2.0, 1.0, 0.02, 0.01])), spectral_gap(np.array([3.0, 2.0, 0.02]))
    (3, None)
    """
    falls = variances[:-1] / variances[1:]
    for k in falls[: RULES.deepest_gap].argsort()[::-1] + 1:
        noise = variances[k:]
        similar = len(noise) > 1 and noise[0] <= RULES.noise_ratio * noise[-1]
        if falls[k - 1] >= RULES.wide_gap or (falls[k - 1] >= RULES.noise_gap and similar):
            return int(k)
    return None


def _agreement_by_number(task: Task, linear: Sequence[Family]) -> dict[int, float]:
    """Return the agreement of latents between halves of the rows, for numbers of them up to where it breaks."""
    found: dict[int, float] = {}
    task.say(f"looking for {NUMBERS[0]} to {NUMBERS[-1]} latents in halves of the rows")
    try:
        with time_limit(COUNTING_SHARE * seconds_left()):
            for n in NUMBERS:
                found[n] = max((_agreement_of_halves(task, family, n) for family in linear), default=(0.0, 0.0))[1]
                if len(found) >= RULES.misses and max(list(found.values())[-RULES.misses :]) < THRESHOLDS.stable:
                    break
    except OutOfTimeError:
        pass  # the numbers that were not reached are not among the reasons
    return found


def _agreement_of_halves(task: Task, family: Family, n: int) -> tuple[float, float]:
    """Return the mean gain of fits to halves, and their mean agreement; 0 if none is better than a Gaussian.

    The halves do not depend on the seed, so that the number of latents is a property of the table.
    """
    rng, refits = np.random.default_rng(0), task.refits
    gains, agreements = [], []
    try:
        for _ in range(SPLITS if len(refits.train) <= FEW_ROWS else 1):
            halves = np.array_split(rng.permutation(refits.train)[:MOST_ROWS], 2)
            one, other = (refits.fit(task.model(family, n), half, int(rng.integers(2**31))) for half in halves)
            gains.append(task.gains(one, halves[0]).mean())
            agreements.append(refits.match(one, other).score)
    except (DataError, FitFailedError):
        return 0.0, 0.0
    return max((0.0, 0.0), (float(np.mean(gains)), float(np.mean(agreements))))


# -- the model ----------------------------------------------------------------------


def _fitted(trials: Mapping[str, Trial], name: str) -> Any:
    """Return the fitted estimator of a trial, or None."""
    trial = trials.get(name)
    return None if trial is None or trial.fitted is None else trial.fitted.model.model_


def try_linear(task: Task, families: Sequence[Family], n: int) -> dict[str, Trial]:
    """Fit each affine family; return trials by name."""
    return {family.name: try_family(task, family, n) for family in families}


def try_trained(task: Task, families: Sequence[Family], n: int, linear: Mapping[str, Trial]) -> dict[str, Trial]:
    """Fit each trained family, several at the same time; return trials by name, in the order of the families."""
    if not families:
        return {}
    mixture = getattr(_fitted(linear, "FactorialUnmixing"), "mixture_", None)
    options = {}
    if mixture is not None:  # GMMFlow would search for the same number of components
        options["GMMFlow"] = {"n_components": min(len(mixture.weights), MOST_COMPONENTS)}
    jobs = at_once(task.options.n_jobs)
    rounds = -(-len(families) // jobs) + -(-CONFIRMATIONS // jobs)
    turn = seconds_left() / rounds  # seconds per fit
    calls = [(task, family, n, turn, options.get(family.name)) for family in families]
    words = f"training {join_few([family.name for family in families])}"
    trials: dict[int, Trial] = {}
    for number, trial in task.together(try_family, calls, words, task.options.n_jobs):
        name = families[number].name
        if not isinstance(trial, Trial):  # the time was over before it could start
            family = families[number]
            candidate = Candidate(name, family.says, family.linear, family.given_u, note=LATE)
            trial = Trial(candidate, task.model(family, n), None, np.empty(0))
        done = f"gain {trial.candidate.gain:+.2f} nats per row" if trial.fitted else trial.candidate.note
        task.say(f"{name}: {done}, {trial.candidate.seconds:.0f} s")
        trials[number] = trial
    return {families[number].name: trials[number] for number in sorted(trials)}


def try_family(
    task: Task, family: Family, n: int, turn: float = np.inf, options: Mapping[str, Any] | None = None
) -> Trial:
    """Fit a family in about one turn (in seconds); a trained one gets fewer steps if the turn is too short."""
    start = time.monotonic()
    if family.linear:
        task.say(f"trying {family.name}: {family.says}")
    candidate = Candidate(family.name, family.says, family.linear, family.given_u)
    model, fitted, gains, note = task.model(family, n, options), None, np.empty(0), ""
    try:
        if family.steps is not None:
            steps = _affordable_steps(task, model, family.steps(n), turn)
            candidate, model = replace(candidate, steps=steps), model.with_options(steps)
        with time_limit(LONGEST * turn):
            fitted = task.refits.fit(model, task.train, task.options.seed)
        gains = task.gains(fitted, task.train)
        if np.isfinite(gains).all():
            candidate = replace(candidate.on(gains), agreement=fitted.model.model_.stability_.score)
        else:
            fitted, note = None, "its likelihood of held-out rows is not finite"
    except OutOfTimeError:
        note = LATE
    except (FitFailedError, DataError) as error:
        note = str(error)
    return Trial(replace(candidate, note=note, seconds=time.monotonic() - start), model, fitted, gains)


def affordable_share(seconds_of: Callable[[float], float], turn: float, *, caution: float = CAUTION) -> float:
    """Return the share of its steps, at most 1, that a fit has time for.

    Parameters
    ----------
    seconds_of : seconds that a fit with a given share of the steps takes; called for one or two small shares.
    turn : seconds available.
    caution : share of the turn that is planned with.
    """
    if turn == np.inf:
        return 1.0
    small, large = SAMPLED
    first = seconds_of(small)
    if first / small < caution * turn:
        return 1.0
    of_all_steps = max((seconds_of(large) - first) / (large - small), 1e-9)
    before_steps = max(first - small * of_all_steps, 0.0)
    return min(1.0, (caution * turn - before_steps) / of_all_steps)


def _affordable_steps(task: Task, model: ProjectedModel, usual: Mapping[str, int], turn: float) -> Mapping[str, int]:
    """Return the training steps that a turn has time for; raise `OutOfTimeError` if these are too few."""

    def part(share: float) -> Mapping[str, int]:
        return usual if share == 1.0 else {name: max(20, round(share * steps)) for name, steps in usual.items()}

    def seconds_of(share: float) -> float:
        start = time.monotonic()
        task.refits.fit(model.with_options(part(share)), task.train, task.options.seed)
        return time.monotonic() - start

    with time_limit(turn):
        share = affordable_share(seconds_of, turn)
    if share < LEAST_STEPS:
        raise OutOfTimeError(LATE)
    return part(share)


def _families(task: Task) -> list[Family]:
    """Return the family that was asked for, or all that the data allow."""
    given = task.refits.u is not None
    if task.options.model == "auto":
        return [f for f in FAMILIES if given or not f.given_u]
    family = next(f for f in FAMILIES if f.name == task.options.model)
    if family.given_u and not given:
        raise DataError(f"{family.name} needs the auxiliary variable u: pass it as y.")
    return [family]


def _trained(task: Task, families: list[Family], n: int, inactive: int) -> tuple[list[Family], str]:
    """Return the trained families that make sense, and why others do not."""
    Y = task.refits.X
    if is_exact(inactive, n):
        return [], ""
    if task.options.model != "auto":
        return families, ""
    if n == Y.shape[1]:
        return [f for f in families if not f.wide], ""
    if n == spectral_gap(principal_components(Y[task.train])[0]):
        return families, ""
    why = "No flow was tried on the first principal components alone: this projection may fold the other components."
    return [f for f in families if f.wide], why


def _values_of_u(model: ProjectedModel, n: int) -> str:
    """Return a reason if u has fewer values than the theorem needs, with a mean and a variance of every latent."""
    values = getattr(getattr(model.model_, "auxiliary_", None), "n_groups", 0)
    if not model.family.given_u or not 0 < values < 2 * n + 1:
        return ""
    return (
        f"u has {values} different values. To identify all {n} latents, {2 * n + 1} are needed. Number of latents for "
        f"which {values} values suffice: {(values - 1) // 2}."
    )
