"""The starts of a degenerate mixture and its number of components."""

import numpy as np
import pytest

from identifiable.algorithms.component_choice import (
    Search,
    coincident_merged,
    divergences,
    joined,
    merged,
    simplified,
    starts,
)
from identifiable.algorithms.singular import Floor, Gaussians, from_labels

FLOOR = Floor(1e-4, 1e-4, learnt=False)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def line_and_plane():
    return np.vstack([normal(300, 1) @ [[1, 1, 0]], normal(500, 2, seed=1) @ [[1, 0, 1], [0, 1, 1]] + 2]) / 2


def search(number=None):
    return Search(number, 20, 2, 100, 1e-4, np.random.default_rng(0))


def covariance(model, j):
    return (model.axes[j] * model.variances[j]) @ model.axes[j].T


def test_starts_are_the_subspaces_of_exact_and_of_noisy_rows():
    x, rng = line_and_plane(), np.random.default_rng(0)
    (exact,) = starts(x, 1e-7, None, 4, rng)
    assert [len(g) for g in exact.groups[:2]] == pytest.approx([500, 300], abs=2)
    assert exact.share > 0.99
    (noisy,) = starts(x + 0.002 * normal(800, 3, seed=2), 1e-7, None, 4, rng)
    assert noisy.tolerance > exact.tolerance
    assert noisy.floor.learnt
    (given,) = starts(x, 1e-7, 0.01, 4, rng)
    assert (given.floor.start, given.floor.learnt) == (pytest.approx(1e-4), False)
    (smooth,) = starts(normal(500, 3), 1e-7, None, 4, rng)
    assert len(smooth.groups) == 1
    assert smooth.share == 0


@pytest.mark.parametrize(("number", "expected"), [(None, [1, 2, 2]), (3, [1, 2, 2]), (2, [1, 2])])
def test_split_gives_each_subspace_its_gaussians(number, expected):
    x = line_and_plane()
    x[300:550] += [5, 0, 5]  # two clusters on the plane
    (start,) = starts(x, 1e-7, None, 4, np.random.default_rng(0))
    found = search(number).reduced(x, search(number).split(x, start), start.floor).model
    assert sorted(found.ranks) == expected


def test_needless_components_are_removed():
    x = np.vstack([normal(200, 2), normal(200, 2, seed=1) + 8])
    many = from_labels(x, np.repeat(np.arange(8), 50), FLOOR)
    found = simplified(x, search().em(x, many, FLOOR).model)
    assert len(found) == 2
    assert found.bic(x) < many.bic(x)
    np.testing.assert_allclose(np.sort(found.means[:, 0]), [0, 8], atol=0.3)


def test_coincident_components_become_one():
    one = from_labels(normal(60, 1) * [[1, 2, 3]], np.zeros(60, int), FLOOR)
    both = joined([one, one], np.array([1.0, 3.0]), one.floor2)
    np.testing.assert_allclose(both.weights, [0.25, 0.75])
    found = coincident_merged(both)
    np.testing.assert_allclose(found.weights, [1.0])
    np.testing.assert_allclose(found.means, one.means)
    np.testing.assert_allclose(np.sort(found.variances), one.variances, atol=1e-12)


def test_merged_components_keep_their_moments():
    x = normal(300, 3) + np.repeat(normal(3, 3, seed=1), 100, axis=0)
    model = from_labels(x, np.repeat([0, 1, 2], 100), Floor(0.0, 0.0, learnt=False))
    found = merged(model, 0, 1)
    np.testing.assert_allclose(found.weights, [1 / 3, 2 / 3])
    np.testing.assert_allclose(found.means, [x[200:].mean(0), x[:200].mean(0)], atol=1e-12)
    np.testing.assert_allclose(covariance(found, 1), np.cov(x[:200].T, ddof=0), atol=1e-10)


def test_divergence_is_that_of_gaussians():
    model = Gaussians(np.full(2, 0.5), np.array([[0.0, 0], [1, 2]]), np.stack([np.eye(2)] * 2),
                      np.array([[1.0, 0], [2, 3]]), 0.5)  # fmt: skip
    a, b, d = np.array([1.5, 0.5]), np.array([2.5, 3.5]), np.array([1.0, 2.0])
    expected = 0.5 * (a / b + b / a + d**2 * (1 / a + 1 / b)).sum() - 2
    np.testing.assert_allclose(divergences(model), [[np.inf, expected], [expected, np.inf]])
