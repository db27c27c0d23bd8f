"""Pictures in records: images beside reconstructions, and traversals, as PNG."""

import base64
import io

import numpy as np
from PIL import Image

from identifiable.data import Sample
from identifiable.experiments import pictures


def pixels(text):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) / 255


def fields(image, rows, columns, side):
    """The images of a sheet, (rows, columns, side, side, 3)."""
    step = side + pictures.GAP
    return np.array(
        [[image[r * step : r * step + side, c * step : c * step + side] for c in range(columns)] for r in range(rows)]
    )


def decode(z):
    """Images of one colour: red is the first latent, green the second."""
    return np.repeat(np.c_[z, np.zeros(len(z))], 16, axis=0).reshape(len(z), -1)


def test_reconstructions_and_traversals_are_those_of_the_decoder():
    z = np.random.default_rng(0).random((500, 2))
    x = np.sqrt(decode(z))
    found = pictures.of_fit(decode, z, Sample(x, image_shape=(4, 4, 3)))
    frames = fields(pixels(found["frames"]), 2, pictures.FRAMES, 4)
    np.testing.assert_allclose(frames[0].reshape(pictures.FRAMES, -1), x[: pictures.FRAMES], atol=0.01)
    np.testing.assert_allclose(frames[1].reshape(pictures.FRAMES, -1), decode(z[: pictures.FRAMES]), atol=0.01)
    along = fields(pixels(found["traversals"]), 2, pictures.STEPS, 4)[:, :, 0, 0]
    low, high = np.quantile(z, pictures.QUANTILES, axis=0)
    for i in range(2):
        np.testing.assert_allclose(along[i, :, i], np.linspace(low[i], high[i], pictures.STEPS), atol=0.01)
        np.testing.assert_allclose(along[i, :, 1 - i], np.median(z[:, 1 - i]), atol=0.01)


def test_large_images_are_averaged_down():
    x = np.random.default_rng(0).random((3, 64, 64, 1))
    image = pixels(pictures.sheet([x]))
    assert image.shape[:2] == (32, 3 * 32 + 2 * pictures.GAP)
    small = x.reshape(3, 32, 2, 32, 2).mean((2, 4))
    np.testing.assert_allclose(image.reshape(32, -1)[:, :32], small[0], atol=0.01)
