"""The certificate of a fit of `PDGMM`: what the up-sets of its training rows show, if the model fits the data."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from identifiable.agreement.stability import Stability
from identifiable.arrays import Array, BoolArray, IntArray
from identifiable.distributions.mixture import Mixture
from identifiable.estimators.pdgmm.goodness import DRAWN, Goodness, distinguished, largest_auc
from identifiable.theory import Certificate, Check, Level, Verdict, certify
from identifiable.theory.certificate import Blocks, named
from identifiable.theory.partitions import blocks_of as blocks_from
from identifiable.theory.partitions import linked
from identifiable.theory.upsets import READING, UpSets
from identifiable.theory.upsets_reading import UpSetReading, read, rows_needed

THEOREM = "Theorem 3.9 (Xu et al. 2026)"
MIXING = "continuous, injective and piecewise affine"


@dataclass(frozen=True)
class Thresholds:
    """What decides a certificate, beside the thresholds of the theorems and of the reading."""

    error_level: float = 0.05  # of the whole certificate
    unexplained: float = 0.05  # share of rows that fit no pattern from which nothing is certified
    all_active: float = 0.1  # share of rows with all latents active that raises a doubt: more than misread patterns
    by_chance: float = 3.0  # times that share under independence that raises a doubt
    fewest_full_rank: int = 20  # held-out rows with all latents active that can show a component of full rank
    full_rank: float = 0.5  # rows with all latents active count from this share of the largest other pattern on
    flattest: float = 0.02  # sd below which a direction is degenerate under a full-rank mixture, where hardly any is


THRESHOLDS = Thresholds()

FULL_RANK = Check(
    name="full rank",
    statement="no other model describes the rows as well",
    statistic=None,
    threshold=None,
    verdict="inconclusive",
    sentence="In no row is a latent inactive. A flow can then describe rows of other models as well, and its restarts "
    "can agree on latents that are wrong even up to an affine map.",
)

NOT_GAUSSIAN = Check(
    name="gaussian",
    statement="the components are Gaussian",
    statistic=None,
    threshold=None,
    verdict="fails",
    sentence="Active latents are too skewed to be Gaussian: no theorem on Gaussian mixtures applies.",
)
NO_EVIDENCE = Check(
    name="rows",
    statement="two restarts were compared on the training rows",
    statistic=None,
    threshold=None,
    verdict="inconclusive",
    sentence="This model holds no counts of its training rows.",
    remedy="Fit it again with n_restarts=2 or more.",
)


@dataclass(frozen=True)
class Fit:
    """What a certificate is made from: the results of a fit.

    `evidence` is about the latents in `used` only; it is None, and so is `goodness`, after a single restart.
    """

    stability: Stability
    mixture: Mixture
    patterns: BoolArray
    used: tuple[int, ...]
    evidence: UpSets | None
    goodness: Goodness | None
    full_rank: bool
    skewed: bool
    projected: bool


def certificate_of(fit: Fit) -> Certificate:
    """Certify a learnt mixture where restarts agree and the model fits the data."""
    agree = fit.stability.check
    if fit.stability.status == "unchecked":
        return Certificate.nothing(replace(agree, remedy="Fit with n_restarts=2 or more to have a guarantee."))
    if agree.verdict == "fails":
        return Certificate.nothing(agree)
    if fit.skewed:
        return Certificate.nothing(agree, NOT_GAUSSIAN)
    if fit.goodness is None or (fit.evidence is None and not fit.full_rank):
        return Certificate.nothing(agree, NO_EVIDENCE)
    first = [agree, fit.goodness.check]
    if fit.goodness.check.verdict == "fails":
        return Certificate.nothing(*first)
    if fit.full_rank or fit.evidence is None:
        injective = None if fit.projected else True
        found = certify(fit.mixture, estimated=True, injective=injective, tolerance=THRESHOLDS.flattest)
        return lowered(replace(found, checks=(*first, FULL_RANK, *found.checks)))
    first += [mixing_check(projected=fit.projected)]
    first += [doubt] if (doubt := other_basis(fit.patterns, fit.mixture.weights)) else []
    return lowered(_from_up_sets(fit, fit.evidence, first))


def lowered(found: Certificate) -> Certificate:
    """Return the certificate without a level if a check that every level needs is inconclusive."""
    needed = ("agreement", "fit", FULL_RANK.name, "mixing", "one basis", "patterns")
    if all(check.verdict == "holds" for check in found.checks if check.name in needed):
        return found
    return Certificate.nothing(*found.checks, if_undecided_hold=found.if_undecided_hold)


def _from_up_sets(fit: Fit, evidence: UpSets, first: list[Check]) -> Certificate:
    """Return the certificate that the up-sets give if the checks in `first` hold."""
    used = np.array(fit.used)
    found = read(evidence, THRESHOLDS.error_level)
    checks = (*first, patterns_check(found, evidence), straight_check(found, evidence, used), varied_check(found))
    level = level_of(found)
    if found.unexplained > THRESHOLDS.unexplained:
        return Certificate.nothing(*checks)
    straight = tuple(int(i) for i in used[found.straight])
    pairs = tuple((int(used[i]), int(used[j])) for i, j in found.exchangeable)
    n = fit.patterns.shape[1]
    return Certificate(
        level=level,
        if_undecided_hold=Level.PS,
        theorem=THEOREM if level >= Level.PS_UNBENT else "Theorem 3.7 (Xu et al. 2026)" if level else "",
        checks=checks,
        blocks=blocks_of(level, fit.used, pairs),
        pure=blocks_of(level, fit.used, pairs),
        shift=np.zeros(n),
        basis=np.eye(n),
        estimated=True,
        meaning="every latent is recovered up to order, sign, scale and shift" if level == Level.PS else "",
        error_level=found.error_level,
        premises=premises(evidence),
        straight=straight,
        exchangeable=pairs if level == Level.PS_UNBENT else (),
    )


def level_of(found: UpSetReading) -> Level:
    """Return the level that follows from which latents are straight and whether all are varied."""
    if found.straight.all():
        return Level.PS if found.varied else Level.AT
    return Level.PS_UNBENT if found.varied else Level.NONE


def premises(evidence: UpSets) -> tuple[str, ...]:
    """Return what the up-sets cannot show."""
    return (
        f"x is a {MIXING} function of the latents",
        f"no pattern takes in more misread rows than {evidence.kappa:.1%} per latent plus {READING.region:.0%} of the "
        "largest pattern",
    )


def blocks_of(level: Level, used: tuple[int, ...], pairs: tuple[tuple[int, int], ...]) -> Blocks:
    """Return singletons, with the latents of pairs that may be exchanged in one block; one block for AT."""
    if level in (Level.AT, Level.NONE):
        return (used,) if level == Level.AT else ()
    links = np.zeros((len(used), len(used)), dtype=bool)
    for i, j in pairs:
        links[used.index(i), used.index(j)] = True
    return tuple(tuple(used[i] for i in block) for block in blocks_from(linked(links)))


def mixing_check(*, projected: bool) -> Check:
    """Judge whether the latents are a function of the columns that were fitted."""
    sentence = f"Given: x is a {MIXING} function of the latents."
    remedy = ""
    if projected:
        sentence = "The columns have more dimensions than there are latents. Assumed: projecting them is injective."
        remedy = "Pass as many columns as latents, of which is known that they determine the latents."
    verdict: Verdict = "inconclusive" if projected else "holds"
    return Check("mixing", "the fitted columns determine the latents", None, None, verdict, sentence, remedy)


def patterns_check(found: UpSetReading, evidence: UpSets) -> Check:
    """Judge whether the patterns that were found explain the rows."""
    share, most = found.unexplained, THRESHOLDS.unexplained
    return Check(
        name="patterns",
        statement="the patterns of activity that were found explain the rows",
        statistic=share,
        threshold=most,
        verdict="holds" if share <= most else "fails",
        sentence=f"{len(found.witnesses)} patterns of activity were found; {share:.1%} of the rows fit none of them "
        f"(at most {most:.0%}). A latent is clearly active beyond {evidence.tau:.2f} sd.",
    )


def straight_check(found: UpSetReading, evidence: UpSets, used: IntArray) -> Check:
    """Judge whether no decoder can exchange parts of latents (in place of 3.4)."""
    shown = [int(i) for i in used[found.straight]]
    sentence = f"{named('Latent', shown)}: no decoder that bends where they are inactive gives these patterns. "
    if not shown:
        sentence = "For no latent do these rows exclude a decoder that bends where it is inactive. "
    return Check(
        name="exchanges",
        statement="no decoder can exchange one side of a latent for one side of another (in place of 3.4)",
        statistic=float(found.p_values.max()),
        threshold=found.level,
        verdict="holds" if found.straight.all() else "inconclusive",
        sentence=f"{sentence}Largest p-value {found.p_values.max():.2g}, needed {found.level:.2g} per latent; up to "
        f"{evidence.kappa:.1%} misread rows per latent are allowed for.",
        remedy="" if found.straight.all() else more_rows(evidence, found),
    )


def more_rows(evidence: UpSets, found: UpSetReading) -> str:
    """Say how many more rows would exclude exchanges, if the shares of the patterns stay as they are."""
    rows = rows_needed(evidence, found)
    if rows is None:
        return "More rows alone would not exclude them: the patterns are too equally frequent."
    more = rows - evidence.rows
    digits = 10 ** max(0, len(str(int(more))) - 2)
    return f"About {round(more / digits) * digits:,.0f} more rows would distinguish the patterns by their frequencies."


def varied_check(found: UpSetReading) -> Check:
    """Judge whether every latent is sometimes active without any other one (3.8b)."""
    return Check(
        name="3.8",
        statement="for any two latents, each is active in some rows in which the other is not",
        statistic=None,
        threshold=None,
        verdict="holds" if found.varied else "inconclusive",
        sentence="Shown for all pairs of latents."
        if found.varied
        else "Not shown for all pairs of latents: some may be active whenever another one is.",
    )


def without_spurious(found: UpSets, *, full_rank: bool) -> UpSets:
    """Return the up-sets without those of all latents, unless a component of full rank explains these rows.

    Held-out rows must prefer it (`full_rank`), and it must be as frequent as patterns are: such a component alone
    proves that no decoder bends, and rows that the flow maps badly look like one.
    """
    every: BoolArray = np.array(found.sets.all(1))
    largest = found.counts[found.sets.any(1) & ~every].max(initial=0.0)
    if not every.any() or (full_rank and found.counts[every][0] >= THRESHOLDS.full_rank * largest):
        return found
    return found.without(every)


def prefer_full_rank(
    mixture: Mixture, patterns: BoolArray, held: Array, fit: tuple[float, float], rng: np.random.Generator
) -> bool:
    """Return whether a full-rank component explains the held-out rows (M, n) with all latents clearly active.

    `fit` is the width e and tau. The mean gain in log-likelihood over the best other component must exceed two of its
    standard errors, and the rows must look like samples of the component: rows that are sparse in another basis do not.
    """
    width, tau = fit
    rows, every = held[(np.abs(held) > tau).all(1)], np.flatnonzero(patterns.all(1))
    if len(rows) < THRESHOLDS.fewest_full_rank or not len(every):
        return False
    joint = mixture.log_joint(rows, floor=width)
    gain = joint[:, every].max(1) - np.delete(joint, every, 1).max(1, initial=-np.inf)
    if gain.mean() <= 2 * gain.std(ddof=1) / np.sqrt(len(rows)):
        return False
    samples = Mixture([1.0], mixture.means[every[:1]], mixture.covariances[every[:1]]).sample(DRAWN, rng)[0]
    samples = samples[(np.abs(samples) > tau).all(1)]
    return distinguished(rows, samples, rng) <= largest_auc(len(rows), len(samples))


def other_basis(patterns: NDArray[np.bool_], weights: Array) -> Check | None:
    """Return a doubt if all latents are active together far too often: such rows may be sparse in another basis.

    Only one basis is fitted. Rows that are sparse in another basis appear to have every latent active.
    """
    together, by_chance = float(weights @ patterns.all(1)), float(np.prod(weights @ patterns))
    if together < THRESHOLDS.all_active or together < THRESHOLDS.by_chance * by_chance:
        return None
    return Check(
        name="one basis",
        statement="all rows are sparse in one basis",
        statistic=together,
        threshold=THRESHOLDS.all_active,
        verdict="inconclusive",
        sentence=f"In {together:.0%} of the rows every latent is active, {by_chance:.0%} is expected by chance. These "
        "rows may be sparse in another basis, and then no basis is shared.",
    )
