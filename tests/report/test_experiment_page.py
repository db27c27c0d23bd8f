"""The page as text: what is in it, what is escaped, how it is written, what its drawings show."""

import base64
import hashlib
import io
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup
from PIL import Image

import fake_sweep
from identifiable import files
from identifiable.experiments.recipe import Method, Published, Setting
from identifiable.report.experiment_figures import _panel, correlation, usual_values
from identifiable.report.experiment_page import summarise, sweep_page, write_report
from identifiable.report.experiment_shared import Sweep
from identifiable.report.experiment_tables import tallies
from identifiable.report.html import Page, Section
from identifiable.report.svg import MARKERS, MarkStyle, Point, Scale, Series, heat_map, marker, plot, tag
from identifiable.report.table import Column, Entry, Row, Table

HOSTILE = "<script>alert(1)</script>"
QUOTES = "\" onmouseover='alert(1)' x=\""


class Reader(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.text, self.scripts = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, name, attributes):
        self.tags.append((name, dict(attributes)))

    handle_startendtag = handle_starttag

    def handle_data(self, data):
        (self.scripts if self.tags and self.tags[-1][0] == "script" else self.text).append(data)

    def count(self, name, **wanted):
        return sum(n == name and all(a.get(k) == v for k, v in wanted.items()) for n, a in self.tags)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def records():
    return fake_sweep.records()


@pytest.fixture(scope="module")
def html(records):
    return sweep_page(fake_sweep.RECIPE, records, missing=2).render()


def hostile():
    """A sweep with a script wherever there is a name."""
    plan = fake_sweep.RECIPE
    plan = replace(
        plan,
        title=HOSTILE,
        question=HOSTILE,
        source=QUOTES,
        notes=HOSTILE,
        settings=tuple(Setting(f"{HOSTILE} {i}", {"n": v, QUOTES: i}) for i, v in enumerate((HOSTILE, "2", QUOTES))),
        methods={HOSTILE: Method("PDGMM"), QUOTES: Method("PDGMM"), "PCA": plan.methods["PCA"]},
        published=(Published(f"{HOSTILE} 0", f"{HOSTILE} published", "mcc", 0.9),),
        metrics=("mcc", HOSTILE),
        axes=("n",),
    )
    numbers = {"mcc": 0.5, HOSTILE: 0.5}
    arrays = {"correlation": [[1, 0], [0, 1]], "restarts": [1, 2, 3, 4, 5], "scores": [1, 3, 2, 5, 4]}
    words = {"level": HOSTILE, "theorem": QUOTES, "meaning": HOSTILE, "checks": [{"name": HOSTILE, "words": QUOTES}]}
    rng = np.random.default_rng(0)
    made = fake_sweep.record(fake_sweep.RECIPE.cells()[0], rng)
    found = [
        replace(made, cell=cell, metrics=numbers, arrays=arrays, certificate=words, device=QUOTES, commit=HOSTILE)
        for cell in plan.cells()
    ]
    found[0] = replace(found[0], status="failed", error=HOSTILE)
    found[1] = replace(found[1], versions={HOSTILE: QUOTES}, finished=HOSTILE)
    return plan, found


def test_no_name_becomes_markup(html):
    seen = Reader(sweep_page(*hostile()).render())
    usual = Reader(html)
    assert seen.scripts == usual.scripts  # the page's own, unchanged
    assert seen.count("script") == 1
    for _, attributes in seen.tags:
        assert not [name for name in attributes if name.startswith("on")]
    assert seen.words.count(HOSTILE) > 20
    assert QUOTES in seen.words
    assert {name for name, _ in seen.tags} <= {name for name, _ in usual.tags} | {"p"}


def test_only_the_page_s_own_script_may_run(html):
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_nothing_outside_the_file_is_asked_for(html):
    assert not re.findall(r"https?:|//[a-z]|url\(|@import", html)
    for name, attributes in Reader(html).tags:
        for key in ("src", "href", "srcset", "data", "action"):
            assert attributes.get(key, "#").startswith(("#", "data:")), (name, attributes)
    assert len(html.encode()) < 1_000_000


def test_the_header_says_what_was_run(html):
    words = Reader(html).words
    recipe = fake_sweep.RECIPE
    for text in (recipe.title, recipe.question, recipe.source, recipe.name, *recipe.notes.split("\n")):
        assert text in words
    assert "677 done, 3 failed, 2 missing" in words
    assert "Commit 4ef6588a0c1d" in words
    assert "torch 2.13.0" in words
    assert "Finished 2026-11-16 09:12 UTC" in words
    assert "identifiable reproduce paper/table1 " in words
    assert "An unfinished run: 2 of 682 cells are missing" in words
    assert "Quick" not in words


def test_a_quick_run_says_so():
    recipe = fake_sweep.RECIPE
    page = sweep_page(recipe, fake_sweep.records(quick=True, failed=0))
    assert page.notices[0] == (
        "Quick: a smaller version (1 instead of 5 seeds; 2 of 17 settings; rows = 6000; without VaDE; shorter fits of "
        "PDGMM). Its numbers are not those of the full run."
    )
    (command,) = [fact.value for fact in page.facts if fact.command]
    assert command == "identifiable reproduce paper/table1 --quick"
    first = recipe.cells()[0].seed
    few = [r for r in fake_sweep.records() if r.cell.seed == first]
    (command,) = [fact.value for fact in sweep_page(recipe, few).facts if fact.command]
    assert command == "identifiable reproduce paper/table1 --seeds 1"


def test_the_failures_are_listed(html):
    assert Reader(html).words.count("FitFailedError: Training diverged in every restart") == 3
    assert "failures" not in [s.anchor for s in sweep_page(fake_sweep.RECIPE, fake_sweep.records(failed=0)).sections]


def test_a_sentence_per_method_counts_the_verdicts(records):
    frame = summarise(fake_sweep.RECIPE, records)
    for tally in tallies(Sweep(fake_sweep.RECIPE, records)):
        own = frame[(frame["method"] == tally.method) & (frame["kind"] == "method")]
        assert tally.better == (own["against_published"] == "better").sum()
        assert tally.beats == (own["against_baselines"] == "beats the baselines").sum()
        assert tally.compared == tally.faced == 17
        assert f"beats every trivial baseline in {tally.beats} of 17" in tally.words


def test_nothing_run_is_a_page_too(tmp_path):
    page, table = write_report(fake_sweep.RECIPE, [], tmp_path / "new" / "folder", missing=680)
    words = Reader(page.read_text()).words
    assert "No cell has been run yet." in words
    assert "0 done, 0 failed, 680 missing" in words
    assert table.read_text().startswith("setting,method,seed,status")


def test_a_run_that_failed_everywhere_is_a_page_too():
    found = [replace(r, status="failed", metrics={}, error=None) for r in fake_sweep.records()[:20]]
    words = Reader(sweep_page(fake_sweep.RECIPE, found).render()).words
    assert "0 done, 20 failed" in words
    assert "no message" in words


def test_one_setting_has_no_second_table():
    found = [r for r in fake_sweep.records() if r.cell.setting == "n=10"]
    anchors = [s.anchor for s in sweep_page(fake_sweep.RECIPE, found).sections]
    assert anchors[:2] == ["short", "numbers"]
    assert "parameters" not in anchors


def test_the_same_records_are_the_same_file(records, html):
    assert sweep_page(fake_sweep.RECIPE, records, missing=2).render() == html


def test_a_file_is_written_all_or_nothing(tmp_path, records, monkeypatch):
    page, table = write_report(fake_sweep.RECIPE, records[:40], tmp_path)
    assert (page, table) == (tmp_path / "report.html", tmp_path / "results.csv")
    before = page.read_bytes(), table.read_bytes()

    def full(_):
        raise OSError("No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_report(fake_sweep.RECIPE, records, tmp_path)
    assert (page.read_bytes(), table.read_bytes()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.md", "results.csv"]


def test_the_assets_are_in_the_package():
    folder = Path(files.__file__).parent / "report" / "assets"
    assert {p.suffix for p in folder.iterdir()} == {".html", ".css", ".js"}


# figures


def test_a_panel_has_the_settings_that_differ_in_its_axis_alone(records):
    sweep = Sweep(fake_sweep.RECIPE, records)
    values = {r.cell.setting: r.cell.values for r in records}
    usual = {"n": 10, "k": 1, "layers": 10, "rho": 50, "delta": 0, "theta": 0}
    assert usual_values(sweep, values) == usual
    expected = {
        "n": ["5", "10", "20", "40"],
        "k": ["0", "1", "2", "3"],
        "layers": ["3", "10", "20"],
        "rho": ["1 var", "50", "75"],
        "delta": ["0", "1", "2", "3"],
        "theta": ["0", "15", "30", "45"],
    }
    for axis, marks in expected.items():
        drawing = str(_panel(sweep, axis).drawing)
        assert re.findall(r'text-anchor="middle" class="tick">([^<]*)<', drawing) == marks
        series = re.findall(r'<g class="series[^"]*" data-tag="([a-z]*)"', drawing)
        assert sorted(series) == ["baseline"] * 4 + ["method"] * 4 + ["published"] * 2
        assert drawing.count('class="marker"') == 10 * len(marks)


def test_points_lie_where_their_values_are():
    x, y = Scale(0, 10), Scale(0, 1)
    points = [Point(0, 0.0), Point(5, 0.5, 0.25), Point(10, 1.0)]
    drawing = str(plot([Series("a", MarkStyle(), points)], x, y, label="", x_title="", y_title=""))
    (line,) = re.findall(r'<path d="M([^"]*)" class="line"', drawing)
    places = [tuple(map(float, place.split())) for place in line.split("L")]
    np.testing.assert_allclose(np.diff(places, axis=0)[0], np.diff(places, axis=0)[1], atol=0.11)
    (bar,) = re.findall(r'<path d="M([^"]*)" class="bar"', drawing)
    low, high = (float(place.split()[1]) for place in bar.split("L"))
    assert low - high == pytest.approx((places[0][1] - places[2][1]) / 2, abs=0.11)


def test_markers_differ():
    assert len({str(marker(0, 0, i)) for i in range(len(MARKERS))}) == len(MARKERS)


def test_a_heat_map_is_white_at_0_and_blue_at_1():
    drawn = str(heat_map([[1, 0.5], [0, math.nan], [0.25, 2]], "words"))
    data = re.search(r"base64,([^\"]*)", drawn).group(1)
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"), dtype=int)
    side = 160 // 3
    assert image.shape == (3 * side, 2 * side, 3)
    middles = image[side // 2 :: side, side // 2 :: side]
    assert middles[0, 0].tolist() == middles[2, 1].tolist() == [0x08, 0x30, 0x6B]
    assert middles[1, 0].tolist() == middles[1, 1].tolist() == [0xF7, 0xFB, 0xFF]
    assert middles[1, 0].sum() > middles[2, 0].sum() > middles[0, 1].sum() > middles[0, 0].sum()
    assert 'alt="words"' in drawn


def test_heat_maps_are_few_and_leave_out_no_setting(records):
    (section,) = [s for s in sweep_page(fake_sweep.RECIPE, records).sections if s.anchor == "correlations"]
    seen = Reader(section.body)
    assert seen.count("img") == 24
    assert "(24 of 68)" in seen.words
    alts = [attributes["alt"] for name, attributes in seen.tags if name == "img"]
    assert all(any(f" on {s.name}:" in alt for alt in alts) for s in fake_sweep.RECIPE.settings)
    assert not any(" PCA " in alt for alt in alts)


@pytest.mark.parametrize(
    "arrays",
    [
        {"unknown": [1, 2]},
        {"correlation": [1, 2]},
        {"correlation": [[1, 2], [3]]},
        {"correlation": []},
        {"correlation": "words"},
        {"restarts": [1, 2, 3, 4, 5, 6]},
        {"restarts": [1, 2, 3, 4, 5, 6], "scores": [1, 2]},
        {"restarts": [1, 2], "scores": [1, 2]},
        {"restarts": [None] * 9, "scores": [1.0] * 9},
    ],
)
def test_arrays_that_cannot_be_drawn_are_left_out(arrays):
    found = [replace(r, arrays=arrays) for r in fake_sweep.records()[:80]]
    anchors = [s.anchor for s in sweep_page(fake_sweep.RECIPE, found).sections]
    assert "correlations" not in anchors
    assert "restarts" not in anchors


def test_restarts_are_drawn_with_their_correlation(records):
    (section,) = [s for s in sweep_page(fake_sweep.RECIPE, records).sections if s.anchor == "restarts"]
    first = next(r for r in records if r.cell.method == "VaDE" and r.status == "done")
    expected = np.corrcoef(first.arrays["scores"], first.arrays["restarts"])[0, 1]
    assert f"r = {expected:.2f}," in Reader(section.body).words
    assert str(section.body).count('class="marker"') == 6 * 12
    assert math.isnan(correlation(np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 4.0]])))


def test_certificates_are_counted_and_put_in_words(records):
    (section,) = [s for s in sweep_page(fake_sweep.RECIPE, records).sections if s.anchor == "certificates"]
    words = Reader(section.body).words
    found = [r for r in records if r.cell.setting == "delta=3" and r.cell.method == "PDGMM" and r.status == "done"]
    assert f"none × {len(found)}" in words
    assert "? inconclusive mixing On the premise that the mixing is injective." in words
    assert "✗ fails common basis All supports are spanned by columns of one basis." in words
    assert "Blocks: {0}, {1, 2}, {3}." in words
    bare = [replace(r, certificate={"level": "PS"}) for r in records[:5]]
    assert "PS × 5" in Reader(sweep_page(fake_sweep.RECIPE, bare).render()).words


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), st.booleans())
def test_a_linear_scale_covers_its_values_with_few_marks(values, tight):
    scale = Scale.linear(values, tight=tight)
    slack = 1e-6 * (scale.high - scale.low)
    assert all(scale.low - slack <= v <= scale.high + slack for v in values)
    assert 2 <= len(scale.ticks) <= 8
    assert (scale(scale.low), scale(scale.high)) == (0, 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=8))
def test_a_logarithmic_scale_covers_its_values_in_order(values):
    scale = Scale.logarithmic(values)
    assert all(scale.low * 0.999 <= v <= scale.high * 1.001 for v in values)
    places = [scale(v) for v in sorted(values)]
    assert places == sorted(places)
    assert 0 <= places[0] <= places[-1] <= 1
    assert 1 <= len(scale.ticks) <= 8


# parts that any page can use


def test_a_page_of_one_section_escapes_text_and_keeps_markup():
    page = Page("A & B", [Section("one", "<One>", Markup("<b>bold</b>"), "lead < more")]).render()
    assert "<title>A &amp; B</title>" in page
    assert "&lt;One&gt;" in page
    assert "<b>bold</b>" in page
    assert "lead &lt; more" in page


def test_tags_escape_text_and_attributes():
    assert tag("g", "<", title='"') == '<g title="&#34;">&lt;</g>'
    assert tag("path", d=None, stroke_width=1.0) == '<path stroke-width="1"/>'


def test_a_table_has_bands_groups_and_keys():
    columns = [Column("name", name=True), Column("a", "number", band="left"), Column("b", "number", band="left")]
    rows = [Row([Entry("x", "x"), Entry("1", 1.0), Entry("–", math.nan)], "g") for _ in range(2)]
    seen = Reader(Table("words", columns, rows, sorted_by=0).html())
    assert seen.count("th", colspan="2", scope="colgroup") == 1
    assert seen.count("th", scope="row", **{"data-sort": "x"}) == 2
    assert seen.count("td", **{"data-sort": "1"}) == 2
    assert seen.count("tr", **{"class": "repeat"}) == 1
    assert seen.count("th", **{"aria-sort": "ascending"}) == 1
    assert not [a for name, a in seen.tags if name == "td" and a.get("data-sort") == "nan"]
