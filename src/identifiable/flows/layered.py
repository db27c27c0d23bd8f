"""Flows of affine maps and elementwise functions: the start, the layers with a hand-written gradient, the inverse."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class LayeredFlow(nn.Module):
    """t = f(x): D affine maps h <- h A_l + b_l, and between them, unit by unit, an increasing function φ.

    At the start A_1, ..., A_{D-1} are random rotations and A_0 = W (A_1 ⋯ A_{D-1})ᵀ, so that the product is W. A
    subclass has the parameters of φ, and defines the methods below that raise `NotImplementedError`. These see h and φ
    multiplied by `unit`, chosen so that φ takes the fewest operations.

    Parameters
    ----------
    members, n, depth : R, the dimension and D.
    start : W, (n, n) for all members or (R, n, n). None is the identity. A float64 W gives a float64 flow.
    rng : source of the start.
    """

    logs_at_once: ClassVar[int] = 1  # layers whose slopes are multiplied before the logarithm; no product may overflow
    bias: Tensor

    def __init__(
        self, members: int, n: int, depth: int, *, start: Tensor | None = None, rng: torch.Generator | None = None
    ) -> None:
        super().__init__()
        start = check_start(members, n, depth, start)
        noise = torch.randn((members, depth, n, n), generator=rng, dtype=start.dtype)
        self.weight = nn.Parameter(_rotations(start, noise))

    @property
    def biases(self) -> Tensor:
        """b_0, ..., b_{D-1}, (R, D, n)."""
        return self.bias

    @property
    def unit(self) -> Tensor | float:
        """The factor of h in the methods below."""
        raise NotImplementedError

    def coefficients(self) -> tuple[Tensor, ...]:
        """Return the coefficients of φ, (R, D - 1, n) each."""
        raise NotImplementedError

    @staticmethod
    def activate(h: Tensor, *coefficients: Tensor) -> tuple[Tensor, ...]:
        """Return φ(h), φ'(h), and what else `gradients` needs, for h (R, n, B) and coefficients (R, n, 1)."""
        raise NotImplementedError

    @staticmethod
    def gradients(dy: Tensor, dl: Tensor, coefficients: tuple[Tensor, ...], *kept: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of h and of every coefficient, (R, n, B), given those of φ(h) and of log φ'(h)."""
        raise NotImplementedError

    @staticmethod
    def deactivate(y: Tensor, *coefficients: Tensor) -> Tensor:
        """Solve φ(h) = y for h."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return t (R, B, n) and log|det df/dx| (R, B) for x (R, B, n), or (B, n) shared by all members."""
        h = (x.mT * self.unit).expand(len(self.weight), -1, -1).contiguous()
        h, log_slopes = _Layers.apply(  # type: ignore[no-untyped-call]
            type(self), torch.is_grad_enabled(), h, self.weight, self.biases * self.unit, *self.coefficients()
        )
        return (h / self.unit).mT, log_slopes + torch.linalg.slogdet(self.weight).logabsdet.sum(1, keepdim=True)

    @torch.no_grad()
    def inverse(self, t: Tensor) -> Tensor:
        """Return x (R, B, n) with f(x) = t, up to rounding, for t (R, B, n) or (B, n); no gradient."""
        h, bias = t.mT * self.unit, (self.biases * self.unit)[..., None]
        layers = [*zip(*_by_layer(self.coefficients()), strict=True)]
        for layer in reversed(range(self.weight.shape[1])):
            h = torch.linalg.solve(self.weight[:, layer].mT, h - bias[:, layer])
            if layer > 0:
                h = self.deactivate(h, *layers[layer - 1])
        return (h / self.unit).mT

    @torch.no_grad()
    def then(self, W: Tensor, b: Tensor) -> None:
        """Follow f by the affine map t <- t W + b, W (R, n, n) and b (R, n), merged into the last layer."""
        self.weight[:, -1] = self.weight[:, -1] @ W
        self.bias[:, -1] = (self.bias[:, -1:] @ W)[:, 0] + b

    def _noise(self, rng: torch.Generator | None, *shape: int) -> Tensor:
        return torch.randn((len(self.weight), *shape), generator=rng, dtype=self.weight.dtype)


class _Layers(torch.autograd.Function):
    """All layers at once, with a hand-written gradient.

    Shapes are h (R, n, B), A (R, D, n, n), b (R, D, n), and (R, D - 1, n) for the coefficients c of φ. With the batch
    last every operation runs along contiguous memory, which makes a step with n = 10 fast on a CPU.
    """

    @staticmethod
    def forward(
        ctx: Any, flow: type[LayeredFlow], keep: bool, h: Tensor, A: Tensor, b: Tensor, *c: Tensor
    ) -> tuple[Tensor, Tensor]:
        maps, shifts, kept = A.mT.contiguous().unbind(1), b[..., None].unbind(1), [A, *c, h]
        log_slopes, slopes = torch.zeros_like(h), torch.ones_like(h)
        h = torch.baddbmm(shifts[0], maps[0], h)
        for layer, c_l in enumerate(zip(*_by_layer(c), strict=True), 1):
            y, slope, *other = flow.activate(h, *c_l)
            slopes.mul_(slope)
            if layer % flow.logs_at_once == 0 or layer == len(c[0][0]):
                log_slopes.add_(slopes.log())
                slopes.fill_(1.0)
            h = torch.baddbmm(shifts[layer], maps[layer], y)
            if keep:
                kept += [y, slope, *other]
        ctx.flow, ctx.n_coefficients = flow, len(c)
        ctx.save_for_backward(*kept)
        return h, log_slopes.sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor, dl: Tensor) -> tuple[Tensor | None, ...]:
        A, *kept = ctx.saved_tensors
        c, x, kept = kept[: ctx.n_coefficients], kept[ctx.n_coefficients], kept[ctx.n_coefficients + 1 :]
        maps, c_by_layer = A.unbind(1), [*zip(*_by_layer(c), strict=True)]
        size = len(kept) // max(len(maps) - 1, 1)  # tensors kept per layer: φ(h), φ'(h) and others
        inputs = [x, *kept[:: size or 1]]
        dh, dl = dh.contiguous(), dl[:, None].expand_as(dh).contiguous()
        dA, db = [], []
        dc: list[list[Tensor]] = [[] for _ in c]
        for layer in reversed(range(len(maps))):
            dA.append(torch.bmm(inputs[layer], dh.mT))
            db.append(dh.sum(-1))
            dh = torch.bmm(maps[layer], dh)
            if layer > 0:
                k = layer - 1
                dh, *changes = ctx.flow.gradients(dh, dl, c_by_layer[k], *kept[k * size + 1 : (k + 1) * size])
                for total, change in zip(dc, changes, strict=True):
                    total.append(change.sum(-1))
        dc_joined = [torch.stack(total[::-1], 1) if total else v for total, v in zip(dc, c, strict=True)]
        return None, None, dh, torch.stack(dA[::-1], 1), torch.stack(db[::-1], 1), *dc_joined


def _by_layer(coefficients: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Return each coefficient (R, D - 1, n) as D - 1 tensors (R, n, 1)."""
    return [v[..., None].unbind(1) for v in coefficients]


def check_start(members: int, n: int, depth: int, start: Tensor | None) -> Tensor:
    """Return the linear start, the identity by default; refuse sizes below 1 and a start of another shape."""
    if min(members, n, depth) < 1:
        raise ValueError(f"members, n and depth must be at least 1. Got {members}, {n} and {depth}.")
    start = torch.eye(n) if start is None else start
    if start.shape not in ((n, n), (members, n, n)):
        raise ValueError(f"start must be (n, n) or (members, n, n), n = {n}. Got {tuple(start.shape)}.")
    return start


def _rotations(start: Tensor, noise: Tensor) -> Tensor:
    """Return matrices (R, D, n, n) whose product is start: all but the first are rotations, made of noise."""
    weight = torch.linalg.qr(noise)[0].contiguous()
    product = torch.eye(noise.shape[-1], dtype=start.dtype)
    for rotation in weight.unbind(1)[1:]:
        product = product @ rotation
    weight[:, 0] = start @ product.mT
    return weight


def sigmoid_and_softplus(w: Tensor) -> tuple[Tensor, Tensor]:
    """Return σ(w) and softplus(w) = w - log σ(w), for w of any size.

    Below -36, where both are less than 2^-51, they keep their value there: log σ(w) would overflow. `F.softplus` is
    slow on a CPU (many times slower where it meets denormal numbers) and off by e^-20 in float64.
    """
    q = w.clamp_min(-36.0)
    p = torch.sigmoid(q)
    return p, q.sub_(p.log())
