r"""Which assumptions of Kivva et al. (2022) a Gaussian mixture and a decoder meet, and what is then identified.

Latents follow :math:`z \sim \sum_j w_j N(\mu_j, \Sigma_j)`; x = f(z), or f(z) + noise of known distribution. With

    P1  every component has full rank             F1  f is piecewise affine
    P2  latents are independent in components,    F2  f is weakly injective
        and separated by their variances          F4  f is injective (and continuous)
    P3  the components are the states of hidden variables

the theorems climb

    P1, F1, F2  =>  AT   one affine map                                    (Theorems 3.2a and 3.3a)
    and P2      =>  PS   order, sign, scale and shift                      (Theorems 3.2b, 3.3b and E.1)
    and P3      =>       the hidden variables behind the components, too   (Theorem 3.3c)
    and F4      =>       f, too, up to the map above                       (Theorems 3.2c and 3.3d)

for every other mixture and decoder that meet the same assumptions and give x the same distribution. With F3, f is
identified on each connected part of the image points with one preimage, which are almost all (Remark 3.5).

**P1.** The paper allows components to be "possibly degenerate", but its proofs take covariances to be positive definite
(Appendix C.1), and so does this module. Mixtures with singular components are for `identifiable.theory.degenerate`.

**P2** is published with one pair of components in which the variances of all latents have different ratios. Less is
needed. Let z' = A z + c have independent latents in every component as well: :math:`A D_j A' = D'_j`, all diagonal.
Then :math:`A D_j D_1^{-1} A^{-1} = D'_j D'^{-1}_1` for all j, so A maps the common eigenspaces of the :math:`D_j
D_1^{-1}` onto those of the :math:`D'_j D'^{-1}_1`, and both are spanned by latents: those whose variances are
proportional over all components. If no two are, these are lines, and A is a scaled permutation. Else they are blocks,
within which A is orthogonal once latents are standardised; and as any orthogonal map keeps them independent, the blocks
are all that is identified.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from identifiable.arrays import Array, BoolArray, IntArray
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError, join_few
from identifiable.theory.certificate import Blocks, Certificate, Check, Level, Verdict, verdict_of
from identifiable.theory.decoders import Decoder
from identifiable.theory.independence import Correlations, check_independence, correlations_of
from identifiable.theory.injectivity import STATEMENTS, judge
from identifiable.theory.partitions import blocks_of, linked
from identifiable.theory.rank import by_chance
from identifiable.theory.structure import structure_of
from identifiable.theory.supports import supports_of
from identifiable.theory.thresholds import THRESHOLDS

FACTOR = THRESHOLDS.undecided_factor
COMBINATIONS = 8  # of covariances, whose eigenvectors are tried as other coordinates

_KIVVA = "(Kivva et al. 2022)"
PREMISES = {
    affine: f"the true mixing is {kind} and injective, and latents are independent within components"
    for affine, kind in ((False, "piecewise affine"), (True, "affine"))
}
_P3 = "the components are all states of hidden variables, of which none moves only latents of another"
_NOT_INDEPENDENT = "Not tested, because the latents are not known to be independent within components."
_MEANINGS = {
    Level.BLOCKS: "the representation with independent latents in every component recovers groups of latents, which "
    "differ in the variances of the components; the latents of a group, once standardised, are known up to an "
    "orthogonal map",
    Level.PS: "the representation with independent latents in every component recovers every latent up to order, sign, "
    "scale and shift, because the variances of the components separate them",
}


def certify(
    mixture: Mixture,
    *,
    decoder: Decoder | None = None,
    injective: bool | None = None,
    affine: bool = False,
    estimated: bool = False,
    rows: ArrayLike | None = None,
    tolerance: float | None = None,
) -> Certificate:
    r"""Say what is identified when x = f(z) and z follows a Gaussian mixture with components of full rank.

    Parameters
    ----------
    mixture : Mixture. The distribution of the latents, true or learnt.
    decoder : Decoder or None, default=None. f, by its layers; (F1) to (F4) are judged. What is inconclusive is not
        assumed.
    injective : bool or None, default=None. Whether f is continuous, injective and piecewise affine, if no decoder is
        given or its layers leave that open. None: inconclusive, which lowers the level.
    affine : bool, default=False. Whether f is known to be affine.
    estimated : bool, default=False. Whether the mixture was learnt, implied by `rows`: the default tolerance is larger,
        and the certificate says so.
    rows : int, array (J,) or None, default=None. The number of rows N the mixture was estimated on, or the rows that
        each component is worth, which are fewer where components overlap. Ratios of variances are compared with what
        chance gives: the log of a ratio of two latents' variances has the standard error :math:`2 / \sqrt{N w_j}` in
        component j. Latents count as independent if correlations beyond 0.15 are excluded: see
        `identifiable.theory.independence`.
    tolerance : float or None, default=None. Correlations and log-ratios of variances up to it count as zero, and
        directions that vary by less of the largest standard deviation count as inactive. None: 1e-5, or 0.05 when
        estimated. Within a factor 3 of it the verdict is inconclusive. With `rows` it is for directions and ratios of
        variances, and the default for directions alone.

    Examples
    --------
    >>> leaky = Decoder.from_layers([([[1, 2], [0, 1]], [0, 0]), ([[1, 0], [1, 1]], [0, 1])], slope=0.1)
    >>> print(certify(Mixture([0.5, 0.5], [[0, 0], [3, 1]], [[1, 1], [4, 2]]), decoder=leaky))
    Guarantee: The representation with independent latents in every component recovers every latent up to order, sign,
    scale and shift, because the variances of the components separate them.
      Level: PS, by Theorem 3.2b (Kivva et al. 2022), and f by Theorem 3.2c.
      Provided that the true mixing is piecewise affine and injective, and latents are independent within components.
    Checks:
      P1 holds: Every component varies in all 2 directions.
      F1 holds: f has 2 affine layers, with piecewise linear activations between them.
      F2 holds: (F4) implies it.
      F3 holds: (F4) implies it.
      F4 holds: Every step is injective: every layer has full column rank (...).
      P2 factorial holds: The latents are independent within every component.
      P2 ratios holds: No two latents have proportional variances: components 0 and 1 suffice to show it.
      P3 holds: ...
    """
    estimated = estimated or rows is not None
    tol = THRESHOLDS.tolerance(tolerance, estimated=estimated)
    case = _Case.of(mixture, rows, tolerance, tol)
    n = mixture.means.shape[1]
    mixing = check_decoder(mixture, decoder, injective, affine=affine)
    first = _check_full_rank(mixture, case)
    if first.verdict == "fails":
        return Certificate(Level.NONE, Level.NONE, "", (first, *mixing), (), (), None, None, estimated)
    factorial, ratios = _check_factorial(case), _Ratios.of(case)
    hidden, several = Check("P3", _P3, None, None, "inconclusive", _NOT_INDEPENDENT), False
    if factorial.verdict == "holds":
        diagonal = np.diagonal(mixture.covariances, axis1=1, axis2=2)
        independent = mixture if rows is None else Mixture(mixture.weights, mixture.means, diagonal)
        structure = structure_of(independent, rows=rows, estimated=estimated, tolerance=tolerance)
        hidden, several = structure.check, structure.verdict == "holds" and structure.k > 1

    def level(linked_latents: BoolArray, accepted: Callable[[Verdict], bool]) -> tuple[Level, Blocks]:
        if not all(accepted(check.verdict) for check in (first, *mixing[:2])):
            return Level.NONE, ()
        blocks = blocks_of(linked(linked_latents))
        if not accepted(factorial.verdict) or (len(blocks) == 1 and n > 1):
            return Level.AT, (tuple(range(n)),)
        return Level.PS if len(blocks) == n else Level.BLOCKS, blocks

    shown, blocks = level(~ratios.distinct, lambda verdict: verdict == "holds")
    return Certificate(
        level=shown,
        if_undecided_hold=level(ratios.same, lambda verdict: verdict != "fails")[0],
        theorem=_theorem(shown, n, ratios, several=several, injective=mixing[3].verdict == "holds"),
        checks=(first, *mixing, factorial, _check_ratios(case, ratios, factorial), hidden),
        blocks=blocks,
        pure=blocks,
        shift=np.zeros(n) if shown else None,
        basis=np.eye(n) if shown else None,
        estimated=estimated,
        meaning=_meaning(shown, n, len(case.names)),
        error_level=None if rows is None else THRESHOLDS.error_level,
        premises=(PREMISES[affine],) if shown else (),
    )


@dataclass(frozen=True, eq=False)
class _Case:
    """The components that have weight, and when a number counts as zero."""

    names: IntArray  # (J,) their numbers in the mixture
    weights: Array
    covariances: Array
    counts: Array | None  # (J,) the rows of every component, None if unknown
    given: float | None  # the tolerance that the caller gave
    tol: float

    @classmethod
    def of(cls, mixture: Mixture, rows: ArrayLike | None, given: float | None, tol: float) -> "_Case":
        names = np.flatnonzero(mixture.weights > 0)
        weights, counts = mixture.weights[names], None
        if rows is not None:
            total = np.asarray(rows, dtype=np.float64)
            if total.shape not in ((), mixture.weights.shape) or not (total >= 1).all():
                raise DataError(
                    "rows must be the number of rows the mixture was estimated on, 1 or more, or one such number for "
                    f"each of {len(mixture.weights)} components, got {rows}."
                )
            counts = total[names] if total.ndim else total * weights
        return cls(names, weights, mixture.covariances[names], counts, given, tol)


def _theorem(level: Level, n: int, ratios: "_Ratios", *, several: bool, injective: bool) -> str:
    """Name the theorem: 3.3 if there are several hidden variables, 3.2 if one is all that is claimed."""
    if level == Level.NONE:
        return ""
    several = several and level == Level.PS
    if level == Level.AT or n == 1:
        found = f"Theorem 3.2a {_KIVVA}"
    else:
        found = f"Theorem {'3.3c' if several else '3.2b'} {_KIVVA}"
        found += " for blocks" if level == Level.BLOCKS else ""
        found += "" if ratios.pair else ", with the ratios of all components"
    return found + (f", and f by Theorem {'3.3d' if several else '3.2c'}" if injective else "")


def _meaning(level: Level, n: int, components: int) -> str:
    if level == Level.PS and n == 1:
        return "the latent is recovered up to sign, scale and shift"
    if level == Level.AT and components == 1:
        return "the latents, once standardised, are recovered up to an orthogonal map of all of them together"
    return _MEANINGS.get(level, "")


def _check_full_rank(mixture: Mixture, case: _Case) -> Check:
    s = supports_of(mixture, case.tol)
    n, clear = len(s.white), case.tol * (FACTOR if case.counts is None else 1.0)
    short = np.flatnonzero(s.ranks < n)
    statement = "z follows a Gaussian mixture with components of full rank"
    verdict: Verdict = "fails" if len(short) else "holds" if s.smallest_active >= clear else "inconclusive"
    sentence = {
        "holds": f"Every component varies in all {n} directions.",
        "fails": f"Component {s.names[short[:1]].sum()} varies in {s.ranks[short[:1]].sum()} of {n} directions only; "
        "the proofs are for components of full rank.",
        "inconclusive": f"A direction of some component varies by {s.smallest_active:.2g} of the largest standard "
        "deviation, which is too little to be clearly active.",
    }[verdict]
    return Check("P1", statement, s.smallest_active, case.tol, verdict, sentence)


# -- the mixing -----------------------------------------------------------------------------


def check_decoder(
    mixture: Mixture, decoder: Decoder | None, injective: bool | None, *, affine: bool
) -> tuple[Check, ...]:
    """Judge (F1) to (F4) by the decoder and by what the caller says of f; raise if these contradict each other."""
    if decoder is None:
        return _as_given(injective, affine=affine)
    if affine:
        raise DataError("affine and decoder both describe f. Pass one of them.")
    n = mixture.means.shape[1]
    if not decoder.unreadable and decoder.m != n:
        raise DataError(f"The decoder takes {decoder.m} latents and the mixture has {n}. Pass the two of one model.")
    found = judge(decoder, mixture)
    if injective is not None and found[3].verdict == ("fails" if injective else "holds"):
        verdict = f"(F4) {found[3].verdict}. {found[3].sentence}"
        raise DataError(f"injective={injective} contradicts the decoder: {verdict} Leave out injective.")
    if not injective:
        return found
    sentence = "Given: f is injective; the layers alone are inconclusive."
    return tuple(
        replace(check, verdict="holds", sentence=sentence) if check.verdict == "inconclusive" else check
        for check in found
    )


def _as_given(injective: bool | None, *, affine: bool) -> tuple[Check, ...]:
    """Judge (F1) to (F4) by what the caller says: `injective` means all four; an affine f has all or none."""
    verdicts: dict[bool | None, Verdict] = {True: "holds", None: "inconclusive", False: "fails"}
    every = verdicts[injective]
    weak = every if affine or injective is not False else "inconclusive"
    given: tuple[Verdict, ...] = ("holds" if affine or injective else "inconclusive", weak, weak, every)
    nouns = ("piecewise affine", "weakly injective", "observably injective", "injective")
    checks = []
    for (name, statement), noun, verdict in zip(STATEMENTS.items(), nouns, given, strict=True):
        sentence = f"Given: the mixing is {'not ' * (verdict == 'fails')}{noun}."
        if verdict == "inconclusive":
            sentence = f"Not known: the mixing may be {noun} or not. A `decoder` would decide it."
        checks.append(Check(name, statement, None, None, verdict, sentence))
    return tuple(checks)


# -- independence within components ---------------------------------------------------------


def _check_factorial(case: _Case) -> Check:
    found = _dependence(case.covariances, case)
    if found.verdict == "fails" and len(case.names) > 1 and _least_dependence(case) == "holds":
        found = replace(
            found, sentence=f"{found.sentence} In other coordinates they are: FactorialUnmixing finds them."
        )
    return found


def _dependence(covariances: Array, case: _Case) -> Check:
    """Judge the largest correlation within a component, or where rows are known, whether correlations are excluded."""
    if case.counts is not None:
        return check_independence(Correlations.of(covariances, case.counts))
    correlations = np.abs(correlations_of(covariances))
    j, s, t = (int(i) for i in np.unravel_index(correlations.argmax(), correlations.shape))
    largest = float(correlations[j, s, t])
    verdict = verdict_of(largest, case.tol, small=True)
    size = f"Latents {s} and {t} have correlation {largest:.2g} in component {case.names[j]}"
    sentence = {
        "holds": "The latents are independent within every component.",
        "fails": f"{size}, so they are not independent there.",
        "inconclusive": f"{size}: too large to count as zero, too small to be sure.",
    }[verdict]
    statement = "the latents are independent within every component"
    return Check("P2 factorial", statement, largest, case.tol, verdict, sentence)


def _least_dependence(case: _Case) -> Verdict:
    """Return the verdict in those coordinates, of all that can make covariances diagonal, with the least dependence.

    After whitening by their mean, covariances that are diagonal in one basis commute, and the eigenvectors of almost
    any combination of them are that basis.
    """
    mean = np.einsum("j,jkl->kl", case.weights, case.covariances)
    white = np.linalg.inv(np.linalg.cholesky(mean))
    whitened = white @ case.covariances @ white.T
    factors = np.random.default_rng(0).normal(size=(COMBINATIONS, len(whitened)))
    bases = np.linalg.eigh(np.einsum("tj,jkl->tkl", factors, whitened))[1]
    return min((_dependence(v.T @ whitened @ v, case) for v in bases), key=lambda check: check.statistic or 0.0).verdict


# -- ratios of variances --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Ratios:
    r"""Which latents have proportional variances: how :math:`\log d_{jt} / d_{js}` varies over components j."""

    distinct: BoolArray  # (n, n): their variances are not proportional
    same: BoolArray  # (n, n): they are; neither where it is inconclusive
    statistics: Array  # (n, n)
    threshold: float
    spread: Array  # (n, n): the range of the log-ratio
    pair: tuple[int, int] | None  # two components that separate all latents

    @classmethod
    def of(cls, case: _Case) -> "_Ratios":
        logs = np.log(np.diagonal(case.covariances, axis1=1, axis2=2))
        J, n = logs.shape
        ratios = logs[:, :, None] - logs[:, None]  # (J, n, n)
        spread = np.ptp(ratios, axis=0)
        if J == 1:
            return cls(spread > 0, spread == 0, spread, case.tol, spread, None)
        if case.counts is None:
            statistics, threshold = spread, case.tol
            same = spread <= case.tol / FACTOR
        else:
            w = case.counts[:, None, None] / 4
            centred = ratios - (w * ratios).sum(0) / w.sum(0)
            statistics = np.sqrt((w * centred**2).sum(0) / (J - 1))
            threshold = by_chance(J - 1, max(n * (n - 1) // 2, 1))
            same = (statistics <= threshold) & (np.median(4 / case.counts) <= case.tol**2)
        distinct = statistics >= FACTOR * threshold
        if case.counts is not None and case.given is not None:  # what is within either counts as zero
            distinct, same = distinct & (spread >= FACTOR * case.given), same | (spread <= case.given)
        pair = _separating_pair(logs, case)
        if pair:
            distinct, same = ~np.eye(n, dtype=bool), np.eye(n, dtype=bool)
        return cls(distinct, same, statistics, threshold, spread, pair)


def _separating_pair(logs: Array, case: _Case) -> tuple[int, int] | None:
    """Find the two components in which the ratios of variances of all latents differ most clearly, if they do: (P2)."""
    (J, n), best, found = logs.shape, FACTOR, None
    chance = by_chance(1, max(J * (J - 1) * n * (n - 1) // 4, 1))
    for a, b in combinations(range(J), 2):
        gap = float(np.diff(np.sort(logs[a] - logs[b])).min(initial=np.inf))
        zero = case.tol
        if case.counts is not None:
            zero = max(chance * np.sqrt(4 / case.counts[a] + 4 / case.counts[b]), case.given or 0.0)
        if gap >= best * zero:
            best, found = gap / zero, (int(case.names[a]), int(case.names[b]))
    return found


def _check_ratios(case: _Case, ratios: _Ratios, factorial: Check) -> Check:
    name, statement = "P2 ratios", "no two latents have variances that are proportional over the components"
    n = len(ratios.same)
    if n == 1:
        return Check(name, statement, None, None, "holds", "There is one latent only.")
    if len(case.names) == 1:
        sentence = "There is one component, and (P2) needs two: no variances separate the latents."
        return Check(name, statement, None, None, "fails", sentence)
    if factorial.verdict == "fails":
        return Check(name, statement, None, None, "inconclusive", _NOT_INDEPENDENT)
    above = np.triu_indices(n, 1)
    s, t = (int(index[ratios.statistics[above].argmin()]) for index in above)
    verdict: Verdict = "inconclusive"
    size = f"the log of their ratio varies by {ratios.spread[s, t]:.1g} over the components"
    sentence = f"The variances of latents {s} and {t} are nearly proportional: {size}."
    if ratios.distinct[above].all():
        verdict, sentence = "holds", "No two latents have proportional variances"
        if ratios.pair:
            sentence += f": components {ratios.pair[0]} and {ratios.pair[1]} suffice to show it."
        else:
            sentence += " over all components. (P2) asks for two components that show it; all together are enough."
    elif ratios.same[above].any():
        blocks = [", ".join(map(str, block)) for block in blocks_of(linked(ratios.same)) if len(block) > 1]
        groups = join_few(blocks, " and for latents ")
        verdict, sentence = "fails", f"Variances are proportional over all components for latents {groups}."
    return Check(name, statement, float(ratios.statistics[s, t]), ratios.threshold, verdict, sentence)
