"""Splines for log-densities: near any true density on new rows, and never zero."""

import numpy as np
import pytest
from scipy import stats

from identifiable.distributions.log_spline import LogSplines

TRUE = {
    "normal": stats.norm(),
    "laplace": stats.laplace(2, 0.1),
    "uniform": stats.uniform(-1, 30),
    "exponential": stats.expon(),
    "student": stats.t(3),
    "gamma": stats.gamma(2),
}
every_kind = pytest.mark.parametrize("kind", TRUE)


def rows_of(p, size, seed=0):
    return p.rvs((size, 1), random_state=np.random.default_rng(seed))


@every_kind
@pytest.mark.parametrize(("rows", "most"), [(400, 0.04), (10_000, 0.005)])
def test_divergence_on_new_rows_is_small(kind, rows, most):
    p = TRUE[kind]
    new = rows_of(p, 20_000, 1)
    assert np.mean(p.logpdf(new) - LogSplines.fit(rows_of(p, rows)).log_density(new)) < most


@every_kind
def test_density_integrates_to_one_and_agrees_with_its_samples(kind):
    z = rows_of(TRUE[kind], 2000)
    density = LogSplines.fit(z)
    steps = np.sinh(np.linspace(-15, 15, 400_001)) * density.scale + density.centre
    mass = np.exp(density.log_density(steps[:, None])).ravel()
    total = np.cumsum((mass[1:] + mass[:-1]) / 2 * np.diff(steps))
    assert total[-1] == pytest.approx(1, abs=2e-3)
    drawn = density.sample(20_000, np.random.RandomState(0))[:, 0]
    shares = np.interp(drawn, steps[1:], total)
    assert stats.kstest(shares, "uniform").statistic < 0.02


@pytest.mark.parametrize(
    "z", [np.r_[np.zeros(60), np.arange(40.0)], np.arange(100.0) % 2, np.r_[np.arange(99.0), 1e30]]
)
def test_atoms_and_outliers_have_finite_densities(z):
    density = LogSplines.fit(z[:, None])
    assert np.isfinite(density.log_density(np.array([[-1e90], [0.0], [0.5], [1e90]]))).all()
    assert np.isfinite(density.blurred(0.1).evaluate(z[:, None])).all()


def test_scale_and_shift_change_the_density_by_the_scale():
    z = np.random.default_rng(0).laplace(size=(500, 2))
    moved = LogSplines.fit(10 * z - 3).log_density(10 * z - 3)
    np.testing.assert_allclose(moved, LogSplines.fit(z).log_density(z) - np.log(10), atol=1e-5)


def test_blurred_slopes_are_derivatives():
    z = np.random.default_rng(0).gumbel(size=(3000, 1))
    smooth = LogSplines.fit(z).blurred(0.1)
    at = np.linspace(-1, 4, 50)[:, None]
    difference = (smooth.evaluate(at + 1e-2)[0] - smooth.evaluate(at - 1e-2)[0]) / 2e-2
    np.testing.assert_allclose(smooth.evaluate(at)[1], difference, atol=0.03)
