"""GMMFlow: the likelihood is exact, and without u the latents of a bent mixture come back."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from identifiable import DataError, FactorialUnmixing, GMMFlow, Level, Mixture, load, save
from identifiable.data import make_gmm, make_tcl
from identifiable.metrics import mcc, r2

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")

QUICK = {"n_restarts": 2, "n_components": 4, "depth": 4, "full_covariance_steps": 30, "max_steps": 30, "verbose": 0}
FLOWS = ["leaky", "softplus", "autoregressive"]


def mixture(n=3, components=5, seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(components, n, n)) + np.eye(n)
    return Mixture(rng.dirichlet(np.ones(components)), rng.normal(size=(components, n)), roots @ roots.swapaxes(1, 2))


# -- the estimator ------------------------------------------------------------------


@pytest.fixture(scope="module")
def sample():
    return make_gmm(3000, n=2, components=4, layers=3, slopes=0.3, random_state=0)


@pytest.fixture(scope="module", params=FLOWS)
def quick(request, sample):
    return GMMFlow(**QUICK, flow=request.param, random_state=0).fit(sample.x)


def test_the_density_integrates_to_one(quick, sample):
    low, high = sample.x.min(0) - 4, sample.x.max(0) + 4
    grid = np.stack(np.meshgrid(*(np.linspace(a, b, 400) for a, b in zip(low, high, strict=True))), -1).reshape(-1, 2)
    cell = np.prod((high - low) / 399)
    assert np.exp(quick.score_samples(grid)).sum() * cell == pytest.approx(1, abs=0.02)


def test_the_density_is_that_of_the_latents_and_the_jacobian(quick, sample):
    x, step = sample.x[:20], 1e-5
    z = quick.transform(x)
    jacobian = np.stack(
        [(quick.transform(x + step * e) - quick.transform(x - step * e)) / (2 * step) for e in np.eye(2)]
    )
    log_det = np.linalg.slogdet(jacobian.transpose(1, 0, 2))[1]
    law = quick.mixture_
    each = zip(law.weights, law.means, law.covariances, strict=True)
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
    spread = quick.mixture_.weights @ (change - quick.mixture_.weights @ change) ** 2
    assert (np.diff(spread) <= 1e-6).all()  # the most telling latent comes first


def test_draws_are_likely(quick, sample):
    drawn = quick.sample(2000, random_state=0)
    assert quick.score(drawn) == pytest.approx(quick.score(sample.x), abs=0.3)


def test_the_likeliest_restart_is_kept(quick, sample):
    every = quick.latents_of_restarts(sample.x)
    assert every.shape == (2, 3000, 2)
    kept = int(np.argmax(quick.restart_scores_))
    np.testing.assert_allclose(every[kept], quick.transform(sample.x), atol=1e-3)


def test_a_file_gives_the_same_model(quick, sample, tmp_path):
    save(quick, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu")
    np.testing.assert_array_equal(again.transform(sample.x[:50]), quick.transform(sample.x[:50]))
    np.testing.assert_array_equal(again.score_samples(sample.x[:50]), quick.score_samples(sample.x[:50]))
    assert str(again.certificate_) == str(quick.certificate_)
    with pytest.raises(DataError, match="not kept in a file"):
        again.latents_of_restarts(sample.x)


def test_a_bent_mixture_is_unmixed_where_a_linear_map_is_not_enough():
    """The full training recovers 5 latents (docs/without_u.md); here a short one is well above the linear map."""
    sample = make_tcl(8000, n=2, segments=10, layers=3, random_state=0)
    new = sample.source.sample(3000, random_state=1)
    linear = FactorialUnmixing(n_components=20, n_restarts=1, random_state=0).fit(sample.x)
    model = GMMFlow(n_components=20, n_restarts=2, depth=12, batch_size=512, random_state=0, verbose=0)
    model.set_params(full_covariance_steps=500, max_steps=500).fit(sample.x)
    assert mcc(new.z, model.transform(new.x)) > mcc(new.z, linear.transform(new.x)) + 0.05
    assert model.score(new.x) > linear.score(new.x) + 0.05


def test_free_covariances_find_the_affine_class_and_claim_no_more():
    sample = make_gmm(6000, n=2, components=5, factorial=False, layers=3, slopes=0.3, random_state=0)
    bent = r2(sample.z, sample.x)
    model = GMMFlow(
        n_components=8, n_restarts=2, depth=8, full_covariance_steps=400, max_steps=0, random_state=0, verbose=0
    )
    model.fit(sample.x)
    assert model.module_.base.off is not None
    assert r2(sample.z, model.transform(sample.x)) > bent + 0.02
    assert model.certificate_.level <= Level.AT


def test_fewer_latents_than_columns():
    sample = make_gmm(2000, n=2, components=4, layers=1, random_state=0)
    rng = np.random.default_rng(0)
    x = sample.x @ rng.normal(size=(2, 5)) + 0.05 * rng.normal(size=(2000, 5))
    model = GMMFlow(2, **QUICK, random_state=0).fit(x)
    assert model.transform(x).shape == (2000, 2)
    assert r2(x, model.inverse_transform(model.transform(x))) > 0.95
    noise = x - model.inverse_transform(model.transform(x))
    draws = model.sample(4000, random_state=0)
    np.testing.assert_allclose(np.cov(draws.T), np.cov(x.T), atol=0.25 * np.cov(x.T).max())
    outside = draws - model.inverse_transform(model.transform(draws))
    assert (outside / model.scale_).std() == pytest.approx((noise / model.scale_).std(), rel=0.05)
    assert model.score(x) == pytest.approx(model.score(draws), abs=0.3)


@pytest.mark.parametrize("components", [3, 8])
def test_components_are_as_many_as_there_are_clusters(components):
    sample = make_gmm(3000, n=3, components=components, layers=1, random_state=0)
    model = GMMFlow(**QUICK | {"n_components": None}, random_state=0).fit(sample.x)
    assert model.mixture_.means.shape == (components, 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"flow": "spline"}, r"'flow' parameter of GMMFlow must be one of \('leaky', 'bent', 'autoregressive'\)"),
        ({"full_covariance_steps": 0, "max_steps": 0}, "'max_steps' parameter"),
        ({"n_components": 0}, "'n_components' parameter of GMMFlow must be an integer >= 1 or None"),
        ({"depth": 1}, "'depth' parameter"),
        ({"learning_rate": 0}, "'learning_rate' parameter"),
        ({"n_latents": 4}, "n_latents=4, rank=2"),
    ],
)
def test_bad_parameters(options, words, sample):
    with pytest.raises(ValueError, match=words):
        GMMFlow(**QUICK | options).fit(sample.x)
