"""A flow whose units are smooth leaky ReLUs."""

import math

import torch
from torch import Tensor, nn

from identifiable.flows.layered import LayeredFlow, sigmoid_and_softplus

LOG_2 = math.log(2)
LARGEST_LOG_SLOPE = 12.0  # float32 has one digit left of a slope of e^-12 once 1 is added


class SmoothLeakyFlow(LayeredFlow):
    """t = f(x): D affine maps h <- h A_l + b_l, and between them, unit by unit, a smooth leaky ReLU.

        φ(h) = a h + (1 - a) (softplus(β h) - log 2) / β,        φ'(h) = a + (1 - a) σ(β h),
        log|det df/dx| = Σ_l log|det A_l| + Σ_l Σ_i log φ'_li(h_li).

    φ has slope a far to the left and 1 far to the right, and φ(0) = 0. Each unit learns log a, so a > 0, and φ' lies
    between a and 1, whether a is smaller or larger than 1: f is invertible if all det A_l ≠ 0. The sharpness β is a
    buffer that the caller anneals, `flow.beta.copy_((3 / e).clamp(max=200))`. As β grows φ approaches the leaky ReLU,
    whose log-determinant is piecewise constant in h and therefore gives no gradient for the positions of the kinks.

    At the start A_1, ..., A_{D-1} are random rotations and A_0 = W (A_1 ⋯ A_{D-1})ᵀ, so that the product is W, a linear
    solution; biases and log-slopes are .05 N(0, 1), so that f(x) is near x W. A float64 W gives a float64 flow.

    Parameters
    ----------
    members, n, depth : R, the dimension and D.
    start : W, (n, n) for all members or (R, n, n); the identity by default.
    inner_bias : bool, default=True. False keeps b_1, ..., b_{D-2} at 0: up to a shift of x and one of t, f is then
        positively homogeneous while β is large. The flow is less flexible, which suits strongly nonlinear mixtures.
    rng : source of the start.

    Examples
    --------
    >>> import torch
    >>> rng = torch.Generator().manual_seed(0)
    >>> flow = SmoothLeakyFlow(3, 2, 4, start=torch.tensor([[2.0, 0.0], [0.0, 1.0]]), rng=rng)
    >>> x = torch.randn(5, 2, generator=rng)
    >>> t, log_det = flow(x)
    >>> t.shape, log_det.shape
    (torch.Size([3, 5, 2]), torch.Size([3, 5]))
    >>> bool((flow.inverse(t) - x).abs().max() < 1e-5)
    True
    """

    logs_at_once = 6  # 6 * 12 < log of the largest float32
    beta: Tensor

    def __init__(
        self,
        members: int,
        n: int,
        depth: int,
        *,
        start: Tensor | None = None,
        inner_bias: bool = True,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__(members, n, depth, start=start, rng=rng)
        self.log_slope = nn.Parameter(0.05 * self._noise(rng, depth - 1, n))
        self.inner_bias = inner_bias or depth < 3
        self.bias = nn.Parameter(0.05 * self._noise(rng, depth if self.inner_bias else 2, n))
        self.register_buffer("beta", torch.full((members, 1, 1), 10.0, dtype=self.weight.dtype))

    @property
    def biases(self) -> Tensor:
        """b_0, ..., b_{D-1}, (R, D, n)."""
        if self.inner_bias:
            return self.bias
        return torch.cat([self.bias[:, :1], torch.zeros_like(self.weight[:, 1:-1, 0]), self.bias[:, 1:]], 1)

    @property
    def unit(self) -> Tensor:
        """-β: with w = -β h the activation is y = w + c q, q = softplus(w) - log 2, c = a - 1, of slope 1 + c σ(w)."""
        return -self.beta

    def coefficients(self) -> tuple[Tensor]:
        """Return c = a - 1, (R, D - 1, n)."""
        return (torch.expm1(self.log_slope.clamp(-LARGEST_LOG_SLOPE, LARGEST_LOG_SLOPE)),)

    @staticmethod
    def activate(w: Tensor, *coefficients: Tensor) -> tuple[Tensor, ...]:
        """Return y, the slope g, p = σ(w) and q."""
        (c,) = coefficients
        p, q = sigmoid_and_softplus(w)
        q.sub_(LOG_2)
        return torch.addcmul(w, c, q), torch.mul(p, c).add_(1.0), p, q

    @staticmethod
    def gradients(dy: Tensor, dl: Tensor, coefficients: tuple[Tensor, ...], *kept: Tensor) -> tuple[Tensor, ...]:
        """Return dw = g dy + c p (1 - p) dℓ / g and dc = q dy + p dℓ / g."""
        (c,), (slope, p, q) = coefficients, kept
        r = p.div(slope).mul_(dl)
        return torch.addcmul(r, r, p, value=-1).mul_(c).addcmul_(dy, slope), torch.addcmul(r, dy, q)

    @staticmethod
    def deactivate(y: Tensor, *coefficients: Tensor) -> Tensor:
        """Solve y = w + c (softplus(w) - log 2) for w by Newton's method, up to rounding.

        The right-hand side increases, and is concave for c < 0, convex for c > 0: from the second step on, Newton's
        method stays on one side of the root and approaches it monotonically. It needs no safeguard.
        """
        (c,) = coefficients
        w = y
        for _ in range(100):
            p, q = sigmoid_and_softplus(w)
            q.sub_(LOG_2)
            residual = w + c * q - y
            rounding = 64 * torch.finfo(w.dtype).eps * (c + 2 + w.abs() + y.abs())
            w = w - residual / (1 + c * p)
            if bool((residual.abs() <= rounding).all()):
                break
        return w
