"""Does SparseUnmixing recover affine mixtures over a grid of settings, how fast, and does it report failures?

    python benchmarks/sparse_unmixing.py --n 5 10 --seeds 5 [--first-seed 0] [--noise 0.05]

The ground truth is used for the scores only. A setting is (n, k, rho, delta); a latent that is never active in a data
set is left out of the mean. Prints every run below the bar or not fully verified, and a summary per n: mean and worst
MCC, median and longest seconds, beside FastICA and the best affine map of the data (least squares on the truth).
Seconds are CPU seconds of one thread, so that other processes do not distort them.
"""

import itertools
import time

import numpy as np

from common import arguments, parse
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


def best_affine(z, x) -> float:
    ones = np.c_[x, np.ones(len(x))]
    return mcc(z, ones @ np.linalg.lstsq(ones, z, rcond=None)[0])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--k", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--rho", nargs="+", default=["1 var", "50", "75"])
    parser.add_argument("--delta", type=float, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--bar", type=float, default=0.999)
    options = parse(parser)
    for n in options.n:
        scores, seconds, ica_scores, ica_seconds, gaps = [], [], [], [], []
        for k, rho, delta in itertools.product(options.k, options.rho, options.delta):
            rho = rho if rho == "1 var" else int(rho)
            for seed in options.seeds:
                z, x = affine_mixture(n, k, rho, delta, options.noise, seed)
                started = time.process_time()
                model = SparseUnmixing(z.shape[1], random_state=seed, verbose=0).fit(x)
                seconds.append(time.process_time() - started)
                scores.append(mcc(z, model.transform(x)))
                started = time.process_time()
                ica = IndependentComponents(z.shape[1], n_restarts=1, random_state=seed).fit(x)
                ica_seconds.append(time.process_time() - started)
                ica_scores.append(mcc(z, ica.transform(x)))
                gaps.append(best_affine(z, x) - scores[-1])
                if scores[-1] < options.bar or model.n_found_ < z.shape[1]:
                    print(
                        f"n={n} k={k} rho={rho} delta={delta:g} seed={seed}: MCC {scores[-1]:.4f}, found "
                        f"{model.n_found_} of {z.shape[1]}, {seconds[-1]:.1f} s",
                        flush=True,
                    )
        print(
            f"n={n}: {len(scores)} runs, MCC mean {np.mean(scores):.4f} sd {np.std(scores, ddof=1):.4f} worst "
            f"{min(scores):.4f}; below the best affine map by {np.mean(gaps):.4f}, at most {max(gaps):.4f}; seconds "
            f"median {np.median(seconds):.2f}, longest {max(seconds):.1f}; FastICA mean {np.mean(ica_scores):.4f} "
            f"worst {min(ica_scores):.4f}, median {np.median(ica_seconds):.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
