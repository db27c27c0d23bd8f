"""Pictures of what a model with latents and clusters has learnt: samples, reconstructions, traversals, latents.

`plot_latents`, `plot_cluster_samples` and `plot_reconstructions` are figures 2, 8 and 9 of Kivva et al. (2022). A model
is anything with the methods a picture needs; rows are images or plain tables. Every function returns a new figure;
nothing is shown or saved.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import multivariate_normal, norm

from identifiable.arrays import FloatArray, IntArray
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError, join_few
from identifiable.metrics.checks import same_rows, table
from identifiable.report.plots.figures import (
    PALETTE,
    Labelled,
    colours,
    draw_ellipse,
    grid,
    new_figure,
    one_per_row,
    written,
)
from identifiable.report.plots.models import (
    Shape,
    as_images,
    clusters_of,
    column_names,
    draws_of,
    facet_of,
    has,
    image_shape_of,
    law_of,
    require,
    rows_of,
    take,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP = 0.08  # between images, in heights of one
WIDEST, TALLEST = 12.0, 18.0  # of the images or panels of a figure, in inches
LATENTS = 12  # traversed, if none are named
NAMED = 8  # columns of a table with a colour of their own
TICKS = 30  # columns of a table up to which all are named
POINTS = 3000
FRAME = PALETTE[5]


def plot_cluster_samples(
    model: Any,
    X: ArrayLike | None = None,
    *,
    image_shape: Shape | None = None,
    samples: int = 10,
    most: int = 25,
    facet: int | None = None,
    random_state: int = 0,
) -> "Figure":
    r"""Draw samples of each cluster, a row of images per cluster: figure 8 of Kivva et al. (2022).

    A sample is the decoder's mean :math:`E[x \mid z]` at :math:`z \sim N(\mu_k, \Sigma_k)`, without the noise of the
    pixels, where the model has `mixture_` and `inverse_transform`; otherwise ``sample(n, component=k)``. With X, the
    clusters are sorted by their mean confidence, :math:`\max_k p(k \mid x)` over the rows in them, and those without a
    row are left out; without X, by weight. Rows of a table are drawn as lines over its standardised columns.

    Parameters
    ----------
    model : a fitted model with clusters.
    X : rows whose clusters tell order and shares.
    image_shape : (h, w) or (h, w, channels). By default that of X or of the model; a table if there is none. Values
        are clipped to [0, 1].
    samples : of each cluster.
    most : clusters drawn.
    facet : whose clusters, where a model has several facets; the first by default. The latents of the others follow
        their own mixture.
    random_state : of the samples; those of a cluster do not depend on what else is drawn.

    Examples
    --------
    >>> from identifiable import GMMFlow
    >>> from identifiable.data import make_pinwheel
    >>> x = make_pinwheel(500).x
    >>> model = GMMFlow(
    ...     n_components=3, n_restarts=1, depth=2, full_covariance_steps=10, max_steps=0, random_state=0, verbose=0
    ... )
    >>> len(plot_cluster_samples(model.fit(x), x).axes)
    3
    """
    _at_least_one(samples=samples, most=most)
    rows = None if X is None else rows_of(model, X)
    facet = facet_of(model, facet)
    law = law_of(model, facet)
    clusters = clusters_of(model, X, law, facet, most)
    drawn = [draws_of(model, law, int(k), samples, facet, random_state) for k in clusters.order]
    shape = image_shape_of(image_shape, model, rows, drawn[0])
    if shape is not None:
        return _draw_images([as_images("samples", x, shape) for x in drawn], clusters.names, clusters.caption)
    centre, scale = _standardisation(np.concatenate(drawn) if rows is None else rows)
    lines = [(x - centre) / scale for x in drawn]
    return _draw_profiles(lines, None, clusters.names, column_names(model), clusters.caption)


def plot_reconstructions(
    model: Any,
    X: ArrayLike,
    *,
    image_shape: Shape | None = None,
    pairs: int = 4,
    most: int = 25,
    facet: int | None = None,
    random_state: int = 0,
) -> "Figure":
    r"""Draw rows x of X beside what is left of them, :math:`\hat x`, by cluster: figure 9 of Kivva et al. (2022).

    :math:`\hat x` is ``inverse_transform(transform(x))``. The clusters are sorted as in `plot_cluster_samples`; a model
    without clusters has `most` rows drawn, `pairs` side by side. Rows of a table are drawn as lines over its
    standardised columns.

    Parameters
    ----------
    model : a fitted model with `transform` and `inverse_transform`.
    X : the rows to choose from, at random.
    image_shape : (h, w) or (h, w, channels). By default that of X or of the model; a table if there is none. Values
        are clipped to [0, 1].
    pairs : rows drawn of each cluster.
    most : clusters drawn.
    facet : whose clusters, where a model has several facets; the first by default.
    random_state : of the choice of rows.
    """
    _at_least_one(pairs=pairs, most=most)
    require(model, "plot_reconstructions", "transform", "inverse_transform")
    rows = rows_of(model, X)
    rng = np.random.default_rng(random_state)
    if has(model, "predict") or has(model, "predict_proba"):
        facet = facet_of(model, facet)
        clusters = clusters_of(model, X, law_of(model, facet), facet, most)
        names, caption = clusters.names, clusters.caption
        members = [np.flatnonzero(clusters.labels == k) for k in clusters.order]
        chosen = [np.sort(rng.permutation(own)[:pairs]) for own in members]
    else:
        some = np.sort(rng.permutation(len(rows))[:most])
        chosen = [some[i : i + pairs] for i in range(0, len(some), pairs)]
        written_rows = [f"rows {', '.join(map(str, own))}" for own in chosen]
        names, caption = [textwrap.shorten(name, 27, placeholder=" …") for name in written_rows], ""
    every = np.concatenate(chosen)
    hat = np.asarray(model.inverse_transform(model.transform(take(X, every))))
    ends = np.cumsum([len(own) for own in chosen])[:-1]
    shape = image_shape_of(image_shape, model, rows, hat)
    if shape is None:
        centre, scale = _standardisation(rows)
        lines = [np.split((part - centre) / scale, ends) for part in (rows[every], hat)]
        said = "Solid: x; dashed: x̂, of the same colour. " + caption
        return _draw_profiles(lines[0], lines[1], names, column_names(model), said)
    x, x_hat = as_images("X", rows[every], shape), as_images("inverse_transform(Z)", hat, shape)
    both = np.stack([x, x_hat], axis=1)  # (rows, 2, h, w[, c])
    cells = [pair.reshape(-1, *both.shape[2:]) for pair in np.split(both, ends)]
    return _draw_images(cells, names, caption, heads=("x", "x̂"))


def plot_traversal(
    model: Any,
    X: ArrayLike,
    *,
    latents: Sequence[int] | None = None,
    image_shape: Shape | None = None,
    steps: int = 9,
    row: int | None = None,
    span: tuple[float, float] = (0.02, 0.98),
) -> "Figure":
    """Draw what each latent does: it goes from a low to a high value, the others stay as they are.

    A row of images per latent, evenly spaced in the latent; the step nearest to the starting row is the starting row's
    own latents, and is framed. For a table, a panel per latent: the standardised columns of x against the latent's
    value, with a dotted line at the start.

    Parameters
    ----------
    model : a fitted model with `transform` and `inverse_transform`.
    X : rows that tell how far each latent goes.
    latents : which; by default all, or the 12 that change x most.
    image_shape : (h, w) or (h, w, channels). By default that of X or of the model; a table if there is none. Values
        are clipped to [0, 1].
    steps : values of each latent.
    row : of X to start from; by default the one whose latents are closest to the medians.
    span : the quantiles of each latent over X between which it goes.

    Examples
    --------
    >>> from identifiable import PrincipalComponents
    >>> x = np.random.default_rng(0).normal(size=(100, 3))
    >>> [axis.get_xlabel() for axis in plot_traversal(PrincipalComponents(2).fit(x), x).axes]
    ['latent 0', 'latent 1']
    """
    require(model, "plot_traversal", "transform", "inverse_transform")
    rows = rows_of(model, X)
    Z = table("transform(X)", model.transform(X), min_rows=1)
    if not (isinstance(steps, int | np.integer) and steps >= 2):
        raise DataError(f"steps must be an integer of at least 2, got {steps!r}.")
    if len(span) != 2 or not 0 <= span[0] < span[1] <= 1:
        raise DataError(f"span must be two quantiles 0 <= low < high <= 1, got {span}.")
    start = Z[_start(Z, row)]
    chosen = range(Z.shape[1]) if latents is None else _known(latents, Z.shape[1])
    values = np.array([_values(Z[:, i], start[i], steps, span) for i in chosen])  # (latents, steps)
    path = np.tile(start, (len(chosen), steps, 1))
    for i, own in enumerate(chosen):
        path[i, :, own] = values[i]
    flat = np.asarray(model.inverse_transform(path.reshape(-1, Z.shape[1])))
    decoded = flat.reshape(len(chosen), steps, *flat.shape[1:])
    kept: IntArray = np.arange(len(chosen))
    if latents is None and len(chosen) > LATENTS:
        kept = np.sort(np.argsort(-np.ptp(decoded, axis=1).reshape(len(chosen), -1).sum(1), kind="stable")[:LATENTS])
    numbers = [int(chosen[i]) for i in kept]
    left_out = f"The {LATENTS} of {len(chosen)} latents that change x most. " if len(kept) < len(chosen) else ""
    shape = image_shape_of(image_shape, model, rows, flat)
    if shape is None:
        centre, scale = _standardisation(rows)
        names = column_names(model) or [f"column {j}" for j in range(rows.shape[1])]
        return _draw_curves((decoded[kept] - centre) / scale, values[kept], start[numbers], numbers, names, left_out)
    cells = [as_images("inverse_transform(Z)", decoded[i], shape) for i in kept]
    labels = [f"latent {i}: {own[0]:.3g} to {own[-1]:.3g}" for i, own in zip(numbers, values[kept], strict=True)]
    framed = [int(np.argmin(np.abs(values[i] - start[own]))) for i, own in zip(kept, numbers, strict=True)]
    return _draw_images(cells, labels, left_out + "Framed: the starting row.", framed=framed)


def plot_latents(
    Z: ArrayLike | Sequence[ArrayLike],
    component: ArrayLike | Sequence[ArrayLike] | None = None,
    *,
    mixture: Mixture | Sequence[Mixture] | None = None,
    titles: Sequence[str] | None = None,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> "Figure":
    """Draw latents coloured by cluster, and the learnt mixture: figure 2 of Kivva et al. (2022).

    An ellipse is two standard deviations of a component of the mixture, in the colour of the label that most of its
    rows have; components that no row belongs to are left out. Single latents are drawn as a histogram per label, with
    the density of each component. Every panel has its own scales, because latents have none.

    Parameters
    ----------
    Z : (N, n) latents, or several such tables, which are drawn side by side: runs, restarts, methods.
    component : (N,) label of each row, the same for every table or one each; by default the most probable component of
        the mixture. The 12 most frequent have a colour.
    mixture : of the n latents, one for all tables or one each.
    titles : of the tables.
    pairs : latents to draw against each other; by default those of the first three.

    Examples
    --------
    >>> law = Mixture([0.5, 0.5], [[0, 0, 0], [4, 0, 0]], np.ones((2, 3)))
    >>> z = np.random.default_rng(0).normal(size=(100, 3)) + law.means[np.repeat([0, 1], 50)]
    >>> figure = plot_latents(z, mixture=law)
    >>> [(axis.get_xlabel(), axis.get_ylabel(), len(axis.lines)) for axis in figure.axes]
    [('latent 0', 'latent 1', 2), ('latent 0', 'latent 2', 2), ('latent 1', 'latent 2', 2)]
    """
    runs = _runs(Z)
    n = runs[0].shape[1]
    chosen = _pairs(pairs, n)
    laws = None if mixture is None else _laws(mixture, len(runs), n)
    nearest = None if laws is None else [_most_probable(law, z) for law, z in zip(laws, runs, strict=True)]
    unlabelled = [np.zeros(len(z), dtype=np.intp) for z in runs] if nearest is None else nearest
    labels = unlabelled if component is None else _labels(component, runs)
    found = Labelled.of(np.concatenate(labels))
    if titles is not None and len(titles) != len(runs):
        raise DataError(f"titles must name each of the {len(runs)} tables of Z, got {len(titles)}.")
    heads = titles or ([""] if len(runs) == 1 else [f"run {r}" for r in range(len(runs))])

    count = len(runs) * len(chosen)
    wide = len(runs) if min(len(runs), len(chosen)) > 1 else math.ceil(count / math.ceil(count / 5))
    side = min(2.6, max(1.6, WIDEST / wide))  # of a panel, in inches
    figure = new_figure(side * wide + 0.8, side * math.ceil(count / wide) + 0.3)
    axes = grid(figure, count, wide, share=False)
    for axis, (pair, r) in zip(axes, product(chosen, range(len(runs))), strict=True):
        draw = _draw_histogram if len(pair) == 1 else _draw_cloud
        own = None if laws is None or nearest is None else _Components(laws[r], nearest[r])
        draw(axis, runs[r][:, list(pair)], labels[r], found, own, list(pair))
        axis.set_xlabel(f"latent {pair[0]}", fontsize=9)
        axis.set_ylabel(f"latent {pair[1]}" if len(pair) == 2 else "density", fontsize=9)
        if pair == chosen[0]:
            axis.set_title(textwrap.fill(heads[r], 28), fontsize=10)
        axis.tick_params(labelsize=8)
        axis.locator_params(nbins=5)
    if component is not None or laws is not None:
        outline = None if laws is None else "2 sd" if n > 1 else "density"
        found.legend(figure, written(found.unique), "cluster", outline)
    return figure


# -- rows and latents


def _at_least_one(**numbers: int) -> None:
    for name, value in numbers.items():
        if not (isinstance(value, int | np.integer) and value >= 1):
            raise DataError(f"{name} must be an integer of at least 1, got {value!r}.")


def _standardisation(x: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    scale = x.std(axis=0, dtype=np.float64)
    return x.mean(axis=0, dtype=np.float64), np.where(scale > 0, scale, 1.0)


def _start(Z: FloatArray, row: int | None) -> int:
    if row is None:
        return int(np.argmin((((Z - np.median(Z, axis=0)) / _standardisation(Z)[1]) ** 2).sum(axis=1)))
    if not (isinstance(row, int | np.integer) and 0 <= row < len(Z)):
        raise DataError(f"row must be a row of X, 0 to {len(Z) - 1}, got {row!r}.")
    return int(row)


def _known(latents: Sequence[int], n: int) -> list[int]:
    unknown = [str(i) for i in latents if not (isinstance(i, int | np.integer) and 0 <= i < n)]
    if unknown or len(set(latents)) < len(latents) or not len(latents):
        raise DataError(
            f"latents must be different numbers from 0 to {n - 1}, got {join_few(list(map(str, latents)))}."
        )
    return [int(i) for i in latents]


def _values(latent: FloatArray, start: float, steps: int, span: tuple[float, float]) -> FloatArray:
    """Space the values of a latent evenly between quantiles; the nearest to the start becomes the start."""
    low, high = np.quantile(latent, span)
    values = np.linspace(low, high, steps)
    values[np.argmin(np.abs(values - start))] = start
    return values


def _runs(Z: Any) -> list[FloatArray]:
    several = np.ndim(Z[0]) == 2 if isinstance(Z, list | tuple) and len(Z) else np.ndim(Z) == 3
    if not several:
        return [table("Z", Z, min_rows=1)]
    runs = [table(f"Z[{i}]", z, min_rows=1) for i, z in enumerate(Z)]
    widths = [z.shape[1] for z in runs]
    if len(set(widths)) > 1:
        raise DataError(
            f"The tables of Z must have the same number of latents, got {join_few(list(map(str, widths)))}."
        )
    return runs


def _laws(mixture: Mixture | Sequence[Mixture], runs: int, n: int) -> list[Mixture]:
    laws = [mixture] * runs if isinstance(mixture, Mixture) else list(mixture)
    if len(laws) != runs:
        raise DataError(f"mixture must be one for all, or one for each of the {runs} tables of Z, got {len(laws)}.")
    for law in laws:
        if law.means.shape[1] != n:
            raise DataError(f"mixture must be of the {n} latents of Z, got one of {law.means.shape[1]}.")
    return laws


def _labels(component: Any, runs: list[FloatArray]) -> list[NDArray[Any]]:
    several = (
        np.ndim(component[0]) == 1 if isinstance(component, list | tuple) and component else np.ndim(component) == 2
    )
    given = list(component) if several else [component] * len(runs)
    if len(given) != len(runs):
        raise DataError(f"component must be one for all, or one for each of the {len(runs)} tables, got {len(given)}.")
    labels = [one_per_row("component", own) for own in given]
    for z, own in zip(runs, labels, strict=True):
        same_rows(Z=z, component=own)
    return np.split(np.concatenate(labels), np.cumsum([len(own) for own in labels])[:-1])  # of one type


def _pairs(pairs: Sequence[tuple[int, int]] | None, n: int) -> list[tuple[int, ...]]:
    if n == 1:
        if pairs is not None:
            raise DataError("pairs must be left out: Z has a single latent, and is drawn as a histogram.")
        return [(0,)]
    if pairs is None:
        return list(combinations(range(min(n, 3)), 2))
    for pair in pairs:
        if len(pair) != 2 or pair[0] == pair[1] or not all(0 <= i < n for i in pair):
            raise DataError(f"pairs must be of two different latents from 0 to {n - 1}, got {tuple(pair)}.")
    if not len(pairs):
        raise DataError("pairs must name at least one pair of latents, such as [(0, 1)].")
    return [tuple(pair) for pair in pairs]


def _most_probable(law: Mixture, z: FloatArray) -> IntArray:
    """Return the most probable component of each row (N,)."""
    floor = np.diag(1e-6 * z.var(axis=0) + 1e-12)  # components may be flat
    with np.errstate(divide="ignore"):
        log_weights = np.log(law.weights)
    parts = zip(law.means, law.covariances, strict=True)
    normals = [multivariate_normal(mean, S + floor, allow_singular=True) for mean, S in parts]
    joint = np.stack([normal.logpdf(z).reshape(-1) for normal in normals], axis=1) + log_weights
    return np.asarray(joint.argmax(axis=1))


# -- drawing


def _draw_images(
    cells: Sequence[NDArray[Any]],
    names: Sequence[str],
    caption: str,
    *,
    heads: Sequence[str] = ("",),
    framed: Sequence[int] | None = None,
) -> "Figure":
    """Draw rows of images (h, w) or (h, w, 3) on one axis; as many as there are heads stand close together."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    outside = np.mean([((x < -0.01) | (x > 1.01)).mean() for x in cells])
    if outside > 0.01:
        caption += f" {100 * outside:.0f} % of the values lie outside [0, 1] and are clipped."
    together = len(heads)
    wide = cells[0].shape[2] / cells[0].shape[1]
    columns = max(len(x) for x in cells)
    left = np.arange(columns) * (wide + GAP) + np.arange(columns) // together * (2 * GAP if together > 1 else 0)
    right = left[-1] + wide
    side = min(0.8, WIDEST / right, TALLEST / ((1 + GAP) * len(cells)))  # height of an image, in inches
    figure, written_caption = _captioned(side * right + 0.075 * max(map(len, names)) + 0.4, caption, fixed_aspect=True)
    figure.set_figheight(side * (1 + GAP) * len(cells) + 0.3 + (0.2 if heads[0] else 0) + 0.16 * written_caption)
    axis = figure.add_subplot()
    edges = []  # so that white images can be told from the page
    for r, images in enumerate(cells):
        top = r * (1 + GAP)
        for x, image in zip(left, images, strict=False):
            axis.imshow(np.clip(image, 0, 1), cmap="gray", vmin=0, vmax=1, extent=(x, x + wide, top + 1, top))
            edges.append(Rectangle((x, top), wide, 1))
        if framed is not None:
            place = left[framed[r]], top
            axis.add_patch(Rectangle(place, wide, 1, fill=False, edgecolor=FRAME, linewidth=2, clip_on=False, zorder=3))
    axis.add_collection(PatchCollection(edges, facecolor="none", edgecolor="0.8", linewidth=0.5, clip_on=False))
    axis.set(xlim=(0, right), ylim=((1 + GAP) * len(cells) - GAP, 0))
    axis.set_yticks(np.arange(len(cells)) * (1 + GAP) + 0.5, names, fontsize=min(9, 60 * side))
    axis.set_xticks(left + wide / 2 if heads[0] else [], list(heads) * (columns // together) if heads[0] else [])
    axis.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False, pad=5)
    axis.spines[:].set_visible(False)
    return figure


def _captioned(width: float, caption: str, *, fixed_aspect: bool = False) -> "tuple[Figure, int]":
    """Make a figure, flat as yet, with a caption below; return the number of its lines too."""
    figure = new_figure(max(4.5, width), 1.0, fixed_aspect=fixed_aspect)
    lines = textwrap.wrap(caption, int(13 * max(4.5, width)))
    if lines:
        figure.supxlabel("\n".join(lines), fontsize=8.5)
    return figure, len(lines)


def _draw_profiles(
    lines: Sequence[FloatArray],
    partners: Sequence[FloatArray] | None,
    names: Sequence[str],
    columns: Sequence[str] | None,
    caption: str,
) -> "Figure":
    """Draw a panel per cluster: each of its rows (S, d) as a line over the columns, and dashed its partner."""
    from matplotlib.ticker import MaxNLocator

    d = lines[0].shape[1]
    width = min(4.0, max(1.9, 0.22 * d))  # of a panel, in inches
    high = math.ceil(len(lines) / int(WIDEST / width))
    wide = math.ceil(len(lines) / high)
    height = min(1.7, max(1.1, TALLEST / high))
    named = columns is not None and d <= TICKS
    figure, written_caption = _captioned(width * wide + 0.8, caption)
    below = 0.08 * max(map(len, columns)) if columns is not None and named else 0.4
    figure.set_figheight(height * high + below + 0.3 + 0.16 * written_caption)
    axes = grid(figure, len(lines), wide, share=True)
    at = np.arange(d)
    marker = "o" if d <= 12 else ""
    for axis, own, i in zip(axes, lines, range(len(lines)), strict=True):
        shades = ["0.25"] * len(own) if partners is None else colours(len(own)) if len(own) <= 12 else ["0.25"]
        for j, line in enumerate(own):
            style: dict[str, Any] = {"color": shades[j % len(shades)], "linewidth": 1.0, "marker": marker}
            axis.plot(at, line, alpha=0.5 if partners is None else 0.9, markersize=2.5, **style)
            if partners is not None:
                axis.plot(at, partners[i][j], linestyle=(0, (3, 1.5)), markersize=2.5, **style)
        axis.set_title(names[i], fontsize=8.5)
        axis.tick_params(labelsize=8)
        axis.locator_params(axis="y", nbins=5)
        axis.spines[["top", "right"]].set_visible(False)
    if named:
        axes[0].set_xticks(at, columns)
        for axis in axes:
            axis.tick_params(axis="x", rotation=90, labelsize=7.5)
    else:
        axes[0].xaxis.set_major_locator(MaxNLocator(5, integer=True))
        for axis in axes[-wide:]:
            axis.set_xlabel("column", fontsize=9)
    figure.supylabel("standardised value", fontsize=9)
    return figure


def _draw_curves(
    x: FloatArray,
    values: FloatArray,
    start: FloatArray,
    numbers: Sequence[int],
    names: Sequence[str],
    caption: str,
) -> "Figure":
    """Draw x (latents, steps, d) against the values (latents, steps) of each latent, a panel each."""
    from matplotlib.lines import Line2D

    change = np.ptp(x, axis=1).max(axis=0)
    kept = np.sort(np.argsort(-change, kind="stable")[:NAMED])
    shades = dict(zip(kept.tolist(), colours(len(kept)), strict=True))
    wide = math.ceil(len(x) / math.ceil(len(x) / 4))
    high = math.ceil(len(x) / wide)
    said = f"{caption}x standardised, as one latent moves and the others stay; dotted: the starting row."
    figure, written_caption = _captioned(2.5 * wide + 0.9 + 0.08 * max(len(names[j]) for j in kept), said)
    figure.set_figheight(max(2.1 * high, 0.2 * len(kept)) + 0.4 + 0.16 * written_caption)
    axes = grid(figure, len(x), wide, share=False)
    low, top = x.min(), x.max()
    room = 0.05 * (top - low) or 1.0
    for axis, curves, own, z, i in zip(axes, x, values, start, numbers, strict=True):
        for j in sorted(range(x.shape[2]), key=lambda j: j in shades):  # the grey ones first, below
            axis.plot(own, curves[:, j], color=shades.get(j, "0.8"), linewidth=1.4 if j in shades else 0.7)
        axis.axvline(z, color="0.3", linewidth=0.9, linestyle=":")
        axis.set_ylim(low - room, top + room)
        axis.set_xlabel(f"latent {i}", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.locator_params(nbins=5)
        axis.spines[["top", "right"]].set_visible(False)
    handles = [Line2D([], [], color=shade, linewidth=1.4, label=names[j]) for j, shade in shades.items()]
    if len(kept) < len(names):
        handles.append(Line2D([], [], color="0.8", linewidth=0.7, label=f"{len(names) - len(kept)} others"))
    figure.legend(handles=handles, loc="outside right center", fontsize=8, frameon=False)
    return figure


@dataclass(frozen=True, eq=False)
class _Components:
    """A mixture, and the component each row belongs to."""

    law: Mixture
    nearest: IntArray

    def with_rows(self, labels: NDArray[Any], found: Labelled) -> Iterator[tuple[int, str]]:
        """Yield each component that has rows, and the colour of the label most of its rows have."""
        for k in np.unique(self.nearest):
            values, counts = np.unique(labels[self.nearest == k], return_counts=True)
            yield int(k), found.colours_of(values[[counts.argmax()]])[0]


def _draw_cloud(
    axis: "Axes", z: FloatArray, labels: NDArray[Any], found: Labelled, own: _Components | None, pair: list[int]
) -> None:
    rows = np.random.default_rng(0).permutation(len(z))[:POINTS]
    found.scatter(axis, z[rows], labels[rows])
    if own is not None:
        components = list(own.with_rows(labels, found))
        linewidth = 1.1 if len(components) <= 12 else 0.6
        for k, colour in components:
            covariance = own.law.covariances[k][np.ix_(pair, pair)]
            draw_ellipse(axis, own.law.means[k, pair], covariance, colour, deviations=2, linewidth=linewidth)


def _draw_histogram(
    axis: "Axes", z: FloatArray, labels: NDArray[Any], found: Labelled, own: _Components | None, pair: list[int]
) -> None:
    edges = np.histogram_bin_edges(z, 40).tolist()
    shares = np.full(len(z), 1 / (len(z) * (edges[1] - edges[0])))
    for value, colour in zip(found.unique, found.colours, strict=True):
        rows = labels == value
        axis.hist(z[rows, 0], edges, weights=shares[rows], color=colour, alpha=0.45, histtype="stepfilled")
    if own is not None:
        at = np.linspace(edges[0], edges[-1], 400)
        for k, colour in own.with_rows(labels, found):
            sd = np.sqrt(own.law.covariances[k, 0, 0])
            axis.plot(at, own.law.weights[k] * norm.pdf(at, own.law.means[k, 0], sd), color=colour, linewidth=1.1)
