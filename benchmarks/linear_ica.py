"""How exact is LinearICA beside FastICA and Picard, and how often is its certificate right?

    python benchmarks/linear_ica.py accuracy --seeds 10
    python benchmarks/linear_ica.py certificates --seeds 30

accuracy: MCC of the latents of the rows that were fitted. The columns are a random square mixing of independent
latents, or, with --noise, twice as many columns with Gaussian noise of 5 % of their standard deviations. "below": by
how many nats per new row the density of the model is below the true one (without noise). "worse": the largest amount by
which LinearICA is below the better of FastICA and Picard on a data set.

certificates: how many data sets get each level. PS is false for "gaussian", for "two gaussian", for "t 5" (a
multivariate t distribution of 5 degrees of freedom: uncorrelated, dependent), for "t 5 pair" (two latents from that,
the others of mixed kinds; "split" counts certificates that put these two, or two Gaussian ones, into different blocks)
and for "nonlinear" (Laplace latents through two rotations, each followed by a leaky ReLU).
"""

import warnings
from typing import Any

import numpy as np
from picard import picard
from scipy import stats
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import FastICA

from common import arguments, choose, parse, run_jobs, timed
from identifiable import LinearICA
from identifiable.metrics import mcc

INDEPENDENT = {"laplace": stats.laplace(), "uniform": stats.uniform(), "exponential": stats.expon()}
KINDS = (*INDEPENDENT, "mixed")
FALSE = ("gaussian", "two gaussian", "t 5", "t 5 pair", "nonlinear")
NEW_ROWS = 5000


def densities(kind: str, n: int) -> list[Any]:
    """Return the distributions of n independent latents."""
    if kind == "gaussian":
        return [stats.norm()] * n
    mixed = [list(INDEPENDENT.values())[i % 3] for i in range(n)]
    if kind == "two gaussian":
        return [stats.norm(), stats.norm(), *mixed[2:]]
    return mixed if kind == "mixed" else [INDEPENDENT[kind]] * n


def latents(kind: str, rows: int, n: int, rng: np.random.Generator) -> Any:
    """Return latents (rows, n), or what the mixing matrix is applied to."""
    if kind == "t 5":
        return rng.normal(size=(rows, n)) / np.sqrt(rng.chisquare(5, (rows, 1)) / 5)
    if kind == "t 5 pair":
        return np.hstack([latents("t 5", rows, 2, rng), latents("mixed", rows, n, rng)[:, 2:]])
    if kind == "nonlinear":
        x = latents("laplace", rows, n, rng)
        for _ in range(2):
            x = x @ np.linalg.qr(rng.normal(size=(n, n)))[0]
            x = np.where(x > 0, x, 0.3 * x)
        return x
    return np.stack([p.rvs(rows, random_state=rng) for p in densities(kind, n)], 1)


def accuracy(kind: str, n: int, rows: int, noise: bool, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, n, rows])
    z, mixing = latents(kind, rows, n, rng), rng.normal(size=(n, 2 * n if noise else n))
    x = z @ mixing
    x += 0.05 * noise * x.std(0) * rng.normal(size=x.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, seconds = timed(lambda: LinearICA(n, random_state=seed).fit(x))
        fast = FastICA(n, whiten="unit-variance", random_state=seed).fit_transform(x)
        picards = picard(x.T, n_components=n, random_state=seed)[2].T
    row = {"kind": kind, "n": n, "rows": rows, "noise": noise, "seed": seed, "seconds": seconds}
    row |= {"LinearICA": mcc(z, model.transform(x)), "FastICA": mcc(z, fast), "Picard": mcc(z, picards)}
    if not noise:
        new = latents(kind, NEW_ROWS, n, rng)
        true = sum(p.logpdf(column) for p, column in zip(densities(kind, n), new.T, strict=True))
        row["below"] = float(np.mean(true)) - np.linalg.slogdet(mixing)[1] - model.score(new @ mixing)
    return row


def certificate(kind: str, n: int, rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, n, rows])
    z = latents(kind, rows, n, rng)
    x = z @ rng.normal(size=(n, n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LinearICA(random_state=seed).fit(x)
    found = model.certificate_
    row = {"kind": kind, "n": n, "rows": rows, "seed": seed, "level": str(found.level)}
    if kind in ("two gaussian", "t 5 pair"):
        correlation = np.abs(np.corrcoef(z, model.transform(x), rowvar=False)[:n, n:])
        matched = linear_sum_assignment(-correlation)[1]
        row["split"] = bool(found.blocks) and not any({*matched[:2]} <= {*block} for block in found.blocks)
    return row | {check.name: check.verdict for check in found.checks}


def main() -> None:
    parser = arguments(__doc__, seeds=10)
    parser.add_argument("part", choices=("accuracy", "certificates"))
    choose(parser, "--kinds", (*KINDS, *FALSE))
    parser.add_argument("--rows", nargs="+", type=int, default=[400, 2000, 10000])
    parser.add_argument("--latents", nargs="+", type=int, default=[3, 5, 10])
    parser.add_argument("--noise", action="store_true")
    options = parse(parser)
    settings = [(kind, n, rows) for kind in options.kinds for rows in options.rows for n in options.latents]
    if options.part == "accuracy":
        jobs = [(*one, options.noise, seed) for one in settings if one[0] in KINDS for seed in options.seeds]
        frame = run_jobs(accuracy, jobs, options)
        frame["worse"] = frame["LinearICA"] - frame[["FastICA", "Picard"]].max(axis=1)
        groups = frame.groupby(["kind", "rows", "n"], sort=False)
        table = groups.mean(numeric_only=True).drop(columns=["seed", "noise"]).assign(worse=groups["worse"].min())
        print(table.round(4).to_string())
        return
    frame = run_jobs(certificate, [(*one, seed) for one in settings for seed in options.seeds], options)
    print(frame.groupby(["kind", "rows", "n"], sort=False)["level"].value_counts().unstack(fill_value=0).to_string())
    if "split" in frame:
        print(frame.dropna(subset="split").groupby(["kind", "rows", "n"], sort=False)["split"].sum().to_string())


if __name__ == "__main__":
    main()
