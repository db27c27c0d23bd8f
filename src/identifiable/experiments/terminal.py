"""The table of all recipes for the terminal."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from identifiable.experiments.recipe import Recipe


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
