"""Injectivity of decoders of several latents: by the rules, and by witnesses."""

import re

import numpy as np
import pytest

from identifiable import Mixture
from identifiable.theory import Decoder
from identifiable.theory.injectivity import by_rules, by_witnesses, find_witnesses, judge
from theory.decoder_examples import ABS, RELU, curve, initials, random_net, verdicts

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_leaky_layers_that_do_not_narrow_are_injective(seed):
    rng = np.random.default_rng(seed)
    assert initials(random_net((3, 3, 5, 5), rng, 0.2)) == "hhh"
    assert initials(Decoder.from_layers([(rng.normal(size=(5, 3)), np.zeros(5))])) == "hhh"


def test_a_layer_without_full_rank_is_named():
    rng = np.random.default_rng(0)
    for slope in (RELU, 0.2):
        thin = judge(random_net((5, 6, 3, 8), rng, slope))
        assert verdicts(thin) == {"F1": "holds", "F2": "fails", "F3": "fails", "F4": "fails"}
        assert "layer 2" in thin[1].sentence
    product = rng.normal(size=(6, 2)) @ rng.normal(size=(2, 3))
    assert "rank 2 for 3" in judge(Decoder.from_layers([(product, np.zeros(6))]))[1].sentence
    nearly = np.diag([1.0, 1e-6])
    unclear = judge(Decoder.from_layers([(nearly, np.zeros(2)), (np.eye(2), np.zeros(2))], 0.5))[1]
    assert unclear.verdict == "inconclusive"
    assert "layer 1" in unclear.sentence


@pytest.mark.parametrize("seed", SEEDS)
def test_one_relu_layer_is_observably_injective(seed):
    rng = np.random.default_rng(seed)
    f = random_net((3, 5, 6), rng)
    assert initials(f) == "hhf"
    z = 5 * rng.normal(size=(1000, 3))
    on = f.forward(z)[1][0] > 0
    full = np.array([np.linalg.matrix_rank(f.weights[0][row]) == 3 for row in on])
    y = np.maximum(z @ f.weights[0].T + f.biases[0], 0)
    back = [np.linalg.lstsq(f.weights[0][r], (v - f.biases[0])[r], rcond=None)[0] for r, v in zip(on, y, strict=True)]
    np.testing.assert_allclose(np.array(back)[full], z[full], atol=1e-6)
    assert 0 < full.mean() < 1
    assert initials(random_net((3, 5, 6, 6), rng, [RELU, 0.3])) == "hhf"  # what follows is injective


def test_a_relu_layer_of_opposite_rows_is_injective():
    rng = np.random.default_rng(0)
    rows, b = rng.normal(size=(2, 2)), np.array([1.0, 0.5])
    both = np.vstack([rows, -3 * rows])
    last = (rng.normal(size=(4, 4)), np.zeros(4))
    assert initials(Decoder.from_layers([(both, np.r_[b, -3 * b]), last])) == "hhh"  # one is on where the other is off
    assert initials(Decoder.from_layers([(both, np.r_[b, -3 * b + 1]), last])) == "hhh"
    assert initials(Decoder.from_layers([(both, np.r_[b, -3 * b - 1]), last])) == "hhf"  # a strip in which both are off


def test_a_point_at_which_all_units_are_on_is_found():
    """Only z > 200 turns on the first layer: no drawn z does, but the linear programme finds one."""
    second, third = ([[1, 0.5], [0.5, 1]], [-1, -1]), ([[1, 0], [0, 1], [1, 1]], [0, 0, 0])
    f = Decoder.from_layers([(np.eye(2), [-200, -200]), second, third])
    assert initials(f)[0] == "h"
    off = ([[1, 0.5], [0.5, 1], [-1, -1]], [0, 0, -1])  # the third unit never is
    off = Decoder.from_layers([(np.eye(2), [0, 0]), off, (np.eye(3), [0, 0, 0])])
    check = judge(off)[1]
    assert check.verdict == "inconclusive"
    assert "layers up to 2" in check.sentence


def test_absolute_values_of_all_coordinates_are_not_weakly_injective():
    f = random_net((3, 3, 5), np.random.default_rng(0), ABS)
    assert initials(f) == "fff"
    assert initials(random_net((3, 5, 5), np.random.default_rng(0), ABS))[0] != "f"  # more units than latents


def test_sampled_points_with_second_preimages_refute_f3_not_f2():
    """(|x|, |y|) from ReLU: all of many points have a second preimage, which is evidence against F2, not proof."""
    f = Decoder.from_layers([(np.kron(np.eye(2), [[1], [-1]]), [0] * 4), (np.kron(np.eye(2), [[1, 1]]), [0, 0])])
    assert initials(f) == "iff"
    assert "evidence" in judge(f)[1].sentence
    sentence = judge(f)[1].sentence
    points = [np.array(p.split(","), dtype=float)[None] for p in re.findall(r"f\((.*?)\)", sentence)]
    np.testing.assert_allclose(f(points[0]), f(points[1]), rtol=1e-2)
    assert not np.allclose(*points)


def test_a_fold_is_weakly_injective_where_one_ray_is_longer():
    """A fold of the line: part of its image has one preimage. In the plane that is not seen, and not claimed."""
    fold = curve([[1.0], [0.0], [1.0]], -0.001, 0.5)  # up to 30 sigma left of it, f grows by .03 only
    assert initials(fold) == "fff"  # both rays go up
    fold = curve([[1.0], [0.0], [1.0]], 0.001, 0.5)
    assert initials(fold) == "hff"
    w1, w2 = np.kron(np.eye(2), fold.weights[0]), np.kron(np.eye(2), fold.weights[1])
    plane = Decoder.from_layers([(w1, np.tile(fold.biases[0], 2)), (w2, np.tile(fold.biases[1], 2))])
    assert initials(plane) == "iff"


@pytest.mark.parametrize("seed", range(20))
def test_witnesses_agree_with_the_curve(seed):
    """The search for many latents, used for one latent, may decide less than the exact curve, never otherwise."""
    rng = np.random.default_rng(seed)
    f = random_net((1, 3, 3, 2), rng, rng.choice([RELU, 0.3, ABS], size=2).tolist())
    proven, note = by_rules(f, None)
    found = by_witnesses(f, proven, find_witnesses(f, None), note)
    for name, exact in zip(("F2", "F3", "F4"), initials(f), strict=True):
        assert found[name].verdict[0] in ("i", exact)


def test_point_components_do_not_make_witnesses():
    """Five rows, 72 degrees apart: at every z but 0 those that are on span the plane, so f is injective."""
    angles = np.pi / 2 + 2 * np.pi * np.arange(5) / 5
    f = Decoder.from_layers(
        [(np.column_stack([np.cos(angles), np.sin(angles)]), np.zeros(5)), (np.eye(5), np.zeros(5))]
    )
    point = Mixture([0.5, 0.5], np.zeros((2, 2)), [[0, 0], [1, 1]])
    assert [check.verdict for check in judge(f, point)] == ["holds", "holds", "holds", "inconclusive"]


def test_a_decoder_that_is_not_read_has_no_verdict_on_injectivity():
    for smooth, verdict in ((True, "fails"), (False, "inconclusive")):
        first, *others = judge(Decoder((), (), (), "Part", smooth))
        assert first.verdict == verdict
        assert "Part" in first.sentence
        assert {check.verdict for check in others} == {"inconclusive"}
