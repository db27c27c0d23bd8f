"""Sparse unmixing against affine mixtures whose latents are known: exact, or it says so."""

import time
from itertools import pairwise

import numpy as np
import pytest

from identifiable import Level, RecoveryWarning, SparseUnmixing
from identifiable.agreement.stability import Stability
from identifiable.data import make_pdgmm
from identifiable.errors import OutOfTimeError
from identifiable.metrics import mcc, r2
from identifiable.training import time_limit


def affine(rows=4000, seed=0, noise=0.0, columns=None, **options):
    """A sample, and its latents mixed by a random matrix and shifted."""
    sample = make_pdgmm(rows, layers=1, random_state=seed, **options)
    rng = np.random.default_rng(seed + 1000)
    n = sample.z.shape[1]
    d = columns or n
    x = sample.z @ rng.normal(size=(n, d)) + rng.normal(size=d)
    return sample, x + noise * x.std(0) * rng.normal(size=x.shape)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("delta", [0, 3])
@pytest.mark.parametrize("rho", ["1 var", 50, 75])
@pytest.mark.parametrize("k", [0, 3])
def test_exact_recovery(k, rho, delta, seed):
    sample, x = affine(n=6, k=k, rho=rho, delta=delta, seed=seed)
    model = SparseUnmixing(random_state=seed).fit(x)
    assert model.n_found_ == model.established_.sum() == 6
    assert mcc(sample.z, model.transform(x)) > 0.9999999


def test_inactive_values_far_from_the_mean_of_forty_latents():
    """No descent reaches the rows here; the affine subspaces of neighbouring samples do."""
    sample, x = affine(rows=20_000, n=40, k=1, rho=75, delta=3)
    model = SparseUnmixing(random_state=0).fit(x)
    assert model.n_found_ == 40
    assert mcc(sample.z, model.transform(x)) > 0.9999999


def test_an_ill_conditioned_mixing():
    """One direction of x has a 100,000th of the standard deviation of the largest: exact data still show it."""
    sample = make_pdgmm(4000, n=6, layers=1, delta=1, random_state=0)
    rng = np.random.default_rng(0)
    left, _, right = np.linalg.svd(rng.normal(size=(6, 6)))
    x = sample.z @ (left * [1, 1, 1, 1, 1, 1e-5]) @ right
    model = SparseUnmixing(6, random_state=0).fit(x)
    assert model.n_found_ == 6
    assert mcc(sample.z, model.transform(x)) > 0.999999


def test_rows_in_any_order():
    """Sorted data are no harder: what looks at some of the rows looks at a random part."""
    sample, x = affine(rows=20_000, n=6, k=3, rho=50)
    order = np.argsort(sample.component, kind="stable")
    model = SparseUnmixing(random_state=0).fit(x[order])
    assert mcc(sample.z, model.transform(x)) > 0.9999999


def test_many_data_sets_are_fitted_as_one_would_be():
    sets = [affine(rows=1000, n=n, seed=n)[1] for n in (3, 4, 4)]
    model = SparseUnmixing(random_state=0)
    for x, one in zip(sets, model.fit_many(sets), strict=True):
        np.testing.assert_array_equal(one.transform(x), model.fit(x).transform(x))
    with pytest.raises(ValueError, match="NaN"):
        model.fit_many([sets[0], np.full((100, 3), np.nan)])


def test_a_combination_of_two_latents_is_no_latent():
    """Here the samples on a combination of two rows hide that they span too little, by a few strays among them."""
    sample = make_pdgmm(20_000, n=10, k=2, layers=1, random_state=201)
    rng = np.random.default_rng([201, 10])
    x = sample.z @ rng.normal(size=(10, 10)) + rng.normal(size=10)
    model = SparseUnmixing(10, random_state=201).fit(x)
    assert mcc(sample.z, model.transform(x)) > 0.9999999


def test_activity_offset_and_masks_are_exact():
    """Latents are zero exactly where the true ones are inactive; patterns are the true masks at the true shares."""
    sample, x = affine(n=6, rho=50, delta=2)
    model = SparseUnmixing(random_state=0).fit(x)
    latents = sample.source.latents
    correlations = np.abs(np.corrcoef(sample.z.T, model.transform(x).T)[:6, 6:])
    order = correlations.argmax(1)
    truth = latents.masks.numpy()[sample.component]
    np.testing.assert_array_equal(model.active(x)[:, order], truth)
    assert len(model.masks_.frequencies) == len(latents.masks)
    assert model.masks_.frequencies.sum() == pytest.approx(1)
    mixing = np.linalg.lstsq(np.c_[sample.z, np.ones(len(x))], x, rcond=None)[0]
    inactive = latents.rest.numpy() @ mixing[:6] + mixing[6]
    np.testing.assert_allclose(model.origin_, inactive, atol=1e-5)
    assert (model.rest_scale_ < 1e-5).all()


def test_the_map_and_its_inverse():
    _, x = affine(n=5, columns=9)
    model = SparseUnmixing(random_state=0).fit(x)
    assert model.transform(x).shape == (4000, 5)
    np.testing.assert_allclose(model.inverse_transform(model.transform(x)), x, atol=1e-6)
    np.testing.assert_allclose(model.components_ @ model.mixing_, np.eye(5), atol=1e-6)


def test_more_columns_than_latents_and_more_latents_than_there_are():
    sample, x = affine(n=4, columns=7)
    assert SparseUnmixing(random_state=0).fit(x).n_found_ == 4
    model = SparseUnmixing(6, random_state=0).fit(x)
    assert model.unused_ == (4, 5)
    z = model.transform(x)
    assert z.shape == (4000, 6)
    assert (z[:, 4:] == 0).all()
    assert mcc(sample.z, z) > 0.9999999


@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 1, 3)])
def test_blocks_are_found_and_only_their_spans(sizes):
    sample, x = affine(blocks=sizes, seed=1)
    model = SparseUnmixing(random_state=0).fit(x)
    assert sorted(map(len, model.blocks_)) == sorted(s for s in sizes if s > 1)
    edges = np.cumsum((0, *sizes))
    spans = [sample.z[:, a:b] for a, b in pairwise(edges)]
    z = model.transform(x)
    for block in model.blocks_:
        assert max(r2(z[:, list(block)], span) for span in spans) > 0.999999
    assert model.certificate_.level == Level.BLOCKS
    assert sorted(map(len, model.certificate_.blocks)) == sorted(sizes)


@pytest.mark.parametrize(("agreement", "level"), [(1.0, Level.PS), (0.5, Level.NONE)])
def test_certificate_needs_restarts_that_agree(agreement, level):
    _, x = affine(n=4, rho=50, delta=2)
    model = SparseUnmixing(n_restarts=2, random_state=0).fit(x)
    model.stability_ = Stability(np.array([[1.0, agreement], [agreement, 1.0]]))
    assert model.certificate_.level == level
    assert model.certificate_["agreement"].statistic == agreement


@pytest.mark.parametrize(("n", "columns", "share"), [(5, None, 0.5), (30, None, 0.15), (30, 70, 0.15)])
def test_verified_hyperplanes_certify_every_latent(n, columns, share):
    rng = np.random.default_rng(n)
    z = rng.normal(size=(5000, n)) * (rng.random((5000, n)) < share)
    x = z @ rng.normal(size=(n, columns or n))
    model = SparseUnmixing(random_state=0).fit(x)
    assert mcc(z, model.transform(x)) > 0.9999999
    certificate = model.certificate_
    assert (model.n_found_, certificate.level) == (n, Level.PS)
    assert certificate.blocks == tuple((i,) for i in range(n))
    assert certificate.error_level == 0.05
    assert "affine" in certificate.premises[0]
    assert certificate["almost inactive"].verdict == "holds"
    assert model.sparsity_bound_.weight < 1e-4


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_a_latent_active_only_with_another_is_not_certified():
    """Where latent 0 is inactive, so is latent 1: no rows tell latent 0 from its sums with latent 1."""
    rng = np.random.default_rng(0)
    active = rng.random((6000, 4)) < 0.5
    active[:, 1] &= active[:, 0]
    x = (rng.normal(size=(6000, 4)) * active) @ rng.normal(size=(4, 4))
    model = SparseUnmixing(random_state=0).fit(x)
    best = np.abs(np.corrcoef(active.T, model.active(x).T)[:4, 4:]).argmax(0)
    assert 0 not in best[np.flatnonzero(model.spans_.single)]
    assert model.certificate_.level < Level.PS


def test_gaussian_data_have_no_inactive_latents():
    """Gaussian data have no sparse basis: nothing is verified, a warning says so, and so does the certificate."""
    x = np.random.default_rng(0).normal(size=(3000, 4))
    with pytest.warns(RecoveryWarning, match="0 of 4"):
        model = SparseUnmixing(random_state=0).fit(x)
    assert not model.established_.any()
    assert model.blocks_ == ()
    assert model.certificate_.level == Level.NONE
    assert model.certificate_["inactive"].verdict == "fails"


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_exact_hyperplanes_of_a_bent_mixing_are_not_mistaken_for_latents():
    """A piecewise affine mixture has exact hyperplanes too; the smooth start is nearer to the latents."""
    for seed in (1, 2):
        sample = make_pdgmm(6000, n=5, random_state=seed)
        model = SparseUnmixing(random_state=0).fit(sample.x)
        assert mcc(sample.z, model.transform(sample.x)) > 0.94


@pytest.mark.parametrize(("n", "layers"), [(2, 3), (2, 10), (3, 2), (3, 3)])
def test_a_bent_mixing_of_few_latents_is_not_certified(n, layers):
    """Its pieces give n hyperplanes, but the rows that are on none of them lie on further affine subspaces."""
    x = make_pdgmm(4000, n=n, layers=layers, random_state=1 if n == 3 else 0).x
    with pytest.warns(RecoveryWarning, match=f"0 of {n}"):
        model = SparseUnmixing(noisy=False, random_state=0).fit(x)
    certificate = model.certificate_
    assert certificate.level == certificate.if_undecided_hold == Level.NONE
    assert certificate["density"].verdict == "fails"
    assert not model.established_.any()


@pytest.mark.parametrize("n_latents", [3, 4])
def test_too_few_latents_are_not_certified(n_latents):
    """Five lines, projected to fewer dimensions: as many planes hold several of them exactly."""
    _, x = affine(n=5, k=0, rho="1 var")
    with pytest.warns(RecoveryWarning, match=f"0 of {n_latents}"):
        model = SparseUnmixing(n_latents, noisy=False, random_state=0).fit(x)
    assert model.certificate_["density"].verdict == "fails"


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
@pytest.mark.parametrize(("k", "delta"), [(1, 0), (3, 0), (3, 2)])
def test_noise_is_tolerated(k, delta):
    sample, x = affine(rows=10_000, n=5, k=k, delta=delta, noise=0.05)
    ones = np.c_[x, np.ones(len(x))]
    best = mcc(sample.z, ones @ np.linalg.lstsq(ones, sample.z, rcond=None)[0])
    model = SparseUnmixing(random_state=0).fit(x)
    assert mcc(sample.z, model.transform(x)) > best - 0.01
    assert model.noise_ == pytest.approx(0.05, rel=0.05)
    np.testing.assert_allclose(model.inverse_transform(model.transform(x)), x, atol=1e-6)


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_pairs_inactive_together_are_found_under_noise(noise):
    """The pairs and the noise are found; but nothing is exactly inactive, and nothing is certified."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(6000, 6)) * (rng.random((6000, 3)) > 0.1).repeat(2, 1)
    seen = z / z.std(0) + noise * rng.normal(size=z.shape)
    x = seen @ rng.normal(size=(6, 6))
    with pytest.warns(RecoveryWarning, match="0 of 6"):
        model = SparseUnmixing(random_state=0).fit(x)
    best = np.abs(np.corrcoef(z.T, model.transform(x).T)[:6, 6:]).argmax(0)
    assert {tuple(best[list(block)] // 2) for block in model.blocks_} == {(0, 0), (1, 1), (2, 2)}
    assert model.noise_ == pytest.approx(noise / np.hypot(1, noise), rel=0.15)
    assert (model.n_found_, model.certificate_.level) == (0, Level.NONE)


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_only_inactive_latents_are_established():
    """Of six latents with 5 % noise, three are inactive in half of the rows; a Gaussian latent is among the others."""
    rng = np.random.default_rng(0)
    z = np.c_[rng.normal(size=(5000, 4)), rng.laplace(size=5000), rng.uniform(-1.7, 1.7, size=5000)]
    z[:, :3] *= rng.random((5000, 3)) < 0.5
    x = (z + 0.05 * rng.normal(size=z.shape)) @ rng.normal(size=(6, 6))
    model = SparseUnmixing(random_state=0).fit(x)
    best = np.abs(np.corrcoef(z.T, model.transform(x).T)[:6, 6:]).argmax(0)
    assert sorted(best[model.established_]) == [0, 1, 2]
    assert (model.n_found_, model.blocks_) == (0, ())


def features(n, d, rows=6000, noise=0.05, seed=0):
    """Rare exponential features in d dimensions."""
    rng = np.random.default_rng(seed)
    z = rng.exponential(size=(rows, n)) * (rng.random((rows, n)) < 0.07)
    x = z @ rng.normal(size=(n, d))
    return z, x + noise * x.std() * rng.normal(size=x.shape)


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_more_than_thirty_noisy_latents():
    z, x = features(40, 100)
    ones = np.c_[x, np.ones(len(x))]
    best = mcc(z, ones @ np.linalg.lstsq(ones, z, rcond=None)[0])
    model = SparseUnmixing(40, random_state=0).fit(x)
    assert mcc(z, model.transform(x)) > best - 0.002
    assert (model.n_found_, model.overcomplete_) == (0, 0)
    assert model.established_.mean() > 0.9
    assert mcc(z, model.posterior_mean(x)) > mcc(z, model.transform(x))


def test_more_latents_than_dimensions_are_counted():
    _, x = features(80, 40, rows=8000)
    with pytest.warns(RecoveryWarning, match="more latents than dimensions"):
        model = SparseUnmixing(random_state=0).fit(x)
    assert 40 < model.overcomplete_ <= 80
    assert (model.n_found_, model.certificate_.level) == (0, Level.NONE)


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_probabilities_of_activity_are_calibrated(noise):
    sample, x = affine(rows=10_000, n=4, k=1, noise=noise)
    active = sample.source.latents.masks.numpy()[sample.component] > 0
    model = SparseUnmixing(random_state=0).fit(x)
    z = model.transform(x)
    order = np.abs(np.corrcoef(sample.z.T, z.T)[:4, 4:]).argmax(1)
    p = model.active_probability(x)[:, order]
    bins = np.digitize(p, [0.2, 0.4, 0.6, 0.8])
    gaps = [abs(active[bins == b].mean() - p[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    assert sum(gaps) < 0.05
    assert r2(sample.z, model.posterior_mean(x)) > r2(sample.z, z)


def test_exact_latents_are_active_or_not():
    _, x = affine(n=4, delta=2)
    model = SparseUnmixing(random_state=0).fit(x)
    np.testing.assert_array_equal(model.active_probability(x), model.active(x))
    np.testing.assert_array_equal(model.posterior_mean(x), np.where(model.active(x), model.transform(x), 0))


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_time_limit_stops_the_search(noise):
    """A limit of the caller raises; its own budget keeps what is verified by then."""
    _, x = features(60, 60, noise=noise)
    for limit in (0.0, 0.1):
        started = time.monotonic()
        with pytest.raises(OutOfTimeError), time_limit(limit):
            SparseUnmixing(random_state=0).fit(x)
        assert time.monotonic() - started < 3
    with pytest.warns(RecoveryWarning, match="seconds=0.01"):
        model = SparseUnmixing(seconds=0.01, random_state=0).fit(x)
    assert model.n_found_ < 60
    assert np.isfinite(model.transform(x)).all()


def test_density_is_that_of_the_samples():
    """The held-out score of the model's own draws is near that of the data, far above that of a Gaussian."""
    _, x = affine(n=4, rho=50, k=0)
    model = SparseUnmixing(random_state=0).fit(x)
    drawn = model.sample(4000, random_state=0)
    assert model.score(drawn) == pytest.approx(model.score(x), abs=0.5)
    gaussian = np.random.default_rng(0).multivariate_normal(x.mean(0), np.cov(x.T), size=4000)
    assert model.score(gaussian) < model.score(x) - 2
