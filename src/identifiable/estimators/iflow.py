r"""IFlow: the flow-based special case of the iVAE model, by exact maximum likelihood given u.

Model (Khemakhem et al. 2020, section 3.1, without noise): x = f(z), z | u ~ Π_i p(z_i | u) from an exponential family.
With an invertible flow t = g(x) the likelihood is exact:

    max_g,λ  E log p_λ(g(x) | u) + log|det dg/dx|.

The flow starts at the linear solution, `SegmentUnmixing`. With fewer latents than columns, x lies on or near a surface
of n dimensions. A first flow straightens it, h(x) = (y, r): y goes on to the second, r is what is left,

    log p(x | u) = log p_λ(g(y) | u) + log|det dg/dy| + log N(r; 0, diag σ²) + log|det dh/dx|.

It is trained on rows with a little noise that falls on the way: the density of rows that lie exactly on a surface has
no bound. A linear projection to n components instead would fold a surface that is bent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from identifiable.arrays import BLOCK, Array, FloatArray, blocks_of_rows, is_integer, is_real
from identifiable.distributions.densities import log_normal
from identifiable.errors import DataError
from identifiable.estimators.base import resolve_device
from identifiable.estimators.given_u import GivenU, PriorGivenU, rows_of
from identifiable.estimators.sparse_unmixing import Reduction, one_thread
from identifiable.flows import SoftplusFlow
from identifiable.nets import as_tensor, in_precision_of, select_member
from identifiable.theory import Certificate
from identifiable.training import Anneal, Batch, History, Plan, Step, minimise

NOISE = 0.1, 0.02  # added to rows while they are straightened: start and end, in sd of a column
STRAIGHT_DEPTH = 8
MANY_COLUMNS = 20  # beyond which the rate falls and steps are more
CAPTURED = 10  # columns up to which a step is recorded on a GPU: the determinants of larger matrices cannot be


class FlowGivenU(nn.Module):
    """A flow on n of m coordinates, its prior given u, and Gaussian scales of the m - n others; R members."""

    def __init__(self, flow: SoftplusFlow, prior: PriorGivenU, columns: int) -> None:
        super().__init__()
        self.flow, self.prior = flow, prior
        self.log_rest = nn.Parameter(torch.zeros(len(prior.shift), 1, columns - prior.n))

    def forward(self, x: Tensor, u: Tensor) -> Tensor:
        """Log p(x | u), (R, B)."""
        t, log_det = self.flow(x)
        n = self.prior.n
        value: Tensor = self.prior.log_density(t[..., :n], *self.prior(u)) + log_det
        if t.shape[-1] > n:
            value = value + log_normal(t[..., n:], torch.zeros_like(self.log_rest), self.log_rest).sum(-1)
        return value


class ManifoldFlow(nn.Module):
    """The kept model: rows y -> (first flow, where there is one) -> flow -> latents.

    Of the first flow's prior nothing is kept: its family may be another than that of the latents, once straightened.
    """

    def __init__(self, straight: FlowGivenU | None, unmix: FlowGivenU) -> None:
        super().__init__()
        self.straight, self.unmix = None if straight is None else straight.flow, unmix
        self.log_rest = nn.Parameter(unmix.log_rest.clone() if straight is None else straight.log_rest)

    def latents(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return latents (B, n) and the part of log p(x | u) that does not depend on u (B,), for y (B, m)."""
        value = torch.zeros_like(y[:, 0])
        if self.straight is not None:
            t, log_det = self.straight(y[None])
            n = self.unmix.prior.n
            y, rest = t[0, :, :n], t[0, :, n:]
            value = log_det[0] + log_normal(rest, torch.zeros_like(rest), self.log_rest[0]).sum(-1)
        t, log_det = self.unmix.flow(y[None])
        return t[0], value + log_det[0]

    def inverse(self, z: Tensor, rest: Tensor) -> Tensor:
        """Return y (B, m) of latents z (B, n), and the rest (B, m - n) in standard deviations."""
        y = self.unmix.flow.inverse(z[None])
        if self.straight is not None:
            y = self.straight.inverse(torch.cat([y, rest[None] * self.log_rest.exp()], -1))
        return y[0]


class IFlow(GivenU):
    """Recover latents that are independent given an observed u, by an invertible map with exact likelihood.

    Parameters
    ----------
    n_latents : number of latents n; None: the rank of X. With fewer, the data are first straightened onto n
        coordinates by another flow.
    n_restarts : flows trained together in one batch; their agreement is `stability_`, the likeliest on held-out rows is
        kept.
    random_state : an integer makes a fit repeatable, bit for bit, on one machine and device.
    device : "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:<number>".
    verbose : 1 shows a progress bar on a terminal, 0 nothing.
    family : law of a latent given u: "variance" (Gaussian, mean 0), "gaussian" (mean and variance) or "laplace"
        (centred); "auto": "gaussian" where the means of the data change with u, else "variance".
    prior : where its parameters come from: a "table" of the values of u or a "net" of its features; "auto": a table
        unless some column of u is continuous.
    u_types, n_groups : what u is, and its groups; see `Auxiliary.of`.
    depth : layers of the flow.
    max_steps, batch_size, learning_rate : of Adam; the rate warms up and falls along a cosine.

    Attributes
    ----------
    module_ : the kept flow and its prior.
    auxiliary_ : `Auxiliary`, how u is read.
    family_, table_ : what "auto" became.
    conditional_prior_ : `ConditionalPrior`, the law of the latents in each group of u, with bootstrap copies.
    history_ : `History` of the last training.
    stability_, fit_status_ : agreement between restarts.
    certificate_ : `Certificate`: what is identified, and why.

    Examples
    --------
    >>> from identifiable.data import make_segments
    >>> s = make_segments(4000, segments=10, n=2, random_state=0)
    >>> model = IFlow(n_restarts=2, max_steps=200, random_state=0, verbose=0).fit(s.x, s.u)
    >>> model.transform(s.x).shape, model.family_
    ((4000, 2), 'variance')
    >>> bool(abs(model.inverse_transform(model.transform(s.x)) - s.x).max() < 1e-6)
    True

    References
    ----------
    Khemakhem, Kingma & Hyvärinen, Variational autoencoders and nonlinear ICA: a unifying framework, AISTATS 2020. The
    map and the training are this library's own.
    """

    module_: ManifoldFlow
    history_: History
    mean_: Array
    scale_: Array
    vectors_: Array
    rest_scale_: Array
    columns_: int
    n_used_: int

    def __init__(
        self,
        n_latents: int | None = None,
        *,
        n_restarts: int = 3,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
        family: str = "auto",
        prior: str = "auto",
        u_types: str | Sequence[str] = "auto",
        n_groups: int | None = None,
        depth: int = 12,
        max_steps: int = 3000,
        batch_size: int = 1024,
        learning_rate: float = 2e-2,
    ) -> None:
        self.n_latents = n_latents  # type: ignore[assignment]
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.family = family
        self.prior = prior
        self.u_types = u_types
        self.n_groups = n_groups
        self.depth = depth
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate

    @property
    def _n_features_out(self) -> int:
        return self.n_used_

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the latents of X (N, d) with the auxiliary variable y = u, (N,) or (N, m).

        A tenth of the rows (1000 at most) is held out: the restarts are compared on them.
        """
        fitted = self._fit(X, y)
        split = fitted.split
        self._compare_restarts(_through(fitted.unmix, fitted.rows[:, split.held]))
        kept = int(np.argmax(fitted.likely))
        straight = None if fitted.straight is None else select_member(fitted.straight, kept)
        self.module_ = ManifoldFlow(straight, select_member(fitted.unmix, kept)).eval()
        z = _through(self.module_.unmix, fitted.rows[min(kept, len(fitted.rows) - 1), split.train][None])
        self._set_law(z[0], rows_of(y, split.train), fitted.seed)
        return self

    def latents_of_restarts(self, X: ArrayLike, y: Any) -> Array:
        """Fit, and return the latents (R, N, n) of every restart instead of keeping one."""
        fitted = self._fit(X, y)
        return _through(fitted.unmix, fitted.rows)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the latents (N, n_latents), of unit variance over the training rows; the same for every u."""
        return self._latents(self._check_new_data(X))[0]

    @torch.no_grad()
    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the observations (N, d) of latents Z: exact where there are as many latents as the rank of X."""
        Z = self._check_latents(Z)
        return self._observations(Z, np.zeros((len(Z), self.columns_ - Z.shape[1]), dtype=Z.dtype))

    @torch.no_grad()
    def score_samples(self, X: ArrayLike, u: Any = None) -> FloatArray:
        """Return log p(x | u) of each row (N,), in nats and in the units of the data.

        Without u it is log Σ_g w_g p(x | g) over the groups g of u. Columns that are a linear function of the others
        carry no density and are left out.
        """
        X = self._check_new_data(X)
        z, value = self._latents(X)
        module, device = self._module_for(X)
        prior, dtype = module.unmix.prior, module.unmix.flow.weight.dtype
        given = None if u is None else self._u_tensor(u, len(X), device, dtype)[None]
        log_p = self._log_prior(prior, torch.as_tensor(z, device=device)[None], given)[0].cpu().numpy()
        rest = ((X - self.mean_) / self.scale_) @ self.vectors_[:, self.columns_ :]
        value = value + log_p + norm.logpdf(rest, scale=self.rest_scale_).sum(1)
        share = self.vectors_.shape[1] / len(self.scale_)
        return value - share * np.log(self.scale_).sum()

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean log-density of the rows of X, given y = u if there is one; higher is better."""
        return float(np.mean(self.score_samples(X, y)))

    @torch.no_grad()
    def sample(
        self, n_samples: int = 1, u: Any = None, random_state: int | np.random.RandomState | None = None
    ) -> FloatArray:
        """Draw rows (n_samples, d), with u one value for all of them, or one per row; without, groups by weight."""
        check_is_fitted(self)
        generator = check_random_state(random_state)
        z = self.sample_latents(n_samples, u, generator)
        x = self._observations(z, generator.standard_normal((n_samples, self.columns_ - z.shape[1])))
        narrow = self.rest_scale_ * generator.standard_normal((n_samples, len(self.rest_scale_)))
        return x + narrow @ self.vectors_[:, self.columns_ :].T * self.scale_

    @property
    def _kept_prior(self) -> PriorGivenU:
        return self.module_.unmix.prior

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, and why: Theorems 1 and 2 on the learnt law of the latents given u."""
        check_is_fitted(self)
        return self._certificate("none" if self.columns_ == self.n_used_ else None, True)

    # -- training -------------------------------------------------------------------

    def _fit(self, X: ArrayLike, y: Any) -> "Fitted":
        """Check, reduce, straighten and train."""
        self._check_parameters()
        X = self._check_training_data(X)
        self._set_auxiliary(y, len(X))
        seed, device = self._seed(), resolve_device(self.device)
        train, held = self._hold_out(y, len(X), seed)
        self.n_used_ = n = self._reduce(X[train])
        rows, u = self._project(X)[None], self._u_tensor(y, len(X), device)
        split, straight, likely = Split(train, held, u[train], u[held]), None, np.zeros(self.n_restarts)
        with one_thread():
            if self.columns_ > n:
                straight = self._train(rows, n, y, STRAIGHT_DEPTH, split, seed, device)
                likely, rows = _rest_likely(straight, rows[:, held]), _through(straight, rows)
            unmix = self._train(rows, n, y, self.depth, split, seed, device)
            likely = likely + _likely(unmix, rows[:, held], split.u_held)
        return Fitted(unmix, straight, rows, likely, split, seed)

    def _train(
        self, rows: Array, n: int, y: Any, depth: int, split: "Split", seed: int, device: torch.device
    ) -> FlowGivenU:
        """Train flows on rows (N, m), of every restart its own or one for all, from a linear unmixing of the first n.

        rows has the shape (R, N, m) or (1, N, m).
        """
        m, rng = rows.shape[-1], torch.Generator().manual_seed(seed)
        own, u = [rows[min(r, len(rows) - 1), split.train] for r in range(self.n_restarts)], rows_of(y, split.train)
        linear = [self._linear(y[:, :n], u, seed, restart=r) for r, y in enumerate(own)]
        W = np.stack([np.diag(1 / np.maximum(y.std(0), NOISE[1])) for y in own])
        W[:, :n, :n] = np.stack([one.components_.T for one in linear])
        flow = SoftplusFlow(self.n_restarts, m, depth, start=torch.as_tensor(W, dtype=torch.float32), rng=rng)
        with torch.no_grad():
            flow.bias[:, -1, :n] -= torch.as_tensor(np.stack([one.mean_ @ one.components_.T for one in linear]))
        prior = self._prior(self.n_restarts, n, rng)
        prior.start(np.stack([one.means_ for one in linear]), np.stack([one.scales_ for one in linear]))
        model = FlowGivenU(flow, prior, m).to(device)
        x = as_tensor(rows[:, split.train].transpose(1, 0, 2), device)  # (N, 1 or R, m)
        seen = as_tensor(rows[:, split.held], device).expand(self.n_restarts, -1, -1)
        u_held = split.u_held.expand(self.n_restarts, *split.u_held.shape)

        def loss(batch: Batch, step: Step) -> Tensor:
            return -model(*batch).mean(1)

        @torch.no_grad()
        def prepare(batch: Batch, step: Step) -> Batch:
            every, u = batch  # a batch holds the rows of all restarts: each takes its own
            x = torch.stack([b[:, min(r, len(rows) - 1)] for r, b in enumerate(every)])
            if m > n:
                x = x + step.annealed["noise"] * torch.randn(x.shape, generator=step.rng, device=device)
            return x, u

        def criterion() -> Tensor:
            return -model(seen, u_held).mean(1)

        slower = max(1.0, m / MANY_COLUMNS)
        plan = Plan(
            round(slower * self.max_steps),
            self.batch_size,
            self.learning_rate / slower,
            warm_up=0.1,
            clip=5.0,
            anneal={"noise": Anneal(*NOISE)},
        )
        # While rows are straightened, noise makes the records incomparable: the last is taken.
        self.history_ = minimise(
            model,
            loss,
            [x, split.u_train],
            plan,
            seed=seed,
            criterion=criterion if m == n else None,
            prepare=prepare,
            capture=m <= CAPTURED,
            verbose=self.verbose,
        )
        self._standardise(model, rows[:, split.train], n)
        return model

    @torch.no_grad()
    def _standardise(self, model: FlowGivenU, rows: Array, n: int) -> None:
        """Give every latent unit variance over the rows (1 or R, N, m), and mean 0 where the family has means."""
        t, like = torch.as_tensor(_through(model, rows)), model.log_rest
        unit = t.std(1).clamp(min=1e-12)
        shift = t.mean(1) if self.family_ == "gaussian" else torch.zeros_like(unit)
        rest = rows.shape[-1] - n
        scales, shifts = (torch.nn.functional.pad(v, (0, rest), value=c) for v, c in ((1 / unit, 1.0), (shift, 0.0)))
        model.flow.then(torch.diag_embed(scales).to(like), (-shifts * scales).to(like))
        model.prior.rescale(shift.to(like), unit.to(like))

    # -- coordinates ----------------------------------------------------------------

    def _reduce(self, X: FloatArray) -> int:
        """Set the principal components of standardised columns; return the number of latents.

        With fewer latents than those, components narrower than the noise that straightening adds are left out of it.
        """
        reduction = Reduction.of(X, None)
        if self.n_latents is not None and self.n_latents > reduction.n:
            raise DataError(
                f"A flow finds at most as many latents as X has rank: n_latents={self.n_latents}, "
                f"rank={reduction.n}, n_features={X.shape[1]}."
            )
        n = reduction.n if self.n_latents is None else self.n_latents
        wide = int((reduction.variances > NOISE[1] ** 2).sum())
        self.columns_ = n if n == reduction.n else max(n, wide)
        self.mean_, self.scale_ = reduction.mean, reduction.scale
        self.vectors_ = reduction.vectors[:, : reduction.n].copy()
        self.rest_scale_ = np.sqrt(reduction.variances[self.columns_ :])
        return n

    def _project(self, X: FloatArray) -> Array:
        """Return the components (N, m) that go through the flow."""
        return ((X - self.mean_) / self.scale_) @ self.vectors_[:, : self.columns_]

    @torch.no_grad()
    def _latents(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return latents (N, n) and the part of log p(x | u) that does not depend on u (N,)."""
        module, device = self._module_for(X)
        parts = [module.latents(as_tensor(y, device, X.dtype)) for y in blocks_of_rows(self._project(X))]
        z, value = (torch.cat(v).cpu().numpy() for v in zip(*parts, strict=True))
        return z, value

    def _observations(self, z: FloatArray, rest: FloatArray) -> FloatArray:
        module, device = self._module_for(z)
        parts = zip(blocks_of_rows(z), blocks_of_rows(rest), strict=True)
        found = [module.inverse(as_tensor(a, device, z.dtype), as_tensor(b, device, z.dtype)) for a, b in parts]
        y = torch.cat(found).cpu().numpy()
        return (y @ self.vectors_[:, : self.columns_].T * self.scale_ + self.mean_).astype(z.dtype)

    def _build(self, members: int, rng: torch.Generator | None = None) -> ManifoldFlow:
        n, m = self.n_used_, self.columns_
        straight = FlowGivenU(SoftplusFlow(members, m, STRAIGHT_DEPTH, rng=rng), self._prior(members, n), m)
        unmix = FlowGivenU(SoftplusFlow(members, n, self.depth, rng=rng), self._prior(members, n), n)
        return ManifoldFlow(straight if m > n else None, unmix)

    def _module_for(self, rows: FloatArray) -> tuple[ManifoldFlow, torch.device]:
        """Return the fitted model in the precision of the rows: float64 in, float64 all the way."""
        module = in_precision_of(self.module_, rows)
        return module, module.unmix.flow.weight.device

    def _check_parameters(self) -> None:
        self._check_given()
        self._require("depth", is_integer(self.depth, 2), "an integer >= 2")
        self._require("max_steps", is_integer(self.max_steps, 1), "an integer >= 1")
        self._require("batch_size", is_integer(self.batch_size, 2), "an integer >= 2")
        self._require("learning_rate", is_real(self.learning_rate, 0), "a number > 0")


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows held out, and their u as the prior takes it."""

    train: NDArray[np.int64]
    held: NDArray[np.int64]
    u_train: Tensor
    u_held: Tensor


@dataclass(frozen=True)
class Fitted:
    """Trained flows of all restarts, and the rows (1 or R, N, n) that go through the second of them.

    likely (R,) is the mean log-likelihood of held-out rows, up to a constant.
    """

    unmix: FlowGivenU
    straight: FlowGivenU | None
    rows: Array
    likely: Array
    split: Split
    seed: int


@torch.no_grad()
def _through(model: FlowGivenU, rows: Array) -> Array:
    """Return the first n coordinates (R, N, n) that flows make of rows (1 or R, N, m)."""
    device, n = model.log_rest.device, model.prior.n
    parts = [
        model.flow(as_tensor(rows[:, i : i + BLOCK], device).expand(len(model.log_rest), -1, -1))[0][..., :n]
        for i in range(0, rows.shape[1], BLOCK)
    ]
    return torch.cat(parts, 1).double().cpu().numpy()


@torch.no_grad()
def _likely(model: FlowGivenU, rows: Array, u: Tensor) -> Array:
    """Return the mean log-likelihood (R,) of rows (1 or R, M, n) given u."""
    members = len(model.log_rest)
    value = model(as_tensor(rows, u.device).expand(members, -1, -1), u.expand(members, *u.shape)).mean(1)
    return value.nan_to_num(-np.inf).double().cpu().numpy()


@torch.no_grad()
def _rest_likely(model: FlowGivenU, rows: Array) -> Array:
    """Return what straightening adds to the mean log-likelihood (R,) of rows (1, M, m)."""
    t, log_det = model.flow(as_tensor(rows, model.log_rest.device).expand(len(model.log_rest), -1, -1))
    rest = log_normal(t[..., model.prior.n :], torch.zeros_like(model.log_rest), model.log_rest).sum(-1)
    return (rest + log_det).mean(1).nan_to_num(-np.inf).double().cpu().numpy()
