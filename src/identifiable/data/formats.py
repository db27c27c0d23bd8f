"""The formats of a table: each is opened, checked as a file, and described before its rows are read."""

import difflib
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from identifiable.data.csv_files import read_csv
from identifiable.errors import DamagedFileError, DataError, join_few

_IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
_WHITE = {"1": 1, "L": 255, "LA": 255, "RGB": 255, "RGBA": 255, "I;16": 65535, "I;16B": 65535}  # Pillow modes
_FILE_ERRORS = (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error)  # of numpy on a damaged file

Rows = pd.DataFrame | NDArray[Any]


@dataclass(frozen=True)
class Opened:
    """An opened source; `rows` is the path where they are still in a parquet file.

    `row_names` (N, ...) is the index of a DataFrame or the first column of a file that has no name; None if it only
    counts the rows.
    """

    rows: Rows | Path
    names: tuple[str, ...]
    n_rows: int
    origin: str
    image_shape: tuple[int, ...] | None = None
    row_names: pd.DataFrame | None = None


def open_source(source: object, key: str | None) -> Opened:
    """Open a path, a DataFrame or an array; `key` chooses an array of an .npz."""
    path = Path(source).expanduser() if isinstance(source, str | os.PathLike) else None
    if key is not None and (path is None or path.suffix.lower() != ".npz"):
        raise DataError(f"key= chooses an array of an .npz file. Got key={key!r} without such a file: leave it out.")
    if path is None:
        return _of_frame(source, "The table") if isinstance(source, pd.DataFrame) else _of_array(source, "The array")
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
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes): write it again.")
    return _read_npz(path, key) if suffix == ".npz" else _READERS[suffix](path)


def _not_found(path: Path) -> str:
    if not path.parent.is_dir():
        return f"There is no {path}: the folder {path.parent} does not exist."
    near = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], cutoff=0.5)
    return f"There is no {path}." + (f" Near it: {', '.join(near)}." if near else "")


def _of_frame(frame: pd.DataFrame, origin: str) -> Opened:
    return Opened(frame, tuple(map(str, frame.columns)), len(frame), origin, row_names=_row_names(frame))


def _row_names(frame: pd.DataFrame) -> pd.DataFrame | None:
    """Return the index as columns, if it identifies the rows and does not only count them."""
    index = frame.index
    if index.nlevels == 1 and np.array_equal(index, np.arange(len(index))):
        return None
    given = [name if name is not None else "index" for name in index.names]
    found = index.to_frame(index=False, name=range(index.nlevels) if index.nlevels > 1 else 0)
    if index.has_duplicates or found.isna().any(axis=None):
        return None
    return found.set_axis([f"{name} (index)" if name in frame.columns else str(name) for name in given], axis=1)


def _of_array(values: Any, origin: str) -> Opened:
    if isinstance(values, np.ma.MaskedArray):  # np.asarray would restore the masked values
        values = np.ma.filled(values.astype(np.float64), np.nan)
    a = to_array(values, origin)
    if a.dtype.kind not in "biuf":
        cure = {
            "O": "np.asarray(x, dtype=float) if these are numbers, a DataFrame if the columns have different types",
            "c": "the real and the imaginary parts as separate columns",
        }.get(a.dtype.kind, "a DataFrame if the columns have different types")
        raise DataError(f"{origin} must hold real numbers. Got {a.dtype} dtype, shape {a.shape}: pass {cure}.")
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
    return DamagedFileError(
        f"{path} cannot be read as {path.suffix.lower()} ({err or 'it ends early'}). It is cut short, altered or of "
        "another kind: copy or write it again."
    )


def _pickled(path: Path) -> DataError:
    return DataError(
        f"{path} holds Python objects (object dtype, pickled). It is refused, as unpickling can run any code: "
        "save numbers, np.save(path, x.astype(float))."
    )


def _read_npy(path: Path) -> Opened:
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise _damaged(path, "its first bytes are not those of an .npy")
    try:
        a = np.load(path, mmap_mode="r", allow_pickle=False)
    except _FILE_ERRORS as err:
        raise _pickled(path) if "object" in str(err).lower() else _damaged(path, err) from err
    return _of_array(a, str(path))


def _read_npz(path: Path, key: str | None) -> Opened:
    def load(name: str) -> NDArray[Any] | None:
        """Return this array; None where it holds objects."""
        try:
            return np.asarray(archive[name])
        except ValueError as err:
            if "object" in str(err).lower():
                return None
            raise

    if not zipfile.is_zipfile(path):
        raise _damaged(path, "it is not a whole zip archive")
    try:
        with np.load(path, allow_pickle=False) as archive:
            files = archive.files
            arrays = {name: load(name) for name in files if key in (None, name)}
    except _FILE_ERRORS as err:
        raise _damaged(path, err) from err
    numeric = {name: a for name, a in arrays.items() if a is not None}
    tables = list(arrays) if key is not None else [name for name, a in numeric.items() if a.ndim == 2]
    tables = tables or [name for name, a in numeric.items() if _are_images(a)]
    if len(tables) != 1:
        wrong = "one 2-D array was expected" if key is None else f"there is no array {key!r}"
        held = [f"{name} {'objects' if a is None else a.shape}" for name, a in arrays.items()] or files
        raise DataError(f"{path}: {wrong}. It holds {', '.join(held) or 'nothing'}: choose one with key=.")
    if tables[0] not in numeric:
        raise _pickled(path)
    return _of_array(numeric[tables[0]], str(path))


def _open_parquet(path: Path) -> Any:
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
    with _open_parquet(path) as file:
        try:
            for batch in file.iter_batches(batch_size=batch_rows, columns=names):
                yield batch.to_pandas()
        except (ValueError, OSError, NotImplementedError) as err:  # pyarrow's errors are among these
            raise _damaged(path, err) from err


def _read_parquet(path: Path) -> Opened:
    with _open_parquet(path) as file:
        frame = file.schema_arrow.empty_table().to_pandas()  # without rows; a stored index is not a column
        return Opened(path, tuple(map(str, frame.columns)), file.metadata.num_rows, str(path))


def _open_csv(path: Path) -> Opened:
    return _of_frame(read_csv(path), str(path))


def _read_images(folder: Path) -> Opened:
    from PIL import Image

    pixels: list[NDArray[Any]] = []
    kinds: dict[str, str] = {}
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in _IMAGES):
        try:
            with Image.open(path) as image:
                # The numbers of a palette image are positions in its palette, not brightness.
                colours = "RGBA" if "transparency" in image.info else "RGB"
                shown = image.convert(colours) if image.mode == "P" else image
                pixels.append(np.asarray(shown))
                kinds[path.name] = f"{shown.width}x{shown.height} {shown.mode}"
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as err:
            raise _damaged(path, err) from err
    if not kinds:
        raise DataError(f"The folder {folder} holds no images ({', '.join(sorted(_IMAGES))}).")
    (usual, count), *_ = Counter(kinds.values()).most_common(1)
    if odd := [f"{name} is {kind}" for name, kind in kinds.items() if kind != usual]:
        raise DataError(
            f"All images of {folder} must have one size and mode. {count} are {usual}, but {join_few(odd, '; ')}. "
            "Resize, convert or remove these."
        )
    mode = usual.split()[1]
    if mode not in _WHITE:
        raise DataError(f"Images must have mode {', '.join(_WHITE)}. Those of {folder} have {mode}: convert them.")
    x = np.stack(pixels).reshape(len(pixels), -1) / _WHITE[mode]
    names = tuple(f"x{j}" for j in range(x.shape[1]))
    return Opened(x, names, len(x), f"The folder {folder}", pixels[0].shape)


_READERS: dict[str, Callable[..., Opened]] = {
    ".csv": _open_csv,
    ".tsv": _open_csv,
    ".parquet": _read_parquet,
    ".npy": _read_npy,
    ".npz": _read_npz,
}
