import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from identifiable.report.portraits import LESS, MORE, bars, circle, effect_map, film, histogram


def attributes(drawing, name):
    return [dict(re.findall(r'([\w-]+)="([^"]*)"', text)) for text in re.findall(f"<{name} [^>]*>", str(drawing))]


def pixels(drawing):
    data = re.search(r"base64,([^\"]*)", str(drawing)).group(1)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_heights_of_a_histogram_are_square_roots_of_counts():
    drawing = histogram([4, 0, 16], -1.5, 2.5, "words")
    heights = [float(r["height"]) for r in attributes(drawing, "rect")]
    assert heights == pytest.approx([36, 0, 72])
    assert re.findall(r">([^<]+)</text>", str(drawing)) == ["−1.5", "2.5"]
    assert 'aria-label="words"' in str(drawing)


def test_bars_start_at_a_common_zero():
    drawing = bars({"grows": 2.0, "falls": -1.0, "x" * 30: 0.5}, "label")
    zero = float(attributes(drawing, "line")[0]["x1"])
    rects = attributes(drawing, "rect")
    left, width = (np.array([float(r[key]) for r in rects]) for key in ("x", "width"))
    np.testing.assert_allclose(left, [zero, zero - width[1], zero], atol=0.1)
    np.testing.assert_allclose(width / width[0], [1, 0.5, 0.25], atol=1e-2)
    assert [r["class"] for r in rects] == ["fill", "fill less", "fill"]
    assert "x" * 18 + "…" in drawing


def test_effects_on_pixels_are_red_white_and_blue():
    drawing = effect_map(np.array([[2.0, -2.0, 0.0, 1.0]]), "words")
    drawn = pixels(drawing)
    assert drawn[0, :3].tolist() == [list(MORE), list(LESS), [255] * 3]
    np.testing.assert_allclose(drawn[0, 3], (np.array(MORE) + 255) / 2, atol=1)
    np.testing.assert_array_equal(
        pixels(effect_map(np.full((2, 2, 3), [-2.0, 1.0, -2.0]), "")), np.full((2, 2, 3), LESS)
    )


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 1), (4, 4, 3)])
def test_a_film_shows_images_side_by_side(shape):
    images = np.random.default_rng(0).uniform(-0.2, 1.2, size=(3, *shape))
    drawn = pixels(film(images, "words"))
    assert drawn.shape == (4, 14, *(shape[2:] if shape[2:] == (3,) else ()))
    expected = np.round(255 * np.clip(images, 0, 1)).reshape(3, *drawn.shape[:1], 4, *drawn.shape[2:])
    for i in range(3):
        np.testing.assert_array_equal(drawn[:, 5 * i : 5 * i + 4], expected[i])


def test_edges_join_their_latents():
    edges = [{"from": "z0", "to": "z1", "mark": "->", "strength": 0.5}]
    edges += [{"from": "z1", "to": "z2", "mark": "-", "strength": -2.0}]
    drawing = circle(["z0", "z1", "z2"], edges, "words")
    nodes = [np.array([float(c["cx"]), float(c["cy"])]) for c in attributes(drawing, "circle")]
    lines = attributes(drawing, "line")
    for line, (a, b) in zip(lines, [(0, 1), (1, 2)], strict=True):
        start, end = (np.array([float(line[f"x{i}"]), float(line[f"y{i}"])]) for i in (1, 2))
        away = (nodes[b] - nodes[a]) / np.linalg.norm(nodes[b] - nodes[a])
        np.testing.assert_allclose(start, nodes[a] + 16 * away, atol=0.11)
        np.testing.assert_allclose(end, nodes[b] - 16 * away, atol=0.11)
    assert [float(line["stroke-width"]) for line in lines] == [3, 5]
    (tip,) = attributes(drawing, "polygon")
    corners = np.array([[float(v) for v in point.split(",")] for point in tip["points"].split()])
    np.testing.assert_allclose(np.linalg.norm(corners - corners[0], axis=1), [0, 106**0.5, 106**0.5], atol=0.2)
