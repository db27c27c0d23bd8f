"""Theorems 1 and 3 of Khemakhem et al. (2020) against known answers: priors made by hand, the simulator, samples."""

import numpy as np
import pytest

from identifiable import ConditionalPrior
from identifiable import certify as certify_any
from identifiable.data import make_segments, make_tcl
from identifiable.errors import DataError
from identifiable.theory import Level
from theory.decoder_examples import verdicts as of_checks

SEEDS = range(3)
OPEN = ("gaussian-unknown", "bernoulli", "categorical", None)  # noise that need not have a known distribution
FAMILIES = ["variance", "gaussian", "laplace", "mean"]


def certify(prior, **options):
    """Certify a prior behind an injective mixing without noise, unless the options say otherwise."""
    return certify_any(prior, **{"injective": True, "observation": "none"} | options)


def verdicts(certificate):
    return of_checks(certificate.checks)


def simulated(sample, family):
    """Return the prior of a simulator of segments."""
    latents = sample.source.latents
    return ConditionalPrior(family, latents.means.numpy(), latents.factors.numpy(), latents.weights.numpy())


def parameters(rng, family="variance", G=40, n=5):
    """Return random means and scales; those that the family holds constant are, but not at 0."""
    means, scales = rng.uniform(-3, 3, size=(G, n)), rng.uniform(0.5, 3, size=(G, n))
    if family in ("variance", "laplace"):
        means = np.tile(means[0], (G, 1))
    return means, np.tile(scales[0], (G, 1)) if family == "mean" else scales


def rows(means, scales, count, rng, family="gaussian"):
    u = np.repeat(np.arange(len(means)), count)
    noise = rng.laplace if family == "laplace" else rng.normal
    return means[u] + scales[u] * noise(size=(len(u), means.shape[1])), u


def deficient(rng, family, kind, G=40, n=5):
    """Return a prior with L of rank nk - 1 (nk - 2 for k = 2 and a constant latent)."""
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


# -- exact priors -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_forty_segments_are_ps(seed):
    prior = simulated(make_segments(40, random_state=seed), "variance")
    certificate = certify(prior, injective=True, observation="none")
    assert certificate.level == certificate.if_undecided_hold == Level.PS
    assert certificate.theorem == "Theorem 3 (Khemakhem et al. 2020)"
    assert set(verdicts(certificate).values()) == {"holds"}
    assert list(verdicts(certificate)) == ["mixing", "1.i", "1.ii", "family", "values", "1.iii", "3.i", "3.ii"]
    assert certificate.blocks == certificate.pure == ((0,), (1,), (2,), (3,), (4,))
    assert certificate.standard
    assert not certificate.estimated


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", [make_tcl, lambda *a, **k: make_segments(*a, centred=False, **k)])
def test_changing_means_and_variances_are_ps_by_the_form_of_a(make, seed):
    certificate = certify(simulated(make(40, random_state=seed), "gaussian"))
    assert certificate.level == Level.PS
    assert certificate.theorem == "Theorem 1 (Khemakhem et al. 2020) and the form of its A"
    assert certificate["3.i"].verdict == "fails"
    np.testing.assert_array_equal(certificate.shift, np.zeros(5))


def test_means_alone_are_at_and_no_more():
    """A rotation of latents of equal variance gives such a prior, too, so PS would be wrong."""
    rng = np.random.default_rng(0)
    means, turn = rng.normal(size=(10, 3)), np.linalg.qr(rng.normal(size=(3, 3)))[0]
    first, other = (certify(ConditionalPrior("mean", m, np.ones((10, 3)))) for m in (means, means @ turn))
    assert first.level == other.level == first.if_undecided_hold == Level.AT
    assert first.theorem == "Theorem 1 (Khemakhem et al. 2020)"
    assert first.blocks == ((0, 1, 2),)
    assert first["3.ii"].verdict == "fails"
    assert other["1.iii"].statistic == pytest.approx(first["1.iii"].statistic, rel=1e-6)


@pytest.mark.parametrize(("family", "needed"), [("variance", 6), ("laplace", 6), ("mean", 6), ("gaussian", 11)])
def test_too_few_values_of_u(family, needed):
    means, scales = parameters(np.random.default_rng(0), family, G=needed)
    assert certify(ConditionalPrior(family, means, scales)).level >= Level.AT
    certificate = certify(ConditionalPrior(family, means[:-1], scales[:-1]))
    assert certificate.level == certificate.if_undecided_hold == Level.NONE
    assert (certificate["values"].statistic, certificate["values"].threshold) == (needed - 1, needed)
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
    certificate = certify(ConditionalPrior(family, *deficient(np.random.default_rng(0), family, kind)))
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


# -- priors of which only a part changes --------------------------------------------------------


def test_constant_variances_leave_at():
    rng = np.random.default_rng(0)
    certificate = certify(ConditionalPrior("gaussian", *parameters(rng, "mean")))
    assert (certificate.level, certificate.if_undecided_hold) == (Level.AT, Level.AT)
    assert certificate.theorem == "Theorem 1 (Khemakhem et al. 2020)"
    assert certificate["family"].sentence.endswith("only the means change.")
    assert certificate["values"].threshold == 6


def test_constant_means_leave_ps_by_the_variances():
    means, scales = parameters(np.random.default_rng(0), "variance", G=8)  # too few for k = 2
    certificate = certify(ConditionalPrior("gaussian", means, scales))
    assert certificate.level == Level.PS
    assert certificate.theorem == "Theorem 3 (Khemakhem et al. 2020)"
    assert certificate["family"].sentence.endswith("only the variances change.")
    np.testing.assert_allclose(certificate.shift, means[0])
    assert certificate["1.iii"].statistic == certify(ConditionalPrior("variance", means, scales))["1.iii"].statistic


def test_a_part_that_may_be_constant_gives_the_best_case():
    rng = np.random.default_rng(0)
    means, scales = parameters(rng, "variance", G=8)
    certificate = certify(ConditionalPrior("gaussian", means + 4e-5 * rng.normal(size=means.shape), scales))
    assert certificate["family"].verdict == "inconclusive"
    assert (certificate.level, certificate.if_undecided_hold) == (Level.NONE, Level.PS)


def test_a_part_that_changes_for_one_latent_is_not_left_out():
    rng = np.random.default_rng(0)
    for family, part in (("mean", 1), ("variance", 0)):
        prior = parameters(rng, family)
        prior[part][:, 0] = rng.uniform(1, 3, size=40)
        certificate = certify(ConditionalPrior("gaussian", *prior))
        assert certificate.level == Level.NONE
        assert "u does not change the " in certificate["1.iii"].sentence


@pytest.mark.parametrize(("family", "noun"), [("variance", "means"), ("laplace", "means"), ("mean", "scales")])
def test_constant_parts_of_the_family_are_checked(family, noun):
    rng = np.random.default_rng(0)
    means, scales = parameters(rng, family)
    for size, verdict in ((1e-7, "holds"), (4e-5, "inconclusive"), (0.3, "fails")):
        moved = size * rng.normal(size=40)
        moved_prior = (means + moved[:, None], scales) if noun == "means" else (means, scales * np.exp(moved[:, None]))
        certificate = certify(ConditionalPrior(family, *moved_prior))
        assert certificate["family"].verdict == verdict
        assert (certificate.level > Level.NONE) == (verdict == "holds")
        assert (certificate.if_undecided_hold > Level.NONE) == (verdict != "fails")
    assert noun in certificate["family"].sentence


# -- invariance -------------------------------------------------------------------------------


@pytest.mark.parametrize("estimated", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_units_order_sign_and_origin_do_not_matter(family, estimated):
    rng = np.random.default_rng(1)
    means, scales = parameters(rng, family, G=20)
    units, origin, order = np.array([1e-3, -1, 20, -1e3, 1]), 10 * rng.normal(size=5), rng.permutation(5)
    if estimated:
        z, u = rows(means, scales, 1000, rng, family)
        priors = [ConditionalPrior.resampled(y, u, family) for y in (z, (units * z + origin)[:, order])]
    else:
        moved, values = (units * means + origin)[:, order], rng.permutation(20)
        priors = [ConditionalPrior(family, means, scales)]
        priors += [ConditionalPrior(family, moved[values], (np.abs(units) * scales)[:, order][values])]
    first, other = (certify(prior) for prior in priors)
    assert other.level == first.level > Level.NONE
    assert verdicts(other) == verdicts(first)
    assert other["1.iii"].statistic == pytest.approx(first["1.iii"].statistic, rel=1e-3)


# -- priors estimated from rows -----------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("centred", [True, False])
def test_an_estimate_of_forty_segments_is_ps(centred, seed):
    sample = make_segments(40_000, centred=centred, random_state=seed)
    certificate = certify(ConditionalPrior.resampled(sample.z, sample.u, "variance" if centred else "gaussian"))
    assert certificate.level == Level.PS
    assert certificate.estimated


def test_few_rows_are_inconclusive_and_many_rows_decide():
    found = {"few": [], "many": [], "few, and more tolerance": []}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        prior = deficient(rng, "variance", "proportional")
        few, many = (ConditionalPrior.resampled(*rows(*prior, count, rng), "variance") for count in (60, 1000))
        certificates = [certify(few), certify(many), certify(few, tolerance=0.2)]
        for certificate, verdict in zip(certificates, found.values(), strict=True):
            assert (certificate.if_undecided_hold == Level.NONE) == (certificate["1.iii"].verdict == "fails")
            assert "latents 1 and 3 vary with u in proportion" in certificate["1.iii"].sentence
            verdict.append(certificate["1.iii"].verdict)
    assert set(found["few"]) == {"inconclusive"}
    for key in ("many", "few, and more tolerance"):  # noise exceeds its threshold in one sample of 20 or so
        assert found[key].count("fails") >= 4
        assert "holds" not in found[key]


def test_counts_stand_in_for_a_bootstrap():
    found = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        priors = parameters(rng), deficient(rng, "variance", "proportional")
        full, less = (rows(*prior, 1000, rng) for prior in priors)
        assert certify(ConditionalPrior.resampled(*full, "variance", draws=0), estimated=True).level == Level.PS
        prior = ConditionalPrior.resampled(*less, "variance", draws=0)
        found.append(certify(prior, estimated=True)["1.iii"].verdict)
        exact = ConditionalPrior("variance", np.zeros_like(prior.means), prior.scales)
        assert certify(exact)["1.iii"].verdict == "holds"  # if it counts as exact, noise gives full rank
        assert certify(exact, estimated=True, tolerance=0.1)["1.iii"].verdict == "fails"
    assert found.count("fails") >= 2
    assert "holds" not in found


# -- the mixing and the noise -------------------------------------------------------------------


def test_mixing_and_noise_are_given_or_assumed():
    prior = ConditionalPrior("variance", *parameters(np.random.default_rng(0)))
    unknown, known, wrong = (certify(prior, injective=injective) for injective in (None, True, False))
    assert [c["mixing"].verdict for c in (unknown, known, wrong)] == ["inconclusive", "holds", "fails"]
    assert [c.level for c in (unknown, known, wrong)] == [Level.NONE, Level.PS, Level.NONE]
    assert unknown.if_undecided_hold == Level.PS
    assert known.premises
    assert wrong.if_undecided_hold == Level.NONE
    assert wrong.blocks == ()
    noise = [certify(prior, observation=word)["1.i"] for word in ("gaussian", "none", *OPEN)]
    assert [check.verdict for check in noise] == ["holds", "holds", *["inconclusive"] * len(OPEN)]
    for word in OPEN:
        certificate = certify(prior, observation=word)
        assert (certificate.level, certificate.if_undecided_hold) == (Level.NONE, Level.PS)
    with pytest.raises(DataError, match="observation"):
        certify(prior, observation="poisson")


def test_unknown_noise_in_as_many_columns_as_latents_is_not_identified():
    """Two priors that are not related by order, sign and scale give one distribution of x, each with its own noise."""
    rng = np.random.default_rng(0)
    variances, f = rng.uniform(1, 4, size=(8, 3)), np.linalg.qr(rng.normal(size=(3, 3)))[0]
    pairs = [(variances, 1.0), (variances + 0.5, 0.5)]
    of_x = [f @ (v[:, :, None] * f.T) + noise * np.eye(3) for v, noise in pairs]
    np.testing.assert_allclose(*of_x)
    assert np.ptp(variances / (variances + 0.5), axis=0).min() > 0.05
    for v, _ in pairs:
        prior = ConditionalPrior("variance", np.zeros((8, 3)), np.sqrt(v))
        assert certify(prior, observation="gaussian-unknown").level == Level.NONE
        assert certify(prior, observation="gaussian").level == Level.PS
