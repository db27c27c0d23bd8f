"""From images to latents: an encoder, then an unmixing of its code."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin

from identifiable import ImageUnmixing, KeypointEncoder, Level, SparseUnmixing, load, save
from identifiable.metrics import block_r2

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")


class Affine(TransformerMixin, BaseEstimator):
    """An encoder that is known: images are an affine function of the code."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X):
        self.map_ = np.linalg.qr(np.random.default_rng(0).normal(size=(16, 4)))[0]
        return self

    def transform(self, X):
        return np.reshape(X, (len(X), -1)) @ self.map_

    def inverse_transform(self, Z):
        return (Z @ self.map_.T).reshape(-1, 4, 4)

    def score(self, X):
        return 0.0


@pytest.fixture(scope="module")
def pictures():
    """Two things whose coordinates are inactive together in a fifth of 2000 images, and the images."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(2000, 4)) * (rng.random((2000, 2)) > 0.2).repeat(2, 1)
    return z, Affine().fit(None).inverse_transform(z @ rng.normal(size=(4, 4)))


@pytest.fixture(scope="module")
def model(pictures):
    return ImageUnmixing(4, encoder=Affine(), random_state=0, verbose=0).fit(pictures[1])


def test_blocks_are_recovered_and_found(pictures, model):
    z, x = pictures
    found = block_r2(z, model.transform(x), [[0, 1], [2, 3]])
    assert found.scores.min() > 0.999
    assert sorted(sorted(found.assignment[list(block)]) for block in model.blocks_) == [[0, 0], [1, 1]]


def test_inverse_transform_recovers_the_images(pictures, model):
    _, x = pictures
    np.testing.assert_allclose(model.inverse_transform(model.transform(x)), x, atol=1e-6)


def test_nothing_is_certified_without_an_injective_encoder(model):
    certificate = model.certificate_
    assert certificate.level == Level.NONE
    assert certificate["encoder"].verdict == "inconclusive"
    assert certificate.if_undecided_hold >= model.unmixing_.certificate_.level


class Keypoints(KeypointEncoder):
    """A keypoint encoder that is known: the images are the code."""

    def fit(self, X, y=None):
        self.module_ = None
        return self

    _n_features_out = 4

    def transform(self, X):
        return np.reshape(X, (len(X), -1))

    def inverse_transform(self, Z):
        return np.reshape(Z, (-1, 2, 2))

    def score(self, X, y=None):
        return 0.0


def of_keypoints(code):
    """Unmix keypoints (N, 4) with noise of a thousandth of their size."""
    noise = 1e-3 * np.random.default_rng(7).normal(size=code.shape)
    x = (code + noise).reshape(-1, 2, 2)
    return x, ImageUnmixing(4, encoder=Keypoints(4), random_state=0, verbose=0).fit(x)


def test_keypoints_keep_their_axes_if_the_unmixing_allows_it(pictures):
    """Within a block the unmixing is free to turn the axes; those of the code are kept."""
    z, _ = pictures
    x, found = of_keypoints(z @ np.kron(np.eye(2), [[1.0, 0.6], [0.0, 0.8]]) + 3)
    np.testing.assert_array_equal(found.transform(x), x.reshape(-1, 4))
    np.testing.assert_array_equal(found.inverse_transform(found.transform(x)), x)
    assert sorted(found.blocks_) == [(0, 1), (2, 3)]
    inactive = ~found.active(x)
    np.testing.assert_array_equal(inactive[:, 0], inactive[:, 1])
    assert (inactive == (z == 0)).mean() > 0.98
    assert found.meanings_ == ("x of thing 1", "y of thing 1", "x of thing 2", "y of thing 2")


def test_keypoints_that_are_never_inactive_are_returned_as_they_are():
    x, found = of_keypoints(np.random.default_rng(0).uniform(size=(2000, 4)))
    np.testing.assert_array_equal(found.transform(x), x.reshape(-1, 4))
    assert found.blocks_ == ()
    assert found.active(x).all()
    assert found.certificate_.level == found.certificate_.if_undecided_hold == Level.NONE
    assert "architecture" in found.certificate_.meaning


def test_mixed_keypoints_are_unmixed(pictures):
    """If things are not on the axes of the code, the unmixing has found something that the code does not show."""
    z, _ = pictures
    x, found = of_keypoints(z @ np.linalg.qr(np.random.default_rng(3).normal(size=(4, 4)))[0])
    assert found.groups_ is None
    assert block_r2(z, found.transform(x), [[0, 1], [2, 3]]).scores.min() > 0.99
    assert found.meanings_ == ("",) * 4


def test_restarts_agree_on_blocks_only(pictures):
    """Within a block the axes are arbitrary, so that single latents need not agree."""
    model = ImageUnmixing(4, n_restarts=2, encoder=Affine(), random_state=0, verbose=0).fit(pictures[1])
    assert model.stability_.pairwise.shape == (2, 2)
    assert model.stability_.weak_score > 0.999


def test_a_model_with_keypoints_is_saved(tmp_path):
    images = np.random.default_rng(0).random((60, 8, 8, 3)).astype(np.float32)
    encoder = KeypointEncoder(2, max_steps=4, batch_size=8, verbose=0, device="cpu")
    unmixing = SparseUnmixing(2, max_rounds=1, noisy=False)
    model = ImageUnmixing(encoder=encoder, unmixing=unmixing, random_state=0, verbose=0).fit(images)
    save(model, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors", device="cpu")
    np.testing.assert_array_equal(loaded.transform(images), model.transform(images))


@pytest.mark.parametrize(("parameter", "value"), [("encoder", "magic"), ("unmixing", 3), ("n_latents", 0)])
def test_invalid_parameters_are_named(pictures, parameter, value):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter of ImageUnmixing"):
        ImageUnmixing(**{parameter: value}).fit(pictures[1])
