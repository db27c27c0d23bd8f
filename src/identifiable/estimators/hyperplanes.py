r"""Affine hyperplanes that hold many samples exactly: the linear core of sparse unmixing.

A latent that rests in a share of the samples, mixed affinely, puts that share of the rows of X on one hyperplane
{x : w·x + b = 0}. `find_hyperplanes` looks for n independent ones:

1. *Starts*: MM sweeps of  min_W  Σ_i E ρ_τ(w_i·x + b_i) - log|det W|  with the pinball loss ρ_τ(t) = |t| + (2τ - 1) t
   in homogeneous coordinates, from FastICA-like and random starts, for several τ in one batch. Where the rest value is
   far from the mean, the hyperplane is nearly a facet of the data's cone, and the τ-quantile of w·x sits on it exactly
   for every τ between P(t < rest) and P(t <= rest): |t| around the mean (τ = 1/2) would miss it.
2. *Polish*: shrink the band around each candidate to its spike; the hyperplane is the smallest principal direction of
   the samples in the band.
3. *Codimension*: a combination of several true rows vanishes where all of them rest, so its samples span too little.
   Their null space is then split by sparse search inside it.
4. *Algebra*: samples with one on/off code of the rows found so far lie in one flat; intersecting the null spaces of
   such flats isolates rows that no start has reached. A flat that cannot be split is a block: its latents are always
   active together, and only their span is identified.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from identifiable.estimators.sweeps import Moments, ica_start, log_sweep, orient, pinball_sweep

Array = NDArray[np.float64]

EXACT = 1e-4  # a spike narrower than this, in units of the columns' sd, is called exact
FLOOR = 3e-6  # half-width of the narrowest band
PEAKS = (0.03, 0.07, 0.15)  # half-widths, in sd, at which a coordinate is looked at for a peak
LEAST_SHARE = 0.04  # of the samples on a hyperplane that is looked for
SAME, SAME_EXACT = 0.999, 1 - 1e-6  # correlation from which two rows are one: before polishing, and after on exact data


@dataclass(frozen=True)
class Hyperplane:
    """{y : normal·y + offset = 0} with |normal| = 1, the spike of the samples on it, and how sharp that is."""

    normal: Array
    offset: float
    band: float  # half-width that holds the spike
    spread: float  # standard deviation of the samples in the band
    share: float  # of all samples in the band
    sharpness: float  # samples in the band over those in a band of the same width beside it

    @property
    def exact(self) -> bool:
        """Whether the samples lie on it up to rounding."""
        return self.spread < EXACT

    def distance(self, y: Array) -> Array:
        """Signed distance of rows y (N, n)."""
        d: Array = y @ self.normal + self.offset
        return d


@dataclass(frozen=True)
class Found:
    """Rows (n, n + 1) of w·y + b in the coordinates given.

    The first `verified` were seen as sharp hyperplanes. `blocks` are groups of rows that vanish on the same samples
    only: each spans its group, and no row of it is identified alone.
    """

    rows: Array
    verified: int
    blocks: tuple[tuple[int, ...], ...]
    rounds: int


# Contrast of the start and τ of the sweep, alternating between rounds.
_SCHEDULE = (
    (
        ("tanh", 0.5),
        ("tanh", 0.05),
        ("cube", 0.05),
        ("skew", 0.12),
        ("random", 0.3),
        ("skew", 0.5),
        ("cube", 0.5),
        ("random", 0.12),
    ),
    (
        ("tanh", 0.02),
        ("cube", 0.02),
        ("tanh", 0.12),
        ("skew", 0.05),
        ("random", 0.05),
        ("random", 0.5),
        ("random", 0.4),
        ("random", 0.02),
    ),
)


class HyperplaneSearch:
    """The state of one search: rows y (N, n) with isotropic noise, their white form, and what has been found."""

    def __init__(self, y: Array, variances: Array, seed: int) -> None:
        self.y, self.variances = y, variances
        self.rows, self.n = y.shape
        self.scales = np.sqrt(variances)
        self.torch_rng = torch.Generator().manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.white = torch.as_tensor(np.c_[y / self.scales, np.ones(self.rows)]).float()
        self.candidates: list[Hyperplane] = []
        self.kept: list[Hyperplane] = []
        self.flats: list[Array] = []  # null spaces (n + 1, m) that hold several rows each
        self.blocks: list[Array] = []  # those in which no direction vanishes more often than all together
        self.contrasts: dict[str, Tensor] = {}
        self.best_start: tuple[float, Array] | None = None

    # -- one candidate --------------------------------------------------------

    def polish(self, row: Array, iterations: int = 25) -> Hyperplane | None:
        """Shrink the band around a candidate (n + 1,) to its spike; None where there is none."""
        norm = np.linalg.norm(row[: self.n])
        normal, offset = row[: self.n] / norm, float(row[self.n] / norm)
        band, last = self._sharpest_band(self.y @ normal + offset), -1
        spread = 0.0
        for _ in range(iterations):
            inside = np.abs(self.y @ normal + offset) < band
            count = int(inside.sum())
            if count < self.n + 10:
                return None
            samples = self.y[inside]
            mean = samples.mean(0)
            values, vectors = np.linalg.eigh((samples - mean).T @ (samples - mean) / count)
            normal, offset = vectors[:, 0], -float(mean @ vectors[:, 0])
            spread = max(np.sqrt(max(values[0], 0.0)), 1e-7)
            new = max(3 * spread, FLOOR)
            if count == last and new >= 0.98 * band:
                break
            last, band = count, min(band, new)
        distance = np.abs(self.y @ normal + offset)
        inside_count = int((distance < band).sum())
        beside = int(((distance >= band) & (distance < 3 * band)).sum()) / 2
        return Hyperplane(normal, offset, band, spread, inside_count / self.rows, inside_count / (beside + 1))

    def _sharpest_band(self, t: Array) -> float:
        widths = t.std() * np.array([0.06, 0.03, 0.015, 0.005, 0.0015, 5e-4, 1e-4, 2e-5])
        ordered = np.sort(np.abs(t))
        inner, outer = np.searchsorted(ordered, widths), np.searchsorted(ordered, 3 * widths)
        enough = inner >= max(self.n + 10, 0.03 * self.rows)
        return float(widths[np.where(enough, inner / ((outer - inner) / 2 + 1), 0).argmax()])

    def null_space(self, samples: NDArray[np.intp]) -> Array:
        """All functionals (n + 1, m) that vanish on these samples."""
        y = self.y[samples]
        mean = y.mean(0)
        values, vectors = np.linalg.eigh((y - mean).T @ (y - mean) / len(y))
        small = values < max(25 * values[0], 1e-11) if values[0] < EXACT**2 else values < 2 * values[0]
        null = vectors[:, : min(max(int(small.sum()), 1), self.n - 1)]
        functionals: Array = np.r_[null, -(mean @ null)[None]]
        return functionals

    def _known(self, normal: Array, limit: float) -> bool:
        """Whether a candidate has this direction, or a block holds it."""
        a = normal * self.scales
        a = a / np.linalg.norm(a)
        if any(abs(a @ (k.normal * self.scales)) > limit * self._size(k) for k in self.candidates):
            return True
        return any(np.linalg.norm(self._white_basis(block).T @ a) > limit for block in self.blocks)

    def _white_basis(self, null: Array) -> Array:
        """Orthonormal directions (n, m), on white data, of functionals null (n + 1, m)."""
        basis: Array = np.linalg.qr(null[: self.n] * self.scales[:, None])[0]
        return basis

    def _note_flat(self, null: Array) -> None:
        """Keep a flat for later, once."""
        new = self._white_basis(null)
        for flat in (*self.flats, *self.blocks):
            if flat.shape[1] == null.shape[1]:
                cosines = np.linalg.svd(self._white_basis(flat).T @ new, compute_uv=False)
                if cosines[-1] > 1 - 1e-6:
                    return
        self.flats.append(null)

    def _size(self, plane: Hyperplane) -> float:
        """Return the standard deviation of the distance from this hyperplane."""
        return float(np.linalg.norm(plane.normal * self.scales))

    # -- many candidates ------------------------------------------------------

    def offer(self, rows: Array, most: int = 400) -> int:
        """Polish candidate rows (m, n + 1), keep genuine hyperplanes; return how many more are kept."""
        t = np.abs(self.y[:4000] @ rows[:, : self.n].T + rows[:, self.n])
        size = np.sqrt((rows[:, : self.n] ** 2 * self.variances).sum(1))
        resting = (t < 0.03 * size).mean(0)
        before = len(self.kept)
        for i in np.argsort(-resting)[:most]:
            if resting[i] < LEAST_SHARE:
                break
            if not self._known(rows[i, : self.n], SAME) and self._consider(rows[i]) and len(self.candidates) >= self.n:
                self._keep_independent()
                if self.solved:
                    break
        self._keep_independent()
        return len(self.kept) - before

    @property
    def solved(self) -> bool:
        """Whether n independent rows are known exactly, and none holds so few samples that it needs a second look."""
        shares = [k.share for k in self.kept]
        exact = len(shares) == self.n and all(k.exact for k in self.kept)
        return exact and min(shares) >= 0.4 * float(np.median(shares))

    def _consider(self, row: Array) -> bool:
        """Polish one row and add it to the candidates if it is a genuine hyperplane."""
        plane = self.polish(row)
        if plane is None:
            return False
        size = self._size(plane)
        sharp = plane.sharpness >= np.clip(0.02 * size / plane.spread, 2.5, 50)
        if not sharp or plane.share < max(LEAST_SHARE, 2.0 * self.n / self.rows) or plane.spread > 0.25 * size:
            return False
        narrowest = min((k.spread for k in self.candidates), default=np.inf)
        if plane.spread > 3 * narrowest + 1e-5:  # wider than the common noise level
            return False
        if self._known(plane.normal, SAME_EXACT if plane.exact else 0.99):
            return False
        if plane.exact and self._holds_several(plane):
            return False
        self.candidates = [k for k in self.candidates if k.spread <= 3 * plane.spread + 1e-5]
        self.candidates.append(plane)
        return True

    def _holds_several(self, plane: Hyperplane) -> bool:
        """Whether the samples on it span too little: then it is a combination of rows, and their flat is noted."""
        inside = np.flatnonzero(np.abs(plane.distance(self.y)) < plane.band)
        y = self.y[inside]
        widest: Array | None = None
        for attempt in range(8):  # random subsets, small and large: a few stray samples would hide it in all of them
            size = min(len(inside), max(4 * self.n, len(inside) // 6 if attempt % 2 else 0))
            null = self.null_space(self.rng.choice(inside, size, replace=False))
            if null.shape[1] > (1 if widest is None else widest.shape[1]):
                off = (np.abs(y @ null[: self.n] + null[self.n]) > 10 * FLOOR).any(1).sum()
                if off <= self.n + 10:  # all but strays; a component that only the subset misses is larger
                    widest = null
        if widest is not None and widest.shape[1] <= 14:
            self._note_flat(widest)
        return widest is not None

    def _keep_independent(self) -> None:
        """Greedy choice of independent rows, largest spike first."""
        self.kept = []
        basis = np.zeros((0, self.n))
        for plane in sorted(self.candidates, key=lambda k: -k.share):
            v = plane.normal * self.scales
            v = v / np.linalg.norm(v)
            rest = v - basis.T @ (basis @ v)
            rest -= basis.T @ (basis @ rest)
            if len(self.kept) < self.n and np.linalg.norm(rest) > (1e-3 if plane.exact else 0.03):
                self.kept.append(plane)
                basis = np.vstack([basis, rest / np.linalg.norm(rest)])

    # -- starts ---------------------------------------------------------------

    def start_round(self, number: int) -> None:
        """Sweep a batch of starts on a subsample and offer their rows."""
        n, many = self.n, self.n >= 60
        size = min(self.rows, max(2500, 50 * n if many else 200 * n))
        x = self.white[torch.randperm(self.rows, generator=self.torch_rng)[:size]]
        moments = Moments(x)
        verified = [k for k in self.kept if k.exact] if number else []
        schedule = self._schedule(number, verified)
        tau = torch.tensor([t for _, t in schedule])
        W = torch.stack([self._start(kind, verified, size) for kind, _ in schedule])
        W = torch.cat([W, torch.zeros(*W.shape[:2], 1)], 2)
        sweeps = int((40 if many else 100) * (1 + 0.5 * number))
        for s in range(sweeps):
            if s % 20 == 0:
                W = orient(x, W, tau)
            new = pinball_sweep(moments, W, tau, max(0.01, 0.5 * 0.02 ** (s / (0.8 * sweeps))))
            last = s + 1 in (sweeps // 2, sweeps)
            W = W + 1.7 * (new - W) if s < sweeps - 2 and not last else new  # over-relaxed
            if last:
                self.offer(self._from_white(W))
            if self.solved:
                return
        if len(self.kept) < n:
            logs = W / W[:, :, :n].norm(dim=2, keepdim=True)
            for s in range(20):
                logs = log_sweep(moments, logs, 0.1 * 0.1 ** (s / 20))
            self.offer(self._from_white(logs))
            self._remember(W, logs)

    def _schedule(self, number: int, verified: list[Hyperplane]) -> list[tuple[str, float]]:
        schedule = list(_SCHEDULE[number % 2])
        if verified:  # the window of τ in which the rows found so far sit on their quantile
            t = np.stack([k.distance(self.y) for k in verified], 1)
            bands = np.array([k.band for k in verified])
            below, above = (t < -bands).mean(0), (t > bands).mean(0)
            low, high = np.median(np.minimum(below, above)), np.median(1 - np.maximum(below, above))
            kinds = ("tanh", "tanh", "cube", "random", "random", "skew")
            places = self.rng.permutation([0.05, 0.1, 0.15, 0.2, 0.3, 0.4])
            schedule = [
                (kind, float(np.clip(low + p * (high - low), 0.01, 0.5))) for kind, p in zip(kinds, places, strict=True)
            ]
        if self.n >= 60:  # one batch must fit in memory
            first = 2 * number % len(schedule)
            schedule = schedule[first : first + 2] or schedule[:2]
        return schedule

    def _start(self, kind: str, verified: list[Hyperplane], size: int) -> Tensor:
        """Return a start (n, n): of this contrast, with the verified rows in place of as many of its own."""
        if kind == "random" or kind not in self.contrasts:
            start = ica_start(self.white[: max(size, 8000), : self.n], kind, self.torch_rng)
            self.contrasts[kind] = start
        start = self.contrasts[kind]
        if not verified:
            return start
        rows = np.stack([k.normal * self.scales for k in verified])[: self.n - 1]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        basis = np.linalg.qr(rows.T)[0]
        rest = start.double().numpy()
        rest = rest - rest @ basis @ basis.T
        order = scipy.linalg.qr(rest.T, pivoting=True, mode="r")[1][: self.n - len(rows)]
        return torch.cat([torch.as_tensor(rows).float(), start[order]])

    def _from_white(self, W: Tensor) -> Array:
        rows: Array = W.reshape(-1, self.n + 1).double().numpy().copy()
        rows[:, : self.n] /= self.scales
        return rows

    def _remember(self, *batches: Tensor) -> None:
        """Keep the start whose coordinates rest most often, for what is not found otherwise."""
        for W in batches:
            for whole in W / W[:, :, : self.n].norm(dim=2, keepdim=True):
                value = self._resting(whole)
                if self.best_start is None or value > self.best_start[0]:
                    self.best_start = value, self._from_white(whole)

    def _resting(self, whole: Tensor) -> float:
        """Return how much of the samples is in a peak at zero, summed over the rows (n, n + 1) on white data."""
        t = (self.white[:6000] @ (whole / whole[:, : self.n].norm(dim=1, keepdim=True)).T).abs()
        peaks = [(t < h).float().mean(0) - ((t >= h) & (t < 3 * h)).float().mean(0) / 2 for h in PEAKS]
        return float(torch.stack(peaks).amax(0).sum())

    def smooth_starts(self, *kinds: str) -> None:
        """Remember minimisers of a coarse contrast too: where nothing rests exactly they are the better ones."""
        size = min(self.rows, max(2500, 100 * self.n))
        moments = Moments(self.white[torch.randperm(self.rows, generator=self.torch_rng)[:size]])
        W = torch.stack([self._start(kind, [], size) for kind in kinds])
        W = torch.cat([W, torch.zeros(*W.shape[:2], 1)], 2)
        for s in range(60):
            W = log_sweep(moments, W, max(0.3, 0.3 ** (s / 40)))
        self._remember(W)

    # -- flats ----------------------------------------------------------------

    def split_flats(self) -> int:
        """Search inside every flat noted so far; return how many more rows are kept."""
        flats, self.flats = sorted(self.flats, key=lambda a: a.shape[1]), []
        more = 0
        for null in flats[: 3 * self.n]:
            if len(self.kept) >= self.n:
                break
            directions = self.sparse_directions(null)
            new = self.offer(directions)
            if not new and self._is_block(null, directions):
                self.blocks.append(null)
            more += new
        self.flats = []
        return more

    def _is_block(self, null: Array, directions: Array) -> bool:
        """Whether no direction of the flat vanishes on more samples than the whole flat does."""
        together = (np.abs(self.y @ null[: self.n] + null[self.n]) < 10 * FLOOR).all(1).mean()
        norms = np.linalg.norm(directions[:, : self.n], axis=1)
        single = np.abs(self.y @ directions[:, : self.n].T + directions[:, self.n]) < 10 * FLOOR * norms
        return bool(together > LEAST_SHARE and (single.mean(0) < 1.02 * together + 0.002).all())

    def independent_blocks(self) -> list[Array]:
        """Blocks (m, n + 1), smallest first, that are independent of the rows kept and of each other."""
        rows = [np.r_[k.normal, k.offset] for k in self.kept]
        found: list[Array] = []
        for null in sorted(self.blocks, key=lambda a: a.shape[1]):
            fresh = np.vstack([*rows, *null.T])[:, : self.n] * self.scales
            fresh /= np.linalg.norm(fresh, axis=1, keepdims=True)
            if len(fresh) <= self.n and np.linalg.matrix_rank(fresh, tol=1e-4) == len(fresh):
                found.append(null.T)
                rows.extend(null.T)
        return found

    def sparse_directions(self, null: Array, starts: int = 24, sweeps: int = 30) -> Array:
        """Functionals in span(null) (n + 1, m) that vanish on many samples, by reweighted least squares."""
        m = null.shape[1]
        if m == 1:
            return null.T
        chosen = self.rng.choice(self.rows, min(self.rows, 6000), replace=False)
        values = self.y[chosen] @ null[: self.n] + null[self.n]
        values = values[(np.abs(values) > 1e-5).any(1)]
        if len(values) < 5 * m:
            return np.zeros((0, self.n + 1))
        spectrum, vectors = np.linalg.eigh(values.T @ values / len(values))
        whiten = vectors / np.sqrt(np.maximum(spectrum, 1e-12))
        moments = Moments(torch.as_tensor(values @ whiten).float())
        v = torch.randn(starts, m, generator=self.torch_rng)
        v = v / v.norm(dim=1, keepdim=True)
        for s in range(sweeps):
            epsilon = max(0.01, 0.01 ** (s / (0.8 * sweeps)))
            v = torch.linalg.eigh(moments(1 / ((moments.x @ v.T) ** 2 + epsilon**2)))[1][:, :, 0].float()
        distinct: list[Array] = []
        for a in v.double().numpy():
            if all(abs(a @ b) < 0.999 for b in distinct):
                distinct.append(a)
        rows: Array = (null @ whiten @ np.array(distinct).T).T
        return rows

    def intersect_codes(self) -> int:
        """Intersect the null spaces of samples with one on/off code until one unknown row is left in them."""
        if len(self.kept) < 2:
            return 0
        codes = np.stack([np.abs(k.distance(self.y)) < max(k.band, 1e-5) for k in self.kept], 1)
        patterns, group, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
        group = group.ravel()
        news: list[tuple[Array, NDArray[np.bool_]]] = []
        for g in np.argsort(-counts)[: 12 * self.n]:
            if counts[g] < self.n + 6:
                break
            null = self.null_space(np.flatnonzero(group == g))
            if null.shape[1] > patterns[g].sum():  # more vanishes here than the rows known
                news.append((np.linalg.qr(null)[0], patterns[g]))
        lines = []
        for null, bits in news[: 4 * self.n]:
            left, bits_left = self._narrow(null, bits, news)
            if left.shape[1] == 1 and not bits_left.any():
                lines.append(left[:, 0])
            elif left.shape[1] <= 10:
                self._note_flat(left)
        more = self.offer(np.array(lines)) if lines else 0
        if more:
            return more
        for null, _ in sorted(news, key=lambda a: a[0].shape[1])[: 2 * self.n]:
            if null.shape[1] > 14 or len(self.kept) >= self.n:
                break
            more += self.offer(self.sparse_directions(null))
        return more

    def _narrow(
        self, null: Array, bits: NDArray[np.bool_], news: list[tuple[Array, NDArray[np.bool_]]]
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Intersect one null space with others as long as known rows drop out and an unknown one stays."""
        for _ in range(2 * self.n):
            if null.shape[1] == 1:
                break
            best: tuple[Array, NDArray[np.bool_]] | None = None
            for h in self.rng.permutation(len(news))[:40]:
                common = bits & news[h][1]
                if common.sum() < bits.sum() or not bits.any():
                    left, cosines, _ = np.linalg.svd(null.T @ news[h][0])
                    both = null @ left[:, : len(cosines)][:, cosines > 1 - 1e-7]
                    smaller = common.sum() < both.shape[1] < null.shape[1]
                    if smaller and (best is None or common.sum() < best[1].sum()):
                        best = both, common
            if best is None:
                break
            null, bits = best
        return null, bits

    # -- the result -------------------------------------------------------------

    def exhausted(self, number: int) -> bool:
        """Whether another round would not help: all is found, or there is nothing sharp to be found."""
        if not self.kept and not self.blocks:
            return number >= 1
        blocks = self.independent_blocks()
        if blocks and len(self.kept) + sum(map(len, blocks)) == self.n:
            return number >= (1 if max(map(len, blocks)) > 3 else 0)  # a large block may only not have been split
        if all(k.exact for k in self.kept):
            return False
        shares = [k.share for k in self.kept]
        complete = len(shares) == self.n and min(shares) >= 0.5 * np.median(shares)
        return number >= (1 if complete or self.n >= 30 else 2)

    def complete(self, rounds: int) -> Found:
        """Return n independent rows: what was verified, then blocks, then the rows of the best start."""
        rows = [np.r_[k.normal, k.offset] for k in self.kept]
        blocks = []
        for block in self.independent_blocks():
            blocks.append(tuple(range(len(rows), len(rows) + len(block))))
            rows.extend(block)
        if len(rows) == self.n and all(k.exact for k in self.kept):
            # A piecewise affine mixture has exact hyperplanes of its own, through some of its pieces: a smooth start
            # then rests far more often than they do.
            self.smooth_starts("tanh")
            white = torch.as_tensor(np.array(rows) * np.r_[self.scales, 1.0]).float()
            trusted = self.best_start is not None and self.best_start[0] < 1.2 * self._resting(white)
        else:
            self.smooth_starts("tanh", "cube", "skew", "random")
            trusted = all(k.exact for k in self.kept) and 2 * len(rows) >= self.n
        if not trusted:  # a whole start fits together better than single rows
            rows, blocks = [], []
        verified = len(rows)
        if verified < self.n and self.best_start is not None:
            others = self.best_start[1]
            t = np.abs(self.y @ others[:, : self.n].T + others[:, self.n])
            size = np.sqrt((others[:, : self.n] ** 2 * self.variances).sum(1))
            order = np.argsort(-(t < 0.05 * size).mean(0))
            for limit in (0.3, 0.05, 1e-3, 0.0):
                for i in order:
                    if len(rows) < self.n and self._independent(rows, others[i], limit):
                        rows.append(others[i])
        return Found(np.array(rows), verified, tuple(blocks), rounds)

    def _independent(self, rows: list[Array], row: Array, limit: float) -> bool:
        if not rows:
            return True
        a = np.stack(rows)[:, : self.n] * self.scales
        a = a / np.linalg.norm(a, axis=1, keepdims=True)
        v = row[: self.n] * self.scales
        v = v / np.linalg.norm(v)
        return bool(np.linalg.norm(v - np.linalg.lstsq(a.T, v, rcond=None)[0] @ a) > limit)


def find_hyperplanes(y: Array, variances: Array, *, seed: int = 0, max_rounds: int = 6) -> Found:
    """Find n independent hyperplanes that hold many of the rows y (N, n).

    y has uncorrelated columns with these variances, and noise, if any, is isotropic in it. Rounds of starts, splits and
    intersections go on until n rows are verified or `max_rounds` are done.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2000, 3)) * (rng.random((2000, 3)) < 0.5) + [0, 1, 2]
    >>> values, vectors = np.linalg.eigh(np.cov(z.T, ddof=0))
    >>> found = find_hyperplanes((z - z.mean(0)) @ vectors, values)
    >>> found.verified, np.abs(found.rows[:, :3] @ vectors.T).round(6).max(1).tolist()
    (3, [1.0, 1.0, 1.0])
    """
    search = HyperplaneSearch(y, variances, seed)
    n = search.n
    for number in range(max_rounds):
        search.start_round(number)
        while len(search.kept) < n:
            more = search.split_flats()
            if len(search.kept) < n:
                more += search.intersect_codes()
            if not more:
                break
        if search.solved or search.exhausted(number):
            break
    return search.complete(number + 1)
