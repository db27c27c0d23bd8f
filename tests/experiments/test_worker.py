"""One task in a worker: every run ends as a record, done or failed."""

import math
import sys
import warnings
from functools import partial

import numpy as np
import pytest

from identifiable import RecoveryWarning
from identifiable.experiments.recipe import Measurement, Record
from identifiable.experiments.run_folder import RunFolder
from identifiable.experiments.worker import BatchMeasure, error_in_one_line, measure_runs
from run_helpers import contents, expected, fails_at_1, logged, note, noted, one_run, runs, task


def records_of(task):
    return list(measure_runs(task, task.runs))


def test_a_result_does_not_depend_on_what_the_process_did_before(folder, log):
    backwards = records_of(task(runs(4)[::-1], logged(log), folder))
    assert contents(backwards[::-1]) == expected(runs(4))


def test_metrics_that_are_not_finite(folder):
    def measure(run, device):
        return Measurement({"nan": math.nan, "inf": -math.inf, "one": 1})

    (record,) = records_of(task(runs(1), measure, folder))
    assert record.status == "done"
    read = Record.of_line(record.to_line())
    assert math.isnan(read.metrics["nan"])
    assert math.isnan(read.metrics["inf"])
    assert read.metrics["one"] == 1
    assert "NaN" not in record.to_line()
    assert "Infinity" not in record.to_line()


def test_an_exception_is_recorded_in_one_line_and_the_others_go_on(folder, log):
    records = records_of(task(runs(3), fails_at_1(log), folder))
    assert [r.status for r in records] == ["done", "failed", "done"]
    assert records[1].error == "ValueError: no rank in 'x.csv' at y or z, 1/2"
    assert records[1].metrics == {}
    assert records[0].error is None
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
    (record,) = records_of(task(runs(1), lambda run, device: outcome(), folder))
    assert record.status == "failed"
    assert record.error.startswith(error)


def test_warnings_inside_a_run_are_hidden(folder, recwarn):
    def measure(run, device):
        warnings.warn("restarts disagree", RecoveryWarning, stacklevel=1)
        warnings.warn("overflow", RuntimeWarning, stacklevel=1)
        return Measurement({})

    assert records_of(task(runs(1), measure, folder))[0].status == "done"
    assert recwarn.list == []


def test_a_task_skips_runs_that_were_finished_since_the_sweep_began(folder, log):
    target = RunFolder(folder)
    requested = runs(3)
    with target.locked():
        for record in records_of(task(requested[:2], fails_at_1(log), folder)):
            target.write(record)
    again = task(requested, fails_at_1(log), folder)
    assert again.unfinished() == [requested[2]]
    again = task(requested, fails_at_1(log), folder, failed_before=frozenset([requested[1].key]))
    assert again.unfinished() == [requested[1], requested[2]]


def _batch(log, fails, runs, device):
    note(log, "batch", "-".join(str(run.seed) for run in runs), 0)
    if fails:
        raise MemoryError("too many")
    return [Measurement({"seed": float(run.seed), "count": float(len(runs))}) for run in runs]


def test_a_batch_is_measured_at_once_and_one_by_one_if_that_fails(folder, log):
    for fails, statuses, count in ((False, ["done"] * 3, 3.0), (True, ["done", "failed", "done"], None)):
        batch = BatchMeasure(lambda run: "all", partial(_batch, log, fails))
        records = records_of(task(runs(3), fails_at_1(log), folder, batch=batch))
        assert [r.status for r in records] == statuses
        assert [r.metrics.get("count") for r in records] == [count] * 3
    assert noted(log, "batch") == ["0-1-2"] * 2
    alone = records_of(task((one_run(0),), logged(log), folder, batch=batch))
    assert contents(alone) == expected([one_run(0)])
