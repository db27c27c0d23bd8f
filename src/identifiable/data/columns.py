"""Properties of single columns that can look like latents: atoms, few values, rounding, an order of the rows.

Methods for intermittently active latents look for values that many rows share. A detection limit, an imputed value or
rounding has such values, too, but in one column, whatever is mixed. The functions here find these columns, and measure
whether a latent is one column only or is carried by very few rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import norm, rankdata

from identifiable.arrays import Array, BoolArray, FloatArray, IntArray

MATCHING_STEPS = 5  # of the correlation behind coarse columns
MOST_ROWS = 20_000  # compared with each other, evenly spaced: enough for a correlation of 0.999

Place = Literal["minimum", "maximum", "mean", "median", "interior"]


@dataclass(frozen=True)
class ColumnThresholds:
    """When a column has a property; all chosen by reasoning.

    Attributes
    ----------
    atom_share : smallest share of the rows in an atom. An inactive latent that is rarer than this is not found either.
    atom_rows : smallest number of rows in an atom. A value of a continuous column that neighbouring values share by
        chance has 1 row, and 10 in no column of a million.
    atom_ratio : an atom has as many times the rows of the values next to it. A rounded gamma variable of shape 0.3,
        which is as peaked as measurements get, reaches 4.
    most_values : a discrete column has no more values, nor more than the square root of its rows. A Gaussian column
        with 50 equidistant values has steps of 1/8 sd.
    coarse : smallest step of a rounded column, in standard deviations. A value in the middle of a Gaussian then holds
        4 % of the rows, as many as a latent leaves inactive in some data sets.
    same, estimation, most : a latent is a column if its squared correlation with it is at least 1 - `same` (a
        correlation of 0.999), or 1 - `estimation` (d - 1) / N, but not less than 1 - `most` (0.99). In N rows of d
        independent columns, FastICA gives each of the d - 1 other weights an error of variance 0.6/N (uniform) to 2/N
        (exponential) on average; three times that admits single latents.
    clipped : share of the rows at either end, and at least one row, whose values count as the next ones in
        `robust_correlation`. One row among hundreds then has no more weight than its neighbours.
    carried : a latent with fewer `effective_rows` is carried by single rows. In 100 Laplace rows there are 17.
    """

    atom_share: float = 0.01
    atom_rows: int = 10
    atom_ratio: float = 5.0
    most_values: int = 50
    coarse: float = 0.1
    same: float = 0.002
    estimation: float = 6.0
    most: float = 0.02
    clipped: float = 0.005
    carried: float = 10.0


THRESHOLDS = ColumnThresholds()


@dataclass(frozen=True)
class Atom:
    """A value that many rows of a column share: its place in the column, the value, and the share of the rows."""

    place: Place
    value: float
    share: float


@dataclass(frozen=True)
class ColumnKind:
    """What kind of values a column holds.

    Attributes
    ----------
    n_values : number of different values, those of the atoms included.
    discrete : whether there are few values for the number of rows, as in counts and answers of a survey.
    step : step of the lattice on which the values lie, if it is coarse; 0 otherwise.
    coarseness : step in standard deviations.
    atoms : values that hold many more rows than the values next to them, the largest first.
    """

    n_values: int
    discrete: bool = False
    step: float = 0.0
    coarseness: float = 0.0
    atoms: tuple[Atom, ...] = ()

    @property
    def rounded(self) -> bool:
        """Whether the values lie on a coarse lattice."""
        return self.step > 0

    @property
    def heaped(self) -> bool:
        """Whether there are more atoms than two limits and a filled-in value, as if some rows only were rounded."""
        return len(self.atoms) > 3

    @property
    def censored(self) -> bool:
        """Whether there is an atom at the minimum or at the maximum, as at a detection limit."""
        return not self.heaped and any(atom.place in ("minimum", "maximum") for atom in self.atoms)

    @property
    def imputed(self) -> bool:
        """Whether there is an atom at the mean or at the median of the other values."""
        return not self.heaped and any(atom.place in ("mean", "median") for atom in self.atoms)

    @property
    def continuous(self) -> bool:
        """Whether none of these findings applies."""
        return not (self.discrete or self.rounded or self.atoms)

    def describe(self, name: str) -> tuple[str, ...]:
        """Return a sentence for each finding."""
        words = []
        on_lattice = f" {self.step:g} apart" if self.rounded else ""
        if self.discrete:
            words.append(f"{name!r} is discrete: it has {self.n_values} different values{on_lattice}.")
        elif self.rounded:
            size = f"{self.coarseness:.2g} standard deviations"
            words.append(f"{name!r} is rounded to steps of {self.step:.3g} ({size}).")
        if self.heaped:
            share = 100 * sum(atom.share for atom in self.atoms)
            words.append(
                f"{name!r} is rounded in part: {share:.0f} % of the rows have one of {len(self.atoms)} values."
            )
        for atom in () if self.heaped else self.atoms:
            rows = f"{100 * atom.share:.0f} % of the rows have"
            if atom.place in ("minimum", "maximum"):
                end = "smallest" if atom.place == "minimum" else "largest"
                words.append(f"{name!r} is censored or inactive: {rows} its {end} value {atom.value:.4g}.")
            elif atom.place in ("mean", "median"):
                words.append(f"{name!r} is imputed: {rows} the {atom.place} {atom.value:.4g} of the others.")
            else:
                words.append(f"{name!r} repeats a value: {rows} the value {atom.value:.4g}.")
        return tuple(words)


def column_kinds(x: FloatArray, thresholds: ColumnThresholds = THRESHOLDS) -> tuple[ColumnKind, ...]:
    """Return the kind of each column of x (N, d), without missing values.

    An atom says something of its column only. A column on which one intermittently active latent acts has an atom, too.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(1000, 4))
    >>> x[:, 1], x[:, 2], x[:300, 3] = x[:, 1].clip(-0.5), x[:, 2].round(), x[300:, 3].mean()
    >>> for name, kind in zip("abcd", column_kinds(x)):
    ...     print(name, kind.continuous, *kind.describe(name))
    a True
    b False 'b' is censored or inactive: 33 % of the rows have its smallest value -0.5.
    c False 'c' is discrete: it has 8 different values 1 apart.
    d False 'd' is imputed: 30 % of the rows have the mean 0.001906 of the others.
    """
    return tuple(_kind(np.asarray(values, dtype=np.float64), thresholds) for values in x.T)


def _kind(values: Array, thresholds: ColumnThresholds) -> ColumnKind:
    values = np.sort(values)
    rounding = 8 * np.finfo(np.float64).eps * max(abs(values[0]), abs(values[-1]))
    first = np.flatnonzero(np.append(True, np.diff(values) > rounding))  # of each different value
    distinct, counts = values[first], np.diff(np.append(first, len(values)))
    in_atom = _are_atoms(counts, len(values), thresholds)
    others, other_counts = distinct[~in_atom], counts[~in_atom]
    rows = int(other_counts.sum())
    few = bool(len(others) <= min(rows**0.5, thresholds.most_values))
    step, coarseness = _lattice(others, np.repeat(others, other_counts), thresholds)
    atoms = [
        Atom(_place(int(i), distinct, others, other_counts), float(distinct[i]), float(counts[i] / len(values)))
        for i in np.flatnonzero(in_atom)
    ]
    atoms.sort(key=lambda atom: -atom.share)
    return ColumnKind(len(distinct), few, step, coarseness, tuple(atoms))


def _are_atoms(counts: IntArray, n_rows: int, thresholds: ColumnThresholds) -> BoolArray:
    """Return which values hold many more rows than the two values on either side (four on one side at an end)."""
    found = np.zeros(len(counts), dtype=bool)
    least = max(thresholds.atom_rows, thresholds.atom_share * n_rows)
    for i in np.flatnonzero(counts >= least).tolist():
        first = min(max(i - 2, 0), max(len(counts) - 5, 0))
        near = np.delete(counts[first : first + 5], i - first)
        found[i] = len(near) > 0 and counts[i] >= thresholds.atom_ratio * np.median(near)
    return found


def _lattice(others: Array, values: Array, thresholds: ColumnThresholds) -> tuple[float, float]:
    """Return the step of the lattice of these different values, and the step in standard deviations; or zeros.

    The step is the greatest common divisor of the gaps, by Euclid's algorithm, which ends as soon as it is fine.
    """
    if len(values) < thresholds.atom_rows or len(others) < 2:
        return 0.0, 0.0
    sd, quartiles = float(values.std()), np.quantile(values, [0.25, 0.75])
    scale = min(sd, float(np.ptp(quartiles)) / 1.349 or sd)  # outliers widen sd only
    gaps, tolerance = np.diff(others), 1e-4 * scale
    step = float(gaps.min())
    while step >= thresholds.coarse * scale:
        remainders = np.abs(gaps - step * np.round(gaps / step))
        if remainders.max() <= tolerance:
            return step, step / scale
        step = float(remainders[remainders > tolerance].min())
    return 0.0, 0.0


def _place(i: int, distinct: Array, others: Array, counts: IntArray) -> Place:
    """Return where the i-th of the different values lies among the others, given with their numbers of rows."""
    if i in (0, len(distinct) - 1):
        return "minimum" if i == 0 else "maximum"
    value, rows = distinct[i], counts.sum()
    if rows == 0:
        return "interior"
    mean = float(counts @ others / rows)
    if abs(value - mean) <= 1e-6 * np.sqrt(counts @ (others - mean) ** 2 / rows):
        return "mean"
    below, above = counts[others < value].sum(), counts[others > value].sum()
    return "median" if abs(int(below) - int(above)) <= 1 else "interior"


def monotone_columns(x: FloatArray) -> BoolArray:
    """Return which columns of x (N, d) rise strictly from row to row, or fall strictly; missing values are skipped.

    The probability that a column of N exchangeable rows does so is 2 / N!: it is a time, an index, or the order of the
    rows. Fewer than 10 rows are not enough to tell.

    Examples
    --------
    >>> t = np.arange(200) / 100
    >>> monotone_columns(np.column_stack([t, np.exp(-t), np.sin(9 * t)]))
    array([ True,  True, False])
    """
    found = np.zeros(x.shape[1], dtype=bool)
    for j, values in enumerate(x.T):
        steps = np.diff(values[np.isfinite(values)])
        found[j] = len(steps) >= 9 and bool((steps > 0).all() or (steps < 0).all())
    return found


def jittered(x: FloatArray, kinds: Sequence[ColumnKind], rng: np.random.Generator) -> Array:
    """Return x (N, d) with uniform noise of one step in each rounded column.

    A latent that is found in x only, and not after this, is due to rounding.
    """
    steps = np.array([kind.step for kind in kinds])
    return x + steps * rng.uniform(-0.5, 0.5, size=x.shape)


def gaussian_surrogate(x: FloatArray, rng: np.random.Generator) -> Array:
    r"""Return rows (N, d) of a Gaussian copula, whose columns hold exactly the values of x (N, d).

    .. math:: y_j = F_j^{-1}(\Phi(g_j)), \qquad g \sim N(0, R),

    with R such that the normal scores of y have the correlation of those of x, however coarse columns are. Rounding,
    censoring, outliers and skewness of the columns are those of x, but behind the columns there is one Gaussian, whose
    axes are not determined. A gain in likelihood, or rows on hyperplanes, that y has to the same amount, is due to
    single columns and not to a mixture. Agreement of refits is no such quantity: columns that are not Gaussian fix the
    axes of y as well.
    """
    n_rows, d = x.shape
    wanted, ordered = _score_correlation(x), np.sort(x, axis=0).astype(np.float64)
    noise, R = rng.normal(size=(n_rows, d)), wanted
    for _ in range(MATCHING_STEPS + 1):
        values, vectors = np.linalg.eigh(R)
        g = noise * np.sqrt(values.clip(0)) @ vectors.T
        y = np.take_along_axis(ordered, g.argsort(axis=0).argsort(axis=0), axis=0)
        R = R + wanted - _score_correlation(y)
        R = R / np.sqrt(np.outer(np.diag(R), np.diag(R)))
    return y


def _score_correlation(x: FloatArray) -> Array:
    """Return the correlations (d, d) of the normal scores of the columns of x (N, d); equal values share a score."""
    scores = norm.ppf((rankdata(x, axis=0) - 0.5) / len(x))
    return np.nan_to_num(np.atleast_2d(_correlations(scores, scores)))


def robust_correlation(a: FloatArray, b: FloatArray, thresholds: ColumnThresholds = THRESHOLDS) -> Array:
    """Return the correlations (n, m) of the columns of a (N, n) and b (N, m), each with its extreme values clipped.

    The values of the 0.5 % most extreme rows at either end, and of at least one row, are set to the next value. One row
    cannot make two columns agree. Ranks would do this, too, but they turn small noise around an inactive value into
    disagreement. The correlation is 0 where a column is constant after clipping.

    Examples
    --------
    >>> a, b = np.random.default_rng(0).normal(size=(2, 500, 1))
    >>> a[7] = b[7] = 1000.0
    >>> round(float(np.corrcoef(a.T, b.T)[0, 1]), 2), round(float(robust_correlation(a, b)[0, 0]), 1)
    (1.0, 0.0)
    """
    return _correlations(_clipped(a, thresholds.clipped), _clipped(b, thresholds.clipped))


def same_column(z: FloatArray, x: FloatArray, thresholds: ColumnThresholds = THRESHOLDS) -> IntArray:
    """Return for each latent in z (N, n) the number of the column of x (N, d) that it equals; -1 if there is none (n,).

    A latent equals a column if the squared `robust_correlation`, or that of the ranks, for a monotone function of the
    column, differs from 1 by no more than the error of estimated weights (see `ColumnThresholds.same`).

    Examples
    --------
    >>> x = np.random.default_rng(0).laplace(size=(1000, 3))
    >>> same_column(np.column_stack([-2 * x[:, 2] + 1, x[:, 0] + x[:, 1], np.exp(x[:, 1])]), x)
    array([ 2, -1,  1])
    """
    best, error = _nearest_columns(z, x, thresholds)
    return np.where(error <= _error_of_weights(x, thresholds), best, -1)


def are_columns(z: FloatArray, x: FloatArray, thresholds: ColumnThresholds = THRESHOLDS) -> bool:
    """Return whether the latents z (N, n) are the n columns of x, each another one: whether nothing is mixed.

    The errors of estimated weights are compared on average over the latents; single ones may be larger.

    Examples
    --------
    >>> x = np.random.default_rng(0).laplace(size=(1000, 2))
    >>> are_columns(x[:, ::-1], x), are_columns(x @ [[1.0, 1.0], [1.0, -1.0]], x)
    (True, False)
    """
    best, error = _nearest_columns(z, x, thresholds)
    every = len(best) == x.shape[1] and len(set(best.tolist())) == len(best)
    return bool(every and error.max() <= thresholds.most and error.mean() <= _error_of_weights(x, thresholds))


def _nearest_columns(z: FloatArray, x: FloatArray, thresholds: ColumnThresholds) -> tuple[IntArray, Array]:
    """Return the column that is most like each latent (n,), and by how much the squared correlation differs from 1."""
    if len(x) > MOST_ROWS:
        some = np.linspace(0, len(x) - 1, MOST_ROWS).astype(int)
        z, x = z[some], x[some]
    by_value = robust_correlation(z, x, thresholds)
    by_rank = _correlations(rankdata(z, axis=0), rankdata(x, axis=0))
    shared = np.maximum(by_value**2, by_rank**2)
    best = shared.argmax(axis=1)
    return best, 1 - shared[np.arange(len(best)), best]


def _error_of_weights(x: FloatArray, thresholds: ColumnThresholds) -> float:
    n_rows, d = x.shape
    return min(max(thresholds.same, thresholds.estimation * (d - 1) / n_rows), thresholds.most)


def effective_rows(z: FloatArray) -> Array:
    r"""Return by how many rows each latent in z (N, n) is carried (n,).

    .. math:: \frac{(\sum_t w_t)^2}{\sum_t w_t^2}, \qquad w_t = (z_t - \operatorname{median} z)^2.

    It is N / 3 for a Gaussian, N / 6 for a Laplace distribution, p N / 3 for a Gaussian that is active with
    probability p, and about 1 for a latent that one outlying row determines.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(3000, 2))
    >>> z[5, 1] = 500.0
    >>> effective_rows(z).round().astype(int)
    array([1022,    1])
    """
    distance = np.abs(z.astype(np.float64) - np.median(z, axis=0))
    largest = distance.max(axis=0)
    weights = (distance / np.where(largest > 0, largest, 1.0)) ** 2  # scaled: squares neither overflow nor vanish
    total = weights.sum(axis=0)
    return np.where(total > 0, total**2 / np.maximum((weights**2).sum(axis=0), 1e-300), 0.0)


def _clipped(x: FloatArray, share: float) -> Array:
    rows = min(max(1, round(share * len(x))), (len(x) - 1) // 2)
    ordered = np.sort(x, axis=0)
    return np.asarray(np.clip(x, ordered[rows], ordered[len(x) - 1 - rows]), dtype=np.float64)


def _correlations(a: Array, b: Array) -> Array:
    a, b = (_standardised(part) for part in (a, b))
    return a.T @ b / len(a)


def _standardised(x: Array) -> Array:
    centred = x - x.mean(axis=0)
    largest = np.abs(centred).max(axis=0)
    centred = centred / np.where(largest > 0, largest, 1.0)  # squares neither overflow nor vanish
    sd = centred.std(axis=0)
    noise = 1e-12 * np.abs(x).max(axis=0) >= largest  # a constant, up to rounding
    return np.where(noise, 0.0, centred / np.where(sd > 0, sd, 1.0))
