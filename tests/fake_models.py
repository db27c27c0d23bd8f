"""A family whose model is known in advance, so that the steps of a search can be tested without training."""

import numpy as np

from identifiable import FitFailedError, OutOfTimeError, Stability
from identifiable.auto.families import Family
from identifiable.auto.task import SearchOptions, Task


class FakeModel:
    """Latents are the first columns; the gain over a Gaussian is `gain`. Two of the latents turn with the seed."""

    fitted = []  # noqa: RUF012 - rows (N, w) of every fit

    def __init__(self, n_latents, *, random_state, gain=1.0, turn=0.0, fails="", max_steps=0, **options):
        self.n, self.seed, self.gain, self.turn, self.fails = n_latents, random_state, gain, turn, fails
        self.max_steps = max_steps
        self.stability_ = Stability(np.array([[1.0, 0.97], [0.97, 1.0]]))

    def fit(self, Y, u=None):
        self.fitted.append(np.asarray(Y))
        if self.fails:
            raise {"late": OutOfTimeError, "failed": FitFailedError}.get(self.fails, FitFailedError)(self.fails)
        self.mean, self.covariance = Y.mean(0), np.cov(Y.T)
        return self

    def transform(self, Y):
        angle = self.turn * (self.seed % 7)
        rotation = np.eye(self.n)
        rotation[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        return Y[:, : self.n] @ rotation

    def score_samples(self, Y, u=None):
        from scipy.stats import multivariate_normal

        return multivariate_normal(self.mean, self.covariance).logpdf(Y) + self.gain


def family(name="FactorialUnmixing", *, steps=None, **options):
    """Return a family of fake models; with `steps` it counts as trained."""

    def build(n_latents, **given):
        return FakeModel(n_latents, **{**given, **options})

    return Family(name, "a fake mixture", build, None if steps is None else lambda n: {"max_steps": steps})


def task(Y, u=None, *, n=None, model="auto", n_restarts=None, seed=0):
    """Return the task of a silent search."""
    FakeModel.fitted.clear()
    return Task.of(np.asarray(Y), u, SearchOptions(n, model, n_restarts, "cpu", 0, seed))
