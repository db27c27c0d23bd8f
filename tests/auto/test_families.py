"""Models of a family: their components come from the rows they are fitted to, and a Gaussian is their yardstick."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.decomposition import FactorAnalysis

from fake_models import family
from identifiable import SegmentUnmixing
from identifiable.auto.families import FAMILIES, NAMES, ProjectedModel, principal_components
from identifiable.data import make_segments


@pytest.fixture
def y():
    rng = np.random.default_rng(0)
    return rng.normal(size=(500, 6)) * [5, 4, 3, 0.2, 0.1, 0.1] @ np.linalg.qr(rng.normal(size=(6, 6)))[0]


def test_principal_components_are_uncorrelated_and_ordered(y):
    variances, axes = principal_components(y)
    np.testing.assert_allclose(np.cov((y @ axes).T), np.diag(variances), atol=1e-10)
    assert (np.diff(variances) < 0).all()


@pytest.mark.parametrize(("n", "wide", "width"), [(6, False, 6), (2, False, 2), (2, True, 3), (5, True, 5)])
def test_width_of_the_projection(y, n, wide, width):
    """A wide family is given the components that hold most of the variance, and at least one per latent."""
    model = ProjectedModel(replace(family(), wide=wide), n).fit(y)
    assert model.directions_.shape == (6, width)
    assert model.transform(y).shape == (500, n)
    if width < 6:
        np.testing.assert_allclose(model.directions_, principal_components(y)[1][:, :width])


def test_gains_are_above_a_gaussian_with_as_many_latents(y):
    train, held = y[:400], y[400:]
    full = ProjectedModel(family(gain=0.7), 6).fit(train)
    np.testing.assert_allclose(full.gains((train,), (held,)), 0.7)
    wide = ProjectedModel(replace(family(gain=0.7), wide=True), 2).fit(train)
    seen, new = train @ wide.directions_, held @ wide.directions_
    exact = multivariate_normal(seen.mean(0), np.cov(seen.T)).logpdf(new) + 0.7
    expected = exact - FactorAnalysis(2, random_state=0).fit(seen).score_samples(new)
    np.testing.assert_allclose(wide.gains((train,), (held,)), expected)


def test_options_and_seed_reach_the_estimator(y):
    model = ProjectedModel(family(), 2, {"gain": 3.0}).with_options({"max_steps": 1})
    fitted = clone(model).set_params(random_state=5).fit(y)
    assert (fitted.model_.seed, fitted.model_.gain, fitted.model_.max_steps) == (5, 3.0, 1)


def test_u_is_passed_to_families_that_need_it():
    s = make_segments(600, n=2, segments=8, layers=1, random_state=0)
    model = ProjectedModel(FAMILIES[NAMES.index("SegmentUnmixing")], 2, {"n_restarts": 1}).fit(s.x, s.u)
    expected = SegmentUnmixing(2, n_restarts=1, random_state=0).fit(s.x, s.u)
    np.testing.assert_allclose(model.transform(s.x), expected.transform(s.x))
    gains = model.gains((s.x, s.u), (s.x, s.u))
    gaussian = multivariate_normal(s.x.mean(0), np.cov(s.x.T)).logpdf(s.x)
    np.testing.assert_allclose(gains, expected.score_samples(s.x, s.u) - gaussian)


def test_every_family_builds_its_estimator_with_its_steps():
    for one in FAMILIES:
        steps = {} if one.linear else one.steps(2)
        model = one.build(2, random_state=0, verbose=0, device="cpu", **steps)
        assert (type(model).__name__, model.n_latents) == (one.name, 2)
        assert all(getattr(model, name) == count for name, count in steps.items())


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_wide_family_is_fitted_to_more_columns_than_latents(y):
    options = {"n_restarts": 1, "pretrain_steps": 3, "max_steps": 3}
    model = ProjectedModel(FAMILIES[NAMES.index("VaDE")], 2, options).fit(y)
    assert (model.model_.n_features_in_, model.transform(y).shape) == (3, (500, 2))
    assert np.isfinite(model.gains((y,), (y,))).all()
