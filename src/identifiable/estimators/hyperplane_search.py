r"""The search for n independent hyperplanes that hold the samples at rest: the linear core of sparse unmixing.

1. *Neighbours*: flats of near samples, intersected until single rows are left (`flats.py`). Solves the case of rest
   values far from the mean, where descent has many false minima, as long as a pattern of activity has samples enough.
2. *Starts*: descent of  Σ_i E ρ_τ(w_i·x + b_i) - log|det W|  (`descent.py`) with the pinball loss in homogeneous
   coordinates, from FastICA-like and random starts, for several τ in one batch. The τ-quantile of w·x sits on the rest
   value exactly for every τ between P(t < rest) and P(t <= rest); |t| around the mean (τ = 1/2) would miss it where
   the rest value is far from the mean. The better half after the coarse stages is carried on.
3. *Polish* (`hyperplanes.py`), then a test of codimension: a combination of several true rows vanishes where all of
   them rest, so its samples span too little. Their flat is noted, and searched by itself.
4. *Algebra* on the on/off codes of the rows found so far isolates rows that no start has reached.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from identifiable.estimators.descent import LogSize, Pinball, descend, ica_start, orient
from identifiable.estimators.flats import (
    LARGEST,
    code_flats,
    is_block,
    known_flats,
    narrow,
    neighbour_flats,
    sparse_directions,
)
from identifiable.estimators.hyperplanes import FLOOR, LEAST_SHARE, Array, Cloud, Hyperplane, peaks

SAME, SAME_EXACT = 0.999, 1 - 1e-6  # correlation from which two rows are one: before polishing, and after on exact data
COARSE, FINE = (0.5, 0.286, 0.164, 0.093), (0.053, 0.031, 0.018, 0.01)  # widths ε of the descent, in sd
# Contrast of the start and τ of the descent, in the order they are tried.
SCHEDULE = (
    ("tanh", 0.5),
    ("tanh", 0.05),
    ("tanh", 0.2),
    ("skew", 0.12),
    ("cube", 0.05),
    ("random", 0.3),
    ("cube", 0.5),
    ("skew", 0.5),
    ("tanh", 0.02),
    ("cube", 0.02),
    ("tanh", 0.12),
    ("skew", 0.05),
    ("random", 0.12),
    ("random", 0.5),
    ("random", 0.4),
    ("random", 0.05),
)


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


def pinball_starts(x: Tensor, W: Tensor, tau: Tensor, fixed: int = 0) -> Tensor:
    """Descend from starts W (D, S, n, q) with a τ each, (S,), and carry the better half on: (D, S / 2, n, q)."""
    W = torch.cat([W[:, :, :fixed], orient(x, W, tau)[:, :, fixed:]], 2)
    W = descend(x, W, Pinball(tau), COARSE, 10, fixed=fixed)
    best = peaks(x, W).sum(-1).topk((len(tau) + 1) // 2).indices
    W = torch.gather(W, 1, best[..., None, None].expand(-1, -1, *W.shape[2:]))
    return descend(x, W, Pinball(tau[best]), FINE, 20, fixed=fixed)


class HyperplaneSearch:
    """The state of one search: the rows y as a `Cloud`, and what has been found."""

    def __init__(self, y: Array, variances: Array, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.torch_rng = torch.Generator().manual_seed(seed)
        self.cloud = Cloud(y, variances, self.rng)
        self.n = self.cloud.n
        self.candidates: list[Hyperplane] = []
        self.directions = np.zeros((0, self.n))  # of the candidates
        self.kept: list[Hyperplane] = []
        self.noted: list[Array] = []  # null spaces (n + 1, m) that hold several rows each
        self.blocks: list[Array] = []  # those in which no direction vanishes more often than all together
        self.neighbours: list[Array] = []
        self.contrasts: dict[str, Tensor] = {}
        self.best_start: tuple[float, Array] | None = None

    @property
    def solved(self) -> bool:
        """Whether n independent rows are known exactly, and none holds so few samples that it needs a second look."""
        shares = [k.share for k in self.kept]
        exact = len(shares) == self.n and all(k.exact for k in self.kept)
        return exact and min(shares) >= 0.4 * float(np.median(shares))

    # -- candidates -------------------------------------------------------------

    def offer(self, rows: Array, most: int = 400) -> int:
        """Polish candidate rows (m, n + 1), keep genuine hyperplanes; return how many more are kept."""
        resting = self.cloud.resting(rows)
        before = len(self.kept)
        for i in np.argsort(-resting)[:most]:
            if resting[i] < LEAST_SHARE:
                break
            if not self._known(rows[i], SAME) and self._consider(rows[i]) and len(self.candidates) >= self.n:
                self._keep_independent()
                if self.solved:
                    break
        self._keep_independent()
        return len(self.kept) - before

    def _consider(self, row: Array) -> bool:
        """Polish one row and add it to the candidates if it is a genuine hyperplane."""
        plane = self.cloud.polish(row)
        if plane is None:
            return False
        size = float(self.cloud.sizes(plane.row[None])[0])
        sharp = plane.sharpness >= np.clip(0.02 * size / plane.spread, 2.5, 50)
        least = max(LEAST_SHARE, 2.0 * self.n / self.cloud.rows)
        if not sharp or plane.share < least or plane.spread > 0.25 * size:
            return False
        narrowest = min((k.spread for k in self.candidates), default=np.inf)
        if plane.spread > 3 * narrowest + 1e-5:  # wider than the common noise level
            return False
        if self._known(plane.row, SAME_EXACT if plane.exact else 0.99):
            return False
        if plane.exact and self._holds_several(plane):
            return False
        self.candidates = [k for k in self.candidates if k.spread <= 3 * plane.spread + 1e-5]
        self.candidates.append(plane)
        self.directions = self.cloud.directions(np.stack([k.row for k in self.candidates]))
        return True

    def _known(self, row: Array, limit: float) -> bool:
        """Whether a candidate has this direction, or a block holds it."""
        a = self.cloud.directions(row[None])[0]
        if self.candidates and float(np.abs(self.directions @ a).max()) > limit:
            return True
        return any(np.linalg.norm(self.cloud.basis(block).T @ a) > limit for block in self.blocks)

    def _holds_several(self, plane: Hyperplane) -> bool:
        """Whether the samples on it span too little: then it is a combination of rows, and their flat is noted."""
        n = self.n
        inside = np.flatnonzero(np.abs(plane.distance(self.cloud.y)) < plane.band)
        y = self.cloud.y[inside]
        widest: Array | None = None
        for attempt in range(8):  # random subsets, small and large: a few stray samples would hide it in all of them
            size = min(len(inside), max(4 * n, len(inside) // 6 if attempt % 2 else 0))
            null = self.cloud.null_space(self.rng.choice(inside, size, replace=False))
            if null.shape[1] > (1 if widest is None else widest.shape[1]):
                off = (np.abs(y @ null[:n] + null[n]) > 10 * FLOOR).any(1).sum()
                if off <= n + 10:  # all but strays; a component that only the subset misses is larger
                    widest = null
        if widest is not None and widest.shape[1] <= LARGEST:
            self._note(widest)
        return widest is not None

    def _note(self, null: Array) -> None:
        """Keep a flat for later, once."""
        new = self.cloud.basis(null)
        for flat in (*self.noted, *self.blocks):
            if flat.shape[1] == null.shape[1]:
                cosines = np.linalg.svd(self.cloud.basis(flat).T @ new, compute_uv=False)
                if cosines[-1] > 1 - 1e-6:
                    return
        self.noted.append(null)

    def _keep_independent(self) -> None:
        """Greedy choice of independent rows, largest spike first."""
        self.kept = []
        basis = np.zeros((0, self.n))
        for i in sorted(range(len(self.candidates)), key=lambda i: -self.candidates[i].share):
            plane, v = self.candidates[i], self.directions[i]
            rest = v - basis.T @ (basis @ v)
            rest -= basis.T @ (basis @ rest)
            if len(self.kept) < self.n and np.linalg.norm(rest) > (1e-3 if plane.exact else 0.03):
                self.kept.append(plane)
                basis = np.vstack([basis, rest / np.linalg.norm(rest)])

    # -- flats ------------------------------------------------------------------

    def look_at_neighbours(self) -> None:
        """Find the flats of neighbours, and the rows in which they meet."""
        self.neighbours = neighbour_flats(self.cloud, self.rng, 6 * self.n)
        if len(self.neighbours) > 1:
            self.use_flats()

    def use_flats(self) -> None:
        """Split and intersect flats until that brings no more rows."""
        more = 1
        while more and len(self.kept) < self.n:
            more = self._split_noted()
            if len(self.kept) < self.n:
                more += self._intersect()

    def _split_noted(self) -> int:
        """Search inside every flat noted so far; return how many more rows are kept."""
        noted, self.noted = sorted(self.noted, key=lambda a: a.shape[1]), []
        more = 0
        for null in noted[: 3 * self.n]:
            if len(self.kept) >= self.n:
                break
            directions = sparse_directions(self.cloud, null, self.torch_rng)
            new = self.offer(directions)
            if not new and is_block(self.cloud, null, directions):
                self.blocks.append(null)
            more += new
        self.noted = []
        return more

    def _intersect(self) -> int:
        """Intersect null spaces until one unknown row is left in them; return how many more rows are kept."""
        flats = known_flats(self.neighbours, self.kept)
        if len(self.kept) > 1:
            flats += code_flats(self.cloud, self.kept)
        lines: list[Array] = []
        for h in self.rng.permutation(len(flats))[: 4 * self.n]:
            left = narrow(flats[h], flats, self.rng)
            if left.null.shape[1] == 1 and not left.known.any():
                if not lines or np.abs(np.array(lines) @ left.null[:, 0]).max() < SAME_EXACT:
                    lines.append(left.null[:, 0])
                if len(lines) + len(self.kept) >= self.n:
                    break
            elif left.null.shape[1] <= 10:
                self._note(left.null)
        more = self.offer(np.array(lines)) if lines else 0
        if more:
            return more
        for flat in sorted(flats, key=lambda a: a.null.shape[1])[: 2 * self.n]:
            if flat.null.shape[1] > LARGEST or len(self.kept) >= self.n:
                break
            more += self.offer(sparse_directions(self.cloud, flat.null, self.torch_rng))
        return more

    def independent_blocks(self) -> list[Array]:
        """Blocks (m, n + 1), smallest first, that are independent of the rows kept and of each other."""
        rows = [k.row for k in self.kept]
        found: list[Array] = []
        for null in sorted(self.blocks, key=lambda a: a.shape[1]):
            fresh = self.cloud.directions(np.vstack([*rows, *null.T]))
            if len(fresh) <= self.n and np.linalg.matrix_rank(fresh, tol=1e-4) == len(fresh):
                found.append(null.T)
                rows.extend(null.T)
        return found

    # -- starts -----------------------------------------------------------------

    @property
    def starts_per_round(self) -> int:
        """As many as make a round worth its overhead."""
        return 8 if self.n < 15 else 4

    def subsample(self, number: int) -> Tensor:
        """Draw the white rows (1, N, n + 1) of a round."""
        n = self.n
        size = int(max(2500, (100 if n < 60 else 60) * n) * (1 + 0.5 * number))
        return self.cloud.white[torch.randperm(self.cloud.rows, generator=self.torch_rng)[:size]][None]

    def schedule(self, number: int) -> tuple[list[str], Tensor]:
        """Return the contrasts and the τ of this round: from the table, or from the rows verified so far."""
        many = self.starts_per_round
        first = number * many
        chosen = [SCHEDULE[(first + i) % len(SCHEDULE)] for i in range(many)]
        kinds, tau = [kind for kind, _ in chosen], [tau for _, tau in chosen]
        verified = [k for k in self.kept if k.exact]
        if verified:  # the window of τ in which the rows found so far sit on their quantile
            t = np.stack([k.distance(self.cloud.y) for k in verified], 1)
            bands = np.array([k.band for k in verified])
            below, above = (t < -bands).mean(0), (t > bands).mean(0)
            low, high = np.median(np.minimum(below, above)), np.median(1 - np.maximum(below, above))
            places = self.rng.permutation([0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5])[:many]
            tau = list(np.clip(low + places * (high - low), 0.01, 0.5))
            kinds = ["tanh", "random", "cube", "random", "tanh", "skew", "random", "cube"][:many]
        return kinds, torch.tensor(tau, dtype=torch.float32)

    def start(self, kind: str) -> Tensor:
        """Return a start (n, n + 1) of this contrast, the verified rows in place of as many of its own."""
        if kind == "random" or kind not in self.contrasts:
            white = self.cloud.white[None, : max(8000, 100 * self.n), : self.n]
            self.contrasts[kind] = ica_start(white, kind, self.torch_rng)[0]
        start = torch.cat([self.contrasts[kind], torch.zeros(self.n, 1)], 1)
        fixed = self.verified_rows()
        if not len(fixed):
            return start
        basis = torch.linalg.qr(fixed[:, : self.n].T)[0]
        rest = start[:, : self.n] - start[:, : self.n] @ basis @ basis.T
        order = scipy.linalg.qr(rest.numpy().T, pivoting=True, mode="r")[1][: self.n - len(fixed)]
        return torch.cat([fixed, start[order]])

    def verified_rows(self) -> Tensor:
        """Rows on white data (m, n + 1) known exactly, at most n - 1."""
        exact = [k.row for k in self.kept if k.exact][: self.n - 1]
        return self.cloud.to_white(np.stack(exact)) if exact else torch.zeros(0, self.n + 1)

    def start_round(self, number: int) -> None:
        """Descend from a batch of starts on a subsample and offer their rows."""
        x = self.subsample(number)
        kinds, tau = self.schedule(number)
        W = torch.stack([self.start(kind) for kind in kinds])[None]
        self.take(x, pinball_starts(x, W, tau, fixed=len(self.verified_rows()))[0])

    def take(self, x: Tensor, W: Tensor) -> None:
        """Offer the rows of the starts W (S, n, n + 1), then those of their sharper minima."""
        self.offer(self.cloud.from_white(W))
        if not self.solved and len(self.kept) < self.n:
            unit = W / W[..., : self.n].norm(dim=-1, keepdim=True)
            logs = descend(x, unit[None], LogSize(), (0.1, 0.05, 0.02, 0.01), 6)[0]
            self.offer(self.cloud.from_white(logs))
            self.remember(W, logs)

    def remember(self, *batches: Tensor) -> None:
        """Keep the start whose coordinates rest most often, for what is not found otherwise."""
        for W in batches:
            for whole, value in zip(W, peaks(self.cloud.white[None, :6000], W[None])[0].sum(-1), strict=True):
                if self.best_start is None or float(value) > self.best_start[0]:
                    self.best_start = float(value), self.cloud.from_white(whole)

    def smooth_starts(self, *kinds: str) -> None:
        """Remember minimisers of a coarse contrast too: where nothing rests exactly they are the better ones."""
        W = torch.stack([torch.cat([self.start_from(kind), torch.zeros(self.n, 1)], 1) for kind in kinds])[None]
        self.remember(descend(self.subsample(0), W, LogSize(), (1.0, 0.7, 0.5, 0.3), 15)[0])

    def start_from(self, kind: str) -> Tensor:
        """Return the plain start (n, n) of this contrast."""
        self.start(kind)
        return self.contrasts[kind]

    # -- the result -------------------------------------------------------------

    def exhausted(self, number: int) -> bool:
        """Whether another round would not help: all is found, or there is nothing sharp to be found."""
        starts = (number + 1) * self.starts_per_round
        if not self.kept and not self.blocks:
            return starts >= 16
        blocks = self.independent_blocks()
        if blocks and len(self.kept) + sum(map(len, blocks)) == self.n:
            return starts >= 16 or max(map(len, blocks)) <= 3  # a large block may only not have been split
        if all(k.exact for k in self.kept):
            return False
        shares = [k.share for k in self.kept]
        complete = len(shares) == self.n and min(shares) >= 0.5 * np.median(shares)
        return starts >= (16 if complete or self.n >= 30 else 24)

    def finish(self, max_rounds: int, number: int = 0) -> Found:
        """Go on with rounds of starts until n rows are verified or another round would not help."""
        while not self.solved and number < max_rounds:
            self.start_round(number)
            self.use_flats()
            if self.solved or self.exhausted(number):
                break
            number += 1
        return self.complete(number + 1)

    def complete(self, rounds: int) -> Found:
        """Return n independent rows: what was verified, then blocks, then the rows of the best start."""
        rows = [k.row for k in self.kept]
        blocks = []
        for block in self.independent_blocks():
            blocks.append(tuple(range(len(rows), len(rows) + len(block))))
            rows.extend(block)
        exact = all(k.exact for k in self.kept)
        if len(rows) == self.n and exact:
            # A piecewise affine mixture has exact hyperplanes of its own, through some of its pieces: a smooth start
            # then rests far more often than they do.
            self.smooth_starts("tanh")
            white = self.cloud.to_white(np.array(rows))
            resting = float(peaks(self.cloud.white[None, :6000], white[None, None]).sum())
            trusted = self.best_start is not None and self.best_start[0] < 1.2 * resting
        else:
            self.smooth_starts("tanh", "cube", "skew", "random")
            trusted = exact and 2 * len(rows) >= self.n
        if not trusted:  # a whole start fits together better than single rows
            rows, blocks = [], []
        verified = len(rows)
        if verified < self.n and self.best_start is not None:
            others = self.best_start[1]
            order = np.argsort(-self.cloud.resting(others, 0.05))
            for limit in (0.3, 0.05, 1e-3, 0.0):
                for i in order:
                    if len(rows) < self.n and self._independent(rows, others[i], limit):
                        rows.append(others[i])
        return Found(np.array(rows), verified, tuple(blocks), rounds)

    def _independent(self, rows: list[Array], row: Array, limit: float) -> bool:
        if not rows:
            return True
        a, v = self.cloud.directions(np.stack(rows)), self.cloud.directions(row[None])[0]
        return bool(np.linalg.norm(v - np.linalg.lstsq(a.T, v, rcond=None)[0] @ a) > limit)


def find_hyperplanes(
    sets: Sequence[tuple[Array, Array]],
    seeds: Sequence[int],
    *,
    max_rounds: int = 8,
    device: torch.device | None = None,
) -> list[Found]:
    """Find n independent hyperplanes that hold many of the rows y (N, n), for each of many data sets (y, variances).

    y has uncorrelated columns with these variances, and noise, if any, is isotropic in it. The first round of starts
    runs for all data sets of one n in one batch on the device; what it leaves open is searched set by set.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2000, 3)) * (rng.random((2000, 3)) < 0.5) + [0, 1, 2]
    >>> values, vectors = np.linalg.eigh(np.cov(z.T, ddof=0))
    >>> (found,) = find_hyperplanes([((z - z.mean(0)) @ vectors, values)], [0])
    >>> found.verified, np.abs(found.rows[:, :3] @ vectors.T).round(6).max(1).tolist()
    (3, [1.0, 1.0, 1.0])
    """
    searches = [HyperplaneSearch(y, variances, seed) for (y, variances), seed in zip(sets, seeds, strict=True)]
    for search in searches:
        search.look_at_neighbours()
    unsolved = [s for s in searches if not s.solved]
    done: dict[int, int] = {}
    if len(unsolved) > 1:
        for n in sorted({s.n for s in unsolved}):
            group = [s for s in unsolved if s.n == n and not s.kept]
            for search in group:
                done[id(search)] = 1
            _first_round(group, device or torch.device("cpu"))
    return [s.finish(max_rounds, done.get(id(s), 0)) for s in searches]


def _first_round(group: list[HyperplaneSearch], device: torch.device) -> None:
    """Descend from the first starts of many searches of one n together."""
    if not group:
        return
    xs = [search.subsample(0) for search in group]
    rows = min(x.shape[1] for x in xs)
    x = torch.cat([x[:, :rows] for x in xs])
    kinds, tau = group[0].schedule(0)
    white = torch.cat([s.cloud.white[None, :rows, : s.n] for s in group]).to(device)
    starts = []
    for kind in kinds:
        W = ica_start(white, kind, group[0].torch_rng)
        starts.append(torch.cat([W, torch.zeros(*W.shape[:2], 1, device=device)], -1))
        for search, own in zip(group, W.cpu(), strict=True):
            search.contrasts[kind] = own
    found = pinball_starts(x.to(device), torch.stack(starts, 1), tau.to(device)).cpu()
    for search, own, W in zip(group, x, found, strict=True):
        search.take(own[None], W)
        search.use_flats()
