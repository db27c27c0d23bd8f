import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgb

from identifiable.errors import DataError
from identifiable.report.plots import figures
from identifiable.report.plots.figures import GREY, PALETTE, Labelled


def lightness_and_hue(rgb):
    """CIE L*a*b* of linear RGB."""
    matrix = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
    f = np.cbrt(np.clip(rgb @ matrix.T / matrix.sum(axis=1), 1e-4, 1))
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def closest(points):
    return min(np.linalg.norm(a - b) for i, a in enumerate(points) for b in points[:i])


@pytest.mark.parametrize("k", [2, 5, 8, 12])
def test_colours_differ_in_grey_and_for_the_colour_blind(k):
    srgb = np.array([to_rgb(c) for c in figures.colours(k)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    grey = lightness_and_hue(linear)[:, :1]
    assert closest(grey) > 0.9 * (80 - 26) / 11 * (11 // (k - 1))  # 11 steps of lightness between k colours
    assert grey.max() < 82  # visible on white
    # Machado, Oliveira & Fernandes (2009), severity 1: red-blind, green-blind, blue-blind
    red = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    green = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    blue = [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    for missing in (red, green, blue):
        assert closest(lightness_and_hue(np.clip(linear @ np.array(missing).T, 0, 1))) > 13
    assert closest(lightness_and_hue(linear)) > 30


def test_the_most_frequent_labels_have_colours_and_the_others_are_grey_below():
    values = np.repeat(["a", "b", "c", "d"], [10, 50, 40, 5])
    found = Labelled.of(values, 2)
    assert found.unique[found.kept].tolist() == ["b", "c"]
    assert found.colours.tolist() == [GREY, PALETTE[0], PALETTE[-1], GREY]
    figure, (axis,) = figures.make_panels(1, 1, (2, 2))
    points = np.arange(210.0).reshape(105, 2)
    found.scatter(axis, points, values)
    drawn = [to_hex(colour) for colour in axis.collections[0].get_facecolors()]
    np.testing.assert_array_equal(axis.collections[0].get_offsets()[15:], points[10:100])
    assert drawn == [to_hex(GREY)] * 15 + [PALETTE[0]] * 50 + [PALETTE[-1]] * 40
    width = figure.get_figwidth()
    found.legend(figure, ["A", "B", "C", "D"], "u", "1 sd")
    assert [text.get_text() for text in figure.legends[0].texts] == ["B", "C", "2 others", "1 sd"]
    assert figure.get_figwidth() == pytest.approx(width + 8 * figures.LETTER)


@pytest.mark.parametrize("share", [False, True])
def test_panels_fill_rows_and_only_outer_ones_have_tick_labels(share):
    figure, axes = figures.make_panels(5, 3, (2, 1), (0.5, 0.25), share=share)
    assert figure.axes == axes
    assert figure.get_size_inches().tolist() == [6.5, 2.25]
    below, left = ([axis.xaxis.get_tick_params()[side] for axis in axes] for side in ("labelbottom", "labeltop"))
    assert below == ([False, False, True, True, True] if share else [True] * 5)
    assert not any(left)
    axes[0].set_xlim(3, 4)
    assert (axes[-1].get_xlim() == (3, 4)) == share


def test_rows_of_panels_are_about_as_long():
    assert [figures.columns_for(count, 5) for count in (1, 5, 6, 9, 11)] == [1, 5, 3, 5, 4]


def test_captions_are_wrapped_and_enlarge_the_figure():
    figure, (axis,) = figures.make_panels(1, 1, (2, 2))
    height = figure.get_figheight()
    figures.add_caption(figure, "")
    assert figure.get_figheight() == height
    figures.add_caption(figure, "first\n" + "word " * 20)
    lines = figure.get_supxlabel().split("\n")
    assert lines[0] == "first"
    assert len(lines) > 2
    assert max(map(len, lines)) <= 13 * figure.get_figwidth()
    assert figure.get_figheight() == pytest.approx(height + figures.LINE * len(lines))
    figures.label(axis, x="a", y="b", title="c")
    figures.label(axis, x=None)
    assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_title()) == ("a", "b", "c")
    figures.open_frame(axis)
    assert [name for name, spine in axis.spines.items() if spine.get_visible()] == ["left", "bottom"]
    figures.style(axis, ticks=3)
    assert len(axis.get_xticks()) <= 5  # one of them outside


@pytest.mark.parametrize("covariance", [[[1, 0.7], [0.7, 2]], [[1, 0], [0, 0.25]], [[1, -0.5], [-0.5, 1]]])
def test_an_ellipse_is_at_its_number_of_standard_deviations(covariance):
    _, (axis,) = figures.make_panels(1, 1, (2, 2))
    figures.draw_ellipse(axis, np.array([3.0, -1.0]), np.array(covariance), "red", deviations=2)
    off = axis.lines[0].get_xydata() - [3, -1]
    np.testing.assert_allclose(np.einsum("ij,ij->i", off, np.linalg.solve(covariance, off.T).T), 4)


def test_arguments_are_checked():
    figures.check_at_least(2, steps=2, rows=np.int64(5))
    for wrong in (1, 2.5, None):
        with pytest.raises(DataError, match="steps"):
            figures.check_at_least(2, rows=5, steps=wrong)
    assert [figures.are_indices(v, 3) for v in ([0, 2], [], [0, 0], [3], [-1], [1.0], ["a"])] == [True] * 2 + [
        False
    ] * 5
    assert figures.names_of_latents(None, 2) == ["latent 0", "latent 1"]
    assert figures.names_of_latents([1, "b"], 2) == ["1", "b"]
    with pytest.raises(DataError, match="names"):
        figures.names_of_latents(["a"], 2)
    assert figures.listed(range(7)) == "0, 1, 2, 3, 4, and 2 more"


@pytest.mark.parametrize(
    ("u", "kind", "texts"),
    [
        ([0.0, 2.0], "f", ["0", "2"]),
        (pd.Series(["b", "a", "b"]), "U", ["a", "b"]),
        (np.array([1, 0, 10, 2], dtype=object), "i", ["0", "1", "2", "10"]),
        ([0.5, 0.123456, 1.0], "f", ["0.1235", "0.5", "1"]),
    ],
)
def test_labels_keep_their_type(u, kind, texts):
    found = figures.one_per_row("u", u)
    assert found.dtype.kind == kind
    assert figures.as_text(np.unique(found)) == texts
    first, second = figures.of_one_type([found, found[:2].astype(str)])
    assert first.dtype == second.dtype
    assert (len(first), len(second)) == (len(u), 2)


@pytest.mark.parametrize("u", [np.zeros((3, 2)), [None, 1, 2], [1.0, np.inf], ["a", None], 3.0])
def test_labels_must_be_one_per_row(u):
    with pytest.raises(DataError, match="name"):
        figures.one_per_row("name", u)
