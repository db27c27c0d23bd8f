import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from identifiable import GMMFlow
from identifiable.errors import DataError
from identifiable.report.plots import models

from .fake_models import MAP, MEANS, MIXTURE, Facets, Linear, Sampler, WithoutClusters, rows

ROWS = np.random.default_rng(0).uniform(size=(20, 6))
HOLE = np.where(np.arange(20)[:, None] == 7, np.nan, ROWS)


def test_clusters_are_sorted_by_confidence():
    found = models.clusters_of(Linear(), rows(), MIXTURE, None, 2)
    assert found.order.tolist() == [2, 1]
    assert found.names == ["cluster 2, 20.0 %, p 0.90", "cluster 1, 30.0 %, p 0.80"]
    assert "first 2 of 3" in found.caption
    assert "1 of 4 clusters have no row" in found.caption
    np.testing.assert_array_equal(found.labels, np.repeat([0, 1, 2], [50, 30, 20]))


def test_clusters_without_probabilities_are_sorted_by_share():
    found = models.clusters_of(Sampler(), ROWS, None, None, 9)
    shares = np.bincount(Sampler().predict(ROWS), minlength=3)
    assert shares[found.order].tolist() == sorted(shares[[0, 2]], reverse=True)
    assert found.names == [f"cluster {k}, {5 * shares[k]:.1f} %" for k in found.order]
    assert "1 of 3 clusters have no row" in found.caption


def test_clusters_without_rows_are_sorted_by_weight():
    found = models.clusters_of(Facets(), None, Facets.mixtures_[1], 1, 9)
    assert found.names == ["cluster 0, 50.0 %", "cluster 1, 50.0 %", "cluster 2, 0.0 %"]
    assert found.caption.startswith("Facet 1.")
    assert models.clusters_of(Linear(), None, MIXTURE, None, 9).order.tolist() == [3, 2, 0, 1]


def test_samples_are_decoded_from_the_latents_of_their_cluster():
    model = Linear()
    found = {k: models.samples_of(model, MIXTURE, k, 500, None, 0) for k in (0, 2)}
    for (k, x), z in zip(found.items(), model.decoded, strict=True):
        np.testing.assert_allclose(x, 0.5 + z @ MAP)
        np.testing.assert_allclose(z.mean(0), MEANS[k], atol=0.2)
        np.testing.assert_allclose(np.cov(z.T), np.eye(2), atol=0.3)
    assert not np.allclose(model.decoded[0] - MEANS[0], model.decoded[1] - MEANS[2])  # each has its own noise
    np.testing.assert_array_equal(models.samples_of(model, MIXTURE, 2, 500, None, 0), found[2])


def test_other_facets_follow_their_own_mixture():
    model = Facets()
    for k in (0, 1):
        models.samples_of(model, model.mixtures_[0], k, 50, 0, 0)
        assert np.abs(model.decoded[-1][:, :2] - 100 * k).max() < 10  # the cluster
        assert {*np.round(model.decoded[-1][:, 2] / 100)} == {0, 1}  # all clusters with weight


def test_a_model_without_mixture_samples_itself():
    class OfFacets(Sampler):
        def sample(self, n, component, facet, random_state):
            return np.full((n, 4), [component, facet, 0, 0])

    x = models.samples_of(Sampler(), None, 2, 10, None, 0)
    assert np.all(np.abs(x - 0.65) <= 0.05)
    assert models.samples_of(OfFacets(), None, 2, 3, 1, 0).tolist() == [[2, 1, 0, 0]] * 3
    with pytest.raises(DataError, match="Linear"):
        models.samples_of(Linear(), None, 0, 3, None, 0)


def test_facets_and_mixtures_of_models():
    assert [models.facet_of(Facets(), facet) for facet in (None, 1)] == [0, 1]
    assert models.facet_of(Linear(), None) is None
    assert models.mixture_of(Linear(), None) is MIXTURE
    assert models.mixture_of(Facets(), 1) is Facets.mixtures_[1]
    assert models.mixture_of(Sampler(), None) is None
    with pytest.raises(NotFittedError):
        models.mixture_of(GMMFlow(), None)
    for model, facet in ((Facets(), 2), (Facets(), "a"), (Linear(), 0)):
        with pytest.raises(DataError, match="facet"):
            models.facet_of(model, facet)


@pytest.mark.parametrize(
    ("model", "X"),
    [
        (Sampler(), None),
        (WithoutClusters(), ROWS),
        (type("Negative", (), {"predict": lambda self, X: -np.ones(20, int)})(), ROWS),
        (type("Fractions", (), {"predict": lambda self, X: np.full(20, 0.5)})(), ROWS),
    ],
)
def test_models_without_clusters_are_refused(model, X):
    with pytest.raises(DataError, match=r"predict|mixture_"):
        models.clusters_of(model, X, None, None, 9)


def test_missing_methods_are_named():
    models.require(Linear(), "figure", "transform")
    with pytest.raises(DataError, match=r"transform\(\) and no inverse_transform\(\)"):
        models.require(Sampler(), "figure", "transform", "sample", "inverse_transform")
    assert [models.has(Sampler(), name) for name in ("predict", "transform")] == [True, False]


class Fitted(Linear):
    n_features_in_ = 6


@pytest.mark.parametrize("X", [HOLE, ROWS[:0], ROWS[0], ROWS.astype(str).astype(object) + "a", ROWS[:, :5]])
def test_rows_must_be_finite_and_of_the_width_of_the_model(X):
    with pytest.raises(DataError, match="X must"):
        models.rows_of(Fitted(), X)
    np.testing.assert_array_equal(models.rows_of(Fitted(), ROWS.tolist()), ROWS)
    assert models.rows_of(Fitted(), ROWS.reshape(20, 2, 3)).shape == (20, 2, 3)


def test_rows_are_taken_by_position():
    frame = pd.DataFrame({"a": [1, 2, 3]}, index=[2, 1, 0])
    assert models.take(frame, np.array([0, 2])).a.tolist() == [1, 3]
    assert models.take([[1], [2]], np.array([1])).tolist() == [[2]]


def test_long_column_names_are_shortened():
    model = Linear()
    assert models.column_names(model) is None
    model.feature_names_in_ = np.array(["a", "a very long name indeed"])
    assert models.column_names(model) == ["a", "a very long name …"]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1)])
def test_the_shape_of_images_is_given_or_that_of_model_rows_or_decoder(shape):
    model, images = Linear(), ROWS.reshape(20, *shape)
    assert models.image_shape_of(None, model, ROWS, ROWS) is None
    assert models.image_shape_of(None, model, ROWS, images) == shape
    assert models.image_shape_of(None, model, images, ROWS) == shape
    assert models.image_shape_of([2, 3], model, images, ROWS) == (2, 3)
    model.image_shape_ = (3, 2)
    assert models.image_shape_of(None, model, images, images) == (3, 2)
    assert models.as_images("X", images, shape).shape == (20, 2, 3)
    assert models.as_images("X", np.zeros((5, 12)), (2, 2, 3)).shape == (5, 2, 2, 3)


@pytest.mark.parametrize("shape", [(6,), (), (1, 3, 2), (2, 3.0)])
def test_shapes_that_are_no_image_are_refused(shape):
    with pytest.raises(DataError, match="image_shape"):
        models.image_shape_of(shape, Linear(), ROWS, ROWS)
    with pytest.raises(DataError, match="4 values"):
        models.as_images("X", ROWS, (2, 2))
