"""Graphs as adjacency matrices: A[i, j] = 1 means i -> j; i - j, undirected, is A[i, j] = A[j, i] = 1."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components

from identifiable.arrays import BoolArray
from identifiable.errors import DataError


def shd(a: ArrayLike, b: ArrayLike) -> int:
    """Structural Hamming distance: the number of pairs of nodes that the two graphs join differently.

    A missing, an extra and a reversed edge count 1 each, and so does an undirected edge against a directed one.

    Parameters
    ----------
    a, b : (n, n) adjacency matrices of DAGs or CPDAGs on the same nodes, in the same order.

    References
    ----------
    Tsamardinos, Brown, Aliferis, Machine Learning 65, 2006. Xu et al. (2026), App. D.9, compare CPDAGs with it.

    Examples
    --------
    >>> chain = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    >>> shd(chain, chain.T), shd(dag_to_cpdag(chain), dag_to_cpdag(chain.T))
    (2, 0)
    """
    one, other = _graph("a", a), _graph("b", b)
    if one.shape != other.shape:
        sizes = f"{len(one)} and {len(other)}"
        raise DataError(f"Both graphs must have the same nodes, got {sizes}. Match the latents first (see `match`).")
    differs = one != other
    return int(np.triu(differs | differs.T).sum())


def dag_to_cpdag(adjacency: ArrayLike) -> NDArray[np.int64]:
    """Return the CPDAG of a DAG: everything that the conditional independences of its variables determine.

    An edge keeps its direction if every DAG with the same skeleton and the same v-structures (i -> k <- j with i and
    j not adjacent) agrees on it; the others become undirected. Starting from the v-structures, Meek's rules 1-3 are
    applied until nothing changes; the result does not depend on the order of the nodes.

    Parameters
    ----------
    adjacency : (n, n) with 1 at [i, j] for i -> j, without cycles.

    References
    ----------
    Meek, UAI 1995; Chickering, UAI 1995.

    Examples
    --------
    >>> dag_to_cpdag([[0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]])  # 0 -> 2 <- 1, 2 -> 3: all stay
    array([[0, 0, 1, 0],
           [0, 0, 1, 0],
           [0, 0, 0, 1],
           [0, 0, 0, 0]])
    >>> dag_to_cpdag([[0, 1], [0, 0]])
    array([[0, 1],
           [1, 0]])
    """
    dag = _graph("adjacency", adjacency)
    if connected_components(dag, connection="strong")[0] < len(dag):
        raise DataError("adjacency must have no cycles (an undirected edge is one). Pass a DAG, with 1 at i -> j.")
    joined = dag | dag.T
    apart = ~joined & ~np.eye(len(dag), dtype=bool)
    # i -> k is compelled when some other parent j of k is not adjacent to i.
    directed = meek(joined, dag & _path(apart, dag))
    return (joined & ~directed.T).astype(np.int64)


def meek(joined: BoolArray, directed: BoolArray) -> BoolArray:
    """Return the directed edges (n, n), and those that follow from them by Meek's rules 1-3.

    Parameters
    ----------
    joined : (n, n) which nodes are adjacent, symmetric.
    directed : (n, n) directions that are known, i -> j at [i, j]. Where they contradict each other, so that an edge
        would get both directions at once, it gets none.
    """
    apart = ~joined & ~np.eye(len(joined), dtype=bool)
    while True:
        loose = joined & ~directed & ~directed.T
        meek_1 = _path(directed.T, apart)  # i -> j - k, i and k apart: else a new v-structure at j
        meek_2 = _path(directed, directed)  # i -> j -> k, i - k: else a cycle
        found = loose & (meek_1 | meek_2)
        for i, j in np.argwhere(loose & ~found):  # meek_3: i - k -> j <- l - i, k and l apart
            middle = loose[i] & directed[:, j]
            found[i, j] = apart[np.ix_(middle, middle)].any()
        found &= ~found.T
        if not found.any():
            return directed
        directed = directed | found


def dag_of_cpdag(cpdag: BoolArray) -> BoolArray | None:
    """Return a DAG with the skeleton, the directions and the v-structures of a CPDAG (n, n), None if there is none.

    Dor & Tarsi, 1992: a node without children, all of whose undirected neighbours are adjacent to all its other
    neighbours, can be the last of an order; so can another one in the graph without it.
    """
    directed, joined = cpdag & ~cpdag.T, cpdag | cpdag.T
    dag, left = directed.copy(), np.ones(len(cpdag), dtype=bool)

    def can_be_last(node: int) -> bool:
        near = joined[node] & left
        loose = near & cpdag[node] & cpdag[:, node]
        adjacent = (joined | np.eye(len(joined), dtype=bool))[np.ix_(loose, near)]
        return not (directed[node] & left).any() and bool(adjacent.all())

    while left.any():
        last = next((node for node in np.flatnonzero(left).tolist() if can_be_last(node)), None)
        if last is None:
            return None
        left[last] = False
        dag[left & cpdag[last] & cpdag[:, last], last] = True
    return dag


def _path(first: BoolArray, second: BoolArray) -> BoolArray:
    """Return which i and k are joined by some j with first[i, j] and second[j, k]."""
    return np.asarray(first.astype(float) @ second.astype(float) > 0)


def _graph(name: str, values: ArrayLike) -> BoolArray:
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise DataError(f"{name} must be a square adjacency matrix, got shape {array.shape}.")
    if not np.isin(array, (0, 1)).all():
        raise DataError(f"{name} must hold only 0 and 1: for a matrix W of weights pass (W != 0).")
    if array.diagonal().any():
        raise DataError(f"{name} must have a zero diagonal, got an edge from a node to itself: remove it.")
    return array.astype(bool)
