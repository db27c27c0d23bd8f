"""A law that can be drawn from without end: latents, a mixing, observation noise."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from identifiable.data.latents import Draw, MaskedSCM
from identifiable.data.sample import Sample

CHUNK = 20_000  # rows drawn at once: they stay in the cache


class Law(Protocol):
    """What a simulator needs of its latents."""

    def draw(self, rows: int, rng: torch.Generator) -> Draw:
        """Draw rows."""
        ...

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "Law":
        """Move to a device and a precision."""
        ...


@dataclass(frozen=True)
class Simulator:
    """A law that can be drawn from without end.

    x = f(z) + noise ε, or x ~ Bernoulli(sigmoid(f(z))). Without a mixing the law draws x itself and there is no z.
    """

    latents: Law
    mixing: nn.Module | None
    noise: float = 0.0
    bernoulli: bool = False
    seed: int = 0
    image_shape: tuple[int, ...] | None = None

    def sample(self, n_samples: int, random_state: int = 0) -> Sample:
        """Draw n_samples rows in float64; another random_state gives other rows of the same law."""
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1. Got {n_samples}.")
        rng = torch.Generator().manual_seed(_mix(self.seed, random_state))
        sizes = [min(CHUNK, n_samples - start) for start in range(0, n_samples, CHUNK)]
        parts = [self._draw(rows, rng, self.latents, self.mixing) for rows in sizes]
        x = np.concatenate([x.numpy() for x, _ in parts])

        def joined(name: str) -> NDArray[np.generic] | None:
            if getattr(parts[0][1], name) is None:
                return None
            return np.concatenate([getattr(draw, name).numpy() for _, draw in parts])

        return Sample(
            x=x,
            u=joined("u"),
            z=joined("z") if self.mixing is not None else None,  # type: ignore[arg-type]
            component=joined("component"),  # type: ignore[arg-type]
            image_shape=self.image_shape,
            source=self,
        )

    def stream(
        self, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> Callable[[int, torch.Generator], tuple[Tensor, ...]]:
        """Return a function (rows, rng) -> (x,), or (x, u) where the law has a u, drawing on this device."""
        latents = copy.deepcopy(self.latents).to(device, dtype)
        mixing = None if self.mixing is None else copy.deepcopy(self.mixing).to(device, dtype)

        def draw(rows: int, rng: torch.Generator) -> tuple[Tensor, ...]:
            x, drawn = self._draw(rows, rng, latents, mixing)
            return (x,) if drawn.u is None else (x, drawn.u)

        return draw

    def unmasked(self) -> "Simulator":
        """Return the simulator of the same latents with none at rest (`make_pdgmm`).

        With as many rows and the same random_state it draws the rows of this one, before they were masked.
        """
        if not isinstance(self.latents, MaskedSCM):
            raise ValueError(
                f"Only the latents of make_pdgmm, without example, can be unmasked. Got {type(self.latents).__name__}."
            )
        return replace(self, latents=self.latents.unmasked())

    @torch.no_grad()
    def _draw(self, rows: int, rng: torch.Generator, latents: Law, mixing: nn.Module | None) -> tuple[Tensor, Draw]:
        drawn = latents.draw(rows, rng)
        x = drawn.z if mixing is None else mixing(drawn.z)
        if self.bernoulli:
            x = torch.bernoulli(torch.sigmoid(x), generator=rng)
        if self.noise > 0:
            x = x + self.noise * torch.randn(x.shape, generator=rng, dtype=x.dtype, device=x.device)
        return x, drawn


def _mix(*seeds: int) -> int:
    """One seed out of several, so that the rows of law 1 have nothing to do with the rows of law 2."""
    return int(np.random.SeedSequence([s % 2**32 for s in seeds]).generate_state(1, np.uint64)[0] >> 1)
