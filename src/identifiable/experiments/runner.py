"""Cells to records, in processes of this machine or on a Dask cluster; what is finished is never computed again.

    folder/cells/<key>.json    a finished cell: one line of JSON, written all or nothing at the moment it is finished
    folder/.lock               held by the process that fills the folder; the system lets go of it when that one ends
    folder/.token              of the last run: a worker that reads it sees this very folder, and writes there itself

A cell ends measured, or failed: with an exception, or because its process died at each of 1 + `retries` attempts. Both
are recorded. However often a run is killed and started again, the records end up the same. The folder holds no trace of
the machine: it can be moved, copied and merged. (Linux and macOS.)
"""

import fcntl
import logging
import math
import os
import random
import re
import secrets
import signal
import subprocess
import threading
import time
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing import Pipe, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import joblib
import numpy as np
import torch
from joblib.externals.loky.backend import get_context
from joblib.externals.loky.process_executor import ProcessPoolExecutor, TerminatedWorkerError

from identifiable import files
from identifiable.errors import DamagedFileError, join_few
from identifiable.estimators.base import resolve_device
from identifiable.experiments.progress import Account, say
from identifiable.experiments.recipe import DONE, FAILED, Cell, Measurement, Record
from identifiable.persist import versions

if TYPE_CHECKING:
    from distributed import Client

LOCAL = "local"
PATIENCE = 10  # seconds a scheduler has to answer
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_GONE = "The Dask scheduler has gone. All finished cells are kept: the same command goes on from there."
_ONE_AT_A_TIME = threading.Lock()  # a Dask worker may have several threads, but torch has one state per process

Measure = Callable[[Cell, str], Measurement]
_Lines = list[tuple[str, bool]] | None  # of records, and whether each is written; None where all are


@dataclass(frozen=True)
class Together:
    """Cells that one process computes at once: those for which `group` says the same word; None is alone."""

    group: Callable[[Cell], str | None]
    measure: Callable[[Sequence[Cell], str], Sequence[Measurement]]


@dataclass(frozen=True)
class Results:
    """What a folder holds of the cells that were asked for, in their order."""

    records: tuple[Record, ...]
    missing: tuple[Cell, ...] = ()

    @property
    def done(self) -> int:
        """Number of cells that were measured."""
        return sum(record.status == DONE for record in self.records)

    @property
    def failed(self) -> int:
        """Number of cells that failed."""
        return len(self.records) - self.done


def run(
    cells: Sequence[Cell],
    folder: str | Path,
    *,
    measure: Measure,
    together: Together | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    device: str | Callable[[Cell], str] = "auto",
    retries: int = 2,
    retry_failed: bool = False,
    verbose: int = 1,
) -> Results:
    """Compute the cells that have no record in the folder yet, in the given order, and return the records of all.

    Parameters
    ----------
    measure : `measure(cell, device)` is called in another process, with the global seeds set by the cell.
    together : which cells are measured at once. Where that fails, they are measured one by one.
    jobs : processes on this machine. Each has 1/jobs of its processors, or OMP_NUM_THREADS threads where that is set.
    cluster : address of a Dask scheduler ("tcp://..."; one cell at a time in each worker), or "local" for a cluster of
        `jobs` processes here.
    device : "auto", "cpu", "cuda" or "cuda:1", looked up where the cell is computed; or which for which cell.
    retries : how often a cell is tried again whose process died. A scheduler that runs already has a number of its own.
    retry_failed : compute failed cells anew.
    verbose : 0 is silent; 1 shows progress on stderr.
    """
    cells, folder = tuple(cells), Path(folder)
    _require_distinct(cells)
    _require_at_least("jobs", jobs, 1)
    _require_at_least("retries", retries, 0)
    _require_not_a_file(folder)
    found, damaged = _look_up(cells, folder)
    _warn_of(damaged, "Their cells are computed anew.")
    failed = frozenset(key for key, record in found.items() if retry_failed and record.status == FAILED)
    waiting = [cell for cell in cells if cell.key not in found or cell.key in failed]
    if not waiting:
        return collect(cells, folder)
    _cells(folder).mkdir(parents=True, exist_ok=True)
    try:
        with _held(folder), _place(cluster, jobs, retries, verbose) as place:
            token, commit = _new_token(folder), _commit()
            tasks = [
                _Task(group, measure, together, on, str(folder.resolve()), token, commit, failed)
                for group, on in _groups(waiting, together, device)
            ]
            known = [record for key, record in found.items() if key not in failed]
            with Account(len(cells), known, waiting, place.lanes, verbose) as account:
                for record in _finished(place, tasks):
                    account.show(record)
    except KeyboardInterrupt:
        if verbose:
            finished = f"{len(collect(cells, folder).records)} of {len(cells)} cells are finished"
            say(f"Stopped: {finished}. The same command goes on from there.")
        raise
    return collect(cells, folder)


def collect(cells: Sequence[Cell], folder: str | Path) -> Results:
    """Return what the folder holds of these cells, and compute nothing."""
    found, _ = _look_up(cells, Path(folder))
    records = tuple(replace(found[cell.key], cell=cell) for cell in cells if cell.key in found)
    return Results(records, tuple(cell for cell in cells if cell.key not in found))


def read_records(folder: str | Path) -> tuple[Record, ...]:
    """Return all records of a folder, in the order of their file names; a damaged file is skipped, with a warning."""
    folder = Path(folder)
    if not _cells(folder).is_dir():
        raise FileNotFoundError(
            f"No run in {str(folder)!r}: there is no folder 'cells' in it. Name the folder that a run was written to."
        )
    found: dict[str, Record] = {}
    damaged = []
    for path in sorted(_cells(folder).glob("*.json")):
        try:
            record = _read(path)
        except DamagedFileError:
            damaged.append(path)
        else:
            if _is_better(record, found.get(record.cell.key)):
                found[record.cell.key] = record
    _warn_of(damaged, "They are left out.")
    return tuple(found.values())


def merge(folders: Iterable[str | Path], into: str | Path) -> int:
    """Copy the records of other folders that are new, or done where `into` has a failed one; return their number.

    Of two records of one cell the done one is kept, else the first; those of `into` come before all others.
    """
    into = Path(into)
    others = [record for folder in folders for record in read_records(folder)]
    _require_not_a_file(into)
    _cells(into).mkdir(parents=True, exist_ok=True)
    with _held(into):
        kept = {record.cell.key: record for record in read_records(into)}
        before = dict(kept)
        for record in others:
            if _is_better(record, kept.get(record.cell.key)):
                kept[record.cell.key] = record
        changed = [record for key, record in kept.items() if record is not before.get(key)]
        for record in changed:
            _write(_path(into, record.cell), record.to_line())
    return len(changed)


# The folder ----------------------------------------------------------------------------------------------------------


def _cells(folder: Path) -> Path:
    return folder / "cells"


def _path(folder: Path, cell: Cell) -> Path:
    return _cells(folder) / f"{cell.key}.json"


def _read(path: Path) -> Record:
    try:
        record = Record.of_line(path.read_text(encoding="utf-8"))
        whole = record.status in (DONE, FAILED) and math.isfinite(record.seconds) and bool(record.cell.key)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise DamagedFileError(f"{str(path)!r} is no record of a finished cell.")
    return record


def _look_up(cells: Iterable[Cell], folder: Path) -> tuple[dict[str, Record], list[Path]]:
    """Return the records of these cells by key, and the damaged files."""
    found, damaged = {}, []
    for cell in cells:
        path, key = _path(folder, cell), cell.key
        try:
            record = _read(path)
        except FileNotFoundError:
            continue
        except DamagedFileError:
            damaged.append(path)
            continue
        if record.cell.key == key:
            found[key] = record
        else:
            damaged.append(path)
    return found, damaged


def _is_better(record: Record, other: Record | None) -> bool:
    return other is None or (other.status, record.status) == (FAILED, DONE)


def _write(path: Path, line: str) -> None:
    """Write a line to path, all or nothing."""
    try:
        files.write_bytes(path, f"{line}\n".encode())
    except OSError as error:
        raise OSError(
            error.errno,
            f"Cannot write a record to {str(path.parent)!r}: {error.strerror or error}. All finished cells before it "
            "are kept; make room, and the same command goes on from there",
        ) from None


def _new_token(folder: Path) -> str:
    """Mark the folder as this run's, and remove what killed workers had begun to write."""
    for unfinished in _cells(folder).glob(".*.part"):
        unfinished.unlink(missing_ok=True)
    token = secrets.token_hex(16)
    _write(folder / ".token", token)
    return token


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep other processes from filling the folder at the same time."""
    with (folder / ".lock").open("a") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(
                f"Another process is writing to {str(folder)!r} now. Wait until it has ended, or write to another "
                "folder and merge the two."
            ) from None
        yield


# One cell, in a worker -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """Cells that are computed at once, mostly one, and what a worker must know to finish them."""

    cells: tuple[Cell, ...]
    measure: Measure
    together: Together | None
    device: str
    folder: str
    token: str
    commit: str | None
    failed_before: frozenset[str]

    def sees_folder(self) -> bool:
        """Whether this process sees the folder of the run, and that run is still the last one."""
        try:
            return Path(self.folder, ".token").read_text(encoding="utf-8").strip() == self.token
        except OSError:
            return False

    def recorded(self) -> dict[str, Record]:
        """Return the records that were written since the run began, by key."""
        found = _look_up(self.cells, Path(self.folder))[0]
        return {k: r for k, r in found.items() if not (k in self.failed_before and r.status == FAILED)}


def _groups(
    cells: Iterable[Cell], together: Together | None, device: str | Callable[[Cell], str]
) -> list[tuple[tuple[Cell, ...], str]]:
    """Return the cells of each task and its device, in the order of the first cells."""
    groups: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        on = device if isinstance(device, str) else device(cell)
        word = None if together is None else together.group(cell)
        groups[(f"together {word}" if word is not None else cell.key), on].append(cell)
    return [(tuple(group), on) for (_, on), group in groups.items()]


def _work(task: _Task) -> list[tuple[str, bool]]:
    """Finish the cells; return the line of each record, and whether the line is written."""
    with _ONE_AT_A_TIME:
        known = task.recorded() if task.sees_folder() else {}
        found = [(record.to_line(), True) for record in known.values()]
        for cell, line in _measured(task, [c for c in task.cells if c.key not in known]):
            found.append((line, _noted(task, cell, line)))
        return found


def _noted(task: _Task, cell: Cell, line: str) -> bool:
    """Write the line of a record, if this process sees the folder; the main process does it otherwise."""
    if not task.sees_folder():
        return False
    try:
        _write(_path(Path(task.folder), cell), line)
    except OSError:  # the main process tries again, and says what is wrong
        return False
    return True


def _measured(task: _Task, cells: Sequence[Cell]) -> Iterator[tuple[Cell, str]]:
    """Yield each cell with the line of its record."""
    device = str(resolve_device(task.device))
    if (lines := _measured_together(task, cells, device)) is not None:
        yield from zip(cells, lines, strict=True)
        return
    for cell in cells:
        start = time.perf_counter()
        try:
            with _quiet():
                _seed(cell)
                outcome = task.measure(cell, device)
            line = _line(task, cell, outcome, time.perf_counter() - start, device)
        except (Exception, SystemExit) as error:
            seconds = time.perf_counter() - start
            line = _record(task, cell, FAILED, seconds, device, error=_in_one_line(error)).to_line()
        yield cell, line


def _measured_together(task: _Task, cells: Sequence[Cell], device: str) -> list[str] | None:
    """Return the lines of cells that were measured at once; None where that is not wanted or failed."""
    if len(cells) < 2 or task.together is None:
        return None
    start = time.perf_counter()
    try:
        with _quiet():
            _seed(cells[0])
            outcomes = task.together.measure(cells, device)
        each = (time.perf_counter() - start) / len(cells)
        return [_line(task, cell, outcome, each, device) for cell, outcome in zip(cells, outcomes, strict=True)]
    except Exception:  # one by one, the error will be that of its cell
        return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what every sweep meets: restarts that disagree, solvers that do not converge."""
    with warnings.catch_warnings():
        for noise in (UserWarning, RuntimeWarning):
            warnings.simplefilter("ignore", noise)
        yield


def _line(task: _Task, cell: Cell, outcome: Measurement, seconds: float, device: str) -> str:
    found = {"metrics": outcome.metrics, "arrays": outcome.arrays, "certificate": outcome.certificate}
    return _record(task, cell, DONE, seconds, device, **found).to_line()


def _record(task: _Task, cell: Cell, status: str, seconds: float, device: str, **found: Any) -> Record:
    return Record(
        cell=cell,
        status=status,
        seconds=seconds,
        device=device,
        versions=versions(),
        commit=task.commit,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        **found,
    )


def _seed(cell: Cell) -> None:
    """Seed the global generators, so that nothing depends on what the process did before."""
    seed = int(cell.key[-8:], 16)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - for code that still draws from it
    torch.manual_seed(seed)


def _in_one_line(error: BaseException, *, most: int = 300) -> str:
    r"""Say what happened without saying on which machine: of a path, the last name stays.

    Examples
    --------
    >>> _in_one_line(FileNotFoundError("No file '/home/me/my data/x.csv',\n see /etc/y and 1/2"))
    "FileNotFoundError: No file 'x.csv', see y and 1/2"
    """
    words = " ".join(str(error).split())
    words = re.sub(r"""(['"])/[^'"]*/([^'"]*)\1""", r"\1\2\1", words)
    words = re.sub(r"""(?<![\w.)\]])/+(?:[^\s'"/]+/+)*(?=[^\s'"/])""", "", words)
    said = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return said if len(said) <= most else f"{said[: most - 1]}…"


def _commit() -> str | None:
    """Return the commit of the checkout this file belongs to, with a "+" where its sources were changed since."""

    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", *words]
        source = Path(__file__).parent.parent
        return subprocess.run(command, cwd=source, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # an installed copy may lie inside some other checkout
        return git("rev-parse", "HEAD") + "+" * bool(git("status", "--porcelain", "--", "."))
    except (OSError, subprocess.CalledProcessError):
        return None


# Where cells are computed --------------------------------------------------------------------------------------------


class _Place(Protocol):
    """Workers: each computes one cell at a time, and `death` is what a future raises whose worker died."""

    death: type[Exception]
    retries: int

    def lanes(self) -> int: ...

    def submit(self, task: _Task) -> "Future[_Lines]": ...


def _finished(place: _Place, tasks: Iterable[_Task]) -> Iterator[Record]:
    """Yield each record at the moment its cell is finished, written."""
    queue = deque((task, 0) for task in tasks)
    running: dict[Future[_Lines], tuple[_Task, int, float]] = {}
    while queue or running:
        while queue and len(running) < place.lanes():
            task, deaths = queue.popleft()
            running[place.submit(task)] = task, deaths, time.perf_counter()
        ended, _ = wait(running, timeout=1, return_when=FIRST_COMPLETED)
        for future in ended:
            task, deaths, start = running.pop(future)
            try:
                result = future.result()
            except place.death:
                if deaths < place.retries:
                    queue.appendleft((task, deaths + 1))
                else:
                    yield from _buried(task, time.perf_counter() - start)
            except CancelledError:
                raise ConnectionError(_GONE) from None
            else:
                yield from _kept(task, result)


def _kept(task: _Task, lines: "_Lines") -> Iterator[Record]:
    """Yield the records of finished cells, and write those that their worker could not."""
    if lines is None:
        yield from (_read(_path(Path(task.folder), cell)) for cell in task.cells)
        return
    for line, written in lines:
        record = Record.of_line(line)
        path = _path(Path(task.folder), record.cell)
        if not (written and path.exists()):  # on a network disk another machine's file may show up late
            _write(path, line)
        yield record


def _buried(task: _Task, seconds: float) -> Iterator[Record]:
    """Record that the process died, for the cells that it had not finished before."""
    known = task.recorded()
    for cell in task.cells:
        if cell.key not in known:
            error = "the process died at every attempt: killed from outside, out of memory, or a crash in compiled code"
            record = _record(task, cell, FAILED, seconds, task.device, error=error)
            _write(_path(Path(task.folder), cell), record.to_line())
            yield record
        else:
            yield known[cell.key]


def _place(cluster: str | None, jobs: int, retries: int, verbose: int) -> "_Processes | _Cluster":
    return _Processes(jobs, retries) if cluster is None else _Cluster(cluster, jobs, retries, verbose)


class _Lane:
    """One worker process, and another when it has died."""

    def __init__(self, environment: Mapping[str, str]):
        self._environment = dict(environment)
        self._future: Future[_Lines] | None = None
        self._begin()

    def _begin(self) -> None:
        theirs, self._ours = Pipe(duplex=False)  # ours closes when this process ends, however it ends
        # One executor for each lane: an executor kills all of its processes when one of them dies.
        self._pool = ProcessPoolExecutor(
            max_workers=1, context=_context(), initializer=_end_with, initargs=(theirs,), env=self._environment
        )

    @property
    def is_free(self) -> bool:
        return self._future is None or self._future.done()

    def submit(self, task: _Task) -> "Future[_Lines]":
        with _sigint_blocked():
            try:
                self._future = self._pool.submit(_work_here, task)
            except TerminatedWorkerError:
                self.end()
                self._begin()
                self._future = self._pool.submit(_work_here, task)
        return self._future

    def end(self) -> None:
        self._pool.shutdown(wait=True, kill_workers=True)


def _context() -> Any:
    return get_context("loky")


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Hide Ctrl-C from processes that are started here: the main process sees it, and ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with(main: Connection) -> None:
    """End this process when the main process has ended, so that no cell is computed twice."""

    def watch() -> None:
        main.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work_here(task: _Task) -> "_Lines":
    """Finish the cells in a lane; return nothing where all records are written."""
    lines = _work(task)  # a long line, cut off when the process dies, would block the pipe
    return None if all(written for _, written in lines) else lines


def _threads(jobs: int) -> dict[str, str]:
    """Share the processors between so many processes, unless the environment has a number of threads already."""
    share = os.environ.get(_THREADS[0], str(max(1, joblib.cpu_count() // jobs)))
    return {name: os.environ.get(name, share) for name in _THREADS}  # torch takes MKL's


class _Processes:
    """Lanes on this machine."""

    death: type[Exception] = TerminatedWorkerError

    def __init__(self, jobs: int, retries: int):
        self.retries = retries
        self._jobs = jobs
        self._lanes: list[_Lane] = []

    def lanes(self) -> int:
        return self._jobs

    def submit(self, task: _Task) -> "Future[_Lines]":
        lane = next((lane for lane in self._lanes if lane.is_free), None)
        if lane is None:
            lane = _Lane(_threads(self._jobs))
            self._lanes.append(lane)
        return lane.submit(task)

    def __enter__(self) -> Self:
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        # joblib replaces a process that has grown by 300 MB, which is no news.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        return self

    def __exit__(self, *_: object) -> None:
        for lane in self._lanes:
            lane.end()
        self._warnings.__exit__(None, None, None)


class _Cluster:
    """The workers of a Dask scheduler, or of one that is started here."""

    def __init__(self, address: str, jobs: int, retries: int, verbose: int):
        try:
            from distributed import KilledWorker
        except ImportError:
            raise ImportError(f'cluster={address!r} needs Dask: pip install "identifiable[cluster]".') from None
        self.death: type[Exception] = KilledWorker
        self.retries = 0  # the scheduler has tried again before it gives up
        self._address, self._jobs, self._allowed, self._verbose = address, jobs, retries, verbose

    def lanes(self) -> int:
        try:
            return max(1, len(self._client.nthreads()))
        except OSError:
            raise ConnectionError(_GONE) from None

    def submit(self, task: _Task) -> "Future[_Lines]":
        return self._pool.submit(_work, task)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(_silenced("distributed", "distributed.client"))  # what goes wrong is said once, by us
            self._cluster = stack.enter_context(self._start()) if self._address == LOCAL else self._address
            self._client = self._connect()
            stack.callback(self._client.close, timeout=PATIENCE)
            self._pool = self._client.get_executor(pure=False)
            stack.callback(self._pool.shutdown, wait=False)
            self._end = stack.pop_all()
        if self._verbose and not self._client.nthreads():
            say(
                f"The scheduler at {self._address} has no workers yet, and the cells wait for them. Start one on any "
                f"machine that has identifiable: dask worker {self._address} --nthreads 1"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    def _start(self) -> Any:
        import dask
        from distributed import LocalCluster

        resource_tracker.ensure_running()  # started in between, it would show Ctrl-C to the workers after all
        settings = {
            "distributed.scheduler.allowed-failures": self._allowed,
            "distributed.nanny.pre-spawn-environ": _threads(self._jobs),
        }
        with dask.config.set(settings), _sigint_blocked():
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
        except Exception as error:  # whatever else listens there may answer anything
            raise ConnectionError(
                f"No Dask scheduler answers at {self._address!r} ({error}). Start one with 'dask scheduler', and give "
                "the address it prints, such as tcp://192.168.0.1:8786; or cluster='local'."
            ) from None


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


# Bad input -----------------------------------------------------------------------------------------------------------


def _require_distinct(cells: Sequence[Cell]) -> None:
    twice = [key for key, count in Counter(cell.key for cell in cells).items() if count > 1]
    if twice:
        raise ValueError(f"Every cell may be given once. Given twice: {join_few(twice)}.")


def _require_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} must be at least {least}. Got {value!r}.")


def _require_not_a_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{str(folder)!r} is a file. Name a folder; it is made where it does not exist.")


def _warn_of(damaged: Sequence[Path], so: str) -> None:
    if damaged:
        names = join_few([repr(str(path)) for path in damaged])
        warnings.warn(f"Files that hold no record of a finished cell: {names}. {so}", stacklevel=3)
