"""Latents as two restarts would learn them: exact up to small errors, common ones and own ones, and a few misreads."""

import itertools

import numpy as np

WIDTH = 0.05
SINGLES = np.eye(5, dtype=bool)
SQUARE = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]], dtype=bool)
PAIRS = np.array([[i in pair for i in range(5)] for pair in itertools.combinations(range(5), 2)])


def fives(n=10, count=46, seed=3):
    """Random patterns of n / 2 active latents."""
    return np.unique(np.random.default_rng(seed).random((count, n)).argsort(1) < n // 2, axis=0)


def learnt(patterns, rows, seed, *, weights=None, delta=0.0, r=0.0, misread=0.005):
    """Return latents (rows, n) of two restarts; a share `misread` of inactive latents is far off in both, and in one.

    Active latents are N(-delta, 1) with correlations r.
    """
    rng = np.random.default_rng(seed)
    J, n = patterns.shape
    share = np.full(J, 1 / J) if weights is None else np.asarray(weights) / np.sum(weights)
    factor = np.linalg.cholesky((1 - r) * np.eye(n) + r)
    z = (rng.normal(size=(rows, n)) @ factor.T - delta) * patterns[rng.choice(J, rows, p=share)]
    common, *own = 0.7 * WIDTH * rng.normal(size=(3, rows, n))
    for errors in (common, *own):
        errors[rng.random((rows, n)) < misread] *= 12
    return z + common + own[0], (z + common + own[1])
