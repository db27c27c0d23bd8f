"""Pictures. Every function draws on axes it is given, or makes a figure, and returns it; nothing is shown or saved."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from identifiable.metrics import correlation_matrix, match

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_recovery(z: ArrayLike, latents: Mapping[str, ArrayLike]) -> "Figure":
    """Draw |correlation| of true latents z (N, n) with each method's latents (N, m), after the best assignment.

    A perfect recovery is a white square with a dark diagonal.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.6 * len(latents) + 0.9, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(latents), squeeze=False)[0]
    for axis, (name, estimate) in zip(axes, latents.items(), strict=True):
        matching = match(z, estimate)
        correlations = np.abs(correlation_matrix(z, estimate))[:, matching.permutation]
        image = axis.imshow(correlations, vmin=0, vmax=1, cmap="Blues")
        axis.set_title(f"{name}\nMCC {matching.score:.3f}", fontsize=10)
        axis.set_xlabel("estimated latent")
        axis.set_xticks(range(correlations.shape[1]), [str(i) for i in matching.permutation], fontsize=8)
        axis.set_yticks(range(len(correlations)), [str(i) for i in range(len(correlations))], fontsize=8)
    axes[0].set_ylabel("true latent")
    figure.colorbar(image, ax=list(axes), label="|correlation|", shrink=0.8)
    return figure
