"""The families of models that `Identify` tries, and a model of a family on principal components."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from scipy.stats import multivariate_normal
from sklearn.base import BaseEstimator
from sklearn.decomposition import FactorAnalysis

from identifiable import estimators
from identifiable.arrays import Array, FloatArray
from identifiable.auto.spectrum import principal_components
from identifiable.errors import FitFailedError
from identifiable.estimators.base import LatentModel
from identifiable.estimators.pdgmm.stages import steps_for

MOST_COLUMNS = 100  # principal components that a wide model is given
VARIANCE_KEPT = 0.95  # by these components: the others vary in few rows only, so their likelihood is unreliable


@dataclass(frozen=True)
class Family:
    """A kind of model.

    Attributes
    ----------
    name, says : of the estimator; the structure that it assumes, in words.
    build : makes one with n latents.
    steps : of its training for n latents, by name of the parameter; None for affine models, which need none.
    wide : whether it is given more columns than latents; the others are given n principal components.
    """

    name: str
    says: str
    build: Callable[..., LatentModel]
    steps: Callable[[int], Mapping[str, int]] | None = None
    wide: bool = False

    @property
    def given_u(self) -> bool:
        """Whether it needs the auxiliary variable u."""
        return bool(getattr(getattr(self.build, "func", self.build), "needs_u", False))

    @property
    def linear(self) -> bool:
        """Whether its mixing is affine; it then needs no training."""
        return self.steps is None


AFFINE, NONLINEAR = "an affine mixture of", "a nonlinear mixture of"
INDEPENDENT = "independent latents, at most one of them Gaussian"
INTERMITTENT, CLUSTERED = "intermittently active latents", "latents in hidden clusters"
GIVEN_U, NOISY = "latents that change with u", "behind many noisy columns"
SHORT_PDGMM = partial(estimators.PDGMM, extended=False)
VADE_FROM_DATA = partial(estimators.VaDE, init="autoencoder")
GMM_STEPS = {"full_covariance_steps": 2000, "max_steps": 1250}
VADE_STEPS = {"pretrain_steps": 1500, "max_steps": 1500}
FAMILIES = (  # the simpler first
    Family("SparseUnmixing", f"{AFFINE} {INTERMITTENT}", estimators.SparseUnmixing),
    Family("LinearICA", f"{AFFINE} {INDEPENDENT}", estimators.LinearICA),
    Family("FactorialUnmixing", f"{AFFINE} {CLUSTERED}", estimators.FactorialUnmixing),
    Family("SegmentUnmixing", f"{AFFINE} {GIVEN_U}", estimators.SegmentUnmixing),
    Family("IFlow", f"{NONLINEAR} {GIVEN_U}", estimators.IFlow, lambda n: {"max_steps": 3000}),
    Family("PDGMM", f"{NONLINEAR} {INTERMITTENT}", SHORT_PDGMM, lambda n: {"max_steps": steps_for(n)}),
    Family("GMMFlow", f"{NONLINEAR} {CLUSTERED}", estimators.GMMFlow, lambda n: GMM_STEPS),
    Family("IVAE", f"few {GIVEN_U} {NOISY}", estimators.IVAE, lambda n: {"max_steps": 2400}, wide=True),
    Family("VaDE", f"few {CLUSTERED} {NOISY}", VADE_FROM_DATA, lambda n: VADE_STEPS, wide=True),
)
NAMES = tuple(family.name for family in FAMILIES)


class ProjectedModel(BaseEstimator):
    """A model of one family, fitted to principal components that are computed from the same rows.

    Parameters
    ----------
    family : Family.
    n_latents : int. Number of latents.
    options : parameters of the estimator, or None.
    random_state : int. Seed of the estimator.

    Attributes
    ----------
    directions_ : (r, w) components of the rows (N, r) that the model is given.
    model_ : the fitted estimator.
    """

    directions_: Array
    model_: Any

    def __init__(
        self, family: Family, n_latents: int, options: Mapping[str, Any] | None = None, random_state: int = 0
    ) -> None:
        self.family = family
        self.n_latents = n_latents
        self.options = options
        self.random_state = random_state

    def with_options(self, options: Mapping[str, Any]) -> "ProjectedModel":
        """Return the same unfitted model with more options."""
        return ProjectedModel(self.family, self.n_latents, {**(self.options or {}), **options}, self.random_state)

    def fit(self, Y: FloatArray, u: Any = None) -> Self:
        """Compute the components of rows Y (N, r), and fit the model to them."""
        self.directions_ = self._components(Y)
        options = {"random_state": self.random_state, "verbose": 0, **(self.options or {})}
        model = self.family.build(self.n_latents, **options)
        try:
            self.model_ = model.fit(*self._inputs(Y, u))
        except (np.linalg.LinAlgError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
            raise FitFailedError(f"a matrix is singular, as extreme values make it ({error})") from error
        return self

    def transform(self, Y: FloatArray) -> FloatArray:
        """Return the latents (N, n) of rows Y (N, r)."""
        return np.asarray(self.model_.transform(Y @ self.directions_))

    def gains(self, train: tuple[Any, ...], held: tuple[Any, ...]) -> Array:
        """Return by how much the model explains each held-out row better than a Gaussian, in nats.

        `train` and `held` are (Y,) or (Y, u). The Gaussian has as many latents and is fitted to the training rows.
        """
        seen, *_ = self._inputs(*train)
        new, *given = self._inputs(*held)
        return np.asarray(self.model_.score_samples(new, *given)) - _gaussian(seen, new, self.n_latents)

    def _inputs(self, Y: FloatArray, u: Any = None) -> tuple[Any, ...]:
        return (Y @ self.directions_, u) if self.family.given_u else (Y @ self.directions_,)

    def _components(self, Y: FloatArray) -> Array:
        if self.n_latents == Y.shape[1]:
            return np.eye(Y.shape[1])
        variances, axes = principal_components(Y)
        if not self.family.wide:
            return axes[:, : self.n_latents]
        enough = int(np.searchsorted(variances.cumsum(), VARIANCE_KEPT * variances.sum())) + 1
        return axes[:, : max(self.n_latents, min(enough, MOST_COLUMNS))]


def _gaussian(train: FloatArray, held: FloatArray, n: int) -> Array:
    """Return the log-density of held-out rows under a Gaussian with n latents, fitted to the training rows."""
    if train.shape[1] > n:
        return FactorAnalysis(n, random_state=0).fit(train).score_samples(held)
    return np.atleast_1d(multivariate_normal(train.mean(0), np.cov(train.T), allow_singular=True).logpdf(held))
