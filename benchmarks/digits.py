"""Does VaDE find the digits without labels, better than a Gaussian mixture of principal components?

    python benchmarks/digits.py [--seeds 5] [--first-seed 0] [--methods VaDE ...]

scikit-learn's 1797 digits of 8 x 8 pixels; 10 clusters. Accuracy is that of the best one-to-one map to the digits,
which are used for nothing else: `GaussianMixture` keeps the best of 10 starts by likelihood, VaDE the best of its
restarts by its bound on held-out rows.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline

from identifiable import MFCVAE, VaDE
from identifiable.data import load_digits
from identifiable.metrics import clustering_accuracy

COMMON = {"likelihood": "bernoulli", "verbose": 0, "device": "cpu"}
METHODS = {
    "k-means": lambda s: KMeans(10, n_init=10, random_state=s),
    "PCA 10 + GaussianMixture": lambda s: make_pipeline(PCA(10), GaussianMixture(10, n_init=10, random_state=s)),
    "PCA 20 + GaussianMixture": lambda s: make_pipeline(PCA(20), GaussianMixture(10, n_init=10, random_state=s)),
    "PCA 10 + diagonal GaussianMixture": lambda s: make_pipeline(
        PCA(10), GaussianMixture(10, n_init=10, covariance_type="diag", random_state=s)
    ),
    "VaDE": lambda s: VaDE(10, 10, random_state=s, **COMMON),
    "VaDE, random start": lambda s: VaDE(10, 10, init="random", random_state=s, **COMMON),
    "VaDE, linear start": lambda s: VaDE(10, 10, init="linear", random_state=s, **COMMON),
    "MFCVAE, 2 facets, the better": lambda s: MFCVAE(10, 10, 2, random_state=s, **COMMON),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    digits, rows = load_digits(), []
    for name in options.methods:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            started = time.perf_counter()
            model = METHODS[name](seed).fit(digits.x)
            found = (
                [model.predict(digits.x, facet=j) for j in (0, 1)] if "facets" in name else [model.predict(digits.x)]
            )
            row = {"method": name, "seed": seed, "accuracy": max(clustering_accuracy(digits.u, k) for k in found)}
            row |= {"used": len(np.unique(found[0])), "seconds": time.perf_counter() - started}
            if hasattr(model, "restart_scores_"):
                row |= {"bound": model.restart_scores_.max(), "weak": model.stability_.weak_score}
            rows.append(row)
            print("  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    groups = pd.DataFrame(rows).groupby("method", sort=False)["accuracy"]
    print(groups.agg(["mean", "std", "min", "max"]).round(3).to_string())


if __name__ == "__main__":
    main()
