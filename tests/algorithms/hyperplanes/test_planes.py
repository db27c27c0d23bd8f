"""Hyperplanes through many samples, refined one at a time."""

import numpy as np
import pytest
import torch

from identifiable.algorithms.hyperplanes.planes import Hyperplane, Unmixing, WhitenedData, peaks, unit


@pytest.fixture(scope="module")
def data():
    """Three coordinates of unit variance, each zero in half of the rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(1, 1, size=(4000, 3)) * (rng.random((4000, 3)) < 0.5)
    return WhitenedData(x / x.std(0), rng)


def test_a_near_plane_is_refined_to_the_exact_one(data):
    found = data.refine_plane(np.array([1.0, 0.02, -0.01, 0.01]) * 5)
    np.testing.assert_allclose(np.abs(found.normal), [1, 0, 0], atol=1e-9)
    assert abs(found.offset) < 1e-9
    assert found.share == pytest.approx((np.abs(data.x[:, 0]) < 1e-9).mean(), abs=1e-3)
    assert found.sharpness > 1000
    np.testing.assert_allclose(np.abs(found.distance(data.x)), np.abs(data.x[:, 0]), atol=1e-9)
    np.testing.assert_allclose(found.row, np.append(found.normal, found.offset))


def test_there_is_no_plane_in_smooth_data():
    rng = np.random.default_rng(1)
    data = WhitenedData(rng.normal(size=(4000, 3)), rng)
    assert data.refine_plane(np.array([1.0, 0, 0, 0])) is None
    assert data.refine_plane(np.array([1.0, 0, 0, 30.0])) is None


def test_inactive_share_is_that_near_zero(data):
    rows = np.array([[2.0, 0, 0, 0], [0, 0, 1, -0.5]])
    near = [np.abs(data.x[:4000, 0]) < 0.03, np.abs(data.x[:4000, 2] - 0.5) < 0.03]
    np.testing.assert_allclose(data.inactive_share(rows), np.mean(near, 1))
    assert data.inactive_share(rows, 0.5)[1] > data.inactive_share(rows)[1]


def test_null_space_holds_what_vanishes(data):
    inactive = np.flatnonzero((np.abs(data.x[:, :2]) < 1e-9).all(1))
    null = data.null_space(inactive)
    assert null.shape == (4, 2)
    np.testing.assert_allclose(np.abs(null[2:]), 0, atol=1e-9)
    assert data.null_space(np.flatnonzero(np.abs(data.x[:, 0]) < 1e-9)).shape == (4, 1)


def test_peaks_are_higher_at_exact_coordinates(data):
    W = torch.tensor([[[3.0, 0, 0, 0], [1, 1, 1, 0]]])[None]
    found = peaks(data.single[None], W)
    assert found.shape == (1, 1, 2)
    assert found[0, 0, 0] > 0.4
    assert found[0, 0, 1] < 0.2
    torch.testing.assert_close(peaks(data.single[None], 7 * W), found)


def test_unit_functionals():
    found = unit(np.array([[3.0, 4.0, 10.0]]))
    np.testing.assert_allclose(found, [[0.6, 0.8, 2.0]])


def test_unmixings_of_other_units():
    rng = np.random.default_rng(2)
    y, sd = rng.normal(size=(50, 2)), np.array([2.0, 5.0])
    found = Unmixing(rng.normal(size=(2, 2)), np.array([1.0, -1.0]), 2, ())
    np.testing.assert_allclose(found.latents(y), y @ found.rows[:, :2].T + found.rows[:, 2])
    np.testing.assert_allclose(found.of_scaled(sd).latents(y * sd), found.latents(y))
    moved = found.normalised(y).latents(y)
    np.testing.assert_allclose(moved.std(0), 1)
    np.testing.assert_allclose(moved * found.latents(y).std(0), found.latents(y))


def test_planes_measure_distance():
    plane = Hyperplane(np.array([0.6, 0.8]), -1.0, 0.1, 0.5, 10.0)
    np.testing.assert_allclose(plane.distance(np.array([[1.0, 0.5], [0, 0]])), [0, -1])
