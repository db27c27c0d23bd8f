"""Does `Identify` select the correct model for an unknown distribution, and are its stable latents reproducible?

    python benchmarks/identify.py [--simulated pdGMM GMM] [--real sachs digits mnist] [--methods Identify] [--seeds 3]
                                  [--minutes 10] [--jobs J]

Six simulators, 5 latents, 4000 rows; MCC is that of 4000 new rows, compared with every single method with its defaults
and the trivial baselines. Then real tables, a fifth of whose rows (at most 2000) are held out: two runs with different
seeds, and the MCC between them on these rows compared with the stability that the first one reports. No fit uses a
ground truth. One line of JSON per run, then tables. Every fit runs on one thread; --jobs runs several at once.
"""

import json
import sys
from functools import partial

import numpy as np
import pandas as pd
from joblib import Parallel, delayed, parallel_config

from common import arguments, choose, parse, timed, use_one_thread
from identifiable import PDGMM, FactorialUnmixing, GMMFlow, Identify, IFlow, SegmentUnmixing, baselines
from identifiable.data import load_digits, load_mnist, load_sachs, make_gmm, make_pdgmm, make_segments
from identifiable.data.sample import Sample
from identifiable.metrics import match, mcc

ROWS, N, MOST_NEW = 4000, 5, 2000


def noise(rows, random_state):
    rng = np.random.default_rng(random_state)
    z = rng.normal(size=(rows, N))
    return Sample(x=z @ rng.normal(size=(N, N)), z=z)


SIMULATED = {
    "linear sparse": partial(make_pdgmm, n=N, layers=1),
    "pdGMM": partial(make_pdgmm, n=N),
    "segments": partial(make_segments, n=N, segments=20),
    "linear GMM": partial(make_gmm, n=N, layers=1),
    "GMM": partial(make_gmm, n=N),
    "noise": noise,
}
REAL = {"sachs": load_sachs, "digits": load_digits, "mnist": load_mnist}
METHODS = baselines(N) | {
    "FactorialUnmixing": FactorialUnmixing(N),
    "PDGMM": PDGMM(N, verbose=0),
    "GMMFlow": GMMFlow(N, verbose=0),
    "SegmentUnmixing": SegmentUnmixing(N),
    "IFlow": IFlow(N, verbose=0),
}
GIVEN_U = ("SegmentUnmixing", "IFlow")


def summary_of(model):
    return {
        "model": type(model.model_).__name__,
        "verdict": model.verdict_,
        "latents": model.n_latents_,
        "stable": sum(t.verdict == "stable" for t in model.latent_reports_),
        "expected": model.expected_mcc_,
        "seed_agreement": float(np.mean([t.seed_agreement for t in model.latent_reports_])),
        "split_half_agreement": float(np.mean([t.split_half_agreement for t in model.latent_reports_])),
        "tried": {t.name: [t.gain, t.error, t.agreement, t.seconds, t.note] for t in model.candidates_},
    }


def run(kind, name, method, seed, seconds):
    use_one_thread()
    measure = simulated if kind == "simulated" else real

    def found():
        try:
            return measure(name, method, seed, seconds)
        except Exception as error:  # one failure must not lose the others
            return {"error": repr(error)}

    result, elapsed = timed(found)
    line = {"kind": kind, "name": name, "method": method, "seed": seed, "seconds": elapsed} | result
    print(json.dumps(line), flush=True)
    return line


def simulated(name, method, seed, seconds):
    s = SIMULATED[name](2 * ROWS, random_state=seed)
    x, new, u = s.x[:ROWS], s.x[ROWS:], None if s.u is None else s.u[:ROWS]
    if method == "Identify":
        model = Identify(random_state=seed, verbose=0, seconds=seconds).fit(x, u)
    else:
        model = METHODS[method].set_params(random_state=seed)
        model.fit(*((x, u) if method in GIVEN_U else (x,)))
    return {"mcc": mcc(s.z[ROWS:], model.transform(new))} | (summary_of(model) if method == "Identify" else {})


def real(table, method, seed, seconds):
    s = REAL[table]()
    order = np.random.default_rng(0).permutation(len(s.x))
    new, rows = np.split(order, [min(MOST_NEW, len(order) // 5)])
    x = np.asarray(s.x, dtype=np.float64)
    varies = x[rows].std(0) > 0
    x = x[:, varies]
    u = s.u[rows] if table == "sachs" else None  # the digit is not an experimental condition
    model = Identify(random_state=seed, verbose=0, seconds=seconds, common_scale=table != "sachs").fit(x[rows], u)
    return {"z": np.asarray(model.transform(x[new])).tolist()} | summary_of(model)


def jobs_of(args):
    given = {"segments": [*METHODS]}
    plain = [name for name in METHODS if name not in GIVEN_U]
    jobs = [("real", table, "Identify", seed, args.minutes * 60) for table in args.real for seed in args.seeds[:2]]
    jobs += [
        ("simulated", name, method, seed, args.minutes * 60)
        for method in ("Identify", "GMMFlow", "PDGMM", "IFlow", *METHODS)  # the long ones first
        for name in args.simulated
        for seed in args.seeds
        if method in args.methods and method in ("Identify", *given.get(name, plain))
    ]
    return list(dict.fromkeys(jobs))


def tables(lines):
    """Print MCC by method and simulator, then what `Identify` selected, then how two runs on real tables agree."""
    frame = pd.DataFrame(lines).reindex(columns=sorted({"mcc", "z", "error"}.union(*lines)))
    for error in frame.error.dropna():
        print("failed:", error)
    found = frame[(frame.kind == "simulated") & frame.mcc.notna()]
    if len(found):
        each = found.groupby(["method", "name"]).mcc.agg(["mean", "std"])
        print(each.apply(lambda r: f"{r['mean']:.3f} ± {r['std']:.3f}", axis=1).unstack().to_string(), "\n")
    for (name, seed), group in found.groupby(["name", "seed"]):
        single = group[group.method != "Identify"].set_index("method").mcc
        best = f"; best single method: {single.idxmax()} {single.max():.3f}" if len(single) else ""
        for _, own in group[group.method == "Identify"].iterrows():
            print(f"{name}, seed {seed}: {selection(own)}, MCC {own.mcc:.3f}{best}")
    for name, group in frame[(frame.kind == "real") & frame.z.notna()].groupby("name"):
        for _, own in group.iterrows():
            agreement = f"seed {own.seed_agreement:.3f}, split-half {own.split_half_agreement:.3f}"
            print(f"{name}, seed {own.seed}: {selection(own)}, expected agreement {own.expected:.3f} ({agreement})")
        if len(group) == 2:
            between = np.abs(match(*(np.array(z) for z in group.z)).correlations)
            print(f"{name}: MCC between the two runs {between.mean():.3f}, each {np.round(between, 3).tolist()}")


def selection(run):
    return f"{run.model}, {run.verdict}, {run.stable:.0f} of {run.latents:.0f} latents stable, {run.seconds:.0f} s"


def main():
    parser = arguments(__doc__, seeds=3)
    parser.add_argument("--simulated", nargs="*", choices=SIMULATED, default=list(SIMULATED))
    parser.add_argument("--real", nargs="*", choices=REAL, default=[])
    choose(parser, "--methods", ["Identify", *METHODS])
    parser.add_argument("--minutes", type=float, default=10)
    args = parse(parser)
    with parallel_config("loky", n_jobs=args.jobs, inner_max_num_threads=1):
        lines = Parallel(batch_size=1)(delayed(run)(*job) for job in jobs_of(args))
    sys.stdout.flush()
    tables(lines)


if __name__ == "__main__":
    main()
