r"""A Gaussian mixture whose covariances may be singular, of any rank.

.. math:: x \sim \sum_j w_j N(\mu_j, S_j), \qquad \mathrm{rank}\, S_j = r_j \in \{0, \dots, d\}

A singular component has no density, and the likelihood of a mixture that may be singular has no maximum. A noise floor
s, the scale below which a direction counts as degenerate, mends both: the fit maximises the likelihood of

.. math:: p(x) = \sum_j w_j N(x; \mu_j, S_j + s^2 I)

by EM. With eigenvalues l_1 >= ... >= l_d of the covariance of component j under its responsibilities, the M-step is
that of probabilistic principal components with a rank per component and one s for all:

.. math:: r_j = \#\{i : l_i > 9 s^2\}, \quad S_j = \sum_{i \le r_j} (l_i - s^2) v_i v_i^T, \quad
          s^2 = \frac{\sum_j N_j \sum_{i > r_j} l_i}{\sum_j N_j (d - r_j)}

with s no smaller than rounding allows (1e-7 of the scale of the data). At such floors EM cannot move a row from one
flat to another: it is the start that has to be right, and `_subspaces.py` finds it. Each flat is then split into
Gaussians as long as the Bayesian information criterion falls.

References
----------
Xu et al., Identifiability of potentially degenerate Gaussian mixture models with piecewise affine mixing, 2026
(Definition 2.2, Theorem 3.2).
Tipping & Bishop, Mixtures of probabilistic principal component analysers, Neural Computation 1999.
Schwarz, Estimating the dimension of a model, Annals of Statistics 1978.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from identifiable.certify import Certificate, certify
from identifiable.estimators._subspaces import Rows, flat_groups, share_on_flats
from identifiable.estimators.base import is_integer, is_real
from identifiable.mixture import Mixture

FloatArray = NDArray[np.float64]

ROUNDING = 1e-7  # smallest floor, in units of the scale of the data; its square is 100 times the rounding of variances
DEGENERATE = 9.0  # a variance above 9 s² is signal
EXACT, NOISY = 1e-6, (3e-3, 3e-2)  # distances from a flat that are tried, in units of the scale of the data
SAME = 1e-3  # two components whose symmetric Kullback-Leibler divergence is below this are one
SHORT = 10  # EM steps of a start before the best one is taken on
BLOCK = 4_000_000  # numbers held at once in the E-step


def _log_sum_exp(joint: FloatArray) -> FloatArray:
    """Return the log of the sum of exp(joint) over columns; plain, since scipy's costs more than the E-step here."""
    most = joint.max(1)
    value: FloatArray = most + np.log(np.exp(joint - most[:, None]).sum(1))
    return value


@dataclass(frozen=True)
class _Model:
    """Weights (J,), means (J, d), eigenvectors as columns (J, d, d), variances (J, d), 0 where degenerate, and s²."""

    weights: FloatArray
    means: FloatArray
    axes: FloatArray
    variances: FloatArray
    floor2: float

    @property
    def ranks(self) -> NDArray[np.int64]:
        ranks: NDArray[np.int64] = (self.variances > 0).sum(1)
        return ranks

    @property
    def n_parameters(self) -> int:
        """Count weights, means, each covariance of rank r as r (r + 1) / 2 + r (d - r) numbers, and the floor."""
        r, (J, d) = self.ranks, self.means.shape
        return int(J - 1 + J * d + (r * (r + 1) // 2 + r * (d - r)).sum() + 1)

    def log_joint(self, X: FloatArray) -> FloatArray:
        """Return log w_j + log N(x; mu_j, S_j + s² I), (N, J)."""
        J, d = self.means.shape
        total = self.variances + self.floor2  # (J, d)
        scaled = self.axes / np.sqrt(total)[:, None, :]
        flat = scaled.transpose(1, 0, 2).reshape(d, J * d)
        origin = self.weights @ self.means  # far from zero, differences of products would lose digits
        constant = np.log(self.weights) - 0.5 * (np.log(total).sum(1) + d * np.log(2 * np.pi))
        out = np.empty((len(X), J))
        centre = np.einsum("jd,jde->je", self.means - origin, scaled).ravel()
        step = max(1, BLOCK // (J * d))
        for at in range(0, len(X), step):
            white = ((X[at : at + step] - origin) @ flat - centre).reshape(-1, J, d)
            out[at : at + step] = constant - 0.5 * np.einsum("nje,nje->nj", white, white)
        return out

    def bic(self, X: FloatArray) -> float:
        return float(self.n_parameters * np.log(len(X)) - 2 * _log_sum_exp(self.log_joint(X)).sum())


@dataclass(frozen=True)
class _Floor:
    """The floor s²: where it starts, how small it may become, and whether it is learnt."""

    start: float
    least: float
    learnt: bool


def _m_step(X: FloatArray, responsibilities: FloatArray, floor2: float, floor: _Floor) -> _Model:
    """Return the best model for responsibilities (N, J), without the components that too few rows support."""
    mass = responsibilities.sum(0)
    d = X.shape[1]
    means, axes, values = np.empty((len(mass), d)), np.empty((len(mass), d, d)), np.empty((len(mass), d))
    for j in range(len(mass)):
        rows = np.flatnonzero(responsibilities[:, j] > 1e-12)
        share = responsibilities[rows, j] / max(mass[j], 1e-300)
        means[j] = share @ X[rows]
        centred = X[rows] - means[j]
        values[j], axes[j] = np.linalg.eigh((centred * share[:, None]).T @ centred)
    signal = values > DEGENERATE * floor2
    # On r + 1 rows any component of rank r is exact, and its likelihood as large as the floor lets it be: that is
    # chance, not structure. One row more cannot lie there by chance.
    kept = mass >= np.minimum(signal.sum(1) + 2, len(X)) - 1e-6
    if not kept.any():
        kept = np.arange(len(mass)) == mass.argmax()
    mass, means, axes, values, signal = mass[kept], means[kept], axes[kept], values[kept], signal[kept]
    if floor.learnt:
        noise_mass = (mass[:, None] * ~signal).sum()
        noise = (mass[:, None] * np.maximum(values, 0) * ~signal).sum() / noise_mass if noise_mass else 0.0
        floor2 = max(float(noise), floor.least)
    return _Model(mass / mass.sum(), means, axes, np.where(signal, np.maximum(values - floor2, 0), 0.0), floor2)


@dataclass(frozen=True)
class _Run:
    """A model, its mean log-likelihood, and how EM ended."""

    model: _Model
    score: float
    converged: bool
    n_iter: int


def _em(X: FloatArray, start: _Model, floor: _Floor, max_iter: int, tol: float) -> _Run:
    """Iterate E- and M-step until the mean log-likelihood gains less than tol in one step."""
    model, last = start, -np.inf
    for iteration in range(1, max_iter + 1):
        joint = model.log_joint(X)
        evidence = _log_sum_exp(joint)
        score = float(evidence.mean())
        if abs(score - last) < tol and len(model.weights) == joint.shape[1]:
            return _Run(model, score, True, iteration)
        last = score
        model = _m_step(X, np.exp(joint - evidence[:, None]), model.floor2, floor)
    return _Run(model, float(_log_sum_exp(model.log_joint(X)).mean()), False, max_iter)


def _from_labels(X: FloatArray, labels: Rows, floor: _Floor) -> _Model:
    """Return the M-step for hard labels; rows labelled -1 count for nothing."""
    one_hot = (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)
    return _m_step(X, one_hot, floor.start, floor)


def _joined(models: list[_Model], shares: FloatArray, floor2: float) -> _Model:
    """Return the mixture of mixtures."""
    weights = np.concatenate([s * m.weights for m, s in zip(models, shares / shares.sum(), strict=True)])
    parts = [np.concatenate([getattr(m, part) for m in models]) for part in ("means", "axes", "variances")]
    return _Model(weights, parts[0], parts[1], parts[2], floor2)


def _divergences(model: _Model) -> FloatArray:
    """Return the symmetric Kullback-Leibler divergences (J, J) between the smoothed components; inf on the diagonal."""
    total = model.variances + model.floor2
    turned = np.einsum("kde,jdf->kjef", model.axes, model.axes) ** 2
    trace = np.einsum("kjef,ke,jf->kj", turned, 1 / total, total)  # tr(C_k^-1 C_j), a sum of squares: no cancellation
    shift = np.einsum("kde,kjd->kje", model.axes, model.means[None] - model.means[:, None])
    square = np.einsum("kje,ke->kj", shift**2, 1 / total)
    both: FloatArray = 0.5 * (trace + square + (trace + square).T) - total.shape[1]
    np.fill_diagonal(both, np.inf)
    return both


def _merged(model: _Model, j: int, k: int) -> _Model:
    """Replace components j and k by the one with the same mean and covariance."""
    w = model.weights[[j, k]] / model.weights[[j, k]].sum()
    pair = model.means[[j, k]]
    mean = w @ pair
    root = np.sqrt(w)[:, None, None] * model.axes[[j, k]] * np.sqrt(model.variances[[j, k]])[:, None, :]
    columns = np.concatenate(
        [root[0], root[1], ((pair - mean) * np.sqrt(w)[:, None]).T], axis=1
    )  # C = columns columns^T
    axes, values, _ = np.linalg.svd(columns)
    variances = np.where(values**2 > (DEGENERATE - 1) * model.floor2, values**2, 0.0)[::-1]
    rest = np.delete(np.arange(len(model.weights)), [j, k])
    return _Model(
        np.append(model.weights[rest], model.weights[[j, k]].sum()),
        np.vstack([model.means[rest], mean]),
        np.concatenate([model.axes[rest], axes[None, :, ::-1]]),
        np.vstack([model.variances[rest], variances]),
        model.floor2,
    )


def _taken(model: _Model, rows: Rows) -> _Model:
    """Keep some components."""
    weights = model.weights[rows] / model.weights[rows].sum()
    return _Model(weights, model.means[rows], model.axes[rows], model.variances[rows], model.floor2)


def _simplified(X: FloatArray, model: _Model) -> _Model:
    """Drop or merge components, one at a time, as long as the information criterion falls."""
    joint = model.log_joint(X)
    while len(model.weights) > 1:
        number, evidence = np.arange(len(model.weights)), _log_sum_exp(joint)
        responsibilities = np.minimum(np.exp(joint - evidence[:, None]), 1 - 1e-12)
        lost = -np.log1p(-responsibilities).sum(0)  # log-likelihood that goes with a component, all else equal
        spared = np.array([model.n_parameters - _taken(model, np.delete(number, j)).n_parameters for j in number])
        change = 2 * lost - spared * np.log(len(X))
        j = int(change.argmin())
        if change[j] < 0:
            joint = np.delete(joint, j, axis=1) - np.log1p(-model.weights[j])
            model = _taken(model, np.delete(number, j))
            continue
        first, second = np.triu_indices(len(number), 1)
        for p in np.argsort(_divergences(model)[first, second], kind="stable")[:5]:
            pair = [first[p], second[p]]
            merged = _merged(model, *pair)
            column = _taken(merged, np.array([-1])).log_joint(X) + np.log(merged.weights[-1])
            trial = np.hstack([np.delete(joint, pair, axis=1), column])
            gain = 2 * (_log_sum_exp(trial) - evidence).sum()
            if gain + (model.n_parameters - merged.n_parameters) * np.log(len(X)) > 0:
                model, joint = merged, trial
                break
        else:
            break
    return model


def _coincident_merged(model: _Model) -> _Model:
    """Merge components that are equal up to SAME."""
    while len(model.weights) > 1:
        apart = _divergences(model)
        if apart.min() >= SAME:
            break
        j, k = np.unravel_index(apart.argmin(), apart.shape)
        model = _merged(model, int(j), int(k))
    return model


class DegenerateGaussianMixture(DensityMixin, ClusterMixin, BaseEstimator):
    r"""Fit :math:`\sum_j w_j N(\mu_j, S_j)` with covariances of any rank (see the module for the model and the steps).

    Rows on flats (affine subspaces), copies of one row, constant and repeated columns are what this mixture is for.
    Columns in different units should be standardised first, since one noise floor holds for all directions.

    Parameters
    ----------
    n_components : number of components; None chooses it by the Bayesian information criterion. When given, components
        that lose their rows or coincide with others are still removed, so fewer may be left.
    max_components : most components that are tried when n_components is None.
    noise_floor : standard deviation below which a direction counts as degenerate, in the units of X; None estimates
        it, not below 1e-7 of the scale of X.
    n_restarts : starts of each search: k-means starts per number of components, batches of hyperplanes per flat.
    max_iter, tol : EM ends after max_iter steps or when the mean log-likelihood gains less than tol.
    random_state : fixes the fit.
    verbose : 1 prints a line per candidate start.

    Attributes
    ----------
    weights_, means_, covariances_ : (J,), (J, d), (J, d, d) singular, without the floor.
    ranks_ : (J,) ranks of the covariances.
    noise_floor_ : s, in the units of X.
    mixture_ : the same as a `Mixture`.
    certificate_ : `Certificate` of what is identified where these are latents.
    n_components_ : J.
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

    weights_: FloatArray
    means_: FloatArray
    covariances_: FloatArray
    ranks_: NDArray[np.int64]
    noise_floor_: float

    def __init__(
        self,
        n_components: int | None = None,
        *,
        max_components: int = 100,
        noise_floor: float | None = None,
        n_restarts: int = 4,
        max_iter: int = 200,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.max_components = max_components
        self.noise_floor = noise_floor
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Fit the mixture to X (N, d). y is ignored."""
        self._check_parameters()
        checked = validate_data(self, X, dtype=[np.float64, np.float32], order="C", ensure_min_samples=2)
        if self.n_components is not None and self.n_components > len(checked):
            raise ValueError(
                f"Expected at least as many rows as components: n_components = {self.n_components}, "
                f"n_samples = {len(checked)}. Lower n_components."
            )
        rounding = np.finfo(checked.dtype).eps
        data = checked.astype(np.float64)
        centre = data.mean(0)
        centred = data - centre
        varying = np.ptp(data, axis=0) > 0
        scale = float(np.sqrt((centred[:, varying] ** 2).mean())) if varying.any() else 1.0
        least = max(ROUNDING, 10 * rounding * float(np.abs(data).max()) / scale)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        run = self._search(centred / scale, scale, least, np.random.default_rng(seed))
        order = np.argsort(-run.model.weights, kind="stable")
        model = run.model
        self.weights_ = model.weights[order]
        self.means_ = centre + scale * model.means[order]
        root = model.axes * np.sqrt(model.variances)[:, None, :] * scale
        self.covariances_ = (root @ root.swapaxes(1, 2))[order]
        self.ranks_ = model.ranks[order]
        self.noise_floor_ = float(np.sqrt(model.floor2)) * scale
        self.n_components_ = len(order)
        self.converged_, self.n_iter_ = run.converged, run.n_iter
        joint = self._model().log_joint(data)
        self.lower_bound_ = float(_log_sum_exp(joint).mean())
        self.labels_ = joint.argmax(1)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable component of each row (N,)."""
        component: NDArray[np.int64] = self._model().log_joint(self._checked(X)).argmax(1)
        return component

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return p(j | x) under the smoothed mixture (N, J)."""
        joint = self._model().log_joint(self._checked(X))
        p: FloatArray = np.exp(joint - _log_sum_exp(joint)[:, None])
        return p

    def score_samples(self, X: ArrayLike) -> FloatArray:
        r"""Return :math:`\log \sum_j w_j N(x; \mu_j, S_j + s^2 I)` of each row (N,), with s = noise_floor_.

        The mixture itself has no density where it is singular; this is the density of x plus noise of size s. Scores
        of fits with different floors differ by the floor before they differ by anything else.
        """
        value: FloatArray = _log_sum_exp(self._model().log_joint(self._checked(X)))
        return value

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean of `score_samples`, in nats; higher is better. y is ignored."""
        return float(self.score_samples(X).mean())

    def bic(self, X: ArrayLike) -> float:
        """Return p log N - 2 log-likelihood, lower is better; S_j of rank r counts r (r + 1) / 2 + r (d - r)."""
        return self._model().bic(self._checked(X))

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> tuple[FloatArray, NDArray[np.int64]]:
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
        """What is identified if these components are the latents behind a piecewise affine mixing (`certify`)."""
        return certify(self.mixture_, estimated=True)

    @property
    def mixture_(self) -> Mixture:
        """The fitted weights, means and covariances."""
        check_is_fitted(self)
        return Mixture(self.weights_, self.means_, self.covariances_)

    def _model(self) -> _Model:
        """Return the fit as weights, means, eigenvectors and variances."""
        check_is_fitted(self)
        values, axes = np.linalg.eigh(self.covariances_)
        signal = np.arange(values.shape[1]) >= values.shape[1] - self.ranks_[:, None]
        variances = np.where(signal, np.maximum(values, np.finfo(np.float64).tiny), 0.0)
        return _Model(self.weights_, self.means_, axes, variances, self.noise_floor_**2)

    def _checked(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        checked: FloatArray = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return checked

    def _check_parameters(self) -> None:
        for name, holds, expected in (
            ("n_components", self.n_components is None or is_integer(self.n_components, 1), "None or an integer >= 1"),
            ("max_components", is_integer(self.max_components, 1), "an integer >= 1"),
            ("noise_floor", self.noise_floor is None or is_real(self.noise_floor, 0), "None or a real number > 0"),
            ("n_restarts", is_integer(self.n_restarts, 1), "an integer >= 1"),
            ("max_iter", is_integer(self.max_iter, 1), "an integer >= 1"),
            ("tol", is_real(self.tol, 0), "a real number > 0"),
            ("verbose", is_integer(self.verbose, 0), "an integer >= 0"),
        ):
            if not holds:
                raise ValueError(
                    f"The {name!r} parameter of {type(self).__name__} must be {expected}. "
                    f"Got {getattr(self, name)!r} instead."
                )

    def _search(self, X: FloatArray, scale: float, least: float, rng: np.random.Generator) -> _Run:
        """Fit from flats at several tolerances (X in units of scale); keep the best information criterion."""
        if self.noise_floor is not None:
            given = max(self.noise_floor / scale, 1e-12)
            candidates = [(3 * given if given > EXACT / 10 else EXACT, _Floor(given**2, given**2, False))]
        else:
            candidates = [(max(EXACT, 3 * least), _Floor(least**2, least**2, True))]
            candidates += [(t, _Floor((t / 3) ** 2, least**2, True)) for t in NOISY if t > 10 * least]
        starts: list[tuple[float, list[Rows], _Floor]] = []
        for tolerance, floor in candidates:
            groups = flat_groups(X, tolerance, rng, batches=self.n_restarts)
            starts.append((share_on_flats(X, groups, tolerance), groups, floor))
            if starts[-1][0] > 0.9:
                break  # a wider tolerance would only blur these flats
        most = max(share for share, _, _ in starts)
        chosen = [next(start for start in starts if start[0] >= most - 0.05)]
        if most < 0.5:
            chosen = [(0.0, [np.arange(len(X))], candidates[0][1])] + [start for start in chosen if start[0] > 0]
        runs = []
        for share, groups, floor in chosen:
            runs.append(self._fit_groups(X, groups, floor, rng))
            if self.verbose:
                print(  # noqa: T201
                    f"{len(groups)} groups, {share:.0%} of rows on flats: {len(runs[-1].model.weights)} components, "
                    f"floor {np.sqrt(runs[-1].model.floor2) * scale:.1e}, mean log-likelihood {runs[-1].score:.3f}"
                )
        return min(runs, key=lambda run: run.model.bic(X))

    def _fit_groups(self, X: FloatArray, groups: list[Rows], floor: _Floor, rng: np.random.Generator) -> _Run:
        """Fit each group by itself, then all components together."""
        most = self.max_components if self.n_components is None else self.n_components
        kept = [g for g in groups if len(g) >= max(X.shape[1] + 2, len(X) // 1000)][:most] or [np.arange(len(X))]
        wanted = None if len(kept) > 1 else self.n_components
        runs = [self._fit_group(X[g], floor, rng, most - len(kept) + 1, wanted) for g in kept]
        while self.n_components is not None and sum(len(r.model.weights) for r in runs) < self.n_components:
            sizes = [len(r.model.weights) for r in runs]
            more = [self._gaussians(X[g], min(k + 1, len(g)), floor, rng) for g, k in zip(kept, sizes, strict=True)]
            gains = [
                len(g) * (m.score - r.score) if len(m.model.weights) > len(r.model.weights) else -np.inf
                for g, m, r in zip(kept, more, runs, strict=True)
            ]
            where = int(np.argmax(gains))
            if gains[where] == -np.inf:
                break
            runs[where] = more[where]
        shares = np.array([len(g) for g in kept], dtype=np.float64)
        start = _joined([r.model for r in runs], shares, floor.start)
        run = _em(X, start, floor, self.max_iter, self.tol)
        while True:
            smaller = _coincident_merged(run.model) if self.n_components else _simplified(X, run.model)
            if len(smaller.weights) == len(run.model.weights):
                return run
            run = _em(X, smaller, floor, self.max_iter, self.tol)

    def _fit_group(self, X: FloatArray, floor: _Floor, rng: np.random.Generator, most: int, wanted: int | None) -> _Run:
        """Return the mixture of one group of rows with the best criterion, or with as many components as wanted."""
        if wanted is not None:
            return self._gaussians(X, wanted, floor, rng)
        best = self._gaussians(X, 1, floor, rng)
        if self.n_components is not None:
            return best
        criterion, failures, k = best.model.bic(X), 0, 1
        while failures < 2 and k < min(most, len(X)):
            k += 1
            run = self._gaussians(X, k, floor, rng)
            failures += 1
            if len(run.model.weights) == k and run.model.bic(X) < criterion:
                best, criterion, failures = run, run.model.bic(X), 0
        return best

    def _gaussians(self, X: FloatArray, k: int, floor: _Floor, rng: np.random.Generator) -> _Run:
        """Return EM from the best of n_restarts short runs, each from k-means in whitened coordinates."""
        floor = replace(floor, learnt=False)
        one = _em(X, _from_labels(X, np.zeros(len(X), dtype=np.int64), floor), floor, self.max_iter, self.tol)
        signal = one.model.variances[0] > 0
        if k == 1 or not signal.any():
            return one
        white = (X - one.model.means[0]) @ one.model.axes[0][:, signal] / np.sqrt(one.model.variances[0][signal])
        runs = []
        for _ in range(self.n_restarts):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than k
                labels = KMeans(k, n_init=1, random_state=int(rng.integers(2**31))).fit(white).labels_
            runs.append(_em(X, _from_labels(X, labels, floor), floor, min(SHORT, self.max_iter), self.tol))
        return _em(X, max(runs, key=lambda run: run.score).model, floor, self.max_iter, self.tol)
