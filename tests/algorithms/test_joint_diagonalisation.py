"""Joint diagonalisation of covariances that share a basis, and the test that separates latents."""

import numpy as np
import pytest

from identifiable.algorithms.joint_diagonalisation import blocks_of, diagonalise, separation
from unmixing_problems import purity


def relative_gradient(W, C, w):
    M = W @ C @ W.T
    return sum(share * m / np.diag(m)[:, None] for share, m in zip(w, M, strict=True)) - np.eye(len(W))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("n", "groups"), [(2, 2), (2, 5), (5, 3), (20, 40)])
def test_exact_covariances_are_diagonalised_exactly(n, groups, seed):
    rng = np.random.default_rng(seed)
    A, s = rng.normal(size=(n, n)), rng.uniform(0.5, 3, size=(groups, n))
    C, w = A @ (s[:, :, None] ** 2 * A.T), rng.dirichlet(np.full(groups, 5.0))
    white = np.linalg.inv(np.linalg.cholesky(np.einsum("g,gij->ij", w, C)))
    found = diagonalise(C, w, np.linalg.qr(rng.normal(size=(n, n)))[0] @ white)
    assert found.gradient < 1e-8
    assert purity(found.W @ A) > 0.9999
    M = found.W @ C @ found.W.T
    by_hand = 0.5 * w @ np.log(np.diagonal(M, axis1=1, axis2=2)).sum(1) - np.linalg.slogdet(found.W)[1]
    assert found.loss == pytest.approx(by_hand)
    assert found.loss == pytest.approx(w @ np.log(s).sum(1) + np.linalg.slogdet(A)[1])


@pytest.mark.parametrize("seed", range(2))
def test_the_gradient_vanishes_where_no_map_is_exact(seed):
    """Covariances that share no diagonalising map: from every start the descent ends where the gradient is zero."""
    rng = np.random.default_rng(seed)
    C = np.stack([np.cov(rng.normal(size=(8, 30))) for _ in range(6)])
    w = rng.dirichlet(np.full(6, 5.0))
    found = diagonalise(C, w, np.eye(8))
    assert np.abs(relative_gradient(found.W, C, w)).max() < 1e-8
    nearby = [found.W + 1e-3 * rng.normal(size=(8, 8)) for _ in range(20)]
    losses = [diagonalise(C, w, W, max_steps=0).loss for W in nearby]
    assert min(losses) > found.loss


def test_separation_is_calibrated_for_proportional_variances():
    """About standard normal between two latents with proportional variances, large between others."""
    rng = np.random.default_rng(0)
    freedom = rng.integers(5, 50, size=30).astype(float)
    found = []
    for _ in range(300):
        scales = rng.uniform(0.5, 2, size=(30, 1)) * [1.0, 3.0, 1.0]
        scales[:, 2] = rng.uniform(0.5, 2, size=30)
        variances = scales**2 * rng.chisquare(freedom[:, None], size=(30, 3)) / freedom[:, None]
        found.append(separation(variances / (freedom @ variances / freedom.sum()), freedom, np.full(3, 3.0)))
    found = np.array(found)
    np.testing.assert_allclose(found, found.swapaxes(1, 2), atol=1e-9)
    assert (found[:, [0, 1, 2], [0, 1, 2]] == 0).all()
    assert abs(found[:, 0, 1].mean()) < 0.2
    assert found[:, 0, 1].std() == pytest.approx(1, abs=0.15)
    assert found[:, 0, 2].min() > 4
    ratios, heavy = np.exp(rng.normal(size=(30, 2))), np.full(2, 9.0)
    assert separation(ratios, freedom, heavy)[0, 1] < separation(ratios, freedom, np.full(2, 3.0))[0, 1]


def test_blocks_are_connected_pairs():
    unresolved = np.eye(5, dtype=bool)
    unresolved[[0, 3, 3, 4], [3, 0, 4, 3]] = True
    assert blocks_of(unresolved) == ((0, 3, 4),)
