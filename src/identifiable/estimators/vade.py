r"""VaDE: a variational autoencoder with a Gaussian mixture prior; the hidden cluster replaces u.

Model (Jiang et al. 2017; Willetts & Paige 2021; Kivva et al. 2022), with decoder f and encoder (m, S):

    u ~ Cat(w),   z | u ~ N(μ_u, diag σ_u²),   x | z ~ p(x; f(z)),   q(z | x) = N(m(x), S(x)).

Weights, means and variances are learnt. `mixture_vae` has the bound, equations (5) and (6) of Willetts & Paige.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from identifiable.arrays import FloatArray
from identifiable.distributions.mixture import Mixture
from identifiable.estimators.mixture_vae import Facet, MixtureVAE
from identifiable.estimators.variational import draw_from


@dataclass(eq=False, repr=False)
class VaDE(MixtureVAE):
    """Variational deep embedding: latents with a Gaussian mixture prior, and clusters of rows.

    Parameters
    ----------
    n_latents : int, default=2. Number of latents n.
    n_components : int, default=10. Clusters K of the mixture; few rows allow fewer.
    n_restarts : int, default=4. Autoencoders trained in one batch. Their agreement is `stability_`; the one with the
        best held-out bound is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    bound : {"single-sample", "factorised"}, default="single-sample". Equation (6) of Willetts & Paige, or equation
        (5), which is lower.
    first_beta : float or None, default=None. Weight of the divergence of q at the first step; it rises to 1 over the
        first half. Below 1, the latents learn to reconstruct before the prior constrains them. None uses 1 after a
        flow and for a random start, else 0.1.
    init : {"auto", "flow", "autoencoder", "linear", "random"}, default="auto". "flow" starts nets and mixture at the
        solution of `GMMFlow`. "autoencoder" trains the nets without a prior and fits a mixture to their latents.
        "linear" does the same while the latents are pulled to the principal components, which gives all restarts the
        same start. "auto" uses "flow" for Gaussian columns and at most 20 latents without a `net`, else "autoencoder".
    pretrain_steps : int or None, default=None. Steps before those with the bound. A flow takes them for full
        covariances, two thirds as many for diagonal ones, and an eighth as many to learn the covariance of q. None uses
        3000 for a flow, else `max_steps`.
    posterior : {"auto", "full", "diagonal"}, default="auto". Covariance of q; "auto" uses "full" up to 10 latents.
    covariance_type : {"diagonal", "full"}, default="diagonal". Covariances of the clusters. "diagonal", as published,
        fixes the axes of the latents; "full" fits clusters that are not aligned with them, and leaves the latents
        identified up to an affine map at most. With "full", "auto" starts at the principal components.
    likelihood, binarise, hidden, activation, net : see :class:`Columns`.
    max_steps, batch_size, checkpoint : see :class:`Columns`.
    patience : see :class:`Columns`. After a flow, which the bound improves little, a third of it.
    learning_rate : float or None, default=None. None uses 3e-5 after a flow, else 0.002.

    Attributes
    ----------
    module_ : the kept nets and their mixture.
    mixture_ : `Mixture`. The learnt distribution of the latents, its heaviest component first.
    image_shape_ : shape of an image, if `fit` was given images.
    restart_scores_ : (R,) bound on held-out rows.
    kept_ : the restart that was kept.
    history_ : `History` of the training.
    directions_ : `Directions`. Share of each direction of the latents that x explains, and how many are in use.
    stability_, fit_status_ : agreement between restarts.
    certificate_ : `Certificate`. What is identified, and why.

    Examples
    --------
    >>> from identifiable.data import make_pinwheel
    >>> s = make_pinwheel(2000, random_state=0)
    >>> settings = dict(init="autoencoder", pretrain_steps=200, max_steps=200, random_state=0, verbose=0)
    >>> model = VaDE(2, 3, n_restarts=2, **settings).fit(s.x)
    >>> model.transform(s.x).shape, model.predict_proba(s.x).shape
    ((2000, 2), (2000, 3))
    >>> model.sample(5, component=1, random_state=0).shape
    (5, 2)

    References
    ----------
    Jiang, Zheng, Tan, Tang & Zhou, Variational deep embedding, IJCAI 2017.
    Willetts & Paige, I don't need u: identifiable non-linear ICA without side information, 2021.
    Kivva, Rajendran, Ravikumar & Aragam, Identifiability of deep generative models without auxiliary information,
    NeurIPS 2022. The start from a flow and the full covariance of q are ours.
    """

    n_components: int = 10

    @property
    def mixture_(self) -> Mixture:
        """The learnt distribution of the latents."""
        return self._mixture(0)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable cluster of each row (N,), as numbered in `mixture_`."""
        return self.predict_proba(X).argmax(1)

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return q(u | x) ∝ exp E_q(z|x) log w_u N(z; u), (N, K): the best q(u | x) for equation (5)."""
        return self._cluster_probabilities(X, 0)

    def sample(
        self,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = None,
        *,
        component: int | None = None,
    ) -> FloatArray:
        """Draw n_samples observations with the noise of p(x | z), from all clusters by weight, or from one."""
        generator = self._generator(n_samples, random_state)
        return self._emit(draw_from(self.mixture_, n_samples, component, "component", generator), generator)

    def _facets(self) -> tuple[Facet, ...]:
        return (Facet(slice(0, self.n_latents), self.n_components),)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require_integers(n_components=1)
