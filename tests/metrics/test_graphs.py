"""CPDAGs and structural Hamming distances: all small graphs, causal-learn, hand values."""

import itertools

import numpy as np
import pytest

from identifiable.errors import DataError
from identifiable.metrics import dag_to_cpdag, shd
from identifiable.metrics.graphs import dag_of_cpdag, meek


def v_structures(dag):
    n = len(dag)
    joined = dag | dag.T
    return frozenset(
        (i, j, k)
        for k in range(n)
        for i, j in itertools.combinations(range(n), 2)
        if dag[i, k] and dag[j, k] and not joined[i, j]
    )


def acyclic(graph):
    return not np.linalg.matrix_power(np.eye(len(graph)) + graph, len(graph)).diagonal().sum() > len(graph)


def test_cpdags_of_all_dags_on_four_nodes_are_what_their_class_agrees_on():
    places = [(i, j) for i in range(4) for j in range(4) if i != j]
    classes = {}
    for bits in itertools.product((0, 1), repeat=len(places)):
        dag = np.zeros((4, 4), dtype=int)
        dag[tuple(np.array(places).T)] = bits
        if not (dag & dag.T).any() and acyclic(dag):
            classes.setdefault(((dag | dag.T).tobytes(), v_structures(dag)), []).append(dag)
    assert sum(map(len, classes.values())) == 543  # known counts of DAGs and of their Markov classes
    assert len(classes) == 185
    for members in classes.values():
        union = np.max(members, axis=0)
        for dag in members:
            assert (dag_to_cpdag(dag) == union).all()
        assert any((dag_of_cpdag(union > 0) == dag).all() for dag in members)
    cycle = np.eye(4, dtype=bool)[[1, 2, 3, 0]]
    assert dag_of_cpdag(cycle) is None
    assert dag_of_cpdag(cycle | cycle.T) is None


def test_shd_by_hand():
    empty = np.zeros((3, 3), dtype=int)
    edge, reverse, undirected = (empty.copy() for _ in range(3))
    edge[0, 1] = reverse[1, 0] = undirected[0, 1] = undirected[1, 0] = 1
    graphs = [empty, edge, reverse, undirected]
    for one, other in itertools.product(range(4), repeat=2):
        assert shd(graphs[one], graphs[other]) == (one != other)
    chain, collider = edge.copy(), edge.copy()
    chain[1, 2] = collider[2, 1] = 1
    assert shd(chain, collider) == 1
    assert shd(dag_to_cpdag(chain), dag_to_cpdag(collider)) == 2


def test_contradicting_directions_are_left_out():
    """0 -> 1 - 2 <- 3 without other edges: rule 1 would direct 1 - 2 both ways."""
    joined, directed = np.zeros((2, 4, 4), dtype=bool)
    for i, j in ((0, 1), (1, 2), (2, 3)):
        joined[i, j] = joined[j, i] = True
    directed[0, 1] = directed[3, 2] = True
    assert (meek(joined, directed) == directed).all()


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: shd(np.zeros((2, 2)), np.zeros((3, 3))), "same nodes"),
        (lambda: shd(np.zeros((2, 3)), np.zeros((2, 3))), "square"),
        (lambda: shd(np.eye(2)[::-1], [[0, 0.5], [0, 0]]), "b must"),
        (lambda: dag_to_cpdag(np.eye(2)), "diagonal"),
        (lambda: dag_to_cpdag([[0, 1, 0], [0, 0, 1], [1, 0, 0]]), "cycles"),
        (lambda: dag_to_cpdag([[0, 1], [1, 0]]), "cycles"),
    ],
)
def test_invalid_graphs_are_refused(call, word):
    with pytest.raises(DataError, match=word):
        call()
