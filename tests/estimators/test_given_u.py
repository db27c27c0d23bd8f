"""The prior given u, and the handling of u, which IFlow and IVAE share."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kurtosis

from identifiable import DataError, IFlow, Level, load, save
from identifiable.arrays import hold_out
from identifiable.data import make_segments
from identifiable.estimators.given_u import FAMILIES, PriorGivenU, half_of_each

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
BRIEF = {"n_restarts": 1, "max_steps": 5, "depth": 2, "batch_size": 64, "random_state": 0, "verbose": 0}


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_prior(family, table):
    prior = PriorGivenU(2, 3, family, 4, table=table, rng=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        for i, p in enumerate(prior.parameters()):
            p.add_(0.2 * noise(*p.shape, seed=i))
    return prior, torch.tensor([[0, 3, 1], [2, 2, 0]]) if table else noise(2, 3, 4)


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_other_units_of_the_latents_change_the_prior_by_their_jacobian(family, table):
    """The density of (z - shift) / unit is that of z times the unit, for one change of units and for two."""
    prior, u = random_prior(family, table)
    z = noise(2, 3, 3)
    expected = prior.log_density(z, *prior(u))
    for seed in range(2):
        shift, unit = noise(2, 3, seed=seed) * (family == "gaussian"), noise(2, 3, seed=seed + 2).exp()
        prior.rescale(shift, unit)
        z, expected = (z - shift[:, None]) / unit[:, None], expected + unit.log().sum(1, keepdim=True)
        torch.testing.assert_close(prior.log_density(z, *prior(u)), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_table_holds_a_distribution_for_each_value(family):
    prior, u = random_prior(family, True)
    z, (mean, log_scale) = noise(2, 3, 3), prior(u)
    assert bool(mean.any()) == (family == "gaussian")
    torch.testing.assert_close(log_scale[0, 1], prior.log_scales[0, 3])
    density = (torch.distributions.Laplace if family == "laplace" else torch.distributions.Normal)(
        mean, log_scale.exp()
    )
    torch.testing.assert_close(prior.log_density(z, mean, log_scale), density.log_prob(z).sum(-1))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_table_starts_at_the_moments_of_its_groups(family):
    """Laplace scales are standard deviations over √2; the variance of a group counts one more row, of variance 1."""
    codes, prior = np.repeat([0, 1], 5000), PriorGivenU(1, 2, family, 2, table=True)
    sd, means = np.array([[1.0, 3.0], [2.0, 0.5]]), np.array([[4.0, 0.0], [0.0, -2.0]]) * (family == "gaussian")
    z = np.random.default_rng(0).normal(size=(1, 10_000, 2)) * sd[codes] + means[codes]
    prior.start_at_moments(z, codes)
    mean, log_scale = prior(torch.tensor([[0, 1]]))
    expected = sd / math.sqrt(2) if family == "laplace" else sd
    np.testing.assert_allclose(log_scale[0].detach().exp(), expected, rtol=0.05)
    np.testing.assert_allclose(mean[0].detach(), means, atol=0.1)
    prior.start_at_moments(np.full((1, 2, 2), 2.0), np.array([0, 1]))
    variance = 1.0 if family == "gaussian" else 5.0
    np.testing.assert_allclose(
        prior(torch.tensor([[0]]))[1].detach().exp() ** 2, variance / (4 if family == "laplace" else 2)
    )


def test_half_of_each_group():
    codes = np.array([0] * 9 + [1] * 4 + [2])
    half = half_of_each(codes, seed=0)
    assert np.bincount(codes[half]).tolist() == [5, 2, 1]
    assert not np.array_equal(half, half_of_each(codes, seed=1))


# -- u ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def columns():
    """U of a category and a number; scales change with both."""
    rng = np.random.default_rng(0)
    u = pd.DataFrame({"cell": np.array(["b", "nk", "t"])[np.arange(900) % 3], "time": rng.uniform(size=900)})
    x = rng.normal(size=(900, 2)) * np.exp(np.c_[2 * u.time, np.arange(900) % 3])
    return x, u, IFlow(**BRIEF | {"max_steps": 60}).fit(x, u)


def test_several_columns_of_u(columns, tmp_path):
    x, u, model = columns
    assert model.auxiliary_.kinds == ("categorical", "continuous")
    assert model.score(x, u) > model.score(x, u[::-1].reset_index(drop=True)) + 0.1
    low, high = (model.sample_latents(4000, u=("t", t), random_state=0).std(0) for t in (0.1, 0.9))
    assert (np.abs(np.log(high / low)) > 0.2).any()
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu")
    np.testing.assert_array_equal(again.sample(4, ("nk", 0.5), 0), model.sample(4, ("nk", 0.5), 0))
    assert again.auxiliary_.labels == model.auxiliary_.labels
    assert str(again.certificate_) == str(model.certificate_)


def test_u_may_be_a_table_or_a_list():
    x, u = np.random.default_rng(0).normal(size=(200, 2)), pd.DataFrame({"cell": ["t", "b"] * 100, "day": [1, 2] * 100})
    for one, other in ((u, list(u.itertuples(index=False, name=None))), (["t", "b"] * 100, [1, 0] * 100)):
        first, second = IFlow(**BRIEF).fit(x, one), IFlow(**BRIEF).fit(x, other)
        np.testing.assert_array_equal(first.transform(x), second.transform(x))


def test_samples_for_one_value_or_one_per_row(columns):
    _, u, model = columns
    each, same = (
        model.sample(3, u=u.iloc[[0, 0, 1]], random_state=0),
        model.sample(3, u=tuple(u.iloc[0]), random_state=0),
    )
    np.testing.assert_array_equal(each[:2], same[:2])
    assert not np.array_equal(each[2], same[2])


@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_latents_have_the_shape_of_their_family(family):
    u = np.arange(600) % 3
    x = np.random.default_rng(0).normal(size=(600, 2)) * (1 + u[:, None]) + u[:, None] * (family == "gaussian")
    model = IFlow(**BRIEF, family=family).fit(x, u)
    z = model.sample_latents(40_000, u=1, random_state=0)
    np.testing.assert_allclose(z.mean(0), model.conditional_prior_.means[1] * (family == "gaussian"), atol=0.15)
    np.testing.assert_allclose(kurtosis(z), 3 if family == "laplace" else 0, atol=0.4)


@pytest.mark.parametrize("seed", range(2))
def test_a_value_of_u_is_never_held_out_entirely(seed):
    """A value that a single row has is trained on, and known later."""
    model = IFlow(**BRIEF | {"random_state": seed})
    x, row = np.random.default_rng(seed).normal(size=(150, 2)), hold_out(150, model._seed())[1][0]
    model.fit(x, np.where(np.arange(150) == row, "rare", "often"))
    assert model.auxiliary_.labels == ("often", "rare")
    assert np.isfinite(model.score(x[:1], ["rare"]))


def test_values_with_too_few_rows_are_left_out_of_the_conditional_prior():
    """Twelve values with many rows each, two with five; none remains where every row has its own value."""
    s = make_segments(1200, segments=12, n=2, random_state=0)
    model = IFlow(**BRIEF).fit(s.x, np.where(np.arange(1200) < 10, 100 + np.arange(1200) % 2, s.u))
    assert model.auxiliary_.n_groups == 14
    assert model.conditional_prior_.means.shape == (12, 2)
    alone = IFlow(**BRIEF, u_types="categorical").fit(s.x[:200], np.arange(200))
    assert alone.conditional_prior_ is None
    assert alone.certificate_.level == Level.NONE
    assert alone.certificate_["values"].verdict == "fails"
    assert np.isfinite(alone.score(s.x[:200], np.arange(200)))


@pytest.mark.parametrize(
    ("options", "u", "word"),
    [
        ({}, None, "requires y"),
        ({}, np.arange(7), "300.* 7"),
        ({}, np.zeros(300), "two distinct"),
        ({}, np.where(np.arange(300) == 5, np.nan, 1.0), "row 5"),
        ({"family": "cauchy"}, None, "family"),
        ({"prior": "tree"}, None, "prior"),
        ({"u_types": 3}, None, "u_types"),
        ({"n_groups": 1}, None, "n_groups"),
        ({"u_types": ["auto", "auto"]}, np.arange(300) % 3, "1 column"),
        ({"family": "gaussian", "u_types": "categorical"}, np.arange(300), "300 groups"),
    ],
)
def test_bad_u_gets_one_clear_error(options, u, word):
    x = np.random.default_rng(0).normal(size=(300, 3))
    with pytest.raises(ValueError, match=word):
        IFlow(**BRIEF | options).fit(x, u)


@pytest.mark.parametrize("prior", ["table", "net"])
def test_new_values_of_u_are_named(prior):
    x, u = np.random.default_rng(0).normal(size=(150, 2)), np.arange(150) % 3
    model = IFlow(**BRIEF, prior=prior).fit(x, u)
    for call in (lambda: model.score_samples(x[:2], [1, 77]), lambda: model.sample(2, u=77)):
        with pytest.raises(DataError, match="77"):
            call()
    for call in (lambda: model.score(x[:2], [1, 2, 0]), lambda: model.sample(3, u=[1, 2])):
        with pytest.raises(DataError, match="3"):
            call()
