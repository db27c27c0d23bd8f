"""Proteins of single cells under nine conditions: two reproducible factors and their effects; no ground truth is known.

Run it with `python docs/examples/ivae_sachs.py [picture.png]`; it takes about half a minute. The data (Sachs et al.
2005) are looked for in $IDENTIFIABLE_DATA/sachs, and downloaded if they are not there.
"""

import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from identifiable import IVAE, IFlow, RecoveryWarning, SegmentUnmixing, baselines
from identifiable.data import load_sachs
from identifiable.data.real import SACHS_CONDITIONS

LATENTS = 2  # with nine conditions the theorem allows for four at most; docs/given_u.md says why two


def effects(model: IVAE, x: np.ndarray) -> np.ndarray:
    """Move each latent from its lower to its upper decile, the other at its median: change of columns, in their sd."""
    low, middle, high = np.quantile(model.transform(x), [0.1, 0.5, 0.9], axis=0)
    ends = [np.where(np.eye(LATENTS, dtype=bool), end, middle) for end in (high, low)]
    above, below = (model.inverse_transform(end) for end in ends)
    return (above - below) / x.std(0)


def main(picture: Path) -> None:
    """Fit with the condition as u, print agreement and held-out scores beside the baselines, and draw the latents."""
    try:
        cells = load_sachs(log=True)
    except FileNotFoundError:
        print("The Sachs data are not available: not in $IDENTIFIABLE_DATA/sachs, and they could not be downloaded.")
        return
    order = np.random.default_rng(0).permutation(len(cells))
    train, test = cells[order[:6000]], cells[order[6000:]]

    print("Mean log-likelihood of held-out cells in nats, for IVAE a lower bound of it; and given u where u is used:")
    warnings.simplefilter("ignore", RecoveryWarning)  # SparseUnmixing warns that no latent is exactly inactive here
    for name, method in baselines(LATENTS).items():
        method.fit(train.x)
        agreement = "" if method.n_restarts == 1 else f"  restarts agree at {method.stability_.score:.3f}"
        print(f"  {name:16} score {method.score(test.x):6.2f}{'':16}{agreement}".rstrip())
    settings = {"n_restarts": 3, "random_state": 0, "verbose": 0}
    ivae = IVAE(LATENTS, max_steps=300, **settings)
    for method in (SegmentUnmixing(LATENTS, **settings), IFlow(LATENTS, max_steps=300, **settings), ivae):
        method.fit(train.x, train.u)
        scores = f"score {method.score(test.x):6.2f}, given u {method.score(test.x, test.u):6.2f}"
        print(f"  {type(method).__name__:16} {scores}  restarts agree at {method.stability_.score:.3f}")
    print(f"Certificate of IVAE: {ivae.certificate_.level}, at best {ivae.certificate_.if_undecided_hold}.")

    z, change = ivae.transform(test.x), effects(ivae, train.x)
    for i, row in enumerate(change):
        strongest = sorted(np.argsort(-np.abs(row))[:2])
        print(f"Latent {i} moves most: " + ", ".join(f"{cells.columns[j]} by {abs(row[j]):.1f} sd" for j in strongest))

    figure, axes = plt.subplots(2, LATENTS, figsize=(10, 6.4), layout="constrained", sharey="row")
    for i, (above, below) in enumerate(axes.T):
        for value in range(len(SACHS_CONDITIONS)):
            q = np.quantile(z[test.u == value, i], [0.1, 0.25, 0.5, 0.75, 0.9])
            above.plot(q[[0, 4]], [value, value], color="tab:blue", linewidth=1)
            above.plot(q[[1, 3]], [value, value], color="tab:blue", linewidth=6, alpha=0.6, solid_capstyle="butt")
            above.plot(q[2], value, "o", color="black", markersize=4)
        above.set(xlabel=f"latent {i}")
        below.barh(cells.columns, change[i], color=np.where(change[i] > 0, "tab:blue", "tab:orange"))
        below.axvline(0, color="0.3", linewidth=0.8)
        below.set(xlabel=f"change by latent {i}, in sd of the protein")
    names = [name.replace("cd3_cd28", "cd3/28") for name in SACHS_CONDITIONS]
    axes[0, 0].set_yticks(range(len(names)), names)
    axes[0, 0].invert_yaxis()
    axes[0, 0].set_title("held-out cells by condition: median, quartiles, deciles", loc="left", fontsize=10)
    axes[1, 0].set_title("what moves when a latent goes from its lower to its upper decile", loc="left", fontsize=10)
    figure.savefig(picture, dpi=100)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".png"))
