"""Laws of the user's own tables: what goes in comes out bit for bit, or an error says where and why not."""

import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from identifiable.data import inspect_table, inspection, table
from identifiable.data.inspection import TableSummary, describe
from identifiable.data.sample import Sample
from identifiable.data.table import TableReader, read_table
from identifiable.errors import DamagedFileError, DataError

quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
matrices = hnp.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(1, 4)), elements=finite)


def bits(x):
    return x.dtype, x.shape, np.ascontiguousarray(x).tobytes()


def write_csv(frame, path, **options):
    frame.to_csv(path, index=False, **options)
    return path


def write_parquet(frame, path, **options):
    frame.to_parquet(path, **options)
    return path


def write_npy(x, path, **options):
    np.save(path, x, **options)
    return path


def write_npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def write_text(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# ---------------------------------------------------------------- round trips

FRAME_WRITERS = {
    "frame": lambda frame, folder: frame,
    "csv": lambda frame, folder: write_csv(frame, folder / "t.csv"),
    "csv with an index": lambda frame, folder: frame.to_csv(folder / "i.csv") or folder / "i.csv",
    "csv with a BOM": lambda frame, folder: write_csv(frame, folder / "b.csv", encoding="utf-8-sig"),
    "CSV of semicolons": lambda frame, folder: write_csv(frame, folder / "t.CSV", sep=";"),
    "csv of tabs": lambda frame, folder: write_csv(frame, folder / "tabs.csv", sep="\t"),
    "tsv": lambda frame, folder: write_csv(frame, folder / "t.tsv", sep="\t"),
    "parquet": lambda frame, folder: write_parquet(frame, folder / "t.parquet"),
    "parquet with an index": lambda frame, folder: write_parquet(
        frame.set_axis([f"r{i}" for i in range(len(frame))]), folder / "i.parquet"
    ),
}
ARRAY_WRITERS = {
    "array": lambda x, folder: x,
    "list": lambda x, folder: x.tolist(),
    "npy": lambda x, folder: write_npy(x, folder / "t.npy"),
    "npy in Fortran order": lambda x, folder: write_npy(np.asfortranarray(x), folder / "f.npy"),
    "npy of big-endian": lambda x, folder: write_npy(x.astype(">f8"), folder / "be.npy"),
    "npz": lambda x, folder: write_npz(folder / "t.npz", x=x),
    "npz with labels": lambda x, folder: write_npz(folder / "l.npz", x=x, label=np.arange(len(x))),
}


@pytest.mark.parametrize("how", FRAME_WRITERS)
@quick
@given(data=st.data(), x=matrices)
def test_every_named_format_gives_back_the_same_bits_and_names(tmp_path, how, data, x):
    name = st.text(alphabet='ab1é, "', min_size=1).map(lambda s: "n" + s.strip())
    d = x.shape[1]
    if how.startswith(("CSV of", "csv of")) and d == 1:  # one column shows no separator: let its name show none
        name = name.map(lambda s: s.replace(",", "").strip())
    names = data.draw(st.lists(name, min_size=d, max_size=d, unique=True))
    sample = read_table(FRAME_WRITERS[how](pd.DataFrame(x, columns=names), tmp_path))
    assert bits(sample.x) == bits(x)
    assert sample.columns == tuple(names)
    assert sample.u is None


@pytest.mark.parametrize("how", ARRAY_WRITERS)
@quick
@given(x=matrices)
def test_every_array_format_gives_back_the_same_bits(tmp_path, how, x):
    sample = read_table(ARRAY_WRITERS[how](x, tmp_path))
    assert bits(np.asarray(sample.x)) == bits(x)
    assert sample.columns == tuple(f"x{j}" for j in range(x.shape[1]))


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [("f4", "f4"), (">f4", "f4"), ("f2", "f8"), ("i8", "f8"), ("u1", "f8"), ("?", "f8"), ("f8", "f8")],
)
def test_floats_keep_their_width_and_whole_numbers_and_booleans_become_float64(tmp_path, dtype, kept):
    x = np.array([[0, 1], [1, 1], [1, 0]], dtype=dtype)
    for source in (x, write_npy(x, tmp_path / "t.npy"), write_npz(tmp_path / "t.npz", x=x)):
        read = read_table(source).x
        assert read.dtype == kept
        np.testing.assert_array_equal(read, x.astype(float))


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float32", "double[pyarrow]", "Sparse[float]", "object", "str"])
def test_frames_of_any_numeric_dtype_become_float64(dtype):
    column = pd.Series([0, 1, 1], dtype="int64").astype(dtype)
    x = read_table(pd.DataFrame({"a": column, "b": [0.5, 1.5, 2.5]})).x
    assert x.dtype == np.float64
    assert x.tolist() == [[0.0, 0.5], [1.0, 1.5], [1.0, 2.5]]


def test_booleans_of_a_csv_are_0_and_1(tmp_path):
    assert read_table(write_text(tmp_path / "t.csv", "a,b\nTrue,1\nFalse,2\n")).x.tolist() == [[1, 1], [0, 2]]


# ---------------------------------------------------------------- x and u

MIXED = pd.DataFrame({"a": [1.0, 2.0, 3.0], "site": ["p", "q", "p"], "b": [4, 5, 6], "day": [7, 8, 9]})


@pytest.mark.parametrize("how", FRAME_WRITERS)
def test_u_is_split_off_and_stays_text(tmp_path, how):
    sample = read_table(FRAME_WRITERS[how](MIXED, tmp_path), u="site")
    assert sample.columns == ("a", "b", "day")
    assert sample.u.dtype == object
    assert sample.u.tolist() == ["p", "q", "p"]


@pytest.mark.parametrize("how", FRAME_WRITERS)
def test_several_u_get_an_axis_and_columns_choose_and_order_x(tmp_path, how):
    sample = read_table(FRAME_WRITERS[how](MIXED, tmp_path), u=["site", "day"], columns=["b", "a"])
    assert sample.u.tolist() == [["p", 7], ["q", 8], ["p", 9]]
    assert sample.columns == ("b", "a")
    assert sample.x.tolist() == [[4, 1], [5, 2], [6, 3]]


def test_spaces_after_a_separator_belong_to_nothing(tmp_path):
    sample = read_table(write_text(tmp_path / "t.csv", "a, site, b\n1, p, 2\n3, q, 4\n"), u="site")
    assert (sample.columns, sample.u.tolist(), sample.x.tolist()) == (("a", "b"), ["p", "q"], [[1, 2], [3, 4]])


def test_u_keeps_its_dtype():
    assert read_table(MIXED, u="day", columns=["a"]).u.dtype == np.int64
    assert read_table(MIXED, u=["day"], columns=["a"]).u.shape == (3, 1)
    assert read_table(MIXED, u=["day", "b"], columns=["a"]).u.dtype == np.int64
    times = MIXED.assign(day=pd.date_range("2024-01-01", periods=3), site=MIXED.site.astype("category"))
    assert read_table(times, u="day", columns=["a"]).u.dtype.kind == "M"
    assert read_table(times, u=["site", "day"]).u[1, 0] == "q"


def test_u_of_an_array_is_a_column_by_number():
    x = np.arange(12.0).reshape(3, 4)
    sample = read_table(x, u="x1")
    assert sample.columns == ("x0", "x2", "x3")
    assert sample.u.tolist() == [1, 5, 9]
    np.testing.assert_array_equal(sample.x, x[:, [0, 2, 3]])


def test_integer_names_and_an_axis_of_wavelengths_are_names(tmp_path):
    assert read_table(pd.DataFrame(np.eye(2)), u="1").columns == ("0",)
    assert read_table(write_text(tmp_path / "t.csv", "400,410,420\n1,2,3\n4,5,7\n")).columns == ("400", "410", "420")


def test_key_chooses_the_array_of_an_npz(tmp_path):
    path = write_npz(tmp_path / "t.npz", a=np.zeros((3, 2)), b=np.ones((4, 1)), names=np.array([None]))
    assert read_table(path, key="b").x.tolist() == [[1], [1], [1], [1]]


# ---------------------------------------------------------------- blocks

BLOCK_SOURCES = {
    "npy": lambda x, folder: write_npy(x, folder / "t.npy"),
    "npy of integers": lambda x, folder: write_npy((8 * x).astype(int), folder / "i.npy"),
    "parquet": lambda x, folder: write_parquet(
        pd.DataFrame(x, columns=["x0", "x1", "x2"]), folder / "t.parquet", row_group_size=5
    ),
    "csv": lambda x, folder: write_csv(pd.DataFrame(x, columns=["x0", "x1", "x2"]), folder / "t.csv"),
    "array": lambda x, folder: x,
}


@pytest.mark.parametrize("how", BLOCK_SOURCES)
@quick
@given(seed=st.integers(0, 99), rows=st.integers(2, 17), batch_rows=st.integers(1, 20))
def test_blocks_concatenated_are_the_whole(tmp_path, how, seed, rows, batch_rows):
    source = BLOCK_SOURCES[how](np.random.default_rng(seed).normal(size=(rows, 3)), tmp_path)
    whole = read_table(source, u="x1")
    reader = TableReader(source, u="x1", batch_rows=batch_rows)
    assert (reader.n_rows, reader.columns) == (rows, ("x0", "x2")) == (len(whole), whole.columns)
    for _ in range(2):  # a reader can be read again
        blocks = list(reader)
        assert max(map(len, blocks)) <= batch_rows
        assert bits(np.concatenate([b.x for b in blocks])) == bits(whole.x)
        assert bits(np.concatenate([b.u for b in blocks])) == bits(whole.u)


@pytest.mark.parametrize("how", ["npy", "parquet", "csv", "array"])
@quick
@given(data=st.data(), rows=st.integers(2, 17), batch_rows=st.integers(1, 20), value=st.sampled_from([np.nan, np.inf]))
def test_errors_name_the_row_of_the_table_not_of_the_block(tmp_path, how, data, rows, batch_rows, value):
    bad = data.draw(st.integers(0, rows - 1))
    x = np.random.default_rng(0).normal(size=(rows, 3))
    x[bad, 2] = value
    source = BLOCK_SOURCES[how](x, tmp_path)
    words = rf"'x2': 1 {'missing' if np.isnan(value) else 'infinite'} value, first in row {bad}\."
    with pytest.raises(DataError, match=words):
        read_table(source)
    with pytest.raises(DataError, match=words):
        list(TableReader(source, batch_rows=batch_rows))
    sound = TableReader(source, columns=["x0", "x1"], batch_rows=batch_rows)
    assert sum(map(len, sound)) == rows


def test_text_in_a_later_block_is_named_by_its_row(tmp_path):
    frame = pd.DataFrame({"a": np.arange(10.0), "b": ["1"] * 7 + ["n/k"] + ["2"] * 2})
    reader = TableReader(write_parquet(frame, tmp_path / "t.parquet"), batch_rows=3)
    with pytest.raises(DataError, match=r"rows 6 to 8: 1 of 2 columns .*\n  'b': text among.* 'n/k' in row 7, 1 of 3"):
        list(reader)


def test_batch_rows_must_be_positive():
    with pytest.raises(ValueError, match=r"batch_rows must be at least 1. Got 0"):
        TableReader(np.eye(3), batch_rows=0)


def test_a_gigabyte_is_read_in_a_few_megabytes(tmp_path):
    path, shape = tmp_path / "huge.npy", (2**21, 64)
    with path.open("wb") as file:  # sparse: it takes no room on the disk
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + 2**30)
    tracemalloc.start()
    try:
        reader = TableReader(path)
        assert (reader.n_rows, len(reader.columns)) == shape
        assert tracemalloc.get_traced_memory()[1] < 2**20
        assert next(iter(reader)).x.shape == (65_536, 64)
        x = read_table(path).x
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
    assert x.shape == shape
    assert isinstance(x, np.memmap)
    assert not x.flags.writeable


def test_a_table_on_disk_is_checked_to_its_last_row(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "MEMORY_MAP_BYTES", 0)
    monkeypatch.setattr(table, "BLOCK_VALUES", 8)
    x = np.zeros((100, 3))
    x[[90, 99], 2] = np.nan  # in different blocks
    with pytest.raises(DataError, match=r"'x2': 2 missing values, first in row 90\."):
        read_table(write_npy(x, tmp_path / "t.npy"))


def test_small_npy_files_come_into_memory_and_large_ones_stay_on_disk(tmp_path, monkeypatch):
    path = write_npy(np.eye(4, dtype=np.float32), tmp_path / "t.npy")
    assert not isinstance(read_table(path).x, np.memmap)
    assert read_table(path).x.flags.writeable
    monkeypatch.setattr(table, "MEMORY_MAP_BYTES", 0)
    assert isinstance(read_table(path, u="x3").x, np.memmap)


def test_parquet_blocks_hold_a_fraction_of_the_file(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(2**18, 8))).add_prefix("x")
    reader = TableReader(write_parquet(frame, tmp_path / "t.parquet", row_group_size=2**13), batch_rows=2**12)
    before = pa.total_allocated_bytes()
    held = max(pa.total_allocated_bytes() - before for _ in reader)
    assert held < frame.to_numpy().nbytes / 4


def test_an_array_of_floats_is_not_copied():
    x = np.random.default_rng(0).normal(size=(5, 4))
    assert read_table(x).x is x or np.shares_memory(read_table(x).x, x)
    assert np.shares_memory(read_table(x, u="x3").x, x)


# ---------------------------------------------------------------- images


def save_images(folder, modes_and_sizes, seed=0):
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    for name, (mode, size) in modes_and_sizes.items():
        pixels = rng.integers(0, 256, size=(size[1], size[0], 4), dtype=np.uint8)
        Image.fromarray(pixels, "RGBA").convert(mode).save(folder / name)
    return folder


@pytest.mark.parametrize(("mode", "shape"), [("L", (3, 5)), ("RGB", (3, 5, 3)), ("RGBA", (3, 5, 4)), ("1", (3, 5))])
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_images_are_rows_of_pixels_between_0_and_1_in_order_of_name(tmp_path, mode, shape, suffix):
    folder = save_images(tmp_path / "i", {f"{name}.{suffix}": (mode, (5, 3)) for name in "cab"})
    (folder / "notes.txt").write_text("passed over")
    sample = read_table(folder)
    assert sample.image_shape == shape
    assert sample.columns == tuple(f"x{j}" for j in range(np.prod(shape)))
    for row, name in zip(sample.x, "abc", strict=True):
        with Image.open(folder / f"{name}.{suffix}") as image:
            pixels = np.asarray(image)
        np.testing.assert_array_equal(row.reshape(shape), pixels / (1 if mode == "1" else 255))


def test_palettes_are_looked_up_and_16_bits_reach_1(tmp_path):
    colours = Image.new("P", (2, 2))
    colours.putpalette([0, 0, 255, 255, 0, 0])
    deep = Image.fromarray(np.full((2, 2), 65535, dtype=np.uint16))
    for name, image in (("p", colours), ("d", deep)):
        (tmp_path / name).mkdir()
        for copy in "ab":
            image.save(tmp_path / name / f"{copy}.png")
    assert read_table(tmp_path / "p").x[0, :3].tolist() == [0, 0, 1]
    assert read_table(tmp_path / "d").x.tolist() == [[1] * 4] * 2


def test_images_of_another_size_or_mode_are_named(tmp_path):
    kinds = {f"{i}.png": ("L", (4, 4)) for i in range(3)} | {"odd.png": ("L", (4, 6)), "rgb.bmp": ("RGB", (4, 4))}
    with pytest.raises(DataError, match=r"one size and mode. 3 are 4x4 L, but odd.png is 4x6 L; rgb.bmp is 4x4 RGB"):
        read_table(save_images(tmp_path / "i", kinds))


def test_folders_without_images_and_broken_images_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"holds no images \(.*\.png"):
        read_table(tmp_path)
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n cut")
    with pytest.raises(DamagedFileError, match=r"a.png cannot be read as .png"):
        read_table(tmp_path)


def test_images_of_a_mode_without_a_white_are_refused(tmp_path):
    with pytest.raises(DataError, match="have CMYK: convert"):
        read_table(save_images(tmp_path / "i", {"a.jpg": ("CMYK", (2, 2)), "b.jpg": ("CMYK", (2, 2))}))


# ---------------------------------------------------------------- refusals

NUMBERS = pd.DataFrame({"a": np.arange(6.0), "b": np.arange(6.0) ** 2})
BAD_TABLES = {
    "id": (
        NUMBERS.assign(c=[f"k{i}" for i in range(6)]),
        r"'c': text that never repeats, as an id does, first 'k0' in "
        r"row 0, 6 of 6 values. Leave it out",
    ),
    "category": (NUMBERS.assign(c=list("xxyyxy")), r"'c': a category of 2 different values, first 'x' in row 0.*u='c'"),
    "pandas category": (
        NUMBERS.assign(c=pd.Categorical([None, *"xyxyx"])),
        r"a category of 2 .* first 'x' in row 1, 5 of",
    ),
    "text dates": (NUMBERS.assign(c=["2024-01-31"] * 6), r"'c': dates or times, first '2024-01-31' in row 0.*u='c'"),
    "dates": (NUMBERS.assign(c=pd.date_range("2024-01-01", periods=6)), r"'c': dates or times, first '2024-01-01 00"),
    "all dates missing": (NUMBERS.assign(c=pd.NaT), r"'c': dates or times, first 'NaT' in row 0, 6 of 6"),
    "spans of time": (NUMBERS.assign(c=pd.to_timedelta(range(6))), r"'c': dates or times"),
    "decimal comma": (NUMBERS.assign(c=["1,5"] * 6), r"'c': numbers with a decimal comma, first '1,5'.*decimal=','"),
    "stray text": (
        NUMBERS.assign(c=[1, 2, "n.a.", 4, "?", 6]),
        r"'c': text among the numbers, first 'n.a.' in row 2, 2 of 6",
    ),
    "free text": (
        NUMBERS.loc[np.arange(300) % 6].assign(c=[f"w{i // 2}" for i in range(300)]),
        r"'c': text, first 'w0'",
    ),
    "lists": (NUMBERS.assign(c=[[i] for i in range(6)]), r"'c': .*first '\[0\]' in row 0"),
    "complex column": (NUMBERS.assign(c=1j), r"'c': complex numbers, first '1j' in row 0.*real and imaginary"),
    "complex objects": (NUMBERS.assign(c=pd.Series([1j, 2] * 3, dtype=object)), r"'c': .*first '1j' in row 0"),
    "missing": (
        NUMBERS.assign(c=[1, 2, np.nan, 4, np.nan, 6]),
        r"'c': 2 missing values, first in row 2. Drop .* or fill",
    ),
    "missing nullable": (
        NUMBERS.assign(c=pd.array([1, None, 3, 4, 5, 6], dtype="Int64")),
        r"'c': 1 missing .* row 1\.",
    ),
    "infinite": (
        NUMBERS.assign(c=[1, 2, 3, -np.inf, 4, np.inf]),
        r"'c': 2 infinite values, first in row 3. A division",
    ),
    "both": (
        NUMBERS.assign(c=[np.inf, 2, np.nan, 4, 5, 6]),
        r"1 missing value, first in row 2.*1 infinite .* in row 0",
    ),
    "duplicated names": (NUMBERS.set_axis(["a", "a"], axis=1), r"duplicate column names 'a'. Rename"),
    "surrogate in a name": (NUMBERS.set_axis(pd.Index(["a", "\ud800"], dtype=object), axis=1), r"Unicode: '.ud800'"),
    "tensor that requires grad": (torch.eye(3, requires_grad=True), r"requires grad. Pass tensor.detach"),
    "no rows": (NUMBERS[:0], r"The table has no rows: at least two"),
    "one row": (NUMBERS[:1], r"The table has one row: at least two"),
    "no numbers": (NUMBERS[[]].assign(c=list("xxyyxy")), r"no numeric columns .*\n  'c': a category"),
    "no columns": (NUMBERS[[]], r"no numeric columns left for x: it has none"),
    "1-D": (np.zeros(5), r"must be 2-D.*Got 1-D, shape \(5,\): x.reshape\(-1, 1\)"),
    "series": (NUMBERS["a"], r"must be 2-D.*Got 1-D"),
    "4-D": (np.zeros((2, 3, 4, 7)), r"Got 4-D, shape \(2, 3, 4, 7\): x.reshape\(len\(x\), -1\)"),
    "complex": (np.zeros((3, 2), dtype=complex), r"must hold real numbers. Got complex128 dtype.*imaginary"),
    "object": (np.array([[1, None]], dtype=object), r"must hold real numbers. Got object dtype.*dtype=float"),
    "strings": ([["a", "b"], ["c", "d"]], r"must hold real numbers. Got <U1 dtype"),
    "dict": ({"a": [1, 2]}, r"Got object dtype"),
    "ragged list": ([[1, 2], [3]], r"rectangle of numbers, all rows of one length"),
    "masked": (np.ma.masked_equal(np.array([[1, 2], [3, 0]]), 0), r"'x1': 1 missing value, first in row 1"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_a_table_that_cannot_be_used_is_refused_with_place_and_cure(case):
    source, words = BAD_TABLES[case]
    with pytest.raises(DataError, match=words):
        read_table(source)
    if "ame" in case:
        with pytest.raises(DataError, match=words):
            inspect_table(source)


BAD_FILES = {
    "empty.csv": (b"", DataError, r"empty.csv is empty \(0 bytes\)"),
    "empty.npy": (b"", DataError, r"empty.npy is empty"),
    "blank.csv": (b"\n\n", DataError, r"blank.csv is empty: a line of names"),
    "header.csv": (b"a,b\n", DataError, r"header.csv has no rows"),
    "one.csv": (b"a,b\n1,2\n", DataError, r"one.csv has one row"),
    "ragged.csv": (b"a,b\n1,2\n3,4,5\n", DataError, r"ragged.csv is ragged.*Expected 2 fields in line 3, saw 3"),
    "labels.csv": (b"a,b\nr1,1,2\nr2,3,4\n", DataError, r"ragged: its lines have more fields than the 2 names"),
    "short.csv": (b"a,b\n1,2\n3\n4,5\n", DataError, r"'b': 1 missing value, first in row 1"),
    "twice.csv": (b"a,b,a\n1,2,3\n4,5,6\n", DataError, r"duplicate column names 'a'"),
    "headless.csv": (b"0.5,1\n1,2\n3,4\n", DataError, r"seems to have no line of names.*'0.5,1'.*header=None"),
    "trailing.csv": (b"a,b,\n1,2,\n3,4,\n", DataError, r"'Unnamed: 2': 2 missing values, first in row 0"),
    "latin.csv": ("a,naïve\n1,2\n".encode("latin-1"), DataError, r"must be text in UTF-8. Line 1 is not: .*Save it as"),
    "late.csv": ("a,b\n1,x\n2,é\n".encode("latin-1"), DataError, r"UTF-8. Line 3 is not"),
    "wide.csv": ("a,b\n1,2\n".encode("utf-16"), DataError, r"Line 1 is not \(the file seems to be UTF-16\)"),
    "german.csv": (b"a;b\n1,5;2\n2,5;3\n", DataError, r"'a': numbers with a decimal comma, first '1,5' in row 0"),
    "tabs.tsv": (b"a\tb\n1\t\n\t2\n", DataError, r"'a': 1 missing value, first in row 1.*\n  'b': 1 .* row 0"),
    "sheet.xlsx": (b"PK", DataError, r"must end in .csv, .tsv, .parquet, .npy, .npz.* Got '.xlsx'"),
    "plain": (b"1", DataError, r"Got 'no ending'"),
    "noise.npy": (b"noise" * 9, DamagedFileError, r"noise.npy cannot be read as .npy .*write it again"),
    "noise.npz": (b"noise" * 9, DamagedFileError, r"noise.npz cannot be read as .npz"),
    "noise.parquet": (b"noise" * 9, DamagedFileError, r"noise.parquet cannot be read as .parquet"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path, name):
    content, error, words = BAD_FILES[name]
    with pytest.raises(error, match=words):
        read_table(write_text(tmp_path / name, content))


@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
@pytest.mark.parametrize("kept", [0.3, 0.7, 0.97])
def test_a_binary_file_cut_short_is_damaged_not_garbage(tmp_path, suffix, kept):
    x = np.random.default_rng(0).normal(size=(50, 3))
    whole = {
        "npy": lambda path: write_npy(x, path),
        "npz": lambda path: write_npz(path, x=x),
        "parquet": lambda path: write_parquet(pd.DataFrame(x).add_prefix("x"), path),
    }[suffix](tmp_path / f"t.{suffix}").read_bytes()
    with pytest.raises(DamagedFileError, match=r"cut short, altered or of another kind: copy or write it again"):
        read_table(write_text(tmp_path / f"cut.{suffix}", whole[: int(kept * len(whole))]))


def test_an_altered_npz_or_parquet_page_is_damaged(tmp_path):
    x = np.random.default_rng(0).normal(size=(500, 3))
    packed = tmp_path / "t.npz"
    np.savez_compressed(packed, x=x)
    pages = write_parquet(pd.DataFrame(x).add_prefix("x"), tmp_path / "t.parquet")
    for path, start in ((packed, 500), (pages, 4)):
        content = bytearray(path.read_bytes())
        content[start : start + 200] = b"\xa5" * 200
        with pytest.raises(DamagedFileError, match=f"{path.name} cannot be read"):
            read_table(write_text(path, bytes(content)))


def test_pickles_are_never_opened(tmp_path):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "exploded",)

    bombs = np.array([[Bomb()]], dtype=object)
    sources = [
        (write_npy(bombs, tmp_path / "t.npy"), None),
        (write_npz(tmp_path / "t.npz", x=bombs), "x"),
    ]
    for path, key in sources:
        with pytest.raises(DataError, match=r"holds Python objects .*unpickling can run any code"):
            read_table(path, key=key)
    assert not (tmp_path / "exploded").exists()


def test_an_npz_with_a_choice_lists_its_arrays(tmp_path):
    path = write_npz(tmp_path / "t.npz", a=np.zeros((3, 2)), b=np.ones((4, 1)), c=np.ones(4))
    with pytest.raises(DataError, match=r"one 2-D array was expected. It holds a \(3, 2\), b \(4, 1\), c \(4,\).*key="):
        read_table(path)
    with pytest.raises(DataError, match=r"there is no array 'd'. It holds a, b, c"):
        read_table(path, key="d")
    with pytest.raises(DataError, match=r"must be 2-D.*Got 1-D"):
        read_table(path, key="c")


@pytest.mark.parametrize("name", [None, "t.csv"])
def test_key_without_an_npz_is_refused(tmp_path, name):
    source = NUMBERS if name is None else write_csv(NUMBERS, tmp_path / name)
    with pytest.raises(DataError, match=r"key= chooses an array of an .npz file. Got key='x'"):
        read_table(source, key="x")


def test_a_missing_file_brings_its_neighbours(tmp_path):
    write_csv(NUMBERS, tmp_path / "measurements.csv")
    with pytest.raises(FileNotFoundError, match=r"There is no .*mesurements.csv. Near it: measurements.csv"):
        read_table(tmp_path / "mesurements.csv")
    with pytest.raises(FileNotFoundError, match=r"There is no .*zzz.$"):
        read_table(str(tmp_path / "zzz"))
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        read_table(tmp_path / "nowhere" / "t.csv")


@pytest.mark.parametrize("how", ["frame", "csv", "parquet"])
def test_unknown_columns_bring_their_neighbours(tmp_path, how):
    source = FRAME_WRITERS[how](MIXED, tmp_path)
    with pytest.raises(DataError, match=r"has no column 'sites'. Did you mean 'site'\? It has: a, site, b, day"):
        read_table(source, u="sites")
    with pytest.raises(DataError, match=r"has no column 'zz', 'yy'. It has"):
        read_table(source, columns=["zz", "yy"])
    with pytest.raises(DataError, match=r"columns= and u= together: duplicate column names 'b'"):
        read_table(source, columns=["a", "b"], u="b")
    with pytest.raises(DataError, match=r"no numeric columns left for x"):
        read_table(source, u=["a", "site", "b", "day"])


def test_missing_values_of_u_are_refused_too():
    with pytest.raises(DataError, match=r"1 of 2 columns .*\n  'site': 1 missing value, first in row 1"):
        read_table(MIXED.assign(site=["p", None, "q"]), u="site", columns=["a"])
    with pytest.raises(DataError, match=r"'x1': 1 infinite value, first in row 0"):
        read_table([[1.0, np.inf], [2.0, 3.0]], u="x1")


def test_all_columns_in_the_way_come_in_one_error_and_five_are_named():
    frame = NUMBERS.assign(t="x", **{f"c{i}": np.nan for i in range(8)})
    with pytest.raises(DataError, match=r"9 of 11 columns") as caught:
        read_table(frame)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["'t'", *(f"'c{i}'" for i in range(4)), "and 4 more"]


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = write_parquet(NUMBERS, tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r'needs pyarrow: pip install "identifiable\[parquet\]"'):
        read_table(path)


# ---------------------------------------------------------------- describe


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(seed=st.integers(0, 2**32 - 1), rank=st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_rank_is_that_of_the_latents_whatever_scale_offset_and_order(dtype, seed, rank):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(200, rank)) @ rng.normal(size=(rank, 7))
    scaled = (x * 10.0 ** rng.integers(-3, 4, size=7) + rng.normal(size=7))[:, rng.permutation(7)]
    assert describe(x.astype(dtype)).rank == rank
    if dtype is np.float64:  # an offset of a thousand ranges leaves float32 four digits, and says so in its rank
        assert describe(scaled).rank == rank


def test_facts_of_a_table_worked_out_by_hand():
    a = np.array([0.0, 1.0, 2.0, 0.0])
    frame = pd.DataFrame({"a": a, "one": 1.0, "b": a, "-0": -a, "nil": 0.0, "c": [1.0, 2.0, 3.0, 5.0], "d": a})
    summary = describe(read_table(frame))
    assert summary == TableSummary(
        n_rows=4,
        columns=tuple(frame.columns),
        constant=("one", "nil"),
        duplicated=(("a", "b"), ("a", "d")),
        rank=2,
        rank_rows=4,
        zeros=(0.5, 0.0, 0.5, 0.5, 1.0, 0.0, 0.5),
        repeated=(0.5, 1.0, 0.5, 0.5, 1.0, 0.0, 0.5),
        repeated_rows=4,
    )
    assert str(summary).splitlines() == [
        "4 rows, 7 columns, rank 2",
        "constant columns: one, nil",
        "duplicated columns: a = b, a = d",
        "repeated values: one 100 %, nil 100 %, a 50 %, b 50 %, -0 50 %, and 1 more",
        "exact zeros: nil 100 %, a 50 %, b 50 %, -0 50 %, d 50 %",
    ]


@quick
@given(
    x=hnp.arrays(np.float64, st.tuples(st.integers(2, 8), st.integers(1, 5)), elements=st.integers(-1, 1).map(float))
)
def test_facts_agree_with_a_plain_count(monkeypatch, x):
    monkeypatch.setattr(table, "BLOCK_VALUES", 4)  # several blocks
    summary, d = describe(x), x.shape[1]
    varies = [j for j in range(d) if len(set(x[:, j])) > 1]
    assert summary.constant == tuple(f"x{j}" for j in range(d) if j not in varies)
    later = {j for i in varies for j in varies if i < j and (x[:, i] == x[:, j]).all()}
    assert {b for _, b in summary.duplicated} == {f"x{j}" for j in later}
    assert summary.zeros == pytest.approx((x == 0).mean(axis=0))
    assert summary.repeated == pytest.approx([np.mean([list(c).count(v) > 1 for v in c]) for c in x.T])
    assert summary.rank == np.linalg.matrix_rank(x - x.mean(axis=0), tol=1e-9)


def test_columns_that_differ_in_one_late_row_are_not_duplicates():
    x = np.tile(np.random.default_rng(0).normal(size=(1000, 1)), (1, 3))
    x[0], x[999, 1] = 1e6, np.nextafter(x[999, 1], np.inf)  # too little for any sum over rows to see
    assert describe(x).duplicated == (("x0", "x2"),)


def test_a_large_table_is_drawn_from_and_the_summary_says_so(monkeypatch):
    monkeypatch.setattr(inspection, "_RANK_WORK", 100 * 8**2)
    monkeypatch.setattr(inspection, "_SORTED_VALUES", 200 * 9)
    x = np.random.default_rng(0).normal(size=(1000, 9))
    x[:, 1], x[-1, 2], x[:, 8] = x[:, 0], 0.0, 3.0
    summary = describe(Sample(x=x))
    assert summary.duplicated == (("x0", "x1"),)
    assert summary.zeros[2] == 1 / 1000  # counted over all rows
    assert (summary.rank, summary.rank_rows, summary.repeated_rows) == (7, 100, 200)
    assert "rank at least 7 (100 rows)" in str(summary)
    assert "(at least, 200 rows)" in str(summary)
    assert summary == describe(x)


def test_a_table_wider_than_its_drawn_rows_has_at_least_their_rank(monkeypatch):
    monkeypatch.setattr(inspection, "_RANK_WORK", 10**2 * 40)
    summary = describe(np.random.default_rng(0).normal(size=(60, 40)))
    assert (summary.rank, summary.rank_rows) == (9, 10)


def test_describe_refuses_what_read_table_refuses():
    with pytest.raises(DataError, match="'x0': 1 missing value"):
        describe(Sample(x=np.array([[np.nan], [1.0]])))


@pytest.mark.parametrize("shape", [(5, 4, 3), (5, 4, 3, 3), (5, 4, 3, 1)])
def test_arrays_of_images_become_rows_of_pixels(shape, tmp_path):
    images = np.random.default_rng(0).normal(size=shape)
    np.save(tmp_path / "a.npy", images)
    np.savez(tmp_path / "b.npz", images=images, labels=np.arange(5))
    for source in (images, tmp_path / "a.npy", tmp_path / "b.npz"):
        s = read_table(source)
        assert s.image_shape == shape[1:]
        np.testing.assert_array_equal(s.x.reshape(shape), images)
