"""IVAE: its posterior and bound in a known model, recovery of latents, initialisations and the certificate."""

import numpy as np
import pytest
import torch
from scipy.special import expit, logsumexp
from scipy.stats import multivariate_normal, norm
from sklearn.base import clone
from torch.distributions import Laplace, MultivariateNormal

from autoencoder_helpers import QUICK, LinearModel, initialised, rand, require_moments
from identifiable import IVAE, DataError, IFlow, IndependentComponents, PrincipalComponents, SegmentUnmixing, load, save
from identifiable.data import load_digits, make_segments
from identifiable.estimators import variational
from identifiable.estimators.autoencoder import Likelihood
from identifiable.estimators.given_u import FAMILIES, PriorGivenU
from identifiable.estimators.ivae import Nets, statistics_of
from identifiable.metrics import mcc
from identifiable.nets import Dense
from identifiable.theory import Level

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
QUICK = QUICK | {"init": "linear"}


# -- the bound in a model whose likelihood is known ---------------------------------------


class KnownModel(LinearModel):
    """A `LinearModel` with three values of u."""

    def __init__(self, seed, **settings):
        rng = np.random.default_rng(seed)
        means, scales = rng.normal(size=(3, 2)), rng.uniform(0.5, 2, size=(3, 2))
        super().__init__(IVAE(family="gaussian", init="random", **settings), seed, means, scales)
        self.nets.prior.start(means, scales)

    def encode(self, u):
        """Set the factor of the encoder so that q(z | x, u) is p(z | x, u) for this u."""
        slope, shift, covariance = self.posterior(u)
        m, s2, variance = self.means[u], self.scales[u] ** 2, np.diag(covariance)
        gain = s2 / (s2 + variance * s2 / (s2 - variance))
        return self.set_encoder(slope / gain, m + (shift - m) / gain, covariance / np.sqrt(np.outer(gain, gain)))

    def divergence(self, u):
        """Return KL(q(z | x, u) || p(z | x, u)) of every row."""
        q = self.model._posterior(self.nets, torch.as_tensor(self.rows)[None], torch.full((1, 60), u))
        slope, shift, covariance = self.posterior(u)
        root = torch.diag_embed(q.log_sd[0].exp()) @ (torch.eye(2) + q.below[0])
        posterior = torch.distributions.MultivariateNormal(
            torch.as_tensor(self.rows @ slope + shift), torch.as_tensor(covariance)
        )
        own = torch.distributions.MultivariateNormal(q.mean[0], scale_tril=root)
        return torch.distributions.kl_divergence(own, posterior).detach().numpy()


@pytest.fixture
def many_draws(monkeypatch):
    monkeypatch.setattr(variational, "DRAWS", 1024)


@pytest.mark.parametrize("seed", range(2))
def test_the_bound_is_the_likelihood_where_q_is_the_posterior(seed):
    known = KnownModel(seed)
    for u in range(3):
        known.encode(u)
        given, exact, (slope, shift, _) = np.full(60, u), known.given(u).logpdf(known.x), known.posterior(u)
        np.testing.assert_allclose(known.model.transform(known.x, given), known.rows @ slope + shift, rtol=1e-6)
        for importance in (False, True):
            found = known.model.score_samples(known.x, given, importance=importance)
            np.testing.assert_allclose(found, exact, rtol=1e-8)
        assert known.model.score(known.x, given) == pytest.approx(exact.mean())


@pytest.mark.parametrize("seed", range(2))
def test_the_bound_lacks_the_divergence_of_q_from_the_posterior(seed, many_draws):
    known = KnownModel(seed).encode(0)
    for u in (1, 2):
        given, exact = np.full(60, u), known.given(u).logpdf(known.x)
        bound, tighter = (known.model.score_samples(known.x, given, importance=i) for i in (False, True))
        assert known.divergence(u).min() > 0
        np.testing.assert_allclose(exact - bound, known.divergence(u), atol=0.03, rtol=0.03)
        assert (bound < tighter).all()
        assert (tighter < exact + 0.05).all()


@pytest.mark.parametrize("seed", range(2))
def test_without_u_it_is_a_bound_on_the_mixture_over_u(seed, many_draws):
    known = KnownModel(seed).encode(0)
    with torch.no_grad():
        known.nets.last_layers[0].bias[..., 2:4] += 1  # wider than the posterior, or no draw reaches its tails
    exact = logsumexp([known.given(u).logpdf(known.x) for u in range(3)], axis=0) - np.log(3)
    bound, tighter = (known.model.score_samples(known.x, importance=i) for i in (False, True))
    assert (bound < exact + 0.01).all()
    assert (bound < tighter).all()
    np.testing.assert_allclose(tighter, exact, atol=0.15)


def test_without_u_latents_shrink_towards_their_moments_over_all_u():
    known = KnownModel(0, posterior="diagonal")
    x, module = torch.as_tensor(known.rows)[None], known.nets
    table, sds = module.prior.means[0], module.prior.log_scales[0].exp()
    log_sd = 0.5 * (sds.square().mean(0) + table.var(0, correction=0)).log()
    expected = module.posterior(x, (table.mean(0), log_sd))
    for given, model in ((None, known.model), (torch.as_tensor(known.k)[None], clone(known.model))):
        model.set_params(posterior_given_u=given is None).auxiliary_ = known.model.auxiliary_
        model.table_ = True
        q = model._posterior(module, x, given)
        torch.testing.assert_close((q.mean, q.variance), (expected.mean, expected.variance))
    z = known.model.transform(known.x)
    np.testing.assert_allclose(z, expected.mean[0].detach())
    assert not np.allclose(known.model.transform(known.x, known.k), z)


def test_draws_have_the_moments_of_their_group():
    known = KnownModel(0)
    groups = [known.given(u) for u in range(3)]
    for u, expected in enumerate(groups):
        require_moments(known.model.sample(20_000, u=u, random_state=u), expected)
    mean = np.mean([group.mean for group in groups], axis=0)
    second = np.mean([group.cov + np.outer(group.mean - mean, group.mean - mean) for group in groups], axis=0)
    require_moments(known.model.sample(20_000, random_state=0), multivariate_normal(mean, second))
    np.testing.assert_allclose(known.model.noise_, known.sigma * known.model.scale_)


def test_the_weights_multiply_the_terms_of_the_bound():
    """Each term by its definition; with equal weights they are the bound in expectation."""
    known = KnownModel(0, posterior="diagonal", weights=(1.0, 1.0, 1.0, 1.0))
    model, module, g = known.model, known.nets, torch.Generator().manual_seed(0)
    inputs = torch.as_tensor(known.rows)[None], torch.as_tensor(known.k)[None]
    gaps, terms = [], {}
    with torch.no_grad():
        module.into.copy_(rand(g, 1, 4, 2))
        q = module.posterior(inputs[0], module.gaussian_prior(inputs[1]))
        for _ in range(300):
            noise = rand(g, 1, 60, 2)
            plain = clone(model).set_params(weights=None)._bound(module, inputs, noise, 60)
            gaps.append((model._bound(module, inputs, noise, 60) - plain).item())
        for k in range(4):
            model.weights = tuple(np.eye(4)[k])
            terms[k] = model._bound(module, inputs, noise, 60).item()
        z = q.at(noise)
        likelihood = module.log_likelihood(inputs[0], module.decode(z))[0].numpy()
    assert abs(np.mean(gaps)) < 4 * np.std(gaps) / 300**0.5
    draw, sd, mean = z[0].numpy(), q.log_sd[0].exp().numpy(), q.mean[0].numpy()
    each = norm.logpdf(draw[:, None], mean, sd)  # (draws, rows, latents)
    own = np.einsum("bbi->bi", each).sum(1)
    joint, marginals = logsumexp(each.sum(2), axis=1) - 2 * np.log(60), logsumexp(each, axis=1) - 2 * np.log(60)
    prior = norm.logpdf(draw, known.means[known.k], known.scales[known.k]).sum(1)
    expected = [likelihood, joint - own, marginals.sum(1) - joint, prior - marginals.sum(1)]
    np.testing.assert_allclose(list(terms.values()), [term.mean() for term in expected], rtol=1e-6)


# -- training -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def segments():
    return make_segments(400, segments=5, n=2, d=4, noise=0.05, random_state=0)


LINEAR = QUICK | {"hidden": (), "max_steps": 150, "batch_size": 256, "learning_rate": 0.02}


def test_training_reaches_the_likelihood_of_the_ground_truth():
    rng, u = np.random.default_rng(0), np.arange(4000) % 6
    scales, A = rng.uniform(0.3, 2, size=(6, 2)), rng.normal(size=(2, 4))
    x = (rng.normal(size=(4000, 2)) * scales[u]) @ A + 0.3 * rng.normal(size=(4000, 4))
    model = IVAE(family="variance", **LINEAR | {"max_steps": 300}).fit(x[:3000], u[:3000])
    groups = [multivariate_normal(np.zeros(4), (A.T * s**2) @ A + 0.09 * np.eye(4)) for s in scales]
    best = np.mean([groups[k].logpdf(row) for row, k in zip(x[3000:], u[3000:], strict=True)])
    assert best - 0.05 < model.score(x[3000:], u[3000:]) < best + 0.01
    assert np.log(model.noise_ / 0.3).mean() == pytest.approx(0, abs=0.2)
    learnt = model.module_.prior(torch.arange(6)[None])[1][0].exp().detach().numpy()
    assert mcc(scales, learnt) > 0.95


@pytest.fixture(scope="module")
def fitted():
    """Return rows of curved mixtures, and a fit to them."""
    s = make_segments(2000, segments=12, n=2, d=4, layers=2, noise=0.05, random_state=0)
    settings = {"max_steps": 200, "batch_size": 256, "hidden": (32, 32), "learning_rate": 0.01, "init": "auto"}
    return s, IVAE(**QUICK | settings).fit(s.x, s.u)


def test_latents_are_recovered_better_than_by_linear_methods(fitted):
    s, model = fitted
    new = s.source.sample(1000, random_state=1)
    found = min(mcc(new.z, model.transform(new.x)), mcc(new.z, model.transform(new.x, new.u)))
    others = PrincipalComponents(2), IndependentComponents(2, n_restarts=1), SegmentUnmixing(2, n_restarts=1)
    np.testing.assert_allclose(model.latents_of_restarts(s.x, s.u)[model.kept_], model.transform(s.x, s.u), atol=1e-4)
    assert found > 0.93
    assert found > 0.01 + max(mcc(new.z, other.fit(s.x, s.u).transform(new.x)) for other in others)


def test_latents_of_bits_are_recovered():
    s = make_segments(2000, segments=12, n=2, d=40, layers=1, bernoulli=True, random_state=0)
    settings = {"max_steps": 100, "batch_size": 256, "hidden": (32,), "learning_rate": 0.01}
    model = IVAE(likelihood="bernoulli", **QUICK | settings).fit(s.x, s.u)
    pca, blind, given = (
        mcc(s.z, z)
        for z in (PrincipalComponents(2).fit(s.x).transform(s.x), model.transform(s.x), model.transform(s.x, s.u))
    )
    assert pca + 0.01 < blind
    assert blind + 0.01 < given
    with pytest.raises(AttributeError, match="noise"):
        _ = model.noise_


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "logistic", "categorical"])
def test_columns_may_be_constant_or_vary_in_one_row(likelihood):
    rng, u = np.random.default_rng(0), np.arange(300) % 3
    x = np.c_[rng.normal(size=(300, 3)) + 0.1 * u[:, None], np.eye(300)[:, :20]]
    if likelihood != "gaussian":
        x = np.c_[np.ones(300), x > 0.5].astype(float)
    settings = QUICK | {"max_steps": 2, "init": "auto", "likelihood": likelihood}
    model = IVAE(2, **settings).fit(x, u)
    assert np.isfinite(model.score(x, u))
    if likelihood != "gaussian":
        assert model.certificate_["1.i"].verdict == model.certificate_["mixing"].verdict == "inconclusive"
        assert model.certificate_.level == Level.NONE
        with pytest.raises(DataError, match="rank=0"):
            clone(model).fit(np.ones((300, 4)), u)


# -- the linear map that Theorem 1 leaves ---------------------------------------------------


@pytest.mark.parametrize("family", ["variance", "laplace"])
def test_the_linear_step_undoes_a_known_matrix(family):
    """Statistics mixed by a matrix without negative entries are the statistics of other latents."""
    s = make_segments(10_000, segments=10, n=2, layers=1, random_state=0)
    statistics = statistics_of(s.z, family)
    mixed = statistics @ np.array([[1.0, 0.6], [0.3, 1.0]]).T
    model = IVAE(2)
    model.family_ = family
    model._set_statistics(np.sqrt(mixed) if family == "variance" else mixed, 0)
    found = (mixed - model.statistics_mean_) @ model.statistics_map_.T
    np.testing.assert_allclose(np.cov(found.T), np.eye(2), atol=1e-3)
    assert mcc(statistics, mixed) < 0.97
    assert mcc(statistics, found) > 0.99


@pytest.mark.filterwarnings("ignore:FastICA did not converge")
@pytest.mark.parametrize("family", ["variance", "gaussian"])
def test_resolve_gives_independent_statistics(segments, family, tmp_path):
    model = IVAE(resolve=True, family=family, **QUICK).fit(segments.x, segments.u)
    T, found = model.statistics(segments.x), model.independent_statistics(segments.x)
    assert T.shape == found.shape == (400, 4 if family == "gaussian" else 2)
    np.testing.assert_allclose(np.cov(found.T), np.eye(found.shape[1]), atol=0.35)
    np.testing.assert_allclose(found.mean(0), 0, atol=0.2)
    np.testing.assert_allclose(T[:, -2:], model.transform(segments.x) ** 2)
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu").independent_statistics(segments.x, segments.u)
    np.testing.assert_array_equal(again, model.independent_statistics(segments.x, segments.u))
    with pytest.raises(DataError, match="resolve=True"):
        IVAE(**QUICK).fit(segments.x, segments.u).independent_statistics(segments.x)


# -- the certificate ----------------------------------------------------------------------------


def test_enough_segments_give_full_rank_and_a_short_fit_gets_no_level(fitted):
    """After 200 steps the latents, at an MCC of .95, still depend on each other within segments."""
    _, model = fitted
    certificate = model.certificate_
    assert certificate["1.iii"].verdict == "holds"
    assert certificate["fit"].verdict == "fails"
    assert certificate.level == certificate.if_undecided_hold == Level.NONE
    verdicts = {name: certificate[name].verdict for name in ("mixing", "agreement", "1.i")}
    assert verdicts == {"mixing": "inconclusive", "agreement": "holds", "1.i": "inconclusive"}
    assert model.conditional_prior_.means.shape == (12, 2)


# -- initialisation -------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "categorical", "logistic"])
def test_init_linear_starts_at_segment_unmixing(likelihood):
    """Bits too, though their means are not zero, and one of them is hardly ever 0."""
    rng, u = np.random.default_rng(0), np.arange(2000) % 8
    z = rng.normal(size=(2000, 2)) * np.exp(2 * rng.uniform(-1, 1, size=(8, 2)))[u]
    x = z @ [[1.0, 2, -1, 0, 0, 0], [0, 0, 0, 1, -2, 1]] + 0.1 * rng.normal(size=(2000, 6))
    if likelihood in ("bernoulli", "categorical"):
        x = (rng.uniform(size=x.shape) < expit(x + 3 * np.eye(6)[3])).astype(float)
    elif likelihood == "logistic":
        x = np.round(255 * (0.5 + 0.05 * x).clip(0, 1)) / 255
    settings = QUICK | {"max_steps": 1, "n_restarts": 1, "hidden": (16,)}
    model = IVAE(likelihood=likelihood, **settings).fit(x, u)
    assert model.certificate_["1.i"].verdict == model.certificate_["mixing"].verdict == "inconclusive"
    assert mcc(SegmentUnmixing(2, n_restarts=1, random_state=0).fit(x, u).transform(x), model.transform(x)) > 0.98
    if likelihood != "categorical":
        average = model.inverse_transform(np.zeros((1, 2)))[0]
        np.testing.assert_allclose((average - x.mean(0)) / x.std(0), np.zeros(6), atol=0.2)
        slope = (model.inverse_transform(0.01 * np.eye(2)) - average) / 0.01
        expected = np.linalg.lstsq(model.transform(x), x - x.mean(0), rcond=None)[0]
        ratio = (slope * expected).sum(1) / (expected**2).sum(1)  # below 1, because posterior means are shrunken
        np.testing.assert_allclose(slope, ratio[:, None] * expected, atol=0.1 * np.abs(expected).max())
        assert ((ratio > 0.4) & (ratio < 1.1)).all()


@pytest.mark.parametrize("family", ["variance", "laplace"])
def test_init_flow_follows_the_flow(family, monkeypatch):
    """Encoder and decoder become the maps to the latents of the flow and back, and the table their scales."""
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(600, 3)), np.arange(600) % 4

    def latents(self, X):
        return np.stack([np.tanh(2 * X[:, :2]), X[:, 1:] + np.tanh(2 * X[:, :2])])  # (restarts, rows, latents)

    monkeypatch.setattr(IFlow, "fit", lambda self, X, y: self)
    monkeypatch.setattr(IFlow, "latents_of_restarts", latents)
    settings = {"init": "flow", "max_steps": 600, "hidden": (32,), "batch_size": 256, "learning_rate": 0.01}
    model = IVAE(family=family, **QUICK | settings)
    module, data = initialised(model, x, u)
    rows = torch.as_tensor(model._inputs(data.X_train), dtype=torch.float32).expand(2, -1, -1)
    targets = latents(None, data.X_train)
    targets = targets / targets.std(1, keepdims=True)
    with torch.no_grad():
        found, decoded = module.encode(rows).mean, module.decode(torch.as_tensor(targets, dtype=torch.float32))
    for r in range(2):
        assert np.abs(np.corrcoef(found[r].T, targets[r].T)[:2, 2:]).diagonal().min() > 0.98
        error = (decoded - rows)[r].square().mean(0).sqrt()
        torch.testing.assert_close(module.log_noise[r, 0].exp().detach(), error, rtol=1e-3, atol=1e-3)
        sd = np.stack([targets[r][data.u_train == k].std(0) for k in range(4)])
        scales = module.prior.log_scales[r].exp().detach()
        np.testing.assert_allclose(scales, sd / (2**0.5 if family == "laplace" else 1), rtol=0.02)


def test_a_failed_flow_leaves_the_linear_initialisation(segments, monkeypatch):
    latents = IFlow.latents_of_restarts

    def failing(self, X):
        found = latents(self, X)
        found[0] = np.nan
        return found

    monkeypatch.setattr(IFlow, "latents_of_restarts", failing)
    model = IVAE(**QUICK | {"init": "flow", "max_steps": 2}).fit(segments.x, segments.u)
    assert np.isfinite(model.history_.loss).all()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, "flow"), ({"likelihood": "bernoulli"}, "linear"), ({"net": "mlp"}, "random"), ({"init": "linear"}, "linear")],
)
def test_automatic_initialisation(settings, expected):
    assert IVAE(**settings)._init == expected


@pytest.mark.parametrize(("net", "narrow"), [("arch1", True), (None, False)])
def test_an_image_outweighs_u_from_the_start(net, narrow):
    """Otherwise latents copy u and stay there; a few bits do carry less information than u."""
    digits = load_digits()
    start = {"max_steps": 1, "learning_rate": 1e-5, "n_restarts": 1, "init": "random"}
    model = IVAE(4, net=net, likelihood="bernoulli", **QUICK | start)
    model.fit(digits.x[:300], digits.u[:300])
    x = torch.as_tensor(digits.x[None, :300], dtype=torch.float32)
    u = torch.as_tensor(model._u_inputs(digits.u[:300], 300))[None]
    with torch.no_grad():
        mean, log_sd = model.module_.gaussian_prior(u)
        share = model.module_.posterior(x, (mean, log_sd)).variance / torch.exp(2 * log_sd)
    assert share.max() < 1
    assert (share.mean() < 0.1) == narrow


@pytest.mark.parametrize("init", ["linear", "flow", "random"])
def test_a_fixed_noise_remains_and_a_learnt_one_changes(segments, init):
    fixed, learnt = (
        IVAE(noise=noise, **QUICK | {"init": init, "max_steps": 4}).fit(segments.x, segments.u).noise_
        for noise in (0.1, None)
    )
    np.testing.assert_allclose(fixed / segments.x.std(0), 0.1, rtol=0.05)  # the scale is that of the training rows
    assert np.ptp(learnt / segments.x.std(0)) > 1e-3


def test_a_second_fit_does_not_depend_on_the_first(segments):
    model = IVAE(**QUICK).fit(segments.x, segments.u)
    first = model.transform(segments.x)
    model.fit(segments.x[:, :3], segments.u % 2)
    np.testing.assert_array_equal(model.fit(segments.x, segments.u).transform(segments.x), first)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("weights", {"weights": (1, 1, 1, 1)}),
        ("weights", {"weights": (1, 1), "posterior": "diagonal"}),
        ("weights", {"weights": (1, 1, -1, 1), "posterior": "diagonal"}),
        ("init", {"init": "flow", "likelihood": "bernoulli"}),
        ("init", {"init": "warm"}),
        ("init", {"init": "flow", "net": Dense((8,))}),
        ("posterior", {"posterior": "low rank"}),
        ("posterior_given_u", {"posterior_given_u": 1}),
        ("resolve", {"resolve": "yes"}),
        ("noise", {"noise": 0.0}),
    ],
)
def test_wrong_parameters_are_refused(segments, name, settings):
    with pytest.raises(ValueError, match=name):
        IVAE(**QUICK | settings).fit(segments.x, segments.u)


# -- the posterior and its divergence from the prior ----------------------------------------

U = torch.tensor([[0, 1, 2, 3, 4, 0, 1]])


def random_nets(g, *, family="gaussian", full=True):
    """Return random nets of one member with a table of five values of u; 4 columns, 3 latents."""
    prior = PriorGivenU(1, 3, family, 5, table=True)
    prior.start(rand(g, 5, 3).numpy(), rand(g, 5, 3).mul(0.5).exp().numpy())
    net, columns = Dense((6,), activation="tanh"), Likelihood(1, "gaussian", 4)
    module = Nets(1, 4, net, prior, columns, full=full, bypass=True, rng=g).double()
    with torch.no_grad():
        module.into.copy_(rand(g, 1, 4, 3))
    return module


@pytest.mark.parametrize("full", [True, False])
def test_each_latent_is_the_product_of_two_gaussians(g, full):
    """A vague prior changes nothing, a narrow one determines everything, and correlations remain."""
    module, x = random_nets(g, full=full), rand(g, 1, 7, 4)
    factor, (mean, log_scale) = module.encode(x), module.gaussian_prior(U)
    q = module.posterior(x, (mean, log_scale))
    precision = torch.exp(-2 * log_scale)
    torch.testing.assert_close(1 / q.variance, 1 / factor.variance + precision)
    torch.testing.assert_close(q.mean, (factor.mean / factor.variance + mean * precision) * q.variance)
    torch.testing.assert_close(q.below, factor.below)
    vague, narrow = module.posterior(x, (mean, log_scale + 20)), module.posterior(x, (mean, log_scale - 20))
    torch.testing.assert_close((vague.mean, vague.variance), (factor.mean, factor.variance))
    torch.testing.assert_close((narrow.mean, narrow.variance), (mean, torch.exp(2 * log_scale - 40)))


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_divergence_is_that_of_draws(g, family, full):
    module, x = random_nets(g, family=family, full=full), rand(g, 1, 7, 4)
    module.prior.shift.copy_(rand(g, 1, 1, 3))
    q = module.posterior(x, module.gaussian_prior(U))
    noise = rand(g, 10_000, 7, 3)
    z = q.at(noise)
    mixed = torch.eye(3).double() + (0 if q.below is None else q.below[0])
    log_q = MultivariateNormal(q.mean[0], scale_tril=q.log_sd[0].exp()[..., None] * mixed).log_prob(z)
    ratio = log_q - module.prior.log_density(z, *module.prior(U))
    exact = module.divergence(q, U)[0]
    assert ((ratio.mean(0) - exact).abs() < 5 * ratio.std(0) / 10_000**0.5 + 1e-9).all()
    assert (exact > 0).all()


def test_the_gaussian_prior_has_the_moments_of_a_laplace(g):
    module = random_nets(g, family="laplace")
    mean, log_scale = module.prior(U)
    laplace, (matched, log_sd) = Laplace(mean, log_scale.exp()), module.gaussian_prior(U)
    torch.testing.assert_close((matched, torch.exp(2 * log_sd)), (laplace.mean, laplace.variance))
