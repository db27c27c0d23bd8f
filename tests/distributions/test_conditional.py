"""`ConditionalPrior` against densities of scipy, finite differences and its own bootstrap."""

import numpy as np
import pytest
from scipy import stats

from identifiable import ConditionalPrior, DataError

FAMILIES = ["variance", "gaussian", "laplace", "mean"]


def parameters(family, G=4, n=2):
    """Random means and scales; what the family holds constant is the same for all u."""
    rng = np.random.default_rng(0)
    means, scales = rng.uniform(-3, 3, size=(G, n)), rng.uniform(0.5, 3, size=(G, n))
    if family in ("variance", "laplace"):
        means = np.tile(means[0], (G, 1))
    return means, np.tile(scales[0], (G, 1)) if family == "mean" else scales


def rows(means, scales, count, family="gaussian"):
    """Rows of latents and their u, `count` for each u."""
    rng, u = np.random.default_rng(0), np.repeat(np.arange(len(means)), count)
    noise = rng.laplace if family == "laplace" else rng.normal
    return means[u] + scales[u] * noise(size=(len(u), means.shape[1])), u


@pytest.mark.parametrize("family", FAMILIES)
def test_natural_parameters_are_those_of_the_density(family):
    """log p(z | u) - log p(z | u_0) is T(z) (λ(u) - λ(u_0)) and a constant, for every z."""
    means, scales = parameters(family)
    prior = ConditionalPrior(family, means, scales)
    z, m = np.linspace(-4, 5, 50), means[0, 1]
    T = {"variance": [(z - m) ** 2], "laplace": [np.abs(z - m)], "mean": [z], "gaussian": [z, z**2]}[family]
    density = stats.laplace if family == "laplace" else stats.norm
    logs = np.array([density.logpdf(z, means[u, 1], scales[u, 1]) for u in range(4)])
    natural = prior.natural[:, 1]
    assert prior.n == 2
    assert natural.shape == (4, prior.k)
    difference = (logs - logs[0]) - (natural - natural[0]) @ np.array(T)
    np.testing.assert_allclose(difference, np.tile(difference[:, :1], 50), atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_jacobian_equals_finite_differences(family):
    means, scales = parameters("gaussian")
    jacobian, h = ConditionalPrior(family, means, scales).jacobian, 1e-5
    changes = [((means + h, scales), (means - h, scales)), ((means, scales * np.exp(h)), (means, scales / np.exp(h)))]
    for part, (up, down) in enumerate(changes):
        slope = (ConditionalPrior(family, *up).natural - ConditionalPrior(family, *down).natural) / (2 * h)
        if family == "mean" and part == 1:
            slope = np.zeros_like(slope)  # the scale is the same for all u, and known
        np.testing.assert_allclose(jacobian[..., part], slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_bootstrap_and_counts_give_the_same_standard_errors(family):
    means, scales = parameters(family, G=3, n=4)
    z, u = rows(means, scales, 4000, family)
    prior, plain = (ConditionalPrior.resampled(z, u, family, draws=draws) for draws in (200, 0))
    assert plain.bootstrap is None
    for part in (0, 1):
        by_bootstrap, by_counts = (p.uncertainty[..., part, part] for p in (prior, plain))
        np.testing.assert_allclose((by_bootstrap / by_counts).mean(), 1, atol=0.12)
        np.testing.assert_allclose(by_bootstrap / by_counts, 1, atol=0.5)
    np.testing.assert_allclose(prior.scales, scales, rtol=0.08)
    np.testing.assert_allclose(prior.means, means, atol=0.3)
    assert ConditionalPrior(family, means, scales).uncertainty is None


def test_resampling_repeats_with_its_seed_and_accepts_any_labels():
    rng = np.random.default_rng(0)
    z, u = rng.normal(size=(4000, 10)), rng.integers(40, size=4000)
    first = ConditionalPrior.resampled(z, u, "gaussian", seed=3)
    assert first.bootstrap.shape == (50, 40, 10, 2)
    np.testing.assert_allclose(first.weights, np.bincount(u) / 4000)
    np.testing.assert_allclose(first.scales[7], z[u == 7].std(0, ddof=1))
    labels = np.array([f"segment {i:02}" for i in range(40)])[u]
    np.testing.assert_array_equal(first.bootstrap, ConditionalPrior.resampled(z, labels, "gaussian", seed=3).bootstrap)
    assert (first.bootstrap != ConditionalPrior.resampled(z, u, "gaussian", seed=4).bootstrap).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("family", "gamma"),
        ("means", [0.0, 1.0]),
        ("means", [[0.0], [np.nan]]),
        ("scales", [[1.0], [0.0]]),
        ("scales", [[1.0]]),
        ("weights", [1.0, 1.0]),
        ("counts", [5.0]),
        ("counts", [5.0, 0.0]),
        ("bootstrap", np.ones((1, 2, 1, 2))),
        ("bootstrap", np.ones((3, 2, 1, 3))),
        ("bootstrap", np.zeros((3, 2, 1, 2))),
    ],
)
def test_invalid_priors_are_refused(name, value):
    valid = {"family": "mean", "means": [[0.0], [1.0]], "scales": [[1.0], [1.0]]}
    with pytest.raises(DataError, match=f"^{name}"):
        ConditionalPrior(**valid | {name: value})


def test_invalid_rows_are_refused():
    z, u = np.random.default_rng(0).normal(size=(40, 2)), np.repeat([0, 1], 20)
    with pytest.raises(DataError, match="one value of u per row"):
        ConditionalPrior.resampled(z, u[1:])
    with pytest.raises(DataError, match="10 rows, got 1 for u = 5"):
        ConditionalPrior.resampled(z, np.where(np.arange(40) == 3, 5, u))
    z[u == 1, 1] = 2
    with pytest.raises(DataError, match="Latent 1 is constant where u = 1"):
        ConditionalPrior.resampled(z, u)
