"""Willetts & Paige, I don't need u: identifiable non-linear ICA without side information (2021)."""

from functools import partial
from typing import Any

from identifiable.experiments.recipe import BASELINES, Method, QuickOverrides, Recipe, Setting

PAPER = "Willetts & Paige (2021)"
TCL: dict[str, Any] = {"law": "tcl", "n": 5, "segments": 20}
SIZES = (100, 200, 500, 1000, 2000)
VADE = {"VaDE": Method("VaDE", {"n_components": 40})}
PUBLISHED_FLOW: dict[str, Any] = {
    "flow": "autoregressive",
    "full_covariance_steps": 0,
    "n_components": 50,
    "batch_size": 256,
    "learning_rate": 1e-3,
}
QUICK: dict[str, dict[str, Any]] = {
    "VaDE": {"n_restarts": 2, "pretrain_steps": 300, "max_steps": 300},
    "GMMFlow": {"n_restarts": 2, "max_steps": 600, "full_covariance_steps": 300},
    "GMMFlow, as published": {"n_restarts": 1, "max_steps": 200},
    "IVAE (u)": {"max_steps": 600},
    "IFlow (u)": {"max_steps": 600},
}
BITS: dict[str, Any] = {"likelihood": "bernoulli", "patience": None}
PIXELS: dict[str, Any] = {"likelihood": "logistic", "patience": None}
LONG: dict[str, Any] = {"init": "autoencoder", "pretrain_steps": 10_000, "max_steps": 8000, "first_beta": 0.05}
SHORT: dict[str, Any] = {"init": "autoencoder", "pretrain_steps": 1000, "max_steps": 3000}
MNIST: dict[str, Any] = {"law": "mnist", "latents": 50, "runs": 5, "directions": 20, "new_rows": 10_000}
CIFAR: dict[str, Any] = {"law": "cifar10", "latents": 50, "runs": 5, "directions": 20}
FEW_IMAGES: dict[str, Any] = {"rows": 600, "new_rows": 400, "latents": 8, "runs": 2, "directions": 4}
FEW_STEPS: dict[str, Any] = {"pretrain_steps": 40, "max_steps": 40}


def _few_images(params: dict[str, dict[str, Any]]) -> QuickOverrides:
    return QuickOverrides(values=FEW_IMAGES, params=params)


_segments = partial(
    Recipe,
    experiment="recovery",
    methods=BASELINES,
    metrics=("mcc", "r2", "agreement"),
    seeds=3,
    smaller=QuickOverrides(values={"segment_rows": 200}, params=QUICK),
)
_images = partial(
    _segments,
    experiment="agreement",
    settings=(Setting("CIFAR-10", CIFAR),),
    metrics=("weak", "weak_all", "strong"),
    seeds=1,
)
LINEAR = {k: v for k, v in BASELINES.items() if k != "raw x"}

RECIPES = (
    _segments(
        name="willetts/figure2",
        title="Segments, with and without u",
        source=f"{PAPER}, figures 2 and D.3",
        question="Is a mixture prior as good as the observed segment?",
        settings=tuple(Setting(f"{size} per segment", TCL | {"segment_rows": size}) for size in SIZES),
        methods=BASELINES
        | VADE
        | {"GMMFlow": Method("GMMFlow"), "IVAE (u)": Method("IVAE"), "IFlow (u)": Method("IFlow")},
        seeds=10,
        axes=("segment_rows",),
        notes="The paper shows curves and prints no number: VaDE as good as iVAE or better, GMM flows as good as "
        "both or better.",
        smaller=QuickOverrides(settings=("100 per segment", "500 per segment"), params=QUICK),
    ),
    _segments(
        name="willetts/figure3",
        title="Bound and MCC over restarts",
        source=f"{PAPER}, figure 3",
        question="Does the bound indicate the best restart?",
        settings=(Setting("1000 per segment", TCL | {"segment_rows": 1000}),),
        methods=BASELINES | {"VaDE": Method("VaDE", {"n_components": 40, "n_restarts": 8})},
        metrics=("mcc", "agreement"),
        notes="The paper shows that they are positively correlated; see the scatter plot.",
        smaller=QuickOverrides(
            values={"segment_rows": 200}, params={"VaDE": {"n_restarts": 4, "pretrain_steps": 300, "max_steps": 300}}
        ),
    ),
    _segments(
        name="willetts/figureD3",
        title="Flows over a mixture",
        source=f"{PAPER}, figure D.3",
        question="Does an exact likelihood do better than a bound?",
        settings=(Setting("2000 per segment", TCL | {"segment_rows": 2000}),),
        methods=BASELINES
        | {
            "GMMFlow": Method("GMMFlow"),
            "GMMFlow, as published": Method("GMMFlow", PUBLISHED_FLOW),
            "IFlow (u)": Method("IFlow"),
        },
        notes="As published: ten autoregressive layers, 50 components, batches of 256.",
    ),
    _images(
        name="willetts/figure4-mnist",
        title="MNIST, 50 latents: do fits agree?",
        source=f"{PAPER}, figures 4 and 5",
        question="How close are two fits to each other, up to a linear map?",
        settings=(Setting("MNIST", MNIST),),
        methods=LINEAR
        | {
            "VaDE, MLP": Method("VaDE", {"n_components": 40, "net": "mlp"} | LONG | BITS),
            "VaDE, ConvNet": Method("VaDE", {"n_components": 40, "net": "convnet"} | SHORT | BITS),
            "IVAE (u), MLP": Method(
                "IVAE", {"net": "mlp", "max_steps": 8000, "batch_size": 256, "learning_rate": 1e-3} | BITS
            ),
        },
        notes="Five fits and all their pairs; the published bars are often above .9. weak: 20 canonical directions, as "
        "in the authors' code; weak_all: all 50. Agreement is not recovery: x agrees with itself.",
        smaller=_few_images({"VaDE, MLP": FEW_STEPS, "VaDE, ConvNet": FEW_STEPS, "IVAE (u), MLP": {"max_steps": 40}}),
    ),
    _images(
        name="willetts/figure6-cifar",
        title="CIFAR-10, 50 latents: do fits agree?",
        source=f"{PAPER}, figures 4 to 6 and C.2",
        question="And on photographs; and does a meaningless u do as well as a learnt one?",
        methods=LINEAR
        | {
            "VaDE, MLP": Method(
                "VaDE",
                {"n_components": 128, "net": "mlp", "init": "autoencoder", "first_beta": 0.05, "max_steps": 3000}
                | PIXELS,
            ),
            "RademacherVAE, MLP": Method("RademacherVAE", {"net": "mlp", "max_steps": 3000} | PIXELS),
            "VaDE, ResNet": Method(
                "VaDE",
                {"n_components": 100, "net": "resnet", "init": "random", "max_steps": 600, "learning_rate": 5e-4}
                | PIXELS,
            ),
        },
        notes="The paper's ResNets are trained for much longer.",
        smaller=_few_images(
            {
                "VaDE, MLP": FEW_STEPS,
                "RademacherVAE, MLP": {"max_steps": 40},
                "VaDE, ResNet": {"max_steps": 2, "batch_size": 8},
            }
        ),
    ),
    _images(
        name="willetts/figureB1",
        title="Relaxed quantisation of CIFAR-10",
        source=f"{PAPER}, figure B.1",
        question="Do quantised codes agree more than those of a plain autoencoder?",
        settings=(Setting("CIFAR-10", CIFAR | {"latents": 64, "runs": 3, "new_rows": 2000}),),
        methods=LINEAR
        | {
            name: Method(
                "RelaxedVQVAE", {"n_codes": 128, "net": "conv", "quantised": quantised, "max_steps": 1200} | PIXELS
            )
            for name, quantised in (("RelaxedVQVAE", True), ("its autoencoder", False))
        },
        metrics=("weak", "strong"),
        notes="Compared position by position of the grid. The paper: moderately above the plain autoencoder.",
        smaller=_few_images({"RelaxedVQVAE": {"max_steps": 10}, "its autoencoder": {"max_steps": 10}}),
    ),
)
