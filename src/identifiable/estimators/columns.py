"""How the rows of a table, or images, become the inputs of an autoencoder, and how its outputs become rows."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from identifiable.arrays import Array, FloatArray, is_integer
from identifiable.errors import DataError
from identifiable.estimators.autoencoder import Likelihood
from identifiable.estimators.trained import Split, TrainedModel
from identifiable.nets import ACTIVATIONS, Architecture, Dense, resolve

LIKELIHOODS = "gaussian", "bernoulli", "logistic", "categorical"
BINARISE = None, "threshold", "draw"


@dataclass(eq=False, repr=False)
class Columns(TrainedModel):
    """Columns, images, likelihood and nets of an autoencoder.

    Parameters that mean the same in every autoencoder:

    - likelihood : {"gaussian", "bernoulli", "logistic", "categorical"}. "gaussian" standardises the columns and learns
      one noise scale per column; "bernoulli" takes values in [0, 1], "logistic" pixels in {0, 1/255, ..., 1}, and
      "categorical" whole numbers that name categories.
    - binarise : {None, "threshold", "draw"}. With "bernoulli": None uses the values as probabilities, "threshold" cuts
      them at 1/2, "draw" draws a bit for each value anew at every training step.
    - hidden, activation : widths of the layers of the encoder, which the decoder mirrors, and their activation.
    - net : str, `Architecture` or None. A name of `identifiable.nets.ARCHITECTURES` ("mlp", "convnet", "resnet",
      "arch1", ...) or an architecture; replaces `hidden` and `activation`. With a net for images, X may hold images
      (N, h, w) or (N, h, w, c), and `inverse_transform` and `sample` return images.
    - max_steps, batch_size, learning_rate : of Adam; the rate warms up and decays along a cosine.
    - patience : int or None. Training stops after this many records (of 100) without a better held-out bound in any
      restart. None trains for all steps.
    - checkpoint : path or None. A file from which an interrupted fit continues exactly; it is removed after the fit.
    """

    _: KW_ONLY
    likelihood: str = "gaussian"
    binarise: Literal["threshold", "draw"] | None = None
    hidden: Sequence[int] = (128, 128, 128)
    activation: str = "leaky_relu"
    net: str | Architecture | None = None
    max_steps: int = 3000
    batch_size: int = 256
    learning_rate: float | None = 2e-3
    patience: int | None = 20
    checkpoint: str | Path | None = None

    mean_: Array = field(init=False)
    scale_: Array = field(init=False)
    levels_: tuple[Array, ...] = field(init=False)
    image_shape_: tuple[int, ...] | None = field(default=None, init=False)

    # -- inputs ------------------------------------------------------------------------

    def _check_training_data(self, X: ArrayLike, *, columns_must_vary: bool = True) -> FloatArray:
        X, self.image_shape_ = self._flat(X, None)
        vary = columns_must_vary and self.likelihood == "gaussian"
        rows = self._check_values(super()._check_training_data(X, columns_must_vary=vary))
        self._architecture()  # refuses rows that are no images, if the net needs images
        return rows

    def _check_new_data(self, X: ArrayLike) -> FloatArray:
        X, _ = self._flat(X, self.image_shape_)
        return self._check_values(super()._check_new_data(X))

    def _flat(self, X: ArrayLike, expected: tuple[int, ...] | None) -> tuple[ArrayLike, tuple[int, ...] | None]:
        """Return X as rows, and the shape of its images if X holds images and the nets are made for them."""
        shape = np.shape(X) if hasattr(X, "shape") else ()
        if len(shape) not in (3, 4) or self.net is None:
            return X, None
        if expected is not None and shape[1:] != expected:
            raise DataError(f"Expected images of shape {expected}, as in fit. Got {shape[1:]}.")
        return np.asarray(X).reshape(shape[0], -1), shape[1:]

    def _check_values(self, X: FloatArray) -> FloatArray:
        if self.likelihood in ("bernoulli", "logistic") and len(X) and (X.min() < 0 or X.max() > 1):
            raise DataError(
                f"likelihood={self.likelihood!r} needs values in [0, 1]; these lie in [{X.min():g}, {X.max():g}]. "
                "Rescale them, or use likelihood='gaussian'."
            )
        if self.likelihood == "categorical" and (X % 1 != 0).any():
            raise DataError(
                "likelihood='categorical' needs whole numbers that name categories; some values are not whole. Number "
                "the categories, or use likelihood='gaussian'."
            )
        return X

    def _set_inputs(self, data: Split) -> None:
        """Set means and scales from the training rows, and the categories of all rows."""
        X, d = data.X_train, data.X.shape[1]
        self.mean_, self.scale_, self.levels_ = np.zeros(d), np.ones(d), ()
        if self.likelihood == "gaussian":
            self.mean_, scale = X.mean(0, dtype=np.float64), X.std(0, dtype=np.float64)
            self.scale_ = np.where(scale > 0, scale, data.X.std(0, dtype=np.float64))
        elif self.likelihood == "categorical":
            self.levels_ = tuple(np.unique(column).astype(np.float64) for column in data.X.T)

    def _inputs(self, X: FloatArray) -> FloatArray:
        """Return standardised columns, bits, or one-hot categories, as the encoder takes them."""
        if self.binarise == "threshold":
            return (X >= 0.5).astype(X.dtype)
        if self.likelihood != "categorical":
            return ((X - self.mean_) / self.scale_).astype(X.dtype)
        parts = []
        for j, (column, levels) in enumerate(zip(X.T, self.levels_, strict=True)):
            hit = column[:, None] == levels
            if not hit.any(1).all():
                unseen = sorted(set(column[~hit.any(1)].tolist()))[:5]
                raise DataError(f"Column {j} has categories that fit has not seen: {unseen}. Drop these rows.")
            parts.append(hit)
        return np.concatenate(parts, 1).astype(X.dtype)

    def _seen(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """Return rows as one training step sees them: with fresh bits if binarise="draw"."""
        return torch.bernoulli(x, generator=rng) if self.binarise == "draw" else x

    # -- outputs -----------------------------------------------------------------------

    def _observed(self, rows: NDArray[Any], dtype: Any) -> FloatArray:
        """Return outputs of a likelihood in the units of the data: rows, or images if `fit` was given images."""
        if self.likelihood == "categorical":
            ends = np.cumsum([len(levels) for levels in self.levels_])[:-1]
            chosen = [part.argmax(1) for part in np.split(rows, ends, axis=1)]
            x = np.stack([levels[i] for levels, i in zip(self.levels_, chosen, strict=True)], 1)
        else:
            x = rows * self.scale_ + self.mean_
        return x.astype(dtype).reshape(len(x), *(self.image_shape_ or x.shape[1:]))

    # -- nets ---------------------------------------------------------------------------

    @property
    def _n_inputs(self) -> int:
        """Width of the inputs of the encoder and of the outputs of the decoder."""
        return sum(map(len, self.levels_)) if self.likelihood == "categorical" else self.n_features_in_

    def _architecture(self) -> Architecture:
        if self.net is None:
            return Dense(tuple(self.hidden), activation=self.activation)
        return resolve(self.net, self.n_features_in_, self.image_shape_)

    def _likelihood(self, members: int) -> Likelihood:
        shape: tuple[int, ...] = getattr(self._architecture(), "shape", None) or ()
        return Likelihood(
            members,
            self.likelihood,
            self._n_inputs,
            levels=[len(levels) for levels in self.levels_],
            channels=shape[2] if len(shape) == 3 else 1,
        )

    @property
    def _rate(self) -> float:
        """Return the learning rate."""
        assert self.learning_rate is not None
        return self.learning_rate

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        self._require("likelihood", self.likelihood in LIKELIHOODS, f"one of {LIKELIHOODS}")
        self._require("binarise", self.binarise in BINARISE, f"one of {BINARISE}")
        if self.binarise is not None:
            self._require("binarise", self.likelihood == "bernoulli", "None unless likelihood='bernoulli'")
        widths_hold = isinstance(self.hidden, Sequence) and all(is_integer(h, 1) for h in self.hidden)
        self._require("hidden", widths_hold, "a sequence of positive layer widths")
        self._require("activation", self.activation in ACTIVATIONS, f"one of {sorted(ACTIVATIONS)}")
        self._require_integers(max_steps=1, batch_size=2)
        self._require_integers(patience=1, optional=True)
        unset = signature(type(self)).parameters["learning_rate"].default is None
        self._require_positive("learning_rate", optional=unset)
        path = self.checkpoint is None or isinstance(self.checkpoint, str | Path)
        self._require("checkpoint", path, "a path or None")
        if self.checkpoint is not None:
            self._require("random_state", is_integer(self.random_state, 0), "an integer when checkpoint is given")
