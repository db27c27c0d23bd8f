"""A simulator generates as many rows as needed: latents, a mixing, observation noise."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from identifiable.data.latents import Draw, MaskedSCM
from identifiable.data.sample import Sample

CHUNK = 20_000  # rows generated at once: they stay in the cache


class LatentDistribution(Protocol):
    """What a simulator needs of its latents."""

    def draw(self, rows: int, rng: torch.Generator) -> Draw:
        """Draw rows."""
        ...

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "LatentDistribution":
        """Move to a device and a precision."""
        ...


@dataclass(frozen=True)
class Simulator:
    """A distribution of latents and a mixing, from which any number of rows can be generated.

    x = f(z) + noise ε, or x ~ Bernoulli(sigmoid(f(z))). Without a mixing, x are the latents and z is None.
    """

    latents: LatentDistribution
    mixing: nn.Module | None
    noise: float = 0.0
    bernoulli: bool = False
    seed: int = 0
    image_shape: tuple[int, ...] | None = None

    def sample(self, n_samples: int, random_state: int = 0) -> Sample:
        """Return n_samples rows in float64; another random_state gives other rows of the same distribution."""
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1. Got {n_samples}.")
        seeds = [self.seed % 2**32, random_state % 2**32]  # combined, so that the rows of simulators are independent
        seed = np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0] >> 1
        rng = torch.Generator().manual_seed(int(seed))
        sizes = [min(CHUNK, n_samples - start) for start in range(0, n_samples, CHUNK)]
        parts = [self._draw(rows, rng, self.latents, self.mixing) for rows in sizes]

        def joined(name: str) -> NDArray[Any] | None:
            values = [getattr(draw, name) for _, draw in parts]
            return None if values[0] is None else torch.cat(values).numpy()

        return Sample(
            x=torch.cat([x for x, _ in parts]).numpy(),
            u=joined("u"),
            z=joined("z") if self.mixing is not None else None,
            component=joined("component"),
            image_shape=self.image_shape,
            source=self,
        )

    def stream(
        self, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> Callable[[int, torch.Generator], tuple[Tensor, ...]]:
        """Return a function (rows, rng) -> (x,), or (x, u) where there is a u, that generates rows on a device."""
        latents = copy.deepcopy(self.latents).to(device, dtype)
        mixing = None if self.mixing is None else copy.deepcopy(self.mixing).to(device, dtype)

        def draw(rows: int, rng: torch.Generator) -> tuple[Tensor, ...]:
            x, drawn = self._draw(rows, rng, latents, mixing)
            return (x,) if drawn.u is None else (x, drawn.u)

        return draw

    def unmasked(self) -> "Simulator":
        """Return the simulator of the same latents with none inactive (`make_pdgmm`).

        With as many rows and the same random_state, its rows are those of this one before masking.
        """
        if not isinstance(self.latents, MaskedSCM):
            raise ValueError(
                f"Only the latents of make_pdgmm, without example, can be unmasked. Got {type(self.latents).__name__}."
            )
        return replace(self, latents=self.latents.unmasked())

    @torch.no_grad()
    def _draw(
        self, rows: int, rng: torch.Generator, latents: LatentDistribution, mixing: nn.Module | None
    ) -> tuple[Tensor, Draw]:
        drawn = latents.draw(rows, rng)
        x = drawn.z if mixing is None else mixing(drawn.z)
        if self.bernoulli:
            x = torch.bernoulli(torch.sigmoid(x), generator=rng)
        if self.noise > 0:
            x = torch.randn(x.shape, generator=rng, dtype=x.dtype, device=x.device).mul_(self.noise).add_(x)
        return x, drawn
