"""Kivva, Rajendran, Ravikumar & Aragam: deep generative models without auxiliary information (NeurIPS 2022)."""

from functools import partial
from typing import Any

from identifiable.experiments.recipe import BASELINES, NET, Method, QuickOverrides, Recipe, Setting

PAPER = "Kivva, Rajendran, Ravikumar & Aragam (NeurIPS 2022)"
SHAPES: dict[str, Any] = {"rows": 5000, "new_rows": 5000, "latents": 2, "runs": 5}
EPOCH = 5000 // 128
AS_PUBLISHED: dict[str, Any] = {
    "net": "toy",
    "init": "autoencoder",
    "pretrain_steps": 15 * EPOCH,
    "max_steps": 20 * EPOCH,
    "batch_size": 128,
    "posterior": "diagonal",
    "first_beta": 1.0,
}
VADE = {
    "VaDE, linear start": Method(
        "VaDE", {"n_components": 3, "init": "linear", "batch_size": 512, "learning_rate": 1e-3}
    ),
    "VaDE, as published": Method("VaDE", {"n_components": 3} | AS_PUBLISHED),
}
QUICK_VADE: dict[str, dict[str, Any]] = {
    "VaDE, linear start": {"pretrain_steps": 300, "max_steps": 300},
    "VaDE, as published": {"pretrain_steps": 200, "max_steps": 200},
}
MNIST: dict[str, Any] = {"law": "mnist", "latents": 5, "runs": 10, "new_rows": 10_000}
BITS: dict[str, Any] = {"net": NET, "likelihood": "bernoulli", "patience": None, "posterior": "diagonal"}
GIVEN_U: dict[str, Any] = {"family": "gaussian", "max_steps": 8000, "batch_size": 256, "learning_rate": 1e-3}
MFCVAE: dict[str, Any] = {"n_components": 25, "facets": 1} | BITS
FREE: dict[str, Any] = {"init": "random", "first_beta": 0.1, "max_steps": 16_000}
HELD: dict[str, Any] = {"init": "linear", "pretrain_steps": 1000, "max_steps": 8000}
COARSE: dict[str, Any] = {name: [-1, 0, 1] for name in ("alpha", "beta", "pi")}
COARSE |= {"mu": [-2, -1, 0, 1, 2], "parts": 3, "step": 0.2}

_shapes = partial(
    Recipe,
    question="Do five fits agree, although the model is not quite correct?",
    experiment="agreement",
    methods=BASELINES | VADE,
    metrics=("dist", "weak", "strong"),
    seeds=3,
    smaller=QuickOverrides(values={"rows": 1500, "new_rows": 1500, "runs": 3}, params=QUICK_VADE),
)
RECIPES = (
    Recipe(
        name="kivva/figure1",
        title="The exact likelihood on a grid",
        source=f"{PAPER}, figure 1 and appendix J.3.1",
        question="Is the truth the only minimiser, up to an affine map?",
        experiment="minimisers",
        settings=(Setting("2 ReLU units", {"models": 50, "grid": {}}),),
        methods={"exact likelihood": Method("")},
        metrics=("unique", "gap"),
        seeds=3,
        notes="unique: share of the weakly injective models whose minimisers are all equivalent to the truth. gap: the "
        "median over models of the smallest divergence of another distribution of the latents. No baseline applies.",
        smaller=QuickOverrides(values={"models": 5, "grid": COARSE}),
    ),
    _shapes(
        name="kivva/figure2",
        title="A pinwheel",
        source=f"{PAPER}, figure 2",
        settings=(Setting("pinwheel", {"law": "pinwheel"} | SHAPES),),
        notes="The names of weak and strong are exchanged in print. With as many columns as latents, weak MCC of any "
        "two linear maps of x is 1: look at dist.",
    ),
    _shapes(
        name="kivva/table2",
        title="Three parallelograms",
        source=f"{PAPER}, table 2",
        settings=tuple(
            Setting(f"parallelograms {i}", {"law": "parallelograms", "draw": i} | SHAPES) for i in (1, 2, 3)
        ),
        notes="The paper's three data sets are not known; each number and seed gives another one here.",
    ),
    Recipe(
        name="kivva/table3-mnist",
        title="MNIST, 5 latents, 25 components",
        source=f"{PAPER}, table 3",
        question="Do ten fits agree, up to a linear map and up to order?",
        experiment="agreement",
        settings=tuple(Setting(f"Arch {i}", MNIST | {"net": f"arch{i}"}) for i in (1, 2, 3)),
        methods={k: v for k, v in BASELINES.items() if k != "raw x"}
        | {
            "MFCVAE, leaky ReLU": Method("MFCVAE", MFCVAE | FREE),
            "MFCVAE, ReLU": Method("MFCVAE", MFCVAE | FREE | {"net": f"{NET}-relu"}),
            "MFCVAE, leaky ReLU, linear start": Method("MFCVAE", MFCVAE | HELD),
            "iVAE, leaky ReLU": Method("IVAE", BITS | GIVEN_U),
        },
        metrics=("weak", "strong"),
        seeds=1,
        notes="iVAE is given the digit. Agreement is not recovery: x agrees with itself.",
        smaller=QuickOverrides(
            settings=("Arch 1",),
            values={"rows": 600, "new_rows": 400, "runs": 2},
            params={
                **{name: {"max_steps": 20} for name in ("MFCVAE, leaky ReLU", "MFCVAE, ReLU", "iVAE, leaky ReLU")},
                "MFCVAE, leaky ReLU, linear start": {"pretrain_steps": 10, "max_steps": 20},
            },
        ),
    ),
)
