"""The hidden variables of a mixture against known graphs, and the verdicts against the definition, word by word."""

from itertools import combinations, combinations_with_replacement, permutations, product

import numpy as np
import pytest

from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.theory.partitions import numbered
from identifiable.theory.structure import structure_of

SEEDS = range(4)
GRAPHS = {  # sizes of the variables, the latents each moves, the number of latents
    "overlap": ((2, 3), ((0, 1), (1, 2)), 3),
    "chain": ((2, 2, 2), ((0, 1), (1, 2), (2, 3)), 5),  # latent 4 is moved by none
    "circle": ((2, 3, 2), ((0, 1), (0, 2, 4), (1, 2, 3)), 5),  # no latent is moved by the first alone
    "around": ((2, 3), ((0, 3, 4), (1, 2)), 5),
    "one": ((5,), ((0, 2),), 3),
}


def hidden(sizes, touches, m, rng, weights=None):
    """Return a mixture and its states (J, k): latents differ by mean (even) or by standard deviation alone (odd)."""
    states = np.array(list(product(*map(range, sizes))))
    means, deviations = np.empty((2, len(states), m))
    for t in range(m):
        own = [i for i, moved in enumerate(touches) if t in moved]
        labels = np.unique(states[:, own], axis=0, return_inverse=True)[1].reshape(-1)
        levels = rng.permutation(labels.max() + 1)[labels]
        means[:, t], deviations[:, t] = (3 * levels, 1 + levels % 2) if t % 2 == 0 else (0, 2.0 ** (levels - 3))
    weights = 0.5 / len(states) + 0.5 * rng.dirichlet(np.ones(len(states))) if weights is None else weights
    return Mixture(weights, means, deviations**2), states


def disguised(mixture, states, touches, rng):
    """Put components and latents in another order; shift, scale and flip latents."""
    components, latents = rng.permutation(len(states)), rng.permutation(mixture.means.shape[1])
    scales = rng.choice([-1, 1], len(latents)) * 10 ** rng.uniform(-3, 3, len(latents))
    means = (mixture.means[np.ix_(components, latents)] + rng.normal(size=len(latents)) * 10) * scales
    variances = np.diagonal(mixture.covariances, axis1=1, axis2=2)[np.ix_(components, latents)] * scales**2
    places = np.argsort(latents)
    moved = [tuple(sorted(int(places[t]) for t in own)) for own in touches]
    return Mixture(mixture.weights[components], means, variances), states[components], moved


def estimate(mixture, rows, rng):
    """Return the mixture with errors of the size of the standard errors."""
    counts = rng.multinomial(rows, mixture.weights)
    deviations = np.sqrt(np.diagonal(mixture.covariances, axis1=1, axis2=2))
    means = mixture.means + deviations * rng.normal(size=deviations.shape) / np.sqrt(counts)[:, None]
    deviations = deviations * np.exp(rng.normal(size=deviations.shape) / np.sqrt(2 * counts)[:, None])
    return Mixture(counts / rows, means, deviations**2)


def by_means(columns, weights=None):
    """Return a mixture with means (latents, components) and variances 1."""
    means = np.array(columns, dtype=float).T
    return Mixture(np.full(len(means), 1 / len(means)) if weights is None else weights, means, np.ones(means.shape))


def assert_recovered(found, mixture, states, moved):
    """Compare variables up to order and states up to numbering; probabilities belong to states."""
    assert found.verdict == "holds", found.reason
    assert found.neighbours == tuple(sorted(moved))
    assert found.k == len(moved)
    for i, own in enumerate(found.neighbours):
        true = states[:, moved.index(own)]
        pairs = set(zip(true.tolist(), found.states[:, i].tolist(), strict=True))
        assert len(pairs) == found.sizes[i] == len(set(true.tolist()))
        assert list(dict.fromkeys(found.states[:, i].tolist())) == list(range(found.sizes[i]))
    np.testing.assert_allclose(found.probabilities[tuple(found.states.T)], mixture.weights)
    assert found.probabilities.shape == found.sizes
    assert found.probabilities.sum() == pytest.approx(1)


# -- known graphs ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_structure_is_recovered_whatever_the_order_and_the_units(graph, seed):
    rng = np.random.default_rng(seed)
    sizes, touches, m = GRAPHS[graph]
    mixture, states, moved = disguised(*hidden(sizes, touches, m, rng), touches, rng)
    assert_recovered(structure_of(mixture), mixture, states, moved)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_structure_is_recovered_from_estimates(graph, seed):
    rng = np.random.default_rng(100 + seed)
    sizes, touches, m = GRAPHS[graph]
    exact, states, moved = disguised(*hidden(sizes, touches, m, rng), touches, rng)
    mixture = estimate(exact, 20_000, rng)
    found = structure_of(mixture, rows=20_000)
    assert_recovered(found, mixture, states, moved)
    assert "20000 rows" in found.reason


def test_estimates_without_rows_have_a_looser_tolerance():
    means = np.array([[0, 0, 3, 3], [0, 4, 0, 4.0]]) + 0.02 * np.array([[0, 1, 0, 1], [1, 0, 0, 1]])
    mixture = by_means(means)
    assert structure_of(mixture, estimated=True).sizes == (2, 2)
    assert structure_of(mixture, tolerance=0.05).sizes == (2, 2)
    assert structure_of(mixture).sizes == (4,)


def test_one_component_has_no_hidden_variable():
    found = structure_of(Mixture([1.0], [[1, 2]], [[1, 1]]))
    assert (found.verdict, found.k, found.sizes, found.closest) == ("holds", 0, (), None)
    assert found.states.shape == (1, 0)
    assert found.probabilities == 1
    assert found.check.threshold is None
    assert structure_of(Mixture([1.0], [[1, 2]], [[1, 1]]), rows=10).verdict == "holds"


def test_components_of_weight_zero_are_left_out():
    mixture = by_means([[0, 7, 0, 3, 3], [0, 8, 4, 0, 4]], [0.1, 0, 0.2, 0.3, 0.4])
    for found in (structure_of(mixture), structure_of(mixture, rows=10_000)):
        np.testing.assert_array_equal(found.states, [[0, 0], [-1, -1], [0, 1], [1, 0], [1, 1]])
        np.testing.assert_allclose(found.probabilities, [[0.1, 0.2], [0.3, 0.4]])
    doubtful = by_means([[0, 7, 0, 3, 3 + 3e-5], [0, 8, 4, 0, 4]], [0.1, 0, 0.2, 0.3, 0.4])
    refused(structure_of(doubtful), "inconclusive", "components 3 and 4")
    refused(structure_of(by_means([[7, 0, 0]], [0, 0.5, 0.5])), "fails", "Components 1 and 2", "(P3a)")


@pytest.mark.parametrize("rows", [None, 100_000])
def test_constant_latents_are_moved_by_no_variable(rows):
    """Points have no standard errors; rounding of a latent that never varies does not count."""
    means = np.array([[0, 0.1, 2], [0, 0.1, 2], [3, 0.1, 2], [3, 0.1, 5]]) + np.array([0, 0, 1e3])
    means[1, 0], means[1, 1] = 1e-9, 0.1 + 1e-17
    variances = [[0, 0, 1], [0, 0, 4], [0, 0, 1], [0, 0, 4]]
    found = structure_of(Mixture([0.1, 0.2, 0.3, 0.4], means, variances), rows=rows)
    assert found.verdict == "fails"  # latent 2 has three distributions
    means[3, 2] -= 3
    found = structure_of(Mixture([0.1, 0.2, 0.3, 0.4], means, variances), rows=rows)
    assert found.neighbours == ((0,), (2,))


# -- the verdict against the definitions ----------------------------------------------------


def structures_of(J):
    """Return all ways to number J components as states of hidden variables: a partition for each, in any order."""
    found = set()
    for shape in {4: [(4,), (2, 2)], 6: [(6,), (2, 3)], 8: [(8,), (2, 4), (2, 2, 2)]}[J]:
        states = list(product(*map(range, shape)))
        for order in permutations(states[1:]):  # the state of component 0 may be called 0, ..., 0
            found.add(tuple(sorted(numbered(column) for column in zip(states[0], *order, strict=True))))
    return sorted(found)


def definition(variables, labels):
    """Return which parts of (P3) hold for these variables, word by word; labels (m, J) of equal distributions."""
    J, k, m = len(labels[0]), len(variables), len(labels)
    states = list(zip(*variables, strict=True))
    pairs = list(combinations(range(J), 2))
    moved = [set() for _ in range(k)]
    for a, b in pairs:
        differ = [i for i in range(k) if states[a][i] != states[b][i]]
        if len(differ) == 1:
            moved[differ[0]] |= {t for t in range(m) if labels[t][a] != labels[t][b]}
    for size in range(1, m + 1):
        for latents in combinations(range(m), size):
            movers = [i for i in range(k) if moved[i] & set(latents)]
            for a, b in pairs:
                if any(states[a][i] != states[b][i] for i in movers) and all(
                    labels[t][a] == labels[t][b] for t in latents
                ):
                    return ""
    return "a" if any(moved[i] <= moved[j] for i, j in permutations(range(k), 2)) else "ac"


def cases(J, m, rng):
    """Yield partitions of J components by the distribution of each latent: a third of all for J = 4, else a sample."""
    if J == 4:
        every = sorted(set(map(numbered, product(range(4), repeat=4))))
        yield from list(combinations_with_replacement(every, m))[::3]
        return
    structures = structures_of(J)
    for _ in range({6: 100, 8: 12}[J]):
        variables = np.array(structures[rng.integers(len(structures))])
        labels = (rng.integers(2, size=(m, len(variables))) * 10 ** np.arange(len(variables))) @ variables
        if rng.random() < 0.4:  # one latent no longer separates two states, or separates a component from its equal
            t, (a, b) = rng.integers(m), rng.choice(J, 2, replace=False)
            labels[t] = np.where(labels[t] == labels[t, a], labels[t, b], labels[t])
            labels[t, b] += rng.integers(2)
        yield labels.tolist()


@pytest.mark.parametrize("J", [4, 6, 8])
def test_p3_holds_where_some_hidden_variables_meet_the_definition_and_only_there(J):
    """Then they are the only ones. If none do, some meet all but (P3c), or none meet (P3a) either."""
    structures, seen = structures_of(J), set()
    assert len(structures) == {4: 1 + 3, 6: 1 + 60, 8: 1 + 840 + 840}[J]
    for labels in cases(J, 3, np.random.default_rng(0)):
        found = structure_of(by_means(labels))
        if len(set(zip(*labels, strict=True))) < J:
            assert "(P3a)" in found.reason
            continue
        parts = {variables: definition(variables, labels) for variables in structures}
        most = max(parts.values())
        seen.add(most)
        if most == "ac":
            assert found.verdict == "holds", (labels, found.reason)
            (variables,) = (v for v, part in parts.items() if part == "ac")
            assert variables == tuple(sorted(map(tuple, found.states.T.tolist())))
        else:
            assert found.verdict == "fails", labels
            assert ("(P3c)" if most == "a" else "P(U = u) = 0") in found.reason, labels
    assert seen == {"", "a", "ac"}


# -- refusals -------------------------------------------------------------------------------


def refused(found, verdict, *words):
    assert found.verdict == verdict
    assert (found.k, found.sizes, found.neighbours, found.probabilities.size, found.states.size) == (0, (), (), 0, 0)
    for part in words:
        assert part in found.reason
    assert str(found) == f"P3 {verdict}: {found.reason}"
    assert (found.check.name, found.check.verdict, found.check.sentence) == ("P3", verdict, found.reason)
    with pytest.raises(DataError):
        found.plot()


def test_a_variable_may_lie_within_two_others_but_not_within_one():
    sizes, touches = (2, 2, 2), ((0, 2), (1, 2), (0, 1))
    assert structure_of(hidden(sizes, touches, 3, np.random.default_rng(0))[0]).neighbours == ((0, 1), (0, 2), (1, 2))
    mixture, _ = hidden(sizes, ((0, 3), (1, 2), (0, 1, 3)), 4, np.random.default_rng(0))
    refused(structure_of(mixture), "fails", "moves latents 0 and 3)", "moves latents 0, 1 and 3)", "(P3c)")


def test_a_missing_state_is_refused_and_named():
    found = structure_of(by_means([[0, 0, 0, 4, 4], [0, 2, 4, 0, 2]]))
    refused(found, "fails", "U_1 (2 states, moves latent 0)", "U_2 (3 states, moves latent 1)", "6 states")
    assert "U_1 as in component 3, U_2 as in component 2" in found.reason


def test_too_many_partitions_are_refused_before_they_are_listed():
    found = structure_of(by_means(np.eye(25)))  # latent t separates component t from all others
    refused(found, "fails", "25 ways")


def test_equal_components_are_refused():
    mixture = by_means([[0, 0, 3], [1, 1, 2]])
    refused(structure_of(mixture), "fails", "Components 0 and 1", "(P3a)")
    refused(structure_of(mixture, estimated=True), "fails", "Components 0 and 1")


def test_dependent_latents_are_refused():
    covariances = np.array([np.eye(3), np.eye(3)])
    covariances[1, 0, 2] = covariances[1, 2, 0] = 0.3
    mixture = Mixture([0.5, 0.5], [[0, 0, 0], [1, 2, 3]], covariances)
    with pytest.raises(DataError, match="Latents 0 and 2"):
        structure_of(mixture)
    with pytest.raises(DataError, match="FactorialUnmixing"):
        structure_of(mixture, rows=10_000)
    refused(structure_of(mixture, rows=600), "inconclusive", "Latents 0 and 2")
    assert "correlation" not in structure_of(mixture, rows=100).reason  # 50 rows show no correlation of 0.3


@pytest.mark.parametrize("settings", [{"tolerance": 0}, {"tolerance": 0.5}, {"rows": 0}, {"rows": np.nan}])
def test_settings_are_checked(settings):
    (name,) = settings
    with pytest.raises(DataError, match=f"{name} must"):
        structure_of(by_means([[0, 1]]), **settings)


# -- inconclusive differences ---------------------------------------------------------------


@pytest.mark.parametrize("part", ["mean", "deviation"])
@pytest.mark.parametrize(
    ("size", "verdict"), [(0.9, "holds"), (1.1, "inconclusive"), (2.9, "inconclusive"), (3.1, "fails")]
)
def test_differences_within_a_factor_three_of_the_threshold_are_inconclusive(size, verdict, part):
    """Latent 1 shows U_2. Latent 0 shows U_1 and, if it separates components 0 and 1 or 2 and 3, U_2 as well."""
    rows, w = 40_000, 0.25
    # The root of a chi-square with 2 degrees of freedom; 6 pairs, 2 latents.
    threshold = np.sqrt(2 * np.log(12 / 0.05))
    means, deviations = np.array([[0, 0, 5, 5], [0, 4, 0, 4.0]]), np.ones((2, 4))
    if part == "mean":
        means[0, [1, 3]] += size * threshold * np.sqrt(2 / (rows * w))
    else:
        deviations[0, [1, 3]] *= np.exp(size * threshold * np.sqrt(1 / (rows * w)))
    found = structure_of(Mixture([w] * 4, means.T, deviations.T**2), rows=rows)
    assert (found.verdict, found.closest, found.check.threshold) == (verdict, pytest.approx(size), 1)
    if verdict == "holds":
        assert found.neighbours == ((0,), (1,))
    elif verdict == "fails":
        refused(found, "fails", "U_1 (2 states, moves latent 0)", "(P3c)")
    else:
        refused(found, "inconclusive", "Latent 0", "components 0 and 1", f"{size} times")


def test_small_differences_in_an_exact_mixture_are_inconclusive():
    verdicts = {}
    for size in (0.5, 2, 4):
        means = np.array([[0, 0, 5, 5], [0, 4, 0, 4.0], [1, 1, 1, 1]])
        means[0, 3] += size * 1e-5 * np.sqrt(1 + 2.5**2)  # in standard deviations of the latent
        means[2, 3] += size * 1e-5
        verdicts[size] = structure_of(by_means(means))
    assert verdicts[0.5].sizes == (2, 2)
    refused(verdicts[2], "inconclusive", "Latent 0", "components 2 and 3", "latent 2.")
    refused(verdicts[4], "fails")


def test_equality_in_a_chain_is_inconclusive():
    """Component 2 has few rows and is close to both 0 and 1, which are far from each other."""
    mixture = by_means([[0, 0.5, 0.25]], [0.495, 0.495, 0.01])
    refused(structure_of(mixture, rows=10_000), "inconclusive", "components 0 and 1", "link")


def test_with_few_rows_a_failure_of_p3_is_inconclusive():
    """Components that look equal may differ by less than few rows show."""
    equal, nested = by_means([[0, 0, 3], [1, 1, 2]]), hidden((2, 3), ((0, 1), (1,)), 3, np.random.default_rng(0))[0]
    missing = by_means([[0, 0, 0, 4, 4], [0, 2, 4, 0, 2]])
    for mixture, words in ((equal, "(P3a)"), (nested, "(P3c)"), (missing, "none with U_1")):
        refused(structure_of(mixture, rows=10**6), "fails", words)
        found = structure_of(mixture, rows=10_000)
        refused(found, "inconclusive", words, "10000 rows")
    refused(structure_of(missing, rows=10_000, tolerance=0.2), "fails", "none with U_1")
    unseen = np.sqrt(2 * np.log(20 / 0.05) / 2000)  # of a log deviation; 2 latents, 10 pairs, 2000 rows each
    assert f"up to {unseen:.2g} standard deviations" in found.reason


# -- text and pictures ----------------------------------------------------------------------


@pytest.mark.parametrize("graph", GRAPHS)
def test_picture_has_a_line_for_every_neighbour_and_no_box_on_another(graph):
    sizes, touches, m = GRAPHS[graph]
    figure = structure_of(hidden(sizes, touches, m, np.random.default_rng(0))[0]).plot()
    (axis,) = figure.axes
    assert len(axis.lines) == sum(map(len, touches))
    figure.draw_without_rendering()
    assert len(axis.texts) == len(sizes) + m
    boxes = [text.get_bbox_patch().get_window_extent() for text in axis.texts[: len(sizes)]]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    assert all(axis.bbox.contains(*corner) for box in boxes for corner in box.corners())
    ends = {(tuple(line.get_xdata()), tuple(line.get_ydata())) for line in axis.lines}
    places = [text.get_position() for text in axis.texts]
    true = {(i, len(sizes) + t) for i, own in enumerate(touches) for t in own}
    assert ends == {tuple(zip(places[i], places[j], strict=True)) for i, j in true}
    middles = [np.mean(own) for own in touches]  # the variables stand in the order of these
    assert all(places[i][0] < places[j][0] for i, j in permutations(range(len(sizes)), 2) if middles[i] < middles[j])
