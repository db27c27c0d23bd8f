"""The posterior of IVAE and its divergence from the prior, against products of Gaussians and draws."""

import pytest
import torch
from torch.distributions import Laplace, MultivariateNormal

from autoencoder_helpers import rand
from identifiable.estimators.autoencoder import Likelihood, Posterior
from identifiable.estimators.given_u import FAMILIES, PriorGivenU
from identifiable.estimators.ivae_nets import Nets
from identifiable.nets import Dense

U = torch.tensor([[0, 1, 2, 3, 4, 0, 1]])


def random_nets(g, *, family="gaussian", full=True):
    """Return random nets of one member with a table of five values of u; 4 columns, 3 latents."""
    prior = PriorGivenU(1, 3, family, 5, table=True)
    prior.start(rand(g, 5, 3).numpy(), rand(g, 5, 3).mul(0.5).exp().numpy())
    net, columns = Dense((6,), activation="tanh"), Likelihood(1, "gaussian", 4)
    module = Nets(1, 4, net, prior, columns, full=full, bypass=True, rng=g).double()
    with torch.no_grad():
        module.into.copy_(rand(g, 1, 4, 3))
    return module


@pytest.mark.parametrize("full", [True, False])
def test_each_latent_is_the_product_of_two_gaussians(g, full):
    """A vague prior changes nothing, a narrow one determines everything, and correlations remain."""
    module, x = random_nets(g, full=full), rand(g, 1, 7, 4)
    factor, (mean, log_scale) = module.encode(x), module.gaussian_prior(U)
    q = module.posterior(x, (mean, log_scale))
    precision = torch.exp(-2 * log_scale)
    torch.testing.assert_close(1 / q.variance, 1 / factor.variance + precision)
    torch.testing.assert_close(q.mean, (factor.mean / factor.variance + mean * precision) * q.variance)
    torch.testing.assert_close(q.below, factor.below)
    vague, narrow = module.posterior(x, (mean, log_scale + 20)), module.posterior(x, (mean, log_scale - 20))
    torch.testing.assert_close((vague.mean, vague.variance), (factor.mean, factor.variance))
    torch.testing.assert_close((narrow.mean, narrow.variance), (mean, torch.exp(2 * log_scale - 40)))


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_divergence_is_that_of_draws(g, family, full):
    module, x = random_nets(g, family=family, full=full), rand(g, 1, 7, 4)
    module.prior.shift.copy_(rand(g, 1, 1, 3))
    q = module.posterior(x, module.gaussian_prior(U))
    noise = rand(g, 10_000, 7, 3)
    z = q.at(noise)
    mixed = torch.eye(3).double() + (0 if q.below is None else q.below[0])
    log_q = MultivariateNormal(q.mean[0], scale_tril=q.log_sd[0].exp()[..., None] * mixed).log_prob(z)
    ratio = log_q - module.prior.log_density(z, *module.prior(U))
    exact = module.divergence(q, U)[0]
    assert ((ratio.mean(0) - exact).abs() < 5 * ratio.std(0) / 10_000**0.5 + 1e-9).all()
    assert (exact > 0).all()


@pytest.mark.parametrize("family", ["variance", "gaussian"])
def test_the_divergence_from_the_prior_itself_is_zero(g, family):
    module = random_nets(g, family=family)
    mean, log_scale = module.prior(U)
    same = module.divergence(Posterior(mean, log_scale, None), U)
    torch.testing.assert_close(same, torch.zeros_like(same), atol=1e-12, rtol=0)
    assert (module.divergence(Posterior(mean, log_scale, rand(g, 1, 7, 3, 3).tril(-1)), U) > 0).all()


def test_the_gaussian_prior_has_the_moments_of_a_laplace(g):
    module = random_nets(g, family="laplace")
    mean, log_scale = module.prior(U)
    laplace, (matched, log_sd) = Laplace(mean, log_scale.exp()), module.gaussian_prior(U)
    torch.testing.assert_close((matched, torch.exp(2 * log_sd)), (laplace.mean, laplace.variance))
