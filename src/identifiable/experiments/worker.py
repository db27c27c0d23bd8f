"""Measure the runs of one task, in a worker process: each ends as a record, done or failed."""

import random
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from identifiable.estimators.base import resolve_device
from identifiable.experiments.recipe import DONE, FAILED, Measurement, Record, Run
from identifiable.experiments.run_folder import RunFolder
from identifiable.persist import versions

MOST_CHARACTERS = 300  # of the error in a record

Measure = Callable[[Run, str], Measurement]


@dataclass(frozen=True)
class BatchMeasure:
    """How one process measures several runs in one batch: those with the same `group`; None is measured alone."""

    group: Callable[[Run], str | None]
    measure: Callable[[Sequence[Run], str], Sequence[Measurement]]


@dataclass(frozen=True)
class Task:
    """The runs of one batch, usually one, and what a worker needs to finish them.

    Attributes
    ----------
    failed_before : keys of runs that failed before and are repeated, so that their old record does not count.
    """

    runs: tuple[Run, ...]
    measure: Measure
    batch: BatchMeasure | None
    device: str
    folder: RunFolder
    commit: str | None
    failed_before: frozenset[str] = frozenset()

    def unfinished(self) -> list[Run]:
        """Return the runs that the folder holds no record of since the sweep began."""
        found, _ = self.folder.find(self.runs)
        old = {key for key, record in found.items() if key in self.failed_before and record.status == FAILED}
        return [run for run in self.runs if run.key not in found or run.key in old]

    def record(self, run: Run, status: str, seconds: float, device: str, **found: Any) -> Record:
        """Return the record of a run that has just ended."""
        return Record(
            run=run,
            status=status,
            seconds=seconds,
            device=device,
            versions=versions(),
            commit=self.commit,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            **found,
        )


def measure_runs(task: Task, runs: Sequence[Run]) -> Iterator[Record]:
    """Yield the record of each run as soon as it is finished; runs of one batch finish together."""
    device = str(resolve_device(task.device))
    if (records := _measured_as_batch(task, runs, device)) is not None:
        yield from records
        return
    for run in runs:
        start = time.perf_counter()
        try:
            with _without_warnings():
                seed_generators(run)
                outcome = task.measure(run, device)
            record = _done(task, run, outcome, time.perf_counter() - start, device)
        except (Exception, SystemExit) as error:
            record = task.record(run, FAILED, time.perf_counter() - start, device, error=error_in_one_line(error))
        yield record


def _measured_as_batch(task: Task, runs: Sequence[Run], device: str) -> list[Record] | None:
    """Return the records of runs that were measured in one batch; None if that is not possible or failed."""
    if len(runs) < 2 or task.batch is None:
        return None
    start = time.perf_counter()
    try:
        with _without_warnings():
            seed_generators(runs[0])
            outcomes = task.batch.measure(runs, device)
        each = (time.perf_counter() - start) / len(runs)
        return [_done(task, run, outcome, each, device) for run, outcome in zip(runs, outcomes, strict=True)]
    except Exception:  # measured one by one, each run records its own error
        return None


def _done(task: Task, run: Run, outcome: Measurement, seconds: float, device: str) -> Record:
    found = {"metrics": outcome.metrics, "arrays": outcome.arrays, "certificate": outcome.certificate}
    record = task.record(run, DONE, seconds, device, **found)
    record.to_line()  # raises where the outcome cannot be written as JSON
    return record


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide warnings that are common in a sweep: restarts that disagree, solvers that do not converge."""
    with warnings.catch_warnings():
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        yield


def seed_generators(run: Run) -> None:
    """Seed the global generators from the key of a run, so that nothing depends on what the process did before."""
    seed = int(run.key[-8:], 16)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - for code that still uses it
    torch.manual_seed(seed)


def error_in_one_line(error: BaseException) -> str:
    r"""Describe an error without naming folders of this machine: of a path, only the last name is kept.

    Examples
    --------
    >>> error_in_one_line(FileNotFoundError("No file '/home/me/my data/x.csv',\n see /etc/y and 1/2"))
    "FileNotFoundError: No file 'x.csv', see y and 1/2"
    """
    text = " ".join(str(error).split())
    text = re.sub(r"""(['"])/[^'"]*/([^'"]*)\1""", r"\1\2\1", text)
    text = re.sub(r"""(?<![\w.)\]])/+(?:[^\s'"/]+/+)*(?=[^\s'"/])""", "", text)
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 1]}…"
