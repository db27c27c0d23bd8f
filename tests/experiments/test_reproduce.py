"""A recipe from the command line: a table, a page, and no run repeated."""

from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from identifiable.cli import app
from identifiable.errors import DataError
from identifiable.experiments import reproduce as sweeps
from identifiable.experiments.papers import RECIPES, find
from identifiable.experiments.recipe import BASELINES, Record
from identifiable.experiments.run_folder import Results, RunFolder, read_records


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run of the quickest recipe."""
    folder = tmp_path_factory.mktemp("run") / "first"
    result = call("reproduce", "kivva/figure1", "--quick", "--jobs", 1, "-o", folder)
    assert result.exit_code == 0, result.output
    return folder


def test_a_sweep_writes_a_page_and_a_table_once(folder):
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    runs = pd.read_csv(folder / "results.csv")
    assert len(runs) == len(find("kivva/figure1").runs(quick=True))
    assert (runs["status"] == "done").all()
    assert runs["unique"].iloc[0] == 1
    before = {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()}
    result = call("reproduce", "kivva/figure1", "--quick", "--jobs", 1, "-o", folder)
    assert result.exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()} == before
    assert "smaller version" in " ".join(result.output.split())
    assert all(name in call("reproduce").output for name in RECIPES)


def test_folders_are_merged_into_a_new_one_unless_their_recipes_differ(folder, tmp_path):
    (done,) = read_records(folder)
    for name, run in (("same", replace(done.run, seed=1)), ("other", find("kivva/table2").runs()[0])):
        with RunFolder(tmp_path / name).locked():
            RunFolder(tmp_path / name).write(replace(done, run=run))
    result = call("report", folder, tmp_path / "same", "-o", tmp_path / "both")
    assert result.exit_code == 0, result.output
    assert len(read_records(tmp_path / "both")) == 2
    assert (tmp_path / "both" / "report.html").exists()
    with pytest.raises(DataError, match="kivva/figure1, kivva/table2"):
        sweeps.report([folder, tmp_path / "other"], tmp_path / "mixed")


def test_bad_input_is_refused(folder, tmp_path):
    with pytest.raises(DataError, match="-o"):
        sweeps.report([folder, folder])
    with pytest.raises(ValueError, match="kivva/figure9"):
        sweeps.reproduce("kivva/figure9")
    with pytest.raises(DataError, match=r"PDGM.*PDGMM"):
        sweeps.reproduce("xu2026/table1", tmp_path, methods=["PDGM"])
    with pytest.raises(DataError, match=r"n=6.*n=5"):
        sweeps.reproduce("xu2026/table1", tmp_path, settings=["n=6"])
    assert not list(tmp_path.iterdir())


def test_the_table_names_what_failed(tmp_path):
    recipe = find("kivva/figure2")
    runs = recipe.runs(quick=True)
    records = [Record(c, "done", 1.0, {"dist": 0.05, "weak": 1.0, "strong": 0.9}) for c in runs[:-1]]
    records.append(Record(runs[-1], "failed", 1.0, error="ValueError: [bold]no[/bold]"))
    found = sweeps.write_results(recipe, Results(tuple(records)), tmp_path)
    console = Console(width=140, record=True)
    sweeps.show(found, console)
    text = console.export_text()
    assert "1 failed" in text
    assert "ValueError: [bold]no[/bold]" in text
    assert "published: VaDE" in text


def test_long_runs_come_first():
    runs = sweeps.longest_first(find("xu2026/table1").runs(quick=True))
    baselines = [c.method in BASELINES for c in runs]
    assert baselines == sorted(baselines)
    assert runs[0].values["n"] == 40


def test_records_are_sorted_like_the_recipe():
    recipe = find("kivva/table2")
    records = [Record(run, "done", 1.0) for run in recipe.runs(seeds=2)]
    unknown = Record(replace(records[0].run, method="of another version"), "done", 1.0)
    assert sweeps.in_order(recipe, [*records[3:][::-1], unknown, *records[:3]])[:3] == tuple(records[:3])
    expected = sorted(records, key=lambda r: (r.run.setting, list(recipe.methods).index(r.run.method), r.run.seed))
    assert [r for r in sweeps.in_order(recipe, [unknown, *records[::-1]]) if r is not unknown] == expected


def test_default_folders_and_selected_runs():
    assert str(sweeps.default_folder("a/b", quick=False)) == "runs/a-b"
    assert str(sweeps.default_folder("a/b", quick=True)) == "runs/a-b-quick"
    recipe = find("kivva/table2")
    chosen = sweeps.select(recipe, recipe.runs(seeds=1), ["parallelograms 2"], ["PCA", "raw x"])
    assert {(r.setting, r.method) for r in chosen} == {("parallelograms 2", "PCA"), ("parallelograms 2", "raw x")}
    assert sweeps.select(recipe, recipe.runs(), (), ()) == recipe.runs()
