r"""Convolutional autoencoder: images to a code of 128 numbers, and a dense autoencoder of this code to the latents.

    min  E‖x - image(code(x))‖²,        then        min  E‖c - f(g(c))‖²,   c = code(x),   Var g(c)_i = 1.

These are the encoder and stage 1 of Xu et al. (2026), section 5.2 and appendix D.10, with smooth activations in stage 1
and without its norm term, which only shrinks a standardised code. The latents of a model of intermittent activity are
then found in g(c), see :class:`ImageUnmixing`. Nothing here knows what an image shows: compare with
:class:`KeypointEncoder`.
"""

from collections.abc import Generator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from identifiable.arrays import is_integer
from identifiable.estimators.image_model import ROWS_AT_ONCE, ImageModel
from identifiable.estimators.sparse_autoencoder import Bottleneck
from identifiable.estimators.trained import Split
from identifiable.nets import MLP, select_members
from identifiable.nets.conv_code import ConvCode
from identifiable.training import Batch, History, Plan, Stage, Step

ACTIVATION = "silu"  # of the dense nets: R² of 4 balls .88, and .81 with a leaky ReLU of slope .02 (one data set)
BETAS = (0.9, 0.999)
STARTS, SHARE_OF_STARTS = 3, 0.2  # dense nets per restart, and steps until the one with the smallest error is chosen


class TwoEncoders(nn.Module):
    """A convolutional autoencoder and a dense one of its code, which is centred and divided by one scale; R members."""

    centre: Tensor
    scale: Tensor

    def __init__(self, images: ConvCode, code: Bottleneck, width: int) -> None:
        super().__init__()
        self.images, self.code = images, code
        members = len(images.last.weight)
        self.register_buffer("centre", torch.zeros(members, 1, width))
        self.register_buffer("scale", torch.ones(members, 1, 1))

    def encode(self, x: Tensor) -> Tensor:
        """Map images (R, B, h w c) to latents (R, B, n)."""
        return self.code((self.images.encode(x) - self.centre) / self.scale)

    def decode(self, z: Tensor) -> Tensor:
        """Map latents (R, B, n) to images (R, B, h w c)."""
        return self.images.decode(F.relu(self.code.decoder(z) * self.scale + self.centre))

    def errors(self, x: Tensor) -> Tensor:
        """Return the mean squared error (R, B) of each image (R, B, h w c)."""
        return (self.decode(self.encode(x)) - x).square().mean(2)

    @torch.no_grad()
    def codes(self, rows: Tensor) -> Tensor:
        """Return the codes (R, N, width) of rows (N, h w c), centred and divided by the scale."""
        blocks = (block.expand(len(self.centre), -1, -1) for block in rows.split(ROWS_AT_ONCE))
        return (torch.cat([self.images.encode(block) for block in blocks], 1) - self.centre) / self.scale

    @torch.no_grad()
    def set_scale(self, rows: Tensor) -> Tensor:
        """Set the centre and the scale to those of the codes of rows (N, h w c); return these codes (R, N, width)."""
        c = self.codes(rows)
        centre = c.mean(1, keepdim=True)
        scale = (c - centre).square().mean((1, 2), keepdim=True).sqrt().clamp(min=1e-12)
        self.centre.copy_(self.centre + centre * self.scale)
        self.scale.mul_(scale)
        return (c - centre) / scale


@dataclass(eq=False, repr=False)
class ConvAutoencoder(ImageModel):
    """Reduce images to a few numbers, by nets that know nothing of what the images show.

    The defaults take about four minutes on one core for 5,000 images of 64 x 64 pixels. The published schedule is
    ``ConvAutoencoder(n, most_pixels=64, max_steps=20_000, batch_size=256, code_steps=10_000)``, made for a GPU.

    Parameters
    ----------
    n_latents : int, default=4. Number of latents; two for each thing that moves.
    n_restarts : int, default=1. Nets trained in one batch. The one with the smallest held-out error is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    image_shape : (height, width) or (height, width, channels) of the rows of X. Not needed where X has images
        (N, height, width[, channels]) or is a `Simulator` of images.
    most_pixels : int, default=32. Larger images are averaged down to at most this many pixels per side.
    width : int, default=128. Numbers in the code.
    hidden : default=(25, 50, 50, 25). Layers of the dense encoder in multiples of n_latents; the decoder mirrors them.
    max_steps, batch_size : int, default=4000 and 64. Of the convolutional nets.
    code_steps, code_batch_size : int, default=5000 and 256. Of the dense nets.
    learning_rate : float, default=0.001. Of both.

    Attributes
    ----------
    module_ : `TwoEncoders`, the kept nets.
    image_shape_ : shape of an image, as given.
    noise_ : standard deviation of the error of a pixel, in units of the range of the pixels.
    history_, code_history_ : records of the convolutional and of the dense nets.
    restart_scores_, kept_, stability_, fit_status_ : see :class:`TrainedModel`.

    Examples
    --------
    >>> from identifiable.data import make_balls
    >>> x = make_balls(100, balls=1, random_state=0).x.reshape(-1, 64, 64, 3)
    >>> model = ConvAutoencoder(2, max_steps=2, code_steps=2, random_state=0, verbose=0).fit(x)
    >>> model.transform(x).shape, model.inverse_transform(model.transform(x)).shape
    ((100, 2), (100, 64, 64, 3))

    References
    ----------
    Xu, Lachapelle & Magliacane, Identifiability of potentially degenerate Gaussian mixture models with piecewise affine
    mixing, AISTATS 2026, appendix D.10, tables 2 and 12.
    """

    n_latents: int = 4
    _: KW_ONLY
    n_restarts: int = 1
    most_pixels: int = 32
    width: int = 128
    hidden: Sequence[int] = (25, 50, 50, 25)
    max_steps: int = 4000
    batch_size: int = 64
    code_steps: int = 5000
    code_batch_size: int = 256
    learning_rate: float = 1e-3

    module_: TwoEncoders = field(init=False)
    code_history_: History = field(init=False)

    @property
    def _most_pixels(self) -> int:
        return self.most_pixels

    def _stages(self, data: Split) -> Generator[Stage, History, TwoEncoders]:
        """Train the convolutional nets, then the dense ones on their codes."""
        rows = torch.as_tensor(self._inputs(data.X_train), device=data.device)
        some = rows[:1000].reshape(-1, *self._small).cpu()
        both = self._nets(some.median(0).values, some.mean(0), self.n_restarts, data.rng()).to(data.device)
        source: Any = [rows] if data.source is None else self._stream(data.source, data.device)
        images = both.images

        def loss(batch: Batch, step: Step) -> Tensor:
            return (images.decode(images.encode(batch[0])) - batch[0]).square().mean((1, 2))

        plan = Plan(self.max_steps, self.batch_size, self.learning_rate, betas=BETAS)
        self.history_ = yield Stage(images, loss, source, plan, data.seed)
        c = both.set_scale(rows)
        codes, starts = [c.transpose(0, 1).contiguous()], max(1, round(SHARE_OF_STARTS * self.code_steps))
        plan = Plan(starts, self.code_batch_size, self.learning_rate, betas=BETAS, final=1.0)
        yield Stage(both.code, partial(_loss_of_code, both.code), codes, plan, data.seed + 1)
        both.code = best_starts(both.code, both.codes(torch.as_tensor(self._inputs(data.X_held), device=data.device)))
        plan = Plan(max(1, self.code_steps - starts), self.code_batch_size, self.learning_rate, betas=BETAS)
        stage = Stage(both.code, partial(_loss_of_code, both.code), codes, plan, data.seed + 2)
        self.code_history_ = yield stage
        both.code.freeze(lambda: c.split(ROWS_AT_ONCE, dim=1))
        return both

    def _nets(
        self, median: Tensor, mean: Tensor, members: int, rng: torch.Generator | None, starts: int = STARTS
    ) -> TwoEncoders:
        images = ConvCode(median, mean, members, width=self.width, rng=rng)
        widths = (self.width, *(h * self.n_latents for h in self.hidden), self.n_latents)
        encoder, decoder = (MLP(members * starts, w, activation=ACTIVATION, rng=rng) for w in (widths, widths[::-1]))
        return TwoEncoders(images, Bottleneck(encoder, decoder, learn_scale=False), self.width)

    def _build(self, members: int, rng: torch.Generator | None = None) -> TwoEncoders:
        blank = torch.full(self._small, 0.5)
        return self._nets(blank, blank, members, rng, starts=1)

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        self._require_integers(most_pixels=1, width=1, max_steps=1, batch_size=2, code_steps=1, code_batch_size=2)
        self._require_positive("learning_rate")
        holds = isinstance(self.hidden, Sequence) and all(is_integer(h, 1) for h in self.hidden)
        self._require("hidden", holds, "a sequence of positive layer widths, in multiples of n_latents")


def _loss_of_code(code: Bottleneck, batch: Batch, step: Step) -> Tensor:
    """Return the error (S R,) of S dense nets for each of R codes; a batch holds all codes, (S R, B, R, width)."""
    return _errors(code, torch.stack([c[:, m * c.shape[1] // len(batch[0])] for m, c in enumerate(batch[0])]))


def _errors(code: Bottleneck, c: Tensor) -> Tensor:
    return code.reconstruction(c, code(c))


@torch.no_grad()
def best_starts(code: Bottleneck, held: Tensor) -> Bottleneck:
    """Return the dense net of each restart that reconstructs held-out codes (R, N, width) best, of all its starts."""
    restarts, starts = len(held), len(code.scale) // len(held)
    errors = _errors(code.train(), held.repeat_interleave(starts, 0)).reshape(restarts, starts)
    best = errors.argmin(1).cpu() + starts * torch.arange(restarts)
    return select_members(code, best.tolist())
