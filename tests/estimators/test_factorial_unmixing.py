"""Factorial unmixing against mixtures of known latents."""

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from identifiable import FactorialUnmixing, IndependentComponents, Level, Mixture, RecoveryWarning, load, save
from identifiable.data import make_gmm
from identifiable.metrics import mcc, r2


@pytest.fixture(scope="module")
def affine():
    sample = make_gmm(10_000, n=4, components=6, layers=1, random_state=0)
    return sample, sample.source.sample(3000, random_state=1)


@pytest.fixture(scope="module")
def fitted(affine):
    return FactorialUnmixing(n_restarts=2, random_state=0).fit(affine[0].x)


def test_latents_are_recovered_from_rows(affine, fitted):
    _, new = affine
    assert mcc(new.z, fitted.transform(new.x)) > 0.99
    assert mcc(new.z, IndependentComponents(random_state=0).fit(new.x).transform(new.x)) < 0.95
    assert len(fitted.mixture_.weights) == 6
    assert fitted.blocks_ == ()
    assert fitted.fit_status_ == "stable"


def test_the_certificate_is_that_of_the_theorem(fitted):
    certificate = fitted.certificate_
    assert certificate["P2 ratios"].verdict == "holds"
    assert certificate.if_undecided_hold == Level.PS
    assert certificate["agreement"].verdict == "holds"


def test_density_is_that_of_the_mixture_of_x(affine, fitted):
    _, new = affine
    of_x = fitted.mixture_.pushforward(fitted.mixing_, fitted.mean_)
    densities = [
        w * multivariate_normal(m, c).pdf(new.x[:50])
        for w, m, c in zip(of_x.weights, of_x.means, of_x.covariances, strict=True)
    ]
    np.testing.assert_allclose(fitted.score_samples(new.x[:50]), np.log(np.sum(densities, axis=0)), rtol=1e-6)
    share = np.array(densities).T / np.sum(densities, axis=0)[:, None]
    np.testing.assert_allclose(fitted.predict_proba(new.x[:50]), share, atol=1e-8)
    np.testing.assert_array_equal(fitted.predict(new.x[:50]), share.argmax(1))


def test_draws_have_the_moments_of_the_rows(affine, fitted):
    sample, _ = affine
    x = fitted.sample(40_000, random_state=0)
    np.testing.assert_allclose(x.mean(0), sample.x.mean(0), atol=0.05)
    np.testing.assert_allclose(np.cov(x.T), np.cov(sample.x.T), atol=0.1)


def test_a_file_gives_the_same_model(fitted, affine, tmp_path):
    save(fitted, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    x = affine[1].x[:100]
    np.testing.assert_array_equal(again.transform(x), fitted.transform(x))
    np.testing.assert_allclose(again.score_samples(x), fitted.score_samples(x), rtol=1e-12)
    assert str(again.certificate_) == str(fitted.certificate_)


def test_more_columns_and_noise():
    """Three latents in eight noisy columns: the noise is seen outside their subspace, and allowed for inside."""
    rng = np.random.default_rng(6)
    scales = rng.uniform(0.3, 1.5, size=(5, 3))
    rows, _ = Mixture(np.full(5, 0.2), rng.uniform(-3, 3, size=(5, 3)), scales**2).sample(20_000, rng)
    x = rows @ rng.normal(size=(3, 8)) + 0.2 * rng.normal(size=(20_000, 8))
    model = FactorialUnmixing(3, n_components=5, n_restarts=1, random_state=0).fit(x)
    assert model.noise_.trace() > 0
    assert r2(rows, model.transform(x)) > 0.9
    assert mcc(rows, model.transform(x)) > 0.98
    assert np.isfinite(model.score(x))
    np.testing.assert_allclose(model.transform(model.inverse_transform(rows[:5])), rows[:5], atol=1e-8)


def test_one_gaussian_tells_nothing():
    x = np.random.default_rng(7).normal(size=(2000, 3))
    with pytest.warns(RecoveryWarning, match="all latents"):
        model = FactorialUnmixing(n_restarts=1, random_state=0).fit(x)
    assert len(model.mixture_.weights) == 1
    assert model.certificate_.level <= Level.AT


def test_dependent_components_are_not_called_independent():
    sample = make_gmm(20_000, n=3, components=5, factorial=False, layers=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        model = FactorialUnmixing(n_components=5, n_restarts=2, random_state=0).fit(sample.x)
    certificate = model.certificate_
    assert certificate["P2 factorial"].verdict == "fails"
    assert certificate.if_undecided_hold <= Level.AT


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_components": 0}, "n_components"),
        ({"noise": -1.0}, "'noise' parameter"),
        ({"tol": 0}, "'tol' parameter"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"n_components": 1000}, "at least as many rows as components"),
        ({"n_latents": 4}, "n_latents=4, rank=3"),
    ],
)
def test_bad_parameters(options, words):
    x = np.random.default_rng(0).normal(size=(200, 3))
    with pytest.raises(ValueError, match=words):
        FactorialUnmixing(**options).fit(x)


def test_bent_data_get_no_level():
    """x = (z_0, z_1 + z_0², z_2): no affine map makes these independent within components."""
    rng = np.random.default_rng(3)
    mixture = Mixture([0.4, 0.3, 0.3], 3 * rng.normal(size=(3, 3)), rng.uniform(0.3, 2, size=(3, 3)))
    z = mixture.sample(6000, rng)[0]
    bent = z + np.c_[np.zeros(6000), z[:, 0] ** 2, np.zeros(6000)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        certificate = FactorialUnmixing(n_components=3, n_restarts=2, random_state=0).fit(bent).certificate_
    assert certificate.level == Level.NONE
    assert certificate["fit"].verdict == "fails"


def test_two_components_in_one_hide_proportional_variances():
    """Together two components with proportional variances have some that are not; they must be noticed."""
    rng = np.random.default_rng(101)
    scales = np.array([[1.7, 3.4, 2.8], [1.9, 3.8, 1.4], [2.1, 4.2, 1.8], [1.4, 2.8, 1.1]])
    means = np.array([[-2.4, -6.1, 1.9], [2.2, -1.1, 1.2], [5.1, 3.1, 2.1], [2.0, -2.5, 2.9]])
    x = Mixture(np.full(4, 0.25), means, scales**2).sample(10_000, rng)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        certificate = FactorialUnmixing(n_components=3, n_restarts=2, random_state=0).fit(x).certificate_
    assert certificate["components"].verdict == "inconclusive"
    assert certificate.level == Level.NONE
