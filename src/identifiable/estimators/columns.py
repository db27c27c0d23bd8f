"""Columns and pixels: how the rows of a table, or images, go into an autoencoder and come out of it."""

from collections.abc import Sequence
from inspect import signature
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from identifiable.arrays import Array, FloatArray, is_integer, is_real
from identifiable.errors import DataError
from identifiable.estimators.autoencoder import Likelihood
from identifiable.estimators.base import LatentModel
from identifiable.nets import ACTIVATIONS, Architecture, Dense, resolve

LIKELIHOODS = "gaussian", "bernoulli", "logistic", "categorical"
BINARISE = None, "threshold", "draw"


class Columns(LatentModel):
    """What all autoencoders share: columns, images, a likelihood, nets and how long they are trained.

    Parameters, which every class states for itself:

    - likelihood : "gaussian" (columns are standardised inside; one learnt noise scale per column), "bernoulli" (values
      in [0, 1]), "logistic" (pixels in {0, 1/255, ..., 1}), "categorical" (whole numbers that name categories).
    - binarise : for "bernoulli": None takes values for probabilities, "threshold" cuts them at 1/2, "draw" draws a new
      bit for each at every step of training.
    - hidden, activation : layers of an encoder whose decoder mirrors it; or instead of both
    - net : a name of `identifiable.nets.ARCHITECTURES`, or an `Architecture`.

    With a `net` that knows a shape X may hold images (N, h, w) or (N, h, w, c); images then come out, too.
    """

    likelihood: str
    binarise: Literal["threshold", "draw"] | None = None
    hidden: Sequence[int]
    activation: str
    net: str | Architecture | None = None
    max_steps: int
    batch_size: int
    learning_rate: float | None
    patience: int | None
    checkpoint: Any

    mean_: Array
    scale_: Array
    levels_: tuple[Array, ...]
    image_shape_: tuple[int, ...] | None = None

    # -- what comes in ---------------------------------------------------------------

    def _check_rows(self, X: ArrayLike) -> FloatArray:
        """Check what `fit` is given, and note the shape of images."""
        X, self.image_shape_ = self._flat(X, None)
        rows = self._check_training_data(X, columns_must_vary=self.likelihood == "gaussian")
        self._architecture()  # refuses columns that are no image, where one is needed
        return self._check_values(rows)

    def _check_new_data(self, X: ArrayLike) -> FloatArray:
        X, _ = self._flat(X, self.image_shape_)
        return self._check_values(super()._check_new_data(X))

    def _flat(self, X: ArrayLike, expected: tuple[int, ...] | None) -> tuple[ArrayLike, tuple[int, ...] | None]:
        """Return rows, and the shape of the images if X holds some and the nets are made for images."""
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

    def _set_columns(self, X: FloatArray) -> None:
        d = X.shape[1]
        self.mean_, self.scale_, self.levels_ = np.zeros(d), np.ones(d), ()
        if self.likelihood == "gaussian":
            self.mean_, self.scale_ = X.mean(0, dtype=np.float64), X.std(0, dtype=np.float64)
        elif self.likelihood == "categorical":
            self.levels_ = tuple(np.unique(column).astype(np.float64) for column in X.T)

    def _rows(self, X: FloatArray, device: torch.device, dtype: Any = None) -> Tensor:
        """Return standardised columns, bits, or categories one-hot, as the encoder takes them; precise as X is."""
        dtype = X.dtype if dtype is None else dtype
        if self.binarise == "threshold":
            return torch.as_tensor((X >= 0.5).astype(dtype), device=device)
        if self.likelihood != "categorical":
            return torch.as_tensor(((X - self.mean_) / self.scale_).astype(dtype), device=device)
        parts = []
        for j, (column, levels) in enumerate(zip(X.T, self.levels_, strict=True)):
            hit = column[:, None] == levels
            if not hit.any(1).all():
                unseen = sorted(set(column[~hit.any(1)].tolist()))[:5]
                raise DataError(f"Column {j} has categories that were not there in fit: {unseen}. Drop these rows.")
            parts.append(hit)
        return torch.as_tensor(np.concatenate(parts, 1).astype(dtype), device=device)

    def _seen(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """Return rows as one step of training sees them: fresh bits where they are to be drawn."""
        return torch.bernoulli(x, generator=rng) if self.binarise == "draw" else x

    # -- what goes out ----------------------------------------------------------------

    def _observed(self, values: NDArray[Any], dtype: Any) -> FloatArray:
        """Return what a likelihood says of x, in the units of the data: rows, or images if `fit` was given some."""
        if self.likelihood == "categorical":
            ends = np.cumsum([len(levels) for levels in self.levels_])[:-1]
            chosen = [part.argmax(1) for part in np.split(values, ends, axis=1)]
            x = np.stack([levels[i] for levels, i in zip(self.levels_, chosen, strict=True)], 1)
        else:
            x = values * self.scale_ + self.mean_
        return self._pictured(x.astype(dtype))

    def _pictured(self, x: FloatArray) -> FloatArray:
        return x if self.image_shape_ is None else x.reshape(len(x), *self.image_shape_)

    # -- nets ---------------------------------------------------------------------------

    @property
    def _n_inputs(self) -> int:
        """Numbers per row that an encoder takes and a decoder gives."""
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

    def _check_nets(self) -> None:
        """Check the parameters that all autoencoders share."""
        self._require("likelihood", self.likelihood in LIKELIHOODS, f"one of {LIKELIHOODS}")
        self._require("binarise", self.binarise in BINARISE, f"one of {BINARISE}")
        if self.binarise is not None:
            self._require("binarise", self.likelihood == "bernoulli", "None unless likelihood='bernoulli'")
        widths_hold = isinstance(self.hidden, Sequence) and all(is_integer(h, 1) for h in self.hidden)
        self._require("hidden", widths_hold, "a sequence of positive layer widths")
        self._require("activation", self.activation in ACTIVATIONS, f"one of {sorted(ACTIVATIONS)}")
        self._require("max_steps", is_integer(self.max_steps, 1), "an integer >= 1")
        self._require("batch_size", is_integer(self.batch_size, 2), "an integer >= 2")
        unset = self.learning_rate is None and signature(type(self)).parameters["learning_rate"].default is None
        self._require("learning_rate", unset or is_real(self.learning_rate, 0), "a number > 0")
        self._require("patience", self.patience is None or is_integer(self.patience, 1), "an integer >= 1 or None")
        if self.checkpoint is not None:
            self._require("random_state", is_integer(self.random_state, 0), "an integer when checkpoint is given")
