r"""How injective a piecewise affine decoder is, read from its layers: (F1) to (F4) of Kivva et al. (2022).

A decoder f (`identifiable.theory.decoders`) with weights W_i, maps h_i and slopes s is continuous, and

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

**More ReLU layers.** Lemma H.1 and Corollary H.2 claim F3 if widths do not decrease and the image has dimension m. This
is not true, since the proof looks at the positive orthant only: with h_1(x) = (x, -x) and h_2 = [[1, 1], [0, 0]],
f(x) = (\|x\|, 0). From two hidden layers on it fails for an open set of parameters, so not even generically. With

    h_1(x) = (x, -x),    h_2 = [[1, 1], [-1, -2]],    h_3 = the identity of R^2,

all of full column rank, f(x) = (\|x\|, 0) is not even weakly injective. What is true: if every W_i has full column rank
and all units are on at some z, F2 holds. For where f(z') is near f(z), the last hidden units at z' are near those at z,
so they are on, so their inputs equal their outputs, and so on back to z' near z; and f is affine and
injective there. Where all units are on, their inputs are affine in z, so such a z is found by a linear programme.

**One latent.** f is a curve of finitely many stretches, the first and last being rays. Whether it stands still, meets
itself or passes a stretch twice is computed in `identifiable.theory.curves`.

**Absolute values.** If the first activation is \|.\| and W_1 is square and of full rank, almost every z has the same
image as the other points with this value of \|h_1\|: F2, F3 and F4 fail.

**Else, by witnesses.** For z sampled at random, half of them far out, second preimages are searched in the pieces of f
around the other z. One refutes F4. If both pieces have rank m and the same image space, it refutes F3. If no z is the
only preimage, that is evidence against F2, no proof: the verdict on F2 stays "inconclusive", as if none is found.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from identifiable.arrays import Array, BoolArray
from identifiable.distributions.mixture import Mixture
from identifiable.theory.certificate import Check, Finding
from identifiable.theory.curves import judge_curve
from identifiable.theory.decoders import FULL_RANK, Decoder, share_of
from identifiable.theory.thresholds import THRESHOLDS

FACTOR, RANK, SAME = THRESHOLDS.undecided_factor, THRESHOLDS.layer_rank, THRESHOLDS.same_image
POINTS, FAR = THRESHOLDS.witness_points, 30.0  # sampled points; how much farther out the second half of them is
NUDGE = 0.01  # sampled points are moved by this share of their size
PRINTED = 4  # most latents of a witness that is printed

STATEMENTS = {
    "F1": "f is piecewise affine",
    "F2": "f is weakly injective: all points of some open part of its image have one preimage",
    "F3": "f is observably injective: almost all points of its image have one preimage",
    "F4": "f is injective",
}

Findings = dict[str, Finding]  # on F2, F3 and F4; those not decided are absent


def judge(decoder: Decoder, mixture: Mixture | None = None) -> tuple[Check, ...]:
    """Judge (F1) to (F4). Witnesses are sampled from the distribution of the latents, by default a standard normal.

    Examples
    --------
    >>> for check in judge(Decoder.from_layers([([[1, 0], [0, 1], [1, 1]], [0, 0, 0]), (np.eye(3), [0, 0, 0])])):
    ...     print(check.name, check.verdict)
    F1 holds
    F2 holds
    F3 holds
    F4 fails
    >>> print(judge(Decoder.from_layers([([[1], [-1]], [0, 0]), ([[1, 1]], [0])]))[1].sentence)
    No stretch of the curve f(z) is passed only once; z can be lost in layer 2 (2 dimensions to 1).
    """
    if decoder.unreadable:
        layers = "affine layers with ReLU, leaky ReLU or |.| between them"
        first = Finding("inconclusive", f"{decoder.unreadable} could not be read as {layers}.")
        if decoder.smooth:
            first = Finding("fails", f"f is not piecewise affine: it contains {decoder.unreadable}.")
        found = _all(Finding("inconclusive", "Not tested, because f is not known to be piecewise affine."))
    else:
        t = len(decoder.weights)
        layers = f"f has {t} affine layers, with piecewise linear activations between them."
        first = Finding("holds", "f is affine." if t == 1 else layers)
        found = _injectivity(decoder, mixture)
    sentences = {"F1": first} | {name: one._replace(sentence=_once(name, found)) for name, one in found.items()}
    return tuple(sentences[name].check(name, statement) for name, statement in STATEMENTS.items())


def _all(finding: Finding) -> Findings:
    return dict.fromkeys(("F2", "F3", "F4"), finding)


def _once(name: str, found: Findings) -> str:
    """Return the sentence of a finding, or a reference where the same finding decides several assumptions."""
    same = [other for other, one in found.items() if one is found[name]]
    verdict, sentence = found[name].verdict, found[name].sentence
    if verdict == "holds":
        return sentence if name == same[-1] else f"({same[-1]}) implies it."
    if name == same[0]:
        return sentence
    return f"({same[0]}) is necessary for it." if verdict == "fails" else f"See ({same[0]})."


def _injectivity(f: Decoder, mixture: Mixture | None) -> Findings:
    thin = _too_thin(f)
    if thin is not None:
        return _all(thin)
    if f.m == 1:
        return dict(zip(("F2", "F3", "F4"), judge_curve(f), strict=True))
    if f.slopes and f.slopes[0] == -1 and len(f.weights[0]) == f.m:
        return _all(Finding("fails", f"Almost no z is the only preimage of f(z), because |.| follows h_1{f.loss}."))
    proven, note = by_rules(f, mixture)
    return proven if len(proven) == 3 else by_witnesses(f, proven, find_witnesses(f, mixture), note)


# -- rules ----------------------------------------------------------------------------------


def _too_thin(f: Decoder) -> Finding | None:
    """Find a layer of rank below the number of latents."""
    shares = [share_of(values, f.m) for values in f.spectra]
    i = int(np.argmin(shares))
    if shares[i] >= FULL_RANK:
        return None
    if shares[i] > RANK / FACTOR:
        sentence = f"The rank of layer {i + 1} may be below {f.m}: a singular value is {shares[i]:.1g} of the largest."
        return Finding("inconclusive", sentence, shares[i], RANK)
    units, rank = len(f.weights[i]), int((f.spectra[i] > RANK).sum())
    size = f"{units} unit{'s' * (units > 1)}" if units < f.m else f"rank {rank}"
    sentence = f"The image of f is too thin: layer {i + 1} has {size} for {f.m} latent{'s' * (f.m > 1)}."
    return Finding("fails", sentence, shares[i], RANK)


def by_rules(f: Decoder, mixture: Mixture | None) -> tuple[Findings, str]:
    """Return what the rules prove of F2, F3 and F4, and a note on why they leave F2 open."""
    i = int(np.argmin(f.smallest_shares))
    share = f.smallest_shares[i]
    if RANK / FACTOR < share < FULL_RANK:
        sentence = f"Layer {i + 1} may lack full column rank: a singular value is {share:.1g} of the largest."
        return _all(Finding("inconclusive", sentence, share, RANK)), ""
    if share <= RANK:
        return {}, ""
    ranks = f"every layer has full column rank (smallest singular value: {share:.2g} of the largest, in layer {i + 1})."
    if not f.lossy:
        steps = "Every step is injective" if f.slopes else "f is affine"
        return _all(Finding("holds", f"{steps}: {ranks}", share, RANK)), ""
    if f.lossy == [0] and f.slopes[0] == 0:
        sentence = f"Almost every output of the first layer determines z, and the other layers are injective: {ranks}"
        return dict.fromkeys(("F2", "F3"), Finding("holds", sentence, share, RANK)), ""
    if min(f.slopes) < 0:
        return {}, ""
    off = _never_on(f, mixture)
    if off is not None:
        return {}, f". No z turns on all units of the layers up to {off + 1}"
    sentence = f"Some z turns on all units and has no other preimage nearby: {ranks}"
    return {"F2": Finding("holds", sentence, share, RANK)}, ""


def _never_on(f: Decoder, mixture: Mixture | None) -> int | None:
    """Return the first layer such that no z turns on all units up to it; None if some z turns on all lossy ones."""
    hidden = f.forward(_sample_latents(f, mixture))[1]
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


def _positive(a: Array, c: Array) -> bool:
    """Return whether A z + c > 0 for some z, by the largest ball of such z, of radius 1 at most."""
    length = np.linalg.norm(a, axis=1)
    cost = np.r_[np.zeros(a.shape[1]), -1.0]
    bounds = [(None, None)] * a.shape[1] + [(None, 1.0)]
    found = linprog(cost, A_ub=np.column_stack([-a, length]), b_ub=c, bounds=bounds)
    if found.x is None:
        return False
    z = found.x[:-1]
    return bool((a @ z + c > SAME * (length * np.linalg.norm(z) + np.abs(c))).all())


# -- witnesses ------------------------------------------------------------------------------


def _sample_latents(f: Decoder, mixture: Mixture | None) -> Array:
    """Sample latents (POINTS, m), the second half FAR times farther from their centre.

    All are moved a little: with singular components, units may be exactly at their bend.
    """
    rng = np.random.default_rng(0)
    z, centre = rng.normal(size=(POINTS, f.m)), np.zeros(f.m)
    if mixture is not None:
        z, centre = mixture.sample(POINTS, rng)[0], mixture.weights @ mixture.means
        z += NUDGE * z.std() * rng.normal(size=z.shape)
    z[POINTS // 2 :] = centre + FAR * (z[POINTS // 2 :] - centre)
    return z


class Witnesses(NamedTuple):
    """What is known of the sampled points (POINTS,)."""

    second: BoolArray  # they have a second preimage
    thick: BoolArray  # and so have all points of the image around them
    constant: BoolArray  # f is constant along some direction around them
    example: str


def find_witnesses(f: Decoder, mixture: Mixture | None) -> Witnesses:
    """Search z* with f(z*) = f(z) and z* != z for sampled z, in the affine pieces of f around the other points."""
    z = _sample_latents(f, mixture)
    x, hidden = f.forward(z)
    kinds, own = np.unique(np.hstack([h > 0 for h in hidden]), axis=0, return_inverse=True)
    own = own.reshape(-1)
    pieces = [_piece(f, kind) for kind in kinds]
    spectra = np.array([np.linalg.svd(a, compute_uv=False) for a, _ in pieces])
    zero = 1e-12 * np.prod([np.linalg.norm(w, 2) for w in f.weights])
    constant = spectra[:, -1] <= np.maximum(RANK / FACTOR * spectra[:, 0], zero)
    second, thick, example = constant[own], np.zeros(POINTS, dtype=bool), ""
    for k in np.flatnonzero(~constant):
        a, c = pieces[k]
        other = (x - c) @ np.linalg.pinv(a).T
        size = np.linalg.norm(x - c, axis=1) + np.linalg.norm(c)
        near = np.linalg.norm(other @ a.T + c - x, axis=1) <= SAME * size
        away = np.linalg.norm(other - z, axis=1) > RANK * np.linalg.norm(z, axis=1)
        candidates = np.flatnonzero(near & away & (own != k) & ~constant[own])
        image, inputs = f.forward(other[candidates])
        inside = (np.hstack([h > 0 for h in inputs]) == kinds[k]).all(1)
        same = np.linalg.norm(image - x[candidates], axis=1) <= SAME * size[candidates]
        for i in candidates[inside & same]:
            both = np.linalg.svd(np.hstack([a, pieces[own[i]][0]]), compute_uv=False)
            second[i], thick[i] = True, thick[i] or share_of(both, f.m + 1) <= RANK
            points = ["(" + ", ".join(f"{value:.3g}" for value in point) + ")" for point in (z[i], other[i])]
            example = example or f", such as f{points[0]} = f{points[1]}"
    return Witnesses(second, thick, constant[own], example if f.m <= PRINTED else "")


def _piece(f: Decoder, on: BoolArray) -> tuple[Array, Array]:
    """Return A, c of the affine piece A z + c with these units on."""
    a, c = f.weights[0], f.biases[0]
    for w, b, slope in zip(f.weights[1:], f.biases[1:], f.slopes, strict=True):
        factor, on = np.where(on[: len(c)], 1.0, slope), on[len(c) :]
        a, c = w @ (factor[:, None] * a), w @ (factor * c) + b
    return a, c


def by_witnesses(f: Decoder, proven: Findings, witnesses: Witnesses, note: str = "") -> Findings:
    """Judge the assumptions that the rules leave open; proven ones stay."""
    second, thick, constant = (int(found.sum()) for found in witnesses[:3])
    found, points, end = dict(proven), f"of {POINTS} sampled points", f"{witnesses.example}{f.loss}."
    flattened = f"f is constant along some direction around {constant} {points}{f.loss}."
    if "F2" not in found and second == POINTS:
        sentence = flattened if constant == POINTS else f"None {points} is the only preimage of its image{end}"
        found["F2"] = Finding("inconclusive", f"{sentence} This is evidence, not a proof.", 1.0, 1.0)
    if "F3" not in found and thick:
        sentence = f"{thick} {points} have a second preimage, and so have all points of the image around them{end}"
        found |= dict.fromkeys(("F3", "F4"), Finding("fails", sentence, thick / POINTS, 0.0))
    elif "F4" not in found and second:
        sentence = flattened if constant else f"{second} {points} have a second preimage{end}"
        found["F4"] = Finding("fails", sentence, second / POINTS, 0.0)
    sentence = f"A search in some pieces of f found second preimages for {second} {points}{f.loss}{note}."
    return _all(Finding("inconclusive", sentence, second / POINTS, 1.0)) | found
