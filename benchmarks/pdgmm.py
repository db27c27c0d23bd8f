"""PDGMM on the settings of the pdGMM paper and on stronger mixings, beside the trivial baselines.

    python benchmarks/pdgmm.py [--settings "n=10" medium] [--seeds 5] [--first-seed 0] [--baselines no|too|only]
    python benchmarks/pdgmm.py --grow 5 10 20 40 80            seconds and MCC by number of latents, and the exponent

Every draw has 20,000 rows; MCC and R² are those of 5000 new rows. No fit sees the truth. All draws of one shape are
fitted in one batch (`fit_many`), on a GPU where there is one. theta: MCC against the basis in which the latents rest,
and `rotated` against the latents themselves, which is what was published.
A line per draw, then a table. On a CPU it takes a minute a draw at n = 10, more where a longer fit is needed.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from identifiable import IndependentComponents, PrincipalComponents, RecoveryWarning, SparseUnmixing
from identifiable.data import make_gmm, make_pdgmm
from identifiable.estimators.pdgmm.estimator import PDGMM
from identifiable.metrics import mcc, r2

ROWS, NEW_ROWS = 20_000, 5000
TABLE_1 = {  # law, and the published MCC
    "n=5": ({"n": 5}, 0.96),
    "n=10": ({}, 0.97),
    "n=20": ({"n": 20}, 0.92),
    "n=40": ({"n": 40}, 0.94),
    "k=0": ({"k": 0}, 0.97),
    "k=2": ({"k": 2}, 0.95),
    "k=3": ({"k": 3}, 0.91),
    "layers 3": ({"layers": 3}, 0.96),
    "layers 20": ({"layers": 20}, 0.93),
    "1 var": ({"rho": "1 var"}, 0.45),
    "rho 75": ({"rho": 75}, 0.93),
    "delta 1": ({"delta": 1}, 0.88),
    "delta 2": ({"delta": 2}, 0.61),
    "delta 3": ({"delta": 3}, 0.49),
    "theta 15": ({"theta": 15}, 0.83),
    "theta 30": ({"theta": 30}, 0.60),
    "theta 45": ({"theta": 45}, 0.62),
}
STRONGER = {
    "medium": ({"difficulty": "medium"}, np.nan),
    "slope .2, 5": ({"slopes": 0.2, "layers": 5}, np.nan),
    "slope .35, 7": ({"slopes": 0.35, "layers": 7}, np.nan),
    "wide": ({"difficulty": "wide"}, np.nan),
    "hard": ({"difficulty": "hard"}, np.nan),
}
OTHERS = {
    "exponential": ({"noise_law": "exponential"}, 0.96),
    "gumbel": ({"noise_law": "gumbel"}, 0.97),
    "smooth": ({"activation": "smooth"}, 0.98),
    "sigmoid": ({"activation": "sigmoid"}, 0.32),
    "example E.2": ({"example": "E.2"}, 0.47),
    "two bases": ({"second_basis": 30}, np.nan),
    "gmm": ("gmm", np.nan),
    **{f"n_latents {m}": ({"n_latents": m}, p) for m, p in ((12, 0.96), (16, 0.93), (20, 0.96))},
}
SETTINGS = TABLE_1 | STRONGER | OTHERS


def draw(setting, seed):
    """Return a sample, new rows of its law, its sparse latents of these, and how many latents to ask for."""
    law = SETTINGS[setting][0]
    if law == "gmm":
        sample = make_gmm(ROWS, n=10, random_state=seed)
        asked = 10
    else:
        asked = law.get("n_latents")
        sample = make_pdgmm(ROWS, **{"n": 10, **{k: v for k, v in law.items() if k != "n_latents"}}, random_state=seed)
    new = sample.source.sample(NEW_ROWS, random_state=seed + 1)
    z = new.z
    if setting.startswith("theta"):
        z = z @ np.linalg.inv(sample.source.latents.rotation.numpy())
    return sample, new, z, asked or sample.z.shape[1]


def baseline_scores(sample, new, z, n, seed):
    """Return the MCC of the raw columns, PCA, FastICA and SparseUnmixing."""
    scores = {"raw x": mcc(z, new.x)}
    for name, method in (
        ("PCA", PrincipalComponents),
        ("FastICA", IndependentComponents),
        ("SparseUnmixing", SparseUnmixing),
    ):
        scores[name] = mcc(z, method(min(n, sample.x.shape[1]), random_state=seed).fit(sample.x).transform(new.x))
    return scores


def scores(model, new, z):
    """Return what a fit is worth, and what it says of itself."""
    latents = model.transform(new.x)
    return {
        "PDGMM": mcc(z, latents),
        "R2": r2(new.z, latents),
        "rotated": mcc(new.z, latents),
        "agreement": model.stability_.score,
        "status": model.fit_status_,
        "extended": model.trained_extended_,
        "level": str(model.certificate_.level.name),
        "unused": len(model.unused_),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=list(TABLE_1), choices=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--baselines", choices=["no", "too", "only"], default="too")
    parser.add_argument("--grow", nargs="+", type=int)
    parser.add_argument("--csv", help="write a line per draw here")
    options = parser.parse_args()
    warnings.simplefilter("ignore", RecoveryWarning)
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    if options.grow:
        grow(options.grow, options.first_seed, options.restarts)
        return
    rows, draws = [], []
    for setting in options.settings:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            draws.append((setting, seed, *draw(setting, seed)))
    for asked in sorted({d[5] for d in draws}):
        own = [d for d in draws if d[5] == asked]
        models: list[PDGMM | None] = [None] * len(own)
        if options.baselines != "only":
            started = time.perf_counter()
            method = PDGMM(asked, n_restarts=options.restarts, random_state=0, verbose=0)
            sets = [d[2].x for d in own]
            # On a CPU one by one: a batch gains nothing there, and every line comes as soon as it is known.
            models = method.fit_many(sets) if torch.cuda.is_available() else models
            print(f"{asked} latents: {len(own)} fits in {time.perf_counter() - started:.0f} s", flush=True)
        for (setting, seed, sample, new, z, n), model in zip(own, models, strict=True):
            row = {"setting": setting, "seed": seed, "published": SETTINGS[setting][1]}
            if options.baselines != "no":
                row |= baseline_scores(sample, new, z, n, seed)
            if options.baselines != "only":
                started = time.perf_counter()
                model = model if model is not None else clone(method).fit(sample.x)
                row |= scores(model, new, z) | {"seconds": time.perf_counter() - started}
            rows.append(row)
            cells = (f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
            print("  ".join(cells), flush=True)
            if options.csv:
                pd.DataFrame(rows).to_csv(options.csv, index=False)
    frame = pd.DataFrame(rows)
    numbers = [c for c in ("raw x", "PCA", "FastICA", "SparseUnmixing", "PDGMM", "R2", "rotated") if c in frame]
    groups = frame.groupby("setting", sort=False)
    table = groups[numbers].mean().round(4)
    if "PDGMM" in frame:
        table["sd"], table["worst"] = groups["PDGMM"].std().round(4), groups["PDGMM"].min().round(4)
        table["stable"] = groups["status"].apply(lambda s: (s == "stable").sum())
    table["published"] = groups["published"].first()
    print(table.to_string())


def grow(sizes: list[int], seed: int, restarts: int) -> None:
    """Print seconds and MCC for each number of latents, and the exponent of the growth."""
    seconds = []
    for n in sizes:
        sample = make_pdgmm(ROWS, n=n, random_state=seed)
        new = sample.source.sample(NEW_ROWS, random_state=seed + 1)
        started = time.perf_counter()
        model = PDGMM(n, n_restarts=restarts, random_state=seed, verbose=0).fit(sample.x)
        seconds.append(time.perf_counter() - started)
        score = mcc(new.z, model.transform(new.x))
        print(f"n = {n:<3} {seconds[-1]:7.1f} s   MCC {score:.4f}   {model.fit_status_}", flush=True)
    slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    print(f"seconds grow as n^{slope:.2f}")


if __name__ == "__main__":
    main()
