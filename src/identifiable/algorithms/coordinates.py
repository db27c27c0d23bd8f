"""Principal coordinates of a table, in which every linear and trained method works."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from identifiable.algorithms.secants import unfolding_directions, widest_first
from identifiable.arrays import Array, FloatArray

RANK_TOLERANCE = 1e-9  # a direction varies if its variance exceeds this share of the largest one,
LEAST_EIGENVALUE = 1e-13  # or this share where the number of coordinates is given: what rounding leaves
LEAST_NOISE = 1e-10  # variance of the residual directions


@dataclass(frozen=True, eq=False)
class Coordinates:
    r"""Principal coordinates :math:`y = V_n^\top S^{-1} (x - m)` and residual coordinates, the rest of :math:`V`.

    m are the column means, S = diag(scale), and V (d, r) the eigenvectors of the covariance of S⁻¹(x - m) whose
    variance is not zero, the largest first. The first n make up y.

    Attributes
    ----------
    mean, scale : (d,) of the columns.
    basis : (d, r) V, orthonormal.
    variances : (r,) of all coordinates.
    n : number of principal coordinates.

    Examples
    --------
    >>> a = np.random.default_rng(0).normal(size=(50, 2))
    >>> X = np.c_[a, a @ [1.0, 2.0]]  # three columns of rank two
    >>> c = Coordinates.fit(X, 1)
    >>> y, residual = c.project(X)
    >>> y.shape, residual.shape
    ((50, 1), (50, 1))
    >>> bool(np.allclose(c.lift(y, residual), X))
    True
    """

    mean: Array
    scale: Array
    basis: Array
    variances: Array
    n: int

    @classmethod
    def fit(cls, X: FloatArray, n: int | None = None, *, standardise: bool = True) -> Self:
        """Compute the coordinates of rows X (N, d).

        Parameters
        ----------
        X : (N, d). Columns that are constant here do not contribute.
        n : number of principal coordinates, at most the rank; None: the rank.
        standardise : divide each column by its standard deviation, or all columns by one common scale.
        """
        mean, scale = X.mean(0, dtype=np.float64), X.std(0, dtype=np.float64)
        scale = scale if standardise else np.full_like(scale, np.sqrt((scale**2).mean()))
        scale = np.where(scale > 0, scale, 1.0)
        standard = (X - mean) / scale
        return cls._of(mean, scale, standard.T @ standard / len(X), n)

    @classmethod
    def of_covariance(cls, mean: Array, covariance: Array, n: int | None = None) -> Self:
        """Compute the coordinates of standardised columns of rows with this mean (d,) and covariance (d, d)."""
        scale = np.sqrt(np.diag(covariance))
        return cls._of(mean, scale, covariance / np.outer(scale, scale), n)

    @classmethod
    def _of(cls, mean: Array, scale: Array, covariance: Array, n: int | None) -> Self:
        values, vectors = np.linalg.eigh(covariance)
        values, vectors = values[::-1], vectors[:, ::-1]
        rank = int((values > (RANK_TOLERANCE if n is None else LEAST_EIGENVALUE) * values[0]).sum())
        return cls(mean, scale, vectors[:, :rank].copy(), values[:rank].copy(), rank if n is None else min(n, rank))

    def unfolded(self, X: FloatArray, n: int) -> Self:
        """Return coordinates of which the first n do not fold the rows X (N, d), where any n do; see `secants`.

        V is rotated: the first n coordinates are uncorrelated, and so are the others, but not one with another.
        """
        y = (X - self.mean) / self.scale @ self.basis
        first = unfolding_directions(y, n)
        others = np.linalg.qr(first, mode="complete")[0][:, n:]
        rotation = np.concatenate([first, widest_first(y, others)], 1)
        return replace(self, basis=self.basis @ rotation, variances=((y @ rotation) ** 2).mean(0), n=n)

    @property
    def rank(self) -> int:
        """Number r of directions in which the rows vary."""
        return len(self.variances)

    @property
    def sd(self) -> Array:
        """Standard deviations (n,) of the principal coordinates."""
        return np.sqrt(self.variances[: self.n])

    @property
    def noise(self) -> float:
        """Standard deviation of the residual coordinates, if they are isotropic noise; 1 where there are none."""
        return float(np.sqrt(max(self.variances[self.n :].mean(), LEAST_NOISE))) if self.n < self.rank else 1.0

    @property
    def log_volume(self) -> float:
        """½ log det(Vᵀ S² V): log p(x) = log p(y, residual) - log_volume, on the subspace in which the rows vary."""
        return 0.5 * float(np.linalg.slogdet((self.basis.T * self.scale**2) @ self.basis)[1])

    def project(self, X: FloatArray) -> tuple[Array, Array]:
        """Return the principal coordinates (N, n) of rows X (N, d), and the residual ones (N, r - n)."""
        y = ((X - self.mean) / self.scale) @ self.basis
        return y[:, : self.n], y[:, self.n :]

    def lift(self, y: FloatArray, residual: FloatArray | None = None) -> Array:
        """Return the rows (N, d) with these coordinates; without a residual, those with residual zero."""
        x = y @ self.basis[:, : self.n].T
        if residual is not None:
            x = x + residual @ self.basis[:, self.n :].T
        return x * self.scale + self.mean


@contextmanager
def one_thread() -> Iterator[int]:
    """Keep torch and BLAS to one thread: for small products, threads that wait for each other cost more than they save.

    Two fits side by side on two cores, each with two threads, take more than ten times as long as with one thread each.
    Yields the number of threads that torch had.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            yield threads
    finally:
        torch.set_num_threads(threads)


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # finding the loaded libraries takes milliseconds
