"""EM for mixtures of Gaussians of any rank with one noise floor."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from identifiable.algorithms.singular import Floor, em, from_labels, log_sum_exp, m_step

KNOWN = Floor(0.01**2, 0.01**2, learnt=False)


def line_and_plane(rng, noise=0.0):
    line, plane = rng.normal(size=(200, 1)) * [[1, 1, 0]], rng.normal(size=(400, 2)) @ [[1, 0, 1], [0, 2, 1]] + 3
    return np.vstack([line, plane]) + noise * rng.normal(size=(600, 3)), np.repeat([0, 1], [200, 400])


def test_an_m_step_has_the_moments_of_its_rows():
    x, labels = line_and_plane(np.random.default_rng(0))
    model = from_labels(x, labels, KNOWN)
    assert model.ranks.tolist() == [1, 2]
    np.testing.assert_allclose(model.weights, [1 / 3, 2 / 3])
    for j in (0, 1):
        own = x[labels == j]
        np.testing.assert_allclose(model.means[j], own.mean(0), atol=1e-12)
        smooth = (model.axes[j] * (model.variances[j] + KNOWN.start * (model.variances[j] > 0))) @ model.axes[j].T
        np.testing.assert_allclose(smooth, np.cov(own.T, ddof=0), atol=1e-10)


def test_densities_and_criteria_are_those_of_the_smoothed_mixture():
    rng = np.random.default_rng(1)
    x, labels = line_and_plane(rng)
    model = from_labels(x, labels, Floor(0.3**2, 0.3**2, learnt=False))
    covariances = [(a * v) @ a.T + 0.09 * np.eye(3) for a, v in zip(model.axes, model.variances, strict=True)]
    densities = [multivariate_normal(m, C).logpdf(x) for m, C in zip(model.means, covariances, strict=True)]
    joint = np.log(model.weights) + np.transpose(densities)
    np.testing.assert_allclose(model.log_joint(x), joint)
    np.testing.assert_allclose(log_sum_exp(joint), np.log(np.exp(joint).sum(1)))
    parameters = 1 + 2 * 3 + (1 + 2) + (3 + 2) + 1  # weight, means, covariances of rank 1 and 2, floor
    assert model.n_parameters == parameters
    assert model.bic(x) == pytest.approx(parameters * np.log(600) - 2 * log_sum_exp(joint).sum())
    one = model.subset(np.array([1]))
    assert one.weights.tolist() == [1.0]
    np.testing.assert_array_equal(one.means[0], model.means[1])


def test_the_floor_is_the_noise_outside_the_components():
    x, labels = line_and_plane(np.random.default_rng(2), noise=0.05)
    model = m_step(x, np.eye(2)[labels], 0.05**2, Floor(0.05**2, 1e-12, learnt=True))
    assert np.sqrt(model.floor2) == pytest.approx(0.05, rel=0.05)
    assert m_step(x, np.eye(2)[labels], 0.05**2, Floor(0.05**2, 1.0, learnt=True)).floor2 == 1.0


def test_em_repairs_wrong_labels_and_never_loses_likelihood():
    rng = np.random.default_rng(3)
    x, labels = line_and_plane(rng, noise=0.2)
    wrong = np.where(rng.random(600) < 0.2, 1 - labels, labels)
    floor = Floor(0.2**2, 0.2**2, learnt=False)
    runs = [em(x, from_labels(x, wrong, floor), floor, steps, tol=0.0) for steps in (1, 5, 20)]
    assert runs[0].score < runs[1].score <= runs[2].score + 1e-9
    assert not runs[0].converged
    done = em(x, from_labels(x, wrong, floor), floor, 500, tol=1e-6)
    assert done.converged
    assert done.n_iter < 500
    assert done.model.ranks.tolist() == [1, 2]
    assert (done.model.log_joint(x).argmax(1) == labels).mean() > 0.95


def test_components_on_too_few_rows_are_dropped():
    x = np.random.default_rng(4).normal(size=(50, 3))
    labels = np.r_[np.zeros(48, int), 1, 1]
    assert len(from_labels(x, labels, KNOWN)) == 1
    assert len(m_step(x[:1], np.ones((1, 1)), KNOWN.start, KNOWN)) == 1
