"""Intermittently active latents, mixed nonlinearly: PDGMM inverts the mixing, and finds which latents are active.

Run it with `python docs/examples/nonlinear_pdgmm.py [picture.png]`; it takes about fifteen seconds.
"""

import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from identifiable import PDGMM, RecoveryWarning, baselines
from identifiable.data import make_pdgmm
from identifiable.metrics import match

ROWS = 5000


def main(picture: Path) -> None:
    """Fit PDGMM and the baselines, print the agreement of restarts and the MCC with the ground truth, and draw both."""
    sample = make_pdgmm(ROWS, n=5, random_state=0)  # ten layers, piecewise affine, as published
    fresh = sample.source.sample(ROWS, random_state=1)  # rows that no method has seen

    # A fifth of the default steps. The baselines would warn that they verify nothing here.
    methods = baselines(5) | {"PDGMM": PDGMM(5, max_steps=500, random_state=0, verbose=0)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        found = {name: method.fit(sample.x).transform(fresh.x) for name, method in methods.items()}
    model = methods["PDGMM"]
    print(f"PDGMM: restarts agree at {model.stability_.score:.3f}, {model.fit_status_}.")
    print(f"Certificate: {model.certificate_.level}, at best {model.certificate_.if_undecided_hold}.")
    print("Compared with the ground truth, on fresh rows:")
    for name, z in found.items():
        print(f"  {name:15} MCC {match(fresh.z, z).score:.3f}")

    # Which latents are active in a row: what was found, in the order of the true latents, and what is true.
    order = match(fresh.z, found["PDGMM"]).permutation
    seen, true = model.active(fresh.x)[:, order], sample.source.latents.masks.numpy()[fresh.component]
    print(f"PDGMM finds the right pattern of activity in a share of {(seen == true).all(1).mean():.2f} of the rows.")

    figure = plt.figure(figsize=(10, 7.2), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1.2, 1))
    for row, name in zip(above.subplots(2, 5, sharex="col"), ("FastICA", "PDGMM"), strict=True):
        best = match(fresh.z, found[name])
        for i, axis in enumerate(row):
            estimate = found[name][:2000, best.permutation[i]] * np.sign(best.correlations[i])
            axis.scatter(fresh.z[:2000, i], estimate, s=3, alpha=0.4, linewidths=0)
            axis.set_title(f"|corr| {abs(best.correlations[i]):.3f}", fontsize=9)
        row[0].set_ylabel(f"{name}\nMCC {best.score:.3f}")
    for i, axis in enumerate(row):
        axis.set_xlabel(f"true latent {i}")

    first = np.unique(true, axis=0).tolist()
    for axis, (title, active) in zip(below.subplots(1, 2), {"true": true, "found by PDGMM": seen}.items(), strict=True):
        patterns, counts = np.unique(active, axis=0, return_counts=True)
        share = dict(zip(map(tuple, patterns.tolist()), counts / ROWS, strict=True))
        others = sorted((p for p in share if list(p) not in first), key=lambda p: -share[p])
        shown = [tuple(p) for p in first] + others[:2]
        axis.pcolormesh(shown, cmap="Greys", vmin=0, vmax=1.4, edgecolors="0.8", linewidth=0.5)
        for y, pattern in enumerate(shown):
            axis.text(5.1, y + 0.5, f"{100 * share.get(pattern, 0):.1f} %", va="center", fontsize=8)
        axis.set(ylim=(len(first) + 2, 0), yticks=[], xticks=np.arange(5) + 0.5, xticklabels=range(5))
        axis.set(xlabel="latent (dark: active)", title=f"patterns of activity, {title}: {len(share)}")
        axis.spines[:].set_visible(False)
    figure.savefig(picture, dpi=100)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".png"))
