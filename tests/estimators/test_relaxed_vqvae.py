"""RelaxedVQVAE: responsibilities of a mixture, a bound that is a sum over codes, and grids of positions."""

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
from identifiable.nets.grid import GridNet

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")

QUICK = {"n_restarts": 2, "max_steps": 150, "hidden": (16,), "learning_rate": 0.01, "random_state": 0, "verbose": 0}
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
    return RelaxedVQVAE(2, quantised=False, positions=1, **QUICK).fit(x)


@pytest.fixture(scope="module")
def images():
    return load_digits().images[:60] / 16


# -- the posterior over codes ---------------------------------------------------------


def test_responsibilities_are_those_of_a_mixture():
    q = codes()
    density = np.stack([[multivariate_normal(c).pdf(q.embedding[r]) for c in q.codebook[r]] for r in range(2)])
    expected = np.moveaxis(density / density.sum(1, keepdims=True), 1, -1)
    np.testing.assert_allclose(responsibilities(q), expected, rtol=1e-10)
    np.testing.assert_allclose(responsibilities(q).sum(-1), 1)


def test_the_mean_is_that_of_the_codes_at_each_position():
    q = codes()
    expected = np.einsum("rbpk,rkn->rbpn", responsibilities(q), q.codebook.numpy())
    np.testing.assert_allclose(q.mean.numpy(), expected.reshape(2, 4, 6))


def nearest(q, z):
    """Return the numbers of the codes nearest to z (R, B, P n), and the distances."""
    distance = (z.unflatten(-1, (3, 2))[..., None, :] - q.codebook[:, None, None]).norm(dim=-1)
    return distance.argmin(-1), distance.amin(-1)


def test_relaxed_draws_have_a_gradient_to_the_codes_and_to_the_encoder():
    q = codes()
    e, c = (t.clone().requires_grad_() for t in (q.embedding, q.codebook))
    Codes(e, c, 0.5, torch.Generator().manual_seed(0)).at(torch.zeros(2, 4, 6)).square().sum().backward()
    assert (e.grad != 0).all()
    assert (c.grad != 0).all()


def test_draws_are_codes_drawn_by_their_probabilities():
    """Relaxed draws of no temperature too."""
    one = codes(members=1, rows=1)
    rng = torch.Generator().manual_seed(0)
    relaxed = Codes(one.embedding.expand(1, 20_000, 3, 2), one.codebook, 1e-3, rng)
    k, far = nearest(relaxed, relaxed.at(torch.zeros(1, 20_000, 6)))
    assert (far < 1e-3).double().mean() > 0.99
    found = torch.nn.functional.one_hot(k[0], CODES).double().mean(0)
    np.testing.assert_allclose(found.numpy(), responsibilities(one)[0, 0], atol=0.02)
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
def test_the_bound_and_the_likelihood_are_sums_over_all_codes(model, x):
    """Two positions of four codes make 16 grids."""
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
    drawn = model._bound(module, (seen.repeat(1, 500, 1),), noise, len(x)).item() - units
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

    start = RelaxedVQVAE(2, quantised=False, positions=1, **QUICK | {"max_steps": 1}).fit(x)
    assert error(plain) < 0.5 * error(start)
    assert plain.codebook_ is None


@torch.no_grad()
def test_without_codes_the_score_is_the_likelihood_given_the_code(plain, x):
    module = plain.module_.double()
    seen = torch.as_tensor((x - plain.mean_) / plain.scale_)[None]
    expected = module.log_likelihood(seen, module.decode(module.encoder(seen)))[0].numpy() - np.log(plain.scale_).sum()
    np.testing.assert_allclose(plain.score_samples(x), expected, rtol=1e-6)


def test_without_codes_there_is_nothing_to_sample_from(plain, x):
    with pytest.raises(DataError, match="quantised=True"):
        plain.codes(x)
    with pytest.raises(DataError, match="quantised=True"):
        plain.sample(3)


# -- what a fit gives -----------------------------------------------------------------


@torch.no_grad()
def test_codes_are_nearest_to_the_output_of_the_encoder(model, x):
    seen = torch.as_tensor((x - model.mean_) / model.scale_)[None]
    e = model.module_.double().encode(seen).embedding[0].numpy()
    far = np.linalg.norm(e[:, :, None] - model.codebook_, axis=-1)
    assert model.codes(x).shape == (80, 2)
    np.testing.assert_array_equal(model.codes(x), far.argmin(-1))


def test_samples_come_from_grids_of_codes(model):
    z = model._draw_latents(50, np.random.RandomState(0)).reshape(100, 2)
    assert (np.abs(z[:, None] - model.codebook_).sum(-1).min(1) == 0).all()
    assert model.sample(7, random_state=0).shape == (7, 4)


def test_each_position_is_compared_with_itself():
    a, b = np.random.default_rng(0).normal(size=(2, 100, 6))
    for measure in (mcc, weak_mcc):
        expected = [measure(a[:, 2 * p : 2 * p + 2], b[:, 2 * p : 2 * p + 2]) for p in range(3)]
        np.testing.assert_allclose(position_mcc(a, b, 3, measure), expected)
    with pytest.raises(DataError, match="P=4"):
        position_mcc(a, b, 4)


@pytest.mark.parametrize("name", ["model", "plain"])
def test_stability_is_the_mean_over_positions(name, x, request):
    model = request.getfixturevalue(name)
    first, second = model.latents_of_restarts(x)  # few rows: all are trained on, and all compared
    assert model.stability_.pairwise[0, 1] == pytest.approx(position_mcc(first, second, model.positions).mean())


@pytest.mark.parametrize("name", ["model", "plain"])
def test_the_certificate_has_no_level(name, request):
    model = request.getfixturevalue(name)
    found = model.certificate_
    assert found.level == found.if_undecided_hold == Level.NONE
    assert found["P1" if name == "model" else "prior"].verdict == "fails"
    assert found["agreement"].statistic == model.stability_.score


# -- images ---------------------------------------------------------------------------


def test_conv_is_a_grid_net_of_the_default_width():
    model = RelaxedVQVAE(net="conv")
    model.n_features_in_ = 64
    assert model._architecture() == GridNet().for_columns(64)


@pytest.mark.parametrize("net", [GridNet(width=16), None], ids=str)
def test_images_and_files(net, images, tmp_path):
    settings = QUICK | {"max_steps": 3, "batch_size": 32, "likelihood": "bernoulli", "n_restarts": 1, "hidden": [8]}
    rows, grid = (images.reshape(60, -1), (2,)) if net is None else (images, (2, 2))
    model = RelaxedVQVAE(3, 6, net=net, positions=2 if net is None else 1, **settings).fit(rows)
    z = model.transform(rows)
    assert z.shape == (60, 3 * np.prod(grid))
    assert model.get_feature_names_out()[-1] == f"relaxedvqvae{z.shape[1] - 1}"
    assert model.inverse_transform(z).shape == rows.shape
    assert model.sample(4, random_state=0).shape == (4, *rows.shape[1:])
    assert np.isfinite(model.score_samples(rows[:10])).all()
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu")
    assert again.grid_ == grid
    assert again.get_params() == model.get_params() | {"device": "cpu"}
    assert isinstance(again.hidden, list)
    np.testing.assert_array_equal(again.transform(rows), z)
    np.testing.assert_array_equal(again.codes(rows), model.codes(rows))
    assert model.codes(rows).shape == (60, *grid)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("n_codes", {"n_codes": 1}),
        ("temperature", {"temperature": 0}),
        ("quantised", {"quantised": "yes"}),
        ("net", {"net": "convnet"}),
        ("positions", {"net": "conv", "positions": 2}),
        ("positions", {"positions": 0}),
    ],
)
def test_wrong_parameters_are_refused(x, name, wrong):
    with pytest.raises(ValueError, match=f"'{name}' parameter of RelaxedVQVAE"):
        RelaxedVQVAE(**QUICK | wrong).fit(x)
