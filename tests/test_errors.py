"""Names in messages, and the classes that callers catch."""

from identifiable import errors
from identifiable.errors import join_few


def test_join_few_counts_the_items_it_leaves_out():
    assert join_few(["a", "b", "c"], most=3) == "a, b, c"
    assert join_few(list("abcdefg")) == "a, b, c, d, e, and 2 more"
    assert join_few(["a", "b"], "", most=1) == "a\n  and 1 more"


def test_errors_are_caught_by_their_builtin_classes():
    assert issubclass(errors.DataError, ValueError)
    assert issubclass(errors.DamagedFileError, ValueError)
    assert issubclass(errors.FitFailedError, RuntimeError)
    assert issubclass(errors.OutOfTimeError, RuntimeError)
    assert issubclass(errors.RecoveryWarning, UserWarning)
