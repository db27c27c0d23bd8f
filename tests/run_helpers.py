"""Cells for the tests of `identifiable.experiments.runner`, and ways to measure them that other processes can import.

A measurement notes "start KEY PID" and "end KEY PID" in a log that is only ever appended to.
"""

import os
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from identifiable.experiments.recipe import Cell, Measurement, Method


def cell(seed=0, *, method="A", setting="n = 5", **values):
    return Cell("paper/table1", "full", "recovery", setting, {"n": 5, **values}, method, Method("PCA"), seed)


def cells(count, **values):
    return tuple(cell(seed, **values) for seed in range(count))


def note(log, *words):
    with Path(log).open("a") as f:
        f.write(" ".join(map(str, words)) + "\n")


def noted(log, word):
    """The keys behind a word of the log, in the order of time."""
    lines = Path(log).read_text().splitlines() if Path(log).exists() else []
    return [key for what, key, _ in map(str.split, lines) if what == word]


def pids(log):
    return {int(line.split()[2]) for line in Path(log).read_text().splitlines()}


def logged(log):
    """The plain measurement: numbers made of the cell and of the global generators."""
    return partial(_measure, str(log))


def _measure(log, cell, device):
    note(log, "start", cell.key, os.getpid())
    time.sleep(cell.values.get("seconds", 0))
    outcome = Measurement(
        {"seed": float(cell.seed), "numpy": np.random.rand(), "torch": torch.rand(()).item(), "nan": np.nan},
        {"table": [[1, cell.seed], [0.1, 2]]},
        {"level": "none"},
    )
    note(log, "end", cell.key, os.getpid())
    return outcome


def once_waits(log, chosen):
    """A measurement that waits the first time it comes to the chosen cell, so that its process can be killed there."""
    return partial(_wait_once, str(log), chosen.key)


def _wait_once(log, chosen, cell, device):
    note(log, "threads", os.environ["OMP_NUM_THREADS"], os.getpid())
    if cell.key == chosen and chosen not in noted(log, "waits"):
        note(log, "waits", cell.key, os.getpid())
        time.sleep(60)
    return _measure(log, cell, device)


def dies_at(log, chosen):
    """A measurement that kills its own process at the chosen cell."""
    return partial(_die, str(log), chosen.key)


def _die(log, chosen, cell, device):
    if cell.key == chosen:
        note(log, "start", cell.key, os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)
    return _measure(log, cell, device)
