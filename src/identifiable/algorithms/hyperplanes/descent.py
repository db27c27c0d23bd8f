r"""Square unmixing by descent: many starts, and many data sets, in one batch.

Minimised over W (n, n + 1), acting on white rows in homogeneous coordinates (x, 1):

    F(W) = Σ_i E ρ(t_i) - log|det W|,    t = W (x, 1),

with ρ the pinball loss |t| + (2τ - 1) t or the scale-free ½ log(t² + ε² var t), smoothed at a width ε that falls from
stage to stage. Limited-memory BFGS, scaled by the curvature 1 + E φ(t_i) of each row: a step costs two products with
the data, O(N n²) per start, where a Newton step for every row would cost O(N n³).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from identifiable.training.clock import require_time

MEMORY = 8  # pairs of steps and gradients that approximate the curvature
SHRINK, SHRINKS = 0.3, 8  # factor by which a step that does not descend shrinks, and how often


# Of x (D, N, q), W (D, S, n, q) and ε: the value E ρ (D, S, n), its gradient (D, S, n, q), and E φ (D, S, n).
Contrast = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]


class Pinball:
    """ρ(t) = sqrt(t² + ε²) + (2τ - 1) t, τ (S,) or (D, S): smallest where t = 0 is the τ-quantile."""

    def __init__(self, tau: Tensor) -> None:
        self.skew = (2 * tau - 1)[..., None]

    def __call__(self, x: Tensor, W: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, gradient and curvature."""
        t, pull = _apply(x, W)
        phi = torch.rsqrt(t * t + epsilon**2)
        gradient = pull(t.mul_(phi))
        curvature = phi.mean(1).reshape(W.shape[:3])
        value = (gradient * W).sum(-1) + epsilon**2 * curvature  # E sqrt(t² + ε²) = E φ t² + ε² E φ
        mean = x.mean(1)[:, None, None]
        return value + self.skew * (mean * W).sum(-1), gradient + self.skew[..., None] * mean, curvature


class LogSize:
    """ρ(t) = ½ log(t² + ε² |w|²), w the direction on white data: smooth, and blind to the scale of a row."""

    def __call__(self, x: Tensor, W: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, gradient and curvature."""
        t, pull = _apply(x, W)
        direction = W[..., :-1]
        floor = epsilon**2 * (direction**2).sum(-1)
        phi = 1 / (t * t + floor.flatten(1)[:, None])
        value = -0.5 * phi.log().mean(1).reshape(W.shape[:3])
        curvature = phi.mean(1).reshape(W.shape[:3])
        gradient = pull(t.mul_(phi))
        gradient[..., :-1] += epsilon**2 * curvature[..., None] * direction
        return value, gradient, curvature


def _apply(x: Tensor, W: Tensor):  # type: ignore[no-untyped-def]
    """Return t = W (x, 1) as (D, N, S n), and the function ψ -> E ψ (x, 1) (D, S, n, q)."""
    stacked = W.flatten(1, 2)

    def pull(psi: Tensor) -> Tensor:
        return (psi.transpose(1, 2) @ x / x.shape[1]).reshape(W.shape)

    return x @ stacked.transpose(1, 2), pull


def descend(
    x: Tensor, W: Tensor, contrast: Contrast, epsilons: Sequence[float], iterations: int, *, fixed: int = 0
) -> Tensor:
    """Minimise F from the starts W (D, S, n, n + 1) on white rows x (D, N, n + 1), the last column of x being one.

    `iterations` steps at each ε; the first `fixed` rows of every start stay.

    Examples
    --------
    >>> rng = torch.Generator().manual_seed(0)
    >>> z = torch.randn(4000, 2, generator=rng) * (torch.rand(4000, 2, generator=rng) < 0.5)
    >>> x = torch.cat([z / z.std(0), torch.ones(4000, 1)], 1)[None]
    >>> W = torch.tensor([[[[0.8, -0.6, 0.0], [0.6, 0.8, 0.0]]]])
    >>> found = descend(x, W, Pinball(torch.tensor([0.5])), [0.3, 0.03], 20)[0, 0]
    >>> (found[:, :2] / found[:, :2].norm(dim=1, keepdim=True)).abs().round(decimals=2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    unit = torch.eye(W.shape[2], dtype=torch.float64, device=W.device).expand(*W.shape[:2], -1, -1)

    def evaluate(W: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return F (D, S, 1, 1), and of the m rows that move its gradient (D, S, m, q) and 1 + E φ (D, S, m, 1)."""
        value, gradient, curvature = contrast(x, W[:, :, fixed:], epsilon)
        factor, pivots, _ = torch.linalg.lu_factor_ex(W[..., :-1].double())
        inverse, log_det = torch.linalg.lu_solve(factor, pivots, unit), factor.diagonal(dim1=2, dim2=3).abs().log()
        gradient[..., :-1] -= inverse[..., fixed:].transpose(-1, -2).to(gradient.dtype)
        return (value.double().sum(-1) - log_det.sum(-1))[..., None, None], gradient, 1 + curvature[..., None]

    def inner(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum((-1, -2), keepdim=True)

    for epsilon in epsilons:
        pairs: list[tuple[Tensor, Tensor, Tensor]] = []
        value, gradient, curvature = evaluate(W, epsilon)
        for _ in range(iterations):
            require_time()
            step, weights = gradient, []
            for s, y, sy in reversed(pairs):
                weights.append(inner(s, step) / sy)
                step = step - weights[-1] * y
            step = step / curvature
            for (s, y, sy), weight in zip(pairs, reversed(weights), strict=True):
                step = step + (weight - inner(y, step) / sy) * s
            slope, length = inner(gradient, step).double(), torch.ones_like(value)
            for _ in range(SHRINKS):
                new = W.clone()
                new[:, :, fixed:] -= length.to(W.dtype) * step
                new_value, new_gradient, new_curvature = evaluate(new, epsilon)
                worse = ~(new_value <= value - 1e-4 * length * slope + 1e-6 * value.abs())
                if not bool(worse.any()):
                    break
                length = torch.where(worse, SHRINK * length, length)
            else:  # a start that found no descent stays where it is; the others go on
                new, new_value = torch.where(worse, W, new), torch.where(worse, value, new_value)
                new_gradient = torch.where(worse, gradient, new_gradient)
                new_curvature = torch.where(worse, curvature, new_curvature)
            s, y = (new - W)[:, :, fixed:], new_gradient - gradient
            sy = inner(s, y)
            useless = sy <= 1e-8
            pairs.append((s.masked_fill(useless, 0), y, sy.masked_fill(useless, 1)))
            pairs = pairs[-MEMORY:]
            W, value, gradient, curvature = new, new_value, new_gradient, new_curvature
    return W


def orient(x: Tensor, W: Tensor, tau: Tensor) -> Tensor:
    """Put every offset at the τ-quantile of its row, and give the row the sign whose pinball loss is smaller."""
    x = x[:, :2000, :-1]
    t = torch.einsum("dkq,dsiq->dski", x, W[..., :-1]).sort(dim=2).values
    rows = t.shape[2]
    starts = torch.arange(len(tau), device=W.device)
    low = t[:, starts, (tau * (rows - 1)).long()]
    high = t[:, starts, ((1 - tau) * (rows - 1)).long()]

    def loss(u: Tensor) -> Tensor:
        return (u.abs() + (2 * tau - 1)[:, None, None] * u).mean(2)

    flip = loss(high[:, :, None] - t) < loss(t - low[:, :, None])
    signed = torch.where(flip[..., None], -W[..., :-1], W[..., :-1])
    return torch.cat([signed, torch.where(flip, high, -low)[..., None]], -1)


def ica_start(x: Tensor, kind: str, rng: torch.Generator, iterations: int = 40) -> Tensor:
    """Symmetric FastICA on white rows x (D, N, n) by this contrast ("tanh", "cube", "skew"); "random": a rotation."""
    n = x.shape[-1]
    W: Tensor = torch.linalg.qr(torch.randn(len(x), n, n, generator=rng, dtype=x.dtype).to(x.device))[0]
    if kind == "random":
        return W
    for _ in range(iterations):
        require_time()
        t = x @ W.transpose(1, 2)
        if kind == "cube":
            u = (t**3).transpose(1, 2) @ x / x.shape[1] - 3 * W
        elif kind == "skew":
            u = (t * t).transpose(1, 2) @ x / x.shape[1]
        else:
            h = torch.tanh(t)
            u = h.transpose(1, 2) @ x / x.shape[1] - (1 - h * h).mean(1)[..., None] * W
        left, _, right = torch.linalg.svd(u)
        new: Tensor = left @ right
        moved = (1 - (new * W).sum(-1).abs()).max()
        W = new
        if bool(moved < 1e-4):
            break
    return W
