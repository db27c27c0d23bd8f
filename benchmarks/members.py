"""Is training R restarts in one batch faster than one by one, and are batched layers faster than torch.func.vmap?

    python benchmarks/members.py [--device cuda] [--restarts 8] [--steps 1000]

Prints seconds of R fits one after the other, of one fit with R members, and their ratio; then the time of a training
step with our batched layers and with vmap over stacked plain modules. Both halves run in one process, on one device.
"""

import time
from itertools import pairwise

import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from common import arguments, parse
from identifiable.data import make_pdgmm
from identifiable.estimators import VAE
from identifiable.nets import MLP


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def fit_seconds(x, device: str, restarts: int, steps: int, seed: int) -> float:
    model = VAE(10, n_restarts=restarts, max_steps=steps, patience=None, device=device, random_state=seed, verbose=0)
    synchronise(device)
    started = time.perf_counter()
    model.fit(x)
    synchronise(device)
    return time.perf_counter() - started


def step_seconds(step, device: str, repeats: int = 200) -> float:
    for _ in range(20):
        step()
    synchronise(device)
    started = time.perf_counter()
    for _ in range(repeats):
        step()
    synchronise(device)
    return (time.perf_counter() - started) / repeats


def compare_layers(device: str, members: int, batch: int, widths: tuple[int, ...]) -> tuple[float, float]:
    x = torch.randn(members, batch, widths[0], device=device)
    batched = MLP(members, widths, activation="silu").to(device)

    def explicit() -> None:
        batched.zero_grad(set_to_none=True)
        batched(x).square().mean((1, 2)).sum().backward()

    def plain() -> nn.Module:
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.SiLU()]
        return nn.Sequential(*layers[:-1]).to(device)

    nets = [plain() for _ in range(members)]
    parameters, buffers = stack_module_state(nets)
    skeleton = nets[0]

    def loss(p, b, x):
        return functional_call(skeleton, (p, b), (x,)).square().mean()

    gradient = vmap(grad(loss))
    return step_seconds(explicit, device), step_seconds(lambda: gradient(parameters, buffers, x), device)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--restarts", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000)
    options = parse(parser)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"torch {torch.__version__}, {name}, {options.restarts} restarts, {options.steps} steps of 256")

    x = make_pdgmm(20_000, n=10).x
    fit_seconds(x, options.device, 1, 50, 0)  # warm-up
    fit_seconds(x, options.device, options.restarts, 50, 0)
    one_by_one = sum(fit_seconds(x, options.device, 1, options.steps, seed) for seed in range(options.restarts))
    together = fit_seconds(x, options.device, options.restarts, options.steps, 0)
    print(f"{options.restarts} fits one after the other {one_by_one:6.2f} s")
    print(f"{options.restarts} restarts in one batch    {together:6.2f} s")
    print(f"ratio                        {together / one_by_one:6.3f}")

    print("step of forward and backward, milliseconds:   batched layers      vmap    ratio")
    for batch, widths in ((256, (10, 64, 64, 20)), (1024, (50, 500, 500, 100))):
        ours, theirs = compare_layers(options.device, options.restarts, batch, widths)
        print(f"  batch {batch:5d}, widths {widths!s:22s} {1e3 * ours:14.3f} {1e3 * theirs:10.3f} {ours / theirs:8.2f}")


if __name__ == "__main__":
    main()
