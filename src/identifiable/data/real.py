"""Real data sets, from a folder of yours or downloaded once; reading them never executes anything.

Where a file comes from: `folder=` names the folder that holds it. Without `folder`, it is looked for in the cache,
`$IDENTIFIABLE_DATA/<set>/` or else the user's cache folder, and fetched there when it is missing.

What is checked: pooch compares each download with its published checksum. Each reader checks the structure (magic
numbers, lengths, ranges), which sees truncation but not a changed pixel; so a file as long as the published one must
also have its checksum, taken after decompression. Files of other lengths, such as an IDX set of your own, are accepted
by structure alone; the Sachs files are always compared.
"""

import gzip
import hashlib
import io
import math
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat
from sklearn import datasets

from identifiable.arrays import FloatArray, IntArray
from identifiable.data.checksums import (
    CIFAR,
    CIFAR_ARCHIVE,
    CONTENTS,
    DOWNLOADS,
    SACHS_EDGES,
    SACHS_MIXED,
    SACHS_RAW,
)
from identifiable.data.sample import Sample
from identifiable.errors import DamagedFileError

Folder = str | os.PathLike[str] | None
Split = Literal["train", "test"]
Bytes = NDArray[np.uint8]

SACHS_PROTEINS = ("raf", "mek", "plc", "pip2", "pip3", "erk", "akt", "pka", "pkc", "p38", "jnk")
_SACHS_REAGENTS = ("cd3_cd28", "icam2", "aktinhib", "g0076", "psitect", "u0126", "ly", "pma", "b2camp")
# Six reagents were given on top of anti-CD3/CD28, two without it: SACHS_CONDITIONS[u] is what the cell was given.
SACHS_CONDITIONS = ("cd3_cd28", *(f"cd3_cd28+{name}" for name in _SACHS_REAGENTS[1:7]), "pma", "b2camp")


@dataclass(frozen=True, eq=False)
class KnownGraph:
    """A directed graph: `adjacency[i, j] == 1` means `nodes[i]` -> `nodes[j]`."""

    nodes: tuple[str, ...]
    adjacency: IntArray


def load_digits() -> Sample:
    """Load scikit-learn's handwritten digits: x (1797, 64) in [0, 1], u (1797,) the digit. Nothing is downloaded.

    Origin: Alpaydin and Kaynak 1998, the test half of UCI's Optical Recognition of Handwritten Digits; CC BY 4.0.

    Examples
    --------
    >>> digits = load_digits()
    >>> digits, digits.image_shape
    (Sample(x=(1797, 64), u=(1797,)), (8, 8))
    >>> digits.x.min().item(), digits.x.max().item(), digits.u[:5].tolist()
    (0.0, 1.0, [0, 1, 2, 3, 4])
    """
    pixels, labels = datasets.load_digits(return_X_y=True)
    return _image_sample(pixels.reshape(-1, 8, 8), labels, white=16)


def load_mnist(folder: Folder = None, split: Split = "train") -> Sample:
    """Load MNIST: x (60000 or 10000, 784) in [0, 1], rows of 28 x 28 pixels, u (N,) the digit.

    `folder` holds `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the two `t10k` files, each plain or `.gz`.
    Origin: LeCun, Cortes and Burges 1998; CC BY-SA 3.0.
    """
    return _load_idx("mnist", folder, split)


def load_fashion_mnist(folder: Folder = None, split: Split = "train") -> Sample:
    """Load Fashion-MNIST: x (60000 or 10000, 784) in [0, 1], rows of 28 x 28 pixels, u (N,) the class, 0 to 9.

    `folder` holds files of the same names as for `load_mnist`. Origin: Xiao, Rasul and Vollgraf 2017; MIT.
    """
    return _load_idx("fashion_mnist", folder, split)


def load_cifar10(folder: Folder = None, split: Split = "train") -> Sample:
    """Load CIFAR-10: x (50000 or 10000, 3072) in [0, 1], rows of height x width x channel, u (N,) the class, 0 to 9.

    `folder` holds the binary batches (`data_batch_1.bin` to `data_batch_5.bin`, `test_batch.bin`, plain or `.gz`, also
    in the subfolder `cifar-10-batches-bin`), or the archive `cifar-10-binary.tar.gz`, read without unpacking it. The
    first training batches alone are a smaller training set. Origin: Krizhevsky 2009; no licence stated.
    """
    records = np.concatenate([_check_cifar(*batch) for batch in _cifar_batches(folder, _check_split(split))])
    pixels = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # (N, channel, h, w) -> (N, h, w, channel)
    return _image_sample(pixels, records[:, 0])


def load_svhn(folder: Folder = None, split: Split = "train") -> Sample:
    """Load SVHN, cropped digits: x (73257 or 26032, 3072) in [0, 1], rows height x width x channel, u (N,) the digit.

    `folder` holds `train_32x32.mat` and `test_32x32.mat`. The files call the digit zero 10; here it is 0.
    Origin: Netzer et al. 2011; for non-commercial use only.
    """
    key = f"svhn/{_check_split(split)}_32x32.mat"
    path = _locate(key, folder)
    content = path.read_bytes()
    _check_content(path, key, content)
    variables = _read_mat(path, content)
    pixels, labels = variables.get("X"), variables.get("y")
    if pixels is None or labels is None:
        raise _damaged(path, "the variables X and y", f"{sorted(variables)}")
    n_images = pixels.shape[-1]
    if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3, n_images) or labels.shape != (n_images, 1):
        expected = "X (32, 32, 3, N) of unsigned bytes and y (N, 1)"
        raise _damaged(path, expected, f"X {pixels.shape} of {pixels.dtype} and y {labels.shape}")
    if not np.isin(labels, np.arange(1, 11)).all():
        raise _damaged(path, "labels 1 to 10", f"labels {np.unique(labels).tolist()}")
    return _image_sample(pixels.transpose(3, 0, 1, 2), labels[:, 0] % 10)


def load_sachs(folder: Folder = None, *, log: bool = False) -> Sample:
    """Load the Sachs cells: x (7466, 11) abundances of `SACHS_PROTEINS`, u (7466,) what the cell was given.

    `u` indexes `SACHS_CONDITIONS`: 0 and 1 stimulate the cells in general; 2 to 8 bring an inhibitor or activator
    aimed at one part of the network. x is raw fluorescence, from 1 to about 9000 and heavily skewed; `log=True` gives
    log(x + 10) instead, the scale of the published table of conditions (which rounds it to 4 decimals).
    `folder` holds the two tables `sachs.2005.continuous*.txt`. Origin: Sachs et al. 2005, Science 308; CC0.
    """
    raw_path, mixed_path = _locate(SACHS_RAW, folder), _locate(SACHS_MIXED, folder)
    raw = _read_table(raw_path, SACHS_RAW, SACHS_PROTEINS)  # (N, 11)
    mixed = _read_table(mixed_path, SACHS_MIXED, SACHS_PROTEINS + _SACHS_REAGENTS)  # (N, 20)
    logs, given = np.log(raw + 10), mixed[:, len(SACHS_PROTEINS) :]
    if len(mixed) != len(raw) or not np.allclose(logs, mixed[:, : len(SACHS_PROTEINS)], rtol=0, atol=5.1e-5):
        raise _damaged(mixed_path, f"the cells of {raw_path.name}, as log(x + 10)", "other cells")
    # The nine indicator columns as each condition sets them, (9, 9).
    patterns = np.array([[name in condition.split("+") for name in _SACHS_REAGENTS] for condition in SACHS_CONDITIONS])
    matches = (given[:, None, :] == patterns).all(axis=2)  # (N, 9)
    if not matches.any(axis=1).all():
        line = int(np.flatnonzero(~matches.any(axis=1))[0]) + 2
        raise _damaged(mixed_path, "one of the nine conditions in every row", f"another one in line {line}")
    return Sample(x=logs if log else raw, u=matches.argmax(axis=1), columns=SACHS_PROTEINS)


def sachs_graph(folder: Folder = None) -> KnownGraph:
    """Load the consensus graph among the Sachs proteins: 11 nodes in the order of `load_sachs().columns`, 20 edges.

    `folder` holds `sachs.2005.ground.truth.graph.txt`. Origin and licence as for `load_sachs`.
    """
    path = _locate(SACHS_EDGES, folder)
    content = path.read_bytes().replace(b"\r\n", b"\n")
    lines = content.decode("latin-1").rstrip("\n").split("\n")
    edges = [re.fullmatch(r"\d+\. (\w+) --> (\w+)", line) for line in lines[4:]]
    pairs = [edge.groups() for edge in edges if edge]
    names = {name for pair in pairs for name in pair}
    head = ["Graph Nodes:", ";".join(SACHS_PROTEINS), "", "Graph Edges:"]
    if lines[:4] != head or len(pairs) < len(edges) or not names <= set(SACHS_PROTEINS):
        raise _damaged(path, "the eleven proteins, and edges like '1. erk --> akt' among them", "other lines")
    _check_content(path, SACHS_EDGES, content, always=True)
    adjacency = np.zeros((len(SACHS_PROTEINS), len(SACHS_PROTEINS)), dtype=np.int64)
    for cause, effect in pairs:
        adjacency[SACHS_PROTEINS.index(cause), SACHS_PROTEINS.index(effect)] = 1
    return KnownGraph(SACHS_PROTEINS, adjacency)


def _check_split(split: str) -> str:
    if split not in ("train", "test"):
        raise ValueError(f"The 'split' parameter must be 'train' or 'test'. Got {split!r} instead.")
    return split


def _image_sample(pixels: NDArray[Any], labels: NDArray[Any], white: int = 255) -> Sample:
    """Return images (N, h, w) or (N, h, w, 3), valued 0 to `white`, as rows in [0, 1] with a name for each column."""
    shape = pixels.shape[1:]
    x = np.divide(pixels.reshape(len(pixels), -1), white, dtype=np.float32)
    channels = ("_red", "_green", "_blue") if len(shape) == 3 else ("",)
    columns = tuple(f"pixel_{i}_{j}{c}" for i in range(shape[0]) for j in range(shape[1]) for c in channels)
    return Sample(x=x, u=labels.astype(np.int64), columns=columns, image_shape=shape)


# Finding and fetching


def _home(key: str, folder: Folder) -> Path:
    """Return the folder where the files of this set are, or will be after a download."""
    if folder is not None:
        return Path(folder).expanduser()
    named = os.environ.get("IDENTIFIABLE_DATA")
    return (Path(named).expanduser() if named else Path(_pooch(key).os_cache("identifiable"))) / key.partition("/")[0]


def _locate(key: str, folder: Folder, instead: str = "") -> Path:
    """Return the path of a file, packed or plain: in the user's folder, or in the cache, or downloaded to it."""
    home, name = _home(key, folder), key.partition("/")[2]
    url, checksum = DOWNLOADS[key][0] + name, DOWNLOADS[key][1]
    names = tuple(dict.fromkeys((name, name.removesuffix(".gz"))))
    for candidate in names:
        if (home / candidate).is_file():
            return home / candidate
    by_hand = f"Download {url} into a folder and name it: folder=..."
    if folder is not None:
        state = "has no such file" if home.is_dir() else "does not exist"
        raise FileNotFoundError(f"Expected {' or '.join(names)}{instead} in {home}, which {state}. {by_hand}")
    try:
        return Path(_pooch(key).retrieve(url, known_hash=checksum, fname=name, path=home))
    except ValueError as error:  # pooch deletes what it downloaded when the checksum differs
        raise DamagedFileError(
            f"{url}: expected {checksum}, but another file came and was deleted ({error}). Try again; if it comes "
            "again, the publisher changed the file: get the original elsewhere and name its folder: folder=..."
        ) from error
    except OSError as error:
        raise FileNotFoundError(f"{name} is not in {home}, and could not be downloaded: {error}. {by_hand}") from error


def _pooch(key: str) -> Any:
    try:
        import pooch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Downloading {key} needs pooch: pip install pooch. Or name the folder that holds it: folder=..."
        ) from error
    return pooch


# Reading and checking


def _damaged(path: Path, expected: str, found: str) -> DamagedFileError:
    cure = "The file is damaged or of another kind: delete it and get it again."
    return DamagedFileError(f"{path}: expected {expected}, found {found}. {cure}")


def _check_content(path: Path, key: str, content: bytes, *, always: bool = False) -> None:
    """Refuse bytes that are as many as the published ones but differ; with `always`, any other number of them too."""
    checksum = CONTENTS.get((key, len(content)))
    if checksum is None and always:
        raise _damaged(path, f"as many bytes as the published {key}", f"{len(content)} bytes")
    if checksum is not None:
        algorithm = "md5" if checksum.startswith("md5:") else "sha256"
        found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
        if found != checksum.removeprefix("md5:"):
            raise _damaged(path, f"the published {key} ({checksum})", f"as many bytes, but {algorithm} {found}")


def _read(path: Path) -> bytes:
    """Return the bytes of a file, decompressed when its name ends in .gz (gzip's own checksum included)."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            return file.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, "a whole gzip file", str(error)) from error


def _load_idx(name: str, folder: Folder, split: str) -> Sample:
    part = "train" if _check_split(split) == "train" else "t10k"
    images_path = _locate(f"{name}/{part}-images-idx3-ubyte.gz", folder)
    labels_path = _locate(f"{name}/{part}-labels-idx1-ubyte.gz", folder)
    images = _read_idx(images_path, f"{name}/{part}-images-idx3-ubyte", n_dims=3)
    labels = _read_idx(labels_path, f"{name}/{part}-labels-idx1-ubyte", n_dims=1)
    if len(images) != len(labels):
        raise _damaged(labels_path, f"a label for each of the {len(images)} images", f"{len(labels)} labels")
    if labels.max() > 9:
        raise _damaged(labels_path, "labels 0 to 9", f"label {labels.max()}")
    return _image_sample(images, labels)


def _read_idx(path: Path, key: str, n_dims: int) -> Bytes:
    """Read an IDX file: two zeros, type 8 (unsigned bytes), the number of dimensions, their sizes, the bytes."""
    content, magic, start = _read(path), bytes((0, 0, 8, n_dims)), 4 + 4 * n_dims
    if content[:4] != magic or len(content) < start:
        expected = f"an IDX file of unsigned bytes in {n_dims} dimensions (magic number {magic.hex()})"
        raise _damaged(path, expected, f"{len(content)} bytes beginning with {content[:4].hex() or 'nothing'}")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", count=n_dims, offset=4))
    if len(content) != start + math.prod(shape) or 0 in shape:
        expected = f"{start + math.prod(shape)} bytes for a non-empty array of shape {shape}"
        raise _damaged(path, expected, f"{len(content)} bytes")
    _check_content(path, key, content)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _cifar_batches(folder: Folder, split: str) -> Iterator[tuple[Path, str, bytes]]:
    """Yield path, key and content of each batch, from loose files or else from the archive."""
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if split == "train" else ["test_batch.bin"]
    home = _home(CIFAR_ARCHIVE, folder)
    loose: dict[str, Path] = {}
    for place in (home, home / "cifar-10-batches-bin"):
        for path in (place / f"{name}{packed}" for name in names for packed in (".gz", "")):
            if path.is_file():
                loose.setdefault(path.name.removesuffix(".gz"), path)
    # A folder with the archive and only some of its batches is taken for the whole set.
    if loose and (len(loose) == len(names) or not (home / Path(CIFAR_ARCHIVE).name).is_file()):
        if missing := sorted(set(names[: names.index(max(loose))]) - set(loose)):
            raise FileNotFoundError(
                f"Expected {', '.join(missing)} (or .gz) in {home} beside {max(loose)}. Add the missing batches from "
                f"{CIFAR}, or remove the later ones for a smaller training set."
            )
        yield from ((loose[name], f"cifar10/{name}", _read(loose[name])) for name in names if name in loose)
        return
    path = _locate(CIFAR_ARCHIVE, folder, instead=f" or {names[0]} (or .gz)")
    content = _read(path)
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            members = {Path(member.name).name: archive.extractfile(member) for member in archive if member.isfile()}
            contents = {name: file.read() for name, file in members.items() if file is not None and name in names}
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise _damaged(path, "a whole tar archive", str(error)) from error
    if missing := sorted(set(names) - set(contents)):
        raise _damaged(path, f"the batches {', '.join(names)} in it", f"no {', '.join(missing)}")
    yield from ((path, f"cifar10/{name}", contents[name]) for name in names)


def _check_cifar(path: Path, key: str, content: bytes) -> Bytes:
    """Return records (N, 3073): the label, then 1024 red, 1024 green and 1024 blue bytes."""
    if len(content) % 3073 or not content:
        raise _damaged(path, "one or more whole records of 3073 bytes", f"{len(content)} bytes")
    _check_content(path, key, content)
    records = np.frombuffer(content, np.uint8).reshape(-1, 3073)
    if records[:, 0].max() > 9:
        raise _damaged(path, "labels 0 to 9", f"label {records[:, 0].max()}")
    return records


def _read_mat(path: Path, content: bytes) -> dict[str, NDArray[Any]]:
    """Read the variables of a compressed MATLAB 5 file.

    A changed byte can crash scipy's reader, so the elements are unpacked here first, which checks zlib's checksums.
    """
    header, body = content[:128], memoryview(content)[128:]
    if len(header) < 128 or header[124:] != b"\x00\x01IM":
        raise _damaged(path, "a MATLAB 5 file, little-endian", f"{len(content)} bytes with another header")
    plain = [header]
    while body:
        kind, length = (int.from_bytes(body[i : i + 4], "little") for i in (0, 4))
        if kind != 15 or length > len(body) - 8:
            expected = "whole compressed elements (scipy.io.savemat writes them with do_compression=True)"
            raise _damaged(path, expected, f"type {kind}, {length} of {len(body)} bytes")
        unpack = zlib.decompressobj()
        try:
            plain.append(unpack.decompress(body[8 : 8 + length]))
        except zlib.error as error:
            raise _damaged(path, "whole compressed elements", str(error)) from error
        if not unpack.eof or unpack.unused_data:
            raise _damaged(path, "whole compressed elements", "one that ends too early or too late")
        body = body[8 + length :]
    try:
        variables = loadmat(io.BytesIO(b"".join(plain)), variable_names=("X", "y"))
    except Exception as error:  # scipy's reader raises many kinds, none of its own
        raise _damaged(path, "a readable MATLAB 5 file", f"{type(error).__name__}: {error}") from error
    return {name: value for name, value in variables.items() if isinstance(value, np.ndarray)}


def _read_table(path: Path, key: str, header: tuple[str, ...]) -> FloatArray:
    """Read a published tab-separated table of finite numbers, (rows, len(header)); line ends may be Windows'."""
    content = path.read_bytes().replace(b"\r\n", b"\n")
    rows = [line.split("\t") for line in content.decode("latin-1").removesuffix("\n").split("\n")]
    if tuple(rows[0]) != header:
        raise _damaged(path, f"the columns {', '.join(header)}", ", ".join(rows[0]))
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise _damaged(path, f"{len(header)} fields in each line", f"{len(row)} in line {number}")
    try:
        table = np.array(rows[1:], dtype=np.float64).reshape(-1, len(header))
    except ValueError as error:
        raise _damaged(path, "numbers", str(error)) from error
    if not np.isfinite(table).all():
        raise _damaged(path, "finite numbers", f"another in line {np.argwhere(~np.isfinite(table))[0, 0] + 2}")
    _check_content(path, key, content, always=True)  # last, because the messages above say more
    return table
