"""The training loop of the library.

`minimise` solves, for R members (restarts) at once,

    min_θr  E_batch[ loss(θr) ]        subject to  inequality(θr) <= 0,        r = 1..R,

by Adam. Members are independent: every parameter has the member axis first, the losses are summed, and one backward
pass gives every member its own gradient. With constraints, each member has its own Lagrange multipliers λ, and a step
is extragradient Adam (Gidel et al. 2019): with v = (θ, λ), G the gradient of the Lagrangian (ascent in λ) and U the
update of Adam, whose moments see both gradients,

    v' = v + U(G(v)),    v <- v + U(G(v')),    λ clipped at zero after each.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from identifiable import files
from identifiable.errors import FitFailedError
from identifiable.training.clock import require_time
from identifiable.training.cuda_graph import CudaGraph
from identifiable.training.plan import Batch, Constrained, Data, Loss, Plan, Stage, Step
from identifiable.training.state import History, Run, fingerprint_of

Result = TypeVar("Result")


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
    """Train all members of module in place and return the records.

    Parameters
    ----------
    module : its parameters and buffers all have the member axis R first.
    loss : (batch, step) -> (R,) losses, or `Constrained` with `plan.dual_rate`. The batch holds tensors (R, B, ...).
    data : tensors with N rows each on the module's device, or a function (rows, rng) -> fresh rows.
    plan : steps, learning rate, annealing, patience.
    seed : fixes batches and noise; with the initial parameters it fixes the result, bit for bit, on one device.
    criterion : () -> (R,), or (R, H) for each held-out row; lower is better, without ground truth. Each member ends
        with the parameters of its best record.
    prepare : (batch, step) -> the batch to use. Called before each step, for changes outside the gradient.
    capture : on a GPU, record the step once and replay it, which is many times faster for small nets. The loss must
        then be the same function of the batch, the annealed quantities, the module and draws from `step.rng` at every
        step, without `step.number`. Whatever else changes, `prepare` puts into the batch or into buffers.
    checkpoint : a file to continue from if it exists, and to write to during training. A fit that is killed and started
        again with the same arguments ends with the same parameters, bit for bit.
    problem : whatever else the loss depends on, as text: a checkpoint of another problem is refused.
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
    with _progress(plan, verbose) as bar, _deterministic_convolutions():
        task = bar.add_task("fit", total=plan.steps, completed=run.time, value="")
        while not run.stopped:
            require_time()
            run.set_rate(plan.rate(run.time))
            for name, schedule in plan.anneal.items():
                annealed[name].fill_(schedule.at(run.time / plan.steps))
            module.train()
            batch, step = run.batches.draw(), Step(run.step, run.rng, annealed)
            if prepare is not None:
                batch = prepare(batch, step)
            value, excess, gradient = replayed(batch) if captured else _advance(run, loss, step, batch)
            total, counted = total + value, counted + 1
            rate = plan.rate(run.time)
            run.advance()
            if run.step % plan.record_every == 0 or run.time == plan.steps:
                record = _record(run, rate, total / counted, excess, gradient)
                run.seconds = time.monotonic() - started
                module.eval()
                with torch.no_grad():
                    settled = run.time >= plan.criterion_from * plan.steps
                    run.note(record, criterion() if criterion is not None and settled else None)
                total, counted = torch.zeros_like(total), 0
                bar.update(task, completed=run.time, value=f"loss {min(record['loss']):.4g}")
                if path is not None and time.monotonic() - saved >= plan.checkpoint_seconds:
                    run.save(path, fingerprint)
                    saved = time.monotonic()
    module.eval()
    return _finish(run, path, fingerprint)


def run(stages: Generator[Stage, History, Result], verbose: int = 0) -> Result:
    """Train the stages that a generator yields, send each history back to it, and return what it returns.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Module()
    >>> net.w = torch.nn.Parameter(torch.zeros(2, 1))
    >>> def stages():
    ...     history = yield Stage(net, lambda batch, step: net.w.square().sum(1), [torch.zeros(4, 1)], Plan(steps=3))
    ...     return history.step[-1]
    >>> int(run(stages()))
    3
    """
    try:
        stage = next(stages)
        while True:
            stage = stages.send(minimise(**vars(stage), verbose=verbose))
    except StopIteration as end:
        return end.value
    finally:
        stages.close()


@contextmanager
def _deterministic_convolutions() -> Iterator[None]:
    """Let convolutions on a GPU sum in the same order every time."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


def _advance(run: Run, loss: Loss, step: Step, batch: Batch) -> tuple[Tensor, Tensor | None, Tensor]:
    """Take one step; return losses (R,) and constraints (R, 1) before it, and the gradient norm of each member."""
    constrained = run.multipliers is not None
    variables = [p.data for p in (*run.parameters, run.multipliers) if p is not None]
    start = [v.clone() for v in variables] if constrained else []
    values: list[tuple[Tensor, Tensor | None]] = []
    for second in (False, True) if constrained else (False,):
        for optimiser in run.optimisers:
            optimiser.zero_grad(set_to_none=True)
        found = loss(batch, step)
        value, excess = (found.loss, found.inequality) if isinstance(found, Constrained) else (found, None)
        if value.shape != (run.members,):
            raise ValueError(f"loss must return one value per member, ({run.members},). Got {tuple(value.shape)}.")
        if (excess is None) == constrained:
            raise ValueError("A Constrained loss needs Plan(dual_rate=...), and dual_rate needs a Constrained loss.")
        total = value if excess is None or run.multipliers is None else value + (run.multipliers * excess).sum(1)
        total.sum().backward()
        gradient = _clip_gradients(run, run.plan.clip)
        if second:
            torch._foreach_copy_(variables, start)
        run.update()
        values.append((value.detach(), None if excess is None else excess.detach()))
    return *values[0], gradient


def _clip_gradients(run: Run, clip: float | None) -> Tensor:
    """Bound the gradient norm of each member by clip; replace gradients that are not finite by zero."""
    gradients = [p.grad for p in run.parameters if p.grad is not None]
    norm: Tensor = torch.linalg.vector_norm(torch.cat([g.reshape(run.members, -1) for g in gradients], 1), dim=1)
    factor = torch.ones_like(norm) if clip is None else (clip / norm.clamp(min=1e-12)).clamp(max=1)
    factor = torch.where(norm.isfinite(), factor, torch.zeros_like(factor))
    if run.device.type == "cpu" and bool((factor == 1).all()):
        return norm
    for g in gradients:
        g.nan_to_num_(0.0, 0.0, 0.0).mul_(factor.reshape(-1, *[1] * (g.dim() - 1)))
    return norm


def _record(run: Run, rate: float, loss: Tensor, excess: Tensor | None, gradient: Tensor) -> dict[str, Any]:
    record = {
        "step": run.step,
        "learning_rate": rate,
        "loss": loss.double().cpu().tolist(),
        "gradient": gradient.double().cpu().tolist(),
    }
    if excess is not None:
        record["violation"] = excess.clamp(min=0).amax(1).double().cpu().tolist()
    return record


def _finish(run: Run, path: Path | None, fingerprint: str) -> History:
    if path is not None:
        run.save(path, fingerprint)
    history = run.history()
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
