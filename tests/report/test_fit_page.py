"""The trust report: every latent with its verdict, those that fail too, in words; nothing from data is markup."""

import re

import numpy as np
import pytest

from identifiable.report.fit_page import Pictures, fit_page, in_words
from identifiable.report.portraits import bars

HOSTILE = "<script>alert(1)</script>"


def account(verdicts=("stable", "doubtful", "unstable"), verdict="doubtful", column="mass"):
    latents = [
        {
            "verdict": v,
            "seed_agreement": 0.99,
            "split_half_agreement": 0.5 if v == "unstable" else 0.97,
            "inactive_share": None,
            "block": [i],
        }
        | {"alternative_agreement": 0.98 if v == "stable" else None}
        | {"columns": {column: 1.5 - i, "length": -0.25}, "histogram": {"low": -2.0, "high": 2.0, "counts": [1, 5, 2]}}
        for i, v in enumerate(verdicts)
    ]
    tried = {"says": "an affine mixture", "linear": True, "given_u": False, "gain": 1.2, "error": 0.1}
    tried |= {"agreement": None, "seconds": 2.5, "note": ""}
    check = {"name": "3.4", "verdict": "inconclusive", "sentence": "It cannot be told."}
    certificate = {"level": "AT", "if_undecided_hold": "PS", "theorem": "Theorem 3.7", "meaning": "one affine map"}
    return {
        "verdict": verdict,
        "reasons": ["Because."],
        "model": "A",
        "expected": 0.975,
        "latents": latents,
        "tried": [tried | {"name": "A"}, tried | {"name": "B", "gain": None, "error": None, "note": "out of time"}],
        "certificate": certificate | {"checks": [check]},
        "data": {"rows": 10, "rows_used": 9, "columns_used": [column, "length"], "u": ["site"], "seen": ["9 rows."]},
        "versions": {"identifiable": "1"},
        "finished": "2026-01-02T03:04:05+00:00",
    }


def test_a_latent_that_fails_is_shown_as_such():
    html = fit_page(account(), "t.csv").render()
    for words in ("unstable", "not identified: it does not come back", "1 of 3 latents are stable", "out of time"):
        assert words in html
    assert all(f">z{i}<" in html for i in range(3))


@pytest.mark.parametrize("verdict", ["identified", "doubtful", "nothing identifiable"])
def test_the_verdict_is_the_heading(verdict):
    html = fit_page(account(verdict=verdict), "t.csv").render()
    heading = {"identified": "Every latent comes back", "doubtful": "Some latents come back, some do not"}
    assert f"<h1>{heading.get(verdict, 'Nothing identifiable')}</h1>" in html


@pytest.mark.parametrize(
    ("trust", "words"),
    [
        ({"verdict": "stable", "block": [1]}, "up to sign, scale and shift"),
        ({"verdict": "stable", "block": [1, 4]}, "only together with z4"),
        ({"verdict": "doubtful", "block": [1]}, "doubtful: it comes back in part"),
        ({"verdict": "unstable", "block": [1, 4]}, "not identified: it does not come back"),
    ],
)
def test_what_is_known_of_a_latent(trust, words):
    assert in_words(trust, 1) == words


def test_names_from_data_stay_text():
    html = fit_page(account(column=HOSTILE), HOSTILE).render()
    assert HOSTILE not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 1), (4, 4, 3)])
def test_pictures_of_latents_take_the_place_of_columns(shape):
    along = np.linspace(0, 1, 9 * int(np.prod(shape))).reshape(9, *shape)
    pictures = [Pictures(along, along[3] - along.mean())] * 3
    html = fit_page(account(), "pictures", pictures).render()
    assert html.count("data:image/png;base64,") == 6
    assert html.count('<svg viewBox="0 0 320') == 3  # a histogram each, and no bars
    assert "What each latent moves" not in html
    assert "mass" not in html


def test_columns_are_drawn_as_bars_from_a_common_zero():
    drawn = str(bars({"grows": 2.0, "falls": -1.0}, "label"))
    zero = float(re.search(r'<line x1="([\d.]+)"', drawn)[1])
    rects = [dict(re.findall(r'(\w+)="([^"]*)"', r)) for r in re.findall("<rect[^>]*>", drawn)]
    assert [float(r["x"]) for r in rects] == pytest.approx([zero, zero - float(rects[1]["width"])])
    assert float(rects[0]["width"]) == pytest.approx(2 * float(rects[1]["width"]))


def test_the_graph_has_an_arrow_where_the_direction_is_known():
    edges = [{"from": "z0", "to": "z1", "mark": "->", "strength": 0.5}]
    edges += [{"from": "z1", "to": "z2", "mark": "-", "strength": -0.2}]
    html = fit_page(account() | {"graph": {"level": "cpdag", "edges": edges}}, "t.csv").render()
    assert html.count('class="edge"') == 2
    assert html.count('class="tip"') == 1
