r"""GroupedSparse: a sparse code that is Gaussian in every component, where the component of each row is known.

Xu et al. (2024). With labels j(x) and latents that are (degenerate) Gaussian in each component,

    min_{f, g}  E‖x - f(g(x))‖² / d + w G(g(x))      s.t.  E‖g(x)‖₁ / n <= ε,

    G(z) = Σ_j p_j mean_i( |skewness of z_i in j| + |excess kurtosis of z_i in j| ),     p_j the share of component j.

A code that is Gaussian in every component is affine in the latents there, and the sparsest such code is a permutation
and scaling of them. The labels make it an oracle: an upper bound for methods that must find the components themselves.
The oracle of Xu et al. (2026, table 8) also knows which latents are active in each component. With these `masks`, the
term of an inactive latent is E[z_i² | j] / Var z_i instead.
"""

from collections.abc import Generator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from identifiable.arrays import is_real
from identifiable.errors import DataError
from identifiable.estimators.sparse_autoencoder import Bottleneck, SparseAutoencoder, excess_l1
from identifiable.estimators.trained import Split
from identifiable.nets import as_tensor
from identifiable.training import Batch, Constrained, History, Stage, Step

LEAST_ROWS = 8  # of a component in a batch, for its moments to count
INACTIVE = 1e-4  # variance within a component, as a share of the latent's variance, below which it is inactive


def gaussianity(z: Tensor, labels: Tensor, components: int, masks: Tensor | None = None) -> Tensor:
    """Return G(z), (R,), for codes z (R, B, n) of components labels (R, B), with masks (J, n) where these are known.

    Moments are about the mean of a component. Excess kurtosis is m_4 - 3 m_2² over (m_2 + e)², which ignores latents
    that are inactive in a component.

    Examples
    --------
    >>> rng = torch.Generator().manual_seed(0)
    >>> labels = torch.arange(20_000).remainder(2)[None]
    >>> z = torch.randn(1, 20_000, 1, generator=rng) * (1 + labels[..., None]) + 9 * labels[..., None]
    >>> [round(float(gaussianity(t, labels, 2)), 1) for t in (z, z.abs(), z**3)]
    [0.1, 1.0, 5.0]
    """
    member = F.one_hot(labels, components).to(z.dtype)  # (R, B, J)
    count = member.sum(1)  # (R, J)

    def mean(t: Tensor) -> Tensor:
        return torch.bmm(member.mT, t) / count.clamp(min=1)[..., None]  # (R, J, n)

    centred = z - torch.bmm(member, mean(z))
    variance = z.var(1, correction=0)[:, None] + 1e-12
    standard = centred * torch.bmm(member, (mean(centred.square()) + INACTIVE * variance.detach()).rsqrt())
    second, third, fourth = (mean(standard**k) for k in (2, 3, 4))
    departure = third.abs() + (fourth - 3 * second.square()).abs()
    if masks is not None:
        departure = torch.where(masks, departure, mean(z.square()) / variance)
    share = torch.where(count >= LEAST_ROWS, count, 0.0)
    return (share * departure.mean(-1)).sum(1) / share.sum(1).clamp(min=1)


@dataclass(eq=False, repr=False)
class GroupedSparse(SparseAutoencoder):
    """A sparse autoencoder whose code is Gaussian in every known component.

    Parameters
    ----------
    n_latents : number of latents n.
    n_restarts : autoencoders trained together in one batch; their agreement is `stability_`.
    random_state, device, verbose : see :class:`LatentModel`.
    hidden, slope : layers of the encoder in multiples of n, and the slope of its leaky ReLU; the decoder mirrors them.
    gaussianity : the weight w of G. 0 leaves the labels unused, and then nothing keeps a flexible encoder from making
        any code sparse.
    masks : (J, n) which latents are active in each component, in the order of the sorted labels; None: not known.
    sparsity : the bound ε on the mean |z_i|.
    learn_scale, epsilon : batch normalisation learns a scale, and adds ε to a variance, as published: the bound can be
        met by shrinking either.
    max_steps, batch_size, learning_rate, dual_rate : of the extragradient Adam, and its rate for the multiplier.

    Attributes
    ----------
    module_, classes_ : the kept autoencoder; the distinct labels (J,).
    mean_, scale_, noise_, latent_mean_, latent_covariance_, history_, stability_, fit_status_ : as for `TwoStage`.

    Examples
    --------
    >>> from identifiable.data import make_pdgmm
    >>> s = make_pdgmm(500, n=2, rho="1 var", layers=2, random_state=0)
    >>> model = GroupedSparse(2, n_restarts=1, max_steps=20, batch_size=200, random_state=0).fit(s.x, s.component)
    >>> model.classes_, model.transform(s.x).shape
    (array([0, 1]), (500, 2))

    References
    ----------
    Xu, Yao, Lachapelle, Taslakian, von Kügelgen, Locatello & Magliacane, A sparsity principle for partially observable
    causal representation learning, ICML 2024.
    """

    _: KW_ONLY
    n_restarts: int = 2
    hidden: Sequence[int] = (10, 50, 50, 50, 50, 10)
    gaussianity: float = 0.1
    masks: ArrayLike | None = None
    max_steps: int = 10001
    batch_size: int = 10000
    learning_rate: float = 5e-05
    dual_rate: float = 2.5e-05

    def __sklearn_tags__(self) -> Any:
        """Declare that labels are needed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _split(self, X: Any, y: Any) -> Split:
        """Check X and the components y (N,) of its rows, numbers or names."""
        data = super()._split(X, y)
        return replace(data, u=self._check_labels(y, len(data.X)))

    def _stages(self, data: Split) -> Generator[Stage, History, Bottleneck]:
        module = self._build(self.n_restarts, data.rng()).to(data.device)
        rows = as_tensor(self._inputs(data.X_train), data.device)
        masks = self._check_masks(data.device)

        def loss(batch: Batch, step: Step) -> Constrained:
            x, j = batch
            z = module(x)
            departure = gaussianity(z, j, len(self.classes_), masks)
            return Constrained(module.reconstruction(x, z) + self.gaussianity * departure, excess_l1(z, self.sparsity))

        plan = self._constrained(self.max_steps, self.batch_size, (self.learning_rate, self.dual_rate))
        labels = torch.as_tensor(data.u_train, device=data.device)
        self.history_ = yield Stage(module, loss, [rows, labels], plan, data.seed, capture=True)
        module.freeze(lambda: module.blocks(rows))
        return module

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require("gaussianity", is_real(self.gaussianity, -1e-300), "a number >= 0")

    def _check_labels(self, y: Any, rows: int) -> NDArray[np.int64]:
        if y is None:
            raise ValueError("fit requires y to be passed, but the target y is None: give the component of every row.")
        labels = column_or_1d(y)
        if len(labels) != rows:
            raise DataError(f"y must hold one component per row: X has {rows}, y has {len(labels)}.")
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        return numbers.astype(np.int64)

    def _check_masks(self, device: torch.device) -> Tensor | None:
        if self.masks is None:
            return None
        masks, shape = np.asarray(self.masks), (len(self.classes_), self.n_latents)
        if masks.shape != shape:
            raise DataError(f"masks must have a row per component and a column per latent, {shape}. Got {masks.shape}.")
        return torch.as_tensor(masks.astype(bool), device=device)
