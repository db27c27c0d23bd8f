"""A flow whose units have two smooth bends."""

import torch
from torch import Tensor, nn

from identifiable.flows.layered import LayeredFlow, sigmoid_and_softplus

SHARPNESS = 2.0  # c in the formula of `SoftplusFlow`
LARGEST_LOG_SLOPE = 8.0  # float32 cannot distinguish a slope below about e^-8 from 0 once 1 is subtracted


class SoftplusFlow(LayeredFlow):
    """t = f(x): D affine maps h <- h A_l + b_l, and between them, unit by unit, a function with two smooth bends.

        φ(h) = h + ((r - 1) softplus(c (h - e)) - (s - 1) softplus(-c (h + e))) / c,
        φ'(h) = 1 + (r - 1) p + (s - 1) q,        p = σ(c (h - e)),  q = σ(-c (h + e)),        c = 2,
        log|det df/dx| = Σ_l log|det A_l| + Σ_l Σ_i log φ'_li(h_li).

    φ has slope s far to the left, r far to the right, and about 1 between the bends at ±e if these are far apart. Each
    unit learns log s, log r (±8 at most) and log e; p + q < 1, so φ' > 0, and f is invertible if all det A_l ≠ 0. The
    matrices set the sharpness of a bend: a unit scaled up before φ and down after it bends more sharply. With s and r
    both above 1, φ inverts a saturating function such as tanh, for which the one-sided bends of `SmoothLeakyFlow` would
    need many layers.

    At the start A_1, ..., A_{D-1} are random rotations and A_0 = W (A_1 ⋯ A_{D-1})ᵀ, W a linear solution; biases and
    the logarithms of s and r are .05 N(0, 1), that of e is .1 N(0, 1), so that f(x) is near x W. A float64 W gives a
    float64 flow.

    Parameters
    ----------
    members, n, depth, start, rng : see `SmoothLeakyFlow`.

    Examples
    --------
    >>> import torch
    >>> flow = SoftplusFlow(3, 2, 4, start=2 * torch.eye(2), rng=torch.Generator().manual_seed(0))
    >>> t, log_det = flow(torch.ones(5, 2))
    >>> bool((flow.inverse(t) - 1).abs().max() < 1e-5)
    True
    """

    logs_at_once = 10  # 10 * 8 < log of the largest float32

    def __init__(
        self, members: int, n: int, depth: int, *, start: Tensor | None = None, rng: torch.Generator | None = None
    ) -> None:
        super().__init__(members, n, depth, start=start, rng=rng)
        self.bias = nn.Parameter(0.05 * self._noise(rng, depth, n))
        self.log_slopes = nn.Parameter(0.05 * self._noise(rng, 2, depth - 1, n))  # s, r
        self.log_bend = nn.Parameter(0.1 * self._noise(rng, depth - 1, n))  # e

    @property
    def unit(self) -> float:
        """The sharpness c: in units of 1/c the activation is y = h + r P - s Q, with r, s less 1 and bends at ±e."""
        return SHARPNESS

    def coefficients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return s - 1, r - 1 and c e, (R, D - 1, n) each."""
        s, r = torch.expm1(self.log_slopes.clamp(-LARGEST_LOG_SLOPE, LARGEST_LOG_SLOPE)).unbind(1)
        return s, r, self.log_bend.exp() * SHARPNESS

    @staticmethod
    def activate(h: Tensor, *coefficients: Tensor) -> tuple[Tensor, ...]:
        """Return y, the slope g, and σ and softplus of h - e (p, P) and of -h - e (q, Q)."""
        s, r, e = coefficients
        p, P = sigmoid_and_softplus(h - e)
        q, Q = sigmoid_and_softplus(-h - e)
        slope = (r * p).addcmul_(s, q).add_(1.0)
        return torch.addcmul(h, r, P).addcmul_(s, Q, value=-1), slope, p, P, q, Q

    @staticmethod
    def gradients(dy: Tensor, dl: Tensor, coefficients: tuple[Tensor, ...], *kept: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of h, s, r and e.

        dh = g dy + (r p (1 - p) - s q (1 - q)) dℓ / g,
        dr = P dy + p dℓ / g,        ds = -Q dy + q dℓ / g,
        de = (s q - r p) dy - (r p (1 - p) + s q (1 - q)) dℓ / g.
        """
        (s, r, _), (slope, p, P, q, Q) = coefficients, kept
        dg = dl / slope
        dr, ds = torch.addcmul(p * dg, P, dy), torch.addcmul(q * dg, Q, dy, value=-1)
        rp, sq = r * p, s * q
        bend_p, bend_q = torch.addcmul(rp, rp, p, value=-1), torch.addcmul(sq, sq, q, value=-1)
        de = (sq - rp).mul_(dy).addcmul_(bend_p + bend_q, dg, value=-1)
        return (bend_p - bend_q).mul_(dg).addcmul_(slope, dy), ds, dr, de

    @staticmethod
    def deactivate(y: Tensor, *coefficients: Tensor) -> Tensor:
        """Solve y = h + r softplus(h - e) - s softplus(-h - e) for h, up to rounding; r and s are slopes less 1.

        The right-hand side increases from slope 1 + s to 1 + r and is neither convex nor concave, so Newton's method is
        kept inside a bracket, which is halved where a step would leave it. Solved entries no longer change: another
        step would put them on the end of the bracket, and the next one in its middle.
        """
        s, r, e = coefficients
        residual, _, _ = _residual(torch.zeros_like(y), y, s, r, e)
        far = y.abs() + (1 + s.abs() + r.abs()) * (1 + e)
        far = far / torch.minimum(torch.ones_like(r), torch.minimum(1 + r, 1 + s))
        low, high = torch.where(residual > 0, -far, 0.0), torch.where(residual > 0, 0.0, far)
        h = 0.5 * (low + high)
        for _ in range(200):
            residual, slope, size = _residual(h, y, s, r, e)
            solved = residual.abs() <= 16 * torch.finfo(h.dtype).eps * size
            if bool(solved.all()):
                break
            low, high = torch.where(residual < 0, h, low), torch.where(residual > 0, h, high)
            newton = h - residual / slope
            inside = (newton > low) & (newton < high)
            h = torch.where(solved, h, torch.where(inside, newton, 0.5 * (low + high)))
        return h


def _residual(h: Tensor, y: Tensor, s: Tensor, r: Tensor, e: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return φ(h) - y, φ'(h), and the sum of the absolute terms of φ(h) - y, which bounds its rounding error."""
    right, left = r * _softplus(h - e), s * _softplus(-h - e)
    slope = 1 + r * torch.sigmoid(h - e) + s * torch.sigmoid(-h - e)
    return h + right - left - y, slope, 1 + h.abs() + e + right.abs() + left.abs() + y.abs()


def _softplus(w: Tensor) -> Tensor:
    """Log(1 + e^w) with a small relative error; the error of w - log σ(w) is relative to w."""
    return w.clamp(min=0) + torch.log1p(torch.exp(-w.abs().clamp(max=80)))
