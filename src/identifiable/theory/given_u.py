r"""Which assumptions of the iVAE theorems a prior given u meets, and what is then identified (Khemakhem et al. 2020).

Theorems are numbered as published at AISTATS 2020 (four authors). Preprints number them differently: there k = 1 may be
Theorem 2, and consistency Theorem 3.

Given u, latents are independent with :math:`p(z_i | u) \propto Q(z_i) \exp \sum_j T_j(z_i) \lambda_{ij}(u)`, and x is
f(z) with noise, f injective and continuous both ways. The claim is about every other such model, of the same family,
with the same p(x | u): primes mark it.

    Theorem 1  if L, with rows :math:`\lambda_{ij}(u_l) - \lambda_{ij}(u_0)`, has rank nk:  T(z) = A T(z') + c
    Theorem 2  if also k >= 2, T is twice differentiable and f has all second cross derivatives: A permutes latents
    Theorem 3  if also k = 1 and T is not monotonic:  A is a scaled permutation

**From T to z.** For T(z) = z it is AT. For T = (z - m)² or \|z - m\|, T and T' both have the minimum 0, so c = 0 and
:math:`|z_i - m_i| = a |z'_j - m'_j|`. z' to z is continuous, so on each side of :math:`z'_j = m'_j` the sign is one,
and injective, so the two signs differ: order, sign and scale, no shift. This is PS.

**From A to z, k = 2.** For T = (z, z²) Theorem 2 asks for a smooth f; the form of A needs none of it. z' fills an open
set, on which z_i is a polynomial, :math:`z_i = \sum_j a_{ij} z'_j + b_{ij} z'^2_j + c_i`, and so is its square, without
cross terms and of degree 2. The coefficient of :math:`z'^4_j` in the square is :math:`b_{ij}^2`, so b = 0; that of
:math:`z'_j z'_k` is then :math:`2 a_{ij} a_{ik}`, so one a_ij at most is not 0. A is invertible, so one is, and the j
of different i differ. This is PS, with a shift. That b = 0, by the terms of degree 4, is known (Kivva et al. 2022,
Proposition G.2; Sorrenson et al. 2020); the argument by cross terms is ours.

**Means alone.** For T = z nothing more follows: a rotation of latents of equal variance gives another such prior.

**Noise.** It can be removed if its distribution is known. It need not be where its variance is unknown and n = d: with
f orthogonal and T = z², variances :math:`D_u` with noise :math:`\sigma^2` and :math:`D_u + \delta I` with
:math:`\sigma^2 - \delta` give the same x. With n < d isotropic noise has its own variance, which is seen outside the
image of f, and is identified; a variance for each column is not, in general. With noise, f and the distributions are
identified; the value of z behind a row is known only a posteriori.

**The rank of L.** Sampling noise gives any L full rank, so the statistic is the number of standard errors by which the
least varied direction of :math:`\lambda(u)` varies, for any u_0: see `identifiable.theory.rank`. Errors are estimated
for means and log scales, which are closer to normal than :math:`\lambda`, and carried over by the delta method; those
of different latents are independent, as the latents are given u. For an exact distribution they are the tolerance.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from identifiable.arrays import Array
from identifiable.distributions.conditional import ConditionalPrior, Family
from identifiable.errors import DataError
from identifiable.theory.certificate import Certificate, Check, Finding, Level, Verdict, check_mixing, levels
from identifiable.theory.rank import by_chance, dependence, least_varied
from identifiable.theory.thresholds import THRESHOLDS

FACTOR = THRESHOLDS.undecided_factor
PREMISE = "the true mixing is injective and continuous both ways, too, and the latents are independent given u"
Observation = Literal["gaussian", "gaussian-unknown", "bernoulli", "categorical", "none"]


@dataclass(frozen=True)
class _Claim:
    """A family: T in words, what does not change with u, whether T has a minimum, and what the theorems then give."""

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
    "variance": _Claim("(z - m)²", "means", True, Level.PS, f"Theorem 3 {_KHEMAKHEM}", _CENTRED),
    "laplace": _Claim("|z - m|", "means", True, Level.PS, f"Theorem 3 {_KHEMAKHEM}", _CENTRED),
    "mean": _Claim("z", "scales", False, Level.AT, f"Theorem 1 {_KHEMAKHEM}"),
    "gaussian": _Claim(
        "(z, z²)", "", False, Level.PS, f"Theorem 1 {_KHEMAKHEM} and the form of its A", f"{_PS}, scale and shift"
    ),
}


def certify_conditional(
    prior: ConditionalPrior,
    *,
    estimated: bool = False,
    injective: bool | None = None,
    observation: Observation | None = None,
    tolerance: float | None = None,
) -> Certificate:
    r"""Return what is identified when x is f(z) with noise, and z given u follows a conditionally factorial prior.

    A ``gaussian`` prior that does not meet Theorem 1 is treated as ``variance`` if its means do not change with u, and
    as ``mean`` if its scales do not; the check "family" says so.

    Parameters
    ----------
    prior : ConditionalPrior. The distribution of the latents given u, true or learnt; with a `bootstrap` it is learnt.
    estimated : bool, default=False. Whether the prior was learnt: errors are those of its bootstrap or counts, and the
        certificate says so.
    injective : bool or None, default=None. Whether f (or the decoder) is injective and continuous both ways. None:
        inconclusive.
    observation : str or None, default=None. The noise of x around f(z): "none"; "gaussian", of known variance, or
        isotropic with fewer latents than columns; "gaussian-unknown", otherwise; or x is "bernoulli" or "categorical"
        with logits f(z). None: inconclusive.
    tolerance : float or None, default=None. Differences of means, in standard deviations, and of log scales up to it
        count as zero. None: 1e-5, or 0.05 when estimated. If errors are known, L has full rank from three times what
        chance gives; it fails only if errors are within the tolerance, else the check is inconclusive.

    Examples
    --------
    >>> certificate = certify_conditional(
    ...     ConditionalPrior("variance", np.zeros((3, 2)), [[1, 1], [2, 1], [1, 2]]), injective=True, observation="none"
    ... )
    >>> print(certificate)
    Guarantee: Every latent is recovered up to order, sign and scale, once measured from its mean (`shift`).
      Level: PS, by Theorem 3 (Khemakhem et al. 2020).
      Provided that the true mixing is injective and continuous both ways, too, and the latents are independent given u.
    Checks:
      mixing holds: Given: the mixing is injective and continuous both ways.
      1.i holds: There is no noise to remove.
      1.ii holds: T(z) = (z - m)² has a nonzero derivative except at one point.
      family holds: The means of the latents do not change with u.
      values holds: u has 3 values; nk + 1 = 3 are needed.
      1.iii holds: L has full rank 2: even its least varied direction varies by 2.36e+04 times the tolerance.
      3.i holds: k = 1, and T is the same for all latents.
      3.ii holds: T has its minimum at one point.
    """
    if observation not in (None, *get_args(Observation)):
        raise DataError(f"observation must be one of {list(get_args(Observation))} or None, got {observation!r}.")
    estimated = estimated or prior.bootstrap is not None
    tol = THRESHOLDS.tolerance(tolerance, estimated=estimated)
    given = (check_mixing("injective and continuous both ways", injective), _check_noise(observation))
    found = [_judge(prior, given, tol, estimated=estimated)]
    if prior.family == "gaussian" and found[0]["1.iii"].verdict != "holds":
        families: tuple[Family, ...] = ("variance", "mean")
        found += [_judge(replace(prior, family=f), given, tol, estimated=estimated, inferred=True) for f in families]
    best = max(found, key=lambda certificate: (certificate.level, certificate.if_undecided_hold))
    return replace(best, if_undecided_hold=max(certificate.if_undecided_hold for certificate in found))


def _judge(
    prior: ConditionalPrior, given: tuple[Check, Check], tol: float, *, estimated: bool, inferred: bool = False
) -> Certificate:
    """Certify a prior by its family, which the caller gave or which is inferred from a Gaussian one."""
    claim, own = _CLAIMS[prior.family], _standardised(prior)
    errors = own.uncertainty if estimated else None
    used = (
        _check_family(own, claim, errors, tol, inferred=inferred),
        _check_values(own),
        _check_rank(own, errors, tol),
    )
    smooth = f"T(z) = {claim.T} has a nonzero derivative except at one point." if claim.T != "z" else "T(z) = z."
    differentiable = Check("1.ii", "T is differentiable almost everywhere, and T' not 0", None, None, "holds", smooth)

    def level(accepted: Callable[[Verdict], bool]) -> Level:
        return claim.level if all(accepted(check.verdict) for check in (*given, *used)) else Level.NONE

    shown, best = levels(level)
    blocks = {Level.PS: tuple((i,) for i in range(prior.n)), Level.AT: (tuple(range(prior.n)),)}.get(shown, ())
    return Certificate(
        level=shown,
        if_undecided_hold=best,
        theorem=claim.theorem if shown else "",
        checks=(*given, differentiable, *used, *_check_theorem_3(claim, prior.k)),
        blocks=blocks,
        pure=blocks,
        shift=None if not shown else prior.weights @ prior.means if claim.minimum else np.zeros(prior.n),
        basis=np.eye(prior.n) if shown else None,
        estimated=estimated,
        meaning=claim.meaning if shown else "",
        error_level=THRESHOLDS.error_level if estimated else None,
        premises=(PREMISE,) if shown else (),
    )


def _standardised(prior: ConditionalPrior) -> ConditionalPrior:
    """Centre and scale every latent by its moments over all u; leave out values of u without weight."""
    kept = prior.weights > 0
    centre, unit = prior.weights @ prior.means, np.sqrt(prior.weights @ prior.scales**2)
    origin = np.stack([centre, np.zeros(prior.n)], axis=1)  # scales are not centred
    copies = None if prior.bootstrap is None else (prior.bootstrap[:, kept] - origin) / unit[:, None]
    counts = None if prior.counts is None else prior.counts[kept]
    means, scales = (prior.means[kept] - centre) / unit, prior.scales[kept] / unit
    return ConditionalPrior(prior.family, means, scales, prior.weights[kept], counts, copies)


def _check_noise(observation: Observation | None) -> Check:
    discrete = "Supplement E argues so by a limit, but a finite table p(x | u) cannot determine all of f."
    sentence = {
        "none": "There is no noise to remove.",
        "gaussian": "Gaussian noise of known variance can be removed: its characteristic function is nowhere 0. The "
        "mixing and the distribution of the latents are then identified, the latents of a row only a posteriori.",
        "gaussian-unknown": "The variance of the noise was estimated: another one may give the same x, with other "
        "variances of the latents.",
        None: "Not known: the noise may have a known distribution or not.",
    }.get(observation, discrete)
    verdict: Verdict = "holds" if observation in ("none", "gaussian") else "inconclusive"
    statement = "the noise has a known distribution, with a characteristic function that is almost nowhere 0"
    return Check("1.i", statement, None, None, verdict, sentence)


def _check_family(own: ConditionalPrior, claim: _Claim, errors: Array | None, tol: float, *, inferred: bool) -> Check:
    if not claim.constant:
        sentence = (
            "Assumed: given u, latents are independent and Gaussian; their means and variances may change with u."
        )
        return Check("family", "the distribution belongs to its family", None, None, "holds", sentence)
    part = ["means", "scales"].index(claim.constant)
    values, w = (own.means, np.log(own.scales))[part], own.weights
    between, zero = w @ (values - w @ values) ** 2, tol
    if errors is not None:
        noise = (w * (1 - w)) @ errors[:, :, part, part]
        between = between - noise
        if not inferred and len(w) > 1:  # what chance may add is no reason to doubt the given family
            zero = float(np.sqrt(tol**2 + noise.max() * (by_chance(len(w) - 1, own.n) ** 2 - 1)))
    varies = float(np.sqrt(max(between.max(), 0)))
    verdict: Verdict = "holds" if varies <= zero else "fails" if varies >= FACTOR**2 * zero else "inconclusive"
    sentence = f"The {claim.constant} of the latents do not change with u."
    if verdict != "holds":
        size = f"{varies:.2g}" + ("" if part else " standard deviations")
        sentence = (
            f"The {claim.constant} of latent {between.argmax()} change with u by {size}; the family '{own.family}' has "
            "them constant, 'gaussian' has not."
        )
    if inferred:
        sentence += f" Treated as a distribution in which only the {'means' if part else 'variances'} change."
    return Check("family", f"the {claim.constant} do not change with u", varies, FACTOR * zero, verdict, sentence)


def _check_values(own: ConditionalPrior) -> Check:
    G, needed = len(own.means), own.n * own.k + 1
    sentence = f"u has {G} values; nk + 1 = {needed} are needed" + (f": {needed - G} more." if needed > G else ".")
    verdict: Verdict = "holds" if needed <= G else "fails"
    return Check("values", "u takes nk + 1 values or more", float(G), float(needed), verdict, sentence)


def _check_rank(own: ConditionalPrior, errors: Array | None, tol: float) -> Check:
    (G, n), k = own.means.shape, own.k
    freedom = G - n * k
    if freedom < 1:
        sentence = f"With {G} values of u, L has rank {G - 1} at most, and nk = {n * k}."
        return Check("1.iii", "L has rank nk", None, None, "fails", sentence)
    unit, precise, least = "times the tolerance", True, tol
    if errors is not None:
        parts = {"mean": [0], "gaussian": [0, 1]}.get(own.family, [1])
        precise = all(np.median(errors[..., part, part]) <= tol**2 for part in parts)
        unit, least = "standard errors", THRESHOLDS.exact  # no estimate is without error
    floor = least**2 * np.stack([own.scales**2, np.ones((G, n))], axis=-1)[..., None] * np.eye(2)
    errors = floor if errors is None else errors + floor
    blocks = own.jacobian @ errors @ own.jacobian.swapaxes(2, 3)  # (G, n, k, k)
    covariances = np.einsum("uijl,ih->uijhl", blocks, np.eye(n)).reshape(G, n * k, n * k)
    y = own.natural.reshape(G, n * k)
    q, v = least_varied(y, covariances)
    statistic, threshold = float(np.sqrt(q / freedom)), by_chance(freedom)
    size = f"its least varied direction varies by {statistic:.3g} {unit}"
    if statistic >= FACTOR * threshold:
        found = Finding("holds", f"L has full rank {n * k}: even {size}.")
    elif statistic <= threshold and precise:
        found = Finding("fails", f"L has rank below {n * k}, within the tolerance: {dependence(y, covariances, v, k)}.")
    else:
        needed, why = f"full rank takes {FACTOR * threshold:.2g}", dependence(y, covariances, v, k)
        sentence = f"L may have rank below {n * k}: {size}, {needed}. In that direction {why}."
        found = Finding("inconclusive", sentence)
    return found._replace(statistic=statistic, threshold=threshold).check("1.iii", "L has rank nk")


def _check_theorem_3(claim: _Claim, k: int) -> tuple[Check, Check]:
    first = statement = "k = 1, and T is the same for all latents"
    second = "T has its minimum at one point" if claim.minimum else "T(z) = z has no minimum: the affine map stays"
    if k > 1:
        first = second = f"Theorem 3 does not apply to T(z) = {claim.T}; the form of A is used instead"
    return (
        Check("3.i", statement, float(k), 1.0, "holds" if k == 1 else "fails", f"{first}."),
        Check("3.ii", "T has a unique minimum", None, None, "holds" if claim.minimum else "fails", f"{second}."),
    )
