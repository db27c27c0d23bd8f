"""The page in a browser: sorting, filtering, schemes, phones and paper; and no request but its own."""

import os
import shutil
from itertools import pairwise

import numpy as np
import pytest

import fake_sweep
from fake_fit import account
from fake_sweep import HOSTILE
from identifiable.report.experiment_page import write_report
from identifiable.report.fit_page import fit_page
from identifiable.report.fit_report import FitReport
from identifiable.report.image_page import Pictures

CHROMIUM = shutil.which("chromium")
TALL = "#numbers table"


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None and os.environ.get("CI") == "true":
        pytest.fail("The browser tests need chromium: apt-get install chromium.")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_report(fake_sweep.RECIPE, fake_sweep.records(), tmp_path_factory.mktemp("page"))[0]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The same page with four settings: every section, and quick to draw."""
    few = [r for r in fake_sweep.records(failed=40) if r.run.setting in ("n=5", "n=10", "delta=3", "rho=1var")]
    return write_report(fake_sweep.RECIPE, few, tmp_path_factory.mktemp("small"), missing=1)[0]


@pytest.fixture
def visit(browser):
    """Open a file; fail at the end if there was an error, a dialog or a request for another file."""
    pages, wrong = [], []

    def go(path, **options):
        page = browser.new_page(**options)
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append("dialog"), dialog.dismiss()))
        page.on("request", lambda r: r.url.startswith(("data:", path.as_uri())) or wrong.append(r.url))
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield go
    for page in pages:
        page.close()
    assert wrong == []


def keys(page, table, column):
    """The sort keys of a column in the visible rows, from top to bottom."""
    return page.eval_on_selector_all(
        f"{table} tbody tr",
        f"rows => rows.filter(r => r.offsetParent).map(r => r.cells[{column}].dataset.sort ?? null)",
    )


def texts(page, table, column):
    """The readable text of a column in the visible rows, from top to bottom."""
    seen = f"rows.filter(r => r.offsetParent).map(r => r.cells[{column}])"
    readable = "filter(c => getComputedStyle(c).visibility === 'visible').map(c => c.innerText)"
    return page.eval_on_selector_all(f"{table} tbody tr", f"rows => {seen}.{readable}")


def numbers(found):
    return [float(v) for v in found if v is not None]


def test_numbers_are_sorted_both_ways_with_gaps_last(visit, path):
    page = visit(path)
    for table, column in (("#table table", 4), (TALL, 3), (TALL, 7), ("#times table", 2)):
        head = page.locator(f"{table} thead tr:last-child th").nth(column)
        before, seen = sorted(numbers(keys(page, table, column))), {}
        for _ in range(2):
            head.locator("button").click()
            seen[head.get_attribute("aria-sort")] = keys(page, table, column)
        assert numbers(seen["ascending"]) == before
        assert numbers(seen["descending"]) == before[::-1]
        for found in seen.values():
            assert all(v is None for v in found[len(before) :])


def test_settings_are_groups_unless_another_column_is_sorted(visit, path):
    page = visit(path)
    heads, names = page.locator(f"{TALL} thead th"), [s.name for s in fake_sweep.RECIPE.settings]
    assert texts(page, TALL, 0) == names
    heads.nth(1).locator("button").focus()
    page.keyboard.press("Enter")
    assert heads.nth(1).get_attribute("aria-sort") == "ascending"
    methods = keys(page, TALL, 1)
    assert methods == sorted(methods, key=str.lower)
    page.keyboard.press("Space")
    assert heads.nth(1).get_attribute("aria-sort") == "descending"
    assert page.locator(f"{TALL} th[aria-sort=ascending], {TALL} th[aria-sort=descending]").count() == 1
    assert len(texts(page, TALL, 0)) == 170
    setting = heads.nth(0).locator("button")
    for expected in (names, names[::-1]):
        setting.click()
        assert texts(page, TALL, 0) == expected
    assert texts(page, TALL, 1)[0] == "TwoStage"  # within a group the order stays
    scroll = page.locator("#numbers .scroll")
    scroll.evaluate("e => e.scrollTop = 2000")
    assert abs(page.locator(f"{TALL} thead").bounding_box()["y"] - scroll.bounding_box()["y"]) < 3


def test_a_filter_and_a_switch_act_on_all_tables(visit, path):
    page = visit(path)
    box = page.locator("#table input.filter")
    box.fill("THETA")
    for table in ("#table table", TALL):
        assert texts(page, table, 0) == ["theta=15", "theta=30", "theta=45"]
    assert page.locator("#numbers input.filter").input_value() == "THETA"
    assert page.locator("#table .count").inner_text() == "3 of 17 rows"
    assert len(keys(page, TALL, 1)) == 30
    page.locator("#numbers input.hide").check()
    assert len(keys(page, TALL, 1)) == 3 * 6
    assert not {"PCA", "raw x"} & set(keys(page, TALL, 1))
    assert texts(page, TALL, 0) == ["theta=15", "theta=30", "theta=45"]
    assert page.locator("#table th", has_text="FastICA").is_hidden()
    assert page.locator("#parameters g[data-tag=baseline]").first.is_hidden()
    page.locator("#table input.hide").uncheck()
    box.fill("")
    assert len(keys(page, TALL, 1)) == 170
    box.fill("no such setting")
    assert keys(page, TALL, 1) == []


LIGHTNESS = """() => { const c = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  c.fillStyle = getComputedStyle(document.body).backgroundColor; c.fillRect(0, 0, 1, 1);
  return Array.from(c.getImageData(0, 0, 1, 1).data).slice(0, 3).reduce((a, b) => a + b) / 765 }"""
CONTRAST = """() => {
  const c = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (colour) => { c.clearRect(0, 0, 1, 1); c.fillStyle = colour; c.fillRect(0, 0, 1, 1);
    return Array.from(c.getImageData(0, 0, 1, 1).data); };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 :
    ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => { for (; e; e = e.parentElement) { const found = rgba(getComputedStyle(e).backgroundColor);
    if (found[3] === 255) return found; } };
  const low = [];
  for (const e of document.querySelectorAll('body *')) {
    if (!e.offsetParent || !Array.from(e.childNodes).some(n => n.nodeType === 3 && n.data.trim())) continue;
    let opacity = 1;
    for (let p = e; p; p = p.parentElement) opacity *= Number(getComputedStyle(p).opacity);
    const under = ground(e), own = rgba(getComputedStyle(e).color);
    const over = own.map((v, i) => v * opacity + under[i] * (1 - opacity));
    const [a, b] = [light(over), light(under)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) low.push([e.className, e.textContent.slice(0, 40), (a + 0.05) / (b + 0.05)]);
  }
  return low.slice(0, 10);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_button_overrides_the_scheme_of_the_system_and_all_text_has_contrast(visit, small, scheme):
    page = visit(small, color_scheme=scheme)
    page.eval_on_selector_all("details", "all => all.forEach(d => d.open = true)")
    button, other = page.locator("#scheme"), {"light": "dark", "dark": "light"}[scheme]
    for shown, offered in ((scheme, other), (other, scheme), (scheme, other)):
        lightness = page.evaluate(LIGHTNESS)
        assert (lightness > 0.9) if shown == "light" else (lightness < 0.2)
        assert button.inner_text() == f"{offered.title()} scheme"
        button.click()
    assert page.evaluate(CONTRAST) == []


def test_a_phone_scrolls_tables_and_not_the_page(visit, small):
    page = visit(small, viewport={"width": 390, "height": 844})
    page.eval_on_selector_all("details", "all => all.forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("document.body.scrollWidth") <= 390
    inner, outer = page.eval_on_selector("#table .scroll", "e => [e.scrollWidth, e.clientWidth]")
    assert inner > outer
    name = page.locator("#table tbody th.name").first
    before = name.bounding_box()["x"]
    page.eval_on_selector("#table .scroll", "e => e.scrollLeft = 200")
    assert name.bounding_box()["x"] == before


def test_printing_is_light_without_controls_and_with_all_details(visit, small):
    page = visit(small, color_scheme="dark")
    page.locator("#scheme").click()
    page.locator("#scheme").click()  # dark by choice
    page.emulate_media(media="print", color_scheme="dark")
    for control in ("#scheme", ".controls", "nav"):
        assert page.locator(control).first.is_hidden()
    assert page.evaluate(LIGHTNESS) == 1
    assert page.eval_on_selector("#numbers .scroll", "e => getComputedStyle(e).overflow") == "visible"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    assert page.pdf(prefer_css_page_size=True)[:5] == b"%PDF-"


def test_every_control_can_be_reached_by_keyboard_and_is_named(visit, small):
    page = visit(small)
    names = page.eval_on_selector_all(
        "button, input, summary, [tabindex], svg[role=img], img",
        "all => all.map(e => (e.ariaLabel || e.alt || e.innerText || e.labels?.[0]?.innerText || '').trim())",
    )
    assert len(names) > 50
    assert "" not in names
    assert page.eval_on_selector_all("[tabindex]", "all => all.every(e => e.tabIndex === 0)")
    levels = page.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_the_page_is_readable_without_its_script(visit, small):
    page = visit(small, java_script_enabled=False)
    assert page.locator("#scheme").is_hidden()
    assert page.locator(f"{TALL} tbody tr").count() == 40


def test_a_name_in_the_legend_highlights_its_series(visit, small):
    page = visit(small)
    button = page.locator("#parameters .legend button", has_text="PDGMM")
    opacity = "n => Number(getComputedStyle(document.querySelector(`g[data-series='method ${n}']`)).opacity)"
    for pressed in (False, True, False):
        assert button.get_attribute("aria-pressed") == str(pressed).lower()
        assert page.evaluate(opacity, "PDGMM") == 1
        assert (page.evaluate(opacity, "VaDE") < 0.3) == pressed
        button.click()


@pytest.fixture(scope="module", params=["columns", "pictures"])
def fitted(request, tmp_path_factory):
    """The page of a fit to columns or images, with a script in its names."""
    edges = [{"from": "z0", "to": "z1", "mark": "->", "strength": 0.4}]
    found = account(column=HOSTILE) | {"graph": {"edges": edges}}
    along = np.linspace(0, 1, 27 * 16).reshape(3, 9, 4, 4)
    effects = along[:, 3] - along.mean()
    pictures = Pictures(along[0], along[1], along, np.zeros((3, 2)), effects) if request.param == "pictures" else None
    return fit_page(FitReport.from_dict(found), HOSTILE, pictures).write(
        tmp_path_factory.mktemp("fitted") / "report.html"
    )


def test_the_page_of_a_fit_has_contrast_and_can_be_sorted(visit, fitted):
    page = visit(fitted)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST) == []
    head = page.locator("#latents thead th", has_text="Split-half")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert numbers(keys(page, "#latents table", 3)) == [0.97, 0.97, 0.5]
    for head in page.locator("thead button").all():
        head.click()
    assert page.locator("script").count() == 1
    drawn = "#portraits :is(img, svg), #graph svg"
    sizes = page.eval_on_selector_all(drawn, "all => all.map(e => Math.min(e.clientWidth, e.clientHeight))")
    assert len(sizes) >= 7
    assert min(sizes) > 10
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)") == 390
