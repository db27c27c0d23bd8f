"""PDGMM on nonlinear mixtures whose latents are known."""

import numpy as np
import pytest
import torch

from identifiable import PDGMM, Level, RecoveryWarning, SparseUnmixing, load, save
from identifiable.algorithms.coordinates import Coordinates
from identifiable.algorithms.hyperplanes import unmix
from identifiable.data import make_gmm, make_pdgmm
from identifiable.estimators.pdgmm import estimator
from identifiable.metrics import mcc, r2

QUICK = {"max_steps": 150, "depth": 4, "extended": False, "random_state": 0, "verbose": 0}


@pytest.fixture(scope="module")
def nonlinear():
    """The published mixing, inactive values one sd from the mean; the fit, and new rows."""
    sample = make_pdgmm(4000, n=4, delta=1, random_state=2)
    model = PDGMM(4, max_steps=400, random_state=0, verbose=0).fit(sample.x)
    return sample, model, sample.source.sample(3000, random_state=1)


def test_a_nonlinear_mixture_is_recovered(nonlinear):
    sample, model, new = nonlinear
    with pytest.warns(RecoveryWarning):
        linear = SparseUnmixing(4, random_state=0).fit(sample.x)
    assert model.fit_status_ == "stable"
    assert mcc(new.z, model.transform(new.x)) > max(0.985, mcc(new.z, linear.transform(new.x)) + 0.005)


def test_the_inverse_is_exact(nonlinear):
    _, model, new = nonlinear
    z = model.transform(new.x)
    np.testing.assert_allclose(model.inverse_transform(z), new.x, atol=1e-9)
    np.testing.assert_allclose(model.transform(model.offset_[None]), 0, atol=1e-9)


def test_activity_and_masks_are_the_true_ones(nonlinear):
    sample, model, new = nonlinear
    latents = sample.source.latents
    order = np.abs(np.corrcoef(new.z.T, model.transform(new.x).T)[:4, 4:]).argmax(1)
    truth = np.abs(new.z - latents.rest.numpy()) > 1e-9
    assert (model.active(new.x)[:, order] == truth).mean() > 0.95
    assert np.abs(model.active_probability(new.x)[:, order] - truth).mean() < 0.05
    heavy = model.masks_.patterns[model.masks_.frequencies > 0.5 / len(latents.masks)][:, order]
    assert {tuple(m) for m in latents.masks.numpy()} == {tuple(m) for m in heavy}
    assert model.mixture_.weights.sum() == pytest.approx(1)
    assert (np.diff(model.masks_.frequencies) <= 0).all()
    assert 0 < model.smoothing_ < 0.3


def test_the_density_is_that_of_the_latents_and_the_jacobian(nonlinear):
    _, model, new = nonlinear
    rows, module = model.sample(20, random_state=0), model.module_
    jacobians = [(model.transform(rows + e) - model.transform(rows - e)) / 2e-4 for e in 1e-4 * np.eye(4)]
    z = torch.as_tensor(model.transform(rows)).float()[None]
    expected = module.prior(z, module.width)[0].detach().numpy() + np.linalg.slogdet(np.stack(jacobians, 1))[1]
    np.testing.assert_allclose(model.score_samples(rows), expected, atol=0.02)
    gaussian = np.random.default_rng(0).multivariate_normal(new.x.mean(0), np.cov(new.x.T), size=3000)
    assert model.score(gaussian) < model.score(new.x) - 3


def test_the_certificate_needs_no_rows_and_survives_a_file(nonlinear, tmp_path):
    _, model, _ = nonlinear
    assert model.certificate_.level >= Level.PS_UNBENT
    assert model.certificate_["fit"].verdict == "holds"
    assert len(model.goodness_.distances) == 4
    save(model, tmp_path / "model.safetensors")
    assert str(load(tmp_path / "model.safetensors").certificate_) == str(model.certificate_)


def test_one_restart_has_no_guarantee():
    sample = make_pdgmm(500, n=3, layers=2, random_state=2)
    model = PDGMM(3, **QUICK | {"n_restarts": 1, "max_steps": 20}).fit(sample.x)
    assert model.up_sets_ is None
    assert model.certificate_.level == Level.NONE
    assert "n_restarts" in model.certificate_["agreement"].remedy


def test_a_projection_of_the_columns_lowers_the_level():
    """Six columns of full rank, of which five principal components go through the flow."""
    sample = make_pdgmm(2000, n=4, layers=2, random_state=0)
    x = np.c_[sample.x, 0.05 * np.abs(sample.x[:, :2])]
    found = PDGMM(4, **QUICK).fit(x).certificate_
    assert found.level == Level.NONE
    assert found["mixing"].verdict == "inconclusive"


def test_samples_have_the_moments_of_the_data(nonlinear):
    _, model, new = nonlinear
    drawn = model.sample(20_000, random_state=0)
    np.testing.assert_allclose(drawn.mean(0), new.x.mean(0), atol=0.1 * new.x.std())
    np.testing.assert_allclose(drawn.std(0), new.x.std(0), rtol=0.15)


def test_more_columns_than_latents_and_more_latents_than_rank():
    sample = make_pdgmm(2000, n=4, layers=1, random_state=0)
    wide = sample.x @ np.random.default_rng(0).normal(size=(4, 6))
    model = PDGMM(5, **QUICK).fit(wide)
    z = model.transform(wide)
    assert z.shape == (2000, 5)
    assert model.unused_ == (4,)
    assert (z[:, 4] == 0).all()
    assert not model.active(wide)[:, 4].any()
    assert mcc(sample.z, z) > 0.99
    np.testing.assert_allclose(model.inverse_transform(z), wide, atol=1e-6)


def test_columns_beyond_the_latents_are_predicted_from_them():
    """Six columns that bend where a latent is inactive: in as many directions, all of which three latents determine."""
    rng = np.random.default_rng(0)
    sample = make_pdgmm(2000, n=3, layers=1, random_state=0)
    x = sample.x @ rng.normal(size=(3, 6)) + 0.2 * np.abs(sample.z) @ rng.normal(size=(3, 6))
    model = PDGMM(3, **QUICK | {"max_steps": 200}).fit(x)
    z = model.transform(x)
    assert mcc(sample.z, z) > 0.98
    assert np.mean((x - model.inverse_transform(z)) ** 2) < 1e-3 * x.var()
    gaussian = rng.multivariate_normal(x.mean(0), np.cov(x.T), size=3000)
    assert model.score(gaussian) < model.score(x) - 10


def test_a_surface_that_principal_components_fold_is_unfolded():
    """Eight columns of four latents: with the principal components, which fold 7 % of the rows, MCC is 0.926."""
    sample = make_pdgmm(4000, n=4, difficulty="wide", d=8, random_state=9)
    model = PDGMM(4, max_steps=300, extended=False, random_state=9, verbose=0).fit(sample.x)
    assert mcc(sample.z, model.transform(sample.x)) > 0.94


def test_dependent_latents_are_separated():
    """Three in four latents active, and dependent: independent spikes and slabs alone would leave them mixed."""
    sample = make_pdgmm(2000, n=4, k=3, rho=75, layers=3, random_state=1)
    model = PDGMM(4, max_steps=200, depth=6, random_state=0, verbose=0).fit(sample.x)
    assert mcc(sample.z, model.transform(sample.x)) > 0.99


def test_latents_that_are_never_inactive_are_known_up_to_an_affine_map(tmp_path):
    sample = make_gmm(2500, n=3, components=6, layers=3, slopes=0.3, random_state=0)
    model = PDGMM(3, max_steps=500, depth=6, random_state=0, verbose=0).fit(sample.x)
    assert model.full_rank_
    assert model.fit_status_ == "stable"
    z = model.transform(sample.x)
    assert r2(sample.z, z) > r2(sample.z, sample.x) + 0.003
    assert model.certificate_.level in (Level.NONE, Level.AT)
    assert model.active(sample.x).all()
    assert model.masks_.patterns.tolist() == [[True] * 3]
    assert model.blocks_ == ((0, 1, 2),)
    np.testing.assert_allclose(model.inverse_transform(z), sample.x, atol=1e-8)
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.transform(sample.x), z)
    assert again.score(sample.x) == pytest.approx(model.score(sample.x))


def test_skewed_latents_are_not_bent_into_gaussians():
    """One-sided noise. Under the exact mixture, which is Gaussian, the same data end at 0.93."""
    sample = make_pdgmm(5000, n=5, noise_law="exponential", random_state=5)
    model = PDGMM(5, **QUICK | {"max_steps": 1000, "depth": 8}).fit(sample.x)
    assert model.fit_status_ == "stable"
    assert mcc(sample.z, model.transform(sample.x)) > 0.95
    assert model.skewed_
    assert model.certificate_.level == Level.NONE
    assert model.certificate_["gaussian"].verdict == "fails"


def test_many_data_sets_are_fitted_in_one_batch():
    """Each copy finds the latents of one data set, alone in its shape or not."""
    samples = [make_pdgmm(rows, n=4, layers=2, random_state=seed) for rows, seed in ((800, 2), (800, 3), (700, 4))]
    models = PDGMM(4, **QUICK | {"max_steps": 100, "depth": 3}).fit_many([s.x for s in samples])
    found = np.array([[mcc(sample.z, model.transform(sample.x)) for model in models] for sample in samples])
    assert (np.diag(found) > 0.97).all()
    assert (found[~np.eye(3, dtype=bool)] < 0.9).all()


def test_a_simulator_gives_fresh_rows_at_every_step():
    sample = make_pdgmm(800, n=2, layers=2, delta=1, random_state=0)
    model = PDGMM(2, **QUICK | {"max_steps": 100, "depth": 3}).fit(sample.source)
    assert mcc(sample.z, model.transform(sample.x)) > 0.95


@pytest.mark.parametrize("wrong", [False, True])
def test_noise_is_fitted_to_a_linear_start_that_needs_repair(monkeypatch, wrong):
    """The start is that of `unmix` on the same rows, with noise or without."""
    x = make_pdgmm(300, n=4, k=3, delta=2, layers=1, random_state=0).x
    x = x + 0.2 * x.std(0) * np.random.default_rng(0).normal(size=x.shape)
    y = Coordinates.fit(x, 4).project(x)[0]
    monkeypatch.setattr(estimator, "needs_repair", lambda *_: wrong)
    rows = estimator._sparse_rows(y, y, np.eye(4, 5), seed=3)
    found = y @ rows[:, :4].T + rows[:, 4]
    assert mcc(unmix(y, 3, noisy=wrong).latents(y), found) > 0.999
    assert mcc(unmix(y, 3, noisy=not wrong).latents(y), found) < 0.999


@pytest.mark.parametrize(
    "bad", [{"depth": 1}, {"batch_size": 1}, {"max_steps": 1}, {"learning_rate": 0.0}, {"extended": 1}]
)
def test_bad_parameters_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        PDGMM(2, **QUICK | bad).fit(np.eye(9, 2))
