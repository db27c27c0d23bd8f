"""What a certificate is, whichever paper it rests on."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from identifiable.errors import join_few

Verdict = Literal["holds", "fails", "inconclusive"]
Blocks = tuple[tuple[int, ...], ...]


class Level(IntEnum):
    """How far latents are identified, from weakest to strongest: none < ATwC < AT < blocks < PS.

    Examples
    --------
    >>> print(Level.ATWC, Level.ATWC < Level.BLOCKS)
    ATwC True
    """

    NONE = 0
    ATWC = 1
    AT = 2
    BLOCKS = 3
    PS = 4

    def __str__(self) -> str:
        return ("none", "ATwC", "AT", "blocks", "PS")[self]


_MEANING = {
    Level.NONE: "no theorem used here guarantees that the latents can be recovered",
    Level.ATWC: "within each component the latents are recovered up to an affine map, but the map may change from "
    "component to component",
    Level.AT: "the latents are recovered up to one affine map of all of them together; single latents are not told "
    "apart",
    Level.BLOCKS: "the sparsest representation recovers groups of latents, not always single latents within a group",
    Level.PS: "the sparsest representation recovers every latent up to order, sign, scale and shift",
}


@dataclass(frozen=True)
class Check:
    """One assumption: what it says, the number looked at, its threshold, the verdict, and the verdict in words.

    `statistic` and `threshold` are None where nothing was measured.
    """

    name: str
    statement: str
    statistic: float | None
    threshold: float | None
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, eq=False)
class Certificate:
    """What is identified, by which theorem, and the checks behind it.

    Attributes
    ----------
    level : what follows from the checks that hold. What is a matter of the mixing or decoder and was not told
        (`injective=None`) is a premise, and counts as given.
    if_undecided_hold : the level that would follow if every undecided check held; equal to `level` if none is.
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
    estimated : whether the law of the latents was learnt.
    meaning : what `level` means here, in words; "" for the usual words.
    """

    level: Level
    if_undecided_hold: Level
    theorem: str
    checks: tuple[Check, ...]
    blocks: Blocks
    pure: Blocks
    shift: NDArray[np.float64] | None
    basis: NDArray[np.float64] | None
    estimated: bool
    meaning: str = ""

    def __getitem__(self, name: str) -> Check:
        """Return the check of this name."""
        return next(check for check in self.checks if check.name == name)

    @property
    def standard(self) -> bool:
        """Whether the identified latents are the given coordinates."""
        return self.basis is not None and np.array_equal(self.basis, np.eye(len(self.basis)))

    def __str__(self) -> str:
        meaning = self.meaning or _MEANING[self.level]
        if self.level >= Level.BLOCKS and not self.standard:
            meaning += "; 'latents' are the coordinates in the sparse basis (columns of `basis`), not the given ones"
        lines = [f"Identified up to: {self.level}" + (f", by {self.theorem}" if self.theorem else ""), f"  {meaning}."]
        if self.if_undecided_hold > self.level:
            lines.append(f"  At best: {self.if_undecided_hold}, if everything that cannot be told holds.")
        if self.level == Level.BLOCKS:
            lines.append(f"  Blocks: {_groups(self.blocks)}.")
            if self.pure != self.blocks:
                lines.append(f"  Recovered on their own: {_groups(self.pure)}.")
        lines.append("Checks:")
        lines += [f"  {check.name} {check.verdict}: {check.sentence}" for check in self.checks]
        if self.estimated:
            lines.append(
                "This certificate rests on estimates: the law of the latents was learnt, and the verdicts are about "
                "what was learnt, not about what made the data."
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists, numbers and strings, for JSON."""
        return {
            "level": str(self.level),
            "if_undecided_hold": str(self.if_undecided_hold),
            "theorem": self.theorem,
            "checks": [dict(vars(check)) for check in self.checks],
            "blocks": [list(block) for block in self.blocks],
            "pure": [list(block) for block in self.pure],
            "shift": None if self.shift is None else self.shift.tolist(),
            "basis": None if self.basis is None else self.basis.tolist(),
            "estimated": self.estimated,
            "meaning": self.meaning or _MEANING[self.level],
        }


def _groups(blocks: Blocks) -> str:
    return join_few(["{" + ", ".join(map(str, block)) + "}" for block in blocks], most=20)


def check_mixing(words: str, injective: bool | None) -> Check:
    """Judge whether the mixing is what a theorem asks for, in its words, by what was told."""
    verdict: Verdict = "inconclusive" if injective is None else "holds" if injective else "fails"
    sentence = {
        "holds": f"The mixing is taken to be {words}, as told.",
        "fails": f"The mixing is not {words}, so the theorems say nothing.",
        "inconclusive": f"All that is said here is on the premise that the mixing is {words}.",
    }[verdict]
    return Check("mixing", f"f is {words}", None, None, verdict, sentence)
