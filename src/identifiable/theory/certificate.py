"""The result of `certify`: levels of identifiability, checks of assumptions, and the certificate that holds both."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple

import numpy as np

from identifiable.arrays import Array
from identifiable.errors import join_few
from identifiable.theory.thresholds import THRESHOLDS

Verdict = Literal["holds", "fails", "inconclusive"]
Blocks = tuple[tuple[int, ...], ...]


class Level(IntEnum):
    """How far latents are identified, from weakest to strongest: none < ATwC < AT < blocks < PS unless bent < PS.

    PS_UNBENT is PS unless the decoder bends exactly where certain pairs of latents become inactive.

    Examples
    --------
    >>> print(Level.ATWC, Level.ATWC < Level.BLOCKS)
    ATwC True
    """

    NONE = 0
    ATWC = 1
    AT = 2
    BLOCKS = 3
    PS_UNBENT = 4
    PS = 5

    def __str__(self) -> str:
        return ("none", "ATwC", "AT", "blocks", "PS unless bent", "PS")[self]


ESTIMATED = (
    "The distribution of the latents was estimated: the verdicts are about the estimate, not about the process that "
    "generated the data."
)
_MEANING = {
    Level.NONE: "no theorem used here guarantees that the latents can be recovered",
    Level.ATWC: "within each component the latents are recovered up to an affine map, which may differ between "
    "components",
    Level.AT: "the latents are recovered up to one affine map of all of them; single latents are not separated",
    Level.BLOCKS: "the sparsest representation recovers groups of latents, not always single latents within a group",
    Level.PS_UNBENT: "every latent is recovered up to order, sign, scale and shift, unless the decoder bends exactly "
    "where latents become inactive",
    Level.PS: "the sparsest representation recovers every latent up to order, sign, scale and shift",
}


@dataclass(frozen=True)
class Check:
    """One assumption: its statement, the statistic, its threshold, the verdict, and the verdict in words.

    `statistic` and `threshold` are None where nothing was measured. `remedy` says what would change the verdict, such
    as how many more rows; "" where nothing is known.
    """

    name: str
    statement: str
    statistic: float | None
    threshold: float | None
    verdict: Verdict
    sentence: str
    remedy: str = ""


class Finding(NamedTuple):
    """The verdict on an assumption, in words, with the statistic and its threshold."""

    verdict: Verdict
    sentence: str
    statistic: float | None = None
    threshold: float | None = None

    def check(self, name: str, statement: str) -> Check:
        """Return the check of this assumption."""
        return Check(name, statement, self.statistic, self.threshold, self.verdict, self.sentence)


@dataclass(frozen=True, eq=False)
class Certificate:
    """What is identified, by which theorem, and the checks behind it.

    Attributes
    ----------
    level : the level that follows from the checks that hold. An assumption about the mixing or decoder that is neither
        given nor shown is inconclusive, so it lowers the level.
    if_undecided_hold : the level that would follow if every inconclusive check held; equal to `level` if none is.
    theorem : the theorem that gives `level`, "" for none.
    checks : one per assumption.
    blocks : groups of latents, as columns of `basis`, each recovered free of the other groups. Singletons for PS, one
        group for AT, none below. Latents that never vary are in no block.
    pure : parts of the blocks that are recovered free of all other latents; differs from `blocks` only where some
        latents are active whenever others are.
    shift : a point t in the support of every component (n,), None where there is none; for latents given u, the point
        where T is least.
    basis : the basis shared by all supports, as columns (n, n); the identity where it is the standard one, None where
        there is none. Supports are t + span of some columns; the identified latents are basis^-1 (z - t).
    estimated : whether the distribution of the latents was estimated.
    meaning : what `level` means here, in words; "" for the usual words.
    error_level : probability that any test behind `level` is wrong, at most; None where nothing was tested.
    premises : statements that `level` depends on and that no data can show.
    straight : latents shown to enter x without a bend where they become inactive.
    exchangeable : pairs of latents that the tests did not exclude from being exchanged by a decoder that bends where
        they become inactive. Only for PS_UNBENT.
    """

    level: Level
    if_undecided_hold: Level
    theorem: str
    checks: tuple[Check, ...]
    blocks: Blocks
    pure: Blocks
    shift: Array | None
    basis: Array | None
    estimated: bool
    meaning: str = ""
    error_level: float | None = None
    premises: tuple[str, ...] = ()
    straight: tuple[int, ...] = ()
    exchangeable: tuple[tuple[int, int], ...] = ()

    @classmethod
    def nothing(cls, *checks: Check, if_undecided_hold: Level = Level.NONE) -> "Certificate":
        """Return the certificate of a fit for which these checks guarantee nothing."""
        return cls(Level.NONE, if_undecided_hold, "", checks, (), (), None, None, True)

    def __getitem__(self, name: str) -> Check:
        """Return the check of this name."""
        return next(check for check in self.checks if check.name == name)

    @property
    def standard(self) -> bool:
        """Whether the identified latents are the given coordinates."""
        return self.basis is not None and np.array_equal(self.basis, np.eye(len(self.basis)))

    @property
    def guaranteed(self) -> frozenset[int]:
        """Latents that are known alone, or with a block of others that is not all of them."""
        if self.level == Level.PS_UNBENT:
            return frozenset(self.straight)
        known = len(self.blocks) > 1 or self.level == Level.PS
        return (
            frozenset(i for block in self.blocks for i in block)
            if self.level >= Level.BLOCKS and known
            else frozenset()
        )

    @property
    def sentence(self) -> str:
        """The guarantee in one sentence."""
        if self.level == Level.NONE and self.if_undecided_hold > Level.NONE:
            count = sum(check.verdict == "inconclusive" for check in self.checks)
            every = "the one inconclusive check" if count == 1 else f"each of the {count} inconclusive checks"
            return f"Inconclusive. If {every} holds: {self.if_undecided_hold}."
        error = "" if self.error_level is None else f" (error level {self.error_level:.0%})"
        meaning = self.meaning or _MEANING[self.level]
        return f"{meaning[:1].upper()}{meaning[1:]}{error}."

    def __str__(self) -> str:
        lines = [
            f"Guarantee: {self.sentence}",
            f"  Level: {self.level}{f', by {self.theorem}' if self.theorem else ''}.",
        ]
        if self.level >= Level.BLOCKS and not self.standard:
            lines.append(
                "  'Latents' are the coordinates in the sparse basis (columns of `basis`), not the given ones."
            )
        lines += [f"  Provided that {premise}." for premise in self.premises]
        if self.level == Level.PS_UNBENT:
            lines += [f"  {self.exchange_sentence}"]
        if self.if_undecided_hold > self.level > Level.NONE:
            lines.append(f"  If each inconclusive check holds: {self.if_undecided_hold}.")
        if self.level == Level.BLOCKS:
            lines.append(f"  Blocks: {_in_braces(self.blocks)}.")
            if self.pure != self.blocks:
                lines.append(f"  Recovered free of all other latents: {_in_braces(self.pure)}.")
        lines.append("Checks:")
        lines += [
            f"  {check.name} {check.verdict}: {' '.join(filter(None, (check.sentence, check.remedy)))}"
            for check in self.checks
        ]
        if self.estimated:
            lines.append(ESTIMATED)
        return "\n".join(lines)

    @property
    def exchange_sentence(self) -> str:
        """Which latents are shown to be recovered, and which pairs a bent decoder could exchange."""
        shown = f"Shown for {named('latent', self.straight)}. " if self.straight else ""
        pairs = join_few([f"{i} and {j}" for i, j in self.exchangeable], "; ", most=8)
        return (
            f"{shown}For the pairs {pairs}, a decoder that bends exactly where they are inactive could join the upper "
            "side of one latent to the lower side of the other. That needs equal weights and equal distributions, "
            "which these rows do not exclude."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists, numbers and strings, for JSON."""
        return vars(self) | {
            "level": str(self.level),
            "if_undecided_hold": str(self.if_undecided_hold),
            "checks": [dict(vars(check)) for check in self.checks],
            "blocks": [list(block) for block in self.blocks],
            "pure": [list(block) for block in self.pure],
            "shift": None if self.shift is None else self.shift.tolist(),
            "basis": None if self.basis is None else self.basis.tolist(),
            "meaning": self.meaning or _MEANING[self.level],
            "sentence": self.sentence,
            "premises": list(self.premises),
            "straight": list(self.straight),
            "exchangeable": [list(pair) for pair in self.exchangeable],
        }


def verdict_of(statistic: float, threshold: float, *, small: bool) -> Verdict:
    """Compare with a threshold: the assumption asks for a small statistic or a large one; near it: "inconclusive".

    Examples
    --------
    >>> verdict_of(0.1, 1.0, small=True), verdict_of(0.9, 1.0, small=True), verdict_of(5.0, 1.0, small=True)
    ('holds', 'inconclusive', 'fails')
    """
    factor = THRESHOLDS.undecided_factor
    if threshold / factor < statistic < factor * threshold:
        return "inconclusive"
    return "holds" if (statistic < threshold) == small else "fails"


def check_mixing(description: str, injective: bool | None) -> Check:
    """Judge whether the mixing is of the kind a theorem asks for, by what the caller says of it."""
    verdict: Verdict = "inconclusive" if injective is None else "holds" if injective else "fails"
    sentence = {
        "holds": f"Given: the mixing is {description}.",
        "fails": f"Given: the mixing is not {description}. The theorems do not apply.",
        "inconclusive": f"Not known: whether the mixing is {description}.",
    }[verdict]
    return Check("mixing", f"f is {description}", None, None, verdict, sentence)


def levels(level_if: Callable[[Callable[[Verdict], bool]], Level]) -> tuple[Level, Level]:
    """Return the level that follows from the checks that hold, and the level if inconclusive ones held as well."""
    return level_if(lambda verdict: verdict == "holds"), level_if(lambda verdict: verdict != "fails")


def named(noun: str, which: Iterable[int]) -> str:
    """Name items in words, at most eight.

    Examples
    --------
    >>> named("latent", [3]), named("latent", [0, 1, 4])
    ('latent 3', 'latents 0, 1 and 4')
    """
    names = [str(i) for i in which]
    some = ", ".join(names[:-1]) + f" and {names[-1]}" if 1 < len(names) <= 8 else join_few(names, most=8)
    return f"{noun}{'s' if len(names) > 1 else ''} {some}"


def _in_braces(blocks: Blocks) -> str:
    return join_few(["{" + ", ".join(map(str, block)) + "}" for block in blocks], most=20)
