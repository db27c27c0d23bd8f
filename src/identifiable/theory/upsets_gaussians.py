r"""Gaussians of active latents, seen only where every latent is far from its inactive value, and what exchanges keep.

Rows x with all :math:`|x_i| > cut` of a Gaussian follow an exponential family in s = (x, x x'):

.. math:: p(x) = \exp(\theta^\top s(x) - A(\theta)), \qquad A(\theta) = \tfrac12 \eta^\top P^{-1} \eta
    - \tfrac12 \log\det P + \log \Pr(\text{all } |x_i| > cut),

with P the precision and :math:`\eta = P \mu`. The fit depends on the rows through the mean of s, its standard errors
through the covariance of s. If a decoder exchanges the upper side of latent c for one side of latent c', then with
:math:`z_K = m + \beta z_c + N(0, V)` and :math:`\delta = E z_c / sd z_c` it keeps m, V and :math:`|\delta|`: r of
place and r (r - 1) / 2 of scale, for r active latents.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from scipy import stats

from identifiable.arrays import Array, BoolArray

MOST_ACTIVE = 3  # Gaussians of more latents are not fitted: the integrals over boxes cost 6^r points
STEP = 1e-3  # of finite differences
NEWTON_STEPS = 40
NODES, WEIGHTS = np.polynomial.legendre.leggauss(6)


def statistics_of(x: Array) -> tuple[Array, Array]:
    """Return mean and covariance of s = (x, x x') (upper triangle) over rows x (N, r)."""
    i, j = np.triu_indices(x.shape[1])
    s = np.c_[x, x[:, i] * x[:, j]]
    return s.mean(0), np.cov(s.T, ddof=0)


@dataclass(frozen=True, eq=False)
class TruncatedGaussian:
    """Fitted natural parameters theta (r + r (r + 1) / 2,) and their covariance."""

    theta: Array
    covariance: Array

    def invariants(self, c: int) -> tuple[Array, Array]:
        """Return (delta, m / sd, log sd, atanh correlations) for latent c, and their variances."""
        jacobian = _differences(lambda theta: _invariants(theta, c), self.theta)
        return _invariants(self.theta[None], c)[0], np.einsum("pa,pq,qa->a", jacobian, self.covariance, jacobian)


def fit(mean: Array, covariance: Array, rows: float, cut: float) -> TruncatedGaussian | None:
    """Fit by maximum likelihood to mean and covariance of s of so many rows; None where there is no maximum.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(1, 2, size=(40_000, 1))
    >>> x = x[np.abs(x[:, 0]) > 0.5]
    >>> found = fit(*statistics_of(x), len(x), cut=0.5)
    >>> found.invariants(0)[0].round(1)  # mean / sd
    array([0.5])
    """
    r = _active(len(mean))
    theta = _start(mean, r)

    def loss(points: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            return np.nan_to_num(_log_normaliser(points, r, cut) - points @ mean, nan=np.inf)

    value = loss(theta[None])[0]
    if not np.isfinite(value):
        return None
    for _ in range(NEWTON_STEPS):
        gradient, hessian = _differences(loss, theta), _second_differences(loss, theta)
        step = np.linalg.lstsq(hessian, gradient, rcond=1e-12)[0] if np.isfinite(hessian).all() else gradient
        scales = 0.5 ** np.arange(12)
        values = loss(theta - scales[:, None] * step)
        best = int(values.argmin())
        if not values[best] < value - 1e-12:
            break
        theta, value = theta - scales[best] * step, values[best]
    hessian = _second_differences(loss, theta)
    if not np.isfinite(hessian).all():
        return None
    inverse = np.linalg.pinv(hessian)
    return TruncatedGaussian(theta, inverse @ covariance @ inverse / rows)


@dataclass(frozen=True)
class MapError:
    """Standard errors that the fitted map adds to differences of invariants: of place, and of scale."""

    place: float = 0.05
    scale: float = 0.015

    @classmethod
    def between(cls, differences: list[Array]) -> "MapError":
        """Return the root mean square of what two restarts make of the same differences, at least the defaults."""
        least = cls()
        if not differences:
            return least
        parts = [_place_and_scale(d) for d in differences]
        place, scale = (np.concatenate(values) for values in zip(*parts, strict=True))
        return cls(max(least.place, _rms(place)), max(least.scale, _rms(scale)))

    def errors(self, gap: Array) -> Array:
        """Return the standard error of each entry of a difference."""
        place, scale = _place_and_scale(gap)
        return np.r_[np.full(len(place), self.place), np.full(len(scale), self.scale)]


def difference(first: Array, second: Array) -> Array:
    """Return the difference of two invariants, of |delta| in the first entry."""
    gap = first - second
    gap[0] = abs(first[0]) - abs(second[0])
    return gap


def equality(pairs: list[tuple[tuple[Array, Array], tuple[Array, Array]]], extra: MapError) -> float:
    """Return the p-value of equal invariants, given those (value, variance) of two patterns in every restart."""
    gap = np.mean([difference(a, b) for (a, _), (b, _) in pairs], 0)
    variance = np.max([va + vb for (_, va), (_, vb) in pairs], 0)
    error = np.sqrt(np.maximum(variance, 1e-12) + extra.errors(gap) ** 2)
    p = np.nan_to_num(2 * stats.norm.sf(np.abs(gap) / error), nan=1.0)
    return float(min(1.0, len(p) * p.min()))


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2))) if len(values) else 0.0


def _place_and_scale(gap: Array) -> tuple[Array, Array]:
    r = round((np.sqrt(8 * len(gap) + 1) - 1) / 2)  # r (r + 1) / 2 entries
    return gap[:r], gap[r:]


def _active(entries: int) -> int:
    """Return r of r + r (r + 1) / 2 entries."""
    return round((np.sqrt(8 * entries + 9) - 3) / 2)


def _start(mean: Array, r: int) -> Array:
    """Return the parameters of the Gaussian that is not truncated."""
    mu, second = mean[:r], _symmetric(mean[None, r:], r)[0]
    precision = np.linalg.pinv(second - np.outer(mu, mu))
    i, j = np.triu_indices(r)
    return np.r_[precision @ mu, -precision[i, j] * np.where(i == j, 0.5, 1.0)]


def _symmetric(upper: Array, r: int) -> Array:
    """Return matrices (B, r, r) with these upper triangles (B, r (r + 1) / 2)."""
    i, j = np.triu_indices(r)
    full = np.zeros((len(upper), r, r))
    full[:, i, j] = full[:, j, i] = upper
    return full


def _moments(theta: Array) -> tuple[Array, Array, BoolArray]:
    """Return means (B, r), covariances (B, r, r) of natural parameters (B, p), and which are those of Gaussians."""
    r = _active(theta.shape[1])
    i, j = np.triu_indices(r)
    precision = _symmetric(-theta[:, r:] * np.where(i == j, 2.0, 1.0), r)
    proper = np.array(np.isfinite(precision).all(axis=(1, 2)))
    proper[proper] = np.linalg.eigvalsh(precision[proper])[:, 0] > 1e-8
    precision[~proper] = np.eye(r)
    covariance = np.linalg.inv(precision).astype(np.float64)
    return (covariance @ theta[:, :r, None])[..., 0], covariance, proper


def _log_normaliser(theta: Array, r: int, cut: float) -> Array:
    """Return A(theta) (B,), infinite where the precision is not positive definite."""
    mu, covariance, proper = _moments(theta)
    log_det = np.linalg.slogdet(covariance)[1]
    seen = np.ones(len(theta))
    for size in range(1, r + 1):  # inclusion and exclusion of the boxes |x_i| < cut
        grid = cut * np.array(list(product(NODES, repeat=size)))
        weights = cut**size * np.prod(np.array(list(product(WEIGHTS, repeat=size))), axis=1)
        for part in map(list, combinations(range(r), size)):
            sub = covariance[:, part][:, :, part]
            off = grid - mu[:, None, part]
            square = np.einsum("bga,bac,bgc->bg", off, np.linalg.inv(sub), off)
            scale = (2 * np.pi) ** (-size / 2) / np.sqrt(np.linalg.det(sub))
            seen += (-1) ** size * scale * (np.exp(-0.5 * square) @ weights)
    value = 0.5 * (theta[:, :r] * mu).sum(1) + 0.5 * log_det + np.log(np.maximum(seen, 1e-12))
    return np.where(proper, value, np.inf)


def _invariants(theta: Array, c: int) -> Array:
    """Return (delta, m / sd, log sd, atanh correlations) for latent c, (B, r (r + 1) / 2)."""
    mu, covariance, _ = _moments(theta)
    others = [i for i in range(mu.shape[1]) if i != c]
    variance = covariance[:, c, c]
    beta = covariance[:, others, c] / variance[:, None]
    left = covariance[:, others][:, :, others] - beta[:, :, None] * beta[:, None] * variance[:, None, None]
    sd = np.sqrt(np.einsum("bii->bi", left))
    i, j = np.triu_indices(len(others), 1)
    correlations = np.clip(left[:, i, j] / (sd[:, i] * sd[:, j]), -0.999, 0.999)
    place = (mu[:, others] - beta * mu[:, [c]]) / sd
    return np.c_[mu[:, c] / np.sqrt(variance), place, np.log(sd), np.arctanh(correlations)]


def _differences(function: Callable[[Array], Array], at: Array) -> Array:
    """Return the derivatives of a function of (B, p) at a point (p,), by central differences."""
    steps = STEP * np.eye(len(at))
    return (function(at + steps) - function(at - steps)) / (2 * STEP)


def _second_differences(function: Callable[[Array], Array], at: Array) -> Array:
    """Return the second derivatives (p, p) of a function (B, p) -> (B,) at a point."""
    p = len(at)
    steps = STEP * np.eye(p)

    def corner(sign: int, other: int) -> Array:
        return function((at + sign * steps[:, None] + other * steps[None]).reshape(-1, p)).reshape(p, p)

    return (corner(1, 1) - corner(1, -1) - corner(-1, 1) + corner(-1, -1)) / (4 * STEP**2)
