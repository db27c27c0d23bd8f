"""Readers return what was written, and refuse what was changed."""

import gzip
import hashlib
import http.server
import io
import os
import pickle
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from identifiable.data import real
from identifiable.data.sample import Sample
from identifiable.errors import DamagedFileError

# The real files: in IDENTIFIABLE_DATA, or beside the repository.
SHARED = Path(os.environ.get("IDENTIFIABLE_DATA") or Path(__file__).resolve().parents[2].parent / "shared" / "data")
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the real files are not on this machine")

N = 12
RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (N, 5, 4), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (N, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(N, dtype=np.uint8) % 10
CELLS = np.round(np.exp(RNG.uniform(0, 8, (18, 11))), 2)
CONDITIONS = np.arange(18) // 2
EDGES = (("erk", "akt"), ("pka", "raf"), ("pip3", "plc"))


# Writers of small files in each format


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def cifar(images, labels):
    return np.column_stack((labels, images.transpose(0, 3, 1, 2).reshape(len(images), -1))).tobytes()


def mat(**variables):
    file = io.BytesIO()
    savemat(file, variables, do_compression=True)
    return file.getvalue()


def tar(**members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def table(header, rows):
    return "".join("\t".join(row) + "\n" for row in [header, *rows]).encode()


def sachs_tables(cells=CELLS, conditions=CONDITIONS):
    given = [
        [str(int(name in real.SACHS_CONDITIONS[u].split("+"))) for name in real.SACHS_REAGENTS] for u in conditions
    ]
    raw = [[f"{value:.4f}" for value in row] for row in cells]
    logs = [[f"{np.log(value + 10):.4f}" for value in row] for row in cells]
    mixed = [a + b for a, b in zip(logs, given, strict=True)]
    header = list(real.SACHS_PROTEINS)
    return {real.SACHS_RAW: table(header, raw), real.SACHS_MIXED: table(header + list(real.SACHS_REAGENTS), mixed)}


def graph_text(edges=EDGES):
    lines = [f"{i}. {a} --> {b}" for i, (a, b) in enumerate(edges, start=1)]
    return "\n".join(["Graph Nodes:", ";".join(real.SACHS_PROTEINS), "", "Graph Edges:", *lines, "", ""]).encode()


IDX = {"mnist/train-images-idx3-ubyte": idx(GREY), "mnist/train-labels-idx1-ubyte": idx(LABELS)}
BATCHES = {f"cifar10/data_batch_{i}.bin": cifar(COLOUR[i - 1 :: 5], LABELS[i - 1 :: 5]) for i in range(1, 6)}
TAR = tar(**{Path(key).stem: content for key, content in BATCHES.items()})
MAT = mat(X=COLOUR.transpose(1, 2, 3, 0), y=np.where(LABELS == 0, 10, LABELS)[:, None])
IN_BATCHES = np.concatenate([np.arange(N)[i::5] for i in range(5)])


def packed(contents):
    return {f"{key}.gz": gzip.compress(content, mtime=0) for key, content in contents.items()}


# format -> (loader, files, what is published decompressed, must every changed bit be refused)
FORMATS = {
    "idx": (real.load_mnist, IDX, IDX, True),
    "idx.gz": (real.load_mnist, packed(IDX), IDX, False),
    "cifar": (real.load_cifar10, BATCHES, BATCHES, True),
    "cifar.gz": (real.load_cifar10, packed(BATCHES), BATCHES, False),
    "cifar.tar": (real.load_cifar10, {"cifar10/cifar-10-binary.tar": TAR}, BATCHES, False),
    "cifar.tar.gz": (real.load_cifar10, packed({"cifar10/cifar-10-binary.tar": TAR}), BATCHES, False),
    "svhn": (real.load_svhn, {"svhn/train_32x32.mat": MAT}, {"svhn/train_32x32.mat": MAT}, True),
    "sachs": (real.load_sachs, sachs_tables(), sachs_tables(), True),
    "graph": (real.sachs_graph, {real.SACHS_EDGES: graph_text()}, {real.SACHS_EDGES: graph_text()}, True),
}
IMAGES = [name for name in FORMATS if name not in ("sachs", "graph")]
# A gzip or tar header has bytes that carry no data: changing one may leave the same sample.


def put(folder, files):
    for key, content in files.items():
        (folder / Path(key).name).write_bytes(content)


def publish(monkeypatch, contents):
    for key, content in contents.items():
        checksum = hashlib.sha256(content).hexdigest()
        monkeypatch.setitem(real.CONTENTS, (key, len(content)), checksum)
        if key in real.DOWNLOADS:
            monkeypatch.setitem(real.DOWNLOADS, key, (real.DOWNLOADS[key][0], checksum))


@pytest.fixture(params=FORMATS)
def published(request, monkeypatch, tmp_path):
    loader, files, contents, strict = FORMATS[request.param]
    put(tmp_path, files)
    publish(monkeypatch, contents)
    return loader, tmp_path, {Path(key).name: content for key, content in files.items()}, strict


def values(loaded):
    return [loaded.x, loaded.u] if isinstance(loaded, Sample) else [loaded.adjacency]


def same(a, b):
    return all(np.array_equal(p, q) for p, q in zip(values(a), values(b), strict=True))


def refuses(loader, folder, whole):
    """Say whether the loader refuses the folder; if it does not, what it reads must be the whole truth."""
    try:
        loaded = loader(folder)
    except DamagedFileError:
        return True
    assert same(loaded, whole)
    return False


# What is read


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_rows_with_a_name_for_each_pixel(name, monkeypatch, tmp_path):
    loader, files, contents, _ = FORMATS[name]
    put(tmp_path, files)
    publish(monkeypatch, contents)
    loaded = loader(tmp_path)
    images = GREY if "idx" in name else COLOUR
    order = IN_BATCHES if "cifar" in name else np.arange(N)
    assert loaded.image_shape == images.shape[1:]
    assert loaded.x.dtype == np.float32
    assert loaded.u.dtype == np.int64
    np.testing.assert_array_equal(np.rint(loaded.x * 255), images[order].reshape(N, -1))
    np.testing.assert_array_equal(loaded.u, LABELS[order])
    pixel = "pixel_2_3" if "idx" in name else "pixel_2_3_green"
    place = (2, 3) if "idx" in name else (2, 3, 1)
    column = loaded.x[:, loaded.columns.index(pixel)]
    np.testing.assert_array_equal(np.rint(column * 255), images[order][(slice(None), *place)])
    assert len(set(loaded.columns)) == loaded.x.shape[1]


@pytest.mark.parametrize("loader", [real.load_mnist, real.load_fashion_mnist])
def test_the_test_split_of_idx_is_called_t10k(loader, tmp_path):
    put(tmp_path, {key.replace("train", "t10k"): content for key, content in IDX.items()})
    np.testing.assert_array_equal(loader(str(tmp_path), split="test").u, LABELS)


def test_cifar_batches_may_lie_in_the_folder_of_the_archive(tmp_path):
    (tmp_path / "cifar-10-batches-bin").mkdir()
    put(tmp_path / "cifar-10-batches-bin", {"test_batch.bin": cifar(COLOUR, LABELS)})
    np.testing.assert_array_equal(real.load_cifar10(tmp_path, split="test").u, LABELS)


def test_the_first_cifar_batches_are_a_smaller_training_set_and_a_gap_is_named(tmp_path):
    put(tmp_path, {key: BATCHES[key] for key in list(BATCHES)[:2]})
    assert len(real.load_cifar10(tmp_path)) == 6
    put(tmp_path, BATCHES)
    (tmp_path / "data_batch_2.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"Expected data_batch_2.bin .* beside .*data_batch_5.bin"):
        real.load_cifar10(tmp_path)


def test_the_whole_archive_wins_over_some_loose_batches(tmp_path):
    key = "cifar10/data_batch_1.bin"
    put(tmp_path, {key: BATCHES[key], "cifar-10-binary.tar.gz": gzip.compress(TAR)})
    assert len(real.load_cifar10(tmp_path)) == N


def test_sachs_gives_raw_or_log_values_and_conditions(monkeypatch, tmp_path):
    put(tmp_path, sachs_tables())
    publish(monkeypatch, sachs_tables())
    raw, logs = real.load_sachs(tmp_path), real.load_sachs(tmp_path, log=True)
    np.testing.assert_array_equal(raw.x, CELLS)
    np.testing.assert_allclose(np.exp(logs.x) - 10, CELLS, atol=1e-8)
    np.testing.assert_array_equal(raw.u, CONDITIONS)
    assert raw.columns == real.SACHS_PROTEINS


def test_sachs_files_may_have_windows_line_ends(monkeypatch, tmp_path):
    files = sachs_tables() | {real.SACHS_EDGES: graph_text()}
    put(tmp_path, {key: content.replace(b"\n", b"\r\n") for key, content in files.items()})
    publish(monkeypatch, files)
    np.testing.assert_array_equal(real.load_sachs(tmp_path).x, CELLS)
    graph = real.sachs_graph(tmp_path)
    assert {(graph.nodes[i], graph.nodes[j]) for i, j in np.argwhere(graph.adjacency)} == set(EDGES)


def test_digits_are_sixteenths_of_white():
    digits = real.load_digits()
    assert (digits.x.dtype, digits.x.shape, len(digits.columns)) == (np.float32, (1797, 64), 64)
    np.testing.assert_array_equal(np.unique(digits.x * 16), np.arange(17))
    np.testing.assert_array_equal(np.unique(digits.u), np.arange(10))


# What is refused


def test_a_changed_bit_is_refused(published):
    loader, folder, files, strict = published
    whole = loader(folder)
    rng = np.random.default_rng(1)
    refused, trials = 0, 40
    for name, content in files.items():
        for position in rng.integers(0, len(content), trials):
            changed = bytearray(content)
            changed[position] ^= 1 << int(rng.integers(8))
            (folder / name).write_bytes(changed)
            refusal = refuses(loader, folder, whole)
            assert refusal or not strict, f"byte {position} of {name}"
            refused += refusal
        (folder / name).write_bytes(content)
    # The little CIFAR-10 archive has five kilobytes of empty header and end in fifty: most bits still matter.
    assert refused > 0.7 * trials * len(files)
    assert same(loader(folder), whole)


def test_a_file_that_is_cut_short_or_too_long_is_refused(published):
    loader, folder, files, _ = published
    whole = loader(folder)
    rng = np.random.default_rng(2)
    for name, content in files.items():
        for length in (0, 1, len(content) - 1, *rng.integers(0, len(content), 15)):
            (folder / name).write_bytes(content[:length])
            # A plain tar file ends with zeros that carry nothing.
            assert refuses(loader, folder, whole) or (name.endswith(".tar") and not any(content[length:]))
        (folder / name).write_bytes(content + b"\x01\x02\x03\x04\x05")
        assert refuses(loader, folder, whole) or name.endswith(".tar")
        (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (b"\x00\x00\x0d\x03" + idx(GREY)[4:], idx(LABELS), "magic number 00000803.*beginning with 00000d03"),
        (idx(LABELS), idx(LABELS), "3 dimensions.*beginning with 00000801"),
        (idx(GREY), idx(GREY), "1 dimensions.*beginning with 00000803"),
        (idx(GREY)[:10], idx(LABELS), "found 10 bytes"),
        (idx(GREY) + b"0", idx(LABELS), r"expected 256 bytes for a non-empty array of shape \(12, 5, 4\), found 257"),
        (idx(GREY[:0]), idx(LABELS), "non-empty"),
        (idx(GREY), idx(LABELS[1:]), "a label for each of the 12 images, found 11"),
        (idx(GREY), idx(LABELS + np.uint8(1)), "labels 0 to 9, found label 10"),
    ],
)
def test_an_idx_file_that_contradicts_itself_is_refused(images, labels, message, tmp_path):
    put(tmp_path, {"t10k-images-idx3-ubyte": images, "t10k-labels-idx1-ubyte": labels})
    with pytest.raises(DamagedFileError, match=message):
        real.load_fashion_mnist(tmp_path, split="test")


def test_cifar_labels_and_members_are_checked(tmp_path):
    path = tmp_path / "test_batch.bin"
    path.write_bytes(cifar(COLOUR, LABELS + np.uint8(1)))
    with pytest.raises(DamagedFileError, match="labels 0 to 9, found label 10"):
        real.load_cifar10(tmp_path, split="test")
    path.unlink()
    put(tmp_path, {"cifar-10-binary.tar.gz": gzip.compress(TAR)})
    with pytest.raises(DamagedFileError, match=r"found no test_batch\.bin"):
        real.load_cifar10(tmp_path, split="test")


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", FORMATS)
def test_a_pickle_in_place_of_the_file_is_not_run(name, tmp_path):
    loader, files, _, _ = FORMATS[name]
    poison = pickle.dumps(Evil(tmp_path / "ran"))
    put(tmp_path, dict.fromkeys(files, poison))
    with pytest.raises(DamagedFileError):
        loader(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_an_unknown_split_is_named():
    with pytest.raises(ValueError, match=r"must be 'train' or 'test'\. Got 'valid' instead"):
        real.load_mnist(split="valid")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (real.load_fashion_mnist, r"train-images-idx3-ubyte\.gz or .*fashion-mnist"),
        (real.load_cifar10, r"cifar-10-binary\.tar\.gz or .*cs\.toronto\.edu"),
        (real.load_sachs, r"sachs\.2005\.continuous\.txt in .*cmu-phil"),
    ],
)
def test_a_missing_file_says_what_was_expected_where_and_how_to_get_it(loader, words, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"(?s)Expected {words}.*folder="):
        loader(tmp_path)
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        loader(tmp_path / "nowhere")


# Downloads, from a server on this machine


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[tuple[Path, list[str]]]:
    """Serve the folder `web`, and keep the paths that were asked for; the cache is the folder `cache`."""
    asked: list[str] = []
    web = tmp_path / "web"
    web.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(web))

        def do_GET(self):
            asked.append(self.path.rpartition("/")[2])
            super().do_GET()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
        thread.start()
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("IDENTIFIABLE_DATA", str(tmp_path / "cache"))
        for key, (_, checksum) in real.DOWNLOADS.items():
            monkeypatch.setitem(real.DOWNLOADS, key, (f"http://127.0.0.1:{httpd.server_port}/", checksum))
        yield web, asked
        httpd.shutdown()
        thread.join()


def offer(monkeypatch, web, files):
    """Put files on the server, and their checksums in the table."""
    put(web, files)
    for key, content in files.items():
        monkeypatch.setitem(real.DOWNLOADS, key, (real.DOWNLOADS[key][0], f"md5:{hashlib.md5(content).hexdigest()}"))


DOWNLOADS: dict[str, tuple[Callable[..., Sample], dict[str, bytes]]] = {
    "mnist": (real.load_mnist, packed(IDX)),
    "fashion_mnist": (
        real.load_fashion_mnist,
        {key.replace("mnist/", "fashion_mnist/"): content for key, content in packed(IDX).items()},
    ),
    "cifar10": (real.load_cifar10, {real.CIFAR_ARCHIVE: gzip.compress(TAR, mtime=0)}),
    "svhn": (real.load_svhn, {"svhn/train_32x32.mat": MAT}),
    "sachs": (real.load_sachs, sachs_tables()),
}


@pytest.mark.parametrize("name", DOWNLOADS)
def test_a_set_is_downloaded_once_to_its_own_folder_of_the_cache(name, server, monkeypatch, tmp_path):
    (web, asked), (loader, files) = server, DOWNLOADS[name]
    offer(monkeypatch, web, files)
    first = loader()
    cache = tmp_path / "cache"
    assert sorted(asked) == sorted(Path(key).name for key in files)
    assert {path.relative_to(cache).as_posix() for path in (cache / name).iterdir()} == set(files)
    assert same(loader(), first)
    assert same(loader(cache / name), first)
    assert len(asked) == len(files)


def test_a_download_with_another_checksum_is_refused_and_leaves_nothing(server, monkeypatch, tmp_path):
    (web, _), (loader, files) = server, DOWNLOADS["svhn"]
    offer(monkeypatch, web, files)
    (web / "train_32x32.mat").write_bytes(MAT[:-1] + b"?")
    with pytest.raises(DamagedFileError, match=r"differs from the published.*deleted.*folder="):
        loader()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    (web / "train_32x32.mat").write_bytes(MAT)
    assert len(loader()) == N


def test_a_download_that_breaks_off_leaves_nothing(server, monkeypatch, tmp_path):
    (web, _), (loader, files) = server, DOWNLOADS["svhn"]
    offer(monkeypatch, web, files)
    handler = http.server.SimpleHTTPRequestHandler
    monkeypatch.setattr(handler, "copyfile", lambda self, source, output: output.write(source.read(1000)))
    with pytest.raises((DamagedFileError, FileNotFoundError), match="folder="):
        loader()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_download_that_is_not_there_says_how_to_get_it_by_hand(server, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"could not be downloaded: 404.*Download http.*folder="):
        real.load_mnist()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_without_the_environment_variable_the_users_cache_folder_is_used(server, monkeypatch, tmp_path):
    (web, _), (loader, files) = server, DOWNLOADS["svhn"]
    offer(monkeypatch, web, files)
    monkeypatch.delenv("IDENTIFIABLE_DATA")
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "home" / project)
    loader()
    assert (tmp_path / "home" / "identifiable" / "svhn" / "train_32x32.mat").is_file()


# The real files


@needs_shared
def test_the_real_files_are_read():
    """Their loaders compare them with published checksums."""
    for split, rows in (("train", 60_000), ("test", 10_000)):
        assert real.load_mnist(SHARED / "mnist", split=split).x.shape == (rows, 784)
        assert len(real.load_cifar10(SHARED / "cifar10", split=split)) in (5000, 10_000)
    raw, graph = real.load_sachs(SHARED / "sachs"), real.sachs_graph(SHARED / "sachs")
    assert raw.x.shape == (7466, 11)
    assert (graph.nodes, graph.adjacency.sum()) == (raw.columns, 20)
