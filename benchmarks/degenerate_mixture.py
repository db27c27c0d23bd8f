"""Does a mixture that accepts singular covariances find the components of a pdGMM, where scikit-learn's does not?

    python benchmarks/degenerate_mixture.py [--seeds 5] [--rows 20000]

The true latents of a pdGMM (n = 10): 5-dimensional flats through one point (rho 50), lines (1 var), resting values
off the mean (delta 2), a rotated basis (theta 30), a random affine map, and noise of 1 % of the standard deviation.
Prints, as mean (sd) over seeds, the adjusted Rand index against the true components, the share of components whose rank
is right, the number of components and the seconds. `DegenerateGaussianMixture` chooses the number itself;
scikit-learn's mixture is given the true one, and its default reg_covar.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from identifiable.data import make_pdgmm
from identifiable.estimators.degenerate_mixture import DegenerateGaussianMixture

RANK_TOLERANCE = 1e-4  # scikit-learn adds 1e-6 to every variance: below 1e-4 it is called zero here, in its favour

SETTINGS = {
    "rho 50": ({"rho": 50}, "as it is"),
    "1 var": ({"rho": "1 var"}, "as it is"),
    "rho 75": ({"rho": 75}, "as it is"),
    "rho 50, delta 2": ({"rho": 50, "delta": 2}, "as it is"),
    "rho 50, theta 30": ({"rho": 50, "theta": 30}, "as it is"),
    "rho 50, affine": ({"rho": 50}, "affine"),
    "rho 50, noise 1 %": ({"rho": 50}, "noisy"),
    "1 var, noise 1 %": ({"rho": "1 var"}, "noisy"),
}


def seen(z, how: str, seed: int):
    rng = np.random.default_rng(seed)
    if how == "affine":
        return z @ rng.normal(size=(z.shape[1], z.shape[1])) + 5 * rng.normal(size=z.shape[1])
    return z + 0.01 * z.std() * rng.normal(size=z.shape) if how == "noisy" else z


def right_ranks(component, labels, ranks, active: int) -> float:
    """Share of true components whose most frequent label has their rank."""
    return float(np.mean([ranks[np.bincount(labels[component == c]).argmax()] == active for c in np.unique(component)]))


def measured(model, x, sample, active: int) -> tuple[float, float, int, float]:
    started = time.perf_counter()
    model.fit(x)
    seconds = time.perf_counter() - started
    ours = isinstance(model, DegenerateGaussianMixture)
    ranks = model.ranks_ if ours else (np.linalg.eigvalsh(model.covariances_) > RANK_TOLERANCE).sum(1)
    labels = model.predict(x)
    ari = adjusted_rand_score(sample.component, labels)
    return ari, right_ranks(sample.component, labels, ranks, active), len(model.weights_), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(f"n = 10, {options.rows} rows, seeds 0-{options.seeds - 1}; mean (sd)")
    print(f"{'setting':20s} {'model':14s} {'ARI':>15s} {'ranks right':>13s} {'J found':>12s} {'true J':>7s} {'s':>12s}")
    for name, (law, how) in SETTINGS.items():
        rows: dict[str, list[tuple[float, float, int, float]]] = {"degenerate": [], "scikit-learn": []}
        true = []
        for seed in range(options.seeds):
            sample = make_pdgmm(options.rows, n=10, random_state=seed, **law)
            x, active = seen(sample.z, how, seed), {"1 var": 1, 50: 5, 75: 7}[law["rho"]]
            true.append(len(np.unique(sample.component)))
            rows["degenerate"].append(measured(DegenerateGaussianMixture(random_state=seed), x, sample, active))
            rows["scikit-learn"].append(measured(GaussianMixture(true[-1], random_state=seed), x, sample, active))
        for model, values in rows.items():
            (ari, rank, j, s), (ari_sd, rank_sd, j_sd, s_sd) = np.mean(values, 0), np.std(values, 0)
            print(
                f"{name:20s} {model:14s} {ari:7.4f} ({ari_sd:.4f}) {rank:5.2f} ({rank_sd:.2f}) {j:6.1f} ({j_sd:3.1f}) "
                f"{np.mean(true):7.1f} {s:6.1f} ({s_sd:.1f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
