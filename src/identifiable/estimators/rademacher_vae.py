r"""A variational autoencoder with a mixture prior whose components are cells of a random hash of x.

A (d, N) holds independent signs ±1, drawn once for every restart and never trained. With c the mean of the training
rows, and x as the encoder takes it (Gaussian columns standardised, categories one-hot),

    h(x) = A'(x - c),   b_i = [h_i > 0],   u(x) = Σ_i 2^i b_i,

so that u is one of 2^N cells; the paper (Willetts & Paige 2021, App. C) does not subtract c, which balances them. Then

    u ~ Cat(w),   z | u ~ N(μ_u, diag σ_u²),   x | z ~ p(x; f(z)),   q(z, u | x) = N(z; m(x), diag s(x)²) δ(u - u(x)),

with means and variances learnt, and w the shares of the cells in the training rows, one row added to each. The bound is

    log p(x) >= E_q log p(x | z) - KL(q(z | x) || p(z | u(x))) + log w_u(x).

**No theorem applies**, neither as for a u that is observed nor as for one that is hidden:

- Given u(x) = k the rows lie in cell k alone. Every p(x | z) here gives all cells some probability, and so does
  ∫ p(x | z) p(z | k) dz: no parameters reproduce the distribution of x given u, from which the theorems on iVAE
  start. In addition, restarts have different projections and do not share u.
- p(x) = ∫ p(x | z) Σ_u w_u p(z | u) dz is a model that Kivva et al. (2022) treat, but it is not what is fitted: the
  posterior p(u | x) of the model is positive in all cells, q(u | x) in one, and the bound stays below log p(x) by at
  least their divergence. Its maximum need not match the distribution of x, even with infinitely many rows.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from identifiable.arrays import FloatArray, is_integer
from identifiable.distributions.densities import kl_normal, log_normal
from identifiable.distributions.mixture import Mixture
from identifiable.estimators.autoencoder import Autoencoder, Likelihood, Posterior
from identifiable.estimators.trained import Split
from identifiable.estimators.variational import VariationalAutoencoder, draw_from
from identifiable.nets import Architecture, as_tensor
from identifiable.theory import Certificate, Check
from identifiable.training import Batch, History, Stage

MOST_BITS = 16
LOG_SD = -6.0, 4.0  # of a latent in a cell
_HASHED = Check(
    name="u",
    statement="x comes from p(x | z) p(z | u), with u observed or hidden",
    statistic=None,
    threshold=None,
    verdict="fails",
    sentence="u is computed from x by a fixed projection. Given u, x lies in one cell, which no distribution of the "
    "model does. The bound treats u as known, which the model does not, so its maximum need not match the distribution "
    "of x.",
)


class HashedAutoencoder(Autoencoder):
    """Encoder, decoder, a projection (R, d, N) that is not trained, and a Gaussian for each of its cells; R members."""

    signs: Tensor
    origin: Tensor
    log_shares: Tensor

    def __init__(
        self,
        members: int,
        inputs: int,
        n: int,
        bits: int,
        net: Architecture,
        likelihood: Likelihood,
        *,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__(members, inputs, n, net, likelihood, rng=rng)
        cells = 2**bits
        wide = math.sqrt(6 / (cells + n))  # Glorot & Bengio 2010, for means and log-variances
        start = (torch.rand((2, members, cells, n), generator=rng) * 2 - 1) * wide
        self.means, self.log_sds = nn.Parameter(start[0].clone()), nn.Parameter(0.5 * start[1])
        self.register_buffer("signs", 2.0 * torch.randint(2, (members, inputs, bits), generator=rng) - 1)
        self.register_buffer("origin", torch.zeros(members, 1, bits))
        self.register_buffer("log_shares", torch.full((members, cells), -math.log(cells)))

    def cells(self, x: Tensor) -> Tensor:
        """Return the numbers u(x), (R, B), of the cells of rows x, (R, B, d), or (B, d) for all members."""
        bits = x @ self.signs > self.origin
        return (bits * 2 ** torch.arange(bits.shape[-1], device=x.device)).sum(-1)

    @torch.no_grad()
    def divide(self, rows: Tensor) -> None:
        """Set the origin of the projections to the mean of rows (N, d), and the shares of rows in each cell."""
        count = self.log_shares.shape[1]
        self.origin.copy_(rows.double().mean(0) @ self.signs.double()[:, None])
        sizes = torch.stack([torch.bincount(own, minlength=count) for own in self.cells(rows)])
        self.log_shares.copy_(torch.log((sizes + 1) / (len(rows) + count)))

    def prior(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log w_u, (R, B), and μ_u and log σ_u, (R, B, n), of the cells of x (R, B, d)."""
        every = torch.arange(self.log_shares.shape[1], device=x.device)
        hit = (self.cells(x)[..., None] == every).to(x.dtype)  # a product, whose gradient adds up in a fixed order
        log_share = (hit @ self.log_shares[..., None])[..., 0]
        return log_share, hit @ self.means, hit @ self.log_sds.clamp(*LOG_SD)


@dataclass(eq=False, repr=False)
class RademacherVAE(VariationalAutoencoder):
    """A mixture prior whose component is chosen by the sign pattern of a fixed random ±1 projection of x.

    Nothing guarantees that its latents are identified: see the top of the module, and `certificate_`.

    Parameters
    ----------
    n_latents : int, default=2. Number of latents n.
    n_bits : int, default=7. Columns N of the projection, which make 2^N cells; 16 at most.
    n_restarts : int, default=4. Autoencoders trained in one batch, each with its own projection. Their agreement is
        `stability_`; the one with the best held-out bound is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    binarise : see :class:`Columns`. The projection hashes what the encoder sees: with "draw" the drawn bits, so a row
        near an edge changes its cell from step to step.
    likelihood, hidden, activation, net, max_steps, batch_size, learning_rate, patience, checkpoint : see
        :class:`Columns`.

    Attributes
    ----------
    module_ : the kept nets, with the projection and the Gaussian of each cell.
    mixture_ : `Mixture`. The learnt distribution of the latents; component k belongs to cell k.
    mean_, scale_ : (d,) means and scales with which the columns were standardised.
    image_shape_ : shape of an image, if `fit` was given images.
    restart_scores_ : (R,) bound on held-out rows.
    kept_ : the restart that was kept.
    history_ : `History` of the training.
    stability_, fit_status_ : agreement between restarts.
    certificate_ : `Certificate`. Level "none", and why.

    Examples
    --------
    >>> from identifiable.data import make_pinwheel
    >>> s = make_pinwheel(1000, random_state=0)
    >>> model = RademacherVAE(2, n_bits=2, n_restarts=2, max_steps=100, random_state=0, verbose=0).fit(s.x)
    >>> model.transform(s.x).shape, np.unique(model.cells(s.x))
    ((1000, 2), array([0, 1, 2, 3]))
    >>> model.sample(5, cell=1, random_state=0).shape
    (5, 2)
    >>> print(model.certificate_.level)
    none

    References
    ----------
    Willetts & Paige, I don't need u: identifiable non-linear ICA without side information, 2021, appendix C.
    Achlioptas, Database-friendly random projections, J. Comput. Syst. Sci. 2003.
    """

    n_bits: int = 7

    module_: HashedAutoencoder = field(init=False)

    def cells(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the numbers u(x) of the cells, (N,), by the projection of the restart that was kept."""
        return self._apply(lambda module, x: module.cells(x), self._inputs(self._check_new_data(X)))[0]

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None, *, cell: int | None = None
    ) -> FloatArray:
        """Draw n_samples observations with the noise of p(x | z), from all cells by share, or from p(z | u) of one.

        A draw for a cell need not lie in it: the model does not know that u is a function of x.
        """
        generator = self._generator(n_samples, random_state)
        return self._emit(draw_from(self.mixture_, n_samples, cell, "cell", generator), generator)

    @property
    def mixture_(self) -> Mixture:
        """The learnt distribution of the latents, Σ_u w_u N(μ_u, diag σ_u²)."""
        check_is_fitted(self)
        module = self.module_
        weights = torch.softmax(module.log_shares[0].double(), -1)
        variances = torch.exp(2 * module.log_sds.detach()[0].double().clamp(*LOG_SD))
        means = module.means.detach()[0].double()
        return Mixture(weights.cpu().numpy(), means.cpu().numpy(), variances.cpu().numpy())

    @property
    def certificate_(self) -> Certificate:
        """Level "none", with the reason: no theorem guarantees these latents."""
        check_is_fitted(self)
        return self._certified(Certificate.nothing(_HASHED))

    # -- the bound --------------------------------------------------------------------

    def _divergence(self, module: HashedAutoencoder, q: Posterior, z: Tensor, inputs: Batch, rows: int) -> Tensor:
        """KL(q || p(z | u(x))) - log w_u(x), in closed form."""
        log_share, mean, log_sd = module.prior(inputs[0])
        return kl_normal(q.mean, q.log_sd, mean, log_sd).sum(-1) - log_share

    def _log_prior(self, module: HashedAutoencoder, z: Tensor, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Log w_u p(z | u) at u = u(x)."""
        log_share, mean, log_sd = module.prior(x)
        return log_share + log_normal(z, mean, log_sd).sum(-1)

    # -- nets ---------------------------------------------------------------------------

    def _initialise(self, data: Split) -> Generator[Stage, History, HashedAutoencoder]:
        yield from ()
        module = self._build(self.n_restarts, data.rng()).to(data.device)
        rows = as_tensor(self._inputs(data.X_train), data.device)
        module.divide(self._seen(rows, torch.Generator(data.device).manual_seed(data.seed)))
        return module

    def _build(self, members: int, rng: torch.Generator | None = None) -> HashedAutoencoder:
        return HashedAutoencoder(
            members,
            self._n_inputs,
            self.n_latents,
            self.n_bits,
            self._architecture(),
            self._likelihood(members),
            rng=rng,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        held = is_integer(self.n_bits, 1) and self.n_bits <= MOST_BITS
        self._require("n_bits", held, f"an integer from 1 to {MOST_BITS}")
