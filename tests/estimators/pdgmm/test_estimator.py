"""PDGMM against nonlinear mixtures whose latents are known."""

import itertools

import numpy as np
import pytest

from identifiable import PDGMM, Level, RecoveryWarning, SparseUnmixing, load, save
from identifiable.algorithms.coordinates import Coordinates
from identifiable.algorithms.hyperplanes import unmix
from identifiable.data import make_gmm, make_pdgmm
from identifiable.estimators.pdgmm import estimator as pdgmm
from identifiable.estimators.pdgmm.certificate import other_basis
from identifiable.metrics import mcc, r2


@pytest.fixture(scope="module")
def bent():
    """The published mixing, rest values one sd from the mean; the fit, and fresh rows."""
    sample = make_pdgmm(5000, n=4, delta=1, random_state=2)
    model = PDGMM(4, n_restarts=2, max_steps=600, random_state=0, verbose=0).fit(sample.x)
    return sample, model, sample.source.sample(3000, random_state=1)


def test_a_nonlinear_mixture_is_recovered(bent):
    sample, model, fresh = bent
    with pytest.warns(RecoveryWarning):
        linear = SparseUnmixing(4, random_state=0).fit(sample.x)
    assert model.fit_status_ == "stable"
    recovered = mcc(fresh.z, model.transform(fresh.x))
    assert recovered > 0.985
    assert recovered > mcc(fresh.z, linear.transform(fresh.x)) + 0.005


def test_the_inverse_is_exact(bent):
    _, model, fresh = bent
    z = model.transform(fresh.x)
    np.testing.assert_allclose(model.inverse_transform(z), fresh.x, atol=1e-9)
    np.testing.assert_allclose(model.transform(model.offset_[None]), 0, atol=1e-9)


def test_activity_and_masks_are_the_true_ones(bent):
    sample, model, fresh = bent
    law = sample.source.latents
    order = np.abs(np.corrcoef(fresh.z.T, model.transform(fresh.x).T)[:4, 4:]).argmax(1)
    truth = np.abs(fresh.z - law.rest.numpy()) > 1e-9
    assert (model.active(fresh.x)[:, order] == truth).mean() > 0.95
    heavy = model.masks_.patterns[model.masks_.frequencies > 0.5 / len(law.masks)][:, order]
    assert {tuple(m) for m in law.masks.numpy()} == {tuple(m) for m in heavy}
    assert model.mixture_.weights.sum() == pytest.approx(1)


def test_the_density_knows_the_data_from_a_gaussian(bent):
    _, model, fresh = bent
    gaussian = np.random.default_rng(0).multivariate_normal(fresh.x.mean(0), np.cov(fresh.x.T), size=3000)
    assert model.score(gaussian) < model.score(fresh.x) - 3


def test_draws_have_the_moments_of_the_data(bent):
    _, model, fresh = bent
    drawn = model.sample(20_000, random_state=0)
    np.testing.assert_allclose(drawn.mean(0), fresh.x.mean(0), atol=0.1 * fresh.x.std())
    np.testing.assert_allclose(drawn.std(0), fresh.x.std(0), rtol=0.15)


def test_more_columns_than_latents_and_more_latents_than_there_are():
    sample = make_pdgmm(2000, n=4, layers=1, random_state=0)
    wide = sample.x @ np.random.default_rng(0).normal(size=(4, 6))
    model = PDGMM(5, n_restarts=2, max_steps=150, depth=4, extended=False, random_state=0, verbose=0).fit(wide)
    z = model.transform(wide)
    assert z.shape == (2000, 5)
    assert model.unused_ == (4,)
    assert (z[:, 4] == 0).all()
    assert mcc(sample.z, z) > 0.99
    np.testing.assert_allclose(model.inverse_transform(z), wide, atol=1e-6)


def test_what_is_not_recovered_is_called_so():
    """Gaussian data have no latents to find: restarts disagree, a warning and the certificate say so."""
    x = np.random.default_rng(0).normal(size=(2000, 4))
    with pytest.warns(RecoveryWarning, match="agree at"):
        model = PDGMM(4, n_restarts=3, max_steps=200, depth=4, extended=False, random_state=0, verbose=0).fit(x)
    assert model.certificate_.level == Level.NONE
    assert model.certificate_["agreement"].verdict == "fails"


def test_dependent_latents_are_told_apart():
    """Three in four latents active, and dependent: independent spikes and slabs alone would leave them mixed."""
    sample = make_pdgmm(4000, n=4, k=3, rho=75, layers=3, random_state=1)
    model = PDGMM(4, max_steps=600, depth=6, random_state=0, verbose=0).fit(sample.x)
    assert mcc(sample.z, model.transform(sample.x)) > 0.97


@pytest.fixture(scope="module")
def never_resting():
    sample = make_gmm(6000, n=3, components=6, layers=3, random_state=0)
    return sample, PDGMM(3, max_steps=1200, depth=8, random_state=0, verbose=0).fit(sample.x)


def test_latents_that_never_rest_are_known_up_to_an_affine_map(never_resting):
    sample, model = never_resting
    assert model.full_rank_
    assert model.fit_status_ == "stable"
    z = model.transform(sample.x)
    assert r2(sample.z, z) > r2(sample.z, sample.x) + 0.003
    assert model.certificate_.level in (Level.NONE, Level.AT)
    assert model.active(sample.x).all()
    assert model.masks_.patterns.tolist() == [[True] * 3]
    assert model.blocks_ == ((0, 1, 2),)
    np.testing.assert_allclose(model.inverse_transform(z), sample.x, atol=1e-8)


def test_a_saved_full_mixture_comes_back(never_resting, tmp_path):
    sample, model = never_resting
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.transform(sample.x), model.transform(sample.x))
    assert again.full_rank_
    assert again.score(sample.x) == pytest.approx(model.score(sample.x))


def test_many_data_sets_are_fitted_in_one_batch():
    """Each copy has the latents of its own data set, be it alone in its shape or not."""
    samples = [make_pdgmm(rows, n=4, layers=2, random_state=seed) for rows, seed in ((1500, 2), (1500, 3), (1000, 4))]
    models = PDGMM(4, max_steps=200, depth=4, extended=False, random_state=0, verbose=0).fit_many(
        [s.x for s in samples]
    )
    found = np.array([[mcc(sample.z, model.transform(sample.x)) for model in models] for sample in samples])
    assert (np.diag(found) > 0.97).all()
    assert (found[~np.eye(3, dtype=bool)] < 0.9).all()


def test_a_simulator_gives_endless_rows():
    sample = make_pdgmm(1000, n=2, layers=2, delta=1, random_state=0)
    model = PDGMM(2, max_steps=200, depth=4, extended=False, random_state=0, verbose=0).fit(sample.source)
    assert mcc(sample.z, model.transform(sample.x)) > 0.95


def test_columns_beyond_the_latents_are_predicted_from_them():
    """Six columns that bend where latents rest: as many directions bend, and three latents tell of all of them."""
    rng = np.random.default_rng(0)
    sample = make_pdgmm(3000, n=3, layers=1, random_state=0)
    x = sample.x @ rng.normal(size=(3, 6)) + 0.2 * np.abs(sample.z) @ rng.normal(size=(3, 6))
    model = PDGMM(3, max_steps=300, depth=4, extended=False, random_state=0, verbose=0).fit(x)
    z = model.transform(x)
    assert mcc(sample.z, z) > 0.98
    assert np.mean((x - model.inverse_transform(z)) ** 2) < 1e-3 * x.var()
    gaussian = rng.multivariate_normal(x.mean(0), np.cov(x.T), size=3000)
    assert model.score(gaussian) < model.score(x) - 10


# -- rows gone wrong, and skewed latents ---------------------------------------------------


@pytest.mark.parametrize("wrong", [False, True])
def test_noise_is_fitted_to_a_linear_start_that_needs_repair(monkeypatch, wrong):
    """The start is that of `unmix` on the same rows, with noise or without."""
    x = make_pdgmm(500, n=4, k=3, delta=2, layers=1, random_state=0).x
    x = x + 0.2 * x.std(0) * np.random.default_rng(0).normal(size=x.shape)
    y = Coordinates.fit(x, 4).project(x)[0]
    monkeypatch.setattr(pdgmm, "needs_repair", lambda *_: wrong)
    rows = pdgmm._sparse_rows(y, y, np.eye(4, 5), seed=3)
    found = y @ rows[:, :4].T + rows[:, 4]
    expected = unmix(y, 3, noisy=wrong).latents(y)
    assert mcc(expected, found) > 0.999
    assert mcc(unmix(y, 3, noisy=not wrong).latents(y), found) < 0.999


def test_skewed_latents_are_not_bent_into_gaussians():
    """One-sided noise; under the exact mixture, which is Gaussian, the same data end at 0.93."""
    sample = make_pdgmm(5000, n=5, noise_law="exponential", random_state=5)
    model = PDGMM(5, random_state=0, verbose=0, extended=False).fit(sample.x)
    assert model.fit_status_ == "stable"
    assert mcc(sample.z, model.transform(sample.x)) > 0.95
    assert model.skewed_
    assert model.certificate_.level == Level.NONE
    assert model.certificate_["gaussian"].verdict == "fails"


def test_rows_that_may_rest_in_another_basis_are_doubted():
    """Every latent active in many rows, four of eight in the others; but not where each is so by chance."""
    patterns = np.array(list(itertools.product([False, True], repeat=8)))
    four, every = patterns.sum(1) == 4, patterns.all(1)
    assert other_basis(patterns, 0.6 * four / four.sum() + 0.4 * every).verdict == "inconclusive"
    assert other_basis(patterns, four / four.sum()) is None
    assert other_basis(patterns, np.where(patterns, 0.8, 0.2).prod(1)) is None
