"""The workers of a Dask cluster. Where they do not see the run folder, the main process writes their records."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, Self

from identifiable.experiments.processes import sigint_blocked, thread_counts
from identifiable.experiments.progress import say
from identifiable.experiments.recipe import Record
from identifiable.experiments.worker import Task, finish

if TYPE_CHECKING:
    from distributed import Client

LOCAL = "local"
PATIENCE = 10  # seconds a scheduler has to answer
SCHEDULER_LOST = (
    "The connection to the Dask scheduler is lost. All finished runs are kept: repeat the command to continue."
)
_one_at_a_time = threading.Lock()  # a Dask worker may have several threads, but torch has one state per process


class DaskCluster:
    """The workers of a Dask scheduler at an address, or with the address "local" of one that is started here."""

    retries = 0  # the scheduler retries before it reports the death of a worker

    def __init__(self, address: str, jobs: int, retries: int, verbose: int):
        try:
            from distributed import KilledWorker
        except ImportError:
            raise ImportError(f'cluster={address!r} needs Dask: pip install "identifiable[cluster]".') from None
        self.worker_died: type[Exception] = KilledWorker
        self._address, self._jobs, self._allowed_failures, self._verbose = address, jobs, retries, verbose

    def capacity(self) -> int:
        """Return how many tasks run at once."""
        try:
            return max(1, len(self._client.nthreads()))
        except OSError:
            raise ConnectionError(SCHEDULER_LOST) from None

    def submit(self, task: Task) -> "Future[Record | None]":
        """Start a task in any worker."""
        return self._pool.submit(_finish, task)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(_silenced("distributed", "distributed.client"))  # our errors say what went wrong
            self._cluster = stack.enter_context(self._start()) if self._address == LOCAL else self._address
            self._client = self._connect()
            stack.callback(self._client.close, timeout=PATIENCE)
            self._pool = self._client.get_executor(pure=False)
            stack.callback(self._pool.shutdown, wait=False)
            self._end = stack.pop_all()
        if self._verbose and not self._client.nthreads():
            say(
                f"The scheduler at {self._address} has no workers yet. The runs wait until you start one on a machine "
                f"with identifiable: dask worker {self._address} --nthreads 1"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    def _start(self) -> Any:
        import dask
        from distributed import LocalCluster

        resource_tracker.ensure_running()  # started later, it would unblock Ctrl-C in the workers
        settings = {
            "distributed.scheduler.allowed-failures": self._allowed_failures,
            "distributed.nanny.pre-spawn-environ": thread_counts(self._jobs),
        }
        with dask.config.set(settings), sigint_blocked():
            return LocalCluster(
                n_workers=self._jobs,
                threads_per_worker=1,
                memory_limit=0,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )

    def _connect(self) -> "Client":
        from distributed import Client

        try:
            return Client(self._cluster, timeout=PATIENCE, set_as_default=False)
        except Exception as error:  # another kind of server at this address may answer anything
            raise ConnectionError(
                f"No Dask scheduler answers at {self._address!r} ({error}). Start one with 'dask scheduler', and give "
                "the address it prints, such as tcp://192.168.0.1:8786; or cluster='local'."
            ) from None


def _finish(task: Task) -> Record:
    with _one_at_a_time:
        return finish(task)


@contextmanager
def _silenced(*names: str) -> Iterator[None]:
    levels = {log: log.level for log in map(logging.getLogger, names)}
    try:
        for log in levels:
            log.setLevel(logging.CRITICAL)
        yield
    finally:
        for log, level in levels.items():
            log.setLevel(level)
