"""The stages of PDGMM one by one, on rows whose latents are known."""

import threading
import time

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed, parallel_config

from identifiable.estimators.pdgmm import stages
from identifiable.estimators.pdgmm.stages import (
    SCHEDULE,
    FlowModel,
    Sets,
    Start,
    Training,
    exact_mixture,
    find_components,
    full_mixture,
    in_parallel,
    refine_latents,
    spike_and_slab,
    start_of,
    steps_for,
)
from identifiable.flows import SmoothLeakyFlow
from identifiable.metrics import mcc
from identifiable.priors.masked import MaskedGaussians
from identifiable.priors.spike_slab import SpikeAndSlab
from identifiable.training import Step, run, seconds_left, time_limit

HOW = Training(depth=2, batch_size=64, learning_rate=1e-2)
MASKS = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]])
MIXING = np.array([[1.0, 0.4, 0.0], [-0.3, 1.0, 0.2], [0.1, 0.5, 1.0]])


def latents(rows=3000, seed=0, noise=0.0):
    """Three latents around (1, 2, 3) with standard deviations (1, 2, 1), two of them active in each row."""
    rng = np.random.default_rng(seed)
    z = rng.normal([1, 2, 3], [1, 2, 1], size=(rows, 3)) * MASKS[rng.integers(3, size=rows)]
    return z + noise * rng.normal(size=z.shape)


def sets_of(*tables, noise=0.0):
    rows = torch.stack([torch.as_tensor(t).float() for t in tables])
    return Sets(rows, torch.arange(len(tables)), torch.full((len(tables), 1, 1), noise))


def true_start(z):
    return start_of(z @ MIXING, [np.c_[np.linalg.inv(MIXING).T, np.zeros(3)]])


def first_stage(generator):
    return next(generator)


# -- starts and rows ------------------------------------------------------------------------


def test_steps_grow_with_the_latents():
    assert sorted(steps_for(n) for n in range(1, 90)) == [steps_for(n) for n in range(1, 90)]


def test_a_start_scales_active_latents_to_unit_variance():
    z = latents()
    start = true_start(z)
    np.testing.assert_allclose(start.shares, np.full((1, 3), 2 / 3), atol=0.12)
    np.testing.assert_allclose(start.means, [[1, 1, 3]], atol=0.3)
    np.testing.assert_allclose(z @ MIXING @ start.W[0].numpy() + start.b[0].numpy(), z / [1, 2, 1], rtol=0.1, atol=0.01)
    assert not start.rare
    three = Start.join([start, true_start(0.05 * z), true_start(z)])
    assert three.W.shape == (3, 3, 3)
    assert torch.equal(three.only([2]).W, start.W)
    rare = Start(start.W, start.b, 0.05 * torch.ones(1, 3), start.means)
    assert rare.rare.tolist() == [True]


def test_members_draw_rows_of_their_own_data_set():
    one, other = torch.zeros(5, 2), torch.ones(7, 2)[:5]
    sets = Sets(torch.stack([one, other]), torch.tensor([1, 0, 1]), torch.zeros(3, 1, 1))
    (rows,) = sets.batches()(12, torch.Generator())
    assert rows.reshape(3, 4, 2)[:, 0, 0].tolist() == [1, 0, 1]
    assert sets.only([1]).seen.tolist() == [0]
    (alone,) = Sets(one[None], torch.tensor([0]), torch.zeros(1, 1, 1)).batches()
    assert torch.equal(alone, one)

    def stream(rows, rng):
        return (torch.zeros(rows, 2),)

    assert Sets(one[None], torch.tensor([0]), torch.zeros(1, 1, 1), stream).batches() is stream


# -- training --------------------------------------------------------------------------------


def test_stage_a_starts_at_the_linear_unmixing():
    z = latents()
    x, start = torch.as_tensor(z @ MIXING).float(), true_start(z)
    stage = first_stage(spike_and_slab(sets_of(x), start, 10, HOW, 0, SpikeAndSlab))
    found = stage.module.latents(x[None])[0].detach().numpy()
    assert mcc(z, found) > 0.995
    np.testing.assert_allclose(found.std(0), z.std(0) / [1, 2, 1], rtol=0.1)
    assert stage.plan.steps == 10
    assert stage.plan.learning_rate == SCHEDULE.rate_a * HOW.learning_rate


def test_stage_a_makes_rows_likelier():
    z = latents()
    sets, start = sets_of(z @ MIXING), true_start(z)
    one, many = (run(spike_and_slab(sets, start, steps, HOW, 0, SpikeAndSlab)) for steps in (1, 150))
    assert many.width.item() == pytest.approx(SCHEDULE.width_a[1])
    assert many.log_prob(sets.rows).mean() > one.log_prob(sets.rows).mean() + 0.1
    assert mcc(z, many.latents(sets.rows)[0].detach().numpy()) > 0.99


def test_a_model_is_a_density_and_its_inverse():
    model = FlowModel(
        SmoothLeakyFlow(2, 3, 4, rng=torch.Generator()), SpikeAndSlab(*torch.ones(2, 2, 3) * 0.5), torch.ones(2, 1)
    )
    x = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    t, density = model(x)
    assert torch.equal(model.latents(x), t)
    assert torch.equal(model.log_prob(x), density)
    torch.testing.assert_close(model.observations(t), x, rtol=0, atol=1e-4)
    torch.testing.assert_close(density, model.prior(t, model.width) + model.flow(x)[1])


def masked_model(width=0.2):
    prior = MaskedGaussians(torch.as_tensor(MASKS).float()[None], torch.zeros(1, 3), torch.ones(1, 1, 3))
    return FlowModel(SmoothLeakyFlow(1, 3, 2, rng=torch.Generator()), prior, torch.full((1, 1), width))


@pytest.mark.parametrize(("extended", "factor"), [(False, 1.0), (True, SCHEDULE.rate_b_extended)])
def test_stage_b_narrows_the_prior_around_the_spikes(extended, factor):
    model, how = masked_model(), Training(2, 64, 1e-2, extended)
    spike = torch.tensor([[0.2]])
    stage = first_stage(exact_mixture(model, sets_of(latents()), spike, 20, how, 0))
    assert stage.plan.learning_rate == pytest.approx(factor * 1e-2)
    run(exact_mixture(model, sets_of(latents()), spike, 5, how, 0))
    assert model.width.item() == pytest.approx(SCHEDULE.end_b * 0.2)
    run(exact_mixture(model, sets_of(latents()), torch.tensor([[9.0]]), 5, how, 0))
    assert model.width.item() == pytest.approx(SCHEDULE.end_bounds[1])


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_rows_are_noisy_where_latents_are_rarely_active(noise):
    model, rng = masked_model(), torch.Generator().manual_seed(0)
    stage = first_stage(exact_mixture(model, sets_of(latents(), noise=noise), torch.tensor([[0.2]]), 100, HOW, 0))
    x, sizes = torch.zeros(1, 4000, 3), []
    for done in (0.0, 1.0):
        (seen,) = stage.prepare((x,), Step(0, rng, {"done": torch.tensor(done)}))
        sizes.append(float(seen.std()))
        assert model.flow.beta.max() == pytest.approx(SCHEDULE.sharpness / [0.24, 0.1][done == 1])
    assert sizes == pytest.approx([noise * 0.24, noise * 0.1], rel=0.05)


def test_stage_b_follows_the_weights_of_the_masks():
    model, sets = masked_model(), sets_of(latents()[latents()[:, 0] == 0])
    stage = first_stage(exact_mixture(model, sets, torch.tensor([[0.2]]), 100, HOW, 0))
    for number in (0, 1):
        before = model.prior.log_weights.clone()
        stage.prepare((sets.rows,), Step(number, torch.Generator(), {"done": torch.tensor(0.0)}))
        assert torch.equal(before, model.prior.log_weights) == (number == 1)
    assert model.prior.log_weights.argmax() == 1


def test_a_mixture_of_full_rank_has_as_many_components_as_clusters():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2)) * [1, 3] + np.repeat([[0, 0], [20, 0], [0, 60]], 200, axis=0)
    model = first_stage(full_mixture(sets_of(x), 3, HOW, 0)).module
    assert model.prior.centres.shape == (1, 3, 2)
    np.testing.assert_allclose(model.prior.log_weights.exp().detach(), np.full((1, 3), 1 / 3), atol=0.05)
    t = model.latents(torch.as_tensor(x).float()[None])[0].detach().numpy()
    np.testing.assert_allclose([t.mean(0), t.std(0)], [[0, 0], [1, 1]], atol=0.15)


# -- components --------------------------------------------------------------------------------


def identity_flow(n=3):
    flow = SmoothLeakyFlow(1, n, 2, start=torch.eye(n)[None], rng=torch.Generator())
    return FlowModel(flow, SpikeAndSlab(torch.full((1, n), 0.5), torch.zeros(1, n)), torch.ones(1, 1))


@pytest.mark.parametrize("refine", [True, False])
def test_components_are_read_from_the_latents(refine):
    z = latents(noise=0.02)
    model, spike = find_components(identity_flow(), sets_of(z), 0, refine=refine)
    weights = model.prior.log_weights[0].exp()
    heavy = {tuple(mask) for mask in model.prior.masks[0][weights > 0.1].int().tolist()}
    assert heavy == {tuple(mask) for mask in MASKS.tolist()}
    t = model.latents(torch.as_tensor(z).float()[None])[0].detach().numpy()
    assert mcc(z, t) > 0.999
    np.testing.assert_allclose([t[np.abs(t[:, i]) > 0.2, i].std() for i in range(3)], 1, atol=0.1)
    assert 0.005 < spike.item() < 0.05
    assert model.width.item() == max(spike.item(), SCHEDULE.end_bounds[0])


def test_refinement_removes_a_mixing_that_is_left():
    z = latents(noise=0.02)
    rows = np.c_[np.eye(3) + 0.1 * np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]]), np.zeros(3)]
    found = refine_latents(z, rows, 0)
    assert mcc(z, z @ found.rows[:, :3].T + found.rows[:, 3]) > 0.9995 > mcc(z, z @ rows[:, :3].T)


def test_in_parallel_keeps_the_order_and_one_thread(monkeypatch):
    for cores in (1, 4):
        monkeypatch.setattr(stages, "cpu_count", lambda cores=cores: cores)
        with parallel_config(backend="threading"):
            assert in_parallel(divmod, [(n, 3) for n in range(7)]) == [divmod(n, 3) for n in range(7)]
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert in_parallel(torch.get_num_threads, [()]) == [1]
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(("allowed", "threads"), [("2", 2), ("1", 1)])
def test_few_calls_run_in_as_many_threads_as_allowed(monkeypatch, allowed, threads):
    monkeypatch.setattr(stages, "cpu_count", lambda: 2)
    monkeypatch.setenv("OMP_NUM_THREADS", allowed)

    def seen(_):
        time.sleep(0.1)
        return threading.get_ident(), seconds_left()

    with time_limit(60):
        names, left = zip(*in_parallel(seen, [(k,) for k in range(4)]), strict=True)
        inside = Parallel(n_jobs=2, backend="threading")(delayed(in_parallel)(seen, [(0,), (1,)]) for _ in range(2))
    assert len(set(names)) == threads
    assert max(left) <= 60  # threads keep the time limit
    assert [len({name for name, _ in found}) for found in inside] == [1, 1]  # a worker does not start others
