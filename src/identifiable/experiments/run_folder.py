"""The folder of a sweep: one file per finished run, written completely or not at all.

    folder/cells/<key>.json    the record of a finished run: one line of JSON
    folder/.lock               locked while a process fills the folder; the system releases it when that process ends
    folder/.token              of the last sweep: a worker that reads it sees this very folder, and writes there itself

The folder contains nothing about the machine: it can be moved, copied and merged. (Linux and macOS.)
"""

import fcntl
import math
import secrets
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from identifiable import files
from identifiable.errors import DamagedFileError, join_few
from identifiable.experiments.recipe import DONE, FAILED, Record, Run

RECORDS = "cells"  # the subfolder with the records


@dataclass(frozen=True)
class Results:
    """The records that a folder holds of the requested runs, in their order, and the runs without a record."""

    records: tuple[Record, ...]
    missing: tuple[Run, ...] = ()

    @property
    def done(self) -> int:
        """Number of runs that were measured."""
        return sum(record.status == DONE for record in self.records)

    @property
    def failed(self) -> int:
        """Number of runs that failed."""
        return len(self.records) - self.done


@dataclass(frozen=True)
class RunFolder:
    """A folder with records, which may not exist yet."""

    path: Path

    @property
    def records(self) -> Path:
        """The subfolder with one file per record."""
        return self.path / RECORDS

    def file_of(self, run: Run) -> Path:
        """Return the file for the record of a run."""
        return self.records / f"{run.key}.json"

    def require_not_a_file(self) -> None:
        """Refuse the path of a file."""
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(
                f"{str(self.path)!r} is a file. Name a folder; it is created where it does not exist."
            )

    def read(self, run: Run) -> Record:
        """Return the record of a run."""
        record = _read(self.file_of(run))
        if record.run.key != run.key:
            raise DamagedFileError(f"{str(self.file_of(run))!r} is the record of another run.")
        return record

    def find(self, runs: Iterable[Run]) -> tuple[dict[str, Record], list[Path]]:
        """Return the records of these runs by key, and the damaged files."""
        found, damaged = {}, []
        for run in runs:
            try:
                found[run.key] = self.read(run)
            except FileNotFoundError:
                continue
            except DamagedFileError:
                damaged.append(self.file_of(run))
        return found, damaged

    def write(self, record: Record) -> None:
        """Write a record, completely or not at all."""
        self._write(self.file_of(record.run), record.to_line())

    def _write(self, path: Path, line: str) -> None:
        try:
            files.write_bytes(path, f"{line}\n".encode())
        except OSError as error:
            raise OSError(
                error.errno,
                f"Cannot write to {str(path.parent)!r}: {error.strerror or error}. All runs that finished "
                "before are kept. Free some space and repeat the command to continue",
            ) from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder, and prevent other processes from filling it at the same time."""
        self.records.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("a") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RuntimeError(
                    f"Another process is writing to {str(self.path)!r} now. Wait until it has ended, or write to "
                    "another folder and merge the two."
                ) from None
            yield

    def begin(self) -> str:
        """Mark the folder with a new token, which is returned, and remove what killed workers had begun to write."""
        for unfinished in self.records.glob(".*.part"):
            unfinished.unlink(missing_ok=True)
        token = secrets.token_hex(16)
        self._write(self.path / ".token", token)
        return token

    def has_token(self, token: str) -> bool:
        """Return whether this process sees the folder of the sweep with this token, and that sweep is the last one."""
        try:
            return (self.path / ".token").read_text(encoding="utf-8").strip() == token
        except OSError:
            return False


def collect(runs: Sequence[Run], folder: str | Path) -> Results:
    """Return what the folder holds of these runs, and compute nothing."""
    found, _ = RunFolder(Path(folder)).find(runs)
    records = tuple(replace(found[run.key], run=run) for run in runs if run.key in found)
    return Results(records, tuple(run for run in runs if run.key not in found))


def is_run_folder(folder: str | Path) -> bool:
    """Return whether a folder holds the records of a sweep."""
    return RunFolder(Path(folder)).records.is_dir()


def read_records(folder: str | Path) -> tuple[Record, ...]:
    """Return all records of a folder, in the order of their file names; a damaged file is skipped, with a warning."""
    if not is_run_folder(folder):
        raise FileNotFoundError(
            f"No runs in {str(folder)!r}: it has no subfolder {RECORDS!r}. Name a folder that 'identifiable reproduce' "
            "wrote."
        )
    found: dict[str, Record] = {}
    damaged = []
    for path in sorted(RunFolder(Path(folder)).records.glob("*.json")):
        try:
            record = _read(path)
        except DamagedFileError:
            damaged.append(path)
        else:
            if _is_better(record, found.get(record.run.key)):
                found[record.run.key] = record
    warn_of_damaged(damaged, "They are left out.")
    return tuple(found.values())


def merge(folders: Iterable[str | Path], into: str | Path) -> int:
    """Copy the records that `into` lacks, or has as failed and another folder as done; return their number.

    Of two records of one run the done one is kept, else the first; those of `into` come before all others.
    """
    target = RunFolder(Path(into))
    others = [record for folder in folders for record in read_records(folder)]
    target.require_not_a_file()
    with target.locked():
        kept = {record.run.key: record for record in read_records(into)}
        before = dict(kept)
        for record in others:
            if _is_better(record, kept.get(record.run.key)):
                kept[record.run.key] = record
        changed = [record for key, record in kept.items() if record is not before.get(key)]
        for record in changed:
            target.write(record)
    return len(changed)


def warn_of_damaged(damaged: Sequence[Path], consequence: str) -> None:
    """Name the files that hold no complete record."""
    if damaged:
        names = join_few([repr(str(path)) for path in damaged])
        warnings.warn(f"Files that hold no record of a finished run: {names}. {consequence}", stacklevel=3)


def _read(path: Path) -> Record:
    try:
        record = Record.of_line(path.read_text(encoding="utf-8"))
        complete = record.status in (DONE, FAILED) and math.isfinite(record.seconds) and bool(record.run.key)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        complete = False
    if not complete:
        raise DamagedFileError(f"{str(path)!r} is not the record of a finished run.")
    return record


def _is_better(record: Record, other: Record | None) -> bool:
    return other is None or (other.status, record.status) == (FAILED, DONE)
