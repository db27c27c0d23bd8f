"""The affine distance of mixtures: integration on a grid, brute force, invariances."""

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.metrics import align_mixtures, dist_aff_l2, l2_distance

SEEDS = range(5)


def random_mixture(rng, n_components, m):
    root = rng.normal(size=(n_components, m, m))
    covariances = root @ root.swapaxes(1, 2) / m + 0.2 * np.eye(m)
    return Mixture(rng.dirichlet(np.full(n_components, 5.0)), 2 * rng.normal(size=(n_components, m)), covariances)


def random_map(rng, m):
    left, right = (np.linalg.qr(rng.normal(size=(m, m)))[0] for _ in range(2))
    return left * rng.uniform(0.3, 3, size=m) @ right, 5 * rng.normal(size=m)


def shuffled(mixture, rng):
    order = rng.permutation(len(mixture.weights))
    return Mixture(mixture.weights[order], mixture.means[order], mixture.covariances[order])


def density(mixture, points):
    parts = zip(mixture.weights, mixture.means, mixture.covariances, strict=True)
    return sum(w * multivariate_normal(mean, cov).pdf(points) for w, mean, cov in parts)


@pytest.mark.parametrize("seed", SEEDS)
def test_l2_distance_agrees_with_integration_on_a_grid(seed):
    rng = np.random.default_rng(seed)
    p, q = random_mixture(rng, 3, 2), random_mixture(rng, 2, 2)
    axis = np.linspace(-20, 20, 401)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    f, g = density(p, grid), density(q, grid)
    expected = np.sqrt(np.sum((f - g) ** 2) / np.sqrt(np.sum(f**2) * np.sum(g**2)))
    assert l2_distance(p, q) == pytest.approx(expected, rel=1e-6)
    assert l2_distance(p, p) == 0


@pytest.mark.parametrize("m", [2, 60])
def test_l2_distance_is_unchanged_by_a_common_affine_map(m):
    rng = np.random.default_rng(0)
    p = random_mixture(rng, 3, m)
    q = Mixture(p.weights[::-1], p.means + 0.1, p.covariances)
    matrix, offset = random_map(rng, m)
    matrix *= 1e-8  # densities of 1e+480 in 60 dimensions
    moved = l2_distance(p.pushforward(matrix, offset * 1e-8), q.pushforward(matrix, offset * 1e-8))
    assert moved == pytest.approx(l2_distance(p, q), rel=1e-6)
    assert l2_distance(p, q) == pytest.approx(l2_distance(q, p))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("n_components", "m"), [(1, 3), (2, 1), (2, 4), (3, 2), (4, 4), (6, 2), (8, 3), (12, 2), (15, 6)]
)
def test_affinely_equivalent_mixtures_are_at_distance_zero(n_components, m, seed):
    rng = np.random.default_rng(seed)
    p = random_mixture(rng, n_components, m)
    matrix, offset = random_map(rng, m)
    q = shuffled(p.pushforward(matrix, offset), rng)
    found = align_mixtures(p, q)
    assert found.distance == pytest.approx(0, abs=1e-6)
    if n_components > 1:  # a single Gaussian leaves the rotation open
        assert found.matrix == pytest.approx(matrix, abs=1e-5)
        assert found.offset == pytest.approx(offset, abs=1e-4)


@pytest.mark.parametrize(("n_components", "m"), [(2, 5), (3, 3), (9, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_slightly_different_mixtures_are_no_further_than_the_map_between_them(n_components, m, seed):
    rng = np.random.default_rng(seed)
    p = random_mixture(rng, n_components, m)
    other = Mixture(
        rng.dirichlet(500 * p.weights), p.means + 0.05 * rng.normal(size=p.means.shape), 1.1 * p.covariances
    )
    q = shuffled(other.pushforward(*random_map(rng, m)), rng)
    assert 0.005 < dist_aff_l2(p, q) <= l2_distance(p, other)


@pytest.mark.parametrize("seed", range(4))
def test_the_distance_is_a_minimum_over_affine_maps(seed):
    rng = np.random.default_rng(seed)
    p, q = random_mixture(rng, 3, 2), random_mixture(rng, 3 + seed % 2, 2)
    found = align_mixtures(p, q)
    assert 0 < found.distance == dist_aff_l2(p, q) < math.sqrt(2)
    assert l2_distance(p.pushforward(found.matrix, found.offset), q) == pytest.approx(found.distance, abs=1e-7)
    assert found.distance <= l2_distance(p, q)
    for size in (1e-3, 0.1, 1):  # nearby maps and far ones are no better
        for _ in range(20):
            matrix = found.matrix + size * rng.normal(size=(2, 2))
            offset = found.offset + size * rng.normal(size=2)
            assert l2_distance(p.pushforward(matrix, offset), q) >= found.distance - 1e-7


@pytest.mark.parametrize("seed", range(4))
def test_the_distance_is_symmetric_and_ignores_affine_maps_of_either_side(seed):
    rng = np.random.default_rng(seed)
    p, q = random_mixture(rng, 3, 2), random_mixture(rng, 4, 2)
    distance = dist_aff_l2(p, q)
    assert dist_aff_l2(q, p) == pytest.approx(distance, abs=1e-6)
    moved = p.pushforward(*random_map(rng, 2)), q.pushforward(*random_map(rng, 2))
    assert dist_aff_l2(*moved) == pytest.approx(distance, abs=1e-5)
    back = align_mixtures(q, p)
    assert l2_distance(q.pushforward(back.matrix, back.offset), p) == pytest.approx(distance, abs=1e-6)


def test_components_without_weight_do_not_matter():
    rng = np.random.default_rng(0)
    p, q = random_mixture(rng, 3, 2), random_mixture(rng, 3, 2)
    padded = Mixture([*p.weights, 0], [*p.means, [100, 100]], [*p.covariances, np.eye(2)])
    assert dist_aff_l2(padded, q) == pytest.approx(dist_aff_l2(p, q), abs=1e-9)


UNIT = Mixture([1], [[0.0, 0.0]], [np.eye(2)])


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (Mixture([1], [[0, 0]], [[1, 0]]), "singular"),
        (Mixture([1], [[0, 0]], [np.ones((2, 2))]), "singular"),
        (Mixture([1], [[0]], [[1]]), "dimension"),
    ],
)
def test_mixtures_without_a_distance_are_refused(other, word):
    for distance in (l2_distance, dist_aff_l2):
        with pytest.raises(DataError, match=word):
            distance(UNIT, other)
