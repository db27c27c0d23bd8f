"""The test of rank: its null distribution, its invariance, and the latents it names."""

import numpy as np
import pytest
from scipy import stats

from identifiable.theory.rank import by_chance, dependence, least_varied

SEEDS = range(3)


def noisy(rng, rank, G=12, r=4, noise=1e-2):
    """Return y of some rank about its mean, with a covariance of errors for every u."""
    factors = noise * rng.normal(size=(G, r, r)) * rng.uniform(0.2, 3, size=(G, 1, 1))
    y = rng.normal(size=(G, rank)) @ rng.normal(size=(rank, r)) + rng.normal(size=r)
    return y + (factors @ rng.normal(size=(G, r, 1)))[..., 0], factors @ factors.swapaxes(1, 2)


def test_the_statistic_is_chi_squared_where_one_direction_is_constant():
    rng = np.random.default_rng(0)
    q = [least_varied(*noisy(rng, 3))[0] for _ in range(50)]
    assert stats.kstest(q, stats.chi2(12 - 4).cdf).pvalue > 0.01
    lower = [least_varied(*noisy(rng, 2))[0] for _ in range(15)]
    assert np.mean(lower) < 0.7 * np.mean(q)
    assert np.median([least_varied(*noisy(rng, 4, noise=1e-3))[0] for _ in range(10)]) > 10 * np.max(q)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_statistic_is_a_minimum_and_free_of_affine_maps(seed):
    rng = np.random.default_rng(seed)
    y, covariances = noisy(rng, 3)
    q, v = least_varied(y, covariances)

    def value(v):
        w = 1 / np.einsum("i,uij,j->u", v, covariances, v)
        return w @ (y @ v - w @ (y @ v) / w.sum()) ** 2

    assert value(v) == pytest.approx(q, rel=1e-6)
    assert all(value(v + 1e-3 * rng.normal(size=4)) > q for _ in range(20))
    B = rng.normal(size=(4, 4))
    assert least_varied(y @ B.T + rng.normal(size=4), B @ covariances @ B.T)[0] == pytest.approx(q, rel=1e-4)


def test_latents_are_named_by_what_they_vary_and_not_by_their_units():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 12))
    y = np.stack([a, 1e-2 * b, 2 * a], axis=1)
    covariances = np.tile(1e-8 * np.eye(3), (12, 1, 1))
    assert dependence(y, covariances, np.array([2, 1, -1]), 1) == "latents 0 and 2 vary with u in proportion"
    assert dependence(y, covariances, np.array([2, 100, -1]), 1) == (
        "u changes latents 0, 1 and 2 in a linearly dependent way"
    )


def test_by_chance_is_the_quantile_of_the_largest_of_several():
    rng = np.random.default_rng(0)
    largest = np.sqrt(rng.chisquare(5, size=(4000, 10)) / 5).max(1)
    assert (largest <= by_chance(5, 10)).mean() == pytest.approx(0.95, abs=0.015)
