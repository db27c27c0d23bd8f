"""The first look at a table that was not made for this library: what can be used, what cannot, and what is striking.

`read_table` refuses a table that is not numeric throughout. `inspect_table` uses what it can instead, and says
for every column and row it drops why, and what to do if that was wrong. Missing values are never imputed: imputed
values repeat, and methods that look for inactive latents would take them for one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import skew

from identifiable.arrays import FloatArray, IntArray
from identifiable.data.sample import Sample
from identifiable.data.summary import TableSummary, describe
from identifiable.data.tables import Names, TableReader, numbers_of, why_not_numbers
from identifiable.errors import DataError, join_few

LEAST_ROWS = 100
MOST_MISSING = 0.5  # of a column, before it is left out instead of its rows
FEW_VALUES = 12  # a column with no more is a category, not a measurement
SKEWED = 2.0  # skewness of a positive column from which its logarithm is taken
AS_U = "Pass it as u if it says where a row comes from."
MANY = 6  # names in one sentence
MANY_ROWS = 0.05  # share of rows with a zero or a repeated value that is worth a word


@dataclass(frozen=True, eq=False)
class TableInspection:
    """A table as it can be used, and what was left out on the way.

    Attributes
    ----------
    sample : the usable rows and columns: finite numbers, columns that vary and differ; u as it came.
    rows : (N,) numbers of the usable rows among all, counted from 0.
    n_rows, n_columns : of the whole table, the columns of u apart.
    left_out : why each unusable column is left out.
    summary : of the usable part.
    skewed : columns that are positive throughout and skewed: their logarithm is the better measure.
    u : names of the columns of the auxiliary variable.
    missing : missing or infinite values of each usable column that has some.
    picture, background, places : where rows are pictures, their shape, the mean of every pixel, and which pixels the
        usable columns are.
    """

    sample: Sample
    rows: IntArray
    n_rows: int
    n_columns: int
    left_out: Mapping[str, str]
    summary: TableSummary
    skewed: tuple[str, ...] = ()
    u: tuple[str, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict)
    picture: tuple[int, ...] | None = None
    background: FloatArray | None = None
    places: IntArray | None = None

    def pictures(self, x: FloatArray) -> FloatArray:
        """Return rows of usable columns (N, d) as pictures (N, height, width) or (N, height, width, channels)."""
        if self.picture is None or self.background is None:
            raise ValueError("The rows of this table are no pictures.")
        whole = np.repeat(self.background[None], len(x), axis=0)
        whole[:, self.places] = x
        return whole.reshape(len(x), *self.picture)

    @property
    def words(self) -> tuple[str, ...]:
        """What was seen, a sentence each, the most important first."""
        x = self.sample.x
        words = [f"{self.n_rows} rows, {self.n_columns} columns; used: {len(x)} rows, {x.shape[1]} columns."]
        if self.picture is not None:
            words.append(f"Every row is a picture of {' x '.join(map(str, self.picture))} pixels.")
            if self.left_out:
                words.append(f"Left out: {len(self.left_out)} pixels that are constant or copies of others.")
        else:
            words += [f"Left out: {name!r}, {why}" for name, why in list(self.left_out.items())[:MANY]]
            if len(self.left_out) > MANY:
                words.append(f"And {len(self.left_out) - MANY} more columns are left out, for reasons of these kinds.")
        if len(x) < self.n_rows:
            most = sorted(self.missing, key=lambda name: -self.missing[name])
            where = join_few([f"{name!r} {self.missing[name]}" for name in most], most=MANY)
            words.append(f"Left out: {self.n_rows - len(x)} rows with missing or infinite values ({where}).")
        words.append(self._of_rank())
        if self.picture is None:  # pixels repeat, and are dark in many pictures
            words += self._of_values()
        if self.skewed:
            names = join_few([repr(name) for name in self.skewed], most=MANY)
            words.append(f"Positive and skewed, so their logarithm is used: {names}.")
        words.append(self._of_u())
        return tuple(words)

    def _of_rank(self) -> str:
        rank, d = self.summary.rank, self.sample.x.shape[1]
        what = "columns" if self.picture is None else "pixels"
        scales = self.sample.x.std(axis=0, dtype=np.float64)
        ratio = float(scales.max() / scales.min())
        apart = f" Their scales differ by a factor of {ratio:.2g}; every column is standardised." if ratio > 10 else ""
        if self.picture is not None:
            apart = " All pixels keep one scale."
        if rank < d:
            return f"The {what} have rank {rank}: {d - rank} of {d} follow from the others linearly.{apart}"
        return f"No {what[:-1]} follows from the others linearly (rank {rank}).{apart}"

    def _of_values(self) -> list[str]:
        s, words = self.summary, []
        for shares, what in ((s.zeros, "exact zeros"), (s.repeated, "values that repeat")):
            many = [
                f"{name!r} {100 * share:.0f} %" for name, share in zip(s.columns, shares, strict=True) if share > 0.05
            ]
            if many:
                words.append(f"Columns with {what}: {join_few(many, most=MANY)}.")
        return words or ["No column has many zeros or repeated values."]

    def _of_u(self) -> str:
        if not self.u:
            return "No auxiliary variable u was named: latents are looked for in the columns alone."
        u = np.asarray(self.sample.u)
        if u.ndim == 1:
            return f"u is {self.u[0]!r}, with {len(pd.unique(u))} different values."
        return f"u has {u.shape[1]} columns: {join_few([repr(name) for name in self.u], most=MANY)}."

    def __str__(self) -> str:
        return "\n".join(self.words)


def inspect_table(
    source: object, *, u: Names | None = None, columns: Names | None = None, key: str | None = None
) -> TableInspection:
    """Take what can be used of a table, and say what was seen.

    Parameters
    ----------
    source, u, columns, key : as for `read_table`. Columns that are named are taken even if they hold few values.

    Raises
    ------
    DataError
        Too little is left: fewer than 100 rows, or no column of numbers.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> frame = pd.DataFrame({"a": rng.normal(size=300), "name": [f"cell {i}" for i in range(300)]})
    >>> frame["b"], frame["c"] = frame["a"], rng.normal(size=300)
    >>> frame.loc[7, "c"] = np.nan
    >>> print(inspect_table(frame))
    300 rows, 4 columns; used: 299 rows, 2 columns.
    Left out: 'name', text that never repeats, as an id does, first 'cell 0' in row 0, 300 of 300 values.
    Left out: 'b', the same as 'a'.
    Left out: 1 rows with missing or infinite values ('c' 1).
    No column follows from the others linearly (rank 2).
    No column has many zeros or repeated values.
    No auxiliary variable u was named: latents are looked for in the columns alone.
    """
    reader = TableReader(source, u=u, columns=columns, key=key)
    frame, beside = reader.unchecked()
    left_out: dict[str, str] = {}
    numbers: dict[str, FloatArray] = {}
    for name, column in frame.items():
        found = numbers_of(column)
        if found is None:
            what, cure = why_not_numbers(column, str(name), 0)
            left_out[str(name)] = (
                what if "u=" not in cure else f"{what} Pass it as u if it says where a row comes from."
            )
        else:
            numbers[str(name)] = np.where(np.isfinite(found), found, np.nan)
    missing = {name: int(np.isnan(values).sum()) for name, values in numbers.items()}
    for name, count in missing.items():
        if count > MOST_MISSING * len(frame):
            left_out[name] = f"missing in {100 * count / len(frame):.0f} % of the rows."
        elif columns is None and not count and _counts_rows(numbers[name]):
            left_out[name] = "a count of the rows. Name it among the columns if it is a measurement."
    usable = [name for name in numbers if name not in left_out]
    if not usable:
        reasons = join_few([f"\n  {name!r}: {why}" for name, why in left_out.items()], "")
        raise DataError(f"No column of numbers is left:{reasons}")
    x = np.column_stack([numbers[name] for name in usable])
    whole = np.isfinite(x).all(axis=1) & beside.notna().to_numpy().all(axis=1)
    rows = np.flatnonzero(whole)
    if len(rows) < LEAST_ROWS:
        raise DataError(_too_few(len(rows), len(frame), {name: missing[name] for name in usable}))
    x = x[rows]
    asked = () if columns is None else reader.columns
    left_out |= _of_no_use(x, usable, asked, reader.image_shape is not None)
    kept = [j for j, name in enumerate(usable) if name not in left_out]
    if not kept:
        raise DataError(f"No column varies: {join_few([repr(name) for name in usable])}. There is nothing to explain.")
    x, names = x[:, kept], tuple(usable[j] for j in kept)
    image = reader.image_shape if len(kept) == frame.shape[1] else None
    sample = Sample(x=x, u=_u_of(beside, rows, u), columns=names, image_shape=image)
    return TableInspection(
        sample=sample,
        rows=rows,
        n_rows=len(frame),
        n_columns=frame.shape[1],
        left_out=left_out,
        summary=describe(sample),
        skewed=() if reader.image_shape is not None else tuple(np.array(names)[skewed(x)].tolist()),
        u=tuple(map(str, beside.columns)),
        missing={name: count for name, count in missing.items() if count and name in usable},
        picture=reader.image_shape,
        background=None if reader.image_shape is None else frame.to_numpy(dtype=np.float64).mean(0),
        places=None if reader.image_shape is None else np.array([frame.columns.get_loc(name) for name in names]),
    )


def _of_no_use(x: FloatArray, names: list[str], asked: tuple[str, ...], pictures: bool) -> dict[str, str]:
    """Say which columns are constant, copies or categories."""
    found: dict[str, str] = {}
    seen: dict[bytes, str] = {}
    few = []
    for name, column in zip(names, x.T, strict=True):
        twin = seen.setdefault(np.ascontiguousarray(column).tobytes(), name)
        values = np.unique(column)
        if len(values) == 1:
            found[name] = "constant."
        elif twin != name:
            found[name] = f"the same as {twin!r}."
        elif len(values) <= FEW_VALUES and name not in asked and not pictures:
            few.append((name, len(values)))
    if 2 * len(few) < len(names) - len(found):  # a table of categories is taken as it is
        for name, count in few:
            found[name] = f"{count} different values only. {AS_U} Name it among the columns if it is a measurement."
    return found


def _counts_rows(values: FloatArray) -> bool:
    steps = np.diff(values)
    return bool(steps[0] != 0 and (steps == steps[0]).all())


def _u_of(beside: pd.DataFrame, rows: IntArray, u: Names | None) -> NDArray[Any] | None:
    if not beside.shape[1]:
        return None
    values = [beside.iloc[rows, j].to_numpy() for j in range(beside.shape[1])]
    return values[0] if isinstance(u, str) else np.column_stack([v.astype(object) for v in values])


def skewed(x: FloatArray) -> NDArray[np.bool_]:
    """Return which columns of x (N, d) are positive throughout and skewed, so that their logarithm is taken."""
    return (x.min(axis=0) > 0) & (skew(x, axis=0) > SKEWED)


def _too_few(left: int, all_rows: int, missing: Mapping[str, int]) -> str:
    worst = sorted((name for name in missing if missing[name]), key=lambda name: -missing[name])
    where = f" Most are missing in {join_few([f'{n!r} ({missing[n]})' for n in worst], most=MANY)}." if worst else ""
    return f"At least {LEAST_ROWS} rows without a missing value are needed; {left} of {all_rows} have none.{where} " + (
        "Leave out columns with many missing values (columns=), or bring more rows." if worst else "Bring more rows."
    )
