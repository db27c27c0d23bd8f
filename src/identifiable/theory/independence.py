r"""Whether latents are independent within groups of rows: components of a mixture, or segments given u.

Let :math:`r_g` be the correlation of two quantities in group g, with :math:`\nu_g` rows, and

.. math:: \rho^2 = \sum_g \nu_g \rho_g^2 / \sum_g \nu_g, \quad
    Q = \sum_g \nu_g \, \mathrm{artanh}(r_g)^2 \approx \chi'^2_G(\rho^2 \sum_g \nu_g)

so :math:`\rho` is the root mean square over rows. A correlation that a test does not see may exist all the same. So
independence holds if :math:`\rho \ge \delta` is rejected for every pair, fails if :math:`\rho \le \delta` is rejected
for some pair, or :math:`|\rho_g| \le \delta` for some pair and group, and is inconclusive otherwise. Under independence
this does not depend on the distributions of the latents. The map to the latents was fitted to the same rows; its two
entries for each pair take up to two of the G degrees of freedom, which is allowed for. Two groups it can always make
uncorrelated, so that two show nothing.

**Goodness of fit.** Latents of a wrong model can be uncorrelated and still depend on each other. So the correlations of
:math:`|z_s|` with :math:`|z_t|` and with :math:`z_t` are tested in the same way, for z about its mean in the group. On
rows of a tanh mixing of three layers, which `SegmentUnmixing` undoes with MCC .89, the largest is .77 with 1000 rows
and .83 with 10,000 (`make_segments`, 3 latents, 10 segments, seed 0).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import chi2, norm

from identifiable.arrays import Array, BoolArray, IntArray
from identifiable.theory.certificate import Check, Verdict
from identifiable.theory.thresholds import THRESHOLDS

MOST_ROWS = 1000  # multiples of the rows, up to which more of them are recommended


@dataclass(frozen=True, eq=False)
class Correlations:
    """Correlations of pairs of latents, or of functions of them, within groups of rows.

    Attributes
    ----------
    values : (G, P) the correlation of each of P pairs in each of G groups.
    counts : (G,) the rows of each group.
    pairs : (P, 2) the two latents of each pair.
    """

    values: Array
    counts: Array
    pairs: IntArray

    @classmethod
    def of(cls, covariances: Array, counts: Array) -> "Correlations":
        """Return the correlations of covariances (G, n, n) estimated from `counts` (G,) rows."""
        pairs = np.triu_indices(covariances.shape[1], 1)
        return cls(correlations_of(covariances)[:, *pairs], counts, np.transpose(pairs))

    @classmethod
    def of_sizes(cls, z: Array, weights: Array) -> "Correlations":
        """Return the correlations of |z_s| with |z_t| and with z_t in each group, for z (N, n) and weights (N, G).

        Groups with fewer than three rows per latent are left out.
        """
        n = z.shape[1]
        s, t = np.nonzero(~np.eye(n, dtype=bool))
        upper = s < t
        total = weights.sum(0)
        counts = total**2 / np.maximum((weights**2).sum(0), 1e-300)
        values, kept = [], np.flatnonzero(counts >= max(10, 3 * n))
        for g in kept:
            w = weights[:, g] / total[g]
            e = z - w @ z
            both = np.hstack([np.abs(e), e])
            both -= w @ both
            r = correlations_of(((w[:, None] * both).T @ both)[None])[0]
            values.append(np.r_[r[s, n + t], r[s, t][upper]])
        pairs = np.vstack([np.c_[s, t], np.c_[s, t][upper]])
        return cls(np.reshape(values, (len(kept), len(pairs))), counts[kept], pairs)

    @classmethod
    def of_groups(cls, z: Array, codes: IntArray) -> "Correlations":
        """Return `of_sizes` of z (N, n) in groups that are known, by their numbers (N,)."""
        parts = [cls.of_sizes(z[codes == g], np.ones((int((codes == g).sum()), 1))) for g in np.unique(codes)]
        values, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "counts"))
        return cls(values, counts, parts[0].pairs)

    @cached_property
    def standardised(self) -> Array:
        """The correlations (G, P), transformed to unit variance."""
        return np.arctanh(np.clip(self.values, -1 + 1e-12, 1 - 1e-12)) * np.sqrt(self.counts)[:, None]

    @property
    def rms(self) -> Array:
        """Root mean square (P,) over the rows, without what chance adds."""
        sums = (self.standardised**2).sum(0)
        return np.sqrt(np.maximum(sums - _freedom(len(self.counts)), 0) / self.counts.sum())

    def excluded(self, size: float) -> BoolArray:
        """Return for which pairs (P,) a correlation of this size is rejected."""
        return _excluded((self.standardised**2).sum(0), len(self.counts), float(self.counts.sum()), size)

    def shown(self, size: float) -> BoolArray:
        """Return for which pairs (P,) a correlation beyond this size is shown, over all rows or in a group."""
        z, level = self.standardised, THRESHOLDS.error_level / self.values.shape[1] / 2
        overall = norm.sf(_deviate((z**2).sum(0), len(z), self.counts.sum() * size**2)) <= level
        single = np.abs(z) - np.arctanh(size) * np.sqrt(self.counts)[:, None] >= norm.isf(level / len(z) / 2)
        return np.asarray(overall | single.any(0))


def correlations_of(covariances: Array) -> Array:
    """Return the correlations (G, n, n) of covariances, zero on the diagonal and for constants."""
    deviations = np.sqrt(np.maximum(np.diagonal(covariances, axis1=1, axis2=2), 0))
    products = deviations[:, :, None] * deviations[:, None]
    found = np.divide(covariances, products, out=np.zeros_like(covariances), where=products > 0)
    found[:, np.arange(found.shape[1]), np.arange(found.shape[1])] = 0.0
    return np.asarray(found)


def check_independence(found: Correlations, *, groups: str = "component", name: str = "P2 factorial") -> Check:
    """Judge whether latents are uncorrelated within each group.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> for rows in (80, 8000):
    ...     covariances = np.stack([np.cov(rng.normal(size=(rows, 2)), rowvar=False) for _ in range(4)])
    ...     check = check_independence(Correlations.of(covariances, np.full(4, rows)))
    ...     print(check.verdict, repr(check.remedy))
    inconclusive 'About 1400 rows instead of 320 would decide.'
    holds ''
    """
    size, G, total = THRESHOLDS.excluded_correlation, len(found.counts), float(found.counts.sum())
    statement = f"the latents are independent within every {groups}"
    if not found.values.shape[1]:
        return Check(name, statement, None, None, "holds", "There is one latent only.")
    rms = found.rms
    worst = int(rms.argmax())
    s, t = found.pairs[worst]
    which = f"Latents {s} and {t} have correlation {rms[worst]:.2g} within {groups}s (root mean square over rows)"
    if found.shown(size).any():
        pair = int(found.shown(size).argmax())
        s, t = found.pairs[pair]
        which = f"Latents {s} and {t} have correlation {rms[pair]:.2g} within {groups}s (root mean square over rows)"
        return Check(name, statement, float(rms[pair]), size, "fails", f"{which}, so they are not independent there.")
    if G <= 2:
        sentence = (
            f"A linear map makes latents uncorrelated in any {G} {groups}s: whether they are independent is open."
        )
        return Check(name, statement, float(rms[worst]), size, "inconclusive", sentence)
    if found.excluded(size).all():
        sentence = f"Within {groups}s, correlations beyond {size} (root mean square over rows) are excluded."
        return Check(name, statement, float(rms[worst]), size, "holds", sentence)
    sentence = f"{which}; {total:.0f} rows do not exclude correlations beyond {size}."
    remedy = _remedy(float(rms[worst]), G, total, len(rms), size)
    return Check(name, statement, float(rms[worst]), size, "inconclusive", sentence, remedy)


def check_fit(found: Correlations | None, groups: str = "group") -> Check:
    """Judge whether a model of latents that are independent within groups describes the data, beyond covariances."""
    small, gross = THRESHOLDS.excluded_correlation, THRESHOLDS.gross_dependence
    name, statement = "fit", f"the sizes of latents do not depend on other latents within {groups}s"
    if found is None or not len(found.counts):
        why = "Not recorded in this file: fit again." if found is None else f"Too few rows in every {groups}."
        return Check(name, statement, None, None, "inconclusive", why)
    if not found.values.shape[1]:
        return Check(name, statement, None, None, "holds", "There is one latent only.")
    shown, rms = found.shown(small), found.rms
    worst = int(np.where(shown, rms, -1).argmax() if shown.any() else rms.argmax())
    s, t = found.pairs[worst]
    verdict: Verdict = "fails" if shown.any() else "holds" if found.excluded(gross).all() else "inconclusive"
    sentence = {
        "fails": f"The size of latent {s} depends on latent {t} within {groups}s (correlation {rms[worst]:.2g}, beyond "
        f"{small}): the model does not describe the data.",
        "holds": f"Within {groups}s, the size of no latent depends on another by a correlation of {gross} or more.",
        "inconclusive": f"{found.counts.sum():.0f} rows do not exclude that the size of latent {s} depends on latent "
        f"{t} within {groups}s.",
    }[verdict]
    remedy = _remedy(float(rms[worst]), len(found.counts), float(found.counts.sum()), len(rms), gross)
    return Check(
        name, statement, float(rms[worst]), small, verdict, sentence, remedy if verdict == "inconclusive" else ""
    )


def check_components(split_gain: float | None, n: int, components: int) -> Check:
    """Judge whether the mixture has enough components, by twice the log-likelihood that one more of n latents gains.

    Twice the parameters of a component are its degrees of freedom, since the component to split is the best of all.
    Two components in one hide that their variances are proportional: the fit then separates what nothing separates.

    Examples
    --------
    >>> check_components(10.0, 3, 4).verdict, check_components(70.0, 3, 4).verdict
    ('holds', 'inconclusive')
    """
    name, statement = "components", "the mixture has as many components as the data show"
    if split_gain is None:
        return Check(name, statement, None, None, "inconclusive", "Not recorded in this file: fit again.")
    threshold = float(chi2.isf(THRESHOLDS.error_level, 2 * (2 * n + 1)))
    if split_gain <= threshold:
        sentence = f"Splitting one of {components} components gains no more likelihood than chance."
        return Check(name, statement, split_gain, threshold, "holds", sentence)
    sentence = f"Splitting one of {components} components gains {split_gain / 2:.0f} nats, chance {threshold / 2:.0f}."
    remedy = f"Set n_components={components + 1} or more, and compare."
    return Check(name, statement, split_gain, threshold, "inconclusive", sentence, remedy)


def check_other_components(components: int) -> Check:
    """Return a check that no fit with one number of components passes: that other numbers give the same latents.

    A flow can bend latents and give a component to each bend: fits with 4 and 14 components differ by .003 nats per row
    and have a correlation of .78 with each other (docs/results/certificate-theorems.md).
    """
    sentence = (
        f"The fit has {components} components. Another number may explain the rows as well by another mixing, and "
        "other latents."
    )
    remedy = "Fit half and twice as many components (n_components), and compare the latents by `stability`."
    statement = "other numbers of components that explain the rows as well give the same latents"
    return Check("other components", statement, None, None, "inconclusive", sentence, remedy)


def _freedom(groups: int) -> int:
    return max(groups - 2, 1)


def _excluded(sums: Array, groups: int, total: float, size: float) -> BoolArray:
    return np.asarray(norm.cdf(_deviate(sums, _freedom(groups), total * size**2)) <= THRESHOLDS.error_level)


def _deviate(x: Array, df: int, noncentrality: float) -> Array:
    """Return a standard normal deviate of noncentral chi-squared values, by Sankaran (1963).

    SciPy's distribution function overflows for large values.

    >>> x = np.array([4.0, 12.0, 30.0])
    >>> bool(np.abs(norm.sf(_deviate(x, 3, 6.0)) - [0.82068, 0.25249, 0.0029]).max() < 0.003)
    True
    """
    a, b, c = df + noncentrality, df + 2 * noncentrality, df + 3 * noncentrality
    h, p = 1 - 2 * a * c / (3 * b**2), b / a**2
    m = (h - 1) * (1 - 3 * h)
    centre = 1 + h * p * (h - 1 - (2 - h) * m * p / 2)
    return np.asarray(((x / a) ** h - centre) / (h * np.sqrt(2 * p) * (1 + m * p / 2)))


def _remedy(rms: float, groups: int, total: float, pairs: int, size: float) -> str:
    """Say how many rows would exclude the size, if the correlations are what they seem."""
    chance = chi2.isf(0.5 / pairs, _freedom(groups))  # what the largest sum exceeds in half of the cases
    for factor in np.geomspace(1.1, MOST_ROWS, 60):
        rows = factor * total
        if _excluded(np.array([chance + rows * rms**2]), groups, rows, size).all():
            return f"About {float(f'{rows:.2g}'):.0f} rows instead of {total:.0f} would decide."
    return ""
