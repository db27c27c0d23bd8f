"""Refits that confirm a model, and its comparison with alternatives, on fake models."""

from dataclasses import replace

import numpy as np
import pytest

from fake_models import FakeModel, family, task
from identifiable.auto.confirm import compare, confirm
from identifiable.auto.steps import try_family
from identifiable.auto.task import Trial


@pytest.fixture
def y():
    return np.random.default_rng(0).normal(size=(400, 3))


def rows_seen(search):
    """Return which rows of the task every fake fit has seen."""
    place = {tuple(row): i for i, row in enumerate(search.refits.X)}
    return [{place[tuple(row)] for row in rows} for rows in FakeModel.fitted]


@pytest.mark.parametrize("trained", [False, True])
def test_confirmation_holds_rows_out(y, trained):
    search = task(y)
    trial = try_family(search, family("IFlow", steps=1) if trained else family(), 3)
    found = confirm(search, trial)
    held = set(search.refits.held)
    seen = rows_seen(search)[1:]
    if not trained:  # at last, a linear model is fitted to all rows
        assert seen.pop() == set(range(400))
    assert not any(rows & held for rows in seen)
    assert sorted(map(len, seen)) == ([160, 160, 256] if trained else [*[160] * 6, *[320] * 7])
    np.testing.assert_allclose([found.seeds, found.halves], 1)
    assert found.error == ""
    assert found.fitted.latents.shape == (80, 3)


def test_confirmation_finds_latents_that_turn_with_the_seed(y):
    search = task(y)
    trial = try_family(search, family(turn=0.5), 3)
    found = confirm(search, trial)
    assert max(found.seeds[:2]) < 0.96
    assert [found.seeds[2], found.halves[2]] == pytest.approx([1, 1])
    assert found.fitted.model.random_state > 0


def test_confirmation_without_time_is_no_confirmation(y):
    search = task(y)
    trial = try_family(search, family(), 3)
    late = Trial(trial.candidate, trial.model.with_options({"fails": "late"}), trial.fitted, trial.gains)
    found = confirm(search, late)
    assert found.fitted is trial.fitted
    assert np.isnan([found.seeds[0], found.halves[0]]).all()
    assert "late" in found.error


def test_alternatives_are_compared_by_their_chances(y):
    search = task(y)
    turns = {"a": 0, "b": 0, "c": 0.5}
    trials = {name: try_family(search, family(name, turn=turn), 3) for name, turn in turns.items()}
    turned = search.refits.fit(trials["c"].model, search.train, 1)
    trials["c"] = replace(trials["c"], fitted=turned, gains=np.empty(0))
    fitted = trials["a"].fitted
    same, _ = compare(search, fitted, trials, {"b": 0.3})
    np.testing.assert_allclose(same, 1)
    other, why = compare(search, fitted, trials, {"c": 0.2})
    mixed, _ = compare(search, fitted, trials, {"b": 0.3, "c": 0.2})
    assert other[0] < 0.96
    np.testing.assert_allclose(mixed, (0.3 * same + 0.2 * other) / 0.5)
    assert "20 %" in why
    assert np.isnan(compare(search, fitted, trials, {})[0]).all()
