r"""Goodness of fit of `PDGMM`: whether samples of the model look like held-out rows.

Samples of the mixture are exactly zero where a latent is inactive, estimates are only nearly so. Both get Gaussian
noise of twice the fitted width e before they are compared:

- per latent, the Kolmogorov-Smirnov distance between the two distributions;
- over all latents, the area under the ROC curve of a linear classifier on products and truncated absolute values of
  the latents, cross-validated. 0.5: indistinguishable.

The latents determine the rows, so what cannot be distinguished in the latents cannot be distinguished in x either.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import ks_2samp, norm, rankdata

from identifiable.arrays import Array, BoolArray
from identifiable.distributions.mixture import Mixture
from identifiable.theory import Check
from identifiable.theory.certificate import named


@dataclass(frozen=True)
class Limits:
    """Differences that a model may have; it is rejected if they are significantly larger.

    Settled on development data sets (seeds 0-3, 10,000 or 20,000 rows). Of 48 fits with MCC of at least 0.99 the
    largest AUC was 0.57 and the largest distance 0.07, of which chance explains 0.06. Fits to "1 var, delta 1" with MCC
    0.94-0.98 have AUC 0.61-0.69. Boosted trees, and features of x, distinguish no better.
    """

    auc: float = 0.58
    distance: float = 0.04
    error_level: float = 0.05  # probability that chance alone exceeds the limits


LIMITS = Limits()
SMOOTHING = 2.0  # noise, in fitted widths
DRAWN = 5000  # samples of the model
FOLDS = 5
RIDGE = 1e-2
CLIP = 4.0  # latents are clipped here before they are cubed
BENDS = 0.5, 1.0  # absolute values are truncated here: they see what happens near the inactive value


@dataclass(frozen=True, eq=False)
class Goodness:
    """How far samples of a model are from held-out rows.

    Attributes
    ----------
    distances : (n,) Kolmogorov-Smirnov distance of each latent, from 0 to 1.
    auc : area under the ROC curve of a classifier of samples and held-out rows; 0.5 where they look the same.
    rows : number of held-out rows.
    """

    distances: Array
    auc: float
    rows: int

    @classmethod
    def of(cls, held: Array, mixture: Mixture, width: float, rng: np.random.Generator) -> "Goodness":
        """Compare latents (M, n) of held-out rows with samples of their mixture, both smoothed.

        Examples
        --------
        >>> rng, mixture = np.random.default_rng(0), Mixture([0.5, 0.5], [[0, 0], [1, 0]], [[0, 1], [1, 0]])
        >>> fits = Goodness.of(mixture.sample(1000, rng)[0], mixture, 0.05, rng)
        >>> fails = Goodness.of(rng.normal(size=(1000, 2)), mixture, 0.05, rng)
        >>> fits.check.verdict, fails.check.verdict
        ('holds', 'fails')
        """
        drawn = mixture.sample(DRAWN, rng)[0]
        rows, samples = (z + SMOOTHING * width * rng.standard_normal(z.shape) for z in (held, drawn))
        varies = np.ptp(drawn, axis=0) > 0  # a latent that is never active is noise alone
        distances = np.array([ks_2samp(a, b).statistic for a, b in zip(rows.T, samples.T, strict=True)])
        auc = distinguished(rows[:, varies], samples[:, varies], rng) if varies.any() else 0.5
        return cls(np.where(varies, distances, 0.0), auc, len(held))

    @property
    def largest_distance(self) -> float:
        """Distance that a latent may have: the limit, and what chance adds at so many rows."""
        chance = np.sqrt(-np.log(LIMITS.error_level / 2 / len(self.distances)) / 2)
        return float(LIMITS.distance + chance * np.sqrt(1 / self.rows + 1 / DRAWN))

    @property
    def largest_auc(self) -> float:
        """AUC that the classifier may have: the limit, and what chance adds at so many rows."""
        return largest_auc(self.rows, DRAWN)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        limits = {"largest_distance": self.largest_distance, "largest_auc": self.largest_auc}
        return vars(self) | limits | {"distances": self.distances.tolist()}

    @property
    def failing(self) -> tuple[int, ...]:
        """Latents whose distribution is too far from that of the model."""
        return tuple(int(i) for i in np.flatnonzero(self.distances > self.largest_distance))

    @property
    def check(self) -> Check:
        """Whether the model describes the data, as a check of a certificate."""
        holds = self.auc <= self.largest_auc and not self.failing
        where = f" The model does not describe {named('latent', self.failing)}." if self.failing else ""
        return Check(
            name="fit",
            statement="the model describes held-out rows",
            statistic=self.auc,
            threshold=self.largest_auc,
            verdict="holds" if holds else "fails",
            sentence=f"A classifier distinguishes {self.rows} held-out rows from samples of the model with AUC "
            f"{self.auc:.2f} (at most {self.largest_auc:.2f}; 0.50: not at all). Largest distance of a latent's "
            f"distribution from that of the model: {self.distances.max(initial=0.0):.2f} (at most "
            f"{self.largest_distance:.2f}).{where}",
            remedy="" if holds else "More steps (max_steps) or another model may fit.",
        )


def largest_auc(rows: int, samples: int) -> float:
    """Return the AUC that a classifier of so many rows and samples may have."""
    return float(LIMITS.auc + norm.isf(LIMITS.error_level) * np.sqrt((1 / rows + 1 / max(samples, 1)) / 12))


def distinguished(rows: Array, samples: Array, rng: np.random.Generator) -> float:
    """Return the AUC of a classifier of latents of rows (M, n) and of samples (S, n); 1 if either is too few."""
    if min(len(rows), len(samples)) < 2 * FOLDS:
        return 1.0
    return _auc(_features(rows), _features(samples), rng)


def _features(t: Array) -> Array:
    """Return products, cubes and truncated absolute values of latents t (N, n)."""
    i, j = np.triu_indices(t.shape[1], 1)
    size = np.abs(t)
    low, middle = (np.minimum(size, bend) for bend in BENDS)
    pairs = [v[:, i] * v[:, j] for v in (t, size, low)]
    return np.concatenate([t, t**2, np.clip(t, -CLIP, CLIP) ** 3, size, low, middle, *pairs], axis=1)


def _auc(rows: Array, samples: Array, rng: np.random.Generator) -> float:
    """Return the AUC of a linear classifier by least squares, both classes of equal weight, on rows it has not seen."""
    features = np.r_[rows, samples]
    is_row: BoolArray = np.arange(len(features)) < len(rows)
    features = np.clip((features - features.mean(0)) / (features.std(0) + 1e-12), -5, 5)
    features = np.c_[features, np.ones(len(features))]
    weights = np.where(is_row, 1 / len(rows), 1 / len(samples))
    fold, score = rng.permutation(len(features)) % FOLDS, np.zeros(len(features))
    for k in range(FOLDS):
        seen = fold != k
        weighted = features[seen] * weights[seen, None]
        gram = features[seen].T @ weighted + RIDGE * np.eye(features.shape[1])
        score[~seen] = features[~seen] @ np.linalg.solve(gram, weighted.T @ np.where(is_row[seen], 1.0, -1.0))
    ranks = rankdata(score)
    return float((ranks[is_row].sum() - len(rows) * (len(rows) + 1) / 2) / (len(rows) * len(samples)))
