"""What methods on images are compared with: random moments, and an encoder that is given the positions."""

import numpy as np

from identifiable import experiments
from identifiable.data import make_balls
from identifiable.experiments.references import ColourMoments, LabelledKeypoints
from identifiable.metrics import r2


def test_moments_of_a_disc_are_affine_in_its_position():
    sample = make_balls(200, balls=1, random_state=3)
    sample = sample[((sample.z > 0.11) & (sample.z < 0.89)).all(1)]  # the frame cuts nothing off
    model = ColourMoments(image_shape=sample.image_shape, random_state=0).fit(sample.x)
    assert r2(target=model.transform(sample.x), source=sample.z) > 0.999
    assert r2(target=sample.z, source=model.transform(sample.x)) > 0.999


def test_moments_that_are_the_same_in_all_images_are_dropped():
    x = np.random.default_rng(0).random((20, 6, 6, 3)) * [1, 0, 0]  # red only
    found = ColourMoments(image_shape=(6, 6, 3), random_state=0).fit_transform(x.reshape(20, -1))
    assert 0 < found.shape[1] < 128
    assert np.ptp(found, axis=0).min() > 0


def test_positions_are_learnt_from_labels_only():
    sample = make_balls(400, balls=2, random_state=0)
    new = sample.source.sample(200, random_state=1)
    options = {"image_shape": sample.image_shape, "max_steps": 60, "batch_size": 32, "verbose": 0, "device": "cpu"}
    model = LabelledKeypoints(4, random_state=0, **options).fit(sample.x, sample.z)
    error = np.abs(model.transform(new.x) - new.z).mean(0)
    assert error.max() < 0.05  # in units of the frame, in the order of the labels
    assert not callable(model.inverse_transform)


def test_references_are_not_public():
    import identifiable

    for name in ("ColourMoments", "LabelledKeypoints"):
        assert name not in identifiable.__all__
    assert not hasattr(experiments, "LabelledKeypoints")
