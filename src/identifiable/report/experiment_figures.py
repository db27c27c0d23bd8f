"""The figures of an experiment's page."""

import base64
import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from identifiable.experiments.recipe import Record
from identifiable.experiments.summary import KINDS, as_printed, goodness, kind_of, value_of
from identifiable.report.html import Section, render
from identifiable.report.svg import MarkStyle, Point, Scale, Series, heat_map, mark, plot, tag
from identifiable.report.sweep import Sweep, label_of, natural
from identifiable.report.table import number, spread

MOST_HEAT_MAPS = 24
MOST_SCATTERS = 6
MIN_RESTARTS = 5  # points of a scatter plot
PNG = b"\x89PNG\r\n\x1a\n"  # the first bytes of a file
LOG_FROM = 8  # ratio of the largest to the smallest value above which an axis is logarithmic


@dataclass(frozen=True)
class Panel:
    """A drawing with a heading and a caption."""

    title: str
    drawing: Markup
    words: str = ""


# -- the main metric against each parameter -----------------------------------------------


def panels(sweep: Sweep) -> Section | None:
    """Draw the main metric against each parameter of the recipe, with all others at their most common value."""
    drawn = [panel for axis in sweep.recipe.axes if (panel := _panel(sweep, axis)) is not None]
    if not drawn:
        return None
    legend = [Series(as_printed(m), sweep.mark_style(kind, m), (), kind) for kind, m in sweep.columns]
    lead = (
        f"{label_of(sweep.main)}, mean and sd over seeds, with all other parameters at their most common value. "
        "Dashed: published values. Select names in the legend to highlight them."
    )
    return Section("parameters", "Effect of each parameter", render("plots.html", legend=legend, panels=drawn), lead)


def _panel(sweep: Sweep, axis: str) -> Panel | None:
    values = {r.run.setting: r.run.values for r in sweep.runs}
    usual = usual_values(sweep, values)
    others = [name for name in sweep.recipe.axes if name != axis]
    chosen = [s for s in sweep.settings if axis in values[s] and all(values[s].get(o) == usual[o] for o in others)]
    ordered = sorted({repr(values[s][axis]): values[s][axis] for s in chosen}.values(), key=natural)
    if len(ordered) < 2:
        return None
    position, x = _positions(ordered)
    series = _all_series(sweep, {s: position[repr(values[s][axis])] for s in chosen})
    if not series:
        return None
    main = label_of(sweep.main)
    names = ", ".join(one.name for one in series if one.tag == "method")
    label = f"{main} of {names} against {axis}, from {ordered[0]} to {ordered[-1]}; the numbers are in the table."
    fixed = ", ".join(f"{o} = {usual[o]}" for o in others if usual[o] is not None)
    return Panel(axis, plot(series, x, sweep.scale, label=label, x_title=axis, y_title=main), fixed)


def usual_values(sweep: Sweep, values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the most common value of each parameter over the settings; the first one of a tie."""
    found = {}
    for axis in sweep.recipe.axes:
        every = [values[s].get(axis) for s in sweep.settings]
        counts = Counter(map(repr, every))
        found[axis] = next((v for v in every if counts[repr(v)] == max(counts.values())), None)
    return found


def _positions(ordered: Sequence[Any]) -> tuple[dict[str, float], Scale]:
    """Return the position of each value: numbers by size or its logarithm, all others at equal distances."""
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in ordered)
    at = [float(v) for v in (ordered if numeric else range(len(ordered)))]
    texts = [mark(v) if numeric else _cut(str(v)) for v in ordered]
    log = numeric and at[0] > 0 and at[-1] >= LOG_FROM * at[0]
    scale = Scale(at[0], at[-1], log, tuple(zip(at, texts, strict=True)))
    return dict(zip(map(repr, ordered), at, strict=True)), scale


def _cut(text: str, most: int = 16) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _all_series(sweep: Sweep, at: Mapping[str, float]) -> list[Series]:
    """Return a series per method, baselines first, so that methods are drawn on top."""
    series = []
    for kind, method in sorted(sweep.columns, key=lambda column: -KINDS.index(column[0])):
        points = []
        for row in sweep.rows:
            mean, sd, setting = row[f"{sweep.main}_mean"], row[f"{sweep.main}_sd"], row["setting"]
            if (row["kind"], row["method"]) == (kind, method) and setting in at and math.isfinite(mean):
                published = " as published" if kind == "published" else ""
                words = f"{as_printed(method)}{published}, {setting}: {spread(mean, sd, 3)}"
                points.append(Point(at[setting], mean, sd, words))
        if points:
            points.sort(key=lambda point: point.x)
            series.append(Series(as_printed(method), sweep.mark_style(kind, method), points, kind))
    return series


# -- heat maps ----------------------------------------------------------------------------


def correlations(sweep: Sweep) -> Section | None:
    """Draw |correlation| of true and matched latents for the first seed of each setting."""
    lead = (
        "|Correlation| of true latents (rows) with estimated latents (columns, in matched order). A perfect recovery "
        "is a dark diagonal on white."
    )
    title = "Correlations with the true latents"
    return _heat_maps(sweep, Section("correlations", title, Markup(), lead), "correlation", "|correlation|")


def blocks(sweep: Sweep) -> Section | None:
    """Draw R² of each estimated latent on each block of true ones for the first seed of each setting."""
    lead = (
        "R² of each estimated latent (rows, in matched order) given each block of true latents (columns), such as the "
        "position of a ball. In a perfect recovery each row has one dark field."
    )
    return _heat_maps(sweep, Section("blocks", "Latents and blocks", Markup(), lead), "blocks", "R²")


def _heat_maps(sweep: Sweep, section: Section, name: str, quantity: str) -> Section | None:
    """Draw the tables of this name in the first runs of each setting, in a section without a body."""
    ranked: list[tuple[int, Record, NDArray[np.float64]]] = []
    for setting in sweep.settings:
        firsts = [run for method in sweep.methods for run in sweep.of(setting, method)[:1]]
        firsts.sort(key=lambda run: goodness(value_of(run, sweep.main), sweep.main), reverse=True)
        tables = [(run, table) for run in firsts if (table := _table(run.arrays.get(name))) is not None]
        if name == "correlation":  # of baselines, the numbers are enough
            tables = [(run, table) for run, table in tables if kind_of(run.run.method) == "method"]
        ranked += [(rank, run, table) for rank, (run, table) in enumerate(tables)]
    if not ranked:
        return None
    # The best method of every setting, then the second best of every setting, and so on: every setting is shown.
    picked = sorted(ranked, key=lambda pick: pick[0])[:MOST_HEAT_MAPS]
    picked.sort(key=lambda pick: sweep.settings.index(pick[1].run.setting))
    drawn = [_heat(sweep, run, table, name) for _, run, table in picked]
    count = f"{len(drawn)} of {len(ranked)}" if len(drawn) < len(ranked) else f"{len(drawn)}"
    lead = section.lead
    if len(drawn) < len(ranked):
        lead += " The best method of every setting is shown, then the second best, and so on."
    title = f"Heat maps of the first seed ({count})"
    return replace(section, body=render("gallery.html", title=title, panels=drawn, quantity=quantity), lead=lead)


def _table(table: Any) -> NDArray[np.float64] | None:
    """Return a 2-D array of numbers, or None if the value is not one."""
    try:
        array = np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == 2 and 0 not in array.shape else None


def _heat(sweep: Sweep, run: Record, table: NDArray[np.float64], name: str) -> Panel:
    values = np.nan_to_num(table)
    if name == "correlation":
        matched = np.arange(min(values.shape))
        off = values.copy()
        off[matched, matched] = 0
        latents = f"{values.shape[0]} true against {values.shape[1]} estimated latents"
        found = f"mean {values[matched, matched].mean():.2f} on the diagonal, up to {off.max():.2f} off it"
    else:
        latents = f"{values.shape[0]} estimated latents against {values.shape[1]} blocks"
        found = f"the largest of each latent {values.max(1).mean():.2f} on average"
    alt = f"{latents}, {run.run.method} on {run.run.setting}: {found}"
    words = f"{run.run.method}, {label_of(sweep.main)} {number(value_of(run, sweep.main), 3)}"
    return Panel(run.run.setting, heat_map(values, alt), words)


# -- images --------------------------------------------------------------------------------

PICTURES = {
    "frames": "new images above their reconstructions from the latents",
    "traversals": "a row per latent, from its 2 % to its 98 % quantile, with the others at their medians",
}


def images(sweep: Sweep) -> Section | None:
    """Show images, reconstructions and traversals of the first seed of each setting."""
    drawn = []
    for setting in sweep.settings:
        for run in (run for method in sweep.methods for run in sweep.of(setting, method)[:1]):
            for name, words in PICTURES.items():
                if (size := png_size(run.arrays.get(name))) is not None:
                    alt = f"{run.run.method} on {setting}: {words}"
                    source = f"data:image/png;base64,{run.arrays[name]}"
                    picture = tag("img", src=source, alt=alt, width=size[0], height=size[1], class_="picture sheet")
                    drawn.append(Panel(f"{setting}, {run.run.method}: {name}", picture))
    if not drawn:
        return None
    lead = (
        f"{'. '.join(f'{name.capitalize()}: {words}' for name, words in PICTURES.items())}. First seed of each method."
    )
    return Section("images", "Images", render("sheets.html", panels=drawn), lead)


def png_size(text: Any) -> tuple[int, int] | None:
    """Return width and height of a PNG in base64; None if the text is not one."""
    try:
        content = base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        return None
    if not content.startswith(PNG) or len(content) < 24:
        return None
    width, height = struct.unpack(">II", content[16:24])
    return width, height


# -- restarts ------------------------------------------------------------------------------


def restarts(sweep: Sweep) -> Section | None:
    """Draw the label-free score of each restart against its recovery of the true latents."""
    drawn = []
    for setting in sweep.settings:
        for method in sweep.methods:
            pairs = {r.run.seed: pair for r in sweep.of(setting, method) if (pair := _pairs(r)) is not None}
            if pairs:
                drawn.append(_scatter(sweep, setting, method, pairs))
    if not drawn:
        return None
    lead = (
        "Whether the label-free score selects good restarts. One point per restart of the first seed; r is the "
        "correlation of score and recovery for each seed."
    )
    if len(drawn) > MOST_SCATTERS:
        lead += f" The first {MOST_SCATTERS} of {len(drawn)} are shown."
    body = render("plots.html", legend=(), panels=drawn[:MOST_SCATTERS])
    return Section("restarts", "Score and recovery of restarts", body, lead)


def _pairs(run: Record) -> NDArray[np.float64] | None:
    """Return score and recovery of the restarts (R, 2) where both are finite; None if there are too few."""
    both = _table([run.arrays.get("scores"), run.arrays.get("restarts")])
    if both is None:
        return None
    pairs = both.T[np.isfinite(both).all(0)]
    return pairs if len(pairs) >= MIN_RESTARTS else None


def correlation(pairs: NDArray[np.float64]) -> float:
    """Return the correlation of two columns; nan if one is constant."""
    if (np.ptp(pairs, axis=0) == 0).any():
        return math.nan
    return float(np.asarray(np.corrcoef(pairs.T))[0, 1])


def _scatter(sweep: Sweep, setting: str, method: str, pairs: Mapping[int, NDArray[np.float64]]) -> Panel:
    seed, first = next(iter(pairs.items()))
    points = [
        Point(score, recovery, words=f"score {score:.4g}, recovery {recovery:.3f}")
        for score, recovery in first.tolist()
    ]
    look = MarkStyle(sweep.mark_style(kind_of(method), method).shade, 0)
    r = ", ".join(number(correlation(found), 2) for found in pairs.values())
    label = f"Score against recovery of {len(first)} restarts of {method} on {setting}, seed {seed}: r = {r}"
    series = [Series(method, look, points, kind_of(method), line=False)]
    x, y = (Scale.linear(column, most=5, tight=True) for column in first.T.tolist())
    drawing = plot(series, x, y, label=label, x_title="score", y_title=label_of(sweep.main))
    return Panel(f"{setting}, {method}", drawing, f"r = {r}")
