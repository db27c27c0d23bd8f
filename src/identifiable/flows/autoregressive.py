"""A masked autoregressive flow."""

from typing import Any

import torch
from torch import Tensor, nn

from identifiable.flows.layered import check_start


class AutoregressiveFlow(nn.Module):
    """t = f(x): D masked autoregressive maps, the order of coordinates reversed from map to map, then t <- t W + b.

        h_i <- h_i exp(s_i(h_<i)) + m_i(h_<i),        log|det df/dx| = Σ_l Σ_i s_li + log|det W|

    as in Papamakarios et al. (2017), implemented by zuko. The inverse solves for one coordinate after the other.

    Parameters
    ----------
    members, n, depth, start, rng : see `SmoothLeakyFlow`.
    hidden : tuple of int, default=(64, 64). Widths of the net in each map.

    Examples
    --------
    >>> import torch
    >>> flow = AutoregressiveFlow(3, 2, 4, hidden=(8,), rng=torch.Generator().manual_seed(0))
    >>> [tuple(value.shape) for value in flow(torch.ones(5, 2))]
    [(3, 5, 2), (3, 5)]
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
        start = check_start(members, n, depth, start)
        seed = int(torch.randint(2**31 - 1, (1,), generator=rng))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            each = [_Autoregressive(n, depth, hidden) for _ in range(members)]
        parameters, buffers = torch.func.stack_module_state(each)
        self.stacked = nn.ParameterDict({k.replace(".", "__"): v.detach().clone() for k, v in parameters.items()})
        for name, value in buffers.items():
            self.register_buffer(name.replace(".", "__"), value)
        self._buffer_names = tuple(buffers)
        self._template = (each[0].to("meta"),)  # a tuple hides its parameters from `flow.parameters()`
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
        """Return x (R, B, n) with f(x) = t, up to rounding, for t (R, B, n) or (B, n); no gradient."""
        h = torch.linalg.solve(self.weight, t - self.bias[:, None], left=False)
        return self._each(h, inverse=True)[0]

    def _each(self, h: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        parameters = {k.replace("__", "."): v for k, v in self.stacked.items()}
        buffers = {k: getattr(self, k.replace(".", "__")) for k in self._buffer_names}

        def one(p: dict[str, Tensor], b: dict[str, Tensor], rows: Tensor) -> Any:
            return torch.func.functional_call(self._template[0], (p, b), (rows, inverse))

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
