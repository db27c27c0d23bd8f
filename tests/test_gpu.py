"""The same code on CUDA. These tests need a device and are skipped without one."""

import numpy as np
import pytest
import torch

from identifiable import VAE, load, save
from identifiable.data import make_pdgmm, make_segments
from identifiable.train import Plan, minimise

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


def test_a_million_rows_on_the_device():
    draw = make_pdgmm(10, n=40, layers=10).source.stream("cuda")
    x = draw(1_000_000, torch.Generator("cuda").manual_seed(0))[0]
    assert x.is_cuda
    assert x.shape == (1_000_000, 40)
