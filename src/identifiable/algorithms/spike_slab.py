"""A latent that hardly ever rests, or much less than the others, is a row of an unmixing gone wrong.

Typically it is a sum of many latents: where as many are active in every row, their sum hardly varies.
"""

import numpy as np
from numpy.typing import NDArray

from identifiable.algorithms.noisy import spikes
from identifiable.arrays import Array

HARDLY_RESTS, RESTS_LESS = 0.75, 1.4  # share of rows in which a latent that went wrong is active; times the median
WIDE = 0.3  # width of a spike of a linear unmixing, in sd of an active latent
CLOSE = 3.0  # widths of a spike within which a group of rows is explained by the other latents
CLEARLY = 0.9  # share of its old activity below which a latent that is found anew is taken


def uneven(share: Array) -> bool:
    """Return whether a latent is active too often, given the shares (n,) of rows in which each is."""
    return bool(share.max() > min(HARDLY_RESTS, max(0.5, RESTS_LESS * float(np.median(share)))))


def needs_repair(y: Array, rows: Array, other: Array) -> bool:
    """Whether an unmixing (n, n + 1) of y (N, n) is worth another try: likelier than another, with a row gone wrong.

    The unmixing is the likelier one if its latents are so as independent spikes and slabs.
    """

    def density(W: Array) -> tuple[Array, float]:
        t = y @ W[:, :-1].T + W[:, -1]
        share, mean, size = slabs(t, WIDE)
        moving, resting = _moving_and_resting(t, share, mean, size, WIDE)
        return share, float(np.log((moving + resting) / size + 1e-300).sum(1).mean() + np.linalg.slogdet(W[:, :-1])[1])

    share, likelihood = density(rows)
    return uneven(share) and likelihood >= density(other)[1]


def slabs(t: Array, spike: float, steps: int = 50) -> tuple[Array, Array, Array]:
    """Fit p N(m, s²) + (1 - p) N(0, (spike s)²) to every column by EM; return p, m and s."""
    share, mean, size = np.full(t.shape[1], 0.5), t.mean(0), t.std(0)
    for _ in range(steps):
        moving, resting = _moving_and_resting(t, share, mean, size, spike)
        active = moving / (moving + resting + 1e-300)
        share = np.clip(active.mean(0), 0.05, 0.95)
        mean = (active * t).mean(0) / active.mean(0).clip(1e-6)
        size = np.sqrt((active * (t - mean) ** 2).mean(0) / active.mean(0).clip(1e-6)).clip(1e-3 * t.std(0))
    return share, mean, size


def _moving_and_resting(t: Array, share: Array, mean: Array, size: Array, spike: float) -> tuple[Array, Array]:
    """Return the two parts of the density of every column, times s √2π."""
    moving = share * np.exp(-0.5 * ((t - mean) / size) ** 2)
    return moving, (1 - share) * np.exp(-0.5 * (t / (spike * size)) ** 2) / spike


def repair(t: Array) -> Array:
    """Return rows (n, n + 1) of an affine map of latents t (N, n) after which none of them went wrong, where possible.

    In rows with one pattern of the other latents, the wrong one is an affine function of those that are active, if the
    right one rests there. The rows of all patterns for which it is give the right one: what is left of the wrong one.

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
    """Return weights (n + 1,) of the other latents and 1 in the worst one, on rows where these explain it."""
    n = t.shape[1]
    others = np.delete(np.arange(n), worst)
    patterns, group, counts = np.unique(active[:, others], axis=0, return_inverse=True, return_counts=True)
    explained = np.zeros(len(t), dtype=bool)
    for g in np.flatnonzero(counts >= 3 * n):
        own = np.flatnonzero(group.ravel() == g)
        rest = _fit(t[own][:, others[patterns[g]]], t[own, worst])[1]
        explained[own] = 1.4826 * np.median(np.abs(rest)) < close
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
    """Return the least-squares weights of columns and 1 in y, and what is left."""
    design = np.c_[columns, np.ones(len(columns))]
    weights = np.asarray(np.linalg.lstsq(design, y, rcond=None)[0], dtype=np.float64)
    return weights, y - design @ weights
