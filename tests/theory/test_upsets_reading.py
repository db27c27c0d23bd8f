"""Which latents the up-sets show to be straight: never exchangeable ones, and others where they can."""

import time

import numpy as np
import pytest

from identifiable.theory.upsets import UpSets
from identifiable.theory.upsets_reading import heavier, read, rows_needed, truncated_product
from upset_latents import PAIRS, SINGLES, SQUARE, WIDTH, fives, learnt


def reading(patterns, rows, seed, **options):
    evidence = UpSets.of(*learnt(patterns, rows, seed, **options), WIDTH)
    return evidence, read(evidence)


@pytest.mark.parametrize(
    ("patterns", "options"),
    [
        (SINGLES, {}),
        (SINGLES, {"delta": 1.0}),
        (SQUARE, {}),
        (SQUARE, {"r": 0.4}),
        (PAIRS, {"delta": 1.0}),
        (SQUARE, {"misread": 0.02}),
    ],
    ids=["1 var", "1 var, delta 1", "square", "correlated square", "all pairs", "misread square"],
)
def test_exchangeable_latents_are_not_called_straight(patterns, options):
    """In at most one of eight data sets each; the family-wise error level is 5 %."""
    wrong = [reading(patterns, rows, seed, **options)[1].straight.any() for seed in range(4) for rows in (1000, 6000)]
    assert sum(wrong) <= 1


def test_patterns_without_partners_show_every_latent_to_be_straight():
    evidence, found = reading(fives(), 20_000, seed=0)
    assert found.straight.all()
    assert found.varied
    assert found.exchangeable == ()
    assert found.unexplained < 0.01
    assert len(found.witnesses) == len(fives())
    assert not read(evidence.with_rows(0.02)).straight.any()  # eight rows of each pattern


def test_weights_distinguish_latents():
    found = reading(SINGLES[:2, :2], 3000, seed=0, weights=[1, 3])[1]
    assert found.straight.all()


def test_distributions_distinguish_latents():
    """Lines of equal weight whose means are 0, 0.8 and 1.6 sd from the inactive value."""
    found = reading(SINGLES[:3, :3], 9000, seed=0, delta=np.array([0.0, 0.8, 1.6]))[1]
    assert found.straight.all()


def test_only_pairs_that_are_not_excluded_are_named():
    """In the square, 0 can take the place of 3, and 1 that of 2; all others are excluded by patterns."""
    assert reading(SQUARE, 6000, seed=0)[1].exchangeable == ((0, 3), (1, 2))


def test_latents_that_are_active_together_are_not_varied():
    patterns = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 1]], dtype=bool)
    assert not reading(patterns, 5000, seed=0)[1].varied


def test_the_rows_that_are_asked_for_are_enough_within_a_factor_of_two():
    """Of two lines of unequal weight: with half of the rows at most 3 of 10 data sets suffice, with twice 7."""
    lines, weights = SINGLES[:2, :2], [1, 2.8]
    asked = []
    for seed in range(10):
        evidence, found = reading(lines, 300, seed, weights=weights)
        asked += [] if found.straight.all() else [rows_needed(evidence, found) or np.inf]
    rows = int(np.median(asked))
    assert len(asked) >= 7

    def enough(rows):
        return sum(reading(lines, rows, seed, weights=weights)[1].straight.all() for seed in range(20, 30))

    assert enough(rows // 2) <= 3
    assert enough(2 * rows) >= 7


def test_no_number_of_rows_distinguishes_equal_weights():
    assert rows_needed(*reading(SQUARE, 5000, seed=0)) is None


def test_ten_latents_are_read_in_seconds():
    latents = learnt(fives(), 20_000, seed=1)
    started = time.process_time()
    read(UpSets.of(*latents, WIDTH))
    assert time.process_time() - started < 5


def test_a_clear_majority_of_rows_is_refuted_and_strays_are_allowed_for():
    assert heavier(np.array([300.0]), np.array([0.0]), np.array([100.0]))[0] < 1e-6
    assert heavier(np.array([140.0]), np.array([0.0]), np.array([100.0]))[0] > 0.1
    assert heavier(np.array([300.0]), np.array([150.0]), np.array([100.0]))[0] > 0.1


def test_the_truncated_product_is_uniform_under_the_null():
    """P(p <= a) = a for independent uniform p-values, at values where the product is not truncated to 1."""
    rng = np.random.default_rng(0)
    p = np.array([truncated_product(row) for row in rng.random((20_000, 8))])
    for a in (0.01, 0.05, 0.2):
        assert abs((p <= a).mean() - a) < 4 * np.sqrt(a / 20_000)
