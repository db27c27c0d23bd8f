r"""TwoStage: the method published with the pdGMM theorems, an autoencoder and then a sparse affine autoencoder.

Stage 1 learns a code y = g1(x) that is an affine function of the latents (Theorem 3.7 of Xu et al. 2026, in the limit):

    min_{f1, g1}  E‖x - f1(g1(x))‖² / d + E‖g1(x)‖² / 2.

Stage 2, with g1 frozen and f2, g2 affine, turns the code so that it is sparse (Theorem 3.9):

    min_{f2, g2}  E‖y - f2(g2(y))‖² / n     s.t.  E‖g2(y)‖₁ / n <= ε.

Both encoders end in batch normalisation, γ (h - mean) / sqrt(variance + 1e-5) + β. That takes the sense out of both
norms: the term E‖g1(x)‖² / 2 of stage 1 and the bound of stage 2 are met by shrinking γ, or the variance of h until it
vanishes beside the 1e-5, while the decoder grows in turn. `norm_weight=0` and `learn_scale=False` show what each does.

The published programme stops stage 2, and chooses its settings, by the correlation with the true latents. Nothing here
knows the truth: every step is taken, and restarts are compared with each other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import clone
from torch import Tensor

from identifiable.arrays import Array, FloatArray, hold_out, is_integer, is_real
from identifiable.data.simulator import Simulator
from identifiable.estimators.base import resolve_device
from identifiable.estimators.sparse_autoencoder import BLOCK, Bottleneck, SparseAutoencoder, excess_l1
from identifiable.nets import MLP, join_members, select_member, select_members
from identifiable.training import Batch, Constrained, History, Plan, Step, extragradient, minimise
from identifiable.training.cuda_graph import tf32
from identifiable.training.state import Batches

PILOT = 20_000  # rows of a simulator that fix units and batch statistics, and that restarts are compared on
POOL = 2**20  # fresh rows of a simulator that stage 2 draws its batches from


class DeepLinear(MLP):
    """An MLP without activations: x W_1 ... W_L + b for every member, the matrices multiplied out before x comes.

    It is the same function of x and of the weights as layer by layer, and so are its gradients, at the cost of
    inputs + 1 rows instead of a whole batch.

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


@dataclass
class _First:
    """What stage 1 leaves: its nets, the codes (R, N, n) for stage 2, the stream of its draws, and the rows."""

    module: Bottleneck
    codes: Tensor
    rng: torch.Generator
    train: FloatArray
    held: FloatArray
    history: History | None = None  # of stage 2

    def batches(self, size: int) -> Callable[[], Tensor]:
        """Return a function that draws codes (R, B, n), every member in its own order."""
        members, rows, _ = self.codes.shape
        device = self.codes.device
        numbers = torch.arange(rows, device=device)
        rng = torch.Generator(device).manual_seed(int(torch.randint(2**31, (), generator=self.rng)))
        batches, member = Batches([numbers], size, members, rng), torch.arange(members, device=device)[:, None]
        return lambda: self.codes[member, batches.draw()[0]]


def half_norm(z: Tensor) -> Tensor:
    """Return E‖z‖² / 2, (R,): -E log N(z; 0, I) but for a constant."""
    return z.square().sum(-1).mean(1) / 2


class TwoStage(SparseAutoencoder):
    """An autoencoder, then a sparse affine autoencoder of its code: the pdGMM paper's method, without its oracle stop.

    The defaults are the published settings. They were made for a GPU and for endless fresh rows: pass a `Simulator`
    (`sample.source`) instead of X for these.

    Parameters
    ----------
    n_latents : number of latents n.
    n_restarts : autoencoders trained together in one batch; their agreement is `stability_`.
    random_state, device, verbose : as everywhere.
    hidden, slope : layers of stage 1's encoder in multiples of n, and the slope of its leaky ReLU; the decoder mirrors
        them.
    norm_weight : weight of the term E‖g1(x)‖² / 2, which under batch normalisation shrinks the code and says nothing of
        its shape.
    learn_scale, epsilon : batch normalisation learns γ and β and adds ε to a variance, as published. False and 1e-12
        keep the variance at one, so that neither the norm nor the bound can be met by shrinking.
    max_steps, batch_size, learning_rate : of stage 1's Adam, at a constant rate; stage 2 has the same batch size.
    sparse_hidden : layers of stage 2's linear encoder in multiples of n; the decoder mirrors them.
    sparsity : the bound ε on the mean |z_i|.
    sparse_steps, sparse_rate, dual_rate : of stage 2's extragradient Adam, and its rate for the multiplier. With
        sparse_steps=0 there is no stage 2 and the latents are the code.

    Attributes
    ----------
    module_ : the kept autoencoder of stage 1.
    components_, offset_ : (n, n) and (n,) of stage 2, z = W y - offset for codes y; W's last factor is γ over the
        standard deviation.
    mixing_, origin_ : (n, n) and (n,) of its decoder, y = mixing z + origin.
    mean_, scale_ : (d,) and a number: what the columns were centred and divided by.
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

    components_: Array
    offset_: Array
    mixing_: Array
    origin_: Array
    sparse_history_: History | None

    def __init__(
        self,
        n_latents: int = 2,
        *,
        n_restarts: int = 2,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 1,
        hidden: Sequence[int] = (50, 100, 100, 50),
        slope: float = 0.02,
        norm_weight: float = 1.0,
        learn_scale: bool = True,
        epsilon: float = 1e-5,
        max_steps: int = 5001,
        batch_size: int = 6144,
        learning_rate: float = 1e-4,
        sparse_hidden: Sequence[int] = (10, 50, 50, 50, 50, 10),
        sparsity: float = 0.01,
        sparse_steps: int = 80_001,
        sparse_rate: float = 1e-4,
        dual_rate: float = 5e-5,
    ) -> None:
        self.n_latents = n_latents
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.hidden = hidden
        self.slope = slope
        self.norm_weight = norm_weight
        self.learn_scale = learn_scale
        self.epsilon = epsilon
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.sparse_hidden = sparse_hidden
        self.sparsity = sparsity
        self.sparse_steps = sparse_steps
        self.sparse_rate = sparse_rate
        self.dual_rate = dual_rate

    def fit(self, X: ArrayLike | Simulator, y: Any = None) -> Self:
        """Train both stages of `n_restarts` members at once, and keep the one that agrees most with the others.

        X is (N, d), a tenth of its rows (1000 at most) held out to compare the restarts on; or a `Simulator`, from
        which every step of stage 1 draws fresh rows, as in the paper, and stage 2 a million. y is ignored.
        """
        first = self._first_stage(X)
        (linear,) = self._second_stages([first])
        self._finish(first, linear)
        return self

    def fit_many(self, sets: Sequence[ArrayLike | Simulator]) -> "list[TwoStage]":
        """Fit a copy of this estimator to each of many data sets, and return the copies in their order.

        Stage 1 takes one after the other, stage 2 all at once, which on a GPU costs little more than one. Each copy is
        as `fit` would leave it, but for rounding.
        """
        models: list[TwoStage] = [clone(self) for _ in sets]
        firsts = [model._first_stage(X) for model, X in zip(models, sets, strict=True)]
        for model, first, linear in zip(models, firsts, self._second_stages(firsts), strict=True):
            model._finish(first, linear)
        return models

    def _first_stage(self, X: ArrayLike | Simulator) -> "_First":
        """Train the autoencoders, and leave what stage 2 needs."""
        self._check_parameters()
        seed, device = self._seed(), resolve_device(self.device)
        source = X if isinstance(X, Simulator) else None
        given: Any = X if source is None else source.sample(PILOT, seed).x
        X = self._check_training_data(given)
        train, held = hold_out(len(X), seed)
        self._set_units(X[train])
        rng = torch.Generator().manual_seed(seed)
        module = self._build(self.n_restarts, rng).to(device)
        rows = self._to_tensor(X[train], torch.float32, device)
        stream = None if source is None else self._stream(source, device)

        def loss(batch: Batch, step: Step) -> Tensor:
            (x,) = batch
            y = module(x)
            return module.reconstruction(x, y) + self.norm_weight * half_norm(y)

        plan = Plan(
            steps=self.max_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            warm_up=0.0,
            final=1.0,  # the rate is constant
            betas=(0.9, 0.999),
        )
        with tf32():
            self.history_ = minimise(
                module, loss, stream or [rows], plan, seed=seed, capture=True, verbose=self.verbose
            )
        module.freeze(lambda: module.blocks(rows))
        if stream is not None and self.sparse_steps > 0:
            fresh = min(POOL, self.sparse_steps * self.batch_size)
            (rows,) = stream(fresh, torch.Generator(device).manual_seed(seed + 1))
        return _First(module, module.codes(rows), rng, X[train], X[held])

    def _second_stages(self, firsts: Sequence["_First"]) -> list[Bottleneck | None]:
        """Train the affine autoencoders of the codes of every data set, those with batches of one size at once."""
        found: list[Bottleneck | None] = [None] * len(firsts)
        if self.sparse_steps == 0:
            return found
        sizes = [min(self.batch_size, first.codes.shape[1]) for first in firsts]
        for size in sorted(set(sizes)):
            alike = [i for i, own in enumerate(sizes) if own == size]
            for i, linear in zip(alike, self._second_stage([firsts[i] for i in alike]), strict=True):
                found[i] = linear
        return found

    def _second_stage(self, firsts: Sequence["_First"]) -> list[Bottleneck]:
        linears = [self._build_linear(first.rng).to(first.codes.device) for first in firsts]
        linear = join_members(linears)
        draws = [first.batches(self.batch_size) for first in firsts]

        def objective(batch: Batch) -> Constrained:
            (y,) = batch
            z = linear(y)
            return Constrained(linear.reconstruction(y, z), excess_l1(z, self.sparsity))

        def draw() -> Batch:
            return (torch.cat([one() for one in draws]),)

        rates = self.sparse_rate, self.dual_rate
        history = extragradient(linear, objective, draw, self.sparse_steps, rates, self.verbose)
        found = []
        for i, first in enumerate(firsts):
            own = range(i * self.n_restarts, (i + 1) * self.n_restarts)
            one = select_members(linear, own)
            one.freeze(partial(first.codes.split, BLOCK, dim=1))
            first.history = history.of(own)
            found.append(one)
        return found

    def _finish(self, first: "_First", linear: Bottleneck | None) -> None:
        """Keep one restart, and set what is read off it."""
        self.sparse_history_ = first.history
        device = first.codes.device
        latents = first.module.codes(self._to_tensor(first.held, torch.float32, device))
        with torch.no_grad():
            latents = latents if linear is None else linear(latents)
        kept = self._compare_restarts(latents.double().cpu().numpy())
        self.module_ = select_member(first.module, kept)
        self._set_map(None if linear is None else select_member(linear, kept))
        self._set_moments(first.train, first.held)

    def stage1_transform(self, X: ArrayLike) -> FloatArray:
        """Return the code y = g1(x) of stage 1 alone, (N, n_latents)."""
        return super()._latents(self._check_new_data(X))

    def _build_linear(self, rng: torch.Generator) -> Bottleneck:
        widths = (self.n_latents, *(h * self.n_latents for h in self.sparse_hidden), self.n_latents)
        encoder, decoder = (DeepLinear(self.n_restarts, w, rng=rng) for w in (widths, widths[::-1]))
        return Bottleneck(encoder, decoder, learn_scale=self.learn_scale, epsilon=self.epsilon)

    @torch.no_grad()
    def _set_map(self, linear: Bottleneck | None) -> None:
        """Multiply the one member of stage 2 out: z = W y - offset and y = mixing z + origin; the identity for None."""
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

    def _latents(self, X: FloatArray) -> FloatArray:
        return (super()._latents(X) @ self.components_.T - self.offset_).astype(X.dtype)

    def _observations(self, Z: FloatArray) -> FloatArray:
        return super()._observations((Z @ self.mixing_.T + self.origin_).astype(Z.dtype))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_widths("sparse_hidden")
        self._require("norm_weight", is_real(self.norm_weight, -1e-300), "a number >= 0")
        self._require("sparse_steps", is_integer(self.sparse_steps, 0), "an integer >= 0")
        self._require("sparse_rate", is_real(self.sparse_rate, 0), "a number > 0")

    def _stream(self, source: Simulator, device: torch.device) -> Callable[[int, torch.Generator], tuple[Tensor]]:
        """Return a function (rows, rng) -> fresh rows in the units of the nets."""
        draw, mean = source.stream(device), torch.as_tensor(self.mean_, dtype=torch.float32, device=device)
        return lambda rows, rng: ((draw(rows, rng)[0] - mean) / self.scale_,)
