"""Agreement of clusters with known classes; the names of the clusters do not matter."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from identifiable.arrays import IntArray
from identifiable.errors import DataError
from identifiable.metrics.checks import same_rows


def clustering_accuracy(labels: ArrayLike, predicted: ArrayLike) -> float:
    r"""Share of samples whose cluster is matched to their class, under the best one-to-one matching.

    .. math:: \max_\pi \frac{1}{N} \sum_{t=1}^{N} 1[y_t = \pi(c_t)]

    (Hungarian algorithm.) The numbers of classes and clusters may differ; samples of a cluster left without a class
    count as errors, so splitting a class costs.

    Parameters
    ----------
    labels : (N,) classes y; any values that can be compared.
    predicted : (N,) clusters c.

    References
    ----------
    Xie, Girshick, Farhadi, ICML 2016; Jiang et al., IJCAI 2017 (VaDE).

    Examples
    --------
    >>> clustering_accuracy(["a", "a", "b", "b"], [7, 7, 3, 7])
    0.75
    """
    y, c = _codes(labels, predicted)
    counts = contingency_matrix(y, c)
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / len(y))


def nmi(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Mutual information of classes (N,) and clusters (N,), divided by the mean of their entropies; in [0, 1].

    Examples
    --------
    >>> round(nmi([0, 0, 1, 1], [1, 1, 0, 0]), 6), round(nmi([0, 0, 1, 1], [0, 1, 0, 1]), 6)
    (1.0, 0.0)
    """
    return float(normalized_mutual_info_score(*_codes(labels, predicted)))


def ari(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Rand index of classes (N,) and clusters (N,), adjusted for chance: 1 if equal, 0 on average if unrelated.

    Examples
    --------
    >>> ari([0, 0, 1, 1], [1, 1, 0, 0]), ari([0, 0, 1, 1], [0, 1, 0, 1])
    (1.0, -0.5)
    """
    return float(adjusted_rand_score(*_codes(labels, predicted)))


def _codes(labels: ArrayLike, predicted: ArrayLike) -> tuple[IntArray, IntArray]:
    """Check both partitions and number their classes from 0."""
    codes = {}
    for name, values in (("labels", labels), ("predicted", predicted)):
        array = np.asarray(values)
        if array.ndim != 1 or len(array) < 2:
            raise DataError(
                f"{name} must be 1-D with at least 2 entries, one per sample, got shape {array.shape}. Pass "
                "argmax(axis=1) of cluster probabilities."
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError(f"{name} must be finite, got NaN or infinity: drop the samples without a class.")
        codes[name] = np.unique(array, return_inverse=True)[1]
    same_rows(**codes)
    return codes["labels"], codes["predicted"]
