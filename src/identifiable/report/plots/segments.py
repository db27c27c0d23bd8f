"""Pictures of latents beside what was known about each row: the segment or condition u, or the true latents.

`plot_segments` and `plot_traces` are figures 1, 3 and 4 of Khemakhem et al. (2020); `plot_by_value` needs no truth.
All take plain arrays, whatever estimator they came from, and return a figure; nothing is shown or saved.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from identifiable.arrays import FloatArray, IntArray
from identifiable.errors import DataError, join_few
from identifiable.metrics import match
from identifiable.metrics.checks import same_rows, table
from identifiable.report.plots.figures import (
    PALETTE,
    Labelled,
    draw_ellipse,
    grid,
    new_figure,
    one_per_row,
    whole_as_whole,
    written,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Labels = Mapping[Any, str] | Sequence[str]

FEW = 20  # up to as many different values, u is a label even if it is not whole
WINDOWS = 20  # a running mean is over this fraction of the rows
MOST_BOXES = 50


def plot_segments(
    panels: Mapping[str, ArrayLike],
    u: ArrayLike | Mapping[str, ArrayLike],
    *,
    labels: Labels | None = None,
    most: int = len(PALETTE),
    rows: int = 3000,
    columns: tuple[int, int] = (0, 1),
    continuous: bool | None = None,
) -> "Figure":
    """Draw clouds of points side by side, coloured by segment: figure 1 of Khemakhem et al. (2020).

    Latents are recovered if the panel of the estimates is that of the truth with its axes swapped, flipped or
    stretched. A thin ellipse per segment is its mean and one standard deviation, from all rows. Every panel has its own
    scales, because latents have none.

    Parameters
    ----------
    panels : title -> (N, n) points: true latents, observations, posterior latents, draws of the learnt prior, ...
    u : (N,) segment of each row, numbers or names; or title -> (N,), where the panels do not hold the same rows.
    labels : names of the segments: a mapping from values of u, or a sequence that u indexes.
    most : segments with a colour, 12 at most: the largest, if there are more. The others are grey.
    rows : points drawn per panel, a random subset; the same rows in all panels of the same length.
    columns : the two columns to draw.
    continuous : whether u is a quantity, drawn with a colour bar and without ellipses. By default if it has more than
        20 different values that are not all whole numbers.

    Examples
    --------
    >>> from identifiable.data import make_segments
    >>> s = make_segments(500, n=2, segments=5, centred=False, random_state=0)
    >>> figure = plot_segments({"true latents": s.z, "observations": s.x}, s.u)
    >>> [axis.get_title() for axis in figure.axes], [text.get_text() for text in figure.legends[0].texts]
    (['true latents', 'observations'], ['0', '1', '2', '3', '4', '1 sd'])
    """
    if not isinstance(panels, Mapping) or not panels:
        raise DataError("panels must map at least one title to a table (rows, 2): pass {'latents': z}.")
    if not 1 <= most <= len(PALETTE):
        raise DataError(f"most must lie between 1 and {len(PALETTE)}, the number of colours, got {most}.")
    if rows < 1:
        raise DataError(f"rows must be at least 1, got {rows}.")
    points, values = _clouds(panels, u, columns)
    chosen = [np.random.default_rng(0).permutation(len(cloud))[:rows] for cloud in points]

    high = math.ceil(len(points) / 5)
    wide = math.ceil(len(points) / high)
    figure = new_figure(2.5 * wide + 0.8, 2.6 * high + 0.2)
    axes = grid(figure, len(points), wide, share=False)
    for axis, title in zip(axes, panels, strict=True):
        axis.set_title(textwrap.fill(title, 28), fontsize=10)
        axis.tick_params(labelsize=8)
        axis.locator_params(nbins=5)
    for axis in axes[-wide:]:
        axis.set_xlabel(f"column {columns[0]}", fontsize=9)
    for axis in axes[::wide]:
        axis.set_ylabel(f"column {columns[1]}", fontsize=9)
    if _is_quantity(np.concatenate(values), continuous, labels):
        _colour_by_quantity(figure, axes, points, values, chosen)
    else:
        _colour_by_segment(figure, axes, points, values, chosen, labels, most)
    return figure


def plot_traces(
    z: ArrayLike,
    latents: Mapping[str, ArrayLike],
    *,
    rows: slice = slice(150),
    names: Sequence[str] | None = None,
) -> "Figure":
    r"""Draw true latents, dashed, and recovered ones row by row: figures 3 and 4 of Khemakhem et al. (2020).

    Each true latent :math:`z_i` meets its partner :math:`\hat z_{\pi(i)}` of the best assignment (see `match`), put on
    its scale by :math:`\min_{a, b} \sum (z_i - a \hat z_{\pi(i)} - b)^2`. A poor partner is thereby shrunk: a flat line
    has nothing to say about the latent. Assignment, scale, shift, |r| and MCC are over all rows, not only those drawn.

    Parameters
    ----------
    z : (N, n) true latents.
    latents : method -> (N, m) recovered latents of the same rows; a column of panels each.
    rows : the rows drawn, such as ``slice(1000, 1150)``.
    names : n names of the true latents.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(500, 2))
    >>> figure = plot_traces(z, {"swapped": -3 * z[:, ::-1] + 1})
    >>> figure.axes[0].get_title(), [axis.texts[0].get_text() for axis in figure.axes]
    ('swapped\nMCC 1.000', ['|r|\n1.000', '|r|\n1.000'])
    """
    from matplotlib.lines import Line2D

    if not isinstance(latents, Mapping) or not latents:
        raise DataError("latents must map at least one method to its table (rows, latents): pass {'method': z_hat}.")
    true = table("z", z)
    found = {name: table(f"latents[{name!r}]", estimate) for name, estimate in latents.items()}
    same_rows(z=true, **{f"latents[{name!r}]": estimate for name, estimate in found.items()})
    n = true.shape[1]
    named = _column_names(names, n)
    if not isinstance(rows, slice) or not len(true[rows]):
        raise DataError(f"rows must be a slice of the {len(true)} rows, such as slice(0, 150), got {rows!r}.")
    time = np.arange(len(true))[rows]

    solid: dict[str, Any] = {"color": "#f08a3c", "linewidth": 1.6}
    dashed: dict[str, Any] = {"color": "0.1", "linewidth": 0.8, "linestyle": (0, (4.4, 2.2))}
    width = min(4.2, max(2.4, 11 / len(found)))
    figure = new_figure(width * len(found) + 0.8, (0.95 if n <= 5 else 0.72) * n + 1.1)
    axes = figure.subplots(n, len(found), squeeze=False, sharex=True, sharey="row")
    for column, (method, estimate) in zip(axes.T, found.items(), strict=True):
        matching = match(true, estimate)
        column[0].set_title(f"{method}\nMCC {matching.score:.3f}", fontsize=10)
        column[-1].set_xlabel("row", fontsize=9)
        for i, axis in enumerate(column):
            partner, r = matching.permutation[i], matching.correlations[i]
            if partner >= 0:
                rescaled = _rescaled(estimate[:, partner], true[:, i], r)
                axis.plot(time, rescaled[rows], **solid)
            axis.plot(time, true[rows, i], **dashed)
            said = f"|r|\n{abs(r):.3f}" if partner >= 0 else "no\npartner"
            beside: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
            axis.annotate(said, (1, 0.5), xycoords="axes fraction", fontsize=8, **beside)
            axis.margins(x=0)
            axis.locator_params(axis="y", nbins=3)
            axis.tick_params(labelsize=8)
            axis.spines[["top", "right"]].set_visible(False)
    for axis, name in zip(axes[:, 0], named, strict=True):
        axis.set_ylabel(name, fontsize=9)
    figure.align_ylabels(axes[:, 0])
    handles = [Line2D([], [], **dashed, label="true"), Line2D([], [], **solid, label="recovered, rescaled")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9, frameon=False, handlelength=3)
    return figure


def plot_by_value(
    latents: ArrayLike,
    u: ArrayLike,
    *,
    labels: Labels | None = None,
    names: Sequence[str] | None = None,
    most: int = 12,
    continuous: bool | None = None,
) -> "Figure":
    r"""Draw the law of each latent for each value of u: what recovered latents mean, where no truth is known.

    A panel per latent: a box per value of u, or the running mean and standard deviation if u is a quantity. The panels
    are sorted by

    .. math:: \eta^2 = \mathrm{Var}(E[z_i \mid u]) / \mathrm{Var}(z_i),

    the share of a latent's variance that lies between the values of u (20 groups of equal size, if u is a quantity).
    All panels share the axis of the latents: standardise latents of very different scales first.

    Parameters
    ----------
    latents : (N, m), the table of what was recovered.
    u : (N,) condition, segment, class, time or another quantity of each row.
    labels : names of the values of u: a mapping from them, or a sequence that u indexes.
    names : m names of the latents.
    most : panels drawn; those of the largest η² if there are more latents.
    continuous : whether u is a quantity. By default if it has more than 20 different values that are not all whole.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u = np.repeat([0, 1], 500)
    >>> z = np.column_stack([rng.normal(size=1000), u + 0.1 * rng.normal(size=1000)])
    >>> [axis.get_title() for axis in plot_by_value(z, u, labels=["control", "drug"]).axes]
    ['latent 1  (η² 0.96)', 'latent 0  (η² 0.00)']
    """
    found = table("latents", latents)
    values = one_per_row("u", u)
    same_rows(latents=found, u=values)
    named = _column_names(names, found.shape[1])
    if most < 1:
        raise DataError(f"most must be at least 1, got {most}.")
    quantity = _is_quantity(values, continuous, labels)
    if quantity:
        groups = np.argsort(np.argsort(values, kind="stable")) * min(WINDOWS, len(values)) // len(values)
        ticks = []
    else:
        unique, groups = np.unique(values, return_inverse=True)
        ticks = _label_names(unique, labels)
        if len(unique) > MOST_BOXES:
            raise DataError(
                f"u must have at most {MOST_BOXES} different values to draw a box each, got {len(unique)}: "
                "merge some, or pass continuous=True."
            )
    shares = _eta_squared(found, groups)
    order = np.argsort(-shares, kind="stable")[:most]

    wide = len(order) if len(order) <= 3 else 3 if len(order) <= 6 else 4
    high = math.ceil(len(order) / wide)
    beside = 0.5 + 0.07 * max((len(name) for name in ticks), default=0)  # room for the names, in inches
    width = max(3.8, 2.3 * wide + beside)
    figure = new_figure(width, (1.7 if quantity else 0.55 + 0.17 * max(5, len(ticks))) * high + 0.8)
    axes = grid(figure, len(order), wide, share=True)
    for axis, i in zip(axes, order, strict=True):
        axis.set_title(f"{named[i]}  (η² {shares[i]:.2f})", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.locator_params(nbins=5)
        if quantity:
            _draw_running(axis, found[:, i], values.astype(np.float64))
        else:
            _draw_boxes(axis, [found[groups == g, i] for g in range(len(ticks))], float(np.median(found[:, i])))
    if quantity:
        figure.supylabel("value of the latent", fontsize=9)
        key = f"u\nline: running mean over 1/{WINDOWS} of the rows; band: ± 1 sd; dotted: mean of all rows"
    else:
        axes[0].set(ylim=(len(ticks) - 0.4, -0.6))  # the first value on top; all panels share it
        axes[0].set_yticks(range(len(ticks)), ticks)
        figure.supylabel("u", fontsize=9)
        key = "value of the latent\nbox: quartiles; black: median; whiskers: 5 % to 95 % of rows; dotted: median of all"
    figure.supxlabel("\n".join(textwrap.fill(line, int(14 * width)) for line in key.split("\n")), fontsize=8.5)
    if len(order) < found.shape[1]:
        figure.suptitle(f"The {len(order)} of {found.shape[1]} latents that u explains best", fontsize=11)
    return figure


def _clouds(
    panels: Mapping[str, ArrayLike], u: ArrayLike | Mapping[str, ArrayLike], columns: tuple[int, int]
) -> tuple[list[FloatArray], list[NDArray[Any]]]:
    """Return the two columns of each panel, and u of its rows; all u have one type."""
    points, values = [], []
    for title, panel in panels.items():
        cloud = table(f"panels[{title!r}]", panel)
        if len(set(columns)) != 2 or not all(0 <= c < cloud.shape[1] for c in columns):
            raise DataError(
                f"columns must be two different columns of panels[{title!r}], of shape {cloud.shape}, got {columns}."
            )
        if isinstance(u, Mapping) and title not in u:
            raise DataError(f"u must have an entry for each panel, got none for {title!r}: {join_few(list(u))} only.")
        name = f"u[{title!r}]" if isinstance(u, Mapping) else "u"
        own = one_per_row(name, u[title] if isinstance(u, Mapping) else u)
        same_rows(**{f"panels[{title!r}]": cloud, name: own})
        points.append(cloud[:, list(columns)])
        values.append(own)
    return points, np.split(np.concatenate(values), np.cumsum([len(own) for own in values])[:-1])


def _is_quantity(values: NDArray[Any], continuous: bool | None, labels: Labels | None) -> bool:
    if continuous and (labels is not None or values.dtype.kind not in "fiu"):
        raise DataError("continuous=True needs a u of numbers without labels: leave it out to draw each value apart.")
    if continuous is not None:
        return continuous
    fractions = values.dtype.kind == "f" and bool((values % 1 != 0).any())
    return labels is None and fractions and len(np.unique(values)) > FEW


def _label_names(unique: NDArray[Any], labels: Labels | None) -> list[str]:
    if labels is None:
        return written(unique)
    values = whole_as_whole(unique)
    try:
        if not isinstance(labels, Mapping) and min(values) < 0:
            raise IndexError
        return [str(labels[value]) for value in values]
    except (LookupError, TypeError):
        raise DataError(
            f"labels must name every value of u, {join_few([repr(v) for v in values])}: a mapping from these values, "
            f"or a sequence that they index; got {labels!r}."
        ) from None


def _column_names(names: Sequence[str] | None, n: int) -> list[str]:
    if names is None:
        return [f"latent {i}" for i in range(n)]
    if len(names) != n:
        raise DataError(f"names must name each of the {n} latents, got {len(names)} names.")
    return [str(given) for given in names]


def _colour_by_segment(
    figure: "Figure",
    axes: "Sequence[Axes]",
    points: Sequence[FloatArray],
    values: Sequence[NDArray[Any]],
    chosen: Sequence[IntArray],
    labels: Labels | None,
    most: int,
) -> None:
    segments = Labelled.of(np.concatenate(values), most)
    names = _label_names(segments.unique, labels)
    for axis, cloud, own, rows in zip(axes, points, values, chosen, strict=True):
        segments.scatter(axis, cloud[rows], own[rows])
        for i in segments.kept:
            members = cloud[own == segments.unique[i]]
            if len(members) > 2:
                draw_ellipse(axis, members.mean(axis=0), np.cov(members.T), segments.colours[i], deviations=1)
    segments.legend(figure, names, "u", "1 sd")


def _colour_by_quantity(
    figure: "Figure",
    axes: "Sequence[Axes]",
    points: Sequence[FloatArray],
    values: Sequence[NDArray[Any]],
    chosen: Sequence[IntArray],
) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    everything = np.concatenate(values)
    norm = Normalize(everything.min(), everything.max())
    style: dict[str, Any] = {"norm": norm, "cmap": "viridis", "s": 7, "alpha": 0.5, "linewidths": 0}
    for axis, cloud, own, rows in zip(axes, points, values, chosen, strict=True):
        axis.scatter(cloud[rows, 0], cloud[rows, 1], c=own[rows], rasterized=True, **style)
    bar = figure.colorbar(ScalarMappable(norm, "viridis"), ax=list(axes), label="u", fraction=0.05, pad=0.02, aspect=18)
    bar.ax.tick_params(labelsize=8)


def _rescaled(estimate: FloatArray, true: FloatArray, r: float) -> FloatArray:
    """Least-squares fit of `true` by a + b `estimate`, given their correlation r; a constant one gives the mean."""
    slope = r * true.std() / estimate.std() if r != 0 else 0.0
    return np.asarray(true.mean() + slope * (estimate - estimate.mean()))


def _eta_squared(latents: FloatArray, groups: IntArray) -> FloatArray:
    """Share of the variance of each column that lies between groups 0, ..., G-1, none of them empty; 0 if constant."""
    counts = np.bincount(groups)
    centred = latents - latents.mean(axis=0)
    means = np.stack([np.bincount(groups, column) for column in centred.T], axis=1) / counts[:, None]
    total = np.square(centred).sum(axis=0)
    return np.asarray(np.divide(counts @ np.square(means), total, out=np.zeros_like(total), where=total > 0))


def _draw_boxes(axis: "Axes", samples: Sequence[FloatArray], middle: float) -> None:
    """Draw a horizontal box per sample. By hand: the name of boxplot's option for it changed in matplotlib 3.10."""
    at = np.arange(len(samples))
    low, left, median, right, high = np.array([np.percentile(values, [5, 25, 50, 75, 95]) for values in samples]).T
    axis.axvline(middle, color="0.5", linewidth=0.8, linestyle=":", zorder=1)
    axis.hlines(at, low, high, color="0.35", linewidth=0.9, zorder=2)
    axis.barh(at, right - left, left=left, height=0.62, color="#a9c6e3", edgecolor="0.35", linewidth=0.7, zorder=3)
    axis.vlines(median, at - 0.36, at + 0.36, color="black", linewidth=1.8, zorder=4)
    axis.grid(axis="y", color="0.92", linewidth=0.7)  # to follow a value from panel to panel
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)


def _draw_running(axis: "Axes", latent: FloatArray, u: FloatArray) -> None:
    """Draw mean and standard deviation in up to 200 windows of neighbouring rows, in the order of u."""
    order = np.argsort(u, kind="stable")
    length = min(len(u), max(2, len(u) // WINDOWS))
    starts = np.unique(np.linspace(0, len(u) - length, 200).astype(int))
    windows = order[starts[:, None] + np.arange(length)]  # (windows, length)
    where, mean, sd = u[windows].mean(axis=1), latent[windows].mean(axis=1), latent[windows].std(axis=1)
    axis.axhline(latent.mean(), color="0.5", linewidth=0.8, linestyle=":", zorder=1)
    axis.fill_between(where, mean - sd, mean + sd, color="#a9c6e3", linewidth=0, zorder=2)
    axis.plot(where, mean, color="#122da5", linewidth=1.4, zorder=3)
    axis.margins(x=0)
