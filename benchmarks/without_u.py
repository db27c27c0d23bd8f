"""Can the latents of segments be recovered without knowing which row is from which segment?

    python benchmarks/without_u.py [--sizes 2000] [--methods GMMFlow VaDE] [--seeds 10] [--first-seed 0] [--jobs J]
    python benchmarks/without_u.py --read results.csv [--figure figure.png]

The data of Willetts & Paige (2021, section 5): 5 latents, 20 segments of 100 to 2000 rows, a 4-layer leaky mixing. MCC
is that of 5000 new rows; no fit uses the ground truth. Methods marked (u) are given u, the others are not. One line per
fit, then a table. Every fit runs on one thread; --jobs runs several at once, which makes their seconds unreliable.
`identifiable reproduce willetts/figure2` runs the published figure with fewer methods.
"""

import json

import numpy as np
import pandas as pd

from common import arguments, certificate_of, choose, fit_and_score, parse, run_jobs, summary, use_one_thread
from identifiable import IVAE, FactorialUnmixing, GMMFlow, IFlow, SegmentUnmixing, VaDE, baselines
from identifiable.data import make_tcl
from identifiable.metrics import mcc

SEGMENTS, N = 20, 5
SIZES = [100, 200, 500, 1000, 2000]
PAPER = {"flow": "autoregressive", "full_covariance_steps": 0, "n_components": 50} | {
    "batch_size": 256,
    "learning_rate": 1e-3,
}
RANDOM = {"init": "random", "posterior": "diagonal", "max_steps": 20_000, "batch_size": 64, "learning_rate": 1e-3}
METHODS = baselines(N) | {
    "FactorialUnmixing": FactorialUnmixing(N, n_components=40, n_restarts=2, max_iter=50),
    "GMMFlow": GMMFlow(N, verbose=0),
    "GMMFlow, autoregressive": GMMFlow(N, flow="autoregressive", verbose=0),
    "GMMFlow, as in the paper": GMMFlow(N, **PAPER, verbose=0),
    "VaDE": VaDE(N, 40, verbose=0),
    "VaDE, as in the paper": VaDE(N, 40, **RANDOM, verbose=0),
    "SegmentUnmixing (u)": SegmentUnmixing(N),
    "IFlow (u)": IFlow(N, verbose=0),
    "IVAE (u)": IVAE(N, verbose=0),
}
FAST = [*baselines(), "FactorialUnmixing", "SegmentUnmixing (u)"]


def fit_one(size, method, seed, device):
    """Fit one method to one data set; return its row."""
    use_one_thread()
    sample = make_tcl(size * SEGMENTS, n=N, segments=SEGMENTS, random_state=seed)
    model = METHODS[method].set_params(random_state=seed)
    if device is not None:
        model.set_params(device=device)
    found, new = fit_and_score(model, sample, seed)
    row = {"size": size, "method": method, "seed": seed} | found
    if isinstance(model, GMMFlow | VaDE):
        row["restarts"] = json.dumps([mcc(new.z, z) for z in model.latents_of_restarts(new.x)])
        row["scores"] = json.dumps(model.restart_scores_.tolist())
    return row | (certificate_of(model) if isinstance(model, GMMFlow | IFlow | VaDE | IVAE) else {})


def restarts(frame: pd.DataFrame, method: str) -> pd.DataFrame:
    """Return likelihood and MCC of every restart, both minus their mean over the restarts of the same data set."""
    rows = []
    for fit in frame[frame["method"] == method].to_dict("records"):
        found, scores = (np.array(json.loads(fit[name])) for name in ("restarts", "scores"))
        for r, (value, score) in enumerate(zip(found, scores, strict=True)):
            kept = r == int(np.argmax(scores))
            rows.append((fit["size"], fit["seed"], value, score, value - found.mean(), score - scores.mean(), kept))
    return pd.DataFrame(rows, columns=["size", "seed", "mcc", "score", "own mcc", "own score", "kept"])


def correlations(frame: pd.DataFrame) -> None:
    """Print how well likelihood indicates the best restart of a data set."""
    for method in (name for name in METHODS if name.startswith(("GMMFlow", "VaDE")) and name in set(frame["method"])):
        every = restarts(frame, method)
        for size, own in every.groupby("size"):
            best = own.groupby("seed")["mcc"].max().mean()
            r = np.corrcoef(own["own score"], own["own mcc"])[0, 1]
            print(
                f"{method}, {size} per segment: correlation of likelihood and MCC over restarts of a data set {r:.2f}; "
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
        axis.set(xlabel=f"held-out {score} minus the mean of the data set", ylabel="MCC minus the mean of the data set")
        axis.set_title(f"{method}, every restart", fontsize=10)
        axis.legend(fontsize=7, frameon=False)
    for axis in (left, *others):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = arguments(__doc__, seeds=10)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    choose(parser, "--methods", METHODS)
    parser.add_argument("--device")
    parser.add_argument("--read", nargs="+", help="results of earlier runs, instead of new ones")
    parser.add_argument("--figure")
    options = parse(parser)
    if options.read:
        frame = pd.concat([pd.read_csv(path) for path in options.read])
    else:
        jobs = [(n, m, seed, options.device) for n in options.sizes for m in options.methods for seed in options.seeds]
        jobs.sort(key=lambda job: (job[1] in FAST, -job[0]))  # the long ones first
        frame = run_jobs(fit_one, jobs, options)
    print(summary(frame, ["size", "method"]).sort_index(level="size", sort_remaining=False).to_string())
    correlations(frame)
    if options.figure:
        draw(frame, options.figure)


if __name__ == "__main__":
    main()
