"""The command line as a person meets it."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

import fresh
import identifiable
from identifiable import load


def call(*arguments, cwd=None):
    code = "import sys; from identifiable.cli import main; sys.argv[0] = 'identifiable'; main()"  # as installed
    return fresh.run(code, *arguments, cwd=cwd, COLUMNS="160", NO_COLOR="1", TERM="dumb")


def test_help_names_every_command():
    result = call("--help")
    assert result.returncode == 0
    assert "Latent variables you can trust" in result.stdout
    for command in ("demo", "datasets"):
        assert command in result.stdout
        assert call(command, "--help").returncode == 0


def test_no_arguments_show_the_help():
    assert "Usage: identifiable" in call().stdout


def test_the_installed_command_says_its_version():
    command = [str(Path(sys.executable).parent / "identifiable"), "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == call("--version").stdout == f"identifiable {identifiable.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("demo", "--nonsense"), "--nonsense"),
        (("demo", "--seed", "abc"), "Invalid value for '--seed'"),
        (("demo", "--seed", "-1"), "Invalid value for '--seed'"),
    ],
)
def test_a_wrong_call_exits_with_2_and_says_why(arguments, words):
    result = call(*arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_an_error_has_no_traceback_unless_asked_for(tmp_path):
    (tmp_path / "file").write_text("")
    result = call("demo", "--output", "file/folder", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert "Traceback" in call("--debug", "demo", "--output", "file/folder", cwd=tmp_path).stderr


def test_datasets_are_listed():
    result = call("datasets")
    assert result.returncode == 0
    for word in ("pdgmm", "make_segments", "sachs", "CC0", "mnist", "load_svhn"):
        assert word in result.stdout


def test_demo_tells_what_needs_no_truth_first_and_writes_what_it_says(tmp_path):
    result = call("demo", "--quick", "-o", "here", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    before, after = result.stdout.split("With the truth in hand")
    for word in ("raw x", "PCA", "FastICA", "SparseUnmixing", "VAE", "PDGMM"):
        assert word in before
        assert word in after
    for word in ("agreement", "patterns of activity", "active latents", "unused", "longer fit", "Identified up to"):
        assert word in before
    assert "MCC:" not in before
    assert "Written to here" in after
    here = tmp_path / "here"
    names = {"latents.csv", "model.safetensors", "history.csv", "results.csv", "recovery.png", "activity.png"}
    assert {p.name for p in here.iterdir()} == names
    assert all(name in after for name in names)
    results = pd.read_csv(here / "results.csv").set_index("method")
    assert results.mcc["FastICA"] > results.mcc["raw x"]
    assert results.mcc["PDGMM"] == results.mcc.max()
    best = results.agreement[["VAE", "PDGMM"]].idxmax()
    model = load(here / "model.safetensors", device="cpu")
    assert type(model).__name__ == best
    assert f"by {best}: its restarts agree most" in after
    latents = pd.read_csv(here / "latents.csv")
    assert list(latents.columns) == list(model.get_feature_names_out())
    assert Image.open(here / "recovery.png").size[0] > 1000
    assert Image.open(here / "activity.png").size[0] > 500
