"""How far does a linear method get on the published nonlinear mixing, and does an offset cost it anything?

    python benchmarks/raw_mixtures.py [--seeds 5] [--first-seed 0] [--settings "n=10" "1 var"]

Fits PCA, FastICA and SparseUnmixing to the raw rows of the `published` mixing, 20,000 of them, and scores them by the
truth: mean and sd of MCC over draws, beside what was measured before for a linear sparse unmixing and the best affine
map of the data, least squares on the truth. One thread.
"""

import argparse
import time
import warnings

import numpy as np
import torch

from identifiable import IndependentComponents, PrincipalComponents, RecoveryWarning, SparseUnmixing
from identifiable.data import make_pdgmm
from identifiable.metrics import mcc

ROWS = 20_000
SETTINGS = {  # the law, and the MCC of an earlier linear sparse unmixing
    "n=5": ({"n": 5}, 0.97),
    "n=10": ({}, 0.96),
    "n=20": ({"n": 20}, 0.96),
    "n=40": ({"n": 40}, 0.96),
    "layers 3": ({"layers": 3}, 0.98),
    "layers 20": ({"layers": 20}, 0.92),
    "k=3": ({"k": 3}, 0.95),
    "1 var": ({"rho": "1 var"}, 0.92),
    "delta 1": ({"delta": 1}, 0.97),
    "delta 2": ({"delta": 2}, 0.73),
    "delta 3": ({"delta": 3}, 0.53),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RecoveryWarning)
    head = "raw x          PCA            FastICA        SparseUnmixing (worst)   seconds  best affine"
    print(f"{'setting':<10} {'before':>6}  {head}")
    for setting in options.settings:
        law, before = SETTINGS[setting]
        scores, seconds, ceilings = [], [], []
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            sample = make_pdgmm(ROWS, **{"n": 10, **law}, random_state=seed)
            n = sample.z.shape[1]
            ones = np.c_[sample.x, np.ones(len(sample.x))]
            ceilings.append(mcc(sample.z, ones @ np.linalg.lstsq(ones, sample.z, rcond=None)[0]))
            row = [mcc(sample.z, sample.x)]
            for method in (PrincipalComponents, IndependentComponents, SparseUnmixing):
                started = time.process_time()
                row.append(mcc(sample.z, method(n, random_state=seed).fit(sample.x).transform(sample.x)))
            seconds.append(time.process_time() - started)
            scores.append(row)
        mean, sd = np.mean(scores, 0), np.std(scores, 0, ddof=1)
        cells = "  ".join(f"{m:.3f} ({s:.3f})" for m, s in zip(mean, sd, strict=True))
        worst = min(row[-1] for row in scores)
        print(
            f"{setting:<10} {before:>6.2f}  {cells} ({worst:.3f})   {np.median(seconds):.1f}   {np.mean(ceilings):.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
