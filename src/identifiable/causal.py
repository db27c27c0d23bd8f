r"""The graph among latents: the PC algorithm, with tests of partial correlation.

    x_i ⟂ x_j | x_S   iff   ρ_ij.S = 0   iff   no path between i and j is open given S

The first holds if the variables are jointly Gaussian, the second if they follow a graph to which they are faithful.
Then the independences determine the graph up to its CPDAG (`metrics.dag_to_cpdag`): which variables are adjacent, and
the direction of those edges on which all graphs with the same independences agree.

1. Skeleton. An edge i - j is removed where, for some S of neighbours of i or of j, √(N - |S| - 3) |artanh ρ̂_ij.S| is
   below the quantile of the normal distribution at 1 - level / 2. Edges are removed once all sets of one size were
   tested, so the order of the variables does not matter (PC-stable; the search is causal-learn's).
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

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import atanh, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtr

from identifiable.arrays import Array, BoolArray, FloatArray
from identifiable.causal_graph import Graph
from identifiable.errors import DataError, join_few
from identifiable.metrics import dag_to_cpdag, match
from identifiable.metrics.checks import same_rows, table
from identifiable.metrics.graphs import meek
from identifiable.training.clock import require_time

if TYPE_CHECKING:
    pass

LEVEL = 0.01  # of every test; docs/causal.md has the measurements
SINGULAR = 1e-8  # smallest eigenvalue of a correlation matrix that can be inverted
EM_STEPS, EM_CHANGE = 500, 1e-6  # maximal iterations, and the change of correlations at which they end


@dataclass(frozen=True, eq=False)
class RecoveredGraph:
    """The graphs of true and of recovered latents, compared with the true graph; see `recovered_shd`.

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
    """Find the CPDAG of the columns of a table by the PC algorithm; the top of this module lists the steps.

    Permuting the columns permutes the graph; their signs, scales and offsets do not matter. Assumed: the columns are
    Gaussian, they have no common cause outside the table, and they are faithful to their graph. Columns that have one
    value in many rows are not Gaussian: see `graph_of`.

    Parameters
    ----------
    Z : array (N, n). Recovered latents, or any table of numbers.
    level : float, default=0.01. Level of every test, not of the whole graph, which takes hundreds of them. On 5000 rows
        of the published sparse graphs 0.05 and 0.01 have the fewest errors (docs/causal.md), and 0.01 adds fewer edges.
        Imperfectly recovered latents depend on each other a little, which many rows show: a smaller level then helps.
    names : sequence of str or None, default=None. Names of the columns. None: those of a DataFrame, else z0, z1, ...
    max_condition : int or None, default=None. Most variables to condition on. None: as many as there are neighbours.
        The time doubles with every neighbour: pass 3 or so if many variables depend on each other.

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
    names = tuple(f"z{i}" for i in range(values.shape[1])) if named is None else tuple(str(name) for name in named)
    if len(names) != values.shape[1] or len(set(names)) < len(names):
        raise DataError(f"names must be {values.shape[1]} different ones, one per column, got {join_few(names)}.")
    rows = np.full((len(names), len(names)), len(values))
    _check_rows(rows, names)
    constant = [name for name, column in zip(names, values.T, strict=True) if np.ptp(column) == 0]
    if constant:
        raise DataError(f"Every column must vary; constant here: {join_few(constant)}. Drop them.")
    unit = values - values.mean(axis=0)
    unit /= np.linalg.norm(unit, axis=0)
    return graph_from_correlations(np.asarray(unit.T @ unit), rows, names, level, max_condition)


def graph_of(
    model: Any,
    X: ArrayLike,
    *,
    level: float = LEVEL,
    active_only: bool = False,
    max_condition: int | None = None,
    names: Sequence[str] | None = None,
) -> Graph:
    """Find the CPDAG of the latents of a fitted model.

    If latents of covariance Σ are inactive in some rows, whatever their values,

        cov(z_i, z_j) = P(i and j active) Σ_ij,

    plus a covariance of the masks if inactive values are not the means. Variables that are independent *given* a third
    latent then no longer are, and PC finds many wrong edges. There are two remedies.

    - Rows in which every latent is active, if they are available. The published experiments sample 5000 such rows from
      the simulator (`source.unmasked()`) and send them through mixing and encoder: see `recovered_shd`.
    - `active_only`: an inactive latent counts as missing. Σ is the Gaussian maximum-likelihood estimate from the active
      values (EM), and a test of i and j given S counts the rows in which the pairs among them are active, in the
      harmonic mean. This assumes that activity does not depend on the values (as in the pdGMM paper), that each two
      latents are active together in some rows, and that an inactive latent is hidden rather than held at a value: if
      its effects stop with it, patterns of activity are interventions, and should be analysed as such.

    Parameters
    ----------
    model : fitted estimator with `transform` and `get_feature_names_out`. Latents in `unused_`, and those that are
        constant on X, are left out.
    X : array (N, d). Preferably rows that the model was not fitted to.
    level, max_condition : see `pc`.
    active_only : bool, default=False. Use the values of active latents only; needs `model.active(X)` (`SparseUnmixing`,
        `PDGMM`).
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
        raise DataError("No latent of the model varies on X. Pass rows that differ, or fit the model again.")
    every = model.get_feature_names_out() if names is None else names
    names = [str(every[i]) for i in kept]
    if not active_only:
        return pc(Z[:, kept], level=level, names=names, max_condition=max_condition)
    if not hasattr(model, "active"):
        name = type(model).__name__
        raise DataError(f"active_only needs a model with `active(X)`, such as SparseUnmixing or PDGMM, got {name}.")
    active = np.asarray(model.active(X), dtype=bool)[:, kept]
    rows = active.T.astype(np.int64) @ active
    _check_rows(rows, names)
    return graph_from_correlations(correlations_of_active(Z[:, kept], active), rows, tuple(names), level, max_condition)


def recovered_shd(z: ArrayLike, z_hat: ArrayLike, dag: ArrayLike, *, level: float = LEVEL) -> RecoveredGraph:
    """Compare the graphs that PC finds from true and from recovered latents with the true graph.

    This is the recipe of table 11 of Xu et al. (2026). Recovered latents are matched to the true ones (`metrics.match`)
    first; a latent that was not recovered (no column is left for it, or a constant one) has no edges.

    Parameters
    ----------
    z : array (N, n). True latents; published: 5000 rows in which all are active, `source.unmasked().sample(5000)`.
        Latents that the simulator rotated (theta) are rotated back by `z @ source.latents.rotation.T`.
    z_hat : array (N, m). Latents recovered from the same rows.
    dag : array (n, n). The true graph, 1 at [i, j] for i -> j: `source.latents.adjacency != 0`.
    level : float, default=0.01. Level of the tests (see `pc`), the same for both.

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
    found = np.flatnonzero(matching.correlations)
    matched = estimate[:, matching.permutation[found]] * np.sign(matching.correlations[found])
    on_true = pc(true, level=level)
    cpdag, strengths = np.zeros_like(oracle), np.zeros(oracle.shape)
    if len(found):
        graph = pc(matched, level=level, names=[on_true.names[i] for i in found])
        cpdag[np.ix_(found, found)], strengths[np.ix_(found, found)] = graph.cpdag, graph.strengths
    return RecoveredGraph(oracle, on_true, Graph(cpdag, on_true.names, level, len(true), strengths))


# -- the algorithm ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FisherZ:
    """The p-value of ρ_ij.S = 0, from correlations (n, n) and the rows (n, n) that each of them was computed from."""

    correlations: Array
    rows: NDArray[np.int64]
    method: str = "fisherz"  # causal-learn reads it
    known: dict[tuple[int, ...], float] = field(default_factory=dict)

    def __call__(self, i: int, j: int, given: Sequence[int] = ()) -> float:
        """Test i and j given others."""
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


def graph_from_correlations(
    correlations: Array, rows: NDArray[np.int64], names: tuple[str, ...], level: float, max_condition: int | None
) -> Graph:
    """Run PC on correlations (n, n), each computed from so many rows (n, n)."""
    if not 0 < level < 1:
        raise DataError(f"level must lie between 0 and 1, got {level}.")
    if max_condition is not None and not max_condition >= 0:
        raise DataError(f"max_condition must be None or a number of variables from 0 on, got {max_condition}.")
    _check_regular(correlations, names)
    n, test = len(names), FisherZ(correlations, rows)
    joined = skeleton(test, n, level, max_condition)
    heads = _arrowheads(joined, test, level, n if max_condition is None else max_condition)
    precision = np.linalg.inv(correlations)
    size = np.sqrt(precision.diagonal())
    strengths = -precision / np.outer(size, size)
    np.fill_diagonal(strengths, 0)
    return Graph(directed(joined, heads).astype(np.int64), names, float(level), int(rows.min()), strengths)


def skeleton(test: FisherZ, n: int, level: float, max_condition: int | None) -> BoolArray:
    """Return which variables are adjacent (n, n), by causal-learn's search."""
    try:
        from causallearn.utils.PCUtils.SkeletonDiscovery import skeleton_discovery
    except ImportError as error:
        raise ImportError('The graph of latents needs causal-learn: pip install "identifiable[causal]".') from error
    data = np.empty((1, n))  # only the number of columns is used: the test knows the correlations
    found = skeleton_discovery(data, level, test, stable=True, show_progress=False, max_k=max_condition)
    return np.asarray(found.G.graph != 0)


def _arrowheads(joined: BoolArray, test: FisherZ, level: float, most: int) -> BoolArray:
    """Return the arrowheads of all v-structures, (n, n), by the majority rule."""
    heads = np.zeros_like(joined)
    for i, j in combinations(range(len(joined)), 2):
        middle = np.flatnonzero(joined[i] & joined[j])
        if joined[i, j] or not len(middle):
            continue
        neighbours = [np.flatnonzero(joined[a]).tolist() for a in (i, j)]
        sets = {given for near in neighbours for size in range(most + 1) for given in combinations(near, size)}
        separating = [given for given in sets if test(i, j, given) > level]
        for k in middle:
            if 2 * sum(int(k) in given for given in separating) < len(separating):
                heads[i, k] = heads[j, k] = True
    return heads


def directed(joined: BoolArray, heads: BoolArray) -> BoolArray:
    """Direct the edges by v-structures and what follows from them; contradicting ones give no direction."""
    arrows = meek(joined, heads & ~heads.T)
    _, cycle = connected_components(arrows, connection="strong")
    arrows &= cycle[:, None] != cycle
    return joined & ~arrows.T


def correlations_of_active(z: FloatArray, active: BoolArray) -> Array:
    """Return the correlations (n, n) of Gaussian latents of which only the active ones are observed, by EM.

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


# -- checks ----------------------------------------------------------------------


def _check_rows(rows: NDArray[np.int64], names: Sequence[str]) -> None:
    i, j = divmod(int(rows.argmin()), len(names))
    if rows[i, j] < len(names) + 4:
        raise DataError(
            f"A test given all other variables needs at least {len(names) + 4} rows, 4 more than there are columns; "
            f"{names[i]} and {names[j]} are observed together in {rows[i, j]}. Pass more rows or fewer columns."
        )


def _check_regular(correlations: Array, names: Sequence[str]) -> None:
    values, vectors = np.linalg.eigh(correlations)
    if values[0] < SINGULAR:
        part = [name for name, weight in zip(names, np.abs(vectors[:, 0]), strict=True) if weight > 1e-3]
        raise DataError(
            f"The correlation matrix is singular: {join_few(part)} are linearly dependent. Drop one of them (a "
            "duplicate or a sum of others)."
        )
