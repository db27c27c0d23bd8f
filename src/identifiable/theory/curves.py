"""Decoders of one latent: f(z) is a curve of finitely many straight stretches, so F2, F3 and F4 are decided exactly."""

from typing import NamedTuple

import numpy as np

from identifiable.arrays import Array, BoolArray
from identifiable.theory.certificate import Finding
from identifiable.theory.decoders import Decoder
from identifiable.theory.thresholds import THRESHOLDS

FACTOR, SAME = THRESHOLDS.undecided_factor, THRESHOLDS.same_image


class Curve(NamedTuple):
    """Stretches of a curve in R^n, in order: start + s direction, 0 <= s <= length; the first runs backwards."""

    starts: Array  # (K + 1, n)
    directions: Array  # (K + 1, n), of length 1, or 0 where the curve stands still
    lengths: Array  # (K + 1,), infinite for the two rays
    size: float


def curve_of(f: Decoder) -> Curve:
    """Follow the line z through the layers, adding a knot wherever a unit changes sign."""
    t = np.zeros(1)
    values, left, right = np.zeros((1, 1)), np.ones(1), np.ones(1)
    for w, b, slope in zip(f.weights, f.biases, (*f.slopes, None), strict=True):
        values, left, right = _rounded(values, w, b), _rounded(left, w), _rounded(right, w)
        if slope is None:
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = t[:-1, None] - values[:-1] * (np.diff(t)[:, None] / np.diff(values, axis=0))
            before, after = t[0] - values[0] / left, t[-1] - values[-1] / right
        knots = np.concatenate(
            [t, inner[values[:-1] * values[1:] < 0], before[values[0] * left > 0], after[values[-1] * right < 0]]
        )
        knots = np.unique(knots[np.isfinite(knots)])
        knots = knots[np.r_[True, np.diff(knots) > 1e-12 * (1 + np.abs(knots[1:]))]]
        inside = np.stack([np.interp(knots, t, unit) for unit in values.T], axis=1)
        values = inside + np.minimum(knots - t[0], 0)[:, None] * left + np.maximum(knots - t[-1], 0)[:, None] * right
        # Beyond the last knot no unit changes sign: its slope determines the sign.
        low = np.where(left != 0, left > 0, values[0] < 0)
        high = np.where(right != 0, right < 0, values[-1] < 0)
        left, right = np.where(low, slope * left, left), np.where(high, slope * right, right)
        t, values = knots, np.where(values < 0, slope * values, values)
    steps = np.vstack([-left, np.diff(values, axis=0), right])
    durations = np.r_[1.0, np.diff(t), 1.0]
    lengths = np.linalg.norm(steps, axis=1)
    speeds = lengths / durations
    moving = speeds > SAME * speeds.max()
    size = float(np.linalg.norm(values - values[0], axis=1).max() or speeds.max())
    directions = np.where(moving[:, None], steps / np.where(lengths > 0, lengths, 1)[:, None], 0.0)
    lengths[[0, -1]] = np.inf
    return Curve(np.vstack([values[:1], values]), directions, lengths, size)


def _rounded(y: Array, w: Array, b: Array | float = 0.0) -> Array:
    """Return W y + b, 0 where what is left is rounding."""
    value: Array = y @ w.T + b
    return np.where(np.abs(value) <= 1e-14 * (np.abs(y) @ np.abs(w).T + np.abs(b)), 0.0, value)


def judge_curve(f: Decoder) -> tuple[Finding, ...]:
    """Judge F2, F3 and F4 of a decoder of one latent."""
    curve, lost = curve_of(f), f"{f.loss}."
    if not curve.directions.any():
        return (Finding("fails", f"f is constant{lost}"),) * 3
    sentences = (
        ("Some stretch of the curve f(z) is passed only once", "No stretch of the curve f(z) is passed only once"),
        ("No stretch of the curve f(z) is passed twice", "Some stretch of the curve f(z) is passed twice"),
        ("The curve f(z) never stands still nor meets itself", "The curve f(z) stands still or meets itself"),
    )
    found = []
    exact, loose = (_passes(curve, tol) for tol in (SAME / FACTOR, SAME * FACTOR))
    for low, high, (yes, no) in zip(exact, loose, sentences, strict=True):
        decided = Finding("holds", f"{yes}.") if low else Finding("fails", f"{no}{lost}")
        unclear = Finding("inconclusive", f"Parts of the curve f(z) are too close to each other{lost}")
        found.append(decided if low == high else unclear)
    return tuple(found)


def _passes(curve: Curve, tol: float) -> tuple[bool, bool, bool]:
    """Return whether some stretch is passed only once, whether none twice, whether no point twice."""
    starts, directions, lengths, size = curve
    moving: BoolArray = np.abs(directions).max(1) > 0
    near = tol * size
    free, apart, simple = False, True, bool(moving.all())
    for i in np.flatnonzero(moving):
        others = np.flatnonzero(moving & (np.arange(len(moving)) != i))
        p, u = starts[i], directions[i]
        v, gap = directions[others], starts[others] - p
        cosines, along = v @ u, gap @ u
        parallel = np.linalg.norm(v - cosines[:, None] * u, axis=1) <= tol
        on_line = parallel & (np.linalg.norm(gap - along[:, None] * u, axis=1) <= near)
        end = along + np.where(cosines < 0, -1, 1) * lengths[others]
        lows, highs = np.maximum(np.minimum(along, end), 0), np.minimum(np.maximum(along, end), lengths[i])
        covers = on_line & (highs - lows > near)
        apart &= not covers.any()
        free |= _uncovered(lows[covers], highs[covers], float(lengths[i])) > near
        # The nearest points of two stretches (Ericson 2004, section 5.1.9); neighbours share a knot.
        strangers = (np.abs(others - i) > 1) & ~covers
        b, c, e = cosines[strangers], -along[strangers], -(gap * v).sum(1)[strangers]
        bent = 1 - b**2
        s = np.where(bent > tol**2, np.clip((b * e - c) / np.where(bent > 0, bent, 1), 0, lengths[i]), 0)
        r = np.clip(b * s + e, 0, lengths[others][strangers])
        s = np.clip(b * r - c, 0, lengths[i])
        between = s[:, None] * u - gap[strangers] - r[:, None] * v[strangers]
        simple &= not (np.linalg.norm(between, axis=1) <= near).any()
    return free, apart, simple and apart


def _uncovered(lows: Array, highs: Array, length: float) -> float:
    """Return how much of [0, length] no interval covers."""
    total, reach = 0.0, 0.0
    for k in np.argsort(lows):
        total, reach = total + max(0.0, lows[k] - reach), max(reach, float(highs[k]))
    return total + max(0.0, length - reach) if reach < np.inf else total
