"""Networks for images, batched over members.

A net maps (R, B, width) to (R, B, width), and every parameter and buffer has the member axis first. An image is one
row: height x width x channels, the channel changing fastest. Inside a net, the members of a batch of images are the
channels of one batch of maps (B, R C, H, W), in R independent groups.

Reference: Willetts & Paige, I don't need u: identifiable non-linear ICA without side information, 2021, appendix A.
"""

import math
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from identifiable.nets.dense import MLP, Linear

Shape = tuple[int, int, int]  # height, width, channels


def to_maps(rows: Tensor, shape: Shape) -> Tensor:
    """Turn rows (R, B, h w c) into maps (B, R c, h, w).

    Examples
    --------
    The second pixel of the first row of an image, with three channels:

    >>> to_maps(torch.arange(12.0).reshape(1, 1, 12), (2, 2, 3))[0, :, 0, 1]
    tensor([3., 4., 5.])
    """
    height, width, channels = shape
    return rows.reshape(*rows.shape[:2], height, width, channels).permute(1, 0, 4, 2, 3).flatten(1, 2)


def to_rows(maps: Tensor, members: int) -> Tensor:
    """Turn maps (B, R c, h, w) into rows (R, B, h w c); the inverse of `to_maps`."""
    batch, channels, height, width = maps.shape
    return maps.reshape(batch, members, channels // members, height, width).permute(1, 0, 3, 4, 2).flatten(2)


class _Filters(nn.Module):
    """R sets of filters, and one bias for each output channel, uniform at the start with the bounds of torch.

    Parameters
    ----------
    members, inputs, outputs : R and the channels of each member.
    size : (height, width) of a filter, or one number for both.
    stride, padding, dilation : as in torch.
    rng : source of the start.
    """

    _output_axis: ClassVar[int]  # of a weight, 1 or 2; the other is that of the inputs

    def __init__(
        self,
        members: int,
        inputs: int,
        outputs: int,
        size: int | tuple[int, int],
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.stride, self.padding, self.dilation = stride, padding, dilation
        channels = (outputs, inputs) if self._output_axis == 1 else (inputs, outputs)
        height, width = (size, size) if isinstance(size, int) else size
        bound = 1 / math.sqrt(channels[1] * height * width)
        weight = torch.rand((members, *channels, height, width), generator=rng) * 2 - 1
        bias = torch.rand((members, outputs), generator=rng) * 2 - 1
        self.weight, self.bias = nn.Parameter(bound * weight), nn.Parameter(bound * bias)

    def _filters(self) -> Tensor:
        """Return the filters of all members as torch expects those of R groups."""
        return self.weight.flatten(0, 1)


class Conv(_Filters):
    """`torch.nn.Conv2d` for every member: maps (B, R inputs, H, W) to (B, R outputs, H', W').

    Weights are (R, outputs, inputs, height, width) and biases (R, outputs).
    """

    _output_axis = 1

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, R inputs, H, W) to (B, R outputs, H', W')."""
        R = len(self.weight)
        return F.conv2d(x, self._filters(), self.bias.flatten(), self.stride, self.padding, self.dilation, groups=R)


class NormalisedConv(Conv):
    """A `Conv` that keeps the size of the image, with weight normalisation (Salimans & Kingma 2016).

    The filter of each output channel is w = g v / ||v||, with g learnt. It starts at `gain`.
    """

    def __init__(
        self, members: int, inputs: int, outputs: int, size: int, *, gain: float, rng: torch.Generator | None = None
    ) -> None:
        super().__init__(members, inputs, outputs, size, padding=size // 2, rng=rng)
        self.gain = nn.Parameter(torch.full((members, outputs, 1, 1, 1), gain))

    def _filters(self) -> Tensor:
        norms = torch.linalg.vector_norm(self.weight, dim=(2, 3, 4), keepdim=True)
        return (self.weight * (self.gain / norms)).flatten(0, 1)


class ConvTranspose(_Filters):
    """`torch.nn.ConvTranspose2d` for every member: maps (B, R inputs, H, W) to (B, R outputs, H', W').

    As `Conv`, but weights are (R, inputs, outputs, height, width).
    """

    _output_axis = 2

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, R inputs, H, W) to (B, R outputs, H', W')."""
        groups = len(self.weight)
        return F.conv_transpose2d(
            x, self._filters(), self.bias.flatten(), self.stride, self.padding, groups=groups, dilation=self.dilation
        )


class BatchNorm(nn.Module):
    """y = w (x - m) / s + b per member and channel: `torch.nn.BatchNorm2d` for maps (B, R channels, H, W).

    m and s are those of the batch in training, and their running averages in `eval()`.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, members: int, channels: int, *, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.epsilon = momentum, epsilon
        self.weight = nn.Parameter(torch.ones(members, channels))
        self.bias = nn.Parameter(torch.zeros(members, channels))
        self.register_buffer("running_mean", torch.zeros(members, channels))
        self.register_buffer("running_var", torch.ones(members, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, R channels, H, W) to the same shape."""
        return F.batch_norm(
            x,
            self.running_mean.view(-1),  # a view: the averages are updated in place
            self.running_var.view(-1),
            self.weight.flatten(),
            self.bias.flatten(),
            training=self.training,
            momentum=self.momentum,
            eps=self.epsilon,
        )


class ConvEncoder(nn.Module):
    """The convolutional encoder of table A.3, for images of at least 4 x 4 pixels.

    Height and width are halved twice and rounded up, since the last window of the pool is cut off at an odd edge:
    28, 14, 7, but 30, 15, 8.

    Examples
    --------
    >>> rng = torch.Generator().manual_seed(0)
    >>> ConvEncoder(2, (28, 28, 1), 10, rng=rng)(torch.zeros(2, 5, 784)).shape
    torch.Size([2, 5, 10])
    """

    def __init__(self, members: int, shape: Shape, outputs: int, *, rng: torch.Generator | None = None) -> None:
        super().__init__()
        self.shape = shape
        height, width, channels = shape

        def conv(a: int, b: int) -> tuple[nn.Module, ...]:
            return Conv(members, a, b, 3, padding=1, rng=rng), BatchNorm(members, b), nn.ELU()

        self.maps = nn.Sequential(
            *conv(channels, 8),
            *conv(8, 16),
            nn.MaxPool2d(2, ceil_mode=True),
            *conv(16, 32),
            *conv(32, 64),
            nn.MaxPool2d(2, ceil_mode=True),
            Conv(members, 64, 64, (math.ceil(height / 4), math.ceil(width / 4)), rng=rng),
        )
        self.hidden = Linear(members, 64, 64, rng=rng)
        self.last = Linear(members, 64, outputs, rng=rng)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (R, B, h w c) to (R, B, outputs)."""
        h = to_rows(self.maps(to_maps(x, self.shape)), len(x))
        return self.last(F.leaky_relu(self.hidden(h), 0.1))


class _Decoder(nn.Module):
    """Dense layers `first`, `maps` from one pixel upwards, the filters `last`, and the image cut out."""

    shape: Shape
    first: nn.Module
    maps: nn.Module
    last: Conv

    def forward(self, z: Tensor) -> Tensor:
        """Map latents (R, B, n) to images (R, B, h w c)."""
        height, width, _ = self.shape
        h = self.first(z)
        return to_rows(self.last(self.maps(to_maps(h, (1, 1, h.shape[2]))))[..., :height, :width], len(z))


class ConvDecoder(_Decoder):
    """The convolutional decoder of table A.3, for images of at least 4 x 4 pixels.

    It starts from a quarter of height and width, rounded up, and doubles them twice. Rows and columns beyond the image,
    below and to the right, are cut off at the end.

    Examples
    --------
    >>> rng = torch.Generator().manual_seed(0)
    >>> ConvDecoder(2, 10, (32, 32, 3), rng=rng)(torch.zeros(2, 5, 10)).shape
    torch.Size([2, 5, 3072])
    """

    def __init__(self, members: int, latents: int, shape: Shape, *, rng: torch.Generator | None = None) -> None:
        super().__init__()
        self.shape = shape
        height, width, channels = shape

        def conv(a: int, b: int, size: int | tuple[int, int], stride: int, padding: int) -> tuple[nn.Module, ...]:
            layer = ConvTranspose(members, a, b, size, stride=stride, padding=padding, rng=rng)
            return layer, BatchNorm(members, b), nn.ELU()

        self.first = MLP(members, (latents, 64, 64), activation="leaky_relu_0.1", rng=rng)
        self.maps = nn.Sequential(
            *conv(64, 64, (math.ceil(height / 4), math.ceil(width / 4)), 1, 0),
            *conv(64, 32, 4, 2, 1),
            *conv(32, 16, 3, 1, 1),
            *conv(16, 8, 4, 2, 1),
        )
        self.last = Conv(members, 8, channels, 3, padding=1, rng=rng)


class _Block(nn.Module):
    """Two weight-normalised filters of size 3, `first` and `second`, and one of size 1 beside them, `skip`.

    The gains start such that a block keeps the mean square of its input: relu halves it, which `first` compensates,
    and half of the sum comes from `second`, half from `skip`. The initial weights of torch would lose two thirds of it
    at every layer, so that little would remain after five blocks.
    """

    def __init__(self, members: int, inputs: int, outputs: int, *, rng: torch.Generator | None = None) -> None:
        super().__init__()
        self.first = NormalisedConv(members, inputs, outputs, 3, gain=math.sqrt(2), rng=rng)
        self.second = NormalisedConv(members, outputs, outputs, 3, gain=1.0, rng=rng)
        self.skip = NormalisedConv(members, inputs, outputs, 1, gain=math.sqrt(0.5), rng=rng)


class Down(_Block):
    """Residual block y = f(relu(pool f(relu x))) + g(pool x), which halves height and width.

    f are filters of size 3, g of size 1; pool is the mean of 2 x 2 pixels, or of fewer at an odd edge.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, R inputs, H, W) to (B, R outputs, ceil(H / 2), ceil(W / 2))."""
        h = self.second(F.relu(self._pool(self.first(F.relu(x)))))
        return h + self.skip(self._pool(x))

    @staticmethod
    def _pool(x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 2, ceil_mode=True)


class Up(_Block):
    """Residual block y = f(relu(up f(relu x))) + up g(x), which multiplies height and width by `factors`, (2, 2).

    f are filters of size 3, g of size 1; up repeats a pixel.
    """

    def __init__(
        self,
        members: int,
        inputs: int,
        outputs: int,
        *,
        factors: tuple[int, int] = (2, 2),
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__(members, inputs, outputs, rng=rng)
        self.factors = factors

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, R inputs, H, W) to (B, R outputs, 2 H, 2 W), or other multiples by `factors`."""
        h = self.second(F.relu(self._repeat(self.first(F.relu(x)))))
        return h + self._repeat(self.skip(x))

    def _repeat(self, x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=self.factors, mode="nearest")


def _halvings(side: int) -> int:
    """Return how many times a side has to be halved, rounding up, to become 1."""
    return (side - 1).bit_length()


def _channels(shape: Shape, width: int) -> list[int]:
    """Return the channels from the whole image to one pixel: each block doubles them, at most five times."""
    return [width * 2 ** min(i, 5) for i in range(_halvings(max(shape[:2])) + 1)]


class ResEncoder(nn.Module):
    """The residual encoder of table A.4: `Down` blocks until one pixel is left.

    An image of 28 or 32 pixels per side takes five blocks, with 16, 32, 64, 128, 256, 512 channels (`width` = 16); the
    side 28 becomes 14, 7, 4, 2, 1. Smaller images take fewer blocks, and larger ones more, of 512 channels each.

    Examples
    --------
    >>> rng = torch.Generator().manual_seed(0)
    >>> ResEncoder(2, (8, 8, 1), 10, rng=rng)(torch.zeros(2, 5, 64)).shape
    torch.Size([2, 5, 10])
    """

    def __init__(
        self, members: int, shape: Shape, outputs: int, *, width: int = 16, rng: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.shape = shape
        channels = _channels(shape, width)
        first = Conv(members, shape[2], width, 1, rng=rng)
        blocks = [Down(members, a, b, rng=rng) for a, b in pairwise(channels)]
        self.maps = nn.Sequential(first, *blocks, nn.ReLU())
        self.last = Linear(members, channels[-1], outputs, rng=rng)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (R, B, h w c) to (R, B, outputs)."""
        return self.last(to_rows(self.maps(to_maps(x, self.shape)), len(x)))


class ResDecoder(_Decoder):
    """The residual decoder of table A.4: `Up` blocks from one pixel to the image, as many as `ResEncoder` has.

    Sides grow from 1 to 2, 4, 8, 16, 32. Rows and columns beyond the image, below and to the right, are cut off at the
    end. If the image is not square, the shorter side starts to grow later.

    Examples
    --------
    >>> rng = torch.Generator().manual_seed(0)
    >>> ResDecoder(2, 10, (8, 6, 3), rng=rng)(torch.zeros(2, 5, 10)).shape
    torch.Size([2, 5, 144])
    """

    def __init__(
        self, members: int, latents: int, shape: Shape, *, width: int = 16, rng: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.shape = shape
        channels = _channels(shape, width)[::-1]
        self.first = Linear(members, latents, channels[0], rng=rng)
        blocks = []
        for i, (a, b) in enumerate(pairwise(channels)):
            left = len(channels) - 1 - i  # blocks from here to the image
            down, across = (2 if left <= _halvings(side) else 1 for side in shape[:2])
            blocks.append(Up(members, a, b, factors=(down, across), rng=rng))
        self.maps = nn.Sequential(*blocks, nn.ReLU())
        self.last = Conv(members, width, shape[2], 1, rng=rng)
