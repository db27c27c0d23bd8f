"""Everything that changes while training, so that a checkpoint is complete by construction."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from identifiable import files
from identifiable.errors import DamagedFileError
from identifiable.training.plan import HURRY, WINDOW, Batch, Data, Plan


@dataclass(frozen=True)
class History:
    """Records of a training: T records of R members.

    Attributes
    ----------
    step, learning_rate : (T,)
    loss : (T, R) mean over the steps since the last record.
    gradient : (T, R) gradient norm at the record, before clipping.
    criterion : (T, R) the label-free criterion; NaN where there is none.
    violation : (T, R) the largest constraint violation at the record; NaN where there is no constraint.
    best_step : (R,) step of the record whose parameters each member ended with.
    multipliers : (R, 1) Lagrange multipliers at the end.
    stopped : why training ended: "steps", "patience" or "settled" (see `Plan`).
    seconds : wall time, over all resumed parts.
    """

    step: NDArray[np.int64]
    learning_rate: NDArray[np.float64]
    loss: NDArray[np.float64]
    gradient: NDArray[np.float64]
    criterion: NDArray[np.float64]
    violation: NDArray[np.float64]
    best_step: NDArray[np.int64]
    multipliers: NDArray[np.float64]
    stopped: str
    seconds: float

    def of(self, members: Sequence[int]) -> "History":
        """Return the history of these members alone."""
        own = list(members)
        tables = {name: getattr(self, name)[:, own] for name in ("loss", "gradient", "criterion", "violation")}
        return replace(self, **tables, best_step=self.best_step[own], multipliers=self.multipliers[own])

    def to_frame(self) -> pd.DataFrame:
        """Return a long table: one row per record and member."""
        records, members = self.loss.shape
        columns = {"step": np.repeat(self.step, members), "member": np.tile(np.arange(members), records)}
        columns["learning_rate"] = np.repeat(self.learning_rate, members)
        for name in ("loss", "gradient", "criterion", "violation"):
            columns[name] = getattr(self, name).ravel()
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        last = ", ".join(f"{v:.4g}" for v in self.loss[-1])
        return f"History({self.step[-1]} steps, stopped by {self.stopped}, loss [{last}], {self.seconds:.1f} s)"


class Batches:
    """Minibatches (R, B, ...): each member walks through the rows in its own random order, epoch by epoch."""

    def __init__(self, data: Data, size: int, members: int, rng: torch.Generator) -> None:
        self.data, self.size, self.members, self.rng = data, size, members, rng
        self.position = 0
        self.order: Tensor | None = None
        self.epoch_rng = rng.get_state()  # before the current order was drawn: enough to draw it again

    def draw(self) -> Batch:
        """Return the next batch."""
        if callable(self.data):
            fresh = self.data(self.members * self.size, self.rng)
            return tuple(t.reshape(self.members, self.size, *t.shape[1:]) for t in fresh)
        rows = len(self.data[0])
        if rows <= self.size:
            return tuple(t.expand(self.members, *t.shape) for t in self.data)
        if self.order is None or self.position + self.size > rows:
            self.epoch_rng = self.rng.get_state()
            self._shuffle()
            self.position = 0
        assert self.order is not None
        chosen = self.order[:, self.position : self.position + self.size]
        self.position += self.size
        return tuple(t[chosen] for t in self.data)

    def _shuffle(self) -> None:
        assert not callable(self.data)
        rows, device = len(self.data[0]), self.rng.device
        if device.type == "cpu":  # faster than to sort
            orders = [torch.randperm(rows, generator=self.rng) for _ in range(self.members)]
            self.order = torch.stack(orders)
        else:
            self.order = torch.rand((self.members, rows), generator=self.rng, device=device).argsort(dim=1)

    def resume(self, position: int, epoch_rng: Tensor, rng: Tensor) -> None:
        """Return to the position at which these states were saved."""
        self.epoch_rng, self.position = epoch_rng, position
        if position > 0:
            self.rng.set_state(epoch_rng)
            self._shuffle()
        self.rng.set_state(rng)


class Run:
    """Everything that changes while training, so that a checkpoint is complete by construction."""

    def __init__(self, module: nn.Module, data: Data, plan: Plan, seed: int, *, capturable: bool = False) -> None:
        self.module, self.plan = module, plan
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.members = len(self.parameters[0])
        if any(len(p) != self.members for p in self.parameters):
            raise ValueError(
                "Every parameter must carry the member axis first, with one common length. Got first axes "
                f"{sorted({len(p) for p in self.parameters})}."
            )
        self.device = self.parameters[0].device
        self.rng = torch.Generator(device=self.device).manual_seed(seed)
        self.batches = Batches(data, plan.batch_size, self.members, self.rng)
        capturable = capturable and self.device.type == "cuda"
        rate = torch.tensor(plan.learning_rate, device=self.device) if capturable else plan.learning_rate
        adam = partial(torch.optim.Adam, betas=plan.betas, fused=True, capturable=capturable)
        self.optimisers = [adam(self.parameters, lr=rate)]
        self.multipliers: Tensor | None = None
        if plan.dual_rate is not None:
            self.multipliers = nn.Parameter(self.parameters[0].new_zeros(self.members, 1))
            self.optimisers.append(adam([self.multipliers], lr=plan.dual_rate, maximize=True))
        self.step = 0
        self.time = 0  # steps of the schedule: as many as those of training, until the criterion has settled
        self.settled = False
        self.stale = 0
        self.recent: list[Tensor] = []  # the criterion of each held-out row, (R, H), at the last records
        self.seconds = 0.0
        self.best = np.full(self.members, np.inf)
        self.best_step = np.zeros(self.members, dtype=np.int64)
        self.best_state: dict[str, Tensor] | None = None
        self.records: list[dict[str, Any]] = []

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the parameters for the next step."""
        for group in self.optimisers[0].param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    @torch.no_grad()
    def update(self) -> None:
        """Take a step of Adam; multipliers stay non-negative."""
        for optimiser in self.optimisers:
            optimiser.step()
        if self.multipliers is not None:
            self.multipliers.clamp_(min=0)

    @property
    def stopped(self) -> str:
        """Why training is over: "steps", "patience" or "settled"; "" while it is not."""
        if self.time >= self.plan.steps:
            return "settled" if self.settled else "steps"
        return "patience" if self.plan.patience and self.stale >= self.plan.patience else ""

    def advance(self) -> None:
        """Count a step."""
        self.step += 1
        self.time = min(self.plan.steps, self.time + (HURRY if self.settled else 1))

    def _has_settled(self) -> bool:
        """Return whether the criterion of no member has improved beyond its noise in the last records."""
        if len(self.recent) < 2 * WINDOW:
            return False
        before, now = (torch.stack(part).mean(0) for part in (self.recent[:WINDOW], self.recent[WINDOW:]))
        gain = (before - now).nan_to_num(0.0, 0.0, 0.0)
        return bool((gain.mean(1) <= gain.std(1) / gain.shape[1] ** 0.5).all())

    def note(self, record: dict[str, Any], criterion: Tensor | None) -> None:
        """Add a record; keep the state of each member whose criterion, (R,) or per row (R, H), is its best so far."""
        if criterion is not None and criterion.dim() == 2:
            if self.time > self.plan.settled_from * self.plan.steps:
                self.recent = [*self.recent[1 - 2 * WINDOW :], criterion.detach()]
                self.settled = self.settled or self._has_settled()
            criterion = criterion.mean(1)
        if criterion is not None:
            value = criterion.detach().double().cpu().numpy()
            better = value < self.best
            self.stale = 0 if better.any() else self.stale + 1
            self.best[better], self.best_step[better] = value[better], self.step
            state = self.module.state_dict()
            if self.best_state is None:
                self.best_state = {k: v.detach().clone() for k, v in state.items()}
            keep = torch.as_tensor(better, device=self.device)
            for name, tensor in state.items():
                self.best_state[name][keep] = tensor.detach()[keep]
            record["criterion"] = value.tolist()
        self.records.append(record)

    def save(self, path: Path, fingerprint: str) -> None:
        """Write everything that changes."""
        tensors = {"rng": self.rng.get_state(), "epoch_rng": self.batches.epoch_rng}
        tensors |= {f"module/{k}": v for k, v in self.module.state_dict().items()}
        tensors |= {f"best/{k}": v for k, v in (self.best_state or {}).items()}
        for o, optimiser in enumerate(self.optimisers):
            for i, state in optimiser.state_dict()["state"].items():
                tensors |= {f"adam/{o}/{i}/{k}": v for k, v in state.items()}
        if self.multipliers is not None:
            tensors["multipliers"] = self.multipliers
        if self.recent:
            tensors["recent"] = torch.stack(self.recent)
        header = {
            "fingerprint": fingerprint,
            "step": self.step,
            "time": self.time,
            "settled": self.settled,
            "position": self.batches.position,
            "stale": self.stale,
            "seconds": self.seconds,
            "best": self.best.tolist(),
            "best_step": self.best_step.tolist(),
            "records": self.records,
        }
        files.write(path, "checkpoint", header, tensors)

    def resume(self, path: Path, fingerprint: str) -> None:
        """Read everything that changes; refuse the state of another problem."""
        contents = files.read(path, "checkpoint")
        header, tensors = contents.header, contents.tensors
        if header["fingerprint"] != fingerprint:
            raise DamagedFileError(
                f"The checkpoint {str(path)!r} belongs to another problem: data, seed, parameters or settings differ "
                "from this fit. Delete it to start anew, or name another file."
            )
        on_device = {k: v.to(self.device) for k, v in tensors.items()}
        self.module.load_state_dict(_under("module/", on_device))
        self.best_state = _under("best/", on_device) or None
        for o, optimiser in enumerate(self.optimisers):
            adam: dict[int, dict[str, Tensor]] = {}
            for name, tensor in _under(f"adam/{o}/", tensors).items():
                index, key = name.split("/")
                adam.setdefault(int(index), {})[key] = tensor
            optimiser.load_state_dict({"state": adam, "param_groups": optimiser.state_dict()["param_groups"]})
        if self.multipliers is not None:
            self.multipliers.data.copy_(on_device["multipliers"])
        self.batches.resume(header["position"], tensors["epoch_rng"], tensors["rng"])
        self.step, self.stale, self.seconds = header["step"], header["stale"], header["seconds"]
        self.time, self.settled = header["time"], header["settled"]
        self.recent = list(on_device["recent"]) if "recent" in on_device else []
        self.best, self.best_step = np.array(header["best"]), np.array(header["best_step"], dtype=np.int64)
        self.records = header["records"]

    def history(self) -> History:
        """Return the records as arrays."""

        def column(name: str) -> NDArray[np.float64]:
            return np.array([r.get(name, ([math.nan] * self.members)) for r in self.records], dtype=np.float64)

        none = torch.zeros(self.members, 0)
        multipliers = (none if self.multipliers is None else self.multipliers).detach().double().cpu().numpy()
        return History(
            step=np.array([r["step"] for r in self.records], dtype=np.int64),
            learning_rate=np.array([r["learning_rate"] for r in self.records]),
            loss=column("loss"),
            gradient=column("gradient"),
            criterion=column("criterion"),
            violation=column("violation"),
            best_step=self.best_step if self.best_state else np.full(self.members, self.step, dtype=np.int64),
            multipliers=multipliers,
            stopped=self.stopped,
            seconds=self.seconds,
        )


def fingerprint_of(run: Run, data: Data, seed: int, problem: str) -> str:
    """Return a hash of the problem: a checkpoint of another problem must not be continued."""
    h = hashlib.sha256()
    shapes = {k: [str(v.dtype), *v.shape] for k, v in run.module.state_dict().items()}
    plan = asdict(run.plan) | {"checkpoint_seconds": None}
    h.update(json.dumps([plan, seed, shapes, run.device.type, problem], sort_keys=True).encode())
    for tensor in () if callable(data) else data:
        h.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        h.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).data)
    return h.hexdigest()


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
