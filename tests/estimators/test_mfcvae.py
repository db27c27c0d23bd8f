"""MFCVAE: one facet is VaDE, facets share nothing but the decoder, and two clusterings at once are both found."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.base import clone

from identifiable import MFCVAE, DataError, Level, Mixture, VaDE, load, save
from identifiable.data import load_digits
from identifiable.estimators import variational
from identifiable.estimators.mfcvae import opened
from identifiable.estimators.mixture_vae import Facet, _product
from identifiable.metrics import clustering_accuracy
from identifiable.nets import Dense
from identifiable.training.state import Run

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")

QUICK = {"n_restarts": 2, "pretrain_steps": 10, "max_steps": 10, "batch_size": 32, "random_state": 0, "verbose": 0}
TINY = QUICK | {"hidden": (8,)}
FACETS = Facet(slice(0, 2), 3), Facet(slice(2, 5), 4)


@pytest.fixture(params=[0, 1, 2])
def g(request):
    return torch.Generator().manual_seed(request.param)


def rand(g, *shape):
    return torch.randn(shape, generator=g, dtype=torch.float64)


def nets(g):
    """Random nets of two members with two facets."""
    model = MFCVAE(5, (3, 4), facets=(2, 3), init="random", hidden=(6,), activation="tanh")
    model.n_features_in_, model.levels_, model.n_components_ = 4, (), (3, 4)
    made = model._build(2, g).double()
    with torch.no_grad():
        for parameter in made.bases.parameters():
            parameter.copy_(rand(g, *parameter.shape))
    return made


def density(law, z):
    each = zip(law.weights, law.means, law.covariances, strict=True)
    return sum(w * multivariate_normal(m, c).pdf(z) for w, m, c in each)


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    return np.tanh(rng.normal(size=(250, 3)) @ rng.normal(size=(3, 5))) + 0.1 * rng.normal(size=(250, 5))


# -- facets -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "given", "sizes"),
    [(5, 2, [3, 2]), (6, 3, [2, 2, 2]), (4, 1, [4]), (3, 3, [1, 1, 1]), (7, (1, 4, 2), [1, 4, 2])],
)
def test_facets_part_the_latents(n, given, sizes):
    facets = MFCVAE(n, facets=given).facets_
    assert [one.stop - one.start for one in facets] == sizes
    assert np.concatenate([np.arange(n)[one] for one in facets]).tolist() == list(range(n))


def test_every_facet_has_as_many_components_as_it_is_given(x):
    model = MFCVAE(5, (3, 2), facets=(2, 3), **TINY).fit(x)
    assert model.n_components_ == (3, 2)
    assert [law.means.shape for law in model.mixtures_] == [(3, 2), (2, 3)]
    for law in model.mixtures_:
        assert law.weights.sum() == pytest.approx(1)
        assert (np.diff(law.weights) <= 0).all()
    for j, components in enumerate((3, 2)):
        p = model.predict_proba(x, facet=j)
        assert p.shape == (250, components)
        np.testing.assert_allclose(p.sum(1), 1)
        np.testing.assert_array_equal(model.predict(x, facet=j), p.argmax(1))
    np.testing.assert_array_equal(model.predict(x), model.predict(x, facet=0))
    few = MFCVAE(4, 25, facets=2, **TINY).fit(x)
    assert few.n_components_ == (11, 11)  # of 225 rows, twenty each


@pytest.mark.parametrize(
    "settings",
    [
        {"init": "flow", "hidden": (8,)},
        {"init": "autoencoder", "hidden": (8,), "bound": "factorised"},
        {"init": "random", "net": Dense((8,), dropout=0.2, dropout_after=1)},
    ],
    ids=["flow", "autoencoder", "random"],
)
def test_one_facet_is_vade(x, settings):
    one, other = (model.fit(x) for model in (MFCVAE(2, 3, 1, **QUICK | settings), VaDE(2, 3, **QUICK | settings)))
    for use in ("transform", "predict_proba", "score_samples"):
        np.testing.assert_array_equal(getattr(one, use)(x), getattr(other, use)(x))
    np.testing.assert_array_equal(one.sample(9, 0, component=1), other.sample(9, 0, component=1))
    assert str(one.certificate_) == str(other.certificate_)
    if settings["start"] != "flow":
        progressive = MFCVAE(2, 3, 1, progressive=True, **QUICK | settings).fit(x)  # it is open from the beginning
        np.testing.assert_array_equal(progressive.transform(x), other.transform(x))


@pytest.mark.parametrize("bound", ["single-sample", "factorised"])
def test_the_divergence_is_the_sum_over_open_facets(g, bound):
    module, x = nets(g), rand(g, 2, 6, 4)
    q = module.encode(x)
    z = q.at(rand(g, 2, 6, 5))
    model = MFCVAE(5, (3, 4), facets=(2, 3), bound=bound)
    parts = []
    for base, facet in zip(module.bases, FACETS, strict=True):
        own = q.mean[..., facet.latents], q.log_sd[..., facet.latents]
        joint = base(z[..., facet.latents]) if bound == "single-sample" else base.expected(own[0], (2 * own[1]).exp())
        entropy = torch.distributions.Normal(own[0], own[1].exp()).entropy().sum(-1)
        parts.append(-entropy - torch.logsumexp(joint, -1))
    for gates in ((1.0, 1.0), (1.0, 0.0), (1.0, 0.3)):
        for gate, facet in zip(gates, FACETS, strict=True):
            module.gate[..., facet.latents] = gate
        expected = gates[0] * parts[0] + gates[1] * parts[1]
        torch.testing.assert_close(model._divergence(module, q, z, x, 1), expected)


def test_the_prior_is_the_product_of_the_mixtures(g):
    module, z = nets(g), rand(g, 2, 6, 5)
    found = MFCVAE(5, (3, 4), facets=(2, 3))._log_prior(module, z, None).detach().numpy()
    for r in range(2):
        laws = [base.mixture(r) for base in module.bases]
        own = z[r].numpy()
        each = density(laws[0], own[:, :2]) * density(laws[1], own[:, 2:])
        np.testing.assert_allclose(found[r], np.log(each))
        joint = _product(tuple(laws))
        assert len(joint.weights) == 12
        np.testing.assert_allclose(density(joint, own), each)
    three = _product((laws[0], laws[1], Mixture([0.3, 0.7], [[0.0], [1.0]], [[1.0], [2.0]])))
    np.testing.assert_allclose(three.weights.sum(), 1)
    assert three.means.shape == (24, 6)


# -- opening ------------------------------------------------------------------------------


def test_a_closed_facet_tells_the_decoder_nothing(g):
    module, z = nets(g), rand(g, 2, 6, 5)
    moved = z.clone()
    moved[..., 2:] += 1
    assert not torch.allclose(module.decode(z), module.decode(moved))
    module.gate[..., FACETS[1].latents] = 0
    assert torch.equal(module.decode(z), module.decode(moved))


@pytest.mark.parametrize("facets", [1, 2, 3, 5])
def test_facets_open_one_after_the_other(facets):
    at = np.array([[opened(j, facets, t) for j in range(facets)] for t in np.linspace(0, 1, 101)])
    assert (at[:, 0] == 1).all()
    assert (at[0, 1:] == 0).all()
    assert (at[70:] == 1).all()
    assert (np.diff(at, axis=0) >= 0).all()
    assert (np.diff(at, axis=1) <= 0).all()
    assert all(((at[:, j] > 0) & (at[:, j] < 1)).sum() >= 5 for j in range(1, facets))  # not at once


@pytest.mark.parametrize("steps", [1, 20])
def test_a_progressive_fit_begins_closed_and_ends_open(x, steps, monkeypatch):
    """Whatever the bound of held-out rows says while facets are closed: it is not the same bound."""
    gates, whole = [], MFCVAE._bound

    def spy(self, module, *args):
        gates.append(module.gate[0, 0].tolist())
        return whole(self, module, *args)

    monkeypatch.setattr(MFCVAE, "_bound", spy)
    settings = TINY | {"max_steps": steps, "patience": 1}
    model = MFCVAE(5, 2, facets=(2, 3), progressive=True, **settings).fit(x)
    assert (model.module_.gate == 1).all()
    assert (model._restarts.gate == 1).all()
    assert 0.7 * steps <= model.history_.best_step.min()
    assert np.isfinite(model.score(x))
    if steps > 1:
        assert gates[0] == [1, 1, 0, 0, 0]
        assert any(0 < gate[-1] < 1 for gate in gates)
    gates.clear()
    MFCVAE(5, 2, facets=(2, 3), **settings).fit(x)
    assert all(gate == [1] * 5 for gate in gates)


# -- two clusterings at once ------------------------------------------------------------------


def both(seed, size=1500):
    """Two planes, each with two clusters of its own: rows (N, 4), and the two clusterings."""
    rng = np.random.default_rng(seed)
    u = rng.integers(0, 2, size=(2, size))
    planes = [rng.normal(size=(size, 2)) + np.outer(2 * k - 1, [3.0, 1.0]) for k in u]
    return np.hstack(planes), u


@pytest.fixture(scope="module")
def fitted():
    x, u = both(0)
    settings = {"pretrain_steps": 200, "max_steps": 200, "batch_size": 128, "learning_rate": 0.01, "hidden": (32,)}
    return MFCVAE(4, 2, facets=2, n_restarts=8, random_state=0, verbose=0, **settings).fit(x), x, u


def test_both_clusterings_are_found(fitted):
    """Each by a facet of its own; which by which is not said."""
    model, x, u = fitted
    found = np.array([[clustering_accuracy(own, model.predict(x, facet=j)) for j in range(2)] for own in u])
    matched, crossed = min(found[0, 0], found[1, 1]), min(found[0, 1], found[1, 0])
    assert max(matched, crossed) > 0.95
    assert min(matched, crossed) < 0.6
    for law in model.mixtures_:
        np.testing.assert_allclose(law.weights, 0.5, atol=0.1)


def test_a_draw_is_fixed_in_its_facet_alone(fitted):
    model, _, _ = fitted
    for facet, component in itertools.product(range(2), range(2)):
        drawn = model.sample(500, random_state=1, facet=facet, component=component)
        assert (model.predict(drawn, facet=facet) == component).mean() > 0.95
        assert 0.35 < model.predict(drawn, facet=1 - facet).mean() < 0.65
    np.testing.assert_array_equal(model.sample(5, 0, component=1), model.sample(5, 0, facet=0, component=1))
    free = model.sample(1000, random_state=0)
    assert all(0.4 < model.predict(free, facet=j).mean() < 0.6 for j in range(2))


def test_the_certificate_looks_at_all_facets_together(fitted):
    model, x, _ = fitted
    assert [len(law.weights) for law in model.free_mixtures_] == [2, 2]
    assert isinstance(model.certificate_.level, Level)
    expected = {"stable": "holds", "doubtful": "inconclusive", "unstable": "fails"}[model.fit_status_]
    assert model.certificate_["agreement"].verdict == expected
    z = model.transform(x)
    for facet, law in zip(model.facets_, model.free_mixtures_, strict=True):
        np.testing.assert_allclose(law.weights @ law.means, z[:, facet].mean(0), atol=0.02)


# -- images and files -----------------------------------------------------------------------------


def test_images_in_images_out_and_a_file(tmp_path):
    images = load_digits().x[:150].reshape(-1, 8, 8)
    settings = QUICK | {"net": "convnet", "likelihood": "bernoulli", "binarise": "threshold", "init": "random"}
    model = MFCVAE(4, (3, 2), facets=2, progressive=True, **settings).fit(images)
    assert model.sample(3, facet=1, component=0, random_state=0).shape == (3, 8, 8)
    assert model.inverse_transform(model.transform(images)).shape == images.shape
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu")
    np.testing.assert_array_equal(again.transform(images), model.transform(images))
    for j in range(2):
        np.testing.assert_array_equal(again.predict_proba(images, j), model.predict_proba(images, j))
    np.testing.assert_array_equal(again.sample(4, 0, facet=1, component=1), model.sample(4, 0, facet=1, component=1))
    assert again.facets_ == model.facets_
    assert str(again.certificate_) == str(model.certificate_)


def test_a_resumed_fit_opens_its_facets_where_it_stood(x, tmp_path, monkeypatch):
    plan, write = variational.Plan, Run.save
    monkeypatch.setattr(variational, "Plan", lambda *args, **kw: plan(*args, **kw, checkpoint_seconds=0.0))
    settings = TINY | {"progressive": True, "max_steps": 20}
    whole = MFCVAE(4, 2, facets=2, **settings).fit(x)
    path, saves = tmp_path / "c.safetensors", itertools.count(1)
    model = MFCVAE(4, 2, facets=2, checkpoint=path, **settings)

    def stopping(self, *args):
        write(self, *args)
        if next(saves) == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(Run, "save", stopping)
        with pytest.raises(KeyboardInterrupt):
            model.fit(x)
    resumed = clone(model).fit(x)
    for a, b in zip(whole.module_.state_dict().values(), resumed.module_.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    np.testing.assert_array_equal(whole.transform(x), resumed.transform(x))


# -- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"facets": 0},
            r"'facets' parameter of MFCVAE must be a number of facets up to n_latents=4, or sizes that sum",
        ),
        ({"facets": 5}, "up to n_latents=4, or sizes that sum to it. Got 5 instead"),
        ({"facets": (2, 3)}, r"sizes that sum to it\. Got \(2, 3\)"),
        ({"facets": (4, 0)}, r"sizes that sum to it\. Got \(4, 0\)"),
        ({"facets": ()}, r"sizes that sum to it\. Got \(\)"),
        ({"facets": 2.0}, r"sizes that sum to it\. Got 2\.0"),
        ({"n_components": 0}, "'n_components' parameter of MFCVAE must be an integer >= 1, or 2 of them"),
        ({"n_components": (3, 3, 3)}, r"or 2 of them\. Got \(3, 3, 3\)"),
        ({"n_components": (3, 0)}, r"or 2 of them\. Got \(3, 0\)"),
        ({"progressive": 1}, "True or False"),
        ({"init": "flow"}, r"one of \('auto', 'autoencoder', 'linear', 'random'\) with several facets"),
        ({"posterior": "full"}, "'auto' or 'diagonal' with several facets"),
        ({"bound": "iwae"}, "'bound' parameter of MFCVAE must be one of"),
    ],
)
def test_bad_settings_get_one_clear_error(x, settings, words):
    with pytest.raises(ValueError, match=words):
        MFCVAE(**{"n_latents": 4, "n_components": 3} | TINY | settings).fit(x)


def test_facets_and_components_that_are_not_there_are_refused(x):
    model = MFCVAE(4, (3, 2), facets=2, **TINY).fit(x)
    for use in (model.predict, model.predict_proba):
        for wrong in (2, -1):
            with pytest.raises(DataError, match=rf"facet must lie between 0 and 1\. Got {wrong}"):
                use(x, facet=wrong)
    with pytest.raises(DataError, match=r"facet must lie between 0 and 1\. Got 2"):
        model.sample(2, facet=2)
    with pytest.raises(DataError, match=r"component must be a number from 0 to 1\. Got 2"):
        model.sample(2, facet=1, component=2)
