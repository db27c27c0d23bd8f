"""IFlow against mixtures of known latents, its likelihood against densities by hand, its certificate against u."""

import copy
import functools

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import laplace, norm

from identifiable import DataError, IFlow, Level, SegmentUnmixing, Stability, load, save
from identifiable.arrays import hold_out
from identifiable.data import make_segments
from identifiable.estimators.given_u import FAMILIES, PriorGivenU
from identifiable.metrics import mcc

QUICK = {"n_restarts": 2, "max_steps": 300, "depth": 6, "batch_size": 256, "random_state": 0, "verbose": 0}
BRIEF = QUICK | {"n_restarts": 1, "max_steps": 40, "depth": 4}

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")


def mixed(z, rng):
    """Two latents, each of unit variance, through a rotation, tanh(h) + .1 h, and a rotation."""
    first, second = np.linalg.qr(rng.normal(size=(2, 2, 2)))[0]
    h = z / z.std(0) @ first
    return (np.tanh(h) + 0.1 * h) @ second


def bowl(seed):
    """Latents (3000, 2) on a bent surface in four columns, the last of them nearly a sum of the others."""
    rng, u = np.random.default_rng(seed), np.arange(3000) % 8
    z = rng.normal(size=(3000, 2)) * rng.uniform(0.5, 2, size=(8, 2))[u]
    z = z / z.std(0)
    x = np.c_[z, 0.7 * np.log(np.cosh(z.sum(1)))]
    return z, np.c_[x, x @ [1, -1, 1] + 0.003 * rng.normal(size=3000)], u


@functools.cache
def segments_of(seed):
    s = make_segments(4000, segments=16, n=2, random_state=seed)
    return s, IFlow(**QUICK).fit(s.x, s.u)


@pytest.fixture
def segments():
    s, model = segments_of(0)
    return s.z, s.x, s.u, model


@pytest.fixture(scope="module")
def surface():
    z, x, u = bowl(0)
    return z, x, u, IFlow(2, **QUICK | {"max_steps": 600}).fit(x, u)


def linear_mcc(z, x, u):
    return mcc(z, SegmentUnmixing(random_state=0).fit(x, u).transform(x))


# -- recovery -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_segments_are_recovered(seed):
    """The published law and mixing; rows that were not there in fit are recovered and explained as well."""
    s, model = segments_of(seed)
    fresh = s.source.sample(2000, random_state=seed + 100)
    linear = SegmentUnmixing(random_state=0).fit(s.x, s.u)
    recovered = mcc(fresh.z, model.transform(fresh.x))
    assert recovered > 0.98
    assert recovered > mcc(fresh.z, linear.transform(fresh.x)) + 0.05
    assert model.score(fresh.x, fresh.u) > linear.score(fresh.x, fresh.u) + 0.1
    assert model.score(fresh.x, fresh.u) > model.score(fresh.x)
    assert (model.family_, model.table_, model.fit_status_) == ("variance", True, "stable")


@pytest.mark.parametrize("seed", range(2))
def test_changing_means_are_recovered(seed):
    s = make_segments(4000, segments=16, n=2, centred=False, random_state=seed)
    model = IFlow(**QUICK | {"max_steps": 600, "depth": 8, "batch_size": 512}).fit(s.x, s.u)
    z = model.transform(s.x)
    assert model.family_ == "gaussian"
    assert mcc(s.z, z) > max(0.97, linear_mcc(s.z, s.x, s.u) + 0.05)
    np.testing.assert_allclose(z.mean(0), 0, atol=0.05)


def test_laplace_latents_are_recovered():
    rng, u = np.random.default_rng(0), np.arange(4000) % 16
    z = rng.laplace(size=(4000, 2)) * rng.uniform(0.5, 3, size=(16, 2))[u]
    x = mixed(z, rng)
    model = IFlow(**QUICK, family="laplace").fit(x, u)
    assert mcc(z, model.transform(x)) > max(0.98, linear_mcc(z, x, u) + 0.02)
    gaussian = IFlow(**QUICK, family="variance").fit(x, u)
    assert mcc(z, model.transform(x)) > mcc(z, gaussian.transform(x)) + 0.01
    assert model.score(x, u) > gaussian.score(x, u) + 0.01


@pytest.mark.parametrize("seed", range(2))
def test_time_as_u(seed):
    """Variances that are a smooth function of a continuous u, learnt by a net."""
    rng = np.random.default_rng(seed)
    t, phases = rng.uniform(size=4000), rng.uniform(0, 6, size=2)

    def scales(t):
        return np.exp(np.sin(2 * np.pi * t[:, None] * [1, 2] + phases))

    z = rng.normal(size=(4000, 2)) * scales(t)
    x = mixed(z, rng)
    model = IFlow(**QUICK).fit(x, t)
    found = model.transform(x)
    assert not model.table_
    assert mcc(z, found) > max(0.98, linear_mcc(z, x, t) + 0.02)
    order = np.abs(np.corrcoef(z.T, found.T)[:2, 2:]).argmax(1)
    grid = np.linspace(0.05, 0.95, 50)
    drawn = np.stack([model.transform(model.sample(500, u=v, random_state=0)).std(0)[order] for v in grid])
    assert (np.corrcoef(np.log(drawn).T, np.log(scales(grid)).T)[[0, 1], [2, 3]] > 0.9).all()


@pytest.fixture(scope="module")
def columns():
    """U of a category and a number, each with a part in the variances."""
    rng = np.random.default_rng(0)
    t, cell, phases = rng.uniform(size=4000), rng.integers(3, size=4000), rng.uniform(0, 6, size=2)
    own = rng.uniform(-0.7, 0.7, size=(3, 2))
    z = rng.normal(size=(4000, 2)) * np.exp(0.7 * np.sin(2 * np.pi * t[:, None] * [1, 2] + phases) + own[cell])
    x, u = mixed(z, rng), pd.DataFrame({"cell": np.array(["b", "nk", "t"])[cell], "time": t})
    return z, x, u, IFlow(**QUICK).fit(x, u)


def test_several_columns_of_u(columns):
    z, x, u, model = columns
    assert model.auxiliary_.kinds == ("categorical", "continuous")
    assert mcc(z, model.transform(x)) > max(0.98, linear_mcc(z, x, u) + 0.02)
    assert model.score(x, u) > model.score(x, u.sample(frac=1, random_state=0).reset_index(drop=True)) + 0.1


def test_the_rows_of_u_may_come_in_a_list():
    """Rows of text and numbers, a list of names, a table: what u says counts, not how it is held."""
    x, u = np.random.default_rng(0).normal(size=(200, 2)), pd.DataFrame({"cell": ["t", "b"] * 100, "day": [1, 2] * 100})
    options = BRIEF | {"max_steps": 5}
    as_list, as_table = (IFlow(**options).fit(x, v) for v in (list(u.itertuples(index=False, name=None)), u))
    np.testing.assert_array_equal(as_list.transform(x), as_table.transform(x))
    names, numbers = (IFlow(**options).fit(x, v) for v in (["t", "b"] * 100, [1, 0] * 100))
    np.testing.assert_array_equal(names.transform(x), numbers.transform(x))


def test_a_bent_surface_is_straightened(surface):
    z, x, _, model = surface
    found = model.transform(x)
    assert (model.columns_, found.shape) == (3, (3000, 2))
    assert mcc(z, found) > 0.98
    back = model.inverse_transform(found)
    assert np.mean((x - back) ** 2) < 0.01 * x.var()
    np.testing.assert_allclose(model.transform(back), found, atol=1e-3)
    linear = SegmentUnmixing(2, random_state=0).fit(x, np.arange(3000) % 8)
    assert mcc(z, linear.transform(x)) < 0.9


@pytest.mark.parametrize("kind", ["segments", "surface"])
def test_latents_have_unit_variance(kind, request):
    _, x, _, model = request.getfixturevalue(kind)
    np.testing.assert_allclose(model.transform(x).std(0), 1, atol=0.03)


def test_the_inverse_is_exact(segments):
    _, x, u, model = segments
    far = np.r_[x, 100 * x[:5]]
    np.testing.assert_allclose(model.inverse_transform(model.transform(far)), far, rtol=1e-9, atol=1e-6)
    dependent = np.c_[x, x @ [1.0, 2.0]]
    wide = IFlow(**BRIEF).fit(dependent, u)
    assert wide.transform(dependent).shape == (4000, 2)
    np.testing.assert_allclose(wide.inverse_transform(wide.transform(dependent)), dependent, atol=1e-6)


@pytest.mark.parametrize("n_latents", [2, 4])
def test_the_kept_flow_is_one_of_the_restarts(n_latents):
    """Be the rows straightened first, by each restart in its own way, or not."""
    _, x, u = bowl(0)
    options = BRIEF | {"n_restarts": 3, "max_steps": 30}
    model = IFlow(n_latents, **options).fit(x, u)
    every, z = IFlow(n_latents, **options).latents_of_restarts(x, u), model.transform(x)
    assert every.shape == (3, 3000, n_latents)
    np.testing.assert_allclose(every.std(1), 1, atol=0.03)
    assert sorted(np.abs(every - z).max((1, 2)) < 2e-3) == [False, False, True]
    assert mcc(every[0], every[1]) == pytest.approx(model.stability_.pairwise[0, 1], abs=0.03)


# -- likelihood ------------------------------------------------------------------------


def short(family, prior):
    """A flow of two columns far from affine, hardly trained."""
    rng, u = np.random.default_rng(0), np.arange(600) % 3
    z = (rng.laplace if family == "laplace" else rng.normal)(size=(600, 2)) * np.array([[1, 2], [2, 1], [1, 1]])[u]
    z = z + (u[:, None] if family == "gaussian" else 0)
    x = mixed(z, rng)
    return x, u, IFlow(**BRIEF, family=family, prior=prior).fit(x, u)


@pytest.mark.parametrize("prior", ["table", "net"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_likelihood_integrates_to_one_given_u_and_without(family, prior):
    x, _, model = short(family, prior)
    a, b = (np.linspace(c.mean() - 14 * c.std(), c.mean() + 14 * c.std(), 401) for c in x.T)
    grid = np.stack(np.meshgrid(a, b, indexing="ij"), -1).reshape(-1, 2)
    for u in (np.full(len(grid), 1), None):
        density = np.exp(model.score_samples(grid, u)).reshape(401, 401)
        assert np.trapezoid(np.trapezoid(density, b), a) == pytest.approx(1, abs=0.01)


def by_hand(model, x, u):
    """Log p(x | u) of the whole map from x to latents and what is left in standard deviations, by its Jacobian."""
    module, n, m = copy.deepcopy(model.module_).double(), model.n_used_, model.columns_
    mean, scale, vectors, narrow = map(torch.as_tensor, (model.mean_, model.scale_, model.vectors_, model.rest_scale_))

    def whole(row):
        y = (row - mean) / scale @ vectors
        parts = [y[m:] / narrow]
        y = y[None, None, :m]
        if module.straight is not None:
            y = module.straight(y)[0]
            parts.append(y[0, 0, n:] / module.log_rest.exp()[0, 0])
        return torch.cat([module.unmix.flow(y[..., :n])[0][0, 0], *parts])

    rows = torch.as_tensor(x)
    found = np.stack([whole(row).detach().numpy() for row in rows])
    jacobians = torch.stack([torch.autograd.functional.jacobian(whole, row) for row in rows])
    prior = module.unmix.prior
    unit = prior.log_unit[0].exp().detach().numpy()
    means = 0.0 if prior.means is None else (prior.means[0].detach().numpy()[u] - prior.shift[0].numpy()) / unit
    scales = prior.log_scales[0].exp().detach().numpy()[u] / unit
    law = laplace if model.family_ == "laplace" else norm
    log_p = law.logpdf(found[:, :n], means, scales).sum(1) + norm.logpdf(found[:, n:]).sum(1)
    return log_p + torch.linalg.slogdet(jacobians)[1].numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_likelihood_is_that_of_the_map(family):
    x, u, model = short(family, "table")
    np.testing.assert_allclose(model.score_samples(x[:40], u[:40]), by_hand(model, x[:40], u[:40]), atol=1e-8)


def test_the_likelihood_of_a_surface_is_that_of_the_map(surface):
    """With what the first flow leaves, and with components too narrow to go through it."""
    _, x, u, model = surface
    assert model.rest_scale_.shape == (1,)
    near = x[:40] + 0.01 * np.random.default_rng(0).normal(size=(40, 4))
    np.testing.assert_allclose(model.score_samples(near, u[:40]), by_hand(model, near, u[:40]), atol=1e-6)


def test_without_u_it_is_the_mixture_over_groups(segments):
    _, x, u, model = segments
    x, u = x[:100], u[:100]
    each = np.stack([model.score_samples(x, np.full(100, g)) for g in range(16)], axis=1)
    np.testing.assert_allclose(model.score_samples(x), logsumexp(each, axis=1, b=model.auxiliary_.weights), atol=1e-9)
    assert model.score(x, u) == pytest.approx(each[np.arange(100), u].mean())
    assert model.score(x) == pytest.approx(model.score_samples(x).mean())


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_other_units_of_the_latents_change_the_prior_by_their_jacobian(family, table):
    """The density of (z - shift) / unit is that of z times the unit; and so again for other units of these."""
    rng = torch.Generator().manual_seed(0)
    prior = PriorGivenU(2, 3, family, 4, table=table, rng=rng).double()

    def draw(*shape):
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    with torch.no_grad():
        for p in prior.parameters():
            p.add_(0.2 * draw(*p.shape))
    u = torch.randint(4, (2, 5), generator=rng) if table else draw(2, 5, 4)
    z = draw(2, 5, 3)
    expected = prior.log_density(z, *prior(u))
    for _ in range(2):
        shift, unit = draw(2, 3) * (family == "gaussian"), draw(2, 3).exp()
        prior.rescale(shift, unit)
        z, expected = (z - shift[:, None]) / unit[:, None], expected + unit.log().sum(1, keepdim=True)
        torch.testing.assert_close(prior.log_density(z, *prior(u)), expected, rtol=0, atol=1e-9)


# -- draws ----------------------------------------------------------------------------


def test_draws_follow_the_law_of_their_group(segments):
    _, x, u, model = segments
    z = np.stack([model.transform(model.sample(3000, u=g, random_state=g)) for g in range(16)])
    np.testing.assert_allclose(z.std(1), model.conditional_prior_.scales, rtol=0.25)
    np.testing.assert_allclose(z.mean(1), 0, atol=0.1)
    assert np.abs([np.corrcoef(rows.T)[0, 1] for rows in z]).max() < 0.08
    np.testing.assert_allclose(model.transform(model.sample(20_000, random_state=0)).std(0), 1, atol=0.1)
    for g in range(3):
        drawn, rows = model.sample(20_000, u=g, random_state=0), x[u == g]
        np.testing.assert_allclose(np.cov(drawn.T), np.cov(rows.T), atol=0.3 * rows.var(0).max())
    each, same = model.sample(3, u=[1, 1, 2], random_state=0), model.sample(3, u=1, random_state=0)
    np.testing.assert_array_equal(each[:2], same[:2])
    assert not np.array_equal(each[2], same[2])
    latents = model.sample_latents(50, u=3, random_state=0)
    np.testing.assert_allclose(model.transform(model.sample(50, u=3, random_state=0)), latents, atol=1e-8)
    assert model.sample(0).shape == (0, 2)


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_draws_have_the_shape_of_their_family(family):
    _, _, model = short(family, "table")
    z = model.transform(model.sample(40_000, u=1, random_state=0))
    np.testing.assert_allclose(z.mean(0), 0 if family == "laplace" else model.conditional_prior_.means[1], atol=0.15)
    z = (z - z.mean(0)) / z.std(0)
    np.testing.assert_allclose((z**4).mean(0), 6 if family == "laplace" else 3, rtol=0.1)


def test_draws_of_a_surface_have_the_width_of_the_rows(surface):
    """Also across it, and in the components that no flow sees."""
    _, x, _, model = surface
    drawn = model.sample(20_000, random_state=0)
    np.testing.assert_allclose(drawn.mean(0) / x.std(0), x.mean(0) / x.std(0), atol=0.15)
    np.testing.assert_allclose(drawn.std(0), x.std(0), rtol=0.15)
    assert np.std(drawn @ [1, -1, 1, -1]) == pytest.approx(0.003, rel=0.1)


def test_draws_for_one_value_of_several_columns(columns):
    _, _, u, model = columns
    low, high = (model.transform(model.sample(4000, u=("t", t), random_state=0)).std(0) for t in (0.1, 0.6))
    assert (np.abs(np.log(high / low)) > 0.2).any()
    assert model.sample(2, u=u[:2], random_state=0).shape == (2, 2)


# -- the certificate --------------------------------------------------------------------


def test_changing_variances_are_certified(segments):
    z, x, u, model = segments
    certificate = model.certificate_
    assert certificate.level == certificate.if_undecided_hold == Level.PS
    assert certificate.estimated
    assert [certificate[name].verdict for name in ("agreement", "values", "1.iii")] == ["holds"] * 3
    assert model.conditional_prior_.family == "variance"
    assert model.conditional_prior_.means.shape == (16, 2)
    order = np.abs(np.corrcoef(z.T, model.transform(x).T)[:2, 2:]).argmax(1)
    true = np.stack([z[u == g].std(0) for g in range(16)]) / z.std(0)
    np.testing.assert_allclose(model.conditional_prior_.scales[:, order], true, rtol=0.15)


def test_on_a_surface_the_noise_across_it_is_a_premise(surface):
    certificate = surface[3].certificate_
    assert certificate.level == Level.PS
    assert certificate["1.i"].verdict == "inconclusive"
    assert "Assumed" in certificate["1.i"].sentence


@pytest.mark.parametrize("proportional", [False, True])
def test_a_u_that_tells_nothing_apart_is_not_certified(proportional):
    """It changes nothing, or the variances of both latents alike."""
    rng, u = np.random.default_rng(1), np.arange(4000) % 16
    scales = rng.uniform(0.5, 3, size=(16, 1)) if proportional else np.ones((16, 1))
    x = mixed(rng.normal(size=(4000, 2)) * scales[u], rng)
    certificate = IFlow(**QUICK).fit(x, u).certificate_
    assert certificate.level == Level.NONE
    assert certificate["1.iii"].verdict != "holds"
    assert proportional or certificate["1.iii"].verdict == "fails"


@pytest.mark.parametrize(("family", "missing"), [("variance", 1), ("gaussian", 3)])
def test_too_few_values_of_u(family, missing):
    s = make_segments(1000, segments=2, n=2, random_state=0)
    certificate = IFlow(**BRIEF | {"n_restarts": 2}, family=family).fit(s.x, s.u).certificate_
    assert certificate.level == Level.NONE
    assert certificate["values"].verdict == "fails"
    assert f"nk + 1 = {2 + missing} are needed: {missing} more." in certificate["values"].sentence


def test_restarts_that_disagree_are_not_certified(segments):
    model = copy.copy(segments[3])
    for score, status, if_undecided_hold in ((0.5, "fails", Level.NONE), (0.93, "inconclusive", Level.PS)):
        model.stability_ = Stability(np.array([[1, score], [score, 1]]))
        certificate = model.certificate_
        assert (certificate.level, certificate.if_undecided_hold) == (Level.NONE, if_undecided_hold)
        assert certificate["agreement"].verdict == status
        assert f"agree at {score:.2f}" in certificate["agreement"].sentence
    model.stability_ = Stability(np.ones((1, 1)))
    assert model.certificate_.level == Level.NONE
    assert "one restart only" in model.certificate_["agreement"].sentence


def test_values_with_too_few_rows_are_left_out_of_the_law():
    """Twelve values with many rows each, two with five; and no law at all where every value has its own row."""
    s = make_segments(1200, segments=12, n=2, random_state=0)
    u = np.where(np.arange(1200) < 10, 100 + np.arange(1200) % 2, s.u)
    model = IFlow(**BRIEF).fit(s.x, u)
    assert model.auxiliary_.n_groups == 14
    assert model.conditional_prior_.means.shape == (12, 2)
    alone = IFlow(**BRIEF | {"max_steps": 5}, u_types="categorical").fit(s.x[:200], np.arange(200))
    assert alone.conditional_prior_ is None
    assert alone.certificate_.level == Level.NONE
    assert alone.certificate_["values"].verdict == "fails"
    assert np.isfinite(alone.score(s.x[:200], np.arange(200)))


# -- files and errors --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["surface", "columns"])
def test_a_saved_model_comes_back(kind, request, tmp_path):
    _, x, u, model = request.getfixturevalue(kind)
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu")
    np.testing.assert_array_equal(again.score_samples(x, u), model.score_samples(x, u))
    np.testing.assert_array_equal(again.inverse_transform(x[:, :2]), model.inverse_transform(x[:, :2]))
    value = 3 if kind == "surface" else ("nk", 0.5)
    np.testing.assert_array_equal(again.sample(4, value, random_state=0), model.sample(4, value, random_state=0))
    assert again.auxiliary_.labels == model.auxiliary_.labels
    for name in ("means", "scales", "weights", "counts", "bootstrap"):
        np.testing.assert_array_equal(getattr(again.conditional_prior_, name), getattr(model.conditional_prior_, name))
    assert str(again.certificate_) == str(model.certificate_)


@pytest.mark.parametrize("seed", range(2))
def test_no_value_of_u_is_held_out_altogether(seed):
    """One row alone has a value: it is trained on, and known later."""
    model = IFlow(**BRIEF | {"max_steps": 5, "random_state": seed})
    x, row = np.random.default_rng(seed).normal(size=(150, 2)), hold_out(150, model._seed())[1][0]
    model.fit(x, np.where(np.arange(150) == row, "rare", "often"))
    assert model.auxiliary_.labels == ("often", "rare")
    assert np.isfinite(model.score(x[:1], ["rare"]))


@pytest.mark.parametrize(
    ("options", "u", "words"),
    [
        ({}, None, "requires y to be passed.*Pass u as y"),
        ({}, np.arange(7), "X has 300, u has 7"),
        ({}, np.zeros(300), "at least two distinct values"),
        ({}, np.where(np.arange(300) == 5, np.nan, 1.0), "missing, NaN or infinite, the first in row 5"),
        ({"n_latents": 4}, "own", "n_latents=4, rank=3, n_features=3"),
        ({"family": "cauchy"}, "own", "'family' parameter of IFlow must be 'auto' or one of"),
        ({"prior": "tree"}, "own", "'prior' parameter of IFlow must be 'auto', 'table' or 'net'"),
        ({"u_types": 3}, "own", "'kinds' parameter of IFlow must be one of"),
        ({"u_types": ["auto", "auto"]}, "own", r"each of the 1 column\(s\)"),
        ({"groups": 1}, "own", "'groups' parameter of IFlow must be an integer >= 2 or None. Got 1"),
        ({"depth": 1}, "own", "'depth' parameter of IFlow must be an integer >= 2"),
        ({"max_steps": 0}, "own", "'max_steps' parameter of IFlow must be an integer >= 1"),
        ({"batch_size": 1}, "own", "'batch_size' parameter of IFlow must be an integer >= 2"),
        ({"learning_rate": 0.0}, "own", "'learning_rate' parameter of IFlow must be a number > 0"),
        ({"family": "gaussian", "u_types": "categorical"}, np.arange(300), "300 groups leave too few.*'variance'"),
    ],
)
def test_bad_input_gets_one_clear_error(options, u, words):
    x = np.random.default_rng(0).normal(size=(300, 3))
    with pytest.raises(ValueError, match=words):
        IFlow(**BRIEF | options).fit(x, np.arange(300) % 3 if isinstance(u, str) else u)


@pytest.mark.parametrize("prior", ["table", "net"])
def test_new_values_of_u_are_named(prior):
    x, _, model = short("variance", prior)
    with pytest.raises(DataError, match="values of u that no training row had: 77"):
        model.score_samples(x[:2], [1, 77])
    with pytest.raises(DataError, match="values of u that no training row had: 77"):
        model.sample(2, u=77)
    with pytest.raises(DataError, match="X has 2, u has 3"):
        model.score(x[:2], [1, 2, 0])
    with pytest.raises(DataError, match=r"one for each of the 3 rows\. Got 2 rows"):
        model.sample(3, u=[1, 2])
