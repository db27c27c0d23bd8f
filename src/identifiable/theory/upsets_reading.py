r"""Which latents no decoder can exchange, decided from up-sets: the straight ones.

Let all supports share a basis and a point, and let a decoder bend exactly where latent c becomes inactive. Then every
pattern A that contains c has a partner B = A - c + d: no pattern contains
A + d, B has the same weight, and the distributions on A and B agree up to the change of c into d. One pattern A without
a partner proves that c is straight, that is, that no decoder bends there. Each candidate d is tested by

    superset       more rows contain A + d than errors explain                                     Poisson
    weight         A has more than 1.5 times the rows that contain B, or B those that contain A     binomial
    distribution   m, V, |delta| of `upsets_gaussians` differ, for at most three active latents     normal

and a latent is straight if every candidate of some A is refuted. Up-sets have fewer rows than their patterns, by the
share in which an active latent is near zero: the factor 1.5 allows for different shares in A and B.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import stats
from scipy.special import gammaln

from identifiable.arrays import Array, BoolArray, IntArray
from identifiable.theory.upsets import READING, UpSets
from identifiable.theory.upsets_gaussians import (
    MapError,
    TruncatedGaussian,
    difference,
    equality,
    fit,
)

RATIO = 1.5  # of the shares in which the active latents of two patterns are seen to be active
TWICE = 2.0  # a witness has more than so many times the rows that strays explain
MOST_UNEXPLAINED = (
    0.03  # share of rows beyond 2 tau that are part of no witness, up to which distributions are compared,
)
MOST_UNEXPLAINED_OF_ONE = 0.05  # and of those that contain a pattern
STRAIGHT_SHARE = 0.8  # of the error level, for straight latents; the remainder is for varied ones
SETTLED = 1e-6  # candidates refuted at this level need no comparison of distributions
SMALL_P = 0.05  # p-values that enter the truncated product
TINY = 1e-300
MOST_ROWS = 100.0  # times the rows up to which it is said how many are needed


@dataclass(frozen=True, eq=False)
class UpSetReading:
    """What the up-sets of a fit show, at one family-wise error level.

    Attributes
    ----------
    straight : (n,) latents at which no decoder bends.
    p_values : (n,) of the hypothesis that a latent is not straight.
    exchangeable : pairs of latents that the tests did not exclude from being exchanged.
    varied : whether each latent is shown to be active in some rows in which any other one is not.
    witnesses : (W, n) up-sets that are patterns in themselves: strays explain less than half of their rows.
    unexplained : share of the rows that no witness explains: their latents beyond 2 tau are part of none.
    error_level : probability of a wrong entry in `straight` or `varied`, at most.
    level : p-value from which a latent counts as straight.
    """

    straight: BoolArray
    p_values: Array
    exchangeable: tuple[tuple[int, int], ...]
    varied: bool
    witnesses: BoolArray
    unexplained: float
    error_level: float
    level: float


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidate partners of witnesses, one per row (Q,). Pairs of a witness and a latent c in it are groups (H,).

    Attributes
    ----------
    group, d, p : (Q,) pair of the candidate, latent that takes the place of c, and p-value of being a partner.
    partner : (Q,) number of the up-set A - c + d, -1 where no row has it.
    witness, c, stray : (H,) number of the up-set A, latent c, and p-value of A being strays.
    """

    group: IntArray
    d: IntArray
    p: Array
    partner: IntArray
    witness: IntArray
    c: IntArray
    stray: Array

    def of_groups(self, excluded: BoolArray) -> Array:
        """Return the p-values (H,) of having a partner: the largest of the candidates left, or that of being strays.

        Latents in `excluded` (n,) are partners of none.
        """
        left = ~excluded[self.d]
        p = self.stray.copy()
        np.maximum.at(p, self.group[left], self.p[left])
        return np.clip(p, TINY, 1.0)


def read(evidence: UpSets, error_level: float = 0.05) -> UpSetReading:
    """Decide which latents are straight, and with a fifth of the error level whether all are varied."""
    patterns = Patterns(evidence)
    level = STRAIGHT_SHARE * error_level / evidence.n
    candidates = by_counts(patterns)
    straight, p = decide(candidates, evidence.n, level)
    if not straight.all() and patterns.comparable.any():
        candidates = by_distributions(candidates, patterns)
        straight, p = decide(candidates, evidence.n, level)
    all_varied = varied(patterns, (1 - STRAIGHT_SHARE) * error_level)
    if all_varied and straight.sum() == evidence.n - 1:  # the last one is active somewhere, and has no partner left
        p[~straight] = p[straight].max(initial=0.0)
        straight = np.ones_like(straight)
    return UpSetReading(
        straight=straight,
        p_values=p,
        exchangeable=exchangeable(candidates, straight, level),
        varied=all_varied,
        level=level,
        witnesses=evidence.sets[patterns.witnesses],
        unexplained=patterns.unexplained,
        error_level=error_level,
    )


@dataclass(frozen=True, eq=False)
class Patterns:
    """Up-sets, and which of them are patterns in themselves."""

    evidence: UpSets

    @cached_property
    def frequent(self) -> IntArray:
        """Up-sets with enough rows, as numbers."""
        return np.flatnonzero(self.evidence.counts >= READING.fewest_rows)

    @cached_property
    def stray(self) -> Array:
        """Rows of each up-set that strays explain (J,); infinite where it is not frequent."""
        found = np.full(len(self.evidence.sets), np.inf)
        found[self.frequent] = self.evidence.stray(self.evidence.sets[self.frequent])
        return found

    @cached_property
    def p_stray(self) -> Array:
        """The p-values (J,) of all rows of an up-set being strays; 1 where it is not frequent."""
        return stats.poisson.sf(self.evidence.counts - 1, self.stray)

    @cached_property
    def witnesses(self) -> IntArray:
        """Up-sets that are patterns in themselves, as numbers."""
        return self.frequent[self.evidence.counts[self.frequent] > TWICE * self.stray[self.frequent]]

    @cached_property
    def outside(self) -> BoolArray:
        """Which up-sets at 2 tau are part of no witness."""
        outer, found = self.evidence.outer_sets, np.ones(len(self.evidence.outer_sets), dtype=bool)
        for w in self.witnesses:
            found &= (outer & ~self.evidence.sets[w]).any(1)
        return found

    @cached_property
    def unexplained(self) -> float:
        """Share of the rows that at 2 tau are part of no witness, or of witnesses too rare to have so many rows.

        Small witnesses come first; each has as many rows as its count and the odds of hidden latents allow.
        """
        e = self.evidence
        left, size = e.outer_counts.copy(), e.outer_sets.sum(1)
        for w in self.witnesses[np.argsort(e.sets[self.witnesses].sum(1), kind="stable")]:
            within = np.flatnonzero(~(e.outer_sets & ~e.sets[w]).any(1))
            within = within[np.argsort(-size[within], kind="stable")]  # other witnesses can explain the smaller ones
            rows = e.counts[w] * np.prod(1 + e.odds[e.sets[w]])
            before = np.cumsum(left[within]) - left[within]
            left[within] -= np.clip(rows - before, 0, left[within])
        return float(left[size > 0].sum() / e.rows)

    @cached_property
    def contradicted(self) -> float:
        """Share of the rows that at 2 tau are part of no witness."""
        return float(self.evidence.outer_counts[self.outside].sum() / self.evidence.rows)

    @cached_property
    def comparable(self) -> BoolArray:
        """Up-sets (J,) whose distribution can be compared: few of the rows that contain them are unexplained."""
        found = np.zeros(len(self.evidence.sets), dtype=bool)
        if self.contradicted <= MOST_UNEXPLAINED:
            for j in self.frequent:
                counts = self.evidence.outer_counts * (self.evidence.outer_sets >= self.evidence.sets[j]).all(1)
                found[j] = counts[self.outside].sum() <= MOST_UNEXPLAINED_OF_ONE * counts.sum()
        return found

    @cached_property
    def fits(self) -> dict[int, list[TruncatedGaussian | None]]:
        """Gaussians fitted to the rows of up-sets, given by number, in each restart."""
        e, cut, found = self.evidence, READING.cut * self.evidence.tau, {}
        for place, j in enumerate(e.read):
            r = int(e.sets[j].sum())
            p = r * (r + 3) // 2
            found[int(j)] = [
                fit(e.means[place, s, :p], e.covariances[place, s, :p, :p], e.sizes[place, s], cut) for s in (0, 1)
            ]
        return found

    def invariants(self, number: int, latent: int) -> list[tuple[Array, Array]] | None:
        """Return the invariants of an up-set for one of its latents, and their variances, in each restart."""
        fits = self.fits.get(number, [None])
        place = int(self.evidence.sets[number, :latent].sum())
        found = [one.invariants(place) for one in fits if one is not None]
        return found if len(found) == len(fits) else None


def by_counts(patterns: Patterns) -> Candidates:
    """Return all candidate partners of the witnesses, tested by superset and weight."""
    e, sets = patterns.evidence, patterns.evidence.sets
    pairs = [(w, c) for w in patterns.witnesses for c in np.flatnonzero(sets[w])]
    rows = [(g, w, c, d) for g, (w, c) in enumerate(pairs) for d in np.flatnonzero(~sets[w])]
    group, witness, c, d = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    q = np.arange(len(rows))
    both = sets[witness]
    both[q, d] = True
    partner = both.copy()
    partner[q, c] = False
    number = e.numbers_of(partner)
    superset = stats.poisson.sf(e.containing(both) - 1, e.misread(both))
    weight = heavier(e.counts[witness], patterns.stray[witness], e.containing(partner))
    known = number >= 0
    known[known] = e.counts[number[known]] >= READING.fewest_rows
    back = heavier(e.counts[number[known]], patterns.stray[number[known]], e.containing(sets)[witness[known]])
    weight[known] = np.minimum(1.0, 2 * np.minimum(weight[known], back))
    of_witness, of_c = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    stray = np.maximum(patterns.p_stray[of_witness], TINY)
    p = np.maximum(stray[group], np.minimum(1.0, 3 * np.minimum(superset, weight)))
    return Candidates(group, d, p, number, of_witness, of_c, stray)


def by_distributions(candidates: Candidates, patterns: Patterns) -> Candidates:
    """Return the candidates tested by distribution as well, where that can be done and may be needed."""
    p, found = candidates.p.copy(), {}
    for q in np.flatnonzero(candidates.partner >= 0).tolist():
        g = candidates.group[q]
        first = patterns.invariants(int(candidates.witness[g]), int(candidates.c[g]))
        second = patterns.invariants(int(candidates.partner[q]), int(candidates.d[q]))
        if first is not None and second is not None:
            found[q] = list(zip(first, second, strict=True))
    is_witness = np.isin(candidates.partner, patterns.witnesses)
    once = is_witness & (candidates.partner > candidates.witness[candidates.group])
    extra = MapError.between([_disagreement(pairs) for q, pairs in found.items() if once[q]])
    for q, pairs in found.items():
        g = candidates.group[q]
        allowed = patterns.comparable[candidates.witness[g]] and patterns.comparable[candidates.partner[q]]
        if allowed and p[q] > 3 * SETTLED:
            p[q] = max(candidates.stray[g], min(p[q], 3 * equality(pairs, extra)))
    return replace(candidates, p=p)


def _disagreement(pairs: list[tuple[tuple[Array, Array], tuple[Array, Array]]]) -> Array:
    """Return how far two restarts disagree on the difference between two patterns."""
    one, other = (difference(a, b) for (a, _), (b, _) in pairs)
    return one - other


def varied(patterns: Patterns, level: float) -> bool:
    """Return whether every latent is shown to be active in rows in which any other one is not (3.8b).

    Half of the level goes to counts of rows with i and without k that latents near zero do not explain, half to the
    witnesses that contain i and not k.
    """
    e = patterns.evidence
    far = e.sets.astype(float)
    apart = far.T @ (e.counts[:, None] * (1 - far))
    explained = (far.T @ (e.counts[:, None] * far)) * e.odds + e.kappa * (e.counts @ (1 - far))
    shown = stats.poisson.sf(apart - 1, explained) <= level / 2 / e.n**2
    for w in patterns.witnesses:
        if patterns.p_stray[w] <= level / 2 / len(patterns.frequent):
            shown |= e.sets[w][:, None] & ~e.sets[w]
    return bool(shown[~np.eye(e.n, dtype=bool)].all())


def rows_needed(evidence: UpSets, found: UpSetReading) -> float | None:
    """Return the number of rows at which superset and weight would show every latent to be straight; None for never.

    It is the least at which the tests refute on the counts expected at the present shares: half of all data sets of
    that size do.
    """
    for factor in MOST_ROWS ** np.linspace(0, 1, 25)[1:]:
        candidates = by_counts(Patterns(evidence.with_rows(factor)))
        if decide(candidates, evidence.n, found.level, found.straight)[0].sum() >= evidence.n - 1:
            return float(factor * evidence.rows)
    return None


def decide(candidates: Candidates, n: int, level: float, known: BoolArray | None = None) -> tuple[BoolArray, Array]:
    """Return which latents (n,) are straight, and their p-values, each at this level; some may be known to be.

    Partners of a latent that is not straight are not straight: those proved straight drop out.
    """
    straight, p = np.zeros(n, dtype=bool) if known is None else known, np.ones(n)
    while True:
        of_groups = candidates.of_groups(straight)
        for c in np.flatnonzero(~straight):
            own = of_groups[candidates.c == c]
            p[c] = min(1.0, 2 * min(len(own) * own.min(), truncated_product(own))) if len(own) else 1.0
        found = straight | (p <= level)
        if (found == straight).all():
            return straight, p
        straight = found


def exchangeable(candidates: Candidates, straight: BoolArray, level: float) -> tuple[tuple[int, int], ...]:
    """Return the pairs of latents, neither straight, of which some pattern does not exclude an exchange."""
    n, c = len(straight), candidates.c[candidates.group]
    open_pairs = np.zeros((n, n), dtype=bool)
    left = candidates.p > level
    open_pairs[c[left], candidates.d[left]] = True
    both = ~straight[:, None] & ~straight[None] & ~np.eye(n, dtype=bool)
    open_pairs &= both
    open_pairs |= ~open_pairs.any(1, keepdims=True) & both  # in no witness, or refuted one by one but not together
    return tuple((int(i), int(j)) for i, j in np.argwhere(np.triu(open_pairs | open_pairs.T, 1)))


def heavier(rows: Array, lost: Array, other: Array) -> Array:
    """Return the p-values (Q,) of E rows <= RATIO E other + lost, from counts.

    A union bound: either more strays than lost + s are among the rows, or the remaining ones are too many.
    """
    best = np.ones(len(rows))
    for s in range(1, 8):
        margin = s * np.sqrt(lost) + 1
        left = np.floor(rows - lost - margin)
        p = stats.poisson.sf(np.floor(lost + margin), lost)
        p = p + stats.binom.sf(left - 1, left + np.ceil(other), RATIO / (1 + RATIO))
        best = np.where(left > 0, np.minimum(best, p), best)
    return best


def truncated_product(p: Array, below: float = SMALL_P) -> float:
    """Return the p-value of the product of those p (L,) that are small (Zaykin et al. 2002), if independent.

    Examples
    --------
    >>> round(truncated_product(np.array([0.01, 0.5])), 4)
    0.0215
    """
    small = p[p <= below]
    if not len(small):
        return 1.0
    count, log_w, total = len(p), float(np.log(small).sum()), 0.0
    for k in range(1, count + 1):
        a = k * np.log(below) - log_w
        if a < 0:
            inner = k * np.log(below)
        else:
            s = np.arange(k)
            terms = s * np.log(a) - gammaln(s + 1) if a > 0 else np.where(s == 0, 0.0, -np.inf)
            inner = log_w + np.logaddexp.reduce(terms)
        binomial = gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1)
        total += float(np.exp(binomial + (count - k) * np.log1p(-below) + inner))
    return min(1.0, total)
