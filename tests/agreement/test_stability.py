"""stability: runs are compared latent by latent, up to an affine map, and by their mixtures."""

import warnings
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from identifiable import (
    VAE,
    DataError,
    DegenerateGaussianMixture,
    IndependentComponents,
    Mixture,
    RawData,
    SparseUnmixing,
    Stability,
    load,
    save,
    stability,
)
from identifiable.agreement.stability import THRESHOLDS, judge
from identifiable.data import make_pdgmm
from identifiable.estimators.pdgmm.batch import Trained
from identifiable.metrics import mcc, weak_mcc
from identifiable.priors.masked import FullGaussians

SEEDS = [0, 1, 2]


class Affine(BaseEstimator):
    """z = M x + b, and the distribution of z when x follows a mixture."""

    def __init__(self, matrix, offset=0.0, p=None):
        self.matrix = matrix
        self.offset = offset
        self.mixture_ = None if p is None else p.pushforward(matrix, np.zeros(len(matrix)) + offset)

    def transform(self, X):
        return np.asarray(X) @ np.transpose(self.matrix) + self.offset


def affine_images(seed, runs=3, rows=1000, n=4):
    """Latents, skewed so that their axes are not those of any rotation, under random affine maps."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, n)) ** 2
    return [z @ rng.normal(size=(n, n)) + rng.normal(size=n) for _ in range(runs)]


def mixture(components=3, seed=0, m=2):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(components, m, m))
    covariances = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(m)
    return Mixture(rng.dirichlet(np.full(components, 5.0)), 3 * rng.normal(size=(components, m)), covariances)


def runs_of(p, seed=0, runs=3):
    rng = np.random.default_rng(seed)
    return [Affine(rng.normal(size=(2, 2)), rng.normal(size=2), p) for _ in range(runs)]


@pytest.mark.parametrize("seed", SEEDS)
def test_runs_equal_up_to_order_and_scale_agree(seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(500, 4))
    found = stability([z[:, rng.permutation(4)] * rng.normal(size=4) + 7 for _ in range(3)], random_state=seed)
    np.testing.assert_allclose(found.pairwise, 1)
    np.testing.assert_allclose(found.weak, 1)
    assert (found.status, found.other_axes) == ("stable", False)
    assert len(found.plot().axes) == 2
    assert found.reading in repr(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_affine_images_have_the_same_span_and_other_axes(seed):
    found = stability(affine_images(seed), random_state=seed)
    np.testing.assert_allclose(found.weak, 1)
    assert found.score < 0.9
    assert (found.status, found.other_axes) == ("unstable", True)
    assert found.check.verdict == "fails"
    assert found.reading in found.check.sentence


def test_matrices_hold_the_mcc_of_every_pair():
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
def test_distance_of_affinely_related_mixtures_is_zero(seed):
    x = np.random.default_rng(seed).normal(size=(100, 2))
    found = stability([*runs_of(mixture(), seed, runs=2), Affine(np.eye(2), p=mixture(seed=9))], x, random_state=seed)
    assert found.distances[0, 1] < 1e-6 < 0.1 < found.distances[0, 2]
    np.testing.assert_array_equal(found.distances, found.distances.T)
    np.testing.assert_array_equal(np.diag(found.distances), 0)
    assert "up to an affine map their mixtures are" in found.reading
    given = Stability.of(np.stack([x, x]), [mixture(), mixture().pushforward(2 * np.eye(2), [1, 1])])
    np.testing.assert_allclose(given.distances, 0, atol=1e-6)


def test_distances_need_small_mixtures_of_full_rank_in_every_run():
    x = np.random.default_rng(0).normal(size=(100, 2))
    singular = Mixture([0.5, 0.5], [[0, 0], [3, 1]], [[1, 1], [1, 0]])
    assert stability(runs_of(mixture()), x, distances=False).distances is None
    assert stability(runs_of(singular), x).distances is None
    with pytest.raises(DataError, match="must be positive definite"):
        stability(runs_of(singular), x, distances=True)
    assert stability(runs_of(mixture(11), runs=2), x).distances is None
    assert stability(runs_of(mixture(11), runs=2), x, distances=True).distances[0, 1] < 1e-6
    bare = [*runs_of(mixture(), runs=2), Affine(np.eye(2))]
    assert stability(bare, x).distances is None
    with pytest.raises(DataError, match=r"mixture_ of every run.*1 of 3 have none. Set distances=False"):
        stability(bare, x, distances=True)
    in_other_coordinates = runs_of(mixture(), runs=2)
    for run in in_other_coordinates:
        run.mixture_ = mixture(m=3)
        assert stability(in_other_coordinates, x).distances is None
    assert stability([Affine(np.eye(2), p=mixture()), Affine(np.eye(2)[:1], p=mixture())], x).distances is None


def test_missing_latents_count_zero():
    z = np.random.default_rng(0).normal(size=(300, 4))
    found = stability([z, z[:, :3], z[:, [3]]], random_state=0)
    expected = [[1, 3 / 4, 1 / 4], [3 / 4, 1, 0], [1 / 4, 0, 1]]
    np.testing.assert_allclose(found.pairwise, expected, atol=0.05)
    np.testing.assert_allclose(found.weak, expected, atol=0.06)
    np.testing.assert_array_equal(found.pairwise, found.pairwise.T)


def test_infinite_run_agrees_with_none():
    z = np.random.default_rng(0).normal(size=(100, 2))
    spoilt = np.where(z == z[3, 1], np.nan, z)
    found = stability([z, spoilt, z], random_state=0)
    for matrix in (found.pairwise, found.weak):
        np.testing.assert_allclose(matrix, [[1, 0, 1], [0, 0, 0], [1, 0, 1]])
    assert found.chosen != 1
    assert not stability([spoilt, spoilt]).pairwise.any()


def test_diverged_and_collapsed_runs_do_not_warn():
    z = np.random.default_rng(0).normal(size=(100, 2))
    far = z.copy()
    far[:2] = [[1e308], [-1e308]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = stability([z, 1e-320 * z, 1e305 * z, far, np.zeros_like(z)], random_state=0)
    assert found.weak[0, 2] == pytest.approx(1)
    assert found.weak[0, 3] < 0.5
    assert not found.weak[4].any()


def test_weak_mcc_needs_enough_rows():
    z = np.random.default_rng(0).normal(size=(2, 42, 10))
    few, enough = Stability.of(z[:, :41]), Stability.of(z)
    assert few.weak is None
    assert enough.weak.shape == (2, 2)
    assert np.isnan(few.weak_score)
    assert "after an affine alignment" not in few.reading
    assert "after an affine alignment" in enough.reading
    one = Stability.of(z[:1])
    assert (one.weak, one.status, one.other_axes) == (None, "unchecked", False)


def test_fitted_estimators_and_their_latents_give_the_same():
    x = make_pdgmm(1500, n=5, layers=1, delta=2, random_state=0).x
    runs = [IndependentComponents(5, n_restarts=1, random_state=s).fit(x[:1000]) for s in range(2)]
    found = stability(runs, x[1000:], random_state=0)
    latents = [run.transform(x[1000:]) for run in runs]
    for again in (
        stability(runs, pd.DataFrame(x[1000:]), random_state=0),
        stability(latents, random_state=0),
        stability([runs[0], latents[1]], x[1000:], random_state=0),
    ):
        np.testing.assert_allclose(again.pairwise, found.pairwise)
        np.testing.assert_allclose(again.weak, found.weak)
    assert found.distances is None
    mixed = np.random.default_rng(0).normal(size=(2, 100, 3))
    halves = [stability(mixed, random_state=s).weak[0, 1] for s in (0, 0, 1)]
    assert halves[0] == halves[1] != halves[2]


def test_invalid_runs_are_refused():
    noise = np.random.default_rng(0).normal(size=(400, 5))
    fitted = RawData().fit(noise)
    for runs, X, words in (
        ([noise], None, "at least two runs.*1"),
        ([], None, "at least two runs.*0"),
        (fitted, noise, "Got a RawData"),
        ([fitted, fitted], None, "X is None"),
        ([noise, noise[:-1]], None, r"runs\[0\] has 400, runs\[1\] has 399"),
        ([noise, noise], noise[:7], r"runs\[1\] has 400, X has 7"),
        ([noise, noise[None]], None, r"runs\[1\] must be .* shape \(1, 400, 5\)"),
        ([noise, noise.astype(str)], None, r"runs\[1\] must be .* type <U"),
        ([DegenerateGaussianMixture(), fitted], noise, r"runs\[0\] must be .* got DegenerateGaussianMixture"),
    ):
        with pytest.raises(DataError, match=words):
            stability(runs, X)
    with pytest.raises(DataError, match="distances"):
        stability([noise, noise], distances="yes")


@pytest.mark.parametrize(
    "estimator", [SparseUnmixing(2, n_restarts=3, max_rounds=1), VAE(2, n_restarts=3, max_steps=2, verbose=0)]
)
@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_stability_of_a_fit_is_saved_and_loaded(estimator, tmp_path):
    x = make_pdgmm(300, n=3, layers=1, random_state=0).x
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


def test_pdgmm_of_full_rank_is_compared_up_to_an_affine_map():
    model = SimpleNamespace(prior=FullGaussians.__new__(FullGaussians))
    found = Trained(model, range(3), np.stack(affine_images(0)), np.zeros(3), None).stability
    assert (found.affine, found.status, found.other_axes) == (True, "stable", False)
    assert found.reading == "The runs agree on the latents up to an affine map (1.00)."
    np.testing.assert_allclose(found.weak, 1)


def test_judge_and_thresholds():
    assert [judge(score) for score in (0.96, 0.959, 0.9, 0.899)] == ["stable", "doubtful", "doubtful", "unstable"]
    assert judge(np.nan) == "unchecked"
    assert THRESHOLDS.tie < THRESHOLDS.stable - THRESHOLDS.doubtful


@pytest.mark.parametrize(("agreement", "verdict"), [(0.97, "holds"), (0.93, "inconclusive"), (0.5, "fails")])
def test_check_follows_the_thresholds(agreement, verdict):
    check = Stability(np.array([[1, agreement], [agreement, 1]])).check
    assert (check.verdict, check.statistic, check.threshold) == (verdict, pytest.approx(agreement), THRESHOLDS.stable)
    assert Stability(np.eye(1)).check.statistic is None
