"""The training loop against problems with known answers, in float64."""

import math
import random
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
from torch import nn

import fresh
from identifiable import DamagedFileError, FitFailedError
from identifiable.nets import MLP
from identifiable.training import Anneal, Constrained, Plan, Step, extragradient, minimise


class Free(nn.Module):
    """Nothing but parameters w (R, m)."""

    def __init__(self, start):
        super().__init__()
        self.w = nn.Parameter(torch.as_tensor(start, dtype=torch.float64))


def regression(members=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(500, 3, generator=g, dtype=torch.float64)
    y = torch.sin(x @ torch.randn(3, 2, generator=g, dtype=torch.float64))
    net = MLP(members, (3, 8, 2), rng=g).double()
    return net, [x, y], lambda batch, step: (net(batch[0]) - batch[1]).square().mean((1, 2))


def weights(net):
    return torch.cat([p.detach().reshape(len(p), -1) for p in net.parameters()], 1)


# -- unconstrained ------------------------------------------------------------


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


def test_learning_rate_warms_up_and_falls_along_a_cosine():
    plan = Plan(steps=1000, learning_rate=2.0, warm_up=0.1, final=0.01)
    rates = np.array([plan.rate(t) for t in range(1000)])
    assert rates[0] == pytest.approx(0.02)
    assert rates.max() == pytest.approx(2.0, abs=1e-3)
    assert (np.diff(rates[:100]) > 0).all()
    assert (np.diff(rates[101:]) < 0).all()
    assert rates[550] == pytest.approx(2.0 * (0.01 + 0.99 / 2), rel=1e-2)
    assert rates[-1] == pytest.approx(0.02, rel=1e-2)


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


def test_same_seed_same_bits():
    ends = []
    for seed in (3, 3, 4):
        net, data, loss = regression()
        minimise(net, loss, data, Plan(steps=40, batch_size=64), seed=seed)
        ends.append(weights(net))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


# -- data ---------------------------------------------------------------------


def test_every_row_is_seen_once_an_epoch_in_another_order_by_every_member():
    net, seen = Free([[0.0], [0.0]]), []

    def loss(batch, step):
        seen.append(batch[0][..., 0].clone())
        return net.w.sum(1) * 0

    minimise(net, loss, [torch.arange(100.0)[:, None]], Plan(steps=8, batch_size=25))
    first, second = torch.cat(seen[:4], 1), torch.cat(seen[4:], 1)
    for epoch in (first, second):
        assert torch.equal(epoch.sort(1).values, torch.arange(100.0).expand(2, 100))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, second)


def test_rows_of_several_arrays_stay_together():
    net = Free([[0.0], [0.0]])
    rows = torch.arange(100.0)[:, None]

    def loss(batch, step):
        assert torch.equal(batch[1], 2 * batch[0])
        return net.w.sum(1) * 0

    minimise(net, loss, [rows, 2 * rows], Plan(steps=10, batch_size=7))


def test_a_stream_gives_fresh_rows_to_every_member():
    """The mean of an endless stream of N(3, 1) is found far more exactly than one batch allows."""
    net, batches = Free([[0.0], [0.0]]), []

    def stream(rows, rng):
        return [3 + torch.randn((rows, 1), generator=rng, dtype=torch.float64)]

    def loss(batch, step):
        batches.append(batch[0])
        return (net.w[:, None] - batch[0]).square().mean((1, 2))

    minimise(net, loss, stream, Plan(steps=3000, batch_size=16, learning_rate=0.02, final=1e-3))
    assert batches[0].shape == (2, 16, 1)
    assert len(torch.unique(torch.stack(batches[:5]))) == 5 * 2 * 16
    torch.testing.assert_close(net.w.detach(), torch.full((2, 1), 3.0, dtype=torch.float64), atol=0.05, rtol=0)


# -- clipping, annealing, stopping --------------------------------------------


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


def test_parameters_without_a_member_axis_are_refused():
    with pytest.raises(ValueError, match="member axis first"):
        minimise(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 5)), lambda b, s: b[0], [torch.zeros(4, 1)], Plan(steps=5))


def test_annealed_quantities_arrive_at_their_end_and_stay():
    net, seen = Free([[1.0]]), []

    def loss(batch, step: Step):
        seen.append(float(step.annealed["e"]))
        return net.w.square().sum(1) * step.annealed["e"]

    minimise(net, loss, [torch.zeros(4, 1)], Plan(steps=100, anneal={"e": Anneal(1.0, 0.01, until=0.5)}))
    assert seen[0] == 1.0
    assert seen[25] == pytest.approx(0.1)
    assert seen[50:] == pytest.approx([0.01] * 50)


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


def test_history_is_a_table():
    net, data, loss = regression(members=3)
    history = minimise(net, loss, data, Plan(steps=50, every=10))
    frame = history.to_frame()
    assert frame.shape == (15, 7)
    assert frame.groupby("member").loss.apply(lambda v: v.iloc[-1] < v.iloc[0]).all()
    assert history.stopped == "steps"
    assert "50 steps" in repr(history)


# -- constraints --------------------------------------------------------------


def test_inequality_reaches_the_projection_and_its_multiplier():
    """min |w - c|² s.t. sum w <= 1: w = c - (λ/2) 1 and λ = 2 (sum c - 1) / m; inactive where sum c <= 1."""
    c = torch.tensor([[1.0, 2.0, 0.0], [0.1, 0.2, 0.3]], dtype=torch.float64)
    net = Free(torch.zeros(2, 3))

    def loss(batch, step):
        return Constrained((net.w - c).square().sum(1), inequality=net.w.sum(1, keepdim=True) - 1)

    plan = Plan(steps=4000, learning_rate=0.02, final=1e-3, dual_rate=0.02)
    history = minimise(net, loss, [torch.zeros(4, 1)], plan)
    expected = torch.stack([c[0] - 2 / 3, c[1]])
    torch.testing.assert_close(net.w.detach(), expected, atol=1e-3, rtol=0)
    np.testing.assert_allclose(history.multipliers[:, 0], [4 / 3, 0.0], atol=5e-3)
    assert history.violation[-1].max() < 1e-3


def test_equality_reaches_the_projection_with_a_multiplier_of_either_sign():
    c = torch.tensor([[1.0, 2.0, 0.0], [0.1, 0.2, 0.3]], dtype=torch.float64)
    net = Free(torch.zeros(2, 3))

    def loss(batch, step):
        return Constrained((net.w - c).square().sum(1), equality=net.w.sum(1, keepdim=True) - 1)

    plan = Plan(steps=4000, learning_rate=0.02, final=1e-3, dual_rate=0.02)
    history = minimise(net, loss, [torch.zeros(4, 1)], plan)
    torch.testing.assert_close(net.w.detach().sum(1), torch.ones(2, dtype=torch.float64), atol=1e-3, rtol=0)
    np.testing.assert_allclose(history.multipliers[:, 0], [4 / 3, -4 / 15], atol=5e-3)


def test_extragradient_solves_every_member_for_itself():
    """min (w - 3)² s.t. w <= b has w = min(3, b) and multiplier 2 (3 - w): two bounds that bind, one that does not."""
    net = torch.nn.Module()
    net.w = torch.nn.Parameter(torch.zeros(3, 1))
    bounds = torch.tensor([[1.0], [2.5], [5.0]])

    def objective(batch):
        return Constrained((net.w - batch[0]).square().sum(1), net.w - bounds)

    history = extragradient(net, objective, lambda: (torch.tensor(3.0),), 600, (5e-2, 2e-2))
    np.testing.assert_allclose(net.w.detach().flatten(), [1, 2.5, 3], atol=0.02)
    np.testing.assert_allclose(history.multipliers[:, 0], [4, 1, 0], atol=0.1)
    np.testing.assert_allclose(history.violation[-1], 0, atol=0.02)
    assert history.step[-1] == 600
    assert history.loss.shape == history.gradient.shape == (100, 3)


def test_extragradient_takes_the_steps_of_cooper():
    """The library of the pdGMM paper's authors, on the same batches: the same path, multiplier included."""
    cooper = pytest.importorskip("cooper")
    rng = torch.Generator().manual_seed(0)
    batches = torch.randn(30, 1, 8, 3, generator=rng, dtype=torch.float64)
    start = torch.randn(1, 3, 3, generator=rng, dtype=torch.float64)

    def objective(w, y):
        z = y @ w
        return Constrained((z @ w.mT - y).square().mean((1, 2)), z.abs().mean((1, 2))[:, None] - 0.1)

    net = torch.nn.Module()
    net.w = torch.nn.Parameter(start.clone())
    each = iter(batches)
    history = extragradient(net, lambda b: objective(net.w, *b), lambda: (next(each),), 30, (1e-2, 5e-3))

    w = torch.nn.Parameter(start.clone())

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


def test_agrees_with_cooper_on_a_constrained_norm():
    """min |w - c|² s.t. |w|_1 / m <= 0.2, the form of the pdGMM paper's second stage."""
    cooper = pytest.importorskip("cooper")
    c = torch.tensor([1.0, -0.6, 0.2], dtype=torch.float64)
    net = Free(torch.zeros(1, 3))

    def loss(batch, step):
        return Constrained((net.w - c).square().sum(1), inequality=net.w.abs().mean(1, keepdim=True) - 0.2)

    minimise(net, loss, [torch.zeros(4, 1)], Plan(steps=3000, learning_rate=0.01, final=1e-3, dual_rate=0.05))

    class Problem(cooper.ConstrainedMinimizationProblem):
        def __init__(self):
            super().__init__()
            multiplier = cooper.multipliers.DenseMultiplier(num_constraints=1)
            self.sparse = cooper.Constraint(cooper.ConstraintType.INEQUALITY, multiplier=multiplier)

        def compute_cmp_state(self, w):
            state = cooper.ConstraintState(violation=w.abs().mean() - 0.2)
            return cooper.CMPState(loss=(w - c).square().sum(), observed_constraints={self.sparse: state})

    w, problem = nn.Parameter(torch.zeros(3, dtype=torch.float64)), Problem()
    dual = torch.optim.SGD(problem.dual_parameters(), lr=0.05, maximize=True)
    solver = cooper.optim.SimultaneousOptimizer(problem, torch.optim.SGD([w], lr=0.005), dual)
    for _ in range(3000):
        solver.roll(compute_cmp_state_kwargs={"w": w})
    torch.testing.assert_close(net.w[0].detach(), w.detach(), atol=5e-3, rtol=0)


# -- checkpoints --------------------------------------------------------------


def interrupted(tmp_path, **plan):
    """Run to the end twice: at once, and stopped by an exception in between and resumed."""
    ends = []
    for stop in (None, 137):
        net, data, loss = regression()

        def stopping(batch, step, stop=stop, loss=loss):
            if step.number == stop:
                raise KeyboardInterrupt
            return loss(batch, step)

        def criterion(net=net, data=data):
            return (net(data[0].expand(2, -1, -1)) - data[1]).square().mean((1, 2))

        settings = Plan(steps=300, batch_size=64, every=10, checkpoint_seconds=0.0, **plan)
        arguments = {"seed": 5, "checkpoint": tmp_path / f"{stop}.safetensors", "criterion": criterion}
        if stop is not None:
            with pytest.raises(KeyboardInterrupt):
                minimise(net, stopping, data, settings, **arguments)
            for p in net.parameters():
                nn.init.zeros_(p)  # nothing but the file may carry the state
        history = minimise(net, loss, data, settings, **arguments)
        ends.append((weights(net), history))
    return ends


def test_resumed_equals_uninterrupted(tmp_path):
    (w, history), (resumed, resumed_history) = interrupted(tmp_path)
    assert torch.equal(w, resumed)
    np.testing.assert_array_equal(history.loss, resumed_history.loss)
    np.testing.assert_array_equal(history.best_step, resumed_history.best_step)


def test_resumed_constraint_keeps_its_multiplier(tmp_path):
    ends = []
    for stop in (None, 33):
        net, stops = Free([[0.0, 0.0]]), [stop]

        def loss(batch, step, net=net, stops=stops):
            if step.number in stops:
                stops.clear()
                raise KeyboardInterrupt
            return Constrained((net.w - 1).square().sum(1), inequality=net.w.sum(1, keepdim=True))

        plan = Plan(steps=100, every=1, checkpoint_seconds=0.0)
        arguments = (net, loss, [torch.zeros(4, 1)], plan)
        path = tmp_path / f"{stop}.safetensors"
        if stop is not None:
            with pytest.raises(KeyboardInterrupt):
                minimise(*arguments, checkpoint=path)
        history = minimise(*arguments, checkpoint=path)
        ends.append((net.w.detach().clone(), history.multipliers))
    assert torch.equal(ends[0][0], ends[1][0])
    np.testing.assert_array_equal(ends[0][1], ends[1][1])


def test_resumed_patience_goes_on_counting(tmp_path):
    """No record after the first is better; patience 5 ends at record 6, interrupted or not."""
    for stop in (None, 35):
        net, stops = Free([[0.0]]), [stop]

        def loss(batch, step, net=net, stops=stops):
            if step.number in stops:
                stops.clear()
                raise KeyboardInterrupt
            return -net.w.sum(1)

        plan = Plan(steps=1000, every=10, patience=5, checkpoint_seconds=0.0)
        arguments = (net, loss, [torch.zeros(4, 1)], plan)
        options = {"criterion": lambda net=net: net.w.sum(1), "checkpoint": tmp_path / f"{stop}.safetensors"}
        if stop is not None:
            with pytest.raises(KeyboardInterrupt):
                minimise(*arguments, **options)
        assert minimise(*arguments, **options).step[-1] == 60


@pytest.mark.parametrize("change", ["seed", "data", "plan", "problem"])
def test_a_checkpoint_of_another_problem_is_refused(tmp_path, change):
    net, data, loss = regression()
    path = tmp_path / "c.safetensors"
    minimise(net, loss, data, Plan(steps=20), checkpoint=path)
    if change == "data":
        data = [data[0] + 1e-9, data[1]]
    plan = Plan(steps=30 if change == "plan" else 20)
    other = {"seed": int(change == "seed"), "problem": "beta = 2" if change == "problem" else ""}
    with pytest.raises(DamagedFileError, match=r"belongs to another problem.*Delete it"):
        minimise(net, loss, data, plan, checkpoint=path, **other)


KILLED = textwrap.dedent("""
    import sys, numpy as np, torch
    from identifiable import VAE, save
    torch.set_num_threads(1)
    x = np.random.default_rng(0).normal(size=(400, 4))
    x[:, 2:] = np.tanh(x[:, :2] @ [[1, 2], [-1, 1]])
    checkpoint = sys.argv[1] if sys.argv[1] != "none" else None
    vae = VAE(n_restarts=3, max_steps=600, hidden=(16,), batch_size=64, random_state=3, device="cpu",
              checkpoint=checkpoint, patience=None, verbose=0)
    import identifiable.estimators.variational as module
    plan = module.Plan
    module.Plan = lambda *values, **settings: plan(*values, **settings, checkpoint_seconds=0.0)
    save(vae.fit(x), sys.argv[2])
""")


def test_killed_at_random_steps_and_resumed_gives_the_same_bits(tmp_path):
    """SIGKILL at random moments, again and again, until a fit gets through."""
    from identifiable.files import read

    command = [sys.executable, "-W", "ignore", "-c", KILLED, "none", str(tmp_path / "whole.safetensors")]
    subprocess.run(command, check=True)
    checkpoint, kills = tmp_path / "c.safetensors", 0
    while True:
        process = fresh.start(KILLED, checkpoint, tmp_path / "killed.safetensors")
        if kills < 3:
            while not checkpoint.exists() and process.is_alive():
                time.sleep(0.001)  # the first checkpoint is there
            time.sleep(random.uniform(0.0, 0.4))
            kills += process.is_alive()
            process.kill()
        process.join()
        if process.exitcode == 0:
            break
    assert kills >= 1
    assert not checkpoint.exists()
    whole = read(tmp_path / "whole.safetensors", "model").tensors
    killed = read(tmp_path / "killed.safetensors", "model").tensors
    nets = [name for name in whole if name.startswith("fitted/module_")]
    assert nets
    assert all(torch.equal(whole[name], killed[name]) for name in nets)


def test_checkpoint_needs_a_seed(tmp_path):
    from identifiable import VAE

    with pytest.raises(ValueError, match=r"an integer when checkpoint is given\. Got None"):
        VAE(checkpoint=tmp_path / "c").fit(np.random.default_rng(0).normal(size=(30, 3)))


def test_a_checkpoint_in_a_missing_folder_is_refused_before_training(tmp_path):
    net, data, loss = regression()
    before = weights(net)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        minimise(net, loss, data, Plan(steps=20), checkpoint=tmp_path / "no" / "c.safetensors")
    assert torch.equal(before, weights(net))


# -- progress -----------------------------------------------------------------


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
