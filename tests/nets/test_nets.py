"""Batched nets against torch's own, members against each other, and exact output statistics."""

import copy
import pickle

import pytest
import torch
from torch import nn

from identifiable.nets import (
    ACTIVATIONS,
    MLP,
    Dropout,
    Linear,
    Standardise,
    calibrate,
    in_precision_of,
    select_member,
    set_rng,
)


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


def test_slopes_are_what_the_names_say():
    h = torch.tensor([-2.0, 3.0])
    for name, slope in (("relu", 0), ("leaky_relu", 0.2), ("leaky_relu_0.1", 0.1), ("leaky_relu_0.01", 0.01)):
        torch.testing.assert_close(ACTIVATIONS[name](h), torch.tensor([-2.0 * slope, 3.0]))
    torch.testing.assert_close(ACTIVATIONS["elu"](h), torch.stack([torch.expm1(h[0]), h[1]]))


def test_last_gives_the_outputs(rng):
    net = MLP(2, (4, 6, 3), rng=rng)
    with torch.no_grad():
        net.last.weight.zero_()
        net.last.bias.fill_(7)
    assert (net(torch.ones(2, 5, 4)) == 7).all()


def dropped(seed, x, p=0.3):
    layer = Dropout(p)
    set_rng(layer, torch.Generator().manual_seed(seed))
    return layer(x)


def test_dropout_drops_its_share_and_keeps_the_mean():
    y = dropped(0, torch.ones(2, 500, 200, dtype=torch.float64))
    assert set(y.unique().tolist()) == {0, 1 / 0.7}
    shares = (y == 0).double().mean((1, 2))
    assert (shares - 0.3).abs().max() < 5 * (0.3 * 0.7 / 100_000) ** 0.5
    assert not torch.equal(y[0], y[1])


def test_dropout_repeats_with_its_generator_and_leaves_the_global_one_alone():
    before, x = torch.get_rng_state(), torch.ones(1, 4, 50)
    assert torch.equal(dropped(1, x), dropped(1, x))
    assert not torch.equal(dropped(1, x), dropped(2, x))
    assert torch.equal(before, torch.get_rng_state())


def test_dropout_is_the_identity_after_training_and_for_no_share():
    x = torch.ones(1, 4, 50)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0)(x) is x


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_dropout_has_no_generator(copied):
    layer, rng = Dropout(0.3), torch.Generator()
    set_rng(layer, rng)
    again = copied(layer)
    assert (again.p, again.rng, again.training, layer.rng) == (0.3, None, True, rng)
    assert layer.state_dict() == {}


@pytest.mark.parametrize("p", [-0.1, 1, 1.5])
def test_bad_share(p):
    with pytest.raises(ValueError, match=f"at least 0 and less than 1. Got {p}"):
        Dropout(p)


@pytest.mark.parametrize("after", [1, 2])
def test_mlp_drops_after_the_layer_it_is_told(rng, after):
    net = MLP(2, (4, 6, 5, 3), activation="identity", dropout=0.5, dropout_after=after, rng=rng)
    set_rng(net, torch.Generator().manual_seed(3))
    h = x = torch.randn(2, 8, 4, generator=rng)
    for i, layer in enumerate(net.layers, 1):
        h = layer(h)
        h = dropped(3, h, 0.5) if i == after else h
    torch.testing.assert_close(net(x), h)
    alone = select_member(net.eval(), 1)
    torch.testing.assert_close(alone(x[1:])[0], net(x)[1])
    assert in_precision_of(net, x.double().numpy())(x.double()).dtype == torch.float64


def test_dropout_needs_a_hidden_layer():
    with pytest.raises(ValueError, match="needs dropout_after"):
        MLP(1, (2, 3, 2), dropout=0.1)
    for after in (0, 2):
        with pytest.raises(ValueError, match=f"one of the 1 hidden layers, counted from 1. Got {after}"):
            MLP(1, (2, 3, 2), dropout=0.1, dropout_after=after)


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


def test_no_copy_is_made_at_equal_precision():
    single = nn.Sequential(MLP(2, (3, 2)), Standardise(2, 2))
    x = torch.zeros(1)
    assert in_precision_of(single, x.numpy()) is single
    double = in_precision_of(single, x.double().numpy())
    assert double is not single
    assert in_precision_of(double, x.double().numpy()) is double
    assert [next(net.parameters()).dtype for net in (single, double)] == [torch.float32, torch.float64]
