"""Worker processes on this machine: a killed one is replaced, and all of them end with the main process."""

import os
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Self

import joblib
from joblib.externals.loky.backend import get_context
from joblib.externals.loky.process_executor import ProcessPoolExecutor, TerminatedWorkerError

from identifiable.experiments.recipe import Record
from identifiable.experiments.worker import Task, finish

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class LocalProcesses:
    """Up to `jobs` processes on this machine, each with its share of the processors."""

    worker_died: type[Exception] = TerminatedWorkerError

    def __init__(self, jobs: int, retries: int):
        self.retries = retries
        self._jobs = jobs
        self._processes: list[ReplacedProcess] = []

    def capacity(self) -> int:
        """Return how many tasks run at once."""
        return self._jobs

    def submit(self, task: Task) -> "Future[Record | None]":
        """Start a task in a free process."""
        process = next((process for process in self._processes if process.is_free), None)
        if process is None:
            process = ReplacedProcess(thread_counts(self._jobs))
            self._processes.append(process)
        return process.submit(task)

    def __enter__(self) -> Self:
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        # joblib replaces a process that has grown by 300 MB; users need not know.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.end()
        self._warnings.__exit__(None, None, None)


class ReplacedProcess:
    """One worker process; when it has died, the next task starts another."""

    def __init__(self, environment: Mapping[str, str]):
        self._environment = dict(environment)
        self._future: Future[Record | None] | None = None
        self._begin()

    def _begin(self) -> None:
        theirs, self._ours = Pipe(duplex=False)  # ours closes when this process ends, for whatever reason
        # An executor kills all of its processes when one of them dies, so each process has its own executor.
        self._pool = ProcessPoolExecutor(
            max_workers=1, context=_context(), initializer=_end_with, initargs=(theirs,), env=self._environment
        )

    @property
    def is_free(self) -> bool:
        """Whether the last task has ended."""
        return self._future is None or self._future.done()

    def submit(self, task: Task) -> "Future[Record | None]":
        """Start a task."""
        with sigint_blocked():
            try:
                self._future = self._pool.submit(_finish, task)
            except TerminatedWorkerError:
                self.end()
                self._begin()
                self._future = self._pool.submit(_finish, task)
        return self._future

    def end(self) -> None:
        """Kill the process."""
        self._pool.shutdown(wait=True, kill_workers=True)


def _finish(task: Task) -> None:
    """Finish a run and return nothing: a long record would block the pipe if the process died while sending it."""
    finish(task)


def _context() -> Any:
    return get_context("loky")


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Hide Ctrl-C from processes that are started here: only the main process receives it, and it ends the others."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with(main: Connection) -> None:
    """End this process as soon as the main process has ended, so that no run is computed twice."""

    def watch() -> None:
        main.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def thread_counts(jobs: int) -> dict[str, str]:
    """Divide the processors among the processes, unless the environment sets a number of threads."""
    share = os.environ.get(THREAD_VARIABLES[0], str(max(1, joblib.cpu_count() // jobs)))
    return {name: os.environ.get(name, share) for name in THREAD_VARIABLES}  # torch reads MKL's
