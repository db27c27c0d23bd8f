"""The summary of a sweep, compared with numbers computed by hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fake_sweep
from identifiable.experiments.recipe import BASELINES, Method, Published, Recipe, Record, Run, Setting
from identifiable.experiments.summary import BEATS, BEATS_NOT, BETTER, SAME, WORSE, per_run, summarise
from identifiable.report.experiment_page import write_report

NAN = math.nan


def recipe(metrics=("mcc",), published=(), methods=("PCA", "A"), settings=("s", "t")):
    return Recipe(
        name="a/b",
        title="Title",
        source="Source",
        question="Question?",
        experiment="recovery",
        settings=tuple(Setting(name, {"n": i}) for i, name in enumerate(settings)),
        methods={name: BASELINES.get(name, Method(name)) for name in methods},
        metrics=metrics,
        seeds=3,
        published=tuple(published),
    )


def runs(method, values, *, setting="s", metric="mcc", status="done", values_of_setting=None):
    """One record per value, seeds 0, 1, ..."""
    found = []
    for seed, value in enumerate(values):
        run = Run("a/b", "full", "recovery", setting, values_of_setting or {}, method, Method(method), seed)
        found.append(Record(run, status, 1.0, {metric: value} if status == "done" else {}))
    return found


def row(frame, method, setting="s", kind=None):
    found = frame[(frame["method"] == method) & (frame["setting"] == setting)]
    found = found if kind is None else found[found["kind"] == kind]
    assert len(found) == 1
    return found.iloc[0]


@pytest.mark.parametrize(
    ("metric", "values", "expected"),
    [
        ("mcc", [0.2, 0.4, 0.9], [0.5, math.sqrt(0.13), 0.2, 3]),
        ("delta_shd", [2.0, 8.0], [5, math.sqrt(18), 8, 2]),  # less is better
        ("mcc", [0.7], [0.7, NAN, 0.7, 1]),
        ("mcc", [0.5, NAN, 0.7], [0.6, math.sqrt(0.02), 0.5, 2]),
        ("mcc", [], [NAN, NAN, NAN, 0]),
    ],
)
def test_mean_sd_and_worst_are_those_of_the_finite_values_of_runs_that_are_done(metric, values, expected):
    failed = runs("A", [0] * 5, status="failed")[len(values) :]
    found = row(summarise(recipe(metrics=(metric, "r2")), runs("A", values, metric=metric) + failed), "A")
    np.testing.assert_allclose([found[f"{metric}_{what}"] for what in ("mean", "sd", "worst", "n")], expected)
    assert (found["failed"], found["kind"], found["verdict"], found["r2_n"]) == (5 - len(values), "method", "", 0)
    repeated = runs("A", [0] * len(values), status="failed") + runs("A", values, metric=metric)
    assert len(per_run(repeated)) == len(values)
    assert summarise(recipe(), repeated)["failed"].sum() == 0


def test_rows_are_in_the_order_of_the_recipe_for_any_order_of_the_records():
    published = [Published("t", "theirs", "mcc", 0.9)]
    records = runs("A", [0.5, 0.6], setting="t") + runs("new", [0.1]) + runs("PCA", [0.3], setting="t") + runs("A", [1])
    plan = recipe(published=published)
    frames = [summarise(plan, [records[i] for i in np.random.default_rng(s).permutation(len(records))]) for s in (0, 1)]
    expected = [("s", "A"), ("s", "new"), ("t", "PCA"), ("t", "A"), ("t", "theirs")]
    assert list(zip(frames[0]["setting"], frames[0]["method"], strict=True)) == expected
    pd.testing.assert_frame_equal(*frames)
    assert frames[0]["kind"].tolist() == ["method", "method", "baseline", "method", "published"]


def test_published_numbers_have_their_own_rows():
    published = [
        Published("s", "theirs", "mcc", 0.9, 0.02),
        Published("s", "theirs", "r2", 0.8),
        Published("s", "theirs", "not measured", 0.1),
        Published("t", "theirs", "mcc", 0.5),
    ]
    frame = summarise(recipe(metrics=("mcc", "r2"), published=published), runs("A", [0.5]))
    found = row(frame, "theirs")
    assert (found["mcc_mean"], found["mcc_sd"], found["r2_mean"]) == (0.9, 0.02, 0.8)
    assert np.isnan(found["r2_sd"])
    assert np.isnan(found["mcc_worst"])
    assert set(frame["setting"]) == {"s"}  # no record of t


@pytest.mark.parametrize(
    ("metric", "values", "mean", "sd", "verdict"),
    [
        ("mcc", [0.90], 0.80, None, BETTER),
        ("mcc", [0.70], 0.80, None, WORSE),
        ("mcc", [0.805], 0.80, None, SAME),  # printed numbers are rounded
        ("mcc", [0.806], 0.80, None, BETTER),
        ("mcc", [0.86, 0.88], 0.80, 0.0684, BETTER),  # 0.07 > √(0.0141² + 0.0684²) = 0.0698
        ("mcc", [0.86, 0.88], 0.80, 0.0687, SAME),  # 0.07 < 0.0701
        ("dist", [0.70], 0.80, None, BETTER),
        ("dist", [0.90], 0.80, None, WORSE),
        ("mcc", [NAN], 0.80, None, ""),
    ],
)
def test_against_published_is_by_one_sd_of_the_difference(metric, values, mean, sd, verdict):
    plan = recipe(metrics=(metric,), published=[Published("s", "theirs", metric, mean, sd)])
    found = row(summarise(plan, runs("A", values, metric=metric)), "A")
    assert found["against_published"] == verdict
    assert found["against"] == ("theirs" if verdict else "")


def test_a_method_is_compared_with_the_number_that_lists_it_or_else_the_best():
    published = [Published("s", "A", "mcc", 0.3, compare_with=("B", "C")), Published("s", "best", "mcc", 0.8)]
    records = [r for method in ("A", "B", "C", "PCA") for r in runs(method, [0.5])]
    frame = summarise(recipe(published=published), records)
    found = {method: row(frame, method, kind=kind) for method, kind in (("A", "method"), ("B", None), ("C", None))}
    assert {method: one["against"] for method, one in found.items()} == {"A": "best", "B": "A", "C": "A"}
    assert {method: one["against_published"] for method, one in found.items()} == {"A": WORSE, "B": BETTER, "C": BETTER}
    assert row(frame, "PCA")["against"] == "best"
    assert found["A"]["verdict"] == "worse than published, does not beat the baselines"
    lower = [replace(p, metric="dist") for p in published]
    frame = summarise(recipe(metrics=("dist",), published=lower), runs("PCA", [0.5], metric="dist"))
    assert row(frame, "PCA")["against"] == "A"


@pytest.mark.parametrize(
    ("metric", "ours", "verdict"),
    [("mcc", 0.61, BEATS), ("mcc", 0.6, BEATS_NOT), ("mcc", 0.5, BEATS_NOT), ("dist", 0.3, BEATS), ("mcc", NAN, "")],
)
def test_a_method_must_beat_the_best_baseline(metric, ours, verdict):
    trivial = runs("PCA", [0.5, 0.7], metric=metric) + runs("raw x", [0.4], metric=metric)
    frame = summarise(recipe(metrics=(metric,)), trivial + runs("A", [ours], metric=metric))
    assert row(frame, "A")["against_baselines"] == verdict
    assert row(frame, "A")["verdict"] == {BEATS_NOT: "does not beat the baselines"}.get(verdict, verdict)
    assert row(frame, "PCA")["against_baselines"] == ""
    assert row(summarise(recipe(), runs("A", [0.9])), "A")["against_baselines"] == ""


def test_seconds_are_those_of_the_fit_or_else_of_the_run():
    plan = recipe(metrics=("seconds", "mcc"))
    assert row(summarise(plan, runs("A", [0.5])), "A")["seconds_mean"] == 1.0
    assert row(summarise(plan, runs("A", [0.25], metric="seconds")), "A")["seconds_mean"] == 0.25


def test_no_records_are_no_rows():
    frame = summarise(fake_sweep.RECIPE, [])
    assert len(frame) == len(per_run([])) == 0
    assert frame.columns.equals(summarise(fake_sweep.RECIPE, fake_sweep.records()[:9]).columns)
    assert per_run([]).columns.tolist()[:4] == ["setting", "method", "seed", "status"]


def test_a_summary_of_a_whole_table_agrees_with_pandas():
    records = fake_sweep.records(seed=1)
    frame = summarise(fake_sweep.RECIPE, records)
    ours = frame[frame["kind"] != "published"].set_index(["setting", "method"])
    plain = pd.DataFrame([{"setting": r.run.setting, "method": r.run.method, **r.metrics} for r in records])
    groups = plain.groupby(["setting", "method"])
    for metric in fake_sweep.RECIPE.metrics:
        expected = groups[metric].agg(["mean", "std", "min", "count"]).loc[ours.index]
        got = ours[[f"{metric}_{what}" for what in ("mean", "sd", "worst", "n")]]
        np.testing.assert_allclose(got.to_numpy(float), expected.to_numpy(float))
    assert ours["failed"].sum() == 3
    assert len(frame) == 17 * (8 + 2)


# results.csv


def test_the_table_of_runs_is_read_back_from_its_file(tmp_path):
    records = list(fake_sweep.records()[:60])
    odd = 'line one\nline two, "quoted"; ümlaut <b>'
    odd_run = replace(records[0].run, values=records[0].run.values | {"blocks": [2, 3]})
    records[0] = replace(records[0], run=odd_run, status="failed", error=odd, metrics={})
    write_report(fake_sweep.RECIPE, records, tmp_path)
    table = pd.read_csv(tmp_path / "results.csv")
    assert len(table) == 60
    assert table.loc[0, "error"] == odd
    assert table["setting"].tolist() == [r.run.setting for r in records]
    assert table["setting.n"].tolist() == [r.run.values["n"] for r in records]
    assert table["seed"].tolist() == [r.run.seed for r in records]
    mcc = [r.metrics.get("mcc", NAN) for r in records]
    np.testing.assert_array_equal(table["mcc"], mcc)  # to the last bit
    np.testing.assert_array_equal(table["seconds"], [r.seconds for r in records])
    np.testing.assert_array_equal(table["metric.seconds"], [r.metrics.get("seconds", NAN) for r in records])
    assert table.loc[0, "setting.blocks"] == "[2, 3]"
    assert json.loads(table.loc[1, "versions"]) == records[1].versions
    assert table.columns[-6:].tolist() == ["seconds", "error", "device", "commit", "finished", "versions"]


def test_a_reference_that_knows_the_truth_has_no_verdict():
    published = [Published("s", "published: A", "mcc", 0.9)]
    methods = ("PCA", "colour moments", "A", "positions known")
    records = [*runs("PCA", [0.2]), *runs("colour moments", [0.7]), *runs("A", [0.6]), *runs("positions known", [1.0])]
    found = summarise(recipe(published=published, methods=methods), records)
    kinds = dict(zip(found["method"], found["kind"], strict=True))
    assert kinds == {
        "PCA": "baseline",
        "colour moments": "baseline",
        "A": "method",
        "positions known": "reference",
        "published: A": "published",
    }
    reference = row(found, "positions known")
    assert reference["verdict"] == reference["against_published"] == reference["against_baselines"] == ""
    assert row(found, "A")["against_baselines"] == BEATS_NOT
