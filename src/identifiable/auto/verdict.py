"""Which model is selected and what is said of each latent: rules on likelihoods and agreements, without any fitting.

1. A single Gaussian has no axes. If no model explains held-out rows better, nothing can be identified.
2. Linear models come first: where most latents are exactly inactive in many rows, which no other mixing produces by
   accident, or where no nonlinear model explains held-out rows better.
3. Among nonlinear models the higher held-out log-likelihood wins, or the simpler of two models that are close.
   Inactive latents have densities without a bound, so a model with inactive latents whose restarts agree counts as
   close within a wider margin. A model whose own restarts disagree counts only if those of all others disagree too.
4. The selected model is refitted: from other seeds, and to two halves of the rows. A latent is judged by its lowest
   agreement with these refits and with alternative models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from identifiable.agreement.stability import judge
from identifiable.arrays import Array, FloatArray
from identifiable.auto.families import NAMES
from identifiable.errors import FitFailedError, join_few

LATE = "not enough time to train it"
RESAMPLES = 200  # of the held-out rows, to see which model would be selected then


@dataclass(frozen=True)
class Rules:
    """Thresholds of the selection, set on simulated tables and checked on other samples (docs/fit.md)."""

    # A gain over a single Gaussian counts from this many standard errors and nats per row. Of Gaussian noise nothing
    # was called identifiable in nine samples of nine.
    standard_errors: float = 3.0
    least_gain: float = 0.02
    # Nonlinear models whose gains differ by less than this share count as equal. Chosen by reasoning.
    close: float = 0.05
    # The same for PDGMM with stable restarts: the density of inactive latents has no bound, so narrower components
    # gain likelihood without being right. On samples of a pdGMM, GMMFlow was ahead by up to a tenth.
    close_inactive: float = 0.25
    # Agreement of restarts below which the latents depend on the seed. Lowered from 0.9 after four runs on Sachs, where
    # restarts of IFlow agree at 0.87 to 0.91.
    least_agreement: float = 0.8
    # A model that is selected for a smaller share of resampled held-out rows is no alternative. Chosen by reasoning.
    least_chance: float = 0.1
    # Number of latents: variances fall to the level of noise by this factor, if those of the noise differ by no more
    # than the second one, or by the third factor if noise has one direction only. Chosen by reasoning.
    noise_gap: float = 10.0
    noise_ratio: float = 5.0
    wide_gap: float = 1000.0
    # A fall after more components does not separate latents from noise, but pixels that few rows use from others.
    deepest_gap: int = 40
    # Without a fall, up to so many columns each may stand for a latent. With more, linear methods look for 2, 3, ...
    # latents in halves of the rows, and stop after so many numbers in a row at which the halves disagree.
    most_latents: int = 12
    misses: int = 2
    # Keypoints of images are selected if so many times as many principal components as coordinates are needed to
    # reconstruct held-out images as well, and if at most this share of the variance is left. Ratios measured before
    # they were set: a moving dot above 100, two balls above 15, digits 0.6, MNIST 0.9 (docs/images.md).
    component_ratio: float = 3.0
    most_unexplained: float = 0.75


RULES = Rules()


@dataclass(frozen=True)
class Candidate:
    """A model that was tried.

    Attributes
    ----------
    name, says : the model, and the structure that it assumes.
    linear, given_u : whether its mixing is affine; whether it was given u.
    gain, error : mean log-likelihood of held-out rows above that of a Gaussian with as many latents, in nats per row,
        and its standard error.
    agreement : of its restarts on held-out rows; NaN if nothing about it is random.
    seconds : time it took.
    note : why it does not count; "" if it does.
    steps : training steps, by name of the parameter; they depend on the time budget. Empty for linear models.
    """

    name: str
    says: str
    linear: bool
    given_u: bool
    gain: float = np.nan
    error: float = np.nan
    agreement: float = np.nan
    seconds: float = 0.0
    note: str = ""
    steps: Mapping[str, int] = field(default_factory=dict)

    def on(self, gain: FloatArray) -> "Candidate":
        """Return the same candidate with the gains of these rows."""
        return replace(self, gain=float(gain.mean()), error=float(gain.std() / len(gain) ** 0.5))


@dataclass(frozen=True)
class LatentReport:
    """Reliability of one latent.

    Attributes
    ----------
    verdict : "stable", "doubtful" or "unstable": whether it is reproducible, by the lowest of the next three.
    seed_agreement : |correlation| with the matched latent in refits from other seeds, on held-out rows. Linear models:
        the mean of six refits to all training rows. Trained models: one refit to 80 % of the training rows.
    split_half_agreement : the lower |correlation| with the matched latents of two fits to disjoint halves of the rows,
        on rows held out from both. Linear models: the mean over three splits. Each fit computes its own components.
    alternative_agreement : mean |correlation| with the matched latents of alternative models; NaN without one.
    inactive_share : share of rows in which the latent is inactive; NaN for models without inactive latents.
    block : latents it is known together with only, itself among them.
    columns : its effect on each column, in standard deviations of the column, of moving it from its lower to its upper
        decile, by name, strongest first. Empty for keypoints of images.
    meaning : what it is by the architecture of the model, such as "x of thing 1"; "" if the architecture does not say.
    """

    verdict: str
    seed_agreement: float
    split_half_agreement: float
    alternative_agreement: float
    inactive_share: float
    block: tuple[int, ...]
    columns: Mapping[str, float] = field(default_factory=dict)
    meaning: str = ""


@dataclass(frozen=True)
class Pick:
    """The chosen model, the best whose restarts agree, the best of all, and those that are close to the best."""

    chosen: Candidate
    best: Candidate
    top: Candidate
    close: tuple[Candidate, ...] = ()


@dataclass(frozen=True)
class Selection:
    """The selected model, and why.

    Attributes
    ----------
    name : of the model.
    reasons : a sentence each.
    identifiable : False if no model explains the rows better than a Gaussian.
    alternatives : how often each other model would be selected if other rows had been held out, without rare ones.
    """

    name: str
    reasons: tuple[str, ...]
    identifiable: bool = True
    alternatives: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """The verdict on each latent and on the fit ("identified", "doubtful" or "nothing identifiable"), and why.

    For keypoints of images, "reproducible" takes the place of "identified", as no theorem is used.
    """

    latents: tuple[LatentReport, ...]
    fit: str
    reason: str


def is_exact(inactive: int, n: int) -> bool:
    """Return whether most of n latents are exactly inactive in many rows, which only an affine mixing produces."""
    return 2 * inactive > n


def choose(
    candidates: Sequence[Candidate], gains: Mapping[str, FloatArray], *, inactive: int, n: int, seed: int
) -> Selection:
    """Select a model by the rules at the head of this module.

    Parameters
    ----------
    candidates : all models that were tried.
    gains : (H,) gain of each held-out row, by name of the model.
    inactive : number of latents that `SparseUnmixing` found exactly inactive in many rows.
    n, seed : number of latents; seed of the resampling.
    """
    valid = [c for c in candidates if np.isfinite(c.gain)]
    if not valid:
        notes = join_few([f"{c.name}: {c.note}" for c in candidates], "; ")
        raise FitFailedError(f"No model could be fitted. {notes}.")
    found = pick(valid, gains)
    if found is None:
        top = max(valid, key=lambda c: c.gain)
        reason = (
            "Nothing identifiable: no model explains held-out rows better than a single Gaussian, which has no axes of "
            f"its own. The best, {top.name}, gains {top.gain:+.3f} ± {top.error:.3f} nats per row."
        )
        return Selection(top.name, (reason,), identifiable=False)
    if is_exact(inactive, n):
        reason = (
            f"Selected model: SparseUnmixing. {inactive} of {n} latents are exactly inactive in many rows. Affine "
            "mixtures produce this and nonlinear ones do not, so no nonlinear model was tried."
        )
        return Selection("SparseUnmixing", (reason,))
    chosen = found.chosen.name
    chances = selection_chances(chosen, valid, gains, seed)
    likely = {name: chance for name, chance in chances.items() if name != chosen and chance >= RULES.least_chance}
    late = ", ".join(c.name for c in candidates if c.note == LATE)
    skipped = f"Skipped for lack of time: {late}. Increase the time budget to include it." if late else ""
    return Selection(chosen, tuple(filter(None, (skipped, *_why(found)))), alternatives=likely)


def pick(valid: Sequence[Candidate], gains: Mapping[str, FloatArray]) -> Pick | None:
    """Pick a model by gain, agreement and simplicity; None if none explains the rows better than a Gaussian."""
    informative = [c for c in valid if c.gain > max(RULES.standard_errors * c.error, RULES.least_gain)]
    if not informative:
        return None
    top = max(informative, key=lambda c: c.gain)
    sure = [c for c in informative if not c.agreement < RULES.least_agreement] or informative
    best = max(sure, key=lambda c: c.gain)

    def explains_as_well(one: Candidate) -> bool:
        less = gains[best.name] - gains[one.name]
        return bool(less.mean() <= max(less.std() / len(less) ** 0.5, RULES.least_gain))

    linear = [c for c in sure if c.linear]
    as_well = [c for c in linear if explains_as_well(c)]
    least = max((c.gain for c in linear), default=-np.inf)  # a nonlinear model must be better
    close = [c for c in sure if c.linear == best.linear and c.gain >= max((1 - margin(c)) * best.gain, least)]
    chosen = max(as_well, key=lambda c: c.gain) if as_well else min(close, key=lambda c: NAMES.index(c.name))
    return Pick(chosen, best, top, tuple(close))


def margin(candidate: Candidate) -> float:
    """Return the share of the best gain within which a model counts as equal."""
    inactive = candidate.name == "PDGMM" and judge(candidate.agreement) == "stable"
    return RULES.close_inactive if inactive else RULES.close


def selection_chances(
    chosen: str, valid: Sequence[Candidate], gains: Mapping[str, FloatArray], seed: int
) -> dict[str, float]:
    """Return how often each model would be picked if other rows had been held out: rows are resampled."""
    rng, counts = np.random.default_rng(seed), dict.fromkeys(gains, 0)
    size = len(next(iter(gains.values())))
    for _ in range(RESAMPLES):
        rows = rng.integers(size, size=size)
        resampled = {name: gain[rows] for name, gain in gains.items()}
        found = pick([c.on(resampled[c.name]) for c in valid], resampled)
        counts[chosen if found is None else found.chosen.name] += 1
    return {name: count / RESAMPLES for name, count in counts.items() if count}


def judge_latents(seeds: Array, halves: Array, alternatives: Array, *, identifiable: bool = True) -> Verdict:
    """Judge latents by their agreements (n,) with refits from other seeds and to halves, and with alternative models.

    NaN in `seeds` or `halves` means that no refit ended: the latent is not confirmed. NaN in `alternatives` means that
    there is no alternative model.
    """
    lowest = np.fmin(np.minimum(seeds, halves), alternatives)
    confirmed = identifiable & ~np.isnan(seeds + halves)
    verdicts = [judge(low) if sure else "unstable" for low, sure in zip(lowest, confirmed, strict=True)]
    numbers = zip(verdicts, seeds.tolist(), halves.tolist(), alternatives.tolist(), strict=True)
    latents = tuple(LatentReport(*each, inactive_share=np.nan, block=(i,)) for i, each in enumerate(numbers))
    stable, n = verdicts.count("stable"), len(verdicts)
    if not identifiable:
        return Verdict(latents, "nothing identifiable", "")
    if stable < n:
        return Verdict(latents, "doubtful", f"{stable} of {n} latents are reproducible in other fits.")
    reason = f"All {n} latents are reproducible, from other seeds and from each half of the rows."
    return Verdict(latents, "identified", reason)


def _why(found: Pick) -> tuple[str, str]:
    chosen, best, top = found.chosen, found.best, found.top
    unreliable = ""
    if best is not top:
        unreliable = (
            f"{top.name} explains held-out rows best ({top.gain:+.2f} nats per row above a Gaussian), but its restarts "
            f"agree at {top.agreement:.2f} only."
        )
    words = (
        f"Selected model: {chosen.name}, {chosen.says}. It explains held-out rows better than a single Gaussian by "
        f"{chosen.gain:+.2f} nats per row"
    )
    close = join_few([f"{c.name} {c.gain:+.2f}" for c in found.close if c is not chosen])
    if chosen.linear and not best.linear:
        why = f". The best nonlinear model, {best.name}, is hardly better ({best.gain:+.2f})."
    elif not close:
        why = ", the most of all models whose restarts agree."
    elif chosen.name == "PDGMM":
        why = (
            f". Close to it: {close}. With inactive latents the density is unbounded, so small differences in "
            "likelihood are not informative."
        )
    else:
        why = f". Close to it: {close}. The simpler model is selected."
    return unreliable, words + why
