import numpy as np
import pytest

from identifiable.data import make_pdgmm
from identifiable.estimators import PrincipalComponents
from identifiable.metrics import mcc, r2
from identifiable.report.recovery import recover


def test_a_method_is_fitted_to_one_sample_and_judged_on_another():
    sample, test = (make_pdgmm(500, n=3, random_state=seed) for seed in (0, 1))
    model = PrincipalComponents()
    found = recover("n = 3", "another PCA", model, sample, test, 7)
    z = model.transform(test.x)
    assert (model.n_latents, model.random_state) == (3, 7)
    np.testing.assert_allclose(model.mean_, sample.x.mean(0))
    assert (found.mcc, found.r2) == (mcc(test.z, z), r2(z, test.z))
    assert found.score == pytest.approx(model.score(test.x))
    assert np.isnan(found.agreement)  # a single start
    assert (found.setting, found.method, found.seed) == ("n = 3", "another PCA", 7)
