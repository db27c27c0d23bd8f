"""Theorems 3.2 and 3.3 of Kivva et al. (2022) against known answers: decoders and mixtures by hand, the simulator."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from identifiable import ConditionalPrior, Mixture, nets
from identifiable.data import make_gmm, make_pdgmm
from identifiable.data.mixings import orthogonal_mixing, tanh_mixing
from identifiable.errors import DataError
from identifiable.theory import Decoder, Level, certify, decoders, full_rank
from identifiable.theory.decoders import judge

SEEDS = range(3)
RELU, ABS = 0.0, -1.0
ID = ([[1.0]], [0.0])


def verdicts(checks):
    return {check.name: check.verdict for check in checks}


def of(decoder):
    """The verdicts on F2, F3 and F4, by their first letters."""
    first, *others = judge(decoder)
    assert first.verdict == "holds"
    return "".join(check.verdict[0] for check in others)


def random_net(widths, rng, slope=RELU):
    layers = [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in pairwise(widths)]
    return Decoder.from_layers(layers, slope)


def curve(points, before, after):
    """The curve through points[k] at z = k, straight between, with these velocities outside: one ReLU layer."""
    points = np.asarray(points, dtype=float).reshape(len(points), -1)
    speeds = np.vstack([np.atleast_1d(before), np.diff(points, axis=0), np.atleast_1d(after)])
    knots = np.arange(len(points))
    first = np.r_[1.0, -1.0, np.ones(len(points))][:, None], np.r_[0.0, 0.0, -knots]
    second = np.vstack([speeds[0], -speeds[0], np.diff(speeds, axis=0)]).T
    return Decoder.from_layers([first, (second, points[0])])


def factorial(variances):
    variances = np.asarray(variances, dtype=float)
    means = np.random.default_rng(0).normal(size=variances.shape)
    return Mixture(np.full(len(variances), 1 / len(variances)), means, variances)


def drawn(law, rows, rng):
    """The law as estimated from so many rows, by moments, the components being known."""
    counts = np.round(rows * law.weights).astype(int)
    parts = [rng.multivariate_normal(m, c, size=k) for m, c, k in zip(law.means, law.covariances, counts, strict=True)]
    return Mixture(counts / counts.sum(), [p.mean(0) for p in parts], [np.cov(p, rowvar=False) for p in parts])


# Decoders of one latent.


def test_example_1():
    relu = Decoder.from_layers([ID, ID], RELU)
    nothing = Decoder.from_layers([ID, ([[-1.0]], [0.0]), ID], RELU)
    absolute = Decoder.from_layers([ID, ID], ABS)
    z = np.array([[-2.0], [0.5]])
    np.testing.assert_array_equal(np.hstack([relu(z), nothing(z), absolute(z)]), [[0, 0, 2], [0.5, 0, 0.5]])
    assert [of(f) for f in (relu, nothing, absolute)] == ["hhf", "fff", "fff"]
    assert "f is constant" in judge(nothing)[1].sentence


def test_example_5_names_the_narrow_layer():
    f = Decoder.from_layers([([[1], [-1]], [0, 0]), ([[1, -1], [1, 1]], [0, 0]), ([[0, 1]], [0])], 0.5)
    z = np.linspace(-3, 3, 7)[:, None]
    np.testing.assert_allclose(f(z), np.abs(z) / 2)
    assert of(f) == "fff"
    assert "layer 3 (2 dimensions to 1)" in judge(f)[1].sentence


def test_corollary_h2_is_not_true_for_two_hidden_layers():
    """Widths do not decrease, ranks are full, the image has dimension 1; and f(x) = (|x|, 0)."""
    f = Decoder.from_layers([([[1], [-1]], [0, 0]), ([[1, 1], [-1, -2]], [0, 0]), (np.eye(2), [0, 0])])
    assert all(np.linalg.matrix_rank(w) == w.shape[1] for w in f.weights)
    z = np.linspace(-3, 3, 7)[:, None]
    np.testing.assert_array_equal(f(z), np.hstack([np.abs(z), 0 * z]))
    assert of(f) == "fff"
    twice = [np.kron(np.eye(2), w) for w in f.weights]
    assert of(Decoder.from_layers([(w, np.zeros(len(w))) for w in twice])) == "fff"


def test_example_4_is_weakly_injective_only():
    f = curve([[0.0], [2.0], [0.0], [-2.0]], 0.5, 1.0)  # the paper's, with knots at -4, -2, 0, 2
    assert of(f) == "hff"
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
        ([[0, 0], [3, 0], [3, 0], [4, 1]], [1, 0], [1, 0], "hhf"),  # a rest
    ],
)
def test_curves_in_the_plane(points, before, after, expected):
    assert of(curve(points, before, after)) == expected


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
    assert of(f) == "".join("h" if one else "f" for one in expected)


def test_stretches_that_nearly_touch_decide_nothing():
    assert [of(curve([[0, 0], [3, 0], [3, 2], [1, gap]], [1, 0], [-1, 1])) for gap in (0, 4e-9, 1e-6)] == [
        "hhf",
        "hhi",
        "hhh",
    ]


# Decoders of more.


@pytest.mark.parametrize("seed", SEEDS)
def test_leaky_layers_that_do_not_narrow_are_injective(seed):
    rng = np.random.default_rng(seed)
    assert of(random_net((3, 3, 5, 5), rng, 0.2)) == "hhh"
    assert of(Decoder.from_layers([(rng.normal(size=(5, 3)), np.zeros(5))])) == "hhh"


def test_a_layer_without_full_rank_is_named():
    rng = np.random.default_rng(0)
    for slope in (RELU, 0.2):
        thin = judge(random_net((5, 6, 3, 8), rng, slope))
        assert verdicts(thin) == {"F1": "holds", "F2": "fails", "F3": "fails", "F4": "fails"}
        assert "layer 2 has 3 units for 5 latents" in thin[1].sentence
    flat = rng.normal(size=(6, 2)) @ rng.normal(size=(2, 3))
    assert "layer 1 has rank 2 for 3 latents" in judge(Decoder.from_layers([(flat, np.zeros(6))]))[1].sentence
    nearly = np.diag([1.0, 1e-6])
    unclear = judge(Decoder.from_layers([(nearly, np.zeros(2)), (np.eye(2), np.zeros(2))], 0.5))[1]
    assert unclear.verdict == "inconclusive"
    assert "not clear whether layer 1 has rank 2" in unclear.sentence


@pytest.mark.parametrize("seed", SEEDS)
def test_one_relu_layer_is_observably_injective(seed):
    rng = np.random.default_rng(seed)
    f = random_net((3, 5, 6), rng)
    assert of(f) == "hhf"
    z = 5 * rng.normal(size=(1000, 3))
    on = f.forward(z)[1][0] > 0
    full = np.array([np.linalg.matrix_rank(f.weights[0][row]) == 3 for row in on])
    y = np.maximum(z @ f.weights[0].T + f.biases[0], 0)
    back = [np.linalg.lstsq(f.weights[0][r], (v - f.biases[0])[r], rcond=None)[0] for r, v in zip(on, y, strict=True)]
    np.testing.assert_allclose(np.array(back)[full], z[full], atol=1e-6)
    assert 0 < full.mean() < 1
    assert of(random_net((3, 5, 6, 6), rng, [RELU, 0.3])) == "hhf"  # what follows is injective


def test_a_relu_layer_of_opposite_rows_is_injective():
    rng = np.random.default_rng(0)
    rows, b = rng.normal(size=(2, 2)), np.array([1.0, 0.5])
    both = np.vstack([rows, -3 * rows])
    last = (rng.normal(size=(4, 4)), np.zeros(4))
    assert of(Decoder.from_layers([(both, np.r_[b, -3 * b]), last])) == "hhh"  # one is on where the other is off
    assert of(Decoder.from_layers([(both, np.r_[b, -3 * b + 1]), last])) == "hhh"
    assert of(Decoder.from_layers([(both, np.r_[b, -3 * b - 1]), last])) == "hhf"  # a strip in which both are off


def test_a_point_at_which_all_units_are_on_is_found():
    """Only z > 200 turns on the first layer: no drawn z does, but the linear programme finds one."""
    second, third = ([[1, 0.5], [0.5, 1]], [-1, -1]), ([[1, 0], [0, 1], [1, 1]], [0, 0, 0])
    f = Decoder.from_layers([(np.eye(2), [-200, -200]), second, third])
    assert of(f)[0] == "h"
    assert "turns on all units" in judge(f)[1].sentence
    off = ([[1, 0.5], [0.5, 1], [-1, -1]], [0, 0, -1])  # the third unit never is
    off = Decoder.from_layers([(np.eye(2), [0, 0]), off, (np.eye(3), [0, 0, 0])])
    check = judge(off)[1]
    assert check.verdict == "inconclusive"
    assert "No z turns on all units of the layers up to 2" in check.sentence


@pytest.mark.parametrize(
    "f",
    [
        Decoder.from_layers([(np.eye(2), [0, 0]), (np.eye(2), [0, 0])], ABS),
        Decoder.from_layers([(np.kron(np.eye(2), [[1], [-1]]), [0] * 4), (np.kron(np.eye(2), [[1, 1]]), [0, 0])]),
    ],
)
def test_absolute_values_are_not_weakly_injective(f):
    assert of(f) == "fff"
    sentence = judge(f)[1].sentence
    assert "None of 200 drawn points is the only preimage" in sentence
    points = [np.array(p.split(","), dtype=float)[None] for p in re.findall(r"f\((.*?)\)", sentence)]
    np.testing.assert_allclose(f(points[0]), f(points[1]), rtol=1e-2)
    assert not np.allclose(*points)
    law = factorial([[1, 1], [1, 2]])
    assert certify(law, decoder=f).level == certify(law, decoder=f).if_undecided_hold == Level.NONE


def test_half_an_absolute_value_keeps_a_part():
    """A fold of the line, of which the image has a part with one preimage; what is not seen is not said."""
    fold = curve([[1.0], [0.0], [1.0]], -0.001, 0.5)  # up to 30 sigma left of it, f grows by .03 only
    assert of(fold) == "fff"  # both rays go up
    fold = curve([[1.0], [0.0], [1.0]], 0.001, 0.5)
    assert of(fold) == "hff"
    w1, w2 = np.kron(np.eye(2), fold.weights[0]), np.kron(np.eye(2), fold.weights[1])
    plane = Decoder.from_layers([(w1, np.tile(fold.biases[0], 2)), (w2, np.tile(fold.biases[1], 2))])
    assert of(plane) == "iff"
    assert "layer 2 (10 dimensions to 2)" in judge(plane)[1].sentence


def test_random_deep_relu_nets_are_not_observably_injective():
    """Full ranks, growing widths; yet parts of the image are covered twice."""
    found = [judge(random_net((5, 8, 10, 12), np.random.default_rng(seed))) for seed in range(10)]
    assert all(verdicts(checks)["F4"] == "fails" for checks in found)
    assert any(verdicts(checks)["F3"] == "fails" for checks in found)


def test_a_wide_deep_net_is_judged_in_time():
    others = judge(random_net((10, 64, 64, 100), np.random.default_rng(0)))[1:]
    assert {check.verdict for check in others} == {"inconclusive"}
    assert "ReLU of layer 1" in others[0].sentence


@pytest.mark.parametrize("seed", range(20))
def test_witnesses_agree_with_the_curve(seed):
    """What is found for many latents, looked for in one: it may be less, and is not something else."""
    rng = np.random.default_rng(seed)
    f = random_net((1, 3, 3, 2), rng, rng.choice([RELU, 0.3, ABS], size=2).tolist())
    shown = decoders._shown(f, None)
    by_witnesses = decoders._by_witnesses(f, shown, decoders._look_for_witnesses(f, None))
    for found, exact in zip(by_witnesses, of(f), strict=True):
        assert found.verdict[0] in ("i", exact)


def test_a_law_with_points_does_not_make_witnesses():
    """Five rows, 72 degrees apart: at every z but 0 those that are on span the plane, so f is injective."""
    angles = np.pi / 2 + 2 * np.pi * np.arange(5) / 5
    f = Decoder.from_layers(
        [(np.column_stack([np.cos(angles), np.sin(angles)]), np.zeros(5)), (np.eye(5), np.zeros(5))]
    )
    point = Mixture([0.5, 0.5], np.zeros((2, 2)), [[0, 0], [1, 1]])
    assert [check.verdict for check in judge(f, point)] == ["holds", "holds", "holds", "inconclusive"]


# Reading modules.


def test_modules_are_read_as_they_compute():
    torch.manual_seed(0)
    x = torch.randn(50, 3, dtype=torch.float64)
    nested = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(3, 4), nn.Identity(), nn.Linear(4, 5)), nn.LeakyReLU(0.2))
    for module in (
        nn.Linear(3, 4, bias=False).double(),
        nested.double(),
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LeakyReLU(0.3), nn.Linear(4, 2)).double(),
        orthogonal_mixing(3, 5, layers=4, slopes=(0.2, 4.0), rng=np.random.default_rng(0)),
    ):
        f = Decoder.of(module)
        np.testing.assert_allclose(f(x), module(x).detach(), atol=1e-12)
        assert judge(f)[0].verdict == "holds"
    assert len(Decoder.of(nested).weights) == 3  # nothing; 3 to 5; nothing


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "identity"])
def test_a_member_of_a_net_is_read(activation):
    net = nets.MLP(3, (2, 4, 5), activation=activation, rng=torch.Generator().manual_seed(0)).double()
    x = torch.randn(3, 20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for member in range(3):
        np.testing.assert_allclose(Decoder.of(net, member=member)(x[member]), net(x)[member].detach(), atol=1e-12)
    with pytest.raises(DataError, match="member must be one of the 3 of the net, 0 to 2, got 3"):
        Decoder.of(net, member=3)


def test_what_is_not_piecewise_affine_fails_f1_and_what_is_unknown_does_not():
    rng = np.random.default_rng(0)
    smooth = [
        nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3)),
        nn.Sequential(nn.Linear(2, 3), nn.Sigmoid()),
        nn.Sequential(nn.Linear(2, 3), nn.ELU()),
        nets.MLP(1, (2, 3, 3), activation="gelu"),
        orthogonal_mixing(2, 3, layers=2, slopes=0.2, activation="smooth", rng=rng),
        tanh_mixing(2, 3, layers=2, reuse=False, rng=rng),
    ]
    law = factorial([[1, 1], [1, 2]])
    for module in smooth:
        certificate = certify(law, decoder=Decoder.of(module))
        assert certificate["F1"].verdict == "fails"
        assert certificate.level == certificate.if_undecided_hold == Level.NONE
    assert "it has Tanh in it" in judge(Decoder.of(smooth[0]))[0].sentence
    for module in (nn.Conv1d(1, 1, 1), nn.Sequential(nn.Linear(2, 3), nn.Hardtanh()), nn.Sequential(nn.ReLU())):
        certificate = certify(law, decoder=Decoder.of(module))
        assert certificate["F1"].verdict == "inconclusive"
        assert (certificate.level, certificate.if_undecided_hold) == (Level.NONE, Level.PS)
        assert certify(law, decoder=Decoder.of(module), injective=True).level == Level.PS  # as told


def test_a_module_that_only_looks_like_a_mixing_is_not_read():
    class Squared(type(orthogonal_mixing(2, 2, layers=1, slopes=0.2, rng=np.random.default_rng(0)))):
        def forward(self, z):
            return super().forward(z) ** 2

    assert Decoder.of(Squared([np.eye(2)], [])).odd == "Squared"


def test_layers_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match=r"Layer 2 must have a finite weight of shape \(units, 3\).*got \(2, 4\)"):
        Decoder.from_layers([(np.ones((3, 2)), np.ones(3)), (np.ones((2, 4)), np.ones(2))])
    with pytest.raises(DataError, match="Layer 1 must have a finite weight"):
        Decoder.from_layers([([[np.nan]], [0])])
    with pytest.raises(DataError, match=r"a finite slope between every two: got 1 layers and the slopes \[0.0\]"):
        Decoder.from_layers([ID], [0.0])
    with pytest.raises(DataError, match="The decoder takes 1 latents and the mixture has 2"):
        certify(factorial([[1, 1], [1, 2]]), decoder=Decoder.from_layers([ID]))


# Mixtures.


@pytest.mark.parametrize("seed", SEEDS)
def test_independent_latents_with_distinct_ratios_are_ps(seed):
    law = make_gmm(10, n=5, random_state=seed).source.latents.mixture()
    certificate = certify(law, injective=True)
    assert certificate.level == certificate.if_undecided_hold == Level.PS
    assert certificate.theorem == "Theorem 3.2b (Kivva et al. 2022), and f by Theorem 3.2c"
    assert certificate.blocks == certificate.pure == tuple((i,) for i in range(5))
    assert certificate.standard
    assert set(verdicts(certificate.checks)) == {"P1", "F1", "F2", "F3", "F4", "P2 factorial", "P2 ratios", "P3"}
    assert "sparsest" not in str(certificate)
    assert certify(law).level == Level.PS
    assert "on the premise that the mixing is weakly injective" in str(certify(law))
    assert certify(law).theorem == "Theorem 3.2b (Kivva et al. 2022)"
    sample = make_gmm(10, n=5, d=7, random_state=seed)
    assert certify(law, decoder=Decoder.of(sample.source.mixing)).theorem == certificate.theorem


@pytest.mark.parametrize("seed", SEEDS)
def test_dependent_components_are_at(seed):
    law = make_gmm(10, n=5, factorial=False, random_state=seed).source.latents.mixture()
    certificate = certify(law, injective=True)
    assert certificate.level == certificate.if_undecided_hold == Level.AT
    assert certificate.theorem == "Theorem 3.2a (Kivva et al. 2022), and f by Theorem 3.2c"
    assert certificate.blocks == (tuple(range(5)),)
    assert certificate["P2 factorial"].verdict == "fails"
    assert "In other coordinates" not in str(certificate)


@pytest.mark.parametrize("components", [2, 3, 6])
def test_dependent_components_that_are_independent_in_other_coordinates(components):
    rng = np.random.default_rng(components)
    law = factorial(rng.uniform(0.3, 3, size=(components, 4)))
    turned = certify(law.pushforward(rng.normal(size=(4, 4)), rng.normal(size=4)))
    assert (certify(law).level, turned.level) == (Level.PS, Level.AT)
    assert "In other coordinates they are: FactorialUnmixing finds them" in turned["P2 factorial"].sentence


def test_proportional_variances_are_blocks():
    ratios = np.array([1.0, 2.0, 0.5])
    law = factorial(np.column_stack([ratios, 3 * ratios, ratios[::-1], np.ones(3)]))
    certificate = certify(law)
    assert certificate.level == certificate.if_undecided_hold == Level.BLOCKS
    assert certificate.blocks == ((0, 1), (2,), (3,))
    assert certificate.theorem == "Theorem 3.2b (Kivva et al. 2022) for blocks, with the ratios of all components"
    assert certificate["P2 ratios"].verdict == "fails"
    assert "variances of latents 0, 1." in certificate["P2 ratios"].sentence
    assert "Blocks: {0, 1}, {2}, {3}." in str(certificate)
    assert certify(factorial(ratios[:, None] * np.array([1.0, 4.0, 0.3]))).level == Level.AT
    assert certify(law.pushforward(np.diag([1e-3, 1, 50, 1]), np.zeros(4))).blocks == certificate.blocks
    order = np.array([2, 0, 3, 1])
    other = certify(Mixture(law.weights, law.means[:, order], law.covariances[:, order][:, :, order]))
    assert {frozenset(order[list(b)]) for b in other.blocks} == {frozenset(b) for b in certificate.blocks}


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_are_what_keeps_latents_independent(seed):
    """An orthogonal map of standardised latents keeps them independent within a block, and only there."""
    rng = np.random.default_rng(seed)
    shared, own = rng.uniform(0.3, 3, size=(4, 1)), rng.uniform(0.3, 3, size=(4, 3))
    law = factorial(np.hstack([shared, 2 * shared, own]))
    blocks = certify(law).blocks
    assert blocks == ((0, 1), (2,), (3,), (4,))
    unit = np.sqrt(law.covariances[0].diagonal())
    for s in range(5):
        for t in range(s):
            turn = np.eye(5)
            turn[np.ix_([s, t], [s, t])] = [[0.8, -0.6], [0.6, 0.8]]
            found = certify(law.pushforward(turn / unit, np.zeros(5)))
            assert (found["P2 factorial"].verdict == "holds") == any({s, t} <= set(block) for block in blocks)


def test_all_components_together_tell_more_than_any_two():
    certificate = certify(factorial([[1, 1, 1, 1], [1, 1, 2, 2], [1, 2, 1, 2]]))
    assert certificate.level == Level.PS
    assert certificate.theorem == "Theorem 3.2b (Kivva et al. 2022), with the ratios of all components"
    assert "all together are enough" in certificate["P2 ratios"].sentence
    assert "components 1 and 2 alone show" in certify(factorial([[1, 1], [2, 2], [1, 3]]))["P2 ratios"].sentence


def test_one_component_is_at_up_to_an_orthogonal_map():
    certificate = certify(Mixture([1.0], [[0.0, 0.0]], [[1.0, 2.0]]))
    assert certificate.level == certificate.if_undecided_hold == Level.AT
    assert "orthogonal map" in certificate.meaning
    assert "needs two" in certificate["P2 ratios"].sentence
    assert certify(Mixture([0.0, 1.0], [[1.0, 0.0], [0.0, 0.0]], [[3.0, 1.0], [1.0, 2.0]])).level == Level.AT
    alone = certify(Mixture([1.0], [[0.0]], [[2.0]]), injective=True)
    assert alone.level == Level.PS
    assert alone.theorem == "Theorem 3.2a (Kivva et al. 2022), and f by Theorem 3.2c"


def test_several_hidden_variables_are_identified_too():
    source = make_gmm(10, n=4, hidden=(2, 3), touches=[[0, 1], [1, 2, 3]], random_state=0).source
    certificate = certify(source.latents.mixture(), injective=True)
    assert certificate["P3"].verdict == "holds"
    assert certificate.theorem == "Theorem 3.3c (Kivva et al. 2022), and f by Theorem 3.3d"
    nested = make_gmm(10, n=4, hidden=(2, 3), touches=[[0, 1], [0, 1, 2, 3]], random_state=0).source
    certificate = certify(nested.latents.mixture())
    assert certificate["P3"].verdict == "fails"
    assert certificate.level == Level.PS  # the latents are, all the same


# Remark 3.6.


def test_remark_3_6():
    """Two mixtures that no affine map joins, and |Z| has the same law under both."""
    means = {"P": [-2.0, -1.0, 3.0], "P'": [-2.0, 1.0, 3.0]}
    absolute = Decoder.from_layers([ID, ID], ABS)
    laws = {name: Mixture(np.full(3, 1 / 3), np.array(m)[:, None], np.full((3, 1), 0.25)) for name, m in means.items()}
    x = np.linspace(0, 6, 200)[:, None]
    densities = [
        (stats.norm.pdf(x, m, 0.5) + stats.norm.pdf(-x, m, 0.5)).mean(1) for m in map(np.array, means.values())
    ]
    np.testing.assert_allclose(*densities, atol=1e-12)
    gaps = [np.diff(np.sort(m)) for m in means.values()]  # an affine map keeps their ratio, or inverts it
    ratios = [gap[0] / gap[1] for gap in gaps]
    assert not np.isclose(ratios[0], ratios[1])
    assert not np.isclose(ratios[0], 1 / ratios[1])
    for law in laws.values():
        certificate = certify(law, decoder=absolute)
        assert certificate.level == certificate.if_undecided_hold == Level.NONE
        assert certificate.theorem == ""
        assert certificate["F2"].verdict == "fails"
        assert certify(law, decoder=Decoder.from_layers([ID, ID], RELU)).level == Level.PS


# The mixing, as told.


def test_what_is_told_of_the_mixing():
    law = factorial([[1, 1], [1, 2]])
    assert verdicts(certify(law, injective=True).checks)["F2"] == "holds"
    told = certify(law, injective=False)
    assert told["F4"].verdict == "fails"
    assert told["F2"].verdict == "inconclusive"
    assert (told.level, told.if_undecided_hold) == (Level.NONE, Level.PS)
    affine = certify(law, injective=False, affine=True)  # an affine map is injective, or loses a direction
    assert affine["F2"].verdict == "fails"
    assert affine.if_undecided_hold == Level.NONE
    assert certify(law, affine=True)["F1"].verdict == "holds"
    assert certify(law, affine=True).level == Level.PS


def test_what_cannot_be_told_of_a_decoder_is_not_taken_for_granted():
    law = factorial(np.random.default_rng(0).uniform(0.5, 2, size=(3, 10)))
    f = random_net((10, 64, 64, 100), np.random.default_rng(0))
    certificate = certify(law, decoder=f)
    assert (certificate.level, certificate.if_undecided_hold) == (Level.NONE, Level.PS)
    told = certify(law, decoder=f, injective=True)
    assert told.level == Level.PS
    assert "as told" in told["F2"].sentence


def test_contradictions_are_refused():
    law, leaky = factorial([[1, 1], [1, 2]]), Decoder.from_layers([(np.eye(2), [0, 0])] * 2, 0.5)
    with pytest.raises(DataError, match=r"injective=False is not what the decoder says: \(F4\) holds"):
        certify(law, decoder=leaky, injective=False)
    with pytest.raises(DataError, match=r"injective=True is not what the decoder says: \(F4\) fails"):
        certify(law, decoder=Decoder.from_layers([(np.eye(2), [0, 0])] * 2, ABS), injective=True)
    with pytest.raises(DataError, match="affine says that f is affine, and decoder says what f is"):
        certify(law, decoder=leaky, affine=True)


# Which paper.


def test_singular_components_are_judged_by_xu_with_the_decoder_as_the_mixing():
    law = make_pdgmm(10, n=3, random_state=0).source.latents.mixture()
    rng = np.random.default_rng(0)
    for f, verdict, level in (
        (random_net((3, 4, 5), rng, 0.2), "holds", Level.PS),
        (random_net((3, 4, 5), rng, RELU), "fails", Level.NONE),
        (random_net((3, 32, 32, 40), rng, RELU), "inconclusive", Level.PS),  # a premise
    ):
        certificate = certify(law, decoder=f)
        assert certificate["mixing"].verdict == verdict
        assert certificate.level == level
        assert "3.4" in verdicts(certificate.checks)


def test_p1_is_about_full_rank():
    singular = Mixture([0.5, 0.5], [[3.0, 0], [0, 5.0]], [[1, 0], [1, 1]])
    assert "3.4" in verdicts(certify(singular).checks)
    with np.errstate(all="raise"):
        certificate = full_rank.certify(singular)
    assert certificate.level == certificate.if_undecided_hold == Level.NONE
    assert "Component 0 varies in 1 of 2 directions only" in certificate["P1"].sentence
    narrow = factorial([[1, 0.1**2], [0.5, 1]])
    unclear = certify(narrow, estimated=True)
    assert unclear["P1"].verdict == "inconclusive"
    assert (unclear.level, unclear.if_undecided_hold) == (Level.NONE, Level.PS)
    assert certify(narrow, rows=10_000).level == Level.PS  # a variance is known to within a small part of itself


def test_arguments_that_cannot_be_used_are_refused():
    prior = ConditionalPrior("mean", [[0, 0], [2, 0], [0, 3]], [[1, 1], [1, 1], [1, 1]])
    for name, value in (("decoder", Decoder.from_layers([ID])), ("rows", 10)):
        with pytest.raises(DataError, match=f"{name} is for a Mixture"):
            certify(prior, **{name: value})
    mixed = factorial([[1, 1], [1, 2]]).pushforward([[1, 1], [0, 1]], [0, 0])
    with pytest.raises(DataError, match="rows must be the number of rows"):
        certify(mixed, rows=-5)
    with pytest.raises(DataError, match="tolerance must lie between 0 and 0"):
        certify(factorial([[1, 1], [1, 2]]), tolerance=0.5)


@pytest.mark.parametrize("decoder", [None, Decoder.from_layers([(np.eye(2), [0, 0])] * 2, ABS)])
def test_plain_values_survive_json(decoder):
    plain = certify(factorial([[1, 1], [1, 2]]), decoder=decoder).to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert all(check["sentence"].endswith(".") for check in plain["checks"])


# Estimates.


def test_statistics_are_in_standard_errors():
    """Under independence and proportional variances their mean square is 1."""
    rng = np.random.default_rng(0)
    one, three = Mixture([1.0], np.zeros((1, 2)), [[1.0, 3.0]]), factorial(np.outer([1, 2, 5], [1, 3]))
    found = [(certify(drawn(one, 200, rng), rows=200), certify(drawn(three, 600, rng), rows=600)) for _ in range(300)]
    correlations, ratios = np.array([(a["P2 factorial"].statistic, b["P2 ratios"].statistic) for a, b in found]).T
    np.testing.assert_allclose([(correlations**2).mean(), (ratios**2).mean()], 1, atol=0.15)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_estimate_with_its_rows(seed):
    rng = np.random.default_rng(seed)
    apart = factorial(rng.permuted(np.tile([0.2, 0.6, 1.8, 5.0], (5, 1)), axis=1))
    ratios = rng.uniform(0.3, 3, size=(5, 1))
    blocks = factorial(np.hstack([ratios, 2 * ratios, apart.covariances[:, [0, 1], [0, 1]]]))
    mixed = apart.pushforward(np.eye(4) + 0.3 * np.eye(4, k=1), np.zeros(4))
    found = [certify(drawn(law, 20_000, rng), rows=20_000) for law in (apart, blocks, mixed)]
    assert [certificate.level for certificate in found] == [Level.PS, Level.BLOCKS, Level.AT]
    assert found[1].blocks[0] == (0, 1)
    assert found[2].if_undecided_hold == Level.AT
    assert all(certificate.estimated for certificate in found)
    loose = certify(drawn(apart, 20_000, rng), estimated=True)  # without the rows a correlation of .03 may be one
    assert loose["P2 factorial"].verdict == "inconclusive"
    assert loose.if_undecided_hold == Level.PS


def test_few_rows_decide_little():
    rng = np.random.default_rng(0)
    apart = factorial([[1, 1, 1], [1, 2, 3]])
    few = certify(drawn(apart, 60, rng), rows=60)
    assert few["P2 factorial"].verdict == few["P2 ratios"].verdict == "inconclusive"
    assert (few.level, few.if_undecided_hold) == (Level.AT, Level.PS)


def test_with_rows_and_a_tolerance_what_is_within_either_counts_as_zero():
    law = drawn(factorial([[1, 1], [1, 1.2]]), 200_000, np.random.default_rng(0))
    assert certify(law, rows=200_000).level == Level.PS
    rough = certify(law, rows=200_000, tolerance=0.25)
    assert rough["P2 ratios"].verdict == "fails"
    assert rough.if_undecided_hold == Level.AT


@pytest.mark.parametrize("rows", [300, 5_000, 100_000])
def test_chance_is_hardly_ever_taken_for_structure(rows):
    """Proportional variances, estimated: never told apart; independent latents: never called dependent."""
    rng = np.random.default_rng(rows)
    ratios = np.array([0.5, 1.0, 3.0])
    for _ in range(30):
        law = drawn(factorial(ratios[:, None] * np.array([1.0, 2.0, 4.0])), rows, rng)
        certificate = certify(law, rows=rows)
        assert certificate.level == Level.AT
        assert certificate["P2 factorial"].verdict != "fails"
        assert certificate["P2 ratios"].verdict == "fails" if rows == 100_000 else True
