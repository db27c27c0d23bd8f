"""The number of latents of made-up tables."""

from dataclasses import replace

import numpy as np
import pytest

from fake_models import FakeModel, family, task
from identifiable import DataError
from identifiable.auto.counting import count_latents
from identifiable.training import time_limit


@pytest.fixture
def y():
    return np.random.default_rng(0).normal(size=(400, 3))


def test_count_from_the_spectrum(y):
    assert count_latents(task(y)).n == 3
    noise = np.random.default_rng(2).normal(size=(400, 8))
    wide = y @ np.random.default_rng(1).normal(size=(3, 8)) + 0.01 * noise
    found = count_latents(task(wide))
    assert (found.n, found.by_gap) == (3, True)
    assert "factor" in found.reason
    assert not count_latents(task(wide, n=5)).by_gap
    with pytest.raises(DataError, match="3 directions"):
        count_latents(task(y, n=4))


def test_count_by_how_many_latents_are_reproducible():
    """The search does not end at the first number that fails, and does not depend on the seed."""
    y = np.random.default_rng(0).normal(size=(2000, 13)) * 0.6 ** np.arange(13)

    def build(n, **given):
        return FakeModel(n, turn=1.0 * (n in (3, 10)), **given)  # two latents turn

    one, two = (count_latents(task(y, seed=seed), replace(family(), build=build)) for seed in (1, 2))
    assert one == two
    assert one.n == 12
    assert "8 of 10" in one.reason
    assert count_latents(task(y), family(gain=-1.0)).n == 2  # no better than a Gaussian
    late = replace(family(), build=lambda n, **given: FakeModel(n, fails="late", **given))
    with time_limit(0):
        assert count_latents(task(y), late).n == 2
