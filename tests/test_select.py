"""Choice without labels: what is identified comes back from other rows, what is not does not, and nothing is hidden."""

import warnings
from inspect import signature

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA, FastICA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from identifiable import (
    DataError,
    FitFailedError,
    IndependentComponents,
    PrincipalComponents,
    RawData,
    RecoveryWarning,
    SegmentUnmixing,
    SparseUnmixing,
    agreement_of_halves,
    choose,
)
from identifiable.data import make_pdgmm, make_segments
from identifiable.estimators.base import Stability
from identifiable.metrics import mcc

SEEDS = [0, 1, 2]


def affine(seed, rows=1000, n=5):
    """An affine mixture of latents that rest half of the time."""
    return make_pdgmm(rows, n=n, layers=1, delta=2, random_state=seed)


class Rotation(BaseEstimator):
    """A random rotation: whatever it returns, it learnt nothing. Its quality is what it is told."""

    def __init__(self, width=5, quality=0.0, random_state=None):
        self.width = width
        self.quality = quality
        self.random_state = random_state

    def fit(self, X, y=None):
        rng = np.random.default_rng(self.random_state)
        self.axes_ = np.linalg.qr(rng.normal(size=(X.shape[1], X.shape[1])))[0][:, : self.width]
        return self

    def transform(self, X):
        return np.asarray(X) @ self.axes_

    def score(self, X):
        return self.quality


class Fixed(Rotation):
    """The first columns, and restarts that say how far they agree."""

    def __init__(self, width=5, quality=0.0, agreement=0.99, random_state=None):
        super().__init__(width, quality, random_state)
        self.agreement = agreement

    def fit(self, X, y=None):
        self.axes_ = np.eye(X.shape[1])[:, : self.width]
        self.stability_ = Stability(np.array([[1, self.agreement], [self.agreement, 1]]))
        return self


class Twin(Fixed):
    """Another class that does the same."""


class Failing(Fixed):
    def fit(self, X, y=None):
        raise FitFailedError("No restart has finite latents.")


class Infinite(Rotation):
    def transform(self, X):
        return super().transform(X) / np.zeros(1)


class Probe(Fixed):
    """Records the rows it is given; the first column is their number."""

    seen: tuple[list, list] = ([], [])

    def fit(self, X, y=None):
        self.seen[0].append(np.asarray(X)[:, 0].astype(int))
        return super().fit(X)

    def transform(self, X):
        self.seen[1].append(np.asarray(X)[:, 0].astype(int))
        return super().transform(X)

    def score(self, X):
        self.seen[1].append(np.asarray(X)[:, 0].astype(int))
        return 0.0


@pytest.fixture
def seen():
    for rows in Probe.seen:
        rows.clear()
    return Probe.seen


@pytest.fixture
def noise():
    return np.random.default_rng(0).normal(size=(400, 5))


@pytest.mark.parametrize("seed", SEEDS)
def test_identified_latents_come_back_from_other_rows(seed):
    sample = affine(seed)
    halves = agreement_of_halves(SparseUnmixing(5), sample.x, random_state=seed)
    assert halves.score > 0.999
    assert halves.status == "stable"
    assert halves.correlations.shape == (5,)
    assert halves.score == pytest.approx(np.abs(halves.correlations).mean())
    one, other = (model.transform(sample.x) for model in halves.models)
    assert mcc(one, other) > 0.999


@pytest.mark.parametrize(
    "estimator", [IndependentComponents(5, n_restarts=1), PrincipalComponents(5), FastICA(), Rotation()], ids=str
)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.filterwarnings("ignore")
def test_isotropic_noise_is_unstable(estimator, seed):
    x = np.random.default_rng(seed).normal(size=(1000, 5))
    assert agreement_of_halves(estimator, x, random_state=seed).status == "unstable"


def test_the_score_is_the_mcc_of_the_held_out_rows(seen, noise):
    noise[:, 0] = np.arange(400)
    halves = agreement_of_halves(Probe(), noise, random_state=0)
    held = noise[seen[1][0]]
    one, other = (model.transform(held) for model in halves.models)
    assert halves.score == pytest.approx(mcc(one, other)) == pytest.approx(1)


@pytest.mark.parametrize(("rows", "held"), [(100, 10), (1003, 100), (15_000, 1000)])
def test_halves_are_disjoint_and_neither_sees_the_held_out_rows(seen, rows, held):
    x = np.random.default_rng(0).normal(size=(rows, 2))
    x[:, 0] = np.arange(rows)
    agreement_of_halves(Probe(2), x, random_state=1)
    (a, b), compared = seen
    assert np.array_equal(np.sort(np.concatenate([a, b, compared[0]])), np.arange(rows))
    assert len(compared[0]) == held
    assert abs(len(a) - len(b)) <= 1
    assert all(np.array_equal(one, compared[0]) for one in compared)


def test_no_candidate_sees_the_held_out_rows(seen, noise):
    noise[:, 0] = np.arange(400)
    choose([Probe(quality=1), Probe(quality=2)], noise, random_state=1)
    fitted, compared = (set(np.concatenate(rows)) for rows in seen)
    assert not fitted & compared
    assert fitted | compared == set(range(400))


def test_latents_one_half_lacks_count_as_zero(noise):
    class Uneven(Fixed):
        def fit(self, X, y=None):
            self.width = 3 + self.random_state % 2
            return super().fit(X)

    found = agreement_of_halves(Uneven(), noise, random_state=0)
    assert found.score == pytest.approx(3 / 4)
    assert sorted(np.abs(found.correlations).round(6)) == [0, 1, 1, 1]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_latents_that_are_not_finite_agree_with_none(noise):
    assert agreement_of_halves(Infinite(), noise, random_state=0).score == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_identified_is_chosen_over_what_merely_repeats_itself(seed):
    sample = affine(seed)
    repeating = [RawData(), PrincipalComponents(5), PrincipalComponents(5, n_restarts=3), PCA(), Rotation()]
    choice = choose([*repeating, SparseUnmixing(5)], sample.x, random_state=seed)
    assert choice.best == "SparseUnmixing(n_latents=5)"
    assert choice.tied == ()
    assert mcc(sample.z, choice.best_estimator.transform(sample.x)) > 0.999


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_raw_columns_agree_with_themselves_and_are_found_out_in_other_coordinates():
    table = choose([RawData()], affine(0).x, random_state=0).table.set_index("name")
    assert table.agreement["RawData()"] == pytest.approx(1)
    assert table.remixed["RawData()"] < 0.9
    assert table.status["RawData()"] == "unstable"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_other_coordinates_are_more_than_a_rotation(seed):
    """A rotation of columns of unit scale changes no principal component."""
    x = StandardScaler().fit_transform(affine(seed).x)
    assert choose([PCA()], x, random_state=seed).table.remixed[0] < 0.98


def test_restarts_that_agree_on_noise_are_found_out_by_halves():
    """Four starts of FastICA on the same rows end at the same accident of these rows."""
    x = np.random.default_rng(0).normal(size=(2000, 4))
    with pytest.warns(RecoveryWarning, match="None of the 1 candidates is to be trusted"):
        choice = choose([IndependentComponents(4)], x, random_state=0)
    row = choice.table.iloc[0]
    assert row.agreement > 0.96 > 0.9 > row.halves
    assert row.status == "unstable"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_the_number_of_latents_is_found(seed):
    candidates = {n: SparseUnmixing(n, n_restarts=2, noisy=False) for n in (4, 5, 6)}
    assert choose(candidates, affine(seed).x, random_state=seed).best == 5


def test_ties_go_to_more_latents_then_to_the_score_within_a_class(noise):
    assert choose([Fixed(3, quality=9), Fixed(4), Fixed(2)], noise).best_estimator.width == 4
    assert choose({"a": Fixed(), "b": Fixed(quality=1), "c": Fixed(quality=0.5)}, noise).best == "b"
    across = choose({"a": Fixed(), "b": Twin(quality=1)}, noise)
    assert (across.best, across.tied) == ("a", ("b",))
    assert choose({"a": Fixed(), "b": Twin(quality=2), "c": Fixed(quality=1)}, noise).best == "c"
    assert choose({"a": Fixed(), "b": Twin(agreement=0.992)}, noise).best == "b"


def test_agreement_decides_beyond_a_tie(noise):
    choice = choose({"a": Fixed(5, quality=9, agreement=0.95), "b": Fixed(2, agreement=0.956)}, noise)
    assert (choice.best, choice.tied) == ("b", ())
    assert choice.table["name"].tolist() == ["b", "a"]
    assert choice.table.agreement.tolist() == [0.956, 0.95]


def test_the_status_follows_the_thresholds(noise):
    for agreement, status in ((0.965, "stable"), (0.955, "doubtful"), (0.905, "doubtful")):
        assert choose([Fixed(agreement=agreement)], noise).table.status.tolist() == [status]
    with pytest.warns(RecoveryWarning, match=r"the best, bad, agrees with itself at 0.89 only"):
        choose({"bad": Fixed(agreement=0.89), "worse": Fixed(agreement=0.5)}, noise)


def test_a_good_choice_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choose([SparseUnmixing(5)], affine(0).x, random_state=0)


def test_failures_are_listed(noise):
    with pytest.warns(RecoveryWarning, match="bad failed: No restart has finite latents"):
        choice = choose({"bad": Failing(), "good": Fixed()}, noise)
    assert choice.best == "good"
    assert choice.table["name"].tolist() == ["good", "bad"]
    assert choice.table.status.tolist() == ["stable", "failed"]
    assert np.isnan(choice.table.agreement[1])
    with pytest.warns(RecoveryWarning), pytest.raises(FitFailedError, match="No candidate could be fitted: one, two"):
        choose({"one": Failing(), "two": Failing()}, noise)


def test_a_frame_gives_what_its_array_gives():
    x = affine(0).x
    frame = pd.DataFrame(x, columns=list("abcde"), index=np.arange(len(x))[::-1])
    of_frame, of_array = (agreement_of_halves(SparseUnmixing(5), X, random_state=0) for X in (frame, x))
    assert of_frame.score == of_array.score
    assert list(of_frame.models[0].feature_names_in_) == list("abcde")
    choice = choose([PrincipalComponents(5), SparseUnmixing(5)], frame, random_state=0)
    assert choice.best == "SparseUnmixing(n_latents=5)"
    assert list(choice.best_estimator.feature_names_in_) == list("abcde")


def test_an_estimator_that_refuses_other_coordinates_is_judged_by_its_halves(noise):
    class Positive(Rotation):
        def fit(self, X, y=None):
            if np.min(X) < 0:
                raise DataError("positive numbers only")
            self.axes_ = np.eye(X.shape[1])
            return self

    row = choose([Positive()], np.abs(noise), random_state=0).table.iloc[0]
    assert row.agreement == pytest.approx(1)
    assert np.isnan(row.remixed)


def test_seeds_inside_a_pipeline_differ():
    halves = agreement_of_halves(make_pipeline(StandardScaler(), Rotation()), affine(0).x, random_state=0)
    seeds = [model.get_params()["rotation__random_state"] for model in halves.models]
    assert seeds[0] != seeds[1]
    assert halves.status == "unstable"


def test_the_same_random_state_gives_the_same_result(noise):
    candidates = {"rotation": Rotation(), "PCA": PrincipalComponents(3), "fixed": Fixed()}
    one, two = (choose(candidates, noise, random_state=3) for _ in range(2))
    pd.testing.assert_frame_equal(one.table.drop(columns="seconds"), two.table.drop(columns="seconds"))
    scores = [agreement_of_halves(Rotation(), noise, random_state=s).score for s in (3, 3, 4)]
    assert scores[0] == scores[1] != scores[2]


def test_candidates_are_left_unfitted(noise):
    estimator = Fixed(random_state=7)
    choose([estimator], noise)
    agreement_of_halves(estimator, noise)
    assert not hasattr(estimator, "axes_")
    assert estimator.random_state == 7


def test_a_list_is_named_by_what_it_prints(noise):
    names = choose([Fixed(3), Fixed(), Fixed()], noise).table["name"]
    assert set(names) == {"Fixed(width=3)", "Fixed()", "Fixed() #3"}


@pytest.mark.parametrize("call", [lambda x: agreement_of_halves(Fixed(), x), lambda x: choose([Fixed()], x)])
@pytest.mark.parametrize("shape", [(99, 3), (0, 3), (500,), (200, 3, 2)])
def test_too_few_rows_are_refused(call, shape):
    with pytest.raises(DataError, match=r"at least 100 rows, so that ten can be held out; got shape .* Pass more rows"):
        call(np.zeros(shape))


def test_no_candidates_are_refused(noise):
    with pytest.raises(DataError, match="at least one candidate, got none"):
        choose({}, noise)


def test_the_truth_is_never_asked_for():
    assert list(signature(agreement_of_halves).parameters) == ["estimator", "X", "u", "random_state"]
    assert list(signature(choose).parameters) == ["candidates", "X", "u", "random_state"]


def test_what_is_printed_says_what_agreement_is_not(noise):
    assert "necessary for recovery, not sufficient" in repr(agreement_of_halves(Fixed(), noise))
    printed = repr(choose({"a": Fixed(), "b": Twin()}, noise))
    assert "Choice('a'; tied with 'b'; agreement is necessary for recovery, not sufficient)" in printed
    assert "nan" not in printed.lower()


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_the_picture_has_a_bar_per_candidate_and_two_thresholds(noise):
    from matplotlib.figure import Figure

    choice = choose({"bad": Failing(), "a": Fixed(agreement=0.95), "b": Fixed(agreement=0.91)}, noise)
    axes = choice.plot()
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.95, 0.91, 0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "bad"]
    assert [line.get_xdata()[0] for line in axes.lines] == [0.90, 0.96]
    given = Figure().subplots()
    assert choice.plot(given) is given


def test_what_fit_needs_beside_x_goes_along_row_by_row():
    """With u, SegmentUnmixing finds the latents on both halves; with a shuffled u there is nothing to find."""
    s = make_segments(4000, segments=8, n=3, layers=1, random_state=0)
    names = np.array(list("abcdefgh"))[s.u]
    assert agreement_of_halves(SegmentUnmixing(3), s.x, names, random_state=0).score > 0.99
    shuffled = np.random.default_rng(0).permutation(names)
    assert agreement_of_halves(SegmentUnmixing(3), s.x, shuffled, random_state=0).score < 0.99
    frame = pd.DataFrame({"segment": names})
    choice = choose({"segments": SegmentUnmixing(3), "PCA": PrincipalComponents(3)}, s.x, frame, random_state=0)
    assert choice.best == "segments"
    with pytest.raises(DataError, match="X has 4000, u has 3999"):
        agreement_of_halves(SegmentUnmixing(3), s.x, names[1:])
