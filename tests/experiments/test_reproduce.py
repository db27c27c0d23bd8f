"""A recipe from the command line: a table, a page, and nothing done twice."""

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from identifiable.cli import app
from identifiable.errors import DataError
from identifiable.experiments import reproduce as work
from identifiable.experiments.papers import RECIPES, find
from identifiable.experiments.recipe import BASELINES, Record
from identifiable.experiments.runner import read_records


def call(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run of the quickest recipe."""
    folder = tmp_path_factory.mktemp("run") / "first"
    result = call("reproduce", "kivva/figure1", "--quick", "--jobs", 1, "-o", folder)
    assert result.exit_code == 0, result.output
    return folder


def test_without_a_name_all_recipes_are_listed():
    output = call("reproduce").output
    assert all(name in output for name in RECIPES)


def test_a_run_leaves_a_page_and_a_table(folder):
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    cells = pd.read_csv(folder / "results.csv")
    assert len(cells) == len(find("kivva/figure1").cells(quick=True))
    assert (cells["status"] == "done").all()
    assert cells["unique"].iloc[0] == 1


def test_the_same_command_again_computes_nothing(folder):
    before = {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()}
    result = call("reproduce", "kivva/figure1", "--quick", "--jobs", 1, "-o", folder)
    assert result.exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()} == before
    assert "smaller version" in " ".join(result.output.split())


def test_folders_are_merged_into_a_new_one(folder, tmp_path):
    other = tmp_path / "other"
    assert call("reproduce", "kivva/figure1", "--quick", "--seeds", 2, "--jobs", 1, "-o", other).exit_code == 0
    result = call("report", folder, other, "-o", tmp_path / "both")
    assert result.exit_code == 0, result.output
    assert len(read_records(tmp_path / "both")) == 2
    assert (tmp_path / "both" / "report.html").exists()


def test_what_cannot_be_done_is_said(folder, tmp_path):
    with pytest.raises(DataError, match="name it with -o"):
        work.report([folder, folder])
    with pytest.raises(ValueError, match="no recipe 'kivva/figure9'"):
        work.reproduce("kivva/figure9")
    with pytest.raises(DataError, match=r"no method 'PDGM'.*PDGMM"):
        work.reproduce("xu2026/table1", tmp_path, methods=["PDGM"])
    with pytest.raises(DataError, match=r"no setting 'n=6'.*n=5"):
        work.reproduce("xu2026/table1", tmp_path, settings=["n=6"])
    assert not list(tmp_path.iterdir())


def test_the_table_names_what_failed(tmp_path):
    recipe = find("kivva/figure2")
    cells = recipe.cells(quick=True)
    records = [Record(c, "done", 1.0, {"dist": 0.05, "weak": 1.0, "strong": 0.9}) for c in cells[:-1]]
    records.append(Record(cells[-1], "failed", 1.0, error="ValueError: [bold]no[/bold]"))
    found = work.told(recipe, work.Results(tuple(records)), tmp_path, missing=0)
    console = Console(width=140, record=True)
    work.show(found, console)
    text = console.export_text()
    assert "1 failed" in text
    assert "ValueError: [bold]no[/bold]" in text
    assert "published: VaDE" in text


def test_long_cells_come_first():
    cells = work.longest_first(find("xu2026/table1").cells(quick=True))
    baselines = [c.method in BASELINES for c in cells]
    assert baselines == sorted(baselines)
    assert cells[0].values["n"] == 40
