"""Fit many runs of one method in one batch, on a GPU, where its estimator has `fit_many`."""

import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from identifiable.errors import RecoveryWarning
from identifiable.experiments.measure import Fit, build, make_data, measure, recovered
from identifiable.experiments.progress import say
from identifiable.experiments.recipe import DONE, Run
from identifiable.experiments.run_folder import RunFolder
from identifiable.experiments.runner import current_commit
from identifiable.experiments.worker import Task, seed_generators

IN_ONE_BATCH = ("PDGMM",)  # estimators whose `fit_many` trains all data sets at once, linear starts included
MOST = 40  # runs in a batch: bounds the memory


def batches(runs: Sequence[Run]) -> list[list[Run]]:
    """Divide the runs that can be fitted together into batches of one method and one number of latents and rows."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.experiment == "recovery" and run.how.estimator in IN_ONE_BATCH and run.how.before is None:
            groups.setdefault(repr((run.how, run.values.get("n"), run.values.get("rows"))), []).append(run)
    return [group[i : i + MOST] for group in groups.values() for i in range(0, len(group), MOST)]


def run_together(runs: Sequence[Run], folder: str | Path, *, device: str, verbose: int = 1) -> None:
    """Compute batches in this process and write their records; what remains is left for `run_all`.

    Does nothing unless the device is a GPU. A batch is computed again if any of its runs has no record, because a fit
    is reproducible together with the others only; records that exist are kept. After an error its runs are left.
    """
    if not device.startswith("cuda") or not torch.cuda.is_available():
        return
    target = RunFolder(Path(folder))
    target.require_not_a_file()
    waiting = [batch for batch in batches(runs) if len(target.find(batch)[0]) < len(batch)]
    if not waiting:
        return
    with target.locked():
        token, commit = target.begin(), current_commit()
        for number, batch in enumerate(waiting, 1):
            started = time.perf_counter()
            if verbose:
                say(f"batch {number} of {len(waiting)}: {len(batch)} fits of {batch[0].method} at once")
            try:
                measured = fit_batch([Task(run, measure, device, target, token, commit) for run in batch])
            except (ValueError, RuntimeError) as error:
                say(f"batch {number} failed, its runs are computed one by one: {error}")
                continue
            if verbose:
                say(f"batch {number}: {measured} records after {time.perf_counter() - started:.0f} s")


def fit_batch(tasks: Sequence[Task]) -> int:
    """Fit the runs of a batch and write the records of those that have none; return how many were written."""
    first, device = tasks[0].run, tasks[0].device
    seed_generators(first)
    data = [make_data(task.run) for task in tasks]
    started = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=RecoveryWarning):
        models = build(first, first.how, data[0][0], device).fit_many([sample.x for sample, _ in data])
        seconds = (time.perf_counter() - started) / len(tasks)
        written = 0
        for task, model, (_, new) in zip(tasks, models, data, strict=True):
            if task.is_recorded():
                continue
            found = recovered(task.run, Fit((), model, seconds), new)
            values = {"metrics": found.metrics, "arrays": found.arrays, "certificate": found.certificate}
            task.folder.write(task.record(DONE, seconds, device, **values))
            written += 1
    return written
