r"""PDGMM: nonlinear recovery of a potentially degenerate Gaussian mixture by exact maximum likelihood.

Model (Xu et al. 2026): latents z ~ Σ_j w_j N(M_j μ, M_j C M_j), of which only those in the mask M_j are active, seen
through an invertible piecewise affine map. An invertible flow t = f(x) is fitted by

    max_f  E log p_e(f(x)) + log|det df/dx|,

p_e the density of z smoothed at a width e that falls during training:

    A   p_e(t) = Π_i [p_i N(t_i; μ_i, 1) + (1 - p_i) N(t_i; 0, e²)]           no masks needed: each latent separately
    -   t = z B + c + noise, an affine mixture                                the masks, and the mixing that A leaves
    B   p_e(t) = Σ_j w_j N(t; M_j μ, M_j C M_j + e² I)                        the exact mixture

The flow starts at a linear unmixing of one of two kinds: with free inactive values (`SparseUnmixing`), or with inactive
values at the mean, which is better where a strong nonlinearity folds the data. All restarts of both kinds go through
stage A in one batch, each from the unmixing of a different half of the rows; held-out likelihood then selects the kind.
Latents that are clearly skewed while active stay at A, with slabs of any shape. Agreement of the restarts on held-out
rows is the evidence, without ground truth, that they found the latents. Where they disagree, a mixture of full rank is
tried, under which no latent is inactive, and then an extended training.
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from identifiable.algorithms.coordinates import Coordinates
from identifiable.algorithms.hyperplanes import centred_rows, refine, unmix
from identifiable.algorithms.spike_slab import needs_repair, pattern_mixture
from identifiable.arrays import Array, FloatArray
from identifiable.data.simulator import Simulator
from identifiable.distributions.mixture import Mixture
from identifiable.estimators.pdgmm.batch import FlowBatch, Trained
from identifiable.estimators.pdgmm.certificate import Fit, certificate_of, prefer_full_rank, without_spurious
from identifiable.estimators.pdgmm.goodness import Goodness
from identifiable.estimators.pdgmm.stages import (
    FEW,
    SMALL,
    FlowModel,
    Start,
    Training,
    in_parallel,
    start_of,
    steps_for,
)
from identifiable.estimators.sparse_unmixing import Masks
from identifiable.estimators.trained import Split, TrainedModel
from identifiable.flows import SmoothLeakyFlow
from identifiable.nets import as_tensor, select_member, select_members
from identifiable.priors.masked import FullGaussians, MaskedGaussians
from identifiable.theory import Certificate
from identifiable.theory.upsets import UpSets
from identifiable.training import History, Stage, run

LEAST_SHARE = 0.01  # of the rows in which a latent must be active to count as used


@dataclass(eq=False, repr=False)
class PDGMM(TrainedModel):
    """Recover the latents of a nonlinear mixture of which only some are active in each row.

    Parameters
    ----------
    n_latents : int or None, default=None. Number of latents n. None uses the rank of X. X with more columns, in
        their own units, is projected to n coordinates that do not fold it, or to its first n principal components.
        Latents that are never active, or beyond the rank of X, are listed in `unused_`.
    n_restarts : int, default=2. Flows of each kind of start, all trained in one batch. The agreement of those of the
        better kind is `stability_`; the one that agrees most with the others is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    depth : int, default=24. Layers of the flow.
    max_steps : int or None, default=None. Steps of a short fit. None uses 1500 for 10 latents, fewer in proportion for
        fewer latents, and more for more. Where the mixing bends strongly, stage B takes up to 2.8 times as many. An
        extended fit takes 2.5 times as many in its first stage.
    batch_size : int, default=512.
    learning_rate : float, default=0.01. Peak rate of Adam, with warm-up and cosine decay in each stage.
    extended : bool, default=True. Train more where the restarts disagree: under a mixture of full rank, then longer.

    Attributes
    ----------
    module_ : `FlowModel`. The kept flow and its mixture.
    coordinates_ : `Coordinates` in which the flow works.
    mixture_ : `Mixture` of the latents: weights, means, covariances, most frequent component first.
    masks_ : `Masks`. The patterns of activity of its components.
    smoothing_ : width e of the mixture in `score`, in sd of an active latent.
    offset_ : (d,) the point x at which all latents are inactive.
    blocks_ : groups of latents that are always active together.
    unused_ : latents that are hardly ever active.
    trained_extended_ : whether the extended training was kept.
    full_rank_ : whether no latent is ever inactive, because a mixture of full rank is likelier. The latents are then
        known up to an affine map, and the agreement of restarts is measured up to one.
    skewed_ : whether active latents are too skewed to be Gaussian. They are then found with slabs of any shape, each
        latent separately, and `mixture_` has their moments only.
    restart_scores_ : (R,) held-out log-likelihood per row, up to a constant.
    kept_ : the restart that was kept.
    history_ : `History` of the last stage.
    stability_, fit_status_ : agreement between restarts; "unstable" means not recovered.
    goodness_ : `Goodness`. Differences between held-out rows and samples of the model.
    up_sets_ : `UpSets`. Which latents two restarts agree to be clearly active in the training rows, counted; None after
        a single restart. All that the certificate needs of these rows.
    certificate_ : `Certificate`. What is identified, and why.

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
    mixing, AISTATS 2026. The method is ours.
    """

    n_latents: int | None = None  # type: ignore[assignment]
    _: KW_ONLY
    n_restarts: int = 2
    depth: int = 24
    max_steps: int | None = None
    batch_size: int = 512
    learning_rate: float = 0.01
    extended: bool = True

    keep = "agreement"
    takes_simulator = True

    module_: FlowModel[Any] = field(init=False)
    coordinates_: Coordinates = field(init=False)
    unit_: float = field(init=False)
    rest_map_: Array = field(init=False)
    rest_scale_: Array = field(init=False)
    n_masks_: int = field(init=False)
    trained_extended_: bool = field(init=False)
    full_rank_: bool = field(init=False)
    skewed_: bool = field(init=False)
    mixture_: Mixture = field(init=False)
    masks_: Masks = field(init=False)
    offset_: Array = field(init=False)
    blocks_: tuple[tuple[int, ...], ...] = field(init=False)
    unused_: tuple[int, ...] = field(init=False)
    goodness_: Goodness | None = field(default=None, init=False)
    up_sets_: UpSets | None = field(default=None, init=False)

    @property
    def _n_features_out(self) -> int:
        return self.coordinates_.n if self.n_latents is None else self.n_latents

    @property
    def _one_thread(self) -> bool:
        return self.coordinates_.n <= SMALL

    def fit_many(self, sets: Sequence[ArrayLike | Simulator]) -> "list[PDGMM]":
        """Fit a copy of this estimator to each of many data sets, and return the copies in their order.

        Data sets with the same numbers of rows, columns and latents are trained in one batch, which uses a GPU fully
        and does not pay on a CPU. A fit is then reproducible only together with the others.
        """
        models: list[PDGMM] = [clone(self) for _ in sets]
        self._check_parameters()
        splits = [model._split(X, None) for model, X in zip(models, sets, strict=True)]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for i, (model, data) in enumerate(zip(models, splits, strict=True)):
            model._set_inputs(data)
            single = i if data.source is not None else -1
            groups.setdefault((data.X.shape, len(data.train), model.coordinates_.n, single), []).append(i)
        starts = in_parallel(_linear_starts, list(zip(models, splits, strict=True)))
        for group in groups.values():
            batch = self._batch([models[i] for i in group], [splits[i] for i in group], [starts[i] for i in group])
            for i, trained in zip(group, run(models[group[0]]._train(batch), self.verbose), strict=True):
                models[i]._trained, models[i].history_ = trained, models[group[0]].history_
                models[i]._keep_restart(splits[i])
                models[i]._set_results(splits[i])
        return models

    def _stages(self, data: Split) -> Generator[Stage, History, FlowModel[Any]]:
        (self._trained,) = yield from self._train(self._batch([self], [data], [_linear_starts(self, data)]))
        return select_members(self._trained.model, self._trained.members)

    def _train(self, batch: FlowBatch) -> Generator[Stage, History, list[Trained]]:
        """Train the flows of a batch; set the history of the last stage."""
        stages = batch.fit(extended=self.extended)
        try:
            stage = next(stages)
            while True:
                self.history_ = yield stage
                stage = stages.send(self.history_)
        except StopIteration as end:
            return end.value

    def _batch(self, models: "Sequence[PDGMM]", splits: Sequence[Split], starts: Sequence[Start]) -> FlowBatch:
        """Return the batch that fits models to data of one shape."""
        data, device = splits[0], splits[0].device

        def stacked(rows: Sequence[FloatArray]) -> Tensor:
            return as_tensor(np.stack([model._scaled(X) for model, X in zip(models, rows, strict=True)]), device)

        return FlowBatch(
            rows=stacked([_shuffled(split) for split in splits]),
            held=stacked([split.X_held for split in splits]),
            start=Start.join(starts),
            stream=None if data.source is None else models[0]._stream(data.source, device),
            R=self.n_restarts,
            max_steps=self.max_steps or steps_for(models[0].coordinates_.n),
            how=Training(self.depth, self.batch_size, self.learning_rate),
            seed=data.seed,
        )

    def _set_inputs(self, data: Split) -> None:
        """Set as many coordinates as latents: principal components, or, where there are more, some that do not fold.

        In the second case columns keep their units, as in every PCA: differences of rows select the coordinates.
        """
        full = Coordinates.fit(data.X_train)
        n = full.rank if self.n_latents is None else min(self.n_latents, full.rank)
        if n < full.rank:
            full = Coordinates.fit(data.X_train, standardise=False).unfolded(data.X_train, n)
        self.coordinates_, self.n_masks_ = replace(full, n=n), 0
        self.unit_ = float(np.sqrt(full.variances[:n].mean()))

    def _keep_restart(self, data: Split) -> None:
        trained = self._trained
        del self._trained
        self.trained_extended_, self.full_rank_, self.skewed_ = trained.extended, trained.full_rank, trained.skewed
        self._compare_restarts(trained.latents, trained.stability)
        self.kept_, self.restart_scores_ = trained.kept, trained.likelihoods.astype(np.float64)
        self._restarts = select_members(trained.model, trained.members)
        self.module_ = select_member(self._restarts, self.kept_).eval()
        self.n_masks_ = self.module_.prior.masks.shape[1]

    def _latents(self, X: FloatArray, u: Any = None, module: Any = None) -> FloatArray:
        """Return the latents, with those beyond the rank of X, which are always inactive."""
        z = super()._latents(X, u, module)
        return np.pad(z, ((0, 0), (0, 0), (0, self._n_features_out - z.shape[-1])))

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the observations (N, d) of latents Z: exact where the columns have the rank of the latents.

        Directions of x beyond as many principal components as latents are predicted from the latents (`rest_map_`).
        """
        Z = self._check_latents(Z)
        t = np.ascontiguousarray(Z[:, : self.coordinates_.n])
        y = self._apply(self._decode, t)[0] * self.unit_
        return self.coordinates_.lift(y, _both_sides(t) @ self.rest_map_).astype(Z.dtype)

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return the log-density (N,) of each row in nats, the mixture smoothed at `smoothing_`, in the data's units.

        Directions beyond the latents are Gaussian around their prediction. Columns that are a linear function of the
        others carry no density and are left out.
        """
        X, c = self._check_new_data(X), self.coordinates_
        inside = self._apply(self._log_prob, self._inputs(X))[0].astype(np.float64)
        t = super()._latents(X)[0]
        outside = norm.logpdf(c.project(X)[1] - _both_sides(t) @ self.rest_map_, scale=self.rest_scale_).sum(1)
        return inside + outside - c.n * math.log(self.unit_) - c.log_volume

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw rows (n_samples, d) of the fitted mixture through the inverse flow."""
        generator = self._generator(n_samples, random_state)
        return self.inverse_transform(self.mixture_.sample(n_samples, generator)[0])

    def active(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Return which latents are active in each row, (N, n): the mask of its most probable component."""
        return self._masks()[self._most_probable(self._check_new_data(X))]

    def active_probability(self, X: ArrayLike) -> FloatArray:
        """Return the probability that each latent is active in each row, (N, n): of all components in which it is."""
        X = self._check_new_data(X)
        shares = self._apply(lambda f, x: torch.softmax(f.prior.components(f.latents(x)), -1), self._inputs(X))[0]
        return np.asarray(shares @ self._masks()).astype(X.dtype)

    @property
    def smoothing_(self) -> float:
        """Width e of the smoothed mixture, in standard deviations of an active latent."""
        check_is_fitted(self)
        return float(self.module_.width)

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, and why."""
        check_is_fitted(self)
        return certificate_of(
            Fit(
                stability=self.stability_,
                mixture=self.mixture_,
                patterns=self.masks_.patterns,
                used=self._used,
                evidence=self.up_sets_,
                goodness=self.goodness_,
                full_rank=self.full_rank_,
                skewed=self.skewed_,
                projected=self.coordinates_.rank > self.coordinates_.n,
            )
        )

    # -- results -------------------------------------------------------------------

    def _set_results(self, data: Split) -> None:
        """Set the mixture of the kept restart: its masks with the moments of their rows."""
        X = data.X_train
        z, component = self._latents(X)[0].astype(np.float64), self._most_probable(X)
        order = np.argsort(-np.bincount(component, minlength=self.n_masks_), kind="stable")
        masks = self._masks()
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
        n, residual = self.coordinates_.n, self.coordinates_.project(X)[1]
        sides = _both_sides(z[:, :n])
        self.rest_map_ = np.linalg.lstsq(sides, residual, rcond=None)[0]
        self.rest_scale_ = np.maximum((residual - sides @ self.rest_map_).std(0), 1e-12)
        self.offset_ = self.inverse_transform(np.zeros((1, self._n_features_out)))[0]
        self._set_evidence(data, z)

    def _set_evidence(self, data: Split, z: Array) -> None:
        """Set what the certificate needs, given the latents z of the training rows.

        The up-sets are those of the kept restart and the one that agrees with it most.
        """
        held, used = self._latents(data.X_held)[0].astype(np.float64), list(self._used)
        rng = np.random.default_rng(data.seed)
        self.goodness_ = Goodness.of(held, self.mixture_, self.smoothing_, rng)
        self.up_sets_ = None
        if self.n_restarts == 1 or not used:
            return
        agreement = np.where(np.arange(self.n_restarts) == self.kept_, -np.inf, self.stability_.pairwise[self.kept_])
        module = select_member(self._restarts, int(agreement.argmax())).eval()
        other = self._latents(data.X_train.astype(np.float32), module=module)[0]
        if np.isfinite(other).all():
            found = UpSets.of(z[:, used], other[:, used], self.smoothing_)
            widths, square = (self.smoothing_, found.tau), len(used) == self._n_features_out
            trusted = square and prefer_full_rank(self.mixture_, self.masks_.patterns, held, widths, rng)
            self.up_sets_ = without_spurious(found, full_rank=trusted)

    @property
    def _used(self) -> tuple[int, ...]:
        """The latents that are active in some rows."""
        return tuple(i for i in range(self._n_features_out) if i not in self.unused_)

    def _most_probable(self, X: FloatArray) -> NDArray[np.int64]:
        """Return the most probable component (N,) of checked rows."""

        def component(module: FlowModel[Any], x: Tensor) -> Tensor:
            return module.prior.components(module.latents(x)).argmax(-1)

        return self._apply(component, self._inputs(X))[0]

    def _masks(self) -> NDArray[np.bool_]:
        """Return the masks (J, n_latents) of the components of the kept restart."""
        masks = self.module_.prior.masks[0].cpu().numpy() > 0.5
        return np.pad(masks, ((0, 0), (0, self._n_features_out - masks.shape[1])))

    # -- rows and modules -----------------------------------------------------------

    def _scaled(self, X: FloatArray) -> Array:
        return self.coordinates_.project(X)[0] / self.unit_

    def _inputs(self, X: FloatArray) -> FloatArray:
        return self._scaled(X).astype(X.dtype)

    def _observed(self, rows: FloatArray, dtype: Any) -> FloatArray:
        return self.coordinates_.lift(rows * self.unit_).astype(dtype)

    def _stream(self, source: Simulator, device: torch.device) -> Callable[[int, torch.Generator], Sequence[Tensor]]:
        """Return a function (rows, rng) -> fresh rows in the coordinates of the flow."""
        draw, c = source.stream(device), self.coordinates_
        mean, scale, vectors = (
            torch.tensor(v, dtype=torch.float32, device=device) for v in (c.mean, c.scale, c.basis[:, : c.n])
        )
        return lambda rows, rng: (((draw(rows, rng)[0] - mean) / scale) @ vectors / self.unit_,)

    def _build(self, members: int, rng: torch.Generator | None = None) -> FlowModel[Any]:
        n = self.coordinates_.n
        flow = SmoothLeakyFlow(members, n, self.depth, inner_bias=not self.trained_extended_, rng=rng)
        masks, weights = torch.ones(members, self.n_masks_, n), torch.zeros(members, self.n_masks_)
        prior: MaskedGaussians | FullGaussians = MaskedGaussians(masks, weights, torch.zeros(members, 1, n))
        if self.full_rank_:
            prior = FullGaussians(weights, torch.zeros_like(masks), torch.eye(n).repeat(members, self.n_masks_, 1, 1))
        return FlowModel(flow, prior, torch.ones(members, 1))

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        self._require_integers(depth=2, batch_size=2)
        self._require_integers(max_steps=2, optional=True)
        self._require_positive("learning_rate")
        self._require_bools("extended")


def _shuffled(data: Split) -> FloatArray:
    """Return the training rows in random order: the first ones serve as a sample."""
    return data.X[np.random.default_rng(data.seed).permutation(data.train)]


def _linear_starts(model: PDGMM, data: Split) -> Start:
    """Return the linear starts of all restarts: those with free inactive values first."""
    y, seed = model.coordinates_.project(_shuffled(data))[0], data.seed
    half, sd = (len(y) + 1) // 2, y.std(0)
    halves = [y]
    halves += [y[np.random.default_rng([seed, r]).permutation(len(y))[:half]] for r in range(1, model.n_restarts)]
    free, centred = zip(
        *in_parallel(_both_kinds, [(h, sd, y[:FEW], seed + r) for r, h in enumerate(halves)]), strict=True
    )
    return start_of(y / model.unit_, [np.c_[W[:, :-1] * model.unit_, W[:, -1]] for W in free + centred])


def _both_kinds(rows: Array, sd: Array, y: Array, seed: int) -> tuple[Array, Array]:
    """Return unmixings (n, n + 1) of rows with free inactive values, and with inactive values at the mean."""
    centred = centred_rows(rows / sd, seed) / np.r_[sd, 1.0]
    return _sparse_rows(rows, y, centred, seed), centred


def _sparse_rows(rows: Array, y: Array, other: Array, seed: int) -> Array:
    """Return a sparse unmixing (n, n + 1) of rows; fitted with noise, if without it is worse on y than another one."""
    own = Coordinates.fit(rows, rows.shape[1], standardise=False)
    white, back = own.project(rows)[0], own.basis.T / own.scale

    def on_rows(W: Array, b: Array) -> Array:
        return np.c_[W @ back, b - W @ back @ own.mean]

    found = unmix(white, seed, noisy=False)
    if needs_repair(y, on_rows(found.W, found.b), other):
        found = refine(found, white, seed)
    return on_rows(found.W, found.b)


def _both_sides(z: NDArray[Any]) -> NDArray[Any]:
    """Return (z⁺, z⁻, 1): functions that bend where a latent is inactive are linear in these."""
    return np.c_[np.maximum(z, 0), np.minimum(z, 0), np.ones(len(z))]
