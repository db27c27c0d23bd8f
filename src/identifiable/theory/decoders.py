r"""How injective a piecewise affine decoder is, read from its layers: (F1) to (F4) of Kivva et al. (2022).

    f = h_t ∘ σ ∘ h_{t-1} ∘ ... ∘ σ ∘ h_1,    h_i(y) = W_i y + b_i,    σ(y) = y for y >= 0 and s y for y < 0

maps z in R^m to x in R^n; s = 0 is ReLU, s > 0 leaky, s = -1 the absolute value. f is continuous, and

    F4  every x = f(z) has one preimage
    F3  almost every x of the image has one, by m-dimensional volume
    F2  every x of some open part of the image has one, and almost none has infinitely many

F4 implies F3, and F3 implies F2. f has finitely many pieces, so where x has infinitely many preimages, a piece of rank
below m has them, whose image has volume 0: the second half of F2 holds if the image has dimension m.

**Too thin.** If some W_i has rank below m, the image has dimension below m: F2, F3 and F4 fail.

**Leaky.** If s > 0 and every W_i has full column rank, every step is injective: F4 holds (Corollary H.4). So is the
ReLU of a layer whose rows have pairs v, -c v of which one is on wherever the other is off, if these rows span.

**One ReLU layer.** If h_1 and h_2 have full column rank, F3 holds: f(z) determines y = ReLU(h_1(z)), and y determines z
where the rows of W_1 that are on span R^m. Elsewhere the piece of z has rank below m, and its image has volume 0. And
rows that are on do span somewhere, because :math:`w_i z + b_i = 1` has a solution for m independent rows.

**More ReLU layers.** Lemma H.1 and Corollary H.2 claim F3 if widths do not decrease and the image has dimension m. From
two hidden layers on this is not true, since the proof looks at the positive orthant only. With

    h_1(x) = (x, -x),    h_2 = [[1, 1], [-1, -2]],    h_3 = the identity of R^2,

all of full column rank, f(x) = (\|x\|, 0) is not even weakly injective. What is true: if every W_i has full column rank
and all units are on at some z, F2 holds. For where f(z') is near f(z), the last hidden units at z' are near those at z,
so they are on, so what went into them is the same as what came out, and so on back to z' near z; and f is affine and
injective there. Where all units are on, what goes into them is affine in z: to look for such a z is a linear programme.

**One latent.** f is a curve of finitely many stretches, the first and last being rays. Whether it stands still, meets
itself or passes a stretch twice is computed.

**Else, by witnesses.** For z drawn at random, half of them far out, second preimages are looked for in the pieces of f
around the other z. One refutes F4. If both pieces have rank m and one image space, it refutes F3. That no z is the only
preimage is evidence against F2. Where nothing is found, it cannot be told.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from torch import Tensor, nn

from identifiable import nets
from identifiable.distributions.mixture import FloatArray, Mixture
from identifiable.errors import DataError, join_few
from identifiable.theory.certificate import Check, Verdict
from identifiable.theory.supports import ZONE

BoolArray = NDArray[np.bool_]
Layer = tuple[FloatArray, FloatArray]  # W, b

RANK = 1e-6  # a singular value below this share of the largest counts as zero
SAME = 1e-9  # two images nearer than this, relative to their size, are one
DRAWS, FAR = 200, 30.0  # points at which second preimages are looked for; how much farther out the second half is
NUDGE = 0.01  # by how much of their size drawn points are moved
PRINTED = 4  # most latents of a witness that is printed

STATEMENTS = {
    "F1": "f is piecewise affine",
    "F2": "f is weakly injective: all points of some open part of its image have one preimage",
    "F3": "f is observably injective: almost all points of its image have one preimage",
    "F4": "f is injective",
}


@dataclass(frozen=True, eq=False)
class Decoder:
    """f(z) = h_t(σ( ... σ(h_1(z)))), h_i(y) = W_i y + b_i, σ(y) = y for y >= 0, s_i y for y < 0.

    Made by `from_layers` or `of`. Layers with no activation between them count as one.

    Attributes
    ----------
    weights : t matrices W_i (n_i, n_{i-1}), n_0 = m the number of latents, n_t = n that of observed columns.
    biases : t vectors b_i (n_i,).
    slopes : t - 1 slopes s_i below zero: 0 for ReLU, 0 < s for leaky, -1 for the absolute value.
    odd : what there is that is no such layer, "" for nothing. If there is something, there are no weights.
    smooth : whether that is known not to be piecewise affine.

    Examples
    --------
    >>> f = Decoder.from_layers([([[1], [-1]], [0, 0]), ([[1, 1]], [0])])
    >>> f([[-2], [3]])  # ReLU(x) + ReLU(-x) = |x|
    array([[2.],
           [3.]])
    >>> print(judge(f)[1].sentence)
    No stretch of the curve f(z) is passed only once; z can be lost in layer 2 (2 dimensions to 1).
    """

    weights: tuple[FloatArray, ...]
    biases: tuple[FloatArray, ...]
    slopes: tuple[float, ...]
    odd: str = ""
    smooth: bool = False

    @classmethod
    def from_layers(
        cls, layers: Sequence[tuple[ArrayLike, ArrayLike]], slope: float | Sequence[float] = 0.0
    ) -> "Decoder":
        """Build from (W_i, b_i), with one slope below zero for all activations, or one for each; 1 for none."""
        slopes = [slope] * (len(layers) - 1) if isinstance(slope, int | float) else list(slope)
        if not layers or len(slopes) != len(layers) - 1 or not np.isfinite(slopes).all():
            raise DataError(
                f"A decoder needs a layer at least, and a finite slope between every two: got {len(layers)} layers and "
                f"the slopes {slopes}."
            )
        found: list[Layer] = []
        bends: list[float] = []
        width: int | str = "latents"
        for i, ((weight, bias), before) in enumerate(zip(layers, (0.0, *slopes), strict=True), start=1):
            w, b = np.asarray(weight, dtype=np.float64), np.asarray(bias, dtype=np.float64)
            fits = w.ndim == 2 and w.size and b.shape == w.shape[:1] and (not found or w.shape[1] == width)
            if not fits or not (np.isfinite(w).all() and np.isfinite(b).all()):
                raise DataError(
                    f"Layer {i} must have a finite weight of shape (units, {width}) and a finite bias of shape "
                    f"(units,): got {w.shape} and {b.shape}. Transpose a weight that maps rows."
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

        Activations are known by their values at points from 0.001 to 1000 and the negatives of these. A module with
        anything else in it gives a decoder without weights, of which `judge` says so.

        Examples
        --------
        >>> f = Decoder.of(nn.Sequential(nn.Linear(2, 3), nn.LeakyReLU(0.1), nn.Linear(3, 4)))
        >>> [w.shape for w in f.weights], f.slopes
        ([(3, 2), (4, 3)], (0.1,))
        >>> print(judge(Decoder.of(nn.Sequential(nn.Linear(2, 3), nn.Tanh())))[0].sentence)
        f is not piecewise affine: it has Tanh in it.
        """
        steps = [*_read(module, member)]
        odd = sorted((step for step in steps if isinstance(step, _Odd)), key=lambda step: not step.smooth)
        inputs = [step.weight.shape[1] for step in steps if isinstance(step, _Affine)]
        if odd or not inputs:
            return cls((), (), (), *(odd[0] if odd else _Odd(f"{type(module).__name__} without a linear layer")))
        layers, slopes = [(np.eye(inputs[0]), np.zeros(inputs[0]))], []
        for step in steps:
            width = len(layers[-1][1])
            if isinstance(step, _Bend):  # slopes a, b are slopes a / b, 1 and then a factor b
                layers.append((step.above * np.eye(width), np.zeros(width)))
                slopes.append(step.below / step.above)
            elif isinstance(step, _Affine):
                layers.append((step.weight, step.bias))
                slopes.append(1.0)
        found = cls.from_layers(layers, slopes)
        if isinstance(module, _Alternating) and not _agree(found, module):
            return cls((), (), (), type(module).__name__)
        return found

    @property
    def m(self) -> int:
        """Number of latents."""
        return int(self.weights[0].shape[1])

    def __call__(self, z: ArrayLike) -> FloatArray:
        """Map latents (N, m) to observations (N, n)."""
        return self.forward(z)[0]

    def forward(self, z: ArrayLike) -> tuple[FloatArray, list[FloatArray]]:
        """Return f(z) and what goes into each activation, (N, n_i)."""
        hidden, y = [], np.asarray(z, dtype=np.float64)
        for w, b, slope in zip(self.weights, self.biases, (*self.slopes, 1.0), strict=True):
            hidden.append(y @ w.T + b)
            y = np.where(hidden[-1] < 0, slope * hidden[-1], hidden[-1])
        return y, hidden[:-1]

    @cached_property
    def spectra(self) -> list[FloatArray]:
        """The singular values of every weight, as shares of its largest."""
        values = [np.linalg.svd(w, compute_uv=False) for w in self.weights]
        return [v / (v[0] or 1.0) for v in values]

    @cached_property
    def keeps(self) -> list[float]:
        """The least singular value of every weight, as a share of its largest: 0 where it has no full column rank."""
        return [_share(values, w.shape[1]) for values, w in zip(self.spectra, self.weights, strict=True)]

    @cached_property
    def lossy(self) -> list[int]:
        """The layers after which the activation is not known to be injective."""
        steps = enumerate(zip(self.weights, self.biases, self.slopes, strict=False))
        return [i for i, (w, b, slope) in steps if not (slope > 0 or (slope == 0 and _in_pairs(w, b)))]


def judge(decoder: Decoder, law: Mixture | None = None) -> tuple[Check, Check, Check, Check]:
    """Judge (F1) to (F4); witnesses are drawn from the law of the latents, a standard normal one by default.

    Examples
    --------
    >>> for check in judge(Decoder.from_layers([([[1, 0], [0, 1], [1, 1]], [0, 0, 0]), (np.eye(3), [0, 0, 0])])):
    ...     print(check.name, check.verdict)
    F1 holds
    F2 holds
    F3 holds
    F4 fails
    """
    verdict: Verdict = "holds"
    if decoder.odd:
        verdict, words = "fails", f"f is not piecewise affine: it has {decoder.odd} in it."
        if not decoder.smooth:
            verdict = "inconclusive"
            words = f"{decoder.odd} could not be read as affine layers with ReLU, leaky ReLU or |.| between them."
        unknown = _Found("inconclusive", "Not looked at, as f is not known to be piecewise affine.")
        found = unknown, unknown, unknown
    else:
        t = len(decoder.weights)
        words = (
            "f is affine." if t == 1 else f"f has {t} affine layers, with piecewise linear activations between them."
        )
        found = _injectivity(decoder, law)
    return (Check("F1", STATEMENTS["F1"], None, None, verdict, words), *_checks(*found))


class _Found(NamedTuple):
    """A verdict, in words, with the number looked at and its threshold."""

    verdict: Verdict
    sentence: str
    statistic: float | None = None
    threshold: float | None = None


def _checks(weak: _Found, most: _Found, every: _Found) -> tuple[Check, Check, Check]:
    """Make checks of what was found for F2, F3 and F4; what one found says of several is said once."""
    found = {"F2": weak, "F3": most, "F4": every}

    def words(name: str) -> str:
        same = [other for other, one in found.items() if one is found[name]]
        verdict, sentence = found[name].verdict, found[name].sentence
        if verdict == "holds":
            return sentence if name == same[-1] else f"({same[-1]}) implies it."
        if name == same[0]:
            return sentence
        return f"({same[0]}) is necessary for it." if verdict == "fails" else f"As for ({same[0]})."

    second, third, fourth = (
        Check(name, STATEMENTS[name], one.statistic, one.threshold, one.verdict, words(name))
        for name, one in found.items()
    )
    return second, third, fourth


# Reading modules.


class _Affine(NamedTuple):
    weight: FloatArray
    bias: FloatArray


class _Bend(NamedTuple):
    """An activation, by its slopes below and above 0."""

    below: float
    above: float


class _Odd(NamedTuple):
    """What is neither, and whether it is known not to be piecewise affine."""

    name: str
    smooth: bool = False


@runtime_checkable
class _Alternating(Protocol):
    """Matrices and activations in turn, rows are samples: what the simulators' mixings are."""

    matrices: list[Tensor]
    activations: nn.ModuleList

    def __call__(self, z: Tensor) -> Tensor: ...


_SMOOTH = (nn.Tanh, nn.Sigmoid, nn.SiLU, nn.GELU, nn.ELU, nn.Softplus)
_ELEMENTWISE = (nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.Hardtanh, *_SMOOTH)


def _read(module: nn.Module, member: int) -> Iterator[_Affine | _Bend | _Odd]:
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
                yield _bend_of(module.activation, *known or ["its activation"])
            yield from _read(layer, member)
    elif isinstance(module, _Alternating):
        first, *others = module.matrices
        yield _affine(first.T, None)
        for activation, matrix in zip(module.activations, others, strict=True):
            yield _bend_of(activation, type(activation).__name__)
            yield _affine(matrix.T, None)
    elif isinstance(module, _ELEMENTWISE):
        yield _bend_of(module, type(module).__name__)
    elif not isinstance(module, nn.Identity):
        yield _Odd(type(module).__name__)


def _affine(weight: Tensor, bias: Tensor | None) -> _Affine:
    w = weight.detach().cpu().double().numpy()
    return _Affine(w, np.zeros(len(w)) if bias is None else bias.detach().cpu().double().numpy())


def _bend_of(activation: Callable[[Tensor], Tensor], name: str) -> _Bend | _Odd:
    """Read the two slopes of an activation off its values; one that bends at more than a quarter of places is smooth.

    Examples
    --------
    >>> _bend_of(torch.relu, "relu"), _bend_of(torch.sin, "sin"), _bend_of(nn.Hardtanh(), "Hardtanh").smooth
    (_Bend(below=0.0, above=1.0), _Odd(name='sin', smooth=True), False)
    """

    def values(points: FloatArray) -> FloatArray:
        with torch.no_grad():
            return np.asarray(activation(torch.as_tensor(points, dtype=torch.float64)).numpy())

    at = np.logspace(-3, 3, 13)
    below, above = np.abs(values(-at)) / at * -np.sign(values(-at)), values(at) / at
    even = all(np.allclose(slopes, slopes[0], rtol=1e-9, atol=1e-12) for slopes in (below, above))
    if even and values(np.zeros(1))[0] == 0 and above[0] != 0:
        return _Bend(float(below[0]) + 0.0, float(above[0]))  # + 0.0: no negative zero
    places, step = np.linspace(-3, 3, 41) + 0.013, 0.01
    second = values(places + step) - 2 * values(places) + values(places - step)
    return _Odd(name, smooth=bool((np.abs(second) > 1e-10).mean() > 0.25))


def _agree(f: Decoder, module: _Alternating) -> bool:
    """Tell whether a module that was known by its attributes alone does what they say."""
    z = np.random.default_rng(0).normal(size=(16, f.m))
    like = module.matrices[0]
    with torch.no_grad():
        x = module(torch.as_tensor(z, dtype=like.dtype, device=like.device)).cpu().double().numpy()
    return x.shape == f(z).shape and bool(np.abs(f(z) - x).max() <= 1e-3 * np.abs(x).max())


# The rules.


class _Shown(NamedTuple):
    """What the rules show of F2, F3 and F4, None for what they leave open, and why they leave F2."""

    weak: _Found | None = None
    most: _Found | None = None
    every: _Found | None = None
    note: str = ""


def _injectivity(f: Decoder, law: Mixture | None) -> tuple[_Found, _Found, _Found]:
    thin = _too_thin(f)
    if thin is not None:
        return thin, thin, thin
    if f.m == 1:
        return _judge_curve(f)
    shown = _shown(f, law)
    if shown.weak and shown.most and shown.every:
        return shown.weak, shown.most, shown.every
    return _by_witnesses(f, shown, _look_for_witnesses(f, law))


def _too_thin(f: Decoder) -> _Found | None:
    """Find a layer of rank below the number of latents."""
    shares = [_share(values, f.m) for values in f.spectra]
    i = int(np.argmin(shares))
    if shares[i] >= ZONE * RANK:
        return None
    if shares[i] > RANK / ZONE:
        words = f"It is not clear whether layer {i + 1} has rank {f.m}: a singular value is {shares[i]:.1g} of another."
        return _Found("inconclusive", words, shares[i], RANK)
    units, rank = len(f.weights[i]), int((f.spectra[i] > RANK).sum())
    what = f"{units} unit{'s' * (units > 1)}" if units < f.m else f"rank {rank}"
    words = f"The image of f is too thin: layer {i + 1} has {what} for {f.m} latent{'s' * (f.m > 1)}."
    return _Found("fails", words, shares[i], RANK)


def _shown(f: Decoder, law: Mixture | None) -> _Shown:
    i = int(np.argmin(f.keeps))
    keeps = f.keeps[i]
    if RANK / ZONE < keeps < ZONE * RANK:
        words = (
            f"It is not clear whether layer {i + 1} has full column rank: a singular value is {keeps:.1g} of another."
        )
        unclear = _Found("inconclusive", words, keeps, RANK)
        return _Shown(unclear, unclear, unclear)
    if keeps <= RANK:
        return _Shown()
    ranks = (
        f"every layer has full column rank (layer {i + 1} keeps least, with a singular value {keeps:.2g} of another)."
    )
    if not f.lossy:
        found = _Found("holds", f"{'Every step is injective' if f.slopes else 'f is affine'}: {ranks}", keeps, RANK)
        return _Shown(found, found, found)
    if f.lossy == [0] and f.slopes[0] == 0:
        words = f"Almost every output of the first layer shows its input, and what follows is injective: {ranks}"
        found = _Found("holds", words, keeps, RANK)
        return _Shown(found, found)
    if min(f.slopes) < 0:
        return _Shown()
    never = _never_on(f, law)
    if never is not None:
        return _Shown(note=f". No z turns on all units of the layers up to {never + 1}")
    return _Shown(_Found("holds", f"Some z turns on all units, and f shows such a z: {ranks}", keeps, RANK))


def _never_on(f: Decoder, law: Mixture | None) -> int | None:
    """Return the first layer such that no z turns on all units up to it; None if some z turns on all that are lossy."""
    hidden = f.forward(_draw(f, law))[1]
    if np.logical_and.reduce([(hidden[i] > 0).all(1) for i in f.lossy]).any():
        return None
    a, c = np.eye(f.m), np.zeros(f.m)
    rows, offsets = np.empty((0, f.m)), np.empty(0)
    for i in range(len(f.slopes)):
        a, c = f.weights[i] @ a, f.weights[i] @ c + f.biases[i]
        rows, offsets = np.vstack([rows, a]), np.append(offsets, c)
        if not _positive(rows, offsets):
            return i
    return None


def _positive(a: FloatArray, c: FloatArray) -> bool:
    """Tell whether A z + c > 0 for some z, by the largest ball of such z, of radius 1 at most."""
    length = np.linalg.norm(a, axis=1)
    cost = np.r_[np.zeros(a.shape[1]), -1.0]
    bounds = [(None, None)] * a.shape[1] + [(None, 1.0)]
    found = linprog(cost, A_ub=np.column_stack([-a, length]), b_ub=c, bounds=bounds)
    if found.x is None:
        return False
    z = found.x[:-1]
    return bool((a @ z + c > SAME * (length * np.linalg.norm(z) + np.abs(c))).all())


def _in_pairs(w: FloatArray, b: FloatArray) -> bool:
    """Tell whether ReLU(W y + b) determines y by rows v, -c v that are never both off, on a set of rows that span."""
    length = np.linalg.norm(w, axis=1)
    rows, offsets = w[length > 0] / length[length > 0, None], b[length > 0] / length[length > 0]
    opposite = rows @ rows.T <= -1 + 1e-12
    covered = offsets[:, None] + offsets >= -1e-12 * (1 + np.abs(offsets).max(initial=0))
    known = rows[(opposite & covered).any(1)]
    return len(known) >= w.shape[1] and _share(np.linalg.svd(known, compute_uv=False), w.shape[1]) >= ZONE * RANK


def _share(values: FloatArray, k: int) -> float:
    """Return the k-th singular value as a share of the largest, 0 where there are fewer."""
    return float(values[k - 1] / (values[0] or 1.0)) if k <= len(values) else 0.0


def _lost(f: Decoder) -> str:
    """Name the layers in which z can be lost: those that are narrow, else those that end in a lossy activation."""
    found = [
        f"layer {i} ({f'{w.shape[1]} dimensions to {len(w)}' if len(w) < w.shape[1] else 'no full column rank'})"
        for i, (w, keeps) in enumerate(zip(f.weights, f.keeps, strict=True), start=1)
        if keeps < ZONE * RANK
    ]
    found = found or [f"the {'|.|' if f.slopes[i] else 'ReLU'} of layer {i + 1}" for i in f.lossy]
    return f"; z can be lost in {join_few(found, most=3)}" if found else ""


# One latent: a curve.


class _Curve(NamedTuple):
    """Stretches of a curve in R^n, in order: start + s direction for 0 <= s <= length; the first runs backwards."""

    starts: FloatArray  # (K + 1, n)
    directions: FloatArray  # (K + 1, n), of length 1, or 0 where the curve stands still
    lengths: FloatArray  # (K + 1,), infinite for the two rays
    size: float


def _curve_of(f: Decoder) -> _Curve:
    """Follow the line z through the layers, adding a knot wherever a unit changes sign."""
    t = np.zeros(1)
    values, left, right = np.zeros((1, 1)), np.ones(1), np.ones(1)
    for w, b, slope in zip(f.weights, f.biases, (*f.slopes, None), strict=True):
        values, left, right = _rounded(values, w, b), _rounded(left, w), _rounded(right, w)
        if slope is None:
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = t[:-1, None] - values[:-1] * (np.diff(t)[:, None] / np.diff(values, axis=0))
            before, after = t[0] - values[0] / left, t[-1] - values[-1] / right
        knots = np.concatenate(
            [t, inner[values[:-1] * values[1:] < 0], before[values[0] * left > 0], after[values[-1] * right < 0]]
        )
        knots = np.unique(knots[np.isfinite(knots)])
        knots = knots[np.r_[True, np.diff(knots) > 1e-12 * (1 + np.abs(knots[1:]))]]
        inside = np.stack([np.interp(knots, t, unit) for unit in values.T], axis=1)
        values = inside + np.minimum(knots - t[0], 0)[:, None] * left + np.maximum(knots - t[-1], 0)[:, None] * right
        # Beyond the last knot no unit changes sign, so that its slope says which it has there.
        low = np.where(left != 0, left > 0, values[0] < 0)
        high = np.where(right != 0, right < 0, values[-1] < 0)
        left, right = np.where(low, slope * left, left), np.where(high, slope * right, right)
        t, values = knots, np.where(values < 0, slope * values, values)
    steps = np.vstack([-left, np.diff(values, axis=0), right])
    durations = np.r_[1.0, np.diff(t), 1.0]
    lengths = np.linalg.norm(steps, axis=1)
    speeds = lengths / durations
    moving = speeds > SAME * speeds.max()
    size = float(np.linalg.norm(values - values[0], axis=1).max() or speeds.max())
    directions = np.where(moving[:, None], steps / np.where(lengths > 0, lengths, 1)[:, None], 0.0)
    lengths[[0, -1]] = np.inf
    return _Curve(np.vstack([values[:1], values]), directions, lengths, size)


def _rounded(y: FloatArray, w: FloatArray, b: FloatArray | float = 0.0) -> FloatArray:
    """Return W y + b, 0 where what is left is rounding."""
    value: FloatArray = y @ w.T + b
    return np.where(np.abs(value) <= 1e-14 * (np.abs(y) @ np.abs(w).T + np.abs(b)), 0.0, value)


def _judge_curve(f: Decoder) -> tuple[_Found, _Found, _Found]:
    curve, lost = _curve_of(f), f"{_lost(f)}."
    if not curve.directions.any():
        constant = _Found("fails", f"f is constant{lost}")
        return constant, constant, constant
    both = zip(*(_passes(curve, tol) for tol in (SAME / ZONE, SAME * ZONE)), strict=True)
    words = (
        ("Some stretch of the curve f(z) is passed only once", "No stretch of the curve f(z) is passed only once"),
        ("No stretch of the curve f(z) is passed twice", "Some stretch of the curve f(z) is passed twice"),
        ("The curve f(z) never stands still nor meets itself", "The curve f(z) stands still or meets itself"),
    )

    def found(low: bool, high: bool, yes: str, no: str) -> _Found:
        if low != high:
            return _Found("inconclusive", f"Parts of the curve f(z) are too close to tell{lost}")
        return _Found("holds", f"{yes}.") if low else _Found("fails", f"{no}{lost}")

    second, third, fourth = (found(low, high, *texts) for (low, high), texts in zip(both, words, strict=True))
    return second, third, fourth


def _passes(curve: _Curve, tol: float) -> tuple[bool, bool, bool]:
    """Tell whether some stretch is passed only once, whether none twice, whether no point twice."""
    starts, directions, lengths, size = curve
    moving: BoolArray = np.abs(directions).max(1) > 0
    near = tol * size
    free, apart, simple = False, True, bool(moving.all())
    for i in np.flatnonzero(moving):
        others = np.flatnonzero(moving & (np.arange(len(moving)) != i))
        p, u = starts[i], directions[i]
        v, gap = directions[others], starts[others] - p
        cosines, along = v @ u, gap @ u
        parallel = np.linalg.norm(v - cosines[:, None] * u, axis=1) <= tol
        on_line = parallel & (np.linalg.norm(gap - along[:, None] * u, axis=1) <= near)
        end = along + np.where(cosines < 0, -1, 1) * lengths[others]
        lows, highs = np.maximum(np.minimum(along, end), 0), np.minimum(np.maximum(along, end), lengths[i])
        covers = on_line & (highs - lows > near)
        apart &= not covers.any()
        free |= _uncovered(lows[covers], highs[covers], float(lengths[i])) > near
        # The nearest points of two stretches (Ericson 2004, section 5.1.9); neighbours share a knot.
        strangers = (np.abs(others - i) > 1) & ~covers
        b, c, e = cosines[strangers], -along[strangers], -(gap * v).sum(1)[strangers]
        bent = 1 - b**2
        s = np.where(bent > tol**2, np.clip((b * e - c) / np.where(bent > 0, bent, 1), 0, lengths[i]), 0)
        r = np.clip(b * s + e, 0, lengths[others][strangers])
        s = np.clip(b * r - c, 0, lengths[i])
        between = s[:, None] * u - gap[strangers] - r[:, None] * v[strangers]
        simple &= not (np.linalg.norm(between, axis=1) <= near).any()
    return free, apart, simple and apart


def _uncovered(lows: FloatArray, highs: FloatArray, length: float) -> float:
    """Return how much of [0, length] no interval covers."""
    total, reach = 0.0, 0.0
    for k in np.argsort(lows):
        total, reach = total + max(0.0, lows[k] - reach), max(reach, float(highs[k]))
    return total + max(0.0, length - reach) if reach < np.inf else total


# Witnesses.


def _draw(f: Decoder, law: Mixture | None) -> FloatArray:
    """Draw latents (DRAWS, m) from their law, the second half FAR times farther from its centre.

    All are moved a little: where a law has singular components, units may be just at their bend.
    """
    rng = np.random.default_rng(0)
    z, centre = rng.normal(size=(DRAWS, f.m)), np.zeros(f.m)
    if law is not None:
        j = rng.choice(len(law.weights), size=DRAWS, p=law.weights)
        values, vectors = np.linalg.eigh(law.covariances)
        roots = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
        z, centre = law.means[j] + np.einsum("nkl,nl->nk", roots[j], z), law.weights @ law.means
        z += NUDGE * z.std() * rng.normal(size=z.shape)
    z[DRAWS // 2 :] = centre + FAR * (z[DRAWS // 2 :] - centre)
    return z


class _Seen(NamedTuple):
    """What was found of the drawn points (DRAWS,)."""

    second: BoolArray  # they have a second preimage
    thick: BoolArray  # and so has all of the image around
    flat: BoolArray  # f is constant along some direction around them
    example: str


def _look_for_witnesses(f: Decoder, law: Mixture | None) -> _Seen:
    """TableInspection for z* with f(z*) = f(z) and z* != z, z being drawn."""
    z = _draw(f, law)
    x, hidden = f.forward(z)
    kinds, own = np.unique(np.hstack([h > 0 for h in hidden]), axis=0, return_inverse=True)
    own = own.reshape(-1)
    pieces = [_piece(f, kind) for kind in kinds]
    spectra = np.array([np.linalg.svd(a, compute_uv=False) for a, _ in pieces])
    zero = 1e-12 * np.prod([np.linalg.norm(w, 2) for w in f.weights])
    flat = spectra[:, -1] <= np.maximum(RANK / ZONE * spectra[:, 0], zero)
    second, thick, example = flat[own], np.zeros(DRAWS, dtype=bool), ""
    for k in np.flatnonzero(~flat):
        a, c = pieces[k]
        other = (x - c) @ np.linalg.pinv(a).T
        size = np.linalg.norm(x - c, axis=1) + np.linalg.norm(c)
        near = np.linalg.norm(other @ a.T + c - x, axis=1) <= SAME * size
        away = np.linalg.norm(other - z, axis=1) > RANK * np.linalg.norm(z, axis=1)
        chosen = np.flatnonzero(near & away & (own != k) & ~flat[own])
        there, inputs = f.forward(other[chosen])
        inside = (np.hstack([h > 0 for h in inputs]) == kinds[k]).all(1)
        same = np.linalg.norm(there - x[chosen], axis=1) <= SAME * size[chosen]
        for i in chosen[inside & same]:
            both = np.linalg.svd(np.hstack([a, pieces[own[i]][0]]), compute_uv=False)
            second[i], thick[i] = True, thick[i] or _share(both, f.m + 1) <= RANK
            example = example or f", such as f{_point(z[i])} = f{_point(other[i])}"
    return _Seen(second, thick, flat[own], example if f.m <= PRINTED else "")


def _piece(f: Decoder, on: BoolArray) -> Layer:
    """Return A, c of the affine piece A z + c with these units on."""
    a, c = f.weights[0], f.biases[0]
    for w, b, slope in zip(f.weights[1:], f.biases[1:], f.slopes, strict=True):
        factor, on = np.where(on[: len(c)], 1.0, slope), on[len(c) :]
        a, c = w @ (factor[:, None] * a), w @ (factor * c) + b
    return a, c


def _point(z: FloatArray) -> str:
    return "(" + ", ".join(f"{value:.3g}" for value in z) + ")"


def _by_witnesses(f: Decoder, shown: _Shown, seen: _Seen) -> tuple[_Found, _Found, _Found]:
    """Judge what the rules have left open; what they have shown stands."""
    second, thick, flat = (int(found.sum()) for found in (seen.second, seen.thick, seen.flat))
    weak, most, every, note = shown
    end = f"{seen.example}{_lost(f)}."
    constant = f"f is constant along some direction around {flat} of {DRAWS} drawn points{_lost(f)}."
    if weak is None and second == DRAWS:
        words = constant if flat == DRAWS else f"None of {DRAWS} drawn points is the only preimage of its image{end}"
        weak = most = every = _Found("fails", words, 1.0, 1.0)
    if most is None and thick:
        words = f"{thick} of {DRAWS} drawn points have a second preimage, and so has the image around them{end}"
        most = every = _Found("fails", words, thick / DRAWS, 0.0)
    if every is None and second:
        words = constant if flat else f"{second} of {DRAWS} drawn points have a second preimage{end}"
        every = _Found("fails", words, second / DRAWS, 0.0)
    words = (
        f"Second preimages, looked for in some pieces of f, were found for {second} of {DRAWS} drawn points{_lost(f)}"
    )
    none = _Found("inconclusive", f"{words}{note}.", second / DRAWS, 1.0)
    return weak or none, most or none, every or none
