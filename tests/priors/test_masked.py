"""Mixtures over masks and of full rank: densities, gradients, and weights that follow the latents."""

import pytest
import torch

from identifiable.distributions.densities import LOG_2PI
from identifiable.priors.masked import FullGaussians, MaskedGaussians, mine_masks
from identifiable.priors.spike_slab import SpikeAndSlab


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_masked_density_is_that_of_its_components():
    masks = torch.tensor([[[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]]).double()
    weights, mean, e = torch.tensor([0.25, 0.75]).double(), draw(3, seed=1), 0.3
    prior = MaskedGaussians(masks, weights.log()[None], mean[None, None]).double()
    root = draw(3, 3, seed=2)
    correlations = torch.corrcoef(root)
    prior.correlations[0] = correlations
    prior.set_width(torch.tensor(e).double())
    t, parts = draw(1, 20, 3, seed=3), []
    for mask, weight in zip(masks[0], weights, strict=True):
        covariance = mask[:, None] * correlations * mask + e**2 * torch.eye(3)
        parts.append(torch.distributions.MultivariateNormal(mask * mean, covariance).log_prob(t[0]) + weight.log())
    parts = torch.stack(parts, 1)
    torch.testing.assert_close(prior(t, torch.tensor(e))[0], torch.logsumexp(parts, 1))
    torch.testing.assert_close(prior.components(t)[0].softmax(1), parts.softmax(1))


def test_independent_masks_give_the_spike_and_slab_density():
    """With all four masks at product weights and no correlation both priors agree, up to the e² of the slab."""
    e, p, means = torch.tensor(1e-3), torch.tensor([0.3, 0.7]), torch.tensor([1.0, -0.5])
    masks = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])[None]
    weights = torch.where(masks[0] > 0, p, 1 - p).prod(1)
    exact = MaskedGaussians(masks, weights.log()[None], means[None, None])
    exact.set_width(e)
    t = torch.tensor([[[0.0, 0.0], [0.7, 0.0], [0.0, -1.0], [2.0, 0.3]]])
    torch.testing.assert_close(exact(t, e), SpikeAndSlab(p[None], means[None])(t, e), rtol=1e-3, atol=1e-3)


def test_the_gradient_is_that_of_the_components():
    prior = MaskedGaussians((draw(2, 5, 3) > 0).double(), draw(2, 5, seed=1), draw(2, 1, 3, seed=2)).double()
    prior.set_width(torch.tensor([[0.4], [0.7]], dtype=torch.float64))
    t = draw(2, 7, 3, seed=3).requires_grad_()
    by_hand = torch.autograd.grad(prior(t, torch.tensor(1.0)).square().sum(), [t, prior.means])
    plain = torch.logsumexp(prior.components(t), -1) - 1.5 * LOG_2PI
    torch.testing.assert_close(by_hand, torch.autograd.grad(plain.square().sum(), [t, prior.means]))


def test_weights_and_correlations_follow_the_latents():
    rng = torch.Generator().manual_seed(0)
    v = torch.randn(1, 4000, 2, generator=rng) @ torch.linalg.cholesky(torch.tensor([[1.0, 0.7], [0.7, 1.0]])).T
    both = torch.rand(1, 4000, 1, generator=rng) < 0.8
    t, e = torch.where(both, v, v * torch.tensor([1.0, 0.0])), torch.tensor(0.05)
    masks = torch.tensor([[[1.0, 0.0], [1.0, 1.0]]])
    prior = MaskedGaussians(masks, torch.tensor([[0.5, 0.5]]).log(), torch.zeros(1, 1, 2))
    prior.set_width(e)
    for _ in range(30):
        prior.follow(t, e)
    assert float(prior.correlations[0, 0, 1]) == pytest.approx(0.7, abs=0.05)
    assert prior.log_weights.exp()[0].tolist() == pytest.approx([0.2, 0.8], abs=0.03)


def test_masks_are_the_most_frequent_patterns():
    t = torch.tensor([[[1.0, 0.0]] * 3 + [[1.0, 1.0]] * 5 + [[0.0, 1.0]], [[0.0, 1.0]] * 9])
    masks, log_weights = mine_masks(t.abs() > 0.5, 2)
    assert masks[0].tolist() == [[1, 1], [1, 0]]
    assert log_weights[0].exp().tolist() == pytest.approx([5 / 8, 3 / 8])
    assert masks[1].tolist() == [[0, 1], [1, 1]]
    assert log_weights[1].exp().tolist() == pytest.approx([1, 0], abs=1e-6)


def test_patterns_with_errors_are_merged():
    """Forty latents, six patterns, one bit in twenty wrong: few rows are right, the majority of a cluster is."""
    rng = torch.Generator().manual_seed(0)
    truth = torch.rand(6, 40, generator=rng) < 0.5
    active = truth[torch.arange(3000) % 6] ^ (torch.rand(3000, 40, generator=rng) < 0.05)
    masks, log_weights = mine_masks(active[None], 100)
    heavy = masks[0][log_weights[0].exp() > 0.1].bool()
    assert {tuple(m.tolist()) for m in heavy} == {tuple(m.tolist()) for m in truth}
    assert log_weights[0].exp()[:6].tolist() == pytest.approx([1 / 6] * 6, abs=0.01)


def test_patterns_without_clusters_are_kept():
    """With eleven latents and all rows different, no cluster has two rows within the radius 0."""
    active = torch.eye(30, 40).bool()[None]
    masks, log_weights = mine_masks(active, 5)
    assert masks.shape[1] <= 5
    assert log_weights.exp().sum() == pytest.approx(1, abs=1e-5)


def test_a_full_mixture_follows_by_em():
    """From a poor start the means and covariances become those of two clouds, and the density theirs."""
    near = torch.randn(1, 2000, 2, generator=torch.Generator().manual_seed(0))
    clouds = [near * torch.tensor([1.0, 0.3]), near * 0.5 + torch.tensor([9.0, 0.0])]
    t, e = torch.cat(clouds, 1), torch.tensor(1.0)
    centres, covariances = torch.tensor([[[1.0, 0.0], [7.0, 0.0]]]), torch.eye(2).repeat(1, 2, 1, 1)
    prior = FullGaussians(torch.tensor([[0.5, 0.5]]).log(), centres, covariances)
    for _ in range(30):
        prior.follow(t, e)
    for j, cloud in enumerate(clouds):
        torch.testing.assert_close(prior.centres[0, j], cloud[0].mean(0), rtol=0, atol=1e-3)
        torch.testing.assert_close(prior.covariances[0, j], cloud[0].T.cov(correction=0), rtol=0, atol=2e-3)
    normals = torch.distributions.MultivariateNormal(prior.centres[0], prior.covariances[0])
    density = (normals.log_prob(t[0][:, None]) + prior.log_weights[0]).logsumexp(1)
    torch.testing.assert_close(prior(t, e)[0], density, rtol=0, atol=1e-3)
