"""Networks for images, batched over members.

As everywhere, a net maps (R, B, width) to (R, B, width), and every parameter and buffer carries the member axis first.
An image is one row: height x width x channels, the channel changing fastest. Inside, the members of a batch of images
lie side by side as the channels of one batch of maps (B, R C, H, W), in R groups that never meet.

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
    images = rows.reshape(*rows.shape[:2], height, width, channels)
    return images.permute(1, 0, 4, 2, 3).flatten(1, 2)


def to_rows(maps: Tensor, members: int) -> Tensor:
    """Turn maps (B, R c, h, w) into rows (R, B, h w c); the inverse of `to_maps`."""
    batch, channels, height, width = maps.shape
    images = maps.reshape(batch, members, channels // members, height, width)
    return images.permute(1, 0, 3, 4, 2).flatten(2)


class _Filters(nn.Module):
    """R sets of filters, and one bias for each output channel, uniform at the start with the bounds of torch.

    With weight normalisation w = g v / ||v||, g and the norm one for each output channel (Salimans & Kingma 2016); at
    the start g = ||v||, so that w = v.
    """

    _outputs: ClassVar[int]  # their axis in a weight; that of the inputs is the other of 1 and 2

    def __init__(
        self,
        members: int,
        inputs: int,
        outputs: int,
        size: int | tuple[int, int],
        *,
        stride: int = 1,
        padding: int = 0,
        weight_norm: bool = False,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.stride, self.padding = stride, padding
        channels = (outputs, inputs) if self._outputs == 1 else (inputs, outputs)
        height, width = (size, size) if isinstance(size, int) else size
        bound = 1 / math.sqrt(channels[1] * height * width)
        weight = torch.rand((members, *channels, height, width), generator=rng) * 2 - 1
        bias = torch.rand((members, outputs), generator=rng) * 2 - 1
        self.weight, self.bias = nn.Parameter(bound * weight), nn.Parameter(bound * bias)
        self.gain = nn.Parameter(self._norm().detach()) if weight_norm else None

    def _norm(self) -> Tensor:
        return torch.linalg.vector_norm(self.weight, dim=(3 - self._outputs, 3, 4), keepdim=True)

    def _filters(self) -> Tensor:
        """Return those of all members as torch takes those of R groups."""
        w = self.weight if self.gain is None else self.weight * (self.gain / self._norm())
        return w.flatten(0, 1)


class Conv(_Filters):
    """`torch.nn.Conv2d` for every member: maps (B, R inputs, H, W) to (B, R outputs, H', W').

    Weights are (R, outputs, inputs, height, width), biases (R, outputs). The `size` of a filter is (height, width) or
    one number for both. With `weight_norm` a filter is its `gain` (R, outputs, 1, 1, 1) times the direction of its
    weight.
    """

    _outputs = 1

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, R inputs, H, W) to (B, R outputs, H', W')."""
        return F.conv2d(x, self._filters(), self.bias.flatten(), self.stride, self.padding, groups=len(self.weight))


class ConvTranspose(_Filters):
    """`torch.nn.ConvTranspose2d` for every member: maps (B, R inputs, H, W) to (B, R outputs, H', W').

    As `Conv`, but weights are (R, inputs, outputs, height, width) and gains (R, 1, outputs, 1, 1).
    """

    _outputs = 2

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, R inputs, H, W) to (B, R outputs, H', W')."""
        groups = len(self.weight)
        return F.conv_transpose2d(x, self._filters(), self.bias.flatten(), self.stride, self.padding, groups=groups)


class BatchNorm(nn.Module):
    """y = w (x - m) / s + b per member and channel: `torch.nn.BatchNorm2d` for maps (B, R channels, H, W).

    m and s are the batch's in training, and running averages of them in `eval()`.
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
    """The convolutional encoder of table A.3, for images of 4 x 4 pixels at least.

    Height and width are halved twice. Where they are odd a last window of the pool is cut off at the edge: 28, 14, 7
    but 30, 15, 8.

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


class ConvDecoder(nn.Module):
    """The convolutional decoder of table A.3, for images of 4 x 4 pixels at least.

    It starts from a quarter of height and width, rounded up, and doubles them twice; rows and columns beyond the
    image, below and to the right, are cut off at the end.

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

    def forward(self, z: Tensor) -> Tensor:
        """Map latents (R, B, n) to images (R, B, h w c)."""
        height, width, _ = self.shape
        h = self.first(z)
        maps = self.last(self.maps(to_maps(h, (1, 1, h.shape[2]))))
        return to_rows(maps[..., :height, :width], len(z))


class _Block(nn.Module):
    """Two weight-normalised filters of size 3 and, past them, one of size 1.

    Their gains start where the block keeps the mean square of what goes through it: relu halves it, `first` makes up
    for that, and half of the sum comes from `second`, half from `skip`. Torch's weights lose two thirds of it at every
    layer, and after five blocks there would be little left.
    """

    def __init__(self, members: int, inputs: int, outputs: int, *, rng: torch.Generator | None = None) -> None:
        super().__init__()
        self.first = Conv(members, inputs, outputs, 3, padding=1, weight_norm=True, rng=rng)
        self.second = Conv(members, outputs, outputs, 3, padding=1, weight_norm=True, rng=rng)
        self.skip = Conv(members, inputs, outputs, 1, weight_norm=True, rng=rng)
        for conv, square in ((self.first, 2.0), (self.second, 1.0), (self.skip, 0.5)):
            conv.gain = nn.Parameter(torch.full((members, outputs, 1, 1, 1), math.sqrt(square)))


class Down(_Block):
    """Residual block y = f(relu(pool f(relu x))) + g(pool x), which halves height and width.

    f are filters of size 3, g of size 1; pool is the mean of 2 x 2 pixels, or of those that are there at an odd edge.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, R inputs, H, W) to (B, R outputs, ceil(H / 2), ceil(W / 2))."""
        h = self.second(F.relu(self._pool(self.first(F.relu(x)))))
        return h + self.skip(self._pool(x))

    @staticmethod
    def _pool(x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 2, ceil_mode=True)


class Up(_Block):
    """Residual block y = f(relu(up f(relu x))) + up g(x), which makes `factors` (2, 2) pixels of one.

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
        """Map (B, R inputs, H, W) to (B, R outputs, 2 H, 2 W), or what `factors` say."""
        h = self.second(F.relu(self._repeat(self.first(F.relu(x)))))
        return h + self._repeat(self.skip(x))

    def _repeat(self, x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=self.factors, mode="nearest")


def _halvings(side: int) -> int:
    """How often a side is halved, and rounded up, until it is 1."""
    return (side - 1).bit_length()


def _channels(shape: Shape, width: int) -> list[int]:
    """Channels from the whole image to one pixel: doubled by every block, five times at most."""
    return [width * 2 ** min(i, 5) for i in range(_halvings(max(shape[:2])) + 1)]


class ResEncoder(nn.Module):
    """The residual encoder of table A.4: `Down` blocks until one pixel is left.

    An image of 28 or 32 pixels a side takes five blocks, with 16, 32, 64, 128, 256, 512 channels (`width` = 16); 28
    goes to 14, 7, 4, 2, 1. QuickOverrides images take fewer, and larger ones more, of 512 channels each.

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


class ResDecoder(nn.Module):
    """The residual decoder of table A.4: `Up` blocks from one pixel to the image, as many as `ResEncoder` has.

    Sides go 1, 2, 4, 8, 16, 32; rows and columns beyond the image, below and to the right, are cut off at the end. In
    an image that is not square the shorter side starts to grow later.

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
            still = len(channels) - 1 - i  # blocks from here to the image
            tall, wide = (2 if still <= _halvings(side) else 1 for side in shape[:2])
            blocks.append(Up(members, a, b, factors=(tall, wide), rng=rng))
        self.maps = nn.Sequential(*blocks, nn.ReLU())
        self.last = Conv(members, width, shape[2], 1, rng=rng)

    def forward(self, z: Tensor) -> Tensor:
        """Map latents (R, B, n) to images (R, B, h w c)."""
        height, width, _ = self.shape
        h = self.first(z)
        maps = self.last(self.maps(to_maps(h, (1, 1, h.shape[2]))))
        return to_rows(maps[..., :height, :width], len(z))
