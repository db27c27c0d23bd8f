"""Supports of components: their common point, a shared basis, and how components differ where they meet."""

from functools import partial

import numpy as np
import pytest

from identifiable import theory
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.theory.supports import (
    adapted_basis,
    common_point,
    in_given_coordinates,
    pair_difference,
    standard_basis,
    supports_of,
)
from theory.subspaces import invertible, lines, normals, on_axes, same_directions

SEEDS = range(3)
certify = partial(theory.certify, injective=True)


def difference(mixture, i=0, j=1):
    return pair_difference(supports_of(mixture, 1e-5), i, j)


def test_the_difference_of_two_lines_by_hand():
    mixture = lines(np.eye(2), [[3.0, 0.0], [0.0, 1.0]], [2.0, 0.5])
    assert difference(mixture) == pytest.approx(abs(np.log((1 + 9 / 4) / (1 + 4))))


def test_the_difference_on_a_common_line_by_hand():
    """Planes (x, y) and (y, z) with precisions a and b of y on the line they share, centred on it."""

    def planes(a, b, mean=0.0):
        first, second = np.diag([1.0, 1 / a, 0.0]), np.diag([0.0, 1 / b, 1.0])
        return Mixture([0.5, 0.5], [[0, 0, 0], [0, mean, 0]], [first, second])

    assert difference(planes(2.0, 6.0)) == pytest.approx(np.log(3))
    assert difference(planes(2.0, 2.0)) == pytest.approx(0, abs=1e-12)
    assert difference(planes(2.0, 2.0, mean=1.0)) > 0.1


def test_planes_that_agree_on_their_line_only_do_not_differ():
    """The covariances differ, but both distances are y² where x = z = 0."""
    tilted = np.array([[2.0, 1.0, 0.0], [1.0, 1.5, 0.0], [0.0, 0.0, 0.0]])
    precision = np.linalg.inv(tilted[:2, :2])[1, 1]
    other = np.diag([0.0, 1 / precision, 7.0])
    assert difference(Mixture([0.5, 0.5], np.zeros((2, 3)), [tilted, other])) == pytest.approx(0, abs=1e-12)
    assert difference(Mixture([0.5, 0.5], np.zeros((2, 3)), [tilted, 2 * other])) == pytest.approx(np.log(2))


def tilted_planes():
    """Return two planes at small angles that share no line; most mass is round, so that the angles stay small."""
    first = np.diag([1.0, 1, 0, 0])
    turn = np.cos(0.4) * np.eye(4) + np.sin(0.4) * np.eye(4)[[2, 3, 0, 1]] * np.array([1, 1, -1, -1])
    return Mixture([0.05, 0.05, 0.9], np.zeros((3, 4)), [first, turn.T @ first @ turn, np.eye(4)])


@pytest.mark.parametrize(
    "mixture",
    [
        Mixture([0.5, 0.5], np.zeros((2, 4)), np.array([[1, 1, 0, 0], [0, 0, 1, 1]])),  # planes that meet in a point
        tilted_planes(),
        lines([[1, 0], [1, 0], [0, 1]], [[1.0, 0], [-1.0, 0], [0.0, 0]], [1.0, 1.0, 2.0]),  # on one line
        lines([[1, 0, 0], [0, 1, 0]], [[0.0, 0, 0], [0, 0, 1.0]], [1.0, 1.0]),  # lines that do not meet
    ],
)
def test_supports_that_are_equal_or_meet_in_fewer_dimensions_are_not_compared(mixture):
    assert difference(mixture) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_common_point_is_in_all_supports_and_the_shortest(seed):
    rng = np.random.default_rng(seed)
    offset = rng.normal(size=4)
    mixture = on_axes([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]], rng)
    moved = Mixture(mixture.weights, mixture.means + offset, mixture.covariances)
    t, gap = common_point(supports_of(moved, 1e-5))
    assert gap == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(t, [0, *offset[1:]], atol=1e-9)  # latent 0 is active in every component
    apart = lines([[1, 0, 0], [0, 1, 0]], [[0.0, 0, 0], [0, 0, 1.0]], [1.0, 1.0])
    assert common_point(supports_of(apart, 1e-5))[1] > 0.5


def test_ranks_and_components_without_weight():
    mixture = on_axes([[1, 1, 0], [0, 0, 1], [1, 1, 1]], np.random.default_rng(0))
    s = supports_of(Mixture([0.5, 0.5, 0.0], mixture.means, mixture.covariances), 1e-5)
    assert s.ranks.tolist() == [2, 1]
    assert s.names.tolist() == [0, 1]
    assert s.largest_inactive < 1e-6 < 1e-2 < s.smallest_active
    found = standard_basis(s)
    assert found.misfit < 1e-9
    assert found.codes.tolist() == [[True, False], [True, False], [False, True]]


def test_directions_are_unit_columns_in_the_order_of_their_largest_coordinates():
    s = supports_of(lines([[3, 1, 0], [-1, 0, -2]], np.zeros((2, 3)), [1.0, 2.0]), 1e-5)
    columns, places = in_given_coordinates(s, adapted_basis(s))
    np.testing.assert_allclose(np.linalg.norm(columns, axis=0), 1)
    largest = np.abs(columns).argmax(0)
    assert largest.tolist() == sorted(largest)
    assert (columns[largest, range(3)] > 0).all()
    assert same_directions(columns[:, places], np.array([[3, 1, 0], [1, 0, 2.0]]).T)


def test_a_single_point_is_refused():
    with pytest.raises(DataError, match="point"):
        supports_of(Mixture([1.0], [[1.0, 2.0]], np.zeros((1, 2))), 1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_dependent_subspaces_share_no_basis(seed):
    a, b, c, d = np.random.default_rng(seed).normal(size=(4, 3))
    pencil = normals([(a, b), (a, c), (a, b + c)], seed)  # three planes through one line
    assert certify(pencil)["3.6"].verdict == "fails"
    assert certify(normals([(a, b), (b, c), (c, a), (d, a + b + c)], seed))["3.6"].verdict == "fails"
    line_in_no_axis = normals([(a,), (b, c), (a + b,)], seed)
    assert certify(line_in_no_axis)["3.6"].verdict == "fails"


@pytest.mark.parametrize("seed", SEEDS)
def test_any_family_of_subsets_of_any_basis_is_recognised(seed):
    """The basis spans every support by some of its columns, and the blocks are those of the codes."""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        n, j = int(rng.integers(2, 7)), int(rng.integers(1, 8))
        codes = rng.random((j, n)) < 0.5
        codes[0] |= ~codes.any(0)  # every latent is active somewhere
        codes = codes[codes.any(1)]
        if codes.all():  # nothing is singular
            continue
        plain = on_axes(codes, rng)
        turned = plain.pushforward(invertible(n, rng), rng.normal(size=n))
        first, other = certify(plain), certify(turned)
        assert first["3.6"].verdict == other["3.6"].verdict == "holds"
        assert first.level == other.level
        assert sorted(map(len, first.blocks)) == sorted(map(len, other.blocks))
        assert sorted(map(len, first.pure)) == sorted(map(len, other.pure))
        for covariance, code in zip(turned.covariances, codes, strict=True):
            values, vectors = np.linalg.eigh(covariance)
            off = vectors[:, values < 1e-9 * values[-1]]
            assert (np.linalg.norm(off.T @ other.basis, axis=0) < 1e-6).sum() == code.sum()
