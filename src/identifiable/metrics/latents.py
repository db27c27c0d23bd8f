"""Agreement of two sets of latents: correlation under the best matching, and linear regression.

Every function compares two tables of the same N samples: the true latents z (N, n) and a representation z_hat
(N, n_hat), or the latents of two runs. All are invariant to the order, sign, scale and shift of the columns. A constant
column carries no information and counts as 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata
from sklearn.utils import check_random_state

from identifiable.arrays import FloatArray, IntArray
from identifiable.errors import DataError
from identifiable.metrics.checks import same_rows, table

Method = Literal["pearson", "spearman"]
Seed = int | np.random.RandomState | None


@dataclass(frozen=True, eq=False)
class Matching:
    """The one-to-one matching of estimated to true latents that maximises the sum of |correlation|.

    Attributes
    ----------
    permutation : (n,) column of z_hat matched to each column of z; -1 if none was left.
    correlations : (n,) signed correlation of each matched pair; 0 where none was left.
    score : mean of |correlations|, the MCC.
    """

    permutation: IntArray
    correlations: FloatArray
    score: float


@dataclass(frozen=True, eq=False)
class BlockR2:
    """Separation of blocks of latents from each other; see `block_r2`.

    Attributes
    ----------
    table : (n_hat, n_blocks) R² of each column of z_hat (response) on each true block: tables 16 and 20-22 of Xu
        et al. (2026).
    assignment : (n_hat,) the true block each column was assigned to; -1 if none was left.
    scores : (n_blocks,) R² of each true block (response) on the columns assigned to it: tables 13-15 of the same paper.
    mean : mean of `scores`.
    """

    table: FloatArray
    assignment: IntArray
    scores: FloatArray
    mean: float


def correlation_matrix(a: ArrayLike, b: ArrayLike, method: Method = "pearson") -> FloatArray:
    r"""Correlate every column of a with every column of b.

    .. math:: C_{ij} = \mathrm{corr}(a_i, b_j), \qquad C_{ij} = 0 \text{ if } a_i \text{ or } b_j \text{ is constant.}

    Parameters
    ----------
    a, b : (N, n_a) and (N, n_b).
    method : "pearson", or "spearman" for the correlation of ranks (invariant to monotone distortions of a column).

    Returns
    -------
    (n_a, n_b) signed correlations in [-1, 1].

    Examples
    --------
    >>> correlation_matrix([[0, 1], [1, 1], [2, 1]], [[0], [-1], [-8]], method="spearman")
    array([[-1.],
           [ 0.]])
    """
    a, b = _pair(a=a, b=b)
    return _correlate(_unit(a, method), _unit(b, method))


def match(z: ArrayLike, z_hat: ArrayLike, method: Method = "pearson") -> Matching:
    r"""Match latents one to one.

    .. math:: \max_\pi \frac{1}{n} \sum_{i=1}^{n} \left|\mathrm{corr}(z_i, \hat z_{\pi(i)})\right|

    over one-to-one maps (Hungarian algorithm). When z_hat is wider than z the best n of its columns are used; when
    it is narrower the true latents left without a partner count 0, so a latent that was dropped costs 1/n.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(100, 3))
    >>> found = match(z, -2 * z[:, [2, 0, 1]] + 5)
    >>> found.permutation, found.correlations.round(3), round(found.score, 3)
    (array([1, 2, 0]), array([-1., -1., -1.]), 1.0)
    """
    return _match(correlation_matrix(z, z_hat, method))


def mcc(z: ArrayLike, z_hat: ArrayLike, method: Method = "pearson") -> float:
    r"""Mean correlation coefficient: mean |correlation| under the best one-to-one matching.

    .. math:: \mathrm{MCC} = \max_\pi \frac{1}{n} \sum_{i=1}^{n} \left|\mathrm{corr}(z_i, \hat z_{\pi(i)})\right|

    1 means recovered up to permutation, scaling and shift. Unrelated columns do not score 0: |correlation| of noise
    has mean sqrt(2 / (pi N)), and the matching picks the largest. Widths may differ: see `match`.

    Parameters
    ----------
    z : (N, n) true latents, or those of one run.
    z_hat : (N, n_hat) representation, or the latents of another run.
    method : "pearson" or "spearman".

    References
    ----------
    Hyvärinen & Morioka, NeurIPS 2016; Khemakhem et al., NeurIPS 2020 (ICE-BeeM), App. A.2.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(1000, 3))
    >>> round(mcc(z, z @ rng.normal(size=(3, 3))), 2), round(mcc(z, z[:, [2, 0, 1]] * [3, -1, 2]), 2)
    (0.75, 1.0)
    """
    return match(z, z_hat, method).score


def agreement(latents: ArrayLike | Sequence[ArrayLike], method: Method = "pearson") -> FloatArray:
    """Compare R runs on the same samples: entry (r, s) is ``mcc(latents[r], latents[s])``.

    Parameters
    ----------
    latents : (R, N, n) array, or R tables (N, n_r). With equal widths the result is symmetric; otherwise entry
        (r, s) averages over the columns of run r.
    method : "pearson" or "spearman".

    Returns
    -------
    (R, R). The diagonal is 1 unless a run has constant (collapsed) columns, which agree with nothing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(500, 2))
    >>> agreement([z, z[:, ::-1], rng.normal(size=(500, 2))]).round(1)
    array([[1. , 1. , 0.1],
           [1. , 1. , 0.1],
           [0.1, 0.1, 1. ]])
    """
    runs = {f"latents[{r}]": table(f"latents[{r}]", run) for r, run in enumerate(latents)}  # type: ignore[arg-type]
    if not runs:
        raise DataError("latents must hold at least one run, got none: pass an (R, N, n) array or a list of tables.")
    same_rows(**runs)
    units = [_unit(run, method) for run in runs.values()]
    return np.array([[_match(_correlate(one, other)).score for other in units] for one in units])


def strong_mcc(a: ArrayLike, b: ArrayLike, method: Method = "pearson") -> float:
    """MCC between two runs before any alignment: high only if they agree up to permutation and scaling.

    The same number as ``mcc(a, b)``, under the name Kivva et al. (2022, App. J.1) give it beside `weak_mcc`.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(1000, 2))
    >>> rotated = z @ [[0.8, 0.6], [-0.6, 0.8]]
    >>> round(strong_mcc(z, rotated), 1), round(weak_mcc(z, rotated), 1)
    (0.8, 1.0)
    """
    return mcc(a, b, method)


def weak_mcc(
    a: ArrayLike, b: ArrayLike, n_components: int | None = None, *, method: Method = "pearson", random_state: Seed = 0
) -> float:
    """Compute the MCC between two runs after an affine alignment: high if they agree up to an affine map.

    Both tables are projected on their leading canonical directions. These are fitted on one random half of the rows and
    scored on the other.

    Parameters
    ----------
    a, b : (N, n_a) and (N, n_b), N >= 4.
    n_components : int or None, default=None. Canonical directions kept; min(n_a, n_b) by default. Directions that do
        not exist because a table has lower rank count 0.
    method : "pearson" or "spearman".
    random_state : int, RandomState or None, default=0. Seed of the split; the default makes the result reproducible.

    References
    ----------
    Willetts & Paige (2021), Sec. 4.2; Kivva et al. (2022), App. J.1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a = rng.normal(size=(1000, 3))
    >>> b = a @ rng.normal(size=(3, 3)) + 0.01 * rng.normal(size=(1000, 3))
    >>> round(mcc(a, b), 1), round(weak_mcc(a, b), 2)
    (0.8, 1.0)
    """
    a, b = _pair(min_rows=4, a=a, b=b)
    fit, test = _halves(len(a), random_state)
    widest = min(a.shape[1], b.shape[1])
    n_components = widest if n_components is None else n_components
    if not 1 <= n_components <= widest:
        raise DataError(f"n_components must lie between 1 and {widest}, the smaller width, got {n_components}.")
    to_a, to_b = canonical_directions(a[fit], b[fit], n_components)
    return mcc((a[test] - a[fit].mean(axis=0)) @ to_a, (b[test] - b[fit].mean(axis=0)) @ to_b, method)


def canonical_directions(a: FloatArray, b: FloatArray, n_components: int) -> tuple[FloatArray, FloatArray]:
    """Solve canonical correlation analysis by singular values; zero columns stand for directions that do not exist.

    With a = U_a S_a V_a' and b = U_b S_b V_b' (centred, columns of unit norm) and U_a' U_b = P D Q', the directions
    are V_a S_a^-1 P and V_b S_b^-1 Q, and D holds the canonical correlations. Directions of no variance are left
    out of S, which makes collinear columns harmless.
    """
    bases, back = [], []
    for values in (a, b):
        unit, norm = _centred_unit(values)
        left, size, right = np.linalg.svd(unit, full_matrices=False)
        kept = size > max(unit.shape) * np.finfo(float).eps * size[0]
        bases.append(left[:, kept])
        back.append(right[kept].T / size[kept] / norm[:, None])
    p, _, q = np.linalg.svd(bases[0].T @ bases[1], full_matrices=False)
    directions = []
    for weights, rotation in zip(back, (p, q.T), strict=True):
        found = (weights @ rotation)[:, :n_components]
        directions.append(np.pad(found, ((0, 0), (0, n_components - found.shape[1]))))
    return directions[0], directions[1]


def r2(target: ArrayLike, source: ArrayLike, *, held_out: bool = False, random_state: Seed = 0) -> float:
    r"""Regress target on source linearly, with intercept, and average R² over the columns of target.

    .. math:: R^2 = \frac{1}{n} \sum_{i=1}^{n}
        \left(1 - \frac{\min_{w, c} \|t_i - S w - c\|^2}{\|t_i - \bar t_i\|^2}\right)

    - ``r2(target=z_hat, source=z)``: is the representation an affine function of the truth? The R² of Xu et al.
      (2026): high certifies identification up to an affine map if z_hat is as wide as z; a representation that
      dropped latents still scores 1.
    - ``r2(target=z, source=z_hat)``: can the truth be read from the representation? Extra columns do no harm, a
      dropped latent costs.

    Every column of target counts the same, whatever its scale; a constant column counts 0.

    Parameters
    ----------
    target : (N, n) responses.
    source : (N, m) explanatory variables.
    held_out : fit on one random half of the rows and score on the other; the value may then be negative. Without
        it R² grows with m / N even for noise.
    random_state : which half.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(1000, 2))
    >>> z_hat = z[:, :1] + 3  # one of the two latents was dropped
    >>> round(r2(target=z_hat, source=z), 2), round(r2(target=z, source=z_hat), 2)
    (1.0, 0.5)
    """
    target, source = _pair(min_rows=4 if held_out else 2, target=target, source=source)
    if not held_out:
        return float(_r2_columns(target, source).mean())
    fit, test = _halves(len(target), random_state)
    error = target[test] - _regress(target[fit], source[fit], source[test])
    norm = _centred_unit(target[test])[1]
    return float(np.where(np.isfinite(norm), 1 - np.square(error / norm).sum(axis=0), 0.0).mean())


def block_r2(z: ArrayLike, z_hat: ArrayLike, blocks: Sequence[Sequence[int]]) -> BlockR2:
    """Return how well blocks of latents are separated from each other, if only blocks can be identified.

    Each column i of z_hat is regressed on each true block b: table[i, b] is the R² of z_hat_i given z_b. A block of s
    latents then receives s columns, so that the sum of the chosen entries is largest (Hungarian algorithm), and its
    score is the R² of its latents given these columns.

    Parameters
    ----------
    z : (N, n) true latents.
    z_hat : (N, n_hat) representation.
    blocks : disjoint lists of columns of z, such as latents that are always active together.

    References
    ----------
    Xu, Lachapelle, Magliacane (2026), App. D.10 and E.5.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(1000, 3))
    >>> z_hat = np.column_stack([z[:, 2], z[:, :2] @ rng.normal(size=(2, 2))])
    >>> found = block_r2(z, z_hat, blocks=[[0, 1], [2]])
    >>> found.assignment, found.scores.round(2)
    (array([1, 0, 0]), array([1., 1.]))
    >>> found.table.round(2)
    array([[0., 1.],
           [1., 0.],
           [1., 0.]])
    """
    z, z_hat = _pair(z=z, z_hat=z_hat)
    true = _blocks(blocks, z.shape[1])
    values = np.array([_r2_columns(z_hat, z[:, block]) for block in true]).T
    slots = np.repeat(np.arange(len(true)), [len(block) for block in true])
    rows, chosen = linear_sum_assignment(values[:, slots], maximize=True)
    assignment = np.full(len(values), -1)
    assignment[rows] = slots[chosen]
    received = [z_hat[:, assignment == b] for b in range(len(true))]
    scores = np.array(
        [_r2_columns(z[:, b], own).mean() if own.size else 0.0 for b, own in zip(true, received, strict=True)]
    )
    return BlockR2(values, assignment, scores, float(scores.mean()))


def _pair(min_rows: int = 2, **tables: ArrayLike) -> tuple[FloatArray, FloatArray]:
    checked = {name: table(name, values, min_rows=min_rows) for name, values in tables.items()}
    same_rows(**checked)
    first, second = checked.values()
    return first, second


def _blocks(blocks: Sequence[Sequence[int]], width: int) -> list[list[int]]:
    lists = [[int(i) for i in block] for block in blocks]
    columns = [i for block in lists for i in block]
    if not lists or not all(lists):
        raise DataError(f"blocks must be lists of at least one column each, got {lists}. Drop the empty ones.")
    if len(set(columns)) < len(columns) or min(columns) < 0 or max(columns) >= width:
        raise DataError(f"blocks must be disjoint lists of columns 0 to {width - 1}, got {lists}.")
    return lists


def _halves(n_rows: int, random_state: Seed) -> tuple[IntArray, IntArray]:
    order = check_random_state(random_state).permutation(n_rows)
    return order[: n_rows // 2], order[n_rows // 2 :]


def _centred_unit(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Centre the columns and divide by their norm; a constant column has norm inf and becomes 0."""
    peak = np.abs(values).max(axis=0)
    peak[peak == 0] = 1
    scaled = values / peak  # so that squares neither overflow nor vanish
    varies = np.ptp(scaled, axis=0) > 4 * np.finfo(float).eps
    scaled = scaled - scaled.mean(axis=0)
    norm = np.where(varies, np.linalg.norm(scaled, axis=0), np.inf)
    return scaled / norm, norm * peak


def _unit(values: FloatArray, method: Method) -> FloatArray:
    if method not in get_args(Method):
        raise DataError(f"method must be one of {get_args(Method)}, got {method!r}.")
    return _centred_unit(rankdata(values, axis=0) if method == "spearman" else values)[0]


def _correlate(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.clip(a.T @ b, -1, 1)


def _match(correlations: FloatArray) -> Matching:
    n = len(correlations)
    rows, columns = linear_sum_assignment(np.abs(correlations), maximize=True)
    permutation, signed = np.full(n, -1), np.zeros(n)
    permutation[rows], signed[rows] = columns, correlations[rows, columns]
    return Matching(permutation, signed, float(np.abs(signed).mean()))


def _regress(target: FloatArray, source: FloatArray, new_source: FloatArray) -> FloatArray:
    """Predict target at new rows of source by least squares with intercept."""
    unit, norm = _centred_unit(source)
    centre = target.mean(axis=0)
    weights = np.linalg.lstsq(unit, target - centre, rcond=None)[0]
    return np.asarray((new_source - source.mean(axis=0)) / norm @ weights + centre)


def _r2_columns(target: FloatArray, source: FloatArray) -> FloatArray:
    """R² of each column of target, on the rows it was fitted to."""
    t, s = _centred_unit(target)[0], _centred_unit(source)[0]
    residual = t - s @ np.linalg.lstsq(s, t, rcond=None)[0]
    return np.where(t.any(axis=0), np.clip(1 - np.square(residual).sum(axis=0), 0, 1), 0.0)
