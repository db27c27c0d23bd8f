import pytest

from identifiable.report.certificate_text import certificate_in_words

CHECK = {"name": "3.4", "verdict": "holds", "sentence": "Clear."}


def test_a_certificate_is_put_in_words():
    saved = {"level": "blocks", "meaning": "groups of latents", "blocks": [[0], [1, 2]], "theorem": "E.5"}
    found = certificate_in_words(saved | {"checks": [CHECK]})
    assert found["words"] == "Groups of latents. Blocks: {0}, {1, 2}."
    assert (found["level"], found["guarantee"], found["theorem"]) == ("blocks", "blocks", "E.5")
    assert found["checks"] == [{"name": "3.4", "verdict": "holds", "sign": "✓", "mark": "holds", "words": "Clear."}]


@pytest.mark.parametrize("verdict", ["inconclusive", "cannot tell"])
@pytest.mark.parametrize("key", ["if_undecided_hold", "at_best"])
def test_open_assumptions_are_counted_and_old_words_read(verdict, key):
    saved = {"level": "none", key: "PS", "meaning": "nothing", "checks": [CHECK, CHECK | {"verdict": verdict}]}
    found = certificate_in_words(saved)
    assert found["guarantee"] == "inconclusive"
    assert "1 of 2" in found["words"]
    assert "PS" in found["words"]
    assert "othing" not in found["words"]
    assert found["checks"][1]["verdict"] == "inconclusive"
    assert "Nothing." in certificate_in_words(saved | {key: "none"})["words"]


def test_missing_entries_are_left_out():
    assert {k: v for k, v in certificate_in_words({}).items() if v} == dict.fromkeys(("level", "guarantee"), "unknown")
    (check,) = certificate_in_words({"checks": [{}]})["checks"]
    assert (check["verdict"], check["sign"], check["mark"]) == ("inconclusive", "?", "soft")


def test_premises_pairs_and_remedies_are_shown():
    saved = {"level": "PS unless bent", "sentence": "Every latent (error level 5%).", "premises": ["x is injective"]}
    assert "estimate" not in certificate_in_words(saved | {"estimated": False})["words"]
    assert "about the estimate" in certificate_in_words(saved | {"estimated": True})["words"]
    check = CHECK | {"verdict": "inconclusive", "remedy": "About 900 more rows would do."}
    found = certificate_in_words(saved | {"exchangeable": [[0, 3]], "checks": [check]})
    assert found["words"].startswith("Every latent (error level 5%). Provided that x is injective.")
    assert "0 and 3" in found["words"]
    assert found["checks"][0]["words"] == "Clear. About 900 more rows would do."
