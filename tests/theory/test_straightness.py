"""Theorems 1 and 2 of docs/theory/straightness.md: by hand, by enumeration, and on an exchange that is carried out."""

from itertools import combinations, permutations, product

import numpy as np
import pytest

from identifiable import Level, Mixture, certify
from identifiable.metrics import mcc
from identifiable.theory.straightness import (
    Patterns,
    differences,
    never_together,
    partner_difference,
    straight_latents,
    swapped,
    varied,
    without_partner,
)
from theory.subspaces import lines

SQUARE = ((0, 1), (0, 2), (1, 3), (2, 3))


def masks_of(patterns, n):
    return np.array([np.isin(np.arange(n), pattern) for pattern in patterns])


def patterns_of(patterns, n, means=None, covariance=None, weights=None):
    masks = masks_of(patterns, n)
    means = masks * (np.zeros(n) if means is None else np.asarray(means))
    covariance = np.eye(n) if covariance is None else covariance
    weights = np.full(len(masks), 1 / len(masks)) if weights is None else np.asarray(weights)
    return Patterns.of_components(masks, weights, means, covariance * masks[:, :, None] * masks[:, None])


def mixture_of(*args, **settings):
    p = patterns_of(*args, **settings)
    return Mixture(p.weights, p.means, p.covariances)


# -- theorem 2 --------------------------------------------------------------------------------


def families(rng, count):
    """Return families of subsets of three latents that meet 3.8b."""
    subsets = [s for size in (1, 2, 3) for s in combinations(range(3), size)]
    found = [((0,), (1,), (2,)), ((0, 1), (2,)), ((0, 1), (0, 2), (1, 2))]
    while len(found) < count:
        some = tuple(s for s in subsets if rng.random() < 0.5)
        if some:
            found.append(some)
    return [family for family in found if varied(masks_of(family, 3))]


def orthants(family):
    """Return the orthants of all patterns: sets of half-axes (latent, sign)."""
    return [frozenset(zip(a, s, strict=True)) for a in family for s in product((1, -1), repeat=len(a))]


def test_every_map_of_half_axes_that_bends_is_an_exchange_as_theorem_2_says():
    """A map of half-axes is possible if orthants are mapped onto all the orthants of some other patterns."""
    half_axes = list(product(range(3), (1, -1)))
    bent = 0
    for family in families(np.random.default_rng(0), 16):
        masks, own = masks_of(family, 3), orthants(family)
        possible = set(never_together(masks))
        for images in permutations(half_axes):
            to = dict(zip(half_axes, images, strict=True))
            reached = [frozenset(to[axis] for axis in orthant) for orthant in own]
            targets = {tuple(sorted(c for c, _ in orthant)) for orthant in reached}
            if any(len(set(t)) < len(t) for t in targets) or set(reached) != set(orthants(targets)):
                continue
            for c in range(3):
                if to[c, 1][0] == to[c, -1][0]:
                    continue  # straight
                bent += 1
                opposite = (to[c, 1][0], -to[c, 1][1])
                d = next(axis for axis in half_axes if to[axis] == opposite)[0]
                assert (min(c, d), max(c, d)) in possible
                assert (swapped(masks, c, d)[1] >= 0).all()
    assert bent > 100


def exchange(z, c, d):
    """Join the upper side of c to the lower side of d, and the upper side of d to the lower side of c."""
    found = z.copy()
    found[:, c] = np.maximum(z[:, c], 0) + np.minimum(z[:, d], 0)
    found[:, d] = np.maximum(z[:, d], 0) + np.minimum(z[:, c], 0)
    return found


def test_the_exchange_of_a_square_keeps_the_distribution_and_loses_the_latents():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200_000, 4)) * masks_of(SQUARE, 4)[rng.integers(4, size=200_000)]
    other = exchange(exchange(z, 1, 2), 0, 3)
    for mask in masks_of(SQUARE, 4):
        rows = other[((other != 0) == mask).all(1)]
        assert len(rows) / len(z) == pytest.approx(0.25, abs=0.01)
        np.testing.assert_allclose(np.cov(rows, rowvar=False), np.diag(mask), atol=0.03)
    assert mcc(z, other) < 0.8
    certificate = certify(mixture_of(SQUARE, 4), injective=True)
    assert certificate.level == Level.PS_UNBENT
    assert certificate.exchangeable == ((0, 3), (1, 2))


@pytest.mark.parametrize("factor", [1.0, 7.0, -3.0])
def test_lines_are_exchangeable_whatever_their_scales(factor):
    mixture = lines(np.eye(3), np.diag([1.0, factor, 2.0]), [0.5, 0.5 * abs(factor), 0.3])
    certificate = certify(mixture, injective=True)
    assert certificate.exchangeable == ((0, 1),)
    assert certificate.straight == (2,)
    weighted = certify(Mixture([0.2, 0.3, 0.5], mixture.means, mixture.covariances), injective=True)
    assert weighted.level == Level.PS


def test_latents_that_are_ever_active_together_cannot_be_exchanged():
    pairs = tuple(combinations(range(5), 2))
    assert certify(mixture_of(pairs, 5), injective=True).level == Level.PS
    without = certify(mixture_of(pairs[1:], 5), injective=True)
    assert (without.exchangeable, without.straight) == (((0, 1),), (2, 3, 4))


def test_distributions_are_compared_up_to_the_unit_of_the_exchanged_latent():
    covariance = np.eye(4)
    covariance[0, 1] = covariance[1, 0] = 0.6
    covariance[0, 2] = covariance[2, 0] = -0.6
    covariance[1, 3] = covariance[3, 1] = covariance[2, 3] = covariance[3, 2] = 0.3
    assert differences(patterns_of(SQUARE, 4, covariance=covariance))[1, 2] > 0.3  # one sign for both patterns
    covariance[2, 3] = covariance[3, 2] = -0.3
    unit = np.diag([1.0, 1.0, 5.0, 1.0])
    found = differences(patterns_of(SQUARE, 4, covariance=unit @ covariance @ unit))
    assert found[1, 2] == pytest.approx(0, abs=1e-9)
    assert found[0, 1] == np.inf
    moved = patterns_of(SQUARE, 4, means=[0, 1.0, -5.0, 0], covariance=unit @ covariance @ unit)
    assert differences(moved)[1, 2] == pytest.approx(0, abs=1e-9)


# -- theorem 1 --------------------------------------------------------------------------------


def test_a_partner_that_is_straight_drops_out():
    """Latent 3 is straight by the pattern {3, 4}; then 0 has no partner left but 1, whose weight differs."""
    masks = masks_of([(0,), (1,), (3,), (3, 4)], 5)
    equal = {(0, 3), (3, 0)}

    def excluded(j, c, d):
        return (c, d) not in equal or masks[j].sum() > 1

    assert without_partner(masks, excluded).tolist() == [True, True, False, True, True]
    assert not without_partner(masks[:3], lambda j, c, d: (c, d) not in equal)[[0, 3]].any()


def test_partners_are_compared_up_to_a_shear():
    covariance = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, 0.0], [0.0, 0.0, 1.0]])
    patterns = patterns_of([(0, 1), (0, 2)], 3, covariance=covariance)
    j = int(np.flatnonzero(patterns.masks[:, 1])[0])
    assert partner_difference(patterns, j, 1, 2) > 0.1  # residual variances .64 and 1
    covariance[0, 0] = 1.36
    sheared = patterns_of([(0, 1)], 3, covariance=covariance)
    plain = patterns_of([(0, 2)], 3)
    both = Patterns.of_components(
        np.vstack([sheared.masks, plain.masks]),
        np.array([0.5, 0.5]),
        np.vstack([sheared.means, plain.means]),
        np.concatenate([sheared.covariances, plain.covariances]),
    )
    j = int(np.flatnonzero(both.masks[:, 1])[0])
    assert partner_difference(both, j, 1, 2) == pytest.approx(0, abs=1e-12)
    assert partner_difference(both, j, 0, 2) == np.inf


def test_components_of_one_pattern_are_joined():
    masks = masks_of([(0,), (0,), (1,)], 2)
    means, covariances = np.array([[1.0, 0], [-1.0, 0], [0, 0]]), 0.5 * np.stack([np.diag(mask) for mask in masks])
    joined = Patterns.of_components(masks, np.array([0.25, 0.25, 0.5]), means, covariances)
    assert len(joined.masks) == 2
    j = int(np.flatnonzero(joined.masks[:, 0])[0])
    assert (joined.weights[j], joined.means[j, 0], joined.covariances[j, 0, 0]) == (0.5, 0.0, 1.5)


def test_straight_latents_are_in_no_pair():
    assert straight_latents(3, []) == (0, 1, 2)
    assert straight_latents(3, [(0, 1), (1, 2)]) == ()
