"""Models that describe held-out rows are accepted, others are not."""

import numpy as np
import pytest

from identifiable import Mixture
from identifiable.estimators.pdgmm.goodness import Goodness
from upset_latents import PAIRS, WIDTH

MIXTURE = Mixture(np.full(10, 0.1), PAIRS * 0.5, PAIRS * 1.0)


def compared(rows, width=WIDTH, seed=0):
    return Goodness.of(rows, MIXTURE, width, np.random.default_rng(seed))


@pytest.mark.parametrize("rows", [100, 1000])
def test_the_right_model_is_accepted(rows):
    """With the small errors of estimates, in all of 20 data sets: chance is allowed for on top of the limits."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        z = MIXTURE.sample(rows, rng)[0]
        found = compared(z + WIDTH * rng.normal(size=z.shape), seed=seed)
        assert found.check.verdict == "holds"
        assert found.rows == rows


def test_a_latent_of_another_distribution_is_named():
    rng = np.random.default_rng(0)
    z = MIXTURE.sample(1000, rng)[0]
    active = z[:, 2] != 0
    z[active, 2] = rng.exponential(2.0, size=active.sum())
    found = compared(z)
    assert found.failing == (2,)
    assert found.check.verdict == "fails"
    assert "latent 2" in found.check.sentence


def test_dependence_that_no_single_latent_shows_is_noticed():
    """The latents of each row come from different rows: their distributions are right, the patterns are not."""
    rng = np.random.default_rng(0)
    z = rng.permuted(MIXTURE.sample(1000, rng)[0], axis=0)
    found = compared(z)
    assert found.failing == ()
    assert found.auc > found.largest_auc
    assert found.check.verdict == "fails"


def test_a_latent_that_is_never_active_is_not_compared():
    mixture = Mixture([1.0], [[0.0, 1.0]], [[0.0, 1.0]])
    rng = np.random.default_rng(0)
    rows = np.c_[0.3 * rng.normal(size=500), rng.normal(1, 1, size=500)]
    assert Goodness.of(rows, mixture, WIDTH, rng).distances[0] == 0
