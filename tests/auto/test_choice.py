"""The rules of the choice of a model, on made-up likelihoods and agreements."""

import numpy as np
import pytest

from identifiable import FitFailedError
from identifiable.auto.choice import RULES, best_linear, choose, is_exact, margin, pick, selection_chances
from identifiable.auto.verdict import LATE, Candidate


def candidate(name, gain, agreement=0.99, *, linear=False, note="", **known):
    return Candidate(name, "a mixture", linear, False, gain, 0.01, agreement, note=note, **known)


def gains_of(pool, own=0.1):
    """Return gains per row: what makes a row likely is much the same for all models."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=500)
    noise = {c.name: rng.normal(size=500) for c in pool}
    return {c.name: c.gain + rows - rows.mean() + own * (noise[c.name] - noise[c.name].mean()) for c in pool}


LINEAR = {"linear": True}


@pytest.mark.parametrize(
    ("pool", "chosen"),
    [
        ([candidate("PDGMM", 8.36, 0.989), candidate("GMMFlow", 8.68, 0.979)], "PDGMM"),  # close: the simpler
        ([candidate("PDGMM", 9.1, 0.992), candidate("GMMFlow", 10.1, 0.983)], "PDGMM"),  # densities without a bound
        ([candidate("PDGMM", 5.0, 0.99), candidate("GMMFlow", 10.1, 0.983)], "GMMFlow"),
        ([candidate("FactorialUnmixing", 2.195, **LINEAR), candidate("GMMFlow", 2.2)], "FactorialUnmixing"),
        # .05 is much, row by row
        ([candidate("FactorialUnmixing", 2.15, **LINEAR), candidate("GMMFlow", 2.2)], "GMMFlow"),
        ([candidate("FactorialUnmixing", 1.2, **LINEAR), candidate("GMMFlow", 2.2, 0.75)], "FactorialUnmixing"),
        ([candidate("PDGMM", 1.2, 0.5), candidate("GMMFlow", 2.2, 0.5)], "GMMFlow"),
        # a reproducible linear model is not replaced by a flow whose restarts disagree, or that finds the same latents
        ([candidate("LinearICA", 1.2, halves=(0.99, 0.98), **LINEAR), candidate("PDGMM", 2.2, 0.87)], "LinearICA"),
        ([candidate("LinearICA", 1.2, halves=(0.99, 0.8), **LINEAR), candidate("PDGMM", 2.2, 0.87)], "PDGMM"),
        ([candidate("LinearICA", 1.2, **LINEAR), candidate("PDGMM", 2.2, like_linear=0.99)], "LinearICA"),
        # a nonlinear model has to be better than the linear ones, however close to the best
        ([candidate("FactorialUnmixing", 2.1, **LINEAR), candidate("PDGMM", 2), candidate("GMMFlow", 2.2)], "GMMFlow"),
    ],
)
def test_pick(pool, chosen):
    assert pick(pool, gains_of(pool)).chosen.name == chosen


def test_gaussian_gains_pick_nothing():
    pool = [candidate("PDGMM", 0.02), candidate("GMMFlow", -1.0)]
    assert pick(pool, {}) is None
    selection = choose(pool, gains_of(pool), inactive=2, n=2, seed=0)
    assert (selection.name, selection.gaussian) == ("PDGMM", True)


def test_exactly_inactive_latents_select_the_sparse_model():
    pool = [candidate("SparseUnmixing", 3.0, **LINEAR), candidate("FactorialUnmixing", 4.0, **LINEAR)]
    assert choose(pool, gains_of(pool), inactive=2, n=3, seed=0).name == "SparseUnmixing"
    assert choose(pool, gains_of(pool), inactive=1, n=3, seed=0).name == "FactorialUnmixing"
    assert [is_exact(k, 4) for k in (2, 3)] == [False, True]


def test_choose_reports_late_and_unreliable_models():
    late = Candidate("VaDE", "", False, False, note=LATE)
    pool = [candidate("PDGMM", 2.0), candidate("GMMFlow", 3.0, 0.5)]
    selection = choose([*pool, late], gains_of(pool), inactive=0, n=2, seed=0)
    assert selection.name == "PDGMM"
    assert "VaDE" in selection.reasons[0]
    assert "GMMFlow" in selection.reasons[1]
    assert "PDGMM" in selection.reasons[-1]
    assert all(selection.reasons)
    with pytest.raises(FitFailedError, match="VaDE"):
        choose([late], {}, inactive=0, n=2, seed=0)


def test_alternatives_are_models_that_other_rows_would_select():
    close = [candidate("IFlow", 2.21), candidate("GMMFlow", 2.32)]
    chances = selection_chances("IFlow", close, gains_of(close, 0.3), seed=0)
    assert sum(chances.values()) == pytest.approx(1)
    assert 0.1 < chances["GMMFlow"] < 0.9
    alternatives = choose(close, gains_of(close, 0.3), inactive=0, n=2, seed=0).alternatives
    assert alternatives == {"GMMFlow": chances["GMMFlow"]}
    far = [candidate("IFlow", 2.2), candidate("GMMFlow", 1.0)]
    assert selection_chances("IFlow", far, gains_of(far), seed=0) == {"IFlow": 1.0}


def test_margin_is_wider_for_stable_models_with_inactive_latents():
    assert margin(candidate("PDGMM", 1.0, 0.97)) == RULES.close_inactive
    assert margin(candidate("PDGMM", 1.0, 0.95)) == margin(candidate("GMMFlow", 1.0)) == RULES.close


def test_candidate_on_other_rows():
    gains = np.array([1.0, 2.0, 3.0])
    on = candidate("PDGMM", 9.0).on(gains)
    assert (on.name, on.gain, on.error) == ("PDGMM", 2.0, pytest.approx(gains.std() / 3**0.5))


def test_agreement_between_halves_decides_between_linear_models_before_likelihood():
    unstable = candidate("SegmentUnmixing", 5.0, halves=(0.99, 0.7), **LINEAR)
    stable = candidate("LinearICA", 1.0, halves=(0.99, 0.98), **LINEAR)
    likelier = candidate("FactorialUnmixing", 2.0, halves=(0.97, 0.95), **LINEAR)
    assert best_linear([unstable, stable]) is stable
    assert best_linear([unstable, stable, likelier]) is likelier  # about as reproducible
    assert best_linear([candidate("PDGMM", 1.0)]) is None
    inactive = candidate("SparseUnmixing", 0.5, halves=(0.99, 0.99), inactive=1, **LINEAR)
    assert best_linear([stable, inactive]) is inactive


def test_a_test_on_all_rows_shows_latents_that_few_held_out_rows_do_not():
    shown = candidate("LinearICA", 0.01, non_gaussian=True, **LINEAR)
    assert pick([shown], gains_of([shown])).chosen is shown
    assert pick([candidate("LinearICA", 0.01, **LINEAR)], {}) is None
