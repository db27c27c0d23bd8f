r"""Sparse unmixing under noise: from rows that are nearly right to the best affine map of the noisy data.

Fits the mixture of `pattern_model.py` from a start and rotates axes where EM is stuck (`axis_rotation.py`). The
read-out is the best linear predictor of z = m ∘ v, Cov(z) B Cov(y)⁻¹: the inverse of B, shrunk where noise covers the
signal (Wiener).
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from identifiable.algorithms.axis_rotation import rotated_axes, shared_lines
from identifiable.algorithms.pattern_model import Model, Rows, em, settle
from identifiable.arrays import Array

MOST_LATENTS = 30  # the cost grows as patterns n³; beyond this the start is returned
LEAST_ROWS = 20  # rows per latent; with fewer the start is returned
SEARCH_ROWS = 5000  # rows in all but the last steps
MOST_PATTERNS = 250  # patterns at the start
SAME_OPTIMUM = 0.005  # nats per row between two settled starts that are one optimum
HOPELESS = 0.5  # nats per row by which a settled start may be behind and still have its axes rotated
LEAST_NOISE = 1e-3  # of the root mean variance of y: exact data have no maximum likelihood
MOST_NOISE = 0.25  # of the same: more is not noise but a mixture that is far from affine


@dataclass(frozen=True)
class Refined:
    """A read-out ẑ = rows[:, :n] y + rows[:, n] of latents z with unit variance that are inactive at zero.

    rows : (n, n + 1) the best linear predictor of z up to a shift, which puts its mean at zero while the latent is
        inactive. Shrunk, so of less than unit variance.
    noise : standard deviation of the noise in every column of y.
    gain : log-likelihood per held-out row, in nats, above that of the start; 0 if the start is returned unchanged.
    patterns, weights : (J, n) and (J,), the patterns of activity and their shares, most frequent first.
    covariance : (n, n) of the latents while active.
    """

    rows: Array
    noise: float
    gain: float
    patterns: NDArray[np.bool_]
    weights: Array
    covariance: Array


def spikes(t: Array, steps: int = 40) -> tuple[Array, Array, Array, Array]:
    """Fit (1 - p) N(0, e²) + p N(μ, σ²) to every column; return e, μ, σ and the posterior of being active (N, n)."""
    width, share = np.maximum(np.quantile(np.abs(t), 0.3, axis=0), 1e-3), np.full(t.shape[1], 0.5)
    mean, variance = t.mean(0), 1.5 * t.var(0)
    for _ in range(steps):
        inactive = np.log(1 - share) - 0.5 * (t / width) ** 2 - np.log(width)
        moving = np.log(share) - 0.5 * (t - mean) ** 2 / variance - 0.5 * np.log(variance)
        active = 1 / (1 + np.exp(np.clip(inactive - moving, -50, 50)))
        share = np.clip(active.mean(0), 0.02, 0.98)
        width = np.maximum(np.sqrt(((1 - active) * t * t).mean(0) / (1 - share)), 1e-3)
        mean = (active * t).mean(0) / share
        variance = np.maximum((active * (t - mean) ** 2).mean(0) / share, width**2)
    return width, mean, np.sqrt(variance), active


def _first_model(t: Array, W: Array, variance: Array, rng: np.random.Generator) -> Model:
    """Return the model in which t itself are the latents: marginals from their peaks at zero, no correlations."""
    n = t.shape[1]
    width, mean, size, active = spikes(t)
    bits = np.r_[active > 0.5, rng.random(active.shape) < active]
    patterns, counts = np.unique(bits, axis=0, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[:MOST_PATTERNS]
    floor = np.log(LEAST_NOISE * np.sqrt(variance.mean()))
    noise = min(float(np.median(width / np.linalg.norm(W, axis=0))), float(np.sqrt(variance[0])))
    return Model(
        mixing=torch.eye(n, dtype=torch.float64),
        origin=torch.zeros(n, dtype=torch.float64),
        mean=torch.tensor(mean),
        root=torch.diag(torch.tensor(size)),
        log_noise=float(max(np.log(noise), floor)),
        noise_shape=torch.tensor(W.T @ W),
        patterns=torch.tensor(patterns[frequent]).double(),
        weights=torch.tensor(counts[frequent] / counts[frequent].sum()),
        floor=float(floor),
    )


def _unchanged(rows: Array, noise: float = 0.0) -> Refined:
    """Return the start (n, n + 1) as it is, with one pattern in which all latents are active."""
    n = len(rows)
    return Refined(rows, noise, 0.0, np.ones((1, n), dtype=bool), np.ones(1), np.eye(n))


def _of_rows(model: Model, t: Array, W: Array, shift: Array, gain: float) -> Refined:
    """Return the model of t = y W + shift as a read-out from y, with latents of unit variance."""
    order = torch.argsort(-model.weights, stable=True)
    patterns, weights = model.patterns[order].numpy(), model.weights[order].numpy()
    covariance, B = model.latent_covariance().numpy(), model.mixing.numpy()
    size = np.sqrt(np.diag(covariance))
    readout = np.linalg.solve(np.atleast_2d(np.cov(t.T)), (covariance @ B).T) / size
    inactive = weights[:, None] * (1 - patterns) + 1e-12
    means = ((patterns * model.mean.numpy()) @ B + model.origin.numpy()) @ readout
    rows = np.c_[(W @ readout).T, shift @ readout - (inactive * means).sum(0) / inactive.sum(0)]
    C = (model.root @ model.root.T).numpy() / np.outer(size, size)
    return Refined(rows, float(np.exp(model.log_noise)), gain, patterns > 0, weights, C)


def refine_under_noise(y: Array, rows: Array, *, seed: int = 0) -> Refined:
    """Refine the start `rows` (n, n + 1) on the data y (N, n), whose noise is isotropic.

    The start is returned unchanged, with gain 0, if the held-out likelihood does not rise, or if there is nothing to
    fit to: too few rows, more than 30 latents, a singular start.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(1, 1, size=(3000, 2)) * (rng.random((3000, 2)) < 0.5)
    >>> mixing = np.array([[1.0, 0.5], [-0.3, 1.0]])
    >>> y = z @ mixing + 0.1 * rng.normal(size=z.shape)
    >>> start = np.c_[np.linalg.inv(mixing).T + 0.1, np.zeros(2)]
    >>> found = refine_under_noise(y, start)
    >>> round(found.noise, 2), found.gain > 0
    (0.1, True)
    """
    n = y.shape[1]
    W = rows[:, :n].T
    t = y @ W + rows[:, n]
    size = t.std(0)
    sane = LEAST_ROWS * n <= len(y) and n <= MOST_LATENTS and bool(np.isfinite(t).all()) and bool((size > 0).all())
    if not sane or np.linalg.cond(W / size) > 1e6:
        return _unchanged(rows)
    try:
        return _refine(y, rows, t / size, W / size, rows[:, n] / size, np.random.default_rng(seed))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # a covariance is singular: few or exact rows
        return _unchanged(rows)


def _refine(y: Array, rows: Array, t: Array, W: Array, shift: Array, rng: np.random.Generator) -> Refined:
    """Fit the model to t = y W + shift, columns of unit variance; return its read-out, or the start."""
    t_mixed = torch.tensor(t[rng.permutation(len(t))])
    cut = len(t) // 10
    held, all_rows, search = Rows(t_mixed[:cut]), t_mixed[cut:], Rows(t_mixed[cut : cut + SEARCH_ROWS])
    first = _first_model(search.t.numpy(), W, np.linalg.eigvalsh(np.atleast_2d(np.cov(y.T))).astype(np.float64), rng)
    # Two starts for B: the rows are its inverse, or they are read-outs of z already shrunk, and then Cov(t) = Cov(z) B.
    # The first is better where latents are far from zero, the second where B is almost singular.
    shrunk = torch.linalg.solve(first.latent_covariance(), torch.tensor(np.atleast_2d(np.cov(t.T))))
    first = em(search, first, 4, dropped=0.5, mix=False)
    starts = [em(search, replace(first, mixing=B), 4, dropped=0.5, mix=False) for B in (first.mixing, shrunk)]
    reference = max(start.posterior(held)[1] for start in starts)
    settled = [settle(search, em(search, start, 4, dropped=1.0), 8) for start in starts]
    settled.sort(key=lambda s: -s[1])
    behind = settled[0][1] - settled[1][1]
    model, _ = max(
        (rotated_axes(search, *s) for s in settled[: 2 if SAME_OPTIMUM < behind < HOPELESS else 1]),
        key=lambda found: found[1],
    )
    model = em(Rows(all_rows), model, 6, inner=25)
    gain = model.posterior(held)[1] - reference
    # A likelier model need not have the latents. A mixture that is not affine is fitted by more noise, or by more and
    # more active latents, and the model is not identified while several latents share a line.
    bent = np.exp(model.log_noise) > MOST_NOISE * np.sqrt(y.var(0).mean())
    denser = model.n_active > 1.2 * max(start.n_active for start in starts) + 0.1
    if bent or denser or shared_lines(search, model, 0.99) or not gain > 0:
        return _unchanged(rows, float(np.exp(first.log_noise)))
    return _of_rows(model, t, W, shift, gain)
