"""The noisy pattern model: densities, moments and EM against models whose parameters are known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from identifiable.algorithms.pattern_model import PRICE, Model, Rows, em, grow, maximise, settle

PATTERNS = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1]]).double()


def model(patterns=PATTERNS, noise=0.1):
    rng = torch.Generator().manual_seed(0)
    mixing = torch.eye(3).double() + 0.3 * torch.randn(3, 3, generator=rng).double()
    root = torch.linalg.cholesky(torch.tensor([[1, 0.3, 0], [0.3, 1, 0], [0, 0, 0.5]]).double())
    weights = torch.arange(len(patterns), 0, -1).double()
    return Model(mixing, torch.tensor([1.0, -1, 0]).double(), torch.tensor([1.0, 2, -1]).double(), root,
                 float(np.log(noise)), torch.eye(3).double(), patterns, weights / weights.sum(), -10.0)  # fmt: skip


def sample(m, size, seed=0):
    """Rows and latents of the model."""
    rng = np.random.default_rng(seed)
    pattern = m.patterns.numpy()[rng.choice(len(m.weights), size, p=m.weights.numpy())]
    z = pattern * (m.mean.numpy() + rng.normal(size=(size, 3)) @ m.root.numpy().T)
    t = z @ m.mixing.numpy() + m.origin.numpy() + np.exp(m.log_noise) * rng.normal(size=(size, 3))
    return Rows(torch.tensor(t)), z


def test_likelihood_is_that_of_the_mixture():
    m = model()
    rows, _ = sample(m, 200)
    means, covariances = m.components(m.patterns)
    parts = [multivariate_normal(a, C).logpdf(rows.t) for a, C in zip(means, covariances, strict=True)]
    np.testing.assert_allclose(rows.log_density(means, covariances), np.transpose(parts))
    joint = np.log(m.weights.numpy()) + np.transpose(parts)
    shares, likelihood = m.posterior(rows)
    np.testing.assert_allclose(shares, np.exp(joint) / np.exp(joint).sum(1, keepdims=True), atol=1e-12)
    assert likelihood == pytest.approx(np.log(np.exp(joint).sum(1)).mean())
    assert m.n_active == pytest.approx(float(m.weights @ m.patterns.sum(1)))
    assert m.value(rows) == pytest.approx(likelihood - PRICE * m.n_active)


def test_moments_are_those_of_the_rows_of_each_pattern():
    rows, _ = sample(model(), 300)
    group = np.arange(300) % 2
    weights, means, covariances = rows.moments(torch.eye(2).double()[group])
    np.testing.assert_allclose(weights, [0.5, 0.5])
    for g in (0, 1):
        own = rows.t.numpy()[group == g]
        np.testing.assert_allclose(means[g], own.mean(0))
        np.testing.assert_allclose(covariances[g], np.cov(own.T, ddof=0))


def test_components_are_the_moments_of_samples():
    m = model()
    one = replace(m, patterns=m.patterns[:1], weights=torch.ones(1).double())
    rows, _ = sample(one, 100_000)
    mean, covariance = one.components(one.patterns)
    np.testing.assert_allclose(mean[0], rows.t.mean(0), atol=0.02)
    np.testing.assert_allclose(covariance[0], np.cov(rows.t.T), atol=0.03)
    np.testing.assert_allclose(m.latent_covariance(), np.cov(sample(m, 100_000)[1].T), atol=0.03)


def test_patterns_without_two_latents_are_merged():
    base, weights = model().without(0, 1)
    assert base.tolist() == [[0, 0, 0], [0, 0, 1]]
    np.testing.assert_allclose(weights, [(4 + 2) / 10, (3 + 1) / 10])


@pytest.mark.parametrize("mix", [True, False])
def test_an_m_step_raises_the_likelihood_to_the_maximum(mix):
    m = model()
    rows, _ = sample(m, 4000)
    moments = rows.moments(m.posterior(rows)[0])
    start = replace(m, mixing=m.mixing + 0.1 * mix, mean=m.mean + 0.3, root=m.root * 1.5, log_noise=m.log_noise + 1)
    found = maximise(start, moments, mix=mix, steps=300)
    assert found.posterior(rows)[1] > start.posterior(rows)[1] + 0.1
    assert np.exp(found.log_noise) == pytest.approx(0.1, rel=0.1)
    for a, b in zip(found.components(PATTERNS), m.components(PATTERNS), strict=True):
        np.testing.assert_allclose(a, b, atol=0.1)
    assert torch.equal(found.mixing, start.mixing) != mix
    assert maximise(replace(start, floor=-1.0), moments, mix=mix, steps=300).log_noise >= -1


def test_em_finds_the_parameters_and_missing_patterns():
    m = model()
    rows, _ = sample(m, 6000)
    start = replace(m, mixing=m.mixing + 0.05, weights=torch.full((4,), 0.25).double())
    scores = [em(rows, start, steps, inner=20).posterior(rows)[1] for steps in (1, 4, 16)]
    assert start.posterior(rows)[1] < scores[0] < scores[1] <= scores[2] + 1e-9
    few = replace(m, patterns=PATTERNS[:2], weights=torch.tensor([0.5, 0.5]).double())
    grown = grow(rows, few)
    assert {tuple(p) for p in PATTERNS.tolist()} <= {tuple(p) for p in grown.patterns.tolist()}
    assert float(grown.weights.sum()) == pytest.approx(1)
    found, value = settle(rows, few, 10)
    assert value == pytest.approx(found.value(rows))
    assert value > few.value(rows)
    order = torch.argsort(-found.weights)[:4]
    assert {tuple(p) for p in found.patterns[order].tolist()} == {tuple(p) for p in PATTERNS.tolist()}
    np.testing.assert_allclose(found.weights[order], m.weights, atol=0.05)
