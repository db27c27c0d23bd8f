"""The certificate of a fit of `PDGMM`: the theorems on its mixture, and checks beyond them."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from identifiable.agreement.stability import Stability
from identifiable.arrays import Array
from identifiable.distributions.mixture import Mixture
from identifiable.theory import Certificate, Check, certify


@dataclass(frozen=True)
class Thresholds:
    """What decides a certificate, beside the thresholds of the theorems."""

    rare: float = 0.2  # components of less weight, relative to a typical one, are mostly misread patterns
    judged: float = 0.9  # share of rows that the certified components must hold: one row in ten may be misread
    all_active: float = 0.1  # share of rows with all latents active that raises a doubt: more than misread patterns
    by_chance: float = 3.0  # times that share under independence that raises a doubt
    flattest: float = 0.02  # sd below which a direction is degenerate under a full-rank mixture, where hardly any is


THRESHOLDS = Thresholds()

NOT_GAUSSIAN = Check(
    name="gaussian",
    statement="the components are Gaussian",
    statistic=None,
    threshold=None,
    verdict="fails",
    sentence="Active latents are too skewed to be Gaussian: no theorem on Gaussian mixtures applies.",
)


def certificate_of(
    stability: Stability,
    mixture: Mixture,
    patterns: NDArray[np.bool_],
    *,
    full_rank: bool,
    skewed: bool,
    injective: bool | None,
) -> Certificate:
    """Certify a learnt mixture, with the patterns (J, n) of activity of its components, if restarts agree."""
    status = stability.status
    agree = stability.check
    if status == "unstable" or skewed:
        return Certificate.nothing(agree, *([] if status == "unstable" else [NOT_GAUSSIAN]))
    judged, share = frequent_part(mixture)
    components = Check(
        name="components",
        statement="the certified components hold the rows",
        statistic=share,
        threshold=THRESHOLDS.judged,
        verdict="holds" if share >= THRESHOLDS.judged else "inconclusive",
        sentence=f"{len(judged.weights)} components with {share:.0%} of the rows are certified; "
        f"{len(mixture.weights) - len(judged.weights)} rare ones, mostly misread patterns, are left out.",
    )
    if not judged.covariances.any():  # in all frequent components every latent is inactive
        return Certificate.nothing(agree, components)
    found = certify(judged, estimated=True, injective=injective, tolerance=THRESHOLDS.flattest if full_rank else None)
    odd = None if full_rank else other_basis(patterns, mixture.weights)
    checks = (agree, components, *found.checks, *([] if odd is None else [odd]))
    if odd is not None or status != "stable":
        return Certificate.nothing(*checks, if_undecided_hold=found.if_undecided_hold)
    return replace(found, checks=checks)


def frequent_part(mixture: Mixture) -> tuple[Mixture, float]:
    """Return the mixture of the components that are not rare beside that of a typical row, and their share."""
    order = np.argsort(mixture.weights)
    typical = mixture.weights[order][np.searchsorted(np.cumsum(mixture.weights[order]), 0.5)]
    frequent = mixture.weights >= THRESHOLDS.rare * typical
    weights = mixture.weights[frequent]
    part = Mixture(weights / weights.sum(), mixture.means[frequent], mixture.covariances[frequent])
    return part, float(weights.sum())


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
