"""Independent fits at the same time, through joblib: on the cores of one machine, or on a cluster.

`joblib.parallel_config("dask")` around a fit sends its parts to the workers of a Dask cluster.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

from identifiable.errors import DataError, FitFailedError, OutOfTimeError, RecoveryWarning
from identifiable.training import seconds_left, time_limit
from identifiable.training.clock import require_time

FAILURES = DataError, FitFailedError, OutOfTimeError


def together(
    function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], n_jobs: int | None
) -> Iterator[tuple[int, Any]]:
    """Call a function with each tuple of arguments; yield the number and the value of each call, as soon as it ends.

    All calls end within the time limit around this one. An error that only says why a fit is impossible is a value.

    Parameters
    ----------
    n_jobs : calls at the same time. -1 uses all cores; None is 1, unless `joblib.parallel_config` says otherwise.

    Examples
    --------
    >>> dict(together(pow, [(2, 3), (3, 2)], n_jobs=1))
    {0: 8, 1: 9}
    """
    end = time.time() + seconds_left()
    jobs = [delayed(_call)(number, function, given, end) for number, given in enumerate(arguments)]
    yield from Parallel(n_jobs=min(at_once(n_jobs), len(jobs)), return_as="generator_unordered")(jobs)


def at_once(n_jobs: int | None) -> int:
    """Return how many calls run at the same time; one inside a process or thread that joblib has started.

    >>> at_once(3), at_once(None)
    (3, 1)
    """
    nested = get_active_backend()[0].nesting_level
    return 1 if nested else int(effective_n_jobs(n_jobs))


def _call(number: int, function: Callable[..., Any], given: tuple[Any, ...], end: float) -> tuple[int, Any]:
    try:
        with time_limit(max(0.0, end - time.time())), warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoveryWarning)  # another process does not inherit the filters of this one
            require_time()
            return number, function(*given)
    except FAILURES as error:
        return number, error
