"""The autoencoder with a normalised code that TwoStage and GroupedSparse share."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from autoencoder_helpers import rand
from identifiable.estimators import TwoStage
from identifiable.estimators.sparse_autoencoder import Bottleneck, excess_l1
from identifiable.nets import MLP

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
QUICK = {"n_restarts": 2, "random_state": 0, "verbose": 0, "hidden": (6,), "max_steps": 40, "batch_size": 64}
QUICK |= {"sparse_steps": 0, "learning_rate": 1e-2}  # stage 1 of TwoStage alone


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    return np.tanh(rng.normal(size=(150, 2)) @ rng.normal(size=(2, 4))) + 0.1 * rng.normal(size=(150, 4)) + 3


@torch.no_grad()
@pytest.mark.parametrize("epsilon", [1e-12, 0.5])
def test_frozen_statistics_are_those_of_all_rows(g, epsilon):
    """The frozen code equals that of training with all rows as the batch, ε included."""
    module = Bottleneck(*(MLP(2, w, rng=g) for w in ((4, 6, 2), (2, 6, 4))), epsilon=epsilon).double()
    for parameter in (module.scale, module.shift):
        parameter.copy_(rand(g, *parameter.shape))
    rows = rand(g, 90, 4)
    x = rows.expand(2, -1, -1)
    trained = module.train()(x)
    torch.testing.assert_close(trained.mean(1, keepdim=True), module.shift)
    if epsilon < 1e-6:
        torch.testing.assert_close(trained.std(1, correction=0)[:, None], module.scale.abs())
    module.freeze(lambda: module.blocks(rows))
    z = module.codes(rows)
    torch.testing.assert_close(z, trained)
    torch.testing.assert_close(module.latents(x), trained)
    error = (module.observations(z) - x).square().mean(-1)
    torch.testing.assert_close((module.reconstruction(x, z), module.log_prob(x)), (error.mean(1), -error))


def test_scale_and_shift_are_trained_on_request():
    nets = MLP(1, (2, 2)), MLP(1, (2, 2))
    for learn in (True, False):
        module = Bottleneck(*nets, learn_scale=learn)
        assert module.scale.requires_grad == module.shift.requires_grad == learn


def test_excess_l1_is_the_mean_size_above_the_bound():
    z = torch.tensor([[[1.0, -3.0]], [[0.0, 0.0]]])
    assert excess_l1(z, 0.5).tolist() == [[1.5], [-0.5]]


def test_the_score_is_the_density_of_the_reconstruction_error(x):
    model = TwoStage(2, **QUICK).fit(x)
    decoded = model.inverse_transform(model.transform(x))
    held_out = model._split(x, None).held
    assert model.noise_ == pytest.approx(np.sqrt(np.square(x - decoded)[held_out].mean()), rel=1e-4)
    np.testing.assert_allclose(model.score_samples(x), norm.logpdf(x, decoded, model.noise_).sum(1), rtol=1e-5)
    assert np.square(x - decoded).mean() < 0.5 * x.var()
    errors = -np.square(model.latents_of_restarts(x)).mean((1, 2))
    assert errors.shape == model.restart_scores_.shape


def test_samples_decode_gaussian_latents(x):
    model = TwoStage(2, **QUICK).fit(x)
    z = model.transform(x)[model._split(x, None).train]
    np.testing.assert_allclose(model.latent_mean_, z.mean(0), atol=1e-6)
    np.testing.assert_allclose(model.latent_covariance_, np.cov(z.T, ddof=0), atol=1e-6)
    drawn = model.sample(5000, random_state=0)
    np.testing.assert_allclose((drawn.mean(0) - x.mean(0)) / x.std(0), 0, atol=0.3)
    model.noise_ *= 100
    np.testing.assert_allclose(model.sample(5000, random_state=0).std(0), model.noise_, rtol=0.05)
    single = TwoStage(1, **QUICK).fit(x)
    assert single.latent_covariance_.shape == (1, 1)
    assert single.sample(3).shape == (3, 4)


def test_columns_keep_their_relative_sizes(x):
    """One scale for all columns: rescaled data are the same problem, a rescaled column is not."""
    model = TwoStage(2, **QUICK).fit(x)
    rows, z = model._split(x, None).X_train, model.transform(x)
    np.testing.assert_allclose(model.mean_, rows.mean(0))
    assert model.scale_ == pytest.approx(np.sqrt(rows.var(0).mean()))
    np.testing.assert_allclose(TwoStage(2, **QUICK).fit(4 * x).transform(4 * x), z, atol=1e-3)
    taller = x * [5, 1, 1, 1]
    assert np.abs(TwoStage(2, **QUICK).fit(taller).transform(taller) - z).max() > 0.01


def test_constrained_training_has_constant_rates():
    plan = TwoStage()._constrained(7, 5, (0.1, 0.2))
    assert (plan.steps, plan.batch_size, plan.dual_rate, plan.betas) == (7, 5, 0.2, (0.9, 0.999))
    assert {plan.rate(step) for step in range(7)} == {0.1}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden", (8, 0)),
        ("hidden", 8),
        ("sparsity", 0.0),
        ("epsilon", 0),
        ("slope", -0.1),
        ("learn_scale", 1),
        ("max_steps", 0),
        ("batch_size", 1),
        ("dual_rate", 0),
        ("learning_rate", "fast"),
    ],
)
def test_wrong_parameters_are_refused(x, name, value):
    with pytest.raises(ValueError, match=f"'{name}' parameter of TwoStage"):
        TwoStage(2, **QUICK | {name: value}).fit(x)
