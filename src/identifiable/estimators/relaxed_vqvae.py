r"""The relaxed vector-quantised VAE: a grid of codes from one learnt codebook; and its autoencoder without codes.

Model, with P positions, K codes c_k in R^n that all positions share, encoder e(x) in R^(P n) and decoder f:

    k_p ~ uniform on {1, ..., K},   z = (c_k_1, ..., c_k_P),   x | z ~ p(x; f(z)),

    q(k_p = k | x) ∝ exp(-|e_p(x) - c_k|² / 2),

the responsibilities of a Gaussian mixture with equal weights, means c_k and identity covariances (Sønderby et al. 2017;
Willetts & Paige 2021, App. B). The bound is

    log p(x) >= E_q log p(x | z) - Σ_p KL(q(k_p | x) || uniform),      0 <= KL <= log K.

Training draws from q by the Gumbel-softmax relaxation: y_p = softmax((log q + Gumbel noise) / temperature) is a point
of the simplex, and z_p = Σ_k y_pk c_k has a gradient. Held-out rows and `score` have true draws, y_p one-hot.

Without quantisation z = e(x), and log p(x | z = e(x)) is maximised: a plain autoencoder, the baseline of the appendix.

**No theorem applies.** The decoder sees codes, which are points: for any invertible g the codes g(c_k) and the decoder
f(g^-1(.)) give x the same distribution, so the position of the codes is arbitrary. Kivva et al. (2022) require
components of full rank (P1). If z were drawn around the codes with identity covariance, P1 would hold for one position,
but all components would have the same variances, so no latents could be distinguished (P2): an affine map would remain.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from identifiable.agreement.stability import Stability
from identifiable.arrays import Array, is_integer
from identifiable.distributions.densities import draw_relaxed_categorical, kl_categorical
from identifiable.errors import DataError
from identifiable.estimators.autoencoder import Likelihood
from identifiable.estimators.variational import VariationalAutoencoder
from identifiable.metrics import agreement, mcc
from identifiable.nets import Architecture
from identifiable.nets.grid import GridNet
from identifiable.theory import Certificate, Check
from identifiable.training import Batch, Step

# -- codes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Codes:
    """q(k_p | x) ∝ exp(-|e_p - c_k|² / 2) at every position. With a temperature draws are relaxed, and use `rng`."""

    embedding: Tensor  # e, (R, B, P, n)
    codebook: Tensor  # c, (R, K, n)
    temperature: float | None = None
    rng: torch.Generator | None = None

    @cached_property
    def logits(self) -> Tensor:
        """e_p · c_k - |c_k|² / 2, (R, B, P, K): the part of -|e_p - c_k|² / 2 that depends on k."""
        norm = -0.5 * self.codebook.square().sum(-1)[:, None]
        by_row = torch.baddbmm(norm, self.embedding.flatten(1, 2), self.codebook.mT)
        return by_row.unflatten(1, self.embedding.shape[1:3])

    @property
    def mean(self) -> Tensor:
        """Σ_k q(k_p | x) c_k, (R, B, P n)."""
        return self._mix(torch.softmax(self.logits, -1))

    @property
    def divergence(self) -> Tensor:
        """Σ_p KL(q(k_p | x) || uniform), (R, B)."""
        return kl_categorical(self.logits, torch.zeros_like(self.logits)).sum(-1)

    def at(self, noise: Tensor) -> Tensor:
        """Draw z, (R, B, P n): relaxed, Σ_k y_pk c_k; or codes, by inversion of normal noise (..., P n).

        A code takes the first of the n numbers at its position.
        """
        if self.temperature is not None:
            return self._mix(draw_relaxed_categorical(self.logits, self.temperature, self.rng))
        member = torch.arange(len(self.codebook), device=noise.device)[:, None, None]
        return self.codebook[member, self._drawn(noise)].flatten(-2)

    def log_density(self, noise: Tensor) -> Tensor:
        """Log q of the codes that noise draws, (..., B)."""
        k = self._drawn(noise)[..., None]
        log_q = torch.log_softmax(self.logits, -1)
        return log_q.expand(*k.shape[:-1], -1).gather(-1, k)[..., 0].sum(-1)

    def _drawn(self, noise: Tensor) -> Tensor:
        """Invert the distribution function of q at that of the noise: numbers of codes (..., B, P)."""
        uniform = torch.special.ndtr(noise.unflatten(-1, self.embedding.shape[2:])[..., :1])
        below: Tensor = torch.softmax(self.logits, -1).cumsum(-1) < uniform
        return below.sum(-1).clamp(max=self.codebook.shape[1] - 1)

    def _mix(self, y: Tensor) -> Tensor:
        mixed: Tensor = torch.bmm(y.flatten(1, 2), self.codebook)
        return mixed.reshape(*y.shape[:2], -1)


@dataclass(frozen=True)
class Unquantised:
    """z = e(x), without any draw."""

    mean: Tensor  # e, (R, B, P n)

    def at(self, noise: Tensor) -> Tensor:
        """Return e."""
        return self.mean

    def log_density(self, noise: Tensor) -> Tensor:
        """Return 0: nothing is drawn."""
        return noise.new_zeros(())


class CodeAutoencoder(nn.Module):
    """Encoder x -> e, a codebook (R, K, n) unless `codes` is None, and decoder z -> p(x | z); R members.

    In training codes are drawn relaxed, by `rng`, which belongs to one run: a copy of the module has none.
    """

    def __init__(
        self,
        members: int,
        inputs: int,
        n: int,
        positions: int,
        codes: int | None,
        net: Architecture,
        likelihood: Likelihood,
        *,
        temperature: float,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.positions, self.n, self.likelihood, self.temperature = positions, positions * n, likelihood, temperature
        self.rng: torch.Generator | None = None
        self.encoder = net.encoder(members, inputs, self.n, rng=rng)
        self.decoder = net.decoder(members, self.n, likelihood.columns, rng=rng)
        # Length about 1 for any n: codes are distinct, and near enough to the first outputs to be used.
        start = None if codes is None else torch.randn((members, codes, n), generator=rng) / math.sqrt(n)
        self.codebook = None if start is None else nn.Parameter(start)

    def encode(self, x: Tensor) -> Codes | Unquantised:
        """Return q(k | x), or e, for x (R, B, inputs)."""
        e = self.encoder(x)
        if self.codebook is None:
            return Unquantised(e)
        temperature = self.temperature if self.training else None
        return Codes(e.unflatten(-1, (self.positions, -1)), self.codebook, temperature, self.rng)

    def decode(self, z: Tensor) -> Tensor:
        """Return the inputs of `likelihood`, (R, B, columns)."""
        return self.decoder(z)

    def log_likelihood(self, x: Tensor, decoded: Tensor) -> Tensor:
        """Log p(x | z), (R, B)."""
        return self.likelihood(x, decoded)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "rng": None}


def position_mcc(
    a: ArrayLike, b: ArrayLike, positions: int, measure: Callable[[NDArray[Any], NDArray[Any]], float] = mcc
) -> Array:
    """Compare the latents of two runs position by position, as Willetts & Paige (2021, App. B) do.

    Parameters
    ----------
    a, b : (N, P n) latents of the same rows, as `RelaxedVQVAE.transform` gives them.
    positions : P.
    measure : of two tables (N, n): the MCC, or `identifiable.metrics.weak_mcc`.

    Returns
    -------
    (P,) values, of which the mean is what `RelaxedVQVAE.stability_` holds.

    Examples
    --------
    >>> a = np.random.default_rng(0).normal(size=(500, 4))
    >>> position_mcc(a, a[:, [1, 0, 2, 3]], 2).round(1), position_mcc(a, a[:, [2, 3, 0, 1]], 2).round(1)
    (array([1., 1.]), array([0., 0.]))
    """
    one, other = (_by_position(np.asarray(v), positions) for v in (a, b))
    return np.array([measure(p, q) for p, q in zip(one, other, strict=True)])


def _by_position(latents: NDArray[Any], positions: int) -> NDArray[Any]:
    """Turn (..., N, P n) into (P, ..., N, n)."""
    if latents.ndim < 2 or latents.shape[-1] % positions:
        raise DataError(f"Expected latents (N, P n) of P={positions} positions, got shape {latents.shape}.")
    return np.moveaxis(latents.reshape(*latents.shape[:-1], positions, -1), -2, 0)


# -- the estimator ------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class RelaxedVQVAE(VariationalAutoencoder):
    """Relaxed VQ-VAE: every position of a grid has a code from a shared codebook, and a posterior over codes.

    Nothing guarantees that its latents are identified: see the top of the module, and `certificate_`.

    Parameters
    ----------
    n_latents : int, default=2. Width n of a code; `transform` gives n numbers for each of the P positions.
    n_codes : int, default=128. Size K of the codebook.
    quantised : bool, default=True. False trains the baseline of the appendix: the encoder's numbers go to the decoder
        as they are.
    temperature : float, default=0.5. Temperature of the relaxed draws in training.
    positions : int, default=1. Positions P, for rows that are no images.
    n_restarts : int, default=4. Autoencoders trained in one batch. Their agreement is `stability_`; the one with the
        best held-out bound is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    likelihood, binarise, hidden, activation, max_steps, batch_size, learning_rate, patience, checkpoint : see
        :class:`Columns`.
    net : {"conv"}, `GridNet` or None, default=None. Convolutions to a grid of a quarter of the height and width, in
        place of `hidden`. With it X may hold images, and `inverse_transform` and `sample` return images.

    Attributes
    ----------
    module_ : the kept nets and their codebook.
    kept_ : the restart that was kept.
    grid_ : shape of the grid, (h', w') for images and (P,) for rows.
    codebook_ : (K, n) the codes; None without quantisation.
    mean_, scale_ : (d,) means and scales with which the columns were standardised.
    image_shape_ : shape of an image, if `fit` was given images.
    restart_scores_ : (R,) bound on held-out rows.
    history_ : `History` of the training.
    stability_, fit_status_ : agreement between restarts: the MCC at each position, averaged over positions.
    certificate_ : `Certificate`. Level "none", and why.

    Notes
    -----
    `transform` gives the posterior mean Σ_k q(k_p | x) c_k of every position, (N, P n), or e(x) without quantisation:
    columns p n to (p + 1) n belong to position p, row by row of the grid. The most probable codes decode to
    ``inverse_transform(codebook_[codes(X)].reshape(len(X), -1))``.

    `score` is the bound by 32 true draws of codes. Without quantisation it is log p(x | z = e(x)), which is no bound on
    log p(x): such a model has no distribution of z, and `sample` is not available.

    Examples
    --------
    >>> from identifiable.data import make_pinwheel
    >>> s = make_pinwheel(1000, random_state=0)
    >>> settings = dict(n_restarts=2, hidden=(32,), max_steps=100, random_state=0, verbose=0)
    >>> model = RelaxedVQVAE(2, n_codes=16, positions=3, **settings).fit(s.x)
    >>> model.transform(s.x).shape, model.codes(s.x).shape, model.codebook_.shape
    ((1000, 6), (1000, 3), (16, 2))

    References
    ----------
    van den Oord, Vinyals & Kavukcuoglu, Neural discrete representation learning, NeurIPS 2017.
    Sønderby, Poole & Mnih, Continuous relaxation training of discrete latent variable image models, 2017.
    Jang, Gu & Poole, Categorical reparameterization with Gumbel-softmax, ICLR 2017.
    Willetts & Paige, I don't need u: identifiable non-linear ICA without side information, 2021, appendix B.
    """

    n_codes: int = 128
    _: KW_ONLY
    quantised: bool = True
    temperature: float = 0.5
    positions: int = 1
    hidden: Sequence[int] = (128, 128)

    module_: Any = field(init=False)

    @property
    def grid_(self) -> tuple[int, ...]:
        """Shape of the grid."""
        check_is_fitted(self)
        return self._grid

    @property
    def codebook_(self) -> Array | None:
        """The codes (K, n); None without quantisation."""
        check_is_fitted(self)
        found = self.module_.codebook
        return None if found is None else found.detach()[0].double().cpu().numpy()

    def codes(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the number of the most probable code at every position, (N, h', w'), or (N, P) for rows."""
        X = self._check_new_data(X)
        if not self.quantised:
            raise DataError("There are no codes with quantised=False. Fit with quantised=True.")
        found = self._apply(lambda module, x: module.encode(x).logits.argmax(-1), self._inputs(X))[0]
        return found.reshape(-1, *self._grid)

    @property
    def certificate_(self) -> Certificate:
        """Level "none", with the reason: no theorem guarantees these latents."""
        check_is_fitted(self)
        if self.quantised:
            grid = f" All {self._positions} positions share them." if self._positions > 1 else ""
            why = Check(
                name="P1",
                statement="every component has full rank",
                statistic=0.0,
                threshold=None,
                verdict="fails",
                sentence=f"The decoder sees codes, which are points.{grid} Any invertible map of them, undone in the "
                "decoder, gives x the same distribution. With the identity covariance that the posterior assumes, all "
                "would have the same variances, and (P2) would fail.",
            )
        else:
            why = Check(
                name="prior",
                statement="the latents have a distribution of a known kind",
                statistic=None,
                threshold=None,
                verdict="fails",
                sentence="An autoencoder has no distribution of its latents: any invertible map of them, undone in the "
                "decoder, fits as well.",
            )
        return self._certified(Certificate.nothing(why))

    # -- the bound --------------------------------------------------------------------

    def _prepare(self, module: CodeAutoencoder, steps: int) -> Callable[[Batch, Step], Batch]:
        prepared = super()._prepare(module, steps)

        def prepare(batch: Batch, step: Step) -> Batch:
            module.rng = step.rng
            return prepared(batch, step)

        return prepare

    def _divergence(self, module: Any, q: Any, z: Tensor, inputs: Batch, rows: int) -> Tensor:
        return q.divergence if self.quantised else z.new_zeros(z.shape[:2])

    def _log_prior(self, module: Any, z: Tensor, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Log p(k_1, ..., k_P); 0 without quantisation."""
        return z.new_full(z.shape[:2], -module.positions * math.log(self.n_codes) if self.quantised else 0.0)

    def _draw_latents(self, size: int, generator: np.random.RandomState) -> Array:
        codebook = self.codebook_
        if codebook is None:
            raise DataError("Without codes the latents have no distribution to draw from. Fit with quantised=True.")
        chosen = generator.randint(len(codebook), size=(size, self._positions))
        return codebook[chosen].reshape(size, self._n_features_out)

    def _compare_restarts(self, latents: NDArray[Any], stability: Stability | None = None) -> int:
        """Compare the restarts position by position; with several positions, by strong MCC alone."""
        if self._positions == 1:
            return super()._compare_restarts(latents)
        finite = np.isfinite(latents).all(axis=(1, 2))
        pairwise = np.zeros((len(latents), len(latents)))
        if finite.any():
            each = [agreement(part[finite]) for part in _by_position(latents, self._positions)]
            pairwise[np.ix_(finite, finite)] = np.mean(each, axis=0)
        return super()._compare_restarts(latents, Stability(pairwise))

    # -- nets ---------------------------------------------------------------------------

    @property
    def _grid(self) -> tuple[int, ...]:
        net = self._architecture()
        return net.grid if isinstance(net, GridNet) else (self.positions,)

    @property
    def _positions(self) -> int:
        return math.prod(self._grid)

    @property
    def _n_features_out(self) -> int:
        return self._positions * self.n_latents

    def _architecture(self) -> Architecture:
        if self.net is None:
            return super()._architecture()
        net = self.net if isinstance(self.net, GridNet) else GridNet()
        return net.for_columns(self.n_features_in_, self.image_shape_)

    def _build(self, members: int, rng: torch.Generator | None = None) -> CodeAutoencoder:
        return CodeAutoencoder(
            members,
            self._n_inputs,
            self.n_latents,
            self._positions,
            self.n_codes if self.quantised else None,
            self._architecture(),
            self._likelihood(members),
            temperature=self.temperature,
            rng=rng,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require_integers(n_codes=2)
        self._require_bools("quantised")
        self._require_positive("temperature")
        known = self.net is None or self.net == "conv" or isinstance(self.net, GridNet)
        self._require("net", known, "None, 'conv' or a GridNet")
        one = self.positions == 1 if self.net is not None else is_integer(self.positions, 1)
        self._require("positions", one, "an integer >= 1, and 1 with a net: the image sets the grid")
