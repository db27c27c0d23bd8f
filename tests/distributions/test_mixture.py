"""Gaussian mixtures as values: densities against scipy, samples against moments, and affine maps by hand."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from identifiable import DataError, Mixture
from identifiable.distributions.mixture import check_weights


@pytest.fixture
def mixture():
    roots = np.random.default_rng(0).normal(size=(3, 2, 2))
    return Mixture([0.5, 0.3, 0.2], [[0, 0], [3, -1], [-2, 4]], roots @ roots.swapaxes(1, 2))


@pytest.mark.parametrize("floor", [0.0, 0.5])
def test_log_joint_is_that_of_the_components(mixture, floor):
    z = np.random.default_rng(1).normal(size=(7, 2))
    components = zip(mixture.weights, mixture.means, mixture.covariances + floor**2 * np.eye(2), strict=True)
    expected = np.stack([np.log(w) + multivariate_normal(m, c).logpdf(z) for w, m, c in components], 1)
    np.testing.assert_allclose(mixture.log_joint(z, floor), expected)


def test_log_joint_is_finite_for_singular_covariances_with_a_floor():
    singular = Mixture([1, 0], [[0, 0], [1, 1]], [[1, 0], [0, 0]])
    assert np.isfinite(singular.log_joint(np.ones((3, 2)), 0.1)).all()
    assert logsumexp(singular.log_joint(np.zeros((1, 2)), 0.1)) == pytest.approx(-np.log(2 * np.pi * 0.1 * 1.01**0.5))


def test_sample_has_the_moments_and_weights_of_the_components(mixture):
    singular = Mixture(mixture.weights, mixture.means, [*mixture.covariances[:2], [[1, 1], [1, 1]]])
    z, component = singular.sample(60_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(component) / 60_000, singular.weights, atol=0.01)
    for j in range(3):
        np.testing.assert_allclose(z[component == j].mean(0), singular.means[j], atol=0.06)
        np.testing.assert_allclose(np.cov(z[component == j].T), singular.covariances[j], rtol=0.06, atol=0.06)
    assert np.ptp((z - singular.means[component])[component == 2] @ [1, -1]) < 1e-7  # the singular component is a line


def test_pushforward_by_hand_and_diagonal_covariances():
    p = Mixture([0.25, 0.75], [[0, 0], [1, 2]], [[1, 4], [9, 16]])
    assert p.covariances[1].tolist() == [[9, 0], [0, 16]]
    q = p.pushforward([[1, 1], [0, 2]], [10, 20])
    assert q.means.tolist() == [[10, 20], [13, 24]]
    assert q.covariances[0].tolist() == [[5, 8], [8, 16]]


def test_weights_are_normalised_within_rounding():
    assert check_weights([0.5, 0.50004], 2, "mean").sum() == pytest.approx(1, abs=1e-15)
    assert Mixture([0.5, 0.50004], np.eye(2), np.eye(2)).weights.sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    ("weights", "means", "covariances", "name"),
    [
        ([0.5, 0.6], np.eye(2), np.eye(2), "weights"),
        ([1], np.eye(2), np.eye(2), "weights"),
        ([-0.5, 1.5], np.eye(2), np.eye(2), "weights"),
        ([1], [0, 0], np.eye(2), "means"),
        ([1], [[0, np.nan]], [[1, 1]], "means"),
        ([1], [[0, 0]], [[1, 2, 3]], "covariances"),
        ([1], [[0, 0]], [[[1, 0], [0, np.nan]]], "covariances"),
        ([1], [[0, 0]], [[[1, 1], [0, 1]]], "symmetric"),
    ],
)
def test_invalid_mixtures_are_refused(weights, means, covariances, name):
    with pytest.raises(DataError, match=name):
        Mixture(weights, means, covariances)
