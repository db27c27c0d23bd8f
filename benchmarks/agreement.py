"""Does agreement between restarts distinguish a recovered fit from a failed one?

    python benchmarks/agreement.py [--seeds 3] [--first-seed 0] [--csv file]

PDGMM on data sets it can and cannot solve: mixings from weak to hopeless, latents of several kinds, 10,000 rows each;
short fits only, so that many fail. The ground truth is used at the end: MCC on new rows is compared with the agreement
that the fit reports. Recovered is MCC >= .97, failed MCC < .85. A minute or less per fit on one core; one batch for
each number of latents on a GPU.
"""

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from common import NEW_ROWS, Results, arguments, parse, timed
from identifiable import PDGMM
from identifiable.data import make_pdgmm
from identifiable.metrics import mcc

ROWS = 10_000
SETTINGS = {
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
    options = parse(arguments(__doc__, seeds=3))
    results = Results(options.csv)
    for seed in options.seeds:
        for n in (5, 8):
            samples = {k: make_pdgmm(ROWS, **v, random_state=seed) for k, v in SETTINGS.items() if v["n"] == n}
            method = PDGMM(n, random_state=seed, extended=False, verbose=0)
            batch = torch.cuda.is_available()
            models = method.fit_many([s.x for s in samples.values()]) if batch else [clone(method) for _ in samples]
            for (name, sample), model in zip(samples.items(), models, strict=True):
                seconds = 0.0 if batch else timed(lambda model=model, sample=sample: model.fit(sample.x))[1]
                new = sample.source.sample(NEW_ROWS, random_state=seed + 1)
                row = {"setting": name, "seed": seed, "mcc": mcc(new.z, model.transform(new.x))}
                row |= {"agreement": model.stability_.score, "status": model.fit_status_}
                results.add(row | {"score": model.score(new.x), "seconds": seconds})
    report(results.frame())


def report(frame: pd.DataFrame) -> None:
    """Print a table of verdict against recovery, and how well agreement ranks the fits."""
    kinds = pd.cut(frame["mcc"], [-1, 0.85, 0.97, 1.01], right=False, labels=["failed", "between", "recovered"])
    print(pd.crosstab(kinds, frame["status"]).to_string())
    lowest, highest = frame.loc[kinds == "recovered", "agreement"], frame.loc[kinds == "failed", "agreement"]
    print(f"agreement of recovered fits at least {lowest.min():.3f}, of failed ones at most {highest.max():.3f}")
    failed = frame["mcc"] < 0.9
    if failed.any() and not failed.all():
        print(f"AUC for MCC < .9: {roc_auc_score(failed, -frame['agreement']):.3f}")
    print(f"Spearman correlation of agreement and MCC: {frame['agreement'].corr(frame['mcc'], method='spearman'):.3f}")
    wrong = np.mean((frame["status"] == "stable") & (frame["mcc"] < 0.85))
    print(f"stable although MCC < .85: {wrong:.1%} of all fits")


if __name__ == "__main__":
    main()
