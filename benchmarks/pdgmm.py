"""How does PDGMM compare with published numbers and trivial baselines, also on stronger mixings?

    python benchmarks/pdgmm.py [--settings "n=10" medium] [--seeds 5] [--first-seed 0] [--baselines no|too|only]
    python benchmarks/pdgmm.py --grow 5 10 20 40 80            seconds and MCC by number of latents, and the exponent

Every data set has 20,000 rows; MCC and R² are those of 5000 new rows. No fit uses the ground truth. All data sets of
one shape are fitted in one batch (`fit_many`), on a GPU if there is one. theta: MCC with the sparse latents, and
`rotated` with the rotated ones, which is what was published. "best affine" is the best affine map of x, least squares
on the truth. One line per data set, then a table. On a CPU it takes a minute per data set at n = 10, more for a longer
fit. `identifiable reproduce xu2026/table1` runs the published settings with more methods.
"""

import numpy as np
import torch
from sklearn.base import clone

from common import NEW_ROWS, Results, arguments, choose, parse, summary, timed
from identifiable import PDGMM, baselines
from identifiable.data import make_gmm, make_pdgmm
from identifiable.experiments.papers import find
from identifiable.metrics import mcc, r2

ROWS = 20_000
TABLE_1 = {setting.name: dict(setting.values) for setting in find("xu2026/table1").settings}
PUBLISHED = {
    p.setting: p.mean for p in find("xu2026/table1").published if (p.metric, p.method[11:]) == ("mcc", "TwoStage")
}
OTHERS = {
    "medium": {"difficulty": "medium"},
    "slope .2, 5": {"slopes": 0.2, "layers": 5},
    "slope .35, 7": {"slopes": 0.35, "layers": 7},
    "wide": {"difficulty": "wide"},
    "hard": {"difficulty": "hard"},
    "exponential": {"noise_law": "exponential"},
    "gumbel": {"noise_law": "gumbel"},
    "smooth": {"activation": "smooth"},
    "sigmoid": {"activation": "sigmoid"},
    "example E.2": {"example": "E.2"},
    "two bases": {"second_basis": 30},
    "gmm": {"law": "gmm"},
    **{f"n_latents {m}": {"latents": m} for m in (12, 16, 20)},
}
SETTINGS = TABLE_1 | OTHERS


def make(setting, seed):
    """Return a sample, new rows, their sparse latents, and the number of latents to estimate."""
    values = {"n": 10} | {k: v for k, v in SETTINGS[setting].items() if k not in ("law", "rows", "latents")}
    simulate = make_gmm if SETTINGS[setting].get("law") == "gmm" else make_pdgmm
    sample = simulate(ROWS, **values, random_state=seed)
    new = sample.source.sample(NEW_ROWS, random_state=seed + 1)
    z = new.z @ sample.source.latents.rotation.numpy().T if setting.startswith("theta") else new.z
    return sample, new, z, SETTINGS[setting].get("latents", sample.z.shape[1])


def baseline_scores(sample, new, z, n, seed):
    """Return the MCC of the trivial baselines and of the best affine map."""
    found = {
        name: mcc(z, model.fit(sample.x).transform(new.x))
        for name, model in baselines(min(n, sample.x.shape[1]), random_state=seed).items()
    }
    ones = np.c_[new.x, np.ones(len(new.x))]
    return found | {"best affine": mcc(z, ones @ np.linalg.lstsq(ones, z, rcond=None)[0])}


def scores(model, new, z):
    """Return the recovery of a fit, and what it reports itself."""
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
    parser = arguments(__doc__)
    choose(parser, "--settings", SETTINGS, TABLE_1)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--baselines", choices=["no", "too", "only"], default="too")
    parser.add_argument("--grow", nargs="+", type=int)
    options = parse(parser)
    if options.grow:
        grow(options.grow, options.first_seed, options.restarts)
        return
    results = Results(options.csv)
    data = [(setting, seed, *make(setting, seed)) for setting in options.settings for seed in options.seeds]
    for n in sorted({one[5] for one in data}):
        own = [one for one in data if one[5] == n]
        method = PDGMM(n, n_restarts=options.restarts, random_state=0, verbose=0)
        batch = torch.cuda.is_available() and options.baselines != "only"  # on a CPU, a batch is not faster
        models = method.fit_many([one[2].x for one in own]) if batch else [clone(method) for _ in own]
        for (setting, seed, sample, new, z, _), model in zip(own, models, strict=True):
            row = {"setting": setting, "seed": seed, "published": PUBLISHED.get(setting, np.nan)}
            if options.baselines != "no":
                row |= baseline_scores(sample, new, z, n, seed)
            if options.baselines != "only":
                seconds = 0.0 if batch else timed(lambda model=model, sample=sample: model.fit(sample.x))[1]
                row |= scores(model, new, z) | {"seconds": seconds}
            results.add(row)
    frame = results.frame()
    numbers = [c for c in (*baselines(), "best affine", "PDGMM", "R2", "rotated") if c in frame]
    print(frame.groupby("setting", sort=False)[numbers].mean().round(4).to_string())
    print(summary(frame, ["setting"], "PDGMM" if "PDGMM" in frame else "SparseUnmixing").to_string())


def grow(sizes: list[int], seed: int, restarts: int) -> None:
    """Print seconds and MCC for each number of latents, and the exponent of the growth."""
    seconds = []
    for n in sizes:
        sample = make_pdgmm(ROWS, n=n, random_state=seed)
        new = sample.source.sample(NEW_ROWS, random_state=seed + 1)
        model = PDGMM(n, n_restarts=restarts, random_state=seed, verbose=0)
        seconds.append(timed(lambda model=model, sample=sample: model.fit(sample.x))[1])
        score = mcc(new.z, model.transform(new.x))
        print(f"n = {n:<3} {seconds[-1]:7.1f} s   MCC {score:.4f}   {model.fit_status_}", flush=True)
    slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    print(f"seconds grow as n^{slope:.2f}")


if __name__ == "__main__":
    main()
