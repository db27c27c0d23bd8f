"""A fit of `PDGMM` from the linear starts to the flows that are kept: all restarts of all data sets of one shape.

A short fit goes through all stages, or, where latents are skewed, through stage A with slabs of any shape. Where the
restarts of a data set disagree, a mixture of full rank follows; where that is not likelier, an extended fit.
"""

import copy
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from identifiable.agreement.stability import THRESHOLDS, Stability, most_agreeing
from identifiable.estimators.pdgmm.stages import (
    SCHEDULE,
    FlowModel,
    Sets,
    Start,
    Training,
    exact_mixture,
    find_components,
    full_mixture,
    spike_and_slab,
)
from identifiable.metrics import r2
from identifiable.nets import select_members
from identifiable.priors.masked import FullGaussians
from identifiable.priors.spike_slab import ShapedSlabs, SpikeAndSlab
from identifiable.training import History, Stage

SKEWED, ONE_SIDED, HARDLY_ACTIVE = 1.5, 0.4, 0.07  # a typical latent's skewness, surplus on one side, activity
SAME = 0.98  # least agreement of restarts that were trained otherwise

Fits = Generator[Stage, History, "list[Trained]"]


@dataclass(frozen=True)
class Trained:
    """Flows of one data set: members of a model, their latents (R, M, n) and log-likelihoods (R,) of held-out rows."""

    model: FlowModel[Any]
    members: range
    latents: NDArray[Any]
    likelihoods: NDArray[Any]
    extended: bool = False
    skewed: bool = False

    @property
    def likelihood(self) -> float:
        """The log-likelihood of a typical restart."""
        return float(np.median(self.likelihoods))

    @property
    def kept(self) -> int:
        """The restart that agrees most with the others; among equals, as two always are, the likelier one."""
        return most_agreeing(self.stability.agreement, self.likelihoods)

    @property
    def full_rank(self) -> bool:
        """Whether the prior is a mixture of full rank."""
        return isinstance(self.model.prior, FullGaussians)

    @cached_property
    def stability(self) -> Stability:
        """Agreement of the restarts, up to an affine map under a mixture of full rank."""
        found = Stability.of(self.latents)
        if not self.full_rank:
            return found
        pairwise = np.array([[max(r2(one, other), 0.0) ** 0.5 for other in self.latents] for one in self.latents])
        return replace(found, pairwise=pairwise, affine=True)

    def or_better_agreeing(self, other: "Trained") -> "Trained":
        """Return the one of the two whose restarts agree more."""
        return other if other.stability.score > self.stability.score else self


@dataclass(frozen=True, eq=False)
class FlowBatch:
    """Rows (S, N, n) and held-out rows (S, M, n) of S data sets, and linear starts of 2 R restarts of each.

    The first R starts of a data set are of one kind, the others of another.
    """

    rows: Tensor
    held: Tensor
    start: Start
    stream: Callable[[int, torch.Generator], Sequence[Tensor]] | None
    R: int
    max_steps: int
    how: Training
    seed: int

    @cached_property
    def sets(self) -> Sets:
        """The rows as the members see them."""
        device = self.rows.device
        seen = torch.arange(len(self.rows), device=device).repeat_interleave(2 * self.R)
        return Sets(self.rows, seen, self.start.rare.float()[:, None, None].to(device), self.stream)

    def fit(self, *, extended: bool) -> Fits:
        """Train, and return the flows of each data set; `extended` allows more where restarts disagree."""
        sparse = yield from spike_and_slab(self.sets, self.start, self.steps_a, self.how, self.seed, SpikeAndSlab)
        kept = self.better_kind(sparse)
        skewed = self.skewed(kept) if self.R > 1 else []  # one restart has no agreement to be accepted by
        shaped = yield from self.shaped(self.members(kept, skewed))
        found = {i: trained for i, trained in zip(skewed, shaped, strict=True) if trained.stability.score >= SAME}
        plain = [i for i in range(len(self.held)) if i not in found]
        found |= zip(plain, (yield from self.mixture(sparse, self.members(kept, plain))), strict=True)
        unsure = [i for i, trained in sorted(found.items()) if extended and trained.stability.score < THRESHOLDS.stable]
        for i, full in zip(unsure, (yield from self.full_rank(unsure)), strict=True):
            if full.likelihood > found[i].likelihood and full.stability.score >= SAME:
                found[i] = full
        unsure = [i for i in unsure if not found[i].full_rank]
        for i, longer in zip(unsure, (yield from self.extended(self.members(kept, unsure))), strict=True):
            found[i] = found[i].or_better_agreeing(longer)
        return [found[i] for i in range(len(found))]

    @property
    def steps_a(self) -> int:
        """Steps of a short stage A."""
        return max(1, round(SCHEDULE.share_a * self.max_steps))

    @property
    def steps_b(self) -> int:
        """Steps of stage B."""
        return max(1, self.max_steps - self.steps_a)

    def members(self, kept: Sequence[int], which: Sequence[int]) -> list[int]:
        """Return the members of the kept kind of start of these data sets."""
        return [kept[self.R * i + r] for i in which for r in range(self.R)]

    def mixture(self, sparse: FlowModel[SpikeAndSlab], members: Sequence[int]) -> Fits:
        """Continue from a short stage A with the exact mixture."""
        if not members:
            return []
        sets, sparse = self.sets.only(members), select_members(sparse, members)
        longer = self.prolongation(self.held[sets.seen], self.on_held_out(sparse, sets)[0])
        model, spike = find_components(sparse, sets, self.seed)
        yield from exact_mixture(model, sets, spike, round(longer * self.steps_b), self.how, self.seed + 1)
        return self.by_set(model, sets, self.how)

    @staticmethod
    def prolongation(rows: Tensor, latents: NDArray[Any]) -> float:
        """Return by how much to prolong stage B: in proportion to how far stage A had to bend the rows (Q, M, n).

        The bend is the share of the variance of the latents (Q, M, n) that no affine map of the rows explains. Stage B
        has to bend further what is bent strongly. Data sets that are trained together share the mean.
        """
        bends = [1 - r2(x, t) for x, t in zip(rows.double().cpu().numpy(), latents, strict=True)]
        return float(np.clip(np.mean(bends) / SCHEDULE.usual_bend, 1.0, SCHEDULE.longest_b))

    def shaped(self, members: Sequence[int]) -> Fits:
        """Train flows with slabs of any shape, each latent separately, and no longer than needed.

        The exact mixture is Gaussian: it would bend skewed latents until they are. A longer stage A would bend them
        until they are independent.
        """
        if not members:
            return []
        sets, steps = self.sets.only(members), max(1, round(SCHEDULE.share_a_last * self.steps_a))
        sparse = yield from spike_and_slab(sets, self.start.only(members), steps, self.how, self.seed, ShapedSlabs)
        model, _ = find_components(sparse, sets, self.seed, refine=False)
        return [replace(trained, skewed=True) for trained in self.by_set(model, sets, self.how)]

    def extended(self, members: Sequence[int]) -> Fits:
        """Train flows through an extended stage A, and a stage B where it makes restarts agree more."""
        if not members:
            return []
        how, sets, start = replace(self.how, extended=True), self.sets.only(members), self.start.only(members)
        steps = round(SCHEDULE.extended * self.max_steps)
        sparse = yield from spike_and_slab(sets, start, steps, how, self.seed, SpikeAndSlab)
        model, spike = find_components(sparse, sets, self.seed)
        before = self.by_set(copy.deepcopy(model), sets, how)
        yield from exact_mixture(model, sets, spike, self.steps_b, how, self.seed + 1)
        # Where the extended stage A ends far from the latents, or has found them exactly, stage B can do harm.
        return [b.or_better_agreeing(a) for b, a in zip(self.by_set(model, sets, how), before, strict=True)]

    def full_rank(self, which: Sequence[int]) -> Fits:
        """Train flows of these data sets under a mixture of full rank, in which no latent is inactive."""
        if not which:
            return []
        sets = self.sets.only([2 * self.R * i + r for i in which for r in range(self.R)])
        model = yield from full_mixture(sets, max(1, round(SCHEDULE.share_full * self.max_steps)), self.how, self.seed)
        return self.by_set(model, sets, self.how)

    def better_kind(self, model: FlowModel[SpikeAndSlab]) -> list[int]:
        """Return the members of the better kind of start, for every data set.

        It is the one with the higher held-out likelihood; where those of the two kinds overlap, the one whose restarts
        agree more.
        """
        latents, likelihoods = self.on_held_out(model, self.sets)
        z = latents.reshape(-1, 2, self.R, *latents.shape[1:])  # (data set, kind, restart, ...)
        numbers = np.arange(len(latents)).reshape(-1, 2, self.R)
        kept: list[int] = []
        for s, values in enumerate(likelihoods.reshape(-1, 2, self.R)):
            best = int(values.min(1).argmax())
            if self.R > 1 and values[1 - best].max() >= values[best].min():
                best = int(np.argmax([Stability.of(kind).score for kind in z[s]]))
            kept += numbers[s, best].tolist()
        return kept

    def skewed(self, kept: Sequence[int]) -> list[int]:
        """Return the data sets whose linear starts are skewed in a way that intermittent Gaussian latents are not.

        Those are skewed only if they are active on one side of their inactive value, or hardly ever.
        """
        start = self.start.only(kept)
        W, b = start.W.to(self.held.device), start.b.to(self.held.device)
        linear = self.held[self.sets.seen[kept]] @ W + b[:, None]
        off = linear - linear.mean(1, keepdim=True)
        skewness = ((off**3).mean(1) / off.square().mean(1) ** 1.5).abs()
        above, below = ((sign * linear > SCHEDULE.width_a[0]).float().mean(1) for sign in (1, -1))
        one_sided = (above - below).abs() / (above + below)

        def typical(value: Tensor) -> Tensor:
            """Of the latents of the restarts of a data set."""
            return value.cpu().nan_to_num(0.0).median(1).values.reshape(-1, self.R).mean(1)

        odd = (typical(skewness) > SKEWED) & (typical(one_sided) < ONE_SIDED) & (typical(start.shares) > HARDLY_ACTIVE)
        return [int(i) for i in odd.nonzero()]

    def by_set(self, model: FlowModel[Any], sets: Sets, how: Training) -> list[Trained]:
        """Return the flows of each data set."""
        latents, likelihoods = self.on_held_out(model, sets)
        R = self.R
        return [
            Trained(model, range(i, i + R), latents[i : i + R], likelihoods[i : i + R], how.extended)
            for i in range(0, len(latents), R)
        ]

    @torch.no_grad()
    def on_held_out(self, model: FlowModel[Any], sets: Sets) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the latents (Q, M, n) of held-out rows and their mean log-likelihood (Q,)."""
        t, density = model(self.held[sets.seen])
        return t.double().cpu().numpy(), density.mean(1).nan_to_num(-math.inf).cpu().numpy()
