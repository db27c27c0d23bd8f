r"""Keypoint autoencoder: images of moving things to their positions.

Model: an image shows K things in front of a background, and only their positions z change. The decoder paints K learnt
sprites at the keypoints p (`nets/keypoints.py`), and the encoder finds them,

    min  E‖x - decode(encode(x))‖²  +  s E‖encode(decode(p')) - p'‖²  +  m E‖p - median p‖².

p' are keypoints in which each one comes from another image ("sleep"): positions that the data do not show together, so
that the encoder learns to find what is hidden in part. The last term keeps a keypoint that cannot be seen near its
usual place.

Training begins with more slots than things. Each begins at pixels of one colour that differ from the background: its
heat map is the linear discriminant of these pixels. Those that the reconstruction misses least begin again at what the
others miss, until they are no longer needed, and are then dropped.

This is an encoder, not an identified model: what the code means comes from the architecture. The latents of a model of
intermittent activity are then found in the code, see :class:`ImageUnmixing`.
"""

from collections.abc import Generator
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from identifiable.errors import warn_recovery
from identifiable.estimators.image_model import ImageModel
from identifiable.estimators.trained import Split
from identifiable.nets.images import to_maps
from identifiable.nets.keypoints import COLOUR_UNIT, Keypoints
from identifiable.training import SETTLED_FROM, Anneal, Batch, History, Plan, Stage, Step

MOST_PIXELS = 32  # per side of the images that the nets see
SPARE = 4  # slots at the start beyond the keypoints
MOST_SLOTS = 10  # at the start, where the number of keypoints has to be found
SEEN = 256  # images by which slots are judged
NEEDED = 0.1  # of the error that the most needed slot saves: a slot that saves less is not needed
SAME_THING = 0.7  # concordance of the positions of two slots: both are on one thing
SHARE_OF_SEARCH = 0.15  # of the steps, for all slots
SHARE_OF_REPAIR, REPAIRS = 0.08, 3  # of the steps, and how often at most, for slots that begin again
CANDIDATES = 32  # pixels from which the colour of a thing that is missed is chosen
COLOUR_WIDTH = 0.15  # within which pixels are of one thing, in units of their range
BLUR = 3.0  # pixels by which sprites are blurred at the start: far ones attract each other
SLEEP, TO_MEDIAN = 1.0, 0.02  # s and m
REGION = 5  # pixels per side in which the error is averaged, to tell a thing that is missed from errors at edges
MISSED, MISSED_IN = 0.25, 0.2  # of the squared error that a slot saves, and of the images
RECORDS = 40  # of a stage


@dataclass(eq=False, repr=False)
class KeypointEncoder(ImageModel):
    """Find the positions of the things that move in images.

    Parameters
    ----------
    n_latents : int or None, default=None. Twice the number of keypoints: x and y of each, in units of width and height.
        None keeps the keypoints that the reconstruction needs.
    n_restarts : int, default=1. Nets trained in one batch. The one with the smallest held-out error is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    image_shape : (height, width) or (height, width, channels) of the rows of X. Not needed where X has images
        (N, height, width[, channels]) or is a `Simulator` of images.
    max_steps : int, default=900. Training steps; fewer once the held-out error no longer falls beyond its noise.
    batch_size : int, default=64.
    learning_rate : float, default=0.003.

    Attributes
    ----------
    module_ : `Keypoints`, the kept net.
    image_shape_ : shape of an image, as given.
    noise_ : standard deviation of the error of a pixel, in units of the range of the pixels.
    missed_ : share of the held-out images in which something as visible as a thing is not reconstructed. A
        `RecoveryWarning` is issued if it is above a fifth.
    restart_scores_, kept_, history_, stability_, fit_status_ : see :class:`TrainedModel`.

    Examples
    --------
    >>> from identifiable.data import make_balls
    >>> x = make_balls(100, balls=1, random_state=0).x.reshape(-1, 64, 64, 3)
    >>> model = KeypointEncoder(2, max_steps=4, random_state=0, verbose=0).fit(x)
    >>> model.transform(x).shape, model.inverse_transform(model.transform(x)).shape
    ((100, 2), (100, 64, 64, 3))
    """

    n_latents: int | None = None  # type: ignore[assignment]
    _: KW_ONLY
    n_restarts: int = 1
    max_steps: int = 900
    batch_size: int = 64
    learning_rate: float = 3e-3

    module_: Keypoints = field(init=False)
    n_slots_: int = field(init=False)
    missed_: float = field(init=False)

    @property
    def _n_features_out(self) -> int:
        return 2 * self.n_slots_

    @property
    def _most_pixels(self) -> int:
        return MOST_PIXELS

    # -- training ----------------------------------------------------------------------

    def _stages(self, data: Split) -> Generator[Stage, History, Keypoints]:
        """Train with spare slots, which begin again at what is missed; drop them and train on with sleep."""
        rng, device = data.rng(), data.device
        rows = torch.as_tensor(self._inputs(data.X_train), device=device)
        held = torch.as_tensor(self._inputs(data.X_held[:SEEN]), device=device)
        ground = rows[:1000].median(0).values.cpu().reshape(self._small)
        slots = MOST_SLOTS if self.n_latents is None else self.n_latents // 2 + SPARE
        net = Keypoints(ground, slots, self.n_restarts, rng=rng).to(device)
        source: Any = [rows] if data.source is None else self._stream(data.source, device)
        each = held.expand(self.n_restarts, -1, -1)
        blur = Anneal(BLUR, 1.0, until=0.75, geometric=False)
        needed = torch.empty(self.n_restarts, 0, dtype=torch.long, device=device)
        spent, shares = 0, (SHARE_OF_SEARCH, *[SHARE_OF_REPAIR] * REPAIRS)
        for part, share in enumerate(shares):
            new = free_slots(net, each, needed, rng)
            plan = self._plan(max(1, round(share * self.max_steps)), warm_up=0.25, final=1.0, anneal={"blur": blur})
            yield Stage(net, partial(self._loss, net), source, plan, data.seed + part)
            needed, spent = needed_slots(net, each, self.n_latents), spent + plan.steps
            if part > 0 and not bool(new.gather(1, needed).any()):  # nothing was missed
                break
        net = net.only(needed)
        self.n_slots_ = net.slots
        plan = self._plan(max(1, self.max_steps - spent), warm_up=0.1, final=0.01, settled_from=SETTLED_FROM)
        self.history_ = yield Stage(
            net, partial(self._loss, net), source, plan, data.seed + len(shares), criterion=lambda: net.errors(each)
        )
        return net

    def _plan(self, steps: int, **options: Any) -> Plan:
        every = max(1, steps // RECORDS)
        return Plan(steps, self.batch_size, self.learning_rate, clip=None, every=every, **options)

    def _loss(self, net: Keypoints, batch: Batch, step: Step) -> Tensor:
        """Return the loss (R,) on images (R, B, h w c); without a blur, with those of sleep and of the median."""
        x, pixels = batch[0], self._small[0] * self._small[1]
        p = net.encode(x)
        if "blur" in step.annealed:
            return (net.decode(p, step.annealed["blur"]) - x).square().sum(2).mean(1) / pixels
        loss = (net.decode(p) - x).square().sum(2).mean(1) / pixels
        usual = p.detach().median(1, keepdim=True).values
        with torch.no_grad():
            order = torch.rand(p.shape[0], p.shape[1], net.slots, generator=step.rng, device=p.device).argsort(1)
            mixed = p.gather(1, order.repeat_interleave(2, 2))
            dream = net.decode(mixed)
        asleep = (net.encode(dream) - mixed).square().sum(2).mean(1)
        return loss + SLEEP * asleep + TO_MEDIAN * (p - usual).square().sum(2).mean(1)

    def _set_results(self, data: Split) -> None:
        super()._set_results(data)
        first = next(self.module_.parameters())
        held = torch.as_tensor(self._inputs(data.X_held[:SEEN]), dtype=first.dtype, device=first.device)
        self.missed_ = float(missed_share(self.module_, held[None]))
        if self.missed_ > MISSED_IN:
            warn_recovery(
                f"KeypointEncoder: {self.missed_:.0%} of the held-out images show something that is not reconstructed, "
                f"about as visible as what {self.n_slots_} keypoints found. They are too few, training was too short, "
                "or things change their shape. Increase n_latents or max_steps, or use another random_state."
            )

    def _build(self, members: int, rng: torch.Generator | None = None) -> Keypoints:
        return Keypoints(torch.ones(self._small), self.n_slots_, members, rng=rng)

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        self._require_integers(max_steps=2, batch_size=2)
        self._require_positive("learning_rate")
        self._require("n_latents", self.n_latents is None or self.n_latents % 2 == 0, "even or None")


@torch.no_grad()
def slots_by_need(net: Keypoints, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the slots of each member, the most needed first, and what each costs, both (R, K).

    One slot after the other is dropped: the one without which the squared error of images x (R, B, h w c) rises least.
    This rise, relative to that of the last one, is the cost. While two slots are on one thing, one of such slots is
    dropped, at no cost.
    """
    p, members = net.encode(x), torch.arange(len(x), device=x.device)
    covers = net.covers(p)
    same = _on_one_thing(p.unflatten(2, (-1, 2)))
    visible = torch.ones(len(x), net.slots, device=x.device)
    dropped, costs = [], []
    for _ in range(net.slots):
        error = (net.paint_over(covers, visible) - x).square().mean((1, 2))
        rises = torch.full_like(visible, torch.inf)
        for k in range(net.slots):
            without = visible.clone()
            without[:, k] = 0
            rise = (net.paint_over(covers, without) - x).square().mean((1, 2)) - error
            rises[:, k] = torch.where(visible[:, k] > 0, rise, rises[:, k])
        double = (same & (visible > 0)[:, None]).any(2) & (visible > 0)
        any_double = double.any(1)
        least = torch.where(double | ~any_double[:, None], rises, torch.inf).argmin(1)
        visible[members, least] = 0
        dropped.append(least)
        costs.append(torch.where(any_double, 0.0, rises[members, least]))
    cost = torch.stack(costs[::-1], 1)
    return torch.stack(dropped[::-1], 1), cost / cost[:, :1].clamp(min=1e-20)


def needed_slots(net: Keypoints, x: Tensor, n_latents: int | None) -> Tensor:
    """Return the slots (R, K) of each member that the reconstruction of images x (R, B, h w c) needs.

    If the number is not given, a slot is needed if it costs a tenth of the first one, and members keep as many slots as
    the one that needs most.
    """
    order, cost = slots_by_need(net, x)
    count = int(_count(cost).max()) if n_latents is None else n_latents // 2
    return order[:, :count].sort(1).values


def _count(cost: Tensor) -> Tensor:
    """Return how many slots of each member (R,) are needed, given their costs (R, K)."""
    enough = torch.cat([cost > NEEDED, torch.zeros_like(cost[:, :1], dtype=torch.bool)], 1)
    return enough.int().argmin(1).clamp(min=1).cpu()


@torch.no_grad()
def free_slots(net: Keypoints, x: Tensor, needed: Tensor, rng: torch.Generator) -> Tensor:
    """Let the slots that images x (R, B, h w c) do not need begin again at what the others miss; return which (R, K).

    What is missed differs from the background and has one colour. It is the colour, of some pixels drawn by their
    error, at which the error is largest in all.
    """
    free = torch.ones(len(x), net.slots, dtype=torch.bool, device=x.device).scatter(1, needed, False)
    if not bool(free.any()):
        return free
    painted, ground = net.decode(net.encode(x), visible=(~free).float()), (COLOUR_UNIT * net.ground).flatten(1)[:, None]
    pixels = x.unflatten(2, (-1, net.shape[2])).flatten(1, 2)
    missed, differs = ((x - y).square().unflatten(2, (-1, net.shape[2])).sum(3).flatten(1) for y in (painted, ground))
    missed = missed * differs
    where = torch.zeros(len(x), net.slots, missed.shape[1], device=x.device)
    paint = torch.zeros(len(x), net.slots, net.shape[2], device=x.device)
    members = torch.arange(len(x), device=x.device)
    for slot in free.nonzero()[:, 1].reshape(len(x), -1).T:
        drawn = torch.multinomial(missed.cpu() + 1e-20, CANDIDATES, generator=rng).to(x.device)
        colours = pixels[members[:, None], drawn]
        similar = (-0.5 * (torch.cdist(colours, pixels) / COLOUR_WIDTH).square()).exp()
        most = (similar @ missed[..., None])[..., 0].argmax(1)
        similar = similar[members, most]
        where[members, slot], paint[members, slot] = similar * missed, colours[members, most]
        missed = missed * (1 - similar)
    net.begin_again(free, x, where, paint, rng)
    return free


@torch.no_grad()
def missed_share(net: Keypoints, x: Tensor) -> Tensor:
    """Return the share (R,) of images x (R, B, h w c) in which a region shows what no slot paints.

    The error of a sprite that is slightly misplaced changes its sign within a few pixels, and that of noise from pixel
    to pixel: both vanish in the mean over a region. A thing is missed if the squared norm of what is left exceeds a
    quarter of what a slot saves, in the median over the slots.
    """
    (height, width, _), covers = net.shape, net.covers(net.encode(x))
    size = min(REGION, height, width)
    error = x - net.paint_over(covers)
    mean = torch.nn.functional.avg_pool2d(to_maps(error, net.shape), size, 1).unflatten(1, (len(x), -1))
    region = size**2 * mean.square().sum(2).flatten(2).amax(2).T
    without = 1 - torch.eye(net.slots, device=x.device).expand(len(x), -1, -1)
    squared = torch.stack([(net.paint_over(covers, v) - x).square().sum(2).mean(1) for v in without.unbind(1)], 1)
    saved = (squared - error.square().sum(2).mean(1, keepdim=True)).median(1).values
    return (region > MISSED * saved[:, None].clamp(min=1e-12)).float().mean(1)


def _on_one_thing(places: Tensor) -> Tensor:
    """Return whether two slots are at the same positions, (R, K, K), for positions (R, B, K, 2).

    By the concordance 2 cov(p, q) / (var p + var q + (mean p - mean q)²), with sums over x and y. Two things that move
    together at a distance have a small one.
    """
    mean = places.mean(1)
    centred = places - mean[:, None]
    covariance = torch.einsum("rbkc,rbjc->rkj", centred, centred) / places.shape[1]
    variance = covariance.diagonal(dim1=1, dim2=2)
    apart = (mean[:, :, None] - mean[:, None]).square().sum(3)
    concordance = 2 * covariance / (variance[:, :, None] + variance[:, None] + apart).clamp(min=1e-12)
    return (concordance > SAME_THING) & ~torch.eye(places.shape[2], dtype=torch.bool, device=places.device)
