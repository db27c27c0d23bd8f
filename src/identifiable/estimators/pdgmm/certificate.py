"""What a fit of `PDGMM` may promise: the theorems on its mixture, and what they do not see."""

import numpy as np
from numpy.typing import NDArray

from identifiable.arrays import Array
from identifiable.distributions.mixture import Mixture
from identifiable.estimators.base import Stability
from identifiable.theory import Certificate, Check, Level, certify

RARE_COMPONENT, JUDGED = 0.2, 0.9  # a component's weight beside a typical one's; share of rows to be judged
ALL_ACTIVE = 0.1  # share of rows with every latent active that is doubted
FLATTEST = 0.02  # sd of a direction that counts as at rest under a mixture of full rank, in which hardly any does

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
    """Certify a learnt mixture, with the patterns (J, n) of activity of its components, as far as restarts agree."""
    status = stability.status
    agree = stability.check
    if status == "unstable" or skewed:
        return _nothing(Level.NONE, agree, *([] if status == "unstable" else [NOT_GAUSSIAN]))
    judged, share = frequent_part(mixture)
    components = Check(
        name="components",
        statement="the components that are judged hold the rows",
        statistic=share,
        threshold=JUDGED,
        verdict="holds" if share >= JUDGED else "inconclusive",
        sentence=f"Judged are {len(judged.weights)} components with {share:.0%} of the rows; "
        f"{len(mixture.weights) - len(judged.weights)} rare ones, mostly misread patterns, are left out.",
    )
    found = certify(judged, estimated=True, injective=injective, tolerance=FLATTEST if full_rank else None)
    odd = None if full_rank else other_basis(patterns, mixture.weights)
    checks = (agree, components, *found.checks, *([] if odd is None else [odd]))
    if odd is not None or status != "stable":
        return _nothing(found.if_undecided_hold, *checks)
    return Certificate(**{**vars(found), "checks": checks})


def _nothing(if_undecided_hold: Level, *checks: Check) -> Certificate:
    return Certificate(Level.NONE, if_undecided_hold, "", checks, (), (), None, None, True)


def frequent_part(mixture: Mixture) -> tuple[Mixture, float]:
    """Return the mixture of the components that are not rare beside that of a typical row, and their share."""
    order = np.argsort(mixture.weights)
    typical = mixture.weights[order][np.searchsorted(np.cumsum(mixture.weights[order]), 0.5)]
    frequent = mixture.weights >= RARE_COMPONENT * typical
    weights = mixture.weights[frequent]
    part = Mixture(weights / weights.sum(), mixture.means[frequent], mixture.covariances[frequent])
    return part, float(weights.sum())


def other_basis(patterns: NDArray[np.bool_], weights: Array) -> Check | None:
    """Return a doubt if all latents are active together far too often: such rows may rest in another basis.

    Only one basis is looked for. Rows that are sparse in another one seem to have every latent active.
    """
    together, by_chance = float(weights @ patterns.all(1)), float(np.prod(weights @ patterns))
    if together < ALL_ACTIVE or together < 3 * by_chance:
        return None
    return Check(
        name="one basis",
        statement="no row rests in another basis",
        statistic=together,
        threshold=ALL_ACTIVE,
        verdict="inconclusive",
        sentence=f"In {together:.0%} of the rows every latent is active, {by_chance:.0%} would be so by chance: these "
        "rows may rest in another basis, and then no basis is shared.",
    )
