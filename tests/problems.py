"""Small problems for the tests of training."""

import torch
from torch import nn

from identifiable.nets import MLP


class Free(nn.Module):
    """Nothing but parameters w (R, m)."""

    def __init__(self, start):
        super().__init__()
        self.w = nn.Parameter(torch.as_tensor(start, dtype=torch.float64))


def regression(members=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(500, 3, generator=g, dtype=torch.float64)
    y = torch.sin(x @ torch.randn(3, 2, generator=g, dtype=torch.float64))
    net = MLP(members, (3, 8, 2), rng=g).double()
    return net, [x, y], lambda batch, step: (net(batch[0]) - batch[1]).square().mean((1, 2))


def weights(net):
    return torch.cat([p.detach().reshape(len(p), -1) for p in net.parameters()], 1)
