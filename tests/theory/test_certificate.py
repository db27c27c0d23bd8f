"""Levels, verdicts and certificates as text and as JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest

from identifiable import ConditionalPrior, Mixture
from identifiable.theory import Decoder, Level, certify
from identifiable.theory.certificate import Check, Finding, check_mixing, levels, named, verdict_of
from theory.decoder_examples import ABS
from theory.subspaces import latents_of

FACTORIAL = Mixture([0.5, 0.5], [[0, 0], [3, 1]], [[1, 1], [1, 2]])


def test_levels_are_ordered_and_print_as_in_the_paper():
    assert [str(level) for level in sorted(Level)] == ["none", "ATwC", "AT", "blocks", "PS unless bent", "PS"]


CERTIFICATES = [
    certify(latents_of(n=4).mixture()),
    certify(latents_of(example="E.3").mixture()),
    certify(latents_of(theta=10.0).mixture()),
    certify(latents_of(blocks=(2, 3, 2)).mixture()),
    certify(FACTORIAL),
    certify(FACTORIAL, decoder=Decoder.from_layers([(np.eye(2), [0, 0])] * 2, ABS)),
    certify(FACTORIAL, estimated=True),
    certify(ConditionalPrior("mean", [[0, 0], [2, 0], [0, 3]], np.ones((3, 2)))),
    certify(ConditionalPrior("variance", np.zeros((2, 2)), [[1, 1], [2, 1]])),
]


@pytest.mark.parametrize("certificate", CERTIFICATES)
def test_plain_values_survive_json_and_say_what_is_printed(certificate):
    plain = certificate.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["level"], plain["if_undecided_hold"]) == (str(certificate.level), str(certificate.if_undecided_hold))
    assert [check["name"] for check in plain["checks"]] == [check.name for check in certificate.checks]
    assert all(certificate[check.name] is check for check in certificate.checks)
    text = str(certificate)
    assert text.startswith(f"Guarantee: {plain['sentence']}")
    assert plain["meaning"][1:] in plain["sentence"] or plain["sentence"].startswith("Inconclusive")
    assert all(check["sentence"].endswith(".") and check["sentence"] in text for check in plain["checks"])
    assert ("estimate" in text) == certificate.estimated
    assert (f"holds: {certificate.if_undecided_hold}." in text) == (certificate.if_undecided_hold > certificate.level)


def test_a_certificate_prints_its_error_level_premises_and_open_pairs():
    shown = replace(
        CERTIFICATES[0],
        level=Level.PS_UNBENT,
        error_level=0.05,
        premises=("the projection is injective",),
        straight=(0, 1),
        exchangeable=((2, 3),),
    )
    text = str(shown)
    for words in ("error level 5%", "Provided that the projection is injective.", "latents 0 and 1", "pairs 2 and 3"):
        assert words in text


def test_statistics_within_a_factor_three_of_the_threshold_are_inconclusive():
    for small, words in ((True, "hiif"), (False, "fiih")):
        assert "".join(verdict_of(s, 1.0, small=small)[0] for s in (0.3, 0.34, 2.9, 3.1)) == words


def test_the_second_level_accepts_inconclusive_checks():
    assert levels(lambda accepted: Level.PS if accepted("inconclusive") else Level.NONE) == (Level.NONE, Level.PS)
    assert levels(lambda accepted: Level.PS if accepted("fails") else Level.AT) == (Level.AT, Level.AT)


@pytest.mark.parametrize(
    ("injective", "verdict", "word"),
    [(True, "holds", "Given"), (False, "fails", "not"), (None, "inconclusive", "Not known")],
)
def test_mixing_is_given_or_assumed(injective, verdict, word):
    check = check_mixing("injective", injective)
    assert check.verdict == verdict
    assert word in check.sentence


def test_a_finding_becomes_a_check():
    assert Finding("holds", "Yes.", 1.0, 2.0).check("a", "b") == Check("a", "b", 1.0, 2.0, "holds", "Yes.")


def test_many_items_are_cut():
    assert named("latent", range(20)) == "latents 0, 1, 2, 3, 4, 5, 6, 7, and 12 more"
