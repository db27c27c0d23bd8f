"""Tables are checked, and the errors name the place."""

import numpy as np
import pytest

from identifiable.errors import DataError
from identifiable.metrics.checks import same_rows, table


@pytest.mark.parametrize(
    ("values", "word"),
    [
        *((np.zeros(shape), "2-D") for shape in (10, (1, 10, 2))),
        (np.zeros((1, 2)), "2 rows"),
        (np.zeros((10, 0)), "1 column"),
        ([[0.0, np.inf], [0.0, 0.0]], "row 0, column 1"),
        ([["a", "b"], ["c", "d"]], "numbers"),
    ],
)
def test_a_table_that_is_not_finite_and_two_dimensional_is_refused(values, word):
    with pytest.raises(DataError, match=word):
        table("z", values)


def test_a_valid_table_becomes_floats():
    found = table("z", [[1, 2], [3, 4]])
    assert found.dtype == np.float64
    assert found.tolist() == [[1, 2], [3, 4]]


def test_different_numbers_of_rows_are_refused():
    same_rows(a=np.zeros(3), b=np.zeros((3, 2)))
    with pytest.raises(DataError, match="b has 2"):
        same_rows(a=np.zeros(3), b=np.zeros(2))
