"""Decoders that several tests use."""

from itertools import pairwise

import numpy as np

from identifiable.theory import Decoder
from identifiable.theory.injectivity import judge

RELU, ABS = 0.0, -1.0
IDENTITY = ([[1.0]], [0.0])


def verdicts(checks):
    return {check.name: check.verdict for check in checks}


def initials(decoder):
    """Return the initials of the verdicts on F2, F3 and F4: holds, fails or inconclusive."""
    first, *others = judge(decoder)
    assert first.verdict == "holds"
    return "".join(check.verdict[0] for check in others)


def random_net(widths, rng, slope=RELU):
    layers = [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in pairwise(widths)]
    return Decoder.from_layers(layers, slope)


def curve(points, before, after):
    """Return the curve through points[k] at z = k, straight between, with these velocities outside: one ReLU layer."""
    points = np.asarray(points, dtype=float).reshape(len(points), -1)
    speeds = np.vstack([np.atleast_1d(before), np.diff(points, axis=0), np.atleast_1d(after)])
    knots = np.arange(len(points))
    first = np.r_[1.0, -1.0, np.ones(len(points))][:, None], np.r_[0.0, 0.0, -knots]
    second = np.vstack([speeds[0], -speeds[0], np.diff(speeds, axis=0)]).T
    return Decoder.from_layers([first, (second, points[0])])
