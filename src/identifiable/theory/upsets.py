r"""Which latents are clearly active in each row, read from the learnt latents of two restarts.

Learnt latents are t = z + error. An inactive latent that is far from zero in both restarts is rare; an active latent
near zero is not. So nothing here decides that a latent is inactive. The up-set of a row,

.. math:: U = \{c : |t_c| > \tau \text{ and } |t'_c| > \tau\},

is a part of its true pattern unless an inactive latent errs by more than tau in both restarts. Errors of one restart
are seen: d is the rate at which a latent is far from zero in one restart and below tau / 2 in the other. tau is the
smallest of a few multiples of the smoothing width at which 2 d is at most 2 %, and kappa = max(2 %, 2 d) bounds the
share of rows in which an inactive latent counts as active.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy import stats
from scipy.optimize import linear_sum_assignment

from identifiable.arrays import Array, BoolArray, IntArray
from identifiable.theory.upsets_gaussians import MOST_ACTIVE, statistics_of

BLOCK = 2_000_000  # entries of a comparison of patterns held at once


@dataclass(frozen=True)
class Reading:
    """How up-sets are read, and what is assumed of misread rows; settled on development data sets."""

    widths: tuple[float, ...] = (4.0, 5.0, 6.0, 8.0, 10.0)  # tau that is tried, in smoothing widths
    least_kappa: float = 0.02  # share of misread rows per inactive latent that is allowed for in any case
    safety: float = 2.0  # errors of both restarts together, in units of those of one alone
    region: float = 0.1  # share of the rows of one pattern that may be misread in the same way
    hidden: float = 1.5  # factor on the odds that an active latent is near zero, read off the density beyond tau,
    hidden_least: float = 0.1  # and what is added to them
    fewest_rows: int = 20  # of an up-set that counts
    cut: float = 1.5  # Gaussians are fitted to rows with |t| > cut tau


READING = Reading()


@dataclass(frozen=True, eq=False)
class UpSets:
    """The up-sets of the rows of a fit and their counts: all that a certificate needs of the training rows.

    Attributes
    ----------
    rows : number of rows N.
    tau : a latent is clearly active beyond it, in standard deviations of an active latent.
    width : smoothing width e of the fit, in the same unit.
    odd, inactive : rows in which a latent is beyond tau in one restart only, and in which it is inactive, of the latent
        for which the first are most frequent.
    sets, counts : distinct up-sets (J, n) and their numbers of rows (J,).
    outer_sets, outer_counts : the same at 2 tau.
    odds : (n,) bounds on the odds that an active latent is not clearly active.
    read : (P,) up-sets of at most three latents to whose rows Gaussians can be fitted.
    sizes : (P, 2) rows of these in each restart.
    means, covariances : (P, 2, 9), (P, 2, 9, 9) of the statistics (t, t t') of these rows, padded with zeros.
    """

    rows: float
    tau: float
    width: float
    odd: float
    inactive: float
    sets: BoolArray
    counts: Array
    outer_sets: BoolArray
    outer_counts: Array
    odds: Array
    read: IntArray
    sizes: Array
    means: Array
    covariances: Array

    @classmethod
    def of(cls, latents: Array, other: Array, width: float) -> Self:
        """Read the latents (N, n) that two restarts give the same rows; `width` is the smoothing of the fit."""
        latents = np.asarray(latents, dtype=np.float64)
        other = matched(latents, np.asarray(other, dtype=np.float64))
        tau, odd, inactive = threshold(latents, other, width)
        far = np.abs(latents) > tau
        both = far & (np.abs(other) > tau)
        sets, group, counts = np.unique(both, axis=0, return_inverse=True, return_counts=True)
        outer_sets, outer_counts = np.unique(
            both & (np.minimum(np.abs(latents), np.abs(other)) > 2 * tau), axis=0, return_counts=True
        )
        close = far & (np.abs(latents) < 2 * tau)
        odds: Array = READING.hidden * close.sum(0) / np.maximum(far.sum(0), 1) + READING.hidden_least
        read = _moments((latents, other), sets, group.ravel(), counts, READING.cut * tau)
        return cls(
            len(latents),
            tau,
            width,
            odd,
            inactive,
            sets,
            counts.astype(float),
            outer_sets,
            outer_counts.astype(float),
            odds,
            *read,
        )

    def with_rows(self, factor: float) -> Self:
        """Return what so many times as many rows would show at the same shares."""
        return replace(
            self,
            rows=factor * self.rows,
            odd=factor * self.odd,
            inactive=factor * self.inactive,
            counts=factor * self.counts,
            outer_counts=factor * self.outer_counts,
            sizes=factor * self.sizes,
        )

    def without(self, dropped: BoolArray) -> Self:
        """Return the same without the rows of these up-sets (J,), which then count as unexplained only."""
        number = np.cumsum(~dropped) - 1
        kept = ~dropped[self.read]
        return replace(
            self,
            sets=self.sets[~dropped],
            counts=self.counts[~dropped],
            read=number[self.read[kept]],
            sizes=self.sizes[kept],
            means=self.means[kept],
            covariances=self.covariances[kept],
        )

    @property
    def n(self) -> int:
        """Number of latents."""
        return self.sets.shape[1]

    @property
    def kappa(self) -> float:
        """Bound on the share of rows in which an inactive latent seems clearly active."""
        return max(READING.least_kappa, _bound(self.odd, self.inactive))

    @property
    def region(self) -> float:
        """Rows of one pattern that may all be misread as one other pattern."""
        return READING.region * float(self.counts[self.sets.any(1)].max(initial=0.0))

    def numbers_of(self, sets: BoolArray) -> IntArray:
        """Return the numbers (Q,) of these up-sets (Q, n), -1 for those that no row has."""
        known = {row.tobytes(): j for j, row in enumerate(self.sets)}
        return np.array([known.get(row.tobytes(), -1) for row in np.ascontiguousarray(sets)], dtype=np.int64)

    def containing(self, sets: BoolArray) -> Array:
        """Return the number of rows whose up-set contains each of these (Q, n), (Q,)."""
        return np.concatenate([np.zeros(0), *((missing == 0) @ self.counts for _, missing in self._missing(sets))])

    def misread(self, sets: BoolArray) -> Array:
        """Return how many rows errors beyond tau may bring to up-sets that contain these (Q, n), (Q,)."""
        power = self.kappa ** np.arange(self.n + 1.0)
        power[0] = 0.0
        parts = [power[missing] @ self.counts for _, missing in self._missing(sets)]
        return np.concatenate([np.zeros(0), *parts]) + self.region

    def stray(self, sets: BoolArray) -> Array:
        """Return how many rows with exactly these up-sets (Q, n) may have another pattern, (Q,).

        They are misread, or have a larger pattern whose other latents are near zero.
        """
        log_odds = np.log(self.odds)
        lost = self.sets @ log_odds
        parts = []
        for block, missing in self._missing(sets):
            above = (missing == 0) & (self.sets.sum(1) > block.sum(1)[:, None])
            parts.append(np.where(above, np.exp(lost - (block @ log_odds)[:, None]), 0.0) @ self.counts)
        return self.misread(sets) + np.concatenate([np.zeros(0), *parts])

    def _missing(self, sets: BoolArray) -> Iterator[tuple[BoolArray, IntArray]]:
        """Yield blocks of sets (q, n), and how many of their latents each up-set lacks, (q, J)."""
        size = max(1, BLOCK // max(1, len(self.sets)))
        lacking = (~self.sets).T.astype(np.float32)
        for start in range(0, len(sets), size):
            block = sets[start : start + size]
            yield block, (block.astype(np.float32) @ lacking).astype(np.int64)


def matched(latents: Array, other: Array) -> Array:
    """Return the latents of another restart in the order and with the signs of the first."""
    with np.errstate(invalid="ignore", divide="ignore"):  # constant latents match none
        correlation = np.nan_to_num(np.corrcoef(latents.T, other.T)[: latents.shape[1], latents.shape[1] :])
    order = linear_sum_assignment(-np.abs(correlation))[1]
    return other[:, order] * np.where((latents * other[:, order]).sum(0) < 0, -1.0, 1.0)


def threshold(latents: Array, other: Array, width: float) -> tuple[float, float, float]:
    """Return tau, and for the latent with most contradictions their number and that of the rows without it.

    tau is the smallest at which the restarts vouch for the least kappa, else that at which kappa is smallest.
    """
    found = [(w * width, *_contradictions(np.abs(latents), np.abs(other), w * width)) for w in READING.widths]
    bounds = [_bound(odd, inactive) for _, odd, inactive in found]
    enough = [i for i, bound in enumerate(bounds) if bound <= READING.least_kappa]
    return found[enough[0] if enough else int(np.argmin(bounds))]


def _contradictions(first: Array, second: Array, tau: float) -> tuple[float, float]:
    """Return in how many rows a latent is beyond tau in one restart and below tau / 2 in the other, and inactive."""
    far, near = [t > tau for t in (first, second)], [t < tau / 2 for t in (first, second)]
    odd = ((far[0] & near[1]).sum(0) + (far[1] & near[0]).sum(0)) / 2
    inactive = (near[0] & near[1]).sum(0) + odd
    worst = int(stats.beta.ppf(0.95, odd + 1, np.maximum(inactive - odd, 1)).argmax())
    return float(odd[worst]), float(inactive[worst])


def _bound(odd: float, inactive: float) -> float:
    """Return a 95 % bound on the rate of contradictions, times the safety factor."""
    return READING.safety * float(stats.beta.ppf(0.95, odd + 1, max(inactive - odd, 1)))


def _moments(
    restarts: tuple[Array, Array], sets: BoolArray, group: IntArray, counts: IntArray, cut: float
) -> tuple[IntArray, Array, Array, Array]:
    """Return the up-sets with enough rows beyond the cut, and sizes, means and covariances of their statistics."""
    entries = MOST_ACTIVE * (MOST_ACTIVE + 3) // 2
    active = sets.sum(1)
    candidates = np.flatnonzero((counts >= READING.fewest_rows) & (active > 0) & (active <= MOST_ACTIVE))
    order, ends = np.argsort(group, kind="stable"), np.cumsum(counts)
    read: list[int] = []
    found: list[tuple[list[int], Array, Array]] = []
    for j in candidates.tolist():
        rows = order[ends[j] - counts[j] : ends[j]]
        own = [t[np.ix_(rows, sets[j])] for t in restarts]
        own = [x[(np.abs(x) > cut).all(1)] for x in own]
        if min(map(len, own)) < 15 * active[j]:
            continue
        mean, covariance = np.zeros((2, entries)), np.zeros((2, entries, entries))
        for r, x in enumerate(own):
            m, v = statistics_of(x)
            mean[r, : len(m)], covariance[r, : len(m), : len(m)] = m, v
        read.append(j)
        found.append(([len(x) for x in own], mean, covariance))
    P = len(read)
    sizes, means, covariances = zip(*found, strict=True) if found else ((), (), ())
    return (
        np.array(read, dtype=np.int64),
        np.array(sizes, dtype=np.float64).reshape(P, 2),
        np.array(means).reshape(P, 2, entries),
        np.array(covariances).reshape(P, 2, entries, entries),
    )
