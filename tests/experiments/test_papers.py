"""Every recipe runs at a tiny size, shows the trivial baselines, and says what was published."""

import json
from dataclasses import replace

import numpy as np
import pytest

import identifiable
from identifiable.data import Sample
from identifiable.experiments import measure as experiments
from identifiable.experiments.measure import best_device, group, measure, measure_together
from identifiable.experiments.papers import RECIPES, find
from identifiable.experiments.recipe import BASELINES, FIRST_SEED, Cell, Record

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
    "RelaxedVQVAE": {"max_steps": 2, "batch_size": 8, "n_codes": 4, "width": 4},
}
SMALL = {"rows": 200, "new_rows": 200, "segment_rows": 40, "latents": 3, "runs": 2, "directions": 2, "models": 1}
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
    return getattr(identifiable, method.estimator)().get_params() if method.estimator else {}


def tiny(cell):
    """Make a cell small: some rows, few steps."""
    values = {k: SMALL.get(k, v) for k, v in cell.values.items()}
    if "n" in values and not values.get("example"):
        values["n"] = min(values["n"], 3)
    if values.get("law") in ("pinwheel", "parallelograms"):
        values["latents"] = 2
    if values.get("law") == "pdgmm":  # an affine mixture is found in a moment
        values |= {"layers": 1, "rho": "1 var"}
    if "latents" in cell.values and "n" in values:
        values |= {"d": 6, "latents": 4}
    known = params_of(cell.how)
    changed = {k: v for k, v in TINY.get(cell.how.estimator, {}).items() if k in known}
    before = cell.how.before and replace(cell.how.before, params={"n_latents": 6})
    return replace(cell, values=values, how=replace(cell.how, params={**cell.how.params, **changed}, before=before))


def to_run():
    """The cells of every recipe's first setting; a baseline is fitted to one law and experiment once."""
    seen, plan = set(), {}
    for name, recipe in RECIPES.items():
        cells = recipe.cells(quick=True)
        plan[name] = []
        for cell in (c for c in cells if c.setting == cells[0].setting):
            kind = cell.experiment, cell.values.get("law"), cell.method
            if cell.method not in BASELINES or kind not in seen:
                plan[name].append(cell)
            seen.add(kind)
    return plan


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "cells"), to_run().items(), ids=RECIPES)
def test_every_recipe_runs(name, cells, images):
    recipe = RECIPES[name]
    for cell in cells:
        outcome = measure(tiny(cell), "cpu")
        found = {k for k, v in outcome.metrics.items() if np.isfinite(v)}
        needed = {"weak", "strong"} if "dist" in recipe.metrics else {recipe.metrics[0]}
        assert needed <= found, (cell.method, outcome.metrics)
        record = Record(cell, "done", 1.0, outcome.metrics, outcome.arrays, outcome.certificate)
        assert Record.of_line(record.to_line()).to_line() == record.to_line()  # all of it is JSON


def test_cells_of_one_group_are_measured_at_once_as_alone():
    cells = [tiny(c) for c in find("xu2026/table1").cells(quick=True) if c.method == "TwoStage"][:3]
    (word,) = {group(c) for c in cells}
    assert word is not None
    for cell, outcome in zip(cells, measure_together(cells, "cpu"), strict=True):
        alone = measure(cell, "cpu")
        assert outcome.metrics.keys() == alone.metrics.keys()
        for metric in ("mcc", "r2", "stage1_mcc"):
            assert outcome.metrics[metric] == pytest.approx(alone.metrics[metric], abs=1e-3)


def test_cells_that_are_fitted_otherwise_are_not_of_one_group():
    cells = find("xu2026/table8-ablation").cells()
    words = {c.key: group(c) for c in cells}
    assert all(words[c.key] is None for c in cells if c.how.estimator != "TwoStage")
    ten = [c for c in cells if c.how.estimator == "TwoStage" and c.values["n"] == 10]
    assert len({words[c.key] for c in ten}) == 2  # with stage 2 and without
    assert len({group(replace(c, seed=s)) for c in ten for s in (1, 2)}) == 4


def test_a_gpu_is_left_to_wide_nets():
    cells = {c.method: c for c in find("xu2026/table1").cells()}
    assert [best_device(cells[m], "auto") for m in ("PDGMM", "TwoStage")] == ["cpu", "auto"]
    assert best_device(cells["PDGMM"], "cuda:1") == "cuda:1"


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_what_a_recipe_states(recipe):
    assert recipe.question
    assert recipe.source
    names = {s.name for s in recipe.settings}
    assert len(names) == len(recipe.settings)
    assert {p.setting for p in recipe.published} <= names
    assert {p.metric for p in recipe.published} <= set(recipe.metrics)
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
    cells = recipe.cells()
    assert len({c.key for c in cells}) == len(cells)
    assert not {c.key for c in cells} & {c.key for c in recipe.cells(quick=True)}
    for cell in cells[:3]:
        assert Cell.of_json(json.loads(json.dumps(cell.to_json()))).key == cell.key


def test_seeds_of_a_recipe():
    recipe = find("xu2026/table1")
    cells = recipe.cells(seeds=3)
    assert {c.seed for c in cells if c.method == "PDGMM"} == {FIRST_SEED, FIRST_SEED + 1, FIRST_SEED + 2}
    assert {c.seed for c in cells if c.method == "TwoStage"} == {FIRST_SEED}  # it runs on fewer
    assert len({c.setting for c in recipe.cells(quick=True)}) == 17


def test_an_unknown_recipe_is_named_and_its_neighbours_are():
    with pytest.raises(ValueError, match=r"no recipe 'xu2026/tabel1'.*xu2026/table1"):
        find("xu2026/tabel1")


def test_the_published_numbers_are_those_of_the_paper():
    """A few of each, looked up by hand."""
    numbers = {(r.name, p.setting, p.method, p.metric): p.mean for r in RECIPES.values() for p in r.published}
    two = "published: TwoStage"
    assert numbers["xu2026/table1", "n=40", two, "mcc"] == 0.94
    assert numbers["xu2026/table1", "rho=1var", two, "stage1_r2"] == 0.75
    assert numbers["xu2026/table8-ablation", "rho=1var", "published: groups known", "mcc"] == 0.86
    assert numbers["xu2026/shd", "n=10", two, "delta_shd"] == 2.4
    assert numbers["xu2026/misspecified", "sigmoid, layers=3", two, "mcc"] == 0.6
    assert numbers["kivva/table2", "parallelograms 3", "published: VaDE", "dist"] == 0.578
    assert numbers["kivva/table3-mnist", "Arch 1", "published: MFCVAE, leaky ReLU", "weak"] == 0.94
