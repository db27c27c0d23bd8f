"""Names in error messages."""

from identifiable.errors import join_few


def test_join_few_counts_the_items_it_leaves_out():
    assert join_few(["a", "b", "c"], most=3) == "a, b, c"
    assert join_few(list("abcdefg")) == "a, b, c, d, e, and 2 more"
    assert join_few(["a", "b"], "", most=1) == "a\n  and 1 more"
