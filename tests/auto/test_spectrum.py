"""Where variances fall to the level of noise, and in which scale of the columns."""

import numpy as np
import pytest

from identifiable.auto.spectrum import choose_scale, principal_components, spectral_gap


@pytest.mark.parametrize(
    ("variances", "n"),
    [
        ([3, 2, 1, 0.02, 0.01, 0.01], 3),
        ([3, 2, 1, 0.002, 0.001], None),  # two directions of noise need a fall by a million
        ([3, 2, 1, 5e-7], 3),
        ([3, 2, 1, 0.02, 0.01, 0.001], None),  # these differ too much to be noise
        ([1, 1, 1], None),
        (np.r_[np.ones(41), 5e-7, 5e-7], None),  # too deep
    ],
)
def test_a_fall_of_the_variances(variances, n):
    assert spectral_gap(np.array(variances, dtype=float)) == n


@pytest.mark.parametrize("shape", [(2000, 30), (300, 200), (150, 400)])
def test_white_noise_is_recognised_however_small_the_fall(shape):
    rng, (rows, columns) = np.random.default_rng(0), shape
    strength = (0.4 * (1 + (columns / rows) ** 0.5) ** 2 / columns) ** 0.5  # of the weakest latent
    x = rng.normal(size=(rows, 4)) @ (rng.normal(size=(4, columns)) * [[9], [6], [4], [3]])
    variances = principal_components(x * strength + rng.normal(size=shape))[0][: min(shape) - 1]
    assert spectral_gap(variances, *shape) == 4
    assert spectral_gap(principal_components(rng.normal(size=shape))[0][: min(shape) - 1], *shape) is None


def test_columns_keep_their_sizes_if_only_then_noise_is_even():
    rng = np.random.default_rng(0)
    z, lead = rng.laplace(size=(2000, 3)), rng.normal(size=(3, 12)) * np.geomspace(0.02, 1, 12)
    x = 10 * z @ lead + 0.2 * rng.normal(size=(2000, 12))  # some columns hold almost only noise
    assert choose_scale(x).common
    assert "level of noise after 3" in choose_scale(x).reason
    units = np.c_[1000 * rng.normal(size=2000), rng.normal(size=(2000, 5))]  # one column in other units
    assert not choose_scale(units).common
    assert not choose_scale(z @ rng.normal(size=(3, 3))).common
