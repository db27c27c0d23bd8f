"""Principal coordinates: inverse maps, volumes and noise."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from identifiable.algorithms.coordinates import Coordinates, one_thread


@pytest.fixture
def x():
    """Rows of rank three in five columns of different scales."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(500, 3)) @ rng.normal(size=(3, 5)) * 10.0 ** np.arange(-2, 3) + 7


@pytest.mark.parametrize("n", [None, 2, 3, 9])
@pytest.mark.parametrize("standardise", [True, False])
def test_lift_inverts_project(x, n, standardise):
    c = Coordinates.fit(x, n, standardise=standardise)
    y, residual = c.project(x)
    assert (y.shape[1], residual.shape[1], c.rank) == (min(n or 3, 3), 3 - min(n or 3, 3), 3)
    np.testing.assert_allclose(c.lift(y, residual), x, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(np.cov(np.c_[y, residual].T, ddof=0), np.diag(c.variances), atol=1e-9)
    np.testing.assert_allclose(c.sd, y.std(0))
    np.testing.assert_allclose(c.scale, x.std(0) if standardise else np.sqrt(x.var(0).mean()))


def test_unfolded_coordinates_are_a_rotation(x):
    principal = Coordinates.fit(x, standardise=False)
    c = principal.unfolded(x, 2)
    y, residual = c.project(x)
    assert (c.n, c.rank, residual.shape[1]) == (2, 3, 1)
    np.testing.assert_allclose(c.lift(y, residual), x, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(np.cov(y.T, ddof=0), np.diag(c.variances[:2]), atol=1e-9)
    assert c.log_volume == pytest.approx(principal.log_volume)


def test_noise_is_that_of_the_residual(x):
    c = Coordinates.fit(x, 1)
    assert c.noise == pytest.approx(np.sqrt((c.project(x)[1] ** 2).mean()))
    assert Coordinates.fit(x, 3).noise == 1.0


def test_log_volume_is_that_of_the_linear_map(x):
    c = Coordinates.fit(x)
    jacobian = np.stack([c.lift(e[None])[0] - c.mean for e in np.eye(3)])
    assert c.log_volume == pytest.approx(0.5 * np.linalg.slogdet(jacobian @ jacobian.T)[1])


def test_coordinates_of_a_covariance_are_those_of_its_rows(x):
    a, b = Coordinates.fit(x), Coordinates.of_covariance(x.mean(0), np.cov(x.T, ddof=0))
    np.testing.assert_allclose(b.variances, a.variances)
    np.testing.assert_allclose(np.abs(a.basis.T @ b.basis), np.eye(3), atol=1e-7)


def test_one_thread_limits_torch_and_blas_and_restores_both():
    def threads():
        return torch.get_num_threads(), [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]

    torch.set_num_threads(2)
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_thread():
            assert threads() == (1, [1] * len(before[1]))
        assert threads() == before
    torch.set_num_threads(1)
