"""Architectures as values: what encoder and decoder are, before they are built for some data, latents and restarts.

`ARCHITECTURES` holds those of the papers, by name.

References
----------
Willetts & Paige, I don't need u: identifiable non-linear ICA without side information, 2021, tables A.2 to A.4.
Kivva, Rajendran, Ravikumar & Aragam, Identifiability of deep generative models without auxiliary information, 2022.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Self

import torch
from torch import nn

from identifiable.errors import DataError
from identifiable.nets.dense import ACTIVATIONS, MLP
from identifiable.nets.images import ConvDecoder, ConvEncoder, ResDecoder, ResEncoder, Shape

SMALLEST = 4  # pixels a side that an image net takes


class Architecture(ABC):
    """What encoder and decoder are. The last layer of each net it builds is the net's `last`."""

    @abstractmethod
    def encoder(self, members: int, inputs: int, outputs: int, *, rng: torch.Generator | None = None) -> nn.Module:
        """Build R nets that map (R, B, inputs) to (R, B, outputs)."""

    @abstractmethod
    def decoder(self, members: int, latents: int, outputs: int, *, rng: torch.Generator | None = None) -> nn.Module:
        """Build R nets that map (R, B, latents) to (R, B, outputs)."""

    @abstractmethod
    def for_columns(self, d: int, shape: Sequence[int] | None = None) -> Self:
        """Return this architecture for rows of d columns; `shape`: they are images of (h, w) or (h, w, c) pixels."""


@dataclass(frozen=True)
class Dense(Architecture):
    """Multilayer perceptrons.

    Parameters
    ----------
    hidden : widths of the encoder's hidden layers.
    decoder_hidden : of the decoder's; None: those of the encoder in reverse.
    activation : a name of `ACTIVATIONS`.
    dropout, dropout_after : share of numbers dropped in training, and the hidden layer of encoder and decoder, counted
        from 1, after which they are.
    shape : (h, w) or (h, w, c) if the rows are images. The nets do not use it.

    Examples
    --------
    >>> net = Dense((64, 32)).decoder(4, 2, 10)
    >>> [tuple(layer.weight.shape) for layer in net.layers]
    [(4, 2, 32), (4, 32, 64), (4, 64, 10)]
    """

    hidden: tuple[int, ...] = (500, 1000)
    decoder_hidden: tuple[int, ...] | None = None
    activation: str = "leaky_relu_0.01"
    dropout: float = 0.0
    dropout_after: int | None = None
    shape: tuple[int, ...] | None = None

    def encoder(self, members: int, inputs: int, outputs: int, *, rng: torch.Generator | None = None) -> MLP:
        """Build R nets that map (R, B, inputs) to (R, B, outputs)."""
        self._check()
        return self._mlp(members, (inputs, *self.hidden, outputs), rng)

    def decoder(self, members: int, latents: int, outputs: int, *, rng: torch.Generator | None = None) -> MLP:
        """Build R nets that map (R, B, latents) to (R, B, outputs)."""
        self._check()
        hidden = self.hidden[::-1] if self.decoder_hidden is None else self.decoder_hidden
        return self._mlp(members, (latents, *hidden, outputs), rng)

    def for_columns(self, d: int, shape: Sequence[int] | None = None) -> Self:
        """Take over the shape of images, if there is one."""
        self._check()
        known = shape if self.shape is None else self.shape
        return self if known is None else replace(self, shape=_pixels(known, d, self))

    def _mlp(self, members: int, widths: tuple[int, ...], rng: torch.Generator | None) -> MLP:
        return MLP(
            members,
            widths,
            activation=self.activation,
            dropout=self.dropout,
            dropout_after=self.dropout_after,
            rng=rng,
        )

    def _check(self) -> None:
        _require("hidden", self.hidden, _are_widths(self.hidden), "a tuple of positive layer widths")
        widths = self.decoder_hidden is None or _are_widths(self.decoder_hidden)
        _require("decoder_hidden", self.decoder_hidden, widths, "a tuple of positive layer widths, or None")
        known = isinstance(self.activation, str) and self.activation in ACTIVATIONS
        _require("activation", self.activation, known, f"one of {sorted(ACTIVATIONS)}")
        share = isinstance(self.dropout, Real) and 0 <= self.dropout < 1
        _require("dropout", self.dropout, share, "a share, at least 0 and less than 1")
        after = self.dropout_after is None or _counts(self.dropout_after)
        _require("dropout_after", self.dropout_after, after, "the number of a hidden layer, or None")


@dataclass(frozen=True)
class _ImageNet(Architecture):
    """An architecture that needs to know the shape of the images."""

    shape: tuple[int, ...] | None = None

    def for_columns(self, d: int, shape: Sequence[int] | None = None) -> Self:
        """Fill in the shape of the images: this one, or what d says."""
        return replace(self, shape=self._image(d, shape))

    def _image(self, d: int, shape: Sequence[int] | None = None) -> Shape:
        known = shape if self.shape is None else self.shape
        height, width, channels = _read_off(d, self) if known is None else _pixels(known, d, self)
        if min(height, width) < SMALLEST:
            raise DataError(
                f"{type(self).__name__} needs images of at least {SMALLEST} x {SMALLEST} pixels. These have {height} x "
                f"{width}; use net='mlp', or say the shape they have: {type(self).__name__}(shape=(h, w, c))."
            )
        return height, width, channels


@dataclass(frozen=True)
class ConvNet(_ImageNet):
    """Convolutions with batch normalisation, table A.3 of Willetts & Paige (2021).

    Parameters
    ----------
    shape : (h, w) or (h, w, c) of the images; None: read off the number of columns, a square for grey images and three
        times a square for images with three channels.

    Examples
    --------
    >>> ConvNet().for_columns(3072)
    ConvNet(shape=(32, 32, 3))
    """

    def encoder(self, members: int, inputs: int, outputs: int, *, rng: torch.Generator | None = None) -> ConvEncoder:
        """Build R nets that map (R, B, inputs) to (R, B, outputs)."""
        return ConvEncoder(members, self._image(inputs), outputs, rng=rng)

    def decoder(self, members: int, latents: int, outputs: int, *, rng: torch.Generator | None = None) -> ConvDecoder:
        """Build R nets that map (R, B, latents) to (R, B, outputs)."""
        return ConvDecoder(members, latents, self._image(outputs), rng=rng)


@dataclass(frozen=True)
class ResNet(_ImageNet):
    """Residual blocks with weight normalisation, table A.4 of Willetts & Paige (2021).

    Parameters
    ----------
    shape : as in `ConvNet`.
    width : channels at full size; every block that halves the image doubles them, five times at most.

    Examples
    --------
    >>> ResNet(shape=(28, 28), width=4).for_columns(784)
    ResNet(shape=(28, 28, 1), width=4)
    """

    width: int = 16

    def encoder(self, members: int, inputs: int, outputs: int, *, rng: torch.Generator | None = None) -> ResEncoder:
        """Build R nets that map (R, B, inputs) to (R, B, outputs)."""
        return ResEncoder(members, self._image(inputs), outputs, width=self.width, rng=rng)

    def decoder(self, members: int, latents: int, outputs: int, *, rng: torch.Generator | None = None) -> ResDecoder:
        """Build R nets that map (R, B, latents) to (R, B, outputs)."""
        return ResDecoder(members, latents, self._image(outputs), width=self.width, rng=rng)

    def _image(self, d: int, shape: Sequence[int] | None = None) -> Shape:
        _require("width", self.width, _counts(self.width), "a positive number of channels")
        return super()._image(d, shape)


ARCHITECTURES: dict[str, Architecture] = {
    # Willetts & Paige (2021), tables A.2 to A.4
    "mlp": Dense((512, 384, 256, 256), (256, 256, 384, 512), "leaky_relu_0.1", dropout=0.1, dropout_after=2),
    "convnet": ConvNet(),
    "resnet": ResNet(),
    # Kivva et al. (2022): on MNIST, and on their simulated data
    "arch1": Dense((500, 1000), (500, 500)),
    "arch2": Dense((256, 512, 512), (512, 256)),
    "arch3": Dense((128, 256, 128, 128), (128, 128)),
    "arch1-relu": Dense((500, 1000), (500, 500), "relu"),
    "arch2-relu": Dense((256, 512, 512), (512, 256), "relu"),
    "arch3-relu": Dense((128, 256, 128, 128), (128, 128), "relu"),
    "toy": Dense((64, 512, 64), (64, 512)),
}


def resolve(net: str | Architecture, d: int, shape: Sequence[int] | None = None) -> Architecture:
    """Return the architecture of this name, or this one, for rows of d columns.

    `shape` is that of the images the rows were made of, (h, w) or (h, w, c), where it is known; a shape that the
    architecture states comes first, and without any it is read off d by those that need one.

    Examples
    --------
    >>> resolve("convnet", 784)
    ConvNet(shape=(28, 28, 1))
    >>> resolve(ResNet(), 90, (6, 5, 3))
    ResNet(shape=(6, 5, 3), width=16)
    >>> resolve("arch1", 10) == ARCHITECTURES["arch1"]
    True
    """
    if isinstance(net, str) and net in ARCHITECTURES:
        net = ARCHITECTURES[net]
    if not isinstance(net, Architecture):
        raise ValueError(
            f"net must be one of {sorted(ARCHITECTURES)} or an Architecture, such as Dense((64, 64)) or "
            f"ConvNet(shape=(28, 28)). Got {net!r}."
        )
    return net.for_columns(d, shape)


def _pixels(shape: Sequence[int], d: int, net: Architecture) -> Shape:
    """Return (h, w, c), if it makes d columns."""
    whole = isinstance(shape, Sequence) and len(shape) in (2, 3) and all(map(_counts, shape))
    _require("shape", shape, whole, "(height, width) or (height, width, channels)")
    height, width, channels = (*map(int, shape), 1)[:3]
    numbers = height * width * channels
    if numbers != d:
        raise DataError(
            f"Images of shape {tuple(shape)} have {numbers} numbers each, the rows have d={d} columns. "
            f"Say the shape that the rows were made of: {type(net).__name__}(shape=(h, w, c))."
        )
    return height, width, channels


def _read_off(d: int, net: Architecture) -> Shape:
    for channels in (1, 3):
        side = math.isqrt(d // channels)
        if side * side * channels == d:
            return side, side, channels
    raise DataError(
        f"d={d} columns are neither a square grey image nor a square one with three channels. Say the shape that the "
        f"rows were made of: {type(net).__name__}(shape=(h, w, c))."
    )


def _require(name: str, value: Any, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {expected}. Got {value!r}.")


def _are_widths(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_counts, value))


def _counts(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1
