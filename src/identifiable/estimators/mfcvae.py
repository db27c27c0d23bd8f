r"""MFCVAE: several hidden clusters at once, each behind a facet of the latents.

Model (Falck et al. 2021), with decoder f and J facets z = (z_1, ..., z_J), each with its own mixture:

    u_j ~ Cat(w_j),   z_j | u_j ~ N(μ_j,u_j, diag σ_j,u_j²)  for j = 1..J, independent,    x | z ~ p(x; f(z)).

p(z) is a mixture with a component for every choice of u_1, ..., u_J. `mixture_vae` has the bound.

In progressive training, facets open one after the other. A closed facet is multiplied by a gate of 0 and does not enter
the bound, so the first facets learn what explains most of x.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from identifiable.arrays import FloatArray, is_integer
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.estimators.mixture_vae import Facet, MixtureAutoencoder, MixtureVAE
from identifiable.estimators.variational import draw_from
from identifiable.training import Batch, Step

OPEN_BY = 0.6  # share of the training after which the last facet starts to open
OPENING = 0.1  # share of the training in which a facet opens


@dataclass(eq=False, repr=False)
class MFCVAE(MixtureVAE):
    """Multi-facet clustering variational autoencoder: several clusterings of the rows at once.

    Parameters
    ----------
    n_latents : int, default=10. Number of latents n of all facets together.
    n_components : int or sequence, default=25. Clusters of every facet, or one number for each; few rows allow fewer.
    facets : int or sequence, default=2. Number of facets, which share the latents evenly (the first get the surplus),
        or the number of latents of each. One facet is `VaDE`.
    n_restarts : int, default=4. Autoencoders trained in one batch. Their agreement is `stability_`; the one with the
        best held-out bound is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    progressive : bool, default=False. Open the facets one after the other, over the first 0.7 of training.
    bound, first_beta, init, pretrain_steps, posterior, covariance_type, learning_rate : see `VaDE`. With several facets
        q is diagonal, and init="flow" is not available.
    likelihood, binarise, hidden, activation, net, max_steps, batch_size, patience, checkpoint : see :class:`Columns`.

    Attributes
    ----------
    module_ : the kept nets and their mixtures.
    mixtures_ : the learnt `Mixture` of every facet, its heaviest component first.
    facets_ : the latents of every facet, as slices.
    image_shape_ : shape of an image, if `fit` was given images.
    restart_scores_ : (R,) bound on held-out rows.
    history_ : `History` of the training.
    directions_ : `Directions`. Share of each direction of the latents that x explains, and how many are in use.
    stability_, fit_status_ : agreement between restarts.
    certificate_ : `Certificate`: what is identified, and why.

    Examples
    --------
    >>> from identifiable.data import load_digits
    >>> x = load_digits().x
    >>> settings = dict(likelihood="bernoulli", hidden=(32,), pretrain_steps=50, max_steps=50, verbose=0)
    >>> model = MFCVAE(6, (10, 5), facets=(4, 2), n_restarts=1, random_state=0, **settings).fit(x)
    >>> model.transform(x).shape, model.predict_proba(x, facet=1).shape
    ((1797, 6), (1797, 5))
    >>> model.sample(3, facet=0, component=7, random_state=0).shape
    (3, 64)

    References
    ----------
    Falck, Zhang, Willetts, Nicholson, Yau & Holmes, Multi-facet clustering variational autoencoders, NeurIPS 2021.
    Kivva, Rajendran, Ravikumar & Aragam, Identifiability of deep generative models without auxiliary information,
    NeurIPS 2022. All facets share one encoder and one decoder here; Falck et al. also try a ladder of them.
    """

    n_latents: int = 10
    n_components: int | Sequence[int] = 25
    facets: int | Sequence[int] = 2
    _: KW_ONLY
    progressive: bool = False

    @property
    def mixtures_(self) -> tuple[Mixture, ...]:
        """The learnt distribution of every facet."""
        check_is_fitted(self)
        return tuple(self._mixture(j) for j in range(len(self.n_components_)))

    @property
    def facets_(self) -> tuple[slice, ...]:
        """The latents of every facet."""
        return tuple(one.latents for one in self._facets())

    def predict(self, X: ArrayLike, facet: int = 0) -> NDArray[np.int64]:
        """Return the most probable cluster of each row (N,) in a facet, as numbered in its mixture."""
        return self.predict_proba(X, facet).argmax(1)

    def predict_proba(self, X: ArrayLike, facet: int = 0) -> FloatArray:
        """Return q(u_j | x), (N, K_j), of a facet."""
        return self._cluster_probabilities(X, facet)

    def sample(
        self,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = None,
        *,
        facet: int | None = None,
        component: int | None = None,
    ) -> FloatArray:
        """Draw n_samples observations with the noise of p(x | z).

        With `component`, all of them belong to this cluster of `facet` (default: 0); the other facets vary.
        """
        generator = self._generator(n_samples, random_state)
        facet = 0 if facet is None else facet
        if not (is_integer(facet, 0) and facet < len(self.n_components_)):
            raise DataError(f"facet must lie between 0 and {len(self.n_components_) - 1}. Got {facet!r}.")
        chosen = [component if j == facet else None for j in range(len(self.n_components_))]
        pairs = zip(self.mixtures_, chosen, strict=True)
        parts = [draw_from(mixture, n_samples, k, "component", generator) for mixture, k in pairs]
        return self._emit(np.concatenate(parts, axis=1), generator)

    # -- facets -----------------------------------------------------------------------

    def _facets(self) -> tuple[Facet, ...]:
        n, given = self.n_latents, self.facets
        count = given if isinstance(given, int | np.integer) else len(given)
        sizes = [n // count + (j < n % count) for j in range(count)] if is_integer(given, 1) else list(given)  # type: ignore[arg-type]
        K = self.n_components
        numbers = [K] * count if isinstance(K, int | np.integer) else list(K)
        ends = np.cumsum([0, *sizes]).tolist()
        return tuple(Facet(slice(a, b), int(k)) for (a, b), k in zip(pairwise(ends), numbers, strict=True))

    @property
    def _criterion_from(self) -> float:
        open_at = OPEN_BY + OPENING if self.progressive and len(self._facets()) > 1 else 0.0
        return max(super()._criterion_from, open_at)

    def _prepare(self, module: MixtureAutoencoder, steps: int) -> Any:
        prepared = super()._prepare(module, steps)
        if not self.progressive:
            return prepared

        @torch.no_grad()
        def prepare(batch: Batch, step: Step) -> Batch:
            for j, one in enumerate(module.facets):
                module.gate[..., one.latents] = opened(j, len(module.facets), (step.number + 1) / steps)
            return prepared(batch, step)

        return prepare

    def _check_parameters(self) -> None:
        super()._check_parameters()
        listed = (
            isinstance(self.facets, Sequence) and len(self.facets) > 0 and all(is_integer(v, 1) for v in self.facets)
        )
        shared = is_integer(self.facets, 1) and self.facets <= self.n_latents  # type: ignore[operator]
        agree = shared or (listed and sum(self.facets) == self.n_latents)  # type: ignore[arg-type]
        self._require("facets", agree, f"a number of facets up to n_latents={self.n_latents}, or sizes that sum to it")
        count = self.facets if shared else len(self.facets)  # type: ignore[arg-type]
        K = self.n_components
        each = isinstance(K, Sequence) and len(K) == count and all(is_integer(k, 1) for k in K)
        self._require("n_components", each or is_integer(K, 1), f"an integer >= 1, or {count} of them")
        self._require_bools("progressive")
        if count != 1:
            starts = ("auto", "autoencoder", "linear", "random")
            self._require("init", self.init in starts, f"one of {starts} with several facets")
            self._require("posterior", self.posterior != "full", "'auto' or 'diagonal' with several facets")


def opened(facet: int, facets: int, fraction: float) -> float:
    """Return the gate of a facet at this share of the training: 0 closed, 1 open. The first facet is always open.

    >>> [opened(1, 2, fraction) for fraction in (0.0, 0.35, 0.4, 1.0)]
    [0.0, 0.5, 1.0, 1.0]
    """
    begins = OPEN_BY * facet / max(1, facets)
    return 1.0 if facet == 0 else float(np.clip(round((fraction - begins) / OPENING, 9), 0, 1))
