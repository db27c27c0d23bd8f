"""Drawings as SVG: scales, line plots, scatter plots and strips; images and heat maps as PNG.

Colours come from the page's style (`.s0`, `.s1`, ...), so a drawing follows the light or dark scheme.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import ArrayLike, NDArray

from identifiable import files

HEAT_PIXELS = 160  # of the longer side of a heat map
POLYGONS: dict[str, tuple[tuple[float, float], ...]] = {  # corners, in units of a marker's size
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "triangle": ((-1.1, 1), (0, -1.2), (1.1, 1)),
    "diamond": ((-1.3, 0), (0, -1.3), (1.3, 0), (0, 1.3)),
    "down": ((-1.1, -1), (0, 1.2), (1.1, -1)),
}
STROKES: dict[str, tuple[tuple[float, float], ...]] = {  # ends of lines through the centre
    "cross": ((1, 1), (1, -1)),
    "plus": ((1.2, 0), (0, 1.2)),
    "star": ((0, 1.3), (1.126, 0.65), (1.126, -0.65)),
}
MARKERS = ("disc", *POLYGONS, *STROKES)


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """Build an element; children and attributes are escaped, `stroke_width` is `stroke-width`, None is left out.

    Examples
    --------
    >>> tag("text", "a < b", x=1.25, class_="tick", fill=None)
    Markup('<text x="1.2" class="tick">a &lt; b</text>')
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            text = _short(value) if isinstance(value, float) else escape(value)
            words.append(f'{key.rstrip("_").replace("_", "-")}="{text}"')
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<" + " ".join(words) + (f">{inside}</{name}>" if children else "/>"))


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def mark(value: float) -> str:
    """Write a value beside an axis.

    Examples
    --------
    >>> mark(0.5), mark(-2.0), mark(100_000.0)
    ('0.5', '−2', '100k')
    """
    return (f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:g}").replace("-", "−")


@dataclass(frozen=True)
class Scale:
    """A map from [low, high] to [0, 1], linear or logarithmic, with its ticks."""

    low: float
    high: float
    log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()

    def __call__(self, value: float) -> float:
        """Return the position of a value in [0, 1]; values beyond an end are clipped to it."""
        if self.log:
            low, high, value = math.log(self.low), math.log(self.high), math.log(max(value, self.low))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low)))

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Cover the values; on a logarithmic scale if they are positive, span two decades and exceed 1."""
        found = [v for v in values if math.isfinite(v)]
        wide = len(found) > 1 and min(found) > 0 and max(found) > max(1, 100 * min(found))
        return cls.logarithmic(found) if wide else cls.linear(found)

    @classmethod
    def linear(cls, values: Iterable[float], most: int = 6, *, tight: bool = False) -> Self:
        """Cover the values with round numbers: [0, 1] if all of them lie in it, otherwise from 0 if that is near.

        A tight scale is not extended to 0 or 1.

        Examples
        --------
        >>> Scale.linear([0.3, 0.9]).ticks[-1], Scale.linear([3, 18]).ticks
        ((1.0, '1'), ((0.0, '0'), (5.0, '5'), (10.0, '10'), (15.0, '15'), (20.0, '20')))
        """
        from matplotlib.ticker import MaxNLocator

        found = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
        low, high = min(found), max(found)
        if not tight and low >= 0 and high <= 1:
            low, high = 0.0, 1.0
        elif not tight and 0 < low < 0.5 * high:
            low = 0.0
        if high - low <= max(1e-12 * max(abs(low), abs(high)), 1e-300):
            low, high = low - 0.5, high + 0.5
        marks = [float(f"{m:.12g}") for m in MaxNLocator(most - 1, steps=[1, 2, 5, 10]).tick_values(low, high)]
        return cls(marks[0], marks[-1], False, tuple((m, mark(m)) for m in marks))

    @classmethod
    def logarithmic(cls, values: Iterable[float]) -> Self:
        """Cover positive values between two of 1, 2, 5, 10, ...; ticks at powers of ten if there are enough of them.

        Examples
        --------
        >>> Scale.logarithmic([0.03, 700]).low, [text for _, text in Scale.logarithmic([0.03, 700]).ticks]
        (0.02, ['0.1', '1', '10', '100', '1000'])
        """
        found = [v for v in values if math.isfinite(v) and v > 0] or [1.0, 10.0]
        first, last = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
        steps = [float(f"{m}e{p}") for p in range(first - 1, last + 2) for m in (1, 2, 5)]
        low = max(s for s in steps if s <= min(found))
        high = min((s for s in steps if s >= max(found) and s > low), default=2 * low)
        powers = [10.0**p for p in range(first, last + 1) if low <= 10.0**p <= high]
        marks = powers[:: 1 + len(powers) // 7] if len(powers) > 2 else [s for s in steps if low <= s <= high]
        return cls(low, high, True, tuple((m, mark(m)) for m in marks))


@dataclass(frozen=True)
class Point:
    """A point, the half-length of its error bar (nan for none) and its tooltip."""

    x: float
    y: float
    spread: float = math.nan
    words: str = ""


@dataclass(frozen=True)
class MarkStyle:
    """How a method is drawn in all plots: the class of its colour and the index of its marker."""

    shade: str = "s0"
    marker: int = 0


@dataclass(frozen=True)
class Series:
    """Points of one method; `tag` is "method", "reference", "baseline" or "published" (drawn dashed)."""

    name: str
    look: MarkStyle
    points: Sequence[Point]
    tag: str = "method"
    line: bool = True

    @property
    def key(self) -> str:
        """The unique name of the series."""
        return f"{self.tag} {self.name}"

    @property
    def css(self) -> str:
        """The classes that set its colour and dashes."""
        return f"series {self.look.shade}" + {"published": " dashed", "baseline": " thin", "reference": " thin"}.get(
            self.tag, ""
        )

    def swatch(self) -> Markup:
        """Draw the series as it appears in a legend."""
        line = tag("path", d="M1 7H27", class_="line") if self.line else ""
        drawn = tag("g", line, marker(14, 7, self.look.marker), class_=self.css)
        return tag("svg", drawn, viewBox="0 0 28 14", width=28, height=14, aria_hidden="true")


def marker(x: float, y: float, style: int, words: str = "", *, size: float = 3.6) -> Markup:
    """Draw the marker of a style; the words appear as its tooltip."""

    def at(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(x + size * u, y + size * v) for u, v in points]

    name = MARKERS[style % len(MARKERS)]
    if name == "disc":
        d = f"M{_short(x - size)} {_short(y)}a{size} {size} 0 1 0 {2 * size} 0a{size} {size} 0 1 0 {-2 * size} 0z"
    elif name in POLYGONS:
        d = _path(at(POLYGONS[name]), closed=True)
    else:
        d = "".join(_path(at([(-u, -v), (u, v)])) for u, v in STROKES[name])
    return tag("path", *([tag("title", words)] if words else []), d=d, class_="marker")


def _path(points: Sequence[tuple[float, float]], *, closed: bool = False) -> str:
    return "M" + "L".join(f"{_short(x)} {_short(y)}" for x, y in points) + ("z" if closed else "")


WIDTH, HEIGHT = 360.0, 276.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 12.0, 28.0, 44.0


def plot(series: Sequence[Series], x: Scale, y: Scale, *, label: str, x_title: str, y_title: str) -> Markup:
    """Draw series on common axes; `label` describes the plot in words."""

    def across(value: float) -> float:
        return LEFT + 10 + x(value) * (WIDTH - LEFT - RIGHT - 20)

    def down(value: float) -> float:
        return HEIGHT - BOTTOM - y(value) * (HEIGHT - TOP - BOTTOM)

    floor, parts = HEIGHT - BOTTOM, []
    for value, text in y.ticks:
        parts.append(tag("path", d=_path([(LEFT, down(value)), (WIDTH - RIGHT, down(value))]), class_="grid"))
        parts.append(tag("text", text, x=LEFT - 7, y=down(value) + 4, text_anchor="end", class_="tick"))
    for value, text in x.ticks:
        parts.append(tag("path", d=_path([(across(value), floor), (across(value), floor + 4)]), class_="axis"))
        parts.append(tag("text", text, x=across(value), y=floor + 18, text_anchor="middle", class_="tick"))
    parts.append(tag("path", d=_path([(LEFT, floor), (WIDTH - RIGHT, floor)]), class_="axis"))
    parts.append(tag("text", x_title, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, text_anchor="middle", class_="name"))
    parts.append(tag("text", y_title, x=2, y=12, class_="name"))
    lines = [one for one in series if one.line]
    for one in series:
        aside = _dodge(lines.index(one), len(lines)) if one.line and one.tag != "published" else 0.0
        parts.append(_drawn(one, [(across(p.x) + aside, down(p.y)) for p in one.points], down))
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}", role="img", aria_label=label, class_="plot")


def _dodge(i: int, count: int) -> float:
    """Shift a series sideways, so that error bars do not overlap."""
    return (i - (count - 1) / 2) * min(2.5, 16 / max(count, 1))


def _drawn(one: Series, places: list[tuple[float, float]], down: Callable[[float], float]) -> Markup:
    parts: list[Markup] = []
    if one.line and len(places) > 1:
        parts.append(tag("path", d=_path(places), class_="line"))
    for point, (x, y) in zip(one.points, places, strict=True):
        if math.isfinite(point.spread) and point.spread > 0:
            ends = [(x, down(point.y - point.spread)), (x, down(point.y + point.spread))]
            parts.append(tag("path", d=_path(ends), class_="bar"))
        parts.append(marker(x, y, one.look.marker, point.words))
    return tag("g", *parts, class_=one.css, data_tag=one.tag, data_series=one.key)


def strip(
    scale: Scale,
    *,
    look: MarkStyle,
    value: float = math.nan,
    spread: float = math.nan,
    others: Sequence[float] = (),
    reference: float = math.nan,
    words: str = "",
) -> Markup:
    """Draw a value with its error bar, single runs and a reference on a line as wide as its column."""
    middle = 7 if len(others) else 10
    parts = [tag("line", x1="0", x2="100%", y1=middle, y2=middle, class_="grid")]
    if math.isfinite(reference):
        at = _percent(scale(reference))
        parts.append(tag("line", x1=at, x2=at, y1=2, y2=18, class_="reference"))
    for at in (_percent(scale(v)) for v in others if math.isfinite(v)):
        parts.append(tag("line", x1=at, x2=at, y1=13, y2=18, class_="run"))
    if math.isfinite(value):
        if math.isfinite(spread):
            ends = {"x1": _percent(scale(value - spread)), "x2": _percent(scale(value + spread))}
            parts.append(tag("line", **ends, y1=middle, y2=middle, class_="bar"))
        place = tag("svg", marker(0, 0, look.marker, words), x=_percent(scale(value)), y=middle, overflow="visible")
        parts.append(place)
    hidden = {"role": "img", "aria_label": words} if words else {"aria_hidden": "true"}
    return tag("svg", *parts, height=20, class_=f"strip {look.shade}", **hidden)


def strip_axis(scale: Scale) -> Markup:
    """Draw the scale of a column of strips."""
    between = 0.5 * (scale.low + scale.high)
    marks = [v for v, _ in scale.ticks][:: 1 + len(scale.ticks) // 5] if scale.log else (scale.low, between, scale.high)
    parts = [tag("text", mark(v), x=_percent(scale(v)), y=12, text_anchor="middle") for v in marks]
    return tag("svg", *parts, height=16, class_="strip", aria_hidden="true")


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}%"


def heat_map(table: ArrayLike, alt: str) -> Markup:
    """Draw a table of numbers in [0, 1], from white to dark blue; nan is drawn as 0."""
    from matplotlib import colormaps

    values = np.clip(np.nan_to_num(np.asarray(table, dtype=np.float64), nan=0.0), 0, 1)
    side = max(1, HEAT_PIXELS // max(values.shape))
    pixels = 255 * colormaps["Blues"](values)[..., :3]  # as in `plot_recovery`
    return png(pixels.repeat(side, axis=0).repeat(side, axis=1), alt, "heat")


def png(pixels: NDArray[np.floating[Any]], alt: str, css: str) -> Markup:
    """Embed pixels (height, width) or (height, width, 3), from 0 to 255, as an image with these classes."""
    height, width = pixels.shape[:2]
    return tag("img", src=f"data:image/png;base64,{files.png(pixels)}", alt=alt, width=width, height=height, class_=css)
