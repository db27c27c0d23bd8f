"""Ties between distributions: the loss falls, true ties give the exact map, rows give ties and hidden variables."""

import numpy as np
import pytest

from identifiable import FactorialUnmixing, Mixture
from identifiable.algorithms.factorial import FactorialMixture
from identifiable.algorithms.ties import Tied, exchanged, groups_of, loss, pooled, projected, tied
from identifiable.data import make_gmm
from identifiable.metrics import mcc
from unmixing_problems import purity

GRAPHS = {  # sizes of the hidden variables, and the latents that each moves
    "two": ((2, 3), [[0, 1, 2], [2, 3, 4]]),
    "ring": ((2, 2, 2), [[0, 1, 2], [2, 3, 4], [4, 5, 0]]),
    "pair and two": ((2, 2, 3), [[0, 1], [2, 3], [3, 4, 5]]),
}


def numbered(labels):
    return np.unique(labels, axis=0, return_inverse=True)[1].ravel()


def truth(graph, rng):
    """Return a mixture of latents with the hidden variables of a graph, and the true groups (n, J).

    No two distributions are near, and no two latents with the same groups have nearly proportional variances: these
    could be rotated until one of them has a single distribution.
    """
    sizes, moved = GRAPHS[graph]
    states = np.stack(np.unravel_index(np.arange(np.prod(sizes)), sizes), 1)
    n = 1 + max(map(max, moved))
    groups = np.stack([numbered(states[:, [t in latents for latents in moved]]) for t in range(n)])
    levels = [np.linspace(-3, 3, group.max() + 1) + rng.uniform(-0.3, 0.3, size=group.max() + 1) for group in groups]
    means = np.stack([rng.permutation(level)[group] for level, group in zip(levels, groups, strict=True)], 1)
    rising = [np.linspace(0.4, 1.4, group.max() + 1)[group] for group in groups]
    scales = np.stack([r if t % 2 else 1.8 - r for t, r in enumerate(rising)], 1)
    return Mixture(rng.dirichlet(np.full(len(states), 5.0)), means, scales**2), groups


def as_sets(groups):
    return [{frozenset(np.flatnonzero(group == g).tolist()) for g in group} for group in groups]


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("seed", range(3))
def test_iterative_projection_never_raises_the_loss(graph, seed):
    rng = np.random.default_rng(seed)
    z, groups = truth(graph, rng)
    n = len(groups)
    y = z.pushforward(rng.normal(size=(n, n)), rng.normal(size=n))
    W = np.linalg.inv(np.linalg.cholesky(np.einsum("j,jab->ab", y.weights, y.covariances)))
    losses = [loss(y, groups, W)]
    for _ in range(30):
        W = projected(y, groups, W, 1)
        losses.append(loss(y, groups, W))
    assert np.diff(losses).max() < 1e-10
    assert losses[-1] < losses[0] - 0.01


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("seed", range(3))
def test_true_ties_give_the_map_exactly(graph, seed):
    rng = np.random.default_rng(seed)
    z, groups = truth(graph, rng)
    n = len(groups)
    A = np.linalg.qr(rng.normal(size=(n, n)))[0]
    W = projected(z.pushforward(A, np.zeros(n)), groups, (np.eye(n) + 0.1 * rng.normal(size=(n, n))) @ A.T, 1000)
    assert purity(W @ A) > 1 - 1e-8


def test_equal_means_find_a_map_that_variances_cannot():
    z = Mixture(np.full(4, 0.25), [[0, 0], [0, 3], [2, 0], [2, 3]], np.ones((4, 2)))
    ties = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
    turn = np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    none = np.tile(np.arange(4), (2, 1))
    assert loss(z, none, turn) == pytest.approx(loss(z, none, np.eye(2)))  # all variances are 1 in every basis
    assert purity(projected(z, none, turn, 1000)) < 0.99
    assert purity(projected(z, ties, turn, 1000)) > 1 - 1e-8


def test_a_group_has_the_moments_of_its_rows():
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(k, 3)) + shift for k, shift in ((50, 0), (150, 1), (100, 5))]
    mixture = Mixture([50 / 300, 0.5, 1 / 3], [r.mean(0) for r in rows], [np.cov(r.T, bias=True) for r in rows])
    both = pooled(mixture, np.array([0, 0, 1]))
    together = np.concatenate(rows[:2])
    np.testing.assert_allclose(both.weights, [2 / 3, 1 / 3])
    np.testing.assert_allclose(both.means[0], together.mean(0))
    np.testing.assert_allclose(both.covariances[0], np.cov(together.T, bias=True))


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("seed", range(3))
def test_ties_are_found_from_moments_of_rows_and_a_map_with_errors(graph, seed):
    rng = np.random.default_rng(seed)
    z, groups = truth(graph, rng)
    (n, J), counts = groups.shape, np.full(groups.shape[1], 5000)
    rows = [rng.multivariate_normal(m, C, size=k) for m, C, k in zip(z.means, z.covariances, counts, strict=True)]
    learnt = Mixture(counts / counts.sum(), [r.mean(0) for r in rows], [np.cov(r.T) for r in rows])
    free = projected(learnt, np.tile(np.arange(J), (n, 1)), np.eye(n), 200)
    found = groups_of(learnt, counts.astype(float), free)
    found = exchanged(learnt, found, counts.astype(float), projected(learnt, found, free, 100))
    assert as_sets(found) == as_sets(groups)


def test_a_mixture_without_equal_distributions_is_unchanged():
    s = make_gmm(5000, n=4, components=5, layers=1, random_state=0)
    start = Mixture(
        np.bincount(s.component) / 5000,
        [s.x[s.component == j].mean(0) for j in range(5)],
        [np.cov(s.x[s.component == j].T) for j in range(5)],
    )
    W = np.linalg.lstsq(s.x, s.z - s.z.mean(0), rcond=None)[0].T
    model = FactorialMixture.of(start, W).improved(s.x, max_iter=100, tol=1e-6).model
    found = tied(model, s.x, max_iter=100, tol=1e-6)
    assert found.model is model
    assert not found.any


def test_order_sign_and_scale_carry_the_ties_along():
    rng = np.random.default_rng(0)
    z, groups = truth("two", rng)
    variances = np.diagonal(z.covariances, axis1=1, axis2=2)
    model = Tied(FactorialMixture(np.eye(5), z.weights, z.means, variances), groups, 0.0)
    gain, order = np.diag([2.0, -1.0, 0.5, 3.0, -4.0])[[3, 1, 4, 0, 2]], np.array([5, 0, 3, 1, 2, 4])
    moved = model.moved(gain, order)
    np.testing.assert_allclose(moved.model.means, (z.means @ gain.T)[order])
    np.testing.assert_allclose(moved.model.variances, (variances @ gain.T**2)[order])
    assert as_sets(moved.groups) == as_sets(groups[[3, 1, 4, 0, 2]][:, order])


@pytest.mark.parametrize(("graph", "seed"), [("two", 1), ("ring", 0)])
def test_hidden_variables_are_recovered_from_rows(graph, seed):
    sizes, moved = GRAPHS[graph]
    s = make_gmm(20_000, n=1 + max(map(max, moved)), hidden=sizes, touches=moved, layers=1, random_state=seed)
    model = FactorialUnmixing(n_restarts=1, max_components=12, random_state=0).fit(s.x)
    z, found = model.transform(s.x), model.structure_
    name = np.abs(np.corrcoef(s.z.T, z.T)[: z.shape[1], z.shape[1] :]).argmax(0)
    seen = [sorted(name[list(latents)].tolist()) for latents in found.neighbours]
    assert found.verdict == "holds"
    assert sorted(zip(seen, found.sizes, strict=True)) == sorted(zip(map(sorted, moved), sizes, strict=True))
    assert mcc(s.z, z) > 0.999
    for t, group in enumerate(model.ties_):  # tied distributions are exactly equal
        for g in range(group.max() + 1):
            assert np.ptp(model.mixture_.means[group == g, t]) == 0
            assert np.ptp(model.mixture_.covariances[group == g, t, t]) == 0
