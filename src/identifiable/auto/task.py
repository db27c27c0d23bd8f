"""What `Identify` searches: the rows and their split, the options, and one model that was tried."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from identifiable.agreement.refits import Fitted, Refits
from identifiable.arrays import Array, FloatArray, Rows
from identifiable.auto.families import Family, ProjectedModel
from identifiable.auto.together import together
from identifiable.auto.verdict import Candidate
from identifiable.data.columns import robust_correlation
from identifiable.training import seconds_left

HELD_OUT = 0.2  # of the rows, at most 1000
MOST_ROWS = 20_000  # that a fit is given


@dataclass(frozen=True)
class SearchOptions:
    """What to search for: the number of latents (None: count them), a family or "auto", and how to train."""

    n: int | None
    model: str
    n_restarts: int | None
    device: str
    verbose: int
    seed: int
    n_jobs: int | None = 1


@dataclass(frozen=True, eq=False)
class Task:
    """Rows (N, r) of full rank with the auxiliary variable, their split, and the options of the search."""

    refits: Refits
    train: Rows  # what models are fitted to
    options: SearchOptions
    n_columns: int  # of the table

    @classmethod
    def of(
        cls, Y: FloatArray, u: Any, options: SearchOptions, *, ordered: bool = False, n_columns: int | None = None
    ) -> "Task":
        """Hold out the same rows whatever the seed; more than 20,000 training rows are sampled."""
        refits = Refits.of(Y, u, seed=0, fraction=HELD_OUT, ordered=ordered)
        train = np.random.default_rng(options.seed + 1).permutation(refits.train)[:MOST_ROWS]
        return cls(refits, train, options, n_columns or Y.shape[1])

    def model(self, family: Family, n: int, options: Mapping[str, Any] | None = None) -> ProjectedModel:
        """Return an unfitted model of a family."""
        restarts = {} if self.options.n_restarts is None else {"n_restarts": self.options.n_restarts}
        return ProjectedModel(family, n, {"device": self.options.device, **restarts, **(options or {})})

    def gains(self, fitted: Fitted, train: Rows) -> Array:
        """Return the gain over a Gaussian of each held-out row by a model fitted to some rows."""
        return fitted.model.gains(self.refits.take(train), self.refits.take(self.refits.held))

    def agreement(self, one: Fitted, others: Sequence[Fitted]) -> Array:
        """Return mean |correlations| (n,) of latents with their matches in other fits; NaN without one."""
        found = [self._robust(one, other) for other in others]
        return np.mean(found, axis=0) if found else np.full(one.latents.shape[1], np.nan)

    def _robust(self, one: Fitted, other: Fitted) -> Array:
        """Return the |correlation| of each latent with its match, or that without the most extreme rows if it is lower.

        A single row must not make two latents agree.
        """
        found = self.refits.match(one, other)
        correlations = np.abs(found.correlations)
        kept = found.permutation >= 0
        if one.latents.shape[1] == other.latents.shape[1] and kept.all():
            clipped = np.abs(robust_correlation(one.latents, other.latents))
            correlations = np.minimum(correlations, clipped[np.arange(len(kept)), found.permutation])
        return correlations

    def say(self, words: str) -> None:
        """Print what is being done and the time left."""
        if self.options.verbose:
            time_left = f" ({seconds_left():.0f} s left)" if seconds_left() < np.inf else ""
            Console(stderr=True).print(f"{words}{time_left}", highlight=False, markup=False)

    def together(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], words: str, n_jobs: int | None
    ) -> Iterator[tuple[int, Any]]:
        """Call a function with each tuple of arguments, and yield values as they come; a terminal shows a clock."""
        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        console = Console(stderr=True)
        quiet = not self.options.verbose or not console.is_terminal
        self.say(words)
        with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
            clock = progress.add_task(words, total=len(arguments))
            for value in together(function, arguments, n_jobs):
                progress.advance(clock)
                yield value


@dataclass(frozen=True, eq=False)
class Trial:
    """A family that was tried: the candidate, its unfitted model, its fit if it counts, and its gain per row."""

    candidate: Candidate
    model: ProjectedModel
    fitted: Fitted | None
    gains: Array
