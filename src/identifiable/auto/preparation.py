"""What is decided of a table before its latents are looked for: columns, order of the rows, scale and logarithms."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm, rankdata

from identifiable.arrays import Array, BoolArray, FloatArray, Rows, hold_out
from identifiable.auto.spectrum import choose_scale, spectral_gap
from identifiable.auto.units import Units
from identifiable.data.columns import ColumnKind, column_kinds, gaussian_surrogate, jittered, monotone_columns
from identifiable.data.inspection import skewed
from identifiable.errors import DataError, FitFailedError, join_few
from identifiable.estimators.linear_ica import LinearICA

COMPARED_ROWS = 5000  # to which the linear models with and without logarithms are fitted
STANDARD_ERRORS = 3.0  # by which logarithms have to be better
MOST_LATENTS = 10  # of these linear models


@dataclass(frozen=True, eq=False)
class Preparation:
    """How a table (N, d) is used.

    Attributes
    ----------
    units : `Units` of the columns.
    ordered : whether the order of the rows counts.
    kinds : (d,) of the columns.
    reasons : a sentence for each decision that is not the usual one.
    """

    units: Units
    ordered: bool
    kinds: tuple[ColumnKind, ...]
    reasons: tuple[str, ...]

    @property
    def coarse(self) -> BoolArray:
        """Which used columns are discrete, rounded, or hold one value in many rows (d,)."""
        used = (self.units.vectors != 0).any(1)
        return used & np.array([not kind.continuous for kind in self.kinds])

    def rows(self, X: FloatArray) -> Array:
        """Return the rows (N, w) that models are fitted to: with uniform noise of one step in rounded columns."""
        return self.units.into(self._jittered(X, np.random.default_rng(0)))

    def surrogate(self, X: FloatArray) -> Array | None:
        """Return rows (N, w) of one Gaussian behind columns like these; None if no column is coarse.

        Coarse columns hold exactly the values of X, the others are Gaussian. What a model finds in these rows, too, is
        due to rounding, censoring or repeated values, and no mixture of latents.
        """
        if not self.coarse.any():
            return None
        rng, fine = np.random.default_rng(1), ~self.coarse & ~self.units.logs
        like = X.astype(np.float64)
        like[:, fine] = X[:, fine].mean(0) + X[:, fine].std(0) * norm.ppf((rankdata(X[:, fine], axis=0) - 0.5) / len(X))
        return self.units.into(self._jittered(gaussian_surrogate(like, rng), rng))

    def _jittered(self, X: FloatArray, rng: np.random.Generator) -> Array:
        smooth = ColumnKind(0)  # a value near zero may have no logarithm after it
        return jittered(
            X, [smooth if log else kind for kind, log in zip(self.kinds, self.units.logs, strict=True)], rng
        )


def prepare(
    X: FloatArray,
    names: Sequence[str],
    *,
    log: str | Sequence[str] = "auto",
    common_scale: bool | str = "auto",
    ordered: bool | str = "auto",
    n: int | None = None,
) -> Preparation:
    """Decide how the columns of X (N, d) are used; the parameters are those of `Identify`."""
    unused = monotone_columns(X)
    if (~unused).sum() < 2:
        raise DataError(
            f"One column cannot be a mixture of latents, and X has {(~unused).sum()} that is not a time or an index. "
            "Pass two columns or more."
        )
    reasons = []
    if unused.any():
        which = join_few([repr(str(name)) for name in np.array(names)[unused]])
        reasons.append(f"Not used: {which}, which rises or falls from row to row, as a time or an index does.")
    in_order = bool(unused.any()) if isinstance(ordered, str) else ordered
    if in_order:
        reasons.append("Rows are ordered: halves of the rows, and rows that are held out, are contiguous.")
    scale = choose_scale(X[:, ~unused]) if isinstance(common_scale, str) else None
    common = bool(common_scale) if scale is None else scale.common
    if scale is not None and scale.reason:
        reasons.append(scale.reason)
    plain = Units.of(X, np.zeros(X.shape[1], dtype=bool), common_scale=common, unused=unused)
    units, reason = _with_logs(X, names, log, plain, unused, n, common_scale=common)
    reasons.append(reason)
    found = Preparation(units, in_order, column_kinds(X), ())
    if found.coarse.any():
        which = join_few([repr(str(name)) for name in np.array(names)[found.coarse]], most=5)
        reasons.append(f"Discrete, rounded or censored, or with one value in many rows: {which}.")
    return replace(found, reasons=tuple(filter(None, reasons)))


def _with_logs(
    X: FloatArray,
    names: Sequence[str],
    log: str | Sequence[str],
    plain: Units,
    unused: BoolArray,
    n: int | None,
    *,
    common_scale: bool,
) -> tuple[Units, str]:
    """Return the units with or without logarithms, and why."""
    given = None if isinstance(log, str) else np.isin(np.array(names, dtype=str), list(map(str, log)))
    if given is not None:
        unknown = [repr(str(name)) for name in log if str(name) not in set(map(str, names))]
        if unknown:
            usable = join_few([repr(str(name)) for name in names], most=8)
            raise DataError(f"No logarithm of {join_few(unknown)}: the usable columns are {usable}. Correct log=.")
        low = given & (X <= 0).any(0)
        if low.any():
            found = [f"{str(name)!r} (smallest value {X[:, j].min():g})" for j, name in enumerate(names) if low[j]]
            raise DataError(f"Only positive columns have a logarithm. Got {join_few(found)}: correct log=.")
        return Units.of(X, given, unused=unused, common_scale=common_scale), ""
    tried = skewed(X) & ~unused
    if log == "none" or common_scale or not tried.any():
        return plain, ""
    logged = Units.of(X, tried, unused=unused)
    gain = _gain(X, logged, plain, n)
    which = f"logarithms of {join_few([repr(str(name)) for name in np.array(names)[tried]], most=5)}"
    if gain is None:
        return plain, ""
    words = f"by a linear model of independent latents ({gain.mean():+.2f} nats per row on held-out rows)"
    if gain.mean() > STANDARD_ERRORS * gain.std() / len(gain) ** 0.5:
        return logged, f"Used: {which}, which are described better than the values {words}."
    return plain, f"Not used: {which}, which are positive and skewed, but described no better than the values {words}."


def _gain(X: FloatArray, one: Units, other: Units, n: int | None) -> Array | None:
    """Return by how much log p(x) of each held-out row is higher in the first units; None if it cannot be compared."""
    if one.vectors.shape[1] != other.vectors.shape[1]:
        return None
    train, held = hold_out(len(X), 0, fraction=0.2)
    train = np.random.default_rng(0).permutation(train)[:COMPARED_ROWS]
    try:
        found, reference = (_log_density(X, units, train, held, n) for units in (one, other))
    except (DataError, FitFailedError):
        return None
    return found - reference


def _log_density(X: FloatArray, units: Units, train: Rows, held: Rows, n: int | None) -> Array:
    Y, new = units.into(X[train]), units.into(X[held])
    variances = np.linalg.eigvalsh(np.atleast_2d(np.cov(Y.T)))[::-1]
    count = n or spectral_gap(variances, len(Y), X.shape[1]) or min(len(variances), MOST_LATENTS)
    model = LinearICA(count, n_restarts=1, random_state=0).fit(Y)
    return np.asarray(model.score_samples(new)) - units.log_volume(new)
