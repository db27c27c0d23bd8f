"""Does SparseUnmixing recover affine mixtures over a grid of settings, how fast, and does it report failures?

    python benchmarks/sparse_unmixing.py --n 5 10 --seeds 5 [--first-seed 0] [--noise 0.05]
    python benchmarks/sparse_unmixing.py --certificates --n 10 20 --seeds 10 --csv certificates.csv
    python benchmarks/sparse_unmixing.py --certificates --n 40 --rho 50 --delta 2 3 --seeds 20

The ground truth is used for the scores only. A setting is (n, k, rho, delta); a latent that is never active in a data
set is left out of the mean. Prints a line per run and method, and a summary per n, beside FastICA and the best affine
map of the data (least squares on the truth). Seconds are CPU seconds of one thread, so that other processes do not
distort them.

--certificates fits SparseUnmixing alone and compares its certificate with the ground truth. `identified` says whether
the true patterns separate all latents (assumption 3.8b); `silent` marks runs with MCC < .999 in which all latents are
verified and the level is PS. The script ends with an error if there is such a run.
"""

import itertools
import sys
import time

import numpy as np

from common import Results, arguments, parse, summary
from identifiable import IndependentComponents, Level, SparseUnmixing
from identifiable.data import make_pdgmm
from identifiable.metrics import mcc

ROWS = 20_000
EXACT = 0.999  # MCC below this is a failure


def affine_mixture(n: int, k: int, rho, delta: float, noise: float, seed: int):
    """Return the latents that vary, the rows, and whether the patterns of activity separate all these latents."""
    sample = make_pdgmm(ROWS, n=n, k=k, rho=rho, delta=delta, layers=1, random_state=seed)
    rng = np.random.default_rng([seed, n])
    x = sample.z @ rng.normal(size=(n, n)) + rng.normal(size=n)
    x += noise * x.std(0) * rng.normal(size=x.shape)
    live = sample.z.std(0) > 1e-9
    masks = sample.source.latents.masks.numpy()[np.unique(sample.component)][:, live].astype(int)
    apart = masks.T @ (1 - masks) + np.eye(live.sum())  # k is active, i is not
    return sample.z[:, live], x, bool((apart > 0).all())


def certificate_row(model: SparseUnmixing, score: float, identified: bool) -> dict:
    """Return what the certificate says, and whether a failure is silent."""
    certificate = model.certificate_
    silent = score < EXACT and certificate.level == Level.PS
    return {
        "found": model.n_found_,
        "level": str(certificate.level),
        "blocks": sum(len(block) > 1 for block in certificate.blocks),
        "identified": identified,
        "silent": silent,
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--k", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--rho", nargs="+", default=["1 var", "50", "75"])
    parser.add_argument("--delta", type=float, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--certificates", action="store_true", help="compare certificates with the ground truth")
    options = parse(parser)
    results = Results(options.csv)
    for n, k, rho, delta, seed in itertools.product(options.n, options.k, options.rho, options.delta, options.seeds):
        z, x, identified = affine_mixture(n, k, rho if rho == "1 var" else int(rho), delta, options.noise, seed)
        ones = np.c_[x, np.ones(len(x))]
        best = mcc(z, ones @ np.linalg.lstsq(ones, z, rcond=None)[0])
        sparse = SparseUnmixing(z.shape[1], random_state=seed, verbose=0)
        fastica = IndependentComponents(z.shape[1], n_restarts=1, random_state=seed)
        for model in (sparse,) if options.certificates else (sparse, fastica):
            started = time.process_time()
            latents = model.fit_transform(x)
            row = {"n": n, "k": k, "rho": rho, "delta": delta, "seed": seed, "method": type(model).__name__}
            row |= {"seconds": time.process_time() - started, "mcc": mcc(z, latents)}
            row["below the best affine map"] = best - row["mcc"]
            row |= {"verified": model.n_found_ / z.shape[1]} if model is sparse else {}
            row |= certificate_row(model, row["mcc"], identified) if options.certificates else {}
            results.add(row)
    frame = results.frame()
    print(summary(frame.drop(columns=["k", "delta"]), ["n", "method"]).to_string())
    if options.certificates:
        print(frame.groupby(["n", "identified", "level"]).size().to_string())
        sys.exit(f"{frame.silent.sum()} of {len(frame)} failures are silent" if frame.silent.any() else 0)


if __name__ == "__main__":
    main()
