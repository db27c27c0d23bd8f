"""Certificates of degenerate mixtures against known answers: the simulator, the examples of the paper, by hand."""

from functools import partial
from itertools import combinations

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from identifiable import theory
from identifiable.data import make_gmm, make_pdgmm
from identifiable.distributions.mixture import Mixture
from identifiable.theory import Level, degenerate
from theory.decoder_examples import verdicts as of_checks
from theory.subspaces import invertible, latents_of, lines, on_axes, same_directions

SEEDS = range(3)
certify = partial(theory.certify, injective=True)


def verdicts(certificate):
    return of_checks(certificate.checks)


def singletons(n):
    return tuple((i,) for i in range(n))


# -- the settings of the simulator ------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("n", "rho"), [(5, 50), (5, 75), (10, 50), (10, 75)])
def test_default_is_ps(n, rho, seed):
    latents = latents_of(seed, n=n, rho=rho)
    codes = latents.masks.numpy().T
    certificate = certify(latents.mixture())
    if not all((codes[k] & ~codes[i]).any() for i in range(n) for k in range(n) if i != k):
        assert (certificate.level, certificate["3.8b"].verdict) == (Level.BLOCKS, "fails")
        return
    assert certificate.level == certificate.if_undecided_hold == Level.PS
    assert certificate.theorem == "Theorem 3.9 (Xu et al. 2026), with straight latents in place of 3.4"
    assert certify(latents.mixture(), affine=True).theorem == "Theorem 3.9 (Xu et al. 2026)"
    assert certificate.blocks == certificate.pure == singletons(n)
    assert certificate.standard
    assert set(verdicts(certificate).values()) == {"holds"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [5, 10])
def test_after_rotation_the_sparse_basis_is_identified(n, seed):
    latents = latents_of(seed, n=n, theta=30.0)
    certificate = certify(latents.mixture())
    assert certificate.level == Level.PS
    assert not certificate.standard
    assert same_directions(certificate.basis, latents.rotation.numpy().T)
    assert certificate["3.8a"].verdict == "fails"
    assert "not the given ones" in str(certificate)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("theta", [0.0, 20.0])
@pytest.mark.parametrize("sizes", [(2, 2, 2, 2, 2), (1, 1, 2, 6)])
def test_latents_active_together_are_blocks(sizes, theta, seed):
    latents = latents_of(seed, blocks=sizes, theta=theta)
    certificate = certify(latents.mixture())
    assert certificate.level == Level.BLOCKS
    assert certificate["3.8b"].verdict == "fails"
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


@pytest.mark.parametrize("settings", [{"example": "E.3"}, *({"second_basis": 30.0, "seed": s} for s in SEEDS)])
def test_supports_without_a_common_basis_leave_atwc(settings):
    certificate = certify(latents_of(**settings).mixture())
    assert certificate.level == certificate.if_undecided_hold == Level.ATWC
    assert certificate.theorem == "Theorem 3.5 (Xu et al. 2026)"
    assert verdicts(certificate)["3.4"] == "holds"
    assert verdicts(certificate)["3.6"] == verdicts(certificate)["3.8a"] == "fails"
    assert (certificate.blocks, certificate.basis) == ((), None)
    assert certificate.shift is None if "seed" in settings else np.allclose(certificate.shift, 0)


def test_components_that_share_a_basis_share_their_affine_map():
    latents = latents_of(second_basis=30.0, seed=1)
    certificate = certify(latents.mixture())
    first = [j for j, second in enumerate(latents.second.tolist()) if not second]
    assert certificate.level == Level.ATWC
    assert "one and the same map for components" in certificate.meaning
    assert f"components {first[0]}, {first[1]}" in certificate.meaning
    apart = lines([[1, 0, 0], [0, 1, 0]], [[0.0, 0, 0], [0, 0, 1.0]], [1.0, 1.0])
    assert "one and the same" not in certify(apart).sentence


@pytest.mark.parametrize("n", [2, 5, 10])
@pytest.mark.parametrize("example", ["B.13", "E.2"])
def test_latents_of_symmetric_examples_are_exchangeable(example, n):
    certificate = certify(latents_of(example=example, n=n).mixture())
    assert certificate.level == certificate.if_undecided_hold == Level.PS_UNBENT
    assert [name for name, verdict in verdicts(certificate).items() if verdict != "holds"] == ["straight"]
    assert certificate["straight"].verdict == "fails"
    assert certificate.exchangeable == tuple(combinations(range(n), 2))
    assert certificate.straight == certificate.blocks == ()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("settings", [{"rho": "1 var"}, {"rho": "1 var", "delta": 2.0}, {"n": 5, "k": 0, "rho": 20}])
def test_inactive_values_that_were_estimated_do_not_separate_latents(settings, seed):
    """The simulator estimates them on 5000 rows, so that true distributions differ by chance."""
    certificate = certify(latents_of(seed, **settings).mixture())
    assert (certificate.level, certificate.if_undecided_hold) == (Level.PS_UNBENT, Level.PS)
    assert certificate["straight"].verdict == "inconclusive"
    assert certificate.straight == ()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("factorial", [True, False])
def test_non_degenerate_is_at_by_sparsity(factorial, seed):
    certificate = degenerate.certify(
        make_gmm(10, n=5, factorial=factorial, random_state=seed).source.latents.mixture(), injective=True
    )
    assert certificate.level == Level.AT
    assert "Kivva" in certificate.theorem
    assert certificate.blocks == (tuple(range(5)),)
    assert certificate["3.8b"].verdict == "fails"


# -- invariance -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_components_and_of_latents(seed):
    rng = np.random.default_rng(seed)
    mixture = latents_of(seed, blocks=(1, 1, 2, 6), delta=1.0).mixture()
    first = certify(mixture)
    j, i = rng.permutation(len(mixture.weights)), rng.permutation(10)
    other = certify(Mixture(mixture.weights[j], mixture.means[j][:, i], mixture.covariances[j][:, i][:, :, i]))
    assert other.level == first.level
    assert {frozenset(i[list(block)]) for block in other.blocks} == {frozenset(block) for block in first.blocks}
    np.testing.assert_allclose(other.shift, first.shift[i], atol=1e-8)
    assert other["straight"].statistic == pytest.approx(first["straight"].statistic, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [5, 10])
def test_an_affine_map_maps_basis_and_shift(n, seed):
    rng = np.random.default_rng(seed)
    matrix, offset = invertible(n, rng), 10 * rng.normal(size=n)
    latents = latents_of(seed, n=n, delta=1.0)
    first, other = certify(latents.mixture()), certify(latents.mixture().pushforward(matrix, offset))
    assert first.level == other.level == Level.PS
    assert same_directions(other.basis, matrix)
    np.testing.assert_allclose(other.shift, matrix @ latents.rest.numpy() + offset, atol=1e-6)


# -- levels by hand ---------------------------------------------------------------------------


def test_supports_that_do_not_meet_are_not_compared():
    certificate = certify(lines([[1, 0, 0], [0, 1, 0]], [[0.0, 0, 0], [0, 0, 1.0]], [1.0, 1.0]))
    assert certificate["3.4"].verdict == "holds"
    assert certificate["3.6"].verdict == "fails"
    assert certificate.shift is None
    assert certificate.level == Level.ATWC


def test_a_component_of_full_rank_gives_at_whatever_else_fails():
    e3 = latents_of(example="E.3").mixture()
    covariances = np.concatenate([e3.covariances, [np.eye(2)]])
    certificate = certify(Mixture(np.full(4, 0.25), np.vstack([e3.means, [[0, 0]]]), covariances))
    assert certificate.level == Level.AT
    assert certificate["3.6"].verdict == "fails"
    assert "Kivva" in certificate.theorem
    b13 = latents_of(example="B.13", n=2).mixture()
    covariances = np.concatenate([b13.covariances, [[[2, 1], [1, 2]]]])
    certificate = certify(Mixture(np.full(3, 1 / 3), np.zeros((3, 2)), covariances))
    assert certificate["straight"].verdict == "holds"
    assert certificate.level == Level.PS
    assert "Kivva" in certificate.theorem


# -- variability, 3.8b ------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("codes", "blocks", "pure", "latent"),
    [
        ([[1, 0, 0], [1, 1, 0], [0, 0, 1]], ((0, 1), (2,)), ((1,), (2,)), 0),  # once recovered, 0 may contain some of 1
        ([[1, 1, 0], [1, 0, 1]], ((0, 1, 2),), ((1,), (2,)), 0),  # latent 0 is always active
        ([[1, 0, 0], [0, 0, 1]], ((0,), (2,)), ((0,), (2,)), 1),  # latent 1 is constant
    ],
)
def test_latents_that_are_never_active_alone(codes, blocks, pure, latent):
    plain = on_axes(codes, np.random.default_rng(0))
    shift = 7.0 * ~np.any(codes, axis=0)  # of all common points, the shortest
    weights = np.arange(1, 1 + len(codes)) / np.arange(1, 1 + len(codes)).sum()
    certificate = certify(Mixture(weights, plain.means + shift, plain.covariances))
    assert (certificate.level, certificate.blocks, certificate.pure) == (Level.BLOCKS, blocks, pure)
    np.testing.assert_allclose(certificate.shift, shift, atol=1e-9)
    assert f"latent {latent}" in certificate["3.8b"].sentence


# -- the mixing, estimates --------------------------------------------------------------------


def test_an_unknown_mixing_guarantees_nothing():
    mixture = latents_of(n=5).mixture()
    unknown, known, wrong = (certify(mixture, injective=injective) for injective in (None, True, False))
    assert [c["mixing"].verdict for c in (unknown, known, wrong)] == ["inconclusive", "holds", "fails"]
    assert [c.level for c in (unknown, known, wrong)] == [Level.NONE, Level.PS, Level.NONE]
    assert [c.if_undecided_hold for c in (unknown, known, wrong)] == [Level.PS, Level.PS, Level.NONE]
    assert wrong.blocks == unknown.blocks == ()


def learnt(seed, rows=90_000, noise=0.01, **settings):
    """Estimate means and covariances from rows, with known components."""
    sample = make_pdgmm(rows, random_state=seed, **settings)
    z = sample.z + noise * np.random.default_rng(seed).normal(size=sample.z.shape)
    groups = [z[sample.component == j] for j in np.unique(sample.component)]
    return Mixture(
        [len(g) / rows for g in groups], [g.mean(0) for g in groups], [np.cov(g, rowvar=False) for g in groups]
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_an_estimate_shows_blocks(seed):
    certificate = certify(learnt(seed, blocks=(2, 2, 2, 2, 2), delta=1.0), rows=90_000)
    assert certificate.level == Level.BLOCKS
    assert certificate.blocks == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert certificate.estimated


@pytest.mark.parametrize("seed", SEEDS)
def test_an_estimate_is_tested_with_its_rows(seed):
    unknown, tested = (certify(learnt(seed), estimated=True, rows=rows) for rows in (None, 90_000))
    assert (unknown.level, unknown.if_undecided_hold) == (Level.PS_UNBENT, Level.PS)
    assert (unknown.straight, unknown.blocks, unknown.error_level) == ((), (), None)
    assert verdicts(unknown)["3.6"] == verdicts(unknown)["3.8b"] == "holds"
    assert (tested.level, tested.error_level) == (Level.PS, 0.05)
    alone = certify(learnt(seed, rho="1 var"), rows=90_000)
    assert (alone.level, alone.straight) == (Level.PS_UNBENT, ())


def test_a_deviation_near_the_tolerance_is_inconclusive():
    mixture = Mixture([0.5, 0.5], [[3.0, 0], [0, 5.0]], [[1, 0.2**2], [0.2**2, 1]])
    assert degenerate.certify(mixture, injective=True).level == Level.AT
    unclear = certify(mixture, estimated=True, tolerance=0.08)
    assert unclear["supports"].verdict == "inconclusive"
    assert unclear.level == Level.NONE
