"""RademacherVAE: u is the sign pattern of a fixed projection, and the bound is one of the likelihood of the mixture."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits

from identifiable import DataError, Level, RademacherVAE

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")

QUICK = {"n_restarts": 2, "max_steps": 60, "batch_size": 64, "hidden": (16,), "random_state": 0, "verbose": 0}


def rows():
    rng = np.random.default_rng(0)
    return np.tanh(rng.normal(size=(80, 2)) @ rng.normal(size=(2, 5))) + 0.2 * rng.normal(size=(80, 5)) + 3


@pytest.fixture(scope="module")
def x():
    return rows()  # fewer than 100: all of them are trained on


@pytest.fixture(scope="module")
def model(x):
    return RademacherVAE(2, n_bits=3, **QUICK).fit(x)


def given_cell(linear):
    """Weights, means and covariances of x given each cell, of a model whose decoder is affine."""
    b = linear.inverse_transform(np.zeros((1, 2)))
    W, mixture = linear.inverse_transform(np.eye(2)) - b, linear.mixture_
    noise = linear.module_.log_noise.detach()[0, 0].double().exp().numpy() * linear.scale_
    covariances = W.T @ mixture.covariances @ W + np.diag(noise**2)
    return list(zip(mixture.weights, mixture.means @ W + b, covariances, strict=True))


@pytest.fixture(scope="module")
def linear(x):
    """Without hidden layers the decoder is affine, and log p(x) is that of a Gaussian mixture."""
    return RademacherVAE(2, n_bits=2, **QUICK | {"hidden": (), "max_steps": 300, "learning_rate": 0.02}).fit(x)


# -- the hash -------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_cells_are_the_sign_pattern_of_the_projection(likelihood):
    x = rows() if likelihood == "gaussian" else np.random.default_rng(0).uniform(size=(80, 5)) ** 3
    model = RademacherVAE(2, n_bits=4, likelihood=likelihood, **QUICK).fit(x)
    A = model.module_.signs[0].numpy()
    assert A.shape == (5, 4)
    assert set(np.unique(A)) == {-1.0, 1.0}
    seen = (x - model.mean_) / model.scale_
    bits = (seen - seen.mean(0)) @ A > 0
    np.testing.assert_array_equal(model.cells(x), bits @ [1, 2, 4, 8])


def test_every_restart_has_its_own_fixed_projection(model, x):
    signs = model._restarts.signs
    assert signs.shape == (2, 5, 3)
    assert not torch.equal(signs[0], signs[1])
    longer = RademacherVAE(2, n_bits=3, **QUICK | {"max_steps": 61}).fit(x)
    assert torch.equal(longer._restarts.signs, signs)


def test_weights_are_shares_with_one_row_added_per_cell(model, x):
    count = np.bincount(model.cells(x), minlength=8)
    np.testing.assert_allclose(model.mixture_.weights, (count + 1) / (80 + 8), rtol=1e-5)


def test_the_prior_of_a_row_is_the_gaussian_of_its_cell(model, x):
    seen = torch.as_tensor((x - model.mean_) / model.scale_, dtype=torch.float32)[None]
    u, mixture = model.cells(x), model.mixture_
    log_share, mean, log_sd = (t[0].detach().numpy() for t in model.module_.prior(seen))
    np.testing.assert_allclose(np.exp(log_share), mixture.weights[u], rtol=1e-4)
    np.testing.assert_allclose(mean, mixture.means[u], rtol=1e-5)
    np.testing.assert_allclose(np.exp(2 * log_sd), np.diagonal(mixture.covariances, axis1=1, axis2=2)[u], rtol=1e-4)


# -- the bound ------------------------------------------------------------------------


@torch.no_grad()
def test_the_divergence_is_that_of_draws(model, x):
    module = model.module_
    seen = torch.as_tensor((x[:5] - model.mean_) / model.scale_, dtype=torch.float32)[None]
    q = module.encode(seen)
    exact = model._divergence(module, q, q.mean, (seen,), 80)
    noise = torch.randn(5_000, 5, 2, generator=torch.Generator().manual_seed(0))
    again = seen.expand(len(noise), -1, -1).reshape(1, -1, 5)
    prior = model._log_prior(module, q.at(noise).reshape(1, -1, 2), again).reshape(len(noise), 5)
    drawn = q.log_density(noise) - prior
    error = drawn.std(0) / len(noise) ** 0.5
    assert ((drawn.mean(0) - exact[0]).abs() < 5 * error).all()


def test_the_bound_stays_below_the_likelihood(linear, x):
    """Log p(x, u(x)) is known here and lies below log p(x): the posterior of the model is never certain of u."""
    joint = np.stack([np.log(w) + multivariate_normal(m, c).logpdf(x) for w, m, c in given_cell(linear)], 1)
    own = joint[np.arange(len(x)), linear.cells(x)]
    bound, tighter = linear.score_samples(x), linear.score_samples(x, importance=True)
    assert (bound <= tighter + 1e-9).all()
    assert (tighter < own + 0.1).all()  # 32 draws
    assert tighter.mean() < own.mean() + 0.01
    assert tighter.mean() > own.mean() - 0.5
    assert own.mean() < logsumexp(joint, axis=1).mean() - 0.01


# -- what a fit gives -----------------------------------------------------------------


def test_samples_of_a_cell_have_its_moments(linear):
    for cell, (_, mean, covariance) in enumerate(given_cell(linear)):
        drawn = linear.sample(10_000, random_state=0, cell=cell)
        np.testing.assert_allclose(drawn.mean(0), mean, atol=5 * drawn.std() / 10_000**0.5)
        np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.05 * drawn.var())


@pytest.mark.parametrize("cell", [-1, 8, 0.5])
def test_unknown_cells_are_refused(model, cell):
    with pytest.raises(DataError, match="cell must be a number"):
        model.sample(3, cell=cell)


@pytest.mark.parametrize("binarise", [None, "draw", "threshold"])
def test_a_fit_to_images_returns_images(binarise):
    images = load_digits().images[:80] / 16
    settings = QUICK | {"max_steps": 3, "n_restarts": 1, "likelihood": "bernoulli", "binarise": binarise}
    model = RademacherVAE(3, n_bits=3, net="convnet", **settings).fit(images)
    z = model.transform(images)
    assert z.shape == (80, 3)
    assert model.inverse_transform(z).shape == images.shape
    assert model.sample(4, random_state=0).shape == (4, 8, 8)
    assert np.isfinite(model.score_samples(images)).all()
    assert len(np.unique(model.cells(images))) > 4


def test_the_certificate_has_no_level(model):
    found = model.certificate_
    assert found.level == found.if_undecided_hold == Level.NONE
    assert found["u"].verdict == "fails"
    assert found["agreement"].statistic == model.stability_.score


@pytest.mark.parametrize("bits", [0, 17, 2.5])
def test_wrong_numbers_of_bits_are_refused(x, bits):
    with pytest.raises(ValueError, match="'n_bits' parameter of RademacherVAE"):
        RademacherVAE(2, n_bits=bits, **QUICK).fit(x)
