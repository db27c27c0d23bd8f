"""The site: the pages of this folder as they are, and the reference from docstrings. `make docs` builds it."""

import re
from typing import Any

import numpy as np
from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from numpy.typing import ArrayLike, NDArray
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger
from sphinx.util.nodes import make_refnode
from sphinx.util.typing import stringify_annotation

import identifiable

LOGGER = getLogger(__name__)

project = "identifiable"
author = "The identifiable developers"
release = version = identifiable.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "identifiable"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_math_renderer = "mathml"  # no script, nothing from the network
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3  # links such as estimators.md#agreement-between-runs
smartquotes = False  # "pearson" in a docstring is what is typed
highlight_language = "none"  # what names no language is output, or a formula
default_role = "py:obj"  # `name` in a docstring: a link where it is known, else code
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

# Docstrings have numpydoc's sections, but an entry reads `name, other : a sentence.`: its type is in the signature.
# Bars and final underscores mean nothing special in them, and indented lines are formulas.

SECTION = re.compile(r"(?m)^((?:Parameters|Attributes|Returns|Raises|Notes|Examples|References)\b.*)\n-+\n")
ENTRY = re.compile(r"(?m)^(\S.*?)(?: : (.*))?$")
# Directives, literals and roles are kept; indented lines are formulas; bars and underscores are escaped.
MARKED = re.compile(
    r"(?P<kept>(?m:^\.\. .*(?:\n+ +\S.*)*)|``(?s:.+?)``|:[\w:]+:`[^`]+`)|`(?P<code>[^`]+)`(?P<more>\w?)"
    r"|(?P<formula>(?<=\n\n)(?: {4}.*\n+)+)|(?<!\\)\||(?<=\w)_(?!\w)"
)


def process_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite a docstring in place: sections get headings, entries become lists, prose is escaped."""
    first, *sections = SECTION.split("\n".join(lines) + "\n")
    written = prose(first)
    for heading, body in zip(sections[::2], sections[1::2], strict=True):
        written += f"\n.. rubric:: {heading}\n\n{STYLES.get(heading.partition(',')[0], prose)(body)}\n"
    lines[:] = written.split("\n")


def prose(text: str) -> str:
    """Set indented lines as they stand, and escape what is no mark-up here."""

    def mark(found: re.Match[str]) -> str:
        if found["code"]:
            code = f"``{found['code']}``" if found["code"].startswith(".") else f"`{found['code']}`"  # .gz is no name
            return code + (f"\\ {found['more']}" if found["more"] else "")  # the s of `Cell`s
        return found["kept"] or (f"::\n\n{found[0]}" if found["formula"] else f"\\{found[0]}")

    return MARKED.sub(mark, text)


def entries(text: str) -> str:
    """Make a definition of each entry, its names being code."""

    def define(entry: re.Match[str]) -> str:
        names = ", ".join(f"``{name.strip('`')}``" for name in entry[1].split(", "))
        return f"\n{names}" + (f"\n    {entry[2]}" if entry[2] else "")

    return prose(ENTRY.sub(define, text))


def references(text: str) -> str:
    """Make a list; a reference ends with a full stop at the end of a line."""
    return "\n".join(f"* {' '.join(one.split())}" for one in re.split(r"(?<=\.)\n", prose(text)) if one.strip())


STYLES = {
    "Parameters": entries,
    "Attributes": entries,
    "Raises": entries,
    "Examples": str,
    "References": references,
}

LINKED = ("class", "exception", "function")

# Signatures: the names that the code uses, not what they stand for.

ALIASES = {
    stringify_annotation(alias, "smart"): name
    for alias, name in {
        ArrayLike: "ArrayLike",
        NDArray[Any]: "ndarray",
        NDArray[np.float64]: "ndarray",
        NDArray[np.floating[Any]]: "ndarray",
        NDArray[np.integer[Any]]: "ndarray",
        NDArray[np.int64]: "ndarray",
        NDArray[np.intp]: "ndarray",
        NDArray[np.bool_]: "ndarray",
        NDArray[np.uint8]: "ndarray",
    }.items()
}


def shortened(text: str) -> str:
    """Put short names in the place of long ones; a default that cannot be written becomes an ellipsis."""
    for long, short in ALIASES.items():
        text = text.replace(long, short)
    return re.sub(r"= <.*?>", "= ...", text)


def process_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Shorten the annotations of a class or function."""
    return signature and shortened(signature), returns and shortened(returns)


def shorten_properties(app: Sphinx, page: nodes.document) -> None:
    """Shorten the annotations of properties, which have no signature."""
    for annotation in page.findall(addnodes.desc_annotation):
        text = annotation.astext()
        if shortened(text) != text:
            annotation[:] = [nodes.Text(shortened(text))]


def skip_member(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what comes from scikit-learn or torch: their own pages have it."""
    home = getattr(getattr(obj, "fget", None) or obj, "__module__", None) or "identifiable"
    return None if home.startswith("identifiable") else True


def find_elsewhere(app: Sphinx, env: Any, node: Any, content: nodes.Element) -> nodes.Element | None:
    """Link the name of a class, or of a function of several words, from wherever it is mentioned."""
    name = node["reftarget"]
    if node.get("refdomain") != "py" or not (name[:1].isupper() or "_" in name):
        return None
    known = env.get_domain("py").objects.items()
    places = {(o.docname, o.node_id) for full, o in known if full.endswith(f".{name}") and o.objtype in LINKED}
    if len(places) != 1:
        return None
    document, anchor = places.pop()
    return make_refnode(app.builder, node["refdoc"], document, anchor, [content], name)


def visit_math(self: Any, node: nodes.math | nodes.math_block) -> None:
    """Write a formula as MathML, which browsers set themselves."""
    try:
        self.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    except MathError as error:
        LOGGER.warning("%s: %s", error, node.astext(), location=node)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Connect all this."""
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-signature", process_signature)
    app.connect("doctree-read", shorten_properties)
    app.connect("missing-reference", find_elsewhere)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
