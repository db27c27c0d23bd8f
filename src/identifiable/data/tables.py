"""The user's own data: a file, a folder of images, a DataFrame or an array becomes a checked `Sample`.

Every row is used or the table is refused: nothing is dropped, filled in or guessed in silence, and one error names
every column that is in the way. Rows are counted from 0, a header line apart.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from identifiable.arrays import FloatArray
from identifiable.data.formats import Opened, Rows, check_names, open_source, parquet_blocks
from identifiable.data.sample import Sample
from identifiable.errors import DataError, join_few

BLOCK_VALUES = 2**21  # values looked at together: 16 MiB of float64
_MAP_BYTES = 2**28  # an .npy above 256 MiB stays on disk
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")

Names = str | Sequence[str]


def read_table(
    source: object, *, u: Names | None = None, columns: Names | None = None, key: str | None = None
) -> Sample:
    """Read a table of numbers, check it, and split off the auxiliary variable.

    Parameters
    ----------
    source : a path (.csv, .tsv, .parquet, .npy, .npz, or a folder of images), a DataFrame, or an array-like: 2-D, or
        images (N, height, width) or (N, height, width, channels), whose pixels become the columns.
    u : column that holds the auxiliary variable, kept as it is, text included; a list of names gives u two axes.
    columns : columns that make x, in this order; by default all but those of u.
    key : which array of an .npz; by default its only 2-D one, or its only one of images.

    Returns
    -------
    Sample with x (N, d), u (N,) or (N, m), and the d names (x0, x1, ... for arrays). x is float64, but float32 arrays
    stay float32. Integers are accepted, booleans as 0 and 1, and text that is a number throughout. An .npy of floats
    above 256 MiB stays on disk: x is then a read-only memory map, as long as its columns are neighbours. Images,
    sorted by name, become rows of pixels in [0, 1]; other files of the folder are passed over.

    A .csv may also be separated by semicolons, tabs or bars. A first column without a name is the index that
    `DataFrame.to_csv` writes, and is left out.

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
    data are read. Other sources are read whole when the reader is made, and handed out in blocks.

    Parameters
    ----------
    source, u, columns, key : as for `read_table`.
    batch_rows : rows of one block, at most.

    Attributes
    ----------
    n_rows : number of rows N.
    columns : names of the columns of x.

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
            came = "one row" if opened.n_rows else "no rows"
            raise DataError(f"{opened.origin} has {came}: at least two rows are needed.")
        self.n_rows = opened.n_rows
        self.batch_rows = batch_rows
        self.columns, self._u = _choose(opened, u, columns)
        self._u_axis = not isinstance(u, str)

    def __iter__(self) -> Iterator[Sample]:
        """Yield the blocks in order, each checked."""
        first = 0
        for block in self._blocks(self.batch_rows):
            yield self._sample(block, first)
            first += len(block)

    def read(self) -> Sample:
        """Return the whole table as one `Sample`."""
        return self._sample(self._whole(), 0)

    def unchecked(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the columns of x and those of u as they came."""
        rows = self._whole()
        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows, columns=list(self._source.names))
        frame = frame.set_axis(list(map(str, frame.columns)), axis=1).reset_index(drop=True)
        return frame[list(self.columns)], frame[list(self._u)]

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """Shape of the pictures whose pixels are the columns."""
        return self._source.image_shape if self.columns == self._source.names else None

    def _whole(self) -> Rows:
        rows = self._source.rows
        if isinstance(rows, Path):
            return pd.concat([block for block in self._blocks(2**20) if isinstance(block, pd.DataFrame)])
        if isinstance(rows, np.memmap) and rows.nbytes <= _MAP_BYTES:
            return np.array(rows)
        return rows

    def _blocks(self, step: int) -> Iterator[Rows]:
        rows = self._source.rows
        if isinstance(rows, Path):
            yield from parquet_blocks(rows, [*self.columns, *self._u], step)
        else:
            for start in range(0, self.n_rows, step):
                yield getattr(rows, "iloc", rows)[start : start + step]

    def _sample(self, rows: Rows, first: int) -> Sample:
        """Check these rows, the first of which is row `first` of the table, and split them into x and u."""
        names = rows.columns if isinstance(rows, pd.DataFrame) else self._source.names
        place = {str(name): j for j, name in enumerate(names)}
        x_places, u_places = ([place[name] for name in part] for part in (self.columns, self._u))
        text: dict[str, str] = {}
        if isinstance(rows, pd.DataFrame):
            x, text = _x_of_frame(rows.iloc[:, x_places], first)
            u, holes = _u_of_frame(rows.iloc[:, u_places])
        else:
            x, u = _pick(rows, x_places), _pick(rows, u_places)
            holes = u
        faults = {**text, **_not_finite(x, self.columns, first), **_not_finite(holes, self._u, first)}
        if faults:
            raise self._refusal(faults, first, len(rows), numeric=len(text) < len(self.columns))
        return Sample(
            x=x,
            u=None if not self._u else u if self._u_axis else u[:, 0],
            columns=self.columns,
            image_shape=self.image_shape,
        )

    def _refusal(self, faults: dict[str, str], first: int, n_rows: int, *, numeric: bool) -> DataError:
        names = (*self.columns, *self._u)
        where = "" if n_rows == self.n_rows else f", rows {first} to {first + n_rows - 1}"
        what = f"{len(faults)} of {len(names)} columns cannot be used" if numeric else "there are no numeric columns"
        lines = [f"\n  {name!r}: {faults[name]}" for name in names if name in faults]
        return DataError(f"{self._source.origin}{where}: {what} (rows are counted from 0):{join_few(lines, '')}")


def _choose(source: Opened, u: Names | None, columns: Names | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the columns of x and of u."""
    u = () if u is None else (u,) if isinstance(u, str) else tuple(map(str, u))
    known = set(source.names)
    if columns is None:
        columns = tuple(name for name in source.names if name not in u)
    columns = (columns,) if isinstance(columns, str) else tuple(map(str, columns))
    check_names(source.names, source.origin)
    check_names(columns + u, "columns= and u= together")
    unknown = [name for name in columns + u if name not in known]
    if unknown:
        near = {near for name in unknown for near in difflib.get_close_matches(name, source.names)}
        raise DataError(
            f"{source.origin} has no column {join_few([repr(name) for name in unknown])}. "
            + (f"Did you mean {join_few(sorted(map(repr, near)))}? " if near else "")
            + f"It has: {join_few(source.names)}."
        )
    if not columns:
        raise DataError(
            f"{source.origin} has no numeric columns left for x: it has {join_few(source.names) or 'none'}."
        )
    return columns, u


def _pick(a: NDArray[Any], places: list[int]) -> FloatArray:
    """Return these columns as floats, without a copy where they are neighbours and floats already."""
    run = places == list(range(places[0], places[0] + len(places))) if places else False
    part = a[:, places[0] : places[0] + len(places)] if run else a[:, places]
    single = part.dtype.kind == "f" and part.dtype.itemsize == 4
    return part.astype(np.float32 if single else np.float64, copy=False)


def _x_of_frame(frame: pd.DataFrame, first: int) -> tuple[FloatArray, dict[str, str]]:
    """Return the numbers, NaN where missing, and what else the other columns (0 here) hold."""
    x = np.zeros(frame.shape)
    text = {}
    for j, (name, column) in enumerate(frame.items()):
        numbers = numbers_of(column)
        if numbers is None:
            text[str(name)] = " ".join(why_not_numbers(column, str(name), first))
        else:
            x[:, j] = numbers
    return x, text


def _u_of_frame(frame: pd.DataFrame) -> tuple[NDArray[Any], FloatArray]:
    """Return u as it came, numbers as such and text as objects, and an array of floats with the same holes."""
    holes = np.zeros(frame.shape)
    parts = []
    for j, (_, column) in enumerate(frame.items()):
        numbers, values = numbers_of(column), column.to_numpy()
        holes[:, j] = np.where(column.isna(), np.nan, 0.0) if numbers is None else numbers
        alike = values.dtype.kind in ("biufM" if frame.shape[1] == 1 else "biuf")
        parts.append(values if alike else values.astype(object))
    return np.column_stack(parts) if parts else holes, holes


def numbers_of(column: "pd.Series[Any]") -> FloatArray | None:
    """Return the values as float64, NaN where missing; None where some value is no real number."""
    if isinstance(column.dtype, pd.CategoricalDtype) or column.dtype.kind in "mMc":
        return None
    if pd.api.types.is_numeric_dtype(column.dtype):
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    numbers = _coerced(column)
    return None if np.any(np.isnan(numbers) & column.notna().to_numpy()) else numbers


def _coerced(column: "pd.Series[Any]") -> FloatArray:
    try:
        numbers = np.asarray(pd.to_numeric(column.astype(object), errors="coerce"))
    except (TypeError, ValueError):  # lists and the like
        return np.full(len(column), np.nan)
    return np.full(len(column), np.nan) if numbers.dtype.kind == "c" else numbers.astype(np.float64)


def why_not_numbers(column: "pd.Series[Any]", name: str, first: int) -> tuple[str, str]:
    """Say what a column without numbers seems to hold and where, and what to do about it."""
    by_dtype = isinstance(column.dtype, pd.CategoricalDtype) or column.dtype.kind in "mMc"
    bad = np.flatnonzero(column.notna().to_numpy() & (by_dtype | np.isnan(_coerced(column))))
    if not len(bad):  # a column of dates, say, all missing
        bad = np.arange(len(column))
    text = [str(value) for value in column.iloc[bad]]
    distinct = len(set(text))
    leave, aside = "leave it out (columns=)", f"pass u={name!r} if it is the auxiliary variable"
    if column.dtype.kind == "c":
        what, cure = "complex numbers", "split it into real and imaginary columns"
    elif column.dtype.kind in "mM" or all(map(_DATE.fullmatch, text)):
        what, cure = "dates or times", f"{leave}, or {aside}"
    elif all(map(_DECIMAL_COMMA.fullmatch, text)):
        what, cure = "numbers with a decimal comma", "write a point, or pass pd.read_csv(path, sep=';', decimal=',')"
    elif 2 * len(bad) < len(column):
        what, cure = "text among the numbers", "correct or drop these rows"
    elif distinct == len(column):
        what, cure = "text that never repeats, as an id does", leave
    elif isinstance(column.dtype, pd.CategoricalDtype) or distinct <= max(20, len(column) // 10):
        what, cure = f"a category of {distinct} different value{'s' * (distinct > 1)}", f"{aside}, or {leave}"
    else:
        what, cure = "text", leave
    found = f"{what}, first {text[0][:40]!r} in row {first + bad[0]}, {len(bad)} of {len(column)} values."
    return found, f"{cure[0].upper()}{cure[1:]}."


def _not_finite(x: FloatArray, names: tuple[str, ...], first: int) -> dict[str, str]:
    """Return what is missing or infinite, by column; x (N, d) is looked at block by block."""
    count, where = np.zeros((2, 2, x.shape[1]), dtype=np.int64)
    step = max(1, BLOCK_VALUES // max(1, x.shape[1]))
    for start in range(0, len(x), step):
        block = x[start : start + step]
        if np.isfinite(block).all():
            continue
        for k, bad in enumerate((np.isnan(block), np.isinf(block))):
            where[k] = np.where((count[k] == 0) & bad.any(axis=0), first + start + bad.argmax(axis=0), where[k])
            count[k] += bad.sum(axis=0)
    cures = ("missing", "Drop these rows or fill the values in."), ("infinite", "A division by 0? Drop these rows.")
    faults: dict[str, str] = {}
    for k, j in zip(*np.nonzero(count), strict=True):
        found = (
            f"{count[k, j]} {cures[k][0]} value{'s' * int(count[k, j] > 1)}, first in row {where[k, j]}. {cures[k][1]}"
        )
        faults[names[j]] = f"{faults[names[j]]} {found}" if names[j] in faults else found
    return faults
