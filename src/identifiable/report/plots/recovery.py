"""Figures of recovered latents and of patterns of activity. Every function returns a new figure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from identifiable.estimators.sparse_unmixing import Masks
from identifiable.metrics import correlation_matrix, match
from identifiable.report.plots.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_recovery(z: ArrayLike, latents: Mapping[str, ArrayLike]) -> "Figure":
    """Draw |correlation| of true latents z (N, n) with each method's latents (N, m), after the best assignment.

    A perfect recovery is a white square with a dark diagonal. The column of a true latent without partner is empty.
    """
    figure = new_figure(2.4 * len(latents) + 0.9, 3.2)
    axes = figure.subplots(1, len(latents), squeeze=False)[0]
    for axis, (name, estimate) in zip(axes, latents.items(), strict=True):
        matching = match(z, estimate)
        partners = matching.permutation
        correlations = np.where(partners >= 0, np.abs(correlation_matrix(z, estimate))[:, partners], np.nan)
        image = axis.imshow(correlations, vmin=0, vmax=1, cmap="Blues")
        axis.set_title(f"{name}\nMCC {matching.score:.3f}", fontsize=10)
        axis.set_xlabel("estimated latent")
        axis.set_xticks(range(len(partners)), [str(i) if i >= 0 else "–" for i in partners], fontsize=8)
        axis.set_yticks(range(len(partners)), [str(i) for i in range(len(partners))], fontsize=8)
    axes[0].set_ylabel("true latent")
    figure.colorbar(image, ax=list(axes), label="|correlation|", shrink=0.8, fraction=0.03, pad=0.01)
    return figure


def plot_activity(masks: Masks, *, most: int = 40) -> "Figure":
    """Draw the `most` frequent patterns of activity, a row each: black where a latent is active, and the share of rows.

    The bars below the columns are the share of rows in which each latent is active, over all patterns.
    """
    patterns, shares = masks.patterns[:most], masks.frequencies[:most]
    (rows, n), total = patterns.shape, len(masks.patterns)
    width, height = max(2.0, 0.28 * n), max(1.2, 0.28 * rows)  # of the cells, in inches
    figure = new_figure(width + 3.8, height + 2.5)
    grid = figure.add_gridspec(2, 2, width_ratios=(width, 2.4), height_ratios=(height, 0.9))
    cells, bars, latents = (figure.add_subplot(grid[place]) for place in ((0, 0), (0, 1), (1, 0)))

    cells.pcolormesh(patterns, cmap="Greys", vmin=0, vmax=1, edgecolors="0.75", linewidth=0.5)
    cells.set(ylim=(rows, 0), ylabel="pattern", xticks=[], yticks=[])
    cells.set_title("black: active, white: inactive", fontsize=10)

    centres = np.arange(rows) + 0.5
    bars.barh(centres, 100 * shares, color="0.3", height=0.8)
    for y, share in zip(centres, shares, strict=True):
        bars.text(100 * share, y, f" {100 * share:.1f}", va="center", fontsize=8)
    bars.set(ylim=(rows, 0), xlim=(0, 125 * shares.max()), xticks=[], yticks=[])
    bars.set_title("% of rows", fontsize=10)
    bars.spines[:].set_visible(False)

    latents.bar(np.arange(n) + 0.5, 100 * masks.frequencies @ masks.patterns, color="0.3", width=0.8)
    latents.set(xlim=(0, n), ylim=(0, 100), yticks=[0, 50, 100], xlabel="latent", ylabel="active in\n% of rows")
    named = np.arange(0, n, 1 if n <= 30 else 5)
    latents.set_xticks(named + 0.5, [str(i) for i in named], fontsize=8)
    latents.spines[["top", "right"]].set_visible(False)
    shown = f"The {rows} most frequent of {total} patterns: {100 * shares.sum():.0f} % of rows"
    figure.suptitle(shown if rows < total else f"{total} patterns of activity")
    return figure
