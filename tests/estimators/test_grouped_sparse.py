"""GroupedSparse: properties of its measure of Gaussianity, and the benefit of known components."""

import numpy as np
import pytest
import torch

from identifiable.data import make_pdgmm
from identifiable.estimators.grouped_sparse import GroupedSparse, gaussianity
from identifiable.metrics import mcc, r2

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
QUICK = {"random_state": 0, "verbose": 0, "hidden": (4,), "max_steps": 10, "batch_size": 64}
ROWS = 40_000


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def components(count):
    return torch.arange(ROWS).remainder(count)[None]


def test_gaussian_components_have_value_zero_whatever_their_moments():
    labels = components(3)
    z = normal(1, ROWS, 2) * torch.tensor([0.1, 1.0, 7.0])[labels][..., None] + 20 * labels[..., None]
    assert gaussianity(z, labels, 3).item() < 0.1
    assert gaussianity(z, torch.zeros_like(labels), 1).item() > 0.5  # one component for all is no Gaussian


def test_known_moments():
    """An exponential has skewness 2 and excess kurtosis 6, a sign 0 and -2."""
    exponential = torch.empty(1, ROWS, 1, dtype=torch.float64).exponential_(generator=torch.Generator().manual_seed(0))
    sign = normal(1, ROWS, 1).sign()
    one = torch.zeros(1, ROWS, dtype=torch.int64)
    assert gaussianity(exponential, one, 1).item() == pytest.approx(8, abs=0.8)
    assert gaussianity(sign, one, 1).item() == pytest.approx(2, abs=0.02)
    both = torch.cat([exponential, sign], dim=-1)
    assert gaussianity(both, one, 1).item() == pytest.approx(5, abs=0.4)  # mean over latents
    halves = components(2)
    z = torch.where(halves[..., None] == 1, exponential, normal(1, ROWS, 1))
    assert gaussianity(z, halves, 2).item() == pytest.approx(4, abs=0.5)  # mean over components


def test_order_of_components_and_affine_maps_of_latents_do_not_matter():
    labels = components(4)
    z = normal(2, ROWS, 3) ** 3 + labels[..., None]
    value = gaussianity(z, labels.expand(2, -1), 4)
    assert value.shape == (2,)
    torch.testing.assert_close(gaussianity(z, 3 - labels.expand(2, -1), 4), value)
    torch.testing.assert_close(gaussianity(5 - 100 * z, labels.expand(2, -1), 4), value)


def test_an_inactive_latent_does_not_count():
    labels = components(2)
    z = normal(1, ROWS, 1) * labels[..., None]
    assert gaussianity(z, labels, 2).item() < 0.1


def test_components_with_few_rows_do_not_count():
    z = normal(1, 100, 1)
    assert gaussianity(z, torch.arange(100)[None] // 5, 20).item() == 0  # five rows each
    assert gaussianity(z, torch.arange(100)[None] // 10, 10).item() > 0


def test_with_masks_an_inactive_latent_counts_by_its_size():
    labels = components(2)
    z = normal(1, ROWS, 2) * torch.tensor([[1.0, 0.5], [0.0, 1.0]])[labels]
    masks = torch.tensor([[True, False], [False, True]])
    share = 0.25 / (0.5 + 0.125)  # latent 1 in component 0: E z² = .25, Var z = .625
    for unit in (1, 100):
        assert gaussianity(unit * z, labels, 2, masks).item() == pytest.approx(share / 4, abs=0.03)


@pytest.fixture(scope="module")
def curved():
    return make_pdgmm(1000, n=2, rho="1 var", layers=3, slopes=0.3, random_state=3)


def test_labels_and_masks_improve_recovery(curved):
    rates = {"learning_rate": 1e-2, "dual_rate": 5e-3, "max_steps": 250, "batch_size": 200, "hidden": (6, 6)}
    masks = curved.source.latents.masks.numpy()
    known = {"nothing": {"gaussianity": 0}, "labels": {}, "masks": {"masks": masks}}
    found = {
        name: GroupedSparse(2, **QUICK | rates | more, n_restarts=1).fit(curved.x, curved.component).transform(curved.x)
        for name, more in known.items()
    }
    assert r2(found["labels"], curved.z) > 0.92
    assert r2(found["nothing"], curved.z) < r2(found["labels"], curved.z) - 0.05
    assert r2(curved.x, curved.z) < 0.87
    assert mcc(curved.z, found["masks"]) > 0.96


def test_labels_may_be_text_and_matter(curved):
    names = np.array(["left", "right"])[curved.component]
    a = GroupedSparse(2, **QUICK).fit(curved.x, curved.component)
    b = GroupedSparse(2, **QUICK).fit(curved.x, names)
    assert b.classes_.tolist() == ["left", "right"]
    np.testing.assert_array_equal(a.transform(curved.x), b.transform(curved.x))
    other = GroupedSparse(2, **QUICK).fit(curved.x, curved.component[::-1])
    assert not np.array_equal(a.transform(curved.x), other.transform(curved.x))


@pytest.mark.parametrize(
    ("settings", "y", "word"),
    [
        ({}, None, "y"),
        ({}, np.zeros(7), "y has 7"),
        ({"masks": np.ones((3, 2))}, "own", "masks"),
        ({"gaussianity": -1}, "own", "'gaussianity' parameter"),
    ],
)
def test_wrong_input_is_refused(curved, settings, y, word):
    with pytest.raises(ValueError, match=word):
        GroupedSparse(2, **QUICK | settings).fit(curved.x, curved.component if isinstance(y, str) else y)
