"""Independence within groups and goodness of fit: error levels by simulation, and what remains hidden."""

import numpy as np
import pytest

from identifiable.theory.independence import Correlations, check_components, check_fit, check_independence
from identifiable.theory.thresholds import THRESHOLDS

GROUPS = 6


def correlated(rho, rows, rng, pairs=1):
    """Rows of two latents with this correlation in each of the groups; then other, independent latents."""
    z = rng.normal(size=(GROUPS, rows, 2 + pairs))
    z[..., 1] = rho * z[..., 0] + np.sqrt(1 - rho**2) * z[..., 1]
    return z


def found_in(z):
    return Correlations.of(np.stack([np.cov(one, rowvar=False) for one in z]), np.full(len(z), float(z.shape[1])))


def test_a_correlation_of_the_excluded_size_is_called_independent_in_few_samples():
    """At any number of rows: this is the error level."""
    rng, size = np.random.default_rng(0), THRESHOLDS.excluded_correlation
    for rows in (50, 300, 2000):
        verdicts = [check_independence(found_in(correlated(size, rows, rng))).verdict for _ in range(200)]
        assert verdicts.count("holds") <= 16  # 10 expected at most; 16 is exceeded with probability .03
        assert verdicts.count("fails") <= 16


def test_few_rows_are_inconclusive_and_their_remedy_is_enough():
    rng = np.random.default_rng(1)
    few = check_independence(found_in(correlated(0.0, 40, rng)))
    assert few.verdict == "inconclusive"
    assert "rows instead of 240" in few.remedy
    many = [check_independence(found_in(correlated(0.0, 1000, rng))).verdict for _ in range(20)]
    assert many.count("holds") == 20


def test_a_dependent_pair_is_named():
    check = check_independence(found_in(correlated(0.5, 400, np.random.default_rng(2))))
    assert check.verdict == "fails"
    assert "Latents 0 and 1 have correlation 0.5" in check.sentence


def test_a_correlation_in_one_small_group_is_seen():
    z = np.random.default_rng(3).normal(size=(GROUPS, 2000, 2))
    parts = [np.cov(one, rowvar=False) for one in z]
    parts[0] = np.cov(correlated(0.6, 100, np.random.default_rng(3))[0, :, :2], rowvar=False)
    counts = np.r_[100.0, np.full(GROUPS - 1, 2000.0)]
    assert check_independence(Correlations.of(np.stack(parts), counts)).verdict == "fails"


def test_two_groups_show_nothing():
    exact = Correlations.of(np.stack([np.eye(2), np.diag([1.0, 3.0])]), np.full(2, 1e6))
    assert check_independence(exact).verdict == "inconclusive"


@pytest.mark.parametrize("distribution", ["normal", "laplace", "uniform"])
def test_goodness_of_fit_needs_no_distribution(distribution):
    rng = np.random.default_rng(4)
    codes, scales = np.arange(6000) % GROUPS, rng.uniform(0.5, 3, size=(GROUPS, 3))
    for _ in range(20):
        z = scales[codes] * getattr(rng, distribution)(size=(6000, 3))
        assert check_fit(Correlations.of_groups(z, codes)).verdict == "holds"


def test_latents_that_are_uncorrelated_and_dependent_do_not_fit():
    rng = np.random.default_rng(5)
    z, codes = rng.normal(size=(6000, 2)), np.arange(6000) % GROUPS
    bent = np.c_[z[:, 0], z[:, 1] + np.abs(z[:, 0])]
    scaled = z * np.exp(0.5 * rng.normal(size=(6000, 1)))  # one scale for both
    for wrong in (bent, scaled):
        check = check_fit(Correlations.of_groups(wrong, codes))
        assert check.verdict == "fails"
        assert "does not describe" in check.sentence


def test_weights_of_zero_and_one_are_groups():
    rng = np.random.default_rng(6)
    z, codes = rng.normal(size=(600, 3)), np.arange(600) % GROUPS
    hard, soft = Correlations.of_groups(z, codes), Correlations.of_sizes(z, np.eye(GROUPS)[codes])
    np.testing.assert_allclose(hard.values, soft.values, atol=1e-12)
    np.testing.assert_allclose(hard.counts, soft.counts)


def test_fits_of_older_files_are_inconclusive():
    assert check_fit(None).verdict == check_components(None, 3, 4).verdict == "inconclusive"
