"""What autoencoders are made of against scipy, and those without a mixture: columns, pixels, nets, the plain bound."""

import itertools

import numpy as np
import pytest
import torch
from scipy.special import expit, logsumexp, softmax
from scipy.stats import bernoulli, logistic, multivariate_normal, norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from identifiable import IVAE, VAE, BetaTCVAE, BetaVAE, DataError, VaDE, load, save
from identifiable.data import load_digits, make_segments
from identifiable.estimators.autoencoder import Autoencoder, LeakyLayers, Likelihood, Posterior
from identifiable.flows import SmoothLeakyFlow
from identifiable.nets import ConvNet, Dense, ResNet

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")

CPU = torch.device("cpu")
QUICK = {"n_restarts": 2, "max_steps": 15, "batch_size": 32, "hidden": (8,), "random_state": 0, "verbose": 0}
DROPPING = Dense((8,), dropout=0.3, dropout_after=1)
KINDS = ["gaussian", "bernoulli", "logistic", "categorical"]
LEVELS = (3, 2, 4)
FAMILY = [VAE, BetaVAE, BetaTCVAE]


@pytest.fixture(params=[0, 1, 2])
def g(request):
    return torch.Generator().manual_seed(request.param)


@pytest.fixture(scope="module")
def digits():
    return load_digits()


@pytest.fixture(scope="module")
def images(digits):
    return digits.x[:200].reshape(-1, 8, 8)


def rand(g, *shape):
    return torch.randn(shape, generator=g, dtype=torch.float64)


def likelihood(g, kind, members=2, columns=6, channels=3):
    """One whose noise, if it has some, differs between members and columns or channels."""
    if kind == "categorical":
        columns = sum(LEVELS)
    made = Likelihood(members, kind, columns, levels=LEVELS, channels=channels).double()
    if made.log_noise is not None:
        with torch.no_grad():
            made.log_noise.copy_(rand(g, *made.log_noise.shape) - (2 if kind == "logistic" else 0))
    return made


def outcomes(kind, columns=6):
    """Some rows that a likelihood knows, as the encoder takes them."""
    rng = np.random.default_rng(0)
    if kind == "gaussian":
        return rng.normal(size=(2, 7, columns))
    if kind == "bernoulli":
        return rng.integers(0, 2, size=(2, 7, columns)).astype(float)
    if kind == "logistic":
        pixels = rng.integers(0, 256, size=(2, 7, columns))
        pixels[:, 0], pixels[:, 1] = 0, 255
        return pixels / 255
    return np.concatenate([np.eye(k)[rng.integers(0, k, size=(2, 7))] for k in LEVELS], -1)


def by_scipy(kind, x, decoded, noise):
    """Log p(x | z) of every row, written down again."""
    if kind == "gaussian":
        return norm.logpdf(x, decoded, np.exp(noise)).sum(-1)
    if kind == "bernoulli":
        return bernoulli.logpmf(x, expit(decoded)).sum(-1)
    if kind == "categorical":
        ends = np.cumsum(LEVELS)[:-1]
        parts = zip(np.split(x, ends, -1), np.split(decoded, ends, -1), strict=True)
        return sum(np.log((hit * softmax(logits, -1)).sum(-1)) for hit, logits in parts)
    law = logistic(decoded + 0.5, np.exp(np.tile(noise, x.shape[-1] // noise.shape[-1])))  # channels change fastest
    upper, lower = np.where(x == 1, np.inf, x + 0.5 / 255), np.where(x == 0, -np.inf, x - 0.5 / 255)
    right = lower > law.mean()  # differences of small tails rather than of ones
    return np.log(np.where(right, law.sf(lower) - law.sf(upper), law.cdf(upper) - law.cdf(lower))).sum(-1)


# -- p(x | z) ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_log_densities_are_those_of_scipy(g, kind):
    made, x = likelihood(g, kind), outcomes(kind)
    decoded = rand(g, *x.shape) * (0.3 if kind == "logistic" else 1)
    noise = None if made.log_noise is None else made.log_noise.detach().numpy()
    found = made(torch.as_tensor(x), decoded).detach().numpy()
    np.testing.assert_allclose(found, by_scipy(kind, x, decoded.numpy(), noise), rtol=1e-7)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_probabilities_of_all_outcomes_sum_to_one(g, kind):
    columns = {"bernoulli": 4, "logistic": 1, "categorical": sum(LEVELS)}[kind]
    each = {
        "bernoulli": [[[0.0], [1.0]]] * 4,
        "logistic": [np.arange(256)[:, None] / 255],
        "categorical": [np.eye(k) for k in LEVELS],
    }[kind]
    every = torch.as_tensor(np.array([np.concatenate(row) for row in itertools.product(*each)]))
    made = likelihood(g, kind, members=1, columns=columns, channels=1)
    decoded = 0.5 * rand(g, 1, 1, columns).expand(1, len(every), columns)
    assert made(every[None], decoded).exp().sum().item() == pytest.approx(1)


def test_a_grey_value_is_worth_the_bits_drawn_from_it(g):
    made, decoded, grey = likelihood(g, "bernoulli"), rand(g, 1, 1, 6), torch.rand(1, 1, 6, generator=g).double()
    bits = torch.as_tensor(list(itertools.product([0.0, 1.0], repeat=6))).double()[None]
    chance = (bits * grey + (1 - bits) * (1 - grey)).prod(-1)
    torch.testing.assert_close((chance * made(bits, decoded)).sum(1), made(grey, decoded)[:, 0])


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli", "categorical"])
def test_draws_have_the_mean_that_is_stated(g, kind):
    made = likelihood(g, kind, members=1)
    decoded = rand(g, 1, 1, made.columns)
    drawn = made.draw(decoded.expand(1, 100_000, -1), g)[0]
    torch.testing.assert_close(drawn.mean(0), made.mean(decoded)[0, 0], atol=5e-3 + 0.015 * drawn.std().item(), rtol=0)
    if kind == "gaussian":
        torch.testing.assert_close(drawn.std(0), made.log_noise.detach()[0, 0].exp(), rtol=0.02, atol=0)
    else:
        assert set(drawn.unique().tolist()) == {0.0, 1.0}


def test_pixels_are_drawn_as_often_as_the_density_says():
    made = Likelihood(1, "logistic", 1).double()
    for centre in (-0.55, -0.1, 0.4):  # below 0, in between, and near 1: the outer bins hold much
        decoded = torch.full((1, 200_000, 1), centre, dtype=torch.float64)
        drawn = (made.draw(decoded, torch.Generator().manual_seed(0)) * 255)[0, :, 0]
        torch.testing.assert_close(drawn, drawn.round(), atol=1e-9, rtol=0)
        grid = torch.arange(256).double()[None, :, None] / 255
        expected = made(grid, decoded[:, :256])[0].exp().detach().numpy()
        found = np.bincount(drawn.round().int().numpy(), minlength=256) / 200_000
        np.testing.assert_allclose(found, expected, atol=5 * np.sqrt(expected.max() / 200_000))
        assert 0 <= made.mean(decoded).min() <= made.mean(decoded).max() <= 1


def test_the_scale_of_a_channel_is_that_of_its_pixels(g):
    """Rows are pixels with their channels: (h w c) with c the fastest."""
    made = Likelihood(1, "logistic", 4 * 3, channels=3).double()
    with torch.no_grad():
        made.log_noise[0, 0] = torch.log(torch.tensor([0.02, 0.06, 0.01]))
    drawn = made.draw(torch.zeros(1, 20_000, 12).double(), g).reshape(20_000, 4, 3)
    expected = np.pi / np.sqrt(3) * np.tile([0.02, 0.06, 0.01], (4, 1))
    np.testing.assert_allclose(drawn.detach().std(0).numpy(), expected, rtol=0.05)


@pytest.mark.parametrize("kind", ["gaussian", "logistic"])
def test_noise_has_a_floor(kind):
    made, x = Likelihood(1, kind, 1).double(), torch.full((1, 1, 1), 0.6).double()
    with torch.no_grad():
        made.log_noise.fill_(-50.0)
    value = made(x, x - 0.5 if kind == "logistic" else x).item()
    at = norm.logpdf(0, 0, 1e-3) if kind == "gaussian" else np.log(1 - 2 * logistic.cdf(-0.5 / 255, scale=1e-3))
    assert value == pytest.approx(at)


# -- q(z | x) ---------------------------------------------------------------------------


@pytest.mark.parametrize("full", [True, False])
def test_the_density_of_a_draw_is_that_of_scipy(g, full):
    below = rand(g, 1, 5, 3, 3).tril(-1) if full else None
    q = Posterior(rand(g, 1, 5, 3), 0.5 * rand(g, 1, 5, 3), below)
    noise = rand(g, 50_000, 5, 3)
    z, log_q = q.at(noise), q.log_density(noise)
    for b in range(5):
        mixed = np.eye(3) + (below[0, b].numpy() if full else 0)
        root = np.exp(q.log_sd[0, b].numpy())[:, None] * mixed
        law = multivariate_normal(q.mean[0, b].numpy(), root @ root.T)
        np.testing.assert_allclose(log_q[:100, b].numpy(), law.logpdf(z[:100, b].numpy()), rtol=1e-8)
        assert q.entropy[0, b].item() == pytest.approx(law.entropy())
        np.testing.assert_allclose(q.variance[0, b].numpy(), np.diag(law.cov))
    assert ((log_q.mean(0) + q.entropy[0]).abs() < 5 * log_q.std(0) / 50_000**0.5).all()


def test_widening_changes_the_scale_of_q_and_nothing_else(g):
    def made():
        rng = torch.Generator().manual_seed(0)
        return Autoencoder(2, 4, 3, Dense((5,)), Likelihood(2, "gaussian", 4), full=True, rng=rng).double()

    x, by = rand(g, 2, 6, 4), rand(g, 2, 3)
    plain, wider, other = made(), made(), made()
    wider.widen(-0.7)
    other.widen(by)
    q = plain.encode(x)
    for module, shift in ((wider, torch.full((2, 3), -0.7).double()), (other, by)):
        widened = module.encode(x)
        torch.testing.assert_close(widened.log_sd, q.log_sd + shift[:, None], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close((widened.mean, widened.below), (q.mean, q.below))


# -- maps beside the nets -----------------------------------------------------------------


@pytest.mark.parametrize("sharp", [100.0, 1e5])
def test_leaky_layers_are_a_sharp_flow_and_its_inverse(g, sharp):
    flow = SmoothLeakyFlow(2, 3, 5, start=torch.eye(3).double() + 0.3 * rand(g, 3, 3), rng=g)
    with torch.no_grad():
        flow.log_slope.copy_(0.5 * rand(g, *flow.log_slope.shape))
        flow.bias.copy_(rand(g, *flow.bias.shape))
        flow.beta.fill_(sharp)
        there, back = LeakyLayers(2, 3, 5).double(), LeakyLayers(2, 3, 5).double()
        x = rand(g, 2, 400, 3)
        torch.testing.assert_close(there(x), x)  # the identity, before
        there.copy_from(flow)
        back.copy_from(flow, inverse=True)
        t = there(x)
        torch.testing.assert_close(back(t), x)
        error = (t - flow(x)[0]).abs()
    assert error.max() < 20 / sharp
    assert error.median() < 0.1 / sharp  # away from the bends there is none


# -- the plain bound ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_is_the_likelihood_where_q_is_the_posterior(seed):
    """x = mean + scale (z A + b + σ ε) with z ~ N(0, I): log p(x) is Gaussian, and so is p(z | x)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 4)) * [1, 2, 30, 0.1] + [0, 5, 0, 9]
    model = VAE(2, **QUICK | {"hidden": (), "n_restarts": 1, "max_steps": 1}).fit(x)
    A = np.linalg.qr(rng.normal(size=(4, 2)))[0].T * rng.uniform(0.5, 2, size=(2, 1))  # the posterior is diagonal
    b, sigma = rng.normal(size=4), 0.4
    precision = (A**2).sum(1) / sigma**2 + 1
    into = A.T / sigma**2 / precision
    encoder, decoder = model.module_.double().last_layers
    with torch.no_grad():
        decoder.weight[0], decoder.bias[0, 0] = torch.as_tensor(A), torch.as_tensor(b)
        model.module_.log_noise.fill_(np.log(sigma))
        encoder.weight[0] = torch.as_tensor(np.c_[into, np.zeros((4, 2))])
        encoder.bias[0, 0] = torch.as_tensor(np.r_[-b @ into, -0.5 * np.log(precision)])
    covariance = (A.T @ A + sigma**2 * np.eye(4)) * np.outer(model.scale_, model.scale_)
    exact = multivariate_normal(model.mean_ + model.scale_ * b, covariance)
    for importance in (False, True):
        np.testing.assert_allclose(model.score_samples(x, importance=importance), exact.logpdf(x), rtol=1e-8)
    np.testing.assert_allclose(model.transform(x), ((x - model.mean_) / model.scale_ - b) @ into, atol=1e-10)
    drawn, sd = model.sample(100_000, random_state=0), np.sqrt(np.diag(exact.cov))
    np.testing.assert_allclose((drawn.mean(0) - exact.mean) / sd, 0, atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T) / np.outer(sd, sd), exact.cov / np.outer(sd, sd), atol=0.03)
    with torch.no_grad():
        encoder.bias[..., 2:] += 0.3
    worse, tighter = (model.score_samples(x, importance=i) for i in (False, True))
    assert (worse < tighter).all()
    assert (worse < exact.logpdf(x) - 0.05).all()


def test_divergences_of_the_family(g):
    """β weighs all of it, or the total correlation; the three terms of β-TC-VAE sum to log q - log p, draw by draw."""
    q = Posterior(rand(g, 1, 9, 2), 0.3 * rand(g, 1, 9, 2), None)
    noise = rand(g, 1, 9, 2)
    z, x = q.at(noise), torch.zeros(1, 9, 4)

    def divergence(model):
        return model._divergence(None, q, z, x, 100)[0].numpy()

    law = torch.distributions.Normal(q.mean, q.log_sd.exp())
    plain = torch.distributions.kl_divergence(law, torch.distributions.Normal(0.0, 1.0)).sum(-1)[0].numpy()
    np.testing.assert_allclose(divergence(VAE()), plain, rtol=1e-6)
    np.testing.assert_allclose(divergence(BetaVAE(beta=3.5)), 3.5 * plain, rtol=1e-6)
    prior = norm.logpdf(z[0].numpy()).sum(-1)
    np.testing.assert_allclose(divergence(BetaTCVAE(beta=1)), q.log_density(noise)[0].numpy() - prior, rtol=1e-6)
    each = norm.logpdf(z[0].numpy()[:, None], q.mean[0].numpy(), q.log_sd[0].exp().numpy())  # (draws, rows, latents)
    joint, single = (logsumexp(v, axis=1) - np.log(9 * 100) for v in (each.sum(2), each))
    correlation = joint - single.sum(1)
    np.testing.assert_allclose(divergence(BetaTCVAE(beta=5)) - divergence(BetaTCVAE(beta=1)), 4 * correlation)


def test_one_is_the_weight_of_the_plain_bound(digits):
    x = digits.x[:150]
    models = VAE(), BetaVAE(beta=1.0), BetaVAE(beta=4.0)
    settings = QUICK | {"likelihood": "bernoulli"}
    plain, weighted, heavier = (model.set_params(**settings).fit(x).transform(x) for model in models)
    np.testing.assert_array_equal(plain, weighted)
    assert not np.allclose(plain, heavier)


@pytest.mark.parametrize("model", FAMILY)
def test_a_model_that_was_not_fitted_says_so(model):
    for use in (lambda m: m.sample(2), lambda m: m.transform(np.zeros((2, 2))), lambda m: m.score(np.zeros((2, 2)))):
        with pytest.raises(NotFittedError):
            use(model())


# -- columns and pixels -------------------------------------------------------------------


@pytest.mark.parametrize("net", [Dense((8,)), ConvNet(), ResNet(width=2)], ids=lambda net: type(net).__name__)
@pytest.mark.parametrize("shape", [(8, 8), (5, 6, 3)])
def test_images_in_images_out(net, shape):
    x = np.random.default_rng(0).integers(0, 256, size=(60, *shape)) / 255
    model = VAE(2, net=net, likelihood="logistic", **QUICK | {"max_steps": 2}).fit(x)
    z = model.transform(x)
    assert z.shape == (60, 2)
    assert model.image_shape_ == shape
    assert model.inverse_transform(z).shape == x.shape
    drawn = model.sample(5, random_state=0)
    assert drawn.shape == (5, *shape)
    np.testing.assert_allclose(drawn * 255, np.round(drawn * 255), atol=1e-9)
    assert model.score_samples(x).shape == (60,)
    np.testing.assert_array_equal(model.transform(x.reshape(60, -1)), z)  # their rows mean the same
    single = model.inverse_transform(model.transform(x.astype(np.float32)))
    assert (single.dtype, single.shape) == (np.float32, x.shape)
    assert model.module_.log_noise.shape == (1, 1, 3 if len(shape) == 3 else 1)
    with pytest.raises(DataError, match=r"Expected images of shape \(.*\), as in fit\. Got \(30,.*\)"):
        model.transform(np.zeros((4, 30, 2)))


def test_a_pixel_stays_where_it_is():
    """A decoder that ignores z gives the mean image, and that of columns the mean row."""
    x = np.random.default_rng(0).normal(size=(80, 3, 4, 2)) + np.arange(24).reshape(3, 4, 2)
    model = VAE(2, net=Dense((4,)), **QUICK).fit(x)
    with torch.no_grad():
        model.module_.last_layers[1].weight.zero_()
        model.module_.last_layers[1].bias.zero_()
    np.testing.assert_allclose(model.inverse_transform(np.zeros((1, 2)))[0], x.mean(0))


def test_the_noise_of_channels_is_learnt_apart():
    rng = np.random.default_rng(0)
    x = np.clip(0.5 + [0.02, 0.1, 0.05] * rng.logistic(size=(300, 4, 4, 3)), 0, 1)
    settings = QUICK | {"max_steps": 200, "learning_rate": 0.03, "n_restarts": 1}
    model = VAE(1, likelihood="logistic", net=Dense((4,)), **settings).fit(np.round(x * 255) / 255)
    np.testing.assert_allclose(model.module_.log_noise.detach().exp()[0, 0], [0.02, 0.1, 0.05], rtol=0.1)


@pytest.mark.parametrize(
    ("net", "shape", "words"),
    [
        ("convnet", (60, 65), "neither a square grey image nor a square one with three channels"),
        (ConvNet((4, 5)), (60, 64), r"\(4, 5\) have 20 numbers each, the rows have d=64"),
        ("convnet", (60, 3, 3), r"at least 4 x 4 pixels\. These have 3 x 3"),
        ("lenet", (60, 64), r"net must be one of \[.*'convnet'.*\] or an Architecture.*Got 'lenet'"),
        (None, (60, 8, 8), "dim 3"),
    ],
)
def test_what_is_no_image_is_refused(net, shape, words):
    x = np.random.default_rng(0).uniform(size=shape)
    with pytest.raises(ValueError, match=words):
        VAE(2, net=net, likelihood="bernoulli", **QUICK).fit(x)


@pytest.mark.parametrize("kind", ["bernoulli", "logistic"])
def test_values_beyond_black_and_white_are_refused(images, kind):
    model = VAE(2, net=Dense((4,)), likelihood=kind, **QUICK).fit(images)
    for use in (clone(model).fit, model.transform, model.score):
        with pytest.raises(DataError, match=rf"likelihood='{kind}' needs values in \[0, 1\]; these lie in \[0, 16\]"):
            use(16 * images)
        with pytest.raises(DataError, match=r"lie in \[-0\.5, 0\.5\]\. Rescale them, or use likelihood='gaussian'"):
            use(images - 0.5)


# -- bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [VAE, VaDE, IVAE])
def test_a_threshold_is_all_that_is_seen_of_grey(model, images):
    bits, u = (images >= 0.5).astype(images.dtype), np.arange(200) % 3
    grey = model(2, net=Dense((8,)), likelihood="bernoulli", binarise="threshold", **QUICK).fit(images, u)
    for use in ("transform", "score_samples"):
        np.testing.assert_array_equal(getattr(grey, use)(images), getattr(grey, use)(bits))
    plain = clone(grey).set_params(binarise=None).fit(bits, u)
    np.testing.assert_array_equal(plain.transform(bits), grey.transform(images))


@pytest.mark.parametrize("model", [VAE, VaDE, IVAE])
def test_bits_are_drawn_anew_at_every_step(model, images, monkeypatch):
    u = np.arange(200) % 3
    drawing = model(2, net=Dense((8,)), likelihood="bernoulli", binarise="draw", **QUICK)
    seen, whole = [], model._seen

    def spy(self, x, rng):
        seen.append((x, whole(self, x, rng)))
        return seen[-1][1]

    monkeypatch.setattr(model, "_seen", spy)
    drawing.fit(images, u)
    assert len(seen) >= QUICK["max_steps"]
    for grey, bits in seen:
        assert set(bits.unique().tolist()) == {0.0, 1.0}
        assert torch.equal(bits[(grey == 0) | (grey == 1)], grey[(grey == 0) | (grey == 1)])
    middle = torch.cat([(bits - grey)[(grey > 0) & (grey < 1)] for grey, bits in seen])
    assert abs(middle.mean()) < 3 * 0.5 / len(middle) ** 0.5
    (_, first), (_, second) = seen[:2]
    assert not torch.equal(first, second)
    assert np.isfinite(drawing.transform(images)).all()
    plain = clone(drawing).set_params(binarise=None).fit(images, u)
    assert not np.allclose(plain.transform(images), drawing.transform(images))


# -- sources of chance ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        VAE(2, **QUICK),
        VaDE(2, 3, init="autoencoder", pretrain_steps=5, **QUICK),
        VaDE(2, 3, init="flow", pretrain_steps=5, **QUICK),
        IVAE(2, **QUICK),
    ],
    ids=lambda m: f"{type(m).__name__}-{getattr(m, 'start', '')}",
)
def test_nets_that_drop_units_draw_from_the_seed_alone(model):
    x, u = np.random.default_rng(0).normal(size=(150, 4)), np.arange(150) % 3
    before = torch.get_rng_state().clone()
    a = clone(model).set_params(net=DROPPING).fit(x, u).transform(x)
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(a, clone(model).set_params(net=DROPPING).fit(x, u).transform(x))


# -- IVAE with nets -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def labelled(digits):
    return digits.x[:120].reshape(-1, 8, 8), digits.u[:120]


@pytest.mark.parametrize(
    ("net", "settings"),
    [
        (Dense((16,), (12, 8)), {"likelihood": "bernoulli"}),
        (Dense((16,)), {"likelihood": "logistic", "posterior": "diagonal", "posterior_given_u": False}),
        ("convnet", {"likelihood": "logistic"}),
        (ConvNet(), {"likelihood": "bernoulli", "binarise": "draw"}),
        (ResNet(width=2), {"likelihood": "bernoulli", "binarise": "threshold"}),
    ],
    ids=["dense", "dense-logistic", "convnet-logistic", "convnet-draw", "resnet-threshold"],
)
def test_an_ivae_of_images(labelled, net, settings, tmp_path):
    x, u = labelled
    model = IVAE(2, net=net, **QUICK | settings | {"max_steps": 5}).fit(np.round(x * 255) / 255, u)
    assert model.module_.into is None
    for given in (None, u):
        assert model.transform(x, given).shape == (120, 2)
        assert np.isfinite(model.score_samples(x, given)).all()
    assert model.inverse_transform(model.transform(x)).shape == x.shape
    assert model.sample(4, u=u[0], random_state=0).shape == (4, 8, 8)
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu")
    np.testing.assert_array_equal(again.transform(x, u), model.transform(x, u))
    np.testing.assert_array_equal(again.sample(3, random_state=0), model.sample(3, random_state=0))
    assert again.get_params() == model.get_params() | {"device": "cpu"}


@pytest.mark.parametrize("start", ["flow", "linear"])
def test_an_ivae_with_a_net_starts_at_random(start):
    s = make_segments(200, segments=3, n=2, d=4, random_state=0)
    with pytest.raises(ValueError, match=r"'start' parameter of IVAE must be 'auto' or 'random' when a net is given"):
        IVAE(2, net=Dense((8,)), start=start, **QUICK).fit(s.x, s.u)


def test_a_linear_start_of_pixels_is_at_their_means(labelled):
    x, u = labelled
    x = np.round(255 * 0.3 * x.reshape(120, -1)[:, [18, 19, 20, 27, 28, 35]]) / 255
    model = IVAE(2, likelihood="logistic", init="linear", **QUICK | {"max_steps": 1, "hidden": (8,)}).fit(x, u)
    np.testing.assert_allclose(model.inverse_transform(np.zeros((1, 2)))[0], x.mean(0), atol=0.05)


@pytest.mark.parametrize("model", [VAE, VaDE, IVAE])
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"binarise": "round", "likelihood": "bernoulli"}, r"'binarise' parameter of \w+ must be one of \(None, 'thre"),
        ({"binarise": "draw"}, "None unless likelihood='bernoulli'"),
        ({"likelihood": "poisson"}, r"one of \('gaussian', 'bernoulli', 'logistic', 'categorical'\)"),
        ({"net": 64}, "net must be one of .* or an Architecture.*Got 64"),
        ({"net": Dense([8])}, "hidden must be a tuple of positive layer widths"),
    ],
)
def test_bad_settings_get_one_clear_error(model, settings, words):
    x = np.random.default_rng(0).uniform(size=(60, 4))
    with pytest.raises(ValueError, match=words):
        model(2, **QUICK | settings).fit(x, np.arange(60) % 2)
