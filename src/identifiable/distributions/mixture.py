"""A Gaussian mixture as plain numbers: what simulators know, estimators learn, and certificates and metrics look at."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from identifiable.errors import DataError

FloatArray = NDArray[np.float64]


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
        w, s = np.asarray(weights, dtype=np.float64), np.asarray(covariances, dtype=np.float64)
        mu = np.asarray(means, dtype=np.float64)
        if mu.ndim != 2 or not np.isfinite(mu).all():
            raise DataError(f"means must be finite, of shape (components, dimensions), got shape {mu.shape}.")
        n_components, m = mu.shape
        if w.shape != (n_components,) or not np.all(w >= 0) or not abs(w.sum() - 1) < 1e-4:
            raise DataError(
                f"weights must be {n_components} non-negative numbers (one per mean) that sum to 1, got shape "
                f"{w.shape} and sum {w.sum():.4g}: normalise them."
            )
        if s.shape == mu.shape:
            s = s[:, :, None] * np.eye(m)
        if s.shape != (n_components, m, m) or not np.isfinite(s).all():
            raise DataError(
                f"covariances must be finite, of shape {(n_components, m, m)}, or {(n_components, m)} when diagonal, "
                f"got shape {np.shape(covariances)}."
            )
        if not np.allclose(s, s.swapaxes(1, 2), rtol=1e-5, atol=1e-8 * np.abs(s).max()):
            raise DataError("covariances must be symmetric: pass (S + S.T) / 2 if the difference is rounding.")
        for name, value in (("weights", w / w.sum()), ("means", mu), ("covariances", (s + s.swapaxes(1, 2)) / 2)):
            object.__setattr__(self, name, value)

    def pushforward(self, matrix: ArrayLike, offset: ArrayLike) -> "Mixture":
        """Return the law of ``matrix @ z + offset`` when z follows this mixture."""
        a = np.asarray(matrix, dtype=np.float64)
        return Mixture(
            self.weights, self.means @ a.T + np.asarray(offset, dtype=np.float64), a @ self.covariances @ a.T
        )
