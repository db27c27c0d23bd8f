"""Unmix rows of any scale: search the hyperplanes on whitened rows, then fit noise where none holds rows exactly."""

from dataclasses import replace

import numpy as np
import torch

from identifiable.algorithms.hyperplanes.descent import ica_start
from identifiable.algorithms.hyperplanes.planes import Unmixing
from identifiable.algorithms.hyperplanes.search import find_hyperplanes
from identifiable.algorithms.noisy import MOST_LATENTS, Refined, refine_under_noise
from identifiable.algorithms.noisy_many import refine_many
from identifiable.arrays import Array
from identifiable.errors import OutOfTimeError
from identifiable.training.clock import require_time, time_limit

BURIED = 0.5  # noise from which a direction counts as weak, in standard deviations of its rows
MOST_ROWS = 20_000  # rows the hyperplanes are searched on (100 per latent where that is more)


def unmix(y: Array, seed: int, *, noisy: bool = True, max_rounds: int = 8) -> Unmixing:
    """Find the affine map of rows y (N, n) whose coordinates, of unit variance, are zero in as many rows as possible.

    Parameters
    ----------
    y : (N, n) uncorrelated columns, principal components of the data. At most `MOST_ROWS` of the rows are used.
    seed : fixes the result.
    noisy : where no coordinate is exactly zero in a share of the rows, fit noise of y too (see `refine`).
        False returns the best smooth start there.
    max_rounds : rounds of starts before the search gives up.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2000, 3)) * (rng.random((2000, 3)) < 0.5)
    >>> y = (z - z.mean(0)) @ np.linalg.eigh(np.cov(z.T))[1]  # principal components of z
    >>> found = unmix(y, seed=0)
    >>> found.verified, float((np.abs(found.latents(y)) < 1e-6).mean().round(1))
    (3, 0.5)
    """
    sd, some = y.std(0), sample_rows(y, seed)
    found = find_hyperplanes([some / sd], [seed], max_rounds=max_rounds)[0].of_scaled(sd).normalised(some)
    return refine(found, some, seed) if noisy else found


@torch.inference_mode()
def refine(found: Unmixing, y: Array, seed: int, seconds: float | None = None) -> Unmixing:
    """Return the unmixing of noisy rows y (N, n), started at `found`.

    It is unchanged if a coordinate of it is verified, if there are more sparse directions than dimensions, or if the
    seconds are over before the fit is.
    """
    if found.verified or found.directions:
        return found
    some = sample_rows(y, seed)
    try:
        with time_limit(np.inf if seconds is None else seconds):
            fitted = _refine(some, found.rows, seed)
    except OutOfTimeError:
        require_time()  # a limit of the caller stops everything
        return replace(found, in_time=False)
    found = replace(found, W=fitted.rows[:, :-1], b=fitted.rows[:, -1], noise=fitted.noise, blocks=fitted.blocks)
    return replace(found, inactive=fitted.inactive).normalised(some)


def _refine(y: Array, rows: Array, seed: int) -> Refined:
    """Fit noise; from a second start too if a direction of y is as weak as the noise. Then EM is easily stuck."""
    if y.shape[1] > MOST_LATENTS:
        return refine_many(y, rows, seed=seed)
    fitted = refine_under_noise(y, rows, seed=seed)
    if fitted.gain and fitted.noise > BURIED * y.std(0).min():
        other = refine_under_noise(y, _rotation(y, seed), seed=seed)
        if other.gain and other.value > fitted.value:
            return other
    return fitted


def _rotation(y: Array, seed: int) -> Array:
    """Return the rows (n, n + 1) that whiten y (N, n) and maximise the kurtosis."""
    mean, sd = y.mean(0), y.std(0)
    white = torch.as_tensor((y - mean) / sd)[None]
    W = ica_start(white, "cube", torch.Generator().manual_seed(seed))[0].numpy() / sd
    return np.c_[W, -W @ mean]


def sample_rows(y: Array, seed: int) -> Array:
    """Return the rows of y (N, n) that a search uses: all, or a random part of many."""
    most = max(MOST_ROWS, 100 * y.shape[1])
    return y if len(y) <= most else y[np.sort(np.random.default_rng(seed).choice(len(y), most, replace=False))]
