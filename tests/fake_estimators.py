"""Estimators that do what a test needs and learn nothing."""

import numpy as np
from sklearn.base import BaseEstimator

from identifiable import DataError, FitFailedError, Stability


class Rotation(BaseEstimator):
    """A random rotation; its score is `quality`."""

    def __init__(self, width=5, quality=0.0, random_state=None):
        self.width = width
        self.quality = quality
        self.random_state = random_state

    def fit(self, X, y=None):
        rng = np.random.default_rng(self.random_state)
        self.axes_ = np.linalg.qr(rng.normal(size=(X.shape[1], X.shape[1])))[0][:, : self.width]
        return self

    def transform(self, X):
        return np.asarray(X) @ self.axes_

    def score(self, X):
        return self.quality


class Fixed(Rotation):
    """The first columns, with restarts whose agreement is given."""

    def __init__(self, width=5, quality=0.0, agreement=0.99, random_state=None):
        super().__init__(width, quality, random_state)
        self.agreement = agreement

    def fit(self, X, y=None):
        self.axes_ = np.eye(X.shape[1])[:, : self.width]
        self.stability_ = Stability(np.array([[1, self.agreement], [self.agreement, 1]]))
        return self


class Twin(Fixed):
    """Another class that does the same."""


class Failing(Fixed):
    def fit(self, X, y=None):
        raise FitFailedError("No restart has finite latents.")


class Positive(Rotation):
    """Accepts positive numbers only, as an estimator of pixels may."""

    def fit(self, X, y=None):
        if np.min(X) < 0:
            raise DataError("positive numbers only")
        self.axes_ = np.eye(X.shape[1])
        return self


class Probe(Fixed):
    """Records the rows it is fitted to and those it is compared on; the first column is the row number."""

    fitted: list = []  # noqa: RUF012
    compared: list = []  # noqa: RUF012

    def fit(self, X, y=None):
        self.fitted.append(np.asarray(X)[:, 0].astype(int))
        return super().fit(X)

    def transform(self, X):
        self.compared.append(np.asarray(X)[:, 0].astype(int))
        return super().transform(X)

    def score(self, X):
        self.compared.append(np.asarray(X)[:, 0].astype(int))
        return 0.0


def numbered(rows, columns=2):
    """Return noise whose first column is the row number, and forget what `Probe` has recorded."""
    Probe.fitted.clear()
    Probe.compared.clear()
    x = np.random.default_rng(0).normal(size=(rows, columns))
    x[:, 0] = np.arange(rows)
    return x
