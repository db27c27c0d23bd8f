"""Theorems 3.2 and 3.3 of Kivva et al. (2022) against known answers: mixtures by hand, the simulator, estimates."""

import numpy as np
import pytest

from identifiable import Mixture
from identifiable.data import make_gmm
from identifiable.errors import DataError
from identifiable.theory import Decoder, Level, full_rank
from identifiable.theory import certify as certify_any
from theory.decoder_examples import ABS, IDENTITY, RELU, random_net, verdicts

SEEDS = range(3)
FOLD = Decoder.from_layers([(np.eye(2), [0, 0])] * 2, ABS)


def certify(mixture, **options):
    """Certify a mixture behind an injective, piecewise affine mixing, unless the options describe another one."""
    return certify_any(mixture, **({"injective": True} if "decoder" not in options else {}) | options)


def factorial(variances):
    variances = np.asarray(variances, dtype=float)
    means = np.random.default_rng(0).normal(size=variances.shape)
    return Mixture(np.full(len(variances), 1 / len(variances)), means, variances)


def estimated(mixture, rows, rng):
    """Estimate the mixture from this many rows by moments, with known components."""
    counts = np.round(rows * mixture.weights).astype(int)
    components = zip(mixture.means, mixture.covariances, counts, strict=True)
    parts = [rng.multivariate_normal(m, c, size=k) for m, c, k in components]
    return Mixture(counts / counts.sum(), [p.mean(0) for p in parts], [np.cov(p, rowvar=False) for p in parts])


# -- exact mixtures ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_independent_latents_with_distinct_ratios_are_ps(seed):
    mixture = make_gmm(10, n=5, random_state=seed).source.latents.mixture()
    certificate = certify(mixture, injective=True)
    assert certificate.level == certificate.if_undecided_hold == Level.PS
    assert certificate.theorem == "Theorem 3.2b (Kivva et al. 2022), and f by Theorem 3.2c"
    assert certificate.blocks == certificate.pure == tuple((i,) for i in range(5))
    assert certificate.standard
    assert set(verdicts(certificate.checks)) == {"P1", "F1", "F2", "F3", "F4", "P2 factorial", "P2 ratios", "P3"}
    assert certificate.premises
    unknown = certify(mixture, injective=None)
    assert (unknown.level, unknown.if_undecided_hold) == (Level.NONE, Level.PS)
    sample = make_gmm(10, n=5, d=7, random_state=seed)
    assert certify(mixture, decoder=Decoder.of(sample.source.mixing)).theorem == certificate.theorem


@pytest.mark.parametrize("seed", SEEDS)
def test_dependent_components_are_at(seed):
    mixture = make_gmm(10, n=5, factorial=False, random_state=seed).source.latents.mixture()
    certificate = certify(mixture, injective=True)
    assert certificate.level == certificate.if_undecided_hold == Level.AT
    assert certificate.theorem == "Theorem 3.2a (Kivva et al. 2022), and f by Theorem 3.2c"
    assert certificate.blocks == (tuple(range(5)),)
    assert certificate["P2 factorial"].verdict == "fails"


@pytest.mark.parametrize("components", [2, 3, 6])
def test_dependent_components_that_are_independent_in_other_coordinates(components):
    rng = np.random.default_rng(components)
    mixture = factorial(rng.uniform(0.3, 3, size=(components, 4)))
    turned = certify(mixture.pushforward(rng.normal(size=(4, 4)), rng.normal(size=4)))
    assert (certify(mixture).level, turned.level) == (Level.PS, Level.AT)
    assert "FactorialUnmixing" in turned["P2 factorial"].sentence


def test_proportional_variances_are_blocks():
    ratios = np.array([1.0, 2.0, 0.5])
    mixture = factorial(np.column_stack([ratios, 3 * ratios, ratios[::-1], np.ones(3)]))
    certificate = certify(mixture)
    assert certificate.level == certificate.if_undecided_hold == Level.BLOCKS
    assert certificate.blocks == ((0, 1), (2,), (3,))
    assert certificate.theorem == (
        "Theorem 3.2b (Kivva et al. 2022) for blocks, with the ratios of all components, and f by Theorem 3.2c"
    )
    assert certificate["P2 ratios"].verdict == "fails"
    assert "latents 0, 1." in certificate["P2 ratios"].sentence
    assert certify(factorial(ratios[:, None] * np.array([1.0, 4.0, 0.3]))).level == Level.AT
    assert certify(mixture.pushforward(np.diag([1e-3, 1, 50, 1]), np.zeros(4))).blocks == certificate.blocks
    order = np.array([2, 0, 3, 1])
    other = certify(Mixture(mixture.weights, mixture.means[:, order], mixture.covariances[:, order][:, :, order]))
    assert {frozenset(order[list(b)]) for b in other.blocks} == {frozenset(b) for b in certificate.blocks}


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_are_what_keeps_latents_independent(seed):
    """An orthogonal map of standardised latents keeps them independent within a block, and only there."""
    rng = np.random.default_rng(seed)
    shared, own = rng.uniform(0.3, 3, size=(4, 1)), rng.uniform(0.3, 3, size=(4, 3))
    mixture = factorial(np.hstack([shared, 2 * shared, own]))
    blocks = certify(mixture).blocks
    assert blocks == ((0, 1), (2,), (3,), (4,))
    unit = np.sqrt(mixture.covariances[0].diagonal())
    for s in range(5):
        for t in range(s):
            turn = np.eye(5)
            turn[np.ix_([s, t], [s, t])] = [[0.8, -0.6], [0.6, 0.8]]
            found = certify(mixture.pushforward(turn / unit, np.zeros(5)))
            assert (found["P2 factorial"].verdict == "holds") == any({s, t} <= set(block) for block in blocks)


def test_all_components_together_show_more_than_any_two():
    certificate = certify(factorial([[1, 1, 1, 1], [1, 1, 2, 2], [1, 2, 1, 2]]))
    assert certificate.level == Level.PS
    theorem = "Theorem 3.2b (Kivva et al. 2022), with the ratios of all components, and f by Theorem 3.2c"
    assert certificate.theorem == theorem
    assert "components 1 and 2" in certify(factorial([[1, 1], [2, 2], [1, 3]]))["P2 ratios"].sentence


def test_one_component_is_at_up_to_an_orthogonal_map():
    certificate = certify(Mixture([1.0], [[0.0, 0.0]], [[1.0, 2.0]]))
    assert certificate.level == certificate.if_undecided_hold == Level.AT
    assert "orthogonal map" in certificate.meaning
    assert certificate["P2 ratios"].verdict == "fails"
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
    assert certificate.level == Level.PS


def test_remark_3_6():
    """Two mixtures that no affine map joins, and |Z| has the same distribution under both."""
    absolute, relu = (Decoder.from_layers([IDENTITY, IDENTITY], slope) for slope in (ABS, RELU))
    for means in ([-2.0, -1.0, 3.0], [-2.0, 1.0, 3.0]):
        mixture = Mixture(np.full(3, 1 / 3), np.array(means)[:, None], np.full((3, 1), 0.25))
        certificate = certify(mixture, decoder=absolute)
        assert certificate.level == certificate.if_undecided_hold == Level.NONE
        assert certificate.theorem == ""
        assert certificate["F2"].verdict == "fails"
        assert certify(mixture, decoder=relu).level == Level.PS


# -- the mixing -------------------------------------------------------------------------------


def test_statements_about_the_mixing():
    mixture = factorial([[1, 1], [1, 2]])
    assert verdicts(certify(mixture, injective=True).checks)["F2"] == "holds"
    folded = certify(mixture, injective=False)
    assert folded["F4"].verdict == "fails"
    assert folded["F2"].verdict == "inconclusive"
    assert (folded.level, folded.if_undecided_hold) == (Level.NONE, Level.PS)
    affine = certify(mixture, injective=False, affine=True)  # an affine map is injective, or loses a direction
    assert affine["F2"].verdict == "fails"
    assert affine.if_undecided_hold == Level.NONE
    assert certify(mixture, affine=True)["F1"].verdict == "holds"
    assert certify(mixture, affine=True).level == Level.PS


def test_inconclusive_checks_of_a_decoder_are_not_assumed_to_hold():
    mixture = factorial(np.random.default_rng(0).uniform(0.5, 2, size=(3, 10)))
    f = random_net((10, 64, 64, 100), np.random.default_rng(0))
    certificate = certify(mixture, decoder=f)
    assert (certificate.level, certificate.if_undecided_hold) == (Level.NONE, Level.PS)
    assert certify(mixture, decoder=f, injective=True).level == Level.PS


def test_contradictions_are_refused():
    mixture, leaky = factorial([[1, 1], [1, 2]]), Decoder.from_layers([(np.eye(2), [0, 0])] * 2, 0.5)
    with pytest.raises(DataError, match="injective=False"):
        certify(mixture, decoder=leaky, injective=False)
    with pytest.raises(DataError, match="injective=True"):
        certify(mixture, decoder=FOLD, injective=True)
    with pytest.raises(DataError, match="affine"):
        certify(mixture, decoder=leaky, affine=True)
    with pytest.raises(DataError, match="1 latents"):
        certify(mixture, decoder=Decoder.from_layers([IDENTITY]))
    with pytest.raises(DataError, match="rows"):
        certify(mixture, rows=-5)


def test_p1_is_about_full_rank():
    singular = Mixture([0.5, 0.5], [[3.0, 0], [0, 5.0]], [[1, 0], [1, 1]])
    with np.errstate(all="raise"):
        certificate = full_rank.certify(singular)
    assert certificate.level == certificate.if_undecided_hold == Level.NONE
    assert certificate["P1"].verdict == "fails"
    narrow = factorial([[1, 0.1**2], [0.5, 1]])
    unclear = certify(narrow, estimated=True)
    assert unclear["P1"].verdict == "inconclusive"
    assert (unclear.level, unclear.if_undecided_hold) == (Level.NONE, Level.PS)
    known = certify(narrow, rows=10_000)  # a variance is known to within a small part of itself
    assert known["P1"].verdict == "holds"
    assert known["P2 factorial"].verdict == "inconclusive"  # any two covariances can be made diagonal at once


# -- estimates --------------------------------------------------------------------------------


def test_statistics_are_in_standard_errors():
    """Under proportional variances their mean square is 1."""
    rng = np.random.default_rng(0)
    three = factorial(np.outer([1, 2, 5], [1, 3]))
    ratios = [certify(estimated(three, 600, rng), rows=600)["P2 ratios"].statistic for _ in range(120)]
    assert np.mean(np.square(ratios)) == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_estimate_with_its_rows(seed):
    rng = np.random.default_rng(seed)
    apart = factorial(rng.permuted(np.tile([0.2, 0.6, 1.8, 5.0], (5, 1)), axis=1))
    ratios = rng.uniform(0.3, 3, size=(5, 1))
    blocks = factorial(np.hstack([ratios, 2 * ratios, apart.covariances[:, [0, 1], [0, 1]]]))
    mixed = apart.pushforward(np.eye(4) + 0.3 * np.eye(4, k=1), np.zeros(4))
    found = [certify(estimated(mixture, 20_000, rng), rows=20_000) for mixture in (apart, blocks, mixed)]
    assert [certificate.level for certificate in found] == [Level.PS, Level.BLOCKS, Level.AT]
    assert found[1].blocks[0] == (0, 1)
    assert found[2].if_undecided_hold == Level.AT
    assert all(certificate.estimated for certificate in found)
    loose = certify(estimated(apart, 20_000, rng), estimated=True)  # without the rows a correlation of .03 may be real
    assert loose["P2 factorial"].verdict == "inconclusive"
    assert loose.if_undecided_hold == Level.PS


def test_few_rows_are_inconclusive():
    rng = np.random.default_rng(0)
    apart = factorial([[1, 1, 1], [1, 2, 3]])
    few = certify(estimated(apart, 60, rng), rows=60)
    assert few["P2 factorial"].verdict == few["P2 ratios"].verdict == "inconclusive"
    assert (few.level, few.if_undecided_hold) == (Level.AT, Level.PS)


@pytest.mark.parametrize("rows", [300, 5_000, 100_000])
def test_noise_does_not_separate_proportional_variances(rows):
    """Nor does it make independent latents dependent."""
    rng = np.random.default_rng(rows)
    ratios = np.array([0.5, 1.0, 3.0])
    for _ in range(10):
        mixture = estimated(factorial(ratios[:, None] * np.array([1.0, 2.0, 4.0])), rows, rng)
        certificate = certify(mixture, rows=rows)
        assert certificate.level == Level.AT
        assert certificate["P2 factorial"].verdict != "fails"
        assert certificate["P2 ratios"].verdict == "fails" if rows == 100_000 else True
