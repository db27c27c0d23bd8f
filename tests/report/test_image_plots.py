"""Pictures of models: every image is what the model decodes, every order and number is the data's."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from sklearn.exceptions import NotFittedError

from identifiable import VAE, GMMFlow, Mixture
from identifiable.data import load_digits, make_pinwheel
from identifiable.errors import DataError
from identifiable.report.plots.images import plot_cluster_samples, plot_latents, plot_reconstructions, plot_traversal

SEED = np.random.default_rng
SHAPE = (2, 3)
MEANS = np.array([[-6.0, 0.0], [0.0, 6.0], [6.0, 0.0], [90.0, 90.0]])  # no row belongs to the last
LAW = Mixture([0.2, 0.1, 0.3, 0.4], MEANS, np.ones((4, 2)))
MAP = SEED(1).normal(size=(2, 6)) / 30


class Linear:
    """Six columns x = 0.5 + z A, and clusters that are surer the higher their number; writes down what it decodes."""

    mixture_ = LAW

    def __init__(self):
        self.decoded = []

    def transform(self, X):
        return (np.reshape(X, (len(X), -1)) - 0.5) @ np.linalg.pinv(MAP)

    def inverse_transform(self, Z):
        self.decoded.append(Z)
        return 0.5 + Z @ MAP

    def predict_proba(self, X):
        nearest = ((self.transform(X)[:, None] - MEANS) ** 2).sum(-1).argmin(1)
        p = np.array([0.7, 0.8, 0.9, 1.0])[nearest, None] * np.eye(4)[nearest]
        return p + (1 - p.sum(1, keepdims=True)) * np.eye(4)[(nearest + 1) % 3]


class WithoutClusters:
    transform, inverse_transform = Linear.transform, Linear.inverse_transform

    def __init__(self):
        self.decoded = []


class Sampler:
    """Tells clusters, but not probabilities, and draws from them."""

    def predict(self, X):
        return np.where(X[:, 0] < 0.5, 2, 0)

    def sample(self, n, *, component, random_state):
        return SEED(random_state).uniform(size=(n, 6)) * 0.1 + component * 0.3


class Facets:
    """Two facets: latents 0 and 1 with two clusters, latent 2 with three."""

    facets_ = (slice(0, 2), slice(2, 3))
    mixtures_ = (
        Mixture([0.5, 0.5], [[0, 0], [100, 100]], np.ones((2, 2))),
        Mixture([0.5, 0.5, 0], [[0], [100], [200]], np.ones((3, 1))),
    )

    def __init__(self):
        self.decoded, self.facets = [], []

    def transform(self, X):
        return X[:, :3]

    def inverse_transform(self, Z):
        self.decoded.append(Z)
        return np.repeat(Z, 2, axis=1)

    def predict_proba(self, X, facet=None):
        self.facets.append(facet)
        return np.eye(len(self.mixtures_[facet].weights))[np.arange(len(X)) % 2]


@pytest.fixture(scope="module")
def rows():
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    return 0.5 + (MEANS[labels] + SEED(0).normal(size=(100, 2))) @ MAP


def images_of(figure):
    """Images drawn, a list for each line of them."""
    lines = {}
    for image in figure.axes[0].images:
        lines.setdefault(image.get_extent()[3], []).append(np.asarray(image.get_array()))
    return [lines[top] for top in sorted(lines)]


def names_of(figure):
    return [tick.get_text() for tick in figure.axes[0].get_yticklabels()]


def caption_of(figure):
    return " ".join(figure.get_supxlabel().split())


def as_seen(x, shape=SHAPE):
    return np.clip(x, 0, 1).reshape(-1, *shape)


# plot_cluster_samples


def test_clusters_are_sorted_by_confidence_and_those_without_rows_are_counted(rows):
    figure = plot_cluster_samples(Linear(), rows, image_shape=SHAPE)
    assert names_of(figure) == ["cluster 2, 20.0 %, p 0.90", "cluster 1, 30.0 %, p 0.80", "cluster 0, 50.0 %, p 0.70"]
    assert [len(line) for line in images_of(figure)] == [10, 10, 10]
    assert "1 of 4 clusters have no row and are left out" in caption_of(figure)
    assert "sorted by p" in caption_of(figure)


def test_without_rows_clusters_are_sorted_by_weight():
    figure = plot_cluster_samples(Linear(), image_shape=SHAPE, samples=3)
    assert names_of(figure) == [f"cluster {k}, {w} %" for k, w in [(3, "40.0"), (2, "30.0"), (0, "20.0"), (1, "10.0")]]
    assert "weight" in caption_of(figure)


def test_samples_are_decoded_from_the_clusters_own_latents(rows):
    model = Linear()
    figure = plot_cluster_samples(model, rows, image_shape=SHAPE, samples=100)
    for line, z, k in zip(images_of(figure), model.decoded, [2, 1, 0], strict=True):
        np.testing.assert_allclose(line, as_seen(0.5 + z @ MAP))
        np.testing.assert_allclose(z.mean(0), MEANS[k], atol=0.5)
        np.testing.assert_allclose(np.cov(z.T), np.eye(2), atol=0.7)
    assert not np.allclose(model.decoded[0] - MEANS[2], model.decoded[1] - MEANS[1])  # each has its own noise


def test_samples_of_a_cluster_do_not_depend_on_what_else_is_drawn(rows):
    every = images_of(plot_cluster_samples(Linear(), image_shape=SHAPE))
    few = images_of(plot_cluster_samples(Linear(), rows, image_shape=SHAPE, most=1))
    np.testing.assert_array_equal(few[0], every[1])  # cluster 2
    other = images_of(plot_cluster_samples(Linear(), rows, image_shape=SHAPE, most=1, random_state=1))
    assert not np.array_equal(few[0], other[0])


def test_clusters_beyond_the_most_are_said(rows):
    figure = plot_cluster_samples(Linear(), rows, image_shape=SHAPE, most=2)
    assert len(names_of(figure)) == 2
    assert "The first 2 of 3 clusters" in caption_of(figure)


def test_a_model_without_mixture_draws_by_itself_and_is_sorted_by_share(rows):
    figure = plot_cluster_samples(Sampler(), rows, image_shape=SHAPE, samples=4)
    low = np.mean(rows[:, 0] < 0.5)
    expected = {"cluster 2": low, "cluster 0": 1 - low}
    order = sorted(expected, key=lambda name: -expected[name])
    assert names_of(figure) == [f"{name}, {100 * expected[name]:.1f} %" for name in order]
    for name, line in zip(order, images_of(figure), strict=True):
        assert np.all(np.abs(np.array(line) - int(name[-1]) * 0.3 - 0.05) <= 0.05)
    assert "1 of 3 clusters have no row" in caption_of(figure)


def test_a_facet_is_passed_on_and_the_others_follow_their_own_law():
    model = Facets()
    plot_cluster_samples(model, np.zeros((10, 6)), facet=0, samples=20, image_shape=SHAPE)
    assert model.facets == [0]
    for z, mean in zip(model.decoded, [0, 100], strict=True):
        assert np.abs(z[:, :2] - mean).max() < 10  # the cluster
        assert {*np.round(z[:, 2] / 100)} == {0, 1}  # all clusters with weight
    model = Facets()
    figure = plot_cluster_samples(model, facet=1, samples=2, image_shape=SHAPE)
    assert names_of(figure)[-1] == "cluster 2, 0.0 %"
    assert np.abs(model.decoded[2][:, 2] - 200).max() < 10
    assert caption_of(figure).startswith("Facet 1.")
    plot_reconstructions(model, np.zeros((10, 6)), facet=1)
    plot_reconstructions(model, np.zeros((10, 6)))
    assert model.facets == [1, 0]


def test_a_facet_is_passed_on_to_sample():
    class Drawn:
        mixtures_, seen = Facets.mixtures_, []

        def sample(self, n, component, facet, random_state):
            self.seen.append((component, facet))
            return np.zeros((n, 4))

    plot_cluster_samples(Drawn(), facet=1)
    assert sorted(Drawn.seen) == [(0, 1), (1, 1), (2, 1)]


def test_samples_of_a_table_are_lines_over_standardised_columns(rows):
    model = Linear()
    model.feature_names_in_ = np.array(["a", "b", "c", "d", "e", "a very long name indeed"])
    figure = plot_cluster_samples(model, rows, samples=7)
    assert figure.axes[0].get_title() == "cluster 2, 20.0 %, p 0.90"
    for axis, z in zip(figure.axes, model.decoded, strict=True):
        drawn = [line.get_ydata() for line in axis.lines]
        np.testing.assert_allclose(drawn, (0.5 + z @ MAP - rows.mean(0)) / rows.std(0))
        assert len(drawn) == 7
    names = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    assert names == ["a", "b", "c", "d", "e", "a very long name …"]


# plot_reconstructions


def test_reconstructions_stand_beside_rows_of_their_cluster(rows):
    noisy = rows + 0.05 * SEED(0).normal(size=rows.shape)
    model = Linear()
    figure = plot_reconstructions(model, noisy, image_shape=SHAPE)
    labels = model.predict_proba(noisy).argmax(1)
    assert names_of(figure)[0].startswith("cluster 2")
    for line, k in zip(images_of(figure), [2, 1, 0], strict=True):
        own = noisy[labels == k]
        found = {as_seen(x)[0].tobytes(): model.inverse_transform(model.transform(x[None])) for x in own}
        assert len(line) == 8
        for x, x_hat in zip(line[::2], line[1::2], strict=True):
            np.testing.assert_allclose(x_hat, as_seen(found[x.tobytes()])[0])
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["x", "x̂"] * 4


def test_a_small_cluster_has_fewer_pairs(rows):
    figure = plot_reconstructions(Linear(), rows[:51], image_shape=SHAPE, pairs=3)
    assert [len(line) for line in images_of(figure)] == [2, 6]  # one row of cluster 1, fifty of cluster 0


def test_without_clusters_there_is_a_grid(rows):
    figure = plot_reconstructions(WithoutClusters(), rows, image_shape=SHAPE, most=10, pairs=4)
    assert [len(line) for line in images_of(figure)] == [8, 8, 4]
    assert len(np.unique(np.concatenate(images_of(figure))[::2], axis=0)) == 10
    figure = plot_reconstructions(WithoutClusters(), rows, most=10, pairs=4)
    assert [len(axis.lines) for axis in figure.axes] == [8, 8, 4]


def test_reconstructions_of_a_table_are_dashed_and_share_the_colour_of_their_row(rows):
    (axis,) = plot_reconstructions(WithoutClusters(), rows, most=4).axes
    for x, x_hat in zip(axis.lines[::2], axis.lines[1::2], strict=True):
        assert (x.get_linestyle(), x_hat.get_linestyle()) == ("-", "--")
        assert x.get_color() == x_hat.get_color()
        np.testing.assert_allclose(x.get_ydata(), x_hat.get_ydata(), atol=1e-9)
    assert len({line.get_color() for line in axis.lines}) == 4


def test_frames_reach_the_model_as_frames(rows):
    class Named(Linear):
        feature_names_in_ = np.array(list("abcdef"))

        def transform(self, X):
            assert list(X.columns) == list("abcdef")
            return super().transform(X.to_numpy())

    frame = pd.DataFrame(rows, columns=list("abcdef"), index=np.arange(100)[::-1])
    figure = plot_reconstructions(Named(), frame)
    expected = plot_reconstructions(Linear(), rows)
    for axis, other in zip(figure.axes, expected.axes, strict=True):
        np.testing.assert_allclose([a.get_ydata() for a in axis.lines], [a.get_ydata() for a in other.lines])


# plot_traversal


def test_a_traversal_moves_one_latent_and_frames_its_start(rows):
    model = Linear()
    z = model.transform(rows)
    figure = plot_traversal(model, rows, image_shape=SHAPE, row=3, steps=7, span=(0.1, 0.9))
    (path,) = model.decoded
    path = path.reshape(2, 7, 2)
    frames = [patch.get_xy() for patch in figure.axes[0].patches]
    for i, (line, own) in enumerate(zip(images_of(figure), path, strict=True)):
        np.testing.assert_allclose(line, as_seen(0.5 + own @ MAP))
        np.testing.assert_allclose(own[:, 1 - i], z[3, 1 - i])
        at = np.argmin(np.abs(own[:, i] - z[3, i]))
        np.testing.assert_allclose(line[at], as_seen(rows[3])[0])  # the map is exact
        image = figure.axes[0].images[7 * i + at]
        assert frames[i] == pytest.approx((image.get_extent()[0], image.get_extent()[3]))
        even = np.linspace(*np.quantile(z[:, i], (0.1, 0.9)), 7)
        np.testing.assert_allclose(np.delete(own[:, i], at), np.delete(even, at))
        assert abs(even[at] - z[3, i]) == np.abs(even - z[3, i]).min()
        assert names_of(figure)[i] == f"latent {i}: {own[0, i]:.3g} to {own[-1, i]:.3g}"


def test_a_traversal_starts_from_the_row_closest_to_the_medians(rows):
    model = Linear()
    z = model.transform(rows)
    plot_traversal(model, rows, image_shape=SHAPE, latents=[1])
    (path,) = model.decoded
    off = ((z - np.median(z, axis=0)) / z.std(0)) ** 2
    np.testing.assert_allclose(path[:, 0], z[off.sum(1).argmin(), 0])
    assert len(path) == 9


def test_of_many_latents_those_that_change_x_most_are_traversed():
    class Diagonal:
        sizes = np.array([5, 0, 4, 3, 0.1, 2, 2, 2, 2, 2, 2, 2, 2, 2])

        def transform(self, X):
            return X

        def inverse_transform(self, Z):
            return Z * self.sizes

    X = np.tile(SEED(0).normal(size=(50, 1)), 14)
    figure = plot_traversal(Diagonal(), X, image_shape=(2, 7))
    assert [name.split(":")[0] for name in names_of(figure)] == [f"latent {i}" for i in range(14) if i not in (1, 4)]
    assert "The 12 of 14 latents" in caption_of(figure)
    assert "clipped" in caption_of(figure)
    figure = plot_traversal(Diagonal(), X)
    assert len(figure.axes) == 12
    assert len(figure.legends[0].texts) == 9
    assert figure.legends[0].texts[-1].get_text() == "6 others"
    assert len(plot_traversal(Diagonal(), X, latents=range(14)).axes) == 14


def test_a_traversal_of_a_table_is_a_curve_per_column(rows):
    model = Linear()
    figure = plot_traversal(model, rows, row=5)
    z = model.transform(rows)
    path = model.decoded[0].reshape(2, 9, 2)
    names = {to_hex(h.get_color()): t.get_text() for h, t in zip(*legend_parts(figure), strict=True)}
    assert sorted(names.values()) == [f"column {j}" for j in range(6)]
    for i, axis in enumerate(figure.axes):
        *curves, start = axis.lines
        assert start.get_xdata() == pytest.approx([z[5, i]] * 2)
        for curve in curves:
            j = int(names[to_hex(curve.get_color())][-1])
            np.testing.assert_allclose(curve.get_xdata(), path[i, :, i])
            expected = (0.5 + path[i] @ MAP - rows.mean(0)) / rows.std(0)
            np.testing.assert_allclose(curve.get_ydata(), expected[:, j])


def legend_parts(figure):
    (legend,) = figure.legends
    return legend.legend_handles, legend.texts


# plot_latents


def cloud_of(axis):
    (points,) = axis.collections
    return np.asarray(points.get_offsets()), [to_hex(colour) for colour in points.get_facecolors()]


def test_latents_have_the_colour_of_their_label_and_components_that_of_most_of_their_rows():
    rng = SEED(0)
    tilt = np.array([[2.0, 0.9], [0.9, 1.0]])
    law = Mixture([0.3, 0.3, 0.3, 0.1], MEANS, np.stack([tilt] * 4))
    component = rng.integers(3, size=300)
    z = MEANS[component] + rng.multivariate_normal([0, 0], tilt, size=300)
    names, labels = np.array(["c", "a", "b"]), component.copy()
    labels[:10] = 0  # some are labelled otherwise than they lie
    figure = plot_latents(z, names[labels], mixture=law)
    (axis,) = figure.axes
    handles, texts = legend_parts(figure)
    colours = {text.get_text(): to_hex(handle.get_color()) for handle, text in zip(handles, texts, strict=True)}
    assert list(colours) == ["a", "b", "c", "2 sd"]
    points, drawn = cloud_of(axis)
    for k, name in enumerate(names):
        own = points[[c == colours[name] for c in drawn]]
        np.testing.assert_allclose(np.sort(own, axis=0), np.sort(z[labels == k], axis=0))
    assert [to_hex(line.get_color()) for line in axis.lines] == [colours[name] for name in names]  # three of four
    for k, line in enumerate(axis.lines):
        off = line.get_xydata() - MEANS[k]
        np.testing.assert_allclose(np.einsum("ij,ij->i", off, np.linalg.solve(tilt, off.T).T), 4)


def test_without_labels_rows_belong_to_their_most_probable_component():
    z = MEANS[[0, 0, 2, 1]] + 0.1
    figure = plot_latents(z, mixture=LAW)
    assert [text.get_text() for text in figure.legends[0].texts] == ["0", "1", "2", "2 sd"]
    assert len(figure.axes[0].lines) == 3
    assert not plot_latents(z).legends
    assert len(set(cloud_of(plot_latents(z).axes[0])[1])) == 1


def test_several_runs_stand_side_by_side():
    rng = SEED(0)
    runs, labels = rng.normal(size=(3, 50, 2)), rng.integers(4, size=50)
    figure = plot_latents(runs, labels, mixture=[LAW, LAW, LAW])
    assert [axis.get_title() for axis in figure.axes] == ["run 0", "run 1", "run 2"]
    for axis, run in zip(figure.axes, runs, strict=True):
        np.testing.assert_allclose(np.sort(cloud_of(axis)[0], axis=0), np.sort(run, axis=0))
    own = plot_latents(list(runs), [labels, labels.astype(str), labels], titles=["a", "b", "c"])
    assert [axis.get_title() for axis in own.axes] == ["a", "b", "c"]
    assert len(own.legends[0].texts) == 4


def test_pairs_of_many_latents_are_drawn_and_named():
    z = SEED(0).normal(size=(40, 5))
    assert [(a.get_xlabel(), a.get_ylabel()) for a in plot_latents(z).axes] == [
        ("latent 0", "latent 1"),
        ("latent 0", "latent 2"),
        ("latent 1", "latent 2"),
    ]
    figure = plot_latents([z, z + 1], pairs=[(4, 0), (1, 3)])
    assert [a.get_xlabel() for a in figure.axes] == ["latent 4", "latent 4", "latent 1", "latent 1"]
    np.testing.assert_allclose(np.sort(cloud_of(figure.axes[3])[0], axis=0), np.sort(z[:, [1, 3]] + 1, axis=0))
    means = SEED(1).normal(size=(1, 5))
    law = Mixture([1.0], means, np.diag([1.0, 2, 3, 4, 5])[None])
    (axis,) = plot_latents(z, mixture=law, pairs=[(4, 1)]).axes
    np.testing.assert_allclose(np.ptp(axis.lines[0].get_xydata(), axis=0), 4 * np.sqrt([5, 2]), rtol=1e-2)
    np.testing.assert_allclose(axis.lines[0].get_xydata()[:-1].mean(0), means[0, [4, 1]])


def test_a_single_latent_is_a_histogram_per_label():
    z, labels = SEED(0).normal(size=(400, 1)), np.repeat([0, 1], [100, 300])
    (axis,) = plot_latents(z, labels, mixture=Mixture([0.5, 0.5], [[0], [1]], [[1], [4]])).axes
    areas = [abs(shoelace(patch.get_xy())) for patch in axis.patches]
    assert areas == pytest.approx([0.25, 0.75])
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("latent 0", "density")
    np.testing.assert_allclose(axis.lines[0].get_ydata().max(), 0.5 / np.sqrt(2 * np.pi), rtol=1e-2)


def shoelace(corners):
    x, y = corners.T
    return 0.5 * np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))


# images of any kind


@pytest.mark.parametrize(("shape", "seen"), [((8, 6), (8, 6)), ((8, 6, 1), (8, 6)), ((4, 4, 3), (4, 4, 3))])
@pytest.mark.parametrize("where", ["asked for", "in the rows", "in the model"])
def test_where_the_shape_of_images_comes_from(shape, seen, where):
    class Identity:
        def transform(self, X):
            return np.reshape(X, (len(X), -1))

        def inverse_transform(self, Z):
            return Z

    model, X = Identity(), SEED(0).uniform(size=(5, 48))
    if where == "in the model":
        model.image_shape_ = shape
    rows = X.reshape(5, *shape) if where == "in the rows" else X
    figure = plot_reconstructions(model, rows, image_shape=shape if where == "asked for" else None)
    first = np.concatenate(images_of(figure))[::2]
    np.testing.assert_array_equal(first, X.reshape(5, *seen))
    assert "clipped" not in caption_of(figure)


def test_decoded_images_are_seen_as_such(rows):
    class Decoder(Linear):
        def inverse_transform(self, Z):
            return super().inverse_transform(Z).reshape(-1, *SHAPE)

    assert [len(line) for line in images_of(plot_cluster_samples(Decoder()))] == [10] * 4
    assert [len(line) for line in images_of(plot_reconstructions(Decoder(), rows))] == [8] * 3
    assert [len(line) for line in images_of(plot_traversal(Decoder(), rows))] == [9] * 2


def test_fitted_models_are_drawn():
    digits, wheel = load_digits(), make_pinwheel(300)
    vae = VAE(n_latents=2, n_restarts=1, likelihood="bernoulli", max_steps=5, random_state=0, verbose=0).fit(digits.x)
    assert len(images_of(plot_reconstructions(vae, digits.x, image_shape=(8, 8)))) == 7
    assert len(images_of(plot_traversal(vae, digits.x, image_shape=(8, 8)))) == 2
    flow = GMMFlow(
        n_components=3, n_restarts=1, depth=2, full_covariance_steps=5, max_steps=0, random_state=0, verbose=0
    )
    with pytest.raises(NotFittedError):
        plot_cluster_samples(flow)
    flow.fit(wheel.x)
    found = flow.predict(wheel.x)
    assert len(plot_cluster_samples(flow, wheel.x).axes) == len(np.unique(found))
    assert len(plot_cluster_samples(flow).axes) == 3
    assert len(plot_traversal(flow, wheel.x).axes) == 2
    figure = plot_latents(flow.transform(wheel.x), found, mixture=flow.mixture_)
    assert len(figure.axes[0].lines) == len(np.unique(found))


def inside(figure):
    """Everything drawn lies within the page, and no panels with their labels touch each other."""
    figure.draw_without_rendering()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    apart = [axis.get_tightbbox() for axis in figure.axes]
    within = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
    labels = [tick.get_window_extent() for tick in figure.axes[0].get_yticklabels() if tick.get_text()]
    crowded = [
        (i, j) for boxes in (apart, labels) for i, a in enumerate(boxes) for j in range(i) if a.overlaps(boxes[j])
    ]
    return within and not crowded and height < 20 and width < 20


def test_nothing_is_cut_off_and_nothing_overlaps(rows):
    rng = SEED(0)
    wide = rng.uniform(size=(200, 40))

    class Many:
        mixture_ = Mixture(np.full(60, 1 / 60), rng.normal(size=(60, 3)), np.ones((60, 3)))

        def __init__(self, names=None):
            if names is not None:
                self.feature_names_in_ = names

        def transform(self, X):
            return X[:, :3]

        def inverse_transform(self, Z):
            return np.tile(Z, 14)[:, :40] / 4 + 0.5

        def predict(self, X):
            return np.arange(len(X)) % 60

    names = np.array([f"a long name of column {j}" for j in range(6)])
    linear = Linear()
    linear.feature_names_in_ = names
    pictures = [
        plot_cluster_samples(Many(), wide, image_shape=(8, 5), samples=4),
        plot_cluster_samples(Many(), wide, image_shape=(8, 5), most=60, samples=2),
        plot_cluster_samples(Many(), image_shape=(8, 5), samples=1, most=1),
        plot_cluster_samples(Many(), wide, most=7, samples=2),
        plot_cluster_samples(linear, rows),
        plot_reconstructions(linear, rows),
        plot_reconstructions(Many(), wide, image_shape=(2, 20), pairs=2),
        plot_reconstructions(WithoutClusters(), rows, pairs=12),
        plot_traversal(Many(), wide, image_shape=(8, 5), row=3),
        plot_traversal(linear, rows),
        plot_traversal(Many(), wide, latents=[1]),
        plot_latents(wide[:, :3], mixture=Many.mixture_),
        plot_latents(list(rng.normal(size=(7, 50, 2))), rng.integers(30, size=50)),
        plot_latents(wide[:, :1], np.arange(200) % 3),
    ]
    assert [inside(figure) for figure in pictures] == [True] * len(pictures)


ROWS = SEED(0).uniform(size=(20, 6))
HOLE = np.where(np.arange(20)[:, None] == 7, np.nan, ROWS)


class OnlyDecodes:
    def inverse_transform(self, Z):
        return Z


class Fitted(Linear):
    n_features_in_ = 6


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: plot_cluster_samples(Linear(), HOLE), "X must be finite, got NaN or infinity in row 7"),
        (lambda: plot_cluster_samples(Linear(), ROWS[:0]), r"X must have rows: .* got shape \(0, 6\)"),
        (lambda: plot_cluster_samples(Linear(), ROWS[0]), r"X must have rows: .* got shape \(6,\)"),
        (lambda: plot_cluster_samples(Linear(), ROWS.astype(str).astype(object) + "a"), "X must be numbers"),
        (lambda: plot_cluster_samples(Fitted(), ROWS[:, :5]), "X must have the 6 columns Fitted was fitted to"),
        (lambda: plot_cluster_samples(Linear(), ROWS, samples=0), "samples must be an integer of at least 1, got 0"),
        (lambda: plot_cluster_samples(Linear(), ROWS, most=1.5), "most must be an integer of at least 1, got 1.5"),
        (
            lambda: plot_cluster_samples(Linear(), image_shape=(2, 2)),
            r"image_shape \(2, 2\) has 4 values, but .* has 6",
        ),
        (lambda: plot_cluster_samples(Linear(), image_shape=(6,)), r"image_shape must be \(h, w\)"),
        (lambda: plot_cluster_samples(Linear(), image_shape=()), r"image_shape must be \(h, w\)"),
        (lambda: plot_cluster_samples(Linear(), image_shape=(1, 3, 2)), "with 1 or 3 channels"),
        (lambda: plot_cluster_samples(Linear(), facet=0), "Linear has no mixtures_: leave it out"),
        (lambda: plot_cluster_samples(Facets(), facet=2), "facet must be one of the 2 facets of Facets, .* got 2"),
        (lambda: plot_cluster_samples(Sampler()), "Sampler has no mixture_ that tells its clusters: pass X"),
        (lambda: plot_cluster_samples(OnlyDecodes(), ROWS), r"OnlyDecodes has no predict_proba\(\) and no predict\(\)"),
        (
            lambda: plot_cluster_samples(type("Mute", (), {"predict": Sampler.predict})(), ROWS),
            "Mute cannot draw from one cluster: it needs mixture_ and",
        ),
        (
            lambda: plot_cluster_samples(type("Noise", (), {"predict": lambda self, X: -np.ones(20, int)})(), ROWS),
            r"predict\(X\) must be numbers of clusters, 0, 1, ..., got -1",
        ),
        (lambda: plot_reconstructions(OnlyDecodes(), ROWS), r"OnlyDecodes has no transform\(\), which plot_reconst"),
        (lambda: plot_reconstructions(Sampler(), ROWS), r"has no transform\(\) and no inverse_transform\(\), which"),
        (lambda: plot_reconstructions(Linear(), HOLE), "X must be finite"),
        (lambda: plot_reconstructions(Linear(), ROWS, pairs=0), "pairs must be an integer of at least 1"),
        (lambda: plot_reconstructions(Linear(), ROWS, image_shape=(3, 3)), r"\(3, 3\) has 9 values, but a row of X"),
        (lambda: plot_traversal(OnlyDecodes(), ROWS), r"has no transform\(\), which plot_traversal needs"),
        (lambda: plot_traversal(Linear(), HOLE), "X must be finite"),
        (lambda: plot_traversal(Linear(), ROWS, latents=[2]), "latents must be different numbers from 0 to 1, got 2"),
        (lambda: plot_traversal(Linear(), ROWS, latents=[0, 0]), "latents must be different numbers"),
        (lambda: plot_traversal(Linear(), ROWS, latents=[]), "latents must be different numbers"),
        (lambda: plot_traversal(Linear(), ROWS, steps=1), "steps must be an integer of at least 2, got 1"),
        (lambda: plot_traversal(Linear(), ROWS, row=20), "row must be a row of X, 0 to 19, got 20"),
        (lambda: plot_traversal(Linear(), ROWS, span=(0.9, 0.1)), "span must be two quantiles"),
        (lambda: plot_traversal(Linear(), ROWS, image_shape=(2, 2)), "has 4 values, but a row of"),
        (lambda: plot_latents(ROWS[:, 0]), "Z must be 2-D"),
        (lambda: plot_latents([]), "Z must be 2-D"),
        (lambda: plot_latents(HOLE), "Z must be finite, got nan at row 7"),
        (lambda: plot_latents([ROWS, HOLE]), r"Z\[1\] must be finite"),
        (lambda: plot_latents([ROWS, ROWS[:, :2]]), "same number of latents, got 6, 2"),
        (lambda: plot_latents(ROWS, np.arange(19)), "Z has 20, component has 19"),
        (lambda: plot_latents(ROWS, HOLE[:, 0]), "component must have a finite value in every row"),
        (lambda: plot_latents([ROWS] * 3, [np.arange(20)] * 2), "one for each of the 3 tables, got 2"),
        (lambda: plot_latents(ROWS, mixture=LAW), "mixture must be of the 6 latents of Z, got one of 2"),
        (lambda: plot_latents(ROWS[:, :2], mixture=[LAW, LAW]), "one for each of the 1 tables of Z, got 2"),
        (lambda: plot_latents(ROWS, titles=["a", "b"]), "titles must name each of the 1 tables of Z, got 2"),
        (lambda: plot_latents(ROWS, pairs=[(0, 6)]), r"two different latents from 0 to 5, got \(0, 6\)"),
        (lambda: plot_latents(ROWS, pairs=[(1, 1)]), "two different latents"),
        (lambda: plot_latents(ROWS, pairs=[]), "at least one pair"),
        (lambda: plot_latents(ROWS[:, :1], pairs=[(0, 0)]), "pairs must be left out: Z has a single latent"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, words):
    with pytest.raises(DataError, match=words):
        draw()
