"""Columns, images and categories in and out, and the parameters of all autoencoders."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from autoencoder_helpers import QUICK
from identifiable import IVAE, MFCVAE, VAE, DataError, VaDE, load, save
from identifiable.data import load_digits
from identifiable.nets import ConvNet, Dense, ResNet

pytestmark = [
    pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning"),
    pytest.mark.filterwarnings("error::RuntimeWarning"),  # single precision does not overflow in the checks
]


@pytest.fixture(scope="module")
def images():
    return np.round(load_digits().x[:120].reshape(-1, 8, 8) * 255) / 255


# -- images -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("net", "shape"),
    [(Dense((8,)), (5, 6, 3)), (ConvNet(), (8, 8)), (ResNet(width=2), (5, 6, 3))],
    ids=lambda v: type(v).__name__,
)
def test_a_fit_to_images_returns_images(net, shape):
    x = np.random.default_rng(0).integers(0, 256, size=(60, *shape)) / 255
    model = VAE(2, net=net, likelihood="logistic", **QUICK | {"max_steps": 2}).fit(x)
    z = model.transform(x)
    assert z.shape == (60, 2)
    assert model.image_shape_ == shape
    drawn = model.sample(5, random_state=0)
    assert drawn.shape == (5, *shape)
    np.testing.assert_allclose(drawn * 255, np.round(drawn * 255), atol=1e-9)
    assert model.score_samples(x).shape == (60,)
    np.testing.assert_array_equal(model.transform(x.reshape(60, -1)), z)  # an image is its row of pixels
    single = model.inverse_transform(z.astype(np.float32))
    assert (single.dtype, single.shape) == (np.float32, x.shape)
    assert model.module_.log_noise.shape == (1, 1, 3 if len(shape) == 3 else 1)
    with pytest.raises(DataError, match="as in fit"):
        model.transform(np.zeros((4, 30, 2)))


def test_pixels_keep_their_places():
    """A decoder that ignores z returns the mean image."""
    x = np.random.default_rng(0).normal(size=(80, 3, 4, 2)) + np.arange(24).reshape(3, 4, 2)
    model = VAE(2, net=Dense((4,)), **QUICK).fit(x)
    with torch.no_grad():
        for parameter in model.module_.last_layers[1].parameters():
            parameter.zero_()
    np.testing.assert_allclose(model.inverse_transform(np.zeros((1, 2)))[0], x.mean(0))


@pytest.mark.parametrize(
    ("net", "shape", "word"),
    [
        ("convnet", (60, 65), "square"),
        (ConvNet((4, 5)), (60, 64), "d=64"),
        ("convnet", (60, 3, 3), "at least 4 x 4"),
        ("lenet", (60, 64), "lenet"),
        (64, (60, 64), "Architecture"),
        (Dense([8]), (60, 64), "tuple"),
        (None, (60, 8, 8), "dim 3"),
    ],
)
def test_rows_that_are_no_images_are_refused(net, shape, word):
    x = np.random.default_rng(0).uniform(size=shape)
    with pytest.raises(ValueError, match=word):
        VAE(2, net=net, likelihood="bernoulli", **QUICK).fit(x)


@pytest.mark.parametrize("kind", ["bernoulli", "logistic"])
def test_values_outside_the_unit_interval_are_refused(images, kind):
    model = VAE(2, net=Dense((4,)), likelihood=kind, **QUICK).fit(images)
    for use in (clone(model).fit, model.transform, model.score):
        for wrong in (16 * images, images - 0.5):
            with pytest.raises(DataError, match=rf"{kind}.*\[0, 1\]"):
                use(wrong)


MODELS = [
    VAE(2, net=ConvNet(), likelihood="logistic"),
    VaDE(2, 3, net=ResNet((8, 8), width=2), likelihood="bernoulli", binarise="draw", pretrain_steps=2),
    MFCVAE(4, (3, 2), progressive=True, net="convnet", likelihood="bernoulli", binarise="threshold", init="random"),
    IVAE(2, net=Dense((16,), (12, 8)), likelihood="logistic", posterior="diagonal", posterior_given_u=False),
    IVAE(2, net=ConvNet(), likelihood="bernoulli", binarise="draw"),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{type(m).__name__}-{m.net}")
def test_a_file_keeps_nets_for_images(model, images, tmp_path):
    u = np.arange(120) % 3
    model = clone(model).set_params(**QUICK | {"max_steps": 3}).fit(images, u)
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu")
    for use in ("transform", "score_samples"):
        np.testing.assert_array_equal(getattr(again, use)(images), getattr(model, use)(images))
    np.testing.assert_array_equal(again.sample(3, random_state=0), model.sample(3, random_state=0))
    assert again.inverse_transform(model.transform(images)).shape == images.shape
    assert again.get_params() == model.get_params() | {"device": "cpu"}
    assert str(again.certificate_ if hasattr(model, "certificate_") else "") == str(getattr(model, "certificate_", ""))


# -- bits ---------------------------------------------------------------------------------


def test_a_threshold_makes_bits_of_gray_values(images):
    bits = (images >= 0.5).astype(images.dtype)
    gray = VAE(2, net=Dense((8,)), likelihood="bernoulli", binarise="threshold", **QUICK).fit(images)
    for use in ("transform", "score_samples"):
        np.testing.assert_array_equal(getattr(gray, use)(images), getattr(gray, use)(bits))
    plain = clone(gray).set_params(binarise=None).fit(bits)
    np.testing.assert_array_equal(plain.transform(bits), gray.transform(images))


@pytest.mark.parametrize("model", [VAE(2), VaDE(2, 3, pretrain_steps=5), IVAE(2)], ids=lambda m: type(m).__name__)
def test_bits_are_drawn_at_every_step(model, images, monkeypatch):
    u, seen, draw = np.arange(120) % 3, [], type(model)._seen

    def recorded(self, x, rng):
        seen.append((x, draw(self, x, rng)))
        return seen[-1][1]

    monkeypatch.setattr(type(model), "_seen", recorded)
    settings = QUICK | {"net": Dense((8,)), "likelihood": "bernoulli", "binarise": "draw", "batch_size": 120}
    drawing = clone(model).set_params(**settings).fit(images, u)
    assert len(seen) == QUICK["max_steps"] + (5 if isinstance(model, VaDE) else 0)
    for gray, bits in seen:
        assert set(bits.unique().tolist()) == {0.0, 1.0}
        certain = (gray == 0) | (gray == 1)
        assert torch.equal(bits[certain], gray[certain])
    middle = torch.cat([(bits - gray)[(gray > 0) & (gray < 1)] for gray, bits in seen])
    assert abs(middle.mean()) < 3 * 0.5 / len(middle) ** 0.5
    assert not torch.equal(seen[0][1], seen[1][1])
    assert np.isfinite(drawing.transform(images)).all()


# -- columns ------------------------------------------------------------------------------


def test_categories_in_and_out():
    rng = np.random.default_rng(0)
    x = np.c_[rng.choice([2.0, 5.0, 9.0], size=200), rng.choice([-1.0, 4.0], size=200)]
    model = VAE(1, likelihood="categorical", **QUICK).fit(x)
    with torch.no_grad():
        for parameter in model.module_.decoder.parameters():
            parameter.zero_()
        model.module_.last_layers[1].bias[0, 0] = torch.tensor([0.0, 1.0, -1.0, 0.0, 2.0])
    np.testing.assert_array_equal(model.inverse_transform([[0.0], [1.0]]), [[5.0, 4.0]] * 2)
    drawn = model.sample(20_000, random_state=0)
    for column, (levels, logits) in enumerate([([2, 5, 9], [0, 1, -1]), ([-1, 4], [0, 2])]):
        found, count = np.unique(drawn[:, column], return_counts=True)
        assert found.tolist() == levels
        np.testing.assert_allclose(count / 20_000, np.exp(logits) / np.exp(logits).sum(), atol=0.02)
    with pytest.raises(DataError, match=r"Column 1 .*3\.0"):
        model.transform([[2.0, 3.0], [2.0, 4.0]])
    for use in (clone(model).fit, model.transform, model.score):
        with pytest.raises(DataError, match="whole numbers"):
            use(x + 0.5)


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "logistic", "categorical"])
def test_columns_may_vary_in_a_single_row(likelihood):
    """Also in a row that is held out: forty columns do so, and a tenth of the rows is held out."""
    rng = np.random.default_rng(0)
    x = np.c_[rng.integers(0, 2, size=(200, 3)) if likelihood != "gaussian" else rng.normal(size=(200, 3)), np.eye(200)]
    x = x[:, :43].astype(float)
    model = VAE(1, likelihood=likelihood, **QUICK | {"max_steps": 3}).fit(x)
    held_out = ~(x[model._split(x, None).train, 3:] == 1).any(0)
    assert held_out.any()
    assert np.isfinite(model.transform(x)).all()
    assert np.isfinite(model.score(x))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("likelihood", {"likelihood": "poisson"}),
        ("binarise", {"binarise": "round", "likelihood": "bernoulli"}),
        ("binarise", {"binarise": "draw"}),
        ("hidden", {"hidden": 8}),
        ("activation", {"activation": "cube"}),
        ("max_steps", {"max_steps": 0}),
        ("batch_size", {"batch_size": 1}),
        ("learning_rate", {"learning_rate": 0}),
        ("learning_rate", {"learning_rate": None}),
        ("patience", {"patience": 0}),
        ("checkpoint", {"checkpoint": 3}),
        ("random_state", {"random_state": None, "checkpoint": "c"}),
    ],
)
def test_wrong_parameters_are_refused(name, settings):
    x = np.random.default_rng(0).uniform(size=(60, 4))
    with pytest.raises(ValueError, match=f"'{name}' parameter of VAE"):
        VAE(2, **QUICK | settings).fit(x)
