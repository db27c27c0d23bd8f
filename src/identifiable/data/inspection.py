"""Report what a table holds before anything is fitted: usable and excluded columns, rank, repeated values.

`read_table` refuses a table that is not numeric throughout. `inspect_table` uses what it can instead, and says for
every excluded column and row why it is excluded, and what to do if that was wrong. Missing values are never imputed:
imputed values repeat, and methods that look for inactive latents would mistake them for one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import skew

from identifiable.arrays import Array, BoolArray, FloatArray, IntArray
from identifiable.data.sample import Sample
from identifiable.data.table import Fault, Names, TableReader, float_blocks, read_table
from identifiable.errors import DataError, join_few

# Which columns and rows are used; all chosen by reasoning.
LEAST_ROWS = 100  # ten of them are held out in a fit
MOST_MISSING = 0.5  # of a column; with more the column is excluded instead of its rows
FEW_VALUES = 12  # a column with no more is a category, not a measurement
SKEWED = 2.0  # skewness of a positive column above which its logarithm is used
# How they are reported.
MOST_NAMES = 6  # in one sentence
MANY_ROWS = 0.05  # share of rows with a zero or a repeated value that is reported
WIDE_SCALES = 10  # ratio of the largest to the smallest standard deviation that is reported
RANK_WORK = 2e9  # multiplications spent on a rank
MOST_VALUES = 10**7  # values read for a rank, and sorted in search of repetitions
_PASS_AS_U = "Pass it as u if it says where a row comes from."
_NAME_IT = "Name it among the columns if it is a measurement."


@dataclass(frozen=True)
class TableSummary:
    """Facts about a table x (N, d).

    Attributes
    ----------
    n_rows : N.
    columns : the d names.
    constant : columns with one value only.
    duplicated : pairs of equal columns, the earlier first; constant ones are not repeated here.
    rank : number of directions in which the centred rows vary by more than the rounding of the numbers.
    rank_rows : rows from which the rank was computed; with fewer than N, the rank is a lower bound.
    zeros : share of exact zeros, by column.
    repeated : share of the rows whose value another row has, too, by column.
    repeated_rows : rows from which this was computed; with fewer than N, the shares are approximate lower bounds.
    """

    n_rows: int
    columns: tuple[str, ...]
    constant: tuple[str, ...]
    duplicated: tuple[tuple[str, str], ...]
    rank: int
    rank_rows: int
    zeros: tuple[float, ...]
    repeated: tuple[float, ...]
    repeated_rows: int

    def __str__(self) -> str:
        def shares(values: tuple[float, ...]) -> str:
            order = sorted(range(len(values)), key=lambda j: -values[j])
            return join_few([f"{self.columns[j]} {100 * values[j]:.3g} %" for j in order if values[j]]) or "none"

        least = f"at least {self.rank} ({self.rank_rows} rows)" if self.rank_rows < self.n_rows else f"{self.rank}"
        seen = f" (at least, {self.repeated_rows} rows)" if self.repeated_rows < self.n_rows else ""
        return (
            f"{self.n_rows} rows, {len(self.columns)} columns, rank {least}\n"
            f"constant columns: {join_few(self.constant) or 'none'}\n"
            f"duplicated columns: {join_few([f'{a} = {b}' for a, b in self.duplicated]) or 'none'}\n"
            f"repeated values: {shares(self.repeated)}{seen}\n"
            f"exact zeros: {shares(self.zeros)}"
        )


def describe(table: object) -> TableSummary:
    """Summarise a `Sample`, or whatever `read_table` reads.

    One pass over all rows finds constant and duplicated columns and zeros, exactly. The rank and the repeated values
    are computed from a seeded random subset of the rows where the table is large; the summary says from how many.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(100, 2))
    >>> x[:30, 1] = 0.0
    >>> print(describe(np.column_stack([x, x[:, 0], x[:, 0] + x[:, 1], np.ones(100)])))
    100 rows, 5 columns, rank 2
    constant columns: x4
    duplicated columns: x0 = x2
    repeated values: x4 100 %, x1 30 %
    exact zeros: x1 30 %
    """
    checked = read_table(table.x if isinstance(table, Sample) else table)
    names = (table.columns if isinstance(table, Sample) else None) or checked.columns or ()
    return _summarise(checked.x, names, _compare_columns(checked.x))


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
    skewed : columns that are positive throughout and skewed: their logarithm is the better measure.
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
            words.append(f"Positive and skewed, so their logarithm is used: {_quoted(self.skewed)}.")
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
        words = []
        for shares, what in ((self.summary.zeros, "exact zeros"), (self.summary.repeated, "repeated values")):
            pairs = zip(self.summary.columns, shares, strict=True)
            many = [f"{name!r} {100 * share:.0f} %" for name, share in pairs if share > MANY_ROWS]
            if many:
                words.append(f"Columns with {what}: {join_few(many, most=MOST_NAMES)}.")
        return words or ["No column has many zeros or repeated values."]

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
    left_out = _unusable(x, reader.columns, table.not_numbers, named=columns is not None or shape is not None)
    usable = np.array([j for j, name in enumerate(reader.columns) if name not in left_out], dtype=np.int64)
    if not len(usable):
        reasons = join_few([f"\n  {name!r}: {why}" for name, why in left_out.items()], "")
        raise DataError(f"No column of numbers is left:{reasons}")
    rows = np.flatnonzero(np.isfinite(x[:, usable]).all(axis=1) & np.isfinite(table.u_numbers).all(axis=1))
    missing = {reader.columns[j]: int(count) for j in usable if (count := np.isnan(x[:, j]).sum())}
    if len(rows) < LEAST_ROWS:
        raise DataError(_too_few_rows(len(rows), len(x), missing))
    x_usable, names = x[np.ix_(rows, usable)], [reader.columns[j] for j in usable]
    facts = _compare_columns(x_usable)
    if shape is None:  # an image keeps all its pixels
        left_out |= _redundant(x_usable, facts, names, keep_categories=columns is not None)
    kept = np.array([k for k, name in enumerate(names) if name not in left_out], dtype=np.int64)
    if not facts.varies[kept].any():
        raise DataError(f"No column varies: {_quoted(names)}. There is nothing to explain.")
    places = usable[kept]
    x_used, names_used = x_usable[:, kept], tuple(names[k] for k in kept)
    whole_image = shape if len(places) == x.shape[1] else None
    return TableInspection(
        sample=Sample(x=x_used, u=reader.split_u(table.u[rows]), columns=names_used, image_shape=whole_image),
        rows=rows,
        n_rows=reader.n_rows,
        n_columns=x.shape[1],
        left_out=left_out,
        summary=_summarise(x_used, names_used, facts.subset(kept)),
        skewed=() if shape else tuple(np.array(names_used)[skewed(x_used)].tolist()),
        u=reader.u_columns,
        missing=missing,
        picture=shape,
        background=np.nan_to_num(x[rows].mean(axis=0)) if shape else None,
        places=places if shape else None,
    )


def skewed(x: FloatArray) -> BoolArray:
    """Return which columns of x (N, d) are positive throughout and skewed, so that their logarithm is used."""
    return (x.min(axis=0) > 0) & (skew(x, axis=0) > SKEWED)


def _unusable(x: Array, names: Sequence[str], not_numbers: Mapping[str, Fault], *, named: bool) -> dict[str, str]:
    """Return why columns are excluded before their rows are compared; with `named`, the user chose the columns."""
    reasons = {
        name: f"{fault.found} {_PASS_AS_U}" if fault.may_be_u else fault.found for name, fault in not_numbers.items()
    }
    for name, values in zip(names, x.T, strict=True):
        share, steps = np.isnan(values).mean(), np.diff(values)
        if share > MOST_MISSING:
            reasons[name] = f"missing in {100 * share:.0f} % of the rows."
        elif not named and name not in reasons and steps[0] != 0 and (steps == steps[0]).all():
            reasons[name] = f"a count of the rows. {_NAME_IT}"
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


@dataclass(frozen=True, eq=False)
class _ColumnFacts:
    """By column of x (N, d): smallest and largest value, share of exact zeros, number of the first equal column."""

    low: Array
    high: Array
    zeros: Array
    twin: IntArray

    @property
    def varies(self) -> BoolArray:
        return self.low < self.high

    def subset(self, kept: IntArray) -> "_ColumnFacts":
        """Return the facts on these columns, which are all different."""
        return _ColumnFacts(self.low[kept], self.high[kept], self.zeros[kept], np.arange(len(kept)))


def _compare_columns(x: FloatArray) -> _ColumnFacts:
    """Read all rows once, block by block; columns with equal random sums are then compared exactly."""
    d, rng = x.shape[1], np.random.default_rng(0)
    low, high, zeros, sums = np.full(d, np.inf), np.full(d, -np.inf), np.zeros(d), np.zeros(d)
    for _, block in float_blocks(x):
        values = np.ascontiguousarray(block, dtype=np.float64)
        low, high = np.minimum(low, values.min(axis=0)), np.maximum(high, values.max(axis=0))
        zeros += (values == 0).sum(axis=0)
        sums += (rng.random((len(values), 1)) * values).sum(axis=0)  # equal columns have equal sums
    twin = np.arange(d)
    different: dict[float, list[int]] = {}
    for j in range(d):
        earlier = different.setdefault(float(sums[j]), [])
        twin[j] = next((i for i in earlier if np.array_equal(x[:, i], x[:, j])), j)
        if twin[j] == j:
            earlier.append(j)
    return _ColumnFacts(low, high, zeros / len(x), twin)


def _redundant(x: Array, facts: _ColumnFacts, names: Sequence[str], *, keep_categories: bool) -> dict[str, str]:
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


def _summarise(x: FloatArray, names: Sequence[str], facts: _ColumnFacts) -> TableSummary:
    d, k = x.shape[1], int(facts.varies.sum())
    rng = np.random.default_rng(0)
    by_work = max(RANK_WORK / max(k, 1) ** 2, min(k, (RANK_WORK / max(k, 1)) ** 0.5))
    some = _random_rows(x, int(min(by_work, max(k, MOST_VALUES // max(k, 1)))), rng)
    ordered = np.sort(_random_rows(x, max(LEAST_ROWS, MOST_VALUES // d), rng), axis=0)
    repeated = np.zeros(ordered.shape, dtype=bool)
    repeated[1:] = ordered[1:] == ordered[:-1]
    repeated[:-1] |= repeated[1:]
    return TableSummary(
        n_rows=len(x),
        columns=tuple(names),
        constant=tuple(name for name, varies in zip(names, facts.varies, strict=True) if not varies),
        duplicated=tuple((names[i], names[j]) for j, i in enumerate(facts.twin.tolist()) if i != j and facts.varies[j]),
        rank=_rank(some, facts) if k else 0,
        rank_rows=len(some),
        zeros=tuple(facts.zeros.tolist()),
        repeated=tuple(repeated.mean(axis=0).tolist()),
        repeated_rows=len(ordered),
    )


def _random_rows(x: FloatArray, rows: int, rng: np.random.Generator) -> FloatArray:
    return x if rows >= len(x) else x[np.sort(rng.choice(len(x), size=rows, replace=False))]


def _rank(x: FloatArray, facts: _ColumnFacts) -> int:
    """Return the rank of the centred columns, each in units of its range.

    A value |x_j| <= m_j carries a rounding of eps m_j, which in these units is eps m_j / range_j: singular values (by
    sqrt(N)) near it are not counted.
    """
    low, high, values = facts.low[facts.varies], facts.high[facts.varies], x[:, facts.varies].astype(np.float64)
    r = np.linalg.qr((values - values.mean(axis=0)) / (high - low), mode="r")
    singular = np.linalg.svd(r, compute_uv=False) / np.sqrt(len(x))
    rounding = np.finfo(x.dtype).eps * np.max(np.maximum(abs(low), abs(high)) / (high - low))
    return int(np.sum(singular > 10 * np.sqrt(len(low)) * rounding))
