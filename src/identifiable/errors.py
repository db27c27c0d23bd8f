"""Every error of the library: what was expected, what came, what to do."""

from collections.abc import Sequence


class DataError(ValueError):
    """The data cannot be used as they are; the message names the place and the cure."""


class DamagedFileError(ValueError):
    """A file is truncated, altered, of another kind, or written by a newer version."""


class FitFailedError(RuntimeError):
    """Training diverged in every restart."""


class OutOfTimeError(RuntimeError):
    """The time that was given is over before the work is done."""


class RecoveryWarning(UserWarning):
    """The fit ended, but its latents should not be trusted as they are."""


def join_few(items: Sequence[str], separator: str = ", ", *, most: int = 5) -> str:
    """Name a few of many.

    Examples
    --------
    >>> join_few(["a", "b", "c"], most=2)
    'a, b, and 1 more'
    """
    rest = len(items) - most
    return separator.join(items[:most]) + (f"{separator or chr(10) + '  '}and {rest} more" if rest > 0 else "")
