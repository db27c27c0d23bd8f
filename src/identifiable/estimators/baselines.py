"""The baselines of every recovery table: raw x, principal components and FastICA. `SparseUnmixing` joins them.

These three are affine: z = W (x - mean), with the Gaussian density N(mean, C) of x as their label-free score, C the
covariance of probabilistic PCA with n_latents components (Tipping & Bishop 1999). FastICA rotates the same subspace and
has the same density.
"""

import warnings
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning

from identifiable.agreement.stability import Stability
from identifiable.algorithms.coordinates import Coordinates
from identifiable.arrays import Array, FloatArray, hold_out
from identifiable.errors import DataError
from identifiable.estimators.affine import AffineModel
from identifiable.estimators.base import LatentModel
from identifiable.estimators.sparse_unmixing import SparseUnmixing

EIGENVALUE_FLOOR = 1e-10  # of the covariance, relative to its largest eigenvalue: keeps it invertible


@dataclass(eq=False, repr=False)
class _Baseline(AffineModel):
    """Affine latents and a Gaussian density.

    Attributes
    ----------
    components_ : (n, d) W. Latents beyond the rank of X are zero.
    mean_ : (d,)
    covariance_ : (d, d) C.
    stability_, fit_status_ : the agreement between restarts.
    """

    @abstractmethod
    def _unmix(self, X: FloatArray, coordinates: Coordinates, n: int) -> Array:
        """Return W (m, d), m <= n, for centred X (N, d), and set `stability_`."""

    @property
    def mixing_(self) -> Array:  # type: ignore[override]
        """The pseudo-inverse (d, n) of W on the subspace in which the training rows vary."""
        axes = np.linalg.qr(self._gaussian.scale[:, None] * self._gaussian.basis)[0]
        return axes @ np.linalg.pinv(self.components_ @ axes)

    @property
    def _gaussian(self) -> Coordinates:
        """The principal coordinates of N(mean, C)."""
        return Coordinates.of_covariance(self.mean_, self.covariance_)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the affine map on X (N, d). y is ignored. n_latents=None keeps as many latents as columns."""
        self._check_common_parameters()
        X = self._check_training_data(X)
        n = X.shape[1] if self.n_latents is None else self.n_latents
        if n > X.shape[1]:
            raise DataError(
                f"An affine method finds at most as many latents as columns: n_latents={n}, n_features={X.shape[1]}."
            )
        coordinates = Coordinates.fit(X, self.n_latents)
        self.mean_, self.covariance_ = coordinates.mean, _gaussian_covariance(coordinates)
        found = self._unmix(X - self.mean_, coordinates, n)
        self.components_ = np.vstack([found, np.zeros((n - len(found), X.shape[1]))])
        return self

    def score_samples(self, X: ArrayLike) -> Array:
        """Return log N(x; mean, C) of each row (N,), on the subspace in which the training rows vary."""
        X, gaussian = self._check_new_data(X), self._gaussian
        return norm.logpdf(gaussian.project(X)[0], scale=gaussian.sd).sum(1) - gaussian.log_volume

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Return n_samples random rows of N(mean, C)."""
        noise = self._generator(n_samples, random_state).standard_normal((n_samples, len(self.mean_)))
        return self.mean_ + noise @ np.linalg.cholesky(self.covariance_).T

    def _set_certain(self) -> None:
        """Restarts agree: nothing is random."""
        same = np.ones((self.n_restarts, self.n_restarts))
        self.stability_ = Stability(same, same.copy() if self.n_restarts > 1 else None)
        self.fit_status_ = self.stability_.status


@dataclass(eq=False, repr=False)
class RawData(_Baseline):
    """The columns of x themselves, centred: the lowest baseline.

    With n_latents < d, the n columns with the largest variance.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 3)) * [1, 5, 3]
    >>> RawData(n_latents=2).fit(x).components_
    array([[0., 1., 0.],
           [0., 0., 1.]])
    """

    def _unmix(self, X: FloatArray, coordinates: Coordinates, n: int) -> Array:
        self._set_certain()
        return np.eye(X.shape[1])[np.sort(np.argsort(-X.var(0), kind="stable")[:n])]


@dataclass(eq=False, repr=False)
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

    def _unmix(self, X: FloatArray, coordinates: Coordinates, n: int) -> Array:
        self._set_certain()
        axes = coordinates.basis[:, : coordinates.n]
        signs = np.sign(axes[np.abs(axes).argmax(0), np.arange(coordinates.n)])
        return (axes * signs / coordinates.sd).T / coordinates.scale


@dataclass(eq=False, repr=False)
class FastICABaseline(_Baseline):
    """FastICA (Hyvärinen 1999; scikit-learn's) on the leading n principal components, from several random starts.

    References
    ----------
    Hyvärinen, Fast and robust fixed-point algorithms for independent component analysis, IEEE TNN 1999.
    """

    _: KW_ONLY
    n_restarts: int = 4

    def _unmix(self, X: FloatArray, coordinates: Coordinates, n: int) -> Array:
        seed = self._seed()
        train, held = hold_out(len(X), seed)
        scale = X[train].std(0, dtype=np.float64)
        scale[scale == 0] = 1.0
        unmixings = []
        for r in range(self.n_restarts):
            ica = FastICA(coordinates.n, whiten="unit-variance", max_iter=500, random_state=seed + r)
            with warnings.catch_warnings():  # stability_ shows a start that does not converge
                warnings.simplefilter("ignore", ConvergenceWarning)
                ica.fit(X[train] / scale)
            unmixings.append(ica.components_ / scale)
        return unmixings[self._compare_restarts(np.stack([X[held] @ w.T for w in unmixings]))]


IndependentComponents = FastICABaseline  # its name in version 0.1, in old files and recipes


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
        "FastICA": FastICABaseline(n_latents, random_state=random_state),
        "SparseUnmixing": SparseUnmixing(n_latents, n_restarts=2, random_state=random_state),
    }


def _gaussian_covariance(coordinates: Coordinates) -> Array:
    """Covariance (d, d) of probabilistic PCA on standardised columns, in the units of X."""
    values = np.append(coordinates.sd**2, np.full(coordinates.rank - coordinates.n, coordinates.noise**2))
    floor = EIGENVALUE_FLOOR * values[0]
    basis, scale = coordinates.basis, coordinates.scale
    standard = (basis * (np.maximum(values, floor) - floor)) @ basis.T + floor * np.eye(len(basis))
    return standard * np.outer(scale, scale)
