"""Tables that can be sorted, filtered and read on a phone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from markupsafe import Markup, escape

from identifiable.report.html import render

FIGURE_SPACE = "\u2007"  # as wide as a digit


@dataclass(frozen=True)
class Column:
    """A column: what stands above it, how it is set and sorted.

    Attributes
    ----------
    kind : "text", "number" (set flush right, sorted by value) or "plot" (a drawing).
    tag : "baseline" for what the switch hides.
    band : a heading that neighbouring columns share.
    falling : sorted from the largest when first asked.
    sortable : whether it can be sorted at all.
    name : whether the column names the row and stays in sight.
    """

    title: str | Markup
    kind: Literal["text", "number", "plot"] = "text"
    tag: str = ""
    band: str = ""
    falling: bool = False
    sortable: bool = True
    name: bool = False


@dataclass(frozen=True)
class Entry:
    """What stands in one place; `key` is what it is sorted by, None (or nan) goes last whatever the direction."""

    content: str | Markup
    key: float | str | None = None
    mark: str = ""  # a class for its looks

    @property
    def sort(self) -> str | None:
        """The key as an attribute."""
        if isinstance(self.key, float):
            return f"{self.key:.9g}" if math.isfinite(self.key) else None
        return None if self.key is None else str(self.key)


@dataclass(frozen=True)
class Row:
    """A row; rows of one group stand together at first, and are filtered by the group's name."""

    entries: Sequence[Entry]
    group: str = ""
    tag: str = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    caption : what it shows; read out, and shown above.
    tall : whether it scrolls within the page.
    filtered : the words beside the box that filters groups; "" for no box.
    switch : the words beside the box that hides what is tagged "baseline"; "" for no switch.
    sorted_by : the number of the column that the rows are sorted by already, None for none.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    tall: bool = False
    filtered: str = ""
    switch: str = ""
    sorted_by: int | None = None
    bands: Sequence[tuple[str, str, int]] = field(init=False)

    def __post_init__(self) -> None:
        runs = [(key, len(list(run))) for key, run in groupby(self.columns, lambda c: (c.band, c.tag))]
        object.__setattr__(self, "bands", [(*key, width) for key, width in runs] if any(k[0] for k, _ in runs) else [])

    def html(self) -> Markup:
        """Return the table with its controls."""
        return render("table.html", table=self)


def digits_for(values: Sequence[float]) -> int:
    """Choose the decimals of a column by its largest value.

    Examples
    --------
    >>> digits_for([0.96, 0.5]), digits_for([12.0]), digits_for([512.0]), digits_for([])
    (3, 2, 1, 3)
    """
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    return 3 if largest < 2 else 2 if largest < 100 else 1 if largest < 10_000 else 0


def number(value: float, digits: int) -> str:
    """Write a number, with a proper minus sign; a dash for none."""
    return "–" if not math.isfinite(value) else f"{value:,.{digits}f}".replace("-", "−").replace(",", "\u2009")


def spread(mean: float, sd: float, digits: int) -> str:
    """Write mean ± sd, or the mean alone.

    Examples
    --------
    >>> spread(0.5, 0.01, 3), spread(0.5, float("nan"), 3)
    ('0.500 ± 0.010', '0.500')
    """
    return f"{number(mean, digits)} ± {number(sd, digits)}" if math.isfinite(sd) else number(mean, digits)


def set_spread(mean: str, sd: str) -> Markup:
    """Set mean ± sd as HTML, the sd smaller; "" or a dash for no sd."""
    if sd in ("", "–"):
        return escape(mean)
    return Markup('{} <span class="sd">± {}</span>').format(mean, sd)


def printed(value: float, digits: int, empty: str = FIGURE_SPACE) -> str:
    """Write a published number: a last zero, which was not printed, leaves its place empty.

    Examples
    --------
    >>> printed(0.96, 3, ""), printed(0.927, 3, "")
    ('0.96', '0.927')
    """
    text = number(value, digits)
    return text[:-1] + empty if digits > 2 and text.endswith("0") else text
