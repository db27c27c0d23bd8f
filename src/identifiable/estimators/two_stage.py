r"""TwoStage: the method published with the pdGMM theorems, an autoencoder and then a sparse affine autoencoder.

Stage 1 learns a code y = g1(x) that is an affine function of the latents (Theorem 3.7 of Xu et al. 2026, in the limit):

    min_{f1, g1}  E‖x - f1(g1(x))‖² / d + E‖g1(x)‖² / 2.

Stage 2, with g1 frozen and f2, g2 affine, turns the code so that it is sparse (Theorem 3.9):

    min_{f2, g2}  E‖y - f2(g2(y))‖² / n     s.t.  E‖g2(y)‖₁ / n <= ε.

Both encoders end in batch normalisation, γ (h - mean) / sqrt(variance + 1e-5) + β. This defeats both norms: the term
E‖g1(x)‖² / 2 of stage 1 and the bound of stage 2 can be met by shrinking γ, or the variance of h below 1e-5, while the
decoder grows in turn. `norm_weight=0` and `learn_scale=False` show the effect of each.

The published programme stops stage 2, and chooses its settings, by the correlation with the true latents. This
implementation uses no ground truth: it takes every step, and compares restarts with each other.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import clone
from torch import Tensor

from identifiable.arrays import BLOCK, Array, FloatArray, is_real
from identifiable.data.simulator import Simulator
from identifiable.estimators.sparse_autoencoder import Bottleneck, SparseAutoencoder, excess_l1
from identifiable.estimators.trained import LatentModule, Split
from identifiable.nets import MLP, as_tensor, join_members, select_members
from identifiable.training import Batch, Constrained, History, Plan, Stage, Step, minimise, run
from identifiable.training.cuda_graph import tf32
from identifiable.training.state import Batches

POOL = 2**20  # fresh rows of a simulator, from which stage 2 draws its batches


class DeepLinear(MLP):
    """An MLP without activations: x W_1 ... W_L + b for every member, with the matrices multiplied out first.

    Values and gradients are those of layer-by-layer evaluation, at the cost of inputs + 1 rows instead of a batch.

    Examples
    --------
    >>> rng = torch.Generator().manual_seed(0)
    >>> net, x = DeepLinear(2, (3, 8, 8, 3), rng=rng), torch.randn(2, 5, 3, generator=rng)
    >>> bool(torch.allclose(net(x), MLP.forward(net, x), atol=1e-6))
    True
    """

    def __init__(self, members: int, widths: Sequence[int], *, rng: torch.Generator | None = None) -> None:
        super().__init__(members, widths, activation="identity", rng=rng)

    def affine(self) -> tuple[Tensor, Tensor]:
        """Return A (R, inputs, outputs) and b (R, 1, outputs) of x A + b."""
        first = next(self.parameters())
        members, inputs, _ = first.shape
        basis = torch.eye(inputs + 1, inputs, dtype=first.dtype, device=first.device)  # the last row is zero
        images = super().forward(basis.expand(members, -1, -1))
        return images[:, :-1] - images[:, -1:], images[:, -1:]

    def forward(self, x: Tensor) -> Tensor:
        """Map (R, B, inputs) to (R, B, outputs)."""
        matrix, shift = self.affine()
        return torch.baddbmm(shift, x, matrix)


class BothStages(LatentModule):
    """The autoencoder of stage 1 and the affine one of its code, if there is one; R members."""

    def __init__(self, first: Bottleneck, second: Bottleneck | None) -> None:
        super().__init__()
        self.first, self.second = first, second

    def latents(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the code of the code of x (R, B, d)."""
        y = self.first(x)
        return y if self.second is None else self.second(y)

    def log_prob(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return minus the squared error of stage 1 (R, B)."""
        return self.first.log_prob(x)


@dataclass(frozen=True)
class Codes:
    """The autoencoders of stage 1, their codes (R, N, n) for stage 2, and a generator."""

    module: Bottleneck
    codes: Tensor
    rng: torch.Generator

    def batches(self, size: int) -> Callable[[], Tensor]:
        """Return a function that draws codes (R, B, n), every member in its own order."""
        members, rows, _ = self.codes.shape
        device = self.codes.device
        numbers = torch.arange(rows, device=device)
        rng = torch.Generator(device).manual_seed(int(torch.randint(2**31, (), generator=self.rng)))
        batches, member = Batches([numbers], size, members, rng), torch.arange(members, device=device)[:, None]
        return lambda: self.codes[member, batches.draw()[0]]


def half_norm(z: Tensor) -> Tensor:
    """Return E‖z‖² / 2, (R,): -E log N(z; 0, I) up to a constant."""
    return z.square().sum(-1).mean(1) / 2


@dataclass(eq=False, repr=False)
class TwoStage(SparseAutoencoder):
    """An autoencoder, then a sparse affine autoencoder of its code: the pdGMM paper's method, without its oracle stop.

    The defaults are the published settings. They were made for a GPU and for endless fresh rows: pass a `Simulator`
    (`sample.source`) instead of X for these.

    Parameters
    ----------
    n_latents : int, default=2. Number of latents n.
    n_restarts : int, default=2. Autoencoders trained in one batch. Their agreement is `stability_`; the one that agrees
        most with the others is kept.
    random_state, device, verbose : see :class:`LatentModel`.
    hidden, slope : layers of stage 1's encoder in multiples of n, and the slope of its leaky ReLU; the decoder mirrors
        them.
    norm_weight : float, default=1. Weight of the term E‖g1(x)‖² / 2, which under batch normalisation shrinks the code
        but does not affect its shape.
    learn_scale, epsilon : batch normalisation learns γ and β and adds ε to a variance, as published. False and 1e-12
        keep the variance at one, so that neither the norm nor the bound can be met by shrinking.
    max_steps, batch_size, learning_rate : of stage 1's Adam, at a constant rate; stage 2 has the same batch size.
    sparse_hidden : layers of stage 2's linear encoder in multiples of n; the decoder mirrors them.
    sparsity : float, default=0.01. The bound ε on the mean |z_i|.
    sparse_steps, sparse_rate, dual_rate : of stage 2's extragradient Adam, and its rate for the multiplier. With
        sparse_steps=0 there is no stage 2 and the latents are the code.

    Attributes
    ----------
    module_ : the kept autoencoder of stage 1.
    components_, offset_ : (n, n) and (n,) of stage 2, z = W y - offset for codes y; W's last factor is γ over the
        standard deviation.
    mixing_, origin_ : (n, n) and (n,) of its decoder, y = mixing z + origin.
    mean_, scale_ : (d,) and a number: the columns are centred and divided by these.
    noise_ : standard deviation of the reconstruction error on held-out rows, in the units of the data.
    latent_mean_, latent_covariance_ : moments of the latents of the training rows.
    history_, sparse_history_ : `History` of stages 1 and 2; the latter is None without a stage 2.
    stability_, fit_status_ : the agreement between restarts on held-out rows, after both stages.

    Examples
    --------
    >>> from identifiable.data import make_pdgmm
    >>> s = make_pdgmm(500, n=2, rho="1 var", layers=2, random_state=0)
    >>> quick = {"max_steps": 20, "sparse_steps": 20, "batch_size": 200, "n_restarts": 1, "random_state": 0}
    >>> model = TwoStage(2, **quick).fit(s.x)
    >>> model.stage1_transform(s.x).shape, model.transform(s.x).shape
    ((500, 2), (500, 2))
    >>> z = model.stage1_transform(s.x) @ model.components_.T - model.offset_
    >>> bool(abs(z - model.transform(s.x)).max() < 1e-12)
    True

    References
    ----------
    Xu, Lachapelle & Magliacane, Identifiability of potentially degenerate Gaussian mixture models with piecewise affine
    mixing, AISTATS 2026.
    """

    _: KW_ONLY
    n_restarts: int = 2
    hidden: Sequence[int] = (50, 100, 100, 50)
    norm_weight: float = 1.0
    max_steps: int = 5001
    batch_size: int = 6144
    learning_rate: float = 0.0001
    sparse_hidden: Sequence[int] = (10, 50, 50, 50, 50, 10)
    sparse_steps: int = 80001
    sparse_rate: float = 0.0001
    dual_rate: float = 5e-05

    takes_simulator = True

    components_: Array = field(init=False)
    offset_: Array = field(init=False)
    mixing_: Array = field(init=False)
    origin_: Array = field(init=False)
    sparse_history_: History | None = field(init=False)

    def fit_many(self, sets: Sequence[ArrayLike | Simulator]) -> "list[TwoStage]":
        """Fit a copy of this estimator to each of many data sets, and return the copies in their order.

        Stage 1 takes one data set after the other, stage 2 all at once, which on a GPU costs little more than one. Each
        copy is as `fit` would leave it, up to rounding.
        """
        models: list[TwoStage] = [clone(self) for _ in sets]
        self._check_parameters()
        splits = [model._split(X, None) for model, X in zip(models, sets, strict=True)]
        firsts: list[Codes] = []
        for model, data in zip(models, splits, strict=True):
            model._set_inputs(data)
            firsts.append(run(model._first_stage(data), self.verbose))
        histories: list[History | None] = [None] * len(sets)
        seconds: list[Bottleneck | None] = [None] * len(sets)
        sizes = [min(self.batch_size, first.codes.shape[1]) for first in firsts]
        for size in sorted(set(sizes)) if self.sparse_steps else []:  # data sets with batches of one size at once
            group = [i for i, own in enumerate(sizes) if own == size]
            stage = self._second_stage([firsts[i] for i in group])
            history = minimise(**vars(stage), verbose=self.verbose)
            for k, i in enumerate(group):
                members = range(k * self.n_restarts, (k + 1) * self.n_restarts)
                seconds[i], histories[i] = select_members(cast(Bottleneck, stage.module), members), history.of(members)
        for i, (model, data) in enumerate(zip(models, splits, strict=True)):
            model._restarts, model.sparse_history_ = _joined(firsts[i], seconds[i]), histories[i]
            model._keep_restart(data)
            model._set_results(data)
        return models

    def _stages(self, data: Split) -> Generator[Stage, History, BothStages]:
        first = yield from self._first_stage(data)
        second, self.sparse_history_ = None, None
        if self.sparse_steps:
            stage = self._second_stage([first])
            self.sparse_history_ = yield stage
            second = cast(Bottleneck, stage.module)
        return _joined(first, second)

    def _first_stage(self, data: Split) -> Generator[Stage, History, Codes]:
        """Train the autoencoders, and return their codes."""
        rng = data.rng()
        module = self._build(self.n_restarts, rng).to(data.device)
        rows = as_tensor(self._inputs(data.X_train), data.device)
        stream = None if data.source is None else self._stream(data.source, data.device)

        def loss(batch: Batch, step: Step) -> Tensor:
            (x,) = batch
            y = module(x)
            return module.reconstruction(x, y) + self.norm_weight * half_norm(y)

        rate = self.learning_rate
        plan = Plan(self.max_steps, self.batch_size, rate, warm_up=0.0, final=1.0, betas=(0.9, 0.999))
        with tf32():
            self.history_ = yield Stage(module, loss, stream or [rows], plan, data.seed, capture=True)
        module.freeze(lambda: module.blocks(rows))
        if stream is not None and self.sparse_steps > 0:
            fresh = min(POOL, self.sparse_steps * self.batch_size)
            (rows,) = stream(fresh, torch.Generator(data.device).manual_seed(data.seed + 1))
        return Codes(module, module.codes(rows), rng)

    def _second_stage(self, firsts: Sequence[Codes]) -> Stage:
        """Return the stage that trains the affine autoencoders of the codes of all data sets."""
        linear = join_members([self._build_linear(first.rng).to(first.codes.device) for first in firsts])
        size = min(self.batch_size, firsts[0].codes.shape[1])
        draws = [first.batches(size) for first in firsts]

        def loss(batch: Batch, step: Step) -> Constrained:
            (y,) = batch
            z = linear(y)
            return Constrained(linear.reconstruction(y, z), excess_l1(z, self.sparsity))

        def codes(rows: int, rng: torch.Generator) -> tuple[Tensor]:
            return (torch.cat([draw() for draw in draws]).flatten(0, 1),)

        plan = self._constrained(self.sparse_steps, size, (self.sparse_rate, self.dual_rate))
        return Stage(linear, loss, codes, plan, capture=True)

    def _set_results(self, data: Split) -> None:
        kept: BothStages = cast(Any, self.module_)
        self._set_map(kept.second)
        self.module_ = kept.first
        super()._set_results(data)

    def stage1_transform(self, X: ArrayLike) -> FloatArray:
        """Return the code y = g1(x) of stage 1 alone, (N, n_latents)."""
        return self._apply(lambda module, x: module(x), self._inputs(self._check_new_data(X)))[0]

    def _build_linear(self, rng: torch.Generator) -> Bottleneck:
        widths = (self.n_latents, *(h * self.n_latents for h in self.sparse_hidden), self.n_latents)
        encoder, decoder = (DeepLinear(self.n_restarts, w, rng=rng) for w in (widths, widths[::-1]))
        return Bottleneck(encoder, decoder, learn_scale=self.learn_scale, epsilon=self.epsilon)

    @torch.no_grad()
    def _set_map(self, linear: Bottleneck | None) -> None:
        """Multiply out stage 2: z = W y - offset and y = mixing z + origin; the identity for None."""
        n = self.n_latents
        self.components_, self.offset_, self.mixing_, self.origin_ = np.eye(n), np.zeros(n), np.eye(n), np.zeros(n)
        if linear is None:
            return
        linear = linear.double().cpu()
        gain = linear.scale / linear.normalise.scale
        shift = linear.shift - linear.normalise.mean * gain
        encoder, decoder = linear.encoder, linear.decoder
        assert isinstance(encoder, DeepLinear)
        assert isinstance(decoder, DeepLinear)
        matrix, bias = encoder.affine()
        self.components_ = (matrix * gain)[0].T.numpy().copy()
        self.offset_ = -(bias * gain + shift)[0, 0].numpy()
        matrix, bias = decoder.affine()
        self.mixing_, self.origin_ = matrix[0].T.numpy().copy(), bias[0, 0].numpy().copy()

    def _encode(self, module: Any, x: Tensor, u: Tensor | None = None) -> Tensor:
        z = module.latents(x)
        return z if isinstance(module, BothStages) else z @ _like(z, self.components_).mT - _like(z, self.offset_)

    def _decode(self, module: Bottleneck, z: Tensor) -> Tensor:
        return module.observations(z @ _like(z, self.mixing_).mT + _like(z, self.origin_))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require_widths("sparse_hidden")
        self._require("norm_weight", is_real(self.norm_weight, -1e-300), "a number >= 0")
        self._require_integers(sparse_steps=0)
        self._require_positive("sparse_rate")

    def _stream(self, source: Simulator, device: torch.device) -> Callable[[int, torch.Generator], tuple[Tensor]]:
        """Return a function (rows, rng) -> fresh rows in the units of the nets."""
        draw, mean = source.stream(device), torch.as_tensor(self.mean_, dtype=torch.float32, device=device)
        return lambda rows, rng: ((draw(rows, rng)[0] - mean) / self.scale_,)


def _joined(first: Codes, second: Bottleneck | None) -> BothStages:
    """Fix the batch statistics of stage 2, and return both stages."""
    if second is not None:
        second.freeze(partial(first.codes.split, BLOCK, dim=1))
    return BothStages(first.module, second)


def _like(z: Tensor, values: Array) -> Tensor:
    return torch.as_tensor(values, dtype=z.dtype, device=z.device)
