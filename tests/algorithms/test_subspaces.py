"""Groups of rows on affine subspaces."""

import numpy as np

from identifiable.algorithms.subspaces import share_on_subspaces, subspace_groups


def test_rows_of_a_line_a_plane_and_points_are_grouped():
    rng = np.random.default_rng(0)
    line, plane = rng.normal(size=(100, 1)) * [[1, 2, 3]], rng.normal(size=(300, 2)) @ [[1, 0, 1], [0, 1, 1]] + 1
    x = np.vstack([line, plane, np.repeat(rng.normal(size=(2, 3)), 40, axis=0)])
    groups = subspace_groups(x, 1e-6, rng)
    kind = np.repeat([0, 1, 2, 3], [100, 300, 40, 40])
    assert [len(np.unique(kind[rows])) for rows in groups[:4]] == [1, 1, 1, 1]
    assert [kind[rows][0] for rows in groups[:2]] == [1, 0]
    assert sorted(np.concatenate(groups)) == list(range(480))
    assert sum(map(len, groups[:4])) >= 478
    assert share_on_subspaces(x, groups, 1e-6) > 0.99


def test_chance_planes_are_no_subspaces():
    """In a smooth cloud no hyperplane stands out, at any tolerance."""
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=(500, 3))
        for tolerance in (1e-6, 3e-3, 3e-2):
            assert len(subspace_groups(x, tolerance, np.random.default_rng(seed))) == 1
            assert share_on_subspaces(x, [np.arange(500)], tolerance) == 0


def test_the_tolerance_covers_noise():
    rng = np.random.default_rng(1)
    x = np.vstack([rng.normal(size=(300, 2)) @ rng.normal(size=(2, 4)) + rng.normal(size=4) for _ in range(2)])
    noisy = x + 1e-3 * rng.normal(size=x.shape)
    groups = subspace_groups(noisy, 4e-3, rng)
    assert share_on_subspaces(noisy, groups, 4e-3) > 0.95
    assert max(min((rows < 300).mean(), (rows >= 300).mean()) for rows in groups[:2]) < 0.05
    assert share_on_subspaces(noisy, subspace_groups(noisy, 1e-6, rng), 1e-6) < 0.1
