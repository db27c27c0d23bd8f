"""Simulated data of the papers: a distribution of latents, a mixing, observation noise.

Every `make_*` returns a `Sample`. Its `source` is the `Simulator` that generated it: `sample.source.sample(...)`
returns fresh rows of the same distribution, `sample.source.stream(...)` an endless stream on any device. The integer
`random_state` fixes both the distribution and the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from identifiable.arrays import Array
from identifiable.data.latents import (
    PILOT_ROWS,
    GaussianMixture,
    MaskedSCM,
    all_planes_rotation,
    random_dag,
    random_masks,
)
from identifiable.data.mixings import Mixing, orthogonal_mixing, tanh_mixing
from identifiable.data.sample import Sample
from identifiable.data.simulator import Simulator


@dataclass(frozen=True)
class Difficulty:
    """How strong a mixing is: slopes of the activations, number of matrices, columns per latent, noise in sd of x."""

    slopes: float | tuple[float, float]
    layers: int
    columns: int = 1
    noise: float = 0.0

    def mixing(self, n: int, d: int | None, rng: np.random.Generator, **options: Any) -> Mixing:
        """Return a random `orthogonal_mixing` of n latents; what is None is set by the difficulty."""
        given = {name: value for name, value in options.items() if value is not None}
        options = {"layers": self.layers, "slopes": self.slopes} | given
        return orthogonal_mixing(n, self.columns * n if d is None else d, rng=rng, **options)


# The four mixings of every recovery table. "published" is nearly linear; see docs/data.md.
DIFFICULTIES = {
    "published": Difficulty(slopes=(0.5, 1.5), layers=10),
    "medium": Difficulty(slopes=0.2, layers=3),
    "hard": Difficulty(slopes=0.2, layers=10),
    "wide": Difficulty(slopes=0.2, layers=3, columns=4, noise=0.01),
}


def make_pdgmm(
    n_samples: int = 20_000,
    *,
    n: int = 10,
    k: float = 1,
    rho: int | str = 50,
    delta: float = 0.0,
    theta: float = 0.0,
    difficulty: str = "published",
    layers: int | None = None,
    slopes: float | tuple[float, float] | None = None,
    d: int | None = None,
    noise: float | None = None,
    noise_law: str = "gaussian",
    activation: str = "leaky",
    blocks: Sequence[int] | None = None,
    second_basis: float | None = None,
    example: str | None = None,
    random_state: int = 0,
) -> Sample:
    """Sample a potentially degenerate Gaussian mixture, mixed by a random piecewise affine map (Xu et al. 2026).

    Latents follow a linear structural equation model on a random graph with n k edges. 5n random masks with a share rho
    of ones, duplicates dropped, are the components; a masked latent is inactive, with the value mean + delta sd. All
    latents are then rotated by theta degrees in every coordinate plane. The mixing alternates random orthogonal
    matrices and leaky activations.

    Parameters
    ----------
    n_samples, n : int. Number of rows and of latents.
    k : float, default=1. Edges per latent (0: independent latents); n k edges, or all that are possible.
    rho : float or str, default=50. Share of active latents per row in per cent, rounded down; "1 var" for a single one.
    delta : float, default=0. Inactive value of a latent, in standard deviations from its mean.
    theta : float, default=0. Rotation of the basis, in degrees. `sample.z` is the rotated z; the sparse one is
        `sample.z @ sample.source.latents.rotation.T`.
    difficulty : "published", "medium", "hard" or "wide": sets the next four unless they are given.
    layers, slopes, d, noise : number of matrices, slope or (low, high) of a uniform slope per layer, observed columns,
        observation noise in units of the standard deviation of x.
    noise_law : str, default="gaussian". Distribution of the noise in the structural equations: "gaussian",
        "exponential" or "gumbel".
    activation : "leaky", "smooth" or "sigmoid".
    blocks : sizes of groups of latents that are always active together; they replace n, and rho is the share of blocks.
    second_basis : every second component has a basis rotated by this angle (violates assumption 3.6).
    example : "B.13", "E.2" (both violate assumption 3.4) or "E.3" (violates 3.6) instead of the random components.
    random_state : int, default=0. Fixes graph, masks, mixing and rows.

    Examples
    --------
    >>> s = make_pdgmm(1000, n=10, rho=50, random_state=0)
    >>> s
    Sample(x=(1000, 10), z=(1000, 10), component=(1000,))
    >>> import numpy as np, torch
    >>> z = s.source.mixing.inverse(torch.as_tensor(s.x)).numpy()
    >>> bool(np.abs(z - s.z).max() < 1e-10)
    True
    """
    rng, level = np.random.default_rng(random_state), _difficulty(difficulty)
    latents: MaskedSCM | GaussianMixture
    if example is not None:
        latents = _example(example, n)
        n = latents.means.shape[1]
    else:
        sizes = [1] * n if blocks is None else blocks
        n = sum(sizes)
        latents = _masked_scm(sizes, k, rho, delta, theta, noise_law, second_basis, rng)
    mixing = level.mixing(n, d, rng, layers=layers, slopes=slopes, activation=activation)
    relative = level.noise if noise is None else noise
    return _with_noise(latents, mixing, relative, random_state).sample(n_samples, random_state)


def make_segments(
    n_samples: int = 40_000,
    *,
    n: int = 5,
    d: int | None = None,
    segments: int = 40,
    layers: int = 3,
    centred: bool = True,
    variance: bool = False,
    reuse: bool = True,
    bernoulli: bool = False,
    noise: float = 0.0,
    random_state: int = 0,
) -> Sample:
    """Sample Gaussian sources whose scale changes with the segment u, mixed (Khemakhem et al. 2020, section 5).

    z_i | u ~ N(m_ui, s_ui²) with s ~ U(.5, 3), as the reference code does, or s² ~ U(.5, 3), as the paper says
    (`variance=True`); m = 0, or U(-5, 5) when not `centred`. The mixing alternates matrices and tanh(h) + .1 h; with
    `reuse` all layers share one matrix, as in the reference code. Every segment has the same share of rows.

    Parameters
    ----------
    n_samples : rows in all (the paper: 1000 per segment).
    n, d : latents and observed columns (default d = n).
    bernoulli : observe x ~ Bernoulli(sigmoid(f(z))) instead of f(z).
    noise : observation noise in units of the standard deviation of x.

    Examples
    --------
    >>> s = make_segments(400, segments=4, random_state=0)
    >>> s, np.bincount(s.u).tolist()
    (Sample(x=(400, 5), u=(400,), z=(400, 5), component=(400,)), [100, 100, 100, 100])
    """
    rng = np.random.default_rng(random_state)
    scales = rng.uniform(0.5, 3.0, size=(segments, n))
    scales = np.sqrt(scales) if variance else scales
    means = np.zeros((segments, n)) if centred else rng.uniform(-5, 5, size=(segments, n))
    latents = _segments(means, scales)
    mixing = tanh_mixing(n, d if d is not None else n, layers=layers, reuse=reuse, rng=rng)
    return _with_noise(latents, mixing, noise, random_state, bernoulli=bernoulli).sample(n_samples, random_state)


def make_tcl(
    n_samples: int = 20_000,
    *,
    n: int = 5,
    segments: int = 20,
    layers: int = 4,
    slope: float = 0.2,
    random_state: int = 0,
) -> Sample:
    """Sample the time-contrastive data of Willetts & Paige (2021, section 5): segments with changing means and scales.

    z_i | u ~ N(m_ui, s_ui²), m ~ U(-3, 3), s ~ U(.01, 3); `layers` orthogonal matrices, each followed by a leaky
    activation but the last. Every segment has the same share of rows (the paper: 100 to 2000 each).
    """
    rng = np.random.default_rng(random_state)
    latents = _segments(rng.uniform(-3, 3, size=(segments, n)), rng.uniform(0.01, 3.0, size=(segments, n)))
    mixing = orthogonal_mixing(n, n, layers=layers, slopes=slope, rng=rng)
    return Simulator(latents, mixing, seed=random_state).sample(n_samples, random_state)


def make_gmm(
    n_samples: int = 20_000,
    *,
    n: int = 5,
    components: int = 10,
    factorial: bool = True,
    hidden: Sequence[int] | None = None,
    touches: Sequence[Sequence[int]] | None = None,
    difficulty: str = "published",
    layers: int | None = None,
    slopes: float | tuple[float, float] | None = None,
    d: int | None = None,
    random_state: int = 0,
) -> Sample:
    """Sample a non-degenerate Gaussian mixture, mixed: the setting of Kivva et al. (2022).

    Component means are U(-3, 3), standard deviations U(.3, 1.5), weights Dirichlet(5). With `factorial` the latents are
    independent within a component (P2); otherwise a random rotation per component makes them dependent.

    Parameters
    ----------
    hidden : sizes (d_1, ..., d_k) of several hidden discrete variables U_1..U_k; the components are their joint values,
        `component` numbers them in row-major order, and `components` is ignored.
    touches : for each hidden variable the latents it acts on; a latent's mean and variance are functions of the hidden
        variables that touch it alone. Default: every one touches all.
    difficulty, layers, slopes, d : the mixing, as in `make_pdgmm`; `layers=1` is a rotation.

    Examples
    --------
    >>> s = make_gmm(500, n=3, hidden=(2, 3), touches=[[0], [1, 2]], random_state=0)
    >>> np.unique(s.component).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    rng, level = np.random.default_rng(random_state), _difficulty(difficulty)
    sizes = tuple(hidden) if hidden is not None else (components,)
    touched = [range(n)] * len(sizes) if touches is None else touches
    if len(touched) != len(sizes):
        raise ValueError(
            f"touches must have one entry per hidden variable: {len(sizes)} expected, {len(touched)} given."
        )
    joint = np.stack(np.unravel_index(np.arange(np.prod(sizes)), sizes), axis=1)  # (J, k)
    means, scales = np.empty((len(joint), n)), np.empty((len(joint), n))
    for i in range(n):
        own = [u for u, latents in enumerate(touched) if i in latents]
        shape = [sizes[u] for u in own]
        at = tuple(joint[:, u] for u in own)
        means[:, i] = rng.uniform(-3, 3, size=shape)[at]
        scales[:, i] = rng.uniform(0.3, 1.5, size=shape)[at]
    factors = scales if factorial else scales[:, :, None] * np.stack([_rotation(n, rng) for _ in joint])
    latents = GaussianMixture(rng.dirichlet(np.full(len(joint), 5.0)), means, factors)
    mixing = level.mixing(n, d, rng, layers=layers, slopes=slopes)
    return _with_noise(latents, mixing, level.noise, random_state).sample(n_samples, random_state)


def _difficulty(name: str) -> Difficulty:
    if name not in DIFFICULTIES:
        raise ValueError(f"difficulty must be one of {list(DIFFICULTIES)}. Got {name!r}.")
    return DIFFICULTIES[name]


def _masked_scm(
    sizes: Sequence[int],
    k: float,
    rho: int | str,
    delta: float,
    theta: float,
    noise_law: str,
    second_basis: float | None,
    rng: np.random.Generator,
) -> MaskedSCM:
    n = sum(sizes)
    if noise_law not in ("gaussian", "exponential", "gumbel"):
        raise ValueError(f"noise_law must be 'gaussian', 'exponential' or 'gumbel'. Got {noise_law!r}.")
    adjacency = random_dag(n, round(n * k), rng)
    masks = np.repeat(random_masks(len(sizes), _n_active(rho, len(sizes)), 5 * n, rng), sizes, axis=1)
    latents = MaskedSCM(
        adjacency,
        masks=masks,
        rest=np.zeros(n),
        noise_law=noise_law,
        rotation=all_planes_rotation(n, theta),
        second=np.arange(len(masks)) % 2 == 1 if second_basis is not None else np.zeros(len(masks), dtype=bool),
        second_rotation=all_planes_rotation(n, second_basis or 0.0),
    )
    pilot = latents.noise(PILOT_ROWS, torch.Generator().manual_seed(int(rng.integers(2**31)))) @ latents.transfer
    latents.rest.copy_(pilot.mean(0) + delta * pilot.std(0))
    return latents


def _n_active(rho: int | str, units: int) -> int:
    if rho == "1 var":
        return 1
    if isinstance(rho, str) or not 0 < rho <= 100:
        raise ValueError(f"rho must be a percentage in (0, 100] or '1 var'. Got {rho!r}.")
    return max(1, int(rho * units / 100))


def _example(name: str, n: int) -> GaussianMixture:
    """Return a counterexample of the pdGMM paper; all components are lines, at `distance` from the common point."""
    directions, scales, distances = np.eye(n), np.ones(n), np.zeros(n)
    if name == "E.2":  # at the common point all components are equally far: |mean| / sd is 2 for each
        scales = np.linspace(0.5, 1.5, n)
        distances = 2 * scales
    elif name == "E.3":  # three lines in the plane: their directions are linearly dependent
        directions = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        scales, distances = np.array([1.0, 0.8, 0.6]), np.array([0.5, 1.0, 1.5])
    elif name != "B.13":  # B.13: the two halves of each axis can be swapped with those of another; all are N(0, 1)
        raise ValueError(f"example must be 'B.13', 'E.2' or 'E.3'. Got {name!r}.")
    weights, factors = np.full(len(directions), 1 / len(directions)), scales[:, None] * directions
    return GaussianMixture(weights, distances[:, None] * directions, factors[:, None, :], equal_shares=True)


def _segments(means: Array, scales: Array) -> GaussianMixture:
    return GaussianMixture(np.full(len(means), 1 / len(means)), means, scales, observed=True, equal_shares=True)


def _with_noise(
    latents: MaskedSCM | GaussianMixture, mixing: Mixing, relative: float, seed: int, *, bernoulli: bool = False
) -> Simulator:
    """Build the simulator; its noise is relative to the standard deviation of the clean x over rows and columns."""
    clean = Simulator(latents, mixing, seed=seed)
    absolute = relative * float(clean.sample(PILOT_ROWS, random_state=-1).x.std()) if relative > 0 else 0.0
    return Simulator(latents, mixing, noise=absolute, bernoulli=bernoulli, seed=seed)


def _rotation(n: int, rng: np.random.Generator) -> Array:
    return np.linalg.qr(rng.normal(size=(n, n)))[0]
