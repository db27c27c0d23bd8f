"""What is said of latents and tables, on made-up agreements."""

import numpy as np
import pytest

from identifiable import Certificate, Level
from identifiable.auto.verdict import (
    HEADLINES,
    Evidence,
    headline,
    judge_latents,
    rows_to_tell,
    verdict_of,
)

NAN = [np.nan, np.nan]
PS = Certificate(Level.PS, Level.PS, "a theorem", (), ((0,), (1,)), ((0,), (1,)), None, None, True)


@pytest.mark.parametrize(
    ("seeds", "halves", "alternatives", "latents"),
    [
        ([0.99, 0.97], [0.98, 0.96], NAN, ["stable", "stable"]),
        ([0.99, 0.97], [0.98, 0.92], NAN, ["stable", "doubtful"]),
        ([0.99, 0.5], [0.98, 0.99], NAN, ["stable", "unstable"]),
        ([0.99, 0.97], [0.98, 0.97], [0.99, 0.8], ["stable", "unstable"]),
        (NAN, [0.98, 0.97], [0.99, 0.99], ["doubtful", "doubtful"]),  # not confirmed
        ([0.99, 0.97], [np.nan, 0.97], NAN, ["doubtful", "stable"]),
    ],
)
def test_latents_are_judged_by_their_lowest_agreement(seeds, halves, alternatives, latents):
    numbers = [np.array(a) for a in (seeds, halves, alternatives)]
    found = judge_latents(*numbers)
    assert [latent.verdict for latent in found] == latents
    assert found[0].seed_agreement == pytest.approx(seeds[0], nan_ok=True)
    assert found[1].block == (1,)
    assert {one.verdict for one in judge_latents(*numbers, identifiable=False)} == {"unstable"}
    assert judge_latents(*numbers, rows=np.array([2.0, 500.0]))[0].verdict == "unstable"  # carried by two rows


def latents(*agreements):
    a = np.array(agreements)
    return judge_latents(a, a, np.full(len(a), np.nan))


@pytest.mark.parametrize(
    ("agreements", "evidence", "fit"),
    [
        ((0.99, 0.97), {"certificate": PS}, "identified"),
        ((0.99, 0.97), {"certificate": PS, "final": False}, "reproducible"),  # another model is still to be tried
        ((0.99, 0.97), {"certificate": Certificate.nothing()}, "reproducible"),
        ((0.99, 0.97), {}, "reproducible"),
        ((0.99, 0.7), {"certificate": PS}, "partly reproducible"),
        ((0.8, 0.7), {}, "not reproducible"),
        ((0.8, 0.7), {"enough": 5000}, "too few rows"),
        ((0.99, 0.97), {"unmixed": True}, "not a mixture"),
        ((0.99, 0.97), {"confirmed": False, "certificate": PS}, "not enough time"),
        ((0.99, 0.97), {"gaussian": True, "gain": (0.01, 0.01)}, "Gaussian"),
        ((0.99, 0.97), {"gaussian": True, "gain": (0.1, 0.05)}, "too few rows"),
    ],
)
def test_verdict_on_a_table(agreements, evidence, fit):
    found = verdict_of(latents(*agreements), Evidence(1000, **evidence))
    assert found.fit == fit
    assert fit in HEADLINES
    assert all(found.reasons)
    assert len({headline(name, 1, 2) for name in HEADLINES}) == len(HEADLINES)


def test_rows_to_tell_shrink_with_the_gain():
    assert rows_to_tell(1000, 4, 0.0, 0.01) is None
    assert rows_to_tell(1000, 4, 0.3, 0.2) < rows_to_tell(1000, 4, 0.3, 0.4)


def test_few_rows_for_the_gain_are_too_few_without_a_simulation():
    table = latents(0.8, 0.7)
    assert verdict_of(table, Evidence(100, gain=(0.1, 0.01))).fit == "too few rows"
    assert verdict_of(table, Evidence(5000, gain=(0.1, 0.01))).fit == "not reproducible"
