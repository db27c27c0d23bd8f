"""choose: reproducible latents are selected, the others are detected, and every failure is reported."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA, FastICA

from fake_estimators import Failing, Fixed, Positive, Probe, Rotation, Twin, numbered
from identifiable import (
    DataError,
    FitFailedError,
    IndependentComponents,
    PrincipalComponents,
    RawData,
    RecoveryWarning,
    SegmentUnmixing,
    SparseUnmixing,
    choose,
    split_half_agreement,
)
from identifiable.data import make_pdgmm, make_segments
from identifiable.metrics import mcc

SEEDS = [0, 1, 2]


def affine(seed):
    """An affine mixture of latents that are inactive half of the time."""
    return make_pdgmm(1000, n=5, layers=1, delta=2, random_state=seed)


@pytest.fixture
def noise():
    return np.random.default_rng(0).normal(size=(400, 5))


@pytest.mark.parametrize("seed", SEEDS)
def test_halves_of_identified_latents_agree(seed):
    sample = affine(seed)
    halves = split_half_agreement(SparseUnmixing(5), sample.x, random_state=seed)
    assert halves.score > 0.999
    assert halves.status == "stable"
    assert halves.correlations.shape == (5,)
    one, other = (model.transform(sample.x) for model in halves.models)
    assert mcc(one, other) > 0.999
    assert "not sufficient" in repr(halves)


@pytest.mark.parametrize(
    "estimator", [IndependentComponents(5, n_restarts=1), PrincipalComponents(5), FastICA(), Rotation()], ids=str
)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.filterwarnings("ignore")
def test_halves_of_isotropic_noise_disagree(estimator, seed):
    x = np.random.default_rng(seed).normal(size=(1000, 5))
    assert split_half_agreement(estimator, x, random_state=seed).status == "unstable"


def test_no_candidate_sees_the_held_out_rows():
    choose([Probe(quality=1), Probe(quality=2)], numbered(400, 5), random_state=1)
    fitted, compared = set(np.concatenate(Probe.fitted)), set(np.concatenate(Probe.compared))
    assert not fitted & compared
    assert fitted | compared == set(range(400))


@pytest.mark.parametrize("seed", SEEDS)
def test_identified_latents_are_chosen_over_merely_repeated_ones(seed):
    sample = affine(seed)
    repeating = [RawData(), PrincipalComponents(5), PrincipalComponents(5, n_restarts=3), PCA(), Rotation()]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RecoveryWarning)
        choice = choose([*repeating, SparseUnmixing(5)], sample.x, random_state=seed)
    assert choice.best == "SparseUnmixing(n_latents=5)"
    assert choice.tied == ()
    assert mcc(sample.z, choice.best_estimator.transform(sample.x)) > 0.999
    remixed = choice.table.set_index("name").remixed
    assert choice.table.set_index("name").agreement["RawData()"] == pytest.approx(1)
    assert remixed["RawData()"] < 0.9
    assert remixed["PCA()"] < 0.98


def test_halves_detect_restarts_that_agree_on_noise():
    """Four restarts of FastICA on the same rows find the same accident of these rows."""
    x = np.random.default_rng(0).normal(size=(2000, 4))
    with pytest.warns(RecoveryWarning, match="None of the 1 candidates"):
        choice = choose([IndependentComponents(4)], x, random_state=0)
    row = choice.table.iloc[0]
    assert row.agreement > 0.96 > 0.9 > row.halves
    assert row.status == "unstable"


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_number_of_latents_is_chosen():
    candidates = {n: SparseUnmixing(n, n_restarts=2, noisy=False) for n in (4, 5, 6)}
    assert choose(candidates, affine(0).x, random_state=0).best == 5


@pytest.mark.parametrize(
    ("candidates", "best", "tied"),
    [
        ({"a": Fixed(3, quality=9), "b": Fixed(4), "c": Fixed(2)}, "b", ("a", "c")),  # more latents
        ({"a": Fixed(), "b": Fixed(quality=1), "c": Fixed(quality=0.5)}, "b", ("a", "c")),  # the score in a class
        ({"a": Fixed(), "b": Twin(quality=1)}, "a", ("b",)),  # but not across classes
        ({"a": Fixed(), "b": Twin(quality=2), "c": Fixed(quality=1)}, "c", ("a", "b")),
        ({"a": Fixed(), "b": Twin(agreement=0.992)}, "b", ("a",)),  # the higher agreement
        ({"a": Fixed(5, quality=9, agreement=0.95), "b": Fixed(2, agreement=0.956)}, "b", ()),  # beyond a tie
    ],
)
def test_ties(noise, candidates, best, tied):
    choice = choose(candidates, noise)
    assert (choice.best, choice.tied) == (best, tied)
    assert choice.table["name"][0] == best


def test_status_follows_the_thresholds(noise):
    for agreement, status in ((0.965, "stable"), (0.955, "doubtful"), (0.905, "doubtful")):
        assert choose([Fixed(agreement=agreement)], noise).table.status.tolist() == [status]
    with pytest.warns(RecoveryWarning, match=r"bad.*0.89"):
        choose({"bad": Fixed(agreement=0.89), "worse": Fixed(agreement=0.5)}, noise)


def test_failures_are_listed(noise):
    with pytest.warns(RecoveryWarning, match="bad failed"):
        choice = choose({"bad": Failing(), "good": Fixed()}, noise)
    assert choice.table["name"].tolist() == ["good", "bad"]
    assert choice.table.status.tolist() == ["stable", "failed"]
    assert np.isnan(choice.table.agreement[1])
    with pytest.warns(RecoveryWarning), pytest.raises(FitFailedError, match="one, two"):
        choose({"one": Failing(), "two": Failing()}, noise)


def test_test_in_other_coordinates_is_reported_where_it_is_refused(noise):
    choice = choose([Positive(), Rotation()], np.abs(noise), random_state=0)
    rows = choice.table.set_index("name")
    assert rows.agreement["Positive()"] == pytest.approx(1)
    assert np.isnan(rows.remixed["Positive()"])
    assert "positive numbers only" in rows.note["Positive()"]
    assert rows.note["Rotation()"] == ""
    assert "positive numbers only" in repr(choice)


def test_random_state_determines_the_result(noise):
    candidates = {"rotation": Rotation(), "PCA": PrincipalComponents(3), "fixed": Fixed()}
    one, two = (choose(candidates, noise, random_state=3) for _ in range(2))
    pd.testing.assert_frame_equal(one.table.drop(columns="seconds"), two.table.drop(columns="seconds"))
    scores = [split_half_agreement(Rotation(), noise, random_state=s).score for s in (3, 3, 4)]
    assert scores[0] == scores[1] != scores[2]


def test_listed_candidates_are_named_by_their_repr(noise):
    choice = choose([Fixed(3), Fixed(), Fixed()], noise)
    assert set(choice.table["name"]) == {"Fixed(width=3)", "Fixed()", "Fixed() #3"}
    assert "nan" not in repr(choice).lower()
    assert len(choice.plot().get_yticklabels()) == 3
    with pytest.raises(DataError, match="at least one candidate"):
        choose({}, noise)


def test_u_is_passed_row_by_row():
    """With u, SegmentUnmixing finds the latents on both halves; a shuffled u contains no information."""
    s = make_segments(4000, segments=8, n=3, layers=1, random_state=0)
    names = np.array(list("abcdefgh"))[s.u]
    assert split_half_agreement(SegmentUnmixing(3), s.x, names, random_state=0).score > 0.99
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        shuffled = split_half_agreement(
            SegmentUnmixing(3), s.x, np.random.default_rng(0).permutation(names), random_state=0
        )
    assert shuffled.score < 0.99
    candidates = {"segments": SegmentUnmixing(3), "PCA": PrincipalComponents(3)}
    assert choose(candidates, s.x, pd.DataFrame({"segment": names}), random_state=0).best == "segments"
