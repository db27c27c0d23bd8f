"""Intermittently active latents, mixed by a matrix: sparsity alone recovers them exactly.

Run it with `python docs/examples/linear_sparse.py [picture.png]`; it takes a few seconds.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from identifiable import baselines
from identifiable.data import make_pdgmm
from identifiable.metrics import correlation_matrix, match


def main(picture: Path) -> None:
    """Fit the four linear methods, print how they did, and draw it."""
    # Five latents that depend on each other (k = 2 edges each), two of them active in each row. layers=1: affine.
    sample = make_pdgmm(3000, n=5, k=2, layers=1, random_state=0)
    fresh = sample.source.sample(3000, random_state=1)  # rows that no method has seen

    found = {}
    for name, method in baselines(5).items():  # raw x, PCA, FastICA, SparseUnmixing; none of them sees sample.z
        found[name] = method.fit(sample.x).transform(fresh.x)
    print(f"SparseUnmixing verified {method.n_found_} of 5 latents.")
    print(f"Certificate: {method.certificate_.level}, by {method.certificate_.theorem}.")
    print("Compared with the ground truth, on fresh rows:")
    for name, z in found.items():
        print(f"  {name:15} MCC {match(fresh.z, z).score:.4f}")

    figure, axes = plt.subplots(2, 4, figsize=(10, 5.2), layout="constrained")
    for (above, below), (name, z) in zip(axes.T, found.items(), strict=True):
        best = match(fresh.z, z)
        image = above.imshow(np.abs(correlation_matrix(fresh.z, z))[:, best.permutation], vmin=0, vmax=1, cmap="Blues")
        above.set(title=f"{name}\nMCC {best.score:.3f}", xlabel="estimated latent", xticks=range(5), yticks=range(5))
        worst = int(np.abs(best.correlations).argmin())
        estimate = z[:, best.permutation[worst]] * np.sign(best.correlations[worst])
        below.scatter(fresh.z[:, worst], estimate, s=2, alpha=0.3, linewidths=0)
        below.set(xlabel=f"true latent {worst}", title=f"|corr| {abs(best.correlations[worst]):.2f}")
    axes[0, 0].set_ylabel("true latent")
    axes[1, 0].set_ylabel("its estimate,\nthe worst of five")
    figure.colorbar(image, ax=axes[0], label="|correlation|")
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".png"))
