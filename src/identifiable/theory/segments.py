r"""What is identified when x is affine in latents that are independent given an observed u.

Let x = A z + b with z uncorrelated given u and variances :math:`D_u`. Then :math:`C_u = A D_u A'` for every value of u.
If B explains the same covariances, :math:`M = B^{-1} A` has :math:`M D_u M' = D'_u`, all diagonal, and maps the common
eigenspaces of the :math:`D_u D_1^{-1}` onto those of the :math:`D'_u D_1'^{-1}`. Both are spanned by latents: those
whose variances are proportional over u. So A is known up to order and scale if and only if no two latents have
proportional variances (Pham & Cardoso 2001); latents that do form a block, of which only the span is known. Nothing is
assumed of the distribution of a latent beyond its variance, and means drop out: if only they change, the level is AT.

**The test.** Proportional variances of two latents make them interchangeable by any rotation, of which the fit selects
the one that looks most separated. The likelihood ratio for "proportional" is then the largest eigenvalue of a Wishart
matrix, with the degrees of freedom K = G - 1, at most. It is bounded by its trace, which is :math:`\chi^2_{2K}`. The
level is shared by all pairs.
"""

import numpy as np
from scipy.stats import chi2

from identifiable.arrays import Array, BoolArray
from identifiable.theory.certificate import Certificate, Check, Level
from identifiable.theory.independence import Correlations, check_independence
from identifiable.theory.partitions import blocks_of, linked
from identifiable.theory.thresholds import THRESHOLDS

THEOREM = "joint diagonalisation (Pham & Cardoso 2001)"
_UP_TO_ORDER = (
    "every latent is recovered up to order, sign, scale and shift, because u changes their variances differently"
)
_GROUPS = "groups of latents are recovered; within a group the variances were not shown to change differently with u"
PREMISE = "the true mixing is affine and injective, and the latents are independent given u"


def certify_segments(separation: Array, correlations: Correlations) -> Certificate:
    """Say what is identified from covariances given u.

    Parameters
    ----------
    separation : (n, n) how far the variances of two latents are from proportional over u, in standard errors: the
        square root of a chi-square of G - 1 degrees of freedom, centred by Fisher's approximation.
    correlations : of the latents within each of the G values of u.

    Examples
    --------
    >>> apart = np.array([[0.0, 9.0], [9.0, 0.0]])
    >>> certificate = certify_segments(apart, Correlations(np.zeros((5, 1)), np.full(5, 1000.0), np.array([[0, 1]])))
    >>> print(certificate.level, "by", certificate.theorem)
    PS by joint diagonalisation (Pham & Cardoso 2001)
    """
    n, G = len(separation), len(correlations.counts)
    independent = check_independence(correlations, groups="segment", name="independence")
    distinct = _distinct(separation, G)
    ratios = _check_ratios(separation, distinct, G)
    blocks = blocks_of(linked(~distinct))
    shown = Level.NONE
    if independent.verdict == "holds":
        shown = Level.PS if len(blocks) == n else Level.AT if len(blocks) == 1 else Level.BLOCKS
    groups = blocks if shown else ()
    return Certificate(
        level=shown,
        if_undecided_hold=Level.NONE if independent.verdict == "fails" else Level.PS,
        theorem=THEOREM if shown else "",
        checks=(independent, ratios),
        blocks=groups,
        pure=groups,
        shift=np.zeros(n) if shown else None,
        basis=np.eye(n) if shown else None,
        estimated=True,
        meaning={Level.PS: _UP_TO_ORDER, Level.BLOCKS: _GROUPS}.get(shown, ""),
        error_level=THRESHOLDS.error_level,
        premises=(PREMISE,) if shown else (),
    )


def _distinct(separation: Array, groups: int) -> BoolArray:
    """Return which pairs (n, n) are shown to have variances that are not proportional."""
    n, freedom = len(separation), max(groups - 1, 1)
    x = np.maximum(separation + np.sqrt(2 * freedom - 1), 0) ** 2 / 2
    distinct = chi2.sf(x, 2 * freedom) <= THRESHOLDS.error_level / max(n * (n - 1) // 2, 1)
    return np.asarray(distinct & ~np.eye(n, dtype=bool)) if groups > 1 else np.zeros((n, n), dtype=bool)


def _check_ratios(separation: Array, distinct: BoolArray, groups: int) -> Check:
    name, statement = "ratios", "no two latents have variances that are proportional over the values of u"
    n, freedom = len(separation), max(groups - 1, 1)
    if n == 1:
        return Check(name, statement, None, None, "holds", "There is one latent only.")
    level = THRESHOLDS.error_level / (n * (n - 1) // 2)
    threshold = float(np.sqrt(2 * chi2.isf(level, 2 * freedom)) - np.sqrt(2 * freedom - 1))
    above = np.triu_indices(n, 1)
    s, t = (int(index[separation[above].argmin()]) for index in above)
    least = float(separation[s, t])
    size = f"they differ from proportional by {least:.2g} standard errors, and {threshold:.2g} would show it"
    if distinct[above].all():
        sentence = (
            f"No two latents have proportional variances: all pairs differ by {least:.2g} standard errors or more."
        )
        return Check(name, statement, least, threshold, "holds", sentence)
    sentence = f"The variances of latents {s} and {t} may be proportional over u: {size}."
    remedy = "More rows or more values of u could show a smaller difference."
    return Check(name, statement, least, threshold, "inconclusive", sentence, remedy)
