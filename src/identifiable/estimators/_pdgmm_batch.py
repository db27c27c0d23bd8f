"""A fit of `PDGMM` from the linear starts to the flows that are kept: all restarts of all data sets of one shape.

Short, through all stages; then, where the restarts of a data set disagree, under a mixture of full rank; then, where
that is not likelier, longer.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from identifiable.estimators._pdgmm_priors import FullGaussians, SpikeAndSlab
from identifiable.estimators._pdgmm_training import (
    FlowModel,
    Sets,
    Start,
    Training,
    exact_mixture,
    find_components,
    full_mixture,
    spike_and_slab,
)
from identifiable.estimators.base import STABLE, Stability
from identifiable.metrics import r2
from identifiable.nets import select_members
from identifiable.train import History

SHARE_A = 0.15  # of the steps that belong to stage A
LONG = 4  # times the steps of a whole short fit, in stage A alone


@dataclass(frozen=True)
class Trained:
    """Flows of one data set: members of a model, their latents (R, M, n) and likelihood of held-out rows."""

    model: FlowModel[Any]
    members: range
    latents: NDArray[Any]
    likelihood: float
    history: History
    long: bool

    @property
    def full_rank(self) -> bool:
        """Whether the prior is a mixture of full rank."""
        return isinstance(self.model.prior, FullGaussians)

    @property
    def stability(self) -> Stability:
        """How far the restarts agree: a mixture of full rank fixes the latents up to an affine map, and no further."""
        if not self.full_rank:
            return Stability.of(self.latents)
        pairwise = np.array([[max(r2(one, other), 0.0) ** 0.5 for other in self.latents] for one in self.latents])
        return Stability(pairwise)

    def or_more_agreed(self, other: "Trained") -> "Trained":
        """Return the one whose restarts agree more."""
        return other if other.stability.score > self.stability.score else self


class FlowBatch:
    """Rows (S, N, n) and held-out rows (S, M, n) of S data sets, and linear starts of 2 R restarts of each.

    The first R starts of a data set are of one kind, the others of another.
    """

    kept: list[int]

    def __init__(
        self,
        *,
        rows: Tensor,
        held: Tensor,
        start: Start,
        stream: Callable[[int, torch.Generator], Sequence[Tensor]] | None,
        restarts: int,
        max_steps: int,
        how: Training,
        seed: int,
    ) -> None:
        self.held, self.start, self.R, self.max_steps, self.how, self.seed = held, start, restarts, max_steps, how, seed
        seen = torch.arange(len(rows), device=rows.device).repeat_interleave(2 * restarts)
        self.sets = Sets(rows, seen, start.rare.float()[:, None, None].to(rows.device), stream)

    def fit(self, *, go_on: bool) -> list[Trained]:
        """Return the flows of each data set; go_on says whether to do more where restarts disagree."""
        found = self.stages(range(len(self.sets.seen)), self.how)
        unsure = [i for i, trained in enumerate(found) if go_on and trained.stability.score < STABLE]
        if unsure:
            for i, full in zip(unsure, self.full_rank(unsure), strict=True):
                found[i] = full if full.likelihood > found[i].likelihood else found[i]
            unsure = [i for i in unsure if not found[i].full_rank]
        if unsure:
            members = [self.kept[self.R * i + r] for i in unsure for r in range(self.R)]
            for i, longer in zip(unsure, self.stages(members, replace(self.how, long=True)), strict=True):
                found[i] = found[i].or_more_agreed(longer)
        return found

    def stages(self, members: Sequence[int], how: Training) -> list[Trained]:
        """Train these members through all stages; a short fit goes on with the likelier kind of start (`kept`)."""
        steps = max(1, round(SHARE_A * self.max_steps))
        sets, start = self.sets.only(members), self.start.only(members)
        sparse, history = spike_and_slab(sets, start, LONG * self.max_steps if how.long else steps, how, self.seed)
        if not how.long:
            self.kept = self.likelier(sparse)
            sets, sparse = self.sets.only(self.kept), select_members(sparse, self.kept)
        model, spike = find_components(sparse, sets, self.seed)
        before = self.by_set(copy.deepcopy(model), sets, history, how) if how.long else []
        history = exact_mixture(model, sets, spike, max(1, self.max_steps - steps), how, self.seed + 1)
        after = self.by_set(model, sets, history, how)
        # Where a long stage A ends far from the latents, or has found them exactly, stage B can do harm.
        return [b.or_more_agreed(a) for b, a in zip(after, before, strict=True)] if how.long else after

    def full_rank(self, which: Sequence[int]) -> list[Trained]:
        """Train flows of these data sets under a mixture of full rank, in which no latent rests."""
        sets = self.sets.only([2 * self.R * i + r for i in which for r in range(self.R)])
        model, history = full_mixture(sets, self.max_steps, self.how, self.seed)
        return self.by_set(model, sets, history, self.how)

    @torch.no_grad()
    def likelier(self, model: FlowModel[SpikeAndSlab]) -> list[int]:
        """Return the members of the kind of start with the higher held-out likelihood, for every data set."""
        density = model(self.held[self.sets.seen])[1].mean(1).nan_to_num(-math.inf)
        best = density.reshape(-1, 2, self.R).median(-1).values.argmax(1).tolist()
        return [2 * self.R * s + self.R * kind + r for s, kind in enumerate(best) for r in range(self.R)]

    @torch.no_grad()
    def by_set(self, model: FlowModel[Any], sets: Sets, history: History, how: Training) -> list[Trained]:
        """Return the flows of each data set."""
        t, density = model(self.held[sets.seen])
        t = t.double().cpu().numpy()
        likelihood = density.mean(1).nan_to_num(-math.inf).reshape(-1, self.R).median(1).values.tolist()
        parts = [range(i, i + self.R) for i in range(0, len(t), self.R)]
        return [
            Trained(model, part, t[part.start : part.stop], value, history, how.long)
            for part, value in zip(parts, likelihood, strict=True)
        ]
