"""A Dask cluster computes the same records as this machine, and repeats no finished run."""

import json
import os
import sys
import time

import dask
import pytest

import fresh
from identifiable.experiments import cluster
from identifiable.experiments.run_folder import RunFolder, read_records
from identifiable.experiments.runner import run_all
from run_helpers import (
    contents,
    dies_at,
    expected,
    is_alive,
    killing,
    logged,
    noted,
    on_cpu,
    once_waits,
    one_run,
    pids,
    runs,
    until,
)

pytestmark = pytest.mark.usefixtures("forked")

DASK = """
import sys
from distributed.cli.dask_{0} import main
main(sys.argv[1:])
"""


@pytest.fixture
def scheduler(tmp_path):
    """The address of a scheduler with two workers, in three other processes."""
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


def test_a_cluster_computes_the_same_even_if_a_worker_is_killed(folder, log, scheduler, monkeypatch):
    requested = (one_run(0), one_run(1, seconds=1), *runs(6)[2:])
    with killing(log, beside=requested[1]):
        measure = once_waits(log, requested[0])
        results = run_all(requested, folder, measure=measure, cluster=scheduler, device=on_cpu, verbose=0)
    assert contents(results.records) == expected(requested)
    assert sorted(noted(log, "end")) == sorted(run.key for run in requested)
    assert os.getpid() not in pids(log)
    again = run_all(requested, folder, measure=logged(log), cluster=scheduler, verbose=0)
    assert again == results
    assert len(noted(log, "end")) == len(requested)
    monkeypatch.setattr(RunFolder, "begin", lambda folder: "of a folder that the workers do not see")
    other = folder.with_name("other")
    unseen = run_all(requested, other, measure=logged(log), cluster=scheduler, device=on_cpu, verbose=0)
    assert contents(unseen.records) == expected(requested)


@pytest.fixture
def forked_nannies():
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@pytest.mark.usefixtures("forked_nannies")
def test_a_local_cluster_survives_a_run_that_kills_its_worker(folder, log, capfd, monkeypatch):
    monkeypatch.setattr("identifiable.experiments.runner.RETRIES", 1)
    requested, options = runs(4), {"jobs": 2, "cluster": "local", "device": on_cpu, "verbose": 0}
    results = run_all(requested, folder, measure=dies_at(log, requested[1]), **options)
    assert [r.status for r in results.records] == ["done", "failed", "done", "done"]
    assert results.records[1].error.startswith("the process died")
    assert noted(log, "start").count(requested[1].key) == 2
    assert len(noted(log, "end")) == 3
    again = run_all(requested, folder, measure=logged(log), retry_failed=True, **options)
    assert contents(again.records) == expected(requested)
    assert not any(map(is_alive, pids(log)))
    assert capfd.readouterr().err == ""


def test_a_missing_scheduler_is_one_clear_error(folder, log, monkeypatch):
    assert cluster.PATIENCE <= 10
    monkeypatch.setattr(cluster, "PATIENCE", 1)
    start = time.monotonic()
    with pytest.raises(ConnectionError, match=r"tcp://127.0.0.1:9.*dask scheduler"):
        run_all(runs(1), folder, measure=logged(log), cluster="tcp://127.0.0.1:9", verbose=0)
    assert time.monotonic() - start < 5
    assert read_records(folder) == ()


def test_without_dask_the_error_names_the_extra(folder, log, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"identifiable\[cluster\]"):
        run_all(runs(1), folder, measure=logged(log), cluster="local", verbose=0)
