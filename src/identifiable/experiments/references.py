"""What the methods on images are compared with, and only in experiments: an untrained encoder, and a labelled one."""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from torch import Tensor

from identifiable.arrays import FloatArray
from identifiable.estimators.keypoints import KeypointEncoder
from identifiable.estimators.trained import Split
from identifiable.nets.keypoints import Keypoints
from identifiable.training import Batch, History, Stage, Step

ROWS_AT_ONCE = 500


@dataclass(eq=False, repr=False)
class ColourMoments(TransformerMixin, BaseEstimator):
    """First moments of random features of the colour of a pixel: nothing is learnt.

        m_j = mean over pixels p of relu(w_j · colour(p) + b_j) (p - centre),        j = 1..n_features, p = (x, y).

    In an image of things of distinct colours that do not hide each other, each moment is an affine function of their
    positions, so that an affine unmixing of the moments can find them.

    Examples
    --------
    >>> x = np.random.default_rng(0).random((10, 8, 8, 3))
    >>> ColourMoments(image_shape=(8, 8, 3), random_state=0).fit_transform(x).shape
    (10, 128)
    """

    image_shape: tuple[int, ...] | None = None
    n_features: int = 64
    random_state: int = 0

    def fit(self, X: ArrayLike, y: Any = None) -> "ColourMoments":
        """Draw the features, and drop the moments that are the same in all images X. y is ignored."""
        assert self.image_shape is not None
        height, width, channels = (*self.image_shape, 1)[:3]
        rng = np.random.default_rng(self.random_state)
        self.weights_ = rng.normal(size=(channels, self.n_features)).astype(np.float32)
        self.biases_ = -(rng.random((1, channels)) @ self.weights_).astype(np.float32)  # zero at a random colour
        down, across = np.mgrid[:height, :width].reshape(2, -1).astype(np.float32)
        places = np.stack([across / width, down / height])
        self.places_ = (places - places.mean(1, keepdims=True)) / (height * width)
        self.kept_ = np.flatnonzero(np.ptp(self._moments(X), axis=0))
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the moments (N, at most 2 n_features)."""
        return self._moments(X)[:, self.kept_]

    def _moments(self, X: ArrayLike) -> FloatArray:
        pixels = np.asarray(X, dtype=np.float32).reshape(len(np.asarray(X)), -1, len(self.weights_))
        parts = [pixels[i : i + ROWS_AT_ONCE] for i in range(0, len(pixels), ROWS_AT_ONCE)]
        features = (np.maximum(part @ self.weights_ + self.biases_, 0) for part in parts)
        moments = np.concatenate([self.places_ @ f for f in features])
        return moments.reshape(len(pixels), -1).astype(np.float64)


@dataclass(eq=False, repr=False)
class LabelledKeypoints(KeypointEncoder):
    """The encoder of `KeypointEncoder`, trained with the true positions y = z: what supervision reaches.

        min  E‖encode(x) - z‖²

    It is not a method: no position is known where it would be needed. It has no decoder.
    """

    inverse_transform = None  # type: ignore[assignment]

    def _stages(self, data: Split) -> Generator[Stage, History, Keypoints]:
        rows = torch.as_tensor(self._inputs(data.X_train), device=data.device)
        z = torch.as_tensor(np.asarray(data.u_train), dtype=rows.dtype, device=data.device)
        self.n_slots_ = z.shape[1] // 2
        ground = rows[:1000].median(0).values.cpu().reshape(self._small)
        net = Keypoints(ground, self.n_slots_, self.n_restarts, rng=data.rng()).to(data.device)

        def loss(batch: Batch, step: Step) -> Tensor:
            x, places = batch
            return (net.encode(x) - places).square().sum(2).mean(1)

        self.history_ = yield Stage(net, loss, [rows, z], self._plan(self.max_steps, warm_up=0.1), data.seed)
        return net

    def _set_results(self, data: Split) -> None:
        self.noise_ = math.nan  # nothing is reconstructed
