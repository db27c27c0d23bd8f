"""Is training R restarts in one batch faster than one by one?

    python benchmarks/members.py [--device cuda] [--restarts 8] [--steps 1000]

Prints seconds of R fits one after the other, of one fit with R members, and their ratio, in one process on one device.
"""

import torch

from common import arguments, parse, timed
from identifiable.data import make_pdgmm
from identifiable.estimators import VAE


def fit_seconds(x, device: str, restarts: int, steps: int, seed: int) -> float:
    model = VAE(10, n_restarts=restarts, max_steps=steps, patience=None, device=device, random_state=seed, verbose=0)
    return timed(lambda: model.fit(x).transform(x[:1]))[1]  # the latents wait for the device


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


if __name__ == "__main__":
    main()
