"""Compute runs in processes of this machine or on a Dask cluster; a finished run is never computed again.

A run ends as measured or as failed: with an exception, or because its process died at each of 1 + `RETRIES` attempts.
Both are recorded (`run_folder`). However often a sweep is killed and started again, the records end up the same.
"""

import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from pathlib import Path

from identifiable.errors import join_few
from identifiable.experiments.cluster import SCHEDULER_LOST, DaskCluster
from identifiable.experiments.processes import LocalProcesses
from identifiable.experiments.progress import SweepProgress, say
from identifiable.experiments.recipe import FAILED, Record, Run
from identifiable.experiments.run_folder import Results, RunFolder, collect, warn_of_damaged
from identifiable.experiments.worker import Measure, Task

RETRIES = 2  # attempts after the first, for a run whose process died
Workers = LocalProcesses | DaskCluster  # each computes one task per process at a time
DIED = "the process died at every attempt: killed from outside, out of memory, or a crash in compiled code"


def run_all(
    runs: Sequence[Run],
    folder: str | Path,
    *,
    measure: Measure,
    jobs: int = 1,
    cluster: str | None = None,
    device: Callable[[Run], str] = lambda run: "auto",
    retry_failed: bool = False,
    verbose: int = 1,
) -> Results:
    """Compute the runs that have no record in the folder yet, in the given order, and return the records of all.

    Parameters
    ----------
    measure : `measure(run, device)` is called in another process, with the global seeds set by the run.
    jobs : number of processes on this machine. Each uses 1/jobs of the processors, or OMP_NUM_THREADS threads if set.
    cluster : address of a Dask scheduler ("tcp://..."; each worker computes one run at a time), or "local" for a
        cluster of `jobs` processes on this machine.
    device : returns "auto", "cpu", "cuda" or "cuda:1" for a run; it is resolved in the worker.
    retry_failed : compute failed runs again.
    verbose : 0 is silent; 1 shows progress on stderr.
    """
    runs, target = tuple(runs), RunFolder(Path(folder))
    _require_distinct(runs)
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1. Got {jobs!r}.")
    target.require_not_a_file()
    found, damaged = target.find(runs)
    warn_of_damaged(damaged, "Their runs are computed again.")
    failed = frozenset(key for key, record in found.items() if retry_failed and record.status == FAILED)
    waiting = [run for run in runs if run.key not in found or run.key in failed]
    if not waiting:
        return collect(runs, folder)
    try:
        with target.locked(), _workers(cluster, jobs, verbose) as workers:
            token, commit = target.begin(), current_commit()
            place = RunFolder(target.path.resolve())  # a worker may have another current folder
            tasks = [Task(run, measure, device(run), place, token, commit, run.key in failed) for run in waiting]
            known = [record for key, record in found.items() if key not in failed]
            with SweepProgress(len(runs), known, waiting, workers.capacity, verbose) as progress:
                for record in _finished(workers, tasks, target):
                    progress.show(record)
    except KeyboardInterrupt:
        if verbose:
            finished = f"{len(collect(runs, folder).records)} of {len(runs)} runs are finished"
            say(f"Stopped: {finished}. Repeat the command to continue.")
        raise
    return collect(runs, folder)


def _workers(cluster: str | None, jobs: int, verbose: int) -> Workers:
    return LocalProcesses(jobs, RETRIES) if cluster is None else DaskCluster(cluster, jobs, RETRIES, verbose)


def _finished(workers: Workers, tasks: Iterable[Task], folder: RunFolder) -> Iterator[Record]:
    """Yield each record as soon as its run is finished and the record is written."""
    queue = deque((task, 0) for task in tasks)
    running: dict[Future[Record | None], tuple[Task, int, float]] = {}
    while queue or running:
        while queue and len(running) < workers.capacity():
            task, deaths = queue.popleft()
            running[workers.submit(task)] = task, deaths, time.perf_counter()
        ended, _ = wait(running, timeout=1, return_when=FIRST_COMPLETED)
        for future in ended:
            task, deaths, start = running.pop(future)
            try:
                record = future.result()
            except workers.worker_died:
                if deaths < workers.retries:
                    queue.appendleft((task, deaths + 1))
                    continue
                record = task.record(FAILED, time.perf_counter() - start, task.device, error=DIED)
            except CancelledError:
                raise ConnectionError(SCHEDULER_LOST) from None
            if record is not None and not task.is_recorded():  # on a network disk a written file may show up late
                folder.write(record)
            yield folder.read(task.run)


def current_commit() -> str | None:
    """Return the commit of the checkout this file belongs to, with a "+" if its sources were changed since."""

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", *arguments]
        source = Path(__file__).parent.parent
        return subprocess.run(command, cwd=source, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # an installed copy may lie inside another checkout
        return git("rev-parse", "HEAD") + "+" * bool(git("status", "--porcelain", "--", "."))
    except (OSError, subprocess.CalledProcessError):
        return None


def _require_distinct(runs: Sequence[Run]) -> None:
    repeated = [key for key, count in Counter(run.key for run in runs).items() if count > 1]
    if repeated:
        raise ValueError(f"Every run may be given once. Given more often: {join_few(repeated)}.")
