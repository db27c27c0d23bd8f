"""A run: the same records however they are computed, interrupted, moved and merged; what is recorded stays so."""

import errno
import fcntl
import importlib
import json
import math
import os
import platform
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from multiprocessing import forkserver
from pathlib import Path

import dask
import psutil
import pytest
from joblib.externals.loky.process_executor import TerminatedWorkerError

import fresh
from identifiable import RecoveryWarning
from identifiable.experiments.progress import Estimate
from identifiable.experiments.recipe import Measurement, Record
from identifiable.experiments.runner import Together, collect, merge, read_records, run
from run_helpers import cell, cells, dies_at, logged, note, noted, once_waits, pids

MODULE = importlib.import_module("identifiable.experiments.runner")
HOME = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def forked(request, monkeypatch):
    """Workers that have imported the library already; a test that asks for `loky` gets those that users have."""
    forkserver.ensure_running()  # before the first run hides Ctrl-C from it
    if "loky" not in request.fixturenames:
        monkeypatch.setattr(MODULE, "_context", lambda: fresh.CONTEXT)


@pytest.fixture
def loky():
    """Workers that begin as new interpreters."""


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def contents(records):
    """The records without what may differ between two runs."""
    return [replace(r, seconds=0.0, finished="", commit=None).to_line() for r in records]


def expected(asked):
    """What the plain measurement makes of these cells, one after the other in this process."""
    found = []
    for one in asked:
        MODULE._seed(one)
        outcome = logged(os.devnull)(one, "cpu")
        found.append(Record(one, "done", 0.0, outcome.metrics, outcome.arrays, outcome.certificate))
    return contents(replace(r, versions=MODULE.versions()) for r in found)


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.name not in (".lock", ".token"))


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def killing(log, *, beside=None):
    """Kill the process that waits, once the cell beside it has begun, too."""

    def kill():
        until(lambda: noted(log, "waits") and (beside is None or beside.key in noted(log, "start")))
        line = next(line for line in log.read_text().splitlines() if line.startswith("waits"))
        os.kill(int(line.split()[2]), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    yield
    thread.join()


# What is computed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_records_are_those_of_the_measurement_in_the_order_of_the_cells(folder, log, jobs):
    asked = cells(5)
    results = run(asked, folder, measure=logged(log), jobs=jobs, device="cpu", verbose=0)
    assert contents(results.records) == expected(asked)
    assert (results.done, results.failed, results.missing) == (5, 0, ())
    assert [r.cell for r in results.records] == list(asked)
    assert sorted(noted(log, "end")) == sorted(c.key for c in asked)
    assert os.getpid() not in pids(log)
    assert len(pids(log)) == jobs


def test_results_do_not_depend_on_what_a_process_did_before(folder, log):
    asked = cells(4)
    backwards = run(asked[::-1], folder, measure=logged(log), device="cpu", verbose=0)
    assert contents(backwards.records[::-1]) == expected(asked)


def test_a_record_says_what_where_and_when_and_not_on_which_machine(folder, log):
    began = datetime.now().astimezone() - timedelta(seconds=1)
    asked = cell(3, seconds=0.05)
    run([asked], folder, measure=logged(log), device="auto", verbose=0)
    assert files(folder) == ["cells", f"cells/{asked.key}.json"]
    text = (folder / "cells" / f"{asked.key}.json").read_text()
    assert text.endswith("\n")
    assert text.count("\n") == 1
    record = Record.of_line(text)
    assert record.cell == asked
    assert record.status == "done"
    assert record.device in ("cpu", "cuda")
    assert 0.05 <= record.seconds < 30
    assert record.versions.keys() == {"identifiable", "torch", "numpy", "scikit-learn", "python"}
    assert record.versions["python"] == platform.python_version()
    assert record.commit == MODULE._commit()
    assert began <= datetime.fromisoformat(record.finished) <= datetime.now().astimezone()
    everything = "".join(p.read_text() for p in folder.rglob("*") if p.is_file())
    for secret in (str(folder), str(Path.home()), HOME, platform.node(), str(os.getpid())):
        assert secret not in everything or len(secret) < 4, secret


def test_metrics_that_are_not_finite(folder):
    record = run([cell()], folder, measure=_not_finite, verbose=0).records[0]
    assert record.status == "done"
    assert math.isnan(record.metrics["nan"])
    assert math.isnan(record.metrics["inf"])
    assert record.metrics["one"] == 1
    tree = json.loads(next((folder / "cells").iterdir()).read_text(), parse_constant=pytest.fail)
    assert tree["metrics"] == {"nan": None, "inf": None, "one": 1.0}


def _not_finite(cell, device):
    return Measurement({"nan": math.nan, "inf": -math.inf, "one": 1})


def test_unicode_and_slashes_in_names(folder, log):
    asked = [cell(setting=name, method="β/VAE") for name in ("n = 5/δ=½", "../../n", "大きい", "a\nb", "[bold]", " ")]
    results = run(asked, folder, measure=logged(log), jobs=2, device="cpu", verbose=0)
    assert contents(results.records) == expected(asked)
    assert len(files(folder)) == 1 + len(asked)
    assert {r.cell.setting for r in read_records(folder)} == {c.setting for c in asked}


def test_values_that_json_turns_into_lists_name_the_same_cell(folder, log):
    asked = cell(shape=(1, (2, 3)))
    for _ in range(2):
        results = run([asked], folder, measure=logged(log), verbose=0)
        assert results.records[0].cell == asked
    assert len(noted(log, "start")) == 1


def test_no_cells(folder, log):
    assert run([], folder, measure=logged(log)).records == ()
    assert not folder.exists()


def test_processes_share_the_processors(monkeypatch):
    monkeypatch.setattr("joblib.cpu_count", lambda: 6)
    for name in MODULE._THREADS:
        monkeypatch.delenv(name, raising=False)
    assert [set(MODULE._threads(jobs).values()) for jobs in (1, 2, 9)] == [{"6"}, {"3"}, {"1"}]
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert set(MODULE._threads(2).values()) == {"4"}
    monkeypatch.setenv("MKL_NUM_THREADS", "5")
    assert MODULE._threads(2) == {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "5", "OPENBLAS_NUM_THREADS": "4"}


# Failures ------------------------------------------------------------------------------------------------------------


def _fails_at_1(log, cell, device):
    note(log, "start", cell.key, os.getpid())
    if cell.seed == 1:
        raise ValueError(f"no rank\nin '{HOME}/my data/x.csv' at {HOME}/y or /z, 1/2")
    return Measurement({"one": 1.0})


class _Measure:
    """A measurement with a log."""

    def __init__(self, function, log):
        self.function, self.log = function, str(log)

    def __call__(self, cell, device):
        return self.function(self.log, cell, device)


def test_an_exception_is_recorded_in_one_line_and_the_rest_goes_on(folder, log):
    results = run(cells(3), folder, measure=_Measure(_fails_at_1, log), verbose=0)
    assert [r.status for r in results.records] == ["done", "failed", "done"]
    assert (results.done, results.failed) == (2, 1)
    assert results.records[1].error == "ValueError: no rank in 'x.csv' at y or z, 1/2"
    assert results.records[1].metrics == {}
    assert results.records[0].error is None


def test_failed_cells_are_computed_again_only_when_asked(folder, log):
    measure = _Measure(_fails_at_1, log)
    before = run(cells(3), folder, measure=measure, verbose=0)
    assert run(cells(3), folder, measure=measure, verbose=0) == before
    assert len(noted(log, "start")) == 3
    after = run(cells(3), folder, measure=logged(log), retry_failed=True, verbose=0)
    assert noted(log, "start")[3:] == [cell(1).key]
    assert [r.status for r in after.records] == ["done"] * 3
    assert after.records[0] == before.records[0]
    run(cells(3), folder, measure=logged(log), retry_failed=True, verbose=0)
    assert len(noted(log, "start")) == 4


def _leaves(log, cell, device):
    sys.exit(3)


def _returns_an_array(log, cell, device):
    import numpy as np

    return Measurement({"one": 1.0}, {"table": np.ones(3)})


def _returns_nan_in_an_array(log, cell, device):
    return Measurement({"one": 1.0}, {"table": [math.nan]})


def _returns_words(log, cell, device):
    return Measurement({"one": "high"})


def _returns_nothing(log, cell, device):
    return None


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_leaves, "SystemExit: 3"),
        (_returns_an_array, "TypeError: .*JSON"),
        (_returns_nan_in_an_array, "ValueError: .*JSON"),
        (_returns_words, "TypeError: "),
        (_returns_nothing, "AttributeError: "),
    ],
)
def test_what_cannot_be_recorded_is_a_failure(folder, log, function, said):
    record = run([cell()], folder, measure=_Measure(function, log), verbose=0).records[0]
    assert record.status == "failed"
    assert re.match(said, record.error)


def test_a_process_that_dies_every_time_is_a_failure_after_so_many_attempts(folder, log):
    results = run(cells(3), folder, measure=dies_at(log, cell(1)), retries=2, device="cpu", verbose=0)
    assert [r.status for r in results.records] == ["done", "failed", "done"]
    assert results.records[1].error.startswith("the process died")
    assert noted(log, "start").count(cell(1).key) == 3
    assert len(noted(log, "end")) == 2
    again = run(cells(3), folder, measure=logged(log), retry_failed=True, device="cpu", verbose=0)
    assert contents(again.records) == expected(cells(3))


def test_a_worker_that_dies_between_two_cells_is_replaced(folder, log):
    lane = MODULE._Lane({})
    tasks = [MODULE._Task((c,), logged(log), None, "cpu", str(folder), "", None, frozenset()) for c in cells(2)]
    lane.submit(tasks[0]).result()
    (pid,) = pids(log)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    with suppress(TerminatedWorkerError):  # where it has not been noticed yet
        lane.submit(tasks[1]).result()
    [(line, _)] = lane.submit(tasks[1]).result()
    assert Record.of_line(line).cell == tasks[1].cells[0]
    lane.end()


def test_an_unknown_device_is_an_error_of_the_run_and_not_of_its_cells(folder, log):
    with pytest.raises(ValueError, match="device must be"):
        run(cells(2), folder, measure=logged(log), device="abacus", verbose=0)
    assert read_records(folder) == ()


def _warns(cell, device):
    warnings.warn("restarts disagree", RecoveryWarning, stacklevel=1)
    warnings.warn("overflow", RuntimeWarning, stacklevel=1)
    return Measurement({})


def test_warnings_inside_a_cell_are_not_seen(folder, recwarn):
    [(line, _)] = MODULE._work(MODULE._Task((cell(),), _warns, None, "cpu", str(folder), "", None, frozenset()))
    assert Record.of_line(line).status == "done"
    assert recwarn.list == []


# What is there already -----------------------------------------------------------------------------------------------


def test_a_run_goes_on_where_another_ended(folder, log):
    run(cells(2), folder, measure=logged(log), device="cpu", verbose=0)
    assert collect(cells(5), folder).missing == cells(5)[2:]
    results = run(cells(5), folder, measure=logged(log), jobs=2, device="cpu", verbose=0)
    assert contents(results.records) == expected(cells(5))
    assert sorted(noted(log, "start")) == sorted(c.key for c in cells(5))
    assert run(cells(5), folder, measure=logged(log), verbose=0) == results == collect(cells(5), folder)
    assert len(noted(log, "start")) == 5


def test_nothing_is_written_where_all_is_finished(folder, log):
    results = run(cells(2), folder, measure=logged(log), verbose=0)
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    with (folder / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert run(cells(2), folder, measure=logged(log), verbose=0) == results
    assert before == {p: p.stat().st_mtime_ns for p in folder.rglob("*")}


def _even(cell):
    return "even" if cell.seed % 2 == 0 else None


def _odd(cell):
    return "odd" if cell.seed % 2 else None


def _all_at_once(log, cells, device):
    note(log, "together", "-".join(str(c.seed) for c in cells), os.getpid())
    return [Measurement({"seed": float(c.seed), "count": float(len(cells))}) for c in cells]


def _not_at_once(log, cells, device):
    note(log, "together", "-".join(str(c.seed) for c in cells), os.getpid())
    raise MemoryError("too many")


def test_cells_of_a_group_are_measured_at_once(folder, log):
    together = Together(_even, partial(_all_at_once, str(log)))
    results = run(cells(5), folder, measure=logged(log), together=together, jobs=2, device="cpu", verbose=0)
    assert [r.cell for r in results.records] == list(cells(5))
    assert [r.metrics.get("count") for r in results.records] == [3, None, 3, None, 3]
    assert noted(log, "together") == ["0-2-4"]
    again = run(cells(9), folder, measure=logged(log), together=together, device="cpu", verbose=0)
    assert again.records[:5] == results.records
    assert noted(log, "together") == ["0-2-4", "6-8"]  # what is recorded is not measured again


def test_a_group_that_fails_is_measured_one_by_one(folder, log):
    together = Together(_odd, partial(_not_at_once, str(log)))
    results = run(cells(5), folder, measure=_Measure(_fails_at_1, log), together=together, verbose=0)
    assert noted(log, "together") == ["1-3"]
    assert [r.status for r in results.records] == ["done", "failed", "done", "done", "done"]
    assert results.records[1].error.startswith("ValueError: no rank")


def test_every_cell_may_have_its_own_device(folder, log):
    asked = cells(2)
    with pytest.raises(ValueError, match="device must be 'auto'"):
        run(asked, folder, measure=logged(log), device=lambda c: "abacus" if c.seed else "cpu", verbose=0)
    results = run(asked, folder, measure=logged(log), device=lambda c: "cpu", verbose=0)
    assert [r.device for r in results.records] == ["cpu", "cpu"]


def test_a_worker_looks_again_before_it_begins(folder, log):
    measure = _Measure(_fails_at_1, log)
    run(cells(2), folder, measure=measure, verbose=0)
    token = MODULE._new_token(folder)
    for seed, failed_before, count in ((0, frozenset(), 2), (1, frozenset(), 2), (1, frozenset([cell(1).key]), 3)):
        task = MODULE._Task((cell(seed),), measure, None, "cpu", str(folder), token, None, failed_before)
        [(line, written)] = MODULE._work(task)
        assert Record.of_line(line).cell == cell(seed)
        assert written
        assert len(noted(log, "start")) == count


def test_a_moved_folder_is_the_same_run(folder, log, tmp_path):
    results = run(cells(3), folder, measure=logged(log), verbose=0)
    moved = shutil.move(folder, tmp_path / "elsewhere")
    assert run(cells(3), moved, measure=logged(log), verbose=0) == results
    run(cells(4), moved, measure=logged(log), verbose=0)
    assert len(noted(log, "start")) == 4
    assert not folder.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[: len(text) // 2],
        lambda text: b"\xff\xfe" + text,
        lambda text: b"{}",
        lambda text: b"[1]",
        lambda text: b"3",
        lambda text: text.replace(b'"done"', b'"perhaps"'),
        lambda text: text.replace(b'"metrics": {', b'"metrics": [{').replace(b'}, "seconds"', b'}], "seconds"'),
        lambda text: text.replace(b'"seed": 1,', b'"seed": 2,'),
    ],
)
def test_a_damaged_record_is_named_and_its_cell_computed_anew(folder, log, damage):
    run(cells(3), folder, measure=logged(log), device="cpu", verbose=0)
    path = folder / "cells" / f"{cell(1).key}.json"
    damaged = damage(path.read_bytes())
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    assert collect(cells(3), folder).missing == (cell(1),)
    with pytest.warns(UserWarning, match=cell(1).key):
        results = run(cells(3), folder, measure=logged(log), device="cpu", verbose=0)
    assert contents(results.records) == expected(cells(3))
    assert noted(log, "start")[3:] == [cell(1).key]


def test_damaged_files_are_left_out_of_the_records(folder, log):
    run(cells(3), folder, measure=logged(log), verbose=0)
    (folder / "cells" / f"{cell(1).key}.json").write_text("{")
    (folder / "cells" / "a.json").write_text("no")
    with pytest.warns(UserWarning, match=r"a\.json") as said:
        records = read_records(folder)
    assert cell(1).key in str(said[0].message)
    assert len(said) == 1
    assert sorted(r.cell.seed for r in records) == [0, 2]


def test_half_written_files_of_killed_workers_are_removed(folder, log):
    run(cells(1), folder, measure=logged(log), verbose=0)
    (folder / "cells" / ".x.json.abc.part").write_text("{")
    assert len(read_records(folder)) == 1
    run(cells(2), folder, measure=logged(log), verbose=0)
    assert files(folder) == sorted(["cells", *(f"cells/{c.key}.json" for c in cells(2))])


def test_no_folder_no_records(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No run in .*nowhere"):
        read_records(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"No run in .*nowhere"):
        merge([tmp_path / "nowhere"], tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_merged_folders_hold_the_records_of_one_run(tmp_path, log):
    a, b, into = tmp_path / "a", tmp_path / "b", tmp_path / "deep" / "into"
    run(cells(3), a, measure=logged(log), device="cpu", verbose=0)
    run(cells(5)[1:], b, measure=logged(log), device="cpu", verbose=0)
    assert merge([a, b], into) == 5
    assert merge([a, b, into], into) == 0
    assert contents(collect(cells(5), into).records) == expected(cells(5))
    assert collect(cells(5), into).records[1] == collect(cells(5), a).records[1]
    before = log.read_text()
    run(cells(5), into, measure=logged(log), verbose=0)
    assert log.read_text() == before


def test_a_done_record_wins_over_a_failed_one_and_else_the_first_stays(tmp_path, log):
    a, b = tmp_path / "a", tmp_path / "b"
    run(cells(2), a, measure=_Measure(_fails_at_1, log), verbose=0)
    run(cells(2), b, measure=logged(log), verbose=0)
    done = collect(cells(2), b).records
    for order in ([a, b], [b, a]):
        into = tmp_path / f"into{order.index(a)}"
        merge(order, into)
        first = collect(cells(2), order[0]).records
        assert collect(cells(2), into).records == (first[0], done[1])
    assert merge([a], b) == 0
    assert collect(cells(2), b).records == done
    assert merge([b], a) == 1
    assert collect(cells(2), a).records[1] == done[1]


# Other processes -----------------------------------------------------------------------------------------------------


def test_two_runs_cannot_fill_one_folder(folder, log):
    folder.mkdir()
    with (folder / ".lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RuntimeError, match="Another process is writing to"):
            run(cells(1), folder, measure=logged(log), verbose=0)
        with pytest.raises(RuntimeError, match="Another process is writing to"):
            merge([], folder)
    assert noted(log, "start") == []
    assert run(cells(1), folder, measure=logged(log), verbose=0).done == 1


def test_the_main_process_writes_for_a_worker_that_does_not_see_the_folder(folder, log, monkeypatch):
    monkeypatch.setattr(MODULE, "_new_token", lambda folder: "of another folder")
    results = run(cells(3), folder, measure=logged(log), jobs=2, device="cpu", verbose=0)
    assert contents(results.records) == expected(cells(3))


def test_a_worker_that_does_not_see_the_folder_writes_nothing(folder, log):
    (folder / "cells").mkdir(parents=True)
    old = MODULE._new_token(folder)
    new = MODULE._new_token(folder)
    for token, sees in ((old, False), (new, True)):
        task = MODULE._Task((cell(),), logged(log), None, "cpu", str(folder), token, None, frozenset())
        [(line, written)] = MODULE._work(task)
        assert (written, len(read_records(folder))) == (sees, int(sees))
        assert contents([Record.of_line(line)]) == expected([cell()])


def test_a_full_disk_is_one_error_and_leaves_nothing_half_written(folder, log, monkeypatch):
    run(cells(1), folder, measure=logged(log), device="cpu", verbose=0)
    monkeypatch.setattr(MODULE, "_new_token", lambda folder: "of another folder")  # the main process writes

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"Cannot write a record to .*No space left .*same command") as caught:
            run(cells(3), folder, measure=logged(log), verbose=0)
    assert caught.value.errno == errno.ENOSPC
    assert files(folder) == ["cells", f"cells/{cell(0).key}.json"]
    results = run(cells(3), folder, measure=logged(log), device="cpu", verbose=0)
    assert contents(results.records) == expected(cells(3))


def test_a_worker_that_cannot_write_hands_its_record_over(folder, log, monkeypatch):
    (folder / "cells").mkdir(parents=True)
    task = MODULE._Task((cell(),), logged(log), None, "cpu", str(folder), MODULE._new_token(folder), None, frozenset())

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    [(line, written)] = MODULE._work(task)
    assert not written
    assert contents([Record.of_line(line)]) == expected([cell()])
    assert files(folder) == ["cells"]


def test_a_killed_worker_costs_its_own_attempt_only(folder, log, loky, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    asked = (cell(0), cell(1, seconds=3), *cells(5)[2:])
    with killing(log, beside=asked[1]):
        results = run(asked, folder, measure=once_waits(log, asked[0]), jobs=2, device="cpu", verbose=0)
    assert contents(results.records) == expected(asked)
    assert noted(log, "waits") == [asked[0].key]
    assert sorted(noted(log, "start")) == sorted(noted(log, "end")) == sorted(c.key for c in asked)
    assert set(noted(log, "threads")) == {"7"}
    assert not any(map(is_alive, pids(log)))


MAIN = """
import os, signal, sys
from identifiable.experiments.runner import run
from run_helpers import cells, logged
os.setsid()
signal.signal(signal.SIGINT, signal.default_int_handler)
run(cells(8, seconds=0.2), sys.argv[1], measure=logged(sys.argv[2]), jobs=2, device="cpu")
"""


def test_a_run_that_is_killed_and_started_again_computes_what_is_missing(folder, log, tmp_path):
    seed = secrets.randbelow(10**6)
    print(f"seed {seed}")  # noqa: T201
    rng = random.Random(seed)
    asked = cells(8, seconds=0.2)
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
        assert recorded.keys() <= {r.cell.key for r in records}
        recorded = {r.cell.key: starts.count(r.cell.key) for r in records}
    results = run(asked, folder, measure=logged(log), jobs=2, device="cpu", verbose=0)
    assert contents(results.records) == expected(asked)
    assert all(noted(log, "start").count(key) == count for key, count in recorded.items())
    assert files(folder) == sorted(["cells", *(f"cells/{c.key}.json" for c in asked)])


def interrupted(process, stderr):
    """Press Ctrl-C, which every process of the group gets; return the number of finished cells."""
    workers = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    process.join(20)
    assert process.exitcode not in (0, None)
    until(lambda: not any(is_alive(worker.pid) for worker in workers), seconds=2)
    lines = stderr.read_text().splitlines()
    (last,) = [line for line in lines if line.startswith("Stopped")]
    count = int(last.split()[1])
    assert last == f"Stopped: {count} of 8 cells are finished. The same command goes on from there."
    assert lines[-1] == "KeyboardInterrupt"
    assert sum(line.startswith("Traceback") for line in lines) == 1
    return count


def test_ctrl_c_while_the_workers_start(folder, log, tmp_path):
    process = fresh.start(MAIN, folder, log, stderr=tmp_path / "stderr")
    until(lambda: len(psutil.Process(process.pid).children()) >= 2)
    time.sleep(0.5)  # they are importing torch
    assert interrupted(process, tmp_path / "stderr") == 0
    assert read_records(folder) == ()


def test_ctrl_c_ends_the_workers_and_says_how_to_go_on(folder, log, tmp_path):
    process = fresh.start(MAIN, folder, log, stderr=tmp_path / "stderr")
    until(lambda: len(noted(log, "end")) >= 3)
    assert 1 <= interrupted(process, tmp_path / "stderr") == len(read_records(folder)) < 8
    assert not any(map(is_alive, pids(log)))
    before = len(noted(log, "start"))
    asked = cells(8, seconds=0.2)
    missing = collect(asked, folder).missing
    results = run(asked, folder, measure=logged(log), jobs=2, device="cpu", verbose=0)
    assert contents(results.records) == expected(asked)
    assert sorted(noted(log, "start")[before:]) == sorted(c.key for c in missing)


# Clusters ------------------------------------------------------------------------------------------------------------

DASK = """
import sys
from distributed.cli.dask_{0} import main
main(sys.argv[1:])
"""


@pytest.fixture
def scheduler(tmp_path):
    """The address of a scheduler with two workers, three processes of their own."""
    known = tmp_path / "scheduler.json"
    place = ("--scheduler-file", known)
    quiet = {"stderr": tmp_path / "dask.log", "cwd": tmp_path}
    options = ("--host", "127.0.0.1", "--port", 0, "--no-dashboard")
    started = [fresh.start(DASK.format("scheduler"), *place, *options, **quiet)]
    until(lambda: known.exists() and known.read_text())
    options = ("--nthreads", 1, "--no-nanny", "--no-dashboard")
    started += [fresh.start(DASK.format("worker"), *place, *options, **quiet) for _ in range(2)]
    yield json.loads(known.read_text())["address"]
    for process in started:
        process.kill()
        process.join()


def test_a_cluster_computes_the_same_even_if_a_worker_is_killed(folder, log, scheduler):
    asked = (cell(0), cell(1, seconds=1), *cells(6)[2:])
    with killing(log, beside=asked[1]):
        results = run(asked, folder, measure=once_waits(log, asked[0]), cluster=scheduler, device="cpu", verbose=0)
    assert contents(results.records) == expected(asked)
    assert sorted(noted(log, "end")) == sorted(c.key for c in asked)
    assert os.getpid() not in pids(log)
    again = run(asked, folder, measure=logged(log), cluster=scheduler, verbose=0)
    assert again == results
    assert len(noted(log, "end")) == len(asked)


@pytest.fixture
def forked_nannies():
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@pytest.mark.usefixtures("forked_nannies")
def test_a_cluster_of_our_own_survives_a_cell_that_kills_its_worker(folder, log, capfd):
    asked = cells(5)
    measure = dies_at(log, asked[1])
    results = run(asked, folder, measure=measure, jobs=2, cluster="local", retries=1, device="cpu", verbose=0)
    assert [r.status for r in results.records] == ["done", "failed", "done", "done", "done"]
    assert results.records[1].error.startswith("the process died")
    assert noted(log, "start").count(asked[1].key) == 2
    assert len(noted(log, "end")) == 4
    again = run(asked, folder, measure=logged(log), jobs=2, cluster="local", retry_failed=True, device="cpu", verbose=0)
    assert contents(again.records) == expected(asked)
    assert not any(map(is_alive, pids(log)))
    assert capfd.readouterr().err == ""


def test_no_scheduler_is_one_clear_error(folder, log, monkeypatch):
    assert MODULE.PATIENCE <= 10
    monkeypatch.setattr(MODULE, "PATIENCE", 1)
    start = time.monotonic()
    with pytest.raises(ConnectionError, match=r"No Dask scheduler answers at 'tcp://127.0.0.1:9'.*dask scheduler"):
        run(cells(1), folder, measure=logged(log), cluster="tcp://127.0.0.1:9", verbose=0)
    assert time.monotonic() - start < 5


def test_without_dask_the_error_names_the_extra(folder, log, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r'pip install "identifiable\[cluster\]"'):
        run(cells(1), folder, measure=logged(log), cluster="local", verbose=0)


# What the reader sees ------------------------------------------------------------------------------------------------


def test_a_line_for_each_cell_where_there_is_no_terminal(folder, log, capsys):
    asked = [cell(0), cell(1), cell(2, method="[B]")]
    run(asked[:1], folder, measure=_Measure(_fails_at_1, log))
    run(asked, folder, measure=_Measure(_fails_at_1, log))
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert len(lines) == 3
    assert lines[0] == "1/1  n = 5  A  seed 0  0.0 s"
    assert lines[1].startswith("2/3  n = 5  A  seed 1  failed: ValueError: no rank in")
    assert lines[1].endswith("  about 1 s left")
    assert lines[2] == "3/3  n = 5  [B]  seed 2  0.0 s"


def test_silence(folder, log, capfd):
    run(cells(2), folder, measure=_Measure(_fails_at_1, log), verbose=0)
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


def test_a_bar_where_there_is_a_terminal(folder, log, capsys, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    run(cells(3), folder, measure=_Measure(_fails_at_1, log))
    printed = capsys.readouterr().err
    assert "3/3" in printed
    assert "1 failed" in printed
    assert "seed 1  failed: ValueError" in printed
    assert "seed 2" not in printed


def test_time_left_is_that_of_the_same_method_and_else_of_any():
    def record(method, seconds):
        return Record(cell(method=method), "done", seconds)

    waiting = [cell(s, method=m) for m, n in (("A", 3), ("B", 2), ("C", 1)) for s in range(n)]
    estimate = Estimate([], waiting)
    assert estimate.left(1) is None
    estimate = Estimate([record("A", 10.0), record("A", 20.0), record("B", 60.0)], waiting)
    assert estimate.left(1) == pytest.approx(3 * 15 + 2 * 60 + 1 * 30)
    assert estimate.left(5) == pytest.approx(195 / 5)
    assert estimate.left(100) == pytest.approx(195 / 6)
    estimate.add(record("C", 10.0))
    assert estimate.left(1) == pytest.approx(3 * 15 + 2 * 60)


# Bad input -----------------------------------------------------------------------------------------------------------


def test_bad_input_is_refused_before_anything_is_computed(folder, log, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    measure = logged(log)
    with pytest.raises(NotADirectoryError, match="is a file"):
        run(cells(1), file, measure=measure)
    with pytest.raises(NotADirectoryError, match="is a file"):
        merge([], file)
    with pytest.raises(ValueError, match=f"Given twice: {cell(1).key}"):
        run([*cells(2), cell(1)], folder, measure=measure)
    with pytest.raises(ValueError, match=r"jobs must be at least 1\. Got 0"):
        run(cells(1), folder, measure=measure, jobs=0)
    with pytest.raises(ValueError, match=r"retries must be at least 0\. Got -1"):
        run(cells(1), folder, measure=measure, retries=-1)
    assert not log.exists()
    assert not folder.exists()


def test_the_commit_is_that_of_the_checkout_the_library_lies_in(tmp_path, monkeypatch):
    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", *identity, *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    source = tmp_path / "src"
    source.mkdir()
    monkeypatch.setattr(MODULE, "__file__", str(source / "experiments" / "runner.py"))
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert MODULE._commit() is None
    git("init", "-q")
    (source / "__init__.py").write_text("")
    assert MODULE._commit() is None
    git("add", ".")
    git("commit", "-q", "-m", "first")
    assert MODULE._commit() == git("rev-parse", "HEAD")
    (tmp_path / "notes").write_text("beside the sources")
    assert MODULE._commit() == git("rev-parse", "HEAD")
    (source / "new.py").write_text("")
    assert MODULE._commit() == git("rev-parse", "HEAD") + "+"
    monkeypatch.setenv("PATH", "")
    assert MODULE._commit() is None
