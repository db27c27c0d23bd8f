"""Tables as values: one `Table` is written as HTML (sortable, filtered), as Markdown and for a terminal."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Literal, Self

from markupsafe import Markup, escape

from identifiable.report.html import render

if TYPE_CHECKING:
    import rich.table

FIGURE_SPACE = "\u2007"  # as wide as a digit
STYLES = {"best": "bold", "better": "green", "worse": "red", "quiet": "dim"}  # of an entry's mark, in a terminal


@dataclass(frozen=True)
class Column:
    """A column: its heading, its alignment and how it is sorted.

    Attributes
    ----------
    kind : "text", "number" (right-aligned, sorted by value) or "plot" (a drawing, in HTML only).
    tag : "baseline" for columns that the switch hides.
    band : a heading shared by neighbouring columns.
    falling : sort in descending order at the first click.
    sortable : whether the column can be sorted.
    name : whether the column names the row and stays visible when the table scrolls sideways.
    text : the heading in Markdown and terminals; `title` by default.
    """

    title: str | Markup
    kind: Literal["text", "number", "plot"] = "text"
    tag: str = ""
    band: str = ""
    falling: bool = False
    sortable: bool = True
    name: bool = False
    text: str = ""


@dataclass(frozen=True)
class Entry:
    """One field of a table.

    Attributes
    ----------
    content : what HTML shows.
    key : what the rows are sorted by; None and nan are sorted last in both directions.
    mark : classes that set its style, separated by spaces.
    text : what Markdown and terminals show; `content` by default.
    """

    content: str | Markup
    key: float | str | None = None
    mark: str = ""
    text: str | None = None

    @classmethod
    def number(cls, value: float | None, digits: int, mark: str = "") -> Self:
        """Write a number that is its own key, with a dash for None and nan."""
        value = math.nan if value is None else float(value)
        return cls(number(value, digits), value, mark)

    @classmethod
    def spread(cls, mean: float, sd: float, digits: int, *, published: bool = False) -> Self:
        """Write mean ± sd, the sd smaller, or the mean alone if the sd is not known; sort by the mean.

        Examples
        --------
        >>> Entry.spread(0.5, 0.01, 3).plain, Entry.spread(0.96, float("nan"), 3, published=True).plain
        ('0.500 ± 0.010', '0.96')
        """
        write = printed if published else number
        content = escape(write(mean, digits))
        if math.isfinite(sd):
            content = Markup('{} <span class="sd">± {}</span>').format(content, write(sd, digits))
        return cls(content, mean, text=content.striptags().replace(FIGURE_SPACE, ""))

    @property
    def sort(self) -> str | None:
        """The key as an attribute."""
        if isinstance(self.key, float):
            return f"{self.key:.9g}" if math.isfinite(self.key) else None
        return None if self.key is None else str(self.key)

    @property
    def plain(self) -> str:
        """The entry as plain text."""
        return str(self.content) if self.text is None else self.text


@dataclass(frozen=True)
class Row:
    """A row; rows of one group stand together at first, and the filter searches the group's name."""

    entries: Sequence[Entry]
    group: str = ""
    tag: str = ""


@dataclass(frozen=True)
class Table:
    r"""A table.

    Attributes
    ----------
    caption : its description, for screen readers.
    tall : whether it scrolls within the page.
    filtered : label of the box that filters groups; "" for no box.
    switch : label of the box that hides rows and columns tagged "baseline"; "" for no switch.
    sorted_by : index of the column that the rows are sorted by; None for none.
    bands : (heading, tag, width) of neighbouring columns that share a heading; empty without any.

    Examples
    --------
    >>> columns = [Column("a|b"), Column("MCC", "number")]
    >>> print(Table("Scores", columns, [Row([Entry("x"), Entry("0.9", 0.9, "best")])]).markdown())
    | a\|b | MCC |
    | --- | ---: |
    | x | **0.9** |
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

    def markdown(self) -> str:
        """Return the table as Markdown, without drawings; the best entries are bold."""
        rule = ["---:" if column.kind == "number" else "---" for _, column in self._written]
        lines = [[escape_markdown(title) for title in self._headings], rule]
        for row in self.rows:
            texts = [(escape_markdown(row.entries[i].plain), row.entries[i].mark.split()) for i, _ in self._written]
            lines.append([f"**{text}**" if "best" in marks else text for text, marks in texts])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def terminal(self, **options: object) -> "rich.table.Table":
        """Return a compact table for a terminal, without drawings; the options are those of `rich.table.Table`."""
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(**options)  # type: ignore[arg-type]
        for title, (_, column) in zip(self._headings, self._written, strict=True):
            table.add_column(title, justify="right" if column.kind == "number" else "left", overflow="fold")
        for row in self.rows:
            shown = [(compact(row.entries[i].plain), row.entries[i].mark.split()) for i, _ in self._written]
            table.add_row(*(Text(text, " ".join(STYLES.get(mark, "") for mark in marks)) for text, marks in shown))
        return table

    @property
    def _written(self) -> list[tuple[int, Column]]:
        """The columns that can be written as plain text, with their indices."""
        return [(i, column) for i, column in enumerate(self.columns) if column.kind != "plot"]

    @property
    def _headings(self) -> list[str]:
        return [column.text or str(column.title) for _, column in self._written]


def compact(text: str) -> str:
    """Shorten the numbers of a text.

    Examples
    --------
    >>> compact("0.950 ± 0.012"), compact("10.5 ± 0.1")
    ('.950 ±.012', '10.5 ±.1')
    """
    return re.sub(r"(?<![\d.])0\.", ".", text).replace(" ± ", " ±")


def escape_markdown(text: str) -> str:
    r"""Return text that Markdown shows unchanged.

    Examples
    --------
    >>> print(escape_markdown("<b>|z|</b> of a_1"))
    \<b\>\|z\|\</b\> of a\_1
    """
    return "".join(f"\\{c}" if c in "\\`*_<>[]|" else " " if c in "\r\n" else c for c in text)


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
    """Write a number, with a proper minus sign; a dash if it is not finite."""
    return "–" if not math.isfinite(value) else f"{value:,.{digits}f}".replace("-", "−").replace(",", "\u2009")


def printed(value: float, digits: int) -> str:
    """Write a published number: the place of a last zero, which was not printed, stays empty.

    Examples
    --------
    >>> printed(0.96, 3) == "0.96" + FIGURE_SPACE, printed(0.927, 3)
    (True, '0.927')
    """
    text = number(value, digits)
    return text[:-1] + FIGURE_SPACE if digits > 2 and text.endswith("0") else text


def spread(mean: float, sd: float, digits: int) -> str:
    """Write mean ± sd as text, or the mean alone if the sd is not known."""
    return Entry.spread(mean, sd, digits).plain
