"""Whether the latents of a selected model are reproducible: refits of it, and a comparison with alternative models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from identifiable.agreement.refits import Fitted
from identifiable.agreement.stability import THRESHOLDS
from identifiable.arrays import Array, Rows
from identifiable.auto.rows_needed import rows_needed
from identifiable.auto.task import MOST_ROWS, Task, Trial
from identifiable.errors import DataError, FitFailedError, OutOfTimeError, join_few
from identifiable.training import seconds_left

REFIT_SHARE = 0.8  # of its rows: what a trained model is given from another seed
LINEAR_REFITS = 7  # of a selected linear model, from other seeds, if there is time
LINEAR_SPLITS = 3  # into halves of a selected linear model, if there is time
TIME_SHARE = 0.7  # of the time that is left, for these
SAME = 0.01  # by which a fit to all rows may agree less than refits do with each other
WORKERS_START = 10.0  # seconds of refits from which other processes, which take seconds to start, are worth it


@dataclass(frozen=True, eq=False)
class Confirmation:
    """The fit that is kept, its agreement (n,) with refits from other seeds and with fits to halves, and why not all.

    Attributes
    ----------
    fitted, seeds, halves : NaN where no refit ended.
    error : a sentence if not all refits ended; else "".
    enough : rows at which all latents of a linear model would be reproducible, if that can be extrapolated.
    """

    fitted: Fitted
    seeds: Array
    halves: Array
    error: str
    enough: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the agreements with refits from other seeds and with fits to halves are known."""
        return not bool(np.isnan(self.seeds + self.halves).any())


def confirm(task: Task, trial: Trial) -> Confirmation:
    """Refit the selected model, from other seeds and to two halves of the rows, several at the same time.

    A linear model is quick. It is refitted several times, as time allows, and the fit that agrees best with the others
    is kept: two runs that do so agree more than two single fits.
    """
    assert trial.fitted is not None
    rng, linear = np.random.default_rng(task.options.seed + 2), trial.candidate.linear
    pool = task.refits.train
    all_refits = trial.candidate.seconds * (LINEAR_REFITS + 2 * LINEAR_SPLITS)
    share = min(1.0, TIME_SHARE * seconds_left() / max(all_refits, 1e-9))  # of the refits of a linear model
    if linear:
        others = [rng.permutation(pool)[:MOST_ROWS] for _ in range(max(1, round(share * LINEAR_REFITS)))]
    else:
        others = [rng.permutation(pool)[: int(REFIT_SHARE * len(task.train))]]
    known = trial.candidate.halves if share * LINEAR_SPLITS < 1 else ()  # there is no time to measure them again
    splits = 0 if known else max(1, round(share * LINEAR_SPLITS)) if linear else 1
    pairs = [task.refits.split(task.train, k, rng) for k in range(splits)]
    halves = [half for pair in pairs for half in pair]
    words = f"refitting {trial.candidate.name}: from other seeds, and to both halves of the rows"
    ended = _refit(task, trial, [*others, *halves], 1, words)
    error = next((f"Not all refits that were to confirm it ended: {value}" for value in ended if _failed(value)), "")
    refitted = [value for value in ended[: len(others)] if not _failed(value)]
    fitted = trial.fitted
    if linear and len(refitted) > 2:
        fitted, *refitted = _most_agreed_first(task, refitted)
    of_halves = np.array(known) if known else _agreement_of_pairs(task, fitted, ended[len(others) :])
    enough = None
    if linear and of_halves.min() < THRESHOLDS.stable:
        task.say("simulating how many rows would make all latents reproducible")
        enough = rows_needed(fitted.model.model_, len(task.refits.X), seed=task.options.seed)
    found = Confirmation(fitted, task.agreement(fitted, refitted), of_halves, error, enough)
    return _of_all_rows(task, trial, found) if linear and found.complete and not known else found


def _of_all_rows(task: Task, trial: Trial, found: Confirmation) -> Confirmation:
    """Refit a confirmed linear model to held-out rows, too, if the fit agrees as well as others from other seeds do."""
    if len(task.train) < len(task.refits.train):
        return found  # rows abound
    rows = np.sort(np.r_[task.refits.train, task.refits.held])
    try:
        last = task.refits.fit(trial.model, rows, found.fitted.model.random_state)
    except (DataError, FitFailedError, OutOfTimeError):
        return found
    matched = task.refits.match(last, found.fitted)
    order = matched.permutation
    if len(set(order.tolist())) < len(found.seeds) or matched.score < found.seeds.mean() - SAME:
        return found
    return replace(found, fitted=last, seeds=found.seeds[order], halves=found.halves[order])


def _refit(task: Task, trial: Trial, parts: Sequence[Rows], first_seed: int, words: str) -> list[Any]:
    """Refit the model to each part of the rows; return the fits, or the errors that only say why there is none."""
    calls = [(trial.model, rows, task.options.seed + first_seed + k) for k, rows in enumerate(parts)]
    worth = trial.candidate.seconds * len(calls) > WORKERS_START
    ended = dict(task.together(task.refits.fit, calls, words, task.options.n_jobs if worth else 1))
    return [ended[k] for k in range(len(calls))]


def _failed(value: Any) -> bool:
    return not isinstance(value, Fitted)


def _agreement_of_pairs(task: Task, fitted: Fitted, fits: Sequence[Any]) -> Array:
    """Return the lower agreement (n,) of a fit with the two of each pair, averaged over pairs that ended."""
    agreements: list[Array] = []
    for one, other in zip(fits[::2], fits[1::2], strict=True):
        pair = [task.agreement(fitted, [] if _failed(fit) else [fit]) for fit in (one, other)]
        if not agreements or not np.isnan(pair).any():  # else out of time
            agreements.append(np.min(pair, axis=0))
    return np.asarray(np.mean(agreements, axis=0))


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


def split_halves(task: Task, trial: Trial) -> tuple[float, ...]:
    """Return the agreement of each latent of a linear model with its fits to two halves of the rows; () if one failed.

    The halves do not depend on the seed.
    """
    assert trial.fitted is not None
    parts = task.refits.split(np.sort(task.train), 0, np.random.default_rng(0))
    try:
        fits = [task.refits.fit(trial.model, part, task.options.seed + k) for k, part in enumerate(parts)]
    except (DataError, FitFailedError):
        return ()
    return tuple(np.min([task.agreement(trial.fitted, [fit]) for fit in fits], axis=0).tolist())
