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
    # Probability that any test behind a certificate is wrong, at most. A level follows only if every assumption is
    # shown, so the level is wrong only where the test of an assumption that fails is: each test has the whole of it,
    # divided by the number of pairs or components it looks at.
    error_level: float = 0.05
    # Latents count as independent within components and segments if correlations beyond this size, root mean square
    # over the rows, are excluded. A latent that contains another with this weight still has correlation .99 with the
    # one it stands for.
    excluded_correlation: float = 0.15
    # Goodness of fit: correlations of the sizes of latents, within components and segments, that must be excluded. Half
    # of it must not be shown. A tanh mixing that a linear method undoes with MCC .89 has .8 (see `independence`).
    gross_dependence: float = 0.3
    # A singular value of a layer below this share of the largest counts as zero: single-precision weights carry
    # relative errors of 6e-8.
    layer_rank: float = 1e-6
    # Two images f(z) nearer than this share of their size are equal: layers are evaluated in double precision.
    same_image: float = 1e-9
    # Points sampled to find second preimages. More points cost time in proportion.
    witness_points: int = 200
    # A latent that varies by no more than this share of its size is constant (P3): rounding errors of double precision.
    constant_latent: float = 1e-12

    def tolerance(self, given: float | None, *, estimated: bool) -> float:
        """Return the tolerance that was given, or the default; refuse one that is not a small length."""
        if given is not None and not 0 < given < 0.3:
            raise DataError(f"tolerance must lie between 0 and 0.3 standard deviations, got {given}.")
        return given or (self.estimated if estimated else self.exact)


THRESHOLDS = Thresholds()
