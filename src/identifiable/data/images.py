"""Rendered images whose latents are known."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from identifiable.arrays import Array
from identifiable.data.latents import Buffers, Draw, normal, uniform
from identifiable.data.sample import Sample
from identifiable.data.simulator import Simulator

SIDE, RADIUS = 64, 0.1
LOW, HIGH = 0.05, 0.95  # coordinates stay inside
COLOURS = np.array(
    [
        [0.84, 0.15, 0.16],
        [0.12, 0.47, 0.71],
        [0.17, 0.63, 0.17],
        [1.00, 0.50, 0.05],
        [0.58, 0.40, 0.74],
        [0.09, 0.75, 0.81],
    ]
)
# of the images of Ahuja et al. (2022), on which those of Xu et al. (2026) are based
PUBLISHED_COLOURS = (
    np.array([[2, 156, 154], [222, 100, 100], [149, 59, 123], [74, 114, 179], [27, 159, 119], [218, 95, 2]]) / 255
)
PALETTES = {"distinct": COLOURS, "published": PUBLISHED_COLOURS, "one": COLOURS[[1] * 6]}
CELLS, CONTRAST = 8, 0.4  # of a textured background: random shades on a grid, interpolated


class BallPositions(Buffers):
    """Positions (x, y) of balls: N(mean, .01 I) kept inside the frame by rejection, or exactly at the mean.

    z has 2 columns per ball; component numbers the pattern of inactive coordinates.
    """

    def __init__(self, means: Array, inactive_share: float, *, separately: bool) -> None:
        super().__init__(means=means)  # (balls, 2)
        self.inactive_share, self.separately = inactive_share, separately

    def draw(self, rows: int, rng: torch.Generator) -> Draw:
        """Draw rows of positions (rows, 2 balls)."""
        means = self.means.reshape(-1).expand(rows, -1)
        z = means + 0.1 * normal(tuple(means.shape), means, rng)
        while bool((outside := (z < LOW) | (z > HIGH)).any()):
            z = torch.where(outside, means + 0.1 * normal(tuple(means.shape), means, rng), z)
        units = self.means.numel() if self.separately else len(self.means)
        inactive = uniform((rows, units), means, rng) < self.inactive_share
        pattern = (inactive.long() * 2 ** torch.arange(units, device=means.device)).sum(1)
        if not self.separately:
            inactive = inactive.repeat_interleave(2, dim=1)
        return Draw(torch.where(inactive, means, z), pattern)


class BallRenderer(Buffers):
    """Positions (N, 2 balls) to pixels (N, 64 * 64 * 3) in float32: coloured discs, later balls in front.

    Parameters
    ----------
    colours : (balls, 3) in [0, 1].
    radii : (balls,) in units of the side of the frame.
    ground : (64 * 64, 3), the background.
    integer : whether a ball is centred on the corner of a pixel, as in the published images.
    """

    def __init__(self, colours: Array, radii: Array, ground: Array, *, integer: bool = False) -> None:
        arrays = {"colours": colours, "radii": radii, "ground": ground}
        super().__init__(**{name: array.astype(np.float32) for name, array in arrays.items()})
        self.integer = integer
        self._sides = [min(SIDE, math.ceil(2 * SIDE * float(radius)) + 3) for radius in radii]  # of squares, in pixels

    def forward(self, z: Tensor) -> Tensor:
        """Render, with an edge one pixel wide so that a small movement is visible.

        Balls are painted from the back to the front, each in the smallest square of pixels that contains it.
        """
        places = (z * SIDE).floor() / SIDE if self.integer else z
        places = places.to(self.ground.dtype).unflatten(1, (-1, 2))
        x = self.ground.expand(len(z), -1, -1).contiguous()
        balls = zip(places.unbind(1), self.radii, self.colours, self._sides, strict=True)
        for place, radius, colour, side in balls:
            corner = (place * SIDE - side / 2).round().clamp(0, SIDE - side)  # left, upper
            own = corner[..., None] + torch.arange(side, device=z.device)  # columns and rows, (N, 2, side)
            across, down = ((own + 0.5) / SIDE - place[..., None]).square().unbind(1)
            distance = (down[..., None] + across[:, None]).sqrt().flatten(1)
            cover = ((radius - distance) * SIDE + 0.5).clamp(0, 1)[..., None]
            columns, rows = own.long().unbind(1)
            pixels = (rows[..., None] * SIDE + columns[:, None]).flatten(1)[..., None].expand(-1, -1, 3)
            x.scatter_(1, pixels, torch.lerp(x.gather(1, pixels), colour.expand_as(pixels), cover))
        return x.flatten(1)


def make_balls(
    n_samples: int = 5000,
    *,
    balls: int = 2,
    rest: float = 0.1,
    separately: bool = False,
    colours: str = "distinct",
    radii: float | Sequence[float] = RADIUS,
    textured: bool = False,
    noise: float = 0.0,
    integer: bool = False,
    random_state: int = 0,
) -> Sample:
    """Sample images of coloured balls, each inactive in some rows (Xu et al. 2026, section 5.2).

    64 x 64 RGB. Mean positions are U(.3, .7)² at least .2 apart, covariance .01 I, coordinates kept in [.05, .95] by
    rejection; each ball is exactly at its mean with probability `rest`.

    Parameters
    ----------
    n_samples : int, default=5000. Number of rows N.
    balls : int, default=2. Number of balls, 1 to 6; more do not fit .2 apart.
    rest : float, default=0.1. Probability that a ball is inactive in a row.
    separately : bool, default=False. x and y of a ball are inactive independently (the paper's appendix D.11).
    colours : {"distinct", "published", "one"}, default="distinct". "published" are the colours of Ahuja et al. (2022).
    radii : float or one per ball, default=0.1. In units of the side of the frame.
    textured : bool, default=False. A background of random soft patches instead of white.
    noise : float, default=0. Standard deviation of Gaussian noise of every pixel; values may then leave [0, 1].
    integer : bool, default=False. Balls are drawn at whole pixels, as in the published images.
    random_state : int, default=0. Fixes mean positions, background and rows.

    Returns
    -------
    Sample with x (N, 12288) in float32, z (N, 2 balls) positions, component the pattern of inactivity, and image_shape.

    Examples
    --------
    >>> make_balls(10, balls=3)
    Sample(x=(10, 12288), z=(10, 6), component=(10,))
    """
    if not 1 <= balls <= 6:
        raise ValueError(f"balls must be between 1 and 6: more do not fit at the distance. Got {balls}.")
    if colours not in PALETTES:
        raise ValueError(f"colours must be one of {sorted(PALETTES)}. Got {colours!r}.")
    sizes = np.broadcast_to(np.asarray(radii, dtype=np.float64), balls) if np.ndim(radii) == 0 else np.asarray(radii)
    if sizes.shape != (balls,) or not ((sizes > 0) & (sizes < 0.5)).all():
        raise ValueError(f"radii must be a number between 0 and 0.5, or one for each of {balls} balls. Got {radii!r}.")
    rng = np.random.default_rng(random_state)
    means = np.empty((0, 2))
    while len(means) < balls:
        candidates = rng.uniform(0.3, 0.7, size=(100, 2))
        far = np.flatnonzero((np.linalg.norm(candidates[:, None] - means, axis=-1) >= 0.2).all(axis=1))
        means = np.vstack([means, candidates[far[:1]]]) if len(far) else np.empty((0, 2))
    positions = BallPositions(means, rest, separately=separately)
    ground = _texture(rng) if textured else np.ones((SIDE * SIDE, 3))
    renderer = BallRenderer(PALETTES[colours][:balls], sizes, ground, integer=integer)
    simulator = Simulator(positions, renderer, noise, seed=random_state, image_shape=(SIDE, SIDE, 3))
    return simulator.sample(n_samples, random_state)


def _texture(rng: np.random.Generator) -> Array:
    """Return a background (pixels, 3) of random shades on a coarse grid, interpolated."""
    shades = torch.as_tensor(rng.uniform(1 - CONTRAST, 1, size=(1, 3, CELLS, CELLS)))
    soft = torch.nn.functional.interpolate(shades, size=(SIDE, SIDE), mode="bicubic", align_corners=False)
    return soft.clamp(0, 1)[0].permute(1, 2, 0).reshape(-1, 3).numpy()
