r"""Sparse unmixing of many latents under noise: from rows that are nearly right to the best affine map of noisy data.

What `noisy.py` does for patterns of activity that can be listed, for any number of latents: the model is that of
`mean_field.py`, with independent latents. The read-out is the best linear predictor of z, found as the regression of
the posterior mean E[z | y] on y: by the tower property, both have the same covariance with y.
"""

from dataclasses import dataclass, replace

import numpy as np

from identifiable.algorithms.inactivity import blocks_of_posteriors, inactive_by_posteriors
from identifiable.algorithms.mean_field import MeanField, Posterior, bound, fit, posterior
from identifiable.algorithms.noisy import LEAST_NOISE, LEAST_ROWS, MOST_NOISE, Refined, spikes, unchanged
from identifiable.arrays import Array, IntArray

SEARCH_ROWS = 8000  # rows that fit the parameters (60 per latent where that is more)
HELD_ROWS, SWEEPS = 1000, 40  # of the posterior of rows that did not fit the parameters


def refine_many(y: Array, rows: Array, *, seed: int = 0) -> Refined:
    """Refine the start `rows` (n, n + 1) on the data y (N, n), which are noisy. `Refined` has no patterns here.

    The start is returned unchanged, with gain 0, if a lower bound of the held-out likelihood does not rise, if most of
    y would be noise, or if there is nothing to fit to: fewer than 20 rows per latent, a singular start.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.exponential(size=(4000, 40)) * (rng.random((4000, 40)) < 0.1)
    >>> mixing = rng.normal(size=(40, 100))
    >>> mixing = np.linalg.qr(mixing.T)[1].T  # the columns of a table of 100, in 40 coordinates
    >>> y = z @ mixing + 0.5 * rng.normal(size=(4000, 40))
    >>> W = np.linalg.inv(mixing).T + 0.01 * rng.normal(size=(40, 40))
    >>> found = refine_many(y, np.c_[W, np.zeros(40)])
    >>> round(found.noise, 1), found.gain > 0, bool(found.inactive.mean() > 0.9)
    (0.5, True, True)
    """
    n = y.shape[1]
    t = y @ rows[:, :n].T + rows[:, n]
    size = t.std(0)
    sane = LEAST_ROWS * n <= len(y) and bool(np.isfinite(t).all()) and bool((size > 0).all())
    if not sane or np.linalg.cond(rows[:, :n] / size[:, None]) > 1e6:
        return unchanged(rows)
    t, W = t / size, rows[:, :n] / size[:, None]
    mixed = np.random.default_rng(seed).permutation(len(y))
    cut = min(len(y) // 10, HELD_ROWS)
    held, some = mixed[:cut], mixed[cut : cut + max(SEARCH_ROWS, 60 * n)]
    isotropic, even = np.ones(n), y.std(0)  # shapes of the noise in the columns of y
    found = [_fit(y, t, W, shape, held, some) for shape in (isotropic, even)]
    best = max(found, key=lambda one: one.value)
    if best.gain <= 0 or best.model.noise > MOST_NOISE * np.sqrt(((y.std(0) / best.shape) ** 2).mean()):
        return unchanged(rows)
    read = _readout(y[some], best.posterior)
    z = y @ read[:, :n].T + read[:, n]
    inactive = 1 - spikes(z)[3]
    blocks = blocks_of_posteriors(inactive, z)
    refined = unchanged(read, best.model.noise * float(np.sqrt((best.shape**2).mean())))
    return replace(refined, gain=best.gain, blocks=blocks, inactive=inactive_by_posteriors(inactive, z, blocks))


@dataclass(frozen=True)
class _Fit:
    """A model of y / shape, its posterior on the rows it was fitted to, the bound there, and its gain elsewhere."""

    shape: Array
    model: MeanField
    posterior: Posterior
    value: float
    gain: float


def _fit(y: Array, t: Array, W: Array, shape: Array, held: IntArray, some: IntArray) -> _Fit:
    """Fit the model to some rows of y, with noise of this shape (n,), from latents t = y Wᵀ + const."""
    width, _, _, active = spikes(t)
    scaled, start = y / shape, (active * t).T
    noise = float(np.median(width / np.linalg.norm(W * shape, axis=1)))
    noise = min(noise, MOST_NOISE * float(np.sqrt(scaled.var(0).mean())))
    # t is likely shrunk already: B is the regression of y on t, not the inverse of W.
    B = np.linalg.lstsq(np.c_[t, np.ones(len(t))], scaled, rcond=None)[0].astype(np.float64)
    first = MeanField.of_latents(t[some], active[some], B[:-1], B[-1], noise)
    model, q = fit(scaled[some], first, start[:, some], least_noise=LEAST_NOISE * float(np.sqrt(scaled.var(0).mean())))
    linear = np.linalg.lstsq(np.c_[scaled[some], np.ones(len(some))], q.mean.T, rcond=None)[0]
    rows, ends = scaled[held], (np.c_[scaled[held], np.ones(len(held))] @ linear).T
    gain = bound(rows, model, posterior(rows, model, ends, SWEEPS))
    gain -= bound(rows, first, posterior(rows, first, start[:, held], SWEEPS))
    return _Fit(shape, model, q, bound(scaled[some], model, q) - float(np.log(shape).sum()), gain)


def _readout(y: Array, q: Posterior) -> Array:
    """Return the best linear predictor (n, n + 1) of latents of unit variance, with mean zero while inactive."""
    mean, inactive = q.mean.T, 1 - q.active.T + 1e-12
    size = np.sqrt(mean.var(0) + q.variance.mean(1))
    centred = y - y.mean(0)
    W = np.linalg.solve(centred.T @ centred, centred.T @ (mean / size)).T
    return np.c_[W, -(inactive * (y @ W.T)).sum(0) / inactive.sum(0)]
