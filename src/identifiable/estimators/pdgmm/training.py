r"""How the flows of `PDGMM` are trained: many at once, restarts of one data set as well as data sets of one shape.

- `start_of`: linear unmixings, from which every flow starts.
- `spike_and_slab`: stage A, every latent for itself.
- `find_components`: the latents of A as an affine mixture with noise: which latents, and which of them are active.
- `exact_mixture`: stage B, the exact mixture of these components.
- `full_mixture`: instead of all these, where latents never rest, a mixture of full rank.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from joblib import Parallel, cpu_count, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

from identifiable.algorithms.noisy import Refined, refine_under_noise, spikes
from identifiable.algorithms.spike_slab import WIDE, repair, slabs
from identifiable.arrays import Array
from identifiable.estimators.sparse_unmixing import one_thread
from identifiable.flows import SmoothLeakyFlow
from identifiable.priors.masked import RIDGE, FullGaussians, MaskedGaussians, mine_masks
from identifiable.priors.spike_slab import ShapedSlabs, SpikeAndSlab
from identifiable.training import Anneal, Batch, Data, History, Plan, Step, minimise

WIDTHS_A = WIDE, 0.1  # e at the start and the end of stage A, in sd of an active latent
WIDEST, NARROWEST = (0.12, 0.4), (0.02, 0.2)  # bounds of e at the start and the end of stage B
ABOVE, BELOW = 1.2, 0.5  # e at the start and the end of stage B, in widths of the spikes after stage A
SHARPEST, SHARPNESS = 200.0, 3.0  # β = min(200, 3 / e)
RATE_A, LONG_RATE_B = 2.0, 0.3  # times the learning rate, in stage A and in stage B of a long fit
FEW_COLUMNS, MANY_COLUMNS, STEPS = 10, 20, 4200  # between which a short fit takes so many steps
FOLLOW_EVERY = 25  # steps between two looks at w and C
SETTLING = 20  # looks at w and C that settle them for given latents
FULL_WIDTHS = 0.3, 0.03  # set the sharpness of a flow whose prior has no width
COMPONENTS = 1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32  # of a mixture of full rank, as they are tried
MASKS_PER_LATENT = 8
CAPTURED = 10  # columns up to which a step is recorded on a GPU: the determinants of larger matrices cannot be
SHOWN = 10_000  # rows that show the components
RARE = 0.12  # mean share of active latents below which training adds noise
FEW = 5000  # rows that are enough for scales


@dataclass(frozen=True)
class Sets:
    """Rows (S, N, n) of S data sets in random order, and which of them (Q,) each member sees; or a stream of rows.

    The rows are given for a stream, too: components and scales are read off them. Training adds noise to them, noise
    (Q, 1, 1) times the width e of the prior: 1 where latents are rarely active, else 0. Few active latents leave the
    rows on lines and planes, and off these log|det| could grow for nothing; but where a latent rests far from its mean,
    noise that is the same in all directions would cover the bends of the mixing.
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

    Active latents have unit variance and rest at zero.
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

    Few latents train soon, and then too far: the flow goes on to bend what is right. Many need a smaller rate, since a
    step moves a matrix by as much as it has columns, and more steps.

    >>> [steps_for(n) for n in (2, 5, 10, 20, 40)]
    [840, 2100, 4200, 4200, 5940]
    """
    return round(STEPS * min(1.0, n / FEW_COLUMNS) * math.sqrt(max(1.0, n / MANY_COLUMNS)))


def start_of(y: Array, unmixings: Sequence[Array]) -> Start:
    """Take rows (n, n + 1) of unmixings of y (N, n)."""
    found: list[tuple[Array, ...]] = []
    for rows in unmixings:
        W, b = rows[:, :-1].T, rows[:, -1]
        share, mean, size = slabs(y[:FEW] @ W + b, WIDTHS_A[0])
        found.append((W / size, b / size, share, mean / size))
    return Start(*(torch.as_tensor(np.stack(v)).float() for v in zip(*found, strict=True)))


Prior = TypeVar("Prior", SpikeAndSlab, ShapedSlabs, MaskedGaussians, FullGaussians)
Sparse = TypeVar("Sparse", SpikeAndSlab, ShapedSlabs)


class FlowModel(nn.Module, Generic[Prior]):
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


@dataclass(frozen=True)
class Training:
    """Layers, batch size and learning rate of a fit, and whether it is a long one.

    A long fit has no inner biases and a smaller rate in stage B: strong mixtures have no use for more ways to bend, and
    stage B has less to do.
    """

    depth: int
    batch_size: int
    learning_rate: float
    verbose: int = 0
    extended: bool = False


def spike_and_slab(
    sets: Sets, start: Start, steps: int, how: Training, seed: int, slab: type[Sparse]
) -> tuple[FlowModel[Sparse], History]:
    """Stage A: train flows from their linear starts, every latent for itself."""
    rng = torch.Generator().manual_seed(seed)
    flow = SmoothLeakyFlow(
        len(start.W), start.W.shape[-1], how.depth, start=start.W, inner_bias=not how.extended, rng=rng
    )
    with torch.no_grad():
        flow.bias[:, -1] += start.b
    model = FlowModel(flow, slab(start.shares, start.means), torch.ones(len(start.W), 1))
    model = model.to(sets.rows.device)
    start_width, end_width = (torch.full_like(model.width, e) for e in WIDTHS_A)
    return model, train(model, sets, steps, start_width, end_width, RATE_A * how.learning_rate, how, seed)


def exact_mixture(
    model: FlowModel[MaskedGaussians], sets: Sets, spike: Tensor, steps: int, how: Training, seed: int
) -> History:
    """Stage B: train on under the exact mixture, e falling from above to below the width (R, 1) of the spikes."""
    start, end = (ABOVE * spike).clamp(*WIDEST), (BELOW * spike).clamp(*NARROWEST)
    model.prior.set_width(start)
    rate = (LONG_RATE_B if how.extended else 1) * how.learning_rate
    return train(model, sets, steps, start, end, rate, how, seed)


def train(
    model: FlowModel[Prior], sets: Sets, steps: int, start: Tensor, end: Tensor, rate: float, how: Training, seed: int
) -> History:
    """Maximise the likelihood at a width (R, 1) that falls geometrically from start to end."""
    flow, prior = model.flow, model.prior
    fall, noisy = (end / start).log(), bool(sets.noise.any())

    def width(step: Step) -> Tensor:
        e = start * (fall * step.annealed["done"]).exp()
        flow.beta.copy_((SHARPNESS / e[..., None]).clamp(max=SHARPEST))
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
            e = width(step)  # sets the sharpness of the flow, too
            prior.follow(flow(x if isinstance(prior, MaskedGaussians) else sets.rows[sets.seen, :FEW])[0], e)
        return (x,)

    # No criterion: held-out likelihoods at different widths cannot be compared.
    slower = max(1.0, flow.weight.shape[-1] / MANY_COLUMNS)
    plan = Plan(
        round(slower * steps),
        how.batch_size,
        rate / slower,
        clip=5.0,
        anneal={"done": Anneal(0.0, 1.0, geometric=False)},
    )
    capture = flow.weight.shape[-1] <= CAPTURED
    history = minimise(
        model, loss, sets.batches(), plan, seed=seed, prepare=prepare, capture=capture, verbose=how.verbose
    )
    model.width.copy_(end)
    if isinstance(prior, MaskedGaussians):
        prior.set_width(end)
    return history


def full_mixture(sets: Sets, steps: int, how: Training, seed: int) -> tuple[FlowModel[FullGaussians], History]:
    """Train flows from standardised rows under a mixture of full rank, of as many components as BIC finds there."""
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
    start, end = (torch.full_like(model.width, e) for e in FULL_WIDTHS)
    return model, train(model, sets, steps, start, end, how.learning_rate, how, seed)


def _likely_mixture(y: Array, seed: int) -> GaussianMixture:
    """Fit Gaussian mixtures to y and return the one that BIC likes best."""
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
    """Read the latents of stage A as an affine mixture with noise; return the model of stage B and its spikes (R, 1).

    Independent spikes and slabs leave latents mixed that are not independent: f(x) is then close to an affine function
    of the latents but not to the latents. That affine map is found by `refine_under_noise`, patterns of activity and
    correlations with it, and taken into the flow. Where it finds none, or is not to be looked for, the patterns are
    those of the latents as they are.
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
        _, mean, size = slabs(z[:FEW], WIDTHS_A[1])
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
    found_model = FlowModel(model.flow, prior, spike.clamp(*NARROWEST)).to(device)
    prior.set_width(found_model.width)
    if not refine:
        for _ in range(SETTLING):
            prior.follow(t[:, :FEW], found_model.width)
    return found_model, spike.to(device)


@torch.inference_mode()  # nothing is differentiated in there, and the tensors are small
def refine_latents(z: Array, rows: Array, seed: int) -> Refined | None:
    """Fit an affine mixture with noise to latents z (N, n), from an unmixing on; None if none fits better."""
    found = refine_under_noise(z, rows, seed=seed)
    return found if found.gain > 0 else None


def _masks(active: Tensor, found: Sequence[Refined | None]) -> tuple[Tensor, Tensor]:
    """Return the masks (R, J, n) of stage B and their log-weights: those found, else those that (R, N, n) show."""
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
    """Call function on every tuple: one after another if they are few, else on all cores."""
    if len(arguments) <= 4 or cpu_count() < 4:
        return [_alone(function, *a) for a in arguments]
    return list(Parallel(n_jobs=min(cpu_count(), 64))(delayed(_alone)(function, *a) for a in arguments))


def _alone(function: Callable[..., Any], *arguments: Any) -> Any:
    with one_thread():
        return function(*arguments)
