"""What the reader of a long run sees on stderr: how much is done, and how long the rest will take."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from identifiable.experiments.recipe import DONE, FAILED, Cell, Record


class Estimate:
    """Time left: mean seconds of finished cells of the same method, of any where there are none, over the lanes."""

    def __init__(self, finished: Iterable[Record], waiting: Iterable[Cell]):
        self._waiting = Counter(cell.method for cell in waiting)
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        for record in finished:
            self._seconds[record.cell.method].append(record.seconds)

    def add(self, record: Record) -> None:
        """Count a finished cell."""
        self._waiting[record.cell.method] -= 1
        self._seconds[record.cell.method].append(record.seconds)

    def left(self, lanes: int) -> float | None:
        """Return seconds, or None where nothing is finished yet."""
        if not self._seconds:
            return None
        mean = {method: sum(s) / len(s) for method, s in self._seconds.items()}
        any_method = sum(map(sum, self._seconds.values())) / sum(map(len, self._seconds.values()))
        total = sum(count * mean.get(method, any_method) for method, count in self._waiting.items())
        return total / min(lanes, max(1, self._waiting.total()))


class Account:
    """Progress on stderr: a bar in a terminal, elsewhere a line for each finished cell."""

    def __init__(
        self, total: int, known: Sequence[Record], waiting: Sequence[Cell], lanes: Callable[[], int], verbose: int
    ):
        self._total, self._count = total, len(known)
        self._failed = sum(record.status == FAILED for record in known)
        self._estimate, self._lanes, self._verbose = Estimate(known, waiting), lanes, verbose
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            console=console,
            disable=verbose == 0 or not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, completed=self._count, words=self._words())

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, record: Record) -> None:
        """Tell of a finished cell."""
        self._count += 1
        self._failed += record.status == FAILED
        self._estimate.add(record)
        self._bar.update(self._task, completed=self._count, words=self._words())
        if self._verbose and (self._bar.disable or record.status == FAILED):
            cell, left = record.cell, left_in_words(self._estimate.left(self._lanes()))
            ended = f"{record.seconds:.1f} s" if record.status == DONE else f"failed: {record.error}"
            words = (f"{self._count}/{self._total}", cell.setting, cell.method, f"seed {cell.seed}", ended, left)
            say("  ".join(w for w in words if w), self._bar.console)

    def _words(self) -> str:
        failures = f"{self._failed} failed" if self._failed else ""
        return "  ".join(w for w in (failures, left_in_words(self._estimate.left(self._lanes()))) if w)


def left_in_words(seconds: float | None) -> str:
    """Return "about 4 min left", or nothing where nothing is known or left.

    Examples
    --------
    >>> left_in_words(31.2), left_in_words(245.0), left_in_words(9000.0), left_in_words(None)
    ('about 31 s left', 'about 4 min left', 'about 2.5 h left', '')
    """
    if not seconds:
        return ""
    if seconds < 90:
        return f"about {math.ceil(seconds):d} s left" if seconds < 1 else f"about {seconds:.0f} s left"
    return f"about {seconds / 60:.0f} min left" if seconds < 90 * 60 else f"about {seconds / 3600:.1f} h left"


def say(words: str, console: Console | None = None) -> None:
    """Print words as they are, on stderr."""
    (console or Console(stderr=True)).print(words, markup=False, highlight=False, soft_wrap=True)
