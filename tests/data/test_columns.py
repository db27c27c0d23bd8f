"""`column_kinds` finds what a column alone can pass off as a latent; the comparisons do not depend on single rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import FastICA

from identifiable.data.columns import (
    column_kinds,
    effective_rows,
    gaussian_surrogate,
    jittered,
    monotone_columns,
    robust_correlation,
    same_column,
)

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=20, deadline=None)
SHAPES = {
    "gaussian": lambda rng, n: rng.normal(size=n),
    "uniform": lambda rng, n: rng.uniform(size=n),
    "laplace": lambda rng, n: rng.laplace(size=n),
    "peaked gamma": lambda rng, n: rng.gamma(0.3, size=n),
    "lognormal": lambda rng, n: np.exp(2 * rng.normal(size=n)),
    "with an outlier": lambda rng, n: np.append(rng.normal(size=n - 1), 1e6),
}


def kind(values):
    return column_kinds(values[:, None])[0]


@pytest.mark.parametrize("shape", SHAPES)
@few
@given(seed=seeds, decimals=st.sampled_from([None, 3, 6]), scale=st.sampled_from([1e-9, 1.0, 1e9]))
def test_measurements_are_continuous_in_any_unit(shape, seed, decimals, scale):
    values = SHAPES[shape](np.random.default_rng(seed), 1500)
    values = values if decimals is None or shape == "peaked gamma" else values.round(decimals)
    assert kind(scale * values + 3 * scale).continuous


@few
@given(seed=seeds, share=st.floats(0.05, 0.9), n=st.integers(300, 3000), sign=st.sampled_from([-1, 1]))
def test_a_detection_limit_is_an_atom_at_an_end(seed, share, n, sign):
    values = np.random.default_rng(seed).normal(size=n)
    limit = np.quantile(values, share)
    found = kind(sign * np.maximum(values, limit))
    assert found.censored
    assert not found.discrete
    assert not found.rounded
    [atom] = found.atoms
    assert atom.place == ("minimum" if sign > 0 else "maximum")
    assert atom.value == sign * limit
    assert atom.share == pytest.approx(np.mean(values <= limit))


@few
@given(seed=seeds, how=st.sampled_from(["mean", "median"]))
def test_imputed_values_are_found(seed, how):
    values = np.random.default_rng(seed).gamma(2.0, size=999)
    values[:300] = getattr(np, how)(values[300:])
    found = kind(values)
    assert [atom.place for atom in found.atoms] == [how]
    assert found.imputed
    assert f"30 % of the rows have the {how}" in found.describe("a")[0]


@few
@given(seed=seeds, step=st.floats(0.15, 1.0), offset=st.floats(-5, 5))
def test_rounding_is_found_with_its_step_in_any_unit(seed, step, offset):
    values = np.round(np.random.default_rng(seed).normal(size=2000) / step) * step
    found = kind((values + offset) / 7)
    assert found.step == pytest.approx(step / 7)
    assert not found.atoms
    assert not found.continuous


def test_the_step_of_rounding_is_smaller_than_every_gap_and_outliers_do_not_matter():
    rng = np.random.default_rng(0)
    values = rng.choice([0.0, 2.0, 5.0, 8.0, 10.0], 1000)
    assert kind(values).step == 1.0
    assert not kind(rng.choice([0.0, 2.0, np.pi, 8.0, 10.0], 1000)).rounded
    values[:3] = 3e4
    assert kind(values).step == 1.0


@few
@given(seed=seeds, share=st.floats(0.2, 0.95))
def test_discrete_columns_with_or_without_many_zeros(seed, share):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(4, size=2000)
    assert kind(counts).discrete
    zeros = kind(np.where(rng.random(2000) < share, 0, rng.normal(size=2000)))
    assert not zeros.discrete
    assert [atom.value for atom in zeros.atoms] == [0.0]
    assert kind(rng.choice([0.1, 0.5, 7.0], 2000)).discrete
    assert kind(np.ones(200)).discrete


def test_partly_rounded_columns_are_neither_censored_nor_imputed():
    rng = np.random.default_rng(0)
    values = rng.normal(size=2000)
    found = kind(np.where(rng.random(2000) < 0.8, values.round(), values))
    assert found.heaped
    assert not found.censored
    assert not found.imputed
    [words] = found.describe("x7")
    assert words.startswith("'x7' is rounded in part: ")


def test_only_the_columns_of_one_latent_have_atoms():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4000, 3)) * (rng.random((4000, 3)) < 0.5)
    kinds = column_kinds(np.column_stack([2 * z[:, 0] + 1, z[:, 0] + z[:, 1] + z[:, 2], -z[:, 2]]))
    assert [[atom.place for atom in found.atoms if atom.share > 0.3] for found in kinds] == [
        ["interior"],
        [],
        ["interior"],
    ]


def test_every_finding_names_column_and_share():
    values = np.maximum(np.random.default_rng(0).normal(size=1000), 0.12)
    assert kind(values).describe("x3")[0].startswith("'x3' is censored or inactive: 5")
    assert "its smallest value 0.12" in kind(values).describe("x3")[0]


@few
@given(seed=seeds, rate=st.floats(1e-3, 1e3), n=st.integers(10, 5000))
def test_time_and_index_columns_are_monotone(seed, rate, n):
    rng = np.random.default_rng(seed)
    jitter = np.sort(rng.random(n)) + np.arange(n)
    walk = rng.normal(size=n).cumsum()
    gaps = np.where(rng.random(n) < 0.3, np.nan, np.arange(n) / rate)
    gaps[:10] = np.arange(10) / rate
    columns = np.column_stack([np.arange(n) / rate, -jitter, gaps, walk, rng.permutation(n), np.arange(n) // 2])
    assert monotone_columns(columns).tolist()[:3] == [True] * 3
    assert n < 30 or not monotone_columns(columns)[3:].any()


def test_jitter_removes_atoms_of_rounding_and_leaves_other_columns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 2))
    x[:, 0] = x[:, 0].round()
    kinds = column_kinds(x)
    y = jittered(x, kinds, rng)
    assert column_kinds(y)[0].continuous
    assert np.abs(y - x).max(axis=0).tolist() == [pytest.approx(0.5, abs=0.01), 0]


@few
@given(seed=seeds)
def test_surrogate_keeps_columns_and_correlations_but_no_mixture(seed):
    rng = np.random.default_rng(seed)
    x = rng.laplace(size=(3000, 3)) @ np.array([[1, 1, 0], [-1, 1, 1], [0.0, 0.5, 1]])
    y = gaussian_surrogate(x, rng)
    np.testing.assert_array_equal(np.sort(x, axis=0), np.sort(y, axis=0))
    assert np.abs(np.corrcoef(x.T) - np.corrcoef(y.T)).max() < 0.15
    assert np.abs(x[:, 0] - y[:, 0]).max() > 0


@few
@given(seed=seeds, value=st.floats(10, 1e12))
def test_one_row_cannot_make_columns_agree(seed, value):
    a, b = np.random.default_rng(seed).normal(size=(2, 1000, 2))
    a[7], b[7] = value, value
    assert np.abs(robust_correlation(a, b)).max() < 0.2


@few
@given(seed=seeds, share=st.floats(0.02, 1), noise=st.floats(0, 0.02))
def test_robust_correlation_of_intermittent_latents(seed, share, noise):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(4000, 2)) * (rng.random((4000, 2)) < share)
    found = robust_correlation(a, -3 * a + noise * rng.normal(size=a.shape) * a.std(axis=0))
    assert (np.diag(found) < -0.99).all()
    assert robust_correlation(np.ones((50, 1)), a[:50, :1]).tolist() == [[0.0]]


@pytest.mark.parametrize("n", [2000, 4000])
def test_independent_columns_are_their_own_latents(n):
    x = np.random.default_rng(n).laplace(size=(n, 5))
    z = FastICA(random_state=0, whiten="unit-variance").fit_transform(x)
    assert sorted(same_column(z, x)) == [0, 1, 2, 3, 4]


@few
@given(seed=seeds, weight=st.floats(0.2, 1))
def test_latents_of_a_mixture_are_no_columns(seed, weight):
    rng = np.random.default_rng(seed)
    z = rng.laplace(size=(1000, 3))
    x = z + weight * z[:, [1, 2, 0]]
    assert same_column(z, x).tolist() == [-1, -1, -1]
    x[3], z[3] = 1e5, 1e5
    assert same_column(z, x).tolist() == [-1, -1, -1]


@few
@given(seed=seeds, scale=st.sampled_from([1e-160, 1.0, 1e160]))
def test_effective_rows_count_the_rows_that_carry_a_latent(seed, scale):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(20000, 3))
    z[:, 1] *= rng.random(20000) < 0.3
    z[7, 2] = 1e4
    found = effective_rows(scale * z)
    assert found[:2] == pytest.approx([20000 / 3, 2000], rel=0.2)
    assert found[2] == pytest.approx(1, abs=0.1)
    assert effective_rows(np.ones((9, 1))).tolist() == [0.0]
