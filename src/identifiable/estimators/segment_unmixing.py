r"""Segment unmixing: the affine map whose latents are independent Gaussians given an observed u.

Model (Pham & Cardoso 2001): x = A z + b with z_i | u ~ N(m_ui, s_ui²), independent given u. With C_u the covariance of
the rows of value u, and w_u their share, the likelihood is highest at

    min_W  1/2 Σ_u w_u Σ_i log (W C_u W')_ii - log |det W|,

the joint diagonalisation of all C_u. W is then the inverse of A up to order, sign and scale, if no two latents have
variances that are proportional over all u. The means m_u are free and drop out: any W explains them equally well, so
means that change with u have no information on a linear map; only variances count.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import betaln, logsumexp
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from identifiable.algorithms.coordinates import one_thread
from identifiable.algorithms.joint_diagonalisation import blocks_of, diagonalise, least_separation, separation
from identifiable.arrays import Array, FloatArray
from identifiable.data.auxiliary import Auxiliary
from identifiable.errors import DataError
from identifiable.estimators.affine import AffineModel
from identifiable.theory import Certificate
from identifiable.theory.independence import Correlations, check_fit
from identifiable.theory.segments import certify_segments

PSEUDO_ROWS = 2.0  # of the pooled covariance, added to the rows of every value of u


@dataclass(eq=False, repr=False)
class SegmentUnmixing(AffineModel):
    """Find the affine map whose latents are independent Gaussians for every value of an observed u.

    Parameters
    ----------
    n_latents : int or None, default=None. Number of latents; None: the rank of X. With fewer, x has isotropic Gaussian
        noise outside their principal subspace (of standardised columns).
    n_restarts : int, default=4. Descents from different starts, each on a random half of the rows; the second uses the
        other half than the first, and so on. Their agreement on held-out rows, `stability_`, thus includes the error
        of estimation. Each descent then continues on all rows, and the likeliest map is kept; `stability_.chosen` plays
        no part.
    random_state, device, verbose : see :class:`LatentModel`. The fit runs on the CPU, in seconds for a hundred latents.
    u_types, n_groups : how u defines groups of rows; see `Auxiliary.of`.
    means : bool or "auto", default="auto". Whether the means of the latents change with u. "auto": if this raises the
        log-likelihood by more than the number of means. If not, variances are about the common mean, which is more
        exact with few rows per value.

    Attributes
    ----------
    components_, mean_ : (n, d) and (d,): z = W (x - mean), each of unit variance, its largest weight (of standardised
        columns) positive; the latent whose variance changes most with u comes first.
    mixing_ : (d, n) the inverse: x = mixing z + mean.
    means_, scales_ : (G, n) moments of the latents in each group; the scales of a latent are shrunk towards each other
        by empirical Bayes.
    auxiliary_ : `Auxiliary`, the groups of u.
    resolved_ : (n, n) how clearly two latents are separated: how far their variances are from proportional over u, in
        standard errors. Pairs below √(2n) + 1, about the largest value by chance, form `blocks_`.
    blocks_ : groups of latents that are not separated from each other; only their span is found. () if all are.
    correlations_, dependence_ : `Correlations` of the latents, and of their sizes, within groups.
    stability_, fit_status_, certificate_ : agreement between restarts; what is identified for an affine mixing.

    Examples
    --------
    >>> from identifiable.data import make_segments
    >>> from identifiable.metrics import mcc
    >>> s = make_segments(4000, segments=10, layers=1, random_state=0)  # layers=1: an affine mixing
    >>> model = SegmentUnmixing(random_state=0).fit(s.x, s.u)
    >>> round(mcc(s.z, model.transform(s.x)), 2), model.blocks_, model.fit_status_
    (1.0, (), 'stable')
    >>> model.sample(2, u=3, random_state=0).shape, model.score(s.x, s.u) > model.score(s.x)
    ((2, 5), True)

    References
    ----------
    Pham & Cardoso, Blind separation of instantaneous mixtures of nonstationary sources, IEEE TSP 2001.
    Ablin, Cardoso & Gramfort, Beyond Pham's algorithm for joint diagonalization, ESANN 2019.
    """

    _: KW_ONLY
    n_restarts: int = 4
    u_types: str | Sequence[str] = "auto"
    n_groups: int | None = None
    means: bool | str = "auto"

    needs_u = True

    @one_thread()
    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the map on X (N, d) with the auxiliary variable y = u, (N,) or (N, m)."""
        self._check_common_parameters()
        self._require_integers(n_groups=2, optional=True)
        self._require("means", isinstance(self.means, bool) or self.means == "auto", "True, False or 'auto'")
        X = self._check_training_data(X)
        self.auxiliary_ = Auxiliary.of(y, len(X), self.u_types, self.n_groups)
        codes, groups, seed = self.auxiliary_.codes(y), self.auxiliary_.n_groups, self._seed()
        rng = np.random.default_rng(seed)
        train, held = self._hold_out(len(X), seed)
        coordinates = self._fit_coordinates(X[train])
        n, white = coordinates.n, coordinates.project(X)[0] / coordinates.sd
        own = self.means if isinstance(self.means, bool) else _means_differ(white[train], codes[train])
        scatter = _Scatter.of(white[train], codes[train], groups, own_means=own)
        if scatter.freedom.sum() < n:
            raise DataError(
                f"{len(train)} rows in {groups} groups leave {scatter.freedom.sum():.0f} degrees of freedom about the "
                f"means of the groups, for {n} latents. Set means=False, or fewer groups or n_latents."
            )
        found = []
        for r, rows in enumerate(self._halves(train, rng)):
            start = np.linalg.qr(rng.standard_normal((n, n)))[0] if r else np.eye(n)
            part = _Scatter.of(white[rows], codes[rows], groups, own_means=own)
            found.append(diagonalise(*part.shrunk(scatter.pooled), start).W)
        self._compare_restarts(np.stack([white[held] @ W.T for W in found]))
        # The held-out rows have compared the restarts; the map that is kept, and its moments, use all rows.
        coordinates = replace(coordinates, mean=X.mean(0, dtype=np.float64))
        white -= white.mean(0)
        every = _Scatter.of(white, codes, groups, own_means=own)
        best = min((diagonalise(*every.shrunk(every.pooled), W) for W in found), key=lambda one: one.loss)
        loadings = best.W / coordinates.sd @ coordinates.basis[:, :n].T  # of the standardised columns
        sign = np.sign(loadings[np.arange(n), np.abs(loadings).argmax(1)])
        W = self._set_moments(best.W * (sign / (white @ best.W.T).std(0))[:, None], every)
        self._set_map(W / coordinates.sd, coordinates)
        self._set_resolution(W, white @ W.T - self.means_[codes], codes, every)
        return self

    def score_samples(self, X: ArrayLike, u: Any = None) -> Array:
        """Return log p(x | u) of each row (N,), in nats; without u, log Σ_g w_g p(x | g) over its groups g."""
        X = self._check_new_data(X)
        z = self._latents(X)
        if u is None:
            log_p = self._log_mixture(z)
        else:
            codes = self.auxiliary_.codes(u)
            if len(codes) != len(X):
                raise DataError(f"u must have one row per row of X: X has {len(X)}, u has {len(codes)}.")
            log_p = norm.logpdf(z, self.means_[codes], self.scales_[codes]).sum(1)
        return log_p + self._log_density_outside(X)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean log-density of the rows of X, given y = u if there is one; higher is better."""
        return float(np.mean(self.score_samples(X, y)))

    def sample(
        self, n_samples: int = 1, u: Any = None, random_state: int | np.random.RandomState | None = None
    ) -> FloatArray:
        """Draw rows (n_samples, d), with u one value for all of them, or one per row; without, groups by weight."""
        generator, n = self._generator(n_samples, random_state), self._n_features_out
        if u is None:
            codes = generator.choice(self.auxiliary_.n_groups, size=n_samples, p=self.auxiliary_.weights)
        else:
            codes = self.auxiliary_.codes(self.auxiliary_.repeated(u, n_samples))
        z = self.means_[codes] + self.scales_[codes] * generator.standard_normal((n_samples, n))
        return self._with_noise(z, generator)

    @property
    def certificate_(self) -> Certificate:
        """What is identified, given that the mixing is affine, and why."""
        check_is_fitted(self)
        correlations = getattr(self, "correlations_", None)
        fit = check_fit(getattr(self, "dependence_", None), "segment")
        if correlations is None:
            return self._certified(Certificate.nothing(), fit)
        return self._certified(certify_segments(self.resolved_, correlations), fit)

    def _log_mixture(self, z: Array) -> Array:
        """Return log Σ_g w_g Π_i N(z_i; m_gi, s_gi²), (N,), a part of the rows at a time: each needs G numbers."""
        precision = self.scales_**-2
        linear = self.means_ * precision
        constant = np.log(self.auxiliary_.weights) - 0.5 * (self.means_ * linear + np.log(2 * np.pi / precision)).sum(1)
        parts = np.array_split(z, 1 + len(z) * len(constant) // 10**7)
        return np.concatenate([logsumexp(p @ linear.T - 0.5 * p**2 @ precision.T + constant, axis=1) for p in parts])

    def _set_moments(self, W: Array, every: "_Scatter") -> Array:
        """Set the moments of the latents in each group; return W (n, n), the latent whose scale changes most first."""
        common, freedom = ((W @ every.pooled) * W).sum(1), every.freedom[:, None]
        ratios = every.variances(W) / common
        kappa = _prior_rows(ratios, every.freedom)
        variances = common * (freedom * ratios + kappa) / (freedom + kappa)
        order = np.argsort(-np.log(variances).var(0))
        self.means_, self.scales_ = every.means @ W[order].T, np.sqrt(variances[:, order])
        return W[order]

    def _set_resolution(self, W: Array, z: Array, codes: NDArray[np.int64], every: "_Scatter") -> None:
        """Test which latents are separated; z (N, n) are the latents about the means of their groups."""
        variances, used = every.variances(W), every.freedom > 0
        covariances = W @ every.products[used] @ W.T / every.freedom[used, None, None]
        self.correlations_ = Correlations.of(covariances, every.freedom[used])
        self.dependence_ = Correlations.of_groups(z, codes)
        kurtosis = (z**4).sum(0) / (np.bincount(codes) @ variances**2)
        self.resolved_ = separation(variances / ((W @ every.pooled) * W).sum(1), every.freedom, kurtosis)
        self.blocks_ = blocks_of(self.resolved_ < least_separation(len(W)))
        self._warn_of_blocks("u changes their variances in proportion or not at all")


@dataclass(frozen=True)
class _Scatter:
    """Of the rows of each group: Σ (y - mean)(y - mean)' (G, n, n), its degrees of freedom (G,), their means (G, n)."""

    products: Array
    freedom: Array
    means: Array

    @classmethod
    def of(cls, y: Array, codes: NDArray[np.int64], groups: int, *, own_means: bool) -> "_Scatter":
        """Sum over rows y (N, n); about zero without `own_means`."""
        sizes = np.bincount(codes, minlength=groups)
        products, means = np.empty((groups, y.shape[1], y.shape[1])), np.zeros((groups, y.shape[1]))
        for g, rows in enumerate(np.split(y[np.argsort(codes, kind="stable")], np.cumsum(sizes)[:-1])):
            if own_means and len(rows):
                means[g] = rows.mean(0)
            products[g] = (rows - means[g]).T @ (rows - means[g])
        return cls(products, np.maximum(sizes - float(own_means), 0.0), means)

    @property
    def pooled(self) -> Array:
        """The covariance (n, n) within groups."""
        return self.products.sum(0) / self.freedom.sum()

    def shrunk(self, towards: Array) -> tuple[Array, Array]:
        """Return covariances (G, n, n) with pseudo-rows of covariance `towards`, and their weights (G,)."""
        rows = self.freedom + PSEUDO_ROWS
        return (self.products + PSEUDO_ROWS * towards) / rows[:, None, None], rows / rows.sum()

    def variances(self, W: Array) -> Array:
        """Return the variances (G, n) of the latents W y."""
        sums: Array = ((W @ self.products) * W).sum(-1)
        return sums / np.maximum(self.freedom, 1)[:, None]


def _means_differ(white: Array, codes: NDArray[np.int64]) -> bool:
    """Return whether separate means improve Akaike's criterion of rows (N, n): Wilks' Λ in Bartlett's scale."""
    (rows, n), groups = white.shape, len(np.unique(codes))
    within = _Scatter.of(white, codes, int(codes.max()) + 1, own_means=True).products.sum(0) / rows
    if rows - groups <= n:
        return False
    return bool(-(rows - 1 - (n + groups) / 2) * np.linalg.slogdet(within)[1] > 2 * n * (groups - 1))


def _prior_rows(ratios: Array, freedom: Array) -> Array:
    """Return κ (n,) that makes ratios (G, n) likeliest, if s² ~ inverse gamma(κ/2, κ/2): they are then F(ν, κ)."""
    r, nu = ratios[freedom > 0], freedom[freedom > 0]

    def loss(log_kappa: float, column: Array) -> float:
        k = np.exp(log_kappa)
        return float(np.sum(betaln(nu / 2, k / 2) + nu / 2 * np.log(k) + (nu + k) / 2 * np.log1p(nu * column / k)))

    return np.exp([minimize_scalar(loss, bounds=(-2, 14), args=(c,), method="bounded").x for c in r.T])
