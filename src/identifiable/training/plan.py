"""What to minimise, for how long and at which rate: the types of the training loop."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

SETTLED_FROM = 0.5  # usual value of `Plan.settled_from`: the learning rate has fallen to half its peak
WINDOW = 5  # records whose mean is compared with that of as many before
HURRY = 4  # steps of the schedule per training step, once the criterion has settled


@dataclass(frozen=True)
class Anneal:
    """A quantity that goes from start to end over the first `until` of training, geometrically or linearly.

    Examples
    --------
    >>> Anneal(1.0, 0.01, until=0.8).at(0.4)
    0.1
    >>> Anneal(0.0, 1.0, until=0.5, geometric=False).at(0.9)
    1.0
    """

    start: float
    end: float
    until: float = 0.8
    geometric: bool = True

    def at(self, fraction: float) -> float:
        """Return the value when this fraction of the steps is done."""
        t = min(1.0, fraction / self.until) if self.until > 0 else 1.0
        if self.geometric:
            return float(self.start * (self.end / self.start) ** t)
        return self.start + (self.end - self.start) * t


@dataclass(frozen=True)
class Plan:
    """Number of steps, learning rate, and when to stop.

    The learning rate rises linearly over the first `warm_up` of the steps and falls along a cosine to `final` times its
    peak. `clip` bounds the gradient norm of each member. `dual_rate` is the learning rate of the multipliers of a
    `Constrained` loss; None trains without constraints. With a criterion, training stops once no member has improved
    for `patience` records. Records count from the share `criterion_from` of the steps on, because annealed losses are
    not comparable before. Every `every` steps there is a record (default: 100 records), and a checkpoint, if requested,
    at the first record `checkpoint_seconds` after the last checkpoint.

    From the share `settled_from` of the steps on, training also ends early once the criterion no longer improves beyond
    its noise: for no member is the mean of the last `WINDOW` records better than that of the `WINDOW` records before by
    more than its standard error over the held-out rows. The rest of the schedule, in which the learning rate falls and
    most of the last gains are made, then passes `HURRY` times as fast. The criterion must return a value for each row.
    """

    steps: int
    batch_size: int = 256
    learning_rate: float = 1e-3
    warm_up: float = 0.05
    final: float = 0.01
    betas: tuple[float, float] = (0.9, 0.99)
    clip: float | None = None
    dual_rate: float | None = None
    patience: int | None = None
    criterion_from: float = 0.0
    settled_from: float = 1.0
    every: int | None = None
    anneal: Mapping[str, Anneal] = field(default_factory=dict)
    checkpoint_seconds: float = 30.0

    def rate(self, step: int) -> float:
        """Return the learning rate of this step (counted from 0)."""
        warm = self.warm_up * self.steps
        if step + 1 < warm:
            return self.learning_rate * (step + 1) / warm
        t = max(0.0, step - warm) / max(1.0, self.steps - warm)
        return self.learning_rate * (self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * t)))

    @property
    def record_every(self) -> int:
        """Steps between two records."""
        return self.every if self.every is not None else max(1, self.steps // 100)


@dataclass(frozen=True)
class Step:
    """The current step as a loss sees it: its number, its random generator, and the annealed quantities."""

    number: int
    rng: torch.Generator
    annealed: Mapping[str, Tensor]


@dataclass(frozen=True)
class Constrained:
    """What a constrained loss returns: loss (R,) to minimise subject to inequality (R, 1) <= 0."""

    loss: Tensor
    inequality: Tensor


Batch = tuple[Tensor, ...]
Loss = Callable[[Batch, Step], Tensor | Constrained]
# Arrays with N rows each, or a function (rows, rng) -> fresh rows.
Data = Sequence[Tensor] | Callable[[int, torch.Generator], Sequence[Tensor]]


@dataclass(frozen=True)
class Stage:
    """One part of a training: the arguments of `minimise`, where each field is described."""

    module: nn.Module
    loss: Loss
    data: Data
    plan: Plan
    seed: int = 0
    criterion: Callable[[], Tensor] | None = None
    prepare: Callable[[Batch, Step], Batch] | None = None
    capture: bool = False
    checkpoint: str | Path | None = None
    problem: str = ""
