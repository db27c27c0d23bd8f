r"""iVAE: the identifiable variational autoencoder (Khemakhem et al. 2020).

Model, with decoder f and a conditionally factorial prior from an exponential family (eq. 5 to 7):

    z | u ~ Π_i p(z_i | u),      x | z ~ p(x; f(z)).

Objective, the evidence lower bound (eq. 8):

    L = E_q(z|x,u) [log p(x | z)] - KL(q(z | x, u) || p(z | u)).

Theorem 4 (numbered as published at AISTATS) requires that q can be the true posterior, p(z | x, u) ∝ p(x | z) p(z | u).
Here the encoder represents the first factor, a Gaussian in z with mean m(x) and covariance C(x). Each latent is then
shrunk towards its prior (for Laplace, a Gaussian of equal moments) according to the two precisions,

    E z_i = m_ui + g_i (m_i(x) - m_ui),      Cov z = √g C(x) √g,      g_i = s_ui² / (s_ui² + C_ii(x)),

which for a diagonal C is their exact product. C is full, or diagonal as in the paper. A diagonal q cannot represent a
posterior whose latents are correlated, however small the noise, and the bound then prefers decoders with orthogonal
Jacobians to the true one: on the paper's data this costs more accuracy than anything else. Without u, the prior over
all u replaces p(z | u).
"""

import math
import warnings
from collections.abc import Generator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import FastICA
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from identifiable.algorithms.coordinates import Coordinates
from identifiable.arrays import Array, FloatArray, is_real
from identifiable.distributions.densities import LOG_2PI, log_normal
from identifiable.errors import DataError, RecoveryWarning
from identifiable.estimators.autoencoder import (
    HALF_GREY,
    LOG_NOISE_FLOOR,
    Autoencoder,
    Likelihood,
    Posterior,
    follow,
    set_noise,
)
from identifiable.estimators.given_u import GivenU, PriorGivenU
from identifiable.estimators.iflow import IFlow
from identifiable.estimators.trained import Split
from identifiable.estimators.variational import VariationalAutoencoder
from identifiable.nets import Architecture
from identifiable.theory import Certificate
from identifiable.theory.given_u import Observation
from identifiable.training import Batch, History, Plan, Stage

FIRST_NOISE = 0.3  # initial value of a learnt noise
FIRST_BETA = 0.1  # weight of the divergence where a net starts at random
INITIAL_LOG_SD, INITIAL_LOG_SD_BITS = -2.0, 0.0  # of the encoder's factor; a few bits determine the latents less


class Nets(Autoencoder):
    """Encoder, decoder, their linear parts, the decoder's noise and the prior; R members."""

    def __init__(
        self,
        members: int,
        inputs: int,
        net: Architecture,
        prior: PriorGivenU,
        likelihood: Likelihood,
        *,
        full: bool,
        bypass: bool,
        rng: torch.Generator | None,
    ) -> None:
        super().__init__(members, inputs, prior.n, net, likelihood, full=full, bypass=bypass, rng=rng)
        self.prior = prior

    def posterior(self, x: Tensor, prior: tuple[Tensor, Tensor]) -> Posterior:
        """Multiply the encoder's factor by a Gaussian of this mean and log-scale (R, B, n): g = s² / (s² + v)."""
        own, (shift, log_scale) = self.encode(x), prior
        log_g = nn.functional.logsigmoid(2 * log_scale - own.variance.log())
        mean = shift + torch.exp(log_g) * (own.mean - shift)
        return Posterior(mean, own.log_sd + 0.5 * log_g, own.below)

    def gaussian_prior(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-scale of the Gaussian with the moments of p(z | u)."""
        mean, log_scale = self.prior(u)
        return mean, log_scale + (0.5 * math.log(2) if self.prior.family == "laplace" else 0.0)

    def divergence(self, q: Posterior, u: Tensor) -> Tensor:
        """KL(q || p(z | u)), (R, B), in closed form."""
        mean, log_scale = self.prior(u)
        if self.prior.family == "laplace":
            sd = q.variance.sqrt()
            ratio = (q.mean - mean) / sd
            # E|z - c| of a Gaussian: sd √(2/π) exp(-r²/2) + (m - c) erf(r / √2), r = (m - c) / sd.
            tail = math.sqrt(2 / math.pi) * torch.exp(-0.5 * ratio.square())
            distance = sd * (tail + ratio * torch.erf(ratio / math.sqrt(2)))
            cross = distance * torch.exp(-log_scale) + log_scale + math.log(2)
        else:
            square = q.variance + (q.mean - mean).square()
            cross = 0.5 * square * torch.exp(-2 * log_scale) + log_scale + 0.5 * LOG_2PI
        return cross.sum(-1) - q.entropy


@dataclass(eq=False, repr=False)
class IVAE(GivenU, VariationalAutoencoder):
    """Identifiable variational autoencoder: a VAE whose prior is conditioned on an observed u.

    Parameters
    ----------
    n_latents : int, default=2. Number of latents n.
    n_restarts : int, default=2. Autoencoders trained in one batch. Their agreement is `stability_`; the one with the
        best held-out bound is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    family : {"auto", "variance", "gaussian", "laplace"}, default="auto". Distribution of a latent given u: "variance"
        (Gaussian, mean 0), "gaussian" (mean and variance) or "laplace" (centred). "auto" uses "gaussian" where the
        means of the data change with u, else "variance".
    prior : {"auto", "table", "net"}, default="auto". Source of the parameters of the prior: a table of the values of u
        or a net of its features. "auto" uses a table unless some column of u is continuous.
    u_types, n_groups : types of the columns of u, and the number of its groups; see `Auxiliary.of`.
    likelihood, binarise : see :class:`Columns`.
    noise : float or None, default=None. Standard deviation of the Gaussian noise, in those of a column (the paper: .1).
        None learns it per column.
    posterior : {"full", "diagonal"}, default="full". Covariance of q.
    posterior_given_u : bool, default=True. False uses q(z | x), with the prior over all u in place of p(z | u).
    init : {"auto", "flow", "linear", "random"}, default="auto". "linear" starts encoder and decoder at
        `SegmentUnmixing`; "flow" first trains them to the maps that `IFlow` finds. "auto" uses "random" with a `net`,
        "flow" for Gaussian columns, else "linear".
    weights : four floats or None, default=None. Weights (a, b, c, d) of the terms of the bound: reconstruction, mutual
        information of x and z, total correlation of z, divergence of each latent from the prior given u, as in the
        authors' code (100, 1, 0, 10). The last three are estimated on batches, and q must be diagonal.
    hidden, activation : layers of the encoder; the decoder mirrors them. Both have a linear map in parallel.
    net : see :class:`Columns`. Has no linear map; training starts with a tenth of the divergence.
    max_steps : int, default=2400. Training steps of the nets. With init="flow", half of them follow the flow, which
        trains for as many, and half use the bound.
    batch_size, learning_rate, patience, checkpoint : see :class:`Columns`.
    resolve : bool, default=False. Also find the linear map A that Theorem 1 leaves, by linear ICA on the sufficient
        statistics: `independent_statistics`. Not needed where the certificate says PS.

    Attributes
    ----------
    module_ : the kept nets.
    auxiliary_ : `Auxiliary`. How u is read.
    family_, table_ : what "auto" selected.
    noise_ : (d,) standard deviation of the decoder's noise in the units of the data; Gaussian only.
    conditional_prior_ : `ConditionalPrior`. The distribution of the latents in each group of u, with bootstrap copies.
    restart_scores_ : (R,) bound on held-out rows.
    kept_ : the restart that was kept.
    history_ : `History` of the training.
    stability_, fit_status_ : agreement between restarts.
    certificate_ : `Certificate`. What is identified, and why.

    Examples
    --------
    >>> from identifiable.data import make_segments
    >>> s = make_segments(2000, segments=10, n=2, d=4, random_state=0)
    >>> model = IVAE(2, n_restarts=2, max_steps=50, random_state=0, verbose=0).fit(s.x, s.u)
    >>> model.transform(s.x, s.u).shape, model.transform(s.x).shape
    ((2000, 2), (2000, 2))
    >>> model.sample(3, u=7, random_state=0).shape
    (3, 4)

    References
    ----------
    Khemakhem, Kingma & Hyvärinen, Variational autoencoders and nonlinear ICA: a unifying framework, AISTATS 2020.
    """

    _: KW_ONLY
    n_restarts: int = 2
    noise: float | None = None
    posterior: str = "full"
    posterior_given_u: bool = True
    init: str = "auto"
    weights: Sequence[float] | None = None
    activation: str = "silu"
    batch_size: int = 512
    max_steps: int = 2400
    learning_rate: float = 0.005
    resolve: bool = False

    module_: Nets = field(init=False)

    def transform(self, X: ArrayLike, u: Any = None) -> FloatArray:
        """Return the posterior means (N, n_latents): of q(z | x, u) where u is given, else of q(z | x).

        With u the latents are shrunk towards p(z | u), without it towards their distribution over all u. The difference
        is negligible where the noise is small beside both. Where x is not informative (few bits, much noise), u helps,
        but latents given u also contain the information in u itself.
        """
        return self._latents(self._check_new_data(X), u)[0]

    def latents_of_restarts(self, X: ArrayLike, u: Any = None) -> FloatArray:
        """Return the posterior means (R, N, n) of every restart. Available after `fit`; restarts are not saved."""
        return self._latents(self._check_new_data(X), u, self._trained_restarts())

    def score_samples(self, X: ArrayLike, u: Any = None, *, importance: bool = False) -> FloatArray:
        """Return the evidence lower bound on log p(x | u) of each row (N,), in nats and in the units of the data.

        It is the mean of log p(x, z | u) / q(z | x, u) over 32 quasi-random draws of q, the same for every row, so the
        value is repeatable; where q is the posterior, it is log p(x | u) exactly. Without u it is a bound on log p(x),
        with the prior Σ_g w_g p(z | g) over the groups g of u. `importance=True` returns the importance-weighted bound
        of these draws, the log of the mean ratio, which is never lower (Burda et al. 2016).
        """
        return self._bounds(self._check_new_data(X), u, importance)

    def sample(  # type: ignore[override]  # u comes second, as in `sample_latents`
        self, n_samples: int = 1, u: Any = None, random_state: int | np.random.RandomState | None = None
    ) -> FloatArray:
        """Draw rows (n_samples, d). u is one value for all rows or one per row; None draws groups by their weights."""
        generator = self._generator(n_samples, random_state)
        return self._emit(self.sample_latents(n_samples, u, generator), generator)

    @property
    def noise_(self) -> Array:
        """Standard deviation (d,) of the decoder's noise, in the units of the data."""
        check_is_fitted(self)
        if self.likelihood != "gaussian" or self.module_.log_noise is None:
            raise AttributeError(f"likelihood={self.likelihood!r} has no noise scale.")
        log_noise = self.module_.log_noise.detach()[0, 0].clamp(min=LOG_NOISE_FLOOR)
        return log_noise.exp().double().cpu().numpy() * self.scale_

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, and why: Theorems 1 and 3 on the learnt prior given u.

        Nothing shows that the decoder is injective, so the level is "none" and `if_undecided_hold` has the level of a
        decoder that is.
        """
        check_is_fitted(self)
        return self._certificate(self._observation, None)

    @property
    def _observation(self) -> Observation | None:
        """The noise as the certificate takes it; None for "logistic", whose grey levels no theorem covers."""
        unknown: Observation = "gaussian-unknown" if self.noise is None else "gaussian"
        known: dict[str, Observation] = {"gaussian": unknown, "bernoulli": "bernoulli", "categorical": "categorical"}
        return known.get(self.likelihood)

    def statistics(self, X: ArrayLike, u: Any = None) -> FloatArray:
        """Return the sufficient statistics T(z) of the latents, (N, nk): z², or z and z², or |z|."""
        return statistics_of(np.asarray(self.transform(X, u)), self.family_)

    def independent_statistics(self, X: ArrayLike, u: Any = None) -> FloatArray:
        """Return T(z) after the linear ICA step of `resolve=True`, (N, nk): equation (9) without its matrix A."""
        check_is_fitted(self)
        if not self.resolve:
            raise DataError("There is no linear ICA step: fit with resolve=True.")
        T = self.statistics(X, u)
        return ((T - self.statistics_mean_) @ self.statistics_map_.T).astype(T.dtype)

    # -- the bound ------------------------------------------------------------------

    @property
    def _kept_prior(self) -> PriorGivenU:
        return self.module_.prior

    def _posterior(self, module: Nets, x: Tensor, u: Tensor | None) -> Posterior:
        """Multiply the encoder's factor by a Gaussian: the prior given u, or one with the moments over all u."""
        if u is not None and self.posterior_given_u:
            return module.posterior(x, module.gaussian_prior(u))
        every = self._every_group(x.device, x.dtype)
        mean, log_scale = module.gaussian_prior(every.expand(len(x), *every.shape))
        w = torch.as_tensor(self.auxiliary_.weights, dtype=mean.dtype, device=mean.device)[:, None]
        centre = (w * mean).sum(1, keepdim=True)
        variance = (w * (torch.exp(2 * log_scale) + (mean - centre).square())).sum(1, keepdim=True)
        return module.posterior(x, (centre, 0.5 * variance.log()))

    def _log_prior(self, module: Nets, z: Tensor, x: Tensor, u: Tensor | None) -> Tensor:
        return self._log_prior_given(module.prior, z, u)

    def _divergence(self, module: Nets, q: Posterior, z: Tensor, inputs: Batch, rows: int) -> Tensor:
        return module.divergence(q, inputs[1])

    def _bound(self, module: Nets, inputs: Batch, noise: Tensor, rows: int, beta: Tensor | float = 1.0) -> Tensor:
        if self.weights is None:
            return super()._bound(module, inputs, noise, rows, beta)
        x, u = inputs
        q = self._posterior(module, x, u)
        z = q.at(noise)
        return self._weighted(module, module.log_likelihood(x, module.decode(z)), q, z, u, rows).mean(1)

    def _weighted(self, module: Nets, likelihood: Tensor, q: Posterior, z: Tensor, u: Tensor, rows: int) -> Tensor:
        """Return a log p(x|z) - b I - c TC - d Σ KL_i, the last three as in Chen et al. 2018, eq. (S4), given u."""
        assert self.weights is not None
        a, b, c, d = self.weights
        mean, log_sd = (t.mT.contiguous() for t in (q.mean, q.log_sd))  # (R, n, B)
        pairs = log_normal(z.mT[..., :, None], mean[..., None, :], log_sd[..., None, :])  # (R, n, B, B)
        count = math.log(z.shape[1] * rows)
        conditional = log_normal(z, q.mean, q.log_sd).sum(-1)
        joint = torch.logsumexp(pairs.sum(1), -1) - count
        marginals = (torch.logsumexp(pairs, -1) - count).sum(1)
        prior = module.prior.log_density(z, *module.prior(u))
        return a * likelihood - b * (conditional - joint) - c * (joint - marginals) - d * (marginals - prior)

    @property
    def _first_beta(self) -> float:
        return 1.0 if self.net is None else FIRST_BETA

    @property
    def _steps(self) -> int:
        return max(1, self.max_steps // 2) if self._init == "flow" else self.max_steps

    @property
    def _capture(self) -> bool:
        return self.posterior_given_u

    # -- initialisation -------------------------------------------------------------

    def _initialise(self, data: Split) -> Generator[Stage, History, Nets]:
        """Start at random, at a linear unmixing, or at the maps of a flow."""
        init = self._init
        e: Array = self._inputs(data.X_train.astype(np.float64)).astype(np.float64)
        coordinates = Coordinates.fit(e, self.n_latents)
        if coordinates.n < self.n_latents:
            raise DataError(
                f"n_latents must be at most the rank of X. Got n_latents={self.n_latents}, rank={coordinates.n}, "
                f"n_features={self.n_features_in_}. Lower n_latents."
            )
        y = coordinates.project(e)[0]
        needed = self.n_restarts if init != "random" else int(self.family == "auto")
        linear = [self._linear(y, data.u_train, data.seed, restart=r) for r in range(needed)]  # the first sets family_
        self.family_ = self.family_ if linear else self.family
        module = self._build(self.n_restarts, data.rng())
        informative = self.likelihood == "gaussian" or self.net is not None
        module.widen(INITIAL_LOG_SD if informative else INITIAL_LOG_SD_BITS)
        if self.likelihood == "gaussian" and module.log_noise is not None:
            with torch.no_grad():
                module.log_noise.fill_(math.log(self.noise if self.noise is not None else FIRST_NOISE))
            module.log_noise.requires_grad_(self.noise is None)
        if init == "random":
            return module.to(data.device)
        T = np.stack([np.asarray(one.transform(y), dtype=np.float64) for one in linear])
        self._start_linear(module, e, T)
        module.prior.start(np.stack([one.means_ for one in linear]), np.stack([one.scales_ for one in linear]))
        module = module.to(data.device)
        resumed = self.checkpoint is not None and Path(self.checkpoint).exists()  # it holds better nets than the start
        if init == "flow" and not resumed:
            yield from self._follow_flow(module, e, T, data)
        return module

    def _follow_flow(self, module: Nets, e: Array, T: Array, data: Split) -> Generator[Stage, History, None]:
        """Train encoder and decoder to the maps of `IFlow`; a table starts at the moments of its latents by group."""
        codes, vary = self.auxiliary_.codes(data.u_train), np.ptp(data.X_train, axis=0) > 0
        flow = IFlow(
            self.n_latents,
            n_restarts=self.n_restarts,
            random_state=data.seed,
            device=str(data.device),
            verbose=self.verbose,
            family=self.family_,
            u_types="categorical",
            max_steps=self._steps,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoveryWarning)
            flow.fit(data.X_train[:, vary], codes)
        latents = np.asarray(flow.latents_of_restarts(data.X_train[:, vary]), dtype=np.float64)
        failed = ~np.isfinite(latents).all((1, 2))
        latents[failed] = T[failed]  # a flow that failed leaves the linear start
        centre = latents.mean(1, keepdims=True) if self.family_ == "gaussian" else 0.0
        latents = (latents - centre) / latents.std(1, keepdims=True)
        if self.table_:
            module.prior.start_at_moments(latents, codes)
        plan = Plan(self._steps, self.batch_size, self._rate, clip=5.0)
        rows, own = (torch.as_tensor(v, dtype=torch.float32, device=data.device) for v in (e, latents))
        yield follow(module, rows, own, plan, data.seed)
        set_noise(module, rows, own)

    @property
    def _init(self) -> str:
        """What "auto" selects."""
        if self.init != "auto":
            return self.init
        return "random" if self.net is not None else "flow" if self.likelihood == "gaussian" else "linear"

    @torch.no_grad()
    def _start_linear(self, module: Nets, e: Array, T: Array) -> None:
        """Start at latents T (R, N, n), linear in e, and decoders linear in them; nets add a tenth of their noise."""
        encoder, decoder = module.last_layers
        encoder.weight.mul_(0.1)
        decoder.weight.mul_(0.1)
        centre = e.mean(0)
        W = np.stack([np.linalg.lstsq(e - centre, own, rcond=None)[0] for own in T])
        B = np.stack([np.linalg.lstsq(own, e - centre, rcond=None)[0] for own in T])
        assert module.into is not None
        assert module.out is not None
        module.into.copy_(torch.as_tensor(W))
        encoder.bias[..., : self.n_latents] = torch.as_tensor(-centre @ W)[:, None]
        bias, p = centre, centre.clip(0.01, 0.99)
        if self.likelihood == "bernoulli":  # the slope of the log-odds at the mean
            B, bias = B / (p * (1 - p)), np.log(p / (1 - p))
        elif self.likelihood == "categorical":
            B, bias = B / p, np.log(p)
        elif self.likelihood == "logistic":
            bias = centre - HALF_GREY
        module.out.copy_(torch.as_tensor(B))
        decoder.bias.copy_(torch.as_tensor(bias))

    def _set_results(self, data: Split) -> None:
        z = self._latents(data.X_train)[0]  # without u: the information in x alone
        self._set_conditional_prior(z, data)
        if self.resolve:
            self._set_statistics(z.astype(np.float64), data.seed)

    def _set_statistics(self, z: Array, seed: int) -> None:
        """Unmix T(z) linearly: by its skewness where it is bounded below, which has no false optimum for n = 2."""
        T = statistics_of(z, self.family_)
        self.statistics_mean_ = T.mean(0)
        contrast = "logcosh" if self.family_ == "gaussian" else lambda y: (y**2, 2 * y.mean(-1))
        ica = FastICA(whiten="unit-variance", fun=contrast, random_state=seed, max_iter=1000, tol=1e-4).fit(T)
        self.statistics_map_ = ica.components_

    # -- nets -------------------------------------------------------------------------

    def _build(self, members: int, rng: torch.Generator | None = None) -> Nets:
        return Nets(
            members,
            self._n_inputs,
            self._architecture(),
            self._prior(members, self.n_latents, rng),
            self._likelihood(members),
            full=self.posterior == "full",
            bypass=self.net is None,
            rng=rng,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_given()
        self._require_positive("noise", optional=True)
        self._require("posterior", self.posterior in ("full", "diagonal"), "'full' or 'diagonal'")
        self._require_bools("posterior_given_u", "resolve")
        starts = ("auto", "flow", "linear", "random") if self.likelihood == "gaussian" else ("auto", "linear", "random")
        self._require("init", self.init in starts, f"one of {starts} with likelihood={self.likelihood!r}")
        if self.net is not None:
            self._require("init", self._init == "random", "'auto' or 'random' when a net is given")
        if self.weights is not None:
            four = isinstance(self.weights, Sequence) and len(self.weights) == 4
            valid = four and all(is_real(w, -1e-9) for w in self.weights) and self.posterior == "diagonal"
            self._require("weights", valid, "None, or four numbers >= 0 and posterior='diagonal' with them")


def statistics_of(z: NDArray[Any], family: str) -> NDArray[Any]:
    """Return T(z), (N, nk), of latents z (N, n).

    >>> statistics_of(np.array([[1.0, -2.0]]), "gaussian")
    array([[ 1., -2.,  1.,  4.]])
    """
    T: NDArray[Any] = np.abs(z) if family == "laplace" else z**2
    return np.concatenate([z, T], axis=1) if family == "gaussian" else T
