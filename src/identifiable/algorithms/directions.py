r"""Which directions of the latents a decoder uses, so that x carries information about them.

Let Σ be the prior covariance of z, and A_c'A_c the Fisher information of column c on z; for Gaussian noise
A_c = ∂f_c/∂z / σ_c. Then the precision of z given x is about Σ⁻¹ + Σ_c A_c'A_c. The information that columns share is

    G = E Σ_c A_c' (I - H_c) A_c,      H_c = A_c (Σ⁻¹ + Σ_b A_b'A_b)⁻¹ A_c'   (the leverage of column c),

where (I - H_c)⁻¹ is the variance of column c given all others, in units of its noise. Leverage is removed because
learnt noise is ambiguous: a spare latent can take over the noise of a column, with the same distribution of x. Such a
latent, on which one column alone depends, has an eigenvalue of at most 1.

The eigenvalues γ of G Σ do not change with an affine map of the latents. The share of a direction that x explains is
λ = γ / (1 + γ), or ½ log₂ 1/(1 - λ) bits: half a bit at most from one column. A direction is in use from one bit on,
λ > 3/4, where x halves its standard deviation.
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
    >>> found = directions(torch.tensor([[[3.0, 0.0], [3.0, 0.0], [0.0, 9.0]]]), np.eye(2), [1, 1, 1])
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


def directions(A: Tensor, covariance: Array, sizes: Sequence[int]) -> Directions:
    """Return the directions that x explains.

    Parameters
    ----------
    A : (N, sum of sizes, n) square roots of the information at N points, stacked over columns.
    covariance : (n, n) of the latents.
    sizes : rows of A of every column.
    """
    C = np.linalg.cholesky(covariance)
    shared = shared_information(A.double() @ torch.as_tensor(C, device=A.device), sizes).cpu().numpy()
    gamma, W = (one[..., ::-1] for one in np.linalg.eigh(shared))
    shares = gamma.clip(min=0) / (1 + gamma.clip(min=0))
    left = np.square(C @ W) @ (1 - shares) / np.diag(covariance)
    return Directions(shares, np.linalg.solve(C.T, W), 1 - left)


def shared_information(A: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return G (n, n) for A (N, sum of sizes, n) and latents of unit covariance."""
    left = torch.linalg.inv(torch.eye(A.shape[-1], dtype=A.dtype, device=A.device) + A.mT @ A)
    total = torch.zeros_like(left[0])
    for own in A.split(list(sizes), 1):
        H = own @ left @ own.mT
        total += (own.mT @ (own - H @ own)).mean(0)
    return total
