"""Tables for the terminal: the recipes, and the results of a sweep."""

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import pandas as pd
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from identifiable.experiments.recipe import Recipe
from identifiable.experiments.summary import BEATS, BEATS_NOT

LARGE = 10  # from here on, numbers have one decimal instead of three
STYLES = {"baseline": "dim", "published": "cyan"}


def recipe_table(recipes: Iterable[Recipe]) -> Table:
    """Return the table of all recipes, paper by paper."""
    table = Table(box=None, caption="identifiable reproduce NAME [--quick]", caption_justify="left")
    table.add_column("recipe", no_wrap=True)
    table.add_column("content", overflow="fold")
    table.add_column("runs, quick", justify="right", no_wrap=True)
    previous = None
    for recipe in recipes:
        paper, _, place = recipe.source.partition("), ")
        if paper != previous:
            table.add_row("")
            table.add_row(Text(recipe.name.split("/")[0], "bold"), Text(f"{paper})", "bold"))
        full, quick = (len(recipe.runs(quick=quick)) for quick in (False, True))
        table.add_row(f"  {recipe.name}", Text.assemble(recipe.title, (f"  {place}", "dim")), f"{full}, {quick}")
        previous = paper
    return table


def summary_table(recipe: Recipe, summary: pd.DataFrame, caption: str = "") -> Table:
    """Return the table of a sweep: settings by methods on the main metric, or all metrics if there is one setting.

    Parameters
    ----------
    summary : of `summarise`.
    """
    main = recipe.metrics[0]
    title = f"{recipe.name}: {recipe.title}"
    table = Table(
        title=title, caption=caption, title_justify="left", caption_justify="left", box=SIMPLE, padding=(0, 1)
    )
    if summary["setting"].nunique() == 1:
        shown = [m for m in recipe.metrics if summary[f"{m}_mean"].notna().any()]
        table.add_column(str(summary["setting"].iloc[0]), overflow="fold")
        for metric in shown:
            table.add_column(metric, justify="right")
        for row in summary.to_dict("records"):
            table.add_row(row["method"], *(_number(row, m, main) for m in shown), style=STYLES.get(row["kind"], ""))
        return table
    table.add_column(main, no_wrap=True)
    methods = summary.sort_values("kind", key=lambda kind: kind == "published", kind="stable")["method"].unique()
    for method in methods:
        table.add_column(method, justify="right", overflow="fold")
    for setting, rows in summary.groupby("setting", sort=False):
        own = {row["method"]: row for row in rows.to_dict("records")}
        table.add_row(str(setting), *(_number(own[m], main, main) if m in own else "" for m in methods))
    return table


def _number(row: Mapping[Hashable, Any], metric: str, main: str) -> Text:
    """Return mean and sd; the main metric green and starred if it beats all baselines, red if it does not."""
    beats = row["against_baselines"] if metric == main else ""
    text = mean_and_sd(row[f"{metric}_mean"], row[f"{metric}_sd"]) + "*" * (beats == BEATS)
    if row["failed"]:
        return Text(f"{text} {row['failed']} failed", "red")
    return Text(text, {BEATS: "green", BEATS_NOT: "red"}.get(beats, STYLES.get(row["kind"], "")))


def mean_and_sd(mean: float, sd: float) -> str:
    """Return a mean and its standard deviation, such as ".950 ±.012"; a dash if there is none.

    Examples
    --------
    >>> mean_and_sd(0.95, 0.012), mean_and_sd(0.95, float("nan")), mean_and_sd(-0.2, 0.1), mean_and_sd(75.3, 2.0)
    ('.950 ±.012', '.950', '-.200 ±.100', '75.3 ±2.0')
    """
    if math.isnan(mean):
        return "–"
    digits = 1 if abs(mean) >= LARGE else 3
    return " ±".join(
        f"{v:.{digits}f}".replace("0.", ".", 1) if abs(v) < 1 else f"{v:.{digits}f}"
        for v in (mean, sd)
        if not math.isnan(v)
    )
