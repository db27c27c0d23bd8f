"""Segment unmixing against linear mixtures of known latents: exact where the covariances are, honest elsewhere."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from identifiable import IndependentComponents, RecoveryWarning, SegmentUnmixing, load, save
from identifiable.algorithms.joint_diagonalisation import diagonalise
from identifiable.data import make_segments, make_tcl
from identifiable.metrics import mcc, r2


def exact_rows(scales, rows, rng):
    """Rows whose covariance within each group is exactly diag(scales²), and their groups."""
    z = []
    for s in scales:
        noise = rng.normal(size=(rows, len(s)))
        noise -= noise.mean(0)
        z.append(np.linalg.qr(noise)[0] * np.sqrt(rows) * s)
    return np.concatenate(z), np.repeat(np.arange(len(scales)), rows)


@pytest.fixture(scope="module")
def affine():
    """Five latents, ten segments with different means and scales, mixed by a matrix."""
    return make_segments(10_000, segments=10, layers=1, centred=False, random_state=0)


@pytest.mark.parametrize(("n", "groups"), [(2, 3), (5, 10), (20, 20), (100, 10)])
@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_rows_with_exact_covariances(n, groups):
    rng = np.random.default_rng(n)
    z, u = exact_rows(rng.uniform(0.5, 3, size=(groups, n)), 3 * n, rng)
    x = z @ rng.normal(size=(n, n)) + rng.normal(size=n)
    model = SegmentUnmixing(n_restarts=2, random_state=0, u_types="categorical").fit(x, u)
    assert mcc(z, model.transform(x)) > 0.9999


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("simulate", [make_segments, make_tcl])
def test_an_affine_mixture_is_undone(simulate, seed):
    s = simulate(20_000, layers=1, random_state=seed)
    model = SegmentUnmixing(random_state=seed).fit(s.x, s.u)
    assert mcc(s.z, model.transform(s.x)) > 0.99
    assert model.blocks_ == ()
    assert model.fit_status_ == "stable"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_nonlinear_mixture_is_undone_as_far_as_a_linear_map_can(seed):
    """The published distribution, three layers: nearly the MCC of regression on the truth, far above FastICA."""
    s = make_segments(40_000, segments=40, n=5, random_state=seed)
    found = mcc(s.z, SegmentUnmixing(random_state=seed).fit(s.x, s.u).transform(s.x))
    ones = np.c_[s.x, np.ones(len(s.x))]
    best = mcc(s.z, ones @ np.linalg.lstsq(ones, s.z, rcond=None)[0])
    assert found > max(0.75, best - 0.03)
    ica = IndependentComponents(5, n_restarts=1, random_state=seed).fit(s.x)
    assert found > mcc(s.z, ica.transform(s.x)) + 0.1


def test_other_coordinates_give_the_same_latents(affine):
    rng = np.random.default_rng(1)
    moved = affine.x @ rng.normal(size=(5, 5)) * [1e-3, 1, 1, 1, 1e3] + 7
    a = SegmentUnmixing(random_state=0).fit(affine.x, affine.u)
    b = SegmentUnmixing(random_state=5).fit(moved, affine.u)
    assert mcc(a.transform(affine.x), b.transform(moved)) > 1 - 1e-9
    np.testing.assert_allclose(b.scales_, a.scales_, rtol=1e-6)


def test_the_kept_map_is_a_stationary_point_on_all_rows(affine):
    """The gradient vanishes for the covariances of all rows, with their pseudo-rows; restarts do not change the map."""
    some = np.r_[np.flatnonzero(affine.u > 0), np.flatnonzero(affine.u == 0)[:20]]  # one value has few rows
    x, u = affine.x[some], affine.u[some]
    model = SegmentUnmixing(random_state=0).fit(x, u)
    z = model.transform(x)
    np.testing.assert_allclose([z.mean(0), z.std(0)], [np.zeros(5), np.ones(5)], atol=1e-9)
    freedom = np.bincount(u) - 1.0
    C = np.stack([np.cov(z[u == g].T) for g in range(10)])
    pooled = np.einsum("g,gij->ij", freedom, C) / freedom.sum()
    C = (freedom[:, None, None] * C + 2 * pooled) / (freedom + 2)[:, None, None]
    assert diagonalise(C, (freedom + 2) / (freedom + 2).sum(), np.eye(5), max_steps=0).gradient < 1e-8
    single = SegmentUnmixing(n_restarts=1, random_state=3).fit(x, u)
    assert mcc(z, single.transform(x)) > 1 - 1e-9


def test_order_and_sign_do_not_depend_on_the_seed(affine):
    a, b = (SegmentUnmixing(random_state=seed).fit(affine.x, affine.u) for seed in (0, 1))
    np.testing.assert_allclose(a.components_, b.components_, atol=1e-6)
    assert (np.diff(np.log(a.scales_).var(0)) < 0).all()
    weights = a.components_ * affine.x.std(0)
    assert (weights.max(1) > -weights.min(1)).all()


@pytest.mark.parametrize("d", [5, 9])
def test_density_is_that_of_a_gaussian_per_value(d):
    """log p(x | u) by scipy from A diag(s²) A' and isotropic noise in standardised columns; and its mixture over u."""
    s = make_segments(5000, segments=4, layers=1, d=d, noise=0.1, centred=False, random_state=0)
    x = s.x * np.arange(1, d + 1)
    model = SegmentUnmixing(5, n_restarts=1, random_state=0).fit(x, s.u)
    scale = x.std(0)
    axes = np.linalg.qr(model.mixing_ / scale[:, None])[0]
    noise = np.linalg.eigvalsh(np.corrcoef(x.T))[: d - 5].mean() if d > 5 else 0.0
    outside = noise * np.outer(scale, scale) * (np.eye(d) - axes @ axes.T)
    gaussians = [
        multivariate_normal(model.mean_ + model.mixing_ @ m, (model.mixing_ * t**2) @ model.mixing_.T + outside)
        for m, t in zip(model.means_, model.scales_, strict=True)
    ]
    each = np.stack([gaussian.logpdf(x[:50]) for gaussian in gaussians], axis=1)
    np.testing.assert_allclose(model.score_samples(x[:50], s.u[:50]), each[np.arange(50), s.u[:50]])
    mixture = logsumexp(each + np.log(model.auxiliary_.weights), axis=1)
    np.testing.assert_allclose(model.score_samples(x[:50]), mixture)
    assert model.score(x[:50], s.u[:50]) == pytest.approx(each[np.arange(50), s.u[:50]].mean())
    assert model.score(x[:50]) == pytest.approx(mixture.mean())


def test_draws_have_the_moments_of_their_group(affine):
    model = SegmentUnmixing(random_state=0).fit(affine.x, affine.u)
    drawn, rows = model.sample(200_000, u=3, random_state=0), affine.x[affine.u == 3]
    spread = rows.std(0)
    np.testing.assert_allclose(drawn.mean(0) / spread, rows.mean(0) / spread, atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T) / np.outer(spread, spread), np.corrcoef(rows.T), atol=0.1)
    mixed = model.sample(200_000, random_state=0)
    np.testing.assert_allclose(np.cov(mixed.T), np.cov(affine.x.T), atol=0.03 * affine.x.var(0).max())
    each, same = model.sample(3, u=[1, 1, 2], random_state=0), model.sample(3, u=1, random_state=0)
    np.testing.assert_array_equal(each[:2], same[:2])
    assert not np.array_equal(each[2], same[2])


@pytest.mark.parametrize("seed", range(3))
def test_fewer_latents_than_columns(seed):
    s = make_segments(10_000, n=3, d=8, layers=1, noise=0.05, random_state=seed)
    model = SegmentUnmixing(3, random_state=seed).fit(s.x * 10.0 ** np.arange(8), s.u)
    z = model.transform(s.x * 10.0 ** np.arange(8))
    assert z.shape == (10_000, 3)
    assert mcc(s.z, z) > 0.97
    assert mcc(s.z, z) > r2(z, s.z) ** 0.5 - 0.01
    np.testing.assert_allclose(model.components_ @ model.mixing_, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(model.transform(model.inverse_transform(z)), z, atol=1e-9)
    exact = make_segments(2000, n=3, d=8, layers=1, random_state=seed)
    assert SegmentUnmixing(random_state=seed).fit(exact.x, exact.u).transform(exact.x).shape == (2000, 3)


@pytest.mark.parametrize(("values", "rows"), [(200, 10), (400, 3), (800, 1)])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_few_rows_per_value(values, rows, seed):
    """Down to one; the density generalises, better than without u."""
    s = make_segments(values * rows, segments=values, layers=1, random_state=seed)
    model = SegmentUnmixing(random_state=seed, u_types="categorical").fit(s.x, s.u)
    assert mcc(s.z, model.transform(s.x)) > 0.98
    fresh = s.source.sample(values * rows, random_state=seed + 100)
    assert model.score(fresh.x, fresh.u) > model.score(fresh.x)
    assert (model.means_ == 0).all()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_means_that_change_are_noticed(seed):
    s = make_segments(3000, segments=30, layers=1, centred=False, random_state=seed)
    found = {m: SegmentUnmixing(random_state=seed, means=m).fit(s.x, s.u) for m in (True, "auto")}
    np.testing.assert_array_equal(found["auto"].transform(s.x), found[True].transform(s.x))
    assert mcc(s.z, found["auto"].transform(s.x)) > 0.99
    wrong = SegmentUnmixing(random_state=seed, means=False).fit(s.x, s.u)
    assert mcc(s.z, wrong.transform(s.x)) < 0.95


@pytest.mark.filterwarnings("ignore:SegmentUnmixing. 4 restarts")
def test_means_alone_separate_nothing():
    """Equal variances for every u, means far apart: the rows say no more about the map than without u."""
    rng = np.random.default_rng(0)
    u = np.arange(4000) % 20
    x = (rng.normal(size=(4000, 3)) + rng.uniform(-5, 5, size=(20, 3))[u]) @ rng.normal(size=(3, 3))
    with pytest.warns(RecoveryWarning, match="all latents"):
        model = SegmentUnmixing(random_state=0).fit(x, u)
    assert model.blocks_ == ((0, 1, 2),)


@pytest.mark.parametrize("seed", range(3))
def test_two_latents_with_proportional_variances_are_a_block(seed):
    rng = np.random.default_rng(seed)
    scales = rng.uniform(0.5, 3, size=(20, 5))
    scales[:, 3] = 0.4 * scales[:, 1]
    u = np.arange(10_000) % 20
    z = rng.normal(size=(10_000, 5)) * scales[u]
    x = z @ rng.normal(size=(5, 5))
    with pytest.warns(RecoveryWarning, match=r"latents \(\d, \d\)"):
        model = SegmentUnmixing(random_state=seed).fit(x, u)
    (block,) = model.blocks_
    found = model.transform(x)
    assert r2(found[:, list(block)], z[:, [1, 3]]) > 0.99
    alone = [i for i in range(5) if i not in block]
    assert mcc(z[:, [0, 2, 4]], found[:, alone]) > 0.99
    assert model.resolved_[block] < 4
    others = model.resolved_[np.ix_(alone, alone)][np.triu_indices(3, 1)]
    assert (others > 20).all()


@pytest.mark.parametrize("tails", ["normal", "laplace"])
@pytest.mark.parametrize(("n", "groups"), [(2, 2), (5, 40)])
def test_a_u_that_changes_nothing_leaves_one_block(n, groups, tails):
    for seed in range(5):
        x = getattr(np.random.default_rng(seed), tails)(size=(4000, n))
        with pytest.warns(RecoveryWarning, match="all latents"):
            model = SegmentUnmixing(n_restarts=1, random_state=seed).fit(x, np.arange(4000) % groups)
        assert model.blocks_ == (tuple(range(n)),)


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_restarts_on_halves_include_the_error_of_estimation():
    """Gaussian rows with nothing to find: each half finds something else, though every descent ends at its optimum."""
    x = np.random.default_rng(0).normal(size=(2000, 5))
    model = SegmentUnmixing(random_state=0).fit(x, np.arange(2000) % 10)
    assert model.fit_status_ == "unstable"
    assert model.stability_.pairwise.shape == (4, 4)


@pytest.mark.parametrize("seed", range(2))
def test_time_as_u(seed):
    """Variances that change smoothly with time need no segments to be given."""
    rng = np.random.default_rng(seed)
    t = np.arange(8000)
    z = rng.normal(size=(8000, 4)) * np.exp(
        np.sin(2 * np.pi * (t[:, None] / 8000 * [1, 2, 3, 4] + rng.uniform(size=4)))
    )
    x = z @ rng.normal(size=(4, 4))
    model = SegmentUnmixing(random_state=0).fit(x, t)
    assert model.auxiliary_.n_groups == 40
    assert mcc(z, model.transform(x)) > 0.99
    assert model.auxiliary_.labels[0] == "u in [0, 199]"
    assert mcc(z, SegmentUnmixing(random_state=0, n_groups=12).fit(x, t / 1000).transform(x)) > 0.99


@pytest.mark.parametrize(
    ("settings", "u", "words"),
    [
        ({}, None, "y"),
        ({}, np.arange(7), "u has 7"),
        ({"n_groups": 1}, "own", "'n_groups' parameter"),
        ({"means": "maybe"}, "own", "'means' parameter"),
        ({"n_latents": 4}, "own", "n_latents=4"),
        ({"means": True, "u_types": "categorical"}, np.arange(1000), "degrees of freedom"),
    ],
)
def test_bad_input_is_refused(settings, u, words):
    s = make_segments(1000, n=3, segments=4, layers=1, random_state=0)
    with pytest.raises(ValueError, match=words):
        SegmentUnmixing(**settings).fit(s.x, s.u if isinstance(u, str) else u)


def test_a_saved_model_knows_its_groups(affine, tmp_path):
    u = pd.DataFrame({"cell": np.array(["t", "b"])[affine.u % 2], "day": affine.u // 2})
    model = SegmentUnmixing(random_state=0).fit(affine.x, u)
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.score_samples(affine.x, u), model.score_samples(affine.x, u))
    np.testing.assert_array_equal(
        again.sample(4, u=("b", 2), random_state=0), model.sample(4, u=("b", 2), random_state=0)
    )
    assert again.blocks_ == model.blocks_
    assert again.auxiliary_.labels == model.auxiliary_.labels
