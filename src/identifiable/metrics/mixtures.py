"""The distance between two Gaussian mixtures up to an affine map.

Two runs of a mixture model are only comparable up to an affine map of the latent space. Inner products of Gaussian
densities have a closed form, so the L2 distance of two mixtures has one too, and it can be minimised over the map.
"""

import math
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize, quadratic_assignment
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from identifiable.arrays import FloatArray, IntArray
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.metrics.latents import Seed

_MOST_MATCHINGS = math.factorial(7)  # up to this number, all matchings are tried
_SEARCHES = 10  # starts of the search if there are more
_ROTATED = 120  # matchings for which rotations are fitted
_STARTS = 4  # starts of each such fit
_REFINED = 8  # best maps that are refined


@dataclass(frozen=True, eq=False)
class AffineAlignment:
    """The map z -> matrix @ z + offset that brings one mixture closest to another, and the distance left."""

    matrix: FloatArray
    offset: FloatArray
    distance: float


def l2_distance(p: Mixture, q: Mixture) -> float:
    r"""Compute the L2 distance of two mixtures without alignment.

    .. math:: \Delta(p, q) = \frac{\|p - q\|_2}{\sqrt{\|p\|_2 \|q\|_2}}, \qquad
        \langle p, q \rangle = \sum_{ij} w_i v_j\, N(\mu_i - \nu_j;\, 0,\, S_i + T_j)

    The normalisation makes it invariant to a common affine map of p and q. Eq. (34) of Kivva et al. (2022).

    Examples
    --------
    >>> p, q = Mixture([1], [[0.0]], [[1.0]]), Mixture([1], [[2.0]], [[1.0]])
    >>> round(l2_distance(p, q) ** 2, 4), round(2 - 2 * math.exp(-1), 4)
    (1.2642, 1.2642)
    """
    _check_pair(p, q)
    m = p.means.shape[1]
    return float(_distances(p, q, _Maps(np.eye(m)[None], np.zeros((1, m))))[0])


def dist_aff_l2(p: Mixture, q: Mixture, *, random_state: Seed = 0) -> float:
    r"""Compute the distance between two mixtures up to an affine map.

    .. math:: \min_{A \text{ affine}} \Delta(A_\# p, q), \qquad
        \Delta(p, q) = \frac{\|p - q\|_2}{\sqrt{\|p\|_2 \|q\|_2}} \in [0, \sqrt 2)

    0 if and only if some affine map sends p to q. Symmetric, and unchanged by affine maps of p or of q. The minimum
    is searched, so the value is an upper bound; `align_mixtures` describes the search and also returns the map.

    Parameters
    ----------
    p, q : Mixture. On the same R^m, with covariances of full rank (the norm of a degenerate Gaussian is infinite).
    random_state : int, RandomState or None, default=0. Seed of the random starts.

    References
    ----------
    Kivva, Rajendran, Ravikumar, Aragam (2022), eq. (34) and App. J.1.

    Examples
    --------
    >>> p = Mixture([0.2, 0.3, 0.5], [[0, 0], [3, 1], [-1, 2]], [[1, 2], [2, 1], [1, 1]])
    >>> q = p.pushforward([[2, 1], [0, -3]], [5, 5])
    >>> round(l2_distance(p, q), 1), round(dist_aff_l2(p, q), 5)
    (1.6, 0.0)
    """
    return align_mixtures(p, q, random_state=random_state).distance


def align_mixtures(p: Mixture, q: Mixture, *, random_state: Seed = 0) -> AffineAlignment:
    """Find the affine map of `dist_aff_l2`.

    Both mixtures are whitened first, so that the map between equivalent ones is orthogonal. The components of the
    smaller mixture are matched with components of the larger one; each matching gives the least-squares affine map of
    the means (the published choice), and the most promising ones also the orthogonal map that fits means and
    covariances best (needed if there are at most m components). All matchings are tried while there are at most 7! of
    them (7 components each); beyond, a few are found by graph matching and by alternating fits with the Hungarian
    algorithm. The best maps are refined by L-BFGS on the distance itself. Parameters as in `dist_aff_l2`.

    Examples
    --------
    >>> p = Mixture([0.2, 0.3, 0.5], [[0, 0], [3, 1], [-1, 2]], [[1, 2], [2, 1], [1, 1]])
    >>> align_mixtures(p, p.pushforward([[2, 1], [0, -3]], [5, 5])).matrix.round(3) + 0.0
    array([[ 2.,  1.],
           [ 0., -3.]])
    """
    _check_pair(p, q)
    if np.count_nonzero(p.weights) > np.count_nonzero(q.weights):
        back = align_mixtures(q, p, random_state=random_state)  # the distance is symmetric
        matrix = np.linalg.inv(back.matrix)
        return AffineAlignment(matrix, -matrix @ back.offset, back.distance)
    (white_p, root_p, centre_p), (white_q, root_q, centre_q) = _whiten(p), _whiten(q)
    maps = _candidates(white_p, white_q, check_random_state(random_state))
    distances = _distances(white_p, white_q, maps)
    order = np.unique(distances.round(6), return_index=True)[1][:_REFINED]
    best, lin, shift = distances[order[0]], maps.matrices[order[0]], maps.offsets[order[0]]
    known = (white_p, white_q, _log_norm(white_p), _log_norm(white_q))
    for k in order:
        if best < 1e-6:  # equivalent up to rounding
            break
        start = np.concatenate([maps.matrices[k].ravel(), maps.offsets[k]])
        end = minimize(_loss, start, known, "L-BFGS-B", jac=True, options={"ftol": 1e-15, "maxiter": 200})
        refined = end.x[: lin.size].reshape(lin.shape), end.x[lin.size :]
        reached = _distances(white_p, white_q, _Maps(refined[0][None], refined[1][None]))[0]
        if reached < best:
            best, (lin, shift) = reached, refined
    matrix = root_q @ lin @ np.linalg.inv(root_p)
    return AffineAlignment(matrix, root_q @ shift + centre_q - matrix @ centre_p, float(best))


class _Maps(NamedTuple):
    """K affine maps z -> A z + b."""

    matrices: FloatArray  # (K, m, m)
    offsets: FloatArray  # (K, m)


def _check_pair(p: Mixture, q: Mixture) -> None:
    sizes = p.means.shape[1], q.means.shape[1]
    if sizes[0] != sizes[1]:
        raise DataError(f"Both mixtures must have the same dimension, got {sizes[0]} and {sizes[1]}.")
    for name, mixture in (("p", p), ("q", q)):
        for j, covariance in enumerate(mixture.covariances):
            sd = np.sqrt(np.maximum(covariance.diagonal(), 0))
            if sd.min() == 0 or np.linalg.eigvalsh(covariance / np.outer(sd, sd))[0] < 1e-12:
                raise DataError(
                    f"{name}.covariances[{j}] must be positive definite, got a singular matrix, whose density has "
                    "no L2 norm. Drop the directions that never vary, or add a small multiple of the identity."
                )


def _whiten(p: Mixture) -> tuple[Mixture, FloatArray, FloatArray]:
    """Return p with mean 0 and covariance I, without its empty components, and the root and centre that undo it."""
    centre = p.weights @ p.means
    root = np.linalg.cholesky(p.covariance)
    inverse = np.linalg.inv(root)
    kept = p.weights > 0
    full = Mixture(p.weights[kept], p.means[kept], p.covariances[kept])
    return full.pushforward(inverse, -inverse @ centre), root, centre


def _log_products(p: Mixture, q: Mixture, maps: _Maps) -> tuple[FloatArray, ...]:
    """Return log w_i v_j N(A mu_i + b - nu_j; 0, C), C = A S_i A' + T_j, for K maps (K, I, J), with C^-1 and C^-1 d."""
    a, transposed = maps.matrices, maps.matrices.swapaxes(1, 2)
    gap = (p.means @ transposed + maps.offsets[:, None])[:, :, None] - q.means
    total = (a[:, None] @ p.covariances @ transposed[:, None])[:, :, None] + q.covariances
    inverse = np.linalg.inv(total)
    pull = (inverse @ gap[..., None])[..., 0]
    exponent = (gap * pull).sum(axis=-1) + np.linalg.slogdet(total)[1] + gap.shape[-1] * math.log(2 * math.pi)
    return np.log(np.outer(p.weights, q.weights)) - exponent / 2, inverse, pull


def _log_norm(p: Mixture) -> float:
    """Compute log ||p||^2."""
    m = p.means.shape[1]
    return float(logsumexp(_log_products(p, p, _Maps(np.eye(m)[None], np.zeros((1, m))))[0]))


def _distances(p: Mixture, q: Mixture, maps: _Maps) -> FloatArray:
    """Return the distance for each of K affine maps of p; inf where the map is singular.

    With ||A#p||^2 = ||p||^2 / |det A|, h = log(||A#p|| / ||q||) and l the log of the cosine between A#p and q, the
    squared distance is 2 cosh(h) - 2 exp(l), written here so that it keeps its digits near 0.
    """
    norm_p, norm_q = _log_norm(p), _log_norm(q)
    squares = []
    chunk = max(1, 2**21 // (len(p.weights) * len(q.weights) * p.means.shape[1] ** 2))  # bounds the memory
    for k in range(0, len(maps.matrices), chunk):
        part = _Maps(*(of_maps[k : k + chunk] for of_maps in maps))
        with np.errstate(divide="ignore", over="ignore"):
            moved_p = norm_p - np.linalg.slogdet(part.matrices)[1]
            cross = logsumexp(_log_products(p, q, part)[0], axis=(1, 2))
            h, log_cosine = (moved_p - norm_q) / 2, np.minimum(cross - (moved_p + norm_q) / 2, 0)
            squares.append(4 * np.sinh(h / 2) ** 2 - 2 * np.expm1(log_cosine))
    return np.asarray(np.sqrt(np.concatenate(squares)))


def _loss(x: FloatArray, p: Mixture, q: Mixture, norm_p: float, norm_q: float) -> tuple[float, FloatArray]:
    """Return the squared distance at the map x = (A, b), and its gradient."""
    m = p.means.shape[1]
    a, b = x[: m * m].reshape(m, m), x[m * m :]
    sign, log_det = np.linalg.slogdet(a)
    h = (norm_p - log_det - norm_q) / 2
    if sign == 0 or abs(h) > 100:  # too far away for the line search
        return 1e30, np.zeros_like(x)
    logs, inverse, pull = _log_products(p, q, _Maps(a[None], b[None]))
    cross = logsumexp(logs)
    share, inverse, pull = np.exp(logs - cross)[0], inverse[0], pull[0]
    # d log N / dC = -(C^-1 - y y') / 2 with y = C^-1 d, and C depends on A through A S A'.
    curve = np.einsum("ij,ijab->iab", share, inverse) - np.einsum("ij,ija,ijb->iab", share, pull, pull)
    cross_a = -(curve @ a @ p.covariances).sum(axis=0) - np.einsum("ij,ija,ib->ab", share, pull, p.means)
    cross_b = -np.einsum("ij,ija->a", share, pull)
    det_a = np.linalg.inv(a).T
    cosine = math.exp(cross - (norm_p - log_det + norm_q) / 2)
    grad_a = -math.sinh(h) * det_a - 2 * cosine * (cross_a + det_a / 2)
    return 2 * math.cosh(h) - 2 * cosine, np.concatenate([grad_a.ravel(), -2 * cosine * cross_b])


def _candidates(p: Mixture, q: Mixture, rng: np.random.RandomState) -> _Maps:
    """Fit maps to every matching worth trying; p has no more components than q, both are whitened."""
    n_p, n_q = len(p.weights), len(q.weights)
    if math.perm(n_q, n_p) <= _MOST_MATCHINGS:
        matchings = np.array(list(permutations(range(n_q), n_p)))
    else:
        matchings = _search_matchings(p, q, rng)
    # Rotations keep inner products, so matchings that change them little come first.
    inner_p, inner_q = _inner_products(p), _inner_products(q)
    misfit = np.square(inner_p - inner_q[matchings[:, :, None], matchings[:, None]]).sum(axis=(1, 2))
    return _joined(_fit_rotations(p, q, matchings[np.argsort(misfit)[:_ROTATED]], rng), _fit_affine(p, q, matchings))


def _joined(one: _Maps, other: _Maps) -> _Maps:
    return _Maps(*(np.concatenate(pair) for pair in zip(one, other, strict=True)))


def _pair_up(p: Mixture, q: Mixture, matchings: IntArray) -> tuple[FloatArray, ...]:
    """Return weights (K, I), centred means and centres of K matchings (K, I) of the components i of p."""
    share = np.sqrt(p.weights * q.weights[matchings])
    share /= share.sum(axis=1, keepdims=True)
    nu = q.means[matchings]
    mid_p, mid_q = share @ p.means, np.einsum("ki,kia->ka", share, nu)
    return share, p.means - mid_p[:, None], nu - mid_q[:, None], mid_p, mid_q


def _fit_affine(p: Mixture, q: Mixture, matchings: IntArray) -> _Maps:
    """Map the means onto their partners by weighted least squares; singular unless there are more than m of them."""
    share, mu, nu, mid_p, mid_q = _pair_up(p, q, matchings)
    root = np.sqrt(share)[:, :, None]
    maps = (np.linalg.pinv(root * mu) @ (root * nu)).swapaxes(1, 2)
    return _Maps(maps, mid_q - np.einsum("kab,kb->ka", maps, mid_p))


def _fit_rotations(p: Mixture, q: Mixture, matchings: IntArray, rng: np.random.RandomState) -> _Maps:
    """Minimise sum_i w_i (|R mu_i - nu_i|^2 + |R S_i R' - T_i|^2) over orthogonal R, from a few starts each."""
    matchings = np.tile(matchings, (_STARTS, 1))
    share, mu, nu, mid_p, mid_q = _pair_up(p, q, matchings)
    s, t = p.covariances, q.covariances[matchings]
    # Starts: a random sum of second moments has simple eigenvalues, so its eigenvectors, with signs from the means,
    # map p to q exactly if the two are equivalent.
    c, d = rng.uniform(0.5, 1.5, size=(2, *share.shape))
    _, u = np.linalg.eigh(np.einsum("ki,iab->kab", c, s) + np.einsum("ki,kia,kib->kab", d, mu, mu))
    _, v = np.linalg.eigh(np.einsum("ki,kiab->kab", c, t) + np.einsum("ki,kia,kib->kab", d, nu, nu))
    signs = np.where(np.einsum("ki,kia,kia->ka", share, mu @ u, nu @ v) < 0, -1.0, 1.0)
    rotations = v * signs[:, None] @ u.swapaxes(1, 2)
    # Up to a constant a convex function of R is maximised, so projecting its gradient on the orthogonal matrices never
    # lowers it. Removing the smallest eigenvalues changes only the constant, and is faster.
    eye = np.eye(s.shape[-1])
    s = s - np.linalg.eigvalsh(s)[..., :1, None] * eye
    t = t - np.linalg.eigvalsh(t)[..., :1, None] * eye
    means = np.einsum("ki,kia,kib->kab", share, nu, mu)
    for _ in range(20):
        pull = np.einsum("ki,kiab->kab", share, t @ rotations[:, None] @ s)
        left, _, right = np.linalg.svd(means + 2 * pull + 1e-9 * rotations)
        rotations = left @ right
    return _Maps(rotations, mid_q - np.einsum("kab,kb->ka", rotations, mid_p))


def _inner_products(p: Mixture) -> FloatArray:
    spread = p.covariances - p.covariances.mean(axis=0)
    return np.asarray(p.means @ p.means.T + np.einsum("iab,jab->ij", spread, spread))


def _fingerprints(p: Mixture) -> FloatArray:
    """Describe each component by invariants of rotations: its shape and quantiles of its inner products."""
    axes = np.sqrt(np.linalg.eigvalsh(p.covariances))
    spread = np.quantile(_inner_products(p), np.linspace(0, 1, 9), axis=1).T
    return np.column_stack([axes, spread, np.linalg.norm(p.means, axis=1)])


def _search_matchings(p: Mixture, q: Mixture, rng: np.random.RandomState) -> IntArray:
    """Match graphs whose edges are the inner products, then alternate fitting and matching."""
    n_p, n_q = len(p.weights), len(q.weights)
    inner_p, inner_q = np.zeros((n_q, n_q)), _inner_products(q)
    inner_p[:n_p, :n_p] = _inner_products(p)  # surplus components of q have no partner
    difference = np.square(_fingerprints(p)[:, None] - _fingerprints(q)).sum(axis=-1)
    starts = [linear_sum_assignment(difference)[1]]
    seeds = np.random.default_rng(rng.randint(2**31 - 1))
    for k in range(_SEARCHES):
        options = {"maximize": True, "rng": seeds, "P0": "randomized" if k else "barycenter"}
        starts.append(quadratic_assignment(inner_p, inner_q, options=options).col_ind[:n_p])
    found: set[tuple[int, ...]] = set()
    for start in starts:
        matching = tuple(start.tolist())
        while matching not in found and len(found) < 10 * _SEARCHES:
            found.add(matching)
            one = np.array([matching])
            maps = _joined(_fit_rotations(p, q, one, rng), _fit_affine(p, q, one))
            costs = [_matching_cost(p.pushforward(*fitted), q) for fitted in zip(*maps, strict=True)]
            partners = [linear_sum_assignment(cost)[1] for cost in costs]
            k = int(np.argmin([cost[range(n_p), to].sum() for cost, to in zip(costs, partners, strict=True)]))
            matching = tuple(partners[k].tolist())
    return np.array(sorted(found))


def _matching_cost(p: Mixture, q: Mixture) -> FloatArray:
    apart = np.square(p.means[:, None] - q.means).sum(axis=-1)
    apart = apart + np.square(p.covariances[:, None] - q.covariances).sum(axis=(-2, -1))
    return np.asarray(p.weights[:, None] * apart)
