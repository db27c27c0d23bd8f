"""Runs for the tests of the sweep, and ways to measure them that other processes can import.

A measurement notes "start KEY PID" and "end KEY PID" in a log that is only ever appended to.
"""

import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import torch

import identifiable.files
from identifiable.experiments.recipe import Measurement, Method, Record, Run
from identifiable.experiments.run_folder import RunFolder
from identifiable.experiments.worker import Task, seed_generators
from identifiable.persist import versions


def one_run(seed=0, *, method="A", setting="n = 5", **values):
    return Run("paper/table1", "full", "recovery", setting, {"n": 5, **values}, method, Method("PCA"), seed)


def runs(count, **values):
    return tuple(one_run(seed, **values) for seed in range(count))


def task(run, measure, folder, token=""):
    return Task(run, measure, "cpu", RunFolder(folder), token, None)


def on_cpu(run):
    return "cpu"


def note(log, *words):
    with Path(log).open("a") as f:
        f.write(" ".join(map(str, words)) + "\n")


def noted(log, word):
    """The keys behind a word of the log, in the order of time."""
    lines = Path(log).read_text().splitlines() if Path(log).exists() else []
    return [key for what, key, _ in map(str.split, lines) if what == word]


def pids(log):
    return {int(line.split()[2]) for line in Path(log).read_text().splitlines()}


def contents(records):
    """The records without what may differ between two sweeps."""
    return [replace(r, seconds=0.0, finished="", commit=None).to_line() for r in records]


def expected(requested):
    """What the plain measurement returns for these runs, one after the other in this process."""
    found = []
    for run in requested:
        seed_generators(run)
        outcome = logged(os.devnull)(run, "cpu")
        found.append(Record(run, "done", 0.0, outcome.metrics, outcome.arrays, outcome.certificate))
    return contents(replace(r, versions=versions()) for r in found)


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.name not in (".lock", ".token"))


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition never became true"
        time.sleep(0.01)


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def killing(log, *, beside=None):
    """Kill the process that waits, once the run beside it has begun, too."""

    def kill():
        until(lambda: noted(log, "waits") and (beside is None or beside.key in noted(log, "start")))
        line = next(line for line in log.read_text().splitlines() if line.startswith("waits"))
        os.kill(int(line.split()[2]), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    yield
    thread.join()


def logged(log):
    """The plain measurement: numbers made of the run and of the global generators."""
    return partial(_measure, str(log))


def _measure(log, run, device):
    note(log, "start", run.key, os.getpid())
    time.sleep(run.values.get("seconds", 0))
    outcome = Measurement(
        {"seed": float(run.seed), "numpy": np.random.rand(), "torch": torch.rand(()).item(), "nan": np.nan},
        {"table": [[1, run.seed], [0.1, 2]]},
        {"level": "none"},
    )
    note(log, "end", run.key, os.getpid())
    return outcome


def fails_at_1(log):
    """A measurement that raises an error for seed 1."""
    return partial(_fail_at_1, str(log))


def _fail_at_1(log, run, device):
    note(log, "start", run.key, os.getpid())
    if run.seed == 1:
        raise ValueError("no rank\nin '/some/where/my data/x.csv' at /some/where/y or /z, 1/2")
    return Measurement({"one": 1.0})


def once_waits(log, chosen):
    """A measurement that waits the first time it comes to the chosen run, so that its process can be killed there."""
    return partial(_wait_once, str(log), chosen.key)


def _wait_once(log, chosen, run, device):
    note(log, "threads", os.environ["OMP_NUM_THREADS"], os.getpid())
    if run.key == chosen and chosen not in noted(log, "waits"):
        note(log, "waits", run.key, os.getpid())
        time.sleep(60)
    return _measure(log, run, device)


def dies_after_writing(log):
    """A measurement whose process is killed as soon as the record is written, every time."""
    return partial(_measure_last, str(log))


def _measure_last(log, run, device):
    write = identifiable.files.write_bytes

    def write_and_die(path, content):
        write(path, content)
        os.kill(os.getpid(), signal.SIGKILL)

    identifiable.files.write_bytes = write_and_die
    return _measure(log, run, device)


def dies_at(log, chosen):
    """A measurement that kills its process at the chosen run."""
    return partial(_die, str(log), chosen.key)


def _die(log, chosen, run, device):
    if run.key == chosen:
        note(log, "start", run.key, os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)
    return _measure(log, run, device)
