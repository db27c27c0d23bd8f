"""Does a mixture with singular covariances find the components of a pdGMM better than scikit-learn's?

    python benchmarks/degenerate_mixture.py [--seeds 5] [--rows 20000] [--settings "rho 50" "1 var"]

The true latents of a pdGMM (n = 10): 5-dimensional affine subspaces through one point (rho 50), lines (1 var), inactive
values off the mean (delta 2), a rotated basis (theta 30), a random affine map, and noise of 1 or 5 % of the standard
deviation. Prints, as mean, sd and worst over seeds, the adjusted Rand index against the true components, and the means
of the share of components whose rank is right, of the number of components found and true, and of the seconds. The
`DegenerateGaussianMixture` chooses the number itself; scikit-learn's mixture is given the true one, and its default
reg_covar. Under noise, rows near the intersection of subspaces belong to no component for certain; there a third line,
the ceiling, takes the most probable component under the true mixture.
"""

import numpy as np
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from common import Results, arguments, choose, parse, summary, timed
from identifiable.data import make_pdgmm
from identifiable.estimators.degenerate_mixture import DegenerateGaussianMixture

RANK_TOLERANCE = 1e-4  # scikit-learn adds 1e-6 to every variance: below 1e-4, or 9 of the noise, is zero, in its favour
RANKS = {"1 var": 1, 50: 5, 75: 7}  # directions in which a component moves
SETTINGS = {  # parameters of the latents; noise in standard deviations of all entries, or an affine map
    "rho 50": {"rho": 50},
    "1 var": {"rho": "1 var"},
    "rho 75": {"rho": 75},
    "rho 50, delta 2": {"rho": 50, "delta": 2},
    "rho 50, theta 30": {"rho": 50, "theta": 30},
    "rho 50, affine": {"rho": 50, "affine": True},
    "1 var, affine": {"rho": "1 var", "affine": True},
    **{
        f"{rho}, noise {p} %": {"rho": v, "noise": p / 100}
        for p in (1, 5)
        for rho, v in (("rho 50", 50), ("1 var",) * 2)
    },
}


def scores(model, x, component, rank: int, noise: float) -> dict:
    """Fit a mixture; compare its labels and ranks with the true components."""
    _, seconds = timed(lambda: model.fit(x))
    if isinstance(model, DegenerateGaussianMixture):
        ranks = model.ranks_
    else:
        ranks = (np.linalg.eigvalsh(model.covariances_) > max(RANK_TOLERANCE, 9 * noise**2)).sum(1)
    labels = model.predict(x)
    right = np.mean([ranks[np.bincount(labels[component == c]).argmax()] == rank for c in np.unique(component)])
    ari = adjusted_rand_score(component, labels)
    return {"ari": ari, "ranks right": float(right), "components": len(ranks), "seconds": seconds}


def ceiling(z, x, component, noise: float) -> float:
    """Return the adjusted Rand index of the most probable components under the true mixture plus noise."""
    log_joint = []
    for c in np.unique(component):
        rows = z[component == c]
        covariance = np.cov(rows.T) + noise**2 * np.eye(z.shape[1])
        log_joint.append(np.log(len(rows)) + multivariate_normal(rows.mean(0), covariance).logpdf(x))
    return adjusted_rand_score(component, np.argmax(log_joint, axis=0))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    choose(parser, "--settings", SETTINGS)
    options = parse(parser)
    results = Results(options.csv)
    for name in options.settings:
        params = dict(SETTINGS[name])
        noise, affine = params.pop("noise", 0.0), params.pop("affine", False)
        for seed in options.seeds:
            sample = make_pdgmm(options.rows, n=10, random_state=seed, **params)
            x, rng = sample.z, np.random.default_rng(seed)
            sd = noise * x.std()
            x = x @ rng.normal(size=(10, 10)) + 5 * rng.normal(size=10) if affine else x + sd * rng.normal(size=x.shape)
            row = {"setting": name, "seed": seed, "true": len(np.unique(sample.component))}
            for model in (
                DegenerateGaussianMixture(random_state=seed),
                GaussianMixture(row["true"], random_state=seed),
            ):
                found = scores(model, x, sample.component, RANKS[params["rho"]], sd)
                results.add(row | {"model": type(model).__name__} | found)
            if noise:
                results.add(row | {"model": "ceiling", "ari": ceiling(sample.z, x, sample.component, sd)})
    print(summary(results.frame(), ["setting", "model"], "ari").to_string())


if __name__ == "__main__":
    main()
