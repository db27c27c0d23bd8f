r"""What exact hyperplanes guarantee: every latent of an affine mixture is exactly inactive in a share of the rows.

Recovered latents t = L z + c, an affine image of the true latents z. Two statements do not ask whether t is the
sparsest representation; the rows show it:

**Exact.** If the rows with t_i = 0 span their hyperplane, t_i is a single latent (`algorithms/hyperplanes/spans.py`).
If this holds for every i, t is z up to order, sign, scale and shift. Otherwise blocks have the span of as many latents.

**Almost.** Values up to a tolerance :math:`\tau` count as inactive. Let an active z_k have a conditional standard
deviation of at least s given the others, :math:`\gamma = \min_{i \ne k} P(z_k \text{ active}, z_i \text{ inactive})`,
:math:`s_0 = E\|z\|_0`, and :math:`\Lambda = 2 \tau / (\sqrt{2 \pi} s \beta)`. An active z_k with
:math:`|L_{ik}| \ge \Lambda` leaves :math:`|t_i| \le \tau` with probability at most :math:`\beta`, if its conditional
density is at most that of a Gaussian. So if :math:`\sigma_{min}(L) > n \Lambda` and

.. math:: \sum_i P(|t_i| > \tau) < (1 - \beta) (s_0 + \gamma),

every row of L has one entry of at least :math:`\Lambda`, each in another column: L is a permutation and scaling, up to
entries below :math:`\Lambda`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import connected_components

from identifiable.arrays import Array, BoolArray, IntArray
from identifiable.theory.certificate import Blocks, Certificate, Check, Level, Verdict, named
from identifiable.theory.partitions import blocks_of, linked, numbered

SHOWN = {
    Level.PS: ("Theorem 3.9 (Xu et al. 2026)", "every latent is recovered up to order, sign, scale and shift"),
    Level.BLOCKS: (
        "Theorem 3.9 for blocks (Xu et al. 2026, App. E.5)",
        "groups of latents are recovered, not always single latents within a group",
    ),
    Level.AT: (
        "the affine mixing",
        "the latents are recovered up to one affine map of all of them; single latents are not separated",
    ),
}
PREMISES = (
    "the mixing is affine and injective",
    "the latents that are active in a pattern have a joint density",
)

REGULAR = 1e-4  # smallest diagonal of a Cholesky factor, over the largest, from which it is accurate


@dataclass(frozen=True)
class SparsityBound:
    """How much of other latents a recovered latent may contain, where values up to a tolerance count as inactive.

    All quantities are those of the recovered latents, of unit variance.

    Attributes
    ----------
    tolerance : τ.
    active : Σ_i P(|t_i| > τ), the mean number of active latents per row.
    margin : γ, the smallest share of rows in which one latent is active and another inactive.
    deviation : s, the smallest standard deviation of an active latent about its regression on the others.
    singular : lower bound of the smallest singular value of L, for true latents of unit variance.
    n : number of latents.
    """

    tolerance: float
    active: float
    margin: float
    deviation: float
    singular: float
    n: int

    @property
    def beta(self) -> float:
        """Half of what the margin allows."""
        return self.margin / (2 * (self.active + self.margin))

    @property
    def weight(self) -> float:
        """Λ: weights of other latents are smaller, in units of a standard deviation; infinite without a margin."""
        scale = np.sqrt(2 * np.pi) * self.deviation * self.beta
        return float(2 * self.tolerance / scale) if scale > 0 else float("inf")

    @property
    def least_active(self) -> float:
        """The smallest mean number s_0 of active true latents per row for which the bound holds."""
        return self.active / (1 - self.beta) - self.margin

    @property
    def check(self) -> Check:
        """Whether the bound says anything, and what."""
        statement = "no representation that is inactive up to a tolerance mixes the latents by more than a bound"
        holds = self.singular > self.n * self.weight
        if holds:
            sentence = (
                f"Where values up to {self.tolerance:.0e} standard deviations count as inactive, a recovered latent "
                f"contains other latents with weights below {self.weight:.0e}, if the true latents have the margin "
                f"({self.margin:.2g}) and conditional deviations (at least {self.deviation:.2g}) of the recovered ones "
                f"and at least {self.least_active:.2f} of them are active per row on average."
            )
        elif not self.margin:
            sentence = "Some latent is active only where another one is, so no bound on weights follows from sparsity."
        else:
            sentence = (
                f"Values up to {self.tolerance:.0e} standard deviations count as inactive: too wide for a bound on the "
                f"weights of other latents (margin {self.margin:.2g}, conditional deviation {self.deviation:.2g})."
            )
        verdict: Verdict = "holds" if holds else "inconclusive"
        statistic = self.n * self.weight if np.isfinite(self.weight) else None
        return Check("almost inactive", statement, statistic, self.singular, verdict, sentence)


def sparsity_bound(t: Array, tolerance: float) -> SparsityBound:
    """Return the bound for recovered latents t (N, n), of unit variance and zero while inactive.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(5000, 3)) * (rng.random((5000, 3)) < 0.5)
    >>> bound = sparsity_bound(z / z.std(0) + 1e-6 * rng.normal(size=z.shape), 5e-6)
    >>> f"{bound.weight:.0e} {bound.least_active:.1f} {bound.check.verdict}"
    '4e-05 1.4 holds'
    """
    n, active = t.shape[1], np.abs(t) > tolerance
    apart = (active.T.astype(float) @ ~active) / len(t)  # k is active, i is inactive
    covariance = np.cov(t.T, ddof=0).reshape(n, n)
    singular = np.sqrt(max(np.linalg.eigvalsh(covariance)[0], 0) / n)
    margin = float(apart[~np.eye(n, dtype=bool)].min(initial=1.0))
    some = slice(None, None, max(1, len(t) // max(5000, 60 * n)))
    deviation = min(_conditional_deviation(t[some][active[some, k]], k) for k in range(n))
    return SparsityBound(tolerance, float(active.sum(1).mean()), margin, deviation, float(singular), n)


def _conditional_deviation(t: Array, k: int) -> float:
    """Return the standard deviation of column k of rows t (M, n) about its regression on the others."""
    if len(t) <= t.shape[1] + 1:
        return 0.0
    covariance = np.cov(t.T, ddof=t.shape[1]).reshape(t.shape[1], -1)
    others = np.delete(np.arange(t.shape[1]), k)
    last = np.r_[others, k]
    try:
        root = np.diag(np.linalg.cholesky(covariance[np.ix_(last, last)]))
    except np.linalg.LinAlgError:  # others determine each other
        root = np.zeros(1)
    if root.min() > REGULAR * root.max():
        return float(root[-1])
    along = covariance[k, others] @ np.linalg.pinv(covariance[np.ix_(others, others)], hermitian=True)
    return float(np.sqrt(max(covariance[k, k] - along @ covariance[others, k], 0.0)))


def certify_hyperplanes(groups: BoolArray, rows: IntArray, *, level: float, n_unused: int = 0) -> Certificate:
    """Return what follows if every latent is exactly inactive in a share of the rows of an affine mixture.

    Call it only if `check_density` holds.

    Parameters
    ----------
    groups : (n, n) bool, row i: the latents of which combinations can be constant where latent i is inactive.
    rows : (n,) number of rows in which each latent is inactive.
    level : family-wise error level of the groups.
    n_unused : int, default=0. Number of latents that are constant in all rows; they are not recovered.

    Examples
    --------
    Latent 2 is inactive only where latent 1 is inactive too.

    >>> groups = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1]], dtype=bool)
    >>> found = certify_hyperplanes(groups, np.array([400, 500, 300]), level=0.05)
    >>> print(found.level, found.blocks, found.pure)
    blocks ((0,), (1, 2)) ((0,), (1,))
    >>> print(found.sentence)
    Groups of latents are recovered, not always single latents within a group (error level 5%).
    """
    n = len(groups)
    checks = (
        Check("mixing", "x is an affine, injective function of the latents", None, None, "holds", _mixing(n)),
        check_density(),
        _check_groups(groups, rows),
        *((_check_unused(n, n_unused),) if n_unused else ()),
    )
    connected = linked(groups | groups.T)
    shown = Level.PS if len(set(connected)) == n and not n_unused else Level.BLOCKS
    shown = Level.AT if len(set(connected)) == 1 < n else shown
    blocks = blocks_of(connected)
    theorem, meaning = SHOWN[shown]
    return Certificate(
        level=shown,
        if_undecided_hold=shown,
        theorem=theorem,
        checks=checks,
        blocks=blocks,
        pure=_closed(groups) if shown == Level.BLOCKS else blocks,
        shift=np.zeros(n + n_unused),
        basis=np.eye(n + n_unused),
        estimated=False,
        meaning=meaning,
        error_level=level,
        premises=PREMISES,
    )


def check_density(latents: Sequence[int] = (), rows: int = 0, of: int = 1) -> Check:
    """Judge whether active latents have a joint density: not if some are confined to fewer dimensions in some rows."""
    statement = "active latents have a joint density"
    if not latents:
        sentence = (
            "No two active latents have one ratio in more rows than chance allows. Where a pattern has enough rows, "
            "near rows span as many dimensions as latents are active."
        )
        return Check("density", statement, 0.0, 0.0, "holds", sentence)
    sentence = (
        f"In {rows} of {of} rows compared, {named('latent', latents)} are active, but confined to fewer dimensions. "
        "Either the mixing bends, and a hyperplane holds only some of the rows in which a latent is inactive, or there "
        "are more latents than assumed, or some determine others."
    )
    return Check("density", statement, rows / of, 0.0, "fails", sentence)


def _mixing(n: int) -> str:
    inactive = "The latent is" if n == 1 else f"All {n} latents are"
    return (
        f"Given: the mixing is affine. {inactive} exactly inactive in many rows: noise or a smooth bend would leave "
        "none."
    )


def _check_groups(groups: BoolArray, rows: IntArray) -> Check:
    statement = "the rows in which a latent is inactive span their hyperplane"
    mixed, fewest = np.flatnonzero(groups.sum(1) > 1), int(rows.min())
    if not len(mixed):
        sentence = (
            f"Each latent is inactive in at least {fewest} rows, in which no combination of the others is constant: "
            "it is no combination of several latents."
        )
        return Check("3.8b", statement, 1.0, 1.0, "holds", sentence)
    together = np.flatnonzero(groups[mixed].any(0))
    sentence = (
        f"Not separated: {named('latent', together)}. Where one of them is inactive, another is inactive too, or a "
        "combination of others is constant."
    )
    return Check("3.8b", statement, 1 - len(mixed) / len(groups), 1.0, "fails", sentence)


def _check_unused(n: int, n_unused: int) -> Check:
    unused = named("latent", range(n, n + n_unused))
    sentence = f"Constant in all rows, so it cannot be identified: {unused}."
    return Check("unused", "every latent varies", n / (n + n_unused), 1.0, "fails", sentence)


def _closed(groups: BoolArray) -> Blocks:
    """Return the groups of latents whose rows show only each other: recovered free of all other latents."""
    parts = blocks_of(numbered(connected_components(groups, directed=True, connection="strong")[1].tolist()))
    return tuple(part for part in parts if groups[list(part)].any(0).sum() == len(part))
