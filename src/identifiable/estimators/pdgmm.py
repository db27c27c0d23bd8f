r"""PDGMM: nonlinear recovery of a potentially degenerate Gaussian mixture by exact maximum likelihood.

Model (Xu et al. 2026): latents z ~ Σ_j w_j N(M_j μ, M_j C M_j), of which only those in the mask M_j are active, seen
through an invertible piecewise affine map. An invertible flow t = f(x) is fitted by

    max_f  E log p_e(f(x)) + log|det df/dx|,

p_e the density of z smoothed at a width e that falls during training, in two stages:

    A   p_e(t) = Π_i [p_i N(t_i; μ_i, 1) + (1 - p_i) N(t_i; 0, e²)]           no masks needed: every latent for itself
    B   p_e(t) = Σ_j w_j N(t; M_j μ, M_j C M_j + e² I)                        the masks that A shows, the exact mixture

The flow starts at a linear unmixing, of two kinds: with free rest values (`SparseUnmixing`), and with the rest values
at the mean, which is better where a strong nonlinearity folds the data. All restarts of both kinds train in one batch,
each from the unmixing of another half of the rows. Held-out likelihood chooses the kind. That the restarts of this kind
agree on held-out rows is the sign, and the only one that needs no truth, that they found the latents; where they do
not, they are trained again, longer.
"""

import copy
import math
import warnings
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from identifiable.certify import Certificate, Check, Level, certify
from identifiable.data.sample import FloatArray
from identifiable.errors import RecoveryWarning
from identifiable.estimators._pdgmm_priors import MaskedGaussians, SpikeAndSlab, mine_masks
from identifiable.estimators.base import (
    DOUBTFUL,
    STABLE,
    LatentModel,
    Stability,
    hold_out,
    is_integer,
    is_real,
    resolve_device,
)
from identifiable.estimators.hyperplane_search import centred_rows
from identifiable.estimators.sparse_unmixing import Masks, Reduction, SparseUnmixing, pattern_mixture
from identifiable.flows import SmoothLeakyFlow
from identifiable.mixture import Mixture
from identifiable.nets import select_member
from identifiable.train import Anneal, Batch, History, Plan, Step, minimise

Array = NDArray[np.float64]

WIDTHS_A, WIDTHS_B = (0.3, 0.08), (0.12, 0.02)  # e at the start and the end of a stage, in sd of an active latent
SHARE_A = 0.4  # of the steps that belong to stage A
SHARPEST, SHARPNESS = 200.0, 3.0  # β = min(200, 3 / e)
FOLLOW_EVERY = 25  # steps between two looks at w and C in stage B
MASKS_PER_LATENT = 8
MINED_ROWS = 20_000
LEAST_SHARE = 0.01  # of the rows in which a latent must be active to be called used
LONG = 4  # times the steps of a short fit, in stage A alone
BLOCK = 4096  # rows that go through the flow at once outside training


@dataclass(frozen=True)
class _Start:
    """Linear unmixings t = y W + b of reduced rows y, one per restart: W (R, q, q), b (R, q); shares, means (R, n).

    Active latents have unit variance and rest at zero; the surplus coordinates are as narrow as the first spike.
    """

    W: Array
    b: Array
    shares: Array
    means: Array

    @classmethod
    def of(cls, y: Array, rows: Array) -> "_Start":
        """Take rows (R, n, n + 1) of unmixings of the first n columns of y (N, q)."""
        (R, n, _), q = rows.shape, y.shape[1]
        W, b, shares, means = np.zeros((R, q, q)), np.zeros((R, q)), np.zeros((R, n)), np.zeros((R, n))
        for r, unmixing in enumerate(rows):
            share, mean, size = _slab(y[:, :n] @ unmixing[:, :n].T + unmixing[:, n])
            W[r, :n, :n], b[r, :n] = unmixing[:, :n].T / size, unmixing[:, n] / size
            W[r, range(n, q), range(n, q)] = WIDTHS_A[0] / np.maximum(y[:, n:].std(0), 1e-12)
            shares[r], means[r] = share, mean / size
        return cls(W, b, shares, means)

    def part(self, members: range) -> "_Start":
        """Return the starts of these restarts."""
        return _Start(*(v[members.start : members.stop] for v in (self.W, self.b, self.shares, self.means)))


Prior = TypeVar("Prior", SpikeAndSlab, MaskedGaussians)


class _Model(nn.Module, Generic[Prior]):
    """A flow, the prior of its latents, and the width of that prior, all with R members."""

    flow: SmoothLeakyFlow
    prior: Prior
    width: Tensor

    def __init__(self, flow: SmoothLeakyFlow, prior: Prior, width: float) -> None:
        super().__init__()
        self.flow, self.prior = flow, prior
        self.register_buffer("width", torch.full((len(flow.weight),), width))

    def log_density(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return t (R, B, q) and the log-density (R, B) of x at the width last trained at."""
        t, log_det = self.flow(x)
        return t, self.prior(t, self.width[0]) + log_det


class PDGMM(LatentModel):
    """Recover the latents of a nonlinear mixture of which only some are active in each row.

    Parameters
    ----------
    n_latents : number of latents n; None: the rank of X. With fewer than columns the rest of x is what the latents
        leave unexplained; latents that are never active are reported in `unused_`.
    n_restarts : flows of each kind of start, all trained together in one batch; the agreement of those of the better
        kind is `stability_`.
    random_state : an integer makes a fit repeatable, bit for bit, on one machine and device.
    device : "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:<number>".
    verbose : 1 shows a progress bar on a terminal, 0 nothing.
    depth : layers of the flow; None: 16 up to 12 latents, 24 above.
    max_steps : of a short fit; a long one takes four times as many in its first stage.
    batch_size, learning_rate : of Adam; the rate warms up and falls along a cosine.
    long : whether to train again, longer, where the restarts disagree.

    Attributes
    ----------
    module_ : the kept flow and its mixture.
    mixture_ : `Mixture` of the latents: weights, means, covariances, most frequent component first.
    masks_ : `Masks`, the patterns of activity of its components.
    offset_ : (d,) the point x at which every latent rests.
    blocks_ : groups of latents that are always active together.
    unused_ : latents that are hardly ever active.
    trained_long_ : whether the longer training was kept.
    history_ : `History` of the last stage.
    stability_, fit_status_ : agreement between restarts; "unstable" means not recovered.
    certificate_ : `Certificate`: what is identified, and why.

    Examples
    --------
    >>> from identifiable.data import make_pdgmm
    >>> sample = make_pdgmm(2000, n=3, layers=2, random_state=0)
    >>> model = PDGMM(3, n_restarts=2, max_steps=200, long=False, random_state=0, verbose=0).fit(sample.x)
    >>> model.transform(sample.x).shape
    (2000, 3)
    >>> bool(abs(model.inverse_transform(model.transform(sample.x)) - sample.x).max() < 1e-6)
    True

    References
    ----------
    Xu, Lachapelle & Magliacane, Identifiability of potentially degenerate Gaussian mixture models with piecewise affine
    mixing, AISTATS 2026. The method is this library's own.
    """

    module_: _Model[MaskedGaussians]
    history_: History
    mean_: Array
    scale_: Array
    vectors_: Array
    unit_: float
    n_used_: int
    n_masks_: int
    trained_long_: bool
    mixture_: Mixture
    masks_: Masks
    offset_: Array
    blocks_: tuple[tuple[int, ...], ...]
    unused_: tuple[int, ...]

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        n_restarts: int = 4,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
        depth: int | None = None,
        max_steps: int = 3000,
        batch_size: int = 512,
        learning_rate: float = 1e-2,
        long: bool = True,
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
        self.long = long

    @property
    def _n_features_out(self) -> int:
        return self.n_used_ if self.n_latents is None else self.n_latents

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the latents of X (N, d). y is ignored."""
        self._check_parameters()
        X = self._check_training_data(X)
        seed, device = self._seed(), resolve_device(self.device)
        train, held = hold_out(len(X), seed)
        reduced = self._reduce(X[train])
        rows, seen = self._rows(reduced, device), self._rows(self._project(X[held]), device)
        start = self._starts(X[train], reduced, seed)
        module, self.history_ = self._train(rows, start, False, seed)
        kind, latents = self._better_kind(module, seen)
        self.trained_long_ = False
        agreement = Stability.of(latents).score
        if self.long and agreement < STABLE:
            again, history = self._train(rows, start.part(kind), True, seed + 2)
            longer = self._latents_of(again, seen)
            if Stability.of(longer).score > agreement:
                module, latents, kind, self.history_ = again, longer, range(self.n_restarts), history
                self.trained_long_ = True
        self.module_ = select_member(module, kind[self._settle(latents)])
        self.n_masks_ = self.module_.prior.masks.shape[1]
        self._set_mixture(X[train])
        return self

    def _starts(self, X: FloatArray, reduced: Array, seed: int) -> _Start:
        """Return the linear starts of all restarts: those with free rest values first."""
        n = self.n_used_
        sd = reduced[:, :n].std(0)
        halves = [
            np.random.default_rng([seed, r]).permutation(len(X))[: (len(X) + 1) // 2] for r in range(self.n_restarts)
        ]
        halves[0] = np.arange(len(X))
        free = [self._sparse(X[half], seed + r) for r, half in enumerate(halves)]
        centred = [centred_rows(reduced[half, :n] / sd, seed + r) / np.r_[sd, 1.0] for r, half in enumerate(halves)]
        return _Start.of(reduced, np.stack(free + centred))

    @torch.no_grad()
    def _better_kind(self, module: _Model[MaskedGaussians], seen: Tensor) -> tuple[range, NDArray[Any]]:
        """Return the members of the kind of start with the higher held-out likelihood, and their latents."""
        likelihood = module.log_density(seen)[1].mean(1).nan_to_num(-math.inf).reshape(2, -1).median(1).values
        first = self.n_restarts * int(likelihood.argmax())
        kind = range(first, first + self.n_restarts)
        return kind, self._latents_of(module, seen)[kind.start : kind.stop]

    @torch.no_grad()
    def _latents_of(self, module: _Model[MaskedGaussians], seen: Tensor) -> NDArray[Any]:
        latents: NDArray[Any] = module.flow(seen)[0][..., : self.n_used_].double().cpu().numpy()
        return latents

    def _sparse(self, X: FloatArray, seed: int) -> Array:
        """Return the rows (n, n + 1) of a sparse unmixing of X, on reduced rows."""
        n = self.n_used_
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoveryWarning)
            linear = SparseUnmixing(n, random_state=seed, verbose=0, device="cpu").fit(X)
        W = linear.components_[:n] @ (self.vectors_[:, :n] * self.scale_[:, None])
        rows: Array = np.c_[W, linear.components_[:n] @ self.mean_ - linear.offset_[:n]]
        return rows

    def _train(self, rows: Tensor, start: _Start, long: bool, seed: int) -> tuple[_Model[MaskedGaussians], History]:
        """Train all restarts from a linear start: stage A, then, unless long, the masks it shows and stage B."""
        rng = torch.Generator().manual_seed(seed)
        W, b, shares, means = (
            torch.as_tensor(v).float() for v in (start.W * self.unit_, start.b, start.shares, start.means)
        )
        flow = SmoothLeakyFlow(len(W), W.shape[-1], self._depth(), start=W, rng=rng)
        with torch.no_grad():
            flow.bias[:, -1] += b
        flow = flow.to(rows.device)
        steps = max(1, round(SHARE_A * self.max_steps))
        first = _Model(flow, SpikeAndSlab(shares, means), WIDTHS_A[1]).to(rows.device)
        history = self._stage(first, rows, LONG * self.max_steps if long else steps, WIDTHS_A, seed)
        with torch.no_grad():
            t = flow(rows[:MINED_ROWS])[0][..., : self.n_used_]
        masks, log_weights = mine_masks(t, 2 * WIDTHS_A[1], MASKS_PER_LATENT * self.n_used_)
        prior = MaskedGaussians(masks, log_weights, first.prior.means)
        module = _Model(flow, prior, WIDTHS_A[1] if long else WIDTHS_B[1]).to(rows.device)
        prior.set_width(torch.tensor(WIDTHS_A[1] if long else WIDTHS_B[0], device=rows.device))
        if long:
            prior.follow(t, module.width[0])
        else:
            history = self._stage(module, rows, max(1, self.max_steps - steps), WIDTHS_B, seed + 1)
            prior.set_width(module.width[0])
        return module, history

    def _stage(
        self, module: _Model[Prior], rows: Tensor, steps: int, widths: tuple[float, float], seed: int
    ) -> History:
        flow, prior = module.flow, module.prior

        def loss(batch: Batch, step: Step) -> Tensor:
            e = step.annealed["e"]
            flow.beta.copy_((SHARPNESS / e).clamp(max=SHARPEST).expand_as(flow.beta))
            t, log_det = flow(batch[0])
            if isinstance(prior, MaskedGaussians) and step.number % FOLLOW_EVERY == 0:
                prior.follow(t.detach(), e)
            value: Tensor = -(prior(t, e) + log_det).mean(1)
            return value

        # No criterion: held-out likelihoods at different widths cannot be compared.
        plan = Plan(steps, self.batch_size, self.learning_rate, clip=5.0, anneal={"e": Anneal(*widths)})
        return minimise(module, loss, [rows], plan, seed=seed, verbose=self.verbose)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n_latents), zero where they rest, with unit variance while active."""
        return self._latents(self._check_new_data(X))

    @torch.no_grad()
    def _latents(self, X: FloatArray) -> FloatArray:
        module, device = self._module_for(X)
        blocks = [module.flow(self._rows(self._project(x), device, x.dtype))[0][0] for x in _blocks(X)]
        return self._padded(torch.cat(blocks)[:, : self.n_used_].cpu().numpy())

    @torch.no_grad()
    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the observations (N, d) whose latents are Z, exactly; what lies beyond the latents is at rest."""
        Z = self._check_latents(Z)
        module, device = self._module_for(Z)
        q = self.vectors_.shape[1]
        t = np.zeros((len(Z), q), dtype=Z.dtype)
        t[:, : self.n_used_] = Z[:, : self.n_used_]
        blocks = [module.flow.inverse(torch.as_tensor(block, device=device)[None])[0] for block in _blocks(t)]
        y = torch.cat(blocks).cpu().numpy() * self.unit_
        x: FloatArray = ((y @ self.vectors_.T) * self.scale_ + self.mean_).astype(Z.dtype)
        return x

    @torch.no_grad()
    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return the log-density (N,) of each row in nats: of the mixture smoothed at .02, in the units of the data.

        Columns that are a linear function of the others carry no density and are left out.
        """
        X = self._check_new_data(X)
        module, device = self._module_for(X)
        blocks = [module.log_density(self._rows(self._project(x), device, x.dtype))[1][0] for x in _blocks(X)]
        q = self.vectors_.shape[1]
        value: FloatArray = torch.cat(blocks).cpu().numpy().astype(np.float64)
        value -= q * math.log(self.unit_) + float(np.log(self.scale_).sum()) * q / len(self.scale_)
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
        X = self._check_new_data(X)
        moving: NDArray[np.bool_] = self._padded(self._most_probable(X)[1].astype(np.float64)) > 0.5
        return moving

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, and why."""
        check_is_fitted(self)
        agree = Check(
            name="agreement",
            statement="restarts recover the same latents",
            statistic=self.stability_.score,
            threshold=STABLE,
            verdict="fails"
            if self.fit_status_ == "unstable"
            else "holds"
            if self.fit_status_ == "stable"
            else "cannot tell",
            sentence=f"Restarts agree at {self.stability_.score:.2f} on held-out rows (stable from {STABLE}, doubtful "
            f"from {DOUBTFUL}): " + ("not recovered." if self.fit_status_ == "unstable" else f"{self.fit_status_}."),
        )
        if self.fit_status_ == "unstable":
            return Certificate(Level.NONE, Level.NONE, "", (agree,), (), (), None, None, True)
        found = certify(self.mixture_, estimated=True, injective=True)
        return Certificate(**{**vars(found), "checks": (agree, *found.checks)})

    # -- what the fit leaves ------------------------------------------------------

    def _set_mixture(self, X: FloatArray) -> None:
        """Read the mixture off the kept member: its masks with the moments of the rows that are theirs."""
        z = np.asarray(self._latents(X), dtype=np.float64)
        component, _ = self._most_probable(X)
        counts = np.bincount(component, minlength=self.n_masks_)
        masks = self._padded(self.module_.prior.masks[0].cpu().numpy()) > 0.5
        order = np.argsort(-counts, kind="stable")
        members = [np.flatnonzero(component == j) for j in order]
        self.mixture_, frequent = pattern_mixture(z, masks[order], members)
        masks, weights = masks[order][frequent], self.mixture_.weights
        self.masks_ = Masks(masks, weights)
        share = weights @ masks
        self.unused_ = tuple(int(i) for i in np.flatnonzero(share < LEAST_SHARE))
        columns: dict[bytes, list[int]] = {}
        for i in np.flatnonzero(share >= LEAST_SHARE):
            columns.setdefault(masks[:, i].tobytes(), []).append(int(i))
        self.blocks_ = tuple(tuple(block) for block in columns.values() if len(block) > 1)
        self.offset_ = np.asarray(self.inverse_transform(np.zeros((1, self._n_features_out))))[0]

    @torch.no_grad()
    def _most_probable(self, X: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the most probable component (N,) of each row, and its mask (N, n_used_)."""
        module, device = self._module_for(X)
        found = []
        for x in _blocks(X):
            t = module.flow(self._rows(self._project(x), device, x.dtype))[0][..., : self.n_used_]
            found.append(module.prior.components(t)[0].argmax(-1).cpu().numpy())
        component = np.concatenate(found)
        return component, module.prior.masks[0].cpu().numpy()[component] > 0.5

    def _padded(self, z: NDArray[Any]) -> NDArray[Any]:
        """Add the latents asked for beyond the rank of X, which are always at rest."""
        return np.pad(z, ((0, 0), (0, self._n_features_out - z.shape[1])))

    # -- coordinates ----------------------------------------------------------------

    def _reduce(self, X: FloatArray) -> Array:
        """Set the coordinates y of the training rows (N, q): q their rank; return y."""
        reduction = Reduction.of(X, None)
        self.mean_, self.scale_ = reduction.mean, reduction.scale
        self.vectors_ = reduction.vectors[:, : reduction.n]
        self.n_used_ = reduction.n if self.n_latents is None else min(self.n_latents, reduction.n)
        self.n_masks_ = 0
        self.unit_ = float(np.sqrt(reduction.variances.mean()))
        return self._project(X)

    def _project(self, X: FloatArray) -> Array:
        y: Array = ((X - self.mean_) / self.scale_) @ self.vectors_
        return y

    def _rows(self, y: Array, device: torch.device, dtype: Any = np.float32) -> Tensor:
        """Return y / unit as a tensor."""
        return torch.as_tensor((y / self.unit_).astype(dtype), device=device)

    def _depth(self) -> int:
        return self.depth if self.depth is not None else 16 if self.n_used_ <= 12 else 24

    def _build(self, members: int, rng: torch.Generator | None = None) -> _Model[MaskedGaussians]:
        flow = SmoothLeakyFlow(members, self.vectors_.shape[1], self._depth(), rng=rng)
        n = self.n_used_
        masks = torch.ones(members, self.n_masks_, n)
        return _Model(
            flow, MaskedGaussians(masks, torch.zeros(members, self.n_masks_), torch.zeros(members, 1, n)), 1.0
        )

    def _module_for(self, rows: FloatArray) -> tuple[_Model[MaskedGaussians], torch.device]:
        """Return the fitted model in the precision of the rows: float64 in, float64 all the way."""
        dtype = torch.float64 if rows.dtype == np.float64 else torch.float32
        module = copy.deepcopy(self.module_).to(dtype)
        return module, module.width.device

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        self._require("depth", self.depth is None or is_integer(self.depth, 2), "an integer >= 2 or None")
        self._require("max_steps", is_integer(self.max_steps, 2), "an integer >= 2")
        self._require("batch_size", is_integer(self.batch_size, 2), "an integer >= 2")
        self._require("learning_rate", is_real(self.learning_rate, 0), "a number > 0")
        self._require("long", isinstance(self.long, bool), "True or False")


def _slab(t: Array, spike: float = WIDTHS_A[0], steps: int = 50) -> tuple[Array, Array, Array]:
    """Fit p N(m, s²) + (1 - p) N(0, (spike s)²) to every column by EM; return p, m and s."""
    share, mean, size = np.full(t.shape[1], 0.5), t.mean(0), t.std(0)
    for _ in range(steps):
        moving = share * np.exp(-0.5 * ((t - mean) / size) ** 2)
        resting = (1 - share) * np.exp(-0.5 * (t / (spike * size)) ** 2) / spike
        active = moving / (moving + resting + 1e-300)
        share = np.clip(active.mean(0), 0.05, 0.95)
        mean = (active * t).mean(0) / active.mean(0).clip(1e-6)
        size = np.sqrt((active * (t - mean) ** 2).mean(0) / active.mean(0).clip(1e-6)).clip(1e-3 * t.std(0))
    return share, mean, size


def _blocks(rows: FloatArray) -> list[FloatArray]:
    return [rows[i : i + BLOCK] for i in range(0, len(rows), BLOCK)]
