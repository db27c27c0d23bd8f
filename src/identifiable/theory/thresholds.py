"""Every number that decides a verdict of a certificate, in one place."""

from dataclasses import dataclass

from identifiable.errors import DataError


@dataclass(frozen=True)
class Thresholds:
    """Where the line between "holds", "inconclusive" and "fails" runs.

    Lengths are in standard deviations of the whole distribution of the latents. No field was tuned on a measurement;
    each was chosen for the reason given with it.
    """

    # Differences up to this length count as zero if the distribution is known exactly. Covariances in double precision
    # give standard deviations with rounding errors near sqrt(2e-16) = 1.5e-8; the margin is for ill-conditioned maps.
    exact: float = 1e-5
    # The same if the distribution was estimated: the standard error of a mean at 400 rows per component.
    estimated: float = 0.05
    # A statistic within this factor of its threshold is inconclusive: standard errors are known to about this factor.
    undecided_factor: float = 3.0
    # Genericity (3.4) of an exact mixture fails below this share of the tolerance, a log-ratio of 1e-10: an exact
    # mixture is generic however narrowly, and only rounding errors need to be excluded.
    genericity_share: float = 1e-5
    # Latents whose weights and distributions differ by less count as exchangeable: inactive values of simulated latents
    # come from 5000 rows, an error of .014 to .033 standard deviations for delta up to 3, three times which is .1.
    exchange: float = 0.1
    # Noise alone stays below this quantile of its distribution (ranks, correlations, ratios of variances): the usual
    # 5 % level.
    noise_quantile: float = 0.95
    # Probability that chance separates any two equal distributions of the mixture (P3). Below 5 %, because one false
    # difference destroys a product structure.
    false_difference: float = 1e-3
    # Independence within components (P2) is inconclusive where chance alone explains correlations beyond this size. A
    # large value: smaller correlations may stay hidden.
    hidden_correlation: float = 0.3
    # A singular value of a layer below this share of the largest counts as zero: single-precision weights carry
    # relative errors of 6e-8.
    layer_rank: float = 1e-6
    # Two images f(z) nearer than this share of their size are equal: layers are evaluated in double precision.
    same_image: float = 1e-9
    # F2 fails if none of this many sampled points is the only preimage of its image. This is evidence, not a proof;
    # more points cost time in proportion.
    witness_points: int = 200
    # A latent that varies by no more than this share of its size is constant (P3): rounding errors of double precision.
    constant_latent: float = 1e-12

    def tolerance(self, given: float | None, *, estimated: bool) -> float:
        """Return the tolerance that was given, or the default; refuse one that is not a small length."""
        if given is not None and not 0 < given < 0.3:
            raise DataError(f"tolerance must lie between 0 and 0.3 standard deviations, got {given}.")
        return given or (self.estimated if estimated else self.exact)


THRESHOLDS = Thresholds()
