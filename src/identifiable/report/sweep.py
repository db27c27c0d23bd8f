"""The results that all parts of an experiment's report share: runs in order, colours of methods, metric names."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from identifiable.experiments.recipe import Recipe, Record
from identifiable.experiments.summary import (
    KINDS,
    Kind,
    as_printed,
    kind_of,
    latest,
    methods_of,
    settings_of,
    summarise,
)
from identifiable.report.svg import MarkStyle, Scale

ABBREVIATIONS = {"mcc": "MCC", "r2": "R²", "shd": "SHD", "nmi": "NMI", "ari": "ARI", "mse": "MSE", "delta": "Δ"}


def label_of(metric: str) -> str:
    """Write the name of a metric as a heading.

    Examples
    --------
    >>> label_of("weak_mcc"), label_of("delta_shd"), label_of("agreement")
    ('weak MCC', 'Δ SHD', 'agreement')
    """
    return " ".join(ABBREVIATIONS.get(word, word) for word in metric.split("_"))


def natural(value: Any) -> tuple[float, str]:
    """Return a sort key: numbers by size, text by its first number, other text last.

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
    """A recipe and its records so far; `missing` is the number of runs without a record."""

    recipe: Recipe
    records: Sequence[Record]
    missing: int = 0

    @property
    def main(self) -> str:
        """The main metric."""
        return self.recipe.metrics[0]

    @cached_property
    def runs(self) -> list[Record]:
        """The last record of each run."""
        return latest(self.records)

    @cached_property
    def done(self) -> list[Record]:
        """The runs that finished."""
        return [r for r in self.runs if r.status == "done"]

    @cached_property
    def failed(self) -> list[Record]:
        """The runs that ended in an error."""
        return [r for r in self.runs if r.status != "done"]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of `summarise`."""
        return [{str(k): v for k, v in row.items()} for row in summarise(self.recipe, self.records).to_dict("records")]

    @cached_property
    def settings(self) -> list[str]:
        """The settings with a record, in order."""
        return settings_of(self.recipe, self.runs)

    @cached_property
    def methods(self) -> list[str]:
        """The methods with a record, in order, references and baselines last."""
        return sorted(methods_of(self.recipe, self.runs), key=lambda m: KINDS.index(kind_of(m)))

    @cached_property
    def published(self) -> list[str]:
        """The published methods that have a row."""
        return list(dict.fromkeys(row["method"] for row in self.rows if row["kind"] == "published"))

    @cached_property
    def columns(self) -> list[tuple[Kind, str]]:
        """Kind and name of all methods: our own, the published ones, references, baselines."""
        own: list[tuple[Kind, str]] = [(kind_of(method), method) for method in self.methods]
        known: list[tuple[Kind, str]] = [*own, *(("published", method) for method in self.published)]
        return sorted(known, key=lambda column: KINDS.index(column[0]))

    def means(self, metric: str) -> list[float]:
        """Return the means of a metric over seeds, one for each row."""
        return [row[f"{metric}_mean"] for row in self.rows]

    @cached_property
    def scale(self) -> Scale:
        """The scale of the main metric over all means."""
        return Scale.of(self.means(self.main))

    @cached_property
    def _mark_styles(self) -> dict[tuple[Kind, str], MarkStyle]:
        found: dict[tuple[Kind, str], MarkStyle] = {}
        own = [m for m in self.methods if kind_of(m) == "method"]
        for i, method in enumerate(own):
            found["method", method] = MarkStyle(f"s{i % 8}", i)
        for i, method in enumerate(m for m in self.methods if m not in own):
            found[kind_of(method), method] = MarkStyle(f"b{i % 4}", i + len(own))
        for i, method in enumerate(self.published):
            found["published", method] = found.get(("method", as_printed(method)), MarkStyle(f"p{i % 4}", i))
        return found

    def mark_style(self, kind: Kind, method: str) -> MarkStyle:
        """Return how a method is drawn; a published number of a method of the recipe has that method's colour."""
        return self._mark_styles[kind, method]

    def of(self, setting: str, method: str) -> list[Record]:
        """Return the finished runs of a method on a setting, sorted by seed."""
        own = [r for r in self.done if (r.run.setting, r.run.method) == (setting, method)]
        return sorted(own, key=lambda r: r.run.seed)
