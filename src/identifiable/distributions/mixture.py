"""A Gaussian mixture as plain numbers, shared by simulators, estimators, certificates and metrics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag

from identifiable.errors import DataError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False, init=False)
class Mixture:
    r"""A Gaussian mixture :math:`\sum_j w_j N(\mu_j, \Sigma_j)` on R^m.

    Attributes
    ----------
    weights : (J,) non-negative, summing to 1.
    means : (J, m).
    covariances : (J, m, m) symmetric positive semi-definite, or (J, m) variances when they are diagonal (stored as
        full matrices).

    Examples
    --------
    >>> Mixture([0.5, 0.5], [[0, 0], [3, 0]], [[1, 1], [1, 4]]).covariances[1]
    array([[1., 0.],
           [0., 4.]])
    """

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray

    def __init__(self, weights: ArrayLike, means: ArrayLike, covariances: ArrayLike) -> None:
        mu, s = np.asarray(means, dtype=np.float64), np.asarray(covariances, dtype=np.float64)
        if mu.ndim != 2 or not np.isfinite(mu).all():
            raise DataError(f"means must be finite, of shape (components, dimensions), got shape {mu.shape}.")
        n_components, m = mu.shape
        w = check_weights(weights, n_components, "mean")
        if s.shape == mu.shape:
            s = s[:, :, None] * np.eye(m)
        if s.shape != (n_components, m, m) or not np.isfinite(s).all():
            raise DataError(
                f"covariances must be finite, of shape {(n_components, m, m)}, or {(n_components, m)} when diagonal, "
                f"got shape {np.shape(covariances)}."
            )
        if not np.allclose(s, s.swapaxes(1, 2), rtol=1e-5, atol=1e-8 * np.abs(s).max()):
            raise DataError("covariances must be symmetric: pass (S + S.T) / 2 if the difference is rounding.")
        for name, value in (("weights", w), ("means", mu), ("covariances", (s + s.swapaxes(1, 2)) / 2)):
            object.__setattr__(self, name, value)

    @property
    def covariance(self) -> FloatArray:
        """Covariance (m, m) of the whole mixture.

        Examples
        --------
        >>> Mixture([0.5, 0.5], [[0.0], [4.0]], [[1.0], [3.0]]).covariance
        array([[6.]])
        """
        centred = self.means - self.weights @ self.means
        return np.einsum("j,jab->ab", self.weights, self.covariances) + (self.weights * centred.T) @ centred

    def sample(self, size: int, rng: np.random.Generator | np.random.RandomState) -> tuple[FloatArray, IntArray]:
        """Return `size` rows (size, m) and their components (size,); covariances may be singular."""
        component = rng.choice(len(self.weights), size=size, p=self.weights)
        values, vectors = np.linalg.eigh(self.covariances)
        normal = rng.standard_normal((size, self.means.shape[1])) * np.sqrt(np.maximum(values, 0))[component]
        return self.means[component] + np.einsum("nab,nb->na", vectors[component], normal), component

    def log_joint(self, z: FloatArray, floor: float = 0.0) -> FloatArray:
        """Return log w_j N(z; μ_j, Σ_j + floor² I) for rows z (N, m), as (N, J).

        Examples
        --------
        >>> two = Mixture([0.5, 0.5], [[0.0], [3.0]], [[1.0], [1.0]])
        >>> two.log_joint(np.array([[0.0]])).round(2)
        array([[-1.61, -6.11]])
        """
        values, vectors = np.linalg.eigh(self.covariances)
        values = np.maximum(values, 0) + floor**2
        square = np.stack(
            [(((z - mu) @ v) ** 2 / s).sum(1) for mu, v, s in zip(self.means, vectors, values, strict=True)], axis=1
        )
        constant = np.log(np.maximum(self.weights, 1e-300)) - 0.5 * np.log(2 * np.pi * values).sum(1)
        return constant - 0.5 * square

    def pushforward(self, matrix: ArrayLike, offset: ArrayLike) -> "Mixture":
        """Return the distribution of ``matrix @ z + offset`` when z follows this mixture."""
        a = np.asarray(matrix, dtype=np.float64)
        return Mixture(
            self.weights, self.means @ a.T + np.asarray(offset, dtype=np.float64), a @ self.covariances @ a.T
        )


def check_weights(weights: ArrayLike, size: int, of: str) -> FloatArray:
    """Return the weights, normalised; refuse negative ones, and a sum that differs from 1 by more than rounding."""
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (size,) or not np.all(w >= 0) or not abs(w.sum() - 1) < 1e-4:
        raise DataError(
            f"weights must be {size} non-negative numbers (one per {of}) that sum to 1, got shape {w.shape} and sum "
            f"{w.sum():.4g}: normalise them."
        )
    return w / w.sum()


def product_of(mixtures: Sequence[Mixture]) -> Mixture:
    """Return the mixture of independent parts: a component for every choice of one component of each part.

    Examples
    --------
    >>> one = Mixture([0.5, 0.5], [[0.0], [3.0]], [[1.0], [1.0]])
    >>> product_of([one, Mixture([1.0], [[7.0]], [[2.0]])]).means
    array([[0., 7.],
           [3., 7.]])
    """
    chosen = [list(zip(mixtures, ks, strict=True)) for ks in product(*(range(len(one.weights)) for one in mixtures))]
    weights = [math.prod(one.weights[k] for one, k in parts) for parts in chosen]
    means = [np.concatenate([one.means[k] for one, k in parts]) for parts in chosen]
    return Mixture(weights, means, [block_diag(*(one.covariances[k] for one, k in parts)) for parts in chosen])
