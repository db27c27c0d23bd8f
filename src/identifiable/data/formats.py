"""The formats a table comes in: each is opened, checked as a file, and described before its rows are looked at."""

import csv
import difflib
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from identifiable.errors import DamagedFileError, DataError, join_few

_IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
_WHITE = {"1": 1, "L": 255, "LA": 255, "RGB": 255, "RGBA": 255, "I;16": 65535, "I;16B": 65535}  # Pillow modes
# The float that was written is read, to the last bit: from pandas 3.1 on by itself.
_EXACT: Any = {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}

Rows = pd.DataFrame | NDArray[Any]


@dataclass(frozen=True)
class Opened:
    """An opened source; `rows` is the path where they are still in a parquet file."""

    rows: Rows | Path
    names: tuple[str, ...]
    n_rows: int
    origin: str
    image_shape: tuple[int, ...] | None = None


def open_source(source: object, key: str | None) -> Opened:
    """Open a path, a DataFrame or an array; `key` chooses an array of an .npz."""
    if not isinstance(source, str | os.PathLike):
        if key is not None:
            raise DataError(f"key= chooses an array of an .npz file. Got key={key!r} without such a file.")
        return _of_frame(source) if isinstance(source, pd.DataFrame) else _of_array(source)
    path = Path(source).expanduser()
    if not path.exists():
        raise FileNotFoundError(_not_found(path))
    if path.is_dir():
        return _read_images(path)
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise DataError(
            f"{path} must end in {', '.join(_READERS)}, or be a folder of images. Got {suffix or 'no ending'!r}. "
            "Save it as one of these, or load it and pass the DataFrame or the array."
        )
    if key is not None and suffix != ".npz":
        raise DataError(f"key= chooses an array of an .npz file. Got key={key!r} with {path}: leave it out.")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes): write it again.")
    return _READERS[suffix](path, key)


def _not_found(path: Path) -> str:
    if not path.parent.is_dir():
        return f"There is no {path}: the folder {path.parent} does not exist."
    near = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], cutoff=0.5)
    return f"There is no {path}." + (f" Near it: {', '.join(near)}." if near else "")


def _of_frame(frame: pd.DataFrame, origin: str = "The table") -> Opened:
    return Opened(frame, tuple(map(str, frame.columns)), len(frame), origin)


def _of_array(values: Any, origin: str = "The array") -> Opened:
    if isinstance(values, np.ma.MaskedArray):  # np.asarray would bring the masked values back
        values = np.ma.filled(values.astype(np.float64), np.nan)
    a = to_array(values, origin)
    if a.dtype.kind not in "biuf":
        cure = {
            "O": "np.asarray(x, dtype=float) if these are numbers, a DataFrame if the columns differ in kind",
            "c": "pass the real and the imaginary parts as separate columns",
        }.get(a.dtype.kind, "pass a DataFrame if the columns differ in kind")
        raise DataError(f"{origin} must hold real numbers. Got {a.dtype} dtype, shape {a.shape}: {cure}.")
    image_shape = a.shape[1:] if _are_images(a) else None
    if image_shape is not None:
        a = a.reshape(len(a), -1)
    if a.ndim != 2:
        cure = "x.reshape(-1, 1) makes one column of it" if a.ndim < 2 else "x.reshape(len(x), -1) flattens each row"
        raise DataError(
            f"{origin} must be 2-D, (rows, columns), or images, (rows, height, width) with 1, 3 or 4 channels or none. "
            f"Got {a.ndim}-D, shape {a.shape}: {cure}."
        )
    return Opened(a, tuple(f"x{j}" for j in range(a.shape[1])), len(a), origin, image_shape)


def to_array(values: Any, origin: str) -> NDArray[Any]:
    """Return values as an array, without a copy where they are one."""
    try:
        return values if isinstance(values, np.ndarray) else np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as err:
        if "requires grad" in str(err):
            raise DataError(f"{origin} is a tensor that requires grad. Pass tensor.detach() instead.") from err
        raise DataError(f"{origin} must be a rectangle of numbers, all rows of one length ({err}).") from err


def check_names(names: Sequence[str], what: str) -> None:
    """Refuse column names that are duplicated, or that no file can hold."""
    if twice := [repr(name) for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{what}: duplicate column names {join_few(twice)}. Rename or drop them.")
    if broken := [ascii(name) for name in names if is_broken(name)]:
        raise DataError(f"{what}: column names that are not valid Unicode: {join_few(broken)}. Rename them.")


def is_broken(text: str) -> bool:
    """Return whether a text has surrogates, which UTF-8 cannot encode and files cannot hold."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _are_images(a: NDArray[Any]) -> bool:
    return a.ndim == 3 or (a.ndim == 4 and a.shape[3] in (1, 3, 4))


def _damaged(path: Path, err: BaseException | str) -> DamagedFileError:
    kind = path.suffix.lower()
    return DamagedFileError(
        f"{path} cannot be read as {kind} ({err or 'it ends early'}). It is cut short, altered or of another kind: "
        "copy or write it again."
    )


def _pickled(path: Path) -> DataError:
    return DataError(
        f"{path} holds Python objects (object dtype, pickled). It is refused, as unpickling can run any code: "
        "save numbers, np.save(path, x.astype(float))."
    )


def _read_npy(path: Path, _: str | None) -> Opened:
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise _damaged(path, "its first bytes are not those of an .npy")
    try:
        a = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as err:
        raise _pickled(path) if "object" in str(err).lower() else _damaged(path, err) from err
    return _of_array(a, str(path))


def _read_npz(path: Path, key: str | None) -> Opened:
    def load(name: str) -> NDArray[Any] | None:
        """Return this array; None where it holds objects."""
        try:
            return np.asarray(archive[name])
        except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as err:
            if "object" in str(err).lower():
                return None
            raise _damaged(path, err) from err

    if not zipfile.is_zipfile(path):
        raise _damaged(path, "it is not a whole zip archive")
    try:
        archive = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as err:
        raise _damaged(path, err) from err
    with archive:
        arrays = {name: load(name) for name in archive.files if key in (None, name)}
        tables = [name for name, a in arrays.items() if key == name or (a is not None and a.ndim == 2)]
        if not tables:
            tables = [name for name, a in arrays.items() if a is not None and _are_images(a)]
        if len(tables) != 1:
            asked = "one 2-D array was expected" if key is None else f"there is no array {key!r}"
            held = [f"{name} {'objects' if a is None else a.shape}" for name, a in arrays.items()] or archive.files
            raise DataError(f"{path}: {asked}. It holds {', '.join(held) or 'nothing'}: choose one with key=.")
    chosen = arrays[tables[0]]
    if chosen is None:
        raise _pickled(path)
    return _of_array(chosen, str(path))


def _parquet(path: Path) -> Any:
    """Open a parquet file."""
    try:
        import pyarrow.parquet
    except ImportError as err:
        raise ImportError(f'Reading {path} needs pyarrow: pip install "identifiable[parquet]".') from err
    try:
        return pyarrow.parquet.ParquetFile(path, pre_buffer=False)  # else it reads ahead to the end
    except (pyarrow.ArrowException, OSError) as err:
        raise _damaged(path, err) from err


def parquet_blocks(path: Path, names: list[str], batch_rows: int) -> Iterator[pd.DataFrame]:
    """Yield these columns batch by batch; memory is bounded by a batch and a row group's pages."""
    with _parquet(path) as file:
        batches = file.iter_batches(batch_size=batch_rows, columns=names)
        while True:
            try:
                block = next(batches).to_pandas()
            except StopIteration:
                return
            except (ValueError, OSError, NotImplementedError) as err:  # pyarrow's errors are one of these
                raise _damaged(path, err) from err
            yield block


def _read_parquet(path: Path, _: str | None) -> Opened:
    with _parquet(path) as file:
        frame = file.schema_arrow.empty_table().to_pandas()  # without rows; a stored index is not a column
        return Opened(path, tuple(map(str, frame.columns)), file.metadata.num_rows, str(path))


def _read_csv(path: Path, _: str | None) -> Opened:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(islice((line for line in file if line.strip()), 2))
        sep = _separator(lines, "\t" if path.suffix.lower() == ".tsv" else ",")
        cells = [cell.strip() for cell in next(csv.reader(lines, delimiter=sep, skipinitialspace=True), [])]
        frame = pd.read_csv(path, sep=sep, engine="c", low_memory=False, skipinitialspace=True, **_EXACT)
    except UnicodeDecodeError as err:
        raise DataError(f"{path} must be text in UTF-8. {_undecodable(path)}. Save it as UTF-8.") from err
    except pd.errors.EmptyDataError as err:
        raise DataError(f"{path} is empty: a line of names and rows of numbers were expected.") from err
    except (pd.errors.ParserError, csv.Error) as err:
        raise DataError(
            f"{path} is ragged, its lines do not split into the same columns: {str(err).strip()}. Correct it."
        ) from err
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes what is too much for row labels
        raise DataError(
            f"{path} is ragged: its lines have more fields than the {len(cells)} names of its first line. "
            "Name every column (row labels, too)."
        )
    if _is_data(cells):
        raise DataError(
            f"{path} seems to have no line of names: its first line is {lines[0].strip()[:60]!r}. Add one, or pass "
            "pd.read_csv(path, header=None)."
        )
    # pandas renames duplicates (a, a.1); the file's own names let them be seen.
    if len(cells) == frame.shape[1]:
        frame.columns = pd.Index([cell or name for cell, name in zip(cells, frame.columns, strict=True)])
    return _of_frame(frame.iloc[:, 1:] if cells[:1] == [""] else frame, str(path))


def _separator(lines: list[str], usual: str) -> str:
    """Return what splits the first lines into equally many cells, at least two; else what the ending promises."""
    for sep in usual + ";\t|,":
        widths = [len(cells) for cells in csv.reader(lines, delimiter=sep, skipinitialspace=True)]
        if len(widths) == len(lines) and len(set(widths)) == 1 and widths[0] > 1:  # no quotation over two lines
            return sep
    return usual


def _is_data(cells: list[str]) -> bool:
    """Whether a header line is made of numbers that are no names; 0, 1, 2 or 400, 410, 420 (an axis) are."""
    try:
        numbers = np.array([float(cell) for cell in cells])
    except ValueError:
        return False
    return not (np.all(numbers == np.round(numbers)) and np.all(np.diff(numbers) > 0))


def _undecodable(path: Path) -> str:
    with path.open("rb") as file:
        lines = enumerate(file, start=1)
        n, line = next((n, line) for n, line in lines if "\ufffd" in line.decode(errors="replace"))
    kind = " (the file seems to be UTF-16)" if line[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
    return f"Line {n} is not{kind}: {line.strip()[:30]!r}"


def _read_images(folder: Path) -> Opened:
    from PIL import Image

    pixels: dict[Path, NDArray[Any]] = {}
    kinds: dict[Path, tuple[str, tuple[int, ...]]] = {}
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in _IMAGES):
        try:
            with Image.open(path) as image:
                # The numbers of a palette image are places in its palette, not brightness.
                shown = image.convert("RGBA" if "transparency" in image.info else "RGB") if image.mode == "P" else image
                pixels[path] = np.asarray(shown)
                kinds[path] = shown.mode, pixels[path].shape
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as err:
            raise _damaged(path, err) from err
    if not kinds:
        raise DataError(f"The folder {folder} holds no images ({', '.join(sorted(_IMAGES))}).")
    (usual, count), *_ = Counter(kinds.values()).most_common(1)
    odd = [f"{p.name} is {s[1]}x{s[0]} {mode}" for p, (mode, s) in kinds.items() if (mode, s) != usual]
    mode, shape = usual
    if odd:
        raise DataError(
            f"All images of {folder} must have one size and mode. {count} are {shape[1]}x{shape[0]} {mode}, but "
            f"{join_few(odd, '; ')}. Resize, convert or remove these."
        )
    if mode not in _WHITE:
        raise DataError(f"Images must have mode {', '.join(_WHITE)}. Those of {folder} have {mode}: convert them.")
    x = np.stack(list(pixels.values())).reshape(len(pixels), -1) / _WHITE[mode]
    return Opened(x, tuple(f"x{j}" for j in range(x.shape[1])), len(x), f"The folder {folder}", shape)


_READERS: dict[str, Callable[[Path, str | None], Opened]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".npy": _read_npy,
    ".npz": _read_npz,
}
