"""The parts of a variational autoencoder: p(x | z), q(z | x), an encoder and a decoder."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from identifiable.distributions.densities import LOG_2PI, log_bernoulli, log_discretised_logistic, log_normal
from identifiable.flows import SmoothLeakyFlow
from identifiable.nets import Architecture, set_rng
from identifiable.training import Batch, Plan, Stage, Step

LOG_NOISE_FLOOR = math.log(1e-3)  # of the decoder, in units of a column's standard deviation
LOG_SD = -12.0, 5.0  # of the encoder
FIRST_LOG_LOGISTIC = math.log(0.1)  # scale of a pixel in [0, 1] where training starts
HALF_GREY = 0.5


class Likelihood(nn.Module):
    """Log p(x | z) of columns, given the outputs of a decoder.

    - "gaussian": N(decoded, noise²), a learnt noise for each column of standardised values
    - "bernoulli": bits, or values in [0, 1] as probabilities; the decoder gives log-odds
    - "logistic": pixels in {0, 1/255, ..., 1}, a logistic density around decoded + 1/2 in bins of that width, with a
      learnt scale for each channel (Kingma et al. 2016, section C.5)
    - "categorical": one-hot categories, column by column; the decoder gives their logits

    Parameters
    ----------
    members : R.
    kind : one of these.
    columns : outputs of the decoder per row.
    levels : numbers of categories of the columns.
    channels : numbers per pixel, the fastest to change along a row.
    """

    def __init__(self, members: int, kind: str, columns: int, *, levels: Sequence[int] = (), channels: int = 1) -> None:
        super().__init__()
        self.kind, self.columns, self.levels = kind, columns, tuple(levels)
        self.log_noise: nn.Parameter | None = None
        if kind == "gaussian":
            self.log_noise = nn.Parameter(torch.zeros(members, 1, columns))
        elif kind == "logistic":
            self.log_noise = nn.Parameter(torch.full((members, 1, channels), FIRST_LOG_LOGISTIC))

    def forward(self, x: Tensor, decoded: Tensor) -> Tensor:
        """Log p(x | z), (R, B), for x and decoded (R, B, columns)."""
        if self.kind == "gaussian":
            assert self.log_noise is not None
            return log_normal(x, decoded, self.log_noise.clamp(min=LOG_NOISE_FLOOR)).sum(-1)
        if self.kind == "bernoulli":
            return log_bernoulli(x, decoded).sum(-1)
        if self.kind == "logistic":
            return log_discretised_logistic(x, decoded + HALF_GREY, self._log_scale).sum(-1)
        parts = zip(x.split(self.levels, -1), decoded.split(self.levels, -1), strict=True)
        each: list[Tensor] = [(a * torch.log_softmax(b, -1)).sum(-1) for a, b in parts]
        return torch.stack(each).sum(0)

    @property
    def _log_scale(self) -> Tensor:
        assert self.log_noise is not None
        return self.log_noise.clamp(min=LOG_NOISE_FLOOR).repeat(1, 1, (self.columns // self.log_noise.shape[-1]))

    def roots_of_information(self, decoded: Tensor, J: Tensor) -> Tensor:
        """Return A with A_c'A_c the Fisher information of column c on z, for J (R, B, columns, n), d decoded / dz."""
        if self.kind == "gaussian":
            assert self.log_noise is not None
            return J * torch.exp(-self.log_noise.clamp(min=LOG_NOISE_FLOOR))[..., None]
        if self.kind == "bernoulli":
            return J * (torch.sigmoid(decoded) * torch.sigmoid(-decoded)).sqrt()[..., None]
        if self.kind == "logistic":
            return J * (torch.exp(-self._log_scale) / math.sqrt(3))[..., None]
        parts = zip(decoded.split(self.levels, -1), J.split(self.levels, -2), strict=True)
        shares = [(torch.softmax(logits, -1)[..., None], own) for logits, own in parts]
        return torch.cat([p.sqrt() * (own - (p * own).sum(-2, keepdim=True)) for p, own in shares], -2)

    def mean(self, decoded: Tensor) -> Tensor:
        """E[x | z], as the encoder takes x; probabilities for categories."""
        if self.kind == "bernoulli":
            return torch.sigmoid(decoded)
        if self.kind == "logistic":
            return (decoded + HALF_GREY).clamp(0, 1)
        if self.kind == "categorical":
            return torch.cat([torch.softmax(part, -1) for part in decoded.split(self.levels, -1)], -1)
        return decoded

    def draw(self, decoded: Tensor, rng: torch.Generator) -> Tensor:
        """X ~ p(x | z), as the encoder takes x."""

        def uniform() -> Tensor:
            tiny = torch.finfo(decoded.dtype).tiny
            return torch.rand(decoded.shape, generator=rng, dtype=decoded.dtype, device=decoded.device).clamp(min=tiny)

        if self.kind == "bernoulli":
            return (uniform() < torch.sigmoid(decoded)).to(decoded.dtype)
        if self.kind == "logistic":
            drawn = decoded + HALF_GREY + self._log_scale.exp() * torch.logit(uniform(), eps=1e-7)
            return (drawn.clamp(0, 1) * 255).round() / 255
        if self.kind == "categorical":
            gumbel = -torch.log(-torch.log(uniform()))
            parts = zip(decoded.split(self.levels, -1), gumbel.split(self.levels, -1), strict=True)
            hits = [nn.functional.one_hot((a + b).argmax(-1), a.shape[-1]) for a, b in parts]
            return torch.cat(hits, -1).to(decoded.dtype)
        assert self.log_noise is not None
        noise = torch.randn(decoded.shape, generator=rng, dtype=decoded.dtype, device=decoded.device)
        return decoded + self.log_noise.clamp(min=LOG_NOISE_FLOOR).exp() * noise


@dataclass(frozen=True)
class Posterior:
    """q(z | x), Gaussian: z = mean + sd (ε + B ε), B strictly lower triangular (R, B, n, n), or None for 0."""

    mean: Tensor
    log_sd: Tensor  # (R, B, n), of ε itself
    below: Tensor | None

    def at(self, noise: Tensor) -> Tensor:
        """Return the draw z for noise ε (R, B, n)."""
        mixed = noise if self.below is None else noise + (self.below @ noise[..., None])[..., 0]
        return self.mean + self.log_sd.exp() * mixed

    @property
    def variance(self) -> Tensor:
        """Variance of each latent, (R, B, n)."""
        own = torch.exp(2 * self.log_sd)
        return own if self.below is None else own * (1 + self.below.square().sum(-1))

    @property
    def covariance(self) -> Tensor:
        """Covariance of the latents, (R, B, n, n)."""
        root = torch.eye(self.mean.shape[-1], dtype=self.mean.dtype, device=self.mean.device)
        root = self.log_sd.exp()[..., None] * (root if self.below is None else root + self.below)
        return root @ root.mT

    @property
    def entropy(self) -> Tensor:
        """Entropy of all latents together, (R, B)."""
        return self.log_sd.sum(-1) + 0.5 * (1 + LOG_2PI) * self.mean.shape[-1]

    def log_density(self, noise: Tensor) -> Tensor:
        """Log q of the draw for this noise, (R, B)."""
        return -0.5 * (noise.square() + LOG_2PI).sum(-1) - self.log_sd.sum(-1)


class LeakyLayers(nn.Module):
    """t = f(x): affine maps h <- h A_l + b_l, and between them a leaky ReLU with its own slope per unit.

    The limit of a sharp `SmoothLeakyFlow`, and of its inverse, as plain nets. Except near h = 0, φ(h) of such a flow is
    the leaky ReLU minus (1 - a) log 2 / β.
    """

    def __init__(self, members: int, n: int, depth: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(n).repeat(members, depth, 1, 1))
        self.bias = nn.Parameter(torch.zeros(members, depth, 1, n))
        self.log_slope = nn.Parameter(torch.zeros(members, depth - 1, 1, n))

    def forward(self, x: Tensor) -> Tensor:
        """Map (R, B, n) to (R, B, n)."""
        return self._through(x, None)[0].mT

    def propagate(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return f(x), and L (R, B, n, n), L L' the covariance of f(x + e @ noise), e ~ N(0, I), to first order.

        noise is (R, k, n), k >= n.
        """
        h, noise = self._through(x, noise.mT[..., None].expand(-1, -1, -1, x.shape[1]))
        covariance = (noise[:, :, None] * noise[:, None]).sum(3)
        return h.mT, cholesky(covariance.permute(0, 3, 1, 2))

    def _through(self, x: Tensor, noise: Any) -> tuple[Tensor, Any]:
        """Return f(x), (R, n, B), and noise (R, n, k, B) moved by the Jacobian of f.

        With the batch last, operations run along contiguous memory.
        """
        members, B, n = x.shape
        h, slopes = x.mT, self.log_slope[:, :, 0].exp()
        for layer in range(self.weight.shape[1]):
            if layer > 0:
                own = slopes[:, layer - 1]
                if noise is not None:
                    noise = noise * torch.where(h > 0, torch.ones_like(h), own[..., None])[:, :, None]
                h = nn.functional.prelu(h.reshape(1, members * n, B), own.flatten()).reshape(members, n, B)
            h = torch.baddbmm(self.bias[:, layer].mT, self.weight[:, layer].mT, h)
            if noise is not None:
                noise = torch.bmm(self.weight[:, layer].mT, noise.flatten(2)).unflatten(2, noise.shape[2:])
        return h, noise

    @torch.no_grad()
    def copy_from(self, flow: SmoothLeakyFlow, *, inverse: bool = False) -> None:
        """Set the maps to those of a flow, or of its inverse."""
        A, b = flow.weight.double(), flow.biases.double()[:, :, None]
        offset = ((1 - flow.log_slope.double().exp()) * math.log(2) / flow.beta.double())[:, :, None]
        offset = torch.cat([torch.zeros_like(offset[:, :1]), offset], 1)
        slopes = flow.log_slope[:, :, None]
        if inverse:
            back = torch.linalg.inv(A)
            A, b, slopes = back.flip(1), (offset - b @ back).flip(1), -slopes.flip(1)
        else:
            b = b - offset @ A
        self.weight.copy_(A)
        self.bias.copy_(b)
        self.log_slope.copy_(slopes)


def cholesky(C: Tensor) -> Tensor:
    """Return lower triangular L, L L' = C, for small positive definite C (..., n, n); may be part of a recorded step.

    >>> C = torch.tensor([[4.0, 2.0], [2.0, 5.0]])
    >>> cholesky(C)
    tensor([[2., 0.],
            [1., 2.]])
    """
    n, columns = C.shape[-1], C.movedim((-2, -1), (0, 1))  # the batch last: contiguous operations
    done: list[Tensor] = []
    for j in range(n):
        column = columns[:, j]
        for one in done:
            column = column - one * one[j]
        below = (torch.arange(n, device=C.device) >= j).reshape(-1, *[1] * (C.dim() - 2))
        done.append(torch.where(below, column * column[j].clamp(min=1e-20).rsqrt(), torch.zeros_like(column)))
    return torch.stack(done, 1).movedim((0, 1), (-2, -1))


class Autoencoder(nn.Module):
    """Encoder x -> q(z | x), decoder z -> p(x | z); R members.

    Parameters
    ----------
    members, inputs, n : R, width of the inputs, number of latents.
    net : architecture of encoder and decoder.
    likelihood : `Likelihood` of the columns.
    full : q has a full covariance.
    bypass : add linear maps in parallel with the nets, zero at the start.
    bends : number of leaky layers between the latents and these linear maps, the identity at the start; 0 for none. q
        then starts with the covariance of the noise of x, propagated through them.
    """

    lower: Tensor | None

    def __init__(
        self,
        members: int,
        inputs: int,
        n: int,
        net: Architecture,
        likelihood: Likelihood,
        *,
        full: bool = False,
        bypass: bool = False,
        bends: int = 0,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n, self.likelihood = n, likelihood
        self.bent_in = LeakyLayers(members, n, bends) if bends else None
        self.bent_out = LeakyLayers(members, n, bends) if bends else None
        self.encoder = net.encoder(members, inputs, 2 * n + (n * n if full else 0), rng=rng)
        self.decoder = net.decoder(members, n, likelihood.columns, rng=rng)
        self.into = nn.Parameter(torch.zeros(members, inputs, n)) if bypass else None
        self.out = nn.Parameter(torch.zeros(members, n, likelihood.columns)) if bypass else None
        self.register_buffer("lower", torch.ones(n, n).tril(-1).repeat(members, 1, 1) if full else None)

    def encode(self, x: Tensor) -> Posterior:
        """Return q(z | x) for x (R, B, inputs)."""
        h, n = self.encoder(x), self.n
        mean, log_sd = h[..., :n], h[..., n : 2 * n]
        below = None if self.lower is None else h[..., 2 * n :].unflatten(-1, (n, n)) * self.lower[0]
        if self.into is not None and self.bent_in is not None and self.log_noise is not None:
            noise = self.log_noise.clamp(min=LOG_NOISE_FLOOR).exp().mT * self.into
            beside, L = self.bent_in.propagate(torch.bmm(x, self.into), noise)
            own = torch.diagonal(L, dim1=-2, dim2=-1)
            mean, log_sd = mean + beside, log_sd + own.log()
            if below is not None and self.lower is not None:
                below = below + L / own[..., None] * self.lower[0]
        elif self.into is not None:
            mean = mean + torch.bmm(x, self.into)
        return Posterior(mean, log_sd.clamp(*LOG_SD), below)

    def decode(self, z: Tensor) -> Tensor:
        """Return the inputs of `likelihood`, (R, B, columns)."""
        decoded: Tensor = self.decoder(z)
        if self.out is None:
            return decoded
        return decoded + torch.bmm(z if self.bent_out is None else self.bent_out(z), self.out)

    def log_likelihood(self, x: Tensor, decoded: Tensor) -> Tensor:
        """Log p(x | z), (R, B)."""
        return self.likelihood(x, decoded)

    @property
    def log_noise(self) -> nn.Parameter | None:
        """Log of the noise of each column, (R, 1, columns), or of the logistic scale of each channel."""
        return self.likelihood.log_noise

    @property
    def last_layers(self) -> tuple[Any, Any]:
        """The last layers of the encoder and of the decoder."""
        return self.encoder.last, self.decoder.last

    def widen(self, log_sd: Tensor | float) -> None:
        """Add to the initial log standard deviation of q: a number, or one per member and latent (R, n)."""
        bias = self.last_layers[0].bias
        with torch.no_grad():
            shift = torch.as_tensor(log_sd, dtype=bias.dtype, device=bias.device)
            bias[..., self.n : 2 * self.n] += shift if shift.dim() == 0 else shift[:, None]


def follow(module: Autoencoder, rows: Tensor, latents: Tensor, plan: Plan, seed: int) -> Stage:
    """Return a stage that trains encoder and decoder to the maps between rows (N, inputs) and latents (R, N, n).

    Linear maps in parallel with the nets start at least squares.
    """
    if module.into is not None and module.out is not None:
        e = rows.double().cpu().numpy()
        with torch.no_grad():
            for r, T in enumerate(latents.double().cpu().numpy()):
                module.into[r] = torch.as_tensor(np.linalg.lstsq(e, T, rcond=None)[0])
                module.out[r] = torch.as_tensor(np.linalg.lstsq(T, e, rcond=None)[0])

    def loss(batch: Batch, step: Step) -> Tensor:
        x, T = batch  # a batch holds the latents of all members: each takes its own
        own = torch.stack([T[r, :, r] for r in range(len(T))])
        encoding = (module.encode(x).mean - own).square().mean((1, 2))
        return encoding.log() + (module.decode(own) - x).square().mean((1, 2)).log()

    def prepare(batch: Batch, step: Step) -> Batch:
        set_rng(module, step.rng)
        return batch

    return Stage(module, loss, [rows, latents.transpose(0, 1).contiguous()], plan, seed, prepare=prepare)


@torch.no_grad()
def set_noise(module: Autoencoder, rows: Tensor, latents: Tensor) -> None:
    """Start a learnt noise at the error of the decoder."""
    noise = module.log_noise
    if noise is not None and noise.requires_grad:
        error = (module.decode(latents[:, :4096]) - rows[:4096]).square().mean(1, keepdim=True).sqrt()
        noise.copy_(error.log().clamp(min=LOG_NOISE_FLOOR))
