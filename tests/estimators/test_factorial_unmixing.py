"""Factorial unmixing against mixtures of known latents: exact from their moments, honest from rows."""

import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from identifiable import (
    DataError,
    FactorialUnmixing,
    IndependentComponents,
    Level,
    Mixture,
    RecoveryWarning,
    diagonal_basis,
    load,
    save,
)
from identifiable.algorithms.factorial import FactorialMixture, covariances_of, em_mixture
from identifiable.data import make_gmm
from identifiable.metrics import mcc, r2


def law(n, components, rng, spread=(0.3, 1.5)):
    """A factorial mixture with random means, deviations and weights."""
    scales = rng.uniform(*spread, size=(components, n))
    return Mixture(rng.dirichlet(np.full(components, 5.0)), rng.uniform(-3, 3, size=(components, n)), scales**2)


def rows_of(mixture, rows, rng):
    component = rng.choice(len(mixture.weights), size=rows, p=mixture.weights)
    roots = np.linalg.cholesky(mixture.covariances)
    return mixture.means[component] + np.einsum("nab,nb->na", roots[component], rng.normal(size=(rows, roots.shape[1])))


def purity(gain):
    """How much of each row of W A is one entry: 1 for a permutation and scaling."""
    return (np.abs(gain).max(1) / np.linalg.norm(gain, axis=1)).min()


# -- from the moments themselves ----------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "components"), [(2, 2), (2, 10), (5, 2), (5, 10), (10, 10), (20, 3), (40, 10)])
def test_a_mixture_is_unmixed_exactly(n, components, seed):
    rng = np.random.default_rng(seed)
    z, A = law(n, components, rng), rng.normal(size=(n, n))
    found = diagonal_basis(z.pushforward(A, rng.normal(size=n)))
    assert purity(found.W @ A) > 1 - 1e-6
    assert found.blocks == ()
    assert found.correlation < 1e-4
    moved = z.pushforward(found.W @ A, np.zeros(n))
    spread = moved.means - moved.weights @ moved.means
    total = np.einsum("j,jab->ab", moved.weights, moved.covariances) + (moved.weights * spread.T) @ spread
    np.testing.assert_allclose(np.diag(total), 1)


def test_two_components_are_the_closed_form_of_the_paper():
    """Theorem E.1: the singular vectors of V_1^-1 V_2."""
    rng = np.random.default_rng(0)
    z, A = law(4, 2, rng), rng.normal(size=(4, 4))
    y = z.pushforward(A, np.zeros(4))
    V = np.linalg.cholesky(y.covariances)
    R = np.linalg.svd(np.linalg.solve(V[0], V[1]))[0]
    by_hand = np.linalg.inv(V[0] @ R)
    assert purity(by_hand @ A) > 1 - 1e-8
    assert purity(diagonal_basis(y).W @ np.linalg.inv(by_hand)) > 1 - 1e-6


def test_every_component_counts():
    """No pair tells all latents apart, all together do: the sharper condition."""
    scales = np.array([[1, 1, 1], [2, 1, 1], [1, 3, 1], [1, 1, 1.5]])
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 3))
    z = Mixture(np.full(4, 0.25), rng.normal(size=(4, 3)), scales**2)
    found = diagonal_basis(z.pushforward(A, np.zeros(3)))
    assert purity(found.W @ A) > 1 - 1e-6
    assert found.blocks == ()


@pytest.mark.parametrize("rows", [None, 20_000])
def test_ties_between_ratios_are_blocks(rows):
    """Latents 1 and 3 have proportional variances: only their span is found, the others free of it."""
    rng = np.random.default_rng(1)
    scales = rng.uniform(0.3, 1.5, size=(5, 4))
    scales[:, 3] = 2 * scales[:, 1]
    A = rng.normal(size=(4, 4))
    z = Mixture(np.full(5, 0.2), rng.normal(size=(5, 4)), scales**2)
    found = diagonal_basis(z.pushforward(A, np.zeros(4)), rows=rows)
    (block,) = found.blocks
    gain = found.W @ A
    assert len(block) == 2
    np.testing.assert_allclose(gain[list(block)][:, [0, 2]], 0, atol=1e-5)
    alone = [i for i in range(4) if i not in block]
    np.testing.assert_allclose(gain[alone][:, [1, 3]], 0, atol=1e-5)
    assert purity(gain[alone]) > 1 - 1e-6


def test_noise_is_taken_off():
    rng = np.random.default_rng(2)
    z, A = law(4, 6, rng), rng.normal(size=(4, 4))
    noise = np.cov(rng.normal(size=(4, 20)))
    y = z.pushforward(A, np.zeros(4))
    noisy = Mixture(y.weights, y.means, y.covariances + noise)
    assert purity(diagonal_basis(noisy, noise=noise).W @ A) > 1 - 1e-6
    assert purity(diagonal_basis(noisy).W @ A) < 0.99


def test_a_light_component_counts_little():
    """One component that is dependent, with a weight of 0.1 %, hardly changes the map."""
    rng = np.random.default_rng(3)
    z, A = law(3, 6, rng), rng.normal(size=(3, 3))
    odd = np.cov(rng.normal(size=(3, 5)))
    weights = np.r_[0.999 * z.weights, 0.001]
    mixed = Mixture(weights, np.r_[z.means, [[0, 0, 0]]], np.concatenate([z.covariances, odd[None]]))
    assert purity(diagonal_basis(mixed.pushforward(A, np.zeros(3))).W @ A) > 0.9995


def test_singular_components_are_allowed():
    scales = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0], [1.0, 2.0, 0.0]])
    rng = np.random.default_rng(4)
    A = rng.normal(size=(3, 3))
    z = Mixture(np.full(3, 1 / 3), rng.normal(size=(3, 3)), scales**2)
    assert purity(diagonal_basis(z.pushforward(A, np.zeros(3))).W @ A) > 1 - 1e-4


@pytest.mark.parametrize(
    ("mixture", "options", "words"),
    [
        (Mixture([1.0], [[0, 0]], [[1, 0]]), {}, "vary in all 2 directions"),
        (Mixture([1.0], [[0, 0]], [[1, 1]]), {"noise": np.eye(3)}, r"shape \(2, 2\), got shape \(3, 3\)"),
        (Mixture([1.0], [[0, 0]], [[1, 1]]), {"rows": 0}, "rows must be"),
    ],
)
def test_what_cannot_be_unmixed_is_refused(mixture, options, words):
    with pytest.raises(DataError, match=words):
        diagonal_basis(mixture, **options)


# -- from rows ----------------------------------------------------------------------


def test_em_never_loses_likelihood():
    rng = np.random.default_rng(5)
    y = rows_of(law(3, 4, rng), 2000, rng) @ rng.normal(size=(3, 3))
    model = FactorialMixture.of(em_mixture(y, 4, 0, max_iter=2), np.eye(3))
    scores = [model.improved(y, max_iter=k, tol=1e-12).score for k in range(1, 25)]
    assert np.diff(scores).min() > -2e-3  # the pseudo-rows are a prior
    assert scores[-1] > scores[0] + 0.05


@pytest.fixture(scope="module")
def affine():
    sample = make_gmm(20_000, n=5, components=10, layers=1, random_state=0)
    return sample, sample.source.sample(5000, random_state=1)


@pytest.fixture(scope="module")
def fitted(affine):
    return FactorialUnmixing(n_restarts=2, random_state=0).fit(affine[0].x)


def test_latents_are_recovered_from_rows(affine, fitted):
    _, new = affine
    assert mcc(new.z, fitted.transform(new.x)) > 0.99
    assert mcc(new.z, IndependentComponents(random_state=0).fit(new.x).transform(new.x)) < 0.95
    assert len(fitted.mixture_.weights) == 10
    assert fitted.blocks_ == ()
    assert fitted.fit_status_ == "stable"


def test_the_certificate_is_that_of_the_theorem(fitted):
    certificate = fitted.certificate_
    assert certificate["P2 ratios"].verdict == "holds"
    assert certificate.if_undecided_hold == Level.PS
    assert certificate["agreement"].verdict == "holds"


def test_density_is_that_of_the_mixture_of_x(affine, fitted):
    _, new = affine
    law = fitted.mixture_.pushforward(fitted.mixing_, fitted.mean_)
    densities = [
        w * multivariate_normal(m, c).pdf(new.x[:50])
        for w, m, c in zip(law.weights, law.means, law.covariances, strict=True)
    ]
    np.testing.assert_allclose(fitted.score_samples(new.x[:50]), np.log(np.sum(densities, axis=0)), rtol=1e-6)
    share = np.array(densities).T / np.sum(densities, axis=0)[:, None]
    np.testing.assert_allclose(fitted.predict_proba(new.x[:50]), share, atol=1e-8)
    np.testing.assert_array_equal(fitted.predict(new.x[:50]), share.argmax(1))


def test_draws_have_the_moments_of_the_rows(affine, fitted):
    sample, _ = affine
    x = fitted.sample(40_000, random_state=0)
    np.testing.assert_allclose(x.mean(0), sample.x.mean(0), atol=0.05)
    np.testing.assert_allclose(np.cov(x.T), np.cov(sample.x.T), atol=0.1)


def test_a_file_gives_the_same_model(fitted, affine, tmp_path):
    save(fitted, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    x = affine[1].x[:100]
    np.testing.assert_array_equal(again.transform(x), fitted.transform(x))
    np.testing.assert_allclose(again.score_samples(x), fitted.score_samples(x), rtol=1e-12)
    assert str(again.certificate_) == str(fitted.certificate_)


def test_more_columns_and_noise():
    """Three latents in eight noisy columns: the noise is seen outside their subspace, and allowed for inside."""
    rng = np.random.default_rng(6)
    z = law(3, 5, rng)
    rows = rows_of(z, 20_000, rng)
    x = rows @ rng.normal(size=(3, 8)) + 0.2 * rng.normal(size=(20_000, 8))
    model = FactorialUnmixing(3, n_components=5, n_restarts=1, random_state=0).fit(x)
    assert model.noise_.trace() > 0
    assert r2(rows, model.transform(x)) > 0.9
    assert mcc(rows, model.transform(x)) > 0.98
    assert np.isfinite(model.score(x))
    np.testing.assert_allclose(model.transform(model.inverse_transform(rows[:5])), rows[:5], atol=1e-8)


def test_one_gaussian_tells_nothing():
    x = np.random.default_rng(7).normal(size=(2000, 3))
    with pytest.warns(RecoveryWarning, match="all latents"):
        model = FactorialUnmixing(n_restarts=1, random_state=0).fit(x)
    assert len(model.mixture_.weights) == 1
    assert model.certificate_.level <= Level.AT


def test_dependent_components_are_not_called_independent():
    sample = make_gmm(20_000, n=3, components=5, factorial=False, layers=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        model = FactorialUnmixing(n_components=5, n_restarts=2, random_state=0).fit(sample.x)
    certificate = model.certificate_
    assert certificate["P2 factorial"].verdict == "fails"
    assert certificate.if_undecided_hold <= Level.AT


def test_the_number_of_components_is_that_of_the_diagonal_law():
    """The moments of an M-step that no basis is asked of, and those of the basis, agree where the law is factorial."""
    rng = np.random.default_rng(8)
    z = law(3, 4, rng)
    y = rows_of(z, 20_000, rng)
    start = FactorialMixture.of(em_mixture(y, 2, 0), np.eye(3))
    found = start.resized(y, most=10, max_iter=50, tol=1e-6)
    assert len(found.weights) == 4
    assert found.bic(y) < start.bic(y)
    free = covariances_of(y, found).pushforward(found.W, np.zeros(3)).covariances
    correlations = [c / np.sqrt(np.outer(np.diag(c), np.diag(c))) - np.eye(3) for c in free]
    assert np.abs(correlations).max() < 0.1
    many = FactorialMixture.of(em_mixture(y, 7, 0), np.eye(3)).resized(y, most=10, max_iter=50, tol=1e-6)
    assert len(many.weights) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_components": 0}, "'n_components' parameter of FactorialUnmixing must be None or an integer >= 1"),
        ({"noise": -1.0}, "'noise' parameter"),
        ({"tol": 0}, "'tol' parameter"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"n_components": 1000}, "at least as many rows as components"),
        ({"n_latents": 4}, "n_latents=4, rank=3"),
    ],
)
def test_bad_parameters(options, words):
    x = np.random.default_rng(0).normal(size=(200, 3))
    with pytest.raises(ValueError, match=words):
        FactorialUnmixing(**options).fit(x)
