"""PDGMM against nonlinear mixtures whose latents are known, and the laws of its priors."""

import numpy as np
import pytest
import torch

from identifiable import Level, RecoveryWarning, SparseUnmixing
from identifiable.data import make_pdgmm
from identifiable.densities import LOG_2PI
from identifiable.estimators._pdgmm_priors import MaskedGaussians, SpikeAndSlab, mine_masks, softplus
from identifiable.estimators.pdgmm import PDGMM
from identifiable.metrics import mcc


@pytest.fixture(scope="module")
def bent():
    """The published mixing, rest values one sd from the mean; the fit, and fresh rows."""
    sample = make_pdgmm(5000, n=4, delta=1, random_state=2)
    model = PDGMM(4, n_restarts=2, max_steps=1200, random_state=0, verbose=0).fit(sample.x)
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


def test_score_is_a_density_in_the_units_of_the_data():
    """Scaling a column by c moves the log-density by -log c; a power of two leaves the rest as it is, bit for bit."""
    sample = make_pdgmm(1000, n=2, layers=1, random_state=0)
    options = {"n_restarts": 1, "max_steps": 20, "depth": 3, "long": False, "random_state": 0, "verbose": 0}
    one = PDGMM(2, **options).fit(sample.x).score(sample.x)
    two = PDGMM(2, **options).fit(sample.x * [8.0, 1.0]).score(sample.x * [8.0, 1.0])
    assert one - two == pytest.approx(np.log(8), abs=1e-4)


def test_more_columns_than_latents_and_more_latents_than_there_are():
    sample = make_pdgmm(3000, n=3, layers=1, random_state=0)
    wide = sample.x @ np.random.default_rng(0).normal(size=(3, 5))
    model = PDGMM(4, n_restarts=2, max_steps=300, depth=4, long=False, random_state=0, verbose=0).fit(wide)
    z = model.transform(wide)
    assert z.shape == (3000, 4)
    assert model.unused_ == (3,)
    assert (z[:, 3] == 0).all()
    assert mcc(sample.z, z) > 0.99
    np.testing.assert_allclose(model.inverse_transform(z), wide, atol=1e-6)


def test_what_is_not_recovered_is_called_so():
    """Gaussian data have no latents to find: restarts disagree, a warning and the certificate say so."""
    x = np.random.default_rng(0).normal(size=(2000, 4))
    with pytest.warns(RecoveryWarning, match="agree at"):
        model = PDGMM(4, n_restarts=3, max_steps=200, depth=4, long=False, random_state=0, verbose=0).fit(x)
    assert model.certificate_.level == Level.NONE
    assert model.certificate_["agreement"].verdict == "fails"


# -- the priors ----------------------------------------------------------------------


def test_both_priors_are_densities():
    """They integrate to one on a grid in two dimensions."""
    e = torch.tensor(0.3)
    grid = torch.linspace(-8, 8, 641)
    t = torch.cartesian_prod(grid, grid)[None]
    spike = SpikeAndSlab(torch.tensor([[0.3, 0.7]]), torch.tensor([[1.0, -0.5]]))
    masks = torch.tensor([[[1.0, 0.0], [1.0, 1.0]]])
    exact = MaskedGaussians(masks, torch.tensor([[0.25, 0.75]]).log(), torch.tensor([[[1.0, -0.5]]]))
    exact.correlations[0, 0, 1] = exact.correlations[0, 1, 0] = 0.6
    exact.set_width(e)
    for prior in (spike, exact):
        assert float(prior(t, e).detach().exp().sum() * 0.025**2) == pytest.approx(1, abs=1e-3)


def test_independent_masks_agree_with_the_exact_mixture():
    """With all four masks at product weights and no correlation, both priors are one, up to the slab's e²."""
    e, p, means = torch.tensor(1e-3), torch.tensor([0.3, 0.7]), torch.tensor([1.0, -0.5])
    masks = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])[None]
    weights = torch.where(masks[0] > 0, p, 1 - p).prod(1)
    exact = MaskedGaussians(masks, weights.log()[None], means[None, None])
    exact.set_width(e)
    t = torch.tensor([[[0.0, 0.0], [0.7, 0.0], [0.0, -1.0], [2.0, 0.3]]])
    spike = SpikeAndSlab(p[None], means[None])
    torch.testing.assert_close(exact(t, e), spike(t, e), rtol=1e-3, atol=1e-3)


def test_the_gradient_of_the_exact_mixture_is_that_of_its_components():
    rng = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    masks = (draw(2, 5, 3) > 0).double()
    prior = MaskedGaussians(masks, draw(2, 5), draw(2, 1, 3)).double()
    prior.set_width(torch.tensor([[0.4], [0.7]], dtype=torch.float64))
    t = draw(2, 7, 3).requires_grad_()
    by_hand = torch.autograd.grad(prior(t, torch.tensor(1.0)).square().sum(), [t, prior.means])
    plain = torch.logsumexp(prior.components(t), -1) - 1.5 * LOG_2PI
    torch.testing.assert_close(by_hand, torch.autograd.grad(plain.square().sum(), [t, prior.means]))


def test_the_mixture_follows_the_latents():
    """Weights and correlation move to those of the rows shown."""
    rng = torch.Generator().manual_seed(0)
    v = torch.randn(1, 4000, 2, generator=rng) @ torch.linalg.cholesky(torch.tensor([[1.0, 0.7], [0.7, 1.0]])).T
    both = torch.rand(1, 4000, 1, generator=rng) < 0.8
    t = torch.where(both, v, v * torch.tensor([1.0, 0.0]))
    prior = MaskedGaussians(
        torch.tensor([[[1.0, 0.0], [1.0, 1.0]]]), torch.tensor([[0.5, 0.5]]).log(), torch.zeros(1, 1, 2)
    )
    e = torch.tensor(0.05)
    prior.set_width(e)
    for _ in range(30):
        prior.follow(t, e)
    assert float(prior.correlations[0, 0, 1]) == pytest.approx(0.7, abs=0.05)
    assert prior.log_weights.exp()[0].tolist() == pytest.approx([0.2, 0.8], abs=0.03)


def test_masks_are_the_most_frequent_patterns():
    t = torch.tensor([[[1.0, 0.0]] * 3 + [[1.0, 1.0]] * 5 + [[0.0, 1.0]], [[0.0, 1.0]] * 9])
    masks, log_weights = mine_masks(t, 0.5, 2)
    assert masks[0].tolist() == [[1, 1], [1, 0]]
    assert log_weights[0].exp().tolist() == pytest.approx([5 / 8, 3 / 8])
    assert masks[1].tolist() == [[0, 1], [1, 1]]
    assert log_weights[1].exp().tolist() == pytest.approx([1, 0], abs=1e-6)


def test_softplus():
    w = torch.linspace(-60, 60, 241, dtype=torch.float64)
    torch.testing.assert_close(softplus(w), torch.nn.functional.softplus(w, threshold=50), rtol=0, atol=1e-12)
