r"""Sparse unmixing under noise: from rows that are nearly right to the best affine map of the noisy data.

Fits the mixture of `pattern_model.py` from a start and rotates axes where EM is stuck (`axis_rotation.py`). The
read-out is the best linear predictor of z = m ∘ v, Cov(z) B Cov(y)⁻¹: the inverse of B, shrunk where noise covers the
signal (Wiener). The noise is isotropic in y, or has the same share of the variance in every direction, which is noise
of uncorrelated latents of one variance. The likelihood decides which.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from identifiable.algorithms.axis_rotation import rotated_axes, shared_lines
from identifiable.algorithms.inactivity import (
    LEAST_SHARE,
    Readout,
    blocks_of_inactive,
    blocks_of_posteriors,
    inactive_up_to_noise,
)
from identifiable.algorithms.pattern_model import Model, Rows, em, settle
from identifiable.arrays import Array

MOST_LATENTS = 30  # the cost grows as patterns n³; beyond this `noisy_many.py` is for them
LEAST_ROWS = 20  # rows per latent; with fewer the start is returned
SEARCH_ROWS = 5000  # rows in all but the last steps
MOST_PATTERNS = 250  # patterns at the start
SAME_OPTIMUM = 0.005  # nats per row between two settled starts that are one optimum
HOPELESS = 0.5  # nats per row by which a settled start may be behind and still have its axes rotated
LEAST_NOISE = 1e-3  # of the root mean variance of y: exact data have no maximum likelihood
SMALL_NOISE = 0.25  # of the same: more is fitted only from a start at the spikes of all columns together,
MOST_NOISE = 0.5  # and more than this is not noise but a mixture that is far from affine
DOUBT = 1.0  # standard errors by which the likelihood of held-out rows may be lower than that of the start
CELLS = np.sinh(np.linspace(-9.3, 9.3, 241)) * LEAST_NOISE  # edges in which rows are counted: fine at zero

Spikes = tuple[float, Array, Array, Array]  # noise, means and sizes while active, posterior of being active


@dataclass(frozen=True)
class Refined:
    """A read-out ẑ = rows[:, :n] y + rows[:, n] of latents z with unit variance that are inactive at zero.

    rows : (n, n + 1) the best linear predictor of z up to a shift, which puts its mean at zero while the latent is
        inactive. Shrunk, so of less than unit variance.
    noise : standard deviation of the noise in a column of y, the root mean square over the columns.
    gain : log-likelihood per held-out row, in nats, above that of the start; 0 if the start is returned unchanged.
    patterns, weights : (J, n) and (J,), the patterns of activity and their shares, most frequent first.
    covariance : (n, n) of the latents while active.
    blocks : groups of latents that are inactive in the same rows, see `blocks_of_inactive`.
    inactive : (n,) whether it is established that the latent is inactive up to noise, see `inactive_up_to_noise`.
    value : the criterion of models (`Model.value`) in nats per row of y.
    """

    rows: Array
    noise: float
    gain: float
    patterns: NDArray[np.bool_]
    weights: Array
    covariance: Array
    blocks: tuple[tuple[int, ...], ...]
    inactive: NDArray[np.bool_]
    value: float = 0.0


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


def common_spikes(t: Array, scale: Array, most: float, steps: int = 40) -> Spikes:
    """Fit (1 - p_i) N(0, s² scale_i²) + p_i N(μ_i, σ_i²) to all columns with one s; return s, μ, σ and the posterior.

    The columns together show a spike that is too wide or too rare to be seen in one of them. s is the likeliest value
    of a grid up to `most`; rows are counted in cells. The posterior (N, n) is that of being active.
    """
    centre = (CELLS[1:] + CELLS[:-1]) / 2
    rows = np.stack([np.histogram(np.clip(column, CELLS[0], CELLS[-1]), CELLS)[0] for column in t.T]) / len(t)
    noise = most * np.geomspace(LEAST_NOISE, 1, 30)
    width = np.maximum(noise[:, None] * scale, LEAST_NOISE)[..., None]  # (30, n, 1), as all parameters
    share, mean = np.full(width.shape, 0.5), np.broadcast_to(t.mean(0)[:, None], width.shape)
    variance = np.maximum(1.5 * t.var(0)[:, None], width**2)
    for _ in range(steps):
        spike, slab = _spike_and_slab(centre, width, share, mean, variance)
        active = slab / (spike + slab) * rows
        share = np.clip(active.sum(-1, keepdims=True), LEAST_SHARE, 1 - LEAST_SHARE)
        mean = (active * centre).sum(-1, keepdims=True) / share
        variance = np.maximum((active * (centre - mean) ** 2).sum(-1, keepdims=True) / share, width**2)
    k = int((np.log(spike + slab) * rows).sum((1, 2)).argmax())
    spike, slab = _spike_and_slab(t.T, width[k], share[k], mean[k], variance[k])
    return float(noise[k]), mean[k, :, 0], np.sqrt(variance[k, :, 0]), (slab / (spike + slab)).T


def _spike_and_slab(t: Array, width: Array, share: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Return the two parts of the density at t, times √2π."""
    spike = (1 - share) * np.exp(-0.5 * (t / width) ** 2) / width
    return spike, share * np.exp(-0.5 * (t - mean) ** 2 / variance) / np.sqrt(variance) + 1e-300


def _first_model(spikes: Spikes, shape: Array, floor: float, rng: np.random.Generator) -> Model:
    """Return the model in which t itself are the latents, with noise covariance s² shape (n, n) and no correlations."""
    n = len(shape)
    noise, mean, size, active = spikes
    bits = np.r_[active > 0.5, rng.random(active.shape) < active]
    patterns, counts = np.unique(bits, axis=0, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[:MOST_PATTERNS]
    return Model(
        mixing=torch.eye(n, dtype=torch.float64),
        origin=torch.zeros(n, dtype=torch.float64),
        mean=torch.tensor(mean),
        root=torch.diag(torch.tensor(size)),
        log_noise=float(np.log(max(noise, floor))),
        noise_shape=torch.tensor(shape),
        patterns=torch.tensor(patterns[frequent]).double(),
        weights=torch.tensor(counts[frequent] / counts[frequent].sum()),
        floor=float(np.log(floor)),
    )


def unchanged(rows: Array, noise: float = 0.0) -> Refined:
    """Return the start (n, n + 1) as it is, with one pattern in which all latents are active."""
    n = len(rows)
    none = np.zeros(n, dtype=bool)
    return Refined(rows, noise, 0.0, ~none[None], np.ones(1), np.eye(n), (), none)


def _of_rows(model: Model, t: Array, W: Array, shift: Array, gain: float) -> Refined:
    """Return the model of t = y W + shift as a read-out from y, with latents of unit variance."""
    order = torch.argsort(-model.weights, stable=True)
    model = replace(model, patterns=model.patterns[order], weights=model.weights[order])
    patterns, weights = model.patterns.numpy(), model.weights.numpy()
    covariance, B = model.latent_covariance().numpy(), model.mixing.numpy()
    size = np.sqrt(np.diag(covariance))
    readout = np.linalg.solve(np.atleast_2d(np.cov(t.T)), (covariance @ B).T) / size
    inactive = weights[:, None] * (1 - patterns) + 1e-12
    centres, spreads = (moments.numpy() for moments in model.components(model.patterns))
    centre = (inactive * (centres @ readout)).sum(0) / inactive.sum(0)
    read = Readout(
        t @ readout - centre, patterns > 0, weights, centres @ readout - centre, readout.T @ spreads @ readout
    )
    blocks = blocks_of_inactive(read)
    C = (model.root @ model.root.T).numpy() / np.outer(size, size)
    rows = np.c_[(W @ readout).T, shift @ readout - centre]
    noise = float(np.exp(model.log_noise))
    return Refined(rows, noise, gain, patterns > 0, weights, C, blocks, inactive_up_to_noise(read, blocks))


def refine_under_noise(y: Array, rows: Array, *, seed: int = 0) -> Refined:
    """Refine the start `rows` (n, n + 1) on the data y (N, n), which are noisy.

    The start is returned unchanged, with gain 0, if the held-out likelihood falls by more than its standard error, or
    if there is nothing to fit to: too few rows, more than 30 latents, a singular start. The noise is then that of the
    start.

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
        return unchanged(rows)
    try:
        return _refine(y, rows, t / size, W / size, rows[:, n] / size, np.random.default_rng(seed))
    except (np.linalg.LinAlgError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]  # few or exact rows
        return unchanged(rows)


def _refine(y: Array, rows: Array, t: Array, W: Array, shift: Array, rng: np.random.Generator) -> Refined:
    """Fit the model to t = y W + shift, columns of unit variance; return its read-out, or the start."""
    t_mixed = torch.tensor(t[rng.permutation(len(t))])
    cut = len(t) // 10
    held, everything, search = Rows(t_mixed[:cut]), Rows(t_mixed[cut:]), Rows(t_mixed[cut : cut + SEARCH_ROWS])
    covariance, scale = np.atleast_2d(np.cov(y.T)), float(np.sqrt(y.var(0).mean()))
    most, floor = float(np.sqrt(max(np.linalg.eigvalsh(covariance)[0], 0.0))), LEAST_NOISE * scale
    isotropic, even = W.T @ W, W.T @ covariance @ W / scale**2  # shapes of the noise, of mean variance 1 in y
    some = search.t.numpy()
    width, mean, size, active = spikes(some)
    wide = min(float(np.median(width / np.linalg.norm(W, axis=0))), most)
    first = _first_model((wide, mean, size, active), isotropic, floor, rng)
    model, starts = _search(search, first, np.atleast_2d(np.cov(t.T)))
    # The same with even noise. EM approaches a large noise slowly, so it starts at that of the spikes.
    back = np.linalg.inv(model.mixing.numpy())
    noise = common_spikes((some - model.origin.numpy()) @ back, np.sqrt(np.diag(back.T @ even @ back)), scale)[0]
    other = replace(model, noise_shape=torch.tensor(even), log_noise=float(np.log(max(noise, floor))))
    other = settle(search, other, 2)[0]
    evenly = other.posterior(everything)[1] > model.posterior(everything)[1]
    model = em(everything, other if evenly else model, 6, inner=25)
    gain = _gain(model, starts, held, search, (MOST_NOISE if evenly else SMALL_NOISE) * scale)
    if gain is None and noise > SMALL_NOISE * scale:  # spikes that are hardly seen in one column are seen in all
        shapes = ((isotropic, max(most, floor)), (even, scale))
        found = [(common_spikes(some, np.sqrt(np.diag(shape)), limit), shape) for shape, limit in shapes]
        firsts = [em(search, _first_model(*one, floor, rng), 4, dropped=0.5, mix=False) for one in found]
        first = max(firsts, key=lambda one: one.posterior(search)[1])
        model = em(everything, settle(search, em(search, first, 4, dropped=1.0), 8)[0], 6, inner=25)
        gain = _gain(model, [*starts, first], held, search, MOST_NOISE * scale)
        model = replace(model, log_noise=first.log_noise)  # EM fits a large noise too closely to the rows
    if gain is not None:
        value = model.value(everything) + float(np.linalg.slogdet(W)[1])
        return replace(_of_rows(model, t, W, shift, gain), value=value)
    # No model with one noise describes the rows; the columns still show which latents are inactive together.
    return replace(unchanged(rows, float(np.exp(model.log_noise))), blocks=blocks_of_posteriors(1 - spikes(t)[3], t))


def _search(search: Rows, first: Model, covariance: Array) -> tuple[Model, list[Model]]:
    """Fit the model from two starts for B, given Cov(t), and rotate axes; return the best model and the starts."""
    # The rows are its inverse, or they are read-outs of z already shrunk, and then Cov(t) = Cov(z) B. The first is
    # better where latents are far from zero, the second where B is almost singular.
    shrunk = torch.linalg.solve(first.latent_covariance(), torch.tensor(covariance))
    first = em(search, first, 4, dropped=0.5, mix=False)
    starts = [em(search, replace(first, mixing=B), 4, dropped=0.5, mix=False) for B in (first.mixing, shrunk)]
    settled = [settle(search, em(search, start, 4, dropped=1.0), 8) for start in starts]
    settled.sort(key=lambda s: -s[1])
    behind = settled[0][1] - settled[1][1]
    several = settled[: 2 if SAME_OPTIMUM < behind < HOPELESS else 1]
    return max((rotated_axes(search, *s) for s in several), key=lambda found: found[1])[0], starts


def _gain(model: Model, starts: list[Model], held: Rows, search: Rows, most_noise: float) -> float | None:
    """Return the gain in likelihood on held-out rows over the best start; None if the model is not to be trusted.

    A likelier model need not have the latents. A mixture that is not affine is fitted by more noise, or by more and
    more active latents, and the model is not identified while several latents share a line.
    """
    gains = model.log_density(held) - max((s.log_density(held) for s in starts), key=lambda each: float(each.mean()))
    gain, error = float(gains.mean()), float(gains.std()) / len(gains) ** 0.5
    bent = np.exp(model.log_noise) > most_noise
    denser = model.n_active > 1.2 * max(start.n_active for start in starts) + 0.1
    return None if bent or denser or gain < -DOUBT * error or shared_lines(search, model, 0.99) else gain
