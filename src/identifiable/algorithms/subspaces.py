"""Groups of rows that share an affine subspace: the start of a degenerate mixture.

Rows of a degenerate mixture lie on a union of affine subspaces of unknown number and dimensions. A tree finds them.
Among the rows of a node, search the hyperplane of their span that holds far more rows than the space around it; split
into the rows on it and the rows off it; continue with both. A component is never cut, since all its rows are on a
hyperplane or almost none are. A node in whose span no hyperplane stands out is a leaf: one affine subspace, its span.

A hyperplane is placed through as many random rows as it needs (Fischler & Bolles 1981), half of the time from all rows
of the node, half from the neighbourhood of one row. Both are needed: subspaces spanned by parts of one basis share few
hyperplanes that hold many rows each, and neighbourhoods find subspaces in general position. Neighbours are found in
whitened coordinates, so that for exact data the choice does not depend on the affine coordinates of the rows.

References
----------
Fischler & Bolles, Random sample consensus, Communications of the ACM 1981.
Vidal, Subspace clustering, IEEE Signal Processing Magazine 2011.
"""

import numpy as np

from identifiable.arrays import Array, BoolArray, Rows

HYPERPLANES = 400  # per batch
JUDGED_ROWS = 1500  # rows on which a batch is judged; the best hyperplanes are judged on all rows
POOL = 6000  # rows among which neighbours are searched
FEWEST_ROWS = 12  # on a subspace, beyond those that define it: fewer are chance
MARGIN = 7.0  # minus the log of the probability that a hyperplane through rows of a smooth density passes the test


def subspace_groups(X: Array, tolerance: float, rng: np.random.Generator, *, batches: int = 4) -> list[Rows]:
    """Split the rows of X (N, D) into groups on one affine subspace each; largest first.

    The last groups may be stray rows: a hyperplane that holds one subspace may pass through a row of another.

    Parameters
    ----------
    tolerance : distance from a hyperplane up to which a row is on it, in the units of X.
    batches : number of batches of hyperplanes without success that make a node a leaf; up to four times as many in
        nodes of more than 1000 rows, which may hold many subspaces.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(60, 1)) * [[1, 2, 3]], rng.normal(size=(40, 2)) @ [[1, 0, 1], [0, 1, 1]] + 1
    >>> [len(rows) for rows in subspace_groups(np.vstack([a, b]), 1e-6, rng)]
    [60, 39, 1]
    """
    distinct, inverse, copies = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    inverse = inverse.ravel()  # copies count as one row: else a few repeated rows would look like a subspace
    atoms = np.flatnonzero(copies > max(FEWEST_ROWS, 3 * np.median(copies)))
    leaves = [np.array([a]) for a in atoms]
    nodes = [np.setdiff1d(np.arange(len(distinct)), atoms)]
    while nodes:
        rows = nodes.pop()
        on = _hyperplane(distinct[rows], tolerance, rng, batches)
        if on is None:
            leaves.append(rows)
        else:
            nodes += [rows[on], rows[~on]]
    label = np.empty(len(distinct), dtype=np.int64)
    for number, rows in enumerate(leaves):
        label[rows] = number
    of_row = label[inverse]
    groups = [np.flatnonzero(of_row == number) for number in range(len(leaves))]
    return sorted((g for g in groups if len(g)), key=len, reverse=True)


def share_on_subspaces(X: Array, groups: list[Rows], tolerance: float) -> float:
    """Return the share of rows in groups whose span is smaller than that of all rows."""

    def rank(rows: Rows) -> int:
        return int((np.linalg.eigvalsh(np.cov(X[rows].T, ddof=0).reshape(X.shape[1], -1)) > tolerance**2).sum())

    whole = rank(np.arange(len(X)))
    return sum(len(g) for g in groups if len(g) > whole + 1 and rank(g) < whole) / len(X)


def _hyperplane(X: Array, tolerance: float, rng: np.random.Generator, batches: int) -> BoolArray | None:
    """Return which rows lie on the hyperplane of the span of X that stands out most, or None if none does."""
    if len(X) < FEWEST_ROWS + 2:
        return None
    centred = X - X.mean(0)
    values, axes = np.linalg.eigh(centred.T @ centred / len(X))
    spread = np.sqrt(np.maximum(values, 0))
    spanned = spread > tolerance
    dim = int(spanned.sum())
    if dim == 0 or len(X) < 2 * dim + FEWEST_ROWS:
        return None
    Y = centred @ axes[:, spanned]  # coordinates in the span, same units
    white = Y / spread[spanned]
    for _ in range(batches * min(4, 1 + len(X) // 1000)):
        normals, offsets = _drawn(Y, white, rng)
        judged = Y if len(Y) <= JUDGED_ROWS else Y[rng.choice(len(Y), JUDGED_ROWS, replace=False)]
        excess, _ = _standing_out(np.abs(judged @ normals.T - offsets), tolerance)
        best = np.argsort(-excess, kind="stable")[:5]
        planes = [_refined(Y, normals[i], float(offsets[i]), tolerance) for i in best]
        distances = np.stack([np.abs(Y @ normal - offset) for normal, offset in planes], axis=1)
        excess, expected = _standing_out(distances, tolerance)
        winner = int(excess.argmax())
        on = distances[:, winner] <= tolerance
        beyond = on.sum() - dim  # the rows that define it do not count
        chance = beyond * np.log(max(beyond, 1) / expected[winner]) - beyond + expected[winner]  # Poisson tail, -log
        stands_out = beyond >= max(FEWEST_ROWS, expected[winner]) and chance >= dim * np.log(len(Y)) + MARGIN
        if stands_out and not on.all():
            return on
    return None


def _drawn(Y: Array, white: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return unit normals (m, dim) and offsets (m,) of hyperplanes through dim rows of Y each."""
    rows, dim = Y.shape
    anywhere = rng.integers(rows, size=(HYPERPLANES // 2, dim))
    pool = np.arange(rows) if rows <= POOL else rng.choice(rows, POOL, replace=False)
    seeds = rng.choice(pool, HYPERPLANES // 2)
    size = min(2 * dim + 1, len(pool))
    square = (white[pool] ** 2).sum(1)
    nearest = np.argpartition(square - 2 * white[seeds] @ white[pool].T, size - 1, axis=1)[:, :size]
    some = rng.permuted(nearest, axis=1)[:, :dim]
    points = Y[np.vstack([anywhere, pool[some]])]  # (m, dim, dim)
    differences = points[:, 1:] - points[:, :1]
    normals = np.ones((len(points), 1)) if dim == 1 else np.linalg.svd(differences, full_matrices=True)[2][:, -1]
    return normals, np.einsum("mi,mi->m", normals, points[:, 0])


def _standing_out(distances: Array, tolerance: float) -> tuple[Array, Array]:
    """Return the rows on each hyperplane (columns) beyond those beside it, and how many a smooth density puts there.

    |d| <= t and 2t < |d| <= 3t are equally wide: under a smooth density they hold equally many rows. When both are
    nearly empty, rows up to 10 t and the spread of all rows give the expectation.
    """
    inside = (distances <= tolerance).sum(0).astype(np.float64)
    beside = ((distances > 2 * tolerance) & (distances <= 3 * tolerance)).sum(0)
    wider = ((distances <= 10 * tolerance).sum(0) - inside) / 9
    spread = np.sqrt((distances**2).mean(0)) + tolerance
    return inside - beside, np.maximum(np.maximum(beside, wider), len(distances) * tolerance / spread)


def _refined(Y: Array, normal: Array, offset: float, tolerance: float) -> tuple[Array, float]:
    """Replace the hyperplane by the least-squares one of the rows near it, as long as it gains rows."""
    near = np.abs(Y @ normal - offset) <= tolerance
    for _ in range(10):
        if near.sum() <= Y.shape[1]:
            break
        mean = Y[near].mean(0)
        turned = np.linalg.eigh((Y[near] - mean).T @ (Y[near] - mean))[1][:, 0]
        nearer = np.abs((Y - mean) @ turned) <= tolerance
        if nearer.sum() <= near.sum():
            break
        normal, offset, near = turned, float(mean @ turned), nearer
    return normal, offset
