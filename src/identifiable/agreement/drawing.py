"""Figures of agreement: the matrices between runs, and the candidates of a choice."""

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from identifiable.agreement.stability import THRESHOLDS
from identifiable.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from identifiable.agreement.stability import Stability

MOST_ANNOTATED = 15  # runs up to which a figure shows the numbers
COLOURS = {"stable": "#4292c6", "doubtful": "#9ecae1", "unstable": "#deebf7", "failed": "#deebf7"}


def plot_stability(stability: "Stability") -> "Figure":
    """Draw the matrices side by side, dark where runs agree; the run that agrees most is framed."""
    from matplotlib.figure import Figure

    strong = "sqrt R²\nup to an affine map" if stability.affine else "strong MCC\nup to order and scale"
    panels = [(strong, stability.pairwise, "Blues", 1.0)]
    if stability.weak is not None:
        panels.append(("weak MCC\nup to an affine map", stability.weak, "Blues", 1.0))
    if stability.distances is not None:
        panels.append(("dist_Aff,L2\nbetween the mixtures", stability.distances, "Blues_r", 2**0.5))
    side = min(max(2.2, 0.46 * len(stability.pairwise)), 7.0)  # of a panel, in inches
    width = len(panels) * (side + 0.45) + 0.4
    words = fill(stability.reading, int(13 * width))
    figure = Figure(figsize=(width, side + 1.35 + 0.14 * len(words.splitlines())), layout="compressed")
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, values, colours, most) in zip(every, panels, strict=True):
        axes.set_title(title, fontsize=10)
        _draw_matrix(axes, values, colours, most, stability.chosen)
    figure.suptitle(words, fontsize=9)
    figure.supxlabel("run (framed: agrees most)", fontsize=9)
    return figure


def plot_choice(candidates: pd.DataFrame, ax: "Axes | None" = None) -> "Axes":
    """Draw candidates (name, status, judged: a number or NaN) as bars, and the two thresholds."""
    from matplotlib.figure import Figure

    if ax is None:
        ax = Figure(figsize=(6.4, 0.4 * len(candidates) + 1.2), layout="constrained").subplots()
    ax.barh(range(len(candidates)), candidates["judged"].fillna(0.0), color=candidates["status"].map(COLOURS))
    for place, (value, status) in enumerate(zip(candidates["judged"], candidates["status"], strict=True)):
        words = status if status == "failed" else f"{value:.3f}  {status}"
        ax.text(1.02, place, words, transform=ax.get_yaxis_transform(), va="center", fontsize=8)
    for threshold, style in ((THRESHOLDS.doubtful, ":"), (THRESHOLDS.stable, "--")):
        ax.axvline(threshold, color="0.2", linestyle=style, linewidth=1)
    ax.set_yticks(range(len(candidates)), candidates["name"].tolist(), fontsize=9)
    levels = f"doubtful from {THRESHOLDS.doubtful:.2f}, stable from {THRESHOLDS.stable:.2f}"
    ax.set(xlim=(0, 1), xlabel=f"agreement ({levels})")
    ax.invert_yaxis()
    return ax


def _draw_matrix(axes: "Axes", values: Array, colours: str, most: float, chosen: int) -> None:
    """Draw a matrix (R, R) of values between 0 and `most`, with an empty diagonal and a frame around one row."""
    from matplotlib.patches import Rectangle

    runs = len(values)
    edges = np.arange(runs + 1) - 0.5
    shown = np.where(np.eye(runs, dtype=bool), np.nan, values)
    mesh = axes.pcolormesh(edges, edges, shown, vmin=0, vmax=most, cmap=colours, edgecolors="white")
    axes.set(aspect="equal", facecolor="0.94", ylim=(runs - 0.5, -0.5))
    axes.set_xticks(range(0, runs, 1 + runs // 20))
    axes.set_yticks(range(0, runs, 1 + runs // 20))
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    digits, size = (3, 9) if runs <= 5 else (2, 8)
    for (r, s), value in np.ndenumerate(values):
        if r != s and runs <= MOST_ANNOTATED:
            ink = "white" if sum(mesh.to_rgba(np.asarray(value))[:3]) < 1.5 else "black"
            axes.text(s, r, f"{value:.{digits}f}", ha="center", va="center", color=ink, fontsize=size)
    if runs > 1:
        axes.add_patch(Rectangle((-0.5, chosen - 0.5), runs, 1, fill=False, linewidth=1.5, clip_on=False))
