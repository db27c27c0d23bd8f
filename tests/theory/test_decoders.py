"""Modules are read as they compute; unreadable parts and layers that do not fit are named."""

import numpy as np
import pytest
import torch
from torch import nn

from identifiable import nets
from identifiable.data.mixings import Mixing, orthogonal_mixing, tanh_mixing
from identifiable.errors import DataError
from identifiable.theory import Decoder
from theory.decoder_examples import ABS, IDENTITY, RELU, random_net


def test_modules_are_read_as_they_compute():
    torch.manual_seed(0)
    x = torch.randn(50, 3, dtype=torch.float64)
    nested = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(3, 4), nn.Identity(), nn.Linear(4, 5)), nn.LeakyReLU(0.2))
    for module in (
        nn.Linear(3, 4, bias=False).double(),
        nested.double(),
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LeakyReLU(0.3), nn.Linear(4, 2)).double(),
        orthogonal_mixing(3, 5, layers=4, slopes=(0.2, 4.0), rng=np.random.default_rng(0)),
    ):
        f = Decoder.of(module)
        np.testing.assert_allclose(f(x), module(x).detach(), atol=1e-12)
        assert f.unreadable == ""
    assert len(Decoder.of(nested).weights) == 3  # nothing; 3 to 5; nothing


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "identity"])
def test_a_member_of_a_net_is_read(activation):
    net = nets.MLP(3, (2, 4, 5), activation=activation, rng=torch.Generator().manual_seed(0)).double()
    x = torch.randn(3, 20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for member in range(3):
        np.testing.assert_allclose(Decoder.of(net, member=member)(x[member]), net(x)[member].detach(), atol=1e-12)
    with pytest.raises(DataError, match="member must be one of the 3 of the net, 0 to 2, got 3"):
        Decoder.of(net, member=3)


@pytest.mark.parametrize(
    ("module", "part", "smooth"),
    [
        (nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3)), "Tanh", True),
        (nn.Sequential(nn.Linear(2, 3), nn.Sigmoid()), "Sigmoid", True),
        (nn.Sequential(nn.Linear(2, 3), nn.Hardtanh(), nn.Linear(3, 3), nn.ELU()), "ELU", True),
        (nets.MLP(1, (2, 3, 3), activation="gelu"), "gelu", True),
        (
            orthogonal_mixing(2, 3, layers=2, slopes=0.2, activation="smooth", rng=np.random.default_rng(0)),
            "Smooth",
            True,
        ),
        (tanh_mixing(2, 3, layers=2, reuse=False, rng=np.random.default_rng(0)), "Tanh", True),
        (nn.Sequential(nn.Linear(2, 3), nn.Hardtanh()), "Hardtanh", False),
        (nn.Conv1d(1, 1, 1), "Conv1d", False),
        (nn.Sequential(nn.ReLU()), "without a linear layer", False),
    ],
)
def test_unreadable_parts_are_named(module, part, smooth):
    decoder = Decoder.of(module)
    assert part in decoder.unreadable
    assert decoder.smooth == smooth
    assert decoder.weights == ()


def test_a_subclass_of_a_mixing_is_unreadable():
    class Squared(Mixing):
        def forward(self, z):
            return super().forward(z) ** 2

    assert Decoder.of(Squared([np.eye(2)], [])).unreadable == "Squared"


@pytest.mark.parametrize(
    ("layers", "slopes", "word"),
    [
        ([(np.ones((3, 2)), np.ones(3)), (np.ones((2, 4)), np.ones(2))], 0.0, "Layer 2"),
        ([([[np.nan]], [0])], 0.0, "finite"),
        ([IDENTITY], [0.0], "slope"),
        ([], 0.0, "layer"),
    ],
)
def test_layers_that_do_not_fit_are_refused(layers, slopes, word):
    with pytest.raises(DataError, match=word):
        Decoder.from_layers(layers, slopes)


def test_lossy_layers_and_singular_values():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2, 2))
    pairs = (np.vstack([rows, -3 * rows]), np.zeros(4))
    f = Decoder.from_layers([pairs, (rng.normal(size=(4, 4)), np.zeros(4)), (np.eye(4), np.zeros(4))], [RELU, ABS])
    assert f.lossy == [1]  # the ReLU of the first layer acts on pairs of opposite rows
    assert "of layer 2" in f.loss
    assert random_net((2, 3, 3), rng, 0.2).lossy == []
    thin = Decoder.from_layers([(np.diag([4.0, 2.0, 1.0])[:2], [0, 0])])
    assert thin.smallest_shares == [0.0]
    np.testing.assert_allclose(thin.spectra[0], [1, 0.5])
    assert "3 dimensions to 2" in thin.loss
