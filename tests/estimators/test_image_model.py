"""How images become what the nets see."""

import numpy as np
import pytest

from identifiable import ConvAutoencoder


@pytest.mark.parametrize(
    ("shape", "small"), [((64, 48, 3), (16, 12, 3)), ((30, 20, 1), (15, 10, 1)), ((20, 33), (6, 11, 1))]
)
def test_images_are_averaged_down(shape, small):
    x = np.random.default_rng(0).random((12, *shape))
    options = {"max_steps": 1, "code_steps": 1, "batch_size": 4, "random_state": 0, "verbose": 0, "device": "cpu"}
    model = ConvAutoencoder(2, most_pixels=16, **options).fit(x)
    rows = model._inputs(x.reshape(12, -1).astype(np.float32))
    assert rows.shape == (12, np.prod(small))
    assert model.inverse_transform(np.zeros((3, 2))).shape == (3, *shape)
    if shape[0] % small[0] == 0 and shape[1] % small[1] == 0:
        factor = shape[0] // small[0]
        mean = x.reshape(12, small[0], factor, small[1], factor, -1).mean((2, 4)).reshape(12, -1)
        np.testing.assert_allclose(rows * model.range_ + model.low_, mean, atol=1e-5)
