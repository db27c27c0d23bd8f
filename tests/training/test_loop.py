"""The training loop against problems with known answers, in float64."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

from identifiable import FitFailedError
from identifiable.training import Constrained, Plan, Stage, minimise, run
from identifiable.training.plan import HURRY
from problems import Free, regression, weights


@pytest.mark.parametrize("members", [1, 4])
def test_reaches_the_least_squares_solution(members):
    g = torch.Generator().manual_seed(1)
    x, noise = torch.randn(200, 3, generator=g).double(), torch.randn(200, generator=g).double()
    y = x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + 0.1 * noise
    net = Free(torch.randn(members, 3, generator=g))

    def loss(batch, step):
        return ((batch[0] @ net.w[:, :, None])[..., 0] - batch[1]).square().mean(1)

    minimise(net, loss, [x, y], Plan(steps=2000, batch_size=200, learning_rate=0.05, final=1e-4))
    exact = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    torch.testing.assert_close(net.w.detach(), exact.expand(members, 3), atol=1e-5, rtol=0)


def test_first_step_is_the_learning_rate_times_the_sign():
    """Adam's first step has length lr in every coordinate, whatever the gradient's scale."""
    net = Free([[0.0, 0.0]])
    plan = Plan(steps=1, learning_rate=0.3, warm_up=0.0)
    minimise(net, lambda b, s: (net.w * torch.tensor([1e3, -1e-3])).sum(1), [torch.zeros(4, 1)], plan)
    torch.testing.assert_close(net.w.detach(), torch.tensor([[-0.3, 0.3]], dtype=torch.float64), rtol=1e-4, atol=0)


def test_restarts_do_not_feel_each_other():
    """Another start for member 0 leaves members 1 and 2 as they were, bit for bit."""
    ends = []
    for shift in (0.0, 1.0):
        net, data, loss = regression(members=3)
        with torch.no_grad():
            net.layers[0].weight[0] += shift
        minimise(net, loss, data, Plan(steps=60, batch_size=64, clip=0.1))
        ends.append(weights(net))
    assert torch.equal(ends[0][1:], ends[1][1:])
    assert not torch.equal(ends[0][0], ends[1][0])


def test_clipping_is_per_restart():
    """Member 1's huge gradient is bounded; member 0, within the bound, is untouched."""
    net = Free([[1.0, 1.0], [1.0, 1.0]])

    def loss(batch, step):
        return (net.w * torch.tensor([[0.3, 0.4], [300.0, 400.0]])).sum(1)

    plan = Plan(steps=1, clip=1.0, betas=(0.0, 0.0), every=1)
    history = minimise(net, loss, [torch.zeros(4, 1)], plan)
    np.testing.assert_allclose(history.gradient[0], [0.5, 500.0], rtol=1e-6)
    torch.testing.assert_close(net.w.grad[0], torch.tensor([0.3, 0.4], dtype=torch.float64))
    torch.testing.assert_close(net.w.grad[1], torch.tensor([0.6, 0.8], dtype=torch.float64))


def test_a_restart_that_breaks_does_not_break_the_others():
    net = Free([[1.0], [1.0]])

    def loss(batch, step):
        bad = torch.tensor([1.0, math.nan if step.number == 50 else 1.0], dtype=torch.float64)
        return net.w.square().sum(1) * bad

    minimise(net, loss, [torch.zeros(4, 1)], Plan(steps=500, learning_rate=0.05))
    assert net.w.detach().abs().max() < 1e-2


def test_a_loss_that_is_nowhere_finite_is_an_error_with_a_cure():
    net = Free([[1.0], [1.0]])
    with pytest.raises(FitFailedError, match=r"not finite in any restart.*lower learning_rate"):
        minimise(net, lambda b, s: net.w.sum(1) * math.nan, [torch.zeros(4, 1)], Plan(steps=5))


def test_loss_of_the_wrong_shape_is_refused():
    net = Free([[1.0], [1.0]])
    with pytest.raises(ValueError, match=r"one value per member, \(2,\). Got \(\)"):
        minimise(net, lambda b, s: net.w.sum(), [torch.zeros(4, 1)], Plan(steps=5))


def test_patience_stops_and_every_member_returns_to_its_own_best_record():
    """The criterion has its minimum at step 30 for member 0 and at step 50 for member 1."""
    net = Free([[0.0], [0.0]])
    seen = {}

    def criterion():
        step = len(seen) * 10 + 10
        seen[step] = net.w.detach().clone()
        return torch.tensor([abs(step - 30.0), abs(step - 50.0)])

    plan = Plan(steps=1000, every=10, patience=4)
    history = minimise(net, lambda b, s: -net.w.sum(1), [torch.zeros(4, 1)], plan, criterion=criterion)
    assert history.stopped == "patience"
    assert history.step[-1] == 90
    assert history.best_step.tolist() == [30, 50]
    assert torch.equal(net.w[0], seen[30][0])
    assert torch.equal(net.w[1], seen[50][1])


def held_out(net, rows=200, noise=0.1):
    """A criterion per held-out row, (R, rows): (w - t)² for noisy targets t of mean 1."""
    targets = 1 + noise * torch.randn(rows, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return lambda: (net.w - targets).square()


def settling(plan, *, share=1.0, criterion=None):
    """Descend to 1 with a first member that has arrived, and a second that has a share of the way left."""
    net = Free([[1.0], [1.0 - share]])
    loss = [torch.zeros(4, 1)]
    return net, minimise(
        net, lambda b, s: (net.w - 1).square().sum(1), loss, plan, criterion=(criterion or held_out)(net)
    )


def test_training_ends_early_once_the_criterion_no_longer_improves_beyond_its_noise():
    plan = Plan(steps=1000, learning_rate=0.02, every=10, settled_from=0.2)
    net, history = settling(plan)
    assert history.stopped == "settled"
    assert history.step[-1] == 300 + 700 / HURRY  # ten records from step 200 on
    assert net.w.detach().sub(1).abs().max() < 0.01
    assert history.learning_rate[-1] == plan.rate(1000 - HURRY)  # the schedule is passed to its end


def test_one_member_that_still_improves_keeps_all_in_training():
    plan = Plan(steps=400, learning_rate=0.002, every=10, final=1.0, settled_from=0.2)
    assert settling(plan)[1].stopped == "steps"
    assert settling(plan, share=0.0)[1].stopped == "settled"


def test_settling_needs_a_value_for_each_row():
    plan = Plan(steps=300, every=10, settled_from=0.1)
    means = lambda net: lambda: held_out(net)().mean(1)  # noqa: E731
    assert settling(plan, share=0.0, criterion=means)[1].stopped == "steps"


def test_silent_without_a_terminal(capfd):
    net, data, loss = regression()
    minimise(net, loss, data, Plan(steps=20), verbose=1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("verbose", "shown"), [(0, False), (1, True)])
def test_progress_on_a_terminal(monkeypatch, capfd, verbose, shown):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    net, data, loss = regression()
    minimise(net, loss, data, Plan(steps=20), verbose=verbose)
    out, err = capfd.readouterr()
    assert out == ""
    assert ("20/20" in err) == shown


def test_prepare_changes_the_batch_before_each_step():
    net = Free([[1.0], [2.0]])
    seen = []

    def prepare(batch, step):
        seen.append(step.number)
        return (batch[0] * 0 + 7.0,)

    def loss(batch, step):
        assert (batch[0] == 7.0).all()
        return net.w.square().sum(1)

    minimise(net, loss, [torch.zeros(10, 1)], Plan(steps=4, batch_size=5), prepare=prepare)
    assert seen == [0, 1, 2, 3]


# -- constraints --------------------------------------------------------------

CONSTRAINED = Plan(steps=600, learning_rate=5e-2, dual_rate=2e-2, warm_up=0.0, final=1.0, betas=(0.9, 0.999))


def test_constraints_hold_with_the_exact_multiplier_of_every_member():
    """min (w - 3)² s.t. w <= b has w = min(3, b) and multiplier 2 (3 - w): two bounds that bind, one that does not."""
    net, bounds = Free([[0.0], [0.0], [0.0]]), torch.tensor([[1.0], [2.5], [5.0]])

    def loss(batch, step):
        return Constrained((net.w - 3).square().sum(1), net.w - bounds)

    history = minimise(net, loss, [torch.zeros(4, 1)], CONSTRAINED)
    np.testing.assert_allclose(net.w.detach().flatten(), [1, 2.5, 3], atol=0.02)
    np.testing.assert_allclose(history.multipliers[:, 0], [4, 1, 0], atol=0.1)
    np.testing.assert_allclose(history.violation[-1], 0, atol=0.02)


def test_a_constrained_loss_needs_a_dual_rate():
    net = Free([[0.0]])
    with pytest.raises(ValueError, match="dual_rate"):
        minimise(net, lambda *_: Constrained(net.w.sum(1), net.w), [torch.zeros(4, 1)], Plan(steps=1))


def test_extragradient_takes_the_steps_of_cooper():
    """The library of the pdGMM paper's authors, on the same batches: the same path, multiplier included."""
    cooper = pytest.importorskip("cooper")
    rng = torch.Generator().manual_seed(0)
    batches = torch.randn(30, 1, 8, 3, generator=rng, dtype=torch.float64)
    start = torch.randn(1, 3, 3, generator=rng, dtype=torch.float64)

    def objective(w, y):
        z = y @ w
        return Constrained((z @ w.mT - y).square().mean((1, 2)), z.abs().mean((1, 2))[:, None] - 0.1)

    net, each = Free(start.clone()), iter(batches)
    plan = dataclasses.replace(CONSTRAINED, steps=30, batch_size=8, learning_rate=1e-2, dual_rate=5e-3)
    history = minimise(net, lambda batch, step: objective(net.w, *batch), lambda *_: (next(each)[0],), plan)

    w = nn.Parameter(start.clone())

    class Problem(cooper.ConstrainedMinimizationProblem):
        def __init__(self):
            super().__init__()
            multiplier = cooper.multipliers.DenseMultiplier(num_constraints=1)
            self.bound = cooper.Constraint(cooper.ConstraintType.INEQUALITY, multiplier=multiplier)

        def compute_cmp_state(self, y):
            value = objective(w, y)
            state = cooper.ConstraintState(violation=value.inequality[:, 0])
            return cooper.CMPState(value.loss.sum(), {self.bound: state})

    problem = Problem()
    solver = cooper.optim.ExtrapolationConstrainedOptimizer(
        problem,
        cooper.optim.ExtraAdam([w], lr=1e-2),
        cooper.optim.ExtraAdam(problem.dual_parameters(), lr=5e-3, maximize=True),
    )
    for y in batches:
        solver.roll({"y": y})
    assert (net.w - start).abs().max() > 0.1
    torch.testing.assert_close(net.w, w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(history.multipliers[0, 0], problem.bound.multiplier.weight.item(), rtol=1e-4)


def test_run_sends_each_history_back_and_returns_the_value():
    net, seen = Free([[1.0], [2.0]]), []

    def stages():
        for steps in (3, 5):
            plan = Plan(steps=steps)
            history = yield Stage(net, lambda batch, step: net.w.square().sum(1), [torch.zeros(4, 1)], plan)
            seen.append(int(history.step[-1]))
        return "done"

    assert run(stages()) == "done"
    assert seen == [3, 5]


def test_run_closes_the_stages_after_an_error():
    net, closed = Free([[1.0]]), []

    def stages():
        try:
            yield Stage(net, lambda batch, step: net.w, [torch.zeros(4, 1)], Plan(steps=1))
        finally:
            closed.append(True)

    with pytest.raises(ValueError, match="one value per member") as error:
        run(stages())
    assert closed, error
