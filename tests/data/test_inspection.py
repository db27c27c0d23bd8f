"""`inspect_table` uses what is usable as it is, and reports all else with its reason; `describe` counts."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from identifiable import DataError
from identifiable.data import describe, inspect_table, read_table, summary, table
from identifiable.data.sample import Sample
from identifiable.data.summary import TableSummary
from table_writers import quick


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def messy(rng):
    """A table as it comes: an id, text, dates, a category, missing values, a copy, a constant, a positive column."""
    rows = 500
    frame = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["a", "b", "c"])
    frame.insert(0, "cell", np.arange(rows))
    frame["day"] = pd.date_range("2024-01-01", periods=rows).astype(str)
    frame["site"] = rng.choice(["north", "south"], rows)
    frame["dose"] = rng.choice([0.0, 0.5, 1.0], rows)
    frame["a again"] = frame["a"]
    frame["unit"] = 1.0
    frame["protein"] = np.exp(2 * rng.normal(size=rows))
    frame.loc[rng.random(rows) < 0.05, "b"] = np.nan
    frame.loc[3, "c"] = np.inf
    frame["hardly there"] = np.where(rng.random(rows) < 0.7, np.nan, 1.5 * rng.normal(size=rows))
    return frame


def test_usable_values_are_unchanged(messy):
    before = messy.copy()
    found = inspect_table(messy)
    pd.testing.assert_frame_equal(messy, before)
    assert found.sample.columns == ("a", "b", "c", "protein")
    kept = messy.loc[messy["b"].notna() & np.isfinite(messy["c"]), ["a", "b", "c", "protein"]]
    np.testing.assert_array_equal(found.sample.x, kept.to_numpy())
    np.testing.assert_array_equal(found.rows, kept.index)


def test_every_other_column_has_its_reason(messy):
    found = inspect_table(messy)
    assert str(found).startswith("Usable: 478 of 500 rows, 4 of 11 columns.")
    assert "'b' 2" in str(found)
    left_out = found.left_out
    assert set(left_out) == {"cell", "day", "site", "dose", "a again", "unit", "hardly there"}
    words = {
        "cell": "rises from row to row",
        "day": "dates",
        "site": "category",
        "dose": "only 3",
        "a again": "equal to 'a'",
    }
    for name, word in (words | {"unit": "constant", "hardly there": "missing in 7"}).items():
        assert word in left_out[name]


def test_rows_without_u_are_excluded(messy):
    messy.loc[10, "site"] = None
    messy.loc[10, ["a", "b", "c"]] = 1.0
    found = inspect_table(messy, u="site")
    assert found.u == ("site",)
    assert 10 not in found.rows
    assert set(found.sample.u) == {"north", "south"}
    assert "u is 'site', with 2 different values." in found.words
    both = inspect_table(messy, u=["site", "dose"])
    assert both.sample.u.shape == (len(both.sample), 2)


def test_named_columns_are_used(messy):
    found = inspect_table(messy, columns=["a", "dose", "cell"])
    assert found.sample.columns == ("a", "dose", "cell")
    assert not found.left_out


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("time", np.arange(400) / 100),
        ("t [s]", np.repeat(np.arange(200.0), 2)),
        ("meter", 7 + np.random.default_rng(0).random(400).cumsum()),
        ("countdown", -(np.arange(400) ** 3)),
        ("day", pd.date_range("2024-01-01", periods=400)),
        ("date", pd.date_range("2024-01-01", periods=400).strftime("%d.%m.%Y")),
        ("stamp", pd.date_range("2024-01-01", periods=400, freq="h").astype(str)),
    ],
)
def test_time_columns_are_excluded_and_say_that_rows_are_ordered(rng, name, values):
    frame = pd.DataFrame({"a": rng.normal(size=400), name: values, "b": rng.normal(size=400).cumsum()})
    found = inspect_table(frame)
    assert found.sample.columns == ("a", "b")
    assert list(found.left_out) == [name]
    assert found.ordered
    assert list(found.labels) == ([name] if pd.Index(values).is_unique else [])
    shuffled = inspect_table(frame.sample(frac=1, random_state=0).reset_index(drop=True))
    assert not shuffled.ordered
    if np.asarray(values).dtype.kind in "fi":
        assert name in shuffled.sample.columns
        assert not inspect_table(frame, columns=["a", name]).ordered


def test_a_time_index_says_that_rows_are_ordered_and_labels_them(rng):
    days = pd.date_range("2024-01-01", periods=300, name="day")
    frame = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"], index=days)
    found = inspect_table(frame)
    assert found.ordered
    assert found.labels["day"].tolist() == days.tolist()
    assert inspect_table(frame.set_axis(np.arange(300) / 250, axis=0)).ordered
    assert inspect_table(frame.set_axis(days.to_period("D"), axis=0)).ordered
    assert not inspect_table(frame.set_axis([f"r{i:03}" for i in range(300)], axis=0)).ordered
    nested = frame.set_index(pd.MultiIndex.from_product([["p", "q", "r"], range(100)]))
    assert inspect_table(nested).labels.shape == (300, 2)
    assert inspect_table(frame.reset_index(drop=True)).labels.shape == (300, 0)


def test_columns_with_repeated_values_are_reported_by_kind(rng):
    x = rng.normal(size=(1000, 6))
    x[:, 1], x[:, 2], x[:, 3] = x[:, 1].clip(-0.5), x[:, 2].round(), (x[:, 3] / 0.15).round() * 0.15
    x[:300, 4], x[:100, 5] = x[300:, 4].mean(), 0.7
    found = inspect_table(x, columns=[f"x{j}" for j in range(6)])
    words = str(found)
    assert "Discrete columns, and their numbers of different values: 'x2' " in words
    assert "Rounded columns, and the step in standard deviations: 'x3' 0.15." in words
    assert "Columns that share their smallest or largest value, as at a detection limit: 'x1' 3" in words
    assert "Columns that share the mean or the median, as imputed values do: 'x4' 30 %." in words
    assert "Columns that share another value: 'x5' 10 %." in words
    assert [kind.continuous for kind in found.kinds] == [True, False, False, False, False, False]


def test_one_column_is_no_mixture(rng):
    frame = pd.DataFrame({"a": rng.normal(size=300), "name": [f"cell {i}" for i in range(300)]})
    for table_of_one in (frame[["a"]], frame, frame.assign(b=frame["a"], c=1.0)):
        with pytest.raises(
            DataError, match=r"One column cannot be a mixture .* two or more .* Only 'a' is left"
        ) as error:
            inspect_table(table_of_one)
        assert str(error.value).count("\n") == table_of_one.shape[1] - 1


def test_a_table_of_categories_is_used(rng):
    assert inspect_table(pd.DataFrame(rng.integers(0, 4, size=(300, 6)).astype(float))).sample.x.shape == (300, 6)


def test_the_logarithm_is_for_positive_skewed_columns(messy):
    messy["falling"] = -messy["protein"]
    assert inspect_table(messy).skewed == ("protein",)


def test_rank_scales_and_zeros_are_reported(rng):
    x = rng.normal(size=(400, 3))
    x[:100, 1] = 0.0
    words = str(inspect_table(np.column_stack([x, x[:, 0] + 1e3 * x[:, 2]])))
    assert "The columns have rank 3: 1 of 4 are linear combinations of the others." in words
    assert "Their scales differ by a factor of" in words
    assert "Columns with exact zeros: 'x1' 25 %." in words


def test_pictures_keep_their_shape(tmp_path, rng):
    for i in range(120):
        pixels = rng.integers(0, 255, size=(4, 5), dtype=np.uint8)
        pixels[0, :2] = 51  # never lit
        Image.fromarray(pixels).save(tmp_path / f"{i:03}.png")
    found = inspect_table(tmp_path)
    assert found.picture == (4, 5)
    assert "Every row is a picture of 4 x 5 pixels." in found.words
    assert "2 pixels never change." in found.words
    assert found.sample.x.shape == (120, 20)
    assert found.sample.image_shape == (4, 5)
    pictures = found.pictures(found.sample.x)
    np.testing.assert_allclose(pictures[:, 0, :2], 0.2)
    np.testing.assert_allclose(pictures[3], np.asarray(Image.open(tmp_path / "003.png")) / 255)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.iloc[:60], "At least 100 rows without a missing value are needed; 5"),
        (lambda f: f[["day", "site"]], "No column of numbers is left:\n  'day': dates or times"),
        (lambda f: f[["unit"]], "No column varies: 'unit'"),
    ],
)
def test_where_too_little_is_left_the_error_says_why(messy, change, words):
    with pytest.raises(DataError) as error:
        inspect_table(change(messy))
    assert words in str(error.value)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(seed=st.integers(0, 2**32 - 1), rank=st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_rank_does_not_depend_on_scale_offset_and_order(dtype, seed, rank):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(200, rank)) @ rng.normal(size=(rank, 7))
    scaled = (x * 10.0 ** rng.integers(-3, 4, size=7) + rng.normal(size=7))[:, rng.permutation(7)]
    assert describe(x.astype(dtype)).rank == rank
    if dtype is np.float64:  # an offset of a thousand ranges leaves float32 four digits, and says so in its rank
        assert describe(scaled).rank == rank


def test_summary_of_a_small_table():
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
    assert "one 100 %, nil 100 %, a 50 %, b 50 %, -0 50 %, and 1 more" in str(summary)


@quick
@given(
    x=hnp.arrays(np.float64, st.tuples(st.integers(2, 8), st.integers(1, 5)), elements=st.integers(-1, 1).map(float))
)
def test_summary_agrees_with_a_plain_count(monkeypatch, x):
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


def test_large_tables_are_subsampled(monkeypatch):
    monkeypatch.setattr(summary, "RANK_WORK", 100 * 8**2)
    monkeypatch.setattr(summary, "MOST_VALUES", 200 * 9)
    x = np.random.default_rng(0).normal(size=(1000, 9))
    x[:, 1], x[-1, 2], x[:, 8] = x[:, 0], 0.0, 3.0
    found = describe(Sample(x=x))
    assert found.duplicated == (("x0", "x1"),)
    assert found.zeros[2] == 1 / 1000  # counted over all rows
    assert (found.rank, found.rank_rows, found.repeated_rows) == (7, 100, 200)
    assert "rank at least 7 (100 rows)" in str(found)
    assert "(at least, 200 rows)" in str(found)
    assert found == describe(x)


def test_describe_refuses_what_read_table_refuses():
    with pytest.raises(DataError, match="'x0': 1 missing value"):
        describe(Sample(x=np.array([[np.nan], [1.0]])))
