"""Headline, terminal, page and JSON of a fit make the same claim, and no stronger one than the certificate."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from fake_fit import account
from identifiable.auto.folder import show
from identifiable.auto.verdict import HEADLINES
from identifiable.report.fit_page import fit_page
from identifiable.report.fit_report import FitReport
from page_reader import Reader

KNOWN = "up to sign, scale and shift"
LATENTS = {
    "partly reproducible": ["stable", "unstable"],
    "not enough time": ["doubtful"] * 2,
    "not a mixture": ["stable"],
}
LATENTS |= {"identified": ["stable"] * 3, "reproducible": ["stable"]}
HEADINGS = {
    "identified": "All 3 latents are reproducible and identified",
    "reproducible": "The latent is reproducible",
    "partly reproducible": "1 of 2 latents are reproducible",
    "not reproducible": "No latent is reproducible",
    "Gaussian": "A Gaussian explains the table as well, and has no preferred axes",
}


def report(verdict):
    found = account(LATENTS.get(verdict, ["unstable"] * 2), verdict)
    if verdict == "identified":
        found["certificate"] |= {"level": "PS", "meaning": "every latent", "checks": []}
        found["latents"] = [latent | {"guaranteed": True} for latent in found["latents"]]
    return FitReport.from_dict(found)


def printed(found):
    console = Console(file=io.StringIO(), width=400)
    show(found, console)
    return " ".join(console.file.getvalue().split())


@pytest.mark.parametrize("verdict", HEADLINES)
def test_terminal_page_and_json_have_the_same_verdict(verdict):
    found = report(verdict)
    terminal, page = printed(found), fit_page(found, "t.csv")
    saved = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert FitReport.from_dict(saved).headline == found.headline == page.title == HEADINGS.get(verdict, found.headline)
    assert terminal.startswith(f"{found.headline}. Because.")
    words = Reader("".join(section.body for section in page.sections)).words
    assert saved["verdict"] == verdict
    summary = Reader(page.sections[0].body)
    assert summary.words == f"{verdict[:1].upper()}{verdict[1:]} Because."
    assert summary.all("div")[0]["class"].split()[-1] in ("better", "quiet", "worse")
    assert {fact.name: fact.value for fact in page.facts}["Rows used"] == "9 of 10"
    assert f"{found.stable} of {len(found.latents)}" in page.question
    guarantee = f"Guarantee: {saved['certificate']['level']}, by Theorem 3.7."
    assert guarantee in terminal
    assert guarantee in words
    for text in (terminal, words):
        assert text.count(KNOWN) == (3 if verdict == "identified" else 0)
        assert ("reproducible, not guaranteed" in text) == (found.stable > 0 and verdict != "identified")


@pytest.mark.parametrize("verdict", HEADLINES)
def test_json_is_read_back_unchanged(verdict):
    saved = report(verdict).to_dict()
    assert FitReport.from_dict(json.loads(json.dumps(saved))).to_dict() == saved
    assert saved["tried"][0]["agreement"] is None  # not a number
    assert account().keys() <= saved.keys()


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "certain"},
        {"certificate": None},
        {"verdict": "reproducible", "certificate": None},
        {"certificate": {"level": "PS unless bent"}},
        {"verdict": "reproducible", "certificate": {"level": "AT"}},
        {"latents": report("partly reproducible").latents},
        {"verdict": "reproducible", "latents": report("partly reproducible").latents},
    ],
)
def test_claims_without_support_are_refused(changes):
    with pytest.raises(ValueError, match="certificate of level"):
        replace(report("identified"), **changes)
