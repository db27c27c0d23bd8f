r"""PDGMM: nonlinear recovery of a potentially degenerate Gaussian mixture by exact maximum likelihood.

Model (Xu et al. 2026): latents z ~ Σ_j w_j N(M_j μ, M_j C M_j), of which only those in the mask M_j are active, seen
through an invertible piecewise affine map. An invertible flow t = f(x) is fitted by

    max_f  E log p_e(f(x)) + log|det df/dx|,

p_e the density of z smoothed at a width e that falls during training:

    A   p_e(t) = Π_i [p_i N(t_i; μ_i, 1) + (1 - p_i) N(t_i; 0, e²)]           no masks needed: every latent for itself
    -   t = z B + c + noise, an affine mixture                                the masks, and what A left mixed
    B   p_e(t) = Σ_j w_j N(t; M_j μ, M_j C M_j + e² I)                        the exact mixture

The flow starts at a linear unmixing, of two kinds: with free rest values (`SparseUnmixing`), and with the rest values
at the mean, which is better where a strong nonlinearity folds the data. All restarts of both kinds go through stage A
in one batch, each from the unmixing of another half of the rows; held-out likelihood then chooses the kind. Latents
that are clearly skewed while active are left at A, with slabs of any shape. That the restarts agree on held-out rows at
the end is the sign, and the only one that needs no truth, that they found the latents; where they do not, a mixture of
full rank is tried, under which no latent rests, and they are trained again, longer.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from identifiable.algorithms.hyperplanes.search import centred_rows
from identifiable.algorithms.spike_slab import needs_repair
from identifiable.arrays import Array, FloatArray, hold_out, is_integer, is_real
from identifiable.data.simulator import Simulator
from identifiable.distributions.mixture import Mixture
from identifiable.errors import RecoveryWarning
from identifiable.estimators.base import LatentModel, resolve_device
from identifiable.estimators.pdgmm.batch import FlowBatch, Trained
from identifiable.estimators.pdgmm.certificate import certificate_of
from identifiable.estimators.pdgmm.training import (
    FEW,
    FlowModel,
    Start,
    Training,
    in_parallel,
    start_of,
    steps_for,
)
from identifiable.estimators.sparse_unmixing import Masks, Reduction, SparseUnmixing, pattern_mixture
from identifiable.flows import SmoothLeakyFlow
from identifiable.nets import in_precision_of, select_member
from identifiable.priors.masked import FullGaussians, MaskedGaussians
from identifiable.theory import Certificate
from identifiable.training import History

LEAST_SHARE = 0.01  # of the rows in which a latent must be active to be called used
PILOT = 20_000  # rows of a simulator that units, starts and components are read off
BLOCK = 4096  # rows that go through the flow at once outside training


class PDGMM(LatentModel):
    """Recover the latents of a nonlinear mixture of which only some are active in each row.

    Parameters
    ----------
    n_latents : number of latents n; None: the rank of X. The latents of X with more columns are those of its first n
        principal components, columns in their own units. Latents that are never active, or beyond the rank of X, are
        reported in `unused_`.
    n_restarts : flows of each kind of start, all trained together in one batch; the agreement of those of the better
        kind is `stability_`.
    random_state : an integer makes a fit repeatable, bit for bit, on one machine and device.
    device : "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:<number>".
    verbose : 1 shows a progress bar on a terminal, 0 nothing.
    depth : layers of the flow.
    max_steps : of a short fit; None: 4200 for 10 to 20 latents, in proportion fewer for fewer, more for more. A long
        fit takes 2.5 times as many in its first stage.
    batch_size, learning_rate : of Adam; the rate warms up and falls along a cosine.
    extended : whether to go on where the restarts disagree: with a mixture of full rank, and with a longer training.

    Attributes
    ----------
    module_ : the kept flow and its mixture.
    mixture_ : `Mixture` of the latents: weights, means, covariances, most frequent component first.
    masks_ : `Masks`, the patterns of activity of its components.
    smoothing_ : width e of the mixture in `score`, in sd of an active latent.
    offset_ : (d,) the point x at which every latent rests.
    blocks_ : groups of latents that are always active together.
    unused_ : latents that are hardly ever active.
    trained_extended_ : whether the longer training was kept.
    full_rank_ : whether no latent rests: a mixture of full rank is likelier. The latents are then known up to an
        affine map, and so is the agreement of restarts measured.
    skewed_ : whether active latents are too skewed to be Gaussian: they were then found with slabs of any shape, each
        latent for itself, and `mixture_` has their moments only.
    history_ : `History` of the last stage.
    stability_, fit_status_ : agreement between restarts; "unstable" means not recovered.
    certificate_ : `Certificate`: what is identified, and why.

    Examples
    --------
    >>> from identifiable.data import make_pdgmm
    >>> sample = make_pdgmm(2000, n=3, layers=2, random_state=0)
    >>> model = PDGMM(3, n_restarts=2, max_steps=200, extended=False, random_state=0, verbose=0).fit(sample.x)
    >>> model.transform(sample.x).shape
    (2000, 3)
    >>> bool(abs(model.inverse_transform(model.transform(sample.x)) - sample.x).max() < 1e-6)
    True

    References
    ----------
    Xu, Lachapelle & Magliacane, Identifiability of potentially degenerate Gaussian mixture models with piecewise affine
    mixing, AISTATS 2026. The method is this library's own.
    """

    module_: FlowModel[Any]
    history_: History
    mean_: Array
    scale_: Array
    vectors_: Array
    unit_: float
    rest_map_: Array
    rest_scale_: Array
    n_used_: int
    n_masks_: int
    trained_extended_: bool
    full_rank_: bool
    skewed_: bool
    mixture_: Mixture
    masks_: Masks
    offset_: Array
    blocks_: tuple[tuple[int, ...], ...]
    unused_: tuple[int, ...]

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        n_restarts: int = 2,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
        depth: int = 24,
        max_steps: int | None = None,
        batch_size: int = 512,
        learning_rate: float = 1e-2,
        extended: bool = True,
    ) -> None:
        self.n_latents = n_latents  # type: ignore[assignment]
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.depth = depth
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.extended = extended

    @property
    def _n_features_out(self) -> int:
        return self.n_used_ if self.n_latents is None else self.n_latents

    def fit(self, X: ArrayLike | Simulator, y: Any = None) -> Self:
        """Find the latents of X (N, d), or of a `Simulator`, from which every step draws fresh rows. y is ignored."""
        job = self._prepare(X)
        _fit_together([self], [job], [_starts(self, job)])
        return self

    def fit_many(self, sets: Sequence[ArrayLike | Simulator]) -> "list[PDGMM]":
        """Fit a copy of this estimator to each of many data sets, and return the copies in their order.

        Data sets with the same numbers of rows, columns and latents are trained in one batch, which is what a GPU wants
        and a CPU does not gain from. A fit is then repeatable together with the others only.
        """
        models: list[PDGMM] = [clone(self) for _ in sets]
        jobs = [model._prepare(X) for model, X in zip(models, sets, strict=True)]
        alike: dict[tuple[Any, ...], list[int]] = {}
        for i, (model, job) in enumerate(zip(models, jobs, strict=True)):
            own = i if job.source is not None else -1
            alike.setdefault((*job.y.shape, len(job.held), model.n_used_, own), []).append(i)
        starts = in_parallel(_starts, list(zip(models, jobs, strict=True)))
        for group in alike.values():
            _fit_together([models[i] for i in group], [jobs[i] for i in group], [starts[i] for i in group])
        return models

    def _prepare(self, X: ArrayLike | Simulator) -> "_Job":
        """Check parameters and data, and set the coordinates."""
        self._check_parameters()
        seed = self._seed()
        source = X if isinstance(X, Simulator) else None
        given: Any = X if source is None else source.sample(PILOT, seed).x
        X = self._check_training_data(given)
        train, held = hold_out(len(X), seed)
        train = np.random.default_rng(seed).permutation(train)
        self._reduce(X[train])
        return _Job(X[train], self._project(X[train]), self._project(X[held]), seed, source)

    def _linear_starts(self, X: FloatArray, y: Array, seed: int) -> Start:
        """Return the linear starts of all restarts: those with free rest values first."""
        half, sd = (len(X) + 1) // 2, y.std(0)
        halves = [np.arange(len(X))]
        halves += [np.random.default_rng([seed, r]).permutation(len(X))[:half] for r in range(1, self.n_restarts)]
        centred = [centred_rows(y[rows] / sd, seed + r) / np.r_[sd, 1.0] for r, rows in enumerate(halves)]
        free = [self._sparse(X[rows], y[:FEW], centred[r], seed + r) for r, rows in enumerate(halves)]
        return start_of(y / self.unit_, [np.c_[W[:, :-1] * self.unit_, W[:, -1]] for W in free + centred])

    def _sparse(self, X: FloatArray, y: Array, other: Array, seed: int) -> Array:
        """Return the rows (n, n + 1) of a sparse unmixing of X, on reduced rows; with noise, if it goes wrong without.

        Wrong beside another unmixing of reduced rows y.
        """
        linear = SparseUnmixing(self.n_used_, random_state=seed, verbose=0, device="cpu", noisy=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoveryWarning)
            search = linear._search(X)
            linear._finish(*search)
            if needs_repair(y, self._on_reduced_rows(linear), other):
                linear.set_params(noisy=True)._finish(*search)
        return self._on_reduced_rows(linear)

    def _on_reduced_rows(self, linear: SparseUnmixing) -> Array:
        """Return the map of an unmixing of X as rows (n, n + 1) on reduced rows."""
        n = self.n_used_
        W = linear.components_[:n] @ (self.vectors_[:, :n] * self.scale_[:, None])
        return np.c_[W, linear.components_[:n] @ self.mean_ - linear.offset_[:n]]

    def _keep(self, trained: Trained, X: FloatArray) -> None:
        """Take the restart to keep, and set what is read off it."""
        self.trained_extended_, self.history_ = trained.extended, trained.history
        self.full_rank_, self.skewed_ = trained.full_rank, trained.skewed
        self._compare_restarts(trained.latents, trained.stability)
        self.module_ = select_member(trained.model, trained.members[trained.kept])
        self.n_masks_ = self.module_.prior.masks.shape[1]
        self._set_mixture(X)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n_latents), zero where they rest, with unit variance while active."""
        return self._latents(self._check_new_data(X))

    @torch.no_grad()
    def _latents(self, X: FloatArray) -> FloatArray:
        module, device = self._module_for(X)
        blocks = [module.flow(self._rows(self._project(x), device, x.dtype))[0][0] for x in _blocks(X)]
        return self._padded(torch.cat(blocks).cpu().numpy())

    @torch.no_grad()
    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the observations (N, d) whose latents are Z: exactly, where the columns have the rank of the latents.

        Directions of x beyond as many principal components as latents are predicted from the latents (`rest_map_`).
        """
        Z = self._check_latents(Z)
        module, device = self._module_for(Z)
        t = np.ascontiguousarray(Z[:, : self.n_used_])
        blocks = [module.flow.inverse(torch.as_tensor(block, device=device)[None])[0] for block in _blocks(t)]
        y = np.c_[torch.cat(blocks).cpu().numpy() * self.unit_, _both_sides(t) @ self.rest_map_]
        return ((y @ self.vectors_.T) * self.scale_ + self.mean_).astype(Z.dtype)

    @torch.no_grad()
    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return the log-density (N,) of each row in nats, the mixture smoothed at `smoothing_`, in the data's units.

        Directions beyond the latents are Gaussian around their prediction. Columns that are a linear function of the
        others carry no density and are left out.
        """
        X = self._check_new_data(X)
        module, device = self._module_for(X)
        found = [module(self._rows(self._project(x), device, x.dtype)) for x in _blocks(X)]
        value: FloatArray = torch.cat([v[0] for _, v in found]).cpu().numpy().astype(np.float64)
        t = torch.cat([t[0] for t, _ in found]).cpu().numpy()
        value += norm.logpdf(self._rest(X) - _both_sides(t) @ self.rest_map_, scale=self.rest_scale_).sum(1)
        share = self.vectors_.shape[1] / len(self.scale_)
        value -= self.n_used_ * math.log(self.unit_) + share * float(np.log(self.scale_).sum())
        return value

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean log-density of the rows of X (see `score_samples`); higher is better. y is ignored."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw rows (n_samples, d) of the fitted mixture, seen through the inverse flow."""
        generator = check_random_state(random_state)
        mixture = self.mixture_
        component = generator.choice(len(mixture.weights), size=n_samples, p=mixture.weights)
        z = np.zeros((n_samples, self._n_features_out))
        for j in np.unique(component):
            own = component == j
            values, vectors = np.linalg.eigh(mixture.covariances[j])
            noise = generator.standard_normal((int(own.sum()), len(values)))
            z[own] = mixture.means[j] + noise * np.sqrt(np.maximum(values, 0)) @ vectors.T
        return self.inverse_transform(z)

    def active(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Return which latents are active in each row, (N, n): the mask of its most probable component."""
        _, masks = self._most_probable(self._latents(self._check_new_data(X)))
        return self._padded(masks.astype(np.float64)) > 0.5

    @property
    def smoothing_(self) -> float:
        """Width e of the smoothed mixture, in standard deviations of an active latent."""
        check_is_fitted(self)
        return float(self.module_.width)

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, and why."""
        check_is_fitted(self)
        square = self.vectors_.shape[1] == self.n_used_  # else a projection of x, which may be blind to some latents
        return certificate_of(
            self.stability_,
            self.mixture_,
            self.masks_.patterns,
            full_rank=self.full_rank_,
            skewed=self.skewed_,
            injective=True if square else None,
        )

    # -- what the fit leaves ------------------------------------------------------

    def _set_mixture(self, X: FloatArray) -> None:
        """Read the mixture off the kept member: its masks with the moments of the rows that are theirs."""
        latents = self._latents(X)
        z, (component, _) = np.asarray(latents, dtype=np.float64), self._most_probable(latents)
        counts = np.bincount(component, minlength=self.n_masks_)
        masks = self._padded(self.module_.prior.masks[0].cpu().numpy()) > 0.5
        order = np.argsort(-counts, kind="stable")
        members = [np.flatnonzero(component == j) for j in order]
        self.mixture_, frequent = pattern_mixture(z, masks[order], members)
        masks, weights = masks[order][frequent], self.mixture_.weights
        if self.full_rank_:
            masks, weights = masks[:1], np.ones(1)
        self.masks_ = Masks(masks, weights)
        share = weights @ masks
        self.unused_ = tuple(int(i) for i in np.flatnonzero(share < LEAST_SHARE))
        columns: dict[bytes, list[int]] = {}
        for i in np.flatnonzero(share >= LEAST_SHARE):
            columns.setdefault(masks[:, i].tobytes(), []).append(int(i))
        self.blocks_ = tuple(tuple(block) for block in columns.values() if len(block) > 1)
        rest, sides = self._rest(X), _both_sides(z[:, : self.n_used_])
        self.rest_map_ = np.linalg.lstsq(sides, rest, rcond=None)[0]
        self.rest_scale_ = np.maximum((rest - sides @ self.rest_map_).std(0), 1e-12)
        self.offset_ = np.asarray(self.inverse_transform(np.zeros((1, self._n_features_out))))[0]

    @torch.no_grad()
    def _most_probable(self, z: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the most probable component (N,) of each row of latents, and its mask (N, n_used_)."""
        module, device = self._module_for(z)
        blocks = [torch.as_tensor(t, device=device) for t in _blocks(np.ascontiguousarray(z[:, : self.n_used_]))]
        component = np.concatenate([module.prior.components(t[None])[0].argmax(-1).cpu().numpy() for t in blocks])
        return component, module.prior.masks[0].cpu().numpy()[component] > 0.5

    def _padded(self, z: NDArray[Any]) -> NDArray[Any]:
        """Add the latents asked for beyond the rank of X, which are always at rest."""
        return np.pad(z, ((0, 0), (0, self._n_features_out - z.shape[1])))

    # -- coordinates ----------------------------------------------------------------

    def _reduce(self, X: FloatArray) -> None:
        """Set the principal components of the rows, of which as many as latents go through the flow.

        Where some are left out the columns keep their units, as in every PCA: it is their variance that chooses.
        """
        reduction = Reduction.of(X, None)
        self.n_used_ = reduction.n if self.n_latents is None else min(self.n_latents, reduction.n)
        if self.n_used_ < reduction.n:
            reduction = Reduction.of(X, None, scaled=False)
        self.mean_, self.scale_ = reduction.mean, reduction.scale
        self.vectors_ = reduction.vectors[:, : reduction.n].copy()
        self.n_masks_ = 0
        self.unit_ = float(np.sqrt(reduction.variances[: self.n_used_].mean()))

    def _project(self, X: FloatArray) -> Array:
        """Return the components (N, n) that go through the flow."""
        return ((X - self.mean_) / self.scale_) @ self.vectors_[:, : self.n_used_]

    def _rest(self, X: FloatArray) -> Array:
        """Return the others (N, rank - n)."""
        return ((X - self.mean_) / self.scale_) @ self.vectors_[:, self.n_used_ :]

    def _stream(self, source: Simulator, device: torch.device) -> Any:
        """Return a function (rows, rng) -> fresh rows in the coordinates of the flow."""
        draw = source.stream(device)
        mean, scale, vectors = (
            torch.tensor(v, dtype=torch.float32, device=device)
            for v in (self.mean_, self.scale_, self.vectors_[:, : self.n_used_])
        )
        return lambda rows, rng: (((draw(rows, rng)[0] - mean) / scale) @ vectors / self.unit_,)

    def _rows(self, y: Array, device: torch.device, dtype: Any = np.float32) -> Tensor:
        """Return y / unit as a tensor."""
        return torch.as_tensor((y / self.unit_).astype(dtype), device=device)

    def _build(self, members: int, rng: torch.Generator | None = None) -> FlowModel[Any]:
        n = self.n_used_
        flow = SmoothLeakyFlow(members, n, self.depth, inner_bias=not self.trained_extended_, rng=rng)
        masks, weights = torch.ones(members, self.n_masks_, n), torch.zeros(members, self.n_masks_)
        prior: MaskedGaussians | FullGaussians = MaskedGaussians(masks, weights, torch.zeros(members, 1, n))
        if self.full_rank_:
            prior = FullGaussians(weights, torch.zeros_like(masks), torch.eye(n).repeat(members, self.n_masks_, 1, 1))
        return FlowModel(flow, prior, torch.ones(members, 1))

    def _module_for(self, rows: FloatArray) -> tuple[FlowModel[Any], torch.device]:
        """Return the fitted model in the precision of the rows: float64 in, float64 all the way."""
        module = in_precision_of(self.module_, rows)
        return module, module.width.device

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        self._require("depth", is_integer(self.depth, 2), "an integer >= 2")
        self._require("max_steps", self.max_steps is None or is_integer(self.max_steps, 2), "None or an integer >= 2")
        self._require("batch_size", is_integer(self.batch_size, 2), "an integer >= 2")
        self._require("learning_rate", is_real(self.learning_rate, 0), "a number > 0")
        self._require("extended", isinstance(self.extended, bool), "True or False")


@dataclass(frozen=True)
class _Job:
    """Training rows and their coordinates y (N, n), those of held-out rows, a seed, and the source of endless rows."""

    X: FloatArray
    y: Array
    held: Array
    seed: int
    source: Simulator | None


def _starts(model: PDGMM, job: _Job) -> Start:
    return model._linear_starts(job.X, job.y, job.seed)


def _fit_together(models: Sequence[PDGMM], jobs: Sequence[_Job], starts: Sequence[Start]) -> None:
    """Fit models to data of one shape in one batch."""
    first, job = models[0], jobs[0]
    device = resolve_device(first.device)

    def stacked(arrays: Sequence[Array]) -> Tensor:
        units = [(y / model.unit_).astype(np.float32) for model, y in zip(models, arrays, strict=True)]
        return torch.as_tensor(np.stack(units), device=device)

    batch = FlowBatch(
        rows=stacked([job.y for job in jobs]),
        held=stacked([job.held for job in jobs]),
        start=Start.join(starts),
        stream=None if job.source is None else first._stream(job.source, device),
        restarts=first.n_restarts,
        max_steps=first.max_steps or steps_for(first.n_used_),
        how=Training(first.depth, first.batch_size, first.learning_rate, first.verbose),
        seed=job.seed,
    )
    for model, job, trained in zip(models, jobs, batch.fit(go_on=first.extended), strict=True):
        model._keep(trained, job.X)


def _both_sides(z: NDArray[Any]) -> NDArray[Any]:
    """Return (z⁺, z⁻, 1): what bends where a latent rests is linear in these."""
    return np.c_[np.maximum(z, 0), np.minimum(z, 0), np.ones(len(z))]


def _blocks(rows: FloatArray) -> list[FloatArray]:
    return [rows[i : i + BLOCK] for i in range(0, len(rows), BLOCK)]
