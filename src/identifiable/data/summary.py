"""What a table looks like before anything is fitted."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from identifiable.arrays import FloatArray
from identifiable.data import tables
from identifiable.data.sample import Sample
from identifiable.errors import join_few

_RANK_WORK = 2e9  # multiplications a rank may take
_SORTED_VALUES = 10**7  # values that may be sorted in search of repetitions


@dataclass(frozen=True)
class TableSummary:
    """Facts about a table x (N, d).

    Attributes
    ----------
    n_rows : N.
    columns : the d names.
    constant : columns with one value only.
    duplicated : pairs of equal columns, the earlier first; constant ones are not repeated here.
    rank : directions in which the centred rows vary by more than the rounding of the numbers.
    rank_rows : rows the rank was taken from; where fewer than N, the rank is a lower bound.
    zeros : share of exact zeros, by column.
    repeated : share of the rows whose value another row has, too, by column.
    repeated_rows : rows this was taken from; where fewer than N, the shares are lower bounds, roughly.
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

    One pass over all rows finds constant and duplicated columns and zeros, exactly; the rank and the repeated values
    are taken from a seeded draw of rows where the table is large, and the summary says from how many.

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
    checked = tables.read_table(table.x if isinstance(table, Sample) else table)
    names = (table.columns if isinstance(table, Sample) else None) or checked.columns or ()
    x, (n, d) = checked.x, checked.x.shape
    rng = np.random.default_rng(0)

    low, high, total, zeros, keys = np.full(d, np.inf), np.full(d, -np.inf), np.zeros(d), np.zeros(d), np.zeros(d)
    for block in _float_blocks(x):
        low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
        total += block.sum(axis=0)
        zeros += (block == 0).sum(axis=0)
        keys += (rng.random((len(block), 1)) * block).sum(axis=0)  # equal columns have equal keys
    varies = np.flatnonzero(low < high)
    pairs = []
    seen: dict[float, list[int]] = {}
    for j in varies:
        same = seen.setdefault(float(keys[j]), [])
        twin = next((i for i in same if np.array_equal(x[:, i], x[:, j])), None)
        if twin is None:
            same.append(int(j))
        else:
            pairs.append((names[twin], names[j]))

    k = len(varies)
    some = _draw(x, int(max(_RANK_WORK / max(k, 1) ** 2, min(k, (_RANK_WORK / max(k, 1)) ** 0.5))), rng)
    sorted_values = np.sort(_draw(x, max(100, _SORTED_VALUES // d), rng), axis=0)
    equal = sorted_values[1:] == sorted_values[:-1]
    repeated = np.zeros(sorted_values.shape, dtype=bool)
    repeated[1:] |= equal
    repeated[:-1] |= equal
    return TableSummary(
        n_rows=n,
        columns=names,
        constant=tuple(names[j] for j in np.flatnonzero(low == high)),
        duplicated=tuple(pairs),
        rank=_rank(some, varies, low, high) if k else 0,
        rank_rows=len(some),
        zeros=tuple((zeros / n).tolist()),
        repeated=tuple(repeated.mean(axis=0).tolist()),
        repeated_rows=len(sorted_values),
    )


def _float_blocks(x: FloatArray) -> Iterator[NDArray[np.float64]]:
    step = max(1, tables.BLOCK_VALUES // x.shape[1])
    for start in range(0, len(x), step):
        yield np.ascontiguousarray(x[start : start + step], dtype=np.float64)


def _draw(x: FloatArray, rows: int, rng: np.random.Generator) -> FloatArray:
    return x if rows >= len(x) else x[np.sort(rng.choice(len(x), size=rows, replace=False))]


def _rank(x: FloatArray, varies: NDArray[np.intp], low: NDArray[np.float64], high: NDArray[np.float64]) -> int:
    """Return the rank of the centred columns, each in units of its range.

    The R of the QR decomposition is updated block by block. A value |x_j| <= m_j carries a rounding of eps m_j, which
    in these units is eps m_j / range_j: singular values (by sqrt(N)) near it are not counted.
    """
    span, centre = (high - low)[varies], x.mean(axis=0, dtype=np.float64)[varies]
    r: NDArray[Any] = np.zeros((0, len(varies)))
    for block in _float_blocks(x):
        r = np.asarray(np.linalg.qr(np.vstack([r, (block[:, varies] - centre) / span]), mode="r"))
    rounding = np.finfo(x.dtype).eps * np.max(np.maximum(abs(low), abs(high))[varies] / span)
    singular = np.linalg.svd(r, compute_uv=False) / np.sqrt(len(x))
    return int(np.sum(singular > 10 * np.sqrt(len(varies)) * rounding))
