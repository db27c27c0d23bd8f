"""Densities against torch.distributions, closed forms and sums to one; draws against their moments and gradients."""

import math

import pytest
import torch
import torch.distributions as D

from identifiable.distributions import densities as dn

SHAPE = (5, 3)


@pytest.fixture(params=[0, 1, 2])
def g(request):
    return torch.Generator().manual_seed(request.param)


def rand(g, *shape):
    return torch.randn(shape or SHAPE, generator=g, dtype=torch.float64)


@pytest.mark.parametrize(("ours", "theirs"), [(dn.log_normal, D.Normal), (dn.log_laplace, D.Laplace)])
def test_location_scale_log_densities(g, ours, theirs):
    x, mean, log_scale = rand(g), rand(g), rand(g)
    torch.testing.assert_close(ours(x, mean, log_scale), theirs(mean, log_scale.exp()).log_prob(x))


def test_log_bernoulli(g):
    x, logits = (rand(g) > 0).double(), 10 * rand(g)
    torch.testing.assert_close(dn.log_bernoulli(x, logits), D.Bernoulli(logits=logits).log_prob(x))


def test_log_bernoulli_does_not_overflow():
    value = dn.log_bernoulli(torch.tensor([0.0, 1.0]), torch.tensor([200.0, 200.0]))
    torch.testing.assert_close(value, torch.tensor([-200.0, 0.0]))


def test_log_categorical(g):
    logits, index = rand(g, 5, 4), torch.tensor([0, 3, 1, 1, 2])
    torch.testing.assert_close(dn.log_categorical(index, logits), D.Categorical(logits=logits).log_prob(index))
    torch.testing.assert_close(dn.log_categorical(index, logits[0]), D.Categorical(logits=logits[0]).log_prob(index))


@pytest.mark.parametrize("log_scale", [-8.0, -3.0, 0.0, 4.0])
@pytest.mark.parametrize("levels", [2, 32, 256])
def test_discretised_logistic_sums_to_one(log_scale, levels):
    pixels = torch.arange(levels, dtype=torch.float64) / (levels - 1)
    mean = torch.tensor([-0.2, 0.0, 0.37, 1.0], dtype=torch.float64)[:, None]
    log_p = dn.log_discretised_logistic(pixels, mean, torch.tensor(log_scale, dtype=torch.float64), levels=levels)
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(4, dtype=torch.float64))


def test_discretised_logistic_is_the_difference_of_the_distribution_function():
    x, mean, s = torch.tensor(0.4, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64), 0.1
    h = 0.5 / 255
    expected = torch.sigmoid((x + h - mean) / s) - torch.sigmoid((x - h - mean) / s)
    log_scale = torch.tensor(math.log(s), dtype=torch.float64)
    torch.testing.assert_close(dn.log_discretised_logistic(x, mean, log_scale).exp(), expected)


def test_discretised_logistic_stays_finite_far_out():
    value = dn.log_discretised_logistic(torch.tensor(0.5), torch.tensor(40.0), torch.tensor(-5.0))
    assert torch.isfinite(value)


def test_log_mixture(g):
    x, logits, means = rand(g, 7, 3), rand(g, 4), rand(g, 4, 3)
    tril = torch.linalg.cholesky(torch.eye(3, dtype=torch.float64) + (a := rand(g, 4, 3, 3)) @ a.mT)
    theirs = D.MixtureSameFamily(D.Categorical(logits=logits), D.MultivariateNormal(means, scale_tril=tril))
    torch.testing.assert_close(dn.log_mixture(x, logits, means, tril), theirs.log_prob(x))


def test_log_mixture_broadcasts_over_members(g):
    x, logits, means = rand(g, 2, 7, 3), rand(g, 2, 1, 4), rand(g, 2, 1, 4, 3)
    tril = torch.diag_embed(rand(g, 2, 1, 4, 3).exp())
    both = dn.log_mixture(x, logits, means, tril)
    for r in range(2):
        torch.testing.assert_close(both[r], dn.log_mixture(x[r], logits[r, 0], means[r, 0], tril[r, 0]))


def test_diagonal_mixture_is_a_mixture(g):
    x, logits, means, log_scales = rand(g, 7, 3), rand(g, 4), rand(g, 4, 3), rand(g, 4, 3)
    full = dn.log_mixture(x, logits, means, torch.diag_embed(log_scales.exp()))
    torch.testing.assert_close(dn.log_diagonal_mixture(x, logits, means, log_scales), full)


@pytest.mark.parametrize(("ours", "theirs"), [(dn.kl_normal, D.Normal), (dn.kl_laplace, D.Laplace)])
def test_location_scale_divergences(g, ours, theirs):
    m, s, n, t = (rand(g) for _ in range(4))
    torch.testing.assert_close(ours(m, s, n, t), D.kl_divergence(theirs(m, s.exp()), theirs(n, t.exp())))
    torch.testing.assert_close(ours(m, s, m, s), torch.zeros_like(m), atol=1e-12, rtol=0)


def test_kl_normal_defaults_to_the_standard_prior(g):
    m, s = rand(g), rand(g)
    torch.testing.assert_close(dn.kl_normal(m, s), dn.kl_normal(m, s, torch.zeros_like(m), torch.zeros_like(s)))


@pytest.mark.parametrize(("ours", "theirs"), [(dn.kl_bernoulli, D.Bernoulli), (dn.kl_categorical, D.Categorical)])
def test_discrete_divergences(g, ours, theirs):
    a, b = rand(g), rand(g)
    torch.testing.assert_close(ours(a, b), D.kl_divergence(theirs(logits=a), theirs(logits=b)))


@pytest.mark.parametrize(("draw", "law"), [(dn.draw_normal, D.Normal), (dn.draw_laplace, D.Laplace)])
def test_draws_have_the_right_law_and_gradient(g, draw, law):
    mean = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    log_scale = torch.tensor([0.3, -1.0], dtype=torch.float64, requires_grad=True)
    x = draw(mean.expand(200_000, 2), log_scale, g)
    target = law(mean, log_scale.exp())
    torch.testing.assert_close(x.mean(0), target.mean, atol=0.02, rtol=0)
    torch.testing.assert_close(x.var(0), target.variance, atol=0.05, rtol=0.02)
    x.mean(0).sum().backward()
    torch.testing.assert_close(mean.grad, torch.ones(2, dtype=torch.float64))
    noise = (x - mean).mean(0).detach()  # d mean(x) / d log_scale is the mean of scale * noise
    torch.testing.assert_close(log_scale.grad, noise)


def test_relaxed_categorical_lies_on_the_simplex_and_hardens(g):
    logits = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    soft = dn.draw_relaxed_categorical(logits.expand(50_000, 3), 0.01, g)
    torch.testing.assert_close(soft.sum(-1), torch.ones(50_000, dtype=torch.float64))
    torch.testing.assert_close(soft.mean(0), torch.softmax(logits, 0), atol=0.01, rtol=0)


def test_discrete_draws_have_the_right_frequencies(g):
    logits = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64)
    counts = torch.bincount(dn.draw_categorical(logits.expand(100_000, 3), g), minlength=3) / 100_000
    torch.testing.assert_close(counts.double(), torch.softmax(logits, 0), atol=0.01, rtol=0)
    coin = dn.draw_bernoulli(torch.full((100_000,), 1.0), g)
    assert coin.mean().item() == pytest.approx(torch.sigmoid(torch.tensor(1.0)).item(), abs=0.01)


def test_draw_mixture_has_the_components_it_says(g):
    logits = torch.tensor([0.0, 1.0], dtype=torch.float64)
    means = torch.tensor([[0.0, 0.0], [5.0, 5.0]], dtype=torch.float64)
    tril = torch.tensor([[[1.0, 0.0], [0.8, 0.6]], [[0.1, 0.0], [0.0, 0.1]]], dtype=torch.float64)
    x, j = dn.draw_mixture(100_000, logits, means, tril, g)
    assert (j == 1).double().mean().item() == pytest.approx(torch.softmax(logits, 0)[1].item(), abs=0.01)
    torch.testing.assert_close(x[j == 0].T.cov(), tril[0] @ tril[0].T, atol=0.03, rtol=0)
    torch.testing.assert_close(x[j == 1].mean(0), means[1], atol=0.01, rtol=0)
