"""Recovery of the true latents by one method."""

import time
import warnings
from dataclasses import dataclass

import numpy as np

from identifiable.data.sample import Sample
from identifiable.errors import RecoveryWarning
from identifiable.estimators.base import LatentModel
from identifiable.estimators.baselines import baselines
from identifiable.metrics import mcc, r2

BASELINES = tuple(baselines())


@dataclass(frozen=True)
class Recovery:
    """How well a method recovered the latents of one data set, on new rows of the same distribution.

    mcc and r2 compare with the true latents; agreement (between restarts) and score (held-out) do not need them. r2
    regresses the estimated latents on the true ones, as the pdGMM paper does.
    """

    setting: str
    method: str
    seed: int
    mcc: float
    r2: float
    agreement: float
    score: float
    seconds: float


def recover(setting: str, method: str, model: LatentModel, sample: Sample, test: Sample, seed: int) -> Recovery:
    """Fit model to sample in place, and compare its latents of test with the true ones."""
    assert sample.z is not None
    assert test.z is not None
    if method not in BASELINES:
        model.set_params(n_latents=sample.z.shape[1], random_state=seed)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)  # the result contains the agreement
        model.fit(sample.x, sample.u)
    seconds = time.perf_counter() - started
    latents = np.asarray(model.transform(test.x))
    return Recovery(
        setting=setting,
        method=method,
        seed=seed,
        mcc=mcc(test.z, latents),
        r2=r2(latents, test.z),
        agreement=model.stability_.score,
        score=model.score(test.x),
        seconds=seconds,
    )
