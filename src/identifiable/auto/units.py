"""Units of a table, in which models are fitted, and densities in the units of the table."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from identifiable.algorithms.coordinates import Coordinates
from identifiable.arrays import Array, BoolArray, FloatArray


@dataclass(frozen=True)
class Units:
    """y = ((log) x - mean) / scale @ vectors: columns of one size, without directions in which nothing varies.

    Attributes
    ----------
    logs : (d,) columns whose logarithm is used.
    mean, scale : (d,) of the columns, after the logarithm.
    vectors : (d, w) orthonormal directions whose coordinates are used; the identity if all of them are. The rows of
        columns that are not used are zero; `back` returns the mean of these columns.
    """

    logs: BoolArray
    mean: Array
    scale: Array
    vectors: Array

    @classmethod
    def of(cls, X: FloatArray, logs: BoolArray, *, common_scale: bool = False, unused: BoolArray | None = None) -> Self:
        """Compute the units of rows X (N, d); with a common scale, as for pixels, columns keep their relative sizes."""
        d = X.shape[1]
        used = np.ones(d, dtype=bool) if unused is None else ~unused
        logs = logs & used
        y = _log(X, logs)
        found = Coordinates.fit(y[:, used], standardise=not common_scale)
        mean, scale, vectors = y.mean(0), np.ones(d), np.zeros((d, found.rank))
        scale[used] = found.scale
        vectors[used] = np.eye(used.sum()) if found.rank == used.sum() else found.basis
        return cls(logs, mean, scale, vectors)

    def along(self, directions: FloatArray) -> Self:
        """Return the same units with fewer coordinates: those along these directions (w, v)."""
        return replace(self, vectors=self.vectors @ directions)

    def into(self, X: FloatArray) -> Array:
        """Return rows X (N, d) in these units, (N, w)."""
        return (_log(X, self.logs) - self.mean) / self.scale @ self.vectors

    def back(self, Y: FloatArray) -> Array:
        """Return rows (N, d) in the units of the table."""
        x = Y @ self.vectors.T * self.scale + self.mean
        x[:, self.logs] = np.exp(x[:, self.logs])
        return x

    def log_volume(self, Y: FloatArray) -> Array:
        r"""Return :math:`\frac12 \log\det J^\top J` of the map `back` at rows Y (N, w): log p(x) = log p(y) - this.

        J = diag(∂x) S V has full column rank: p(x) is a density on the w-dimensional surface that `back` maps to.
        """
        stretch = np.where(self.logs, self.back(Y), 1.0) * self.scale
        if self.vectors.shape[0] == self.vectors.shape[1]:
            return np.log(stretch).sum(1)
        different = stretch if self.logs.any() else stretch[:1]
        volumes = [0.5 * np.linalg.slogdet((self.vectors.T * row**2) @ self.vectors)[1] for row in different]
        return np.broadcast_to(volumes, len(Y))


@dataclass(frozen=True)
class Pixels:
    """Units of images that are given to a model as they are: rows of pixels, in the units of the table."""

    def along(self, directions: None) -> Self:
        """Return the same units."""
        return self

    def into(self, X: FloatArray) -> FloatArray:
        """Return rows X (N, d), which torch can share: read-only ones are copied."""
        return X if X.flags.writeable else X.copy()

    def back(self, Y: FloatArray) -> Array:
        """Return images Y (N, ...) as rows (N, d)."""
        return np.asarray(Y, dtype=np.float64).reshape(len(Y), -1)

    def log_volume(self, Y: FloatArray) -> Array:
        """Return 0 for each row."""
        return np.zeros(len(Y))


def _log(X: FloatArray, logs: BoolArray) -> Array:
    y = X.astype(np.float64)
    y[:, logs] = np.log(y[:, logs])
    return y
