r"""Sparse unmixing: the affine map under which every latent rests at one value as often as possible.

Model: x = z A + c with latents that are exactly at rest, z_i = r_i, in a share of the samples. Then

    z_hat = W x - offset,    rows of W the hyperplanes {x : w_i·x = offset_i} that hold the samples at rest,

is z up to order and scale, with the rest value moved to 0. This is the last step of Theorem 3.9 of Xu et al. (2026): an
affine representation as sparse as the true latents is a permutation and scaling of them, if for every latent the others
are active without it (assumption 3.8b). Where that fails, latents that are always active together form a block
(App. E.5), and only the block's span is found.

The rows are found one hyperplane at a time, exactly where the data are exact (`hyperplane_search.py`). Under noise, and
on a nonlinear mixture, nothing rests exactly: there the best of several smooth starts is refined by maximum likelihood
of a noisy model (`noisy_unmixing.py`).
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from identifiable.algorithms.coordinates import LEAST_EIGENVALUE, RANK_TOLERANCE, Coordinates
from identifiable.algorithms.coordinates import one_thread as one_thread
from identifiable.algorithms.hyperplanes import Unmixing, find_hyperplanes, refine, sample_rows
from identifiable.arrays import Array, FloatArray, is_integer
from identifiable.distributions.mixture import Mixture
from identifiable.errors import RecoveryWarning
from identifiable.estimators.affine import AffineModel
from identifiable.estimators.base import resolve_device
from identifiable.theory import Certificate, Check, Level, certify

MOST_COMPONENTS = 500  # patterns of activity that get a component of their own
SMOOTHING = 0.01  # standard deviation of the spike in the density, in units of a latent's own


@dataclass(frozen=True)
class Masks:
    """The distinct patterns of activity (J, n), most frequent first, and their shares (J,) of the samples."""

    patterns: NDArray[np.bool_]
    frequencies: Array


class SparseUnmixing(AffineModel):
    """Find the affine map under which every latent rests at zero as often as possible.

    Parameters
    ----------
    n_latents : number of latents; None: the rank of X. With more than the rank, the surplus is reported in `unused_`
        and stays at zero.
    n_restarts : independent searches, compared by `stability_`; one suffices where all rows are verified.
    random_state, device, verbose : as everywhere; one data set is searched on the CPU, the device serves `fit_many`.
    max_rounds : rounds of starts before the search gives up.
    noisy : where nothing rests exactly, fit noise too (up to 30 latents; seconds for 10 of them, half a minute for 20).
        The map is then the best linear predictor of the latents: the inverse of the mixing, shrunk where noise covers
        the signal. False keeps the best start.

    Attributes
    ----------
    components_, offset_ : (n, d) and (n,): z = W x - offset, unit variance, zero at rest.
    mixing_, origin_ : (d, n) and (d,): x = mixing z + origin, the inverse map; `origin_` is where everything rests.
    n_found_ : latents whose hyperplane was verified, or that belong to a verified block; fewer than asked for also
        raises a `RecoveryWarning`.
    noise_ : standard deviation of the noise, in units of a column's; 0 where every latent rests exactly.
    rest_scale_ : (n,) width of the spike at zero, in units of the latent's standard deviation.
    active_share_, active_mean_, active_scale_ : (n,) how often a latent is active, and its moments then.
    masks_ : `Masks`, the patterns of activity in the training data.
    mixture_ : `Mixture` of the latents, a component per pattern that is frequent enough to have its own moments.
    certificate_ : `Certificate`: what is identified, the mixing being affine, and why.
    blocks_ : groups of latents that are always active together, and so only jointly identified.
    unused_ : latents asked for beyond the rank of X.
    stability_, fit_status_ : agreement between restarts.

    Examples
    --------
    >>> import numpy as np
    >>> from identifiable.data import make_pdgmm
    >>> from identifiable.metrics import mcc
    >>> sample = make_pdgmm(2000, n=5, delta=2, layers=1, random_state=0)  # layers=1: an affine mixing
    >>> model = SparseUnmixing(random_state=0).fit(sample.x)
    >>> model.n_found_, round(mcc(sample.z, model.transform(sample.x)), 6)
    (5, 1.0)
    >>> bool((model.active(sample.x).sum(1) == 2).all())  # half of five, rounded down
    True

    References
    ----------
    Xu, Lachapelle & Magliacane, Identifiability of potentially degenerate Gaussian mixture models with piecewise affine
    mixing, AISTATS 2026.
    """

    offset_: Array
    origin_: Array
    rest_scale_: Array
    active_share_: Array
    active_mean_: Array
    active_scale_: Array
    noise_: float
    masks_: Masks
    mixture_: Mixture
    blocks_: tuple[tuple[int, ...], ...]
    unused_: tuple[int, ...]
    n_found_: int

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        n_restarts: int = 1,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
        max_rounds: int = 8,
        noisy: bool = True,
    ) -> None:
        super().__init__(n_latents, n_restarts=n_restarts, random_state=random_state, device=device, verbose=verbose)
        self.max_rounds = max_rounds
        self.noisy = noisy

    @property
    def _origin(self) -> Array:
        return self.origin_

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the map on X (N, d). y is ignored."""
        with one_thread():
            self._finish(*self._search(X))
        return self

    def _search(self, X: ArrayLike) -> tuple["_Job", list[Unmixing]]:
        """Check X and find the hyperplanes of every restart; what is found is the same with `noisy` and without."""
        job = self._prepare(X)
        return job, find_hyperplanes(job.sets, job.seeds, max_rounds=self.max_rounds)

    def fit_many(self, sets: Sequence[ArrayLike]) -> list["SparseUnmixing"]:
        """Fit a copy of this estimator to each of many data sets, and return the copies in their order.

        On a GPU the first starts of all data sets with one number of latents descend in one batch; the rest of the
        search is done data set by data set on the CPU.
        """
        models: list[SparseUnmixing] = [clone(self) for _ in sets]
        jobs = [model._prepare(X) for model, X in zip(models, sets, strict=True)]
        with one_thread():
            found = find_hyperplanes(
                [one for job in jobs for one in job.sets],
                [seed for job in jobs for seed in job.seeds],
                max_rounds=self.max_rounds,
                device=resolve_device(self.device),
            )
            for i, (model, job) in enumerate(zip(models, jobs, strict=True)):
                model._finish(job, found[i * self.n_restarts : (i + 1) * self.n_restarts])
        return models

    def _prepare(self, X: ArrayLike) -> "_Job":
        """Check the parameters and X, and reduce X to the coordinates of the search."""
        self._check_common_parameters()
        self._require("max_rounds", is_integer(self.max_rounds, 1), "an integer >= 1")
        self._require("noisy", isinstance(self.noisy, bool), "True or False")
        X = self._check_training_data(X)
        seed = self._seed()
        train, held = self._hold_out(len(X), seed)
        coordinates = Coordinates.fit(X[train], self.n_latents)
        y, compared = sample_rows(coordinates.project(X[train])[0], seed), coordinates.project(X[held])[0]
        return _Job(X, coordinates, y, compared, range(seed, seed + self.n_restarts))

    def _finish(self, job: "_Job", found: list[Unmixing]) -> None:
        """Keep the restart that agrees most with the others, and set the fitted attributes."""
        found = [one.of_scaled(job.coordinates.sd) for one in found]
        kept = found[self._compare_restarts(np.stack([one.latents(job.compared) for one in found]))]
        kept = (refine(kept, job.y, job.seeds[0]) if self.noisy else kept).normalised(job.y)
        self.noise_ = kept.noise
        self._set_map(kept.W, job.coordinates)
        self._set_origin(kept.b)
        self._set_activity(kept, job.X)
        if self.n_found_ < job.coordinates.n:
            warnings.warn(
                f"SparseUnmixing: {self.n_found_} of {job.coordinates.n} latents were seen to rest exactly; the others "
                "are the best of several starts. The data are noisy or not an affine mixture, or max_rounds is too "
                "small.",
                RecoveryWarning,
                stacklevel=3,
            )

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, under the premise that the mixing is affine."""
        check_is_fitted(self)
        n = self._n_features_out - len(self.unused_)
        if self.n_found_ == n:
            found = certify(self.mixture_, estimated=True, injective=True, affine=True)
            # A single search needs no other to agree with: that rows lie on a hyperplane exactly is no chance.
            return found if self.stability_.status == "unchecked" else self._certified(found)
        resting = Check(
            name="rest",
            statement="every latent rests exactly at one value in a share of the samples",
            statistic=self.n_found_ / n,
            threshold=1.0,
            verdict="fails",
            sentence=f"Only {self.n_found_} of {n} latents were seen to rest: the data are noisy or no affine mixture.",
        )
        return Certificate(Level.NONE, Level.NONE, "", (resting,), (), (), None, None, True)

    def active(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Return which latents are active in each row, (N, n): farther from zero than five widths of the spike."""
        return np.abs(np.asarray(self.transform(X))) > 5 * self.rest_scale_

    def score_samples(self, X: ArrayLike) -> Array:
        """Return the log-density of each row (N,), in nats, at a smoothing of .01.

        Σ_i log[(1 - p_i) N(z_i; 0, e_i²) + p_i N(z_i; m_i, s_i²)] + log|det|, e_i = max(rest_scale_i, .01): an exact
        spike has no density. The latents count as independent; columns beyond the latents are Gaussian.
        """
        X = self._check_new_data(X)
        used = [i for i in range(self._n_features_out) if i not in self.unused_]
        z = self._latents(X)[:, used]
        spike = np.maximum(self.rest_scale_[used], SMOOTHING)
        share = np.clip(self.active_share_[used], 1e-3, 1 - 1e-3)
        resting = np.log(1 - share) + norm.logpdf(z, scale=spike)
        moving = np.log(share) + norm.logpdf(z, self.active_mean_[used], np.maximum(self.active_scale_[used], spike))
        return np.logaddexp(resting, moving).sum(1) + self._log_density_outside(X)

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw rows (n_samples, d): a pattern of activity by its frequency, Gaussian values for what is active."""
        generator = check_random_state(random_state)
        pattern = generator.choice(len(self.masks_.frequencies), size=n_samples, p=self.masks_.frequencies)
        values = self.active_mean_ + self.active_scale_ * generator.standard_normal((n_samples, self._n_features_out))
        return self.inverse_transform(np.where(self.masks_.patterns[pattern], values, 0.0))

    def _set_origin(self, shift: Array) -> None:
        """Move the inactive values to zero, for latents W (x - mean) + shift, and append latents beyond the rank."""
        n, d = self.components_.shape
        self.offset_ = self.components_ @ self.mean_ - shift
        self.origin_ = self.mean_ - self.mixing_ @ shift
        surplus = 0 if self.n_latents is None else max(0, self.n_latents - n)
        self.unused_ = tuple(range(n, n + surplus))
        self.components_ = np.vstack([self.components_, np.zeros((surplus, d))])
        self.offset_ = np.r_[self.offset_, np.zeros(surplus)]
        self.mixing_ = np.c_[self.mixing_, np.zeros((d, surplus))]

    def _set_activity(self, found: Unmixing, X: FloatArray) -> None:
        """Measure where and how often each latent rests, and the patterns of activity."""
        self.n_found_ = found.verified
        z = self._latents(X)
        self.rest_scale_ = np.array([_spike_width(column) for column in z.T])
        moving = np.abs(z) > 5 * self.rest_scale_
        count = np.maximum(moving.sum(0), 1)
        self.active_share_ = moving.mean(0)
        self.active_mean_ = (z * moving).sum(0) / count
        self.active_scale_ = np.sqrt((((z - self.active_mean_) ** 2) * moving).sum(0) / count)
        codes = np.packbits(moving, axis=1)  # unique() of one void per row is far faster than of rows
        _, first, group, counts = np.unique(
            codes.view(f"V{codes.shape[1]}").ravel(), return_index=True, return_inverse=True, return_counts=True
        )
        order = np.argsort(-counts, kind="stable")
        patterns = moving[first[order]]
        self.masks_ = Masks(patterns, counts[order] / len(X))
        members = np.split(np.argsort(group, kind="stable"), np.cumsum(counts)[:-1])
        self.mixture_, _ = pattern_mixture(z, patterns[:MOST_COMPONENTS], [members[j] for j in order[:MOST_COMPONENTS]])
        self.blocks_ = found.blocks


@dataclass(frozen=True)
class Reduction:
    """Principal components y = ((x - mean) / scale) vectors[:, :n] with noise that is isotropic; white: y / sd(y)."""

    mean: Array
    scale: Array
    vectors: Array
    variances: Array
    residual_variance: float

    @property
    def n(self) -> int:
        """How many of them are kept."""
        return len(self.variances)

    @classmethod
    def of(cls, X: FloatArray, n_latents: int | None, *, scaled: bool = True) -> "Reduction":
        """Take them from rows X (N, d): as many as asked for, at most the rank; of columns scaled to unit variance."""
        mean, scale = X.mean(0, dtype=np.float64), X.std(0, dtype=np.float64)
        scale = scale if scaled else np.full_like(scale, np.sqrt((scale**2).mean()))
        scale = np.where(scale > 0, scale, 1.0)  # columns that do not vary here have no part in them
        standard = (X - mean) / scale
        values, vectors = np.linalg.eigh(standard.T @ standard / len(X))
        values, vectors = values[::-1], vectors[:, ::-1]
        rank = int((values > (RANK_TOLERANCE if n_latents is None else LEAST_EIGENVALUE) * values[0]).sum())
        n = rank if n_latents is None else min(n_latents, rank)
        rest = float(max(values[n:].mean(), 1e-10)) if n < len(values) else 1.0
        return cls(mean, scale, vectors, values[:n].copy(), rest)

    def reduce(self, X: FloatArray) -> Array:
        """Return y (N, n) of rows X (N, d)."""
        return ((X - self.mean) / self.scale) @ self.vectors[:, : self.n]


@dataclass(frozen=True)
class _Job:
    """Checked data X, and what the search of every restart needs of them: rows y, and rows to compare restarts on."""

    X: FloatArray
    coordinates: Coordinates
    y: Array
    compared: Array
    seeds: range

    @property
    def sets(self) -> list[Array]:
        """White rows, once for each restart."""
        return [self.y / self.coordinates.sd] * len(self.seeds)


def pattern_mixture(
    z: FloatArray, patterns: NDArray[np.bool_], members: list[NDArray[np.intp]]
) -> tuple[Mixture, NDArray[np.bool_]]:
    """Return weights, means and covariances of the rows of each pattern, and which patterns (J,) have rows enough.

    What rests is exactly at zero.
    """
    counts = np.array([len(rows) for rows in members])
    frequent = counts >= np.maximum(2 * patterns.sum(1), 2)
    if not frequent.any():
        frequent[:1] = True
    means, covariances = [], []
    for j in np.flatnonzero(frequent):
        own = np.where(patterns[j], z[members[j]], 0.0)
        means.append(own.mean(0))
        covariances.append((own - means[-1]).T @ (own - means[-1]) / len(own))
    return Mixture(counts[frequent] / counts[frequent].sum(), means, covariances), frequent


def _spike_width(z: FloatArray) -> float:
    """Return the standard deviation of the spike at zero: of the band whose density stands out most from its sides."""
    size = float(z.std()) or 1.0
    ordered = np.sort(np.abs(z))
    widths = size * np.geomspace(1e-9, 0.3, 60)
    inner, outer = np.searchsorted(ordered, widths), np.searchsorted(ordered, 3 * widths)
    enough = inner >= max(5, 0.02 * len(z))
    sharpness = np.where(enough, inner / ((outer - inner) / 2 + 1), 0)
    band = widths[sharpness >= 0.9 * sharpness.max()][0] if enough.any() else widths[-1]
    inside = ordered[ordered < band]
    return float(max(np.sqrt(np.mean(inside**2)), 1e-9 * size)) if len(inside) else float(band)
