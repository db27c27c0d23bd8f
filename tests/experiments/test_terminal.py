"""The table of recipes."""

from rich.console import Console

from identifiable.experiments.papers import RECIPES
from identifiable.experiments.terminal import recipe_table


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
