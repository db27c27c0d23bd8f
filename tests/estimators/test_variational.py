"""The evidence lower bound: its value in a known model, its training and what it reads off the nets."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from autoencoder_helpers import QUICK, LinearModel, interrupt, require_moments
from identifiable import IVAE, MFCVAE, VAE, DamagedFileError, DataError, IFlow, Mixture, VaDE
from identifiable.estimators import mixture_vae, variational
from identifiable.nets import Dense

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
TINY = {key: value for key, value in QUICK.items() if key != "hidden"}
DROPPING = Dense((8,), dropout=0.3, dropout_after=1)


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    return np.tanh(rng.normal(size=(150, 2)) @ rng.normal(size=(2, 4))) + 0.1 * rng.normal(size=(150, 4))


@pytest.mark.parametrize("seed", range(2))
def test_the_bound_is_the_likelihood_where_q_is_the_posterior(seed):
    known = LinearModel(VAE(), seed, [[0.0, 0.0]], [[1.0, 1.0]], orthogonal=True)
    slope, shift, covariance = known.posterior(0)
    model, exact = known.set_encoder(slope, shift, covariance).model, known.given(0)
    for importance in (False, True):
        found = model.score_samples(known.x, importance=importance)
        np.testing.assert_allclose(found, exact.logpdf(known.x), rtol=1e-8)
    assert model.score(known.x) == pytest.approx(exact.logpdf(known.x).mean())
    np.testing.assert_allclose(model.transform(known.x), known.rows @ slope + shift, atol=1e-10)
    np.testing.assert_allclose(model.inverse_transform([[0.0, 0.0]])[0], exact.mean)
    require_moments(model.sample(20_000, random_state=0), exact)


def test_the_bound_lacks_the_divergence_of_q_from_the_posterior(monkeypatch):
    monkeypatch.setattr(variational, "DRAWS", 1024)
    known = LinearModel(VAE(), 0, [[0.0, 0.0]], [[1.0, 1.0]], orthogonal=True)
    slope, shift, covariance = known.posterior(0)
    known.set_encoder(slope, shift, covariance * np.exp(0.6))
    exact = known.given(0).logpdf(known.x)
    bound, tighter = (known.model.score_samples(known.x, importance=i) for i in (False, True))
    np.testing.assert_allclose(exact - bound, np.exp(0.6) - 1 - 0.6, atol=0.02)  # of two latents
    np.testing.assert_allclose(tighter, exact, atol=0.02)
    assert (bound < tighter).all()


def test_draws_from_a_mixture_or_one_of_its_components():
    mixture, rng = Mixture([0.3, 0.7], [[0.0], [10.0]], [[1.0], [4.0]]), np.random.RandomState(0)
    for component, mean, sd in ((None, 7.0, 4.9), (0, 0.0, 1.0), (1, 10.0, 2.0)):
        z = variational.draw_from(mixture, 5000, component, "cell", rng)
        assert z.shape == (5000, 1)
        np.testing.assert_allclose((z.mean(), z.std()), (mean, sd), atol=0.2)
    for wrong in (2, -1, 0.5):
        with pytest.raises(DataError, match="cell"):
            variational.draw_from(mixture, 1, wrong, "cell", rng)


def test_the_reported_scores_are_the_bound_of_the_restarts(x):
    model = VAE(2, **QUICK | {"max_steps": 60}).fit(x)
    np.testing.assert_allclose(model.restart_scores_, -model.history_.criterion.min(0), rtol=1e-4)
    units = np.log(model.scale_).sum()
    held_out = model._split(x, None).X_held
    assert model.score(held_out) + units == pytest.approx(model.restart_scores_[model.kept_], abs=0.5)
    assert model.score(x) > VAE(2, **QUICK | {"max_steps": 1}).fit(x).score(x) + 0.2


@pytest.mark.parametrize(
    ("model", "weight"),
    [(VAE(2), 1.0), (VaDE(2, 3, init="autoencoder", pretrain_steps=2), 0.1), (IVAE(2, net=Dense((8,))), 0.1)],
    ids=["VAE", "VaDE", "IVAE"],
)
def test_records_count_once_the_divergence_has_its_full_weight(model, weight, x):
    model = clone(model).set_params(**QUICK).fit(x, np.arange(150) % 3)
    assert model._first_beta == weight
    before = model.history_.step < (0 if weight == 1 else 5)
    np.testing.assert_array_equal(np.isnan(model.history_.criterion).all(1), before)


@pytest.mark.parametrize(
    "model",
    [
        VaDE(2, 3, init="flow", pretrain_steps=3),
        VaDE(2, 3, net=DROPPING, likelihood="bernoulli", binarise="draw", pretrain_steps=3),
        MFCVAE(4, 2, facets=2, progressive=True, pretrain_steps=3),
        IVAE(2),
    ],
    ids=["VaDE-flow", "VaDE-dropout", "MFCVAE", "IVAE"],
)
def test_a_resumed_fit_equals_an_uninterrupted_one(model, x, tmp_path, monkeypatch):
    """Its initialisation, which the checkpoint has left behind, does not run again."""
    rows, u, path = (x > 0).astype(float) if model.likelihood == "bernoulli" else x, np.arange(150) % 3, tmp_path / "c"
    before = torch.get_rng_state().clone()
    whole = clone(model).set_params(**QUICK).fit(rows, u)
    assert torch.equal(before, torch.get_rng_state())  # dropout depends on the seed alone
    resumable = clone(model).set_params(**QUICK, checkpoint=path)
    interrupt(resumable, rows, u, monkeypatch, after=6)
    with pytest.raises(DamagedFileError, match="another problem"):
        clone(resumable).set_params(batch_size=31).fit(rows, u)
    for method in ("_start_at_autoencoder", "_start_at_flow"):
        monkeypatch.setattr(mixture_vae.MixtureVAE, method, None)
    monkeypatch.setattr(IFlow, "fit", None)
    resumed = clone(resumable).fit(rows, u)
    assert not path.exists()
    for a, b in zip(whole.module_.state_dict().values(), resumed.module_.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    np.testing.assert_array_equal(whole.history_.loss, resumed.history_.loss)
