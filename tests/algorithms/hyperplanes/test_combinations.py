"""Rows that are combinations of latents are replaced by the latents; rows that are latents are kept."""

import numpy as np
import pytest
import torch

from identifiable.algorithms.hyperplanes.combinations import sparser_rows
from identifiable.algorithms.hyperplanes.planes import Hyperplane
from identifiable.algorithms.hyperplanes.search import HyperplaneSearch

N = 6000
SUMS = {
    "none": [],
    "a sum": [(0, 1, 1.0)],
    "two sums": [(0, 1, 1.0), (2, 3, -0.4)],
    "a chain": [(0, 1, 1.0), (1, 2, 0.5), (2, 3, -2.0)],
    "a cycle": [(0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0)],
    "a sum of three": [(0, 1, 1.0), (0, 2, 0.7)],
}


def white_data(n, shift, seed=0, active=None):
    """White rows, their latents, and the true functionals (n, n + 1)."""
    rng = np.random.default_rng(seed)
    active = rng.random((N, n)) < 0.5 if active is None else active(rng)
    z = rng.normal(shift, 1, size=(N, n)) * active
    mixed = z @ rng.normal(size=(n, n))
    mean = mixed.mean(0)
    values, vectors = np.linalg.eigh(np.cov(mixed.T, ddof=0))
    whiten = vectors / np.sqrt(values)
    x = (mixed - mean) @ whiten
    W = np.linalg.lstsq(np.c_[x, np.ones(N)], z, rcond=None)[0].T
    return x, z, W


def planted(x, rows):
    """A search that takes these rows for latents."""
    search = HyperplaneSearch(x, 0)
    for row in rows:
        plane = row / np.linalg.norm(row[:-1])
        on = np.abs(search.data.x @ plane[:-1] + plane[-1]) < 1e-6
        search.candidates.append(Hyperplane(plane[:-1], plane[-1], 1e-6, on.mean(), 1e4))
    search.directions = np.array([plane.normal for plane in search.candidates])
    search._keep_independent()
    return search


@pytest.mark.parametrize("shift", [0, 2])
@pytest.mark.parametrize("sums", SUMS.values(), ids=SUMS)
@torch.inference_mode()
def test_planted_sums_are_repaired(sums, shift):
    n = 6
    x, z, W = white_data(n, shift)
    mix = np.eye(n)
    for i, j, weight in sums:
        mix[i, j] = weight
    search = planted(x, mix @ W)
    assert len(search.kept) == n
    assert search.replace_combinations(search.torch_rng) == bool(sums)
    assert len(search.refused) == len({i for i, *_ in sums})
    found = search.finish(max_rounds=8)
    assert found.verified == n
    assert found.blocks == ()
    correlations = np.abs(np.corrcoef(z.T, found.latents(x).T)[:n, n:])
    np.testing.assert_allclose(np.sort(correlations.max(0)), 1, atol=1e-9)
    assert len(set(correlations.argmax(0))) == n


@torch.inference_mode()
def test_a_false_block_is_split():
    """A block of two latents that are inactive in different rows."""
    x, z, W = white_data(5, 2)
    search = planted(x, W[2:])
    search.blocks.append(np.linalg.qr(W[:2].T)[0])
    found = search.finish(max_rounds=8)
    assert (found.verified, found.blocks) == (5, ())
    zero = np.abs(found.latents(x)) < 1e-6
    np.testing.assert_allclose(np.sort(zero.mean(0)), np.sort((z == 0).mean(0)))


@pytest.mark.parametrize("shift", [0, 2])
@torch.inference_mode()
def test_a_true_block_is_no_combination(shift):
    def together(rng):
        active = rng.random((N, 4)) < 0.5
        active[:, 1] = active[:, 0]
        return active

    x, _, W = white_data(4, shift, active=together)
    search = planted(x, W[2:])
    rng = torch.Generator().manual_seed(0)
    for row in ([1, 0] @ W[:2], [1, 1] @ W[:2]):
        assert len(sparser_rows(search.data, row, rng)) == 0


@pytest.mark.parametrize("seed", range(5))
@torch.inference_mode()
def test_no_latent_is_taken_for_a_combination(seed):
    def dependent(rng):
        """Any pattern, at random shares: some latents are often active together."""
        patterns = rng.random((12, 8)) < rng.uniform(0.2, 0.8)
        return patterns[rng.integers(12, size=N)]

    x, z, W = white_data(8, 1, seed=seed, active=dependent)
    live = np.flatnonzero((z == 0).mean(0) > 0.05)
    search = planted(x, W[live])
    assert len(live) >= 6
    assert not search.replace_combinations(torch.Generator().manual_seed(0))
