"""Recipes list runs, runs have stable keys, and records are read back as written."""

import json
import math
from dataclasses import asdict, replace

from identifiable.experiments.recipe import (
    BASELINES,
    FIRST_SEED,
    Method,
    Published,
    QuickOverrides,
    Recipe,
    Record,
    Run,
    Setting,
    read_published,
)

RECIPE = Recipe(
    name="a/b",
    title="",
    source="",
    question="",
    experiment="recovery",
    settings=(Setting("s", {"n": 1}), Setting("t", {"n": 2})),
    methods={"PCA": BASELINES["PCA"], "A": Method("A", {"x": 1, "y": 2}), "B": Method("B")},
    metrics=("mcc",),
    seeds=3,
    seeds_by_method={"A": 2},
    smaller=QuickOverrides(settings=("t",), values={"rows": 9}, params={"A": {"x": 5}, "B": None}),
)
RUN = Run("a/b", "full", "recovery", "s", {"n": 1}, "A", Method("A", before=Method("B", {"c": [1]})), 3)


def test_there_is_a_run_for_each_setting_method_and_seed():
    runs = RECIPE.runs()
    assert len(runs) == 2 * (3 + 2 + 3)
    assert {r.seed for r in runs if r.method == "A"} == {FIRST_SEED, FIRST_SEED + 1}
    assert {r.size for r in runs} == {"full"}
    assert len(RECIPE.runs(seeds=1)) == 2 * 3


def test_the_quick_version_is_smaller():
    runs = RECIPE.runs(quick=True)
    assert [(r.setting, r.method, r.seed) for r in runs] == [("t", "PCA", FIRST_SEED), ("t", "A", FIRST_SEED)]
    assert {r.size for r in runs} == {"quick"}
    assert runs[0].values == {"n": 2, "rows": 9}
    assert runs[1].how.params == {"x": 5, "y": 2}


def test_a_key_depends_on_every_field_and_survives_json():
    others = [replace(RUN, **{name: "z"}) for name in ("recipe", "size", "experiment", "setting", "method")]
    others += [replace(RUN, seed=4), replace(RUN, values={"n": 2}), replace(RUN, how=Method("A"))]
    assert len({RUN.key, *(other.key for other in others)}) == 1 + len(others)
    assert Run.of_json(json.loads(json.dumps(asdict(RUN)))).key == RUN.key
    assert Run.of_json(asdict(RUN)) == RUN
    assert RUN.key == "a-b-s-3-fa270e09023f33b6"  # as in files of earlier versions


def test_a_record_is_read_back_as_written():
    record = Record(
        RUN, "done", 1.5, {"mcc": 0.5, "nan": math.nan}, {"t": [[1]]}, {"level": "none"}, versions={"v": "1"}
    )
    line = record.to_line()
    assert json.loads(line)["cell"]["how"]["before"]["estimator"] == "B"  # the key of the file format
    read = Record.of_line(line)
    assert math.isnan(read.metrics["nan"])
    assert replace(read, metrics={}) == replace(record, metrics={})
    assert read.to_line() == line


def test_published_numbers_are_read_from_a_file(tmp_path):
    file = tmp_path / "paper.csv"
    file.write_text(
        "recipe,setting,method,metric,mean,sd,compare_with\n"
        "a/b,s,published: A,mcc,0.9,0.1,A;PCA\na/b,t,B,mcc,0.8,,\nc,s,A,mcc,1,,\n"
    )
    assert read_published(file)["a/b"] == (
        Published("s", "published: A", "mcc", 0.9, 0.1, ("A", "PCA")),
        Published("t", "B", "mcc", 0.8),
    )
