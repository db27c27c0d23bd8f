"""PC on latents: exact if independences are, invariant to order and units, silent, clear about invalid data."""

import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from identifiable.causal import (
    FisherZ,
    correlations_of_active,
    directed,
    graph_from_correlations,
    graph_of,
    pc,
    recovered_shd,
)
from identifiable.data import make_pdgmm
from identifiable.errors import DataError
from identifiable.metrics import dag_to_cpdag

pytest.importorskip("causallearn")
seeds = st.integers(0, 10**6)


def dag_of(n, *edges):
    dag = np.zeros((n, n), dtype=int)
    for i, j in edges:
        dag[i, j] = 1
    return dag


def random_dag(rng, n, share):
    order = rng.permutation(n)
    return np.triu(rng.random((n, n)) < share, 1).astype(int)[np.ix_(order, order)]


def exact_rows(dag, rng, rows=2000, weight=0.5):
    """Return rows whose sample covariance is that of the structural equations, to machine precision.

    With equal positive weights below 1 no dependence is hidden: paths of different lengths do not cancel.
    """
    noise = rng.normal(size=(rows, len(dag)))
    white = np.linalg.qr(noise - noise.mean(axis=0))[0]
    return white @ np.linalg.inv(np.eye(len(dag)) - weight * dag)


def noisy_rows(rng, n, rows=80):
    """Return few rows of a dense graph: tests err, and v-structures contradict each other."""
    weights = random_dag(rng, n, 0.5) * rng.uniform(0.2, 1, size=(n, n))
    return rng.normal(size=(rows, n)) @ np.linalg.inv(np.eye(n) - weights)


class Masked:
    """A model that recovered the latents z, inactive where the mask is False."""

    def __init__(self, z, active, unused=()):
        self.z, self.mask, self.unused_ = np.where(active, z, 0.0), active, unused

    def transform(self, X):
        return self.z

    def active(self, X):
        return self.mask

    def get_feature_names_out(self):
        return np.array([f"masked{i}" for i in range(self.z.shape[1])])


# -- exact independences ----------------------------------------------------------------------

GRAPHS = {
    "none": dag_of(4),
    "chain": dag_of(3, (0, 1), (1, 2)),
    "diamond": dag_of(4, (0, 1), (0, 2), (1, 3), (2, 3)),
    "collider with a tail": dag_of(5, (0, 2), (1, 2), (2, 3), (3, 4)),
    "two colliders": dag_of(5, (0, 1), (2, 1), (2, 3), (4, 3)),
    "rule 3": dag_of(4, (0, 1), (0, 2), (0, 3), (1, 3), (2, 3)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_exact_independences_give_the_exact_graph(name):
    found = pc(exact_rows(GRAPHS[name], np.random.default_rng(0)))
    assert (found.cpdag == dag_to_cpdag(GRAPHS[name])).all()
    assert found.consistent
    assert found.shd(dag_to_cpdag(GRAPHS[name])) == found.shd(found) == 0


@given(seed=seeds, n=st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_in_the_limit_of_many_rows_any_graph_is_found(seed, n):
    rng = np.random.default_rng(seed)
    dag = random_dag(rng, n, rng.uniform(0.2, 0.9))
    weight = rng.uniform(0.5, 1, size=(n, n)) * rng.choice([-1, 1], size=(n, n))
    names, many = tuple(f"z{i}" for i in range(n)), np.full((n, n), 10**14)
    found = graph_from_correlations(
        np.corrcoef(exact_rows(dag, rng, 100, weight), rowvar=False), many, names, 0.01, None
    )
    assert (found.cpdag == dag_to_cpdag(dag)).all()


def test_causes_beyond_the_largest_condition_stay_joined():
    """0 -> 1 -> 3 and 0 -> 2 -> 3: it takes two variables to separate 0 from 3."""
    rows = exact_rows(GRAPHS["diamond"], np.random.default_rng(0))
    assert pc(rows, max_condition=1).cpdag[[0, 3], [3, 0]].any()
    assert not pc(rows, max_condition=2).cpdag[[0, 3], [3, 0]].any()


# -- independence tests -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_p_values_and_skeleton_are_those_of_causal_learn(seed):
    from causallearn.search.ConstraintBased.PC import pc as peer
    from causallearn.utils.cit import CIT

    rng = np.random.default_rng(seed)
    rows = noisy_rows(rng, 6)
    theirs, ours = CIT(rows, "fisherz"), FisherZ(np.corrcoef(rows, rowvar=False), np.full((6, 6), len(rows)))
    for i, j in combinations(range(6), 2):
        others = [k for k in range(6) if k not in (i, j)]
        for condition in ([], others[:1], others[:3], others):
            assert ours(i, j, condition) == pytest.approx(theirs(i, j, condition), abs=1e-12)
    skeleton = peer(rows, 0.05, "fisherz", show_progress=False).G.graph != 0
    cpdag = pc(rows, level=0.05).cpdag
    assert ((cpdag | cpdag.T) == skeleton).all()


def test_a_test_counts_the_harmonic_mean_of_the_rows_of_its_pairs():
    """r = (0.5 - 0.25) / (1 - 0.25) = 1/3, artanh r = ln(2) / 2, rows = 3 / (1/50 + 1/100 + 1/100) = 75."""
    rows = np.array([[500, 50, 100], [50, 500, 100], [100, 100, 500]])
    test = FisherZ(np.full((3, 3), 0.5) + 0.5 * np.eye(3), rows)
    assert test(0, 1, [2]) == test(1, 0, [2]) == pytest.approx(2 * norm.sf(np.sqrt(75 - 1 - 3) * np.log(2) / 2))
    assert test(0, 1) == pytest.approx(2 * norm.sf(np.sqrt(50 - 3) * np.arctanh(0.5)))


# -- invariance -------------------------------------------------------------------------------


@given(seed=seeds, n=st.integers(2, 7))
@settings(max_examples=40, deadline=None)
def test_order_sign_scale_and_offset_do_not_matter(seed, n):
    rng = np.random.default_rng(seed)
    rows = noisy_rows(rng, n)
    graph, order = pc(rows, level=0.1), rng.permutation(n)
    signs, scales = rng.choice([-1, 1], size=n), rng.uniform(0.01, 100, size=n)
    other = pc((rows * signs * scales + rng.normal(size=n))[:, order], level=0.1)
    assert (other.cpdag == graph.cpdag[np.ix_(order, order)]).all()
    flipped = graph.strengths * np.outer(signs, signs)
    np.testing.assert_allclose(other.strengths, flipped[np.ix_(order, order)], atol=1e-9)


@given(seed=seeds, n=st.integers(2, 7))
@settings(max_examples=25, deadline=None)
def test_no_directed_cycle_and_each_time_the_same(seed, n):
    rows = noisy_rows(np.random.default_rng(seed), n, rows=40)
    cpdag = pc(rows, level=0.2).cpdag
    assert (cpdag == pc(rows, level=0.2).cpdag).all()
    directed = cpdag * (1 - cpdag.T)
    assert np.trace(np.linalg.matrix_power(directed + np.eye(n, dtype=int), n) - np.eye(n, dtype=int)) == 0


# -- contradictions ----------------------------------------------------------------------------


def joined_by(n, *edges):
    return (dag_of(n, *edges) | dag_of(n, *edges).T).astype(bool)


def undirected(*edges):
    return [*edges, *((j, i) for i, j in edges)]


@pytest.mark.parametrize(
    "heads",
    [
        pytest.param([(0, 1), (2, 1), (1, 2), (3, 2)], id="0 -> 1 <- 2 and 1 -> 2 <- 3"),
        pytest.param([(0, 1), (3, 2)], id="rule 1 from 0 and from 3"),
    ],
)
def test_contradictions_give_no_direction_and_none_follows_from_them(heads):
    """Both ends of 1 - 2 have a head. 1 -> 2 alone would direct 2 -> 4, since 1 and 4 are apart."""
    joined = joined_by(5, (0, 1), (1, 2), (2, 3), (2, 4), (3, 4))
    found = directed(joined, dag_of(5, *heads).astype(bool))
    assert (found == dag_of(5, (0, 1), (3, 2), *undirected((1, 2), (2, 4), (3, 4)))).all()
    cycle = [(0, 1), (1, 2), (2, 0)]
    found = directed(joined_by(4, *cycle, (0, 3)), dag_of(4, *cycle, (0, 3)).astype(bool))
    assert (found == dag_of(4, *undirected(*cycle), (0, 3))).all()


def test_strength_is_the_correlation_of_residuals():
    rows = noisy_rows(np.random.default_rng(1), 4)
    others = np.c_[rows[:, 2:], np.ones(len(rows))]
    left = rows[:, :2] - others @ np.linalg.lstsq(others, rows[:, :2], rcond=None)[0]
    assert pc(rows).strengths[0, 1] == pytest.approx(np.corrcoef(left, rowvar=False)[0, 1])


# -- inactive latents --------------------------------------------------------------------------


def chain_with_inactive_latents(rng, rows=20_000):
    z = rng.normal(size=(rows, 3)) @ np.linalg.inv(np.eye(3) - np.diag([1.0, 1.0], 1))
    return z, rng.random((rows, 3)) < 0.6


@pytest.mark.parametrize("seed", range(3))
def test_active_values_show_a_conditional_independence(seed):
    z, active = chain_with_inactive_latents(np.random.default_rng(seed))
    model = Masked(z, active)
    chain = dag_to_cpdag(GRAPHS["chain"])
    assert graph_of(model, None, level=1e-4).cpdag[0, 2]
    found = graph_of(model, None, level=1e-4, active_only=True)
    assert (found.cpdag == chain).all()
    assert found.names == ("masked0", "masked1", "masked2")
    assert found.rows == (active.astype(int).T @ active).min()


def test_correlation_of_active_values_is_the_maximum_of_the_likelihood():
    """Where z1 is missing in some rows and z0 in none: slope and residual of the complete rows, spread of z0 of all."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(500, 2)) @ np.array([[2.0, 1.0], [0.0, 0.5]])
    active = np.ones((500, 2), dtype=bool)
    active[:300, 1] = False
    first = z[:, 0] - z[:, 0].mean()
    second = (z[:, 1] - z[300:, 1].mean())[300:]
    slope = first[300:] @ second / (first[300:] @ first[300:])
    residual = np.mean((second - slope * first[300:]) ** 2)
    explained = slope**2 * np.mean(first**2)
    expected = np.sign(slope) * np.sqrt(explained / (explained + residual))
    assert correlations_of_active(z, active)[0, 1] == pytest.approx(expected, abs=1e-4)


def test_unused_and_constant_latents_are_left_out():
    rows = np.c_[exact_rows(GRAPHS["chain"], np.random.default_rng(0)), np.zeros(2000)]
    rows = np.c_[rows, np.random.default_rng(1).normal(size=2000)]
    found = graph_of(Masked(rows, np.ones(rows.shape, dtype=bool), unused=(4,)), None)
    assert found.names == ("masked0", "masked1", "masked2")


# -- recovery ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_perfect_recovery_costs_nothing(seed):
    rng = np.random.default_rng(seed)
    source = make_pdgmm(1, n=6, k=1, random_state=seed).source
    rows = source.unmasked().sample(2000, random_state=1)
    recovered = rows.z[:, rng.permutation(6)] * rng.uniform(-3, 3, size=6) + 1
    found = recovered_shd(rows.z, recovered, source.latents.adjacency != 0)
    assert found.delta_shd == 0
    assert (found.recovered.cpdag == found.true.cpdag).all()
    np.testing.assert_allclose(found.recovered.strengths, found.true.strengths, atol=1e-9)


def test_a_latent_that_was_not_recovered_has_no_edges():
    dag = GRAPHS["collider with a tail"]
    rows = exact_rows(dag, np.random.default_rng(0))
    for recovered in (rows[:, [4, 0, 1, 2]], np.c_[rows[:, [4, 0, 1, 2]], np.ones(len(rows))]):
        found = recovered_shd(rows, recovered, dag)
        assert found.shd_true == 0
        assert not found.recovered.cpdag[3].any()
        assert not found.recovered.cpdag[:, 3].any()
        assert found.recovered.names == found.true.names
    nothing = recovered_shd(rows, np.ones((2000, 2)), dag)
    assert nothing.shd_recovered == dag.sum()
    wider = recovered_shd(rows, np.c_[np.random.default_rng(1).normal(size=2000), rows], dag)
    assert wider.delta_shd == 0


# -- invalid data -----------------------------------------------------------------------------

ROWS = np.random.default_rng(0).normal(size=(50, 3))
SINGLE = np.random.default_rng(1).random((50, 3)).argsort(axis=1) == 0  # one active at a time


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pc(np.c_[ROWS, ROWS[:, 0]]), "z0, z3"),
        (lambda: pc(np.c_[ROWS, ROWS.sum(axis=1)]), "z0, z1, z2, z3"),
        (lambda: pc(np.c_[ROWS, ROWS[:, 0] * (1 + 1e-6 * ROWS[:, 1])]), "z0, z3"),
        (lambda: pc(np.c_[ROWS, np.ones(50)]), "constant"),
        (lambda: pc(ROWS[:6]), "7 rows"),
        (lambda: pc(np.where(ROWS > 2, np.nan, ROWS)), "finite"),
        (lambda: pc(ROWS, level=5), "level"),
        (lambda: pc(ROWS, max_condition=-1), "max_condition"),
        (lambda: pc(ROWS, names=["a", "b", "a"]), "names"),
        (lambda: graph_of(Masked(ROWS, SINGLE), None, active_only=True), "together in 0"),
        (lambda: graph_of(Masked(ROWS, SINGLE & False), None), "varies"),
        (lambda: recovered_shd(ROWS, ROWS[:9], dag_of(3)), "one row per sample"),
        (lambda: recovered_shd(ROWS, ROWS, dag_of(4)), "dag"),
        (lambda: recovered_shd(ROWS, ROWS, 0.5 * dag_of(3, (0, 1))), "0 and 1"),
        (lambda: recovered_shd(ROWS, ROWS, dag_of(3, (0, 1), (1, 0))), "no cycles"),
    ],
)
def test_invalid_data_are_refused(call, words):
    with pytest.raises(DataError, match=words):
        call()


def test_a_model_without_activity_is_refused():
    from identifiable import PrincipalComponents

    model = PrincipalComponents(3).fit(ROWS)
    assert graph_of(model, ROWS).names[0] == "principalcomponents0"
    with pytest.raises(DataError, match="PrincipalComponents"):
        graph_of(model, ROWS, active_only=True)


def test_without_causal_learn_the_error_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("causallearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "causallearn", None)
    with pytest.raises(ImportError, match="causal-learn"):
        pc(ROWS)
