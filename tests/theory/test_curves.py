"""Decoders of one latent: curves by hand, and random ones whose preimages are counted on a grid."""

import numpy as np
import pytest

from identifiable import Mixture
from identifiable.theory import Decoder, certify
from theory.decoder_examples import ABS, IDENTITY, RELU, curve, initials, random_net


def test_example_1_of_the_paper():
    relu = Decoder.from_layers([IDENTITY, IDENTITY], RELU)
    nothing = Decoder.from_layers([IDENTITY, ([[-1.0]], [0.0]), IDENTITY], RELU)
    absolute = Decoder.from_layers([IDENTITY, IDENTITY], ABS)
    z = np.array([[-2.0], [0.5]])
    np.testing.assert_array_equal(np.hstack([relu(z), nothing(z), absolute(z)]), [[0, 0, 2], [0.5, 0, 0.5]])
    assert [initials(f) for f in (relu, nothing, absolute)] == ["hhf", "fff", "fff"]


def test_example_4_is_weakly_injective_only():
    f = curve([[0.0], [2.0], [0.0], [-2.0]], 0.5, 1.0)  # the paper's, with knots at -4, -2, 0, 2
    assert initials(f) == "hff"
    certificate = certify(Mixture([0.5, 0.5], [[0.0], [2.0]], [[1.0], [1.0]]), decoder=f)
    assert certificate.theorem == "Theorem 3.2a (Kivva et al. 2022)"  # the latent, and not f


@pytest.mark.parametrize(
    ("points", "before", "after", "expected"),
    [
        ([[0, 0], [3, 0], [3, 2], [1, 2]], [1, 0], [0, 1], "hhh"),
        ([[0, 0], [3, 0], [3, 2], [1, 2]], [1, 0], [0, -1], "hhf"),  # the last ray crosses the first stretch
        ([[0, 0], [3, 0], [3, 2], [1, 2]], [1, 0], [-1, -1], "hhf"),  # ... meets it at a knot
        ([[0, 0], [3, 0], [3, 2], [1, 2]], [1, 0], [-2, 0], "hhh"),  # ... is parallel to the first
        ([[0, 0], [3, 0], [1, 0], [1, 2]], [1, 0], [0, 1], "hff"),  # a part is passed twice
        ([[0, 0], [3, 0], [3, 1], [3, 0]], [1, 0], [-1, 0], "fff"),  # all is
        ([[0, 0], [3, 0]], [1, 0], [-1, 0], "fff"),  # there and back
        ([[0, 0], [3, 0]], [1, 0], [-1, 0.01], "hhh"),
        ([[0, 0], [3, 0], [3, 0], [4, 1]], [1, 0], [1, 0], "hhf"),  # the curve stands still
    ],
)
def test_curves_in_the_plane(points, before, after, expected):
    assert initials(curve(points, before, after)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_curve_on_the_line_by_counting_preimages(seed):
    rng = np.random.default_rng(seed)
    slopes = rng.choice([RELU, 0.3, ABS], size=3).tolist()
    f = random_net((1, 3, 4, 2, 1), rng, slopes)
    z = np.concatenate([-np.logspace(5, -3, 2000), np.logspace(-3, 5, 2000)])
    x = f(z[:, None])[:, 0]
    levels = np.concatenate([rng.uniform(x.min(), x.max(), size=500), rng.choice(x, 500) + 1e-6 * rng.normal(size=500)])
    for end, slope in ((x[0], x[0] - x[1]), (x[-1], x[-1] - x[-2])):  # what a ray passes beyond the grid is not seen
        levels = levels[levels < end] if slope > 0 else levels[levels > end] if slope < 0 else levels
    levels = levels[(levels > x.min()) & (levels < x.max())]
    counts = (np.diff(np.sign(x - levels[:, None]), axis=1) != 0).sum(1)
    steps = np.diff(x)
    expected = ((counts == 1).any(), len(counts) > 0 and (counts == 1).all(), (steps > 0).all() or (steps < 0).all())
    assert initials(f) == "".join("h" if one else "f" for one in expected)


def test_stretches_that_nearly_touch_are_inconclusive():
    assert [initials(curve([[0, 0], [3, 0], [3, 2], [1, gap]], [1, 0], [-1, 1])) for gap in (0, 4e-9, 1e-6)] == [
        "hhf",
        "hhi",
        "hhh",
    ]
