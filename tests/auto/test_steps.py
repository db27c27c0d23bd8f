"""The steps of a search on made-up tables and fake models; no step sees ground truth or the time of day."""

from dataclasses import replace

import numpy as np
import pytest

from fake_models import FakeModel, family, task
from identifiable.auto import steps
from identifiable.auto.counting import Count
from identifiable.auto.families import FAMILIES, NAMES
from identifiable.auto.verdict import LATE
from identifiable.data import make_pdgmm
from identifiable.training import time_limit


@pytest.fixture
def y():
    return np.random.default_rng(0).normal(size=(400, 3))


def test_tasks_hold_out_the_same_rows_and_order_the_others_by_seed(y):
    one, two = task(y, seed=1), task(y, seed=2)
    np.testing.assert_array_equal(one.refits.held, two.refits.held)
    assert not np.array_equal(one.train, two.train)
    assert (len(one.train), len(one.refits.held)) == (320, 80)


def test_progress_is_printed_with_the_time_left(y, capsys):
    loud = replace(task(y), options=replace(task(y).options, verbose=1))
    with time_limit(60):
        loud.say("trying")
    task(y).say("silent")
    assert capsys.readouterr().err.startswith("trying (")


@pytest.mark.parametrize("needed", [0.1, 0.69, 0.75, 1.0, 1.5, 1.8, 2.05, 3.0])
@pytest.mark.parametrize("before", [0.0, 0.02, 0.1])
def test_affordable_share_keeps_a_fit_within_its_turn(needed, before):
    turn = 60.0
    share = steps.affordable_share(lambda share: turn * (before + needed * share), turn)
    assert before + needed * share <= 0.7 + 1e-9
    assert share == pytest.approx(min(1, (0.7 - before) / needed))
    assert steps.affordable_share(lambda share: pytest.fail("timed"), np.inf) == 1.0


@pytest.mark.parametrize(("share", "taken"), [(1.0, 1000), (0.5, 500), (0.2, 200), (0.19, None)])
def test_trial_records_the_steps_it_had_time_for(y, monkeypatch, share, taken):
    monkeypatch.setattr(steps, "affordable_share", lambda seconds_of, turn: share * (seconds_of(0.01) < turn))
    trial = steps.try_family(task(y), family("IFlow", steps=1000), 3, turn=60.0)
    assert len(FakeModel.fitted[0]) == 320
    assert trial.candidate.note == ("" if taken else LATE)
    assert trial.candidate.steps == ({"max_steps": taken} if taken else {})
    assert taken is None or trial.fitted.model.model_.max_steps == taken


@pytest.mark.parametrize(
    ("options", "note"), [({"fails": "failed"}, "failed"), ({"gain": np.nan}, "not finite"), ({"fails": "late"}, LATE)]
)
def test_failed_trials_are_noted(y, options, note):
    trial = steps.try_family(task(y), family(**options), 3)
    assert note in trial.candidate.note
    assert trial.fitted is None
    assert np.isnan(trial.candidate.gain)


def test_trial_measures_the_gain_on_held_out_rows(y):
    trial = steps.try_family(task(y), family(gain=0.5), 3)
    assert trial.candidate.gain == pytest.approx(0.5)
    assert trial.candidate.agreement == 0.97
    assert len(trial.gains) == 80


def search_of(y, trials, n=3, *, by_gap=False, surrogate=0.0, **options):
    return steps.Search(task(y, **options), Count(n, by_gap=by_gap), None, None, trials, surrogate)


def test_most_latents_exactly_inactive_leave_flows_untried():
    x = make_pdgmm(600, n=3, layers=1, random_state=0).x
    families = [FAMILIES[NAMES.index("SparseUnmixing")], family("IFlow", steps=1)]
    found = search_of(x, steps.try_linear(task(x), families[:1], 3))
    assert found.inactive == 3
    assert steps._trained(found, families[1:]) == ([], "")


def test_values_of_coarse_columns_are_not_inactivity():
    x = np.random.default_rng(0).normal(size=(2000, 3)).clip(-0.5)  # censored
    trials = steps.try_linear(task(x), [FAMILIES[NAMES.index("SparseUnmixing")]], 3)
    count, coarse = Count(3), np.ones(3, dtype=bool)
    assert steps.Search(task(x), count, x, ~coarse, trials).inactive == 3
    assert steps.Search(task(x), count, x, coarse, trials).inactive == 0


def test_a_linear_model_that_is_reproducible_and_guaranteed_leaves_flows_untried():
    rng = np.random.default_rng(0)
    y = rng.laplace(size=(2000, 3)) @ rng.normal(size=(3, 3))
    families = [FAMILIES[NAMES.index(name)] for name in ("LinearICA", "SparseUnmixing", "FactorialUnmixing")]
    trials = steps.try_linear(task(y), families, 3)
    assert list(trials) == ["LinearICA", "SparseUnmixing"]
    kept, why = steps._trained(search_of(y, trials), [family("IFlow", steps=1)])
    assert (kept, "guaranteed" in why) == ([], True)


def test_flows_are_not_tried_on_a_projection_or_where_nothing_is_found():
    y = np.random.default_rng(0).normal(size=(400, 4))
    flow, wide = family("IFlow", steps=1), replace(family("VaDE", steps=1), wide=True)
    assert steps._trained(search_of(y, {}, 4), [flow, wide]) == ([flow], "")
    kept, why = steps._trained(search_of(y, {}, 2), [flow, wide])
    assert kept == [wide]
    assert "projection" in why
    assert steps._trained(search_of(y, {}, 2, by_gap=True), [flow, wide])[0] == [flow, wide]
    assert steps._trained(search_of(y, {}, 2, model="IFlow"), [flow])[0] == [flow]
    nothing = steps.try_linear(task(y), [family(gain=0.0)], 4)
    assert steps._trained(search_of(y, nothing, 4), [flow])[0] == []
    coarse = steps.try_linear(task(y), [family(gain=0.5)], 4)
    assert steps._trained(search_of(y, coarse, 4), [flow])[0] == [flow]
    assert steps._trained(search_of(y, coarse, 4, surrogate=0.5), [flow])[0] == []


def test_gains_on_a_surrogate_are_taken_off():
    y = np.random.default_rng(0).normal(size=(400, 3))
    trials = steps.try_linear(task(y), [family(gain=0.5)], 3)
    other = np.random.default_rng(1).normal(size=(400, 3))
    assert steps._gain_of_surrogate(task(y), None, trials) == 0
    assert steps._gain_of_surrogate(task(y), other, trials) == pytest.approx(0.5)
    assert search_of(y, trials).answer("").verdict.fit == "reproducible"
    assert search_of(y, trials, surrogate=0.5).answer("").verdict.fit == "Gaussian"


def test_trained_models_are_compared_with_the_best_linear_one(y):
    trials = steps.try_linear(task(y), [family(gain=0.5)], 3)
    trials |= steps.try_trained(task(y), [family("PDGMM", steps=1, gain=2.0)], 3, trials)
    found = search_of(y, trials).answer("")
    assert found.candidates[0].name == "FactorialUnmixing"  # the flow finds the same latents
    assert found.candidates[1].like_linear == pytest.approx(1)


def test_trained_families_keep_their_order_and_share_the_time(y, monkeypatch):
    turns = []
    monkeypatch.setattr(steps, "affordable_share", lambda seconds_of, turn: turns.append(turn) or 1.0)
    families = [family(name, steps=1) for name in ("PDGMM", "GMMFlow")]
    with time_limit(100):
        assert list(steps.try_trained(task(y), families, 3, {})) == ["PDGMM", "GMMFlow"]
    assert turns[0] == pytest.approx(100 / 5, abs=1)  # two fits and three that confirm
    with time_limit(0):
        late = steps.try_trained(task(y), families, 3, {})
    assert [trial.candidate.note for trial in late.values()] == [LATE, LATE]


@pytest.mark.parametrize("early", [False, True])
def test_the_linear_answer_comes_first(y, monkeypatch, early):
    families = [family("FactorialUnmixing", gain=0.5), family("PDGMM", steps=1, gain=5.0, turn=0.7)]
    monkeypatch.setattr(steps, "_families", lambda task: families)
    found = list(steps.answers(y, None, task(y, seed=1).options, early=early))
    assert [one.candidates[0].name for one in found] == ["FactorialUnmixing"] * early + ["PDGMM"]
    assert [len(one.candidates) for one in found] == [1] * early + [2]
    assert ("First answer" in " ".join(found[0].reasons)) == early
    assert not early or found[0].verdict.fit != "identified"
    assert "First answer" not in " ".join(found[-1].reasons)
