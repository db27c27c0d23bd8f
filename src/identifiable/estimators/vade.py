r"""VaDE: a variational autoencoder with a Gaussian mixture for a prior; the hidden cluster does the work of u.

Model (Jiang et al. 2017; Willetts & Paige 2021; Kivva et al. 2022), with decoder f and encoder (m, S):

    u ~ Cat(w),   z | u ~ N(μ_u, diag σ_u²),   x | z ~ p(x; f(z)),   q(z | x) = N(m(x), S(x)).

Weights, means and variances are learnt. `_mixture_vae` has the bound, Willetts & Paige's equations (5) and (6).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from identifiable.arrays import FloatArray, is_integer
from identifiable.distributions.mixture import Mixture
from identifiable.estimators.mixture_vae import Facet, MixtureVAE
from identifiable.nets import Architecture


class VaDE(MixtureVAE):
    """Variational deep embedding: latents that are a Gaussian mixture, and rows that fall into clusters.

    Parameters
    ----------
    n_latents : number of latents n.
    n_components : clusters K of the mixture; fewer where rows are few.
    n_restarts : autoencoders trained together in one batch; their agreement is `stability_`, the one with the best
        held-out bound is kept.
    random_state : an integer makes a fit repeatable, bit for bit, on one machine and device.
    device : "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:<number>".
    verbose : 1 shows a progress bar on a terminal, 0 nothing.
    bound : "single-sample", equation (6) of Willetts & Paige, or "factorised", equation (5), which is lower.
    first_beta : weight of the divergence of q when training starts; it goes to 1 over the first half. With less than 1
        latents find out what they are for before they have to pay for it. None: 1 after a flow and for a random start,
        else 0.1.
    init : "flow": nets and mixture first learn what `GMMFlow` finds; "autoencoder": nets are trained without a prior
        first, and a mixture is fitted to their latents; "linear": the same, while the latents are held to the principal
        components, which gives all restarts the same way to go; "random". "auto": "flow" for Gaussian columns and at
        most 20 latents unless a `net` is given, else "autoencoder".
    pretrain_steps : steps before those with the bound; a flow takes them twice, and as many to be learnt. None: 4000
        for a flow, else `max_steps`.
    posterior : "full" or "diagonal" covariance of q; "auto": full up to 10 latents.
    likelihood : "gaussian" (columns are standardised inside; one learnt noise scale per column), "bernoulli" (values in
        [0, 1]), "logistic" (pixels in {0, 1/255, ..., 1}) or "categorical" (whole numbers that name categories).
    binarise : with "bernoulli": None takes values for probabilities, "threshold" cuts them at 1/2, "draw" draws a bit
        for each anew at every step of training.
    hidden, activation : layers of the encoder; the decoder mirrors them.
    net : a name ("mlp", "convnet", "resnet", "arch1", ...) or an `identifiable.nets.Architecture` in the place of
        both. With it X may hold images (N, h, w) or (N, h, w, c), and images come out, too.
    max_steps, batch_size, learning_rate : of Adam; the rate warms up and falls along a cosine. None: 3e-5 after a flow,
        else 0.002.
    patience : stop after this many records (of 100) without a better held-out bound in any restart; None: never.
    checkpoint : a file from which an interrupted training continues exactly; an interrupted start is made again. It is
        removed when the fit is done.

    Attributes
    ----------
    module_ : the kept nets and their mixture.
    mixture_ : `Mixture`, the learnt law of the latents, its heaviest component first.
    image_shape_ : shape of an image, if `fit` was given images.
    restart_scores_ : (R,) bound on held-out rows.
    history_ : `History` of the training.
    stability_, fit_status_ : agreement between restarts.
    certificate_ : `Certificate`: what is identified, and why.

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
    NeurIPS 2022. The start from a flow and the full covariance of q are this library's own.
    """

    def __init__(
        self,
        n_latents: int = 2,
        n_components: int = 10,
        *,
        n_restarts: int = 4,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
        bound: str = "single-sample",
        first_beta: float | None = None,
        init: str = "auto",
        pretrain_steps: int | None = None,
        posterior: str = "auto",
        likelihood: str = "gaussian",
        binarise: Literal["threshold", "draw"] | None = None,
        hidden: Sequence[int] = (128, 128, 128),
        activation: str = "leaky_relu",
        net: str | Architecture | None = None,
        max_steps: int = 3000,
        batch_size: int = 256,
        learning_rate: float | None = None,
        patience: int | None = 20,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.n_latents = n_latents
        self.n_components = n_components
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.bound = bound
        self.first_beta = first_beta
        self.init = init
        self.pretrain_steps = pretrain_steps
        self.posterior = posterior
        self.likelihood = likelihood
        self.binarise = binarise
        self.hidden = hidden
        self.activation = activation
        self.net = net
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.checkpoint = checkpoint

    @property
    def mixture_(self) -> Mixture:
        """The learnt law of the latents."""
        return self._mixture(0)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable cluster of each row (N,), as numbered in `mixture_`."""
        return self.predict_proba(X).argmax(1)

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return q(u | x) ∝ exp E_q(z|x) log w_u N(z; u), (N, K): the best q(u | x) for equation (5)."""
        check_is_fitted(self)
        return self._cluster_probabilities(X, 0)

    def sample(
        self,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = None,
        *,
        component: int | None = None,
    ) -> FloatArray:
        """Draw n_samples observations, the noise of p(x | z) included: of all clusters by weight, or of one."""
        check_is_fitted(self)
        generator = check_random_state(random_state)
        return self._emit(self._draw_facet(n_samples, 0, component, generator), generator)

    def _facets(self) -> tuple[Facet, ...]:
        return (Facet(slice(0, self.n_latents), self.n_components),)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require("n_components", is_integer(self.n_components, 1), "an integer >= 1")
