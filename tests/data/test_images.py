"""Images of balls: positions, inactivity and pixels."""

import numpy as np
import pytest
import torch

from identifiable.data import make_balls


def test_balls_stay_inside_and_are_inactive_at_their_means():
    sample = make_balls(200, balls=4, random_state=0)
    assert sample.image_shape == (64, 64, 3)
    assert sample.x.min() >= 0
    assert sample.x.max() <= 1
    assert sample.z.min() >= 0.05
    assert sample.z.max() <= 0.95
    means = sample.source.latents.means.numpy()
    inactive = (sample.z.reshape(200, 4, 2) == means).all(-1)
    assert inactive.mean() == pytest.approx(0.1, abs=0.04)
    assert ((sample.z.reshape(200, 4, 2) == means).any(-1) == inactive).all()  # x and y together
    apart = make_balls(1, balls=2, separately=True, random_state=0).source.latents
    inactive = (apart.draw(5000, torch.Generator().manual_seed(0)).z == apart.means.reshape(-1)).numpy()
    np.testing.assert_allclose(inactive.mean(0), 0.1, atol=0.03)
    assert abs(np.corrcoef(inactive[:, 0], inactive[:, 1])[0, 1]) < 0.1


def test_the_centre_of_a_ball_is_its_position():
    """The centre of mass of what is not white is the position, to a tenth of a pixel."""
    sample = make_balls(50, balls=1, random_state=1)
    ink = (1 - sample.x.reshape(50, 64, 64, 3)).sum(-1)
    centres = (np.arange(64) + 0.5) / 64
    x = (ink.sum(1) * centres).sum(1) / ink.sum((1, 2))
    y = (ink.sum(2) * centres).sum(1) / ink.sum((1, 2))
    inside = ((sample.z > 0.1) & (sample.z < 0.9)).all(1)
    np.testing.assert_allclose(np.c_[x, y][inside], sample.z[inside], atol=0.1 / 64)


@pytest.mark.parametrize("balls", [0, 7])
def test_unknown_numbers_of_balls_are_refused(balls):
    with pytest.raises(ValueError, match="between 1 and 6"):
        make_balls(1, balls=balls)


@pytest.mark.parametrize("radii", [0.1, (0.02, 0.1, 0.3, 0.49)])
def test_every_pixel_shows_the_frontmost_ball_that_covers_it(radii):
    """The renderer paints only squares around balls; here the formula is applied to all pixels."""
    rng = np.random.default_rng(0)
    renderer = make_balls(1, balls=4, radii=radii, textured=True, random_state=0).source.mixing
    z = torch.as_tensor(rng.uniform(-0.1, 1.1, (50, 8)))
    y, x = (torch.arange(64) + 0.5).div(64).expand(64, 64).T, (torch.arange(64) + 0.5).div(64).expand(64, 64)
    expected = renderer.ground.reshape(64, 64, 3).double().expand(50, -1, -1, -1)
    for i, radius in enumerate(renderer.radii.double()):
        distance = ((x - z[:, 2 * i, None, None]) ** 2 + (y - z[:, 2 * i + 1, None, None]) ** 2).sqrt()
        cover = ((radius - distance) * 64 + 0.5).clamp(0, 1)[..., None]
        expected = cover * renderer.colours[i].double() + (1 - cover) * expected
    torch.testing.assert_close(renderer(z).double(), expected.flatten(1), atol=1e-5, rtol=0)
