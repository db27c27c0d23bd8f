r"""Which assumptions of the iVAE theorems a prior given u meets, and what is then identified (Khemakhem et al. 2020).

Given u, latents are independent with :math:`p(z_i | u) \propto Q(z_i) \exp \sum_j T_j(z_i) \lambda_{ij}(u)`, and x is
f(z) with noise, f injective and continuous both ways. The claim is about every other such model, of the same family,
with the same p(x | u): primes mark it.

    Theorem 1  if L, with rows :math:`\lambda_{ij}(u_l) - \lambda_{ij}(u_0)`, has rank nk:  T(z) = A T(z') + c
    Theorem 2  if also k = 1 and T has a unique minimum:  A is a scaled permutation

**From T to z.** For T(z) = z it is AT. For T = (z - m)² or \|z - m\|, T and T' both have the minimum 0, so c = 0 and
:math:`|z_i - m_i| = a |z'_j - m'_j|`. z' to z is continuous, so on each side of :math:`z'_j = m'_j` the sign is one,
and injective, so the two signs differ: order, sign and scale, no shift. This is PS.

**From A to z, k = 2.** For T = (z, z²) Theorem 2 is silent, but A has a form. z' fills an open set, on which z_i is a
polynomial, :math:`z_i = \sum_j a_{ij} z'_j + b_{ij} z'^2_j + c_i`, and so is its square, without cross terms and of
degree 2. The coefficient of :math:`z'^4_j` in the square is :math:`b_{ij}^2`, so b = 0; that of :math:`z'_j z'_k` is
then :math:`2 a_{ij} a_{ik}`, so one a_ij at most is not 0. A is invertible, so one is, and the j of different i differ.
This is PS, with a shift.

**The rank of L.** Sampling noise gives any L full rank, so what is looked at is by how many standard errors the least
varied direction of :math:`\lambda(u)` varies, whichever u_0: see `identifiable.theory.rank`. Errors are estimated for
means and log scales, which are closer to normal than :math:`\lambda`, and carried over by the delta method; those of
different latents are independent, as the latents are given u. For an exact law they are the tolerance.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from identifiable.distributions.conditional import ConditionalPrior, Family
from identifiable.errors import DataError
from identifiable.theory.certificate import Certificate, Check, Level, Verdict, check_mixing
from identifiable.theory.degenerate import ESTIMATED, EXACT
from identifiable.theory.rank import by_chance, dependence, least_varied
from identifiable.theory.supports import ZONE

FloatArray = NDArray[np.float64]
Observation = Literal["gaussian", "bernoulli", "categorical", "none"]


@dataclass(frozen=True)
class _Claim:
    """What a family says: T in words, what u leaves alone, whether T has a minimum, and what the theorems then give."""

    T: str
    constant: str
    minimum: bool
    level: Level
    theorem: str
    meaning: str = ""


_KHEMAKHEM = "(Khemakhem et al. 2020)"
_PS = "every latent is recovered up to order, sign"
_CENTRED = f"{_PS} and scale, once measured from its mean (`shift`)"
_CLAIMS = {
    "variance": _Claim("(z - m)²", "means", True, Level.PS, f"Theorem 2 {_KHEMAKHEM}", _CENTRED),
    "laplace": _Claim("|z - m|", "means", True, Level.PS, f"Theorem 2 {_KHEMAKHEM}", _CENTRED),
    "mean": _Claim("z", "scales", False, Level.AT, f"Theorem 1 {_KHEMAKHEM}"),
    "gaussian": _Claim(
        "(z, z²)", "", False, Level.PS, f"Theorem 1 {_KHEMAKHEM} and the form of its A", f"{_PS}, scale and shift"
    ),
}


def certify_conditional(
    law: ConditionalPrior,
    *,
    estimated: bool = False,
    injective: bool | None = None,
    observation: Observation | None = None,
    tolerance: float | None = None,
) -> Certificate:
    r"""Say what is identified when x is f(z) with noise, and z given u follows a conditionally factorial prior.

    A ``gaussian`` law that does not meet Theorem 1 is read as ``variance`` if its means do not vary with u, and as
    ``mean`` if its scales do not; the check "family" says so.

    Parameters
    ----------
    law : the law of the latents given u, true or learnt; one with a `bootstrap` is estimated.
    estimated : the law was learnt: errors are those of its bootstrap or counts, and the certificate says so.
    injective : whether f (or the decoder) is injective and continuous both ways; None: not known, a premise.
    observation : how x is drawn about f(z): "gaussian" noise, "none", or x "bernoulli" or "categorical" with f(z) the
        logits; None: not known, a premise.
    tolerance : differences of means, in standard deviations, and of log scales up to it count as zero; default 1e-5,
        or 0.05 when estimated. Where errors are known, they decide whether L has full rank, which holds from three
        times what chance gives; it fails only where they are within the tolerance, else it cannot be told.

    Examples
    --------
    >>> certificate = certify_conditional(
    ...     ConditionalPrior("variance", np.zeros((3, 2)), [[1, 1], [2, 1], [1, 2]]), injective=True, observation="none"
    ... )
    >>> print(certificate)
    Identified up to: PS, by Theorem 2 (Khemakhem et al. 2020)
      every latent is recovered up to order, sign and scale, once measured from its mean (`shift`).
    Checks:
      mixing holds: The mixing is taken to be injective and continuous both ways, as told.
      1.i holds: There is no noise to remove.
      1.ii holds: T(z) = (z - m)² has a derivative that is not 0, but at one point.
      family holds: The means of the latents do not vary with u.
      values holds: There are 3 values of u, and nk + 1 = 3 are needed.
      1.iii holds: L has full rank 2: even its least varied direction varies by 2.36e+04 times the tolerance.
      2.i holds: k = 1, and T is the same for all latents.
      2.ii holds: T is least at one point.
    """
    if observation not in (None, *get_args(Observation)):
        raise DataError(f"observation must be one of {list(get_args(Observation))} or None, got {observation!r}.")
    if tolerance is not None and not 0 < tolerance < 0.3:
        raise DataError(f"tolerance must lie between 0 and 0.3 standard deviations, got {tolerance}.")
    estimated = estimated or law.bootstrap is not None
    tol = tolerance if tolerance is not None else ESTIMATED if estimated else EXACT
    told = (check_mixing("injective and continuous both ways", injective), _check_noise(observation))
    found = [_judge(law, told, tol, estimated=estimated)]
    if law.family == "gaussian" and found[0]["1.iii"].verdict != "holds":
        parts: tuple[tuple[Family, str], ...] = (("variance", "variances"), ("mean", "means"))
        for family, changing in parts:
            other = _judge(replace(law, family=family), told, tol, estimated=estimated, read=True)
            found.append(_read_as(other, changing))
    best = max(found, key=lambda certificate: (certificate.level, certificate.if_undecided_hold))
    return replace(best, if_undecided_hold=max(certificate.if_undecided_hold for certificate in found))


def _judge(
    law: ConditionalPrior, told: tuple[Check, Check], tol: float, *, estimated: bool, read: bool = False
) -> Certificate:
    """Certify a law as of its family, which is told, or only read into it."""
    claim, own = _CLAIMS[law.family], _own_units(law)
    errors = own.uncertainty if estimated else None
    used = (_check_family(own, claim, errors, tol, read=read), _check_values(own), _check_rank(own, errors, tol))
    smooth = f"T(z) = {claim.T} has a derivative that is not 0, but at one point." if claim.T != "z" else "T(z) = z."
    checks = (
        *told,
        Check("1.ii", "T is differentiable almost everywhere, and T' not 0", None, None, "holds", smooth),
        *used,
        *_check_theorem_2(claim, law.k),
    )

    def level(accepted: Callable[[Verdict], bool]) -> Level:
        given = all(check.verdict != "fails" for check in told) and all(accepted(check.verdict) for check in used)
        return claim.level if given else Level.NONE

    shown = level(lambda verdict: verdict == "holds")
    blocks = {Level.PS: tuple((i,) for i in range(law.n)), Level.AT: (tuple(range(law.n)),)}.get(shown, ())
    return Certificate(
        level=shown,
        if_undecided_hold=level(lambda verdict: verdict != "fails"),
        theorem=claim.theorem if shown else "",
        checks=checks,
        blocks=blocks,
        pure=blocks,
        shift=None if not shown else law.weights @ law.means if claim.minimum else np.zeros(law.n),
        basis=np.eye(law.n) if shown else None,
        estimated=estimated,
        meaning=claim.meaning if shown else "",
    )


def _read_as(certificate: Certificate, changing: str) -> Certificate:
    """Say in the check "family" that a Gaussian law is read as one of which only a part changes with u."""
    family = certificate["family"]
    words = f"{family.sentence} The law is read as one of changing {changing}."
    checks = (replace(family, sentence=words) if check is family else check for check in certificate.checks)
    return replace(certificate, checks=tuple(checks))


def _own_units(law: ConditionalPrior) -> ConditionalPrior:
    """Centre and scale every latent by what it is over all u; leave out values of u without weight."""
    kept = law.weights > 0
    centre, unit = law.weights @ law.means, np.sqrt(law.weights @ law.scales**2)
    origin = np.stack([centre, np.zeros(law.n)], axis=1)  # scales have their own
    copies = None if law.bootstrap is None else (law.bootstrap[:, kept] - origin) / unit[:, None]
    counts = None if law.counts is None else law.counts[kept]
    means, scales = (law.means[kept] - centre) / unit, law.scales[kept] / unit
    return ConditionalPrior(law.family, means, scales, law.weights[kept], counts, copies)


def _check_noise(observation: Observation | None) -> Check:
    discrete = "Supplement E argues so by a limit, but a finite table p(x | u) cannot hold all of f: a premise."
    sentence = {
        "none": "There is no noise to remove.",
        "gaussian": "Gaussian noise can be removed: its characteristic function is nowhere 0.",
        "bernoulli": discrete,
        "categorical": discrete,
        None: "All that is said here is on the premise that the noise can be removed.",
    }[observation]
    verdict: Verdict = "holds" if observation in ("none", "gaussian") else "inconclusive"
    return Check(
        "1.i", "the noise has a characteristic function that is almost nowhere 0", None, None, verdict, sentence
    )


def _check_family(own: ConditionalPrior, claim: _Claim, errors: FloatArray | None, tol: float, *, read: bool) -> Check:
    if not claim.constant:
        sentence = "Given u, the latents are taken to be independent and Gaussian; mean and variance may vary with u."
        return Check("family", "the law is of its family", None, None, "holds", sentence)
    part = ["means", "scales"].index(claim.constant)
    values, w = (own.means, np.log(own.scales))[part], own.weights
    between, zero = w @ (values - w @ values) ** 2, tol
    if errors is not None:
        noise = (w * (1 - w)) @ errors[:, :, part, part]
        between = between - noise
        if not read and len(w) > 1:  # what chance may add is no reason to doubt what is told
            zero = float(np.sqrt(tol**2 + noise.max() * (by_chance(len(w) - 1, own.n) ** 2 - 1)))
    varies = float(np.sqrt(max(between.max(), 0)))
    verdict: Verdict = "holds" if varies <= zero else "fails" if varies >= ZONE**2 * zero else "inconclusive"
    sentence = f"The {claim.constant} of the latents do not vary with u"
    if verdict != "holds":
        size = f"{varies:.2g}" + ("" if part else " standard deviations")
        sentence = (
            f"The {claim.constant} of latent {between.argmax()} vary with u by {size}, and the family '{own.family}' "
            "has them constant; 'gaussian' has not"
        )
    statement = f"the {claim.constant} do not vary with u"
    return Check("family", statement, varies, ZONE * zero, verdict, sentence + ".")


def _check_values(own: ConditionalPrior) -> Check:
    G, needed = len(own.means), own.n * own.k + 1
    sentence = f"There are {G} values of u, and nk + 1 = {needed} are needed"
    sentence += "." if needed <= G else f": {needed - G} more."
    verdict: Verdict = "holds" if needed <= G else "fails"
    return Check("values", "u takes nk + 1 values or more", float(G), float(needed), verdict, sentence)


def _check_rank(own: ConditionalPrior, errors: FloatArray | None, tol: float) -> Check:
    (G, n), k = own.means.shape, own.k
    statement, freedom = "L has rank nk", G - n * k
    if freedom < 1:
        sentence = f"With {G} values of u, L has rank {G - 1} at most, and nk = {n * k}."
        return Check("1.iii", statement, None, None, "fails", sentence)
    unit, precise, least = "times the tolerance", True, tol
    if errors is not None:
        parts = {"mean": [0], "gaussian": [0, 1]}.get(own.family, [1])
        precise = all(np.median(errors[..., part, part]) <= tol**2 for part in parts)
        unit, least = "standard errors", EXACT  # no estimate is without error
    floor = least**2 * np.stack([own.scales**2, np.ones((G, n))], axis=-1)[..., None] * np.eye(2)
    errors = floor if errors is None else errors + floor
    blocks = own.jacobian @ errors @ own.jacobian.swapaxes(2, 3)  # (G, n, k, k)
    covariances = np.einsum("uijl,ih->uijhl", blocks, np.eye(n)).reshape(G, n * k, n * k)
    y = own.natural.reshape(G, n * k)
    q, v = least_varied(y, covariances)
    statistic, threshold = float(np.sqrt(q / freedom)), by_chance(freedom)
    size = f"{statistic:.3g} {unit}"
    if statistic >= ZONE * threshold:
        verdict: Verdict = "holds"
        sentence = f"L has full rank {n * k}: even its least varied direction varies by {size}."
    elif statistic <= threshold and precise:
        verdict = "fails"
        sentence = f"L has rank below {n * k}, within the tolerance: {dependence(y, covariances, v, k)}."
    else:
        verdict = "inconclusive"
        sentence = (
            f"L may have rank below {n * k}: its least varied direction varies by {size}, {ZONE * threshold:.2g} would "
            f"decide. In that direction {dependence(y, covariances, v, k)}."
        )
    return Check("1.iii", statement, statistic, threshold, verdict, sentence)


def _check_theorem_2(claim: _Claim, k: int) -> tuple[Check, Check]:
    first = "k = 1, and T is the same for all latents."
    second = "T is least at one point." if claim.minimum else "T(z) = z has no minimum: the affine map stays."
    if k > 1:
        first = second = f"Theorem 2 is not for T(z) = {claim.T}, and not needed: the form of A does its work."
    return (
        Check("2.i", "k = 1, and T is the same for all latents", float(k), 1.0, "holds" if k == 1 else "fails", first),
        Check("2.ii", "T has a unique minimum", None, None, "holds" if claim.minimum else "fails", second),
    )
