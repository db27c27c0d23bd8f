"""Projections of bent surfaces without folds."""

import numpy as np
import pytest
import torch

from identifiable.algorithms.coordinates import Coordinates
from identifiable.algorithms.secants import unfolding_directions
from identifiable.data import make_pdgmm


def folded(sample, directions):
    """Share of rows on the side of a fold with fewer rows: where the projection turns the surface over."""
    mixing, z = sample.source.mixing, torch.as_tensor(sample.z)
    along = torch.as_tensor(directions)
    jacobian = torch.stack([(mixing(z + h) - mixing(z - h)) @ along for h in 1e-6 * torch.eye(z.shape[1]).double()], 1)
    share = float((torch.linalg.det(jacobian / 2e-6) > 0).double().mean())
    return min(share, 1 - share)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_surface_that_principal_components_fold_is_unfolded(seed):
    sample = make_pdgmm(12_000, n=10, difficulty="wide", d=20, random_state=seed)
    principal = Coordinates.fit(sample.x, standardise=False)
    assert folded(sample, principal.basis[:, :10]) > 5e-4
    assert folded(sample, principal.unfolded(sample.x, 10).basis[:, :10]) < 2e-4


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_flat_rows_with_noise_keep_their_principal_components(seed):
    rng = np.random.default_rng(seed)
    plane = np.linalg.qr(rng.normal(size=(12, 3)))[0]
    y = rng.normal(size=(4000, 3)) @ plane.T + 0.02 * rng.normal(size=(4000, 12))
    y -= y.mean(0)
    found = unfolding_directions(y, 3)
    assert np.linalg.svd(plane.T @ found)[1].min() > 0.98


def test_directions_are_orthonormal_and_do_not_depend_on_the_scale():
    t = np.random.default_rng(0).normal(size=(300, 2))
    y = np.c_[t, np.abs(t) @ [[1.0, 0.5], [0.3, -1.0]]]
    y -= y.mean(0)
    found = unfolding_directions(y, 2)
    np.testing.assert_allclose(found.T @ found, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(unfolding_directions(1000 * y, 2), found, atol=1e-3)


def test_repeated_rows_do_no_harm():
    y = np.repeat(np.random.default_rng(0).normal(size=(20, 3)), 30, 0)
    assert np.isfinite(unfolding_directions(y - y.mean(0), 2)).all()
