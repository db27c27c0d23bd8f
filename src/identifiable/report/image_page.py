"""The parts of a fit's page that show images: examples beside their reconstructions, and images along each latent.

They are kept as a file beside the fit, so that the page can be written again without the images that were fitted.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from identifiable import files
from identifiable.auto.verdict import LatentReport
from identifiable.errors import DamagedFileError
from identifiable.report.fit_report import FitReport
from identifiable.report.html import Section, render
from identifiable.report.portraits import film, histogram
from identifiable.report.table import number

MARKS = {"stable": "better", "doubtful": "quiet", "unstable": "worse"}
Images = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images of a fit to images, in [0, 1]; an image is (height, width) or (height, width, channels).

    Attributes
    ----------
    examples, painted : (k, image) images that were fitted, and what the model paints from their latents.
    along : (n, steps, image) a decoded row as one latent increases, with all others at their medians.
    ends : (n, 2) the values between which it increases.
    effects : (n, image) change of each pixel as the latent increases; (0,) where latents are positions.
    """

    examples: Images
    painted: Images
    along: Images
    ends: Images
    effects: Images

    def write(self, path: Path) -> None:
        """Write all images to one file, in 256 steps."""
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            examples=_in_256_steps(self.examples),
            painted=_in_256_steps(self.painted),
            along=_in_256_steps(self.along),
            ends=self.ends,
            effects=self.effects.astype(np.float32),
        )
        files.write_bytes(path, buffer.getvalue())

    @classmethod
    def read(cls, path: Path) -> "Pictures":
        """Read what `write` wrote."""
        try:
            with np.load(path, allow_pickle=False) as found:
                images = {name: found[name] / 255 for name in ("examples", "painted", "along")}
                return cls(**images, ends=found["ends"], effects=found["effects"])
        except (ValueError, KeyError, OSError, EOFError) as error:
            raise DamagedFileError(
                f"{str(path)!r} holds no pictures of a fit ({error}). Fit the images again."
            ) from None


def examples_section(pictures: Pictures) -> Section:
    """Show examples above what the model paints from their latents."""
    strips = [
        {"name": "Images", "film": film(pictures.examples, "Images that were fitted")},
        {"name": "From their latents", "film": film(pictures.painted, "The same images, painted from their latents")},
    ]
    lead = "Images that were fitted, and below each what the model paints from its latents alone."
    return Section(
        "examples", "Examples", render("films.html", groups=[{"name": "", "words": "", "strips": strips}]), lead
    )


def traversals_section(report: FitReport, pictures: Pictures) -> Section:
    """Show images as each latent increases, together for those of one thing or of one block."""
    latents = report.latents
    things: dict[str, list[int]] = {}
    for i, latent in enumerate(latents):
        things.setdefault(_thing(latent), []).append(i)
    groups = [
        {
            "name": thing,
            "words": inactivity_in_words([latents[i].inactive_share for i in members]),
            "strips": [_strip(i, report, pictures) for i in members],
        }
        for thing, members in things.items()
    ]
    lead = (
        "Each row of images shows one latent increase from its 5th to its 95th percentile, with all others at their "
        "medians. Beside it, the histogram of the latent."
    )
    if any(latent.meaning for latent in latents):
        lead += " x grows to the right and y downwards, both from 0 to 1."
    return Section("portraits", "What each latent does", render("films.html", groups=groups), lead)


def inactivity_in_words(shares: Sequence[float]) -> str:
    """Say how often the latents of a thing are inactive.

    Examples
    --------
    >>> inactivity_in_words([0.0, 0.0]), inactivity_in_words([0.1, 0.1]), inactivity_in_words([0.0, 0.25])
    ('no inactivity was found', 'inactive in 10 % of the images', 'inactive in 0 % and 25 % of the images')
    """
    known = [share for share in shares if not np.isnan(share)]
    if not any(known):
        return "no inactivity was found"
    return f"inactive in {' and '.join(dict.fromkeys(f'{100 * share:.0f} %' for share in known))} of the images"


def _thing(latent: LatentReport) -> str:
    """Name the thing of which a latent is a coordinate, or its block: "x of thing 1" -> "Thing 1"."""
    if latent.meaning:
        return latent.meaning.rpartition(" of ")[2].capitalize()
    block = [f"z{i}" for i in latent.block]
    return f"Known only together: {', '.join(block)}" if len(block) > 1 else f"Latent {block[0]}"


def _strip(i: int, report: FitReport, pictures: Pictures) -> dict[str, Any]:
    latent, counts, (low, high) = report.latents[i], report.histograms[i], pictures.ends[i].tolist()
    return {
        "name": f"z{i}" + (f": {latent.meaning.partition(' of ')[0]}" if latent.meaning else ""),
        "verdict": latent.verdict,
        "mark": MARKS[latent.verdict],
        "film": film(pictures.along[i], f"Images along z{i}, from its lower to its upper end"),
        "low": number(low, 2),
        "high": number(high, 2),
        "histogram": histogram(counts.counts, counts.low, counts.high, f"Histogram of z{i}"),
    }


def _in_256_steps(images: Images) -> NDArray[np.uint8]:
    return np.round(255 * np.clip(images, 0, 1)).astype(np.uint8)
