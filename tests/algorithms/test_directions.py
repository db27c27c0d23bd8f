"""Directions that x explains: what columns share, whatever the coordinates of the latents and the noise of a column."""

import numpy as np
import pytest
import torch

from identifiable.algorithms.directions import directions, shared_information


def loadings(seed, n=3, columns=10):
    """Return loadings (columns, n), noise standard deviations, and a covariance of the latents."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    return rng.normal(size=(columns, n)), rng.uniform(0.2, 0.4, size=columns), root @ root.T + np.eye(n)


def found(L, noise, covariance):
    return directions(*at(L, noise, covariance), covariance, [1] * len(L))


def at(L, noise, covariance):
    return torch.as_tensor(L / noise[:, None])[None], torch.as_tensor(np.linalg.inv(covariance))[None]


@pytest.mark.parametrize("seed", range(3))
def test_a_column_counts_with_the_variance_that_others_leave_open(seed):
    """Without curvature, it is the inverse of a diagonal entry of the precision of x."""
    L, noise, _ = loadings(seed)
    precision = np.linalg.inv(L @ L.T + np.diag(noise**2))
    expected = (L.T * np.diag(precision)) @ L
    np.testing.assert_allclose(shared_information(*at(L, noise, np.eye(3)), [1] * len(L))[0], expected)


@pytest.mark.parametrize("seed", range(3))
def test_shares_do_not_change_with_an_affine_map_of_the_latents(seed):
    L, noise, covariance = loadings(seed)
    M = np.random.default_rng(seed).normal(size=(3, 3))
    one, other = found(L, noise, covariance), found(L @ np.linalg.inv(M), noise, M @ covariance @ M.T)
    np.testing.assert_allclose(other.shares, one.shares)
    np.testing.assert_allclose(np.abs(other.vectors.T @ M @ covariance @ one.vectors), np.eye(3), atol=1e-8)


def test_vectors_have_unit_variance_and_the_shares():
    L, noise, covariance = loadings(0)
    result = found(L, noise, covariance)
    np.testing.assert_allclose(result.vectors.T @ covariance @ result.vectors, np.eye(3), atol=1e-8)
    unit = found(L @ np.linalg.inv(result.vectors.T), noise, np.eye(3))
    np.testing.assert_allclose(unit.shares, result.shares)
    np.testing.assert_allclose(unit.of_latents, result.shares)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kept", [0.1, 0.9])
def test_spare_latents_that_take_over_the_noise_of_a_column_are_not_in_use(seed, kept):
    """The distribution of x is the same, whichever share of their noise three of the columns keep."""
    L, noise, covariance = loadings(seed)
    rng = np.random.default_rng(seed)
    taken = np.eye(10)[:, rng.permutation(10)[:3]] * (noise * np.sqrt(1 - kept))[:, None]
    left = noise * np.sqrt(1 - (1 - kept) * np.isin(np.arange(10), np.flatnonzero(taken.any(1))))
    M = rng.normal(size=(6, 6))
    prior = np.block([[covariance, np.zeros((3, 3))], [np.zeros((3, 3)), np.eye(3)]])
    spare = found(np.c_[L, taken] @ np.linalg.inv(M), left, M @ prior @ M.T)
    without = found(L, noise, covariance)
    assert (spare.used, without.used) == (3, 3)
    np.testing.assert_allclose(spare.shares[:3], without.shares, atol=0.02)
    assert spare.shares[3:].max() <= 0.5 + 1e-9
    assert repr(spare).startswith("Directions(3 of 6 in use. Share explained by x: ")


def test_levels_of_a_category_are_one_column():
    """One column alone tells of one direction half a bit at most, however many outputs it has."""
    A = torch.as_tensor(np.array([[[9.0, 0.0], [9.0, 0.0], [0.0, 4.0], [0.0, 4.0]]]))
    one, separate = (directions(A, torch.eye(2)[None].double(), np.eye(2), sizes) for sizes in ([2, 1, 1], [1] * 4))
    assert one.of_latents.round(1).tolist() == [0.5, 0.9]
    assert (one.used, separate.used) == (1, 2)


def test_a_decoder_that_ignores_the_latents_uses_none():
    result = directions(torch.zeros(4, 3, 15), torch.eye(15).repeat(4, 1, 1), np.eye(15), [1, 1, 1])
    assert result.used == 0
    np.testing.assert_array_equal(result.of_latents, 0)
    assert repr(result).endswith("0.00, and 3 smaller)")


def test_the_cluster_of_x_explains_what_lies_between_the_clusters():
    """Within a cluster the decoder is constant; clusters differ in the first latent only."""
    precision = torch.diag(torch.tensor([10.0, 1.0])).repeat(4, 1, 1)
    np.testing.assert_allclose(directions(torch.zeros(4, 3, 2), precision, np.eye(2), [1, 1, 1]).shares, [0.9, 0])
