"""Mixings and activations, and their inverses."""

import numpy as np
import pytest
import torch

from identifiable.data import make_pdgmm
from identifiable.data.mixings import Leaky, Sigmoid, SmoothLeaky, TanhLinear, orthogonal_mixing, tanh_mixing


@pytest.mark.parametrize(
    "activation", [Leaky(0.2), Leaky(1.4), SmoothLeaky(0.2), SmoothLeaky(1.4), TanhLinear(), Sigmoid()]
)
def test_activations_increase_and_invert(activation):
    h = torch.linspace(-30 if not isinstance(activation, Sigmoid) else -15, 15, 5001, dtype=torch.float64)
    y = activation(h)
    assert (y.diff() > 0).all()
    torch.testing.assert_close(activation.inverse(y), h, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("slope", [0.2, 0.9, 1.0, 1.4])
def test_leaky_is_the_maximum_of_two_lines(slope):
    h = torch.linspace(-3, 3, 101, dtype=torch.float64)
    torch.testing.assert_close(Leaky(slope)(h), torch.maximum(slope * h, h))


@pytest.mark.parametrize("activation", ["leaky", "smooth"])
@pytest.mark.parametrize(("n", "d"), [(3, 3), (3, 8)])
def test_orthogonal_mixing_has_orthonormal_rows_and_an_inverse(activation, n, d):
    f = orthogonal_mixing(n, d, layers=6, slopes=(0.5, 1.5), activation=activation, rng=np.random.default_rng(0))
    assert len(f.matrices) == 6
    assert len(f.activations) == 5
    assert (f.n, f.d) == (n, d)
    for w in f.matrices:
        torch.testing.assert_close(w @ w.T, torch.eye(len(w), dtype=torch.float64))
    z = torch.randn(1000, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(f.inverse(f(z)), z, atol=1e-8, rtol=0)


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize(("n", "d"), [(5, 5), (2, 5), (10, 40)])
def test_tanh_mixing_has_unit_columns_and_an_inverse(reuse, n, d):
    f = tanh_mixing(n, d, layers=3, reuse=reuse, rng=np.random.default_rng(0))
    assert (f.n, f.d) == (n, d)
    assert torch.equal(f.matrices[1], f.matrices[2]) == reuse
    for w in f.matrices:
        torch.testing.assert_close(w.norm(dim=0), torch.ones(d, dtype=torch.float64))
    z = 3 * torch.randn(1000, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(f.inverse(f(z)), z, atol=1e-6, rtol=0)


def test_a_mixing_needs_as_many_columns_as_latents():
    with pytest.raises(ValueError, match="n = 5, d = 3"):
        make_pdgmm(10, n=5, d=3)
