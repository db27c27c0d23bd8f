"""How many rows would make all latents of a linear model reproducible, by simulation from the fitted model."""

from typing import Any

import numpy as np
from sklearn.base import clone

from identifiable.agreement.refits import Refits
from identifiable.agreement.stability import THRESHOLDS
from identifiable.errors import DataError, FitFailedError, OutOfTimeError
from identifiable.training import seconds_left, time_limit

STEP = 2**0.5  # between the numbers of rows that are tried
MOST_TIMES = 32  # as many rows; what would take more is not said
MOST_ROWS = 20_000  # that are simulated
SPLITS = 2  # of the simulated rows into halves, for each number of rows
TIME_SHARE = 0.3  # of the time that is left


def rows_needed(model: Any, rows: int, *, seed: int = 0) -> int | None:
    """Return about how many rows make all latents reproducible, if rows are distributed as in a fitted linear model.

    Rows are sampled from the model, more and more of them, and it is fitted to them and to halves of them, until the
    latent that agrees least does so at what is needed. The number is where the angle between fits, interpolated on
    logarithmic scales, is small enough. None if the model has no samples, if it would take too many rows, or if as many
    rows as there are should have been enough: then the rows are not as the model says.
    """
    if not hasattr(model, "sample") or getattr(model, "needs_u", False):
        return None
    needed, times = _angle_of(THRESHOLDS.stable), 1.0
    try:
        with time_limit(TIME_SHARE * seconds_left()):
            last = (times, _angle(model, rows, seed))
            if last[1] <= needed:
                return int(STEP * rows) if last[1] > needed / 2 else None
            while (times := times * STEP) <= MOST_TIMES and times * rows <= MOST_ROWS:
                now = (times, _angle(model, int(times * rows), seed))
                if now[1] <= needed:
                    return int(rows * _between(last, now))
                last = now
    except (DataError, FitFailedError, OutOfTimeError, np.linalg.LinAlgError):
        return None
    return None


def _angle(model: Any, rows: int, seed: int) -> float:
    """Return the squared tangent between the least reproducible latent of simulated rows and of halves of them."""
    rng, agreements = np.random.default_rng([seed, rows]), []
    x = np.asarray(model.sample(rows, random_state=int(rng.integers(2**31))))
    refits = Refits.of(x, seed=0, fraction=0.2)
    whole = refits.fit(clone(model), refits.train, seed)
    for number in range(SPLITS):
        halves = [refits.fit(clone(model), half, seed + 1) for half in refits.split(refits.train, number, rng)]
        agreements.append(np.min([np.abs(refits.match(whole, half).correlations) for half in halves], axis=0))
    return _angle_of(float(np.mean(agreements, axis=0).min()))


def _angle_of(agreement: float) -> float:
    return 1 / max(agreement, 0.05) ** 2 - 1


def _between(last: tuple[float, float], now: tuple[float, float]) -> float:
    """Return by which factor of rows the angle is just small enough, between the last one that was not and this one."""
    (few, far), (many, near) = last, now
    share = np.log(far / _angle_of(THRESHOLDS.stable)) / np.log(far / max(near, 1e-6))
    return float(few * (many / few) ** np.clip(share, 0, 1))
