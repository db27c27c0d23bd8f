"""The same code on CUDA. These tests need a device and are skipped without one."""

import numpy as np
import pytest
import torch

from identifiable import PDGMM, VAE, FactorialUnmixing, GMMFlow, SparseUnmixing, TwoStage, VaDE, load, save
from identifiable.data import load_digits, make_pdgmm, make_segments, make_tcl
from identifiable.metrics import mcc
from identifiable.training import Anneal, Constrained, Plan, minimise

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning"),
]
SETTINGS = {"n_latents": 3, "n_restarts": 3, "max_steps": 200, "random_state": 0, "device": "cuda", "verbose": 0}


@pytest.fixture(scope="module")
def x():
    return make_pdgmm(2000, n=3).x


def test_a_fit_is_reproducible_bit_for_bit(x):
    a, b = (VAE(**SETTINGS).fit(x).transform(x) for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_a_model_moves_between_devices(x, tmp_path):
    model = VAE(**SETTINGS).fit(x)
    assert next(model.module_.parameters()).is_cuda
    save(model, tmp_path / "m.safetensors")
    on_cpu = load(tmp_path / "m.safetensors", device="cpu")
    np.testing.assert_allclose(on_cpu.transform(x), model.transform(x), atol=1e-8)
    assert next(load(tmp_path / "m.safetensors", device="cuda").module_.parameters()).is_cuda


def test_training_from_a_stream_resumes_exactly(tmp_path):
    source = make_segments(10, random_state=0).source
    ends = []
    for stop in (None, 37):
        net = torch.nn.Module()
        net.w = torch.nn.Parameter(torch.zeros(2, 5, device="cuda"))
        stops = [stop]

        def loss(batch, step, net=net, stops=stops):
            if step.number in stops:
                stops.clear()
                raise KeyboardInterrupt
            x, u = batch
            assert x.is_cuda
            assert u.is_cuda
            return (net.w[:, None] - x).square().mean((1, 2))

        plan = Plan(steps=100, batch_size=64, every=5, checkpoint_seconds=0.0)
        path = tmp_path / f"{stop}.safetensors"
        if stop is not None:
            with pytest.raises(KeyboardInterrupt):
                minimise(net, loss, source.stream("cuda"), plan, checkpoint=path)
        minimise(net, loss, source.stream("cuda"), plan, checkpoint=path)
        ends.append(net.w.detach().clone())
    assert torch.equal(ends[0], ends[1])


def test_a_recorded_step_is_the_step():
    """Annealing, learning rate and `prepare` reach a recorded step: training ends where it ends without recording."""
    data = [torch.randn(500, 3, generator=torch.Generator().manual_seed(0)).cuda()]
    ends = []
    for capture in (False, True):
        net = torch.nn.Module()
        net.w = torch.nn.Parameter(torch.zeros(2, 3, device="cuda"))

        def loss(batch, step, net=net):
            return (net.w[:, None] - step.annealed["a"] * batch[0]).square().mean((1, 2))

        plan = Plan(steps=60, batch_size=100, learning_rate=0.05, anneal={"a": Anneal(1.0, 3.0)})
        history = minimise(net, loss, data, plan, prepare=lambda b, step: (b[0] + step.number,), capture=capture)
        ends.append((net.w.detach(), torch.as_tensor(history.loss)))
    torch.testing.assert_close(ends[0], ends[1])


@pytest.mark.parametrize("n", [3, 12])
def test_many_data_sets_at_once(n):
    samples = [make_pdgmm(2000, n=n, layers=2, random_state=seed) for seed in (2, 3)]
    models = PDGMM(n, max_steps=300, depth=6, extended=False, random_state=0, verbose=0).fit_many(
        [s.x for s in samples]
    )
    for sample, model in zip(samples, models, strict=True):
        assert model.module_.width.is_cuda
        linear = SparseUnmixing(n, random_state=0, noisy=False).fit(sample.x)
        assert mcc(sample.z, model.transform(sample.x)) > mcc(sample.z, linear.transform(sample.x)) - 0.01


def test_a_million_rows_on_the_device():
    draw = make_pdgmm(10, n=40, layers=10).source.stream("cuda")
    x = draw(1_000_000, torch.Generator("cuda").manual_seed(0))[0]
    assert x.is_cuda
    assert x.shape == (1_000_000, 40)


@pytest.mark.parametrize("flow", ["leaky", "softplus"])
def test_a_flow_over_a_mixture(flow):
    sample = make_tcl(8000, n=2, segments=10, layers=3, random_state=0)
    model = GMMFlow(n_components=20, n_restarts=2, depth=12, flow=flow, device="cuda", random_state=0, verbose=0)
    model.set_params(full_covariance_steps=500, max_steps=500, batch_size=512).fit(sample.x)
    assert model.module_.base.means.is_cuda
    linear = FactorialUnmixing(n_components=20, n_restarts=1, random_state=0).fit(sample.x)
    assert model.score(sample.x) > linear.score(sample.x) + 0.03
    np.testing.assert_allclose(model.inverse_transform(model.transform(sample.x)), sample.x, atol=1e-6)


@pytest.mark.parametrize("net", ["mlp", "convnet"])
def test_a_recorded_step_draws_anew_and_a_fit_is_repeatable(net):
    """Noise, dropped units and bits are drawn inside the step that is recorded; convolutions must add in one order."""
    x = load_digits().x
    settings = {"likelihood": "bernoulli", "binarise": "draw", "net": net, "pretrain_steps": 20, "max_steps": 60}
    fits = [VaDE(3, 5, n_restarts=2, random_state=0, device="cuda", verbose=0, **settings).fit(x) for _ in range(2)]
    np.testing.assert_array_equal(*(m.latents_of_restarts(x) for m in fits))
    other = VaDE(3, 5, n_restarts=2, random_state=1, device="cuda", verbose=0, **settings).fit(x)
    assert not np.array_equal(fits[0].transform(x), other.transform(x))


def test_every_replay_of_a_recorded_step_has_its_own_noise():
    module = torch.nn.Module()
    module.w = torch.nn.Parameter(torch.zeros(1, 1, device="cuda"))
    seen = torch.zeros(50, device="cuda")
    module.register_buffer("count", torch.zeros(1, dtype=torch.int64, device="cuda"))

    def loss(batch, step):
        noise = torch.randn((), generator=step.rng, device="cuda")
        seen.index_copy_(0, module.count, noise[None])
        module.count.add_(1)
        return (module.w - batch[0]).square().mean(1) + 0 * noise

    minimise(module, loss, [torch.ones(8, device="cuda")], Plan(50), capture=True)
    assert len(set(seen.tolist())) == 50


def test_a_recorded_extragradient_step_is_the_step():
    ends = []
    for device in ("cpu", "cuda"):
        net = torch.nn.Module()
        net.w = torch.nn.Parameter(torch.zeros(2, 1, device=device))
        given = iter(torch.linspace(2, 4, 200, device=device))

        def loss(batch, step, net=net):
            return Constrained((net.w - batch[0][..., 0]).square().sum(1), net.w - 1)

        def data(rows, rng, given=given):
            return (next(given).expand(rows, 1),)

        plan = Plan(200, 1, 5e-2, dual_rate=2e-2, warm_up=0.0, final=1.0, betas=(0.9, 0.999))
        history = minimise(net, loss, data, plan, capture=True)
        ends.append((net.w.detach().cpu().numpy(), history.multipliers, history.loss, history.gradient))
    for on_cpu, on_gpu in zip(*ends, strict=True):
        np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-4, atol=1e-4)  # the gradient passes zero


def test_two_stages_on_fresh_rows():
    source = make_pdgmm(10, n=3, k=0, rho="1 var", layers=1, random_state=1).source
    new = source.sample(1000, 5)
    settings = {"hidden": (), "norm_weight": 0.0, "sparse_hidden": (4, 4), "max_steps": 200, "sparse_steps": 400}
    rates = {"batch_size": 500, "learning_rate": 1e-2, "sparse_rate": 1e-2, "dual_rate": 5e-3}
    model = TwoStage(3, **settings, **rates, random_state=0, device="cuda", verbose=0).fit(source)
    assert mcc(new.z, model.transform(new.x)) > 0.99
    again = TwoStage(3, **settings, **rates, random_state=0, device="cuda", verbose=0).fit(source)
    np.testing.assert_array_equal(again.transform(new.x), model.transform(new.x))
