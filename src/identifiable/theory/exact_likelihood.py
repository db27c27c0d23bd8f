"""Exhaustive search for minimisers of the exact likelihood that are not the truth up to an affine map of z.

Kivva et al. (2022), appendix J.3.1: x = f(z) + ε, f(z) = Σ_i α_i ReLU(β_i z + π_i), i = 1, 2, z ~ Σ_j λ_j N(μ_j, s²),
ε ~ N(0, σ²), J = 2 or 3. Every truth is compared with every parameter tuple of a grid; tuples of one function and one
mixture are one model. The density of x is a closed form, so the expected negative log-likelihood, -∫ p log q dx, is one
sum over x. Whether models are affinely equivalent, and whether f is F2, F3 or F4, is decided in rational numbers.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from identifiable.arrays import Array

Values = tuple[Fraction, ...]

NOISE = 0.5  # σ
RESOLUTION = 1e-27  # a model with a KL below this is a minimiser; rounding gives about 1e-32 for equal distributions
MARGIN = 1e-9  # the search computes a KL to 1e-13; one below this margin is computed again
TINY = 1e-300  # floor of q, which can only lower a KL


@dataclass(frozen=True)
class PiecewiseLinear:
    """A continuous piecewise linear f: R -> R in a unique form: equal functions are equal objects."""

    knots: Values  # ascending; the slope changes at each
    slopes: Values  # one more
    at_zero: Fraction

    @cached_property
    def pieces(self) -> list[tuple[float | Fraction, float | Fraction, Fraction, Fraction]]:
        """(left, right, c, d) with f(z) = c z + d on [left, right]."""
        home = sum(k < 0 for k in self.knots)  # the piece that holds 0
        offsets = {home: self.at_zero}
        for i in range(home, len(self.knots)):
            offsets[i + 1] = offsets[i] + (self.slopes[i] - self.slopes[i + 1]) * self.knots[i]
        for i in range(home, 0, -1):
            offsets[i - 1] = offsets[i] + (self.slopes[i] - self.slopes[i - 1]) * self.knots[i - 1]
        ends: list[float | Fraction] = [-math.inf, *self.knots, math.inf]
        return [(ends[i], ends[i + 1], c, offsets[i]) for i, c in enumerate(self.slopes)]

    def __call__(self, z: Fraction) -> Fraction:
        """Return f(z)."""
        return next(c * z + d for _, right, c, d in self.pieces if z <= right)

    def after(self, a: Fraction, b: Fraction) -> "PiecewiseLinear":
        """Return z -> f(a z + b), a ≠ 0."""
        order = 1 if a > 0 else -1
        knots = tuple((k - b) / a for k in self.knots)[::order]
        return PiecewiseLinear(knots, tuple(a * c for c in self.slopes)[::order], self(b))

    @property
    def injectivity(self) -> str:
        """The strongest of F4 (injective), F3 (almost everywhere), F2 (weakly) that holds, or "none".

        Between images of knots the number of preimages does not change. F2: somewhere it is 1 (values of constant
        pieces, with infinitely many preimages, are finitely many, thus a null set of the image, unless f is constant).
        F3: it is 1 wherever it is not 0. F4: F3 and no constant piece.
        """
        values = sorted({self(k) for k in self.knots}) or [Fraction(0)]
        between = [values[0] - 1, *((u + v) / 2 for u, v in itertools.pairwise(values)), values[-1] + 1]
        preimages = {sum(c != 0 and left < (x - d) / c < right for left, right, c, d in self.pieces) for x in between}
        if 1 not in preimages:
            return "none"
        if max(preimages) > 1:
            return "F2"
        return "F3" if 0 in self.slopes else "F4"


Neuron = tuple[Fraction, Fraction, Fraction]  # slope left of the knot, slope right of it, knot; or 0, 0, constant


def neuron(alpha: Fraction, beta: Fraction, pi: Fraction) -> Neuron:
    """α ReLU(β z + π), as the function that it is."""
    zero = Fraction(0)
    if alpha == 0 or beta == 0:
        return zero, zero, alpha * max(pi, zero)
    return (alpha * beta, zero, -pi / beta) if beta < 0 else (zero, alpha * beta, -pi / beta)


def network(*neurons: Neuron) -> PiecewiseLinear:
    """Return the sum of neurons."""
    at_zero = Fraction(0)
    slopes, knots = [sum((left for left, _, _ in neurons), Fraction(0))], []
    changes: dict[Fraction, Fraction] = {}
    for left, right, k in neurons:
        at_zero += -k * (left if k > 0 else right) if left or right else k
        changes[k] = changes.get(k, Fraction(0)) + right - left
    for k in sorted(changes):
        if changes[k]:
            knots.append(k)
            slopes.append(slopes[-1] + changes[k])
    return PiecewiseLinear(tuple(knots), tuple(slopes), at_zero)


@dataclass(frozen=True)
class Prior:
    """Σ_j weights_j N(means_j, scale²) in reduced form: no weight is zero, means ascend."""

    weights: Values
    means: Values
    scale: Fraction

    @classmethod
    def of(cls, weights: Values, means: Values, scale: Fraction) -> "Prior":
        """Drop zero weights and merge equal means."""
        mass: dict[Fraction, Fraction] = {}
        for m, w in zip(means, weights, strict=True):
            if w:
                mass[m] = mass.get(m, Fraction(0)) + w
        return cls(tuple(mass[m] for m in sorted(mass)), tuple(sorted(mass)), scale)

    @cached_property
    def standard(self) -> tuple[tuple[tuple[Fraction, Fraction], ...], list[tuple[Fraction, Fraction]]]:
        """((mean, weight), ...) in standard form, and every (a, b) for which a z + b has it.

        Standard is scale 1, first mean 0, the lesser of the two mirror images: P' = h#P for an affine h if and only if
        the standard forms are equal. A symmetric P has two (a, b).
        """
        forms = []
        for a, first in ((1 / self.scale, self.means[0]), (-1 / self.scale, self.means[-1])):
            form = sorted((a * (m - first), w) for m, w in zip(self.means, self.weights, strict=True))
            forms.append((tuple(form), (a, -a * first)))
        least = min(form for form, _ in forms)
        return least, [h for form, h in forms if form == least]


@dataclass(frozen=True)
class Parameters:
    """α, β, π of the neurons; λ, μ of the components; s."""

    alpha: Values
    beta: Values
    pi: Values
    weights: Values
    mu: Values
    scale: Fraction

    @cached_property
    def f(self) -> PiecewiseLinear:
        """The function."""
        return network(*(neuron(*of_one) for of_one in zip(self.alpha, self.beta, self.pi, strict=True)))

    @cached_property
    def prior(self) -> Prior:
        """The mixture."""
        return Prior.of(self.weights, self.mu, self.scale)


def steps(first: int, last: int, per_unit: int = 1) -> Values:
    """Return all multiples of 1 / per_unit from first to last."""
    return tuple(Fraction(i, per_unit) for i in range(first * per_unit, last * per_unit + 1))


HALVES, WHOLE = steps(-2, 2, 2), steps(-2, 2)


@dataclass(frozen=True)
class Grid:
    """All values of every parameter. No mean is more than 6 s away from a knot, beyond which KL drown in rounding."""

    alpha: Values = WHOLE
    beta: Values = WHOLE
    pi: Values = HALVES[2:-2]  # from -1 to 1
    mu: Values = HALVES
    scale: Values = (Fraction(1, 2), Fraction(1))
    parts: int = 6  # λ are multiples of 1 / parts
    components: int = 3
    step: float = 1 / 8  # between the nodes of x, where they are dense

    def simplex(self, components: int) -> list[Values]:
        """All λ, zeros included."""
        splits = itertools.product(range(self.parts + 1), repeat=components)
        return [tuple(Fraction(i, self.parts) for i in split) for split in splits if sum(split) == self.parts]

    @cached_property
    def functions(self) -> dict[PiecewiseLinear, int]:
        """Every f, and how many (α, β, π) are it."""
        neurons = Counter(itertools.starmap(neuron, itertools.product(self.alpha, self.beta, self.pi)))
        found: Counter[PiecewiseLinear] = Counter()
        for (one, n), (two, m) in itertools.product(neurons.items(), repeat=2):
            found[network(one, two)] += n * m
        return dict(found)

    @cached_property
    def priors(self) -> dict[Prior, int]:
        """Every mixture, those of one scale together, and how many (λ, μ) are it."""
        means = list(itertools.product(self.mu, repeat=self.components))
        tuples = itertools.product(self.scale, self.simplex(self.components), means)
        return dict(Counter(Prior.of(weights, mu, scale) for scale, weights, mu in tuples))

    def weights(self, scale: Fraction) -> Array:
        """Return a row of λ over all means for each mixture of one scale."""
        rows = [dict(zip(p.means, p.weights, strict=True)) for p in self.priors if p.scale == scale]
        return np.array([[float(row.get(m, 0)) for m in self.mu] for row in rows])

    def draw(self, rng: np.random.Generator) -> Parameters:
        """Sample J from {2, 3}, and every parameter uniformly from its values."""
        j = int(rng.integers(2, self.components + 1))

        def some(values: Values, size: int) -> Values:
            return tuple(values[i] for i in rng.integers(len(values), size=size))

        simplex = self.simplex(j)
        alpha, beta, pi = some(self.alpha, 2), some(self.beta, 2), some(self.pi, 2)
        return Parameters(alpha, beta, pi, simplex[rng.integers(len(simplex))], some(self.mu, j), *some(self.scale, 1))

    def x(self, step: float | None = None) -> tuple[Array, Array]:
        """Return nodes and weights of the trapezoid rule in t, x = 20 sinh(t / 20), 9 standard deviations each way.

        Far out, where f is steep, densities are as wide as they are far, and nodes may be so, too.
        """
        step = step or self.step
        z = float(max(map(abs, self.mu)) + 9 * max(self.scale))
        slope, shift = (float(max(map(abs, values))) for values in (self.beta, self.pi))
        end = 2 * float(max(map(abs, self.alpha))) * (slope * z + shift) + 9 * NOISE
        nodes = math.ceil(20 * math.asinh(end / 20) / step)
        t = step * np.arange(-nodes, nodes + 1)
        return 20 * np.sinh(t / 20), step * np.cosh(t / 20)


def densities(f: PiecewiseLinear, means: Values, scale: Fraction, x: Array) -> Array:
    """Return the density of f(N(m, s²)) + N(0, σ²) at x for every mean m: (M, X).

    A piece f(z) = c z + d on [l, r] adds N(x; c m + d, v) [Φ((r - e) / τ) - Φ((l - e) / τ)], where v = c² s² + σ²,
    τ = s σ / √v, and e = m + c s² (x - c m - d) / v is the mean of z given x. c = 0 is an atom, blurred.
    """
    m, s = np.array([[float(mean)] for mean in means]), float(scale)
    total = np.zeros((len(m), len(x)))
    for left, right, slope, offset in f.pieces:
        c, d = float(slope), float(offset)
        v = (c * s) ** 2 + NOISE**2
        away, tau = x - c * m - d, s * NOISE / math.sqrt(v)
        e = m + c * s * s / v * away
        low, high = (float(left) - e) / tau, (float(right) - e) / tau
        flip = low > 0  # both in the upper tail, where Φ has no digits left
        share = ndtr(np.where(flip, -low, high)) - ndtr(np.where(flip, -high, low))
        total += np.exp(-(away**2) / (2 * v)) / math.sqrt(2 * math.pi * v) * share
    return total


def density(f: PiecewiseLinear, prior: Prior, x: Array) -> Array:
    """Return the density of f(z) + ε at x, (X,)."""
    return np.array([float(w) for w in prior.weights]) @ densities(f, prior.means, prior.scale, x)


def divergence(p: Array, q: Array, dx: Array) -> float:
    """KL(p, q) = ∫ p φ(q / p - 1) dx, φ(r) = r - log(1 + r) >= 0: nothing cancels, and rounding enters squared."""
    p, q = np.maximum(p, TINY), np.maximum(q, TINY)
    near = np.abs(q - p) < 1e-3 * p
    r = np.where(near, q - p, 0) / p
    series = p * r * r * (1 / 2 - r * (1 / 3 - r * (1 / 4 - r / 5)))
    return float(np.where(near, series, q - p + p * np.log(p / q)) @ dx)


Model = tuple[int, int]  # places of f in Grid.functions and of P in Grid.priors


@dataclass
class GridResult:
    """A truth (f, P) compared with the models (f', P') of the grid."""

    truth: Parameters
    equivalent: list[Model]  # P' = h#P and f' = f∘h⁻¹ for an affine h
    rounding: float = 0.0  # the largest KL among them
    other_prior: float = math.inf  # the smallest KL where P' is no h#P
    nearest: Model = (0, 0)  # and the model that has it
    other_f: float = math.inf  # the smallest KL where P' = h#P, but f' is not f∘h⁻¹
    close: list[Model] = field(default_factory=list)  # not equivalent, KL below MARGIN
    minimisers: list[Model] = field(default_factory=list)  # not equivalent, KL below RESOLUTION


def equivalent_models(truth: Parameters, places: dict[PiecewiseLinear, int], priors: Sequence[Prior]) -> list[Model]:
    """Return the models of the grid that are the truth after an affine map of z."""
    form, maps = truth.prior.standard
    standard = {truth.f.after(1 / a, -b / a) for a, b in maps}
    found = []
    for j, prior in enumerate(priors):
        if prior.standard[0] == form:
            functions = [g.after(*prior.standard[1][0]) for g in standard]
            found += [(places[f], j) for f in functions if f in places]
    return found


def search(grid: Grid, truths: Sequence[Parameters]) -> list[GridResult]:
    """Compare every truth with every model of the grid."""
    x, dx = grid.x()
    functions, priors = list(grid.functions), list(grid.priors)
    places = {f: i for i, f in enumerate(functions)}
    found = [GridResult(t, equivalent_models(t, places, priors)) for t in truths]
    p = np.array([density(t.f, t.prior, x) for t in truths])
    negentropy = (p * np.log(np.maximum(p, TINY))) @ dx
    weighted = np.ascontiguousarray((p * dx).T)  # (X, truths)
    same_prior = np.array([[prior.standard[0] == t.prior.standard[0] for t in truths] for prior in priors])
    equal: dict[int, list[tuple[int, int]]] = {}
    for k, result in enumerate(found):
        for i, j in result.equivalent:
            equal.setdefault(i, []).append((j, k))
    weights = [grid.weights(s) for s in grid.scale]
    for i, f in enumerate(functions):
        q = np.concatenate([w @ densities(f, grid.mu, s, x) for w, s in zip(weights, grid.scale, strict=True)])
        kl = negentropy - np.log(np.maximum(q, TINY, out=q), out=q) @ weighted  # (priors, truths)
        for place in equal.get(i, []):
            kl[place] = math.inf
        for j, k in np.argwhere(kl < MARGIN):
            found[k].close.append((i, int(j)))
        other_prior = np.where(same_prior, math.inf, kl)
        at, other_f = other_prior.argmin(0), np.where(same_prior, kl, math.inf).min(0)
        for k, result in enumerate(found):
            if other_prior[at[k], k] < result.other_prior:
                result.other_prior, result.nearest = float(other_prior[at[k], k]), (i, int(at[k]))
            result.other_f = min(result.other_f, float(other_f[k]))
    for k, result in enumerate(found):
        _refine(result, grid, p[k])
    return found


def _refine(result: GridResult, grid: Grid, p: Array) -> None:
    """Compute every KL below the margin again, where rounding is squared, and list the minimisers."""
    x, dx = grid.x()
    functions, priors = list(grid.functions), list(grid.priors)

    def kl(model: Model) -> float:
        return divergence(p, density(functions[model[0]], priors[model[1]], x), dx)

    result.rounding = max(map(kl, result.equivalent))
    same: dict[Model, float] = {}
    other: dict[Model, float] = {}
    for model in result.close:
        form = priors[model[1]].standard[0]
        (same if form == result.truth.prior.standard[0] else other)[model] = kl(model)
    if other:
        result.nearest = min(other, key=lambda model: (other[model], model))
        result.other_prior = other[result.nearest]
    if same:
        result.other_f = min(same.values())
    result.minimisers = [model for model, value in (other | same).items() if value < RESOLUTION]


def draws(grid: Grid, models: int, seed: int) -> list[Parameters]:
    """Sample truths until this many have a weakly injective f."""
    rng = np.random.default_rng(seed)
    found: list[Parameters] = []
    while sum(t.f.injectivity != "none" for t in found) < models:
        found.append(grid.draw(rng))
    return found
