"""Khemakhem, Kingma & Hyvärinen, Variational autoencoders and nonlinear ICA: a unifying framework (AISTATS 2020)."""

from functools import partial
from typing import Any

from identifiable.experiments.recipe import BASELINES, Method, QuickOverrides, Recipe, Setting

PAPER = "Khemakhem, Kingma & Hyvärinen (AISTATS 2020)"
BASE: dict[str, Any] = {"law": "segments", "segments": 40, "segment_rows": 1000, "n": 5}
GIVEN_U = {f"{name} (u)": Method(name) for name in ("SegmentUnmixing", "IFlow", "IVAE")}
VAE = {"VAE": Method("VAE", {"n_restarts": 2})}
WITHOUT_U = VAE | {name: Method(name, {"n_restarts": 2}) for name in ("BetaVAE", "BetaTCVAE")}
BITS: dict[str, Any] = {"likelihood": "bernoulli"}
QUICK: dict[str, dict[str, Any]] = {
    "IFlow (u)": {"max_steps": 600},
    "IVAE (u)": {"max_steps": 800},
    **{name: {"max_steps": 400} for name in WITHOUT_U},
}

_recipe = partial(
    Recipe,
    experiment="recovery",
    methods=BASELINES | GIVEN_U | WITHOUT_U,
    metrics=("mcc", "r2", "agreement"),
    seeds=3,
    smaller=QuickOverrides(values={"segment_rows": 250}, params=QUICK),
)
RECIPES = (
    _recipe(
        name="ivae/figure1",
        title="Two sources in five segments",
        source=f"{PAPER}, figure 1",
        question="Are two sources with changing means and variances recovered?",
        settings=(Setting("n=2", BASE | {"n": 2, "segments": 5, "centred": False}),),
        methods=BASELINES | GIVEN_U | VAE,
        seeds=5,
        notes="The paper shows one data set and prints no number.",
        smaller=QuickOverrides(values={"segment_rows": 400}, params=QUICK),
    ),
    _recipe(
        name="ivae/figure2",
        title="Sources whose variance changes with the segment",
        source=f"{PAPER}, figure 2",
        question="Does u identify the sources, where models without it fail?",
        settings=(
            *(Setting(f"n={n}", BASE | {"n": n, "d": 5}) for n in (2, 3, 4, 5)),
            Setting("n=5, three matrices", BASE | {"d": 5, "reuse": False}),
        ),
        seeds=5,
        axes=("n",),
        notes="The figure shows curves, not numbers; its text says above .95 for the best configuration at n = 5. The "
        "authors' code gives .927 on its own data set, and .56, .80, .46 on three others of the same distribution.",
        smaller=QuickOverrides(settings=("n=2", "n=5"), values={"segment_rows": 250}, params=QUICK),
    ),
    _recipe(
        name="ivae/figure4",
        title="Ten sources in forty columns",
        source=f"{PAPER}, figure 4",
        question="Does it hold where there are more columns than sources?",
        settings=(Setting("n=10, d=40", BASE | {"n": 10, "d": 40, "segment_rows": 4000}),),
        notes="The paper shows signals and prints no number.",
    ),
    _recipe(
        name="ivae/talk",
        title="Five sources in twenty-five columns",
        source=f"{PAPER}, the authors' talk",
        question="The example of the talk: 40 segments, 5 sources, 25 columns.",
        settings=(Setting("n=5, d=25", BASE | {"d": 25}),),
        methods=BASELINES | GIVEN_U | VAE,
        notes="The talk prints no number.",
    ),
    _recipe(
        name="ivae/discrete",
        title="Bits instead of numbers",
        source=f"{PAPER}, section 5 and its appendix",
        question="Are sources recovered from bits that depend on them?",
        settings=(Setting("n=5, d=25, bits", BASE | {"d": 25, "bernoulli": True}),),
        methods={k: v for k, v in BASELINES.items() if k != "SparseUnmixing"}
        | {
            "SegmentUnmixing (u)": GIVEN_U["SegmentUnmixing (u)"],
            "IVAE (u)": Method("IVAE", BITS),
            "VAE": Method("VAE", {"n_restarts": 2} | BITS),
        },
        notes="SparseUnmixing and IFlow are for continuous columns.",
    ),
)
