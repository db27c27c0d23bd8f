"""How often do certificates say PS where latents are identified, and where they are not?

    python benchmarks/certificate_theorems.py [--estimator FactorialUnmixing ...] [--sets 100] [--rows 1000 10000]
        [--first-seed 0] [--jobs 1]

Every kind of data has three latents that are independent given a group of rows. The group is observed for
`SegmentUnmixing`, `IFlow` and `IVAE` (8 groups), hidden for `FactorialUnmixing`, `GMMFlow` and `VaDE` (4 groups). The
mixing is a random matrix for the linear methods, two with a leaky ReLU between them for the others. Printed for every
kind: the share of PS, of "PS if every inconclusive check holds", of stable fits, and the mean MCC on the same rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from common import arguments, choose, parse, use_one_thread
from identifiable import IVAE, FactorialUnmixing, GMMFlow, IFlow, SegmentUnmixing, VaDE
from identifiable.metrics import mcc

N, SEGMENTS, COMPONENTS, SLOPE = 3, 8, 4, 0.5


class Groups(NamedTuple):
    """Means and scales (G, n) of the latents in every group."""

    means: np.ndarray
    scales: np.ndarray


def distinct(groups: int, rng: np.random.Generator) -> Groups:
    """Draw variances that no two latents have in proportion, and means."""
    return Groups(3 * rng.normal(size=(groups, N)), rng.uniform(0.5, 3, size=(groups, N)))


def variances(groups: int, rng: np.random.Generator) -> Groups:
    """Draw the same without means."""
    return Groups(np.zeros((groups, N)), distinct(groups, rng).scales)


def proportional(groups: int, rng: np.random.Generator) -> Groups:
    """Make the scales of latents 0 and 1 proportional, without means."""
    means, scales = variances(groups, rng)
    scales[:, 1] = 2 * scales[:, 0]
    return Groups(means, scales)


def proportional_apart(groups: int, rng: np.random.Generator) -> Groups:
    """Make the scales of latents 0 and 1 proportional; all means differ."""
    means, scales = distinct(groups, rng)
    scales[:, 1] = 2 * scales[:, 0]
    return Groups(means, scales)


def means_only(groups: int, rng: np.random.Generator) -> Groups:
    """Let only the means differ between groups."""
    return Groups(3 * rng.normal(size=(groups, N)), np.ones((groups, N)))


def one_gaussian(groups: int, rng: np.random.Generator) -> Groups:
    """Let no group differ from another."""
    return Groups(np.zeros((groups, N)), np.ones((groups, N)))


class Method(NamedTuple):
    """An estimator, whether it sees the group and is linear, and the kinds that are identified and that are not."""

    model: Callable[[int], Any]
    observed: bool
    linear: bool
    identified: tuple[Callable[..., Groups], ...]
    unidentified: tuple[Callable[..., Groups], ...]


GIVEN_U = ((distinct, variances), (proportional, means_only, one_gaussian))
HIDDEN = ((distinct, variances), (proportional_apart, means_only, one_gaussian))
METHODS = {
    "FactorialUnmixing": Method(lambda seed: FactorialUnmixing(N, random_state=seed), False, True, *HIDDEN),
    "SegmentUnmixing": Method(lambda seed: SegmentUnmixing(N, random_state=seed), True, True, *GIVEN_U),
    "IFlow": Method(
        lambda seed: IFlow(N, n_restarts=2, max_steps=600, random_state=seed, verbose=0), True, False, *GIVEN_U
    ),
    "IVAE": Method(
        lambda seed: IVAE(N, n_restarts=2, max_steps=600, random_state=seed, verbose=0), True, False, *GIVEN_U
    ),
    "GMMFlow": Method(lambda seed: GMMFlow(N, n_restarts=2, random_state=seed, verbose=0), False, False, *HIDDEN),
    "VaDE": Method(lambda seed: VaDE(N, COMPONENTS, n_restarts=2, random_state=seed, verbose=0), False, False, *HIDDEN),
}


def sample(kind: Callable[..., Groups], method: Method, rows: int, seed: int) -> tuple[np.ndarray, ...]:
    """Return latents, observations and groups of one data set."""
    rng = np.random.default_rng(seed)
    groups = SEGMENTS if method.observed else COMPONENTS
    means, scales = kind(groups, rng)
    u = np.arange(rows) % groups
    z = means[u] + scales[u] * rng.normal(size=(rows, N))
    matrix = rng.normal(size=(N, N))
    while np.linalg.cond(matrix) > 10:
        matrix = rng.normal(size=(N, N))
    x = z @ matrix
    if not method.linear:
        x /= x.std(0)
        x = np.where(x < 0, SLOPE * x, x) @ np.linalg.qr(rng.normal(size=(N, N)))[0]
    return z, x, u


def run(name: str, kind: Callable[..., Groups], rows: int, seed: int) -> dict[str, Any]:
    """Fit one data set and read its certificate."""
    use_one_thread()
    method = METHODS[name]
    z, x, u = sample(kind, method, rows, seed)
    model = method.model(seed)
    model.fit(x, *([u.astype(str)] if method.observed else []))
    found = model.certificate_
    return {
        "estimator": name,
        "identified": kind in method.identified,
        "kind": kind.__name__,
        "rows": rows,
        "seed": seed,
        "PS": str(found.level) == "PS",
        "PS if open checks hold": str(found.if_undecided_hold) == "PS",
        "stable": model.fit_status_ == "stable",
        "mcc": mcc(z, np.asarray(model.transform(x))),
        "open": ", ".join(check.name for check in found.checks if check.verdict != "holds"),
    }


def main() -> None:
    """Run all data sets and print one line per kind, and the pooled shares."""
    parser = arguments(__doc__)
    choose(parser, "--estimator", METHODS, ["FactorialUnmixing", "SegmentUnmixing"])
    parser.add_argument("--sets", type=int, default=100, help="data sets of each kind")
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000])
    options = parse(parser)
    seeds = range(options.first_seed, options.first_seed + options.sets)
    tasks = [
        (name, kind, rows, seed)
        for name in options.estimator
        for kind in METHODS[name].identified + METHODS[name].unidentified
        for rows in options.rows
        for seed in seeds
    ]
    results = pd.DataFrame(Parallel(options.jobs)(delayed(run)(*task) for task in tasks))
    if options.csv:
        results.to_csv(options.csv, index=False)
    shares = ["PS", "PS if open checks hold", "stable", "mcc"]
    for keys in (["estimator", "identified", "kind", "rows"], ["estimator", "identified", "rows"]):
        table = results.groupby(keys, sort=False)[shares].mean().round(3)
        table = table.assign(fits=results.groupby(keys, sort=False).size()).reset_index()
        lines = [table.columns, ["---"] * table.shape[1], *table.values]
        print("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines), "\n")


if __name__ == "__main__":
    main()
