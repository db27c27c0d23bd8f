import math
from dataclasses import replace

import numpy as np
import pytest

import fake_sweep
from identifiable.experiments.summary import summarise
from identifiable.report.experiment_tables import (
    all_results,
    certificates,
    comparison,
    failures,
    glance,
    key,
    numbers,
    short,
    tables_of,
    tallies,
    times,
)
from identifiable.report.sweep import Sweep
from page_reader import Reader

RECIPE = fake_sweep.RECIPE


@pytest.fixture(scope="module")
def sweep():
    return Sweep(RECIPE, fake_sweep.records())


@pytest.fixture(scope="module")
def frame(sweep):
    return summarise(RECIPE, sweep.records).set_index(["kind", "setting", "method"])


def test_a_tally_counts_the_verdicts(sweep, frame):
    found = tallies(sweep)
    assert [tally.method for tally in found] == ["TwoStage", "GroupedSparse (groups known)", "VaDE", "PDGMM"]
    for tally in found:
        own = frame.xs(tally.method, level="method").loc["method"]
        verdicts = own["against_published"].value_counts()
        counts = [verdicts.get(name, 0) for name in ("better", "as published", "worse")]
        assert [tally.better, tally.same, tally.worse] == counts
        assert tally.beats == (own["against_baselines"] == "beats the baselines").sum()
        assert tally.compared == tally.faced == 17
        assert f"beats every trivial baseline in {tally.beats} of 17" in tally.words
    assert "PDGMM" in Reader(short(sweep).body).words
    assert short(Sweep(RECIPE, [])) is None


def test_the_comparison_marks_verdicts_and_the_best_mean(sweep, frame):
    table = comparison(sweep, "mcc")
    assert [width for _, _, width in table.bands][1:] == [4, 2, 4]
    for row in table.rows:
        means = []
        for (kind, method), entry in zip(sweep.columns, row.entries[1:], strict=True):
            found = frame.loc[kind, row.group, method]
            assert entry.key == found["mcc_mean"]
            assert ("†" in entry.plain) == (found["against_baselines"] == "does not")
            sign = {"better": "▲", "as published": "=", "worse": "▼", "": "0123456789"}[found["against_published"]]
            assert (entry.plain[-1] in sign) or kind == "baseline"
            assert ("better" in entry.mark) == (kind == "method" and found["against_published"] == "better")
            means += [found["mcc_mean"]] * (kind != "published")
            assert "best" not in entry.mark or entry.key == max(entry.key, *means)
        assert sum("best" in entry.mark for entry in row.entries) == 1
    words = Reader(glance(sweep).body).words
    assert all(Reader(item).words in words for item in key(sweep))
    assert len(key(sweep)) == 5
    assert len(key(Sweep(replace(RECIPE, published=()), sweep.records))) == 2


def test_other_metrics_have_no_verdicts_and_only_measured_methods(sweep):
    table = comparison(sweep, "agreement")
    assert [column.title for column in table.columns][1:] == [t.method for t in tallies(sweep)]
    assert {entry.mark for row in table.rows for entry in row.entries[1:]} == {""}
    assert list(tables_of(sweep)) == ["MCC", "R²", "agreement", "score"]


def test_less_is_better_for_errors():
    records = [replace(r, metrics=r.metrics | {"shd": 1 - r.metrics["mcc"]}) for r in fake_sweep.records(failed=0)]
    sweep = Sweep(replace(RECIPE, metrics=("shd",), published=()), records)
    for row in comparison(sweep, "shd").rows:
        (best,) = [entry.key for entry in row.entries if "best" in entry.mark]
        assert best == min(entry.key for entry in row.entries[1:])


def test_failed_and_missing_runs_are_shown_as_such():
    some = [r for r in fake_sweep.records(failed=0) if r.run.setting in ("n=5", "n=10")]
    broken = replace(some[0], status="failed", metrics={}).run.method
    records = [
        replace(r, status="failed", metrics={}, error=None) if r.run.method == broken and r.run.setting == "n=5" else r
        for r in some
        if (r.run.setting, r.run.method) != ("n=10", "PCA")
    ]
    sweep = Sweep(RECIPE, records)
    first, second = comparison(sweep, "mcc").rows
    place = 1 + [method for _, method in sweep.columns].index(broken)
    assert first.entries[place].plain == "failed"
    assert second.entries[1 + [method for _, method in sweep.columns].index("PCA")].plain == ""
    row = next(r for r in all_results(sweep).rows if (r.group, r.entries[1].key) == ("n=5", broken))
    assert (row.entries[-1].plain, row.entries[-1].mark) == ("0 + 5 failed", "worse")
    lines = Reader(failures(sweep).body).rows[1:]
    assert len(lines) == 5
    assert {(line[0], line[1], line[3]) for line in lines} == {("n=5", broken, "no message")}
    assert failures(Sweep(RECIPE, some)) is None


def test_all_results_have_a_row_per_setting_and_method(sweep, frame):
    table = all_results(sweep)
    titles = [column.text or str(column.title) for column in table.columns]
    assert len(table.rows) == len(frame) == 170
    for row in table.rows[::7]:
        found = frame.loc[
            row.tag, row.group, row.entries[1].key if row.tag != "published" else f"published: {row.entries[1].key}"
        ]
        assert row.entries[3].key == found["mcc_mean"]
        if row.tag == "published":
            continue
        assert float(row.entries[4].plain) == pytest.approx(found["mcc_worst"], abs=6e-4)
        assert row.entries[titles.index("score")].key == found["score_mean"]
        assert row.entries[-1].plain.startswith(str(int(found["mcc_n"])))
        assert (row.entries[6].mark == "better") == (found["against_baselines"] == "beats the baselines")
        assert found["against_published"] in row.entries[5].plain
    body = str(numbers(sweep).body)
    assert Reader(body).rows[0][2].startswith("MCC")  # with the ends of its axis
    assert Reader(body).rows[0][2].endswith("1")
    assert body.count('class="reference"') == (frame["against_published"] != "").sum()
    assert numbers(Sweep(RECIPE, [])) is None


def test_run_times_are_per_method_and_device(sweep):
    section = times(sweep)
    rows = Reader(section.body).rows[1:]
    seconds = {m: [r.metrics["seconds"] for r in sweep.done if r.run.method == m] for m in sweep.methods}
    assert [row[0] for row in rows] == sweep.methods
    for row in rows:
        own = seconds[row[0]]
        median, longest = (float(text.replace("\u2009", "")) for text in row[2:4])
        assert median == pytest.approx(np.median(own), rel=5e-3, abs=0.05)
        assert longest == pytest.approx(max(own), rel=5e-3, abs=0.05)
        assert row[4] == str(len(own))
    assert str(section.body).count('class="run"') == len(sweep.done)
    assert times(Sweep(RECIPE, [])) is None
    assert times(Sweep(RECIPE, [replace(sweep.done[0], metrics={"seconds": math.nan})])) is None


def test_certificates_are_counted_and_put_in_words(sweep):
    words = Reader(certificates(sweep).body).words
    found = sweep.of("delta=3", "PDGMM")
    assert f"none × {len(found)}" in words
    assert "Blocks: {0}, {1, 2}, {3}." in words
    levels = ["PS", "AT", "PS", "strange"]
    bare = [replace(r, certificate={"level": level}) for r, level in zip(found, levels, strict=False)]
    assert "PS × 2, AT × 1, strange × 1" in Reader(certificates(Sweep(RECIPE, bare)).body).words
    assert certificates(Sweep(RECIPE, [replace(r, certificate=None) for r in found])) is None
