"""Batches, histories and checkpoints."""

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
from identifiable import DamagedFileError
from identifiable.training import Constrained, Plan, minimise
from identifiable.training.plan import HURRY
from problems import Free, regression, weights


def test_every_row_is_seen_once_an_epoch_in_another_order_by_every_member():
    net, seen = Free([[0.0], [0.0]]), []

    def loss(batch, step):
        seen.append(batch[0][..., 0].clone())
        assert torch.equal(batch[1], 2 * batch[0])  # rows of several arrays stay together
        return net.w.sum(1) * 0

    rows = torch.arange(100.0)[:, None]
    minimise(net, loss, [rows, 2 * rows], Plan(steps=8, batch_size=25))
    first, second = torch.cat(seen[:4], 1), torch.cat(seen[4:], 1)
    for epoch in (first, second):
        assert torch.equal(epoch.sort(1).values, torch.arange(100.0).expand(2, 100))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, second)


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


def test_parameters_without_a_member_axis_are_refused():
    with pytest.raises(ValueError, match="member axis first"):
        minimise(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 5)), lambda b, s: b[0], [torch.zeros(4, 1)], Plan(steps=5))


def test_history_is_a_table():
    net, data, loss = regression(members=3)
    history = minimise(net, loss, data, Plan(steps=50, every=10))
    frame = history.to_frame()
    assert frame.shape == (15, 7)
    assert frame.groupby("member").loss.apply(lambda v: v.iloc[-1] < v.iloc[0]).all()
    assert history.stopped == "steps"
    assert "50 steps" in repr(history)


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


def test_a_resumed_fit_settles_at_the_same_step(tmp_path):
    """The records that are compared, and the place in the schedule, are part of a checkpoint."""
    ends, rows = [], torch.linspace(-1, 1, 9, dtype=torch.float64)
    for stop in (None, 145, 245):  # it settles at step 200
        net, stops = Free([[0.0]]), [stop]

        def loss(batch, step, net=net, stops=stops):
            if step.number in stops:
                stops.clear()
                raise KeyboardInterrupt
            return 0 * net.w.sum(1)

        plan = Plan(steps=1000, every=10, settled_from=0.1, checkpoint_seconds=0.0)
        options = {"criterion": lambda net=net: net.w + rows, "checkpoint": tmp_path / f"{stop}.safetensors"}
        if stop is not None:
            with pytest.raises(KeyboardInterrupt):
                minimise(net, loss, [torch.zeros(4, 1)], plan, **options)
        history = minimise(net, loss, [torch.zeros(4, 1)], plan, **options)
        ends.append((history.stopped, history.step[-1]))
    assert ends == [("settled", 200 + 800 / HURRY)] * 3


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


def test_a_checkpoint_in_a_missing_folder_is_refused_before_training(tmp_path):
    net, data, loss = regression()
    before = weights(net)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        minimise(net, loss, data, Plan(steps=20), checkpoint=tmp_path / "no" / "c.safetensors")
    assert torch.equal(before, weights(net))


def test_resumed_constraint_keeps_its_multiplier(tmp_path):
    ends = []
    for stop in (None, 33):
        net, stops = Free([[0.0, 0.0]]), [stop]

        def loss(batch, step, net=net, stops=stops):
            if step.number in stops:
                stops.clear()
                raise KeyboardInterrupt
            return Constrained((net.w - 1).square().sum(1), net.w.sum(1, keepdim=True))

        plan = Plan(steps=100, every=1, checkpoint_seconds=0.0, dual_rate=1e-2)
        arguments = (net, loss, [torch.zeros(4, 1)], plan)
        path = tmp_path / f"{stop}.safetensors"
        if stop is not None:
            with pytest.raises(KeyboardInterrupt):
                minimise(*arguments, checkpoint=path)
        history = minimise(*arguments, checkpoint=path)
        ends.append((net.w.detach().clone(), history.multipliers))
    assert torch.equal(ends[0][0], ends[1][0])
    np.testing.assert_array_equal(ends[0][1], ends[1][1])
