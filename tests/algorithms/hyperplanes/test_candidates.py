"""Candidates for hyperplanes: genuine rows are kept, combinations of rows are not."""

import numpy as np
import pytest

from identifiable.algorithms.hyperplanes.candidates import Candidates

TURN = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
ROWS = np.c_[TURN, np.zeros(3)]  # the true rows


@pytest.fixture
def candidates():
    rng = np.random.default_rng(0)
    z = rng.normal(4, 1, size=(4000, 3)) * (rng.random((4000, 3)) < [0.5, 0.5, 0.4])
    return Candidates(z / z.std(0) @ TURN, rng)


def test_near_rows_are_kept_as_exact_ones(candidates):
    rng = np.random.default_rng(1)
    assert candidates.add_candidates(ROWS[:2] + 0.01 * rng.normal(size=(2, 4))) == 2
    assert not candidates.solved
    assert candidates.add_candidates(np.vstack([ROWS, ROWS + 0.01 * rng.normal(size=(3, 4))])) == 1
    assert candidates.solved
    rows = np.abs([plane.normal for plane in candidates.kept] @ TURN.T)
    np.testing.assert_allclose(rows[rows.argmax(1).argsort()], np.eye(3), atol=1e-9)
    shares = [plane.share for plane in candidates.kept]
    assert shares == sorted(shares, reverse=True)


def test_a_combination_of_rows_is_kept_as_a_subspace(candidates):
    assert candidates.add_candidates(ROWS[:1] - ROWS[1:2]) == 0
    (null,) = candidates.unsplit
    assert null.shape == (4, 2)
    np.testing.assert_allclose(ROWS[2] @ null, 0, atol=1e-9)
    candidates.add_subspace(null @ np.array([[1.0, 1.0], [1.0, -1.0]]))  # the same span
    assert len(candidates.unsplit) == 1
    candidates.add_subspace(ROWS[[0, 2]].T)
    assert len(candidates.unsplit) == 2


def test_rows_of_no_hyperplane_and_of_known_blocks_are_refused(candidates):
    assert candidates.add_candidates(ROWS[:2] + 30 * np.eye(4)[3]) == 0
    candidates.blocks.append(ROWS[[0, 1]].T)
    assert candidates.add_candidates(ROWS) == 1
