r"""Tests of whether rows exclude that two latents are exchanged, and how many rows would (`straightness`, theorem 2).

If c and d can be exchanged, they are never active together, and every pattern with c has a counterpart with d in its
place. A row of either is then as likely to be of the one as of the other, and z has the same distribution in both, but
for the unit and the sign of z_c. Excluded is a pair

    with a row in which both are active: no test is needed where latents are exactly 0 when inactive;
    with patterns of unequal frequency: exact binomial tests, per pattern and of all rows;
    with other means, standard deviations and correlations: normal scores whose standard errors take the third and
    fourth moments of the rows into account, and are no smaller than those of Gaussians.

The p-value of a pair is twice the smaller one of the last two, each by Bonferroni. One true exchange per latent has to
survive, so a pair is excluded at level alpha / n, and alpha / 2n leaves half of alpha for theorem 1, which compares
frequencies only, at alpha / 2 over all latents of all patterns.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy import stats

from identifiable.arrays import Array, BoolArray, IntArray
from identifiable.theory.straightness import Pair, never_together, swapped, without_partner

FEWEST = 30  # rows of a pattern whose moments are compared: standard errors of fourth moments need about so many
UNCLEAR = 0.2  # corrected p-values above it are no sign of a difference, from which to say how many rows show it
COUNTED = 8  # rows of a pattern and its counterpart below which no split of them is unlikely: 2^-7


class Score(NamedTuple):
    """The smallest of several p-values, and how many there are."""

    p: float = 1.0
    comparisons: int = 0

    @property
    def corrected(self) -> float:
        """The p-value by Bonferroni."""
        return min(1.0, self.p * self.comparisons) if self.comparisons else 1.0

    def factor(self, level: float) -> float:
        """Return how many times as many rows would bring the p-value to a level, if what differs stays as it is."""
        if self.corrected >= UNCLEAR:
            return np.inf
        needed, observed = (stats.norm.isf(p / 2) for p in (level / self.comparisons, max(self.p, 1e-300)))
        return max(1.0, float((needed / observed) ** 2))


class Moments(NamedTuple):
    """Estimates of one pattern and their variances, by latent: nan where it is inactive."""

    mean: tuple[Array, Array]
    log_sd: tuple[Array, Array]
    delta: tuple[Array, Array]  # mean / sd
    correlation: tuple[Array, Array]  # (n, n), by Fisher's transformation


@dataclass(frozen=True, eq=False)
class CountedPatterns:
    """Patterns (J, n), their numbers of rows (J,), and the rows of z where they are known."""

    masks: BoolArray
    counts: IntArray
    z: Array | None = None
    label: IntArray | None = None
    _moments: dict[int, Moments] = field(default_factory=dict)

    @classmethod
    def of(cls, z: Array, active: BoolArray) -> "CountedPatterns":
        """Read the patterns of rows."""
        packed = np.packbits(active, axis=1)
        _, first, label, counts = np.unique(packed, axis=0, return_index=True, return_inverse=True, return_counts=True)
        return cls(active[first], counts, z, label.ravel())

    def possible_pairs(self, alpha: float) -> dict[Pair, float]:
        """Return the pairs that the rows do not exclude, each with the factor by which rows are too few."""
        level = alpha / (2 * self.masks.shape[1])
        found = {}
        for pair in never_together(self.masks):
            scores = [self.frequencies(*pair)]
            if 2 * scores[0].corrected > level and self.z is not None:
                scores.append(self.distributions(*pair))
            if 2 * min(score.corrected for score in scores) > level:
                found[pair] = min(score.factor(level / 2) for score in scores)
        return found

    def straight_by_frequency(self, alpha: float) -> BoolArray:
        """Return the latents (n,) that theorem 1 shows to be straight, by the frequencies of patterns."""
        level = alpha / (2 * max(1, self.masks[self.counts >= COUNTED].sum()))
        counterparts: dict[Pair, dict[int, int]] = {}

        def excluded(j: int, c: int, d: int) -> bool:
            if (c, d) not in counterparts:
                own, others = swapped(self.masks, c, d)
                counterparts[c, d] = dict(zip(own.tolist(), others.tolist(), strict=True))
            i = counterparts[c, d][j]
            counts = self.counts[[j]], self.counts[[i]] if i >= 0 else np.zeros(1, dtype=int)
            return bool(_binomial(*counts)[0] <= level)

        return without_partner(self.masks, excluded)

    def frequencies(self, c: int, d: int) -> Score:
        """Compare the frequencies of the patterns with c with those of their counterparts with d."""
        own, others = swapped(self.masks, c, d)
        alone = np.setdiff1d(np.flatnonzero(self.masks[:, d]), others)  # of which no counterpart has c
        a = np.append(self.counts[own], np.zeros(len(alone), dtype=int))
        b = np.append(np.where(others < 0, 0, self.counts[others]), self.counts[alone])
        seen = a + b >= COUNTED
        if not seen.any():
            return Score()
        a, b = (np.append(x[seen], x.sum()) if len(x) > 1 else x for x in (a, b))
        return Score(float(_binomial(a, b).min()), len(a))

    def distributions(self, c: int, d: int) -> Score:
        """Compare the distributions of z in the patterns with c and in their counterparts with d, up to its unit."""
        own, others = swapped(self.masks, c, d)
        enough = (others >= 0) & (self.counts[own] >= FEWEST) & (self.counts[others] >= FEWEST)
        plain, signed = [], []
        for j, i in zip(own[enough].tolist(), others[enough].tolist(), strict=True):
            K = np.flatnonzero(self.masks[j] & self.masks[i])
            first, second = self.moments(j), self.moments(i)
            rows = min(self.counts[j], self.counts[i])
            above = np.triu_indices(len(K), 1)
            for a, b in zip(first, second, strict=True):
                if a[0].ndim == 1 and a is not first.delta:
                    plain.append(_p_equal(a[0][K], a[1][K], b[0][K], b[1][K], rows))
            (r, v), (s, w) = first.correlation, second.correlation
            inside = np.ix_(K, K)
            plain.append(_p_equal(r[inside][above], v[inside][above], s[inside][above], w[inside][above], rows))
            ours = [np.append(x[K, c], y[c]) for x, y in zip(first.correlation, first.delta, strict=True)]
            theirs = [np.append(x[K, d], y[d]) for x, y in zip(second.correlation, second.delta, strict=True)]
            signed.append([_p_equal(ours[0], ours[1], sign * theirs[0], theirs[1], rows) for sign in (1, -1)])
        if not signed:
            return Score()
        equal = np.concatenate(plain)
        best = max(min(p[k].min() for p in signed) for k in (0, 1))
        return Score(float(min(equal.min(initial=1), best)), len(equal) + sum(len(p[0]) for p in signed))

    def moments(self, j: int) -> Moments:
        """Return the moments of pattern j with their variances."""
        if j not in self._moments:
            assert self.z is not None
            self._moments[j] = _moments(self.z[self.label == j], np.flatnonzero(self.masks[j]))
        return self._moments[j]


def _binomial(a: IntArray, b: IntArray) -> Array:
    """Return two-sided p-values of equal frequencies."""
    return np.minimum(1.0, 2 * stats.binom.cdf(np.minimum(a, b), a + b, 0.5))


def _p_equal(a: Array, var_a: Array, b: Array, var_b: Array, rows: int) -> Array:
    """Return two-sided p-values of equal estimates."""
    return np.asarray(2 * stats.t.sf(np.abs(a - b) / np.sqrt(var_a + var_b), rows - 2))


def _moments(rows: Array, active: IntArray) -> Moments:
    """Estimate the moments of one pattern, and their variances by the influence of each row."""
    N, n = rows.shape
    x = rows[:, active]
    mean, sd = x.mean(0), x.std(0, ddof=1)
    x = (x - mean) / sd
    skewness, kurtosis = (x**3).mean(0), np.maximum((x**4).mean(0), 3.0)
    delta = mean / sd
    squares = x**2
    r = np.clip(x.T @ x / (N - 1), -1 + 1e-12, 1 - 1e-12)
    # influence on r: x y - r (x² + y²) / 2; its mean square, over (1 - r²)²
    m22, m31 = squares.T @ squares / N, x.T**3 @ x / N
    m4 = np.diag(m22)
    influence = m22 - r * (m31 + m31.T) + r**2 / 4 * (m4[:, None] + m4 + 2 * m22)

    def everywhere(values: Array) -> Array:
        full = np.full((n,) * values.ndim, np.nan)
        full[np.ix_(*[active] * values.ndim)] = values
        return full

    return Moments(
        mean=(everywhere(mean), everywhere(sd**2 / N)),
        log_sd=(everywhere(np.log(sd)), everywhere((kurtosis - 1) / 4 / (N - 3))),
        delta=(everywhere(delta), everywhere(_variance_of_delta(delta, skewness, kurtosis) / (N - 3))),
        correlation=(everywhere(np.arctanh(r)), everywhere(np.maximum(influence / (1 - r**2) ** 2, 1.0) / (N - 3))),
    )


def _variance_of_delta(delta: Array, skewness: Array, kurtosis: Array) -> Array:
    return np.maximum(1 + delta**2 / 2, 1 - delta * skewness + delta**2 * (kurtosis - 1) / 4)
