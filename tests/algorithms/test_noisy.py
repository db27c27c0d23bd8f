"""Refinement under noise against noisy affine mixtures whose parameters are known."""

import numpy as np
import pytest

from identifiable.algorithms.noisy import common_spikes, refine_under_noise
from identifiable.data import make_pdgmm
from identifiable.metrics import mcc

NOISE = 0.1


def noisy(seed, rows=4000, n=4, **options):
    """Latents of unit variance that are inactive at zero, y = z B + c + noise, and B and c."""
    z = make_pdgmm(rows, n=n, layers=1, random_state=seed, **options).z
    values = [np.unique(column, return_counts=True) for column in z.T]
    inactive = np.array([value[count.argmax()] for value, count in values])
    z = (z - inactive) / z.std(0)
    rng = np.random.default_rng([seed, 7])
    B, c = np.linalg.qr(rng.normal(size=(n, n)))[0] * rng.uniform(0.7, 1.4, size=n), rng.normal(size=n)
    return z, z @ B + c + NOISE * rng.normal(size=z.shape), B, c


def start_near(B, c, seed, error=0.15):
    """The true unmixing, with errors of this size in every direction."""
    n = len(c)
    W = np.linalg.inv(B).T + error * np.random.default_rng(seed).normal(size=(n, n))
    return np.c_[W, -W @ c]


def best_linear(z, y):
    ones = np.c_[y, np.ones(len(y))]
    return ones @ np.linalg.lstsq(ones, z, rcond=None)[0]


def read(rows, y):
    return y @ rows[:, :-1].T + rows[:, -1]


@pytest.mark.parametrize(("k", "delta"), [(0, 0), (3, 2)])
def test_known_parameters_are_recovered(k, delta):
    z, y, B, c = noisy(0, k=k, delta=delta)
    start = start_near(B, c, seed=0)
    found = refine_under_noise(y, start, seed=0)
    best = mcc(z, best_linear(z, y))
    assert mcc(z, read(start, y)) < best - 0.005
    assert mcc(z, read(found.rows, y)) > best - 0.002
    assert found.noise == pytest.approx(NOISE, rel=0.05)
    order = np.abs(np.corrcoef(z.T, read(found.rows, y).T)[:4, 4:]).argmax(1)
    truth, shares = np.unique(z != 0, axis=0, return_counts=True)
    common = {tuple(p): w for p, w in zip(found.patterns[:, order], found.weights, strict=True)}
    assert [common.get(tuple(p), 0.0) for p in truth] == pytest.approx(shares / len(z), abs=0.03)


def test_the_readout_is_the_best_linear_predictor():
    """Shrunk as regression on the truth shrinks it, up to the shift that puts its inactive mean at zero."""
    z, y, B, c = noisy(1, k=1, delta=2)
    found = refine_under_noise(y, start_near(B, c, seed=1), seed=0)
    mine, best = read(found.rows, y), best_linear(z, y)
    order = np.abs(np.corrcoef(z.T, mine.T)[:4, 4:]).argmax(1)
    mine = mine[:, order] * np.sign((mine[:, order] * best).sum(0))
    np.testing.assert_allclose(mine.std(0), best.std(0), rtol=0.03)
    for column, inactive in zip(mine.T, (z == 0).T, strict=True):
        assert abs(column[inactive].mean()) < 0.05


def test_sum_and_difference_of_two_latents_are_separated():
    """A basis that no small step improves: both combinations are active when either latent is."""
    z, y, B, c = noisy(2, k=0)
    W = np.linalg.inv(B).T
    W[[0, 1]] = [W[0] + W[1], W[0] - W[1]]
    start = np.c_[W, -W @ c]
    found = refine_under_noise(y, start, seed=0)
    assert mcc(z, read(start, y)) < 0.9
    assert mcc(z, read(found.rows, y)) > mcc(z, best_linear(z, y)) - 0.002


@pytest.mark.parametrize("seed", range(2))
def test_a_start_that_does_not_improve_is_returned(seed):
    """With gain 0, the start is returned unchanged. Gaussian data have no pattern."""
    rng = np.random.default_rng(seed)
    y, start = rng.normal(size=(120, 3)), np.c_[rng.normal(size=(3, 3)), np.zeros(3)]
    found = refine_under_noise(y, start, seed=seed)
    if found.gain == 0:
        np.testing.assert_array_equal(found.rows, start)
        assert found.blocks == ()
    assert np.isfinite(found.rows).all()
    assert not found.inactive.any()


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.4])
def test_the_width_of_rare_spikes_is_that_of_all_columns(noise):
    """10 % of the rows are inactive; at noise of .4 the spike of a single column can hardly be seen."""
    rng = np.random.default_rng(0)
    scale = np.array([1.0, 1.0, 0.7, 0.7, 0.5, 0.5])
    active = rng.random((10_000, 6)) > 0.1
    t = rng.normal(size=active.shape) * active + noise * scale * rng.normal(size=active.shape)
    found, _, size, posterior = common_spikes(t, scale, most=1.0)
    assert found == pytest.approx(noise, rel=0.2)
    np.testing.assert_allclose(size**2, 1 + (noise * scale) ** 2, rtol=0.07)
    np.testing.assert_allclose(posterior.mean(0), 0.9, atol=0.04)


def test_noise_of_the_latents_is_told_from_noise_of_the_columns():
    """Mixed like the latents, noise has the same share of the variance in every direction, not the same variance."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(6000, 4)) * (rng.random((6000, 2)) > 0.2).repeat(2, 1)
    B = np.linalg.qr(rng.normal(size=(4, 4)))[0] * [0.5, 1, 1, 2]
    inner, outer = (z + 0.1 * rng.normal(size=z.shape)) @ B, z @ B + 0.1 * rng.normal(size=z.shape)
    for y, noise in ((inner, 0.1 * np.sqrt((B**2).sum() / 4)), (outer, 0.1)):
        found = refine_under_noise(y, start_near(B, np.zeros(4), seed=0, error=0.05), seed=0)
        assert found.noise == pytest.approx(noise, rel=0.1)
        assert found.inactive.all()
        assert sorted(map(len, found.blocks)) == [2, 2]


def test_degenerate_input_gives_finite_rows():
    """Few rows, a singular start, a constant column, one latent."""
    rng = np.random.default_rng(0)
    z, exact = rng.normal(size=(200, 3)) * (rng.random((200, 3)) < 0.5), np.eye(3, 4)
    singular, one = np.c_[np.ones((3, 3)), np.zeros(3)], z[:, :1] + 0.05 * rng.normal(size=(200, 1))
    for y, start in ((z[:20], exact), (z, singular), (z * [1, 1, 0], exact), (one, np.eye(1, 2))):
        found = refine_under_noise(y, start)
        assert np.isfinite(found.rows).all()
        assert found.noise >= 0
