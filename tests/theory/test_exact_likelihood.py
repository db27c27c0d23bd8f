"""The exact-likelihood search: densities and equivalence are exact, and no model is left out."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from identifiable.theory import exact_likelihood as exact

ONE, ZERO = Fraction(1), Fraction(0)
SMALL = exact.Grid(
    alpha=exact.steps(-1, 1), beta=exact.steps(-1, 1), pi=exact.steps(-1, 1), mu=exact.steps(-2, 2), parts=3, step=0.2
)


def fractions(*values):
    return tuple(map(Fraction, values))


def model(alpha, beta, pi, weights=("1/3", "2/3"), mu=(-1, 1), scale=1):
    parts = (fractions(*values) for values in (alpha, beta, pi, weights, mu))
    return exact.Parameters(*parts, Fraction(scale))


def network_at(t, z):
    return sum(a * max(b * z + p, 0) for a, b, p in zip(t.alpha, t.beta, t.pi, strict=True))


# Functions


def test_a_function_is_its_network():
    rng, points = np.random.default_rng(0), exact.steps(-4, 4, 4)
    for t in (exact.Grid().draw(rng) for _ in range(60)):
        assert [t.f(z) for z in points] == [network_at(t, z) for z in points]
        a, b = Fraction(int(rng.integers(1, 4)) * int(rng.choice([-1, 1])), 2), Fraction(int(rng.integers(-3, 4)), 2)
        assert [t.f.after(a, b)(z) for z in points] == [t.f(a * z + b) for z in points]


def test_equal_functions_are_one_object_and_every_tuple_is_counted():
    points = exact.steps(-9, 9, 4)
    assert len({tuple(f(z) for z in points) for f in SMALL.functions}) == len(SMALL.functions)
    assert sum(SMALL.functions.values()) == 3**6
    assert sum(SMALL.priors.values()) == 2 * 10 * 5**3


@pytest.mark.parametrize(
    ("alpha", "beta", "pi", "kind"),
    [
        ((1, -1), (1, -1), (0, 0), "F4"),  # z
        ((2, -1), (1, -1), (1, 1), "F4"),  # strictly ascending, two knots
        ((1, 0), (1, 0), (0, 0), "F3"),  # ReLU, example 1 of the paper
        ((1, -1), (1, 1), (0, -1), "F3"),  # flat, up, flat
        ((1, -1), (1, -1), (-1, -1), "F3"),  # up, flat, up
        ((1, -2), (1, 1), (0, -1), "F2"),  # flat, up, down for ever
        ((1, 1), (1, -1), (0, 0), "none"),  # |z|
        ((1, 1), (1, -1), (-1, 1), "none"),  # |z - 1|
        ((1, 2), (1, -1), (0, 0), "none"),
        ((0, 1), (1, 0), (0, 2), "none"),
    ],
)
def test_injectivity(alpha, beta, pi, kind):
    f = model(alpha, beta, pi).f
    assert f.injectivity == kind
    assert f.after(Fraction(-2), Fraction(1, 3)).injectivity == kind


# Distributions


def test_density_is_that_of_the_sum_over_z():
    rng = np.random.default_rng(1)
    x = np.linspace(-12, 12, 41)
    for t in (exact.Grid().draw(rng) for _ in range(20)):
        s, (z, dz) = float(t.scale), np.linspace(-12, 12, 24_001, retstep=True)
        means, weights = np.array(t.mu, float)[:, None], np.array(t.weights, float)
        prior = weights @ np.exp(-((z - means) ** 2) / (2 * s * s)) / math.sqrt(2 * math.pi) / s
        alpha, beta, pi = (np.array(values, float)[:, None] for values in (t.alpha, t.beta, t.pi))
        f = np.sum(alpha * np.maximum(beta * z + pi, 0), axis=0)
        noise = np.exp(-((x[:, None] - f) ** 2) / (2 * exact.NOISE**2)) / math.sqrt(2 * math.pi) / exact.NOISE
        np.testing.assert_allclose(exact.density(t.f, t.prior, x), noise @ prior * dz, rtol=1e-4, atol=1e-9)


def test_nodes_of_x_hold_all_mass():
    x, dx = SMALL.x()
    for f, s in itertools.product(SMALL.functions, SMALL.scale):
        np.testing.assert_allclose(exact.densities(f, SMALL.mu, s, x) @ dx, 1, rtol=1e-13)


def test_equivalent_models_have_equal_densities_and_standard_forms():
    rng = np.random.default_rng(2)
    grid = exact.Grid()
    x, dx = grid.x()
    for t in (grid.draw(rng) for _ in range(30)):
        a, b = Fraction(int(rng.choice([-1, 1])), int(rng.integers(1, 3))), Fraction(int(rng.integers(-3, 4)), 2)
        moved = exact.Prior.of(t.weights, tuple(a * m + b for m in t.mu), abs(a) * t.scale)
        assert moved.standard[0] == t.prior.standard[0]
        p, q = exact.density(t.f, t.prior, x), exact.density(t.f.after(1 / a, -b / a), moved, x)
        assert exact.divergence(p, q, dx) < exact.RESOLUTION / 1000


def test_other_mixtures_have_other_standard_forms():
    prior = exact.Prior.of(fractions("1/3", "1/3", "1/3"), fractions(-2, -1, 2), ONE)
    assert len(prior.standard[1]) == 1
    for weights, means, scale in (
        (("1/3", "1/3", "1/3"), (-2, 0, 2), 1),
        (("1/3", "1/3", "1/3"), (-2, -1, 2), 2),
        (("1/6", "1/2", "1/3"), (-2, -1, 2), 1),
    ):
        other = exact.Prior.of(fractions(*weights), fractions(*means), Fraction(scale))
        assert other.standard[0] != prior.standard[0]
    symmetric = exact.Prior.of(fractions("1/2", "1/2", 0), fractions(-2, 1, 5), ONE)
    assert len(symmetric.standard[1]) == 2


# The search


@pytest.mark.parametrize("scale", [Fraction(1, 2), ONE])  # another f is nearest, another mixture
def test_search_is_that_of_all_tuples(scale):
    """Against a loop over raw parameter tuples, which knows nothing of functions and mixtures."""
    grid = exact.Grid(fractions(-1, 1), fractions(-1, 2), (ONE,), fractions(-1, 1), (scale,), parts=2, step=0.2)
    truth = model((1, -1), (2, -1), (1, 1), ("1/2", "1/2"), (-1, 1), scale)
    (found,) = exact.search(grid, [truth])
    neurons = list(itertools.product(itertools.product(grid.alpha, grid.beta, grid.pi), repeat=2))
    priors = list(itertools.product(grid.simplex(3), itertools.product(grid.mu, repeat=3)))
    assert len(neurons) == sum(grid.functions.values())
    assert len(priors) == sum(grid.priors.values())
    x, dx = grid.x()
    p, best = exact.density(truth.f, truth.prior, x), {}
    for (one, two), (weights, mu) in itertools.product(neurons, priors):
        t = exact.Parameters(*zip(one, two, strict=True), weights, mu, scale)
        q = np.array(weights, float) @ exact.densities(t.f, mu, scale, x)
        mass = {m: sum(w for w, n in zip(weights, mu, strict=True) if n == m) for m in grid.mu}
        same_prior, same_f = mass[-ONE] == mass[ONE], t.f in (truth.f, truth.f.after(-ONE, ZERO))
        key = "equal" if same_prior and same_f else "other f" if same_prior else "other prior"
        best.setdefault(key, []).append(float((p * np.log(np.maximum(p, 1e-300) / np.maximum(q, 1e-300))) @ dx))
    assert max(best["equal"]) == pytest.approx(0, abs=1e-12)
    assert found.other_prior == pytest.approx(min(best["other prior"]), rel=1e-6)
    assert found.other_f == pytest.approx(min(best["other f"]), rel=1e-6)


@pytest.fixture(scope="module")
def found():
    return exact.search(SMALL, exact.draws(SMALL, 6, seed=0))


def test_weakly_injective_truths_have_no_minimiser_but_their_equivalents(found):
    weak = [r for r in found if r.truth.f.injectivity != "none"]
    assert len(weak) == 6
    for r in weak:
        assert r.equivalent
        assert not r.minimisers
        assert r.rounding < exact.RESOLUTION / 1000 < 1000 * exact.RESOLUTION < min(r.other_prior, r.other_f)


def test_without_weak_injectivity_other_mixtures_are_minimisers():
    """Remark 3.6 of the paper, |z|: a mean may change its sign. And of a constant f, nothing is seen of z."""
    grid = exact.Grid((ZERO, ONE), fractions(-1, 1), (ZERO,), exact.steps(-3, 3), (ONE,), parts=3)
    thirds = ("1/3", "1/3", "1/3")
    truths = [model((1, 1), (1, -1), (0, 0), thirds, (-2, -1, 3)), model((0, 0), (1, 1), (0, 0), thirds, (-2, -1, 3))]
    absolute, constant = exact.search(grid, truths)
    functions, priors = list(grid.functions), list(grid.priors)
    changed = {(functions[i], priors[j].means) for i, j in absolute.minimisers}
    assert changed == {(truths[0].f, tuple(sorted((2 * a, b, 3 * c)))) for a, b, c in SIGNS}
    assert len(absolute.minimisers) == len(changed)
    assert len(constant.minimisers) == len(priors) - len(constant.equivalent)


SIGNS = [fractions(*signs) for signs in itertools.product((-1, 1), repeat=3) if signs not in ((-1, -1, 1), (1, 1, -1))]
