"""Code blocks of the documentation run and print what they show; links and public names have their targets."""

import inspect
import re
import shutil
from importlib import import_module
from pathlib import Path

import pytest

import fresh

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
BLOCKS = [
    pytest.param(match.group(1), match.group(2), id=f"{page.name}-{i}")
    for page in PAGES
    for i, match in enumerate(re.finditer(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", page.read_text(), re.DOTALL))
]


def without_digits(text):
    return re.sub(r"\d+\.\d+", "#", text)


@pytest.mark.docs
@pytest.mark.parametrize(("code", "output"), BLOCKS)
def test_code_runs_and_prints_what_it_says(code, output, tmp_path):
    """Decimals may differ between machines; every word and every integer may not."""
    result = fresh.run("import warnings; warnings.simplefilter('ignore')\n" + code, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "False" not in result.stdout
    if output is not None:
        assert without_digits(result.stdout) == without_digits(output)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


# Public are the names at the top, and all that these packages export.
PUBLIC = ("", "causal", "data", "flows", "metrics", "nets", "theory", "training")


def names_of(module):
    """What a module exports, or else the classes and functions that it defines."""
    found = vars(module)
    own = [k for k, v in found.items() if not k.startswith("_") and getattr(v, "__module__", "") == module.__name__]
    return getattr(module, "__all__", [k for k in own if inspect.isclass(found[k]) or inspect.isfunction(found[k])])


def public():
    """Every public name, and what it stands for."""
    for package in PUBLIC:
        place = f"identifiable.{package}".strip(".")
        module = import_module(place)
        yield from ((f"{place}.{name}", getattr(module, name)) for name in names_of(module) if name != "__version__")


def documented():
    """Every name that the pages of the reference ask autodoc for. A module's members are those with a docstring."""
    directive = re.compile(r"\.\. (?:auto|py:(?=data))(\w+):: (\S+)\n((?:   :.*\n)*)")
    for page in (DOCS / "api").glob("*.rst"):
        for kind, place, options in directive.findall(page.read_text()):
            if kind != "module":
                yield place
            elif ":members:" in options:
                module, left_out = import_module(place), re.findall(r":exclude-members: (.*)", options)
                shown = set(names_of(module)) - set(", ".join(left_out).split(", "))
                things = {name: getattr(module, name) for name in shown}
                yield from (f"{place}.{k}" for k, v in things.items() if inspect.isclass(v) or inspect.isfunction(v))


def thing(place):
    """What a dotted name stands for; a module is looked for before an attribute, which may hide it."""
    module, _, name = place.rpartition(".")
    return getattr(import_module(module), name)


def test_every_public_name_is_in_the_reference():
    named = set(documented())
    things = {id(thing(place)) for place in named}  # an object may have several public names
    missing = [place for place, value in public() if place not in named and id(value) not in things]
    assert not missing, f"give these a directive in docs/api: {missing}"


def build(source, target):
    """Build a site with warnings as errors, as `make docs` does."""
    options = ["-W", "--keep-going", "-q", "-d", f"{target}/doctrees", source, f"{target}/html"]
    return fresh.run("import sys; from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))", *options, cwd=ROOT)


@pytest.mark.docs
@pytest.mark.parametrize("wrong", ["[a link](nowhere.md)", "```{toctree}\nnowhere\n```", "![a picture](nowhere.png)"])
def test_a_warning_is_an_error(wrong, tmp_path):
    source = tmp_path / "docs"
    shutil.copytree(DOCS / "_static", source / "_static")
    shutil.copy(DOCS / "conf.py", source)
    (source / "index.md").write_text(f"# A page\n\n{wrong}\n")
    result = build(source, tmp_path)
    assert result.returncode != 0
    assert "nowhere" in result.stderr
