"""Does `identifiable fit` find the position of a dot in a folder of images, and leave other images to other models?

    python benchmarks/images.py FOLDER [--first-seed 0] [--images 500] [--time 3m] [--array] [--noise 0]

Writes images of one bright dot that is uniformly placed on a dark ground, as PNG files or as one array, runs the
command on them, and prints the correlations of the latents with the true positions, which no fit sees.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from typer.testing import CliRunner

from identifiable.cli import app

SIDE, RADIUS = 32, 2.5
DARK, BRIGHT = 0.1, 0.9


def make_dots(rows, seed, noise=0.0):
    """Return positions (rows, 2) and grey images (rows, 32, 32) of one disc, with an edge one pixel wide."""
    rng = np.random.default_rng(seed)
    z = rng.uniform(2 * RADIUS, SIDE - 2 * RADIUS, size=(rows, 2))
    pixels = np.arange(SIDE) + 0.5
    distance = np.hypot(pixels - z[:, :1, None], pixels[:, None] - z[:, 1:, None])
    x = DARK + (BRIGHT - DARK) * np.clip(RADIUS - distance + 0.5, 0, 1)
    return z, np.clip(x + noise * rng.normal(size=x.shape), 0, 1)


def write_dots(folder, x, *, array):
    """Write images as PNG files in a folder, or as one .npy file; return what to fit."""
    if array:
        np.save(folder / "dots.npy", x.astype(np.float32))
        return folder / "dots.npy"
    target = folder / "dots"
    target.mkdir(exist_ok=True)
    for i, image in enumerate(x):
        Image.fromarray(np.round(255 * image).astype(np.uint8)).save(target / f"{i:05}.png")
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--time", default="3m")
    parser.add_argument("--array", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    z, x = make_dots(given.images, given.first_seed, given.noise)
    source, run = write_dots(given.folder, x, array=given.array), given.folder / "run"
    made = CliRunner().invoke(app, ["fit", str(source), "-o", str(run), "--time", given.time])
    print(made.output, made.exception or "")
    found = pd.read_csv(run / "latents.csv").filter(like="z").to_numpy()
    between = np.abs(np.corrcoef(z.T, found.T))[:2, 2:]
    print(f"correlation of x and y with their best latents: {between.max(1).round(4).tolist()}")


if __name__ == "__main__":
    main()
