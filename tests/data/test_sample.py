"""`Sample` keeps rows together."""

import numpy as np
import pytest

from identifiable.data.sample import Sample

X, Z = np.arange(12.0).reshape(6, 2), np.arange(6.0)[:, None]
SAMPLE = Sample(x=X, u=np.arange(6) % 2, z=Z, component=np.arange(6), columns=("a", "b"))


@pytest.mark.parametrize("rows", [slice(1, 5, 2), np.array([3, 0]), np.arange(6) > 3], ids=["slice", "numbers", "mask"])
def test_rows_are_selected_together(rows):
    part = SAMPLE[rows]
    assert len(part) == len(X[rows])
    for values, whole in ((part.x, X), (part.u, SAMPLE.u), (part.z, Z), (part.component, SAMPLE.component)):
        np.testing.assert_array_equal(values, whole[rows])
    assert part.columns == ("a", "b")


@pytest.mark.parametrize("name", ["u", "z", "component"])
def test_arrays_must_have_one_row_per_observation(name):
    with pytest.raises(ValueError, match=f"{name} has 5"):
        Sample(x=X, **{name: np.zeros(5)})


def test_only_known_arrays_are_shown():
    assert repr(SAMPLE) == "Sample(x=(6, 2), u=(6,), z=(6, 1), component=(6,))"
    assert repr(Sample(x=X)) == "Sample(x=(6, 2))"
