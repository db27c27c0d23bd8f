"""What is counted in the latents of two restarts."""

import numpy as np
import pytest

from identifiable.theory.upsets import READING, UpSets, matched, threshold
from upset_latents import PAIRS, SINGLES, WIDTH, learnt


@pytest.fixture(scope="module")
def evidence():
    return UpSets.of(*learnt(PAIRS, 4000, seed=0), WIDTH)


def test_restarts_are_matched_in_order_and_sign():
    t, _ = learnt(PAIRS, 500, seed=1)
    order, signs = np.array([3, 0, 4, 2, 1]), np.array([1, -1, 1, -1, -1])
    np.testing.assert_array_equal(matched(t, (t * signs)[:, order]), t)


def test_up_sets_are_the_latents_beyond_tau_in_both_restarts():
    t, other = (
        np.array([[1.0, 0.0], [1.0, 1.0], [-1.0, 1.0], [0.1, 0.1]]),
        np.array([[1.0, 0], [1, 0.1], [-1, 1], [1, 0.1]]),
    )
    found = UpSets.of(np.r_[t, t], np.r_[other, other], WIDTH)
    assert found.tau >= 4 * WIDTH
    assert found.sets.tolist() == [[False, False], [True, False], [True, True]]
    assert found.counts.tolist() == [2, 4, 2]


@pytest.mark.parametrize("odd", [0.002, 0.05])
def test_kappa_is_twice_the_rate_at_which_restarts_contradict_each_other(odd):
    """A share `odd` of inactive latents is far off in each restart, at every threshold; below 1 % kappa is 2 %."""
    rng = np.random.default_rng(0)
    restarts = WIDTH * rng.normal(size=(2, 20_000, 3))
    restarts[rng.random(restarts.shape) < odd] = 3.0
    tau, *_ = threshold(*restarts, WIDTH)
    assert UpSets.of(*restarts, WIDTH).kappa == pytest.approx(max(0.02, 2 * odd), rel=0.1)
    assert tau == pytest.approx(4 * WIDTH) or odd > 0.01


def test_counts_agree_with_loops_over_rows(evidence):
    S = np.array([[True, True, False, False, False], [False, False, True, False, False], [True] * 5])
    e, region = evidence, 0.1 * evidence.counts[evidence.sets.any(1)].max()
    for s, contains, misread, stray in zip(S, e.containing(S), e.misread(S), e.stray(S), strict=True):
        above = [(u, c) for u, c in zip(e.sets, e.counts, strict=True) if (u >= s).all()]
        lacking = [(int((s & ~u).sum()), c) for u, c in zip(e.sets, e.counts, strict=True)]
        expected = region + sum(c * e.kappa**k for k, c in lacking if k)
        assert contains == sum(c for _, c in above)
        assert misread == pytest.approx(expected)
        leaks = sum(c * np.prod(e.odds[u & ~s]) for u, c in above if (u != s).any())
        assert stray == pytest.approx(expected + leaks)


def test_up_sets_are_found_by_number(evidence):
    np.testing.assert_array_equal(evidence.numbers_of(evidence.sets), np.arange(len(evidence.sets)))
    never = ~evidence.sets[evidence.sets.sum(1) == 1][:1]
    assert evidence.numbers_of(never)[0] == -1 or evidence.counts[evidence.numbers_of(never)[0]] < 20


def test_few_rows_move_the_bounds_on_hidden_latents():
    """Latents whose density near zero is higher have higher odds of not being clearly active."""
    near, far = (UpSets.of(*learnt(SINGLES, 4000, seed=2, delta=d), WIDTH).odds for d in (0.0, 2.0))
    assert (near > far).all()
    assert (far >= READING.hidden_least).all()


def test_dropped_up_sets_leave_the_moments_of_the_others(evidence):
    dropped = np.arange(len(evidence.sets)) == evidence.read[0]
    less = evidence.without(dropped)
    np.testing.assert_array_equal(less.sets[less.read], evidence.sets[evidence.read[1:]])
    np.testing.assert_array_equal(less.means, evidence.means[1:])
    assert less.rows == evidence.rows
