r"""The search for n independent hyperplanes that hold the samples whose latents are inactive.

1. *Neighbours*: affine subspaces of near samples, intersected until single rows are left (`affine_subspaces.py`). This
   solves the case of inactive values far from the mean, where descent has many false minima, if every pattern of
   activity has enough samples.
2. *Starts*: descent of  Σ_i E ρ_τ(w_i·x + b_i) - log|det W|  (`descent.py`) with the pinball loss in homogeneous
   coordinates, from FastICA-like and random starts, for several τ in one batch. The τ-quantile of w·x is exactly the
   inactive value for every τ between P(t < value) and P(t <= value); |t| around the mean (τ = 1/2) would miss a value
   that is far from the mean. The better half after the coarse stages goes on to the fine ones.
3. *Candidates* are refined, and combinations of rows are separated from rows (`candidates.py`). The subspace of a
   combination is searched in turn.
4. *Algebra* on the on/off codes of the rows found so far isolates rows that no start has reached.
5. Rows that are *combinations* after all are replaced by the sparser rows they consist of (`combinations.py`), and the
   search goes on: the sparser rows may be known already, and others be missing.
"""

from collections.abc import Sequence

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from identifiable.algorithms.hyperplanes.affine_subspaces import (
    MOST_FUNCTIONALS,
    code_subspaces,
    is_block,
    known_subspaces,
    narrow,
    neighbour_subspaces,
    sparse_directions,
)
from identifiable.algorithms.hyperplanes.candidates import SAME_REFINED, Candidates
from identifiable.algorithms.hyperplanes.descent import LogSize, Pinball, descend, ica_start, orient
from identifiable.algorithms.hyperplanes.planes import Unmixing, peaks, unit
from identifiable.algorithms.overcomplete import count_sparse_directions
from identifiable.arrays import Array
from identifiable.errors import OutOfTimeError
from identifiable.training.clock import require_time, time_limit

SMOOTH = (1.0, 0.7, 0.5, 0.3)  # widths ε of the descent where no latent is exactly inactive, in sd
COARSE, FINE = (0.5, 0.286, 0.164, 0.093), (0.053, 0.031, 0.018, 0.01)  # widths ε of the descent, in sd
MANY = 31  # latents from which noise is recognised before the first round
NOISY_PEAK = 0.3  # mean share of the rows in the peaks at zero of a smooth start, from which latents are inactive
REPAIRS = 6  # times that rows that are combinations may be replaced
# Contrast of the start and τ of the descent: the first round has the first four, or eight of few latents, and so on.
SCHEDULE = (
    *(("tanh", 0.5), ("tanh", 0.05), ("tanh", 0.2), ("skew", 0.12)),
    *(("cube", 0.05), ("random", 0.3), ("cube", 0.5), ("skew", 0.5)),
    *(("tanh", 0.02), ("cube", 0.02), ("tanh", 0.12), ("skew", 0.05)),
    *(("random", 0.12), ("random", 0.5), ("random", 0.4), ("random", 0.05)),
)


def _as_rows(W: Tensor) -> Array:
    return W.reshape(-1, W.shape[-1]).double().cpu().numpy()


def fixed_schedule(number: int, many: int) -> tuple[list[str], Tensor]:
    """Return the contrasts and the τ (many,) of a round, from the table."""
    chosen = [SCHEDULE[(number * many + i) % len(SCHEDULE)] for i in range(many)]
    return [kind for kind, _ in chosen], torch.tensor([tau for _, tau in chosen])


def pinball_starts(x: Tensor, W: Tensor, tau: Tensor, fixed: int = 0) -> Tensor:
    """Descend from starts W (D, S, n, q), one τ (S,) each; return the better half, (D, S / 2, n, q), at fine widths."""
    W = torch.cat([W[:, :, :fixed], orient(x, W, tau)[:, :, fixed:]], 2)
    W = descend(x, W, Pinball(tau), COARSE, 10, fixed=fixed)
    best = peaks(x, W).sum(-1).topk((len(tau) + 1) // 2).indices
    W = torch.gather(W, 1, best[..., None, None].expand(-1, -1, *W.shape[2:]))
    return descend(x, W, Pinball(tau[best]), FINE, 20, fixed=fixed)


class HyperplaneSearch(Candidates):
    """The state of one search: the candidates, the subspaces they come from, and the starts tried."""

    def __init__(self, x: Array, seed: int) -> None:
        super().__init__(x, np.random.default_rng(seed))
        self.torch_rng = torch.Generator().manual_seed(seed)
        self.neighbours: list[Array] = []
        self.contrasts: dict[str, Tensor] = {}
        self.best_start: tuple[float, Array] | None = None
        self.first: tuple[Tensor, Tensor] | None = None  # rows and starts of a first round that ran elsewhere,
        self.smooth: Tensor | None = None  # and its smooth start
        self.seed = seed
        self.n_directions = 0  # sparse directions, if there are more than dimensions
        self.in_time = True

    # -- subspaces ------------------------------------------------------------------

    def search_neighbours(self) -> None:
        """Find the subspaces of neighbours, and the rows in which they intersect."""
        self.neighbours = neighbour_subspaces(self.data, self.rng, 6 * self.n)
        if len(self.neighbours) > 1:
            self.use_subspaces()

    def use_subspaces(self) -> None:
        """Split and intersect subspaces until this gives no more rows."""
        more = 1
        while more and len(self.kept) < self.n:
            more = self._split()
            if len(self.kept) < self.n:
                more += self._intersect()

    def _split(self) -> int:
        """Search inside the unsplit subspaces, the smallest first; return how many more rows are kept."""
        unsplit = sorted(self.unsplit, key=lambda a: a.shape[1])
        more = 0
        for null in unsplit[: 3 * self.n]:
            if len(self.kept) >= self.n:
                break
            directions = sparse_directions(self.data, null, self.torch_rng)
            new = self.add_candidates(directions)
            if not new and is_block(self.data, null, directions):
                self.blocks.append(null)
            more += new
        self.unsplit = []
        return more

    def _intersect(self) -> int:
        """Intersect null spaces until one unknown row is left in them; return how many more rows are kept."""
        subspaces = known_subspaces(self.neighbours, self.kept)
        if len(self.kept) > 1:
            subspaces += code_subspaces(self.data, self.kept)
        lines: list[Array] = []
        for h in self.rng.permutation(len(subspaces))[: 4 * self.n]:
            left = narrow(subspaces[h], subspaces, self.rng)
            if left.null.shape[1] == 1 and not left.known.any():
                if not lines or np.abs(np.array(lines) @ left.null[:, 0]).max() < SAME_REFINED:
                    lines.append(left.null[:, 0])
                if len(lines) + len(self.kept) >= self.n:
                    break
            elif left.null.shape[1] <= 10:
                self.add_subspace(left.null)
        more = self.add_candidates(np.array(lines)) if lines else 0
        if more:
            return more
        for subspace in sorted(subspaces, key=lambda a: a.null.shape[1])[: 2 * self.n]:
            if subspace.null.shape[1] > MOST_FUNCTIONALS or len(self.kept) >= self.n:
                break
            more += self.add_candidates(sparse_directions(self.data, subspace.null, self.torch_rng))
        return more

    def independent_blocks(self) -> list[Array]:
        """Blocks (m, n + 1), smallest first, that are independent of the rows kept and of each other."""
        rows = [k.row for k in self.kept]
        found: list[Array] = []
        for null in sorted(self.blocks, key=lambda a: a.shape[1]):
            fresh = unit(np.vstack([*rows, *null.T]))[:, : self.n]
            if len(fresh) <= self.n and np.linalg.matrix_rank(fresh, tol=1e-4) == len(fresh):
                found.append(null.T)
                rows.extend(null.T)
        return found

    # -- starts -----------------------------------------------------------------

    @property
    def starts_per_round(self) -> int:
        """Number of starts that makes a round worth its overhead."""
        return 8 if self.n < 15 else 4

    def subsample(self, number: int) -> Tensor:
        """Return random white rows (1, N, n + 1) for a round."""
        n = self.n
        size = int(max(2500, (100 if n < 60 else 60) * n) * (1 + 0.5 * number))
        return self.data.single[torch.randperm(self.data.rows, generator=self.torch_rng)[:size]][None]

    def schedule(self, number: int) -> tuple[list[str], Tensor]:
        """Return the contrasts and the τ of this round: from the table, or from the rows verified so far."""
        many = self.starts_per_round
        if not self.kept:
            return fixed_schedule(number, many)
        # The window of τ for which the rows found so far are at their quantile.
        t = np.stack([k.distance(self.data.x) for k in self.kept], 1)
        bands = np.array([k.band for k in self.kept])
        below, above = (t < -bands).mean(0), (t > bands).mean(0)
        low, high = np.median(np.minimum(below, above)), np.median(1 - np.maximum(below, above))
        places = self.rng.permutation([0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5])[:many]
        kinds = ["tanh", "random", "cube", "random", "tanh", "skew", "random", "cube"][:many]
        return kinds, torch.as_tensor(np.clip(low + places * (high - low), 0.01, 0.5)).float()

    def start(self, kind: str) -> Tensor:
        """Return a start (n, n + 1) of this contrast, in which the verified rows replace the rows nearest to them."""
        start = torch.cat([self.contrast(kind), torch.zeros(self.n, 1)], 1)
        fixed = self.verified_rows()
        if not len(fixed):
            return start
        basis = torch.linalg.qr(fixed[:, : self.n].T)[0]
        new = start[:, : self.n] - start[:, : self.n] @ basis @ basis.T
        order = scipy.linalg.qr(new.numpy().T, pivoting=True, mode="r")[1][: self.n - len(fixed)]
        return torch.cat([fixed, start[order]])

    def contrast(self, kind: str) -> Tensor:
        """Return the rotation (n, n) that is best by this contrast; a new one each time if it is random."""
        if kind == "random" or kind not in self.contrasts:
            white = self.data.single[None, : max(8000, 100 * self.n), : self.n]
            self.contrasts[kind] = ica_start(white, kind, self.torch_rng)[0]
        return self.contrasts[kind]

    def verified_rows(self) -> Tensor:
        """Rows on white data (m, n + 1) known exactly, at most n - 1."""
        rows = [k.row for k in self.kept][: self.n - 1]
        return torch.as_tensor(np.stack(rows)).float() if rows else torch.zeros(0, self.n + 1)

    def start_round(self, number: int) -> None:
        """Descend from a batch of starts on a subsample and add their rows to the candidates."""
        x = self.subsample(number)
        kinds, tau = self.schedule(number)
        W = torch.stack([self.start(kind) for kind in kinds])[None]
        self.add_starts(x, pinball_starts(x, W, tau, fixed=len(self.verified_rows()))[0])

    def add_starts(self, x: Tensor, W: Tensor) -> None:
        """Add the rows of the starts W (S, n, n + 1) to the candidates, then those of their sharper minima."""
        self.add_candidates(_as_rows(W))
        if len(self.kept) < self.n:
            W = W / W[..., : self.n].norm(dim=-1, keepdim=True)
            logs = descend(x, W[None], LogSize(), (0.1, 0.05, 0.02, 0.01), 6)[0]
            self.add_candidates(_as_rows(logs))
            self.keep_best_start(W, logs)

    def keep_best_start(self, *batches: Tensor) -> None:
        """Keep the start whose coordinates are most often inactive, for rows that are not found otherwise."""
        for W in batches:
            for whole, value in zip(W, peaks(self.data.single[None, :6000], W[None])[0].sum(-1), strict=True):
                if self.best_start is None or float(value) > self.best_start[0]:
                    self.best_start = float(value), _as_rows(whole)

    def keep_contrast(self) -> None:
        """Keep the rotation that is best by the contrast "tanh": a start without descent."""
        self.keep_best_start(torch.cat([self.contrast("tanh"), torch.zeros(self.n, 1)], 1)[None])

    def add_smooth_starts(self, *kinds: str) -> None:
        """Consider minimisers of a coarse contrast too: they are better where no latent is exactly inactive."""
        if self.smooth is None or kinds != ("tanh",):
            W = torch.stack([torch.cat([self.contrast(kind), torch.zeros(self.n, 1)], 1) for kind in kinds])[None]
            self.smooth = descend(self.subsample(0), W, LogSize(), SMOOTH, 15)[0]
        self.keep_best_start(self.smooth)

    # -- the result -------------------------------------------------------------

    def exhausted(self, rounds: int) -> bool:
        """Return whether another round would not help: all rows are found, or no hyperplane is sharp."""
        starts = rounds * self.starts_per_round
        if not self.kept and not self.blocks:
            return starts >= 16
        blocks = self.independent_blocks()
        if blocks and len(self.kept) + sum(map(len, blocks)) == self.n:
            return starts >= 16 or max(map(len, blocks)) <= 3  # a large block may not have been split yet
        return False

    def is_noisy(self) -> bool:
        """Return whether many latents are often almost inactive, but none exactly: starts would find no hyperplane.

        Exact data have exact hyperplanes where a smooth start has its clearest peaks at zero. With few latents, starts
        are cheap, and are tried anyway.
        """
        before = self.torch_rng.get_state()
        start = torch.cat([self.contrast("tanh"), torch.zeros(self.n, 1)], 1)[None, None]
        rows = descend(self.subsample(0), start, LogSize(), SMOOTH, 15)[0]
        self.torch_rng.set_state(before)  # the rounds of exact data are the same with and without this test
        self.contrasts.clear()
        heights = peaks(self.data.single[None, :6000], rows[None])[0, 0]
        if float(heights.mean()) < NOISY_PEAK:
            return False
        clearest = _as_rows(rows[0, heights.argsort(descending=True)[: max(16, self.n // 4)]])
        return all(self.data.refine_plane(row) is None for row in clearest)

    def finish(self, max_rounds: int, seconds: float | None = None) -> Unmixing:
        """Search until n rows are verified, more would not help, or the seconds are over; return the best found."""
        try:
            with time_limit(np.inf if seconds is None else seconds):
                self.search(max_rounds)
                return self.complete()
        except OutOfTimeError:
            require_time()  # a limit of the caller stops everything
        self.in_time = False
        if self.best_start is None:
            self.keep_contrast()
        return self.complete()

    def search(self, max_rounds: int) -> None:
        """Search among neighbours, then in rounds of starts; recognise many latents without exact hyperplanes."""
        number = 0
        if self.first is not None:
            self.add_starts(*self.first)
            number = 1
        if not self.solved:
            self.search_neighbours()
        if self.n >= MANY and not (self.kept or self.blocks or self.unsplit):
            self.n_directions = count_sparse_directions(self.data.x, self.seed)
            if self.n_directions:
                self.keep_contrast()
            if self.n_directions or self.is_noisy():
                return
        for _ in range(REPAIRS):
            while not self.solved and number < max_rounds:
                require_time()
                self.start_round(number)
                self.use_subspaces()
                number += 1
                if self.exhausted(number):
                    break
            if not self.replace_combinations(self.torch_rng):
                break
            self.use_subspaces()

    def complete(self) -> Unmixing:
        """Return n independent rows: the verified ones, then blocks, then rows of the best start."""
        rows = [k.row for k in self.kept]
        blocks = []
        for block in self.independent_blocks():
            blocks.append(tuple(range(len(rows), len(rows) + len(block))))
            rows.extend(block)
        if not self._trusted(rows):  # a whole start fits together better than single rows
            rows, blocks = [], []
        verified = len(rows)
        if verified < self.n and self.best_start is not None:
            others = self.best_start[1]
            order = np.argsort(-self.data.inactive_share(others, 0.05))
            for limit in (0.3, 0.05, 1e-3, 0.0):
                for i in order:
                    if len(rows) < self.n and self._independent(rows, others[i], limit):
                        rows.append(others[i])
        found = np.array(rows)
        return Unmixing(
            found[:, : self.n],
            found[:, self.n],
            verified,
            tuple(blocks),
            in_time=self.in_time,
            directions=self.n_directions,
        )

    def _trusted(self, rows: list[Array]) -> bool:
        """Return whether verified rows are rows of the unmixing; consider smooth starts first."""
        if len(rows) < self.n:
            if self.in_time and not self.n_directions:
                self.add_smooth_starts("tanh", "cube", "skew", "random")
            return 2 * len(rows) >= self.n
        # A piecewise affine mixture has exact hyperplanes through some of its pieces. The coordinates of a smooth start
        # are then inactive far more often than those of the hyperplanes.
        self.add_smooth_starts("tanh")
        single = torch.as_tensor(np.array(rows)).float()
        inactive = float(peaks(self.data.single[None, :6000], single[None, None]).sum())
        return self.best_start is not None and self.best_start[0] < 1.2 * inactive

    def _independent(self, rows: list[Array], row: Array, limit: float) -> bool:
        if not rows:
            return True
        a, v = unit(np.stack(rows))[:, : self.n], unit(row[None])[0, : self.n]
        return bool(np.linalg.norm(v - np.linalg.lstsq(a.T, v, rcond=None)[0] @ a) > limit)


@torch.inference_mode()  # the tensors are small: the bookkeeping of autograd would take a fifth of the time
def find_hyperplanes(
    sets: Sequence[Array],
    seeds: Sequence[int],
    *,
    max_rounds: int = 8,
    seconds: float | None = None,
    device: torch.device | None = None,
) -> list[Unmixing]:
    """Find n independent hyperplanes that hold many of the rows, for each of many data sets of white rows (N, n).

    Each search ends after the `seconds` with the best found so far. On a GPU, the first starts of all data sets with
    one n descend in one batch; all other steps run set by set on the CPU.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2000, 3)) * (rng.random((2000, 3)) < 0.5) + [0, 1, 2]
    >>> values, vectors = np.linalg.eigh(np.cov(z.T, ddof=0))
    >>> white = (z - z.mean(0)) @ vectors / np.sqrt(values)
    >>> (found,) = find_hyperplanes([white], [0])
    >>> zero = np.abs(found.latents(white)) < 1e-6
    >>> found.verified, bool((np.sort(zero, 1) == np.sort(z == [0, 1, 2], 1)).all())
    (3, True)
    """
    searches = [HyperplaneSearch(x, seed) for x, seed in zip(sets, seeds, strict=True)]
    if device is not None and device.type != "cpu":  # on a CPU, neighbours are faster and often suffice
        for n in sorted({search.n for search in searches}):
            _first_round([search for search in searches if search.n == n], device)
    return [search.finish(max_rounds, seconds) for search in searches]


@torch.inference_mode()
def centred_rows(x: Array, seed: int, starts: int = 4) -> Array:
    """Return the rows (n, n + 1) of the best smooth start on white rows x (N, n), every inactive value at the mean.

    On a mixture that is far from affine, folds attract a free inactive value. The mean is the better guess where
    latents lie around their inactive value.
    """
    search = HyperplaneSearch(x, seed)
    W = torch.stack([search.start(kind) for kind in ("tanh", "cube", *["random"] * (starts - 2))])[None]
    rows = search.data.single[None, :8000].clone()
    rows[..., -1] = 0
    W = descend(rows, W, LogSize(), SMOOTH, 20)
    value = LogSize()(rows, W, SMOOTH[-1])[0].sum(-1) - torch.linalg.slogdet(W[..., :-1])[1]
    best = _as_rows(W[0, int(value.argmin())])
    best[:, -1] = 0
    return best


def _first_round(group: list[HyperplaneSearch], device: torch.device) -> None:
    """Descend from the first starts of many searches with one n in one batch."""
    xs = [search.subsample(0) for search in group]
    rows = min(x.shape[1] for x in xs)
    x = torch.cat([x[:, :rows] for x in xs])
    kinds, tau = fixed_schedule(0, group[0].starts_per_round)
    white = torch.cat([s.data.single[None, :rows, : s.n] for s in group]).to(device)
    starts = []
    for kind in kinds:
        W = ica_start(white, kind, group[0].torch_rng)
        starts.append(torch.cat([W, torch.zeros(*W.shape[:2], 1, device=device)], -1))
        for search, own in zip(group, W.cpu(), strict=True):
            search.contrasts[kind] = own
    on_device = x.to(device)
    found = pinball_starts(on_device, torch.stack(starts, 1), tau.to(device)).cpu()
    smooth = descend(on_device, starts[kinds.index("tanh")][:, None], LogSize(), SMOOTH, 15).cpu()
    for search, own, W, coarse in zip(group, x, found, smooth, strict=True):
        search.first, search.smooth = (own[None], W), coarse
