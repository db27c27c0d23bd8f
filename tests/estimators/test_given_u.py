"""The prior given u, how u is read, and the certificate of the learnt prior."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import laplace, norm

from autoencoder_helpers import QUICK, rand
from identifiable import IVAE, DataError, IFlow
from identifiable.data import make_segments
from identifiable.estimators.base import Stability
from identifiable.estimators.given_u import FAMILIES, LEAST_SCALE, PriorGivenU, half_of_each
from identifiable.metrics import mcc
from identifiable.theory import Level

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
QUICK = QUICK | {"init": "linear", "max_steps": 5}


@pytest.fixture(scope="module")
def segments():
    return make_segments(600, segments=5, n=2, d=4, noise=0.05, random_state=0)


# -- the prior --------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_table_holds_the_moments_of_each_group(g, family):
    """The rescaled prior has the density of the rescaled latents."""
    prior = PriorGivenU(2, 3, family, 5, table=True).double()
    means, sds = rand(g, 2, 5, 3).numpy(), rand(g, 2, 5, 3).mul(0.5).exp().numpy()
    prior.start(means, sds)
    u, z = torch.tensor([[0, 4, 2], [1, 1, 3]]), rand(g, 2, 3, 3)
    own = np.take_along_axis(means, u.numpy()[..., None], 1) if family == "gaussian" else 0.0
    own_sds = np.take_along_axis(sds, u.numpy()[..., None], 1)
    scales, density = (own_sds / 2**0.5, laplace) if family == "laplace" else (own_sds, norm)
    found = prior.log_density(z, *prior(u)).detach()
    np.testing.assert_allclose(found, density.logpdf(z, own, scales).sum(-1), rtol=1e-6)
    shift, unit = rand(g, 2, 3) * (family == "gaussian"), rand(g, 2, 3).exp()
    prior.rescale(shift, unit)
    rescaled = prior.log_density((z - shift[:, None]) / unit[:, None], *prior(u)).detach()
    torch.testing.assert_close(rescaled, found + unit.log().sum(-1)[:, None])
    prior.start(means, 0 * sds + 1e-9)
    scale = prior(u)[1] + unit.log()[:, None]
    torch.testing.assert_close(scale, torch.full_like(scale, LEAST_SCALE))  # a floor


@pytest.mark.parametrize("family", FAMILIES)
def test_a_table_starts_at_the_moments_of_latents(family):
    """With one extra row of size 1; a Laplace scale is sd / √2."""
    rng, codes = np.random.default_rng(0), np.arange(400) % 4
    latents = rng.normal(size=(2, 400, 3)) * rng.uniform(0.2, 2, size=(4, 3))[codes] + 0.3 * codes[:, None]
    prior = PriorGivenU(2, 3, family, 4, table=True)
    prior.start_at_moments(latents, codes)
    groups = np.stack([latents[:, codes == k] for k in range(4)], 1)  # (R, G, rows, n)
    means = groups.mean(2) if family == "gaussian" else np.zeros((2, 4, 3))
    sd = np.sqrt((((groups - means[:, :, None]) ** 2).sum(2) + 1) / 101)
    mean, log_scale = prior(torch.arange(4).expand(2, -1))
    np.testing.assert_allclose(mean.detach(), means, atol=1e-6)
    np.testing.assert_allclose(log_scale.exp().detach(), sd / (2**0.5 if family == "laplace" else 1), rtol=1e-5)


def test_a_net_has_means_for_gaussian_latents_alone(g):
    u = rand(g, 1, 7, 3).float()
    for family in FAMILIES:
        mean, log_scale = PriorGivenU(1, 2, family, 3, table=False, rng=g)(u)
        assert log_scale.shape == (1, 7, 2)
        assert log_scale.std(1).min() > 0
        assert (mean.std() > 0) == (family == "gaussian")


def test_half_of_each_group():
    codes = np.repeat([0, 1, 2], [10, 5, 1])
    half = half_of_each(codes, 0)
    assert np.bincount(codes[half]).tolist() == [5, 3, 1]
    assert len(np.unique(half)) == 9
    assert not np.array_equal(half, half_of_each(codes, 1))


# -- u ------------------------------------------------------------------------------------------


def test_names_of_groups_do_not_matter(segments):
    names = np.array(list("abcde"))[segments.u]
    by_name, by_number, by_list = (IVAE(**QUICK).fit(segments.x, u) for u in (names, segments.u, names.tolist()))
    z = by_name.transform(segments.x, names)
    np.testing.assert_array_equal(z, by_number.transform(segments.x, segments.u))
    np.testing.assert_array_equal(z, by_list.transform(segments.x, names.tolist()))
    np.testing.assert_array_equal(by_name.sample(3, "c", 0), by_number.sample(3, 2, 0))
    with pytest.raises(DataError, match="'z'"):
        by_name.transform(segments.x[:1], ["z"])
    with pytest.raises(DataError, match="600, u has 2"):
        by_name.transform(segments.x, ["a", "b"])


def test_several_columns_of_u(segments):
    rng = np.random.default_rng(0)
    u = pd.DataFrame({"cell": np.array(list("tb"))[segments.u % 2], "dose": rng.uniform(size=600)})
    model = IVAE(**QUICK).fit(segments.x, u)
    assert not model.table_
    for given in (("b", 0.5), u.iloc[:4], None):
        assert model.sample(4, u=given, random_state=0).shape == (4, 4)
    rows = list(u.itertuples(index=False, name=None))
    by_rows = IVAE(**QUICK).fit(segments.x, rows)
    np.testing.assert_array_equal(by_rows.transform(segments.x), model.transform(segments.x))
    np.testing.assert_array_equal(model.score_samples(segments.x, rows), model.score_samples(segments.x, u))
    table = IVAE(prior="table", n_groups=6, **QUICK).fit(segments.x, u)
    assert table.module_.prior.log_scales.shape == (1, table.auxiliary_.n_groups, 2)


@pytest.mark.parametrize("seed", range(3))
def test_every_group_is_trained_on(segments, seed):
    """Ten groups of a single row each are never held out, and too small for the certificate."""
    rows = np.arange(600)
    u = np.where(rows < 10, rows + 100, segments.u)
    model = IVAE(**QUICK | {"random_state": seed, "max_steps": 1}).fit(segments.x, u)
    split = model._split(segments.x, u)
    assert np.isin(rows[:10], split.train).all()
    assert not np.isin(split.held, split.train).any()
    assert model.conditional_prior_.means.shape == (5, 2)


def test_many_small_groups_leave_no_row_to_hold_out():
    x = np.random.default_rng(0).normal(size=(120, 3))
    split = IVAE(u_types="categorical", **QUICK)._split(x, np.r_[np.arange(110), np.zeros(10)])
    assert len(split.train) == len(split.held) == 120


@pytest.mark.parametrize("rows", [4, 6, 12])
def test_tiny_data(rows):
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(rows, 3)), np.arange(rows) % 2
    model = IVAE(1, **QUICK).fit(x, u)
    assert np.isfinite(model.transform(x, u)).all()
    assert model.certificate_.level == Level.NONE


@pytest.fixture(scope="module")
def linear():
    """Return rows of a linear mixture of two latents whose scales depend on u, and u."""
    rng, u = np.random.default_rng(0), np.arange(3000) % 12
    return rng.normal(size=(3000, 2)) * rng.uniform(0.3, 2, size=(12, 2))[u] @ [[1.0, 0.5], [-0.3, 1.0]], u


def test_the_family_has_means_where_those_of_the_data_change(linear):
    x, u = linear
    centred, shifted = (IVAE(**QUICK).fit(x + shift, u) for shift in (0.0, u[:, None] * [0.3, -0.2]))
    assert (centred.family_, shifted.family_) == ("variance", "gaussian")
    with pytest.raises(DataError, match="family='gaussian'"):
        IVAE(2, family="gaussian", u_types="categorical", **QUICK).fit(x[:9], np.arange(9) % 8)


@pytest.mark.parametrize("u", [None, np.zeros(600)])
def test_at_least_two_values_of_u_are_needed(segments, u):
    with pytest.raises(DataError, match="u"):
        IVAE(**QUICK).fit(segments.x, u)


@pytest.mark.parametrize(
    ("name", "value"),
    [("u_types", "text"), ("u_types", 3), ("n_groups", 1), ("family", "cauchy"), ("prior", "tree")],
)
def test_wrong_parameters_are_refused(segments, name, value):
    with pytest.raises(ValueError, match=f"'{name}' parameter of IVAE"):
        IVAE(**QUICK | {name: value}).fit(segments.x, segments.u)


# -- latents given u, and the certificate -----------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_latents_are_sampled_from_the_prior(segments, family):
    model = IVAE(family=family, **QUICK).fit(segments.x, segments.u)
    mean, log_scale = (v[0].double().detach().numpy() for v in model.module_.prior(torch.arange(5)[None]))
    one = laplace if family == "laplace" else norm
    for u in (0, 3):
        z, expected = model.sample_latents(20_000, u, u), one(mean[u], np.exp(log_scale[u]))
        np.testing.assert_allclose((z.mean(0) - mean[u]) / z.std(0), 0, atol=0.04)
        np.testing.assert_allclose((z < expected.ppf(0.1)).mean(0), 0.1, atol=0.015)
    z = torch.as_tensor(model.sample_latents(20_000, None, 0))[None]
    found = model._log_prior_given(model.module_.prior.double(), z, None)[0].detach().numpy()
    each = [one(m, np.exp(s)).logpdf(z[0]).sum(1) for m, s in zip(mean, log_scale, strict=True)]
    np.testing.assert_allclose(found, logsumexp(each, axis=0, b=model.auxiliary_.weights[:, None]), rtol=1e-5)
    assert found.mean() > each[0].mean()  # groups by their weights
    with pytest.raises(DataError, match="2 rows"):
        model.sample(3, u=[1, 2])


def test_a_net_learns_how_scales_change_with_a_continuous_u():
    def change(t):
        return np.stack([np.sin(2 * np.pi * t), np.cos(2 * np.pi * t)], axis=1)

    rng = np.random.default_rng(0)
    t = rng.uniform(size=2000)
    z = rng.normal(size=(2000, 2)) * np.exp(change(t))
    x = z @ rng.normal(size=(2, 3)) + 0.05 * rng.normal(size=(2000, 3))
    model = IVAE(**QUICK | {"max_steps": 400, "hidden": (16,), "learning_rate": 0.01, "batch_size": 256}).fit(x, t)
    assert not model.table_
    assert mcc(z, model.transform(x)) > 0.97
    grid = np.linspace(0, 1, 50)
    _, learnt = model.module_.prior(torch.as_tensor(model._u_inputs(grid, 50), dtype=torch.float32)[None])
    assert mcc(change(grid), learnt[0].detach().numpy()) > 0.95
    assert model.score(x, t) > model.score(x) + 0.1
    low, high = (model.sample(2000, u=v, random_state=0) @ np.linalg.pinv(x) @ z for v in (0.75, 0.25))
    assert not np.allclose(low.std(0), high.std(0), rtol=0.5)


@pytest.mark.parametrize(("family", "more"), [("variance", 1), ("gaussian", 3)])
def test_the_certificate_counts_missing_values_of_u(family, more):
    s = make_segments(600, segments=2, n=2, d=4, noise=0.05, random_state=0)
    certificate = IVAE(family=family, **QUICK).fit(s.x, s.u).certificate_
    assert certificate.level == Level.NONE
    assert certificate["values"].verdict == "fails"
    assert f"{more} more" in certificate["values"].sentence


def test_nothing_is_certified_with_few_rows_of_each_value():
    x = np.random.default_rng(0).normal(size=(60, 3))
    model = IVAE(family="variance", u_types="categorical", **QUICK).fit(x, np.arange(60) // 5)
    assert model.conditional_prior_ is None
    assert model.certificate_["values"].verdict == "fails"
    assert model.certificate_.level == model.certificate_.if_undecided_hold == Level.NONE


def test_nothing_is_certified_where_restarts_disagree(linear):
    model = IFlow(2, n_restarts=2, max_steps=1, depth=2, random_state=0, verbose=0).fit(*linear)
    levels = {}
    for score in (1.0, 0.5, np.nan):
        model.stability_ = Stability(np.ones((1, 1)) if np.isnan(score) else np.array([[1.0, score], [score, 1.0]]))
        levels[score] = str(model.certificate_.level), str(model.certificate_.if_undecided_hold)
    assert list(levels.values()) == [("PS", "PS"), ("none", "none"), ("none", "PS")]
