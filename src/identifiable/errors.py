"""Errors and warnings of the library. A message says what is wrong, what was found, and how to fix it."""

import sys
import warnings
from collections.abc import Sequence


class DataError(ValueError):
    """The data cannot be used as they are. The message names the column, row or parameter, and the remedy."""


class DamagedFileError(ValueError):
    """A file is truncated, altered, of another kind, or was written by a newer version."""


class FitFailedError(RuntimeError):
    """Training diverged in every restart."""


class OutOfTimeError(RuntimeError):
    """The time budget ended before the work was done."""


class RecoveryWarning(UserWarning):
    """The fit ended, but its latents may not be reliable."""


def warn_recovery(message: str) -> None:
    """Issue a `RecoveryWarning` at the line outside this library (and scikit-learn) that called it."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("identifiable", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, RecoveryWarning, stacklevel=level)


def join_few(items: Sequence[str], separator: str = ", ", *, most: int = 5) -> str:
    """Join the first `most` items, and count the others.

    Examples
    --------
    >>> join_few(["a", "b", "c"], most=2)
    'a, b, and 1 more'
    """
    others = len(items) - most
    return separator.join(items[:most]) + (f"{separator or chr(10) + '  '}and {others} more" if others > 0 else "")
