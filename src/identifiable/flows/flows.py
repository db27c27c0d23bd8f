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
SCALE = 2.0  # c, how sharply the units of a `SoftplusFlow` bend at the start
MOST_LOG_SLOPE = 8.0  # of a unit of a `SoftplusFlow`: less 1, float32 does not tell a much smaller slope from 0


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
        start = _check_start(members, n, depth, start)

        def noise(*shape: int) -> Tensor:
            return torch.randn((members, *shape), generator=rng, dtype=start.dtype)

        self.weight = nn.Parameter(_rotations(start, noise(depth, n, n)))
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
            q.sub_(LOG_2)
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


def _check_start(members: int, n: int, depth: int, start: Tensor | None) -> Tensor:
    if min(members, n, depth) < 1:
        raise ValueError(f"members, n and depth must be at least 1. Got {members}, {n} and {depth}.")
    start = torch.eye(n) if start is None else start
    if start.shape not in ((n, n), (members, n, n)):
        raise ValueError(f"start must be (n, n) or (members, n, n), n = {n}. Got {tuple(start.shape)}.")
    return start


def _rotations(start: Tensor, noise: Tensor) -> Tensor:
    """Return matrices (R, D, n, n) whose product is start: all but the first are rotations, made of noise."""
    weight: Tensor = torch.linalg.qr(noise)[0].contiguous()
    product = torch.eye(noise.shape[-1], dtype=start.dtype)
    for rotation in weight.unbind(1)[1:]:
        product = product @ rotation
    weight[:, 0] = start @ product.mT
    return weight


def _sigmoid_and_softplus(w: Tensor) -> tuple[Tensor, Tensor]:
    """Return σ(w) and softplus(w) = w - log σ(w), for w of any size.

    Below -36, where both are less than 2^-51, they keep their value there: log σ(w) would overflow. In place of
    `F.softplus`, which on a CPU is slow (many times so when it meets denormal numbers) and off by e^-20 in float64.
    """
    q = w.clamp_min(-36.0)
    p = torch.sigmoid(q)
    return p, q.sub_(p.log())


def _unbend(y: Tensor, s: Tensor, r: Tensor, e: Tensor) -> Tensor:
    """Solve y = h + r softplus(h - e) - s softplus(-h - e) for h, to rounding; r and s are slopes less 1.

    The right-hand side increases from slope 1 + s to 1 + r and is neither convex nor concave, so Newton's method is
    kept inside a bracket, which is halved where a step would leave it. A solution is left alone: another step would
    come to rest on the bracket's end, and then be thrown to its middle.
    """
    residual, _, _ = _bent(torch.zeros_like(y), y, s, r, e)
    far = y.abs() + (1 + s.abs() + r.abs()) * (1 + e)
    far = far / torch.minimum(torch.ones_like(r), torch.minimum(1 + r, 1 + s))
    low, high = torch.where(residual > 0, -far, 0.0), torch.where(residual > 0, 0.0, far)
    h = 0.5 * (low + high)
    for _ in range(200):
        residual, slope, size = _bent(h, y, s, r, e)
        solved = residual.abs() <= 16 * torch.finfo(h.dtype).eps * size
        if bool(solved.all()):
            break
        low, high = torch.where(residual < 0, h, low), torch.where(residual > 0, h, high)
        newton = h - residual / slope
        inside = (newton > low) & (newton < high)
        h = torch.where(solved, h, torch.where(inside, newton, 0.5 * (low + high)))
    return h


def _bent(h: Tensor, y: Tensor, s: Tensor, r: Tensor, e: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return φ(h) - y, φ'(h), and the size of what was added up to the first, which bounds its rounding."""
    right, left = r * _softplus(h - e), s * _softplus(-h - e)
    slope = 1 + r * torch.sigmoid(h - e) + s * torch.sigmoid(-h - e)
    return h + right - left - y, slope, 1 + h.abs() + e + right.abs() + left.abs() + y.abs()


def _softplus(w: Tensor) -> Tensor:
    """Log(1 + e^w) to rounding, of its own size; as w - log σ(w) it would be to that of w."""
    return w.clamp(min=0) + torch.log1p(torch.exp(-w.abs().clamp(max=80)))


def _deactivate(y: Tensor, a: Tensor) -> Tensor:
    """Solve y = w - (1 - a) (softplus(w) - log 2) for w by Newton's method, to rounding.

    The right-hand side increases, and is concave for a < 1, convex for a > 1: from the second step on, Newton's method
    stays on one side of the root and goes to it monotonically. It needs no safeguard.
    """
    w = y
    for _ in range(100):
        p, q = _sigmoid_and_softplus(w)
        q.sub_(LOG_2)
        residual = w - (1 - a) * q - y
        rounding = 64 * torch.finfo(w.dtype).eps * (a + 1 + w.abs() + y.abs())
        w = w - residual / torch.lerp(torch.ones_like(a), a, p)
        if bool((residual.abs() <= rounding).all()):
            break
    return w


class SoftplusFlow(nn.Module):
    """t = f(x): D affine maps h <- h A_l + b_l, and between them, unit by unit, a function with two smooth bends.

        φ(h) = h + ((r - 1) softplus(c (h - e)) - (s - 1) softplus(-c (h + e))) / c,
        φ'(h) = 1 + (r - 1) p + (s - 1) q,        p = σ(c (h - e)),  q = σ(-c (h + e)),        c = 2,
        log|det df/dx| = Σ_l log|det A_l| + Σ_l Σ_i log φ'_li(h_li).

    φ has slope s far to the left, r far to the right, and about 1 between the bends at ±e, where these are far apart.
    Each unit learns log s, log r (±8 at most) and log e; p + q < 1, so φ' > 0, and f is invertible wherever
    det A_l ≠ 0. How sharp a bend is, the matrices decide: a unit scaled up before φ and down after it bends more
    sharply. With s and r both above 1, φ undoes a saturating function such as tanh, for which one-sided bends
    (`SmoothLeakyFlow`) would need many layers.

    At the start A_1, ..., A_{D-1} are random rotations and A_0 = W (A_1 ⋯ A_{D-1})ᵀ, W a linear solution, biases are
    .05 N(0, 1), s and r lie near 1 and e too, with logarithms .05 N(0, 1) and .1 N(0, 1), so that f(x) is near x W. A
    float64 W gives a float64 flow.

    Parameters
    ----------
    members, n, depth : R, the dimension and D.
    start : W, (n, n) for all members or (R, n, n); the identity by default.
    rng : source of the start.

    Examples
    --------
    >>> import torch
    >>> rng = torch.Generator().manual_seed(0)
    >>> flow = SoftplusFlow(3, 2, 4, start=torch.tensor([[2.0, 0.0], [0.0, 1.0]]), rng=rng)
    >>> x = torch.randn(5, 2, generator=rng)
    >>> t, log_det = flow(x)
    >>> t.shape, log_det.shape
    (torch.Size([3, 5, 2]), torch.Size([3, 5]))
    >>> bool((flow.inverse(t) - x).abs().max() < 1e-5)
    True
    """

    def __init__(
        self, members: int, n: int, depth: int, *, start: Tensor | None = None, rng: torch.Generator | None = None
    ) -> None:
        super().__init__()
        start = _check_start(members, n, depth, start)

        def noise(*shape: int) -> Tensor:
            return torch.randn((members, *shape), generator=rng, dtype=start.dtype)

        self.weight = nn.Parameter(_rotations(start, noise(depth, n, n)))
        self.bias = nn.Parameter(0.05 * noise(depth, n))
        self.log_slopes = nn.Parameter(0.05 * noise(2, depth - 1, n))  # s, r
        self.log_bend = nn.Parameter(0.1 * noise(depth - 1, n))  # e

    @property
    def _slopes_less_1(self) -> Tensor:
        """Return s - 1 and r - 1, (R, 2, D - 1, n)."""
        return torch.expm1(self.log_slopes.clamp(-MOST_LOG_SLOPE, MOST_LOG_SLOPE))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return t (R, B, n) and log|det df/dx| (R, B) for x (R, B, n), or (B, n) shared by all members."""
        h = (x.mT * SCALE).expand(len(self.weight), -1, -1).contiguous()
        s, r = self._slopes_less_1.unbind(1)
        h, log_slopes = _BentLayers.apply(  # type: ignore[no-untyped-call]
            h, self.weight, self.bias * SCALE, s, r, self.log_bend.exp() * SCALE, torch.is_grad_enabled()
        )
        log_det = log_slopes + torch.linalg.slogdet(self.weight).logabsdet.sum(1, keepdim=True)
        return (h / SCALE).mT, log_det

    @torch.no_grad()
    def then(self, W: Tensor, b: Tensor) -> None:
        """Follow f by the affine map t <- t W + b, W (R, n, n) and b (R, n), taken into the last layer."""
        self.weight[:, -1] = self.weight[:, -1] @ W
        self.bias[:, -1] = (self.bias[:, -1:] @ W)[:, 0] + b

    @torch.no_grad()
    def inverse(self, t: Tensor) -> Tensor:
        """Return x (R, B, n) with f(x) = t, to rounding, for t (R, B, n) or (B, n); no gradient."""
        s, r = self._slopes_less_1[..., None].unbind(1)
        e, bias = self.log_bend.exp()[..., None] * SCALE, self.bias[..., None] * SCALE
        h = t.mT * SCALE
        for layer in reversed(range(self.weight.shape[1])):
            h = torch.linalg.solve(self.weight[:, layer].mT, h - bias[:, layer])
            if layer > 0:
                h = _unbend(h, s[:, layer - 1], r[:, layer - 1], e[:, layer - 1])
        return (h / SCALE).mT


class _BentLayers(torch.autograd.Function):
    """All layers at once, batch last, with the gradient written by hand; h, b and e in units of 1/c, s and r less 1.

    Given the gradients dy of y = φ(h) and dℓ of ℓ = Σ log g, g = φ'(h), with P = softplus(h - e), Q = softplus(-h - e),

        dh = g dy + (r p (1 - p) - s q (1 - q)) dℓ / g,
        dr = Σ_B P dy + p dℓ / g,        ds = Σ_B -Q dy + q dℓ / g,
        de = Σ_B (s q - r p) dy - (r p (1 - p) + s q (1 - q)) dℓ / g.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, A: Tensor, b: Tensor, s: Tensor, r: Tensor, e: Tensor, keep: bool
    ) -> tuple[Tensor, Tensor]:
        maps, shifts = A.mT.contiguous().unbind(1), b[..., None].unbind(1)
        lefts, rights, bends = (v[..., None].unbind(1) for v in (s, r, e))
        log_slopes, kept = torch.zeros_like(h), [A, s, r, h]
        h = torch.baddbmm(shifts[0], maps[0], h)
        for left, right, bend, map_l, shift in zip(lefts, rights, bends, maps[1:], shifts[1:], strict=True):
            p, P = _sigmoid_and_softplus(h - bend)
            q, Q = _sigmoid_and_softplus(-h - bend)
            g = (right * p).addcmul_(left, q).add_(1.0)
            y = torch.addcmul(h, right, P).addcmul_(left, Q, value=-1)
            log_slopes.add_(g.log())
            h = torch.baddbmm(shift, map_l, y)
            if keep:
                kept += [p, P, q, Q, g, y]
        ctx.save_for_backward(*kept)
        return h, log_slopes.sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor, dl: Tensor) -> tuple[Tensor | None, ...]:
        A, s, r, *kept = ctx.saved_tensors
        p, P, q, Q, g = (kept[i::6] for i in range(1, 6))
        inputs = [kept[0], *kept[6::6]]
        maps, lefts, rights = A.unbind(1), s[..., None].unbind(1), r[..., None].unbind(1)
        dh, dl = dh.contiguous(), dl[:, None].expand_as(dh).contiguous()
        dA, db = torch.empty_like(A), torch.empty_like(A[..., 0])
        ds, dr, de = torch.empty_like(s), torch.empty_like(s), torch.empty_like(s)
        for layer in reversed(range(len(inputs))):
            dA[:, layer] = torch.bmm(inputs[layer], dh.mT)
            db[:, layer] = dh.sum(-1)
            dy = torch.bmm(maps[layer], dh)
            if layer > 0:
                k = layer - 1
                dg = dl / g[k]
                dr[:, k] = torch.addcmul(p[k] * dg, P[k], dy).sum(-1)
                ds[:, k] = torch.addcmul(q[k] * dg, Q[k], dy, value=-1).sum(-1)
                rp, sq = rights[k] * p[k], lefts[k] * q[k]
                bend_p, bend_q = torch.addcmul(rp, rp, p[k], value=-1), torch.addcmul(sq, sq, q[k], value=-1)
                de[:, k] = (sq - rp).mul_(dy).addcmul_(bend_p + bend_q, dg, value=-1).sum(-1)
                dh = (bend_p - bend_q).mul_(dg).addcmul_(g[k], dy)
            else:
                dh = dy
        return dh, dA, db, ds, dr, de, None


class AutoregressiveFlow(nn.Module):
    """t = f(x): D masked autoregressive maps, their order of coordinates reversed each time, then t <- t W + b.

        h_i <- h_i exp(s_i(h_<i)) + m_i(h_<i),        log|det df/dx| = Σ_l Σ_i s_li + log|det W|

    as in Papamakarios et al. (2017), from zuko. One coordinate after the other has to be solved for in the inverse.

    Parameters
    ----------
    members, n, depth : R, the dimension and D.
    start : W, (n, n) for all members or (R, n, n); the identity by default.
    hidden : widths of the net behind every map.
    rng : source of the start.

    Examples
    --------
    >>> import torch
    >>> rng = torch.Generator().manual_seed(0)
    >>> flow = AutoregressiveFlow(3, 2, 4, hidden=(8,), rng=rng)
    >>> x = torch.randn(3, 5, 2, generator=rng)
    >>> t, log_det = flow(x)
    >>> t.shape, log_det.shape
    (torch.Size([3, 5, 2]), torch.Size([3, 5]))
    >>> bool((flow.inverse(t) - x).abs().max() < 1e-5)
    True
    """

    def __init__(
        self,
        members: int,
        n: int,
        depth: int,
        *,
        start: Tensor | None = None,
        hidden: tuple[int, ...] = (64, 64),
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        start = _check_start(members, n, depth, start)
        seed = int(torch.randint(2**31 - 1, (1,), generator=rng))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            each = [_Autoregressive(n, depth, hidden) for _ in range(members)]
        parameters, buffers = torch.func.stack_module_state(each)
        self.stacked = nn.ParameterDict({k.replace(".", "__"): v.detach().clone() for k, v in parameters.items()})
        for name, value in buffers.items():
            self.register_buffer(name.replace(".", "__"), value)
        self._buffer_names = tuple(buffers)
        self._form = (each[0].to("meta"),)  # in a tuple, so that its own parameters are not counted as the flow's
        self.weight = nn.Parameter(start.expand(members, n, n).clone())
        self.bias = nn.Parameter(torch.zeros(members, n, dtype=start.dtype))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return t (R, B, n) and log|det df/dx| (R, B) for x (R, B, n), or (B, n) shared by all members."""
        h, log_det = self._each(x.expand(len(self.weight), *x.shape[-2:]), inverse=False)
        t = h @ self.weight + self.bias[:, None]
        return t, log_det + torch.linalg.slogdet(self.weight).logabsdet[:, None]

    @torch.no_grad()
    def then(self, W: Tensor, b: Tensor) -> None:
        """Follow f by the affine map t <- t W + b, W (R, n, n) and b (R, n)."""
        self.bias.copy_((self.bias[:, None] @ W)[:, 0] + b)
        self.weight.copy_(self.weight @ W)

    @torch.no_grad()
    def inverse(self, t: Tensor) -> Tensor:
        """Return x (R, B, n) with f(x) = t, to rounding, for t (R, B, n) or (B, n); no gradient."""
        h = torch.linalg.solve(self.weight, t - self.bias[:, None], left=False)
        return self._each(h, inverse=True)[0]

    def _each(self, h: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        parameters = {k.replace("__", "."): v for k, v in self.stacked.items()}
        buffers = {k: getattr(self, k.replace(".", "__")) for k in self._buffer_names}

        def one(p: dict[str, Tensor], b: dict[str, Tensor], rows: Tensor) -> Any:
            return torch.func.functional_call(self._form[0], (p, b), (rows, inverse))

        return torch.func.vmap(one)(parameters, buffers, h)


class _Autoregressive(nn.Module):
    """The maps of one member."""

    def __init__(self, n: int, depth: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        from zuko.flows.autoregressive import MaskedAutoregressiveTransform

        forth = torch.arange(n)
        orders = [forth if layer % 2 == 0 else forth.flip(0) for layer in range(depth)]
        self.maps = nn.ModuleList([MaskedAutoregressiveTransform(n, order=o, hidden_features=hidden) for o in orders])

    def forward(self, h: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
        log_det = torch.zeros_like(h[:, 0])
        for layer in reversed(self.maps) if inverse else self.maps:
            transform = layer().inv if inverse else layer()
            h, change = transform.call_and_ladj(h)
            log_det = log_det + change
        return h, log_det
