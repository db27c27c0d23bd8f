"""From a table to a verdict without ground truth: count latents, try families, choose a model, confirm it.

The rules of the choice are in `identifiable.auto.verdict`. All steps hold out the same rows, whatever the seed, and
compare fits on these. Every fit computes its principal components from its own rows, as an independent run would.

The number of latents is where the variances of the principal components fall to the level of noise. If they do not fall
and columns are many, it is where stability breaks: linear methods look for 2, 3, ... latents in both halves of the
rows, and from some number on the halves disagree.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from rich.console import Console

from identifiable.agreement.refits import Fitted, Refits
from identifiable.agreement.stability import THRESHOLDS
from identifiable.arrays import Array, FloatArray, Rows
from identifiable.auto.families import FAMILIES, Family, ProjectedModel, principal_components
from identifiable.auto.verdict import LATE, RULES, Candidate, Verdict, choose, is_exact, judge_latents
from identifiable.errors import DataError, FitFailedError, OutOfTimeError, join_few
from identifiable.estimators.gmm_flow import MOST_COMPONENTS
from identifiable.training import seconds_left, time_limit

NUMBERS = (2, 3, 4, 5, 6, 8, 10)  # of latents that are looked for in halves of the rows
HELD_OUT = 0.2  # of the rows, at most 1000
MOST_ROWS = 20_000  # that a fit is given
REFIT_SHARE = 0.8  # of its rows: what a trained model is given from another seed
LINEAR_REFITS = 7  # of a selected linear model, from other seeds
SPLITS = 3  # into halves: for each number of latents, if rows are few, and for a selected linear model
FEW_ROWS = 10_000  # up to which it takes little time to split them so often
COUNTING_SHARE = 0.2  # of the time, for the number of latents
CONFIRMATIONS = 3  # fits of a selected trained model, after all were tried
LONGEST = 1.5  # turns that a fit may take after all
SAMPLED = (0.01, 0.03)  # of the steps, to predict how long all of them would take
CAUTION = 0.7  # of a turn: the first steps are not the slowest
LEAST_STEPS = 0.2  # of the steps: a fit with fewer is uninformative


@dataclass(frozen=True)
class SearchOptions:
    """What to search for: the number of latents (None: count them), a family or "auto", and how to train."""

    n: int | None
    model: str
    n_restarts: int | None
    device: str
    verbose: int
    seed: int


@dataclass(frozen=True, eq=False)
class Task:
    """Rows (N, r) of full rank with the auxiliary variable, their split, and the options of the search."""

    refits: Refits
    train: Rows  # what models are fitted to
    options: SearchOptions

    @classmethod
    def of(cls, Y: FloatArray, u: Any, options: SearchOptions) -> "Task":
        """Hold out the same rows whatever the seed; more than 20,000 training rows are sampled."""
        refits = Refits.of(Y, u, seed=0, fraction=HELD_OUT)
        return cls(refits, np.random.default_rng(options.seed + 1).permutation(refits.train)[:MOST_ROWS], options)

    def model(self, family: Family, n: int, options: Mapping[str, Any] | None = None) -> ProjectedModel:
        """Return an unfitted model of a family."""
        restarts = {} if self.options.n_restarts is None else {"n_restarts": self.options.n_restarts}
        return ProjectedModel(family, n, {"device": self.options.device, **restarts, **(options or {})})

    def gains(self, fitted: Fitted, train: Rows) -> Array:
        """Return the gain over a Gaussian of each held-out row by a model fitted to some rows."""
        return fitted.model.gains(self.refits.take(train), self.refits.take(self.refits.held))

    def agreement(self, one: Fitted, others: Sequence[Fitted]) -> Array:
        """Return mean |correlations| (n,) of latents with their matches in other fits; NaN without one."""
        found = [np.abs(self.refits.match(one, other).correlations) for other in others]
        return np.mean(found, axis=0) if found else np.full(one.latents.shape[1], np.nan)

    def say(self, words: str) -> None:
        """Print what is being done and the time left."""
        if self.options.verbose:
            time_left = f" ({seconds_left():.0f} s left)" if seconds_left() < np.inf else ""
            Console(stderr=True).print(f"{words}{time_left}", highlight=False, markup=False)


@dataclass(frozen=True, eq=False)
class Trial:
    """A family that was tried: the candidate, its unfitted model, its fit if it counts, and its gain per row."""

    candidate: Candidate
    model: ProjectedModel
    fitted: Fitted | None
    gains: Array


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The selected and confirmed model, and what `Identify` reports about it."""

    model: ProjectedModel
    candidates: tuple[Candidate, ...]
    reasons: tuple[str, ...]
    verdict: Verdict
    expected_mcc: float


def search(Y: FloatArray, u: Any, options: SearchOptions) -> SearchResult:
    """Count latents, try families, choose one, confirm it and judge its latents, within the time limit around it."""
    task = Task.of(Y, u, options)
    families = _families(task)
    n, of_number = count_latents(task, [f for f in families if f.linear])
    trials, inactive, of_trials = try_families(task, families, n)
    gains = {name: trial.gains for name, trial in trials.items() if trial.fitted is not None}
    candidates = [trial.candidate for trial in trials.values()]
    selection = choose(candidates, gains, inactive=inactive, n=n, seed=options.seed + 3)
    chosen = trials[selection.name]
    fitted, seeds, halves, of_refits = confirm(task, chosen)
    alternatives, of_alternatives = compare(task, fitted, trials, selection.alternatives)
    verdict = judge_latents(seeds, halves, alternatives, identifiable=selection.identifiable)
    sampled, held = len(task.train) == MOST_ROWS, len(task.refits.held)
    of_rows = f"{MOST_ROWS} rows, sampled at random, were used to fit models, and {held} to compare them."
    of_u = _values_of_u(fitted.model, n) if selection.identifiable else ""
    reasons = (
        of_rows if sampled else "",
        of_number,
        of_trials,
        *selection.reasons,
        of_u,
        of_refits,
        of_alternatives,
        verdict.reason,
    )
    expected, restarts = float(seeds.mean()), fitted.model.model_.stability_.score
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


def try_families(task: Task, families: Sequence[Family], n: int) -> tuple[dict[str, Trial], int, str]:
    """Fit each family that makes sense; return trials by name, how many latents are exactly inactive, and a reason."""
    trials = {family.name: try_family(task, family, n) for family in families if family.linear}
    fits = {name: trial.fitted.model.model_ for name, trial in trials.items() if trial.fitted is not None}
    inactive = int(fits["SparseUnmixing"].n_found_) if "SparseUnmixing" in fits else 0
    if is_exact(inactive, n):
        return trials, inactive, ""
    options = {}
    if "FactorialUnmixing" in fits:  # GMMFlow would search for the same number of components
        options["GMMFlow"] = {"n_components": min(len(fits["FactorialUnmixing"].mixture_.weights), MOST_COMPONENTS)}
    trained, why = _trained(task, [f for f in families if not f.linear], n)
    turn = seconds_left() / (len(trained) + CONFIRMATIONS)  # seconds per fit
    return trials | {f.name: try_family(task, f, n, turn, options.get(f.name)) for f in trained}, inactive, why


def try_family(
    task: Task, family: Family, n: int, turn: float = np.inf, options: Mapping[str, Any] | None = None
) -> Trial:
    """Fit a family in about one turn (in seconds); a trained one gets fewer steps if the turn is too short."""
    start = time.monotonic()
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


def affordable_share(seconds_of: Callable[[float], float], turn: float) -> float:
    """Return the share of its steps, at most 1, that a fit has time for.

    Parameters
    ----------
    seconds_of : seconds that a fit with a given share of the steps takes; called for one or two small shares.
    turn : seconds available.
    """
    if turn == np.inf:
        return 1.0
    small, large = SAMPLED
    first = seconds_of(small)
    if first / small < CAUTION * turn:
        return 1.0
    of_all_steps = max((seconds_of(large) - first) / (large - small), 1e-9)
    before_steps = max(first - small * of_all_steps, 0.0)
    return min(1.0, (CAUTION * turn - before_steps) / of_all_steps)


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


def _trained(task: Task, families: list[Family], n: int) -> tuple[list[Family], str]:
    """Return the trained families that make sense, and why others do not."""
    Y = task.refits.X
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


# -- whether it is reproducible -----------------------------------------------------


def confirm(task: Task, trial: Trial) -> tuple[Fitted, Array, Array, str]:
    """Refit the selected model, from other seeds and to two halves of the rows.

    A linear model is quick. It is refitted several times, and the fit that agrees best with the others is kept: two
    runs that do so agree more than two single fits.

    Returns
    -------
    The fit that is kept, its agreement (n,) with refits from other seeds and with fits to halves, and a sentence if not
    all refits ended.
    """
    assert trial.fitted is not None
    task.say(f"refitting {trial.candidate.name}: from other seeds, and to both halves of the rows")
    rng, seeds, errors = np.random.default_rng(task.options.seed + 2), count(task.options.seed + 1), []
    pool, linear, fitted = task.refits.train, trial.candidate.linear, trial.fitted

    def refits(samples: Sequence[Rows], share: float = 1.0) -> list[Fitted]:
        found: list[Fitted] = []
        try:
            with time_limit(share * seconds_left()):
                for rows in samples:
                    found.append(task.refits.fit(trial.model, rows, next(seeds)))
        except (OutOfTimeError, FitFailedError, DataError) as error:
            errors.append(f"Not all refits that were to confirm it ended: {error}")
        return found

    if linear:
        found = refits([rng.permutation(pool)[:MOST_ROWS] for _ in range(LINEAR_REFITS)], 0.5)
        fitted, *others = _most_agreed_first(task, found) or [fitted]
    else:
        others = refits([rng.permutation(pool)[: int(REFIT_SHARE * len(task.train))]])
    halves: list[Array] = []
    for _ in range(SPLITS if linear else 1):
        two = np.array_split(rng.permutation(task.train), 2)
        agreement = np.min([task.agreement(fitted, refits([half])) for half in two], axis=0)
        if halves and np.isnan(agreement).any():
            break  # out of time
        halves.append(agreement)
    return fitted, task.agreement(fitted, others), np.mean(halves, axis=0), "".join(errors[:1])


def _most_agreed_first(task: Task, fits: Sequence[Fitted]) -> list[Fitted]:
    agreement = [sum(task.refits.match(one, other).score for other in fits) for one in fits]
    return [fits[k] for k in np.argsort(agreement, kind="stable")[::-1]]


def compare(
    task: Task, fitted: Fitted, trials: Mapping[str, Trial], alternatives: Mapping[str, float]
) -> tuple[Array, str]:
    """Return the agreement (n,) with alternative models, weighted by their chances, and a sentence on them."""
    chances, agreement = np.array(list(alternatives.values())), task.agreement(fitted, [])
    if not alternatives:
        return agreement, ""
    others = [trials[name].fitted for name in alternatives]
    agreement = chances @ np.array([task.agreement(fitted, [one]) for one in others if one is not None]) / chances.sum()
    return agreement, (
        f"Alternative models: {join_few(list(alternatives))}, selected on {100 * chances.sum():.0f} % of resampled "
        f"held-out rows. Their latents correlate with these by {agreement.mean():.2f} on average."
    )
