"""The certificate of an affine mixing given u: false separations of proportional variances, and true ones."""

import numpy as np
import pytest

from identifiable import Level, SegmentUnmixing
from identifiable.data import make_segments

GROUPS = 8


def certified(scales, rng, rows=4000, means=0.0):
    """Fit rows with these scales (G, n) in every segment, mixed by a matrix."""
    u = np.arange(rows) % len(scales)
    z = (np.asarray(means) + np.zeros_like(scales))[u] + scales[u] * rng.normal(size=(rows, scales.shape[1]))
    x = z @ np.linalg.qr(rng.normal(size=(scales.shape[1],) * 2))[0]
    return SegmentUnmixing(n_restarts=2, random_state=0).fit(x, u.astype(str)).certificate_


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_proportional_variances_are_not_separated():
    """The fit selects the rotation in which they look most different."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        scales = rng.uniform(0.5, 3, size=(GROUPS, 3))
        scales[:, 1] = 2 * scales[:, 0]
        certificate = certified(scales, rng)
        assert certificate.level < Level.PS
        assert certificate["ratios"].verdict == "inconclusive"


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_means_alone_separate_nothing():
    rng = np.random.default_rng(0)
    certificate = certified(np.ones((GROUPS, 3)), rng, means=3 * rng.normal(size=(GROUPS, 3)))
    assert certificate.level <= Level.AT
    assert certificate["ratios"].verdict == "inconclusive"


@pytest.mark.parametrize("centred", [True, False])
def test_different_variances_are_ps_for_an_affine_mixing(centred):
    s = make_segments(8000, segments=10, n=3, layers=1, centred=centred, random_state=0)
    certificate = SegmentUnmixing(random_state=0).fit(s.x, s.u).certificate_
    assert certificate.level == certificate.if_undecided_hold == Level.PS
    assert certificate.error_level == 0.05
    assert "affine" in certificate.premises[0]
    assert certificate.blocks == ((0,), (1,), (2,))


@pytest.mark.parametrize("rows", [1000, 8000])
def test_a_tanh_mixing_gets_no_level(rows):
    s = make_segments(rows, segments=10, n=3, layers=3, random_state=0)
    certificate = SegmentUnmixing(random_state=0).fit(s.x, s.u).certificate_
    assert certificate.level == certificate.if_undecided_hold == Level.NONE
    assert certificate["fit"].verdict == "fails"
