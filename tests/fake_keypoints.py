"""Images of one dot, and a keypoint encoder that is known in advance, so that fits to images need no training."""

import numpy as np

from identifiable import KeypointEncoder

SIDE, RADIUS = 12, 2.0


def paint(z):
    """Paint discs at positions z (N, 2) in units of the side."""
    pixels = (np.arange(SIDE) + 0.5) / SIDE
    distance = SIDE * np.hypot(pixels - z[:, :1, None], pixels[:, None] - z[:, 1:, None])
    return np.clip(RADIUS - distance + 0.5, 0, 1)


def dots(rows, seed):
    """Return uniform positions (rows, 2) and images (rows, 12, 12) of a disc."""
    z = np.random.default_rng(seed).uniform(0.2, 0.8, size=(rows, 2))
    return z, paint(z)


class KnownEncoder(KeypointEncoder):
    """The centre of brightness; `turn` rotates it by the seed, `error` is added to what is painted."""

    turn = error = 0.0

    def fit(self, X, y=None):
        self.module_, self.n_features_in_ = None, 2
        return self

    def _rotation(self):
        angle = self.turn * ((self.random_state or 0) % 7)
        return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    @property
    def _n_features_out(self):
        return 2

    def transform(self, X):
        x = np.asarray(X, dtype=np.float64).reshape(-1, SIDE, SIDE)
        pixels = (np.arange(SIDE) + 0.5) / SIDE
        total = np.maximum(x.sum((1, 2)), 1e-9)
        return np.c_[(x.sum(1) * pixels).sum(1) / total, (x.sum(2) * pixels).sum(1) / total] @ self._rotation()

    def inverse_transform(self, Z):
        return paint(np.asarray(Z) @ self._rotation().T) + self.error

    def score(self, X, y=None):
        return 0.0
