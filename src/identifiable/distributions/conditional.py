"""The prior of nonlinear ICA with an observed u, as plain numbers: the latents are independent given u."""

from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from identifiable.distributions.mixture import FloatArray, check_weights
from identifiable.errors import DataError

Family = Literal["variance", "gaussian", "laplace", "mean"]

FEWEST_ROWS = 10  # per value of u, to estimate a scale and its error


@dataclass(frozen=True, eq=False, init=False)
class ConditionalPrior:
    r"""Distribution of latents that are independent given u, of one exponential family (Khemakhem et al. 2020, eq. 7).

    .. math:: p(z | u) = \prod_{i=1}^n \frac{Q(z_i)}{Z_i(u)} \exp \sum_{j=1}^k T_j(z_i) \lambda_{ij}(u)

    With m and s the mean and scale of :math:`z_i | u`, and u taking G values:

    =============  ======================================  =======================  ======================
    `family`       distribution given u                    T                        :math:`\lambda`
    =============  ======================================  =======================  ======================
    ``variance``   N(m, s²), m the same for all u          (z - m)²                 -1 / 2s²
    ``laplace``    Laplace(m, s), m the same for all u     \|z - m\|                -1 / s
    ``mean``       N(m, s²), s the same for all u          z                        m / s²
    ``gaussian``   N(m, s²)                                (z, z²)                  (m / s², -1 / 2s²)
    =============  ======================================  =======================  ======================

    Estimates of the parameter that a family holds constant may vary with u; `certify` checks by how much.

    Attributes
    ----------
    family : as above.
    means, scales : (G, n), one row per value of u; the scale is a standard deviation, or E|z - m| for ``laplace``.
    weights : (G,) shares of the values of u, summing to 1. By default proportional to `counts`, or equal without them.
    counts : (G,) number of rows of each value of u, or None if unknown or not estimated from rows.
    bootstrap : (B, G, n, 2) means and scales from B resamples of the rows, or None.

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
        m = np.asarray(means, dtype=np.float64)
        if m.ndim != 2 or not m.size or not np.isfinite(m).all():
            raise DataError(f"means must be finite, of shape (values of u, latents), got shape {m.shape}.")
        s = _positive("scales", scales, m.shape)
        rows = None if counts is None else _positive("counts", counts, m.shape[:1])
        resamples = None if bootstrap is None else np.asarray(bootstrap, dtype=np.float64)
        if resamples is not None:
            fits = resamples.ndim == 4 and len(resamples) >= 2 and resamples.shape[1:] == (*m.shape, 2)
            if not fits or not np.isfinite(resamples).all() or not (resamples[..., 1] > 0).all():
                raise DataError(
                    f"bootstrap must hold finite means and positive scales of two or more resamples, of shape "
                    f"(resamples, {len(m)}, {m.shape[1]}, 2), got shape {resamples.shape}."
                )
        if weights is None:
            weights = np.ones(len(m)) / len(m) if rows is None else rows / rows.sum()
        values = (family, m, s, check_weights(weights, len(m), "value of u"), rows, resamples)
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

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

        The family ``mean`` has one variance for all u; here it is the average of the variances over u.
        """
        m, s = self.means, self.scales
        rows = {
            "variance": [-0.5 / s**2],
            "laplace": [-1 / s],
            "mean": [m / (self.weights @ s**2)],
            "gaussian": [m / s**2, -0.5 / s**2],
        }[self.family]
        return np.stack(rows, axis=-1)

    @property
    def jacobian(self) -> FloatArray:
        r"""The derivative of :math:`\lambda_{ij}(u)` by mean and log scale of latent i at u, (G, n, k, 2).

        The scale of ``mean``, which is the same for all u, counts as known.
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
        """The covariance of the estimated mean and log scale of each latent at each u, (G, n, 2, 2).

        It comes from the bootstrap, or else from the counts by the family's asymptotic formula; None without either.
        """
        if self.bootstrap is not None:
            estimates = np.stack([self.bootstrap[..., 0], np.log(self.bootstrap[..., 1])], axis=-1)
            centred = estimates - estimates.mean(0)
            return np.einsum("bgip,bgiq->gipq", centred, centred) / (len(centred) - 1)
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
        """Estimate the distribution from latents z (N, n) and values of u (N,), with a bootstrap within each value.

        Rows get standard exponential weights (the Bayesian bootstrap, Rubin 1981), so that no resample is degenerate.
        Scales of ``laplace`` are mean absolute deviations from the mean of all rows.

        Parameters
        ----------
        z : latents, (N, n).
        codes : value of u of each row, (N,). Any labels that can be sorted; the values are ordered by them.
        family : see the class.
        draws : number of resamples. With 0 there is no bootstrap, and `uncertainty` is computed from the counts.
        seed : seed of the resamples.

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
            raise DataError(f"Each value of u needs at least {FEWEST_ROWS} rows, got {few}: merge it or leave it out.")
        rng, centre = np.random.default_rng(seed), latents.mean(0)
        estimates = np.empty((1 + draws, len(values), latents.shape[1], 2))  # the rows as they are, then the resamples
        for g, rows in enumerate(np.split(latents[np.argsort(group, kind="stable")], np.cumsum(counts)[:-1])):
            size, mean = len(rows), rows.mean(0)
            w = np.vstack([np.ones(size), rng.standard_exponential((draws, size))])
            w /= w.sum(1, keepdims=True)
            shift = w @ (rows - mean)
            estimates[:, g, :, 0] = mean + shift
            if family == "laplace":
                estimates[:, g, :, 1] = w @ np.abs(rows - centre)
            else:
                variances = np.maximum(w @ (rows - mean) ** 2 - shift**2, 0) * size / (size - 1)
                estimates[:, g, :, 1] = np.sqrt(variances)
        if not (estimates[..., 1] > 0).all():
            g, i = np.argwhere((estimates[..., 1] <= 0).any(0))[0]
            raise DataError(f"Latent {i} is constant where u = {values[g]}: it has no scale there. Leave it out.")
        resamples = estimates[1:] if draws else None
        return cls(family, estimates[0, ..., 0], estimates[0, ..., 1], counts=counts, bootstrap=resamples)


def _positive(name: str, values: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    checked = np.asarray(values, dtype=np.float64)
    if checked.shape != shape or not (np.isfinite(checked) & (checked > 0)).all():
        raise DataError(f"{name} must be positive and finite, of shape {shape}, got shape {checked.shape}.")
    return checked
