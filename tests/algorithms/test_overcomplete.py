"""Counts of sparse directions: more than dimensions only where there are more latents."""

import numpy as np
import pytest

from identifiable.algorithms.coordinates import Coordinates
from identifiable.algorithms.overcomplete import count_sparse_directions
from identifiable.data import make_pdgmm


def white(x):
    coordinates = Coordinates.fit(x)
    return coordinates.project(x)[0] / coordinates.sd


def square(kind, rng):
    """Rows of as many latents as dimensions."""
    if kind == "bent":
        return make_pdgmm(4000, n=31, random_state=0).x
    if kind == "elliptical":
        return rng.normal(size=(4000, 40)) / np.sqrt(rng.chisquare(5, size=(4000, 1)))
    z = {"laplace": rng.laplace, "gaussian": rng.normal, "lognormal": rng.lognormal}[kind](size=(4000, 40))
    return z @ rng.normal(size=(40, 40))


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "lognormal", "elliptical", "bent"])
def test_as_many_latents_as_dimensions_are_not_counted(kind):
    assert count_sparse_directions(white(square(kind, np.random.default_rng(0))), 0) == 0


@pytest.mark.parametrize("seed", range(2))
def test_the_count_is_a_lower_bound(seed):
    rng = np.random.default_rng(seed)
    z = rng.exponential(size=(6000, 160)) * (rng.random((6000, 160)) < 0.06)
    assert 80 < count_sparse_directions(white(z @ rng.normal(size=(160, 80))), 0) <= 160
