"""Does `Identify` take the right model for tables whose law it is not told, and does what it calls stable come back?

    python benchmarks/identify.py [--laws pdGMM GMM] [--real sachs digits mnist] [--methods Identify] [--seeds 3]
                                  [--minutes 10] [--jobs J]
    python benchmarks/identify.py --read results.jsonl

Six laws, 5 latents, 4000 rows; MCC is that of 4000 new rows, beside every single method with its own defaults and the
trivial baselines. Then real tables, a fifth of whose rows (at most 2000) no run sees: two runs with other seeds, and
the MCC between them on these rows beside the stability that the first one reports. No fit sees a truth. A line of JSON
per run, then tables. Every fit runs on one thread; --jobs runs several at once.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed, parallel_config

from identifiable import (
    PDGMM,
    FactorialUnmixing,
    GMMFlow,
    Identify,
    IFlow,
    IndependentComponents,
    PrincipalComponents,
    RawData,
    SegmentUnmixing,
    SparseUnmixing,
)
from identifiable.data import (
    load_digits,
    load_mnist,
    load_sachs,
    make_gmm,
    make_pdgmm,
    make_segments,
)
from identifiable.data.sample import Sample
from identifiable.metrics import match, mcc

ROWS, N, MOST_NEW = 4000, 5, 2000


def noise(rows, random_state):
    rng = np.random.default_rng(random_state)
    z = rng.normal(size=(rows, N))
    return Sample(x=z @ rng.normal(size=(N, N)), z=z)


LAWS = {
    "linear sparse": lambda rows, seed: make_pdgmm(rows, n=N, layers=1, random_state=seed),
    "pdGMM": lambda rows, seed: make_pdgmm(rows, n=N, random_state=seed),
    "segments": lambda rows, seed: make_segments(rows, n=N, segments=20, random_state=seed),
    "linear GMM": lambda rows, seed: make_gmm(rows, n=N, layers=1, random_state=seed),
    "GMM": lambda rows, seed: make_gmm(rows, n=N, random_state=seed),
    "noise": lambda rows, seed: noise(rows, seed),
}
REAL = {"sachs": load_sachs, "digits": load_digits, "mnist": load_mnist}
METHODS = {
    "raw x": lambda seed: RawData(),
    "PCA": lambda seed: PrincipalComponents(N),
    "FastICA": lambda seed: IndependentComponents(N, random_state=seed),
    "SparseUnmixing": lambda seed: SparseUnmixing(N, random_state=seed, verbose=0),
    "FactorialUnmixing": lambda seed: FactorialUnmixing(N, random_state=seed),
    "PDGMM": lambda seed: PDGMM(N, random_state=seed, verbose=0),
    "GMMFlow": lambda seed: GMMFlow(N, random_state=seed, verbose=0),
    "SegmentUnmixing": lambda seed: SegmentUnmixing(N, random_state=seed),
    "IFlow": lambda seed: IFlow(N, random_state=seed, verbose=0),
}
GIVEN_U = ("SegmentUnmixing", "IFlow")


def told(model):
    return {
        "model": type(model.model_).__name__,
        "verdict": model.verdict_,
        "latents": model.n_latents_,
        "stable": sum(t.verdict == "stable" for t in model.latent_reports_),
        "expected": model.expected_mcc_,
        "seed_agreement": float(np.mean([t.seed_agreement for t in model.latent_reports_])),
        "split_half_agreement": float(np.mean([t.split_half_agreement for t in model.latent_reports_])),
        "reasons": list(model.reasons_),
        "tried": {t.name: [t.gain, t.error, t.agreement, t.seconds, t.note] for t in model.candidates_},
    }


def run(kind, name, method, seed, seconds):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    try:
        found = generated(name, method, seed, seconds) if kind == "law" else real(name, seed, seconds)
    except Exception as error:  # one failure must not lose the others
        found = {"error": repr(error)}
    line = {"kind": kind, "name": name, "method": method, "seed": seed, "seconds": time.perf_counter() - start} | found
    print(json.dumps(line), flush=True)
    return line


def generated(law, method, seed, seconds):
    s = LAWS[law](2 * ROWS, seed)
    x, new, u = s.x[:ROWS], s.x[ROWS:], None if s.u is None else s.u[:ROWS]
    if method == "Identify":
        model = Identify(random_state=seed, verbose=0, seconds=seconds).fit(x, u)
    else:
        model = METHODS[method](seed)
        model.fit(*((x, u) if method in GIVEN_U else (x,)))
    return {"mcc": mcc(s.z[ROWS:], model.transform(new))} | (told(model) if method == "Identify" else {})


def real(table, seed, seconds):
    s = REAL[table]()
    order = np.random.default_rng(0).permutation(len(s.x))
    new, rows = np.split(order, [min(MOST_NEW, len(order) // 5)])
    x = np.asarray(s.x, dtype=np.float64)
    varies = x[rows].std(0) > 0
    x = x[:, varies]
    u = s.u[rows] if table == "sachs" else None  # the digits' names are no experiment
    model = Identify(random_state=seed, verbose=0, seconds=seconds, common_scale=table != "sachs").fit(x[rows], u)
    return {"z": np.asarray(model.transform(x[new])).tolist()} | told(model)


def jobs_of(args):
    given = {"segments": [*METHODS]}
    plain = [name for name in METHODS if name not in GIVEN_U]
    law_jobs = [
        ("law", law, method, seed, args.minutes * 60)
        for method in ("Identify", "GMMFlow", "PDGMM", "IFlow", *METHODS)
        for law in args.laws
        for seed in range(args.first_seed, args.first_seed + args.seeds)
        if method in args.methods and method in ("Identify", *given.get(law, plain))
    ]
    two = (args.first_seed, args.first_seed + 1)
    runs = [("real", table, "Identify", seed, args.minutes * 60) for table in args.real for seed in two]
    return list(dict.fromkeys(runs + law_jobs))


def tables(lines):
    frame = pd.DataFrame(lines)
    for line in frame.get("error", pd.Series(dtype=object)).dropna():
        print("failed:", line)
    law = frame[(frame.kind == "law") & frame.mcc.notna()] if "mcc" in frame else frame[:0]
    if len(law):
        each = law.groupby(["method", "name"]).mcc.agg(["mean", "std"])
        print(each.apply(lambda r: f"{r['mean']:.3f} ± {r['std']:.3f}", axis=1).unstack().to_string(), "\n")
        for (name, seed), group in law.groupby(["name", "seed"]):
            single = group[group.method != "Identify"].set_index("method").mcc
            for _, own in group[group.method == "Identify"].iterrows():
                best = f"best single {single.idxmax()} {single.max():.3f}" if len(single) else ""
                print(
                    f"{name}, seed {seed}: {own.model} {own.mcc:.3f}, {own.verdict}, {own.stable:.0f} of "
                    f"{own.latents:.0f} stable, {own.seconds:.0f} s; {best}"
                )
    for name, group in frame[(frame.kind == "real") & frame.get("z", pd.Series(index=frame.index)).notna()].groupby(
        "name"
    ):
        for _, own in group.iterrows():
            print(
                f"{name}, seed {own.seed}: {own.model}, {own.verdict}, {own.stable:.0f} of {own.latents:.0f} stable, "
                f"another run expected at {own.expected:.3f} (again {own.again:.3f}, halves {own.halves:.3f}), "
                f"{own.seconds:.0f} s"
            )
        if len(group) == 2:
            z = [np.array(one) for one in group.z]
            between = np.abs(match(*z).correlations)
            print(f"{name}: MCC between the two {between.mean():.3f}, each {np.round(between, 3).tolist()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--laws", nargs="*", choices=LAWS, default=list(LAWS))
    parser.add_argument("--real", nargs="*", choices=REAL, default=[])
    parser.add_argument("--methods", nargs="*", choices=["Identify", *METHODS], default=["Identify", *METHODS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--read")
    args = parser.parse_args()
    if args.read:
        tables([json.loads(line) for line in Path(args.read).read_text().splitlines()])
        return
    with parallel_config("loky", n_jobs=args.jobs, inner_max_num_threads=1):
        lines = Parallel(batch_size=1)(delayed(run)(*job) for job in jobs_of(args))
    sys.stdout.flush()
    tables(lines)


if __name__ == "__main__":
    main()
