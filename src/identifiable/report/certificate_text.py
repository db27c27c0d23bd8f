"""A certificate in words: what is guaranteed, by which theorem, and the verdict on each assumption."""

from collections.abc import Mapping
from typing import Any

from identifiable.persist import rename_certificate
from identifiable.theory.certificate import ESTIMATED, Level

SIGNS = {"holds": "✓", "fails": "✗", "inconclusive": "?"}


def certificate_in_words(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """Return level, guarantee, theorem, words and checks of a certificate as it was saved; any entry may be missing.

    Examples
    --------
    >>> old = {"level": "none", "at_best": "PS", "checks": [{"verdict": "cannot tell"}]}  # of version 0.1
    >>> found = certificate_in_words(old)
    >>> found["guarantee"], found["words"]
    ('inconclusive', 'If the inconclusive assumptions hold (1 of 1), the level is PS.')
    """
    certificate = rename_certificate(certificate)  # of version 0.1
    level = str(certificate.get("level", "unknown"))
    best = str(certificate.get("if_undecided_hold", level))
    checks = [_check(check) for check in certificate["checks"]]
    blocks = certificate.get("blocks") or []
    is_open = level == str(Level.NONE) and best != level
    words = "" if is_open else str(certificate.get("sentence") or _sentence(certificate.get("meaning")))
    if best != level:
        count = sum(check["verdict"] == "inconclusive" for check in checks)
        words += f" If the inconclusive assumptions hold ({count} of {len(checks)}), the level is {best}."
    words += "".join(f" Provided that {premise}." for premise in certificate.get("premises") or ())
    pairs = "; ".join(f"{i} and {j}" for i, j in certificate.get("exchangeable") or ())
    words += f" Pairs that a bent decoder could exchange: {pairs}." if pairs else ""
    if level == str(Level.BLOCKS) and blocks:
        words += " Blocks: " + ", ".join("{" + ", ".join(map(str, block)) + "}" for block in blocks) + "."
    words += f" {ESTIMATED}" if certificate.get("estimated") else ""
    return {
        "level": level,
        "guarantee": "inconclusive" if is_open else level,
        "theorem": certificate.get("theorem") or "",
        "words": words.strip(),
        "checks": checks,
    }


def _sentence(words: Any) -> str:
    text = str(words or "")
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".") if text else ""


def _check(check: Mapping[str, Any]) -> dict[str, str]:
    verdict = str(check.get("verdict", "inconclusive"))
    return {
        "name": str(check.get("name", "")),
        "verdict": verdict,
        "sign": SIGNS.get(verdict, "?"),
        "mark": verdict if verdict in ("holds", "fails") else "soft",
        "words": " ".join(str(check.get(key) or "") for key in ("words", "sentence", "remedy")).strip(),
    }
