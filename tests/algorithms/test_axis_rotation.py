"""Rotations of axes that EM cannot find."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from identifiable.algorithms.axis_rotation import (
    lines_in_plane,
    rotate_pair,
    rotate_pattern,
    rotated_axes,
    shared_lines,
    try_rotations,
)
from identifiable.algorithms.pattern_model import Model, Rows

ANY = torch.tensor(np.stack(np.unravel_index(np.arange(8), (2, 2, 2)), 1)).double()
OPEN = torch.tensor([[a, a, b] for a in (0, 1) for b in (0, 1)]).double()  # latents 0 and 1 always together


def model(mixing, patterns):
    n = mixing.shape[0]
    weights = torch.full((len(patterns),), 1 / len(patterns)).double()
    eye = torch.eye(n).double()
    return Model(mixing, torch.zeros(n).double(), torch.full((n,), 0.1).double(), eye, float(np.log(0.1)), eye,
                 patterns, weights, -7.0)  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    """Three independent latents, each active in half of the rows, seen with a little noise."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3000, 3)) * (rng.random((3000, 3)) < 0.5)
    return Rows(torch.tensor(z + 0.1 * rng.normal(size=z.shape)))


TURN = torch.tensor([[1, 1, 0], [1, -1, 0], [0, 0, np.sqrt(2)]]).double() / np.sqrt(2)


def purity(mixing):
    return float((mixing.abs().amax(1) / mixing.norm(dim=1)).min())


def test_lines_of_sum_and_difference_are_the_true_axes(rows):
    off, lines = lines_in_plane(rows, model(TURN, OPEN), 0, 1)
    assert off > 0.3
    assert purity(lines @ TURN[:2, :2]) > 0.98
    assert lines_in_plane(rows, model(torch.eye(3).double(), ANY), 0, 1)[0] < 0.1


def test_rotating_a_pair_keeps_the_distribution_of_both():
    before = model(TURN, OPEN)
    after = rotate_pair(before, 0, 1, torch.tensor([[1.0, 1], [1, -1]]).double())
    everything = torch.ones(1, 3).double()
    for a, b in zip(before.components(everything), after.components(everything), strict=True):
        torch.testing.assert_close(a, b)
    assert len(after.patterns) == 8
    assert float(after.weights.sum()) == pytest.approx(1)
    assert purity(after.mixing) > 1 - 1e-9


@pytest.mark.parametrize("rotate", [try_rotations, rotated_axes])
def test_rotations_leave_a_basis_in_which_em_is_stuck(rows, rotate):
    stuck = model(TURN, OPEN)
    found, value = rotate(rows, stuck, stuck.value(rows))
    assert value == pytest.approx(found.value(rows))
    assert value > stuck.value(rows) + 0.05
    assert purity(found.mixing) > 0.98
    right = model(torch.eye(3).double(), ANY)
    assert rotate(rows, right, right.value(rows))[1] >= right.value(rows)


def test_a_pattern_on_one_line_becomes_one_latent():
    """Two latents are never active alone, and move together: latent 1 is not needed, one axis suffices."""
    rng = np.random.default_rng(1)
    along = rng.normal(size=(2000, 1)) * [[1.0, 1.0]] * (rng.random((2000, 1)) < 0.5)
    rows = Rows(torch.tensor(along + 0.05 * rng.normal(size=along.shape)))
    together = model(torch.eye(2).double(), torch.tensor([[0, 0], [1, 1]]).double())
    start = replace(together, log_noise=float(np.log(0.05)))
    ((number, line, place),) = shared_lines(rows, start, 0.8)
    assert number == 1
    torch.testing.assert_close(line.abs(), torch.ones(2).double(), atol=0.1, rtol=0)
    assert abs(float(place)) < 0.1
    after = rotate_pattern(start, number, line, place)
    assert any(torch.equal(axis, line) for axis in after.mixing)
    assert after.patterns.tolist()[-1] in ([1, 0], [0, 1])
    assert float(after.weights.sum()) == pytest.approx(1)
    spread = replace(start, weights=torch.tensor([1.0, 0.0]).double())
    assert not shared_lines(rows, spread, 0.8)
