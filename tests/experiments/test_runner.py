"""A sweep: the same records however it is computed, interrupted and continued; no finished run is lost or repeated."""

import os
import platform
import random
import secrets
import shutil
import signal
import subprocess
import time
import warnings
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import psutil
import pytest

import fresh
from identifiable.experiments import runner
from identifiable.experiments.recipe import Measurement, Record
from identifiable.experiments.run_folder import RunFolder, collect, read_records
from identifiable.experiments.runner import run_all
from identifiable.experiments.worker import BatchMeasure
from run_helpers import (
    contents,
    dies_at,
    expected,
    fails_at_1,
    files,
    is_alive,
    killing,
    logged,
    note,
    noted,
    once_waits,
    one_run,
    pids,
    runs,
    until,
)

pytestmark = pytest.mark.usefixtures("forked")


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_records_are_those_of_the_measurement_in_the_order_of_the_runs(folder, log, jobs):
    requested = runs(5)
    results = run_all(requested, folder, measure=logged(log), jobs=jobs, device="cpu", verbose=0)
    assert contents(results.records) == expected(requested)
    assert (results.done, results.failed, results.missing) == (5, 0, ())
    assert [r.run for r in results.records] == list(requested)
    assert sorted(noted(log, "end")) == sorted(run.key for run in requested)
    assert os.getpid() not in pids(log)
    assert len(pids(log)) == jobs


def test_a_record_says_what_where_and_when_but_not_on_which_machine(folder, log):
    began = datetime.now().astimezone() - timedelta(seconds=1)
    requested = one_run(3, seconds=0.05)
    run_all([requested], folder, measure=logged(log), device="auto", verbose=0)
    assert files(folder) == ["cells", f"cells/{requested.key}.json"]
    record = Record.of_line((folder / "cells" / f"{requested.key}.json").read_text())
    assert record.run == requested
    assert record.status == "done"
    assert record.device in ("cpu", "cuda")
    assert 0.05 <= record.seconds < 30
    assert record.versions.keys() == {"identifiable", "torch", "numpy", "scikit-learn", "python"}
    assert record.versions["python"] == platform.python_version()
    assert record.commit == runner.current_commit()
    assert began <= datetime.fromisoformat(record.finished) <= datetime.now().astimezone()
    everything = "".join(p.read_text() for p in folder.rglob("*") if p.is_file())
    for secret in (str(folder), str(Path.home()), str(Path(__file__).parent), platform.node(), str(os.getpid())):
        assert secret not in everything or len(secret) < 4, secret


def test_unicode_and_slashes_in_names(folder, log):
    names = ("n = 5/δ=½", "../../n", "大きい", "a\nb", "[bold]", " ")
    requested = [one_run(setting=name, method="β/VAE") for name in names]
    results = run_all(requested, folder, measure=logged(log), jobs=2, device="cpu", verbose=0)
    assert contents(results.records) == expected(requested)
    assert len(files(folder)) == 1 + len(requested)
    assert {r.run.setting for r in read_records(folder)} == set(names)


def test_values_that_json_turns_into_lists_name_the_same_run(folder, log):
    requested = one_run(shape=(1, (2, 3)))
    for _ in range(2):
        results = run_all([requested], folder, measure=logged(log), verbose=0)
        assert results.records[0].run == requested
    assert len(noted(log, "start")) == 1


def test_no_runs_need_no_folder(folder, log):
    assert run_all([], folder, measure=logged(log)).records == ()
    assert not folder.exists()


def test_failed_runs_are_repeated_only_on_request(folder, log):
    measure = fails_at_1(log)
    before = run_all(runs(3), folder, measure=measure, verbose=0)
    assert (before.done, before.failed) == (2, 1)
    assert run_all(runs(3), folder, measure=measure, verbose=0) == before
    assert len(noted(log, "start")) == 3
    after = run_all(runs(3), folder, measure=logged(log), retry_failed=True, verbose=0)
    assert noted(log, "start")[3:] == [one_run(1).key]
    assert [r.status for r in after.records] == ["done"] * 3
    assert after.records[0] == before.records[0]
    run_all(runs(3), folder, measure=logged(log), retry_failed=True, verbose=0)
    assert len(noted(log, "start")) == 4


def test_a_process_that_dies_every_time_is_a_failure_after_so_many_attempts(folder, log):
    results = run_all(runs(3), folder, measure=dies_at(log, one_run(1)), device="cpu", verbose=0)
    assert [r.status for r in results.records] == ["done", "failed", "done"]
    assert results.records[1].error.startswith("the process died")
    assert noted(log, "start").count(one_run(1).key) == 1 + runner.RETRIES
    assert len(noted(log, "end")) == 2
    again = run_all(runs(3), folder, measure=logged(log), retry_failed=True, device="cpu", verbose=0)
    assert contents(again.records) == expected(runs(3))


def test_an_unknown_device_is_an_error_of_the_sweep_and_not_of_its_runs(folder, log):
    for device in ("abacus", lambda run: "abacus" if run.seed else "cpu"):
        with pytest.raises(ValueError, match="device must be"):
            run_all(runs(2)[1:], folder, measure=logged(log), device=device, verbose=0)
    assert read_records(folder) == ()


def test_a_sweep_continues_where_another_ended(folder, log):
    run_all(runs(2), folder, measure=logged(log), device="cpu", verbose=0)
    assert collect(runs(5), folder).missing == runs(5)[2:]
    (folder / "cells" / ".x.json.abc.part").write_text("{")  # of a killed worker
    results = run_all(runs(5), folder, measure=logged(log), jobs=2, device="cpu", verbose=0)
    assert contents(results.records) == expected(runs(5))
    assert files(folder) == sorted(["cells", *(f"cells/{run.key}.json" for run in runs(5))])
    assert sorted(noted(log, "start")) == sorted(run.key for run in runs(5))
    moved = Path(shutil.move(folder, folder.with_name("elsewhere")))
    before = {p: p.stat().st_mtime_ns for p in moved.rglob("*")}
    with RunFolder(moved).locked():  # a finished folder is only read
        assert run_all(runs(5), moved, measure=logged(log), verbose=0) == results == collect(runs(5), moved)
    assert before == {p: p.stat().st_mtime_ns for p in moved.rglob("*")}
    assert len(noted(log, "start")) == 5


def test_a_damaged_record_is_named_and_its_run_computed_again(folder, log):
    run_all(runs(3), folder, measure=logged(log), device="cpu", verbose=0)
    (folder / "cells" / f"{one_run(1).key}.json").write_text("{")
    with pytest.warns(UserWarning, match=one_run(1).key):
        results = run_all(runs(3), folder, measure=logged(log), device="cpu", verbose=0)
    assert contents(results.records) == expected(runs(3))
    assert noted(log, "start")[3:] == [one_run(1).key]


def _even(run):
    return "even" if run.seed % 2 == 0 else None


def _batch(log, runs, device):
    note(log, "batch", "-".join(str(run.seed) for run in runs), os.getpid())
    return [Measurement({"seed": float(run.seed), "count": float(len(runs))}) for run in runs]


def test_runs_of_a_group_are_measured_in_one_batch(folder, log):
    options = {"measure": logged(log), "batch": BatchMeasure(_even, partial(_batch, str(log))), "verbose": 0}
    results = run_all(runs(5), folder, jobs=2, device=lambda run: "cpu", **options)
    assert [r.run for r in results.records] == list(runs(5))
    assert [r.metrics.get("count") for r in results.records] == [3, None, 3, None, 3]
    assert {r.device for r in results.records} == {"cpu"}
    assert noted(log, "batch") == ["0-2-4"]
    again = run_all(runs(9), folder, device="cpu", **options)
    assert again.records[:5] == results.records
    assert noted(log, "batch") == ["0-2-4", "6-8"]  # recorded runs are not measured again


def test_a_killed_worker_costs_its_own_attempt_only(folder, log, loky, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    requested = (one_run(0), one_run(1, seconds=3), *runs(5)[2:])
    with killing(log, beside=requested[1]):
        results = run_all(requested, folder, measure=once_waits(log, requested[0]), jobs=2, device="cpu", verbose=0)
    assert contents(results.records) == expected(requested)
    assert noted(log, "waits") == [requested[0].key]
    assert sorted(noted(log, "start")) == sorted(noted(log, "end")) == sorted(run.key for run in requested)
    assert set(noted(log, "threads")) == {"7"}
    assert not any(map(is_alive, pids(log)))


MAIN = """
import os, signal, sys
from identifiable.experiments.runner import run_all
from run_helpers import runs, logged
os.setsid()
signal.signal(signal.SIGINT, signal.default_int_handler)
run_all(runs(8, seconds=0.2), sys.argv[1], measure=logged(sys.argv[2]), jobs=2, device="cpu")
"""


def test_a_sweep_that_is_killed_and_started_again_computes_what_is_missing(folder, log, tmp_path):
    seed = secrets.randbelow(10**6)
    print(f"seed {seed}")  # noqa: T201
    rng = random.Random(seed)
    requested = runs(8, seconds=0.2)
    recorded = {}
    for attempt in range(3):
        process = fresh.start(MAIN, folder, log, stderr=tmp_path / "stderr")
        begun = len(noted(log, "start"))
        if attempt:
            until(lambda n=begun, p=process: len(noted(log, "start")) > n or not p.is_alive())
        time.sleep(rng.uniform(0, 0.4))
        process.kill()
        process.join()
        until(lambda: not log.exists() or not any(map(is_alive, pids(log))), seconds=2)
        starts = noted(log, "start")
        assert all(starts.count(key) == count for key, count in recorded.items())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            records = read_records(folder) if (folder / "cells").exists() else ()
        assert recorded.keys() <= {r.run.key for r in records}
        recorded = {r.run.key: starts.count(r.run.key) for r in records}
    results = run_all(requested, folder, measure=logged(log), jobs=2, device="cpu", verbose=0)
    assert contents(results.records) == expected(requested)
    assert all(noted(log, "start").count(key) == count for key, count in recorded.items())
    assert files(folder) == sorted(["cells", *(f"cells/{run.key}.json" for run in requested)])


def interrupted(process, stderr):
    """Press Ctrl-C, which every process of the group gets; return the number of finished runs."""
    workers = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    process.join(20)
    assert process.exitcode not in (0, None)
    until(lambda: not any(is_alive(worker.pid) for worker in workers), seconds=2)
    lines = stderr.read_text().splitlines()
    (last,) = [line for line in lines if line.startswith("Stopped")]
    assert "of 8 runs" in last
    assert lines[-1] == "KeyboardInterrupt"
    assert sum(line.startswith("Traceback") for line in lines) == 1
    return int(last.split()[1])


def test_ctrl_c_while_the_workers_start(folder, log, tmp_path):
    process = fresh.start(MAIN, folder, log, stderr=tmp_path / "stderr")
    until(lambda: len(psutil.Process(process.pid).children()) >= 2)
    time.sleep(0.5)  # they are importing torch
    assert interrupted(process, tmp_path / "stderr") == 0
    assert read_records(folder) == ()


def test_ctrl_c_ends_the_workers_and_keeps_what_is_finished(folder, log, tmp_path):
    process = fresh.start(MAIN, folder, log, stderr=tmp_path / "stderr")
    until(lambda: len(noted(log, "end")) >= 3)
    assert 1 <= interrupted(process, tmp_path / "stderr") == len(read_records(folder)) < 8
    assert not any(map(is_alive, pids(log)))
    before = len(noted(log, "start"))
    requested = runs(8, seconds=0.2)
    missing = collect(requested, folder).missing
    results = run_all(requested, folder, measure=logged(log), jobs=2, device="cpu", verbose=0)
    assert contents(results.records) == expected(requested)
    assert sorted(noted(log, "start")[before:]) == sorted(run.key for run in missing)


def test_bad_input_is_refused_before_anything_is_computed(folder, log, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(NotADirectoryError):
        run_all(runs(1), file, measure=logged(log))
    with pytest.raises(ValueError, match=one_run(1).key):
        run_all([*runs(2), one_run(1)], folder, measure=logged(log))
    with pytest.raises(ValueError, match="jobs"):
        run_all(runs(1), folder, measure=logged(log), jobs=0)
    assert not log.exists()
    assert not folder.exists()


def test_the_commit_is_that_of_the_checkout_the_library_lies_in(tmp_path, monkeypatch):
    def git(*arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    source = tmp_path / "src"
    source.mkdir()
    monkeypatch.setattr(runner, "__file__", str(source / "experiments" / "runner.py"))
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert runner.current_commit() is None
    git("init", "-q")
    (source / "__init__.py").write_text("")
    assert runner.current_commit() is None
    git("add", ".")
    git("commit", "-q", "-m", "first")
    assert runner.current_commit() == git("rev-parse", "HEAD")
    (tmp_path / "notes").write_text("beside the sources")
    assert runner.current_commit() == git("rev-parse", "HEAD")
    (source / "new.py").write_text("")
    assert runner.current_commit() == git("rev-parse", "HEAD") + "+"
    monkeypatch.setenv("PATH", "")
    assert runner.current_commit() is None
