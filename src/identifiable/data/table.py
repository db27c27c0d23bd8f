"""The user's own data: a file, a folder of images, a DataFrame or an array becomes a checked `Sample`.

Two modes share one inspection of the columns. `read_table` is strict: it uses every row or refuses the table, and one
error names every column that cannot be used. `inspect_table` is lenient: it excludes what cannot be used, and reports
it. Neither drops, fills in or guesses anything silently. Rows are counted from 0, without the header line.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from identifiable.arrays import Array, FloatArray
from identifiable.data.formats import Opened, Rows, check_names, open_source, parquet_blocks
from identifiable.data.sample import Sample
from identifiable.errors import DataError, join_few

BLOCK_VALUES = 2**21  # values processed together: 16 MiB of float64
MEMORY_MAP_BYTES = 2**28  # an .npy above 256 MiB stays on disk
PARQUET_ROWS = 2**20  # rows of one batch where a whole .parquet is read
MOST_CATEGORIES = 20  # distinct texts that count as a category, or a tenth of the rows
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?")
_OF_LATENTS = re.compile(r"row|z\d+")  # columns of latents.csv
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")

Names = str | Sequence[str]


@dataclass(frozen=True)
class Fault:
    """Why a column cannot be used, and how to fix it.

    `may_be_u` where it could be the auxiliary variable, `names_rows` where it could say which row is which.
    """

    found: str
    cure: str
    may_be_u: bool = False
    names_rows: bool = False

    def __str__(self) -> str:
        return f"{self.found} {self.cure}"


@dataclass(frozen=True, eq=False)
class Columns:
    """Inspected columns: x (N, d), not finite where values are missing or infinite, 0 in the columns of `not_numbers`.

    u (N, m) is as it came; u_numbers (N, m) holds its numbers, and is NaN where text is missing.
    """

    x: FloatArray
    u: NDArray[Any]
    u_numbers: FloatArray
    not_numbers: dict[str, Fault]


def read_table(
    source: object, *, u: Names | None = None, columns: Names | None = None, key: str | None = None
) -> Sample:
    """Read a table of numbers, check it, and split off the auxiliary variable.

    Parameters
    ----------
    source : path, DataFrame or array-like. A path ends in .csv, .tsv, .parquet, .npy or .npz, or is a folder of images.
        An array is 2-D, or holds images (N, height, width) or (N, height, width, channels), whose pixels become the
        columns.
    u : str or list of str, default=None. Column with the auxiliary variable, kept as it is, text included; a list of
        names gives u two axes.
    columns : str or list of str, default=None. Columns that make x, in this order. None uses all except those of u.
    key : str, default=None. Name of the array in an .npz. None uses its only 2-D array, or its only array of images.

    Returns
    -------
    Sample with x (N, d), u (N,) or (N, m), and the d names (x0, x1, ... for arrays). x is float64, but float32 arrays
    stay float32. Integers are accepted, booleans as 0 and 1, and text that is a number throughout. An .npy of floats
    above 256 MiB stays on disk: x is then a read-only memory map if its columns are neighbours. Images, sorted by name,
    become rows of pixels in [0, 1]; other files of the folder are ignored.

    A .csv may also be separated by semicolons, tabs or bars, and then have decimal commas, as many spreadsheets write
    them. A first column without a name is the index that `DataFrame.to_csv` writes, and is skipped.

    Raises
    ------
    DataError
        The data cannot be used as they are.
    DamagedFileError
        The file cannot be read at all.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> x = np.random.default_rng(0).normal(size=(4, 2))
    >>> s = read_table(pd.DataFrame(x, columns=["a", "b"]).assign(site=list("ppqq")), u="site")
    >>> s, s.columns, s.u.tolist()
    (Sample(x=(4, 2), u=(4,)), ('a', 'b'), ['p', 'p', 'q', 'q'])
    >>> read_table([[1.0, 2.0], [np.nan, 3.0]])
    Traceback (most recent call last):
    identifiable.errors.DataError: The array: 1 of 2 columns cannot be used (rows are counted from 0):
      'x0': 1 missing value, first in row 1. Drop these rows or fill the values in.
    """
    return TableReader(source, u=u, columns=columns, key=key).read()


class TableReader:
    """A table read block by block, for tables larger than memory.

    An .npy is memory-mapped and a .parquet is read batch by batch; their `n_rows` and `columns` are known before any
    data are read. Other sources are read whole when the reader is made, and returned in blocks.

    Parameters
    ----------
    source, u, columns, key : see `read_table`.
    batch_rows : int, default=65536. Largest number of rows in one block.

    Attributes
    ----------
    n_rows : number of rows N.
    columns : names of the columns of x.
    u_columns : names of the columns of u.
    image_shape : shape of the images whose pixels are the columns; None if rows are no images.

    Examples
    --------
    >>> import numpy as np
    >>> reader = TableReader(np.random.default_rng(0).normal(size=(5, 3)), u="x2", batch_rows=2)
    >>> reader.n_rows, reader.columns, list(reader)
    (5, ('x0', 'x1'), [Sample(x=(2, 2), u=(2,)), Sample(x=(2, 2), u=(2,)), Sample(x=(1, 2), u=(1,))])
    """

    def __init__(
        self,
        source: object,
        *,
        u: Names | None = None,
        columns: Names | None = None,
        key: str | None = None,
        batch_rows: int = 65_536,
    ) -> None:
        if batch_rows < 1:
            raise ValueError(f"batch_rows must be at least 1. Got {batch_rows}.")
        self._source = opened = open_source(source, key)
        if opened.n_rows < 2:
            count = "one row" if opened.n_rows else "no rows"
            raise DataError(f"{opened.origin} has {count}: at least two rows are needed.")
        self.n_rows = opened.n_rows
        self.batch_rows = batch_rows
        self.columns, self.u_columns = _choose(opened, u, columns)
        self.image_shape = opened.image_shape if self.columns == opened.names else None
        self._one_u = isinstance(u, str)

    def __iter__(self) -> Iterator[Sample]:
        """Yield the blocks in order, each checked."""
        first = 0
        for block in self._blocks(self.batch_rows):
            yield self._sample(block, first)
            first += len(block)

    def read(self) -> Sample:
        """Return the whole table as one `Sample`; refuse it if any value cannot be used."""
        return self._sample(self._whole(), 0)

    def inspect(self) -> Columns:
        """Return the whole table with its faults, and refuse nothing."""
        return self._inspect(self._whole(), 0)

    def read_with_gaps(self) -> Array:
        """Return x (N, d) with NaN where values are missing or infinite; refuse columns that are not numbers."""
        found = self.inspect()
        if found.not_numbers:
            raise self._refusal(found.not_numbers, 0, self.n_rows)
        return np.where(np.isfinite(found.x), found.x, np.nan)

    def labels(self, names: Iterable[str]) -> pd.DataFrame:
        """Return the names of the rows, such as the index of a DataFrame, and these columns as they are (N, ...).

        Columns that the table does not have are skipped. Names that the latents have get the addition "(table)".
        """
        opened, chosen = self._source, set(names)
        kept = [name for name in opened.names if name in chosen]
        if isinstance(opened.rows, Path):
            frame = pd.concat(parquet_blocks(opened.rows, kept, PARQUET_ROWS)) if kept else pd.DataFrame()
        elif isinstance(opened.rows, pd.DataFrame):
            frame = opened.rows.iloc[:, [opened.names.index(name) for name in kept]]
        else:
            frame = pd.DataFrame(opened.rows[:, [opened.names.index(name) for name in kept]])
        frame = frame.set_axis(kept, axis=1).set_axis(range(self.n_rows), axis=0)
        if opened.row_names is not None:
            frame = pd.concat([opened.row_names, frame], axis=1)
        taken = [f"{name} (table)" if _OF_LATENTS.fullmatch(name) else name for name in map(str, frame.columns)]
        return frame.set_axis(taken, axis=1)

    def split_u(self, u: NDArray[Any]) -> NDArray[Any] | None:
        """Return u (N, m) as it was asked for: (N,) where one name was given, None where there was none."""
        return None if not self.u_columns else u[:, 0] if self._one_u else u

    def _whole(self) -> Rows:
        rows = self._source.rows
        if isinstance(rows, Path):
            return pd.concat([block for block in self._blocks(PARQUET_ROWS) if isinstance(block, pd.DataFrame)])
        return np.array(rows) if isinstance(rows, np.memmap) and rows.nbytes <= MEMORY_MAP_BYTES else rows

    def _blocks(self, step: int) -> Iterator[Rows]:
        rows = self._source.rows
        if isinstance(rows, Path):
            yield from parquet_blocks(rows, [*self.columns, *self.u_columns], step)
        else:
            for start in range(0, self.n_rows, step):
                yield getattr(rows, "iloc", rows)[start : start + step]

    def _inspect(self, rows: Rows, first: int) -> Columns:
        """Split rows, the first of which is row `first` of the table, into x and u, and inspect each column."""
        names = rows.columns if isinstance(rows, pd.DataFrame) else self._source.names
        position = {str(name): j for j, name in enumerate(names)}
        x_at, u_at = ([position[name] for name in part] for part in (self.columns, self.u_columns))
        if isinstance(rows, pd.DataFrame):
            x, faults = _numbers_in_frame(rows.iloc[:, x_at], first)
            return Columns(x, *_u_in_frame(rows.iloc[:, u_at]), faults)
        u = _floats(rows, u_at)
        return Columns(_floats(rows, x_at), u, u, {})

    def _sample(self, rows: Rows, first: int) -> Sample:
        found = self._inspect(rows, first)
        faults = found.not_numbers | gaps(found.x, self.columns, first) | gaps(found.u_numbers, self.u_columns, first)
        if faults:
            raise self._refusal(faults, first, len(rows), numeric=len(found.not_numbers) < len(self.columns))
        return Sample(x=found.x, u=self.split_u(found.u), columns=self.columns, image_shape=self.image_shape)

    def _refusal(self, faults: dict[str, Fault], first: int, n_rows: int, *, numeric: bool = True) -> DataError:
        names = (*self.columns, *self.u_columns)
        where = "" if n_rows == self.n_rows else f", rows {first} to {first + n_rows - 1}"
        what = f"{len(faults)} of {len(names)} columns cannot be used" if numeric else "there are no numeric columns"
        lines = [f"\n  {name!r}: {faults[name]}" for name in names if name in faults]
        return DataError(f"{self._source.origin}{where}: {what} (rows are counted from 0):{join_few(lines, '')}")


def _choose(source: Opened, u: Names | None, columns: Names | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the columns of x and of u."""
    u = _as_names(u or ())
    columns = tuple(name for name in source.names if name not in u) if columns is None else _as_names(columns)
    check_names(source.names, source.origin)
    check_names(columns + u, "columns= and u= together")
    known = set(source.names)
    unknown = [name for name in columns + u if name not in known]
    if unknown:
        near = {near for name in unknown for near in difflib.get_close_matches(name, source.names)}
        hint = f"Did you mean {join_few(sorted(map(repr, near)))}? " if near else ""
        raise DataError(
            f"{source.origin} has no column {join_few([repr(name) for name in unknown])}. {hint}"
            f"It has: {join_few(source.names)}."
        )
    if not columns:
        raise DataError(
            f"{source.origin} has no numeric columns left for x: it has {join_few(source.names) or 'none'}."
        )
    return columns, u


def _as_names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(map(str, names))


def _floats(a: NDArray[Any], at: list[int]) -> FloatArray:
    """Return these columns as floats, without a copy where they are neighbours and floats already."""
    neighbours = bool(at) and at == list(range(at[0], at[0] + len(at)))
    part = a[:, at[0] : at[0] + len(at)] if neighbours else a[:, at]
    single = part.dtype.kind == "f" and part.dtype.itemsize == 4
    return part.astype(np.float32 if single else np.float64, copy=False)


def _numbers_in_frame(frame: pd.DataFrame, first: int) -> tuple[FloatArray, dict[str, Fault]]:
    x, faults = np.zeros(frame.shape), {}
    for j, (name, column) in enumerate(frame.items()):
        numbers = _numbers_of(column)
        if numbers is None:
            faults[str(name)] = _why_not_numbers(column, str(name), first)
        else:
            x[:, j] = numbers
    return x, faults


def _u_in_frame(frame: pd.DataFrame) -> tuple[NDArray[Any], FloatArray]:
    """Return u as it came, numbers as such and text as objects, and an array of floats with the same gaps."""
    numbers = np.zeros(frame.shape)
    parts = []
    for j, (_, column) in enumerate(frame.items()):
        found, values = _numbers_of(column), column.to_numpy()
        numbers[:, j] = np.where(column.isna(), np.nan, 0.0) if found is None else found
        keeps_type = values.dtype.kind in ("biufM" if frame.shape[1] == 1 else "biuf")
        parts.append(values if keeps_type else values.astype(object))
    return np.column_stack(parts) if parts else numbers, numbers


def _numbers_of(column: "pd.Series[Any]") -> Array | None:
    """Return the values as float64, NaN where missing; None where some value is no real number."""
    if _is_never_numbers(column):
        return None
    if pd.api.types.is_numeric_dtype(column.dtype):
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    numbers = _coerced(column)
    return None if np.any(np.isnan(numbers) & column.notna().to_numpy()) else numbers


def _is_never_numbers(column: "pd.Series[Any]") -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype) or column.dtype.kind in "mMc"


def _coerced(column: "pd.Series[Any]") -> Array:
    """Return the values as float64, NaN where one is no real number."""
    try:
        numbers = np.asarray(pd.to_numeric(column.astype(object), errors="coerce"))
    except (TypeError, ValueError):  # lists and the like
        return np.full(len(column), np.nan)
    return np.full(len(column), np.nan) if numbers.dtype.kind == "c" else numbers.astype(np.float64)


def _why_not_numbers(column: "pd.Series[Any]", name: str, first: int) -> Fault:
    """Return what a column that is not numeric seems to hold, where, and what to do about it."""
    bad = np.flatnonzero(column.notna().to_numpy() & (_is_never_numbers(column) | np.isnan(_coerced(column))))
    if not len(bad):  # a column of dates, say, all missing
        bad = np.arange(len(column))
    text = [str(value) for value in column.iloc[bad]]
    distinct, names_rows = len(set(text)), False
    cure = exclude = "Leave it out (columns=)."
    may_be_u = f"Leave it out (columns=), or pass u={name!r} if it is the auxiliary variable."
    if column.dtype.kind == "c":
        what, cure = "complex numbers", "Split it into real and imaginary columns."
    elif column.dtype.kind in "mM" or all(map(_DATE.fullmatch, text)):
        what, cure, names_rows = "dates or times", may_be_u, True
    elif all(map(_DECIMAL_COMMA.fullmatch, text)):
        what, cure = "numbers with a decimal comma", "Write a point, or pass pd.read_csv(path, sep=';', decimal=',')."
    elif 2 * len(bad) < len(column):
        what, cure = "text among the numbers", "Correct or drop these rows."
    elif distinct == len(column):
        what, cure, names_rows = "text that never repeats, as an id does", exclude, True
    elif isinstance(column.dtype, pd.CategoricalDtype) or distinct <= max(MOST_CATEGORIES, len(column) // 10):
        what, cure = f"a category of {distinct} different value{'s' * (distinct > 1)}", may_be_u
    else:
        what = "text"
    where = f"first {text[0][:40]!r} in row {first + bad[0]}, {len(bad)} of {len(column)} values."
    return Fault(f"{what}, {where}", cure, may_be_u=cure == may_be_u, names_rows=names_rows)


def gaps(x: FloatArray, names: Sequence[str], first: int = 0) -> dict[str, Fault]:
    """Return how many values of x (N, d) are missing or infinite, by column; only a block of rows is read at a time."""
    count, where = np.zeros((2, 2, x.shape[1]), dtype=np.int64)
    for start, block in float_blocks(x):
        if np.isfinite(block).all():
            continue
        for k, bad in enumerate((np.isnan(block), np.isinf(block))):
            where[k] = np.where((count[k] == 0) & bad.any(axis=0), first + start + bad.argmax(axis=0), where[k])
            count[k] += bad.sum(axis=0)
    cures = {"missing": "Drop these rows or fill the values in.", "infinite": "A division by 0? Drop these rows."}
    faults: dict[str, Fault] = {}
    for (kind, cure), counts, rows in zip(cures.items(), count, where, strict=True):
        for j in np.flatnonzero(counts).tolist():
            found = f"{counts[j]} {kind} value{'s' * int(counts[j] > 1)}, first in row {rows[j]}."
            found = f"{faults[names[j]]} {found}" if names[j] in faults else found
            faults[names[j]] = Fault(found, cure)
    return faults


def float_blocks(x: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """Yield blocks of rows of x (N, d), a few million values each, with the number of their first row."""
    step = max(1, BLOCK_VALUES // max(1, x.shape[1]))
    for start in range(0, len(x), step):
        yield start, x[start : start + step]
