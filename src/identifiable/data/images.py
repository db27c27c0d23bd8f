"""Rendered images whose latents are known."""

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
    """Positions (N, 2 balls) to pixels (N, 64 * 64 * 3): coloured discs on white, later balls in front."""

    def __init__(self, balls: int) -> None:
        centres = (np.arange(SIDE) + 0.5) / SIDE
        # (balls, 3) and (2, 64, 64)
        super().__init__(colours=COLOURS[:balls], grid=np.stack(np.meshgrid(centres, centres)))

    def forward(self, z: Tensor) -> Tensor:
        """Render, with an edge one pixel wide so that a small movement is visible."""
        picture = torch.ones((len(z), SIDE, SIDE, 3), dtype=z.dtype, device=z.device)
        for i, colour in enumerate(self.colours):
            centre = z[:, 2 * i : 2 * i + 2, None, None]
            distance = (self.grid - centre).square().sum(1).sqrt()
            cover = ((RADIUS - distance) * SIDE + 0.5).clamp(0, 1)[..., None]
            picture = picture * (1 - cover) + colour * cover
        return picture.flatten(1)


def make_balls(
    n_samples: int = 5000, *, balls: int = 2, rest: float = 0.1, separately: bool = False, random_state: int = 0
) -> Sample:
    """Sample images of coloured balls, each inactive in some rows (Xu et al. 2026, section 5.2).

    64 x 64 RGB, radius .1, white ground. Mean positions are U(.3, .7)² at least .2 apart, covariance .01 I, coordinates
    kept in [.05, .95] by rejection; each ball is exactly at its mean with probability `rest`.

    Parameters
    ----------
    n_samples : int, default=5000. Number of rows N.
    balls : int, default=2. Number of balls, 1 to 6; more do not fit .2 apart.
    rest : float, default=0.1. Probability that a ball is inactive in a row.
    separately : bool, default=False. x and y of a ball are inactive independently (the paper's appendix D.11).
    random_state : int, default=0. Fixes mean positions and rows.

    Returns
    -------
    Sample with x (N, 12288) in [0, 1], z (N, 2 balls) positions, component the pattern of inactivity, and image_shape.

    Examples
    --------
    >>> make_balls(10, balls=3)
    Sample(x=(10, 12288), z=(10, 6), component=(10,))
    """
    if not 1 <= balls <= 6:
        raise ValueError(f"balls must be between 1 and 6: more do not fit at the distance. Got {balls}.")
    rng = np.random.default_rng(random_state)
    means = np.empty((0, 2))
    while len(means) < balls:
        candidates = rng.uniform(0.3, 0.7, size=(100, 2))
        far = np.flatnonzero((np.linalg.norm(candidates[:, None] - means, axis=-1) >= 0.2).all(axis=1))
        means = np.vstack([means, candidates[far[:1]]]) if len(far) else np.empty((0, 2))
    positions = BallPositions(means, rest, separately=separately)
    simulator = Simulator(positions, BallRenderer(balls), seed=random_state, image_shape=(SIDE, SIDE, 3))
    return simulator.sample(n_samples, random_state)
