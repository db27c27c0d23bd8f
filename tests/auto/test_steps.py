"""The steps of a search on made-up tables and fake models; no step sees ground truth or the time of day."""

from dataclasses import replace

import numpy as np
import pytest

from fake_models import FakeModel, family, task
from identifiable import DataError
from identifiable.auto import steps
from identifiable.auto.families import FAMILIES, NAMES
from identifiable.auto.verdict import LATE
from identifiable.data import make_pdgmm
from identifiable.training import time_limit


@pytest.fixture
def y():
    return np.random.default_rng(0).normal(size=(400, 3))


@pytest.mark.parametrize(
    ("variances", "n"),
    [
        ([3, 2, 1, 0.02, 0.01], 3),
        ([3, 2, 1, 0.02], None),  # a single direction of noise needs a fall by 1000
        ([3, 2, 1, 5e-4], 3),
        ([3, 2, 1, 0.02, 0.001], None),  # these two differ too much to be noise
        ([1, 1, 1], None),
        (np.r_[np.ones(41), 0.001, 0.001], None),  # too deep
    ],
)
def test_spectral_gap(variances, n):
    assert steps.spectral_gap(np.array(variances, dtype=float)) == n


def test_count_latents_from_the_spectrum(y):
    assert steps.count_latents(task(y), [])[0] == 3
    wide = y @ np.random.default_rng(1).normal(size=(3, 8)) + 0.01 * np.random.default_rng(2).normal(size=(400, 8))
    n, why = steps.count_latents(task(wide), [])
    assert n == 3
    assert "factor" in why
    assert steps.count_latents(task(wide, n=5), []) == (5, "")
    with pytest.raises(DataError, match="3 directions"):
        steps.count_latents(task(y, n=4), [])


def test_count_latents_from_stability():
    """Without a fall of the variances, latents are counted up to two numbers at which the halves disagree."""
    y = np.random.default_rng(0).normal(size=(2000, 13)) * 0.6 ** np.arange(13)
    stable_up_to_4 = replace(family(), build=lambda n, **given: FakeModel(n, turn=1.0 * (n > 4), **given))
    one, two = (steps.count_latents(task(y, seed=seed), [stable_up_to_4]) for seed in (1, 2))
    assert one == two  # a property of the table, not of the seed
    assert one[0] == 4
    assert "for 6" in one[1]
    assert "for 8" not in one[1]
    assert steps.count_latents(task(y), [family(gain=-1.0)])[0] == 2  # no better than a Gaussian
    late = replace(family(), build=lambda n, **given: FakeModel(n, fails="late", **given))
    with time_limit(0):
        assert steps.count_latents(task(y), [late])[0] == 2


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


def test_most_latents_exactly_inactive_leave_flows_untried():
    x = make_pdgmm(600, n=3, layers=1, random_state=0).x
    families = [FAMILIES[NAMES.index("SparseUnmixing")], family("IFlow", steps=1)]
    search = task(x)
    trials = steps.try_linear(search, families[:1], 3)
    found = steps.Search(search, 3, "", trials)
    assert found.inactive == 3
    assert steps._trained(search, families[1:], 3, found.inactive) == ([], "")


def test_flows_are_not_tried_on_a_projection():
    y = np.random.default_rng(0).normal(size=(400, 4))
    flow, wide = family("IFlow", steps=1), replace(family("VaDE", steps=1), wide=True)
    assert steps._trained(task(y), [flow, wide], 4, 0) == ([flow], "")
    kept, why = steps._trained(task(y), [flow, wide], 2, 0)
    assert kept == [wide]
    assert "projection" in why
    assert steps._trained(task(y * [1, 1, 0.01, 0.01]), [flow, wide], 2, 0)[0] == [flow, wide]
    assert steps._trained(task(y, model="IFlow"), [flow], 2, 0)[0] == [flow]


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
    families = [family("FactorialUnmixing", gain=0.5), family("PDGMM", steps=1, gain=5.0)]
    monkeypatch.setattr(steps, "_families", lambda task: families)
    found = list(steps.answers(y, None, task(y).options, early=early))
    assert [one.candidates[0].name for one in found] == ["FactorialUnmixing"] * early + ["PDGMM"]
    assert [len(one.candidates) for one in found] == [1] * early + [2]
    assert ("First answer" in " ".join(found[0].reasons)) == early
    assert not early or found[0].verdict.fit != "identified"
    assert "First answer" not in " ".join(found[-1].reasons)
