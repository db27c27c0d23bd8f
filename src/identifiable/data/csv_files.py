"""Files of separated values as they come: separators, decimal commas, blank columns and an index are recognised."""

import csv
import re
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from identifiable.arrays import Array
from identifiable.errors import DataError

# Floats are read exactly, to the last bit; pandas does so by default from version 3.1 on.
_EXACT: Any = {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
_GROUP = "[.' \u00a0\u202f]"  # separates thousands where the comma separates decimals
_WHOLE = rf"[+-]?(\d+|[1-9]\d{{0,2}}({_GROUP}\d{{3}})+)"
_COMMA_NUMBER = re.compile(rf"({_WHOLE}(,\d*)?|[+-]?,\d+)([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")  # one thousand, or a decimal comma and three decimals


def read_csv(path: Path) -> pd.DataFrame:
    """Read a .csv or .tsv file; an index that `DataFrame.to_csv` wrote, a first column without a name, is the index.

    The separator is a comma, a semicolon, a tab or a bar. Where it is no comma, numbers may have a decimal comma, and
    thousands may be separated by points, blanks or apostrophes. Columns without name and values are dropped.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(islice((line for line in file if line.strip()), 2))
        sep = _separator(lines, "\t" if path.suffix.lower() == ".tsv" else ",")
        rows = list(csv.reader(lines, delimiter=sep, skipinitialspace=True))
        cells = [cell.strip() for cell in rows[0]] if rows else []
        frame = _read(path, sep)
        shifted = len(rows[-1]) > len(cells) or not isinstance(frame.index, pd.RangeIndex)
        if sep != "," and _has_decimal_commas(frame):
            frame = _read(path, sep, decimal=",").apply(_with_points)
            frame.index = pd.Index(_with_points(frame.index.to_series()))
    except UnicodeDecodeError as err:
        raise DataError(f"{path} must be text in UTF-8. {_undecodable(path)}. Save it as UTF-8.") from err
    except pd.errors.EmptyDataError as err:
        raise DataError(f"{path} is empty: a line of names and rows of numbers were expected.") from err
    except (pd.errors.ParserError, csv.Error) as err:
        raise DataError(
            f"{path} is ragged, its lines do not split into the same columns: {str(err).strip()}. Correct it."
        ) from err
    if shifted and frame.index.nlevels == 1 and frame.iloc[:, -1].isna().all():  # every row ends in a separator
        frame = frame.reset_index().iloc[:, :-1].set_axis(frame.columns, axis=1)
    elif shifted:  # pandas uses surplus fields as row labels
        raise DataError(
            f"{path} is ragged: its lines have more fields than the {len(cells)} names of its first line. "
            "Name every column (row labels, too)."
        )
    if _is_data(cells, sep):
        raise DataError(
            f"{path} seems to have no line of names: its first line is {lines[0].strip()[:60]!r}. Add one, or pass "
            "pd.read_csv(path, header=None)."
        )
    # pandas renames duplicates (a, a.1); the names in the file show them.
    if len(cells) == frame.shape[1]:
        blank = np.array([cell == "" for cell in cells]) & frame.isna().all().to_numpy()
        names = [cell or name for cell, name in zip(cells, frame.columns, strict=True)]
        frame = frame.set_axis(names, axis=1).loc[:, ~blank | (len(frame) == 0)]
        cells = [cell for cell, skip in zip(cells, blank, strict=True) if not skip]
    return frame.set_index(frame.columns[0]).rename_axis(None) if cells[:1] == [""] else frame


def _read(path: Path, sep: str, **options: Any) -> pd.DataFrame:
    return pd.read_csv(path, sep=sep, engine="c", low_memory=False, skipinitialspace=True, **_EXACT, **options)


def _has_decimal_commas(frame: pd.DataFrame) -> bool:
    """Return whether a column of text holds numbers with a comma, of which one cannot separate thousands."""
    for _, column in frame.reset_index().items():
        text = column.dropna()
        if pd.api.types.is_numeric_dtype(column.dtype) or not len(text) or not _are_comma_numbers(text):
            continue
        if any("," in value and not _THOUSANDS.fullmatch(value) for value in text):
            return True
    return False


def _are_comma_numbers(text: "pd.Series[Any]") -> bool:
    return all(isinstance(value, str) and _COMMA_NUMBER.fullmatch(value.strip()) for value in text)


def _with_points(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return text as numbers, if all values are: with separated thousands, or else with a decimal point."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column
    given = column.notna().to_numpy()
    text = column[given].astype(str)
    if _are_comma_numbers(text):
        plain = [re.sub(_GROUP, "", value.strip()).replace(",", ".") for value in text]
        return pd.Series(_floats(plain, given), index=column.index)
    numbers = pd.to_numeric(text, errors="coerce")
    if numbers.notna().all():  # read again, to the last bit
        return pd.Series(_floats([value.strip() for value in text], given), index=column.index)
    return column


def _floats(text: list[str], given: Any) -> Array:
    numbers = np.full(len(given), np.nan)
    numbers[given] = np.array(text, dtype=str).astype(np.float64)
    return numbers


def _separator(lines: list[str], usual: str) -> str:
    """Return what splits the first lines into equally many cells, at least two, and most of them numbers.

    Without one, return the usual separator.
    """
    found = {}
    for sep in dict.fromkeys(usual + ";\t|,"):
        rows = list(csv.reader(lines, delimiter=sep, skipinitialspace=True))
        if len(rows) != len(lines) or not rows or len(rows[0]) < 2:  # a quotation over two lines, or no such separator
            continue
        first, last = rows[0], rows[-1]
        if len(last) == len(first) or (len(last) == len(first) + 1 and not last[-1].strip()):
            found[sep] = np.mean([_is_number(cell, sep) for cell in last])
    return max(found, key=lambda sep: found[sep]) if found else usual


def _is_number(cell: str, sep: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return sep != "," and _COMMA_NUMBER.fullmatch(cell.strip()) is not None
    return True


def _is_data(cells: list[str], sep: str) -> bool:
    """Return whether a first line is numbers that are no names; 0, 1, 2 or 400, 410, 420 (an axis) are names."""
    try:
        numbers = np.array([float(cell if sep == "," else cell.replace(",", ".")) for cell in cells])
    except ValueError:
        return False
    return not (np.all(numbers == np.round(numbers)) and np.all(np.diff(numbers) > 0))


def _undecodable(path: Path) -> str:
    with path.open("rb") as file:
        lines = enumerate(file, start=1)
        n, line = next((n, line) for n, line in lines if "\ufffd" in line.decode(errors="replace"))
    kind = " (the file seems to be UTF-16)" if line[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
    return f"Line {n} is not{kind}: {line.strip()[:30]!r}"
