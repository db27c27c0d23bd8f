"""Batched nets against those of torch, members against each other, and exact output statistics."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from identifiable.nets import (
    ACTIVATIONS,
    MLP,
    Dropout,
    Linear,
    Standardise,
    as_tensor,
    in_precision_of,
    join_members,
    members_in_threads,
    select_member,
    select_members,
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


def test_members_start_different_and_a_seed_determines_them():
    a, b = (Linear(3, 4, 2, rng=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(a.weight, b.weight)
    assert not torch.equal(a.weight[0], a.weight[1])
    assert a.weight.abs().max() <= 0.5  # 1 / sqrt(4)


def test_members_are_selected_and_joined(rng):
    net = nn.Sequential(MLP(3, (4, 6, 2), rng=rng), Standardise(3, 2)).double().eval()
    x = torch.randn(3, 50, 4, generator=rng, dtype=torch.float64)
    net[1].calibrate([net[0](x)])
    alone, both = select_member(net, 1), select_members(net, [2, 0])
    torch.testing.assert_close(alone(x[1:2])[0], net(x)[1])
    torch.testing.assert_close(both(x[[2, 0]]), net(x)[[2, 0]])
    assert [len(p) for p in (*alone.parameters(), *alone.buffers())] == [1] * 6
    joined = join_members([both, alone])
    torch.testing.assert_close(joined(x[[2, 0, 1]]), net(x)[[2, 0, 1]])


def test_as_tensor_has_the_precision_asked_for():
    rows = np.arange(6.0).reshape(2, 3).T
    for dtype, expected in ((np.float32, torch.float32), (np.float64, torch.float64)):
        tensor = as_tensor(rows, torch.device("cpu"), dtype)
        assert (tensor.dtype, tensor.tolist()) == (expected, rows.tolist())
        assert tensor.is_contiguous()


def test_slopes_are_those_in_the_names():
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


def test_dropout_zeroes_its_share_and_keeps_the_mean():
    y = dropped(0, torch.ones(2, 500, 200, dtype=torch.float64))
    assert set(y.unique().tolist()) == {0, 1 / 0.7}
    shares = (y == 0).double().mean((1, 2))
    assert (shares - 0.3).abs().max() < 5 * (0.3 * 0.7 / 100_000) ** 0.5
    assert not torch.equal(y[0], y[1])


def test_dropout_repeats_with_its_generator_and_does_not_use_the_global_one():
    before, x = torch.get_rng_state(), torch.ones(1, 4, 50)
    assert torch.equal(dropped(1, x), dropped(1, x))
    assert not torch.equal(dropped(1, x), dropped(2, x))
    assert torch.equal(before, torch.get_rng_state())
    assert Dropout(0.5).eval()(x) is Dropout(0)(x) is x


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_dropout_has_no_generator(copied):
    layer, rng = Dropout(0.3), torch.Generator()
    set_rng(layer, rng)
    again = copied(layer)
    assert (again.p, again.rng, again.training, layer.rng) == (0.3, None, True, rng)
    assert layer.state_dict() == {}


@pytest.mark.parametrize("after", [1, 2])
def test_mlp_drops_after_the_given_layer(rng, after):
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


def gradients(net, x):
    """Return the outputs, and the gradients with respect to x and to the parameters that are trained."""
    out = net(x)
    tensors = [t for t in (x, *net.parameters()) if t.requires_grad]
    return out.detach(), *torch.autograd.grad(out.square().sum(), tensors)


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("inner", [False, True], ids=["of data", "of latents"])
def test_members_in_threads_have_the_same_gradients(members, inner, rng, monkeypatch):
    net = MLP(members, (3, 64, 64, 2), rng=rng)
    net.layers[1].bias.requires_grad_(False)
    x = torch.randn(members, 1000, 3, generator=rng, requires_grad=inner)
    expected, used = gradients(net, x), []
    submit = ThreadPoolExecutor.submit
    monkeypatch.setattr(ThreadPoolExecutor, "submit", lambda *args: used.append(1) or submit(*args))
    with members_in_threads(2):
        found = gradients(net, x)
    assert len(used) == 2 * (members - 1)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_dropout_draws_the_same_in_threads():
    net, x = MLP(2, (3, 64, 1), dropout=0.5, dropout_after=1), torch.ones(2, 1000, 3)
    set_rng(net, torch.Generator().manual_seed(0))
    with members_in_threads(2):
        apart = net(x)
    set_rng(net, torch.Generator().manual_seed(0))
    assert torch.equal(apart, net(x))


def test_an_error_in_a_thread_is_raised():
    net = MLP(2, (3, 64, 1))
    with members_in_threads(2), pytest.raises(RuntimeError, match="batch2"):
        net(torch.ones(2, 1000, 4))


def test_dropout_needs_a_share_below_one_and_a_hidden_layer():
    for share in (-0.1, 1):
        with pytest.raises(ValueError, match="share p"):
            Dropout(share)
    with pytest.raises(ValueError, match="dropout_after"):
        MLP(1, (2, 3, 2), dropout=0.1)
    for after in (0, 2):
        with pytest.raises(ValueError, match="hidden layers"):
            MLP(1, (2, 3, 2), dropout=0.1, dropout_after=after)
    for widths in ((3,), (3, 0, 2), ()):
        with pytest.raises(ValueError, match="widths"):
            MLP(1, widths)


def test_standardise_uses_the_batch_in_training_and_gradients_flow_through_it(rng):
    layer = Standardise(2, 3)
    x = (5 + 3 * torch.randn(2, 400, 3, generator=rng, dtype=torch.float64)).requires_grad_()
    y = layer(x)
    reference = nn.BatchNorm1d(3, affine=False).double()
    torch.testing.assert_close(y[0], reference(x[0]))
    torch.testing.assert_close(
        torch.autograd.grad(y[0].pow(3).sum(), x, retain_graph=True)[0][0],
        torch.autograd.grad(reference(x[0]).pow(3).sum(), x)[0][0],
    )


@pytest.mark.parametrize("block", [1, 7, 100, 1000])
def test_calibrated_statistics_are_exact_for_blocks_of_any_size(rng, block):
    """Data far from the origin in single precision have mean 0 and sd 1, and a constant column is only centred."""
    x = 1e4 + torch.randn(2, 1000, 3, generator=rng)
    x[..., 2] = 3.0
    layer = Standardise(2, 3).double().eval()
    layer.calibrate(x.split(block, dim=1))
    y = layer(x.double())
    torch.testing.assert_close(y.mean(1), torch.zeros(2, 3, dtype=torch.float64), atol=1e-9, rtol=0)
    sd = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64).expand(2, 3)
    torch.testing.assert_close(y.std(1, correction=0), sd, atol=1e-9, rtol=0)


def test_calibrate_without_rows_is_refused():
    with pytest.raises(ValueError, match="at least one block"):
        Standardise(1, 2).calibrate([])


def test_no_copy_is_made_at_equal_precision():
    single = nn.Sequential(MLP(2, (3, 2)), Standardise(2, 2))
    x = torch.zeros(1)
    assert in_precision_of(single, x.numpy()) is single
    double = in_precision_of(single, x.double().numpy())
    assert double is not single
    assert in_precision_of(double, x.double().numpy()) is double
    assert [next(net.parameters()).dtype for net in (single, double)] == [torch.float32, torch.float64]
