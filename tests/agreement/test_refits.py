"""Refits: disjoint rows, held-out rows that no fit has seen, and matching on these."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fake_estimators import Fixed, Probe, Rotation, numbered
from identifiable import DataError
from identifiable.agreement.refits import Fitted, Refits
from identifiable.metrics import mcc


@pytest.fixture
def refits():
    return Refits.of(np.random.default_rng(0).normal(size=(400, 5)), seed=0)


@pytest.mark.parametrize(("rows", "held"), [(100, 10), (1003, 100), (15_000, 1000)])
def test_halves_are_disjoint_and_see_no_held_out_row(rows, held):
    Refits.of(numbered(rows), seed=1).halves(Probe(2))
    a, b = Probe.fitted
    assert np.array_equal(np.sort(np.concatenate([a, b, Probe.compared[0]])), np.arange(rows))
    assert len(Probe.compared[0]) == held
    assert abs(len(a) - len(b)) <= 1
    assert all(np.array_equal(one, Probe.compared[0]) for one in Probe.compared)


def test_seeds_of_halves_differ_also_inside_a_pipeline(refits):
    halves = refits.halves(make_pipeline(StandardScaler(), Rotation()))
    seeds = [one.model.get_params()["rotation__random_state"] for one in halves]
    assert seeds[0] != seeds[1]
    found = refits.match(*halves)
    assert found.score == pytest.approx(mcc(*(one.latents for one in halves)))
    assert 0.9 > found.score == pytest.approx(np.abs(found.correlations).mean())
    assert len(Refits.of(refits.X, seed=0, fraction=0.2).held) == 80


def test_fit_clones_the_estimator(refits):
    estimator = Fixed(random_state=7)
    fitted = refits.fit(estimator, refits.train, seed=3)
    assert not hasattr(estimator, "axes_")
    assert (estimator.random_state, fitted.model.random_state) == (7, 3)
    np.testing.assert_array_equal(fitted.latents, refits.X[refits.held])


def test_missing_and_infinite_latents_count_zero(refits):
    three, four = (refits.fit(Fixed(width), refits.train, 0) for width in (3, 4))
    for found in (refits.match(three, four), refits.match(four, three)):
        assert sorted(np.abs(found.correlations).round(6)) == [0, 1, 1, 1]
    spoilt = Fitted(None, np.where(four.latents == four.latents[0, 0], np.inf, four.latents))
    assert refits.match(four, spoilt).score == refits.match(spoilt, four).correlations.max() == 0


def test_take_keeps_frames_and_adds_u():
    x, u = np.arange(300.0).reshape(100, 3), np.arange(100)
    frame = pd.DataFrame(x, columns=list("abc"), index=np.arange(100)[::-1])
    rows = np.array([5, 2])
    assert len(Refits.of(x, seed=0).take(rows)) == 1
    taken, of_u = Refits.of(frame, pd.Series(u), seed=0).take(rows)
    pd.testing.assert_frame_equal(taken, frame.iloc[rows])
    assert of_u.tolist() == [5, 2]
    np.testing.assert_array_equal(Refits.of(x, list(u), seed=0).take(rows)[1], [5, 2])


def test_remixed_rows_are_an_affine_map_of_the_rows(refits):
    mixed = refits.remixed()
    np.testing.assert_array_equal(mixed.train, refits.train)
    x = np.c_[refits.X, np.ones(400)]
    np.testing.assert_allclose(x @ np.linalg.lstsq(x, mixed.X)[0], mixed.X)
    same = Fitted(None, refits.X[refits.held])
    assert refits.match(same, Fitted(None, mixed.X[refits.held])).score < 0.9  # other axes
    assert Refits.of(np.c_[refits.X, np.zeros(400)], seed=0).remixed().X.shape == (400, 6)  # a constant column


def test_few_rows_and_other_lengths_of_u_are_refused():
    for shape in ((99, 3), (0, 3), (500,), (200, 3, 2)):
        with pytest.raises(DataError, match="at least 100 rows"):
            Refits.of(np.zeros(shape), seed=0)
    with pytest.raises(DataError, match="X has 400, u has 3"):
        Refits.of(np.zeros((400, 2)), np.zeros(3), seed=0)
