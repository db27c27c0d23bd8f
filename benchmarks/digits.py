"""Does VaDE find the digits without labels, better than a Gaussian mixture of principal components?

    python benchmarks/digits.py [--seeds 5] [--first-seed 0] [--methods VaDE ...] [--steps 3000] [--restarts 4]

scikit-learn's 1797 digits of 8 x 8 pixels; 10 clusters. Accuracy is that of the best one-to-one map to the digits,
which are used for nothing else: `GaussianMixture` keeps the best of 10 starts by likelihood, VaDE the best of its
restarts by its bound on held-out rows. "chance" draws the clusters at random. The columns bound and likelihood are the
bound and the importance-weighted bound on held-out rows, in nats per row.
"""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline

from common import Results, arguments, choose, parse, summary, timed
from identifiable import MFCVAE, VaDE
from identifiable.arrays import hold_out
from identifiable.data import load_digits
from identifiable.metrics import clustering_accuracy


def mixture(components: int, seed: int, **params):
    return make_pipeline(PCA(components), GaussianMixture(10, n_init=10, random_state=seed, **params))


class Chance:
    """Random clusters."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def fit(self, X: np.ndarray) -> "Chance":
        """Learn nothing."""
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return a random cluster of each row."""
        return self.rng.integers(10, size=len(X))


COMMON = {"likelihood": "bernoulli", "verbose": 0, "device": "cpu"}
METHODS = {
    "chance": Chance,
    "k-means": lambda s: KMeans(10, n_init=10, random_state=s),
    "PCA 10 + GaussianMixture": lambda s: mixture(10, s),
    "PCA 20 + GaussianMixture": lambda s: mixture(20, s),
    "PCA 10 + diagonal GaussianMixture": lambda s: mixture(10, s, covariance_type="diag"),
    "VaDE": lambda s: VaDE(10, 10, random_state=s, **COMMON),
    "VaDE, random start": lambda s: VaDE(10, 10, init="random", random_state=s, **COMMON),
    "VaDE, linear start": lambda s: VaDE(10, 10, init="linear", random_state=s, **COMMON),
    "VaDE, full covariances": lambda s: VaDE(10, 10, covariance_type="full", random_state=s, **COMMON),
    "MFCVAE, 2 facets, the better": lambda s: MFCVAE(10, 10, 2, random_state=s, **COMMON),
}


def main() -> None:
    parser = arguments(__doc__)
    choose(parser, "--methods", METHODS)
    parser.add_argument(
        "--steps", type=int, default=3000, help="steps of VaDE and MFCVAE, before the bound and with it"
    )
    parser.add_argument("--restarts", type=int, default=4)
    options = parse(parser)
    COMMON.update(pretrain_steps=options.steps, max_steps=options.steps, n_restarts=options.restarts)
    digits, results = load_digits(), Results(options.csv)
    for name in options.methods:
        for seed in options.seeds:
            model, seconds = timed(lambda name=name, seed=seed: METHODS[name](seed).fit(digits.x))
            facets = [{"facet": j} for j in (0, 1)] if "facets" in name else [{}]
            found = [model.predict(digits.x, **facet) for facet in facets]
            row = {"method": name, "seed": seed, "accuracy": max(clustering_accuracy(digits.u, k) for k in found)}
            row |= {"used": len(np.unique(found[0])), "seconds": seconds}
            if hasattr(model, "restart_scores_"):
                row |= {"bound": float(model.restart_scores_.max()), "weak": model.stability_.weak_score}
                held = digits.x[hold_out(len(digits), model._seed())[1]]
                likelihood = float(model.score_samples(held, importance=True).mean())
                row |= {"likelihood": likelihood, "directions": model.directions_.used}
            results.add(row)
    print(summary(results.frame(), ["method"], "accuracy").to_string())


if __name__ == "__main__":
    main()
