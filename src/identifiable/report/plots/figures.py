"""Shared parts of the figures: panels, captions, legends, colours of labels, ellipses, and checks of arguments."""

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from identifiable.arrays import FloatArray, IntArray
from identifiable.errors import DataError, join_few

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From dark to light in equal steps of CIE lightness (26 to 80), so that the colours differ in grey too; the hues were
# searched to be far apart in ordinary, red-blind, green-blind and blue-blind vision.
PALETTE = (
    *("#122da5", "#325029", "#8e2c79", "#805900", "#2b70aa", "#e52368"),
    *("#02958b", "#ea6c48", "#9e90fb", "#fe81ca", "#bebb90", "#f6be2d"),
)
GREY = "0.85"  # of the labels that are not in the legend
LETTER = 0.07  # width of a letter of a legend, in inches
LINE = 0.16  # height of a line of a caption, in inches


# -- figures and panels


def new_figure(width: float, height: float, *, fixed_aspect: bool = False) -> "Figure":
    """Make a figure of this size in inches that belongs to no window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06, compress=fixed_aspect)
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def make_panels(
    count: int, wide: int, size: tuple[float, float], margin: tuple[float, float] = (0.8, 0.3), *, share: bool = False
) -> "tuple[Figure, list[Axes]]":
    """Make a figure of `count` panels, row by row.

    Parameters
    ----------
    wide : panels in a row.
    size : of a panel, in inches.
    margin : inches added to width and height of the figure.
    share : whether all panels share both axes; then only the outer ones have tick labels.
    """
    high = math.ceil(count / wide)
    figure = new_figure(size[0] * wide + margin[0], size[1] * high + margin[1])
    axes = list(figure.subplots(high, wide, squeeze=False, sharex=share, sharey=share).flat)
    for axis in axes[count:]:
        axis.remove()
    for i, axis in enumerate(axes[:count]):
        style(axis)
        if share:
            axis.tick_params(labelbottom=i + wide >= count)
    return figure, axes[:count]


def columns_for(count: int, most: int) -> int:
    """Return how many of `count` panels to put in a row of at most `most`, so that all rows are about as long.

    Examples
    --------
    >>> columns_for(3, 5), columns_for(6, 5), columns_for(9, 4)
    (3, 3, 3)
    """
    return math.ceil(count / math.ceil(count / most))


def style(axis: "Axes", *, ticks: int = 5) -> None:
    """Use small tick labels, and at most `ticks` intervals on each axis."""
    axis.tick_params(labelsize=8)
    axis.locator_params(nbins=ticks)


def label(axis: "Axes", *, x: str | None = None, y: str | None = None, title: str | None = None) -> None:
    """Write title and axis labels in the sizes that all figures use."""
    if x is not None:
        axis.set_xlabel(x, fontsize=9)
    if y is not None:
        axis.set_ylabel(y, fontsize=9)
    if title is not None:
        axis.set_title(title, fontsize=9.5)


def open_frame(axis: "Axes") -> None:
    """Hide the upper and right lines of a panel."""
    axis.spines[["top", "right"]].set_visible(False)


def add_caption(figure: "Figure", text: str) -> None:
    """Write a caption below the figure, each paragraph wrapped to its width, and increase its height."""
    width = figure.get_figwidth()
    lines = [line for paragraph in text.split("\n") for line in textwrap.wrap(paragraph, int(13 * width))]
    if lines:
        figure.supxlabel("\n".join(lines), fontsize=8.5)
        figure.set_figheight(figure.get_figheight() + LINE * len(lines))


def add_legend(figure: "Figure", handles: Sequence[Any], title: str | None = None) -> None:
    """Write a legend beside the panels, and increase the width of the figure."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    figure.set_figwidth(figure.get_figwidth() + LETTER * longest)
    style: dict[str, Any] = {"fontsize": 8, "borderaxespad": 1.2, "frameon": False}
    figure.legend(handles=handles, title=title, loc="outside right center", **style)


# -- colours


@dataclass(frozen=True, eq=False)
class Labelled:
    """The labels of some rows, the most frequent of which have different colours.

    Attributes
    ----------
    unique : (L,) the labels, sorted.
    kept : indices in `unique` of the labels with a colour.
    colours : (L,) a colour each; grey for the others.
    """

    unique: NDArray[Any]
    kept: IntArray
    colours: NDArray[Any]

    @classmethod
    def of(cls, values: NDArray[Any], most: int = len(PALETTE)) -> Self:
        """Give colours to the `most` frequent of values (N,)."""
        unique, counts = np.unique(values, return_counts=True)
        kept = np.sort(np.argsort(-counts, kind="stable")[:most])
        shades = np.full(len(unique), GREY, dtype=object)
        shades[kept] = colours(len(kept))
        return cls(unique, kept, shades)

    def colours_of(self, values: NDArray[Any]) -> list[str]:
        """Return the colour of each of values (N,), all of which are labels."""
        return list(self.colours[np.searchsorted(self.unique, values)])

    def scatter(self, axis: "Axes", points: FloatArray, values: NDArray[Any]) -> None:
        """Draw points (N, 2), the grey ones below the others."""
        order = np.argsort(np.isin(values, self.unique[self.kept]), kind="stable")
        x, y = points[order].T
        axis.scatter(x, y, c=self.colours_of(values[order]), s=7, alpha=0.4, linewidths=0, rasterized=True)

    def legend(self, figure: "Figure", names: Sequence[str], title: str, outline: str | None) -> None:
        """Write beside the panels which colour is which of the names (L,), and what the outlines are."""
        from matplotlib.lines import Line2D

        entries = [(self.colours[i], names[i]) for i in self.kept]
        if len(self.kept) < len(self.unique):
            entries.append((GREY, f"{len(self.unique) - len(self.kept)} others"))
        handles = [Line2D([], [], marker="o", linestyle="", markersize=6, color=c, label=name) for c, name in entries]
        if outline is not None:
            handles.append(Line2D([], [], color="0.3", linewidth=1.1, label=outline))
        add_legend(figure, handles, title)


def colours(k: int) -> list[str]:
    """Take k colours, as far apart in lightness as the palette allows."""
    return [PALETTE[i] for i in np.linspace(0, len(PALETTE) - 1, k).round().astype(int)]


def draw_ellipse(
    axis: "Axes", mean: FloatArray, covariance: FloatArray, colour: str, *, deviations: float, linewidth: float = 1.1
) -> None:
    """Trace the points at this many standard deviations from the mean (2,), given the covariance (2, 2)."""
    from matplotlib.patheffects import Normal, Stroke

    variances, directions = np.linalg.eigh(covariance)
    angle = np.linspace(0, 2 * np.pi, 100)
    circle = deviations * np.column_stack([np.cos(angle), np.sin(angle)])
    outline = mean + circle * np.sqrt(np.clip(variances, 0, None)) @ directions.T
    halo = [Stroke(linewidth=2 * linewidth, foreground="white"), Normal()]
    axis.plot(*outline.T, color=colour, linewidth=linewidth, path_effects=halo)


# -- arguments


def check_at_least(low: int, **numbers: Any) -> None:
    """Refuse arguments that are not integers of at least `low`."""
    for name, value in numbers.items():
        if not (isinstance(value, int | np.integer) and value >= low):
            raise DataError(f"{name} must be an integer of at least {low}, got {value!r}.")


def are_indices(values: Iterable[Any], n: int) -> bool:
    """Return whether all values are different integers from 0 to n - 1."""
    found = list(values)
    return len(set(found)) == len(found) and all(isinstance(i, int | np.integer) and 0 <= i < n for i in found)


def names_of_latents(names: Sequence[str] | None, n: int) -> list[str]:
    """Return the names given to n latents, or "latent 0" and so on."""
    if names is None:
        return [f"latent {i}" for i in range(n)]
    if len(names) != n:
        raise DataError(f"names must name each of the {n} latents, got {len(names)} names.")
    return [str(name) for name in names]


def one_per_row(name: str, u: ArrayLike) -> NDArray[Any]:
    """Return u as a (N,) array of numbers or text without missing values."""
    array = np.asarray(u)
    if array.ndim != 1:
        cure = f"choose one column, {name}[:, 0]" if array.ndim == 2 else "pass one value per row"
        raise DataError(f"{name} must be 1-D (rows,), got shape {array.shape}: {cure}.")
    if array.dtype.kind == "O":  # pandas stores text, and numbers with missing values, as objects
        array = pd.Series(array).infer_objects().to_numpy()
    bad = np.flatnonzero(~np.isfinite(array) if array.dtype.kind == "f" else pd.isna(array))
    if len(bad):
        raise DataError(
            f"{name} must have a finite value in every row, got {array[bad[0]]} at row {bad[0]} "
            f"({len(bad)} such rows): drop them."
        )
    return array.astype(str) if array.dtype.kind == "O" else array


def of_one_type(values: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Convert arrays of labels to their common type, so that 1 and "1" are one label."""
    return np.split(np.concatenate(values), np.cumsum([len(own) for own in values])[:-1])


def plain_values(unique: NDArray[Any]) -> list[Any]:
    """Return labels as Python values, numbers without a fraction as integers."""
    return [int(value) if isinstance(value, float) and value.is_integer() else value for value in unique.tolist()]


def as_text(unique: NDArray[Any]) -> list[str]:
    """Return labels as text.

    Examples
    --------
    >>> as_text(np.array([1.0, 0.123456])), as_text(np.array(["a"]))
    (['1', '0.1235'], ['a'])
    """
    return [f"{value:.4g}" if isinstance(value, float) else str(value) for value in plain_values(unique)]


def listed(values: Iterable[Any]) -> str:
    """Return the first of some values for an error message."""
    return join_few([str(value) for value in values])
