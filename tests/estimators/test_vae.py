"""VAE, β-VAE and β-TC-VAE: their divergences by definition."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import norm

from autoencoder_helpers import QUICK, rand
from identifiable import VAE, BetaTCVAE, BetaVAE
from identifiable.estimators.autoencoder import Posterior

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")


def test_divergences_match_their_definitions(g):
    """β weighs all of it, or the total correlation; the three terms of β-TC-VAE sum to log q - log p for each draw."""
    q = Posterior(rand(g, 1, 9, 2), 0.3 * rand(g, 1, 9, 2), None)
    noise = rand(g, 1, 9, 2)
    z, inputs = q.at(noise), (torch.zeros(1, 9, 4),)

    def divergence(model):
        return model._divergence(None, q, z, inputs, 100)[0].numpy()

    gaussian = torch.distributions.Normal(q.mean, q.log_sd.exp())
    plain = torch.distributions.kl_divergence(gaussian, torch.distributions.Normal(0.0, 1.0)).sum(-1)[0].numpy()
    np.testing.assert_allclose(divergence(VAE()), plain, rtol=1e-6)
    np.testing.assert_allclose(divergence(BetaVAE(beta=3.5)), 3.5 * plain, rtol=1e-6)
    prior = norm.logpdf(z[0].numpy()).sum(-1)
    np.testing.assert_allclose(VAE()._log_prior(None, z, inputs[0])[0], prior, rtol=1e-6)
    np.testing.assert_allclose(divergence(BetaTCVAE(beta=1)), q.log_density(noise)[0].numpy() - prior, rtol=1e-6)
    each = norm.logpdf(z[0].numpy()[:, None], q.mean[0].numpy(), q.log_sd[0].exp().numpy())  # (draws, rows, latents)
    joint, single = (logsumexp(v, axis=1) - np.log(9 * 100) for v in (each.sum(2), each))
    correlation = joint - single.sum(1)
    np.testing.assert_allclose(divergence(BetaTCVAE(beta=5)) - divergence(BetaTCVAE(beta=1)), 4 * correlation)


def test_weight_one_is_the_plain_bound():
    x = np.random.default_rng(0).uniform(size=(80, 4))
    plain, weighted, heavier = (model.set_params(**QUICK).fit(x) for model in (VAE(), BetaVAE(beta=1.0), BetaVAE()))
    np.testing.assert_array_equal(plain.transform(x), weighted.transform(x))
    assert not np.allclose(plain.transform(x), heavier.transform(x))
    z = plain._draw_latents(10_000, np.random.RandomState(0))
    np.testing.assert_allclose((z.mean(0), z.std(0)), ([0, 0], [1, 1]), atol=0.05)


@pytest.mark.parametrize("model", [BetaVAE, BetaTCVAE])
def test_wrong_weights_are_refused(model):
    with pytest.raises(ValueError, match="'beta' parameter"):
        model(beta=0, **QUICK).fit(np.eye(20)[:, :3])
