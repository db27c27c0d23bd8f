"""Every recipe runs at a tiny size, includes the trivial baselines, and lists the published numbers."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

import identifiable
from identifiable.data import Sample
from identifiable.experiments import measure as experiments
from identifiable.experiments.measure import measure
from identifiable.experiments.papers import RECIPES, find
from identifiable.experiments.recipe import BASELINES, Record, Run

TINY = {
    "PDGMM": {"max_steps": 4, "extended": False, "depth": 2, "batch_size": 64, "n_restarts": 1},
    "TwoStage": {"hidden": (2,), "sparse_hidden": (2,), "max_steps": 3, "sparse_steps": 3, "batch_size": 64},
    "GroupedSparse": {"hidden": (2,), "max_steps": 3, "batch_size": 64},
    "VaDE": {"init": "random", "n_components": 3, "max_steps": 3, "batch_size": 16, "n_restarts": 2},
    "MFCVAE": {"n_components": 3, "max_steps": 3, "pretrain_steps": 3, "batch_size": 16, "n_restarts": 2},
    "GMMFlow": {"n_components": 3, "max_steps": 4, "full_covariance_steps": 2, "batch_size": 64, "n_restarts": 2},
    "IVAE": {"init": "random", "max_steps": 3, "batch_size": 16, "n_restarts": 2},
    "IFlow": {"max_steps": 3, "batch_size": 64, "n_restarts": 2},
    "VAE": {"max_steps": 3, "batch_size": 64},
    "BetaVAE": {"max_steps": 3, "batch_size": 64},
    "BetaTCVAE": {"max_steps": 3, "batch_size": 64},
    "RademacherVAE": {"max_steps": 3, "batch_size": 16},
    "SparseUnmixing": {"max_rounds": 1},
    "KeypointEncoder": {"max_steps": 2, "batch_size": 8},
    "LabelledKeypoints": {"max_steps": 2, "batch_size": 8},
    "ConvAutoencoder": {"max_steps": 2, "code_steps": 2, "batch_size": 8, "most_pixels": 16},
    "ImageUnmixing": {
        "encoder": identifiable.KeypointEncoder(4, image_shape=(64, 64, 3), max_steps=2, batch_size=8, verbose=0)
    },
    "RelaxedVQVAE": {"max_steps": 2, "batch_size": 8, "n_codes": 4, "width": 4},
}
SMALL = {
    "rows": 200,
    "new_rows": 200,
    "segments": 5,
    "segment_rows": 40,
    "latents": 3,
    "runs": 2,
    "directions": 2,
    "models": 1,
}
NO_BASELINE = {"kivva/figure1"}  # nothing is fitted there


@pytest.fixture
def images(monkeypatch):
    """Small pictures instead of MNIST and CIFAR-10."""

    def load(channels):
        def pictures(split):
            rng = np.random.default_rng(split == "test")
            z = rng.normal(size=(120, 3))
            x = 1 / (1 + np.exp(-z @ np.random.default_rng(7).normal(size=(3, 64 * channels))))
            x = np.round(255 * x) / 255
            return Sample(x, u=rng.integers(3, size=120), image_shape=(8, 8) if channels == 1 else (8, 8, 3))

        return pictures

    monkeypatch.setattr(experiments, "IMAGES", {"mnist": load(1), "cifar10": load(3)})


def params_of(method):
    return experiments.estimator_of(method)().get_params() if method.estimator else {}


def tiny(run):
    """Make a run small: some rows, few steps."""
    values = {k: SMALL.get(k, v) for k, v in run.values.items()}
    if "n" in values and not values.get("example"):
        values["n"] = min(values["n"], 3)
    if values.get("law") in ("pinwheel", "parallelograms"):
        values["latents"] = 2
    if values.get("law") == "pdgmm":  # an affine mixture is found in a moment
        values |= {"layers": 1, "rho": "1 var"}
    if values.get("law") == "balls":
        values["balls"] = 2
    if "latents" in run.values and "n" in values:
        values |= {"d": 6, "latents": 4}
    return replace(run, values=values, how=tiny_method(run.how))


def tiny_method(how):
    """The method with few steps, and those before it."""
    known = params_of(how)
    changed = {k: v for k, v in TINY.get(how.estimator, {}).items() if k in known}
    return replace(how, params={**how.params, **changed}, before=how.before and tiny_method(how.before))


def tiny_plan():
    """The runs of every recipe's first setting; what others are compared with is fitted to one simulator once."""
    seen, plan = set(), {}
    for name, recipe in RECIPES.items():
        runs = recipe.runs(quick=True, seeds=1)
        if "generic CNN" in recipe.methods:  # left out of the quick version
            runs += tuple(run for run in recipe.runs(seeds=1) if run.method == "generic CNN")
        plan[name] = []
        for run in (c for c in runs if c.setting == runs[0].setting):
            kind = run.experiment, run.values.get("law"), run.method
            once = run.method in BASELINES or (run.values.get("law") == "balls" and run.method != "ImageUnmixing")
            if not once or kind not in seen:
                plan[name].append(run)
            seen.add(kind)
    return plan


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "runs"), tiny_plan().items(), ids=RECIPES)
def test_every_recipe_runs(name, runs, images):
    recipe = RECIPES[name]
    for run in runs:
        outcome = measure(tiny(run), "cpu")
        found = {k for k, v in outcome.metrics.items() if np.isfinite(v)}
        needed = {"weak", "strong"} if "dist" in recipe.metrics else {recipe.metrics[0]}
        assert needed <= found, (run.method, outcome.metrics)
        record = Record(run, "done", 1.0, outcome.metrics, outcome.arrays, outcome.certificate)
        assert Record.of_line(record.to_line()).to_line() == record.to_line()  # all of it is JSON


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_recipes_are_consistent(recipe):
    assert recipe.question
    assert recipe.source
    names = {s.name for s in recipe.settings}
    assert len(names) == len(recipe.settings)
    assert {p.setting for p in recipe.published} <= names
    assert {p.metric for p in recipe.published} <= set(recipe.metrics)
    assert {name for p in recipe.published for name in p.compare_with} <= set(recipe.methods)
    trained = {name for name, method in recipe.methods.items() if "max_steps" in params_of(method)}
    assert trained <= set(recipe.smaller.params)  # --quick makes all of them smaller
    assert set(recipe.smaller.settings or ()) <= names
    assert set(recipe.seeds_by_method) <= set(recipe.methods)
    for axis in recipe.axes:
        assert all(axis in s.values for s in recipe.settings), axis
    if recipe.name not in NO_BASELINE:
        assert set(recipe.methods) & set(BASELINES)
        assert set(recipe.methods) - set(BASELINES)
    for method in recipe.methods.values():
        assert set(method.params) <= set(params_of(method)), method
    runs = recipe.runs()
    assert len({c.key for c in runs}) == len(runs)
    assert not {c.key for c in runs} & {c.key for c in recipe.runs(quick=True)}
    for run in runs[:3]:
        assert Run.of_json(json.loads(json.dumps(asdict(run)))).key == run.key


def test_the_error_of_an_unknown_recipe_names_similar_ones():
    with pytest.raises(ValueError, match=r"xu2026/tabel1.*xu2026/table1"):
        find("xu2026/tabel1")


def test_the_published_numbers_are_those_of_the_paper():
    """A few of each, looked up by hand."""
    numbers = {(r.name, p.setting, p.method, p.metric): p.mean for r in RECIPES.values() for p in r.published}
    two = "published: TwoStage"
    assert numbers["xu2026/table1", "rho=1var", two, "stage1_r2"] == 0.75
    assert numbers["xu2026/table8-ablation", "rho=1var", "published: groups known", "mcc"] == 0.86
    assert numbers["xu2026/shd", "n=10", two, "delta_shd"] == 2.4
    assert numbers["xu2026/balls-4", "balls=4", two, "ball_2"] == 0.853
    assert numbers["xu2026/balls-6", "balls=6", two, "block_r2"] == pytest.approx(
        np.mean([numbers["xu2026/balls-6", "balls=6", two, f"ball_{i}"] for i in range(1, 7)]), abs=1e-4
    )
    assert numbers["xu2026/misspecified", "sigmoid, layers=3", two, "mcc"] == 0.6
    assert numbers["kivva/table3-mnist", "Arch 1", "published: MFCVAE, leaky ReLU", "weak"] == 0.94
