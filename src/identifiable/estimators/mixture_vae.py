r"""A variational autoencoder whose prior is a Gaussian mixture, or a product of several: what VaDE and MFCVAE share.

Latents are cut into facets z = (z_1, ..., z_J), each with a hidden cluster u_j and a learnt diagonal mixture

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
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from identifiable.algorithms.factorial import moments
from identifiable.arrays import Array, FloatArray, hold_out, is_integer, is_real
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError, RecoveryWarning
from identifiable.estimators.autoencoder import Autoencoder, Likelihood, Posterior
from identifiable.estimators.gmm_flow import DEPTH, FLATTEST, ROWS_PER_COMPONENT, GMMFlow
from identifiable.estimators.variational import BLOCK, VariationalAutoencoder, _blocks
from identifiable.flows.flows import SmoothLeakyFlow
from identifiable.nets import Architecture, select_members
from identifiable.priors.mixture import MixtureBase
from identifiable.theory import Certificate, Decoder, full_rank
from identifiable.training import Batch, Plan, Step, minimise

BOUNDS = "single-sample", "factorised"
STARTS = "auto", "flow", "autoencoder", "linear", "random"
MOST_FLOWN = 20  # latents up to which a flow is the start
FULL = 10  # latents up to which "auto" gives the posterior a full covariance
MIXTURE_ROWS, EM_STEPS, EM_TRIES = 20_000, 60, 5  # rows that a mixture starts from, steps of EM and how often
FLOW_STEPS = 4000
RATE, RATE_AFTER_FLOW = 2e-3, 3e-5  # the noise is then small, and so must steps be
LEAST_NOISE = 3e-3  # that training starts with after a flow
FIRST_BETA = 0.1
NARROW = 0.1  # log of q's standard deviation after the autoencoder, beside that of the latents: log of this share
FLAT = 1e-10  # variance of a direction, beside the largest, below which rows do not vary along it
PULL = 1e-3  # on the latents of the autoencoder towards zero, which gives them a scale


class Facet(NamedTuple):
    """A part of the latents with a mixture of its own."""

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
        bypass: bool,
        bends: int,
        rng: torch.Generator | None,
    ) -> None:
        n = facets[-1].latents.stop
        super().__init__(members, inputs, n, net, likelihood, full=full, bypass=bypass, bends=bends, rng=rng)
        self.facets = facets
        self.bases = nn.ModuleList(
            MixtureBase(members, one.components, one.latents.stop - one.latents.start, diagonal=True) for one in facets
        )
        self.register_buffer("gate", torch.ones(members, 1, n))

    def decode(self, z: Tensor) -> Tensor:
        """Return what `likelihood` takes, (R, B, columns)."""
        return super().decode(z * self.gate)

    def xavier(self, rng: torch.Generator) -> None:
        """Draw means and log-variances uniformly, as wide as a layer from components to latents would be."""
        with torch.no_grad():
            for base in self.bases:
                assert isinstance(base, MixtureBase)
                wide = math.sqrt(6 / sum(base.means.shape[1:]))
                for parameter, share in ((base.means, 1.0), (base.log_factors, 0.5)):
                    parameter.copy_((torch.rand(parameter.shape, generator=rng) * 2 - 1) * wide * share)


class MixtureVAE(VariationalAutoencoder):
    """What VaDE and MFCVAE share: the bound, the start, clusters and samples, facet by facet."""

    bound: str
    first_beta: float | None
    init: str
    pretrain_steps: int | None
    posterior: str

    module_: MixtureAutoencoder
    n_components_: tuple[int, ...]
    n_rows_: int
    free_mixtures_: tuple[Mixture, ...]

    @abstractmethod
    def _facets(self) -> tuple[Facet, ...]:
        """Return the parts of the latents, and how many components each has."""

    @property
    def _first_beta(self) -> float:
        if self.first_beta is not None:
            return self.first_beta
        return 1.0 if self._init in ("flow", "random") else FIRST_BETA

    # -- the bound --------------------------------------------------------------------

    def _divergence(self, module: MixtureAutoencoder, q: Posterior, z: Tensor, x: Tensor, rows: int) -> Tensor:
        """KL(q || p(z)), where a closed facet counts nothing: there q may be p."""
        if self.bound == "single-sample":
            each = [torch.logsumexp(joint, -1) for joint in _joint(module, z)]
        else:
            joint = [base.expected(q.mean[..., part], q.variance[..., part]) for base, part in _parts(module)]
            each = [torch.logsumexp(one, -1) for one in joint]
        if len(each) == 1:
            return -q.entropy - each[0]
        value = torch.zeros_like(each[0])
        for log_p, (_, part) in zip(each, _parts(module), strict=True):
            # q factorises over facets, so each has an entropy of its own.
            own = Posterior(q.mean[..., part], q.log_sd[..., part], None).entropy
            value = value - module.gate[:, :, part.start] * (own + log_p)
        return value

    def _log_prior(self, module: MixtureAutoencoder, z: Tensor, x: Tensor) -> Tensor:
        return torch.stack([torch.logsumexp(joint, -1) for joint in _joint(module, z)]).sum(0)

    # -- the start --------------------------------------------------------------------

    @property
    def _init(self) -> str:
        """What "auto" becomes."""
        if self.init != "auto":
            return self.init
        table = self.likelihood == "gaussian" and self.net is None and len(self._facets()) == 1
        return "flow" if table and self.n_latents <= min(MOST_FLOWN, self.n_features_in_) else "autoencoder"

    @property
    def _rate(self) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        return RATE_AFTER_FLOW if self._init == "flow" else RATE

    @property
    def _pretrain_steps(self) -> int:
        if self.pretrain_steps is not None:
            return self.pretrain_steps
        return FLOW_STEPS if self._init == "flow" else self.max_steps

    def _started(self, X: FloatArray, seed: int, device: torch.device) -> MixtureAutoencoder:
        self.n_rows_ = len(X)
        fewest = ROWS_PER_COMPONENT * (self.n_latents + 1)
        rows = len(hold_out(len(X), seed)[0]) if self._init == "flow" else len(X)  # a flow holds out some of its own
        self.n_components_ = tuple(max(1, min(one.components, rows // fewest)) for one in self._facets())
        rng = torch.Generator().manual_seed(seed)
        module = self._build(self.n_restarts, rng)
        module.xavier(rng)
        module = module.to(device)
        if self.checkpoint is not None and Path(self.checkpoint).exists():
            return module  # the file holds better nets than any start
        if self._init == "flow":
            self._start_at_flow(module, X, seed, device)
        elif self._init in ("autoencoder", "linear"):
            self._start_at_autoencoder(module, X, seed, device, rng)
        return module

    def _start_at_flow(self, module: MixtureAutoencoder, X: FloatArray, seed: int, device: torch.device) -> None:
        """Find the latents by exact likelihood first: nets start at the maps and the mixture of `GMMFlow`."""
        flow = GMMFlow(
            self.n_latents,
            n_restarts=self.n_restarts,
            random_state=seed,
            device=str(device),
            verbose=self.verbose,
            n_components=self.n_components_[0],
            full_covariance_steps=self._pretrain_steps,
            max_steps=self._pretrain_steps,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoveryWarning)
            flow.fit(X)
        self._take_over(module, flow)
        rows = self._rows(X, device, np.float32)
        module.eval()
        with torch.no_grad():
            some = rows[:BLOCK].expand(self.n_restarts, -1, -1)
            error = (module.decode(module.encode(some).mean) - some).square().mean(1, keepdim=True).sqrt()
            assert module.log_noise is not None
            module.log_noise.copy_(error.log().clamp(min=math.log(LEAST_NOISE)))
        found = [p for part in (module.bent_in, module.bent_out, module.bases) for p in part.parameters()]  # type: ignore[union-attr]
        for parameter in found:
            parameter.requires_grad_(False)  # first learn how sure x is of z

        def loss(batch: Batch, step: Step) -> Tensor:
            noise = torch.randn((*batch[0].shape[:-1], module.n), generator=step.rng, device=device)
            return -self._bound(module, batch[0], noise, len(rows)) / batch[0].shape[-1]

        plan = Plan(max(1, self._pretrain_steps // 2), self.batch_size, self._rate, clip=1.0)
        prepare = self._prepare(module, plan.steps)
        minimise(module, loss, [rows], plan, seed=seed, prepare=prepare, capture=True, verbose=self.verbose)
        for parameter in found:
            parameter.requires_grad_(True)

    @torch.no_grad()
    def _take_over(self, module: MixtureAutoencoder, flow: GMMFlow) -> None:
        """Let encoder and decoder be the maps of the flow and its inverse; nets add nothing at first."""
        assert flow._restarts is not None
        likely = flow.restart_scores_
        best = int(np.argmax(likely))  # takes the place of a restart that failed
        kept = select_members(flow._restarts, [r if np.isfinite(likely[r]) else best for r in range(len(likely))])
        assert isinstance(kept.flow, SmoothLeakyFlow)
        assert module.bent_in is not None
        assert module.bent_out is not None
        assert module.into is not None
        assert module.out is not None
        module.bases[0].load_state_dict(kept.base.state_dict())
        module.bent_in.copy_from(kept.flow)
        module.bent_out.copy_from(kept.flow, inverse=True)
        # The flow has its own mean and scale of the columns: some rows were held out.
        scale, shift = self.scale_ / flow.scale_, (self.mean_ - flow.mean_) / flow.scale_
        inwards = flow.vectors_ / flow.sizes_
        module.into.copy_(torch.as_tensor(scale[:, None] * inwards))
        module.bent_in.bias[:, 0] += (
            torch.as_tensor(shift @ inwards).to(module.into)[None] @ module.bent_in.weight[:, 0]
        )
        module.out.copy_(torch.as_tensor((flow.vectors_ * flow.sizes_).T / scale))
        encoder, decoder = module.last_layers
        for layer in (encoder, decoder):
            layer.weight.zero_()
            layer.bias.zero_()
        decoder.bias.copy_(torch.as_tensor(-shift / scale))

    def _start_at_autoencoder(
        self, module: MixtureAutoencoder, X: FloatArray, seed: int, device: torch.device, rng: torch.Generator
    ) -> None:
        """Train without a prior, then fit a mixture to the latents, for every restart its own.

        With init="linear" the latents are to be the principal components, of unit variance.
        """
        rows = self._rows(X, device, np.float32)
        linear = _principal(rows, module.n) if self._init == "linear" else None

        def loss(batch: Batch, step: Step) -> Tensor:
            x = self._seen(batch[0], step.rng)
            z = module.encode(x).mean
            error = -module.log_likelihood(x, module.decode(z)).mean(1) / x.shape[-1]
            if linear is not None:
                centre, vectors = linear
                return error + (z - (x - centre) @ vectors).square().mean((1, 2))
            return error + PULL * z.square().mean((1, 2))

        plan = Plan(self._pretrain_steps, self.batch_size, self._rate, clip=1.0)
        prepare = self._prepare(module, plan.steps)
        minimise(module, loss, [rows], plan, seed=seed, prepare=prepare, capture=True, verbose=self.verbose)
        some = X[np.random.default_rng(seed).permutation(len(X))[:MIXTURE_ROWS]]
        z = torch.as_tensor(self._of_restarts(module, some), dtype=torch.float32, device=device)
        z = z.nan_to_num(0.0, 0.0, 0.0)
        for base, part in _parts(module):
            base.learn(z[..., part], steps=EM_STEPS, rng=rng, tries=EM_TRIES)
        module.widen(z.std(1).clamp(min=1e-6).log() + math.log(NARROW))

    # -- what a fit gives ---------------------------------------------------------------

    def _look_at(self, X: FloatArray) -> None:
        self.free_mixtures_ = self._as_they_are(X)

    def mixtures_of_restarts(self, facet: int = 0) -> tuple[Mixture, ...]:
        """Return the mixture that every restart has learnt, at hand after `fit`, and not saved."""
        check_is_fitted(self)
        if self._restarts is None:
            raise DataError("The restarts are not kept in a file: fit the model to have them.")
        base = cast(MixtureAutoencoder, self._restarts).bases[facet]
        return tuple(cast(MixtureBase, base).mixture(r) for r in range(self.n_restarts))

    def _cluster_probabilities(self, X: ArrayLike, facet: int) -> FloatArray:
        """q(u | x) of eq. (5), (N, K), components as numbered in the mixture."""
        X = self._check_new_data(X)
        if not 0 <= facet < len(self.n_components_):
            raise DataError(f"facet must lie between 0 and {len(self.n_components_) - 1}. Got {facet}.")
        order = np.argsort(-self._weights(facet), kind="stable")
        return np.concatenate([self._memberships(x)[facet] for x in _blocks(X)])[:, order]

    @torch.no_grad()
    def _memberships(self, X: FloatArray) -> list[NDArray[Any]]:
        module, device = self._module_for(X)
        q = module.encode(self._rows(X, device)[None])
        joint = [base.expected(q.mean[..., part], q.variance[..., part]) for base, part in _parts(module)]
        return [torch.softmax(one, -1)[0].cpu().numpy() for one in joint]

    def _weights(self, facet: int) -> Array:
        base = self.module_.bases[facet]
        assert isinstance(base, MixtureBase)
        return torch.softmax(base.logits[0].detach().double(), -1).cpu().numpy()

    def _mixture(self, facet: int) -> Mixture:
        check_is_fitted(self)
        base = self.module_.bases[facet]
        assert isinstance(base, MixtureBase)
        return base.mixture()

    def _draw_latents(self, size: int, generator: np.random.RandomState) -> Array:
        return np.concatenate(
            [self._draw_facet(size, j, None, generator) for j in range(len(self.n_components_))], axis=1
        )

    def _draw_facet(self, size: int, facet: int, component: int | None, generator: np.random.RandomState) -> Array:
        """Draw z_j, (size, n_j), from its mixture or from one of its components."""
        law = self._mixture(facet)
        if component is not None and not (is_integer(component, 0) and component < len(law.weights)):
            raise DataError(f"component must be a number from 0 to {len(law.weights) - 1}. Got {component!r}.")
        k = (
            np.full(size, component)
            if component is not None
            else generator.choice(len(law.weights), size, p=law.weights)
        )
        sd = np.sqrt(np.diagonal(law.covariances, axis1=1, axis2=2))
        return law.means[k] + sd[k] * generator.standard_normal((size, law.means.shape[1]))

    def _as_they_are(self, X: FloatArray) -> tuple[Mixture, ...]:
        """Return the mixture of each facet's posterior means under the learnt memberships, covariances free."""
        some = X[np.random.default_rng(0).permutation(len(X))[:MIXTURE_ROWS]]
        z = np.asarray(self._of_restarts(self.module_, some), dtype=np.float64)[0]
        found = []
        parts = [self._memberships(x) for x in _blocks(some.astype(np.float32))]
        for j, facet in enumerate(self._facets()):
            share = np.concatenate([one[j] for one in parts]).astype(np.float64)
            fewest = ROWS_PER_COMPONENT * (z[:, facet.latents].shape[1] + 1)
            found.append(moments(z[:, facet.latents], share, fewest=min(fewest, len(some)), pseudo=0.0))
        return tuple(found)

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, and why.

        Looked at are the components of the posterior means as they are, whether or not the model takes latents to be
        independent in them, and the decoder if it is piecewise affine; else that is a premise.
        """
        check_is_fitted(self)
        decoder = Decoder.of(self.module_.decoder) if self.module_.out is None else None
        known = decoder if decoder is not None and not decoder.unreadable else None
        law = self.free_mixtures_[0] if len(self.free_mixtures_) == 1 else _product(self.free_mixtures_)
        return self._certified(full_rank.certify(law, decoder=known, rows=self.n_rows_, tolerance=FLATTEST))

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
            bypass=self._init == "flow",
            bends=DEPTH["leaky"] if self._init == "flow" else 0,
            rng=rng,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require("bound", self.bound in BOUNDS, f"one of {BOUNDS}")
        self._require("first_beta", self.first_beta is None or is_real(self.first_beta, 0), "a number > 0 or None")
        self._require("init", self.init in STARTS, f"one of {STARTS}")
        flows = self.init != "flow" or self.likelihood == "gaussian"
        self._require("init", flows, "one of ('auto', 'autoencoder', 'linear', 'random') unless likelihood='gaussian'")
        known = self.pretrain_steps is None or is_integer(self.pretrain_steps, 1)
        self._require("pretrain_steps", known, "an integer >= 1 or None")
        self._require("posterior", self.posterior in ("auto", "full", "diagonal"), "'auto', 'full' or 'diagonal'")


def _principal(rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the centre (d,) of rows (N, d), and vectors (d, n) that give their principal components, unit variance."""
    centre = rows.mean(0)
    covariance = torch.cov(rows.double().mT)
    values, vectors = torch.linalg.eigh(covariance)
    rank = int((values > FLAT * values[-1]).sum())
    if n > rank:
        raise DataError(
            f"init='linear' finds at most as many latents as X has rank: n_latents={n}, rank={rank}. Lower n_latents, "
            "or use init='autoencoder'."
        )
    scaled = vectors[:, -n:].flip(-1) / values[-n:].flip(0).sqrt()
    return centre, scaled.to(rows)


def _parts(module: MixtureAutoencoder) -> list[tuple[MixtureBase, slice]]:
    return [(base, one.latents) for base, one in zip(module.bases, module.facets, strict=True)]  # type: ignore[misc]


def _joint(module: MixtureAutoencoder, z: Tensor) -> list[Tensor]:
    """Log w_k N(z_j; k), (R, B, K), of every facet."""
    return [base(z[..., part]) for base, part in _parts(module)]


def _product(mixtures: tuple[Mixture, ...]) -> Mixture:
    """Return the law of independent parts: a component for every choice of one in each."""
    weights, means, covariances = mixtures[0].weights, mixtures[0].means, mixtures[0].covariances
    for other in mixtures[1:]:
        a, b = (
            np.repeat(np.arange(len(weights)), len(other.weights)),
            np.tile(np.arange(len(other.weights)), len(weights)),
        )
        n, m = means.shape[1], other.means.shape[1]
        joint = np.zeros((len(a), n + m, n + m))
        joint[:, :n, :n], joint[:, n:, n:] = covariances[a], other.covariances[b]
        weights, means, covariances = weights[a] * other.weights[b], np.hstack([means[a], other.means[b]]), joint
    return Mixture(weights, means, covariances)
