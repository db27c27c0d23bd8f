r"""Variational autoencoders: baselines without an identifiability guarantee.

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
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from torch import Tensor

from identifiable.arrays import Array
from identifiable.distributions.densities import kl_normal, log_normal
from identifiable.estimators.autoencoder import Autoencoder, Posterior
from identifiable.estimators.variational import VariationalAutoencoder
from identifiable.training import Batch


@dataclass(eq=False, repr=False)
class _VAE(VariationalAutoencoder):
    """Everything but the divergence."""

    _: KW_ONLY
    hidden: Sequence[int] = (64, 64)
    activation: str = "silu"
    learning_rate: float = 0.003

    keep = "agreement"  # bounds with different β are not comparable

    def _log_prior(self, module: Autoencoder, z: Tensor, x: Tensor, u: Tensor | None = None) -> Tensor:
        return log_normal(z, torch.zeros_like(z), torch.zeros_like(z)).sum(-1)

    def _draw_latents(self, size: int, generator: np.random.RandomState) -> Array:
        return generator.standard_normal((size, self.n_latents))


@dataclass(eq=False, repr=False)
class VAE(_VAE):
    """Variational autoencoder: D = KL(q(z | x) || N(0, I)), the plain bound.

    Parameters
    ----------
    n_latents : int, default=2. Number of latents n.
    n_restarts : int, default=4. Autoencoders trained in one batch. Their agreement is `stability_`; the one that agrees
        most with the others is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    likelihood, binarise, hidden, activation, net, max_steps, batch_size, learning_rate, patience, checkpoint : see
        :class:`Columns`.

    Attributes
    ----------
    module_ : the kept autoencoder.
    mean_, scale_ : (d,) means and scales with which the columns were standardised.
    image_shape_ : shape of an image, if `fit` was given images.
    restart_scores_ : (R,) bound on held-out rows.
    kept_ : the restart that was kept.
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

    def _divergence(self, module: Autoencoder, q: Posterior, z: Tensor, inputs: Batch, rows: int) -> Tensor:
        return kl_normal(q.mean, q.log_sd).sum(-1)


@dataclass(eq=False, repr=False)
class _WeightedVAE(_VAE):
    """A VAE with a weight β on its divergence or a part of it."""

    _: KW_ONLY
    beta: float = 4.0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require_positive("beta")


@dataclass(eq=False, repr=False)
class BetaVAE(_WeightedVAE):
    """β-VAE: D = β KL(q(z | x) || N(0, I)); β = 1 is `VAE`.

    Parameters and attributes are those of `VAE`, and `beta`, the weight β.

    References
    ----------
    Higgins et al., beta-VAE: learning basic visual concepts with a constrained variational framework, ICLR 2017.
    """

    def _divergence(self, module: Autoencoder, q: Posterior, z: Tensor, inputs: Batch, rows: int) -> Tensor:
        return self.beta * kl_normal(q.mean, q.log_sd).sum(-1)


@dataclass(eq=False, repr=False)
class BetaTCVAE(_WeightedVAE):
    """β-TC-VAE: D = I(x; z) + β KL(q(z) || Π_i q(z_i)) + Σ_i KL(q(z_i) || p(z_i)); β = 1 is `VAE` in expectation.

    The aggregate posterior q(z) is estimated on the batch by minibatch-weighted sampling,
    log q(z) ≈ log Σ_j q(z | x_j) - log(B N) for a batch of B out of N rows: memory grows like B² n.
    Parameters and attributes are those of `VAE`, and `beta`, the weight β of the total correlation.

    References
    ----------
    Chen et al., Isolating sources of disentanglement in variational autoencoders, NeurIPS 2018, eq. (2) and (S4).
    """

    def _divergence(self, module: Autoencoder, q: Posterior, z: Tensor, inputs: Batch, rows: int) -> Tensor:
        conditional = log_normal(z, q.mean, q.log_sd).sum(-1)
        prior = self._log_prior(module, z, inputs[0])
        z, mean, log_scale = (t.transpose(1, 2).contiguous() for t in (z, q.mean, q.log_sd))  # (R, n, B)
        # (R, n, B, B), z_b under q(. | x_j): sums run over the last axis, which is the fast one.
        pairs = log_normal(z[..., :, None], mean[..., None, :], log_scale[..., None, :])
        count = math.log(z.shape[-1] * rows)
        joint = torch.logsumexp(pairs.sum(1), dim=-1) - count
        marginals = (torch.logsumexp(pairs, dim=-1) - count).sum(1)
        mutual_information, total_correlation = conditional - joint, joint - marginals
        return mutual_information + self.beta * total_correlation + (marginals - prior)
