"""What the sections of a sweep's page share: the runs in order, how each method looks, what a metric is called."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from identifiable.experiments.recipe import Recipe, Record
from identifiable.experiments.summary import Kind, as_printed, kind_of, latest, methods_of, settings_of, summarise
from identifiable.report.svg import MarkStyle, Scale

_SHORT = {"mcc": "MCC", "r2": "R²", "shd": "SHD", "nmi": "NMI", "ari": "ARI", "mse": "MSE", "delta": "Δ"}


def label_of(metric: str) -> str:
    """Write the name of a metric as a heading.

    Examples
    --------
    >>> label_of("weak_mcc"), label_of("delta_shd"), label_of("agreement")
    ('weak MCC', 'Δ SHD', 'agreement')
    """
    return " ".join(_SHORT.get(word, word) for word in metric.split("_"))


def natural(value: Any) -> tuple[float, str]:
    """Sort numbers by size, text by the first number in it, and what has none last.

    Examples
    --------
    >>> sorted(["75", "1 var", 10, 5.5, "all"], key=natural)
    ['1 var', 5.5, 10, '75', 'all']
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value), ""
    digits = re.search(r"\d+(?:\.\d+)?", str(value))
    return float(digits.group()) if digits else math.inf, str(value)


@dataclass(frozen=True, eq=False)
class Sweep:
    """A recipe with the records it has so far."""

    recipe: Recipe
    records: Sequence[Record]
    missing: int = 0

    @property
    def main(self) -> str:
        """The main metric."""
        return self.recipe.metrics[0]

    @cached_property
    def runs(self) -> list[Record]:
        """The last record of each cell."""
        return latest(self.records)

    @cached_property
    def done(self) -> list[Record]:
        """The runs that ended well."""
        return [r for r in self.runs if r.status == "done"]

    @cached_property
    def failed(self) -> list[Record]:
        """The runs that ended in an error."""
        return [r for r in self.runs if r.status != "done"]

    @cached_property
    def table(self) -> pd.DataFrame:
        """The summary."""
        return summarise(self.recipe, self.records)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The summary, row by row."""
        return [{str(k): v for k, v in row.items()} for row in self.table.to_dict("records")]

    @cached_property
    def settings(self) -> list[str]:
        """The settings with a record, in order."""
        return settings_of(self.recipe, self.runs)

    @cached_property
    def methods(self) -> list[str]:
        """The methods with a record, in order, baselines last."""
        return sorted(methods_of(self.recipe, self.runs), key=lambda m: kind_of(m) == "baseline")

    @cached_property
    def published(self) -> list[str]:
        """The published methods that have a row."""
        return list(dict.fromkeys(row["method"] for row in self.rows if row["kind"] == "published"))

    @cached_property
    def scale(self) -> Scale:
        """The scale of the main metric over all means."""
        return Scale.of([row[f"{self.main}_mean"] for row in self.rows])

    @cached_property
    def _mark_styles(self) -> dict[tuple[Kind, str], MarkStyle]:
        found: dict[tuple[Kind, str], MarkStyle] = {}
        own = [m for m in self.methods if kind_of(m) == "method"]
        for i, method in enumerate(own):
            found["method", method] = MarkStyle(f"s{i % 8}", i)
        for i, method in enumerate(m for m in self.methods if m not in own):
            found["baseline", method] = MarkStyle(f"b{i % 4}", i + len(own))
        for i, method in enumerate(self.published):
            found["published", method] = found.get(("method", as_printed(method)), MarkStyle(f"p{i % 4}", i))
        return found

    def mark_style(self, kind: Kind, method: str) -> MarkStyle:
        """Return how a method is drawn; a published number of a method of the recipe has that method's colour."""
        return self._mark_styles[kind, method]

    def first(self, setting: str, method: str) -> Record | None:
        """Return the run of the first seed that is done."""
        own = (r for r in self.done if r.cell.setting == setting and r.cell.method == method)
        return min(own, key=lambda r: r.cell.seed, default=None)
