"""Batched nets against torch's own, members against each other, and exact output statistics."""

import pytest
import torch
from torch import nn

from identifiable.nets import ACTIVATIONS, MLP, Linear, Standardise, calibrate, select_member


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_each_member_is_an_ordinary_mlp(rng, activation):
    net = MLP(3, (4, 6, 5, 2), activation=activation, rng=rng).double()
    x = torch.randn(3, 8, 4, generator=rng, dtype=torch.float64)
    out = net(x)
    for r in range(3):
        h = x[r]
        for i, layer in enumerate(net.layers):
            h = nn.functional.linear(h, layer.weight[r].T, layer.bias[r, 0])
            h = ACTIVATIONS[activation](h) if i < 2 else h
        torch.testing.assert_close(out[r], h)


def test_members_start_different_and_a_seed_repeats_them():
    a, b = (Linear(3, 4, 2, rng=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(a.weight, b.weight)
    assert not torch.equal(a.weight[0], a.weight[1])
    assert a.weight.abs().max() <= 0.5  # 1 / sqrt(4)


def test_a_member_feels_nothing_of_the_others(rng):
    net = MLP(3, (4, 6, 2), rng=rng)
    x = torch.randn(3, 8, 4, generator=rng)
    before = net(x)
    net(x)[0].square().sum().backward()
    for p in net.parameters():
        assert p.grad[0].abs().sum() > 0
        assert p.grad[1:].abs().sum() == 0
    with torch.no_grad():
        net.layers[0].weight[0] += 1
    torch.testing.assert_close(net(x)[1:], before[1:], rtol=0, atol=0)


def test_select_member(rng):
    net = nn.Sequential(MLP(3, (4, 6, 2), rng=rng), Standardise(3, 2)).double()
    x = torch.randn(3, 50, 4, generator=rng, dtype=torch.float64)
    calibrate(net, lambda: [x])
    alone = select_member(net, 1)
    torch.testing.assert_close(alone(x[1:2])[0], net(x)[1])
    assert all(len(p) == 1 for p in alone.parameters())


def test_without_bias_zero_goes_to_zero(rng):
    net = MLP(2, (4, 3), bias=False, rng=rng)
    assert net(torch.zeros(2, 5, 4)).abs().max() == 0


@pytest.mark.parametrize("widths", [(3,), (3, 0, 2), ()])
def test_bad_widths(widths):
    with pytest.raises(ValueError, match="at least two positive sizes"):
        MLP(1, widths)


def test_standardise_uses_the_batch_in_training_and_gradients_flow_through_it(rng):
    layer = Standardise(2, 3)
    x = (5 + 3 * torch.randn(2, 400, 3, generator=rng, dtype=torch.float64)).requires_grad_()
    y = layer(x)
    torch.testing.assert_close(y.mean(1), torch.zeros(2, 3, dtype=torch.float64), atol=1e-10, rtol=0)
    torch.testing.assert_close(y.std(1, correction=0), torch.ones(2, 3, dtype=torch.float64), atol=1e-5, rtol=0)
    reference = nn.BatchNorm1d(3, affine=False).double()
    torch.testing.assert_close(y[0], reference(x[0]))
    torch.testing.assert_close(
        torch.autograd.grad(y[0].pow(3).sum(), x, retain_graph=True)[0][0],
        torch.autograd.grad(reference(x[0]).pow(3).sum(), x)[0][0],
    )


@pytest.mark.parametrize("block", [1, 7, 100, 1000])
def test_calibrated_statistics_are_exact_whatever_the_blocks(rng, block):
    """Two layers in a row, data far from the origin, blocks of any size: mean 0 and sd 1 on the whole data."""
    net = nn.Sequential(
        MLP(2, (3, 4), rng=rng), Standardise(2, 4), MLP(2, (4, 5, 2), rng=rng), Standardise(2, 2)
    ).double()
    x = 1e4 + torch.randn(2, 1000, 3, generator=rng, dtype=torch.float64)
    calibrate(net, lambda: x.split(block, dim=1))
    assert not net.training
    y = net(x)
    torch.testing.assert_close(y.mean(1), torch.zeros(2, 2, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(y.std(1, correction=0), torch.ones(2, 2, dtype=torch.float64), atol=1e-9, rtol=0)


def test_a_constant_output_is_centred_and_left():
    layer = Standardise(1, 2)
    x = torch.stack([torch.full((10,), 3.0), torch.arange(10.0)], dim=1)[None]
    calibrate(layer, lambda: [x])
    assert layer(x)[..., 0].abs().max() == 0


def test_calibrate_without_data_says_so():
    with pytest.raises(ValueError, match="at least one batch"):
        calibrate(Standardise(1, 2), lambda: [])
