"""Agreement of clusters with classes: hand values, brute force, scikit-learn."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from identifiable.errors import DataError
from identifiable.metrics import ari, clustering_accuracy, nmi

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("classes", "clusters"), [(4, 4), (3, 5), (5, 3)])
def test_clustering_accuracy_is_the_maximum_over_all_matchings(seed, classes, clusters):
    rng = np.random.default_rng(seed)
    labels, predicted = rng.integers(classes, size=40), rng.integers(clusters, size=40)
    names = range(max(classes, clusters))
    best = max(np.mean(np.array(names_of)[predicted] == labels) for names_of in itertools.permutations(names))
    assert clustering_accuracy(labels, predicted) == pytest.approx(best)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_cluster_scores_ignore_names(seed):
    rng = np.random.default_rng(seed)
    labels, predicted = rng.integers(4, size=30), rng.integers(4, size=30)
    renamed = np.array(["d", "a", "c", "b"])[predicted]
    for score, peer in ((nmi, normalized_mutual_info_score), (ari, adjusted_rand_score)):
        assert score(labels, renamed) == pytest.approx(peer(labels, predicted))
        assert score(labels, labels) == pytest.approx(1)
    assert clustering_accuracy(labels, renamed) == pytest.approx(clustering_accuracy(labels, predicted))
    assert clustering_accuracy(labels, labels) == 1


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: clustering_accuracy(np.eye(3), [0, 1, 2]), "1-D"),
        (lambda: nmi([0, 1], [0, 1, 1]), "predicted has 3"),
        (lambda: ari([0.0, np.nan], [0, 1]), "finite"),
        (lambda: clustering_accuracy([1], [1]), "2 entries"),
    ],
)
def test_invalid_partitions_are_refused(call, word):
    with pytest.raises(DataError, match=word):
        call()
