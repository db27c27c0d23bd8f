"""Certificates of exact hyperplanes: levels, blocks, and the bound for latents that are almost inactive."""

import json

import numpy as np
import pytest

from identifiable.theory import Level
from identifiable.theory.hyperplanes import certify_hyperplanes, sparsity_bound


def certified(links, n=4, **options):
    groups = np.eye(n, dtype=bool)
    for i, k in links:
        groups[i, k] = True
    return certify_hyperplanes(groups, np.full(n, 100), level=0.05, **options)


@pytest.mark.parametrize(
    ("links", "level", "blocks", "pure"),
    [
        ([], Level.PS, ((0,), (1,), (2,), (3,)), ((0,), (1,), (2,), (3,))),
        ([(0, 1)], Level.BLOCKS, ((0, 1), (2,), (3,)), ((1,), (2,), (3,))),
        ([(0, 1), (1, 0)], Level.BLOCKS, ((0, 1), (2,), (3,)), ((0, 1), (2,), (3,))),
        ([(0, 1), (1, 2), (2, 0), (3, 2)], Level.AT, ((0, 1, 2, 3),), ((0, 1, 2, 3),)),
    ],
)
def test_level_and_blocks_follow_from_the_groups(links, level, blocks, pure):
    found = certified(links)
    assert (found.level, found.if_undecided_hold, found.blocks, found.pure) == (level, level, blocks, pure)
    assert found["3.8b"].verdict == ("fails" if links else "holds")
    assert found.error_level == 0.05
    assert found.premises


def test_unused_latents_are_not_recovered():
    found = certified([], n_unused=2)
    assert found.level == Level.BLOCKS
    assert "4 and 5" in found["unused"].sentence
    assert sum(map(len, found.blocks)) == 4


def test_one_latent_is_recovered():
    assert certified([], n=1).level == Level.PS


def almost_inactive(n, tolerance, seed=0, rows=20_000):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, n)) * (rng.random((rows, n)) < 0.5)
    return z / z.std(0) + tolerance / 5 * rng.normal(size=z.shape)


def test_the_bound_grows_with_the_tolerance():
    """Λ = 2 τ / (sqrt(2 pi) s β), β = γ / (2 (a + γ)); here γ = 1/4, s = sqrt 2, a = 3/2."""
    narrow, wide = (sparsity_bound(almost_inactive(3, tau), tau) for tau in (1e-6, 1e-4))
    assert wide.weight == pytest.approx(100 * narrow.weight, rel=0.01)
    beta = 0.25 / (2 * 1.75)
    assert narrow.weight == pytest.approx(2e-6 / (np.sqrt(2 * np.pi) * np.sqrt(2) * beta), rel=0.05)
    assert narrow.check.verdict == wide.check.verdict == "holds"
    assert narrow.least_active < narrow.active


def test_no_mixture_within_the_tolerance_exceeds_the_bound():
    """A row that contains another latent with a weight of the bound is active too often."""
    tolerance = 1e-4
    t = almost_inactive(3, tolerance)
    bound = sparsity_bound(t, tolerance)
    t[:, 0] += bound.weight * t[:, 1]
    allowed = (1 - bound.beta) * (bound.active + bound.margin)
    assert (np.abs(t) > tolerance).sum(1).mean() > allowed > bound.active


@pytest.mark.parametrize("tolerance", [0.1, 0.01])
def test_a_wide_tolerance_gives_no_bound(tolerance):
    assert sparsity_bound(almost_inactive(10, tolerance), tolerance).check.verdict == "inconclusive"


def test_without_a_margin_there_is_no_bound():
    t = almost_inactive(3, 1e-6)
    t[:, 2] *= np.abs(t[:, 1]) > 1e-6
    check = sparsity_bound(t, 1e-6).check
    assert check.verdict == "inconclusive"
    json.dumps(vars(check), allow_nan=False)
