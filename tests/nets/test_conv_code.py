"""The nets of table 12: shapes, the image they start from, and members that do not mix."""

import pytest
import torch

from identifiable.nets.conv_code import ConvCode


def build(shape=(64, 64, 3), members=1, **options):
    rng = torch.Generator().manual_seed(0)
    median, mean = (torch.rand(shape, generator=rng) for _ in range(2))
    return ConvCode(median, mean, members, rng=rng, **options), rng


def test_the_filters_are_those_of_table_12():
    net, _ = build()
    assert [tuple(layer.weight.shape[1:]) for layer in net.filters] == [
        (32, 3, 3, 3),
        (64, 32, 3, 3),
        (64, 64, 3, 3),
        (128, 64, 3, 3),
        (128, 128, 3, 3),
    ]
    sizes = [tuple(layer.weight.shape[1:]) for layer in (*net.painters, net.last)]
    assert sizes == [(128, 128, 2, 2), (128, 64, 2, 2), (64, 64, 2, 2), (64, 32, 2, 2), (32, 3, 4, 4)]


@pytest.mark.parametrize("shape", [(64, 64, 3), (32, 32, 1), (28, 20, 2), (8, 8, 3)])
def test_shapes(shape):
    net, rng = build(shape, members=2, width=10)
    x = torch.rand((2, 3, shape[0] * shape[1] * shape[2]), generator=rng)
    c = net.encode(x)
    assert c.shape == (2, 3, 10)
    decoded = net.decode(c)
    assert decoded.shape == x.shape
    assert 0 <= decoded.min() <= decoded.max() <= 1


def test_a_code_of_zero_is_the_mean_image():
    """Training begins there, and not at a grey image."""
    net, _ = build()
    with torch.no_grad():
        net.last.bias.zero_()
    mean = net.log_odds.sigmoid()[:, 0]
    torch.testing.assert_close(net.decode(torch.zeros(1, 1, 128))[:, 0], mean)


def test_members_do_not_mix():
    net, rng = build((16, 16, 3), members=2)
    x = torch.rand((2, 4, 768), generator=rng)
    changed = x.clone()
    changed[1] = 0
    torch.testing.assert_close(net.decode(net.encode(x))[0], net.decode(net.encode(changed))[0])
    assert not torch.allclose(net.encode(x)[1], net.encode(changed)[1])


def test_the_start_keeps_the_size_of_what_passes():
    """With the bounds of torch, a hundredth of the variation between images would reach the code."""
    net, rng = build()
    c = net.encode(torch.rand((1, 200, 64 * 64 * 3), generator=rng))
    assert 0.05 < c.std(1).mean() < 5
