"""Facts about a table of numbers: constant and equal columns, rank, zeros and repeated values."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from identifiable.arrays import Array, BoolArray, FloatArray, IntArray
from identifiable.data.sample import Sample
from identifiable.data.table import float_blocks, read_table
from identifiable.errors import join_few

RANK_WORK = 2e9  # multiplications spent on a rank
MOST_VALUES = 10**7  # values read for a rank, and sorted in search of repetitions
LEAST_ROWS = 100  # sorted in search of repetitions


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
    return summarise(checked.x, names, compare_columns(checked.x))


@dataclass(frozen=True, eq=False)
class ColumnFacts:
    """By column of x (N, d): smallest and largest value, share of exact zeros, number of the first equal column."""

    low: Array
    high: Array
    zeros: Array
    twin: IntArray

    @property
    def varies(self) -> BoolArray:
        """Return which columns have more than one value."""
        return self.low < self.high

    def subset(self, kept: IntArray) -> "ColumnFacts":
        """Return the facts on these columns, which are all different."""
        return ColumnFacts(self.low[kept], self.high[kept], self.zeros[kept], np.arange(len(kept)))


def compare_columns(x: FloatArray) -> ColumnFacts:
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
    return ColumnFacts(low, high, zeros / len(x), twin)


def summarise(x: FloatArray, names: Sequence[str], facts: ColumnFacts) -> TableSummary:
    """Return the summary of x (N, d), whose columns have these names and facts."""
    d, k = x.shape[1], int(facts.varies.sum())
    rng = np.random.default_rng(0)
    by_work = max(RANK_WORK / max(k, 1) ** 2, min(k, (RANK_WORK / max(k, 1)) ** 0.5))
    some = random_rows(x, int(min(by_work, max(k, MOST_VALUES // max(k, 1)))), rng)
    ordered = np.sort(random_rows(x, max(LEAST_ROWS, MOST_VALUES // d), rng), axis=0)
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


def random_rows(x: FloatArray, rows: int, rng: np.random.Generator) -> FloatArray:
    """Return a random subset of the rows of x (N, d), in their order."""
    return x if rows >= len(x) else x[np.sort(rng.choice(len(x), size=rows, replace=False))]


def _rank(x: FloatArray, facts: ColumnFacts) -> int:
    """Return the rank of the centred columns, each in units of its range.

    A value |x_j| <= m_j carries a rounding of eps m_j, which in these units is eps m_j / range_j: singular values (by
    sqrt(N)) near it are not counted.
    """
    low, high, values = facts.low[facts.varies], facts.high[facts.varies], x[:, facts.varies].astype(np.float64)
    r = np.linalg.qr((values - values.mean(axis=0)) / (high - low), mode="r")
    singular = np.linalg.svd(r, compute_uv=False) / np.sqrt(len(x))
    rounding = np.finfo(x.dtype).eps * np.max(np.maximum(abs(low), abs(high)) / (high - low))
    return int(np.sum(singular > 10 * np.sqrt(len(low)) * rounding))
