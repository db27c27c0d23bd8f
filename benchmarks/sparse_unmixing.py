"""Does SparseUnmixing recover affine mixtures over a grid of settings, how fast, and does it report failures?

    python benchmarks/sparse_unmixing.py --n 5 10 --seeds 5 [--first-seed 0] [--noise 0.05]

The ground truth is used for the scores only. A setting is (n, k, rho, delta); a latent that is never active in a data
set is left out of the mean. Prints a line per run and method, and a summary per n, beside FastICA and the best affine
map of the data (least squares on the truth). Seconds are CPU seconds of one thread, so that other processes do not
distort them.
"""

import itertools
import time

import numpy as np

from common import Results, arguments, parse, summary
from identifiable import IndependentComponents, SparseUnmixing
from identifiable.data import make_pdgmm
from identifiable.metrics import mcc

ROWS = 20_000


def affine_mixture(n: int, k: int, rho, delta: float, noise: float, seed: int):
    sample = make_pdgmm(ROWS, n=n, k=k, rho=rho, delta=delta, layers=1, random_state=seed)
    rng = np.random.default_rng([seed, n])
    x = sample.z @ rng.normal(size=(n, n)) + rng.normal(size=n)
    x += noise * x.std(0) * rng.normal(size=x.shape)
    return sample.z[:, sample.z.std(0) > 1e-9], x


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--k", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--rho", nargs="+", default=["1 var", "50", "75"])
    parser.add_argument("--delta", type=float, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--noise", type=float, default=0.0)
    options = parse(parser)
    results = Results(options.csv)
    for n, k, rho, delta, seed in itertools.product(options.n, options.k, options.rho, options.delta, options.seeds):
        z, x = affine_mixture(n, k, rho if rho == "1 var" else int(rho), delta, options.noise, seed)
        ones = np.c_[x, np.ones(len(x))]
        best = mcc(z, ones @ np.linalg.lstsq(ones, z, rcond=None)[0])
        sparse = SparseUnmixing(z.shape[1], random_state=seed, verbose=0)
        for model in (sparse, IndependentComponents(z.shape[1], n_restarts=1, random_state=seed)):
            started = time.process_time()
            latents = model.fit_transform(x)
            row = {"n": n, "k": k, "rho": rho, "delta": delta, "seed": seed, "method": type(model).__name__}
            row |= {"seconds": time.process_time() - started, "mcc": mcc(z, latents)}
            row["below the best affine map"] = best - row["mcc"]
            results.add(row | ({"verified": model.n_found_ / z.shape[1]} if model is sparse else {}))
    print(summary(results.frame().drop(columns=["k", "delta"]), ["n", "method"]).to_string())


if __name__ == "__main__":
    main()
