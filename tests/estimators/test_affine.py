"""What all affine methods share: the map, its inverse and the density on the subspace in which the rows vary."""

import numpy as np
import pytest

from identifiable import (
    FactorialUnmixing,
    IndependentComponents,
    LinearICA,
    PrincipalComponents,
    RawData,
    SegmentUnmixing,
    SparseUnmixing,
)
from identifiable.arrays import hold_out

MODELS = [
    RawData(),
    PrincipalComponents(),
    IndependentComponents(random_state=0),
    LinearICA(random_state=0),
    SegmentUnmixing(n_restarts=1, random_state=0),
    FactorialUnmixing(n_components=2, n_restarts=1, random_state=0),
    SparseUnmixing(random_state=0),
]
pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
every_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


@pytest.fixture(scope="module")
def rows():
    """Rows of two latents, each inactive in half of the rows, and two groups of different variances."""
    rng = np.random.default_rng(0)
    u = np.arange(1000) % 2
    z = rng.normal(size=(1000, 2)) * (rng.random((1000, 2)) < 0.5) * np.array([[1, 1], [3, 0.5]])[u]
    return z @ [[1.0, 0.5], [-0.3, 1.0]] + [1.0, 2.0], u


@every_model
def test_score_of_rank_deficient_rows(model, rows):
    """Rows of a plane in three columns have the density of the plane: that of two columns over the area element."""
    x, u = rows
    image = np.array([[1.0, 0.0, 100.0], [0.0, 1.0, -20.0]])
    area = np.sqrt(np.linalg.det(image @ image.T))
    expected = model.fit(x, u).score(x) - np.log(area)
    assert model.fit(x @ image, u).score(x @ image) == pytest.approx(expected, abs=0.02)


@every_model
def test_the_inverse_stays_on_the_plane_of_the_rows(model, rows):
    x, u = rows
    x = x @ [[1.0, 0.0, 100.0], [0.0, 1.0, -20.0]]
    model.fit(x, u)
    np.testing.assert_allclose(model.inverse_transform(model.transform(x)), x, atol=1e-6)


def test_noise_outside_the_latents_stays_on_the_plane_of_the_rows(rows):
    x, u = rows
    x = x @ [[1.0, 0.0, 100.0], [0.0, 1.0, -20.0]]
    model = SegmentUnmixing(1, n_restarts=1, random_state=0).fit(x, u)
    drawn = model.sample(20_000, random_state=0)
    np.testing.assert_allclose(drawn[:, 2], drawn[:, :2] @ [100, -20], rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(drawn.std(0), x.std(0), rtol=0.05)


@pytest.mark.parametrize(
    "model", [SegmentUnmixing(2), FactorialUnmixing(2, n_components=2), IndependentComponents(2), LinearICA(2)]
)
def test_held_out_rows_only_compare_the_restarts(model, rows):
    """Held-out rows of another size change no correlation between restarts that were fitted without them."""
    rng = np.random.default_rng(0)
    x, u = rows[0] @ rng.normal(size=(2, 4)) + rng.normal(size=(1000, 4)), rows[1]
    model.set_params(n_restarts=4, random_state=0)
    held = hold_out(len(x), np.random.RandomState(0).randint(np.iinfo(np.int32).max))[1]
    moved = x.copy()
    moved[held] = 3 * x[held] + 1
    before, after = (model.fit(rows, u).stability_.pairwise for rows in (x, moved))
    np.testing.assert_allclose(after, before, atol=1e-9)
