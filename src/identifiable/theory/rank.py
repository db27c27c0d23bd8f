r"""Test of whether an estimated matrix has full rank: sampling noise alone gives any matrix full rank.

Let y(u) in R^r, u = 1..G, be estimated with covariances :math:`\Sigma_u`. If :math:`y(u) - y(u_0)` had rank r - 1, some
v'y(u) would be constant over u, and

.. math:: q = \min_{v, c} \sum_u \frac{(v'\hat y(u) - c)^2}{v' \Sigma_u v} \sim \chi^2_{G - r}

for many rows: the minimum over v and c takes r of the G degrees of freedom, and so pays for the choice of v (Cragg &
Donald 1997). If the rank is lower still, q is smaller. q does not change under an affine map of y. The size of the
variation is :math:`\sqrt{q / (G - r)}` standard errors: about 1 where some direction is constant.
"""

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.stats import chi2

from identifiable.arrays import Array
from identifiable.theory.certificate import named
from identifiable.theory.thresholds import THRESHOLDS

NAMED = 0.3  # latents with at least this part of the largest share in v are named
STARTS = 8  # of the minimisation over v


def least_varied(y: Array, covariances: Array) -> tuple[float, Array]:
    r"""Minimise :math:`q(v) = \min_c \sum_u (v'y_u - c)^2 / v'\Sigma_u v`; return q and a v of length 1.

    y is (G, r), covariances (G, r, r). q is not convex: the minimum is the best found from the directions that are
    least varied under a common covariance. By the choice of c, its derivative adds nothing to that of q.

    Examples
    --------
    >>> y = np.array([[1, 2], [3, 6], [5, 10], [2, 4.0]])
    >>> q, v = least_varied(y, np.tile(np.eye(2), (4, 1, 1)))
    >>> bool(q < 1e-12), np.abs(v / v[1]).round(3)
    (True, array([2., 1.]))
    """
    freedom = len(y) - y.shape[1]
    unit = np.sqrt(np.median(np.diagonal(covariances, axis1=1, axis2=2), axis=0))
    y, covariances = (y - y.mean(0)) / unit, covariances / (unit[:, None] * unit)

    def objective(v: Array) -> tuple[float, Array]:
        sv = covariances @ v
        w = 1 / (sv @ v)
        residual = y @ v
        residual -= w @ residual / w.sum()
        q = w @ residual**2
        slope = 2 * ((w * residual) @ y - (w * residual) ** 2 @ sv)
        return float(np.log1p(q / freedom)), slope / (freedom + q)

    w = 1 / np.trace(covariances, axis1=1, axis2=2)
    centred = y - w @ y / w.sum()
    starts = eigh(centred.T @ (w[:, None] * centred), np.einsum("u,uij->ij", w, covariances))[1].T[:STARTS]
    best = min((minimize(objective, v, jac=True, method="BFGS") for v in starts), key=lambda found: float(found.fun))
    v = best.x / unit
    return float(np.expm1(best.fun) * freedom), np.asarray(v / np.linalg.norm(v))


def by_chance(freedom: int, of: int = 1) -> float:
    """Return by how many standard errors, root mean square, the most varied of `of` constants varies by chance."""
    return float(np.sqrt(chi2.ppf((1 - THRESHOLDS.error_level) ** (1 / of), freedom) / freedom))


def dependence(y: Array, covariances: Array, v: Array, k: int) -> str:
    """Return in words what does not change with u or, if everything does, which latents form the direction v.

    The columns of y are k natural parameters for each latent; their shares in v are in units of their variation.
    """
    w = 1 / np.diagonal(covariances, axis1=1, axis2=2)
    around = y - (w * y).sum(0) / w.sum(0)
    still = np.sqrt((w * around**2).sum(0) / (len(y) - 1)) <= by_chance(len(y) - 1)
    if still.any():
        nouns = [""] if k == 1 else ["the means of ", "the variances of "]
        found = [
            noun + named("latent", np.flatnonzero(still[j::k])) for j, noun in enumerate(nouns) if still[j::k].any()
        ]
        return "u does not change " + " and ".join(found)
    shares = np.abs(v) * y.std(0)
    latents = np.unique(np.flatnonzero(shares > NAMED * shares.max()) // k)
    which = named("latent", latents)
    if len(latents) == 1 and k == 1:
        return f"u hardly changes {which}"
    if len(latents) == 1:
        return f"u changes mean and variance of {which} in a linearly dependent way"
    if len(latents) == 2:
        return f"{which} vary with u in proportion"
    return f"u changes {which} in a linearly dependent way"
