"""The convolutional autoencoder of Xu et al. (2026), appendix D.10, table 12, and a dense one of its code.

    x  ->  c = code(x), 128 numbers  ->  z = g(c), as many as latents,        x̂ = image(f(z))

Two things are not in the table, since without them training hardly begins on images that are mostly background: the
nets see x minus its median over images and add to the log-odds of its mean, and filters start with the gain of ReLU.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from identifiable.nets.images import Conv, ConvTranspose, to_maps, to_rows

DOWN, UP = (32, 64, 64, 128), (128, 64, 64, 32)  # channels of the encoder, and of the decoder, before the last layer
DARKEST = 0.02  # of the mean image, so that its log-odds are moderate


class ConvCode(nn.Module):
    """R convolutional autoencoders of images of one shape (h, w, c), with a code of `width` numbers.

    Parameters
    ----------
    median, mean : (h, w, c), of the training images, in [0, 1].
    members, width : R, and the size of the code.
    rng : source of the start.

    Examples
    --------
    >>> blank = torch.full((32, 32, 3), 0.5)
    >>> net = ConvCode(blank, blank, members=2, rng=torch.Generator().manual_seed(0))
    >>> c = net.encode(torch.rand(2, 5, 3072))
    >>> c.shape, net.decode(c).shape
    (torch.Size([2, 5, 128]), torch.Size([2, 5, 3072]))
    """

    median: Tensor
    log_odds: Tensor

    def __init__(
        self, median: Tensor, mean: Tensor, members: int, *, width: int = 128, rng: torch.Generator | None = None
    ) -> None:
        super().__init__()
        height, across, channels = self.shape = (*median.shape,)
        edge = math.ceil(max(height, across) / 2 ** len(UP))  # of the last filters: 4 for 64 x 64 pixels, as published
        down, up = (channels, *DOWN, width), (width, *UP)
        self.filters = nn.ModuleList(
            _for_relu(Conv(members, a, b, 3, padding=1, rng=rng), 9 * a) for a, b in pairwise(down)
        )
        self.painters = nn.ModuleList(
            _for_relu(ConvTranspose(members, a, b, 2, stride=2, rng=rng), a) for a, b in pairwise(up)
        )
        self.last = ConvTranspose(members, up[-1], channels, edge, stride=edge, rng=rng)
        self.register_buffer("median", median.reshape(1, -1).expand(members, 1, -1).clone())
        log_odds = mean.clamp(DARKEST, 1 - DARKEST).logit()
        self.register_buffer("log_odds", log_odds.reshape(1, -1).expand(members, 1, -1).clone())

    def encode(self, x: Tensor) -> Tensor:
        """Map images (R, B, h w c) to codes (R, B, width)."""
        h = to_maps(x - self.median, self.shape)
        for i, layer in enumerate(self.filters, 1):
            h = F.relu(layer(h))
            h = F.adaptive_max_pool2d(h, 1) if i == len(self.filters) else F.max_pool2d(h, 2, ceil_mode=True)
        return to_rows(h, len(x))

    def decode(self, c: Tensor) -> Tensor:
        """Map codes (R, B, width) to images (R, B, h w c)."""
        h = to_maps(c, (1, 1, c.shape[2]))
        for layer in self.painters:
            h = F.relu(layer(h))
        height, across, _ = self.shape
        return torch.sigmoid(to_rows(self.last(h)[..., :height, :across], len(c)) + self.log_odds)


def _for_relu(layer: Conv | ConvTranspose, inputs: int) -> nn.Module:
    """Start weights uniform with variance 2 / inputs, and biases at zero (He et al. 2015)."""
    with torch.no_grad():
        layer.weight.mul_(math.sqrt(6 / inputs) / layer.weight.abs().amax())
        layer.bias.zero_()
    return layer
