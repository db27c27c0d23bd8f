"""The observed auxiliary variable u: a segment, a condition, a dose, the time; one column or several, of any kind.

Methods that condition on u see it in one of two ways: as the number of a group of rows that share a value of u
(`Auxiliary.codes`), or as features for a net (`Auxiliary.features`). Categorical columns are grouped by their observed
combinations; continuous ones by quantiles, or by k-means where there are several.
"""

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin

from identifiable.arrays import is_integer
from identifiable.data.formats import check_names, is_broken, to_array
from identifiable.errors import DataError, join_few

KINDS = ("auto", "categorical", "continuous")
REPEATS = 5  # rows per distinct value from which whole numbers count as categories
MOST_GROUPS, ROWS_PER_GROUP = 40, 100  # of continuous columns, unless the number of groups is given

_Floats = NDArray[np.float64]
_Codes = NDArray[np.int64]
_Categories = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, eq=False)
class Auxiliary:
    """How rows of u become one of G groups, or p features. Made by `Auxiliary.of`.

    Attributes
    ----------
    columns, kinds : name and kind ("categorical" or "continuous") of each column.
    categories : the sorted levels of each column; () for a continuous one.
    location, scale : (q,) mean and standard deviation of the q continuous columns.
    combinations : (G, c) level of each of the c categorical columns in each group.
    centres : (G, q) standardised centre of each group.
    weights : (G,) shares of the training rows.
    labels : (G,) readable names of the groups.

    Examples
    --------
    >>> u = Auxiliary.of(["b", "a", "b", "b"], rows=4)
    >>> u.codes(["a", "b"]), u.labels, u.weights
    (array([0, 1]), ('a', 'b'), array([0.25, 0.75]))
    >>> u.features(["b"])
    array([[0., 1.]])
    >>> t = Auxiliary.of(np.arange(1000.0), rows=1000, n_groups=4)
    >>> t.labels[0], t.codes([0.0, 300.0, 5000.0]).tolist()
    ('u in [0, 250]', [0, 1, 3])
    """

    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    categories: _Categories
    location: _Floats
    scale: _Floats
    combinations: _Codes
    centres: _Floats
    weights: _Floats
    labels: tuple[str, ...]

    @classmethod
    def of(cls, u: Any, rows: int, u_types: str | Sequence[str] = "auto", n_groups: int | None = None) -> "Auxiliary":
        """Learn the groups and the features from u, (N,) or (N, m), of as many rows as X has.

        Parameters
        ----------
        u : array, list, Series or DataFrame; columns may be of different types. Dates count as seconds.
        rows : N.
        u_types : str or list of str, default="auto". "categorical", "continuous" or "auto", for all columns or one per
            column. "auto" makes text, objects and truth values categorical, and whole numbers of any type with at most
            N / 5 distinct values; all others are continuous.
        n_groups : int or None, default=None. Number of groups of the continuous columns, at least 2; None uses one per
            100 rows, 2 to 40. Each combination of the categorical columns gets a share by its rows, at least one group.
        """
        if not (n_groups is None or is_integer(n_groups, 2)):
            raise ValueError(f"n_groups must be an integer >= 2 or None. Got {n_groups!r}.")
        table = _columns(u)
        if len(table[0]) != rows:
            raise DataError(f"u must have one row per row of X: X has {rows}, u has {len(table[0])}.")
        if all(column.nunique() < 2 for column in table):
            raise DataError(
                "u must have at least two distinct values: one value for all rows says nothing about latents."
            )
        kinds = _kinds(table, u_types)
        categories = tuple(
            _sorted(column.unique()) if kind == "categorical" else () for column, kind in zip(table, kinds, strict=True)
        )
        numbers = _numbers(table, kinds)
        location, scale = numbers.mean(0), numbers.std(0)
        scale = np.where(scale > 1e-12 * np.abs(location), scale, 1.0)
        levels, values = _levels(table, categories), (numbers - location) / scale
        key = _keys(levels, categories)
        _, first, counts = np.unique(key, return_index=True, return_counts=True)
        total = n_groups if n_groups is not None else max(2, min(MOST_GROUPS, rows // ROWS_PER_GROUP))
        share = [max(1, round(total * count / rows)) for count in counts]
        centres = [_centres(values[key == key[row]], k) for row, k in zip(first, share, strict=True)]
        combinations, stacked = np.repeat(levels[first], [len(c) for c in centres], axis=0), np.concatenate(centres)
        names = tuple(str(column.name) for column in table)
        draft = cls(names, kinds, categories, location, scale, combinations, stacked, np.ones(0), ())
        present, codes, sizes = np.unique(draft.codes(u), return_inverse=True, return_counts=True)
        draft = replace(draft, combinations=combinations[present], centres=stacked[present], weights=sizes / rows)
        return replace(draft, labels=tuple(draft._label(g, numbers[codes == g]) for g in range(len(present))))

    @property
    def n_groups(self) -> int:
        """G."""
        return len(self.combinations)

    @property
    def all_categorical(self) -> bool:
        """Whether no column is continuous."""
        return "continuous" not in self.kinds

    @property
    def group_features(self) -> _Floats:
        """Features (G, p) of the groups' centres."""
        return _features(self.combinations, self.categories, self.centres)

    def codes(self, u: ArrayLike) -> _Codes:
        """Return the group (N,) of each row of u: that of its categories, and of the nearest centre there.

        A combination of categories that no training row had is an error.
        """
        levels, values = self._encode(u)
        own, key = _keys(self.combinations, self.categories), _keys(levels, self.categories)
        new = np.unique(levels[~np.isin(key, own)], axis=0)
        if len(new):
            unseen = join_few([self._named(combination) for combination in new], "; ")
            raise DataError(f"u has combinations that no training row had: {unseen}. Drop their rows or refit.")
        if self.all_categorical:
            return np.searchsorted(own, key).astype(np.int64)
        codes = np.empty(len(key), dtype=np.int64)
        for one in np.unique(key):
            rows, at = np.flatnonzero(key == one), np.flatnonzero(own == one)
            codes[rows] = at[pairwise_distances_argmin(values[rows], self.centres[at])]
        return codes

    def features(self, u: ArrayLike) -> _Floats:
        """Return (N, p): the categorical columns one-hot, all levels, then the continuous ones, standardised."""
        levels, values = self._encode(u)
        return _features(levels, self.categories, values)

    def repeated(self, u: Any, rows: int) -> pd.DataFrame:
        """Return u as a table of as many rows, from one row for each, or from a single one: 3, "low", ("t", 0.5)."""
        several = len(self.columns) > 1
        if np.ndim(u) == (1 if several else 0):
            u = [tuple(u) if several else u]
        table = [column.reset_index(drop=True) for column in self._checked(u)]
        if len(table[0]) not in (1, rows):
            raise DataError(f"u must be one value, or one for each of the {rows} rows. Got {len(table[0])} rows.")
        whole = pd.concat(table, axis=1, keys=self.columns)
        return whole if len(whole) == rows else whole.iloc[np.zeros(rows, dtype=np.int64)]

    def _checked(self, u: Any) -> list["pd.Series[Any]"]:
        """Return the columns of new rows, as many as in fit and named as there."""
        table, m = _columns(u), len(self.columns)
        if len(table) != m:
            raise DataError(f"u must have {m} column(s) as in fit ({join_few(self.columns)}). Got {len(table)}.")
        names = tuple(str(column.name) for column in table)
        if isinstance(u, pd.DataFrame) and self.columns != _default_names(m) and names != self.columns:
            raise DataError(f"The columns of u must be those of fit: {join_few(self.columns)}. Got {join_few(names)}.")
        return table

    def _encode(self, u: Any) -> tuple[_Codes, _Floats]:
        """Return the levels (N, c) and the standardised numbers (N, q) of new rows."""
        table = self._checked(u)
        return _levels(table, self.categories), (_numbers(table, self.kinds) - self.location) / self.scale

    def _named(self, levels: _Codes) -> str:
        """Name a combination (c,) of levels: texts stand for themselves, other values come after their column."""
        own = [(name, values) for name, values in zip(self.columns, self.categories, strict=True) if values]
        parts = []
        for (name, values), level in zip(own, levels, strict=True):
            value = values[level]
            number = f"{value:g}" if isinstance(value, float) else value
            parts.append(value if isinstance(value, str) else f"{name} {number}")
        return ", ".join(parts)

    def _label(self, g: int, numbers: _Floats) -> str:
        """Name group g by its levels, and by the range of its rows, or its centre where columns are several."""
        names = [name for name, kind in zip(self.columns, self.kinds, strict=True) if kind == "continuous"]
        if len(names) == 1:
            where = [f"{names[0]} in [{numbers.min():.3g}, {numbers.max():.3g}]"]
        else:
            middle = self.location + self.scale * self.centres[g]
            where = [f"{name} near {value:.3g}" for name, value in zip(names, middle, strict=True)]
        return ", ".join(filter(None, [self._named(self.combinations[g]), *where]))


def _columns(u: Any) -> list["pd.Series[Any]"]:
    """Return the columns of u, complete, finite and named; pandas infers the types of what has none."""
    table = _frame(u)
    if not table.shape[1]:
        raise DataError("u has no columns. Pass at least one.")
    check_names([str(name) for name in table.columns], "u")
    columns = [table.iloc[:, i] for i in range(table.shape[1])]
    for i, column in enumerate(columns):
        if pd.api.types.is_datetime64_any_dtype(column.dtype):
            columns[i] = (pd.to_datetime(column, utc=True) - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
        if pd.api.types.is_complex_dtype(column.dtype):
            raise DataError(f"u must be real, but {column.name} is complex. Pass its parts as two columns.")
        bad = columns[i].isna().to_numpy() | columns[i].isin([np.inf, -np.inf]).to_numpy()
        if bad.any():
            raise DataError(
                f"u must be complete and finite: {bad.sum()} values of {column.name} are missing, NaN or infinite, the "
                f"first in row {bad.argmax()}. Drop these rows from X and u."
            )
        if column.dtype == object:
            for row, value in enumerate(column):
                if not isinstance(value, Hashable) or (isinstance(value, str) and is_broken(value)):
                    raise DataError(
                        f"Values of u must be numbers, dates or valid text. {column.name} has {value!a} in row {row}."
                    )
    return columns


def _frame(u: Any) -> pd.DataFrame:
    if u is None:
        raise DataError(
            "The auxiliary variable u is needed: fit requires y to be passed, but the target y is None. Pass u as y, "
            "the second argument."
        )
    if isinstance(u, pd.DataFrame):
        return u
    if isinstance(u, pd.Series):
        return u.to_frame(name="u" if u.name is None else u.name)
    # A list may hold rows of text and numbers, which one array cannot; a list of tensors is an array.
    is_list = isinstance(u, list | tuple) and len(u) > 0 and not hasattr(u[0], "detach")
    rows = list(u) if is_list else to_array(u, "u")
    if isinstance(rows, np.ndarray) and (rows.ndim not in (1, 2) or rows.size == 0):
        raise DataError(f"u must have shape (N,) or (N, m). Got {rows.shape}.")
    table = pd.DataFrame(rows, dtype=object)
    with suppress(UnicodeEncodeError):  # text that pandas cannot store stays an object, and is refused later
        table = table.infer_objects()
    return table.set_axis(_default_names(table.shape[1]), axis=1)


def _default_names(m: int) -> tuple[str, ...]:
    return ("u",) if m == 1 else tuple(f"u{i + 1}" for i in range(m))


def _kinds(table: list["pd.Series[Any]"], kinds: str | Sequence[str]) -> tuple[str, ...]:
    """Return the kind of each column, "categorical" or "continuous"; "auto" is decided."""
    asked = [kinds] * len(table) if isinstance(kinds, str) else list(kinds)
    if len(asked) != len(table) or not all(kind in KINDS for kind in asked):
        raise ValueError(
            f"u_types must be 'auto', 'categorical', 'continuous', or one of these for each of the {len(table)} "
            f"column(s) of u. Got {kinds!r}."
        )
    for i, column in enumerate(table):
        numeric = pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype)
        if asked[i] == "continuous" and not numeric:
            raise DataError(
                f"u_types says 'continuous', but {column.name} is not of numbers: {_plain(column.iloc[0])!r} for "
                "instance. Use 'categorical', or pass numbers."
            )
        if asked[i] == "auto":
            whole = numeric and bool((column % 1 == 0).all()) and REPEATS * column.nunique() <= len(column)
            asked[i] = "categorical" if whole or not numeric else "continuous"
    return tuple(asked)


def _plain(value: Any) -> Any:
    """Turn a category into what JSON keeps: a truth value, a number or a text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, bool | int | float | str) else str(value)


def _sorted(levels: Any) -> tuple[Any, ...]:
    return tuple(sorted({_plain(level) for level in levels}, key=lambda level: (isinstance(level, str), level)))


def _levels(table: list["pd.Series[Any]"], categories: _Categories) -> _Codes:
    """Return the level (N, c) of each categorical column."""
    levels = [np.empty((len(table[0]), 0), dtype=np.int64)]
    for column, own in zip(table, categories, strict=True):
        if own:
            position = {level: k for k, level in enumerate(own)}
            numbers, values = pd.factorize(column)
            unseen = sorted(repr(_plain(value)) for value in values if _plain(value) not in position)
            if unseen:
                raise DataError(
                    f"u has values of {column.name} that no training row had: {join_few(unseen)}. Drop their rows or "
                    "refit."
                )
            levels.append(np.array([position[_plain(value)] for value in values])[numbers, None])
    return np.hstack(levels)


def _keys(levels: _Codes, categories: _Categories) -> _Codes:
    """Give each combination (N, c) of levels one number (N,), in their sorted order."""
    keys = np.zeros(len(levels), dtype=np.int64)
    for level, own in zip(levels.T, filter(None, categories), strict=True):
        keys = keys * len(own) + level
    return keys


def _numbers(table: list["pd.Series[Any]"], kinds: tuple[str, ...]) -> _Floats:
    """Return the continuous columns (N, q)."""
    numbers = [np.empty((len(table[0]), 0))]
    for column, kind in zip(table, kinds, strict=True):
        if kind == "continuous":
            try:
                numbers.append(column.to_numpy(dtype=np.float64)[:, None])
            except (TypeError, ValueError):
                raise DataError(f"{column.name} must be of numbers, as in fit. Got {column.iloc[0]!r}.") from None
    return np.hstack(numbers)


def _centres(values: _Floats, k: int) -> _Floats:
    """Return at most k centres, rising, of values (N, q): the middles of the quantiles, or those of k-means."""
    if values.shape[1] == 0:
        return np.empty((1, 0))
    if values.shape[1] == 1:
        return np.unique(np.quantile(values, (np.arange(k) + 0.5) / k, method="nearest"))[:, None]
    k = min(k, len(np.unique(values, axis=0)))
    return np.unique(KMeans(k, n_init=4, random_state=0).fit(values).cluster_centers_, axis=0)


def _features(levels: _Codes, categories: _Categories, numbers: _Floats) -> _Floats:
    blocks = [np.eye(len(own))[level] for level, own in zip(levels.T, filter(None, categories), strict=True)]
    return np.hstack([*blocks, numbers])
