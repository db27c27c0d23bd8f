"""Gaussians seen only where all latents are far from zero, and what an exchange of latents keeps."""

import numpy as np
import pytest

from identifiable.theory.upsets_gaussians import MapError, TruncatedGaussian, difference, equality, fit, statistics_of

CUT = 0.4


def exact(mean, covariance):
    """The natural parameters of a Gaussian, known without error."""
    precision = np.linalg.inv(covariance)
    i, j = np.triu_indices(len(mean))
    theta = np.r_[precision @ mean, -precision[i, j] * np.where(i == j, 0.5, 1.0)]
    return TruncatedGaussian(theta, np.zeros((len(theta), len(theta))))


def random_gaussian(r, seed):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(r, r)) + np.eye(r)
    return rng.normal(size=r), factor @ factor.T


@pytest.mark.parametrize("r", [1, 2, 3])
def test_an_exchange_changes_no_invariant(r):
    """(z_c, z_K) -> (b z_c, z_K + a z_c); the sign of delta follows that of b."""
    mean, covariance = random_gaussian(r, r)
    a, b = np.random.default_rng(9).normal(size=r - 1), -1.7
    change = np.eye(r)
    change[0, 0], change[1:, 0] = b, a
    before = exact(mean, covariance).invariants(0)[0]
    after = exact(change @ mean, change @ covariance @ change.T).invariants(0)[0]
    np.testing.assert_allclose(difference(before, after), 0, atol=1e-8)
    assert len(before) == r * (r + 1) // 2
    other = exact(1.3 * mean, covariance).invariants(0)[0]
    assert np.abs(difference(before, other)).max() > 0.05


@pytest.mark.parametrize("r", [1, 2, 3])
def test_truncation_biases_neither_estimates_nor_their_errors(r):
    """Of 40 data sets: the standardised errors have mean 0 and variance 1, within four standard errors."""
    mean, covariance = random_gaussian(r, 10 + r)
    truth, z = exact(mean, covariance).invariants(0)[0], []
    for seed in range(40):
        x = np.random.default_rng(seed).multivariate_normal(mean, covariance, size=2000)
        x = x[(np.abs(x) > CUT).all(1)]
        value, variance = fit(*statistics_of(x), len(x), CUT).invariants(0)
        z.append((value - truth) / np.sqrt(variance))
    z = np.array(z)
    assert np.abs(z.mean(0)).max() < 4 / np.sqrt(40)
    assert np.abs(z.var(0) - 1).max() < 4 * np.sqrt(2 / 40)


def test_equal_invariants_are_kept_and_different_ones_are_not():
    def pairs(delta):
        one, other = (np.array([d, 0.0, 0.0]) for d in (0.5, 0.5 + delta))
        return [((one, np.full(3, 1e-3)), (other, np.full(3, 1e-3)))] * 2

    assert equality(pairs(0.0), MapError()) == 1
    assert equality(pairs(0.4), MapError()) < 1e-3
    assert equality(pairs(0.4), MapError(place=0.4)) > 0.3


def test_the_error_of_the_map_is_what_restarts_disagree_by():
    found = MapError.between([np.array([0.3, -0.3, 0.1]), np.array([0.3, 0.3, -0.1])])
    assert (found.place, found.scale) == pytest.approx((0.3, 0.1))
    assert MapError.between([np.zeros(3)]) == MapError()
