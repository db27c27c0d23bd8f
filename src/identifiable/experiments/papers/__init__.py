"""Every published table and figure as a recipe: one module per paper, values only."""

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
        near = ", ".join(close) or "none"
        raise ValueError(f"There is no recipe {name!r}. Near it: {near}. `identifiable reproduce` lists all of them.")
    return RECIPES[name]


__all__ = ["RECIPES", "find"]
