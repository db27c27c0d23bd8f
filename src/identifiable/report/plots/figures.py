"""What pictures share: a figure, a grid of axes, labels in colours that can be told apart, ellipses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from identifiable.arrays import FloatArray, IntArray
from identifiable.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From dark to light in equal steps of CIE lightness (26 to 80), so that they differ in grey too; the hues were searched
# to be far apart in ordinary, red-blind, green-blind and blue-blind vision.
PALETTE = (
    *("#122da5", "#325029", "#8e2c79", "#805900", "#2b70aa", "#e52368"),
    *("#02958b", "#ea6c48", "#9e90fb", "#fe81ca", "#bebb90", "#f6be2d"),
)
OTHERS = "0.85"  # grey of the labels left out of the legend


@dataclass(frozen=True, eq=False)
class Labelled:
    """The different labels of some rows, of which the most frequent have a colour of their own.

    Attributes
    ----------
    unique : (L,) the labels, sorted.
    kept : the places in `unique` of those with a colour of their own.
    colours : (L,) a colour each.
    """

    unique: NDArray[Any]
    kept: IntArray
    colours: NDArray[Any]

    @classmethod
    def of(cls, values: NDArray[Any], most: int = len(PALETTE)) -> Self:
        """Give colours to the `most` frequent of values (N,)."""
        unique, counts = np.unique(values, return_counts=True)
        kept = np.sort(np.argsort(-counts, kind="stable")[:most])
        shades = np.full(len(unique), OTHERS, dtype=object)
        shades[kept] = colours(len(kept))
        return cls(unique, kept, shades)

    def colours_of(self, values: NDArray[Any]) -> list[str]:
        """Return the colour of each of values (N,), all of which are labels."""
        return list(self.colours[np.searchsorted(self.unique, values)])

    def scatter(self, axis: "Axes", points: FloatArray, values: NDArray[Any]) -> None:
        """Draw points (N, 2), those without a colour of their own below the others."""
        order = np.argsort(np.isin(values, self.unique[self.kept]), kind="stable")
        x, y = points[order].T
        axis.scatter(x, y, c=self.colours_of(values[order]), s=7, alpha=0.4, linewidths=0, rasterized=True)

    def legend(self, figure: "Figure", names: Sequence[str], title: str, outline: str | None) -> None:
        """Write beside the axes which colour is which of the names (L,), and what the outlines are."""
        from matplotlib.lines import Line2D

        entries = [(self.colours[i], names[i]) for i in self.kept]
        if len(self.kept) < len(self.unique):
            entries.append((OTHERS, f"{len(self.unique) - len(self.kept)} others"))
        handles = [Line2D([], [], marker="o", linestyle="", markersize=6, color=c, label=name) for c, name in entries]
        if outline is not None:
            handles.append(Line2D([], [], color="0.3", linewidth=1.1, label=outline))
        figure.set_figwidth(figure.get_figwidth() + 0.07 * max(len(name) for _, name in entries))
        legend = figure.legend(handles=handles, title=title, loc="outside right center", fontsize=8, borderaxespad=1.2)
        legend.set_frame_on(False)


def new_figure(width: float, height: float, *, fixed_aspect: bool = False) -> "Figure":
    """Make a figure of this size in inches that belongs to no window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06, compress=fixed_aspect)
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def grid(figure: "Figure", count: int, wide: int, *, share: bool) -> "list[Axes]":
    """Add `count` axes, row by row; if they share both axes, only the outer ones have tick labels."""
    places = figure.add_gridspec(math.ceil(count / wide), wide)
    axes: list[Axes] = []
    for i in range(count):
        first = axes[0] if share and axes else None
        axis = figure.add_subplot(places[divmod(i, wide)], sharex=first, sharey=first)
        if share:
            axis.tick_params(labelbottom=i + wide >= count, labelleft=i % wide == 0)
        axes.append(axis)
    return axes


def colours(k: int) -> list[str]:
    """Take k colours, as far apart in lightness as the palette allows."""
    return [PALETTE[i] for i in np.linspace(0, len(PALETTE) - 1, k).round().astype(int)]


def draw_ellipse(
    axis: "Axes", mean: FloatArray, covariance: FloatArray, colour: str, *, deviations: float, linewidth: float = 1.1
) -> None:
    """Trace the points so many standard deviations from the mean (2,), given the covariance (2, 2)."""
    from matplotlib.patheffects import Normal, Stroke

    spread, directions = np.linalg.eigh(covariance)
    angle = np.linspace(0, 2 * np.pi, 100)
    circle = deviations * np.column_stack([np.cos(angle), np.sin(angle)])
    outline = mean + circle * np.sqrt(np.clip(spread, 0, None)) @ directions.T
    halo = [Stroke(linewidth=2 * linewidth, foreground="white"), Normal()]
    axis.plot(*outline.T, color=colour, linewidth=linewidth, path_effects=halo)


def one_per_row(name: str, u: ArrayLike) -> NDArray[Any]:
    """Return u as a (N,) array of numbers or of text without gaps."""
    array = np.asarray(u)
    if array.ndim != 1:
        cure = f"choose one column, {name}[:, 0]" if array.ndim == 2 else "pass one value per row"
        raise DataError(f"{name} must be 1-D (rows,), got shape {array.shape}: {cure}.")
    if array.dtype.kind == "O":  # as pandas hands over text, and numbers that may have gaps
        array = pd.Series(array).infer_objects().to_numpy()
    bad = np.flatnonzero(~np.isfinite(array) if array.dtype.kind == "f" else pd.isna(array))
    if len(bad):
        raise DataError(
            f"{name} must have a finite value in every row, got {array[bad[0]]} at row {bad[0]} "
            f"({len(bad)} such rows): drop them."
        )
    return array.astype(str) if array.dtype.kind == "O" else array


def whole_as_whole(unique: NDArray[Any]) -> list[Any]:
    """Return labels as Python values, numbers without a fraction as integers."""
    return [int(value) if isinstance(value, float) and value.is_integer() else value for value in unique.tolist()]


def written(unique: NDArray[Any]) -> list[str]:
    """Write labels down.

    Examples
    --------
    >>> written(np.array([1.0, 0.123456])), written(np.array(["a"]))
    (['1', '0.1235'], ['a'])
    """
    return [f"{value:.4g}" if isinstance(value, float) else str(value) for value in whole_as_whole(unique)]
