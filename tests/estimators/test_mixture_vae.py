"""Autoencoders with mixture priors: two bounds, initialisations, clusters without labels and the certificate."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA

from autoencoder_helpers import QUICK, expected_log_joint, initialised, rand
from identifiable import MFCVAE, DataError, GMMFlow, Level, Mixture, VaDE
from identifiable.agreement.stability import Stability
from identifiable.data import load_digits
from identifiable.distributions.mixture import product_of
from identifiable.estimators import mixture_vae
from identifiable.estimators.autoencoder import Posterior
from identifiable.estimators.mixture_vae import BOUNDS, STARTS
from identifiable.metrics import clustering_accuracy
from identifiable.nets import Dense
from identifiable.theory import full_rank

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
TINY = QUICK | {"init": "autoencoder", "pretrain_steps": 10}


def random_nets(g, model, members=1):
    """Return nets with random weights and random mixtures."""
    model.set_params(init="random", hidden=(6,), activation="tanh")
    model.n_features_in_, model.levels_ = 4, ()
    model.n_components_ = tuple(facet.components for facet in model._facets())
    module = model._build(members, g).double()
    with torch.no_grad():
        for parameter in module.bases.parameters():
            parameter.copy_(rand(g, *parameter.shape))
    return module


def two_facets(g, bound="single-sample"):
    """Return an MFCVAE with two facets, and random nets of two members."""
    model = MFCVAE(5, (3, 4), facets=(2, 3), bound=bound)
    return model, random_nets(g, model, 2)


# -- the bound ------------------------------------------------------------------------------


def test_the_two_bounds_differ_by_the_divergence_of_memberships(g):
    """Equations (5) and (6): the difference is the mean of KL[q(u) || p(u | z)], row by row."""
    module, x, draws = random_nets(g, VaDE(3, 5)), rand(g, 1, 3, 4), 5_000
    q = module.encode(x.repeat(1, draws, 1))
    z = q.at(rand(g, 1, 3 * draws, 3))
    with torch.no_grad():
        each = [VaDE(bound=b)._divergence(module, q, z, (x,), 1)[0].reshape(draws, 3) for b in BOUNDS]
        order = module.bases[0].order()
        given_z = torch.log_softmax(module.bases[0](z), -1)[0][:, order].reshape(draws, 3, -1).numpy()
    own = Posterior(q.mean[:, :3], q.log_sd[:, :3], q.below[:, :3])
    u = softmax(expected_log_joint(own, module.bases[0].mixture()), -1)
    gap = (each[1] - each[0]).numpy() - (u * (np.log(u) - given_z)).sum(-1)
    assert (abs(gap.mean(0)) < 5 * gap.std(0) / draws**0.5).all()


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_divergence_sums_over_open_facets(g, bound):
    (model, module), x = two_facets(g, bound), rand(g, 2, 6, 4)
    q = module.encode(x)
    z = q.at(rand(g, 2, 6, 5))
    parts = []
    for base, facet in zip(module.bases, module.facets, strict=True):
        mean, log_sd = q.mean[..., facet.latents], q.log_sd[..., facet.latents]
        joint = base(z[..., facet.latents]) if bound == "single-sample" else base.expected(mean, (2 * log_sd).exp())
        entropy = torch.distributions.Normal(mean, log_sd.exp()).entropy().sum(-1)
        parts.append(-entropy - torch.logsumexp(joint, -1))
    for gates in ((1.0, 1.0), (1.0, 0.0), (1.0, 0.3)):
        for gate, facet in zip(gates, module.facets, strict=True):
            module.gate[..., facet.latents] = gate
        expected = gates[0] * parts[0] + gates[1] * parts[1]
        torch.testing.assert_close(model._divergence(module, q, z, (x,), 1), expected)


def test_a_closed_facet_does_not_reach_the_decoder(g):
    (_, module), z = two_facets(g), rand(g, 2, 6, 5)
    moved = z.clone()
    moved[..., 2:] += 1
    assert not torch.allclose(module.decode(z), module.decode(moved))
    module.gate[..., module.facets[1].latents] = 0
    assert torch.equal(module.decode(z), module.decode(moved))


@torch.no_grad()
def test_the_prior_is_the_product_of_the_mixtures_of_the_facets(g):
    (model, module), z = two_facets(g), rand(g, 2, 6, 5)
    found = model._log_prior(module, z, None).numpy()

    def density(mixture, rows):
        each = zip(mixture.weights, mixture.means, mixture.covariances, strict=True)
        return sum(w * multivariate_normal(m, c).pdf(rows) for w, m, c in each)

    for r in range(2):
        facets = tuple(base.mixture(r) for base in module.bases)
        rows = z[r].numpy()
        expected = density(facets[0], rows[:, :2]) * density(facets[1], rows[:, 2:])
        np.testing.assert_allclose(found[r], np.log(expected))
        joint = product_of(facets)
        assert len(joint.weights) == 12
        np.testing.assert_allclose(density(joint, rows), expected)
    three = product_of((*facets, Mixture([0.3, 0.7], [[0.0], [1.0]], [[1.0], [2.0]])))
    assert three.weights.sum() == pytest.approx(1)
    assert three.means.shape == (24, 6)


# -- clusters without labels ------------------------------------------------------------------


def curved(seed, size=1000):
    """Return four distant clusters in the plane, mapped to five columns by a curved map, and their numbers."""
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, 2, 5))
    u = rng.choice(4, size, p=[0.4, 0.3, 0.2, 0.1])
    means = np.array([[-3.0, -3.0], [3.0, -3.0], [-3.0, 3.0], [3.0, 3.0]])
    z = means[u] + np.array([[0.6, 0.3], [0.3, 0.6], [0.6, 0.6], [0.4, 0.5]])[u] * rng.normal(size=(size, 2))
    return np.tanh(z / 2 @ A) + 0.3 * z @ B + 0.05 * rng.normal(size=(size, 5)), u


@pytest.fixture(scope="module", params=["autoencoder", "flow"])
def fitted(request):
    x, u = curved(0)
    settings = {"pretrain_steps": 30 if request.param == "flow" else 120, "max_steps": 120, "hidden": (32,)}
    settings |= {"batch_size": 128, "learning_rate": 0.01}
    return VaDE(2, 4, init=request.param, **QUICK | settings).fit(x), x, u


def test_clusters_are_found_without_labels(fitted):
    model, x, u = fitted
    assert clustering_accuracy(u, model.predict(x)) > 0.98
    np.testing.assert_allclose(model.mixture_.weights, [0.4, 0.3, 0.2, 0.1], atol=0.05)
    mixtures = model.mixtures_of_restarts()
    np.testing.assert_array_equal(mixtures[model.kept_].means, model.mixture_.means)
    assert not np.allclose(mixtures[0].means, mixtures[1].means)
    new, u_new = curved(0, 500)  # the same map
    assert clustering_accuracy(u_new, model.predict(new)) > 0.98


def test_draws_of_a_cluster_belong_to_it(fitted):
    model, x, _ = fitted
    for k in range(4):
        drawn = model.sample(400, random_state=k, component=k)
        assert (model.predict(drawn) == k).mean() > 0.95
        np.testing.assert_allclose((drawn.mean(0) - x[model.predict(x) == k].mean(0)) / x.std(0), 0, atol=0.25)
    with pytest.raises(DataError, match="facet must lie"):
        MFCVAE.predict_proba(model, x, facet=1)
    share = np.bincount(model.predict(model.sample(2000, random_state=0)), minlength=4) / 2000
    np.testing.assert_allclose(share, model.mixture_.weights, atol=0.05)


def test_the_certificate_uses_the_moments_of_the_clusters(fitted):
    model, x, _ = fitted
    (mixture,) = model.free_mixtures_
    z, u, order = model.transform(x), model.predict(x), np.argsort(-mixture.weights)
    for k in range(4):
        np.testing.assert_allclose(mixture.means[order][k], z[u == k].mean(0), atol=0.1 * z.std())
        np.testing.assert_allclose(mixture.covariances[order][k], np.cov(z[u == k].T), atol=0.06 * z.var())
    before = model.stability_
    model.stability_ = Stability(np.array([[1.0, 0.2], [0.2, 1.0]]))
    assert model.certificate_.level == Level.NONE
    assert model.certificate_["agreement"].verdict == "fails"
    model.stability_ = Stability(np.ones((2, 2)))
    assert model.certificate_["agreement"].verdict == "holds"
    if model.init == "flow":  # maps in parallel with the net: the decoder is not checked
        certificate = full_rank.certify(mixture, rows=900, tolerance=mixture_vae.FLATTEST)
        assert model.certificate_.level == certificate.level
    model.stability_ = before


def test_directions_count_the_latents_of_the_data():
    """Three latents in ten columns, bent; the model has six latents."""
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(5, 3))[rng.integers(5, size=1000)] + rng.normal(size=(1000, 3))
    h = z @ rng.normal(size=(3, 16))
    x = np.where(h > 0, h, 0.3 * h) @ rng.normal(size=(16, 10))
    x = x / x.std(0) + 0.1 * rng.normal(size=(1000, 10))
    settings = {"init": "autoencoder", "n_restarts": 1, "hidden": (32,), "pretrain_steps": 200, "max_steps": 500}
    model = VaDE(6, 5, **QUICK | settings | {"batch_size": 256, "learning_rate": 0.005}).fit(x)
    assert model.directions_.used == 3, model.directions_
    assert model.directions_.shares[2] > 0.9


def test_directions_in_use_lie_in_the_open_facets(x):
    model = MFCVAE(4, (3, 1), facets=2, **TINY).fit(x)
    model.module_.gate[..., 2:] = 0
    found = model._directions(x)
    assert (found.of_latents[:2] > 0).all()
    np.testing.assert_allclose(found.of_latents[2:], 0, atol=1e-6)
    np.testing.assert_allclose(found.shares[2:], 0, atol=1e-6)


@pytest.mark.parametrize(("init", "steps"), [("random", 200), ("autoencoder", 60)])
def test_no_restart_collapses(init, steps):
    """All are finite, and none puts nearly all rows into one cluster."""
    x, settings = load_digits().x[:800], {"max_steps": steps, "pretrain_steps": steps, "batch_size": 64}
    settings |= {"n_restarts": 8, "learning_rate": 0.01, "hidden": (32,), "likelihood": "bernoulli", "init": init}
    model = VaDE(5, 10, **QUICK | settings).fit(x)
    assert np.isfinite(model.history_.loss).all()
    latents = model.latents_of_restarts(x)
    assert latents.std(1).min() > 0.01
    for z, mixture in zip(latents, model.mixtures_of_restarts(), strict=True):
        share = np.bincount(mixture.log_joint(z).argmax(1), minlength=10) / len(x)
        assert share.max() < 0.9


# -- initialisation ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def x():
    return curved(1, 250)[0]


def test_init_linear_starts_at_the_principal_components(x):
    settings = TINY | {"init": "linear", "pretrain_steps": 150, "max_steps": 1, "learning_rate": 0.01}
    model = VaDE(2, 4, **settings).fit(x)
    white = PCA(2, whiten=True).fit_transform((x - x.mean(0)) / x.std(0))
    for z in model.latents_of_restarts(x):
        assert np.abs(np.corrcoef(z.T, white.T)[:2, 2:]).diagonal().min() > 0.98
        np.testing.assert_allclose(z.std(0), 1, atol=0.15)
    for rows in (x, np.c_[x, x @ np.ones(5)]):
        with pytest.raises(DataError, match="n_latents=6, rank=5"):
            VaDE(6, 4, **TINY | {"init": "linear"}).fit(rows)


def test_init_autoencoder_fits_the_mixture_to_the_latents(x):
    """The mixture fits them better than a Gaussian does, and q starts at a tenth of their standard deviation."""
    model = VaDE(2, 4, **TINY | {"pretrain_steps": 100, "n_restarts": 2})
    module, data = initialised(model, x)
    with torch.no_grad():
        q = module.encode(torch.as_tensor(model._inputs(data.X_train), dtype=torch.float32).expand(2, -1, -1))
    for r, z in enumerate(q.mean.double().numpy()):
        gaussian = multivariate_normal(z.mean(0), np.cov(z.T)).logpdf(z).mean()
        mixture = module.bases[0].mixture(r)
        assert np.logaddexp.reduce(mixture.log_joint(z), 1).mean() > gaussian + 0.1
    assert not torch.allclose(module.bases[0].means[0], module.bases[0].means[1])
    share = (q.log_sd.exp() / q.mean.std(1, keepdim=True)).log().mean((1, 2)).exp()
    assert ((share > 0.03) & (share < 0.3)).all()


def test_init_flow_starts_at_the_maps_and_the_mixture_of_the_flow(x):
    model = VaDE(2, 4, **QUICK | {"pretrain_steps": 10, "learning_rate": 1e-6, "init": "flow"})
    module, data = initialised(model, x)
    steps = {"full_covariance_steps": 10, "max_steps": 6}
    flow = GMMFlow(2, n_restarts=2, random_state=data.seed, verbose=0, n_components=4, **steps).fit(data.X_train)
    rows = torch.as_tensor(model._inputs(x), dtype=torch.float32).expand(2, -1, -1)
    with torch.no_grad():
        found = module.encode(rows).mean
        decoded = module.decode(found)[flow.kept_].numpy() * model.scale_ + model.mean_
    np.testing.assert_allclose(found, flow.latents_of_restarts(x), atol=0.01)
    np.testing.assert_allclose(decoded, flow.inverse_transform(flow.transform(x)), atol=0.01)
    own = module.bases[0].mixture(flow.kept_)
    np.testing.assert_allclose(own.weights, flow.mixture_.weights, atol=1e-6)
    np.testing.assert_allclose(own.means, flow.mixture_.means, atol=1e-5)
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert module.log_noise.max() < 0  # at the error of the decoder, with a floor
    assert module.log_noise.exp().min() > mixture_vae.LEAST_NOISE * 0.99


def test_init_flow_allows_columns_that_vary_only_in_held_out_rows():
    x = np.c_[np.random.default_rng(0).normal(size=(200, 3)), np.eye(200)[:, :40]]
    model = VaDE(2, 3, **TINY | {"init": "flow"})
    assert (np.ptp(model._split(x, None).X_train, axis=0) == 0).any()
    assert np.isfinite(model.fit(x).score(x))


def test_a_failed_flow_is_replaced_by_the_best_one(x, monkeypatch):
    fit = GMMFlow.fit

    def failing(self, X, y=None):
        fit(self, X)
        self.restart_scores_[0] = -np.inf
        for parameter in self._restarts.parameters():
            parameter.data[0] = torch.nan
        return self

    monkeypatch.setattr(GMMFlow, "fit", failing)
    model = VaDE(2, 4, **TINY | {"init": "flow", "n_restarts": 2}).fit(x)
    assert np.isfinite(model.restart_scores_).all()
    assert np.isfinite(model.latents_of_restarts(x)).all()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("flow", 1.0, 3e-5, 3000)),
        ({"first_beta": 0.5, "learning_rate": 0.1, "pretrain_steps": 7}, ("flow", 0.5, 0.1, 7)),
        ({"init": "random"}, ("random", 1.0, 2e-3, 3000)),
        ({"likelihood": "bernoulli"}, ("autoencoder", 0.1, 2e-3, 3000)),
        ({"net": Dense((8,))}, ("autoencoder", 0.1, 2e-3, 3000)),
        ({"n_latents": 6}, ("autoencoder", 0.1, 2e-3, 3000)),
    ],
)
def test_automatic_settings(settings, expected):
    model = VaDE(**settings)
    model.n_features_in_ = 5
    assert (model._init, model._first_beta, model._rate, model._pretrain_steps) == expected


@pytest.mark.parametrize("bound", BOUNDS)
def test_full_covariances_separate_clusters_that_cross(bound):
    """Two clusters with one centre, along the two diagonals of the latents."""
    rng = np.random.default_rng(0)
    u = rng.integers(2, size=800)
    z = rng.normal(size=(800, 2)) * [2.0, 0.2] @ np.array([[1.0, 1.0], [-1.0, 1.0]])
    z[u == 1, 0] *= -1
    x = z @ rng.normal(size=(2, 5)) + 0.05 * rng.normal(size=(800, 5))
    settings = {"hidden": (32,), "pretrain_steps": 200, "max_steps": 150, "batch_size": 128, "learning_rate": 0.01}
    model = VaDE(2, 2, bound=bound, covariance_type="full", **QUICK | settings).fit(x)
    assert model._init == "linear"
    assert clustering_accuracy(u, model.predict(x)) > 0.85
    assert np.abs(model.mixture_.covariances[:, 0, 1]).min() > 0.2
    drawn = np.concatenate([model.sample(500, k, component=k) for k in range(2)])
    assert clustering_accuracy(np.repeat([0, 1], 500), model.predict(drawn)) > 0.85


@pytest.mark.parametrize("init", STARTS)
def test_every_initialisation_works_with_both_posteriors(x, init):
    for posterior, bound in zip(("full", "diagonal"), BOUNDS, strict=True):
        model = VaDE(2, 3, **TINY | {"bound": bound, "init": init, "posterior": posterior, "n_restarts": 1}).fit(x)
        assert np.isfinite(model.score(x))
        assert (model.module_.lower is not None) == (posterior == "full")


@pytest.mark.parametrize(
    ("likelihood", "init"), [("bernoulli", "random"), ("logistic", "autoencoder"), ("categorical", "linear")]
)
def test_every_likelihood_works(likelihood, init):
    x = np.random.default_rng(0).integers(0, 3, size=(200, 6)).astype(float)
    x = x if likelihood == "categorical" else np.round(255 * x / 2) / 255
    x[:, 0] = 1.0  # pixels at the border never vary
    model = VaDE(2, 3, **TINY | {"likelihood": likelihood, "init": init}).fit(x)
    assert np.isfinite(model.score(x))
    possible = np.arange(256) / 255 if likelihood == "logistic" else (0, 1, 2)
    assert np.isin(model.sample(50, random_state=0), possible).all()
    assert isinstance(model.certificate_.level, Level)


@pytest.mark.parametrize(("rows", "init", "expected"), [(130, "flow", 8), (130, "autoencoder", 9), (12, "random", 1)])
def test_few_rows_allow_few_components(rows, init, expected):
    """Four training rows each, and four more for every latent; a flow holds out some of them."""
    x = np.random.default_rng(0).normal(size=(rows, 4))
    model = VaDE(2, 10, **TINY | {"init": init}).fit(x)
    assert model.n_components_ == (expected,)
    assert model.predict_proba(x).shape == (rows, expected)


def test_a_low_first_weight_lowers_the_first_loss(x):
    low, one = (VaDE(2, 4, first_beta=beta, **TINY).fit(x).history_.loss[0] for beta in (0.01, 1.0))
    assert (low < one - 0.3).all()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bound", {"bound": "iwae"}),
        ("init", {"init": "warm"}),
        ("init", {"init": "flow", "likelihood": "bernoulli"}),
        ("posterior", {"posterior": "low rank"}),
        ("covariance_type", {"covariance_type": "tied"}),
        ("init", {"init": "flow", "covariance_type": "full"}),
        ("first_beta", {"first_beta": 0}),
        ("pretrain_steps", {"pretrain_steps": 0}),
        ("n_latents", {"n_latents": 9, "init": "flow"}),
    ],
)
def test_wrong_parameters_are_refused(x, name, settings):
    with pytest.raises(ValueError, match=name):
        VaDE(**{"n_latents": 2, "n_components": 3} | TINY | settings).fit(x)
