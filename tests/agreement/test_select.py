"""Choice without labels: what is identified comes back from other rows, what is not does not, and nothing is hidden."""

import warnings
from inspect import signature
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA, FastICA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from identifiable import (
    PDGMM,
    VAE,
    DataError,
    DegenerateGaussianMixture,
    FitFailedError,
    IndependentComponents,
    Mixture,
    PrincipalComponents,
    RawData,
    RecoveryWarning,
    SegmentUnmixing,
    SparseUnmixing,
    Stability,
    choose,
    load,
    persist,
    save,
    split_half_agreement,
    stability,
)
from identifiable.data import make_pdgmm, make_segments
from identifiable.estimators import base
from identifiable.estimators.pdgmm.batch import Trained
from identifiable.metrics import mcc, weak_mcc
from identifiable.metrics.latents import canonical_directions
from identifiable.priors.masked import FullGaussians

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
    halves = split_half_agreement(SparseUnmixing(5), sample.x, random_state=seed)
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
    assert split_half_agreement(estimator, x, random_state=seed).status == "unstable"


def test_the_score_is_the_mcc_of_the_held_out_rows(seen, noise):
    noise[:, 0] = np.arange(400)
    halves = split_half_agreement(Probe(), noise, random_state=0)
    held = noise[seen[1][0]]
    one, other = (model.transform(held) for model in halves.models)
    assert halves.score == pytest.approx(mcc(one, other)) == pytest.approx(1)


@pytest.mark.parametrize(("rows", "held"), [(100, 10), (1003, 100), (15_000, 1000)])
def test_halves_are_disjoint_and_neither_sees_the_held_out_rows(seen, rows, held):
    x = np.random.default_rng(0).normal(size=(rows, 2))
    x[:, 0] = np.arange(rows)
    split_half_agreement(Probe(2), x, random_state=1)
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

    found = split_half_agreement(Uneven(), noise, random_state=0)
    assert found.score == pytest.approx(3 / 4)
    assert sorted(np.abs(found.correlations).round(6)) == [0, 1, 1, 1]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_latents_that_are_not_finite_agree_with_none(noise):
    assert split_half_agreement(Infinite(), noise, random_state=0).score == 0


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
    of_frame, of_array = (split_half_agreement(SparseUnmixing(5), X, random_state=0) for X in (frame, x))
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
    halves = split_half_agreement(make_pipeline(StandardScaler(), Rotation()), affine(0).x, random_state=0)
    seeds = [model.get_params()["rotation__random_state"] for model in halves.models]
    assert seeds[0] != seeds[1]
    assert halves.status == "unstable"


def test_the_same_random_state_gives_the_same_result(noise):
    candidates = {"rotation": Rotation(), "PCA": PrincipalComponents(3), "fixed": Fixed()}
    one, two = (choose(candidates, noise, random_state=3) for _ in range(2))
    pd.testing.assert_frame_equal(one.table.drop(columns="seconds"), two.table.drop(columns="seconds"))
    scores = [split_half_agreement(Rotation(), noise, random_state=s).score for s in (3, 3, 4)]
    assert scores[0] == scores[1] != scores[2]


def test_candidates_are_left_unfitted(noise):
    estimator = Fixed(random_state=7)
    choose([estimator], noise)
    split_half_agreement(estimator, noise)
    assert not hasattr(estimator, "axes_")
    assert estimator.random_state == 7


def test_a_list_is_named_by_what_it_prints(noise):
    names = choose([Fixed(3), Fixed(), Fixed()], noise).table["name"]
    assert set(names) == {"Fixed(width=3)", "Fixed()", "Fixed() #3"}


@pytest.mark.parametrize("call", [lambda x: split_half_agreement(Fixed(), x), lambda x: choose([Fixed()], x)])
@pytest.mark.parametrize("shape", [(99, 3), (0, 3), (500,), (200, 3, 2)])
def test_too_few_rows_are_refused(call, shape):
    with pytest.raises(DataError, match=r"at least 100 rows, so that ten can be held out; got shape .* Pass more rows"):
        call(np.zeros(shape))


def test_no_candidates_are_refused(noise):
    with pytest.raises(DataError, match="at least one candidate, got none"):
        choose({}, noise)


def test_the_truth_is_never_asked_for():
    assert list(signature(split_half_agreement).parameters) == ["estimator", "X", "u", "random_state"]
    assert list(signature(choose).parameters) == ["candidates", "X", "u", "random_state"]
    assert list(signature(stability).parameters) == ["runs", "X", "distances", "random_state"]


def test_what_is_printed_says_what_agreement_is_not(noise):
    assert "necessary for recovery, not sufficient" in repr(split_half_agreement(Fixed(), noise))
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
    assert split_half_agreement(SegmentUnmixing(3), s.x, names, random_state=0).score > 0.99
    shuffled = np.random.default_rng(0).permutation(names)
    assert split_half_agreement(SegmentUnmixing(3), s.x, shuffled, random_state=0).score < 0.99
    frame = pd.DataFrame({"segment": names})
    choice = choose({"segments": SegmentUnmixing(3), "PCA": PrincipalComponents(3)}, s.x, frame, random_state=0)
    assert choice.best == "segments"
    with pytest.raises(DataError, match="X has 4000, u has 3999"):
        split_half_agreement(SegmentUnmixing(3), s.x, names[1:])


# -- agreement between runs -------------------------------------------------------


class Affine(BaseEstimator):
    """z = M x + b, and the law of z when x follows a mixture."""

    def __init__(self, matrix, offset=0.0, law=None):
        self.matrix = matrix
        self.offset = offset
        self.mixture_ = None if law is None else law.pushforward(matrix, np.zeros(len(matrix)) + offset)

    def transform(self, X):
        return np.asarray(X) @ np.transpose(self.matrix) + self.offset


def affine_images(seed, runs=3, rows=1000, n=4):
    """Latents, skewed so that their axes are not those of any rotation, under random affine maps."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, n)) ** 2
    return [z @ rng.normal(size=(n, n)) + rng.normal(size=n) for _ in range(runs)]


def law(components=3, seed=0, m=2):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(components, m, m))
    covariances = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(m)
    return Mixture(rng.dirichlet(np.full(components, 5.0)), 3 * rng.normal(size=(components, m)), covariances)


def laws(p, seed=0, runs=3):
    rng = np.random.default_rng(seed)
    return [Affine(rng.normal(size=(2, 2)), rng.normal(size=2), p) for _ in range(runs)]


@pytest.mark.parametrize("seed", SEEDS)
def test_order_and_scale_do_not_matter_to_runs(seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(500, 4))
    found = stability([z[:, rng.permutation(4)] * rng.normal(size=4) + 7 for _ in range(3)], random_state=seed)
    np.testing.assert_allclose(found.pairwise, 1)
    np.testing.assert_allclose(found.weak, 1)
    assert (found.status, found.other_axes) == ("stable", False)
    assert found.reading == "The runs agree on the latents up to order and scale (1.00)."


@pytest.mark.parametrize("seed", SEEDS)
def test_affine_images_have_the_same_span_and_other_axes(seed):
    found = stability(affine_images(seed), random_state=seed)
    np.testing.assert_allclose(found.weak, 1)
    assert found.score < 0.9
    assert (found.status, found.other_axes) == ("unstable", True)
    words = f"agree on the span of the latents (1.00 after an affine alignment), not on the axes ({found.score:.2f})"
    assert words in found.reading
    assert found.check.verdict == "fails"
    assert found.check.sentence.endswith("not recovered. After an affine alignment they agree at 1.00.")


@pytest.mark.parametrize(("n", "rows_fitted"), [(5, 30), (14, 30), (14, 60)])
def test_an_alignment_is_not_scored_on_the_rows_it_was_fitted_to(n, rows_fitted):
    """Noise agrees as noise of 30 rows does by chance; on the rows an alignment was fitted to, it would agree more."""
    weak, chance, in_sample = [], [], []
    for seed in range(20):
        a, b = np.random.default_rng(seed).normal(size=(2, 60, n))
        weak.append(stability([a, b], random_state=seed).weak[0, 1])
        chance.append(mcc(a[:30], b[:30]))
        to_a, to_b = canonical_directions(a[:rows_fitted], b[:rows_fitted], n)
        in_sample.append(mcc(a[:rows_fitted] @ to_a, b[:rows_fitted] @ to_b))
    assert np.mean(weak) < np.mean(chance) + 0.03 < np.mean(in_sample)


def test_the_matrices_hold_the_numbers_of_every_pair():
    runs = [*affine_images(0, runs=2, rows=200), np.random.default_rng(1).normal(size=(200, 4))]
    runs[1] += np.random.default_rng(2).normal(size=runs[1].shape)
    found = Stability.of(runs, seed=3)
    for r, s in pairwise((0, 1, 2, 0)):
        assert found.pairwise[r, s] == pytest.approx(mcc(runs[r], runs[s]))
        assert found.weak[r, s] == pytest.approx(weak_mcc(runs[r], runs[s], random_state=3))
    for matrix in (found.pairwise, found.weak):
        np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
        np.testing.assert_allclose(np.diag(matrix), 1)
    assert found.weak_score == pytest.approx(np.delete(found.weak[found.chosen], found.chosen).mean())


@pytest.mark.parametrize("seed", SEEDS)
def test_mixtures_that_an_affine_map_makes_equal_are_not_apart(seed):
    x = np.random.default_rng(seed).normal(size=(100, 2))
    found = stability([*laws(law(), seed, runs=2), Affine(np.eye(2), law=law(seed=9))], x, random_state=seed)
    assert found.distances[0, 1] < 1e-6 < 0.1 < found.distances[0, 2]
    np.testing.assert_array_equal(found.distances, found.distances.T)
    np.testing.assert_array_equal(np.diag(found.distances), 0)
    assert "up to an affine map their mixtures are" in found.reading
    given = Stability.of(np.stack([x, x]), [law(), law().pushforward(2 * np.eye(2), [1, 1])])
    np.testing.assert_allclose(given.distances, 0, atol=1e-6)


def test_mixtures_are_compared_where_they_can_be():
    x = np.random.default_rng(0).normal(size=(100, 2))
    flat = Mixture([0.5, 0.5], [[0, 0], [3, 1]], [[1, 1], [1, 0]])
    assert stability(laws(law()), x, distances=False).distances is None
    assert stability(laws(flat), x).distances is None
    with pytest.raises(DataError, match="must be positive definite"):
        stability(laws(flat), x, distances=True)
    assert stability(laws(law(11), runs=2), x).distances is None
    assert stability(laws(law(11), runs=2), x, distances=True).distances[0, 1] < 1e-6
    bare = [*laws(law(), runs=2), Affine(np.eye(2))]
    assert stability(bare, x).distances is None
    with pytest.raises(DataError, match=r"mixture_ of every run.*1 of 3 have none. Set distances=False"):
        stability(bare, x, distances=True)
    in_other_coordinates = laws(law(), runs=2)
    for run in in_other_coordinates:
        run.mixture_ = law(m=3)
        assert stability(in_other_coordinates, x).distances is None
    assert stability([Affine(np.eye(2), law=law()), Affine(np.eye(2)[:1], law=law())], x).distances is None


def test_latents_one_run_lacks_count_as_zero_before_and_after_alignment():
    z = np.random.default_rng(0).normal(size=(300, 4))
    found = stability([z, z[:, :3], z[:, [3]]], random_state=0)
    expected = [[1, 3 / 4, 1 / 4], [3 / 4, 1, 0], [1 / 4, 0, 1]]
    np.testing.assert_allclose(found.pairwise, expected, atol=0.05)
    np.testing.assert_allclose(found.weak, expected, atol=0.06)
    np.testing.assert_array_equal(found.pairwise, found.pairwise.T)


def test_a_run_that_is_not_finite_agrees_with_none():
    z = np.random.default_rng(0).normal(size=(100, 2))
    spoilt = np.where(z == z[3, 1], np.nan, z)
    found = stability([z, spoilt, z], random_state=0)
    for matrix in (found.pairwise, found.weak):
        np.testing.assert_allclose(matrix, [[1, 0, 1], [0, 0, 0], [1, 0, 1]])
    assert found.chosen != 1
    assert not stability([spoilt, spoilt]).pairwise.any()


def test_runs_that_have_diverged_or_collapsed_are_compared_without_a_warning():
    z = np.random.default_rng(0).normal(size=(100, 2))
    far = z.copy()
    far[:2] = [[1e308], [-1e308]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = stability([z, 1e-320 * z, 1e305 * z, far, np.zeros_like(z)], random_state=0)
    assert found.weak[0, 2] == pytest.approx(1)
    assert found.weak[0, 3] < 0.5
    assert not found.weak[4].any()


def test_too_few_rows_are_not_aligned():
    z = np.random.default_rng(0).normal(size=(2, 42, 10))
    few, enough = Stability.of(z[:, :41]), Stability.of(z)
    assert few.weak is None
    assert enough.weak.shape == (2, 2)
    assert np.isnan(few.weak_score)
    assert "after an affine alignment" not in few.reading
    assert ", nor after an affine alignment (0." in enough.reading
    one = Stability.of(z[:1])
    assert (one.weak, one.status, one.other_axes) == (None, "unchecked", False)
    assert one.reading == "There is one run only, and nothing to compare it with."


def test_the_reading_follows_the_thresholds():
    def at(strong, weak, **other):
        return Stability(np.array([[1, strong], [strong, 1]]), np.array([[1, weak], [weak, 1]]), **other).reading

    assert at(0.97, 0.5) == "The runs agree on the latents up to order and scale (0.97)."
    assert at(0.93, 0.99).endswith(
        "on the span of the latents (0.99 after an affine alignment), less so on the axes (0.93)."
    )
    assert at(0.5, 0.93).startswith("The runs nearly agree on the span of the latents (0.93")
    assert at(0.93, 0.94).endswith("up to order and scale (0.93), and no more after an affine alignment (0.94).")
    assert at(0.5, 0.6).endswith(
        "do not agree on the latents up to order and scale (0.50), nor after an affine alignment (0.60)."
    )
    assert at(0.5, 0.99, affine=True) == "The runs do not agree on the latents up to an affine map (0.50)."
    assert "not sufficient" in repr(Stability(np.ones((2, 2))))


def test_fitted_estimators_are_compared_by_what_they_make_of_the_rows():
    x = affine(0, rows=1500).x
    runs = [IndependentComponents(5, n_restarts=1, random_state=s).fit(x[:1000]) for s in range(2)]
    found = stability(runs, x[1000:], random_state=0)
    latents = [run.transform(x[1000:]) for run in runs]
    for again in (
        stability(runs, pd.DataFrame(x[1000:]), random_state=0),
        stability(latents, random_state=0),
        stability(np.stack(latents), x[1000:], random_state=0),
        stability([pd.DataFrame(z) for z in latents], random_state=0),
        stability([runs[0], latents[1]], x[1000:], random_state=0),
    ):
        np.testing.assert_allclose(again.pairwise, found.pairwise)
        np.testing.assert_allclose(again.weak, found.weak)
    assert found.distances is None
    mixed = np.random.default_rng(0).normal(size=(2, 100, 3))
    halves = [stability(mixed, random_state=s).weak[0, 1] for s in (0, 0, 1)]
    assert halves[0] == halves[1] != halves[2]


def test_what_cannot_be_compared_is_refused(noise):
    fitted = RawData().fit(noise)
    for runs, X, words in (
        ([noise], None, r"at least two runs, got 1: pass \[one, two, ...\]"),
        ([], None, "at least two runs, got 0"),
        (fitted, noise, "at least two runs, got a RawData.*its stability_"),
        (make_pipeline(StandardScaler(), RawData()), noise, "at least two runs, got a Pipeline"),
        (pd.DataFrame(noise), None, "at least two runs, got a DataFrame"),
        ([fitted, fitted], None, r"runs\[0\] is a RawData, and X is None: pass rows X"),
        ([noise, noise[:-1]], None, r"on the same rows, got: runs\[0\] has 400, runs\[1\] has 399"),
        ([noise, noise], noise[:7], r"runs\[1\] has 400, X has 7"),
        (noise, None, r"runs\[0\] must be a fitted estimator .* got latents of shape \(5,\)"),
        ([noise, noise[None]], None, r"runs\[1\] must be .* got latents of shape \(1, 400, 5\)"),
        ([noise, noise.astype(str)], None, r"runs\[1\] must be .* and type <U"),
        ([noise, noise[:, :0]], None, r"runs\[1\] must be .* shape \(400, 0\)"),
        ([DegenerateGaussianMixture(), fitted], noise, r"runs\[0\] must be .* got DegenerateGaussianMixture"),
    ):
        with pytest.raises(DataError, match=words):
            stability(runs, X)
    with pytest.raises(DataError, match="distances must be True, False or 'auto', got 'yes'"):
        stability([noise, noise], distances="yes")


@pytest.mark.parametrize(
    "estimator",
    [
        RawData(2, n_restarts=3),
        PrincipalComponents(2, n_restarts=3),
        IndependentComponents(2, n_restarts=3),
        SegmentUnmixing(2, n_restarts=3),
        SparseUnmixing(2, n_restarts=3, max_rounds=1),
        VAE(2, n_restarts=3, max_steps=5, verbose=0),
        PDGMM(2, n_restarts=3, max_steps=5, verbose=0, depth=2, batch_size=32, extended=False),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_a_fit_knows_how_far_its_restarts_agree_up_to_an_affine_map_and_keeps_it(estimator, tmp_path):
    x = affine(0, rows=300, n=3).x
    model = estimator.set_params(random_state=0).fit(x, np.arange(300) % 3)
    found = model.stability_
    assert isinstance(found, Stability)
    assert found.weak.shape == (3, 3)
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu").stability_
    np.testing.assert_array_equal(again.pairwise, found.pairwise)
    np.testing.assert_array_equal(again.weak, found.weak)
    assert (again.distances, again.affine, again.reading) == (None, found.affine, found.reading)
    single = estimator.set_params(n_restarts=1).fit(x, np.arange(300) % 3)
    save(single, tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors", device="cpu").stability_.weak is None


def test_a_file_from_before_the_weak_mcc_is_read():
    old = {"result": "Stability", "pairwise": {"array": "fitted/stability_/pairwise"}}
    found = persist._decode(old, {"fitted/stability_/pairwise": torch.eye(2)})
    assert (found.weak, found.distances, found.affine, found.status) == (None, None, False, "unstable")
    assert (base.Stability, base.STABLE, base.DOUBTFUL) == (Stability, 0.96, 0.90)


def test_a_mixture_of_full_rank_is_judged_up_to_an_affine_map():
    model = SimpleNamespace(prior=FullGaussians.__new__(FullGaussians))
    found = Trained(model, range(3), np.stack(affine_images(0)), np.zeros(3), None).stability
    assert (found.affine, found.status, found.other_axes) == (True, "stable", False)
    assert found.reading == "The runs agree on the latents up to an affine map (1.00)."
    np.testing.assert_allclose(found.weak, 1)


@pytest.mark.parametrize(("runs", "decimals"), [(2, 3), (5, 3), (10, 2)])
def test_the_picture_has_a_number_per_pair_and_frames_the_chosen_run(runs, decimals):
    z = np.random.default_rng(0).normal(size=(runs, 100, 2))
    found = stability(z, random_state=0)
    with_distances = Stability(found.pairwise, found.weak, 1 - found.weak)
    for one, matrices in (
        (Stability(found.pairwise), [found.pairwise]),
        (found, [found.pairwise, found.weak]),
        (with_distances, [found.pairwise, found.weak, 1 - found.weak]),
    ):
        figure = one.plot()
        figure.draw_without_rendering()
        assert figure.get_suptitle().replace("\n", " ") == one.reading
        for axes, matrix in zip(figure.axes, matrices, strict=True):
            expected = [f"{matrix[r, s]:.{decimals}f}" for r in range(runs) for s in range(runs) if r != s]
            assert [text.get_text() for text in axes.texts] == expected
            assert axes.lines[-1].get_ydata().mean() == pytest.approx(found.chosen, abs=0.2)
            assert [label.get_text() for label in axes.get_yticklabels()] == [str(r) for r in range(runs)]


def test_one_run_and_many_runs_can_be_drawn():
    z = np.random.default_rng(0).normal(size=(40, 100, 2))
    assert not Stability.of(z[:1]).plot().axes[0].texts
    many = Stability.of(z).plot()
    assert not many.axes[0].texts
    assert max(many.get_size_inches()) < 20
