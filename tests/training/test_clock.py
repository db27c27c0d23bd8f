"""Time limits stop what is trained inside them."""

import time

import pytest

from identifiable import OutOfTimeError
from identifiable.training import time_limit
from identifiable.training.clock import require_time, seconds_left


def test_the_earlier_of_nested_limits_counts_and_ends_with_its_block():
    with time_limit(1000):
        for inner, expected in ((10.0, 10), (2000.0, 1000)):
            with time_limit(inner):
                assert seconds_left() == pytest.approx(expected, abs=1)
                require_time()
        assert seconds_left() == pytest.approx(1000, abs=1)
    assert seconds_left() == float("inf")


def test_work_after_the_end_is_refused():
    with time_limit(0.01):
        time.sleep(0.02)
        assert seconds_left() <= 0
        with pytest.raises(OutOfTimeError):
            require_time()
    require_time()
