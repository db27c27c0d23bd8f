"""RelaxedVQVAE: responsibilities of a mixture, a bound that can be checked code by code, and grids of positions."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits

from identifiable import DataError, Level, RelaxedVQVAE, load, save
from identifiable.estimators.relaxed_vqvae import Codes, position_mcc
from identifiable.metrics import mcc, weak_mcc
from identifiable.nets import select_member
from identifiable.nets.grid import GridDecoder, GridEncoder, GridNet

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")

QUICK = {"n_restarts": 2, "max_steps": 200, "hidden": (16,), "learning_rate": 0.01, "random_state": 0, "verbose": 0}
CODES = 5


def codes(members=2, rows=4, positions=3, n=2, seed=0, spread=2.0):
    rng = torch.Generator().manual_seed(seed)
    e = torch.randn(members, rows, positions, n, generator=rng, dtype=torch.float64)
    return Codes(e, spread * torch.randn(members, CODES, n, generator=rng, dtype=torch.float64))


def responsibilities(q):
    return torch.softmax(q.logits, -1).numpy()


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    return np.tanh(rng.normal(size=(80, 2)) @ rng.normal(size=(2, 4))) + 0.1 * rng.normal(size=(80, 4))


@pytest.fixture(scope="module")
def model(x):
    return RelaxedVQVAE(2, 4, positions=2, **QUICK).fit(x)


@pytest.fixture(scope="module")
def plain(x):
    return RelaxedVQVAE(2, quantised=False, positions=2, **QUICK).fit(x)


@pytest.fixture(scope="module")
def images():
    return load_digits().images[:60] / 16


@pytest.fixture(scope="module")
def pictured(images):
    settings = QUICK | {"max_steps": 5, "batch_size": 32, "likelihood": "bernoulli", "n_restarts": 1}
    return RelaxedVQVAE(3, 6, net="conv", **settings).fit(images)


# -- the posterior over codes ---------------------------------------------------------


def test_responsibilities_are_those_of_a_mixture_with_identity_covariances():
    q = codes()
    density = np.stack([[multivariate_normal(c).pdf(q.embedding[r]) for c in q.codebook[r]] for r in range(2)])
    expected = np.moveaxis(density / density.sum(1, keepdims=True), 1, -1)
    np.testing.assert_allclose(responsibilities(q), expected, rtol=1e-10)
    np.testing.assert_allclose(responsibilities(q).sum(-1), 1)


def test_the_mean_is_that_of_the_codes_position_by_position():
    q = codes()
    expected = np.einsum("rbpk,rkn->rbpn", responsibilities(q), q.codebook.numpy())
    np.testing.assert_allclose(q.mean.numpy(), expected.reshape(2, 4, 6))


def nearest(q, z):
    """Numbers of the codes that z (R, B, P n) hold, and how far they are from them."""
    far = (z.unflatten(-1, (3, 2))[..., None, :] - q.codebook[:, None, None]).norm(dim=-1)
    return far.argmin(-1), far.amin(-1)


def test_relaxed_draws_of_no_temperature_are_codes_drawn_by_their_probabilities():
    one = codes(members=1, rows=1)
    rng = torch.Generator().manual_seed(0)
    many = Codes(one.embedding.expand(1, 20_000, 3, 2), one.codebook, 1e-3, rng)
    k, far = nearest(many, many.at(torch.zeros(1, 20_000, 6)))
    assert (far < 1e-3).double().mean() > 0.99
    found = torch.nn.functional.one_hot(k[0], CODES).double().mean(0)
    np.testing.assert_allclose(found.numpy(), responsibilities(one)[0, 0], atol=0.02)


def test_relaxed_draws_have_a_gradient_to_the_codes_and_to_the_encoder():
    q = codes()
    e, c = (t.clone().requires_grad_() for t in (q.embedding, q.codebook))
    Codes(e, c, 0.5, torch.Generator().manual_seed(0)).at(torch.zeros(2, 4, 6)).square().sum().backward()
    assert (e.grad != 0).all()
    assert (c.grad != 0).all()


def test_true_draws_are_codes_drawn_by_their_probabilities():
    one = codes(members=1, rows=1)
    many = Codes(one.embedding.expand(1, 20_000, 3, 2), one.codebook)
    noise = torch.randn(1, 20_000, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    k, far = nearest(many, many.at(noise))
    assert far.max() == 0
    found = torch.nn.functional.one_hot(k[0], CODES).double().mean(0)
    np.testing.assert_allclose(found.numpy(), responsibilities(one)[0, 0], atol=0.02)
    expected = torch.log_softmax(many.logits, -1).gather(-1, k[..., None]).sum((-1, -2))
    torch.testing.assert_close(many.log_density(noise), expected)


def test_the_divergence_is_the_sum_over_positions_and_has_its_limits():
    q = codes()
    p = responsibilities(q)
    np.testing.assert_allclose(q.divergence.numpy(), (p * np.log(p * CODES)).sum((-1, -2)), rtol=1e-10)
    assert (q.divergence <= 3 * np.log(CODES)).all()
    same = Codes(q.embedding, torch.ones_like(q.codebook))
    assert same.divergence.abs().max() < 1e-10
    far = Codes(q.embedding, 1e4 * q.codebook)
    np.testing.assert_allclose(far.divergence.numpy(), 3 * np.log(CODES), rtol=1e-6)


# -- the bound ------------------------------------------------------------------------


@torch.no_grad()
def test_the_bound_and_the_likelihood_are_what_all_codes_give_one_by_one(model, x):
    """Two positions of four codes make 16 grids: everything can be summed."""
    module = model.module_.double()
    seen = torch.as_tensor((x - model.mean_) / model.scale_)[None]
    q = module.encode(seen)
    log_q = torch.log_softmax(q.logits, -1)[0].numpy()
    likelihood, posterior = [], []
    for k in product(range(4), repeat=2):
        z = torch.as_tensor(model.codebook_[list(k)].reshape(1, 1, -1)).expand(1, len(x), -1)
        likelihood.append(module.log_likelihood(seen, module.decode(z))[0].numpy())
        posterior.append(log_q[:, 0, k[0]] + log_q[:, 1, k[1]])
    units = np.log(model.scale_).sum()
    likelihood, posterior = np.stack(likelihood) - units, np.stack(posterior)
    evidence = logsumexp(likelihood, axis=0) - np.log(16)
    bound = (np.exp(posterior) * likelihood).sum(0) - q.divergence[0].numpy()
    assert (bound <= evidence).all()
    noise = torch.randn(1, 500 * len(x), module.n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = model._bound(module, seen.repeat(1, 500, 1), noise, len(x)).item() - units
    assert drawn == pytest.approx(bound.mean(), abs=0.03)
    found = model.score_samples(x)  # of 32 draws
    assert found.mean() == pytest.approx(bound.mean(), abs=0.2)
    assert np.corrcoef(found, bound)[0, 1] > 0.8
    assert model.score_samples(x, importance=True).mean() == pytest.approx(evidence.mean(), abs=0.2)


def test_training_raises_the_bound_and_uses_several_codes(model, x):
    start = RelaxedVQVAE(2, 4, positions=2, **QUICK | {"max_steps": 1}).fit(x)
    assert model.score(x) > start.score(x) + 0.5
    assert len(np.unique(model.codes(x))) > 1
    assert model.module_.rng is None


# -- without codes --------------------------------------------------------------------


def test_without_codes_it_is_an_autoencoder(plain, x):
    def error(model):
        return ((model.inverse_transform(model.transform(x)) - x) ** 2).mean() / x.var()

    start = RelaxedVQVAE(2, quantised=False, positions=2, **QUICK | {"max_steps": 1}).fit(x)
    assert error(plain) < 0.5 * error(start)
    assert plain.codebook_ is None


@torch.no_grad()
def test_without_codes_the_score_is_the_likelihood_of_the_encoded_latents(plain, x):
    module = plain.module_.double()
    seen = torch.as_tensor((x - plain.mean_) / plain.scale_)[None]
    expected = module.log_likelihood(seen, module.decode(module.encoder(seen)))[0].numpy() - np.log(plain.scale_).sum()
    np.testing.assert_allclose(plain.score_samples(x), expected, rtol=1e-6)


def test_without_codes_there_are_none_and_nothing_is_drawn(plain, x):
    with pytest.raises(DataError, match="no codes with quantised=False"):
        plain.codes(x)
    with pytest.raises(DataError, match="no law of the latents"):
        plain.sample(3)


# -- what a fit gives -----------------------------------------------------------------


@torch.no_grad()
def test_codes_are_the_nearest_to_what_the_encoder_says(model, x):
    seen = torch.as_tensor((x - model.mean_) / model.scale_)[None]
    e = model.module_.double().encode(seen).embedding[0].numpy()
    far = np.linalg.norm(e[:, :, None] - model.codebook_, axis=-1)
    assert model.codes(x).shape == (80, 2)
    np.testing.assert_array_equal(model.codes(x), far.argmin(-1))


def test_samples_come_from_grids_of_codes(model):
    z = model._draw_latents(50, np.random.RandomState(0)).reshape(100, 2)
    assert (np.abs(z[:, None] - model.codebook_).sum(-1).min(1) == 0).all()
    assert model.sample(7, random_state=0).shape == (7, 4)


def test_positions_are_compared_each_with_its_own():
    a, b = np.random.default_rng(0).normal(size=(2, 100, 6))
    for measure in (mcc, weak_mcc):
        expected = [measure(a[:, 2 * p : 2 * p + 2], b[:, 2 * p : 2 * p + 2]) for p in range(3)]
        np.testing.assert_allclose(position_mcc(a, b, 3, measure), expected)
    with pytest.raises(DataError, match=r"P=4 positions, got shape \(100, 6\)"):
        position_mcc(a, b, 4)


@pytest.mark.parametrize("name", ["model", "plain"])
def test_stability_is_the_mean_over_positions(name, x, request):
    model = request.getfixturevalue(name)
    first, second = model.latents_of_restarts(x)  # so few rows that all of them are held out, and all trained on
    assert model.stability_.pairwise[0, 1] == pytest.approx(position_mcc(first, second, 2).mean())


@pytest.mark.parametrize("name", ["model", "plain"])
def test_no_theorem_is_claimed(name, request):
    model = request.getfixturevalue(name)
    found = model.certificate_
    assert found.level == found.if_undecided_hold == Level.NONE
    assert found["P1" if name == "model" else "prior"].verdict == "fails"
    assert found["agreement"].statistic == model.stability_.score


# -- images ---------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "grid"), [((32, 32, 3), (8, 8)), ((28, 28, 1), (7, 7)), ((10, 5, 1), (3, 2))])
def test_a_grid_is_a_quarter_of_height_and_width(shape, grid):
    d, latents = np.prod(shape), 5 * np.prod(grid)
    net = GridNet(width=4).for_columns(d, shape)
    assert net.grid == grid
    z = net.encoder(2, d, latents)(torch.zeros(2, 3, d))
    assert z.shape == (2, 3, latents)
    assert net.decoder(2, latents, d)(z).shape == (2, 3, d)


@torch.no_grad()
def test_an_image_that_moves_by_a_position_moves_the_grid():
    rng = torch.Generator().manual_seed(0)
    encoder = GridEncoder(1, (64, 64, 1), 3, width=4, rng=rng).eval()
    decoder = GridDecoder(1, 3, (64, 64, 1), width=4, rng=rng).eval()
    image = torch.rand(1, 1, 64, 64, generator=rng)
    moved = image.roll((4, 8), (2, 3))
    here, there = (encoder(t.reshape(1, 1, -1)).reshape(16, 16, 3) for t in (image, moved))
    inner = slice(5, 11)
    torch.testing.assert_close(there.roll((-1, -2), (0, 1))[inner, inner], here[inner, inner])
    here, there = (decoder(t.reshape(1, 1, -1)).reshape(64, 64) for t in (here, here.roll((1, 2), (0, 1))))
    inner = slice(20, 36)
    torch.testing.assert_close(there.roll((-4, -8), (0, 1))[inner, inner], here[inner, inner])


@torch.no_grad()
def test_members_do_not_meet():
    rng = torch.Generator().manual_seed(0)
    net = GridNet(width=4).for_columns(48, (4, 4, 3))
    x, z = torch.rand(2, 5, 48, generator=rng), torch.rand(2, 5, 3, generator=rng)
    for module, rows in ((net.encoder(2, 48, 3, rng=rng), x), (net.decoder(2, 3, 48, rng=rng), z)):
        for r in range(2):
            torch.testing.assert_close(select_member(module, r)(rows[[r]]), module(rows)[[r]])


def test_images_in_images_out(pictured, images, tmp_path):
    assert pictured.grid_ == (2, 2)
    assert pictured.codes(images).shape == (60, 2, 2)
    z = pictured.transform(images)
    assert z.shape == (60, 12)
    assert list(pictured.get_feature_names_out()[[0, 11]]) == ["relaxedvqvae0", "relaxedvqvae11"]
    assert pictured.inverse_transform(z).shape == images.shape
    assert pictured.sample(4, random_state=0).shape == (4, 8, 8)
    assert np.isfinite(pictured.score_samples(images[:10])).all()
    save(pictured, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu")
    assert again.grid_ == (2, 2)
    np.testing.assert_array_equal(again.transform(images), z)
    np.testing.assert_array_equal(again.codes(images), pictured.codes(images))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"n_codes": 1}, "an integer >= 2"),
        ({"temperature": 0}, "a number > 0"),
        ({"quantised": "yes"}, "True or False"),
        ({"net": "convnet"}, "None, 'conv' or a GridNet"),
        ({"net": "conv", "positions": 2}, "1 with a net"),
        ({"positions": 0}, "an integer >= 1"),
    ],
)
def test_parameters_that_cannot_be_are_refused(x, wrong, words):
    with pytest.raises(ValueError, match=words):
        RelaxedVQVAE(**QUICK | wrong).fit(x)
