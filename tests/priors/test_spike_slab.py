"""Spike-and-slab densities: they integrate to one, and their slabs have mean zero and unit variance."""

import pytest
import torch

from identifiable.distributions.densities import LOG_2PI
from identifiable.priors.spike_slab import ShapedSlabs, SpikeAndSlab, softplus


def shaped(shares, means):
    prior = ShapedSlabs(shares, means)
    with torch.no_grad():
        prior.log_shares.copy_(torch.tensor([2.0, 0.0, -1.0, 0.5]))
        prior.places.copy_(torch.tensor([3.0, -1.0, 0.0, 9.0]))
        prior.raw_widths.copy_(torch.tensor([0.0, 2.0, -3.0, 1.0]))
    return prior


@pytest.mark.parametrize("kind", [SpikeAndSlab, ShapedSlabs, shaped])
def test_densities_integrate_to_one(kind):
    prior = kind(torch.tensor([[0.3, 0.7]]), torch.tensor([[1.0, -0.5]]))
    grid = torch.linspace(-8, 8, 641)
    t = torch.cartesian_prod(grid, grid)[None]
    assert float(prior(t, torch.tensor(0.3)).detach().exp().sum() * 0.025**2) == pytest.approx(1, abs=1e-3)


def test_spike_and_slab_by_hand():
    p, mean, e, t = 0.3, 1.0, 0.2, torch.tensor([-0.5, 0.0, 0.7])
    slab, spike = torch.distributions.Normal(mean, 1.0), torch.distributions.Normal(0.0, e)
    expected = (p * slab.log_prob(t).exp() + (1 - p) * spike.log_prob(t).exp()).log()
    prior = SpikeAndSlab(torch.tensor([[p]]), torch.tensor([[mean]]))
    torch.testing.assert_close(prior(t[None, :, None], torch.tensor([[e]]))[0], expected)


def test_shaped_slabs_have_mean_zero_and_unit_variance():
    t = torch.linspace(-12, 12, 24001)[None, :, None]
    prior = shaped(torch.tensor([[1 - 1e-7]]), torch.zeros(1, 1))
    density = prior(t, torch.tensor([[0.3]])).detach().exp()[0] * 1e-3
    assert float((density * t[0, :, 0]).sum()) == pytest.approx(0, abs=1e-3)
    assert float((density * t[0, :, 0] ** 2).sum()) == pytest.approx(1, abs=1e-3)


def test_shaped_slabs_with_a_small_share_are_the_spike():
    prior, t = ShapedSlabs(torch.tensor([[1e-7]]), torch.zeros(1, 1)), torch.tensor([[[0.0], [0.1]]])
    expected = -0.5 * (t[..., 0] / 0.2) ** 2 - torch.tensor(0.2).log() - 0.5 * LOG_2PI
    torch.testing.assert_close(prior(t, torch.tensor(0.2)), expected, rtol=0, atol=1e-5)


def test_softplus():
    w = torch.linspace(-60, 60, 241, dtype=torch.float64)
    torch.testing.assert_close(softplus(w), torch.nn.functional.softplus(w, threshold=50), rtol=0, atol=1e-12)
