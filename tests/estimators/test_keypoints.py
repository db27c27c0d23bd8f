"""Keypoint autoencoders: positions in images of one or two balls, and what is done with slots."""

import numpy as np
import pytest
import torch

from identifiable import DataError, KeypointEncoder, load, save
from identifiable.data import make_balls
from identifiable.estimators.keypoints import STARTS, best_starts, free_slots, more_needed, needed_slots
from identifiable.metrics import r2
from identifiable.nets.keypoints import COLOUR_UNIT, SPRITE_UNIT, Keypoints

TINY = {"max_steps": 5, "batch_size": 8, "random_state": 0, "verbose": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def ball():
    return make_balls(300, balls=1, random_state=0)


@pytest.fixture(scope="module")
def model(ball):
    return KeypointEncoder(2, **TINY).fit(ball.x.reshape(-1, 64, 64, 3))


def painted(members=1):
    """Nets with four slots on a black 16 x 16 image, and their images: slots 0 and 1 cover the same thing."""
    net = Keypoints(torch.zeros(16, 16, 1), slots=4, members=members, rng=torch.Generator().manual_seed(0))
    with torch.no_grad():
        net.alpha.fill_(-20 / SPRITE_UNIT)
        net.alpha[..., 5:8, 5:8] = 20 / SPRITE_UNIT
        net.paint.fill_(1 / COLOUR_UNIT)
        net.depth.zero_()
    places = torch.rand(members, 64, 8, generator=torch.Generator().manual_seed(1)) * 0.6 + 0.2
    places[..., 2:4] = places[..., :2]
    places[..., 6:] = 5.0  # never seen
    net.encode = lambda x: places
    return net, net.decode(places).detach()


def test_a_moving_ball_is_found():
    sample = make_balls(600, balls=1, random_state=0)
    new = sample.source.sample(300, random_state=1)
    options = TINY | {"max_steps": 100, "batch_size": 24, "image_shape": sample.image_shape}
    model = KeypointEncoder(2, **options).fit(sample.x)
    assert r2(new.z, model.transform(new.x)) > 0.97
    decoded = model.inverse_transform(model.transform(new.x)).reshape(300, -1)
    assert np.square(decoded - new.x).mean() < 0.8 * np.square(new.x - sample.x.mean(0)).mean()


def test_images_rows_and_a_simulator_are_accepted(ball, model, monkeypatch):
    shaped = ball.x.reshape(-1, 64, 64, 3)
    rows = KeypointEncoder(2, image_shape=(64, 64, 3), **TINY).fit(ball.x)
    np.testing.assert_array_equal(rows.transform(ball.x), model.transform(shaped))
    monkeypatch.setattr(KeypointEncoder, "pilot", 300)
    fresh = KeypointEncoder(2, **TINY).fit(ball.source)
    assert fresh.transform(ball.x).shape == (300, 2)
    grey = KeypointEncoder(2, **TINY).fit(shaped.mean(3))
    assert grey.inverse_transform(grey.transform(shaped.mean(3))).shape == (300, 64, 64)


def test_a_fit_is_reproducible_and_saved(ball, model, tmp_path):
    again = KeypointEncoder(2, **TINY).fit(ball.x.reshape(-1, 64, 64, 3))
    np.testing.assert_array_equal(again.transform(ball.x), model.transform(ball.x))
    save(model, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors", device="cpu")
    np.testing.assert_array_equal(loaded.transform(ball.x), model.transform(ball.x))
    np.testing.assert_array_equal(loaded.score_samples(ball.x), model.score_samples(ball.x))


def test_the_unit_of_a_pixel_does_not_matter(ball, model):
    bytes_ = KeypointEncoder(2, **TINY).fit(255 * ball.x.reshape(-1, 64, 64, 3))
    np.testing.assert_allclose(bytes_.transform(255 * ball.x), model.transform(ball.x), atol=1e-3)
    assert bytes_.inverse_transform(model.transform(ball.x)).max() > 100


def test_restarts_are_compared(ball):
    model = KeypointEncoder(2, n_restarts=2, **TINY).fit(ball.x.reshape(-1, 64, 64, 3))
    assert model.stability_.pairwise.shape == (2, 2)
    assert model.latents_of_restarts(ball.x).shape == (2, 300, 2)


@pytest.mark.parametrize("X", [np.zeros((10, 5)), np.full((10, 8, 8), 0.5), np.full((10, 8, 8, 3), np.nan)])
def test_what_is_no_image_is_refused(X):
    with pytest.raises(ValueError):  # noqa: PT011  # a DataError, or scikit-learn's own for NaN
        KeypointEncoder(2, **TINY).fit(X)


def test_an_odd_number_of_latents_is_refused(ball):
    with pytest.raises(ValueError, match="even"):
        KeypointEncoder(3, **TINY).fit(ball.x.reshape(-1, 64, 64, 3))


def test_rows_that_do_not_fit_the_shape_are_named(ball):
    with pytest.raises(DataError, match="12288 columns"):
        KeypointEncoder(2, image_shape=(10, 10), **TINY).fit(ball.x)


def test_slots_that_follow_another_or_are_not_seen_are_not_needed():
    net, x = painted()
    found = needed_slots(net, x, None)[0].tolist()
    assert len(found) == 2
    assert 2 in found
    assert needed_slots(net, x, 2)[0].tolist() in ([0], [1], [2])


def test_the_start_whose_slots_are_all_needed_is_kept():
    net, x = painted(STARTS)
    with torch.no_grad():
        net.paint[[0, 2], 2] = 0.1 / COLOUR_UNIT  # hardly seen: these miss the second thing
        net.paint[1, 3] = 0.77 / COLOUR_UNIT
    chosen = best_starts(net, x[1], 4)
    torch.testing.assert_close(chosen.paint, net.paint[1:2])


def test_free_slots_begin_again_in_a_colour_that_is_missing():
    net, x = painted()
    x = x.clone()
    x[:, :, 0] = 9.0  # a pixel that is never painted
    free_slots(net, x, torch.tensor([[0, 2]]), torch.Generator().manual_seed(0))
    torch.testing.assert_close(COLOUR_UNIT * net.paint[0, [0, 2], 0].detach(), torch.ones(2))
    torch.testing.assert_close(COLOUR_UNIT * net.paint[0, [1, 3], 0].detach(), torch.full((2,), 9.0))


def test_other_nets_are_kept_only_if_they_save_more():
    net, x = painted()
    with torch.no_grad():
        other, places = painted()[0], net.encode(x)
        fewer = net.only(torch.tensor([[0, 1]]))
    fewer.encode = lambda x: places[..., :4]
    assert more_needed(fewer, other, x) is other
    assert more_needed(other, fewer, x) is other
    assert more_needed(other, net, x) is other
