"""Distributions of latents: exact moments, graphs, masks and rotations."""

import numpy as np
import pytest
import torch

from identifiable.data import make_pdgmm
from identifiable.data.latents import all_planes_rotation, normal, random_dag, random_masks, uniform
from identifiable.metrics import mcc


def test_graph_has_exactly_n_k_edges_and_no_cycle():
    for n, k in ((10, 0), (10, 1), (10, 3), (40, 2)):
        a = random_dag(n, n * k, np.random.default_rng(n + k))
        assert np.count_nonzero(a) == n * k
        assert np.trace(np.linalg.matrix_power(a != 0, n).astype(float)) == 0
        weights = np.abs(a[a != 0])
        assert ((weights >= 0.2) & (weights <= 1)).all()
    assert np.count_nonzero(random_dag(5, 15, np.random.default_rng(0))) == 10  # all there can be


def test_random_masks_are_distinct():
    masks = random_masks(6, 2, 1000, np.random.default_rng(0))
    assert len(masks) == 15  # all there are
    assert (masks.sum(1) == 2).all()


@pytest.mark.parametrize(
    "settings",
    [{"delta": 2.0}, {"theta": 30.0}, {"rho": "1 var"}, {"blocks": (2, 2, 1)}, {"second_basis": 45.0}]
    + [{"example": name} for name in ("B.13", "E.2", "E.3")],
    ids=str,
)
def test_mixture_has_the_moments_of_the_sample(settings):
    sample = make_pdgmm(60_000, n=5, random_state=4, **settings)
    exact = sample.source.latents.mixture()
    for j, (mean, covariance) in enumerate(zip(exact.means, exact.covariances, strict=True)):
        own = sample.z[sample.component == j]
        assert len(own) / len(sample) == pytest.approx(exact.weights[j], abs=1e-3)
        scale = np.sqrt(np.trace(covariance))
        np.testing.assert_allclose(own.mean(0), mean, atol=5 * scale / np.sqrt(len(own)))
        np.testing.assert_allclose(np.cov(own.T), covariance, atol=8 * scale**2 / np.sqrt(len(own)))
        assert np.linalg.matrix_rank(np.cov(own.T), tol=1e-9) == np.linalg.matrix_rank(covariance, tol=1e-9)


def test_rotation_turns_every_plane_and_can_be_undone():
    r = all_planes_rotation(4, 30)
    np.testing.assert_allclose(r @ r.T, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(all_planes_rotation(2, 30), [[3**0.5 / 2, -0.5], [0.5, 3**0.5 / 2]])
    turns = [np.eye(3) for _ in range(3)]  # planes (0, 1), (0, 2), (1, 2), multiplied from the left in this order
    for turn, plane in zip(turns, ([0, 1], [0, 2], [1, 2]), strict=True):
        turn[np.ix_(plane, plane)] = all_planes_rotation(2, 15)
    np.testing.assert_allclose(all_planes_rotation(3, 15), turns[2] @ turns[1] @ turns[0], atol=1e-12)
    sample = make_pdgmm(5000, n=10, theta=15, random_state=0)
    plain = make_pdgmm(5000, n=10, theta=0, random_state=0)
    assert mcc(sample.z, plain.z) == pytest.approx(0.856, abs=0.03)  # the other order of the planes gives 0.67
    np.testing.assert_allclose(sample.z @ sample.source.latents.rotation.numpy().T, plain.z, atol=1e-10)


def test_noise_has_its_mean_and_variance():
    rng = torch.Generator().manual_seed(0)
    for noise_law, mean, variance in (("gaussian", 0, 1), ("exponential", 1, 1), ("gumbel", 0.5772, np.pi**2 / 6)):
        noise = make_pdgmm(10, n=4, noise_law=noise_law).source.latents.noise(200_000, rng)
        assert noise.mean().item() == pytest.approx(mean, abs=0.01)
        assert noise.var().item() == pytest.approx(variance, rel=0.02)


def test_only_gaussian_noise_has_a_mixture():
    with pytest.raises(ValueError, match="With gumbel noise the latents are not a Gaussian mixture"):
        make_pdgmm(10, noise_law="gumbel").source.latents.mixture()


def test_unmasked_latents_are_all_active():
    unmasked = make_pdgmm(2, n=4).source.latents.unmasked()
    assert unmasked.masks.all()
    assert len(unmasked.mixture().weights) == 1


@pytest.mark.parametrize(("draw", "mean", "sd"), [(normal, 0, 1), (uniform, 0.5, 12**-0.5)])
def test_draws_have_their_moments_and_the_precision_that_is_asked_for(draw, mean, sd):
    values = draw((100, 1000), torch.ones(1, dtype=torch.float64), torch.Generator().manual_seed(0))
    assert values.dtype == torch.float64
    assert values.mean().item() == pytest.approx(mean, abs=0.02)
    assert values.std().item() == pytest.approx(sd, rel=0.02)
