"""Xu, Lachapelle & Magliacane, Identifiability of potentially degenerate Gaussian mixture models (AISTATS 2026)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from identifiable.experiments.recipe import (
    BASELINES,
    IMAGE_BASELINES,
    REFERENCES,
    Method,
    QuickOverrides,
    Recipe,
    Setting,
)

PAPER = "Xu, Lachapelle & Magliacane (AISTATS 2026)"
ROWS = 20_000
BASE: dict[str, Any] = {"law": "pdgmm", "rows": ROWS, "n": 10, "k": 1, "layers": 10, "rho": 50, "delta": 0, "theta": 0}
VARIED: dict[str, Sequence[Any]] = {  # one at a time
    "n": (5, 10, 20, 40),
    "k": (0, 2, 3),
    "layers": (3, 20),
    "rho": ("1 var", 75),
    "delta": (1, 2, 3),
    "theta": (15, 30, 45),
}
CHANGES = {f"{axis}={value}".replace(" ", ""): {axis: value} for axis, values in VARIED.items() for value in values}
SETTINGS = tuple(Setting(name, BASE | change) for name, change in CHANGES.items())
PDGMM = {"PDGMM": Method("PDGMM")}
TWO_STAGE = {"TwoStage": Method("TwoStage", {"n_restarts": 1}, fresh=True)}
STAGE_1 = {"TwoStage, no stage 2": Method("TwoStage", {"n_restarts": 1, "sparse_steps": 0}, fresh=True)}
ON_IMAGES = IMAGE_BASELINES | {
    "keypoints, FastICA": Method("IndependentComponents", before=Method("KeypointEncoder")),
    "generic CNN": Method("SparseUnmixing", before=Method("ConvAutoencoder")),
    "ImageUnmixing": Method("ImageUnmixing"),
}
BLOCK_METRICS = ("block_r2", "latent_r2", "worst_block", "leak", "blocks_right")
OF_CODE = ("code_r2", "mixed_sparse", "mixed_ica")
KEYPOINTS = (
    "PCA, FastICA and SparseUnmixing see pixels at a quarter of their resolution. Colour moments: first moments of 64 "
    "random features of a pixel's colour, then PCA and SparseUnmixing. Generic CNN: ConvAutoencoder, then "
    "SparseUnmixing. ImageUnmixing: keypoints, then SparseUnmixing. Positions known: the encoder of keypoints, trained "
    "with the true positions. block_r2: R² of the position of a ball given its latents; latent_r2: R² of each latent "
    "given the position of its ball. code_r2: R² of the keypoints themselves. mixed_sparse and mixed_ica: R² after a "
    "random linear mixing of the keypoints, undone by SparseUnmixing or FastICA. blocks_right: share of the fits whose "
    "blocks are the balls."
)
BALLS: dict[str, Any] = {"law": "balls", "rows": 5000}
HARDER: dict[str, dict[str, Any]] = {
    "radii": {"radii": [0.06, 0.09, 0.12, 0.15]},
    "noise": {"noise": 0.05},
    "texture": {"textured": True},
    "one colour": {"colours": "one"},
    "published images": {"colours": "published", "integer": True},
}
FEWER_ROWS = {"rows": 6000}
FEWER_IMAGES = {"rows": 1500, "new_rows": 1000}
QUICK_TWO_STAGE: dict[str, Any] = {
    "hidden": (4, 8, 8, 4),
    "sparse_hidden": (2, 2),
    "max_steps": 300,
    "sparse_steps": 300,
    "batch_size": 512,
    "learning_rate": 1e-3,
    "sparse_rate": 1e-3,
    "dual_rate": 5e-4,
}
QUICK_PDGMM: dict[str, Any] = {"max_steps": 800, "extended": False}
QUICK: dict[str, dict[str, Any] | None] = {
    "PDGMM": QUICK_PDGMM,
    "TwoStage": QUICK_TWO_STAGE,
    "TwoStage, no stage 2": QUICK_TWO_STAGE | {"sparse_steps": 0},
    "GroupedSparse (groups known)": {"hidden": (10, 10), "max_steps": 300, "batch_size": 1024}
    | {"learning_rate": 1e-3, "dual_rate": 5e-4},
    "VaDE": {"pretrain_steps": 300, "max_steps": 300},
    "generic CNN": None,
    "positions known": {"max_steps": 200},
}
TWO_STAGE_NOTE = (
    "TwoStage is the published method at the published size on fresh rows, except for its stopping rule: the authors' "
    "code stops when the MCC with the true latents passes .995, and this one does not use them. It runs for the 80 001 "
    "steps of their program; by their table 5, n = 40 needs 300 000."
)

FULL_RANK: dict[str, Any] = {"law": "gmm", "rows": ROWS, "n": 10, "layers": 10, "components": 50, "factorial": False}
SPARSITY = (1e3, 1e2, 10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5)
RATES = (1e-2, 1e-3, 1e-4, 1e-5)
BLOCKS = ([2, 2, 2, 2, 2], [1, 1, 1, 3, 4], [1, 1, 2, 6])
WRONG_ASSUMPTIONS = {law: {"noise_law": law} for law in ("exponential", "gumbel")}
WRONG_ASSUMPTIONS |= {name: {"activation": name} for name in ("smooth", "sigmoid")}


def _variant(**params: float) -> Method:
    """Return the published method with other parameters."""
    return replace(TWO_STAGE["TwoStage"], params={"n_restarts": 1} | params)


def _quick(*settings: str) -> QuickOverrides:
    return QuickOverrides(settings=settings or None, values=FEWER_ROWS, params=QUICK)


_recipe = partial(
    Recipe,
    experiment="recovery",
    settings=SETTINGS,
    methods=BASELINES | PDGMM,
    metrics=("mcc", "r2", "agreement"),
    seeds=3,
    smaller=_quick(),
)
_stage_2 = partial(_recipe, settings=(Setting("n=10", BASE),), metrics=("mcc", "r2"), notes=TWO_STAGE_NOTE)
_on_images = partial(
    _recipe,
    experiment="blocks",
    methods=ON_IMAGES | REFERENCES,
    metrics=BLOCK_METRICS + OF_CODE,
    seeds=5,
    smaller=QuickOverrides(values=FEWER_IMAGES, params=QUICK),
)


def _balls(balls: int, table: str) -> Recipe:
    """Return the recipe of so many balls, with the R² of each ball as published."""
    return _on_images(
        name=f"xu2026/balls-{balls}",
        title=f"Images of {balls} balls",
        source=f"{PAPER}, {table}",
        question="Can the position of each ball be read from its two latents?",
        settings=(Setting(f"balls={balls}", BALLS | {"balls": balls}),),
        metrics=(*BLOCK_METRICS, *(f"ball_{i}" for i in range(1, balls + 1)), *OF_CODE),
        notes="Published: the R² of each ball, ball_1 and so on; block_r2 is their mean. Here ball_1 is the rearmost; "
        f"the order in the paper is not known. {KEYPOINTS}",
    )


RECIPES = (
    _recipe(
        name="xu2026/table1",
        title="Numerical data: 17 distributions of the latents and the mixing",
        source=f"{PAPER}, table 1",
        question="How close are the recovered latents to the true ones, and what does the method add to x itself?",
        methods=BASELINES | TWO_STAGE | PDGMM,
        metrics=("mcc", "r2", "agreement", "mcc_sparse", "stage1_r2", "stage1_mcc"),
        seeds=5,
        seeds_by_method={"TwoStage": 1},
        axes=tuple(VARIED),
        notes=f"The published mixing is nearly linear: compare with the baselines first. {TWO_STAGE_NOTE} With theta, "
        "mcc is computed with the rotated latents, as published, and mcc_sparse with the sparse ones.",
    ),
    _recipe(
        name="xu2026/table4-independent",
        title="The same fits on rows whose latents are independent",
        source=f"{PAPER}, table 4",
        question="Is a high MCC due to the dependence between the latents?",
        experiment="independent",
        metrics=("mcc_independent", "mcc"),
        seeds=5,
        axes=tuple(VARIED),
        smaller=_quick("n=5", "n=10", "k=3"),
    ),
    _recipe(
        name="xu2026/table5-scalability",
        title="Time by number of latents",
        source=f"{PAPER}, table 5",
        question="How does the time of a fit grow?",
        settings=tuple(Setting(f"n={n}", BASE | {"n": n}) for n in (5, 10, 20, 40, 50)),
        methods={"SparseUnmixing": BASELINES["SparseUnmixing"]} | PDGMM,
        metrics=("seconds", "mcc"),
        axes=("n",),
        notes="Published: steps until the MCC with the true latents passes .995, times seconds per step, on the "
        "authors' GPU; stage 1 is not included. Here: the whole fit, on the device in each record.",
        smaller=_quick("n=5", "n=10"),
    ),
    _stage_2(
        name="xu2026/table6-sparsity",
        title="The bound on the mean |z| in stage 2",
        source=f"{PAPER}, table 6",
        question="How much does the published method depend on its sparsity level?",
        methods=BASELINES | {f"TwoStage, eps={e:g}": _variant(sparsity=e) for e in SPARSITY},
        smaller=QuickOverrides(
            values=FEWER_ROWS,
            params={f"TwoStage, eps={e:g}": QUICK_TWO_STAGE if e in (10.0, 1e-2, 1e-4) else None for e in SPARSITY},
        ),
    ),
    _stage_2(
        name="xu2026/table7-rate",
        title="The learning rate of stage 2",
        source=f"{PAPER}, table 7",
        question="How much does the published method depend on its learning rate?",
        methods=BASELINES | {f"TwoStage, rate={r:g}": _variant(sparse_rate=r, dual_rate=r / 2) for r in RATES},
        smaller=QuickOverrides(
            values=FEWER_ROWS,
            params={
                f"TwoStage, rate={r:g}": {k: v for k, v in QUICK_TWO_STAGE.items() if not k.endswith("_rate")}
                for r in RATES
            },
        ),
    ),
    _recipe(
        name="xu2026/table8-ablation",
        title="Without sparsity, with the groups known, and VaDE",
        source=f"{PAPER}, table 8",
        question="What does each part of the published method contribute?",
        methods=BASELINES
        | TWO_STAGE
        | STAGE_1
        | {
            "GroupedSparse (groups known)": Method("GroupedSparse", {"n_restarts": 1}),
            "VaDE": Method("VaDE", {"n_components": 40, "n_restarts": 2}),
        }
        | PDGMM,
        metrics=("mcc", "r2"),
        seeds=5,
        seeds_by_method=dict.fromkeys(("TwoStage", "TwoStage, no stage 2", "GroupedSparse (groups known)", "VaDE"), 1),
        axes=tuple(VARIED),
        notes=TWO_STAGE_NOTE,
        smaller=_quick("n=5", "rho=1var"),
    ),
    _recipe(
        name="xu2026/table9-full-rank",
        title="Mixtures of full rank, fair to VaDE",
        source=f"{PAPER}, table 9",
        question="If no latent is ever inactive, how close is the code to an affine map of the truth?",
        settings=tuple(
            Setting(name, FULL_RANK | change) for name, change in CHANGES.items() if name.startswith(("n", "layers"))
        ),
        methods=BASELINES | STAGE_1 | {"VaDE": Method("VaDE", {"n_components": 50, "n_restarts": 2})},
        metrics=("r2", "mcc"),
        seeds_by_method={"TwoStage, no stage 2": 1, "VaDE": 1},
        axes=("n", "layers"),
        notes="The paper does not say how its mixtures of full rank were sampled; these have 50 components with means "
        "U(-3, 3) and dependent latents. Only the settings that are defined for them are here.",
        smaller=_quick("n=5", "layers=3"),
    ),
    _recipe(
        name="xu2026/table10-wider",
        title="More latents requested than there are",
        source=f"{PAPER}, table 10",
        question="What if the number of latents is not known?",
        settings=tuple(Setting(f"asked={m}", BASE | {"d": 20, "latents": m}) for m in (12, 14, 16, 18, 20)),
        methods={k: v for k, v in BASELINES.items() if k != "FastICA"} | PDGMM,
        metrics=("mcc", "r2"),
        seeds=5,
        axes=("latents",),
        notes="Here x has 20 columns, so that a linear method can estimate as many latents; the paper has 10.",
        smaller=_quick("asked=12", "asked=20"),
    ),
    _recipe(
        name="xu2026/shd",
        title="The graph among the latents",
        source=f"{PAPER}, table 11",
        question="Does PC find the same graph among recovered latents as among true ones?",
        experiment="graph",
        settings=tuple(s for s in SETTINGS if s.name != "k=0"),
        metrics=("delta_shd", "shd_recovered", "shd_true", "mcc"),
        seeds=5,
        axes=tuple(VARIED),
        notes="Structural Hamming distance to the true CPDAG. The paper's significance level and number of rows are "
        "not known; those of `identifiable.causal` are used for true and recovered latents.",
        smaller=_quick("n=5", "n=10"),
    ),
    *(_balls(*given) for given in ((2, "table 13"), (4, "table 14"), (6, "table 15"))),
    _on_images(
        name="xu2026/balls-fine",
        title="Two balls whose coordinates are inactive separately",
        source=f"{PAPER}, table 16",
        question="Is every single coordinate recovered?",
        settings=(Setting("balls=2", BALLS | {"balls": 2, "separately": True}),),
        notes=f"Published: the mean R² of the matched representations and coordinates. {KEYPOINTS}",
    ),
    _on_images(
        name="xu2026/balls-harder",
        title="Four balls in images that are harder",
        source=f"{PAPER}, appendix D.10, changed",
        question="What if balls differ in size, have the same colour, or are hard to see?",
        settings=tuple(Setting(name, BALLS | {"balls": 4} | change) for name, change in HARDER.items()),
        seeds=3,
        notes=KEYPOINTS,
        smaller=QuickOverrides(settings=("noise",), values=FEWER_IMAGES, params=QUICK),
    ),
    _recipe(
        name="xu2026/misspecified",
        title="Latents that are not Gaussian, mixings that are not piecewise affine",
        source=f"{PAPER}, table 17",
        question="How much is recovered if an assumption is wrong?",
        settings=tuple(
            Setting(f"{wrong}, {name}", BASE | CHANGES[name] | change)
            for name in CHANGES
            if not name.startswith(("n=40", "delta", "theta"))
            for wrong, change in WRONG_ASSUMPTIONS.items()
        ),
        smaller=_quick(*(f"{wrong}, n=5" for wrong in WRONG_ASSUMPTIONS)),
    ),
    _recipe(
        name="xu2026/table18-genericity",
        title="Example E.2 in n dimensions: assumption 3.4 does not hold",
        source=f"{PAPER}, table 18",
        question="How much is recovered if supports of one rank cannot be distinguished?",
        settings=tuple(Setting(f"n={n}", {"law": "pdgmm", "rows": ROWS, "n": n, "example": "E.2"}) for n in (2, 5, 10)),
        axes=("n",),
    ),
    _recipe(
        name="xu2026/table19-two-bases",
        title="Two bases at once: assumption 3.6 does not hold",
        source=f"{PAPER}, table 19",
        question="How much is recovered if components do not share a basis?",
        settings=tuple(Setting(f"k={k}", BASE | {"k": k, "second_basis": 30}) for k in range(4)),
        metrics=("r2", "mcc", "agreement"),
        axes=("k",),
        notes="The paper's angle is not known; here the second basis is rotated by 30 degrees in every plane.",
        smaller=_quick("k=0", "k=1"),
    ),
    _recipe(
        name="xu2026/blocks",
        title="Latents that are always active together",
        source=f"{PAPER}, tables 20 to 22",
        question="Are blocks separated where single latents cannot be?",
        experiment="blocks",
        settings=tuple(
            Setting(str(sizes)[1:-1], {k: v for k, v in BASE.items() if k != "n"} | {"blocks": sizes})
            for sizes in BLOCKS
        ),
        metrics=("block_r2", "worst_block", "leak"),
        seeds=5,
        notes="block_r2: R² of a block given the latents that were assigned to it. Published: the mean R² of the "
        "single representations on their block, which is not larger. leak: the largest R² on another block, averaged.",
    ),
)
