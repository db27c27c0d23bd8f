"""p(x | z), q(z | x), encoder and decoder: densities, draws and maps against scipy and automatic derivatives."""

import itertools

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from scipy.stats import bernoulli, logistic, multivariate_normal, norm

from autoencoder_helpers import rand
from identifiable.estimators.autoencoder import (
    Autoencoder,
    LeakyLayers,
    Likelihood,
    Posterior,
    cholesky,
    follow,
    set_noise,
)
from identifiable.flows import SmoothLeakyFlow
from identifiable.nets import Dense
from identifiable.training import Plan, minimise

KINDS = ["gaussian", "bernoulli", "logistic", "categorical"]
LEVELS = (3, 2, 4)


def likelihood(g, kind, members=2, columns=6, channels=3):
    """Return a likelihood whose noise differs between members and columns or channels."""
    columns = sum(LEVELS) if kind == "categorical" else columns
    made = Likelihood(members, kind, columns, levels=LEVELS, channels=channels).double()
    if made.log_noise is not None:
        with torch.no_grad():
            made.log_noise.copy_(rand(g, *made.log_noise.shape) - (2 if kind == "logistic" else 0))
    return made


def rows_of(kind, columns=6):
    """Return rows that a likelihood allows, as the encoder takes them."""
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


def log_prob_by_scipy(kind, x, decoded, noise):
    """Log p(x | z) of every row, by scipy."""
    if kind == "gaussian":
        return norm.logpdf(x, decoded, np.exp(noise)).sum(-1)
    if kind == "bernoulli":
        return bernoulli.logpmf(x, expit(decoded)).sum(-1)
    if kind == "categorical":
        ends = np.cumsum(LEVELS)[:-1]
        parts = zip(np.split(x, ends, -1), np.split(decoded, ends, -1), strict=True)
        return sum(np.log((hit * softmax(logits, -1)).sum(-1)) for hit, logits in parts)
    pixel = logistic(decoded + 0.5, np.exp(np.tile(noise, x.shape[-1] // noise.shape[-1])))  # channels change fastest
    upper, lower = np.where(x == 1, np.inf, x + 0.5 / 255), np.where(x == 0, -np.inf, x - 0.5 / 255)
    right = lower > pixel.mean()  # differences of small tails rather than of ones
    return np.log(np.where(right, pixel.sf(lower) - pixel.sf(upper), pixel.cdf(upper) - pixel.cdf(lower))).sum(-1)


# -- p(x | z) ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_log_likelihood_matches_scipy(g, kind):
    made, x = likelihood(g, kind), rows_of(kind)
    decoded = rand(g, *x.shape) * (0.3 if kind == "logistic" else 1)
    noise = None if made.log_noise is None else made.log_noise.detach().numpy()
    found = made(torch.as_tensor(x), decoded).detach().numpy()
    np.testing.assert_allclose(found, log_prob_by_scipy(kind, x, decoded.numpy(), noise), rtol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_information_is_the_covariance_of_the_score(g, kind):
    """The covariance is a sum over all values of the columns, or over a fine grid of them."""
    made = likelihood(g, kind, members=1, columns=1, channels=1)
    if kind == "logistic":
        made.log_noise.data.fill_(-4)  # hardly any mass beyond black and white
    grids = {"bernoulli": [0, 1], "logistic": np.arange(256) / 255, "gaussian": np.linspace(-60, 60, 20_001)}
    product = itertools.product(*(torch.eye(k).double() for k in LEVELS))
    x = torch.stack([*map(torch.cat, product)]) if kind == "categorical" else torch.as_tensor(grids[kind])[:, None]
    decoded = rand(g, 1, 1, made.columns) * 0.1
    outputs = decoded[0].expand(len(x), -1).clone().requires_grad_()
    log_p = made(x[None], outputs[None])[0]
    (score,) = torch.autograd.grad(log_p.sum(), outputs)
    p = log_p.detach().softmax(0)
    A = made.roots_of_information(decoded, torch.eye(made.columns).double()[None, None])[0, 0]
    torch.testing.assert_close(A.mT @ A, (score * p[:, None]).mT @ score, rtol=0.02, atol=1e-9)


def test_a_gray_value_has_the_mean_log_likelihood_of_its_bits(g):
    made, decoded, gray = likelihood(g, "bernoulli"), rand(g, 1, 1, 6), torch.rand(1, 1, 6, generator=g).double()
    bits = torch.as_tensor(list(itertools.product([0.0, 1.0], repeat=6))).double()[None]
    probability = (bits * gray + (1 - bits) * (1 - gray)).prod(-1)
    torch.testing.assert_close((probability * made(bits, decoded)).sum(1), made(gray, decoded)[:, 0])


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli", "categorical"])
def test_draws_have_the_stated_mean(g, kind):
    made = likelihood(g, kind, members=1)
    decoded = rand(g, 1, 1, made.columns)
    drawn = made.draw(decoded.expand(1, 20_000, -1), g)[0]
    mean = made.mean(decoded)[0, 0]
    assert ((drawn.mean(0) - mean).abs() < 5 * drawn.std(0) / 20_000**0.5).all()
    if kind == "gaussian":
        torch.testing.assert_close(drawn.std(0), made.log_noise.detach()[0, 0].exp(), rtol=0.03, atol=0)
    else:
        assert set(drawn.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("centre", [-0.55, -0.1, 0.4])  # below 0, in between, and near 1: the outer bins are heavy
def test_draws_of_pixels_have_the_stated_probabilities(centre):
    made = Likelihood(1, "logistic", 1).double()
    decoded = torch.full((1, 40_000, 1), centre, dtype=torch.float64)
    drawn = (made.draw(decoded, torch.Generator().manual_seed(0)) * 255)[0, :, 0]
    torch.testing.assert_close(drawn, drawn.round(), atol=1e-9, rtol=0)
    pixels = torch.arange(256).double()[None, :, None] / 255
    expected = made(pixels, decoded[:, :256])[0].exp().detach().numpy()
    found = np.bincount(drawn.round().int().numpy(), minlength=256) / 40_000
    np.testing.assert_allclose(found, expected, atol=5 * np.sqrt(expected.max() / 40_000))
    assert made.mean(decoded)[0, 0].item() == pytest.approx(np.clip(centre + 0.5, 0, 1))


def test_each_channel_has_its_own_scale(g):
    """Rows are pixels with their channels: (h w c) with c the fastest."""
    made = Likelihood(1, "logistic", 4 * 3, channels=3).double()
    with torch.no_grad():
        made.log_noise[0, 0] = torch.log(torch.tensor([0.02, 0.06, 0.01]))
    drawn = made.draw(torch.zeros(1, 5_000, 12).double(), g).reshape(5_000, 4, 3)
    expected = np.pi / np.sqrt(3) * np.tile([0.02, 0.06, 0.01], (4, 1))
    np.testing.assert_allclose(drawn.detach().std(0).numpy(), expected, rtol=0.1)


@pytest.mark.parametrize("kind", ["gaussian", "logistic"])
def test_noise_has_a_floor(kind):
    made, x = Likelihood(1, kind, 1).double(), torch.full((1, 1, 1), 0.6).double()
    with torch.no_grad():
        made.log_noise.fill_(-50.0)
    value = made(x, x - 0.5 if kind == "logistic" else x).item()
    at_floor = norm.logpdf(0, 0, 1e-3) if kind == "gaussian" else np.log(1 - 2 * logistic.cdf(-0.5 / 255, scale=1e-3))
    assert value == pytest.approx(at_floor)


# -- q(z | x) ---------------------------------------------------------------------------


@pytest.mark.parametrize("full", [True, False])
def test_density_variance_and_entropy_of_q_match_scipy(g, full):
    below = rand(g, 1, 3, 3, 3).tril(-1) if full else None
    q = Posterior(rand(g, 1, 3, 3), 0.5 * rand(g, 1, 3, 3), below)
    noise = rand(g, 20, 3, 3)
    z, log_q = q.at(noise), q.log_density(noise)
    for b in range(3):
        root = np.exp(q.log_sd[0, b].numpy())[:, None] * (np.eye(3) + (below[0, b].numpy() if full else 0))
        expected = multivariate_normal(q.mean[0, b].numpy(), root @ root.T)
        np.testing.assert_allclose(log_q[:, b].numpy(), expected.logpdf(z[:, b].numpy()), rtol=1e-8)
        assert q.entropy[0, b].item() == pytest.approx(expected.entropy())
        np.testing.assert_allclose(q.variance[0, b].numpy(), np.diag(expected.cov))
        np.testing.assert_allclose(q.covariance[0, b].numpy(), expected.cov)


def test_widen_changes_only_the_scale_of_q(g):
    def made():
        rng = torch.Generator().manual_seed(0)
        return Autoencoder(2, 4, 3, Dense((5,)), Likelihood(2, "gaussian", 4), full=True, rng=rng).double()

    x = rand(g, 2, 6, 4)
    q = made().encode(x)
    for shift in (torch.full((2, 3), -0.7).double(), rand(g, 2, 3)):
        module = made()
        module.widen(-0.7 if shift.unique().numel() == 1 else shift)
        widened = module.encode(x)
        torch.testing.assert_close(widened.log_sd, q.log_sd + shift[:, None], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close((widened.mean, widened.below), (q.mean, q.below))
    torch.testing.assert_close(module.decode(q.mean), module.decoder(q.mean))


# -- maps in parallel with the nets ---------------------------------------------------------


def random_flow(g, beta):
    flow = SmoothLeakyFlow(2, 3, 5, start=torch.eye(3).double() + 0.3 * rand(g, 3, 3), rng=g)
    with torch.no_grad():
        flow.log_slope.copy_(0.5 * rand(g, *flow.log_slope.shape))
        flow.bias.copy_(rand(g, *flow.bias.shape))
        flow.beta.fill_(beta)
    return flow


@pytest.mark.parametrize("beta", [100.0, 1e5])
def test_leaky_layers_match_a_sharp_flow_and_its_inverse(g, beta):
    flow, x = random_flow(g, beta), rand(g, 2, 400, 3)
    forward, inverse = LeakyLayers(2, 3, 5).double(), LeakyLayers(2, 3, 5).double()
    torch.testing.assert_close(forward(x), x)  # the identity before
    forward.copy_from(flow)
    inverse.copy_from(flow, inverse=True)
    with torch.no_grad():
        t = forward(x)
        torch.testing.assert_close(inverse(t), x)
        error = (t - flow(x)[0]).abs()
    assert error.max() < 20 / beta
    assert error.median() < 0.1 / beta  # away from the kinks there is none


def test_leaky_layers_and_their_jacobian_are_those_of_the_definition(g):
    """The layers are h A + b with leaky units between; noise moves by the Jacobian."""
    layers = LeakyLayers(2, 3, 4).double()
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.copy_(0.7 * rand(g, *parameter.shape))
    x, noise = rand(g, 2, 6, 3), rand(g, 2, 4, 3)

    def plain(h):
        for k in range(4):
            if k:
                h = torch.where(h > 0, h, h * layers.log_slope[:, k - 1].exp())
            h = h @ layers.weight[:, k] + layers.bias[:, k, None].reshape(2, 1, 3)
        return h

    torch.testing.assert_close(layers(x), plain(x))
    moved, factor = layers.propagate(x, noise)
    slopes = torch.autograd.functional.jacobian(plain, x)
    own = torch.stack([torch.stack([slopes[r, b, :, r, b] for b in range(6)]) for r in range(2)])  # (R, B, out, in)
    J = noise[:, None] @ own.mT
    torch.testing.assert_close(moved, plain(x))
    torch.testing.assert_close(factor @ factor.mT, J.mT @ J)


@torch.no_grad()
def test_q_starts_at_the_noise_propagated_to_first_order(g):
    """With a net that adds nothing, q(z | x) = N(f(x A), J' A' diag(noise²) A J) of the leaky layers f."""
    columns = likelihood(g, "gaussian", columns=4)
    module = Autoencoder(2, 4, 3, Dense((5,)), columns, full=True, bypass=True, bends=5, rng=g).double()
    module.bent_in.copy_from(random_flow(g, 1e3))
    for parameter in (module.into, module.out):
        parameter.copy_(rand(g, *parameter.shape))
    for parameter in (module.last_layers[0].weight, module.last_layers[0].bias):
        parameter.zero_()
    x, z = rand(g, 2, 5, 4), rand(g, 2, 5, 3)

    def encoded(rows):
        return module.bent_in(rows @ module.into)

    q = module.encode(x)
    torch.testing.assert_close(q.mean, encoded(x))
    slopes = torch.autograd.functional.jacobian(encoded, x)
    for r, b in itertools.product(range(2), range(5)):
        noisy = slopes[r, b, :, r, b] * columns.log_noise[r].exp()
        root = q.log_sd[r, b].exp()[:, None] * (torch.eye(3) + q.below[r, b])
        torch.testing.assert_close(root, torch.linalg.cholesky(noisy @ noisy.T))
        torch.testing.assert_close(cholesky(noisy @ noisy.T), root)
    torch.testing.assert_close(module.decode(z), module.decoder(z) + module.bent_out(z) @ module.out)
    torch.testing.assert_close(module.log_likelihood(x, module.decode(z)), columns(x, module.decode(z)))


def test_follow_trains_every_member_to_its_own_maps(g):
    rows = rand(g, 400, 3).float()
    latents = torch.stack([torch.tanh(2 * rows[:, :2]), rows[:, 1:] + torch.tanh(2 * rows[:, :2])])
    module = Autoencoder(2, 3, 2, Dense((32,)), Likelihood(2, "gaussian", 3), bypass=True, rng=g)
    stage = follow(module, rows, latents, Plan(150, 200, 0.02, clip=5.0), 0)
    linear = torch.linalg.lstsq(rows.expand(2, -1, -1), latents)
    torch.testing.assert_close(module.into.detach(), linear.solution, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(module.out.detach(), torch.linalg.lstsq(latents, rows.expand(2, -1, -1)).solution)
    minimise(**vars(stage))
    set_noise(module, rows, latents)
    with torch.no_grad():
        found, decoded = module.encode(rows.expand(2, -1, -1)).mean, module.decode(latents)
    residual = (rows @ linear.solution - latents).square().mean((1, 2))
    assert ((found - latents).square().mean((1, 2)) < 0.3 * residual).all()
    error = (decoded - rows).square().mean(1).sqrt()
    assert (error.mean(1) < 0.8).all()
    torch.testing.assert_close(module.log_noise[:, 0].exp().detach(), error)
