"""Rows on affine subspaces that patterns of activity do not explain."""

import numpy as np
import pytest

from identifiable.algorithms.hyperplanes import excess_of
from identifiable.algorithms.hyperplanes.excess import proportional_pair, thin_pattern

EXACT = 1e-9


def latents(n=5, rows=5000, seed=0, correlated=0.0, decimals=None):
    rng = np.random.default_rng(seed)
    z = rng.normal(1, 1, size=(rows, n)) + correlated * rng.normal(size=(rows, 1))
    z = z if decimals is None else z.round(decimals)
    return z * (rng.random((rows, n)) < 0.5)


@pytest.mark.parametrize("correlated", [0, 1, 1000])
@pytest.mark.parametrize("n", [1, 2, 5, 20])
@pytest.mark.parametrize("seed", range(3))
def test_latents_with_a_density_have_no_excess(n, seed, correlated):
    assert excess_of(latents(n, seed=seed, correlated=correlated), EXACT) is None


def test_repeated_rows_are_no_excess():
    t = latents()
    assert excess_of(np.vstack([t, np.repeat(t[:3], 200, axis=0)]), EXACT) is None


def test_proportional_latents_are_found():
    t = latents()
    t[::20, 3] = -2 * t[::20, 1]
    found = proportional_pair(t, EXACT)
    both = ((t[::20, [1, 3]] != 0).all(1)).sum()
    assert (found.latents, found.rows, found.of) == ((1, 3), both, 5000)


def test_a_bent_map_leaves_rows_on_lines_apart():
    """Two latents, one active at a time, mapped by a piecewise affine function: its lines miss the origin."""
    z = latents(2, rows=8000)
    z = z[(z != 0).sum(1) == 1]
    bent = z @ [[1, 0.3], [-0.2, 1]] + np.maximum(z.sum(1) - 1, 0)[:, None] * [0.7, -0.4]
    assert thin_pattern(bent, EXACT).latents == (0, 1)
    assert thin_pattern(z, EXACT) is None
