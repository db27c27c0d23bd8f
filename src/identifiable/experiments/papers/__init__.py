"""Published tables and figures as recipes: one module per paper, with values only; the published numbers are a CSV."""

import difflib
from dataclasses import replace
from pathlib import Path

from identifiable.experiments.papers import ivae, kivva, willetts, xu2026
from identifiable.experiments.recipe import Recipe, read_published

PUBLISHED = read_published(Path(__file__).with_name("published.csv"))
RECIPES: dict[str, Recipe] = {
    recipe.name: replace(recipe, published=PUBLISHED.get(recipe.name, ()))
    for paper in (xu2026, ivae, willetts, kivva)
    for recipe in paper.RECIPES
}


def find(name: str) -> Recipe:
    """Return the recipe of this name.

    Examples
    --------
    >>> find("kivva/table2").title
    'Three parallelograms'
    """
    if name not in RECIPES:
        close = difflib.get_close_matches(name, RECIPES, n=3, cutoff=0.3)
        similar = ", ".join(close) or "none"
        raise ValueError(
            f"There is no recipe {name!r}. Similar: {similar}. `identifiable reproduce` lists all recipes."
        )
    return RECIPES[name]


__all__ = ["RECIPES", "find"]
