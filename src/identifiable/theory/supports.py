r"""The supports of a mixture's components: where they meet, and whether one basis spans them all.

The support of component j is :math:`S_j = \mu_j + range(\Sigma_j)`. Everything is computed after whitening by the
covariance of the whole mixture, so that no number depends on units or on an affine map of the latents.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigvalsh, null_space

from identifiable.arrays import Array, BoolArray, IntArray
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.theory.thresholds import THRESHOLDS

FACTOR = THRESHOLDS.undecided_factor


@dataclass(frozen=True, eq=False)
class Supports:
    """Supports in whitened coordinates y: z = centre + colour y, y = white' (z - centre); m <= n directions vary."""

    centre: Array  # (n,)
    white: Array  # (n, m)
    colour: Array  # (n, m)
    live: BoolArray  # (n,): the given coordinates that vary at all
    means: Array  # (J, m)
    axes: tuple[Array, ...]  # J of (m, rank): orthonormal directions of the support
    variances: tuple[Array, ...]  # J of (rank,)
    off: Array  # (J, m, m): projectors onto the complement of the directions
    weights: Array  # (J,)
    names: IntArray  # (J,): the number of each component in the mixture; those of weight 0 are left out
    largest_inactive: float  # the largest standard deviation counted as zero, as a share of the largest of all
    smallest_active: float  # the smallest one that is not
    tol: float

    @property
    def ranks(self) -> IntArray:
        """The dimension of every support (J,)."""
        return np.array([len(v) for v in self.variances])


@dataclass(frozen=True, eq=False)
class Basis:
    """Directions (m, m, columns), the supports each lies in (m, J), and how far the worst is outside one of them."""

    columns: Array
    codes: BoolArray
    misfit: float


def supports_of(mixture: Mixture, tol: float) -> Supports:
    """Whiten, and take the directions of each component with a standard deviation above tol of the largest."""
    names = np.flatnonzero(mixture.weights > 0)
    w, mu, sigma = mixture.weights[names], mixture.means[names], mixture.covariances[names]
    centre = w @ mu
    total = np.einsum("j,jkl->kl", w, sigma) + (mu - centre).T @ (w[:, None] * (mu - centre))
    units = np.sqrt(np.diag(total))
    if units.max() <= 0:
        raise DataError(
            "The mixture is a single point, so there is nothing to identify. Pass one in which something varies."
        )
    live = units > 1e-2 * tol * units.max()  # the others never vary; only here units matter
    units = units[live, None]
    values, vectors = np.linalg.eigh(total[np.ix_(live, live)] / (units * units.T))
    kept = values > min(tol, 1e-3) ** 2
    scales, vectors = np.sqrt(values[kept]), vectors[:, kept]
    white, colour = np.zeros((2, len(live), len(scales)))
    white[live], colour[live] = vectors / scales / units, vectors * scales * units
    spectra, directions = np.linalg.eigh(white.T @ sigma @ white)  # (J, m), (J, m, m)
    deviations = np.sqrt(np.maximum(spectra, 0))
    deviations /= deviations.max() or 1.0  # all zero where every component is a point
    active = deviations > tol
    axes = tuple(d[:, a] for d, a in zip(directions, active, strict=True))
    return Supports(
        centre=centre,
        white=white,
        colour=colour,
        live=live,
        means=(mu - centre) @ white,
        axes=axes,
        variances=tuple(v[a] for v, a in zip(spectra, active, strict=True)),
        off=np.eye(len(scales)) - np.stack([v @ v.T for v in axes]),
        weights=w,
        names=names,
        largest_inactive=float(deviations[~active].max(initial=0)),
        smallest_active=float(deviations[active].min(initial=1)),
        tol=tol,
    )


def common_point(s: Supports) -> tuple[Array, float]:
    """Return the point t (n,) closest to all supports, the shortest where there are several, and its worst distance."""
    values, vectors = np.linalg.eigh(s.off.sum(0))
    fixed = values > (FACTOR * s.tol) ** 2  # the other directions are active in every component
    rhs = np.einsum("jkl,jl->k", s.off, s.means)
    y = vectors[:, fixed] @ ((vectors[:, fixed].T @ rhs) / values[fixed])
    gap = float(np.linalg.norm(np.einsum("jkl,jl->jk", s.off, y - s.means), axis=1).max())
    t, free = s.centre + s.colour @ y, s.colour @ vectors[:, ~fixed]
    t = t - free @ np.linalg.lstsq(free, t, rcond=None)[0]
    return np.where(np.abs(t) > 1e-9 * (np.linalg.norm(s.colour, axis=1) + np.abs(s.centre)), t, 0.0), gap


def least_difference(s: Supports) -> tuple[float, tuple[int, int]] | None:
    """Return the smallest `pair_difference` of all pairs of equal rank, and the pair; None if no pair matters."""
    on = np.eye(s.off.shape[1]) - s.off
    overlap = np.tensordot(on, on, axes=([1, 2], [1, 2]))
    # The squared cosines between two supports sum to at least r - 1 where they share a hyperplane.
    close = overlap > (s.ranks - 1) * (1 - (FACTOR * s.tol) ** 2) - 1e-9
    near = (s.ranks[:, None] == s.ranks) & close & (s.ranks > 0)
    pairs = [(int(i), int(j)) for i, j in np.argwhere(np.triu(near, 1))]
    found = [(value, pair) for pair in pairs if (value := pair_difference(s, *pair)) is not None]
    return min(found, default=None)


def pair_difference(s: Supports, i: int, j: int) -> float | None:
    r"""Compare the Mahalanobis distances to i and j, of one rank r, where their supports meet in r - 1 dimensions.

    On the intersection p + V y the squared distance to i is a quadratic polynomial; 1 + it is (1, y) M_i (1, y)' with
    M_i positive definite. Returned is the largest :math:`|\log \lambda(M_i, M_j)|`: zero where the polynomials
    coincide, unchanged by affine maps. None where the supports are equal, or meet in fewer dimensions.
    """
    r = len(s.variances[i])
    u, cosines, v = np.linalg.svd(s.axes[i].T @ s.axes[j])
    sines = np.sqrt(np.maximum(1 - cosines**2, 0))
    if (r > 1 and sines[r - 2] > FACTOR * s.tol) or sines[r - 1] <= s.tol:
        return None
    own, other = s.axes[i] @ u, s.axes[j] @ v.T
    gap = s.means[j] - s.means[i]
    reach = np.column_stack([own, other[:, -1]])
    path = np.linalg.lstsq(reach, gap, rcond=None)[0]
    if np.linalg.norm(reach @ path - gap) > FACTOR * s.tol:  # they do not meet
        return None
    p = s.means[i] + path[r - 1] * own[:, -1]

    def form(k: int) -> Array:
        root = (s.axes[k].T @ np.column_stack([p - s.means[k], own[:, :-1]])) / np.sqrt(s.variances[k])[:, None]
        square: Array = root.T @ root
        square[0, 0] += 1
        return square

    return float(np.abs(np.log(eigvalsh(form(i), form(j)))).max())


def standard_basis(s: Supports) -> Basis:
    """Assign to each support the given coordinates closest to it, as many as it has dimensions."""
    m = s.white.shape[1]
    if s.live.sum() != m:
        return Basis(np.eye(m), np.zeros((m, len(s.names)), dtype=bool), 1.0)
    columns = s.white[s.live].T
    columns = columns / np.linalg.norm(columns, axis=0)
    distances = np.linalg.norm(s.off @ columns, axis=1)  # (J, m)
    codes = distances.argsort(axis=1).argsort(axis=1) < s.ranks[:, None]
    return Basis(columns, codes.T, float(distances[codes].max(initial=0)))


def share_given_basis(s: Supports) -> tuple[int, ...]:
    """Return the components that given coordinates span and that share a point, () if they are fewer than two."""
    basis = standard_basis(s)
    if not basis.codes.any():
        return ()
    distances = np.where(basis.codes.T, np.linalg.norm(s.off @ basis.columns, axis=1), 0.0)
    spanned = distances.max(1) <= s.tol
    if spanned.sum() < 2 or common_point(replace(s, off=s.off[spanned], means=s.means[spanned]))[1] > s.tol:
        return ()
    return tuple(s.names[spanned].tolist())


def adapted_basis(s: Supports) -> Basis:
    r"""Find a basis of which every support is spanned by a part, if there is one; else the misfit is large.

    A flag :math:`0 \subset V_1 \subset V_2 \ldots` is refined by each support S in turn: the step from V_{k-1} to V_k
    is split into the part that :math:`S \cap V_k` reaches and its complement. With a common basis, each step ends
    up with basis vectors of one code (the set of supports they lie in), so the steps count the vectors of each code. A
    vector of code c is then chosen in the intersection of the supports in c, away from those of larger codes.
    """
    m = s.white.shape[1]
    steps: list[tuple[Array, tuple[bool, ...]]] = [(np.eye(m), ())]
    for off in s.off:
        flag = np.hstack([step for step, _ in steps])
        outside = flag.T @ off @ flag
        finer = []
        end = inside = 0
        for step, code in steps:
            start, end = end, end + step.shape[1]
            values, vectors = np.linalg.eigh(outside[:end, :end])
            before, inside = inside, int((values < (FACTOR * s.tol) ** 2).sum())
            gain = min(max(inside - before, 0), end - start)
            turn = np.linalg.svd(vectors[start:end, :inside])[0] if 0 < gain < end - start else np.eye(end - start)
            finer += [(step @ turn[:, :gain], (*code, True)), (step @ turn[:, gain:], (*code, False))]
        steps = [(step, code) for step, code in finer if step.shape[1]]
    wanted = np.repeat([code for _, code in steps], [step.shape[1] for step, _ in steps], axis=0)  # (m, J)
    kinds = np.unique(wanted, axis=0)
    columns, codes = np.empty((m, 0)), np.empty((0, len(s.names)), dtype=bool)
    for code in kinds[np.argsort(-kinds.sum(1), kind="stable")]:
        size, above = int((wanted == code).all(1).sum()), (codes >= code).all(1)
        taken = int(above.sum())
        common = np.linalg.eigh(s.off[code].sum(0))[1][:, : size + taken]  # the intersection, or what is nearest to it
        turn = np.linalg.svd(common.T @ columns[:, above])[0] if taken else np.eye(size)
        columns = np.hstack([columns, common @ turn[:, taken:]])
        codes = np.vstack([codes, np.repeat(code[None], size, axis=0)])
    distances = np.linalg.norm(s.off @ columns, axis=1)
    # Needed by the argument above; no example is known in which it decides.
    independent = np.linalg.svd(columns, compute_uv=False)[-1] > FACTOR * s.tol
    return Basis(columns, codes, float(distances[codes.T].max(initial=0)) if independent else 1.0)


def in_given_coordinates(s: Supports, basis: Basis) -> tuple[Array, IntArray]:
    """Return unit columns (n, n), ordered by their largest coordinate, and the place of each of the m directions.

    Directions that never vary fill up the basis.
    """
    columns = np.hstack([s.colour @ basis.columns, null_space(s.colour.T)])
    columns = columns / np.linalg.norm(columns, axis=0)
    largest = np.abs(columns).argmax(0)
    columns = columns * np.sign(columns[largest, np.arange(len(columns))])
    order = np.argsort(largest, kind="stable")
    return columns[:, order], np.argsort(order)[: basis.columns.shape[1]]
