"""A time limit for the training inside it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from identifiable.errors import OutOfTimeError

_LIMIT: ContextVar[float | None] = ContextVar("limit", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Stop training inside with `OutOfTimeError` once the seconds are over; the earlier of nested limits counts.

    Examples
    --------
    >>> with time_limit(0.0):
    ...     require_time()
    Traceback (most recent call last):
    identifiable.errors.OutOfTimeError: The time is over.
    """
    end, outer = time.monotonic() + seconds, _LIMIT.get()
    token = _LIMIT.set(end if outer is None else min(end, outer))
    try:
        yield
    finally:
        _LIMIT.reset(token)


def require_time() -> None:
    """Raise `OutOfTimeError` once the time limit is over."""
    limit = _LIMIT.get()
    if limit is not None and time.monotonic() >= limit:
        raise OutOfTimeError("The time is over.")


def seconds_left() -> float:
    """Return the time left under the time limit; infinite without one.

    Examples
    --------
    >>> with time_limit(60.0):
    ...     59 < seconds_left() <= 60
    True
    """
    limit = _LIMIT.get()
    return float("inf") if limit is None else max(0.0, limit - time.monotonic())
