"""A sweep as Markdown: the tables of its page, for a repository, a paper or a message."""

import math
from typing import Any

from identifiable.experiments.summary import BEATS, as_printed
from identifiable.report.experiment_shared import Sweep, label_of
from identifiable.report.html import Fact
from identifiable.report.table import digits_for, printed, spread


def sweep_text(sweep: Sweep, facts: list[Fact], notices: list[str]) -> str:
    """Return the whole text: what it is, how it was made, and a table for each metric."""
    recipe = sweep.recipe
    parts = [
        f"# {plain(recipe.name)}: {plain(recipe.title)}",
        f"{plain(recipe.question)} ({plain(recipe.source)})",
        *(f"**{plain(notice)}**" for notice in notices),
        "\n".join(f"- {fact.name}: {_value(fact)}" for fact in facts),
        plain(recipe.notes),
        *_tables(sweep),
        *(_failures(sweep)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _value(fact: Fact) -> str:
    return f"`{fact.value}`" if fact.command and "`" not in fact.value else plain(fact.value)


def _tables(sweep: Sweep) -> list[str]:
    metrics = [m for m in sweep.recipe.metrics if any(math.isfinite(row[f"{m}_mean"]) for row in sweep.rows)]
    if not metrics:
        return []
    legend = "Mean ± sd over seeds; bold where the mean is better than that of every trivial baseline."
    if len(sweep.settings) == 1:
        methods = [row for kind in ("method", "baseline", "published") for row in sweep.rows if row["kind"] == kind]
        rows = [[_name(row), *(_entry(sweep, row, m) for m in metrics)] for row in methods]
        return [f"## {plain(sweep.settings[0])}", legend, _table(["", *map(label_of, metrics)], rows)]
    parts = []
    for metric in metrics:
        heading = f"## {label_of(metric)}"
        names = dict.fromkeys(_name(row) for row in sweep.rows if math.isfinite(row[f"{metric}_mean"]))
        own = {(row["setting"], _name(row)): row for row in sweep.rows}
        rows = [
            [plain(s), *(_entry(sweep, own[s, n], metric) if (s, n) in own else "" for n in names)]
            for s in sweep.settings
        ]
        parts += [heading, *([legend] if metric == sweep.main else []), _table(["", *names], rows)]
    return parts


def _name(row: dict[str, Any]) -> str:
    name = plain(row["method"])
    return f"published: {plain(as_printed(row['method']))}" if row["kind"] == "published" else name


def _entry(sweep: Sweep, row: dict[str, Any], metric: str) -> str:
    mean, sd = row[f"{metric}_mean"], row[f"{metric}_sd"]
    if not math.isfinite(mean):
        return ""
    digits = digits_for([r[f"{metric}_mean"] for r in sweep.rows])
    if row["kind"] == "published":
        return printed(mean, digits, "") + (f" ± {printed(sd, digits, '')}" if math.isfinite(sd) else "")
    text = spread(mean, sd, digits)
    return f"**{text}**" if metric == sweep.main and row["against_baselines"] == BEATS else text


def _failures(sweep: Sweep) -> list[str]:
    failed = [f"- {plain(f'{r.cell.setting}, {r.cell.method}, seed {r.cell.seed}: {r.error}')}" for r in sweep.failed]
    return ["## Failed", "\n".join(failed)] if failed else []


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(text: str) -> str:
    r"""Return text that Markdown shows as it is.

    Examples
    --------
    >>> print(plain("<b>|z|</b> of a_1"))
    \<b\>\|z\|\</b\> of a\_1
    """
    return "".join(f"\\{c}" if c in "\\`*_<>[]|" else " " if c in "\r\n" else c for c in text)
