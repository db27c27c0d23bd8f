"""Spikes and slabs of single latents, and the repair of an unmixing in which a latent is hardly ever inactive.

A latent that is hardly ever inactive, or much less often than the others, is a row of an unmixing gone wrong. Typically
it is a sum of many latents: where as many are active in every row, their sum hardly varies.
"""

import numpy as np
from numpy.typing import NDArray

from identifiable.algorithms.noisy import spikes
from identifiable.arrays import Array, FloatArray
from identifiable.distributions.mixture import Mixture

MOST_ACTIVE, MOST_UNEVEN = 0.75, 1.4  # share of rows in which a latent may be active; times the median of the others
WIDE = 0.3  # width of a spike of a linear unmixing, in sd of an active latent
CLOSE = 3.0  # widths of a spike within which a group of rows is explained by the other latents
CLEARLY = 0.9  # a repaired latent must be active in less than this share of the rows it was active in


def uneven(share: Array) -> bool:
    """Return whether a latent is active too often, given the shares (n,) of rows in which each is."""
    return bool(share.max() > min(MOST_ACTIVE, max(0.5, MOST_UNEVEN * float(np.median(share)))))


def needs_repair(y: Array, rows: Array, other: Array) -> bool:
    """Return whether an unmixing (n, n + 1) of y (N, n) has a row gone wrong but is likelier than another unmixing.

    The likelihood is that of latents as independent spikes and slabs.
    """

    def density(W: Array) -> tuple[Array, float]:
        t = y @ W[:, :-1].T + W[:, -1]
        share, mean, size = slabs(t, WIDE)
        slab, spike = _slab_and_spike(t, share, mean, size, WIDE)
        return share, float(np.log((slab + spike) / size + 1e-300).sum(1).mean() + np.linalg.slogdet(W[:, :-1])[1])

    share, likelihood = density(rows)
    return uneven(share) and likelihood >= density(other)[1]


def slabs(t: Array, width: float, steps: int = 50) -> tuple[Array, Array, Array]:
    """Fit p N(m, s²) + (1 - p) N(0, (width s)²) to every column by EM; return p, m and s."""
    share, mean, size = np.full(t.shape[1], 0.5), t.mean(0), t.std(0)
    for _ in range(steps):
        slab, spike = _slab_and_spike(t, share, mean, size, width)
        active = slab / (slab + spike + 1e-300)
        share = np.clip(active.mean(0), 0.05, 0.95)
        mean = (active * t).mean(0) / active.mean(0).clip(1e-6)
        size = np.sqrt((active * (t - mean) ** 2).mean(0) / active.mean(0).clip(1e-6)).clip(1e-3 * t.std(0))
    return share, mean, size


def _slab_and_spike(t: Array, share: Array, mean: Array, size: Array, width: float) -> tuple[Array, Array]:
    """Return the two parts of the density of every column, times s √2π."""
    slab = share * np.exp(-0.5 * ((t - mean) / size) ** 2)
    return slab, (1 - share) * np.exp(-0.5 * (t / (width * size)) ** 2) / width


def repair(t: Array) -> Array:
    """Return rows (n, n + 1) of an affine map of latents t (N, n) that repairs the latents gone wrong, where possible.

    In rows with one pattern of the other latents, the wrong latent is an affine function of the active ones if the
    right latent is inactive there. The rows of all such patterns give this function; the right latent is the remainder.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> two_active = rng.random((4000, 4)).argsort(1) < 2
    >>> z = rng.normal(3, 1, size=(4000, 4)) * two_active
    >>> t = z @ (np.eye(4) + np.outer(np.ones(4), [1, 0, 0, 0]))  # latent 0 is seen with the sum of all
    >>> rows = repair(t)
    >>> found = t @ rows[:, :4].T + rows[:, 4]
    >>> bool(abs(np.corrcoef(found[:, 0], z[:, 0])[0, 1]) > 0.9999)
    True
    """
    n = t.shape[1]
    rows: Array = np.eye(n, n + 1)
    for _ in range(n):
        now = t @ rows[:, :n].T + rows[:, n]
        width, _, size, activity = spikes(now)
        active = activity > 0.5
        share = active.mean(0)
        worst = int(share.argmax())
        if not uneven(share):
            break
        close = CLOSE * float(np.median(width / size)) * now[:, worst].std()
        weights = _explained(now, worst, active, close)
        if weights is None:
            break
        left = now[:, worst] - now @ weights[:n] - weights[n]
        _, _, scale, again = spikes(left[:, None])
        if np.mean(again > 0.5) > CLEARLY * share[worst]:
            break
        rows[worst] = (rows[worst] - weights[:n] @ rows - np.r_[np.zeros(n), weights[n]]) / scale
    return rows


def _explained(t: Array, worst: int, active: NDArray[np.bool_], close: float) -> Array | None:
    """Return weights (n + 1,) of the other latents and 1 in the worst one, from the rows in which these explain it."""
    n = t.shape[1]
    others = np.delete(np.arange(n), worst)
    patterns, group, counts = np.unique(active[:, others], axis=0, return_inverse=True, return_counts=True)
    explained = np.zeros(len(t), dtype=bool)
    for g in np.flatnonzero(counts >= 3 * n):
        own = np.flatnonzero(group.ravel() == g)
        remainder = _fit(t[own][:, others[patterns[g]]], t[own, worst])[1]
        explained[own] = 1.4826 * np.median(np.abs(remainder)) < close
    if explained.sum() < 10 * n:
        return None
    trusted = explained
    weights: Array = np.zeros(n)
    for _ in range(10):  # least squares, without the rows that are far off
        weights = _fit(t[trusted][:, others], t[trusted, worst])[0]
        left = np.abs(t[:, worst] - np.c_[t[:, others], np.ones(len(t))] @ weights)
        trusted = explained & (left < 2.5 * 1.4826 * np.median(left[explained]))
    placed = np.zeros(n + 1)
    placed[others], placed[n] = weights[:-1], weights[-1]
    return placed


def _fit(columns: Array, y: Array) -> tuple[Array, Array]:
    """Return the least-squares weights of columns and 1 in y, and the remainder."""
    design = np.c_[columns, np.ones(len(columns))]
    weights = np.asarray(np.linalg.lstsq(design, y, rcond=None)[0], dtype=np.float64)
    return weights, y - design @ weights


def spike_width(z: FloatArray) -> float:
    """Return the standard deviation of the spike at zero: of the band whose density stands out most from its sides."""
    size = float(z.std()) or 1.0
    ordered = np.sort(np.abs(z))
    widths = size * np.geomspace(1e-9, 0.3, 60)
    inner, outer = np.searchsorted(ordered, widths), np.searchsorted(ordered, 3 * widths)
    enough = inner >= max(5, 0.02 * len(z))
    sharpness = np.where(enough, inner / ((outer - inner) / 2 + 1), 0)
    band = widths[sharpness >= 0.9 * sharpness.max()][0] if enough.any() else widths[-1]
    inside = ordered[ordered < band]
    return float(max(np.sqrt(np.mean(inside**2)), 1e-9 * size)) if len(inside) else float(band)


def patterns_of(active: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], list[NDArray[np.intp]]]:
    """Return the distinct rows (J, n) of active (N, n), most frequent first, and the row numbers of each.

    >>> patterns, members = patterns_of(np.array([[True, False], [False, True], [True, False]]))
    >>> patterns.tolist(), [rows.tolist() for rows in members]
    ([[True, False], [False, True]], [[0, 2], [1]])
    """
    codes = np.packbits(active, axis=1)  # unique() of one void per row is far faster than of rows
    _, first, group, counts = np.unique(
        codes.view(f"V{codes.shape[1]}").ravel(), return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(-counts, kind="stable")
    members = np.split(np.argsort(group, kind="stable"), np.cumsum(counts)[:-1])
    return active[first[order]], [members[j] for j in order]


def pattern_mixture(
    z: FloatArray, patterns: NDArray[np.bool_], members: list[NDArray[np.intp]]
) -> tuple[Mixture, NDArray[np.bool_]]:
    """Return the mixture of the patterns that have enough rows, and which (J,) these are.

    Means and covariances are those of the rows of each pattern; inactive latents are exactly zero.
    """
    counts = np.array([len(rows) for rows in members])
    frequent = counts >= np.maximum(2 * patterns.sum(1), 2)
    if not frequent.any():
        frequent[:1] = True
    own = [np.where(patterns[j], z[members[j]], 0.0) for j in np.flatnonzero(frequent)]
    covariances = [np.cov(rows.T, ddof=0).reshape(z.shape[1], -1) for rows in own]
    return Mixture(counts[frequent] / counts[frequent].sum(), [rows.mean(0) for rows in own], covariances), frequent
