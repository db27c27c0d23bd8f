"""The shell of a page: one HTML file that needs nothing else, neither a server nor a network.

A `Page` is a header, some facts and `Section`s; a section is a heading and HTML. Text is escaped wherever it is not
`Markup`, and `Markup` comes from templates (which escape) and from `tag` (which escapes) alone. The page holds no data
for its script, and its policy lets no other script run.
"""

import base64
import hashlib
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
    """A part of a page with a heading; `anchor` is its address in the page, `lead` a sentence or two above the body."""

    anchor: str
    title: str
    body: Markup
    lead: str | Markup = ""


@dataclass(frozen=True)
class Fact:
    """One line of the header. `command` is set as something to type, `alert` as something to look at."""

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
    sections : from top to bottom; each has a link in the contents.
    kicker, question, source : above and below the heading.
    notices : plain statements that a reader must not miss.
    facts : what was run, where and when.

    Examples
    --------
    >>> page = Page("A < B", [Section("one", "First", Markup("<p>Hello</p>"))])
    >>> "<h1>A &lt; B</h1>" in page.render()
    True
    """

    title: str
    sections: Sequence[Section]
    kicker: str = ""
    question: str = ""
    source: str = ""
    notices: Sequence[str] = ()
    facts: Sequence[Fact] = ()

    def render(self) -> str:
        """Return the whole file as text."""
        script = _asset("page.js")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        return str(render("page.html", page=self, css=Markup(_asset("page.css")), js=Markup(script), digest=digest))

    def write(self, path: Path) -> Path:
        """Write the file, all or nothing."""
        files.write_bytes(path, self.render().encode())
        return path


def render(template: str, **values: Any) -> Markup:
    """Fill in a template of this package; all values that are not `Markup` are escaped."""
    return Markup(_environment().get_template(template).render(**values))


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
