"""The flow of units with two bends: the common properties, its limits, and its inverse at extreme slopes."""

import math

import pytest
import torch

from flow_properties import LayeredFlowProperties, far_from_start, single_unit
from identifiable.flows import SoftplusFlow


class TestSoftplusFlow(LayeredFlowProperties):
    kind, SLOPES = SoftplusFlow, "log_slopes"

    def make(self, members, n, depth, seed=0):
        return far_from_start(SoftplusFlow, members, n, depth, seed, 0.7)

    @staticmethod
    def activation(flow, layer, h):
        (s, r), e = flow.log_slopes[:, :, layer, None].exp().unbind(1), flow.log_bend[:, layer, None].exp()
        right, left = 2 * (h - e), -2 * (h + e)
        zero = torch.zeros_like(h)
        value = h + ((r - 1) * torch.logaddexp(right, zero) - (s - 1) * torch.logaddexp(left, zero)) / 2
        return value, 1 + (r - 1) * torch.sigmoid(right) + (s - 1) * torch.sigmoid(left)


@pytest.mark.parametrize("log_slopes", [(0.0, 0.0), (3.0, -3.0), (-8.0, 8.0), (-8.0, -8.0), (8.0, 8.0)])
@pytest.mark.parametrize("log_bend", [-4.0, 0.0, 4.0])
def test_one_unit_is_inverted_up_to_rounding_at_any_slopes(log_slopes, log_bend):
    flow = single_unit(SoftplusFlow, log_slopes=log_slopes, log_bend=log_bend)
    x = torch.cat([torch.linspace(-1e6, 1e6, 999), torch.linspace(-100, 100, 999), torch.linspace(-3, 3, 999)])
    x = x.double()[:, None]
    t, log_det = flow(x)
    # x is as exact as the rounding of t allows, times 1 / slope, and times up to e^8 where softplus nearly vanishes.
    rounding = 64 * torch.finfo(torch.float64).eps * (x.abs() + t.abs() + 1 + math.exp(max(*log_slopes, log_bend)))
    error = (flow.inverse(t) - x).abs()
    assert (error <= rounding / log_det.exp().clamp(max=1)[..., None]).all()


@pytest.mark.parametrize("slopes", [(0.2, 4.0), (3.0, 2.0), (1.0, 0.1)])
def test_far_bends_give_three_lines(slopes):
    """Slope s, then 1 and no shift, then r, and the lines meet at the bends -e and e."""
    e, (s, r) = 20.0, slopes
    h = torch.tensor([-50.0, -40.0, -1.0, 0.0, 1.0, 40.0, 50.0], dtype=torch.float64)
    flow = single_unit(SoftplusFlow, log_slopes=(math.log(s), math.log(r)), log_bend=math.log(e))
    t, log_det = flow(h[:, None])
    lines = h + (r - 1) * (h - e).clamp(min=0) - (s - 1) * (-h - e).clamp(min=0)
    torch.testing.assert_close(t[0, :, 0].detach(), lines, rtol=0, atol=1e-12)
    slope = torch.tensor([s, s, 1, 1, 1, r, r], dtype=torch.float64)
    torch.testing.assert_close(log_det[0].detach().exp(), slope, rtol=0, atol=1e-12)


def test_slopes_are_bounded():
    """Beyond log-slopes of ±8 the function no longer changes."""
    h = torch.linspace(-9, 9, 50, dtype=torch.float64)[:, None]
    for sign in (-1, 1):
        flows = [single_unit(SoftplusFlow, log_slopes=(sign * log, sign * log), log_bend=0.0) for log in (8.0, 20.0)]
        torch.testing.assert_close(flows[0](h), flows[1](h), rtol=0, atol=0)
