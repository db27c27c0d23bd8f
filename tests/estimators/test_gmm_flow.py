"""GMMFlow: the likelihood is exact, and the latents of a nonlinear mixture are recovered without u."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from identifiable import FactorialUnmixing, GMMFlow, Level
from identifiable.data import make_gmm, make_tcl
from identifiable.metrics import mcc, r2

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")

QUICK = {"n_restarts": 2, "n_components": 4, "depth": 4, "full_covariance_steps": 30, "max_steps": 30, "verbose": 0}
FLOWS = ["leaky", "softplus", "autoregressive"]


@pytest.fixture(scope="module")
def sample():
    return make_gmm(3000, n=2, components=4, layers=3, slopes=0.3, random_state=0)


@pytest.fixture(scope="module", params=FLOWS)
def quick(request, sample):
    return GMMFlow(**QUICK, flow=request.param, random_state=0).fit(sample.x)


def test_the_density_is_that_of_the_latents_and_the_jacobian(quick, sample):
    x, step = sample.x[:20], 1e-5
    z = quick.transform(x)
    jacobian = np.stack(
        [(quick.transform(x + step * e) - quick.transform(x - step * e)) / (2 * step) for e in np.eye(2)]
    )
    log_det = np.linalg.slogdet(jacobian.transpose(1, 0, 2))[1]
    mixture = quick.mixture_
    each = zip(mixture.weights, mixture.means, mixture.covariances, strict=True)
    joint = np.stack([w * multivariate_normal(m, c).pdf(z) for w, m, c in each], -1)
    np.testing.assert_allclose(quick.score_samples(x), np.log(joint.sum(1)) + log_det, atol=1e-3)
    np.testing.assert_allclose(quick.predict_proba(x), joint / joint.sum(1, keepdims=True), atol=1e-4)
    np.testing.assert_array_equal(quick.predict(x), quick.predict_proba(x).argmax(1))


def test_the_inverse_is_exact_and_latents_standard(quick, sample):
    z = quick.transform(sample.x)
    np.testing.assert_allclose(quick.inverse_transform(z), sample.x, atol=1e-6)
    np.testing.assert_allclose(z.std(0), 1, atol=0.05)
    np.testing.assert_allclose(z.mean(0), 0, atol=0.05)
    change = np.log(quick.mixture_.covariances.diagonal(axis1=1, axis2=2))
    variance = quick.mixture_.weights @ (change - quick.mixture_.weights @ change) ** 2
    assert (np.diff(variance) <= 1e-6).all()  # the latent whose variance changes most comes first


def test_samples_are_likely(quick, sample):
    drawn = quick.sample(2000, random_state=0)
    assert quick.score(drawn) == pytest.approx(quick.score(sample.x), abs=0.3)


def test_a_nonlinear_mixture_is_unmixed_better_than_by_a_linear_map():
    """The full training recovers 5 latents (docs/without_u.md); here a short one is well above the linear map."""
    sample = make_tcl(4000, n=2, segments=10, layers=3, random_state=0)
    new = sample.source.sample(3000, random_state=1)
    linear = FactorialUnmixing(n_components=12, n_restarts=1, random_state=0).fit(sample.x)
    steps = {"full_covariance_steps": 400, "max_steps": 400, "batch_size": 1024}
    model = GMMFlow(n_components=12, n_restarts=2, depth=8, random_state=0, verbose=0, **steps).fit(sample.x)
    assert mcc(new.z, model.transform(new.x)) > mcc(new.z, linear.transform(new.x)) + 0.03
    assert model.score(new.x) > linear.score(new.x) + 0.1


def test_full_covariances_identify_latents_up_to_an_affine_map():
    sample = make_gmm(4000, n=2, components=5, factorial=False, layers=3, slopes=0.3, random_state=0)
    options = QUICK | {"n_components": 8, "depth": 8, "full_covariance_steps": 300, "max_steps": 0, "batch_size": 512}
    model = GMMFlow(**options, random_state=0).fit(sample.x)
    assert model.module_.base.off is not None
    assert r2(sample.z, model.transform(sample.x)) > r2(sample.z, sample.x) + 0.015
    assert model.certificate_.level <= Level.AT


def test_fewer_latents_than_columns():
    sample = make_gmm(2000, n=2, components=4, layers=1, random_state=0)
    rng = np.random.default_rng(0)
    x = sample.x @ rng.normal(size=(2, 5)) + 0.05 * rng.normal(size=(2000, 5))
    model = GMMFlow(2, **QUICK, random_state=0).fit(x)
    assert model.transform(x).shape == (2000, 2)
    assert r2(x, model.inverse_transform(model.transform(x))) > 0.95
    noise = (x - model.inverse_transform(model.transform(x))) / model.coordinates_.scale
    draws = model.sample(4000, random_state=0)
    np.testing.assert_allclose(np.cov(draws.T), np.cov(x.T), atol=0.25 * np.cov(x.T).max())
    outside = (draws - model.inverse_transform(model.transform(draws))) / model.coordinates_.scale
    assert outside.std() == pytest.approx(noise.std(), rel=0.05)
    assert model.score(x) == pytest.approx(model.score(draws), abs=0.3)


@pytest.mark.parametrize("components", [3, 8])
def test_components_are_as_many_as_there_are_clusters(components):
    sample = make_gmm(3000, n=3, components=components, layers=1, random_state=0)
    steps = {"n_components": None, "n_restarts": 1, "full_covariance_steps": 5, "max_steps": 5}
    model = GMMFlow(**QUICK | steps, random_state=0).fit(sample.x)
    assert model.mixture_.means.shape == (components, 3)


@pytest.mark.parametrize(
    "bad",
    [
        {"flow": "spline"},
        {"max_steps": 0, "full_covariance_steps": 0},
        {"n_components": 0},
        {"depth": 1},
        {"learning_rate": 0},
        {"n_latents": 4},
    ],
)
def test_bad_parameters_are_named(bad, sample):
    with pytest.raises(ValueError, match=next(iter(bad))):
        GMMFlow(**QUICK | bad).fit(sample.x)
