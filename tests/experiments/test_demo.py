"""The demo prints what needs no ground truth first, and writes what it announces."""

import contextlib
import io
import warnings

import pandas as pd
import pytest
from PIL import Image

from identifiable import load
from identifiable.experiments.demo import run_demo

METHODS = ("raw x", "PCA", "FastICA", "SparseUnmixing", "VAE", "PDGMM")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The quick demo: the printed text, the results and the folder."""
    folder, printed = tmp_path_factory.mktemp("demo") / "here", io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("COLUMNS", "160")
        warnings.simplefilter("error", UserWarning)
        found = run_demo(folder, quick=True)
    return printed.getvalue(), found, folder


def test_everything_before_the_comparison_needs_no_ground_truth(demo):
    before, _, after = demo[0].partition("Comparison with the ground truth")
    assert all(method in before and method in after for method in METHODS)
    for text in ("agreement", "patterns of activity", "active latents", "unused", "longer fit", "guarantees"):
        assert text in before
    assert "MCC:" in after
    assert "MCC:" not in before
    assert "% of new rows" in after


def test_the_files_are_those_announced(demo):
    printed, found, folder = demo
    assert set(folder.iterdir()) == set(found.files)
    assert len(found.files) == 6
    assert all(path.name in printed for path in found.files)
    assert Image.open(folder / "recovery.png").size[0] > 1000
    assert Image.open(folder / "activity.png").size[0] > 500


def test_the_model_with_the_best_agreement_is_saved(demo):
    printed, found, folder = demo
    results = pd.read_csv(folder / "results.csv").set_index("method")
    assert list(results.index) == list(METHODS)
    assert results.mcc["FastICA"] > results.mcc["raw x"]
    assert results.mcc["PDGMM"] == results.mcc.max()
    best = results.agreement[["VAE", "PDGMM"]].idxmax()
    assert f"by {best}" in printed
    model = load(folder / "model.safetensors", device="cpu")
    assert type(model).__name__ == best
    latents = pd.read_csv(folder / "latents.csv")
    assert list(latents.columns) == list(model.get_feature_names_out())
    assert len(latents) == found.results["setting.new_rows"].iloc[0]
