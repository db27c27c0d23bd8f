"""Every example runs, prints what its page shows, draws something, and what it claims holds on this machine too."""

import re
from pathlib import Path

import matplotlib.image
import pytest

import fresh
from test_docs import DOCS, without_digits

pytestmark = pytest.mark.docs
SCRIPTS = sorted((DOCS / "examples").glob("*.py"))
SHARED = Path(__file__).parent.parent.parent / "shared" / "data"  # where the real files may be, beside the repository
PAGE = (DOCS / "examples.md").read_text()


def run(script, picture):
    """Run a script as a user does, and return what it prints."""
    known = {} if not SHARED.is_dir() else {"IDENTIFIABLE_DATA": str(SHARED)}
    code = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    result = fresh.run(code, script, picture, MPLBACKEND="agg", **known)
    assert result.returncode == 0, result.stderr
    return result.stdout


def values(text, word):
    """Read `name  word 0.123` lines: name to number."""
    found = re.findall(rf"^ *(\S.*?) {{2,}}.*?\b{word} +(-?\d+\.\d+)", text, re.MULTILINE)
    return {name: float(number) for name, number in found}


def claim_linear_sparse(text):
    mcc = values(text, "MCC")
    assert mcc.pop("SparseUnmixing") == 1.0
    assert max(mcc.values()) < 1.0
    assert "verified 5 of 5 latents" in text


def claim_nonlinear_pdgmm(text):
    mcc = values(text, "MCC")
    assert mcc.pop("PDGMM") > max(mcc.values())
    assert len(mcc) == 4


def claim_ivae_sachs(text):
    score, given_u = values(text, "score"), values(text, "given u")
    linear = ("PCA", "FastICA", "SparseUnmixing", "SegmentUnmixing")
    assert score["IFlow"] > max(score[name] for name in (*linear, "raw x"))
    assert score["IVAE"] > max(score[name] for name in linear)
    assert given_u["IVAE"] > given_u["SegmentUnmixing"]


def claim_vade_digits(text):
    accuracy = values(text, "accuracy")
    best = max(accuracy, key=accuracy.get)
    assert min(accuracy.values()) > 0.5  # chance is a tenth
    assert ("VaDE is above both baselines here." if best == "VaDE" else f"VaDE does not beat {best} here.") in text


def claim_balls(text):
    mcc = values(text, "MCC")
    code = {name: mcc.pop(name) for name in list(mcc) if name.endswith("code")}
    assert min(code.values()) > max(mcc.values())
    assert len(mcc) == 5


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.stem)
def test_example(script, tmp_path):
    picture = tmp_path / "picture.png"
    text = run(script, picture)
    if "not available" in text:
        pytest.skip(text.strip())
    pixels = matplotlib.image.imread(picture)
    assert pixels.shape[0] > 300
    assert pixels[..., :3].std() > 0.05
    globals()[f"claim_{script.stem}"](text)
    assert without_digits(text) in without_digits(PAGE)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.stem)
def test_example_has_its_page_and_a_small_picture(script):
    assert f"literalinclude}} examples/{script.name}" in PAGE
    assert f"](examples/{script.stem}.png)" in PAGE
    assert script.with_suffix(".png").stat().st_size <= 120_000
