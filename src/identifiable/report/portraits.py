"""Drawings of latents: histograms, effects on columns and pixels, images along a latent, and their graph.

SVG in the colours of the page; images and maps of pixels are PNG.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from identifiable.report.svg import mark, png, tag

Image = NDArray[np.floating[Any]]

WIDE, HIGH = 320, 72  # size of a histogram
NAMES, LINE = 132, 18  # width of the names beside bars, height of a bar
LETTERS = 19  # longest name beside a bar
LESS, MORE = (178, 24, 43), (33, 102, 172)  # ends of the map of effects; ColorBrewer's RdBu
BETWEEN = 0.6  # grey between images, so that white and black ones end where they end
RADIUS, NODE = 110.0, 15.0  # radius of the circle of latents, and of a latent


def histogram(counts: Sequence[int], low: float, high: float, label: str) -> Markup:
    """Draw the square roots of counts in equal bins from low to high, so that a spike does not hide the others."""
    step, heights = WIDE / len(counts), HIGH * np.sqrt(np.asarray(counts) / max(counts))
    bars = [
        tag("rect", x=i * step, y=HIGH - h, width=step - 0.8, height=h, class_="fill")
        for i, h in enumerate(heights.tolist())
    ]
    ends = [
        tag("text", mark(float(f"{low:.2g}")), x=0, y=HIGH + 15),
        tag("text", mark(float(f"{high:.2g}")), x=WIDE, y=HIGH + 15, text_anchor="end"),
    ]
    base = tag("line", x1=0, x2=WIDE, y1=HIGH, y2=HIGH, class_="axis")
    return _svg([*bars, base, *ends], WIDE, HIGH + 18, label)


def bars(effects: Mapping[str, float], label: str) -> Markup:
    """Draw the effect of a latent on each column as a bar from a common zero; positive effects point right."""
    largest = max((abs(v) for v in effects.values()), default=0.0) or 1.0
    zero, unit = NAMES + (WIDE - NAMES) / 2, (WIDE - NAMES) / 2 / largest
    parts = []
    for i, (name, value) in enumerate(effects.items()):
        y = i * LINE
        short = name if len(name) <= LETTERS else name[: LETTERS - 1] + "…"
        title = tag("title", f"{name} {value:+.2f}")
        parts.append(tag("text", title, short, x=NAMES - 8, y=y + 13, text_anchor="end"))
        side = {"x": min(zero, zero + unit * value), "width": max(abs(unit * value), 0.5)}
        parts.append(tag("rect", y=y + 3, height=LINE - 6, class_="fill" if value >= 0 else "fill less", **side))
    height = LINE * len(effects)
    return _svg([*parts, tag("line", x1=zero, x2=zero, y1=0, y2=height, class_="axis")], WIDE, height, label)


def effect_map(effects: Image, label: str) -> Markup:
    """Draw effects on pixels (height, width), averaged over channels: negative red, positive blue."""
    values = effects.mean(-1) if effects.ndim == 3 else effects
    share = (values / (np.abs(values).max() or 1.0))[..., None]
    ends = np.where(share < 0, LESS, MORE)
    return png(255 + np.abs(share) * (ends - 255), label, "picture map")


def film(images: Image, label: str) -> Markup:
    """Draw images in [0, 1], (steps, height, width) or (steps, height, width, channels), side by side."""
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    apart = np.full((*images.shape[1:2], max(1, images.shape[2] // 14), *images.shape[3:]), BETWEEN)
    strip = [part for image in images for part in (apart, np.clip(image, 0, 1))][1:]
    return png(255 * np.concatenate(strip, axis=1), label, "picture film")


def circle(names: Sequence[str], edges: Sequence[Mapping[str, Any]], label: str) -> Markup:
    """Draw latents on a circle with their edges: arrows where the direction is known, wider for stronger edges."""
    middle = RADIUS + NODE + 2
    angles = [2 * math.pi * i / len(names) - math.pi / 2 for i in range(len(names))]
    places = {
        n: (middle + RADIUS * math.cos(a), middle + RADIUS * math.sin(a)) for n, a in zip(names, angles, strict=True)
    }
    parts = []
    for e in edges:
        (x1, y1), (x2, y2) = places[e["from"]], places[e["to"]]
        length = math.hypot(x2 - x1, y2 - y1)
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        tip, wide = NODE + 1, 1 + 4 * min(abs(e["strength"]), 1.0)
        x1, y1, x2, y2 = x1 + tip * dx, y1 + tip * dy, x2 - tip * dx, y2 - tip * dy
        words = tag("title", f"{e['from']} {e['mark']} {e['to']}, {e['strength']:+.2f}")
        parts.append(tag("line", words, x1=x1, y1=y1, x2=x2, y2=y2, class_="edge", stroke_width=wide))
        if e["mark"] == "->":
            left, right = (x2 - 9 * dx - 5 * dy, y2 - 9 * dy + 5 * dx), (x2 - 9 * dx + 5 * dy, y2 - 9 * dy - 5 * dx)
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((x2, y2), left, right))
            parts.append(tag("polygon", points=points, class_="tip"))
    for name, (x, y) in places.items():
        parts.append(tag("circle", cx=x, cy=y, r=NODE, class_="node"))
        parts.append(tag("text", name, x=x, y=y + 4, text_anchor="middle"))
    return _svg(parts, 2 * middle, 2 * middle, label)


def _svg(parts: Sequence[Markup], width: float, height: float, label: str) -> Markup:
    box = f"0 0 {width:g} {height:g}"
    return tag("svg", *parts, viewBox=box, width=width, height=height, class_="portrait", role="img", aria_label=label)
