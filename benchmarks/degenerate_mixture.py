"""Does a mixture with singular covariances find the components of a pdGMM better than scikit-learn's?

    python benchmarks/degenerate_mixture.py [--seeds 5] [--rows 20000] [--settings "rho 50" "1 var"]

The true latents of a pdGMM (n = 10): 5-dimensional affine subspaces through one point (rho 50), lines (1 var), inactive
values off the mean (delta 2), a rotated basis (theta 30), a random affine map, and noise of 1 or 5 % of the standard
deviation. Prints, as mean (sd) over seeds, the adjusted Rand index against the true components and that of the worst
seed, the share of components whose rank is right, the number of components and the seconds. The
`DegenerateGaussianMixture` chooses the number itself; scikit-learn's mixture is given the true one, and its default
reg_covar. Under noise, rows near the intersection of subspaces belong to no component for certain; there a third line,
the ceiling, takes the most probable component under the true mixture.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from common import arguments, choose, parse, timed
from identifiable.data import make_pdgmm
from identifiable.estimators.degenerate_mixture import DegenerateGaussianMixture

RANK_TOLERANCE = 1e-4  # scikit-learn adds 1e-6 to every variance: below 1e-4, or 9 of the noise, is zero, in its favour


@dataclass(frozen=True)
class Setting:
    """The parameters of the latents, and how they are observed."""

    params: dict[str, Any]
    noise: float = 0.0  # in standard deviations of all entries
    affine: bool = False

    @property
    def rank(self) -> int:
        """Directions in which a component moves."""
        return {"1 var": 1, 50: 5, 75: 7}[self.params["rho"]]

    def observe(self, z, seed: int):
        """Return z, mapped or noisy."""
        rng = np.random.default_rng(seed)
        if self.affine:
            return z @ rng.normal(size=(z.shape[1], z.shape[1])) + 5 * rng.normal(size=z.shape[1])
        return z + self.noise * z.std() * rng.normal(size=z.shape) if self.noise else z


SETTINGS = {
    "rho 50": Setting({"rho": 50}),
    "1 var": Setting({"rho": "1 var"}),
    "rho 75": Setting({"rho": 75}),
    "rho 50, delta 2": Setting({"rho": 50, "delta": 2}),
    "rho 50, theta 30": Setting({"rho": 50, "theta": 30}),
    "rho 50, affine": Setting({"rho": 50}, affine=True),
    "1 var, affine": Setting({"rho": "1 var"}, affine=True),
    "rho 50, noise 1 %": Setting({"rho": 50}, noise=0.01),
    "1 var, noise 1 %": Setting({"rho": "1 var"}, noise=0.01),
    "rho 50, noise 5 %": Setting({"rho": 50}, noise=0.05),
    "1 var, noise 5 %": Setting({"rho": "1 var"}, noise=0.05),
}


def right_ranks(component, labels, ranks, active: int) -> float:
    """Share of true components whose most frequent label has their rank."""
    return float(np.mean([ranks[np.bincount(labels[component == c]).argmax()] == active for c in np.unique(component)]))


def measured(model, x, component, active: int, noise: float) -> tuple[float, float, int, float]:
    _, seconds = timed(lambda: model.fit(x))
    ours = isinstance(model, DegenerateGaussianMixture)
    ranks = (
        model.ranks_ if ours else (np.linalg.eigvalsh(model.covariances_) > max(RANK_TOLERANCE, 9 * noise**2)).sum(1)
    )
    labels = model.predict(x)
    return adjusted_rand_score(component, labels), right_ranks(component, labels, ranks, active), len(ranks), seconds


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
    print(f"n = 10, {options.rows} rows, {len(options.seeds)} seeds; mean (sd)")
    print(
        f"{'setting':18s} {'model':14s} {'ARI':>15s} {'worst':>7s} {'ranks right':>12s} {'J found':>12s} "
        f"{'true J':>7s} {'s':>11s}"
    )
    for name in options.settings:
        setting = SETTINGS[name]
        rows: dict[str, list[tuple[float, float, int, float]]] = {"degenerate": [], "scikit-learn": [], "ceiling": []}
        true = []
        for seed in options.seeds:
            sample = make_pdgmm(options.rows, n=10, random_state=seed, **setting.params)
            x, component = setting.observe(sample.z, seed), sample.component
            noise = setting.noise * sample.z.std()
            true.append(len(np.unique(component)))
            for model, estimator in (
                ("degenerate", DegenerateGaussianMixture(random_state=seed)),
                ("scikit-learn", GaussianMixture(true[-1], random_state=seed)),
            ):
                rows[model].append(measured(estimator, x, component, setting.rank, noise))
            if setting.noise:
                best = ceiling(sample.z, x, component, noise)
                rows["ceiling"].append((best, 1.0, true[-1], 0.0))
        for model, values in rows.items():
            if values:
                (ari, rank, j, s), (ari_sd, rank_sd, j_sd, s_sd) = np.mean(values, 0), np.std(values, 0)
                print(
                    f"{name:18s} {model:14s} {ari:6.4f} ({ari_sd:.4f}) {np.min(values, 0)[0]:7.4f} {rank:5.2f} "
                    f"({rank_sd:.2f}) {j:6.1f} ({j_sd:3.1f}) {np.mean(true):7.1f} {s:5.1f} ({s_sd:.1f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
