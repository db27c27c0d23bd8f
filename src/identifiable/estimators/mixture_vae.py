r"""A variational autoencoder whose prior is a Gaussian mixture, or a product of several; VaDE and MFCVAE share it.

Latents are cut into facets z = (z_1, ..., z_J), each with a hidden cluster u_j and a learnt mixture, here diagonal,

    p(z) = Π_j p(z_j),     p(z_j) = Σ_k w_jk N(z_j; μ_jk, diag σ_jk²).

With q(z, u | x) = q(z | x) q(u | x) the bound is (Willetts & Paige 2021, eq. 5; Falck et al. 2021)

    L = E_q log p(x | z) - KL[q(z | x) || p(z)] - E_q(z|x) KL[q(u | x) || p(u | z)],

highest at q(u_j | x) ∝ exp E_q log w_jk N(z_j; k), where, in closed form,

    L = E_q log p(x | z) + H[q(z | x)] + Σ_j log Σ_k exp E_q log w_jk N(z_j; k).                            "factorised"

If q(u | x) may depend on the draw z, the last divergence is zero (eq. 6), and one draw estimates

    L = E_q log p(x | z) + H[q(z | x)] + Σ_j E_q log p(z_j),                                             "single-sample"

which is higher: log Σ exp is convex, so E log Σ_k e^a_k >= log Σ_k e^(E a_k).
"""

import math
import warnings
from abc import abstractmethod
from collections.abc import Generator
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.linalg import block_diag
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from identifiable.algorithms.directions import Directions, directions
from identifiable.algorithms.factorial import ROWS_PER_COMPONENT, moments, most_likely_mixture
from identifiable.arrays import BoolArray, FloatArray, hold_out
from identifiable.distributions.mixture import Mixture, product_of
from identifiable.errors import DataError, RecoveryWarning
from identifiable.estimators.autoencoder import Autoencoder, Likelihood, Posterior
from identifiable.estimators.gmm_flow import DEPTH, FLATTEST, GMMFlow
from identifiable.estimators.trained import BLOCK, Split
from identifiable.estimators.variational import VariationalAutoencoder
from identifiable.nets import Architecture, as_tensor, select_members
from identifiable.priors.mixture import MixtureBase
from identifiable.theory import Certificate, Decoder, full_rank
from identifiable.theory.independence import Correlations, check_fit, check_other_components
from identifiable.training import Batch, History, Loss, Plan, Stage, Step

BOUNDS = "single-sample", "factorised"
STARTS = "auto", "flow", "autoencoder", "linear", "random"
MOST_FLOWN = 20  # latents up to which "auto" starts at a flow
FULL = 10  # latents up to which "auto" gives the posterior a full covariance
DIRECTION_ROWS = 200  # held-out rows at which the decoder is differentiated
MIXTURE_ROWS, EM_STEPS, EM_TRIES = 20_000, 60, 5  # rows that a mixture starts from, steps of EM and how often
FLOW_STEPS = 3000
RATE, RATE_AFTER_FLOW = 2e-3, 3e-5  # after a flow the noise is small, and steps must be small too
LEAST_NOISE = 3e-3  # at which training starts after a flow
FIRST_BETA = 0.1
NARROW = 0.1  # standard deviation of q after the autoencoder, as a share of that of the latents
DEGENERATE = 1e-10  # variance of a direction, as a share of the largest, below which rows do not vary along it
PULL = 1e-3  # weight of the pull of the latents of the autoencoder to zero, which fixes their scale


class Facet(NamedTuple):
    """A part of the latents with its own mixture."""

    latents: slice
    components: int


class MixtureAutoencoder(Autoencoder):
    """Encoder, decoder and a mixture for every facet; R members. A gate of 0 closes a latent to the decoder."""

    gate: Tensor

    def __init__(
        self,
        members: int,
        inputs: int,
        facets: tuple[Facet, ...],
        net: Architecture,
        likelihood: Likelihood,
        *,
        full: bool,
        diagonal: bool,
        bypass: bool,
        bends: int,
        rng: torch.Generator | None,
    ) -> None:
        n = facets[-1].latents.stop
        super().__init__(members, inputs, n, net, likelihood, full=full, bypass=bypass, bends=bends, rng=rng)
        self.facets = facets
        self.bases = nn.ModuleList(
            MixtureBase(members, one.components, one.latents.stop - one.latents.start, diagonal=diagonal)
            for one in facets
        )
        self.register_buffer("gate", torch.ones(members, 1, n))

    def decode(self, z: Tensor) -> Tensor:
        """Return the inputs of `likelihood`, (R, B, columns)."""
        return super().decode(z * self.gate)

    def xavier(self, rng: torch.Generator) -> None:
        """Draw means and log-variances uniformly, with the width of a layer from components to latents."""
        with torch.no_grad():
            for base in self.bases:
                assert isinstance(base, MixtureBase)
                wide = math.sqrt(6 / sum(base.means.shape[1:]))
                for parameter, share in ((base.means, 1.0), (base.log_factors, 0.5)):
                    parameter.copy_((torch.rand(parameter.shape, generator=rng) * 2 - 1) * wide * share)


@dataclass(eq=False, repr=False)
class MixtureVAE(VariationalAutoencoder):
    """The bound, the initialisation, clusters and samples, facet by facet."""

    _: KW_ONLY
    bound: str = "single-sample"
    first_beta: float | None = None
    init: str = "auto"
    pretrain_steps: int | None = None
    posterior: str = "auto"
    covariance_type: str = "diagonal"
    learning_rate: float | None = None

    module_: MixtureAutoencoder = field(init=False)
    n_components_: tuple[int, ...] = field(init=False)
    n_rows_: int = field(init=False)
    free_mixtures_: tuple[Mixture, ...] = field(init=False)
    dependence_: Correlations = field(init=False)  # of the last facet
    directions_: Directions | None = field(default=None, init=False)  # None in files of version 0.1

    @abstractmethod
    def _facets(self) -> tuple[Facet, ...]:
        """Return the parts of the latents with their numbers of components."""

    @property
    def _first_beta(self) -> float:
        if self.first_beta is not None:
            return self.first_beta
        return 1.0 if self._init in ("flow", "random") else FIRST_BETA

    # -- the bound --------------------------------------------------------------------

    def _divergence(self, module: MixtureAutoencoder, q: Posterior, z: Tensor, inputs: Batch, rows: int) -> Tensor:
        """KL(q || p(z)); a closed facet does not count, because q may equal p there."""
        if self.bound == "single-sample":
            each = _log_densities(module, z)
        else:
            each = [torch.logsumexp(_expected(base, q, part), -1) for base, part in _parts(module)]
        if len(each) == 1:
            return -q.entropy - each[0]
        value = torch.zeros_like(each[0])
        for log_p, (_, part) in zip(each, _parts(module), strict=True):
            # q factorises over facets, so each facet has its own entropy.
            own = Posterior(q.mean[..., part], q.log_sd[..., part], None).entropy
            value = value - module.gate[:, :, part.start] * (own + log_p)
        return value

    def _log_prior(self, module: MixtureAutoencoder, z: Tensor, x: Tensor, u: Tensor | None = None) -> Tensor:
        return torch.stack(_log_densities(module, z)).sum(0)

    # -- initialisation -----------------------------------------------------------------

    @property
    def _init(self) -> str:
        """What "auto" selects."""
        if self.init != "auto":
            return self.init
        if self.covariance_type == "full":
            return "linear"
        table = self.likelihood == "gaussian" and self.net is None and len(self._facets()) == 1
        return "flow" if table and self.n_latents <= min(MOST_FLOWN, self.n_features_in_) else "autoencoder"

    @property
    def _rate(self) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        return RATE_AFTER_FLOW if self._init == "flow" else RATE

    @property
    def _patience(self) -> int | None:
        """After a flow, which the bound improves little or not at all, a third of `patience`."""
        return -(-self.patience // 3) if self.patience and self._init == "flow" else self.patience

    @property
    def _pretrain_steps(self) -> int:
        if self.pretrain_steps is not None:
            return self.pretrain_steps
        return FLOW_STEPS if self._init == "flow" else self.max_steps

    def _initialise(self, data: Split) -> Generator[Stage, History, MixtureAutoencoder]:
        """Start at random, at the maps of a flow, or at an autoencoder trained without a prior."""
        X, rng = data.X_train, data.rng()
        self.n_rows_ = len(X)
        fewest = ROWS_PER_COMPONENT * (self.n_latents + 1)
        rows = len(hold_out(len(X), data.seed)[0]) if self._init == "flow" else len(X)  # a flow holds out some rows too
        self.n_components_ = tuple(max(1, min(one.components, rows // fewest)) for one in self._facets())
        module = self._build(self.n_restarts, rng)
        module.xavier(rng)
        module = module.to(data.device)
        resumed = self.checkpoint is not None and Path(self.checkpoint).exists()  # it holds better nets than any start
        if self._init == "flow" and not resumed:
            yield from self._start_at_flow(module, data)
        elif self._init in ("autoencoder", "linear") and not resumed:
            yield from self._start_at_autoencoder(module, data, rng)
        return module

    def _start_at_flow(self, module: MixtureAutoencoder, data: Split) -> Generator[Stage, History, None]:
        """Copy the maps and the mixture that `GMMFlow` finds; then train the covariance of q alone."""
        flow = GMMFlow(
            self.n_latents,
            n_restarts=self.n_restarts,
            random_state=data.seed,
            device=str(data.device),
            verbose=self.verbose,
            n_components=self.n_components_[0],
            full_covariance_steps=self._pretrain_steps,
            max_steps=max(1, 2 * self._pretrain_steps // 3),
        )
        vary = np.ptp(data.X_train, axis=0) > 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoveryWarning)
            flow.fit(data.X_train[:, vary])
        self._copy_flow(module, flow, vary)
        rows = as_tensor(self._inputs(data.X_train), data.device)
        module.eval()
        assert module.log_noise is not None
        with torch.no_grad():
            some = rows[:BLOCK].expand(self.n_restarts, -1, -1)
            error = (module.decode(module.encode(some).mean) - some).square().mean(1, keepdim=True).sqrt()
            module.log_noise.copy_(error.log().clamp(min=math.log(LEAST_NOISE)))
        fixed = [p for part in (module.bent_in, module.bent_out, module.bases) for p in part.parameters()]  # type: ignore[union-attr]

        def loss(batch: Batch, step: Step) -> Tensor:
            noise = torch.randn((*batch[0].shape[:-1], module.n), generator=step.rng, device=data.device)
            return -self._bound(module, batch, noise, len(rows)) / batch[0].shape[-1]

        for parameter in fixed:
            parameter.requires_grad_(False)
        yield self._pretraining(module, loss, rows, max(1, self._pretrain_steps // 8), data.seed)
        for parameter in fixed:
            parameter.requires_grad_(True)

    def _pretraining(self, module: MixtureAutoencoder, loss: Loss, rows: Tensor, steps: int, seed: int) -> Stage:
        plan = Plan(steps, self.batch_size, self._rate, clip=1.0)
        return Stage(module, loss, [rows], plan, seed, prepare=self._prepare(module, steps), capture=True)

    @torch.no_grad()
    def _copy_flow(self, module: MixtureAutoencoder, flow: GMMFlow, vary: BoolArray) -> None:
        """Set encoder and decoder to the maps of the flow of some columns and its inverse; the nets add nothing."""
        likely = flow.restart_scores_
        best = int(np.argmax(likely))  # replaces a restart that failed
        kept = select_members(flow._restarts, [r if np.isfinite(likely[r]) else best for r in range(len(likely))])
        assert module.bent_in is not None
        assert module.bent_out is not None
        assert module.into is not None
        assert module.out is not None
        module.bases[0].load_state_dict(kept.base.state_dict())
        module.bent_in.copy_from(kept.flow)
        module.bent_out.copy_from(kept.flow, inverse=True)
        # The flow standardises the columns by its own training rows: e -> (e scale + shift) in its units.
        c = flow.coordinates_
        scale, shift = self.scale_[vary] / c.scale, (self.mean_[vary] - c.mean) / c.scale
        V, columns = c.basis[:, : c.n], torch.as_tensor(np.flatnonzero(vary))
        module.into[:, columns] = torch.as_tensor(scale[:, None] * (V / c.sd)).to(module.into)
        module.bent_in.bias[:, 0] += (
            torch.as_tensor(shift @ (V / c.sd)).to(module.into)[None] @ module.bent_in.weight[:, 0]
        )
        module.out[..., columns] = torch.as_tensor((V * c.sd).T / scale).to(module.out)
        encoder, decoder = module.last_layers
        for layer in (encoder, decoder):
            layer.weight.zero_()
            layer.bias.zero_()
        decoder.bias[..., columns] = torch.as_tensor(-shift / scale).to(decoder.bias)

    def _start_at_autoencoder(
        self, module: MixtureAutoencoder, data: Split, rng: torch.Generator
    ) -> Generator[Stage, History, None]:
        """Train without a prior; then fit a mixture to the latents of every restart.

        With init="linear", the latents are pulled to the principal components, with unit variance.
        """
        rows = as_tensor(self._inputs(data.X_train), data.device)
        linear = _principal(rows, module.n) if self._init == "linear" else None

        def loss(batch: Batch, step: Step) -> Tensor:
            x = self._seen(batch[0], step.rng)
            z = module.encode(x).mean
            error = -module.log_likelihood(x, module.decode(z)).mean(1) / x.shape[-1]
            if linear is not None:
                centre, vectors = linear
                return error + (z - (x - centre) @ vectors).square().mean((1, 2))
            return error + PULL * z.square().mean((1, 2))

        yield self._pretraining(module, loss, rows, self._pretrain_steps, data.seed)
        some = data.X_train[np.random.default_rng(data.seed).permutation(len(rows))[:MIXTURE_ROWS]]
        z = torch.as_tensor(self._latents(some, module=module), dtype=torch.float32, device=data.device)
        z = z.nan_to_num(0.0, 0.0, 0.0)
        for base, part in _parts(module):
            if base.off is None:
                base.learn(z[..., part], steps=EM_STEPS, rng=rng, tries=EM_TRIES)
            else:
                own = z[..., part].double().cpu().numpy()
                found = [
                    most_likely_mixture(rows, base.means.shape[1], data.seed + r, tries=EM_TRIES)
                    for r, rows in enumerate(own)
                ]
                base.load_state_dict(MixtureBase.of(found, diagonal=False).state_dict())
        module.widen(z.std(1).clamp(min=1e-6).log() + math.log(NARROW))

    # -- results of a fit ---------------------------------------------------------------

    def mixtures_of_restarts(self, facet: int = 0) -> tuple[Mixture, ...]:
        """Return the mixture that every restart has learnt. Available after `fit`; restarts are not saved to files."""
        base = cast(MixtureBase, self._trained_restarts().bases[facet])
        return tuple(base.mixture(r) for r in range(self.n_restarts))

    def _cluster_probabilities(self, X: ArrayLike, facet: int) -> FloatArray:
        """q(u | x) of eq. (5), (N, K), components as numbered in the mixture."""
        X = self._check_new_data(X)
        if not 0 <= facet < len(self.n_components_):
            raise DataError(f"facet must lie between 0 and {len(self.n_components_) - 1}. Got {facet}.")
        return self._memberships(X, facet)[:, cast(MixtureBase, self.module_.bases[facet]).order()]

    def _memberships(self, X: FloatArray, facet: int) -> FloatArray:
        """Return q(u | x) of checked rows (N, K), components as numbered in the module."""

        def memberships(module: MixtureAutoencoder, x: Tensor) -> Tensor:
            q, (base, part) = module.encode(x), _parts(module)[facet]
            return torch.softmax(_expected(base, q, part), -1)

        return self._apply(memberships, self._inputs(X))[0]

    def _mixture(self, facet: int) -> Mixture:
        check_is_fitted(self)
        base = self.module_.bases[facet]
        assert isinstance(base, MixtureBase)
        return base.mixture()

    def _set_results(self, data: Split) -> None:
        """Set the directions in use, and the mixture of each facet's posterior means, with full covariances."""
        some = data.X_train[np.random.default_rng(0).permutation(len(data.train))[:MIXTURE_ROWS]]
        z, found = self._latents(some)[0].astype(np.float64), []
        for j, facet in enumerate(self._facets()):
            own, share = z[:, facet.latents], self._memberships(some, j).astype(np.float64)
            fewest = min(ROWS_PER_COMPONENT * (own.shape[1] + 1), len(some))
            found.append(moments(own, share, fewest=fewest, pseudo=0.0))
            self.dependence_ = Correlations.of_sizes(own, share)
        self.free_mixtures_ = tuple(found)
        self.directions_ = self._directions(data.X_held[:DIRECTION_ROWS])

    def _directions(self, X: FloatArray) -> Directions:
        """Return the directions of the latents that the decoder uses at the posterior means of checked rows."""

        def information(module: MixtureAutoencoder, x: Tensor) -> Tensor:
            q = module.encode(x)
            units = torch.eye(module.n, dtype=q.mean.dtype, device=q.mean.device)
            J = torch.stack(
                [torch.func.jvp(module.decode, (q.mean,), (one.expand_as(q.mean),))[1] for one in units], -1
            )
            within = torch.zeros_like(q.covariance)
            for base, part in _parts(module):
                within[..., part, part] = base.mean_precision(torch.softmax(_expected(base, q, part), -1))
            return torch.cat([module.likelihood.roots_of_information(module.decode(q.mean), J), within], -2)

        prior = block_diag(*(self._mixture(j).covariance for j in range(len(self.n_components_))))
        found, likelihood = torch.as_tensor(self._apply(information, self._inputs(X))[0]), self.module_.likelihood
        A, within = found.split([likelihood.columns, len(prior)], 1)
        return directions(A, within, prior, likelihood.levels or (1,) * likelihood.columns)

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, and why.

        The components of the posterior means are certified with full covariances, whether or not the model restricts
        them to be diagonal, and the decoder is checked if it is piecewise affine. The level is "none", since one fit
        does not show that another number of components gives the same latents; `if_undecided_hold` has the level if it
        does, and if the decoder is injective and piecewise affine.
        """
        check_is_fitted(self)
        decoder = Decoder.of(self.module_.decoder) if self.module_.out is None else None
        known = decoder if decoder is not None and not decoder.unreadable else None
        mixture = self.free_mixtures_[0] if len(self.free_mixtures_) == 1 else product_of(self.free_mixtures_)
        found = full_rank.certify(mixture, decoder=known, rows=min(self.n_rows_, MIXTURE_ROWS), tolerance=FLATTEST)
        others = check_other_components(len(mixture.weights))
        if len(self.free_mixtures_) > 1:
            return self._certified(found, others)
        return self._certified(found, check_fit(getattr(self, "dependence_", None), "component"), others)

    # -- nets -------------------------------------------------------------------------------

    def _build(self, members: int, rng: torch.Generator | None = None) -> MixtureAutoencoder:
        facets = tuple(Facet(one.latents, k) for one, k in zip(self._facets(), self.n_components_, strict=True))
        full = self.posterior == "full" or (self.posterior == "auto" and self.n_latents <= FULL)
        return MixtureAutoencoder(
            members,
            self._n_inputs,
            facets,
            self._architecture(),
            self._likelihood(members),
            full=full and len(facets) == 1,
            diagonal=self.covariance_type == "diagonal",
            bypass=self._init == "flow",
            bends=DEPTH["leaky"] if self._init == "flow" else 0,
            rng=rng,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require("bound", self.bound in BOUNDS, f"one of {BOUNDS}")
        self._require_positive("first_beta", optional=True)
        self._require("init", self.init in STARTS, f"one of {STARTS}")
        self._require("covariance_type", self.covariance_type in ("diagonal", "full"), "'diagonal' or 'full'")
        flows = self.init != "flow" or (self.likelihood == "gaussian" and self.covariance_type == "diagonal")
        others = "one of ('auto', 'autoencoder', 'linear', 'random')"
        self._require("init", flows, f"{others} unless likelihood='gaussian' and covariance_type='diagonal'")
        self._require_integers(pretrain_steps=1, optional=True)
        self._require("posterior", self.posterior in ("auto", "full", "diagonal"), "'auto', 'full' or 'diagonal'")


def _principal(rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the centre (d,) of rows (N, d), and vectors (d, n) that give their principal components, unit variance."""
    centre = rows.mean(0)
    covariance = torch.cov(rows.double().mT)
    values, vectors = torch.linalg.eigh(covariance)
    rank = int((values > DEGENERATE * values[-1]).sum())
    if n > rank:
        raise DataError(
            f"init='linear' finds at most as many latents as X has rank: n_latents={n}, rank={rank}. Lower n_latents, "
            "or use init='autoencoder'."
        )
    scaled = vectors[:, -n:].flip(-1) / values[-n:].flip(0).sqrt()
    return centre, scaled.to(rows)


def _parts(module: MixtureAutoencoder) -> list[tuple[MixtureBase, slice]]:
    return [(base, one.latents) for base, one in zip(module.bases, module.facets, strict=True)]  # type: ignore[misc]


def _expected(base: MixtureBase, q: Posterior, part: slice) -> Tensor:
    """E_q log w_k N(z_j; k), (R, B, K), of a facet."""
    return base.expected(
        q.mean[..., part], q.variance[..., part] if base.off is None else q.covariance[..., part, part]
    )


def _log_densities(module: MixtureAutoencoder, z: Tensor) -> list[Tensor]:
    """Log p(z_j), (R, B), of every facet."""
    return [base.log_density(z[..., part]) for base, part in _parts(module)]
