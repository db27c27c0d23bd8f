"""The tolerance of a certificate."""

import pytest

from identifiable.errors import DataError
from identifiable.theory.thresholds import THRESHOLDS


def test_the_tolerance_is_the_given_one_or_depends_on_estimation():
    assert THRESHOLDS.tolerance(0.1, estimated=True) == 0.1
    assert THRESHOLDS.tolerance(None, estimated=False) == THRESHOLDS.exact < THRESHOLDS.estimated
    assert THRESHOLDS.tolerance(None, estimated=True) == THRESHOLDS.estimated


@pytest.mark.parametrize("given", [0, -1, 0.3, 1.0, float("nan")])
def test_a_tolerance_that_is_no_small_length_is_refused(given):
    with pytest.raises(DataError, match="tolerance"):
        THRESHOLDS.tolerance(given, estimated=False)
