import numpy as np
import pytest
from matplotlib.colors import to_hex

from identifiable import Mixture
from identifiable.errors import DataError
from identifiable.report.plots.latents import plot_latents

from .fake_models import MEANS, MIXTURE, fits

RNG = np.random.default_rng(0)


def cloud_of(axis):
    (points,) = axis.collections
    return np.asarray(points.get_offsets()), [to_hex(colour) for colour in points.get_facecolors()]


def test_rows_have_the_colour_of_their_label_and_components_that_of_most_of_their_rows():
    tilt = np.array([[2.0, 0.9], [0.9, 1.0]])
    mixture = Mixture([0.3, 0.3, 0.3, 0.1], MEANS, np.stack([tilt] * 4))
    component = RNG.integers(3, size=300)
    z = MEANS[component] + RNG.multivariate_normal([0, 0], tilt, size=300)
    names, labels = np.array(["c", "a", "b"]), component.copy()
    labels[:10] = 0  # some have another label than their component
    figure = plot_latents(z, names[labels], mixture=mixture)
    (axis,), (legend,) = figure.axes, figure.legends
    colours = {t.get_text(): to_hex(h.get_color()) for h, t in zip(legend.legend_handles, legend.texts, strict=True)}
    assert list(colours) == ["a", "b", "c", "2 sd"]
    points, drawn = cloud_of(axis)
    for k, name in enumerate(names):
        own = points[[c == colours[name] for c in drawn]]
        np.testing.assert_allclose(np.sort(own, axis=0), np.sort(z[labels == k], axis=0))
    assert [to_hex(line.get_color()) for line in axis.lines] == [colours[name] for name in names]  # three of four
    for k, line in enumerate(axis.lines):
        off = line.get_xydata() - MEANS[k]
        np.testing.assert_allclose(np.einsum("ij,ij->i", off, np.linalg.solve(tilt, off.T).T), 4)


def test_rows_without_labels_belong_to_their_most_probable_component():
    z = MEANS[[0, 0, 2, 1]] + 0.1
    figure = plot_latents(z, mixture=MIXTURE)
    assert [text.get_text() for text in figure.legends[0].texts] == ["0", "1", "2", "2 sd"]
    assert not plot_latents(z).legends
    assert len(set(cloud_of(plot_latents(z).axes[0])[1])) == 1
    degenerate = Mixture([0.5, 0.5], [[0.0, 0.0], [0.0, 0.0]], [[0.0, 1e6], [1.0, 1e6]])
    z = np.column_stack([np.repeat([0.0, 1.0], 50), 1e3 * RNG.normal(size=100)])
    counts = [text.get_text() for text in plot_latents(z, mixture=degenerate).legends[0].texts]
    assert counts == ["0", "1", "2 sd"]
    assert len(set(cloud_of(plot_latents(z, mixture=degenerate).axes[0])[1])) == 2


def test_several_tables_are_drawn_side_by_side():
    runs, labels = RNG.normal(size=(3, 50, 2)), RNG.integers(4, size=50)
    figure = plot_latents(runs, labels, mixture=[MIXTURE] * 3)
    assert [axis.get_title() for axis in figure.axes] == ["run 0", "run 1", "run 2"]
    for axis, run in zip(figure.axes, runs, strict=True):
        np.testing.assert_allclose(np.sort(cloud_of(axis)[0], axis=0), np.sort(run, axis=0))
    own = plot_latents(list(runs), [labels, labels.astype(str), labels], titles=["a", "b", "c"])
    assert [axis.get_title() for axis in own.axes] == ["a", "b", "c"]
    assert len(own.legends[0].texts) == 4


def test_pairs_of_many_latents_are_drawn_and_named():
    z = RNG.normal(size=(40, 5))
    labels = [(a.get_xlabel()[-1], a.get_ylabel()[-1]) for a in plot_latents(z).axes]
    assert labels == [("0", "1"), ("0", "2"), ("1", "2")]
    figure = plot_latents([z, z + 1], pairs=[(4, 0), (1, 3)])
    assert [a.get_xlabel() for a in figure.axes] == ["latent 4", "latent 4", "latent 1", "latent 1"]
    np.testing.assert_allclose(np.sort(cloud_of(figure.axes[3])[0], axis=0), np.sort(z[:, [1, 3]] + 1, axis=0))
    means = RNG.normal(size=(1, 5))
    mixture = Mixture([1.0], means, np.diag([1.0, 2, 3, 4, 5])[None])
    line = plot_latents(z, mixture=mixture, pairs=[(4, 1)]).axes[0].lines[0].get_xydata()
    np.testing.assert_allclose(np.ptp(line, axis=0), 4 * np.sqrt([5, 2]), rtol=1e-2)
    np.testing.assert_allclose(line[:-1].mean(0), means[0, [4, 1]])


def test_a_single_latent_is_a_histogram_per_label():
    z, labels = RNG.normal(size=(400, 1)), np.repeat([0, 1], [100, 300])
    (axis,) = plot_latents(z, labels, mixture=Mixture([0.5, 0.5], [[0], [1]], [[1], [4]])).axes
    corners = [patch.get_xy().T for patch in axis.patches]
    areas = [abs(0.5 * np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))) for x, y in corners]
    assert areas == pytest.approx([0.25, 0.75])
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("latent 0", "density")
    np.testing.assert_allclose(axis.lines[0].get_ydata().max(), 0.5 / np.sqrt(2 * np.pi), rtol=1e-2)


def test_nothing_is_cut_off_and_nothing_overlaps():
    mixture = Mixture(np.full(20, 1 / 20), RNG.normal(size=(20, 3)), np.ones((20, 3)))
    assert fits(plot_latents(RNG.normal(size=(200, 3)), mixture=mixture))
    assert fits(plot_latents(list(RNG.normal(size=(7, 50, 2))), RNG.integers(30, size=50)))


Z = RNG.uniform(size=(20, 6))


@pytest.mark.parametrize(
    ("draw", "word"),
    [
        (lambda: plot_latents([]), "Z"),
        (lambda: plot_latents([Z, np.where(Z < 0.1, np.nan, Z)]), "finite"),
        (lambda: plot_latents([Z, Z[:, :2]]), "6, 2"),
        (lambda: plot_latents(Z, np.arange(19)), "component"),
        (lambda: plot_latents(Z, mixture=MIXTURE), "mixture"),
        (lambda: plot_latents(Z, titles=["a", "b"]), "titles"),
        (lambda: plot_latents(Z, pairs=[(0, 6)]), "pairs"),
        (lambda: plot_latents(Z, pairs=[(1, 1)]), "pairs"),
        (lambda: plot_latents(Z, pairs=[]), "pairs"),
    ],
)
def test_wrong_arguments_are_named(draw, word):
    with pytest.raises(DataError, match=word):
        draw()
