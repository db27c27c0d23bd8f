r"""The prior of the latents given an observed u, which `IFlow` and `IVAE` share, and the handling of u.

    p(z | u) = Π_i p(z_i | u),      z_i | u ~ N(0, s_i(u)²)          family "variance", k = 1, T = z²
                                              N(m_i(u), s_i(u)²)     family "gaussian", k = 2, T = (z, z²)
                                              Laplace(0, s_i(u))     family "laplace",  k = 1, T = |z|

m and s come from a look-up table, a row for each value of u, or from a net of its features.
"""

import copy
import math
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from identifiable.arrays import Array, FloatArray, hold_out
from identifiable.data.auxiliary import KINDS, Auxiliary
from identifiable.distributions.conditional import FEWEST_ROWS, ConditionalPrior, Family
from identifiable.distributions.densities import log_laplace, log_normal
from identifiable.errors import DataError, RecoveryWarning
from identifiable.estimators.base import LatentModel, resolve_device
from identifiable.estimators.segment_unmixing import SegmentUnmixing
from identifiable.estimators.trained import Split
from identifiable.nets import MLP
from identifiable.theory import Certificate, Check, certify
from identifiable.theory.independence import Correlations, check_fit

FAMILIES: tuple[Family, ...] = ("variance", "gaussian", "laplace")
LEAST_SCALE, MOST_SCALE = math.log(1e-3), math.log(1e3)  # of a latent given u, beside its scale over all rows
PRIOR_HIDDEN = (32, 32)


class PriorGivenU(nn.Module):
    """Means and log-scales (R, B, n) of the latents given u, in units that can be changed after training.

    Parameters
    ----------
    members, n : R and the number of latents.
    family : one of `FAMILIES`; means are zero but for "gaussian".
    inputs : number of values of u for a table, of features for a net.
    table : whether u comes as numbers of values (R, B), or as features (R, B, inputs).
    """

    shift: Tensor
    log_unit: Tensor

    def __init__(
        self, members: int, n: int, family: str, inputs: int, *, table: bool, rng: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.family, self.n = family, n
        self.net = None if table else MLP(members, (inputs, *PRIOR_HIDDEN, 2 * n), activation="silu", rng=rng)
        self.means = nn.Parameter(torch.zeros(members, inputs, n)) if table and family == "gaussian" else None
        self.log_scales = nn.Parameter(torch.zeros(members, inputs, n)) if table else None
        self.register_buffer("shift", torch.zeros(members, 1, n))
        self.register_buffer("log_unit", torch.zeros(members, 1, n))

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and log-scales."""
        if self.net is not None:
            mean, log_scale = self.net(u).chunk(2, dim=-1)
            mean = mean if self.family == "gaussian" else torch.zeros_like(mean)
        else:
            assert self.log_scales is not None
            rows = torch.arange(len(u), device=u.device)[:, None]
            log_scale = self.log_scales[rows, u]
            mean = torch.zeros_like(log_scale) if self.means is None else self.means[rows, u]
        log_scale = log_scale.clamp(LEAST_SCALE, MOST_SCALE)
        return (mean - self.shift) * torch.exp(-self.log_unit), log_scale - self.log_unit

    def log_density(self, z: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
        """Log p(z | u) for z (R, B, n) and the means and log-scales of u; (R, B)."""
        density = log_laplace if self.family == "laplace" else log_normal
        return density(z, mean, log_scale).sum(-1)

    @torch.no_grad()
    def start(self, means: Array, scales: Array) -> None:
        """Start a table at these means and standard deviations, (R, G, n) or (G, n) for every member."""
        if self.log_scales is not None:
            scales = scales / math.sqrt(2) if self.family == "laplace" else scales
            self.log_scales.copy_(torch.as_tensor(np.log(scales)))
        if self.means is not None:
            self.means.copy_(torch.as_tensor(means))

    @torch.no_grad()
    def start_at_moments(self, latents: Array, codes: NDArray[np.int64]) -> None:
        """Start a table at the moments of latents (R, N, n) in each group; variances count one extra row of 1."""
        size = np.bincount(codes)[:, None]
        means = np.zeros((len(latents), len(size), latents.shape[-1]))
        scales = np.empty_like(means)
        for r, T in enumerate(latents):
            if self.means is not None:
                means[r] = np.stack([np.bincount(codes, c) for c in T.T], 1) / size
            squares = np.stack([np.bincount(codes, c) for c in ((T - means[r][codes]) ** 2).T], 1)
            scales[r] = np.sqrt((squares + 1) / (size + 1))
        self.start(means, scales)

    @torch.no_grad()
    def rescale(self, shift: Tensor, unit: Tensor) -> None:
        """Change latents z to (z - shift) / unit, both (R, n); for "variance" and "laplace" the shift must be zero."""
        self.shift.add_(shift[:, None] * self.log_unit.exp())
        self.log_unit.add_(unit.log()[:, None])


@dataclass(eq=False, repr=False)
class GivenU(LatentModel):
    """Methods with an observed u: how u is read, the prior given u, and the certificate."""

    needs_u = True

    _: KW_ONLY
    family: str = "auto"
    prior: str = "auto"
    u_types: str | Sequence[str] = "auto"
    n_groups: int | None = None

    auxiliary_: Auxiliary = field(init=False)
    family_: str = field(init=False)
    table_: bool = field(init=False)
    conditional_prior_: ConditionalPrior | None = field(init=False)
    dependence_: Correlations = field(init=False)

    def _check_given(self) -> None:
        self._check_common_parameters()
        words = isinstance(self.u_types, str) and self.u_types in KINDS
        several = not isinstance(self.u_types, str) and isinstance(self.u_types, Sequence)
        self._require("u_types", words or several, f"one of {KINDS}, or a sequence of them")
        self._require_integers(n_groups=2, optional=True)
        self._require("family", self.family in ("auto", *FAMILIES), f"'auto' or one of {FAMILIES}")
        self._require("prior", self.prior in ("auto", "table", "net"), "'auto', 'table' or 'net'")

    def _split(self, X: Any, y: Any) -> Split:
        """Check X and u; split rows as `hold_out` does, but never hold out a whole group of u."""
        X, seed = self._check_training_data(X), self._seed()
        self.auxiliary_ = Auxiliary.of(y, len(X), self.u_types, self.n_groups)
        self.table_ = self.auxiliary_.all_categorical if self.prior == "auto" else self.prior == "table"
        train, held = hold_out(len(X), seed)
        codes = self.auxiliary_.codes(y)
        known = np.isin(codes[held], codes[train])
        if known.sum() < min(len(held), FEWEST_ROWS):
            train = held = np.arange(len(X))
        else:
            train, held = np.union1d(train, held[~known]), held[known]
        return Split(X, y, train, held, seed, resolve_device(self.device))

    def _linear(self, y: Array, u: Any, seed: int, *, restart: int = 0) -> SegmentUnmixing:
        """Unmix reduced rows y (N, n) linearly, given the groups of u.

        The first restart takes all rows, and sets the family where it is to be found; every other takes a random half
        of the rows of each group, so that restarts which agree do not only share an accident of these rows.
        """
        codes = self.auxiliary_.codes(u)
        groups, n = len(np.unique(codes)), y.shape[1]
        half = half_of_each(codes, seed + restart)
        if restart > 0 and len(half) - groups >= n:
            y, codes = y[half], codes[half]
        if self.family == "gaussian" and len(y) - groups < n:
            raise DataError(
                f"family='gaussian' has a mean for each group of u: {len(y)} rows in {groups} groups leave too few for "
                f"the variances of {n} latents. Set family='variance', or fewer groups or n_latents."
            )
        decided = self.family if restart == 0 else self.family_
        means: bool | str = "auto" if decided == "auto" else decided == "gaussian"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecoveryWarning)
            linear = SegmentUnmixing(
                n_restarts=2, random_state=seed + restart, device="cpu", u_types="categorical", means=means
            ).fit(y, codes)
        if restart == 0:
            self.family_ = decided if decided != "auto" else "gaussian" if linear.means_.any() else "variance"
        return linear

    def _prior(self, members: int, n: int, rng: torch.Generator | None = None) -> PriorGivenU:
        inputs = self.auxiliary_.n_groups if self.table_ else self.auxiliary_.group_features.shape[1]
        return PriorGivenU(members, n, self.family_, inputs, table=self.table_, rng=rng)

    def _u_inputs(self, u: Any, rows: int) -> NDArray[Any]:
        """Return u as the prior takes it: numbers of values (N,), or features (N, p)."""
        values = self.auxiliary_.codes(u) if self.table_ else self.auxiliary_.features(u)
        if len(values) != rows:
            raise DataError(f"u must have one row per row of X: X has {rows}, u has {len(values)}.")
        return values

    def _u_tensor(self, u: Any, rows: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return u as a tensor that the prior takes."""
        values = self._u_inputs(u, rows)
        return torch.as_tensor(values, device=device, dtype=torch.int64 if self.table_ else dtype)

    def _every_group(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return one u for each group, as the prior takes it."""
        if self.table_:
            return torch.arange(self.auxiliary_.n_groups, device=device)
        return torch.as_tensor(self.auxiliary_.group_features, device=device, dtype=dtype)

    def _log_prior_given(self, prior: PriorGivenU, z: Tensor, u: Tensor | None) -> Tensor:
        """Log p(z | u) of latents z (R, B, n) for u (R, B, ...), or log Σ_g w_g p(z | g) over its groups; (R, B)."""
        if u is not None:
            return prior.log_density(z, *prior(u))
        every = self._every_group(z.device, z.dtype)
        mean, log_scale = prior(every.expand(len(prior.shift), *every.shape))  # (R, G, n)
        log_w = torch.as_tensor(np.log(self.auxiliary_.weights), dtype=z.dtype, device=z.device)
        groups = zip(mean.split(1, dim=1), log_scale.split(1, dim=1), strict=True)
        each = [prior.log_density(z, m, s) for m, s in groups]
        return torch.logsumexp(torch.stack(each, -1) + log_w, -1)

    def _draw_u(self, n_samples: int, u: Any, generator: np.random.RandomState, device: torch.device) -> Tensor:
        """Return u for each of n_samples draws, as the prior takes it: as given, or groups by their weights."""
        if u is None:
            chosen = generator.choice(self.auxiliary_.n_groups, size=n_samples, p=self.auxiliary_.weights)
            return self._every_group(device, torch.float64)[torch.as_tensor(chosen, device=device)]
        return self._u_tensor(self.auxiliary_.repeated(u, n_samples), n_samples, device, torch.float64)

    @property
    @abstractmethod
    def _kept_prior(self) -> PriorGivenU:
        """The prior of the kept restart."""

    @torch.no_grad()
    def sample_latents(
        self, n_samples: int = 1, u: Any = None, random_state: int | np.random.RandomState | None = None
    ) -> Array:
        """Draw latents (n_samples, n) of the learnt p(z | u), with u one value for all or one per row; or by weight."""
        generator = self._generator(n_samples, random_state)
        prior = copy.deepcopy(self._kept_prior).double()
        mean, log_scale = prior(self._draw_u(n_samples, u, generator, prior.shift.device)[None])
        m, s = mean[0].cpu().numpy(), np.exp(log_scale[0].cpu().numpy())
        noise = generator.laplace(size=m.shape) if self.family_ == "laplace" else generator.standard_normal(m.shape)
        return m + s * noise

    def _set_conditional_prior(self, z: FloatArray, data: Split) -> None:
        """Estimate the distribution of latents z of the training rows given the groups of u, for the certificate."""
        codes, z = self.auxiliary_.codes(data.u_train), cast(Array, z.astype(np.float64))
        enough = np.bincount(codes, minlength=self.auxiliary_.n_groups)[codes] >= FEWEST_ROWS
        self.conditional_prior_, self.dependence_ = None, Correlations.of_groups(z, codes)
        if enough.any() and (z[enough].std(0) > 0).all():
            with suppress(DataError):  # a latent is constant in some group: nothing can be certified
                self.conditional_prior_ = ConditionalPrior.resampled(
                    z[enough], codes[enough], cast(Family, self.family_), seed=data.seed
                )

    def _certificate(self, observation: Any, injective: bool | None) -> Certificate:
        """Certify the learnt prior, or nothing where restarts disagree."""
        if self.conditional_prior_ is None:
            few = Check("values", "there are rows for each value of u", None, None, "fails", "Too few rows per value.")
            return Certificate.nothing(self.stability_.check, few)
        found = certify(self.conditional_prior_, estimated=True, injective=injective, observation=observation)
        return self._certified(found, check_fit(getattr(self, "dependence_", None), "segment"))


def half_of_each(codes: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return a random half of the rows of each group, one at least.

    >>> half_of_each(np.array([0, 0, 0, 0, 1]), seed=0)
    array([2, 3, 4])
    """
    order = np.random.default_rng(seed).permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    sizes = np.bincount(codes)
    rank = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(order[rank < np.repeat((sizes + 1) // 2, sizes)])
