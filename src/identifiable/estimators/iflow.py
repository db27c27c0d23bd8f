r"""IFlow: the flow-based special case of the iVAE model, by exact maximum likelihood given u.

Model (Khemakhem et al. 2020, section 3.1, without noise): x = f(z), z | u ~ Π_i p(z_i | u) from an exponential family.
With an invertible flow t = g(x) the likelihood is exact:

    max_g,λ  E log p_λ(g(x) | u) + log|det dg/dx|.

The flow starts at the linear solution, `SegmentUnmixing`. With fewer latents than columns, x lies on or near a manifold
of n dimensions. A first flow straightens it, h(x) = (y, r): y is passed to the second flow, r is the residual,

    log p(x | u) = log p_λ(g(y) | u) + log|det dg/dy| + log N(r; 0, diag σ²) + log|det dh/dx|.

The first flow is trained on rows with a little noise that decreases during training, because the density of rows that
lie exactly on a manifold is unbounded. A linear projection to n components instead would fold a curved manifold.
"""

from collections.abc import Generator
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from identifiable.algorithms.coordinates import Coordinates
from identifiable.arrays import Array, FloatArray
from identifiable.distributions.densities import log_normal
from identifiable.estimators.given_u import GivenU, PriorGivenU
from identifiable.estimators.trained import BLOCK, LatentModule, Split, TrainedModel
from identifiable.flows import SoftplusFlow
from identifiable.nets import as_tensor
from identifiable.theory import Certificate
from identifiable.training import SETTLED_FROM, Anneal, Batch, History, Plan, Stage, Step

NOISE = 0.1, 0.02  # added to rows while a manifold is straightened: start and end, in sd of a column
STRAIGHT_DEPTH = 8
MANY_COLUMNS = 20  # above, the learning rate is lower and the steps are more
SMALL = 10  # columns up to which one thread is faster, and a GPU records steps (determinants above cannot be recorded)


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
        value = self.prior.log_density(t[..., :n], *self.prior(u)) + log_det
        return value + log_normal(t[..., n:], torch.zeros_like(self.log_rest), self.log_rest).sum(-1)


class ManifoldFlow(LatentModule):
    """Rows y -> (first flow, where there is one) -> flow -> latents; R members.

    The prior of the first flow is dropped: its family may differ from that of the straightened latents.
    """

    def __init__(self, straight: FlowGivenU | None, unmix: FlowGivenU) -> None:
        super().__init__()
        self.straight, self.unmix = None if straight is None else straight.flow, unmix
        self.log_rest = nn.Parameter(unmix.log_rest.clone() if straight is None else straight.log_rest)

    def forward(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return latents (R, B, n) and the part of log p(y | u) that does not depend on u (R, B), for y (R, B, m)."""
        value = torch.zeros_like(y[..., 0])
        if self.straight is not None:
            t, value = self.straight(y)
            y, residual = t.split([self.unmix.prior.n, self.log_rest.shape[-1]], -1)
            value = value + log_normal(residual, torch.zeros_like(residual), self.log_rest).sum(-1)
        t, log_det = self.unmix.flow(y)
        return t, value + log_det

    def latents(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the latents (R, B, n) of rows x (R, B, m), the same for every u."""
        return self(x)[0]

    def observations(self, z: Tensor, residual: Tensor | None = None) -> Tensor:
        """Return rows (R, B, m) of latents z and a residual (R, B, m - n) in standard deviations, or zero."""
        y = self.unmix.flow.inverse(z)
        if self.straight is None:
            return y
        residual = self.log_rest.exp() * (torch.zeros_like(self.log_rest) if residual is None else residual)
        return self.straight.inverse(torch.cat([y, residual.expand(*y.shape[:2], -1)], -1))


@dataclass(eq=False, repr=False)
class IFlow(GivenU, TrainedModel):
    """Recover latents that are independent given an observed u, by an invertible map with exact likelihood.

    Parameters
    ----------
    n_latents : int or None, default=None. Number of latents n. None uses the rank of X. With fewer, another flow first
        straightens the manifold of the data onto n coordinates.
    n_restarts : int, default=3. Flows trained in one batch. Their agreement is `stability_`; the one with the highest
        held-out likelihood is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    family : {"auto", "variance", "gaussian", "laplace"}, default="auto". Distribution of a latent given u: "variance"
        (Gaussian, mean 0), "gaussian" (mean and variance) or "laplace" (centred). "auto" uses "gaussian" where the
        means of the data change with u, else "variance".
    prior : {"auto", "table", "net"}, default="auto". Source of the parameters of the prior: a table of the values of u
        or a net of its features. "auto" uses a table unless some column of u is continuous.
    u_types, n_groups : types of the columns of u, and the number of its groups; see `Auxiliary.of`.
    depth : int, default=12. Layers of the flow.
    max_steps : int, default=3000. Training steps of each flow.
    batch_size : int, default=512.
    learning_rate : float, default=0.03. Peak rate of Adam, with warm-up and cosine decay.

    Attributes
    ----------
    module_ : `ManifoldFlow`. The kept flow and its prior.
    coordinates_ : `Coordinates` in which the flow works.
    auxiliary_ : `Auxiliary`. How u is read.
    family_, table_ : what "auto" selected.
    conditional_prior_ : `ConditionalPrior`. The distribution of the latents in each group of u, with bootstrap copies.
    restart_scores_ : (R,) held-out log-likelihood per row, up to a constant.
    kept_ : the restart that was kept.
    history_ : `History` of the last training.
    stability_, fit_status_ : agreement between restarts.
    certificate_ : `Certificate`. What is identified, and why.

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
    flow and its training are ours.
    """

    n_latents: int | None = None  # type: ignore[assignment]
    _: KW_ONLY
    n_restarts: int = 3
    depth: int = 12
    max_steps: int = 3000
    batch_size: int = 512
    learning_rate: float = 0.03

    module_: ManifoldFlow = field(init=False)
    coordinates_: Coordinates = field(init=False)
    n_used_: int = field(init=False)

    @property
    def _n_features_out(self) -> int:
        return self.n_used_

    def latents_of_restarts(self, X: ArrayLike, u: Any = None) -> FloatArray:
        """Return the latents (R, N, n) of every restart, the same for every u. Restarts are not saved to files."""
        return super().latents_of_restarts(X)

    def score_samples(self, X: ArrayLike, u: Any = None) -> FloatArray:
        """Return log p(x | u) of each row (N,), in nats and in the units of the data.

        Without u it is log Σ_g w_g p(x | g) over the groups g of u. Columns that are a linear function of the others
        carry no density and are left out.
        """
        X = self._check_new_data(X)
        given = None if u is None else self._u_inputs(u, len(X))
        inside = self._apply(self._log_prob, self._inputs(X), given)[0] - self.coordinates_.log_volume
        return inside + norm.logpdf(self.coordinates_.project(X)[1], scale=self._residual_sd).sum(1)

    def sample(
        self, n_samples: int = 1, u: Any = None, random_state: int | np.random.RandomState | None = None
    ) -> FloatArray:
        """Draw rows (n_samples, d). u is one value for all rows or one per row; None draws groups by their weights."""
        generator, c = self._generator(n_samples, random_state), self.coordinates_
        z = self.sample_latents(n_samples, u, generator)
        residual = generator.standard_normal((n_samples, c.n - self.n_used_))
        y = self._apply(lambda module, *latents: module.observations(*latents), z, residual)[0]
        return c.lift(y, self._residual_sd * generator.standard_normal((n_samples, c.rank - c.n)))

    @property
    def _kept_prior(self) -> PriorGivenU:
        return self.module_.unmix.prior

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, and why: Theorems 1 and 3 on the learnt prior given u."""
        check_is_fitted(self)
        return self._certificate("none" if self.coordinates_.n == self.n_used_ else None, True)

    # -- training -------------------------------------------------------------------

    def _set_inputs(self, data: Split) -> None:
        """Set principal coordinates: as many as latents, or all that vary more than the noise of straightening."""
        self.n_used_ = n = self._fit_coordinates(data.X_train).n
        full = Coordinates.fit(data.X_train)
        wide = int((full.variances > NOISE[1] ** 2).sum())
        self.coordinates_ = replace(full, n=n if n == full.rank else max(n, wide))

    def _stages(self, data: Split) -> Generator[Stage, History, ManifoldFlow]:
        """Straighten the manifold, where there are fewer latents than coordinates; then unmix."""
        rows, straight = self.coordinates_.project(data.X)[0][None], None  # (1 or R, N, m)
        if self.coordinates_.n > self.n_used_:
            straight = self._initial(rows, STRAIGHT_DEPTH, data)
            self.history_ = yield self._stage(straight, rows, data)
            self._standardise(straight, rows[:, data.train])
            rows = _latents_of(straight, rows)
        unmix = self._initial(rows, self.depth, data)
        self.history_ = yield self._stage(unmix, rows, data)
        self._standardise(unmix, rows[:, data.train])
        return ManifoldFlow(straight, unmix)

    def _initial(self, rows: Array, depth: int, data: Split) -> FlowGivenU:
        """Return flows on rows (1 or R, N, m) that start at a linear unmixing of the first n coordinates."""
        n, m, R, rng = self.n_used_, rows.shape[-1], self.n_restarts, data.rng()
        each = np.broadcast_to(rows[:, data.train], (R, len(data.train), m))
        linear = [self._linear(y[:, :n], data.u_train, data.seed, restart=r) for r, y in enumerate(each)]
        W = np.stack([np.diag(1 / np.maximum(y.std(0), NOISE[1])) for y in each])
        W[:, :n, :n] = np.stack([one.components_.T for one in linear])
        flow = SoftplusFlow(R, m, depth, start=torch.as_tensor(W, dtype=torch.float32), rng=rng)
        with torch.no_grad():
            flow.bias[:, -1, :n] -= torch.as_tensor(np.stack([one.mean_ @ one.components_.T for one in linear]))
        prior = self._prior(R, n, rng)
        prior.start(np.stack([one.means_ for one in linear]), np.stack([one.scales_ for one in linear]))
        return FlowGivenU(flow, prior, m).to(data.device)

    def _stage(self, model: FlowGivenU, rows: Array, data: Split) -> Stage:
        """Return the maximum-likelihood stage of flows on rows (1 or R, N, m)."""
        own, m, R, device = len(rows) > 1, rows.shape[-1], self.n_restarts, data.device
        u = self._u_tensor(data.u, rows.shape[1], device)
        x = as_tensor(rows.transpose(1, 0, 2), device)  # (N, 1 or R, m)
        x_held, u_held = x[data.held].transpose(0, 1).expand(R, -1, -1), u[data.held]

        @torch.no_grad()
        def prepare(batch: Batch, step: Step) -> Batch:
            every, given = batch  # (R, B, 1 or R, m): each member takes its own rows
            x = torch.stack([b[:, r if own else 0] for r, b in enumerate(every)])
            if m > self.n_used_:
                x = x + step.annealed["noise"] * torch.randn(x.shape, generator=step.rng, device=device)
            return x, given

        slower = max(1.0, m / MANY_COLUMNS)
        steps, rate = round(slower * self.max_steps), self.learning_rate / slower
        plan = Plan(
            steps,
            self.batch_size,
            rate,
            warm_up=0.1,
            clip=5.0,
            settled_from=SETTLED_FROM,
            anneal={"noise": Anneal(*NOISE)},
        )
        # Records are not comparable while noise decreases: a straightening flow keeps the last one.
        criterion = None if m > self.n_used_ else lambda: -model(x_held, u_held.expand(R, *u_held.shape))
        return Stage(
            model,
            lambda batch, step: -model(*batch).mean(1),
            [x[data.train], u[data.train]],
            plan,
            data.seed,
            criterion=criterion,
            prepare=prepare,
            capture=m <= SMALL,
        )

    @torch.no_grad()
    def _standardise(self, model: FlowGivenU, rows: Array) -> None:
        """Give every latent unit variance over the rows (1 or R, N, m), and mean 0 where the family has means."""
        t, like = torch.as_tensor(_latents_of(model, rows)), model.log_rest
        unit = t.std(1).clamp(min=1e-12)
        shift = t.mean(1) if self.family_ == "gaussian" else torch.zeros_like(unit)
        others = rows.shape[-1] - self.n_used_
        scales, shifts = (nn.functional.pad(v, (0, others), value=c) for v, c in ((1 / unit, 1.0), (shift, 0.0)))
        model.flow.then(torch.diag_embed(scales).to(like), (-shifts * scales).to(like))
        model.prior.rescale(shift.to(like), unit.to(like))

    def _set_results(self, data: Split) -> None:
        self._set_conditional_prior(self._latents(data.X_train)[0], data)

    @property
    def _one_thread(self) -> bool:
        return self.coordinates_.n <= SMALL

    # -- rows and modules -------------------------------------------------------------

    @property
    def _residual_sd(self) -> Array:
        return np.sqrt(self.coordinates_.variances[self.coordinates_.n :])

    def _inputs(self, X: FloatArray) -> FloatArray:
        return self.coordinates_.project(X)[0].astype(X.dtype)

    def _observed(self, rows: FloatArray, dtype: Any) -> FloatArray:
        return self.coordinates_.lift(rows).astype(dtype)

    def _log_prob(self, module: ManifoldFlow, x: Tensor, u: Tensor | None = None) -> Tensor:
        t, value = module(x)
        return value + self._log_prior_given(module.unmix.prior, t, u)

    def _build(self, members: int, rng: torch.Generator | None = None) -> ManifoldFlow:
        n, m = self.n_used_, self.coordinates_.n
        straight = FlowGivenU(SoftplusFlow(members, m, STRAIGHT_DEPTH, rng=rng), self._prior(members, n), m)
        unmix = FlowGivenU(SoftplusFlow(members, n, self.depth, rng=rng), self._prior(members, n), n)
        return ManifoldFlow(straight if m > n else None, unmix)

    def _check_parameters(self) -> None:
        self._check_given()
        self._require_integers(depth=2, max_steps=1, batch_size=2)
        self._require_positive("learning_rate")


@torch.no_grad()
def _latents_of(model: FlowGivenU, rows: Array) -> Array:
    """Return the first n coordinates (R, N, n) that flows make of rows (1 or R, N, m)."""
    device, n, R = model.log_rest.device, model.prior.n, len(model.log_rest)
    blocks = [as_tensor(rows[:, i : i + BLOCK], device).expand(R, -1, -1) for i in range(0, rows.shape[1], BLOCK)]
    return torch.cat([model.flow(block)[0][..., :n] for block in blocks], 1).double().cpu().numpy()
