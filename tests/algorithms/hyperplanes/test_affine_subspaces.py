"""Affine subspaces of samples with one pattern of activity, and their null spaces."""

import numpy as np
import pytest
import torch

from identifiable.algorithms.hyperplanes.affine_subspaces import (
    Moments,
    Subspace,
    code_subspaces,
    is_block,
    known_subspaces,
    narrow,
    neighbour_subspaces,
    sparse_directions,
)
from identifiable.algorithms.hyperplanes.planes import Hyperplane, WhitenedData

EYE = np.eye(4, 5)


def data(masks, seed=0):
    """Rows of latents at a distance of 4 from their inactive value, 0, in these patterns of activity."""
    rng = np.random.default_rng(seed)
    z = rng.normal(4, 1, size=(4000, 4)) * np.array(masks)[rng.integers(len(masks), size=4000)]
    return WhitenedData(z, rng)


def planes(*latents):
    return [Hyperplane(EYE[i, :4], 0.0, 1e-5, 0.5, 1e4) for i in latents]


def spans(null, rows):
    """Whether the span of functionals null (5, m) is that of rows of latents."""
    q = np.linalg.qr(null)[0]
    return q.shape[1] == len(rows) and np.allclose(np.linalg.norm(EYE[rows] @ q, axis=1), 1, atol=1e-6)


PAIRS = [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]]


def test_neighbours_find_the_subspaces_of_all_patterns():
    found = neighbour_subspaces(data(PAIRS), np.random.default_rng(0), 24)
    inactive = [tuple(np.flatnonzero(np.array(mask) == 0)) for mask in PAIRS]
    assert all(any(spans(null, list(rows)) for null in found) for rows in inactive)
    smooth = WhitenedData(np.random.default_rng(1).normal(size=(500, 4)), np.random.default_rng(0))
    assert neighbour_subspaces(smooth, np.random.default_rng(0), 24) == []
    few = WhitenedData(smooth.x[:30], np.random.default_rng(0))
    assert neighbour_subspaces(few, np.random.default_rng(0), 24) == []


def test_codes_of_known_rows_isolate_unknown_ones():
    found = code_subspaces(data(PAIRS), planes(0, 1))
    assert all(subspace.null.shape[1] == 2 for subspace in found)
    assert any(spans(s.null, [0, 2]) and s.known.tolist() == [True, False] for s in found)


def test_known_subspaces_leave_out_null_spaces_without_an_unknown_row():
    nulls = [EYE[[0, 1]].T, EYE[[1, 2]].T, EYE[[3]].T]
    found = known_subspaces(nulls, planes(0, 1))
    assert [s.known.tolist() for s in found] == [[False, True], [False, False]]
    assert [s.null.shape[1] for s in found] == [2, 1]
    assert len(known_subspaces(nulls, [])) == 3


def test_narrowing_isolates_the_unknown_row():
    first = Subspace(EYE[[0, 2]].T, np.array([True, False]))
    second = Subspace(np.linalg.qr(EYE[[1, 2]].T @ [[1, 1], [1, -1]])[0], np.array([False, True]))
    found = narrow(first, [first, second], np.random.default_rng(0))
    assert spans(found.null, [2])
    assert not found.known.any()
    assert narrow(first, [first], np.random.default_rng(0)) is first


def test_moments_are_weighted_second_moments():
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(50, 3)), rng.random((50, 2))
    expected = np.einsum("nm,ni,nj->mij", weights, x, x) / 50
    np.testing.assert_allclose(Moments(torch.tensor(x))(torch.tensor(weights)), expected)


@pytest.mark.parametrize(("masks", "block"), [(PAIRS, False), ([[1, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 1]], True)])
def test_sparse_directions_are_rows_except_in_a_block(masks, block):
    """Latents 0 and 1 are active together in the second case: no direction of their span is sparser."""
    rows, null = data(masks), EYE[[0, 1]].T @ [[1.0, 2.0], [-1.0, 1.0]]
    directions = sparse_directions(rows, null, torch.Generator().manual_seed(0))
    assert is_block(rows, null, directions) == block
    if not block:
        cosines = np.abs(directions @ EYE[:2].T) / np.linalg.norm(directions, axis=1)[:, None]
        assert (cosines.max(0) > 1 - 1e-6).all()
    np.testing.assert_array_equal(sparse_directions(rows, null[:, :1], torch.Generator()), null[:, :1].T)
