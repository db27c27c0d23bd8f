"""The flow of smooth leaky ReLUs: the common properties, its limits, and its inverse at extreme slopes."""

import math

import pytest
import torch
import torch.nn.functional as F

from flow_properties import LayeredFlowProperties, draw, far_from_start, single_unit
from identifiable.flows import SmoothLeakyFlow


class TestSmoothLeakyFlow(LayeredFlowProperties):
    kind, SLOPES = SmoothLeakyFlow, "log_slope"

    def make(self, members, n, depth, seed=0, **options):
        flow = far_from_start(SmoothLeakyFlow, members, n, depth, seed, 0.7, **options)
        flow.beta.copy_(torch.tensor([3.0, 12.0, 150.0])[:members, None, None])
        return flow

    @staticmethod
    def activation(flow, layer, h):
        a, beta = flow.log_slope[:, layer, None].exp(), flow.beta
        value = a * h + (1 - a) * (torch.logaddexp(beta * h, torch.zeros_like(h)) - math.log(2)) / beta
        return value, a + (1 - a) * torch.sigmoid(beta * h)

    def test_formula_and_inverse_hold_without_inner_biases(self):
        flow, x = self.make(3, 4, 5, inner_bias=False), draw(3, 20, 4, seed=6)
        t, log_det = flow(x)
        torch.testing.assert_close((t, log_det), self.reference(flow, x), rtol=0, atol=1e-10)
        torch.testing.assert_close(flow.inverse(t.detach()), x, rtol=0, atol=1e-9)
        assert flow.biases[:, 1:-1].abs().max() == 0
        assert flow.bias.shape == (3, 2, 4)
        assert self.make(3, 4, 2, inner_bias=False).bias.shape == (3, 2, 4)

    def test_without_inner_biases_the_sharp_flow_is_homogeneous(self):
        """f(c + λ v) - f(c) = λ (f(c + v) - f(c)), λ > 0, around the point c that the first layer sends to zero."""
        flow, v = self.make(3, 4, 5, inner_bias=False), draw(3, 20, 4, seed=5)
        flow.beta.fill_(1e9)
        c = -torch.linalg.solve(flow.weight[:, 0].mT, flow.bias[:, 0, :, None]).mT.detach()
        at_c = flow(c)[0]
        torch.testing.assert_close(flow(c + 3 * v)[0] - at_c, 3 * (flow(c + v)[0] - at_c), rtol=0, atol=1e-7)


@pytest.mark.parametrize("log_slope", [-9.0, -3.0, 0.0, 3.0, 9.0])
@pytest.mark.parametrize("beta", [1.0, 20.0, 200.0])
def test_one_unit_is_inverted_up_to_rounding_at_any_slope(log_slope, beta):
    flow = single_unit(SmoothLeakyFlow, beta, log_slope=log_slope)
    x = torch.cat([torch.linspace(-1e3, 1e3, 999), torch.linspace(-5, 5, 999)]).double()[:, None]
    t, log_det = flow(x)
    # x is as exact as the rounding of t allows, times 1 / slope, and times 36 where softplus nearly vanishes.
    rounding = 64 * torch.finfo(torch.float64).eps * (x.abs() + t.abs() + 1)
    assert ((flow.inverse(t) - x).abs() <= rounding / log_det.exp().clamp(max=1)[..., None]).all()


@pytest.mark.parametrize("beta", [1.0, 10.0, 200.0])
@pytest.mark.parametrize("slope", [0.2, 3.0])
def test_the_sharp_limit_is_the_leaky_relu(beta, slope):
    """|φ(h) - leaky(h)| <= |1 - a| log 2 / β, with equality far from 0, where the slopes are a and 1."""
    flow = single_unit(SmoothLeakyFlow, beta, log_slope=math.log(slope))
    h = torch.linspace(-60, 60, 1001, dtype=torch.float64)[:, None]
    with torch.no_grad():
        t, log_det = flow(h)
        origin = flow(torch.zeros(1, 1, dtype=torch.float64))[0]
    error = (t[0] - F.leaky_relu(h, slope)).abs()
    bound = abs(1 - slope) * math.log(2) / beta
    assert error.max() <= bound * (1 + 1e-9)
    assert error[0].item() == pytest.approx(bound)
    assert origin.item() == pytest.approx(0.0, abs=1e-15)
    assert log_det[0, 0].item() == pytest.approx(math.log(slope))
    assert log_det[0, -1].item() == pytest.approx(0.0, abs=1e-12)
