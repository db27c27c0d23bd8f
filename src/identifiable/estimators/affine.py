"""What the affine methods share: rows to white principal components and back, z = W (x - mean)."""

import numpy as np
from numpy.typing import ArrayLike

from identifiable.arrays import Array, FloatArray
from identifiable.errors import DataError
from identifiable.estimators.base import LatentModel
from identifiable.estimators.sparse_unmixing import Reduction


class AffineModel(LatentModel):
    """A model whose latents are an affine function of x, with isotropic noise outside their principal subspace."""

    components_: Array
    mean_: Array
    mixing_: Array
    residual_: Array
    log_det_: float

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return W (x - mean) for every row, (N, n)."""
        X = self._check_new_data(X)
        return ((X - self.mean_) @ self.components_.T).astype(X.dtype)

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return mixing z + mean for every row, (N, d)."""
        Z = self._check_latents(Z)
        return (Z @ self.mixing_.T + self.mean_).astype(Z.dtype)

    def _reduced(self, X: FloatArray) -> Reduction:
        """Return the principal components of X (N, d), as many as latents."""
        reduction = Reduction.of(X, self.n_latents)
        if self.n_latents is not None and self.n_latents > reduction.n:
            raise DataError(
                f"A linear method finds at most as many latents as X has rank: n_latents={self.n_latents}, "
                f"rank={reduction.n}, n_features={X.shape[1]}."
            )
        return reduction

    def _set_map(self, W: Array, reduction: Reduction) -> None:
        """Put W (n, n) of white data into the units of X."""
        scale, left = reduction.scale, np.sqrt(reduction.residual_variance)
        kept, rest = np.split(reduction.vectors, [reduction.n], axis=1)
        rows = W / np.sqrt(reduction.variances)
        self.mean_ = reduction.mean
        self.components_ = rows @ kept.T / scale
        self.mixing_ = scale[:, None] * (kept @ np.linalg.inv(rows))
        self.residual_ = rest.T / scale / left
        log_det = np.linalg.slogdet(rows)[1] - np.log(scale).sum() - rest.shape[1] * np.log(left)
        self.log_det_ = float(log_det)

    def _with_noise(self, z: Array, generator: np.random.RandomState) -> Array:
        """Return rows (N, d) of latents z (N, n), and noise outside their subspace."""
        noise = generator.standard_normal((len(z), len(self.residual_)))
        return np.c_[z, noise] @ np.linalg.inv(np.vstack([self.components_, self.residual_])).T + self.mean_
