"""Maximum likelihood of an unmixing with free densities."""

import sys

import numpy as np
import pytest

from identifiable.algorithms.independent import Independent, independent_map
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
