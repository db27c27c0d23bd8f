"""An experiment that was never run: seventeen settings, eight methods, five seeds, plausible numbers."""

from dataclasses import replace
from functools import cache

import numpy as np

from identifiable.experiments.recipe import BASELINES, Method, Published, QuickOverrides, Recipe, Record, Setting

HOSTILE = "<script>alert(1)</script>"
QUOTES = "\" onmouseover='alert(1)' x=\""
BASE = {"law": "pdgmm", "rows": 20_000, "n": 10, "k": 1, "layers": 10, "rho": 50, "delta": 0, "theta": 0}
# What a setting changes; the published two stages and VaDE; how hard it is for a method that learns, and for a line.
SETTINGS = {
    "n=5": ({"n": 5}, (0.96, 0.01), (0.45, 0.05), 0.975, 0.97),
    "n=10": ({}, (0.97, 0.01), (0.32, 0.03), 0.975, 0.96),
    "n=20": ({"n": 20}, (0.92, 0.05), (0.23, 0.15), 0.97, 0.96),
    "n=40": ({"n": 40}, (0.94, 0.03), (0.25, 0.11), 0.968, 0.955),
    "k=0": ({"k": 0}, (0.97, 0.01), (0.33, 0.05), 0.98, 0.965),
    "k=2": ({"k": 2}, (0.95, 0.01), (0.31, 0.03), 0.97, 0.955),
    "k=3": ({"k": 3}, (0.91, 0.04), (0.27, 0.03), 0.965, 0.95),
    "layers=3": ({"layers": 3}, (0.96, 0.03), (0.33, 0.04), 0.992, 0.98),
    "layers=20": ({"layers": 20}, (0.93, 0.01), (0.35, 0.07), 0.94, 0.92),
    "rho=1var": ({"rho": "1 var"}, (0.45, 0.04), (0.28, 0.03), 0.93, 0.925),
    "rho=75": ({"rho": 75}, (0.93, 0.04), (0.31, 0.04), 0.96, 0.945),
    "delta=1": ({"delta": 1}, (0.88, 0.04), (0.3, 0.02), 0.972, 0.97),
    "delta=2": ({"delta": 2}, (0.61, 0.04), (0.27, 0.03), 0.71, 0.73),
    "delta=3": ({"delta": 3}, (0.49, 0.02), (0.28, 0.03), 0.49, 0.53),
    "theta=15": ({"theta": 15}, (0.83, 0.02), (0.32, 0.03), 0.84, 0.835),
    "theta=30": ({"theta": 30}, (0.6, 0.02), (0.31, 0.04), 0.62, 0.618),
    "theta=45": ({"theta": 45}, (0.62, 0.01), (0.32, 0.03), 0.63, 0.625),
}
METHODS = {
    **BASELINES,
    "TwoStage": Method("TwoStage", {"n_restarts": 1}),
    "GroupedSparse (groups known)": Method("GroupedSparse"),
    "VaDE": Method("VaDE", {"n_components": 40}),
    "PDGMM": Method("PDGMM"),
}
SECONDS = {"raw x": 0.02, "PCA": 0.05, "FastICA": 0.6, "SparseUnmixing": 4, "TwoStage": 900, "VaDE": 140, "PDGMM": 75}

RECIPE = Recipe(
    name="paper/table1",
    title="Numerical data: 17 distributions of the latents and the mixing",
    source="Author, Author & Author (2026), table 1",
    question="How close are the recovered latents to the true ones, and what does the method add to x itself?",
    experiment="recovery",
    settings=tuple(Setting(name, BASE | row[0]) for name, row in SETTINGS.items()),
    methods=METHODS,
    metrics=("mcc", "r2", "agreement", "score"),
    seeds=5,
    published=tuple(Published(s, "published: two stages", "mcc", *row[1]) for s, row in SETTINGS.items())
    + tuple(Published(s, "published: VaDE", "mcc", *row[2], ("VaDE",)) for s, row in SETTINGS.items()),
    axes=("n", "k", "layers", "rho", "delta", "theta"),
    notes="The published mixing is nearly linear: compare with the baselines first.\nWith theta, MCC is against the "
    "rotated latents, as published.",
    smaller=QuickOverrides(
        settings=("n=5", "k=3"), values={"rows": 6000}, params={"PDGMM": {"max_steps": 800}, "VaDE": None}
    ),
)


@cache
def records(*, seed=0, quick=False, failed=3):
    """Records of all runs of the recipe, some of them failed; the same for the same seed."""
    rng = np.random.default_rng(seed)
    found = [record(run, rng) for run in RECIPE.runs(quick=quick)]
    for i in rng.choice(len(found), size=min(failed, len(found)), replace=False):
        error = "FitFailedError: Training diverged in every restart: the loss was not finite after step 412."
        found[i] = replace(found[i], status="failed", metrics={}, arrays={}, certificate=None, error=error)
    return tuple(found)


def record(run, rng):
    """A record of one run."""
    _, _, vade, learnt, linear = SETTINGS[run.setting]
    n = run.values["n"]
    trivial = {"raw x": 0.36 + 0.9 / n, "PCA": 0.34 + 0.8 / n, "FastICA": 0.5 + 0.2 * linear, "SparseUnmixing": linear}
    level = {**trivial, "TwoStage": learnt - 0.03, "VaDE": vade[0], "PDGMM": learnt}.get(run.method, learnt - 0.015)
    noise = 0.008 + 0.05 * (1 - level)
    mcc = float(np.clip(rng.normal(level, noise), 0, 0.999))
    kind = "baseline" if run.method in BASELINES else "method"
    seconds = SECONDS.get(run.method, 60) * (n / 10) ** 1.3 * float(rng.lognormal(0, 0.25))
    arrays = {} if kind == "baseline" else {"correlation": matched(mcc, n, rng).round(3).tolist()}
    if run.method == "VaDE":
        scores = rng.normal(-14, 0.5, 12)
        near = mcc - 0.05 + 0.04 * (scores + 14) + rng.normal(0, 0.02, 12)
        arrays |= {"restarts": near.round(3).tolist(), "scores": scores.round(3).tolist()}
    return Record(
        run,
        "done",
        seconds * 1.1 + 0.3,
        {
            "mcc": mcc,
            "r2": float(np.clip(rng.normal(0.94, 0.01), 0, 1)),
            "agreement": float(np.clip(rng.normal(mcc, 0.01), 0, 1)) if kind == "method" else float("nan"),
            "score": float(rng.normal(-1.42 * n, 0.2)),
            "seconds": seconds,
        },
        arrays,
        certificate(mcc) if run.method in ("PDGMM", "SparseUnmixing") else None,
        device="cpu" if kind == "baseline" else "NVIDIA H200",
        versions={"identifiable": "0.1.0", "python": "3.11.9", "torch": "2.13.0", "numpy": "2.1.0"},
        commit="4ef6588a0c1d2e3f4a5b",
        finished=f"2026-11-16T0{run.seed % 10}:12:30+00:00",
    )


def matched(mcc, n, rng):
    """|correlation| of n latents with their matched estimates, `mcc` on average on the diagonal."""
    table = np.abs(rng.normal(0, 0.08 + 0.3 * (1 - mcc), (n, n)))
    diagonal = rng.normal(mcc, 0.01, n)
    table[np.arange(n), np.arange(n)] = diagonal + mcc - diagonal.mean()
    return np.clip(table, 0, 1)


def certificate(mcc):
    level = "PS" if mcc > 0.95 else "blocks" if mcc > 0.8 else "AT" if mcc > 0.6 else "none"
    holds = "holds" if level in ("PS", "blocks") else "fails"
    return {
        "level": level,
        "if_undecided_hold": "PS",
        "theorem": {"PS": "Theorem 3.9", "blocks": "Appendix E.5", "AT": "Theorem 3.7"}.get(level, ""),
        "meaning": "the sparsest representation recovers every latent up to order, sign, scale and shift",
        "blocks": [[0], [1, 2], [3]],
        "checks": [
            {"name": "mixing", "verdict": "inconclusive", "words": "Assumed: the mixing is injective."},
            {"name": "genericity", "verdict": "holds", "words": "Components of one rank differ at some common point."},
            {"name": "common basis", "verdict": holds, "sentence": "All supports are spanned by columns of one basis."},
        ],
    }


def hostile():
    """An experiment with a script in every name."""
    plan = RECIPE
    plan = replace(
        plan,
        title=HOSTILE,
        question=HOSTILE,
        source=QUOTES,
        notes=HOSTILE,
        settings=tuple(Setting(f"{HOSTILE} {i}", {"n": v, QUOTES: i}) for i, v in enumerate((HOSTILE, "2", QUOTES))),
        methods={HOSTILE: Method("PDGMM"), QUOTES: Method("PDGMM"), "PCA": plan.methods["PCA"]},
        published=(Published(f"{HOSTILE} 0", f"{HOSTILE} published", "mcc", 0.9),),
        metrics=("mcc", HOSTILE),
        axes=("n",),
    )
    numbers = {"mcc": 0.5, HOSTILE: 0.5}
    arrays = {"correlation": [[1, 0], [0, 1]], "restarts": [1, 2, 3, 4, 5], "scores": [1, 3, 2, 5, 4]}
    words = {"level": HOSTILE, "theorem": QUOTES, "meaning": HOSTILE, "checks": [{"name": HOSTILE, "words": QUOTES}]}
    rng = np.random.default_rng(0)
    made = record(RECIPE.runs()[0], rng)
    found = [
        replace(made, run=run, metrics=numbers, arrays=arrays, certificate=words, device=QUOTES, commit=HOSTILE)
        for run in plan.runs()
    ]
    found[0] = replace(found[0], status="failed", error=HOSTILE)
    found[1] = replace(found[1], versions={HOSTILE: QUOTES}, finished=HOSTILE)
    return plan, found
