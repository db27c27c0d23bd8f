"""A graph as text, its consistency, and its drawing."""

from itertools import combinations, permutations, product

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from identifiable.causal_graph import Graph
from identifiable.metrics import dag_to_cpdag


def graph(cpdag, names=None, strengths=None):
    n = len(cpdag)
    names = tuple(f"z{i}" for i in range(n)) if names is None else names
    return Graph(np.asarray(cpdag), names, 0.01, 100, np.zeros((n, n)) if strengths is None else strengths)


def dag_of(n, *edges):
    dag = np.zeros((n, n), dtype=int)
    for i, j in edges:
        dag[i, j] = 1
    return dag


def test_edges_are_named_and_the_strongest_come_first():
    strengths = np.array([[0, 0.2, 0.1], [0.2, 0, -0.7], [0.1, -0.7, 0]])
    found = graph(dag_of(3, (0, 1), (1, 0), (2, 1)), ("a", "b", "c"), strengths)
    assert [tuple(edge) for edge in found.edges()] == [("c", "b", "->", -0.7), ("a", "b", "-", 0.2)]
    assert [line.split() for line in str(found).splitlines()[1:]] == [
        ["c", "->", "b", "-0.70"],
        ["a", "-", "b", "0.20"],
    ]
    assert found.shd(found) == 0
    assert found.shd(dag_of(3, (0, 1))) == 2


def test_a_graph_is_consistent_if_and_only_if_it_is_the_cpdag_of_a_dag():
    """All graphs of three nodes."""
    dags = {
        dag.tobytes(): dag
        for order in permutations(range(3))
        for bits in product((0, 1), repeat=3)
        for dag in [
            np.ascontiguousarray(dag_of(3, *(e for e, b in zip(combinations(order, 2), bits, strict=True) if b)))
        ]
    }
    assert len(dags) == 25
    classes = {dag_to_cpdag(dag).tobytes() for dag in dags.values()}
    cells = [(i, j) for i in range(3) for j in range(3) if i != j]
    for bits in product((0, 1), repeat=6):
        any_graph = dag_of(3, *(cell for cell, bit in zip(cells, bits, strict=True) if bit))
        assert graph(any_graph).consistent == (any_graph.tobytes() in classes)


@pytest.mark.parametrize("n", [1, 2, 5, 13, 40])
def test_the_drawing_has_all_names_and_edges_inside_the_page(n):
    rng = np.random.default_rng(n)
    dag = np.triu(rng.random((n, n)) < min(1.0, 3 / n), 1).astype(int)
    names = tuple(f"sparseunmixing{i}" for i in range(n))
    found = graph(dag_to_cpdag(dag), names, rng.uniform(-1, 1, size=(n, n)))
    figure = found.plot()
    assert isinstance(figure, Figure)
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.texts[:n]] == list(names)
    assert f"{n}," in axis.texts[n].get_text()
    drawn = [patch for patch in axis.patches if isinstance(patch, FancyArrowPatch)]
    edges = found.edges()
    assert len(drawn) == len(edges)
    heads = sum(patch.get_arrowstyle().arrow != "-" for patch in drawn)
    assert heads == sum(edge.mark == "->" for edge in edges)
    widths = [patch.get_linewidth() for patch in drawn]
    assert widths == sorted(widths)  # the strongest are drawn last
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axis.texts]
    assert all(figure.bbox.contains(*corner) for box in boxes for corner in box.corners())
    straight = boxes[:n] if n <= 12 else []
    assert not any(a.overlaps(b) for a, b in combinations(straight, 2))
