"""Measure one run, in a worker process: it ends as a record, done or failed."""

import random
import re
import time
import warnings
from collections.abc import Callable, Iterator
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
class Task:
    """A run, and what a worker needs to finish it; `retried` if it failed before and its old record does not count."""

    run: Run
    measure: Measure
    device: str
    folder: RunFolder
    token: str
    commit: str | None
    retried: bool = False

    def is_recorded(self) -> bool:
        """Return whether a worker has written the record, although it may have died before it could say so."""
        record = self.folder.find([self.run])[0].get(self.run.key)
        return record is not None and not (self.retried and record.status == FAILED)

    def record(self, status: str, seconds: float, device: str, **found: Any) -> Record:
        """Return the record of the run, which has just ended."""
        return Record(
            run=self.run,
            status=status,
            seconds=seconds,
            device=device,
            versions=versions(),
            commit=self.commit,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            **found,
        )


def finish(task: Task) -> Record:
    """Measure a run, unless its record is there already, and write the record if this process sees the run folder."""
    sees_folder = task.folder.has_token(task.token)
    if sees_folder and task.is_recorded():
        return task.folder.read(task.run)
    record = measure_task(task)
    if sees_folder:
        task.folder.write(record)
    return record


def measure_task(task: Task) -> Record:
    """Measure the run of a task; an exception becomes a record of a failure."""
    device, start = str(resolve_device(task.device)), time.perf_counter()
    try:
        with _without_warnings():
            seed_generators(task.run)
            outcome = task.measure(task.run, device)
        found = {"metrics": outcome.metrics, "arrays": outcome.arrays, "certificate": outcome.certificate}
        record = task.record(DONE, time.perf_counter() - start, device, **found)
        record.to_line()  # raises where the outcome cannot be written as JSON
    except (Exception, SystemExit) as error:
        record = task.record(FAILED, time.perf_counter() - start, device, error=error_in_one_line(error))
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
