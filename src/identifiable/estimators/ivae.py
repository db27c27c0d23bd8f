r"""iVAE: the identifiable variational autoencoder (Khemakhem et al. 2020).

Model, with decoder f and a conditionally factorial prior from an exponential family (eq. 5 to 7):

    z | u ~ Π_i p(z_i | u),      x | z ~ p(x; f(z)).

Objective, the evidence lower bound (eq. 8):

    L = E_q(z|x,u) [log p(x | z)] - KL(q(z | x, u) || p(z | u)).

Theorem 3 asks that q can be the true posterior, p(z | x, u) ∝ p(x | z) p(z | u). Here the encoder stands for the first
factor, a Gaussian in z with mean m(x) and covariance C(x), and each latent is then drawn towards its prior (a Gaussian
of equal moments where it is Laplace) by as much as the two are sure,

    E z_i = m_ui + g_i (m_i(x) - m_ui),      Cov z = √g C(x) √g,      g_i = s_ui² / (s_ui² + C_ii(x)),

which for a diagonal C is their product exactly. C is full, or diagonal as in the paper. A diagonal q cannot follow a
posterior whose latents are correlated, however little noise there is, and the bound then prefers decoders with
orthogonal Jacobians to the true one: on the paper's own data that costs more than all the rest. Without u the prior
over all u takes its place.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm, qmc
from sklearn.decomposition import FastICA
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from identifiable.arrays import Array, FloatArray, is_real
from identifiable.distributions.densities import log_normal
from identifiable.errors import DataError
from identifiable.estimators.autoencoder import HALF_GREY, LOG_NOISE_FLOOR, Posterior, follow
from identifiable.estimators.base import resolve_device
from identifiable.estimators.columns import Columns
from identifiable.estimators.given_u import GivenU, PriorGivenU, rows_of
from identifiable.estimators.iflow import IFlow
from identifiable.estimators.ivae_nets import Nets
from identifiable.estimators.sparse_unmixing import Reduction
from identifiable.nets import Architecture, in_precision_of, select_member, set_rng
from identifiable.theory import Certificate
from identifiable.training import Anneal, Batch, History, Plan, Step, minimise

FIRST_NOISE = 0.3  # where a learnt one starts
FIRST_BETA, HALF = 0.1, 0.5  # weight of the divergence where a net starts at random; it is 1 after half of the training
SURE, UNSURE = -2.0, 0.0  # log sd of the encoder's factor at the start: continuous columns or images, a few bits
DRAWS = 32  # per row in `score`
BLOCK = 4096  # rows that go through a net at once outside training


class IVAE(Columns, GivenU):
    """Identifiable variational autoencoder: a VAE whose prior is conditioned on an observed u.

    Parameters
    ----------
    n_latents : number of latents n.
    n_restarts : autoencoders trained together in one batch; their agreement is `stability_`, the one with the best
        held-out bound is kept.
    random_state : an integer makes a fit repeatable, bit for bit, on one machine and device.
    device : "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:<number>".
    verbose : 1 shows a progress bar on a terminal, 0 nothing.
    family : law of a latent given u: "variance" (Gaussian, mean 0), "gaussian" (mean and variance) or "laplace"
        (centred); "auto": "gaussian" where the means of the data change with u, else "variance".
    prior : where its parameters come from: a "table" of the values of u or a "net" of its features; "auto": a table
        unless some column of u is continuous.
    u_types, n_groups : what u is, and its groups; see `Auxiliary.of`.
    likelihood : "gaussian" (columns are standardised inside), "bernoulli" (values in [0, 1]), "logistic" (pixels in
        {0, 1/255, ..., 1}) or "categorical" (whole numbers that name categories, column by column).
    binarise : with "bernoulli": None takes values for probabilities, "threshold" cuts them at 1/2, "draw" draws a bit
        for each anew at every step of training.
    noise : standard deviation of the Gaussian noise, in those of a column (the paper: .1); None: learnt, by column.
    posterior : "full" or "diagonal" covariance of q.
    posterior_given_u : False: q(z | x), with the prior over all u in the place of p(z | u).
    init : "linear": encoder and decoder start at `SegmentUnmixing`; "flow": they first learn the maps that `IFlow`
        finds; "random". "auto": "random" with a `net`, "flow" for Gaussian columns, else "linear".
    weights : of the terms of the bound, (a, b, c, d): reconstruction, mutual information of x and z, total correlation
        of z, divergence of each latent's law from the prior given u, as in the authors' code (theirs: 100, 1, 0, 10).
        The last three are estimated on batches, and q must be diagonal. None: the bound itself.
    hidden, activation : layers of the encoder; the decoder mirrors them. Both have a linear map beside them.
    net : a name ("mlp", "convnet", "resnet", "arch1", ...) or an `identifiable.nets.Architecture` in the place of
        both, without linear maps; training then starts with a tenth of the divergence. With it X may hold images
        (N, h, w) or (N, h, w, c), and images come out, too.
    max_steps, batch_size, learning_rate : of Adam; the rate warms up and falls along a cosine.
    patience : stop after this many records (of 100) without a better held-out bound in any restart; None: never.
    resolve : also find the linear map A that Theorem 1 leaves, by linear ICA on the sufficient statistics:
        `independent_statistics`. Where the certificate says PS there is none to find.
    checkpoint : a file from which an interrupted training continues exactly; an interrupted start is made again. It is
        removed when the fit is done.

    Attributes
    ----------
    module_ : the kept nets.
    auxiliary_ : `Auxiliary`, how u is read.
    family_, table_ : what "auto" became.
    noise_ : (d,) standard deviation of the decoder's noise in the units of the data; Gaussian only.
    conditional_prior_ : `ConditionalPrior`, the law of the latents in each group of u, with bootstrap copies.
    restart_scores_ : (R,) bound on held-out rows.
    history_ : `History` of the training.
    stability_, fit_status_ : agreement between restarts.
    certificate_ : `Certificate`: what is identified, and why.

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

    module_: Nets
    history_: History
    restart_scores_: Array
    _restarts: Nets | None = None

    def __init__(
        self,
        n_latents: int = 2,
        *,
        n_restarts: int = 2,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
        family: str = "auto",
        prior: str = "auto",
        u_types: str | Sequence[str] = "auto",
        n_groups: int | None = None,
        likelihood: str = "gaussian",
        binarise: Literal["threshold", "draw"] | None = None,
        noise: float | None = None,
        posterior: str = "full",
        posterior_given_u: bool = True,
        init: str = "auto",
        weights: Sequence[float] | None = None,
        hidden: Sequence[int] = (128, 128, 128),
        activation: str = "silu",
        net: str | Architecture | None = None,
        max_steps: int = 3000,
        batch_size: int = 512,
        learning_rate: float = 3e-3,
        patience: int | None = 20,
        resolve: bool = False,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.n_latents = n_latents
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.family = family
        self.prior = prior
        self.u_types = u_types
        self.n_groups = n_groups
        self.likelihood = likelihood
        self.binarise = binarise
        self.noise = noise
        self.posterior = posterior
        self.posterior_given_u = posterior_given_u
        self.init = init
        self.weights = weights
        self.hidden = hidden
        self.activation = activation
        self.net = net
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.resolve = resolve
        self.checkpoint = checkpoint

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Train on X (N, d) with the auxiliary variable y = u, (N,) or (N, m).

        A tenth of the rows (1000 at most) is held out: their bound stops the training and chooses among restarts, which
        are compared on them.
        """
        self._check_parameters()
        X = self._check_rows(X)
        self._set_auxiliary(y, len(X))
        seed, device = self._seed(), resolve_device(self.device)
        train, held = self._hold_out(y, len(X), seed)
        self._set_columns(X)
        module = self._started(X, y, train, seed, device)
        rows, u = self._rows(X, device, np.float32), self._u_tensor(y, len(X), device)
        members = self.n_restarts
        seen, u_seen = (v[held].expand(members, *v[held].shape) for v in (rows, u))
        rng = torch.Generator().manual_seed(seed)
        noise = torch.randn((members, len(held), self.n_latents), generator=rng).to(device)

        def bound(x: Tensor, u: Tensor, noise: Tensor, beta: Tensor | float = 1.0) -> Tensor:
            q = module.posterior(x, self._pull(module, u))
            z = q.at(noise)
            likelihood = module.log_likelihood(x, module.decode(z))
            if self.weights is None:
                return likelihood - beta * module.divergence(q, u)
            return self._weighted(module, likelihood, q, z, u, len(train))

        def loss(batch: Batch, step: Step) -> Tensor:
            x, u = self._seen(batch[0], step.rng), batch[1]
            noise = torch.randn((*x.shape[:-1], self.n_latents), generator=step.rng, device=device)
            return -bound(x, u, noise, step.annealed["beta"]).mean(1) / x.shape[-1]

        def criterion() -> Tensor:
            return -bound(seen, u_seen, noise).mean(1)

        def prepare(batch: Batch, step: Step) -> Batch:
            set_rng(module, step.rng)
            return batch

        first = 1.0 if self.net is None else FIRST_BETA
        plan = Plan(
            self.max_steps,
            self.batch_size,
            self._rate,
            clip=1.0,
            patience=self.patience,
            criterion_from=0.0 if first == 1 else HALF,
            anneal={"beta": Anneal(first, 1.0, until=HALF)},
        )
        self.history_ = minimise(
            module,
            loss,
            [rows[train], u[train]],
            plan,
            seed=seed,
            criterion=criterion,
            prepare=prepare,
            capture=self.posterior_given_u,
            checkpoint=self.checkpoint,
            problem=self._problem(),
            verbose=self.verbose,
        )
        with torch.no_grad():
            latents = module.posterior(seen, self._pull(module, u_seen)).mean.double().cpu().numpy()
            self.restart_scores_ = -criterion().nan_to_num(torch.inf).double().cpu().numpy()
        self._compare_restarts(latents)
        self._restarts, self.module_ = module, select_member(module, int(np.argmax(self.restart_scores_)))
        if self.checkpoint is not None:
            Path(self.checkpoint).unlink(missing_ok=True)
        z = np.asarray(self._means(X[train]), dtype=np.float64)  # without u: what x itself says
        self._set_law(z, rows_of(y, train), seed)
        if self.resolve:
            self._set_statistics(z, seed)
        return self

    def transform(self, X: ArrayLike, u: Any = None) -> FloatArray:
        """Return the posterior means (N, n_latents): of q(z | x, u) where u is given, else of q(z | x).

        With u the latents are drawn towards p(z | u), without it towards their law over all u. Where the noise is small
        beside both it makes hardly a difference; where x says little (few bits, much noise), u helps, but latents given
        u also carry what u alone says of them.
        """
        return self._means(self._check_new_data(X), u)

    @torch.no_grad()
    def _means(self, X: FloatArray, u: Any = None) -> FloatArray:
        module, device = self._module_for(X)
        given = None if u is None else self._u_tensor(u, len(X), device, module.last_layers[0].bias.dtype)
        blocks = []
        for start in range(0, len(X), BLOCK):
            part = slice(start, start + BLOCK)
            pull = self._pull(module, None if given is None else given[None, part])
            blocks.append(module.posterior(self._rows(X[part], device)[None], pull).mean[0].cpu().numpy())
        return np.concatenate(blocks)

    @torch.no_grad()
    def latents_of_restarts(self, X: ArrayLike, u: Any = None) -> Array:
        """Return the posterior means (R, N, n) of every restart, which are at hand after `fit`, and not saved."""
        X = self._check_new_data(X)
        module = self._restarts
        if module is None:
            raise DataError("The restarts are not kept in a file: fit the model to have them.")
        bias = module.last_layers[0].bias
        given = None if u is None else self._u_tensor(u, len(X), bias.device)
        found = []
        for start in range(0, len(X), BLOCK):
            part = slice(start, start + BLOCK)
            x = self._rows(X[part], bias.device, np.float32).expand(len(bias), -1, -1)
            own = None if given is None else given[part].expand(len(bias), *given[part].shape)
            found.append(module.posterior(x, self._pull(module, own)).mean.double().cpu().numpy())
        return np.concatenate(found, 1)

    @torch.no_grad()
    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return E[x | z], (N, d), in the units of the data; for categorical columns the most probable category."""
        Z = self._check_latents(Z)
        module, device = self._module_for(Z)
        parts = [Z[i : i + BLOCK] for i in range(0, max(len(Z), 1), BLOCK)]
        decoded = [module.decode(torch.as_tensor(z, device=device)[None]) for z in parts]
        means = np.concatenate([module.likelihood.mean(one)[0].cpu().numpy() for one in decoded])
        return self._observed(means, Z.dtype)

    @torch.no_grad()
    def score_samples(self, X: ArrayLike, u: Any = None, *, importance: bool = False) -> FloatArray:
        """Return the evidence lower bound on log p(x | u) of each row (N,), in nats and in the units of the data.

        It is the mean of log p(x, z | u) / q(z | x, u) over 32 quasi-random draws of q, the same for every row, so the
        value is repeatable; where q is the posterior, it is log p(x | u) exactly. Without u it is a bound on log p(x),
        with the prior Σ_g w_g p(z | g) over the groups g of u. `importance=True` gives the importance-weighted bound of
        these draws, the log of the mean ratio, which is never lower (Burda et al. 2016).
        """
        X = self._check_new_data(X)
        module, device = self._module_for(X)
        given = None if u is None else self._u_tensor(u, len(X), device, module.last_layers[0].bias.dtype)
        uniform = qmc.Sobol(self.n_latents, scramble=True, seed=0).random(DRAWS)
        noise = torch.as_tensor(norm.ppf(uniform).astype(X.dtype), device=device)[:, None]
        blocks = []
        for start in range(0, len(X), BLOCK // DRAWS):
            part = slice(start, start + BLOCK // DRAWS)
            x, own = self._rows(X[part], device)[None], None if given is None else given[None, part]
            q = module.posterior(x, self._pull(module, own))
            z = torch.stack([q.at(e)[0] for e in noise])  # (DRAWS, B, n)
            decoded = module.decode(z.reshape(1, -1, self.n_latents)).reshape(DRAWS, z.shape[1], -1)
            likelihood = module.log_likelihood(x, decoded)
            ratio = likelihood + self._log_prior(module.prior, z, own) - q.log_density(noise)  # (DRAWS, B)
            found = torch.logsumexp(ratio, 0) - math.log(DRAWS) if importance else ratio.mean(0)
            blocks.append(found.cpu().numpy())
        return np.concatenate(blocks) - X.dtype.type(np.log(self.scale_).sum())

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean evidence lower bound of the rows of X, given y = u if there is one; higher is better."""
        return float(np.mean(self.score_samples(X, y)))

    def sample(
        self, n_samples: int = 1, u: Any = None, random_state: int | np.random.RandomState | None = None
    ) -> FloatArray:
        """Draw rows (n_samples, d), noise included, with u one value for all, or one per row; without, by weight."""
        check_is_fitted(self)
        generator = check_random_state(random_state)
        z = self.sample_latents(n_samples, u, generator)
        module, device = self._module_for(z)
        rng = torch.Generator(device).manual_seed(int(generator.randint(np.iinfo(np.int32).max)))
        with torch.no_grad():
            decoded = module.decode(torch.as_tensor(z, device=device)[None])
            drawn = module.likelihood.draw(decoded, rng)[0].cpu().numpy()
        return self._observed(drawn, np.float64)

    @property
    def noise_(self) -> Array:
        """Standard deviation (d,) of the decoder's noise, in the units of the data."""
        check_is_fitted(self)
        if self.likelihood != "gaussian" or self.module_.log_noise is None:
            raise AttributeError(f"likelihood={self.likelihood!r} has no noise scale.")
        log_noise = self.module_.log_noise.detach()[0, 0].clamp(min=LOG_NOISE_FLOOR)
        return log_noise.exp().double().cpu().numpy() * self.scale_

    @property
    def _kept_prior(self) -> PriorGivenU:
        return self.module_.prior

    @property
    def certificate_(self) -> Certificate:
        """What is identified for this fit, and why: Theorems 1 and 2 on the learnt law of the latents given u.

        That the decoder is injective is a premise.
        """
        check_is_fitted(self)
        return self._certificate(self.likelihood, None)

    def statistics(self, X: ArrayLike, u: Any = None) -> FloatArray:
        """Return the sufficient statistics T(z) of the latents, (N, nk): z², or z and z², or |z|."""
        return statistics_of(np.asarray(self.transform(X, u)), self.family_)

    def independent_statistics(self, X: ArrayLike, u: Any = None) -> FloatArray:
        """Return T(z) after the linear ICA step of `resolve=True`, (N, nk): equation (9) without its matrix A."""
        check_is_fitted(self)
        if not self.resolve:
            raise DataError("The linear ICA step was not asked for: fit with resolve=True.")
        T = self.statistics(X, u)
        return ((T - self.statistics_mean_) @ self.statistics_map_.T).astype(T.dtype)

    # -- the bound ------------------------------------------------------------------

    def _pull(self, module: Nets, u: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return mean and log-scale of the Gaussian that multiplies the encoder's factor."""
        if u is not None and self.posterior_given_u:
            return module.gaussian_prior(u)
        bias = module.last_layers[0].bias
        every = self._every_group(bias.device, bias.dtype)
        mean, log_scale = module.gaussian_prior(every.expand(len(bias), *every.shape))
        w = torch.as_tensor(self.auxiliary_.weights, dtype=mean.dtype, device=mean.device)[:, None]
        centre = (w * mean).sum(1, keepdim=True)
        variance = (w * (torch.exp(2 * log_scale) + (mean - centre).square())).sum(1, keepdim=True)
        return centre, 0.5 * variance.log()

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

    # -- the start ------------------------------------------------------------------

    def _started(self, X: FloatArray, y: Any, train: NDArray[np.int64], seed: int, device: torch.device) -> Nets:
        """Build the nets at their start."""
        start, own = self._init, rows_of(y, train)
        e = self._rows(X[train], torch.device("cpu"), np.float64).numpy()
        reduction = Reduction.of(e, self.n_latents)
        if reduction.n < self.n_latents:
            raise DataError(
                f"There are at most as many latents as X has rank: n_latents={self.n_latents}, rank={reduction.n}, "
                f"n_features={self.n_features_in_}. Lower n_latents."
            )
        reduced = reduction.reduce(e)
        needed = self.n_restarts if start != "random" else int(self.family == "auto")
        linear = [self._linear(reduced, own, seed, restart=r) for r in range(needed)]  # the first sets the family
        self.family_ = self.family_ if linear else self.family
        module = self._build(self.n_restarts, torch.Generator().manual_seed(seed))
        module.widen(SURE if self.likelihood == "gaussian" or self.net is not None else UNSURE)
        if self.likelihood == "gaussian" and module.log_noise is not None:
            with torch.no_grad():
                module.log_noise.fill_(math.log(self.noise if self.noise is not None else FIRST_NOISE))
            module.log_noise.requires_grad_(self.noise is None)
        if start == "random":
            return module.to(device)
        T = np.stack([np.asarray(one.transform(reduced), dtype=np.float64) for one in linear])
        self._start_linear(module, e, T)
        module.prior.start(np.stack([one.means_ for one in linear]), np.stack([one.scales_ for one in linear]))
        module = module.to(device)
        begun = self.checkpoint is not None and Path(self.checkpoint).exists()  # it holds better nets than the start
        if start == "flow" and not begun:
            flow = IFlow(
                self.n_latents,
                n_restarts=self.n_restarts,
                random_state=seed,
                device=str(device),
                verbose=self.verbose,
                family=self.family_,
                u_types="categorical",
                max_steps=max(1, self.max_steps // 2),
            )
            codes, vary = self.auxiliary_.codes(own), np.ptp(X[train], axis=0) > 0
            latents = flow.latents_of_restarts(X[train][:, vary], codes)
            failed = ~np.isfinite(latents).all((1, 2))
            latents[failed] = T[failed]  # a flow that failed leaves the linear start
            self._follow(module, e, latents, codes, seed, device)
        return module

    @property
    def _init(self) -> str:
        """What "auto" becomes."""
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

    def _follow(
        self, module: Nets, e: Array, latents: Array, codes: NDArray[np.int64], seed: int, device: torch.device
    ) -> None:
        """Train encoder and decoder to be the maps from x to these latents (R, N, n), and back.

        A table starts at their moments in each group, variances with a row of their own, of 1.
        """
        centre = latents.mean(1, keepdims=True) if self.family_ == "gaussian" else 0.0
        latents = (latents - centre) / latents.std(1, keepdims=True)
        if module.prior.log_scales is not None:
            size = np.bincount(codes)[:, None]
            for r, T in enumerate(latents):
                mean = np.stack([np.bincount(codes, c) for c in T.T], 1) / size
                mean = mean if self.family_ == "gaussian" else np.zeros_like(mean)
                squares = np.stack([np.bincount(codes, c) for c in ((T - mean[codes]) ** 2).T], 1)
                with torch.no_grad():
                    module.prior.log_scales[r] = torch.as_tensor(0.5 * np.log((squares + 1) / (size + 1)))
                    if module.prior.means is not None:
                        module.prior.means[r] = torch.as_tensor(mean)
        plan = Plan(max(1, self.max_steps // 2), self.batch_size, self._rate, clip=5.0)
        rows, own = (torch.as_tensor(v, dtype=torch.float32, device=device) for v in (e, latents))
        follow(module, rows, own, plan, seed=seed, verbose=self.verbose)

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

    def _module_for(self, rows: FloatArray) -> tuple[Nets, torch.device]:
        """Return the fitted nets in the precision of the rows: float64 in, float64 all the way."""
        module = in_precision_of(self.module_, rows)
        return module, next(module.parameters()).device

    def _check_parameters(self) -> None:
        self._check_given()
        self._check_nets()
        self._require("noise", self.noise is None or is_real(self.noise, 0), "None or a number > 0")
        self._require("posterior", self.posterior in ("full", "diagonal"), "'full' or 'diagonal'")
        self._require("posterior_given_u", isinstance(self.posterior_given_u, bool), "True or False")
        self._require("resolve", isinstance(self.resolve, bool), "True or False")
        starts = ("auto", "flow", "linear", "random") if self.likelihood == "gaussian" else ("auto", "linear", "random")
        self._require("init", self.init in starts, f"one of {starts} with likelihood={self.likelihood!r}")
        if self.net is not None:
            self._require("init", self._init == "random", "'auto' or 'random' when a net is given")
        four = (
            isinstance(self.weights, Sequence)
            and len(self.weights) == 4
            and all(is_real(w, -1e-9) for w in self.weights)
        )
        weighted = four and self.posterior == "diagonal"
        self._require(
            "weights", self.weights is None or weighted, "None, or four numbers >= 0 and posterior='diagonal' with them"
        )


def statistics_of(z: NDArray[Any], family: str) -> NDArray[Any]:
    """Return T(z), (N, nk), of latents z (N, n).

    >>> statistics_of(np.array([[1.0, -2.0]]), "gaussian")
    array([[ 1., -2.,  1.,  4.]])
    """
    T: NDArray[Any] = np.abs(z) if family == "laplace" else z**2
    return np.concatenate([z, T], axis=1) if family == "gaussian" else T
