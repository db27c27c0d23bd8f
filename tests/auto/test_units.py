"""Units: back and forth, and the volume of the map back."""

import numpy as np
import pytest

from identifiable.auto.units import Units

NONE = np.zeros(3, dtype=bool)


@pytest.fixture
def x():
    return np.exp(np.random.default_rng(0).normal(size=(400, 3)) * [1.5, 0.1, 0.5])


@pytest.mark.parametrize("logs", [[False, False, False], [True, False, True]])
def test_into_standardises_and_back_is_its_inverse(x, logs):
    units = Units.of(x, np.array(logs))
    y = units.into(x)
    np.testing.assert_allclose(y.std(0), 1)
    np.testing.assert_allclose(np.where(logs, np.exp(y * units.scale + units.mean), x), x)
    np.testing.assert_allclose(units.back(y), x)


def test_common_scale_keeps_relative_sizes(x):
    units = Units.of(x, NONE, common_scale=True)
    np.testing.assert_allclose(units.into(x).std(0) / x.std(0), 1 / units.scale[0])
    np.testing.assert_allclose(units.back(units.into(x)), x)


def test_dependent_columns_give_fewer_coordinates(x):
    dependent = np.c_[x, x @ [1.0, 2.0, 3.0]]
    units = Units.of(dependent, np.zeros(4, dtype=bool))
    assert units.into(dependent).shape == (400, 3)
    np.testing.assert_allclose(units.back(units.into(dependent)), dependent)
    one = units.along(np.eye(3)[:, :1])
    np.testing.assert_allclose(one.into(dependent), units.into(dependent)[:, :1])


@pytest.mark.parametrize("logs", [[False, False, False], [True, False, True]])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_log_volume_is_that_of_the_numerical_jacobian(x, logs, width):
    units = Units.of(x, np.array(logs)).along(np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0][:, :width])
    y, step = units.into(x[:5]), 1e-6
    jacobian = np.stack([(units.back(y + step * e) - units.back(y - step * e)) / (2 * step) for e in np.eye(width)])
    expected = 0.5 * np.linalg.slogdet(np.einsum("vnd,wnd->nvw", jacobian, jacobian))[1]
    np.testing.assert_allclose(units.log_volume(y), expected, rtol=1e-6)
