"""IVAE against models whose posterior and likelihood are known, and its latents against true ones."""

import copy
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit, logsumexp, softmax
from scipy.stats import multivariate_normal, norm
from sklearn.base import clone

from identifiable import (
    IVAE,
    VAE,
    DamagedFileError,
    DataError,
    IFlow,
    IndependentComponents,
    PrincipalComponents,
    RecoveryWarning,
    SegmentUnmixing,
    load,
    save,
)
from identifiable.data import load_digits, make_segments
from identifiable.estimators import ivae
from identifiable.estimators.autoencoder import Likelihood, Posterior
from identifiable.estimators.base import Stability
from identifiable.estimators.given_u import FAMILIES, PriorGivenU
from identifiable.estimators.ivae import statistics_of
from identifiable.estimators.ivae_nets import Nets
from identifiable.metrics import mcc
from identifiable.nets import Dense
from identifiable.theory import Level
from identifiable.training.state import Run

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")

CPU = torch.device("cpu")
QUICK = {"n_restarts": 2, "max_steps": 20, "batch_size": 64, "hidden": (8,), "random_state": 0, "verbose": 0}
SMALL = QUICK | {"max_steps": 600, "batch_size": 256, "hidden": (64, 64), "learning_rate": 0.01}


@pytest.fixture(params=[0, 1, 2])
def g(request):
    return torch.Generator().manual_seed(request.param)


def rand(g, *shape):
    return torch.randn(shape, generator=g, dtype=torch.float64)


def nets(g, *, family="gaussian", full=True, n=3, inputs=4, values=5):
    """Random nets of one member, with a table of five values of u."""
    prior = PriorGivenU(1, n, family, values, table=True)
    prior.start(rand(g, values, n).numpy(), rand(g, values, n).mul(0.5).exp().numpy())
    net, columns = Dense((6,), activation="tanh"), Likelihood(1, "gaussian", inputs)
    made = Nets(1, inputs, net, prior, columns, full=full, bypass=True, rng=g).double()
    with torch.no_grad():
        made.into.copy_(rand(g, 1, inputs, n))
    return made


# -- the posterior --------------------------------------------------------------------


@pytest.mark.parametrize("full", [True, False])
def test_draws_have_the_moments_and_the_entropy_that_are_stated(g, full):
    mean, log_sd, below = rand(g, 1, 4, 3), 0.5 * rand(g, 1, 4, 3), rand(g, 1, 4, 3, 3).tril(-1)
    q = Posterior(mean, log_sd, below if full else None)
    z = q.at(rand(g, 200_000, 4, 3))
    sd = q.variance.sqrt()
    torch.testing.assert_close((z.mean(0) - mean[0]) / sd[0], torch.zeros(4, 3).double(), atol=0.015, rtol=0)
    torch.testing.assert_close(z.var(0), q.variance[0], atol=0, rtol=0.02)
    for b in range(4):
        covariance = np.cov(z[:, b].numpy().T)
        assert q.entropy[0, b].item() == pytest.approx(multivariate_normal.entropy(cov=covariance), abs=0.02)
    assert (np.abs(np.corrcoef(z[:, 0].numpy().T)[np.tril_indices(3, -1)]) > 0.02).any() == full


def test_a_diagonal_factor_and_the_prior_make_their_exact_product(g):
    module, x, u = nets(g, full=False), rand(g, 1, 7, 4), torch.tensor([[0, 1, 2, 3, 4, 0, 1]])
    own, (mean, log_scale) = module.encode(x), module.gaussian_prior(u)
    q = module.posterior(x, (mean, log_scale))
    precision = 1 / own.variance + torch.exp(-2 * log_scale)
    torch.testing.assert_close(q.variance, 1 / precision)
    torch.testing.assert_close(q.mean, (own.mean / own.variance + mean * torch.exp(-2 * log_scale)) / precision)


def test_a_full_factor_keeps_its_correlations_between_the_two_it_is_made_of(g):
    """Each latent alone is the product of its two Gaussians; a vague prior changes nothing, a sure one all."""
    module, x, u = nets(g), rand(g, 1, 7, 4), torch.tensor([[0, 1, 2, 3, 4, 0, 1]])
    own, (mean, log_scale) = module.encode(x), module.gaussian_prior(u)
    q = module.posterior(x, (mean, log_scale))
    torch.testing.assert_close(1 / q.variance, 1 / own.variance + torch.exp(-2 * log_scale))
    torch.testing.assert_close(q.below, own.below)
    vague, sure = module.posterior(x, (mean, log_scale + 20)), module.posterior(x, (mean, log_scale - 20))
    torch.testing.assert_close((vague.mean, vague.variance), (own.mean, own.variance))
    torch.testing.assert_close((sure.mean, sure.variance), (mean, torch.exp(2 * log_scale - 40)))


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("family", ["variance", "gaussian", "laplace"])
def test_the_divergence_is_that_of_monte_carlo(g, family, full):
    module, x, u = nets(g, family=family, full=full), rand(g, 1, 5, 4), torch.tensor([[0, 1, 2, 3, 4]])
    q = module.posterior(x, module.gaussian_prior(u))
    noise = rand(g, 100_000, 5, 3)
    z = q.at(noise)
    log_q = torch.stack(
        [
            torch.distributions.MultivariateNormal(q.mean[0, b], scale_tril=_tril(q, b)).log_prob(z[:, b])
            for b in range(5)
        ],
        dim=1,
    )
    ratio = log_q - module.prior.log_density(z, *module.prior(u))
    exact = module.divergence(q, u)[0]
    assert ((ratio.mean(0) - exact).abs() < 5 * ratio.std(0) / len(z) ** 0.5 + 1e-9).all()
    assert (exact > 0).all()


def _tril(q, b):
    """Return the Cholesky factor of the covariance of row b."""
    mixed = torch.eye(3).double() if q.below is None else torch.eye(3).double() + q.below[0, b]
    return q.log_sd[0, b].exp()[:, None] * mixed


@pytest.mark.parametrize("family", ["variance", "gaussian"])
def test_the_divergence_from_the_prior_itself_is_zero(g, family):
    module, u = nets(g, family=family), torch.tensor([[0, 1, 2, 3, 4]])
    mean, log_scale = module.prior(u)
    own = module.divergence(Posterior(mean, log_scale, None), u)
    torch.testing.assert_close(own, torch.zeros_like(own), atol=1e-12, rtol=0)
    assert (module.divergence(Posterior(mean, log_scale, rand(g, 1, 5, 3, 3).tril(-1)), u) > 0).all()


def test_the_gaussian_of_a_laplace_law_has_its_moments(g):
    module, u = nets(g, family="laplace"), torch.tensor([[0, 1, 2, 3, 4]])
    mean, log_scale = module.prior(u)
    law = torch.distributions.Laplace(mean, log_scale.exp())
    matched = module.gaussian_prior(u)
    torch.testing.assert_close((matched[0], torch.exp(2 * matched[1])), (law.mean, law.variance))


# -- the bound: a model whose likelihood is known ---------------------------------------


class Known:
    """x = mean + scale (z A + b + σ ε), z | u ~ N(m_u, diag s_u²) for three u, as an IVAE set by hand; d = 4, n = 2."""

    def __init__(self, seed, **settings):
        rng = np.random.default_rng(seed)
        self.x, self.u = rng.normal(size=(60, 4)) * [1, 2, 30, 0.1] + [0, 5, 0, 9], np.arange(60) % 3
        start = {"hidden": (), "init": "random", "max_steps": 1, "n_restarts": 1}
        self.model = IVAE(2, family="gaussian", **QUICK | start | settings).fit(self.x, self.u)
        self.A, self.b, self.sigma = rng.normal(size=(2, 4)), rng.normal(size=4), rng.uniform(0.3, 0.8, size=4)
        self.means, self.scales = rng.normal(size=(3, 2)), rng.uniform(0.5, 2, size=(3, 2))
        self.nets = self.model.module_.double()
        with torch.no_grad():
            for layer in self.nets.last_layers:
                layer.weight.zero_()
                layer.bias.zero_()
            self.nets.out[0] = torch.as_tensor(self.A)
            self.nets.last_layers[1].bias[0, 0] = torch.as_tensor(self.b)
            self.nets.log_noise[0, 0] = torch.as_tensor(np.log(self.sigma))
        self.nets.prior.start(self.means, self.scales)
        self.rows = (self.x - self.model.mean_) / self.model.scale_

    def law(self, u):
        """p(x | u), in the units of the data."""
        scale = self.model.scale_
        covariance = self.A.T @ np.diag(self.scales[u] ** 2) @ self.A + np.diag(self.sigma**2)
        return multivariate_normal(
            self.model.mean_ + scale * (self.means[u] @ self.A + self.b), covariance * np.outer(scale, scale)
        )

    def posterior(self, u):
        """Means (N, 2) and the covariance of p(z | x, u)."""
        precision = (self.A / self.sigma**2) @ self.A.T + np.diag(self.scales[u] ** -2)
        towards = ((self.rows - self.b) / self.sigma**2) @ self.A.T + self.means[u] / self.scales[u] ** 2
        return np.linalg.solve(precision, towards.T).T, np.linalg.inv(precision)

    def encode(self, u):
        """Set the encoder so that q(z | x, u) is p(z | x, u) for this u."""
        mean, covariance = self.posterior(u)
        m, s2 = self.means[u], self.scales[u] ** 2
        own = np.diag(covariance) * s2 / (s2 - np.diag(covariance))
        gain = s2 / (s2 + own)
        tril = np.linalg.cholesky(covariance / np.sqrt(np.outer(gain, gain)))
        slope = np.linalg.lstsq(np.c_[self.rows, np.ones(60)], m + (mean - m) / gain, rcond=None)[0]
        below = (tril / np.diag(tril)[:, None]) * np.tri(2, k=-1)
        with torch.no_grad():
            self.nets.into[0] = torch.as_tensor(slope[:4])
            bias = np.r_[slope[4], np.log(np.diag(tril)), below.ravel()]
            self.nets.last_layers[0].bias[0, 0] = torch.as_tensor(bias)
        return self

    def divergence(self, u):
        """KL(q(z | x, u) || p(z | x, u)) of every row, by the formula of two Gaussians."""
        given = torch.full((1, 60), u)
        q = self.nets.posterior(torch.as_tensor(self.rows)[None], self.model._pull(self.nets, given))
        (mean, covariance), n = self.posterior(u), 2
        tril = np.exp(q.log_sd[0].detach().numpy())[..., None] * (np.eye(n) + q.below[0].detach().numpy())
        off = q.mean[0].detach().numpy() - mean
        trace = np.trace(np.linalg.solve(covariance, tril @ tril.swapaxes(1, 2)), axis1=1, axis2=2)
        square = (off * np.linalg.solve(covariance, off.T).T).sum(1)
        log_det = np.linalg.slogdet(covariance)[1] - 2 * np.log(np.diagonal(tril, axis1=1, axis2=2)).sum(1)
        return 0.5 * (trace + square - n + log_det)


@pytest.fixture
def many_draws(monkeypatch):
    monkeypatch.setattr(ivae, "DRAWS", 2048)
    monkeypatch.setattr(ivae, "BLOCK", 2048 * 20)


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_is_the_likelihood_where_q_is_the_posterior(seed):
    known = Known(seed)
    for u in range(3):
        known.encode(u)
        np.testing.assert_allclose(known.model.transform(known.x, np.full(60, u)), known.posterior(u)[0], rtol=1e-6)
        exact = known.law(u).logpdf(known.x)
        for importance in (False, True):
            found = known.model.score_samples(known.x, np.full(60, u), importance=importance)
            np.testing.assert_allclose(found, exact, rtol=1e-8)
        assert known.model.score(known.x, np.full(60, u)) == pytest.approx(exact.mean())


@pytest.mark.parametrize("seed", range(3))
def test_any_other_q_costs_its_divergence_from_the_posterior(seed, many_draws):
    known = Known(seed).encode(0)
    for u in (1, 2):
        given, exact = np.full(60, u), known.law(u).logpdf(known.x)
        bound, tighter = (known.model.score_samples(known.x, given, importance=i) for i in (False, True))
        assert known.divergence(u).min() > 0
        np.testing.assert_allclose(exact - bound, known.divergence(u), atol=0.02, rtol=0.02)
        assert (bound < tighter).all()
        assert (tighter < exact + 0.05).all()


@pytest.mark.parametrize("seed", range(3))
def test_without_u_it_is_a_bound_on_the_mixture_over_its_values(seed, many_draws):
    known = Known(seed).encode(0)
    with torch.no_grad():
        known.nets.last_layers[0].bias[..., 2:4] += 1  # wider than the posterior, else no draws come to its edge
    exact = logsumexp([known.law(u).logpdf(known.x) for u in range(3)], axis=0) - np.log(3)
    bound, tighter = (known.model.score_samples(known.x, importance=i) for i in (False, True))
    assert (bound < exact + 0.01).all()
    assert (bound < tighter).all()
    np.testing.assert_allclose(tighter, exact, atol=0.1)
    assert known.model.score(known.x) == pytest.approx(bound.mean())


def test_the_latents_of_rows_without_u_are_drawn_towards_the_law_over_all_u():
    known = Known(0, posterior="diagonal").model
    mean, log_scale = known._pull(known.module_, None)
    table, scales = known.module_.prior.means[0], known.module_.prior.log_scales[0].exp()
    torch.testing.assert_close(mean[0, 0], table.mean(0))
    torch.testing.assert_close(torch.exp(2 * log_scale[0, 0]), scales.square().mean(0) + table.var(0, correction=0))


@pytest.mark.parametrize("seed", range(2))
def test_training_reaches_the_likelihood_of_the_truth(seed):
    """A linear model, its noise and its scales: on fresh rows its bound is nearly the likelihood of the true law."""
    rng = np.random.default_rng(seed)
    scales, A, u = rng.uniform(0.3, 2, size=(6, 2)), rng.normal(size=(2, 4)), np.arange(6000) % 6
    x = (rng.normal(size=(6000, 2)) * scales[u]) @ A + 0.3 * rng.normal(size=(6000, 4))
    model = IVAE(family="variance", **SMALL | {"hidden": (), "init": "linear"}).fit(x[:4000], u[:4000])
    laws = [multivariate_normal(np.zeros(4), (A.T * s**2) @ A + 0.09 * np.eye(4)) for s in scales]
    best = np.mean([laws[k].logpdf(row) for row, k in zip(x[4000:], u[4000:], strict=True)])
    assert best - 0.05 < model.score(x[4000:], u[4000:]) < best + 0.01
    assert np.log(model.noise_ / 0.3).mean() == pytest.approx(0, abs=0.2)
    learnt = model.module_.prior(torch.arange(6)[None])[1][0].exp().detach().numpy()
    assert mcc(scales, learnt) > 0.95


@pytest.mark.parametrize("drawn", ["normal", "laplace"])
def test_the_family_that_was_drawn_from_is_the_likelier(drawn):
    rng = np.random.default_rng(0)
    u = np.arange(6000) % 6
    x = (getattr(rng, drawn)(size=(6000, 2)) * rng.uniform(0.3, 2, size=(6, 2))[u]) @ rng.normal(size=(2, 4))
    x += 0.1 * rng.normal(size=(6000, 4))
    settings = SMALL | {"hidden": (), "init": "linear", "max_steps": 300}
    score = {f: IVAE(family=f, **settings).fit(x[:4000], u[:4000]).score(x[4000:], u[4000:]) for f in FAMILIES}
    assert (score["laplace"] > score["variance"] + 0.02) == (drawn == "laplace")
    assert (score["variance"] > score["laplace"] + 0.02) == (drawn == "normal")


# -- draws ------------------------------------------------------------------------------


def test_draws_have_the_moments_of_their_group():
    known = Known(0)
    for u in range(3):
        law, drawn = known.law(u), known.model.sample(100_000, u=u, random_state=u)
        sd = np.sqrt(np.diag(law.cov))
        np.testing.assert_allclose((drawn.mean(0) - law.mean) / sd, 0, atol=0.02)
        np.testing.assert_allclose(np.cov(drawn.T) / np.outer(sd, sd), law.cov / np.outer(sd, sd), atol=0.03)
    laws = [known.law(u) for u in range(3)]
    mean = np.mean([law.mean for law in laws], axis=0)
    second = np.mean([law.cov + np.outer(law.mean - mean, law.mean - mean) for law in laws], axis=0)
    drawn, sd = known.model.sample(100_000, random_state=0), np.sqrt(np.diag(second))
    np.testing.assert_allclose((drawn.mean(0) - mean) / sd, 0, atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T) / np.outer(sd, sd), second / np.outer(sd, sd), atol=0.03)
    np.testing.assert_allclose(known.model.noise_, known.sigma * known.model.scale_)
    with pytest.raises(DataError, match=r"one for each of the 3 rows\. Got 2 rows"):
        known.model.sample(3, u=[1, 2])


def test_bits_are_drawn_at_the_rates_of_their_group():
    rng = np.random.default_rng(0)
    x, u = (rng.uniform(size=(60, 3)) < 0.5).astype(float), np.arange(60) % 2
    model = IVAE(1, likelihood="bernoulli", family="gaussian", **QUICK | {"hidden": ()}).fit(x, u)
    A, b = np.array([1.0, -2.0, 0.0]), np.array([0.0, 0.5, -3.0])
    with torch.no_grad():
        model.module_.last_layers[1].weight.zero_()
        model.module_.out[0, 0], model.module_.last_layers[1].bias[0, 0] = torch.as_tensor(A), torch.as_tensor(b)
    model.module_.prior.start(np.array([[-1.0], [1.0]]), np.array([[0.5], [2.0]]))
    for k, (m, s) in enumerate([(-1.0, 0.5), (1.0, 2.0)]):
        drawn = model.sample(100_000, u=k, random_state=k)
        assert set(np.unique(drawn)) == {0.0, 1.0}
        z = m + s * norm.ppf((np.arange(10_000) + 0.5) / 10_000)
        np.testing.assert_allclose(drawn.mean(0), expit(z[:, None] * A + b).mean(0), atol=0.008)
        np.testing.assert_allclose(model.inverse_transform(z[:5, None]), expit(z[:5, None] * A + b), rtol=1e-5)
    with pytest.raises(AttributeError, match="has no noise scale"):
        _ = model.noise_


@pytest.fixture(scope="module")
def categories():
    """Two columns of categories, {2, 5, 9} and {-1, 4}, and the model that holds them."""
    rng = np.random.default_rng(0)
    x = np.c_[rng.choice([2.0, 5.0, 9.0], size=200), rng.choice([-1.0, 4.0], size=200)]
    return x, IVAE(1, likelihood="categorical", **QUICK).fit(x, np.arange(200) % 2)


def test_the_probabilities_of_all_categories_sum_to_one(categories, g):
    _, model = categories
    module, z = model.module_.double(), 3 * rand(g, 1, 1, 1)
    every = np.array(list(itertools.product([2.0, 5.0, 9.0], [-1.0, 4.0])))
    rows = model._rows(every, CPU)[None]
    log_p = module.log_likelihood(rows, module.decode(z).expand(1, 6, -1))[0]
    assert log_p.exp().sum().item() == pytest.approx(1)
    logits = module.decode(z)[0, 0].detach().numpy()
    by_hand = np.outer(softmax(logits[:3]), softmax(logits[3:])).ravel()
    np.testing.assert_allclose(log_p.exp().detach().numpy(), by_hand)
    assert model.inverse_transform(z[0].numpy())[0].tolist() == every[by_hand.argmax()].tolist()


def test_categories_are_drawn_as_often_as_the_model_says(categories):
    x, model = categories
    model = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.module_.decoder.parameters():
            parameter.zero_()
        model.module_.out.zero_()
        model.module_.last_layers[1].bias[0, 0] = torch.tensor([0.0, 1.0, -1.0, 0.0, 2.0])
    drawn = model.sample(50_000, random_state=0)
    for column, (levels, logits) in enumerate([([2, 5, 9], [0, 1, -1]), ([-1, 4], [0, 2])]):
        found, count = np.unique(drawn[:, column], return_counts=True)
        assert found.tolist() == levels
        np.testing.assert_allclose(count / 50_000, softmax(logits), atol=0.01)
    assert np.isfinite(model.score_samples(x)).all()


def test_values_that_a_likelihood_does_not_have_are_refused(categories):
    x, model = categories
    with pytest.raises(DataError, match=r"Column 1 has categories that were not there in fit: \[3.0\]\. Drop"):
        model.transform(np.array([[2.0, 3.0], [2.0, 4.0]]))
    for refused in (lambda v: clone(model).fit(v, np.arange(200) % 2), model.transform, model.score):
        with pytest.raises(DataError, match="needs whole numbers that name categories"):
            refused(x + 0.5)
    bits = IVAE(1, likelihood="bernoulli", **QUICK)
    half = (x[:, :1] > 4) * [[1.0, 0.5]]
    bits.fit(half, np.arange(200) % 2)
    for refused in (lambda v: clone(bits).fit(v, np.arange(200) % 2), bits.transform, bits.score_samples):
        with pytest.raises(DataError, match=r"needs values in \[0, 1\]; these lie in \[0, 2\]\. Rescale"):
            refused(2 * half)


@pytest.mark.parametrize("likelihood", ["bernoulli", "categorical"])
def test_bits_may_be_constant_or_rare(likelihood):
    """Pixels at the border never vary, and a rare bit may be in no training row."""
    rng = np.random.default_rng(0)
    x = (rng.uniform(size=(400, 6)) < 0.5).astype(float)
    x[:, 0], x[:, 1] = 1.0, np.arange(400) == 7
    for seed in range(10):
        model = IVAE(2, likelihood=likelihood, **QUICK | {"random_state": seed, "max_steps": 2}).fit(x, x[:, 3] + 1)
        assert np.isfinite(model.transform(x)).all()
        assert np.isfinite(model.score(x, x[:, 3] + 1))
    with pytest.raises(DataError, match=r"rank=0, n_features=6\. Lower n_latents"):
        IVAE(2, likelihood=likelihood, **QUICK).fit(np.ones((400, 6)), x[:, 3])


def test_columns_may_be_constant_but_for_one_row():
    """Whether that row is trained on or held out."""
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(size=(400, 3)), np.eye(400)[:, :20]]
    for seed in range(4):
        model = IVAE(2, **QUICK | {"random_state": seed, "max_steps": 2}).fit(x, np.arange(400) % 2)
        assert np.isfinite(model.score(x, np.arange(400) % 2))


# -- u ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def segments():
    return make_segments(600, segments=5, n=2, d=4, noise=0.05, random_state=0)


def test_the_names_of_the_values_do_not_matter(segments):
    names = np.array(list("abcde"))[segments.u]
    by_name, by_number = (IVAE(**QUICK).fit(segments.x, u) for u in (names, segments.u))
    np.testing.assert_array_equal(by_name.transform(segments.x, names), by_number.transform(segments.x, segments.u))
    as_list = IVAE(**QUICK).fit(segments.x, names.tolist())
    np.testing.assert_array_equal(as_list.transform(segments.x), by_name.transform(segments.x))
    assert by_name.sample(3, u="c", random_state=0).shape == (3, 4)
    with pytest.raises(DataError, match="no training row had: 'z'"):
        by_name.transform(segments.x[:1], ["z"])
    with pytest.raises(DataError, match="X has 600, u has 2"):
        by_name.transform(segments.x, ["a", "b"])


def test_several_columns_of_u(segments):
    rng = np.random.default_rng(0)
    u = pd.DataFrame({"cell": np.array(list("tb"))[segments.u % 2], "dose": rng.uniform(size=600)})
    model = IVAE(**QUICK).fit(segments.x, u)
    assert not model.table_
    assert model.sample(4, u=("b", 0.5), random_state=0).shape == (4, 4)
    assert model.sample(600, u=u, random_state=0).shape == (600, 4)
    assert model.sample(4, random_state=0).shape == (4, 4)
    rows = list(u.itertuples(index=False, name=None))
    by_rows = IVAE(**QUICK).fit(segments.x, rows)
    np.testing.assert_array_equal(by_rows.transform(segments.x), model.transform(segments.x))
    np.testing.assert_array_equal(model.score_samples(segments.x, rows), model.score_samples(segments.x, u))
    table = IVAE(prior="table", n_groups=6, **QUICK).fit(segments.x, u)
    assert table.module_.prior.log_scales.shape == (1, table.auxiliary_.n_groups, 2)


def test_a_net_learns_how_the_scales_change_with_a_continuous_u():
    rng = np.random.default_rng(0)
    t = rng.uniform(size=3000)
    true = np.stack([np.sin(2 * np.pi * t), np.cos(2 * np.pi * t)], axis=1)  # log-scales
    z = rng.normal(size=(3000, 2)) * np.exp(true)
    x = z @ rng.normal(size=(2, 3)) + 0.05 * rng.normal(size=(3000, 3))
    model = IVAE(**SMALL | {"init": "linear", "max_steps": 300, "hidden": (16,)}).fit(x, t)
    assert not model.table_
    assert mcc(z, model.transform(x)) > 0.97
    grid = np.linspace(0, 1, 50)
    _, learnt = model.module_.prior(model._u_tensor(grid, 50, CPU)[None])
    shape = np.stack([np.sin(2 * np.pi * grid), np.cos(2 * np.pi * grid)], axis=1)
    assert mcc(shape, learnt[0].detach().numpy()) > 0.95
    low, high = (model.sample(5000, u=v, random_state=0) @ np.linalg.pinv(x) @ z for v in (0.75, 0.25))
    assert model.score(x, t) > model.score(x) + 0.1
    assert not np.allclose(low.std(0), high.std(0), rtol=0.5)


def test_u_moves_the_latents_unless_the_posterior_does_not_see_it(segments):
    sees = IVAE(noise=0.5, **QUICK).fit(segments.x, segments.u)
    assert np.abs(sees.transform(segments.x, segments.u) - sees.transform(segments.x)).max() > 0.01
    blind = IVAE(noise=0.5, posterior_given_u=False, **QUICK).fit(segments.x, segments.u)
    np.testing.assert_array_equal(blind.transform(segments.x, segments.u), blind.transform(segments.x))
    assert not np.allclose(blind.score_samples(segments.x, segments.u), blind.score_samples(segments.x))


def test_every_value_of_u_counts_however_few_its_rows(segments):
    """Ten values of one row each, trained on or held out: the start and the law go on."""
    rows = np.arange(600)
    u = np.where(rows < 10, rows + 100, segments.u)
    for seed in range(4):
        model = IVAE(**QUICK | {"random_state": seed, "max_steps": 2}).fit(segments.x, u)
        assert np.isfinite(model.transform(segments.x, u)).all()
        assert model.conditional_prior_.means.shape == (5, 2)


def test_tiny_data():
    rng = np.random.default_rng(0)
    for rows in (4, 6, 12):
        x, u = rng.normal(size=(rows, 3)), np.arange(rows) % 2
        model = IVAE(1, **QUICK).fit(x, u)
        assert np.isfinite(model.transform(x, u)).all()
        assert model.certificate_.level == Level.NONE


# -- the weighted bound -------------------------------------------------------------------


def test_equal_weights_are_the_bound_in_expectation():
    """Over many draws, with all rows as the batch; and each term against a reference written here."""
    known = Known(0, posterior="diagonal", weights=(1.0, 1.0, 1.0, 1.0))
    model, module, g = known.model, known.nets, torch.Generator().manual_seed(0)
    x, u = torch.as_tensor(known.rows)[None], torch.as_tensor(known.u)[None]
    with torch.no_grad():
        module.into.copy_(rand(g, 1, 4, 2))
        q = module.posterior(x, model._pull(module, u))
        plain, weighted = [], []
        for _ in range(1500):
            z = q.at(rand(g, 1, 60, 2))
            likelihood = module.log_likelihood(x, module.decode(z))
            plain.append((likelihood - module.divergence(q, u)).mean())
            weighted.append(model._weighted(module, likelihood, q, z, u, 60).mean())
        gap = torch.stack(weighted) - torch.stack(plain)
        assert abs(gap.mean()) < 4 * gap.std() / 1500**0.5
        a = likelihood[0].numpy()
        sd, mean, draw = q.log_sd[0].exp().numpy(), q.mean[0].numpy(), z[0].numpy()
        each = norm.logpdf(draw[:, None], mean, sd)  # (draws, rows, latents)
        own = np.einsum("bbi->bi", each).sum(1)
        joint, marginals = logsumexp(each.sum(2), axis=1) - 2 * np.log(60), logsumexp(each, axis=1) - 2 * np.log(60)
        prior = norm.logpdf(draw, known.means[known.u], known.scales[known.u]).sum(1)
        terms = [a, joint - own, marginals.sum(1) - joint, prior - marginals.sum(1)]
        for k, term in enumerate(terms):
            model.weights = tuple(np.eye(4)[k])
            np.testing.assert_allclose(model._weighted(module, likelihood, q, z, u, 60)[0].numpy(), term, atol=1e-9)


def test_the_published_weights_train(segments):
    model = IVAE(posterior="diagonal", weights=(100, 1, 0, 10), **QUICK).fit(segments.x, segments.u)
    plain = IVAE(posterior="diagonal", **QUICK).fit(segments.x, segments.u)
    assert not np.allclose(model.transform(segments.x), plain.transform(segments.x))
    assert np.isfinite(model.score(segments.x, segments.u))


# -- the linear map that Theorem 1 leaves ---------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", ["variance", "laplace"])
def test_the_linear_step_undoes_a_known_matrix(family, seed):
    """Statistics mixed by a matrix with no negative entries are the statistics of other latents."""
    s = make_segments(20_000, segments=10, n=2, layers=1, random_state=seed)
    A = np.array([[1.0, 0.6], [0.3, 1.0]])
    mixed = statistics_of(s.z, family) @ A.T
    latents = np.sqrt(mixed) if family == "variance" else mixed
    model = IVAE(2)
    model.family_ = family
    model._set_statistics(latents, seed)
    found = (mixed - model.statistics_mean_) @ model.statistics_map_.T
    np.testing.assert_allclose(np.cov(found.T), np.eye(2), atol=1e-3)
    assert mcc(statistics_of(s.z, family), mixed) < 0.97
    assert mcc(statistics_of(s.z, family), found) > 0.99


@pytest.mark.filterwarnings("ignore:FastICA did not converge")
@pytest.mark.parametrize("family", ["variance", "gaussian", "laplace"])
def test_independent_statistics_come_with_resolve(segments, family):
    model = IVAE(resolve=True, family=family, **QUICK).fit(segments.x, segments.u)
    T, found = model.statistics(segments.x), model.independent_statistics(segments.x)
    assert T.shape == found.shape == (600, 4 if family == "gaussian" else 2)
    np.testing.assert_allclose(np.cov(found.T), np.eye(found.shape[1]), atol=0.35)
    np.testing.assert_allclose((T - model.statistics_mean_) @ model.statistics_map_.T, found)
    np.testing.assert_array_equal(T[:, -2:], statistics_of(model.transform(segments.x), family)[:, -2:])
    with pytest.raises(DataError, match="fit with resolve=True"):
        IVAE(**QUICK).fit(segments.x, segments.u).independent_statistics(segments.x)


# -- recovery ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    """Fits of the small law, and the law."""
    found = []
    for seed in range(3):
        s = make_segments(6000, segments=12, n=2, d=4, noise=0.05, random_state=seed)
        found.append((s, IVAE(**SMALL | {"random_state": seed}).fit(s.x, s.u)))
    return found


def test_latents_are_recovered_where_others_fail(fitted):
    for seed, (s, model) in enumerate(fitted):
        new = s.source.sample(2000, random_state=seed + 1)
        found = mcc(new.z, model.transform(new.x))
        assert found > 0.9
        assert mcc(new.z, model.transform(new.x, new.u)) > 0.9
        others = (
            PrincipalComponents(2),
            IndependentComponents(2, n_restarts=1, random_state=seed),
            SegmentUnmixing(2, n_restarts=1, random_state=seed),
            VAE(2, n_restarts=1, max_steps=600, random_state=seed, verbose=0),
        )
        assert found > max(mcc(new.z, other.fit(s.x, s.u).transform(new.x)) for other in others)
        assert model.fit_status_ == "stable"


@pytest.mark.parametrize("seed", range(2))
def test_latents_of_bits_are_recovered(seed):
    s = make_segments(4000, segments=12, n=2, d=12, layers=1, bernoulli=True, random_state=seed)
    model = IVAE(likelihood="bernoulli", **SMALL | {"random_state": seed, "max_steps": 200}).fit(s.x, s.u)
    pca = PrincipalComponents(2).fit(s.x)
    assert mcc(s.z, model.transform(s.x)) > mcc(s.z, pca.transform(s.x)) + 0.03
    assert mcc(s.z, model.transform(s.x, s.u)) > mcc(s.z, model.transform(s.x))


# -- the certificate ----------------------------------------------------------------------------


def test_enough_segments_identify_every_latent(fitted):
    _, model = fitted[0]
    certificate = model.certificate_
    assert certificate.level == Level.PS
    assert certificate["mixing"].verdict == "inconclusive"
    assert "Assumed" in certificate["mixing"].sentence
    assert certificate["agreement"].verdict == "holds"
    assert certificate["1.i"].verdict == "holds"
    assert model.conditional_prior_.means.shape == (12, 2)


def test_restarts_that_disagree_identify_nothing(fitted):
    _, model = fitted[0]
    model = copy.deepcopy(model)
    model.stability_ = Stability(np.array([[1.0, 0.5], [0.5, 1.0]]))
    assert (model.certificate_.level, model.certificate_.if_undecided_hold) == (Level.NONE, Level.NONE)
    assert model.certificate_["agreement"].verdict == "fails"
    model.stability_ = Stability(np.ones((1, 1)))
    assert (model.certificate_.level, model.certificate_.if_undecided_hold) == (Level.NONE, Level.PS)


@pytest.mark.parametrize(("family", "more"), [("variance", 1), ("gaussian", 3)])
def test_too_few_segments_are_counted(family, more):
    s = make_segments(600, segments=2, n=2, d=4, noise=0.05, random_state=0)
    certificate = IVAE(family=family, **QUICK).fit(s.x, s.u).certificate_
    assert certificate.level == Level.NONE
    assert certificate["values"].verdict == "fails"
    assert f"{more} more" in certificate["values"].sentence


def test_too_few_rows_of_every_value_say_nothing():
    x = np.random.default_rng(0).normal(size=(60, 3))
    model = IVAE(family="variance", u_types="categorical", **QUICK).fit(x, np.arange(60) // 5)
    assert model.conditional_prior_ is None
    assert model.certificate_["values"].sentence == "Too few rows per value."


def test_discrete_columns_are_certified_on_a_premise():
    s = make_segments(600, segments=4, n=2, d=6, bernoulli=True, random_state=0)
    model = IVAE(likelihood="bernoulli", **QUICK).fit(s.x, s.u)
    assert model.certificate_["1.i"].verdict == "inconclusive"


# -- starts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "categorical"])
def test_a_linear_start_is_that_of_segment_unmixing(likelihood):
    """Bits too, though their means are not zero, and one of them is hardly ever 0."""
    rng, u = np.random.default_rng(0), np.arange(4000) % 8
    z = rng.normal(size=(4000, 2)) * np.exp(2 * rng.uniform(-1, 1, size=(8, 2)))[u]
    x = z @ [[1.0, 2, -1, 0, 0, 0], [0, 0, 0, 1, -2, 1]] + 0.1 * rng.normal(size=(4000, 6))
    if likelihood != "gaussian":
        x = (rng.uniform(size=x.shape) < expit(x + 3 * np.eye(6)[3])).astype(float)
    settings = QUICK | {"max_steps": 1, "n_restarts": 1, "hidden": (16,)}
    model = IVAE(likelihood=likelihood, init="linear", **settings).fit(x, u)
    linear = SegmentUnmixing(2, n_restarts=1, random_state=0).fit(x, u).transform(x)
    assert mcc(linear, model.transform(x)) > 0.99
    if likelihood != "categorical":
        average = model.inverse_transform(np.zeros((1, 2)))[0]
        np.testing.assert_allclose((average - x.mean(0)) / x.std(0), np.zeros(6), atol=0.2)


def test_a_random_start_is_another(segments):
    settings = QUICK | {"max_steps": 1, "hidden": (16,)}
    linear = SegmentUnmixing(2, n_restarts=1, random_state=0).fit(segments.x, segments.u).transform(segments.x)
    model = IVAE(init="random", **settings).fit(segments.x, segments.u)
    assert mcc(linear, model.transform(segments.x)) < 0.97
    assert model.fit_status_ == "unstable"


def test_a_flow_start_follows_the_flow(monkeypatch):
    """Encoder and decoder become the maps to the flow's latents and back, here a curve that no linear map is."""
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(1000, 3)), np.arange(1000) % 4

    def curve(x):
        return np.stack([np.sinh(x[:, :2]), x[:, 1:] + np.tanh(x[:, :2])])  # (restarts, rows, latents)

    monkeypatch.setattr(IFlow, "latents_of_restarts", lambda self, X, y: curve(X))
    model = IVAE(**SMALL | {"max_steps": 1}).fit(x, u)
    model.max_steps = 600
    module = model._started(x, u, np.arange(1000), 0, CPU)
    rows, curved = model._rows(x, CPU, np.float32), curve(x)
    for r in range(2):
        found = module.encode(rows.expand(2, -1, -1)).mean[r].detach().numpy()
        assert np.abs(np.corrcoef(found.T, curved[r].T)[:2, 2:]).diagonal().min() > 0.99
        target = torch.as_tensor(curved[r] / curved[r].std(0), dtype=torch.float32)
        error = (module.decode(target.expand(2, -1, -1))[r] - rows).square().mean(0).sqrt()
        torch.testing.assert_close(module.log_noise[r, 0].exp(), error, rtol=0.1, atol=1e-3)
        scales = np.stack([(curved[r] / curved[r].std(0))[u == k].std(0) for k in range(4)])
        np.testing.assert_allclose(module.prior.log_scales[r].exp().detach(), scales, rtol=0.02)


def test_a_flow_that_failed_leaves_the_linear_start(segments, monkeypatch):
    whole = IFlow.latents_of_restarts

    def failing(self, X, y):
        latents = whole(self, X, y)
        latents[0] = np.nan
        return latents

    monkeypatch.setattr(IFlow, "latents_of_restarts", failing)
    model = IVAE(**QUICK).fit(segments.x, segments.u)
    assert np.isfinite(model.history_.loss).all()


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "categorical"])
@pytest.mark.filterwarnings("ignore:FastICA did not converge")
def test_a_saved_model_is_the_same(likelihood, tmp_path):
    s = make_segments(400, segments=4, n=2, d=6, bernoulli=likelihood != "gaussian", random_state=0)
    u = pd.DataFrame({"cell": np.array(list("tb"))[s.u % 2], "dose": s.u // 2 + 0.5})
    model = IVAE(likelihood=likelihood, resolve=True, **QUICK).fit(s.x, u)
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu")
    for name in ("transform", "score_samples", "independent_statistics"):
        np.testing.assert_array_equal(getattr(again, name)(s.x, u), getattr(model, name)(s.x, u))
    np.testing.assert_array_equal(
        again.sample(5, u=("t", 0.5), random_state=0), model.sample(5, u=("t", 0.5), random_state=0)
    )
    assert str(again.certificate_) == str(model.certificate_)
    if likelihood == "gaussian":
        np.testing.assert_array_equal(again.noise_, model.noise_)


def test_a_resumed_fit_equals_an_uninterrupted_one(segments, tmp_path, monkeypatch):
    """And its start, which the checkpoint has left behind, is not made again."""
    plan, write = ivae.Plan, Run.save
    monkeypatch.setattr(ivae, "Plan", lambda *args, **kw: plan(*args, **kw, checkpoint_seconds=0.0))
    whole = IVAE(**QUICK).fit(segments.x, segments.u)
    path, saves = tmp_path / "c.safetensors", itertools.count(1)
    model = IVAE(checkpoint=path, **QUICK)

    def stopping(self, *args):
        write(self, *args)
        if next(saves) == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(Run, "save", stopping)
        with pytest.raises(KeyboardInterrupt):
            model.fit(segments.x, segments.u)
    for other in ({"batch_size": 65}, {"noise": 0.1}, {"posterior_given_u": False}):
        with pytest.raises(DamagedFileError, match="belongs to another problem"):
            clone(model).set_params(**other).fit(segments.x, segments.u)
    monkeypatch.setattr(IFlow, "latents_of_restarts", None)
    resumed = clone(model).fit(segments.x, segments.u)
    assert not path.exists()
    for a, b in zip(whole.module_.state_dict().values(), resumed.module_.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    np.testing.assert_array_equal(whole.history_.loss, resumed.history_.loss)
    np.testing.assert_array_equal(whole.transform(segments.x), resumed.transform(segments.x))


# -- settings ---------------------------------------------------------------------------------------


def test_a_fixed_noise_stays_and_a_learnt_one_moves(segments):
    for start in ("linear", "flow", "random"):
        model = IVAE(noise=0.1, start=start, **QUICK).fit(segments.x, segments.u)
        np.testing.assert_allclose(model.noise_, 0.1 * segments.x.std(0), rtol=1e-6)
    learnt = IVAE(**QUICK).fit(segments.x, segments.u).noise_ / segments.x.std(0)
    assert np.ptp(learnt) > 1e-3


def test_a_second_fit_forgets_the_first(segments):
    model = IVAE(**QUICK).fit(segments.x, segments.u)
    first = model.transform(segments.x)
    model.fit(segments.x[:, :3], segments.u)
    np.testing.assert_array_equal(model.fit(segments.x, segments.u).transform(segments.x), first)
    single = segments.x.astype(np.float32)
    assert model.fit(single, segments.u).score_samples(single, segments.u).dtype == np.float32


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"weights": (1, 1, 1, 1)}, r"'weights' parameter of IVAE must be None, or four numbers >= 0 and posterior="),
        ({"weights": (1, 1), "posterior": "diagonal"}, "four numbers"),
        ({"weights": (1, 1, -1, 1), "posterior": "diagonal"}, "four numbers >= 0"),
        ({"init": "flow", "likelihood": "bernoulli"}, r"one of \('auto', 'linear', 'random'\) with likelihood='bern"),
        ({"init": "warm"}, "'start' parameter of IVAE must be one of"),
        ({"likelihood": "poisson"}, r"one of \('gaussian', 'bernoulli', 'logistic', 'categorical'\)"),
        ({"family": "cauchy"}, "'auto' or one of"),
        ({"prior": "tree"}, "'auto', 'table' or 'net'"),
        ({"posterior": "low rank"}, "'full' or 'diagonal'"),
        ({"posterior_given_u": 1}, "True or False"),
        ({"resolve": "yes"}, "True or False"),
        ({"noise": 0.0}, "None or a number > 0"),
        ({"hidden": 8}, "a sequence of positive layer widths"),
        ({"activation": "cube"}, "'activation' parameter of IVAE must be one of"),
        ({"batch_size": 1}, "an integer >= 2"),
        ({"patience": 0}, "an integer >= 1 or None"),
        ({"n_latents": 5}, "at most as many latents as X has rank: n_latents=5, rank=4, n_features=4. Lower n_latents"),
        ({"random_state": None, "checkpoint": "c"}, "an integer when checkpoint is given. Got None"),
    ],
)
def test_bad_settings_get_one_clear_error(segments, settings, words):
    with pytest.raises(ValueError, match=words):
        IVAE(**QUICK | settings).fit(segments.x, segments.u)


def test_one_value_of_u_is_refused(segments):
    with pytest.raises(DataError, match="at least two distinct values"):
        IVAE(**QUICK).fit(segments.x, np.zeros(600))
    with pytest.raises(DataError, match="u is needed"):
        IVAE(**QUICK).fit(segments.x)


def test_disagreeing_restarts_warn():
    noise = np.random.default_rng(0).normal(size=(300, 4))
    with pytest.warns(RecoveryWarning, match=r"IVAE: 2 restarts agree at 0\.\d\d only"):
        IVAE(init="random", **QUICK).fit(noise, np.arange(300) % 3)


@pytest.mark.parametrize(("net", "narrow"), [("arch1", True), (None, False)])
def test_an_image_weighs_more_than_u_from_the_start(net, narrow):
    """Else latents copy u, and stay there; a few bits do say less than u."""
    digits = load_digits()
    model = IVAE(4, net=net, likelihood="bernoulli", init="random", **(QUICK | {"max_steps": 1}))
    model.fit(digits.x, digits.u)
    x, u = torch.as_tensor(digits.x[None], dtype=torch.float32), model._u_tensor(digits.u, len(digits.x), CPU)[None]
    module = copy.deepcopy(model.module_).float()
    with torch.no_grad():
        mean, log_sd = module.gaussian_prior(u)
        share = module.posterior(x, (mean, log_sd)).variance / torch.exp(2 * log_sd)
    assert share.max() < 1
    assert (share.mean() < 0.1) == narrow
