r"""Flexible densities on the line: penalised splines for log p, one per column of a table (Lindsey's method).

With :math:`v = \mathrm{arsinh}((z - c) / s)`, c the median and s a robust scale of a column,

.. math:: \log p(z) = \sum_k \beta_k B_k(v) \quad \text{between the smallest and the largest row,}

with cubic B-splines. The coefficients maximise the Poisson likelihood of a histogram in v less
:math:`\lambda \|\Delta^3 \beta\|^2 / 2`, and :math:`\lambda` minimises Akaike's criterion (Lindsey 1974; Eilers & Marx
1996). Nothing draws log p towards :math:`-\infty` at the ends, so the jump of a uniform or an exponential density stays
a jump. In v, power tails are straight lines, and the resolution is finest around the median. Of N rows, a new row lies
beyond the largest with probability 1 / (N + 1): each side has this mass, in a Pareto tail.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.interpolate import BSpline
from scipy.ndimage import gaussian_filter1d

from identifiable.arrays import Array, IntArray

BINS = 256
KNOTS = 32  # intervals between knots
PENALTIES = tuple(10.0 ** np.arange(4, -3, -1))
PARETO = 3.0  # exponent of the tails: their variance is infinite, so that no row has a density near zero
EXTREMES = 10  # rows whose mean excess gives the scale of a tail
ROUNDING = 1e-7
LEAST_SCALE = 0.02  # of s, in standard deviations: columns with many equal values have no robust scale


@dataclass(frozen=True, eq=False)
class LogSplines:
    """The densities of n columns.

    Attributes
    ----------
    centre, scale : (n,) c and s.
    lower, upper : (n,) v at the smallest and the largest row.
    values : (n, M) log p at M values of v, equidistant from lower to upper; linear in between.
    tails : (2, n) scales of the tails below and above.
    outside : mass of each tail.
    penalties : (n,) the selected λ.
    freedom : (n,) effective number of parameters.

    Examples
    --------
    >>> z = np.random.default_rng(0).uniform(size=(20000, 1))
    >>> density = LogSplines.fit(z)
    >>> np.exp(density.log_density(np.array([[0.001], [0.5], [0.999], [1.1]]))).ravel().round(1)
    array([1., 1., 1., 0.])
    """

    centre: Array
    scale: Array
    lower: Array
    upper: Array
    values: Array
    tails: Array
    outside: float
    penalties: Array
    freedom: Array

    @classmethod
    def fit(cls, z: Array, penalties: Array | None = None) -> "LogSplines":
        """Fit a density to each column of z (N, n); with `penalties` (n,), λ is not selected again."""
        rows, n = z.shape
        centre, scale = _units(z)
        v = np.arcsinh((z - centre) / scale)
        margin = ROUNDING * np.maximum(np.ptp(v, axis=0), 1.0)  # the extreme rows stay inside after rounding errors
        lower, upper = v.min(0) - margin, v.max(0) + margin
        place = np.minimum(((v - lower) * (BINS / (upper - lower))).astype(np.int64), BINS - 1)
        counts = np.bincount((place + BINS * np.arange(n)).ravel(), minlength=n * BINS).reshape(n, BINS).astype(float)
        edges = centre[:, None] + scale[:, None] * np.sinh(np.linspace(lower, upper, BINS + 1, axis=1))
        widths = np.diff(edges, axis=1)
        coefficients, penalties, freedom = _select(counts, widths, penalties)
        values = coefficients @ _basis()[1].T
        outside = 1 / (rows + 1)
        p = np.exp(values - values.max(1, keepdims=True))
        mass = ((p[:, 1:] + p[:, :-1]) / 2 * widths).sum(1)
        values += (np.log((1 - 2 * outside) / mass) - values.max(1))[:, None]
        ordered, k = np.sort(z, axis=0), max(1, min(EXTREMES, rows // 4))
        excess = np.stack([(ordered[k] - ordered[:k]).mean(0), (ordered[-k:] - ordered[-k - 1]).mean(0)])
        tails = (PARETO - 1) * np.maximum(excess, 1e-6 * scale)
        return cls(centre, scale, lower, upper, values, tails, outside, penalties, freedom)

    def of_columns(self, order: IntArray) -> "LogSplines":
        """Return the densities of some columns, in this order."""
        columns = {name: value[order] for name, value in vars(self).items() if np.ndim(value) and name != "tails"}
        return replace(self, **columns, tails=self.tails[:, order])

    def log_density(self, z: Array) -> Array:
        """Return log p of every entry of z (N, n)."""
        v = np.arcsinh((z - self.centre) / self.scale)
        found = _interpolated(self.values, *_places(v, self.lower, self.upper, self.values.shape[1]))
        for side, beyond in enumerate((v < self.lower, v > self.upper)):
            row, j = np.nonzero(beyond)
            if len(row):
                edge, tail = self._ends[side][j], self.tails[side][j]
                far = np.log1p(np.abs(z[row, j] - edge) / tail)
                found[row, j] = np.log(self.outside * PARETO / tail) - (PARETO + 1) * far
        return found

    def sample(self, size: int, generator: np.random.RandomState) -> Array:
        """Return random rows (size, n), the columns independent."""
        z = np.empty((size, len(self.centre)))
        for j in range(z.shape[1]):
            v = np.linspace(self.lower[j], self.upper[j], self.values.shape[1])
            edges, p = self.centre[j] + self.scale[j] * np.sinh(v), np.exp(self.values[j])
            mass = np.cumsum((p[1:] + p[:-1]) / 2 * np.diff(edges))
            share = generator.uniform(size=size)
            z[:, j] = np.interp(share, self.outside + np.r_[0, mass / mass[-1]] * (1 - 2 * self.outside), edges)
            for side, beyond in enumerate((share < self.outside, share > 1 - self.outside)):
                excess = self.tails[side][j] * (generator.uniform(size=int(beyond.sum())) ** (-1 / PARETO) - 1)
                z[beyond, j] = self._ends[side][j] + (2 * side - 1) * excess
        return z

    def blurred(self, width: float) -> "BlurredDensities":
        """Return the densities of v + noise of this standard deviation, as smooth densities of z."""
        n, step = len(self.centre), (self.upper - self.lower) / (self.values.shape[1] - 1)
        sds = width / step  # in steps
        margin = int(np.ceil(5 * sds.max())) + 2
        p = np.pad(np.exp(self.values), ((0, 0), (margin, margin)))
        grid = self.lower[:, None] + step[:, None] * np.arange(-margin, self.values.shape[1] + margin)
        p *= np.cosh(grid) * self.scale[:, None]
        p = np.stack([gaussian_filter1d(p[j], sds[j], mode="constant", truncate=5.0) for j in range(n)])
        log_p = np.log(np.maximum(p, 1e-6 * p.max(1, keepdims=True))) - np.log(np.cosh(grid) * self.scale[:, None])
        slopes = np.gradient(log_p, axis=1) / step[:, None] / (np.cosh(grid) * self.scale[:, None])
        return BlurredDensities(self, grid[:, 0], grid[:, -1], log_p, slopes)

    @property
    def _ends(self) -> Array:
        """The smallest and the largest row (2, n)."""
        return self.centre + self.scale * np.sinh(np.stack([self.lower, self.upper]))


@dataclass(frozen=True, eq=False)
class BlurredDensities:
    """Smooth approximations of densities: log q and its derivative on a grid of v."""

    of: LogSplines
    lower: Array
    upper: Array
    values: Array
    slopes: Array

    def evaluate(self, z: Array) -> tuple[Array, Array]:
        """Return log q and d log q / dz of every entry of z (N, n)."""
        v = np.arcsinh((z - self.of.centre) / self.of.scale)
        place = _places(v, self.lower, self.upper, self.values.shape[1])
        return _interpolated(self.values, *place), _interpolated(self.slopes, *place)


def _units(z: Array) -> tuple[Array, Array]:
    """Return the median and a robust scale of each column."""
    low, centre, high = np.quantile(z, [0.25, 0.5, 0.75], axis=0)
    sd = z.std(0)
    return centre, np.maximum((high - low) / 1.35, np.maximum(LEAST_SCALE * sd, 1e-300))


def _places(v: Array, lower: Array, upper: Array, size: int) -> tuple[IntArray, Array]:
    """Find v (N, n) among `size` equidistant values: the entry below, and the share of the way to the next.

    Entries are those of a table (n, size) as one row. Beyond an end, v counts as the end.
    """
    place = np.clip((v - lower) * ((size - 1) / (upper - lower)), 0, size - 1)
    k = np.minimum(place.astype(np.int64), size - 2)
    return k + size * np.arange(v.shape[1]), place - k


def _interpolated(table: Array, below: IntArray, share: Array) -> Array:
    """Return entries of the table (n, M), linear between its columns."""
    entries = table.ravel()
    left = entries[below]
    return np.asarray(left + share * (entries[below + 1] - left))


@cache
def _basis() -> tuple[Array, Array, Array]:
    """Return the B-splines at the centres (M, K) and at the edges (M + 1, K) of the bins, and the penalty (K, K)."""
    knots = np.arange(-3, KNOTS + 4) / KNOTS
    edges = np.linspace(0, 1, BINS + 1)
    at_edges, centres = (BSpline.design_matrix(t, knots, 3).toarray() for t in (edges, edges[:-1] + 0.5 / BINS))
    differences = np.diff(np.eye(at_edges.shape[1]), 3, axis=0)
    return centres, at_edges, differences.T @ differences


def _select(counts: Array, widths: Array, penalties: Array | None) -> tuple[Array, Array, Array]:
    """Return coefficients (n, K), penalties (n,) and degrees of freedom (n,) for counts (n, M) in bins."""
    B, _, _ = _basis()
    offset = np.log(widths)
    smooth = gaussian_filter1d(counts, 2.0, axis=1) + 0.1
    log_mean = np.log(smooth)
    found = _weighted(smooth, log_mean - offset, np.full(len(counts), PENALTIES[0]))
    best = np.full(len(counts), np.inf), found, np.zeros(len(counts)), np.zeros(len(counts))
    for penalty in PENALTIES if penalties is None else (penalties,):
        strength = np.broadcast_to(np.asarray(penalty, dtype=float), (len(counts),))
        found, freedom = _poisson(counts, offset, strength, found)
        log_mean = offset + found @ B.T
        criterion = 2 * (np.exp(log_mean) - counts * log_mean).sum(1) + 2 * freedom
        better = criterion < best[0]
        best = (
            np.where(better, criterion, best[0]),
            np.where(better[:, None], found, best[1]),
            np.where(better, strength, best[2]),
            np.where(better, freedom, best[3]),
        )
    return best[1], best[2], best[3]


def _poisson(counts: Array, offset: Array, penalty: Array, start: Array) -> tuple[Array, Array]:
    """Maximise the penalised Poisson likelihood by iterated weighted least squares; return also tr of the smoother."""
    B, _, P = _basis()
    found = start
    for _ in range(8):
        log_mean = np.clip(offset + found @ B.T, -30, 30)
        mean = np.exp(log_mean)
        step = _weighted(mean, found @ B.T + (counts - mean) / np.maximum(mean, 1e-9), penalty) - found
        found = found + step / np.maximum(1, np.abs(step).max(1, keepdims=True) / 4)
        if np.abs(step).max() < 1e-3:
            break
    products = (B.T * np.exp(np.clip(offset + found @ B.T, -30, 30))[:, None]) @ B
    ridge = penalty[:, None, None] * P + 1e-6 * np.eye(len(P))
    return found, np.trace(np.linalg.solve(products + ridge, products), axis1=1, axis2=2)


def _weighted(weights: Array, target: Array, penalty: Array) -> Array:
    """Return coefficients (n, K) of penalised weighted least squares on target (n, M)."""
    B, _, P = _basis()
    left = (B.T * weights[:, None]) @ B + penalty[:, None, None] * P + 1e-6 * np.eye(len(P))
    return np.asarray(np.linalg.solve(left, ((weights * target) @ B)[:, :, None])[:, :, 0])
