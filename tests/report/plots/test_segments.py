import numpy as np
import pytest
from matplotlib.colors import to_hex

from identifiable.data import make_segments
from identifiable.errors import DataError
from identifiable.metrics import match
from identifiable.report.plots.segments import plot_by_value, plot_segments, plot_traces

from .fake_models import fits

SEED = np.random.default_rng


@pytest.fixture(scope="module")
def sample():
    return make_segments(2000, segments=5, n=2, centred=False, random_state=0)


def cloud_of(axis):
    """Points and colours of a panel."""
    (points,) = axis.collections
    return np.asarray(points.get_offsets()), [to_hex(colour) for colour in points.get_facecolors()]


def legend_of(figure):
    """Names and their colours, without the entry of the ellipses."""
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.texts]
    assert names[-1] == "1 sd"
    return dict(zip(names[:-1], (to_hex(h.get_color()) for h in legend.legend_handles), strict=False))


# plot_segments


def test_every_point_has_the_colour_of_its_segment(sample):
    figure = plot_segments({"true": sample.z, "observed": sample.x}, sample.u)
    colours = legend_of(figure)
    assert list(colours) == ["0", "1", "2", "3", "4"]
    assert len(set(colours.values())) == 5
    for axis, data in zip(figure.axes, (sample.z, sample.x), strict=True):
        points, drawn = cloud_of(axis)
        for name, colour in colours.items():
            own = points[[c == colour for c in drawn]]
            expected = data[sample.u == int(name)]
            np.testing.assert_allclose(own[np.lexsort(own.T)], expected[np.lexsort(expected.T)])
    assert [axis.get_title() for axis in figure.axes] == ["true", "observed"]
    assert figure.axes[0].get_xlabel() == "column 0"
    assert figure.axes[0].get_ylabel() == "column 1"


def test_panels_show_the_same_random_rows(sample):
    order = np.argsort(sample.u)  # as in a file that holds one segment after the other
    z, u = sample.z[order], sample.u[order]
    first, second = (cloud_of(axis) for axis in plot_segments({"a": z, "b": 2 * z}, u, rows=300).axes)
    assert len(first[0]) == 300
    np.testing.assert_allclose(second[0], 2 * first[0])
    assert len(np.unique(np.concatenate([first[0], z]), axis=0)) == 2000  # rows of the data, none twice
    assert len(set(first[1])) == 5  # all segments, not the first rows
    again = cloud_of(plot_segments({"a": z}, u, rows=300).axes[0])
    np.testing.assert_array_equal(again[0], first[0])


def test_ellipses_are_one_standard_deviation_of_all_rows(sample):
    (axis,) = plot_segments({"a": sample.z}, sample.u, rows=50).axes
    for line, (name, colour) in zip(axis.lines, legend_of(axis.figure).items(), strict=True):
        assert to_hex(line.get_color()) == colour
        own = sample.z[sample.u == int(name)]
        off = line.get_xydata() - own.mean(axis=0)
        np.testing.assert_allclose(np.einsum("ij,ij->i", off, np.linalg.solve(np.cov(own.T), off.T).T), 1)


def test_a_panel_may_have_its_own_u(sample):
    panels = {"posterior": sample.z, "prior": SEED(0).normal(size=(300, 2)), "text": sample.z}
    u = {"posterior": sample.u, "prior": np.repeat([1, 4, 7], 100), "text": sample.u.astype(str)}
    figure = plot_segments(panels, u)
    colours = legend_of(figure)
    assert list(colours) == ["0", "1", "2", "3", "4", "7"]
    posterior, prior, text = (cloud_of(axis)[1] for axis in figure.axes)
    assert [prior.count(colours[name]) for name in ("1", "4", "7")] == [100] * 3
    assert posterior == text  # numbers and their text are one segment


@pytest.mark.parametrize(
    ("u", "labels", "names"),
    [
        ([0.0, 2.0, 2.0, 0.0], ["zero", "one", "two"], ["zero", "two"]),  # a sequence is indexed by u
        ([5, -1, 5, 5], {5: "five", -1: "minus"}, ["minus", "five"]),
        (["b", "a", "b", "b"], None, ["a", "b"]),
        ([0.5, 0.25, 0.5, 1.0], None, ["0.25", "0.5", "1"]),  # few values are labels, whole or not
    ],
)
def test_names_of_segments(u, labels, names):
    z = SEED(0).normal(size=(4, 2))
    assert list(legend_of(plot_segments({"a": z}, u, labels=labels))) == names
    (axis,) = plot_by_value(z[:, :1], u, labels=labels).axes
    assert [tick.get_text() for tick in axis.get_yticklabels()] == names


def test_the_smallest_segments_are_grey_and_other_columns_can_be_drawn():
    u, z = np.repeat([0, 1, 2, 3, 4], [10, 50, 40, 5, 60]), SEED(0).normal(size=(165, 4))
    figure = plot_segments({"a": z}, u, most=3, columns=(3, 1))
    assert list(legend_of(figure)) == ["1", "2", "4", "2 others"]
    (axis,) = figure.axes
    assert len(axis.lines) == 3
    np.testing.assert_allclose(np.sort(cloud_of(axis)[0], axis=0), np.sort(z[:, [3, 1]], axis=0))
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("column 3", "column 1")
    counted = np.arange(100)
    found = [
        plot_segments({"a": z[:100]}, v, continuous=c) for v in (counted, counted / 7) for c in (None, True, False)
    ]
    assert [bool(figure.legends) for figure in found] == [True, False, True, False, False, True]


def test_a_quantity_has_a_colour_bar_and_one_scale_for_all_panels():
    z, time = SEED(0).normal(size=(400, 2)), np.linspace(0, 1, 400)
    figure = plot_segments({"a": z, "b": z[:100]}, {"a": time, "b": 3 * time[:100]}, rows=500)
    *panels, bar = figure.axes
    assert not figure.legends
    assert bar.get_ylabel() == "u"
    assert bar.get_ylim() == (0, 1)
    for axis, own in zip(panels, (time, 3 * time[:100]), strict=True):
        (points,) = axis.collections
        assert (points.norm.vmin, points.norm.vmax) == (0, 1)
        row = {tuple(point): value for point, value in zip(z, own, strict=False)}
        np.testing.assert_allclose([row[tuple(p)] for p in points.get_offsets()], points.get_array())
        assert not axis.lines


# plot_traces


def test_perfect_latents_in_other_order_sign_and_scale_match_the_true_ones():
    rng = SEED(0)
    z = rng.normal(size=(400, 3))
    latents = np.column_stack([-3 * z[:, 2] + 7, rng.normal(size=400), 0.01 * z[:, 0], 100 - z[:, 1]])
    figure = plot_traces(z, {"perfect": latents}, names=["pka", "erk", "raf"])
    for i, axis in enumerate(figure.axes):
        solid, dashed = axis.lines
        assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
        np.testing.assert_array_equal(dashed.get_ydata(), z[:150, i])
        np.testing.assert_allclose(solid.get_ydata(), z[:150, i], atol=1e-9)
        np.testing.assert_array_equal(solid.get_xdata(), np.arange(150))
    assert figure.axes[0].get_title() == "perfect\nMCC 1.000"
    assert [axis.get_ylabel() for axis in figure.axes] == ["pka", "erk", "raf"]
    assert [axis.get_xlabel() for axis in figure.axes] == ["", "", "row"]
    assert len(figure.legends[0].texts) == 2


def test_traces_are_the_least_squares_fit_over_all_rows():
    rng = SEED(0)
    z = rng.normal(size=(1000, 2))
    noise = np.where(np.arange(1000)[:, None] < 150, 0, 1)  # the rows drawn are better than the others
    latents = {"a": -(z + noise * rng.normal(size=z.shape))[:, ::-1], "b": rng.normal(size=(1000, 5))}
    figure = plot_traces(z, latents, rows=slice(100, 140))
    axes = np.array(figure.axes).reshape(2, 2)
    for column, (name, estimate) in zip(axes.T, latents.items(), strict=True):
        found = match(z, estimate)
        assert column[0].get_title() == f"{name}\nMCC {found.score:.3f}"
        for i, axis in enumerate(column):
            assert axis.texts[0].get_text() == f"|r|\n{abs(found.correlations[i]):.3f}"
            partner = estimate[:, found.permutation[i]]
            slope, shift = np.polyfit(partner, z[:, i], 1)
            np.testing.assert_allclose(axis.lines[0].get_ydata(), (slope * partner + shift)[100:140])
            np.testing.assert_array_equal(axis.lines[1].get_xdata(), np.arange(100, 140))
    assert np.abs(np.corrcoef(z[:150].T, latents["a"][:150, ::-1].T)[0, 2]) > 0.999 > 0.9 > match(z, latents["a"]).score


def test_a_latent_without_partner_and_a_constant_one():
    z = SEED(0).normal(size=(200, 3))
    figure = plot_traces(z, {"two": np.column_stack([z[:, 1], np.full(200, 9.0)])})
    lines = {len(axis.lines): axis for axis in figure.axes}
    assert set(lines) == {1, 2}
    assert lines[1].texts[0].get_text() == "no\npartner"
    constant_trace = next(axis for axis in figure.axes if axis.texts[0].get_text() == "|r|\n0.000")
    i = figure.axes.index(constant_trace)
    np.testing.assert_allclose(constant_trace.lines[0].get_ydata(), z[:, i].mean())
    assert figure.axes[0].get_title() == "two\nMCC 0.333"
    (constant,) = plot_traces(np.ones((200, 1)), {"a": z}).axes
    np.testing.assert_allclose(constant.lines[0].get_ydata(), 1)


# plot_by_value


@pytest.fixture(scope="module")
def conditions():
    rng = SEED(0)
    u = rng.integers(4, size=1000)
    return u, np.column_stack([rng.gamma(2, size=1000), 3 * u + rng.normal(size=1000), u % 2 + rng.normal(size=1000)])


def test_boxes_are_the_quantiles_of_the_data_and_the_latents_that_u_explains_best_come_first(conditions):
    u, latents = conditions
    figure = plot_by_value(latents, u, names=["gamma", "steps", "parity"])
    means = np.stack([latents[u == v].mean(0) for v in range(4)])[u]
    shares = 1 - ((latents - means) ** 2).sum(0) / ((latents - latents.mean(0)) ** 2).sum(0)
    assert shares[1] > shares[2] > shares[0]
    for axis, name, i in zip(figure.axes, ["steps", "parity", "gamma"], [1, 2, 0], strict=True):
        assert axis.get_title() == f"{name}  (η² {shares[i]:.2f})"
        whiskers, medians = axis.collections
        for v in range(4):
            low, left, median, right, high = np.quantile(latents[u == v, i], [0.05, 0.25, 0.5, 0.75, 0.95])
            np.testing.assert_allclose(medians.get_segments()[v][:, 0], median)
            assert medians.get_segments()[v][:, 1].mean() == pytest.approx(v)
            np.testing.assert_allclose(whiskers.get_segments()[v], [[low, v], [high, v]])
            box = axis.patches[v]
            np.testing.assert_allclose([box.get_x(), box.get_x() + box.get_width()], [left, right])
            assert box.get_y() + box.get_height() / 2 == pytest.approx(v)
        np.testing.assert_allclose(axis.lines[0].get_xdata(), np.median(latents[:, i]))
    few = plot_by_value(latents, u, most=2)
    assert [axis.get_title().split("  ")[0] for axis in few.axes] == ["latent 1", "latent 2"]
    assert "2 of 3" in few.get_suptitle()
    assert figure.get_suptitle() == ""


def test_panels_share_axes_with_the_first_value_on_top(conditions):
    u, latents = conditions
    first, *others = plot_by_value(np.column_stack([latents, np.ones(1000)]), u, labels=["a", "b", "c", "d"]).axes
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["a", "b", "c", "d"]
    low, high = first.get_ylim()
    assert low > 3 > 0 > high
    assert {(axis.get_xlim(), axis.get_ylim()) for axis in others} == {(first.get_xlim(), first.get_ylim())}
    assert others[-1].get_title() == "latent 3  (η² 0.00)"  # constant


def test_a_quantity_has_a_running_mean_and_band():
    rng = SEED(0)
    u = rng.permutation(np.linspace(0, 1, 2000))
    noise = rng.choice([-1.0, 1.0], size=2000)
    line, other = plot_by_value(np.column_stack([2 * u + 1, noise]), u).axes
    (_, mean), (band,) = line.lines, line.collections
    np.testing.assert_allclose(mean.get_ydata(), 2 * mean.get_xdata() + 1)  # at the mean of u in each window
    assert mean.get_xdata().min() == pytest.approx(0.025, abs=0.001)  # the first twentieth of the rows
    assert np.all(np.diff(mean.get_xdata()) > 0)
    assert line.get_title() == "latent 0  (η² 1.00)"
    assert np.ptp(band.get_paths()[0].vertices[:, 1]) == pytest.approx(
        np.ptp(mean.get_ydata()) + 4 * 0.05 / 12**0.5, 1e-2
    )
    edges = other.collections[0].get_paths()[0].vertices[:, 1]
    assert np.quantile(edges, 0.9) == pytest.approx(1, abs=0.3)  # a fair coin of ± 1: mean 0, sd 1
    assert np.quantile(edges, 0.1) == pytest.approx(-1, abs=0.3)
    assert other.get_title() == "latent 1  (η² 0.01)"


@pytest.mark.parametrize("rows", [2, 3, 25])
def test_a_quantity_of_few_rows(rows):
    z = SEED(0).normal(size=(rows, 1))
    (axis,) = plot_by_value(z, np.arange(rows), continuous=True).axes
    assert np.isfinite(axis.lines[1].get_ydata()).all()
    assert 0 <= float(axis.get_title().split("η² ")[1].rstrip(")")) <= 1


# all


def test_nothing_is_cut_off_and_no_panels_overlap(sample):
    z, u = SEED(0).normal(size=(500, 11)), SEED(1).integers(9, size=500)
    long = [f"a longer name of condition {i}" for i in range(9)]
    figures = [
        plot_segments({f"panel {i}": sample.z[:200] for i in range(4)}, sample.u[:200]),
        plot_segments({"one": z}, u, labels=long),
        plot_segments({"one": z, "two": z}, SEED(0).uniform(size=500)),
        plot_traces(z[:, :4], {"iVAE": z, "VAE": z[:, :3]}),
        plot_by_value(z[:, :5], u, labels=long),
        plot_by_value(z[:, :1], u > 4),
        plot_by_value(z[:, :4], SEED(0).uniform(size=500)),
    ]
    assert [fits(figure) for figure in figures] == [True] * len(figures)


Z, U = SEED(0).normal(size=(60, 2)), np.repeat([0, 1, 2], 20)
HOLE = np.where(np.arange(60)[:, None] == 7, np.nan, Z)


@pytest.mark.parametrize(
    ("draw", "word"),
    [
        (lambda: plot_segments({}, U), "panels"),
        (lambda: plot_segments({"a": HOLE}, U), "finite"),
        (lambda: plot_segments({"a": Z}, U[:-1]), "59"),
        (lambda: plot_segments({"a": Z}, U, columns=(0, 2)), "columns"),
        (lambda: plot_segments({"a": Z}, {"b": U}), "entry"),
        (lambda: plot_segments({"a": Z}, U, most=13), "most"),
        (lambda: plot_segments({"a": Z}, U, labels=["a", "b"]), "labels"),
        (lambda: plot_segments({"a": Z}, U.astype(str), continuous=True), "continuous"),
        (lambda: plot_traces(Z, {"z": Z[:50]}), "has 50"),
        (lambda: plot_traces(Z, {"a": Z}, rows=slice(60, 90)), "rows"),
        (lambda: plot_by_value(Z, U, labels=["a"]), "labels"),
        (lambda: plot_by_value(Z, U, most=0), "most"),
        (lambda: plot_by_value(Z, np.arange(60)), "50"),
    ],
)
def test_wrong_arguments_are_named(draw, word):
    with pytest.raises(DataError, match=word):
        draw()
