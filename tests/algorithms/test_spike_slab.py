"""Spikes and slabs of single latents, and the repair of rows gone wrong."""

import numpy as np
import pytest

from identifiable.algorithms.spike_slab import (
    needs_repair,
    pattern_mixture,
    patterns_of,
    repair,
    slabs,
    spike_width,
    uneven,
)
from identifiable.metrics import mcc


def latents(seed=1, shift=3.0):
    """Latents (6000, 6) of which three are active in every row, in 20 patterns."""
    rng = np.random.default_rng(seed)
    patterns = rng.random((20, 6)).argsort(1) < 3
    return rng.normal(shift, 1, size=(6000, 6)) * patterns[rng.integers(20, size=6000)]


@pytest.mark.parametrize("noise", [0, 0.05])
def test_repair_of_a_latent_mixed_with_the_sum_of_all(noise):
    z = latents()
    mixed = z @ (np.eye(6) + 0.6 * np.outer(np.ones(6), np.eye(6)[2]))
    mixed += noise * np.random.default_rng(2).normal(size=z.shape)
    rows = repair(mixed)
    assert abs(np.corrcoef(mixed[:, 2], z[:, 2])[0, 1]) < 0.9
    assert mcc(z, mixed @ rows[:, :6].T + rows[:, 6]) > 0.995
    np.testing.assert_array_equal(np.delete(rows, 2, 0), np.delete(np.eye(6, 7), 2, 0))


def test_right_latents_are_left_alone():
    z, right = latents(shift=1.0), np.eye(6, 7)
    np.testing.assert_array_equal(repair(z), right)
    wrong = right.copy()
    wrong[2, :6] = 1.0
    assert not needs_repair(z, right, wrong)
    assert not needs_repair(z, wrong, right)  # the other unmixing is likelier
    dense = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    assert needs_repair(z, wrong, np.c_[dense, -dense @ z.mean(0)])  # likelier than the other, and row 2 is wrong


def test_uneven_activity():
    assert not uneven(np.array([0.5, 0.45, 0.5]))
    assert uneven(np.array([0.3, 0.3, 0.55]))
    assert uneven(np.array([0.7, 0.7, 0.8]))


def test_slabs_of_known_columns():
    rng = np.random.default_rng(0)
    active = rng.random((20_000, 2)) < [0.3, 0.6]
    t = np.where(active, rng.normal([4, -2], [1, 0.5], size=(20_000, 2)), 0.05 * rng.normal(size=(20_000, 2)))
    share, mean, size = slabs(t, 0.1)
    np.testing.assert_allclose(share, [0.3, 0.6], atol=0.02)
    np.testing.assert_allclose(mean, [4, -2], atol=0.05)
    np.testing.assert_allclose(size, [1, 0.5], atol=0.05)


@pytest.mark.parametrize("width", [0.0, 1e-3, 0.05])
def test_spike_width_is_that_of_the_inactive_rows(width):
    rng = np.random.default_rng(0)
    z = np.where(rng.random(20_000) < 0.5, rng.normal(1, 1, size=20_000), width * rng.normal(size=20_000))
    assert spike_width(z) == pytest.approx(width, rel=0.3, abs=1e-8)


def test_patterns_and_their_moments():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(100, 3)) * np.repeat([[1, 1, 0], [0, 0, 1], [1, 1, 1]], [60, 38, 2], axis=0)
    patterns, members = patterns_of(z != 0)
    assert patterns.tolist() == [[True, True, False], [False, False, True], [True, True, True]]
    assert [rows.tolist() for rows in members] == [list(range(60)), list(range(60, 98)), [98, 99]]
    mixture, frequent = pattern_mixture(z, patterns, members)
    assert frequent.tolist() == [True, True, False]
    np.testing.assert_allclose(mixture.weights, np.array([60, 38]) / 98)
    np.testing.assert_allclose(mixture.means[1], z[60:98].mean(0))
    np.testing.assert_allclose(mixture.covariances[0], np.cov(z[:60].T, ddof=0))
