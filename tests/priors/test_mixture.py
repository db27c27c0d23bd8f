"""The learnable Gaussian mixture: densities against scipy, changes of units, and EM from made-up clusters."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from identifiable import Mixture
from identifiable.priors.mixture import MixtureBase, split_components

both = pytest.mark.parametrize("diagonal", [False, True])


def mixture(n=3, components=5, seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(components, n, n)) + np.eye(n)
    return Mixture(rng.dirichlet(np.ones(components)), rng.normal(size=(components, n)), roots @ roots.swapaxes(1, 2))


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@both
def test_the_density_is_that_of_the_mixture(diagonal):
    given = [mixture(seed=0), mixture(seed=1)]
    base, z = MixtureBase.of(given, diagonal=diagonal), draw(2, 7, 3)
    for r, one in enumerate(given):
        covariances = one.covariances * np.eye(3) if diagonal else one.covariances
        expected = Mixture(one.weights, one.means, covariances).log_joint(z[r].numpy())
        np.testing.assert_allclose(base(z)[r].detach().numpy(), expected, rtol=1e-4, atol=1e-4)


@both
def test_mixture_returns_what_the_base_started_from(diagonal):
    given = mixture()
    found = MixtureBase.of([given], diagonal=diagonal).mixture()
    order = np.argsort(-given.weights)
    np.testing.assert_allclose(found.weights, given.weights[order], rtol=1e-5)
    np.testing.assert_allclose(found.means, given.means[order], rtol=1e-4, atol=1e-5)
    expected = given.covariances[order] * (np.eye(3) if diagonal else 1)
    np.testing.assert_allclose(found.covariances, expected, rtol=1e-3, atol=1e-3)


@both
def test_rescale_changes_the_density_by_the_jacobian(diagonal):
    base, z = MixtureBase.of([mixture(), mixture(seed=1)], diagonal=diagonal), draw(2, 7, 3)
    scale, shift = torch.tensor([[2.0, 0.5, 1.0], [1.0, 3.0, 0.2]]), draw(2, 3, seed=1)
    before = base(z)
    base.rescale(scale, shift)
    after = base(z * scale[:, None] + shift[:, None])
    torch.testing.assert_close(after, before - scale.log().sum(1)[:, None, None], rtol=1e-3, atol=1e-3)


def test_split_components_keeps_the_distribution():
    small, large = mixture(), split_components(mixture(), 9)
    z = np.random.default_rng(0).normal(size=(20, 3))
    assert len(large.weights) == 9
    np.testing.assert_allclose(logsumexp(large.log_joint(z), 1), logsumexp(small.log_joint(z), 1))


@pytest.mark.parametrize("diagonal", [True, False])
def test_expected_log_joint_is_that_of_monte_carlo(diagonal):
    base = MixtureBase(2, 4, 3, diagonal=diagonal)
    with torch.no_grad():
        for i, parameter in enumerate(base.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=i))
        mean, root = draw(2, 5, 3, seed=5), torch.diag_embed(draw(2, 5, 3, seed=6).exp())
        root = root if diagonal else root + draw(2, 5, 3, 3, seed=8).tril(-1)
        noise = draw(4000, 2, 5, 3, seed=7)
        z = (mean + (root @ noise[..., None])[..., 0]).transpose(0, 1).reshape(2, 20_000, 3)
        covariance = root @ root.mT
        samples = base(z).reshape(2, 4000, 5, 4)
        error = (
            samples.mean(1)
            - base.expected(mean, torch.diagonal(covariance, dim1=-2, dim2=-1) if diagonal else covariance)
        ).abs()
    assert (error < 5.5 * samples.std(1) / 4000**0.5).all()


def clusters(seed, size=300, scale=1.0):
    """Rows around three points, and the points."""
    rng, points = np.random.default_rng(seed), scale * np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 9.0]])
    z = points[rng.integers(0, 3, size)] + scale * rng.normal(size=(size, 2))
    return torch.as_tensor(z, dtype=torch.float32), points


def learnt(z, components, steps, seed=0, tries=1):
    base = MixtureBase(len(z), components, z.shape[-1], diagonal=True)
    base.learn(z, steps=steps, rng=torch.Generator().manual_seed(seed), tries=tries)
    return base


def test_every_member_finds_the_clusters_of_its_rows():
    """With k-means++, nearly always; here 20 members with clusters of different sizes and places."""
    scales = np.linspace(0.1, 5, 20)
    base = learnt(torch.stack([clusters(s, scale=scale)[0] for s, scale in enumerate(scales)]), 3, 60)
    found = 0
    for r, scale in enumerate(scales):
        one, points = base.mixture(r), clusters(r, scale=scale)[1]
        distances = np.abs(one.means[:, None] - points).max(-1)
        variances = np.diagonal(one.covariances, axis1=1, axis2=2) / scale**2
        found += distances.min(0).max() < 0.4 * scale and 0.6 < variances.min() < variances.max() < 1.5
        assert one.weights.sum() == pytest.approx(1)
    assert found >= 18


@pytest.mark.parametrize("seed", range(3))
def test_learning_increases_the_likelihood_and_more_tries_do_not_decrease_it(seed):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(size=(3, 200, 3)), rng.standard_t(2, size=(3, 200, 3)), rng.integers(0, 2, size=(3, 200, 3))
    for z in (torch.as_tensor(v, dtype=torch.float32) for v in rows):
        fits = (learnt(z, 5, steps, seed, tries) for steps, tries in ((0, 1), (60, 1), (60, 3)))
        first, last, best = (torch.logsumexp(fit(z), -1).mean(1) for fit in fits)
        assert (last > first).all()
        assert (best >= last).all()


def test_constant_rows_give_finite_parameters():
    rng = np.random.default_rng(0)
    for rows in (np.ones((60, 3)), np.c_[rng.normal(size=(60, 2)), np.ones(60)], np.repeat(np.eye(3), 20, 0)):
        z = torch.as_tensor(np.stack([rows, rows + 1]), dtype=torch.float32)
        base = learnt(z, 5, 60)
        assert all(parameter.isfinite().all() for parameter in base.parameters())
        assert torch.logsumexp(base(z), -1).isfinite().all()


def test_a_component_of_one_row_restarts_at_the_row_of_lowest_density():
    rng = np.random.default_rng(0)
    z = np.r_[rng.normal(size=(150, 2)), rng.normal(size=(150, 2)) + 6, [[500.0, 500.0]]].astype(np.float32)
    first, second = (learnt(torch.as_tensor(z)[None], 2, steps).mixture() for steps in (0, 1))
    assert (np.abs(first.means - 500).max(1) < 1e-3).sum() == 1  # so far away that k-means++ chooses it
    each = zip(first.weights, first.means, first.covariances, strict=True)
    log_density = logsumexp([np.log(w) + multivariate_normal(m, c).logpdf(z) for w, m, c in each], axis=0)
    lowest = z[np.argsort(log_density)[:2]]
    assert np.abs(second.means[:, None] - lowest).max(-1).min() < 1e-3
    assert (second.means < 400).all()
