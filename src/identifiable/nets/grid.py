"""Convolutions from an image to a grid of latent vectors and back, for vector-quantised autoencoders."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from identifiable.nets.architectures import ImageArchitecture
from identifiable.nets.images import BatchNorm, Conv, ConvTranspose, Shape, to_maps, to_rows

REDUCTION = 4  # pixels per position, along each side


class Residual(nn.Module):
    """y = x + g(relu f(relu x)), f filters of size 3 and g of size 1, each with batch normalisation."""

    def __init__(self, members: int, channels: int, *, rng: torch.Generator | None = None) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.ReLU(),
            Conv(members, channels, channels, 3, padding=1, rng=rng),
            BatchNorm(members, channels),
            nn.ReLU(),
            Conv(members, channels, channels, 1, rng=rng),
            BatchNorm(members, channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, R channels, H, W) to the same shape."""
        return x + self.branch(x)


def _grid_of(shape: Sequence[int]) -> tuple[int, int]:
    """Positions in height and width."""
    return math.ceil(shape[0] / REDUCTION), math.ceil(shape[1] / REDUCTION)


class GridEncoder(nn.Module):
    """Two filters of size 4 and stride 2, two residual blocks, and n numbers for every position.

    Sides that are no multiples of 4 are padded with zeros, below and to the right.
    """

    def __init__(self, members: int, shape: Shape, n: int, *, width: int, rng: torch.Generator | None = None) -> None:
        super().__init__()
        self.shape = shape
        self.maps = nn.Sequential(
            Conv(members, shape[2], width, 4, stride=2, padding=1, rng=rng),
            BatchNorm(members, width),
            nn.ReLU(),
            Conv(members, width, width, 4, stride=2, padding=1, rng=rng),
            BatchNorm(members, width),
            Residual(members, width, rng=rng),
            Residual(members, width, rng=rng),
        )
        self.last = Conv(members, width, n, 1, rng=rng)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (R, B, h w c) to (R, B, P n), position by position."""
        height, width, _ = self.shape
        maps = F.pad(to_maps(x, self.shape), (0, -width % REDUCTION, 0, -height % REDUCTION))
        return to_rows(self.last(self.maps(maps)), len(x))


class GridDecoder(nn.Module):
    """The mirror of `GridEncoder`; padding beyond the image is cut off."""

    def __init__(self, members: int, n: int, shape: Shape, *, width: int, rng: torch.Generator | None = None) -> None:
        super().__init__()
        self.shape, self.n = shape, n
        self.maps = nn.Sequential(
            Conv(members, n, width, 1, rng=rng),
            BatchNorm(members, width),
            Residual(members, width, rng=rng),
            Residual(members, width, rng=rng),
            ConvTranspose(members, width, width, 4, stride=2, padding=1, rng=rng),
            BatchNorm(members, width),
            nn.ReLU(),
            ConvTranspose(members, width, width, 4, stride=2, padding=1, rng=rng),
            BatchNorm(members, width),
            nn.ReLU(),
        )
        self.last = Conv(members, width, shape[2], 1, rng=rng)

    def forward(self, z: Tensor) -> Tensor:
        """Map (R, B, P n) to images (R, B, h w c)."""
        height, width, _ = self.shape
        maps = self.last(self.maps(to_maps(z, (*_grid_of(self.shape), self.n))))
        return to_rows(maps[..., :height, :width], len(z))


@dataclass(frozen=True)
class GridNet(ImageArchitecture):
    """Convolutions from an image to a grid of a quarter of its height and width, and back.

    Parameters
    ----------
    shape : (h, w), (h, w, c) or None, default=None. Shape of the images. None infers it from the number of columns: a
        square for grey images, three times a square for images with three channels.
    width : int, default=128. Channels of the hidden layers.

    Examples
    --------
    >>> GridNet(width=8).for_columns(3072).grid
    (8, 8)
    """

    width: int = 128

    @property
    def grid(self) -> tuple[int, int]:
        """Positions in height and width, of images whose shape is known."""
        assert self.shape is not None
        return _grid_of(self.shape)

    def encoder(self, members: int, inputs: int, outputs: int, *, rng: torch.Generator | None = None) -> GridEncoder:
        """Build R nets that map (R, B, inputs) to (R, B, outputs)."""
        shape = self._image(inputs)
        return GridEncoder(members, shape, outputs // math.prod(_grid_of(shape)), width=self.width, rng=rng)

    def decoder(self, members: int, latents: int, outputs: int, *, rng: torch.Generator | None = None) -> GridDecoder:
        """Build R nets that map (R, B, latents) to (R, B, outputs)."""
        shape = self._image(outputs)
        return GridDecoder(members, latents // math.prod(_grid_of(shape)), shape, width=self.width, rng=rng)
