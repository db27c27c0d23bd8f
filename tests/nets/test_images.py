"""Image nets against torch's own layers and the tables of the papers, and members against each other."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d
from torch.nn.utils.parametrizations import weight_norm

from identifiable.nets import BatchNorm, Conv, ConvNet, ConvTranspose, Dense, ResNet, select_members
from identifiable.nets.images import Down, Up, to_maps, to_rows

NETS = [Dense((12, 8)), ConvNet((6, 5, 3)), ResNet((6, 5, 3), width=4)]
every_net = pytest.mark.parametrize("net", NETS, ids=lambda net: type(net).__name__)
image_nets = pytest.mark.parametrize("net", NETS[1:], ids=lambda net: type(net).__name__)
D = 90


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


def normal(rng, *shape):
    return torch.randn(shape, generator=rng, dtype=torch.float64)


def pair(net, rng, members=3, d=D, n=4):
    return nn.ModuleList([net.encoder(members, d, n, rng=rng), net.decoder(members, n, d, rng=rng)])


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def members_of(maps, members):
    """(B, R C, H, W) cut into R of (B, C, H, W)."""
    return maps.chunk(members, dim=1)


# Layers.


def test_channels_change_fastest_along_a_row(rng):
    images = normal(rng, 2, 5, 4, 3, 2)  # members, batch, height, width, channels
    maps = to_maps(images.reshape(2, 5, 24), (4, 3, 2))
    assert maps.shape == (5, 4, 4, 3)
    for r, b, i, j, c in ((0, 0, 0, 0, 1), (1, 4, 3, 0, 0), (1, 2, 1, 2, 1)):
        assert maps[b, 2 * r + c, i, j] == images[r, b, i, j, c]
    assert torch.equal(to_rows(maps, 2), images.reshape(2, 5, 24))


@pytest.mark.parametrize("settings", [{}, {"padding": 1}, {"stride": 2, "padding": 1}])
@pytest.mark.parametrize(("ours", "theirs"), [(Conv, nn.Conv2d), (ConvTranspose, nn.ConvTranspose2d)])
def test_convolutions_equal_those_of_torch(rng, ours, theirs, settings):
    layer, x = ours(3, 2, 4, (3, 2), rng=rng, **settings).double(), normal(rng, 5, 6, 7, 6)
    for r, (own, y) in enumerate(zip(members_of(x, 3), members_of(layer(x), 3), strict=True)):
        reference = theirs(2, 4, (3, 2), **settings).double()
        reference.load_state_dict({"weight": layer.weight[r], "bias": layer.bias[r]})
        close(y, reference(own))


def torch_conv(conv, r):
    """Return member r of a `NormalisedConv` as a layer of torch."""
    outputs, inputs, size, _ = conv.weight[r].shape
    reference = nn.Conv2d(inputs, outputs, size, padding=size // 2).double()
    with torch.no_grad():
        reference.weight.copy_(conv.weight[r])
        reference.bias.copy_(conv.bias[r])
        reference = weight_norm(reference)
        reference.parametrizations.weight.original0.copy_(conv.gain[r])
    return reference


@pytest.mark.parametrize(("ours", "theirs"), [(Conv, nn.Conv2d), (ConvTranspose, nn.ConvTranspose2d)])
def test_convolutions_start_in_the_range_of_torch(rng, ours, theirs):
    """Uniform on an interval: the largest of many is close to its end, for weights and biases."""
    layer, reference = ours(4, 5, 300, 3, rng=rng), theirs(5, 300, 3)
    bound = 1 / math.sqrt((5 if ours is Conv else 300) * 9)
    for own, torchs in ((layer.weight, reference.weight), (layer.bias, reference.bias)):
        assert own.shape == (4, *torchs.shape)
        for values in (*own, torchs):
            assert 0.97 * bound < values.abs().max() <= bound
            assert abs(values.mean()) < 6 * bound / math.sqrt(3 * values.numel())
    assert not torch.equal(layer.weight[0], layer.weight[1])


def test_batch_norm_equals_that_of_torch_and_updates_averages_in_place(rng):
    layer = BatchNorm(3, 2).double()
    with torch.no_grad():
        layer.weight.copy_(normal(rng, 3, 2))
        layer.bias.copy_(normal(rng, 3, 2))
    references = [nn.BatchNorm2d(2).double() for _ in range(3)]
    for r, reference in enumerate(references):
        reference.load_state_dict({"weight": layer.weight[r], "bias": layer.bias[r]}, strict=False)
    mean, var = layer.running_mean, layer.running_var
    places = mean.data_ptr(), var.data_ptr()
    for training in (True, True, False):
        layer.train(training)
        x = 2 + 3 * normal(rng, 5, 6, 4, 3)
        for reference, own, y in zip(references, members_of(x, 3), members_of(layer(x), 3), strict=True):
            close(y, reference.train(training)(own))
    assert (layer.running_mean.data_ptr(), layer.running_var.data_ptr()) == places
    close(mean, torch.stack([reference.running_mean for reference in references]))
    close(var, torch.stack([reference.running_var for reference in references]))


@pytest.mark.parametrize(("block", "size"), [(Down, (4, 3)), (Up, (14, 10))])
def test_residual_blocks_equal_their_formula(rng, block, size):
    layer = block(2, 3, 4, rng=rng).double()
    x = normal(rng, 6, 6, 7, 5)
    with torch.no_grad():
        for conv in (layer.first, layer.second, layer.skip):
            conv.gain.mul_(1 + torch.rand(conv.gain.shape, generator=rng))

    def resampled(h):
        if block is Up:
            return h.repeat_interleave(2, -1).repeat_interleave(2, -2)
        return avg_pool2d(h, 2, ceil_mode=True)

    y = layer(x)
    assert y.shape == (6, 8, *size)
    for r, (own, out) in enumerate(zip(members_of(x, 2), members_of(y, 2), strict=True)):
        first, second, skip = (torch_conv(conv, r) for conv in (layer.first, layer.second, layer.skip))
        h = resampled(first(own.relu()))
        close(out, second(h.relu()) + skip(resampled(own)))


@pytest.mark.parametrize("factors", [(1, 1), (2, 2)])
def test_residual_blocks_keep_the_mean_square_at_the_start(rng, factors):
    x = normal(rng, 20, 2 * 64, 10, 10)
    y = Up(2, 64, 64, factors=factors, rng=rng).double()(x)[..., 1:-1, 1:-1]  # inside, where nothing is padded
    torch.testing.assert_close(y.square().mean(), x.square().mean(), rtol=0.15, atol=0)


# The tables.


def torch_convnet(w, c, n, outputs):
    """Return encoder and decoder of one member by table A.3, in layers of torch."""
    encoder = nn.Sequential(
        *(nn.Conv2d(c, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ELU()),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ELU()),
        nn.MaxPool2d(2),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ELU()),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ELU()),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, w // 4),
        nn.Flatten(),
        *(nn.Linear(64, 64), nn.LeakyReLU(0.1)),
        nn.Linear(64, outputs),
    )
    decoder = nn.Sequential(
        *(nn.Linear(n, 64), nn.LeakyReLU(0.1)),
        nn.Linear(64, 64),
        nn.Unflatten(1, (64, 1, 1)),
        *(nn.ConvTranspose2d(64, 64, w // 4), nn.BatchNorm2d(64), nn.ELU()),
        *(nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1), nn.BatchNorm2d(32), nn.ELU()),
        *(nn.ConvTranspose2d(32, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ELU()),
        *(nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1), nn.BatchNorm2d(8), nn.ELU()),
        nn.Conv2d(8, c, 3, padding=1),
    )
    return encoder.double(), decoder.double()


def copy_member(net, r, reference):
    """Copy parameters; both nets have their layers in the order of computation, and weight before bias."""
    with torch.no_grad():
        for own, torchs in zip(net.parameters(), reference.parameters(), strict=True):
            value = own[r].squeeze(0) if torchs.dim() == 1 else own[r]
            torchs.copy_(value.T if torchs.dim() == 2 else value)


@pytest.mark.parametrize(("w", "c"), [(28, 1), (32, 3)])
def test_convnet_equals_table_a3(rng, w, c):
    net = ConvNet()
    encoder, decoder = net.encoder(2, w * w * c, 10, rng=rng).double(), net.decoder(2, 5, w * w * c, rng=rng).double()
    x, z = normal(rng, 2, 3, w, w, c), normal(rng, 2, 3, 5)
    y, decoded = encoder(x.flatten(2)), decoder(z)
    assert (y.shape, decoded.shape) == ((2, 3, 10), (2, 3, w * w * c))
    for r in range(2):
        a, b = torch_convnet(w, c, 5, 10)
        copy_member(encoder, r, a)
        copy_member(decoder, r, b)
        close(y[r], a(x[r].permute(0, 3, 1, 2)))
        close(decoded[r], b(z[r]).permute(0, 2, 3, 1).flatten(1))


@pytest.mark.parametrize("w", [28, 32])
def test_resnet_has_the_sizes_of_table_a4(rng, w):
    encoder, decoder = ResNet(width=1).encoder(2, w * w, 10, rng=rng), ResNet(width=1).decoder(2, 5, w * w, rng=rng)
    sizes = []
    for block in (*encoder.maps[1:6], *decoder.maps[:5]):
        block.register_forward_hook(lambda block, given, out: sizes.append((out.shape[1] // 2, *out.shape[2:])))
    assert encoder(torch.zeros(2, 1, w * w)).shape == (2, 1, 10)
    assert decoder(torch.zeros(2, 1, 5)).shape == (2, 1, w * w)
    down = {28: (14, 7, 4, 2, 1), 32: (16, 8, 4, 2, 1)}[w]
    up = (2, 4, 8, 16, 32)
    widths = (2, 4, 8, 16, 32), (16, 8, 4, 2, 1)
    assert sizes == [(c, s, s) for c, s in zip(widths[0] + widths[1], down + up, strict=True)]


def test_channels_stop_growing_after_five_blocks_and_the_shorter_side_grows_later():
    net = ResNet(width=1).encoder(1, 80 * 80, 2)
    assert [block.skip.weight.shape[1] for block in net.maps[1:-1]] == [2, 4, 8, 16, 32, 32, 32]
    net, sizes = ResNet((4, 32), width=1).decoder(2, 5, 128), []
    for block in net.maps[:-1]:
        block.register_forward_hook(lambda block, given, out: sizes.append(out.shape[2:]))
    net(torch.zeros(2, 1, 5))
    assert sizes == [(1, 2), (1, 4), (1, 8), (2, 16), (4, 32)]


# Members, precision, copies.


@every_net
@pytest.mark.parametrize("training", [False, True])
def test_selected_members_give_the_same_outputs(rng, net, training):
    nets, x, z = pair(net, rng).double(), normal(rng, 3, 5, D), normal(rng, 3, 5, 4)
    for module, given in zip(nets, (x, z), strict=True):
        module(given)  # so that running averages differ between members
        module.train(training)
        alone, two = select_members(module, [1]), select_members(module, [2, 0])
        y = module(given)
        close(alone(given[1:2])[0], y[1])
        close(two(given[[2, 0]]), y[[2, 0]])
        assert all(len(t) == 1 for t in alone.state_dict().values())
        for name, tensor in module.state_dict().items():
            close(alone.state_dict()[name][0], tensor[1])  # the running averages are the same


@every_net
def test_a_seed_determines_a_net_and_global_generators_do_not_change(net):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    a, b, c = (pair(net, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    a[0](torch.ones(3, 4, D))
    same = [torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True)]
    other = [torch.equal(p, q) for p, q in zip(a.parameters(), c.parameters(), strict=True)]
    constant = [bool((p.amax() == p.amin()) or name.endswith("gain")) for name, p in a.named_parameters()]
    assert all(same)
    assert other == constant
    assert torch.equal(before[0], torch.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])


# Images.


@image_nets
def test_channels_of_input_and_output_are_in_order(rng, net):
    encoder, decoder = pair(net, rng).double().eval()
    x, z = normal(rng, 3, 5, D), normal(rng, 3, 5, 4)
    with torch.no_grad():
        encoder.maps[0].weight[:, :, 1:] = 0  # only red has weight
        decoder.last.weight.zero_()
        decoder.last.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
    y, changed = encoder(x), x.clone()
    changed.unflatten(2, (30, 3))[..., 1:] += 1
    assert torch.equal(encoder(changed), y)
    changed.unflatten(2, (30, 3))[..., 0] += normal(rng, 30)
    assert not torch.isclose(encoder(changed), y).any()
    assert (decoder(z).unflatten(2, (30, 3)) == torch.tensor([1.0, 2.0, 3.0])).all()


@image_nets
def test_every_pixel_enters_the_latents_and_depends_on_them(rng, net):
    """For images whose sides differ and are not powers of two."""
    for shape in ((6, 5, 3), (5, 11, 1), (9, 4, 2)):
        d = math.prod(shape)
        encoder, decoder = pair(dataclasses.replace(net, shape=shape), rng, members=1, d=d).double().eval()
        x = normal(rng, 1, 200, d).requires_grad_()
        (slopes,) = torch.autograd.grad(encoder(x).square().sum(), x)
        assert (slopes[0].abs().amax(0) > 0).all()
        assert (decoder(normal(rng, 1, 200, 4))[0].std(0) > 0).all()


@image_nets
def test_a_smaller_image_is_the_upper_left_of_a_larger_one(rng, net):
    """The same filters make both, and the smaller one is cut out."""
    z = normal(rng, 2, 5, 4)
    large, small = (
        dataclasses.replace(net, shape=shape).decoder(2, 4, math.prod(shape), rng=torch.Generator().manual_seed(0))
        for shape in ((8, 8, 3), (7, 6, 3))
    )
    drawn = large.double()(z).unflatten(2, (8, 8, 3))
    close(small.double()(z).unflatten(2, (7, 6, 3)), drawn[:, :, :7, :6])
