"""Architectures as values: the kind and widths of encoder and decoder, before they are built for given data.

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
from typing import Any, Self

import torch
from torch import nn

from identifiable.arrays import is_integer, is_real
from identifiable.errors import DataError
from identifiable.nets.dense import ACTIVATIONS, MLP
from identifiable.nets.images import ConvDecoder, ConvEncoder, ResDecoder, ResEncoder, Shape

SMALLEST_SIDE = 4  # pixels per side that an image net can process


class Architecture(ABC):
    """The kind and widths of encoder and decoder. The attribute `last` of each net it builds is its last layer."""

    @abstractmethod
    def encoder(self, members: int, inputs: int, outputs: int, *, rng: torch.Generator | None = None) -> nn.Module:
        """Build R nets that map (R, B, inputs) to (R, B, outputs)."""

    @abstractmethod
    def decoder(self, members: int, latents: int, outputs: int, *, rng: torch.Generator | None = None) -> nn.Module:
        """Build R nets that map (R, B, latents) to (R, B, outputs)."""

    @abstractmethod
    def for_columns(self, d: int, shape: Sequence[int] | None = None) -> Self:
        """Return this architecture for rows of d columns, or for images of `shape` (h, w) or (h, w, c)."""


@dataclass(frozen=True)
class Dense(Architecture):
    """Multilayer perceptrons.

    Parameters
    ----------
    hidden : tuple of int, default=(500, 1000). Widths of the encoder's hidden layers.
    decoder_hidden : tuple of int or None, default=None. Widths of the decoder's; None reverses those of the encoder.
    activation : str, default="leaky_relu_0.01". A name in `ACTIVATIONS`.
    dropout : float, default=0. Share of numbers that are dropped in training.
    dropout_after : int or None, default=None. The hidden layer of encoder and decoder, counted from 1, before dropout.
    shape : (h, w) or (h, w, c) or None, default=None. Shape of the images. The nets do not use it.

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
        """Return this architecture with the shape of the images, if it is known."""
        self._check()
        known = shape if self.shape is None else self.shape
        return self if known is None else replace(self, shape=_pixels(known, d, self))

    def _mlp(self, members: int, widths: tuple[int, ...], rng: torch.Generator | None) -> MLP:
        return MLP(
            members, widths, activation=self.activation, dropout=self.dropout, dropout_after=self.dropout_after, rng=rng
        )

    def _check(self) -> None:
        _require("hidden", self.hidden, _are_widths(self.hidden), "a tuple of positive layer widths")
        if self.decoder_hidden is not None:
            widths = _are_widths(self.decoder_hidden)
            _require("decoder_hidden", self.decoder_hidden, widths, "a tuple of positive layer widths, or None")
        known = isinstance(self.activation, str) and self.activation in ACTIVATIONS
        _require("activation", self.activation, known, f"one of {sorted(ACTIVATIONS)}")
        share = self.dropout == 0 or is_real(self.dropout, 0, 1)
        _require("dropout", self.dropout, share, "a share, at least 0 and less than 1")
        after = self.dropout_after is None or is_integer(self.dropout_after, 1)
        _require("dropout_after", self.dropout_after, after, "the number of a hidden layer, or None")


@dataclass(frozen=True)
class ImageArchitecture(Architecture):
    """An architecture of nets that depend on the shape of the images."""

    shape: tuple[int, ...] | None = None

    def for_columns(self, d: int, shape: Sequence[int] | None = None) -> Self:
        """Return this architecture with its own shape, or else `shape`, or else the one guessed from d."""
        return replace(self, shape=self._image(d, shape))

    def _image(self, d: int, shape: Sequence[int] | None = None) -> Shape:
        known = shape if self.shape is None else self.shape
        height, width, channels = _guess_shape(d, self) if known is None else _pixels(known, d, self)
        if min(height, width) < SMALLEST_SIDE:
            name, side = type(self).__name__, SMALLEST_SIDE
            raise DataError(
                f"{name} needs images of at least {side} x {side} pixels. These have {height} x {width}; use net='mlp' "
                f"or state their shape: {name}(shape=(h, w, c))."
            )
        return height, width, channels


@dataclass(frozen=True)
class ConvNet(ImageArchitecture):
    """Convolutions with batch normalisation, table A.3 of Willetts & Paige (2021).

    Parameters
    ----------
    shape : (h, w) or (h, w, c) or None, default=None. Shape of the images. None guesses it from the number of columns:
        a square for grey images, three times a square for images with three channels.

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
class ResNet(ImageArchitecture):
    """Residual blocks with weight normalisation, table A.4 of Willetts & Paige (2021).

    Parameters
    ----------
    shape : see `ConvNet`.
    width : int, default=16. Channels at full size. Each block that halves the image doubles them, at most five times.

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
        _require("width", self.width, is_integer(self.width, 1), "a positive number of channels")
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
    """Return the architecture with this name, or the given one, for rows of d columns.

    Parameters
    ----------
    net : a name in `ARCHITECTURES`, or an architecture.
    d : number of columns.
    shape : (h, w) or (h, w, c) of the images that the rows contain, if known. The shape in the architecture itself has
        priority; without either, architectures for images guess it from d.

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
    """Return the shape as (h, w, c); refuse one that does not give d columns."""
    whole = isinstance(shape, Sequence) and len(shape) in (2, 3) and all(is_integer(side, 1) for side in shape)
    _require("shape", shape, whole, "(height, width) or (height, width, channels)")
    height, width, channels = (*map(int, shape), 1)[:3]
    numbers = height * width * channels
    if numbers != d:
        raise DataError(
            f"Images of shape {tuple(shape)} have {numbers} numbers each, the rows have d={d} columns. "
            f"State the shape of the images: {type(net).__name__}(shape=(h, w, c))."
        )
    return height, width, channels


def _guess_shape(d: int, net: Architecture) -> Shape:
    for channels in (1, 3):
        side = math.isqrt(d // channels)
        if side * side * channels == d:
            return side, side, channels
    raise DataError(
        f"d={d} columns are neither a square grey image nor a square one with three channels. State the shape of the "
        f"images: {type(net).__name__}(shape=(h, w, c))."
    )


def _require(name: str, value: Any, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {expected}. Got {value!r}.")


def _are_widths(value: Any) -> bool:
    return isinstance(value, tuple) and all(is_integer(width, 1) for width in value)
