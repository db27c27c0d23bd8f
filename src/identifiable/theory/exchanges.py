"""The check "straight": which latents a decoder that bends where they become inactive could exchange."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from identifiable.arrays import BoolArray, IntArray
from identifiable.theory.certificate import Check, Verdict, named
from identifiable.theory.pattern_tests import CountedPatterns
from identifiable.theory.straightness import (
    Pair,
    Patterns,
    differences,
    partner_difference,
    straight_latents,
    varied,
    without_partner,
)
from identifiable.theory.thresholds import THRESHOLDS

_STATEMENT = "no two latents can be exchanged by a decoder that bends where they become inactive"
_HOLDS = "No two latents can be exchanged, even by a decoder that bends where they become inactive."
_SHEARED = "A pattern of {} may bend onto another one, and without 3.8b sparsity does not exclude it."


@dataclass(frozen=True)
class Exchanges:
    """The check, the latents shown to be straight, the pairs not excluded, and the error level of the tests."""

    check: Check
    straight: tuple[int, ...] = ()
    pairs: tuple[Pair, ...] = ()
    error_level: float | None = None

    @classmethod
    def none(cls, *, affine: bool) -> "Exchanges":
        """Return the result for a mixing that cannot bend: an affine one, or one of a component of full rank."""
        reason = "An affine mixing does not bend." if affine else "In some component all latents are active."
        return cls(Check("straight", _STATEMENT, None, None, "holds", f"No two latents can be exchanged. {reason}"))

    @classmethod
    def untested(cls, names: IntArray) -> "Exchanges":
        """Return the result for a learnt mixture whose rows are not known."""
        sentence = "Not tested: this takes the number of rows, each of them in its component beyond doubt."
        check = Check("straight", _STATEMENT, None, None, "inconclusive", sentence)
        return cls(check, pairs=tuple(combinations(names.tolist(), 2)))

    @classmethod
    def of_patterns(cls, patterns: Patterns, names: IntArray) -> "Exchanges":
        """Judge the patterns of a known mixture: differences up to a tolerance count as none."""
        tol = THRESHOLDS.exchange
        if not varied(patterns.masks):
            straight = without_partner(patterns.masks, lambda *triple: partner_difference(patterns, *triple) > tol)
            return cls._by_partners(straight, names)
        found = {pair: value for pair, value in differences(patterns).items() if value <= tol}
        if not found:
            return cls(Check("straight", _STATEMENT, 0.0, 0.0, "holds", _HOLDS))
        least = min(found.values())
        equal = least <= THRESHOLDS.genericity_share * tol
        closest: Pair = min(found, key=found.__getitem__)
        i, k = names[list(closest)]
        sentence = f"Latents {i} and {k} are active equally often and equally distributed"
        sentence += ": a decoder that bends where they become inactive could exchange parts of them."
        if not equal:
            sentence = f"Latents {i} and {k} differ by {least:.1g} only, in their frequencies and "
            sentence += "distributions: too little to exclude that parts of them are exchanged."
        verdict: Verdict = "fails" if equal else "inconclusive"
        check = Check("straight", _STATEMENT, least, tol, verdict, sentence)
        return cls._of_pairs(check, found, names)

    @classmethod
    def of_rows(cls, patterns: CountedPatterns, names: IntArray, alpha: float = 0.05) -> "Exchanges":
        """Test the patterns of rows, at one error level for all latents."""
        rows = int(patterns.counts.sum())
        if not varied(patterns.masks):
            found = cls._by_partners(patterns.straight_by_frequency(alpha), names)
            return replace(found, error_level=alpha)
        open_pairs = patterns.possible_pairs(alpha)
        if not open_pairs:
            return cls(Check("straight", _STATEMENT, 0.0, 0.0, "holds", _HOLDS), error_level=alpha)
        factor = max(open_pairs.values())
        remedy = f"About {_rounded(rows * factor)} rows would show it, if what differs stays as it is."
        named_pairs = "one pair" if len(open_pairs) == 1 else f"{len(open_pairs)} pairs"
        sentence = f"These {rows} rows do not exclude that {named_pairs} of latents could be exchanged."
        check = Check("straight", _STATEMENT, float(len(open_pairs)), 0.0, "inconclusive", sentence)
        check = replace(check, remedy=remedy if np.isfinite(factor) else "")
        return replace(cls._of_pairs(check, open_pairs, names), error_level=alpha)

    @classmethod
    def _of_pairs(cls, check: Check, pairs: Collection[Pair], names: IntArray) -> "Exchanges":
        straight = straight_latents(len(names), pairs)
        return cls(
            check, tuple(int(names[c]) for c in straight), tuple((int(names[c]), int(names[d])) for c, d in pairs)
        )

    @classmethod
    def _by_partners(cls, straight: BoolArray, names: IntArray) -> "Exchanges":
        others = names[~straight]
        sentence = _SHEARED.format(named("latent", others)) if len(others) else _HOLDS
        check = Check(
            "straight", _STATEMENT, float(len(others)), 0.0, "inconclusive" if len(others) else "holds", sentence
        )
        return cls(check, tuple(names[straight].tolist()))


def _rounded(rows: float) -> str:
    """Return a number of rows with two significant digits.

    Examples
    --------
    >>> _rounded(12345.6)
    '12,000'
    """
    return f"{float(f'{rows:.2g}'):,.0f}"
