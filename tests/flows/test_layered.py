"""Layers of a flow whose activation is a scaling, h -> c h: everything is linear and known."""

import pytest
import torch
from torch import nn

from flow_properties import LayeredFlowProperties, draw
from identifiable.flows.layered import LayeredFlow, sigmoid_and_softplus


class Scaling(LayeredFlow):
    unit = 2.0

    def __init__(self, members, n, depth, *, start=None, rng=None):
        super().__init__(members, n, depth, start=start, rng=rng)
        self.bias = nn.Parameter(0.05 * self._noise(rng, depth, n))
        self.log_slope = nn.Parameter(0.05 * self._noise(rng, depth - 1, n))

    def coefficients(self):
        return (self.log_slope.exp(),)

    @staticmethod
    def activate(h, c):
        return h * c, c.expand_as(h), h

    @staticmethod
    def gradients(dy, dl, coefficients, slope, h):
        return dy * slope, h * dy + dl / slope

    @staticmethod
    def deactivate(y, c):
        return y / c


class TestLayeredFlow(LayeredFlowProperties):
    kind, SLOPES = Scaling, "log_slope"
    test_maximum_likelihood_finds_the_density_of_another_flow = None  # a linear flow has only Gaussian densities

    def make(self, members, n, depth, seed=0):
        return Scaling(members, n, depth, start=draw(members, n, n, seed=seed), rng=torch.Generator().manual_seed(seed))

    @staticmethod
    def activation(flow, layer, h):
        slope = flow.log_slope[:, layer, None].exp()
        return h * slope, slope.expand_as(h)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sigmoid_and_softplus(dtype):
    w = torch.linspace(-100, 100, 401, dtype=dtype)
    p, q = sigmoid_and_softplus(w)
    expected = torch.nn.functional.softplus(w.double(), threshold=50)
    torch.testing.assert_close(p, torch.sigmoid(w), rtol=1e-6, atol=1e-15)
    assert ((q.double() - expected).abs() <= 8 * torch.finfo(dtype).eps * (1 + w.abs())).all()
    assert sigmoid_and_softplus(w * 1e30)[1].isfinite().all()
