"""Pinwheels and parallelograms: components and moments."""

import numpy as np

from identifiable.data import make_parallelograms, make_pinwheel
from identifiable.data.latents import all_planes_rotation


def test_planar_shapes_have_no_latents_but_components():
    for sample in (make_pinwheel(3000), make_parallelograms(3000)):
        assert sample.z is None
        assert sample.u is None
        np.testing.assert_array_equal(np.bincount(sample.component), [1000] * 3)


def test_arms_of_the_pinwheel_are_rotations_of_each_other():
    sample = make_pinwheel(30_000, arms=3, random_state=0)
    turn = all_planes_rotation(2, -120)
    means = np.stack([sample.x[sample.component == j].mean(0) for j in range(3)])
    np.testing.assert_allclose(means[0] @ turn, means[1], atol=0.02)
    np.testing.assert_allclose(means[1] @ turn, means[2], atol=0.02)


def test_parallelograms_have_the_moments_of_uniform_draws():
    sample = make_parallelograms(60_000, d=3, noise=0.1, random_state=1)
    latents = sample.source.latents
    for j in range(3):
        own, edges = sample.x[sample.component == j], latents.edges[j].numpy()
        np.testing.assert_allclose(own.mean(0), latents.corners[j].numpy() + edges.sum(0) / 2, atol=0.02)
        np.testing.assert_allclose(np.cov(own.T), edges.T @ edges / 12 + 0.01 * np.eye(3), atol=0.02)
