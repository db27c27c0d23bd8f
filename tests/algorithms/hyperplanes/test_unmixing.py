"""Unmixing of rows in any scale, exact and under noise."""

import numpy as np
import pytest

from identifiable.algorithms.hyperplanes import refine, sample_rows, unmix
from identifiable.metrics import mcc


def principal_components(noise=0.0, rows=5000):
    rng = np.random.default_rng(0)
    z = rng.normal(1, 1, size=(rows, 3)) * (rng.random((rows, 3)) < 0.5)
    x = z @ (rng.normal(size=(3, 3)) * [1, 10, 1]) + noise * rng.normal(size=(rows, 3))
    return (x - x.mean(0)) @ np.linalg.eigh(np.cov(x.T))[1], z


def test_exact_rows_are_unmixed_exactly():
    y, z = principal_components()
    found = unmix(y, seed=0)
    assert (found.verified, found.noise) == (3, 0.0)
    assert mcc(z, found.latents(y)) > 1 - 1e-9
    np.testing.assert_allclose(found.latents(y).std(0), 1)
    assert refine(found, y, seed=0) is found


def test_refinement_recovers_the_noise():
    y, z = principal_components(noise=0.1)
    start = unmix(y, seed=0, noisy=False)
    assert (start.verified, start.noise) == (0, 0.0)
    found = refine(start, y, seed=0)
    assert found.noise == pytest.approx(0.1, rel=0.05)
    assert mcc(z, found.latents(y)) >= mcc(z, start.latents(y)) - 1e-3
    np.testing.assert_allclose(found.latents(y).std(0), 1)
    np.testing.assert_array_equal(unmix(y, seed=0).rows, found.rows)


def test_many_rows_are_sampled():
    y = np.arange(50_000.0)[:, None]
    some = sample_rows(y, seed=1)
    assert len(some) == len(np.unique(some)) == 20_000
    assert (np.diff(some[:, 0]) > 0).all()
    assert sample_rows(some, seed=2) is some
