"""Report what a table holds before anything is fitted: usable and excluded columns, rank, repeated values.

`read_table` refuses a table that is not numeric throughout. `inspect_table` uses what it can instead, and says for
every excluded column and row why it is excluded, and what to do if that was wrong. Missing values are never imputed:
imputed values repeat, and methods that look for inactive latents would mistake them for one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.stats import skew

from identifiable.arrays import Array, BoolArray, FloatArray, IntArray
from identifiable.data.columns import ColumnKind, column_kinds
from identifiable.data.row_labels import has_sorted_dates, order_of_rows, row_labels
from identifiable.data.sample import Sample
from identifiable.data.summary import (
    MOST_VALUES,
    ColumnFacts,
    TableSummary,
    compare_columns,
    random_rows,
    summarise,
)
from identifiable.data.table import Fault, Names, TableReader
from identifiable.errors import DataError, join_few

# Which columns and rows are used; all chosen by reasoning.
LEAST_ROWS = 100  # ten of them are held out in a fit
MOST_MISSING = 0.5  # of a column; with more the column is excluded instead of its rows
FEW_VALUES = 12  # a column with no more is a category, not a measurement
SKEWED = 2.0  # skewness of a positive column above which its logarithm is tried, too
# How they are reported.
MOST_NAMES = 6  # in one sentence
MANY_ROWS = 0.05  # share of rows with a zero or a repeated value that is reported
WIDE_SCALES = 10  # ratio of the largest to the smallest standard deviation that is reported
_PASS_AS_U = "Pass it as u if it says where a row comes from."
_NAME_IT = "Name it among the columns if it is a measurement."


@dataclass(frozen=True, eq=False)
class TableInspection:
    """A table as it can be used, and what was excluded.

    Attributes
    ----------
    sample : the usable rows and columns: finite numbers, columns that vary and differ; u as it came.
    rows : (N,) numbers of the usable rows in the table, counted from 0.
    n_rows, n_columns : size of the whole table, without the columns of u.
    left_out : reason for each excluded column.
    summary : summary of the usable part.
    skewed : columns that are positive throughout and skewed, so that their logarithm may be the better measure.
    kinds : kind of values of each usable column, from a seeded random subset of the rows where the table is large.
    ordered : whether the rows are ordered: a column that was excluded, or the index, is a time or an index.
    labels : (n_rows, ...) excluded columns that identify every row, such as ids and times, after the index if it does.
    u : names of the columns of the auxiliary variable.
    missing : number of missing or infinite values of each usable column that has some.
    picture, background, places : where rows are images, their shape, the mean of every pixel, and the positions of the
        usable columns among the pixels.
    """

    sample: Sample
    rows: IntArray
    n_rows: int
    n_columns: int
    left_out: Mapping[str, str]
    summary: TableSummary
    skewed: tuple[str, ...] = ()
    kinds: tuple[ColumnKind, ...] = ()
    ordered: bool = False
    labels: pd.DataFrame = field(default_factory=pd.DataFrame)
    u: tuple[str, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict)
    picture: tuple[int, ...] | None = None
    background: FloatArray | None = None
    places: IntArray | None = None

    def pictures(self, x: FloatArray) -> FloatArray:
        """Return rows of usable columns (N, d) as images (N, height, width) or (N, height, width, channels)."""
        if self.picture is None or self.background is None:
            raise ValueError("The rows of this table are no images.")
        whole = np.repeat(self.background[None], len(x), axis=0)
        whole[:, self.places] = x
        return whole.reshape(len(x), *self.picture)

    @property
    def words(self) -> tuple[str, ...]:
        """Findings, a sentence each, the most important first."""
        n, d = self.sample.x.shape
        words = [f"Usable: {n} of {self.n_rows} rows, {d} of {self.n_columns} columns."]
        if self.picture is not None:
            words.append(f"Every row is a picture of {' x '.join(map(str, self.picture))} pixels.")
            if self.left_out:
                words.append(f"Excluded: {len(self.left_out)} pixels that are missing in most images.")
            if self.summary.constant:
                words.append(f"{len(self.summary.constant)} pixels never change.")
        else:
            words += [f"Excluded: {name!r}, {why}" for name, why in list(self.left_out.items())[:MOST_NAMES]]
            if len(self.left_out) > MOST_NAMES:
                words.append(f"Excluded: {len(self.left_out) - MOST_NAMES} more columns, for reasons of these kinds.")
        if n < self.n_rows:
            where = f" ({_most_missing(self.missing)})" if self.missing else ""
            rows = "1 row" if self.n_rows - n == 1 else f"{self.n_rows - n} rows"
            words.append(f"Excluded: {rows} with missing or infinite values{where}.")
        words.append(self._rank())
        if self.picture is None:  # pixels repeat, and are dark in many images
            words += self._repetitions()
        if self.skewed:
            words.append(f"Positive and skewed (their logarithm is tried, too): {_quoted(self.skewed)}.")
        return (*words, self._auxiliary())

    def _rank(self) -> str:
        rank, d = self.summary.rank, self.sample.x.shape[1]
        what = "columns" if self.picture is None else "pixels"
        if rank < d:
            found = f"The {what} have rank {rank}: {d - rank} of {d} are linear combinations of the others."
        else:
            found = f"No {what[:-1]} is a linear combination of the others (rank {rank})."
        if self.picture is not None:
            return f"{found} All pixels keep one scale."
        scales = self.sample.x.std(axis=0)
        ratio = float(scales.max() / scales.min())
        if ratio <= WIDE_SCALES:
            return found
        return f"{found} Their scales differ by a factor of {ratio:.2g}; every column is standardised."

    def _repetitions(self) -> list[str]:
        names, zeros = self.summary.columns, self.summary.zeros
        many_zeros = [
            f"{name!r} {100 * share:.0f} %" for name, share in zip(names, zeros, strict=True) if share > MANY_ROWS
        ]
        discrete = [f"{name!r} {kind.n_values}" for name, kind in self._kinds if kind.discrete]
        rounded = [f"{n!r} {k.coarseness:.2g}" for n, k in self._kinds if k.rounded and not k.discrete]
        findings = {
            "Columns with exact zeros": many_zeros,
            "Discrete columns, and their numbers of different values": discrete,
            "Rounded columns, and the step in standard deviations": rounded,
            "Columns that are rounded in part": [f"{name!r}" for name, kind in self._kinds if kind.heaped],
            "Columns that share their smallest or largest value, as at a detection limit": self._atoms(
                "minimum", "maximum"
            ),
            "Columns that share the mean or the median, as imputed values do": self._atoms("mean", "median"),
            "Columns that share another value": self._atoms("interior"),
        }
        words = [f"{what}: {join_few(found, most=MOST_NAMES)}." for what, found in findings.items() if found]
        return words or ["No column has many zeros or repeated values."]

    @property
    def _kinds(self) -> list[tuple[str, ColumnKind]]:
        return list(zip(self.summary.columns, self.kinds, strict=True)) if self.kinds else []

    def _atoms(self, *places: str) -> list[str]:
        """Return the columns with an atom other than zero at one of these places, and the share of the rows."""
        found = ((name, atom) for name, kind in self._kinds if not kind.heaped for atom in kind.atoms)
        return [f"{n!r} {100 * atom.share:.0f} %" for n, atom in found if atom.place in places and atom.value != 0]

    def _auxiliary(self) -> str:
        u = self.sample.u
        if u is None:
            return "No auxiliary variable u was given: latents are inferred from the columns alone."
        if u.ndim == 1:
            return f"u is {self.u[0]!r}, with {len(set(u.tolist()))} different values."
        return f"u has {u.shape[1]} columns: {_quoted(self.u)}."

    def __str__(self) -> str:
        return "\n".join(self.words)


def inspect_table(
    source: object, *, u: Names | None = None, columns: Names | None = None, key: str | None = None
) -> TableInspection:
    """Return the usable rows and columns of a table, and report what was found.

    Parameters
    ----------
    source, u, columns, key : see `read_table`. Columns that are named are used even if they hold few values.

    Raises
    ------
    DataError
        Too little is usable: fewer than 100 rows, or no column of numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> frame = pd.DataFrame({"a": rng.normal(size=300), "name": [f"cell {i}" for i in range(300)]})
    >>> frame["b"], frame["c"] = frame["a"], rng.normal(size=300)
    >>> frame.loc[7, "c"] = np.nan
    >>> print(inspect_table(frame))
    Usable: 299 of 300 rows, 2 of 4 columns.
    Excluded: 'name', text that never repeats, as an id does, first 'cell 0' in row 0, 300 of 300 values.
    Excluded: 'b', equal to 'a'.
    Excluded: 1 row with missing or infinite values ('c' 1).
    No column is a linear combination of the others (rank 2).
    No column has many zeros or repeated values.
    No auxiliary variable u was given: latents are inferred from the columns alone.
    """
    reader = TableReader(source, u=u, columns=columns, key=key)
    table, shape = reader.inspect(), reader.image_shape
    x = np.where(np.isfinite(table.x), table.x, np.nan).astype(np.float64)
    orders = {} if columns is not None or shape is not None else order_of_rows(x, reader.columns)
    left_out = orders | _unusable(x, reader.columns, table.not_numbers)
    usable = np.array([j for j, name in enumerate(reader.columns) if name not in left_out], dtype=np.int64)
    if not len(usable):
        reasons = join_few([f"\n  {name!r}: {why}" for name, why in left_out.items()], "")
        raise DataError(f"No column of numbers is left:{reasons}")
    rows = np.flatnonzero(np.isfinite(x[:, usable]).all(axis=1) & np.isfinite(table.u_numbers).all(axis=1))
    missing = {reader.columns[j]: int(count) for j in usable if (count := np.isnan(x[:, j]).sum())}
    if len(rows) < LEAST_ROWS:
        raise DataError(_too_few_rows(len(rows), len(x), missing))
    x_usable, names = x[np.ix_(rows, usable)], [reader.columns[j] for j in usable]
    facts = compare_columns(x_usable)
    if shape is None:  # an image keeps all its pixels
        left_out |= _redundant(x_usable, facts, names, keep_categories=columns is not None)
    kept = _kept_columns(names, facts, left_out, of_images=shape is not None)
    places = usable[kept]
    x_used, names_used = x_usable[:, kept], tuple(names[k] for k in kept)
    excluded = reader.labels([*orders, *(name for name, fault in table.not_numbers.items() if fault.names_rows)])
    return TableInspection(
        sample=Sample(
            x=x_used,
            u=reader.split_u(table.u[rows]),
            columns=names_used,
            image_shape=shape if len(places) == x.shape[1] else None,
        ),
        rows=rows,
        n_rows=reader.n_rows,
        n_columns=x.shape[1],
        left_out=left_out,
        summary=summarise(x_used, names_used, facts.subset(kept)),
        skewed=() if shape else tuple(np.array(names_used)[skewed(x_used)].tolist()),
        kinds=() if shape else _kinds_of_some(x_used),
        ordered=bool(orders) or has_sorted_dates(excluded),
        labels=row_labels(excluded, reader.labels(()).shape[1]),
        u=reader.u_columns,
        missing=missing,
        picture=shape,
        background=np.nan_to_num(x[rows].mean(axis=0)) if shape else None,
        places=places if shape else None,
    )


def _kept_columns(
    names: Sequence[str], facts: ColumnFacts, left_out: Mapping[str, str], *, of_images: bool
) -> IntArray:
    """Return the numbers of the columns that are not excluded; refuse them if they cannot be a mixture."""
    kept = np.array([k for k, name in enumerate(names) if name not in left_out], dtype=np.int64)
    varying = [names[k] for k in kept if facts.varies[k]]
    if not varying:
        raise DataError(f"No column varies: {_quoted(names)}. There is nothing to explain.")
    if len(varying) == 1 and not of_images:
        reasons = join_few([f"\n  {name!r}: {why}" for name, why in left_out.items()], "")
        raise DataError(
            "One column cannot be a mixture of several latents: bring two or more columns of measurements. Only "
            f"{varying[0]!r} is left{':' if reasons else '.'}{reasons}"
        )
    return kept


def _kinds_of_some(x: FloatArray) -> tuple[ColumnKind, ...]:
    return column_kinds(random_rows(x, max(LEAST_ROWS, MOST_VALUES // x.shape[1]), np.random.default_rng(0)))


def skewed(x: FloatArray) -> BoolArray:
    """Return which columns of x (N, d) are positive throughout and skewed, so that their logarithm is tried, too."""
    return (x.min(axis=0) > 0) & (skew(x, axis=0) > SKEWED)


def _unusable(x: Array, names: Sequence[str], not_numbers: Mapping[str, Fault]) -> dict[str, str]:
    """Return why columns are excluded before their rows are compared."""
    reasons = {
        name: f"{fault.found} {_PASS_AS_U}" if fault.may_be_u else fault.found for name, fault in not_numbers.items()
    }
    for name, share in zip(names, np.isnan(x).mean(axis=0), strict=True):
        if share > MOST_MISSING:
            reasons[name] = f"missing in {100 * share:.0f} % of the rows."
    return reasons


def _too_few_rows(left: int, n_rows: int, missing: Mapping[str, int]) -> str:
    found = f"At least {LEAST_ROWS} rows without a missing value are needed; {left} of {n_rows} have none."
    if not missing:
        return f"{found} Bring more rows."
    cure = "Leave out columns with many missing values (columns=), or bring more rows."
    return f"{found} Most are missing in {_most_missing(missing)}. {cure}"


def _most_missing(missing: Mapping[str, int]) -> str:
    worst = sorted(missing.items(), key=lambda pair: -pair[1])
    return join_few([f"{name!r} {count}" for name, count in worst], most=MOST_NAMES)


def _quoted(names: Sequence[str]) -> str:
    return join_few([repr(name) for name in names], most=MOST_NAMES)


def _redundant(x: Array, facts: ColumnFacts, names: Sequence[str], *, keep_categories: bool) -> dict[str, str]:
    """Return which columns are excluded since they are constant, equal to others, or categories among measurements."""
    reasons, categories = {}, {}
    for j, (name, twin) in enumerate(zip(names, facts.twin.tolist(), strict=True)):
        if not facts.varies[j]:
            reasons[name] = "constant."
        elif twin != j:
            reasons[name] = f"equal to {names[twin]!r}."
        elif not keep_categories and (count := len(np.unique(x[:, j]))) <= FEW_VALUES:
            categories[name] = f"only {count} different values. {_PASS_AS_U} {_NAME_IT}"
    measurements_prevail = 2 * len(categories) < len(names) - len(reasons)
    return reasons | categories if measurements_prevail else reasons
