"""The search for hyperplanes: exact rows where there are some, and a good start elsewhere."""

import numpy as np
import pytest
import torch

from identifiable.algorithms.hyperplanes.search import (
    SCHEDULE,
    HyperplaneSearch,
    centred_rows,
    find_hyperplanes,
    fixed_schedule,
    pinball_starts,
)


def mixed(n=4, rows=3000, shift=0.0, seed=0, noise=0.0, share=0.5):
    """White rows of intermittently active latents, and the latents."""
    rng = np.random.default_rng(seed)
    z = rng.normal(shift, 1, size=(rows, n)) * (rng.random((rows, n)) < share)
    x = z @ rng.normal(size=(n, n)) + noise * rng.normal(size=(rows, n))
    values, vectors = np.linalg.eigh(np.cov(x.T))
    return (x - x.mean(0)) @ vectors / np.sqrt(values), z


def gain(found, x, z):
    """|correlations| of latents found and true ones."""
    return np.abs(np.corrcoef(found.latents(x).T, z.T)[: z.shape[1], z.shape[1] :])


@pytest.mark.parametrize(("shift", "share"), [(0.0, 0.5), (5.0, 0.5), (2.0, 0.8)])
def test_all_rows_are_found_exactly(shift, share):
    x, z = mixed(shift=shift, share=share)
    (found,) = find_hyperplanes([x], [0])
    assert found.verified == 4
    assert found.blocks == ()
    np.testing.assert_allclose(np.sort(gain(found, x, z).max(1)), 1, atol=1e-9)
    np.testing.assert_allclose(np.sort((np.abs(found.latents(x)) < 1e-6).mean(0)), np.sort((z == 0).mean(0)))


def test_descent_alone_finds_the_rows():
    """Without the subspaces of neighbours, and with the first rows known."""
    x, z = mixed()
    search = HyperplaneSearch(x, 0)
    search.start_round(0)
    assert len(search.kept) >= 2
    search.start_round(1)
    search.use_subspaces()
    assert search.solved
    assert len(search.verified_rows()) == 3
    found = search.complete()
    np.testing.assert_allclose(gain(found, x, z).max(1), 1, atol=1e-9)


def test_blocks_are_rows_of_their_span():
    x, z = mixed()
    rng = np.random.default_rng(1)
    z[:, 1] = rng.normal(size=len(z)) * (z[:, 0] != 0)  # active together with latent 0
    mixing = rng.normal(size=(4, 4))
    values, vectors = np.linalg.eigh(np.cov((z @ mixing).T))
    x = (z @ mixing - (z @ mixing).mean(0)) @ vectors / np.sqrt(values)
    (found,) = find_hyperplanes([x], [0])
    assert found.verified == 4
    ((a, b),) = found.blocks
    assert gain(found, x, z)[[a, b]][:, 2:].max() < 0.1


def test_a_smooth_start_is_returned_where_no_latent_is_exactly_inactive():
    x, z = mixed(noise=0.05, rows=5000)
    (found,) = find_hyperplanes([x], [0], max_rounds=2)
    assert found.verified == 0
    assert np.linalg.matrix_rank(found.W) == 4
    assert gain(found, x, z).max(1).min() > 0.95
    rows = centred_rows(x, 0)
    assert (rows[:, -1] == 0).all()
    assert np.abs(np.corrcoef((x @ rows[:, :-1].T).T, z.T)[:4, 4:]).max(1).min() > 0.95


def test_several_sets_and_seeds_are_independent():
    sets = [mixed(n=n, rows=1000, seed=n)[0] for n in (2, 3)]
    together = find_hyperplanes(sets, [1, 2])
    for x, seed, found in zip(sets, [1, 2], together, strict=True):
        np.testing.assert_array_equal(find_hyperplanes([x], [seed])[0].rows, found.rows)


def test_the_schedule_repeats():
    kinds, tau = fixed_schedule(1, 10)
    assert list(zip(kinds, tau.tolist(), strict=True)) == [(k, pytest.approx(t)) for k, t in (SCHEDULE * 2)[10:20]]
    x, _ = mixed()
    search = HyperplaneSearch(x, 0)
    assert search.schedule(0)[0] == fixed_schedule(0, 8)[0]
    search.start_round(0)
    assert (search.schedule(1)[1] <= 0.5).all()


def test_half_of_the_starts_are_refined():
    x, _ = mixed()
    rows = torch.as_tensor(np.c_[x, np.ones(len(x))]).float()[None]
    W = torch.eye(4, 5).repeat(1, 4, 1, 1)
    found = pinball_starts(rows, W, torch.tensor([0.5, 0.2, 0.1, 0.05]), fixed=1)
    assert found.shape == (1, 2, 4, 5)
    assert torch.equal(found[:, :, :1], W[:, :2, :1])
