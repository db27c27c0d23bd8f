"""The one training loop of the library.

`minimise` solves, for R members (restarts) at once,

    min_θr  E_batch[ loss(θr) ]        s.t.  inequality(θr) <= 0,  equality(θr) = 0,       r = 1..R,

by Adam on the parameters and, where there are constraints, projected gradient ascent on one set of Lagrange multipliers
per member. Members share nothing but the clock: every parameter has the member axis first, the losses are summed, and
so one backward pass gives every member its own gradient.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from identifiable import files
from identifiable.errors import FitFailedError
from identifiable.training.clock import require_time
from identifiable.training.cuda_graph import CudaGraph
from identifiable.training.plan import Batch, Constrained, Data, Loss, Plan, Step
from identifiable.training.state import History, Run, fingerprint_of


def minimise(
    module: nn.Module,
    loss: Loss,
    data: Data,
    plan: Plan,
    *,
    seed: int = 0,
    criterion: Callable[[], Tensor] | None = None,
    prepare: Callable[[Batch, Step], Batch] | None = None,
    capture: bool = False,
    checkpoint: str | Path | None = None,
    problem: str = "",
    verbose: int = 0,
) -> History:
    """Train all members of module in place and return what happened.

    Parameters
    ----------
    module : its parameters and buffers all have the member axis R first.
    loss : (batch, step) -> (R,) losses, or `Constrained`. The batch holds tensors (R, B, ...).
    data : tensors with N rows each on the module's device, or a function (rows, rng) -> fresh rows.
    plan : steps, learning rate, annealing, patience.
    seed : fixes batches and noise; with the module's start it fixes the result, bit for bit, on one device.
    criterion : () -> (R,), lower is better, on held-out data and never on the truth. Each member ends with the
        parameters of its best record. Where the loss itself is annealed, records are comparable from
        `plan.criterion_from` on.
    prepare : (batch, step) -> the batch to use, called before each step, for what changes outside the gradient.
    capture : on a GPU, record the step once and replay it, which is many times faster for small nets. The loss must
        then be the same function of the batch, the annealed quantities, the module and draws from `step.rng` at every
        step: no `step.number`, no constraints. What else changes, `prepare` puts into the batch or into buffers.
    checkpoint : a file to continue from if it exists, and to write to on the way. A fit that is killed and started
        again with the same arguments ends with the same parameters, bit for bit.
    problem : what else the loss depends on, in words: a checkpoint of another problem is refused.
    verbose : 0 is silent; 1 shows a progress bar on a terminal.

    Examples
    --------
    Two members find the minimum of (w - 3)² + noise.

    >>> import torch
    >>> net = torch.nn.Module()
    >>> net.w = torch.nn.Parameter(torch.zeros(2, 1))
    >>> loss = lambda batch, step: (net.w - batch[0]).square().mean(1)
    >>> data = [3 + torch.tensor([-1.0, 1.0])]
    >>> history = minimise(net, loss, data, Plan(steps=400, learning_rate=0.1))
    >>> net.w.detach().round(decimals=3).flatten()
    tensor([3., 3.])
    """
    run = Run(module, data, plan, seed, capturable=capture)
    path = Path(checkpoint) if checkpoint is not None else None
    fingerprint = fingerprint_of(run, data, seed, problem) if path is not None else ""
    if path is not None:
        files.require_folder(path)
        if path.exists():
            run.resume(path, fingerprint)
    started = saved = time.monotonic() - run.seconds
    annealed = {name: torch.zeros((), device=run.device) for name in plan.anneal}
    total, counted = torch.zeros(run.members, device=run.device), 0
    replayed = CudaGraph(partial(_advance, run, loss, Step(0, run.rng, annealed)), run.rng)
    captured = capture and run.device.type == "cuda"
    with _progress(plan, verbose) as bar, _one_order():
        task = bar.add_task("fit", total=plan.steps, completed=run.step, value="")
        while run.step < plan.steps and not (plan.patience and run.stale >= plan.patience):
            require_time()
            run.set_rate(plan.rate(run.step))
            for name, schedule in plan.anneal.items():
                annealed[name].fill_(schedule.at(run.step / plan.steps))
            module.train()
            batch, step = run.batches.draw(), Step(run.step, run.rng, annealed)
            if prepare is not None:
                batch = prepare(batch, step)
            value, gradient = replayed(batch) if captured else _advance(run, loss, step, batch)
            total, counted = total + value.loss.detach(), counted + 1
            run.step += 1
            if run.step % plan.record_every == 0 or run.step == plan.steps:
                record = _record(run, value, total / counted, gradient)
                run.seconds = time.monotonic() - started
                module.eval()
                with torch.no_grad():
                    settled = run.step >= plan.criterion_from * plan.steps
                    run.note(record, criterion() if criterion is not None and settled else None)
                total, counted = torch.zeros_like(total), 0
                bar.update(task, completed=run.step, value=f"loss {min(record['loss']):.4g}")
                if path is not None and time.monotonic() - saved >= plan.checkpoint_seconds:
                    run.save(path, fingerprint)
                    saved = time.monotonic()
    module.eval()
    return _finish(run, path, fingerprint)


@contextmanager
def _one_order() -> Iterator[None]:
    """Let convolutions on a GPU add up in the same order every time."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


def _advance(run: Run, loss: Loss, step: Step, batch: Batch) -> tuple[Constrained, Tensor]:
    """Take one step; return what was minimised, and the norm of each member's gradient."""
    run.optimiser.zero_grad(set_to_none=True)
    found = loss(batch, step)
    value = found if isinstance(found, Constrained) else Constrained(found)
    _lagrangian(run, value).sum().backward()
    gradient = _clip_gradients(run, run.plan.clip)
    run.optimiser.step()
    _ascend(run, value)
    return value, gradient


def _lagrangian(run: Run, value: Constrained) -> Tensor:
    if value.loss.shape != (run.members,):
        raise ValueError(f"loss must return one value per member, ({run.members},). Got {tuple(value.loss.shape)}.")
    constraints = _constraints(value)
    if constraints is None:
        return value.loss
    if run.multipliers is None:
        run.multipliers = torch.zeros_like(constraints.detach())
    return value.loss + (run.multipliers * constraints).sum(1)


def _constraints(value: Constrained) -> Tensor | None:
    given = [c for c in (value.inequality, value.equality) if c is not None]
    return torch.cat(given, dim=1) if given else None


def _ascend(run: Run, value: Constrained) -> None:
    """λ <- max(0, λ + η inequality),  μ <- μ + η equality."""
    constraints = _constraints(value)
    if constraints is None or run.multipliers is None:
        return
    run.multipliers.add_(constraints.detach(), alpha=run.plan.dual_rate)
    if value.inequality is not None:
        run.multipliers[:, : value.inequality.shape[1]].clamp_(min=0)


def _clip_gradients(run: Run, clip: float | None) -> Tensor:
    """Bound each member's gradient norm by clip; a member whose gradient is not finite gets none this time."""
    gradients = [p.grad for p in run.parameters if p.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(g.reshape(run.members, -1), dim=1) for g in gradients])
    norm: Tensor = torch.linalg.vector_norm(norms, dim=0)
    factor = torch.ones_like(norm) if clip is None else (clip / norm.clamp(min=1e-12)).clamp(max=1)
    factor = torch.where(norm.isfinite(), factor, torch.zeros_like(factor))
    for g in gradients:
        g.nan_to_num_(0.0, 0.0, 0.0).mul_(factor.reshape(-1, *[1] * (g.dim() - 1)))
    return norm


def _record(run: Run, value: Constrained, loss: Tensor, gradient: Tensor) -> dict[str, Any]:
    record = {
        "step": run.step,
        "learning_rate": run.plan.rate(run.step - 1),
        "loss": loss.double().cpu().tolist(),
        "gradient": gradient.double().cpu().tolist(),
    }
    violations = []
    if value.inequality is not None:
        violations.append(value.inequality.detach().clamp(min=0))
    if value.equality is not None:
        violations.append(value.equality.detach().abs())
    if violations:
        record["violation"] = torch.cat(violations, dim=1).amax(1).double().cpu().tolist()
    return record


def _finish(run: Run, path: Path | None, fingerprint: str) -> History:
    stopped = "steps" if run.step >= run.plan.steps else "patience"
    if path is not None:
        run.save(path, fingerprint)
    history = run.history(stopped)
    if not np.isfinite(history.loss[-1]).any():
        raise FitFailedError(
            "The loss is not finite in any restart. Standardise the data or lower learning_rate (now "
            f"{run.plan.learning_rate:g}); clip bounds the gradient."
        )
    if run.best_state is not None:
        run.module.load_state_dict(run.best_state)
    return history


def _progress(plan: Plan, verbose: int) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[value]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=verbose == 0 or not console.is_terminal,
    )
