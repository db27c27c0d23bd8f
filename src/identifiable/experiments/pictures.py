"""Small pictures of what a method has learnt of images, as text that a record can hold."""

from collections.abc import Callable, Iterable

import numpy as np
import torch

from identifiable import files
from identifiable.arrays import FloatArray
from identifiable.data.sample import Sample

FRAMES, STEPS = 10, 7  # images beside their reconstructions, and images along a latent
SIDE = 32  # most pixels per side
QUANTILES = 0.02, 0.98  # ends of a traversal
GAP, GREY = 2, 0.6  # between images


def of_fit(decode: Callable[[FloatArray], FloatArray], z: FloatArray, new: Sample) -> dict[str, str]:
    """Return "frames", images above their reconstructions, and "traversals", a row per latent, each a PNG in base64.

    Along a row, one latent goes from a low to a high quantile of z (N, n), and the others stay at their medians.
    """
    shape = (*(new.image_shape or ()), 1)[:3]
    paths = np.tile(np.median(z, 0), (z.shape[1], STEPS, 1))
    for i, path in enumerate(paths):
        low, high = np.quantile(z[:, i], QUANTILES)
        path[:, i] = np.linspace(low, high, STEPS)
    along = decode(paths.reshape(-1, z.shape[1])).reshape(*paths.shape[:2], *shape)
    frames = (x.reshape(-1, *shape) for x in (np.asarray(new.x[:FRAMES]), decode(z[:FRAMES])))
    return {"frames": sheet(frames), "traversals": sheet(along)}


def sheet(rows: Iterable[FloatArray]) -> str:
    """Return rows of images (k, height, width, channels) in [0, 1] as one image, a PNG in base64."""
    pixels = np.concatenate([_row(images) for images in rows])[GAP:, GAP:]
    return files.png(255 * (pixels[..., 0] if pixels.shape[2] == 1 else pixels))


def _row(images: FloatArray) -> FloatArray:
    """Join images side by side, averaged down, with a gap above and to the left of each."""
    maps = torch.as_tensor(np.asarray(images, dtype=np.float64)).permute(0, 3, 1, 2).clamp(0, 1)
    factor = max(1, -(-max(maps.shape[2:]) // SIDE))
    maps = torch.nn.functional.avg_pool2d(maps, factor)
    maps = torch.nn.functional.pad(maps, (GAP, 0, GAP, 0), value=GREY)
    return torch.cat(list(maps), 2).permute(1, 2, 0).numpy()
