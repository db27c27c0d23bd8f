"""Simulated data of the papers: published summary values, options and counterexamples."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from identifiable.data import DIFFICULTIES, make_gmm, make_pdgmm, make_segments, make_tcl
from identifiable.metrics import mcc, r2


def test_masks_have_the_share_rho():
    for rho, ones in ((50, 5), (75, 7), ("1 var", 1)):
        latents = make_pdgmm(10, n=10, rho=rho, random_state=1).source.latents
        assert (latents.masks.sum(1) == ones).all()
        assert len(latents.masks) <= 50
        assert len(torch.unique(latents.masks, dim=0)) == len(latents.masks)


@pytest.mark.parametrize("delta", [0.0, 1.0, 3.0])
def test_inactive_value_is_delta_standard_deviations_from_the_mean(delta):
    latents = make_pdgmm(10, n=10, k=3, delta=delta, random_state=0).source.latents
    transfer = latents.transfer.numpy()
    exact_sd = np.sqrt((transfer**2).sum(0))  # of z = ε (I - A)^-1
    np.testing.assert_allclose(latents.rest.numpy() / exact_sd, delta, atol=0.15)


@pytest.mark.parametrize("sizes", [(2, 2, 2, 2, 2), (1, 1, 2, 6)])
def test_blocks_are_always_active_together(sizes):
    masks = make_pdgmm(10, blocks=sizes, random_state=0).source.latents.masks.numpy()
    edges = np.cumsum((0, *sizes))
    for a, b in pairwise(edges):
        assert (masks[:, a:b] == masks[:, a : a + 1]).all()
    starts = masks[:, edges[:-1]]
    assert len(np.unique(starts.T, axis=0)) == len(sizes)  # and different blocks are not


def test_examples_violate_their_assumptions():
    """B.13 and E.2: at the common point all components have one Mahalanobis distance. E.3: dependent directions."""
    for name in ("B.13", "E.2"):
        exact = make_pdgmm(10, n=4, example=name).source.latents.mixture()
        distances = [m @ np.linalg.pinv(c) @ m for m, c in zip(exact.means, exact.covariances, strict=True)]
        np.testing.assert_allclose(distances, distances[0], atol=1e-9)
    exact = make_pdgmm(10, example="E.3").source.latents.mixture()
    directions = np.stack([np.linalg.eigh(c)[1][:, -1] for c in exact.covariances])
    assert directions.shape == (3, 2)
    assert np.linalg.matrix_rank(directions) == 2


def test_difficulties():
    assert list(DIFFICULTIES) == ["published", "medium", "hard", "wide"]
    wide = make_pdgmm(5000, n=3, difficulty="wide", random_state=0)
    assert wide.x.shape == (5000, 12)
    clean = wide.source.mixing(torch.as_tensor(wide.z)).numpy()
    assert (wide.x - clean).std() / clean.std() == pytest.approx(0.01, rel=0.05)
    hard = make_pdgmm(10, difficulty="hard").source.mixing
    assert [a.slope for a in hard.activations] == [0.2] * 9
    assert len(make_pdgmm(10, difficulty="hard", layers=4).source.mixing.activations) == 3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rho": "half"}, "a percentage in .* or '1 var'"),
        ({"rho": 0}, "a percentage in"),
        ({"difficulty": "easy"}, "'published', 'medium', 'hard', 'wide'"),
        ({"noise_law": "cauchy"}, "'gaussian', 'exponential' or 'gumbel'"),
        ({"activation": "relu"}, "'leaky', 'smooth' or 'sigmoid'"),
        ({"example": "A.1"}, "'B.13', 'E.2' or 'E.3'"),
    ],
)
def test_unknown_options_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        make_pdgmm(10, **settings)


@pytest.mark.parametrize(
    ("make", "metric", "seeds", "value", "error"),
    [
        (partial(make_pdgmm, 10_000, n=10, k=1, rho=50), r2, 4, 0.94, 0.02),
        (partial(make_pdgmm, 10_000, difficulty="medium"), r2, 3, 0.74, 0.02),
        (make_segments, mcc, 10, 0.515, 0.065),
        (make_tcl, mcc, 5, 0.59, 0.04),
    ],
    ids=["published", "medium", "segments", "tcl"],
)
def test_raw_x_recovers_the_latents_as_well_as_published(make, metric, seeds, value, error):
    samples = [make(random_state=seed) for seed in range(seeds)]
    assert np.mean([metric(s.z, s.x) for s in samples]) == pytest.approx(value, abs=error)


@pytest.mark.parametrize("make", [make_segments, make_tcl])
def test_segments_have_their_own_scales(make):
    sample = make(40_000, random_state=0)
    latents = sample.source.latents
    np.testing.assert_array_equal(sample.u, sample.component)
    for u in (0, 7):
        own = sample.z[sample.u == u]
        np.testing.assert_allclose(own.std(0), latents.factors[u], rtol=0.15)
        np.testing.assert_allclose(own.mean(0), latents.means[u], atol=0.4)
    assert np.ptp(np.bincount(sample.u)) <= 2


def test_segment_options():
    centred, shifted = make_segments(40_000, random_state=0), make_segments(40_000, centred=False, random_state=0)
    assert centred.source.latents.means.abs().max() == 0
    assert shifted.source.latents.means.abs().max() > 3
    variances = make_segments(100, variance=True).source.latents.factors ** 2
    assert 0.5 <= variances.min() <= variances.max() <= 3
    binary = make_segments(1000, n=5, d=25, bernoulli=True)
    assert binary.x.shape == (1000, 25)
    assert set(np.unique(binary.x)) == {0.0, 1.0}
    noisy = make_segments(5000, noise=0.1, random_state=2)
    clean = noisy.source.mixing(torch.as_tensor(noisy.z)).numpy()
    assert (noisy.x - clean).std() / clean.std() == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("factorial", [True, False])
def test_gmm_is_factorial_or_not(factorial):
    exact = make_gmm(10, n=4, components=6, factorial=factorial).source.latents.mixture()
    off = exact.covariances - exact.covariances * np.eye(4)
    assert (np.abs(off).max() < 1e-12) == factorial
    assert (np.linalg.eigvalsh(exact.covariances) > 0.05).all()


def test_hidden_variables_touch_only_their_latents():
    """Latent 0 belongs to U1 (2 values) alone, latent 2 to U2 (3 values) alone, latent 1 to both."""
    sample = make_gmm(10, n=3, hidden=(2, 3), touches=[[0, 1], [1, 2]], random_state=0)
    means = sample.source.latents.means.numpy().reshape(2, 3, 3)
    assert (means[:, :, 0] == means[:, :1, 0]).all()
    assert (means[:, :, 2] == means[:1, :, 2]).all()
    assert len(np.unique(means[:, :, 1])) == 6
    with pytest.raises(ValueError, match="one entry per hidden variable: 2 expected, 1 given"):
        make_gmm(10, hidden=(2, 3), touches=[[0]])
