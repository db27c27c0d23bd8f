"""Mixings f: R^n -> R^d, d >= n, with a known left inverse.

All alternate matrices and strictly increasing activations,

    f(z) = a_L( ... a_1(z W_1) ... W_{L-1}) W_L        (rows are samples),

with W_1 of shape (n, d) and the others (d, d). Each is a module of buffers: `.to(device, dtype)` moves it.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from identifiable.arrays import Array
from identifiable.data.latents import Buffers

NEWTON_STEPS = 60


class Activation(nn.Module):
    """A strictly increasing function of one variable, and its inverse."""

    def inverse(self, y: Tensor) -> Tensor:
        """Apply the inverse elementwise."""
        raise NotImplementedError


class Leaky(Activation):
    """max(s h, h): slope s on one side of zero, 1 on the other."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, h: Tensor) -> Tensor:
        """Return max(s h, h), in one pass over memory where s <= 1."""
        if self.slope <= 1:
            return nn.functional.leaky_relu(h, self.slope)
        return nn.functional.leaky_relu(h, 1 / self.slope).mul_(self.slope)

    def inverse(self, y: Tensor) -> Tensor:
        """Return min(y / s, y)."""
        return torch.minimum(y / self.slope, y)


class SmoothLeaky(Leaky):
    """s h + (1 - s) log(1 + e^h): slope s far below zero, 1 far above, smooth between."""

    def forward(self, h: Tensor) -> Tensor:
        """Return s h + (1 - s) softplus(h)."""
        return self.slope * h + (1 - self.slope) * nn.functional.softplus(h)

    def inverse(self, y: Tensor) -> Tensor:
        """Solve by damped Newton steps."""
        return _newton(self.forward, lambda h: self.slope + (1 - self.slope) * torch.sigmoid(h), y, y)


class TanhLinear(Activation):
    """tanh(h) + .1 h, the activation of the iVAE experiments."""

    def forward(self, h: Tensor) -> Tensor:
        """Return tanh(h) + .1 h."""
        return torch.tanh(h) + 0.1 * h

    def inverse(self, y: Tensor) -> Tensor:
        """Solve by bisection-guarded Newton steps, started on the right branch."""
        start = torch.where(y.abs() > 1.1, 10 * (y - torch.sign(y)), y / 1.1)
        return _newton(self.forward, lambda h: 1.1 - torch.tanh(h).square(), y, start)


class Sigmoid(Activation):
    """1 / (1 + e^-h)."""

    def forward(self, h: Tensor) -> Tensor:
        """Return sigmoid(h)."""
        return torch.sigmoid(h)

    def inverse(self, y: Tensor) -> Tensor:
        """Return log(y / (1 - y))."""
        return torch.logit(y)


class Mixing(Buffers):
    """f(z), alternating matrices and activations; `inverse` is its left inverse, exact where f is.

    Examples
    --------
    >>> import torch
    >>> rng = np.random.default_rng(0)
    >>> f = orthogonal_mixing(2, 3, layers=4, slopes=0.2, rng=rng)
    >>> z = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> f(z).shape, bool((f.inverse(f(z)) - z).abs().max() < 1e-12)
    (torch.Size([5, 3]), True)
    """

    def __init__(self, matrices: Sequence[Array], activations: Sequence[Activation]) -> None:
        if len(matrices) != len(activations) + 1:
            raise ValueError(f"{len(matrices)} matrices need one activation less; got {len(activations)}.")
        super().__init__(
            **{f"matrix_{i}": w for i, w in enumerate(matrices)},
            **{f"left_inverse_{i}": np.linalg.pinv(w) for i, w in enumerate(matrices)},
        )
        self.activations = nn.ModuleList(activations)

    @property
    def matrices(self) -> list[Tensor]:
        """W_1, ..., W_L."""
        return [getattr(self, f"matrix_{i}") for i in range(len(self.activations) + 1)]

    @property
    def n(self) -> int:
        """Number of latents."""
        return int(self.matrices[0].shape[0])

    @property
    def d(self) -> int:
        """Number of observed columns."""
        return int(self.matrices[-1].shape[1])

    def forward(self, z: Tensor) -> Tensor:
        """Map latents (N, n) to observations (N, d)."""
        first, *others = self.matrices
        h = z @ first
        for activation, w in zip(self.activations, others, strict=True):
            h = activation(h) @ w
        return h

    def inverse(self, x: Tensor) -> Tensor:
        """Map observations (N, d) back to latents (N, n)."""
        for i in range(len(self.activations), 0, -1):
            activation = self.activations[i - 1]
            assert isinstance(activation, Activation)
            x = activation.inverse(x @ getattr(self, f"left_inverse_{i}"))
        return x @ self.left_inverse_0


def orthogonal_mixing(
    n: int,
    d: int,
    *,
    layers: int,
    slopes: float | tuple[float, float],
    activation: str = "leaky",
    rng: np.random.Generator,
) -> Mixing:
    """Return orthogonal matrices (QR of a normal matrix) with activations between them: the mixing of the pdGMM papers.

    slopes is one slope for all layers, or (low, high) for one uniform draw per layer. For d > n the first matrix has
    orthonormal rows.
    """
    _check_size(n, d)
    matrices = [_orthogonal(d, rng)[:n], *(_orthogonal(d, rng) for _ in range(layers - 1))]
    low, high = slopes if isinstance(slopes, tuple) else (slopes, slopes)
    activations: dict[str, Callable[[], Activation]] = {
        "leaky": lambda: Leaky(float(rng.uniform(low, high))),
        "smooth": lambda: SmoothLeaky(float(rng.uniform(low, high))),
        "sigmoid": Sigmoid,
    }
    if activation not in activations:
        raise ValueError(f"activation must be 'leaky', 'smooth' or 'sigmoid'. Got {activation!r}.")
    return Mixing(matrices, [activations[activation]() for _ in range(layers - 1)])


def tanh_mixing(n: int, d: int, *, layers: int, reuse: bool, rng: np.random.Generator) -> Mixing:
    """Return well-conditioned matrices with tanh(h) + .1 h between them: the mixing of the iVAE experiments.

    The first matrix is (n, d), the others (d, d). A matrix has entries U(-1, 1) and unit columns, and is redrawn until
    its condition number is below the 25th percentile of 500 such matrices. With `reuse` all square layers share
    one matrix, as in the reference code.
    """
    _check_size(n, d)
    square = _well_conditioned(d, d, rng)
    first = square if n == d and reuse else _well_conditioned(n, d, rng)
    others = [square if reuse else _well_conditioned(d, d, rng) for _ in range(layers - 1)]
    return Mixing([first, *others], [TanhLinear() for _ in range(layers - 1)])


def _check_size(n: int, d: int) -> None:
    if d < n:
        raise ValueError(f"A mixing needs at least as many columns as latents: n = {n}, d = {d}.")


def _orthogonal(d: int, rng: np.random.Generator) -> Array:
    q, r = np.linalg.qr(rng.normal(size=(d, d)))
    return q * np.sign(np.diag(r))  # the sign makes it uniform on the orthogonal group


def _well_conditioned(n: int, d: int, rng: np.random.Generator) -> Array:
    def draw(count: int) -> Array:
        w = rng.uniform(-1, 1, size=(count, n, d))
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        return w

    bound = np.percentile(np.linalg.cond(draw(500)), 25)
    while True:
        candidates = draw(32)
        good = np.flatnonzero(np.linalg.cond(candidates) <= bound)
        if len(good):
            return candidates[good[0]]


def _newton(f: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor], y: Tensor, h: Tensor) -> Tensor:
    """Solve f(h) = y for an increasing f, elementwise; a step that overshoots is halved by bisection of the bracket."""
    low, high = torch.full_like(y, -torch.inf), torch.full_like(y, torch.inf)
    for _ in range(NEWTON_STEPS):
        error = f(h) - y
        low, high = torch.where(error < 0, h, low), torch.where(error > 0, h, high)
        new = h - error / slope(h)
        outside = (new <= low) | (new >= high)
        middle = (low + high) / 2
        h = torch.where(outside & middle.isfinite(), middle, new)
    return h
