r"""What a fitted noisy model shows of inactivity: latents that are inactive together, and latents that are inactive.

Under noise no latent is exactly inactive. A pattern model (`pattern_model.py`) has an estimate of all shares; two tests
keep what is only fitted to chance out of them. `LEVEL` is the probability of one error or more among all latents.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from identifiable.algorithms.joint_diagonalisation import blocks_of
from identifiable.arrays import Array

LEVEL = 0.05
LEAST_SHARE = 0.04  # of the rows: as the smallest share that an exact hyperplane holds
LEAST_TOGETHER = 0.02  # the same for two latents that are inactive together: agreement shows what neither shows alone
FAR = (
    1.0,
    3.0,
    9.0,
    27.0,
    81.0,
)  # half-width of the outer cells in the test for a spike, in sd of the noise
LEAST_ROWS = 5  # in a cell


@dataclass(frozen=True)
class Readout:
    """Latents z (N, n) read from noisy rows, and the Gaussian mixture that models them.

    patterns, weights : (J, n) and (J,), which latents are active in a component, and its share of the rows.
    means, covariances : (J, n) and (J, n, n) of z in each component, with the noise.
    """

    z: Array
    patterns: NDArray[np.bool_]
    weights: Array
    means: Array
    covariances: Array

    def moments(self, components: NDArray[np.bool_]) -> tuple[float, Array, Array]:
        """Return the share, the mean (n,) and the covariance (n, n) of z in some components (J,) together."""
        weights = self.weights * components
        share = float(weights.sum())
        weights = weights / max(share, 1e-12)
        mean = weights @ self.means
        second = self.covariances + self.means[:, :, None] * self.means[:, None, :]
        return share, mean, np.tensordot(weights, second, 1) - np.outer(mean, mean)

    def inactive(self) -> Array:
        """Return the posterior (N, n) of each latent being inactive, given its own coordinate only."""
        found = np.zeros_like(self.z)
        for i, t in enumerate(self.z.T):
            parts = [self.moments(which) for which in (~self.patterns[:, i], self.patterns[:, i])]
            densities = [w * norm.pdf(t, m[i], np.sqrt(max(C[i, i], 1e-12))) + 1e-300 for w, m, C in parts]
            found[:, i] = densities[0] / (densities[0] + densities[1])
        return found


def blocks_of_inactive(read: Readout) -> tuple[tuple[int, ...], ...]:
    r"""Return the groups of two or more latents that are inactive in the same rows.

    Two latents are linked if

    1. the posteriors of their inactivity are correlated, √N corr(r_i, r_k) > Φ⁻¹(1 - α) with α the level over the
       number of pairs. r_i depends on z_i only: independent latents are linked with probability `LEVEL` in all.
    2. in the model, both are inactive in at least `LEAST_TOGETHER` of the rows, and one without the other in less than
       half of the rows that independent latents would have (Cohen's kappa > 1/2), and visibly so in less than
       `LEAST_SHARE`: a row counts as much as the noise leaves of it, var(r_i) / (p_i (1 - p_i)).

    Latents whose patterns are merely correlated are not linked.
    """
    n, off = read.z.shape[1], ~read.patterns
    both = (off * read.weights[:, None]).T @ off
    share = np.diag(both)
    apart = share[:, None] - both  # i is inactive, k is active
    chance = share[:, None] * (1 - share)
    together = (both >= LEAST_TOGETHER) & (apart + apart.T < (chance + chance.T) / 2)
    np.fill_diagonal(together, False)
    if not together.any():
        return ()
    r = read.inactive()
    visible = apart * (r.var(0) / np.maximum(share * (1 - share), 1e-12))[:, None]
    together &= np.maximum(visible, visible.T) < LEAST_SHARE
    score = _correlations(r) * np.sqrt(len(r))
    return blocks_of(together & (score > norm.isf(LEVEL / (n * (n - 1) / 2))))


def blocks_of_posteriors(r: Array, z: Array) -> tuple[tuple[int, ...], ...]:
    r"""Return the groups of two or more latents that are inactive in the same rows, without a model of the patterns.

    r (N, n) is the posterior of each latent of z (N, n) being inactive, given its own coordinate. With a_i whether
    latent i is inactive, cov(r_i, r_k) = b_i b_k cov(a_i, a_k), b_i = var(r_i) / var(a_i): two latents are linked if

    1. √N corr(r_i, r_k) > Φ⁻¹(1 - α), as in `blocks_of_inactive`,
    2. corr(a_i, a_k) > 1/2, estimated as corr(r_i, r_k) / √(b_i b_k), by more than its standard error,
    3. b_i, b_k > 1/2: the spikes are narrow. Where they are wide, r_i depends on the size of z_i alone, and the sizes
       of dependent latents are correlated. Functions of two dependent Gaussian variables are correlated by at most
       |corr(z_i, z_k)| (Gebelein), so that b_i, b_k > 1/4 suffices where corr(r_i, r_k) is larger by more than its
       standard error. A thing that others hide at times has such a spike.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> active = rng.random((1000, 2))[:, [0, 0, 1]] > 0.2
    >>> blocks_of_posteriors(0.9 * ~active, active * rng.normal(size=(1000, 3)))
    ((0, 1),)
    """
    n, share = r.shape[1], r.mean(0)
    b = np.clip(r.var(0) / np.maximum(share * (1 - share), 1e-12), 0.0, 1.0)
    correlation, dependence, error = _correlations(r), np.abs(_correlations(z)), 1 / np.sqrt(len(r))
    linked = correlation > norm.isf(LEVEL / max(1, n * (n - 1) / 2)) * error
    linked &= correlation - error > 0.5 * np.sqrt(np.outer(b, b))
    least = np.minimum.outer(b, b)
    linked &= (least > 0.5) | ((least > 0.25) & (correlation - error > dependence))
    linked &= np.logical_and.outer(share >= LEAST_SHARE, share >= LEAST_SHARE)
    np.fill_diagonal(linked, False)
    return blocks_of(linked)


def _correlations(columns: Array) -> Array:
    """Return the correlations (n, n) of columns (N, n); those with a constant column are zero."""
    unit = (columns - columns.mean(0)) / np.maximum(columns.std(0), 1e-12)
    return unit.T @ unit / len(columns)


def inactive_up_to_noise(read: Readout, blocks: tuple[tuple[int, ...], ...]) -> NDArray[np.bool_]:
    r"""Return for each latent (n,) whether more rows are at zero, up to noise, than a log-concave density has there.

    H0: z_i has a log-concave density, such as a Gaussian, a Laplace or a uniform latent plus noise. For convex cells A
    and B, P((A + B) / 2)² >= P(A) P(B). In units of the noise, A = [-1, 1], B = ±2a + [-R, R] and (A + B) / 2, which
    begins where A is left by a distance of 1, give

        T = 2 log P(A) + Σ_± log P(B) - 2 log P((A + B) / 2) <= 0.

    Each of the two sides gives such an inequality alone, T = log P(A) + log P(B) - 2 log P((A + B) / 2): a latent that
    is never negative shows its spike on the other side. A latent of a block is tested with its block, in cubes along
    the axes. The axes were chosen on the same rows, out of
    about (1/e)^(m (n - m)) that differ by noise of standard deviation e, for m latents; the level is divided by this.
    """

    def moments(group: list[int]) -> tuple[float, Array, Array]:
        share, mean, covariance = read.moments(np.all(~read.patterns[:, group], axis=1))
        return share, mean[group], covariance[np.ix_(group, group)]

    return _established(read.z, blocks, moments)


def inactive_by_posteriors(r: Array, z: Array, blocks: tuple[tuple[int, ...], ...]) -> NDArray[np.bool_]:
    """Return the same as `inactive_up_to_noise`, given the posterior r (N, n) of each latent of z being inactive."""

    def moments(group: list[int]) -> tuple[float, Array, Array]:
        weights = r[:, group].prod(1)
        own, share = z[:, group], float(weights.mean())
        weights = weights / max(weights.sum(), 1e-12)
        mean = weights @ own
        return share, mean, ((own - mean) * weights[:, None]).T @ (own - mean)

    return _established(z, blocks, moments)


def _established(
    z: Array, blocks: tuple[tuple[int, ...], ...], moments: Callable[[list[int]], tuple[float, Array, Array]]
) -> NDArray[np.bool_]:
    """Test every latent of z (N, n); `moments` of a group are its share, mean and covariance while it is inactive."""
    n = z.shape[1]
    found = np.zeros(n, dtype=bool)
    groups = [*blocks, *((i,) for i in range(n) if i not in chain(*blocks))]
    for group in map(list, groups):
        share, mean, noise = moments(group)
        if share < LEAST_SHARE:
            continue
        values, vectors = np.linalg.eigh(noise)
        u = (z[:, group] - mean) @ vectors / np.sqrt(np.maximum(values, 1e-12))
        directions = max(0.0, -0.5 * float(np.log(values.mean()))) * len(group) * (n - len(group))
        sides = ((1, -1), (1,), (-1,)) if len(group) == 1 else ((1, -1),)
        score = max(_spike_score(u, far, signs) for far in FAR for signs in sides)
        found[group] = score > np.sqrt(2 * (np.log(len(FAR) * len(sides) * len(groups) / LEVEL) + directions))
    return found


def _spike_score(u: Array, far: float, sides: tuple[int, ...]) -> float:
    """Return T over its standard error for rows u (N, m) in units of the noise, R = far, and the sides of zero."""
    m, near = u.shape[1], (1 + far) / 2

    def count(place: Array, half: float) -> float:
        return float((np.abs(u - place) < half).all(1).sum())

    rays = (2 + near) * np.concatenate([side * np.eye(m) for side in sides])
    centre = count(np.zeros(m), 1.0)
    beside, outer = (np.array([count(k * ray, half) for ray in rays]) for k, half in ((1, near), (2, far)))
    if min(centre, beside.min(), outer.min()) < LEAST_ROWS:
        return 0.0
    T = len(rays) * np.log(centre) + np.log(outer).sum() - 2 * np.log(beside).sum()
    return float(T / np.sqrt(len(rays) ** 2 / centre + (1 / outer).sum() + (4 / beside).sum()))
