"""The number of latents of a table.

It is where the variances of the principal components fall to the level of noise. If they do not fall, each of few
columns may stand for a latent. With many columns it is the number of which most are reproducible: a linear model looks
for 2, 3, ... latents in both halves of the rows.
"""

from dataclasses import dataclass

import numpy as np

from identifiable.agreement.stability import THRESHOLDS
from identifiable.auto.families import FAMILIES, Family
from identifiable.auto.spectrum import principal_components, spectral_gap
from identifiable.auto.task import MOST_ROWS, Task
from identifiable.errors import DataError, FitFailedError, OutOfTimeError
from identifiable.training import seconds_left, time_limit

NUMBERS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20)  # of latents that are looked for in halves of the rows
ROWS_PER_LATENT = 10  # in each half, at least
MOST_COLUMNS = 12  # up to which each may stand for a latent
SPLITS = 3  # into halves: for each number of latents, if rows are few
FEW_ROWS = 10_000  # up to which it takes little time to split them so often
TIME_SHARE = 0.2  # of the time


@dataclass(frozen=True)
class Count:
    """A number of latents, why, and whether it separates latents from noise."""

    n: int
    reason: str = ""
    by_gap: bool = False


def count_latents(task: Task, family: Family | None = None) -> Count:
    """Return the number of latents: as given, by a fall of the variances, or by how many are reproducible.

    `family` is the linear model that looks for them; None: `LinearICA`.
    """
    variances, _ = principal_components(task.refits.X)
    r, given = len(variances), task.options.n
    gap = spectral_gap(variances, len(task.refits.X), task.n_columns)
    if given is not None:
        if given > r:
            raise DataError(f"n_latents={given}, but the columns vary in {r} directions only. Lower n_latents.")
        return Count(given, by_gap=given == gap)
    if gap is not None:
        reason = (
            f"Number of latents: {gap}. The variances of the principal components fall by a factor of "
            f"{variances[gap - 1] / variances[gap]:.3g} after the first {gap}, to the level of noise."
        )
        return Count(gap, reason, by_gap=True)
    if r <= MOST_COLUMNS:
        return Count(r, f"Number of latents: {r} (all {r} principal components are above the noise level).")
    found = _reproducible_by_number(task, family or next(f for f in FAMILIES if f.name == "LinearICA"), r)
    n = max(found, key=lambda k: (found[k], -k), default=NUMBERS[0])
    seen = ", ".join(f"{count} of {k}" for k, count in found.items()) or "(not enough time to measure it)"
    reason = (
        f"Number of latents: {n}. The variances of the {r} principal components do not fall to a level of noise. "
        f"Latents that a linear model finds in both halves of the rows, at {THRESHOLDS.stable} or more: {seen}. The "
        f"first {n} components hold {100 * variances[:n].sum() / variances.sum():.0f} % of the variance."
    )
    return Count(n, reason)


def _reproducible_by_number(task: Task, family: Family, rank: int) -> dict[int, int]:
    """Return how many latents are found in both halves of the rows, by the number that is looked for."""
    found: dict[int, int] = {}
    most = min(rank, len(task.train) // (2 * ROWS_PER_LATENT))
    task.say(f"looking for {NUMBERS[0]} to {max(n for n in NUMBERS if n <= most)} latents in halves of the rows")
    try:
        with time_limit(TIME_SHARE * seconds_left()):
            for n in NUMBERS:
                if n <= most:
                    found[n] = _reproducible(task, family, n)
    except OutOfTimeError:
        pass  # the numbers that were not reached are not among the reasons
    return found


def _reproducible(task: Task, family: Family, n: int) -> int:
    """Return how many of n latents agree between halves, on average over splits; 0 if no better than a Gaussian.

    The halves do not depend on the seed, so that the number of latents is a property of the table.
    """
    rng, refits = np.random.default_rng(0), task.refits
    gains, agreements = [], []
    rows = np.sort(refits.train)
    try:
        for k in range(SPLITS if len(rows) <= FEW_ROWS else 1):
            some = rows if len(rows) <= MOST_ROWS else np.sort(rng.choice(rows, MOST_ROWS, replace=False))
            halves = refits.split(some, k, rng)
            one, other = (refits.fit(task.model(family, n), half, int(rng.integers(2**31))) for half in halves)
            gains.append(task.gains(one, halves[0]).mean())
            agreements.append(np.sort(task.agreement(one, [other])))
    except (DataError, FitFailedError):
        return 0
    return int((np.mean(agreements, axis=0) >= THRESHOLDS.stable).sum()) if np.mean(gains) > 0 else 0
