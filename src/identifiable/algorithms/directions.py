r"""Which directions of the latents a decoder uses, so that x carries information about them.

Let Σ be the covariance of the prior mixture, Λ the precision of z within the cluster of x, and A_c'A_c the Fisher
information of column c on z; for Gaussian noise A_c = ∂f_c/∂z / σ_c. Then the precision of z given x is about
Λ + Σ_c A_c'A_c. What columns tell in common leaves the covariance

    S = E (Λ + Σ_c A_c' (I - H_c) A_c)⁻¹,      H_c = A_c (Λ + Σ_b A_b'A_b)⁻¹ A_c'   (the leverage of column c),

where (I - H_c)⁻¹ is the variance of column c given all others, in units of its noise. Leverage is removed because
learnt noise is ambiguous: a spare latent can take over the noise of a column, with the same distribution of x.

The eigenvalues 1 - λ of Σ⁻¹ S do not change with an affine map of the latents: λ is the share of the variance of a
direction that x explains, and ½ log₂ 1/(1 - λ) the bits. One column alone tells half a bit at most. A direction is in
use from one bit on, λ > 3/4, where x halves its standard deviation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from identifiable.arrays import Array

IN_USE = 0.75  # one bit
SHOWN = 12  # shares that are printed


@dataclass(frozen=True, eq=False, repr=False)
class Directions:
    """How much x tells about each direction of the latents.

    Attributes
    ----------
    shares : (n,) λ of each direction, the largest first; unchanged by an affine map of the latents.
    vectors : (n, n) columns v, for which the values of a direction are z @ v, uncorrelated and with unit variance under
        the prior.
    of_latents : (n,) share of the variance of every single latent that x explains.

    Examples
    --------
    >>> A = torch.tensor([[[3.0, 0.0], [3.0, 0.0], [0.0, 9.0]]])
    >>> found = directions(A, torch.eye(2)[None], np.eye(2), [1, 1, 1])
    >>> found  # one column alone changes with the second latent
    Directions(1 of 2 in use. Share explained by x: 0.90, 0.50)
    >>> found.of_latents.round(2), found.used
    (array([0.9, 0.5]), 1)
    """

    shares: Array
    vectors: Array
    of_latents: Array

    @property
    def used(self) -> int:
        """Number of directions of which x explains more than 3/4, one bit."""
        return int((self.shares > IN_USE).sum())

    def __repr__(self) -> str:
        listed = ", ".join(f"{share:.2f}" for share in self.shares[:SHOWN])
        more = f", and {len(self.shares) - SHOWN} smaller" if len(self.shares) > SHOWN else ""
        return f"Directions({self.used} of {len(self.shares)} in use. Share explained by x: {listed}{more})"


def directions(A: Tensor, precision: Tensor, covariance: Array, sizes: Sequence[int]) -> Directions:
    """Return the directions that x explains.

    Parameters
    ----------
    A : (N, sum of sizes, n) square roots of the information at N points, stacked over columns.
    precision : (N, n, n) of the latents under the prior within the cluster of each point.
    covariance : (n, n) of the latents under the prior.
    sizes : rows of A of every column.
    """
    C = np.linalg.cholesky(covariance)
    unit = torch.as_tensor(C, device=A.device)
    within = unit.mT @ precision.double() @ unit
    told = shared_information(A.double() @ unit, within, sizes)
    open_, W = np.linalg.eigh(torch.linalg.inv(within + told).mean(0).cpu().numpy())
    shares = np.clip(1 - open_, 0, 1)
    explained = np.square(C @ W) @ shares / np.diag(covariance)
    return Directions(shares, np.linalg.solve(C.T, W), explained)


def shared_information(A: Tensor, precision: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return Σ_c A_c' (I - H_c) A_c, (N, n, n), for A (N, sum of sizes, n) and precisions (N, n, n)."""
    V = torch.linalg.inv(precision + A.mT @ A)
    total = torch.zeros_like(V)
    for own in A.split(list(sizes), 1):
        total += own.mT @ (own - own @ V @ (own.mT @ own))
    return total
