"""A fit of `PDGMM` from the linear starts to the flows that are kept: all restarts of all data sets of one shape.

Short, through all stages, or, where latents are skewed, through the first with slabs of any shape; then, where the
restarts of a data set disagree, under a mixture of full rank; then, where that is not likelier, longer.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from identifiable.agreement.stability import THRESHOLDS, Stability
from identifiable.estimators.pdgmm.training import (
    WIDTHS_A,
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
from identifiable.priors.masked import FullGaussians, ShapedSlabs, SpikeAndSlab
from identifiable.training import History

SHARE_A = 0.12  # of the steps that belong to stage A
SHORT_A = 0.4  # of the steps of stage A, where it is the last stage
SKEWED, ONE_SIDED, HARDLY_ACTIVE = 1.5, 0.4, 0.07  # a typical latent's skewness, surplus on one side, activity
SAME = 0.98  # least agreement of restarts that were trained otherwise
SHARE_FULL = 0.25  # of the steps, for a mixture of full rank: it trains soon, and then too far
LONG = 2.5  # times the steps of a whole short fit, in stage A alone


@dataclass(frozen=True)
class Trained:
    """Flows of one data set: members of a model, their latents (R, M, n) and log-likelihoods (R,) of held-out rows."""

    model: FlowModel[Any]
    members: range
    latents: NDArray[Any]
    likelihoods: NDArray[Any]
    history: History
    extended: bool = False
    skewed: bool = False

    @property
    def likelihood(self) -> float:
        """That of a typical restart."""
        return float(np.median(self.likelihoods))

    @property
    def kept(self) -> int:
        """The restart that agrees most with the others; of those that agree equally, as two always do, the likelier."""
        agreement = self.stability.agreement
        if len(agreement) == 1:
            return 0
        return int(np.where(agreement >= agreement.max() - 1e-9, self.likelihoods, -np.inf).argmax())

    @property
    def full_rank(self) -> bool:
        """Whether the prior is a mixture of full rank."""
        return isinstance(self.model.prior, FullGaussians)

    @cached_property
    def stability(self) -> Stability:
        """How far the restarts agree: a mixture of full rank fixes the latents up to an affine map, and no further."""
        found = Stability.of(self.latents)
        if not self.full_rank:
            return found
        pairwise = np.array([[max(r2(one, other), 0.0) ** 0.5 for other in self.latents] for one in self.latents])
        return replace(found, pairwise=pairwise, affine=True)

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
        sparse, history = spike_and_slab(self.sets, self.start, self.steps_a, self.how, self.seed, SpikeAndSlab)
        self.kept = self.better_kind(sparse)
        skewed = self.skewed()
        shaped = zip(skewed, self.shaped(skewed), strict=True)
        found = {i: trained for i, trained in shaped if trained.stability.score >= SAME}
        plain = [i for i in range(len(self.held)) if i not in found]
        found |= zip(plain, self.mixture(sparse, self.members(plain), history), strict=True)
        unsure = [i for i, trained in sorted(found.items()) if go_on and trained.stability.score < THRESHOLDS.stable]
        for i, full in zip(unsure, self.full_rank(unsure), strict=True):
            if full.likelihood > found[i].likelihood and full.stability.score >= SAME:
                found[i] = full
        unsure = [i for i in unsure if not found[i].full_rank]
        for i, longer in zip(unsure, self.longer(unsure), strict=True):
            found[i] = found[i].or_more_agreed(longer)
        return [found[i] for i in range(len(found))]

    @property
    def steps_a(self) -> int:
        """Steps of a short stage A."""
        return max(1, round(SHARE_A * self.max_steps))

    def members(self, which: Sequence[int]) -> list[int]:
        """Return the members of the kept kind of start of these data sets."""
        return [self.kept[self.R * i + r] for i in which for r in range(self.R)]

    def mixture(self, sparse: FlowModel[SpikeAndSlab], members: Sequence[int], history: History) -> list[Trained]:
        """Go on from a short stage A with the exact mixture."""
        if not members:
            return []
        sets = self.sets.only(members)
        model, spike = find_components(select_members(sparse, members), sets, self.seed)
        history = exact_mixture(model, sets, spike, max(1, self.max_steps - self.steps_a), self.how, self.seed + 1)
        return self.by_set(model, sets, history, self.how)

    def shaped(self, which: Sequence[int]) -> list[Trained]:
        """Train flows of these data sets with slabs of any shape, every latent for itself, and no longer than needed.

        The exact mixture is Gaussian: under it the flow would bend skewed latents until they are. And a longer stage A
        would bend them until they are independent.
        """
        if not which:
            return []
        members = self.members(which)
        sets = self.sets.only(members)
        steps = max(1, round(SHORT_A * self.steps_a))
        sparse, history = spike_and_slab(sets, self.start.only(members), steps, self.how, self.seed, ShapedSlabs)
        model, _ = find_components(sparse, sets, self.seed, refine=False)
        return [replace(trained, skewed=True) for trained in self.by_set(model, sets, history, self.how)]

    def longer(self, which: Sequence[int]) -> list[Trained]:
        """Train flows of these data sets through a long stage A, and a stage B where it makes restarts agree more."""
        if not which:
            return []
        members, how = self.members(which), replace(self.how, extended=True)
        sets, start = self.sets.only(members), self.start.only(members)
        sparse, history = spike_and_slab(sets, start, round(LONG * self.max_steps), how, self.seed, SpikeAndSlab)
        model, spike = find_components(sparse, sets, self.seed)
        before = self.by_set(copy.deepcopy(model), sets, history, how)
        history = exact_mixture(model, sets, spike, max(1, self.max_steps - self.steps_a), how, self.seed + 1)
        # Where a long stage A ends far from the latents, or has found them exactly, stage B can do harm.
        return [b.or_more_agreed(a) for b, a in zip(self.by_set(model, sets, history, how), before, strict=True)]

    def full_rank(self, which: Sequence[int]) -> list[Trained]:
        """Train flows of these data sets under a mixture of full rank, in which no latent rests."""
        if not which:
            return []
        sets = self.sets.only([2 * self.R * i + r for i in which for r in range(self.R)])
        model, history = full_mixture(sets, max(1, round(SHARE_FULL * self.max_steps)), self.how, self.seed)
        return self.by_set(model, sets, history, self.how)

    def better_kind(self, model: FlowModel[SpikeAndSlab]) -> list[int]:
        """Return the members of the better kind of start, for every data set.

        It is the one with the higher held-out likelihood; where those of the two kinds overlap, the one whose restarts
        agree more.
        """
        latents, likelihoods = self.on_held_out(model, self.sets)
        z_of = latents.reshape(-1, 2, self.R, *latents.shape[1:])
        kept: list[int] = []
        for s, (values, z) in enumerate(zip(likelihoods.reshape(-1, 2, self.R), z_of, strict=True)):
            best = int(values.min(1).argmax())
            if self.R > 1 and values[1 - best].max() >= values[best].min():
                best = int(np.argmax([Stability.of(kind).score for kind in z]))
            kept += [2 * self.R * s + self.R * best + r for r in range(self.R)]
        return kept

    def skewed(self) -> list[int]:
        """Return the data sets whose linear starts are skewed in a way that Gaussian latents at rest are not.

        Such latents are skewed only if they are active on one side of where they rest, or hardly ever.
        """
        start = self.start.only(self.kept)
        W, b = start.W.to(self.held.device), start.b.to(self.held.device)
        linear = self.held[self.sets.seen[self.kept]] @ W + b[:, None]
        off = linear - linear.mean(1, keepdim=True)
        skewness = ((off**3).mean(1) / off.square().mean(1) ** 1.5).abs()
        above, below = ((sign * linear > WIDTHS_A[0]).float().mean(1) for sign in (1, -1))
        one_sided = (above - below).abs() / (above + below)

        def typical(value: Tensor) -> Tensor:
            """Of the latents of the restarts of a data set."""
            return value.cpu().nan_to_num(0.0).median(1).values.reshape(-1, self.R).mean(1)

        odd = (typical(skewness) > SKEWED) & (typical(one_sided) < ONE_SIDED) & (typical(start.shares) > HARDLY_ACTIVE)
        return [int(i) for i in odd.nonzero()]

    def by_set(self, model: FlowModel[Any], sets: Sets, history: History, how: Training) -> list[Trained]:
        """Return the flows of each data set."""
        latents, likelihoods = self.on_held_out(model, sets)
        R = self.R
        return [
            Trained(model, range(i, i + R), latents[i : i + R], likelihoods[i : i + R], history, how.extended)
            for i in range(0, len(latents), R)
        ]

    @torch.no_grad()
    def on_held_out(self, model: FlowModel[Any], sets: Sets) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the latents (Q, M, n) of held-out rows and their mean log-likelihood (Q,)."""
        t, density = model(self.held[sets.seen])
        return t.double().cpu().numpy(), density.mean(1).nan_to_num(-math.inf).cpu().numpy()
