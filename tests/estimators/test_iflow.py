"""IFlow on mixtures of known latents, its likelihood against densities by hand, and its certificate."""

import copy
import functools

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import laplace, norm

from identifiable import IFlow, Level, SegmentUnmixing
from identifiable.data import make_segments
from identifiable.estimators.given_u import FAMILIES
from identifiable.metrics import mcc

QUICK = {"n_restarts": 2, "max_steps": 300, "depth": 6, "batch_size": 256, "random_state": 0, "verbose": 0}
BRIEF = QUICK | {"n_restarts": 1, "max_steps": 40, "depth": 4}

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")


def mixed(z, rng):
    """Two latents, each of unit variance, through a rotation, tanh(h) + .1 h, and a rotation."""
    first, second = np.linalg.qr(rng.normal(size=(2, 2, 2)))[0]
    h = z / z.std(0) @ first
    return (np.tanh(h) + 0.1 * h) @ second


@functools.cache
def segments_of(seed):
    s = make_segments(4000, segments=16, n=2, random_state=seed)
    return s, IFlow(**QUICK).fit(s.x, s.u)


@pytest.fixture(scope="module")
def segments():
    s, model = segments_of(0)
    return s.z, s.x, s.u, model


@pytest.fixture(scope="module")
def surface():
    """Latents (3000, 2) on a bent surface in four columns, the last of them nearly a sum of the others."""
    rng, u = np.random.default_rng(0), np.arange(3000) % 8
    z = rng.normal(size=(3000, 2)) * rng.uniform(0.5, 2, size=(8, 2))[u]
    z = z / z.std(0)
    x = np.c_[z, 0.7 * np.log(np.cosh(z.sum(1)))]
    x = np.c_[x, x @ [1, -1, 1] + 0.003 * rng.normal(size=3000)]
    return z, x, u, IFlow(2, **QUICK | {"max_steps": 600}).fit(x, u)


@functools.cache
def short(family):
    """A flow of two columns far from affine, hardly trained."""
    rng, u = np.random.default_rng(0), np.arange(600) % 3
    z = (rng.laplace if family == "laplace" else rng.normal)(size=(600, 2)) * np.array([[1, 2], [2, 1], [1, 1]])[u]
    x = mixed(z + (u[:, None] if family == "gaussian" else 0), rng)
    return x, u, IFlow(**BRIEF, family=family).fit(x, u)


def linear_mcc(z, x, u):
    return mcc(z, SegmentUnmixing(random_state=0).fit(x, u).transform(x))


# -- recovery -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_segments_are_recovered(seed):
    """The published distribution and mixing; new rows are recovered and explained as well."""
    s, model = segments_of(seed)
    fresh = s.source.sample(2000, random_state=seed + 100)
    linear = SegmentUnmixing(random_state=0).fit(s.x, s.u)
    recovered = mcc(fresh.z, model.transform(fresh.x))
    assert recovered > max(0.98, mcc(fresh.z, linear.transform(fresh.x)) + 0.05)
    assert model.score(fresh.x, fresh.u) > linear.score(fresh.x, fresh.u) + 0.1
    assert model.score(fresh.x, fresh.u) > model.score(fresh.x)
    assert (model.family_, model.table_, model.fit_status_) == ("variance", True, "stable")


def test_changing_means_are_recovered():
    s = make_segments(4000, segments=16, n=2, centred=False, random_state=0)
    model = IFlow(**QUICK | {"max_steps": 500, "depth": 8}).fit(s.x, s.u)
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


def test_variances_that_change_with_time_are_learnt_by_a_net():
    rng = np.random.default_rng(0)
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
    drawn = np.stack([model.sample_latents(500, u=v, random_state=0).std(0)[order] for v in grid])
    assert (np.corrcoef(np.log(drawn).T, np.log(scales(grid)).T)[[0, 1], [2, 3]] > 0.9).all()


def test_a_bent_surface_is_straightened(surface):
    z, x, u, model = surface
    found = model.transform(x)
    assert (model.coordinates_.n, found.shape) == (3, (3000, 2))
    assert mcc(z, found) > 0.98
    back = model.inverse_transform(found)
    assert np.mean((x - back) ** 2) < 0.01 * x.var()
    np.testing.assert_allclose(model.transform(back), found, atol=1e-3)
    assert mcc(z, SegmentUnmixing(2, random_state=0).fit(x, u).transform(x)) < 0.9


@pytest.mark.parametrize("kind", ["segments", "surface"])
def test_latents_of_every_restart_have_unit_variance(kind, request):
    _, x, _, model = request.getfixturevalue(kind)
    restarts = model.latents_of_restarts(x)
    np.testing.assert_allclose(restarts.std(1), 1, atol=0.03)
    assert mcc(restarts[0], restarts[1]) == pytest.approx(model.stability_.pairwise[0, 1], abs=0.03)


def test_the_inverse_is_exact(segments):
    _, x, u, model = segments
    far = np.r_[x, 100 * x[:5]]
    np.testing.assert_allclose(model.inverse_transform(model.transform(far)), far, rtol=1e-9, atol=1e-6)
    dependent = np.c_[x, x @ [1.0, 2.0]]
    wide = IFlow(**BRIEF).fit(dependent, u)
    assert wide.transform(dependent).shape == (4000, 2)
    np.testing.assert_allclose(wide.inverse_transform(wide.transform(dependent)), dependent, atol=1e-6)


# -- likelihood ------------------------------------------------------------------------


def by_hand(model, x, u):
    """Log p(x | u) of the whole map from x to latents and residuals in standard deviations, by its Jacobian."""
    module, n, c = copy.deepcopy(model.module_).double(), model.n_used_, model.coordinates_
    mean, scale, basis = map(torch.as_tensor, (c.mean, c.scale, c.basis))

    def whole(row):
        y = (row - mean) / scale @ basis
        parts = [y[c.n :] / torch.as_tensor(c.variances[c.n :]).sqrt()]
        y = y[None, None, : c.n]
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
    log_p = (laplace if model.family_ == "laplace" else norm).logpdf(found[:, :n], means, scales).sum(1)
    return log_p + norm.logpdf(found[:, n:]).sum(1) + torch.linalg.slogdet(jacobians)[1].numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_likelihood_is_that_of_the_map(family):
    x, u, model = short(family)
    np.testing.assert_allclose(model.score_samples(x[:40], u[:40]), by_hand(model, x[:40], u[:40]), atol=1e-8)


def test_the_likelihood_of_a_surface_is_that_of_the_map(surface):
    """It includes the residual of the first flow, and components too narrow to enter it."""
    _, x, u, model = surface
    assert (model.coordinates_.n, model.coordinates_.rank) == (3, 4)
    near = x[:40] + 0.01 * np.random.default_rng(0).normal(size=(40, 4))
    np.testing.assert_allclose(model.score_samples(near, u[:40]), by_hand(model, near, u[:40]), atol=1e-6)


def test_without_u_the_density_is_the_mixture_over_groups(segments):
    _, x, u, model = segments
    x, u = x[:100], u[:100]
    each = np.stack([model.score_samples(x, np.full(100, g)) for g in range(16)], axis=1)
    np.testing.assert_allclose(model.score_samples(x), logsumexp(each, axis=1, b=model.auxiliary_.weights), atol=1e-9)
    assert model.score(x, u) == pytest.approx(each[np.arange(100), u].mean())


# -- samples ----------------------------------------------------------------------------


def test_samples_follow_the_distribution_of_their_group(segments):
    _, x, u, model = segments
    z = np.stack([model.transform(model.sample(2000, u=g, random_state=g)) for g in range(16)])
    np.testing.assert_allclose(z.std(1), model.conditional_prior_.scales, rtol=0.25)
    np.testing.assert_allclose(z.mean(1), 0, atol=0.1)
    assert np.abs([np.corrcoef(rows.T)[0, 1] for rows in z]).max() < 0.1
    np.testing.assert_allclose(model.transform(model.sample(10_000, random_state=0)).std(0), 1, atol=0.1)
    rows = x[u == 0]
    np.testing.assert_allclose(np.cov(model.sample(10_000, 0, 0).T), np.cov(rows.T), atol=0.3 * rows.var(0).max())
    latents = model.sample_latents(50, u=3, random_state=0)
    np.testing.assert_allclose(model.transform(model.sample(50, u=3, random_state=0)), latents, atol=1e-8)


def test_samples_of_a_surface_have_the_width_of_the_rows(surface):
    """Also across it, and in the components that enter no flow."""
    _, x, _, model = surface
    drawn = model.sample(20_000, random_state=0)
    np.testing.assert_allclose(drawn.mean(0) / x.std(0), x.mean(0) / x.std(0), atol=0.15)
    np.testing.assert_allclose(drawn.std(0), x.std(0), rtol=0.15)
    assert np.std(drawn @ [1, -1, 1, -1]) == pytest.approx(0.003, rel=0.1)


# -- certificate and errors ---------------------------------------------------------------


def test_changing_variances_are_certified(segments):
    z, x, u, model = segments
    certificate = model.certificate_
    assert certificate.level == certificate.if_undecided_hold == Level.PS
    assert [certificate[name].verdict for name in ("agreement", "values", "1.iii")] == ["holds"] * 3
    order = np.abs(np.corrcoef(z.T, model.transform(x).T)[:2, 2:]).argmax(1)
    true = np.stack([z[u == g].std(0) for g in range(16)]) / z.std(0)
    np.testing.assert_allclose(model.conditional_prior_.scales[:, order], true, rtol=0.15)


def test_on_a_surface_the_noise_across_it_is_assumed(surface):
    certificate = surface[3].certificate_
    assert (certificate.level, certificate.if_undecided_hold) == (Level.NONE, Level.PS)
    assert certificate["1.i"].verdict == "inconclusive"


@pytest.mark.parametrize("proportional", [False, True])
def test_a_u_that_separates_no_latents_is_not_certified(proportional):
    """It changes nothing, or all variances in proportion."""
    rng, u = np.random.default_rng(1), np.arange(4000) % 16
    scales = rng.uniform(0.5, 3, size=(16, 1)) if proportional else np.ones((16, 1))
    x = mixed(rng.normal(size=(4000, 2)) * scales[u], rng)
    certificate = IFlow(**QUICK | {"max_steps": 100}).fit(x, u).certificate_
    assert certificate.level == Level.NONE
    assert certificate["1.iii"].verdict != "holds"
    assert proportional or certificate["1.iii"].verdict == "fails"


@pytest.mark.parametrize(
    "bad", [{"depth": 1}, {"max_steps": 0}, {"batch_size": 1}, {"learning_rate": 0.0}, {"n_latents": 4}]
)
def test_bad_parameters_are_named(bad):
    x = np.random.default_rng(0).normal(size=(300, 3))
    with pytest.raises(ValueError, match=next(iter(bad))):
        IFlow(**BRIEF | bad).fit(x, np.arange(300) % 3)
