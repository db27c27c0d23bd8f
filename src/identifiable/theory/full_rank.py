r"""Which assumptions of Kivva et al. (2022) a Gaussian mixture and a decoder meet, and what is then identified.

Latents follow :math:`z \sim \sum_j w_j N(\mu_j, \Sigma_j)`, and x = f(z), or x = f(z) + noise of known law. With

    P1  every component has full rank             F1  f is piecewise affine
    P2  latents are independent in components,    F2  f is weakly injective
        and told apart by their variances         F4  f is injective (and continuous)
    P3  the components are the states of hidden variables

the theorems climb

    P1, F1, F2  =>  AT   one affine map                                    (Theorems 3.2a and 3.3a)
    and P2      =>  PS   order, sign, scale and shift                      (Theorems 3.2b, 3.3b and E.1)
    and P3      =>       the hidden variables behind the components, too   (Theorem 3.3c)
    and F4      =>       f, too, up to the map above                       (Theorems 3.2c and 3.3d)

for every other mixture and decoder that meet the same assumptions and give x the same law. With F3, almost all of the
image has one preimage, f is identified on each connected part of what has (Remark 3.5).

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

from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from identifiable.distributions.mixture import FloatArray, Mixture
from identifiable.errors import DataError, join_few
from identifiable.theory.certificate import Blocks, Certificate, Check, Level, Verdict
from identifiable.theory.decoders import STATEMENTS, Decoder, judge
from identifiable.theory.degenerate import ESTIMATED, EXACT
from identifiable.theory.rank import by_chance
from identifiable.theory.structure import structure_of
from identifiable.theory.supports import ZONE, BoolArray, supports_of

COARSE = 0.3  # correlations that chance may hide up to this size are not known to be zero
TURNS = 8  # combinations of covariances whose eigenvectors are tried as other coordinates

_KIVVA = "(Kivva et al. 2022)"
_DEPENDENT = Check(
    name="P3",
    statement="the components are all states of some hidden variables",
    statistic=None,
    threshold=None,
    verdict="inconclusive",
    sentence="Not looked at, because the latents are not known to be independent within components.",
)
_MEANINGS = {
    Level.BLOCKS: "the representation with independent latents in every component recovers groups of latents, because "
    "the components' variances tell the groups apart; the latents of a group, once standardised, are known up to an "
    "orthogonal map",
    Level.PS: "the representation with independent latents in every component recovers every latent up to order, sign, "
    "scale and shift, because the components' variances tell them apart",
}


def certify(
    mixture: Mixture,
    *,
    decoder: Decoder | None = None,
    injective: bool | None = None,
    affine: bool = False,
    estimated: bool = False,
    rows: int | None = None,
    tolerance: float | None = None,
) -> Certificate:
    r"""Say what is identified when x = f(z) and z follows a Gaussian mixture with components of full rank.

    Parameters
    ----------
    mixture : the law of the latents, true or learnt.
    decoder : f, by its layers; (F1) to (F4) are judged. What cannot be told of it is not taken for granted.
    injective : whether f is continuous, injective and piecewise affine, if there is no decoder or it leaves that open;
        None: not known, without a decoder a premise.
    affine : f is known to be affine.
    estimated : the mixture was learnt, implied by `rows`: the default tolerance is looser, and the certificate says so.
    rows : the number of rows N the mixture was estimated on. Correlations and ratios of variances are compared with
        what chance gives: in component j a correlation has the standard error :math:`1 / \sqrt{N w_j}`, the log of a
        ratio of two latents' variances :math:`2 / \sqrt{N w_j}`. These are for components that hardly overlap.
    tolerance : correlations and log-ratios of variances up to it count as zero, and directions that vary by less of the
        largest standard deviation count as at rest; default 1e-5, or 0.05 when estimated. Within a factor 3 of it
        nothing is decided. With `rows` the default is for directions alone, and decides.

    Examples
    --------
    >>> leaky = Decoder.from_layers([([[1, 2], [0, 1]], [0, 0]), ([[1, 0], [1, 1]], [0, 1])], slope=0.1)
    >>> print(certify(Mixture([0.5, 0.5], [[0, 0], [3, 1]], [[1, 1], [4, 2]]), decoder=leaky))
    Identified up to: PS, by Theorem 3.2b (Kivva et al. 2022), and f by Theorem 3.2c
      the representation with independent latents in every component recovers every latent up to order, sign, scale and
      shift, because the components' variances tell them apart.
    Checks:
      P1 holds: Every component varies in all 2 directions.
      F1 holds: f has 2 affine layers, with piecewise linear activations between them.
      F2 holds: (F4) implies it.
      F3 holds: (F4) implies it.
      F4 holds: Every step is injective: every layer has full column rank (...).
      P2 factorial holds: The latents are independent within every component.
      P2 ratios holds: No two latents have proportional variances, as components 0 and 1 alone show.
      P3 holds: ...
    """
    if tolerance is not None and not 0 < tolerance < 0.3:
        raise DataError(f"tolerance must lie between 0 and 0.3 standard deviations, got {tolerance}.")
    if rows is not None and not rows >= 1:
        raise DataError(f"rows must be the number of rows the mixture was estimated on, 1 or more, got {rows}.")
    estimated = estimated or rows is not None
    sizes = _Sizes(mixture, rows, tolerance, tolerance if tolerance is not None else ESTIMATED if estimated else EXACT)
    n = mixture.means.shape[1]
    mixing = check_decoder(mixture, decoder, injective, affine=affine)
    premise = decoder is None and injective is None
    first = _check_full_rank(sizes)
    if first.verdict == "fails":
        return Certificate(Level.NONE, Level.NONE, "", (first, *mixing), (), (), None, None, estimated)
    factorial, ratios = _check_factorial(sizes), _Ratios.of(sizes)
    variances = _check_ratios(sizes, ratios, factorial)
    hidden, several = _DEPENDENT, False
    if factorial.verdict == "holds":
        structure = structure_of(mixture, rows=rows, estimated=estimated, tolerance=tolerance)
        hidden, several = structure.check, structure.verdict == "holds" and structure.k > 1

    def level(*, hopeful: bool) -> tuple[Level, Blocks]:
        def given(check: Check) -> bool:
            return check.verdict == "holds" or (hopeful and check.verdict == "inconclusive")

        if not given(first) or not all(given(check) or (premise and check.verdict != "fails") for check in mixing[:2]):
            return Level.NONE, ()
        blocks = _groups(ratios.same if hopeful else ~ratios.distinct)
        if not given(factorial) or (len(blocks) == 1 and n > 1):
            return Level.AT, (tuple(range(n)),)
        return Level.PS if len(blocks) == n else Level.BLOCKS, blocks

    shown, blocks = level(hopeful=False)
    return Certificate(
        level=shown,
        if_undecided_hold=level(hopeful=True)[0],
        theorem=_theorem(shown, n, ratios, several=several, injective=mixing[3].verdict == "holds"),
        checks=(first, *mixing, factorial, variances, hidden),
        blocks=blocks,
        pure=blocks,
        shift=np.zeros(n) if shown else None,
        basis=np.eye(n) if shown else None,
        estimated=estimated,
        meaning=_meaning(shown, n, len(sizes.weights)),
    )


@dataclass(frozen=True, eq=False)
class _Sizes:
    """A mixture without components of weight 0, and when a number counts as zero."""

    mixture: Mixture
    rows: int | None
    told: float | None  # the tolerance that was asked for
    tol: float

    @property
    def names(self) -> NDArray[np.intp]:
        """The numbers of the components (J,)."""
        return np.flatnonzero(self.mixture.weights > 0)

    @property
    def weights(self) -> FloatArray:
        return self.mixture.weights[self.names]

    @property
    def covariances(self) -> FloatArray:
        return self.mixture.covariances[self.names]

    @property
    def counts(self) -> FloatArray | None:
        """The rows of every component (J,)."""
        return None if self.rows is None else self.rows * self.weights


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


def _check_full_rank(sizes: _Sizes) -> Check:
    s = supports_of(sizes.mixture, sizes.tol)
    n, clear = len(s.white), sizes.tol * (ZONE if sizes.rows is None else 1.0)
    short = np.flatnonzero(s.ranks < n)
    verdict: Verdict = "fails" if len(short) else "holds" if s.active >= clear else "inconclusive"
    sentence = {
        "holds": f"Every component varies in all {n} directions.",
        "fails": f"Component {s.names[short[:1]].sum()} varies in {s.ranks[short[:1]].sum()} of {n} directions only; "
        "the proofs are for components of full rank.",
        "inconclusive": f"In some component a direction varies by {s.active:.2g} of the largest standard deviation, "
        "too little to be active for sure.",
    }[verdict]
    statement = "z follows a Gaussian mixture with components of full rank"
    return Check("P1", statement, s.active, sizes.tol, verdict, sentence)


# The mixing.


def check_decoder(
    mixture: Mixture, decoder: Decoder | None, injective: bool | None, *, affine: bool
) -> tuple[Check, Check, Check, Check]:
    """Judge (F1) to (F4) by the decoder and by what was told of f; raise if these contradict each other."""
    if decoder is None:
        return _told(injective, affine=affine)
    if affine:
        raise DataError("affine says that f is affine, and decoder says what f is: pass one of them.")
    n = mixture.means.shape[1]
    if not decoder.odd and decoder.m != n:
        raise DataError(f"The decoder takes {decoder.m} latents and the mixture has {n}: pass the two of one model.")
    found = judge(decoder, mixture)
    every = found[3]
    if injective is not None and every.verdict == ("fails" if injective else "holds"):
        raise DataError(
            f"injective={injective} is not what the decoder says: (F4) {every.verdict}. {every.sentence} Leave out "
            "injective."
        )
    if not injective:
        return found
    words = "Taken to hold, as told; by the layers it cannot be told."
    one, two, three, four = (
        replace(check, verdict="holds", sentence=words) if check.verdict == "inconclusive" else check for check in found
    )
    return one, two, three, four


def _told(injective: bool | None, *, affine: bool) -> tuple[Check, Check, Check, Check]:
    """Judge (F1) to (F4) by what was told: `injective` is of all four, and an affine f has none of F2 to F4, or all."""
    verdicts: dict[bool | None, Verdict] = {True: "holds", None: "inconclusive", False: "fails"}
    every = verdicts[injective]
    weak = every if affine or injective is not False else "inconclusive"
    nouns = ("piecewise affine", "weakly injective", "observably injective", "injective")
    told: tuple[Verdict, ...] = ("holds" if affine or injective else "inconclusive", weak, weak, every)

    def words(noun: str, verdict: Verdict) -> str:
        if verdict == "holds":
            return f"The mixing is taken to be {noun}, as told."
        if verdict == "fails":
            return f"The mixing is not {noun}, as told."
        if injective is False:
            return f"A mixing that is not injective may still be {noun}, or not: a `decoder` would say."
        if noun in nouns[:2]:
            return f"All that is said here is on the premise that the mixing is {noun}."
        return "Not known, so nothing is said about f itself."

    one, two, three, four = (
        Check(name, statement, None, None, verdict, words(noun, verdict))
        for (name, statement), noun, verdict in zip(STATEMENTS.items(), nouns, told, strict=True)
    )
    return one, two, three, four


# Independence within components.


class _Dependence(NamedTuple):
    """The largest correlation within a component, and whether it counts as none."""

    verdict: Verdict
    statistic: float
    threshold: float
    correlation: float
    where: tuple[int, int, int]  # component, latent, latent


def _dependence(covariances: FloatArray, sizes: _Sizes) -> _Dependence:
    deviations = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    correlations = np.abs(covariances / (deviations[:, :, None] * deviations[:, None]))
    J, n = deviations.shape
    correlations[:, np.arange(n), np.arange(n)] = 0.0
    counts = sizes.counts
    statistics, threshold, holds = correlations, sizes.tol, sizes.tol / ZONE
    if counts is not None:
        holds = threshold = by_chance(1, max(J * n * (n - 1) // 2, 1))
        statistics = np.arctanh(np.minimum(correlations, 1 - 1e-12)) * np.sqrt(counts)[:, None, None]
        statistics[correlations <= (sizes.told or EXACT)] = 0.0
    j, s, t = (int(i) for i in np.unravel_index(statistics.argmax(), statistics.shape))
    statistic = float(statistics[j, s, t])
    fine = counts is None or statistic == 0 or threshold <= COARSE * np.sqrt(np.median(counts))
    verdict: Verdict = "fails" if statistic >= ZONE * threshold else "inconclusive"
    if statistic <= holds and fine:
        verdict = "holds"
    return _Dependence(verdict, statistic, float(threshold), float(correlations[j, s, t]), (int(sizes.names[j]), s, t))


def _check_factorial(sizes: _Sizes) -> Check:
    found = _dependence(sizes.covariances, sizes)
    j, s, t = found.where
    size = f"In component {j} latents {min(s, t)} and {max(s, t)} have a correlation of {found.correlation:.2g}"
    sentence = "The latents are independent within every component."
    if found.verdict == "inconclusive":
        sentence = f"{size}: too much, or known from too few rows, to be taken for none."
    elif found.verdict == "fails":
        elsewhere = len(sizes.weights) > 1 and _turned(sizes).verdict == "holds"
        sentence = f"{size}, so they are not independent there"
        sentence += ". In other coordinates they are: FactorialUnmixing finds them." if elsewhere else "."
    statement = "the latents are independent within every component"
    return Check("P2 factorial", statement, found.statistic, found.threshold, found.verdict, sentence)


def _turned(sizes: _Sizes) -> _Dependence:
    """Return the dependence in coordinates in which it is least, of those that can make all covariances diagonal.

    After whitening by their mean, covariances that are diagonal in one basis commute, and the eigenvectors of almost
    any combination of them are that basis.
    """
    mean = np.einsum("j,jkl->kl", sizes.weights, sizes.covariances)
    white = np.linalg.inv(np.linalg.cholesky(mean))
    whitened = white @ sizes.covariances @ white.T
    rng = np.random.default_rng(0)
    bases = np.linalg.eigh(np.einsum("tj,jkl->tkl", rng.normal(size=(TURNS, len(whitened))), whitened))[1]
    return min((_dependence(v.T @ whitened @ v, sizes) for v in bases), key=lambda found: found.statistic)


# Ratios of variances.


@dataclass(frozen=True, eq=False)
class _Ratios:
    r"""Which latents have proportional variances: how :math:`\log d_{jt} / d_{js}` varies over components j."""

    distinct: BoolArray  # (n, n): they have not
    same: BoolArray  # (n, n): they have; neither where it cannot be told
    statistics: FloatArray  # (n, n)
    threshold: float
    spread: FloatArray  # (n, n): the range of the log-ratio
    pair: tuple[int, int] | None  # two components that tell all latents apart

    @classmethod
    def of(cls, sizes: _Sizes) -> "_Ratios":
        logs = np.log(np.diagonal(sizes.covariances, axis1=1, axis2=2))
        J, n = logs.shape
        ratios = logs[:, :, None] - logs[:, None]  # (J, n, n)
        spread = np.ptp(ratios, axis=0)
        counts, pairs = sizes.counts, max(n * (n - 1) // 2, 1)
        if J == 1:
            nothing = np.zeros((n, n))
            return cls(nothing > 0, nothing == 0, nothing, sizes.tol, nothing, None)
        if counts is None:
            statistics, threshold, precise = spread, sizes.tol, True
            same = spread <= sizes.tol / ZONE
        else:
            w = counts[:, None, None] / 4
            centred = ratios - (w * ratios).sum(0) / w.sum(0)
            statistics, threshold = np.sqrt((w * centred**2).sum(0) / (J - 1)), by_chance(J - 1, pairs)
            precise = bool(np.median(4 / counts) <= sizes.tol**2)
            same = (statistics <= threshold) & precise
        distinct = statistics >= ZONE * threshold
        if counts is not None and sizes.told is not None:  # what is within either counts as zero
            distinct, same = distinct & (spread >= ZONE * sizes.told), same | (spread <= sizes.told)
        pair = _telling_pair(logs, counts, sizes)
        if pair:
            distinct, same = ~np.eye(n, dtype=bool), np.eye(n, dtype=bool)
        return cls(distinct, same, statistics, threshold, spread, pair)


def _telling_pair(logs: FloatArray, counts: FloatArray | None, sizes: _Sizes) -> tuple[int, int] | None:
    """Find the two components in which the ratios of variances of all latents differ most clearly, if they do: (P2)."""
    (J, n), best, found = logs.shape, ZONE, None
    chance = by_chance(1, max(J * (J - 1) * n * (n - 1) // 4, 1))
    for a, b in combinations(range(J), 2):
        gap = float(np.diff(np.sort(logs[a] - logs[b])).min(initial=np.inf))
        zero = sizes.tol
        if counts is not None:
            zero = max(chance * np.sqrt(4 / counts[a] + 4 / counts[b]), sizes.told or 0.0)
        if gap >= best * zero:
            best, found = gap / zero, (int(sizes.names[a]), int(sizes.names[b]))
    return found


def _groups(linked: BoolArray) -> Blocks:
    labels: NDArray[np.int32] = connected_components(linked, directed=False)[1]
    return tuple(sorted(tuple(int(i) for i in np.flatnonzero(labels == label)) for label in np.unique(labels)))


def _check_ratios(sizes: _Sizes, ratios: _Ratios, factorial: Check) -> Check:
    name, statement = "P2 ratios", "no two latents have variances that are proportional over the components"
    n = len(ratios.same)
    if n == 1:
        return Check(name, statement, None, None, "holds", "There is one latent, and nothing to tell it apart from.")
    if len(sizes.weights) == 1:
        sentence = "There is one component, and (P2) needs two: no variances tell the latents apart."
        return Check(name, statement, None, None, "fails", sentence)
    if factorial.verdict == "fails":
        sentence = "Not looked at, because the latents are not independent within components."
        return Check(name, statement, None, None, "inconclusive", sentence)
    above = np.triu_indices(n, 1)
    least = int(ratios.statistics[above].argmin())
    s, t = int(above[0][least]), int(above[1][least])
    log_ratio = f"the log of their ratio varies by {ratios.spread[s, t]:.1g}"
    if ratios.distinct[above].all():
        verdict: Verdict = "holds"
        sentence = "No two latents have proportional variances"
        sentence += (
            f", as components {ratios.pair[0]} and {ratios.pair[1]} alone show."
            if ratios.pair
            else " over all components. (P2) asks for two components that show it alone, but all together are enough."
        )
    elif ratios.same[above].any():
        verdict = "fails"
        together = [", ".join(map(str, block)) for block in _groups(ratios.same) if len(block) > 1]
        sentence = (
            f"Proportional over all components are the variances of latents {join_few(together, ' and of latents ')}."
        )
    else:
        verdict = "inconclusive"
        sentence = f"The variances of latents {s} and {t} are nearly proportional over the components: {log_ratio}."
    return Check(name, statement, float(ratios.statistics[s, t]), ratios.threshold, verdict, sentence)
