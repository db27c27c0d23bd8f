"""Worker processes on this machine: a killed one is replaced, and none survives the main process."""

import errno
import os
import signal
from contextlib import suppress

import pytest
from joblib.externals.loky.process_executor import TerminatedWorkerError

from identifiable.experiments.processes import THREAD_VARIABLES, ReplacedProcess, thread_counts
from identifiable.experiments.run_folder import RunFolder, read_records
from run_helpers import files, is_alive, logged, one_run, pids, runs, task, until


def test_processes_share_the_processors(monkeypatch):
    monkeypatch.setattr("joblib.cpu_count", lambda: 6)
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert [set(thread_counts(jobs).values()) for jobs in (1, 2, 9)] == [{"6"}, {"3"}, {"1"}]
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert set(thread_counts(2).values()) == {"4"}
    monkeypatch.setenv("MKL_NUM_THREADS", "5")
    assert thread_counts(2) == {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "5", "OPENBLAS_NUM_THREADS": "4"}


@pytest.fixture
def process(forked, folder):
    process = ReplacedProcess({})
    yield process
    process.end()


@pytest.fixture
def token(folder):
    with RunFolder(folder).locked():
        yield RunFolder(folder).begin()


def test_a_process_that_dies_between_two_tasks_is_replaced(process, folder, token, log):
    first, second = (task(run, logged(log), folder, token) for run in runs(2))
    assert process.submit(first).result() is None
    assert process.is_free
    (pid,) = pids(log)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    with suppress(TerminatedWorkerError):  # if its death has not been noticed yet
        process.submit(second).result()
    process.submit(second).result()
    assert [r.run.seed for r in read_records(folder)] == [0, 1]
    process.end()
    assert not any(map(is_alive, pids(log)))


def _fills_the_disk(run, device):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    outcome = logged(os.devnull)(run, device)
    if run.seed == 1:
        os.fsync = full
    return outcome


def test_a_full_disk_is_one_error_and_leaves_nothing_half_written(process, folder, token):
    process.submit(task(one_run(0), _fills_the_disk, folder, token)).result()
    with pytest.raises(OSError, match="No space left") as caught:
        process.submit(task(one_run(1), _fills_the_disk, folder, token)).result()
    assert caught.value.errno == errno.ENOSPC
    assert files(folder) == ["cells", f"cells/{one_run(0).key}.json"]
