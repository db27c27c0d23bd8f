"""Calls at the same time: their values come with their numbers, failures are values, time limits hold."""

import time

import pytest
from joblib import Parallel, delayed, parallel_config

from identifiable import DataError
from identifiable.auto.together import at_once, together
from identifiable.errors import OutOfTimeError
from identifiable.training import seconds_left, time_limit


def quotient(a, b):
    if b == 0:
        raise DataError("zero")
    return a / b


@pytest.mark.parametrize("n_jobs", [1, None, 2])
def test_values_come_with_the_number_of_their_call(n_jobs):
    with parallel_config(backend="threading"):
        found = dict(together(quotient, [(n, n - 3) for n in range(6)], n_jobs))
    assert isinstance(found.pop(3), DataError)
    assert found == {n: n / (n - 3) for n in (0, 1, 2, 4, 5)}


def test_other_errors_are_raised():
    with pytest.raises(TypeError):
        dict(together(quotient, [(1, "2")], 1))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_time_limit_holds_in_every_call(n_jobs):
    def left():
        seconds = seconds_left()
        time.sleep(0.2)
        if seconds_left() == 0:
            raise OutOfTimeError("late")
        return seconds

    with time_limit(0.3), parallel_config(backend="threading"):
        found = dict(together(left, [()] * 4, n_jobs))
    assert 0 < found[0] <= 0.3
    assert isinstance(found[3], OutOfTimeError)


def test_calls_inside_a_worker_run_one_by_one():
    assert at_once(2) == 2
    assert Parallel(n_jobs=2, backend="threading")(delayed(at_once)(2) for _ in range(2)) == [1, 1]
