"""Whether groups of latents lie on the axes of a code."""

import numpy as np
import pytest

from identifiable.algorithms.code_axes import match_axes


@pytest.fixture
def code():
    return np.random.default_rng(0).normal(size=(2000, 6)) * [1, 10, 0.1, 1, 2, 3] + 5


def test_any_map_within_groups_is_on_the_axes(code):
    rng = np.random.default_rng(1)
    first, second = code[:, [4, 1]] @ rng.normal(size=(2, 2)), code[:, [0, 2, 5]] @ rng.normal(size=(3, 3))
    found = match_axes(code, np.c_[second, first, code[:, 3]], [[3, 4], [0, 1, 2]])
    assert found.tolist() == [1, 0, 1, -1, 0, 1]


def test_a_map_across_groups_is_not_on_the_axes(code):
    standard = (code - code.mean(0)) / code.std(0)
    turned = standard.copy()
    turned[:, [0, 3]] = standard[:, [0, 3]] @ [[0.9, 0.5], [-0.5, 0.9]]  # thing 0 and thing 1 share their coordinates
    assert match_axes(standard, turned, [[0, 1], [2, 3]]) is None
    assert match_axes(standard, turned, [[0, 3]]).tolist() == [0, -1, -1, 0, -1, -1]


def test_without_groups_every_coordinate_is_free(code):
    assert match_axes(code, code @ np.random.default_rng(2).normal(size=(6, 6)), []).tolist() == [-1] * 6
