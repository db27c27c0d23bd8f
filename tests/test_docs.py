"""The prose keeps its word: code blocks run and print what they say, links lead somewhere, files are short enough."""

import re
from pathlib import Path

import pytest

import fresh

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(match.group(1), match.group(2), id=f"{page.name}-{i}")
    for page in PAGES
    for i, match in enumerate(re.finditer(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", page.read_text(), re.DOTALL))
]


def without_digits(text):
    return re.sub(r"\d+\.\d+", "#", text)


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


def test_contributing_is_short():
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) < 60


def test_readme_shows_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
