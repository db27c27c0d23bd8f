r"""Rotate the axes of a fitted pattern model out of bases that EM cannot leave.

EM is stuck in bases in which two latents are replaced by combinations, e.g. their sum and difference: both are then
active when either is. For pairs that are rarely active apart, the plane of both is filled with lines at all angles. If
the lines with most weight are not the present axes, they are tried as axes. A pattern of several latents whose rows lie
on one line is one latent without an axis: the line is tried as its axis.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from identifiable.algorithms.pattern_model import Model, Rows, em, settle

ON_A_LINE = 0.95  # share of the second moment about the origin
ANGLES = 12  # lines tried in the plane of two latents


def lines_in_plane(rows: Rows, model: Model, i: int, k: int) -> tuple[float, Tensor]:
    """Return the two lines (2, 2) in the plane of latents i and k that hold most weight, and how much is off the axes.

    Angles are measured where (v_i, v_k) is white. Beside the lines, i and k may both be inactive or both be active.
    """
    base, weights = model.without(i, k)
    top = torch.argsort(-weights)[:40]
    base, weights = base[top], weights[top]
    root = torch.linalg.cholesky((model.root @ model.root.T)[[i, k]][:, [i, k]])
    angles = torch.arange(ANGLES, dtype=torch.float64) * np.pi / ANGLES
    units = torch.stack([angles.cos(), angles.sin()], 1)
    onto = root @ (units[:, :, None] * units[:, None, :]) @ torch.linalg.inv(root)
    blocks = torch.cat([torch.zeros(1, 2, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)[None], onto])
    maps = torch.diag_embed(base).repeat(len(blocks), 1, 1)
    pair = torch.tensor([i, k])
    maps[:, pair[:, None], pair] = blocks.repeat_interleave(len(base), 0)
    density = rows.log_density(*model.components(maps))
    density = (density - density.amax(1, keepdim=True)).exp()
    weights = weights.repeat(len(blocks))
    for _ in range(6):
        joint = density * weights
        weights = (joint / joint.sum(1, keepdim=True)).mean(0)
    held = weights.view(len(blocks), -1).sum(1)[2:]
    axes = torch.linalg.inv(root).T
    axes = torch.atan2(axes[:, 1], axes[:, 0])

    def apart(a: Tensor, b: Tensor) -> Tensor:
        turn = (a - b) % np.pi
        return torch.minimum(turn, np.pi - turn)

    off = torch.minimum(apart(angles, axes[0]), apart(angles, axes[1])) > 1.1 * np.pi / ANGLES
    first = held.argmax()
    both = torch.stack([first, torch.where(apart(angles, angles[first]) > 0.4, held, -1.0).argmax()])
    return float((held * off)[both].sum()), (units @ root.T)[both]


def rotate_pair(model: Model, i: int, k: int, lines: Tensor) -> Model:
    """Make these lines the axes of i and k, with both bits open in every pattern."""
    base, weights = model.without(i, k)
    turn = torch.eye(len(model.mean), dtype=torch.float64)
    pair = torch.tensor([i, k])
    turn[pair[:, None], pair] = lines
    patterns = base.repeat(4, 1)
    bits = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    patterns[:, pair] = bits.repeat_interleave(len(base), 0)
    back = torch.linalg.inv(turn)
    return replace(
        model,
        mixing=turn @ model.mixing,
        mean=model.mean @ back,
        root=back.T @ model.root,
        patterns=patterns,
        weights=weights.repeat(4) / 4,
    )


def shared_lines(rows: Rows, model: Model, least: float) -> list[tuple[int, Tensor, Tensor]]:
    """Return (pattern, line, mean place on it) for the patterns of several latents whose rows lie on one line.

    Several latents that move on one line are one latent without an axis. On a line means: at least the share `least` of
    the variance, and nearly all of the second moment about the origin.
    """
    several = torch.nonzero((model.weights > 0.01) & (model.patterns.sum(1) > 1))[:, 0]
    _, centre, spread = rows.moments(model.posterior(rows)[0][:, several])
    away = centre - model.origin
    noise = np.exp(2 * model.log_noise) * model.noise_shape
    values, vectors = torch.linalg.eigh(spread - noise + away[:, :, None] * away[:, None, :])
    lines = vectors[:, :, -1] * values[:, -1:].clamp(min=1e-12).sqrt()
    places = (away * lines).sum(1) / values[:, -1].clamp(min=1e-12)
    spreads = torch.linalg.eigvalsh(spread - noise).clamp(min=0)
    on_it = (values[:, -1] > ON_A_LINE * values.clamp(min=0).sum(1)) & (spreads[:, -1] > least * spreads.sum(1))
    return [(int(several[j]), lines[j], places[j]) for j in torch.nonzero(on_it)[:, 0]]


def rotate_pattern(model: Model, number: int, line: Tensor, place: Tensor) -> Model:
    """Make the line of a pattern the axis of one latent."""
    pattern = model.patterns[number]
    others = torch.arange(len(model.patterns)) != number
    patterns, weights = model.patterns[others], model.weights[others]
    i = int((weights @ patterns).argmin())  # the latent that other patterns need least
    mixing, mean, covariance = model.mixing.clone(), model.mean.clone(), model.root @ model.root.T
    mixing[i], mean[i] = line, place
    covariance[i] = covariance[:, i] = 0  # the other latents keep their distribution without i
    covariance[i, i] = (1 - place**2).clamp(min=0.01)
    root = torch.linalg.cholesky(covariance + 1e-3 * torch.diag(covariance.diagonal()))
    with_i = patterns[:, i] > 0
    alone = torch.zeros_like(pattern)[None]
    alone[0, i] = 1
    patterns = torch.cat([patterns, torch.maximum(patterns[with_i], pattern), alone])
    weights = torch.cat([weights, weights[with_i], model.weights[number : number + 1]])
    return replace(model, mixing=mixing, mean=mean, root=root, patterns=patterns, weights=weights / weights.sum())


def try_rotations(rows: Rows, model: Model, value: float) -> tuple[Model, float]:
    """Rotate axes of patterns on a line and of pairs that are rarely active apart, where this raises the value."""
    n = rows.n

    def attempt(turned: Model) -> bool:
        nonlocal model, value
        trial = em(rows, em(rows, turned, 2, dropped=0.5, values=False), 6)
        reached = trial.value(rows)
        better = reached > value + 1e-3
        if better:
            model, value = trial, reached
        return better

    tried: set[tuple[float, ...]] = set()
    while fresh := [s for s in shared_lines(rows, model, 0.8) if tuple(model.patterns[s[0]].tolist()) not in tried]:
        tried.add(tuple(model.patterns[fresh[0][0]].tolist()))
        attempt(rotate_pattern(model, *fresh[0]))
    active = model.weights @ model.patterns
    alone = (model.weights[:, None] * model.patterns).T @ (1 - model.patterns)  # i active, k inactive
    lift = alone / (active[:, None] * (1 - active) + 1e-9)
    pairs = sorted((float(torch.minimum(lift[i, k], lift[k, i])), i, k) for i in range(n) for k in range(i))
    some = Rows(rows.t[:1000])
    found = [(*lines_in_plane(some, model, i, k), i, k) for _, i, k in pairs[: 2 * n]]
    done: set[int] = set()
    for off, lines, i, k in sorted(found, key=lambda f: -f[0])[: max(4, n // 2)]:
        if off > 0.02 and not {i, k} & done and attempt(rotate_pair(model, i, k, lines)):
            done |= {i, k}
    return model, value


def rotated_axes(rows: Rows, model: Model, value: float, rounds: int = 4) -> tuple[Model, float]:
    """Rotate axes and settle until no rotation helps."""
    for _ in range(rounds):
        before = value
        model, value = try_rotations(rows, model, value)
        if value == before:
            break
        model, value = settle(rows, model, 6)
    return model, value
