"""What autoencoders of images share: rows, images and simulators of them, at the resolution that the nets see."""

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from identifiable.arrays import Array, FloatArray
from identifiable.data.simulator import Simulator
from identifiable.errors import DataError
from identifiable.estimators.trained import Split, TrainedModel
from identifiable.nets.images import Shape
from identifiable.training import Batch

ROWS_AT_ONCE = 256


@dataclass(eq=False, repr=False)
class ImageModel(TrainedModel):
    """An autoencoder of images; its module has `encode`, `decode` and `errors`, the squared error of each image.

    X has images (N, height, width[, channels]), or their rows with `image_shape`, or is a `Simulator` of images. The
    nets see images averaged down to `_most_pixels` per side, in units of the range of the pixels.
    """

    _: KW_ONLY
    image_shape: tuple[int, ...] | None = None

    image_shape_: tuple[int, ...] = field(init=False)
    low_: float = field(init=False)
    range_: float = field(init=False)
    noise_: float = field(init=False)

    takes_simulator = True
    pilot = 3000

    @property
    def _most_pixels(self) -> int:
        """Largest side of the images that the nets see."""
        raise NotImplementedError

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return Σ_pixels log N(x; x̂, noise_²) of each image and its reconstruction, (N,), in nats.

        At the resolution of the nets, with pixels in units of their range.
        """
        rows = self._inputs(self._check_new_data(X))
        errors = self._apply(lambda module, x: module.errors(x), rows)[0].astype(np.float64)
        return -0.5 * rows.shape[1] * (errors / self.noise_**2 + math.log(2 * math.pi * self.noise_**2))

    def _split(self, X: Any, y: Any) -> Split:
        if isinstance(X, Simulator):
            self.image_shape_ = image_shape(X.image_shape, None)
        elif len(shape := np.shape(X)) > 2:
            self.image_shape_ = image_shape(shape[1:], None)
        else:
            self.image_shape_ = image_shape(self.image_shape, *shape[1:])
        return super()._split(X, y)

    def _check_training_data(self, X: ArrayLike, *, columns_must_vary: bool = True) -> FloatArray:
        return super()._check_training_data(as_rows(X), columns_must_vary=False)

    def _check_new_data(self, X: ArrayLike) -> FloatArray:
        return super()._check_new_data(as_rows(X))

    def _set_inputs(self, data: Split) -> None:
        some = data.X_train[:: max(1, len(data.train) // 1000)]
        self.low_, self.range_ = float(some.min()), float(np.ptp(some))
        if self.range_ == 0:
            raise DataError("All pixels of all images have the same value. Pass images in which something moves.")

    @property
    def _shape(self) -> Shape:
        """Height, width and channels of the images."""
        height, width, channels = (*self.image_shape_, 1)[:3]
        return height, width, channels

    @property
    def _small(self) -> Shape:
        """Shape of the images that the nets see."""
        height, width, channels = self._shape
        factor = max(1, math.ceil(max(height, width) / self._most_pixels))
        return max(1, height // factor), max(1, width // factor), channels

    def _inputs(self, X: FloatArray) -> FloatArray:
        """Return images averaged down, in units of their range."""
        parts = [self._averaged(torch.as_tensor(X[i : i + 1000])).numpy() for i in range(0, max(len(X), 1), 1000)]
        return np.concatenate(parts)

    def _averaged(self, x: Tensor) -> Tensor:
        """Average images (B, h w c) down to those that the nets see."""
        x = x.float().reshape(len(x), *self._shape)
        (height, width, _), (rows, columns, _) = self._shape, self._small
        if height % rows or width % columns:
            maps = torch.nn.functional.adaptive_avg_pool2d(x.permute(0, 3, 1, 2), (rows, columns))
            x = maps.permute(0, 2, 3, 1)
        elif (factor := height // rows) > 1:  # sums of slices are many times faster than pooling
            x = torch.stack([x[:, i::factor] for i in range(factor)]).sum(0)
            x = torch.stack([x[:, :, i::factor] for i in range(factor)]).sum(0) / factor**2
        return (x.flatten(1) - self.low_) / self.range_

    def _observed(self, rows: NDArray[Any], dtype: Any) -> FloatArray:
        """Return images (N, height, width[, channels]) of outputs of the decoder, interpolated to their size."""
        maps = torch.as_tensor(rows).reshape(len(rows), *self._small).permute(0, 3, 1, 2)
        maps = torch.nn.functional.interpolate(maps, self._shape[:2], mode="bilinear", align_corners=False)
        images = maps.permute(0, 2, 3, 1).reshape(len(rows), *self.image_shape_).numpy()
        return (images * self.range_ + self.low_).astype(dtype)

    def _apply(self, function: Any, *arrays: Any, module: Any = None, block: int = ROWS_AT_ONCE) -> NDArray[Any]:
        return super()._apply(function, *arrays, module=module, block=block)

    def _stream(self, source: Simulator, device: torch.device) -> Any:
        """Return a function that renders fresh images and averages them down."""
        draw = source.stream(device)

        def fresh(rows: int, rng: torch.Generator) -> Batch:
            return (self._averaged(draw(rows, rng)[0]),)

        return fresh

    def _restart_scores(self, data: Split) -> Array:
        held = self._inputs(data.X_held)
        return -self._apply(lambda module, x: module.errors(x), held, module=self._restarts).astype(np.float64).mean(1)

    def _set_results(self, data: Split) -> None:
        self.noise_ = max(1e-6, math.sqrt(-float(self.restart_scores_[self.kept_])))

    def _encode(self, module: Any, x: Tensor, u: Tensor | None = None) -> Tensor:
        return module.encode(x)

    def _decode(self, module: Any, z: Tensor) -> Tensor:
        return module.decode(z)


def as_rows(X: Any) -> Any:
    """Return images (N, height, width[, channels]) as rows; anything else unchanged."""
    shape = np.shape(X)
    return np.asarray(X).reshape(shape[0], -1) if len(shape) in (3, 4) else X


def image_shape(shape: tuple[int, ...] | None, columns: int | None = None) -> tuple[int, ...]:
    """Return the shape of images; refuse one that is none, or not that of rows with so many columns."""
    if shape is None or len(shape) not in (2, 3) or (columns is not None and math.prod(shape) != columns):
        found = "no image_shape" if shape is None else f"the shape {tuple(shape)}"
        of_rows = "" if columns is None else f" and rows of {columns} columns"
        raise DataError(
            f"Expected images (N, height, width) or (N, height, width, channels), or their rows with image_shape. Got "
            f"{found}{of_rows}."
        )
    return tuple(shape)
