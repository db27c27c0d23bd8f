"""How many rows would make latents reproducible, by simulation."""

import numpy as np
import pytest

from identifiable import LinearICA, SegmentUnmixing
from identifiable.auto.rows_needed import rows_needed


def mixture(rows, seed=0):
    rng = np.random.default_rng(seed)
    return rng.laplace(size=(rows, 3)) @ np.random.default_rng(9).normal(size=(3, 3))


@pytest.fixture(scope="module")
def few():
    return LinearICA(random_state=0).fit(mixture(200))


def test_a_few_hundred_laplace_rows_are_needed(few):
    assert 150 < rows_needed(few, 120) < 600  # 300 to 600 by fits to such tables
    assert rows_needed(few, 120) == rows_needed(few, 120)


def test_rows_that_should_have_been_enough_are_not_the_reason(few):
    assert rows_needed(few, 5000) is None


def test_gaussian_latents_never_become_reproducible():
    x = np.random.default_rng(0).normal(size=(5000, 3))
    assert rows_needed(LinearICA(random_state=0).fit(x), 5000) is None


def test_a_model_that_needs_u_has_no_samples_to_fit_to():
    x, u = mixture(200), np.arange(200) % 4
    assert rows_needed(SegmentUnmixing(3, n_restarts=1, random_state=0).fit(x, u), 200) is None
