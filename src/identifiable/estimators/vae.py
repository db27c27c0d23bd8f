r"""Variational autoencoders: the baselines that promise nothing.

Model, with decoder f and encoder (m, s):

    z ~ N(0, I_n),   x | z ~ p(x; f(z)),   q(z | x) = N(m(x), diag s(x)²).

Each class minimises  -E_q[log p(x | z)] + D(x)  and differs in D:

- `VAE`: D = KL(q(z|x) || p(z)); the objective is the evidence lower bound (Kingma & Welling 2014).
- `BetaVAE`: D = β KL(q(z|x) || p(z)) (Higgins et al. 2017).
- `BetaTCVAE`: D = I(x; z) + β KL(q(z) || Π_i q(z_i)) + Σ_i KL(q(z_i) || p(z_i)) (Chen et al. 2018).

Without an auxiliary variable or a mixture prior any rotation of z fits equally well: the latents are not identified
(Khemakhem et al. 2020, section 2). These are baselines; `stability_` shows what that means in practice.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm, qmc
from sklearn.utils import check_random_state
from torch import Tensor, nn

from identifiable.data.sample import FloatArray
from identifiable.densities import draw_normal, kl_normal, log_bernoulli, log_normal
from identifiable.errors import DataError
from identifiable.estimators.base import LatentModel, hold_out, is_integer, is_real, resolve_device
from identifiable.nets import ACTIVATIONS, MLP, in_precision_of, select_member
from identifiable.train import Batch, History, Plan, Step, minimise

LOG_SCALE_FLOOR = math.log(1e-3)  # of the decoder's noise, in units of a column's standard deviation
DRAWS = 32  # Monte Carlo draws per row in `score`
BLOCK = 8192  # rows that go through a net at once outside training


class _Autoencoder(nn.Module):
    """Encoder x -> (m, log s), decoder z -> parameters of p(x | z), and the decoder's noise; all with R members."""

    def __init__(
        self, members: int, widths: Sequence[int], *, gaussian: bool, activation: str, rng: torch.Generator | None
    ) -> None:
        super().__init__()
        d, *hidden, n = widths
        self.encoder = MLP(members, (d, *hidden, 2 * n), activation=activation, rng=rng)
        self.decoder = MLP(members, (n, *reversed(hidden), d), activation=activation, rng=rng)
        self.log_noise = nn.Parameter(torch.zeros(members, 1, d)) if gaussian else None

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log standard deviation of q(z | x), each (R, B, n)."""
        mean, log_scale = self.encoder(x).chunk(2, dim=-1)
        return mean, log_scale.clamp(-10, 3)

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """Log p(x | z), (R, B)."""
        return self._log_likelihood(x, self.decoder(z)).sum(-1)

    def _log_likelihood(self, x: Tensor, decoded: Tensor) -> Tensor:
        if self.log_noise is None:
            return log_bernoulli(x, decoded)
        return log_normal(x, decoded, self.log_noise.clamp(min=LOG_SCALE_FLOOR))


class _VAE(LatentModel):
    """What the three have in common: everything but the divergence."""

    module_: _Autoencoder
    history_: History
    mean_: NDArray[np.float64]
    scale_: NDArray[np.float64]

    def __init__(
        self,
        n_latents: int = 2,
        *,
        n_restarts: int = 4,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
        likelihood: str = "gaussian",
        hidden: Sequence[int] = (64, 64),
        activation: str = "silu",
        max_steps: int = 3000,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        patience: int | None = 20,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.n_latents = n_latents
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.likelihood = likelihood
        self.hidden = hidden
        self.activation = activation
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.checkpoint = checkpoint

    @abstractmethod
    def _divergence(self, z: Tensor, mean: Tensor, log_scale: Tensor, rows: int) -> Tensor:
        """D(x) for a batch (R, B): z a draw of q, rows the size of the training set."""

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Train `n_restarts` autoencoders at once on X (N, d) and keep the one that agrees most with the others.

        A tenth of the rows (1000 at most) is held out: their bound stops the training, and the restarts are compared
        on them. With fewer than 100 rows all of them serve for both. y is ignored.
        """
        self._check_parameters()
        X = self._check_rows(X)
        seed, device = self._seed(), resolve_device(self.device)
        train, held = hold_out(len(X), seed)
        self._set_standardisation(X[train])
        rng = torch.Generator().manual_seed(seed)
        module = self._build(self.n_restarts, rng).to(device)
        rows = self._to_tensor(X[train], torch.float32, device)
        seen = self._to_tensor(X[held], torch.float32, device).expand(self.n_restarts, -1, -1)
        noise = torch.randn((1, len(held), self.n_latents), generator=rng).to(device)

        def loss(batch: Batch, step: Step) -> Tensor:
            (x,) = batch
            mean, log_scale = module.encode(x)
            z = draw_normal(mean, log_scale, step.rng)
            bound = module.log_likelihood(x, z) - self._divergence(z, mean, log_scale, len(rows))
            return -bound.mean(1) / x.shape[-1]

        def criterion() -> Tensor:
            mean, log_scale = module.encode(seen)
            z = mean + log_scale.exp() * noise
            bound = module.log_likelihood(seen, z) - self._divergence(z, mean, log_scale, len(rows))
            return -bound.mean(1)

        plan = Plan(
            steps=self.max_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            clip=1.0,
            patience=self.patience,
        )
        self.history_ = minimise(
            module,
            loss,
            [rows],
            plan,
            seed=seed,
            criterion=criterion,
            checkpoint=self.checkpoint,
            problem=self._problem(),
            verbose=self.verbose,
        )
        with torch.no_grad():
            latents = module.encode(seen)[0].double().cpu().numpy()
        self.module_ = select_member(module, self._settle(latents))
        if self.checkpoint is not None:
            Path(self.checkpoint).unlink(missing_ok=True)
        return self

    @torch.no_grad()
    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the posterior means m(x), (N, n_latents)."""
        X = self._check_new_data(X)
        module, device = self._module_for(X)
        blocks = [module.encode(self._to_tensor(x, None, device)[None])[0][0].cpu().numpy() for x in _blocks(X)]
        return np.concatenate(blocks)

    @torch.no_grad()
    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Return the decoder's mean E[x | z], (N, d), in the units of the data."""
        Z = self._check_latents(Z)
        module, device = self._module_for(Z)
        blocks = []
        for z in _blocks(Z):
            decoded = module.decoder(torch.as_tensor(z, device=device)[None])[0]
            decoded = torch.sigmoid(decoded) if self.likelihood == "bernoulli" else decoded
            blocks.append(decoded.cpu().numpy())
        x: FloatArray = (np.concatenate(blocks) * self.scale_ + self.mean_).astype(Z.dtype)
        return x

    @torch.no_grad()
    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return the evidence lower bound on log p(x) of each row (N,), in nats and in the units of the data.

        E_q is a mean over 32 quasi-random draws, the same for every row, so the value is repeatable. The bound is the
        plain one (β = 1) for all three classes, so that their scores can be compared.
        """
        X = self._check_new_data(X)
        module, device = self._module_for(X)
        uniform = qmc.Sobol(self.n_latents, scramble=True, seed=0).random(DRAWS)
        noise = torch.as_tensor(norm.ppf(uniform).astype(X.dtype), device=device)[:, None]
        blocks = []
        for x in _blocks(X, BLOCK // DRAWS):
            rows = self._to_tensor(x, None, device)[None]
            mean, log_scale = module.encode(rows)
            z = (mean + log_scale.exp() * noise).reshape(1, -1, self.n_latents)
            repeated = rows.expand(DRAWS, -1, -1).reshape(1, -1, rows.shape[-1])
            likelihood = module.log_likelihood(repeated, z).reshape(DRAWS, -1).mean(0)
            blocks.append((likelihood - kl_normal(mean, log_scale).sum(-1)[0]).cpu().numpy())
        bound: FloatArray = np.concatenate(blocks) - np.log(self.scale_).sum()
        return bound

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Return the mean evidence lower bound of the rows of X; higher is better. y is ignored."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None) -> FloatArray:
        """Draw n_samples observations (n_samples, d) from the model, the decoder's noise included."""
        generator = check_random_state(random_state)
        x = self.inverse_transform(generator.standard_normal((n_samples, self.n_latents)))
        drawn: FloatArray
        if self.module_.log_noise is None:
            drawn = (generator.uniform(size=x.shape) < x).astype(np.float64)
        else:
            log_noise = self.module_.log_noise.detach()[0].clamp(min=LOG_SCALE_FLOOR)
            drawn = x + generator.standard_normal(x.shape) * log_noise.exp().double().cpu().numpy() * self.scale_
        return drawn

    def _check_parameters(self) -> None:
        self._check_common_parameters()
        self._require("likelihood", self.likelihood in ("gaussian", "bernoulli"), "'gaussian' or 'bernoulli'")
        widths_hold = isinstance(self.hidden, Sequence) and all(is_integer(h, 1) for h in self.hidden)
        self._require("hidden", widths_hold, "a sequence of positive layer widths")
        self._require("activation", self.activation in ACTIVATIONS, f"one of {sorted(ACTIVATIONS)}")
        self._require("max_steps", is_integer(self.max_steps, 1), "an integer >= 1")
        self._require("batch_size", is_integer(self.batch_size, 2), "an integer >= 2")
        self._require("learning_rate", is_real(self.learning_rate, 0), "a number > 0")
        self._require("patience", self.patience is None or is_integer(self.patience, 1), "an integer >= 1 or None")
        if self.checkpoint is not None:
            self._require("random_state", is_integer(self.random_state, 0), "an integer when checkpoint is given")

    def _check_rows(self, X: ArrayLike) -> FloatArray:
        if self.likelihood == "gaussian":
            return self._check_training_data(X)
        checked = self._check_training_data(X, columns_must_vary=False)
        if checked.min() < 0 or checked.max() > 1:
            raise DataError(
                f"likelihood='bernoulli' needs values in [0, 1]; these lie in [{checked.min():g}, {checked.max():g}]. "
                "Rescale them, or use likelihood='gaussian'."
            )
        return checked

    def _set_standardisation(self, X: FloatArray) -> None:
        d = X.shape[1]
        self.mean_, self.scale_ = np.zeros(d), np.ones(d)
        if self.likelihood == "gaussian":
            self.mean_, self.scale_ = X.mean(0, dtype=np.float64), X.std(0, dtype=np.float64)

    def _to_tensor(self, X: FloatArray, dtype: torch.dtype | None, device: torch.device) -> Tensor:
        standardised = ((X - self.mean_) / self.scale_).astype(X.dtype)
        return torch.as_tensor(standardised, dtype=dtype, device=device)

    def _build(self, members: int, rng: torch.Generator | None = None) -> _Autoencoder:
        widths = (self.n_features_in_, *self.hidden, self.n_latents)
        gaussian = self.likelihood == "gaussian"
        return _Autoencoder(members, widths, gaussian=gaussian, activation=self.activation, rng=rng)

    def _module_for(self, rows: FloatArray) -> tuple[_Autoencoder, torch.device]:
        """Return the fitted net in the precision of the rows: float64 in, float64 all the way."""
        module = in_precision_of(self.module_, rows)
        return module, next(module.parameters()).device


class VAE(_VAE):
    """Variational autoencoder: D = KL(q(z | x) || N(0, I)), the plain bound.

    Parameters
    ----------
    n_latents : number of latents n.
    n_restarts : autoencoders trained together in one batch; their agreement is `stability_`.
    random_state : an integer makes a fit repeatable, bit for bit, on one machine and device.
    device : "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:<number>".
    verbose : 1 shows a progress bar on a terminal, 0 nothing.
    likelihood : "gaussian" (columns are standardised inside; one learnt noise scale per column) or "bernoulli"
        (values in [0, 1]).
    hidden, activation : layers of the encoder; the decoder mirrors them.
    max_steps, batch_size, learning_rate : of Adam; the rate warms up and falls along a cosine.
    patience : stop after this many records (of 100) without a better held-out bound in any restart; None: never.
    checkpoint : a file from which an interrupted fit continues exactly; it is removed when the fit is done.

    Attributes
    ----------
    module_ : the kept autoencoder.
    mean_, scale_ : (d,) what the columns were standardised with.
    history_ : `History` of the training.
    stability_ : `Stability`, the agreement between restarts on held-out rows.
    fit_status_ : "stable", "doubtful", "unstable" or "unchecked".

    Examples
    --------
    >>> import numpy as np
    >>> z = np.random.default_rng(0).normal(size=(500, 2))
    >>> x = np.c_[z[:, 0], z[:, 0] + np.tanh(z[:, 1]), z[:, 1]]
    >>> vae = VAE(n_latents=2, n_restarts=2, max_steps=300, random_state=0, verbose=0).fit(x)
    >>> vae.transform(x).shape
    (500, 2)
    >>> vae.stability_.pairwise.shape
    (2, 2)

    References
    ----------
    Kingma & Welling, Auto-encoding variational Bayes, ICLR 2014.
    """

    def _divergence(self, z: Tensor, mean: Tensor, log_scale: Tensor, rows: int) -> Tensor:
        return kl_normal(mean, log_scale).sum(-1)


class _WeightedVAE(_VAE):
    """A VAE with a weight β on its divergence or a part of it."""

    def __init__(
        self,
        n_latents: int = 2,
        *,
        beta: float = 4.0,
        n_restarts: int = 4,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
        likelihood: str = "gaussian",
        hidden: Sequence[int] = (64, 64),
        activation: str = "silu",
        max_steps: int = 3000,
        batch_size: int = 256,
        learning_rate: float = 3e-3,
        patience: int | None = 20,
        checkpoint: str | Path | None = None,
    ) -> None:
        super().__init__(
            n_latents,
            n_restarts=n_restarts,
            random_state=random_state,
            device=device,
            verbose=verbose,
            likelihood=likelihood,
            hidden=hidden,
            activation=activation,
            max_steps=max_steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            patience=patience,
            checkpoint=checkpoint,
        )
        self.beta = beta

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require("beta", is_real(self.beta, 0), "a number > 0")


class BetaVAE(_WeightedVAE):
    """β-VAE: D = β KL(q(z | x) || N(0, I)); β = 1 is `VAE`.

    Parameters and attributes are those of `VAE`, and `beta`, the weight β.

    References
    ----------
    Higgins et al., beta-VAE: learning basic visual concepts with a constrained variational framework, ICLR 2017.
    """

    def _divergence(self, z: Tensor, mean: Tensor, log_scale: Tensor, rows: int) -> Tensor:
        return self.beta * kl_normal(mean, log_scale).sum(-1)


class BetaTCVAE(_WeightedVAE):
    """β-TC-VAE: D = I(x; z) + β KL(q(z) || Π_i q(z_i)) + Σ_i KL(q(z_i) || p(z_i)); β = 1 is `VAE` in expectation.

    The aggregate posterior q(z) is estimated on the batch by minibatch-weighted sampling,
    log q(z) ≈ log Σ_j q(z | x_j) - log(B N) for a batch of B out of N rows: memory grows like B² n.
    Parameters and attributes are those of `VAE`, and `beta`, the weight β of the total correlation.

    References
    ----------
    Chen et al., Isolating sources of disentanglement in variational autoencoders, NeurIPS 2018, eq. (2) and (S4).
    """

    def _divergence(self, z: Tensor, mean: Tensor, log_scale: Tensor, rows: int) -> Tensor:
        conditional = log_normal(z, mean, log_scale).sum(-1)
        prior = log_normal(z, torch.zeros_like(z), torch.zeros_like(z)).sum(-1)
        z, mean, log_scale = (t.transpose(1, 2).contiguous() for t in (z, mean, log_scale))  # (R, n, B)
        # (R, n, B, B), z_b under q(. | x_j): sums run over the last axis, which is the fast one.
        pairs = log_normal(z[..., :, None], mean[..., None, :], log_scale[..., None, :])
        count = math.log(z.shape[-1] * rows)
        joint = torch.logsumexp(pairs.sum(1), dim=-1) - count
        marginals = (torch.logsumexp(pairs, dim=-1) - count).sum(1)
        mutual_information, total_correlation = conditional - joint, joint - marginals
        return mutual_information + self.beta * total_correlation + (marginals - prior)


def _blocks(rows: FloatArray, size: int = BLOCK) -> list[FloatArray]:
    return [rows[i : i + size] for i in range(0, len(rows), size)]
