"""VaDE: clusters of a known mixture, their draws, and parameters."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax

from autoencoder_helpers import QUICK, expected_log_joint, linear_vade, require_moments
from identifiable import DataError, VaDE

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")


@pytest.mark.parametrize("seed", range(2))
def test_clusters_are_numbered_as_in_the_mixture(seed):
    known = linear_vade(seed)
    mixture = known.model.mixture_
    np.testing.assert_allclose(mixture.weights, known.weights)
    np.testing.assert_allclose(mixture.means, known.means)
    np.testing.assert_allclose(np.diagonal(mixture.covariances, axis1=1, axis2=2), known.scales**2)
    q = known.nets.encode(torch.as_tensor(known.rows)[None])
    found = known.model.predict_proba(known.x)
    np.testing.assert_allclose(found, softmax(expected_log_joint(q, mixture), -1), rtol=1e-6)
    np.testing.assert_array_equal(known.model.predict(known.x), found.argmax(1))


def test_draws_have_the_moments_of_their_cluster():
    known = linear_vade(0)
    for k in range(3):
        require_moments(known.model.sample(20_000, k, component=k), known.given(k))
        centre = known.model.inverse_transform(known.model.mixture_.means[[k]])[0]
        np.testing.assert_allclose(centre, known.given(k).mean)
    drawn = known.model.sample(20_000, random_state=0)
    mean = known.weights @ [known.given(k).mean for k in range(3)]
    np.testing.assert_allclose((drawn.mean(0) - mean) / drawn.std(0), 0, atol=0.04)
    for wrong in (3, -1, 0.5):
        with pytest.raises(DataError, match="component must be a number"):
            known.model.sample(2, component=wrong)


@pytest.mark.parametrize("components", [1, 3])
def test_importance_weights_reach_the_likelihood_of_the_mixture(components):
    known = linear_vade(1, components)
    slope, shift, covariance = known.posterior(0)
    known.set_encoder(slope, shift, covariance * (1.0 if components == 1 else 2.0))
    exact = logsumexp([np.log(w) + known.given(k).logpdf(known.x) for k, w in enumerate(known.weights)], axis=0)
    bound, tighter = (known.model.score_samples(known.x, importance=i) for i in (False, True))
    if components == 1:  # q is the posterior
        np.testing.assert_allclose((bound, tighter), (exact, exact), rtol=1e-8)
    else:
        assert (bound < tighter).all()
        np.testing.assert_allclose(tighter, exact, atol=0.5)
        assert abs((tighter - exact).mean()) < 0.1


@pytest.mark.parametrize("components", [0, (3, 4)])
def test_wrong_numbers_of_components_are_refused(components):
    with pytest.raises(ValueError, match="'n_components' parameter of VaDE"):
        VaDE(2, components, **QUICK).fit(np.eye(20)[:, :3])
