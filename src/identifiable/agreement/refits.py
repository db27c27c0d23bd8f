"""Refits of one estimator to other rows and from other seeds, compared on rows that none of them has seen."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.fft import dct
from sklearn.base import clone

from identifiable.arrays import FloatArray, Rows, hold_out
from identifiable.errors import DataError
from identifiable.metrics import Matching, match

LEAST_ROWS = 100  # ten of them are held out


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted estimator, and its latents (H, n) of the held-out rows."""

    model: Any
    latents: FloatArray


@dataclass(frozen=True, eq=False)
class Refits:
    """A table split into rows to fit to and held-out rows to compare fits on.

    Attributes
    ----------
    X : (N, d) array or DataFrame.
    u : (N,) or (N, m) auxiliary variable that every fit is given, or None.
    train, held : row numbers; `train` is in random order.
    seed : of the split.
    ordered : whether the order of the rows counts: held-out rows and halves are then contiguous, since
        neighbouring rows are similar, and random halves of a recording agree for that reason alone.

    Examples
    --------
    >>> from identifiable import SparseUnmixing
    >>> from identifiable.data import make_pdgmm
    >>> refits = Refits.of(make_pdgmm(1000, n=3, layers=1, random_state=0).x, seed=0)
    >>> one, other = refits.halves(SparseUnmixing())
    >>> round(refits.match(one, other).score, 3)
    1.0
    """

    X: Any
    u: Any
    train: Rows
    held: Rows
    seed: int
    ordered: bool = False

    @classmethod
    def of(cls, X: ArrayLike, u: Any = None, *, seed: int, fraction: float = 0.1, ordered: bool = False) -> Self:
        """Hold out a fraction of the rows, at most 1000; if rows are ordered, those in the middle."""
        data = X if isinstance(X, pd.DataFrame) else np.asarray(X)
        if data.ndim != 2 or len(data) < LEAST_ROWS:
            raise DataError(
                f"Fits are compared on held-out rows, so a table (N, d) of at least {LEAST_ROWS} rows is needed; got "
                f"shape {data.shape}. Pass more rows."
            )
        u = u if u is None or hasattr(u, "iloc") else np.asarray(u)
        if u is not None and len(u) != len(data):
            raise DataError(f"u must have one row per row of X: X has {len(data)}, u has {len(u)}.")
        train, held = hold_out(len(data), seed, fraction=fraction)
        if ordered:
            start = (len(data) - len(held)) // 2
            held = np.arange(start, start + len(held))
            train = np.setdiff1d(np.arange(len(data)), held)
        return cls(data, u, np.random.default_rng(seed + 1).permutation(train), held, seed, ordered)

    def take(self, rows: Rows) -> tuple[Any, ...]:
        """Return these rows of X and, where there is a u, of u: the arguments of a fit."""
        return tuple(a.iloc[rows] if hasattr(a, "iloc") else a[rows] for a in (self.X, self.u) if a is not None)

    def fit(self, estimator: Any, rows: Rows, seed: int) -> Fitted:
        """Fit a clone of the estimator with this seed to these rows."""
        model = clone(estimator)
        seeds = {k: seed for k in model.get_params() if k == "random_state" or k.endswith("__random_state")}
        model.set_params(**seeds).fit(*self.take(rows))
        return Fitted(model, np.asarray(model.transform(self.take(self.held)[0])))

    def split(self, rows: Rows, number: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """Return the `number`-th split of rows into halves: at random or, if rows are ordered, two quarters each."""
        if not self.ordered:
            one, other = np.array_split(rng.permutation(rows), 2)
            return one, other
        quarters, pair = np.array_split(np.sort(rows), 4), 1 + number % 3
        others = [k for k in (1, 2, 3) if k != pair]
        return np.r_[quarters[0], quarters[pair]], np.r_[quarters[others[0]], quarters[others[1]]]

    def halves(self, estimator: Any) -> tuple[Fitted, Fitted]:
        """Fit the estimator to two disjoint halves of the training rows, from two seeds."""
        one, other = np.array_split(np.sort(self.train) if self.ordered else self.train, 2)
        return self.fit(estimator, one, self.seed), self.fit(estimator, other, self.seed + 1)

    def match(self, a: Fitted, b: Fitted) -> Matching:
        """Match the latents of two fits on the held-out rows, the wider fit first; NaN matches nothing."""
        wide, narrow = (a.latents, b.latents) if a.latents.shape[1] >= b.latents.shape[1] else (b.latents, a.latents)
        if np.isfinite(wide).all() and np.isfinite(narrow).all():
            return match(wide, narrow)
        return Matching(np.full(wide.shape[1], -1), np.zeros(wide.shape[1]), 0.0)

    def remixed(self) -> Self:
        """Return the same rows in other coordinates: columns of unit scale, times unequal gains, rotated."""
        x = np.asarray(self.X, dtype=np.float64)
        scale = x[self.train].std(0)
        gains = np.geomspace(2, 1, x.shape[1]) / np.where(scale > 0, scale, 1)
        return replace(self, X=(x - x[self.train].mean(0)) * gains @ dct(np.eye(x.shape[1]), norm="ortho"))
