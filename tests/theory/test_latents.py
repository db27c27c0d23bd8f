"""`certify_latents` and its tests: calibration on exchangeable latents, power, and the rows that are still needed."""

import re

import numpy as np
import pytest

from identifiable import DataError, Level, Mixture, certify_latents
from identifiable.data import make_pdgmm
from identifiable.theory.pattern_tests import CountedPatterns

SQUARE = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]])


def square(rows, seed, correlation=0.0, weights=None):
    rng = np.random.default_rng(seed)
    covariance = correlation + (1 - correlation) * np.eye(4)
    z = rng.multivariate_normal(np.zeros(4), covariance, size=rows)
    return z * SQUARE[rng.choice(4, size=rows, p=weights)]


def scores(z):
    patterns = CountedPatterns.of(z, z != 0)
    return patterns.frequencies(1, 2).corrected, patterns.distributions(1, 2).corrected


@pytest.mark.parametrize(("rows", "correlation"), [(200, 0.0), (200, 0.5), (2000, 0.5)])
def test_p_values_of_exchangeable_latents_are_not_too_small(rows, correlation):
    p = np.array([scores(square(rows, seed, correlation)) for seed in range(300)])
    for level, most in ((0.05, 27), (0.01, 9)):  # one in a thousand more than that by chance
        assert ((p <= level).sum(0) <= most).all()


def two_gaussians(rows, seed):
    """Return a square whose active latents are mixtures of two Gaussians of very different variances."""
    rng = np.random.default_rng(seed)
    scale = np.where(rng.random((rows, 1)) < 0.8, 0.5, 3.0)
    return rng.normal(size=(rows, 4)) * scale * SQUARE[rng.integers(4, size=rows)]


def test_active_latents_need_not_be_gaussian():
    p = np.array([scores(two_gaussians(1000, seed)) for seed in range(300)])
    assert (p[:, 1] <= 0.05).sum() <= 27


@pytest.mark.parametrize("rows", [200, 2000])
def test_exchangeable_latents_are_not_called_straight(rows):
    found = [certify_latents(square(rows, seed, 0.5), injective=True) for seed in range(100)]
    assert sum(certificate.level == Level.PS for certificate in found) <= 5
    assert sum(bool(certificate.straight) for certificate in found) <= 10


def test_distributions_show_what_frequencies_do_not():
    rng = np.random.default_rng(0)
    z = square(4000, 0)
    assert certify_latents(z, injective=True).exchangeable == ((0, 3), (1, 2))
    z[:, 1] += 0.3 * (z[:, 1] != 0)
    certificate = certify_latents(z, injective=True)
    assert (certificate.level, certificate.straight, certificate.exchangeable) == (Level.PS_UNBENT, (1, 2), ((0, 3),))
    z[:, 0] += 0.6 * z[:, 2] * (z[:, 0] != 0)
    assert certify_latents(z[rng.permutation(4000)], injective=True).level == Level.PS


@pytest.mark.parametrize("settings", [{"n": 10}, {"n": 10, "rho": 75, "k": 0}, {"n": 20}])
def test_patterns_alone_identify_simulated_latents(settings):
    sample = make_pdgmm(5000, random_state=1, **settings)
    source = sample.source.latents
    z = np.where(source.masks.numpy()[sample.component], sample.z - source.rest.numpy(), 0.0)
    certificate = certify_latents(z, injective=True)
    assert (certificate.level, certificate.error_level) == (Level.PS, 0.05)
    unknown = certify_latents(z)
    assert (unknown.level, unknown.if_undecided_hold) == (Level.NONE, Level.PS)


def test_rows_with_all_latents_active_or_latents_in_blocks():
    rng = np.random.default_rng(0)
    lines = rng.normal(size=(1000, 3)) * np.eye(3)[rng.integers(3, size=1000)]
    full = np.vstack([lines, rng.normal(size=(20, 3))])
    assert certify_latents(full, injective=True).level == Level.PS
    blocks = rng.normal(size=(2000, 6)) * np.repeat(np.eye(3)[rng.integers(3, size=2000)], 2, axis=1)
    certificate = certify_latents(blocks, injective=True)
    assert certificate.level == Level.BLOCKS
    assert certificate.blocks == ((0, 1), (2, 3), (4, 5))


def test_a_latent_that_is_never_active_is_in_no_block():
    z = np.insert(square(1000, 0, weights=[0.4, 0.3, 0.2, 0.1]), 2, 0.0, axis=1)
    certificate = certify_latents(z, injective=True)
    assert certificate.level == Level.BLOCKS
    assert certificate.blocks == ((0,), (1,), (3,), (4,))


def test_latents_that_depend_on_each_other_exactly_are_refused():
    z = np.random.default_rng(0).normal(size=(500, 3))
    z[:, 1] = 2 * z[:, 0]
    certificate = certify_latents(z, injective=True)
    assert (certificate.level, certificate["supports"].verdict) == (Level.NONE, "fails")


@pytest.mark.parametrize("weights", [[0.31, 0.25, 0.25, 0.19], [0.28, 0.25, 0.25, 0.22]])
def test_the_number_of_rows_that_would_show_it(weights):
    """The median prediction is within a factor of two of the rows that suffice in half of the data sets."""
    sizes = np.unique(np.geomspace(100, 20_000, 13).astype(int))
    full = [square(20_000, seed, weights=weights) for seed in range(20)]
    shown, predicted = np.zeros(len(sizes)), []
    for z in full:
        for i, rows in enumerate(sizes):
            certificate = certify_latents(z[:rows], injective=True)
            shown[i] += certificate.level == Level.PS
            remedy = certificate["straight"].remedy
            if remedy:
                predicted.append(int(re.search(r"About ([\d,]+) rows", remedy)[1].replace(",", "")))
    needed = sizes[np.argmax(shown >= len(full) / 2)]
    assert needed / 2 < np.median(predicted) < 2 * needed


def test_a_mixture_and_its_rows_agree():
    weights = [0.4, 0.3, 0.2, 0.1]
    mixture = Mixture(weights, np.zeros((4, 4)), np.stack([np.diag(mask) for mask in SQUARE]))
    z, _ = mixture.sample(5000, np.random.default_rng(0))
    assert certify_latents(z, injective=True).level == Level.PS


@pytest.mark.parametrize(
    ("z", "settings", "word"),
    [
        (np.zeros(3), {}, "shape"),
        (np.full((3, 2), np.nan), {}, "finite"),
        (np.zeros((3, 2)), {}, "active"),
        (np.ones((3, 2)), {"active": np.ones((2, 2))}, "active"),
        (np.ones((3, 2)), {"alpha": 1.5}, "alpha"),
    ],
)
def test_unusable_arguments_are_refused(z, settings, word):
    with pytest.raises(DataError, match=word):
        certify_latents(z, **settings)
