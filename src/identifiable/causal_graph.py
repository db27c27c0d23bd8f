"""The graph that `identifiable.causal` finds: a CPDAG with names and strengths, its edges in words, its drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from identifiable.arrays import Array
from identifiable.metrics import dag_to_cpdag, shd
from identifiable.metrics.graphs import dag_of_cpdag

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POSITIVE, NEGATIVE = "#2b70aa", "#ea6c48"  # colours that colour-blind readers can distinguish, as in reports


class Edge(NamedTuple):
    """source -> target, or source - target where the direction is not determined; see `Graph.strengths`."""

    source: str
    target: str
    mark: Literal["->", "-"]
    strength: float


@dataclass(frozen=True, eq=False)
class Graph:
    """The graph that the independences among n variables determine.

    Attributes
    ----------
    cpdag : (n, n) 1 at [i, j] for i -> j, at [i, j] and [j, i] for i - j, whose direction is not determined.
    names : (n,) of the variables.
    level : of the tests.
    rows : N; with `graph_of(..., active_only=True)` those in which the rarest pair is active.
    strengths : (n, n) partial correlation of each two given all others, -P_ij / √(P_ii P_jj) with P the inverse of the
        correlation matrix. Also of pairs that are not adjacent: two causes of one effect depend on each other given it.

    Examples
    --------
    >>> strengths = np.array([[0, 0.5, 0.71], [0.5, 0, -0.72], [0.71, -0.72, 0]])
    >>> print(Graph(np.array([[0, 0, 1], [0, 0, 1], [0, 0, 0]]), ("a", "b", "c"), 0.01, 2000, strengths))
    CPDAG: variables: 3, edges: 2 (2 directed), rows: 2000, level: 0.01
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
        """Whether some DAG has this CPDAG. If not, the tests contradict each other: some of them are wrong."""
        dag = dag_of_cpdag(self.cpdag.astype(bool))
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
        return "\n".join([f"CPDAG: {_summary(self, edges)}", *lines])


# -- drawing ---------------------------------------------------------------------------------


def _summary(graph: Graph, edges: Sequence[Edge]) -> str:
    directed = f"edges: {len(edges)} ({sum(edge.mark == '->' for edge in edges)} directed)"
    return f"variables: {len(graph.names)}, {directed}, rows: {graph.rows}, level: {graph.level:g}"


def _plot(graph: Graph) -> "Figure":
    """Draw in inches: a circle wide enough for the labels, which point outwards if there are many."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch

    n, edges = len(graph.names), graph.edges()
    many, radius = n > 12, max(1.4, 0.075 * n)
    angles = np.pi / 2 - 2 * np.pi * np.arange(n) / n
    sideways = radius + 0.25 + 0.085 * max(len(name) for name in graph.names)
    up = sideways if many else radius + 0.35
    width, below, above = max(2 * sideways, 4.6), 0.55, 0.5
    figure = Figure(figsize=(width, 2 * up + below + above))
    FigureCanvasAgg(figure)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(-width / 2, width / 2), ylim=(-up - below, up + above))
    axis.set_axis_off()
    places = radius * np.column_stack([np.cos(angles), np.sin(angles)])
    for edge in reversed(edges):  # the strongest on top
        line, head = _line(edge.strength), "-|>" if edge.mark == "->" else "-"
        ends = (tuple(places[graph.names.index(name)]) for name in (edge.source, edge.target))
        size = 9 + 2 * line["linewidth"]
        axis.add_patch(FancyArrowPatch(*ends, arrowstyle=head, mutation_scale=size, shrinkA=4, shrinkB=5, **line))
    axis.scatter(places[:, 0], places[:, 1], s=30, color="0.25", zorder=3)
    for name, angle in zip(graph.names, angles, strict=True):
        _label(axis, name, radius + 0.14, angle, outwards=many)
    axis.text(
        0, up + above - 0.08, _summary(graph, edges).replace(", rows", "\nrows"), ha="center", va="top", fontsize=10
    )
    for value, x in ((0.1, -1.2), (0.5, 0.0), (-0.5, 1.2)):
        axis.plot([x - 0.4, x - 0.1], [-up - 0.4] * 2, **_line(value))
        axis.text(x, -up - 0.4, f"{value:g}".replace("-", "−"), va="center", fontsize=8)
    axis.text(0, -up - 0.15, "partial correlation given all others", ha="center", va="center", fontsize=8)
    return figure


def _line(strength: float) -> dict[str, Any]:
    return {"linewidth": 0.8 + 3.2 * abs(strength), "color": POSITIVE if strength >= 0 else NEGATIVE}


def _label(axis: "Axes", name: str, distance: float, angle: float, *, outwards: bool) -> None:
    """Write a name beside its place on the circle: horizontally, or along the radius."""
    x, y = np.cos(angle), np.sin(angle)
    side = "right" if x < -1e-9 else "left"
    how: dict[str, Any] = {"rotation": np.degrees(angle) - 180 * (x < -1e-9), "rotation_mode": "anchor", "va": "center"}
    if not outwards:
        side = "center" if abs(x) < 0.2 else side
        how = {"va": "center" if abs(y) < 0.8 else "bottom" if y > 0 else "top"}
    axis.text(distance * x, distance * y, name, fontsize=9, ha=side, **how)
