"""Keypoint autoencoders: positions in images of one or two balls, and what is done with slots."""

import numpy as np
import pytest
import torch

from identifiable import DataError, KeypointEncoder, RecoveryWarning, load, save
from identifiable.data import make_balls
from identifiable.estimators.keypoints import free_slots, missed_share, needed_slots
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
    assert model.missed_ < 0.1
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


@pytest.mark.parametrize("faint", [0, 1])
def test_of_slots_on_one_thing_the_one_that_shows_it_best_is_kept(faint):
    net, x = painted()
    with torch.no_grad():
        net.alpha[0, faint, 5:8, 5:8] = -2 / SPRITE_UNIT
    assert needed_slots(net, x, None)[0].tolist() == [1 - faint, 2]


def test_slots_that_move_together_at_a_distance_are_on_two_things():
    net, _ = painted()
    places = net.encode(None).clone()
    places[..., 2:4] = places[..., :2] + 0.3
    net.encode = lambda x: places
    assert needed_slots(net, net.decode(places).detach(), None)[0].tolist() == [0, 1, 2]


def test_new_slots_are_on_the_balls_before_any_training():
    sample = make_balls(300, balls=3, random_state=0)
    x = torch.as_tensor(sample.x).reshape(300, 32, 2, 32, 2, 3).mean((2, 4)).flatten(1)[None]
    rng = torch.Generator().manual_seed(0)
    net = Keypoints(x[0].median(0).values.reshape(32, 32, 3), slots=4, members=1, rng=rng)
    new = free_slots(net, x, torch.empty(1, 0, dtype=torch.long), rng)
    assert new.all()
    p = net.encode(x)[0].detach().numpy().reshape(300, 4, 2)
    best = [max(r2(ball, p[:, k]) for k in range(4)) for ball in sample.z.reshape(300, 3, 2).transpose(1, 0, 2)]
    assert min(best) > 0.7


def test_a_free_slot_begins_at_what_is_missed_and_needed_ones_stay():
    net, x = painted()
    before = net.paint.detach().clone()
    x = x.clone().reshape(1, 64, 16, 16)
    x[:, :, 2:5, 9:12] = 0.6  # a thing that no slot paints
    new = free_slots(net, x.flatten(2), torch.tensor([[0, 2, 3]]), torch.Generator().manual_seed(0))
    assert new.tolist() == [[False, True, False, False]]
    torch.testing.assert_close(COLOUR_UNIT * net.paint[0, 1, 0].detach(), torch.tensor(0.6))
    torch.testing.assert_close(net.paint[0, [0, 2, 3]].detach(), before[0, [0, 2, 3]])


def test_a_thing_that_is_missed_is_noticed_and_misplaced_edges_and_noise_are_not():
    net, x = painted()
    places = net.encode(x)[..., [2, 3, 4, 5]]
    net = net.only(torch.tensor([[1, 2]]))
    net.encode = lambda x: places
    noise = 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    assert missed_share(net, x + noise) < 0.05
    net.encode = lambda x: places + 0.5 / 16
    assert missed_share(net, x) < 0.05
    with torch.no_grad():
        net.alpha[:, 1] = -20 / SPRITE_UNIT
    assert missed_share(net, x) > 0.8


def test_too_few_keypoints_are_warned_of():
    sample = make_balls(400, balls=2, random_state=0)
    options = TINY | {"max_steps": 60, "batch_size": 16, "image_shape": sample.image_shape}
    with pytest.warns(RecoveryWarning, match="not reconstructed"):
        model = KeypointEncoder(2, **options).fit(sample.x)
    assert model.missed_ > 0.5
