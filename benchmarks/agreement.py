"""Does agreement between restarts tell a recovered fit from a failed one? PDGMM on data sets it can and cannot solve.

    python benchmarks/agreement.py [--seeds 3] [--first-seed 0] [--csv file]

Mixings from weak to hopeless, latents of several kinds, 10,000 rows each; short fits only, so that many fail. The truth
enters at the end: MCC on new rows against the agreement that the fit itself reports. Recovered is MCC >= .97, failed
MCC < .85. A minute or less a fit on one core; one batch for each number of latents on a GPU.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from identifiable import PDGMM, RecoveryWarning
from identifiable.data import make_pdgmm
from identifiable.metrics import mcc

ROWS, NEW_ROWS = 10_000, 5000
LAWS = {
    "published, n=5": {"n": 5},
    "published, n=8": {"n": 8},
    "published, delta 2": {"n": 5, "delta": 2},
    "published, k=3": {"n": 8, "k": 3},
    "published, rho 75": {"n": 5, "rho": 75},
    "published, 1 var": {"n": 5, "rho": "1 var"},
    "slope .2, 3 layers": {"n": 8, "slopes": 0.2, "layers": 3},
    "slope .2, 4 layers": {"n": 8, "slopes": 0.2, "layers": 4},
    "slope .2, 5 layers": {"n": 5, "slopes": 0.2, "layers": 5},
    "slope .2, 7 layers": {"n": 8, "slopes": 0.2, "layers": 7},
    "slope .2, 10 layers": {"n": 5, "slopes": 0.2, "layers": 10},
    "slope .2, 10 layers, n=8": {"n": 8, "slopes": 0.2, "layers": 10},
    "slope .35, 7 layers": {"n": 8, "slopes": 0.35, "layers": 7},
    "slope .35, 10 layers": {"n": 5, "slopes": 0.35, "layers": 10},
    "slope .2, 5 layers, delta 2": {"n": 5, "slopes": 0.2, "layers": 5, "delta": 2},
    "sigmoid": {"n": 5, "activation": "sigmoid", "layers": 3},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--csv", help="write a line per data set here")
    options = parser.parse_args()
    warnings.simplefilter("ignore", RecoveryWarning)
    gpu = torch.cuda.is_available()
    if not gpu:
        torch.set_num_threads(1)
    rows = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for n in (5, 8):
            names = [name for name, law in LAWS.items() if law["n"] == n]
            samples = [make_pdgmm(ROWS, **LAWS[name], random_state=seed) for name in names]
            method = PDGMM(n, random_state=seed, extended=False, verbose=0)
            models = method.fit_many([s.x for s in samples]) if gpu else [None] * len(samples)
            for name, sample, found in zip(names, samples, models, strict=True):
                started = time.perf_counter()
                model = found if found is not None else clone(method).fit(sample.x)
                new = sample.source.sample(NEW_ROWS, random_state=seed + 1)
                row = {
                    "law": name,
                    "seed": seed,
                    "mcc": mcc(new.z, model.transform(new.x)),
                    "agreement": model.stability_.score,
                    "status": model.fit_status_,
                    "score": model.score(new.x),
                    "seconds": time.perf_counter() - started,
                }
                rows.append(row)
                print(
                    "  ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()),
                    flush=True,
                )
                if options.csv:
                    pd.DataFrame(rows).to_csv(options.csv, index=False)
    report(pd.DataFrame(rows))


def report(frame: pd.DataFrame) -> None:
    """Print how verdicts and truth fall together, and how well agreement ranks the fits."""
    kinds = pd.cut(frame["mcc"], [-1, 0.85, 0.97, 1.01], right=False, labels=["failed", "between", "recovered"])
    print(pd.crosstab(kinds, frame["status"]).to_string())
    lowest, highest = frame.loc[kinds == "recovered", "agreement"], frame.loc[kinds == "failed", "agreement"]
    print(f"agreement of the recovered {lowest.min():.3f} and more, of the failed {highest.max():.3f} and less")
    failed = frame["mcc"] < 0.9
    if failed.any() and not failed.all():
        print(f"AUC for MCC < .9: {roc_auc_score(failed, -frame['agreement']):.3f}")
    print(f"Spearman of agreement and MCC: {frame['agreement'].corr(frame['mcc'], method='spearman'):.3f}")
    wrong = np.mean((frame["status"] == "stable") & (frame["mcc"] < 0.85))
    print(f"called stable below .85: {wrong:.1%} of all")


if __name__ == "__main__":
    main()
