"""Simulators against the laws they claim: exact moments, exact inverses, published summary values."""

import time
from itertools import pairwise

import numpy as np
import pytest
import torch

from identifiable.data import (
    DIFFICULTIES,
    Sample,
    make_balls,
    make_gmm,
    make_parallelograms,
    make_pdgmm,
    make_pinwheel,
    make_segments,
    make_tcl,
)
from identifiable.data.latents import all_planes_rotation, random_dag, random_masks
from identifiable.data.mixings import Leaky, Sigmoid, SmoothLeaky, TanhLinear, orthogonal_mixing, tanh_mixing
from identifiable.metrics import mcc, r2

MAKERS = {
    "pdgmm": make_pdgmm,
    "segments": make_segments,
    "tcl": make_tcl,
    "gmm": make_gmm,
    "pinwheel": make_pinwheel,
    "parallelograms": make_parallelograms,
    "balls": make_balls,
}
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
with_latents = pytest.mark.parametrize("make", [make_pdgmm, make_segments, make_tcl, make_gmm])


# -- what every source keeps ---------------------------------------------------


@every_maker
def test_a_seed_fixes_the_sample_and_another_changes_it(make):
    a, b, c = make(50, random_state=3), make(50, random_state=3), make(50, random_state=4)
    np.testing.assert_array_equal(a.x, b.x)
    assert not np.array_equal(a.x, c.x)
    assert isinstance(a, Sample)
    assert len(a) == 50
    assert a.x.dtype == np.float64


@every_maker
def test_fresh_rows_of_the_same_law(make):
    sample = make(200, random_state=3)
    fresh = sample.source.sample(200, random_state=9)
    assert not np.array_equal(sample.x, fresh.x)
    again = sample.source.sample(200, random_state=3)
    np.testing.assert_array_equal(sample.x, again.x)


@every_maker
def test_the_stream_has_the_law_of_the_sample(make):
    rows = 500 if make is make_balls else 20_000
    sample = make(rows, random_state=1)
    draw = sample.source.stream("cpu", torch.float64)
    rng = torch.Generator().manual_seed(0)
    x, *u = draw(rows, rng)
    assert not torch.equal(x, draw(rows, rng)[0])
    assert bool(u) == (sample.u is not None)
    seen = sample.x.std(0) > 0.1  # not the pixels that a ball hardly ever covers
    error = sample.x.std(0) * np.sqrt(2 / rows)  # of the difference of two means
    assert (np.abs(x.numpy().mean(0) - sample.x.mean(0)) <= 6 * error)[seen].all()
    np.testing.assert_allclose(x.std(), sample.x.std(), rtol=0.05)
    assert draw(3, rng)[0].dtype == torch.float64
    assert sample.source.stream()(3, rng)[0].dtype == torch.float32


@with_latents
@pytest.mark.parametrize("seed", range(3))
def test_the_mixing_knows_its_inverse(make, seed):
    sample = make(2000, random_state=seed)
    z = sample.source.mixing.inverse(torch.as_tensor(sample.x)).numpy()
    np.testing.assert_allclose(z, sample.z, atol=1e-4)


def test_rows_can_be_many_chunks_or_fewer_than_components():
    assert make_pdgmm(45_001, n=3).x.shape == (45_001, 3)
    assert make_pdgmm(2, n=10).x.shape == (2, 10)
    with pytest.raises(ValueError, match=r"at least 1\. Got 0"):
        make_pdgmm(0)


# -- mixings -------------------------------------------------------------------


@pytest.mark.parametrize(
    "activation", [Leaky(0.2), Leaky(1.4), SmoothLeaky(0.2), SmoothLeaky(1.4), TanhLinear(), Sigmoid()]
)
def test_activations_increase_and_invert(activation):
    h = torch.linspace(-30 if not isinstance(activation, Sigmoid) else -15, 15, 5001, dtype=torch.float64)
    y = activation(h)
    assert (y.diff() > 0).all()
    torch.testing.assert_close(activation.inverse(y), h, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("slope", [0.2, 0.9, 1.0, 1.4])
def test_leaky_is_the_larger_of_the_two(slope):
    h = torch.linspace(-3, 3, 101, dtype=torch.float64)
    torch.testing.assert_close(Leaky(slope)(h), torch.maximum(slope * h, h))


@pytest.mark.parametrize("activation", ["leaky", "smooth"])
@pytest.mark.parametrize(("n", "d"), [(3, 3), (3, 8)])
def test_orthogonal_mixing(activation, n, d):
    f = orthogonal_mixing(n, d, layers=6, slopes=(0.5, 1.5), activation=activation, rng=np.random.default_rng(0))
    assert len(f.matrices) == 6
    assert len(f.activations) == 5
    assert (f.n, f.d) == (n, d)
    for w in f.matrices:
        torch.testing.assert_close(w @ w.T, torch.eye(len(w), dtype=torch.float64))
    z = torch.randn(1000, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(f.inverse(f(z)), z, atol=1e-8, rtol=0)


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize(("n", "d"), [(5, 5), (2, 5), (10, 40)])
def test_tanh_mixing(reuse, n, d):
    f = tanh_mixing(n, d, layers=3, reuse=reuse, rng=np.random.default_rng(0))
    assert (f.n, f.d) == (n, d)
    assert torch.equal(f.matrices[1], f.matrices[2]) == reuse
    for w in f.matrices:
        torch.testing.assert_close(w.norm(dim=0), torch.ones(d, dtype=torch.float64))
    z = 3 * torch.randn(1000, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(f.inverse(f(z)), z, atol=1e-6, rtol=0)


def test_a_mixing_needs_room():
    with pytest.raises(ValueError, match="n = 5, d = 3"):
        make_pdgmm(10, n=5, d=3)


# -- pdGMM ---------------------------------------------------------------------


def test_masks_have_exactly_the_share_that_was_asked_for():
    for rho, ones in ((50, 5), (75, 7), ("1 var", 1)):
        law = make_pdgmm(10, n=10, rho=rho, random_state=1).source.latents
        assert (law.masks.sum(1) == ones).all()
        assert len(law.masks) <= 50
        assert len(torch.unique(law.masks, dim=0)) == len(law.masks)


def test_graph_has_exactly_n_k_edges_and_no_cycle():
    for n, k in ((10, 0), (10, 1), (10, 3), (40, 2)):
        a = random_dag(n, n * k, np.random.default_rng(n + k))
        assert np.count_nonzero(a) == n * k
        assert np.trace(np.linalg.matrix_power(a != 0, n).astype(float)) == 0
        weights = np.abs(a[a != 0])
        assert ((weights >= 0.2) & (weights <= 1)).all()
    assert np.count_nonzero(random_dag(5, 15, np.random.default_rng(0))) == 10  # all there can be


def test_latents_at_rest_are_exactly_at_rest_and_components_have_equal_shares():
    sample = make_pdgmm(5000, n=10, delta=2.0, random_state=2)
    law = sample.source.latents
    masks, rest = law.masks.numpy(), law.rest.numpy()
    resting = ~masks[sample.component]
    np.testing.assert_array_equal(sample.z[resting], np.broadcast_to(rest, sample.z.shape)[resting])
    assert (sample.z[~resting] != np.broadcast_to(rest, sample.z.shape)[~resting]).all()
    assert np.ptp(np.bincount(sample.component)) <= 1


@pytest.mark.parametrize("delta", [0.0, 1.0, 3.0])
def test_rest_is_delta_standard_deviations_from_the_mean(delta):
    law = make_pdgmm(10, n=10, k=3, delta=delta, random_state=0).source.latents
    transfer = law.transfer.numpy()
    exact_sd = np.sqrt((transfer**2).sum(0))  # of z = ε (I - A)^-1
    np.testing.assert_allclose(law.rest.numpy() / exact_sd, delta, atol=0.15)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"delta": 2.0},
        {"theta": 30.0},
        {"rho": "1 var"},
        {"blocks": (2, 2, 1)},
        {"second_basis": 45.0},
        {"example": "B.13"},
        {"example": "E.2"},
        {"example": "E.3"},
    ],
    ids=str,
)
def test_the_exact_mixture_is_that_of_the_draws(settings):
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


@pytest.mark.parametrize("sizes", [(2, 2, 2, 2, 2), (1, 1, 2, 6)])
def test_blocks_are_always_active_together(sizes):
    masks = make_pdgmm(10, blocks=sizes, random_state=0).source.latents.masks.numpy()
    edges = np.cumsum((0, *sizes))
    for a, b in pairwise(edges):
        assert (masks[:, a:b] == masks[:, a : a + 1]).all()
    starts = masks[:, edges[:-1]]
    assert len(np.unique(starts.T, axis=0)) == len(sizes)  # and different blocks are not


def test_noise_laws():
    rng = torch.Generator().manual_seed(0)
    for law, mean, variance in (("gaussian", 0, 1), ("exponential", 1, 1), ("gumbel", 0.5772, np.pi**2 / 6)):
        noise = make_pdgmm(10, n=4, noise_law=law).source.latents.noise(200_000, rng)
        assert noise.mean().item() == pytest.approx(mean, abs=0.01)
        assert noise.var().item() == pytest.approx(variance, rel=0.02)


def test_only_gaussian_noise_has_a_mixture():
    with pytest.raises(ValueError, match="With gumbel noise the latents are not a Gaussian mixture"):
        make_pdgmm(10, noise_law="gumbel").source.latents.mixture()


def test_examples_break_what_they_should():
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
def test_unknown_words_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        make_pdgmm(10, **settings)


def test_random_masks_are_distinct():
    masks = random_masks(6, 2, 1000, np.random.default_rng(0))
    assert len(masks) == 15  # all there are
    assert (masks.sum(1) == 2).all()


# -- the published summary values ----------------------------------------------


def test_published_mixing_is_nearly_linear():
    values = [r2(s.x, s.z) for s in (make_pdgmm(10_000, n=10, k=1, rho=50, random_state=i) for i in range(10))]
    assert np.mean(values) == pytest.approx(0.94, abs=0.02)


def test_medium_mixing():
    values = [r2(s.x, s.z) for s in (make_pdgmm(10_000, difficulty="medium", random_state=i) for i in range(3))]
    assert np.mean(values) == pytest.approx(0.74, abs=0.02)


def test_raw_x_of_the_segments():
    values = [mcc(s.z, s.x) for s in (make_segments(random_state=i) for i in range(10))]
    assert 0.45 <= np.mean(values) <= 0.58


def test_raw_x_of_the_tcl_data():
    values = [mcc(s.z, s.x) for s in (make_tcl(20_000, random_state=i) for i in range(10))]
    assert 0.55 <= np.mean(values) <= 0.63


def test_a_million_rows_take_seconds():
    started = time.process_time()
    assert make_pdgmm(1_000_000, n=40, layers=10).x.shape == (1_000_000, 40)
    assert time.process_time() - started < 40  # CPU seconds: two cores for 20 s


# -- segments, tcl, gmm ---------------------------------------------------------


@pytest.mark.parametrize("make", [make_segments, make_tcl])
def test_segments_have_their_own_scales(make):
    sample = make(40_000, random_state=0)
    law = sample.source.latents
    np.testing.assert_array_equal(sample.u, sample.component)
    for u in (0, 7):
        own = sample.z[sample.u == u]
        np.testing.assert_allclose(own.std(0), law.factors[u], rtol=0.15)
        np.testing.assert_allclose(own.mean(0), law.means[u], atol=0.4)
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


# -- shapes and images -----------------------------------------------------------


def test_planar_shapes_have_no_latents_but_components():
    for sample in (make_pinwheel(3000), make_parallelograms(3000)):
        assert sample.z is None
        assert sample.u is None
        np.testing.assert_array_equal(np.bincount(sample.component), [1000] * 3)


def test_arms_of_the_pinwheel_are_rotations_of_each_other():
    sample = make_pinwheel(30_000, arms=3, random_state=0)
    turn = all_planes_rotation(2, -120)
    means = np.stack([sample.x[sample.component == j].mean(0) for j in range(3)])
    np.testing.assert_allclose(means[0] @ turn, means[1], atol=0.02)
    np.testing.assert_allclose(means[1] @ turn, means[2], atol=0.02)


def test_parallelograms_have_the_moments_of_uniform_draws():
    sample = make_parallelograms(60_000, d=3, noise=0.1, random_state=1)
    law = sample.source.latents
    for j in range(3):
        own, edges = sample.x[sample.component == j], law.edges[j].numpy()
        np.testing.assert_allclose(own.mean(0), law.corners[j].numpy() + edges.sum(0) / 2, atol=0.02)
        np.testing.assert_allclose(np.cov(own.T), edges.T @ edges / 12 + 0.01 * np.eye(3), atol=0.02)


def test_balls():
    sample = make_balls(400, balls=4, random_state=0)
    assert sample.image_shape == (64, 64, 3)
    assert sample.x.min() >= 0
    assert sample.x.max() <= 1
    assert sample.z.min() >= 0.05
    assert sample.z.max() <= 0.95
    means = sample.source.latents.means.numpy()
    resting = (sample.z.reshape(400, 4, 2) == means).all(-1)
    assert resting.mean() == pytest.approx(0.1, abs=0.03)
    assert ((sample.z.reshape(400, 4, 2) == means).any(-1) == resting).all()  # x and y rest together
    apart = make_balls(2000, balls=2, separately=True, random_state=0)
    still = apart.z == apart.source.latents.means.numpy().reshape(-1)
    assert abs(np.corrcoef(still[:, 0], still[:, 1])[0, 1]) < 0.1


def test_a_ball_is_drawn_where_it_is():
    """The centre of mass of what is not white is the position, to a tenth of a pixel."""
    sample = make_balls(50, balls=1, random_state=1)
    ink = (1 - sample.x.reshape(50, 64, 64, 3)).sum(-1)
    centres = (np.arange(64) + 0.5) / 64
    x = (ink.sum(1) * centres).sum(1) / ink.sum((1, 2))
    y = (ink.sum(2) * centres).sum(1) / ink.sum((1, 2))
    inside = ((sample.z > 0.1) & (sample.z < 0.9)).all(1)
    np.testing.assert_allclose(np.c_[x, y][inside], sample.z[inside], atol=0.1 / 64)


@pytest.mark.parametrize("balls", [0, 7])
def test_too_many_balls(balls):
    with pytest.raises(ValueError, match="between 1 and 6"):
        make_balls(1, balls=balls)
