"""Published tables and figures as recipes: one module per paper, with values only."""

import difflib

from identifiable.experiments.papers import ivae, kivva, willetts, xu2026
from identifiable.experiments.recipe import Recipe

RECIPES: dict[str, Recipe] = {r.name: r for paper in (xu2026, ivae, willetts, kivva) for r in paper.RECIPES}


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
