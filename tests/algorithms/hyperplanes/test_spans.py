"""The rows on a hyperplane show which latents it belongs to."""

import numpy as np
import pytest

from identifiable.algorithms.hyperplanes import spans_of
from identifiable.algorithms.hyperplanes.spans import Spans

EXACT = 1e-9


def latents(n=4, rows=3000, seed=0, share=0.5):
    rng = np.random.default_rng(seed)
    return rng.normal(1, 1, size=(rows, n)) * (rng.random((rows, n)) < share)


def groups(t, tolerance=EXACT):
    t = t / t.std(0)
    found = spans_of(t, np.full(t.shape[1], tolerance))
    return [set(np.flatnonzero(row).tolist()) for row in found.groups]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_latents_are_single(share):
    assert groups(latents(share=share)) == [{0}, {1}, {2}, {3}]


def test_a_sum_is_grouped_with_its_part():
    z = latents()
    z[:, 0] += 0.5 * z[:, 1]
    assert groups(z) == [{0, 1}, {1}, {2}, {3}]


def test_a_cycle_of_sums_is_one_group():
    """No coordinate of the cycle is zero wherever another one is: only their combinations are constant."""
    z = latents()
    z[:, :3] = z[:, :3] @ [[1, 0, 1], [1, 1, 0], [0, 1, 1]]
    assert groups(z) == [{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {3}]


def test_latents_that_depend_on_others_are_grouped():
    z = latents()
    z[:, 1] *= z[:, 0] != 0
    z[:, 3] *= (z[:, 2] != 0) & (z[:, 0] != 0)
    assert groups(z) == [{0, 1, 3}, {1}, {2, 3}, {3}]


def test_strays_do_not_hide_a_group():
    """Some rows are on the hyperplane by chance: more parts than strays are compared."""
    z = latents(rows=20_000)
    z[:, 0] += z[:, 1]
    t = z / z.std(0)
    found = spans_of(t, np.full(4, 3e-4))
    both = (z[:, :2] == 0).all(1)
    assert 0 < ((np.abs(t[:, 0]) < 3e-4) & ~both).sum() <= found.strays[0]
    assert found.groups[0].tolist() == [True, True, False, False]


def test_wide_tolerances_and_few_rows_show_nothing():
    z = latents()
    assert spans_of(z, np.full(4, 0.1)).groups.all()
    assert not spans_of(z[:8], np.full(4, EXACT)).single.any()
    never = z.copy()
    never[:, 0] = 1 + np.abs(z[:, 1] + np.arange(len(z)))
    found: Spans = spans_of(never, np.full(4, EXACT))
    assert found.rows[0] == 0
    assert found.groups[0].all()
