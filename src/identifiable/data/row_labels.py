"""Columns that number, date or name the rows: no measurements, but they say which row is which, and in what order."""

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from identifiable.arrays import Array
from identifiable.data.columns import monotone_columns

_NAME = re.compile(r"(time|date|datetime|timestamp|index|t)([\s_(\[/.,].*)?", re.IGNORECASE)
_MOMENT = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?|\d{1,2}:\d{2}.*")


def order_of_rows(x: Array, names: Sequence[str]) -> dict[str, str]:
    """Return which columns of x (N, d) are excluded as a time or an index of the rows, and why.

    A column that rises or falls strictly from row to row is one; one that is named "time", "date", "index" or "t" may
    repeat values.

    Examples
    --------
    >>> x = np.column_stack([np.arange(12) // 2, np.arange(12) / 100, np.arange(12) % 5])
    >>> list(order_of_rows(x, ["time (s)", "b", "c"]))
    ['time (s)', 'b']
    """
    found = {}
    for name, values, strict in zip(names, x.T, monotone_columns(x), strict=True):
        steps = np.diff(values[np.isfinite(values)])
        rises, falls = (steps >= 0).all(), (steps <= 0).all()
        if strict or (_NAME.fullmatch(name) and rises != falls and len(steps)):
            moves = "rises" if rises else "falls"
            hint = "" if strict else " To use it, name it in --column (columns=)."
            found[name] = f"a time or an index, as it {moves} from row to row.{hint}"
    return found


def row_labels(frame: pd.DataFrame, n_index: int) -> pd.DataFrame:
    """Return the first `n_index` columns, those of an index, and all that have a different value in every row."""
    different = [column.notna().all() and column.is_unique for _, column in frame.items()]
    return frame.iloc[:, [j for j, unique in enumerate(different) if unique or j < n_index]]


def has_sorted_dates(frame: pd.DataFrame) -> bool:
    """Return whether the dates or times of some column, or its numbers with decimals, rise or fall from row to row.

    Examples
    --------
    >>> has_sorted_dates(pd.DataFrame({"day": ["30.01.2024", "31.01.2024", "01.02.2024"], "id": list("abc")}))
    True
    """
    return any(_is_sorted(_moments(column)) for _, column in frame.items())


def _is_sorted(column: "pd.Series[Any] | None") -> bool:
    if column is None or column.nunique() < 2:
        return False
    return bool(column.is_monotonic_increasing or column.is_monotonic_decreasing)


def _moments(column: "pd.Series[Any]") -> "pd.Series[Any] | None":
    """Return dates, times and numbers with decimals, without missing ones; None if some value is none of these."""
    column = column.dropna()
    if column.dtype.kind in "mMf" or isinstance(column.dtype, pd.PeriodDtype):
        return column
    text = column.astype(str)
    if not len(text) or not text.map(lambda value: _MOMENT.fullmatch(value) is not None).all():
        return None
    for day_first in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # pandas reports how it reads the first value
            found = pd.to_datetime(text, errors="coerce", dayfirst=day_first)
        if found.notna().all():
            return found
    return None
