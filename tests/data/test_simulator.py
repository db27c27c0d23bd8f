"""Every simulator is reproducible, and its samples, fresh rows and streams have one distribution."""

import numpy as np
import pytest
import torch

from identifiable.data import (
    Sample,
    make_balls,
    make_gmm,
    make_parallelograms,
    make_pdgmm,
    make_pinwheel,
    make_segments,
    make_tcl,
)

MIXED = [make_pdgmm, make_segments, make_tcl, make_gmm]
every_maker = pytest.mark.parametrize("make", [*MIXED, make_pinwheel, make_parallelograms, make_balls])


@every_maker
def test_random_state_fixes_the_sample(make):
    a, b, c = make(50, random_state=3), make(50, random_state=3), make(50, random_state=4)
    np.testing.assert_array_equal(a.x, b.x)
    assert not np.array_equal(a.x, c.x)
    np.testing.assert_array_equal(a.source.sample(50, random_state=3).x, a.x)
    assert not np.array_equal(a.source.sample(50, random_state=9).x, a.x)
    assert isinstance(a, Sample)
    assert len(a) == 50
    assert a.x.dtype == (np.float32 if make is make_balls else np.float64)


@every_maker
def test_stream_has_the_moments_of_the_sample(make):
    rows = 200 if make is make_balls else 20_000
    sample = make(rows, random_state=1)
    draw = sample.source.stream("cpu", torch.float64)
    rng = torch.Generator().manual_seed(0)
    x, *u = draw(rows, rng)
    assert not torch.equal(x, draw(rows, rng)[0])
    assert bool(u) == (sample.u is not None)
    seen = sample.x.std(0) > 0.1  # not the pixels that a ball hardly ever covers
    error = sample.x.std(0) * np.sqrt(2 / rows)  # of the difference of two means
    assert (np.abs(x.numpy().mean(0) - sample.x.mean(0)) <= 6 * error)[seen].all()
    np.testing.assert_allclose(x.std(), sample.x.std(), rtol=0.05)
    assert draw(3, rng)[0].dtype == torch.float64
    assert sample.source.stream()(3, rng)[0].dtype == torch.float32


@pytest.mark.parametrize("make", MIXED)
@pytest.mark.parametrize("seed", range(3))
def test_mixing_has_an_inverse(make, seed):
    sample = make(2000, random_state=seed)
    z = sample.source.mixing.inverse(torch.as_tensor(sample.x)).numpy()
    np.testing.assert_allclose(z, sample.z, atol=1e-4)


def test_rows_can_be_many_chunks_or_fewer_than_components():
    assert make_pdgmm(45_001, n=3).x.shape == (45_001, 3)
    assert make_pdgmm(2, n=10).x.shape == (2, 10)
    with pytest.raises(ValueError, match=r"at least 1\. Got 0"):
        make_pdgmm(0)


def test_unmasked_rows_are_those_before_masking():
    sample = make_pdgmm(500, random_state=1)
    unmasked = sample.source.unmasked().sample(500, random_state=1)
    active = sample.source.latents.masks.numpy()[sample.component]
    np.testing.assert_array_equal(unmasked.z[active], sample.z[active])
    assert (unmasked.z[~active] != sample.z[~active]).all()
    with pytest.raises(ValueError, match="unmasked"):
        make_gmm(2).source.unmasked()
