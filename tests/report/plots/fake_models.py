"""Models with known maps and clusters, and readers of the figures drawn of them."""

import numpy as np

from identifiable import Mixture

SHAPE = (2, 3)
MEANS = np.array([[-6.0, 0.0], [0.0, 6.0], [6.0, 0.0], [90.0, 90.0]])  # no row belongs to the last
MIXTURE = Mixture([0.2, 0.1, 0.3, 0.4], MEANS, np.ones((4, 2)))
MAP = np.random.default_rng(1).normal(size=(2, 6)) / 30


class WithoutClusters:
    """Six columns x = 0.5 + z A; records what it decodes."""

    def __init__(self):
        self.decoded = []

    def transform(self, X):
        return (np.reshape(X, (len(X), -1)) - 0.5) @ np.linalg.pinv(MAP)

    def inverse_transform(self, Z):
        self.decoded.append(Z)
        return 0.5 + Z @ MAP


class Linear(WithoutClusters):
    """The same with clusters, more confident the higher their number."""

    mixture_ = MIXTURE

    def predict_proba(self, X):
        nearest = ((self.transform(X)[:, None] - MEANS) ** 2).sum(-1).argmin(1)
        p = np.array([0.7, 0.8, 0.9, 1.0])[nearest, None] * np.eye(4)[nearest]
        return p + (1 - p.sum(1, keepdims=True)) * np.eye(4)[(nearest + 1) % 3]


class Sampler:
    """Has clusters without probabilities, and samples from them."""

    def predict(self, X):
        return np.where(X[:, 0] < 0.5, 2, 0)

    def sample(self, n, *, component, random_state):
        return np.random.default_rng(random_state).uniform(size=(n, 6)) * 0.1 + component * 0.3


class Facets:
    """Two facets: latents 0 and 1 with two clusters, latent 2 with three."""

    facets_ = (slice(0, 2), slice(2, 3))
    mixtures_ = (
        Mixture([0.5, 0.5], [[0, 0], [100, 100]], np.ones((2, 2))),
        Mixture([0.5, 0.5, 0], [[0], [100], [200]], np.ones((3, 1))),
    )

    def __init__(self):
        self.decoded, self.facets = [], []

    def transform(self, X):
        return X[:, :3]

    def inverse_transform(self, Z):
        self.decoded.append(Z)
        return np.repeat(Z, 2, axis=1)

    def predict_proba(self, X, facet=None):
        self.facets.append(facet)
        return np.eye(len(self.mixtures_[facet].weights))[np.arange(len(X)) % 2]


def rows():
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    return 0.5 + (MEANS[labels] + np.random.default_rng(0).normal(size=(100, 2))) @ MAP


def images_of(figure):
    """Images drawn, a list for each line of them."""
    lines = {}
    for image in figure.axes[0].images:
        lines.setdefault(image.get_extent()[3], []).append(np.asarray(image.get_array()))
    return [lines[top] for top in sorted(lines)]


def names_of(figure):
    return [tick.get_text() for tick in figure.axes[0].get_yticklabels()]


def caption_of(figure):
    return " ".join(figure.get_supxlabel().split())


def as_seen(x, shape=SHAPE):
    return np.clip(x, 0, 1).reshape(-1, *shape)


def fits(figure):
    """Return whether everything lies within the page, no panels with labels overlap and none is squeezed."""
    figure.draw_without_rendering()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    apart = [axis.get_tightbbox() for axis in figure.axes]
    labels = [tick.get_window_extent() for tick in figure.axes[0].get_yticklabels() if tick.get_text()]
    crowded = any(a.overlaps(b) for boxes in (apart, labels) for i, a in enumerate(boxes) for b in boxes[:i])
    squeezed = [a for a in figure.axes if a.get_label() != "<colorbar>" and a.bbox.width / figure.dpi < 0.7]
    within = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
    return within and not crowded and not squeezed and height < 20 and width < 20
