import math

import pytest
from markupsafe import Markup
from rich.console import Console

from identifiable.report.table import (
    FIGURE_SPACE,
    Column,
    Entry,
    Row,
    Table,
    digits_for,
    escape_markdown,
    number,
    printed,
    spread,
)
from page_reader import Reader

COLUMNS = [
    Column("name", name=True),
    Column("a", "number", band="left", text="plain a"),
    Column("b", "number", band="left"),
    Column(Markup("<svg/>"), "plot"),
]
ROWS = [
    Row([Entry("x|y", "x"), Entry("1", 1.0, "best"), Entry("–", math.nan, "worse"), Entry(Markup("<svg/>"), 2.0)], "g"),
    Row([Entry("z", "z"), Entry(Markup("<i>2</i>"), 2.0, text="two"), Entry("3", 3.0), Entry("", None)], "g"),
]
TABLE = Table("words", COLUMNS, ROWS, sorted_by=0)


def test_html_has_bands_groups_and_keys():
    seen = Reader(TABLE.html())
    assert seen.count("th", colspan="2", scope="colgroup") == 1
    assert [a["data-sort"] for a in seen.all("th", scope="row")] == ["x", "z"]
    assert [a.get("data-sort") for a in seen.all("td", **{"class": "number"})] == ["2", "3"]
    assert seen.count("tr", **{"class": "repeat"}) == 1
    assert seen.count("th", **{"aria-sort": "ascending"}) == 1
    assert "data-sort" not in seen.all("td", **{"class": "number worse"})[0]


def test_markdown_and_terminal_show_the_same_plain_text():
    head, _, first, second = TABLE.markdown().splitlines()
    assert head == "| name | plain a | b |"
    assert first == "| x\\|y | **1** | – |"
    assert second == "| z | two | 3 |"
    console = Console(width=60, color_system=None)
    with console.capture() as capture:
        console.print(TABLE.terminal(title="title"))
    expected = ["title", "plain", "x|y", "1", "–", "two", "3"]
    assert [word for word in capture.get().split() if word in expected] == expected
    (cell, *_) = TABLE.terminal().columns[1].cells
    assert cell.style == "bold"


def test_numbers():
    assert [number(v, d) for v, d in ((-1.5, 1), (12345.6, 0), (math.nan, 2))] == ["−1.5", "12\u2009346", "–"]
    assert [digits_for([v, -math.inf]) for v in (1.9, -99, 9_999, 10_000)] == [3, 2, 1, 0]
    assert printed(0.9, 2) == "0.90"
    assert printed(0.9, 3) == "0.90" + FIGURE_SPACE
    assert (spread(1.0, 0.25, 2), spread(1.0, math.nan, 2)) == ("1.00 ± 0.25", "1.00")


def test_entries_of_numbers_are_sorted_by_value():
    found = Entry.spread(0.9, 0.05, 3, published=True)
    assert (found.plain, found.sort) == ("0.90 ± 0.05", "0.9")
    assert str(found.content) == '0.90\u2007 <span class="sd">± 0.05\u2007</span>'
    assert [Entry.number(v, 1).plain for v in (None, math.nan, 2)] == ["–", "–", "2.0"]
    assert [Entry.number(v, 1).sort for v in (None, math.nan, 2)] == [None, None, "2"]


@pytest.mark.parametrize("text", ["a_b*c", "`|`", "<b>[x]", "back\\slash"])
def test_markdown_of_names_stays_text(text):
    escaped = escape_markdown(text)
    assert escaped.replace("\\\\", "\0").replace("\\", "").replace("\0", "\\") == text
    assert escaped.count("\\") >= sum(c in "\\`*_<>[]|" for c in text)
    assert escape_markdown("a\nb") == "a b"
