"""Unmix rows of any scale: search the hyperplanes on whitened rows, then fit noise where none holds rows exactly."""

from dataclasses import replace

import numpy as np
import torch

from identifiable.algorithms.hyperplanes.planes import Unmixing
from identifiable.algorithms.hyperplanes.search import find_hyperplanes
from identifiable.algorithms.noisy import MOST_LATENTS, refine_under_noise
from identifiable.algorithms.noisy_many import refine_many
from identifiable.arrays import Array

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
def refine(found: Unmixing, y: Array, seed: int) -> Unmixing:
    """Return the unmixing of noisy rows y (N, n), started at `found`; unchanged if a coordinate of it is verified."""
    if found.verified:
        return found
    some = sample_rows(y, seed)
    fitted = (refine_under_noise if y.shape[1] <= MOST_LATENTS else refine_many)(some, found.rows, seed=seed)
    found = replace(found, W=fitted.rows[:, :-1], b=fitted.rows[:, -1], noise=fitted.noise, blocks=fitted.blocks)
    return replace(found, inactive=fitted.inactive).normalised(some)


def sample_rows(y: Array, seed: int) -> Array:
    """Return the rows of y (N, n) that a search uses: all, or a random part of many."""
    most = max(MOST_ROWS, 100 * y.shape[1])
    return y if len(y) <= most else y[np.sort(np.random.default_rng(seed).choice(len(y), most, replace=False))]
