"""The auxiliary variable u: any table of any types becomes groups and features, the same for training and new rows."""

import numpy as np
import pandas as pd
import pytest
import torch

from identifiable import DataError, SegmentUnmixing, load, save
from identifiable.data.auxiliary import Auxiliary

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("u", "kind"),
    [
        (np.array(["b", "a"] * 50, dtype=object), "categorical"),
        (pd.Series(["b", "a"] * 50, dtype="category"), "categorical"),
        (np.array([True, False] * 50), "categorical"),
        (np.arange(100) % 20, "categorical"),  # five rows per value
        (np.arange(100) % 21, "continuous"),  # fewer
        (np.arange(100) % 20 + 0.5, "continuous"),
        (RNG.normal(size=100), "continuous"),
        (pd.Series(pd.date_range("2020-01-01", periods=100)), "continuous"),
    ],
)
def test_auto_tells_categories_from_measurements(u, kind):
    assert Auxiliary.of(u, 100).kinds == (kind,)
    digits = np.c_[np.arange(100) % 2, np.arange(100) % 3]
    assert Auxiliary.of(digits, 100, "continuous").kinds == ("continuous", "continuous")
    assert Auxiliary.of(digits, 100, ["auto", "continuous"]).kinds == ("categorical", "continuous")


def test_combinations_are_numbered_in_sorted_order():
    u = [("y", 2), ("x", 10), ("x", 9), ("y", 2), ("x", 10)]
    a = Auxiliary.of(u, 5, u_types="categorical")
    assert a.codes(u).tolist() == [2, 1, 0, 2, 1]
    assert a.labels == ("x, u2 9", "x, u2 10", "y, u2 2")
    np.testing.assert_allclose(a.weights, [0.2, 0.4, 0.4])
    assert a.n_groups == 3
    assert a.all_categorical


@pytest.mark.parametrize(
    "u",
    [
        [3, 1, 3, 2, 1, 2] * 5,
        np.array([3, 1, 3, 2, 1, 2] * 5, dtype=float)[:, None],
        pd.Series([3, 1, 3, 2, 1, 2] * 5, index=range(100, 130)),
        pd.DataFrame({"u": [3, 1, 3, 2, 1, 2] * 5}),
        pd.Categorical([3, 1, 3, 2, 1, 2] * 5),
        pd.Series([3, 1, 3, 2, 1, 2] * 5, dtype="Int64"),
    ],
    ids=["list", "floats", "series", "frame", "categorical", "nullable"],
)
def test_every_container_gives_the_same_groups(u):
    a = Auxiliary.of(u, 30)
    assert a.codes(u).tolist() == [2, 0, 2, 1, 0, 1] * 5
    assert a.codes([1, 2]).tolist() == [0, 1]
    assert a.labels == ("u 1", "u 2", "u 3")


@pytest.mark.parametrize(("rows", "groups"), [(50, 2), (1000, 10), (100_000, 40)])
def test_quantile_groups_have_equal_shares(rows, groups):
    u = np.random.default_rng(rows).uniform(size=rows)
    a = Auxiliary.of(u, rows)
    codes = a.codes(u)
    assert a.n_groups == groups
    assert not a.all_categorical
    np.testing.assert_array_equal(np.diff(codes[np.argsort(u)]) >= 0, True)
    np.testing.assert_allclose(a.weights, 1 / groups, rtol=0.3)
    np.testing.assert_allclose(a.weights, np.bincount(codes) / rows)
    assert a.codes([-9.0, 9.0]).tolist() == [0, groups - 1]


def test_several_measurements_are_clustered():
    """Four clouds that no single column separates; units do not matter."""
    which = np.arange(400) % 4
    u = (np.c_[which // 2, which % 2] + 0.01 * np.random.default_rng(0).normal(size=(400, 2))) * [1, 1000]
    a = Auxiliary.of(u, 400, n_groups=4)
    codes = a.codes(u)
    assert len(set(zip(codes, which, strict=True))) == 4
    assert a.codes([(1.2, -100.0)]) == codes[2]
    clouds = [u[codes == g].mean(0) for g in range(4)]
    np.testing.assert_allclose(a.location + a.scale * a.centres, clouds)
    np.testing.assert_allclose(a.group_features, a.centres)


def test_measurements_are_grouped_within_categories():
    rng = np.random.default_rng(0)
    u = pd.DataFrame({"cell": ["t", "b", "b", "b"] * 250, "dose": rng.uniform(size=1000)})
    a = Auxiliary.of(u, 1000, n_groups=8)
    assert a.n_groups == 8
    codes = a.codes(u)
    assert set(codes[u.cell == "b"]) == set(range(6))
    assert set(codes[u.cell == "t"]) == {6, 7}
    assert all(label.startswith("b, dose in [") for label in a.labels[:6])
    np.testing.assert_allclose(np.bincount(codes) / 1000, a.weights)


def test_features_are_one_hot_and_standardised():
    u = pd.DataFrame({"t": [1.0, 2.0, 3.0, 6.0], "kind": ["b", "a", "c", "a"]})
    features = Auxiliary.of(u, 4, n_groups=2).features(u)
    t = (u["t"] - 3) / np.sqrt(3.5)
    np.testing.assert_allclose(features, np.c_[[[0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0]], t])


def test_group_features_are_the_features_of_the_groups():
    u = np.array(["b", "a", "c"] * 5)
    a = Auxiliary.of(u, 15)
    np.testing.assert_array_equal(a.group_features, a.features(["a", "b", "c"]))
    t = RNG.normal(size=500)
    a = Auxiliary.of(t, 500)
    np.testing.assert_array_equal(a.codes((a.location + a.scale * a.group_features)[:, 0]), range(5))


def test_one_row_is_repeated():
    u = pd.DataFrame({"cell": ["t", "b"] * 50, "dose": np.linspace(0, 1, 100)})
    a = Auxiliary.of(u, 100)
    for one in [("t", 0.7), ["t", 0.7], pd.DataFrame({"cell": ["t"], "dose": [0.7]}, index=[9])]:
        assert a.codes(a.repeated(one, 3)).tolist() == a.codes([("t", 0.7)] * 3).tolist()
    np.testing.assert_array_equal(a.features(a.repeated(u[10:20], 10)), a.features(u)[10:20])
    single = Auxiliary.of(["b", "a"], 2)
    for one in ["b", ["b"], pd.Series(["b"], name="other")]:
        assert single.codes(single.repeated(one, 2)).tolist() == [1, 1]
    with pytest.raises(DataError, match=r"one for each of the 3 rows\. Got 2 rows"):
        single.repeated(["a", "b"], 3)


def test_u_is_neither_changed_nor_kept():
    u = np.arange(100.0)
    before = u.copy()
    a = Auxiliary.of(u, 100)
    codes = a.codes(u)
    np.testing.assert_array_equal(u, before)
    u[:] = 0
    np.testing.assert_array_equal(a.codes(before), codes)


def test_dates_are_seconds_whatever_their_resolution():
    days = pd.Series(pd.date_range("2020-01-01", periods=300, tz="Asia/Tokyo"))
    a = Auxiliary.of(days, 300)
    np.testing.assert_array_equal(a.codes(days), a.codes(days.dt.tz_convert("UTC").astype("datetime64[s, UTC]")))
    assert np.bincount(a.codes(days)).tolist() == [100, 100, 100]


def test_a_constant_column_beside_others_does_no_harm():
    u = np.c_[np.full(100, 1e9 + 0.1), np.arange(100)]
    np.testing.assert_allclose(
        Auxiliary.of(u, 100).features(u), np.c_[np.zeros(100), (u[:, 1] - 49.5) / u[:, 1].std()], atol=1e-4
    )


@pytest.mark.parametrize(
    ("u", "kinds", "words"),
    [
        (None, "auto", "u is needed: .*Pass u as y, the second argument"),
        (np.arange(7), "auto", "one row per row of X: X has 10, u has 7"),
        (np.ones(10), "auto", "at least two distinct values"),
        (pd.DataFrame(index=range(10)), "auto", "no columns"),
        ([], "auto", r"shape \(N,\) or \(N, m\)\. Got \(0,\)"),
        (np.zeros((10, 2, 2)), "auto", r"Got \(10, 2, 2\)"),
        ([1.0, np.nan] * 5, "auto", "5 values of u are missing, NaN or infinite, the first in row 1"),
        ([1.0, np.inf] * 5, "auto", "missing, NaN or infinite"),
        (["a", None] * 5, "auto", "missing, NaN or infinite"),
        ([1.0, 1j] * 5, "auto", "complex"),
        (torch.ones(10, requires_grad=True), "auto", "requires grad. Pass tensor.detach"),
        (list(torch.ones(10, requires_grad=True)), "auto", "requires grad"),
        (pd.DataFrame(np.eye(10)[:, :2], columns=["a", "a"]), "auto", "duplicate column names 'a'"),
        (pd.DataFrame(np.eye(10), columns=pd.Index([*"abcdefghi", "\ud800"], dtype=object)), "auto", "Unicode"),
        (["a", "\ud800"] * 5, "auto", r"valid text.*'.ud800' in row 1"),
        (pd.Series([[1], [2]] * 5), "auto", r"u has \[1\] in row 0"),
        (["a", "b"] * 5, "continuous", "u is not of numbers: 'a' for instance. Use 'categorical'"),
        ([0, 1] * 5, "discrete", "u_types must be 'auto', 'categorical', 'continuous'.*Got 'discrete'"),
        ([0, 1] * 5, ["auto", "auto"], r"each of the 1 column\(s\)"),
    ],
)
def test_bad_u_gets_one_clear_error(u, kinds, words):
    with pytest.raises(DataError if kinds == "auto" else ValueError, match=words):
        Auxiliary.of(u, 10, kinds)
    with pytest.raises(ValueError, match=r"n_groups must be an integer >= 2 or None\. Got 1"):
        Auxiliary.of(np.arange(10), 10, n_groups=1)


def test_what_was_never_seen_is_named():
    u = pd.DataFrame({"cell": ["t", "b", "b"], "day": [1, 1, 2]})
    a = Auxiliary.of(u, 3, "categorical")
    with pytest.raises(DataError, match="values of cell that no training row had: 'nk'"):
        a.codes(pd.DataFrame({"cell": ["t", "nk"], "day": [1, 1]}))
    with pytest.raises(DataError, match="combinations that no training row had: t, day 2"):
        a.codes(pd.DataFrame({"cell": ["b", "t"], "day": [1, 2]}))
    with pytest.raises(DataError, match=r"2 column\(s\) as in fit \(cell, day\). Got 1"):
        a.features(["t"])
    with pytest.raises(DataError, match=r"must be those of fit: cell, day\. Got day, cell"):
        a.codes(u[["day", "cell"]])
    with pytest.raises(DataError, match=r"u must be of numbers, as in fit\. Got 'a'"):
        Auxiliary.of(np.arange(10), 10).codes(["a"])


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
@pytest.mark.parametrize(
    "levels", [["low dose", "high"], [3, -1], [0.1, 0.3], [True, False], [2, "two"]], ids=lambda v: type(v[0]).__name__
)
def test_categories_survive_a_file(levels, tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": pd.Series(levels * 100, dtype=object).to_numpy(), "t": rng.normal(size=200)})
    model = SegmentUnmixing(random_state=0, u_types=("categorical", "auto")).fit(rng.normal(size=(200, 3)), rows)
    save(model, tmp_path / "m.safetensors")
    before, after = model.auxiliary_, load(tmp_path / "m.safetensors").auxiliary_
    assert after.categories == before.categories
    assert [type(v) for v in after.categories[0]] == [type(v) for v in before.categories[0]]
    assert after.labels == before.labels
    np.testing.assert_array_equal(after.codes(rows), before.codes(rows))
    np.testing.assert_array_equal(after.features(rows), before.features(rows))
