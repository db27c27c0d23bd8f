"""The frame of a page: one self-contained HTML file that opens without a server or a network.

A `Page` has a header, facts and `Section`s; a section is a heading and HTML. All text that is not `Markup` is escaped;
only templates and `tag`, which escape, make `Markup`. The page holds no data for its script, and its policy blocks all
other scripts.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from identifiable import files


@dataclass(frozen=True)
class Section:
    """A part of a page: its anchor, its heading, its body and a short text above the body."""

    anchor: str
    title: str
    body: Markup
    lead: str | Markup = ""


@dataclass(frozen=True)
class Fact:
    """One fact of the header; `command` sets it as code, `alert` highlights it."""

    name: str
    value: str
    command: bool = False
    alert: bool = False


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes
    ----------
    title : the heading, and the title of the window.
    sections : from top to bottom; each is linked in the contents.
    kicker, question, source : above and below the heading.
    notices : highlighted statements below the heading.
    facts : facts on the run, below the notices; those without a value are left out.

    Examples
    --------
    >>> page = Page("A < B", [Section("one", "First", Markup("<p>Hello</p>"))])
    >>> "<h1>A &lt; B</h1>" in page.html()
    True
    """

    title: str
    sections: Sequence[Section]
    kicker: str = ""
    question: str = ""
    source: str = ""
    notices: Sequence[str] = ()
    facts: Sequence[Fact] = ()

    def html(self) -> str:
        """Return the whole file as text."""
        script = _asset("page.js")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        return str(render("page.html", page=self, css=Markup(_asset("page.css")), js=Markup(script), digest=digest))

    def write(self, path: Path) -> Path:
        """Write the file atomically and return its path."""
        files.write_bytes(path, self.html().encode())
        return path


def render(template: str, **values: Any) -> Markup:
    """Fill in a template of this package; values that are not `Markup` are escaped."""
    return Markup(_environment().get_template(template).render(**values))


def to_the_minute(moment: str) -> str:
    """Write a moment to the minute; text that is not in ISO 8601 stays unchanged.

    Examples
    --------
    >>> to_the_minute("2026-05-03T10:20:30.5+00:00"), to_the_minute("yesterday")
    ('2026-05-03 10:20 UTC', 'yesterday')
    """
    found = re.match(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)", moment)
    return f"{found.group(1)} {found.group(2)} UTC" if found else moment


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("identifiable.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _asset(name: str) -> str:
    return (resources.files("identifiable.report") / "assets" / name).read_text(encoding="utf-8")
