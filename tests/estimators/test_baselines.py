"""The linear baselines: raw columns, principal components and FastICA."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from identifiable import DataError, FastICABaseline, IndependentComponents, PrincipalComponents, RawData, baselines
from identifiable.metrics import mcc


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    return rng.laplace(size=(2000, 3)) @ rng.normal(size=(3, 4)) + 0.3 * rng.normal(size=(2000, 4)) * [1, 2, 3, 4] + 5


@pytest.mark.parametrize("model", [RawData(2), PrincipalComponents(2), FastICABaseline(2, random_state=0)])
def test_density_is_that_of_probabilistic_pca(model, x):
    """The covariance of the two leading components of standardised columns, and isotropic noise."""
    values, vectors = np.linalg.eigh(np.corrcoef(x.T))
    values[:2] = values[:2].mean()
    covariance = (vectors * values) @ vectors.T * np.outer(x.std(0), x.std(0))
    expected = multivariate_normal(x.mean(0), covariance).logpdf(x)
    model.fit(x)
    np.testing.assert_allclose(model.score_samples(x), expected)
    assert model.score(x) == pytest.approx(expected.mean())
    drawn = model.sample(100_000, random_state=0)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.03 * covariance.max())


def test_raw_data_are_the_columns_of_largest_variance(x):
    columns = np.sort(np.argsort(x.var(0))[-2:])
    np.testing.assert_allclose(RawData(2).fit(x).transform(x), (x - x.mean(0))[:, columns])


def test_principal_components_are_white_and_invertible(x):
    model = PrincipalComponents().fit(x)
    z = model.transform(x)
    np.testing.assert_allclose(np.cov(z.T, ddof=0), np.eye(4), atol=1e-9)
    np.testing.assert_allclose(model.inverse_transform(z), x, atol=1e-9)
    first = PrincipalComponents(1).fit(x).transform(x)
    assert mcc(first, z[:, :1]) > 1 - 1e-9
    directions = model.components_ * x.std(0)
    assert (directions.max(1) >= -directions.min(1)).all()


def test_independent_components_are_found():
    rng = np.random.default_rng(1)
    z = rng.laplace(size=(5000, 3))
    x = z @ rng.normal(size=(3, 3))
    model = FastICABaseline(random_state=0).fit(x)
    assert mcc(z, model.transform(x)) > 0.98
    assert model.fit_status_ == "stable"
    assert model.stability_.pairwise.shape == (4, 4)


def test_restarts_of_methods_without_randomness_agree(x):
    assert PrincipalComponents(n_restarts=3).fit(x).stability_.score == 1
    assert RawData().fit(x).fit_status_ == "unchecked"


def test_latents_beyond_the_rank_are_zero(x):
    x = np.c_[x, x @ [1.0, 2.0, 0.0, 0.0]]
    z = PrincipalComponents().fit(x).transform(x)
    assert z.shape == (2000, 5)
    assert (z[:, 4] == 0).all()
    with pytest.raises(DataError, match="n_latents=6"):
        PrincipalComponents(6).fit(x)


def test_the_old_name_of_fastica_still_works():
    assert IndependentComponents is FastICABaseline


def test_baselines_by_name():
    assert {name: model.n_latents for name, model in baselines(3).items()} == {
        "raw x": None, "PCA": 3, "FastICA": 3, "SparseUnmixing": 3}  # fmt: skip
