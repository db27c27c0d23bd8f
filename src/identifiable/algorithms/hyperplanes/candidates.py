r"""Candidate hyperplanes: refined, tested, and selected to be independent.

A combination of several true rows vanishes where all their latents are inactive, so it also holds many samples exactly.
These samples span too few directions. The test of codimension detects this and keeps their affine subspace for later.
"""

import numpy as np
import torch

from identifiable.algorithms.hyperplanes.affine_subspaces import MOST_FUNCTIONALS
from identifiable.algorithms.hyperplanes.combinations import sparser_rows
from identifiable.algorithms.hyperplanes.planes import FLOOR, LEAST_SHARE, Hyperplane, WhitenedData
from identifiable.arrays import Array

SAME, SAME_REFINED = 0.999, 1 - 1e-6  # correlation from which two rows are one: before refinement, and after
LEAST_SHARPNESS = 50  # samples on a hyperplane for each sample beside it


class Candidates:
    """Exact hyperplanes of the white rows x (N, n), and the independent ones among them, `kept`."""

    def __init__(self, x: Array, rng: np.random.Generator) -> None:
        self.rng = rng
        self.data = WhitenedData(x, rng)
        self.n = self.data.n
        self.candidates: list[Hyperplane] = []
        self.directions = np.zeros((0, self.n))  # of the candidates
        self.kept: list[Hyperplane] = []
        self.unsplit: list[Array] = []  # null spaces (n + 1, m) that hold several rows each
        self.blocks: list[Array] = []  # null spaces in which no direction vanishes more often than all together
        self.refused: list[Array] = []  # directions of rows that turned out to be combinations

    @property
    def solved(self) -> bool:
        """Whether n independent rows are known exactly, and none of them holds suspiciously few samples."""
        shares = [k.share for k in self.kept]
        return len(shares) == self.n and min(shares) >= 0.4 * float(np.median(shares))

    def add_candidates(self, rows: Array, most: int = 400) -> int:
        """Refine candidate rows (m, n + 1) and keep genuine hyperplanes; return how many more rows are kept."""
        shares = self.data.inactive_share(rows)
        before = len(self.kept)
        for i in np.argsort(-shares)[:most]:
            if shares[i] < LEAST_SHARE:
                break
            if not self._known(rows[i], SAME) and self._consider(rows[i]) and len(self.candidates) >= self.n:
                self._keep_independent()
                if self.solved:
                    break
        self._keep_independent()
        return len(self.kept) - before

    def _consider(self, row: Array) -> bool:
        """Refine one row and add it to the candidates if it is a genuine hyperplane."""
        plane = self.data.refine_plane(row)
        if plane is None or plane.sharpness < LEAST_SHARPNESS:
            return False
        if plane.share < max(LEAST_SHARE, 2.0 * self.n / self.data.rows) or self._known(plane.row, SAME_REFINED):
            return False
        if self._holds_several(plane):
            return False
        self.candidates.append(plane)
        self.directions = np.stack([k.normal for k in self.candidates])
        return True

    def _known(self, row: Array, limit: float) -> bool:
        """Whether a candidate has this direction, or a block holds it."""
        a = row[: self.n] / np.linalg.norm(row[: self.n])
        if self.refused and float(np.abs(np.array(self.refused) @ a).max()) > SAME_REFINED:
            return True
        if self.candidates and float(np.abs(self.directions @ a).max()) > limit:
            return True
        return any(np.linalg.norm(_basis(block).T @ a) > limit for block in self.blocks)

    def _holds_several(self, plane: Hyperplane) -> bool:
        """Return whether the samples on it span too little: a combination of rows, whose subspace is kept for later."""
        n = self.n
        inside = np.flatnonzero(np.abs(plane.distance(self.data.x)) < plane.band)
        x = self.data.x[inside]
        widest: Array | None = None
        for attempt in range(8):  # random subsets, small and large: a few stray samples would hide it in the whole
            size = min(len(inside), max(4 * n, len(inside) // 6 if attempt % 2 else 0))
            null = self.data.null_space(self.rng.choice(inside, size, replace=False))
            if null.shape[1] > (1 if widest is None else widest.shape[1]):
                off = (np.abs(x @ null[:n] + null[n]) > 10 * FLOOR).any(1).sum()
                if off <= n + 10:  # only strays are off; a component that the subset misses is larger
                    widest = null
        if widest is not None and widest.shape[1] <= MOST_FUNCTIONALS:
            self.add_subspace(widest)
        return widest is not None

    def replace_combinations(self, rng: torch.Generator) -> bool:
        """Replace rows and blocks that are combinations of sparser rows by these; return whether there were any."""
        sparser = [sparser_rows(self.data, plane.row, rng) for plane in self.kept]
        generic = [block @ self.rng.normal(size=block.shape[1]) for block in self.blocks]
        of_blocks = [sparser_rows(self.data, row, rng) for row in generic]
        combined = [plane for plane, rows in zip(self.kept, sparser, strict=True) if len(rows)]
        self.refused += [plane.normal for plane in combined]
        self.candidates = [plane for plane in self.candidates if all(plane is not one for one in combined)]
        self.directions = np.array([plane.normal for plane in self.candidates]).reshape(-1, self.n)
        self.blocks = [block for block, rows in zip(self.blocks, of_blocks, strict=True) if not len(rows)]
        found = np.vstack([np.zeros((0, self.n + 1)), *sparser, *of_blocks])
        if len(found):
            self.add_candidates(found)
        return len(found) > 0

    def add_subspace(self, null: Array) -> None:
        """Keep a null space for later, once."""
        new = _basis(null)
        for old in (*self.unsplit, *self.blocks):
            if old.shape[1] == null.shape[1]:
                cosines = np.linalg.svd(_basis(old).T @ new, compute_uv=False)
                if cosines[-1] > 1 - 1e-6:
                    return
        self.unsplit.append(null)

    def _keep_independent(self) -> None:
        """Select independent rows greedily, the largest spike first."""
        self.kept = []
        basis = np.zeros((0, self.n))
        for i in sorted(range(len(self.candidates)), key=lambda i: -self.candidates[i].share):
            plane, v = self.candidates[i], self.directions[i]
            new = v - basis.T @ (basis @ v)
            new -= basis.T @ (basis @ new)
            if len(self.kept) < self.n and np.linalg.norm(new) > 1e-3:
                self.kept.append(plane)
                basis = np.vstack([basis, new / np.linalg.norm(new)])


def _basis(null: Array) -> Array:
    """Return orthonormal directions (n, m) of the span of functionals null (n + 1, m)."""
    return np.linalg.qr(null[:-1])[0]
