"""The basis in which the components of a mixture are diagonal: exact from exact moments."""

import numpy as np
import pytest

from identifiable import DataError, Mixture, diagonal_basis
from unmixing_problems import factorial_mixture, purity


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("n", "components"), [(2, 2), (5, 2), (5, 10), (20, 3)])
def test_a_mixture_is_unmixed_exactly(n, components, seed):
    rng = np.random.default_rng(seed)
    z, A = factorial_mixture(n, components, rng), rng.normal(size=(n, n))
    found = diagonal_basis(z.pushforward(A, rng.normal(size=n)))
    assert purity(found.W @ A) > 1 - 1e-6
    assert found.blocks == ()
    assert found.correlation < 1e-4
    moved = z.pushforward(found.W @ A, np.zeros(n))
    spread = moved.means - moved.weights @ moved.means
    total = np.einsum("j,jab->ab", moved.weights, moved.covariances) + (moved.weights * spread.T) @ spread
    np.testing.assert_allclose(np.diag(total), 1)


def test_two_components_are_the_closed_form_of_the_paper():
    """Theorem E.1: the singular vectors of V_1^-1 V_2."""
    rng = np.random.default_rng(0)
    z, A = factorial_mixture(4, 2, rng), rng.normal(size=(4, 4))
    y = z.pushforward(A, np.zeros(4))
    V = np.linalg.cholesky(y.covariances)
    R = np.linalg.svd(np.linalg.solve(V[0], V[1]))[0]
    by_hand = np.linalg.inv(V[0] @ R)
    assert purity(by_hand @ A) > 1 - 1e-8
    assert purity(diagonal_basis(y).W @ np.linalg.inv(by_hand)) > 1 - 1e-6


def test_every_component_counts():
    """No pair tells all latents apart, all together do: the sharper condition."""
    scales = np.array([[1, 1, 1], [2, 1, 1], [1, 3, 1], [1, 1, 1.5]])
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 3))
    z = Mixture(np.full(4, 0.25), rng.normal(size=(4, 3)), scales**2)
    found = diagonal_basis(z.pushforward(A, np.zeros(3)))
    assert purity(found.W @ A) > 1 - 1e-6
    assert found.blocks == ()


@pytest.mark.parametrize("rows", [None, 20_000])
def test_ties_between_ratios_are_blocks(rows):
    """Latents 1 and 3 have proportional variances: only their span is found, the others free of it."""
    rng = np.random.default_rng(1)
    scales = rng.uniform(0.3, 1.5, size=(5, 4))
    scales[:, 3] = 2 * scales[:, 1]
    A = rng.normal(size=(4, 4))
    z = Mixture(np.full(5, 0.2), rng.normal(size=(5, 4)), scales**2)
    found = diagonal_basis(z.pushforward(A, np.zeros(4)), rows=rows)
    (block,) = found.blocks
    gain = found.W @ A
    assert len(block) == 2
    np.testing.assert_allclose(gain[list(block)][:, [0, 2]], 0, atol=1e-5)
    alone = [i for i in range(4) if i not in block]
    np.testing.assert_allclose(gain[alone][:, [1, 3]], 0, atol=1e-5)
    assert purity(gain[alone]) > 1 - 1e-6


def test_noise_is_taken_off():
    rng = np.random.default_rng(2)
    z, A = factorial_mixture(4, 6, rng), rng.normal(size=(4, 4))
    noise = np.cov(rng.normal(size=(4, 20)))
    y = z.pushforward(A, np.zeros(4))
    noisy = Mixture(y.weights, y.means, y.covariances + noise)
    assert purity(diagonal_basis(noisy, noise=noise).W @ A) > 1 - 1e-6
    assert purity(diagonal_basis(noisy).W @ A) < 0.99


def test_singular_components_are_allowed():
    scales = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0], [1.0, 2.0, 0.0]])
    rng = np.random.default_rng(4)
    A = rng.normal(size=(3, 3))
    z = Mixture(np.full(3, 1 / 3), rng.normal(size=(3, 3)), scales**2)
    assert purity(diagonal_basis(z.pushforward(A, np.zeros(3))).W @ A) > 1 - 1e-4


@pytest.mark.parametrize(
    ("mixture", "options", "words"),
    [
        (Mixture([1.0], [[0, 0]], [[1, 0]]), {}, "all 2 directions"),
        (Mixture([1.0], [[0, 0]], [[1, 1]]), {"noise": np.eye(3)}, "noise"),
        (Mixture([1.0], [[0, 0]], [[1, 1]]), {"rows": 0}, "rows"),
    ],
)
def test_invalid_input_is_refused(mixture, options, words):
    with pytest.raises(DataError, match=words):
        diagonal_basis(mixture, **options)
