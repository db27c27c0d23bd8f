"""Figures of latents beside what is known about each row: the segment or condition u, or the true latents.

`plot_segments` and `plot_traces` are figures 1, 3 and 4 of Khemakhem et al. (2020); `plot_by_value` needs no ground
truth. All take arrays from any estimator and return a new figure.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from identifiable.arrays import FloatArray, IntArray
from identifiable.errors import DataError
from identifiable.metrics import match
from identifiable.metrics.checks import same_rows, table
from identifiable.report.plots import figures
from identifiable.report.plots.figures import PALETTE, Labelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Labels = Mapping[Any, str] | Sequence[str]

MOST_LABELS = 20  # different values up to which u is a label even if they are not integers
WINDOWS = 20  # a running mean is over 1 / WINDOWS of the rows
STEPS = 200  # of a running mean
MOST_BOXES = 50
FILL, DARK = "#a9c6e3", PALETTE[0]  # of boxes, bands and running means
RECOVERED: dict[str, Any] = {"color": "#f08a3c", "linewidth": 1.6}
TRUE: dict[str, Any] = {"color": "0.1", "linewidth": 0.8, "linestyle": (0, (4.4, 2.2))}


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
    """Draw point clouds side by side, coloured by segment: figure 1 of Khemakhem et al. (2020).

    Latents are recovered if the panel of the estimates is that of the true latents with its axes swapped, flipped or
    stretched. A thin ellipse per segment shows its mean and one standard deviation, from all rows. Every panel has its
    own scale, because the scale of latents is arbitrary.

    Parameters
    ----------
    panels : title -> (N, n) points: true latents, observations, posterior latents, samples of the learnt prior, ...
    u : (N,) segment of each row, numbers or names; or title -> (N,), if the panels have different rows.
    labels : names of the segments: a mapping from values of u, or a sequence that u indexes.
    most : number of segments with a colour, at most 12; the largest ones. The others are grey.
    rows : points drawn per panel, a random subset; the same rows in all panels of the same length.
    columns : the two columns to draw.
    continuous : whether u is a quantity, drawn with a colour bar and without ellipses. By default, if it has more than
        20 different values that are not all integers.

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
    figures.check_at_least(1, rows=rows)
    wide = figures.columns_for(len(panels), 5)
    figure, axes = figures.make_panels(len(panels), wide, (2.5, 2.6), (0.8, 0.2))
    for axis, title in zip(axes, panels, strict=True):
        figures.label(axis, title=textwrap.fill(title, 28))
    for axis in axes[-wide:]:
        figures.label(axis, x=f"column {columns[0]}")
    for axis in axes[::wide]:
        figures.label(axis, y=f"column {columns[1]}")
    clouds = _clouds(panels, u, columns, rows)
    if _is_quantity(np.concatenate([cloud.u for cloud in clouds]), continuous, labels):
        _colour_by_quantity(figure, axes, clouds)
    else:
        _colour_by_segment(figure, axes, clouds, labels, most)
    return figure


def plot_traces(
    z: ArrayLike, latents: Mapping[str, ArrayLike], *, rows: slice = slice(150), names: Sequence[str] | None = None
) -> "Figure":
    r"""Draw true latents, dashed, and recovered ones row by row: figures 3 and 4 of Khemakhem et al. (2020).

    Each true latent :math:`z_i` is drawn with its partner :math:`\hat z_{\pi(i)}` of the best assignment (see `match`),
    rescaled by :math:`\min_{a, b} \sum (z_i - a \hat z_{\pi(i)} - b)^2`. This shrinks a poor partner: a constant line
    carries no information on the latent. Assignment, scale, shift, |r| and MCC are over all rows, not only those drawn.

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
    named = figures.names_of_latents(names, n)
    if not isinstance(rows, slice) or not len(true[rows]):
        raise DataError(f"rows must be a slice of the {len(true)} rows, such as slice(0, 150), got {rows!r}.")

    width = min(4.2, max(2.4, 11 / len(found)))
    figure = figures.new_figure(width * len(found) + 0.8, (0.95 if n <= 5 else 0.72) * n + 1.1)
    axes = figure.subplots(n, len(found), squeeze=False, sharex=True, sharey="row")
    for column, (method, estimate) in zip(axes.T, found.items(), strict=True):
        matching = match(true, estimate)
        figures.label(column[0], title=f"{method}\nMCC {matching.score:.3f}")
        figures.label(column[-1], x="row")
        for i, axis in enumerate(column):
            partner, r = matching.permutation[i], matching.correlations[i]
            rescaled = None if partner < 0 else _rescaled(estimate[:, partner], true[:, i], r)
            _draw_trace(axis, rows, true[:, i], rescaled, "no\npartner" if partner < 0 else f"|r|\n{abs(r):.3f}")
    for axis, name in zip(axes[:, 0], named, strict=True):
        figures.label(axis, y=name)
    figure.align_ylabels(axes[:, 0])
    handles = [Line2D([], [], **TRUE, label="true"), Line2D([], [], **RECOVERED, label="recovered, rescaled")]
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
    r"""Draw the distribution of each latent for each value of u, to interpret latents without a ground truth.

    A panel per latent: a box per value of u, or the running mean and standard deviation if u is a quantity. The panels
    are sorted by

    .. math:: \eta^2 = \mathrm{Var}(E[z_i \mid u]) / \mathrm{Var}(z_i),

    the share of a latent's variance that lies between the values of u (20 groups of equal size, if u is a quantity).
    All panels share the axis of the latents: standardise latents of very different scales first.

    Parameters
    ----------
    latents : (N, m) recovered latents.
    u : (N,) condition, segment, class, time or another quantity of each row.
    labels : names of the values of u: a mapping from them, or a sequence that u indexes.
    names : m names of the latents.
    most : largest number of panels; the latents with the largest η² are drawn.
    continuous : whether u is a quantity. By default, if it has more than 20 different values that are not all integers.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u = np.repeat([0, 1], 500)
    >>> z = np.column_stack([rng.normal(size=1000), u + 0.1 * rng.normal(size=1000)])
    >>> [axis.get_title() for axis in plot_by_value(z, u, labels=["control", "drug"]).axes]
    ['latent 1  (η² 0.96)', 'latent 0  (η² 0.00)']
    """
    found, values = table("latents", latents), figures.one_per_row("u", u)
    same_rows(latents=found, u=values)
    named = figures.names_of_latents(names, found.shape[1])
    figures.check_at_least(1, most=most)
    quantity = _is_quantity(values, continuous, labels)
    groups, ticks = _equal_groups(values) if quantity else _labelled_groups(values, labels)
    shares = _eta_squared(found, groups)
    order = np.argsort(-shares, kind="stable")[:most]

    wide = len(order) if len(order) <= 3 else 3 if len(order) <= 6 else 4
    high = 1.7 if quantity else 0.55 + 0.17 * max(5, len(ticks))  # of a panel, in inches
    beside = 0.5 + figures.LETTER * max(map(len, ticks), default=0)
    figure, axes = figures.make_panels(len(order), wide, (2.3, high), (beside, 0.4), share=True)
    figure.set_figwidth(max(3.8, figure.get_figwidth()))
    for axis, i in zip(axes, order, strict=True):
        figures.label(axis, title=f"{named[i]}  (η² {shares[i]:.2f})")
        figures.open_frame(axis)
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
    figures.add_caption(figure, key)
    if len(order) < found.shape[1]:
        figure.suptitle(f"The {len(order)} of {found.shape[1]} latents that u explains best", fontsize=11)
    return figure


# -- arguments


@dataclass(frozen=True, eq=False)
class _Cloud:
    """Points (N, 2), u of each (N,), and the rows to draw."""

    points: FloatArray
    u: NDArray[Any]
    drawn: IntArray


def _clouds(
    panels: Mapping[str, ArrayLike], u: ArrayLike | Mapping[str, ArrayLike], columns: tuple[int, int], rows: int
) -> list[_Cloud]:
    """Return the two columns of each panel, u of its rows, all of one type, and a random choice of `rows` rows."""
    points, values = [], []
    for title, panel in panels.items():
        cloud = table(f"panels[{title!r}]", panel)
        if len(columns) != 2 or not figures.are_indices(columns, cloud.shape[1]):
            raise DataError(
                f"columns must be two different columns of panels[{title!r}], of shape {cloud.shape}, got {columns}."
            )
        if isinstance(u, Mapping) and title not in u:
            raise DataError(f"u must have an entry for each panel, got none for {title!r}: {figures.listed(u)} only.")
        name, own = (f"u[{title!r}]", u[title]) if isinstance(u, Mapping) else ("u", u)
        values.append(figures.one_per_row(name, own))
        same_rows(**{f"panels[{title!r}]": cloud, name: values[-1]})
        points.append(cloud[:, list(columns)])
    chosen = [np.random.default_rng(0).permutation(len(cloud))[:rows] for cloud in points]
    return [_Cloud(*cloud) for cloud in zip(points, figures.of_one_type(values), chosen, strict=True)]


def _is_quantity(values: NDArray[Any], continuous: bool | None, labels: Labels | None) -> bool:
    if continuous and (labels is not None or values.dtype.kind not in "fiu"):
        raise DataError("continuous=True needs a u of numbers without labels: leave it out to draw each value.")
    if continuous is not None:
        return continuous
    fractions = values.dtype.kind == "f" and bool((values % 1 != 0).any())
    return labels is None and fractions and len(np.unique(values)) > MOST_LABELS


def _equal_groups(values: NDArray[Any]) -> tuple[IntArray, list[str]]:
    """Put the rows into WINDOWS groups of equal size, in the order of u; the groups have no names."""
    return np.argsort(np.argsort(values, kind="stable")) * min(WINDOWS, len(values)) // len(values), []


def _labelled_groups(values: NDArray[Any], labels: Labels | None) -> tuple[IntArray, list[str]]:
    """Put the rows of each value of u into a group."""
    unique, groups = np.unique(values, return_inverse=True)
    names = _label_names(unique, labels)
    if len(unique) > MOST_BOXES:
        raise DataError(
            f"u must have at most {MOST_BOXES} different values to draw a box each, got {len(unique)}: "
            "merge some, or pass continuous=True."
        )
    return groups, names


def _label_names(unique: NDArray[Any], labels: Labels | None) -> list[str]:
    if labels is None:
        return figures.as_text(unique)
    values = figures.plain_values(unique)
    try:
        if not isinstance(labels, Mapping) and min(values) < 0:
            raise IndexError
        return [str(labels[value]) for value in values]
    except (LookupError, TypeError):
        raise DataError(
            f"labels must name every value of u, {figures.listed(map(repr, values))}: pass a mapping from these values "
            f"or a sequence that they index, got {labels!r}."
        ) from None


# -- drawing


def _colour_by_segment(
    figure: "Figure", axes: "Sequence[Axes]", clouds: Sequence[_Cloud], labels: Labels | None, most: int
) -> None:
    segments = Labelled.of(np.concatenate([cloud.u for cloud in clouds]), most)
    names = _label_names(segments.unique, labels)
    for axis, cloud in zip(axes, clouds, strict=True):
        segments.scatter(axis, cloud.points[cloud.drawn], cloud.u[cloud.drawn])
        for i in segments.kept:
            members = cloud.points[cloud.u == segments.unique[i]]
            if len(members) > 2:
                mean, covariance = members.mean(axis=0), np.cov(members.T)
                figures.draw_ellipse(axis, mean, covariance, segments.colours[i], deviations=1)
    segments.legend(figure, names, "u", "1 sd")


def _colour_by_quantity(figure: "Figure", axes: "Sequence[Axes]", clouds: Sequence[_Cloud]) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    everything = np.concatenate([cloud.u for cloud in clouds])
    norm = Normalize(everything.min(), everything.max())
    look: dict[str, Any] = {"norm": norm, "cmap": "viridis", "s": 7, "alpha": 0.5, "linewidths": 0}
    for axis, cloud in zip(axes, clouds, strict=True):
        x, y = cloud.points[cloud.drawn].T
        axis.scatter(x, y, c=cloud.u[cloud.drawn], rasterized=True, **look)
    bar = figure.colorbar(ScalarMappable(norm, "viridis"), ax=list(axes), label="u", fraction=0.05, pad=0.02, aspect=18)
    bar.ax.tick_params(labelsize=8)


def _draw_trace(axis: "Axes", rows: slice, true: FloatArray, rescaled: FloatArray | None, text: str) -> None:
    """Draw a true latent over its rescaled partner, if it has one, and write a text beside them."""
    at = np.arange(len(true))[rows]
    if rescaled is not None:
        axis.plot(at, rescaled[rows], **RECOVERED)
    axis.plot(at, true[rows], **TRUE)
    beside: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
    axis.annotate(text, (1, 0.5), xycoords="axes fraction", fontsize=8, **beside)
    figures.style(axis, ticks=3)
    axis.margins(x=0)
    figures.open_frame(axis)


def _rescaled(estimate: FloatArray, true: FloatArray, r: float) -> FloatArray:
    """Return the least-squares fit of `true` by a + b `estimate`, given their correlation r."""
    slope = r * true.std() / estimate.std() if r != 0 else 0.0
    return np.asarray(true.mean() + slope * (estimate - estimate.mean()))


def _eta_squared(latents: FloatArray, groups: IntArray) -> FloatArray:
    """Return the share of the variance of each column between groups 0, ..., G-1, none of them empty; 0 if constant."""
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
    axis.barh(at, right - left, left=left, height=0.62, color=FILL, edgecolor="0.35", linewidth=0.7, zorder=3)
    axis.vlines(median, at - 0.36, at + 0.36, color="black", linewidth=1.8, zorder=4)
    axis.grid(axis="y", color="0.92", linewidth=0.7)  # to follow a value from panel to panel
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)


def _draw_running(axis: "Axes", latent: FloatArray, u: FloatArray) -> None:
    """Draw mean and standard deviation in windows of neighbouring rows, in the order of u."""
    order = np.argsort(u, kind="stable")
    length = min(len(u), max(2, len(u) // WINDOWS))
    starts = np.unique(np.linspace(0, len(u) - length, STEPS).astype(int))
    windows = order[starts[:, None] + np.arange(length)]  # (windows, length)
    at, mean, sd = u[windows].mean(axis=1), latent[windows].mean(axis=1), latent[windows].std(axis=1)
    axis.axhline(latent.mean(), color="0.5", linewidth=0.8, linestyle=":", zorder=1)
    axis.fill_between(at, mean - sd, mean + sd, color=FILL, linewidth=0, zorder=2)
    axis.plot(at, mean, color=DARK, linewidth=1.4, zorder=3)
    axis.margins(x=0)
