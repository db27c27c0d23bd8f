"""Refinement of many latents under noise against mixtures whose parameters are known."""

import numpy as np
import pytest

from identifiable.algorithms.mean_field import MeanField, bound, fit, posterior
from identifiable.algorithms.noisy_many import refine_many
from identifiable.metrics import mcc


def sparse(n, rows=3000, columns=None, noise=0.1, share=0.1, seed=0):
    """Exponential latents, active in this share of the rows, their mixing, and noisy rows."""
    rng = np.random.default_rng(seed)
    z = rng.exponential(size=(rows, n)) * (rng.random((rows, n)) < share)
    mixing = rng.normal(size=(n, columns or n)) / np.sqrt(columns or n)
    y = z @ mixing
    return z, mixing, y + noise * rng.normal(size=y.shape)


def test_posterior_of_orthogonal_latents_is_exact():
    """Bayes' rule for each latent alone, without approximation."""
    z, _, _ = sparse(3)
    model = MeanField(np.eye(3), np.zeros(3), 0.3, np.full(3, 0.2), np.ones(3), np.full(3, 0.5))
    y = z + 0.3 * np.random.default_rng(1).normal(size=z.shape)
    q = posterior(y, model, np.zeros_like(y.T), sweeps=1)
    spike = 0.8 * np.exp(-0.5 * y**2 / 0.09) / 0.3
    slab = 0.2 * np.exp(-0.5 * (y - 1) ** 2 / 0.59) / np.sqrt(0.59)
    np.testing.assert_allclose(q.active.T, slab / (spike + slab), rtol=1e-6, atol=1e-12)
    evidence = np.log((spike + slab) / np.sqrt(2 * np.pi)).sum(1).mean()
    assert bound(y, model, q) == pytest.approx(evidence)


def test_the_bound_rises_to_the_true_noise():
    z, mixing, y = sparse(20, columns=40)
    first = MeanField.of_latents(z, z != 0, mixing * 1.2, np.zeros(40), 0.3)
    found, q = fit(y, first, z.T, least_noise=1e-3)
    assert bound(y, found, q) > bound(y, first, posterior(y, first, z.T))
    assert found.noise == pytest.approx(0.1, rel=0.05)


def test_a_start_that_is_nearly_right_becomes_the_best_affine_map():
    z, mixing, y = sparse(40, noise=0.02)
    error = 0.3 * np.random.default_rng(1).normal(size=mixing.shape)
    start = np.c_[np.linalg.inv(mixing + 0.02 * error).T, np.zeros(40)]
    ones = np.c_[y, np.ones(len(y))]
    best = mcc(z, ones @ np.linalg.lstsq(ones, z, rcond=None)[0])
    found = refine_many(y, start)
    assert found.gain > 0
    assert mcc(z, y @ found.rows[:, :-1].T) > max(best - 0.01, mcc(z, y @ start[:, :-1].T))


def test_gaussian_data_and_few_rows_establish_nothing():
    y = np.random.default_rng(0).normal(size=(2000, 35))
    assert not refine_many(y, np.eye(35, 36)).inactive.any()
    assert refine_many(y[:300], np.eye(35, 36)).gain == 0
