"""Run a recipe and write its results: a table in the terminal, a page, and a table of all runs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
from rich.console import Console

from identifiable.errors import DataError
from identifiable.experiments.measure import best_device, measure
from identifiable.experiments.papers import find
from identifiable.experiments.recipe import FAILED, QUICK, Recipe, Record, Run
from identifiable.experiments.run_folder import Results, collect, merge, read_records
from identifiable.experiments.runner import run_all
from identifiable.experiments.summary import kind_of, summarise
from identifiable.experiments.together import run_together
from identifiable.report.experiment_page import write_report
from identifiable.report.experiment_tables import terminal_table


@dataclass(frozen=True)
class Reproduction:
    """The results of a recipe: records, the summary of them, and the files written."""

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
    """Run a recipe; runs that the folder already holds are not repeated.

    Parameters
    ----------
    name, quick, seeds : the recipe, whether to run its smaller version, and the number of seeds.
    folder : where to write; default runs/NAME, with -quick for the smaller version.
    settings, methods : run only these.
    jobs, cluster, device, retry_failed : as in `run_all`; jobs defaults to the number of processors. "auto" uses a GPU
        for wide nets only: small ones are as fast on a processor, and there are more processors. "cuda" also fits the
        data sets of one estimator and size in one batch, where the estimator has `fit_many` (`run_together`).
    """
    recipe = find(name)
    folder = Path(folder) if folder is not None else default_folder(name, quick=quick)
    runs = select(recipe, recipe.runs(seeds=seeds, quick=quick), settings, methods)
    if cluster is None:
        run_together(runs, folder, device=device, verbose=verbose)
    run_all(
        longest_first(runs),
        folder,
        measure=measure,
        jobs=jobs or os.cpu_count() or 1,
        cluster=cluster,
        device=partial(best_device, device=device),
        retry_failed=retry_failed,
        verbose=verbose,
    )
    return write_results(recipe, collect(runs, folder), folder)


def report(folders: Sequence[str | Path], into: str | Path | None = None) -> Reproduction:
    """Write the page of a run folder; several folders are merged into `into` first."""
    if len(folders) > 1 and into is None:
        raise DataError("Several run folders are merged into a new one: name it with -o.")
    if into is not None:
        merge(folders, into)
    folder = Path(into if into is not None else folders[0])
    records = read_records(folder)
    names = sorted({r.run.recipe for r in records})
    if len(names) != 1:
        raise DataError(
            f"A run folder must hold the runs of one recipe. {str(folder)!r} holds {', '.join(names) or 'none'}."
        )
    recipe = find(names[0])
    return write_results(recipe, Results(in_order(recipe, records)), folder)


def write_results(recipe: Recipe, results: Results, folder: Path) -> Reproduction:
    """Write the page and the table of all runs."""
    page, csv = write_report(recipe, results.records, folder, missing=len(results.missing))
    return Reproduction(recipe, results, summarise(recipe, results.records), page, csv)


def default_folder(name: str, *, quick: bool) -> Path:
    """Return runs/xu2026-table1, or runs/xu2026-table1-quick."""
    return Path("runs") / (name.replace("/", "-") + ("-quick" if quick else ""))


def select(recipe: Recipe, runs: Sequence[Run], settings: Sequence[str], methods: Sequence[str]) -> tuple[Run, ...]:
    """Return the runs of these settings and methods; all if none is named."""
    for kind, names, known in (
        ("setting", settings, [s.name for s in recipe.settings]),
        ("method", methods, list(recipe.methods)),
    ):
        if unknown := [name for name in names if name not in known]:
            raise DataError(f"{recipe.name} has no {kind} {unknown[0]!r}. It has: {'; '.join(known)}.")
    return tuple(r for r in runs if (not settings or r.setting in settings) and (not methods or r.method in methods))


def longest_first(runs: Sequence[Run]) -> list[Run]:
    """Sort by many latents first and baselines last, so that no long run is left at the end."""
    return sorted(runs, key=lambda run: (kind_of(run.method) == "baseline", -int(run.values.get("n", 0))))


def in_order(recipe: Recipe, records: Sequence[Record]) -> tuple[Record, ...]:
    """Return the records in the order of the recipe's settings and methods; unknown ones come last."""
    settings = {setting.name: i for i, setting in enumerate(recipe.settings)}
    methods = {name: i for i, name in enumerate(recipe.methods)}
    last = len(records)

    def place(record: Record) -> tuple[int, int, int]:
        run = record.run
        return settings.get(run.setting, last), methods.get(run.method, last), run.seed

    return tuple(sorted(records, key=place))


def show(found: Reproduction, console: Console | None = None) -> None:
    """Print the table, the failed runs, and the path of the page."""
    console, results = console or Console(), found.results
    console.print(terminal_table(found.recipe, results.records, _caption(results)))
    for record in results.records:
        if record.status == FAILED:
            run = record.run
            text = f"failed: {run.setting}, {run.method}, seed {run.seed}: {record.error}"
            console.print(text, markup=False, style="red")
    console.print(f"\nWrote {found.page} and {found.csv.name} beside it.", highlight=False, markup=False)


def _caption(results: Results) -> str:
    counts = {"done": results.done, "failed": results.failed, "missing": len(results.missing)}
    text = ", ".join(f"{count} {state}" for state, count in counts.items() if count or state == "done")
    quick = any(record.run.size == QUICK for record in results.records)
    small = "A smaller version: fewer rows, seeds and steps than the paper. " if quick else ""
    return f"{small}Runs: {text}. Mean ± sd over seeds; † does not beat the best trivial baseline."
