"""The Markdown of a sweep: every number of the summary in its place, nothing from data that Markdown would read."""

import re
from dataclasses import replace

import pytest

import fake_sweep
from identifiable.report.experiment_markdown import plain
from identifiable.report.experiment_page import summarise, write_report


def text_of(tmp_path, recipe, records, **options):
    write_report(recipe, records, tmp_path, **options)
    return (tmp_path / "report.md").read_text(encoding="utf-8")


def tables(text):
    """The tables by heading: lists of rows, the head first."""
    found, heading = {}, None
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|") and not line.startswith("| ---"):
            found.setdefault(heading, []).append([cell.strip() for cell in line[2:-2].split(" | ")])
    return found


def test_every_mean_stands_under_its_metric_method_and_setting(tmp_path):
    records = fake_sweep.records()
    found = tables(text_of(tmp_path, fake_sweep.RECIPE, records))
    assert list(found) == ["MCC", "R²", "agreement", "score"]
    summary = summarise(fake_sweep.RECIPE, records).set_index(["setting", "method"])
    for heading, metric in (("MCC", "mcc"), ("R²", "r2")):
        (_, *methods), *rows = found[heading]
        assert [row[0] for row in rows] == list(fake_sweep.SETTINGS)
        for setting, *entries in rows:
            for method, entry in zip(methods, entries, strict=True):
                mean = summary.loc[(setting, method), f"{metric}_mean"]
                assert float(entry.strip("*").split(" ± ")[0]) == pytest.approx(mean, abs=6e-4)
                beats = summary.loc[(setting, method), "against_baselines"] == "beats the baselines"
                assert entry.startswith("**") == (beats and metric == "mcc")


def test_it_says_how_to_run_it_again_and_what_failed(tmp_path):
    records = fake_sweep.records(failed=3)
    text = text_of(tmp_path, fake_sweep.RECIPE, records, missing=2)
    assert "- Run it again: `identifiable reproduce paper/table1`\n" in text
    assert "An unfinished run: 2 of" in text
    assert sum(line.startswith("- ") and "FitFailedError" in line for line in text.splitlines()) == 3


def test_the_command_names_what_was_asked_for(tmp_path):
    some = [r for r in fake_sweep.records() if r.cell.setting in ("n=5", "k=2") and r.cell.method == "PDGMM"]
    text = text_of(tmp_path, fake_sweep.RECIPE, some)
    assert "`identifiable reproduce paper/table1 --setting n=5 --setting k=2 --method PDGMM`" in text


def test_one_setting_has_one_table_of_methods_by_metrics(tmp_path):
    some = [r for r in fake_sweep.records(failed=0) if r.cell.setting == "n=10"]
    found = tables(text_of(tmp_path, fake_sweep.RECIPE, some))
    assert list(found) == ["n=10"]
    head, *rows = found["n=10"]
    assert head == ["", "MCC", "R²", "agreement", "score"]
    assert [row[0] for row in rows[-2:]] == ["published: two stages", "published: VaDE"]


def test_names_from_data_stay_text(tmp_path):
    hostile = "<script>alert(1)</script> | [x](y) *z* `"
    some = [r for r in fake_sweep.records(failed=0) if r.cell.setting in ("n=10", "n=5")]
    renamed = [replace(r, run=replace(r.cell, setting=hostile)) if r.cell.setting == "n=5" else r for r in some]
    text = text_of(tmp_path, fake_sweep.RECIPE, renamed)
    assert not re.search(r"(?<!\\)[<`]", text)
    assert f"| {plain(hostile)} |" in text
