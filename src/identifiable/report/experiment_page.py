"""The report of a sweep: `report.html` for people, `report.md` for repositories, `results.csv` for machines."""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from identifiable import files
from identifiable.errors import join_few
from identifiable.experiments.recipe import QUICK, Recipe, Record
from identifiable.experiments.summary import ROUNDING, per_run, summarise
from identifiable.report.experiment_figures import correlations, panels, restarts
from identifiable.report.experiment_markdown import sweep_text
from identifiable.report.experiment_shared import Sweep, label_of
from identifiable.report.experiment_tables import certificates, failures, glance, numbers, short, times
from identifiable.report.html import Fact, Page, Section, render

__all__ = ["summarise", "sweep_page", "write_report"]

PARTS = (short, glance, panels, numbers, correlations, restarts, times, certificates, failures)


def write_report(
    recipe: Recipe, records: Sequence[Record], folder: str | Path, *, missing: int = 0
) -> tuple[Path, Path]:
    """Write `report.html`, `report.md` and `results.csv` to a folder, each all or nothing; return page and table.

    The page is one file that opens offline; `missing` is the number of cells that have not been run.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page, table = folder / "report.html", folder / "results.csv"
    content = per_run(records).to_csv(index=False, lineterminator="\n")
    html, sweep = sweep_page(recipe, records, missing=missing), Sweep(recipe, records, missing)
    files.write_bytes(table, content.encode())
    files.write_bytes(folder / "report.md", sweep_text(sweep, _facts(sweep), _notices(sweep)).encode())
    return html.write(page), table


def sweep_page(recipe: Recipe, records: Sequence[Record], *, missing: int = 0) -> Page:
    """Return the page of a sweep; parts that have nothing to show are left out."""
    sweep = Sweep(recipe, records, missing)
    sections = [section for part in PARTS if (section := part(sweep)) is not None]
    return Page(
        title=recipe.title,
        sections=[*sections, _reading(sweep)],
        kicker=f"identifiable · {recipe.name}",
        question=recipe.question,
        source=recipe.source,
        notices=_notices(sweep),
        facts=_facts(sweep),
    )


def _notices(sweep: Sweep) -> list[str]:
    found = []
    if _is_quick(sweep):
        found.append(f"Quick: a smaller version{_what_is_smaller(sweep)}. Its numbers are not those of the full run.")
    if not sweep.runs:
        found.append("No cell has been run yet.")
    elif sweep.missing:
        total = len(sweep.runs) + sweep.missing
        found.append(f"An unfinished run: {sweep.missing} of {total} cells are missing from every number below.")
    return found


def _is_quick(sweep: Sweep) -> bool:
    return any(r.cell.size == QUICK for r in sweep.runs)


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
    return len({r.cell.seed for r in sweep.runs})


def _seed_words(sweep: Sweep) -> str:
    """Write how many seeds there are, and which methods have fewer."""
    most = _seeds(sweep)
    each = {m: len({r.cell.seed for r in sweep.runs if r.cell.method == m}) for m in sweep.methods}
    fewer = [f"{method} {count}" for method, count in each.items() if count < most]
    return f"{most}" + (f" ({', '.join(fewer)})" if fewer else "") if most else ""


def _facts(sweep: Sweep) -> list[Fact]:
    done, failed = len(sweep.done), len(sweep.failed)
    finished = [r.finished for r in sweep.runs if r.finished]
    packages = dict.fromkeys(name for r in sweep.runs for name in r.versions)
    versions = ", ".join(f"{p} {_each(r.versions[p] for r in sweep.runs if p in r.versions)}" for p in packages)
    facts = [
        Fact("Cells", f"{done} done, {failed} failed, {sweep.missing} missing", alert=bool(failed or sweep.missing)),
        Fact("Settings × methods", f"{len(sweep.settings)} × {len(sweep.methods)}" if sweep.runs else ""),
        Fact("Seeds", _seed_words(sweep)),
        Fact("Finished", _moment(max(finished)) if finished else ""),
        Fact("Device", _each(r.device for r in sweep.runs)),
        Fact("Commit", _each((r.commit or "outside git")[:12] for r in sweep.runs)),
        Fact("Versions", versions),
        Fact("Run it again", _command(sweep), command=True),
    ]
    return [fact for fact in facts if fact.value]


def _each(values: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(values))


def _moment(text: str) -> str:
    """Write a moment to the minute; what is not in ISO 8601 stays as it is.

    Examples
    --------
    >>> _moment("2026-05-03T10:20:30.5+00:00"), _moment("yesterday")
    ('2026-05-03 10:20 UTC', 'yesterday')
    """
    found = re.match(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)", text)
    return f"{found.group(1)} {found.group(2)} UTC" if found else text


def _command(sweep: Sweep) -> str:
    words, usual = ["identifiable", "reproduce", sweep.recipe.name], sweep.recipe.seeds
    if _is_quick(sweep):
        words.append("--quick")
        usual = sweep.recipe.smaller.seeds
    if sweep.runs and _seeds(sweep) != usual:
        words += ["--seeds", str(_seeds(sweep))]
    for option, own, all_of_them in (
        ("--setting", sweep.settings, sweep.recipe.smaller.settings if _is_quick(sweep) else None),
        ("--method", sweep.methods, [m for m in sweep.recipe.methods if not _is_left_out(sweep, m)]),
    ):
        known = all_of_them if all_of_them is not None else [s.name for s in sweep.recipe.settings]
        if sweep.runs and len(own) < len(known):
            words += [word for name in own for word in (option, name)]
    return shlex.join(words)


def _is_left_out(sweep: Sweep, method: str) -> bool:
    return _is_quick(sweep) and sweep.recipe.smaller.params.get(method, {}) is None


def _reading(sweep: Sweep) -> Section:
    main = label_of(sweep.main)
    lines = [
        "Every seed draws new data and starts every method anew; ± is the standard deviation over seeds.",
        "Agreement between restarts and the score need no truth, and are what a fit to your own data can tell; MCC and "
        "R² compare with the true latents, on rows that were not fitted, and can be had only where these are known.",
        f"Against published, on {main}: better or worse if the means differ by more than the standard deviation of "
        f"their difference, √(sd² + sd²), where an sd that is not known counts as 0, and by more than {ROUNDING}, the "
        "rounding of printed numbers. A method is compared with the published number that the recipe names for it, or "
        "else with the best one of the setting.",
        "Against the baselines: a method beats them if its mean is better than that of every trivial baseline on the "
        "same draws. One that does not has shown nothing on that setting.",
    ]
    return Section("reading", "How to read this page", render("reading.html", lines=lines, notes=sweep.recipe.notes))
