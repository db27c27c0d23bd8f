"""Whether the latents of a selected model are reproducible: refits of it, and a comparison with alternative models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from identifiable.agreement.refits import Fitted
from identifiable.arrays import Array
from identifiable.auto.task import MOST_ROWS, Task, Trial
from identifiable.errors import join_few

REFIT_SHARE = 0.8  # of its rows: what a trained model is given from another seed
LINEAR_REFITS = 7  # of a selected linear model, from other seeds
LINEAR_SPLITS = 3  # into halves of a selected linear model
WORKERS_START = 10.0  # seconds of refits from which other processes, which take seconds to start, are worth it


@dataclass(frozen=True, eq=False)
class Confirmation:
    """The fit that is kept, its agreement (n,) with refits from other seeds and with fits to halves, and why not all.

    Attributes
    ----------
    fitted, seeds, halves : NaN where no refit ended.
    error : a sentence if not all refits ended; else "".
    """

    fitted: Fitted
    seeds: Array
    halves: Array
    error: str


def confirm(task: Task, trial: Trial) -> Confirmation:
    """Refit the selected model, from other seeds and to two halves of the rows, several at the same time.

    A linear model is quick. It is refitted several times, and the fit that agrees best with the others is kept: two
    runs that do so agree more than two single fits.
    """
    assert trial.fitted is not None
    rng, linear = np.random.default_rng(task.options.seed + 2), trial.candidate.linear
    pool = task.refits.train
    if linear:
        others = [rng.permutation(pool)[:MOST_ROWS] for _ in range(LINEAR_REFITS)]
    else:
        others = [rng.permutation(pool)[: int(REFIT_SHARE * len(task.train))]]
    halves = [
        half for _ in range(LINEAR_SPLITS if linear else 1) for half in np.array_split(rng.permutation(task.train), 2)
    ]
    calls = [(trial.model, rows, task.options.seed + 1 + k) for k, rows in enumerate([*others, *halves])]
    words = f"refitting {trial.candidate.name}: from other seeds, and to both halves of the rows"
    worth = trial.candidate.seconds * len(calls) > WORKERS_START
    ended = dict(task.together(task.refits.fit, calls, words, task.options.n_jobs if worth else 1))
    errors = [
        f"Not all refits that were to confirm it ended: {value}"
        for _, value in sorted(ended.items())
        if not isinstance(value, Fitted)
    ]
    fits = {k: value for k, value in ended.items() if isinstance(value, Fitted)}
    refitted = [fits[k] for k in range(len(others)) if k in fits]
    fitted = trial.fitted
    if linear:
        fitted, *refitted = _most_agreed_first(task, refitted) or [fitted]
    agreements: list[Array] = []
    for k in range(len(others), len(calls), 2):
        pair = [task.agreement(fitted, [fits[i]] if i in fits else []) for i in (k, k + 1)]
        if not agreements or not np.isnan(pair).any():  # else out of time
            agreements.append(np.min(pair, axis=0))
    return Confirmation(fitted, task.agreement(fitted, refitted), np.mean(agreements, axis=0), "".join(errors[:1]))


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
