"""A Gaussian mixture whose covariances are all diagonal in one basis: EM for its likelihood.

    W y ~ Σ_j w_j N(m_j, diag v_j),        W (n, n), w (J,), m and v (J, n).

Given responsibilities r_ij, the M-step of the mixture is the usual one, and that of W the joint diagonalisation of the
component covariances C_j = Σ_i r_ij (y_i - μ_j)(y_i - μ_j)' / Σ_i r_ij (Gales 1999: semi-tied covariances). Every
covariance includes `PSEUDO_ROWS` of the pooled one, so that no component shrinks to a point.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from identifiable.algorithms.diagonal_basis import diagonal_basis
from identifiable.algorithms.joint_diagonalisation import diagonalise
from identifiable.algorithms.singular import log_sum_exp
from identifiable.arrays import Array
from identifiable.distributions.densities import LOG_2PI
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.training.clock import require_time

PSEUDO_ROWS = 2.0  # of the pooled covariance, added to those of every component
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # numbers of components tried with free covariances
ROWS_PER_COMPONENT = 4  # least rows per component and per parameter of its mean, for a number of components
FEWEST_ROWS = 2.0  # a component with no more is dropped
SPLITS = 4  # ways to split, or join, that are tried
HALVING_STEPS = 10  # steps of EM within a component that is to be split
HALVING_ROWS = 2_000  # most rows of the component
UNLIKELY = 0.05  # rows that belong to the component with less probability are left out
LEAST_GAIN = 1e-3  # of the mean log-likelihood per step, below which EM for free covariances ends
BLOCK = 1 << 18  # numbers of an array that fits into a cache
LEAST_FALL = 1.0  # by which the criterion has to fall
W_STEPS = 3  # of the diagonalisation, for every step of EM


@dataclass(frozen=True, eq=False)
class FactorialMixture:
    """W (n, n), weights (J,), means (J, n) and variances (J, n) of the latents W y."""

    W: Array
    weights: Array
    means: Array
    variances: Array

    @classmethod
    def of(cls, mixture: Mixture, W: Array) -> "FactorialMixture":
        """Return the mixture of y in the basis W, without its entries off the diagonals."""
        moved = mixture.pushforward(W, np.zeros(len(W)))
        variances = np.maximum(np.diagonal(moved.covariances, axis1=1, axis2=2), np.finfo(np.float64).tiny)
        return cls(W, moved.weights, moved.means, variances)

    @property
    def mixture(self) -> Mixture:
        """The distribution of the latents."""
        return Mixture(self.weights, self.means, self.variances)

    def log_joint(self, y: Array) -> Array:
        """Return log w_j p(y | j) for rows y (N, n); (N, J)."""
        z, precision = y @ self.W.T, 1 / self.variances
        linear = self.means * precision
        constant = np.log(self.weights) - 0.5 * (self.means * linear + np.log(2 * np.pi * self.variances)).sum(1)
        return z @ linear.T - 0.5 * z**2 @ precision.T + (constant + np.linalg.slogdet(self.W)[1])

    def responsibilities(self, y: Array) -> Array:
        """Return p(j | y) for rows y (N, n); (N, J)."""
        joint = self.log_joint(y)
        return np.exp(joint - log_sum_exp(joint)[:, None])

    def bic(self, y: Array) -> float:
        """Return p log N - 2 log p(y); lower is better."""
        (J, n), rows = self.means.shape, len(y)
        likelihood = log_sum_exp(self.log_joint(y)).sum()
        return float((J * (2 * n + 1) - 1 + n * n) * np.log(rows) - 2 * likelihood)

    def improved(self, y: Array, *, max_iter: int, tol: float) -> "Improved":
        """Run EM on rows y (N, n) until the mean log-likelihood gains less than tol."""
        model, before, n_iter = self, -np.inf, 0
        while True:
            require_time()
            joint = model.log_joint(y)
            total = log_sum_exp(joint)
            now = float(total.mean())
            if n_iter == max_iter or (n_iter > 0 and now - before < tol):
                return Improved(model, now, n_iter)
            before, n_iter = now, n_iter + 1
            free = moments(y, np.exp(joint - total[:, None]))
            W = diagonalise(free.covariances, free.weights, model.W, max_steps=W_STEPS).W
            model = FactorialMixture.of(free, W)

    def resized(self, y: Array, *, most: int, max_iter: int, tol: float) -> "FactorialMixture":
        """Split components and join them, as long as the Bayesian information criterion of rows y (N, n) falls."""
        model, bic = self, self.bic(y)
        attempt, other, idle = _split, _join, 0
        while idle < 2:
            for candidate in attempt(model, y, most):
                ended = candidate.improved(y, max_iter=max_iter, tol=tol).model
                if (now := ended.bic(y)) < bic - LEAST_FALL:
                    model, bic, idle = ended, now, 0
                    break
            else:
                attempt, other, idle = other, attempt, idle + 1
        return model

    def split_gain(self, y: Array, *, max_iter: int, tol: float) -> float:
        """Return twice the gain of the log-likelihood of rows y (N, n) if one component is split in two."""
        most = len(self.weights) + SPLITS
        splits = [split.improved(y, max_iter=max_iter, tol=tol).score for split in _split(self, y, most)]
        before = self.improved(y, max_iter=max_iter, tol=tol).score
        return 2 * len(y) * max(0.0, max(splits, default=before) - before)

    def effective_rows(self, y: Array) -> Array:
        """Return the effective number of rows y (N, n) of each component (J,): Σ_i r_ij², fewer than Σ_i r_ij.

        The score of a mean is r_ij (z_i - m_j) / v_j: a row that may belong to several components has less information
        on each.
        """
        return np.maximum((self.responsibilities(y) ** 2).sum(0), 1.0)


def _split(model: FactorialMixture, y: Array, most: int) -> Iterator[FactorialMixture]:
    """Split components in two, those first whose rows gain most likelihood."""
    z, r = y @ model.W.T, model.responsibilities(y)
    n, found = z.shape[1], []
    for j, worth in enumerate(r.sum(0)):
        if worth < 4 * (2 * n + 1):
            continue
        own = np.flatnonzero(r[:, j] > UNLIKELY)
        own = own[:: -(-len(own) // HALVING_ROWS)]
        halves = _halved(z[own], r[own, j])
        found.append((worth * halves.gain, j, halves))
    for _, j, two in sorted(found, key=lambda f: -f[0])[: max(0, min(SPLITS, most - len(model.weights)))]:
        keep = np.arange(len(model.weights)) != j
        yield FactorialMixture(
            model.W,
            np.r_[model.weights[keep], model.weights[j] * two.weights],
            np.r_[model.means[keep], two.means],
            np.r_[model.variances[keep], two.variances],
        )


@dataclass(frozen=True, eq=False)
class _Halves:
    """Two Gaussians with diagonal covariances, and the gain of the mean log-likelihood over one."""

    gain: float
    weights: Array
    means: Array
    variances: Array


def _halved(z: Array, r: Array) -> _Halves:
    """Fit two Gaussians to rows z (N, n) weighted by r (N,).

    EM starts twice for every latent: from the rows above and below its mean, and from the rows near to it and far.
    """
    mean = r @ z / r.sum()
    z = z - mean
    v = r @ z**2 / r.sum()
    share = np.concatenate([z > 0, z**2 > v], axis=1).T.astype(np.float64)  # (2 n, N): all starts at once
    floor, squares = 1e-3 * v, z**2
    for _ in range(HALVING_STEPS):
        q = np.stack([share, 1 - share], 1) * r  # (2 n, 2, N)
        rows = np.maximum(q.sum(2), 1e-3)
        w, m = rows / rows.sum(1, keepdims=True), q @ z / rows[..., None]
        s = np.maximum(q @ squares / rows[..., None] - m**2, floor)
        constant = np.log(w) - 0.5 * (m**2 / s + np.log(s / v)).sum(2)
        joint = (m / s) @ z.T - 0.5 * (1 / s - 1 / v) @ squares.T + constant[..., None]  # relative to one Gaussian
        one, other = joint.swapaxes(0, 1)
        share = 1 / (1 + np.exp(np.minimum(other - one, 700.0)))
    gains = np.logaddexp(one, other) @ r / r.sum()
    best = int(gains.argmax())
    return _Halves(float(gains[best]), w[best], m[best] + mean, s[best])


def _join(model: FactorialMixture, y: Array, most: int) -> Iterator[FactorialMixture]:
    """Join the most similar components, two at a time, keeping their moments."""
    J = len(model.weights)
    w, m, v = model.weights, model.means, model.variances
    share = (w[:, None] / (w[:, None] + w))[..., None]
    joint = share * v[:, None] + (1 - share) * v + share * (1 - share) * (m[:, None] - m) ** 2
    cost = (w[:, None] + w) * np.log(joint).sum(-1) - w[:, None] * np.log(v).sum(1)[:, None] - w * np.log(v).sum(1)
    order = np.argsort(np.where(np.tri(J, dtype=bool), np.inf, cost), axis=None)[: min(SPLITS, J * (J - 1) // 2)]
    for a, b in zip(*np.unravel_index(order, (J, J)), strict=True):
        keep = ~np.isin(np.arange(J), (a, b))
        both = w[a] + w[b]
        yield FactorialMixture(
            model.W,
            np.r_[w[keep], both],
            np.r_[m[keep], [(w[a] * m[a] + w[b] * m[b]) / both]],
            np.r_[v[keep], joint[a, b][None]],
        )


@dataclass(frozen=True)
class Improved:
    """A mixture, its mean log-likelihood, and the steps of EM taken."""

    model: FactorialMixture
    score: float
    n_iter: int


def em_mixture(rows: Array, components: int, seed: int, *, max_iter: int = 100, floor: float = 1e-6) -> Mixture:
    """Fit a mixture of full covariances to rows (N, n) by EM from k-means; `floor` is added to all variances."""
    if components > len(rows):
        raise DataError(
            f"Expected at least as many rows as components: n_components = {components}, n_samples = {len(rows)}. "
            "Lower n_components."
        )
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # fewer distinct rows than components
        labels = KMeans(components, n_init=1, random_state=seed).fit(rows).labels_
    r, before = np.eye(components)[labels], -np.inf
    for _ in range(max_iter):
        require_time()
        mixture = moments(rows, r, fewest=-1.0, pseudo=0.0, floor=floor)
        joint = quadratic_joint(mixture, rows)
        total = log_sum_exp(joint)
        now = float(total.mean())
        if abs(now - before) < LEAST_GAIN:
            break
        r, before = np.exp(joint - total[:, None]), now
    return mixture


def most_likely_mixture(rows: Array, components: int, seed: int, *, tries: int) -> Mixture:
    """Fit a mixture of full covariances to rows (N, n), in any units: the most likely of several starts."""
    scale = np.maximum(rows.std(0), 1e-6)
    y, seeds = rows / scale, np.random.SeedSequence(seed).generate_state(tries)
    found = [em_mixture(y, components, int(s), max_iter=60, floor=1e-3) for s in seeds]
    best = max(found, key=lambda one: float(log_sum_exp(quadratic_joint(one, y)).mean()))
    return best.pushforward(np.diag(scale), np.zeros(len(scale)))


def quadratic_joint(mixture: Mixture, y: Array) -> Array:
    """Return log w_j N(y; μ_j, C_j) of rows y (N, n), (N, J), as products of matrices.

    log p = c_j + v_j' y - ½ y' P_j y is linear in y and in the products of its entries.
    """
    n = y.shape[1]
    factors = np.linalg.inv(np.linalg.cholesky(mixture.covariances))
    P = factors.swapaxes(1, 2) @ factors
    linear = (P @ mixture.means[..., None])[..., 0]
    log_scale = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(1) - 0.5 * (linear * mixture.means).sum(1)
    constants = np.log(np.maximum(mixture.weights, 1e-300)) + log_scale - 0.5 * n * LOG_2PI
    i, k = np.triu_indices(n)
    packed = P[:, i, k] * np.where(i == k, 0.5, 1.0)
    return np.concatenate([b @ linear.T - products(b) @ packed.T + constants for b in _blocks(y)])


def products(y: Array) -> Array:
    """Return y_i y_k, i <= k, of rows y (N, n); (N, n (n + 1) / 2)."""
    i, k = np.triu_indices(y.shape[1])
    return y[:, i] * y[:, k]


def _blocks(y: Array) -> Iterator[Array]:
    """Cut rows y (N, n) into blocks whose products fit into a cache."""
    size = max(1, BLOCK // (y.shape[1] * (y.shape[1] + 1) // 2))
    return (y[start : start + size] for start in range(0, max(len(y), 1), size))


def free_bic(mixture: Mixture, y: Array) -> float:
    """Return p log N - 2 log p(y) of a mixture with free covariances, rows y (N, n); lower is better."""
    J, n = mixture.means.shape
    parameters = J - 1 + J * n + J * n * (n + 1) // 2
    return float(parameters * np.log(len(y)) - 2 * log_sum_exp(mixture.log_joint(y)).sum())


def covariances_of(y: Array, model: FactorialMixture) -> Mixture:
    """Return the mixture of an M-step for rows y (N, n) with free covariances."""
    return moments(y, model.responsibilities(y))


def moments(
    y: Array, r: Array, *, fewest: float = FEWEST_ROWS, pseudo: float = PSEUDO_ROWS, floor: float = 0.0
) -> Mixture:
    """Return weights, means and covariances of rows y (N, n) with responsibilities r (N, J).

    Components of no more than `fewest` rows are left out; if all are, one component has all rows. Each covariance
    includes `pseudo` rows of the pooled one, and `floor` is added to all variances.
    """
    enough = r.sum(0) > fewest
    r = r[:, enough] if enough.any() else np.ones((len(y), 1))
    rows = r.sum(0) + 10 * np.finfo(np.float64).eps
    means = r.T @ y / rows[:, None]
    n, done = y.shape[1], 0
    packed = np.zeros((len(rows), n * (n + 1) // 2))
    for block in _blocks(y):
        packed += r[done : done + len(block)].T @ products(block)
        done += len(block)
    i, k = np.triu_indices(n)
    sums = np.empty((len(rows), n, n))
    sums[:, i, k] = sums[:, k, i] = packed - rows[:, None] * means[:, i] * means[:, k]
    C = (sums + pseudo * sums.sum(0) / rows.sum()) / (rows + pseudo)[:, None, None]
    return Mixture(rows / rows.sum(), means, C + floor * np.eye(n))


def sized_mixture(
    white: Array, noise: Array, seed: int, *, most: int, max_iter: int = 200, tol: float = 1e-5
) -> FactorialMixture:
    """Fit a mixture with at most this many components to white rows (N, n), with the number that minimises BIC.

    BIC is minimised twice: over free covariances, then over covariances that are diagonal in one basis. Few rows allow
    fewer components. The noise (n, n) is that of `diagonal_basis`.
    """
    most = max(1, min(most, len(white) // (ROWS_PER_COMPONENT * (white.shape[1] + 1))))
    best, lowest, since = em_mixture(white, 1, seed), np.inf, 0
    for J in SIZES[: int(np.searchsorted(SIZES, most, side="right"))]:
        tried = em_mixture(white, J, seed)
        bic = free_bic(tried, white)
        best, lowest, since = (tried, bic, 0) if bic < lowest else (best, lowest, since + 1)
        if since == 2:
            break
    start = unmixed(best, noise).improved(white, max_iter=max_iter, tol=tol).model
    return start.resized(white, most=most, max_iter=30, tol=10 * tol)


def unmixed(start: Mixture, noise: Array) -> FactorialMixture:
    """Return a mixture in the basis in which its covariances are diagonal, by the closed form."""
    return FactorialMixture.of(start, diagonal_basis(start, noise=noise if noise.any() else None).W)
