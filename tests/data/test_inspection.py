"""`inspect_table` uses what is usable as it is, and reports all else with its reason; nothing is filled in."""

import numpy as np
import pandas as pd
import pytest

from identifiable import DataError
from identifiable.data import inspect_table


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


def test_what_is_usable_is_used_as_it_is(messy):
    found = inspect_table(messy)
    assert found.sample.columns == ("a", "b", "c", "protein")
    kept = messy.loc[messy["b"].notna() & np.isfinite(messy["c"]), ["a", "b", "c", "protein"]]
    np.testing.assert_array_equal(found.sample.x, kept.to_numpy())
    np.testing.assert_array_equal(found.rows, kept.index)


def test_every_other_column_has_its_reason(messy):
    left_out = inspect_table(messy).left_out
    assert set(left_out) == {"cell", "day", "site", "dose", "a again", "unit", "hardly there"}
    for name, reason in {
        "cell": "a count of the rows",
        "day": "dates or times",
        "site": "a category of 2 different values",
        "dose": "only 3 different values",
        "a again": "equal to 'a'",
        "unit": "constant",
        "hardly there": "missing in 7",
    }.items():
        assert left_out[name].startswith(reason)


def test_the_words_name_all_of_it(messy):
    words = str(inspect_table(messy))
    assert words.startswith("Usable: 478 of 500 rows, 4 of 11 columns.")
    for said in (
        "Excluded: 'day'",
        "rows with missing or infinite values ('b' 2",
        "'protein'",
        "No auxiliary variable",
    ):
        assert said in words
    assert "Pass it as u" in words


def test_u_is_taken_aside_and_its_holes_cost_rows(messy):
    messy.loc[10, "site"] = None
    messy.loc[10, ["a", "b", "c"]] = 1.0
    found = inspect_table(messy, u="site")
    assert found.u == ("site",)
    assert 10 not in found.rows
    assert set(found.sample.u) == {"north", "south"}
    assert "u is 'site', with 2 different values." in found.words
    both = inspect_table(messy, u=["site", "dose"])
    assert both.sample.u.shape == (len(both.sample), 2)


def test_a_column_that_is_named_is_taken(messy):
    found = inspect_table(messy, columns=["a", "dose", "cell"])
    assert found.sample.columns == ("a", "dose", "cell")
    assert not found.left_out


def test_a_table_of_categories_is_taken_as_it_is(rng):
    assert inspect_table(pd.DataFrame(rng.integers(0, 4, size=(300, 6)).astype(float))).sample.x.shape == (300, 6)


def test_the_logarithm_is_for_positive_skewed_columns(messy):
    messy["falling"] = -messy["protein"]
    assert inspect_table(messy).skewed == ("protein",)


def test_dependent_columns_and_rests_are_seen(rng):
    x = rng.normal(size=(400, 3))
    x[:100, 1] = 0.0
    words = str(inspect_table(np.column_stack([x, x[:, 0] + 1e3 * x[:, 2]])))
    assert "The columns have rank 3: 1 of 4 are linear combinations of the others." in words
    assert "Their scales differ by a factor of" in words
    assert "Columns with exact zeros: 'x1' 25 %." in words


def test_pictures_keep_their_shape(tmp_path, rng):
    from PIL import Image

    for i in range(120):
        pixels = rng.integers(0, 255, size=(4, 5), dtype=np.uint8)
        pixels[0, :2] = 51  # never lit
        Image.fromarray(pixels).save(tmp_path / f"{i:03}.png")
    found = inspect_table(tmp_path)
    assert found.picture == (4, 5)
    assert "Every row is a picture of 4 x 5 pixels." in found.words
    assert "Excluded: 2 pixels that are constant or equal to others." in found.words
    pictures = found.pictures(found.sample.x)
    np.testing.assert_allclose(pictures[:, 0, :2], 0.2)
    np.testing.assert_allclose(pictures[3], np.asarray(Image.open(tmp_path / "003.png")) / 255)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.iloc[:60], "At least 100 rows without a missing value are needed; 5"),
        (lambda f: f[["day", "site"]], "No column of numbers is left:\n  'day': dates or times"),
        (lambda f: f[["unit"]], "No column varies: 'unit'"),
        (
            lambda f: f.assign(a=np.where(np.arange(500) % 2, np.nan, 1.0), b=f["a"].where(np.arange(500) % 2 > 0)),
            "'b'",
        ),
    ],
)
def test_where_too_little_is_left_the_error_says_why(messy, change, words):
    with pytest.raises(DataError) as error:
        inspect_table(change(messy))
    assert words in str(error.value)


def test_the_columns_are_not_changed(messy):
    before = messy.copy()
    inspect_table(messy)
    pd.testing.assert_frame_equal(messy, before)
