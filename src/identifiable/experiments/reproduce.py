"""Run a recipe, and show what came out: a table in the terminal, a page, a table of all cells."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from identifiable.errors import DataError
from identifiable.experiments.measure import best_device, group, measure, measure_together
from identifiable.experiments.papers import RECIPES, find
from identifiable.experiments.recipe import BASELINES, Cell, Recipe, Record
from identifiable.experiments.runner import Results, Together, collect, merge, read_records, run
from identifiable.experiments.summary import summarise
from identifiable.report.experiment_page import write_report
from identifiable.report.experiment_tables import tables_of
from identifiable.report.sweep import Sweep


@dataclass(frozen=True)
class Reproduction:
    """What a run of a recipe left behind."""

    recipe: Recipe
    results: Results
    table: pd.DataFrame
    page: Path
    csv: Path


def reproduce(
    name: str,
    folder: str | Path | None = None,
    *,
    seeds: int | None = None,
    quick: bool = False,
    settings: Sequence[str] = (),
    methods: Sequence[str] = (),
    jobs: int | None = None,
    cluster: str | None = None,
    device: str = "auto",
    retry_failed: bool = False,
    verbose: int = 1,
) -> Reproduction:
    """Run a recipe; cells that the folder holds already are not run again.

    Parameters
    ----------
    name, quick, seeds : which recipe, its smaller version, and on how many seeds.
    folder : where to write; default runs/NAME, with -quick for the smaller version.
    settings, methods : only these.
    jobs, cluster, device, retry_failed : as in `run`; jobs defaults to the number of processors. Where there is a GPU,
        "auto" leaves it to wide nets: small ones are as fast on a processor, and there are more of these.
    """
    recipe = find(name)
    folder = Path(folder) if folder is not None else default_folder(name, quick=quick)
    cells = chosen(recipe, recipe.cells(seeds=seeds, quick=quick), settings, methods)
    results = run(
        longest_first(cells),
        folder,
        measure=measure,
        together=Together(group, measure_together) if _has_gpu(device, cluster) else None,
        jobs=jobs or os.cpu_count() or 1,
        cluster=cluster,
        device=partial(best_device, device=device),
        retry_failed=retry_failed,
        verbose=verbose,
    )
    return told(recipe, collect(cells, folder), folder, missing=len(results.missing))


def _has_gpu(device: str, cluster: str | None) -> bool:
    return device.startswith("cuda") or (device == "auto" and cluster is None and torch.cuda.is_available())


def report(folders: Sequence[str | Path], into: str | Path | None = None) -> Reproduction:
    """Write the page of a run folder; several are merged into another first."""
    if len(folders) > 1 and into is None:
        raise DataError("Several run folders are merged into a new one: name it with -o.")
    if into is not None:
        merge(folders, into)
    folder = Path(into if into is not None else folders[0])
    records = read_records(folder)
    names = sorted({r.cell.recipe for r in records})
    if len(names) != 1:
        raise DataError(
            f"A run folder holds the cells of one recipe. {str(folder)!r} holds {', '.join(names) or 'none'}."
        )
    recipe = find(names[0])
    return told(recipe, Results(in_order(recipe, records)), folder, missing=0)


def told(recipe: Recipe, results: Results, folder: Path, *, missing: int) -> Reproduction:
    """Write page and table of these results."""
    page, csv = write_report(recipe, results.records, folder, missing=missing)
    return Reproduction(recipe, results, summarise(recipe, results.records), page, csv)


def default_folder(name: str, *, quick: bool) -> Path:
    """Return runs/xu2026-table1, or runs/xu2026-table1-quick."""
    return Path("runs") / (name.replace("/", "-") + ("-quick" if quick else ""))


def chosen(recipe: Recipe, cells: Sequence[Cell], settings: Sequence[str], methods: Sequence[str]) -> tuple[Cell, ...]:
    """Return the cells of these settings and methods; all where none is named."""
    for what, asked, known in (
        ("setting", settings, [s.name for s in recipe.settings]),
        ("method", methods, list(recipe.methods)),
    ):
        if strange := [name for name in asked if name not in known]:
            raise DataError(f"{recipe.name} has no {what} {strange[0]!r}. It has: {'; '.join(known)}.")
    return tuple(c for c in cells if (not settings or c.setting in settings) and (not methods or c.method in methods))


def longest_first(cells: Sequence[Cell]) -> list[Cell]:
    """Put baselines last and many latents first, so that no long cell is left at the end."""
    return sorted(cells, key=lambda c: (c.method in BASELINES, -int(c.values.get("n", 0))))


def in_order(recipe: Recipe, records: Sequence[Record]) -> tuple[Record, ...]:
    """Return the records in the order of the recipe's settings and methods."""
    settings, methods = (
        {name: i for i, name in enumerate(names)}
        for names in (
            [s.name for s in recipe.settings],
            recipe.methods,
        )
    )
    last = len(records)
    return tuple(
        sorted(
            records,
            key=lambda r: (settings.get(r.cell.setting, last), methods.get(r.cell.method, last), r.cell.seed),
        )
    )


def listing() -> Table:
    """Return the table of all recipes, paper by paper."""
    table = Table(box=None, caption="identifiable reproduce NAME [--quick]", caption_justify="left")
    table.add_column("recipe", no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("fits, quick", justify="right", no_wrap=True)
    previous = None
    for recipe in RECIPES.values():
        paper, _, place = recipe.source.partition("), ")
        if paper != previous:
            table.add_row("")
            table.add_row(Text(recipe.name.split("/")[0], "bold"), Text(f"{paper})", "bold"))
        fits, quick = (len(recipe.cells(quick=quick)) for quick in (False, True))
        table.add_row(f"  {recipe.name}", Text.assemble(recipe.title, (f"  {place}", "dim")), f"{fits}, {quick}")
        previous = paper
    return table


def rendered(found: Reproduction) -> Table:
    """Return the table of a run for a terminal: settings by methods on the main metric; all metrics of one setting."""
    recipe = found.recipe
    tables = tables_of(Sweep(recipe, found.results.records))
    if not tables:
        return Table(title=f"{recipe.name}: {recipe.title}", caption=_caption(found))
    left: dict[str, object] = {"title_justify": "left", "caption_justify": "left", "box": SIMPLE, "padding": (0, 1)}
    table = next(iter(tables.values()))
    return table.terminal(title=f"{recipe.name}: {recipe.title}", caption=_caption(found), **left)


def _caption(found: Reproduction) -> str:
    results = found.results
    words = [f"{results.done} cells done"]
    words += [f"{results.failed} failed"] * (results.failed > 0) + [f"{len(results.missing)} missing"] * bool(
        results.missing
    )
    small = "A smaller version: fewer rows, seeds and steps than the paper. " if _is_quick(results.records) else ""
    return small + ", ".join(words) + ". Mean ± sd over seeds; † does not beat the best trivial baseline."


def _is_quick(records: Sequence[Record]) -> bool:
    return any(r.cell.size == "quick" for r in records)


def show(found: Reproduction, console: Console | None = None) -> None:
    """Print the table, what failed, and where the page is."""
    console = console or Console()
    console.print(rendered(found))
    for record in found.results.records:
        if record.status != "done":
            console.print(
                f"failed: {record.cell.setting}, {record.cell.method}, seed {record.cell.seed}: {record.error}",
                markup=False,
                style="red",
            )
    console.print(f"\nWritten: {found.page} and {found.csv.name} beside it.", highlight=False, markup=False)
