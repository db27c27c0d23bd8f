"""A prior that factorises given u, as plain numbers: what nonlinear ICA with an observed u knows, learns and judges."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from identifiable.errors import DataError

FloatArray = NDArray[np.float64]
Family = Literal["variance", "gaussian", "laplace", "mean"]

FEWEST_ROWS = 10  # of one value of u, to estimate a scale and its error


@dataclass(frozen=True, eq=False, init=False)
class ConditionalPrior:
    r"""A law of latents that is factorial given u, with one exponential family for all (Khemakhem et al. 2020, eq. 7).

    .. math:: p(z | u) = \prod_{i=1}^n \frac{Q(z_i)}{Z_i(u)} \exp \sum_{j=1}^k T_j(z_i) \lambda_{ij}(u)

    With :math:`z_i | u` of mean m and scale s, u taking G values:

    =============  ======================================  =======================  ======================
    `family`       law given u                             T                        :math:`\lambda`
    =============  ======================================  =======================  ======================
    ``variance``   N(m, s²), m the same for all u          (z - m)²                 -1 / 2s²
    ``laplace``    Laplace(m, s), m the same for all u     \|z - m\|                -1 / s
    ``mean``       N(m, s²), s the same for all u          z                        m / s²
    ``gaussian``   N(m, s²)                                (z, z²)                  (m / s², -1 / 2s²)
    =============  ======================================  =======================  ======================

    What a family holds constant may still vary here, since estimates always do: `certify` looks at how much.

    Attributes
    ----------
    family : as above.
    means, scales : (G, n), one row per value of u; the scale is a standard deviation, or E|z - m| for ``laplace``.
    weights : (G,) shares of the values of u, summing to 1; default: those of `counts`, or equal.
    counts : (G,) rows behind every value, None where the law was not estimated or this is not known.
    bootstrap : (B, G, n, 2) means and scales from B resamples of the rows, None where there are none.

    Examples
    --------
    >>> prior = ConditionalPrior("gaussian", means=[[0], [2]], scales=[[1], [0.5]])
    >>> prior.natural[:, 0]
    array([[ 0. , -0.5],
           [ 8. , -2. ]])
    """

    family: Family
    means: FloatArray
    scales: FloatArray
    weights: FloatArray
    counts: FloatArray | None
    bootstrap: FloatArray | None

    def __init__(
        self,
        family: Family,
        means: ArrayLike,
        scales: ArrayLike,
        weights: ArrayLike | None = None,
        counts: ArrayLike | None = None,
        bootstrap: ArrayLike | None = None,
    ) -> None:
        if family not in get_args(Family):
            raise DataError(f"family must be one of {list(get_args(Family))}, got {family!r}.")
        m, s = np.asarray(means, dtype=np.float64), np.asarray(scales, dtype=np.float64)
        if m.ndim != 2 or not m.size or not np.isfinite(m).all():
            raise DataError(f"means must be finite, of shape (values of u, latents), got shape {m.shape}.")
        if s.shape != m.shape or not (np.isfinite(s) & (s > 0)).all():
            raise DataError(
                f"scales must be positive and finite, of the shape {m.shape} of means, got shape {s.shape}."
            )
        rows = None if counts is None else np.asarray(counts, dtype=np.float64)
        if rows is not None and (rows.shape != m.shape[:1] or not (np.isfinite(rows) & (rows > 0)).all()):
            raise DataError(f"counts must be {len(m)} positive numbers, one per value of u, got shape {rows.shape}.")
        shares = np.ones(len(m)) / len(m) if rows is None else rows / rows.sum()
        w = shares if weights is None else np.asarray(weights, dtype=np.float64)
        if w.shape != m.shape[:1] or not (w >= 0).all() or not abs(w.sum() - 1) < 1e-4:
            raise DataError(
                f"weights must be {len(m)} non-negative numbers (one per value of u) that sum to 1, got shape "
                f"{w.shape} and sum {w.sum():.4g}: normalise them."
            )
        copies = None if bootstrap is None else np.asarray(bootstrap, dtype=np.float64)
        if copies is not None and (copies.ndim != 4 or len(copies) < 2 or copies.shape[1:] != (*m.shape, 2)):
            raise DataError(
                f"bootstrap must hold means and scales of two or more resamples, of shape (resamples, {len(m)}, "
                f"{m.shape[1]}, 2), got shape {copies.shape}."
            )
        if copies is not None and not (np.isfinite(copies).all() and (copies[..., 1] > 0).all()):
            raise DataError("bootstrap must be finite, and its scales, bootstrap[..., 1], positive.")
        for name, value in (("family", family), ("means", m), ("scales", s), ("weights", w / w.sum())):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "counts", rows)
        object.__setattr__(self, "bootstrap", copies)

    @property
    def n(self) -> int:
        """The number of latents."""
        return int(self.means.shape[1])

    @property
    def k(self) -> int:
        """The number of sufficient statistics of each latent."""
        return 2 if self.family == "gaussian" else 1

    @property
    def natural(self) -> FloatArray:
        r"""The natural parameters :math:`\lambda_{ij}(u)`, (G, n, k).

        For ``mean`` the one variance that the family has is the average over u of this law.
        """
        return self._natural(self.means, self.scales)

    @property
    def spread(self) -> FloatArray | None:
        """The natural parameters of the bootstrap, (B, G, n, k); None where there is none."""
        return None if self.bootstrap is None else self._natural(self.bootstrap[..., 0], self.bootstrap[..., 1])

    @property
    def jacobian(self) -> FloatArray:
        r"""The derivative of :math:`\lambda_{ij}(u)` by mean and log scale of latent i at u, (G, n, k, 2).

        The scale of ``mean``, which is one for all u, is taken as known.
        """
        m, s, zero = self.means, self.scales, np.zeros_like(self.means)
        rows = {
            "variance": [[zero, 1 / s**2]],
            "laplace": [[zero, 1 / s]],
            "mean": [[zero + 1 / (self.weights @ s**2), zero]],
            "gaussian": [[1 / s**2, -2 * m / s**2], [zero, 1 / s**2]],
        }[self.family]
        return np.moveaxis(np.array(rows), (0, 1), (2, 3))

    @property
    def uncertainty(self) -> FloatArray | None:
        """The covariance of the estimates of mean and log scale of every latent at every u, (G, n, 2, 2).

        From the bootstrap; else from the counts, as large samples of the family have it; None where there is neither.
        """
        if self.bootstrap is not None:
            copies = np.stack([self.bootstrap[..., 0], np.log(self.bootstrap[..., 1])], axis=-1)
            copies = copies - copies.mean(0)
            return np.asarray(np.einsum("bgip,bgiq->gipq", copies, copies) / (len(copies) - 1))
        if self.counts is None:
            return None
        mean, log_scale = (2.0, 1.0) if self.family == "laplace" else (1.0, 0.5)
        errors = np.zeros((*self.means.shape, 2, 2))
        errors[..., 0, 0] = mean * self.scales**2 / self.counts[:, None]
        errors[..., 1, 1] = log_scale / self.counts[:, None]
        return errors

    @classmethod
    def resampled(
        cls, z: ArrayLike, codes: ArrayLike, family: Family = "gaussian", *, draws: int = 50, seed: int = 0
    ) -> "ConditionalPrior":
        """Estimate the law from latents z (N, n) with values of u (N,), and how well: by a bootstrap within values.

        Rows get standard exponential weights (the Bayesian bootstrap, Rubin 1981), so that no resample is degenerate.
        Scales of ``laplace`` are about the mean of all rows.

        Parameters
        ----------
        z, codes : latents, and the value of u of every row: any labels, taken in sorted order.
        family : see the class.
        draws : number of resamples; with 0 there is no bootstrap, and `uncertainty` rests on the counts.
        seed : of the resamples.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> u = np.repeat([0, 1], 1000)
        >>> prior = ConditionalPrior.resampled(rng.normal(size=(2000, 1)) * (1 + u[:, None]), u, "variance")
        >>> prior.scales.round(2)[:, 0], prior.bootstrap.std(0).round(2)[:, 0, 1]
        (array([0.98, 2.05]), array([0.03, 0.04]))
        """
        latents, labels = np.asarray(z, dtype=np.float64), np.asarray(codes)
        if latents.ndim != 2 or labels.shape != latents.shape[:1] or not np.isfinite(latents).all():
            raise DataError(
                f"z must be finite, of shape (rows, latents), with one value of u per row, got shapes {latents.shape} "
                f"and {labels.shape}."
            )
        values, group, counts = np.unique(labels, return_inverse=True, return_counts=True)
        if not len(counts) or counts.min() < FEWEST_ROWS:
            few = "none" if not len(counts) else f"{counts.min()} for u = {values[counts.argmin()]}"
            raise DataError(f"Every value of u needs {FEWEST_ROWS} rows or more, got {few}: merge it or leave it out.")
        rng, centre = np.random.default_rng(seed), latents.mean(0)
        found = np.empty((1 + draws, len(values), latents.shape[1], 2))
        rows_of = np.split(np.argsort(group, kind="stable"), np.cumsum(counts)[:-1])
        for g, own in enumerate(rows_of):
            mean = latents[own].mean(0)
            off = latents[own] - mean
            w = np.vstack([np.ones(len(own)), rng.standard_exponential((draws, len(own)))])
            w /= w.sum(1, keepdims=True)
            shift = w @ off
            found[:, g, :, 0] = mean + shift
            if family == "laplace":
                found[:, g, :, 1] = w @ np.abs(latents[own] - centre)
            else:
                found[:, g, :, 1] = np.sqrt(np.maximum(w @ off**2 - shift**2, 0) * len(own) / (len(own) - 1))
        if not (found[..., 1] > 0).all():
            g, i = np.argwhere((found[..., 1] <= 0).any(0))[0]
            raise DataError(f"Latent {i} is constant where u = {values[g]}: it has no scale there. Leave it out.")
        copies = found[1:] if draws else None
        return cls(family, found[0, ..., 0], found[0, ..., 1], counts=counts, bootstrap=copies)

    def _natural(self, means: FloatArray, scales: FloatArray) -> FloatArray:
        if self.family == "laplace":
            return -1 / scales[..., None]
        if self.family == "variance":
            return -0.5 / scales[..., None] ** 2
        if self.family == "mean":
            return np.asarray((means / (self.weights @ self.scales**2))[..., None])
        return np.stack([means / scales**2, -0.5 / scales**2], axis=-1)
