"""MFCVAE: one facet is VaDE, facets share the decoder alone, and two clusterings are found at once."""

import itertools

import numpy as np
import pytest

from autoencoder_helpers import QUICK
from identifiable import MFCVAE, DataError, VaDE
from identifiable.estimators.mfcvae import opened
from identifiable.metrics import clustering_accuracy
from identifiable.nets import Dense

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
TINY = QUICK | {"pretrain_steps": 5}


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    return np.tanh(rng.normal(size=(250, 3)) @ rng.normal(size=(3, 5))) + 0.1 * rng.normal(size=(250, 5))


# -- facets -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "given", "sizes"),
    [(5, 2, [3, 2]), (6, 3, [2, 2, 2]), (4, 1, [4]), (3, 3, [1, 1, 1]), (7, (1, 4, 2), [1, 4, 2])],
)
def test_facets_partition_the_latents(n, given, sizes):
    facets = MFCVAE(n, facets=given).facets_
    assert [one.stop - one.start for one in facets] == sizes
    assert np.concatenate([np.arange(n)[one] for one in facets]).tolist() == list(range(n))


def test_every_facet_has_its_components(x):
    model = MFCVAE(5, (3, 2), facets=(2, 3), **TINY).fit(x)
    assert model.n_components_ == (3, 2)
    assert [mixture.means.shape for mixture in model.mixtures_] == [(3, 2), (2, 3)]
    for j, components in enumerate((3, 2)):
        p = model.predict_proba(x, facet=j)
        assert p.shape == (250, components)
        np.testing.assert_allclose(p.sum(1), 1)
        np.testing.assert_array_equal(model.predict(x, facet=j), p.argmax(1))
    np.testing.assert_array_equal(model.predict(x), model.predict(x, facet=0))
    for facet in (2, -1):
        for use in (model.predict, model.predict_proba):
            with pytest.raises(DataError, match="facet must lie"):
                use(x, facet=facet)
        with pytest.raises(DataError, match="facet must lie"):
            model.sample(2, facet=facet)
    with pytest.raises(DataError, match="component must be"):
        model.sample(2, facet=1, component=2)
    few = MFCVAE(4, 25, facets=2, **TINY | {"max_steps": 1, "pretrain_steps": 1}).fit(x)
    assert few.n_components_ == (11, 11)  # of 225 rows, twenty each


@pytest.mark.parametrize(
    "settings",
    [{"init": "flow"}, {"bound": "factorised"}, {"net": Dense((8,), dropout=0.2, dropout_after=1)}],
    ids=["flow", "factorised", "dropout"],
)
def test_one_facet_is_vade(x, settings):
    one, other = (model.fit(x) for model in (MFCVAE(2, 3, 1, **TINY | settings), VaDE(2, 3, **TINY | settings)))
    for use in ("transform", "predict_proba", "score_samples"):
        np.testing.assert_array_equal(getattr(one, use)(x), getattr(other, use)(x))
    np.testing.assert_array_equal(one.sample(9, 0, component=1), other.sample(9, 0, component=1))
    assert str(one.certificate_) == str(other.certificate_)
    if settings.get("init") != "flow":  # a single facet is open from the beginning
        progressive = MFCVAE(2, 3, 1, progressive=True, **TINY | settings).fit(x)
        np.testing.assert_array_equal(progressive.transform(x), other.transform(x))


# -- progressive training -------------------------------------------------------------------


@pytest.mark.parametrize("facets", [1, 2, 3, 5])
def test_facets_open_one_after_the_other(facets):
    gates = np.array([[opened(j, facets, t) for j in range(facets)] for t in np.linspace(0, 1, 101)])
    assert (gates[:, 0] == 1).all()
    assert (gates[0, 1:] == 0).all()
    assert (gates[70:] == 1).all()
    assert (np.diff(gates, axis=0) >= 0).all()
    assert (np.diff(gates, axis=1) <= 0).all()
    assert all(((gates[:, j] > 0) & (gates[:, j] < 1)).sum() >= 5 for j in range(1, facets))  # gradually


@pytest.mark.parametrize("steps", [1, 20])
def test_a_progressive_fit_begins_closed_and_ends_open(x, steps, monkeypatch):
    """Held-out bounds do not count while facets are closed: those bounds are not comparable."""
    gates, bound = [], MFCVAE._bound

    def recorded(self, module, *args):
        gates.append(module.gate[0, 0].tolist())
        return bound(self, module, *args)

    monkeypatch.setattr(MFCVAE, "_bound", recorded)
    settings = TINY | {"max_steps": steps, "patience": 1}
    model = MFCVAE(5, 2, facets=(2, 3), progressive=True, **settings).fit(x)
    assert (model.module_.gate == 1).all()
    assert 0.7 * steps <= model.history_.best_step.min()
    closed = model.history_.step < 0.7 * steps - 1e-9
    np.testing.assert_array_equal(np.isnan(model.history_.criterion).all(1), closed)
    assert np.isfinite(model.score(x))
    if steps > 1:
        assert gates[0] == [1, 1, 0, 0, 0]
        assert any(0 < gate[-1] < 1 for gate in gates)
    gates.clear()
    MFCVAE(5, 2, facets=(2, 3), **settings).fit(x)
    assert all(gate == [1] * 5 for gate in gates)


# -- two clusterings at once ------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    """Rows of two planes, each with two clusters, the two clusterings and a fit to them."""
    rng = np.random.default_rng(0)
    u = rng.integers(0, 2, size=(2, 1000))
    x = np.hstack([rng.normal(size=(1000, 2)) + np.outer(2 * k - 1, [3.0, 1.0]) for k in u])
    settings = {"pretrain_steps": 150, "max_steps": 150, "batch_size": 128, "learning_rate": 0.01, "hidden": (32,)}
    return MFCVAE(4, 2, facets=2, **QUICK | settings | {"n_restarts": 6}).fit(x), x, u


def test_both_clusterings_are_found(fitted):
    """Each by one facet, in either order."""
    model, x, u = fitted
    found = np.array([[clustering_accuracy(own, model.predict(x, facet=j)) for j in range(2)] for own in u])
    matched, crossed = min(found[0, 0], found[1, 1]), min(found[0, 1], found[1, 0])
    assert max(matched, crossed) > 0.95
    assert min(matched, crossed) < 0.6
    for mixture in model.mixtures_:
        np.testing.assert_allclose(mixture.weights, 0.5, atol=0.1)


def test_a_draw_is_fixed_in_its_facet_alone(fitted):
    model, *_ = fitted
    for facet, component in itertools.product(range(2), range(2)):
        drawn = model.sample(500, random_state=1, facet=facet, component=component)
        assert (model.predict(drawn, facet=facet) == component).mean() > 0.95
        assert 0.35 < model.predict(drawn, facet=1 - facet).mean() < 0.65
    np.testing.assert_array_equal(model.sample(5, 0, component=1), model.sample(5, 0, facet=0, component=1))
    free = model.sample(1000, random_state=0)
    assert all(0.4 < model.predict(free, facet=j).mean() < 0.6 for j in range(2))


def test_the_certificate_covers_all_facets(fitted):
    model, x, _ = fitted
    assert [len(mixture.weights) for mixture in model.free_mixtures_] == [2, 2]
    expected = {"stable": "holds", "doubtful": "inconclusive", "unstable": "fails"}[model.fit_status_]
    assert model.certificate_["agreement"].verdict == expected
    z = model.transform(x)
    for facet, mixture in zip(model.facets_, model.free_mixtures_, strict=True):
        np.testing.assert_allclose(mixture.weights @ mixture.means, z[:, facet].mean(0), atol=0.05 * z.std())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(("facets", {"facets": wrong}) for wrong in (0, 5, (2, 3), (4, 0), (), 2.0)),
        *(("n_components", {"n_components": wrong}) for wrong in (0, (3, 3, 3), (3, 0))),
        ("progressive", {"progressive": 1}),
        ("init", {"init": "flow"}),
        ("posterior", {"posterior": "full"}),
        ("bound", {"bound": "iwae"}),
    ],
)
def test_wrong_parameters_are_refused(x, name, settings):
    with pytest.raises(ValueError, match=f"'{name}' parameter of MFCVAE"):
        MFCVAE(**{"n_latents": 4, "n_components": 3} | TINY | settings).fit(x)
