"""Figures of what a model with latents and clusters has learnt: samples, reconstructions and traversals.

`plot_cluster_samples` and `plot_reconstructions` are figures 8 and 9 of Kivva et al. (2022). A model is any object with
the methods a figure needs; rows are images or plain tables. Every function returns a new figure.
"""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from identifiable.arrays import FloatArray
from identifiable.errors import DataError
from identifiable.metrics.checks import table
from identifiable.report.plots import drawing, figures, models
from identifiable.report.plots.models import Shape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LATENTS = 12  # traversed by default


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
    pixels, if the model has `mixture_` and `inverse_transform`; otherwise ``sample(n, component=k)``. With X, the
    clusters are sorted by their mean confidence, :math:`\max_k p(k \mid x)` over the rows in them, and those without a
    row are left out; without X, by weight. Rows of a table are drawn as lines over its standardised columns.

    Parameters
    ----------
    model : a fitted model with clusters.
    X : rows that define the order and the shares of the clusters.
    image_shape : (h, w) or (h, w, channels). By default that of X or of the model; a table if there is none. Values
        are clipped to [0, 1].
    samples : samples of each cluster.
    most : largest number of clusters.
    facet : the facet whose clusters are drawn, if the model has several; the first by default. The latents of the
        others follow their own mixture.
    random_state : seed of the samples. Those of a cluster do not depend on which others are drawn.

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
    figures.check_at_least(1, samples=samples, most=most)
    rows = None if X is None else models.rows_of(model, X)
    facet = models.facet_of(model, facet)
    mixture = models.mixture_of(model, facet)
    clusters = models.clusters_of(model, X, mixture, facet, most)
    drawn = [models.samples_of(model, mixture, int(k), samples, facet, random_state) for k in clusters.order]
    shape = models.image_shape_of(image_shape, model, rows, drawn[0])
    if shape is not None:
        return drawing.draw_images(
            [models.as_images("samples", x, shape) for x in drawn], clusters.names, clusters.caption
        )
    centre, scale = _standardisation(np.concatenate(drawn) if rows is None else rows)
    lines = [(x - centre) / scale for x in drawn]
    return drawing.draw_profiles(lines, None, clusters.names, models.column_names(model), clusters.caption)


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
    r"""Draw rows x of X beside their reconstructions :math:`\hat x`, by cluster: figure 9 of Kivva et al. (2022).

    :math:`\hat x` is ``inverse_transform(transform(x))``. The clusters are sorted as in `plot_cluster_samples`; for a
    model without clusters, `most` rows are drawn, `pairs` side by side. Rows of a table are drawn as lines over its
    standardised columns.

    Parameters
    ----------
    model : a fitted model with `transform` and `inverse_transform`.
    X : the rows to choose from, at random.
    image_shape : (h, w) or (h, w, channels). By default that of X or of the model; a table if there is none. Values
        are clipped to [0, 1].
    pairs : rows drawn of each cluster.
    most : largest number of clusters.
    facet : the facet whose clusters are drawn, if the model has several; the first by default.
    random_state : seed of the choice of rows.
    """
    figures.check_at_least(1, pairs=pairs, most=most)
    models.require(model, "plot_reconstructions", "transform", "inverse_transform")
    rows = models.rows_of(model, X)
    rng = np.random.default_rng(random_state)
    if models.has(model, "predict") or models.has(model, "predict_proba"):
        facet = models.facet_of(model, facet)
        clusters = models.clusters_of(model, X, models.mixture_of(model, facet), facet, most)
        names, caption = clusters.names, clusters.caption
        members = [np.flatnonzero(clusters.labels == k) for k in clusters.order]
        chosen = [np.sort(rng.permutation(own)[:pairs]) for own in members]
    else:
        some = np.sort(rng.permutation(len(rows))[:most])
        chosen = [some[i : i + pairs] for i in range(0, len(some), pairs)]
        lists = [f"rows {', '.join(map(str, own))}" for own in chosen]
        names, caption = [textwrap.shorten(name, 27, placeholder=" …") for name in lists], ""
    every = np.concatenate(chosen)
    decoded = np.asarray(model.inverse_transform(model.transform(models.take(X, every))))
    ends = np.cumsum([len(own) for own in chosen])[:-1]
    shape = models.image_shape_of(image_shape, model, rows, decoded)
    if shape is None:
        centre, scale = _standardisation(rows)
        x, x_hat = (np.split((part - centre) / scale, ends) for part in (rows[every], decoded))
        caption = f"Solid: x; dashed: x̂, in the same colour. {caption}"
        return drawing.draw_profiles(x, x_hat, names, models.column_names(model), caption)
    images = models.as_images("X", rows[every], shape), models.as_images("inverse_transform(Z)", decoded, shape)
    both = np.stack(images, axis=1)  # (rows, 2, h, w[, c])
    groups = [pair.reshape(-1, *both.shape[2:]) for pair in np.split(both, ends)]
    return drawing.draw_images(groups, names, caption, heads=("x", "x̂"))


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
    """Draw the effect of each latent: it moves from a low to a high value while the others stay fixed.

    A row of images per latent, evenly spaced in the latent; the step nearest to the latent of the starting row is
    replaced by it, and framed. For a table, a panel per latent: the standardised columns of x against the latent's
    value, with a dotted line at the start.

    Parameters
    ----------
    model : a fitted model with `transform` and `inverse_transform`.
    X : rows that define the range of each latent.
    latents : indices of the latents to draw; by default all, or the 12 that change x most.
    image_shape : (h, w) or (h, w, channels). By default that of X or of the model; a table if there is none. Values
        are clipped to [0, 1].
    steps : values of each latent.
    row : index of the starting row in X; by default the row whose latents are closest to the medians.
    span : the quantiles over X that limit the range of each latent.

    Examples
    --------
    >>> from identifiable import PrincipalComponents
    >>> x = np.random.default_rng(0).normal(size=(100, 3))
    >>> [axis.get_xlabel() for axis in plot_traversal(PrincipalComponents(2).fit(x), x).axes]
    ['latent 0', 'latent 1']
    """
    models.require(model, "plot_traversal", "transform", "inverse_transform")
    rows = models.rows_of(model, X)
    Z = table("transform(X)", model.transform(X), min_rows=1)
    figures.check_at_least(2, steps=steps)
    if len(span) != 2 or not 0 <= span[0] < span[1] <= 1:
        raise DataError(f"span must be two quantiles 0 <= low < high <= 1, got {span}.")
    start, n = Z[_start(Z, row)], Z.shape[1]
    chosen = list(range(n) if latents is None else latents)
    if not figures.are_indices(chosen, n) or not chosen:
        raise DataError(f"latents must be different numbers from 0 to {n - 1}, got {figures.listed(chosen)}.")
    values = np.array([_values(Z[:, i], start[i], steps, span) for i in chosen])  # (latents, steps)
    path = np.tile(start, (len(chosen), steps, 1))
    for i, own in enumerate(chosen):
        path[i, :, own] = values[i]
    reconstructed = np.asarray(model.inverse_transform(path.reshape(-1, n)))
    decoded = reconstructed.reshape(len(chosen), steps, *reconstructed.shape[1:])
    caption, kept = "", np.arange(len(chosen))
    if latents is None and n > MOST_LATENTS:
        change = np.ptp(decoded, axis=1).reshape(n, -1).sum(1)
        kept = np.sort(np.argsort(-change, kind="stable")[:MOST_LATENTS])
        caption = f"The {MOST_LATENTS} of {n} latents that change x most. "
    numbers, values = [int(chosen[i]) for i in kept], values[kept]
    shape = models.image_shape_of(image_shape, model, rows, reconstructed)
    if shape is None:
        centre, scale = _standardisation(rows)
        names = models.column_names(model) or [f"column {j}" for j in range(rows.shape[1])]
        return drawing.draw_curves((decoded[kept] - centre) / scale, values, start[numbers], numbers, names, caption)
    images = [models.as_images("inverse_transform(Z)", decoded[i], shape) for i in kept]
    labels = [f"latent {i}: {own[0]:.3g} to {own[-1]:.3g}" for i, own in zip(numbers, values, strict=True)]
    framed = np.abs(values - start[numbers][:, None]).argmin(axis=1).tolist()
    return drawing.draw_images(images, labels, caption + "Framed: the starting row.", framed=framed)


def _standardisation(x: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of each column; 1 where it is constant."""
    scale = x.std(axis=0, dtype=np.float64)
    return x.mean(axis=0, dtype=np.float64), np.where(scale > 0, scale, 1.0)


def _start(Z: FloatArray, row: int | None) -> int:
    if row is None:
        return int(np.argmin((((Z - np.median(Z, axis=0)) / _standardisation(Z)[1]) ** 2).sum(axis=1)))
    if not figures.are_indices([row], len(Z)):
        raise DataError(f"row must be a row of X, 0 to {len(Z) - 1}, got {row!r}.")
    return int(row)


def _values(latent: FloatArray, start: float, steps: int, span: tuple[float, float]) -> FloatArray:
    """Space the values of a latent evenly between quantiles; replace the nearest to the start by the start."""
    low, high = np.quantile(latent, span)
    values = np.linspace(low, high, steps)
    values[np.argmin(np.abs(values - start))] = start
    return values
