import base64
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import fake_sweep
from identifiable import files
from identifiable.report.experiment_figures import (
    blocks,
    correlation,
    correlations,
    images,
    panels,
    png_size,
    restarts,
    usual_values,
)
from identifiable.report.sweep import Sweep
from page_reader import Reader

USED = {axis: {setting.values[axis] for setting in fake_sweep.RECIPE.settings} for axis in fake_sweep.RECIPE.axes}
AXES = {axis: [str(v) for v in sorted(found, key=lambda v: (v != "1 var", v))] for axis, found in USED.items()}


@pytest.fixture(scope="module")
def sweep():
    return Sweep(fake_sweep.RECIPE, fake_sweep.records())


def test_a_panel_has_the_settings_that_differ_in_its_parameter_only(sweep):
    values = {r.run.setting: r.run.values for r in sweep.runs}
    assert usual_values(sweep, values) == {"n": 10, "k": 1, "layers": 10, "rho": 50, "delta": 0, "theta": 0}
    body, x = str(panels(sweep).body), {}
    assert re.findall(r"<h3>([^<]*)</h3>", body) == list(AXES)
    assert body.count('aria-pressed="false"') == 10
    for (axis, ticks), drawing in zip(
        AXES.items(), re.findall(r"<svg[^>]*role=.*?</svg>\s*</figure>", body), strict=True
    ):
        found = re.findall(r'<text x="([\d.]+)"[^>]*text-anchor="middle" class="tick">([^<]*)<', drawing)
        assert [tick for _, tick in found] == ticks
        x[axis] = np.diff([float(place) for place, _ in found])
        series = re.findall(r'<g class="series[^"]*" data-tag="([a-z]*)"', drawing)
        assert series == ["baseline"] * 4 + ["published"] * 2 + ["method"] * 4  # methods on top
        assert drawing.count('class="marker"') == 10 * len(ticks)
        assert f'aria-label="MCC of TwoStage, GroupedSparse (groups known), VaDE, PDGMM against {axis}, ' in drawing
    np.testing.assert_allclose(np.r_[np.diff(x["n"]), np.diff(x["rho"])], 0, atol=0.11)  # 5, 10, 20, 40; names
    assert np.ptp(x["layers"]) > 10  # 3, 10, 20
    assert panels(Sweep(fake_sweep.RECIPE, sweep.records[:5])) is None


def test_heat_maps_are_few_and_show_every_setting(sweep):
    section = correlations(sweep)
    seen = Reader(section.body)
    assert seen.count("img") == 24
    assert "(24 of 68)" in seen.words
    alts = [attributes["alt"] for attributes in seen.all("img")]
    assert all(any(f" on {name}:" in alt for alt in alts) for name in fake_sweep.SETTINGS)
    assert not any(" PCA " in alt for alt in alts)
    first = sweep.of("n=5", "PDGMM")[0]
    table = np.array(first.arrays["correlation"])
    (alt,) = [alt for alt in alts if "PDGMM on n=5:" in alt]
    assert f"{np.diag(table).mean():.2f} on the diagonal" in alt
    assert f"{(table - np.diag(np.diag(table))).max():.2f} off" in alt


@pytest.mark.parametrize(
    "arrays",
    [
        *({"correlation": table} for table in ([1, 2], [[1, 2], [3]], [], "words")),
        {"restarts": [1, 2, 3, 4, 5, 6]},
        *({"restarts": own, "scores": [1.0, 2.0]} for own in ([1, 2, 3, 4, 5, 6], [1, 2])),
        {"restarts": [None] * 9, "scores": [1.0] * 9},
    ],
)
def test_arrays_that_cannot_be_drawn_are_left_out(arrays):
    sweep = Sweep(fake_sweep.RECIPE, [replace(r, arrays=arrays) for r in fake_sweep.records()[:80]])
    assert correlations(sweep) is None
    assert restarts(sweep) is None


def test_restarts_are_drawn_with_their_correlation(sweep):
    section = restarts(sweep)
    first = sweep.of("n=5", "VaDE")[0]
    expected = np.corrcoef(first.arrays["scores"], first.arrays["restarts"])[0, 1]
    assert f"r = {expected:.2f}," in Reader(section.body).words
    assert str(section.body).count('class="marker"') == 6 * 12
    assert "6 of 17" in section.lead
    assert math.isnan(correlation(np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 4.0]])))


def with_arrays(sweep, setting, method, **arrays):
    """The sweep with other arrays in all runs of a method on a setting."""
    own = (setting, method)
    return Sweep(
        sweep.recipe,
        [replace(r, arrays=arrays) if (r.run.setting, r.run.method) == own else r for r in sweep.records],
    )


def test_latents_and_blocks_are_drawn_for_baselines_too(sweep):
    assert blocks(sweep) is None
    table = [[0.9, 0.1], [0.8, 0.2], [0.0, 0.7]]
    section = blocks(with_arrays(sweep, "n=5", "PCA", blocks=table))
    (picture,) = Reader(section.body).all("img")
    assert picture["alt"].startswith(
        "3 estimated latents against 2 blocks, PCA on n=5: the largest of each latent 0.80"
    )
    assert "R² 0" in Reader(section.body).words
    assert "open" in str(section.body)[:20]  # one drawing needs no click


def test_images_of_the_first_seed_are_shown(sweep):
    assert images(sweep) is None
    sheet = files.png(np.zeros((20, 30, 3)))
    section = images(with_arrays(sweep, "n=5", "PDGMM", frames=sheet, traversals=sheet))
    found = Reader(section.body).all("img")
    assert [(p["width"], p["height"], p["src"]) for p in found] == [("30", "20", f"data:image/png;base64,{sheet}")] * 2
    assert all("PDGMM on n=5" in p["alt"] for p in found)


@pytest.mark.parametrize(
    "text", [None, 3, [[1]], "", "x", "PHNjcmlwdD4=", '"><script>', base64.b64encode(b"\x89PNG").decode()]
)
def test_what_is_no_picture_is_left_out(sweep, text):
    assert png_size(text) is None
    assert images(with_arrays(sweep, "n=5", "PDGMM", frames=text)) is None
