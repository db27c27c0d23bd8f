"""EM of a mixture that is diagonal in one basis: densities, moments and the number of components."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from identifiable import DataError
from identifiable.algorithms.factorial import (
    FactorialMixture,
    covariances_of,
    em_mixture,
    free_bic,
    moments,
    most_likely_mixture,
    quadratic_joint,
)
from unmixing_problems import factorial_mixture


def test_density_responsibilities_and_criteria():
    rng = np.random.default_rng(0)
    z, W = factorial_mixture(3, 4, rng), rng.normal(size=(3, 3))
    x = z.pushforward(np.linalg.inv(W), np.zeros(3))
    model, y = FactorialMixture.of(x, W), x.sample(500, rng)[0]
    parts = [multivariate_normal(m, C).logpdf(y) for m, C in zip(x.means, x.covariances, strict=True)]
    joint = np.log(x.weights) + np.transpose(parts)
    np.testing.assert_allclose(model.log_joint(y), joint)
    np.testing.assert_allclose(model.responsibilities(y), np.exp(joint) / np.exp(joint).sum(1, keepdims=True))
    minus_two_log = -2 * np.log(np.exp(joint).sum(1)).sum()
    assert model.bic(y) == pytest.approx((3 + 4 * 6 + 9) * np.log(500) + minus_two_log)
    assert free_bic(x, y) == pytest.approx((3 + 4 * 3 + 4 * 6) * np.log(500) + minus_two_log)
    np.testing.assert_allclose(model.effective_rows(y), (model.responsibilities(y) ** 2).sum(0))
    np.testing.assert_allclose(model.mixture.covariances, z.covariances, atol=1e-12)


def test_moments_are_those_of_the_rows():
    rng = np.random.default_rng(1)
    y, r = rng.normal(size=(300, 2)), np.eye(3)[np.r_[np.zeros(100, int), np.ones(199, int), 2]]
    found = moments(y, r, pseudo=0.0)
    np.testing.assert_allclose(found.weights, np.array([100, 199]) / 299)  # one row is no component
    np.testing.assert_allclose(found.means, [y[:100].mean(0), y[100:299].mean(0)])
    np.testing.assert_allclose(found.covariances[1], np.cov(y[100:299].T, ddof=0))
    shrunk, pooled = moments(y, r).covariances[0], np.einsum("j,jab->ab", found.weights, found.covariances)
    np.testing.assert_allclose(shrunk, (100 * found.covariances[0] + 2 * pooled) / 102)


def test_the_quadratic_form_is_the_density():
    rng = np.random.default_rng(3)
    mixture = factorial_mixture(3, 4, rng).pushforward(rng.normal(size=(3, 3)), np.ones(3))
    y = mixture.sample(200_000, rng)[0]  # more than one block
    found = quadratic_joint(mixture, y)
    np.testing.assert_allclose(found, mixture.log_joint(y), rtol=1e-7, atol=1e-7)


def test_em_is_as_likely_as_that_of_scikit_learn():
    """From the same start, a clustering by k-means; it stops at the same change of the likelihood."""
    rng = np.random.default_rng(4)
    y = factorial_mixture(3, 4, rng).sample(3000, rng)[0] @ rng.normal(size=(3, 3))
    for components in (1, 4, 9):
        theirs = GaussianMixture(components, random_state=0).fit(y)
        ours = em_mixture(y, components, 0)
        assert np.logaddexp.reduce(ours.log_joint(y), axis=1).mean() == pytest.approx(theirs.score(y), abs=0.01)


def test_the_floor_bounds_variances_of_equal_rows():
    rows = np.repeat(np.eye(3), 20, 0)
    np.testing.assert_allclose(
        em_mixture(rows, 3, 0, floor=1e-4).covariances, 1e-4 * np.broadcast_to(np.eye(3), (3, 3, 3))
    )


def test_em_never_loses_likelihood():
    rng = np.random.default_rng(5)
    y = factorial_mixture(3, 4, rng).sample(2000, rng)[0] @ rng.normal(size=(3, 3))
    model = FactorialMixture.of(em_mixture(y, 4, 0, max_iter=2), np.eye(3))
    scores = [model.improved(y, max_iter=k, tol=1e-12).score for k in range(1, 25)]
    assert np.diff(scores).min() > -2e-3  # the pseudo-rows are a prior
    assert scores[-1] > scores[0] + 0.05


def test_splits_and_joins_find_the_number_of_components():
    """Covariances of a free M-step are then nearly diagonal in the basis."""
    rng = np.random.default_rng(8)
    y = factorial_mixture(3, 4, rng).sample(8000, rng)[0]
    start = FactorialMixture.of(em_mixture(y, 2, 0), np.eye(3))
    found = start.resized(y, most=10, max_iter=50, tol=1e-6)
    assert len(found.weights) == 4
    assert found.bic(y) < start.bic(y)
    free = covariances_of(y, found).pushforward(found.W, np.zeros(3)).covariances
    correlations = [c / np.sqrt(np.outer(np.diag(c), np.diag(c))) - np.eye(3) for c in free]
    assert np.abs(correlations).max() < 0.1
    many = FactorialMixture.of(em_mixture(y, 7, 0), np.eye(3)).resized(y, most=10, max_iter=50, tol=1e-6)
    assert len(many.weights) == 4


def test_too_many_components_are_refused():
    with pytest.raises(DataError, match="n_components = 30"):
        em_mixture(np.zeros((20, 2)), 30, 0)


def test_the_most_likely_of_several_mixtures_is_kept_in_any_units():
    rng = np.random.default_rng(0)
    rows = factorial_mixture(2, 6, rng).sample(300, rng)[0]
    one, several = (most_likely_mixture(rows, 6, 0, tries=tries) for tries in (1, 8))
    likelihood = [np.logaddexp.reduce(each.log_joint(rows), axis=1).mean() for each in (one, several)]
    assert likelihood[1] >= likelihood[0] - 1e-12
    units = np.array([2.0**-10, 2.0**6])
    scaled = most_likely_mixture(rows * units, 6, 0, tries=8)
    np.testing.assert_allclose(scaled.means, several.means * units, rtol=1e-5)
    np.testing.assert_allclose(scaled.covariances, several.covariances * np.outer(units, units), rtol=1e-5)
