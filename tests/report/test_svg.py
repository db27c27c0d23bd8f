import base64
import io
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from identifiable.report.svg import (
    MARKERS,
    MarkStyle,
    Point,
    Scale,
    Series,
    heat_map,
    mark,
    marker,
    plot,
    strip,
    strip_axis,
    tag,
)


def drawn(series, x=None):
    return str(plot(series, x or Scale(0, 10), Scale(0, 1), label="words", x_title="across", y_title="up"))


def places(drawing, css="line"):
    return [
        [tuple(map(float, place.split())) for place in path.split("L")]
        for path in re.findall(rf'<path d="M([^"]*)" class="{css}"', drawing)
    ]


def test_tags_escape_text_and_attributes():
    assert tag("g", "<", title='"') == '<g title="&#34;">&lt;</g>'
    assert tag("path", d=None, stroke_width=1.0) == '<path stroke-width="1"/>'


def test_points_are_drawn_at_their_values():
    points = [Point(0, 0.0), Point(5, 0.5, 0.25), Point(10, 1.0)]
    drawing = drawn([Series("a", MarkStyle(), points)])
    (line,) = places(drawing)
    np.testing.assert_allclose(np.diff(line, axis=0)[0], np.diff(line, axis=0)[1], atol=0.11)
    (((_, low), (_, high)),) = places(drawing, "bar")
    assert low - high == pytest.approx((line[0][1] - line[2][1]) / 2, abs=0.11)
    assert drawing.count('class="marker"') == 3
    assert 'aria-label="words"' in drawing


def test_series_are_shifted_sideways_but_published_ones_are_not():
    tags = ["method", "method", "published"]
    drawing = drawn([Series(f"{i}", MarkStyle(), [Point(5, 0.5), Point(6, 0.5)], name) for i, name in enumerate(tags)])
    first, second, published = (line[0][0] for line in places(drawing))
    assert first < second
    assert published == pytest.approx(40 + 10 + (360 - 40 - 12 - 20) / 2)
    assert len(set(re.findall(r'data-series="([^"]*)"', drawing))) == 3


def test_ticks_are_drawn_where_their_values_are():
    x = Scale.linear([0, 10])
    drawing = drawn([], x)
    found = re.findall(r'<text x="([\d.]+)"[^>]*text-anchor="middle" class="tick">([^<]*)<', drawing)
    assert [text for _, text in found] == [text for _, text in x.ticks]
    np.testing.assert_allclose(np.diff([float(at) for at, _ in found], 2), 0, atol=0.11)
    assert [text for _, text in re.findall(r'class="(name)">([^<]*)<', drawing)] == ["across", "up"]


def test_markers_are_centred_and_differ():
    assert len({str(marker(0, 0, i)) for i in range(len(MARKERS))}) == len(MARKERS)
    assert str(marker(0, 0, len(MARKERS))) == str(marker(0, 0, 0))
    assert "<title>words</title>" in marker(0, 0, 0, "words")
    for i in range(1, len(MARKERS)):
        points = np.array([tuple(map(float, p.split())) for p in re.findall(r"[-\d.]+ [-\d.]+", marker(20, 30, i))])
        assert np.abs(points - [20, 30]).max() < 1.4 * 3.6
        assert np.ptp(points, axis=0).min() > 3.6


def test_swatches_show_marker_and_line():
    line, point = (Series("a", MarkStyle("s3", 2), (), "published", line=one).swatch() for one in (True, False))
    assert str(marker(14, 7, 2)) in line
    assert 'class="series s3 dashed"' in line
    assert ('class="line"' in line, 'class="line"' in point) == (True, False)


def test_a_strip_has_its_value_runs_and_reference_on_one_scale():
    scale = Scale(0, 10)
    drawing = str(strip(scale, look=MarkStyle(), value=5, spread=1, others=[2, 8], reference=4, words="words"))
    lines = re.findall(r'<line x1="([\d.]+)%" x2="([\d.]+)%"[^>]*class="(\w+)"', drawing)
    expected = [(40, 40, "reference"), (20, 20, "run"), (80, 80, "run"), (40, 60, "bar")]
    assert [(float(a), float(b), css) for a, b, css in lines] == expected
    assert 'x="50.00%"' in drawing
    assert 'aria-label="words"' in drawing
    assert "marker" not in strip(scale, look=MarkStyle())


@pytest.mark.parametrize("scale", [Scale.linear([0, 10]), Scale.logarithmic([1, 1000])])
def test_an_axis_of_strips_writes_its_ends(scale):
    found = re.findall(r'x="([\d.]+)%"[^>]*>([^<]*)<', str(strip_axis(scale)))
    assert [found[0], found[-1]] == [("0.00", mark(scale.low)), ("100.00", mark(scale.high))]
    assert len(found) >= 3


def test_a_heat_map_is_white_at_0_and_blue_at_1():
    drawing = str(heat_map([[1, 0.5], [0, math.nan], [0.25, 2]], "words"))
    data = re.search(r"base64,([^\"]*)", drawing).group(1)
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"), dtype=int)
    side = 160 // 3
    assert image.shape == (3 * side, 2 * side, 3)
    middles = image[side // 2 :: side, side // 2 :: side]
    assert middles[0, 0].tolist() == middles[2, 1].tolist() == [0x08, 0x30, 0x6B]
    assert middles[1, 0].tolist() == middles[1, 1].tolist() == [0xF7, 0xFB, 0xFF]
    assert middles[1, 0].sum() > middles[2, 0].sum() > middles[0, 1].sum() > middles[0, 0].sum()
    assert 'alt="words"' in drawing
    assert f'width="{2 * side}"' in drawing


def test_scales_are_logarithmic_from_two_decades():
    found = {v: Scale.of(v).log for v in ((1, 101), (1, 99), (0, 1000), (0.001, 0.9), (5,))}
    assert [v for v, log in found.items() if log] == [(1, 101)]
    assert Scale.logarithmic([1, 100])(10) == pytest.approx(0.5)
    assert [Scale(0, 10)(v) for v in (-1, 5, 11)] == [0, 0.5, 1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), st.booleans())
def test_a_linear_scale_covers_its_values_with_few_ticks(values, tight):
    scale = Scale.linear(values, tight=tight)
    slack = 1e-6 * (scale.high - scale.low)
    assert all(scale.low - slack <= v <= scale.high + slack for v in values)
    assert 2 <= len(scale.ticks) <= 8
    assert (scale(scale.low), scale(scale.high)) == (0, 1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=8))
def test_a_logarithmic_scale_covers_its_values_in_order(values):
    scale = Scale.logarithmic(values)
    assert all(scale.low * 0.999 <= v <= scale.high * 1.001 for v in values)
    found = [scale(v) for v in sorted(values)]
    assert found == sorted(found)
    assert 0 <= found[0] <= found[-1] <= 1
    assert 1 <= len(scale.ticks) <= 8
