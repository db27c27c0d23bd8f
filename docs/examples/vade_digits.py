"""Handwritten digits without labels: interpretable clusters, and restarts that do not agree on the latents.

Run it with `python docs/examples/vade_digits.py [picture.png]`; it takes about twenty seconds.
"""

import sys
import warnings
from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import multivariate_normal
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline

from identifiable import Mixture, RecoveryWarning, VaDE
from identifiable.data import load_digits
from identifiable.metrics import ari, clustering_accuracy

CLUSTERS = 10


def clusters(z: np.ndarray, mixture: Mixture) -> np.ndarray:
    """Return the most probable component of each latent."""
    parts = zip(mixture.weights, mixture.means, mixture.covariances, strict=True)
    return np.argmax([np.log(w) + multivariate_normal(m, c).logpdf(z) for w, m, c in parts], axis=0)


def main(picture: Path) -> None:
    """Fit VaDE, print the agreement of its restarts, compare its clusters with the labels, and draw them."""
    digits = load_digits()  # 1797 images of 8 x 8 pixels; digits.u is the label, which no fit sees
    order = np.random.default_rng(0).permutation(len(digits))
    train, test = digits[order[:1400]], digits[order[1400:]]

    settings = {"likelihood": "bernoulli", "n_restarts": 3, "pretrain_steps": 400, "max_steps": 400, "verbose": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)  # the restarts disagree: printed below
        model = VaDE(10, CLUSTERS, random_state=0, **settings).fit(train.x)
    runs = zip(model.latents_of_restarts(test.x), model.mixtures_of_restarts(), strict=True)
    pairs = combinations([clusters(z, mixture) for z, mixture in runs], 2)
    agreement = model.stability_
    print(f"Latents: restarts agree at {agreement.score:.2f}, {agreement.weak_score:.2f} after an affine alignment.")
    print(f"Clusters: restarts agree at {np.mean([ari(*pair) for pair in pairs]):.2f} (adjusted Rand index).")
    print(f"Verdict: {model.fit_status_}. Certificate: {model.certificate_.level}.")

    k = model.predict(test.x)
    others = {
        "k-means": KMeans(CLUSTERS, n_init=10, random_state=0),
        "PCA + mixture": make_pipeline(PCA(10), GaussianMixture(CLUSTERS, n_init=3, random_state=0)),
    }
    print("Compared with the labels, on held-out images:")
    found = {name: method.fit(train.x).predict(test.x) for name, method in others.items()} | {"VaDE": k}
    accuracy = {name: clustering_accuracy(test.u, guess) for name, guess in found.items()}
    for name, value in accuracy.items():
        print(f"  {name:15} accuracy {value:.3f}")
    best = max(accuracy, key=accuracy.__getitem__)
    print(f"VaDE {'is above both baselines' if best == 'VaDE' else f'does not beat {best}'} here.")

    sure, centres = model.predict_proba(test.x).max(1), model.inverse_transform(model.mixture_.means)
    tiles = np.zeros((CLUSTERS, 12, 10, 10))  # 8 x 8 pixels and a margin
    for c in range(CLUSTERS):
        shown = np.flatnonzero(k == c)[np.argsort(-sure[k == c])][:11]
        tiles[c, : len(shown) + 1, 1:9, 1:9] = np.vstack([centres[c : c + 1], test.x[shown]]).reshape(-1, 8, 8)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained", width_ratios=(1.2, 1))
    left.imshow(tiles.transpose(0, 2, 1, 3).reshape(10 * CLUSTERS, 120), cmap="Greys")
    left.axvline(9.7, color="tab:red", linewidth=1)
    left.set(xticks=[4.5, 64.5], xticklabels=["centre", "held-out images in it, the surest first"], ylabel="cluster")
    left.set(yticks=10 * np.arange(CLUSTERS) + 4.5, yticklabels=range(CLUSTERS), title="clusters")
    left.tick_params(length=0)
    left.spines[:].set_visible(False)
    table = np.array([[np.sum((k == c) & (test.u == digit)) for digit in range(10)] for c in range(CLUSTERS)])
    right.imshow(table, cmap="Blues")
    for (c, digit), count in np.ndenumerate(table):
        right.text(
            digit, c, count or "", ha="center", va="center", color="white" if count > 20 else "black", fontsize=8
        )
    right.set(xlabel="label, not seen by the fit", ylabel="cluster", xticks=range(10), yticks=range(CLUSTERS))
    right.set_title(f"held-out images, accuracy {accuracy['VaDE']:.2f}")
    figure.savefig(picture, dpi=100)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".png"))
