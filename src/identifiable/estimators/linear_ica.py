r"""Linear ICA: the affine map whose latents are independent, by maximum likelihood with free densities.

Model (Comon 1994): x = A z + b with independent latents z_i of any densities p_i, at most one of them Gaussian. Then
W = A^-1 is unique up to order, sign and scale. W and the densities maximise

    log |det W| + Σ_i E log p_i(w_i (x - mean)),

with p_i a penalised spline in the logarithm, which reproduces heavy tails, several modes and sharp bounds. Pham & Garat
(1997) show that this estimate of W is consistent and, with the true densities, efficient.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import subspace_angles
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from identifiable.agreement.stability import Stability
from identifiable.algorithms.coordinates import one_thread
from identifiable.algorithms.independent import Independent, independent_map, rotation_losses
from identifiable.arrays import Array, FloatArray, Rows
from identifiable.estimators.affine import AffineModel
from identifiable.theory import Certificate, Check, Level
from identifiable.theory.certificate import Blocks
from identifiable.theory.comon import blocks_of_tests, certify_independent, log_ratio, rank_correlations

ROWS_PER_LATENT = 5  # fewer rows in a half, and all restarts use all rows


@dataclass(eq=False, repr=False)
class LinearICA(AffineModel):
    """Find the affine map whose latents are independent, and the density of each latent.

    Parameters
    ----------
    n_latents : int or None, default=None. Number of latents; None: the rank of X. With fewer, x has isotropic Gaussian
        noise outside their principal subspace (of standardised columns).
    n_restarts : int, default=2. Fits from different starts, each on a random half of the rows; the second uses the
        other half than the first, and so on. Their agreement on held-out rows, `stability_`, thus includes the error
        of estimation. The likeliest of their maps is then fitted to all rows. The certificate needs two restarts, and
        halves of five rows per latent or more.
    random_state, device, verbose : see :class:`LatentModel`. The fit runs on the CPU.

    Attributes
    ----------
    components_, mean_ : (n, d) and (d,): z = W (x - mean), each of unit variance, its largest weight (of standardised
        columns) positive; the latent whose density differs most from a Gaussian comes first.
    mixing_ : (d, n) the inverse: x = mixing z + mean.
    densities_ : `LogSplines`, the densities of the latents.
    negentropy_ : (n,) gain of each density over a Gaussian in nats per row, on the training rows.
    log_ratios_ : (n,) split likelihood ratio of each latent against a Gaussian, on rows that its map was not fitted to;
        None without halves.
    dependence_ : `Correlations` of the ranks of sizes, on the same rows; None without halves.
    separation_ : (n, n) loss of likelihood if two latents are rotated by 45 degrees, in standard errors, on the same
        rows; None without halves.
    blocks_ : groups of latents that may be Gaussian or are not shown to be separated; only their span is found.
    block_agreement_ : least canonical correlation, over single latents and the block, between the fits to both halves,
        on held-out rows; NaN without halves.
    stability_, fit_status_, certificate_ : agreement between restarts; what is identified for an affine mixing.

    Examples
    --------
    >>> from identifiable.metrics import mcc
    >>> rng = np.random.default_rng(0)
    >>> z = rng.exponential(size=(2000, 3))
    >>> x = z @ rng.normal(size=(3, 3))
    >>> model = LinearICA(random_state=0).fit(x)
    >>> round(mcc(z, model.transform(x)), 3), model.fit_status_, str(model.certificate_.level)
    (1.0, 'stable', 'PS')

    References
    ----------
    Comon, Independent component analysis, a new concept?, Signal Processing 1994. Pham & Garat, Blind separation of
    mixture of independent sources through a quasi-maximum likelihood approach, IEEE TSP 1997.
    """

    _: KW_ONLY
    n_restarts: int = 2

    @one_thread()
    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the map on X (N, d). y is ignored."""
        self._check_common_parameters()
        X = self._check_training_data(X)
        seed = self._seed()
        train, held = self._hold_out(len(X), seed)
        coordinates = self._fit_coordinates(X[train])
        white = coordinates.project(X)[0] / coordinates.sd
        rng, n = np.random.default_rng(seed), coordinates.n
        enough = self.n_restarts > 1 and len(train) // 2 >= ROWS_PER_LATENT * n
        halves = self._halves(train, rng) if enough else [train] * self.n_restarts
        starts = [np.linalg.qr(rng.standard_normal((n, n)))[0] if r else np.eye(n) for r in range(self.n_restarts)]
        found = [independent_map(white[half], start) for half, start in zip(halves, starts, strict=True)]
        self._compare_restarts(np.stack([white[held] @ one.W.T for one in found]))
        # The held-out rows have compared the restarts; the map that is kept, and its densities, use all rows.
        coordinates = replace(coordinates, mean=X.mean(0, dtype=np.float64))
        centred = white - white.mean(0)
        best = found[0] if self.n_restarts == 1 else independent_map(centred, *(one.W for one in found))
        W = self._set_densities(best.W, centred, coordinates.basis[:, :n] / coordinates.sd)
        self._set_map(W / coordinates.sd, coordinates)
        self._set_tests(W, white, halves[:2] if enough else [], held, found[:2])
        return self

    def score_samples(self, X: ArrayLike) -> Array:
        """Return log p(x) of each row (N,), in nats and in the units of X."""
        X = self._check_new_data(X)
        return self.densities_.log_density(self._latents(X)).sum(1) + self._log_density_outside(X)

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Return random rows (n_samples, d)."""
        generator = self._generator(n_samples, random_state)
        return self._with_noise(self.densities_.sample(n_samples, generator), generator)

    @property
    def certificate_(self) -> Certificate:
        """What is identified, given that the mixing is affine, and why."""
        check_is_fitted(self)
        if self.log_ratios_ is None or self.separation_ is None or self.dependence_ is None:
            return self._certified(Certificate.nothing())
        found = certify_independent(self.log_ratios_, self.separation_, self.dependence_)
        return self._certified(found, agreement=self._agreement(found))

    def _agreement(self, found: Certificate) -> Check:
        """Return whether restarts agree on what is certified: single latents, or blocks, by canonical correlations."""
        least, check = self.block_agreement_, self.stability_.check
        both = Stability(np.array([[1.0, least], [least, 1.0]])).check
        if found.level == Level.NONE or (found.level == Level.PS and both.verdict == "holds"):
            return check
        sentence = f"Fits to two halves of the rows agree on every latent or block at {least:.2f} or more."
        return replace(both, statement="restarts recover the same latents and blocks", sentence=sentence)

    def _set_densities(self, W: Array, white: Array, axes: Array) -> Array:
        """Set the densities; return W (n, n) in the order and with the signs of the latents."""
        z = white @ W.T
        z, W = z / z.std(0), W / z.std(0)[:, None]
        final = Independent.of(white, W)
        gains = (final.densities.log_density(z) - norm.logpdf(z, z.mean(0))).mean(0)
        order = np.argsort(-gains, kind="stable")
        W, self.negentropy_ = W[order], gains[order]
        loadings = W @ axes.T  # of the standardised columns
        W = W * np.sign(loadings[np.arange(len(W)), np.abs(loadings).argmax(1)])[:, None]
        self.densities_ = Independent.of(white, W).densities
        return W

    def _set_tests(self, W: Array, white: Array, halves: list[Rows], held: Rows, found: list[Independent]) -> None:
        """Test the latents of each half with the map and the densities of the other, matched with the latents of W."""
        self.blocks_: Blocks = ()
        self.log_ratios_, self.separation_, self.dependence_, self.block_agreement_ = None, None, None, float("nan")
        if not halves or len(W) == 1:  # one latent has no other to be independent of
            return
        ratios, losses, tested, compared = [], [], [], []
        for (own, other), fit in zip((halves, halves[::-1]), found, strict=True):
            fit = fit.matched(W)
            z = white[other] @ fit.W.T
            ratios.append(log_ratio(fit.densities.log_density(z), z))
            losses.append(rotation_losses(white[own] @ fit.W.T, z))
            tested.append(z)
            compared.append(white[held] @ fit.W.T)
        self.log_ratios_ = np.logaddexp(*ratios) - np.log(2)
        self.separation_ = _in_standard_errors(np.vstack(losses), len(W))
        self.dependence_ = rank_correlations(tested)
        one, two = (z - z.mean(0) for z in compared)
        blocks = blocks_of_tests(self.log_ratios_, self.separation_)
        self.block_agreement_ = min(float(np.cos(subspace_angles(one[:, b], two[:, b]).max())) for b in blocks)
        self.blocks_ = tuple(block for block in blocks if len(block) > 1)
        self._warn_of_blocks("they may be Gaussian, or rotating them changes too little")


def _in_standard_errors(losses: Array, n: int) -> Array:
    """Return the mean of each column of losses (N, pairs) over its standard error, as a matrix (n, n)."""
    found = np.zeros((n, n))
    found[np.triu_indices(n, 1)] = losses.mean(0) / (losses.std(0) / np.sqrt(len(losses)) + 1e-300)
    return found + found.T
