"""Learning rates and annealed quantities."""

import numpy as np
import pytest
import torch

from identifiable.training import Anneal, Plan, Step, minimise
from problems import Free


def test_learning_rate_warms_up_and_falls_along_a_cosine():
    plan = Plan(steps=1000, learning_rate=2.0, warm_up=0.1, final=0.01)
    rates = np.array([plan.rate(t) for t in range(1000)])
    assert rates[0] == pytest.approx(0.02)
    assert rates.max() == pytest.approx(2.0, abs=1e-3)
    assert (np.diff(rates[:100]) > 0).all()
    assert (np.diff(rates[101:]) < 0).all()
    assert rates[550] == pytest.approx(2.0 * (0.01 + 0.99 / 2), rel=1e-2)
    assert rates[-1] == pytest.approx(0.02, rel=1e-2)


def test_annealed_quantities_arrive_at_their_end_and_stay():
    net, seen = Free([[1.0]]), []

    def loss(batch, step: Step):
        seen.append(float(step.annealed["e"]))
        return net.w.square().sum(1) * step.annealed["e"]

    minimise(net, loss, [torch.zeros(4, 1)], Plan(steps=100, anneal={"e": Anneal(1.0, 0.01, until=0.5)}))
    assert seen[0] == 1.0
    assert seen[25] == pytest.approx(0.1)
    assert seen[50:] == pytest.approx([0.01] * 50)
