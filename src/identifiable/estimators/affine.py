"""The base of the affine methods: z = W (x - origin), its inverse, and Gaussian noise outside the latents' subspace."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from identifiable.algorithms.coordinates import Coordinates
from identifiable.arrays import Array, FloatArray, Rows, hold_out
from identifiable.errors import join_few, warn_recovery
from identifiable.estimators.base import LatentModel


@dataclass(eq=False, repr=False)
class AffineModel(LatentModel):
    """A model whose latents are an affine function of x, with isotropic noise outside their principal subspace.

    Attributes
    ----------
    components_, mixing_ : (n, d) and (d, n): W and its inverse on the latents' subspace.
    mean_ : (d,) of the rows.
    residual_, residual_mixing_ : (r - n, d) and (d, r - n), for rows of rank r: standard normal coordinates of x
        outside the latents' subspace, and their inverse.
    log_det_ : log p(x) = log p(z) + log N(residual; 0, I) + log_det_ on the subspace in which the rows vary.
    """

    n_latents: int | None = None  # type: ignore[assignment]
    _: KW_ONLY
    n_restarts: int = 1

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    @property
    def _origin(self) -> Array:
        """The point (d,) at which all latents are zero."""
        return self.mean_

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents W (x - origin) of every row, (N, n)."""
        X = self._check_new_data(X)
        return self._latents(X).astype(X.dtype)

    def _latents(self, X: FloatArray) -> Array:
        return (X - self._origin) @ self.components_.T

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return mixing z + origin, (N, d): the rows of the affine span of the training data whose latents are Z."""
        Z = self._check_latents(Z)
        return (Z @ self.mixing_.T + self._origin).astype(Z.dtype)

    @abstractmethod
    def score_samples(self, X: ArrayLike) -> Array:
        """Return the log-density of each row (N,), in nats."""

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean log-density of the rows of X (see `score_samples`); higher is better. y is ignored."""
        return float(np.mean(self.score_samples(X)))

    def _hold_out(self, rows: int, seed: int) -> tuple[Rows, Rows]:
        """Return training rows and held-out rows, which only compare the restarts; a single restart needs none."""
        return hold_out(rows, seed) if self.n_restarts > 1 else (np.arange(rows), np.arange(min(rows, 10)))

    def _halves(self, train: Rows, rng: np.random.Generator) -> list[Rows]:
        """Return the rows of each restart: random halves of the training rows, or all of them for a single one."""
        if self.n_restarts == 1:
            return [train]
        halves = [half for _ in range(self.n_restarts) for half in np.array_split(rng.permutation(train), 2)]
        return halves[: self.n_restarts]

    def _set_map(self, W: Array, coordinates: Coordinates) -> None:
        """Put the map W (n, n) of principal components into the units of X."""
        scale, noise = coordinates.scale, coordinates.noise
        kept, others = np.split(coordinates.basis, [coordinates.n], axis=1)
        self.mean_ = coordinates.mean
        self.components_ = W @ kept.T / scale
        self.mixing_ = scale[:, None] * (kept @ np.linalg.inv(W))
        self.residual_ = others.T / scale / noise
        self.residual_mixing_ = scale[:, None] * others * noise
        log_det = np.linalg.slogdet(W)[1] - coordinates.log_volume - others.shape[1] * np.log(noise)
        self.log_det_ = float(log_det)

    def _warn_of_blocks(self, reason: str) -> None:
        """Warn of latents that are not separated from each other."""
        if self.blocks_:
            everything = len(self.blocks_[0]) == self._n_features_out
            which = "all latents" if everything else f"latents {join_few([str(block) for block in self.blocks_])}"
            warn_recovery(
                f"{type(self).__name__} cannot separate {which} from each other: in these rows, {reason}. Only their "
                "span is found. See blocks_."
            )

    def _log_density_outside(self, X: FloatArray) -> Array:
        """Return log p(x) - log p(z) of each row (N,)."""
        return norm.logpdf((X - self.mean_) @ self.residual_.T).sum(1) + self.log_det_

    def _with_noise(self, z: Array, generator: np.random.RandomState) -> Array:
        """Return rows (N, d) of latents z (N, n), with noise outside their subspace."""
        noise = generator.standard_normal((len(z), len(self.residual_)))
        if not hasattr(self, "residual_mixing_"):  # files of version 0.1; there (components_, residual_) is square
            return np.c_[z, noise] @ np.linalg.inv(np.vstack([self.components_, self.residual_])).T + self.mean_
        return z @ self.mixing_.T + noise @ self.residual_mixing_.T + self.mean_
