r"""EM for a mixture of Gaussians of any rank, smoothed by one noise floor s.

.. math:: p(x) = \sum_j w_j N(x; \mu_j, S_j + s^2 I), \qquad S_j = V_j \mathrm{diag}(a_j) V_j^T

A direction i of component j is degenerate where a_ji = 0; the rank of S_j is the number of the others. Everything here
works on eigenvectors V_j and variances a_j, never on S_j + s² I, so that s² may be far below the rounding of S_j.

References
----------
Tipping & Bishop, Mixtures of probabilistic principal component analysers, Neural Computation 1999.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from identifiable.arrays import Array, Rows

DEGENERATE = 9.0  # a variance above 9 s² is signal
BLOCK = 4_000_000  # numbers in memory at once in the E-step


def log_sum_exp(joint: Array) -> Array:
    """Return the log of the sum of exp(joint) over columns; scipy's version costs more than the E-step here."""
    most = joint.max(1)
    return most + np.log(np.exp(joint - most[:, None]).sum(1))


@dataclass(frozen=True)
class Gaussians:
    """Weights (J,), means (J, d), eigenvectors as columns (J, d, d), variances (J, d), 0 where degenerate, and s²."""

    weights: Array
    means: Array
    axes: Array
    variances: Array
    floor2: float

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def ranks(self) -> NDArray[np.int64]:
        """Ranks of the covariances (J,)."""
        return (self.variances > 0).sum(1)

    @property
    def n_parameters(self) -> int:
        """Count weights, means, each covariance of rank r as r (r + 1) / 2 + r (d - r) numbers, and the floor."""
        r, (J, d) = self.ranks, self.means.shape
        return int(J - 1 + J * d + (r * (r + 1) // 2 + r * (d - r)).sum() + 1)

    def log_joint(self, X: Array) -> Array:
        """Return log w_j + log N(x; mu_j, S_j + s² I), (N, J)."""
        J, d = self.means.shape
        total = self.variances + self.floor2  # (J, d)
        scaled = self.axes / np.sqrt(total)[:, None, :]
        columns = scaled.transpose(1, 0, 2).reshape(d, J * d)
        origin = self.weights @ self.means  # subtracted first: far from zero, differences of products lose digits
        constant = np.log(self.weights) - 0.5 * (np.log(total).sum(1) + d * np.log(2 * np.pi))
        out = np.empty((len(X), J))
        centre = np.einsum("jd,jde->je", self.means - origin, scaled).ravel()
        step = max(1, BLOCK // (J * d))
        for at in range(0, len(X), step):
            white = ((X[at : at + step] - origin) @ columns - centre).reshape(-1, J, d)
            out[at : at + step] = constant - 0.5 * np.einsum("nje,nje->nj", white, white)
        return out

    def bic(self, X: Array) -> float:
        """Return p log N - 2 log p(X); lower is better."""
        return float(self.n_parameters * np.log(len(X)) - 2 * log_sum_exp(self.log_joint(X)).sum())

    def subset(self, components: Rows) -> "Gaussians":
        """Return the mixture of some of the components; its weights sum to 1."""
        weights = self.weights[components] / self.weights[components].sum()
        return Gaussians(
            weights, self.means[components], self.axes[components], self.variances[components], self.floor2
        )


@dataclass(frozen=True)
class Floor:
    """The floor s²: its start, its least value, and whether it is estimated."""

    start: float
    least: float
    learnt: bool


@dataclass(frozen=True)
class Run:
    """A mixture, its mean log-likelihood, and how EM ended."""

    model: Gaussians
    score: float
    converged: bool
    n_iter: int


def em(X: Array, start: Gaussians, floor: Floor, max_iter: int, tol: float) -> Run:
    """Iterate E- and M-step until the mean log-likelihood gains less than tol in one step."""
    model, last = start, -np.inf
    for iteration in range(1, max_iter + 1):
        joint = model.log_joint(X)
        evidence = log_sum_exp(joint)
        score = float(evidence.mean())
        if abs(score - last) < tol:
            return Run(model, score, True, iteration)
        last = score
        model = m_step(X, np.exp(joint - evidence[:, None]), model.floor2, floor)
    return Run(model, float(log_sum_exp(model.log_joint(X)).mean()), False, max_iter)


def m_step(X: Array, responsibilities: Array, floor2: float, floor: Floor) -> Gaussians:
    r"""Return the best mixture for responsibilities (N, J), without the components that too few rows support.

    With N_j the mass of component j and l_j1, ..., l_jd the eigenvalues of its covariance,

    .. math:: r_j = \#\{i : l_{ji} > 9 s^2\}, \quad a_{ji} = l_{ji} - s^2, \quad
              s^2 = \frac{\sum_j N_j \sum_{i > r_j} l_{ji}}{\sum_j N_j (d - r_j)}

    where ranks come from the last floor2, and a_ji = 0 beyond them.
    """
    mass = responsibilities.sum(0)
    means, axes, values = _moments(X, responsibilities, mass)
    signal = values > DEGENERATE * floor2
    # Any r + 1 rows lie exactly on a component of rank r, whose likelihood is then limited by the floor alone: that is
    # chance, not structure. One more row does not lie there by chance.
    kept = mass >= np.minimum(signal.sum(1) + 2, len(X)) - 1e-6
    if not kept.any():
        kept = np.arange(len(mass)) == mass.argmax()
    mass, means, axes, values, signal = mass[kept], means[kept], axes[kept], values[kept], signal[kept]
    if floor.learnt:
        noise_mass = (mass[:, None] * ~signal).sum()
        noise = (mass[:, None] * np.maximum(values, 0) * ~signal).sum() / noise_mass if noise_mass else 0.0
        floor2 = max(float(noise), floor.least)
    return Gaussians(mass / mass.sum(), means, axes, np.where(signal, np.maximum(values - floor2, 0), 0.0), floor2)


def _moments(X: Array, responsibilities: Array, mass: Array) -> tuple[Array, Array, Array]:
    """Return the weighted means (J, d), and eigenvectors (J, d, d) and eigenvalues (J, d) of the covariances."""
    J, d = len(mass), X.shape[1]
    means, axes, values = np.empty((J, d)), np.empty((J, d, d)), np.empty((J, d))
    for j in range(J):
        rows = np.flatnonzero(responsibilities[:, j] > 1e-12)
        share = responsibilities[rows, j] / max(mass[j], 1e-300)
        means[j] = share @ X[rows]
        centred = X[rows] - means[j]
        values[j], axes[j] = np.linalg.eigh((centred * share[:, None]).T @ centred)
    return means, axes, values


def from_labels(X: Array, labels: Rows, floor: Floor) -> Gaussians:
    """Return the M-step for hard labels."""
    return m_step(X, (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64), floor.start, floor)
