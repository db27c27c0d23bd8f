"""What does the published autoencoder buy over the raw data, and does its norm term do anything?

    python benchmarks/two_stage.py [--settings default "1 var"] [--seeds 5] [--steps 5001] [--sparse-steps 0] [--unmix]

Stage 1 of `TwoStage` at its published size, on fresh batches of the published mixing: with the norm term, without it,
and with it but without the ε by which batch normalisation lets it shrink the code. All settings, seeds and variants
train in one batch of members; the variants of a draw see the same rows. Prints R² of the representation regressed on
the truth, fitted on half of 10,000 new rows and scored on the other, as mean (sd) over seeds, for raw x and for the
code; and MCC of the code as it is, after stage 2 (`--sparse-steps`, needs cooper) and after `SparseUnmixing`
(`--unmix`). The truth is used to score alone. Matrix products are in TF32 unless --exact. The default takes about four
minutes on an H200.
"""

import argparse
import time
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from identifiable import RecoveryWarning, SparseUnmixing
from identifiable.data import make_pdgmm
from identifiable.estimators.sparse_autoencoder import BLOCK, Bottleneck, excess_l1, minimise_with_cooper
from identifiable.estimators.two_stage import DeepLinear, half_norm
from identifiable.metrics import mcc, r2
from identifiable.nets import MLP
from identifiable.training import Constrained, Plan, minimise

PILOT, TEST, BATCH = 20_000, 10_000, 6144
HIDDEN, SPARSE_HIDDEN = (50, 100, 100, 50), (10, 50, 50, 50, 50, 10)  # in multiples of n
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "1 var": {"rho": "1 var"},
    "layers 3": {"layers": 3},
    "layers 20": {"layers": 20},
    "k=3": {"k": 3},
    "rho 75": {"rho": 75},
}
BEFORE = {  # R² of raw x and of the code: published, and measured before
    "default": "published code .94; before: x .93, code .95",
    "1 var": "published code .75; before: x .86, code .66",
    "layers 3": "published code .99; before: x .95, code .96",
    "layers 20": "published code .88; before: x .82, code .86",
    "k=3": "published code .92",
    "rho 75": "published code .95",
}
VARIANTS = {  # weight of the norm term, and the ε that batch normalisation adds to a variance
    "published": (1.0, 1e-5),
    "no norm": (0.0, 1e-5),
    "no ε": (1.0, 1e-12),
}


@dataclass(frozen=True)
class Draw:
    """One data set: its setting and seed."""

    setting: str
    seed: int

    def sample(self, n: int, rows: int):
        """Draw its first rows; its `source` draws others."""
        return make_pdgmm(rows, **{"n": n, **SETTINGS[self.setting]}, random_state=self.seed)


class Laws:
    """D pdGMMs that are drawn from at once: z = masked ε (I - A)^-1, x = mixing(z), centred and scaled, (D, B, n)."""

    def __init__(self, draws: list[Draw], n: int, batch: int, device: torch.device) -> None:
        samples = [draw.sample(n, PILOT) for draw in draws]
        sources = [sample.source for sample in samples]
        move = partial(torch.as_tensor, dtype=torch.float32, device=device)
        self.mean = move(np.stack([s.x.mean(0) for s in samples]))[:, None]
        self.scale = move([float(np.sqrt(s.x.var(0).mean())) for s in samples])[:, None, None]
        self.transfer = move(torch.stack([s.latents.transfer for s in sources]))
        self.rest = move(torch.stack([s.latents.rest for s in sources]))[:, None]
        masks = [s.latents.masks[torch.arange(batch) % len(s.latents.masks)] for s in sources]
        self.active = torch.stack(masks).to(device)  # equal shares of a batch
        depth = max(len(s.mixing.matrices) for s in sources)
        matrices, slopes = torch.eye(n).repeat(depth, len(draws), 1, 1), torch.ones(depth, len(draws), 1, 1)
        for i, source in enumerate(sources):  # a shallower mixing is the deeper one with identities at its end
            for layer, matrix in enumerate(source.mixing.matrices):
                matrices[layer, i] = matrix
            for layer, activation in enumerate(source.mixing.activations):
                slopes[layer, i] = activation.slope
        self.matrices, self.slopes = matrices.to(device), slopes.to(device)

    @torch.no_grad()
    def draw(self, rng: torch.Generator) -> Tensor:
        """Draw a batch of every law."""
        noise = torch.randn(self.active.shape, generator=rng, device=rng.device)
        h = torch.where(self.active, noise @ self.transfer, self.rest)
        for matrix, slope in zip(self.matrices, self.slopes, strict=True):
            h = h @ matrix
            h = torch.maximum(slope * h, h)
        return (h - self.mean) / self.scale


def build(members: int, n: int, rng: torch.Generator) -> Bottleneck:
    widths = (n, *(h * n for h in HIDDEN), n)
    leaky = partial(F.leaky_relu, negative_slope=0.02)
    encoder, decoder = (MLP(members, w, activation=leaky, rng=rng) for w in (widths, widths[::-1]))
    return Bottleneck(encoder, decoder, learn_scale=True)


def train(module: Bottleneck, laws: Laws, weights: Tensor, steps: int, batch: int) -> None:
    repeats = len(weights) // len(laws.mean)
    started = time.perf_counter()

    def data(rows: int, rng: torch.Generator) -> tuple[Tensor]:
        return (laws.draw(rng).repeat(repeats, 1, 1).flatten(0, 1),)

    def loss(drawn, step) -> Tensor:
        (x,) = drawn
        y = module(x)
        error = module.reconstruction(x, y)
        if step.number % max(1, steps // 10) == 0:
            errors = ", ".join(f"{e:.4f}" for e in error.detach().reshape(repeats, -1).mean(1).tolist())
            print(f"step {step.number}: error {errors}; {time.perf_counter() - started:.0f} s", flush=True)
        return error + weights * half_norm(y)

    plan = Plan(steps, batch_size=batch, learning_rate=1e-4, warm_up=0.0, final=1.0, betas=(0.9, 0.999))
    minimise(module, loss, data, plan)


def sparsify(module: Bottleneck, laws: Laws, steps: int, rng: torch.Generator) -> Bottleneck:
    """Stage 2 of all members, on fresh rows."""
    members, n = len(module.scale), module.scale.shape[-1]
    widths = (n, *(h * n for h in SPARSE_HIDDEN), n)
    encoder, decoder = (DeepLinear(members, w) for w in (widths, widths[::-1]))
    linear = Bottleneck(encoder, decoder, learn_scale=True).to(rng.device)

    @torch.no_grad()
    def draw() -> tuple[Tensor]:
        return (module(laws.draw(rng).repeat(members // len(laws.mean), 1, 1)),)

    def objective(batch) -> Constrained:
        (y,) = batch
        z = linear(y)
        return Constrained(linear.reconstruction(y, z), excess_l1(z, 0.01))

    history = minimise_with_cooper(linear, objective, draw, steps, (1e-4, 5e-5))
    print(f"stage 2: {history}", flush=True)
    return linear


def standardised(x: np.ndarray, laws: Laws, device: torch.device) -> Tensor:
    return (torch.as_tensor(x, dtype=torch.float32, device=device) - laws.mean) / laws.scale


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ({np.std(values, ddof=1) if len(values) > 1 else 0:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=["default", "1 var"], choices=list(SETTINGS))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--steps", type=int, default=5001)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--sparse-steps", type=int, default=0)
    parser.add_argument("--unmix", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("highest" if options.exact else "high")
    warnings.simplefilter("ignore", RecoveryWarning)
    device, n, started = torch.device(options.device), options.n, time.perf_counter()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    draws = [Draw(setting, seed) for setting in options.settings for seed in seeds]
    laws = Laws(draws, n, options.batch, device)
    weights, epsilons = torch.tensor([VARIANTS[v] for v in options.variants for _ in draws], device=device).T
    print(f"torch {torch.__version__}, {device}, {len(weights)} members, {options.steps} steps", flush=True)

    module = build(len(weights), n, torch.Generator().manual_seed(0)).to(device)
    module.normalise.epsilon = epsilons[:, None, None]
    train(module, laws, weights, options.steps, options.batch)
    torch.set_float32_matmul_precision("highest")
    rng = torch.Generator(device).manual_seed(1)
    pilot = torch.cat([laws.draw(rng) for _ in range(4)], dim=1).repeat(len(options.variants), 1, 1)
    module.freeze(lambda: pilot.split(BLOCK, dim=1))
    tests = [draw.sample(n, 1).source.sample(TEST, random_state=10**6) for draw in draws]
    x = standardised(np.stack([t.x for t in tests]), laws, device).repeat(len(options.variants), 1, 1)
    with torch.no_grad():
        codes = module(x)
    named = {"code": codes}
    if options.sparse_steps > 0:
        linear = sparsify(module, laws, options.sparse_steps, rng)
        with torch.no_grad():
            coded = [module(block) for block in pilot.split(BLOCK, dim=1)]
        linear.freeze(lambda: coded)
        named["stage 2"] = linear(codes)
    latents = {name: z.detach().double().cpu().numpy() for name, z in named.items()}
    size = codes.square().mean((1, 2)).sqrt().tolist()

    for v, variant in enumerate(options.variants):
        for setting in options.settings:
            own = [i for i, draw in enumerate(draws) if draw.setting == setting]
            scores = {"R2 x": [r2(tests[i].x, tests[i].z, held_out=True) for i in own]}
            z_hat = [latents["code"][v * len(draws) + i] for i in own]
            scores["R2 code"] = [r2(y, tests[i].z, held_out=True) for i, y in zip(own, z_hat, strict=True)]
            scores |= {
                f"MCC {name}": [mcc(tests[i].z, z[v * len(draws) + i]) for i in own] for name, z in latents.items()
            }
            if options.unmix:
                unmixed = [SparseUnmixing(n, random_state=0).fit_transform(y) for y in z_hat]
                scores["MCC unmixed"] = [mcc(tests[i].z, z) for i, z in zip(own, unmixed, strict=True)]
            own_size = np.mean([size[v * len(draws) + i] for i in own])
            cells = "  ".join(f"{name} {spread(values)}" for name, values in scores.items())
            print(f"{setting:<10} {variant:<10} {cells}  rms code {own_size:.3f}   [{BEFORE[setting]}]", flush=True)
    print(f"{time.perf_counter() - started:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
