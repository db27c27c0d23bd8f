"""Meets, refinements and closures against their definitions."""

import numpy as np
import pytest

from identifiable.theory.partitions import (
    blocks_of,
    closure,
    linked,
    meet,
    numbered,
    refinement,
    refines,
    states_within,
)


def random_partition(rng, size=20, most=8):
    return numbered(rng.integers(most, size=size).tolist())


def joins(p):
    return np.equal.outer(p, p)


@pytest.mark.parametrize("seed", range(8))
def test_meet_joins_whatever_a_chain_of_overlapping_blocks_links(seed):
    rng = np.random.default_rng(seed)
    p, q = random_partition(rng), random_partition(rng)
    links = joins(p) | joins(q)
    reached = np.linalg.matrix_power(links.astype(float), 20) > 0
    assert meet(p, q) == numbered(map(tuple, reached.tolist())) == meet(q, p) == linked(links)


@pytest.mark.parametrize("seed", range(8))
def test_refinement_joins_what_all_partitions_join(seed):
    rng = np.random.default_rng(seed)
    p, q = random_partition(rng, most=3), random_partition(rng, most=3)
    fine = refinement([p, q], 20)
    np.testing.assert_array_equal(joins(fine), joins(p) & joins(q))
    assert refines(fine, p)
    assert refines(fine, q)
    assert refines(p, q) == bool((joins(p) <= joins(q)).all())
    assert refinement([], 3) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(8))
def test_closure_has_all_meets_unless_they_are_too_many(seed):
    rng = np.random.default_rng(seed)
    given = [random_partition(rng, size=6, most=4) for _ in range(2)]
    found = closure(given)
    assert found == {(0,) * 6, *given, meet(*given)}
    single = [tuple(int(i == j) for i in range(8)) for j in range(1, 8)]
    assert closure(single) == {(0,) * 8, *single}
    halves = [numbered(row) for row in rng.integers(2, size=(40, 6)).tolist()]
    assert closure(halves) == set()


def test_states_are_numbered_within_blocks_of_the_coarser_partition():
    assert states_within((0, 1, 2, 3, 0), (0, 1, 0, 1, 0)) == (0, 0, 1, 1, 0)


def test_blocks_list_their_items():
    assert blocks_of(linked(np.eye(3)[[1, 0, 2]] > 0)) == ((0, 1), (2,))
