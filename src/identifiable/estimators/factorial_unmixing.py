r"""Factorial unmixing: the affine map whose latents are independent within every component of a Gaussian mixture.

Model (Kivva et al. 2022, Theorem E.1): x = A z + b with z ~ Σ_j w_j N(μ_j, D_j), D_j diagonal; the component of a row
is not observed. The components of x have covariances C_j = A D_j A', so W = A^-1 makes all of them diagonal. The paper
takes two components: with C_j = V_j V_j', the singular vectors of V_1^-1 V_2 give W up to order and scale if the
variance ratios of that pair are all distinct. Here all components count at once, by their weights,

    min_W  1/2 Σ_j w_j Σ_i log (W C_j W')_ii - log |det W|,

started at the closed form for the pair whose ratios are furthest apart. W is unique if no two latents have variances
that are proportional over all components; latents that do form a block, and only its span is found. On data, the
mixture is fitted first, and EM then maximises the likelihood of mixture and map together. Equal distributions of a
latent in several components, as from the joint values of hidden variables, also determine W (`algorithms/ties.py`).

With noise, x = A z + b + e, and Cov(e) is known or, with fewer latents than columns, estimated outside their subspace;
it is subtracted from every C_j.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from identifiable.algorithms.coordinates import Coordinates, one_thread
from identifiable.algorithms.diagonal_basis import diagonal_basis, in_basis
from identifiable.algorithms.factorial import (
    ROWS_PER_COMPONENT,
    FactorialMixture,
    covariances_of,
    em_mixture,
    sized_mixture,
    unmixed,
)
from identifiable.algorithms.singular import log_sum_exp
from identifiable.algorithms.ties import tied
from identifiable.arrays import Array, FloatArray, is_real
from identifiable.distributions.mixture import Mixture
from identifiable.estimators.affine import AffineModel
from identifiable.theory import Certificate, Structure, certify, structure_of
from identifiable.theory.independence import Correlations, check_components, check_fit

CHOICE_ROWS = 20_000  # rows on which the number of components is selected


@dataclass(eq=False, repr=False)
class FactorialUnmixing(AffineModel):
    """Find the affine map whose latents are independent Gaussians within every hidden component.

    Parameters
    ----------
    n_latents : int or None, default=None. Number of latents; None: the rank of X. With fewer, x has isotropic Gaussian
        noise outside their principal subspace (of standardised columns). The model includes the same noise inside.
    n_restarts : int, default=4. Fits from different starts, each on a random half of the rows; the second uses the
        other half than the first, and so on. `stability_` is their agreement on held-out rows. Each fit then continues
        on all rows, and the likeliest map is kept.
    random_state, device, verbose : see :class:`LatentModel`. The fit runs on the CPU.
    n_components : int or None, default=None. Number of components; None selects it by the Bayesian information
        criterion.
    max_components : int, default=50. Most components that are tried if n_components is None.
    noise : float or None, default=None. Standard deviation of isotropic noise in x, in the units of X; None estimates
        it outside the subspace of the latents.
    max_iter, tol : int, default=200, and float, default=1e-5. EM ends after max_iter steps or when the mean
        log-likelihood gains less than tol.

    Attributes
    ----------
    components_, mean_ : (n, d) and (d,): z = W (x - mean), each of unit variance, its largest weight (of standardised
        columns) positive; the latent whose variance changes most between components comes first.
    mixing_ : (d, n) the inverse: x = mixing z + mean.
    mixture_ : `Mixture`, the distribution of the latents, diagonal, without noise.
    ties_ : (n, J): components with the same number in row t have one distribution of latent t. There are ties only if
        they lower the Bayesian information criterion and leave some latent J / 2 distributions at most, and there is no
        noise.
    covariances_ : (J, n, n) unrestricted covariances of the latents in each component, which the certificate tests.
    noise_ : (n, n) covariance of the noise in the latents.
    split_gain_ : twice the log-likelihood that one more component gains.
    dependence_ : `Correlations` of the sizes of latents within components.
    effective_rows_ : (J,) effective number of rows of each component; fewer if components overlap.
    n_iter_ : steps of EM on all rows.
    resolved_, blocks_ : how clearly two latents are separated, and groups that are not; see `DiagonalBasis`.
    structure_ : `Structure`: the hidden variables whose joint values are the components, if these can be determined.
    stability_, fit_status_, certificate_ : agreement between restarts; what is identified, and why.

    Examples
    --------
    >>> from identifiable.data import make_gmm
    >>> from identifiable.metrics import mcc
    >>> s = make_gmm(3000, n=3, components=4, layers=1, random_state=0)  # layers=1: an affine mixing
    >>> model = FactorialUnmixing(n_components=4, random_state=0).fit(s.x)
    >>> round(mcc(s.z, model.transform(s.x)), 2), model.blocks_, model.fit_status_
    (1.0, (), 'stable')
    >>> model.predict(s.x).shape, model.sample(2, random_state=0).shape
    ((3000,), (2, 3))

    References
    ----------
    Kivva, Rajendran, Ravikumar & Aragam, Identifiability of deep generative models without auxiliary information,
    NeurIPS 2022, Theorem E.1. Gales, Semi-tied covariance matrices for hidden Markov models, IEEE TSAP 1999.
    """

    _: KW_ONLY
    n_restarts: int = 4
    n_components: int | None = None
    max_components: int = 50
    noise: float | None = None
    max_iter: int = 200
    tol: float = 1e-05

    @one_thread()
    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the map on X (N, d). y is ignored."""
        self._check_parameters()
        X = self._check_training_data(X)
        seed = self._seed()
        train, held = self._hold_out(len(X), seed)
        coordinates = self._fit_coordinates(X[train])
        white, noise = coordinates.project(X)[0] / coordinates.sd, self._noise(coordinates)
        first = self._first(white[train], noise, seed)
        found = []
        for r, half in enumerate(self._halves(train, np.random.default_rng(seed))):
            enough = self.n_restarts > 1 and len(half) > ROWS_PER_COMPONENT * len(first.weights)
            rows = white[half] if enough else white[train]
            start = first if r == 0 else unmixed(em_mixture(rows, len(first.weights), seed + r), noise)
            found.append(start.improved(rows, max_iter=self.max_iter, tol=self.tol).model)
        self._compare_restarts(np.stack([white[held] @ one.W.T for one in found]))
        # The held-out rows have compared the restarts; the model that is kept, and its centre, use all rows.
        centre = white.mean(0)
        white, coordinates = white - centre, replace(coordinates, mean=X.mean(0, dtype=np.float64))
        found = [replace(one, means=one.means - one.W @ centre) for one in found]
        ended = [one.improved(white, max_iter=self.max_iter, tol=self.tol) for one in found]
        best = max(ended, key=lambda one: one.score)
        self.n_iter_ = best.n_iter
        self.split_gain_ = best.model.split_gain(white, max_iter=self.max_iter, tol=self.tol)
        self._set_fit(best.model, white, noise, coordinates)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable component of each row (N,)."""
        return self._log_joint(self._check_new_data(X)).argmax(1)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return p(j | x), (N, J)."""
        joint = self._log_joint(self._check_new_data(X))
        return np.exp(joint - log_sum_exp(joint)[:, None])

    def score_samples(self, X: ArrayLike) -> Array:
        """Return log p(x) of each row (N,), in nats and in the units of X."""
        X = self._check_new_data(X)
        return log_sum_exp(self._log_joint(X)) + self._log_density_outside(X)

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> Array:
        """Draw rows (n_samples, d)."""
        check_is_fitted(self)
        generator = self._generator(n_samples, random_state)
        return self._with_noise(self._noisy_mixture().sample(n_samples, generator)[0], generator)

    @property
    def structure_(self) -> Structure:
        """The hidden variables behind the components, if identified (Kivva et al. 2022, Theorem 3.3c)."""
        check_is_fitted(self)
        return structure_of(self.mixture_, rows=self.effective_rows_, estimated=True)

    @property
    def certificate_(self) -> Certificate:
        """What is identified, given that the mixing is affine, and why."""
        check_is_fitted(self)
        free = Mixture(self.mixture_.weights, self.mixture_.means, self.covariances_)
        fit = check_fit(getattr(self, "dependence_", None), "component")
        enough = check_components(getattr(self, "split_gain_", None), self._n_features_out, len(free.weights))
        return self._certified(certify(free, injective=True, affine=True, rows=self.effective_rows_), fit, enough)

    # -- the fit --------------------------------------------------------------------

    def _first(self, white: Array, noise: Array, seed: int) -> FactorialMixture:
        """Fit a mixture to white rows (N, n), with the given number of components or the one that minimises BIC."""
        if self.n_components is not None:
            return unmixed(em_mixture(white, self.n_components, seed), noise)
        some = white[np.random.default_rng(seed).permutation(len(white))[:CHOICE_ROWS]]
        return sized_mixture(some, noise, seed, most=self.max_components, max_iter=self.max_iter, tol=self.tol)

    def _noise(self, coordinates: Coordinates) -> Array:
        """Return the covariance (n, n) of the noise in white rows."""
        axes = coordinates.basis[:, : coordinates.n] / coordinates.sd
        if self.noise is not None:
            axes = axes * (self.noise / coordinates.scale)[:, None]
        else:
            axes = axes * (coordinates.noise if coordinates.n < coordinates.rank else 0.0)
        return axes.T @ axes

    def _set_fit(self, found: FactorialMixture, white: Array, noise: Array, coordinates: Coordinates) -> None:
        """Set the map, from ties or else from the components without noise, and the mixture, in the units of X."""
        ties = None if noise.any() else tied(found, white, max_iter=self.max_iter, tol=self.tol)
        if ties is not None and ties.any:
            found = ties.model
            free = covariances_of(white, found)
            judged = in_basis(free, free.weights, free.covariances, found.W, len(white))
        else:
            free = covariances_of(white, found)
            judged = diagonal_basis(free, rows=len(white), noise=noise if noise.any() else None)
        loadings = judged.W / coordinates.sd @ coordinates.basis[:, : coordinates.n].T
        sign = np.sign(loadings[np.arange(len(loadings)), np.abs(loadings).argmax(1)])
        W = judged.W * sign[:, None]
        sizes = (white @ W.T).std(0)
        W /= np.where(sizes > 0, sizes, 1.0)[:, None]
        moved = free.pushforward(W, np.zeros(len(W)))
        order = np.argsort(-moved.weights, kind="stable")
        self.covariances_ = (moved.covariances - W @ noise @ W.T)[order]
        least = 1e-6 * np.diagonal(moved.covariances, axis1=1, axis2=2).mean(0)
        variances = np.maximum(np.diagonal(self.covariances_, axis1=1, axis2=2), least)
        self.mixture_ = Mixture(moved.weights[order], moved.means[order], variances)
        self.ties_ = np.tile(np.arange(len(order)), (len(W), 1))
        if ties is not None and ties.any:
            ended = ties.moved(W, order)
            self.mixture_, self.ties_ = ended.model.mixture, ended.groups
        self.noise_, self.effective_rows_ = W @ noise @ W.T, found.effective_rows(white)[order]
        joint = self._noisy_mixture().log_joint(white @ W.T)
        self.dependence_ = Correlations.of_sizes(white @ W.T, np.exp(joint - log_sum_exp(joint)[:, None]))
        self.resolved_, self.blocks_ = judged.resolved, judged.blocks
        self._set_map(W / coordinates.sd, coordinates)
        self._warn_of_blocks("their variances are proportional over the components")

    def _noisy_mixture(self) -> Mixture:
        """Return the distribution of the latents, including noise."""
        return Mixture(self.mixture_.weights, self.mixture_.means, self.mixture_.covariances + self.noise_)

    def _log_joint(self, X: FloatArray) -> Array:
        """Return log w_j p(z, j) (N, J) of the latents of each row."""
        return self._noisy_mixture().log_joint(self._latents(X))

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        self._require_integers(n_components=1, optional=True)
        self._require_integers(max_components=1, max_iter=1)
        valid = self.noise is None or self.noise == 0 or is_real(self.noise, 0)
        self._require("noise", valid, "None or a real number >= 0")
        self._require_positive("tol")
