"""Extragradient descent with a bound, for the sparse autoencoders whose papers train this way."""

import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from identifiable.training.clock import require_time
from identifiable.training.cuda_graph import CudaGraph
from identifiable.training.plan import Batch, Constrained
from identifiable.training.state import History


def extragradient(
    module: nn.Module,
    objective: Callable[[Batch], Constrained],
    draw: Callable[[], Batch],
    steps: int,
    rates: tuple[float, float],
    verbose: int = 0,
) -> History:
    """Solve min loss s.t. inequality <= 0 for every member of module; all steps are taken.

    With v = (θ, λ), the Lagrangian's gradient G (ascent in λ) and Adam's update U, whose moments see both gradients,

        v' = v + U(G(v)),    v <- v + U(G(v')),    λ clipped at zero after each.

    objective(batch) returns losses (R,) and one inequality each, (R, 1); rates are those of the parameters and of the
    multipliers. Members are independent: their Lagrangians add up, and Adam works entry by entry. On a GPU the step is
    recorded and replayed, so the objective must do the same at every call.

    Examples
    --------
    min (w - 3)² s.t. w <= 1 has the multiplier 4.

    >>> net = nn.Module()
    >>> net.w = nn.Parameter(torch.zeros(1, 1))
    >>> objective = lambda batch: Constrained((net.w - 3).square().sum(1), net.w - 1)
    >>> history = extragradient(net, objective, lambda: (), 600, (5e-2, 2e-2))
    >>> print(f"{net.w.item():.1f} {history.multipliers.item():.1f}")
    1.0 4.0
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    members, on_gpu = len(parameters[0]), parameters[0].is_cuda
    multipliers = nn.Parameter(parameters[0].new_zeros(members, 1))
    optimisers = [
        torch.optim.Adam(parameters, lr=rates[0], fused=True, capturable=on_gpu),
        torch.optim.Adam([multipliers], lr=rates[1], fused=True, capturable=on_gpu, maximize=True),
    ]
    now = [p.detach() for p in (*parameters, multipliers)]
    before = [p.clone() for p in now]

    def differentiate(batch: Batch) -> Tensor:
        for optimiser in optimisers:
            optimiser.zero_grad(set_to_none=True)
        value = objective(batch)
        assert value.inequality is not None
        (value.loss + (multipliers * value.inequality).sum(1)).sum().backward()
        return torch.stack([value.loss.detach(), value.inequality.detach()[:, 0]])

    def update() -> None:
        for optimiser in optimisers:
            optimiser.step()
        now[-1].clamp_(min=0)

    def advance(batch: Batch) -> Tensor:
        torch._foreach_copy_(before, now)
        found = differentiate(batch)
        update()
        differentiate(batch)
        torch._foreach_copy_(now, before)
        update()
        return found

    take = CudaGraph(advance) if on_gpu else advance
    records, every, started, console = [], max(1, steps // 100), time.monotonic(), Console(stderr=True)
    hidden = verbose == 0 or not console.is_terminal
    module.train()
    for step in track(range(1, steps + 1), "sparse", console=console, transient=True, disable=hidden):
        require_time()
        found = take(draw())
        if step % every == 0 or step == steps:
            norms = [p.grad.reshape(members, -1).norm(dim=1) for p in parameters if p.grad is not None]
            records.append(torch.cat([found, torch.stack(norms).norm(dim=0, keepdim=True)]))
    module.eval()
    loss, violation, gradient = torch.stack(records, dim=1).double().cpu().numpy()  # (T, R) each
    return History(
        step=np.minimum(every * np.arange(1, len(loss) + 1), steps),
        learning_rate=np.full(len(loss), rates[0]),
        loss=loss,
        gradient=gradient,
        criterion=np.full_like(loss, np.nan),
        violation=np.maximum(violation, 0),
        best_step=np.full(members, steps, dtype=np.int64),
        multipliers=now[-1].double().cpu().numpy(),
        stopped="steps",
        seconds=time.monotonic() - started,
    )
