"""Dense networks, batched over members, and operations on the members of any net.

A *member* is one of R restarts. Every parameter and buffer has the member axis first, and an input has shape
(R, B, width), so that one matrix product serves all restarts at once. `select_member` extracts one of them.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "leaky_relu": partial(F.leaky_relu, negative_slope=0.2),
    "leaky_relu_0.1": partial(F.leaky_relu, negative_slope=0.1),
    "leaky_relu_0.01": partial(F.leaky_relu, negative_slope=0.01),
    "elu": F.elu,
    "silu": F.silu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "identity": nn.Identity(),
}
WORTH_A_THREAD = 2**15  # outputs of a layer per member, from which on a thread saves more time than it costs
_threads: ContextVar[ThreadPoolExecutor | None] = ContextVar("threads", default=None)


class Linear(nn.Module):
    """y_r = x_r W_r + b_r for every member r, with x (R, B, inputs), W (R, inputs, outputs), b (R, 1, outputs).

    Weights and biases start uniform on ±1/sqrt(inputs), as in `torch.nn.Linear`.
    """

    def __init__(self, members: int, inputs: int, outputs: int, *, rng: torch.Generator | None = None) -> None:
        super().__init__()
        start = (torch.rand((members, inputs + 1, outputs), generator=rng) * 2 - 1) / math.sqrt(inputs)
        self.weight = nn.Parameter(start[:, :inputs].clone())
        self.bias = nn.Parameter(start[:, inputs:].clone())

    def forward(self, x: Tensor) -> Tensor:
        """Map (R, B, inputs) to (R, B, outputs)."""
        return torch.baddbmm(self.bias, x, self.weight)


class Dropout(nn.Module):
    """y = x m / (1 - p), m ~ Bernoulli(1 - p) for every number, in training; y = x in `eval()`.

    The generator `rng`, on the device of x, draws m; None is the default generator of torch. It belongs to one run:
    copies and state dicts do not contain it.

    Examples
    --------
    >>> import torch
    >>> layer = Dropout(0.5)
    >>> set_rng(layer, torch.Generator().manual_seed(0))
    >>> layer(torch.ones(1, 1, 6))
    tensor([[[0., 2., 0., 0., 0., 2.]]])
    >>> layer.eval()(torch.ones(1, 1, 6))
    tensor([[[1., 1., 1., 1., 1., 1.]]])
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"The share p of numbers to drop must be at least 0 and less than 1. Got {p!r}.")
        self.p = p
        self.rng: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map (R, B, width) to the same shape."""
        if not self.training or self.p == 0:
            return x
        kept = torch.rand(x.shape, generator=self.rng, dtype=x.dtype, device=x.device) >= self.p
        return x * kept / (1 - self.p)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "rng": None}


def set_rng(module: nn.Module, rng: torch.Generator | None) -> None:
    """Set the generator of every `Dropout` inside module."""
    for layer in module.modules():
        if isinstance(layer, Dropout):
            layer.rng = rng


class MLP(nn.Module):
    """Linear maps with an activation between them: widths (inputs, hidden..., outputs).

    In training, a share `dropout` of the outputs of hidden layer `dropout_after`, counted from 1, is dropped.

    Examples
    --------
    >>> import torch
    >>> rng = torch.Generator().manual_seed(0)
    >>> net = MLP(3, (5, 16, 2), activation="silu", rng=rng)
    >>> net(torch.ones(3, 7, 5)).shape
    torch.Size([3, 7, 2])
    """

    def __init__(
        self,
        members: int,
        widths: Sequence[int],
        *,
        activation: str | Callable[[Tensor], Tensor] = "silu",
        dropout: float = 0.0,
        dropout_after: int | None = None,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if len(widths) < 2 or min(widths) < 1:
            raise ValueError(f"widths must hold at least two positive sizes (inputs, ..., outputs). Got {widths!r}.")
        if dropout_after is None and dropout:
            raise ValueError(f"dropout={dropout!r} needs dropout_after, the hidden layer it comes after.")
        if dropout_after is not None and not 1 <= dropout_after <= len(widths) - 2:
            raise ValueError(
                f"dropout_after must be one of the {len(widths) - 2} hidden layers, counted from 1. "
                f"Got {dropout_after!r}."
            )
        self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation
        self.layers = nn.ModuleList(Linear(members, a, b, rng=rng) for a, b in pairwise(widths))
        self.dropout, self.dropout_after = Dropout(dropout), dropout_after

    @property
    def last(self) -> Linear:
        """The layer that gives the outputs."""
        return cast(Linear, self.layers[-1])

    def forward(self, x: Tensor) -> Tensor:
        """Map (R, B, inputs) to (R, B, outputs)."""
        parameters = [p for layer in self.layers for p in layer.parameters()]  # weight, bias
        threads, size = _threads.get(), x.shape[1] * max(p.shape[-1] for p in parameters)
        drops = self.training and self.dropout.p > 0  # members draw from one generator in turn
        if threads is None or len(x) == 1 or size < WORTH_A_THREAD or drops or x.device.type != "cpu":
            return self._map(x, *parameters)
        result: Tensor = _InThreads.apply(threads, self._map, x, *parameters)  # type: ignore[no-untyped-call]
        return result

    def _map(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Map (R, B, inputs) by weights and biases, in turn, of as many members."""
        layers = list(zip(parameters[1::2], parameters[::2], strict=True))
        for i, (bias, weight) in enumerate(layers, 1):
            x = torch.baddbmm(bias, x, weight)
            if i < len(layers):
                x = self.activation(x)
            if i == self.dropout_after:
                x = self.dropout(x)
        return x


class _InThreads(torch.autograd.Function):
    """A function of tensors (R, ...) that treats members apart: each member in a thread, forwards and backwards.

    Products of a few hundred rows are too small to share one among threads that wait for each other, but a whole net
    of one member is not.
    """

    @staticmethod
    def forward(ctx: Any, threads: ThreadPoolExecutor, function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        needed = [t.requires_grad for t in tensors]

        def one(r: int) -> tuple[Tensor, list[Tensor]]:
            with torch.set_grad_enabled(any(ctx.needs_input_grad)):
                own = [t.detach()[r : r + 1].requires_grad_(n) for t, n in zip(tensors, needed, strict=True)]
                return function(*own), [t for t in own if t.requires_grad]

        ctx.threads, ctx.needed, ctx.members = threads, needed, _in_threads(threads, one, len(tensors[0]))
        return torch.cat([out.detach() for out, _ in ctx.members])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        def one(r: int) -> Sequence[Tensor]:
            out, own = ctx.members[r]
            return torch.autograd.grad(out, own, gradient[r : r + 1])

        each = zip(*_in_threads(ctx.threads, one, len(gradient)), strict=True)
        return None, None, *(torch.cat(next(each)) if n else None for n in ctx.needed)


def _in_threads(threads: ThreadPoolExecutor, one: Callable[[int], Any], members: int) -> list[Any]:
    """Return one(0), ..., one(members - 1), the first of which this thread computes itself."""
    others = [threads.submit(one, r) for r in range(1, members)]
    return [one(0), *(other.result() for other in others)]


@contextmanager
def members_in_threads(count: int) -> Iterator[None]:
    """Let the members of large dense nets on the CPU use so many threads.

    >>> net, x = MLP(2, (3, 64, 1)), torch.ones(2, 1000, 3)
    >>> with members_in_threads(2):
    ...     apart = net(x)
    >>> torch.allclose(apart, net(x), atol=1e-6)
    True
    """
    if count == 1:
        yield
        return
    with ThreadPoolExecutor(count - 1) as threads:
        token = _threads.set(threads)
        try:
            yield
        finally:
            _threads.reset(token)


class Standardise(nn.Module):
    """y = (x - m) / s per member and column; m and s are those of the batch in training, and fixed ones in `eval()`.

    Batch normalisation keeps running averages, which lag behind the weights: its outputs on the training data are not
    exactly standardised. Here `calibrate` sets m and s to the exact mean and standard deviation over all the data,
    once training has ended.

    Examples
    --------
    >>> import torch
    >>> layer = Standardise(2, 4)
    >>> x = torch.randn(2, 1000, 4, generator=torch.Generator().manual_seed(0))
    >>> layer.calibrate(x.split(128, dim=1))
    >>> bool(layer.eval()(x).std(1, correction=0).sub(1).abs().max() < 1e-6)
    True
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, members: int, width: int, *, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.register_buffer("mean", torch.zeros(members, 1, width))
        self.register_buffer("scale", torch.ones(members, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        """Standardise (R, B, width) over B."""
        if self.training:
            variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
            return (x - mean) * torch.rsqrt(variance + self.epsilon)
        return (x - self.mean) / self.scale

    @torch.no_grad()
    def calibrate(self, blocks: Iterable[Tensor]) -> None:
        """Set m and s to those of the inputs (R, N, width), given in blocks; s = 1 for constant columns.

        The moments are summed in float64 and merged as in Chan, Golub & LeVeque (1979).
        """
        count, mean, squares = 0, torch.zeros(()), torch.zeros(())
        for block in blocks:
            x, rows = block.double(), block.shape[1]
            own = x.mean(1, keepdim=True)
            total, shift = count + rows, own - mean
            squares = squares + (x - own).square().sum(1, keepdim=True) + shift.square() * (count * rows / total)
            mean, count = mean + shift * (rows / total), total
        if count == 0:
            raise ValueError("calibrate needs at least one block of rows, got none.")
        scale = (squares / count).sqrt()
        self.mean.copy_(mean)
        self.scale.copy_(torch.where(scale > 0, scale, 1.0))


M = TypeVar("M", bound=nn.Module)


def select_member(module: M, member: int) -> M:
    """Return a copy of module that holds this member alone (R = 1)."""
    return select_members(module, [member])


def select_members(module: M, members: Sequence[int]) -> M:
    """Return a copy of module that holds these members, in this order."""
    chosen = copy.deepcopy(module)
    with torch.no_grad():
        for tensor in (*chosen.parameters(), *chosen.buffers()):
            tensor.data = tensor.data[list(members)]
    return chosen


def join_members(modules: Sequence[M]) -> M:
    """Return one module that holds the members of all of these, in their order.

    Examples
    --------
    >>> both = join_members([Linear(2, 3, 1), Linear(1, 3, 1)])
    >>> [len(p) for p in both.parameters()]
    [3, 3]
    """
    joined = copy.deepcopy(modules[0])
    each = [(*module.parameters(), *module.buffers()) for module in modules]
    with torch.no_grad():
        for tensor, *parts in zip((*joined.parameters(), *joined.buffers()), *each, strict=True):
            tensor.data = torch.cat([part.detach() for part in parts])
    return joined


def in_precision_of(module: M, rows: NDArray[Any]) -> M:
    """Return module in the precision of rows, float64 or float32: itself if it is in this precision, or else a copy."""
    dtype = torch.float64 if rows.dtype == np.float64 else torch.float32
    floating = (t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point())
    return module if all(t.dtype == dtype for t in floating) else copy.deepcopy(module).to(dtype)


def as_tensor(rows: NDArray[Any], device: torch.device, dtype: Any = np.float32) -> Tensor:
    """Return rows as a tensor of this precision on a device."""
    return torch.as_tensor(np.ascontiguousarray(rows, dtype=dtype), device=device)
