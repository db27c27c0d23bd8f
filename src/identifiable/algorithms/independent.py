r"""Independent component analysis by maximum likelihood: W and the densities p_i of the latents z = W y, together.

.. math:: \max_{W, p} \; \log |\det W| + \sum_i \mathrm{E} \log p_i(w_i y)

The start is Picard-O (Ablin, Cardoso & Gramfort 2018), or FastICA where python-picard is not installed. The densities
are then fitted to the latents (`LogSplines`), and W follows quasi-Newton steps of the relative gradient for these
densities, blurred a little so that jumps have a slope. Less blur is sharper and less robust; the likeliest W is kept.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import FastICA

from identifiable.arrays import Array
from identifiable.distributions.log_spline import LogSplines
from identifiable.training.clock import require_time

BLURS = (0.3, 0.1, 0.03)  # standard deviations, in robust scales of a latent
STEPS = 6  # per blur
LEAST_GAIN = 1e-5  # nats per row, of a round
PAIR_ROWS = 3000
PAIR_ENTRIES = 500_000  # numbers per block of pairs
MAX_ITER = 300  # of the start
LEAST_CURVATURE = 0.05  # least eigenvalue of the Hessian of a pair; two Gaussian latents have zero


@dataclass(frozen=True, eq=False)
class Independent:
    """A map W (n, n) to latents of unit variance, their densities, and the mean log-likelihood of rows y."""

    W: Array
    densities: LogSplines
    score: float

    @classmethod
    def of(cls, y: Array, W: Array) -> "Independent":
        """Fit the densities of the latents W y for rows y (N, n)."""
        z = y @ W.T
        densities = LogSplines.fit(z)
        return cls(W, densities, float(densities.log_density(z).sum(1).mean() + np.linalg.slogdet(W)[1]))

    def matched(self, W: Array) -> "Independent":
        """Return the same map with its latents in the order of those of W (n, n), for white rows."""
        overlap = np.abs(W @ self.W.T) / np.linalg.norm(self.W, axis=1)
        order = linear_sum_assignment(-overlap)[1]
        return Independent(self.W[order], self.densities.of_columns(order), self.score)

    def improved(self, y: Array) -> "Independent":
        """Raise the likelihood of rows y (N, n) over W and the densities in turn."""
        best = self
        for blur in BLURS:
            for _ in range(2):
                found = Independent.of(y, _ascended(best, y, blur))
                if found.score <= best.score + LEAST_GAIN:
                    best = max(best, found, key=lambda one: one.score)
                    break
                best = found
        return best


def independent_map(y: Array, *starts: Array) -> Independent:
    """Return the likeliest map for rows y (N, n), from the likeliest of several maps W (n, n)."""
    values, vectors = np.linalg.eigh(np.cov(y, rowvar=False, ddof=0).reshape(y.shape[1], -1))
    whitening = (vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1]))) @ vectors.T
    first = (_rotation(y @ whitening, _nearest_rotation(W)) @ whitening for W in starts)
    return max((Independent.of(y, W) for W in first), key=lambda one: one.score).improved(y)


def rotation_losses(fitted: Array, new: Array) -> Array:
    """Return what the log-likelihood of new rows loses if two latents are rotated by 45 degrees, (N, pairs).

    Pairs are in the order of `np.triu_indices`. The densities of the latents and of the rotated ones are fitted to
    latents `fitted` (N', n). If a pair has the same distribution after any rotation, such as two Gaussian latents or
    two of a multivariate t distribution, nothing is lost on new rows (N, n), on average. Of both, PAIR_ROWS are enough.
    """
    fitted, new = fitted[:PAIR_ROWS], new[:PAIR_ROWS]
    own, pairs = LogSplines.fit(fitted).log_density(new), np.triu_indices(new.shape[1], 1)
    losses = np.empty((len(new), len(pairs[0])))
    for some in np.array_split(np.arange(len(pairs[0])), 1 + len(fitted) * len(pairs[0]) // PAIR_ENTRIES):
        s, t = pairs[0][some], pairs[1][some]
        turned, other = (np.hstack([z[:, s] + z[:, t], z[:, s] - z[:, t]]) / np.sqrt(2) for z in (fitted, new))
        both = LogSplines.fit(turned).log_density(other)
        losses[:, some] = own[:, s] + own[:, t] - both[:, : len(s)] - both[:, len(s) :]
    return losses


def _nearest_rotation(W: Array) -> Array:
    """Return the rotation nearest to W (n, n)."""
    U, _, Vt = np.linalg.svd(W)
    return U @ Vt


def _rotation(white: Array, start: Array) -> Array:
    """Return the rotation (n, n) of white rows (N, n) that Picard-O finds from a start, or FastICA."""
    n = white.shape[1]
    if n == 1:
        return np.eye(1)
    with warnings.catch_warnings():  # the agreement of restarts shows a start that does not converge
        warnings.simplefilter("ignore")
        try:
            from picard import picard
        except ImportError:
            return np.asarray(FastICA(n, whiten=False, max_iter=MAX_ITER, w_init=start).fit(white).components_)
        return np.asarray(picard(white.T, ortho=True, whiten=False, w_init=start, max_iter=MAX_ITER, tol=1e-5)[1])


def _ascended(model: Independent, y: Array, blur: float) -> Array:
    """Return W (n, n) after quasi-Newton steps on the likelihood of rows y (N, n), for blurred densities."""
    densities, W = model.densities.blurred(blur), model.W
    z = y @ W.T
    values, slopes = densities.evaluate(z)
    score = float(values.sum(1).mean())
    for _ in range(STEPS):
        require_time()
        step = _direction(z, slopes)
        for _ in range(4):
            factor = np.eye(len(W)) + step
            moved = z @ factor.T
            scale = moved.std(0)
            moved, factor = moved / scale, factor / scale[:, None]
            new_values, new_slopes = densities.evaluate(moved)
            gain = float(new_values.sum(1).mean() + np.linalg.slogdet(factor)[1]) - score
            if gain > 0:
                break
            step = step / 3
        if gain < LEAST_GAIN / 10:
            break
        W, z, slopes, score = factor @ W, moved, new_slopes, float(new_values.sum(1).mean())
    return W


def _direction(z: Array, slopes: Array) -> Array:
    """Return the relative quasi-Newton step (n, n): z moves to (I + step) z.

    The Hessian is block-diagonal, with [[h_ij, 1], [1, h_ji]] for a pair and h_ij = E[(log p_i)'²] E[z_j²].
    """
    gradient = slopes.T @ z / len(z)
    h = np.outer((slopes**2).mean(0), (z**2).mean(0))
    middle, half = (h + h.T) / 2, (h - h.T) / 2
    least = middle - np.sqrt(half**2 + 1)
    h = h + np.maximum(LEAST_CURVATURE - least, 0)
    step = (h.T * gradient - gradient.T) / (h * h.T - 1)
    np.fill_diagonal(step, 0.0)
    return step / max(1.0, float(np.abs(step).max()) / 0.3)
