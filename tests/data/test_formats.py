"""Every format returns the values that were written, bit for bit, or is refused by name."""

import csv
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from identifiable.data.csv_files import read_csv
from identifiable.data.table import read_table
from identifiable.errors import DamagedFileError, DataError
from table_writers import (
    ARRAY_WRITERS,
    FRAME_WRITERS,
    NUMBERS,
    bits,
    quick,
    write_csv,
    write_npy,
    write_npz,
    write_parquet,
    write_text,
)

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)

matrices = hnp.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(1, 4)), elements=finite)


@pytest.mark.parametrize("how", FRAME_WRITERS)
@quick
@given(data=st.data(), x=matrices)
def test_named_formats_keep_bits_and_names(tmp_path, how, data, x):
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
def test_array_formats_keep_bits(tmp_path, how, x):
    sample = read_table(ARRAY_WRITERS[how](x, tmp_path))
    assert bits(np.asarray(sample.x)) == bits(x)
    assert sample.columns == tuple(f"x{j}" for j in range(x.shape[1]))


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [("f4", "f4"), (">f4", "f4"), ("f2", "f8"), ("i8", "f8"), ("u1", "f8"), ("?", "f8"), ("f8", "f8")],
)
def test_float32_is_kept_and_other_types_become_float64(tmp_path, dtype, kept):
    x = np.array([[0, 1], [1, 1], [1, 0]], dtype=dtype)
    for source in (x, write_npy(x, tmp_path / "t.npy"), write_npz(tmp_path / "t.npz", x=x)):
        read = read_table(source).x
        assert read.dtype == kept
        np.testing.assert_array_equal(read, x.astype(float))


def test_key_chooses_the_array_of_an_npz(tmp_path):
    path = write_npz(tmp_path / "t.npz", a=np.zeros((3, 2)), b=np.ones((4, 1)), names=np.array([None]))
    assert read_table(path, key="b").x.tolist() == [[1], [1], [1], [1]]


@pytest.mark.parametrize("sep", [";", "\t", "|"])
@pytest.mark.parametrize(
    "options", [{}, {"encoding": "utf-8-sig"}, {"quoting": csv.QUOTE_ALL}, {"lineterminator": "\r\n"}]
)
@quick
@given(x=hnp.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(2, 4)), elements=finite))
def test_decimal_commas_keep_bits(tmp_path, sep, options, x):
    frame = pd.DataFrame(x).set_axis([f"x {j}, {sep}" for j in range(x.shape[1])], axis=1)
    path = tmp_path / "t.csv"
    frame.to_csv(path, sep=sep, decimal=",", index=False, **options)
    sample = read_table(path)
    assert bits(sample.x) == bits(x)
    assert sample.columns == tuple(name.strip() for name in frame.columns)


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("a;b\n1,5;2\n2,5;3\n", "ab", [[1.5, 2], [2.5, 3]]),
        ("a;b;\n1,5;2;\n2,5;3;\n", "ab", [[1.5, 2], [2.5, 3]]),
        ("a;b\n1,5;2;\n2,5;3;\n", "ab", [[1.5, 2], [2.5, 3]]),
        ("a;b\n1;2;\n2;3;\n3;5;\n", "ab", [[1, 2], [2, 3], [3, 5]]),
        ("a;;b\n1,5;;2\n2,5;;3\n", "ab", [[1.5, 2], [2.5, 3]]),
        (";a;b\n0;1,5;2\n1;2,5;3\n", "ab", [[1.5, 2], [2.5, 3]]),
        ('"a";"b"\n"1.234,5";"1.000"\n"2,5";"20"\n', "ab", [[1234.5, 1000], [2.5, 20]]),
        ("a;b\n,5;-1 234 567\n2,5e-3;+4\n", "ab", [[0.5, -1234567], [0.0025, 4]]),
        ("a;b\n1,234;0.5\n0,234;1.25\n", "ab", [[1.234, 0.5], [0.234, 1.25]]),
        ("a,b,c\n1,5,2\n2,500,3\n", "abc", [[1, 5, 2], [2, 500, 3]]),
        ("a,b,\n1,5,\n2,500,\n", "ab", [[1, 5], [2, 500]]),
        ("a;b\n1.5;2\n2.5;3\n", "ab", [[1.5, 2], [2.5, 3]]),
        ("1;2\n1,5;2\n2,5;3\n", "12", [[1.5, 2], [2.5, 3]]),
    ],
)
def test_csv_as_spreadsheets_write_it(tmp_path, text, names, rows):
    sample = read_table(write_text(tmp_path / "t.csv", text))
    assert sample.columns == tuple(names)
    assert sample.x.tolist() == rows


def test_decimal_commas_leave_dates_text_and_gaps(tmp_path):
    text = "mass, kg;length, m;day;site;done\n1,5;2;31.12.2020;a,b;True\n;3;01.01.2021;c;\n"
    frame = read_csv(write_text(tmp_path / "t.csv", text))
    assert frame["day"].tolist() == ["31.12.2020", "01.01.2021"]
    assert frame["site"].tolist() == ["a,b", "c"]
    assert frame["done"].isna().tolist() == [False, True]
    assert frame["length, m"].tolist() == [2, 3]
    assert frame["mass, kg"].isna().tolist() == [False, True]


@quick
@given(x=hnp.arrays(np.int64, st.tuples(st.integers(2, 6), st.integers(2, 4)), elements=st.integers(-9999, 9999)))
def test_integers_between_commas_are_no_decimals(tmp_path, x):
    path = write_csv(pd.DataFrame(x).add_prefix("x"), tmp_path / "t.csv")
    np.testing.assert_array_equal(read_table(path).x, x)


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


@pytest.mark.parametrize("shape", [(5, 4, 3), (5, 4, 3, 3), (5, 4, 3, 1)])
def test_arrays_of_images_become_rows_of_pixels(shape, tmp_path):
    images = np.random.default_rng(0).normal(size=shape)
    np.save(tmp_path / "a.npy", images)
    np.savez(tmp_path / "b.npz", images=images, labels=np.arange(5))
    for source in (images, tmp_path / "a.npy", tmp_path / "b.npz"):
        s = read_table(source)
        assert s.image_shape == shape[1:]
        np.testing.assert_array_equal(s.x.reshape(shape), images)


def test_palettes_become_colours_and_16_bits_reach_1(tmp_path):
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


BAD_FILES = {
    "empty.csv": (b"", DataError, r"empty.csv is empty \(0 bytes\)"),
    "blank.csv": (b"\n\n", DataError, r"blank.csv is empty: a line of names"),
    "header.csv": (b"a,b\n", DataError, r"header.csv has no rows"),
    "ragged.csv": (b"a,b\n1,2\n3,4,5\n", DataError, r"ragged.csv is ragged.*Expected 2 fields in line 3, saw 3"),
    "labels.csv": (b"a,b\nr1,1,2\nr2,3,4\n", DataError, r"ragged: its lines have more fields than the 2 names"),
    "short.csv": (b"a,b\n1,2\n3\n4,5\n", DataError, r"'b': 1 missing value, first in row 1"),
    "twice.csv": (b"a,b,a\n1,2,3\n4,5,6\n", DataError, r"duplicate column names 'a'"),
    "headless.csv": (b"0.5,1\n1,2\n3,4\n", DataError, r"seems to have no line of names.*'0.5,1'.*header=None"),
    "latin.csv": ("a,naïve\n1,2\n".encode("latin-1"), DataError, r"must be text in UTF-8. Line 1 is not: .*Save it as"),
    "wide.csv": ("a,b\n1,2\n".encode("utf-16"), DataError, r"Line 1 is not \(the file seems to be UTF-16\)"),
    "thousands.tsv": (b"a\tb\n1,500\t2.5\n2,500\t3\n", DataError, r"'a': numbers with a decimal comma, first '1,500'"),
    "comma.csv": (b"a\n1,5\n2,5\n", DataError, r"ragged: its lines have more fields than the 1 names"),
    "sheet.xlsx": (b"PK", DataError, r"must end in .csv, .tsv, .parquet, .npy, .npz.* Got '.xlsx'"),
    "plain": (b"1", DataError, r"Got 'no ending'"),
    "noise.npy": (b"noise" * 9, DamagedFileError, r"noise.npy cannot be read as .npy .*write it again"),
    "noise.parquet": (b"noise" * 9, DamagedFileError, r"noise.parquet cannot be read as .parquet"),
}


BAD_ARRAYS = {
    "1-D": (np.zeros(5), r"Got 1-D, shape \(5,\): x.reshape\(-1, 1\)"),
    "4-D": (np.zeros((2, 3, 4, 7)), r"Got 4-D, shape \(2, 3, 4, 7\): x.reshape\(len\(x\), -1\)"),
    "complex": (np.zeros((3, 2), dtype=complex), r"Got complex128 dtype.*imaginary"),
    "object": (np.array([[1, None]], dtype=object), r"Got object dtype.*dtype=float"),
    "dict": ({"a": [1, 2]}, r"Got object dtype"),
    "ragged list": ([[1, 2], [3]], r"all rows of one length"),
}


@pytest.mark.parametrize("name", [*BAD_ARRAYS, *BAD_FILES])
def test_what_is_no_table_is_refused_by_name(tmp_path, name):
    source, error, words = BAD_FILES.get(name) or (BAD_ARRAYS[name][0], DataError, BAD_ARRAYS[name][1])
    with pytest.raises(error, match=words):
        read_table(write_text(tmp_path / name, source) if name in BAD_FILES else source)


@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
@pytest.mark.parametrize("kept", [0.3, 0.7, 0.97])
def test_truncated_binary_files_are_refused(tmp_path, suffix, kept):
    x = np.random.default_rng(0).normal(size=(50, 3))
    write = FRAME_WRITERS["parquet"] if suffix == "parquet" else ARRAY_WRITERS[suffix]
    whole = write(pd.DataFrame(x).add_prefix("x") if suffix == "parquet" else x, tmp_path).read_bytes()
    with pytest.raises(DamagedFileError, match=r"cut short, altered or of another kind: copy or write it again"):
        read_table(write_text(tmp_path / f"cut.{suffix}", whole[: int(kept * len(whole))]))


def test_pickles_are_never_opened(tmp_path):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "exploded",)

    bombs = np.array([[Bomb()]], dtype=object)
    for path, key in ((write_npy(bombs, tmp_path / "t.npy"), None), (write_npz(tmp_path / "t.npz", x=bombs), "x")):
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
    for source in (NUMBERS, write_csv(NUMBERS, tmp_path / "t.csv")):
        with pytest.raises(DataError, match=r"key= chooses an array of an .npz file. Got key='x'"):
            read_table(source, key="x")


def test_a_missing_file_names_similar_files(tmp_path):
    write_csv(NUMBERS, tmp_path / "measurements.csv")
    with pytest.raises(FileNotFoundError, match=r"There is no .*mesurements.csv. Near it: measurements.csv"):
        read_table(tmp_path / "mesurements.csv")
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        read_table(tmp_path / "nowhere" / "t.csv")


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = write_parquet(NUMBERS, tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r'needs pyarrow: pip install "identifiable\[parquet\]"'):
        read_table(path)
