r"""The stages of training `PDGMM`, for many flows at once: restarts of one data set and data sets of one shape.

- `start_of`: linear unmixings, from which every flow starts.
- `spike_and_slab`: stage A, each latent separately.
- `find_components`: the latents of A as an affine mixture with noise, and the patterns in which they are active.
- `exact_mixture`: stage B, the exact mixture of these components.
- `full_mixture`: the alternative where latents are never inactive, a mixture of full rank.

Each is a generator that yields its `Stage` and returns the trained flows.
"""

import math
import os
import warnings
from collections.abc import Callable, Generator, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from joblib import Parallel, cpu_count, delayed
from joblib.parallel import get_active_backend
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor

from identifiable.algorithms.coordinates import one_thread
from identifiable.algorithms.noisy import Refined, refine_under_noise, spikes
from identifiable.algorithms.spike_slab import WIDE, repair, slabs
from identifiable.arrays import Array
from identifiable.estimators.trained import LatentModule
from identifiable.flows import SmoothLeakyFlow
from identifiable.priors.masked import RIDGE, FullGaussians, MaskedGaussians, mine_masks
from identifiable.priors.spike_slab import ShapedSlabs, SpikeAndSlab
from identifiable.training import Anneal, Batch, Data, History, Plan, Stage, Step

FOLLOW_EVERY = 25  # steps between two updates of the weights and covariances of a mixture
SETTLING = 20  # updates of weights and covariances for given latents
COMPONENTS = 1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32  # numbers of components of a mixture of full rank that are tried
MASKS_PER_LATENT = 8
SMALL = 10  # columns up to which a GPU records steps: determinants of larger matrices cannot be recorded
SHOWN = 10_000  # rows from which components are read
RARE = 0.12  # mean share of active latents below which training adds noise
FEW = 5000  # rows that are enough for scales
FEW_CALLS = 4  # that need less time than processes take to start

Stages = Generator[Stage, History, "FlowModel[Any]"]


@dataclass(frozen=True)
class Schedule:
    """Widths e of the smoothed priors, in sd of an active latent, and the rates and steps of the stages."""

    width_a: tuple[float, float] = (WIDE, 0.1)  # start and end of stage A
    width_full: tuple[float, float] = (0.3, 0.03)  # sets the sharpness under a mixture of full rank
    start_b: float = 1.2  # e at the start of stage B, in widths of the spikes after stage A,
    end_b: float = 0.5  # and at its end
    start_bounds: tuple[float, float] = (0.12, 0.4)
    end_bounds: tuple[float, float] = (0.02, 0.2)
    sharpness: float = 3.0  # β = min(sharpest, sharpness / e)
    sharpest: float = 200.0
    rate_a: float = 2.0  # in units of the learning rate
    rate_b_extended: float = 0.3
    steps: int = 1500  # for 10 columns, where the mixing bends weakly
    usual_bend: float = 0.05  # bend after stage A up to which stage B is not prolonged: that of 10 leaky layers
    longest_b: float = 2.8  # times stage B, at most: with 20 leaky layers MCC still rises by .005 up to there
    usual_columns: int = 10
    many_columns: int = 20  # from which the rate is smaller
    share_a: float = 0.12  # of the steps, for stage A
    share_a_last: float = 0.4  # of stage A, where it is the last stage: more bends latents to independence
    share_full: float = 0.25  # of the steps, for a mixture of full rank: longer overfits
    extended: float = 2.5  # times all steps, for the extended stage A


SCHEDULE = Schedule()


@dataclass(frozen=True)
class Sets:
    """Rows (S, N, n) of S data sets in random order, and which of them (Q,) each member sees; or a stream of rows.

    A stream comes with rows too, from which components and scales are read. Training adds noise (Q, 1, 1) times the
    width e of the prior to the rows: 1 where latents are rarely active, else 0. With few active latents the rows lie on
    lines and planes, and log|det| could grow off these without effect on the data. Where a latent's inactive value is
    far from its mean, isotropic noise would hide the bends of the mixing.
    """

    rows: Tensor
    seen: Tensor
    noise: Tensor
    stream: Callable[[int, torch.Generator], Sequence[Tensor]] | None = None

    def batches(self) -> Data:
        """Return what `minimise` draws from."""
        if self.stream is not None:
            return self.stream
        if len(self.rows) == 1:
            return [self.rows[0]]

        def draw(count: int, rng: torch.Generator) -> tuple[Tensor]:
            shape = len(self.seen), count // len(self.seen)
            chosen = torch.randint(self.rows.shape[1], shape, generator=rng, device=rng.device)
            return (self.rows[self.seen[:, None], chosen].flatten(0, 1),)

        return draw

    def only(self, members: Sequence[int]) -> "Sets":
        """Return the same for these members."""
        return Sets(self.rows, self.seen[list(members)], self.noise[list(members)], self.stream)


@dataclass(frozen=True)
class Start:
    """Linear unmixings t = y W + b of rows y, one per member: W (Q, n, n), b (Q, n); shares, means (Q, n).

    Active latents have unit variance; inactive ones are zero.
    """

    W: Tensor
    b: Tensor
    shares: Tensor
    means: Tensor

    @property
    def rare(self) -> Tensor:
        """Whether latents are rarely active, (Q,)."""
        return self.shares.mean(1) < RARE

    def only(self, members: Sequence[int]) -> "Start":
        """Return the starts of these members."""
        return Start(*(v[list(members)] for v in (self.W, self.b, self.shares, self.means)))

    @classmethod
    def join(cls, starts: "Sequence[Start]") -> "Start":
        """Return the starts of all."""
        return cls(*(torch.cat([getattr(s, k) for s in starts]) for k in ("W", "b", "shares", "means")))


def steps_for(n: int) -> int:
    """Return the steps of a short fit of n latents.

    With few latents, training converges early; more steps overfit the flow. Many latents need a smaller rate, because a
    step moves a matrix in proportion to its columns, and more steps.

    >>> [steps_for(n) for n in (2, 5, 10, 20, 40)]
    [300, 750, 1500, 2121, 3000]
    """
    ratio = n / SCHEDULE.usual_columns
    return round(SCHEDULE.steps * (ratio if ratio < 1 else math.sqrt(ratio)))


def start_of(y: Array, unmixings: Sequence[Array]) -> Start:
    """Return the start at unmixings of y (N, n), each given by its rows (n, n + 1)."""
    found: list[tuple[Array, ...]] = []
    for rows in unmixings:
        W, b = rows[:, :-1].T, rows[:, -1]
        share, mean, size = slabs(y[:FEW] @ W + b, SCHEDULE.width_a[0])
        found.append((W / size, b / size, share, mean / size))
    return Start(*(torch.as_tensor(np.stack(v)).float() for v in zip(*found, strict=True)))


Prior = TypeVar("Prior", SpikeAndSlab, ShapedSlabs, MaskedGaussians, FullGaussians)
Sparse = TypeVar("Sparse", SpikeAndSlab, ShapedSlabs)


class FlowModel(LatentModule, Generic[Prior]):
    """A flow, the prior of its latents, and the width e (R, 1) of that prior; R members."""

    flow: SmoothLeakyFlow
    prior: Prior
    width: Tensor

    def __init__(self, flow: SmoothLeakyFlow, prior: Prior, width: Tensor) -> None:
        super().__init__()
        self.flow, self.prior = flow, prior
        self.register_buffer("width", width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return t (R, B, n) and the log-density (R, B) of x at the width last trained at."""
        t, log_det = self.flow(x)
        return t, self.prior(t, self.width) + log_det

    def latents(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return t (R, B, n)."""
        return self.flow(x)[0]

    def observations(self, z: Tensor) -> Tensor:
        """Return the rows whose latents are z."""
        return self.flow.inverse(z)

    def log_prob(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Log p(x) at the width last trained at, (R, B)."""
        return self(x)[1]


@dataclass(frozen=True)
class Training:
    """Layers, batch size and learning rate of a fit, and whether it is an extended one.

    An extended fit has no inner biases and a smaller rate in stage B: strong mixtures gain nothing from more ways to
    bend, and stage B has less to correct.
    """

    depth: int
    batch_size: int
    learning_rate: float
    extended: bool = False


def spike_and_slab(sets: Sets, start: Start, steps: int, how: Training, seed: int, slab: type[Sparse]) -> Stages:
    """Stage A: train flows from their linear starts, each latent separately."""
    rng = torch.Generator().manual_seed(seed)
    members, n = start.b.shape
    flow = SmoothLeakyFlow(members, n, how.depth, start=start.W, inner_bias=not how.extended, rng=rng)
    with torch.no_grad():
        flow.bias[:, -1] += start.b
    model = FlowModel(flow, slab(start.shares, start.means), torch.ones(members, 1)).to(sets.rows.device)
    widths = [torch.full_like(model.width, e) for e in SCHEDULE.width_a]
    return (yield from train(model, sets, steps, widths, SCHEDULE.rate_a * how.learning_rate, how, seed))


def exact_mixture(
    model: FlowModel[MaskedGaussians], sets: Sets, spike: Tensor, steps: int, how: Training, seed: int
) -> Stages:
    """Stage B: train on under the exact mixture, e falling from above to below the width (R, 1) of the spikes."""
    s = SCHEDULE
    start, end = (s.start_b * spike).clamp(*s.start_bounds), (s.end_b * spike).clamp(*s.end_bounds)
    model.prior.set_width(start)
    rate = (s.rate_b_extended if how.extended else 1) * how.learning_rate
    return (yield from train(model, sets, steps, (start, end), rate, how, seed))


def train(
    model: FlowModel[Prior], sets: Sets, steps: int, widths: Sequence[Tensor], rate: float, how: Training, seed: int
) -> Stages:
    """Maximise the likelihood at a width (R, 1) that falls geometrically from the first of widths to the second."""
    flow, prior = model.flow, model.prior
    start, end = widths
    fall, noisy = (end / start).log(), bool(sets.noise.any())

    def width(step: Step) -> Tensor:
        e = start * (fall * step.annealed["done"]).exp()
        flow.beta.copy_((SCHEDULE.sharpness / e[..., None]).clamp(max=SCHEDULE.sharpest))
        return e

    def loss(batch: Batch, step: Step) -> Tensor:
        e = width(step)
        t, log_det = flow(batch[0])
        return -(prior(t, e) + log_det).mean(1)

    @torch.no_grad()
    def prepare(batch: Batch, step: Step) -> Batch:
        (x,) = batch
        if noisy:
            x = x + sets.noise * width(step)[..., None] * torch.randn(x.shape, generator=step.rng, device=x.device)
        if isinstance(prior, MaskedGaussians | FullGaussians) and step.number % FOLLOW_EVERY == 0:
            e = width(step)  # sets the sharpness of the flow too
            prior.follow(flow(x if isinstance(prior, MaskedGaussians) else sets.rows[sets.seen, :FEW])[0], e)
        return (x,)

    # No criterion: held-out likelihoods at different widths cannot be compared.
    n = flow.weight.shape[-1]
    slower = max(1.0, n / SCHEDULE.many_columns)
    done = Anneal(0.0, 1.0, geometric=False)
    plan = Plan(round(slower * steps), how.batch_size, rate / slower, clip=5.0, anneal={"done": done})
    yield Stage(model, loss, sets.batches(), plan, seed, prepare=prepare, capture=n <= SMALL)
    model.width.copy_(end)
    if isinstance(prior, MaskedGaussians):
        prior.set_width(end)
    return model


def full_mixture(sets: Sets, steps: int, how: Training, seed: int) -> Stages:
    """Train flows from standardised rows under a mixture of full rank, with as many components as BIC selects."""
    units, parts = [], []
    for r, s in enumerate(sets.seen.tolist()):
        y = sets.rows[s].double().cpu().numpy()
        half = np.random.default_rng([seed, r]).permutation(len(y))[: min(FEW, (len(y) + 1) // 2)]
        parts.append(((y[half] - y.mean(0)) / y.std(0), seed + r))
        units.append((y.mean(0), y.std(0)))
    found = in_parallel(_likely_mixture, parts)
    J, n = max(len(m.weights_) for m in found), sets.rows.shape[-1]
    weights, centres = torch.full((len(found), J), 1e-9), torch.zeros(len(found), J, n)
    covariances = torch.eye(n).repeat(len(found), J, 1, 1)
    for r, mixture in enumerate(found):
        own = len(mixture.weights_)
        weights[r, :own], centres[r, :own], covariances[r, :own] = (
            torch.as_tensor(v) for v in (mixture.weights_, mixture.means_, mixture.covariances_)
        )
    mean, sd = (torch.as_tensor(np.stack(v)).float() for v in zip(*units, strict=True))
    rng = torch.Generator().manual_seed(seed)
    flow = SmoothLeakyFlow(len(found), n, how.depth, start=torch.diag_embed(1 / sd), rng=rng)
    with torch.no_grad():
        flow.bias[:, -1] -= mean / sd
    prior = FullGaussians(weights.log(), centres, covariances)
    model = FlowModel(flow, prior, torch.ones(len(found), 1)).to(sets.rows.device)
    widths = [torch.full_like(model.width, e) for e in SCHEDULE.width_full]
    return (yield from train(model, sets, steps, widths, how.learning_rate, how, seed))


def _likely_mixture(y: Array, seed: int) -> GaussianMixture:
    """Fit Gaussian mixtures to y and return the one with the lowest BIC."""
    best, least = None, np.inf
    for J in COMPONENTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            mixture = GaussianMixture(J, reg_covar=RIDGE, max_iter=50, random_state=seed).fit(y)
        bic = mixture.bic(y)
        if bic >= least:
            break
        best, least = mixture, bic
    assert best is not None
    return best


@torch.no_grad()
def find_components(
    model: FlowModel[Any], sets: Sets, seed: int, *, refine: bool = True
) -> tuple[FlowModel[MaskedGaussians], Tensor]:
    """Model the latents of stage A as an affine mixture with noise; return the model of stage B and its spikes (R, 1).

    Stage A assumes independent latents. Where they are dependent, f(x) is close to an affine function of the latents
    but not to the latents. `refine_under_noise` finds that affine map together with the patterns of activity and the
    correlations, and the flow absorbs it. Where it finds none, or with refine=False, the patterns are read from the
    latents directly.
    """
    n = model.prior.means.shape[-1]
    t = model.flow(sets.rows[sets.seen, :SHOWN])[0]
    latents = t.double().cpu().numpy()
    starts = [repair(z) for z in latents]
    found: list[Refined | None] = [None] * len(latents)
    if refine:
        found = in_parallel(refine_latents, [(z, starts[r], seed + r) for r, z in enumerate(latents)])
    W, b, spike = torch.zeros(len(latents), n, n), torch.zeros(len(latents), n), torch.zeros(len(latents), 1)
    means, active = torch.zeros_like(b), torch.zeros(latents.shape, dtype=torch.bool)
    for r, (z, refined) in enumerate(zip(latents, found, strict=True)):
        rows = starts[r] if refined is None else refined.rows
        z = z @ rows[:, :n].T + rows[:, n]
        _, mean, size = slabs(z[:FEW], SCHEDULE.width_a[1])
        width, _, scale, moving = spikes(z)
        W[r], b[r] = torch.as_tensor(rows[:, :n].T / size), torch.as_tensor(rows[:, n] / size)
        means[r], active[r] = torch.as_tensor(mean / size), torch.as_tensor(moving > 0.5)
        spike[r] = float(np.median(width / scale))
    device = t.device
    model.flow.then(W.to(device), b.to(device))
    t = t @ W.to(device) + b[:, None].to(device)
    prior = MaskedGaussians(*_masks(active.to(device), found), means[:, None].to(device))
    for r, refined in enumerate(found):
        if refined is not None:
            sd = np.sqrt(np.diag(refined.covariance))
            prior.correlations[r] = torch.as_tensor(refined.covariance / np.outer(sd, sd))
    found_model = FlowModel(model.flow, prior, spike.clamp(*SCHEDULE.end_bounds)).to(device)
    prior.set_width(found_model.width)
    if not refine:
        for _ in range(SETTLING):
            prior.follow(t[:, :FEW], found_model.width)
    return found_model, spike.to(device)


@torch.inference_mode()
def refine_latents(z: Array, rows: Array, seed: int) -> Refined | None:
    """Fit an affine mixture with noise to latents z (N, n), starting at an unmixing; None if it fits no better."""
    found = refine_under_noise(z, rows, seed=seed)
    return found if found.gain > 0 else None


def _masks(active: Tensor, found: Sequence[Refined | None]) -> tuple[Tensor, Tensor]:
    """Return the masks (R, J, n) of stage B and their log-weights: those found, else those of active (R, N, n)."""
    n = active.shape[-1]
    most = MASKS_PER_LATENT * n
    shown, log_weights = mine_masks(active, most)
    J = max([shown.shape[1], *(min(most, len(f.patterns)) for f in found if f is not None)])
    masks = torch.ones(len(found), J, n, device=active.device)
    weights = torch.full((len(found), J), math.log(1e-9), device=active.device)
    for r, refined in enumerate(found):
        if refined is None:
            masks[r, : shown.shape[1]], weights[r, : shown.shape[1]] = shown[r], log_weights[r]
        else:
            own = min(J, len(refined.patterns))
            masks[r, :own] = torch.as_tensor(refined.patterns[:own])
            share = torch.as_tensor(refined.weights[:own] / refined.weights[:own].sum())
            weights[r, :own] = share.clamp(min=1e-9).log()
    return masks, weights


def in_parallel(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call function on every tuple of arguments, on all cores: in threads if they are few, else in processes.

    Threads are no more than OMP_NUM_THREADS, with which a user or another process shares the cores out.
    """
    few = len(arguments) <= FEW_CALLS
    cores = min(cpu_count(), 64)
    if few:
        cores = min(cores, len(arguments), int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0] or cores))
    if cores == 1 or get_active_backend()[0].nesting_level:
        return [_alone(function, *a) for a in arguments]
    if few:
        calls = [delayed(copy_context().run)(_alone, function, *a) for a in arguments]  # threads keep the time limit
        with one_thread():  # what the threads restore, in any order, is then the same
            return list(Parallel(n_jobs=cores, prefer="threads")(calls))
    return list(Parallel(n_jobs=cores)(delayed(_alone)(function, *a) for a in arguments))


def _alone(function: Callable[..., Any], *arguments: Any) -> Any:
    with one_thread():
        return function(*arguments)
