"""An experiment as Markdown: the tables of its page, for a repository, a paper or a message."""

from identifiable.report.experiment_tables import key, tables_of
from identifiable.report.html import Fact
from identifiable.report.sweep import Sweep
from identifiable.report.table import escape_markdown


def sweep_markdown(sweep: Sweep, facts: list[Fact], notices: list[str]) -> str:
    """Return the whole text: question, facts, and a table for each metric."""
    recipe = sweep.recipe
    failed = [f"{r.run.setting}, {r.run.method}, seed {r.run.seed}: {r.error}" for r in sweep.failed]
    parts = [
        f"# {escape_markdown(recipe.name)}: {escape_markdown(recipe.title)}",
        f"{escape_markdown(recipe.question)} ({escape_markdown(recipe.source)})",
        *(f"**{escape_markdown(notice)}**" for notice in notices),
        "\n".join(f"- {fact.name}: {_value(fact)}" for fact in facts if fact.value),
        escape_markdown(recipe.notes),
        *(f"## {escape_markdown(title)}\n\n{table.markdown()}" for title, table in tables_of(sweep).items()),
        f"Mean ± sd over seeds; {'; '.join(item.striptags() for item in key(sweep))}." if sweep.rows else "",
        "\n".join(["## Failed runs\n", *(f"- {escape_markdown(line)}" for line in failed)]) if failed else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _value(fact: Fact) -> str:
    return f"`{fact.value}`" if fact.command and "`" not in fact.value else escape_markdown(fact.value)
