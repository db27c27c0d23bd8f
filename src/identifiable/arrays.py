"""Array aliases, blocks and splits of rows, and checks of numbers, for every package."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]
Rows = NDArray[np.int64]  # row numbers

BLOCK = 8192  # rows per block


def is_integer(value: Any, at_least: int) -> bool:
    """Return whether value is an integer (and not a bool) with at least this value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= at_least)


def is_real(value: Any, above: float, below: float = np.inf) -> bool:
    """Return whether value is a real number with above < value < below."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(above < value < below)


def hold_out(rows: int, seed: int, *, fraction: float = 0.1, most: int = 1000) -> tuple[Rows, Rows]:
    """Split row numbers at random into training rows and at most `most` held-out rows.

    If fewer than ten rows would be held out, both parts are all rows, since so few cannot measure a score.

    Examples
    --------
    >>> train, held = hold_out(1000, seed=0)
    >>> len(train), len(held), len(np.intersect1d(train, held))
    (900, 100, 0)
    """
    held = min(int(rows * fraction), most)
    if held < 10:
        return np.arange(rows), np.arange(rows)
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[held:]), np.sort(order[:held])
