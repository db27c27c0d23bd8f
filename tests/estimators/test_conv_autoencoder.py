"""The convolutional autoencoder: two trainings, images in and out, and its place before an unmixing."""

import numpy as np
import pytest
import torch

from identifiable import ConvAutoencoder, DataError, ImageUnmixing, SparseUnmixing, load, save
from identifiable.data import make_balls
from identifiable.estimators.conv_autoencoder import _loss_of_code, best_starts
from identifiable.estimators.sparse_autoencoder import Bottleneck
from identifiable.metrics import r2
from identifiable.nets import MLP

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
TINY = {"max_steps": 3, "code_steps": 3, "batch_size": 8, "most_pixels": 16, "random_state": 0, "verbose": 0}
TINY |= {"device": "cpu"}


@pytest.fixture(scope="module")
def ball():
    return make_balls(300, balls=1, random_state=0)


@pytest.fixture(scope="module")
def model(ball):
    return ConvAutoencoder(2, **TINY).fit(ball.x.reshape(-1, 64, 64, 3))


def test_the_position_of_a_ball_is_found_and_drawn():
    sample = make_balls(800, balls=1, random_state=0)
    new = sample.source.sample(300, random_state=1)
    options = TINY | {"max_steps": 150, "batch_size": 32, "code_steps": 300, "image_shape": (64, 64, 3)}
    model = ConvAutoencoder(2, **options).fit(sample.x)
    assert r2(new.z, model.transform(new.x)) > 0.8
    decoded = model.inverse_transform(model.transform(new.x)).reshape(300, -1)
    assert np.square(decoded - new.x).mean() < 0.6 * np.square(new.x - sample.x.mean(0)).mean()


def test_latents_are_standardised(ball, model):
    z = model.transform(ball.x)
    np.testing.assert_allclose(z.std(0), 1, atol=0.2)  # exactly so on the training rows
    assert (model.history_.step[-1], model.code_history_.step[-1]) == (3, 2)  # a step before the starts are compared


def test_images_rows_and_a_simulator_are_accepted(ball, model, monkeypatch):
    rows = ConvAutoencoder(2, image_shape=(64, 64, 3), **TINY).fit(ball.x)
    np.testing.assert_array_equal(rows.transform(ball.x), model.transform(ball.x.reshape(-1, 64, 64, 3)))
    monkeypatch.setattr(ConvAutoencoder, "pilot", 100)
    assert ConvAutoencoder(2, **TINY).fit(ball.source).transform(ball.x).shape == (300, 2)
    grey = ball.x.reshape(-1, 64, 64, 3).mean(3)
    fitted = ConvAutoencoder(2, **TINY).fit(grey)
    assert fitted.inverse_transform(fitted.transform(grey)).shape == grey.shape


def test_a_fit_is_reproducible_and_saved(ball, model, tmp_path):
    again = ConvAutoencoder(2, **TINY).fit(ball.x.reshape(-1, 64, 64, 3))
    np.testing.assert_array_equal(again.transform(ball.x), model.transform(ball.x))
    save(model, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors", device="cpu")
    np.testing.assert_array_equal(loaded.transform(ball.x), model.transform(ball.x))
    np.testing.assert_array_equal(loaded.score_samples(ball.x), model.score_samples(ball.x))


def test_restarts_are_compared(ball):
    model = ConvAutoencoder(2, n_restarts=2, **TINY).fit(ball.x.reshape(-1, 64, 64, 3))
    assert model.latents_of_restarts(ball.x).shape == (2, 300, 2)
    assert model.restart_scores_.argmax() == model.kept_
    np.testing.assert_allclose(model.latents_of_restarts(ball.x)[model.kept_], model.transform(ball.x), atol=1e-3)


def test_the_start_with_the_smallest_error_is_kept():
    """Two restarts with three starts each; start 2 of the first and start 0 of the second are made exact."""
    rng = torch.Generator().manual_seed(0)
    code = Bottleneck(MLP(6, (3, 3), rng=rng), MLP(6, (3, 3), rng=rng), learn_scale=False)
    c = torch.randn(2, 50, 3, generator=rng)
    with torch.no_grad():
        for member, restart in ((2, 0), (3, 1)):
            code.encoder.last.weight[member] = torch.eye(3)
            code.decoder.last.weight[member] = torch.diag(c[restart].std(0, correction=0))
            code.decoder.last.bias[member] = c[restart].mean(0)
    kept = best_starts(code, c)
    assert len(kept.scale) == 2
    assert kept.reconstruction(c, kept(c)).max() < 1e-4
    assert _loss_of_code(kept, [c.transpose(0, 1).expand(2, -1, -1, -1)], None).max() < 1e-4
    each = _loss_of_code(code, [c.transpose(0, 1).expand(6, -1, -1, -1)], None)
    assert sorted(each.argsort()[:2].tolist()) == [2, 3]


def test_it_is_an_encoder_of_image_unmixing(ball):
    x = ball.x.reshape(-1, 64, 64, 3)
    unmixing = SparseUnmixing(2, max_rounds=1, noisy=False)
    model = ImageUnmixing(2, encoder=ConvAutoencoder(2, **TINY), unmixing=unmixing, random_state=0, verbose=0).fit(x)
    assert model.transform(x).shape == (300, 2)
    assert model.inverse_transform(model.transform(x)).shape == x.shape


@pytest.mark.parametrize("X", [np.zeros((5, 4, 4, 3)), np.random.default_rng(0).random((5, 48))])
def test_images_that_cannot_be_used_are_refused(X):
    with pytest.raises(DataError, match=r"images"):
        ConvAutoencoder(2, **TINY).fit(X)


@pytest.mark.parametrize(
    ("name", "value"), [("most_pixels", 0), ("width", 0), ("code_steps", 0), ("hidden", (0,)), ("learning_rate", 0)]
)
def test_invalid_parameters_are_named(ball, name, value):
    with pytest.raises(ValueError, match=f"'{name}' parameter of ConvAutoencoder"):
        ConvAutoencoder(2, **TINY | {name: value}).fit(ball.x)
