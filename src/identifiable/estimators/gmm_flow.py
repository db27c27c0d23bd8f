r"""GMMFlow: an invertible map whose latents are a Gaussian mixture, by exact maximum likelihood; no u is observed.

Model (Willetts & Paige 2021, App. D; Kivva et al. 2022): x = f(z), z ~ Σ_k w_k N(μ_k, Σ_k). With a flow t = g(x)

    max_g,w,μ,Σ  E log Σ_k w_k N(g(x); μ_k, Σ_k) + log|det dg/dx|.

It goes the way the theory goes. With free covariances the latents are identified up to an affine map (Theorem 3.2a),
and the likelihood does not care which: the flow has only to make every component Gaussian. Then the closed form
(Theorem E.1, `diagonal_basis`) finds the basis in which the components are diagonal, and training continues with
diagonal ones, which enforce independent latents (Theorem 3.2b). With diagonal covariances from the beginning, as in the
paper, the flow converges to wrong axes: on the paper's data MCC .65 instead of .99.
"""

import warnings
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from identifiable.algorithms.diagonal_basis import diagonal_basis
from identifiable.algorithms.factorial import FactorialMixture, em_mixture, moments
from identifiable.arrays import Array, FloatArray, blocks_of_rows, hold_out, is_integer, is_real
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError, RecoveryWarning
from identifiable.estimators.base import LatentModel, resolve_device
from identifiable.estimators.factorial_unmixing import FactorialUnmixing
from identifiable.estimators.sparse_unmixing import Reduction, one_thread
from identifiable.flows import AutoregressiveFlow, SmoothLeakyFlow, SoftplusFlow
from identifiable.nets import as_tensor, in_precision_of, select_member
from identifiable.priors.mixture import MixtureBase, split_components
from identifiable.theory import Certificate, Structure, full_rank, structure_of
from identifiable.training import Anneal, Batch, History, Plan, Step, minimise

DEPTH = {"leaky": 20, "softplus": 12, "autoregressive": 10}
RATE = {"leaky": 3e-2, "softplus": 2e-2, "autoregressive": 3e-3}
BETA = 2.0, 100.0  # sharpness of the bends of a leaky flow, at the start and at the end of free training
MOST_COMPONENTS = 40
MIXTURE_ROWS = 10_000  # rows a mixture is fitted to, where training starts from one
ROWS_PER_COMPONENT = 4  # at least, and as many for each latent
CAPTURED = 10  # latents up to which a step is recorded on a GPU: the determinants of larger matrices cannot be
FLATTEST = 1e-3  # a direction that varies by less, as a share of the largest, counts as at rest

Flow = SmoothLeakyFlow | SoftplusFlow | AutoregressiveFlow


class FlowMixture(nn.Module):
    """A flow and the mixture of its latents; R members."""

    def __init__(self, flow: Flow, base: MixtureBase) -> None:
        super().__init__()
        self.flow, self.base = flow, base

    def forward(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return t (R, B, n) and log w_k p(y, k) (R, B, K) for y (R, B, n) or (B, n)."""
        t, log_det = self.flow(y)
        return t, self.base(t) + log_det[..., None]


class GMMFlow(LatentModel):
    """Recover latents that are independent within hidden clusters, by an invertible map with exact likelihood.

    Parameters
    ----------
    n_latents : number of latents; None: the rank of X. With fewer, x has isotropic Gaussian noise outside their
        principal subspace (of standardised columns).
    n_restarts : flows trained together in one batch; their agreement is `stability_`, the likeliest on held-out rows is
        kept.
    random_state : an integer makes a fit repeatable, bit for bit, on one machine and device.
    device : "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:<number>".
    verbose : 1 shows a progress bar on a terminal, 0 nothing.
    n_components : components of the mixture, more than there are clusters: they may share one. None: as many as
        `FactorialUnmixing` finds, which are more than there are clusters where the mixing bends them, 40 at most. Fewer
        are used where rows are few.
    flow : "leaky" for piecewise affine mixings, "softplus" for smooth ones that saturate, "autoregressive" for the
        masked autoregressive layers of the paper (from zuko).
    depth : layers; None: 20 leaky, 12 softplus, 10 autoregressive ones.
    full_covariance_steps : steps of training with free covariances; 0: diagonal from the start, as in the paper.
    max_steps : steps with diagonal covariances; 0: they stay free, and latents are known up to an affine map at best.
    batch_size, learning_rate : of Adam; the rate warms up and falls along a cosine, twice. None: 0.03 leaky,
        0.02 softplus, 0.003 autoregressive.

    Attributes
    ----------
    module_ : the kept flow and its mixture.
    mixture_ : `Mixture`, the learnt law of the latents.
    restart_scores_ : (R,) mean log-likelihood of held-out rows, up to a constant.
    history_ : `History` of the last training.
    structure_ : `Structure`: the hidden variables behind the components, if they can be told.
    stability_, fit_status_ : agreement between restarts.
    certificate_ : `Certificate`: what is identified, and why.

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
    NeurIPS 2022. The leaky and bent maps, the order of training and the start are this library's own.
    """

    module_: FlowMixture
    history_: History
    restart_scores_: Array
    mean_: Array
    scale_: Array
    vectors_: Array
    sizes_: Array
    rest_scale_: float
    n_components_: int
    free_mixture_: Mixture
    n_rows_: int
    _restarts: FlowMixture | None = None

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        n_restarts: int = 3,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
        n_components: int | None = None,
        flow: str = "leaky",
        depth: int | None = None,
        full_covariance_steps: int = 4000,
        max_steps: int = 4000,
        batch_size: int = 1024,
        learning_rate: float | None = None,
    ) -> None:
        self.n_latents = n_latents  # type: ignore[assignment]
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.n_components = n_components
        self.flow = flow
        self.depth = depth
        self.full_covariance_steps = full_covariance_steps
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate

    @property
    def _n_features_out(self) -> int:
        return len(self.sizes_)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the latents of X (N, d). y is ignored.

        A tenth of the rows (1000 at most) is held out: the restarts are compared on them.
        """
        self._check_parameters()
        X = self._check_training_data(X)
        self._reduce(X)
        seed, device = self._seed(), resolve_device(self.device)
        train, held = hold_out(len(X), seed)
        rows = self._project(X)
        with one_thread():
            model = self._train(rows[train], rows[held], seed, device)
        self._compare_restarts(_through(model, rows[held]))
        self.restart_scores_ = _likely(model, rows[held])
        self._restarts = model.eval()
        self.module_ = select_member(model, int(np.argmax(self.restart_scores_))).eval()
        self.free_mixture_, self.n_rows_ = self._as_they_are(rows[train]), len(train)
        return self

    def latents_of_restarts(self, X: ArrayLike) -> Array:
        """Return the latents (R, N, n) of every restart, which are at hand after `fit`, and not saved."""
        X = self._check_new_data(X)
        if self._restarts is None:
            raise DataError("The restarts are not kept in a file: fit the model to have them.")
        return _through(self._restarts, self._project(X))

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n), of unit variance over the training rows; the most telling comes first."""
        return self._latents(self._check_new_data(X))[0]

    @torch.no_grad()
    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the observations (N, d) of latents Z: exact where there are as many latents as the rank of X."""
        Z = self._check_latents(Z)
        return self._observations(Z)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable component of each row (N,), as numbered in `mixture_`."""
        return self.predict_proba(X).argmax(1)

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return p(k | x), (N, K)."""
        joint = self._latents(self._check_new_data(X))[1]
        p: FloatArray = np.exp(joint - joint.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        return p

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return log p(x) of each row (N,), in nats and in the units of the data.

        Columns that are a linear function of the others carry no density and are left out.
        """
        X = self._check_new_data(X)
        joint = self._latents(X)[1]
        most = joint.max(1)
        standard = (X - self.mean_) / self.scale_
        outside = (standard**2).sum(1) - ((standard @ self.vectors_) ** 2).sum(1)
        rest = self._n_outside
        value: FloatArray = most + np.log(np.exp(joint - most[:, None]).sum(1)) + self._log_unit
        if rest:
            value = value - 0.5 * (outside / self.rest_scale_**2 + rest * np.log(2 * np.pi * self.rest_scale_**2))
        return value

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean log-density of the rows of X; higher is better. y is ignored."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw rows (n_samples, d)."""
        check_is_fitted(self)
        generator, law = check_random_state(random_state), self.mixture_
        component = generator.choice(len(law.weights), size=n_samples, p=law.weights)
        roots = np.linalg.cholesky(law.covariances)
        normal = generator.standard_normal((n_samples, law.means.shape[1]))
        x = self._observations(law.means[component] + np.einsum("nab,nb->na", roots[component], normal))
        if self._n_outside:
            noise = generator.standard_normal(x.shape) * self.rest_scale_
            x = x + (noise - noise @ self.vectors_ @ self.vectors_.T) * self.scale_
        return x

    @property
    def mixture_(self) -> Mixture:
        """The learnt law of the latents."""
        check_is_fitted(self)
        return self.module_.base.mixture()

    @property
    def structure_(self) -> Structure:
        """The hidden variables behind the components, if they can be told (Kivva et al. 2022, Theorem 3.3c)."""
        return structure_of(self.mixture_, estimated=True)

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, and why, on the premise that the mixing is piecewise affine.

        Looked at are the components of the rows as they are, whether or not the model takes them to be diagonal.
        """
        check_is_fitted(self)
        return self._certified(full_rank.certify(self.free_mixture_, rows=self.n_rows_, tolerance=FLATTEST))

    # -- training -------------------------------------------------------------------

    def _train(self, rows: Array, held: Array, seed: int, device: torch.device) -> FlowMixture:
        """Train on white rows (N, n): with free covariances, then, in the basis the closed form finds, diagonal."""
        n, rng = rows.shape[1], torch.Generator().manual_seed(seed)
        asked = _clusters(rows, seed) if self.n_components is None else self.n_components
        K = self.n_components_ = max(1, min(asked, len(rows) // (ROWS_PER_COMPONENT * (n + 1))))
        flow = self._flow(self.n_restarts, n, rng)
        if self.full_covariance_steps:
            mixtures = [_mixture(rows, K, seed + r) for r in range(self.n_restarts)]
            model = FlowMixture(flow, MixtureBase.of(mixtures, diagonal=False)).to(device)
            self._minimise(model, rows, held, self.full_covariance_steps, seed, BETA)
        if self.max_steps:
            model = FlowMixture(flow, MixtureBase(self.n_restarts, K, n, diagonal=True)).to(device)
            latents = list(_through(model, rows)) if self.full_covariance_steps else [rows] * self.n_restarts
            found = [_factorial(t, K, seed + self.n_restarts + r) for r, t in enumerate(latents)]
            W = torch.as_tensor(np.stack([one.W.T for one in found]), dtype=torch.float32, device=device)
            flow.then(W, torch.zeros(self.n_restarts, n, device=device))
            model.base = MixtureBase.of([split_components(one.mixture, K) for one in found], diagonal=True).to(device)
            sharp = (BETA[1], BETA[1]) if self.full_covariance_steps else BETA
            self._minimise(model, rows, held, self.max_steps, seed + 1, sharp)
        self._standardise(model, rows)
        return model

    def _minimise(
        self, model: FlowMixture, rows: Array, held: Array, steps: int, seed: int, beta: tuple[float, float]
    ) -> None:
        device = model.base.means.device
        seen, flow = as_tensor(held, device), model.flow

        def loss(batch: Batch, step: Step) -> Tensor:
            return -torch.logsumexp(model(batch[0])[1], -1).mean(1)

        @torch.no_grad()
        def prepare(batch: Batch, step: Step) -> Batch:
            if isinstance(flow, SmoothLeakyFlow):
                flow.beta.copy_(step.annealed["beta"].expand_as(flow.beta))
            return batch

        def criterion() -> Tensor:
            return -torch.logsumexp(model(seen)[1], -1).mean(1)

        rate = RATE[self.flow] if self.learning_rate is None else self.learning_rate
        plan = Plan(steps, self.batch_size, rate, warm_up=0.1, clip=5.0, anneal={"beta": Anneal(*beta)})
        self.history_ = minimise(
            model,
            loss,
            [as_tensor(rows, device)],
            plan,
            seed=seed,
            criterion=criterion,
            prepare=prepare,
            capture=rows.shape[1] <= CAPTURED and not isinstance(model.flow, AutoregressiveFlow),
            verbose=self.verbose,
        )

    @torch.no_grad()
    def _standardise(self, model: FlowMixture, rows: Array) -> None:
        """Give every latent mean 0 and variance 1 over the rows, the one whose variance changes most first."""
        t = torch.as_tensor(_through(model, rows))
        like = model.base.means
        scale = 1 / t.std(1, correction=0).clamp(min=1e-12)
        shift = -t.mean(1) * scale
        model.flow.then(torch.diag_embed(scale).to(like), shift.to(like))
        model.base.rescale(scale.to(like), shift.to(like))
        if model.base.off is None:
            share = torch.softmax(model.base.logits, -1)[..., None]
            centred = model.base.log_factors - (share * model.base.log_factors).sum(1, keepdim=True)
            order = torch.argsort((share * centred.square()).sum(1), dim=-1, descending=True)
            turned = torch.eye(order.shape[1]).to(like)[order].mT
            model.flow.then(turned, torch.zeros_like(shift).to(like))
            picked = order[:, None].expand_as(like)
            like.copy_(like.gather(-1, picked))
            model.base.log_factors.copy_(model.base.log_factors.gather(-1, picked))

    def _as_they_are(self, rows: Array) -> Mixture:
        """Return the mixture of the latents of rows (N, n) under the learnt responsibilities, covariances free."""
        parts = [self._through_kept(y) for y in blocks_of_rows(rows)]
        z, joint = (np.concatenate(v) for v in zip(*parts, strict=True))
        r = np.exp(joint - joint.max(1, keepdims=True))
        r /= r.sum(1, keepdims=True)
        return moments(z, r, fewest=ROWS_PER_COMPONENT * (z.shape[1] + 1), pseudo=0.0)

    # -- coordinates ----------------------------------------------------------------

    def _reduce(self, X: FloatArray) -> None:
        """Set the white principal components of standardised columns."""
        reduction = Reduction.of(X, self.n_latents)
        if self.n_latents is not None and self.n_latents > reduction.n:
            raise DataError(
                f"A flow finds at most as many latents as X has rank: n_latents={self.n_latents}, "
                f"rank={reduction.n}, n_features={X.shape[1]}."
            )
        self.mean_, self.scale_ = reduction.mean, reduction.scale
        self.vectors_, self.sizes_ = reduction.vectors[:, : reduction.n].copy(), np.sqrt(reduction.variances)
        self.rest_scale_ = float(np.sqrt(reduction.residual_variance))

    @property
    def _n_outside(self) -> int:
        """Directions outside the latents' subspace that have a density: none unless fewer latents were asked for."""
        return 0 if self.n_latents is None else len(self.scale_) - len(self.sizes_)

    @property
    def _log_unit(self) -> float:
        """Log-density of white rows to that in the units of X."""
        share = 1.0 if self._n_outside else len(self.sizes_) / len(self.scale_)
        return float(-np.log(self.sizes_).sum() - share * np.log(self.scale_).sum())

    def _project(self, X: FloatArray) -> Array:
        return ((X - self.mean_) / self.scale_) @ (self.vectors_ / self.sizes_)

    def _latents(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return latents (N, n) and log w_k p(y, k) (N, K) in the order of `mixture_`."""
        parts = [self._through_kept(y.astype(X.dtype)) for y in blocks_of_rows(self._project(X))]
        z, joint = (np.concatenate(v) for v in zip(*parts, strict=True))
        order = np.argsort(-self.module_.base.logits[0].detach().cpu().double().numpy(), kind="stable")
        return z, joint[:, order]

    @torch.no_grad()
    def _through_kept(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        module = in_precision_of(self.module_, y)
        t, joint = module(as_tensor(y, module.base.means.device, y.dtype)[None])
        return t[0].cpu().numpy(), joint[0].cpu().numpy()

    @torch.no_grad()
    def _observations(self, z: FloatArray) -> FloatArray:
        module = in_precision_of(self.module_, z)
        device = module.base.means.device
        parts = [module.flow.inverse(as_tensor(b, device, z.dtype)[None])[0].cpu().numpy() for b in blocks_of_rows(z)]
        y = np.concatenate(parts)
        return ((y * self.sizes_) @ self.vectors_.T * self.scale_ + self.mean_).astype(z.dtype)

    def _flow(self, members: int, n: int, rng: torch.Generator | None = None) -> Flow:
        depth = DEPTH[self.flow] if self.depth is None else self.depth
        if self.flow == "leaky":
            return SmoothLeakyFlow(members, n, depth, rng=rng)
        return (SoftplusFlow if self.flow == "softplus" else AutoregressiveFlow)(members, n, depth, rng=rng)

    def _build(self, members: int, rng: torch.Generator | None = None) -> FlowMixture:
        n, components = self._n_features_out, self.n_components_
        return FlowMixture(
            self._flow(members, n, rng), MixtureBase(members, components, n, diagonal=self.max_steps > 0)
        )

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        found = self.n_components is None
        self._require("n_components", found or is_integer(self.n_components, 1), "an integer >= 1 or None")
        self._require("flow", self.flow in DEPTH, f"one of {tuple(DEPTH)}")
        self._require("depth", self.depth is None or is_integer(self.depth, 2), "an integer >= 2 or None")
        self._require("full_covariance_steps", is_integer(self.full_covariance_steps, 0), "an integer >= 0")
        some = is_integer(self.max_steps, 0 if self.full_covariance_steps else 1)
        self._require("max_steps", some, "an integer >= 0, and > 0 where full_covariance_steps is 0")
        self._require("batch_size", is_integer(self.batch_size, 2), "an integer >= 2")
        known = self.learning_rate is None or is_real(self.learning_rate, 0)
        self._require("learning_rate", known, "a number > 0 or None")


def _clusters(y: Array, seed: int) -> int:
    """Return how many components explain rows y (N, n) best, were they an affine mixture of the latents."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        affine = FactorialUnmixing(n_restarts=1, max_components=MOST_COMPONENTS, random_state=seed, verbose=0).fit(y)
    return len(affine.mixture_.weights)


def _mixture(y: Array, components: int, seed: int) -> Mixture:
    """Fit a mixture to some of the rows y (N, n), by a few steps of EM from k-means."""
    some = y[np.random.default_rng(seed).permutation(len(y))[:MIXTURE_ROWS]]
    return em_mixture(some, components, seed, max_iter=40, floor=1e-3)


def _factorial(t: Array, components: int, seed: int) -> FactorialMixture:
    """Unmix the components of latents t (N, n): by the closed form, then by EM."""
    mixture = _mixture(t, components, seed)
    some = t[np.random.default_rng(seed).permutation(len(t))[:MIXTURE_ROWS]]
    return FactorialMixture.of(mixture, diagonal_basis(mixture).W).improved(some, max_iter=30, tol=1e-4).model


@torch.no_grad()
def _through(model: FlowMixture, rows: Array) -> Array:
    """Return the latents (R, N, n) of white rows (N, n)."""
    device = model.base.means.device
    return torch.cat([model.flow(as_tensor(y, device))[0].double().cpu() for y in blocks_of_rows(rows)], 1).numpy()


@torch.no_grad()
def _likely(model: FlowMixture, rows: Array) -> Array:
    """Return the mean log-likelihood (R,) of white rows (N, n)."""
    value = torch.logsumexp(model(as_tensor(rows, model.base.means.device))[1], -1).mean(1)
    return value.nan_to_num(-np.inf).double().cpu().numpy()
