r"""Which latents a mixing that bends where they become inactive could exchange.

The page `theory/straightness` of the documentation has the theorems and proofs. Supports share a point t and a basis;
z counts from t in that basis. A pattern A is the set of latents active in a component, :math:`w_A` the weight of all
components of this pattern and :math:`p_A` their distribution. f and the other decoder g are continuous, injective and
piecewise affine. Then latents change from x = f(z) to x = g(z') by

.. math:: z' = c_0 + \sum_c z_c u_c^{sign z_c},

and latent c is *straight* if :math:`u_c^+ = u_c^-`. If all are, the map is affine.

**Theorem 1.** If c is not straight, every pattern A with c has a partner A' = A - c + c', such that

    (i) w_A' = w_A,  (ii) p_A' is p_A up to z_K + a z_c and b z_c, K = A - c,  (iii) no pattern contains A + c'.

**Theorem 2.** Let every latent be inactive somewhere while any other is active (3.8b), and z' be as sparse as z. If c
is not straight, there is one c' for *all* patterns A with c: no pattern contains both, A' = A - c + c' has the weight
of A, and its distribution up to the unit of z_c. Latents that are straight are then coordinates of z'.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from identifiable.arrays import Array, BoolArray, IntArray

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Patterns:
    """The patterns of activity of a mixture, with the weight, mean and covariance of z in each.

    Attributes
    ----------
    masks : (J, n), distinct.
    weights : (J,)
    means, covariances : (J, n) and (J, n, n), zero where a latent is inactive.
    """

    masks: BoolArray
    weights: Array
    means: Array
    covariances: Array

    @classmethod
    def of_components(cls, masks: BoolArray, weights: Array, means: Array, covariances: Array) -> "Patterns":
        """Join the components of each pattern: their mean and covariance are those of the whole pattern."""
        distinct, label = np.unique(masks, axis=0, return_inverse=True)
        member = label.ravel()[None] == np.arange(len(distinct))[:, None]  # (patterns, components)
        total = member @ weights
        share = member * weights / total[:, None]
        centres = share @ means
        apart = means[None] - centres[:, None]
        within = np.einsum("pj,jab->pab", share, covariances)
        return cls(distinct, total, centres, within + np.einsum("pj,pja,pjb->pab", share, apart, apart))


def never_together(masks: BoolArray) -> list[Pair]:
    """Return the pairs of latents that no pattern (J, n) contains, of which alone two may be exchangeable."""
    together = masks.T.astype(float) @ masks > 0
    return [(c, d) for c, d in combinations(range(len(together)), 2) if not together[c, d]]


def varied(masks: BoolArray) -> bool:
    """Return whether every latent is inactive in some pattern (J, n) in which any other is active (3.8b)."""
    apart = masks.T.astype(float) @ ~masks
    return bool((apart[~np.eye(len(apart), dtype=bool)] > 0).all())


def swapped(masks: BoolArray, c: int, d: int) -> tuple[IntArray, IntArray]:
    """Return the patterns that contain c, and the number of each with d in place of c, -1 where that does not occur."""
    own = np.flatnonzero(masks[:, c])
    other = masks[own]
    other[:, [c, d]] = other[:, [d, c]]
    return own, find(masks, other)


def find(masks: BoolArray, wanted: BoolArray) -> IntArray:
    """Return the number of each wanted mask among distinct masks, -1 where it does not occur."""
    places = {mask.tobytes(): j for j, mask in enumerate(masks)}
    return np.array([places.get(mask.tobytes(), -1) for mask in wanted], dtype=np.int64)


# -- theorem 1 --------------------------------------------------------------------------------


def without_partner(masks: BoolArray, excluded: Callable[[int, int, int], bool]) -> BoolArray:
    """Return the latents that theorem 1 shows to be straight (n,).

    `excluded(j, c, d)` says whether weights or distributions show that pattern j with d in place of c is no partner of
    pattern j. A partner of a latent that is not straight is not straight either, so straight latents drop out.
    """
    options: list[list[set[int]]] = [[] for _ in range(masks.shape[1])]  # per latent and pattern: possible c'
    for j, mask in enumerate(masks):
        above = masks[(masks >= mask).all(1)].any(0)
        free = np.flatnonzero(~above)
        for c in np.flatnonzero(mask):
            options[c].append({int(d) for d in free if not excluded(j, int(c), int(d))})
    straight: set[int] = set()
    while new := {c for c, sets in enumerate(options) if any(left <= straight for left in sets)} - straight:
        straight |= new
    return np.isin(np.arange(masks.shape[1]), list(straight))


def partner_difference(patterns: Patterns, j: int, c: int, d: int) -> float:
    r"""Return by how much pattern j, with c, and its counterpart with d differ up to a shear: zero if they are equal.

    In :math:`z_K = m + \beta z_c + \epsilon`, a shear changes :math:`\beta` and the unit of z_c only. Left are m, the
    covariance of :math:`\epsilon`, and :math:`|\delta|`, the mean of z_c over its standard deviation.
    """
    own, others = swapped(patterns.masks, c, d)
    i = int(others[own == j][0])
    if i < 0:
        return np.inf
    K = np.flatnonzero(patterns.masks[j] & patterns.masks[i])
    (m, v, a), (n, w, b) = (_up_to_shears(patterns, k, latent, K) for k, latent in ((j, c), (i, d)))
    unit = np.sqrt((np.diag(v) + np.diag(w)) / 2)
    found = [abs(np.log(patterns.weights[i] / patterns.weights[j])), abs(a - b)]
    return float(max([*found, *np.abs((m - n) / unit), *np.abs((v - w) / np.outer(unit, unit)).ravel()]))


def _up_to_shears(patterns: Patterns, j: int, c: int, K: IntArray) -> tuple[Array, Array, float]:
    """Return the intercept and residual covariance of z_K given z_c, and |mean / sd| of z_c."""
    mean, covariance = patterns.means[j], patterns.covariances[j]
    slope = covariance[K, c] / covariance[c, c]
    residual = covariance[np.ix_(K, K)] - np.outer(slope, covariance[c, K])
    return mean[K] - slope * mean[c], residual, float(abs(mean[c]) / np.sqrt(covariance[c, c]))


# -- theorem 2 --------------------------------------------------------------------------------


def differences(patterns: Patterns) -> dict[Pair, float]:
    """Return for every two latents by how much they differ in the sense of theorem 2; zero if they are exchangeable."""
    close = set(never_together(patterns.masks))
    every = combinations(range(patterns.masks.shape[1]), 2)
    return {pair: exchange_difference(patterns, *pair) if pair in close else np.inf for pair in every}


def exchange_difference(patterns: Patterns, c: int, d: int) -> float:
    """Return the largest difference between c and d, which are never active together, over their patterns.

    Compared are log-weights, and up to the unit of z_c, one for all patterns: means in standard deviations, logarithms
    of standard deviations, and correlations.
    """
    own, others = swapped(patterns.masks, c, d)
    if len(own) != patterns.masks[:, d].sum() or (others < 0).any():
        return np.inf
    found = list(np.abs(np.log(patterns.weights[others] / patterns.weights[own])))
    first = [_up_to_unit(patterns, int(j), c) for j in own]
    second = [_up_to_unit(patterns, int(i), d) for i in others]
    units = [np.log(a[0] / b[0]) for a, b in zip(first, second, strict=True)]
    found.append(np.ptp(units))
    for a, b in zip(first, second, strict=True):
        found += [np.abs(a[1] - b[1]).max(initial=0), np.abs(np.log(a[2] / b[2])).max(initial=0)]
    signed = [max(np.abs(a[3] - s * b[3]).max() for a, b in zip(first, second, strict=True)) for s in (1, -1)]
    return float(max(*found, min(signed)))


def _up_to_unit(patterns: Patterns, j: int, c: int) -> tuple[float, Array, Array, Array]:
    """Return sd z_c; means and correlations of the others; their sds; what changes sign with z_c."""
    K = np.flatnonzero(patterns.masks[j])
    K = K[c != K]
    mean, covariance = patterns.means[j], patterns.covariances[j]
    sd = np.sqrt(np.diag(covariance))
    correlations = covariance[np.ix_(K, K)] / np.outer(sd[K], sd[K])
    signed = np.append(covariance[K, c] / (sd[K] * sd[c]), mean[c] / sd[c])
    return float(sd[c]), np.append(mean[K] / sd[K], correlations), sd[K], signed


def straight_latents(n: int, possible: Iterable[Pair]) -> tuple[int, ...]:
    """Return the latents in none of the pairs that may be exchanged.

    Examples
    --------
    >>> straight_latents(4, [(0, 2)])
    (1, 3)
    """
    exchangeable = {c for pair in possible for c in pair}
    return tuple(c for c in range(n) if c not in exchangeable)
