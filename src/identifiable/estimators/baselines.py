"""The trivial baselines every recovery table shows: raw x, principal components, FastICA; `SparseUnmixing` joins them.

These three are affine: z = W (x - mean), with the Gaussian density N(mean, C) of x as their label-free score, C the
covariance of probabilistic PCA with n_latents components (Tipping & Bishop 1999): FastICA is a rotation of the same
subspace and has the same one.
"""

import warnings
from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from identifiable.agreement.stability import Stability
from identifiable.arrays import FloatArray, hold_out
from identifiable.errors import DataError
from identifiable.estimators.base import LatentModel
from identifiable.estimators.sparse_unmixing import SparseUnmixing

EIGENVALUE_FLOOR = 1e-10  # of the covariance, relative to its largest eigenvalue: keeps the density finite


class _Baseline(LatentModel):
    """Affine latents and a Gaussian density.

    Attributes
    ----------
    components_ : (n, d) W.
    mean_ : (d,)
    covariance_ : (d, d) C.
    stability_, fit_status_ : the agreement between restarts.
    """

    components_: NDArray[np.float64]
    mean_: NDArray[np.float64]
    covariance_: NDArray[np.float64]

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        n_restarts: int = 1,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        self.n_latents = n_latents  # type: ignore[assignment]
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @abstractmethod
    def _unmix(self, X: FloatArray, n: int) -> NDArray[np.float64]:
        """Return W (n, d) for centred X (N, d) and set `stability_`."""

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the affine map on X (N, d). y is ignored. n_latents=None keeps as many latents as columns."""
        self._check_common_parameters()
        X = self._check_training_data(X)
        n = X.shape[1] if self.n_latents is None else self.n_latents
        if n > X.shape[1]:
            raise DataError(
                f"An affine method finds at most as many latents as columns: n_latents={n}, n_features={X.shape[1]}."
            )
        self.mean_ = X.mean(0, dtype=np.float64)
        self.covariance_ = _gaussian_covariance(X, n)
        self.components_ = self._unmix(X - self.mean_, n)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return W (x - mean) for every row, (N, n)."""
        X = self._check_new_data(X)
        return ((X - self.mean_) @ self.components_.T).astype(X.dtype)

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return mean + W⁺ z for every row, (N, d)."""
        Z = self._check_latents(Z)
        return (Z @ np.linalg.pinv(self.components_).T + self.mean_).astype(Z.dtype)

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return log N(x; mean, C) of each row (N,)."""
        X = self._check_new_data(X)
        lower = np.linalg.cholesky(self.covariance_)
        white = np.linalg.solve(lower, (X - self.mean_).T)
        log_det = 2 * np.log(np.diag(lower)).sum()
        return -0.5 * ((white**2).sum(0) + log_det + X.shape[1] * np.log(2 * np.pi))

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean Gaussian log-likelihood of the rows of X, in nats; higher is better. y is ignored."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw n_samples rows of N(mean, C)."""
        noise = check_random_state(random_state).standard_normal((n_samples, len(self.mean_)))
        return self.mean_ + noise @ np.linalg.cholesky(self.covariance_).T

    def _set_certain(self) -> None:
        """There is nothing random: restarts agree."""
        same = np.ones((self.n_restarts, self.n_restarts))
        self.stability_ = Stability(same, same.copy() if self.n_restarts > 1 else None)
        self.fit_status_ = self.stability_.status


class RawData(_Baseline):
    """The columns of x themselves, centred: what a method must beat.

    With n_latents < d, the n columns with the largest variance.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 3)) * [1, 5, 3]
    >>> RawData(n_latents=2).fit(x).components_
    array([[0., 1., 0.],
           [0., 0., 1.]])
    """

    def _unmix(self, X: FloatArray, n: int) -> NDArray[np.float64]:
        self._set_certain()
        largest = np.sort(np.argsort(-X.var(0), kind="stable")[:n])
        return np.eye(X.shape[1])[largest]


class PrincipalComponents(_Baseline):
    """The n leading principal components of the standardised columns, each with unit variance.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 3)) * [1, 5, 3]
    >>> z = PrincipalComponents(n_latents=2).fit_transform(x)
    >>> np.allclose(np.cov(z.T, ddof=0), np.eye(2))
    True
    """

    def _unmix(self, X: FloatArray, n: int) -> NDArray[np.float64]:
        self._set_certain()
        scale, values, vectors = _principal_axes(X)
        values, vectors = values[::-1][:n], vectors[:, ::-1][:, :n]
        vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(0), np.arange(n)])
        return vectors.T / np.sqrt(np.maximum(values, EIGENVALUE_FLOOR))[:, None] / scale


class IndependentComponents(_Baseline):
    """FastICA (Hyvärinen 1999; scikit-learn's) on the leading n principal components, from several random starts.

    References
    ----------
    Hyvärinen, Fast and robust fixed-point algorithms for independent component analysis, IEEE TNN 1999.
    """

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        n_restarts: int = 4,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
    ) -> None:
        super().__init__(n_latents, n_restarts=n_restarts, random_state=random_state, device=device, verbose=verbose)

    def _unmix(self, X: FloatArray, n: int) -> NDArray[np.float64]:
        seed = self._seed()
        train, held = hold_out(len(X), seed)
        scale = X.std(0, dtype=np.float64)
        unmixings = []
        for r in range(self.n_restarts):
            ica = FastICA(n, whiten="unit-variance", max_iter=500, random_state=seed + r)
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", ConvergenceWarning
                )  # a start that does not converge shows in stability_
                ica.fit(X[train] / scale)
            unmixings.append(ica.components_ / scale)
        return unmixings[self._compare_restarts(np.stack([X[held] @ w.T for w in unmixings]))]


def baselines(n_latents: int | None = None, *, random_state: int | None = 0) -> dict[str, LatentModel]:
    """Return the linear baselines, unfitted, by the names the tables use.

    Examples
    --------
    >>> list(baselines(5))
    ['raw x', 'PCA', 'FastICA', 'SparseUnmixing']
    """
    return {
        "raw x": RawData(),
        "PCA": PrincipalComponents(n_latents),
        "FastICA": IndependentComponents(n_latents, random_state=random_state),
        "SparseUnmixing": SparseUnmixing(n_latents, n_restarts=2, random_state=random_state),
    }


def _principal_axes(X: FloatArray) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the columns' scales (d,), and eigenvalues, rising, and eigenvectors of their correlation matrix."""
    scale = X.std(0, dtype=np.float64)
    values, vectors = np.linalg.eigh(np.cov((X / scale).T, ddof=0).reshape(X.shape[1], -1))
    return scale, values, vectors


def _gaussian_covariance(X: FloatArray, n: int) -> NDArray[np.float64]:
    """Covariance of probabilistic PCA with n components on standardised columns, in the units of X."""
    scale, values, vectors = _principal_axes(X)
    rest = len(values) - n
    if rest:
        values[:rest] = values[:rest].mean()
    values = np.maximum(values, EIGENVALUE_FLOOR * values[-1])
    return (vectors * values) @ vectors.T * np.outer(scale, scale)
