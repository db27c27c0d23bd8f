"""Progress of a sweep on stderr: how many runs are finished, and the estimated time left."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from identifiable.experiments.recipe import DONE, FAILED, Record, Run


class TimeLeft:
    """Estimate of the time left, from the mean seconds of finished runs of the same method, or else of any method."""

    def __init__(self, finished: Iterable[Record], waiting: Iterable[Run]):
        self._waiting = Counter(run.method for run in waiting)
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        for record in finished:
            self._seconds[record.run.method].append(record.seconds)

    def add(self, record: Record) -> None:
        """Count a finished run."""
        self._waiting[record.run.method] -= 1
        self._seconds[record.run.method].append(record.seconds)

    def seconds(self, workers: int) -> float | None:
        """Return the seconds left with so many workers, or None if no run is finished yet."""
        if not self._seconds:
            return None
        mean = {method: sum(s) / len(s) for method, s in self._seconds.items()}
        any_method = sum(map(sum, self._seconds.values())) / sum(map(len, self._seconds.values()))
        total = sum(count * mean.get(method, any_method) for method, count in self._waiting.items())
        return total / min(workers, max(1, self._waiting.total()))


class SweepProgress:
    """A progress bar in a terminal; elsewhere one line per finished run."""

    def __init__(
        self, total: int, known: Sequence[Record], waiting: Sequence[Run], workers: Callable[[], int], verbose: int
    ):
        self._total, self._count = total, len(known)
        self._failed = sum(record.status == FAILED for record in known)
        self._time_left, self._workers, self._verbose = TimeLeft(known, waiting), workers, verbose
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("runs"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            console=console,
            disable=verbose == 0 or not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, completed=self._count, status=self._status())

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, record: Record) -> None:
        """Report a finished run."""
        self._count += 1
        self._failed += record.status == FAILED
        self._time_left.add(record)
        self._bar.update(self._task, completed=self._count, status=self._status())
        if self._verbose and (self._bar.disable or record.status == FAILED):
            run, left = record.run, time_left_text(self._time_left.seconds(self._workers()))
            ended = f"{record.seconds:.1f} s" if record.status == DONE else f"failed: {record.error}"
            parts = (f"{self._count}/{self._total}", run.setting, run.method, f"seed {run.seed}", ended, left)
            say("  ".join(part for part in parts if part), self._bar.console)

    def _status(self) -> str:
        failures = f"{self._failed} failed" if self._failed else ""
        return "  ".join(part for part in (failures, time_left_text(self._time_left.seconds(self._workers()))) if part)


def time_left_text(seconds: float | None) -> str:
    """Return "about 4 min left", or an empty string if the time left is unknown or zero.

    Examples
    --------
    >>> time_left_text(31.2), time_left_text(245.0), time_left_text(9000.0), time_left_text(None)
    ('about 31 s left', 'about 4 min left', 'about 2.5 h left', '')
    """
    if not seconds:
        return ""
    if seconds < 90:
        return f"about {math.ceil(seconds) if seconds < 1 else round(seconds)} s left"
    return f"about {seconds / 60:.0f} min left" if seconds < 90 * 60 else f"about {seconds / 3600:.1f} h left"


def say(text: str, console: Console | None = None) -> None:
    """Print text as it is, on stderr."""
    (console or Console(stderr=True)).print(text, markup=False, highlight=False, soft_wrap=True)
