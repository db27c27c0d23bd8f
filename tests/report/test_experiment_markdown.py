import re
from dataclasses import replace

import pytest

import fake_sweep
from identifiable.experiments.summary import summarise
from identifiable.report.experiment_markdown import sweep_markdown
from identifiable.report.html import Fact
from identifiable.report.sweep import Sweep
from identifiable.report.table import escape_markdown


def text_of(recipe, records, facts=(), notices=()):
    return sweep_markdown(Sweep(recipe, records), list(facts), list(notices))


def tables(text):
    """The tables by heading: lists of rows, the head first."""
    found, heading = {}, None
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|") and not line.startswith("| ---"):
            found.setdefault(heading, []).append([cell.strip() for cell in line[2:-2].split(" | ")])
    return found


def test_every_mean_stands_under_its_metric_method_and_setting():
    records = fake_sweep.records()
    found = tables(text_of(fake_sweep.RECIPE, records))
    assert list(found) == ["MCC", "R²", "agreement", "score"]
    assert len(found["MCC"][0]) == 1 + 10
    assert len(found["agreement"][0]) == 1 + 4  # only methods with restarts have it
    summary = summarise(fake_sweep.RECIPE, records).set_index(["setting", "method"])
    for heading, metric in (("MCC", "mcc"), ("R²", "r2")):
        (_, *methods), *rows = found[heading]
        assert [row[0] for row in rows] == list(fake_sweep.SETTINGS)
        for setting, *entries in rows:
            for method, entry in zip(methods, entries, strict=True):
                mean = summary.loc[(setting, method), f"{metric}_mean"]
                assert float(entry.strip("*†").split(" ± ")[0]) == pytest.approx(mean, abs=6e-4)
                beaten = summary.loc[(setting, method), "verdict"].endswith("not beat the baselines")
                assert ("†" in entry) == (metric == "mcc" and beaten)


def test_facts_notices_and_failures_are_listed():
    facts = [Fact("Command", "identifiable reproduce x_1", command=True), Fact("Runs", "a_b")]
    text = text_of(fake_sweep.RECIPE, fake_sweep.records(failed=3), facts, ["Only <half>."])
    assert "- Command: `identifiable reproduce x_1`\n- Runs: a\\_b\n" in text
    assert "**Only \\<half\\>.**" in text
    assert sum(line.startswith("- ") and "FitFailedError" in line for line in text.splitlines()) == 3
    assert "Failed" not in text_of(fake_sweep.RECIPE, fake_sweep.records(failed=0))
    assert not tables(text_of(fake_sweep.RECIPE, []))


def test_one_setting_has_one_table_of_methods_by_metrics():
    some = [r for r in fake_sweep.records(failed=0) if r.run.setting == "n=10"]
    found = tables(text_of(fake_sweep.RECIPE, some))
    assert list(found) == ["n=10"]
    head, *rows = found["n=10"]
    assert [name for name in head if name in ("MCC", "R²", "agreement", "score")] == ["MCC", "R²", "agreement", "score"]
    assert [row[1] for row in rows][4:6] == ["published: two stages", "published: VaDE"]


def test_names_from_data_stay_text():
    hostile = "<script>alert(1)</script> | [x](y) *z* `"
    some = [r for r in fake_sweep.records(failed=0) if r.run.setting in ("n=10", "n=5")]
    renamed = [replace(r, run=replace(r.run, setting=hostile)) if r.run.setting == "n=5" else r for r in some]
    text = text_of(fake_sweep.RECIPE, renamed)
    assert not re.search(r"(?<!\\)[<`]", text)
    assert f"| {escape_markdown(hostile)} |" in text
