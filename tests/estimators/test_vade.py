"""VaDE: the bounds against models whose likelihood is known, clusters without labels, and restarts that all live."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal, norm
from sklearn.base import clone
from sklearn.decomposition import PCA

from identifiable import DamagedFileError, DataError, GMMFlow, Level, RecoveryWarning, VaDE, load, save
from identifiable.data import load_digits
from identifiable.estimators import mixture_vae, variational
from identifiable.estimators.autoencoder import Posterior
from identifiable.estimators.base import Stability
from identifiable.estimators.mixture_vae import BOUNDS, STARTS
from identifiable.metrics import clustering_accuracy
from identifiable.nets import ConvNet, Dense, ResNet, select_member
from identifiable.priors.mixture import MixtureBase
from identifiable.theory import full_rank
from identifiable.training.state import Run

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")

CPU = torch.device("cpu")
QUICK = {"n_restarts": 2, "pretrain_steps": 10, "max_steps": 10, "batch_size": 32, "random_state": 0, "verbose": 0}
TINY = QUICK | {"hidden": (8,), "init": "autoencoder"}
SHORT = {"pretrain_steps": 150, "max_steps": 150, "batch_size": 128, "learning_rate": 0.01, "hidden": (32,)}


@pytest.fixture(params=[0, 1, 2])
def g(request):
    return torch.Generator().manual_seed(request.param)


def rand(g, *shape):
    return torch.randn(shape, generator=g, dtype=torch.float64)


def nets(g, components=5, n=3, posterior="full"):
    """Random nets of one member, and a random mixture."""
    model = VaDE(n, components, init="random", posterior=posterior, hidden=(6,), activation="tanh")
    model.n_features_in_, model.levels_, model.n_components_ = 4, (), (components,)
    made = model._build(1, g).double()
    with torch.no_grad():
        for parameter in made.bases.parameters():
            parameter.copy_(rand(g, *parameter.shape))
    return made


def expectations(q, mixture):
    """E_q log w_k N(z; k), (B, K), by hand."""
    mean, variance = q.mean[0].detach().numpy()[:, None], q.variance[0].detach().numpy()[:, None]
    spread = np.diagonal(mixture.covariances, axis1=1, axis2=2)
    square = (variance + (mean - mixture.means) ** 2) / spread + np.log(2 * np.pi * spread)
    return np.log(mixture.weights) - 0.5 * square.sum(-1)


def learnt(z, components, steps, seed=0):
    base = MixtureBase(len(z), components, z.shape[-1], diagonal=True)
    base.learn(z, steps=steps, rng=torch.Generator().manual_seed(seed))
    return base


# -- the divergence -------------------------------------------------------------------------


def test_the_factorised_divergence_is_the_least_over_all_memberships(g):
    """Equation (5): KL[q(z) q(u) || p(z, u)], minimised over q(u) by a search that knows no closed form."""
    module, x = nets(g), rand(g, 1, 2, 4)
    q = module.encode(x)
    found = VaDE(bound="factorised")._divergence(module, q, None, x, 1)[0].detach().numpy()
    own = expectations(q, module.bases[0].mixture())
    for row in range(2):

        def divergence(logits, row=row):
            u = softmax(logits)
            return u @ (np.log(u + 1e-300) - own[row]) - q.entropy[0, row].item()

        best = min((minimize(divergence, start) for start in 3 * np.eye(5)), key=lambda r: r.fun)
        assert found[row] == pytest.approx(best.fun, abs=1e-5)


def test_memberships_that_know_the_draw_cost_less_by_what_they_know(g):
    """Equations (5) and (6): the two differ by the mean of KL[q(u) || p(u | z)], row by row."""
    module, x, draws = nets(g), rand(g, 1, 3, 4), 20_000
    q = module.encode(x.repeat(1, draws, 1))
    z = q.at(rand(g, 1, 3 * draws, 3))
    with torch.no_grad():
        single = VaDE(bound="single-sample")._divergence(module, q, z, x, 1)[0].reshape(draws, 3)
        factorised = VaDE(bound="factorised")._divergence(module, q, z, x, 1)[0].reshape(draws, 3)
        order = module.bases[0].logits[0].argsort(descending=True)  # as in `mixture`
        given_z = torch.log_softmax(module.bases[0](z), -1)[0, :, order].reshape(draws, 3, -1).numpy()
    own = Posterior(q.mean[:, :3], q.log_sd[:, :3], q.below[:, :3])
    u = softmax(expectations(own, module.bases[0].mixture()), -1)
    known = (u * (np.log(u) - given_z)).sum(-1)
    gap = (factorised - single).numpy() - known
    assert (known.mean(0) > 0).all()
    assert (np.abs(gap.mean(0)) < 5 * gap.std(0) / draws**0.5).all()


@pytest.mark.parametrize("posterior", ["full", "diagonal"])
def test_one_component_leaves_the_divergence_of_gaussians(g, posterior):
    module, draws = nets(g, components=1, posterior=posterior), 20_000
    x = rand(g, 1, 3, 4)
    q = module.encode(x)
    law = module.bases[0].mixture()
    prior = torch.distributions.MultivariateNormal(*(torch.as_tensor(v[0]) for v in (law.means, law.covariances)))
    mixed = torch.eye(3) + (torch.zeros(3, 3, 3) if q.below is None else q.below[0].detach())
    root = q.log_sd[0].detach().exp()[..., None] * mixed
    exact = torch.distributions.kl_divergence(
        torch.distributions.MultivariateNormal(q.mean[0].detach(), scale_tril=root), prior
    )
    with torch.no_grad():
        closed = VaDE(bound="factorised")._divergence(module, q, None, x, 1)[0]
        torch.testing.assert_close(closed, exact)
        many = module.encode(x.repeat(1, draws, 1))
        z = many.at(rand(g, 1, 3 * draws, 3))
        single = VaDE(bound="single-sample")._divergence(module, many, z, x, 1)[0].reshape(draws, 3)
    assert ((single.mean(0) - exact).abs() < 5 * single.std(0) / draws**0.5).all()


# -- the bound: a model whose likelihood is known -----------------------------------------------


class Known:
    """x = mean + scale (z A + b + σ ε), z ~ Σ w_k N(m_k, diag s_k²), as a VaDE set by hand; d = 4, n = 2."""

    def __init__(self, seed, components=3):
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(60, 4)) * [1, 2, 30, 0.1] + [0, 5, 0, 9]
        settings = QUICK | {"hidden": (), "init": "random", "max_steps": 1, "n_restarts": 1, "posterior": "full"}
        self.model = VaDE(2, components, **settings).fit(self.x)
        self.A, self.b, self.sigma = rng.normal(size=(2, 4)), rng.normal(size=4), rng.uniform(0.3, 0.8, size=4)
        self.weights = np.sort(rng.dirichlet(np.full(components, 3.0)))[::-1]
        self.means, self.scales = rng.normal(size=(components, 2)), rng.uniform(0.5, 2, size=(components, 2))
        self.nets = self.model.module_.double()
        with torch.no_grad():
            _, decoder = self.nets.last_layers
            decoder.weight[0], decoder.bias[0, 0] = torch.as_tensor(self.A), torch.as_tensor(self.b)
            self.nets.log_noise[0, 0] = torch.as_tensor(np.log(self.sigma))
            order = rng.permutation(components)  # the nets may hold them in any order
            base = self.nets.bases[0]
            base.logits[0] = torch.as_tensor(np.log(self.weights[order]))
            base.means[0] = torch.as_tensor(self.means[order])
            base.log_factors[0] = torch.as_tensor(-np.log(self.scales[order]))
        self.rows = (self.x - self.model.mean_) / self.model.scale_
        self.encode(0)

    def law(self, k):
        """p(x | u = k), in the units of the data."""
        scale = self.model.scale_
        covariance = self.A.T @ np.diag(self.scales[k] ** 2) @ self.A + np.diag(self.sigma**2)
        return multivariate_normal(
            self.model.mean_ + scale * (self.means[k] @ self.A + self.b), covariance * np.outer(scale, scale)
        )

    def log_p(self):
        each = [np.log(w) + self.law(k).logpdf(self.x) for k, w in enumerate(self.weights)]
        return logsumexp(each, axis=0)

    def encode(self, k, wider=0.0):
        """Set the encoder so that q(z | x) is p(z | x, u = k), or wider."""
        precision = (self.A / self.sigma**2) @ self.A.T + np.diag(self.scales[k] ** -2)
        self.covariance = np.linalg.inv(precision) * np.exp(2 * wider)
        slope = (self.A / self.sigma**2).T @ np.linalg.inv(precision)
        shift = np.linalg.solve(precision, self.means[k] / self.scales[k] ** 2) - self.b @ slope
        self.posterior_means = self.rows @ slope + shift
        root = np.linalg.cholesky(self.covariance)
        below = (root / np.diag(root)[:, None]) * np.tri(2, k=-1)
        encoder, _ = self.nets.last_layers
        with torch.no_grad():
            encoder.weight[0] = torch.as_tensor(np.c_[slope, np.zeros((4, 6))])
            encoder.bias[0, 0] = torch.as_tensor(np.r_[shift, np.log(np.diag(root)), below.ravel()])
        return self


@pytest.fixture
def many_draws(monkeypatch):
    monkeypatch.setattr(variational, "DRAWS", 2048)
    monkeypatch.setattr(variational, "BLOCK", 2048 * 20)


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_of_one_component_is_the_likelihood(seed):
    known = Known(seed, components=1)
    np.testing.assert_allclose(known.model.transform(known.x), known.posterior_means, rtol=1e-7, atol=1e-9)
    for importance in (False, True):
        np.testing.assert_allclose(known.model.score_samples(known.x, importance=importance), known.log_p(), rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_lacks_the_divergence_of_q_from_the_posterior(seed, many_draws):
    known = Known(seed).encode(seed, wider=0.5)
    exact, rng = known.log_p(), np.random.default_rng(seed)
    bound, tighter = (known.model.score_samples(known.x, importance=i) for i in (False, True))
    draws = rng.multivariate_normal(np.zeros(2), known.covariance, size=20_000)
    for n in range(0, 60, 6):
        z = known.posterior_means[n] + draws
        log_q = multivariate_normal(np.zeros(2), known.covariance).logpdf(draws)
        each = norm.logpdf(z[:, None], known.means, known.scales).sum(-1)
        likelihood = norm.logpdf(known.rows[n], z @ known.A + known.b, known.sigma).sum(-1)
        posterior = logsumexp(np.log(known.weights) + each, axis=1) + likelihood
        posterior -= np.log(known.model.scale_).sum() + exact[n]
        divergence = log_q - posterior
        assert exact[n] - bound[n] == pytest.approx(divergence.mean(), abs=0.01 + 5 * divergence.std() / 20_000**0.5)
    assert (bound < tighter).all()
    assert (bound < exact + 1e-3).all()
    np.testing.assert_allclose(tighter, exact, atol=0.1)
    assert known.model.score(known.x) == pytest.approx(bound.mean())


@pytest.mark.parametrize("seed", range(3))
def test_clusters_are_numbered_as_in_the_mixture(seed):
    known = Known(seed)
    law = known.model.mixture_
    np.testing.assert_allclose(law.weights, known.weights)
    np.testing.assert_allclose(law.means, known.means)
    np.testing.assert_allclose(np.diagonal(law.covariances, axis1=1, axis2=2), known.scales**2)
    q = known.nets.encode(torch.as_tensor(known.rows)[None])
    found = known.model.predict_proba(known.x)
    np.testing.assert_allclose(found, softmax(expectations(q, law), -1), rtol=1e-6)
    np.testing.assert_array_equal(known.model.predict(known.x), found.argmax(1))


def test_draws_have_the_moments_of_their_cluster():
    known = Known(0)
    for k in range(3):
        law, drawn = known.law(k), known.model.sample(100_000, k, component=k)
        sd = np.sqrt(np.diag(law.cov))
        np.testing.assert_allclose((drawn.mean(0) - law.mean) / sd, 0, atol=0.02)
        np.testing.assert_allclose(np.cov(drawn.T) / np.outer(sd, sd), law.cov / np.outer(sd, sd), atol=0.03)
        centre = known.model.inverse_transform(known.model.mixture_.means[[k]])[0]
        np.testing.assert_allclose((centre - law.mean) / sd, 0, atol=1e-6)
    drawn = known.model.sample(100_000, random_state=0)
    mean = known.weights @ [known.law(k).mean for k in range(3)]
    np.testing.assert_allclose((drawn.mean(0) - mean) / drawn.std(0), 0, atol=0.02)
    for wrong in (3, -1, 0.5):
        with pytest.raises(DataError, match=r"component must be a number from 0 to 2\. Got"):
            known.model.sample(2, component=wrong)


# -- clusters without labels ------------------------------------------------------------------------


def bent(seed, size=1500):
    """Four clusters in the plane, far apart, seen through a curved map: rows and clusters."""
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, 2, 5))
    u = rng.choice(4, size, p=[0.4, 0.3, 0.2, 0.1])
    means = np.array([[-3.0, -3.0], [3.0, -3.0], [-3.0, 3.0], [3.0, 3.0]])
    z = means[u] + np.array([[0.6, 0.3], [0.3, 0.6], [0.6, 0.6], [0.4, 0.5]])[u] * rng.normal(size=(size, 2))
    return np.tanh(z / 2 @ A) + 0.3 * z @ B + 0.05 * rng.normal(size=(size, 5)), u


@pytest.fixture(scope="module", params=["autoencoder", "flow", "linear"])
def fitted(request):
    x, u = bent(0)
    settings = SHORT | {"pretrain_steps": 30 if request.param == "flow" else 150}
    return VaDE(2, 4, start=request.param, n_restarts=2, random_state=0, verbose=0, **settings).fit(x), x, u


def test_clusters_are_found_without_labels(fitted):
    model, x, u = fitted
    assert clustering_accuracy(u, model.predict(x)) > 0.98
    np.testing.assert_allclose(model.mixture_.weights, [0.4, 0.3, 0.2, 0.1], atol=0.04)
    assert (np.diff(model.mixture_.weights) <= 0).all()
    new, u_new = bent(0, 500)  # the same map
    assert clustering_accuracy(u_new, model.predict(new)) > 0.98


def test_what_a_cluster_draws_is_of_that_cluster(fitted):
    model, x, _ = fitted
    for k in range(4):
        drawn = model.sample(400, random_state=k, component=k)
        assert (model.predict(drawn) == k).mean() > 0.95
        centre = model.inverse_transform(model.mixture_.means[[k]])[0]
        np.testing.assert_allclose((drawn.mean(0) - centre) / x.std(0), 0, atol=0.25)
        np.testing.assert_allclose((drawn.mean(0) - x[model.predict(x) == k].mean(0)) / x.std(0), 0, atol=0.25)
    share = np.bincount(model.predict(model.sample(2000, random_state=0)), minlength=4) / 2000
    np.testing.assert_allclose(share, model.mixture_.weights, atol=0.05)


def test_memberships_are_probabilities(fitted):
    model, x, _ = fitted
    p = model.predict_proba(x)
    assert p.shape == (1500, 4)
    assert p.min() >= 0
    np.testing.assert_allclose(p.sum(1), 1)
    assert model.predict_proba(x.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(model.predict_proba(x.astype(np.float32)), p, atol=1e-3)
    assert model.mixture_.weights.sum() == pytest.approx(1)


def test_the_certificate_looks_at_the_clusters_as_they_are(fitted):
    model, x, _ = fitted
    (law,) = model.free_mixtures_
    z, u, order = model.transform(x), model.predict(x), np.argsort(-law.weights)
    for k in range(4):
        np.testing.assert_allclose(law.means[order][k], z[u == k].mean(0), atol=0.02)
        np.testing.assert_allclose(law.covariances[order][k], np.cov(z[u == k].T), atol=0.01 + 0.05 * z.var())
    certificate = model.certificate_
    expected = {"stable": "holds", "doubtful": "inconclusive", "unstable": "fails"}[model.fit_status_]
    assert certificate["agreement"].verdict == expected
    model = clone(model)
    model.__dict__ |= fitted[0].__dict__
    model.stability_ = Stability(np.array([[1.0, 0.2], [0.2, 1.0]]))
    assert model.certificate_.level == Level.NONE
    model.stability_ = Stability(np.ones((2, 2)))
    if model.start == "flow":  # what is beside the net is not in the decoder that is looked at
        assert model.certificate_.level == full_rank.certify(law, rows=1350, tolerance=mixture_vae.FLATTEST).level


def test_the_best_restart_is_kept(fitted):
    model, x, _ = fitted
    every, kept = model.latents_of_restarts(x), int(np.argmax(model.restart_scores_))
    assert every.shape == (2, 1500, 2)
    np.testing.assert_allclose(every[kept], model.transform(x), atol=1e-4)
    assert model.restart_scores_[0] != model.restart_scores_[1]


# -- restarts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "steps"), [("random", 300), ("autoencoder", 100)])
def test_no_restart_collapses(start, steps):
    """Twenty of them: all are finite, none puts (nearly) all rows into one cluster.

    From a random start that takes some hundred steps: before, the latents still say little of x.
    """
    x, members = load_digits().x, 20
    settings = SHORT | {"max_steps": steps, "pretrain_steps": steps, "start": start, "batch_size": 64}
    model = VaDE(5, 10, n_restarts=members, likelihood="bernoulli", random_state=0, verbose=0, **settings).fit(x)
    assert np.isfinite(model.history_.loss).all()
    assert np.isfinite(model.restart_scores_).all()
    rows = model._rows(x, CPU)
    for r in range(members):
        one = select_member(model._restarts, r)
        assert all(parameter.isfinite().all() for parameter in one.parameters())
        with torch.no_grad():
            q = one.encode(rows[None])
            u = one.bases[0].expected(q.mean, q.variance)[0].argmax(-1).numpy()
        share = np.bincount(u, minlength=10) / len(u)
        assert (share > 0).sum() > 1
        assert share.max() < 0.9
    assert model.latents_of_restarts(x).std(1).min() > 0.01


# -- starts and options ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def x():
    return bent(1, 250)[0]


def test_a_linear_start_is_at_the_principal_components(x):
    settings = TINY | {"init": "linear", "pretrain_steps": 200, "max_steps": 1, "learning_rate": 0.01}
    model = VaDE(2, 4, **settings).fit(x)
    white = PCA(2, whiten=True).fit_transform((x - x.mean(0)) / x.std(0))
    for z in model.latents_of_restarts(x):
        assert np.abs(np.corrcoef(z.T, white.T)[:2, 2:]).diagonal().min() > 0.98
        np.testing.assert_allclose(z.std(0), 1, atol=0.15)
    with pytest.raises(DataError, match=r"n_latents=6, rank=5\. Lower n_latents, or use init='autoencoder'"):
        VaDE(6, 4, **TINY | {"init": "linear"}).fit(x)
    doubled = np.c_[x, x @ np.ones(5)]
    with pytest.raises(DataError, match="n_latents=6, rank=5"):
        VaDE(6, 4, **TINY | {"init": "linear"}).fit(doubled)


def test_a_start_from_an_autoencoder_begins_with_its_mixture(x):
    """The mixture is fitted to the latents of every restart, and q starts at a tenth of their spread."""
    model = VaDE(2, 4, **TINY | {"pretrain_steps": 100, "max_steps": 1}).fit(x)
    module = model._started(x, 0, CPU)
    rows = model._rows(x, CPU, np.float32).expand(2, -1, -1)
    with torch.no_grad():
        q = module.encode(rows)
        four, one = (torch.logsumexp(base(q.mean), -1).mean(1) for base in (module.bases[0], learnt(q.mean, 1, 5)))
        assert (four > one + 0.1).all()
        assert not torch.allclose(module.bases[0].means[0], module.bases[0].means[1])
        share = (q.log_sd.exp() / q.mean.std(1, keepdim=True)).log().mean((1, 2)).exp()
    assert ((share > 0.03) & (share < 0.3)).all()


def test_a_flow_start_is_at_the_maps_and_the_mixture_of_the_flow(x):
    settings = QUICK | {"pretrain_steps": 20, "max_steps": 1, "learning_rate": 1e-6}
    model = VaDE(2, 4, hidden=(16,), **settings).fit(x)
    module = model._started(x, 5, CPU)
    flow = GMMFlow(
        2, n_restarts=2, random_state=5, verbose=0, n_components=4, full_covariance_steps=20, max_steps=20
    ).fit(x)
    with torch.no_grad():
        found = module.encode(model._rows(x, CPU, np.float32).expand(2, -1, -1)).mean.numpy()
    for r, z in enumerate(flow.latents_of_restarts(x)):
        np.testing.assert_allclose(found[r], z, atol=0.01)
        own, law = module.bases[0].mixture(r), flow._restarts.base.mixture(r)
        np.testing.assert_allclose(own.weights, law.weights, atol=1e-6)
        np.testing.assert_allclose(own.means, law.means, atol=1e-5)
    with torch.no_grad():
        back = module.decode(torch.as_tensor(found)).numpy() * model.scale_ + model.mean_
    kept = int(np.argmax(flow.restart_scores_))
    np.testing.assert_allclose(back[kept], flow.inverse_transform(flow.transform(x)), atol=0.01)


def test_a_flow_that_failed_is_replaced_by_the_best(x, monkeypatch):
    whole = GMMFlow._train

    def failing(self, *args):
        model = whole(self, *args)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter[0] = torch.nan
        return model

    monkeypatch.setattr(GMMFlow, "_train", failing)
    model = VaDE(2, 4, **TINY | {"init": "flow", "n_restarts": 3}).fit(x)
    assert np.isfinite(model.restart_scores_).all()
    assert np.isfinite(model.latents_of_restarts(x)).all()


def test_what_auto_becomes(x):
    bits = (x > 0).astype(float)
    for settings, rows, expected in (
        ({}, x, "flow"),
        ({"likelihood": "bernoulli"}, bits, "autoencoder"),
        ({"net": Dense((8,))}, x, "autoencoder"),
        ({"n_latents": 6}, x, "autoencoder"),
    ):
        model = VaDE(**{"n_latents": 2, "n_components": 3} | QUICK | settings | {"hidden": (8,)}).fit(rows)
        assert model._start == expected
        assert model._first_beta == (1.0 if expected == "flow" else 0.1)
        assert (model.module_.out is None) == (expected != "flow")
        assert (model.module_.lower is not None) == (model.n_latents <= 10)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("start", STARTS)
def test_every_choice_runs(x, bound, start):
    posterior = "full" if (bound == "factorised") == (start == "flow") else "diagonal"
    model = VaDE(2, 3, **TINY | {"bound": bound, "start": start, "posterior": posterior, "first_beta": 0.5}).fit(x)
    assert np.isfinite(model.score(x))
    assert model.transform(x).shape == (250, 2)
    assert (model.module_.lower is not None) == (posterior == "full")


@pytest.mark.parametrize("likelihood", ["bernoulli", "logistic", "categorical"])
def test_every_likelihood_runs(likelihood):
    x = np.random.default_rng(0).integers(0, 3, size=(200, 6)).astype(float)
    x = x if likelihood == "categorical" else np.round(255 * x / 2) / 255
    x[:, 0] = 1.0  # pixels at the border never vary
    for start in ("random", "autoencoder", "linear"):
        model = VaDE(2, 3, **TINY | {"likelihood": likelihood, "start": start}).fit(x)
        assert np.isfinite(model.score(x))
        drawn = model.sample(50, random_state=0)
        assert set(np.unique(drawn)) <= (
            set(np.unique(np.arange(256) / 255)) if likelihood == "logistic" else {0, 1, 2}
        )
        assert isinstance(model.certificate_.level, Level)


@pytest.mark.parametrize(("rows", "start", "expected"), [(130, "flow", 8), (130, "autoencoder", 9), (12, "random", 1)])
def test_few_rows_have_few_components(rows, start, expected):
    """Four rows each, and four more for every latent, of those that are trained on; a flow holds out its own."""
    x = np.random.default_rng(0).normal(size=(rows, 4))
    model = VaDE(2, 10, **TINY | {"start": start}).fit(x)
    assert model.n_components_ == (expected,)
    assert model.predict_proba(x).shape == (rows, expected)
    assert len(model.mixture_.weights) == expected


def test_the_two_bounds_are_trained_as_they_are_named(x):
    models = [VaDE(2, 4, bound=bound, **TINY | {"first_beta": 1.0, "batch_size": 250}).fit(x) for bound in BOUNDS]
    assert not np.allclose(*(model.transform(x) for model in models))
    loss = [model.history_.loss[0] for model in models]
    assert (loss[0] < loss[1]).all()  # the same nets in the first step, and a bound that is lower


def test_a_low_first_weight_lets_the_latents_speak_first(x):
    low, one = (VaDE(2, 4, first_beta=beta, **TINY).fit(x).history_.loss[0] for beta in (0.01, 1.0))
    assert (low < one - 0.3).all()  # the same nets, in the first step
    default, tenth = VaDE(2, 4, **TINY), VaDE(2, 4, first_beta=0.1, **TINY)
    np.testing.assert_array_equal(default.fit(x).transform(x), tenth.fit(x).transform(x))


# -- images -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def images():
    return load_digits().x[:150].reshape(-1, 8, 8)


def test_images_in_images_out(images):
    model = VaDE(3, 4, net="convnet", likelihood="bernoulli", binarise="draw", **QUICK).fit(images)
    assert model.transform(images).shape == (150, 3)
    assert model.predict(images).shape == (150,)
    assert model.inverse_transform(model.mixture_.means).shape == (len(model.mixture_.weights), 8, 8)
    assert model.sample(6, random_state=0, component=1).shape == (6, 8, 8)
    assert model.latents_of_restarts(images).shape == (2, 150, 3)
    assert np.isfinite(model.score(images))
    for wrong in (images.reshape(-1, 4, 16), np.zeros((2, 28, 28)), images[..., None]):
        with pytest.raises(DataError, match=r"Expected images of shape \(8, 8\), as in fit\. Got"):
            model.transform(wrong)


# -- files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("net", [None, Dense((8,)), ConvNet(), ResNet((8, 8), width=2)], ids=str)
def test_a_file_gives_the_same_model(net, images, tmp_path):
    rows = images if net is not None else images.reshape(150, -1)
    model = VaDE(2, 3, net=net, likelihood="bernoulli", **QUICK | {"hidden": (8,)}).fit(rows)
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu")
    for use in ("transform", "predict_proba", "score_samples"):
        np.testing.assert_array_equal(getattr(again, use)(rows), getattr(model, use)(rows))
    np.testing.assert_array_equal(again.sample(5, 0, component=1), model.sample(5, 0, component=1))
    assert again.get_params() == model.get_params() | {"device": "cpu"}
    assert str(again.certificate_) == str(model.certificate_)
    with pytest.raises(DataError, match="not kept in a file"):
        again.latents_of_restarts(rows)


@pytest.mark.parametrize(
    "settings",
    [
        {"init": "flow"},
        {"likelihood": "bernoulli", "binarise": "draw", "net": Dense((8,), dropout=0.2, dropout_after=1)},
        {"likelihood": "bernoulli", "net": "convnet", "n_restarts": 1},
    ],
    ids=["flow", "dropout", "convnet"],
)
def test_a_resumed_fit_equals_an_uninterrupted_one(settings, images, tmp_path, monkeypatch):
    """And its start, which the checkpoint has left behind, is not made again."""
    plan, write = variational.Plan, Run.save
    monkeypatch.setattr(variational, "Plan", lambda *args, **kw: plan(*args, **kw, checkpoint_seconds=0.0))
    rows = images if "net" in settings else bent(1, 250)[0]
    settings = TINY | settings
    whole = VaDE(2, 3, **settings).fit(rows)
    path, saves = tmp_path / "c.safetensors", itertools.count(1)
    model = VaDE(2, 3, checkpoint=path, **settings)

    def stopping(self, *args):
        write(self, *args)
        if next(saves) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(Run, "save", stopping)
        with pytest.raises(KeyboardInterrupt):
            model.fit(rows)
    for other in ({"batch_size": 31}, {"bound": "factorised"}, {"first_beta": 0.3}):
        with pytest.raises(DamagedFileError, match="belongs to another problem"):
            clone(model).set_params(**other).fit(rows)
    monkeypatch.setattr(mixture_vae.MixtureVAE, "_start_at_autoencoder", None)
    monkeypatch.setattr(mixture_vae.MixtureVAE, "_start_at_flow", None)
    resumed = clone(model).fit(rows)
    assert not path.exists()
    for a, b in zip(whole.module_.state_dict().values(), resumed.module_.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    np.testing.assert_array_equal(whole.history_.loss, resumed.history_.loss)
    np.testing.assert_array_equal(whole.predict_proba(rows), resumed.predict_proba(rows))


# -- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bound": "iwae"}, r"'bound' parameter of VaDE must be one of \('single-sample', 'factorised'\)\. Got 'iwae'"),
        ({"init": "warm"}, r"'start' parameter of VaDE must be one of \('auto', 'flow', 'autoencoder', 'linear', 'r"),
        ({"init": "flow", "likelihood": "bernoulli"}, "unless likelihood='gaussian'. Got 'flow' instead"),
        ({"posterior": "low rank"}, "'auto', 'full' or 'diagonal'"),
        ({"first_beta": 0}, "a number > 0 or None"),
        ({"pretrain_steps": 0}, "an integer >= 1 or None"),
        ({"n_components": 0}, "'n_components' parameter of VaDE must be an integer >= 1"),
        ({"n_components": (3, 4)}, "'n_components' parameter of VaDE must be an integer >= 1"),
        ({"n_latents": 9, "init": "flow"}, "n_latents=9, rank=5"),
        ({"random_state": None, "checkpoint": "c"}, "an integer when checkpoint is given. Got None"),
    ],
)
def test_bad_settings_get_one_clear_error(x, settings, words):
    with pytest.raises(ValueError, match=words):
        VaDE(**{"n_latents": 2, "n_components": 3} | TINY | settings).fit(x)


def test_disagreeing_restarts_warn():
    noise = np.random.default_rng(0).normal(size=(300, 6))
    with pytest.warns(RecoveryWarning, match=r"VaDE: 2 restarts agree at 0\.\d\d only"):
        VaDE(2, 3, **TINY | {"init": "random"}).fit(noise)
