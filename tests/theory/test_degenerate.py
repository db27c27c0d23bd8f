"""Certificates against known answers: the simulator's settings, the paper's examples, mixtures made by hand."""

import json
from itertools import combinations

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from identifiable.data import make_gmm, make_pdgmm
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.theory import Level, certify, degenerate

SEEDS = range(3)


def law(seed=0, **settings):
    return make_pdgmm(10, random_state=seed, **settings).source.latents


def verdicts(certificate):
    return {check.name: check.verdict for check in certificate.checks}


def on_axes(codes, rng):
    """A mixture whose component j moves the latents with codes[j], with means and covariances at random."""
    codes = np.asarray(codes, dtype=float)
    factors = rng.normal(size=(len(codes), codes.shape[1], codes.shape[1])) * codes[:, None, :]
    centres = rng.normal(size=codes.shape) * codes
    return Mixture(np.full(len(codes), 1 / len(codes)), centres, factors.swapaxes(1, 2) @ factors)


def lines(directions, means, deviations):
    directions = np.asarray(directions, dtype=float)
    covariances = np.asarray(deviations)[:, None, None] ** 2 * directions[:, :, None] * directions[:, None, :]
    return Mixture(np.full(len(means), 1 / len(means)), means, covariances)


def same_directions(a, b):
    """Whether the columns agree up to order, sign and length."""
    cosines = np.abs((a / np.linalg.norm(a, axis=0)).T @ (b / np.linalg.norm(b, axis=0)))
    return np.allclose(np.sort(cosines, axis=1)[:, -1], 1) and len(set(cosines.argmax(1))) == len(cosines)


def invertible(n, rng):
    """A matrix of condition at most 4: what is tested is the certificate, not the rounding of covariances."""
    left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0] for _ in range(2))
    return left * rng.uniform(0.5, 2, size=n) @ right


def singletons(n):
    return tuple((i,) for i in range(n))


# The settings of the simulator.


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("n", "rho"), [(5, 50), (5, 75), (10, 50), (10, 75), (10, "1 var")])
def test_default_is_ps(n, rho, seed):
    latents = law(seed, n=n, rho=rho)
    codes = latents.masks.numpy().T
    certificate = certify(latents.mixture(), injective=True)
    if not all((codes[k] & ~codes[i]).any() for i in range(n) for k in range(n) if i != k):  # a rare draw of masks
        assert (certificate.level, certificate["3.8b"].verdict) == (Level.BLOCKS, "fails")
        return
    assert certificate.level == certificate.if_undecided_hold == Level.PS
    assert certificate.theorem == "Theorem 3.9 (Xu et al. 2026)"
    assert certificate.blocks == certificate.pure == singletons(n)
    assert certificate.standard
    assert set(verdicts(certificate).values()) == {"holds"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("delta", [1.0, 3.0])
def test_where_latents_rest_is_reported_as_the_shift(delta, seed):
    latents = law(seed, delta=delta)
    certificate = certify(latents.mixture())
    assert certificate.level == Level.PS
    np.testing.assert_allclose(certificate.shift, latents.rest.numpy(), atol=1e-8)
    assert "shifted by the common point" in certificate["3.8a"].sentence


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [5, 10])
def test_rotation_leaves_the_sparse_basis_identified_and_not_the_given_one(n, seed):
    latents = law(seed, n=n, theta=30.0)
    certificate = certify(latents.mixture())
    assert certificate.level == Level.PS
    assert not certificate.standard
    assert same_directions(certificate.basis, latents.rotation.numpy().T)
    assert certificate["3.8a"].verdict == "fails"
    assert "given latents are only known up to one affine map" in certificate["3.8a"].sentence
    assert "not the given ones" in str(certificate)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("theta", [0.0, 20.0])
@pytest.mark.parametrize("sizes", [(2, 2, 2, 2, 2), (1, 1, 2, 6)])
def test_latents_active_together_are_blocks(sizes, theta, seed):
    latents = law(seed, blocks=sizes, theta=theta)
    certificate = certify(latents.mixture())
    assert certificate.level == Level.BLOCKS
    assert certificate["3.8b"].verdict == "fails"
    assert "always active together" in certificate["3.8b"].sentence
    assert "App. E.5" in certificate.theorem
    assert certificate.blocks == certificate.pure
    ends = np.cumsum(sizes)
    true = [tuple(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    if theta == 0:
        assert certificate.blocks == tuple(true)
    for block in true:  # the span of each true block is the span of one found block
        axes = latents.rotation.numpy().T[:, block]
        ranks = [np.linalg.matrix_rank(np.hstack([axes, certificate.basis[:, b]]), 1e-6) for b in certificate.blocks]
        assert (len(block), len(block)) in [(r, len(b)) for r, b in zip(ranks, certificate.blocks, strict=True)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_basis_leaves_atwc(seed):
    certificate = certify(law(seed, second_basis=30.0).mixture())
    assert certificate.level == Level.ATWC
    assert certificate["3.6"].verdict == "fails"
    assert certificate.basis is None


def test_example_e3_is_atwc_only():
    certificate = certify(law(example="E.3").mixture(), injective=True)
    assert certificate.level == certificate.if_undecided_hold == Level.ATWC
    assert certificate.theorem == "Theorem 3.5 (Xu et al. 2026)"
    assert verdicts(certificate)["3.4"] == "holds"
    assert verdicts(certificate)["3.6"] == verdicts(certificate)["3.8a"] == "fails"
    assert certificate.blocks == ()
    np.testing.assert_allclose(certificate.shift, 0)


@pytest.mark.parametrize("n", [2, 5, 10])
@pytest.mark.parametrize("example", ["B.13", "E.2"])
def test_symmetric_examples_are_not_generic(example, n):
    certificate = certify(law(example=example, n=n).mixture(), injective=True)
    assert certificate.level == certificate.if_undecided_hold == Level.NONE
    assert certificate.theorem == ""
    assert verdicts(certificate) == {
        **dict.fromkeys(["mixing", "supports", "3.6", "3.8a", "3.8b"], "holds"),
        "3.4": "fails",
    }
    assert "could exchange halves" in str(certificate)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("factorial", [True, False])
def test_non_degenerate_is_at_by_sparsity(factorial, seed):
    certificate = degenerate.certify(make_gmm(10, n=5, factorial=factorial, random_state=seed).source.latents.mixture())
    assert certificate.level == Level.AT
    assert certificate.theorem == "Theorem 3.7 (Xu et al. 2026)"
    assert certificate.blocks == (tuple(range(5)),)
    assert "No latent is ever at rest" in certificate["3.8b"].sentence


def test_forty_rotated_latents():
    latents = law(n=40, theta=20.0)
    certificate = certify(latents.mixture())
    assert certificate.level == Level.PS
    assert same_directions(certificate.basis, latents.rotation.numpy().T)


def test_narrow_genericity_holds_and_says_so():
    """Where latents rest at their mean, the lines of '1 var' meet almost at all means: distances are almost 0."""
    check = certify(law(rho="1 var").mixture())["3.4"]
    assert check.verdict == "holds"
    assert check.threshold < check.statistic < 1e-3
    assert "only just" in check.sentence
    assert "only just" not in certify(law(example="E.3").mixture())["3.4"].sentence


# Invariance.


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_components_and_of_latents(seed):
    rng = np.random.default_rng(seed)
    mixture = law(seed, blocks=(1, 1, 2, 6), delta=1.0).mixture()
    first = certify(mixture)
    j, i = rng.permutation(len(mixture.weights)), rng.permutation(10)
    other = certify(Mixture(mixture.weights[j], mixture.means[j][:, i], mixture.covariances[j][:, i][:, :, i]))
    assert other.level == first.level
    assert {frozenset(i[list(block)]) for block in other.blocks} == {frozenset(block) for block in first.blocks}
    np.testing.assert_allclose(other.shift, first.shift[i], atol=1e-8)
    assert other["3.4"].statistic == pytest.approx(first["3.4"].statistic, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [5, 10])
def test_an_affine_map_maps_basis_and_shift(n, seed):
    rng = np.random.default_rng(seed)
    matrix, offset = invertible(n, rng), 10 * rng.normal(size=n)
    latents = law(seed, n=n, delta=1.0)
    first, other = certify(latents.mixture()), certify(latents.mixture().pushforward(matrix, offset))
    assert first.level == other.level == Level.PS
    assert same_directions(other.basis, matrix)
    np.testing.assert_allclose(other.shift, matrix @ latents.rest.numpy() + offset, atol=1e-6)
    for name in ("3.4", "supports"):
        assert other[name].verdict == first[name].verdict
    assert other["3.4"].statistic == pytest.approx(first["3.4"].statistic, rel=1e-5)


@pytest.mark.parametrize(("example", "level"), [("B.13", Level.NONE), ("E.2", Level.NONE), ("E.3", Level.ATWC)])
def test_an_affine_map_repairs_no_example(example, level):
    mixture = law(example=example, n=4).mixture()
    n = mixture.means.shape[1]
    rng = np.random.default_rng(0)
    assert certify(mixture.pushforward(invertible(n, rng), rng.normal(size=n))).level == level


def test_units_do_not_matter():
    mixture = law(n=5).mixture()
    units = np.diag([1e-3, 1, 10.0, 1e3, 1])
    certificate = certify(mixture.pushforward(units, np.zeros(5)))
    assert certificate.level == Level.PS
    assert certificate.standard


def test_components_without_weight_are_left_out():
    mixture = law(example="E.3").mixture()
    certificate = certify(Mixture([0.5, 0.5, 0.0], mixture.means, mixture.covariances))
    assert certificate.level == Level.PS


# Genericity by hand.


def test_the_statistic_of_two_lines_by_hand():
    certificate = certify(lines(np.eye(2), [[3.0, 0.0], [0.0, 1.0]], [2.0, 0.5]))
    assert certificate["3.4"].statistic == pytest.approx(abs(np.log((1 + 9 / 4) / (1 + 4))))


def test_the_quadratic_on_a_common_line_by_hand():
    """Planes (x, y) and (y, z) with precisions a and b of y on the line they share, centred on it."""

    def planes(a, b, mean=0.0):
        first, second = np.diag([1.0, 1 / a, 0.0]), np.diag([0.0, 1 / b, 1.0])
        return Mixture([0.5, 0.5], [[0, 0, 0], [0, mean, 0]], [first, second])

    assert certify(planes(2.0, 6.0))["3.4"].statistic == pytest.approx(np.log(3))
    assert certify(planes(2.0, 2.0))["3.4"].verdict == "fails"
    assert certify(planes(2.0, 2.0, mean=1.0))["3.4"].verdict == "holds"


def test_planes_that_agree_on_their_line_only_are_not_generic():
    """The covariances differ, but both distances are y² where x = z = 0."""
    tilted = np.array([[2.0, 1.0, 0.0], [1.0, 1.5, 0.0], [0.0, 0.0, 0.0]])
    precision = np.linalg.inv(tilted[:2, :2])[1, 1]
    other = np.diag([0.0, 1 / precision, 7.0])
    assert certify(Mixture([0.5, 0.5], np.zeros((2, 3)), [tilted, other]))["3.4"].verdict == "fails"
    assert certify(Mixture([0.5, 0.5], np.zeros((2, 3)), [tilted, 2 * other]))["3.4"].verdict == "holds"


def test_planes_that_meet_in_a_point_cannot_be_exchanged():
    """A piecewise affine map bends a plane along lines; a single common point is not enough to swap them."""
    check = certify(Mixture([0.5, 0.5], np.zeros((2, 4)), np.array([[1, 1, 0, 0], [0, 0, 1, 1]])))["3.4"]
    assert check.verdict == "holds"
    assert check.statistic is None


def test_planes_at_an_angle_that_meet_in_a_point_are_not_compared():
    """Both angles between the planes are small, yet they share no line; most mass is round, so that they stay so."""
    first = np.diag([1.0, 1, 0, 0])
    turn = np.cos(0.4) * np.eye(4) + np.sin(0.4) * np.eye(4)[[2, 3, 0, 1]] * np.array([1, 1, -1, -1])
    mixture = Mixture([0.05, 0.05, 0.9], np.zeros((3, 4)), [first, turn.T @ first @ turn, np.eye(4)])
    assert certify(mixture)["3.4"].statistic is None


def test_components_on_one_support_are_not_compared():
    """Both halves of a line look the same from its middle, but a mixing that is injective cannot exchange them."""
    mixture = lines([[1, 0], [1, 0], [0, 1]], [[1.0, 0], [-1.0, 0], [0.0, 0]], [1.0, 1.0, 2.0])
    certificate = certify(mixture)
    assert certificate["3.4"].statistic == pytest.approx(np.log(2))
    assert certificate.level == Level.PS


def test_supports_that_do_not_meet_are_not_compared():
    certificate = certify(lines([[1, 0, 0], [0, 1, 0]], [[0.0, 0, 0], [0, 0, 1.0]], [1.0, 1.0]))
    assert certificate["3.4"].verdict == "holds"
    assert certificate["3.6"].verdict == "fails"
    assert "no point in common" in certificate["3.6"].sentence
    assert certificate.shift is None
    assert certificate.level == Level.ATWC


def test_a_component_of_full_rank_gives_at_whatever_else_fails():
    e3 = law(example="E.3").mixture()
    certificate = certify(
        Mixture(np.full(4, 0.25), np.vstack([e3.means, [[0, 0]]]), np.concatenate([e3.covariances, [np.eye(2)]]))
    )
    assert certificate.level == Level.AT
    assert certificate["3.6"].verdict == "fails"
    assert "Kivva" in certificate.theorem
    b13 = law(example="B.13", n=2).mixture()
    certificate = certify(
        Mixture(np.full(3, 1 / 3), np.zeros((3, 2)), np.concatenate([b13.covariances, [[[2, 1], [1, 2]]]]))
    )
    assert certificate["3.4"].verdict == "fails"
    assert certificate.level == Level.PS
    assert "Kivva" in certificate.theorem


# Common bases by hand.


def normals(subspaces, seed):
    """A mixture of centred components, each with a random covariance on the span of the given rows."""
    rng = np.random.default_rng(seed)
    factors = [rng.normal(size=(len(s) + 1, len(s))) @ np.asarray(s, dtype=float) for s in subspaces]
    n = factors[0].shape[1]
    return Mixture(np.full(len(factors), 1 / len(factors)), np.zeros((len(factors), n)), [f.T @ f for f in factors])


@pytest.mark.parametrize("seed", SEEDS)
def test_three_planes_in_space_share_their_lines_of_intersection(seed):
    rng = np.random.default_rng(seed)
    a, b, c = axes = rng.normal(size=(3, 3))
    certificate = certify(normals([(a, b), (b, c), (c, a)], seed))
    assert certificate["3.6"].verdict == "holds"
    assert same_directions(certificate.basis, axes.T)
    assert certificate.level == Level.PS


@pytest.mark.parametrize("seed", SEEDS)
def test_dependent_subspaces_share_no_basis(seed):
    a, b, c, d = np.random.default_rng(seed).normal(size=(4, 3))
    pencil = normals([(a, b), (a, c), (a, b + c)], seed)  # three planes through one line
    assert certify(pencil)["3.6"].verdict == "fails"
    assert certify(normals([(a, b), (b, c), (c, a), (d, a + b + c)], seed))["3.6"].verdict == "fails"
    line_in_no_axis = normals([(a,), (b, c), (a + b,)], seed)
    assert certify(line_in_no_axis)["3.6"].verdict == "fails"


@pytest.mark.parametrize("seed", SEEDS)
def test_any_family_of_subsets_of_any_basis_is_recognised(seed):
    """The basis found spans every support by some of its columns, and the blocks are those of the codes."""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        n, j = int(rng.integers(2, 7)), int(rng.integers(1, 8))
        codes = rng.random((j, n)) < 0.5
        codes[0] |= ~codes.any(0)  # nothing rests for ever
        codes = codes[codes.any(1)]
        if codes.all():  # nothing is singular
            continue
        plain = on_axes(codes, rng)
        turned = plain.pushforward(invertible(n, rng), rng.normal(size=n))
        first, other = certify(plain), certify(turned)
        assert first["3.6"].verdict == other["3.6"].verdict == "holds"
        assert first.level == other.level
        assert sorted(map(len, first.blocks)) == sorted(map(len, other.blocks))
        assert sorted(map(len, first.pure)) == sorted(map(len, other.pure))
        for covariance, code in zip(turned.covariances, codes, strict=True):
            values, vectors = np.linalg.eigh(covariance)
            off = vectors[:, values < 1e-9 * values[-1]]
            assert (np.linalg.norm(off.T @ other.basis, axis=0) < 1e-6).sum() == code.sum()


# Variability, 3.8b.


@pytest.mark.parametrize("seed", range(10))
def test_blocks_are_the_mixtures_that_sparsity_allows(seed):
    """z_i + z_k in place of z_i costs no zeros, in any component, exactly where k is active only when i is."""
    rng = np.random.default_rng(seed)
    n = 5
    codes = rng.random((6, n)) < 0.6
    codes = np.vstack([codes[codes.any(1)], ~codes.any(0)]) if not codes.any(0).all() else codes[codes.any(1)]
    allowed = np.eye(n, dtype=bool)
    for i, k in combinations(range(n), 2):
        for a, b in ((i, k), (k, i)):
            active = codes.copy()
            active[:, a] |= codes[:, b]
            allowed[a, b] = (active.sum(1) == codes.sum(1)).all()
    labels = connected_components(allowed, directed=False)[1]
    expected = {tuple(np.flatnonzero(labels == label).tolist()) for label in labels}
    certificate = certify(on_axes(codes, rng))
    assert certificate["3.6"].verdict == "holds"
    assert certificate["3.8b"].statistic == allowed.sum() - n
    if certificate.level == Level.PS:
        assert expected == set(singletons(n))
    assert set(certificate.blocks) == expected
    for part in certificate.pure:  # nothing outside is allowed in
        assert not np.delete(allowed[list(part)], part, axis=1).any()


def test_a_latent_active_whenever_another_is():
    """Latent 0 is active in both components, latent 1 in the second: recovered, 0 may hold some of 1."""
    certificate = certify(on_axes([[1, 0, 0], [1, 1, 0], [0, 0, 1]], np.random.default_rng(0)))
    assert certificate.level == Level.BLOCKS
    assert certificate.blocks == ((0, 1), (2,))
    assert certificate.pure == ((1,), (2,))
    assert "Active whenever some other latent is: latent 0;" in certificate["3.8b"].sentence
    assert "Recovered on their own: {1}, {2}." in str(certificate)


def test_a_latent_that_never_rests():
    certificate = certify(on_axes([[1, 1, 0], [1, 0, 1]], np.random.default_rng(0)))
    assert certificate.level == Level.BLOCKS
    assert certificate.blocks == ((0, 1, 2),)
    assert certificate.pure == ((1,), (2,))
    np.testing.assert_allclose(certificate.shift, 0, atol=1e-9)  # of all common points, the shortest
    assert "Never at rest: latent 0;" in certificate["3.8b"].sentence


def test_a_latent_that_never_moves():
    plain = on_axes([[1, 0, 0], [0, 0, 1]], np.random.default_rng(0))
    certificate = certify(Mixture(plain.weights, plain.means + np.array([0, 7, 0]), plain.covariances))
    assert certificate.level == Level.BLOCKS
    assert certificate.blocks == ((0,), (2,))
    np.testing.assert_allclose(certificate.shift, [0, 7, 0], atol=1e-9)
    assert certificate["3.8b"].sentence.startswith("Constant in all components")
    assert "latent 1." in certificate["3.8b"].sentence


# The mixing, estimates, words.


def test_without_the_mixing_everything_is_on_a_premise():
    mixture = law(n=5).mixture()
    unknown, known, wrong = (certify(mixture, injective=injective) for injective in (None, True, False))
    assert [c["mixing"].verdict for c in (unknown, known, wrong)] == ["inconclusive", "holds", "fails"]
    assert [c.level for c in (unknown, known, wrong)] == [Level.PS, Level.PS, Level.NONE]
    assert "on the premise" in str(unknown)
    assert wrong.blocks == ()


def learnt(seed, rows=90_000, noise=0.01, **settings):
    """Means and covariances of rows, as a fit that knows the components would have them."""
    sample = make_pdgmm(rows, random_state=seed, **settings)
    z = sample.z + noise * np.random.default_rng(seed).normal(size=sample.z.shape)
    groups = [z[sample.component == j] for j in np.unique(sample.component)]
    return Mixture(
        [len(g) / rows for g in groups], [g.mean(0) for g in groups], [np.cov(g, rowvar=False) for g in groups]
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_an_estimate_shows_blocks(seed):
    certificate = certify(learnt(seed, blocks=(2, 2, 2, 2, 2), delta=1.0), estimated=True)
    assert certificate.level == Level.BLOCKS
    assert certificate.blocks == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert "rests on estimates" in str(certificate)
    assert "estimates" not in str(certify(law(seed).mixture()))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_estimate_cannot_tell_narrow_genericity(seed):
    certificate = certify(learnt(seed), estimated=True)
    assert certificate["3.4"].verdict == "inconclusive"
    assert (certificate.level, certificate.if_undecided_hold) == (Level.NONE, Level.PS)
    assert "At best: PS" in str(certificate)
    assert verdicts(certificate)["3.6"] == verdicts(certificate)["3.8b"] == "holds"
    assert certificate.blocks == ()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("example", "level"), [("B.13", Level.NONE), ("E.2", Level.NONE), ("E.3", Level.ATWC)])
def test_an_estimate_sees_the_examples(example, level, seed):
    assert certify(learnt(seed, example=example, n=3, rows=30_000), estimated=True).level == level


def test_a_deviation_near_the_tolerance_decides_nothing():
    mixture = Mixture([0.5, 0.5], [[3.0, 0], [0, 5.0]], [[1, 0.2**2], [0.2**2, 1]])
    assert degenerate.certify(mixture).level == Level.AT
    unclear = certify(mixture, estimated=True, tolerance=0.08)
    assert unclear["supports"].verdict == "inconclusive"
    assert unclear.level == Level.NONE
    assert "too little to be active for sure" in str(unclear)


def test_levels_are_ordered_and_print_as_in_the_paper():
    assert [str(level) for level in sorted(Level)] == ["none", "ATwC", "AT", "blocks", "PS"]


@pytest.mark.parametrize("settings", [{}, {"example": "E.3"}, {"theta": 10.0}, {"blocks": (2, 3, 2)}])
def test_plain_values_survive_json(settings):
    certificate = certify(law(**settings).mixture())
    plain = certificate.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["level"] == str(certificate.level)
    assert [check["name"] for check in plain["checks"]] == ["mixing", "supports", "3.4", "3.6", "3.8a", "3.8b"]
    assert all(check["sentence"].endswith(".") for check in plain["checks"])
    assert all(check["sentence"] in str(certificate) for check in plain["checks"])


def test_errors_say_what_to_do():
    with pytest.raises(DataError, match=r"tolerance must lie between 0 and 0\.3"):
        certify(law(n=3).mixture(), tolerance=1.0)
    with pytest.raises(DataError, match="one point: there is nothing to identify"):
        certify(Mixture([1.0], [[1.0, 2.0]], np.zeros((1, 2))))
