"""Laws of the metrics, against hand values, brute force, numerical integration, scikit-learn and causal-learn."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard
from scipy.stats import multivariate_normal, spearmanr
from sklearn.linear_model import LinearRegression
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from identifiable import metrics
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.metrics import (
    agreement,
    align_mixtures,
    ari,
    block_r2,
    clustering_accuracy,
    correlation_matrix,
    dag_to_cpdag,
    dist_aff_l2,
    l2_distance,
    match,
    mcc,
    nmi,
    r2,
    shd,
    strong_mcc,
    weak_mcc,
)

SEEDS = range(5)
seeds = st.integers(0, 2**32 - 1)

# Two columns of mean 0, unit variance and correlation 0, so that correlations can be read off.
CROSS = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


def correlated_pair(seed, rows=60, n=4, n_hat=4):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, n))
    return z, z @ rng.normal(size=(n, n_hat)) + rng.normal(size=(rows, n_hat))


# --- correlation and matching -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_correlations_agree_with_numpy_and_scipy(seed):
    a, b = correlated_pair(seed, n=3, n_hat=4)
    a = a.round(0)  # ties, which Spearman must average
    assert correlation_matrix(a, b) == pytest.approx(np.corrcoef(a.T, b.T)[:3, 3:], abs=1e-12)
    expected = spearmanr(a, b).statistic[:3, 3:]
    assert correlation_matrix(a, b, "spearman") == pytest.approx(expected, abs=1e-12)


def test_mcc_by_hand():
    rotated = CROSS @ np.array([[0.6, 0.8], [0.8, -0.6]])
    found = match(CROSS, rotated)
    assert found.permutation.tolist() == [1, 0]
    assert found.correlations == pytest.approx([0.8, 0.8])
    assert found.score == pytest.approx(0.8)
    assert mcc(CROSS, rotated @ np.diag([1, -1])) == pytest.approx(0.8)
    assert match(CROSS, -rotated).correlations == pytest.approx([-0.8, -0.8])


def test_the_best_assignment_beats_the_greedy_one():
    e = hadamard(8)[:, 1:5]  # orthogonal columns of mean 0
    z_hat = np.column_stack(
        [0.75 * e[:, 0] + 0.6 * e[:, 1] + math.sqrt(0.0775) * e[:, 2], 0.65 * e[:, 0] + math.sqrt(0.5775) * e[:, 3]]
    )
    assert correlation_matrix(e[:, :2], z_hat) == pytest.approx(np.array([[0.75, 0.65], [0.6, 0]]), abs=1e-12)
    found = match(e[:, :2], z_hat)  # greedy would take .75 and 0
    assert found.permutation.tolist() == [1, 0]
    assert found.score == pytest.approx((0.65 + 0.6) / 2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("n", "n_hat"), [(4, 4), (3, 5), (5, 3)])
@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_mcc_is_the_maximum_over_all_matchings(seed, n, n_hat, method):
    z, z_hat = correlated_pair(seed, n=n, n_hat=n_hat)
    absolute = np.abs(correlation_matrix(z, z_hat, method))
    if n <= n_hat:
        sums = [absolute[range(n), chosen].sum() for chosen in itertools.permutations(range(n_hat), n)]
    else:
        sums = [absolute[chosen, range(n_hat)].sum() for chosen in itertools.permutations(range(n), n_hat)]
    found = match(z, z_hat, method)
    assert mcc(z, z_hat, method) == found.score == pytest.approx(max(sums) / n)
    matched = found.permutation >= 0
    assert matched.sum() == len(set(found.permutation[matched])) == min(n, n_hat)
    signed = correlation_matrix(z, z_hat, method)[matched, found.permutation[matched]]
    assert found.correlations[matched] == pytest.approx(signed)
    assert not found.correlations[~matched].any()


@given(seed=seeds, exponent=st.integers(-150, 150))
@settings(max_examples=30, deadline=None)
def test_mcc_ignores_order_sign_scale_and_shift(seed, exponent):
    z, z_hat = correlated_pair(seed)
    rng = np.random.default_rng(seed)
    scale = rng.choice([-1, 1], size=4) * rng.uniform(0.5, 2, size=4) * 10.0**exponent
    moved = (z_hat * scale + scale * rng.normal(size=4))[:, rng.permutation(4)]
    for method in ("pearson", "spearman"):
        assert mcc(z, moved, method) == pytest.approx(mcc(z, z_hat, method), abs=1e-9)
        assert mcc(moved, z, method) == pytest.approx(mcc(z, z_hat, method), abs=1e-9)


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_spearman_ignores_monotone_distortion_and_pearson_does_not(seed):
    z, _ = correlated_pair(seed)
    assert mcc(z, np.exp(-2 * z), "spearman") == pytest.approx(1)
    assert mcc(z, np.exp(-2 * z)) < 0.99


def test_an_exact_match_scores_one_and_a_dropped_latent_costs_its_share():
    z = np.random.default_rng(0).normal(size=(100, 4))
    assert mcc(z, z) == pytest.approx(1)
    found = match(z, z[:, [2, 0]])
    assert found.score == pytest.approx(0.5, abs=1e-12)
    assert found.permutation.tolist() == [1, -1, 0, -1]
    noise = np.random.default_rng(1).normal(size=(100, 3))
    assert mcc(z, np.hstack([noise, z])) == pytest.approx(1)


@pytest.mark.parametrize("constant", [0.0, 0.1, -1e300, 1e-300])
def test_a_constant_column_counts_zero_without_warning(constant):
    z = np.random.default_rng(0).normal(size=(101, 2))
    dead = np.column_stack([z[:, 0], np.full(101, constant)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in ("pearson", "spearman"):
            assert not correlation_matrix(z, dead, method)[:, 1].any()
            assert mcc(dead, dead, method) == pytest.approx(0.5)
        assert r2(dead, z) == pytest.approx(0.5)
        assert r2(dead, z, held_out=True) == pytest.approx(0.5)
        assert r2(z[:, :1], dead) == pytest.approx(1)
        assert weak_mcc(dead, dead) == pytest.approx(0.5)
        assert weak_mcc(np.full((101, 2), constant), z) == 0
        assert weak_mcc(z, np.full((101, 2), constant), "least_squares") == 0


def test_a_large_mean_does_not_drown_a_small_spread():
    z = np.random.default_rng(0).normal(size=(1000, 2))
    assert mcc(z, 1e-3 * z + 1e8) == pytest.approx(1, abs=1e-5)
    assert r2(1e-3 * z + 1e8, z) == pytest.approx(1, abs=1e-5)


def test_noise_scores_at_chance():
    rows = 400
    chance = math.sqrt(2 / (math.pi * rows))
    rng = np.random.default_rng(0)
    single = np.mean([mcc(*rng.normal(size=(2, rows, 1))) for _ in range(400)])
    assert single == pytest.approx(chance, rel=0.12)  # one column: nothing to choose from
    several = np.mean([mcc(*rng.normal(size=(2, rows, 5))) for _ in range(50)])
    assert 1.2 * chance < several < 2.5 * chance  # five columns: the matching picks


@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_agreement_is_the_table_of_pairwise_mcc(method):
    runs = np.random.default_rng(0).normal(size=(4, 50, 3))
    runs[3] = runs[0][:, [1, 2, 0]] * [-1, 2, 5]
    found = agreement(runs, method)
    expected = [[mcc(one, other, method) for other in runs] for one in runs]
    assert found == pytest.approx(np.array(expected))
    assert found == pytest.approx(found.T)
    assert found[0, 3] == pytest.approx(1)
    assert found.diagonal() == pytest.approx(np.ones(4))
    wide = agreement([runs[0], runs[0][:, :1]])
    assert wide == pytest.approx(np.array([[1, 1 / 3], [1, 1]]))


# --- alignment --------------------------------------------------------------------------------------------------


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_a_linear_map_lowers_the_strong_mcc_and_not_the_weak_one(seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(300, 3))
    mixed = z @ (np.linalg.qr(rng.normal(size=(3, 3)))[0] * [1, 10, 100]) + 7
    assert strong_mcc(z, mixed) == mcc(z, mixed)
    for align in ("cca", "least_squares"):
        assert weak_mcc(z, mixed, align) == pytest.approx(1)


@pytest.mark.parametrize("seed", SEEDS)
def test_weak_mcc_is_unchanged_by_linear_maps(seed):
    a, b = correlated_pair(seed, rows=200, n=3, n_hat=4)
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(3, 3)), rng.normal(size=(4, 4))
    for k in (1, 2, 3):
        moved = weak_mcc(a @ one + 1, b @ other - 1, n_components=k)
        assert moved == pytest.approx(weak_mcc(a, b, n_components=k), abs=1e-8)
    assert weak_mcc(a, b @ other, "least_squares") == pytest.approx(weak_mcc(a, b, "least_squares"), abs=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_canonical_correlations_solve_the_textbook_eigenproblem(seed):
    a, b = correlated_pair(seed, rows=100, n=3, n_hat=4)
    full = np.cov(a.T, b.T)
    aa, ab, bb = full[:3, :3], full[:3, 3:], full[3:, 3:]
    expected = np.sort(np.linalg.eigvals(np.linalg.solve(aa, ab) @ np.linalg.solve(bb, ab.T)).real)[::-1]
    to_a, to_b = metrics.latents.canonical_directions(a, b, 3)
    found = np.corrcoef((a @ to_a).T, (b @ to_b).T)[:3, 3:]
    assert found == pytest.approx(np.diag(np.sqrt(expected)), abs=1e-8)


def test_collinear_columns_add_nothing_to_the_weak_mcc():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 2))
    flat = z @ rng.normal(size=(2, 4))  # four columns of rank two
    assert weak_mcc(z, flat) == pytest.approx(1)
    other = z @ rng.normal(size=(2, 4))
    assert weak_mcc(flat, other, n_components=2) == pytest.approx(1)
    assert weak_mcc(flat, other) == pytest.approx(0.5)  # two of the four directions do not exist


@pytest.mark.parametrize("align", ["cca", "least_squares"])
def test_the_weak_mcc_is_out_of_sample(align):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 60, 25))
    to_a, to_b = metrics.latents.canonical_directions(a[:30], b[:30], 25)
    assert mcc(a[:30] @ to_a, b[:30] @ to_b) > 0.85  # noise, but 25 columns explain 30 rows
    assert weak_mcc(a, b, align) < 0.5


def test_random_state_chooses_the_half():
    a, b = correlated_pair(0)
    assert weak_mcc(a, b) == weak_mcc(a, b, random_state=0)
    assert weak_mcc(a, b, random_state=0) != weak_mcc(a, b, random_state=1)
    assert r2(a, b, held_out=True) == r2(a, b, held_out=True, random_state=0)
    assert r2(a, b, held_out=True) != r2(a, b, held_out=True, random_state=1)


# --- regression -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_r2_agrees_with_scikit_learn_in_both_directions(seed):
    z, z_hat = correlated_pair(seed, n=3, n_hat=5)
    z_hat[:, 0] *= 1000  # the average must not follow the scale
    for target, source in ((z, z_hat), (z_hat, z)):
        assert r2(target, source) == pytest.approx(LinearRegression().fit(source, target).score(source, target))
        order = np.random.RandomState(3).permutation(len(z))
        fit, test = order[:30], order[30:]
        expected = LinearRegression().fit(source[fit], target[fit]).score(source[test], target[test])
        assert r2(target, source, held_out=True, random_state=3) == pytest.approx(expected)


def test_r2_by_hand():
    noisy = CROSS @ [[3.0], [4.0]]
    assert r2(noisy, CROSS) == pytest.approx(1)
    assert r2(noisy, CROSS[:, :1]) == pytest.approx(0.36)
    assert r2(CROSS, noisy) == pytest.approx((0.36 + 0.64) / 2)


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_r2_is_unchanged_by_affine_maps_of_the_source(seed):
    z, z_hat = correlated_pair(seed)
    rng = np.random.default_rng(seed)
    mixing = np.linalg.qr(rng.normal(size=(4, 4)))[0] * [1e-3, 1, 10, 1e3]
    for held_out in (False, True):
        moved = r2(z * [1, -2, 1e5, 1e-5] + 3, z_hat @ mixing - 5, held_out=held_out)
        assert moved == pytest.approx(r2(z, z_hat, held_out=held_out), abs=1e-8)


def test_r2_of_noise_grows_with_the_width_unless_held_out():
    rng = np.random.default_rng(0)
    target, source = rng.normal(size=(101, 30)), rng.normal(size=(101, 40))
    assert r2(target, source) == pytest.approx(40 / 100, abs=0.05)
    assert r2(target, source, held_out=True) < 0


BLOCKS = [[0], [5], [2, 3], [1, 4, 6, 7, 8, 9]]  # as in table 22 of the pdGMM paper: sizes 1, 1, 2, 6


def mixed_within_blocks(seed, rows=2000):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 10))
    z_hat = np.empty_like(z)
    places, owner = rng.permutation(10), np.empty(10, dtype=int)
    taken = 0
    for b, block in enumerate(BLOCKS):
        columns = places[taken : taken + len(block)]
        z_hat[:, columns] = z[:, block] @ np.linalg.qr(rng.normal(size=(len(block),) * 2))[0] * 5 + 1
        owner[columns], taken = b, taken + len(block)
    return z, z_hat, owner


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_mixed_only_within_are_found_and_score_one(seed):
    z, z_hat, owner = mixed_within_blocks(seed)
    found = block_r2(z, z_hat, BLOCKS)
    assert found.assignment.tolist() == owner.tolist()
    assert found.scores == pytest.approx(np.ones(4))
    assert found.mean == pytest.approx(1)
    assert found.table.shape == (10, 4)
    inside = owner[:, None] == np.arange(4)
    assert found.table[inside] == pytest.approx(np.ones(10))
    assert found.table[~inside].max() < 0.02
    groups = [np.flatnonzero(owner == b).tolist() for b in (2, 0, 3, 1)]
    grouped = block_r2(z, z_hat, BLOCKS, estimated=groups)
    assert grouped.assignment.tolist() == [2, 0, 3, 1]
    assert grouped.scores == pytest.approx(np.ones(4))
    assert grouped.table.shape == (4, 4)


def test_block_table_regresses_the_representation_on_the_block_and_scores_go_back():
    z, z_hat = correlated_pair(0, n=4, n_hat=3)
    blocks = [[1, 3], [0]]
    found = block_r2(z, z_hat, blocks)
    for b, block in enumerate(blocks):
        for i in range(3):
            truth, response = z[:, block], z_hat[:, i]
            expected = LinearRegression().fit(truth, response).score(truth, response)
            assert found.table[i, b] == pytest.approx(expected)
        received = z_hat[:, found.assignment == b]
        expected = LinearRegression().fit(received, z[:, block]).score(received, z[:, block])
        assert found.scores[b] == pytest.approx(expected)
    assert found.mean == pytest.approx(found.scores.mean())
    totals = [found.table[range(3), chosen].sum() for chosen in set(itertools.permutations([0, 0, 1]))]
    assert found.table[range(3), found.assignment].sum() == pytest.approx(max(totals))


def test_mixing_across_blocks_is_seen_and_missing_blocks_score_zero():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(1000, 4))
    across = z @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
    assert r2(across, z) == pytest.approx(1)
    assert block_r2(z, across, [[0, 1], [2, 3]]).mean < 0.9
    narrow = block_r2(z, z[:, [3, 2]], [[0, 1], [2, 3]])
    assert narrow.assignment.tolist() == [1, 1]
    assert narrow.scores.tolist() == pytest.approx([0, 1])
    wide = block_r2(z[:, :2], z, [[0], [1]])
    assert wide.assignment.tolist() == [0, 1, -1, -1]


# --- mixtures ---------------------------------------------------------------------------------------------------


def random_mixture(rng, n_components, m):
    root = rng.normal(size=(n_components, m, m))
    covariances = root @ root.swapaxes(1, 2) / m + 0.2 * np.eye(m)
    return Mixture(rng.dirichlet(np.full(n_components, 5.0)), 2 * rng.normal(size=(n_components, m)), covariances)


def random_map(rng, m):
    left, right = (np.linalg.qr(rng.normal(size=(m, m)))[0] for _ in range(2))
    return left * rng.uniform(0.3, 3, size=m) @ right, 5 * rng.normal(size=m)


def shuffled(mixture, rng):
    order = rng.permutation(len(mixture.weights))
    return Mixture(mixture.weights[order], mixture.means[order], mixture.covariances[order])


def density(mixture, points):
    parts = zip(mixture.weights, mixture.means, mixture.covariances, strict=True)
    return sum(w * multivariate_normal(mean, cov).pdf(points) for w, mean, cov in parts)


@pytest.mark.parametrize("seed", SEEDS)
def test_l2_distance_agrees_with_integration_on_a_grid(seed):
    rng = np.random.default_rng(seed)
    p, q = random_mixture(rng, 3, 2), random_mixture(rng, 2, 2)
    axis = np.linspace(-20, 20, 401)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    f, g = density(p, grid), density(q, grid)
    expected = np.sqrt(np.sum((f - g) ** 2) / np.sqrt(np.sum(f**2) * np.sum(g**2)))
    assert l2_distance(p, q) == pytest.approx(expected, rel=1e-6)


def test_l2_distance_by_hand():
    p = Mixture([1], [[0.0]], [[1.0]])
    assert l2_distance(p, p) == 0
    for gap in (0.1, 1.0, 3.0):
        expected = math.sqrt(2 - 2 * math.exp(-(gap**2) / 4))
        assert l2_distance(p, Mixture([1], [[gap]], [[1.0]])) == pytest.approx(expected)
    for sd in (0.2, 5.0):
        ratio, cross = math.sqrt(sd), math.sqrt(2 * sd / (1 + sd**2))
        expected = math.sqrt(ratio + 1 / ratio - 2 * cross)
        assert l2_distance(p, Mixture([1], [[0.0]], [[sd**2]])) == pytest.approx(expected)


@pytest.mark.parametrize("m", [2, 60])
def test_l2_distance_is_unchanged_by_a_common_affine_map(m):
    rng = np.random.default_rng(0)
    p = random_mixture(rng, 3, m)
    q = Mixture(p.weights[::-1], p.means + 0.1, p.covariances)
    matrix, offset = random_map(rng, m)
    matrix *= 1e-8  # densities of 1e+480 in 60 dimensions
    moved = l2_distance(p.pushforward(matrix, offset * 1e-8), q.pushforward(matrix, offset * 1e-8))
    assert moved == pytest.approx(l2_distance(p, q), rel=1e-6)
    assert l2_distance(p, q) == pytest.approx(l2_distance(q, p))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("n_components", "m"), [(1, 3), (2, 1), (2, 4), (3, 2), (4, 4), (6, 2), (8, 3), (12, 2), (15, 6)]
)
def test_affinely_equivalent_mixtures_are_at_distance_zero(n_components, m, seed):
    rng = np.random.default_rng(seed)
    p = random_mixture(rng, n_components, m)
    matrix, offset = random_map(rng, m)
    q = shuffled(p.pushforward(matrix, offset), rng)
    found = align_mixtures(p, q)
    assert found.distance == pytest.approx(0, abs=1e-6)
    assert dist_aff_l2(p, q, refine=False) == pytest.approx(0, abs=1e-6)
    if n_components > 1:  # a single Gaussian leaves the rotation open
        assert found.matrix == pytest.approx(matrix, abs=1e-5)
        assert found.offset == pytest.approx(offset, abs=1e-4)


@pytest.mark.parametrize(("n_components", "m"), [(2, 5), (3, 3), (9, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_slightly_different_mixtures_are_no_further_than_the_map_between_them(n_components, m, seed):
    rng = np.random.default_rng(seed)
    p = random_mixture(rng, n_components, m)
    other = Mixture(
        rng.dirichlet(500 * p.weights), p.means + 0.05 * rng.normal(size=p.means.shape), 1.1 * p.covariances
    )
    q = shuffled(other.pushforward(*random_map(rng, m)), rng)
    assert 0.005 < dist_aff_l2(p, q) <= l2_distance(p, other)
    assert dist_aff_l2(p, q, refine=False) <= 1.2 * l2_distance(p, other)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tight", [False, True])
def test_unrefined_distance_is_no_larger_than_the_published_one(seed, tight):
    rng = np.random.default_rng(seed)
    p, q = random_mixture(rng, 3, 2), random_mixture(rng, 3, 2)
    if tight:  # narrow components of other weights: only the means say where they go
        p = Mixture(p.weights, p.means, p.covariances / 100)
        q = Mixture(q.weights, p.means, p.covariances).pushforward(*random_map(rng, 2))
    extended = np.column_stack([p.means, np.ones(3)])
    published = []
    for chosen in itertools.permutations(range(3)):  # three points of the plane: the means fit exactly
        solution = np.linalg.solve(extended, q.means[list(chosen)])
        published.append(l2_distance(p.pushforward(solution[:2].T, solution[2]), q))
    assert dist_aff_l2(p, q, refine=False) <= min(published) + 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_the_distance_is_a_minimum_over_affine_maps(seed):
    rng = np.random.default_rng(seed)
    p, q = random_mixture(rng, 3, 2), random_mixture(rng, 3 + seed % 2, 2)
    found = align_mixtures(p, q)
    assert 0 < found.distance == dist_aff_l2(p, q) < math.sqrt(2)
    assert found.distance <= dist_aff_l2(p, q, refine=False)
    assert l2_distance(p.pushforward(found.matrix, found.offset), q) == pytest.approx(found.distance, abs=1e-7)
    assert found.distance <= l2_distance(p, q)
    for size in (1e-3, 0.1, 1):  # nearby maps and far ones are no better
        for _ in range(20):
            matrix = found.matrix + size * rng.normal(size=(2, 2))
            offset = found.offset + size * rng.normal(size=2)
            assert l2_distance(p.pushforward(matrix, offset), q) >= found.distance - 1e-7


@pytest.mark.parametrize("seed", range(3))
def test_the_distance_agrees_with_a_scan_over_all_affine_maps_of_the_line(seed):
    rng = np.random.default_rng(seed)
    p, q = random_mixture(rng, 2, 1), random_mixture(rng, 3, 1)
    spread_p, spread_q = (np.sqrt(x.weights @ (x.means[:, 0] ** 2 + x.covariances[:, 0, 0])) for x in (p, q))
    axis = np.linspace(-40, 40, 4001)[:, None]
    g = density(q, axis)
    best = math.inf
    for scale in np.concatenate([-np.geomspace(0.2, 5, 60), np.geomspace(0.2, 5, 60)]) * spread_q / spread_p:
        f = density(p.pushforward([[scale]], [0]), axis)
        norm = np.sum(f**2) + np.sum(g**2)
        squares = norm - 2 * np.correlate(f, g, "full").max()  # every shift at once
        best = min(best, squares / np.sqrt(np.sum(f**2) * np.sum(g**2)))
    assert dist_aff_l2(p, q) == pytest.approx(math.sqrt(best), abs=2e-3)
    assert dist_aff_l2(p, q) <= math.sqrt(best) + 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_the_distance_is_symmetric_and_ignores_affine_maps_of_either_side(seed):
    rng = np.random.default_rng(seed)
    p, q = random_mixture(rng, 3, 2), random_mixture(rng, 4, 2)
    distance = dist_aff_l2(p, q)
    assert dist_aff_l2(q, p) == pytest.approx(distance, abs=1e-6)
    moved = p.pushforward(*random_map(rng, 2)), q.pushforward(*random_map(rng, 2))
    assert dist_aff_l2(*moved) == pytest.approx(distance, abs=1e-5)
    back = align_mixtures(q, p)
    assert l2_distance(q.pushforward(back.matrix, back.offset), p) == pytest.approx(distance, abs=1e-6)


def test_components_without_weight_do_not_matter():
    rng = np.random.default_rng(0)
    p, q = random_mixture(rng, 3, 2), random_mixture(rng, 3, 2)
    padded = Mixture([*p.weights, 0], [*p.means, [100, 100]], [*p.covariances, np.eye(2)])
    assert dist_aff_l2(padded, q) == pytest.approx(dist_aff_l2(p, q), abs=1e-9)


def test_cca_finds_the_map_from_paired_latents():
    rng = np.random.default_rng(0)
    p = random_mixture(rng, 3, 3)
    matrix, offset = random_map(rng, 3)
    q = p.pushforward(matrix, offset)
    z = rng.normal(size=(200, 3))
    found = align_mixtures(p, q, "cca", latents=(z, z @ matrix.T + offset), refine=False)
    assert found.matrix == pytest.approx(matrix, abs=1e-8)
    assert found.distance == pytest.approx(0, abs=1e-6)
    noisy = (z, z @ matrix.T + offset + 0.3 * rng.normal(size=(200, 3)))
    unrefined = dist_aff_l2(p, q, "cca", latents=noisy, refine=False)
    assert unrefined > 0.01
    assert dist_aff_l2(p, q, "cca", latents=noisy) == pytest.approx(0, abs=1e-4)


# --- graphs -----------------------------------------------------------------------------------------------------


def random_dag(rng, n, probability):
    order = rng.permutation(n)
    return np.triu(rng.random((n, n)) < probability, 1).astype(int)[np.ix_(order, order)]


def v_structures(dag):
    n = len(dag)
    joined = dag | dag.T
    return frozenset(
        (i, j, k)
        for k in range(n)
        for i, j in itertools.combinations(range(n), 2)
        if dag[i, k] and dag[j, k] and not joined[i, j]
    )


def acyclic(graph):
    return not np.linalg.matrix_power(np.eye(len(graph)) + graph, len(graph)).diagonal().sum() > len(graph)


def test_cpdags_of_all_dags_on_four_nodes_are_what_their_class_agrees_on():
    places = [(i, j) for i in range(4) for j in range(4) if i != j]
    classes = {}
    for bits in itertools.product((0, 1), repeat=len(places)):
        dag = np.zeros((4, 4), dtype=int)
        dag[tuple(np.array(places).T)] = bits
        if not (dag & dag.T).any() and acyclic(dag):
            classes.setdefault(((dag | dag.T).tobytes(), v_structures(dag)), []).append(dag)
    assert sum(map(len, classes.values())) == 543  # known counts of DAGs and of their Markov classes
    assert len(classes) == 185
    for members in classes.values():
        union = np.max(members, axis=0)
        for dag in members:
            assert (dag_to_cpdag(dag) == union).all()


@pytest.mark.parametrize("seed", range(20))
def test_cpdag_and_shd_agree_with_causal_learn(seed):
    pytest.importorskip("causallearn")
    from causallearn.graph.Dag import Dag
    from causallearn.graph.GraphNode import GraphNode
    from causallearn.graph.SHD import SHD
    from causallearn.utils.DAG2CPDAG import dag2cpdag

    def convert(adjacency):
        nodes = [GraphNode(f"x{i}") for i in range(len(adjacency))]
        graph = Dag(nodes)
        for i, j in np.argwhere(adjacency):
            graph.add_directed_edge(nodes[i], nodes[j])
        return graph

    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 11))
    dags = [random_dag(rng, n, rng.uniform(0.1, 0.9)) for _ in range(2)]
    peers = [dag2cpdag(convert(dag)) for dag in dags]
    ours = [dag_to_cpdag(dag) for dag in dags]
    for found, peer in zip(ours, peers, strict=True):
        assert (found == (peer.graph == -1)).all()  # a tail at i on the edge to j
    assert shd(*ours) == SHD(*peers).get_shd()
    assert shd(*dags) == SHD(*map(convert, dags)).get_shd()


@given(seed=seeds, n=st.integers(2, 9))
@settings(max_examples=40, deadline=None)
def test_cpdag_does_not_depend_on_the_order_of_the_nodes(seed, n):
    rng = np.random.default_rng(seed)
    dag = random_dag(rng, n, rng.uniform(0.1, 0.9))
    cpdag = dag_to_cpdag(dag)
    order = rng.permutation(n)
    assert (dag_to_cpdag(dag[np.ix_(order, order)]) == cpdag[np.ix_(order, order)]).all()
    assert ((cpdag | cpdag.T) == (dag | dag.T)).all()
    assert (cpdag >= dag).all()


def test_shd_by_hand():
    empty = np.zeros((3, 3), dtype=int)
    edge, reverse, undirected = (empty.copy() for _ in range(3))
    edge[0, 1] = reverse[1, 0] = undirected[0, 1] = undirected[1, 0] = 1
    graphs = [empty, edge, reverse, undirected]
    for one, other in itertools.product(range(4), repeat=2):
        assert shd(graphs[one], graphs[other]) == (one != other)
    chain, collider = edge.copy(), edge.copy()
    chain[1, 2] = collider[2, 1] = 1
    assert shd(chain, collider) == 1
    assert shd(dag_to_cpdag(chain), dag_to_cpdag(collider)) == 2


@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_shd_is_a_metric(seed):
    rng = np.random.default_rng(seed)
    a, b, c = (random_dag(rng, 6, 0.4) for _ in range(3))
    assert shd(a, b) == shd(b, a) <= shd(a, c) + shd(c, b)
    assert (shd(a, b) == 0) == (a == b).all()
    assert shd(a, np.zeros((6, 6))) == a.sum()


# --- clusters ---------------------------------------------------------------------------------------------------


def test_clustering_accuracy_by_hand():
    assert clustering_accuracy([0, 0, 0, 1, 1, 1], [5, 5, 2, 2, 2, 2]) == pytest.approx(5 / 6)
    assert clustering_accuracy([0, 0, 1, 1], [0, 1, 2, 3]) == pytest.approx(0.5)  # splitting costs
    assert clustering_accuracy([0, 1, 2, 3], [0, 0, 0, 0]) == pytest.approx(0.25)
    assert clustering_accuracy(["cat", "dog", "dog"], [1.0, 0.0, 0.0]) == 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("classes", "clusters"), [(4, 4), (3, 5), (5, 3)])
def test_clustering_accuracy_is_the_maximum_over_all_matchings(seed, classes, clusters):
    rng = np.random.default_rng(seed)
    labels, predicted = rng.integers(classes, size=40), rng.integers(clusters, size=40)
    names = range(max(classes, clusters))
    best = max(np.mean(np.array(names_of)[predicted] == labels) for names_of in itertools.permutations(names))
    assert clustering_accuracy(labels, predicted) == pytest.approx(best)


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_cluster_scores_ignore_names(seed):
    rng = np.random.default_rng(seed)
    labels, predicted = rng.integers(4, size=30), rng.integers(4, size=30)
    renamed = np.array(["d", "a", "c", "b"])[predicted]
    for score, peer in ((nmi, normalized_mutual_info_score), (ari, adjusted_rand_score)):
        assert score(labels, renamed) == pytest.approx(peer(labels, predicted))
        assert score(labels, labels) == pytest.approx(1)
    assert clustering_accuracy(labels, renamed) == pytest.approx(clustering_accuracy(labels, predicted))
    assert clustering_accuracy(labels, labels) == 1


# --- what is refused --------------------------------------------------------------------------------------------

GOOD = np.random.default_rng(0).normal(size=(10, 2))


def spoiled(row, column, value):
    table = GOOD.copy()
    table[row, column] = value
    return table


PAIRED = [correlation_matrix, match, mcc, strong_mcc, weak_mcc, r2, lambda a, b: block_r2(a, b, [[0]])]


@pytest.mark.parametrize("metric", [*PAIRED, lambda a, b: agreement([a, b])])
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (GOOD[:, 0], r"must be 2-D \(rows, latents\), got shape \(10,\).*\[:, None\]"),
        (GOOD[None], r"must be 2-D .* got shape \(1, 10, 2\): flatten"),
        (GOOD[:1], r"at least \d rows and 1 column, got shape \(1, 2\): pass more"),
        (GOOD[:, :0], r"at least \d rows and 1 column, got shape \(10, 0\)"),
        (spoiled(3, 1, np.nan), "must be finite, got nan at row 3, column 1 .*drop or impute"),
        (spoiled(0, 0, np.inf), "must be finite, got inf at row 0, column 0"),
        ([["a", "b"], ["c", "d"]], "must be a table of numbers"),
        (GOOD[:9], "one row per sample in each input, got: .*has 9.*same samples"),
    ],
)
def test_tables_that_cannot_be_compared_are_refused(metric, bad, words):
    with pytest.raises(DataError, match=words):
        metric(GOOD, bad)
    with pytest.raises(DataError, match=words):
        metric(bad, GOOD)


UNIT = Mixture([1], [[0.0, 0.0]], [np.eye(2)])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mcc(GOOD, GOOD, "kendall"), "method must be one of 'pearson', 'spearman', got 'kendall'"),
        (lambda: weak_mcc(GOOD, GOOD, "ols"), "align must be one of 'cca', 'least_squares', got 'ols'"),
        (lambda: weak_mcc(GOOD, GOOD, n_components=3), "between 1 and 2, the width of the narrower .* got 3"),
        (lambda: weak_mcc(GOOD, GOOD, "least_squares", 1), "n_components applies to align='cca' only"),
        (lambda: weak_mcc(GOOD[:3], GOOD[:3]), "at least 4 rows"),
        (lambda: r2(GOOD[:3], GOOD[:3], held_out=True), "at least 4 rows"),
        (lambda: agreement([]), "at least one run, got none"),
        (lambda: block_r2(GOOD, GOOD, [[0], [0, 1]]), "blocks must be disjoint lists of columns 0 to 1, got"),
        (lambda: block_r2(GOOD, GOOD, [[2]]), "blocks must be disjoint lists of columns 0 to 1"),
        (lambda: block_r2(GOOD, GOOD, [[0], []]), "at least one column each"),
        (lambda: block_r2(GOOD, GOOD, [[0]], [[-1]]), "estimated must be disjoint lists"),
        (lambda: dist_aff_l2(UNIT, Mixture([1], [[0, 0]], [[1, 0]])), r"q.covariances\[0\].*singular.*drop"),
        (lambda: dist_aff_l2(UNIT, Mixture([1], [[0, 0]], [np.ones((2, 2))])), r"q.covariances\[0\].*singular"),
        (lambda: l2_distance(UNIT, Mixture([1], [[0]], [[1]])), "same dimension, got 2 and 1"),
        (lambda: dist_aff_l2(UNIT, UNIT, "cca"), r"align='cca' needs latents=.*latents not given"),
        (lambda: dist_aff_l2(UNIT, UNIT, latents=(GOOD, GOOD)), "align='means' takes none: .*latents given"),
        (lambda: dist_aff_l2(UNIT, UNIT, "cca", latents=(GOOD, GOOD[:, :1])), "must have 2 columns"),
        (lambda: dist_aff_l2(UNIT, UNIT, "cca", latents=(GOOD, GOOD[:, [0, 0]])), "rank 2 .* collinear"),
        (lambda: dist_aff_l2(UNIT, UNIT, "best"), "align must be one of 'means', 'cca', got 'best'"),
        (lambda: shd(np.zeros((2, 2)), np.zeros((3, 3))), "same nodes, got 2 and 3: match the latents"),
        (lambda: shd(np.zeros((2, 3)), np.zeros((2, 3))), r"a must be a square .* got shape \(2, 3\)"),
        (lambda: shd(np.eye(2)[::-1], [[0, 0.5], [0, 0]]), r"b must hold only 0 and 1.*\(W != 0\)"),
        (lambda: dag_to_cpdag(np.eye(2)), "zero diagonal"),
        (lambda: dag_to_cpdag([[0, 1, 0], [0, 0, 1], [1, 0, 0]]), "no cycles"),
        (lambda: dag_to_cpdag([[0, 1], [1, 0]]), "no cycles"),
        (lambda: clustering_accuracy(np.eye(3), [0, 1, 2]), r"labels must be 1-D .* got shape \(3, 3\): take argmax"),
        (lambda: nmi([0, 1], [0, 1, 1]), "labels has 2, predicted has 3"),
        (lambda: ari([0.0, np.nan], [0, 1]), "labels must be finite, got NaN"),
        (lambda: clustering_accuracy([1], [1]), "at least 2 entries"),
    ],
)
def test_errors_say_what_was_expected_what_came_and_what_to_do(call, words):
    with pytest.raises(DataError, match=words):
        call()


def test_every_public_name_exists_and_inputs_are_left_alone():
    assert all(hasattr(metrics, name) for name in metrics.__all__)
    z, z_hat = correlated_pair(0)
    before = z.copy(), z_hat.copy()
    for metric in PAIRED:
        metric(z, z_hat)
    assert (z == before[0]).all()
    assert (z_hat == before[1]).all()
