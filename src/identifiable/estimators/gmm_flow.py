r"""GMMFlow: an invertible map whose latents are a Gaussian mixture, by exact maximum likelihood; no u is observed.

Model (Willetts & Paige 2021, App. D; Kivva et al. 2022): x = f(z), z ~ Σ_k w_k N(μ_k, Σ_k). With a flow t = g(x)

    max_g,w,μ,Σ  E log Σ_k w_k N(g(x); μ_k, Σ_k) + log|det dg/dx|.

Training follows the theory. With full covariances the latents are identified up to an affine map (Theorem 3.2a), and
the flow only has to make every component Gaussian. The closed form (Theorem E.1, `diagonal_basis`) then finds the basis
in which the components are diagonal, and training continues with diagonal covariances, which make the latents
independent (Theorem 3.2b). With diagonal covariances from the beginning, as in the paper, the flow converges to wrong
axes: MCC .65 instead of .99 on the paper's data.
"""

from collections.abc import Generator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from identifiable.algorithms.coordinates import Coordinates
from identifiable.algorithms.diagonal_basis import diagonal_basis
from identifiable.algorithms.factorial import (
    ROWS_PER_COMPONENT,
    FactorialMixture,
    em_mixture,
    moments,
    sized_mixture,
)
from identifiable.arrays import Array, FloatArray, is_integer
from identifiable.distributions.mixture import Mixture
from identifiable.estimators.trained import LatentModule, Split, TrainedModel
from identifiable.flows import AutoregressiveFlow, SmoothLeakyFlow, SoftplusFlow
from identifiable.nets import as_tensor
from identifiable.priors.mixture import MixtureBase, split_components
from identifiable.theory import Certificate, Structure, full_rank, structure_of
from identifiable.theory.independence import Correlations, check_fit, check_other_components
from identifiable.training import SETTLED_FROM, Anneal, Batch, History, Plan, Stage, Step

DEPTH = {"leaky": 20, "softplus": 12, "autoregressive": 10}
RATE = {"leaky": 3e-2, "softplus": 2e-2, "autoregressive": 3e-3}
SHARPNESS = 2.0, 100.0  # of the activations of a leaky flow, at the start and at the end of the first stage
MOST_COMPONENTS = 40
MIXTURE_ROWS = 10_000  # rows to which the initial mixtures are fitted
FEW_LATENTS = 5  # latents up to which a quarter of a batch suffices for full covariances, whose entries grow as n²
SMALL = 10  # latents up to which one thread is faster, and a GPU records steps (determinants above cannot be recorded)
FLATTEST = 1e-3  # a direction that varies by less than this share of the largest counts as degenerate

Flow = SmoothLeakyFlow | SoftplusFlow | AutoregressiveFlow


class FlowMixture(LatentModule):
    """A flow and the mixture of its latents; R members."""

    def __init__(self, flow: Flow, base: MixtureBase) -> None:
        super().__init__()
        self.flow, self.base = flow, base

    def forward(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return t (R, B, n) and log w_k p(y, k) (R, B, K) for y (R, B, n) or (B, n)."""
        t, log_det = self.flow(y)
        return t, self.base(t) + log_det[..., None]

    def latents(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return t (R, B, n)."""
        return self.flow(x)[0]

    def observations(self, z: Tensor) -> Tensor:
        """Return the rows whose latents are z."""
        return self.flow.inverse(z)

    def log_prob(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Log p(x), (R, B)."""
        t, log_det = self.flow(x)
        return self.base.log_density(t) + log_det


@dataclass(eq=False, repr=False)
class GMMFlow(TrainedModel):
    """Recover latents that are independent within hidden clusters, by an invertible map with exact likelihood.

    Parameters
    ----------
    n_latents : int or None, default=None. Number of latents. None uses the rank of X. With fewer, x has isotropic
        Gaussian noise outside the principal subspace of the standardised columns.
    n_restarts : int, default=3. Flows trained in one batch. Their agreement is `stability_`; the one with the highest
        held-out likelihood is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    n_components : int or None, default=None. Components of the mixture. It should exceed the number of clusters, which
        may share several components. None uses as many as `FactorialUnmixing` finds, 40 at most. Few rows allow fewer.
    flow : {"leaky", "softplus", "autoregressive"}, default="leaky". "leaky" suits piecewise affine mixings, "softplus"
        smooth ones that saturate; "autoregressive" is the masked autoregressive flow of the paper (zuko).
    depth : int or None, default=None. Layers. None uses 20 leaky, 12 softplus or 10 autoregressive layers.
    full_covariance_steps : int, default=3000. Training steps with full covariances. 0 trains with diagonal covariances
        from the start, as in the paper.
    max_steps : int, default=2000. Training steps with diagonal covariances. 0 keeps full covariances; the latents are
        then known up to an affine map at best.
    batch_size : int, default=2048. Rows per step with diagonal covariances. Steps with full covariances, which only
        have to come near, take a quarter, or more for more than 5 latents.
    learning_rate : float or None, default=None. Peak rate of Adam, with warm-up and cosine decay in each stage. None
        uses 0.03 (leaky), 0.02 (softplus) or 0.003 (autoregressive).

    Attributes
    ----------
    module_ : `FlowMixture`. The kept flow and its mixture.
    coordinates_ : `Coordinates` in which the flow works.
    mixture_ : `Mixture`. The learnt distribution of the latents.
    restart_scores_ : (R,) held-out log-likelihood per row, up to a constant.
    kept_ : the restart that was kept.
    history_ : `History` of the last stage.
    structure_ : `Structure`. The hidden variables behind the components, where they can be determined.
    stability_, fit_status_ : agreement between restarts.
    certificate_ : `Certificate`. What is identified, and why.

    Examples
    --------
    >>> from identifiable.data import make_gmm
    >>> s = make_gmm(2000, n=2, components=4, random_state=0)
    >>> model = GMMFlow(
    ...     n_restarts=2, n_components=6, full_covariance_steps=100, max_steps=100, random_state=0, verbose=0
    ... )
    >>> model.fit(s.x).transform(s.x).shape, model.mixture_.means.shape
    ((2000, 2), (6, 2))
    >>> bool(abs(model.inverse_transform(model.transform(s.x)) - s.x).max() < 1e-6)
    True

    References
    ----------
    Willetts & Paige, I don't need u: identifiable non-linear ICA without side information, 2021, App. D.
    Kivva, Rajendran, Ravikumar & Aragam, Identifiability of deep generative models without auxiliary information,
    NeurIPS 2022. The leaky and softplus flows, the order of training and the initialisation are ours.
    """

    n_latents: int | None = None  # type: ignore[assignment]
    _: KW_ONLY
    n_restarts: int = 3
    n_components: int | None = None
    flow: str = "leaky"
    depth: int | None = None
    full_covariance_steps: int = 3000
    max_steps: int = 2000
    batch_size: int = 2048
    learning_rate: float | None = None

    module_: FlowMixture = field(init=False)
    coordinates_: Coordinates = field(init=False)
    n_components_: int = field(init=False)
    free_mixture_: Mixture = field(init=False)
    n_rows_: int = field(init=False)
    effective_rows_: Array = field(init=False)
    dependence_: Correlations = field(init=False)

    @property
    def _n_features_out(self) -> int:
        return self.coordinates_.n

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable component of each row (N,), as numbered in `mixture_`."""
        return self.predict_proba(X).argmax(1)

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return p(k | x), (N, K)."""
        joint = self._joint(self._check_new_data(X))[:, self.module_.base.order()]
        p = np.exp(joint - joint.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True)

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return log p(x) of each row (N,), in nats and in the units of the data.

        Columns that are a linear function of the others carry no density and are left out.
        """
        X = self._check_new_data(X)
        c, (_, residual) = self.coordinates_, self.coordinates_.project(X)
        inside = self._apply(self._log_prob, self._inputs(X))[0] - np.log(c.sd).sum() - c.log_volume
        return inside - 0.5 * ((residual / c.noise) ** 2 + np.log(2 * np.pi * c.noise**2)).sum(1)

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw rows (n_samples, d)."""
        generator, c = self._generator(n_samples, random_state), self.coordinates_
        z, _ = self.mixture_.sample(n_samples, generator)
        noise = c.noise * generator.standard_normal((n_samples, c.rank - c.n))
        return c.lift(self._apply(self._decode, z)[0] * c.sd, noise)

    @property
    def mixture_(self) -> Mixture:
        """The learnt distribution of the latents."""
        check_is_fitted(self)
        return self.module_.base.mixture()

    @property
    def structure_(self) -> Structure:
        """The hidden variables behind the components, where identifiable (Kivva et al. 2022, Theorem 3.3c)."""
        return structure_of(self.mixture_, estimated=True)

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, and why, given that the mixing is piecewise affine.

        Only a leaky flow is piecewise affine, up to the rounding of its bends; others get no level. The components are
        certified with full covariances, whether or not the model restricts them to be diagonal. The level is "none":
        that another number of components gives the same latents is not shown by one fit; `if_undecided_hold` has the
        level if it does.
        """
        check_is_fitted(self)
        piecewise = True if self.flow == "leaky" else None  # the other flows are smooth
        rows = getattr(self, "effective_rows_", self.n_rows_)
        found = full_rank.certify(self.free_mixture_, injective=piecewise, rows=rows, tolerance=FLATTEST)
        fit = check_fit(getattr(self, "dependence_", None), "component")
        return self._certified(found, fit, check_other_components(len(self.free_mixture_.weights)))

    # -- training -------------------------------------------------------------------

    def _set_inputs(self, data: Split) -> None:
        self.coordinates_ = self._fit_coordinates(data.X_train)

    def _stages(self, data: Split) -> Generator[Stage, History, FlowMixture]:
        """Train with full covariances; then, in the basis the closed form finds, with diagonal ones."""
        rows, seed, R = self._white(data.X_train), data.seed, self.n_restarts
        n = rows.shape[1]
        wanted = _count_components(rows, seed) if self.n_components is None else self.n_components
        K = self.n_components_ = max(1, min(wanted, len(rows) // (ROWS_PER_COMPONENT * (n + 1))))
        flow = self._flow(R, n, data.rng())
        model = FlowMixture(flow, MixtureBase(R, K, n, diagonal=True)).to(data.device)
        if self.full_covariance_steps:
            mixtures = [_initial_mixture(rows, K, seed + r) for r in range(R)]
            model.base = MixtureBase.of(mixtures, diagonal=False).to(data.device)
            size = max(2, round(self.batch_size * min(1.0, max(1.0, (n / FEW_LATENTS) ** 2) / 4)))
            self.history_ = yield self._stage(model, data, self.full_covariance_steps, size, seed, SHARPNESS)
        if self.max_steps:
            latents = self._apply(self._encode, rows, module=model) if self.full_covariance_steps else [rows] * R
            found = [_factorial(t, K, seed + R + r) for r, t in enumerate(latents)]
            W = torch.as_tensor(np.stack([one.W.T for one in found]), dtype=torch.float32, device=data.device)
            flow.then(W, torch.zeros(R, n, device=data.device))
            model.base = MixtureBase.of([split_components(one.mixture, K) for one in found], diagonal=True).to(
                data.device
            )
            sharpness = (SHARPNESS[1], SHARPNESS[1]) if self.full_covariance_steps else SHARPNESS
            self.history_ = yield self._stage(model, data, self.max_steps, self.batch_size, seed + 1, sharpness)
        _standardise(model, torch.as_tensor(self._apply(self._encode, rows, module=model)))
        return model

    def _stage(
        self, model: FlowMixture, data: Split, steps: int, size: int, seed: int, sharpness: tuple[float, float]
    ) -> Stage:
        """Return one stage of maximum likelihood, which ends once the held-out likelihood has settled."""
        rows, held = (as_tensor(self._white(X), data.device) for X in (data.X_train, data.X_held))
        flow = model.flow

        @torch.no_grad()
        def prepare(batch: Batch, step: Step) -> Batch:
            if isinstance(flow, SmoothLeakyFlow):
                flow.beta.copy_(step.annealed["beta"].expand_as(flow.beta))
            return batch

        rate = RATE[self.flow] if self.learning_rate is None else self.learning_rate
        plan = Plan(
            steps,
            size,
            rate,
            warm_up=0.1,
            clip=5.0,
            settled_from=SETTLED_FROM if self.full_covariance_steps else 1.0,  # as published: all steps
            anneal={"beta": Anneal(*sharpness)},
        )
        return Stage(
            model,
            lambda batch, step: -model.log_prob(batch[0]).mean(1),
            [rows],
            plan,
            seed,
            criterion=lambda: -model.log_prob(held),
            prepare=prepare,
            capture=self._one_thread and not isinstance(flow, AutoregressiveFlow),
        )

    def _set_results(self, data: Split) -> None:
        """Set the mixture of the latents under the learnt responsibilities, with full covariances."""
        joint = self._joint(data.X_train).astype(np.float64)
        z = self._latents(data.X_train)[0].astype(np.float64)
        r = np.exp(joint - joint.max(1, keepdims=True))
        r /= r.sum(1, keepdims=True)
        fewest = ROWS_PER_COMPONENT * (z.shape[1] + 1)
        self.free_mixture_ = moments(z, r, fewest=fewest, pseudo=0.0)
        self.n_rows_, kept = len(data.train), r.sum(0) > fewest
        self.effective_rows_ = (r[:, kept] ** 2).sum(0) if kept.any() else np.array([float(len(r))])
        self.dependence_ = Correlations.of_sizes(z, r)

    @property
    def _one_thread(self) -> bool:
        return self.coordinates_.n <= SMALL

    # -- rows and modules -------------------------------------------------------------

    def _white(self, X: FloatArray) -> Array:
        return self.coordinates_.project(X)[0] / self.coordinates_.sd

    def _inputs(self, X: FloatArray) -> FloatArray:
        return self._white(X).astype(X.dtype)

    def _observed(self, rows: FloatArray, dtype: Any) -> FloatArray:
        return self.coordinates_.lift(rows * self.coordinates_.sd).astype(dtype)

    def _joint(self, X: FloatArray) -> FloatArray:
        """Return log w_k p(y, k) (N, K) of checked rows."""
        return self._apply(lambda module, y: module(y)[1], self._inputs(X))[0]

    def _flow(self, members: int, n: int, rng: torch.Generator | None = None) -> Flow:
        depth = DEPTH[self.flow] if self.depth is None else self.depth
        if self.flow == "leaky":
            return SmoothLeakyFlow(members, n, depth, rng=rng)
        return (SoftplusFlow if self.flow == "softplus" else AutoregressiveFlow)(members, n, depth, rng=rng)

    def _build(self, members: int, rng: torch.Generator | None = None) -> FlowMixture:
        n, base = self.coordinates_.n, (members, self.n_components_, self.coordinates_.n)
        return FlowMixture(self._flow(members, n, rng), MixtureBase(*base, diagonal=self.max_steps > 0))

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        self._require("flow", self.flow in DEPTH, f"one of {tuple(DEPTH)}")
        self._require_integers(n_components=1, depth=2, optional=True)
        self._require_integers(full_covariance_steps=0, batch_size=2)
        valid = is_integer(self.max_steps, 0 if self.full_covariance_steps else 1)
        self._require("max_steps", valid, "an integer >= 0, and > 0 where full_covariance_steps is 0")
        self._require_positive("learning_rate", optional=True)


@torch.no_grad()
def _standardise(model: FlowMixture, t: Tensor) -> None:
    """Give the latents t (R, N, n) mean 0 and variance 1, the one whose variance changes most first."""
    like = model.base.means
    scale = 1 / t.std(1, correction=0).clamp(min=1e-12)
    shift = -t.mean(1) * scale
    model.flow.then(torch.diag_embed(scale).to(like), shift.to(like))
    model.base.rescale(scale.to(like), shift.to(like))
    if model.base.off is None:
        share = torch.softmax(model.base.logits, -1)[..., None]
        centred = model.base.log_factors - (share * model.base.log_factors).sum(1, keepdim=True)
        order = torch.argsort((share * centred.square()).sum(1), dim=-1, descending=True)
        permutation = torch.eye(order.shape[1]).to(like)[order].mT
        model.flow.then(permutation, torch.zeros_like(shift).to(like))
        picked = order[:, None].expand_as(like)
        like.copy_(like.gather(-1, picked))
        model.base.log_factors.copy_(model.base.log_factors.gather(-1, picked))


def _count_components(y: Array, seed: int) -> int:
    """Return how many components explain rows y (N, n) best under an affine mixing."""
    n = y.shape[1]
    return len(sized_mixture(_some(y, seed), np.zeros((n, n)), seed, most=MOST_COMPONENTS, tol=1e-4).weights)


def _initial_mixture(y: Array, components: int, seed: int) -> Mixture:
    """Fit a mixture to some of the rows y (N, n), by a few steps of EM from k-means."""
    return em_mixture(_some(y, seed), components, seed, max_iter=40, floor=1e-3)


def _factorial(t: Array, components: int, seed: int) -> FactorialMixture:
    """Unmix the components of latents t (N, n): by the closed form, then by EM."""
    t = t.astype(np.float64)
    mixture = _initial_mixture(t, components, seed)
    W = diagonal_basis(mixture).W
    signs = np.sign(W[np.arange(len(W)), np.abs(W).argmax(1)])[:, None]  # otherwise left to rounding errors
    return FactorialMixture.of(mixture, signs * W).improved(_some(t, seed), max_iter=30, tol=1e-4).model


def _some(rows: Array, seed: int) -> Array:
    return rows[np.random.default_rng(seed).permutation(len(rows))[:MIXTURE_ROWS]]
