import re
from dataclasses import replace

import pytest

import fake_sweep
from fake_sweep import HOSTILE, QUOTES
from identifiable import files
from identifiable.report.experiment_page import sweep_page, write_report
from identifiable.report.sweep import Sweep
from page_reader import Reader

RECIPE = fake_sweep.RECIPE


@pytest.fixture(scope="module")
def records():
    return fake_sweep.records()


@pytest.fixture(scope="module")
def html(records):
    return sweep_page(Sweep(RECIPE, records, missing=2)).html()


def facts(page):
    return {fact.name: fact.value for fact in page.facts}


def test_no_name_becomes_markup(html):
    seen = Reader(sweep_page(Sweep(*fake_sweep.hostile())).html())
    usual = Reader(html)
    assert seen.scripts == usual.scripts  # the script of the page, unchanged
    assert seen.count("script") == 1
    for _, attributes in seen.tags:
        assert not [name for name in attributes if name.startswith("on")]
    assert seen.words.count(HOSTILE) > 20
    assert QUOTES in seen.words
    assert {name for name, _ in seen.tags} <= {name for name, _ in usual.tags} | {"p"}


def test_the_page_requests_nothing_outside_its_file(html):
    text = re.sub(r"data:image/png;base64,[\w+/=]*", "", html)
    assert not re.findall(r"https?:|//[a-z]|url\(|@import", text)
    for name, attributes in Reader(html).tags:
        for key in ("src", "href", "srcset", "data", "action"):
            assert attributes.get(key, "#").startswith(("#", "data:")), (name, attributes)
    assert len(html.encode()) < 1_000_000


def test_the_header_shows_the_recipe_and_the_run(records, html):
    words = Reader(html).words
    for text in (RECIPE.title, RECIPE.question, RECIPE.source, RECIPE.name, *RECIPE.notes.split("\n")):
        assert text in words
    found = facts(sweep_page(Sweep(RECIPE, records, missing=2)))
    assert found["Runs"] == "677 done, 3 failed, 2 missing"
    assert (found["Settings × methods"], found["Seeds"], found["Commit"]) == ("17 × 8", "5", "4ef6588a0c1d")
    assert (found["Device"], found["Finished"]) == ("cpu and NVIDIA H200", "2026-11-16 09:12 UTC")
    assert "2 of 682 runs are missing" in words
    few = [replace(r, commit=None) for r in records if r.run.setting == "n=5"]
    found = facts(sweep_page(Sweep(RECIPE, [r for r in few if r.run.method != "PCA" or r.run.seed == few[0].run.seed])))
    assert (found["Seeds"], found["Commit"]) == ("5 (PCA 1)", "not in git")


def test_the_command_repeats_the_run(records):
    few = [r for r in records if r.run.seed == records[0].run.seed and r.run.method in ("PDGMM", "PCA")]
    some = [r for r in records if r.run.setting in ("n=5", "k=2") and r.run.method == "PDGMM"]
    quick = fake_sweep.records(quick=True, failed=0)
    options = "--seeds 1 --method PDGMM --method PCA", "--setting n=5 --setting k=2 --method PDGMM", "--quick"
    for own, option in zip((few, some, quick), options, strict=True):
        words = facts(sweep_page(Sweep(RECIPE, own)))["Command"].split()
        assert sorted(words) == sorted(f"identifiable reproduce paper/table1 {option}".split())
    (notice,) = sweep_page(Sweep(RECIPE, quick)).notices
    assert all(words in notice for words in ("1 instead of 5 seeds", "2 of 17 settings", "without VaDE"))
    for count, words in ((0, "0 done, 0 failed, 680 missing"), (20, "0 done, 20 failed")):
        found = [replace(r, status="failed", metrics={}, error=None) for r in records[:count]]
        seen = Reader(sweep_page(Sweep(RECIPE, found, 680 - count)).html()).words
        assert words in seen
        assert ("no results" in seen) == (count == 0)


def test_one_setting_has_no_comparison_and_no_effect_of_parameters(records):
    one = [r for r in records if r.run.setting == "n=10"]
    anchors, every = ([s.anchor for s in sweep_page(Sweep(RECIPE, found)).sections] for found in (one, records))
    assert anchors[:2] == ["short", "numbers"]
    assert [anchor for anchor in every if anchor not in anchors] == ["table", "parameters", "failures"]
    assert every[-1] == "reading"


def test_the_report_is_three_files_each_written_atomically(tmp_path, records, html, monkeypatch):
    page, table = write_report(RECIPE, records, tmp_path / "new" / "folder", missing=2)
    assert page.read_text(encoding="utf-8") == html
    assert len(table.read_text().splitlines()) == 1 + len(records)
    assert sorted(path.name for path in page.parent.iterdir()) == ["report.html", "report.md", "results.csv"]
    before = {path: path.read_bytes() for path in page.parent.iterdir()}

    def full(_):
        raise OSError("No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        write_report(RECIPE, records[:40], page.parent)
    assert {path: path.read_bytes() for path in page.parent.iterdir()} == before
