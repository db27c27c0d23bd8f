"""Maximum likelihood of an unmixing with free densities."""

import sys

import numpy as np
import pytest

from identifiable.algorithms.independent import Independent, independent_map, rotation_losses
from identifiable.metrics import mcc


@pytest.fixture
def mixed():
    rng = np.random.default_rng(0)
    z = np.c_[rng.exponential(size=1500), rng.uniform(-2, 2, size=1500), rng.laplace(size=1500)]
    return z - z.mean(0), (z - z.mean(0)) @ rng.normal(size=(3, 3))


def test_improvement_raises_the_likelihood_and_undoes_a_wrong_rotation(mixed):
    z, y = mixed
    start = Independent.of(y, np.linalg.inv(np.cov(y.T)) + 0.3)
    end = start.improved(y)
    assert end.score > start.score
    assert mcc(z, y @ end.W.T) > 0.99


def test_score_is_the_mean_log_likelihood(mixed):
    y = mixed[1]
    found = independent_map(y, np.eye(3))
    expected = found.densities.log_density(y @ found.W.T).sum(1).mean() + np.linalg.slogdet(found.W)[1]
    assert found.score == pytest.approx(expected)


def test_without_picard_fastica_starts(mixed, monkeypatch):
    monkeypatch.setitem(sys.modules, "picard", None)
    z, y = mixed
    assert mcc(z, y @ independent_map(y, np.eye(3)).W.T) > 0.99


def test_rotations_lose_likelihood_only_where_axes_exist():
    """Latents 0 and 1 are of a bivariate t distribution, which all rotations leave unchanged."""
    rng = np.random.default_rng(0)
    z = np.c_[rng.normal(size=(8000, 2)) / np.sqrt(rng.chisquare(5, size=(8000, 1)) / 3), rng.uniform(size=(8000, 1))]
    z = (z - z.mean(0)) / z.std(0)
    loss = rotation_losses(z[:4000], z[4000:])
    standard = loss.mean(0) / loss.std(0) * np.sqrt(len(loss))
    assert abs(standard[0]) < 4
    assert (standard[1:] > 10).all()
