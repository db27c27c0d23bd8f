"""Is the truth the only minimiser of the exact likelihood, up to an affine map of z? A whole grid is searched.

    python benchmarks/exact_likelihood.py [--models 50] [--seed 0 1 2] [--figure profiles.png]

Kivva et al. (2022), appendix J.3.1: x = f(z) + ε, f(z) = Σ_i α_i ReLU(β_i z + π_i), i = 1, 2, z ~ Σ_j λ_j N(μ_j, s²),
ε ~ N(0, σ²), J = 2 or 3. Truths are drawn from the grid, nothing forced, until --models of them have a weakly injective
f (F2). Each is compared with every parameter tuple of the grid with J = 3, which holds J = 2 as λ_3 = 0; tuples of one
function and one mixture are one model. The density of x is a closed form, so that the expected negative log-likelihood,
-∫ p log q dx, is one sum over x. Which models are affinely equivalent, and whether f is F2, F3 or F4, is decided in
rational numbers.
Prints a line per draw: equivalent models and their largest KL(truth, model); minimisers whose mixture P is another, and
the least KL of the models with another P; the same for models whose P is equivalent, but whose f is not. Then the
summary, and how far the sums can be trusted. Two minutes for a seed, five to nine for three; one thread.
"""

import argparse
import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from identifiable.arrays import Array
from identifiable.theory.exact_likelihood import (
    RESOLUTION,
    TINY,
    Grid,
    GridResult,
    Parameters,
    PiecewiseLinear,
    Values,
    density,
    divergence,
    draws,
    search,
    steps,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


KINDS = ("F4", "F3", "F2", "constant", "symmetric", "uneven V")


def kind_of(f: PiecewiseLinear) -> str:
    """Return F4, F3 or F2; without F2, whether f is constant, symmetric about some z (as |z| is) or neither."""
    if f.injectivity != "none":
        return f.injectivity
    if not f.knots:
        return "constant"
    return "symmetric" if f.after(Fraction(-1), f.knots[0] + f.knots[-1]) == f else "uneven V"


def with_other_prior(grid: Grid, result: GridResult) -> int:
    """Return the number of minimisers whose mixture is not that of the truth after an affine map."""
    priors = list(grid.priors)
    return sum(priors[j].standard[0] != result.truth.prior.standard[0] for _, j in result.minimisers)


def outside(grid: Grid, result: GridResult) -> int:
    """Return the number of minimisers whose f is not weakly injective: no theorem applies to them."""
    functions = list(grid.functions)
    return sum(functions[i].injectivity == "none" for i, _ in result.minimisers)


def print_draws(grid: Grid, found: Sequence[GridResult]) -> None:
    print(
        f"{'f':9s} {'α':5s} {'β':5s} {'π':9s} {'λ':11s} {'μ':14s} {'s':3s} | equivalent  KL most | "
        f"{'other P':>7s} {'KL least':>8s} | {'other f':>7s} {'KL least':>8s}"
    )
    for r in sorted(found, key=lambda r: KINDS.index(kind_of(r.truth.f))):
        t = r.truth
        alpha, beta, pi, weights, mu = (" ".join(map(str, v)) for v in (t.alpha, t.beta, t.pi, t.weights, t.mu))
        print(
            f"{kind_of(t.f):9s} {alpha:5s} {beta:5s} {pi:9s} {weights:11s} {mu:14s} {t.scale!s:3s} | "
            f"{len(r.equivalent):10d}  {r.rounding:7.1e} | {with_other_prior(grid, r):7d} {r.other_prior:8.1e} | "
            f"{len(r.minimisers) - with_other_prior(grid, r):7d} {r.other_f:8.1e}"
        )


def print_summary(grid: Grid, found: Sequence[GridResult]) -> None:
    print(f"\n{'':17s}draws with minimisers that are{'':15s}KL of the nearest other P{'':7s}other f")
    print(
        f"{'f':9s} {'draws':>6s} {'equivalent only':>16s} {'other P':>8s} {'other f':>8s} {'not F2':>7s}  "
        f"{'least':>8s} {'median':>8s} {'below 1e-6':>11s} {'least':>9s}"
    )
    for kind in KINDS:
        if rows := [r for r in found if kind_of(r.truth.f) == kind]:
            kl, priors = [r.other_prior for r in rows], [with_other_prior(grid, r) for r in rows]
            functions = [len(r.minimisers) - n for r, n in zip(rows, priors, strict=True)]
            print(
                f"{kind:9s} {len(rows):6d} {sum(not r.minimisers for r in rows):16d} "
                f"{sum(n > 0 for n in priors):8d} {sum(n > 0 for n in functions):8d} "
                f"{sum(outside(grid, r) > 0 for r in rows):7d}  {min(kl):8.1e} {np.median(kl):8.1e} "
                f"{sum(v < 1e-6 for v in kl):11d} {min(r.other_f for r in rows):9.1e}"
            )


def unevenness(y: Array) -> float:
    """Return how much a curve goes up and down beyond what one valley would, in units of its range."""
    excess = np.abs(np.diff(y)).sum() - (y[0] + y[-1] - 2 * y.min())
    return float(excess / np.ptp(y)) if np.ptp(y) > 1e-6 else 0.0


def change_at_half_step(grid: Grid, found: Sequence[GridResult]) -> float:
    """Return the largest relative change of a KL in (RESOLUTION, 1) when x has twice the nodes.

    Of every truth with the nearest other P, and with 20 models at random.
    """
    functions, priors = list(grid.functions), list(grid.priors)
    rng = np.random.default_rng(0)
    change = 0.0
    for result in found:
        random = rng.integers((len(functions), len(priors)), size=(20, 2))
        for i, j in [result.nearest, *random]:
            old, new = (
                divergence(density(result.truth.f, result.truth.prior, x), density(functions[i], priors[j], x), dx)
                for x, dx in (grid.x(), grid.x(grid.step / 2))
            )
            if RESOLUTION < new < 1:
                change = max(change, abs(old / new - 1))
    return change


def profile(truth: Parameters, name: str, i: int, values: Values, grid: Grid) -> Array:
    """Return -∫ p log q dx, where q is the truth p with its i-th parameter of that name set to each value."""
    x, dx = grid.x()
    weighted, own = density(truth.f, truth.prior, x) * dx, getattr(truth, name)
    result = []
    for value in values:
        changed: dict[str, Any] = {name: (*own[:i], value, *own[i + 1 :])}
        model = replace(truth, **changed)
        result.append(-weighted @ np.log(np.maximum(density(model.f, model.prior, x), TINY)))
    return np.array(result)


def draw_profiles(grid: Grid, truths: Sequence[Parameters]) -> "Figure":
    """Draw the likelihood along one α, β, π and μ, those where it is least convex: figure 1 of the paper."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 4)
    blue, red = "#122da5", "#e52368"
    for axis, name in zip(axes, ("alpha", "beta", "pi", "mu"), strict=True):
        lines = [(truth, i) for truth in truths for i in range(len(getattr(truth, name)))]
        coarse = steps(-3, 3, 8)
        truth, i = max(lines, key=lambda line: unevenness(profile(line[0], name, line[1], coarse, grid)))
        values = steps(-3, 3, 32)
        at, y = np.array(values, dtype=float), profile(truth, name, i, values, grid)
        low = np.flatnonzero((np.diff(y)[:-1] < -1e-9) & (np.diff(y)[1:] > 1e-9)) + 1
        least = y[low] < y.min() + 1e-12
        axis.axvline(float(getattr(truth, name)[i]), color=red, linewidth=1.5, linestyle=(0, (4, 3)), label="truth")
        axis.plot(at, y, color=blue, linewidth=1.5)
        axis.plot(at[low[least]], y[low[least]], "o", color=blue, label="global minimum")
        axis.plot(at[low[~least]], y[low[~least]], "o", color=blue, markerfacecolor="white", label="local minimum")
        axis.set(xlabel=rf"$\{name}_{i + 1}$", xticks=range(-3, 4))
        axis.set_title(f"f is {kind_of(truth.f)}", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(r"$-\int p\,\log q\ dx$")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=50, help="draws with a weakly injective f, for each seed")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--figure", help="write the likelihood along single parameters here")
    options = parser.parse_args()
    started, grid = time.perf_counter(), Grid()
    tuples = sum(grid.functions.values()) * sum(grid.priors.values())
    print(
        f"{tuples / 1e6:.0f} million parameter tuples: {len(grid.functions)} functions, {len(grid.priors)} "
        f"mixtures, {len(grid.functions) * len(grid.priors) / 1e6:.2f} million models; {len(grid.x()[0])} values of x",
        flush=True,
    )
    truths = [draws(grid, options.models, seed) for seed in options.seed]
    found = search(grid, [t for of_seed in truths for t in of_seed])
    rest = iter(found)
    for seed, of_seed in zip(options.seed, truths, strict=True):
        own = list(itertools.islice(rest, len(of_seed)))
        alone = sum(not r.minimisers for r in own if r.truth.f.injectivity != "none")
        print(f"\nseed {seed}: {len(own)} draws, {options.models} with F2; all minimisers equivalent in {alone}")
        print_draws(grid, own)
    print_summary(grid, found)
    weak = [r for r in found if r.truth.f.injectivity != "none"]
    print(
        f"\nof the {len(weak)} with F2, {sum(len(r.truth.prior.means) < len(r.truth.mu) for r in weak)} have fewer "
        f"components than J, {sum(0 in (*r.truth.alpha, *r.truth.beta) for r in weak)} have a neuron that vanishes\n"
        f"KL of equivalent models {max(r.rounding for r in found):.1e} at most; of others, where F2 holds, "
        f"{min(min(r.other_prior, r.other_f) for r in weak):.1e} at least\n"
        f"largest relative change of a KL below 1 with twice the nodes {change_at_half_step(grid, found):.1e}\n"
        f"{time.perf_counter() - started:.0f} s",
        flush=True,
    )
    if options.figure:
        draw_profiles(grid, [r.truth for r in weak]).savefig(options.figure, dpi=150)


if __name__ == "__main__":
    main()
