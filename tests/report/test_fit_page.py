import numpy as np
import pytest

from fake_fit import account
from fake_sweep import HOSTILE
from identifiable.report.fit_page import fit_page
from identifiable.report.fit_report import FitReport
from identifiable.report.image_page import Pictures
from page_reader import Reader

EDGE = {"from": "z0", "to": "z1", "mark": "->", "strength": 0.5}


def page_of(found, *pictures):
    return fit_page(FitReport.from_dict(found), "t.csv", *pictures)


def rows_of(page, anchor):
    (section,) = [section for section in page.sections if section.anchor == anchor]
    return Reader(section.body).rows[1:]


def words_of(found, anchor):
    (section,) = [section for section in page_of(found).sections if section.anchor == anchor]
    return Reader(f"{section.lead}{section.body}").words


def test_every_latent_has_its_verdict_and_agreements():
    rows = rows_of(page_of(account()), "latents")
    assert [row[:5] for row in rows] == [
        ["z0", "stable", "0.990", "0.970", "0.980"],
        ["z1", "doubtful", "0.990", "0.970", "–"],
        ["z2", "unstable", "0.990", "0.500", "–"],
    ]
    assert rows[0][-1] == "mass 1.50, length −0.25"
    told = account()
    told["latents"][0] |= {"inactive_share": 0.25, "alternative_agreement": None}
    assert rows_of(page_of(told), "latents")[0][4] == "25 %"  # no column of alternative models


def test_latents_that_the_model_does_not_describe_are_marked():
    limits = {"auc": 0.55, "largest_auc": 0.6, "largest_distance": 0.1}
    found = account() | {"goodness": limits | {"distances": [0.04, 0.31, 0.05]}}
    rows = rows_of(page_of(found), "latents")
    assert [row[5] for row in rows] == ["0.04", "0.31", "0.05"]

    def marked(found):
        (section,) = [section for section in page_of(found).sections if section.anchor == "latents"]
        return sum("worse" in (cell.get("class") or "") for cell in Reader(section.body).all("td"))

    assert marked(found) == marked(account()) + 1
    assert "AUC 0.55" in words_of(found, "latents")
    assert "AUC" not in words_of(account() | {"goodness": None}, "latents")


def test_models_and_guarantees_are_listed():
    rows = rows_of(page_of(account()), "tried")
    assert [(row[0], row[2], row[-1]) for row in rows] == [("A", "1.20 ± 0.10", "selected"), ("B", "–", "out of time")]
    words = words_of(account(), "guarantees")
    assert "AT, by Theorem 3.7" in words
    without = page_of(account() | {"certificate": None})
    assert "guarantees" not in [section.anchor for section in without.sections]


def test_of_many_columns_those_with_the_largest_effects_are_shown():
    told = account(["stable", "stable"])
    names = [f"c{i}" for i in range(60)]
    told["data"]["columns_used"] = names
    for latent, sign in zip(told["latents"], (1, -0.5), strict=True):
        latent["columns"] = {name: sign * i for i, name in enumerate(names)}
    page = page_of(told)
    rows = rows_of(page, "effects")
    assert [row[0] for row in rows] == names[20:]
    assert rows[0][1:] == ["20.00", "−10.00"]
    (section,) = [section for section in page.sections if section.anchor == "effects"]
    assert "40 of 60" in section.lead
    best = Reader(section.body).all("td", **{"class": "number best"})
    assert [float(a["data-sort"]) for a in best] == list(range(20, 60))


def test_names_from_data_stay_text():
    html = fit_page(FitReport.from_dict(account(column=HOSTILE)), HOSTILE).html()
    assert HOSTILE not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 1), (4, 4, 3)])
def test_images_take_the_place_of_columns(shape):
    along = np.linspace(0, 1, 27 * int(np.prod(shape))).reshape(3, 9, *shape)
    pictures = Pictures(along[0], along[1], along, np.zeros((3, 2)), along[:, 3] - along.mean())
    of_images = account()
    of_images["data"]["picture"] = list(shape)
    page = page_of(of_images, pictures)
    html = page.html()
    assert html.count("data:image/png;base64,") == 6 + 2  # two of each latent, and examples with their reconstructions
    assert html.count('<svg viewBox="0 0 320') == 3  # a histogram each, and no bars
    assert "effects" not in [section.anchor for section in page.sections]
    assert "mass" not in html


def test_edges_are_drawn_and_listed():
    found = account() | {"graph": {"edges": [EDGE, EDGE | {"from": "z2", "mark": "-", "strength": -0.2}]}}
    assert rows_of(page_of(found), "graph") == [["z0", "→", "z1", "0.50"], ["z2", "–", "z1", "−0.20"]]
    html = page_of(found).html()
    assert (html.count('class="edge"'), html.count('class="tip"')) == (2, 1)
    assert "No edges" in words_of(account() | {"graph": {"edges": []}}, "graph")
    assert "needs more rows" in words_of(account() | {"graph": {"why": "It needs more rows."}}, "graph")
