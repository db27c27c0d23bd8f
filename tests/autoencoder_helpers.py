"""Linear models whose likelihood is known, and interrupted fits, for the tests of the autoencoders."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.base import clone

from identifiable.estimators import VaDE, variational
from identifiable.training import run
from identifiable.training.state import Run

QUICK = {"n_restarts": 2, "max_steps": 10, "batch_size": 32, "hidden": (8,), "random_state": 0, "verbose": 0}


def rand(g, *shape):
    return torch.randn(shape, generator=g, dtype=torch.float64)


class LinearModel:
    """x = mean + scale (z A + b + σ ε), z | k ~ N(m_k, diag s_k²), written into a fitted estimator; d = 4, n = 2.

    The prior remains that of the estimator: a test writes it where it is learnt.
    """

    def __init__(self, estimator, seed, means, scales, *, orthogonal=False):
        rng = np.random.default_rng(seed)
        self.means, self.scales = np.asarray(means), np.asarray(scales)
        self.x, self.k = rng.normal(size=(60, 4)) * [1, 2, 30, 0.1] + [0, 5, 0, 9], np.arange(60) % len(means)
        estimator.set_params(n_latents=2, **QUICK | {"hidden": (), "n_restarts": 1, "max_steps": 1})
        self.model = estimator.fit(self.x, self.k)
        self.A, self.b, self.sigma = rng.normal(size=(2, 4)), rng.normal(size=4), rng.uniform(0.3, 0.8, size=4)
        if orthogonal:  # then p(z | x, k) has independent latents
            self.A, self.sigma = np.linalg.qr(self.A.T)[0].T * [[0.7], [1.6]], np.full(4, 0.4)
        self.rows = (self.x - self.model.mean_) / self.model.scale_
        self.nets = self.model.module_.double()
        decoder = self.nets.last_layers[1]
        with torch.no_grad():
            for linear in (self.nets.into, self.nets.out):
                if linear is not None:
                    linear.zero_()
            decoder.weight[0], decoder.bias[0, 0] = torch.as_tensor(self.A), torch.as_tensor(self.b)
            self.nets.log_noise[0, 0] = torch.as_tensor(np.log(self.sigma))

    def given(self, k):
        """Return p(x | k), in the units of the data."""
        scale = self.model.scale_
        covariance = self.A.T @ np.diag(self.scales[k] ** 2) @ self.A + np.diag(self.sigma**2)
        mean = self.model.mean_ + scale * (self.means[k] @ self.A + self.b)
        return multivariate_normal(mean, covariance * np.outer(scale, scale))

    def posterior(self, k):
        """Return slope (4, 2), shift (2,) and covariance of p(z | x, k), whose mean is rows @ slope + shift."""
        covariance = np.linalg.inv((self.A / self.sigma**2) @ self.A.T + np.diag(self.scales[k] ** -2))
        slope = (self.A / self.sigma**2).T @ covariance
        return slope, covariance @ (self.means[k] / self.scales[k] ** 2) - self.b @ slope, covariance

    def set_encoder(self, slope, shift, covariance):
        """Set the encoder to N(rows @ slope + shift, covariance)."""
        root = np.linalg.cholesky(covariance)
        below = (root / np.diag(root)[:, None]) * np.tri(2, k=-1)
        encoder = self.nets.last_layers[0]
        outputs = encoder.bias.shape[-1]  # 4 where the covariance is diagonal, else 8
        with torch.no_grad():
            encoder.weight[0] = torch.as_tensor(np.c_[slope, np.zeros((4, outputs - 2))])
            encoder.bias[0, 0] = torch.as_tensor(np.r_[shift, np.log(np.diag(root)), below.ravel()][:outputs])
        return self


def require_moments(drawn, expected):
    """Require the mean and the covariance of draws to be those of a distribution, in its standard deviations."""
    sd = np.sqrt(np.diag(expected.cov))
    np.testing.assert_allclose((drawn.mean(0) - expected.mean) / sd, 0, atol=5 / len(drawn) ** 0.5)
    np.testing.assert_allclose(np.cov(drawn.T) / np.outer(sd, sd), expected.cov / np.outer(sd, sd), atol=0.03)


def interrupt(model, x, u, monkeypatch, *, after):
    """Fit a clone of model, with a checkpoint at every record, and stop it after this many checkpoints."""
    plan, write, saves = variational.Plan, Run.save, itertools.count(1)

    def stopping(self, *args):
        write(self, *args)
        if next(saves) == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(variational, "Plan", lambda *args, **kw: plan(*args, **kw, checkpoint_seconds=0.0))
    with monkeypatch.context() as interrupted:
        interrupted.setattr(Run, "save", stopping)
        with pytest.raises(KeyboardInterrupt):
            clone(model).fit(x, u)


def linear_vade(seed, components=3):
    """Return a `LinearModel` of VaDE with a random mixture, whose `weights` fall; the nets hold it in another order."""
    rng = np.random.default_rng(seed)
    means, scales = rng.normal(size=(components, 2)), rng.uniform(0.5, 2, size=(components, 2))
    known = LinearModel(VaDE(n_components=components, init="random", posterior="full"), seed, means, scales)
    known.weights = np.sort(rng.dirichlet(np.full(components, 3.0)))[::-1]
    base, order = known.nets.bases[0], rng.permutation(components)
    with torch.no_grad():
        base.logits[0] = torch.as_tensor(np.log(known.weights[order]))
        base.means[0] = torch.as_tensor(means[order])
        base.log_factors[0] = torch.as_tensor(-np.log(scales[order]))
    return known


def expected_log_joint(q, mixture):
    """Return E_q log w_k N(z; k), (B, K), for q of one member and a diagonal mixture."""
    mean, variance = q.mean[0].detach().numpy()[:, None], q.variance[0].detach().numpy()[:, None]
    own = np.diagonal(mixture.covariances, axis1=1, axis2=2)
    square = (variance + (mean - mixture.means) ** 2) / own + np.log(2 * np.pi * own)
    return np.log(mixture.weights) - 0.5 * square.sum(-1)


def initialised(model, x, u=None):
    """Return the nets (R members) from which the training on the bound starts, and the checked rows."""
    data = model._split(x, u)
    model._set_inputs(data)
    return run(model._initialise(data)), data
