"""The report of an experiment: `report.html` for readers, `report.md` for repositories, `results.csv` for programs."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from identifiable import files
from identifiable.errors import join_few
from identifiable.experiments.recipe import QUICK, Recipe, Record
from identifiable.experiments.summary import ROUNDING, per_run
from identifiable.report.experiment_figures import blocks, correlations, images, panels, restarts
from identifiable.report.experiment_markdown import sweep_markdown
from identifiable.report.experiment_tables import certificates, failures, glance, numbers, short, times
from identifiable.report.html import Fact, Page, Section, render, to_the_minute
from identifiable.report.sweep import Sweep, label_of

PARTS = (short, glance, panels, numbers, correlations, blocks, images, restarts, times, certificates, failures)


def write_report(
    recipe: Recipe, records: Sequence[Record], folder: str | Path, *, missing: int = 0
) -> tuple[Path, Path]:
    """Write `report.html`, `report.md` and `results.csv` to a folder, each all or nothing; return page and table.

    The page is one file that opens offline; `missing` is the number of runs without a record.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page, table = folder / "report.html", folder / "results.csv"
    sweep = Sweep(recipe, records, missing)
    html, runs = sweep_page(sweep), per_run(records).to_csv(index=False, lineterminator="\n")
    files.write_bytes(table, runs.encode())
    files.write_bytes(folder / "report.md", sweep_markdown(sweep, _facts(sweep), _notices(sweep)).encode())
    return html.write(page), table


def sweep_page(sweep: Sweep) -> Page:
    """Return the page of an experiment, without the sections that have no data."""
    sections = [section for part in PARTS if (section := part(sweep)) is not None]
    return Page(
        title=sweep.recipe.title,
        sections=[*sections, _reading(sweep)],
        kicker=f"identifiable · {sweep.recipe.name}",
        question=sweep.recipe.question,
        source=sweep.recipe.source,
        notices=_notices(sweep),
        facts=_facts(sweep),
    )


def _notices(sweep: Sweep) -> list[str]:
    found = []
    if _is_quick(sweep):
        found.append(
            f"Quick version{_what_is_smaller(sweep)}: its numbers are not comparable with those of the full version."
        )
    if not sweep.runs:
        found.append("There are no results yet.")
    elif sweep.missing:
        total = len(sweep.runs) + sweep.missing
        found.append(f"Incomplete: {sweep.missing} of {total} runs are missing from all numbers below.")
    return found


def _is_quick(sweep: Sweep) -> bool:
    return any(r.run.size == QUICK for r in sweep.runs)


def _what_is_smaller(sweep: Sweep) -> str:
    recipe, smaller = sweep.recipe, sweep.recipe.smaller
    words = [f"{_seeds(sweep)} instead of {recipe.seeds} seeds"] if _seeds(sweep) < recipe.seeds else []
    if smaller.settings is not None and len(smaller.settings) < len(recipe.settings):
        words.append(f"{len(smaller.settings)} of {len(recipe.settings)} settings")
    words += [f"{name} = {value}" for name, value in smaller.values.items()]
    left = [method for method in recipe.methods if _is_left_out(sweep, method)]
    words += [f"without {join_few(left, most=3)}"] if left else []
    short = [method for method in recipe.methods if smaller.params.get(method)]
    words += [f"shorter fits of {join_few(short, most=3)}"] if short else []
    return f" ({'; '.join(words)})" if words else ""


def _seeds(sweep: Sweep) -> int:
    return len({r.run.seed for r in sweep.runs})


def _seed_words(sweep: Sweep) -> str:
    """Write the number of seeds, and the methods that have fewer."""
    most = _seeds(sweep)
    each = {m: len({r.run.seed for r in sweep.runs if r.run.method == m}) for m in sweep.methods}
    fewer = [f"{method} {count}" for method, count in each.items() if count < most]
    return f"{most}" + (f" ({', '.join(fewer)})" if fewer else "") if most else ""


def _facts(sweep: Sweep) -> list[Fact]:
    done, failed = len(sweep.done), len(sweep.failed)
    finished = [r.finished for r in sweep.runs if r.finished]
    packages = dict.fromkeys(name for r in sweep.runs for name in r.versions)
    versions = ", ".join(f"{p} {_each(r.versions[p] for r in sweep.runs if p in r.versions)}" for p in packages)
    return [
        Fact("Runs", f"{done} done, {failed} failed, {sweep.missing} missing", alert=bool(failed or sweep.missing)),
        Fact("Settings × methods", f"{len(sweep.settings)} × {len(sweep.methods)}" if sweep.runs else ""),
        Fact("Seeds", _seed_words(sweep)),
        Fact("Finished", to_the_minute(max(finished, default=""))),
        Fact("Device", _each(r.device for r in sweep.runs)),
        Fact("Commit", _each((r.commit or "not in git")[:12] for r in sweep.runs)),
        Fact("Versions", versions),
        Fact("Command", _command(sweep), command=True),
    ]


def _each(values: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(values))


def _command(sweep: Sweep) -> str:
    recipe, quick = sweep.recipe, _is_quick(sweep)
    smaller, words = recipe.smaller, ["identifiable", "reproduce", recipe.name, *["--quick"] * quick]
    if not sweep.runs:
        return shlex.join(words)
    if _seeds(sweep) != (smaller.seeds if quick else recipe.seeds):
        words += ["--seeds", str(_seeds(sweep))]
    settings = smaller.settings if quick and smaller.settings is not None else recipe.settings
    methods = [method for method in recipe.methods if not _is_left_out(sweep, method)]
    for option, own, known in (("--setting", sweep.settings, settings), ("--method", sweep.methods, methods)):
        if len(own) < len(known):
            words += [word for name in own for word in (option, name)]
    return shlex.join(words)


def _is_left_out(sweep: Sweep, method: str) -> bool:
    return _is_quick(sweep) and sweep.recipe.smaller.params.get(method, {}) is None


def _reading(sweep: Sweep) -> Section:
    values = {"metric": label_of(sweep.main), "rounding": ROUNDING, "notes": sweep.recipe.notes}
    return Section("reading", "How to read this page", render("reading_experiment.html", **values))
