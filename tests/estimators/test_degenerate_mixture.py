import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from identifiable.data import make_gmm, make_pdgmm
from identifiable.distributions.mixture import Mixture
from identifiable.estimators.degenerate_mixture import DegenerateGaussianMixture
from identifiable.metrics import mcc
from identifiable.theory import Level


@parametrize_with_checks([DegenerateGaussianMixture(random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def line_and_plane():
    """A line and a plane in R^4, 300 and 500 rows."""
    rng = np.random.default_rng(3)
    line = rng.normal(size=(300, 1)) @ [[1.0, 1, 0, 2]] + [1, 0, 0, 0]
    plane = rng.normal(size=(500, 2)) @ [[1.0, 0, 1, 0], [0, 2, 1, 1]] - 1
    return np.vstack([line, plane]), np.repeat([0, 1], [300, 500])


@pytest.fixture(scope="module")
def fitted(line_and_plane):
    return DegenerateGaussianMixture(random_state=0).fit(line_and_plane[0])


def affine(z, seed):
    rng = np.random.default_rng(seed)
    return z @ rng.normal(size=(z.shape[1], z.shape[1])) + 5 * rng.normal(size=z.shape[1])


def assert_found(model, sample, rank):
    assert adjusted_rand_score(sample.component, model.labels_) >= 0.99
    assert model.n_components_ == len(np.unique(sample.component))
    assert (model.ranks_ == rank).all()


@pytest.mark.parametrize(
    ("options", "rank"),
    [({"n": 10}, 5), ({}, 3), ({"rho": "1 var"}, 1), ({"delta": 2}, 3), ({"theta": 30}, 3)],
    ids=str,
)
def test_latents_are_found(options, rank):
    sample = make_pdgmm(3000, random_state=1, **{"n": 6, "rho": 50} | options)
    assert_found(DegenerateGaussianMixture(random_state=1, n_restarts=2).fit(sample.z), sample, rank)


def test_affine_maps_do_not_change_the_labels():
    sample = make_pdgmm(3000, n=6, rho=50, random_state=0)
    model = DegenerateGaussianMixture(random_state=0, n_restarts=2)
    plain, mapped = clone(model).fit(sample.z), clone(model).fit(affine(sample.z, seed=0))
    assert_found(mapped, sample, 3)
    assert adjusted_rand_score(plain.labels_, mapped.labels_) == 1.0


@pytest.mark.parametrize(("share", "rows", "n", "seed"), [(0.01, 4000, 6, 0), (0.05, 3000, 8, 0)], ids=str)
def test_components_are_found_under_noise(share, rows, n, seed):
    """The floor is the noise, and the ranks are those without it. Five per cent exceed the first tolerances."""
    sample = make_pdgmm(rows, n=n, rho=50, random_state=seed)
    noise = share * sample.z.std()
    x = sample.z + noise * np.random.default_rng(seed).normal(size=sample.z.shape)
    model = DegenerateGaussianMixture(random_state=seed, n_restarts=2).fit(x)
    assert model.noise_floor_ == pytest.approx(noise, rel=0.06)
    assert model.n_components_ == len(np.unique(sample.component))
    assert (model.ranks_ == n // 2).all()
    assert adjusted_rand_score(sample.component, model.labels_) > (0.9 if share == 0.01 else 0.7)


def test_subspaces_in_general_position_are_found():
    """No common point, no common basis, ranks 1 to 3 in R^6."""
    rng = np.random.default_rng(0)
    ranks = [1, 2, 3, 1, 2, 3, 2]
    x = np.vstack([rng.normal(size=(200, r)) @ rng.normal(size=(r, 6)) + rng.normal(size=6) for r in ranks])
    component = np.repeat(np.arange(len(ranks)), 200)
    model = DegenerateGaussianMixture(random_state=0, n_restarts=2).fit(x)
    assert adjusted_rand_score(component, model.labels_) >= 0.99
    assert [model.ranks_[model.predict(x[i : i + 1])[0]] for i in range(100, 1400, 200)] == ranks


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("number", [4, None])
def test_full_rank_mixtures_are_fitted_as_well_as_scikit_learn_fits_them(seed, number):
    z = make_gmm(3000, n=3, components=4, factorial=False, random_state=seed).z
    train, held = z[:2000], z[2000:]
    best = GaussianMixture(4, n_init=10, tol=1e-4, random_state=0).fit(train)
    model = DegenerateGaussianMixture(number, random_state=0).fit(train)
    assert (model.ranks_ == 3).all()
    assert model.score(held) > best.score(held) - 0.02


def test_parameters_are_those_of_the_rows(line_and_plane, fitted):
    x, component = line_and_plane
    for c in (0, 1):
        rows, j = x[component == c], fitted.predict(x[component == c])[0]
        assert fitted.weights_[j] == pytest.approx(len(rows) / len(x))
        np.testing.assert_allclose(fitted.means_[j], rows.mean(0), atol=1e-10)
        np.testing.assert_allclose(fitted.covariances_[j], np.cov(rows.T, ddof=0), atol=1e-10)
    assert fitted.ranks_.tolist() == [2, 1]
    assert fitted.lower_bound_ == pytest.approx(fitted.score(x))
    assert fitted.converged_
    assert isinstance(fitted.mixture_, Mixture)
    np.testing.assert_array_equal(fitted.mixture_.means, fitted.means_)


def test_density_is_that_of_the_mixture_plus_the_floor(line_and_plane):
    """log sum_j w_j N(x; mu_j, S_j + s² I), against scipy."""
    x, _ = line_and_plane
    model = DegenerateGaussianMixture(2, noise_floor=0.05, random_state=0).fit(x)
    assert model.noise_floor_ == pytest.approx(0.05)
    new = x[::7] + 0.1 * np.random.default_rng(0).normal(size=x[::7].shape)
    parts = [
        w * multivariate_normal(m, s + 0.05**2 * np.eye(4)).pdf(new)
        for w, m, s in zip(model.weights_, model.means_, model.covariances_, strict=True)
    ]
    np.testing.assert_allclose(model.score_samples(new), np.log(sum(parts)), rtol=1e-8)
    np.testing.assert_allclose(model.predict_proba(new), np.transpose(parts) / np.sum(parts, 0)[:, None], atol=1e-8)
    assert model.score(new) == pytest.approx(model.score_samples(new).mean())
    numbers = 1 + 2 * 4 + (3 + 2 * 2) + (1 + 3) + 1  # weight, means, covariances of rank 2 and 1, floor
    assert model.bic(new) == pytest.approx(numbers * np.log(len(new)) - 2 * np.log(sum(parts)).sum())


def test_samples_have_the_parameters_and_lie_on_the_subspaces(fitted):
    x, component = fitted.sample(20_000, random_state=0)
    np.testing.assert_array_equal(fitted.predict(x), component)
    for j in range(2):
        rows = x[component == j]
        assert len(rows) / len(x) == pytest.approx(fitted.weights_[j], abs=0.02)
        np.testing.assert_allclose(rows.mean(0), fitted.means_[j], atol=0.1)
        np.testing.assert_allclose(np.cov(rows.T), fitted.covariances_[j], atol=0.2)
        assert np.linalg.matrix_rank(rows - rows.mean(0)) == fitted.ranks_[j]


def test_units_of_the_data_do_not_matter(line_and_plane, fitted):
    x, _ = line_and_plane
    scaled = DegenerateGaussianMixture(random_state=0).fit(1000 * x + 5)
    np.testing.assert_array_equal(scaled.labels_, fitted.labels_)
    assert scaled.noise_floor_ == pytest.approx(1000 * fitted.noise_floor_)
    assert scaled.score(1000 * x + 5) == pytest.approx(fitted.score(x) - 4 * np.log(1000), abs=1e-3)


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [None, 1, 12])
@pytest.mark.parametrize(
    ("x", "rank"),
    [
        (np.repeat(normal(100, 3), 3, axis=0), 3),
        (np.c_[normal(200, 3), np.ones(200)], 3),
        (np.c_[normal(200, 3), normal(200, 3)], 3),
        (np.ones((50, 3)), 0),
        (normal(200, 1) * [[1, 2, 3]], 1),
        (normal(200, 1) * [[1, 2, 3]] + 1e6, 1),
        ((normal(200, 1) * [[1, 2, 3]]).astype(np.float32), 1),
        (1e-12 * normal(200, 3), 3),
        (normal(20, 10), 10),
    ],
    ids=["copied rows", "constant column", "copied columns", "one point", "line", "far line", "float32", "tiny", "few"],
)
def test_degenerate_data_give_finite_fits(x, rank, number):
    model = DegenerateGaussianMixture(number, random_state=0).fit(x)
    for value in (model.weights_, model.means_, model.covariances_, model.score_samples(x), model.predict_proba(x)):
        assert np.isfinite(value).all()
    assert np.isfinite(model.sample(20, random_state=0)[0]).all()
    assert model.weights_.sum() == pytest.approx(1)
    if number != 12:
        assert model.ranks_.tolist() == [rank]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [None, 1, 2])
@pytest.mark.parametrize(("x", "rank"), [(normal(2, 3), 1), (normal(2, 1), 1), (np.ones((2, 3)), 0)], ids=str)
def test_two_rows_are_one_component(x, rank, number):
    """A component on one row would be chance: two rows are the ends of a line, or one point."""
    model = DegenerateGaussianMixture(number, random_state=0).fit(x)
    assert model.ranks_.tolist() == [rank]
    np.testing.assert_allclose(model.means_[0], x.mean(0), atol=1e-12)
    np.testing.assert_allclose(model.covariances_[0], np.cov(x.T, ddof=0).reshape(x.shape[1], -1), atol=1e-12)
    assert np.isfinite(model.score_samples(x)).all()


def test_points_are_components_of_rank_zero():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(3, 2))
    x = np.vstack([np.repeat(points, 40, axis=0), rng.normal(size=(200, 2))])
    model = DegenerateGaussianMixture(random_state=0).fit(x)
    assert sorted(model.ranks_) == [0, 0, 0, 2]
    np.testing.assert_allclose(sorted(model.means_[model.ranks_ == 0, 0]), sorted(points[:, 0]))


def test_the_floor_is_subtracted_from_the_variances():
    x = normal(200, 3)
    model = DegenerateGaussianMixture(1, noise_floor=0.2, random_state=0).fit(x)
    np.testing.assert_allclose(model.covariances_[0] + 0.04 * np.eye(3), np.cov(x.T, ddof=0), atol=1e-10)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("n_components", 0), ("max_components", 2.5), ("noise_floor", 0.0), ("n_restarts", 0), ("max_iter", "many"),
     ("tol", -1), ("verbose", -1)],
)  # fmt: skip
def test_bad_parameters_are_named(parameter, value):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter"):
        DegenerateGaussianMixture(**{parameter: value}).fit(normal(20, 2))


def test_bad_data_are_refused(fitted):
    with pytest.raises(ValueError, match="n_components = 30"):
        DegenerateGaussianMixture(30).fit(normal(20, 2))
    with pytest.raises(ValueError, match="n_samples"):
        fitted.sample(0)


def test_save_and_load_give_the_same_mixture(tmp_path):
    from identifiable import load, save

    z = make_pdgmm(1500, n=4, delta=1, random_state=0).z
    model = DegenerateGaussianMixture(random_state=0).fit(z)
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(z), model.predict(z))
    assert again.score(z) == model.score(z)
    assert str(again.certificate_) == str(model.certificate_)


def test_components_that_are_diagonal_in_some_basis_are_unmixed():
    """A mixture fit gives y = A z up to A; the variances of its components give A."""
    rng = np.random.default_rng(0)
    scales, A = rng.uniform(0.3, 1.5, size=(4, 3)), rng.normal(size=(3, 3))
    component = rng.integers(4, size=20_000)
    z = (rng.uniform(-4, 4, size=(4, 3)))[component] + scales[component] * rng.normal(size=(20_000, 3))
    found = DegenerateGaussianMixture(n_components=4, noise_floor=1e-3, random_state=0).fit(z @ A.T).unmixed_
    assert mcc(z, z @ A.T @ found.W.T) > 0.98
    assert mcc(z, z @ A.T) < 0.9
    assert found.blocks == ()


@pytest.mark.parametrize(("noise", "tested"), [(0.0, True), (0.02, False)])
def test_exchanges_are_tested_where_no_row_can_be_misread(noise, tested):
    """Two lines, one of them twice as frequent: rows without noise show that they cannot be exchanged."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(900, 2)) * np.eye(2)[rng.choice(2, size=900, p=[1 / 3, 2 / 3])]
    model = DegenerateGaussianMixture(random_state=0).fit(z + noise * rng.normal(size=z.shape))
    certificate = model.certificate_
    assert certificate["mixing"].verdict == "inconclusive"
    assert certificate["straight"].verdict == ("holds" if tested else "inconclusive")
    assert (certificate.level, certificate.if_undecided_hold) == (Level.NONE, Level.PS)
