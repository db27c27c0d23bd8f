"""Comon's theorem: what the tests on new rows let it say."""

import numpy as np
import pytest
from scipy.stats import norm

from identifiable.theory import Level
from identifiable.theory.comon import certify_independent, check_dependence, log_ratio, rank_correlations

RNG = np.random.default_rng(0)
INDEPENDENT = rank_correlations([RNG.laplace(size=(1500, 3)), RNG.laplace(size=(1500, 3))])
SEPARATED = np.full((3, 3), 9.0)
SHARED = RNG.lognormal(size=(2000, 1))


@pytest.mark.parametrize(
    ("log_ratios", "level", "blocks"),
    [
        ((80, 50, 20), Level.PS, ((0,), (1,), (2,))),
        ((80, 50, -2), Level.PS, ((0,), (1,), (2,))),
        ((80, 2, -2), Level.BLOCKS, ((0,), (1, 2))),
        ((2, 80, -2), Level.BLOCKS, ((0, 2), (1,))),
        ((0, -1, -2), Level.AT, ((0, 1, 2),)),
    ],
)
def test_latents_that_may_be_gaussian_form_a_block(log_ratios, level, blocks):
    found = certify_independent(np.array(log_ratios, dtype=float), SEPARATED, INDEPENDENT)
    assert (found.level, found.blocks, found.if_undecided_hold) == (level, blocks, Level.PS)


def test_the_remedy_names_more_rows_where_a_latent_nearly_passes():
    near, far = (certify_independent(np.array(r), SEPARATED, INDEPENDENT) for r in ([9.0, 3, 2], [9.0, -3, -4]))
    assert "rows instead of 3000" in near["non-Gaussian"].remedy
    assert "no number" in far["non-Gaussian"].remedy


def test_pairs_that_a_rotation_leaves_alike_form_a_block():
    separation = np.array([[0, 9, 1], [9, 0, 9], [1, 9, 0]], dtype=float)
    found = certify_independent(np.full(3, 50.0), separation, INDEPENDENT)
    assert (found.level, found.blocks) == (Level.BLOCKS, ((0, 2), (1,)))
    assert "rows instead of 3000" in found["separation"].remedy


@pytest.mark.parametrize(
    ("z", "verdict"),
    [
        (RNG.exponential(size=(2000, 3)), "holds"),
        (RNG.normal(size=(2000, 3)) * SHARED, "fails"),
        (np.c_[RNG.normal(size=(2000, 1)), RNG.normal(size=(2000, 2)) * [1, 0] + RNG.normal(size=(2000, 2))], "holds"),
        (RNG.laplace(size=(30, 3)), "inconclusive"),
        (RNG.laplace(size=(30, 1)), "holds"),
    ],
)
def test_dependence_of_sizes_is_judged(z, verdict):
    assert check_dependence(rank_correlations([z])).verdict == verdict


def test_nothing_follows_for_dependent_latents():
    dependent = rank_correlations([RNG.laplace(size=(2000, 3)) * SHARED])
    found = certify_independent(np.array([80.0, 50.0, 20.0]), SEPARATED, dependent)
    assert (found.level, found.blocks, found.if_undecided_hold) == (Level.NONE, (), Level.NONE)


def test_split_likelihood_ratios_of_gaussian_rows_keep_the_level():
    """A density that was fitted to other rows gains over the best Gaussian by log(1 / α) with probability α at most."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(100, 1000))
    heavy = 0.9 * norm.pdf(z) + 0.1 * norm.pdf(z, scale=2)
    assert np.mean(log_ratio(np.log(heavy), z) > np.log(20)) < 0.05
