"""From a table to a verdict without ground truth: count latents, try families, choose a model, confirm it, judge.

The rules are in `identifiable.auto.choice` and `identifiable.auto.verdict`. All steps hold out the same rows, whatever
the seed, and compare fits on these. Every fit computes its principal components from its own rows, as an independent
run would.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from identifiable.agreement.stability import THRESHOLDS
from identifiable.arrays import Array, BoolArray, FloatArray
from identifiable.auto.choice import Selection, best_linear, choose, is_exact, is_informative
from identifiable.auto.confirm import Confirmation, compare, confirm, split_halves
from identifiable.auto.counting import Count, count_latents
from identifiable.auto.families import FAMILIES, Family, ProjectedModel
from identifiable.auto.task import MOST_ROWS, SearchOptions, Task, Trial
from identifiable.auto.together import at_once
from identifiable.auto.verdict import LATE, Candidate, Evidence, Verdict, judge_latents, verdict_of
from identifiable.data.columns import are_columns, effective_rows, same_column
from identifiable.errors import DataError, FitFailedError, OutOfTimeError, join_few
from identifiable.estimators.gmm_flow import MOST_COMPONENTS
from identifiable.theory import Level
from identifiable.theory.thresholds import THRESHOLDS as CERTIFICATES
from identifiable.training import seconds_left, time_limit

CONFIRMATIONS = 3  # fits of a selected trained model, after all were tried
LINEAR_SHARE = 0.35  # of the time that is left, for each linear model
MANY = 30  # latents from which linear models differ much in speed
MOST_NONLINEAR = 20  # latents up to which nonlinear models are tried; training takes hours for more
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


def answers(
    Y: FloatArray,
    u: Any,
    options: SearchOptions,
    *,
    early: bool,
    ordered: bool = False,
    columns: FloatArray | None = None,
    surrogate: FloatArray | None = None,
    coarse: BoolArray | None = None,
) -> Iterator[SearchResult]:
    """Yield the model selected from all families; with `early`, before it that of the linear ones, if others follow.

    Parameters
    ----------
    Y : (N, r) rows of full rank; u : the auxiliary variable, or None.
    ordered : whether the order of the rows counts.
    columns : (N, d) the columns of the table, to see whether latents are columns.
    coarse : (d,) which of them are discrete, rounded, or hold one value in many rows.
    surrogate : (N, r) rows of a Gaussian behind columns with the same values, if some are coarse.
    """
    n_columns = None if columns is None else columns.shape[1]
    task = Task.of(Y, u, options, ordered=ordered, n_columns=n_columns)
    families = _families(task)
    count = count_latents(task)
    linear = try_linear(task, [f for f in families if f.linear], count.n)
    beaten = _gain_of_surrogate(task, surrogate, linear)
    search = Search(task, count, columns, coarse, linear, beaten)
    trained, why = _trained(search, [f for f in families if not f.linear])
    if early and trained and any(trial.fitted is not None for trial in search.trials.values()):
        names = join_few([family.name for family in trained])
        yield search.answer(f"First answer, from linear models only. Not tried yet: {names}.", final=False)
    search.trials.update(try_trained(task, trained, count.n, search.trials))
    yield search.answer(why)


@dataclass(frozen=True, eq=False)
class Search:
    """A table, its number of latents, and what was tried and confirmed so far.

    Attributes
    ----------
    columns, coarse : (N, d) of the table, and which of them (d,) are discrete, rounded or repeated; or None.
    surrogate_gain : nats per row that linear models gain on a Gaussian behind columns with the same values, or 0.
    """

    task: Task
    count: Count
    columns: FloatArray | None
    coarse: BoolArray | None
    trials: dict[str, Trial]
    surrogate_gain: float = 0.0
    confirmed: dict[str, Confirmation] = field(default_factory=dict)

    @property
    def inactive(self) -> int:
        """How many latents `SparseUnmixing` found exactly inactive in many rows; a value of a coarse column is none."""
        trial = self.trials.get("SparseUnmixing")
        if trial is None or trial.fitted is None:
            return 0
        found = int(trial.fitted.model.model_.n_found_)
        if not found or self.columns is None or self.coarse is None or not self.coarse.any():
            return found
        z = trial.fitted.model.transform(self.task.refits.X)[:, :found]
        equal = same_column(z, self.columns)
        return int(((equal < 0) | ~self.coarse[equal]).sum())

    @property
    def linear(self) -> Candidate | None:
        """The best linear model that explains the rows better than a Gaussian."""
        candidates = [self._net(trial.candidate) for trial in self.trials.values()]
        return best_linear([c for c in candidates if np.isfinite(c.gain) and is_informative(c)])

    def _net(self, candidate: Candidate) -> Candidate:
        """Return the candidate without what it would gain from coarse columns alone."""
        if not self.surrogate_gain:
            return candidate
        return replace(candidate, gain=candidate.gain - self.surrogate_gain, non_gaussian=False, inactive=0)

    def answer(self, of_trials: str, *, final: bool = True) -> SearchResult:
        """Choose one of the models that were tried, confirm it, and judge its latents."""
        task, trials, seed = self.task, self._trials_like_linear(), self.task.options.seed
        gains = {name: trial.gains - self.surrogate_gain for name, trial in trials.items() if trial.fitted is not None}
        candidates = [self._net(trial.candidate) for trial in trials.values()]
        selection = choose(candidates, gains, inactive=self.inactive, n=self.count.n, seed=seed + 3)
        chosen = trials[selection.name]
        if selection.name not in self.confirmed:
            self.confirmed[selection.name] = confirm(task, chosen)
        confirmed = self.confirmed[selection.name]
        alternatives, of_alternatives = compare(task, confirmed.fitted, trials, selection.alternatives)
        verdict = self._judge(confirmed, alternatives, selection, chosen.candidate, final=final)
        sampled, held = len(task.train) == MOST_ROWS, len(task.refits.held)
        of_rows = f"{MOST_ROWS} rows, sampled at random, were used to fit models, and {held} to compare them."
        reasons = (
            of_rows if sampled else "",
            self.count.reason,
            of_trials,
            self._of_surrogate(),
            *selection.reasons,
            "" if selection.gaussian else _values_of_u(confirmed.fitted.model, self.count.n),
            confirmed.error,
            of_alternatives,
            *verdict.reasons,
        )
        expected, restarts = float(confirmed.seeds.mean()), confirmed.fitted.model.model_.stability_.score
        if not (chosen.candidate.linear or np.isnan(restarts)):
            expected = (expected + restarts) / 2
        ranked = tuple(sorted((t.candidate for t in trials.values()), key=lambda c: c.name != selection.name))
        return SearchResult(confirmed.fitted.model, ranked, tuple(filter(None, reasons)), verdict, expected)

    def _judge(
        self, confirmed: Confirmation, alternatives: Array, selection: Selection, chosen: Candidate, *, final: bool
    ) -> Verdict:
        refits, model = self.task.refits, confirmed.fitted.model
        z = model.transform(refits.X)
        latents = judge_latents(
            confirmed.seeds,
            confirmed.halves,
            alternatives,
            rows=effective_rows(z),
            identifiable=not selection.gaussian,
        )
        evidence = Evidence(
            len(refits.X),
            gaussian=selection.gaussian,
            gain=(chosen.gain - self.surrogate_gain, chosen.error),
            confirmed=confirmed.complete,
            certificate=getattr(model.model_, "certificate_", None),
            unmixed=self.columns is not None and len(latents) > 1 and are_columns(z, self.columns),
            enough=confirmed.enough,
            final=final,
        )
        return verdict_of(latents, evidence)

    def _trials_like_linear(self) -> dict[str, Trial]:
        """Return the trials, with the correlations between the latents of trained models and of linear ones."""
        linear = [
            t.fitted for t in self.trials.values() if t.candidate.linear and is_informative(self._net(t.candidate))
        ]
        found = dict(self.trials)
        for name, trial in self.trials.items():
            if trial.fitted is not None and not trial.candidate.linear:
                like = [self.task.agreement(one, [trial.fitted]).mean() for one in linear if one is not None]
                found[name] = replace(trial, candidate=replace(trial.candidate, like_linear=max(like, default=np.nan)))
        return found

    def _of_surrogate(self) -> str:
        if not self.surrogate_gain:
            return ""
        return (
            "Some columns are coarse: linear models gain "
            f"{self.surrogate_gain:.2f} nats per row on a Gaussian behind columns with the same values, too. This is "
            "subtracted from the gains."
        )


def _gain_of_surrogate(task: Task, surrogate: FloatArray | None, linear: Mapping[str, Trial]) -> float:
    """Return the highest gain of the linear models that were tried on rows of the surrogate; 0 without one."""
    if surrogate is None:
        return 0.0
    task.say("comparing with a Gaussian behind columns with the same values")
    other = replace(task, refits=replace(task.refits, X=surrogate))
    found = [0.0]
    for trial in linear.values():
        if trial.fitted is not None and is_informative(trial.candidate):
            try:
                fitted = other.refits.fit(trial.model, task.train, task.options.seed)
                gains = other.gains(fitted, task.train)
                found.append(float(gains.mean() + 2 * gains.std() / len(gains) ** 0.5))
            except (DataError, FitFailedError, OutOfTimeError):
                continue
    return max(found)


# -- the model ----------------------------------------------------------------------


def _fitted(trials: Mapping[str, Trial], name: str) -> Any:
    """Return the fitted estimator of a trial, or None."""
    trial = trials.get(name)
    return None if trial is None or trial.fitted is None else trial.fitted.model.model_


def try_linear(task: Task, families: Sequence[Family], n: int) -> dict[str, Trial]:
    """Fit each affine family, and to halves of the rows; return trials by name.

    Once one explains the rows, is reproducible and guaranteed, `SparseUnmixing` is the only other that is tried. With
    many latents it is the first, as it is much faster then.
    """
    found: dict[str, Trial] = {}
    for family in sorted(families, key=lambda f: f.name != "SparseUnmixing") if n > MANY else families:
        if family.name != "SparseUnmixing" and any(_settles(trial) for trial in found.values()):
            continue
        with time_limit((LINEAR_SHARE if found or n <= MANY else 2 * LINEAR_SHARE) * seconds_left()):
            trial = try_family(task, family, n)
            if trial.fitted is not None and is_informative(trial.candidate):
                with suppress(OutOfTimeError):
                    trial = replace(trial, candidate=replace(trial.candidate, halves=split_halves(task, trial)))
        found[family.name] = trial
    return found


def _settles(trial: Trial) -> bool:
    """Return whether a linear model needs no other to be compared with: its latents are reproducible and guaranteed.

    Only `LinearICA` and `SparseUnmixing` test whether the mixing is affine: latents that are independent in all rows,
    or inactive in many of them, are not what an affine map makes of a nonlinear mixture. Where latents are many, that
    all of them are inactive up to noise is enough.
    """
    candidate = trial.candidate
    if trial.fitted is None or candidate.name not in ("LinearICA", "SparseUnmixing") or not candidate.halves:
        return False
    model = trial.fitted.model.model_
    inactive = len(candidate.halves) > MANY and bool(getattr(model, "established_", np.zeros(1, dtype=bool)).all())
    return min(candidate.halves) >= THRESHOLDS.stable and (inactive or model.certificate_.level == Level.PS)


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
            model_ = fitted.model.model_
            inactive = int(getattr(model_, "established_", np.zeros(1)).sum())
            shown = _is_non_gaussian(getattr(model_, "log_ratios_", None)) or inactive > 0
            candidate = candidate.on(gains)
            candidate = replace(candidate, agreement=model_.stability_.score, non_gaussian=shown, inactive=inactive)
        else:
            fitted, note = None, "its likelihood of held-out rows is not finite"
    except OutOfTimeError:
        note = LATE
    except (FitFailedError, DataError) as error:
        note = str(error)
    return Trial(replace(candidate, note=note, seconds=time.monotonic() - start), model, fitted, gains)


def _is_non_gaussian(log_ratios: Array | None) -> bool:
    """Return whether split likelihood ratios (n,) of latents against a Gaussian show one that is none; see `comon`."""
    return log_ratios is not None and bool(log_ratios.max() >= np.log(len(log_ratios) / CERTIFICATES.error_level))


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
    """Return the family that was asked for, or all that the data allow; `LinearICA` before others that are slower."""
    given = task.refits.u is not None
    if task.options.model == "auto":
        found = [f for f in FAMILIES if given or not f.given_u]
        return sorted(found, key=lambda f: f.name != "LinearICA")
    family = next(f for f in FAMILIES if f.name == task.options.model)
    if family.given_u and not given:
        raise DataError(f"{family.name} needs the auxiliary variable u: pass it as y.")
    return [family]


def _trained(search: Search, families: list[Family]) -> tuple[list[Family], str]:
    """Return the trained families that make sense, and why others do not."""
    n, width = search.count.n, search.task.refits.X.shape[1]
    if is_exact(search.inactive, n):
        return [], ""
    if search.task.options.model != "auto":
        return families, ""
    linear = search.linear
    if linear is not None and _settles(search.trials[linear.name]):
        return [], "No nonlinear model was tried: the latents of the linear one are reproducible and guaranteed."
    linear_tried = any(trial.fitted is not None for trial in search.trials.values())
    if linear is None and linear_tried:
        return [], "No nonlinear model was tried: no linear one, mixtures among them, explains more than a Gaussian."
    if n > MOST_NONLINEAR:
        return [], f"No nonlinear model was tried: {n} latents are more than {MOST_NONLINEAR}. Name one to try it."
    if n == width:
        return [f for f in families if not f.wide], ""
    if search.count.by_gap:
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
