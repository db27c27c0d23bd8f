"""A run in a worker ends as a record, done or failed."""

import math
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

from identifiable import RecoveryWarning
from identifiable.experiments.recipe import Measurement, Record
from identifiable.experiments.run_folder import RunFolder, read_records
from identifiable.experiments.worker import error_in_one_line, finish, measure_task
from run_helpers import contents, expected, fails_at_1, logged, noted, one_run, runs, task


def test_a_result_does_not_depend_on_what_the_process_did_before(folder, log):
    backwards = [measure_task(task(run, logged(log), folder)) for run in runs(4)[::-1]]
    assert contents(backwards[::-1]) == expected(runs(4))


def test_metrics_that_are_not_finite(folder):
    def measure(run, device):
        return Measurement({"nan": math.nan, "inf": -math.inf, "one": 1})

    record = measure_task(task(one_run(), measure, folder))
    assert record.status == "done"
    read = Record.of_line(record.to_line())
    assert math.isnan(read.metrics["nan"])
    assert math.isnan(read.metrics["inf"])
    assert read.metrics["one"] == 1
    assert "NaN" not in record.to_line()
    assert "Infinity" not in record.to_line()


def test_an_exception_is_recorded_in_one_line(folder, log):
    done, failed = (measure_task(task(run, fails_at_1(log), folder)) for run in runs(2))
    assert (done.status, done.error) == ("done", None)
    assert (failed.status, failed.metrics) == ("failed", {})
    assert failed.error == "ValueError: no rank in 'x.csv' at y or z, 1/2"


def test_a_long_error_is_cut():
    assert len(error_in_one_line(ValueError("long " * 100))) == 300
    assert error_in_one_line(KeyboardInterrupt()) == "KeyboardInterrupt"


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (lambda: sys.exit(3), "SystemExit: 3"),
        (lambda: Measurement({"one": 1.0}, {"table": np.ones(3)}), "TypeError: "),
        (lambda: Measurement({"one": 1.0}, {"table": [math.nan]}), "ValueError: "),
        (lambda: Measurement({"one": "high"}), "TypeError: "),
        (lambda: None, "AttributeError: "),
    ],
)
def test_an_outcome_that_cannot_be_recorded_is_a_failure(folder, outcome, error):
    record = measure_task(task(one_run(), lambda run, device: outcome(), folder))
    assert record.status == "failed"
    assert record.error.startswith(error)


def test_warnings_inside_a_run_are_hidden(folder, recwarn):
    def measure(run, device):
        warnings.warn("restarts disagree", RecoveryWarning, stacklevel=1)
        warnings.warn("overflow", RuntimeWarning, stacklevel=1)
        return Measurement({})

    assert measure_task(task(one_run(), measure, folder)).status == "done"
    assert recwarn.list == []


def test_a_recorded_run_is_measured_again_only_if_it_failed_before(folder, log):
    target = RunFolder(folder)
    with target.locked():
        tasks = [task(run, fails_at_1(log), folder, target.begin()) for run in runs(2)]
    tasks = [replace(one, token=tasks[1].token) for one in tasks]
    first = [finish(one) for one in tasks]
    assert [finish(one) for one in tasks] == first == [target.read(one.run) for one in tasks]
    assert len(noted(log, "start")) == 2
    for one in tasks:
        finish(replace(one, retried=True))
    assert noted(log, "start")[2:] == [one_run(1).key]


def test_a_worker_that_does_not_see_the_folder_writes_nothing(folder, log):
    target = RunFolder(folder)
    with target.locked():
        old, new = target.begin(), target.begin()
    for token, written in ((old, False), (new, True)):
        record = finish(task(one_run(), logged(log), folder, token))
        assert contents([record]) == expected([one_run()])
        assert len(read_records(folder)) == written
