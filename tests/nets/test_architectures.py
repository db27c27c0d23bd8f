"""Architectures as values: their nets, shapes of images, and errors."""

import copy
import dataclasses

import pytest
import torch

from identifiable.errors import DataError
from identifiable.nets import ARCHITECTURES, Architecture, ConvNet, Dense, ResNet, resolve


def widths(net):
    return [layer.weight.shape[2] for layer in net.layers]


def test_mlps_of_the_papers():
    expected = {
        "mlp": ([512, 384, 256, 256, 10], [256, 256, 384, 512, 784]),
        "arch1": ([500, 1000, 10], [500, 500, 784]),
        "arch2": ([256, 512, 512, 10], [512, 256, 784]),
        "arch3": ([128, 256, 128, 128, 10], [128, 128, 784]),
        "toy": ([64, 512, 64, 10], [64, 512, 784]),
    }
    h = torch.tensor(-1.0)
    for name, (encoder, decoder) in expected.items():
        nets = ARCHITECTURES[name].encoder(1, 784, 10), ARCHITECTURES[name].decoder(1, 5, 784)
        assert (widths(nets[0]), widths(nets[1])) == (encoder, decoder)
        for net in nets:
            assert net.activation(h) == torch.tensor(-0.1 if name == "mlp" else -0.01)
            assert (net.dropout.p, net.dropout_after) == ((0.1, 2) if name == "mlp" else (0, None))


def test_architectures_are_values():
    assert ConvNet((28, 28)) == ConvNet(shape=(28, 28)) != ConvNet()
    assert len({*ARCHITECTURES.values(), *(copy.deepcopy(net) for net in ARCHITECTURES.values())}) == len(ARCHITECTURES)
    assert repr(ResNet()) == "ResNet(shape=None, width=16)"
    assert eval(repr(Dense((3,), dropout=0.5, dropout_after=1))) == Dense((3,), dropout=0.5, dropout_after=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ConvNet().shape = (4, 4)
    assert all(isinstance(net, Architecture) for net in ARCHITECTURES.values())


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_every_architecture_builds(name):
    net = resolve(name, 16)
    encoder, decoder = net.encoder(2, 16, 3), net.decoder(2, 3, 16)
    assert encoder(torch.zeros(2, 4, 16)).shape == (2, 4, 3)
    assert decoder(torch.zeros(2, 4, 3)).shape == (2, 4, 16)
    assert decoder.last.weight.shape[0] == 2


def test_the_decoder_mirrors_the_encoder_unless_its_widths_are_given():
    assert widths(Dense((7, 5)).decoder(1, 2, 9)) == [5, 7, 9]
    assert widths(Dense((7, 5), (3,)).decoder(1, 2, 9)) == [3, 9]


def test_width_sets_the_channels():
    assert ResNet((4, 4), width=3).decoder(1, 2, 16).last.weight.shape[2] == 3


def test_resolve_finds_shapes():
    assert resolve("convnet", 784) == ConvNet((28, 28, 1))
    assert resolve("resnet", 3072) == ResNet((32, 32, 3))
    assert resolve(ConvNet((5, 6)), 30) == ConvNet((5, 6, 1))
    assert resolve(ResNet(width=3), 120, (5, 8, 3)) == ResNet((5, 8, 3), width=3)
    assert resolve(ConvNet((4, 9)), 36, (6, 6)) == ConvNet((4, 9, 1))
    assert resolve("arch2", 10) is ARCHITECTURES["arch2"]
    assert resolve(Dense(), 36, (6, 6)).shape == (6, 6, 1)
    assert resolve(resolve("convnet", 48), 48) == ConvNet((4, 4, 3))


@pytest.mark.parametrize(
    ("net", "d", "error", "word"),
    [
        ("vgg", 784, ValueError, "convnet"),
        (ConvNet, 784, ValueError, "Architecture"),
        ("convnet", 10, DataError, "d=10"),
        (ResNet((28, 28)), 100, DataError, "784 numbers"),
        (Dense(shape=(2, 3)), 5, DataError, "6 numbers"),
        (ConvNet((28,)), 28, ValueError, "^shape"),
        (ConvNet((-2, -8)), 16, ValueError, "^shape"),
        (ConvNet((4.0, 4.0)), 16, ValueError, "^shape"),
        ("resnet", 9, DataError, "4 x 4"),
        (ResNet(width=0), 784, ValueError, "^width"),
        (Dense((3, 0)), 9, ValueError, "^hidden"),
        (Dense((True,)), 9, ValueError, "^hidden"),
        (Dense(64), 9, ValueError, "^hidden"),
        (Dense((3,), [3]), 9, ValueError, "^decoder_hidden"),
        (Dense(activation="swish"), 9, ValueError, "^activation"),
        (Dense(dropout=1.0), 9, ValueError, "^dropout"),
        (Dense(dropout_after=0), 9, ValueError, "^dropout_after"),
    ],
)
def test_invalid_architectures_are_refused_by_resolve_and_when_built(net, d, error, word):
    with pytest.raises(error, match=word):
        resolve(net, d)
    if isinstance(net, Architecture) and net != Dense(shape=(2, 3)):
        for build in (lambda: net.encoder(1, d, 2), lambda: net.decoder(1, 2, d)):
            with pytest.raises(error, match=word):
                build()
