import numpy as np
import pandas as pd
import pytest

from identifiable.errors import DataError
from identifiable.report.plots.images import plot_cluster_samples, plot_reconstructions, plot_traversal

from .fake_models import (
    MAP,
    SHAPE,
    Facets,
    Linear,
    Sampler,
    WithoutClusters,
    as_seen,
    caption_of,
    images_of,
    names_of,
    rows,
)

ROWS = rows()


def test_samples_are_drawn_in_the_order_of_their_clusters():
    model = Linear()
    figure = plot_cluster_samples(model, ROWS, image_shape=SHAPE)
    assert names_of(figure) == ["cluster 2, 20.0 %, p 0.90", "cluster 1, 30.0 %, p 0.80", "cluster 0, 50.0 %, p 0.70"]
    for line, z in zip(images_of(figure), model.decoded, strict=True):
        np.testing.assert_allclose(line, as_seen(0.5 + z @ MAP))
        assert len(line) == 10
    assert "sorted by p" in caption_of(figure)


def test_samples_of_a_cluster_do_not_depend_on_the_other_clusters():
    every = images_of(plot_cluster_samples(Linear(), image_shape=SHAPE))
    few = images_of(plot_cluster_samples(Linear(), ROWS, image_shape=SHAPE, most=1))
    np.testing.assert_array_equal(few[0], every[1])  # cluster 2
    other = images_of(plot_cluster_samples(Linear(), ROWS, image_shape=SHAPE, most=1, random_state=1))
    assert not np.array_equal(few[0], other[0])


def test_the_facet_is_passed_to_the_model():
    model = Facets()
    figure = plot_cluster_samples(model, facet=1, samples=2, image_shape=SHAPE)
    assert names_of(figure)[-1] == "cluster 2, 0.0 %"
    assert np.abs(model.decoded[2][:, 2] - 200).max() < 10
    plot_cluster_samples(model, np.zeros((10, 6)), samples=2, image_shape=SHAPE)
    plot_reconstructions(model, np.zeros((10, 6)), facet=1)
    plot_reconstructions(model, np.zeros((10, 6)))
    assert model.facets == [0, 1, 0]


def test_samples_of_a_table_are_lines_over_standardised_columns():
    model = Linear()
    model.feature_names_in_ = np.array(list("abcdef"))
    figure = plot_cluster_samples(model, ROWS, samples=7)
    assert figure.axes[0].get_title() == "cluster 2, 20.0 %, p 0.90"
    for axis, z in zip(figure.axes, model.decoded, strict=True):
        drawn = [line.get_ydata() for line in axis.lines]
        np.testing.assert_allclose(drawn, (0.5 + z @ MAP - ROWS.mean(0)) / ROWS.std(0))
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == list("abcdef")


def test_reconstructions_are_beside_rows_of_their_cluster():
    noisy = ROWS + 0.05 * np.random.default_rng(0).normal(size=ROWS.shape)
    model = Linear()
    figure = plot_reconstructions(model, noisy, image_shape=SHAPE)
    labels = model.predict_proba(noisy).argmax(1)
    for line, k in zip(images_of(figure), [2, 1, 0], strict=True):
        found = {as_seen(x)[0].tobytes(): model.inverse_transform(model.transform(x[None])) for x in noisy[labels == k]}
        assert len(line) == 8
        for x, x_hat in zip(line[::2], line[1::2], strict=True):
            np.testing.assert_allclose(x_hat, as_seen(found[x.tobytes()])[0])
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["x", "x̂"] * 4
    few = plot_reconstructions(Linear(), ROWS[:51], image_shape=SHAPE, pairs=3)
    assert [len(line) for line in images_of(few)] == [2, 6]  # one row of cluster 1, fifty of cluster 0


def test_reconstructions_without_clusters_are_a_grid():
    figure = plot_reconstructions(WithoutClusters(), ROWS, image_shape=SHAPE, most=10, pairs=4)
    assert [len(line) for line in images_of(figure)] == [8, 8, 4]
    assert len(np.unique(np.concatenate(images_of(figure))[::2], axis=0)) == 10
    figure = plot_reconstructions(WithoutClusters(), ROWS, most=10, pairs=4)
    assert [len(axis.lines) for axis in figure.axes] == [8, 8, 4]
    for x, x_hat in zip(figure.axes[0].lines[::2], figure.axes[0].lines[1::2], strict=True):
        np.testing.assert_allclose(x.get_ydata(), x_hat.get_ydata(), atol=1e-9)


def test_a_traversal_moves_one_latent_and_frames_its_start():
    model = Linear()
    z = model.transform(ROWS)
    figure = plot_traversal(model, ROWS, image_shape=SHAPE, row=3, steps=7, span=(0.1, 0.9))
    path = model.decoded[0].reshape(2, 7, 2)
    frames = [patch.get_xy() for patch in figure.axes[0].patches]
    for i, (line, own) in enumerate(zip(images_of(figure), path, strict=True)):
        np.testing.assert_allclose(line, as_seen(0.5 + own @ MAP))
        np.testing.assert_allclose(own[:, 1 - i], z[3, 1 - i])
        at = np.argmin(np.abs(own[:, i] - z[3, i]))
        np.testing.assert_allclose(line[at], as_seen(ROWS[3])[0])  # the map is exact
        image = figure.axes[0].images[7 * i + at]
        assert frames[i] == pytest.approx((image.get_extent()[0], image.get_extent()[3]))
        even = np.linspace(*np.quantile(z[:, i], (0.1, 0.9)), 7)
        np.testing.assert_allclose(np.delete(own[:, i], at), np.delete(even, at))
        assert abs(even[at] - z[3, i]) == np.abs(even - z[3, i]).min()
        assert names_of(figure)[i] == f"latent {i}: {own[0, i]:.3g} to {own[-1, i]:.3g}"


def test_a_traversal_starts_from_the_row_closest_to_the_medians():
    model = Linear()
    z = model.transform(ROWS)
    plot_traversal(model, ROWS, image_shape=SHAPE, latents=[1])
    off = ((z - np.median(z, axis=0)) / z.std(0)) ** 2
    np.testing.assert_allclose(model.decoded[0][:, 0], z[off.sum(1).argmin(), 0])
    assert len(model.decoded[0]) == 9


def test_of_many_latents_those_that_change_x_most_are_traversed():
    class Diagonal:
        sizes = np.array([5, 0, 4, 3, 0.1, 2, 2, 2, 2, 2, 2, 2, 2, 2])

        def transform(self, X):
            return X

        def inverse_transform(self, Z):
            return Z * self.sizes

    X = np.tile(np.random.default_rng(0).normal(size=(50, 1)), 14)
    figure = plot_traversal(Diagonal(), X, image_shape=(2, 7))
    assert [name.split(":")[0] for name in names_of(figure)] == [f"latent {i}" for i in range(14) if i not in (1, 4)]
    assert "12 of 14" in caption_of(figure)
    assert len(plot_traversal(Diagonal(), X).axes) == 12
    assert len(plot_traversal(Diagonal(), X, latents=range(14)).axes) == 14


def test_a_traversal_of_a_table_is_a_curve_per_standardised_column():
    model = Linear()
    figure = plot_traversal(model, ROWS, row=5)
    z, path = model.transform(ROWS), model.decoded[0].reshape(2, 9, 2)
    assert sorted(text.get_text() for text in figure.legends[0].texts) == [f"column {j}" for j in range(6)]
    for i, axis in enumerate(figure.axes):
        *curves, start = axis.lines
        assert start.get_xdata() == pytest.approx([z[5, i]] * 2)
        expected = (0.5 + path[i] @ MAP - ROWS.mean(0)) / ROWS.std(0)
        np.testing.assert_allclose([curve.get_ydata() for curve in curves], expected.T)
        np.testing.assert_allclose(curves[0].get_xdata(), path[i, :, i])


def test_data_frames_reach_the_model_as_data_frames_and_decoded_images_are_drawn_as_images():
    class Named(Linear):
        feature_names_in_ = np.array(list("abcdef"))

        def transform(self, X):
            assert list(X.columns) == list("abcdef")
            return super().transform(X.to_numpy())

        def inverse_transform(self, Z):
            return super().inverse_transform(Z).reshape(-1, *SHAPE)

    frame, model = pd.DataFrame(ROWS, columns=list("abcdef"), index=np.arange(100)[::-1]), Named()
    np.testing.assert_allclose(
        images_of(plot_reconstructions(model, frame)),
        images_of(plot_reconstructions(Linear(), ROWS, image_shape=SHAPE)),
    )
    assert [len(line) for line in images_of(plot_cluster_samples(model))] == [10] * 4
    assert [len(line) for line in images_of(plot_traversal(model, frame))] == [9] * 2


@pytest.mark.parametrize(
    ("draw", "word"),
    [
        (lambda: plot_cluster_samples(Linear(), ROWS, most=1.5), "most"),
        (lambda: plot_cluster_samples(Linear(), facet=0), "facet"),
        (lambda: plot_reconstructions(Linear(), ROWS, pairs=0), "pairs"),
        (lambda: plot_traversal(Sampler(), ROWS), "transform"),
        (lambda: plot_traversal(Linear(), ROWS, latents=[2]), "latents"),
        (lambda: plot_traversal(Linear(), ROWS, steps=1), "steps"),
        (lambda: plot_traversal(Linear(), ROWS, row=100), "row"),
        (lambda: plot_traversal(Linear(), ROWS, span=(0.9, 0.1)), "span"),
        (lambda: plot_traversal(Linear(), ROWS, image_shape=(2, 2)), "image_shape"),
    ],
)
def test_wrong_arguments_are_named(draw, word):
    with pytest.raises(DataError, match=word):
        draw()
