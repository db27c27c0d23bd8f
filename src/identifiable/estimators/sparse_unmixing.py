r"""Sparse unmixing: the affine map under which every latent is inactive as often as possible.

Model: x = z A + c with latents that are inactive, exactly z_i = r_i, in a share of the samples. Then

    z_hat = W x - offset,    rows of W the hyperplanes {x : w_i·x = offset_i} of samples whose latent i is inactive,

is z up to order and scale, with the inactive value moved to 0. This is the last step of Theorem 3.9 of Xu et al.
(2026): an affine representation as sparse as the true latents is a permutation and scaling of them, if for every latent
the others are active without it (assumption 3.8b). Where that fails, latents that are always active together form a
block (App. E.5), and only the span of the block is found.

The rows are found one hyperplane at a time, and exactly if the data are exact (`algorithms/hyperplanes`). Under noise,
and on a nonlinear mixture, no latent is exactly inactive. The best of several smooth starts is then refined by maximum
likelihood of a noisy model (`algorithms/noisy.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from identifiable.algorithms.activity import EXACT, Activity, activity_of
from identifiable.algorithms.coordinates import Coordinates, one_thread
from identifiable.algorithms.hyperplanes import (
    Excess,
    Spans,
    Unmixing,
    excess_of,
    find_hyperplanes,
    refine,
    sample_rows,
    spans_of,
)
from identifiable.algorithms.spike_slab import pattern_mixture, patterns_of, spike_width
from identifiable.arrays import Array, FloatArray
from identifiable.errors import warn_recovery
from identifiable.estimators.affine import AffineModel
from identifiable.estimators.base import resolve_device
from identifiable.theory import Certificate, Check, certify
from identifiable.theory.certificate import named
from identifiable.theory.hyperplanes import SparsityBound, certify_hyperplanes, check_density, sparsity_bound

MOST_COMPONENTS = 500  # patterns of activity that become components of the mixture
MOST_ROWS = 20_000  # rows that fit the densities of noisy latents
SMOOTHING = 0.01  # standard deviation of the spike in the density, in units of a latent's own


@dataclass(frozen=True)
class Masks:
    """The distinct patterns of activity (J, n), most frequent first, and their shares (J,) of the samples."""

    patterns: NDArray[np.bool_]
    frequencies: Array


@dataclass(eq=False, repr=False)
class SparseUnmixing(AffineModel):
    """Find the affine map under which every latent is zero (inactive) as often as possible.

    Parameters
    ----------
    n_latents : int or None, default=None. Number of latents; None: the rank of X. Latents beyond the rank are zero in
        every row and reported in `unused_`.
    n_restarts : int, default=1. Independent searches, compared by `stability_`. One suffices if all rows are verified.
    random_state, device, verbose : see :class:`LatentModel`. `fit` runs on the CPU; `fit_many` uses the device.
    max_rounds : int, default=8. Rounds of starts before the search gives up.
    noisy : bool, default=True. Where no latent is exactly inactive, fit noise too: with the patterns of activity of up
        to 30 latents (seconds for 10, half a minute for 20), one latent at a time for more (15 seconds for 128). The
        map is then the best linear predictor of the latents: the inverse of the mixing, shrunk where noise covers the
        signal. False keeps the best start.
    seconds : float or None, default=None. Time budget for the search and the fit of noise, in seconds per data set.
        Once it is spent, the best found so far is kept, with a `RecoveryWarning`; `n_found_` counts what is verified by
        then. None disables the limit and makes the fit deterministic.

    Attributes
    ----------
    components_, offset_ : (n, d) and (n,): z = W x - offset, of unit variance, zero while inactive.
    mixing_, origin_ : (d, n) and (d,): x = mixing z + origin, the inverse map. All latents are inactive at `origin_`.
    n_found_ : number of latents whose hyperplane was verified, or that belong to a verified block: they are exactly
        inactive, and no combination of the others is inactive more often. 0 under noise, or if `excess_` shows that the
        data are no affine mixture. Fewer than n also raise a `RecoveryWarning`.
    established_ : (n,) bool, latents shown to be inactive in a share of the rows: exactly (the `n_found_` first), or,
        under noise, because more rows are at zero than any log-concave density has there, at a family-wise error level
        of 5 %. Gaussian, Laplace and uniform latents fail this test. Inactivity up to noise supports no `certificate_`.
    overcomplete_ : int, number of distinct sparse directions where there are more than dimensions: a lower bound of the
        number of latents, which no affine map can separate. 0 otherwise. Searched from 31 latents on.
    noise_ : standard deviation of the noise, in units of a column's; 0 if every latent is exactly inactive. The noise
        is isotropic in the principal coordinates, or has the same share of the variance in every direction.
    rest_scale_ : (n,) width of the spike at zero, in units of the latent's standard deviation.
    active_share_, active_mean_, active_scale_ : (n,) share of rows in which a latent is active, and its moments there.
    masks_ : `Masks`, the patterns of activity in the training data.
    spans_ : `Spans`, which latents the rows on each hyperplane show.
    excess_ : `Excess`, rows on affine subspaces that an affine mixing of intermittently active latents does not
        explain, or None. Where there are any, no latent counts as found.
    sparsity_bound_ : `SparsityBound`, how much of other latents each may contain if latents are almost inactive.
    mixture_ : `Mixture` of the latents, one component per pattern that has enough rows for its moments.
    certificate_ : `Certificate`: what is identified, given that the mixing is affine, and why. If all hyperplanes are
        verified and the rows on each span it, every latent is recovered (`identifiable.theory.hyperplanes`).
    activity_ : `Activity`, the densities of noisy latents while inactive and while active; None if all are exact.
    blocks_ : groups of two or more latents that are always active together, and so only jointly identified. Under
        noise: almost always, with independent patterns rejected at a family-wise error level of 5 %.
    unused_ : latents beyond the rank of X.
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

    _: KW_ONLY
    max_rounds: int = 8
    noisy: bool = True
    seconds: float | None = None

    @property
    def _origin(self) -> Array:
        return self.origin_

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the map on X (N, d). y is ignored."""
        job = self._prepare(X)
        with one_thread():
            found = find_hyperplanes(job.sets, job.seeds, max_rounds=self.max_rounds, seconds=self._search_seconds)
            self._finish(job, found)
        return self

    @property
    def _search_seconds(self) -> float | None:
        """Time of one restart's search; half of the budget is left for the fit of noise."""
        return None if self.seconds is None else self.seconds / (2 if self.noisy else 1) / self.n_restarts

    def fit_many(self, sets: Sequence[ArrayLike]) -> list["SparseUnmixing"]:
        """Fit a copy of this estimator to each of many data sets, and return the copies in their order.

        On a GPU, the first starts of all data sets with one number of latents descend in one batch. All other steps run
        data set by data set on the CPU.
        """
        models: list[SparseUnmixing] = [clone(self) for _ in sets]
        jobs = [model._prepare(X) for model, X in zip(models, sets, strict=True)]
        with one_thread():
            found = find_hyperplanes(
                [one for job in jobs for one in job.sets],
                [seed for job in jobs for seed in job.seeds],
                max_rounds=self.max_rounds,
                seconds=self._search_seconds,
                device=resolve_device(self.device),
            )
            for i, (model, job) in enumerate(zip(models, jobs, strict=True)):
                model._finish(job, found[i * self.n_restarts : (i + 1) * self.n_restarts])
        return models

    def _prepare(self, X: ArrayLike) -> "_Job":
        """Check the parameters and X, and reduce X to the coordinates of the search."""
        self._check_common_parameters()
        self._require_integers(max_rounds=1)
        self._require_bools("noisy")
        self._require_positive("seconds", optional=True)
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
        half = None if self.seconds is None else self.seconds / 2
        kept = (refine(kept, job.y, job.seeds[0], half) if self.noisy else kept).normalised(job.y)
        self.noise_, self.overcomplete_ = kept.noise, kept.directions
        self._set_map(kept.W, job.coordinates)
        self._set_origin(kept.b)
        self._set_activity(kept, job.X)
        self._set_guarantees(kept, job.y)
        self._warn_of_recovery(kept)

    def _warn_of_recovery(self, found: Unmixing) -> None:
        """Warn where not every latent is verified, and say why."""
        n = len(found.W)
        if self.excess_ is not None:
            warn_recovery(
                f"SparseUnmixing: 0 of {n} latents are verified. Each is exactly inactive in some "
                f"rows. But in other rows, {named('latent', self.excess_.latents)} are confined to fewer "
                "dimensions: the data are no affine mixture of so few latents. Set n_latents higher, or use PDGMM."
            )
        elif self.overcomplete_:
            warn_recovery(
                f"SparseUnmixing: the rows have {n} dimensions, but at least {self.overcomplete_} distinct sparse "
                "directions. There are more latents than dimensions, so no affine map separates them. Use a method for "
                "overcomplete dictionaries, or observe more columns."
            )
        elif self.n_found_ < n:
            noisy = f"; {self.established_.sum()} are up to noise of {found.noise:.2g}" if found.noise else ""
            late = "" if found.in_time else f" The time (seconds={self.seconds}) was over before the fit ended."
            warn_recovery(
                f"SparseUnmixing: {self.n_found_} of {n} latents are exactly inactive in a share of "
                f"the rows{noisy}. The others are the best of several starts. The data are noisy or no affine mixture, "
                f"or max_rounds is too small.{late}"
            )

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, given that the mixing is affine."""
        check_is_fitted(self)
        n = self._n_features_out - len(self.unused_)
        if self.n_found_ == n:
            found = self._certified_hyperplanes()
            # A single search suffices: rows do not lie on a hyperplane exactly by chance.
            return found if self.stability_.status == "unchecked" else self._certified(found)
        sentence = f"{self.n_found_} of {n} latents are exactly inactive: the data are noisy or no affine mixture."
        single = np.flatnonzero(self.spans_.single[: self.n_found_]) if hasattr(self, "spans_") else ()
        if len(single):
            sentence += f" If they are exactly affine, {named('latent', single)} are single latents."
        statement = "every latent is exactly inactive in a share of the samples"
        inactive = Check("inactive", statement, self.n_found_ / n, 1.0, "fails", sentence)
        excess = getattr(self, "excess_", None)
        return Certificate.nothing(inactive if excess is None else check_density(*vars(excess).values()))

    def _certified_hyperplanes(self) -> Certificate:
        """Return what follows if every latent is exactly inactive."""
        if not hasattr(self, "spans_"):  # files of version 0.1
            return certify(self.mixture_, estimated=True, injective=True, affine=True)
        spans, bound = self.spans_, self.sparsity_bound_.check
        found = certify_hyperplanes(spans.groups, spans.rows, level=spans.level, n_unused=len(self.unused_))
        return replace(found, checks=(*found.checks, bound))

    def active(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Return which latents are active in each row, (N, n): farther from zero than five widths of the spike."""
        return np.abs(np.asarray(self.transform(X))) > 5 * self.rest_scale_

    def active_probability(self, X: ArrayLike) -> FloatArray:
        """Return the probability that each latent is active in each row, (N, n), given the latent's own value.

        It is 0 or 1 for exactly inactive latents, see `active`. Under noise, a latent is a spike at zero with the width
        of its error, or a mixture of three Gaussians with this error (`identifiable.algorithms.activity`).
        """
        X = self._check_new_data(X)
        return self._given_own_value(X, Activity.active_probability, self.active(X).astype(np.float64)).astype(X.dtype)

    def posterior_mean(self, X: ArrayLike) -> FloatArray:
        """Return the mean of each latent in each row, (N, n), given its own noisy value: zero where it is inactive.

        It is closer to the latents than `transform`, which is affine. Units are those of `transform`.
        """
        X = self._check_new_data(X)
        exact = np.where(self.active(X), self._latents(X), 0.0)
        return self._given_own_value(X, Activity.posterior_mean, exact).astype(X.dtype)

    def _given_own_value(self, X: FloatArray, read: Callable[[Activity, Array], Array], exact: Array) -> Array:
        """Return the values (N, n) of exact latents, replaced by what the densities of noisy latents give."""
        values = exact.copy()
        activity = getattr(self, "activity_", None)  # older files have none: all latents then count as exact
        if activity is not None:
            noisy = self.rest_scale_ >= EXACT
            values[:, noisy] = read(activity, self._latents(X)[:, noisy])
        return values

    def score_samples(self, X: ArrayLike) -> Array:
        """Return the log-density of each row (N,), in nats, at a smoothing of .01.

        Σ_i log[(1 - p_i) N(z_i; 0, e_i²) + p_i N(z_i; m_i, s_i²)] + log|det|, e_i = max(rest_scale_i, .01): an exact
        spike has no density. Under noise the densities are those of `activity_`. The latents count as independent;
        columns beyond the latents are Gaussian.
        """
        X = self._check_new_data(X)
        used = [i for i in range(self._n_features_out) if i not in self.unused_]
        z = self._latents(X)[:, used]
        activity = getattr(self, "activity_", None)
        if activity is not None and self.n_found_ == 0:
            return activity.log_density(z).sum(1) + self._log_density_outside(X)
        spike = np.maximum(self.rest_scale_[used], SMOOTHING)
        share = np.clip(self.active_share_[used], 1e-3, 1 - 1e-3)
        inactive = np.log(1 - share) + norm.logpdf(z, scale=spike)
        active = np.log(share) + norm.logpdf(z, self.active_mean_[used], np.maximum(self.active_scale_[used], spike))
        return np.logaddexp(inactive, active).sum(1) + self._log_density_outside(X)

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Return random rows (n_samples, d): a pattern by its frequency, Gaussian values for its active latents."""
        generator = self._generator(n_samples, random_state)
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
        """Measure how often each latent is inactive, how exactly, and the patterns of activity."""
        self.n_found_ = found.verified
        z = self._latents(X)
        self.rest_scale_ = np.array([spike_width(column) for column in z.T])
        active = np.abs(z) > 5 * self.rest_scale_
        count = np.maximum(active.sum(0), 1)
        self.active_share_ = active.mean(0)
        self.active_mean_ = (z * active).sum(0) / count
        self.active_scale_ = np.sqrt((((z - self.active_mean_) ** 2) * active).sum(0) / count)
        patterns, members = patterns_of(active)
        self.masks_ = Masks(patterns, np.array([len(rows) for rows in members]) / len(X))
        self.mixture_, _ = pattern_mixture(z, patterns[:MOST_COMPONENTS], members[:MOST_COMPONENTS])
        self.blocks_ = found.blocks
        noisy = self.rest_scale_ >= EXACT
        some = z[:: max(1, len(z) // MOST_ROWS), noisy]
        self.activity_: Activity | None = activity_of(some) if noisy.any() else None
        exact = np.arange(z.shape[1]) < found.verified
        self.established_ = exact if found.inactive is None else np.r_[found.inactive, exact[len(found.inactive) :]]

    def _set_guarantees(self, found: Unmixing, y: Array) -> None:
        """Find which latents the rows on each hyperplane show, and how far latents may be from inactive."""
        t = found.latents(y)
        tolerance = 5 * self.rest_scale_[: t.shape[1]]
        self.spans_: Spans = spans_of(t, tolerance)
        self.excess_: Excess | None = excess_of(t, float(tolerance.max())) if found.verified == t.shape[1] else None
        if self.excess_ is not None:
            self.n_found_, self.established_ = 0, np.zeros_like(self.established_)
        self.sparsity_bound_: SparsityBound = sparsity_bound(t, float(tolerance.max()))


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
