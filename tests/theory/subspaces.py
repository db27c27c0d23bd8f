"""Mixtures on subspaces that several tests use."""

import numpy as np

from identifiable.data import make_pdgmm
from identifiable.distributions.mixture import Mixture


def latents_of(seed=0, **settings):
    return make_pdgmm(10, random_state=seed, **settings).source.latents


def on_axes(codes, rng):
    """Return a mixture whose component j has the latents with codes[j] active; means and covariances are random."""
    codes = np.asarray(codes, dtype=float)
    factors = rng.normal(size=(len(codes), codes.shape[1], codes.shape[1])) * codes[:, None, :]
    centres = rng.normal(size=codes.shape) * codes
    return Mixture(np.full(len(codes), 1 / len(codes)), centres, factors.swapaxes(1, 2) @ factors)


def lines(directions, means, deviations):
    directions = np.asarray(directions, dtype=float)
    covariances = np.asarray(deviations)[:, None, None] ** 2 * directions[:, :, None] * directions[:, None, :]
    return Mixture(np.full(len(means), 1 / len(means)), means, covariances)


def same_directions(a, b):
    """Return whether the columns agree up to order, sign and length."""
    cosines = np.abs((a / np.linalg.norm(a, axis=0)).T @ (b / np.linalg.norm(b, axis=0)))
    return np.allclose(np.sort(cosines, axis=1)[:, -1], 1) and len(set(cosines.argmax(1))) == len(cosines)


def invertible(n, rng):
    """Return a matrix of condition at most 4: what is tested is the certificate, not the rounding of covariances."""
    left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0] for _ in range(2))
    return left * rng.uniform(0.5, 2, size=n) @ right


def normals(subspaces, seed):
    """Return a mixture of centred components, each with a random covariance on the span of the given rows."""
    rng = np.random.default_rng(seed)
    factors = [rng.normal(size=(len(s) + 1, len(s))) @ np.asarray(s, dtype=float) for s in subspaces]
    n = factors[0].shape[1]
    return Mixture(np.full(len(factors), 1 / len(factors)), np.zeros((len(factors), n)), [f.T @ f for f in factors])
