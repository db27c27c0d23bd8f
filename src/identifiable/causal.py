r"""The graph among latents: the PC algorithm, with tests of partial correlation.

    x_i ⟂ x_j | x_S   iff   ρ_ij.S = 0   iff   no path between i and j is open given S

The first holds if the variables are jointly Gaussian, the second if they follow a graph to which they are faithful.
Then the independences determine the graph up to its CPDAG (`metrics.dag_to_cpdag`): which variables are adjacent, and
the direction of those edges on which all graphs with the same independences agree.

1. Skeleton. An edge i - j is removed where, for some S of neighbours of i or of j, √(N - |S| - 3) |artanh ρ̂_ij.S| is
   below the quantile of the normal law at 1 - level / 2. Edges are removed once all sets of one size were tested, so
   the order of the variables does not matter (PC-stable; the search is causal-learn's).
2. V-structures. Of i - k - j with i and j not adjacent, k is a common effect if it is in fewer than half of the sets,
   out of the neighbours of i or of j, that separate them (the majority rule). An edge with arrowheads at both ends, by
   two contradicting v-structures, gets no direction from them.
3. Meek's rules 1-3, all edges at once. An edge that two rules direct in opposite ways, and the edges of a directed
   cycle, have no direction.

References
----------
Spirtes, Glymour & Scheines, Causation, Prediction, and Search, 2000. Colombo & Maathuis, JMLR 15, 2014: the order of
the variables, and the majority rule. Xu, Lachapelle & Magliacane, AISTATS 2026, App. D.9: PC on recovered latents.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import atanh, sqrt
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtr

from identifiable.arrays import Array
from identifiable.errors import DataError, join_few
from identifiable.metrics import dag_to_cpdag, match, shd
from identifiable.metrics._checks import FloatArray, same_rows, table
from identifiable.metrics.graphs import BoolArray, meek
from identifiable.training.clock import require_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVEL = 0.01  # of every test; docs/causal.md has the measurements
SINGULAR = 1e-8  # smallest eigenvalue of a correlation matrix that can be inverted
POSITIVE, NEGATIVE = "#2b70aa", "#ea6c48"  # colours of the pictures in report, far apart for colour-blind eyes too
EM_STEPS, EM_CHANGE = 500, 1e-6  # most iterations, and the change of correlations at which they end


class Edge(NamedTuple):
    """source -> target, or source - target where the direction is not determined; see `Graph.strengths`."""

    source: str
    target: str
    mark: Literal["->", "-"]
    strength: float


@dataclass(frozen=True, eq=False)
class Graph:
    """What the independences among n variables say about the graph behind them.

    Attributes
    ----------
    cpdag : (n, n) 1 at [i, j] for i -> j, at [i, j] and [j, i] for i - j, whose direction is not determined.
    names : (n,) of the variables.
    level : of the tests.
    rows : N; where latents rest (`graph_of(..., active_only=True)`), those in which the rarest pair is active.
    strengths : (n, n) partial correlation of each two given all others, -P_ij / √(P_ii P_jj) with P the inverse of the
        correlation matrix. Adjacent or not: two causes of one effect depend on each other given the effect.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b, noise = rng.normal(size=(3, 2000))
    >>> print(pc(np.column_stack([a, b, a - b + noise]), names=["a", "b", "c"]))
    CPDAG of 3 variables with 2 edges, 2 of them directed (2000 rows, level 0.01)
      b -> c  -0.72
      a -> c   0.71
    """

    cpdag: NDArray[np.int64]
    names: tuple[str, ...]
    level: float
    rows: int
    strengths: Array

    def edges(self) -> list[Edge]:
        """Return the edges, the strongest first."""
        found = [
            Edge(self.names[i], self.names[j], "-" if self.cpdag[j, i] else "->", float(self.strengths[i, j]))
            for i, j in np.argwhere(self.cpdag)
            if i < j or not self.cpdag[j, i]
        ]
        return sorted(found, key=lambda edge: -abs(edge.strength))

    def shd(self, other: "Graph | ArrayLike") -> int:
        """Return the structural Hamming distance to another CPDAG (see `metrics.shd`)."""
        return shd(self.cpdag, other.cpdag if isinstance(other, Graph) else other)

    @property
    def consistent(self) -> bool:
        """Whether there is a DAG with this CPDAG. If not, the tests contradict each other: some of them are wrong."""
        dag = _a_dag_of(self.cpdag.astype(bool))
        return dag is not None and bool((dag_to_cpdag(dag) == self.cpdag).all())

    def plot(self) -> "Figure":
        """Draw the variables on a circle, clockwise from the top in their order, so that two graphs can be compared.

        Arrows are directed edges, plain lines undirected ones; the width is |strength|, the colour its sign.
        """
        return _plot(self)

    def __str__(self) -> str:
        edges = self.edges()
        wide = max((len(name) for name in self.names), default=0)
        lines = [f"  {e.source:<{wide}} {e.mark:<2} {e.target:<{wide}}  {e.strength:5.2f}" for e in edges]
        return "\n".join([f"CPDAG of {_counted(self, edges)}", *lines])


@dataclass(frozen=True, eq=False)
class RecoveredGraph:
    """What the recovery of latents costs their graph; see `recovered_shd`.

    Attributes
    ----------
    oracle : (n, n) CPDAG of the true graph.
    true, recovered : `Graph` found from the true latents and from the recovered ones, nodes in the order of the true.
    shd_true, shd_recovered : their distances to the oracle.
    delta_shd : shd_recovered - shd_true.
    """

    oracle: NDArray[np.int64]
    true: Graph
    recovered: Graph

    @property
    def shd_true(self) -> int:
        """Errors of PC itself."""
        return self.true.shd(self.oracle)

    @property
    def shd_recovered(self) -> int:
        """Errors of PC and of the recovery."""
        return self.recovered.shd(self.oracle)

    @property
    def delta_shd(self) -> int:
        """Errors that the recovery adds."""
        return self.shd_recovered - self.shd_true


def pc(
    Z: ArrayLike, *, level: float = LEVEL, names: Sequence[str] | None = None, max_condition: int | None = None
) -> Graph:
    """Find the CPDAG of the columns of a table by the PC algorithm; see the head of this module for the steps.

    The graph follows the columns: permuting them permutes it, and their signs, scales and offsets do not matter. All
    rests on the columns being Gaussian, on there being no common cause outside the table, and on faithfulness. Columns
    that rest at one value in some rows are not Gaussian: see `graph_of`.

    Parameters
    ----------
    Z : (N, n) recovered latents, or any table of numbers.
    level : of every test, not of the whole graph, which takes hundreds of them. On 5000 rows of the published sparse
        graphs 0.05 and 0.01 have the fewest errors (docs/causal.md), and 0.01 adds fewer edges. Latents that are not
        quite recovered depend on each other a little, and many rows show it: a smaller level then helps.
    names : of the columns; those of a DataFrame by default, else z0, z1, ...
    max_condition : most variables to condition on; None: as many as there are neighbours. The time grows as 2 to the
        number of neighbours: set 3 or so where many variables depend on each other.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> first, second, third = rng.normal(size=(3, 5000))
    >>> second += first
    >>> third += second
    >>> graph = pc(np.column_stack([first, second, third]))  # a chain: both directions fit
    >>> graph.cpdag
    array([[0, 1, 0],
           [1, 0, 1],
           [0, 1, 0]])
    >>> [(a, mark, b, round(strength, 1)) for a, b, mark, strength in graph.edges()]
    [('z1', '-', 'z2', 0.7), ('z0', '-', 'z1', 0.5)]
    """
    named = names if names is not None else getattr(Z, "columns", None)
    values = table("Z", Z)
    labels = _names(named, values.shape[1])
    _check_rows(len(values), labels)
    constant = [name for name, column in zip(labels, values.T, strict=True) if np.ptp(column) == 0]
    if constant:
        raise DataError(f"Every column must vary; constant here: {join_few(constant)}. Drop them.")
    unit = values - values.mean(axis=0)
    unit /= np.linalg.norm(unit, axis=0)
    rows = np.full((len(labels), len(labels)), len(values))
    return _graph(np.asarray(unit.T @ unit), rows, labels, level, max_condition)


def graph_of(
    model: Any,
    X: ArrayLike,
    *,
    level: float = LEVEL,
    active_only: bool = False,
    max_condition: int | None = None,
    names: Sequence[str] | None = None,
) -> Graph:
    """Find the CPDAG of the latents that a fitted model sees in X.

    Where latents of covariance Σ rest in some rows, whatever their values,

        cov(z_i, z_j) = P(i and j active) Σ_ij,

    plus a covariance of the masks where latents rest away from their means. What is independent *given* a third latent
    then is so no longer, and PC finds many edges that are not there. There are two ways out.

    - Rows in which nothing rests, where they can be had. The published experiments draw 5000 such rows from the
      simulator (`source.unmasked()`), and send them through mixing and encoder: see `recovered_shd`.
    - `active_only`: a resting latent counts as missing. Σ is the Gaussian maximum-likelihood estimate from what is
      active in each row (EM), and a test of i and j given S counts as many rows as the pairs among them are active in,
      in the harmonic mean. This asks that what is active does not depend on the values (as in the pdGMM paper), that
      each two latents are sometimes active together, and that a latent which rests is hidden rather than held: if its
      effects stop with it, patterns of activity are interventions, and they should be analysed as such.

    Parameters
    ----------
    model : a fitted estimator with `transform` and `get_feature_names_out`. Latents that it calls unused, and those
        that are constant on X, are left out.
    X : (N, d) rows; best such that the model was not fitted to.
    level, max_condition : see `pc`.
    active_only : use the values of active latents only; needs `model.active(X)` (`SparseUnmixing`, `PDGMM`).
    names : of all latents; None: those of `model.get_feature_names_out()`.

    Examples
    --------
    >>> from identifiable import SparseUnmixing
    >>> from identifiable.data import make_pdgmm
    >>> sample = make_pdgmm(20_000, n=4, k=0.5, layers=1, random_state=0)
    >>> model = SparseUnmixing(4, random_state=0, verbose=0).fit(sample.x)
    >>> len(graph_of(model, sample.x, active_only=True).edges())
    2
    """
    Z = table("model.transform(X)", model.transform(X))
    unused = set(getattr(model, "unused_", ()))
    kept = [i for i, column in enumerate(Z.T) if np.ptp(column) > 0 and i not in unused]
    if not kept:
        raise DataError("No latent of the model varies on X: pass rows that differ, or fit the model anew.")
    every = model.get_feature_names_out() if names is None else names
    names = [str(every[i]) for i in kept]
    if not active_only:
        return pc(Z[:, kept], level=level, names=names, max_condition=max_condition)
    if not hasattr(model, "active"):
        raise DataError(
            "active_only needs a model that tells which latents are active in a row, and "
            f"{type(model).__name__} has no `active(X)`: use SparseUnmixing or PDGMM, or active_only=False."
        )
    active = np.asarray(model.active(X), dtype=bool)[:, kept]
    rows = active.T.astype(np.int64) @ active
    _check_pairs(rows, names)
    return _graph(_correlations_of_active(Z[:, kept], active), rows, tuple(names), level, max_condition)


def recovered_shd(z: ArrayLike, z_hat: ArrayLike, dag: ArrayLike, *, level: float = LEVEL) -> RecoveredGraph:
    """Tell what the recovery of latents costs their graph: PC on true and on recovered latents against the oracle.

    The recipe of table 11 of Xu et al. (2026). Recovered latents are matched to the true ones (`metrics.match`) first;
    a latent that was not recovered (no column is left for it, or a constant one) has no edges.

    Parameters
    ----------
    z : (N, n) true latents; published: 5000 rows in which none rests, `source.unmasked().sample(5000)`. Latents that
        the simulator rotated (theta) are turned back by `z @ source.latents.rotation.T`.
    z_hat : (N, m) latents recovered from the same rows.
    dag : (n, n) the true graph, 1 at [i, j] for i -> j: `source.latents.adjacency != 0`.
    level : of the tests (see `pc`), the same for both.

    Examples
    --------
    >>> from identifiable.data import make_pdgmm
    >>> source = make_pdgmm(1, n=5, k=0.8, random_state=0).source
    >>> rows = source.unmasked().sample(5000, random_state=1)
    >>> found = recovered_shd(rows.z, -2 * rows.z[:, ::-1], source.latents.adjacency != 0)
    >>> found.shd_true, found.shd_recovered, found.delta_shd
    (0, 0, 0)
    """
    oracle = dag_to_cpdag(np.asarray(dag))
    true, estimate = table("z", z), table("z_hat", z_hat)
    same_rows(z=true, z_hat=estimate)
    if len(oracle) != true.shape[1]:
        raise DataError(f"dag must have a node per column of z: {true.shape[1]} columns, got {len(oracle)} nodes.")
    matching = match(true, estimate)
    there = np.flatnonzero(matching.correlations)
    matched = estimate[:, matching.permutation[there]] * np.sign(matching.correlations[there])
    on_true = pc(true, level=level)
    cpdag, strengths = np.zeros_like(oracle), np.zeros(oracle.shape)
    if len(there):
        found = pc(matched, level=level, names=[on_true.names[i] for i in there])
        cpdag[np.ix_(there, there)], strengths[np.ix_(there, there)] = found.cpdag, found.strengths
    return RecoveredGraph(oracle, on_true, Graph(cpdag, on_true.names, level, len(true), strengths))


# -- the algorithm ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _FisherZ:
    """p-value of ρ_ij.S = 0, given correlations (n, n) and the rows (n, n) that each of them was seen in."""

    correlations: Array
    rows: NDArray[np.int64]
    method: str = "fisherz"  # causal-learn looks at it
    known: dict[tuple[int, ...], float] = field(default_factory=dict)

    def __call__(self, i: int, j: int, given: Sequence[int] = ()) -> float:
        key = (min(i, j), max(i, j), *sorted(given))
        if key not in self.known:
            self.known[key] = self._p_value(list(key))
        return self.known[key]

    def _p_value(self, at: list[int]) -> float:
        require_time()
        precision = np.linalg.inv(self.correlations[np.ix_(at, at)])
        partial = -precision[0, 1] / sqrt(precision[0, 0] * precision[1, 1])
        pairs = self.rows[np.ix_(at, at)][np.triu_indices(len(at), 1)]
        rows = len(pairs) / float((1 / pairs).sum())
        bounded = min(abs(partial), 1 - 1e-15)
        return 2 * float(ndtr(-sqrt(rows - (len(at) - 2) - 3) * atanh(bounded)))


def _graph(
    correlations: Array, rows: NDArray[np.int64], names: tuple[str, ...], level: float, max_condition: int | None
) -> Graph:
    """Run PC on correlations (n, n) that were seen in so many rows (n, n)."""
    if not 0 < level < 1:
        raise DataError(f"level must lie between 0 and 1, got {level}: 0.01 is the default.")
    if max_condition is not None and not max_condition >= 0:
        raise DataError(f"max_condition must be None or a number of variables from 0 on, got {max_condition}.")
    _check_regular(correlations, names)
    n, test = len(names), _FisherZ(correlations, rows)
    joined = _skeleton(test, n, level, max_condition)
    heads = _arrowheads(joined, test, level, n if max_condition is None else max_condition)
    precision = np.linalg.inv(correlations)
    size = np.sqrt(precision.diagonal())
    strengths = -precision / np.outer(size, size)
    np.fill_diagonal(strengths, 0)
    return Graph(_directed(joined, heads).astype(np.int64), names, float(level), int(rows.min()), strengths)


def _skeleton(test: _FisherZ, n: int, level: float, max_condition: int | None) -> BoolArray:
    """Return which variables are adjacent (n, n), by causal-learn's search."""
    try:
        from causallearn.utils.PCUtils.SkeletonDiscovery import skeleton_discovery
    except ImportError as error:
        raise ImportError('The graph of latents needs causal-learn: pip install "identifiable[causal]".') from error
    shape = np.empty((1, n))  # it sees the variables through the test alone
    found = skeleton_discovery(shape, level, test, stable=True, show_progress=False, max_k=max_condition)
    return np.asarray(found.G.graph != 0)


def _arrowheads(joined: BoolArray, test: _FisherZ, level: float, most: int) -> BoolArray:
    """Return the arrowheads of all v-structures, (n, n), by the majority rule."""
    heads = np.zeros_like(joined)
    for i, j in combinations(range(len(joined)), 2):
        middle = np.flatnonzero(joined[i] & joined[j])
        if joined[i, j] or not len(middle):
            continue
        sets = {given for a in (i, j) for given in _subsets(np.flatnonzero(joined[a]).tolist(), most)}
        separating = [given for given in sets if test(i, j, given) > level]
        for k in middle:
            if 2 * sum(int(k) in given for given in separating) < len(separating):
                heads[i, k] = heads[j, k] = True
    return heads


def _subsets(items: list[int], most: int) -> Iterator[tuple[int, ...]]:
    return (chosen for size in range(min(most, len(items)) + 1) for chosen in combinations(items, size))


def _directed(joined: BoolArray, heads: BoolArray) -> BoolArray:
    """Give edges the directions that follow from v-structures; those that contradict each other give none."""
    directed = meek(joined, heads & ~heads.T)
    _, cycle = connected_components(directed, connection="strong")
    directed &= cycle[:, None] != cycle
    return joined & ~directed.T


def _a_dag_of(cpdag: BoolArray) -> BoolArray | None:
    """Return a DAG with the skeleton, the directions and the v-structures of a CPDAG, if there is one.

    Dor & Tarsi, 1992: a variable without effects, all of whose undirected neighbours are adjacent to all its other
    neighbours, can be the last of an order; so can another one in what is left without it.
    """
    dag, joined = cpdag & ~cpdag.T, cpdag | cpdag.T
    left = np.ones(len(cpdag), dtype=bool)
    while left.any():
        for last in np.flatnonzero(left):
            near = joined[last] & left
            loose = near & cpdag[last] & cpdag[:, last]
            married = joined[np.ix_(loose, near)] | (np.flatnonzero(loose)[:, None] == np.flatnonzero(near))
            if not (cpdag[last] & ~cpdag[:, last] & left).any() and married.all():
                dag[loose, last] = True
                left[last] = False
                break
        else:
            return None
    return dag


def _correlations_of_active(z: FloatArray, active: BoolArray) -> Array:
    """Return the correlations (n, n) of Gaussian latents of which only the active ones are seen, by EM.

    With P_j the inverse of the active block of Σ in pattern j, zero elsewhere, E[z | active] = Σ P_j z, with covariance
    Σ - Σ P_j Σ. So Σ ← Σ_j (Σ P_j M_j P_j Σ + N_j (Σ - Σ P_j Σ)) / N, where M_j = Σ_rows z zᵀ. The mean of a latent is
    that of the rows in which it is active.
    """
    moving = active.sum(axis=0)
    values = np.where(active, z - (z * active).sum(axis=0) / moving, 0.0)
    values /= np.sqrt(np.square(values).sum(axis=0) / moving)
    patterns, group, counts = np.unique(active, axis=0, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(group.ravel(), kind="stable"), np.cumsum(counts)[:-1])
    moments = np.stack([values[rows].T @ values[rows] for rows in members])  # (J, n, n)
    blocks = (patterns[:, :, None] & patterns[:, None, :]).astype(np.float64)
    identity = np.eye(z.shape[1])
    outside = identity * ~patterns[:, None, :]
    covariance = correlations = identity
    for _ in range(EM_STEPS):
        fill = covariance @ (np.linalg.inv(covariance * blocks + outside) * blocks)  # Σ P_j
        unseen = len(z) * covariance - np.einsum("j,jab->ab", counts, fill) @ covariance
        covariance = ((fill @ moments @ fill.transpose(0, 2, 1)).sum(axis=0) + unseen) / len(z)
        size = np.sqrt(covariance.diagonal())
        before, correlations = correlations, covariance / np.outer(size, size)
        if np.abs(correlations - before).max() < EM_CHANGE:
            break
    return np.asarray((correlations + correlations.T) / 2)


# -- what can go wrong -----------------------------------------------------------


def _names(given: Any, n: int) -> tuple[str, ...]:
    names = tuple(f"z{i}" for i in range(n)) if given is None else tuple(str(name) for name in given)
    if len(names) != n or len(set(names)) < n:
        raise DataError(f"names must be {n} different ones, one per column, got {join_few(names)}.")
    return names


def _check_rows(rows: int, names: Sequence[str]) -> None:
    if rows < len(names) + 4:
        raise DataError(
            f"A test given all other variables needs at least 4 rows more than there are columns, got {rows} rows and "
            f"{len(names)} columns: pass more rows, or fewer columns."
        )


def _check_pairs(rows: NDArray[np.int64], names: Sequence[str]) -> None:
    i, j = divmod(int(rows.argmin()), len(names))
    if rows[i, j] < len(names) + 4:
        raise DataError(
            f"{names[i]} and {names[j]} are active together in {rows[i, j]} of the rows, and only such rows tell their "
            f"correlation; at least {len(names) + 4} are needed: pass more rows, or rows in which nothing rests with "
            "active_only=False."
        )


def _check_regular(correlations: Array, names: Sequence[str]) -> None:
    values, vectors = np.linalg.eigh(correlations)
    if values[0] < SINGULAR:
        part = [name for name, weight in zip(names, np.abs(vectors[:, 0]), strict=True) if weight > 1e-3]
        raise DataError(
            f"The correlation matrix is singular: {join_few(part)} are linearly dependent, and no partial correlation "
            "given all of them exists. Drop one of them (a duplicate, a sum or a copy of the others)."
        )


# -- the drawing -----------------------------------------------------------------


def _counted(graph: Graph, edges: Sequence[Edge]) -> str:
    directed = sum(edge.mark == "->" for edge in edges)
    n, many = len(graph.names), f"{len(edges)} edge{'s' * (len(edges) != 1)}, {directed} of them directed"
    return f"{n} variable{'s' * (n != 1)} with {many} ({graph.rows} rows, level {graph.level:g})"


def _plot(graph: Graph) -> "Figure":
    """Draw in inches: a circle wide enough for the labels, which point outwards where there are many."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    n, many = len(graph.names), len(graph.names) > 12
    angles = np.pi / 2 - 2 * np.pi * np.arange(n) / n
    radius = max(1.4, 0.075 * n)
    sideways = radius + 0.25 + 0.085 * max(len(name) for name in graph.names)
    up = sideways if many else radius + 0.35
    width, below, above = max(2 * sideways, 4.6), 0.55, 0.5
    figure = Figure(figsize=(width, 2 * up + below + above))
    FigureCanvasAgg(figure)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(-width / 2, width / 2), ylim=(-up - below, up + above))
    axis.set_axis_off()
    places = radius * np.column_stack([np.cos(angles), np.sin(angles)])
    where = dict(zip(graph.names, places, strict=True))
    for edge in reversed(graph.edges()):  # the strongest on top
        _draw_edge(axis, where[edge.source], where[edge.target], edge)
    axis.scatter(places[:, 0], places[:, 1], s=30, color="0.25", zorder=3)
    for name, angle in zip(graph.names, angles, strict=True):
        _label(axis, name, radius + 0.14, angle, outwards=many)
    counted = _counted(graph, graph.edges()).replace(" (", "\n(")
    axis.text(0, up + above - 0.08, counted, ha="center", va="top", fontsize=10)
    _legend(figure)
    return figure


def _draw_edge(axis: "Axes", start: Array, end: Array, edge: Edge) -> None:
    from matplotlib.patches import FancyArrowPatch

    line = _width(edge.strength)
    arrow = FancyArrowPatch(
        (float(start[0]), float(start[1])),
        (float(end[0]), float(end[1])),
        arrowstyle="-|>" if edge.mark == "->" else "-",
        mutation_scale=9 + 2 * line,
        linewidth=line,
        color=POSITIVE if edge.strength >= 0 else NEGATIVE,
        shrinkA=4,
        shrinkB=5,
    )
    axis.add_patch(arrow)


def _width(strength: float) -> float:
    return 0.8 + 3.2 * abs(strength)


def _label(axis: "Axes", name: str, distance: float, angle: float, *, outwards: bool) -> None:
    """Write a name beside its place on the circle: horizontally, or along the radius."""
    x, y = np.cos(angle), np.sin(angle)
    left = x < -1e-9
    if outwards:
        turn = np.degrees(angle) - 180 * left
        how: dict[str, Any] = {"rotation": turn, "rotation_mode": "anchor", "ha": "right" if left else "left"}
        axis.text(distance * x, distance * y, name, fontsize=9, va="center", **how)
        return
    sideways = "center" if abs(x) < 0.2 else "right" if left else "left"
    upright = "center" if abs(y) < 0.8 else "bottom" if y > 0 else "top"
    axis.text(distance * x, distance * y, name, fontsize=9, ha=sideways, va=upright)


def _legend(figure: "Figure") -> None:
    from matplotlib.lines import Line2D

    shown = ((0.1, POSITIVE), (0.5, POSITIVE), (-0.5, NEGATIVE))
    handles = [
        Line2D([], [], color=colour, linewidth=_width(value), label=f"{value:g}".replace("-", "−"))
        for value, colour in shown
    ]
    title = "partial correlation given all others"
    figure.legend(
        handles=handles, title=title, loc="lower center", ncols=3, fontsize=8, title_fontsize=8, frameon=False
    )
