"""Drawings of rows of data: as images, as lines over the columns, and as curves along a latent."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from identifiable.arrays import FloatArray
from identifiable.report.plots import figures
from identifiable.report.plots.figures import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST, TALLEST = 12.0, 18.0  # of the images or panels of a figure, in inches
NARROWEST = 4.5  # width of a figure in inches, so that a caption fits
GAP = 0.08  # between images, in heights of one
LARGEST = 0.8  # height of an image, in inches
COLOURED = 8  # columns of a table with a colour
NAMED = 30  # columns of a table up to which all are named
FRAME = PALETTE[5]


def draw_images(
    rows: Sequence[NDArray[Any]],
    names: Sequence[str],
    caption: str,
    *,
    heads: Sequence[str] = ("",),
    framed: Sequence[int] | None = None,
) -> "Figure":
    """Draw rows of images on one axis.

    Parameters
    ----------
    rows : (images, h, w) or (images, h, w, 3), with values in [0, 1].
    names : of the rows.
    heads : headings of the columns, repeated; as many images as there are headings stand close together.
    framed : index of the image of each row to frame.
    """
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    outside = np.mean([((x < -0.01) | (x > 1.01)).mean() for x in rows])
    if outside > 0.01:
        caption += f" {100 * outside:.0f} % of the values lie outside [0, 1] and are clipped."
    together, columns, pitch = len(heads), max(len(x) for x in rows), 1 + GAP
    wide = rows[0].shape[2] / rows[0].shape[1]
    left = np.arange(columns) * (wide + GAP) + np.arange(columns) // together * (2 * GAP if together > 1 else 0)
    right = left[-1] + wide
    side = min(LARGEST, WIDEST / right, TALLEST / (pitch * len(rows)))  # height of an image, in inches
    width = max(NARROWEST, side * right + figures.LETTER * max(map(len, names)) + 0.5)
    figure = figures.new_figure(width, side * pitch * len(rows) + 0.3 + (0.2 if heads[0] else 0), fixed_aspect=True)
    figures.add_caption(figure, caption)
    axis = figure.add_subplot()
    places = [[(x, r * pitch) for x, _ in zip(left, images, strict=False)] for r, images in enumerate(rows)]
    for images, own in zip(rows, places, strict=True):
        for image, (x, top) in zip(images, own, strict=True):
            axis.imshow(np.clip(image, 0, 1), cmap="gray", vmin=0, vmax=1, extent=(x, x + wide, top + 1, top))
    edges = [Rectangle(place, wide, 1) for own in places for place in own]  # white images differ from the page
    axis.add_collection(PatchCollection(edges, facecolor="none", edgecolor="0.8", linewidth=0.5, clip_on=False))
    for own, i in zip(places, framed or [], strict=framed is not None):
        frame: dict[str, Any] = {"fill": False, "edgecolor": FRAME, "linewidth": 2, "clip_on": False, "zorder": 3}
        axis.add_patch(Rectangle(own[i], wide, 1, **frame))
    axis.set(xlim=(0, right), ylim=(pitch * len(rows) - GAP, 0))
    axis.set_yticks(np.arange(len(rows)) * pitch + 0.5, names, fontsize=min(9, 60 * side))
    axis.set_xticks(left + wide / 2 if heads[0] else [], list(heads) * (columns // together) if heads[0] else [])
    axis.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False, pad=5)
    axis.spines[:].set_visible(False)
    return figure


def draw_profiles(
    rows: Sequence[FloatArray],
    partners: Sequence[FloatArray] | None,
    names: Sequence[str],
    columns: Sequence[str] | None,
    caption: str,
) -> "Figure":
    """Draw a panel per group (S, d): each of its rows as a line over the columns, and its partner dashed."""
    from matplotlib.ticker import MaxNLocator

    d = rows[0].shape[1]
    width = min(4.0, max(1.9, 0.22 * d))  # of a panel, in inches
    wide = figures.columns_for(len(rows), int(WIDEST / width))
    height = min(1.7, max(1.1, TALLEST / math.ceil(len(rows) / wide)))
    named = columns if columns is not None and d <= NAMED else None
    below = 0.4 if named is None else 0.08 * max(map(len, named))
    figure, axes = figures.make_panels(len(rows), wide, (width, height), (0.8, below + 0.3), share=True)
    figure.set_figwidth(max(NARROWEST, figure.get_figwidth()))
    figures.add_caption(figure, caption)
    marker: dict[str, Any] = {"marker": "o" if d <= 12 else "", "markersize": 2.5}
    for i, axis in enumerate(axes):
        many = partners is None or len(rows[i]) > len(PALETTE)
        shades = ["0.25"] * len(rows[i]) if many else figures.colours(len(rows[i]))
        for j, line in enumerate(rows[i]):
            axis.plot(line, color=shades[j], linewidth=1.0, alpha=0.5 if partners is None else 0.9, **marker)
            if partners is not None:
                axis.plot(partners[i][j], color=shades[j], linewidth=1.0, linestyle=(0, (3, 1.5)), **marker)
        figures.label(axis, title=names[i])
        figures.open_frame(axis)
        axis.tick_params(axis="x", rotation=0 if named is None else 90)
    if named is not None:
        axes[0].set_xticks(np.arange(d), named)
    else:
        axes[0].xaxis.set_major_locator(MaxNLocator(5, integer=True))
        for axis in axes[-wide:]:
            figures.label(axis, x="column")
    figure.supylabel("standardised value", fontsize=9)
    return figure


def draw_curves(
    x: FloatArray, values: FloatArray, start: FloatArray, latents: Sequence[int], names: Sequence[str], caption: str
) -> "Figure":
    """Draw a panel per latent: the columns of x (latents, steps, d) against its values (latents, steps)."""
    from matplotlib.lines import Line2D

    change = np.ptp(x, axis=1).max(axis=0)
    kept = np.sort(np.argsort(-change, kind="stable")[:COLOURED])
    shades = dict(zip(kept.tolist(), figures.colours(len(kept)), strict=True))
    wide = figures.columns_for(len(x), 4)
    figure, axes = figures.make_panels(len(x), wide, (2.5, 2.1), (0.9, 0.4))
    figure.set_figheight(max(figure.get_figheight(), 0.2 * len(kept) + 0.4))
    figure.set_figwidth(max(NARROWEST, figure.get_figwidth()))
    for axis, curves, own, z, i in zip(axes, x, values, start, latents, strict=True):
        for j in sorted(range(x.shape[2]), key=lambda j: j in shades):  # the grey ones first, below the others
            axis.plot(own, curves[:, j], color=shades.get(j, "0.8"), linewidth=1.4 if j in shades else 0.7)
        axis.axvline(z, color="0.3", linewidth=0.9, linestyle=":")
        margin = 0.05 * (x.max() - x.min()) or 1.0
        axis.set_ylim(x.min() - margin, x.max() + margin)
        figures.label(axis, x=f"latent {i}")
        figures.open_frame(axis)
    handles = [Line2D([], [], color=shade, linewidth=1.4, label=names[j]) for j, shade in shades.items()]
    if len(kept) < len(names):
        handles.append(Line2D([], [], color="0.8", linewidth=0.7, label=f"{len(names) - len(kept)} others"))
    figures.add_legend(figure, handles)
    text = "Standardised columns of x as one latent changes and the others stay fixed; dotted: the starting row."
    figures.add_caption(figure, caption + text)
    return figure
