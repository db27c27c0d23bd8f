import numpy as np
import pytest
from matplotlib.colors import to_hex

from identifiable.report.plots.drawing import COLOURED, FRAME, draw_curves, draw_images, draw_profiles

from .fake_models import caption_of, fits, images_of, names_of

RNG = np.random.default_rng(0)


def test_images_are_drawn_in_rows_with_frames_and_heads():
    rows = [RNG.uniform(size=(4, 2, 3)), RNG.uniform(size=(2, 2, 3))]
    figure = draw_images(rows, ["a", "b"], "A caption.", heads=("x", "y"), framed=[3, 0])
    for drawn, given in zip(images_of(figure), rows, strict=True):
        np.testing.assert_array_equal(drawn, given)
    assert names_of(figure) == ["a", "b"]
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["x", "y"] * 2
    places = [image.get_extent() for image in figure.axes[0].images]
    frames = figure.axes[0].patches
    assert [frame.get_xy() for frame in frames] == [(places[i][0], places[i][3]) for i in (3, 4)]
    assert to_hex(frames[0].get_edgecolor()) == FRAME
    gaps = np.diff([place[0] for place in places[:4]])
    assert gaps[0] == pytest.approx(gaps[2])
    assert gaps[1] > gaps[0]  # pairs stand close together
    assert caption_of(figure) == "A caption."


def test_values_outside_0_and_1_are_clipped_and_counted():
    figure = draw_images([np.full((2, 2, 2), 1.5), np.zeros((2, 2, 2))], ["a", "b"], "")
    assert images_of(figure)[0][0].max() == 1
    assert "50 %" in caption_of(figure)


@pytest.mark.parametrize("columns", [["p", "q", "r"], None])
def test_profiles_are_lines_with_dashed_partners(columns):
    groups, partners = (list(RNG.normal(size=(2, 4, 3))) for _ in range(2))
    figure = draw_profiles(groups, partners, ["a", "b"], columns, "caption")
    for axis, group, other in zip(figure.axes, groups, partners, strict=True):
        solid, dashed = axis.lines[::2], axis.lines[1::2]
        np.testing.assert_array_equal([line.get_ydata() for line in solid], group)
        np.testing.assert_array_equal([line.get_ydata() for line in dashed], other)
        assert [line.get_linestyle() for line in dashed] == ["--"] * 4
        assert [line.get_color() for line in solid] == [line.get_color() for line in dashed]
        assert len({line.get_color() for line in solid}) == 4
    assert [axis.get_title() for axis in figure.axes] == ["a", "b"]
    if columns is not None:
        assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == columns
    else:
        assert figure.axes[0].get_xlabel() == "column"
    assert len(draw_profiles(groups, None, ["a", "b"], None, "").axes[0].lines) == 4


def test_curves_have_a_colour_for_the_columns_that_change_most():
    x, values = RNG.normal(size=(2, 5, 12)), np.sort(RNG.normal(size=(2, 5)))
    x[:, :, 3] = 0
    figure = draw_curves(x, values, values[:, 1], [4, 7], [f"c{j}" for j in range(12)], "")
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.texts]
    assert len(names) == COLOURED + 1
    assert names[-1] == "4 others"
    assert "c3" not in names
    colours = {to_hex(h.get_color()): name for h, name in zip(legend.legend_handles, names, strict=True)}
    assert [axis.get_xlabel() for axis in figure.axes] == ["latent 4", "latent 7"]
    for i, axis in enumerate(figure.axes):
        *curves, start = axis.lines
        assert start.get_xdata()[0] == values[i, 1]
        assert len(curves) == 12
        for curve in curves[4:]:
            np.testing.assert_array_equal(curve.get_xdata(), values[i])
            np.testing.assert_array_equal(curve.get_ydata(), x[i, :, int(colours[to_hex(curve.get_color())][1:])])
        assert axis.get_ylim()[0] < x.min() < x.max() < axis.get_ylim()[1]


def test_nothing_is_cut_off_and_nothing_overlaps():
    many, few = list(RNG.uniform(size=(20, 3, 8, 5))), list(RNG.uniform(size=(2, 6, 4, 4, 3)))
    long = [f"a long name of column {j}" for j in range(6)]
    curves = RNG.normal(size=(6, 9, 6)), RNG.normal(size=(6, 9))
    figures = [
        draw_images(many, [f"cluster {i}, 2.5 %" for i in range(20)], "words " * 30),
        draw_images(few, ["a", "b"], "", heads=("x", "x̂"), framed=[0, 1]),
        draw_images([few[0][:1]], ["one"], "A caption that is longer than the image is wide, and is wrapped."),
        draw_profiles(list(RNG.normal(size=(9, 2, 40))), None, [f"cluster {i}" for i in range(9)], None, "words"),
        draw_profiles(list(RNG.normal(size=(2, 3, 6))), list(RNG.normal(size=(2, 3, 6))), ["a", "b"], long, "words"),
        draw_curves(*curves, np.zeros(6), range(6), long, ""),
        draw_curves(curves[0][:1], curves[1][:1], np.zeros(1), [0], long, "words " * 9),
    ]
    assert [fits(figure) for figure in figures] == [True] * len(figures)
