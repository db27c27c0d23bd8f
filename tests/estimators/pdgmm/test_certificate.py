"""What is certified of a fit, and what raises doubts."""

import itertools

import numpy as np
import pytest

from identifiable import Level, Mixture, Stability, certify
from identifiable.estimators.pdgmm.certificate import certificate_of, frequent_part, other_basis

PATTERNS = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=bool)


def mixture_of(weights, patterns=PATTERNS):
    """Independent active latents around (1, 2, 3)."""
    patterns = np.asarray(patterns, dtype=float)
    return Mixture(weights, patterns * [1, 2, 3], patterns)


def certified(agreement=1.0, weights=(1 / 6,) * 6, patterns=PATTERNS, **given):
    stability = Stability(np.array([[1, agreement], [agreement, 1]]))
    options = {"full_rank": False, "skewed": False, "injective": True} | given
    return certificate_of(stability, mixture_of(weights, patterns), np.asarray(patterns), **options)


def test_agreeing_restarts_have_the_certificate_of_their_mixture():
    found, expected = certified(), certify(mixture_of([1 / 6] * 6), estimated=True, injective=True)
    assert found.level == expected.level == Level.PS_UNBENT
    assert [check.name for check in found.checks] == ["agreement", "components", *(c.name for c in expected.checks)]
    assert found["components"].verdict == "holds"


@pytest.mark.parametrize(
    ("given", "check", "verdict", "if_undecided_hold"),
    [
        ({"agreement": 0.93}, "agreement", "inconclusive", Level.PS),
        ({"agreement": 0.5}, "agreement", "fails", Level.NONE),
        ({"skewed": True}, "gaussian", "fails", Level.NONE),
        ({"weights": (0.7, 0.3), "patterns": [[False] * 3, [True] * 3]}, "one basis", "inconclusive", None),
        ({"weights": (0.7, *[0.06] * 5), "patterns": [[False] * 3, *PATTERNS[:5]]}, "components", "inconclusive", None),
    ],
)
def test_doubts_leave_nothing_certified(given, check, verdict, if_undecided_hold):
    """The last two: all latents active together too often; a single frequent component, in which nothing varies."""
    found = certified(**given)
    assert found.level == Level.NONE
    assert found[check].verdict == verdict
    assert if_undecided_hold is None or found.if_undecided_hold == if_undecided_hold


@pytest.mark.parametrize(("full_rank", "level"), [(True, Level.NONE), (False, Level.BLOCKS)])
def test_fewer_directions_are_degenerate_under_a_full_rank_mixture(full_rank, level):
    """A standard deviation of 0.03 counts as zero only where latents may be inactive."""
    narrow = Mixture([0.5, 0.5], [[0, 0], [3, 1]], [[1, 0.03**2], [1, 1]])
    given = {"full_rank": full_rank, "skewed": False, "injective": True}
    assert certificate_of(Stability(np.ones((2, 2))), narrow, np.zeros((2, 2), bool), **given).level == level


def test_rare_components_are_left_out():
    """The median row has a component of weight 0.3: less than a fifth of it is rare."""
    part, share = frequent_part(mixture_of([0.05, 0.5, 0.3, 0.15], PATTERNS[:4]))
    np.testing.assert_allclose(part.weights, np.array([0.5, 0.3, 0.15]) / 0.95)
    np.testing.assert_array_equal(part.means, PATTERNS[1:4] * [1.0, 2.0, 3.0])
    assert share == pytest.approx(0.95)


def test_rows_that_may_be_sparse_in_another_basis_are_doubted():
    """Every latent is active in many rows, and four of eight in the others; by chance this raises no doubt."""
    patterns = np.array(list(itertools.product([False, True], repeat=8)))
    four, every = patterns.sum(1) == 4, patterns.all(1)
    assert other_basis(patterns, 0.6 * four / four.sum() + 0.4 * every).verdict == "inconclusive"
    assert other_basis(patterns, four / four.sum()) is None
    assert other_basis(patterns, np.where(patterns, 0.8, 0.2).prod(1)) is None
