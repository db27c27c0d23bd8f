"""A figure of latents coloured by cluster, with the learnt mixture."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from identifiable.arrays import FloatArray, IntArray
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.metrics.checks import same_rows, table
from identifiable.report.plots import figures
from identifiable.report.plots.figures import Labelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDEST = 12.0  # width of all panels, in inches
POINTS = 3000  # most points of a panel
BINS = 40  # of a histogram
FLOOR = 1e-3  # sd in units of each latent's sd added to every component, so that a degenerate one has a density


def plot_latents(
    Z: ArrayLike | Sequence[ArrayLike],
    component: ArrayLike | Sequence[ArrayLike] | None = None,
    *,
    mixture: Mixture | Sequence[Mixture] | None = None,
    titles: Sequence[str] | None = None,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> "Figure":
    """Draw latents coloured by cluster, and the learnt mixture: figure 2 of Kivva et al. (2022).

    An ellipse is two standard deviations of a component of the mixture, in the colour of the most frequent label among
    its rows; components without rows are left out. A single latent is drawn as a histogram per label, with the density
    of each component. Every panel has its own scale, because the scale of latents is arbitrary.

    Parameters
    ----------
    Z : (N, n) latents, or several such tables, which are drawn side by side: runs, restarts, methods.
    component : (N,) label of each row, the same for every table or one each; by default the most probable component of
        the mixture. The 12 most frequent have a colour.
    mixture : mixture of the n latents, one for all tables or one each.
    titles : titles of the tables.
    pairs : latents to draw against each other; by default those of the first three.

    Examples
    --------
    >>> mixture = Mixture([0.5, 0.5], [[0, 0, 0], [4, 0, 0]], np.ones((2, 3)))
    >>> z = np.random.default_rng(0).normal(size=(100, 3)) + mixture.means[np.repeat([0, 1], 50)]
    >>> figure = plot_latents(z, mixture=mixture)
    >>> [(axis.get_xlabel(), axis.get_ylabel(), len(axis.lines)) for axis in figure.axes]
    [('latent 0', 'latent 1', 2), ('latent 0', 'latent 2', 2), ('latent 1', 'latent 2', 2)]
    """
    runs = _runs(Z)
    n = runs[0].shape[1]
    chosen = _pairs(pairs, n)
    learnt = None if mixture is None else _learnt(mixture, runs)
    labels = [np.zeros(len(z), dtype=np.intp) for z in runs] if learnt is None else [m.nearest for m in learnt]
    labels = labels if component is None else _labels(component, runs)
    found = Labelled.of(np.concatenate(labels))
    heads = [f"run {r}" for r in range(len(runs))] if titles is None else _one_for_each("titles", titles, len(runs))
    heads = [""] if titles is None and len(runs) == 1 else heads

    count = len(runs) * len(chosen)
    wide = len(runs) if min(len(runs), len(chosen)) > 1 else figures.columns_for(count, 5)
    side = min(2.6, max(1.6, WIDEST / wide))  # of a panel, in inches
    figure, axes = figures.make_panels(count, wide, (side, side))
    for axis, (pair, r) in zip(axes, product(chosen, range(len(runs))), strict=True):
        draw = _draw_histogram if len(pair) == 1 else _draw_cloud
        draw(axis, runs[r][:, list(pair)], labels[r], found, None if learnt is None else learnt[r], list(pair))
        figures.label(axis, x=f"latent {pair[0]}", y=f"latent {pair[1]}" if len(pair) == 2 else "density")
        if pair == chosen[0]:
            figures.label(axis, title=textwrap.fill(heads[r], 28))
    if component is not None or learnt is not None:
        outline = None if learnt is None else "2 sd" if n > 1 else "density"
        found.legend(figure, figures.as_text(found.unique), "cluster", outline)
    return figure


def _runs(Z: Any) -> list[FloatArray]:
    several = np.ndim(Z[0]) == 2 if isinstance(Z, list | tuple) and len(Z) else np.ndim(Z) == 3
    if not several:
        return [table("Z", Z, min_rows=1)]
    runs = [table(f"Z[{i}]", z, min_rows=1) for i, z in enumerate(Z)]
    widths = [z.shape[1] for z in runs]
    if len(set(widths)) > 1:
        raise DataError(f"The tables of Z must have the same number of latents, got {figures.listed(widths)}.")
    return runs


@dataclass(frozen=True, eq=False)
class _Components:
    """A mixture, and the most probable component of each row."""

    mixture: Mixture
    nearest: IntArray

    @classmethod
    def of(cls, mixture: Mixture, z: FloatArray) -> "_Components":
        scale = np.where(z.std(axis=0) > 0, z.std(axis=0), 1.0)
        standardised = mixture.pushforward(np.diag(1 / scale), np.zeros(len(scale)))
        return cls(mixture, standardised.log_joint(z / scale, FLOOR).argmax(axis=1))

    def with_rows(self, labels: NDArray[Any], found: Labelled) -> Iterator[tuple[int, str]]:
        """Yield each component that has rows, and the colour of the most frequent label among them."""
        for k in np.unique(self.nearest):
            values, counts = np.unique(labels[self.nearest == k], return_counts=True)
            yield int(k), found.colours_of(values[[counts.argmax()]])[0]


def _one_for_each(name: str, given: Any, count: int, *, is_one: bool = False) -> list[Any]:
    """Return a value for each table of Z, the same for all if there is one."""
    values = [given] * count if is_one else list(given)
    if len(values) != count:
        raise DataError(f"{name} must have one entry for each of the {count} tables of Z, got {len(values)}.")
    return values


def _learnt(mixture: Mixture | Sequence[Mixture], runs: list[FloatArray]) -> list[_Components]:
    given = _one_for_each("mixture", mixture, len(runs), is_one=isinstance(mixture, Mixture))
    for one in given:
        if one.means.shape[1] != runs[0].shape[1]:
            raise DataError(f"mixture must be of the {runs[0].shape[1]} latents of Z, got one of {one.means.shape[1]}.")
    return [_Components.of(one, z) for one, z in zip(given, runs, strict=True)]


def _labels(component: Any, runs: list[FloatArray]) -> list[NDArray[Any]]:
    several = (
        np.ndim(component[0]) == 1 if isinstance(component, list | tuple) and component else np.ndim(component) > 1
    )
    given = _one_for_each("component", component, len(runs), is_one=not several)
    labels = [figures.one_per_row("component", own) for own in given]
    for z, own in zip(runs, labels, strict=True):
        same_rows(Z=z, component=own)
    return figures.of_one_type(labels)


def _pairs(pairs: Sequence[tuple[int, int]] | None, n: int) -> list[tuple[int, ...]]:
    if n == 1:
        if pairs is not None:
            raise DataError("pairs must be left out: Z has a single latent, and is drawn as a histogram.")
        return [(0,)]
    if pairs is None:
        return list(combinations(range(min(n, 3)), 2))
    for pair in pairs:
        if len(pair) != 2 or not figures.are_indices(pair, n):
            raise DataError(f"pairs must be of two different latents from 0 to {n - 1}, got {tuple(pair)}.")
    if not len(pairs):
        raise DataError("pairs must name at least one pair of latents, such as [(0, 1)].")
    return [tuple(pair) for pair in pairs]


def _draw_cloud(
    axis: "Axes", z: FloatArray, labels: NDArray[Any], found: Labelled, learnt: _Components | None, pair: list[int]
) -> None:
    rows = np.random.default_rng(0).permutation(len(z))[:POINTS]
    found.scatter(axis, z[rows], labels[rows])
    if learnt is None:
        return
    components = list(learnt.with_rows(labels, found))
    linewidth = 1.1 if len(components) <= len(figures.PALETTE) else 0.6
    for k, colour in components:
        mean, covariance = learnt.mixture.means[k, pair], learnt.mixture.covariances[k][np.ix_(pair, pair)]
        figures.draw_ellipse(axis, mean, covariance, colour, deviations=2, linewidth=linewidth)


def _draw_histogram(
    axis: "Axes", z: FloatArray, labels: NDArray[Any], found: Labelled, learnt: _Components | None, pair: list[int]
) -> None:
    edges = np.histogram_bin_edges(z, BINS).tolist()
    shares = np.full(len(z), 1 / (len(z) * (edges[1] - edges[0])))
    for value, colour in zip(found.unique, found.colours, strict=True):
        rows = labels == value
        axis.hist(z[rows, 0], edges, weights=shares[rows], color=colour, alpha=0.45, histtype="stepfilled")
    at = np.linspace(edges[0], edges[-1], 400)
    if learnt is None:
        return
    for k, colour in learnt.with_rows(labels, found):
        mixture, (i,) = learnt.mixture, pair
        density = norm.pdf(at, mixture.means[k, i], np.sqrt(mixture.covariances[k, i, i]))
        axis.plot(at, mixture.weights[k] * density, color=colour, linewidth=1.1)
