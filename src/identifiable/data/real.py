"""Real data sets, from a folder of yours or downloaded once; reading them never executes anything.

Where a file comes from: `folder=` names the folder that holds it. Without `folder`, it is looked for in the cache,
`$IDENTIFIABLE_DATA/<set>/` or else the user's cache folder, and downloaded there when it is missing.

What is checked: pooch compares each download with its published checksum. Each reader checks lengths and labels, which
detects truncation but not a changed pixel; so a file as long as the published one must also have its checksum, computed
after decompression. IDX files and CIFAR-10 batches of other lengths, such as a set of your own, are accepted by
structure alone; files of SVHN and Sachs must be the published ones.
"""

import gzip
import hashlib
import io
import math
import os
import re
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat
from sklearn import datasets

from identifiable.arrays import IntArray
from identifiable.data.sample import Sample
from identifiable.errors import DamagedFileError

Folder = str | os.PathLike[str] | None
Split = Literal["train", "test"]
Bytes = NDArray[np.uint8]


def _records(name: str) -> list[list[str]]:
    """Return the fields of each line of a file beside this one; lines that begin with # are comments."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines if not line.startswith("#")]


DOWNLOADS = {key: (folder, checksum) for key, checksum, folder in _records("downloads.txt")}
CONTENTS = {(key, int(length)): checksum for key, length, checksum in _records("contents.txt")}
CIFAR_ARCHIVE = "cifar10/cifar-10-binary.tar.gz"
SACHS_RAW = "sachs/sachs.2005.continuous.txt"
SACHS_MIXED = "sachs/sachs.2005.continuous.discrete.experimental.mixed.maximum.2.txt"
SACHS_EDGES = "sachs/sachs.2005.ground.truth.graph.txt"

CIFAR_RECORD = 1 + 3 * 32 * 32  # bytes: the label, then the red, green and blue pixels
SACHS_PROTEINS = ("raf", "mek", "plc", "pip2", "pip3", "erk", "akt", "pka", "pkc", "p38", "jnk")
SACHS_REAGENTS = ("cd3_cd28", "icam2", "aktinhib", "g0076", "psitect", "u0126", "ly", "pma", "b2camp")
# Six reagents were given in addition to anti-CD3/CD28, two without it: SACHS_CONDITIONS[u] is what the cell was given.
SACHS_CONDITIONS = ("cd3_cd28", *(f"cd3_cd28+{name}" for name in SACHS_REAGENTS[1:7]), "pma", "b2camp")


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
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if _check_split(split) == "train" else ["test_batch.bin"]
    batches = []
    for name, (path, content) in _cifar_batches(names, folder).items():
        if len(content) % CIFAR_RECORD or not content:
            raise _damaged(path, f"one or more whole records of {CIFAR_RECORD} bytes", f"{len(content)} bytes")
        key = f"cifar10/{name}"
        _check_content(path, content, CONTENTS.get((key, len(content))), key)
        records = np.frombuffer(content, np.uint8).reshape(-1, CIFAR_RECORD)
        _check_labels(path, records[:, 0])
        batches.append(records)
    records = np.concatenate(batches)
    pixels = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # (N, channel, h, w) -> (N, h, w, channel)
    return _image_sample(pixels, records[:, 0])


def load_svhn(folder: Folder = None, split: Split = "train") -> Sample:
    """Load SVHN, cropped digits: x (73257 or 26032, 3072) in [0, 1], rows height x width x channel, u (N,) the digit.

    `folder` holds `train_32x32.mat` and `test_32x32.mat`. The files call the digit zero 10; here it is 0.
    Origin: Netzer et al. 2011; for non-commercial use only.
    """
    variables = loadmat(io.BytesIO(_read_published(f"svhn/{_check_split(split)}_32x32.mat", folder)))
    return _image_sample(variables["X"].transpose(3, 0, 1, 2), variables["y"][:, 0] % 10)


def load_sachs(folder: Folder = None, *, log: bool = False) -> Sample:
    """Load the Sachs cells: x (7466, 11) abundances of `SACHS_PROTEINS`, u (7466,) what the cell was given.

    `u` indexes `SACHS_CONDITIONS`: 0 and 1 stimulate the cells in general; 2 to 8 add an inhibitor or activator
    aimed at one part of the network. x is raw fluorescence, from 1 to about 9000 and heavily skewed; `log=True` gives
    log(x + 10) instead, the scale of the published table of conditions (which rounds it to 4 decimals).
    `folder` holds the two tables `sachs.2005.continuous*.txt`. Origin: Sachs et al. 2005, Science 308; CC0.
    """
    raw, mixed = (
        np.loadtxt(io.BytesIO(_read_published(key, folder)), delimiter="\t", skiprows=1)
        for key in (SACHS_RAW, SACHS_MIXED)  # (N, 11) and (N, 20), the same cells
    )
    # The nine indicator columns as each condition sets them, (9, 9).
    patterns = np.array([[name in condition.split("+") for name in SACHS_REAGENTS] for condition in SACHS_CONDITIONS])
    matches = (mixed[:, None, len(SACHS_PROTEINS) :] == patterns).all(axis=2)  # (N, 9)
    return Sample(x=np.log(raw + 10) if log else raw, u=matches.argmax(axis=1), columns=SACHS_PROTEINS)


def sachs_graph(folder: Folder = None) -> KnownGraph:
    """Load the consensus graph among the Sachs proteins: 11 nodes in the order of `load_sachs().columns`, 20 edges.

    `folder` holds `sachs.2005.ground.truth.graph.txt`. Origin and licence: see `load_sachs`.
    """
    adjacency = np.zeros((len(SACHS_PROTEINS), len(SACHS_PROTEINS)), dtype=np.int64)
    for cause, effect in re.findall(r"(\w+) --> (\w+)", _read_published(SACHS_EDGES, folder).decode()):
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


# Finding and downloading


def _pooch() -> Any:
    import pooch

    return pooch.create(
        path=pooch.os_cache("identifiable"),
        base_url="",
        registry={key: checksum for key, (_, checksum) in DOWNLOADS.items()},
        urls={key: url + Path(key).name for key, (url, _) in DOWNLOADS.items()},
        env="IDENTIFIABLE_DATA",
    )


def _home(key: str, folder: Folder) -> Path:
    """Return the folder where the files of this set are, or will be after a download."""
    return Path(folder).expanduser() if folder is not None else Path(_pooch().abspath) / Path(key).parent


def _locate(key: str, folder: Folder) -> Path:
    """Return the path of a file, compressed or plain: in the user's folder, or in the cache, or downloaded to it."""
    home, name, url = _home(key, folder), Path(key).name, _pooch().urls[key]
    names = tuple(dict.fromkeys((name, name.removesuffix(".gz"))))
    for candidate in names:
        if (home / candidate).is_file():
            return home / candidate
    by_hand = f"Download {url} into a folder and name it: folder=..."
    if folder is not None:
        state = "has no such file" if home.is_dir() else "does not exist"
        raise FileNotFoundError(f"Expected {' or '.join(names)} in {home}, which {state}. {by_hand}")
    try:
        return Path(_pooch().fetch(key))
    except ValueError as error:  # pooch deletes what it downloaded when the checksum differs
        raise DamagedFileError(
            f"{url}: the download differs from the published file and was deleted ({error}). Try again; if it differs "
            "again, the publisher changed the file: get the original elsewhere and name its folder: folder=..."
        ) from error
    except OSError as error:
        raise FileNotFoundError(f"{name} is not in {home}, and could not be downloaded: {error}. {by_hand}") from error


# Reading and checking


def _damaged(path: Path, expected: str, found: str) -> DamagedFileError:
    cure = "The file is damaged or of another kind: delete it and get it again."
    return DamagedFileError(f"{path}: expected {expected}, found {found}. {cure}")


def _check_content(path: Path, content: bytes, checksum: str | None, key: str) -> bytes:
    """Return the content; refuse it if it has another checksum. None accepts any."""
    algorithm, _, digest = (checksum or "").rpartition(":")
    if checksum and hashlib.new(algorithm or "sha256", content, usedforsecurity=False).hexdigest() != digest:
        raise _damaged(path, f"the published {key} ({checksum})", f"{len(content)} bytes with another checksum")
    return content


def _check_labels(path: Path, labels: Bytes) -> None:
    if labels.max() > 9:
        raise _damaged(path, "labels 0 to 9", f"label {labels.max()}")


def _read(path: Path) -> bytes:
    """Return the bytes of a file, decompressed when its name ends in .gz (gzip's own checksum included)."""
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, "a whole gzip file", str(error)) from error


def _read_published(key: str, folder: Folder) -> bytes:
    """Return the bytes of a file that must be the published one; text may have the line ends of Windows."""
    path = _locate(key, folder)
    content = path.read_bytes()
    content = content.replace(b"\r\n", b"\n") if path.suffix == ".txt" else content
    return _check_content(path, content, DOWNLOADS[key][1], key)


def _load_idx(name: str, folder: Folder, split: str) -> Sample:
    part = "train" if _check_split(split) == "train" else "t10k"
    images_path = _locate(f"{name}/{part}-images-idx3-ubyte.gz", folder)
    labels_path = _locate(f"{name}/{part}-labels-idx1-ubyte.gz", folder)
    images = _read_idx(images_path, f"{name}/{part}-images-idx3-ubyte", n_dims=3)
    labels = _read_idx(labels_path, f"{name}/{part}-labels-idx1-ubyte", n_dims=1)
    if len(images) != len(labels):
        raise _damaged(labels_path, f"a label for each of the {len(images)} images", f"{len(labels)} labels")
    _check_labels(labels_path, labels)
    return _image_sample(images, labels)


def _read_idx(path: Path, key: str, n_dims: int) -> Bytes:
    """Read an IDX file: two zeros, type 8 (unsigned bytes), the number of dimensions, their sizes, the bytes."""
    content, magic, start = _read(path), bytes((0, 0, 8, n_dims)), 4 + 4 * n_dims
    if not content.startswith(magic) or len(content) < start:
        expected = f"an IDX file of unsigned bytes in {n_dims} dimensions (magic number {magic.hex()})"
        raise _damaged(path, expected, f"{len(content)} bytes beginning with {content[:4].hex() or 'nothing'}")
    shape = np.frombuffer(content, ">u4", count=n_dims, offset=4).tolist()
    if len(content) != start + math.prod(shape) or 0 in shape:
        expected = f"{start + math.prod(shape)} bytes for a non-empty array of shape {tuple(shape)}"
        raise _damaged(path, expected, f"{len(content)} bytes")
    _check_content(path, content, CONTENTS.get((key, len(content))), key)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _cifar_batches(names: list[str], folder: Folder) -> dict[str, tuple[Path, bytes]]:
    """Return path and content of each batch, from loose files or else from the archive."""
    home = _home(CIFAR_ARCHIVE, folder)
    folders = (home / "cifar-10-batches-bin", home)
    candidates = [(name, place / f"{name}{end}") for name in names for place in folders for end in ("", ".gz")]
    loose = {name: path for name, path in candidates if path.is_file()}
    # A folder with the archive and only some of its batches counts as the whole set.
    if loose and (len(loose) == len(names) or not (home / Path(CIFAR_ARCHIVE).name).is_file()):
        if missing := [name for name in names[: len(loose)] if name not in loose]:
            raise FileNotFoundError(
                f"Expected {', '.join(missing)} (or .gz) in {home} beside {', '.join(loose)}. Add the missing batches "
                f"from {DOWNLOADS[CIFAR_ARCHIVE][0]}, or remove the later ones for a smaller training set."
            )
        return {name: (path, _read(path)) for name, path in loose.items()}
    path = _locate(CIFAR_ARCHIVE, folder)
    try:
        with tarfile.open(fileobj=io.BytesIO(_read(path)), mode="r:") as archive:
            members = {Path(member.name).name: archive.extractfile(member) for member in archive if member.isfile()}
            contents = {name: file.read() for name, file in members.items() if file is not None and name in names}
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise _damaged(path, "a whole tar archive", str(error)) from error
    if missing := sorted(set(names) - set(contents)):
        raise _damaged(path, f"the batches {', '.join(names)} in it", f"no {', '.join(missing)}")
    return {name: (path, contents[name]) for name in names}
