"""Correlation, matching, alignment and regression: hand values, brute force, invariances, scikit-learn."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.linear_model import LinearRegression

from identifiable.errors import DataError
from identifiable.metrics import agreement, block_r2, correlation_matrix, match, mcc, r2, strong_mcc, weak_mcc
from identifiable.metrics.latents import canonical_directions

SEEDS = range(5)
seeds = st.integers(0, 2**32 - 1)

# Two columns of mean 0, unit variance and correlation 0: correlations with them are easy to compute.


def correlated_pair(seed, rows=60, n=4, n_hat=4):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, n))
    return z, z @ rng.normal(size=(n, n_hat)) + rng.normal(size=(rows, n_hat))


# -- correlation and matching -----------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_correlations_agree_with_numpy_and_scipy(seed):
    a, b = correlated_pair(seed, n=3, n_hat=4)
    a = a.round(0)  # ties, which Spearman must average
    assert correlation_matrix(a, b) == pytest.approx(np.corrcoef(a.T, b.T)[:3, 3:], abs=1e-12)
    expected = spearmanr(a, b).statistic[:3, 3:]
    assert correlation_matrix(a, b, "spearman") == pytest.approx(expected, abs=1e-12)


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


def test_a_large_mean_does_not_drown_a_small_spread():
    z = np.random.default_rng(0).normal(size=(1000, 2))
    assert mcc(z, 1e-3 * z + 1e8) == pytest.approx(1, abs=1e-5)
    assert r2(1e-3 * z + 1e8, z) == pytest.approx(1, abs=1e-5)


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


# -- alignment --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_weak_mcc_is_unchanged_by_linear_maps(seed):
    a, b = correlated_pair(seed, rows=200, n=3, n_hat=4)
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(3, 3)), rng.normal(size=(4, 4))
    assert strong_mcc(a, b) == mcc(a, b)
    for k in (1, 2, 3):
        moved = weak_mcc(a @ one + 1, b @ other - 1, n_components=k)
        assert moved == pytest.approx(weak_mcc(a, b, n_components=k), abs=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_canonical_correlations_solve_the_textbook_eigenproblem(seed):
    a, b = correlated_pair(seed, rows=100, n=3, n_hat=4)
    full = np.cov(a.T, b.T)
    aa, ab, bb = full[:3, :3], full[:3, 3:], full[3:, 3:]
    expected = np.sort(np.linalg.eigvals(np.linalg.solve(aa, ab) @ np.linalg.solve(bb, ab.T)).real)[::-1]
    to_a, to_b = canonical_directions(a, b, 3)
    found = np.corrcoef((a @ to_a).T, (b @ to_b).T)[:3, 3:]
    assert found == pytest.approx(np.diag(np.sqrt(expected)), abs=1e-8)


def test_collinear_columns_add_nothing_to_the_weak_mcc():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 2))
    thin = z @ rng.normal(size=(2, 4))  # four columns of rank two
    assert weak_mcc(z, thin) == pytest.approx(1)
    other = z @ rng.normal(size=(2, 4))
    assert weak_mcc(thin, other, n_components=2) == pytest.approx(1)
    assert weak_mcc(thin, other) == pytest.approx(0.5)  # two of the four directions do not exist


def test_the_weak_mcc_is_out_of_sample():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 60, 25))
    to_a, to_b = canonical_directions(a[:30], b[:30], 25)
    assert mcc(a[:30] @ to_a, b[:30] @ to_b) > 0.85  # noise, but 25 columns explain 30 rows
    assert weak_mcc(a, b) < 0.5


def test_random_state_chooses_the_half():
    a, b = correlated_pair(0)
    assert weak_mcc(a, b) == weak_mcc(a, b, random_state=0)
    assert weak_mcc(a, b, random_state=0) != weak_mcc(a, b, random_state=1)
    assert r2(a, b, held_out=True) == r2(a, b, held_out=True, random_state=0)
    assert r2(a, b, held_out=True) != r2(a, b, held_out=True, random_state=1)


# -- regression -------------------------------------------------------------------------------


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
    inside = owner[:, None] == np.arange(4)
    assert found.table[inside] == pytest.approx(np.ones(10))
    assert found.table[~inside].max() < 0.02


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


# -- refusals ---------------------------------------------------------------------------------


GOOD = np.random.default_rng(0).normal(size=(10, 2))
PAIRED = [correlation_matrix, match, mcc, strong_mcc, weak_mcc, r2, lambda a, b: block_r2(a, b, [[0]])]


@pytest.mark.parametrize("metric", [*PAIRED, lambda a, b: agreement([a, b])])
def test_both_tables_are_checked_and_left_unchanged(metric):
    bad = np.where(np.arange(20).reshape(10, 2) == 7, np.nan, GOOD)
    for tables in ((GOOD, bad), (bad, GOOD)):
        with pytest.raises(DataError, match="row 3, column 1"):
            metric(*tables)
    with pytest.raises(DataError, match="9"):
        metric(GOOD, GOOD[:9])
    before = GOOD.copy()
    metric(GOOD, GOOD)
    assert (before == GOOD).all()


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: mcc(GOOD, GOOD, "kendall"), "method"),
        (lambda: weak_mcc(GOOD, GOOD, n_components=3), "n_components"),
        (lambda: weak_mcc(GOOD[:3], GOOD[:3]), "4 rows"),
        (lambda: r2(GOOD[:3], GOOD[:3], held_out=True), "4 rows"),
        (lambda: agreement([]), "none"),
        (lambda: block_r2(GOOD, GOOD, [[0], [0, 1]]), "disjoint"),
        (lambda: block_r2(GOOD, GOOD, [[2]]), "disjoint"),
        (lambda: block_r2(GOOD, GOOD, [[-1]]), "disjoint"),
        (lambda: block_r2(GOOD, GOOD, [[0], []]), "empty"),
    ],
)
def test_invalid_options_are_refused(call, word):
    with pytest.raises(DataError, match=word):
        call()
