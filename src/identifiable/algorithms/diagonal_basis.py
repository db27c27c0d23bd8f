"""The basis in which the components of a Gaussian mixture are diagonal (Kivva et al. 2022, Theorem E.1).

Components with covariances C_j = A D_j A', D_j diagonal, are diagonal in the basis W = A^-1. The paper finds it from
two of them: with C_j = V_j V_j', the singular vectors of V_1^-1 V_2 give W up to order and scale if the variance ratios
of that pair are all distinct. Here all components count at once, by their weights,

    min_W  1/2 Σ_j w_j Σ_i log (W C_j W')_ii - log |det W|,

started at the closed form for the pair whose ratios are furthest apart.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from identifiable.algorithms.joint_diagonalisation import blocks_of, diagonalise, least_separation, separation
from identifiable.arrays import Array
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError

RIDGE = 1e-9  # share of the pooled covariance added to each, so that singular ones have a logarithm
PROPORTIONAL = 1e-5  # log-ratios that differ by less are equal, if the mixture is exact


@dataclass(frozen=True, eq=False)
class DiagonalBasis:
    """The map of `diagonal_basis` and what it makes of the mixture.

    Attributes
    ----------
    W : (n, n) unmixing: z = W y; every latent has unit variance over the whole mixture.
    mixture : the distribution of z, including what remains off the diagonals.
    resolved : (n, n) how clearly two latents are separated: with `rows`, in standard errors; otherwise the range over
        the components of the difference between the logarithms of their variances.
    blocks : groups of latents that are not separated from each other: only their span is found; () if all are.
    correlation : the largest correlation left between two latents within a component, weighted by √w_j.
    """

    W: Array
    mixture: Mixture
    resolved: Array
    blocks: tuple[tuple[int, ...], ...]
    correlation: float


def diagonal_basis(mixture: Mixture, *, rows: int | None = None, noise: ArrayLike | None = None) -> DiagonalBasis:
    """Find the basis in which the components of a mixture are diagonal, as far as there is one (Theorem E.1).

    It turns latents that are known up to an affine map into single latents.

    Parameters
    ----------
    mixture : the distribution Σ_j w_j N(μ_j, C_j) of y in R^n, singular components allowed.
    rows : int or None, default=None. Number of rows it was fitted to; None: it is exact.
    noise : (n, n) or None, default=None. Covariance that every C_j contains and that is subtracted.

    Examples
    --------
    >>> z = Mixture([0.5, 0.5], [[0, 0], [3, 1]], [[1, 4], [2, 1]])
    >>> A = np.array([[1.0, 2.0], [-1.0, 1.0]])
    >>> found = diagonal_basis(z.pushforward(A, [1, 1]))
    >>> np.abs(found.W @ A).round(6)  # A is undone, up to order, sign and scale
    array([[0.      , 0.603023],
           [0.516398, 0.      ]])
    >>> diagonal_basis(Mixture([0.5, 0.5], [[0, 0], [3, 1]], [[1, 2], [2, 4]])).blocks  # proportional variances
    ((0, 1),)
    """
    if rows is not None and not rows >= 1:
        raise DataError(f"rows must be the number of rows the mixture was fitted to, an integer >= 1. Got {rows!r}.")
    w, C = mixture.weights[mixture.weights > 0], mixture.covariances[mixture.weights > 0]
    n = C.shape[1]
    if noise is not None:
        C = _without(C, np.asarray(noise, dtype=np.float64))
    pooled = np.einsum("j,jab->ab", w, C)
    values, vectors = np.linalg.eigh(pooled)
    if values[0] <= 1e-12 * values[-1]:
        raise DataError(
            f"The components must together vary in all {n} directions, got a pooled covariance of lower rank: drop "
            "the directions that never vary within a component."
        )
    white = (vectors / np.sqrt(values)).T  # coordinates of all descents
    seen = white @ C @ white.T + RIDGE * np.eye(n)
    starts = [np.eye(n), *_closed_forms(w, seen)]
    best = min((diagonalise(seen, w, start, max_steps=2000) for start in starts), key=lambda found: found.loss)
    return in_basis(mixture, w, C, best.W @ white, rows)


def in_basis(mixture: Mixture, w: Array, C: Array, W: Array, rows: int | None) -> DiagonalBasis:
    """Return W, ordered and scaled, and how clearly its latents are separated; w and C of components with weight."""
    n = len(W)
    spread = mixture.means - mixture.weights @ mixture.means
    total = np.einsum("j,jab->ab", mixture.weights, mixture.covariances) + (mixture.weights * spread.T) @ spread
    W = W / np.sqrt(((W @ total) * W).sum(1))[:, None]
    variances = ((W @ C) * W).sum(-1)
    change = np.log(np.maximum(variances, 1e-300)).var(0)
    order = np.argsort(-change, kind="stable")  # the latent whose variance changes most first
    W, variances = W[order], variances[:, order]
    ratios = np.maximum(variances / (w @ variances), 1e-12)
    if rows is None:
        logs = np.log(ratios)
        resolved = np.ptp(logs[:, :, None] - logs[:, None], axis=0)
        unresolved = resolved < PROPORTIONAL
    else:
        resolved = separation(ratios, rows * w, np.full(n, 3.0))
        unresolved = resolved < least_separation(n)
    moved = W @ C @ W.T
    sd = np.sqrt(np.maximum(variances, np.finfo(np.float64).tiny))
    left = np.abs(moved / (sd[:, :, None] * sd[:, None, :]) * (1 - np.eye(n)) * np.sqrt(w)[:, None, None])
    latents = Mixture(w / w.sum(), mixture.means[mixture.weights > 0] @ W.T, (moved + moved.swapaxes(1, 2)) / 2)
    return DiagonalBasis(W, latents, resolved, blocks_of(unresolved), float(left.max()) if n > 1 else 0.0)


def _closed_forms(w: Array, C: Array) -> list[Array]:
    """Return W by Theorem E.1 for the pair of components whose weighted variance ratios are furthest apart, or []."""
    best, found = 0.0, []
    for i in range(len(w)):
        V = np.linalg.cholesky(C[i])
        inside = np.linalg.solve(V, np.linalg.solve(V, C[i + 1 :]).swapaxes(1, 2))  # V^-1 C_j V^-1'
        if not len(inside):
            continue
        values, vectors = np.linalg.eigh((inside + inside.swapaxes(1, 2)) / 2)
        logs = np.log(np.maximum(values, 1e-300))
        gap = np.diff(logs, axis=1).min(1) if logs.shape[1] > 1 else logs[:, 0]
        gap = gap * np.sqrt(np.minimum(w[i], w[i + 1 :]))
        j = int(gap.argmax())
        if gap[j] > best:
            best, found = float(gap[j]), [vectors[j].T @ np.linalg.inv(V)]
    return found


def _without(C: Array, noise: Array) -> Array:
    """Subtract noise (n, n) from covariances (J, n, n); what would be negative stays a little above zero."""
    if noise.shape != C.shape[1:] or not np.isfinite(noise).all():
        raise DataError(f"noise must be a finite covariance of shape {C.shape[1:]}, got shape {noise.shape}.")
    values, vectors = np.linalg.eigh(C - noise)
    floor = 1e-3 * np.trace(C, axis1=1, axis2=2)[:, None] / C.shape[1]
    return (vectors * np.maximum(values, floor)[:, None]) @ vectors.swapaxes(1, 2)
