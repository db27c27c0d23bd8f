"""Levels, premises and doubts of a certificate, from the latents of two restarts."""

import itertools

import numpy as np
import pytest

from identifiable import Level, Mixture, Stability
from identifiable.estimators.pdgmm.certificate import (
    Fit,
    certificate_of,
    level_of,
    other_basis,
    prefer_full_rank,
    without_spurious,
)
from identifiable.estimators.pdgmm.goodness import Goodness
from identifiable.theory.upsets import UpSets
from identifiable.theory.upsets_reading import read
from upset_latents import PAIRS, SQUARE, WIDTH, fives, learnt

AGREE = Stability(np.ones((2, 2)))
GOOD = Goodness(np.zeros(10), 0.5, 1000)


@pytest.fixture(scope="module")
def identified():
    return UpSets.of(*learnt(fives(), 20_000, seed=0), WIDTH)


@pytest.fixture(scope="module")
def square():
    return UpSets.of(*learnt(SQUARE, 6000, seed=0), WIDTH)


def certified(evidence, patterns, **given):
    """Certify independent active latents."""
    weights = np.full(len(patterns), 1 / len(patterns))
    options = {
        "stability": AGREE,
        "mixture": Mixture(weights, patterns * 1.0, patterns * 1.0),
        "patterns": patterns,
        "used": tuple(range(patterns.shape[1])),
        "evidence": evidence,
        "goodness": GOOD,
        "full_rank": False,
        "skewed": False,
        "projected": False,
    }
    return certificate_of(Fit(**options | given))


def test_straight_and_varied_latents_are_recovered_up_to_order_and_scale(identified):
    found = certified(identified, fives())
    assert found.level == Level.PS
    assert found.sentence == "Every latent is recovered up to order, sign, scale and shift (error level 5%)."
    assert "no pattern takes in more misread rows than 2.0% per latent plus 10% of the largest" in str(found)
    assert found.straight == tuple(range(10))
    assert found.blocks == tuple((i,) for i in range(10))
    assert all(check.verdict == "holds" for check in found.checks)


def test_latents_that_may_be_exchanged_are_named(square):
    found = certified(square, SQUARE)
    assert found.level == Level.PS_UNBENT
    assert found.exchangeable == ((0, 3), (1, 2))
    assert found.blocks == ((0, 3), (1, 2))
    assert "For the pairs 0 and 3; 1 and 2, a decoder" in str(found)
    assert "More rows alone would not" in found["exchanges"].remedy


def test_unused_latents_are_in_no_block(square):
    wide = np.c_[np.zeros((4, 1), dtype=bool), SQUARE]
    found = certified(square, wide, used=(1, 2, 3, 4))
    assert found.exchangeable == ((1, 4), (2, 3))
    assert found.blocks == ((1, 4), (2, 3))


@pytest.mark.parametrize(
    ("given", "check", "verdict", "if_undecided_hold"),
    [
        ({"stability": Stability(np.array([[1, 0.93], [0.93, 1]]))}, "agreement", "inconclusive", Level.PS),
        ({"stability": Stability(np.array([[1, 0.5], [0.5, 1]]))}, "agreement", "fails", Level.NONE),
        ({"stability": Stability(np.ones((1, 1)))}, "agreement", "inconclusive", Level.NONE),
        ({"skewed": True}, "gaussian", "fails", Level.NONE),
        ({"goodness": Goodness(np.zeros(10), 0.7, 1000)}, "fit", "fails", Level.NONE),
        ({"goodness": Goodness(np.eye(10)[0] * 0.3, 0.5, 1000)}, "fit", "fails", Level.NONE),
        ({"projected": True}, "mixing", "inconclusive", Level.PS),
        ({"evidence": None}, "rows", "inconclusive", Level.NONE),
    ],
)
def test_doubts_leave_nothing_certified(identified, given, check, verdict, if_undecided_hold):
    found = certified(**{"evidence": identified, "patterns": fives()} | given)
    assert found.level == Level.NONE
    assert found[check].verdict == verdict
    assert found.if_undecided_hold == if_undecided_hold


def test_the_certificate_of_a_single_restart_says_what_to_do(identified):
    found = certified(identified, fives(), stability=Stability(np.ones((1, 1))))
    assert "n_restarts=2" in found["agreement"].remedy


def test_rows_that_fit_no_pattern_leave_nothing_certified(identified):
    """A fifth of the rows has as many different patterns as there are, each too rarely to be one."""
    t, other = learnt(fives(), 20_000, seed=0)
    every = np.random.default_rng(0).random((4000, 10)) < 0.7
    t[:4000] = other[:4000] = np.random.default_rng(1).normal(1, 0.1, size=(4000, 10)) * every
    found = certified(UpSets.of(t, other, WIDTH), fives())
    assert found.level == Level.NONE
    assert found["patterns"].verdict == "fails"


@pytest.mark.parametrize("level", [Level.PS, Level.AT])
def test_straight_latents_that_are_not_varied_are_known_up_to_an_affine_map(identified, level):
    found = read(identified)
    if level == Level.AT:
        found = type(found)(**vars(found) | {"varied": False})
    assert level_of(found) == level


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_rows_with_all_latents_active_count_only_if_they_are_a_component(share):
    """Lines with a full-rank component are identified by it; few such rows, or unexplained ones, prove nothing."""
    t, other = learnt(np.eye(5, dtype=bool), 8000, seed=0)
    rows = int(share * len(t))
    t[:rows] = other[:rows] = np.random.default_rng(1).normal(1, 1, size=(rows, 5))
    found = UpSets.of(t, other, WIDTH)
    trusted, distrusted = (without_spurious(found, full_rank=known) for known in (True, False))
    assert not distrusted.sets.all(1).any()
    assert trusted.sets.all(1).any() == (share == 0.3)
    assert read(trusted).straight.all() == (share == 0.3)


def test_only_rows_like_a_full_rank_component_prefer_it():
    """Rows that are sparse in another basis have all latents active, and are no Gaussian."""
    rng, patterns = np.random.default_rng(0), np.r_[np.ones((1, 5), dtype=bool), PAIRS]
    whole = rng.normal(size=(1500, 5))
    turned = (rng.normal(size=(1500, 5)) * PAIRS[rng.integers(10, size=1500)]) @ np.linalg.qr(rng.normal(size=(5, 5)))[
        0
    ]
    for rows, expected in ((whole, True), (turned, False)):
        covariances = [np.cov(rows.T), *(np.diag(p) * 1.0 for p in PAIRS)]
        mixture = Mixture(np.full(11, 1 / 11), [rows.mean(0), *np.zeros((10, 5))], covariances)
        assert prefer_full_rank(mixture, patterns, rows, (WIDTH, 4 * WIDTH), rng) is expected
    assert not prefer_full_rank(mixture, patterns[1:], whole, (WIDTH, 4 * WIDTH), rng)


def test_a_full_rank_mixture_is_certified_by_its_components():
    """A standard deviation of 0.03 does not count as zero, so that no direction is degenerate and 3.8 is open."""
    narrow = Mixture([0.5, 0.5], [[0, 0], [3, 1]], [[1, 0.03**2], [1, 1]])
    small = Goodness(np.zeros(2), 0.5, 1000)
    found = certified(None, np.ones((2, 2), dtype=bool), mixture=narrow, full_rank=True, goodness=small)
    assert found.level == Level.NONE
    assert [check.name for check in found.checks[:2]] == ["agreement", "fit"]
    assert found["fit"].verdict == "holds"


def test_a_full_rank_mixture_shows_no_affine_map():
    """A flow under such a mixture describes rows of other models too, and its restarts agree."""
    mixture = Mixture([0.5, 0.5], [[0, 0], [3, 1]], [[1, 0.5], [1, 1]])
    given = {"mixture": mixture, "full_rank": True, "goodness": Goodness(np.zeros(2), 0.5, 1000)}
    found = certified(None, np.ones((2, 2), dtype=bool), **given)
    assert found["fit"].verdict == "holds"
    assert found["full rank"].verdict == "inconclusive"
    assert found.if_undecided_hold > found.level == Level.NONE


def test_rows_that_may_be_sparse_in_another_basis_are_doubted():
    """Every latent is active in many rows, and four of eight in the others; by chance this raises no doubt."""
    patterns = np.array(list(itertools.product([False, True], repeat=8)))
    four, every = patterns.sum(1) == 4, patterns.all(1)
    assert other_basis(patterns, 0.6 * four / four.sum() + 0.4 * every).verdict == "inconclusive"
    assert other_basis(patterns, four / four.sum()) is None
    assert other_basis(patterns, np.where(patterns, 0.8, 0.2).prod(1)) is None
