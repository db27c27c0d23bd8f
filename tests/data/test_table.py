"""`read_table` splits a table into x and u, block by block or whole, or says where and why it cannot."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from identifiable.data import inspect_table, table
from identifiable.data.table import TableReader, read_table
from identifiable.errors import DataError
from table_writers import FRAME_WRITERS, MIXED, NUMBERS, bits, quick, write_csv, write_npy, write_parquet


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float32", "double[pyarrow]", "Sparse[float]", "object", "str"])
def test_frames_of_any_numeric_dtype_become_float64(dtype):
    column = pd.Series([0, 1, 1], dtype="int64").astype(dtype)
    x = read_table(pd.DataFrame({"a": column, "b": [0.5, 1.5, 2.5]})).x
    assert x.dtype == np.float64
    assert x.tolist() == [[0.0, 0.5], [1.0, 1.5], [1.0, 2.5]]


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


BAD_TABLES = {
    "id": (NUMBERS.assign(c=[f"k{i}" for i in range(6)]), r"'c': text that never repeats.*'k0' in row 0, 6 of 6"),
    "dates": (NUMBERS.assign(c=pd.date_range("2024-01-01", periods=6)), r"'c': dates or times, first '2024-01-01 00"),
    "decimal comma": (NUMBERS.assign(c=["1,5"] * 6), r"'c': numbers with a decimal comma, first '1,5'.*decimal=','"),
    "stray text": (NUMBERS.assign(c=[1, 2, "n.a.", 4, "?", 6]), r"'c': text among .*'n.a.' in row 2, 2 of 6"),
    "free text": (pd.DataFrame({"a": range(300), "c": [f"w{i // 2}" for i in range(300)]}), r"'c': text, first 'w0'"),
    "complex column": (NUMBERS.assign(c=1j), r"'c': complex numbers, first '1j' in row 0.*real and imaginary"),
    "missing": (NUMBERS.assign(c=[1, 2, np.nan, 4, np.nan, 6]), r"'c': 2 missing values, first in row 2."),
    "infinite": (NUMBERS.assign(c=[1, 2, 3, -np.inf, 4, np.inf]), r"'c': 2 infinite values, first in row 3."),
    "both": (NUMBERS.assign(c=[np.inf, 2, np.nan, 4, 5, 6]), r"1 missing .* in row 2.*1 infinite .* in row 0"),
    "duplicated names": (NUMBERS.set_axis(["a", "a"], axis=1), r"duplicate column names 'a'"),
    "surrogate in a name": (NUMBERS.set_axis(pd.Index(["a", "\ud800"], dtype=object), axis=1), r"Unicode: '.ud800'"),
    "tensor that requires grad": (torch.eye(3, requires_grad=True), r"requires grad. Pass tensor.detach"),
    "no rows": (NUMBERS[:0], r"no rows"),
    "one row": (NUMBERS[:1], r"one row"),
    "no numbers": (NUMBERS[[]].assign(c=list("xxyyxy")), r"no numeric columns .*\n  'c': a category"),
    "no columns": (NUMBERS[[]], r"no numeric columns left for x: it has none"),
    "masked": (np.ma.masked_equal(np.array([[1, 2], [3, 0]]), 0), r"'x1': 1 missing value, first in row 1"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_unusable_tables_are_refused_with_place_and_cure(case):
    source, words = BAD_TABLES[case]
    with pytest.raises(DataError, match=words):
        read_table(source)
    if "ame" in case:
        with pytest.raises(DataError, match=words):
            inspect_table(source)


@pytest.mark.parametrize("how", ["frame", "csv", "parquet"])
def test_unknown_columns_name_similar_ones(tmp_path, how):
    source = FRAME_WRITERS[how](MIXED, tmp_path)
    with pytest.raises(DataError, match=r"has no column 'sites'. Did you mean 'site'\? It has: a, site, b, day"):
        read_table(source, u="sites")
    with pytest.raises(DataError, match=r"has no column 'zz', 'yy'. It has"):
        read_table(source, columns=["zz", "yy"])
    with pytest.raises(DataError, match=r"columns= and u= together: duplicate column names 'b'"):
        read_table(source, columns=["a", "b"], u="b")
    with pytest.raises(DataError, match=r"no numeric columns left for x"):
        read_table(source, u=["a", "site", "b", "day"])


def test_missing_values_of_u_are_refused():
    with pytest.raises(DataError, match=r"1 of 2 columns .*\n  'site': 1 missing value, first in row 1"):
        read_table(MIXED.assign(site=["p", None, "q"]), u="site", columns=["a"])
    with pytest.raises(DataError, match=r"'x1': 1 infinite value, first in row 0"):
        read_table([[1.0, np.inf], [2.0, 3.0]], u="x1")


def test_one_error_counts_all_unusable_columns_and_names_five():
    frame = NUMBERS.assign(t="x", **{f"c{i}": np.nan for i in range(8)})
    with pytest.raises(DataError, match=r"9 of 11 columns") as caught:
        read_table(frame)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["'t'", *(f"'c{i}'" for i in range(4)), "and 4 more"]


def test_missing_values_can_be_kept_but_text_cannot():
    frame = NUMBERS.assign(c=[1, np.inf, None, 4, 5, 6])
    x = TableReader(frame).read_with_gaps()
    np.testing.assert_array_equal(x[:, :2], NUMBERS)
    np.testing.assert_array_equal(x[:, 2], [1, np.nan, np.nan, 4, 5, 6])
    found = TableReader(frame.assign(t="x"), u="a").inspect()
    assert list(found.not_numbers) == ["t"]
    np.testing.assert_array_equal(found.u[:, 0], NUMBERS["a"])
    with pytest.raises(DataError, match="'t': a category"):
        TableReader(frame.assign(t="x")).read_with_gaps()
