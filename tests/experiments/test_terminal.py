"""Tables for the terminal contain the numbers of the sweep."""

from dataclasses import replace

from rich.console import Console

import fake_sweep
from identifiable.experiments.papers import RECIPES
from identifiable.experiments.summary import BEATS, summarise
from identifiable.experiments.terminal import mean_and_sd, recipe_table, summary_table


def text_of(table, width=250):
    console = Console(width=width, record=True, quiet=False, file=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_all_recipes_are_listed_with_their_numbers_of_runs():
    text = text_of(recipe_table(RECIPES.values()))
    for name, recipe in RECIPES.items():
        (line,) = [line for line in text.splitlines() if line.split()[:1] == [name]]
        assert line.rstrip().endswith(f"{len(recipe.runs())}, {len(recipe.runs(quick=True))}")


def test_settings_are_rows_and_published_methods_come_last():
    records = fake_sweep.records(failed=0)
    lines = text_of(summary_table(fake_sweep.RECIPE, summarise(fake_sweep.RECIPE, records), "a caption")).splitlines()
    assert "a caption" in lines[-1]
    header = next(line for line in lines if line.split()[:1] == ["mcc"])
    assert header.index("PDGMM") < header.index("published")
    mean = summarise(fake_sweep.RECIPE, records).set_index(["setting", "method"]).loc[("k=2", "PDGMM"), "mcc_mean"]
    (line,) = [line for line in lines if line.split()[:1] == ["k=2"]]
    assert f"{mean:.3f}"[1:] in line


def test_one_setting_shows_all_metrics_and_failures():
    records = [r for r in fake_sweep.records(failed=0) if r.run.setting == "layers=3"]
    summary = summarise(fake_sweep.RECIPE, [replace(records[0], status="failed"), *records[1:]])
    text = text_of(summary_table(fake_sweep.RECIPE, summary))
    assert all(metric in text for metric in fake_sweep.RECIPE.metrics)
    assert text.count("1 failed") == len(fake_sweep.RECIPE.metrics)
    assert text.count("*") == (summary["against_baselines"] == BEATS).sum() > 0


def test_mean_and_sd_in_short():
    nan = float("nan")
    found = [mean_and_sd(*v) for v in ((0.95, 0.012), (0.95, nan), (nan, 0.0), (-0.2, 0.1), (75.3, 2.0), (10.0, 0.5))]
    assert found == [".950 ±.012", ".950", "–", "-.200 ±.100", "75.3 ±2.0", "10.0 ±.5"]
