"""Theorems 1 and 2 of Khemakhem et al. (2020) against known answers: priors made by hand, the simulator, samples."""

import json

import numpy as np
import pytest
from scipy import stats

from identifiable import ConditionalPrior, Mixture, certify
from identifiable.data import make_segments, make_tcl
from identifiable.errors import DataError
from identifiable.theory import Level
from identifiable.theory.rank import dependence, least_varied

SEEDS = range(3)
FAMILIES = ["variance", "gaussian", "laplace", "mean"]


def verdicts(certificate):
    return {check.name: check.verdict for check in certificate.checks}


def simulated(sample, family):
    """The law a simulator of segments draws from."""
    law = sample.source.latents
    return ConditionalPrior(family, law.means.numpy(), law.factors.numpy(), law.weights.numpy())


def parameters(rng, family="variance", G=40, n=5):
    """Means and scales at random; what the family holds constant is, but not at 0."""
    means, scales = rng.uniform(-3, 3, size=(G, n)), rng.uniform(0.5, 3, size=(G, n))
    if family in ("variance", "laplace"):
        means = np.tile(means[0], (G, 1))
    return means, np.tile(scales[0], (G, 1)) if family == "mean" else scales


def rows(means, scales, count, rng, family="gaussian"):
    u = np.repeat(np.arange(len(means)), count)
    noise = rng.laplace if family == "laplace" else rng.normal
    return means[u] + scales[u] * noise(size=(len(u), means.shape[1])), u


def deficient(rng, family, kind, G=40, n=5):
    """A law with L of rank nk - 1 (nk - 2 for k = 2 and a constant latent)."""
    means, scales = parameters(rng, family, G, n)
    if kind == "proportional":
        scales[:, 3], means[:, 3] = 1.7 * scales[:, 1], 1.7 * means[:, 1] + 1
    elif kind == "constant":
        scales[:, 3], means[:, 3] = 1.3, 0.4
    elif family == "mean":
        means[:, 3] = means[:, 1] - means[:, 0]
    else:
        power = -1.0 if family == "laplace" else -2.0
        scales[:, 3] = (scales[:, 1] ** power + scales[:, 0] ** power) ** (1 / power)
    return means, scales


# The rank of an estimated matrix.


def noisy(rng, rank, G=12, r=4, noise=1e-2):
    """y of some rank about its mean, with errors of a covariance of its own for every u."""
    factors = noise * rng.normal(size=(G, r, r)) * rng.uniform(0.2, 3, size=(G, 1, 1))
    y = rng.normal(size=(G, rank)) @ rng.normal(size=(rank, r)) + rng.normal(size=r)
    return y + (factors @ rng.normal(size=(G, r, 1)))[..., 0], factors @ factors.swapaxes(1, 2)


def test_the_statistic_is_chi_squared_where_one_direction_is_constant():
    rng = np.random.default_rng(0)
    q = [least_varied(*noisy(rng, 3))[0] for _ in range(100)]
    assert stats.kstest(q, stats.chi2(12 - 4).cdf).pvalue > 0.01
    lower = [least_varied(*noisy(rng, 2))[0] for _ in range(30)]
    assert np.mean(lower) < 0.7 * np.mean(q)
    assert np.median([least_varied(*noisy(rng, 4, noise=1e-3))[0] for _ in range(10)]) > 10 * np.max(q)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_statistic_is_a_minimum_and_free_of_affine_maps(seed):
    rng = np.random.default_rng(seed)
    y, covariances = noisy(rng, 3)
    q, v = least_varied(y, covariances)

    def value(v):
        w = 1 / np.einsum("i,uij,j->u", v, covariances, v)
        return w @ (y @ v - w @ (y @ v) / w.sum()) ** 2

    assert value(v) == pytest.approx(q, rel=1e-6)
    assert all(value(v + 1e-3 * rng.normal(size=4)) > q for _ in range(20))
    B = rng.normal(size=(4, 4))
    assert least_varied(y @ B.T + rng.normal(size=4), B @ covariances @ B.T)[0] == pytest.approx(q, rel=1e-4)


def test_latents_are_named_by_what_they_vary_and_not_by_their_units():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 12))
    y = np.stack([a, 1e-2 * b, 2 * a], axis=1)
    covariances = np.tile(1e-8 * np.eye(3), (12, 1, 1))
    assert dependence(y, covariances, np.array([2, 1, -1]), 1) == "latents 0 and 2 vary with u in proportion"
    assert dependence(y, covariances, np.array([2, 100, -1]), 1) == (
        "u changes latents 0, 1 and 2 in a linearly dependent way"
    )


# True laws.


@pytest.mark.parametrize("seed", SEEDS)
def test_forty_segments_are_ps(seed):
    certificate = certify(
        simulated(make_segments(40, random_state=seed), "variance"), injective=True, observation="none"
    )
    assert certificate.level == certificate.if_undecided_hold == Level.PS
    assert certificate.theorem == "Theorem 2 (Khemakhem et al. 2020)"
    assert set(verdicts(certificate).values()) == {"holds"}
    assert list(verdicts(certificate)) == ["mixing", "1.i", "1.ii", "family", "values", "1.iii", "2.i", "2.ii"]
    assert certificate.blocks == certificate.pure == ((0,), (1,), (2,), (3,), (4,))
    assert certificate.standard
    assert "order, sign and scale, once measured from its mean" in str(certificate)
    assert "sparse" not in str(certificate)
    assert "estimates" not in str(certificate)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", [make_tcl, lambda *a, **k: make_segments(*a, centred=False, **k)])
def test_changing_means_and_variances_are_ps_by_the_form_of_a(make, seed):
    certificate = certify(simulated(make(40, random_state=seed), "gaussian"))
    assert certificate.level == Level.PS
    assert certificate.theorem == "Theorem 1 (Khemakhem et al. 2020) and the form of its A"
    assert certificate["2.i"].verdict == "fails"
    assert "order, sign, scale and shift" in str(certificate)
    np.testing.assert_array_equal(certificate.shift, np.zeros(5))


def test_laplace_is_ps_and_measured_from_its_centre():
    means, scales = parameters(np.random.default_rng(0), "laplace")
    certificate = certify(ConditionalPrior("laplace", means, scales))
    assert certificate.level == Level.PS
    np.testing.assert_allclose(certificate.shift, means[0])


def test_means_alone_are_at_and_no_more():
    """A rotation of latents of one variance is again such a law, so that PS would be wrong."""
    rng = np.random.default_rng(0)
    means, turn = rng.normal(size=(10, 3)), np.linalg.qr(rng.normal(size=(3, 3)))[0]
    first, other = (certify(ConditionalPrior("mean", m, np.ones((10, 3)))) for m in (means, means @ turn))
    assert first.level == other.level == first.if_undecided_hold == Level.AT
    assert first.theorem == "Theorem 1 (Khemakhem et al. 2020)"
    assert first.blocks == ((0, 1, 2),)
    assert first["2.ii"].verdict == "fails"
    assert other["1.iii"].statistic == pytest.approx(first["1.iii"].statistic, rel=1e-6)


@pytest.mark.parametrize(("family", "needed"), [("variance", 6), ("laplace", 6), ("mean", 6), ("gaussian", 11)])
def test_too_few_values_of_u(family, needed):
    means, scales = parameters(np.random.default_rng(0), family, G=needed)
    assert certify(ConditionalPrior(family, means, scales)).level >= Level.AT
    certificate = certify(ConditionalPrior(family, means[:-1], scales[:-1]))
    assert certificate.level == certificate.if_undecided_hold == Level.NONE
    assert certificate["values"].sentence.endswith(f"nk + 1 = {needed} are needed: 1 more.")
    assert verdicts(certificate)["values"] == verdicts(certificate)["1.iii"] == "fails"
    assert certificate.theorem == ""
    assert certificate.blocks == ()
    assert certificate.basis is None
    shares = np.append(np.full(needed - 1, 1 / (needed - 1)), 0)
    assert certify(ConditionalPrior(family, means, scales, shares)).level == Level.NONE  # a value that never occurs


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("proportional", "latents 1 and 3 vary with u in proportion"),
        ("constant", "u does not change "),
        ("dependent", "u changes latents 0, 1 and 3 in a linearly dependent way"),
    ],
)
def test_dependent_latents_are_named(family, kind, words):
    for seed in SEEDS:
        certificate = certify(ConditionalPrior(family, *deficient(np.random.default_rng(seed), family, kind)))
        assert certificate.level == certificate.if_undecided_hold == Level.NONE
        assert certificate["1.iii"].verdict == "fails"
        assert words in certificate["1.iii"].sentence
        assert "latent 3" in certificate["1.iii"].sentence or kind != "constant"


def test_mean_and_variance_of_one_latent_that_depend():
    means, scales = parameters(np.random.default_rng(0), "gaussian")
    means[:, 2] = 3 + 1.3 * scales[:, 2] ** 2  # m / s² is 3 / s² and a constant
    check = certify(ConditionalPrior("gaussian", means, scales))["1.iii"]
    assert check.verdict == "fails"
    assert "mean and variance of latent 2 in a linearly dependent way" in check.sentence


# Laws of which only a part changes.


def test_constant_variances_leave_at():
    rng = np.random.default_rng(0)
    certificate = certify(ConditionalPrior("gaussian", *parameters(rng, "mean")))
    assert (certificate.level, certificate.if_undecided_hold) == (Level.AT, Level.AT)
    assert certificate.theorem == "Theorem 1 (Khemakhem et al. 2020)"
    assert "scales of the latents do not vary with u. The law is read as one of changing means." in str(certificate)
    assert certificate["values"].threshold == 6


def test_constant_means_leave_ps_by_the_variances():
    means, scales = parameters(np.random.default_rng(0), "variance", G=8)  # too few for k = 2
    certificate = certify(ConditionalPrior("gaussian", means, scales))
    assert certificate.level == Level.PS
    assert certificate.theorem == "Theorem 2 (Khemakhem et al. 2020)"
    assert "The law is read as one of changing variances." in certificate["family"].sentence
    np.testing.assert_allclose(certificate.shift, means[0])
    assert certificate["1.iii"].statistic == certify(ConditionalPrior("variance", means, scales))["1.iii"].statistic


def test_a_part_that_may_be_constant_gives_the_best_case():
    rng = np.random.default_rng(0)
    means, scales = parameters(rng, "variance", G=8)
    certificate = certify(ConditionalPrior("gaussian", means + 4e-5 * rng.normal(size=means.shape), scales))
    assert certificate["family"].verdict == "cannot tell"
    assert (certificate.level, certificate.if_undecided_hold) == (Level.NONE, Level.PS)


def test_a_part_that_changes_for_one_latent_is_not_left_out():
    rng = np.random.default_rng(0)
    for family, part in (("mean", 1), ("variance", 0)):
        law = parameters(rng, family)
        law[part][:, 0] = rng.uniform(1, 3, size=40)
        certificate = certify(ConditionalPrior("gaussian", *law))
        assert certificate.level == Level.NONE
        assert "u does not change the " in certificate["1.iii"].sentence


def test_nothing_changes():
    certificate = certify(ConditionalPrior("gaussian", np.ones((40, 2)), np.ones((40, 2))))
    assert certificate.level == certificate.if_undecided_hold == Level.NONE
    assert "the means of latents 0 and 1 and the variances of latents 0 and 1" in certificate["1.iii"].sentence


@pytest.mark.parametrize(("family", "noun"), [("variance", "means"), ("laplace", "means"), ("mean", "scales")])
def test_what_the_family_holds_constant_is_looked_at(family, noun):
    rng = np.random.default_rng(0)
    means, scales = parameters(rng, family)
    for size, verdict in ((1e-7, "holds"), (4e-5, "cannot tell"), (0.3, "fails")):
        moved = size * rng.normal(size=40)
        law = (means + moved[:, None], scales) if noun == "means" else (means, scales * np.exp(moved[:, None]))
        certificate = certify(ConditionalPrior(family, *law))
        assert certificate["family"].verdict == verdict
        assert (certificate.level > Level.NONE) == (verdict == "holds")
        assert (certificate.if_undecided_hold > Level.NONE) == (verdict != "fails")
    assert f"The {noun} of latent" in certificate["family"].sentence


# Invariance.


@pytest.mark.parametrize("estimated", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_units_order_sign_and_origin_do_not_matter(family, estimated):
    rng = np.random.default_rng(1)
    means, scales = parameters(rng, family, G=20)
    units, origin, order = np.array([1e-3, -1, 20, -1e3, 1]), 10 * rng.normal(size=5), rng.permutation(5)
    if estimated:
        z, u = rows(means, scales, 1000, rng, family)
        laws = [ConditionalPrior.resampled(y, u, family) for y in (z, (units * z + origin)[:, order])]
    else:
        moved, values = (units * means + origin)[:, order], rng.permutation(20)
        laws = [ConditionalPrior(family, means, scales)]
        laws += [ConditionalPrior(family, moved[values], (np.abs(units) * scales)[:, order][values])]
    first, other = (certify(law) for law in laws)
    assert other.level == first.level > Level.NONE
    assert verdicts(other) == verdicts(first)
    assert other["1.iii"].statistic == pytest.approx(first["1.iii"].statistic, rel=1e-3)


# Laws estimated from rows.


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("centred", [True, False])
def test_an_estimate_of_forty_segments_is_ps(centred, seed):
    sample = make_segments(40_000, centred=centred, random_state=seed)
    certificate = certify(ConditionalPrior.resampled(sample.z, sample.u, "variance" if centred else "gaussian"))
    assert certificate.level == Level.PS
    assert certificate.estimated
    assert "the law of the latents was learnt" in str(certificate)
    assert "standard errors" in certificate["1.iii"].sentence


def test_an_estimate_with_constant_means_is_read_as_one_of_variances():
    sample = make_segments(40_000, random_state=0)
    certificate = certify(ConditionalPrior.resampled(sample.z, sample.u, "gaussian"))
    assert certificate.theorem == "Theorem 2 (Khemakhem et al. 2020)"
    np.testing.assert_allclose(certificate.shift, 0, atol=0.05)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("variance", "proportional"), ("variance", "dependent"), ("laplace", "constant"), ("gaussian", "proportional")],
)
def test_noise_does_not_pass_for_rank(family, kind):
    """An estimated L is always of full rank. 20 laws whose L is not: no more than one may pass."""
    passed = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        z, u = rows(*deficient(rng, family, kind, G=25), 300, rng, family)
        passed.append(certify(ConditionalPrior.resampled(z, u, family, seed=seed)).level == Level.PS)
    assert sum(passed) <= 1


@pytest.mark.parametrize("family", ["variance", "gaussian"])
def test_full_rank_is_seen_in_most_samples(family):
    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        z, u = rows(*parameters(rng, family, G=25), 300, rng)
        found.append(certify(ConditionalPrior.resampled(z, u, family, seed=seed)).level)
    assert np.mean(np.array(found) == Level.PS) > 0.8


def test_few_rows_cannot_tell_and_many_rows_can():
    found = {"few": [], "many": [], "few, and more tolerance": []}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        law = deficient(rng, "variance", "proportional")
        few, many = (ConditionalPrior.resampled(*rows(*law, count, rng), "variance") for count in (60, 1000))
        certificates = [certify(few), certify(many), certify(few, tolerance=0.2)]
        for certificate, verdict in zip(certificates, found.values(), strict=True):
            assert (certificate.if_undecided_hold == Level.NONE) == (certificate["1.iii"].verdict == "fails")
            assert "latents 1 and 3 vary with u in proportion" in certificate["1.iii"].sentence
            verdict.append(certificate["1.iii"].verdict)
    assert set(found["few"]) == {"cannot tell"}
    for key in ("many", "few, and more tolerance"):  # noise exceeds its threshold in one sample of 20 or so
        assert found[key].count("fails") >= 6
        assert "holds" not in found[key]


def test_counts_stand_in_for_a_bootstrap():
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        full, less = (rows(*law, 1000, rng) for law in (parameters(rng), deficient(rng, "variance", "proportional")))
        assert certify(ConditionalPrior.resampled(*full, "variance", draws=0), estimated=True).level == Level.PS
        law = ConditionalPrior.resampled(*less, "variance", draws=0)
        found.append(certify(law, estimated=True)["1.iii"].verdict)
        exact = ConditionalPrior("variance", np.zeros_like(law.means), law.scales)
        assert certify(exact)["1.iii"].verdict == "holds"  # taken as exact, noise does pass for rank
        assert certify(exact, estimated=True, tolerance=0.1)["1.iii"].verdict == "fails"
    assert found.count("fails") >= 3
    assert "holds" not in found


# What is told, and words.


def test_the_mixing_and_the_noise_are_told_or_premises():
    law = ConditionalPrior("variance", *parameters(np.random.default_rng(0)))
    unknown, known, wrong = (certify(law, injective=injective) for injective in (None, True, False))
    assert [c["mixing"].verdict for c in (unknown, known, wrong)] == ["cannot tell", "holds", "fails"]
    assert [c.level for c in (unknown, known, wrong)] == [Level.PS, Level.PS, Level.NONE]
    assert wrong.if_undecided_hold == Level.NONE
    assert wrong.blocks == ()
    told = [certify(law, observation=word)["1.i"] for word in ("gaussian", "none", "bernoulli", "categorical", None)]
    assert [check.verdict for check in told] == ["holds", "holds", "cannot tell", "cannot tell", "cannot tell"]
    assert "Supplement E" in told[2].sentence
    assert certify(law, observation="bernoulli").level == Level.PS


def test_each_kind_of_law_has_its_own_arguments():
    mixture = Mixture([0.5, 0.5], [[3, 0], [1, 4]], [[1, 0], [0, 1]])
    law = ConditionalPrior("variance", *parameters(np.random.default_rng(0)))
    with pytest.raises(DataError, match="observation is for a ConditionalPrior"):
        certify(mixture, observation="none")
    with pytest.raises(DataError, match="affine is for a Mixture"):
        certify(law, affine=True)
    with pytest.raises(TypeError, match="takes a Mixture or a ConditionalPrior, got int"):
        certify(3)
    with pytest.raises(DataError, match="observation must be one of"):
        certify(law, observation="poisson")
    with pytest.raises(DataError, match=r"tolerance must lie between 0 and 0\.3"):
        certify(law, tolerance=1.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_values_survive_json(family):
    for G in (40, 4):
        certificate = certify(ConditionalPrior(family, *parameters(np.random.default_rng(0), family, G=G)))
        plain = certificate.to_dict()
        assert json.loads(json.dumps(plain)) == plain
        assert plain["meaning"] in str(certificate)
        assert all(check["sentence"].endswith(".") for check in plain["checks"])
        assert all(check["sentence"] in str(certificate) for check in plain["checks"])
