"""Can the latents of segments be recovered when nobody says which row is from which segment?

    python benchmarks/without_u.py [--sizes 2000] [--methods GMMFlow IFlow] [--seeds 10] [--first-seed 0] [--jobs J]
    python benchmarks/without_u.py --read results.csv [--figure figure.png]

The data of Willetts & Paige (2021, section 5): 5 latents, 20 segments of 100 to 2000 rows, a 4-layer leaky mixing. MCC
is that of 5000 new rows; no fit sees the truth. Methods marked (u) are given u, the others are not. A line per fit,
then a table. Every fit runs on one thread; --jobs runs several at once, which spoils their seconds.
"""

import argparse
import json
import time
import warnings

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed

from identifiable import (
    IVAE,
    FactorialUnmixing,
    GMMFlow,
    IFlow,
    IndependentComponents,
    PrincipalComponents,
    RawData,
    SegmentUnmixing,
    SparseUnmixing,
    VaDE,
)
from identifiable.data import make_tcl
from identifiable.metrics import mcc

NEW_ROWS, SEGMENTS, N = 5000, 20, 5
SIZES = [100, 200, 500, 1000, 2000]
PAPER = {
    "flow": "autoregressive",
    "full_covariance_steps": 0,
    "n_components": 50,
    "batch_size": 256,
    "learning_rate": 1e-3,
}
RANDOM = {"init": "random", "posterior": "diagonal", "max_steps": 20_000, "batch_size": 64, "learning_rate": 1e-3}
METHODS = {
    "raw x": lambda seed: RawData(),
    "PCA": lambda seed: PrincipalComponents(N),
    "FastICA": lambda seed: IndependentComponents(N, random_state=seed),
    "SparseUnmixing": lambda seed: SparseUnmixing(N, random_state=seed, verbose=0),
    "FactorialUnmixing": lambda seed: FactorialUnmixing(
        N, n_components=40, n_restarts=2, max_iter=50, random_state=seed
    ),
    "GMMFlow": lambda seed: GMMFlow(N, random_state=seed, verbose=0),
    "GMMFlow, autoregressive": lambda seed: GMMFlow(N, flow="autoregressive", random_state=seed, verbose=0),
    "GMMFlow, as in the paper": lambda seed: GMMFlow(N, **PAPER, random_state=seed, verbose=0),
    "VaDE": lambda seed: VaDE(N, 40, random_state=seed, verbose=0),
    "VaDE, as in the paper": lambda seed: VaDE(N, 40, **RANDOM, random_state=seed, verbose=0),
    "SegmentUnmixing (u)": lambda seed: SegmentUnmixing(N, random_state=seed),
    "IFlow (u)": lambda seed: IFlow(N, random_state=seed, verbose=0),
    "IVAE (u)": lambda seed: IVAE(N, random_state=seed, verbose=0),
}
QUICK = 6  # the last ones take longest, and go first


def one(size, method, seed, device):
    """Fit one method to one draw, and say what it is worth."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sample = make_tcl(size * SEGMENTS, n=N, segments=SEGMENTS, random_state=seed)
    new = sample.source.sample(NEW_ROWS, random_state=seed + 1)
    model = METHODS[method](seed)
    if device is not None:
        model.set_params(device=device)
    started = time.perf_counter()
    model.fit(sample.x, sample.u)
    row = {"size": size, "method": method, "seed": seed, "mcc": mcc(new.z, model.transform(new.x))}
    row |= {"seconds": time.perf_counter() - started, "agreement": model.stability_.score, "status": model.fit_status_}
    if isinstance(model, GMMFlow | VaDE):
        row["restarts"] = json.dumps([mcc(new.z, z) for z in model.latents_of_restarts(new.x)])
        row["scores"] = json.dumps(model.restart_scores_.tolist())
    if isinstance(model, GMMFlow | IFlow | VaDE | IVAE):
        certificate = model.certificate_
        row |= {"level": str(certificate.level), "at best": str(certificate.if_undecided_hold)}
        row["not held"] = " ".join(c.name for c in certificate.checks if c.verdict != "holds")
    return row


def run(options) -> pd.DataFrame:
    """Fit every method to every draw."""
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    cells = [(size, method, seed) for size in options.sizes for method in options.methods for seed in seeds]
    cells.sort(key=lambda c: (list(METHODS).index(c[1]) < QUICK - 1, -c[0]))
    found = []
    jobs = (delayed(one)(*cell, options.device) for cell in cells)
    for row in Parallel(options.jobs, return_as="generator_unordered")(jobs):
        found.append(row)
        print("  ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
        if options.csv:
            pd.DataFrame(found).to_csv(options.csv, index=False)
    return pd.DataFrame(found)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return mean, sd and worst MCC of every method and size."""
    groups = frame.groupby(["size", "method"])
    named = {"mcc": ("mcc", "mean"), "sd": ("mcc", "std"), "worst": ("mcc", "min"), "seconds": ("seconds", "mean")}
    result = groups.agg(**named, draws=("mcc", "size")).round(3)
    result["stable"] = groups["status"].apply(lambda s: (s == "stable").sum())
    order = {name: i for i, name in enumerate(METHODS)}
    return result.sort_index(level=["size", "method"], key=lambda c: c.map(order) if c.name == "method" else c)


def restarts(frame: pd.DataFrame, method: str) -> pd.DataFrame:
    """Return likelihood and MCC of every restart, both less their mean over the restarts of the same draw."""
    rows = []
    for fit in frame[frame["method"] == method].to_dict("records"):
        found, scores = (np.array(json.loads(fit[name])) for name in ("restarts", "scores"))
        for r, (value, score) in enumerate(zip(found, scores, strict=True)):
            kept = r == int(np.argmax(scores))
            rows.append((fit["size"], fit["seed"], value, score, value - found.mean(), score - scores.mean(), kept))
    return pd.DataFrame(rows, columns=["size", "seed", "mcc", "score", "own mcc", "own score", "kept"])


def correlations(frame: pd.DataFrame) -> None:
    """Print how far likelihood tells which restart is right, within draws."""
    for method in (name for name in METHODS if name.startswith(("GMMFlow", "VaDE")) and name in set(frame["method"])):
        every = restarts(frame, method)
        for size, own in every.groupby("size"):
            best = own.groupby("seed")["mcc"].max().mean()
            r = np.corrcoef(own["own score"], own["own mcc"])[0, 1]
            print(
                f"{method}, {size} per segment: correlation of likelihood and MCC over the restarts of a draw {r:.2f}; "
                f"MCC of the restart kept {own[own['kept']]['mcc'].mean():.3f}, of all {own['mcc'].mean():.3f}, of the "
                f"best {best:.3f}"
            )


STYLES = {"GMMFlow": ("#d94801", "o-"), "IFlow (u)": ("#084594", "s-"), "SegmentUnmixing (u)": ("#6baed6", "s:")}
STYLES |= {"VaDE": ("#238b45", "o-"), "IVAE (u)": ("#54278f", "s-")}


def draw(frame: pd.DataFrame, path: str) -> None:
    """Draw MCC against rows per segment, and held-out score against MCC over the restarts of GMMFlow and VaDE."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    known = set(frame["method"])
    searched = [name for name in ("GMMFlow", "VaDE") if name in known]
    figure = Figure(figsize=(5.2 * (1 + len(searched)), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, *others = figure.subplots(1, 1 + len(searched), squeeze=False)[0]
    greys = iter(["#252525", "#636363", "#969696", "#bdbdbd", "#41ab5d", "#fd8d3c", "#fdae6b", "#74c476"])
    for k, method in enumerate(name for name in METHODS if name in known):
        own = frame[frame["method"] == method].groupby("size")["mcc"]
        mean, sd = own.mean(), own.std().fillna(0)
        colour, style = STYLES.get(method) or (next(greys), "o:")
        line = {"fmt": style, "color": colour, "capsize": 2, "ms": 4, "lw": 1.4, "label": method}
        left.errorbar(mean.index * 1.02 ** (k - 4), mean, sd, **line)
    sizes = sorted(set(frame["size"]))
    left.set(xscale="log", xlabel="rows per segment", ylabel="MCC, new rows", ylim=(0.4, 1.01))
    left.set_xticks(sizes, [str(size) for size in sizes])
    left.minorticks_off()
    left.legend(fontsize=7, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, frameon=False)
    colours = dict(zip(SIZES, ["#440154", "#3b528b", "#21918c", "#5ec962", "#d4c51c"], strict=True))
    for method, axis in zip(searched, others, strict=True):
        for size, own in restarts(frame, method).groupby("size"):
            r = np.corrcoef(own["own score"], own["own mcc"])[0, 1]
            label = f"{size} per segment, r = {r:.2f}"
            axis.plot(own["own score"], own["own mcc"], "o", ms=4, color=colours.get(size), label=label)
        score = "log-likelihood" if method == "GMMFlow" else "bound"
        axis.set(xlabel=f"held-out {score} less the draw's mean", ylabel="MCC less the draw's mean")
        axis.set_title(f"{method}, every restart", fontsize=10)
        axis.legend(fontsize=7, frameon=False)
    for axis in (left, *others):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device")
    parser.add_argument("--csv", help="write a line per fit here")
    parser.add_argument("--read", nargs="+", help="results of earlier runs, instead of new ones")
    parser.add_argument("--figure")
    options = parser.parse_args()
    frame = pd.concat([pd.read_csv(path) for path in options.read]) if options.read else run(options)
    print(summary(frame).to_string())
    correlations(frame)
    if options.figure:
        draw(frame, options.figure)


if __name__ == "__main__":
    main()
