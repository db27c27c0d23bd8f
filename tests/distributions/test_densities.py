"""Densities and divergences against torch.distributions, closed forms and sums to one; samples against moments."""

import math

import pytest
import torch
import torch.distributions as D

from identifiable.distributions import densities as dn


@pytest.fixture(params=[0, 1, 2])
def g(request):
    return torch.Generator().manual_seed(request.param)


def rand(g, *shape):
    return torch.randn(shape or (5, 3), generator=g, dtype=torch.float64)


@pytest.mark.parametrize(("ours", "theirs"), [(dn.log_normal, D.Normal), (dn.log_laplace, D.Laplace)])
def test_location_scale_log_densities(g, ours, theirs):
    x, mean, log_scale = rand(g), rand(g), rand(g)
    torch.testing.assert_close(ours(x, mean, log_scale), theirs(mean, log_scale.exp()).log_prob(x))


def test_log_bernoulli(g):
    x, logits = (rand(g) > 0).double(), 10 * rand(g)
    torch.testing.assert_close(dn.log_bernoulli(x, logits), D.Bernoulli(logits=logits).log_prob(x))
    extreme = dn.log_bernoulli(torch.tensor([0.0, 1.0]), torch.tensor([200.0, 200.0]))
    torch.testing.assert_close(extreme, torch.tensor([-200.0, 0.0]))


@pytest.mark.parametrize("log_scale", [-8.0, -3.0, 0.0, 4.0])
@pytest.mark.parametrize("levels", [2, 32, 256])
def test_discretised_logistic_sums_to_one(log_scale, levels):
    pixels = torch.arange(levels, dtype=torch.float64) / (levels - 1)
    mean = torch.tensor([-0.2, 0.0, 0.37, 1.0], dtype=torch.float64)[:, None]
    log_p = dn.log_discretised_logistic(pixels, mean, torch.tensor(log_scale, dtype=torch.float64), levels=levels)
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(4, dtype=torch.float64))


def test_discretised_logistic_is_a_difference_of_distribution_functions():
    x, mean, s = torch.tensor(0.4, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64), 0.1
    h = 0.5 / 255
    expected = torch.sigmoid((x + h - mean) / s) - torch.sigmoid((x - h - mean) / s)
    log_scale = torch.tensor(math.log(s), dtype=torch.float64)
    torch.testing.assert_close(dn.log_discretised_logistic(x, mean, log_scale).exp(), expected)


def test_discretised_logistic_is_finite_far_from_the_mean():
    value = dn.log_discretised_logistic(torch.tensor(0.5), torch.tensor(40.0), torch.tensor(-5.0))
    assert torch.isfinite(value)


def test_kl_normal(g):
    m, s, n, t = (rand(g) for _ in range(4))
    expected = D.kl_divergence(D.Normal(m, s.exp()), D.Normal(n, t.exp()))
    torch.testing.assert_close(dn.kl_normal(m, s, n, t), expected)
    torch.testing.assert_close(dn.kl_normal(m, s), dn.kl_normal(m, s, torch.zeros_like(m), torch.zeros_like(s)))


def test_kl_categorical(g):
    a, b = rand(g), rand(g)
    expected = D.kl_divergence(D.Categorical(logits=a), D.Categorical(logits=b))
    torch.testing.assert_close(dn.kl_categorical(a, b), expected)


def test_relaxed_categorical_is_on_the_simplex_and_nearly_one_hot_at_low_temperature(g):
    logits = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    soft = dn.draw_relaxed_categorical(logits.expand(50_000, 3), 0.01, g)
    torch.testing.assert_close(soft.sum(-1), torch.ones(50_000, dtype=torch.float64))
    torch.testing.assert_close(soft.mean(0), torch.softmax(logits, 0), atol=0.01, rtol=0)
    assert torch.autograd.grad(soft[:, 0].sum(), logits)[0].abs().min() > 0
