"""The summary of a fit that was never run, as `certificate.json` holds it."""


def account(verdicts=("stable", "doubtful", "unstable"), verdict="partly reproducible", column="mass"):
    latents = [
        {
            "verdict": v,
            "seed_agreement": 0.99,
            "split_half_agreement": 0.5 if v == "unstable" else 0.97,
            "alternative_agreement": 0.98 if v == "stable" else None,
            "inactive_share": None,
            "block": [i],
            "guaranteed": False,
            "columns": {column: 1.5 - i, "length": -0.25},
            "histogram": {"low": -2.0, "high": 2.0, "counts": [1, 5, 2]},
        }
        for i, v in enumerate(verdicts)
    ]
    tried = {"says": "an affine mixture", "linear": True, "given_u": False, "gain": 1.2, "error": 0.1}
    tried |= {"agreement": None, "seconds": 2.5, "note": ""}
    check = {"name": "3.4", "verdict": "cannot tell", "sentence": "Two patterns are too similar."}
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
