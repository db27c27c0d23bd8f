"""Invertible maps R^n -> R^n with exact log-determinants, batched over members.

A flow knows nothing of a prior: it returns t = f(x) and log|det df/dx|, and the log-likelihood of x under any density p
of the latents is log p(t) + log|det df/dx|. As in `nets`, every parameter and buffer carries the member axis R first.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LOG_2 = math.log(2)


class SmoothLeakyFlow(nn.Module):
    """t = f(x): D affine maps h <- h A_l + b_l, and between them, unit by unit, a smooth leaky ReLU.

        φ(h) = a h + (1 - a) (softplus(β h) - log 2) / β,        φ'(h) = a + (1 - a) σ(β h),
        log|det df/dx| = Σ_l log|det A_l| + Σ_l Σ_i log φ'_li(h_li).

    φ has slope a far to the left, 1 far to the right, and φ(0) = 0. Each unit learns log a, so a > 0, and φ' lies
    between a and 1, be a smaller or larger than 1: f is invertible wherever det A_l ≠ 0. The sharpness β is a buffer
    that the caller anneals, `flow.beta.copy_((3 / e).clamp(max=200))`. As β grows φ approaches the leaky ReLU, whose
    own log-determinant is piecewise constant in h: its gradient would not see where the kinks lie.

    At the start A_1, ..., A_{D-1} are random rotations and A_0 = W (A_1 ⋯ A_{D-1})ᵀ, so that the product is W, a linear
    solution; biases and log-slopes are .05 N(0, 1), so that f(x) is near x W. A float64 W gives a float64 flow.

    Parameters
    ----------
    members, n, depth : R, the dimension and D.
    start : W, (n, n) for all members or (R, n, n); the identity by default.
    inner_bias : False keeps b_1, ..., b_{D-2} at 0: up to a shift of x and one of t, f is then positively homogeneous
        while β is large. Fewer ways to bend, for strong mixtures.
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
        super().__init__()
        if min(members, n, depth) < 1:
            raise ValueError(f"members, n and depth must be at least 1. Got {members}, {n} and {depth}.")
        start = torch.eye(n) if start is None else start
        if start.shape not in ((n, n), (members, n, n)):
            raise ValueError(f"start must be (n, n) or (members, n, n), n = {n}. Got {tuple(start.shape)}.")

        def noise(*shape: int) -> Tensor:
            return torch.randn((members, *shape), generator=rng, dtype=start.dtype)

        weight = torch.linalg.qr(noise(depth, n, n))[0].contiguous()
        product = torch.eye(n, dtype=start.dtype)
        for rotation in weight.unbind(1)[1:]:
            product = product @ rotation
        weight[:, 0] = start @ product.mT
        self.weight = nn.Parameter(weight)
        self.log_slope = nn.Parameter(0.05 * noise(depth - 1, n))
        self.inner_bias = inner_bias or depth < 3
        self.bias = nn.Parameter(0.05 * noise(depth if self.inner_bias else 2, n))
        self.register_buffer("beta", torch.full((members, 1, 1), 10.0, dtype=start.dtype))

    @property
    def biases(self) -> Tensor:
        """b_0, ..., b_{D-1}, (R, D, n)."""
        if self.inner_bias:
            return self.bias
        inner = torch.zeros_like(self.weight[:, 1:-1, 0])
        return torch.cat([self.bias[:, :1], inner, self.bias[:, 1:]], 1)

    @torch.no_grad()
    def then(self, W: Tensor, b: Tensor) -> None:
        """Follow f by the affine map t <- t W + b, W (R, n, n) and b (R, n), taken into the last layer."""
        self.weight[:, -1] = self.weight[:, -1] @ W
        self.bias[:, -1] = (self.bias[:, -1:] @ W)[:, 0] + b

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return t (R, B, n) and log|det df/dx| (R, B) for x (R, B, n), or (B, n) shared by all members."""
        unit = -self.beta
        w = (x.mT * unit).contiguous()
        w, log_slopes = _Layers.apply(  # type: ignore[no-untyped-call]
            w, self.weight, self.biases * unit, self.log_slope.exp(), torch.is_grad_enabled()
        )
        log_det = log_slopes + torch.linalg.slogdet(self.weight).logabsdet.sum(1, keepdim=True)
        return (w / unit).mT, log_det

    @torch.no_grad()
    def inverse(self, t: Tensor) -> Tensor:
        """Return x (R, B, n) with f(x) = t, to rounding, for t (R, B, n) or (B, n); no gradient."""
        unit = -self.beta
        bias, a = (self.biases * unit)[..., None], self.log_slope.exp()[..., None]
        w = t.mT * unit
        for layer in reversed(range(self.weight.shape[1])):
            w = torch.linalg.solve(self.weight[:, layer].mT, w - bias[:, layer])
            if layer > 0:
                w = _deactivate(w, a[:, layer - 1])
        return (w / unit).mT


class _Layers(torch.autograd.Function):
    """All layers at once, in units of -1/β, with the gradient written by hand.

    With w = -β h the activation loses its β and takes the fewest operations,

        y = w - (1 - a) q(w),    q(w) = softplus(w) - log 2,    slope g = 1 + (a - 1) p,    p = σ(w),

    and the affine maps stay as they are, with -β b for b. Shapes are w (R, n, B), A (R, D, n, n), b (R, D, n),
    a (R, D-1, n): with the batch last every operation runs along contiguous memory, which is what makes a step with
    n = 10 fast on a CPU. Given the gradients dy of y and dℓ of ℓ = Σ log g,

        dw = g dy + (a - 1) p (1 - p) dℓ / g,        da = Σ_B (q dy + p dℓ / g).
    """

    @staticmethod
    def forward(ctx: Any, w: Tensor, A: Tensor, b: Tensor, a: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
        maps, shifts, slopes = A.mT.contiguous().unbind(1), b[..., None].unbind(1), a[..., None].unbind(1)
        one, log_slopes, kept = w.new_ones(()), torch.zeros_like(w), [A, a, w]
        w = torch.baddbmm(shifts[0], maps[0], w)
        for slope, map_l, shift in zip(slopes, maps[1:], shifts[1:], strict=True):
            p, q = _sigmoid_and_softplus(w)
            y = torch.addcmul(w, slope - one, q)
            g = torch.lerp(one, slope, p)  # a at p = 1 exactly, however small a is
            log_slopes.add_(g.log())
            w = torch.baddbmm(shift, map_l, y)
            if keep:
                kept += [p, q, g, y]
        ctx.save_for_backward(*kept)
        return w, log_slopes.sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dw: Tensor, dl: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        A, a, *kept = ctx.saved_tensors
        inputs, p, q, g = (kept[i::4] for i in range(4))
        maps, a_minus_1 = A.unbind(1), (a - 1)[..., None].unbind(1)
        dw, dl = dw.contiguous(), dl[:, None].expand_as(dw).contiguous()
        dA, db, da = torch.empty_like(A), torch.empty_like(A[..., 0]), torch.empty_like(a)
        for layer in reversed(range(len(inputs))):
            dA[:, layer] = torch.bmm(inputs[layer], dw.mT)
            db[:, layer] = dw.sum(-1)
            dw = torch.bmm(maps[layer], dw)
            if layer > 0:
                k = layer - 1
                r = p[k].div(g[k]).mul_(dl)
                da[:, k] = torch.addcmul(r, dw, q[k]).sum(-1)
                dw = torch.addcmul(r, r, p[k], value=-1).mul_(a_minus_1[k]).addcmul_(dw, g[k])
        return dw, dA, db, da, None


def _sigmoid_and_softplus(w: Tensor) -> tuple[Tensor, Tensor]:
    """Return σ(w) and softplus(w) - log 2 = w - log σ(w) - log 2, for w of any size.

    Below -36, where both are less than 2^-51, they keep their value there: log σ(w) would overflow. In place of
    `F.softplus`, which on a CPU is slow (many times so when it meets denormal numbers) and off by e^-20 in float64.
    """
    q = w.clamp_min(-36.0)
    p = torch.sigmoid(q)
    return p, q.sub_(p.log()).sub_(LOG_2)


def _deactivate(y: Tensor, a: Tensor) -> Tensor:
    """Solve y = w - (1 - a) (softplus(w) - log 2) for w by Newton's method, to rounding.

    The right-hand side increases, and is concave for a < 1, convex for a > 1: from the second step on, Newton's method
    stays on one side of the root and goes to it monotonically. It needs no safeguard.
    """
    w = y
    for _ in range(100):
        p, q = _sigmoid_and_softplus(w)
        residual = w - (1 - a) * q - y
        rounding = 64 * torch.finfo(w.dtype).eps * (a + 1 + w.abs() + y.abs())
        w = w - residual / torch.lerp(torch.ones_like(a), a, p)
        if bool((residual.abs() <= rounding).all()):
            break
    return w
