"""Densities of noisy latents against latents whose activity is known."""

import numpy as np
import pytest

from identifiable.algorithms.activity import activity_of


@pytest.mark.parametrize("amplitude", ["normal", "exponential", "lognormal"])
def test_probabilities_and_means_for_slabs_of_any_shape(amplitude):
    rng = np.random.default_rng(0)
    active = rng.random((20_000, 2)) < [0.1, 0.5]
    z = getattr(rng, amplitude)(size=active.shape) * active
    scale = z.std(0)
    t, z = z / scale + 0.1 * rng.normal(size=z.shape), z / scale
    found = activity_of(t)
    assert found.width == pytest.approx(0.1, abs=0.02)
    assert found.share == pytest.approx([0.1, 0.5], abs=0.05)
    p = found.active_probability(t)
    assert ((p >= 0) & (p <= 1)).all()
    assert abs(p.mean() - active.mean()) < 0.05
    mean = found.posterior_mean(t)
    assert ((mean - z) ** 2).mean() < ((t - z) ** 2).mean()


def test_far_values_are_active_and_kept():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(5000, 1)) * (rng.random((5000, 1)) < 0.3)
    found = activity_of(z + 0.05 * rng.normal(size=z.shape))
    far = np.array([[-3.0], [3.0]])
    assert found.active_probability(far).min() > 0.999
    np.testing.assert_allclose(found.posterior_mean(far), far, rtol=0.05)
