r"""A Gaussian mixture whose covariances may be singular, of any rank.

.. math:: x \sim \sum_j w_j N(\mu_j, S_j), \qquad \mathrm{rank}\, S_j = r_j \in \{0, \ldots, d\}

A singular component has no density, and the likelihood of a mixture that may be singular has no maximum. A noise floor
s, the scale below which a direction counts as degenerate, solves both problems: the fit maximises the likelihood of

.. math:: p(x) = \sum_j w_j N(x; \mu_j, S_j + s^2 I)

by EM. With eigenvalues l_1 >= ... >= l_d of the covariance of component j under its responsibilities, the M-step is
that of probabilistic principal components with a rank per component and one s for all:

.. math:: r_j = \#\{i : l_i > 9 s^2\}, \quad S_j = \sum_{i \le r_j} (l_i - s^2) v_i v_i^T, \quad
          s^2 = \frac{\sum_j N_j \sum_{i > r_j} l_i}{\sum_j N_j (d - r_j)}

with s no smaller than rounding allows (1e-7 of the scale of the data). At such floors EM cannot move a row from one
affine subspace to another: the start has to be right, and `subspaces.py` finds it. `component_choice.py` then splits
each subspace into Gaussians as long as the Bayesian information criterion falls; EM is in `singular.py`.

References
----------
Xu et al., Identifiability of potentially degenerate Gaussian mixture models with piecewise affine mixing, 2026
(Definition 2.2, Theorem 3.2).
Tipping & Bishop, Mixtures of probabilistic principal component analysers, Neural Computation 1999.
Schwarz, Estimating the dimension of a model, Annals of Statistics 1978.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from identifiable.algorithms.component_choice import Search, Start, starts
from identifiable.algorithms.diagonal_basis import DiagonalBasis, diagonal_basis
from identifiable.algorithms.singular import Gaussians, Run, log_sum_exp
from identifiable.arrays import Array, is_integer
from identifiable.distributions.mixture import Mixture
from identifiable.estimators.base import ParameterChecks
from identifiable.theory import Certificate, certify

MISREAD = 0.05  # expected misread rows up to which patterns count as read without error: the error level of the tests
ROUNDING = 1e-7  # smallest floor, in units of the scale of the data; its square is 100 times the rounding of variances


@dataclass(frozen=True)
class _Units:
    """The mean (d,) and scale of the rows, and the smallest floor that rounding allows, in units of the scale."""

    centre: Array
    scale: float
    least: float

    @classmethod
    def of(cls, X: Array, rounding: float) -> "_Units":
        centre = X.mean(0)
        varying = np.ptp(X, axis=0) > 0
        scale = float(np.sqrt(((X - centre)[:, varying] ** 2).mean())) if varying.any() else 1.0
        return cls(centre, scale, max(ROUNDING, 10 * rounding * float(np.abs(X).max()) / scale))


@dataclass(eq=False, repr=False)
class DegenerateGaussianMixture(ParameterChecks, DensityMixin, ClusterMixin, BaseEstimator):
    r"""Fit :math:`\sum_j w_j N(\mu_j, S_j)` with covariances of any rank (see the module for the model and the steps).

    Suits rows on affine subspaces, copies of one row, and constant or repeated columns. Standardise columns in
    different units first, since all directions share one noise floor.

    Parameters
    ----------
    n_components : int or None, default=None. Number of components; None selects it by the Bayesian information
        criterion. A given number may shrink: components that lose their rows or coincide with others are removed.
    max_components : int, default=100. Most components that are tried if n_components is None.
    noise_floor : float or None, default=None. Standard deviation below which a direction counts as degenerate, in the
        units of X; None estimates it, not below 1e-7 of the scale of X.
    n_restarts : int, default=4. k-means starts per number of components, and batches of hyperplanes per subspace.
    max_iter, tol : int, default=200, and float, default=1e-4. EM ends after max_iter steps or when the mean
        log-likelihood gains less than tol.
    random_state : int, RandomState or None, default=None. An integer makes the fit reproducible.
    verbose : int, default=0. 1 prints a line per start.

    Attributes
    ----------
    weights_, means_, covariances_ : (J,), (J, d), (J, d, d) singular, without the floor.
    ranks_ : (J,) ranks of the covariances.
    noise_floor_ : s, in the units of X.
    mixture_ : the same as a `Mixture`.
    certificate_ : `Certificate` of what is identified if these are latents.
    unmixed_ : `DiagonalBasis`, the basis in which the components are diagonal, if there is one.
    n_components_, n_rows_ : J, N.
    labels_ : (N,) components of the training rows.
    converged_, n_iter_, lower_bound_ : how EM ended; lower_bound_ is the mean log-likelihood with the floor.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> line, plane = rng.normal(size=(300, 1)) * [[1, 1, 0]], rng.normal(size=(500, 2)) @ [[1, 0, 1], [0, 1, 1]]
    >>> mixture = DegenerateGaussianMixture(random_state=0).fit(np.vstack([line, plane + 2]))
    >>> mixture.ranks_, mixture.weights_.round(3)
    (array([2, 1]), array([0.625, 0.375]))
    >>> x, component = mixture.sample(4, random_state=0)
    >>> bool((mixture.predict(x) == component).all())
    True

    References
    ----------
    Xu et al. 2026 (Definition 2.2); Tipping & Bishop, Neural Computation 1999.
    """

    n_components: int | None = None
    _: KW_ONLY
    max_components: int = 100
    noise_floor: float | None = None
    n_restarts: int = 4
    max_iter: int = 200
    tol: float = 1e-4
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Fit the mixture to X (N, d). y is ignored."""
        self._check_parameters()
        checked = validate_data(self, X, dtype=[np.float64, np.float32], order="C", ensure_min_samples=2)
        if self.n_components is not None and self.n_components > len(checked):
            raise ValueError(
                f"Expected at least as many rows as components: n_components = {self.n_components}, "
                f"n_samples = {len(checked)}. Lower n_components."
            )
        data = checked.astype(np.float64)
        units = _Units.of(data, np.finfo(checked.dtype).eps)
        scaled = (data - units.centre) / units.scale
        given = None if self.noise_floor is None else max(self.noise_floor / units.scale, 1e-12)
        rng = np.random.default_rng(int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)))
        most = self.max_components if self.n_components is None else self.n_components
        search = Search(self.n_components, most, self.n_restarts, self.max_iter, self.tol, rng)
        runs = []
        for start in starts(scaled, units.least, given, self.n_restarts, rng):  # groups of rows on one subspace
            gaussians = search.split(scaled, start)  # several Gaussians on each subspace
            runs.append(search.reduced(scaled, gaussians, start.floor))  # EM for ranks and floor; fewer components
            self._report(start, runs[-1], units.scale)
        self.n_rows_ = len(data)
        self._set_fit(min(runs, key=lambda run: run.model.bic(scaled)), units)
        joint = self._model().log_joint(data)
        self.lower_bound_ = float(log_sum_exp(joint).mean())
        self.labels_ = joint.argmax(1)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable component of each row (N,)."""
        return self._model().log_joint(self._checked(X)).argmax(1)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return p(j | x) under the smoothed mixture (N, J)."""
        joint = self._model().log_joint(self._checked(X))
        return np.exp(joint - log_sum_exp(joint)[:, None])

    def score_samples(self, X: ArrayLike) -> Array:
        r"""Return :math:`\log \sum_j w_j N(x; \mu_j, S_j + s^2 I)` of each row (N,), with s = noise_floor_.

        The mixture itself has no density where it is singular; this is the density of x plus noise of size s. Compare
        scores of fits with the same floor only: the floor dominates them.
        """
        return log_sum_exp(self._model().log_joint(self._checked(X)))

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean of `score_samples`, in nats; higher is better. y is ignored."""
        return float(self.score_samples(X).mean())

    def bic(self, X: ArrayLike) -> float:
        """Return p log N - 2 log-likelihood, lower is better; S_j of rank r counts r (r + 1) / 2 + r (d - r)."""
        return self._model().bic(self._checked(X))

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> tuple[Array, NDArray[np.int64]]:
        """Draw n_samples rows of the mixture, without the floor, and their components."""
        check_is_fitted(self)
        if not is_integer(n_samples, 1):
            raise ValueError(f"n_samples must be an integer >= 1. Got {n_samples!r}.")
        rng, model = check_random_state(random_state), self._model()
        component = rng.choice(len(model.weights), size=n_samples, p=model.weights)
        noise = rng.standard_normal((n_samples, model.means.shape[1])) * np.sqrt(model.variances[component])
        return model.means[component] + np.einsum("nde,ne->nd", model.axes[component], noise), component

    @property
    def certificate_(self) -> Certificate:
        """What is identified if these components are the latents behind a piecewise affine mixing (`certify`).

        Whether that mixing is injective is not known here. Frequencies of patterns are tested only if the noise floor
        is so small that hardly any row can be misread.
        """
        return certify(self.mixture_, estimated=True, rows=self.n_rows_ if self._misread() < MISREAD else None)

    def _misread(self) -> float:
        """Return the number of rows expected within three noise floors of a hyperplane of their component, at most."""
        variances = self._model().variances
        deviations = np.sqrt(np.where(variances > 0, variances, np.inf))
        near = 6 * self.noise_floor_ / (np.sqrt(2 * np.pi) * deviations)  # 6 floors of a density of at most this height
        return float(self.n_rows_ * self.weights_ @ near.sum(1))

    @property
    def unmixed_(self) -> DiagonalBasis:
        """The basis in which the components are diagonal, as far as there is one.

        If the latents are independent within every component, and their variances separate them, the coordinates are
        single latents up to order and scale (Kivva et al. 2022, Theorem E.1).
        """
        floor = self.noise_floor_**2 * np.eye(self.means_.shape[1])
        return diagonal_basis(Mixture(self.weights_, self.means_, self.covariances_ + floor), rows=self.n_rows_)

    @property
    def mixture_(self) -> Mixture:
        """The fitted weights, means and covariances."""
        check_is_fitted(self)
        return Mixture(self.weights_, self.means_, self.covariances_)

    def _set_fit(self, run: Run, units: _Units) -> None:
        """Set the fitted mixture in the units of the data, its largest component first."""
        model = run.model
        order = np.argsort(-model.weights, kind="stable")
        root = model.axes * np.sqrt(model.variances)[:, None, :] * units.scale
        self.weights_ = model.weights[order]
        self.means_ = units.centre + units.scale * model.means[order]
        self.covariances_ = (root @ root.swapaxes(1, 2))[order]
        self.ranks_ = model.ranks[order]
        self.noise_floor_ = float(np.sqrt(model.floor2)) * units.scale
        self.n_components_ = len(order)
        self.converged_, self.n_iter_ = run.converged, run.n_iter

    def _report(self, start: Start, run: Run, scale: float) -> None:
        if self.verbose:
            print(  # noqa: T201
                f"{len(start.groups)} groups, {start.share:.0%} of rows on subspaces: {len(run.model)} components, "
                f"floor {np.sqrt(run.model.floor2) * scale:.1e}, mean log-likelihood {run.score:.3f}"
            )

    def _model(self) -> Gaussians:
        """Return the fit as weights, means, eigenvectors and variances."""
        check_is_fitted(self)
        values, axes = np.linalg.eigh(self.covariances_)
        signal = np.arange(values.shape[1]) >= values.shape[1] - self.ranks_[:, None]
        variances = np.where(signal, np.maximum(values, np.finfo(np.float64).tiny), 0.0)
        return Gaussians(self.weights_, self.means_, axes, variances, self.noise_floor_**2)

    def _checked(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, order="C", reset=False)

    def _check_parameters(self) -> None:
        self._require_integers(n_components=1, optional=True)
        self._require_positive("noise_floor", optional=True)
        self._require_integers(max_components=1, n_restarts=1, max_iter=1, verbose=0)
        self._require_positive("tol")
