r"""Decoders as stacks of affine layers with piecewise linear activations, read from torch modules.

    f = h_t ∘ σ ∘ h_{t-1} ∘ ... ∘ σ ∘ h_1,    h_i(y) = W_i y + b_i,    σ(y) = y for y >= 0 and s y for y < 0

maps z in R^m to x in R^n; s = 0 is ReLU, s > 0 leaky, s = -1 the absolute value. Whether f is injective is judged in
`identifiable.theory.injectivity`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from identifiable import nets
from identifiable.arrays import Array
from identifiable.data.mixings import Mixing
from identifiable.errors import DataError, join_few
from identifiable.theory.thresholds import THRESHOLDS

FULL_RANK = THRESHOLDS.undecided_factor * THRESHOLDS.layer_rank  # from this share of the largest on, not zero


@dataclass(frozen=True, eq=False)
class Decoder:
    """f(z) = h_t(σ( ... σ(h_1(z)))), h_i(y) = W_i y + b_i, σ(y) = y for y >= 0, s_i y for y < 0.

    Built by `from_layers` or `of`. Layers with no activation between them count as one.

    Attributes
    ----------
    weights : t matrices W_i (n_i, n_{i-1}), n_0 = m the number of latents, n_t = n that of observed columns.
    biases : t vectors b_i (n_i,).
    slopes : t - 1 slopes s_i below zero: 0 for ReLU, 0 < s for leaky, -1 for the absolute value.
    unreadable : the part of the module that is not such a layer, "" if there is none. If there is one, `weights` is
        empty.
    smooth : whether that part is known not to be piecewise affine.

    Examples
    --------
    >>> f = Decoder.from_layers([([[1], [-1]], [0, 0]), ([[1, 1]], [0])])
    >>> f([[-2], [3]])  # ReLU(x) + ReLU(-x) = |x|
    array([[2.],
           [3.]])
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    slopes: tuple[float, ...]
    unreadable: str = ""
    smooth: bool = False

    @classmethod
    def from_layers(
        cls, layers: Sequence[tuple[ArrayLike, ArrayLike]], slope: float | Sequence[float] = 0.0
    ) -> "Decoder":
        """Build from (W_i, b_i), with one slope below zero for all activations, or one for each; 1 for none."""
        slopes = [slope] * (len(layers) - 1) if isinstance(slope, int | float) else list(slope)
        if not layers or len(slopes) != len(layers) - 1 or not np.isfinite(slopes).all():
            raise DataError(
                f"A decoder needs at least one layer and a finite slope between every two. Got {len(layers)} layers "
                f"and the slopes {slopes}."
            )
        found: list[tuple[Array, Array]] = []
        bends: list[float] = []
        width: int | str = "latents"
        for i, ((weight, bias), before) in enumerate(zip(layers, (0.0, *slopes), strict=True), start=1):
            w, b = np.asarray(weight, dtype=np.float64), np.asarray(bias, dtype=np.float64)
            fits = w.ndim == 2 and w.size and b.shape == w.shape[:1] and (not found or w.shape[1] == width)
            if not fits or not (np.isfinite(w).all() and np.isfinite(b).all()):
                raise DataError(
                    f"Layer {i} must have a finite weight of shape (units, {width}) and a finite bias of shape "
                    f"(units,), got {w.shape} and {b.shape}. Transpose a weight that maps rows."
                )
            if found and before == 1:
                found[-1] = w @ found[-1][0], w @ found[-1][1] + b
            else:
                found.append((w, b))
                bends.append(float(before))
            width = len(w)
        return cls(tuple(w for w, _ in found), tuple(b for _, b in found), tuple(bends[1:]))

    @classmethod
    def of(cls, module: nn.Module, *, member: int = 0) -> "Decoder":
        """Read the layers of a module: `nn.Linear` or `nn.Sequential`, `nets.MLP` (one of its members), a `Mixing`.

        Activations are recognised by their values at points from 0.001 to 1000 and their negatives. A module with any
        other part gives a decoder without weights; its `unreadable` names the part.

        Examples
        --------
        >>> f = Decoder.of(nn.Sequential(nn.Linear(2, 3), nn.LeakyReLU(0.1), nn.Linear(3, 4)))
        >>> [w.shape for w in f.weights], f.slopes
        ([(3, 2), (4, 3)], (0.1,))
        >>> Decoder.of(nn.Sequential(nn.Linear(2, 3), nn.Tanh())).unreadable
        'Tanh'
        """
        steps = [*_read(module, member)]
        unreadable = sorted((step for step in steps if isinstance(step, _Unreadable)), key=lambda step: not step.smooth)
        inputs = [step.weight.shape[1] for step in steps if isinstance(step, _Affine)]
        if not inputs:
            unreadable.append(_Unreadable(f"{type(module).__name__} without a linear layer"))
        if unreadable:
            return cls((), (), (), *unreadable[0])
        layers, slopes = [(np.eye(inputs[0]), np.zeros(inputs[0]))], []
        for step in steps:
            width = len(layers[-1][1])
            if isinstance(step, _Activation):  # slopes a, b are slopes a / b, 1 and then a factor b
                layers.append((step.above * np.eye(width), np.zeros(width)))
                slopes.append(step.below / step.above)
            elif isinstance(step, _Affine):
                layers.append((step.weight, step.bias))
                slopes.append(1.0)
        return cls.from_layers(layers, slopes)

    @property
    def m(self) -> int:
        """Number of latents."""
        return int(self.weights[0].shape[1])

    def __call__(self, z: ArrayLike) -> Array:
        """Map latents (N, m) to observations (N, n)."""
        return self.forward(z)[0]

    def forward(self, z: ArrayLike) -> tuple[Array, list[Array]]:
        """Return f(z) and the inputs of each activation, (N, n_i)."""
        hidden, y = [], np.asarray(z, dtype=np.float64)
        for w, b, slope in zip(self.weights, self.biases, (*self.slopes, 1.0), strict=True):
            hidden.append(y @ w.T + b)
            y = np.where(hidden[-1] < 0, slope * hidden[-1], hidden[-1])
        return y, hidden[:-1]

    @cached_property
    def spectra(self) -> list[Array]:
        """The singular values of every weight, as shares of its largest."""
        values = [np.linalg.svd(w, compute_uv=False) for w in self.weights]
        return [v / (v[0] or 1.0) for v in values]

    @cached_property
    def smallest_shares(self) -> list[float]:
        """The smallest singular value of every weight, as a share of its largest; 0 below full column rank."""
        return [share_of(values, w.shape[1]) for values, w in zip(self.spectra, self.weights, strict=True)]

    @cached_property
    def lossy(self) -> list[int]:
        """The layers after which the activation is not known to be injective."""
        steps = enumerate(zip(self.weights, self.biases, self.slopes, strict=False))
        return [i for i, (w, b, slope) in steps if not (slope > 0 or (slope == 0 and _in_pairs(w, b)))]

    @property
    def loss(self) -> str:
        """Where z can be lost, in words: layers without full column rank, else lossy activations; "" for nowhere."""
        shapes = enumerate(zip(self.weights, self.smallest_shares, strict=True), start=1)
        found = [
            f"layer {i} ({f'{w.shape[1]} dimensions to {len(w)}' if len(w) < w.shape[1] else 'no full column rank'})"
            for i, (w, share) in shapes
            if share < FULL_RANK
        ]
        found = found or [f"the {'|.|' if self.slopes[i] else 'ReLU'} of layer {i + 1}" for i in self.lossy]
        return f"; z can be lost in {join_few(found, most=3)}" if found else ""


def share_of(values: Array, k: int) -> float:
    """Return the k-th singular value as a share of the largest, 0 if there are fewer."""
    return float(values[k - 1] / (values[0] or 1.0)) if k <= len(values) else 0.0


def _in_pairs(w: Array, b: Array) -> bool:
    """Return whether ReLU(W y + b) determines y by rows v, -c v that are never both off, on a set of rows that span."""
    length = np.linalg.norm(w, axis=1)
    rows, offsets = w[length > 0] / length[length > 0, None], b[length > 0] / length[length > 0]
    opposite = rows @ rows.T <= -1 + 1e-12
    covered = offsets[:, None] + offsets >= -1e-12 * (1 + np.abs(offsets).max(initial=0))
    known = rows[(opposite & covered).any(1)]
    return len(known) >= w.shape[1] and share_of(np.linalg.svd(known, compute_uv=False), w.shape[1]) >= FULL_RANK


# -- reading modules -----------------------------------------------------------------------


class _Affine(NamedTuple):
    weight: Array
    bias: Array


class _Activation(NamedTuple):
    """An activation, by its slopes below and above 0."""

    below: float
    above: float


class _Unreadable(NamedTuple):
    """Any other part, and whether it is known not to be piecewise affine."""

    name: str
    smooth: bool = False


_RAMPS = (nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.Hardtanh)
_SMOOTH = (nn.Tanh, nn.Sigmoid, nn.SiLU, nn.GELU, nn.ELU, nn.Softplus)


def _read(module: nn.Module, member: int) -> Iterator[_Affine | _Activation | _Unreadable]:
    if isinstance(module, nn.Sequential):
        for part in module:
            yield from _read(part, member)
    elif isinstance(module, nn.Linear):
        yield _affine(module.weight, module.bias)
    elif isinstance(module, nets.Linear):
        members = len(module.weight)
        if not 0 <= member < members:
            raise DataError(f"member must be one of the {members} of the net, 0 to {members - 1}, got {member}.")
        yield _affine(module.weight[member].T, None if module.bias is None else module.bias[member, 0])
    elif isinstance(module, nets.MLP):
        known = [name for name, activation in nets.ACTIVATIONS.items() if activation is module.activation]
        for i, layer in enumerate(module.layers):
            if i:
                yield _read_activation(module.activation, *known or ["its activation"])
            yield from _read(layer, member)
    elif type(module) is Mixing:  # a subclass may compute something else
        first, *others = module.matrices
        yield _affine(first.T, None)
        for activation, matrix in zip(module.activations, others, strict=True):
            yield _read_activation(activation, type(activation).__name__)
            yield _affine(matrix.T, None)
    elif isinstance(module, _RAMPS + _SMOOTH):
        yield _read_activation(module, type(module).__name__)
    elif not isinstance(module, nn.Identity):
        yield _Unreadable(type(module).__name__)


def _affine(weight: Tensor, bias: Tensor | None) -> _Affine:
    w = weight.detach().cpu().double().numpy()
    return _Affine(w, np.zeros(len(w)) if bias is None else bias.detach().cpu().double().numpy())


def _read_activation(activation: Callable[[Tensor], Tensor], name: str) -> _Activation | _Unreadable:
    """Read the two slopes of an activation off its values. One that bends at over a quarter of the points is smooth.

    Examples
    --------
    >>> _read_activation(torch.relu, "relu"), _read_activation(torch.sin, "sin")
    (_Activation(below=0.0, above=1.0), _Unreadable(name='sin', smooth=True))
    """

    def values(points: Array) -> Array:
        with torch.no_grad():
            return np.asarray(activation(torch.as_tensor(points, dtype=torch.float64)).numpy())

    at = np.logspace(-3, 3, 13)
    below, above = np.abs(values(-at)) / at * -np.sign(values(-at)), values(at) / at
    even = all(np.allclose(slopes, slopes[0], rtol=1e-9, atol=1e-12) for slopes in (below, above))
    if even and values(np.zeros(1))[0] == 0 and above[0] != 0:
        return _Activation(float(below[0]) + 0.0, float(above[0]))  # + 0.0: no negative zero
    places, step = np.linspace(-3, 3, 41) + 0.013, 0.01
    second = values(places + step) - 2 * values(places) + values(places - step)
    return _Unreadable(name, smooth=bool((np.abs(second) > 1e-10).mean() > 0.25))
