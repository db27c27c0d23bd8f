"""What a noisy model shows of inactivity, on mixtures whose parameters are known."""

import numpy as np
import pytest

from identifiable.algorithms.inactivity import (
    Readout,
    blocks_of_inactive,
    blocks_of_posteriors,
    inactive_up_to_noise,
)

ROWS = 10_000


def readout(z, active, noise=0.1, seed=0, patterns=None):
    """Latents z (N, n) that are zero where not active, with noise; and the mixture of these or other patterns."""
    seen = z * active + noise * np.random.default_rng([seed, 1]).normal(size=z.shape)
    claimed = active if patterns is None else patterns
    masks, counts = np.unique(claimed, axis=0, return_counts=True)
    covariance = np.cov(z.T, ddof=0) + 1e-9 * np.eye(z.shape[1])
    covariances = [covariance * np.outer(m, m) + noise**2 * np.eye(len(m)) for m in masks]
    return Readout(seen, masks, counts / len(z), z.mean(0) * masks, np.array(covariances))


def activity(sizes, share=0.1, seed=0):
    """Active or not (ROWS, n) for groups of these sizes, each inactive with this probability."""
    return np.random.default_rng([seed, 2]).random((ROWS, len(sizes))).repeat(sizes, 1) > share


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_groups_of_any_size_are_found_whatever_their_axes(noise):
    z = np.random.default_rng(0).normal(size=(ROWS, 6)) @ np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    read = readout(z, activity([2, 3, 1]), noise)
    assert blocks_of_inactive(read) == ((0, 1), (2, 3, 4))
    np.testing.assert_array_equal(inactive_up_to_noise(read, blocks_of_inactive(read))[:5], True)


def test_latents_with_correlated_patterns_are_no_block():
    """Correlation .4 of the patterns, and .7 of the active values: the rows with one of them identify both."""
    rng = np.random.default_rng(0)
    common, own = rng.random((2, ROWS, 1)) < 0.3, rng.random((ROWS, 2)) < 0.3
    z = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], size=ROWS)
    assert blocks_of_inactive(readout(z, ~(common[0] | own))) == ()
    assert blocks_of_inactive(readout(z, activity([1, 1]))) == ()


def test_a_model_that_groups_independent_latents_is_not_believed():
    """Its patterns are fitted to chance; the rows themselves are uncorrelated."""
    found = 0
    for seed in range(40):
        z = np.random.default_rng(seed).normal(size=(ROWS, 4))
        found += bool(
            blocks_of_inactive(readout(z, activity([1] * 4, seed=seed), patterns=activity([2, 2]), seed=seed))
        )
    assert found <= 7  # of 40 at a level of .05: more than that in one of 1000 trials


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_latents_with_a_spike_are_inactive_and_others_are_not(share):
    rng = np.random.default_rng(0)
    z = np.c_[rng.normal(size=(ROWS, 2)), rng.laplace(size=ROWS), rng.uniform(-1.7, 1.7, size=ROWS)]
    spikes = activity([1] * 4, share)
    always = spikes | (np.arange(4) > 0)
    read = readout(z, always, patterns=spikes)  # the model claims that all four are inactive at times
    np.testing.assert_array_equal(inactive_up_to_noise(read, ()), [True, False, False, False])


def test_a_pair_shows_what_neither_latent_shows_alone():
    read = readout(np.random.default_rng(0).normal(size=(ROWS, 2)), activity([2]), noise=0.2)
    assert not inactive_up_to_noise(read, ()).any()
    assert inactive_up_to_noise(read, ((0, 1),)).all()


def test_a_pair_that_is_rarely_inactive_is_found():
    read = readout(np.random.default_rng(0).normal(size=(ROWS, 4)), activity([2, 2], 0.03))
    assert blocks_of_inactive(read) == ((0, 1), (2, 3))


def posteriors(z, width):
    """Posterior of a spike of this width at zero, of a share of a tenth, under a slab of unit variance."""
    spike, slab = (share * np.exp(-0.5 * (z / s) ** 2) / s for share, s in ((0.1, width), (0.9, 1.0)))
    return spike / (spike + slab)


def test_a_pair_that_is_hidden_at_times_is_found():
    """Where something hides it, its position is known with eight times the usual noise, so that its spike is wide."""
    rng = np.random.default_rng(0)
    hidden = rng.random((ROWS, 1)) < 0.3
    noise = 0.05 * np.c_[np.where(hidden, 8, 1).repeat(2, 1), np.ones((ROWS, 2))]
    z = rng.normal(size=(ROWS, 4)) * activity([2, 2]) + noise * rng.normal(size=(ROWS, 4))
    r = np.c_[posteriors(z[:, :2], 0.1), posteriors(z[:, 2:], 0.05)]
    seen = r.var(0) / (r.mean(0) * (1 - r.mean(0)))
    assert seen[:2].max() < 0.5 < seen[2:].min()
    assert blocks_of_posteriors(r, z) == ((0, 1), (2, 3))


@pytest.mark.parametrize("width", [0.1, 0.2, 0.4])
def test_dependent_latents_that_are_always_active_are_no_block(width):
    """The model claims a spike; their sizes are correlated."""
    z = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], size=ROWS)
    assert blocks_of_posteriors(posteriors(z, width), z) == ()
