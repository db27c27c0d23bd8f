"""The autoregressive flow: the common properties, and its triangular Jacobian."""

import torch

from flow_properties import FlowProperties, draw
from identifiable.flows import AutoregressiveFlow


class TestAutoregressiveFlow(FlowProperties):
    kind = AutoregressiveFlow

    def make(self, members, n, depth, seed=0):
        rng = torch.Generator().manual_seed(seed)
        start = torch.eye(n) + 0.3 * torch.randn(members, n, n, generator=rng)
        return AutoregressiveFlow(members, n, depth, start=start, hidden=(16,), rng=rng).double()


def test_one_map_is_triangular_and_the_next_is_in_reverse_order():
    x = draw(3)
    for depth in (1, 2):
        flow = AutoregressiveFlow(1, 3, depth, hidden=(16,), rng=torch.Generator().manual_seed(0)).double()
        jacobian = torch.autograd.functional.jacobian(lambda v, flow=flow: flow(v.expand(1, 1, 3))[0][0, 0], x)
        upper = jacobian.triu(1).abs().max()
        assert jacobian.tril(-1).abs().max() > 1e-6
        assert upper > 1e-6 if depth == 2 else upper == 0


def test_the_start_is_followed_by_the_linear_map():
    W, x = draw(3, 3), draw(5, 3)
    plain, mapped = (
        AutoregressiveFlow(2, 3, 2, start=start, hidden=(8,), rng=torch.Generator().manual_seed(0)).double()
        for start in (None, W.float())
    )
    torch.testing.assert_close(mapped(x)[0], plain(x)[0] @ W.float().double())
