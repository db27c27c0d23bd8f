"""Splits of rows, and checks of numbers."""

import numpy as np

from identifiable.arrays import hold_out, is_integer, is_real


def test_integers_and_real_numbers_are_checked():
    assert all(is_integer(v, 2) for v in (2, np.int64(5)))
    assert not any(is_integer(v, 2) for v in (1, True, 2.0, "2", None))
    assert all(is_real(v, 0, 1) for v in (0.5, np.float32(0.5)))
    assert is_real(10, 0)
    assert not any(is_real(v, 0, 1) for v in (0, 1, True, np.nan, "0.5", None))


def test_held_out_rows_are_disjoint_from_training_rows():
    train, held = hold_out(50_000, seed=1)
    assert len(held) == 1000
    np.testing.assert_array_equal(np.sort(np.r_[train, held]), np.arange(50_000))
    np.testing.assert_array_equal(held, hold_out(50_000, seed=1)[1])
    assert not np.array_equal(held, hold_out(50_000, seed=2)[1])
    assert len(hold_out(400, 0, fraction=0.2, most=50)[1]) == 50


def test_with_few_rows_both_parts_are_all_rows():
    train, held = hold_out(99, seed=0)
    assert train.tolist() == held.tolist() == list(range(99))
    assert len(hold_out(100, seed=0)[1]) == 10
