r"""Which assumptions of the pdGMM theorems a mixture meets, and what is then identified (Xu et al. 2026).

Latents follow :math:`z \sim \sum_j w_j N(\mu_j, \Sigma_j)`, component j on its support :math:`S_j`, and x = f(z) with f
continuous, injective and piecewise affine. The theorems climb

    3.4 genericity                  =>  ATwC   one affine map per component                   (Theorem 3.5)
    3.6 a common point and basis    =>  AT     one affine map, if latents are straight        (Theorem 3.7)
    3.8 a varied, standard basis    =>  PS     permutation and scaling, for the sparsest g    (Theorem 3.9)

Two of them are read more sharply than the paper states them.

**Genericity, 3.4.** The paper asks that components of equal rank r whose supports intersect have different
Mahalanobis distances at some common point. Its conclusion needs less. Where f bends inside S_j, it does so along
pieces of hyperplanes H of S_j. If component j changed its image there, its old image would continue as the image of
some i of rank r with :math:`H \subset S_i`, and the distances to i and j would agree on H. If every such i had
:math:`S_i = S_j`, f would map that support onto one affine space, and a non-degenerate mixture onto another, hence be
affine on it (Kivva et al. 2022). So only pairs with :math:`S_i \ne S_j` and :math:`\dim S_i \cap S_j = r - 1` matter,
and for these the two distances must not coincide on all of :math:`S_i \cap S_j`. By the same argument a component of
full rank gives AT on its own. The condition is sufficient: where it fails nothing is claimed. It is used only where 3.6
fails. With 3.6 the check "straight" takes its place, which asks much less (`identifiable.theory.straightness`).

**Variability, 3.8b.** Let :math:`c_i` be the set of components in which latent i is active. After Theorem 3.7 a
representation is L z + c, and the sparsest has, in some order, :math:`L_{ik} = 0` unless :math:`c_k \subseteq c_i`:
recovered latent i contains z_i, and those k that are active only when i is. 3.8b says that no such k exists. Where
some do, latents linked by such inclusions are one block; inside it the latents of one code c with nothing below them
are still recovered free of all others (`pure`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from identifiable.arrays import Array, BoolArray, IntArray
from identifiable.distributions.mixture import Mixture
from identifiable.theory.certificate import (
    Blocks,
    Certificate,
    Check,
    Level,
    Verdict,
    check_mixing,
    levels,
    named,
    verdict_of,
)
from identifiable.theory.exchanges import Exchanges
from identifiable.theory.partitions import blocks_of, linked
from identifiable.theory.pattern_tests import CountedPatterns
from identifiable.theory.straightness import Patterns
from identifiable.theory.supports import (
    Basis,
    Supports,
    adapted_basis,
    common_point,
    in_given_coordinates,
    least_difference,
    share_given_basis,
    standard_basis,
    supports_of,
)
from identifiable.theory.thresholds import THRESHOLDS

FACTOR = THRESHOLDS.undecided_factor
_PARTLY = (
    "within each component the latents are recovered up to an affine map; it is one and the same map for {}, which "
    "share a point and the given basis"
)


def certify(
    mixture: Mixture,
    *,
    estimated: bool = False,
    injective: bool | None = None,
    affine: bool = False,
    rows: ArrayLike | None = None,
    tolerance: float | None = None,
) -> Certificate:
    r"""Say what is identified when x = f(z) and z follows a (potentially degenerate) Gaussian mixture.

    The claim is about every representation g(x) that determines x, is itself such a mixture and, for blocks and PS, is
    at least as sparse: :math:`E\|g(x)\|_0 \le E\|B^{-1}(z - t)\|_0`, B the certificate's `basis`, t its `shift`.

    Parameters
    ----------
    mixture : Mixture. The distribution of the latents, true or learnt.
    estimated : bool, default=False. Whether the mixture was learnt, implied by `rows`: the default tolerance is larger,
        and the certificate says so.
    injective : bool or None, default=None. Whether f (or the decoder) is continuous, injective and piecewise affine.
        None: not known. The check is then inconclusive, and nothing is guaranteed.
    affine : bool, default=False. Whether f is known to be affine: all latents are then straight.
    rows : int, array (J,) or None, default=None. The rows that the mixture, or each component, was estimated on, if
        each of them belongs to its component beyond doubt. Frequencies of patterns are then tested at an error level of
        5 %; without it a learnt mixture shows no latent to be straight.
    tolerance : float or None, default=None. A length up to it counts as zero, in standard deviations of the whole
        mixture. None: 1e-5, or 0.05 when estimated. Statistics within a factor 3 of their threshold are inconclusive.

    Examples
    --------
    Two latents, one of them inactive in each component. A row is in the first component more often.

    >>> certificate = certify(Mixture([0.7, 0.3], [[3, 0], [1, 4]], [[1, 0], [0, 1]]), injective=True)
    >>> print(certificate)
    Guarantee: The sparsest representation recovers every latent up to order, sign, scale and shift.
      Level: PS, by Theorem 3.9 (Xu et al. 2026), with straight latents in place of 3.4.
    Checks:
      mixing holds: Given: the mixing is continuous, injective and piecewise affine.
      supports holds: The number of directions that vary in each component is clear: 1 to 1 of 2.
      3.6 holds: All components share a point and a basis: each is spanned by some of the same 2 directions.
      3.8a holds: The shared directions are the given latents, once z is shifted by the common point (`shift`).
      3.8b holds: For every two latents, some component has the one active and the other inactive.
      straight holds: No two latents can be exchanged, even by a decoder that bends where they become inactive.
    >>> certificate.shift, certificate.blocks
    (array([1., 0.]), ((0,), (1,)))
    """
    estimated = estimated or rows is not None
    tol = THRESHOLDS.tolerance(tolerance, estimated=estimated)
    supports = supports_of(mixture, tol)
    n, m = supports.white.shape
    t, gap = common_point(supports)
    standard = standard_basis(supports)
    as_given = standard.misfit <= FACTOR * tol
    basis = standard if as_given else adapted_basis(supports)
    columns, places = (np.eye(n), np.flatnonzero(supports.live)) if as_given else in_given_coordinates(supports, basis)
    shared = _check_shared(gap, basis.misfit, tol, m)
    checks = [
        check_mixing("continuous, injective and piecewise affine", injective),
        _check_supports(supports, estimated=estimated),
        shared,
        _check_standard(standard.misfit, shared, t, tol),
        check_variability(basis.codes, shared.verdict, places, n),
    ]
    found = None
    if shared.verdict != "fails":
        found = _exchanges(
            supports, basis, t, places, None if rows is None else int(np.sum(rows)), estimated=estimated, affine=affine
        )
        checks.append(found.check)
    if shared.verdict != "holds":
        checks.insert(2, _check_generic(supports, tol if estimated else THRESHOLDS.genericity_share * tol))
    frame = Frame(
        basis.codes,
        places,
        n,
        shift=t if gap <= FACTOR * tol else None,
        basis=columns if shared.verdict != "fails" else None,
        estimated=estimated,
    )
    return conclude(
        tuple(checks),
        frame,
        found,
        never_bends=affine or bool((supports.ranks == m).any()),
        affine=affine,
        shared_by=share_given_basis(supports),
    )


@dataclass(frozen=True, eq=False)
class Frame:
    """The codes (m, J) of the latents in these places of n, their point and basis, and whether they are learnt."""

    codes: BoolArray
    places: IntArray
    n: int
    shift: Array | None
    basis: Array | None
    estimated: bool


def conclude(
    checks: tuple[Check, ...],
    frame: Frame,
    found: Exchanges | None,
    *,
    never_bends: bool,
    affine: bool,
    shared_by: tuple[int, ...] = (),
    premises: tuple[str, ...] = (),
) -> Certificate:
    """Return the certificate that follows from the checks."""
    codes, places = frame.codes, frame.places
    verdicts = {check.name: check.verdict for check in checks}

    def level(accepted: Callable[[Verdict], bool]) -> Level:
        if not (accepted(verdicts["mixing"]) and accepted(verdicts["supports"])):
            return Level.NONE
        if not accepted(verdicts["3.6"]):
            return Level.AT if never_bends else Level.ATWC if accepted(verdicts["3.4"]) else Level.NONE
        sparse = _sparse_level(codes, frame.n)
        if accepted(verdicts["straight"]):
            return sparse
        return Level.PS_UNBENT if sparse == Level.PS else Level.NONE

    shown, best = levels(level)
    blocks, pure = _blocks(codes, places) if shown >= Level.BLOCKS else ((), ())
    if shown == Level.AT:
        blocks = pure = (tuple(sorted(int(i) for i in places)),)
    open_pairs = found if found is not None and shown == Level.PS_UNBENT else None
    return Certificate(
        level=shown,
        if_undecided_hold=best,
        theorem=_theorem(shown, affine=affine, by_full_rank=never_bends and not affine),
        checks=checks,
        blocks=() if open_pairs else blocks,
        pure=() if open_pairs else pure,
        shift=frame.shift,
        basis=frame.basis,
        estimated=frame.estimated,
        meaning=_PARTLY.format(named("component", shared_by)) if shown == Level.ATWC and shared_by else "",
        error_level=found.error_level if found is not None and shown >= Level.AT else None,
        premises=premises,
        straight=open_pairs.straight if open_pairs else (),
        exchangeable=open_pairs.pairs if open_pairs else (),
    )


def _exchanges(
    s: Supports, basis: Basis, t: Array, places: IntArray, rows: int | None, *, estimated: bool, affine: bool
) -> Exchanges:
    """Judge which latents a mixing that bends where they become inactive could exchange."""
    masks = basis.codes.T
    if affine or masks.all(1).any():
        return Exchanges.none(affine=affine)
    if estimated and rows is None:
        return Exchanges.untested(places)
    origin = s.white.T @ (t - s.centre)
    inverse = np.linalg.inv(basis.columns)
    roots = [inverse @ (axes * np.sqrt(v)) for axes, v in zip(s.axes, s.variances, strict=True)]
    covariances = np.stack([root @ root.T for root in roots])
    patterns = Patterns.of_components(masks, s.weights, (s.means - origin) @ inverse.T, covariances)
    if rows is not None:
        counts = np.round(rows * patterns.weights).astype(np.int64)
        return Exchanges.of_rows(CountedPatterns(patterns.masks, counts), places)
    return Exchanges.of_patterns(patterns, places)


def _below(codes: BoolArray) -> BoolArray:
    """Return for (i, k) whether k is active only when i is, so that recovered latent i may contain some of k."""
    return np.asarray((codes[None] <= codes[:, None]).all(2))


def _blocks(codes: BoolArray, places: IntArray) -> tuple[Blocks, Blocks]:
    """Group the latents that may be mixed, and those of one code that are mixed with no other."""
    below = _below(codes)
    same = below & below.T
    minimal = (below == same).all(1)  # equal for all latents of one code

    def in_place(blocks: Blocks) -> Blocks:
        return tuple(sorted(tuple(sorted(int(places[i]) for i in block)) for block in blocks))

    pure = tuple(block for block in blocks_of(linked(same)) if minimal[block[0]])
    return in_place(blocks_of(linked(below))), in_place(pure)


def _sparse_level(codes: BoolArray, n: int) -> Level:
    """Return the level that sparsity adds to one affine map: none if all latents have the same code."""
    if len(codes) > 1 and (codes == codes[0]).all():
        return Level.AT
    return Level.PS if len(codes) == n and _below(codes).sum() == n else Level.BLOCKS


def _theorem(level: Level, *, affine: bool, by_full_rank: bool) -> str:
    theorem = {
        Level.NONE: "",
        Level.ATWC: "Theorem 3.5 (Xu et al. 2026)",
        Level.AT: "Theorem 3.7 (Xu et al. 2026)",
        Level.BLOCKS: "Theorem 3.9 for blocks (Xu et al. 2026, App. E.5)",
        Level.PS_UNBENT: "Theorem 3.9 (Xu et al. 2026)",
        Level.PS: "Theorem 3.9 (Xu et al. 2026)",
    }[level]
    if level < Level.AT or affine:
        return theorem
    if not by_full_rank:
        return f"{theorem}, with straight latents in place of 3.4"
    first = "Theorem B.12 (Kivva et al. 2022) for a component of full rank"
    return first if level == Level.AT else f"{first}, then the sparsity step of {theorem}"


def _check_supports(s: Supports, *, estimated: bool) -> Check:
    inactive, active = s.largest_inactive, s.smallest_active
    # An estimate of zero is never zero: there a wide gap between inactive and active directions decides as well.
    clear = inactive <= s.tol / FACTOR and active >= FACTOR * s.tol
    clear = clear or (estimated and active >= FACTOR**2 * inactive > 0)
    closest = min((inactive, active), key=lambda value: abs(np.log(max(value, 1e-300) / s.tol)))
    ranks = f"{s.ranks.min()} to {s.ranks.max()} of {len(s.white)}"
    sentence = f"The number of directions that vary in each component is clear: {ranks}."
    if not clear:
        size = f"varies by {closest:.2g} of the largest standard deviation"
        sentence = f"A direction of some component {size}, neither clearly active nor inactive; ranks used: {ranks}."
    verdict: Verdict = "holds" if clear else "inconclusive"
    return Check("supports", "the rank of every covariance is clear", closest, s.tol, verdict, sentence)


def _check_generic(s: Supports, threshold: float) -> Check:
    statement = "supports of equal rank that meet in a hyperplane of both have different Mahalanobis distances there"
    found = least_difference(s)
    if found is None:
        sentence = "No two components lie so that a bent mixing could exchange parts of them."
        return Check("3.4", statement, None, threshold, "holds", sentence)
    least, (i, j) = found
    verdict = verdict_of(least, threshold, small=False)
    pair = f"{s.names[i]} and {s.names[j]}"
    sentence = {
        "holds": f"Components that a bent mixing could exchange differ where they meet; the closest pair is {pair}.",
        "fails": f"Components {pair} are equal where they meet: a bent mixing could exchange halves of them.",
        "inconclusive": f"Components {pair} are almost equal where they meet (log-ratio {least:.1g}).",
    }[verdict]
    return Check("3.4", statement, least, threshold, verdict, sentence)


def _check_shared(gap: float, misfit: float, tol: float, m: int) -> Check:
    worst = max(gap, misfit)
    verdict = verdict_of(worst, tol, small=True)
    if verdict == "holds":
        sentence = f"All components share a point and a basis: each is spanned by some of the same {m} directions."
    elif verdict == "inconclusive":
        sentence = f"A point and a basis nearly fit all components, with an error of {worst:.2g} standard deviations."
    elif misfit <= FACTOR * tol:
        sentence = f"The components have no point in common: the best one misses some by {gap:.2g} standard deviations."
    else:
        sentence = f"No basis has directions that span each component (the worst is off by {misfit:.2g})."
    return Check("3.6", "all supports share a point and one basis", worst, tol, verdict, sentence)


def _check_standard(misfit: float, shared: Check, t: Array, tol: float) -> Check:
    verdict = verdict_of(misfit, tol, small=True)
    if shared.verdict == "fails" or (shared.verdict == "inconclusive" and verdict == "holds"):
        verdict = shared.verdict
    shift = ", once z is shifted by the common point (`shift`)" if t.any() else ""
    if verdict == "holds":
        sentence = f"The shared directions are the given latents{shift}."
    elif verdict == "inconclusive":
        sentence = f"The shared directions are nearly the given latents{shift}, with an error of {misfit:.2g}."
    elif shared.verdict == "fails":
        sentence = "The components have no shared directions that could be the given latents."
    else:
        sentence = "The shared directions (`basis`) are identified, the given latents only up to one affine map."
    return Check("3.8a", "the shared basis is the standard one, up to a shift", misfit, tol, verdict, sentence)


def check_variability(codes: BoolArray, shared: Verdict, places: IntArray, n: int) -> Check:
    """Judge 3.8b by the codes (m, J) of the latents in these places."""
    statement = "for every two latents i, k some component has k active and i inactive"
    if shared == "fails":
        sentence = "Without a shared basis no latents are defined that could be active or inactive."
        return Check("3.8b", statement, None, 0.0, "inconclusive", sentence)
    below, always = _below(codes), codes.all(1)
    same = below & below.T
    holders = (below & ~same).any(1)
    dead = np.setdiff1d(np.arange(n), places)
    some, mixed = always.any() and not always.all(), holders & ~always
    sentences = (
        (len(dead), f"Constant in all components, so it cannot be identified: {named('latent', dead)}."),
        (always.all(), "Every latent is always active, so sparsity gives nothing."),
        (some, f"Always active: {named('latent', np.sort(places[always]))}."),
        ((same.sum(1) > 1).any() and not always.all(), "Some latents are always active together: not separated."),
        (mixed.any(), f"Active whenever another latent is: {named('latent', np.sort(places[mixed]))}."),
        (holders.any(), "Such latents may contain the others once recovered, and count as one block with them."),
    )
    found = [sentence for applies, sentence in sentences if applies]
    found = found or ["For every two latents, some component has the one active and the other inactive."]
    pairs = int(below.sum()) - len(codes)
    verdict: Verdict = "fails" if pairs or len(dead) else "holds"
    verdict = verdict if shared == "holds" else "inconclusive"
    return Check("3.8b", statement, float(pairs), 0.0, verdict, " ".join(found))
