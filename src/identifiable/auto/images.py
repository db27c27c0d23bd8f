"""Images: whether the positions of moving things describe them, and how reproducible these are.

Keypoints are tried before all other models. They are selected if they explain the images (`explained_by_keypoints`),
unless refits find none of their latents again. Otherwise pixels are columns of a table, as in any other fit.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from identifiable.agreement.refits import Fitted
from identifiable.arrays import FloatArray
from identifiable.auto.confirm import Confirmation, confirm
from identifiable.auto.steps import CONFIRMATIONS, LEAST_STEPS, LONGEST, SearchResult, affordable_share
from identifiable.auto.task import SearchOptions, Task, Trial
from identifiable.auto.together import at_once
from identifiable.auto.verdict import LATE, Candidate, Evidence, Verdict, judge_latents, verdict_of
from identifiable.errors import DataError, FitFailedError, OutOfTimeError
from identifiable.estimators.image_unmixing import ImageUnmixing
from identifiable.estimators.keypoints import KeypointEncoder
from identifiable.training import seconds_left, time_limit

IMAGES, SAYS = "ImageUnmixing", "things that move over a background"
STEPS = 900  # of a keypoint encoder
REFIT_COST = 0.75  # of the time of the first fit: a refit looks for a number of things that is known
CAUTION = 0.8  # of a turn is planned with; the first steps of an encoder are the slowest
MOST_COMPARED = 2000  # images whose principal components are computed
NOT_REPRODUCIBLE = "refits do not find its latents again"
# Keypoints of images are selected if so many times as many principal components as coordinates are needed to
# reconstruct held-out images as well, and if at most this share of the variance is left. Ratios measured before
# they were set: a moving dot above 100, two balls above 15, digits 0.6, MNIST 0.9 (docs/images.md).
COMPONENT_RATIO = 3.0
MOST_UNEXPLAINED = 0.75


class ImageModel(BaseEstimator):
    """`ImageUnmixing` of rows of pixels, with keypoints trained for some steps.

    Parameters
    ----------
    image_shape : (height, width[, channels]) of the rows.
    n_latents : int or None. Number of latents; None finds it.
    options : device and max_steps.
    random_state : int. Seed.

    Attributes
    ----------
    model_ : the fitted `ImageUnmixing`.
    directions_ : None, as it is given the pixels themselves.
    """

    model_: Any
    directions_ = None

    def __init__(
        self,
        image_shape: tuple[int, ...],
        n_latents: int | None = None,
        options: Mapping[str, Any] | None = None,
        random_state: int = 0,
    ) -> None:
        self.image_shape = image_shape
        self.n_latents = n_latents
        self.options = options
        self.random_state = random_state

    def encoder(self, **options: Any) -> KeypointEncoder:
        """Return the unfitted encoder."""
        given = {"random_state": self.random_state, "verbose": 0, **(self.options or {}), **options}
        return KeypointEncoder(self.n_latents, image_shape=self.image_shape, **given)

    def fit(self, Y: FloatArray, u: Any = None) -> Self:
        """Fit the encoder to images Y (N, pixels) and unmix their codes. u is ignored."""
        return self.unmix(self.encoder().fit(Y), Y)

    def unmix(self, encoder: KeypointEncoder, Y: FloatArray) -> Self:
        """Unmix the codes of a fitted encoder of images Y (N, pixels)."""
        model = ImageUnmixing(image_shape=self.image_shape, random_state=self.random_state, verbose=0)
        self.model_ = model.unmix([encoder], Y)
        return self

    def transform(self, Y: FloatArray) -> FloatArray:
        """Return the latents (N, n) of images Y (N, pixels)."""
        return np.asarray(self.model_.transform(Y))


@dataclass(frozen=True)
class Reconstruction:
    """How well n numbers of a code describe held-out images.

    Attributes
    ----------
    n : size of the code.
    unexplained : squared error of the images that are painted from the code, as a share of their variance.
    components : least number of principal components that reconstruct the images as well; `available` + 1 if all of
        them are worse.
    available : number of principal components.
    """

    n: int
    unexplained: float
    components: int
    available: int

    @property
    def good(self) -> bool:
        """Whether the code explains the images, by the rule of `explained_by_keypoints`."""
        return self.unexplained <= MOST_UNEXPLAINED and self.components >= COMPONENT_RATIO * self.n

    def __str__(self) -> str:
        some = self.components <= self.available
        count = str(self.components) if some else f"more than all {self.available}"
        return (
            f"its {self.n} coordinates leave {100 * self.unexplained:.2g} % of the variance of held-out images "
            f"unexplained, and {count} principal components are needed to leave as little"
        )


def explained_by_keypoints(encoder: Any, train: FloatArray, held: FloatArray) -> Reconstruction:
    """Compare images painted from their codes with their principal components, on images that no fit has seen.

    Keypoints with n coordinates explain the images if at least three times as many principal components are needed for
    the same error, and if at most three quarters of the variance are left. A thing that moves fills many principal
    components, about one for each place that it can be at, and two coordinates. Images of another kind are
    described better by principal components, which are the best linear code.
    """
    code = encoder.transform(held)
    painted = encoder.inverse_transform(code).reshape(held.shape)
    error, mean = float(np.square(painted - held).mean()), train.mean(0)
    centred = held - mean
    total = float(np.square(centred).mean())
    axes = _principal_axes(train[:MOST_COMPARED] - mean)
    left = total - np.cumsum(np.square(centred @ axes).mean(0)) / held.shape[1]
    components = int((left > error).sum()) + 1
    share = error / max(total, np.finfo(np.float64).tiny)
    return Reconstruction(code.shape[1], share, components, axes.shape[1])


def _principal_axes(centred: FloatArray) -> FloatArray:
    """Return the axes (d, r) in which rows (N, d) vary, largest variance first; through the smaller of N and d."""
    rows, columns = centred.shape
    values, vectors = np.linalg.eigh(centred @ centred.T if rows < columns else centred.T @ centred)
    kept = np.flatnonzero(values > 1e-6 * values[-1])[::-1]
    return centred.T @ vectors[:, kept] / np.sqrt(values[kept]) if rows < columns else vectors[:, kept]


def search_images(
    X: FloatArray, shape: tuple[int, ...], options: SearchOptions
) -> tuple[SearchResult | None, Candidate]:
    """Return the confirmed keypoint model of images X (N, pixels) if it is selected, else None, and the candidate.

    If the model was asked for by name, it is selected whatever it explains. If the time does not suffice to confirm it,
    none of its latents is called stable. If refits do not find any of its latents again, other models are tried, as
    long as there is time for them.
    """
    if options.n is not None and options.n % 2:
        why = f"its latents come in pairs, and n_latents={options.n} is odd"
        return _not_selected(Candidate(IMAGES, SAYS, linear=False, given_u=False, note=why), options)
    task = Task.of(X.astype(np.float32), None, options)
    trial, explained = try_keypoints(task, ImageModel(shape, options.n, {"device": options.device}))
    candidate = trial.candidate
    if trial.fitted is None:
        return _not_selected(candidate, options)
    confirmed = confirm(task, trial)
    latents = judge_latents(confirmed.seeds, confirmed.halves, np.full(len(confirmed.seeds), np.nan))
    refitted = not np.isnan(confirmed.seeds + confirmed.halves).any()
    verdict = verdict_of(latents, Evidence(len(X), confirmed=refitted))
    nowhere = all(latent.verdict == "unstable" for latent in verdict.latents)
    if options.model != IMAGES and refitted and nowhere and seconds_left() > candidate.seconds:
        return None, replace(candidate, note=NOT_REPRODUCIBLE)
    return _result(confirmed, candidate, verdict, explained), candidate


def _not_selected(candidate: Candidate, options: SearchOptions) -> tuple[None, Candidate]:
    """Return the candidate; raise if it was asked for by name."""
    if options.model == IMAGES:
        raise (OutOfTimeError if candidate.note == LATE else FitFailedError)(f"{IMAGES}: {candidate.note}.")
    return None, candidate


def _result(confirmed: Confirmation, candidate: Candidate, verdict: Verdict, explained: str) -> SearchResult:
    """Return the answer. No theorem is behind keypoints, so that latents are reproducible at best, not identified."""
    model = confirmed.fitted.model
    n = model.model_.n_latents_
    things = f"{n // 2} thing{'s' * (n > 2)}"
    if model.model_.groups_ is not None:
        number = f"the horizontal and the vertical position of {things}. The reconstruction needs so many."
        meaning = "That the latents are positions follows from the architecture, which can only move things."
    else:
        number = f"an unmixing of the positions of {things}."
        meaning = "No data can show that the positions keep all that varies in the images."
    reasons = (
        f"Selected model: {IMAGES}, {SAYS}: {explained}. No other model was tried.",
        f"Number of latents: {n}, {number}",
        confirmed.error,
        *verdict.reasons,
        meaning,
    )
    return SearchResult(model, (candidate,), tuple(filter(None, reasons)), verdict, float(confirmed.seeds.mean()))


def try_keypoints(task: Task, model: ImageModel) -> tuple[Trial, str]:
    """Fit an encoder and, if it explains held-out images or was asked for, unmix its code; say what it explains."""
    start, note, fitted, explained = time.monotonic(), "", None, ""
    candidate = Candidate(IMAGES, SAYS, linear=False, given_u=False)
    try:
        train, held = (task.refits.take(rows)[0] for rows in (task.train, task.refits.held))
        turn = seconds_left() / (1 + REFIT_COST * -(-CONFIRMATIONS // at_once(task.options.n_jobs)))  # seconds
        task.say(f"trying {IMAGES}: {SAYS}")
        steps = _affordable_steps(model, train, turn)
        candidate = replace(candidate, steps={"max_steps": steps})
        model.set_params(options={**(model.options or {}), "max_steps": steps}, random_state=task.options.seed)
        with time_limit(LONGEST * turn):
            encoder = model.encoder().fit(train)
        found = explained_by_keypoints(encoder, train, held)
        explained = str(found)
        task.say(f"{IMAGES}: {explained}")
        if found.good or task.options.model == IMAGES:
            model.unmix(encoder, train)
            fitted = Fitted(model, np.asarray(model.transform(held)))
            model = ImageModel(model.image_shape, found.n, model.options)  # refits look for as many latents
        else:
            note = explained
    except OutOfTimeError:
        note = LATE
    except (FitFailedError, DataError) as error:
        note = str(error)
    candidate = replace(candidate, note=note, seconds=time.monotonic() - start)
    return Trial(candidate, model, fitted, np.empty(0)), explained


def _affordable_steps(model: ImageModel, train: FloatArray, turn: float) -> int:
    """Return the training steps that a turn (in seconds) has time for; raise `OutOfTimeError` if these are too few."""

    def part(share: float) -> int:
        return max(10, round(share * STEPS))

    def seconds_of(share: float) -> float:
        start = time.monotonic()
        model.encoder(max_steps=part(share)).fit(train)
        return time.monotonic() - start

    with time_limit(turn):
        share = affordable_share(seconds_of, turn, caution=CAUTION)
    if share < LEAST_STEPS:
        raise OutOfTimeError(LATE)
    return part(share)
